//! Signals → where calls go. Nothing moves unless the configuration says `act = true` *and* the lane's users
//! are harmed; everything else is told as "would have".
//!
//! ```text
//! router.signal(signal)      detector, POST /admin/signals   → the table of live signals
//! router.steer(now)          about once a second             → effects, shares: a Snapshot
//! plan.judge(snapshot)       each call                       → this place later, that one with less effort
//! ```
//!
//! **Guards**, whatever is signalled: an upstream keeps the floor (5 %) of the calls that it would have got; a
//! share moves once per dwell, and an upstream's shares at most 6 times a minute; it comes back step by step
//! after a calm while, also when harm is known to be gone and its signal lives on; the fallback's cap stands above all this; who is moved stands last, not out, so that no
//! call is refused for a signal; state never leaves its organisation. What is not known is no harm.
//! Shares outlive a changed configuration. Where it acts, other routers get [`order`](crate::order)s, too.

use std::collections::{BTreeMap, HashMap};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use arc_swap::ArcSwap;
use sseismo_capture::tap::prompt_numeric_share;
use sseismo_trace::{Cause, Detail, Signal, SignalState, SignatureId};
use tokio::time::Instant;

use crate::choice::{Lane, Router};
use crate::clock;

pub mod effect;
pub mod harm;
mod post;
mod settings;
mod share;
mod snapshot;
mod table;
mod target;

pub use effect::{Effect, Reaction};
pub use post::{BadSignal, parse};
pub use settings::{FLOOR, STEP, Settings};
pub(crate) use snapshot::draw;
pub use snapshot::{Called, Force, Judged, Kept, Snapshot};
pub use table::{MAX_LIVE, Source};
pub use target::Target;

use harm::Harmed;
use share::{Changes, Pull, Share};
use table::Table;

/// Time between two looks at what time alone changes.
const TICK: Duration = Duration::from_millis(250);

/// A signal that lives longer says what is ordinary here: a provider that counts in steps does so for weeks, and
/// must not keep its lanes from ever learning how long users ordinarily wait.
const ORDINARY: Duration = Duration::from_hours(1);

/// Why an effect is told and not done.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Held {
    /// The configuration says `act = false`.
    ObserveOnly,
    /// The signature is there, harm is not, or is not known.
    NoHarm,
    /// Counts may lie on a lattice for innocent reasons: it takes labels that say that answers are wrong.
    NoLabelledHarm,
    /// The signal names no upstream of ours, so there is nobody to move calls away from.
    NoUpstream,
    /// Our own process reads late: no other upstream mends that.
    OwnDoing,
    /// Nobody else could take the call.
    NowhereToGo,
}

impl Held {
    /// The name in logs.
    pub fn name(self) -> &'static str {
        match self {
            Self::ObserveOnly => "observe-only",
            Self::NoHarm => "no-harm",
            Self::NoLabelledHarm => "no-labelled-harm",
            Self::NoUpstream => "no-upstream",
            Self::OwnDoing => "own-doing",
            Self::NowhereToGo => "nowhere-to-go",
        }
    }
}

/// What became of a signal: for the dataset's columns `action` and `acted`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Answer {
    /// What is, or would be, done.
    pub action: Effect,
    /// Whether it is done.
    pub acted: bool,
    /// Why it is not.
    pub held: Option<Held>,
}

impl Answer {
    /// Nothing is done, and nothing would be.
    const NOTHING: Self = Self { action: Effect::Observe, acted: false, held: None };
}

/// What is known of the harm in each lane, by upstream and model, at one moment.
struct Harms<'a> {
    lanes: Vec<(&'a str, &'a str, Harmed)>,
    /// When it was looked at.
    at: Instant,
}

impl Harms<'_> {
    /// Whether there is a lane with calls of this target.
    fn know(&self, target: &Target) -> bool {
        self.lanes.iter().any(|(upstream, model, _)| target.meets_lane(upstream, model))
    }

    /// The worst of a target's lanes.
    fn of(&self, target: &Target) -> Harmed {
        let lanes = self.lanes.iter().filter(|(upstream, model, _)| target.meets_lane(upstream, model));
        lanes.map(|(.., harmed)| *harmed).fold(Harmed::default(), Harmed::worse)
    }
}

/// What steering knows. One per relay; it outlives configurations.
#[derive(Debug)]
pub(crate) struct Steering {
    inner: Mutex<Inner>,
    snapshot: ArcSwap<Snapshot>,
    began: Instant,
    /// When time was last looked at, ms since `began`.
    looked: AtomicU64,
}

