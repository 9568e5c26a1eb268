//! The body ends as HTTP wants it, but the API's terminal event never came. Most clients take it for success.

use serde::Deserialize;
use serde_json::{Value, json};

use super::Behaviour;
use super::cut::stop_after;
use crate::ask::Ask;
use crate::draw::Draw;
use crate::plan::{Close, Plan};

/// `kind = "clean-eof"`.
#[derive(Clone, Debug, Deserialize)]
#[serde(default, deny_unknown_fields, rename_all = "kebab-case")]
pub(super) struct CleanEof {
    /// After how many content events.
    after: usize,
}

impl Default for CleanEof {
    fn default() -> Self {
        Self { after: 5 }
    }
}

impl Behaviour for CleanEof {
    fn shape(&mut self, _: &Ask, plan: &mut Plan, _: &mut Draw) -> Option<Value> {
        let at = stop_after(plan, self.after);
        plan.close = Close::Clean;
        Some(json!({ "at_us": at }))
    }
}
