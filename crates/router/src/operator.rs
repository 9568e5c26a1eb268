//! What operators ask of the routing relay, with a token.
//!
//! | asked | answered |
//! |---|---|
//! | `/admin/requests` | the latest requests that are over, the newest first |
//! | `/admin/requests/{id}` | one of them: attempts, reasons, tokens, cost |
//! | `/admin/state` | breakers, routes, requests that are not over |
//!
//! In: a path and headers. Out: JSON. It names upstreams, models and callers, never a text or a key.

use std::fmt;
use std::sync::Arc;

use hyper::StatusCode;
use hyper::header::{AUTHORIZATION, HeaderMap};
use serde_json::{Value, json};
use tokio::time::Instant;

use crate::access::{Access, Entry};
use crate::breaker::State;
use crate::choice::{BreakerView, Router};
use crate::front::Current;
use crate::keys::Secret;
use crate::observe::headers::same;

/// Requests in a list.
const LISTED: usize = 100;

/// The routing relay's pages.
pub struct Operator {
    token: Secret,
    current: Current,
    access: Arc<Access>,
}

impl fmt::Debug for Operator {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Operator").field("access", &self.access).finish_non_exhaustive()
    }
}

impl Operator {
    /// Pages about the router that stands and the requests in `access`, for those who know `token`.
    pub fn new(token: Secret, current: Current, access: Arc<Access>) -> Self {
        Self { token, current, access }
    }

    /// Answers a path under `/admin/`.
    pub(crate) fn answer(&self, path: &str, headers: &HeaderMap) -> (StatusCode, Value) {
        let given = headers.get(AUTHORIZATION).and_then(|value| value.as_bytes().strip_prefix(b"Bearer "));
        if !given.is_some_and(|given| same(given, self.token.expose().as_bytes())) {
            let message = "send `authorization: Bearer …` with the token that `admin_token` names";
            return (StatusCode::UNAUTHORIZED, json!({"error": message}));
        }
        match path.strip_prefix("/admin/").unwrap_or_default() {
            "state" => (StatusCode::OK, self.state()),
            "requests" => (
                StatusCode::OK,
                json!(self.access.latest(LISTED).iter().map(|entry| brief(entry)).collect::<Vec<_>>()),
            ),
            rest => {
                let found = rest.strip_prefix("requests/").and_then(|id| self.access.find(id));
                let message = "no such page, or no such request among the last ones that are over";
                found.map_or_else(
                    || (StatusCode::NOT_FOUND, json!({"error": message})),
                    |entry| (StatusCode::OK, json!(*entry)),
                )
            }
        }
    }

    fn state(&self) -> Value {
        let (router, now) = ((self.current)(), Instant::now());
        let breakers: Vec<_> = router.breakers(now).iter().map(|view| breaker(view, now)).collect();
        json!({
            "ready": router.ready(now), "open_requests": self.access.open(), "breakers": breakers,
            "routes": routes(&router),
        })
    }
}

fn brief(entry: &Entry) -> Value {
    json!({
        "request": entry.id, "at": entry.at, "model": entry.model, "status": entry.status, "outcome": entry.outcome,
        "served_by": entry.served_by, "attempts": entry.attempts.len(), "duration_ms": entry.duration_ms,
    })
}

fn breaker(view: &BreakerView, now: Instant) -> Value {
    let (state, left) = match view.state {
        State::Closed => ("closed", None),
        State::HalfOpen => ("half-open", None),
        State::Open(until) => ("open", Some(until.saturating_duration_since(now).as_secs_f64())),
    };
    let why = view.why.map(|why| format!("{why:?}").to_lowercase());
    json!({"upstream": &*view.upstream, "model": &*view.model, "state": state, "why": why, "open_s": left})
}

fn routes(router: &Router) -> Vec<Value> {
    let names = |tier: &Vec<crate::config::Member>| {
        tier.iter()
            .map(|member| json!({"upstream": &*member.upstream.name, "weight": member.weight}))
            .collect()
    };
    let route = |route: &Arc<crate::config::Route>| {
        let tiers: Vec<Vec<Value>> = route.tiers.iter().map(names).collect();
        json!({"model": &*route.model, "tiers": tiers})
    };
    router.config().routes.iter().map(route).collect()
}
