//! Streams in, signals out: sorts streams into scopes, and makes onset, refresh and clear of what the
//! watches say.
//!
//! A scope is upstream × model × effort. The model is the requested one, the served one only where nobody
//! asked for any: a scope must be known when a stream begins and stay the same until it ends, and a router
//! can only act on what it is asked for.

use std::collections::HashMap;
use std::sync::Arc;

use serde_json::Value;
use sseismo_trace::{
    Delta, Dim, Micros, Scope, Signal, SignalId, SignalState, SignatureId, Summary, UtcMicros,
};

use crate::Preset;
use crate::baseline::{Baselines, Known, ScopeBaselines, Snapshot, VERSION};
use crate::budget::{Budget, Share};
use crate::job::{Answer, Asker, Job, Jobs, Outcome, Task};
use crate::scopes::{Key, Scopes};
use crate::sequential::aggregate::Thresholds;
use crate::view::{State, View, WatchView};
use crate::watch::{Alarm, Call, WATCHES, Watch};

/// The budget is split anew after this time at the latest: the watches' paces drift.
const REBUDGET: i64 = 60_000_000;
/// A signal lives at most this many times as long as asked for, however slow its evidence comes.
const LONGEST_TTL: i64 = 10;
/// A signal lives at least this many mean times between observations: at 4 the gaps between slow answers of
/// real count batches ended signals that still held.
const PACES: i64 = 10;

/// What the user chose.
#[derive(Clone, Debug, PartialEq)]
pub struct Options {
    /// Time between two false alarms of the whole process.
    pub false_alarm_every: Micros,
    /// The set of rules.
    pub preset: Preset,
    /// Scopes that are kept; the one used longest ago makes room.
    pub max_scopes: usize,
    /// Streams that are followed at once; the one heard longest ago makes room.
    pub max_streams: usize,
    /// A signal that was not refreshed for this long is over. A watch whose observations come more slowly
    /// lets its signals live longer, up to ten times.
    pub ttl: Micros,
    /// A stream of which nothing was heard for this long is given up.
    pub stream_ttl: Micros,
    /// Where work that takes milliseconds, or two seconds for a model of bursts, is done.
    pub jobs: Jobs,
    /// Seed of signal ids and of resampled thresholds. Whoever keeps signals over a restart takes another one
    /// each time, or ids come again.
    pub seed: u64,
}

impl Default for Options {
    fn default() -> Self {
        Self {
            false_alarm_every: Micros(30 * 86_400_000_000),
            preset: Preset::Measured,
            max_scopes: 256,
            max_streams: 16_384,
            ttl: Micros(60_000_000),
            stream_ttl: Micros(3_600_000_000),
            jobs: Jobs::AtOnce,
            seed: 1,
        }
    }
}

/// One signature at work on one scope, and the signal that it raised.
#[derive(Debug)]
struct Watching {
    id: SignatureId,
    watch: Box<dyn Watch>,
    raised: Option<Raised>,
}

/// A signal that was raised and not cleared.
#[derive(Debug)]
struct Raised {
    id: SignalId,
    /// What was told last.
    alarm: Alarm,
    /// When.
    sent: UtcMicros,
    /// For how long.
    ttl: Micros,
}

/// A stream that began and did not end.
#[derive(Clone, Copy, Debug)]
struct Live {
    scope: Key,
    started: UtcMicros,
    heard: UtcMicros,
    /// Position of the event that comes next.
    next: u32,
}

/// Watches every signature in every scope.
#[derive(Debug)]
pub struct Detector {
    options: Options,
    now: UtcMicros,
    scopes: Scopes<Vec<Watching>>,
    streams: HashMap<u64, Live>,
    /// What was saved, for scopes that were not seen yet.
    saved: HashMap<Scope, Arc<ScopeBaselines>>,
    signals: Vec<Signal>,
    raised: u64,
    budget: Budget,
    thresholds: Thresholds,
    budgeted: UtcMicros,
    jobs: Vec<Job>,
    evicted_streams: u64,
    lost_events: u64,
    stray_deltas: u64,
    rejected_baselines: u64,
}

