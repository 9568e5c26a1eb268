//! Frames at an even pace: a healthy engine. Local engines show a coefficient of variation of 0.02–0.04
//! (AIPerf and Ollama streams of `data/timing`).

use serde::Deserialize;
use serde_json::{Value, json};

use super::Behaviour;
use crate::ask::Ask;
use crate::draw::Draw;
use crate::plan::Plan;
use crate::unit::{Positive, Share, Span};

/// `kind = "steady"`.
#[derive(Clone, Debug, Deserialize)]
#[serde(default, deny_unknown_fields, rename_all = "kebab-case")]
pub(super) struct Steady {
    /// Between two frames.
    gap: Span,
    /// How far a gap strays, as a share of itself (standard deviation).
    jitter: Share,
    /// Tokens in a frame.
    tokens: Positive,
}

impl Default for Steady {
    fn default() -> Self {
        Self { gap: Span::ms(50), jitter: Share(0.04), tokens: Positive(3.0) }
    }
}

impl Behaviour for Steady {
    fn shape(&mut self, _: &Ask, plan: &mut Plan, draw: &mut Draw) -> Option<Value> {
        plan.lay(draw, |draw, _| {
            (self.gap.seconds() * (1.0 + self.jitter.0 * draw.normal()), frame(self.tokens, draw))
        });
        Some(json!({}))
    }
}

/// Tokens of one frame: `mean`, with its fraction as the chance of one more.
pub(super) fn frame(mean: Positive, draw: &mut Draw) -> u32 {
    #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "tokens of a frame are few")]
    let whole = mean.0.floor() as u32;
    whole + u32::from(draw.chance(mean.0.fract()))
}
