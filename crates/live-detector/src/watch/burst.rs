//! `burst`: deltas come in flushes after dead air.
//!
//! Three statistics share the pair's false alarms evenly; each raises the signal.
//! - **A stream against the scope's own baseline** ([`crate::burst`]): CUSUMs on its flush groups, and dead air.
//! - **The route**: each coarse group of any stream is a *hit* or not; their share against the baseline's, an
//!   upper limit, by the mixture e-CUSUM: many short streams add up where none could be told alone.
//! - **The fixed rule**, which needs no baseline: a group of at least 40 tokens after a silence of more than 1 s
//!   inside a phase, against the healthy share of the offline signature. It watches from the first stream on
//!   until there is a baseline, and where clustering is all that was ever seen. Not for Gemini, whose honest
//!   frames are that large.
//!
//! **Learning**: streams without a flag, all of them until the model is there, then one in eight; none while a
//! signal is raised. The model is made anew whenever what was seen has doubled.
//! **Clear**: no statistic spoke for a time to live. In between streams that burst go on to be flagged every few
//! groups.
//! **Cause**: what the stream's own events prove, else `unknown`: reads are not seen here.

use std::collections::HashMap;

use serde_json::Value;
use sseismo_analysis::flush::{Flush, Frames, Gap, Grouper};
use sseismo_analysis::signature::burst::{HEALTHY, MUCH_TOKENS, STALL_MAX, Unit, sends_large_frames};
use sseismo_analysis::stats::real;
use sseismo_trace::{Cause, Delta, Detail, Evidence, Micros, Outcome, UtcMicros};

use super::{Alarm, Call, Standing, Watch, write_up};
use crate::baseline::Kept;
use crate::budget::Share;
use crate::burst::{BurstBaseline, BurstModel, BurstStream, Flag, GROUPS_MIN, Scale, Tally, What};
use crate::job::{self, Task};
use crate::sequence::{Hits, Sequence, Step};
use crate::view::Figure;
use crate::{Options, Preset};

/// Statistics that share the budget.
const STATISTICS: u64 = 3;
/// One stream in so many goes on to teach the baseline.
const TEACH_ONE_IN: u64 = 8;
/// Streams over which the affected share is a mean.
const RECENT: u64 = 64;
/// What is counted.
const UNIT: &str = "flush groups";

/// Starts watching.
pub(super) fn open(options: &Options) -> Box<dyn Watch> {
    if options.preset == Preset::WriteUp {
        return write_up::burst();
    }
    Box::new(Burst {
        baseline: BurstBaseline::default(),
        model: None,
        modelled: 0,
        wanted: None,
        asked: false,
        streams: HashMap::new(),
        begun: 0,
        route: Sequence::new(0.0),
        fixed: Sequence::new(0.0),
        raised: None,
        recent: Hits::default(),
        last_evidence: UtcMicros::default(),
    })
}

/// A live stream.
#[derive(Debug)]
struct Live {
    started: UtcMicros,
    state: BurstStream,
    told: Tally,
    /// Groups for the fixed rule; none where it does not hold.
    groups: Option<Box<Groups>>,
    flagged: bool,
}

impl Live {
    /// Bytes in the map and on the heap, the run of a stream that teaches apart.
    fn bytes(&self) -> usize {
        size_of::<(u64, Self)>() + self.groups.as_ref().map_or(0, |_| size_of::<Groups>())
    }
}

/// Coarse groups.
#[derive(Debug)]
struct Groups {
    frames: Frames,
    grouper: Grouper,
}

/// What raised the signal, or spoke for it last.
#[derive(Clone, Debug)]
struct Raised {
    gap: Micros,
    tokens: f64,
    cause: Option<Cause>,
    evidence: Evidence,
}

#[derive(Debug)]
struct Burst {
    baseline: BurstBaseline,
    model: Option<BurstModel>,
    /// Runs that the baseline had seen when the model was made.
    modelled: u64,
    /// A model is due: for which run length, from which seed.
    wanted: Option<(f64, u64)>,
    /// Somebody makes one.
    asked: bool,
    streams: HashMap<u64, Live>,
    begun: u64,
    route: Sequence,
    fixed: Sequence,
    raised: Option<Raised>,
    /// Streams that ended, and those of them that were flagged.
    recent: Hits,
    last_evidence: UtcMicros,
}