#[derive(Debug, Default)]
struct Inner {
    table: Table,
    /// By target and signature's name.
    shares: BTreeMap<(Target, &'static str), Shares>,
    budgets: HashMap<String, Changes>,
    shadow_budgets: HashMap<String, Changes>,
}

/// What a target keeps of the calls that signals of one signature are about: what it does, and what it would.
#[derive(Debug)]
struct Shares {
    acted: Share,
    would: Share,
    /// The latest word on it.
    signal: Arc<Signal>,
    effect: Effect,
    held: Option<Held>,
}

impl Steering {
    pub(crate) fn new(now: Instant) -> Self {
        Self {
            inner: Mutex::default(),
            snapshot: ArcSwap::from_pointee(Snapshot::default()),
            began: now,
            looked: AtomicU64::new(0),
        }
    }

    fn inner(&self) -> MutexGuard<'_, Inner> {
        self.inner.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Whether it is time for another look; only one caller gets to hear yes.
    fn is_due(&self, now: Instant) -> bool {
        let millis = |span: Duration| u64::try_from(span.as_millis()).unwrap_or(u64::MAX);
        let at = millis(now.saturating_duration_since(self.began));
        let looked = self.looked.load(Ordering::Relaxed);
        at >= looked.saturating_add(millis(TICK))
            && self.looked.compare_exchange(looked, at, Ordering::Relaxed, Ordering::Relaxed).is_ok()
    }
}

impl Router {
    /// Takes in a signal, from the detector or from outside, and says what becomes of it.
    pub fn signal(&self, signal: Signal, source: Source, now: Instant) -> Answer {
        let answers = self.signals(vec![signal], source, now);
        answers.first().copied().unwrap_or(Answer::NOTHING)
    }

    /// The same for several, in their order.
    pub fn signals(&self, signals: Vec<Signal>, source: Source, now: Instant) -> Vec<Answer> {
        let (harms, wall) = (self.harms(now), clock::now());
        let mut answers = Vec::with_capacity(signals.len());
        for signal in signals {
            answers.push(match signal.state {
                SignalState::Onset | SignalState::Refresh => self.answer(&signal, &harms),
                SignalState::Clear => Answer::NOTHING,
            });
            self.steering().inner().table.take(signal, source, wall, now);
        }
        self.look(now);
        answers
    }

    /// Lets time work on signals and shares. Calls do so by themselves; without any, somebody should about
    /// once a second.
    pub fn steer(&self, now: Instant) {
        if self.steering().is_due(now) {
            self.look(now);
        }
    }

    /// What is in force.
    pub fn steering_snapshot(&self) -> Arc<Snapshot> {
        self.steering().snapshot.load_full()
    }

    /// The numeric share of a request's prompt, when a live signal asks for it: it takes a look at every byte.
    pub(crate) fn numeric_share(&self, body: &[u8]) -> Option<f64> {
        let of_shape = |kept: &Kept| matches!(kept.detail, Detail::Saturation { .. });
        let wanted = self.steering().snapshot.load().shares.iter().any(of_shape);
        wanted.then(|| prompt_numeric_share(body)).flatten()
    }

    /// What is known of the harm in each lane.
    fn harms(&self, now: Instant) -> Harms<'_> {
        let seen = self.lanes().map(|(upstream, model, lane)| (upstream, model, lane.harm().seen(now)));
        Harms { lanes: seen.collect(), at: now }
    }

    /// What is known of the harm to the calls that a signal is about.
    fn harm_of(&self, signal: &Signal, target: &Target, harms: &Harms<'_>) -> Harmed {
        let harm = harms.of(target);
        let Detail::SizeWindow { lo, hi } = signal.detail else { return harm };
        let of_sizes = |lane: &Arc<Lane>| lane.harm().waits_of(u64::from(lo)..=u64::from(hi), harms.at);
        let waits = self.lanes_of(target).map(of_sizes).fold(harm.waits, harm::Seen::worse);
        Harmed { waits, ..harm }
    }

    /// Somebody knows whether the answer of this upstream's model was right.
    pub fn label(&self, upstream: &str, model: &str, right: bool, now: Instant) {
        let target = Target {
            upstream: Some(upstream.to_owned()),
            model: Some(model.to_owned()),
            ..Target::default()
        };
        self.lanes_of(&target).for_each(|lane| lane.harm().label(right, now));
    }

    /// What is done about a signal, and why not.
    fn answer(&self, signal: &Signal, harms: &Harms<'_>) -> Answer {
        let (settings, signature) = (&self.config().signals, signal.detail.signature());
        let effect = settings.reaction(signature).effect;
        let target = Target::of(&signal.target);
        let held = if effect == Effect::Observe {
            None
        } else if effect.moves() && (target.upstream.is_none() || !harms.know(&target)) {
            Some(Held::NoUpstream)
        } else if signal.cause == Some(Cause::SlowReader) {
            Some(Held::OwnDoing)
        } else {
            let harm = self.harm_of(signal, &target, harms);
            match signature {
                SignatureId::CountLattice if !harm.labels.is_harm() => Some(Held::NoLabelledHarm),
                _ if !harm.any() => Some(Held::NoHarm),
                _ if !settings.act => Some(Held::ObserveOnly),
                _ => None,
            }
        };
        Answer { action: effect, acted: effect != Effect::Observe && held.is_none(), held }
    }

