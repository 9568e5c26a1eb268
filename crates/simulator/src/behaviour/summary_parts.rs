//! Reasoning summaries as OpenAI sends them: some seconds of silence, then a part of 40–120 tokens as
//! word-sized deltas at about 100 tokens a second. Innocent, and the hardest twin of a burst.

use std::path::Path;

use serde::Deserialize;
use serde_json::{Value, json};
use sseismo_trace::Micros;

use super::{Behaviour, ordered};
use crate::ask::Ask;
use crate::draw::Draw;
use crate::plan::{Beat, Plan, What};
use crate::unit::{Positive, Span, micros};

/// `kind = "summary-parts"`.
#[derive(Clone, Debug, Deserialize)]
#[serde(default, deny_unknown_fields, rename_all = "kebab-case")]
pub(super) struct SummaryParts {
    /// Shortest and longest silence before a part.
    silence: [Span; 2],
    /// Fewest and most tokens of a part.
    tokens: [u32; 2],
    /// Tokens a second inside a part.
    speed: Positive,
    /// Reasoning tokens that one part stands for: 516 billed tokens came with 184 deltas of summary.
    reasoning_per_part: Positive,
    /// Between two frames of the answer.
    answer_gap: Span,
}

impl Default for SummaryParts {
    fn default() -> Self {
        Self {
            silence: [Span::ms(2_000), Span::ms(6_000)],
            tokens: [40, 120],
            speed: Positive(100.0),
            reasoning_per_part: Positive(250.0),
            answer_gap: Span::ms(20),
        }
    }
}

impl Behaviour for SummaryParts {
    fn ready(&mut self, _: &Path) -> Result<(), (&'static str, String)> {
        ordered("silence", self.silence).and_then(|()| ordered("tokens", self.tokens))
    }

    fn shape(&mut self, _: &Ask, plan: &mut Plan, draw: &mut Draw) -> Option<Value> {
        let reasoning = u32::try_from(plan.reasoning).unwrap_or(u32::MAX);
        #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "parts are few")]
        let parts = (f64::from(reasoning) / self.reasoning_per_part.0).ceil() as u32;
        plan.beats.clear();
        let mut at = plan.first_at.seconds();
        let word = 1.0 / self.speed.0;
        for part in 0..parts {
            at += draw.between(self.silence[0].seconds(), self.silence[1].seconds());
            if part > 0 {
                plan.beats.push(Beat { at: Micros(micros(at)), what: What::NextPart, tokens: 0 });
            }
            for _ in 0..draw.whole(self.tokens[0], self.tokens[1]) {
                plan.beats.push(Beat { at: Micros(micros(at)), what: What::Summary, tokens: 1 });
                at += word * draw.between(0.5, 1.5);
            }
        }
        for _ in 0..plan.output {
            plan.beats.push(Beat { at: Micros(micros(at)), what: What::Text, tokens: 1 });
            at += self.answer_gap.seconds() * draw.between(0.5, 1.5);
        }
        Some(json!({ "parts": parts }))
    }
}
