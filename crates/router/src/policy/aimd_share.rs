//! `[route.aimd_share]`: how much of the route's traffic the primary gets follows how it does.
//!
//! A call at the primary is a breach when it failed, was limited, or had no content within
//! `first_content_within`; over a sliding window of calls the share of breaches decides:
//!
//! | breaches | the primary's share |
//! |---|---|
//! | above 10 %, of at least 50 calls | ×0.8, not below the floor |
//! | 3 to 10 % | stays |
//! | below 3 %, with at least 10 calls since the last change | + 0.02, up to 1 |
//!
//! This is the corrected shape of an AIMD in production (additive increase, multiplicative decrease). Its first
//! version decided at 5 % of 50 calls, which is noise; it emptied the window at each step, which made recovery
//! take hours; calls of unknown outcome froze it, just under overload; and a restart forgot everything. Here the
//! window slides by number and age and is never emptied; what is unknown is left out, but a client that left
//! after waiting longer than `first_content_within` has told what it thought; and the state outlives a changed
//! configuration. Between two changes lie at least `dwell`.
//!
//! Who is moved is drawn per session, so that prompt caches keep their worth.

use std::collections::VecDeque;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use tokio::time::Instant;

use super::{Advice, Call, Policy, Thought};
use crate::access::{Entry, Tried};
use crate::config::{Route, Section};
use crate::steer::FLOOR;

/// The table's name.
pub(crate) const NAME: &str = "aimd_share";

/// Calls in the window at most: a breach share of 10 % is then known to about ±4 %.
const WINDOW: usize = 200;
/// Calls without which nothing is lowered.
const ENOUGH: usize = 50;
/// Calls since the last change without which nothing is raised: few, since the floor lets few through.
const FRESH: usize = 10;
/// Above this share of breaches it is lowered …
const LOWER_ABOVE: f64 = 0.10;
/// … below this one raised.
const RAISE_BELOW: f64 = 0.03;
/// The decrease.
const DECREASE: f64 = 0.8;
/// The increase.
const INCREASE: f64 = 0.02;

#[derive(Clone, Debug)]
struct AimdShare {
    settings: Settings,
    state: Arc<Mutex<State>>,
}

#[derive(Clone, Debug)]
struct Settings {
    first_content_within: Option<Duration>,
    dwell: Duration,
    /// Older calls say nothing about now.
    age: Duration,
    floor: f64,
    primary: Vec<Arc<str>>,
}

#[derive(Debug)]
struct State {
    share: f64,
    changed: Option<Instant>,
    /// When a call ended, and whether it was a breach.
    calls: VecDeque<(Instant, bool)>,
    /// Calls since the last change.
    fresh: usize,
}

impl Default for State {
    fn default() -> Self {
        Self { share: 1.0, changed: None, calls: VecDeque::new(), fresh: 0 }
    }
}

#[expect(clippy::unnecessary_wraps, reason = "other policies cannot be made of every table")]
pub(crate) fn read(section: &Section<'_>, route: &Route) -> Option<Arc<dyn Policy>> {
    let floor = section.share("floor").unwrap_or(FLOOR);
    if floor < FLOOR {
        section.fault("floor", "`floor` must be at least 0.05: recovery would not be seen");
    }
    let primary: Vec<_> = super::primary(route).map(|upstream| upstream.name.clone()).collect();
    if route.upstreams().count() <= primary.len() {
        section.fault("floor", "the route has no other upstream that could take the rest");
    }
    let settings = Settings {
        first_content_within: section.duration("first_content_within"),
        dwell: section.duration("dwell").unwrap_or(Duration::from_secs(30)),
        age: section.duration("age").unwrap_or(Duration::from_mins(2)),
        floor,
        primary,
    };
    Some(Arc::new(AimdShare { settings, state: Arc::default() }))
}

