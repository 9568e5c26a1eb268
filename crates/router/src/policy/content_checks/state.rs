//! Which checks are believed, and which upstream is off for which shape of request.

use std::collections::{HashMap, VecDeque};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use sseismo_trace::ContentCheck;
use tokio::time::Instant;

/// Checked answers that a check's own share of failures rests on.
const WINDOW: usize = 100;

/// A check that has disarmed itself is believed again below this part of the share that disarmed it.
const REARM: f64 = 0.5;

/// The checks, each with its own share of failures.
const CHECKS: [ContentCheck; 4] =
    [ContentCheck::InvalidJson, ContentCheck::Schema, ContentCheck::Placeholder, ContentCheck::Empty];

/// When a check stops to believe itself.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct Disarm {
    /// It fails at least this share …
    pub(super) share: f64,
    /// … of so many answers.
    pub(super) least: usize,
}

impl Default for Disarm {
    fn default() -> Self {
        Self { share: 0.5, least: 30 }
    }
}

/// Which checks are believed. A check that fails half of everything has more likely a wrong idea of right than
/// half of the answers are wrong.
#[derive(Debug, Default)]
pub(super) struct Armed(Mutex<Inner>);

#[derive(Debug, Default)]
struct Inner {
    disarm: Disarm,
    /// What the latest answers were found to be.
    seen: VecDeque<ContentCheck>,
    disarmed: [bool; CHECKS.len()],
    /// To be told.
    changed: Option<&'static str>,
}

impl Armed {
    pub(super) fn configure(&self, disarm: Disarm) {
        self.locked().disarm = disarm;
    }

    /// Counts a finding, and says whether it is believed.
    pub(super) fn weigh(&self, found: ContentCheck) -> ContentCheck {
        let mut inner = self.locked();
        inner.seen.push_back(found);
        if inner.seen.len() > WINDOW {
            inner.seen.pop_front();
        }
        for (place, check) in CHECKS.into_iter().enumerate() {
            inner.look(place, check);
        }
        let believed =
            CHECKS.iter().zip(inner.disarmed).all(|(check, disarmed)| *check != found || !disarmed);
        if believed { found } else { ContentCheck::NotChecked }
    }

    /// What has changed since it was last asked.
    pub(super) fn changed(&self) -> Option<&'static str> {
        self.locked().changed.take()
    }

    /// Each check, whether it is believed, and its share of failures.
    pub(super) fn shares(&self) -> Vec<(ContentCheck, bool, f64)> {
        let inner = self.locked();
        let share =
            |(place, check): (usize, ContentCheck)| (check, !inner.disarmed[place], inner.share(check));
        CHECKS.into_iter().enumerate().map(share).collect()
    }

    fn locked(&self) -> MutexGuard<'_, Inner> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Inner {
    #[expect(clippy::cast_precision_loss, reason = "counts up to the window")]
    fn share(&self, check: ContentCheck) -> f64 {
        let failed = self.seen.iter().filter(|seen| **seen == check).count();
        failed as f64 / self.seen.len().max(1) as f64
    }

    fn look(&mut self, place: usize, check: ContentCheck) {
        let share = self.share(check);
        let Disarm { share: most, least } = self.disarm;
        if !self.disarmed[place] && self.seen.len() >= least && share >= most {
            self.disarmed[place] = true;
            self.changed = Some("disarm");
            let (n, percent) = (self.seen.len(), (share * 100.0).round());
            tracing::warn!(
                "the content check {check:?} fails {percent} % of {n} answers and is not believed any more"
            );
        } else if self.disarmed[place] && share < most * REARM {
            self.disarmed[place] = false;
            self.changed = Some("re-arm");
            tracing::info!("the content check {check:?} is believed again");
        }
    }
}

/// What a request is like, as far as failures may depend on it; see [`Shapes`].
pub(super) type Shape = u64;

/// Which upstream is off for which shape: a provider that cannot do one thing is healthy for the others.
#[derive(Debug, Default)]
pub(super) struct Shapes(Mutex<HashMap<(Arc<str>, Shape), Failing>>);

