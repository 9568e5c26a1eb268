//! What tokens cost, and how much may be spent.

use super::branch::Usage;

/// Tokens per byte of text until a report says better: the ratio over production prompts.
const TOKENS_PER_BYTE: f64 = 0.27;
/// Reserved for the prompt under a hard budget: half a token a byte holds for Chinese, too, and the chat template
/// adds a few.
const PROMPT_TOKENS_PER_BYTE: f64 = 0.5;
const TEMPLATE_TOKENS: u64 = 32;

/// US dollars per million tokens.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(in crate::vote) struct Price {
    pub(super) input: f64,
    pub(super) output: f64,
    /// Input that the upstream found in its cache.
    pub(super) cached: f64,
}

impl Price {
    /// US dollars for so many tokens.
    pub(super) fn of(self, usage: Usage) -> f64 {
        let cached = usage.cached.min(usage.input);
        let fresh = usage.input - cached;
        (float(fresh) * self.input + float(cached) * self.cached + float(usage.output) * self.output) / 1e6
    }
}

/// `INPUT:OUTPUT` or `INPUT:OUTPUT:CACHED`.
pub(super) fn parse_price(text: &str) -> Result<Price, String> {
    let parts: Option<Vec<f64>> =
        text.split(':').map(|part| part.parse().ok().filter(|p: &f64| p.is_finite() && *p >= 0.0)).collect();
    match parts.as_deref() {
        Some([input, output]) => Ok(Price { input: *input, output: *output, cached: *input }),
        Some([input, output, cached]) => Ok(Price { input: *input, output: *output, cached: *cached }),
        _ => Err("USD per million tokens as INPUT:OUTPUT or INPUT:OUTPUT:CACHED".to_owned()),
    }
}

/// Hard limits over all branches.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Budget {
    pub(super) max_tokens: Option<u64>,
    pub(super) max_usd: Option<f64>,
}

impl Budget {
    /// Whether nothing more may be spent.
    pub(super) fn is_spent(self, tokens: u64, usd: f64) -> bool {
        self.max_tokens.is_some_and(|max| tokens >= max) || self.max_usd.is_some_and(|max| usd >= max)
    }

    /// Most output tokens that one of `n` equal branches may be allowed, so that all together stay within the
    /// limits whatever they do; `None` without a limit.
    pub(super) fn cap(self, n: u64, prompt_bytes: usize, price: Option<Price>) -> Option<u64> {
        let prompt = prompt_reserve(prompt_bytes);
        let by_tokens = self.max_tokens.map(|max| (max / n).saturating_sub(prompt));
        let by_usd = self.max_usd.zip(price).map(|(max, price)| {
            let left = max / float(n) * 1e6 - float(prompt) * price.input.max(price.cached);
            if left <= 0.0 { 0 } else { whole(left / price.output.max(f64::MIN_POSITIVE)) }
        });
        [by_tokens, by_usd].into_iter().flatten().min()
    }
}

/// Tokens that are reserved for the prompt of one branch.
pub(super) fn prompt_reserve(bytes: usize) -> u64 {
    whole((float(bytes as u64) * PROMPT_TOKENS_PER_BYTE).ceil()) + TEMPLATE_TOKENS
}

/// Tokens of a branch that reported none. `like` is the report of another branch of the same model, with the
/// bytes that it wrote: it knows the prompt's size and the tokens per byte.
pub(super) fn estimate(bytes: usize, prompt_bytes: usize, like: Option<(Usage, usize)>) -> Usage {
    let per_byte = |bytes: usize, ratio: f64| whole((float(bytes as u64) * ratio).ceil());
    match like {
        Some((usage, written)) if written > 0 => Usage {
            input: usage.input,
            output: per_byte(bytes, float(usage.output) / float(written as u64)),
            cached: 0,
        },
        _ => Usage {
            input: per_byte(prompt_bytes, TOKENS_PER_BYTE),
            output: per_byte(bytes, TOKENS_PER_BYTE),
            cached: 0,
        },
    }
}

#[expect(clippy::cast_precision_loss, reason = "token counts stay far below 2^52")]
fn float(n: u64) -> f64 {
    n as f64
}

#[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "saturates; never negative")]
fn whole(x: f64) -> u64 {
    x.max(0.0) as u64
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn prices_are_per_million() {
        let price = parse_price("2:10:0.5").unwrap();
        let usage = Usage { input: 1_000, output: 500, cached: 400 };
        assert!((price.of(usage) - (600.0 * 2.0 + 400.0 * 0.5 + 500.0 * 10.0) / 1e6).abs() < 1e-15);
        assert!(parse_price("1").is_err() && parse_price("1:-2").is_err() && parse_price("a:b").is_err());
    }

    #[test]
    fn caps_keep_the_worst_case_within_the_limit() {
        let price = parse_price("1:10").unwrap();
        for n in [1, 3, 8] {
            let budget = Budget { max_tokens: Some(10_000), max_usd: Some(0.01) };
            let cap = budget.cap(n, 400, Some(price)).unwrap();
            let worst = Usage { input: prompt_reserve(400), output: cap, cached: 0 };
            assert!(n * (worst.input + worst.output) <= 10_000);
            assert!(price.of(worst) * float(n) <= 0.01);
        }
        assert_eq!(Budget::default().cap(8, 400, Some(price)), None);
        assert_eq!(Budget { max_tokens: Some(100), max_usd: None }.cap(8, 400, None), Some(0));
    }
}
