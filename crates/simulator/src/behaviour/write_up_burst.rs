//! The burst of the production write-ups: 40–80 tokens in one frame, then 1–2 s of dead air.

use std::path::Path;

use serde::Deserialize;
use serde_json::{Value, json};
use sseismo_trace::Phase;

use super::{Behaviour, ordered};
use crate::ask::Ask;
use crate::draw::Draw;
use crate::plan::Plan;
use crate::unit::Span;

/// `kind = "write-up-burst"`.
#[derive(Clone, Debug, Deserialize)]
#[serde(default, deny_unknown_fields, rename_all = "kebab-case")]
pub(super) struct WriteUpBurst {
    /// Shortest and longest dead air before a flush.
    gap: [Span; 2],
    /// Fewest and most tokens in a flush.
    tokens: [u32; 2],
    /// Between two frames of the answer, which flows on.
    answer_gap: Span,
}

impl Default for WriteUpBurst {
    fn default() -> Self {
        Self { gap: [Span::ms(1_000), Span::ms(2_000)], tokens: [40, 80], answer_gap: Span::ms(50) }
    }
}

impl Behaviour for WriteUpBurst {
    fn ready(&mut self, _: &Path) -> Result<(), (&'static str, String)> {
        ordered("gap", self.gap).and_then(|()| ordered("tokens", self.tokens))
    }

    fn shape(&mut self, _: &Ask, plan: &mut Plan, draw: &mut Draw) -> Option<Value> {
        let mut flushes = 0;
        plan.lay(draw, |draw, phase| {
            if phase != Phase::Reasoning {
                return (self.answer_gap.seconds(), 3);
            }
            flushes += 1;
            let gap = draw.between(self.gap[0].seconds(), self.gap[1].seconds());
            (gap, draw.whole(self.tokens[0], self.tokens[1]))
        });
        Some(json!({ "flushes": flushes }))
    }
}
