//! Which upstream is asked, and which one next: a request's [`Ask`] in, a [`Plan`] of [`Attempt`]s out.
//!
//! ```text
//! router.candidates(&ask, now)?            the plan: every upstream that can take the request, in order
//!   plan.next(now)?            → Attempt   the next one whose breaker, keys and caps let it pass
//!   attempt.first_content(now)             content came: waits are learned, a probe has passed
//!   plan.report(attempt, outcome, now)     how it ended; then `next` again, until a Stop
//! ```
//!
//! The order: organisation first (state never leaves its issuer), then tiers, then weight within a tier: every
//! member draws a number by its weight, from the session's hash where there is one, so that a session stays
//! where its prompt cache is and no table of sessions is needed. After a limit another key of the same
//! upstream goes first, after a failure another region of the same tier.
//!
//! An [`Attempt`] holds what it takes up (a breaker's probe, a place under the fallback's cap) and gives it
//! back when it is dropped, whatever became of its request.

use std::collections::HashMap;
use std::io;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use serde_json::Value;
use sseismo_trace::Api;
use tokio::time::Instant;

use crate::affinity::{Affinity, Issuer, Learner, StateKey};
use crate::breaker::{Breaker, State, Trip};
use crate::budget::Budget;
use crate::config::{Config, Route, UnknownState, Upstream};
use crate::keys::{Env, Keyring, Pick};
use crate::patience::Patience;
use crate::policy::Installed;
use crate::steer::harm::Harm;
use crate::steer::{Steering, Target};

mod attempt;
mod order;
mod plan;
mod stop;

pub use attempt::{Attempt, Reason};
pub(crate) use order::uniform;
pub use plan::{Passed, Plan, Why};
pub use stop::Stop;

/// What is asked of the router for one request.
#[derive(Clone, Copy, Debug, Default)]
pub struct Ask<'a> {
    /// The model as the client named it; empty where the path has none.
    pub model: &'a str,
    /// The API; `None` for paths that are passed on as they are.
    pub api: Option<Api>,
    /// Prompt tokens, estimated.
    pub prompt_tokens: Option<u64>,
    /// Reasoning effort, as the client named it.
    pub effort: Option<&'a str>,
    /// The state that it carries: keys of [`references::carried`](crate::affinity::references::carried).
    pub state: &'a [StateKey],
    /// Hash of its session.
    pub session: Option<u64>,
    /// Share of numeric characters in its prompt, where somebody looked.
    pub numeric_share: Option<f64>,
    /// Its draw, where somebody has drawn already; that of its session otherwise.
    pub draw: Option<u64>,
}

/// All that decides about upstreams, with what it has learned. One per configuration; a new one takes over the
/// state of the old one.
#[derive(Debug)]
pub struct Router {
    config: Config,
    lanes: HashMap<LaneKey, Arc<Lane>>,
    keyrings: HashMap<Arc<str>, Arc<Keyring>>,
    routes: HashMap<Arc<str>, Arc<RouteState>>,
    affinity: Arc<Affinity>,
    /// There is more than one organisation, so that issuers matter.
    several: bool,
    /// Draws for requests without a session.
    draws: Arc<AtomicU64>,
    steering: Arc<Steering>,
}

/// Upstream and its model; `*` for all models of a wildcard route.
type LaneKey = (Arc<str>, Arc<str>);

/// One model at one upstream.
#[derive(Debug, Default)]
pub(crate) struct Lane {
    breaker: Mutex<Breaker>,
    patience: Mutex<Patience>,
    harm: Mutex<Harm>,
    /// Attempts that have not ended.
    in_flight: AtomicU64,
    /// Of these, the deep ones.
    deep_in_flight: AtomicU64,
}

impl Lane {
    /// What was observed of harm.
    pub(crate) fn harm(&self) -> MutexGuard<'_, Harm> {
        locked(&self.harm)
    }
}

/// What a route has learned.
#[derive(Debug)]
struct RouteState {
    route: Arc<Route>,
    seats: Vec<Seat>,
    shared: Arc<Shared>,
    policies: Vec<Installed>,
}

/// An upstream's place in a route.
#[derive(Clone, Debug)]
struct Seat {
    tier: usize,
    weight: f64,
    /// Only the last resort has it: how long the tiers must have failed.
    rollback: Option<Duration>,
    upstream: Arc<Upstream>,
    lane: Arc<Lane>,
    keyring: Arc<Keyring>,
}

