//! Frames with a long tail of honest gaps. A log-sd of 1 is near what GPT-4o streams show (CV 1.2–1.3).

use serde::Deserialize;
use serde_json::{Value, json};

use super::Behaviour;
use super::steady::frame;
use crate::ask::Ask;
use crate::draw::Draw;
use crate::plan::Plan;
use crate::unit::{Positive, Span};

/// `kind = "lognormal"`.
#[derive(Clone, Debug, Deserialize)]
#[serde(default, deny_unknown_fields, rename_all = "kebab-case")]
pub(super) struct Lognormal {
    /// Median time between two frames.
    gap: Span,
    /// Standard deviation of the gap's logarithm.
    sigma: Positive,
    /// Tokens in a frame.
    tokens: Positive,
}

impl Default for Lognormal {
    fn default() -> Self {
        Self { gap: Span::ms(30), sigma: Positive(1.0), tokens: Positive(3.0) }
    }
}

impl Behaviour for Lognormal {
    fn shape(&mut self, _: &Ask, plan: &mut Plan, draw: &mut Draw) -> Option<Value> {
        plan.lay(draw, |draw, _| {
            (draw.lognormal(self.gap.seconds(), self.sigma.0), frame(self.tokens, draw))
        });
        Some(json!({}))
    }
}