impl Detector {
    /// Starts without any knowledge.
    pub fn new(options: Options) -> Self {
        Self {
            now: UtcMicros(i64::MIN),
            scopes: Scopes::new(options.max_scopes),
            streams: HashMap::new(),
            saved: HashMap::new(),
            signals: Vec::new(),
            raised: 0,
            budget: Budget::new(options.false_alarm_every, 1),
            thresholds: Thresholds::default(),
            budgeted: UtcMicros(i64::MIN),
            jobs: Vec::new(),
            evicted_streams: 0,
            lost_events: 0,
            stray_deltas: 0,
            rejected_baselines: 0,
            options,
        }
    }

    /// Starts with what [`Detector::save`] returned. What does not fit any more is counted in
    /// [`View::rejected_baselines`] and learned anew.
    pub fn with_baselines(options: Options, baselines: Baselines) -> Self {
        let mut detector = Self::new(options);
        if baselines.version == VERSION {
            let room = detector.options.max_scopes;
            let scopes = baselines.scopes.into_iter().take(room);
            detector.saved = scopes.map(|saved| (saved.scope.clone(), Arc::new(saved))).collect();
        } else {
            detector.rejected_baselines = baselines.scopes.len() as u64;
        }
        detector
    }

    /// A stream's request, and perhaps the head of its answer, is known.
    pub fn begin(&mut self, at: UtcMicros, summary: &Summary) {
        self.forward(at);
        let scope = self.open(summary);
        let started = summary.started_at.unwrap_or(at);
        if self.streams.len() >= self.options.max_streams.max(1) {
            self.give_up_oldest();
        }
        self.streams.insert(summary.stream_id, Live { scope, started, heard: self.now, next: 0 });
        let call = Call { at: self.now, started, summary };
        self.each(scope, |watch| watch.begin(&call));
    }

    /// Events of a stream came; their times count from its start. Where positions are missing, events were lost:
    /// what lies between is unknown, and counted.
    pub fn deltas(&mut self, stream_id: u64, deltas: &[Delta]) {
        let Some(live) = self.streams.get_mut(&stream_id) else {
            self.stray_deltas += deltas.len() as u64;
            return;
        };
        if let Some(last) = deltas.iter().rev().find_map(|delta| delta.t) {
            self.now = self.now.max(UtcMicros(live.started.0.saturating_add(last.0)));
        }
        live.heard = self.now;
        let Live { scope, started, next, .. } = *live;
        let (Some(first), Some(last)) = (deltas.first(), deltas.last()) else { return };
        live.next = next.max(last.seq.saturating_add(1));
        if first.seq > next {
            self.lost_events += u64::from(first.seq - next);
            self.each(scope, |watch| watch.lost(stream_id));
        }
        self.each(scope, |watch| watch.deltas(stream_id, started, deltas));
    }

    /// When a stream that began and did not end started.
    pub fn started(&self, stream_id: u64) -> Option<UtcMicros> {
        self.streams.get(&stream_id).map(|live| live.started)
    }

    /// Something was lost on the way here, of whichever streams: no silence so far proves anything. Each
    /// stream's silence counts again from its next event.
    pub fn doubt(&mut self) {
        for (_, watches) in self.scopes.iter_mut() {
            for watching in watches {
                watching.watch.doubt();
            }
        }
    }

    /// A stream ended; its usage and outcome are known. A stream that never began is taken in whole.
    pub fn end(&mut self, at: UtcMicros, summary: &Summary) {
        self.forward(at);
        if !self.streams.contains_key(&summary.stream_id) {
            self.begin(at, summary);
        }
        let Some(live) = self.streams.remove(&summary.stream_id) else { return };
        let call = Call { at: self.now, started: live.started, summary };
        self.each(live.scope, |watch| watch.end(&call));
        self.collect(live.scope);
        self.work();
    }

