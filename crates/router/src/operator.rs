//! What operators ask of the routing relay, with a token.
//!
//! | asked | answered |
//! |---|---|
//! | `/admin/requests` | the latest requests that are over, the newest first |
//! | `/admin/requests/{id}` | one of them: attempts, reasons, tokens, cost |
//! | `/admin/state` | breakers, routes, what policies know, requests that are not over |
//! | `/admin/signals` | the live signals, what is done about each, and what upstreams keep |
//! | `POST /admin/signals` | takes in one signal or a list, in the JSON of the feed; 400 names what is wrong |
//! | `POST /admin/labels` | takes in `{"request": ID, "right": false}`: whether an answer was right |
//!
//! In: a path and headers. Out: JSON. It names upstreams, models and callers, never a text or a key.

use std::fmt;
use std::sync::Arc;

use hyper::StatusCode;
use hyper::header::{AUTHORIZATION, HeaderMap};
use serde::Deserialize;
use serde_json::{Value, json};
use sseismo_trace::Signal;
use tokio::time::Instant;

use crate::access::{Access, Entry};
use crate::breaker::State;
use crate::choice::{BreakerView, Router};
use crate::clock;
use crate::feed::Feed;
use crate::front::Current;
use crate::keys::Secret;
use crate::metrics::Metrics;
use crate::observe::headers::same;
use crate::steer::harm::Seen;
use crate::steer::{self, Answer, Force, Held, Kept, Source};

/// Requests in a list.
const LISTED: usize = 100;

/// The routing relay's pages.
pub struct Operator {
    token: Secret,
    current: Current,
    access: Arc<Access>,
    outside: Option<Outside>,
}

/// Hears of signals from outside and what became of them.
pub type Outside = Box<dyn Fn(Signal, Answer) + Send + Sync>;

/// Whether an answer was right.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Label {
    request: String,
    right: bool,
}

impl fmt::Debug for Operator {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Operator").field("access", &self.access).finish_non_exhaustive()
    }
}

impl Operator {
    /// Pages about the router that stands and the requests in `access`, for those who know `token`.
    pub fn new(token: Secret, current: Current, access: Arc<Access>) -> Self {
        Self { token, current, access, outside: None }
    }

    /// The same, telling `outside` of signals that are posted: for the dataset.
    #[must_use]
    pub fn telling(self, outside: Outside) -> Self {
        Self { outside: Some(outside), ..self }
    }

    /// Answers a path under `/admin/`.
    pub(crate) fn answer(&self, path: &str, headers: &HeaderMap) -> (StatusCode, Value) {
        if let Some(refusal) = self.refuses(headers) {
            return refusal;
        }
        match path.strip_prefix("/admin/").unwrap_or_default() {
            "state" => (StatusCode::OK, self.state()),
            "signals" => (StatusCode::OK, self.signals()),
            "requests" => (
                StatusCode::OK,
                json!(self.access.latest(LISTED).iter().map(|entry| brief(entry)).collect::<Vec<_>>()),
            ),
            rest => {
                let found = rest.strip_prefix("requests/").and_then(|id| self.access.find(id));
                let message =
                    "there are state, signals, requests, and requests/ID of the last ones that are over";
                found.map_or_else(
                    || (StatusCode::NOT_FOUND, json!({"error": message})),
                    |entry| (StatusCode::OK, json!(*entry)),
                )
            }
        }
    }

    /// The answer for those who do not know the token.
    pub(crate) fn refuses(&self, headers: &HeaderMap) -> Option<(StatusCode, Value)> {
        let given = headers.get(AUTHORIZATION).and_then(|value| value.as_bytes().strip_prefix(b"Bearer "));
        let known = given.is_some_and(|given| same(given, self.token.expose().as_bytes()));
        let message = "send `authorization: Bearer …` with the token that `admin_token` names";
        (!known).then(|| (StatusCode::UNAUTHORIZED, json!({"error": message})))
    }

    /// Answers a `POST` of somebody who knows the token.
    pub(crate) fn post(
        &self,
        path: &str,
        body: &[u8],
        feed: &Feed,
        metrics: &Metrics,
    ) -> (StatusCode, Value) {
        let bad = |message: String| (StatusCode::BAD_REQUEST, json!({"error": message}));
        match path.strip_prefix("/admin/").unwrap_or_default() {
            "signals" => match steer::parse(body, clock::now()) {
                Ok(signals) => (StatusCode::OK, self.take(signals, feed, metrics)),
                Err(error) => bad(error.to_string()),
            },
            "labels" => match serde_json::from_slice::<Label>(body) {
                Ok(label) => self.label(&label),
                Err(error) => {
                    bad(format!("a label is {{\"request\": ID, \"right\": true or false}}: {error}"))
                }
            },
            _ => (StatusCode::NOT_FOUND, json!({"error": "post to /admin/signals or /admin/labels"})),
        }
    }

