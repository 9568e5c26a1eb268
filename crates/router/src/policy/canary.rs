//! `[route.canary]`: one upstream gets a growing share of sessions, as long as they fare no worse.
//!
//! `upstream` takes 5, then 25, then 100 % of the route's sessions (`shares`); the others stay off it. Who is in
//! is decided by a hash of the session, else of the caller's name, else by chance: a user sees one side only,
//! and a growing share only adds. With `act = true` the traces say `canary` or `control` in `canary_arm`.
//!
//! **The verdict.** A call belongs to the arm that it was assigned to, by its first attempt: that another
//! upstream saved it does not hide the failure. Compared with the control are errors, failed content checks
//! (where [`content_checks`] is on), and first contents above the 90th percentile of both
//! arms. It is looked at when the canary has `least` calls in a step, then twice as many, and so on, and a
//! difference counts when its p is below `alpha` halved at each look and divided by the three metrics, so that
//! all looks of a step together cry wolf in less than `alpha` of steps. A regression halts the canary and takes
//! all its traffic back until the configuration names another canary or other shares; without one, each step
//! lasts until both arms have `least` calls and `dwell` is over. At 100 % there is no control any more: the
//! canary is held against the control of the steps before. A warning with n, shares and interval says why.
//!
//! What it does not show: a small regression. With 100 calls an arm, one in eight must fail where none did
//! before to be seen at the first look; `least` is what buys more.
//!
//! Told only, nothing is sent to the canary, so that nothing can be compared: it stays at the first step.

use std::collections::VecDeque;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use serde_json::{Value, json};
use sseismo_trace::ContentCheck;
use tokio::time::Instant;

use super::{Advice, Call, Policy, Thought, content_checks};
use crate::access::{Entry, Tried};
use crate::config::{Route, Section, number};

mod compare;

use compare::{Compared, METRICS, Sample, compare};

/// The table's name.
pub(crate) const NAME: &str = "canary";

/// Latest calls of an arm that are compared.
const WINDOW: usize = 2_000;

/// What the traces call the arms.
const ARMS: [&str; 2] = ["control", "canary"];

#[derive(Clone, Debug)]
struct Canary {
    settings: Settings,
    state: Arc<Mutex<State>>,
}

#[derive(Clone, Debug, PartialEq)]
struct Settings {
    upstream: Arc<str>,
    shares: Vec<f64>,
    least: usize,
    dwell: Duration,
    alpha: f64,
}

#[derive(Debug, Default)]
struct State {
    step: usize,
    since: Option<Instant>,
    control: VecDeque<Sample>,
    /// Of this step.
    canary: VecDeque<Sample>,
    /// Calls of the canary in this step, and at how many the next look is.
    calls: usize,
    looks: u32,
    /// Why it was halted.
    halted: Option<Compared>,
}

pub(crate) fn read(section: &Section<'_>, route: &Route) -> Option<Arc<dyn Policy>> {
    let named = section.needed("upstream");
    let upstream = named.and_then(|name| {
        let found = route.upstreams().find(|upstream| *upstream.name == *name);
        if found.is_none() {
            section.fault("upstream", &format!("the route has no upstream `{name}`"));
        }
        found.map(|upstream| Arc::clone(&upstream.name))
    });
    if named.is_some() && route.upstreams().count() < 2 {
        section.fault("upstream", "a canary needs somebody beside it");
    }
    let mut shares = Vec::new();
    for item in section.list("shares").unwrap_or_default() {
        let share = number(item.get_ref()).filter(|share| *share > 0.0 && *share <= 1.0);
        if share.is_none_or(|share| shares.last().is_some_and(|last| share <= *last)) {
            section.fault_at(&item.span(), "`shares` must be growing shares up to 1: [0.05, 0.25, 1.0]");
        }
        shares.extend(share);
    }
    if shares.is_empty() {
        shares = vec![0.05, 0.25, 1.0];
    }
    let alpha = section.share("alpha").unwrap_or(0.01);
    if alpha <= 0.0 {
        section.fault("alpha", "with `alpha` of 0 no canary would ever be rolled back");
    }
    let settings = Settings {
        upstream: upstream?,
        shares,
        least: section.size("least", 20..=1_000).unwrap_or(100),
        dwell: section.duration("dwell").unwrap_or(Duration::from_mins(10)),
        alpha,
    };
    Some(Arc::new(Canary { settings, state: Arc::default() }))
}

