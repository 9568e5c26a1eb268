//! A limiter in front of the client: a bucket of tokens is filled every period; what it does not cover
//! waits for the next filling and then leaves at line rate. 60 tokens every 1.5 s by default.

use std::path::Path;

use serde::Deserialize;
use serde_json::{Value, json};
use sseismo_trace::Micros;

use super::Behaviour;
use crate::script::Script;
use crate::unit::Span;

/// `kind = "token-bucket"`.
#[derive(Clone, Debug, Deserialize)]
#[serde(default, deny_unknown_fields, rename_all = "kebab-case")]
pub(super) struct TokenBucket {
    /// Tokens that one filling pays for.
    tokens: u32,
    /// From filling to filling.
    period: Span,
    /// Between two frames that leave from the backlog.
    line_gap: Span,
}

impl Default for TokenBucket {
    fn default() -> Self {
        Self { tokens: 60, period: Span::ms(1_500), line_gap: Span::ms(6) }
    }
}

impl Behaviour for TokenBucket {
    fn ready(&mut self, _: &Path) -> Result<(), (&'static str, String)> {
        if self.tokens == 0 {
            return Err(("tokens", "must be at least 1".into()));
        }
        if self.period.us() == 0 { Err(("period", "must be longer than 0".into())) } else { Ok(()) }
    }

    fn deliver(&mut self, script: &mut Script) -> Option<Value> {
        let period = self.period.us();
        let (mut left, mut filled, mut waits) = (i64::from(self.tokens), 0_i64, 0_u32);
        let mut previous = i64::MIN;
        let prices: Vec<i64> = script.tokens_by_write();
        for (write, price) in script.writes.iter_mut().zip(prices) {
            let mut at = write.at.0.max(previous);
            let mut held = false;
            loop {
                let fillings = at.div_euclid(period);
                if fillings > filled {
                    (filled, left) = (fillings, i64::from(self.tokens));
                }
                if left > 0 || price == 0 {
                    break;
                }
                (at, held) = ((filled + 1) * period, true);
            }
            waits += u32::from(held);
            left -= price;
            previous = at + self.line_gap.us();
            write.at = Micros(at);
        }
        script.close_at = script.close_at.max(script.last_write_at());
        (waits > 0).then(|| json!({ "tokens": self.tokens, "period_us": period, "waits": waits }))
    }
}