#[derive(Debug)]
struct Shared {
    budget: Mutex<Budget>,
    fallbacks: AtomicU64,
    /// Since when its tiers have been without a success.
    failing_since: Mutex<Option<Instant>>,
}

/// A breaker as metrics and the admin API show it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct BreakerView {
    /// The upstream.
    pub upstream: Arc<str>,
    /// Its model, or `*`.
    pub model: Arc<str>,
    /// What it is in.
    pub state: State,
    /// Why it is not closed.
    pub why: Option<Trip>,
}

impl Router {
    /// A router that knows nothing yet. `env` reads environment variables; `seed` decides the draws of
    /// requests without a session.
    pub fn new(config: Config, env: Env<'_>, seed: u64, now: Instant) -> Self {
        Self::build(config, env, None, seed, now)
    }

    /// The same router with issuers that are known already.
    #[must_use]
    pub fn knowing(self, affinity: Affinity) -> Self {
        Self { affinity: Arc::new(affinity), ..self }
    }

    /// A router for a changed configuration, with the breakers, budgets, resting keys, learned waits and known
    /// issuers of this one, by upstream and model, as far as both have them.
    #[must_use]
    pub fn reconfigured(&self, config: Config, env: Env<'_>, now: Instant) -> Self {
        Self::build(config, env, Some(self), 0, now)
    }

    fn build(config: Config, env: Env<'_>, old: Option<&Self>, seed: u64, now: Instant) -> Self {
        let several = config.upstreams.windows(2).any(|two| two[0].organisation != two[1].organisation);
        let keyrings = keyrings(&config, env, old);
        let mut lanes = HashMap::new();
        let mut lane = |upstream: &Upstream, route: &Route| {
            let key = lane_key(upstream, route);
            let known = || old.and_then(|old| old.lanes.get(&key)).map_or_else(Arc::default, Arc::clone);
            let lane: &Arc<Lane> = lanes.entry(key.clone()).or_insert_with(known);
            locked(&lane.breaker).configure(config.breaker);
            lane.harm().configure(config.signals.harm);
            lane.clone()
        };
        let mut route = |route: &Arc<Route>| {
            let known = old.and_then(|old| old.routes.get(&route.model));
            let learned = known.map_or(&[][..], |known| &known.policies);
            let policies = route.policies.iter().map(|policy| policy.after(learned)).collect();
            let shared =
                known.map_or_else(|| Arc::new(Shared::new(route, now)), |known| known.shared.clone());
            locked(&shared.budget).configure(route.retry_budget);
            let seats = seats(route, &keyrings, &mut lane);
            (route.model.clone(), Arc::new(RouteState { route: route.clone(), seats, shared, policies }))
        };
        Self {
            routes: config.routes.iter().map(&mut route).collect(),
            lanes,
            keyrings,
            affinity: old.map_or_else(|| Arc::new(Affinity::in_memory()), |old| old.affinity.clone()),
            draws: old.map_or_else(|| Arc::new(AtomicU64::new(seed)), |old| old.draws.clone()),
            steering: old.map_or_else(|| Arc::new(Steering::new(now)), |old| old.steering.clone()),
            several,
            config,
        }
    }

    /// The configuration that it runs on.
    pub fn config(&self) -> &Config {
        &self.config
    }

    /// The plan for one request. It counts towards the route's retry budget.
    ///
    /// # Errors
    /// When no upstream may or can take it.
    pub fn candidates(self: &Arc<Self>, ask: &Ask<'_>, now: Instant) -> Result<Plan, Stop> {
        let route = self.route(ask.model).ok_or_else(|| Stop::NoRoute { model: ask.model.to_owned() })?;
        self.steer(now);
        locked(&route.shared.budget).request();
        let issuer = self.affinity.issuer(ask.state);
        let bound = match issuer {
            Issuer::Stateless => Bound::Free,
            Issuer::One(organisation) => Bound::To(organisation),
            Issuer::Several(organisations) => return Err(Stop::MixedState { organisations }),
            Issuer::Unknown => {
                let several = route.route.organisations().len() > 1;
                if several && self.config.affinity.unknown_state == UnknownState::Refuse {
                    return Err(Stop::UnknownState);
                }
                Bound::ToFirst
            }
        };
        let draw = ask.draw.or(ask.session).unwrap_or_else(|| self.draw());
        let mut plan = Plan::new(self.clone(), route.clone(), ask, bound, draw, now)?;
        // What is no generation (files, batches) is not what signals are about.
        if ask.api.is_some() {
            plan.judge(&self.steering_snapshot(), ask, draw);
        }
        Ok(plan)
    }

