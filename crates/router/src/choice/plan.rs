//! The upstreams that can take one request, and the next one to try.

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use sseismo_trace::Api;
use tokio::time::Instant;

use super::attempt::{FallbackPlace, Flight, Hold, Learn};
use super::{Ask, Attempt, Bound, Reason, RouteState, Router, Seat, Stop, locked, order, wait};
use crate::breaker::{Admit, State};
use crate::config::Route;
use crate::keys::{Key, Pick};
use crate::outcome::{Incapable, Limit, LimitKind, Outcome};
use crate::policy::effort::{can_be_lowered, is_deep};
use crate::policy::{Adjust, Advised, Told, primary};
use crate::steer::{Called, Held, Snapshot};

/// Why an upstream was passed over.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Why {
    /// It does not speak the API.
    Api,
    /// Its context is too small for the estimated prompt.
    Context,
    /// It belongs to another organisation than the request's state.
    Organisation,
    /// Its breaker is open.
    Breaker,
    /// All its keys rest or were used.
    Keys,
    /// The fallback's cap is reached.
    FallbackFull,
    /// The tiers have not failed for long enough.
    RollbackNotDue,
    /// A policy leaves it out.
    Policy,
}

impl Why {
    /// The name in logs and metrics.
    pub fn name(self) -> &'static str {
        match self {
            Self::Api => "api",
            Self::Context => "context",
            Self::Organisation => "organisation",
            Self::Breaker => "breaker",
            Self::Keys => "keys",
            Self::FallbackFull => "fallback-full",
            Self::RollbackNotDue => "rollback-not-due",
            Self::Policy => "policy",
        }
    }
}

/// An upstream that was passed over, and why.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Passed {
    /// The upstream.
    pub upstream: Arc<str>,
    /// Why it was not asked.
    pub why: Why,
}

/// One request on its way through the candidates.
#[derive(Debug)]
pub struct Plan {
    router: Arc<Router>,
    route: Arc<RouteState>,
    effort: Arc<str>,
    prompt_tokens: Option<u64>,
    by_session: bool,
    bound: Bound,
    places: Vec<Place>,
    passed: Vec<Passed>,
    attempts: u32,
    deadline: Instant,
    last: Option<(usize, Outcome)>,
    deep: bool,
    /// The place that is first without signals and policies.
    natural: Option<usize>,
    /// The cheapest first among those that do not stand last.
    cheapest: bool,
    /// What was done about the call, and what would have been.
    told: Vec<Told>,
    would_have: Vec<Told>,
}

/// A seat that is still in question.
#[derive(Debug)]
struct Place {
    seat: Seat,
    /// The model's name there.
    model: Arc<str>,
    rank: f64,
    /// Keys that were tried.
    used: Vec<u16>,
    done: bool,
    /// It stands last, for this.
    last: Option<Told>,
    /// It stands before others, for this.
    preferred: Option<Told>,
    /// Changes to the request there.
    adjust: Adjust,
    /// Effort is lowered there, for this.
    lowered: Option<Told>,
}

/// What stood in the way of a place.
#[derive(Clone, Copy, Debug)]
struct Obstacle {
    why: Why,
    until: Option<Instant>,
    /// The upstream asked for the wait: not even the last resort goes there.
    asked: bool,
}

