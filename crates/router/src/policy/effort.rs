//! Words for reasoning effort: which are deep, and which is one step less.

/// A budget of thinking tokens from which a call counts as deep: the least median of reasoning tokens that
/// makes a prompt size deep.
const DEEP_BUDGET: u64 = 1_000;

/// The least budget of thinking tokens that Anthropic's API takes.
pub const LEAST_BUDGET: u64 = 1_024;

/// Whether a call with this effort is expected to reason long.
pub fn is_deep(effort: Option<&str>) -> bool {
    let Some(effort) = effort else { return false };
    let budget = effort.strip_prefix("budget-").and_then(|tokens| tokens.parse::<u64>().ok());
    matches!(effort, "high" | "xhigh" | "max") || budget.is_some_and(|tokens| tokens >= DEEP_BUDGET)
}

/// So many steps less; `None` when there is no less. From what only some models know (`xhigh`, `max`) the next
/// step is `high`, which every model with efforts knows; nothing goes below `low`.
pub fn lowered(effort: &str, steps: u8) -> Option<&'static str> {
    const LEVELS: [&str; 3] = ["low", "medium", "high"];
    let level = match effort {
        "xhigh" | "max" => LEVELS.len(),
        word => LEVELS.iter().position(|level| *level == word)?,
    };
    let lower = level.saturating_sub(usize::from(steps));
    LEVELS.get(lower).filter(|_| lower < level).copied()
}

/// Whether a stated effort has something below it.
pub fn can_be_lowered(effort: Option<&str>) -> bool {
    let Some(effort) = effort else { return false };
    let budget = effort.strip_prefix("budget-").and_then(|tokens| tokens.parse::<u64>().ok());
    budget.map_or_else(|| lowered(effort, 1).is_some(), |tokens| lowered_budget(tokens, 1).is_some())
}

/// A budget of thinking tokens, halved for each step; `None` when there is no less.
pub fn lowered_budget(tokens: u64, steps: u8) -> Option<u64> {
    let lower = tokens.checked_shr(u32::from(steps)).unwrap_or(0).max(LEAST_BUDGET);
    (lower < tokens).then_some(lower)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn efforts_step_down_to_low_and_no_further() {
        for (effort, steps, lower) in [
            ("max", 1, Some("high")),
            ("xhigh", 2, Some("medium")),
            ("high", 1, Some("medium")),
            ("high", 9, Some("low")),
            ("low", 1, None),
            ("minimal", 1, None),
            ("high", 0, None),
        ] {
            assert_eq!(lowered(effort, steps), lower, "{effort} {steps}");
        }
        assert_eq!((lowered_budget(8_192, 1), lowered_budget(1_500, 3)), (Some(4_096), Some(1_024)));
        assert_eq!(lowered_budget(1_024, 1), None);
        assert!(is_deep(Some("high")) && is_deep(Some("budget-2048")) && !is_deep(Some("budget-500")));
        assert!(!is_deep(Some("medium")) && !is_deep(None));
    }
}
