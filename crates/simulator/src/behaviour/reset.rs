//! The connection is reset (RST) in the middle of the body; over HTTP/2 the stream is.

use serde::Deserialize;
use serde_json::{Value, json};

use super::Behaviour;
use super::cut::stop_after;
use crate::ask::Ask;
use crate::draw::Draw;
use crate::plan::{Close, Plan};

/// `kind = "reset"`.
#[derive(Clone, Debug, Deserialize)]
#[serde(default, deny_unknown_fields, rename_all = "kebab-case")]
pub(super) struct Reset {
    /// After how many content events.
    after: usize,
}

impl Default for Reset {
    fn default() -> Self {
        Self { after: 5 }
    }
}

impl Behaviour for Reset {
    fn shape(&mut self, _: &Ask, plan: &mut Plan, _: &mut Draw) -> Option<Value> {
        let at = stop_after(plan, self.after);
        plan.close = Close::Reset;
        Some(json!({ "at_us": at }))
    }
}