impl AimdShare {
    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Whether an attempt was a breach; `None`: it says nothing.
    fn breach(&self, entry: &Entry, tried: &Tried) -> Option<bool> {
        let within = self.settings.first_content_within.map(|within| within.as_secs_f64() * 1e3);
        let committed = tried.number == entry.attempt && entry.served_by.is_some();
        let first = entry.first_content_ms.filter(|_| committed).map(|first| first - tried.started_ms);
        let late = |waited: f64| within.is_some_and(|within| waited > within);
        match tried.kind {
            "good" => Some(first.is_some_and(late)),
            // The client left: only a long wait without content says something.
            "client-gone" | "neutral" if first.is_none() => {
                let ended = tried.ended_ms.max(entry.duration_ms);
                late(ended - tried.started_ms).then_some(true)
            }
            "client-gone" | "neutral" => first.filter(|first| late(*first)).map(|_| true),
            // Abilities, keys and money are not the primary's speed or health.
            "context-length"
            | "no-such-model"
            | "no-such-api"
            | "unsupported-parameter"
            | "forbidden"
            | "insufficient-quota"
            | "key-refused" => None,
            _ => Some(true),
        }
    }
}

impl State {
    fn take(&mut self, breach: bool, settings: &Settings, now: Instant) {
        self.calls.push_back((now, breach));
        self.fresh += 1;
        while self.calls.len() > WINDOW
            || self.calls.front().is_some_and(|(at, _)| now.saturating_duration_since(*at) >= settings.age)
        {
            self.calls.pop_front();
        }
        if self.changed.is_some_and(|at| now.saturating_duration_since(at) < settings.dwell) {
            return;
        }
        let breaches = self.calls.iter().filter(|(_, breach)| *breach).count();
        let share = share(breaches, self.calls.len());
        let next = if share > LOWER_ABOVE && self.calls.len() >= ENOUGH {
            (self.share * DECREASE).max(settings.floor)
        } else if share < RAISE_BELOW && self.fresh >= FRESH {
            (self.share + INCREASE).min(1.0)
        } else {
            return;
        };
        if (next - self.share).abs() > f64::EPSILON {
            (self.share, self.changed, self.fresh) = (next, Some(now), 0);
        }
    }
}

fn share(part: usize, whole: usize) -> f64 {
    let small = |count: usize| u32::try_from(count).map_or(f64::from(u32::MAX), f64::from);
    small(part) / small(whole.max(1))
}

