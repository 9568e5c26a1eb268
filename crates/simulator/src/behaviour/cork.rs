//! Nagle's cork: bytes leave only on the ticks of a clock, every 200 ms. No stall, a lesser finding.

use serde::Deserialize;
use serde_json::{Value, json};
use sseismo_trace::Micros;

use super::Behaviour;
use crate::script::Script;
use crate::unit::Span;

/// `kind = "cork"`.
#[derive(Clone, Debug, Deserialize)]
#[serde(default, deny_unknown_fields, rename_all = "kebab-case")]
pub(super) struct Cork {
    /// From tick to tick, counted from the response's head.
    period: Span,
}

impl Default for Cork {
    fn default() -> Self {
        Self { period: Span::ms(200) }
    }
}

impl Behaviour for Cork {
    fn deliver(&mut self, script: &mut Script) -> Option<Value> {
        let period = self.period.us().max(1);
        let head = script.head_at.0;
        for write in &mut script.writes {
            let since = write.at.0 - head;
            write.at = Micros(head + since + (period - since.rem_euclid(period)) % period);
        }
        script.join_equal();
        Some(json!({ "period_us": period, "flushes": script.writes.len() }))
    }
}
