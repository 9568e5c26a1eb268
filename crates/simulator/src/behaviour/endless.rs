//! Reasoning that never comes to an answer: it runs into the token limit.

use serde::Deserialize;
use serde_json::{Value, json};

use super::Behaviour;
use crate::ask::Ask;
use crate::draw::Draw;
use crate::plan::{Answer, Plan};

/// `kind = "endless"`.
#[derive(Clone, Debug, Deserialize)]
#[serde(default, deny_unknown_fields, rename_all = "kebab-case")]
pub(super) struct Endless {
    /// The limit when the request names none.
    limit: u32,
}

impl Default for Endless {
    fn default() -> Self {
        Self { limit: 32_000 }
    }
}

impl Behaviour for Endless {
    fn shape(&mut self, ask: &Ask, plan: &mut Plan, _: &mut Draw) -> Option<Value> {
        plan.reasoning = ask.max_tokens.unwrap_or(u64::from(self.limit));
        plan.output = 0;
        plan.at_limit = true;
        plan.answer = Answer::Empty;
        Some(json!({ "limit": plan.reasoning }))
    }
}
