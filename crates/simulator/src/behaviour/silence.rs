//! Silence before the response's head, after it, or after some events; then the stream goes on.

use serde::Deserialize;
use serde_json::{Value, json};

use super::Behaviour;
use crate::ask::Ask;
use crate::draw::Draw;
use crate::plan::Plan;
use crate::unit::Span;

/// Where the silence lies.
#[derive(Clone, Copy, Debug, Deserialize, PartialEq, Eq)]
#[serde(rename_all = "kebab-case")]
enum Where {
    BeforeHeaders,
    AfterHeaders,
    MidStream,
}

/// `kind = "silence"`.
#[derive(Clone, Debug, Deserialize)]
#[serde(default, deny_unknown_fields, rename_all = "kebab-case")]
pub(super) struct Silence {
    /// Where it lies.
    at: Where,
    /// How long it lasts.
    lasts: Span,
    /// For `mid-stream`: after how many content events.
    after: usize,
}

impl Default for Silence {
    fn default() -> Self {
        Self { at: Where::AfterHeaders, lasts: Span::ms(6_000), after: 5 }
    }
}

impl Behaviour for Silence {
    fn shape(&mut self, _: &Ask, plan: &mut Plan, _: &mut Draw) -> Option<Value> {
        let by = self.lasts.us();
        let from = match self.at {
            Where::BeforeHeaders => {
                let from = plan.head_at;
                plan.head_at.0 += by;
                plan.delay(0, by);
                from
            }
            Where::AfterHeaders => {
                let from = plan.head_at;
                plan.delay(0, by);
                from
            }
            Where::MidStream => {
                let after = self.after.clamp(1, plan.beats.len().max(1));
                let from = plan.beats.get(after - 1)?.at;
                plan.delay(after, by);
                from
            }
        };
        Some(json!({ "from_us": from, "silence_us": by }))
    }
}