    /// Takes in signals, and tells everybody who listens.
    fn take(&self, signals: Vec<Signal>, feed: &Feed, metrics: &Metrics) -> Value {
        let (router, now) = ((self.current)(), Instant::now());
        let answers = router.signals(signals.clone(), Source::Admin, now);
        let mut told = Vec::new();
        for (signal, answer) in signals.into_iter().zip(answers) {
            metrics.signal(&signal);
            feed.publish(signal.clone());
            told.push(json!({
                "id": signal.id, "state": signal.state, "action": answer.action.name(), "acted": answer.acted,
                "why": answer.held.map(Held::name),
            }));
            if let Some(outside) = &self.outside {
                outside(signal, answer);
            }
        }
        json!(told)
    }

    fn label(&self, label: &Label) -> (StatusCode, Value) {
        let found = self.access.find(&label.request);
        let served = found.as_ref().and_then(|entry| {
            entry.attempts.iter().find(|tried| tried.number == entry.attempt && entry.served_by.is_some())
        });
        let Some(served) = served else {
            let message = "`request` names no answered request among the last ones that are over";
            return (StatusCode::NOT_FOUND, json!({"error": message}));
        };
        (self.current)().label(&served.upstream, &served.model, label.right, Instant::now());
        (StatusCode::OK, json!({"upstream": served.upstream, "model": served.model, "right": label.right}))
    }

    fn signals(&self) -> Value {
        let (router, now) = ((self.current)(), Instant::now());
        router.steer(now);
        let snapshot = router.steering_snapshot();
        let signals: Vec<_> = snapshot.forces.iter().map(|force| live(force, now)).collect();
        let shares: Vec<_> = snapshot.shares.iter().map(share).collect();
        json!({"act": router.config().signals.act, "signals": signals, "shares": shares})
    }

    fn state(&self) -> Value {
        let (router, now) = ((self.current)(), Instant::now());
        let breakers: Vec<_> = router.breakers(now).iter().map(|view| breaker(view, now)).collect();
        json!({
            "ready": router.ready(now), "open_requests": self.access.open(), "breakers": breakers,
            "routes": routes(&router), "policies": policies(&router, now),
        })
    }
}

fn brief(entry: &Entry) -> Value {
    json!({
        "request": entry.id, "at": entry.at, "model": entry.model, "status": entry.status, "outcome": entry.outcome,
        "served_by": entry.served_by, "attempts": entry.attempts.len(), "duration_ms": entry.duration_ms,
    })
}

fn live(force: &Force, now: Instant) -> Value {
    let seen = |seen: Seen| json!({"seen": seen.name(), "value": seen.value()});
    json!({
        "signal": &*force.signal, "source": force.source.name(), "action": force.answer.action.name(),
        "acted": force.answer.acted, "why": force.answer.held.map(Held::name),
        "ends_in_s": force.expires.saturating_duration_since(now).as_secs_f64(),
        "harm": {"waits": seen(force.harm.waits), "errors": seen(force.harm.errors), "labels": seen(force.harm.labels)},
    })
}

fn share(kept: &Kept) -> Value {
    json!({
        "target": &kept.target, "signature": kept.detail.signature().name(), "action": kept.effect.name(),
        "keeps": kept.acted, "would_keep": kept.would,
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

fn policies(router: &Router, now: Instant) -> Vec<Value> {
    let view = |(route, policy, knows)| json!({"route": route, "policy": policy, "knows": knows});
    router.policy_views(now).into_iter().map(view).collect()
}

fn routes(router: &Router) -> Vec<Value> {
    let names = |tier: &Vec<crate::config::Member>| {
        tier.iter()
            .map(|member| json!({"upstream": &*member.upstream.name, "weight": member.weight}))
            .collect()
    };
    let route = |route: &Arc<crate::config::Route>| {
        let tiers: Vec<Vec<Value>> = route.tiers.iter().map(names).collect();
        let policies = route.policies.iter();
        let policies: Vec<_> =
            policies.map(|own| json!({"policy": own.policy.name(), "act": own.act})).collect();
        json!({"model": &*route.model, "tiers": tiers, "policies": policies})
    };
    router.config().routes.iter().map(route).collect()
}
