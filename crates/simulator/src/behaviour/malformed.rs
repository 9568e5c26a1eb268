//! A data line in the middle of the stream that is not JSON. Some clients skip it, some drop the stream.

use serde::Deserialize;
use serde_json::{Value, json};

use super::Behaviour;
use crate::ask::Ask;
use crate::draw::Draw;
use crate::plan::{Beat, Plan, What};

/// `kind = "malformed"`.
#[derive(Clone, Debug, Deserialize)]
#[serde(default, deny_unknown_fields, rename_all = "kebab-case")]
pub(super) struct Malformed {
    /// After how many content events.
    after: usize,
}

impl Default for Malformed {
    fn default() -> Self {
        Self { after: 5 }
    }
}

impl Behaviour for Malformed {
    fn shape(&mut self, _: &Ask, plan: &mut Plan, _: &mut Draw) -> Option<Value> {
        let place = self.after.min(plan.beats.len());
        let at = place.checked_sub(1).map_or(plan.first_at, |before| plan.beats[before].at);
        plan.beats.insert(place, Beat { at, what: What::Malformed, tokens: 0 });
        Some(json!({ "at_us": at }))
    }
}