    /// Time passed: silence is evidence too, and signals age. To be called about once a second, with a time of
    /// which no event is still on its way here.
    pub fn tick(&mut self, at: UtcMicros) {
        self.forward(at);
        self.give_up_silent();
        self.split_budget();
        let now = self.now;
        let ttl = self.options.ttl;
        for (scope, watches) in self.scopes.iter_mut() {
            for watching in watches {
                watching.watch.tick(at);
                settle(&self.options, now, scope, watching, &mut self.raised, &mut self.signals);
                age(ttl, now, scope, watching, &mut self.signals);
            }
        }
    }

    /// Work that is due, with [`Jobs::ByHost`]: run each, on whatever thread, and bring the answers to
    /// [`Self::take_answers`]. Until then everything goes on as it was; learning is not over.
    pub fn take_jobs(&mut self) -> Vec<Job> {
        std::mem::take(&mut self.jobs)
    }

    /// Takes up what jobs came to, in any order. Those of scopes that are gone are dropped.
    pub fn take_answers(&mut self, answers: impl IntoIterator<Item = Answer>) {
        let mut is_news = false;
        for answer in answers {
            is_news = true;
            match (answer.of, answer.outcome) {
                (_, Outcome::Threshold(question, Some(known))) => self.thresholds.learn(question, known),
                (Asker::Watch(scope, id), outcome) => {
                    let watches = self.scopes.get_mut(scope).map(|(_, watches)| watches);
                    if let Some(one) = watches.into_iter().flatten().find(|one| one.id == id) {
                        one.watch.done(outcome);
                    }
                }
                (Asker::All, _) => {}
            }
        }
        if is_news {
            self.share();
        }
    }

    /// The signals since the last call, in the order in which they were raised.
    pub fn take_signals(&mut self) -> Vec<Signal> {
        std::mem::take(&mut self.signals)
    }

    /// Everything that is known now.
    pub fn view(&self) -> View {
        View {
            at: self.now,
            false_alarm_every: self.options.false_alarm_every,
            live_pairs: self.budget.pairs(),
            live_streams: self.streams.len() as u64,
            scopes: self.scopes.len() as u64,
            evicted_scopes: self.scopes.evicted(),
            evicted_streams: self.evicted_streams,
            stray_deltas: self.stray_deltas,
            lost_events: self.lost_events,
            rejected_baselines: self.rejected_baselines,
            watches: self
                .scopes
                .iter()
                .flat_map(|(scope, watches)| watches.iter().map(|watching| watching.view(scope)))
                .collect(),
        }
    }

    /// What was learned, as JSON. It takes milliseconds for each scope: between events take a [`Self::snapshot`].
    pub fn save(&self) -> Baselines {
        self.snapshot().baselines()
    }

    /// A copy of what was learned.
    pub fn snapshot(&self) -> Snapshot {
        let kept = |watches: &[Watching]| {
            let ready = watches.iter().filter(|watching| watching.watch.ready());
            ready.map(|watching| (watching.id.name(), watching.watch.save())).collect()
        };
        let live = self.scopes.iter().map(|(scope, watches)| (scope.clone(), Known::Live(kept(watches))));
        let saved = self.saved.iter().map(|(scope, saved)| (scope.clone(), Known::Saved(Arc::clone(saved))));
        Snapshot(live.chain(saved).collect())
    }

    /// Time never goes back: what comes late counts as now.
    fn forward(&mut self, at: UtcMicros) {
        self.now = self.now.max(at);
    }

    fn open(&mut self, summary: &Summary) -> Key {
        let scope = scope_of(summary);
        let saved = self.saved.remove(&scope);
        let options = &self.options;
        let mut share = Share { budget: self.budget, thresholds: &mut self.thresholds, seed: options.seed };
        let mut rejected = 0;
        let (key, gone) = self.scopes.open(scope, || {
            let mut saved = saved.map(|saved| Arc::unwrap_or_clone(saved).watches).unwrap_or_default();
            let mut open = |&(id, open): &crate::watch::Entry| {
                let mut watch = open(options);
                if let Some(saved) = saved.remove(id.name()).filter(|saved| *saved != Value::Null) {
                    rejected += u64::from(watch.restore(saved).is_err());
                }
                watch.share(&mut share);
                Watching { id, watch, raised: None }
            };
            WATCHES.iter().map(&mut open).collect()
        });
        self.rejected_baselines += rejected;
        if let Some((scope, watches)) = gone {
            for mut watching in watches {
                clear(self.now, &scope, &mut watching, "the scope had to make room", &mut self.signals);
            }
        }
        self.collect(key);
        self.work();
        key
    }

