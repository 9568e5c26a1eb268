//! The same burst as many small frames: 40–80 tokens as about 20 frames within some 40 ms, then dead air.

use std::path::Path;

use serde::Deserialize;
use serde_json::{Value, json};
use sseismo_trace::Phase;

use super::{Behaviour, ordered};
use crate::ask::Ask;
use crate::draw::Draw;
use crate::plan::Plan;
use crate::unit::Span;

/// `kind = "multi-frame-burst"`.
#[derive(Clone, Debug, Deserialize)]
#[serde(default, deny_unknown_fields, rename_all = "kebab-case")]
pub(super) struct MultiFrameBurst {
    /// Shortest and longest dead air before a flush.
    gap: [Span; 2],
    /// Fewest and most tokens in a flush.
    tokens: [u32; 2],
    /// Frames in a flush.
    frames: u32,
    /// How long a flush takes.
    spread: Span,
    /// Between two frames of the answer, which flows on.
    answer_gap: Span,
}

impl Default for MultiFrameBurst {
    fn default() -> Self {
        Self {
            gap: [Span::ms(1_000), Span::ms(2_000)],
            tokens: [40, 80],
            frames: 20,
            spread: Span::ms(40),
            answer_gap: Span::ms(50),
        }
    }
}

impl Behaviour for MultiFrameBurst {
    fn ready(&mut self, _: &Path) -> Result<(), (&'static str, String)> {
        if self.frames == 0 {
            return Err(("frames", "a flush needs at least 1 frame".into()));
        }
        ordered("gap", self.gap).and_then(|()| ordered("tokens", self.tokens))
    }

    fn shape(&mut self, _: &Ask, plan: &mut Plan, draw: &mut Draw) -> Option<Value> {
        let mut flushes = 0;
        let (mut left, mut tokens) = (0, 0);
        plan.lay(draw, |draw, phase| {
            if phase != Phase::Reasoning {
                return (self.answer_gap.seconds(), 3);
            }
            if left == 0 {
                flushes += 1;
                left = self.frames - 1;
                tokens = draw.whole(self.tokens[0], self.tokens[1]).div_ceil(self.frames);
                return (draw.between(self.gap[0].seconds(), self.gap[1].seconds()), tokens);
            }
            left -= 1;
            (self.spread.seconds() / f64::from(self.frames), tokens)
        });
        Some(json!({ "flushes": flushes }))
    }
}