impl Plan {
    pub(super) fn new(
        router: Arc<Router>,
        route: Arc<RouteState>,
        ask: &Ask<'_>,
        bound: Bound,
        draw: u64,
        now: Instant,
    ) -> Result<Self, Stop> {
        let mut passed = Vec::new();
        let mut places: Vec<Place> =
            route.seats.iter().map(|seat| Place::new(seat, ask.model, draw)).collect();
        let mut keep = |why: Why, fits: &dyn Fn(&Place) -> bool| {
            let gone = places.extract_if(.., |place| !fits(place));
            passed.extend(gone.map(|place| Passed { upstream: place.seat.upstream.name.clone(), why }));
            places.is_empty()
        };
        if let Some(api) = ask.api
            && keep(Why::Api, &|place| place.speaks(api))
        {
            return Err(Stop::NoApi { route: route.route.model.clone(), api });
        }
        if let Bound::To(organisation) = &bound
            && keep(Why::Organisation, &|place| place.seat.upstream.organisation == *organisation)
        {
            return Err(Stop::StateBound { organisation: organisation.clone(), retry_after: None });
        }
        if let Some(tokens) = ask.prompt_tokens {
            // The rollback may not be due, so its room does not count.
            let tiers = places.iter().filter(|place| place.seat.rollback.is_none());
            let widest = tiers.map(Place::context).max().unwrap_or(u64::MAX);
            // The size is an estimate: when nobody seems to have room, the widest may judge by itself.
            places.retain(|place| {
                let fits = place.context() >= tokens.min(widest);
                if !fits {
                    passed.push(Passed { upstream: place.seat.upstream.name.clone(), why: Why::Context });
                }
                fits
            });
        }
        let mut plan = Self {
            deep: is_deep(ask.effort),
            natural: None,
            cheapest: false,
            told: Vec::new(),
            would_have: Vec::new(),
            effort: ask.effort.unwrap_or_default().into(),
            prompt_tokens: ask.prompt_tokens,
            by_session: ask.session.is_some(),
            bound,
            places,
            passed,
            attempts: 0,
            deadline: now + route.route.deadline,
            last: None,
            router,
            route,
        };
        plan.natural = plan.order().first().copied();
        Ok(plan)
    }

    /// Hears what is signalled about its places.
    pub(super) fn judge(&mut self, signals: &Snapshot, ask: &Ask<'_>, draw: u64) {
        if signals.is_quiet() {
            return;
        }
        let lowers = can_be_lowered(ask.effort);
        for index in 0..self.places.len() {
            let judged = signals.judge(&self.called(index, ask, draw));
            if self.natural == Some(index) {
                self.would_have.extend(judged.would);
                self.would_have.extend(judged.would_lower.filter(|_| lowers));
            }
            let place = &mut self.places[index];
            place.last = judged.last;
            place.lowered = judged.lower.filter(|_| lowers);
            place.adjust.lower(u8::from(place.lowered.is_some()));
        }
    }