impl State {
    fn add(&mut self, is_canary: bool, sample: Sample) {
        let arm = if is_canary { &mut self.canary } else { &mut self.control };
        arm.push_back(sample);
        if arm.len() > WINDOW {
            arm.pop_front();
        }
        self.calls += usize::from(is_canary);
    }

    /// Looks at both arms when it is time to; what is done about it.
    fn look(&mut self, settings: &Settings, now: Instant) -> Option<&'static str> {
        let since = *self.since.get_or_insert(now);
        if self.halted.is_some() || self.control.len() < settings.least {
            return None;
        }
        if self.calls >= settings.least << self.looks.min(20) {
            self.looks += 1;
            if let Some(worse) = self.regression(settings) {
                self.halted = Some(worse);
                warn(settings, &worse, settings.shares[self.step]);
                return Some("roll-back");
            }
        }
        let enough = self.looks > 0 && now.saturating_duration_since(since) >= settings.dwell;
        if !enough || self.step + 1 >= settings.shares.len() {
            return None;
        }
        let control = std::mem::take(&mut self.control);
        *self = Self { step: self.step + 1, since: Some(now), control, ..Self::default() };
        tracing::info!(
            "the canary {} now takes {} of the sessions",
            settings.upstream,
            settings.shares[self.step]
        );
        Some("step")
    }

    fn regression(&mut self, settings: &Settings) -> Option<Compared> {
        let metrics = u32::try_from(METRICS.len()).unwrap_or(u32::MAX);
        let level =
            settings.alpha / f64::from(metrics) / 2_f64.powi(i32::try_from(self.looks).unwrap_or(i32::MAX));
        let (canary, control) = (self.canary.make_contiguous(), self.control.make_contiguous());
        let worse = |metric| compare(metric, canary, control).filter(|compared| compared.p < level);
        METRICS.into_iter().find_map(worse)
    }
}

/// What a call of an arm was; `None` when it tells nothing.
fn sample(entry: &Entry, tried: &Tried) -> Option<Sample> {
    let failed = match tried.kind {
        // The client left, or its request was wrong everywhere; what a check says is counted of its own.
        "neutral" | "client-gone" => return None,
        kind => !matches!(kind, "good" | "content-check"),
    };
    let checked = tried.content_check != ContentCheck::NotChecked;
    let first = entry.first_content_ms.filter(|_| entry.attempt == tried.number && entry.streamed);
    Some(Sample {
        failed,
        unfit: checked.then(|| !content_checks::is_fit(tried.content_check)),
        first_content: first.map(|first| (first - tried.started_ms) / 1e3),
    })
}

fn warn(settings: &Settings, worse: &Compared, share: f64) {
    let Compared { metric, canary, control, p, difference, interval } = worse;
    tracing::warn!(
        "the canary {} at {share} of the sessions is rolled back: {} in {} of {} calls against {} of {}, \
         a difference of {difference:.3} (95 % {:.3} to {:.3}), p = {p:.2e}",
        settings.upstream,
        metric.name(),
        canary.0,
        canary.1,
        control.0,
        control.1,
        interval.0,
        interval.1,
    );
}

impl Canary {
    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Policy for Canary {
    fn name(&self) -> &'static str {
        NAME
    }

    fn consider(&self, call: &Call<'_>, _: Instant) -> Thought {
        let state = self.state();
        let share = if state.halted.is_some() { 0.0 } else { self.settings.shares[state.step] };
        let is_canary = call.stable(NAME) <= share;
        let name = vec![Arc::clone(&self.settings.upstream)];
        let takes_part = call
            .route
            .tiers
            .first()
            .into_iter()
            .flatten()
            .any(|member| member.upstream.name == self.settings.upstream && member.weight > 0.0);
        let advice = match is_canary {
            true => vec![Advice::Prefer(name)],
            // Where it has no share of its own, nobody need be kept off it.
            false if takes_part => vec![Advice::Avoid(name)],
            false => Vec::new(),
        };
        let arm = state.halted.is_none().then(|| ARMS[usize::from(is_canary)]);
        let mark = u64::from(is_canary) | (state.step as u64) << 1;
        Thought { advice, mark, arm, ..Thought::default() }
    }

