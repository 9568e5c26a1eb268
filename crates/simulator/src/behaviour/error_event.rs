//! An error stated inside a 200 stream: as its first event, or after some content. No answer follows.

use serde::Deserialize;
use serde_json::{Value, json};

use super::Behaviour;
use super::cut::stop_after;
use crate::ask::Ask;
use crate::draw::Draw;
use crate::plan::{Beat, Plan, Refusal, What};

/// `kind = "error-event"`.
#[derive(Clone, Debug, Deserialize)]
#[serde(default, deny_unknown_fields, rename_all = "kebab-case")]
pub(super) struct ErrorEvent {
    /// After how many content events; 0 makes it the first event.
    after: usize,
}

impl Default for ErrorEvent {
    fn default() -> Self {
        Self { after: 5 }
    }
}

impl Behaviour for ErrorEvent {
    fn shape(&mut self, _: &Ask, plan: &mut Plan, _: &mut Draw) -> Option<Value> {
        let at = stop_after(plan, self.after);
        plan.beats.push(Beat { at, what: What::Error, tokens: 0 });
        plan.error = Some(Refusal {
            kind: "overloaded_error",
            code: "server_error",
            message: "The server had an error while processing your request.".into(),
        });
        Some(json!({ "at_us": at }))
    }
}
