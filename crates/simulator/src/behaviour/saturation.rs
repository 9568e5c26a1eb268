//! Long, dense numeric prompts are answered 200 OK with something unusable: JSON that breaks off, a
//! placeholder, or nothing. The write-ups place the edge at 3,200 tokens.

use serde::Deserialize;
use serde_json::{Value, json};

use super::Behaviour;
use crate::ask::Ask;
use crate::draw::Draw;
use crate::plan::{Answer, Plan};
use crate::unit::Share;

/// `kind = "saturation"`.
#[derive(Clone, Debug, Deserialize)]
#[serde(default, deny_unknown_fields, rename_all = "kebab-case")]
pub(super) struct Saturation {
    /// Prompts longer than this are at risk.
    tokens: u64,
    /// Prompts whose numeric share is at least this are at risk.
    numeric_share: Share,
    /// Share of those at risk that fail.
    fails: Share,
    /// Share of all others that fail.
    fails_elsewhere: Share,
}

impl Default for Saturation {
    fn default() -> Self {
        Self { tokens: 3_200, numeric_share: Share(0.4), fails: Share(0.35), fails_elsewhere: Share(0.01) }
    }
}

impl Behaviour for Saturation {
    fn shape(&mut self, ask: &Ask, plan: &mut Plan, draw: &mut Draw) -> Option<Value> {
        let at_risk = ask.prompt_tokens > self.tokens && ask.numeric_share >= self.numeric_share.0;
        let fails = draw.chance(if at_risk { self.fails.0 } else { self.fails_elsewhere.0 });
        let answer =
            [Answer::BrokenJson, Answer::BrokenJson, Answer::Placeholder, Answer::Empty][draw.index(4)];
        if fails {
            plan.answer = answer;
        }
        fails.then(|| json!({ "at_risk": at_risk, "answer": answer }))
    }
}