impl Policy for AimdShare {
    fn name(&self) -> &'static str {
        NAME
    }

    fn consider(&self, call: &Call<'_>, _: Instant) -> Thought {
        let moved = !call.keeps(self.state().share.max(self.settings.floor));
        let advice = moved.then_some(Advice::Spill { cheapest: false }).into_iter().collect();
        Thought { advice, ..Thought::nothing(0) }
    }

    fn ended(&self, entry: &Entry, _: u64, now: Instant) -> Option<&'static str> {
        for tried in &entry.attempts {
            if self.settings.primary.iter().any(|name| **name == *tried.upstream)
                && let Some(breach) = self.breach(entry, tried)
            {
                self.state().take(breach, &self.settings, now);
            }
        }
        None
    }

    fn after(&self, old: &dyn Policy) -> Option<Arc<dyn Policy>> {
        let old: &dyn std::any::Any = old;
        let old = old.downcast_ref::<Self>()?;
        Some(Arc::new(Self { settings: self.settings.clone(), state: Arc::clone(&old.state) }))
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::super::tests::{Asked, Lab, fault, lab, names};
    use crate::access::{Entry, Tried};

    const TABLE: &str = "[route.aimd_share]\nact = true\nfirst_content_within = \"10s\"\n";

    /// A call at `a` that ended like this, with its first content after `first` s.
    fn call(lab: &Lab, kind: &'static str, first: Option<f64>, duration: f64) {
        let tried =
            Tried { number: 1, upstream: "a".to_owned(), kind, ended_ms: duration * 1e3, ..Tried::default() };
        let mut entry = Entry {
            attempts: vec![tried],
            attempt: 1,
            served_by: first.map(|_| "a".to_owned()),
            first_content_ms: first.map(|first| first * 1e3),
            duration_ms: duration * 1e3,
            ..Entry::default()
        };
        lab.considered(&Asked::default()).ended(&mut entry, lab.now);
    }

    fn good(lab: &mut Lab, count: u32) {
        for _ in 0..count {
            lab.now += Duration::from_millis(500);
            call(lab, "good", Some(1.0), 2.0);
        }
    }

    /// How many of 1,000 sessions go to `a` first.
    fn to_a(lab: &Lab) -> usize {
        let first = |session| lab.order(&Asked { session: Some(session), ..Asked::default() });
        (0..1_000).filter(|session| first(*session).starts_with('a')).count()
    }

    #[test]
    fn breaches_lower_the_share_once_per_dwell_and_health_raises_it_slowly() {
        let mut lab = lab(TABLE);
        good(&mut lab, 60);
        assert_eq!(to_a(&lab), 1_000);
        for _ in 0..30 {
            lab.now += Duration::from_millis(500);
            call(&lab, "status", None, 1.0);
        }
        assert!((750..850).contains(&to_a(&lab)), "one step: {}", to_a(&lab));
        for _ in 0..600 {
            lab.now += Duration::from_millis(500);
            call(&lab, "good", Some(11.0), 20.0);
        }
        // Ten more dwells of answers that come too late.
        assert!((55..125).contains(&to_a(&lab)), "0.8^11 is 0.086: {}", to_a(&lab));
        good(&mut lab, 2 * 60 * 2); // the breaches are old now
        let low = to_a(&lab);
        good(&mut lab, 60 * 10);
        assert!(to_a(&lab) > low + 150, "ten steps of 0.02 in 5 min: {low} → {}", to_a(&lab));
    }

    #[test]
    fn between_three_and_ten_percent_nothing_changes_and_chance_decides_nothing() {
        let mut lab = lab(TABLE);
        for _ in 0..49 {
            call(&lab, "status", None, 1.0);
        }
        assert_eq!(to_a(&lab), 1_000, "49 calls are too few");
        call(&lab, "status", None, 1.0);
        assert!(to_a(&lab) < 850);
        let lowered = to_a(&lab);
        lab.now += Duration::from_mins(3);
        for n in 0..1_000 {
            lab.now += Duration::from_millis(500);
            call(&lab, if n % 16 == 0 { "cut" } else { "good" }, Some(1.0), 2.0);
        }
        assert_eq!(to_a(&lab), lowered, "6 % hold");
    }

    #[test]
    fn what_is_unknown_is_left_out_and_a_client_that_waited_too_long_is_a_breach() {
        let mut lab = lab(TABLE);
        good(&mut lab, 60);
        for _ in 0..100 {
            call(&lab, "client-gone", Some(1.0), 2.0);
            call(&lab, "client-gone", None, 3.0);
            call(&lab, "context-length", None, 1.0);
            call(&lab, "key-refused", None, 1.0);
        }
        assert_eq!(to_a(&lab), 1_000);
        for _ in 0..20 {
            call(&lab, "client-gone", None, 11.0);
        }
        assert!((750..850).contains(&to_a(&lab)), "{}", to_a(&lab));
    }

    #[test]
    fn it_keeps_the_floor_and_its_state_over_a_changed_configuration() {
        let mut lab = lab(TABLE);
        for _ in 0..2_000 {
            lab.now += Duration::from_millis(500);
            call(&lab, "status", None, 1.0);
        }
        assert!((25..80).contains(&to_a(&lab)), "{}", to_a(&lab));
        let again = lab.reconfigured(&TABLE.replace("10s", "20s"));
        assert_eq!(to_a(&again), to_a(&lab));
    }

    #[test]
    fn told_only_it_moves_nothing() {
        let lab = lab(&TABLE.replace("true", "false"));
        for _ in 0..60 {
            call(&lab, "status", None, 1.0);
        }
        assert_eq!(to_a(&lab), 1_000);
        let told = |session| lab.considered(&Asked { session: Some(session), ..Asked::default() }).would_have;
        let told: Vec<_> = (0..100).flat_map(|session| names(&told(session))).collect();
        assert!(
            told.len() > 5 && told.iter().all(|told| told == "aimd_share spill observe-only"),
            "{told:?}"
        );
        assert!(fault("[route.aimd_share]\nfloor = 0.01\n").contains("at least 0.05"));
    }
}
