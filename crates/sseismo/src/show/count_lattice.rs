//! `count-lattice` for people: the lattice, its values as bars, and how well rules on it do.

use sseismo_analysis::signature::count_lattice::{Detectable, Evidence, RuleScore, Tier, TopValue};
use sseismo_trace::Finding;

use super::{plain_table, right_align};

/// Columns of the longest bar.
const BAR: u64 = 32;
/// Values beyond this number are summed up in one line.
const BARS: usize = 12;

/// What a table row says beside the effect: the mass that a `none` would have shown.
pub(super) fn remark(finding: &Finding) -> String {
    let detectable =
        serde_json::from_value::<Evidence>(finding.evidence.clone()).ok().and_then(|e| e.detectable);
    match detectable {
        Some(Detectable { mass: Some(mass), .. }) => format!("would show from {:.1} %", 100.0 * mass),
        Some(Detectable { mass: None, .. }) => "too few to show any".to_owned(),
        None => String::new(),
    }
}

/// The lines below a verdict.
pub(super) fn lines(evidence: &Evidence) -> Vec<String> {
    let mut lines = Vec::new();
    if evidence.tiers.is_empty() {
        lines.extend(evidence.detectable.as_ref().map(seen));
        lines.extend(bars(evidence.top_values.iter().map(bar_of_value).collect()));
    } else {
        lines.extend(lattice(evidence));
        lines.extend(bars(evidence.tiers.iter().map(bar_of_tier).collect()));
    }
    lines.extend(scorecard(&evidence.scorecard));
    lines
}

fn lattice(evidence: &Evidence) -> Option<String> {
    let (step, offset) = (evidence.step?, evidence.offset?);
    Some(format!(
        "step {step}, offset {offset}: {} counts on it, {:.1} expected; LLR {:.1}, {:.1} needed",
        evidence.hits, evidence.expected, evidence.llr, evidence.threshold
    ))
}

fn seen(detectable: &Detectable) -> String {
    match detectable.mass {
        Some(mass) => format!(
            "a lattice like {} would have been seen had it held {:.1} % of the counts ({:.0} % power)",
            detectable.lattice,
            100.0 * mass,
            100.0 * detectable.power
        ),
        None => {
            format!(
                "so few would not show even a lattice that holds every one (tried: {})",
                detectable.lattice
            )
        }
    }
}

struct Bar {
    value: u32,
    count: u64,
    rest: String,
}

fn bar_of_tier(tier: &Tier) -> Bar {
    let rest = if tier.labelled > 0 {
        format!("n={}  {} of {} labelled correct", tier.n, tier.correct, tier.labelled)
    } else {
        format!("n={}", tier.n)
    };
    Bar { value: tier.value, count: tier.hits, rest }
}

fn bar_of_value(top: &TopValue) -> Bar {
    Bar { value: top.value, count: top.count, rest: format!("{:.1} expected", top.expected) }
}

/// One line per value: tokens, how often, a bar as long as that.
fn bars(mut bars: Vec<Bar>) -> Vec<String> {
    let beyond = bars.split_off(bars.len().min(BARS));
    let largest = bars.iter().map(|bar| bar.count).max().unwrap_or(0).max(1);
    let (value_width, count_width) =
        (bars.iter().map(|bar| bar.value.to_string().len()).max().unwrap_or(0), largest.to_string().len());
    let rest = (!beyond.is_empty()).then(|| {
        let counts: u64 = beyond.iter().map(|bar| bar.count).sum();
        format!("… and {} more values with {counts} counts", beyond.len())
    });
    bars.into_iter()
        .map(|bar| {
            let length = usize::try_from((bar.count * BAR).div_ceil(largest)).unwrap_or(0);
            format!(
                "{:>value_width$} tokens  {:>count_width$} × {:<width$} {}",
                bar.value,
                bar.count,
                "█".repeat(length),
                bar.rest,
                width = 32,
            )
        })
        .chain(rest)
        .collect()
}

fn scorecard(rules: &[RuleScore]) -> Vec<String> {
    if rules.is_empty() {
        return Vec::new();
    }
    let mut table = plain_table([
        "rule for \"wrong answer\"",
        "flags",
        "precision",
        "recall",
        "correct answers discarded",
    ]);
    right_align(&mut table, &[1, 2, 3, 4]);
    for rule in rules {
        table.add_row([
            rule.rule.clone(),
            rule.flagged.to_string(),
            share(rule.precision, rule.precision_ci95),
            share(rule.recall, rule.recall_ci95),
            rule.correct_discarded.to_string(),
        ]);
    }
    table.lines().collect()
}

fn share(value: Option<f64>, [low, high]: [f64; 2]) -> String {
    value.map_or_else(|| "–".to_owned(), |value| format!("{value:.3} ({low:.3}–{high:.3})"))
}