    fn ended(&self, entry: &Entry, mark: u64, now: Instant) -> Option<&'static str> {
        let tried = entry.attempts.first()?;
        let is_canary = mark & 1 == 1;
        let mut state = self.state();
        let as_assigned = (*tried.upstream == *self.settings.upstream) == is_canary;
        if !as_assigned || mark >> 1 != state.step as u64 {
            return None; // somebody else moved it, or it began in another step
        }
        state.add(is_canary, sample(entry, tried)?);
        state.look(&self.settings, now)
    }

    fn view(&self, _: Instant) -> Option<Value> {
        let mut state = self.state();
        let State { control, canary, .. } = &mut *state;
        let (canary, control) = (canary.make_contiguous(), control.make_contiguous());
        let compared: Vec<_> = METRICS
            .into_iter()
            .filter_map(|metric| compare(metric, canary, control))
            .map(|one| told(&one))
            .collect();
        Some(json!({
            "upstream": &*self.settings.upstream, "share": self.settings.shares[state.step], "step": state.step + 1,
            "compared": compared, "rolled_back": state.halted.as_ref().map(told),
        }))
    }

    fn after(&self, old: &dyn Policy) -> Option<Arc<dyn Policy>> {
        let old: &dyn std::any::Any = old;
        let old = old.downcast_ref::<Self>()?;
        let same = (&old.settings.upstream, &old.settings.shares)
            == (&self.settings.upstream, &self.settings.shares);
        same.then(|| Arc::new(Self { settings: self.settings.clone(), state: Arc::clone(&old.state) }) as _)
    }
}

fn told(compared: &Compared) -> Value {
    let Compared { metric, canary, control, p, difference, interval } = compared;
    json!({
        "what": metric.name(), "canary": {"n": canary.1, "with": canary.0}, "control": {"n": control.1, "with": control.0},
        "difference": difference, "ci95": [interval.0, interval.1], "p": p,
    })
}

#[cfg(test)]
mod tests {
    use super::super::tests::{Asked, Lab, PLAIN, fault, lab, names};
    use super::*;

    const TABLE: &str = "[route.canary]\nupstream = \"b\"\nact = true\nleast = 50\ndwell = \"1m\"\n";

    fn session(session: u64) -> Asked {
        Asked { session: Some(session.wrapping_mul(0x9E37_79B9_7F4A_7C15)), ..PLAIN }
    }

    /// Share of 2,000 sessions that go to `b` first.
    fn at_b(lab: &Lab) -> f64 {
        let count = (0..2_000).filter(|n| lab.order(&session(*n)).starts_with('b')).count();
        f64::from(u32::try_from(count).unwrap()) / 2_000.0
    }

    /// Calls of these sessions; what `b` makes of each is up to `of_b`. What the policy did about them.
    fn calls(lab: &Lab, sessions: std::ops::Range<u64>, of_b: impl Fn(u64) -> Tried) -> Vec<String> {
        let mut did = Vec::new();
        for n in sessions {
            let considered = lab.considered(&session(n));
            let is_b = considered.arm == Some("canary");
            let good = Tried { number: 1, upstream: "a".into(), kind: "good", ..Tried::default() };
            let tried = if is_b { of_b(n) } else { good };
            let first = tried.ended_ms.max(100.0) * if n % 2 == 0 { 1.0 } else { 1.2 };
            let mut entry = Entry {
                attempts: vec![tried],
                attempt: 1,
                streamed: true,
                first_content_ms: Some(first),
                ..Entry::default()
            };
            considered.ended(&mut entry, lab.now);
            did.extend(names(&entry.policy));
        }
        did
    }

    fn good() -> Tried {
        Tried { number: 1, upstream: "b".into(), kind: "good", ..Tried::default() }
    }