/// What one stream gave.
#[derive(Debug, Default)]
struct Seen {
    flag: Option<(UtcMicros, Flag)>,
    late: Option<(UtcMicros, Flush)>,
}

impl Burst {
    /// Lets one stream see something and sums up what it gives.
    fn with(&mut self, id: u64, at: UtcMicros, see: impl FnOnce(&mut Live, &mut Sequence) -> Seen) {
        let Some(live) = self.streams.get_mut(&id) else { return };
        let seen = see(live, &mut self.fixed);
        let now = live.state.tally();
        let (groups, hits) = (now.groups - live.told.groups, now.hits - live.told.hits);
        live.told = now;
        live.flagged |= seen.flag.is_some() || seen.late.is_some();
        if let Some(run) = live.state.take_run()
            && self.raised.is_none()
        {
            self.baseline.push(&run);
        }
        let mut risen = false;
        for i in 0..groups {
            risen |= self.route.push(at, i < hits) == Step::Onset;
        }
        if risen {
            let evidence = self.route.evidence(UNIT);
            self.route.reset();
            self.speak(at, Micros(0), 0.0, None, evidence);
        }
        if let Some((at, flush)) = seen.late {
            let evidence = self.fixed.evidence(UNIT);
            self.fixed.reset();
            let gap = if let Gap::Within(gap) = flush.gap { gap } else { Micros(0) };
            self.speak(at, gap, tokens(&flush), None, evidence);
        }
        if let Some((at, flag)) = seen.flag {
            let evidence = self.of_flag(&flag);
            self.speak(at, flag.gap, size(&flag), flag.cause, evidence);
        }
    }

    fn speak(&mut self, at: UtcMicros, gap: Micros, tokens: f64, cause: Option<Cause>, evidence: Evidence) {
        self.last_evidence = self.last_evidence.max(at);
        let before = self.raised.take();
        let (gap, tokens) = match &before {
            Some(before) if gap.0 == 0 => (before.gap, before.tokens),
            _ => (gap, tokens),
        };
        let cause = cause.or(before.and_then(|before| before.cause)).or(Some(Cause::Unknown));
        self.raised = Some(Raised { gap, tokens, cause, evidence });
    }

    fn of_flag(&self, flag: &Flag) -> Evidence {
        let arl = self.model.as_ref().map_or(f64::INFINITY, BurstModel::arl);
        let mut notes = self.model.as_ref().map_or_else(Vec::new, BurstModel::notes);
        let statistic = match flag.what {
            What::Clusters => {
                notes.push(format!("closest to the picture `{}`", flag.picture));
                format!("log-mean-exp of CUSUMs of one stream, {} scale, nats", flag.scale.name())
            }
            What::DeadAir { keepalive } => {
                notes.push(if keepalive { "keep-alives came" } else { "no keep-alive came" }.to_owned());
                "silence of one stream, s".to_owned()
            }
        };
        Evidence {
            statistic,
            value: flag.statistic,
            threshold: flag.threshold,
            n: flag.groups.into(),
            unit: UNIT.to_owned(),
            average_run_length: arl,
            notes,
        }
    }

    /// Wants a model when what was seen has doubled, and lets the one there is follow a changed budget.
    fn model(&mut self, share: &Share<'_>) {
        let pace = self.pace().unwrap_or(Micros(1_000_000));
        let arl = share.budget.split(STATISTICS).run_length(pace);
        let doubled = self.baseline.seen() >= 2 * self.modelled.max(1) || self.model.is_none();
        if doubled && self.baseline.ready() && !self.asked {
            self.wanted = Some((arl, share.seed));
        }
        if let Some(model) = &mut self.model
            && (arl / model.arl()).ln().abs() > 0.1
        {
            *model = model.at(arl);
        }
    }
}

/// Size of a group in tokens, or in what is known.
fn tokens(flush: &Flush) -> f64 {
    f64::from(match flush.size.tokens.max(flush.size.tokens_est) {
        0 => flush.size.chars,
        tokens => tokens,
    })
}

