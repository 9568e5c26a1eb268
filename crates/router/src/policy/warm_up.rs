//! `[route.warm_up]`: an upstream that comes back, or is new, gets its traffic step by step.
//!
//! When a breaker closes, everything that was kept off comes back in one instant, caches cold, and opens it
//! again. With this, a member of the first tier whose breaker has closed, or who came with a changed
//! configuration, takes `shares` of its ordinary calls, one step after the other, `step` each: 10, 25 and 50 %
//! for 30 s each unless stated, then all (the ramp that is asked for in
//! <https://github.com/maximhq/bifrost/issues/120>). Who is in the share is drawn per session, with the same
//! draw for each step: a session that is in stays in.
//!
//! While the breaker is open, the breaker alone decides. The relay's own start is no warm-up: nobody else has
//! the traffic then.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use serde_json::{Value, json};
use tokio::time::Instant;

use super::{Advice, Call, Policy, Thought};
use crate::breaker::State;
use crate::config::{Route, Section, number};

/// The table's name.
pub(crate) const NAME: &str = "warm_up";

#[derive(Clone, Debug)]
struct WarmUp {
    shares: Vec<f64>,
    step: Duration,
    known: Arc<Mutex<HashMap<Arc<str>, Known>>>,
}

/// What is known of an upstream.
#[derive(Clone, Copy, Debug)]
enum Known {
    /// It was there from the start.
    Old,
    /// It is new, and no call has come yet.
    New,
    /// It warms up since then.
    Since(Instant),
}

pub(crate) fn read(section: &Section<'_>, route: &Route) -> Option<Arc<dyn Policy>> {
    let mut shares = Vec::new();
    for item in section.list("shares").unwrap_or_default() {
        let share = number(item.get_ref()).filter(|share| *share > 0.0 && *share < 1.0);
        if share.is_none_or(|share| shares.last().is_some_and(|last| share <= *last)) {
            section
                .fault_at(&item.span(), "`shares` must be growing shares between 0 and 1: [0.1, 0.25, 0.5]");
        }
        shares.extend(share);
    }
    if !section.has("shares") {
        shares = vec![0.1, 0.25, 0.5];
    }
    let step = section.duration("step").unwrap_or(Duration::from_secs(30));
    let known = route.upstreams().map(|upstream| (Arc::clone(&upstream.name), Known::Old)).collect();
    (!shares.is_empty()).then(|| Arc::new(WarmUp { shares, step, known: Arc::new(Mutex::new(known)) }) as _)
}

impl WarmUp {
    /// The share that an upstream has at `now`, when it began to warm up `since`; `None`: all.
    fn share(&self, since: Instant, now: Instant) -> Option<f64> {
        let steps = now.saturating_duration_since(since).as_micros() / self.step.as_micros().max(1);
        self.shares.get(usize::try_from(steps).ok()?).copied()
    }

    fn known(&self) -> MutexGuard<'_, HashMap<Arc<str>, Known>> {
        self.known.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Since when an upstream is new to the route.
    fn new_since(&self, name: &str, now: Instant) -> Option<Instant> {
        let mut known = self.known();
        match known.get_mut(name)? {
            Known::Old => None,
            Known::Since(since) => Some(*since),
            new @ Known::New => {
                *new = Known::Since(now);
                Some(now)
            }
        }
    }
}

