//! More than `calls` deep calls within `window`: those above it stall together until one moment, and
//! after that new deep calls are refused with 429 until the cooldown is over.

use std::collections::VecDeque;

use serde::Deserialize;
use serde_json::{Value, json};
use sseismo_trace::Micros;

use super::Behaviour;
use crate::ask::Ask;
use crate::draw::Draw;
use crate::plan::{Plan, Refusal};
use crate::unit::Span;

/// `kind = "concurrency-cooldown"`.
#[derive(Clone, Debug, Deserialize)]
#[serde(default, deny_unknown_fields, rename_all = "kebab-case")]
pub(super) struct ConcurrencyCooldown {
    /// Deep calls that a window bears.
    calls: usize,
    /// The window.
    window: Span,
    /// From the call that was one too many to the common release.
    stall: Span,
    /// From the release on, how long deep calls are refused.
    cooldown: Span,
    /// Whether a refusal carries Retry-After.
    retry_after: bool,
    #[serde(skip)]
    recent: VecDeque<Micros>,
    #[serde(skip)]
    release: Micros,
    #[serde(skip)]
    refused_until: Micros,
}

impl Default for ConcurrencyCooldown {
    fn default() -> Self {
        Self {
            calls: 6,
            window: Span::ms(3_000),
            stall: Span::ms(8_000),
            cooldown: Span::ms(5_000),
            retry_after: true,
            recent: VecDeque::new(),
            release: Micros(0),
            refused_until: Micros(0),
        }
    }
}

impl Behaviour for ConcurrencyCooldown {
    fn shape(&mut self, ask: &Ask, plan: &mut Plan, _: &mut Draw) -> Option<Value> {
        if !ask.is_deep() {
            return None;
        }
        if ask.at >= self.release && ask.at < self.refused_until {
            return Some(self.refuse(ask, plan));
        }
        while self.recent.front().is_some_and(|at| ask.at.since(*at).0 > self.window.us()) {
            self.recent.pop_front();
        }
        self.recent.push_back(ask.at);
        let stalled = ask.at < self.release;
        if !stalled && self.recent.len() <= self.calls {
            return None;
        }
        if !stalled {
            self.release = Micros(ask.at.0 + self.stall.us());
            self.refused_until = Micros(self.release.0 + self.cooldown.us());
        }
        let wait = self.release.since(ask.at).0;
        plan.delay(0, (wait - plan.first_at.0).max(0));
        Some(json!({ "in_window": self.recent.len(), "stalled_us": wait }))
    }
}

impl ConcurrencyCooldown {
    fn refuse(&self, ask: &Ask, plan: &mut Plan) -> Value {
        let left = self.refused_until.since(ask.at).0;
        if self.retry_after {
            let seconds = left.div_euclid(1_000_000) + 1;
            plan.headers.push(("retry-after", seconds.to_string()));
        }
        plan.refuse(
            429,
            Refusal {
                kind: "rate_limit_error",
                code: "rate_limit_exceeded",
                message: "Too many reasoning requests at a time. Please try again later.".into(),
            },
        );
        json!({ "refused": true, "left_us": left })
    }
}