    fn route(&self, model: &str) -> Option<&Arc<RouteState>> {
        self.routes.get(model).or_else(|| self.routes.get("*"))
    }

    /// The route that takes a model, with its policies; `None` when there are none.
    pub(crate) fn policies(&self, model: &str) -> Option<(&Route, &[Installed])> {
        let route = self.route(model).filter(|route| !route.policies.is_empty())?;
        Some((&route.route, &route.policies))
    }

    /// A draw for a request without a session.
    pub(crate) fn draw(&self) -> u64 {
        self.draws.fetch_add(1, Ordering::Relaxed)
    }

    pub(crate) fn steering(&self) -> &Steering {
        &self.steering
    }

    /// Every lane with its upstream and model.
    pub(crate) fn lanes(&self) -> impl Iterator<Item = (&str, &str, &Arc<Lane>)> {
        self.lanes.iter().map(|((upstream, model), lane)| (&**upstream, &**model, lane))
    }

    /// The lanes with calls that a signal is about.
    pub(crate) fn lanes_of(&self, target: &Target) -> impl Iterator<Item = &Arc<Lane>> {
        self.lanes()
            .filter(|(upstream, model, _)| target.meets_lane(upstream, model))
            .map(|(_, _, lane)| lane)
    }

    /// Whether it matters who has issued a request's state: there is more than one organisation.
    pub fn several_organisations(&self) -> bool {
        self.several
    }

    /// Writes the known issuers to their file, where there is one.
    ///
    /// # Errors
    /// When it cannot be written.
    pub fn save_issuers(&self) -> io::Result<()> {
        self.affinity.save()
    }

    /// The keys of references that a request carries or an answer issues.
    pub fn state_keys(&self, references: &[String]) -> Vec<StateKey> {
        references.iter().map(|reference| self.affinity.key(reference)).collect()
    }

    /// Who learns what an answer of `upstream` issues: requests that carry that stay with its organisation.
    /// `None` while there is one organisation only. `events`: it comes as events.
    pub fn learner(&self, upstream: &Upstream, events: bool) -> Option<Learner> {
        let learner = || Learner::new(self.affinity.clone(), upstream.organisation.clone(), events);
        self.several.then(learner)
    }

    /// The route for a request that names no model: `model`, or, where its state was issued by an organisation
    /// that has no upstream there, the first that has one.
    pub fn home<'a>(&'a self, model: &'a str, state: &[StateKey]) -> &'a str {
        let Issuer::One(organisation) = self.affinity.issuer(state) else { return model };
        let has = |route: &&Arc<Route>| route.organisations().contains(&*organisation);
        let routes = &self.config.routes;
        let given = routes.iter().filter(|route| *route.model == *model);
        given.chain(routes).find(has).map_or(model, |route| &route.model)
    }

    /// `upstream` has issued these references.
    #[cfg(test)]
    pub(crate) fn issued(&self, references: &[StateKey], upstream: &Upstream) {
        self.affinity.issued(references, &upstream.organisation);
    }

    /// Takes in an active health check of an upstream.
    pub fn health(&self, upstream: &str, well: bool, now: Instant) {
        for ((name, _), lane) in &self.lanes {
            if **name == *upstream {
                locked(&lane.breaker).health(well, now);
            }
        }
    }

    /// Every breaker, by upstream and model.
    pub fn breakers(&self, now: Instant) -> Vec<BreakerView> {
        let view = |((upstream, model), lane): (&LaneKey, &Arc<Lane>)| {
            let breaker = locked(&lane.breaker);
            let (upstream, model) = (upstream.clone(), model.clone());
            BreakerView { upstream, model, state: breaker.state(now), why: breaker.tripped() }
        };
        let mut views: Vec<_> = self.lanes.iter().map(view).collect();
        views.sort_by(|a, b| (&a.upstream, &a.model).cmp(&(&b.upstream, &b.model)));
        views
    }

