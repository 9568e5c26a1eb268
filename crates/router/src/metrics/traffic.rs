//! What the router counts of its own doing: requests, attempts, fallbacks, breakers, billed tokens, money.
//!
//! In: one call per event, from any thread. Routes and upstreams are named by the configuration; outcomes and
//! reasons are words of the code, so that no client can add series.

use std::sync::atomic::AtomicU64;

use prometheus_client::encoding::EncodeLabelSet;
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::{Family, MetricConstructor};
use prometheus_client::metrics::gauge::Gauge;
use prometheus_client::metrics::histogram::Histogram;
use prometheus_client::registry::{Registry, Unit};

use super::target::cut;
use crate::steer::Snapshot;

/// Borders, s: what a relay adds lies far below what providers take.
const OVERHEAD: [f64; 12] =
    [0.000_05, 0.000_1, 0.000_15, 0.000_25, 0.000_5, 0.001, 0.002_5, 0.005, 0.01, 0.1, 1.0, 10.0];

/// Where a breaker stands.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Breaker {
    /// Traffic flows.
    Closed,
    /// One probe at a time.
    HalfOpen,
    /// No traffic.
    Open,
}

/// What a billed token was.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TokenKind {
    /// Prompt, not from a cache.
    Input,
    /// Prompt, from a cache.
    Cached,
    /// Generated, reasoning included.
    Output,
    /// Of the generated ones, reasoning.
    Reasoning,
}

impl TokenKind {
    fn name(self) -> &'static str {
        match self {
            Self::Input => "input",
            Self::Cached => "cached",
            Self::Output => "output",
            Self::Reasoning => "reasoning",
        }
    }
}

/// Whether something was done.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Mode {
    /// It was.
    Acted,
    /// It would have been.
    WouldHave,
}

