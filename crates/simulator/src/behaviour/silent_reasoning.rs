//! Reasoning that is billed and never streamed: with `summary = null` gpt-5-mini was silent for 853 ms
//! over 64 reasoning tokens. Only the length of the silence and the count can be seen.

use serde::Deserialize;
use serde_json::{Value, json};
use sseismo_trace::Phase;

use super::Behaviour;
use super::steady::frame;
use crate::ask::Ask;
use crate::draw::Draw;
use crate::plan::{Plan, What};
use crate::unit::{Positive, Span};

/// `kind = "silent-reasoning"`.
#[derive(Clone, Debug, Deserialize)]
#[serde(default, deny_unknown_fields, rename_all = "kebab-case")]
pub(super) struct SilentReasoning {
    /// Reasoning tokens a second.
    speed: Positive,
    /// Between two frames of the answer.
    gap: Span,
    /// Tokens in a frame of the answer.
    tokens: Positive,
}

impl Default for SilentReasoning {
    fn default() -> Self {
        Self { speed: Positive(75.0), gap: Span::ms(30), tokens: Positive(3.0) }
    }
}

impl Behaviour for SilentReasoning {
    fn shape(&mut self, _: &Ask, plan: &mut Plan, draw: &mut Draw) -> Option<Value> {
        let start = plan.first_at;
        plan.lay(draw, |draw, phase| match phase {
            Phase::Reasoning => (1.0 / self.speed.0, 1),
            _ => (self.gap.seconds() * draw.between(0.7, 1.3), frame(self.tokens, draw)),
        });
        plan.beats.retain(|beat| beat.what != What::Reasoning);
        let silence = plan.beats.first().map_or(0, |beat| beat.at.since(start).0);
        Some(json!({ "silence_us": silence }))
    }
}
