//! Big honest frames at an even pace: Gemini sends about 90 tokens of thought in a frame, others 10–30.

use std::path::Path;

use serde::Deserialize;
use serde_json::{Value, json};

use super::{Behaviour, ordered};
use crate::ask::Ask;
use crate::draw::Draw;
use crate::plan::Plan;
use crate::unit::Span;

/// `kind = "big-frames"`.
#[derive(Clone, Debug, Deserialize)]
#[serde(default, deny_unknown_fields, rename_all = "kebab-case")]
pub(super) struct BigFrames {
    /// Between two frames.
    gap: Span,
    /// Fewest and most tokens in a frame.
    tokens: [u32; 2],
}

impl Default for BigFrames {
    fn default() -> Self {
        Self { gap: Span::ms(250), tokens: [10, 30] }
    }
}

impl Behaviour for BigFrames {
    fn ready(&mut self, _: &Path) -> Result<(), (&'static str, String)> {
        ordered("tokens", self.tokens)
    }

    fn shape(&mut self, _: &Ask, plan: &mut Plan, draw: &mut Draw) -> Option<Value> {
        plan.lay(draw, |draw, _| {
            let gap = self.gap.seconds() * (1.0 + 0.1 * draw.normal());
            (gap, draw.whole(self.tokens[0], self.tokens[1]))
        });
        Some(json!({}))
    }
}
