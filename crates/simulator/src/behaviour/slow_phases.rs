//! Honest pauses: the model slows down for 0.3–0.9 s now and then, and its frames stay small.

use std::path::Path;

use serde::Deserialize;
use serde_json::{Value, json};

use super::steady::frame;
use super::{Behaviour, ordered};
use crate::ask::Ask;
use crate::draw::Draw;
use crate::plan::Plan;
use crate::unit::{Positive, Share, Span};

/// `kind = "slow-phases"`.
#[derive(Clone, Debug, Deserialize)]
#[serde(default, deny_unknown_fields, rename_all = "kebab-case")]
pub(super) struct SlowPhases {
    /// Mean time between two frames of a quick phase.
    gap: Span,
    /// Shortest and longest pause.
    pause: [Span; 2],
    /// Share of frames that come after a pause.
    pauses: Share,
    /// Tokens in a frame.
    tokens: Positive,
}

impl Default for SlowPhases {
    fn default() -> Self {
        Self {
            gap: Span::ms(50),
            pause: [Span::ms(300), Span::ms(900)],
            pauses: Share(0.03),
            tokens: Positive(3.0),
        }
    }
}

impl Behaviour for SlowPhases {
    fn ready(&mut self, _: &Path) -> Result<(), (&'static str, String)> {
        ordered("pause", self.pause)
    }

    fn shape(&mut self, _: &Ask, plan: &mut Plan, draw: &mut Draw) -> Option<Value> {
        let mut pauses = 0;
        plan.lay(draw, |draw, _| {
            let slow = draw.chance(self.pauses.0);
            pauses += u32::from(slow);
            let gap = if slow {
                draw.between(self.pause[0].seconds(), self.pause[1].seconds())
            } else {
                self.gap.seconds() * (1.0 + 0.1 * draw.normal())
            };
            (gap, frame(self.tokens, draw))
        });
        Some(json!({ "pauses": pauses }))
    }
}