impl Mode {
    fn name(self) -> &'static str {
        match self {
            Self::Acted => "acted",
            Self::WouldHave => "would-have",
        }
    }
}

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct Decision {
    route: String,
    policy: &'static str,
    action: &'static str,
    mode: &'static str,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct Share {
    upstream: String,
    model: String,
    signature: &'static str,
    mode: &'static str,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct Request {
    route: String,
    outcome: &'static str,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct Route {
    route: String,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct Attempt {
    upstream: String,
    outcome: &'static str,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct Fallback {
    route: String,
    upstream: String,
    reason: &'static str,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct Upstream {
    upstream: String,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct Billed {
    route: String,
    upstream: String,
    r#type: &'static str,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct Cost {
    route: String,
    upstream: String,
}

#[derive(Clone, Copy, Debug)]
struct Overhead;

impl MetricConstructor<Histogram> for Overhead {
    fn new_metric(&self) -> Histogram {
        Histogram::new(OVERHEAD)
    }
}

/// The router's counters. See [`Metrics::traffic`](super::Metrics::traffic).
#[derive(Debug)]
pub struct Traffic {
    requests: Family<Request, Counter>,
    attempts: Family<Attempt, Counter>,
    fallbacks: Family<Fallback, Counter>,
    breakers: Family<Upstream, Gauge>,
    in_flight: Family<Upstream, Gauge>,
    tokens: Family<Billed, Counter>,
    cost: Family<Cost, Counter<f64, AtomicU64>>,
    overhead: Family<Route, Histogram, Overhead>,
    decisions: Family<Decision, Counter>,
    shares: Family<Share, Gauge<f64, AtomicU64>>,
}

impl Traffic {
    pub(super) fn register(registry: &mut Registry) -> Self {
        let traffic = Self {
            requests: Family::default(),
            attempts: Family::default(),
            fallbacks: Family::default(),
            breakers: Family::default(),
            in_flight: Family::default(),
            tokens: Family::default(),
            cost: Family::default(),
            overhead: Family::new_with_constructor(Overhead),
            decisions: Family::default(),
            shares: Family::default(),
        };
        let Self { requests, attempts, fallbacks, breakers, in_flight, tokens, cost, overhead, .. } =
            &traffic;
        registry.register(
            "sseismo_steering_decisions",
            "What signals and policies did about calls, or would have done",
            traffic.decisions.clone(),
        );
        registry.register(
            "sseismo_steering_share",
            "What an upstream keeps, or would keep, of the calls that a signal is about",
            traffic.shares.clone(),
        );
        registry.register("sseismo_route_requests", "Clients' requests that were answered", requests.clone());
        registry.register("sseismo_route_attempts", "Requests sent to upstreams", attempts.clone());
        registry.register(
            "sseismo_route_fallbacks",
            "Times that another upstream was tried, by the upstream left and why",
            fallbacks.clone(),
        );
        registry.register("sseismo_route_breaker_state", "0 closed, 1 half-open, 2 open", breakers.clone());
        registry.register("sseismo_route_in_flight", "Attempts that have not ended", in_flight.clone());
        registry.register(
            "sseismo_route_billed_tokens",
            "Tokens that upstreams reported, failed attempts included; output includes reasoning",
            tokens.clone(),
        );
        registry.register(
            "sseismo_route_cost_usd",
            "Cost by the configured prices, US dollars",
            cost.clone(),
        );
        registry.register_with_unit(
            "sseismo_route_overhead",
            "Time that the relay itself added to a request before its first byte",
            Unit::Seconds,
            overhead.clone(),
        );
        traffic
    }

    /// A client's request on `route` was answered.
    pub fn request(&self, route: &str, outcome: &'static str) {
        self.requests.get_or_create(&Request { route: name(route), outcome }).inc();
    }

    /// An attempt at `upstream` has ended.
    pub fn attempt(&self, upstream: &str, outcome: &'static str) {
        self.attempts.get_or_create(&Attempt { upstream: name(upstream), outcome }).inc();
    }

    /// `upstream` was left for another one.
    pub fn fallback(&self, route: &str, upstream: &str, reason: &'static str) {
        let labels = Fallback { route: name(route), upstream: name(upstream), reason };
        self.fallbacks.get_or_create(&labels).inc();
    }

    /// The breaker of `upstream` changed.
    pub fn breaker(&self, upstream: &str, state: Breaker) {
        let level = match state {
            Breaker::Closed => 0,
            Breaker::HalfOpen => 1,
            Breaker::Open => 2,
        };
        self.breakers.get_or_create(&Upstream { upstream: name(upstream) }).set(level);
    }

    /// An attempt at `upstream` begins; it is in flight until what is returned is dropped.
    #[must_use]
    pub fn in_flight(&self, upstream: &str) -> InFlight {
        let gauge = self.in_flight.get_or_create_owned(&Upstream { upstream: name(upstream) });
        gauge.inc();
        InFlight(gauge)
    }

    /// Tokens that `upstream` reported for an attempt on `route`.
    pub fn tokens(&self, route: &str, upstream: &str, kind: TokenKind, tokens: u64) {
        let labels = Billed { route: name(route), upstream: name(upstream), r#type: kind.name() };
        self.tokens.get_or_create(&labels).inc_by(tokens);
    }

    /// What an attempt cost, US dollars. Anything but a positive amount is left out.
    pub fn cost(&self, route: &str, upstream: &str, usd: f64) {
        if usd > 0.0 && usd.is_finite() {
            self.cost.get_or_create(&Cost { route: name(route), upstream: name(upstream) }).inc_by(usd);
        }
    }

    /// A signal or policy did something about a call, or would have.
    pub fn steering(&self, route: &str, policy: &'static str, action: &'static str, mode: Mode) {
        let labels = Decision { route: name(route), policy, action, mode: mode.name() };
        self.decisions.get_or_create(&labels).inc();
    }

    /// Replaces the shares that upstreams keep of the calls that signals are about.
    pub fn shares(&self, snapshot: &Snapshot) {
        self.shares.clear();
        for kept in &snapshot.shares {
            for (mode, share) in [(Mode::Acted, kept.acted), (Mode::WouldHave, kept.would)] {
                let part = |part: &Option<String>| name(part.as_deref().unwrap_or_default());
                let labels = Share {
                    upstream: part(&kept.target.upstream),
                    model: part(&kept.target.model),
                    signature: kept.detail.signature().name(),
                    mode: mode.name(),
                };
                // Efforts are not told apart: the smallest share stands for all.
                let known = self.shares.get_or_create_owned(&labels);
                let least = if known.get() > 0.0 { known.get().min(share) } else { share };
                known.set(least);
            }
        }
    }

    /// Seconds that the relay itself added to a request.
    pub fn overhead(&self, route: &str, seconds: f64) {
        self.overhead.get_or_create(&Route { route: name(route) }).observe(seconds);
    }
}

/// An attempt in flight.
#[derive(Debug)]
pub struct InFlight(Gauge);

impl Drop for InFlight {
    fn drop(&mut self) {
        self.0.dec();
    }
}

fn name(text: &str) -> String {
    cut(text).to_owned()
}