/// Size of a flagged group, in its unit.
fn size(flag: &Flag) -> f64 {
    f64::from(flag.size)
}

/// Whether the fixed rule calls a group late and large; `None` when its silence is not known.
fn late(flush: &Flush) -> Option<bool> {
    let Gap::Within(gap) = flush.gap else { return None };
    let unit = [
        (flush.size.tokens, Unit::Tokens),
        (flush.size.tokens_est, Unit::EstimatedTokens),
        (flush.size.chars, Unit::Characters),
    ];
    let much = unit
        .into_iter()
        .find(|(size, _)| *size > 0)
        .is_some_and(|(size, unit)| unit.scaled(MUCH_TOKENS).is_some_and(|much| size >= much));
    Some(gap > STALL_MAX && much)
}

impl Groups {
    /// Takes in an event; the group that it closed.
    fn push(&mut self, delta: &Delta) -> Option<Flush> {
        let frame = self.frames.push(delta)?;
        self.grouper.push(frame)
    }

    fn finish(&mut self) -> [Option<Flush>; 2] {
        let frame = self.frames.finish();
        [frame.and_then(|frame| self.grouper.push(frame)), self.grouper.finish()]
    }
}

/// Judges a group by the fixed rule; the group when the rule's statistic rose over its threshold.
fn judge(fixed: &mut Sequence, started: UtcMicros, group: &Flush) -> Option<(UtcMicros, Flush)> {
    let at = UtcMicros(started.0 + group.last.0);
    let flag = late(group)?;
    (fixed.push(at, flag) == Step::Onset).then_some((at, *group))
}

impl Watch for Burst {
    fn begin(&mut self, call: &Call<'_>) {
        let teach = self.begun.is_multiple_of(TEACH_ONE_IN);
        self.begun += 1;
        let state = match &self.model {
            None => BurstStream::learning(),
            Some(model) if teach => BurstStream::new(model).recorded(),
            Some(model) => BurstStream::new(model),
        };
        let alone = !self.model.as_ref().is_some_and(BurstModel::decides);
        let groups = (alone && !sends_large_frames(call.summary))
            .then(|| Box::new(Groups { frames: Frames::default(), grouper: Grouper::coarse() }));
        let live = Live { started: call.started, state, told: Tally::default(), groups, flagged: false };
        self.streams.insert(call.summary.stream_id, live);
    }

    fn deltas(&mut self, stream_id: u64, started: UtcMicros, deltas: &[Delta]) {
        let last = deltas.iter().rev().find_map(|delta| delta.t).unwrap_or_default();
        self.with(stream_id, UtcMicros(started.0 + last.0), |live, fixed| {
            let mut seen = Seen::default();
            for delta in deltas {
                if let Some(flag) = live.state.push(delta) {
                    let at = delta.t.unwrap_or(last);
                    seen.flag = Some((UtcMicros(started.0 + at.0), flag));
                }
                let group = live.groups.as_mut().and_then(|groups| groups.push(delta));
                seen.late = group.and_then(|group| judge(fixed, started, &group)).or(seen.late);
            }
            seen
        });
    }

    fn end(&mut self, call: &Call<'_>) {
        let id = call.summary.stream_id;
        self.with(id, call.at, |live, fixed| {
            let is_whole = matches!(call.summary.outcome, Outcome::Completed | Outcome::Incomplete);
            let ended = if is_whole {
                live.state.complete(Micros(call.at.0 - call.started.0))
            } else {
                live.state.end()
            };
            let flag = ended.map(|flag| (call.at, flag));
            let groups = live.groups.as_mut().map(|groups| groups.finish()).unwrap_or_default();
            let mut late = None;
            for group in groups.iter().flatten() {
                late = judge(fixed, call.started, group).or(late);
            }
            Seen { flag, late }
        });
        if let Some(live) = self.streams.remove(&id) {
            self.recent.push(live.flagged);
            if self.recent.n >= RECENT {
                self.recent.halve();
            }
        }
    }

    fn tick(&mut self, now: UtcMicros) {
        let mut ids: Vec<u64> = self.streams.keys().copied().collect();
        // The order must not be left to the map: what is seen first can decide.
        ids.sort_unstable();
        for id in ids {
            self.with(id, now, |live, _| {
                let flag = live.state.tick(Micros(now.0 - live.started.0)).map(|flag| (now, flag));
                Seen { flag, late: None }
            });
        }
    }