    /// Where one breaker stands, and when it last closed again.
    pub(crate) fn standing(
        &self,
        upstream: &Upstream,
        route: &Route,
        now: Instant,
    ) -> (State, Option<Instant>) {
        let lane = self.lanes.get(&lane_key(upstream, route));
        lane.map_or((State::Closed, None), |lane| {
            let breaker = locked(&lane.breaker);
            (breaker.state(now), breaker.closed_at())
        })
    }

    /// What each policy of each route knows, where it knows something.
    pub(crate) fn policy_views(&self, now: Instant) -> Vec<(&str, &'static str, Value)> {
        let of = |route: &'_ Arc<RouteState>| {
            let view = |installed: &Installed| Some((installed.policy.name(), installed.policy.view(now)?));
            route.policies.iter().filter_map(view).collect::<Vec<_>>()
        };
        let mut views: Vec<_> = Vec::new();
        for (model, route) in &self.routes {
            views.extend(of(route).into_iter().map(|(name, view)| (&**model, name, view)));
        }
        views.sort_by_key(|(model, name, _)| (*model, *name));
        views
    }

    /// Whether each route has an upstream that is not left alone: the answer of `/ready`.
    pub fn ready(&self, now: Instant) -> bool {
        let open = |seat: &Seat| matches!(locked(&seat.lane.breaker).state(now), State::Open(_));
        self.routes.values().all(|route| route.seats.iter().any(|seat| !open(seat)))
    }

    /// A key of an upstream, for a request that is no caller's.
    pub fn key(&self, upstream: &Upstream, now: Instant) -> Pick {
        self.keyrings.get(&upstream.name).map_or(Pick::None, |ring| ring.pick("", &[], false, now))
    }
}

/// Which organisation a request is bound to.
#[derive(Clone, Debug)]
enum Bound {
    Free,
    To(Arc<str>),
    /// To that of the first attempt.
    ToFirst,
}

impl Shared {
    fn new(route: &Route, now: Instant) -> Self {
        Self {
            budget: Mutex::new(Budget::new(route.retry_budget, now)),
            fallbacks: AtomicU64::new(0),
            failing_since: Mutex::new(None),
        }
    }
}

/// The keys of each upstream; those of `old` go on, or who of them rests, as far as they are the same.
fn keyrings(config: &Config, env: Env<'_>, old: Option<&Router>) -> HashMap<Arc<str>, Arc<Keyring>> {
    let keyring = |upstream: &Arc<Upstream>| {
        let ring = Keyring::new(&upstream.keys, env);
        let ring = match old.and_then(|old| old.keyrings.get(&upstream.name)) {
            Some(known) if ring.has_the_keys_of(known) => known.clone(),
            Some(known) => {
                ring.take_over(known);
                Arc::new(ring)
            }
            None => Arc::new(ring),
        };
        (upstream.name.clone(), ring)
    };
    config.upstreams.iter().map(keyring).collect()
}

/// Every upstream of a route, the rollback last.
fn seats(
    route: &Route,
    keyrings: &HashMap<Arc<str>, Arc<Keyring>>,
    lane: &mut dyn FnMut(&Upstream, &Route) -> Arc<Lane>,
) -> Vec<Seat> {
    let mut seat = |tier, weight, rollback, upstream: &Arc<Upstream>| Seat {
        tier,
        weight,
        rollback,
        upstream: upstream.clone(),
        lane: lane(upstream, route),
        keyring: keyrings.get(&upstream.name).cloned().unwrap_or_default(),
    };
    let mut seats = Vec::new();
    for (tier, members) in (0..).zip(&route.tiers) {
        seats.extend(members.iter().map(|member| seat(tier, member.weight, None, &member.upstream)));
    }
    let rollback = route.rollback.iter();
    seats.extend(rollback.map(|last| seat(route.tiers.len(), 1.0, Some(last.after), &last.upstream)));
    seats
}

/// The breaker that stands for a route's model at `upstream`. A wildcard route has one for all models: clients
/// could name any number of them.
fn lane_key(upstream: &Upstream, route: &Route) -> LaneKey {
    let model = if &*route.model == "*" { "*" } else { upstream.model(&route.model) };
    (upstream.name.clone(), model.into())
}

/// A poisoned lock is used on: the values under it are whole between any two statements that can panic.
fn locked<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// The wait until `until`, at least a second, since clients take 0 for "at once".
fn wait(until: Instant, now: Instant) -> Duration {
    until.saturating_duration_since(now).max(Duration::from_secs(1))
}

#[cfg(test)]
mod tests;