    /// Lets every watch of a scope see something, and tells what changed.
    fn each(&mut self, scope: Key, mut see: impl FnMut(&mut dyn Watch)) {
        let Some((scope, watches)) = self.scopes.get_mut(scope) else { return };
        for watching in watches {
            see(watching.watch.as_mut());
            settle(&self.options, self.now, scope, watching, &mut self.raised, &mut self.signals);
        }
    }

    fn give_up_oldest(&mut self) {
        let oldest = self.streams.iter().min_by_key(|(id, live)| (live.heard, **id)).map(|(id, _)| *id);
        if let Some(id) = oldest {
            self.give_up(id);
        }
    }

    fn give_up_silent(&mut self) {
        let silent = |live: &Live| self.now.0.saturating_sub(live.heard.0) > self.options.stream_ttl.0;
        let mut silent: Vec<u64> =
            self.streams.iter().filter(|(_, live)| silent(live)).map(|(id, _)| *id).collect();
        silent.sort_unstable();
        for id in silent {
            self.give_up(id);
        }
    }

    fn give_up(&mut self, id: u64) {
        let Some(live) = self.streams.remove(&id) else { return };
        self.evicted_streams += 1;
        self.each(live.scope, |watch| watch.forget(id));
    }

    /// Splits the false alarms over the pairs that watch.
    fn split_budget(&mut self) {
        let ready = self.scopes.iter().flat_map(|(_, watches)| watches);
        let pairs = ready.filter(|watching| watching.watch.ready()).count() as u64;
        let budget = Budget::new(self.options.false_alarm_every, pairs);
        if budget == self.budget && self.now.0.saturating_sub(self.budgeted.0) < REBUDGET {
            return;
        }
        (self.budget, self.budgeted) = (budget, self.now);
        self.share();
        self.work();
    }

    /// Tells every watch its share of the false alarms.
    fn share(&mut self) {
        let mut share =
            Share { budget: self.budget, thresholds: &mut self.thresholds, seed: self.options.seed };
        for (key, watches) in self.scopes.entries() {
            for watching in watches {
                watching.watch.share(&mut share);
                self.jobs.extend(watching.job(key));
            }
        }
        self.want_thresholds();
    }

    /// Notes the work that a scope's watches want.
    fn collect(&mut self, key: Key) {
        let Some((_, watches)) = self.scopes.get_mut(key) else { return };
        self.jobs.extend(watches.iter_mut().filter_map(|watching| watching.job(key)));
        self.want_thresholds();
    }

    fn want_thresholds(&mut self) {
        let wanted = self.thresholds.take_wanted().into_iter();
        self.jobs.extend(wanted.map(|question| Job { of: Asker::All, task: Task::Threshold(question) }));
    }

    /// Does the work that is due, unless the host does.
    fn work(&mut self) {
        while self.options.jobs == Jobs::AtOnce && !self.jobs.is_empty() {
            let jobs = std::mem::take(&mut self.jobs);
            self.take_answers(jobs.into_iter().map(Job::run));
        }
    }
}

fn scope_of(summary: &Summary) -> Scope {
    let model = summary.model_requested.as_deref().or(summary.model_served.as_deref());
    [
        (Dim::Upstream, summary.upstream.as_deref()),
        (Dim::Model, model),
        (Dim::Effort, summary.effort.as_deref()),
    ]
    .into_iter()
    .filter_map(|(dim, value)| Some((dim, value?)))
    .fold(Scope::default(), |scope, (dim, value)| scope.with(dim, value))
}