impl Policy for WarmUp {
    fn name(&self) -> &'static str {
        NAME
    }

    fn consider(&self, call: &Call<'_>, now: Instant) -> Thought {
        let mut cold = Vec::new();
        for member in call.route.tiers.first().into_iter().flatten() {
            let (state, back) = call.breaker(&member.upstream, now);
            let since = back.max(self.new_since(&member.upstream.name, now));
            let share = since.filter(|_| state == State::Closed).and_then(|since| self.share(since, now));
            if share.is_some_and(|share| !call.keeps(share)) {
                cold.push(Arc::clone(&member.upstream.name));
            }
        }
        let advice = if cold.is_empty() { Vec::new() } else { vec![Advice::Avoid(cold)] };
        Thought { advice, ..Thought::default() }
    }

    fn view(&self, now: Instant) -> Option<Value> {
        let known = self.known();
        let warming = known.iter().filter_map(|(name, known)| match known {
            Known::Since(since) => Some((name.to_string(), json!(self.share(*since, now)?))),
            Known::Old | Known::New => None,
        });
        Some(json!({"new": warming.collect::<serde_json::Map<_, _>>()}))
    }

    fn after(&self, old: &dyn Policy) -> Option<Arc<dyn Policy>> {
        let old: &dyn std::any::Any = old;
        let old = old.downcast_ref::<Self>()?.known().clone();
        let known = self
            .known()
            .keys()
            .map(|name| (Arc::clone(name), *old.get(name).unwrap_or(&Known::New)))
            .collect();
        Some(Arc::new(Self { known: Arc::new(Mutex::new(known)), ..self.clone() }))
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::super::tests::{Asked, Lab, PLAIN, fault, lab, names};
    use crate::choice::Ask;
    use crate::outcome::{FailureKind, Outcome};

    const TABLE: &str = "[route.warm_up]\nact = true\n";

    /// How many of 1,000 sessions go to `a`.
    fn at_a(lab: &Lab) -> usize {
        (0..1_000_u64)
            .filter(|session| lab.order(&Asked { session: Some(session * 7_919), ..PLAIN }).starts_with('a'))
            .count()
    }

    /// `a` fails until its breaker opens, and a probe lets it close again.
    fn comes_back(lab: &mut Lab) {
        let ask = Ask { model: "m", api: Some(PLAIN.api), ..Ask::default() };
        let outcomes = [FailureKind::Connect.into(); 3].into_iter().chain([Outcome::Good]);
        for outcome in outcomes {
            let mut plan = lab.router.candidates(&ask, lab.now).unwrap();
            let attempt = plan.next(lab.now).unwrap();
            assert_eq!(&*attempt.upstream.name, "a");
            attempt.end(outcome, lab.now);
            lab.now += Duration::from_secs(if outcome == Outcome::Good { 0 } else { 6 });
        }
    }

    #[test]
    fn who_comes_back_gets_its_traffic_step_by_step() {
        let mut lab = lab(TABLE);
        assert_eq!(at_a(&lab), 1_000, "the start is no warm-up");
        comes_back(&mut lab);
        for (share, of) in [(100, "10 %"), (250, "25 %"), (500, "50 %"), (1_000, "all")] {
            let got = at_a(&lab);
            assert!(got.abs_diff(share) <= 50, "{got} of 1,000 instead of {of}");
            lab.now += Duration::from_secs(30);
        }
    }

    #[test]
    fn observe_only_tells_and_moves_nothing() {
        let mut lab = lab(&TABLE.replace("true", "false"));
        comes_back(&mut lab);
        assert_eq!(at_a(&lab), 1_000);
        let told =
            (0..100_u64).map(|session| lab.considered(&Asked { session: Some(session * 7_919), ..PLAIN }));
        let told: Vec<_> = told.flat_map(|considered| names(&considered.would_have)).collect();
        assert!(told.len() > 70 && told.iter().all(|told| told == "warm_up avoid observe-only"), "{told:?}");
    }

    #[test]
    fn who_is_new_warms_up_and_who_was_there_does_not() {
        let tiers = |tiers: &str| {
            format!("{TABLE}[[route]]\nmodel = \"n\"\ntiers = {tiers}\n[route.warm_up]\nact = true\n")
        };
        let lab = lab(&tiers("[[\"b\"], [\"c\"]]"));
        let asked = |lab: &Lab| {
            let first =
                |session: u64| lab.order(&Asked { model: "n", session: Some(session * 7_919), ..PLAIN });
            (0..1_000).filter(|session| first(*session).starts_with('a')).count()
        };
        let mut lab = lab.reconfigured(&tiers("[[\"a\"], [\"c\"]]"));
        let got = asked(&lab);
        assert!(got.abs_diff(100) <= 50, "{got}");
        assert_eq!(at_a(&lab), 1_000, "the other route has it as before");
        lab.now += Duration::from_secs(90);
        assert_eq!(asked(&lab), 1_000);
    }

    #[test]
    fn faults_are_told() {
        for shares in ["[0.5, 0.25]", "[0.0]", "[1.0]", "[\"a\"]"] {
            assert!(fault(&format!("{TABLE}shares = {shares}\n")).contains("growing shares"), "{shares}");
        }
    }
}
