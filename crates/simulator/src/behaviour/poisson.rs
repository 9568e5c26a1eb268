//! Frames at random moments: exponential gaps.

use serde::Deserialize;
use serde_json::{Value, json};

use super::Behaviour;
use super::steady::frame;
use crate::ask::Ask;
use crate::draw::Draw;
use crate::plan::Plan;
use crate::unit::{Positive, Span};

/// `kind = "poisson"`.
#[derive(Clone, Debug, Deserialize)]
#[serde(default, deny_unknown_fields, rename_all = "kebab-case")]
pub(super) struct Poisson {
    /// Mean time between two frames.
    gap: Span,
    /// Tokens in a frame.
    tokens: Positive,
}

impl Default for Poisson {
    fn default() -> Self {
        Self { gap: Span::ms(50), tokens: Positive(3.0) }
    }
}

impl Behaviour for Poisson {
    fn shape(&mut self, _: &Ask, plan: &mut Plan, draw: &mut Draw) -> Option<Value> {
        plan.lay(draw, |draw, _| (draw.exponential(self.gap.seconds()), frame(self.tokens, draw)));
        Some(json!({}))
    }
}