/// Onset and clear: tells when what the watch says differs from what was told.
fn settle(
    options: &Options,
    now: UtcMicros,
    scope: &Scope,
    watching: &mut Watching,
    raised: &mut u64,
    signals: &mut Vec<Signal>,
) {
    if watching.watch.alarming() == watching.raised.is_some() {
        return;
    }
    let Some(alarm) = watching.watch.alarm() else {
        clear(now, scope, watching, "", signals);
        return;
    };
    *raised += 1;
    let id = SignalId(mix(options.seed ^ mix(*raised)));
    let ttl = ttl(options.ttl, watching.watch.as_ref());
    signals.push(signal(id, scope, SignalState::Onset, alarm.clone(), now, ttl));
    watching.raised = Some(Raised { id, alarm, sent: now, ttl });
}

/// Refresh, or clear when nothing spoke for the signal during its time to live: a signal that moves the
/// traffic away would otherwise never see the evidence that ends it.
fn age(wanted: Micros, now: UtcMicros, scope: &Scope, watching: &mut Watching, signals: &mut Vec<Signal>) {
    let Some(raised) = &mut watching.raised else { return };
    let ttl = ttl(wanted, watching.watch.as_ref());
    let silent =
        now.0.saturating_sub(watching.watch.last_evidence().max(UtcMicros(raised.sent.0 - raised.ttl.0)).0);
    if silent >= raised.ttl.0 {
        clear(now, scope, watching, "no evidence during the time to live", signals);
        return;
    }
    if now.0.saturating_sub(raised.sent.0) < raised.ttl.0 / 2 {
        return;
    }
    if let Some(alarm) = watching.watch.alarm() {
        signals.push(signal(raised.id, scope, SignalState::Refresh, alarm.clone(), now, ttl));
        (raised.alarm, raised.sent, raised.ttl) = (alarm, now, ttl);
    }
}

fn clear(now: UtcMicros, scope: &Scope, watching: &mut Watching, why: &str, signals: &mut Vec<Signal>) {
    let Some(raised) = watching.raised.take() else { return };
    watching.watch.reset();
    let mut last = signal(raised.id, scope, SignalState::Clear, raised.alarm, now, Micros(0));
    last.strength = 0.0;
    if !why.is_empty() {
        last.evidence.notes.push(why.to_owned());
    }
    signals.push(last);
}

fn signal(
    id: SignalId,
    scope: &Scope,
    state: SignalState,
    alarm: Alarm,
    at: UtcMicros,
    ttl: Micros,
) -> Signal {
    let Alarm { detail, cause, strength, evidence } = alarm;
    Signal {
        id,
        target: scope.clone(),
        detail,
        cause,
        state,
        strength: strength.clamp(0.0, 1.0),
        evidence,
        at,
        ttl,
    }
}

fn ttl(wanted: Micros, watch: &dyn Watch) -> Micros {
    let pace = watch.pace().unwrap_or(Micros(0));
    Micros((pace.0.saturating_mul(PACES)).clamp(wanted.0, wanted.0.saturating_mul(LONGEST_TTL)))
}

/// The finaliser of `SplitMix64` (Steele, Lea, Flood 2014): neighbours become unlike.
fn mix(mut z: u64) -> u64 {
    z = z.wrapping_add(0x9e37_79b9_7f4a_7c15);
    z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    z ^ (z >> 31)
}

impl Watching {
    /// Work that the watch wants done.
    fn job(&mut self, key: Key) -> Option<Job> {
        Some(Job { of: Asker::Watch(key, self.id), task: self.watch.task()? })
    }

    fn view(&self, scope: &Scope) -> WatchView {
        let standing = self.watch.standing();
        WatchView {
            target: scope.clone(),
            signature: self.id,
            state: match (&self.raised, self.watch.ready()) {
                (Some(_), _) => State::Signalling,
                (None, true) => State::Watching,
                (None, false) => State::Learning,
            },
            learned: standing.learned,
            needed: standing.needed,
            unit: standing.unit.to_owned(),
            baseline: standing.baseline,
            statistic: standing.statistic.to_owned(),
            value: standing.value,
            threshold: standing.threshold,
            average_run_length: standing.average_run_length,
            pace: self.watch.pace(),
            bytes: self.watch.bytes() as u64,
            signal: self.raised.as_ref().map(|raised| raised.id),
            notes: standing.notes,
        }
    }
}

#[cfg(test)]
mod tests;
