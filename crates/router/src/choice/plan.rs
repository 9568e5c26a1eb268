//! The upstreams that can take one request, and the next one to try.

use std::sync::Arc;
use std::time::Duration;

use sseismo_trace::Api;
use tokio::time::Instant;

use super::attempt::{FallbackPlace, Hold, Learn};
use super::{Ask, Attempt, Bound, Reason, RouteState, Router, Seat, Stop, locked, order, wait};
use crate::breaker::{Admit, State};
use crate::config::Route;
use crate::keys::{Key, Pick};
use crate::outcome::{Incapable, Limit, LimitKind, Outcome};

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
    by_session: bool,
    bound: Bound,
    places: Vec<Place>,
    passed: Vec<Passed>,
    attempts: u32,
    deadline: Instant,
    last: Option<(usize, Outcome)>,
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
        Ok(Self {
            effort: ask.effort.unwrap_or_default().into(),
            by_session: ask.session.is_some(),
            bound,
            places,
            passed,
            attempts: 0,
            deadline: now + route.route.deadline,
            last: None,
            router,
            route,
        })
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
            (!other_key, place.seat.tier, same_region)
        };
        let mut order: Vec<usize> = (0..self.places.len()).filter(|index| self.may(*index)).collect();
        order.sort_by(|&a, &b| {
            key(a).cmp(&key(b)).then_with(|| self.places[a].rank.total_cmp(&self.places[b].rank))
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
        Ok((key, Hold { lane: place.seat.lane.clone(), probe, fallback }, admit))
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
            place: index,
            hold,
            learn: Learn {
                shared: self.route.shared.clone(),
                keyring: place.seat.keyring.clone(),
                settings: self.router.config().breaker,
                effort: self.effort.clone(),
                started: now,
                content: false,
                in_tiers: place.seat.rollback.is_none(),
            },
        }
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
        }
    }

    fn speaks(&self, api: Api) -> bool {
        self.seat.upstream.apis.contains(&api)
    }

    fn context(&self) -> u64 {
        self.seat.upstream.context_limit.unwrap_or(u64::MAX)
    }
}
