//! What an answer cost: reported usage and a price table in, dollars out.
//!
//! Only reported tokens are priced, never estimates; without a price or without a report the cost is `None`.
//! Reasoning tokens are part of the output, as providers report and bill them.

use sseismo_trace::Usage;

/// Prices in US dollars per million tokens.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Price {
    /// Prompt tokens.
    pub input: f64,
    /// Prompt tokens that were read from a cache; `None`: as `input`.
    pub cached_input: Option<f64>,
    /// Generated tokens, reasoning included.
    pub output: f64,
}

impl Price {
    /// The cost of one answer in US dollars; `None` when its prompt or output tokens were not reported.
    #[expect(clippy::cast_precision_loss, reason = "token counts stay far below 2^53")]
    pub fn cost(&self, usage: &Usage) -> Option<f64> {
        let (input, output) = (usage.input?, usage.output?);
        let cached = usage.cached.unwrap_or(0).min(input);
        let fresh = input - cached;
        let sum = fresh as f64 * self.input
            + cached as f64 * self.cached_input.unwrap_or(self.input)
            + output as f64 * self.output;
        Some(sum / 1e6)
    }

    /// What so many tokens would cost, none of them from a cache, in US dollars.
    #[expect(clippy::cast_precision_loss, reason = "token counts stay far below 2^53")]
    pub fn estimate(&self, input: u64, output: u64) -> f64 {
        (input as f64 * self.input + output as f64 * self.output) / 1e6
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn cached_tokens_are_a_part_of_the_prompt_and_reasoning_a_part_of_the_output() {
        let price = Price { input: 2.0, cached_input: Some(0.5), output: 10.0 };
        let usage = Usage {
            input: Some(1_000_000),
            cached: Some(400_000),
            output: Some(100_000),
            reasoning: Some(9e4),
        };
        assert!((price.cost(&usage).unwrap() - (1.2 + 0.2 + 1.0)).abs() < 1e-12);
        let whole = Price { cached_input: None, ..price };
        assert!((whole.cost(&usage).unwrap() - (2.0 + 1.0)).abs() < 1e-12);
    }

    #[test]
    fn what_was_not_reported_has_no_price() {
        let price = Price { input: 2.0, cached_input: None, output: 10.0 };
        assert_eq!(price.cost(&Usage::default()), None);
        assert_eq!(price.cost(&Usage { input: Some(3), ..Usage::default() }), None);
    }
}