    fn called<'a>(&'a self, index: usize, ask: &'a Ask<'a>, draw: u64) -> Called<'a> {
        let place = &self.places[index];
        Called {
            upstream: &place.seat.upstream.name,
            model: &place.model,
            route: &self.route.route.model,
            effort: &self.effort,
            prompt_tokens: ask.prompt_tokens,
            numeric_share: ask.numeric_share,
            deep: self.deep,
            in_flight: place.seat.lane.in_flight.load(Ordering::Relaxed),
            deep_in_flight: place.seat.lane.deep_in_flight.load(Ordering::Relaxed),
            draw,
        }
    }

    /// Takes the advice of the route's policies. Who may take the call at all was decided before.
    pub fn heed(&mut self, advised: &Advised) {
        self.cheapest = advised.cheapest;
        let primary: Vec<Arc<str>> = match &advised.spill {
            None => Vec::new(),
            Some(_) => primary(&self.route.route).map(|upstream| upstream.name.clone()).collect(),
        };
        for place in &mut self.places {
            let name = &place.seat.upstream.name;
            let of = |list: &[(Arc<str>, Told)]| {
                list.iter().find(|(listed, _)| listed == name).map(|(_, told)| told.clone())
            };
            let tier = advised.from_tier.as_ref().filter(|(tier, _)| place.seat.tier < *tier);
            let spilled = advised.spill.as_ref().filter(|_| primary.contains(name));
            let without = of(&advised.without);
            if without.is_some() {
                place.done = true;
                self.passed.push(Passed { upstream: name.clone(), why: Why::Policy });
            }
            let last =
                without.or(of(&advised.avoid)).or(spilled.cloned()).or(tier.map(|(_, told)| told.clone()));
            place.last = place.last.take().or(last);
            place.preferred = of(&advised.prefer);
            place.adjust = place.adjust.and(advised.adjust);
        }
    }

    /// What signals and policies did about the call so far, by moving it or by changing it for one place.
    pub fn told(&self) -> &[Told] {
        &self.told
    }

    /// What signals would have done, and what nobody else could take.
    pub fn would_have(&self) -> &[Told] {
        &self.would_have
    }

    /// The upstreams that are left, the next first.
    #[cfg(test)]
    pub(crate) fn names(&self) -> Vec<&str> {
        self.order().into_iter().map(|index| &*self.places[index].seat.upstream.name).collect()
    }

    /// The route that takes the request.
    pub fn route(&self) -> &Arc<Route> {
        &self.route.route
    }

    /// Who was passed over so far, and why.
    pub fn passed(&self) -> &[Passed] {
        &self.passed
    }

    /// The next attempt.
    ///
    /// # Errors
    /// When there is none. [`Stop::Settled`], [`Stop::Exhausted`] and [`Stop::BudgetSpent`] mean that the last
    /// answer is the client's.
    pub fn next(&mut self, now: Instant) -> Result<Attempt, Stop> {
        if self.last.is_some_and(|(_, outcome)| !outcome.goes_on()) {
            return Err(Stop::Settled);
        }
        if now >= self.deadline {
            return Err(Stop::Deadline);
        }
        let order = self.order();
        if self.attempts > 0 && !order.is_empty() && !locked(&self.route.shared.budget).retry(now) {
            return Err(Stop::BudgetSpent);
        }
        let mut obstacles = Vec::new();
        for &place in &order {
            match self.attempt(place, false, now) {
                Ok(attempt) => return Ok(attempt),
                Err(obstacle) => obstacles.push((place, obstacle)),
            }
        }
        if self.attempts > 0 {
            if !order.is_empty() {
                locked(&self.route.shared.budget).give_back();
            }
        } else {
            let open =
                obstacles.iter().filter(|(_, o)| !o.asked && matches!(o.why, Why::Breaker | Why::Keys));
            for (place, _) in open {
                if let Ok(attempt) = self.attempt(*place, true, now) {
                    return Ok(attempt);
                }
            }
        }
        Err(self.stop(&obstacles, now))
    }

    /// Ends an attempt, so that [`next`](Self::next) knows how it went.
    pub fn report(&mut self, mut attempt: Attempt, outcome: Outcome, now: Instant) {
        attempt.settle(outcome, now);
        self.last = Some((attempt.place, outcome));
        let Some(place) = self.places.get_mut(attempt.place) else { return };
        let other_key = matches!(outcome, Outcome::Limited(Limit { kind, elsewhere: false, .. }) if kind != LimitKind::PerIp);
        match attempt.key.as_ref().filter(|_| other_key) {
            Some(key) => place.used.push(key.slot),
            None => place.done = true,
        }
        let context = place.context();
        if outcome == Outcome::Incapable(Incapable::Context) {
            // An upstream with no stated limit may have any.
            let smaller = |place: &&mut Place| {
                place.context() <= context && place.seat.upstream.context_limit.is_some()
            };
            self.places.iter_mut().filter(smaller).for_each(|place| place.done = true);
        }
    }

    /// The places that are left, the next first.
    fn order(&self) -> Vec<usize> {
        let last = self
            .last
            .map(|(place, outcome)| (place, outcome, self.places[place].seat.upstream.region.clone()));
        let key = |index: usize| {
            let place = &self.places[index];
            let (other_key, same_region) = match &last {
                Some((last, Outcome::Limited(_), _)) => (*last == index, false),
                Some((_, Outcome::Failed(_), region)) => {
                    (false, region.is_some() && *region == place.seat.upstream.region)
                }
                Some((_, Outcome::Good | Outcome::Neutral | Outcome::Incapable(_), _)) | None => {
                    (false, false)
                }
            };
            let tier = if self.cheapest { 0 } else { place.seat.tier };
            let ends = (place.seat.rollback.is_some(), place.last.is_some());
            (!other_key, ends, place.preferred.is_none(), tier, same_region)
        };
        let rank = |index: usize| {
            let place = &self.places[index];
            let price = place.seat.upstream.prices.get(&*place.model);
            // Without a price it may cost anything.
            if self.cheapest { price.map_or(f64::INFINITY, |price| price.input + price.output) } else { 0.0 }
        };
        let mut order: Vec<usize> = (0..self.places.len()).filter(|index| self.may(*index)).collect();
        order.sort_by(|&a, &b| {
            let (one, other) = (&self.places[a], &self.places[b]);
            key(a)
                .cmp(&key(b))
                .then_with(|| rank(a).total_cmp(&rank(b)))
                .then_with(|| one.seat.tier.cmp(&other.seat.tier))
                .then_with(|| one.rank.total_cmp(&other.rank))
        });
        order
    }

    /// Whether a place is left and may see the request's state.
    fn may(&self, index: usize) -> bool {
        let place = &self.places[index];
        let readable = match &self.bound {
            Bound::To(organisation) => place.seat.upstream.organisation == *organisation,
            Bound::Free | Bound::ToFirst => true,
        };
        readable && !place.done
    }

    fn attempt(&mut self, index: usize, force: bool, now: Instant) -> Result<Attempt, Obstacle> {
        match self.admit(index, force, now) {
            Ok((key, hold, admit)) => Ok(self.begin(index, force, key, hold, admit, now)),
            Err(obstacle) => {
                let passed =
                    Passed { upstream: self.places[index].seat.upstream.name.clone(), why: obstacle.why };
                if !self.passed.contains(&passed) {
                    self.passed.push(passed);
                }
                Err(obstacle)
            }
        }
    }

    /// Takes all that an attempt holds, or nothing.
    fn admit(&self, index: usize, force: bool, now: Instant) -> Result<(Option<Key>, Hold, Admit), Obstacle> {
        let place = &self.places[index];
        let obstacle = |why, until, asked| Err(Obstacle { why, until, asked });
        if !self.rollback_due(place, now) {
            return obstacle(Why::RollbackNotDue, None, false);
        }
        let mut fallback = None;
        if self.is_fallback(place) {
            fallback = FallbackPlace::take(&self.route.shared, self.route.route.fallback_in_flight);
            if fallback.is_none() {
                return obstacle(Why::FallbackFull, None, false);
            }
        }
        let key = match place.seat.keyring.pick(&place.model, &place.used, force, now) {
            Pick::Keyless => None,
            Pick::Key(key) => Some(key),
            Pick::Resting { until, asked } => return obstacle(Why::Keys, Some(until), asked),
            Pick::None => return obstacle(Why::Keys, None, true),
        };
        let mut breaker = locked(&place.seat.lane.breaker);
        let admit = if force { breaker.force(now) } else { breaker.admit(now) };
        drop(breaker);
        let probe = match admit {
            Admit::Pass => None,
            Admit::Probe(probe) => Some(probe),
            Admit::Refuse { until, asked } => return obstacle(Why::Breaker, Some(until), asked),
        };
        let flight = Flight::begin(&place.seat.lane, self.deep);
        Ok((key, Hold { lane: place.seat.lane.clone(), probe, fallback, flight }, admit))
    }

    fn begin(
        &mut self,
        index: usize,
        force: bool,
        key: Option<Key>,
        hold: Hold,
        admit: Admit,
        now: Instant,
    ) -> Attempt {
        let reason = self.reason(index, force, admit);
        let organisation = self.places[index].seat.upstream.organisation.clone();
        if matches!(self.bound, Bound::ToFirst) {
            self.bound = Bound::To(organisation);
        }
        self.attempts += 1;
        self.tell(index);
        let others = (0..self.places.len()).any(|other| other != index && self.could(other, now));
        let place = &self.places[index];
        let left = self.deadline.saturating_duration_since(now);
        let kept = if others {
            left.mul_f64(self.route.route.fallback_share.clamp(0.0, 1.0))
        } else {
            Duration::ZERO
        };
        let learned = || locked(&place.seat.lane.patience).timeout(&self.effort);
        let first_content_within =
            place.seat.upstream.first_content_timeout.or_else(learned).filter(|_| others);
        Attempt {
            number: self.attempts,
            upstream: place.seat.upstream.clone(),
            model: place.model.clone(),
            key,
            reason,
            fallback: hold.fallback.is_some(),
            until: self.deadline.checked_sub(kept).unwrap_or(self.deadline),
            headers_within: others.then_some(place.seat.upstream.headers_timeout),
            first_content_within,
            adjust: place.adjust,
            place: index,
            hold,
            learn: Learn {
                shared: self.route.shared.clone(),
                keyring: place.seat.keyring.clone(),
                settings: self.router.config().breaker,
                effort: self.effort.clone(),
                prompt_tokens: self.prompt_tokens,
                started: now,
                content: false,
                in_tiers: place.seat.rollback.is_none(),
            },
        }
    }

    /// Tells what the first attempt's place shows: who was moved, and who could not be.
    fn tell(&mut self, index: usize) {
        if self.attempts > 1 {
            return;
        }
        self.told.extend(self.places[index].lowered.clone());
        let natural = self.natural.filter(|natural| *natural != index);
        let moved = natural.and_then(|natural| self.places[natural].last.clone());
        self.told.extend(moved.or_else(|| natural.and(self.places[index].preferred.clone())));
        let stayed = self.places[index].last.clone().filter(|_| natural.is_none());
        self.would_have.extend(stayed.map(|told| Told { why: Some(Held::NowhereToGo.name()), ..told }));
    }

    /// Whether a signal or policy keeps the call off the place that would have been first.
    fn is_steered(&self, index: usize) -> bool {
        let natural = self.natural.filter(|natural| *natural != index).map(|natural| &self.places[natural]);
        natural.is_some_and(|natural| natural.last.is_some() || self.places[index].preferred.is_some())
    }

    fn reason(&self, index: usize, force: bool, admit: Admit) -> Reason {
        let place = &self.places[index];
        if force {
            return Reason::LastResort;
        }
        if place.seat.rollback.is_some() {
            return Reason::Rollback;
        }
        if matches!(admit, Admit::Probe(_)) {
            return Reason::Probe;
        }
        match self.last {
            Some((last, _)) if last == index => Reason::OtherKey,
            Some((last, _)) => {
                let (from, to) = (&self.places[last], place);
                match (&from.seat.upstream.region, &to.seat.upstream.region) {
                    (Some(from), Some(to)) if from != to => Reason::OtherRegion,
                    _ if from.seat.tier == to.seat.tier => Reason::NextInTier,
                    _ => Reason::NextTier,
                }
            }
            None if self.is_steered(index) => Reason::Steered,
            None if place.seat.tier > 0 => Reason::NextTier,
            None if matches!(self.bound, Bound::To(_) | Bound::ToFirst) => Reason::State,
            None if self.order().first() != Some(&index) => Reason::NextInTier,
            None if self.by_session => Reason::Session,
            None => Reason::Weight,
        }
    }

    /// Whether another place could take over, without taking anything.
    fn could(&self, index: usize, now: Instant) -> bool {
        let place = &self.places[index];
        let open = matches!(locked(&place.seat.lane.breaker).state(now), State::Open(_));
        let (keys, resting) = place.seat.keyring.resting(&place.model, now);
        self.may(index) && self.rollback_due(place, now) && !open && (keys == 0 || resting < keys)
    }

    fn is_fallback(&self, place: &Place) -> bool {
        self.attempts > 0 || place.seat.tier > 0
    }

    fn rollback_due(&self, place: &Place, now: Instant) -> bool {
        place.seat.rollback.is_none_or(|after| {
            let since = *locked(&self.route.shared.failing_since);
            since.is_some_and(|since| now.saturating_duration_since(since) >= after)
        })
    }

    fn stop(&self, obstacles: &[(usize, Obstacle)], now: Instant) -> Stop {
        let soonest = obstacles.iter().filter_map(|(_, obstacle)| obstacle.until).min();
        if let Bound::To(organisation) = &self.bound
            && self.route.route.organisations().len() > 1
        {
            // Somebody else could have answered, were it not for the state.
            let retry_after = soonest.map(|until| wait(until, now));
            return Stop::StateBound { organisation: organisation.clone(), retry_after };
        }
        let route = || self.route.route.model.clone();
        if self.attempts > 0 {
            return Stop::Exhausted;
        }
        if obstacles.is_empty() && self.passed.iter().any(|passed| passed.why == Why::Policy) {
            let message = "a policy of the route leaves out every upstream that could take the request";
            return Stop::Refused { message, retry_after: None };
        }
        if obstacles.iter().any(|(_, obstacle)| obstacle.why == Why::FallbackFull) {
            return Stop::FallbackFull { route: route() };
        }
        let until = soonest.unwrap_or(now + self.router.config().breaker.cooldown);
        Stop::Resting { route: route(), retry_after: wait(until, now) }
    }
}

impl Place {
    fn new(seat: &Seat, asked: &str, draw: u64) -> Self {
        Self {
            model: seat.upstream.model(asked).into(),
            rank: order::rank(draw, &seat.upstream.name, seat.weight),
            seat: seat.clone(),
            used: Vec::new(),
            done: false,
            last: None,
            preferred: None,
            adjust: Adjust::default(),
            lowered: None,
        }
    }

    fn speaks(&self, api: Api) -> bool {
        self.seat.upstream.apis.contains(&api)
    }

    fn context(&self) -> u64 {
        self.seat.upstream.context_limit.unwrap_or(u64::MAX)
    }
}