#[derive(Debug, Default)]
struct Failing {
    at: VecDeque<Instant>,
    off_until: Option<Instant>,
}

/// So many failures in a while, and for how long the upstream is off then.
#[derive(Clone, Copy, Debug)]
pub(super) struct Limit {
    pub(super) failures: usize,
    pub(super) window: Duration,
    pub(super) off: Duration,
}

impl Shapes {
    pub(super) fn is_off(&self, upstream: &Arc<str>, shape: Shape, now: Instant) -> bool {
        let shapes = self.locked();
        let failing = shapes.get(&(Arc::clone(upstream), shape));
        failing.and_then(|failing| failing.off_until).is_some_and(|until| now < until)
    }

    /// An answer of this upstream to such a request was not what was asked for; whether it is off from now on.
    pub(super) fn failed(&self, upstream: &str, shape: Shape, limit: &Limit, now: Instant) -> bool {
        let mut shapes = self.locked();
        let failing = shapes.entry((upstream.into(), shape)).or_default();
        failing.at.push_back(now);
        while failing.at.front().is_some_and(|at| now.saturating_duration_since(*at) > limit.window) {
            failing.at.pop_front();
        }
        let is_off = failing.off_until.is_some_and(|until| now < until);
        if is_off || failing.at.len() < limit.failures {
            return false;
        }
        failing.at.clear();
        failing.off_until = Some(now + limit.off);
        true
    }

    /// Upstreams that are off, and for how many shapes.
    pub(super) fn off(&self, now: Instant) -> HashMap<Arc<str>, u64> {
        let mut off = HashMap::new();
        for ((upstream, _), failing) in &*self.locked() {
            if failing.off_until.is_some_and(|until| now < until) {
                *off.entry(Arc::clone(upstream)).or_default() += 1;
            }
        }
        off
    }

    fn locked(&self) -> MutexGuard<'_, HashMap<(Arc<str>, Shape), Failing>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_check_that_fails_half_of_everything_is_not_believed_until_it_fails_less() {
        let armed = Armed::default();
        let weigh = |check, n: usize| (0..n).map(|_| armed.weigh(check)).last().unwrap();
        assert_eq!(weigh(ContentCheck::Schema, 29), ContentCheck::Schema, "29 are too few");
        assert_eq!(armed.changed(), None);
        assert_eq!(weigh(ContentCheck::Schema, 1), ContentCheck::NotChecked);
        assert_eq!((armed.changed(), armed.changed()), (Some("disarm"), None));
        assert_eq!(weigh(ContentCheck::Empty, 1), ContentCheck::Empty, "the others are believed");
        assert_eq!(weigh(ContentCheck::Ok, 99), ContentCheck::Ok);
        assert_eq!(armed.changed(), Some("re-arm"));
        assert_eq!(weigh(ContentCheck::Schema, 1), ContentCheck::Schema);
    }

    #[test]
    fn three_failures_in_a_minute_are_five_minutes_off_for_that_shape_only() {
        let (shapes, now) = (Shapes::default(), Instant::now());
        let limit = Limit { failures: 3, window: Duration::from_mins(1), off: Duration::from_mins(5) };
        let at = |seconds| now + Duration::from_secs(seconds);
        let name: Arc<str> = "a".into();
        assert!(!shapes.failed("a", 1, &limit, at(0)));
        assert!(!shapes.failed("a", 1, &limit, at(30)));
        assert!(!shapes.failed("a", 1, &limit, at(61)), "the first is too old");
        assert!(!shapes.failed("a", 2, &limit, at(62)), "another shape");
        assert!(shapes.failed("a", 1, &limit, at(63)));
        assert!(shapes.is_off(&name, 1, at(64)) && !shapes.is_off(&name, 2, at(64)));
        assert_eq!(shapes.off(at(64)), HashMap::from([(name.clone(), 1)]));
        assert!(!shapes.failed("a", 1, &limit, at(64)), "it is off already");
        assert!(shapes.is_off(&name, 1, at(362)) && !shapes.is_off(&name, 1, at(363)));
    }
}
