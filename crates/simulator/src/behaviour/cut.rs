//! The connection closes in the middle of the body: a client sees a truncated chunked body.

use serde::Deserialize;
use serde_json::{Value, json};
use sseismo_trace::Micros;

use super::Behaviour;
use crate::ask::Ask;
use crate::draw::Draw;
use crate::plan::{Close, Plan};

/// `kind = "cut"`.
#[derive(Clone, Debug, Deserialize)]
#[serde(default, deny_unknown_fields, rename_all = "kebab-case")]
pub(super) struct Cut {
    /// After how many content events.
    after: usize,
}

impl Default for Cut {
    fn default() -> Self {
        Self { after: 5 }
    }
}

impl Behaviour for Cut {
    fn shape(&mut self, _: &Ask, plan: &mut Plan, _: &mut Draw) -> Option<Value> {
        let at = stop_after(plan, self.after);
        plan.close = Close::Cut;
        Some(json!({ "at_us": at }))
    }
}

/// Drops what would come after `events` events, the terminal one included. Returns the last moment.
pub(super) fn stop_after(plan: &mut Plan, events: usize) -> Micros {
    plan.beats.truncate(events);
    plan.terminal = false;
    plan.end()
}