    fn look(&self, now: Instant) {
        let steering = self.steering();
        let mut inner = steering.inner();
        inner.table.expire(now);
        let harms = self.harms(now);
        let forces: Vec<Force> = inner.table.live().map(|entry| self.force(entry, &harms)).collect();
        inner.pull(&forces, &self.config().signals, now);
        self.disturb(&forces, now);
        let shares = inner.kept(&self.config().signals);
        if !(forces.is_empty() && shares.is_empty() && steering.snapshot.load().is_quiet()) {
            let floor = self.config().signals.floor;
            steering.snapshot.store(Arc::new(Snapshot::new(forces, shares, floor)));
        }
    }

    fn force(&self, entry: &table::Entry, harms: &Harms<'_>) -> Force {
        let target = Target::of(&entry.signal.target);
        Force {
            answer: self.answer(&entry.signal, harms),
            harm: self.harm_of(&entry.signal, &target, harms),
            target,
            signal: Arc::clone(&entry.signal),
            source: entry.source,
            since: entry.since,
            expires: entry.expires,
        }
    }

    /// Lanes with a live signal do not learn what is ordinary, until it has lived for so long that it is.
    fn disturb(&self, forces: &[Force], now: Instant) {
        let young = |force: &&Force| now.saturating_duration_since(force.since) < ORDINARY;
        for (upstream, model, lane) in self.lanes() {
            let hit = forces.iter().filter(young).any(|force| force.target.meets_lane(upstream, model));
            lane.harm().disturb(hit, now);
        }
    }
}

impl Inner {
    /// Lets the live signals pull at the shares of their targets.
    fn pull(&mut self, forces: &[Force], settings: &Settings, now: Instant) {
        let mut pulls: BTreeMap<(Target, &'static str), (Pull, Pull)> = BTreeMap::new();
        for force in forces.iter().filter(|force| force.answer.held != Some(Held::NoUpstream)) {
            let wanted = match force.answer.action {
                Effect::StepShare => Pull::Step,
                Effect::Cool | Effect::Spill | Effect::LimitConcurrency => Pull::Floor,
                Effect::Observe | Effect::LowerEffort => continue,
            };
            let signal = Arc::clone(&force.signal);
            let key = (force.target.clone(), signal.detail.signature().name());
            // Harm that is known to be gone is no reason to hold on, though its signal lives; unknown harm is.
            let held_on = if force.harm.is_ordinary() { Pull::Release } else { Pull::Hold };
            let (acted, would) = if force.answer.acted { (wanted, Pull::Hold) } else { (held_on, wanted) };
            let pull = pulls.entry(key.clone()).or_insert((acted, would));
            *pull = (pull.0.max(acted), pull.1.max(would));
            let effect = force.answer.action;
            let word = Arc::clone(&signal);
            let (acted, would, held) = (Share::default(), Share::default(), force.answer.held);
            let fresh = || Shares { acted, would, signal: word, effect, held };
            let shares = self.shares.entry(key).or_insert_with(fresh);
            (shares.signal, shares.effect, shares.held) = (signal, effect, held);
        }
        for (key, shares) in &mut self.shares {
            let (acted, would) = pulls.get(key).copied().unwrap_or((Pull::Release, Pull::Release));
            let upstream = key.0.upstream.clone().unwrap_or_default();
            if !settings.act {
                shares.acted = Share::default(); // whoever turns acting off gets the traffic back at once
            }
            shares.acted.pull(acted, settings, self.budgets.entry(upstream.clone()).or_default(), now);
            // What acts is not told as "would have" besides.
            let would = if shares.acted.is_whole() { would } else { would.min(Pull::Hold) };
            shares.would.pull(would, settings, self.shadow_budgets.entry(upstream).or_default(), now);
        }
        self.shares.retain(|key, shares| {
            pulls.contains_key(key) || !shares.acted.is_whole() || !shares.would.is_whole()
        });
    }

    fn kept(&self, settings: &Settings) -> Vec<Kept> {
        let kept = |((target, _), shares): (&(Target, &'static str), &Shares)| Kept {
            target: target.clone(),
            detail: shares.signal.detail,
            effect: shares.effect,
            limit: settings.reaction(shares.signal.detail.signature()).limit,
            acted: shares.acted.value(),
            would: shares.would.value(),
            held: shares.held,
        };
        self.shares.iter().map(kept).collect()
    }
}

#[cfg(test)]
mod tests;