    #[test]
    fn a_canary_that_does_well_grows_step_by_step() {
        let mut lab = lab(TABLE);
        for (share, step) in [(0.05, true), (0.25, true), (1.0, false)] {
            let got = at_b(&lab);
            assert!((got - share).abs() < 0.02, "{got} instead of {share}");
            assert!(calls(&lab, 0..3_000, |_| good()).is_empty(), "not before the dwell is over");
            lab.now += Duration::from_mins(1);
            let did = calls(&lab, 0..200, |_| good());
            assert_eq!(did, if step { vec!["canary step"] } else { vec![] });
        }
    }

    #[test]
    fn who_is_in_stays_in() {
        let mut lab = lab(TABLE);
        let first = |lab: &Lab| -> Vec<u64> {
            (0..2_000).filter(|n| lab.order(&session(*n)).starts_with('b')).collect()
        };
        let before = first(&lab);
        calls(&lab, 0..3_000, |_| good());
        lab.now += Duration::from_mins(1);
        calls(&lab, 0..200, |_| good());
        let after = first(&lab);
        assert!(after.len() > 2 * before.len() && before.iter().all(|n| after.contains(n)));
        let caller = |name| lab.order(&Asked { caller: Some(name), ..PLAIN });
        assert!((0..20).all(|_| caller("one") == caller("one")), "without a session the caller decides");
    }

    #[test]
    fn errors_roll_it_back_for_good() {
        let mut lab = lab(TABLE);
        let failing = |n: u64| match n % 3 {
            0 => Tried { kind: "cut", ..good() },
            _ => good(),
        };
        assert_eq!(calls(&lab, 0..3_000, failing), ["canary roll-back"]);
        lab.now += Duration::from_hours(1);
        assert!(at_b(&lab) < 0.001);
        assert!(calls(&lab, 0..500, failing).is_empty());
        let told = lab.router.policy_views(lab.now).remove(0).2;
        assert_eq!(told["rolled_back"]["what"], "errors", "{told}");
        assert!(told["rolled_back"]["ci95"][0].as_f64().unwrap() > 0.0, "{told}");
        let kept = lab.reconfigured(&format!("{TABLE}alpha = 0.02\n"));
        assert!(at_b(&kept) < 0.001);
        let other = lab.reconfigured(&TABLE.replace("\"b\"", "\"c\""));
        assert!((0..2_000).any(|n| other.order(&session(n)).starts_with('c')), "another canary begins anew");
    }

    #[test]
    fn slow_first_contents_and_wrong_answers_roll_it_back() {
        let slow = |_| Tried { ended_ms: 300.0, ..good() };
        assert_eq!(calls(&lab(TABLE), 0..3_000, slow), ["canary roll-back"]);
        let lab = lab(TABLE);
        let checked = |check| move |_| Tried { content_check: check, ..good() };
        for n in 0..60 {
            // The control's answers are checked, too.
            let considered = lab.considered(&session(n));
            let tried = Tried { upstream: "a".into(), content_check: ContentCheck::Ok, ..good() };
            considered.ended(&mut Entry { attempts: vec![tried], ..Entry::default() }, lab.now);
        }
        assert_eq!(calls(&lab, 0..3_000, checked(ContentCheck::Schema)), ["canary roll-back"]);
    }

    #[test]
    fn observe_only_tells_and_moves_nothing() {
        let lab = lab(&TABLE.replace("true", "false"));
        assert!(at_b(&lab) < 0.001);
        let all: Vec<_> = (0..2_000).map(|n| lab.considered(&session(n))).collect();
        let told = all.iter().flat_map(|considered| names(&considered.would_have)).collect::<Vec<_>>();
        assert!(
            (60..140).contains(&told.len()) && told.iter().all(|told| told == "canary prefer observe-only")
        );
        assert!(all.iter().all(|considered| considered.arm.is_none()), "nobody is in an arm");
    }

    #[test]
    fn faults_are_told() {
        for (table, told) in [
            ("[route.canary]\n", "`upstream` is missing"),
            ("[route.canary]\nupstream = \"x\"\n", "no upstream `x`"),
            ("[route.canary]\nupstream = \"b\"\nshares = [0.5, 0.1]\n", "growing shares"),
            ("[route.canary]\nupstream = \"b\"\nleast = 3\n", "`least` must be"),
            ("[route.canary]\nupstream = \"b\"\nalpha = 0\n", "`alpha` of 0"),
        ] {
            assert!(fault(table).contains(told), "{told}");
        }
    }
}