    fn lost(&mut self, stream_id: u64) {
        if let Some(live) = self.streams.get_mut(&stream_id) {
            live.state.lost();
            if let Some(groups) = &mut live.groups {
                groups.frames.lost();
            }
        }
    }

    fn doubt(&mut self) {
        for live in self.streams.values_mut() {
            live.state.doubt();
        }
    }

    fn forget(&mut self, stream_id: u64) {
        self.streams.remove(&stream_id);
    }

    fn share(&mut self, share: &mut Share<'_>) {
        self.fixed.set_null(HEALTHY);
        self.model(share);
        let budget = share.budget.split(STATISTICS);
        let mut part = Share { budget, thresholds: &mut *share.thresholds, seed: share.seed };
        self.route.share(&mut part);
        self.fixed.share(&mut part);
    }

    fn task(&mut self) -> Option<Task> {
        let (arl, seed) = self.wanted.take()?;
        self.asked = true;
        Some(Task::Model { baseline: Box::new(self.baseline.clone()), arl, seed })
    }

    fn done(&mut self, outcome: job::Outcome) {
        let job::Outcome::Model(model, seen) = outcome else { return };
        self.asked = false;
        if let Some(model) = model {
            self.modelled = seen;
            self.route.set_null(model.hit_rate().upper95);
            self.model = Some(model);
        }
    }

    fn ready(&self) -> bool {
        self.model.is_some()
    }

    fn alarming(&self) -> bool {
        self.raised.is_some()
    }

    fn pace(&self) -> Option<Micros> {
        self.route.pace().or(self.fixed.pace())
    }

    fn last_evidence(&self) -> UtcMicros {
        self.last_evidence
    }

    fn alarm(&self) -> Option<Alarm> {
        let raised = self.raised.as_ref()?;
        // Streams that still run count as soon as they are flagged.
        let running = self.streams.values().filter(|live| live.flagged).count() as u64;
        let flagged = self.recent.hits + running;
        Some(Alarm {
            detail: Detail::Burst { gap_s: raised.gap.seconds(), tokens: raised.tokens },
            cause: raised.cause,
            strength: real(flagged) / real((self.recent.n + running).max(1)),
            evidence: raised.evidence.clone(),
        })
    }

    fn reset(&mut self) {
        self.raised = None;
        self.route.reset();
        self.fixed.reset();
        self.recent = Hits::default();
    }

    fn standing(&self) -> Standing {
        let of = if self.model.is_some() { &self.route } else { &self.fixed };
        let mut standing = of.standing(UNIT);
        let have = self.baseline.learning().map_or(GROUPS_MIN, |learning| learning.have);
        (standing.learned, standing.needed) = (have as u64, GROUPS_MIN as u64);
        if let Some(model) = &self.model {
            let figures = [
                ("threshold of a stream, fine scale", model.threshold(Scale::Fine), "nats"),
                ("threshold of a stream, coarse scale", model.threshold(Scale::Coarse), "nats"),
                ("dead air", model.dead_air().seconds(), "s"),
                ("flush groups of a stream", model.groups_per_second(), "1/s"),
            ];
            let finite = figures.into_iter().filter(|(_, value, _)| value.is_finite());
            standing.baseline.extend(finite.map(|(name, value, unit)| Figure::new(name, value, unit)));
            standing.notes.extend(model.notes());
        } else {
            standing.notes.push("learning: only the fixed rule watches (40 tokens after 1 s)".to_owned());
        }
        standing
    }

    fn bytes(&self) -> usize {
        let streams = self.streams.values().map(Live::bytes).sum::<usize>();
        let model = self.model.as_ref().map_or(0, BurstModel::bytes);
        size_of_val(self) + self.baseline.bytes() + model + streams
    }

    fn save(&self) -> Kept {
        Kept::of(self.baseline.clone())
    }

    fn restore(&mut self, saved: Value) -> Result<(), serde_json::Error> {
        self.baseline = serde_json::from_value(saved)?;
        Ok(())
    }
}
