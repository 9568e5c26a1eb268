//! Deltas of one stream to flags, as they come.
//!
//! In: [`Delta`]s in order, and ticks that say how late it is. Out: a [`Flag`] when the stream clusters or
//! fell silent; counts of groups and hits for the route; runs for the baseline while nothing is wrong.
//!
//! A group can only be seen whole when the next one begins, a second later in a burst. A tick closes it as
//! soon as nothing can join it any more: the same groups, only sooner.

use sseismo_analysis::flush::{COARSE_WINDOW, Flush, Frames, Gap, Grouper};
use sseismo_analysis::signature::burst::Unit;
use sseismo_trace::{Cause, Delta, Kind, Micros};

use super::cusum::Cusum;
use super::likelihood::{Lanes, logs};
use super::model::{BurstModel, Scale};
use super::run::Run;

/// What is wrong with a stream.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum What {
    /// Content comes in bursts after silences.
    Clusters,
    /// Content stopped coming, although its phase did not end as far as anybody knows.
    DeadAir {
        /// Keep-alives came meanwhile: the way is open, the sender has nothing.
        keepalive: bool,
    },
}

/// A stream clusters, or fell silent.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Flag {
    /// What was seen.
    pub what: What,
    /// The scale that saw it.
    pub scale: Scale,
    /// Log-mean-exp of the CUSUMs, nats; seconds of silence for dead air.
    pub statistic: f64,
    /// What it had to reach.
    pub threshold: f64,
    /// Groups since the evidence began to gather.
    pub groups: u32,
    /// The silence before the last group, or so far.
    pub gap: Micros,
    /// Size of the last group.
    pub size: u32,
    /// What sizes are counted in.
    pub unit: Unit,
    /// The picture of clustering that explains most.
    pub picture: &'static str,
    /// Why, where the stream's own events prove it; reads and rates are not seen here.
    pub cause: Option<Cause>,
}

/// Coarse groups of a stream so far, for the route's statistic.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Tally {
    /// Groups with known silences inside their phases.
    pub groups: u32,
    /// Those of them that are hits.
    pub hits: u32,
    /// Flags raised.
    pub flags: u32,
}

/// One scale of one stream.
#[derive(Clone, Debug)]
struct Lane {
    grouper: Grouper,
    cusum: Cusum,
    /// Groups that a tick judged before they closed.
    ahead: u8,
}

impl Lane {
    fn new(grouper: Grouper) -> Self {
        Self { grouper, cusum: Cusum::default(), ahead: 0 }
    }

    /// Takes in a closed frame; yields the group that it closed, unless a tick has judged it before.
    fn push(&mut self, frame: Flush) -> Option<Flush> {
        let closed = self.grouper.push(frame);
        self.unless_ahead(closed)
    }

    fn finish(&mut self) -> Option<Flush> {
        let closed = self.grouper.finish();
        self.unless_ahead(closed)
    }

    fn unless_ahead(&mut self, closed: Option<Flush>) -> Option<Flush> {
        let closed = closed?;
        if self.ahead > 0 {
            self.ahead -= 1;
            return None;
        }
        Some(closed)
    }

    /// The groups that nothing can join any more, given that `frame` is the last of them.
    fn early(&mut self, frame: Option<Flush>) -> [Option<Flush>; 2] {
        let mut grouper = self.grouper.clone();
        let closed = frame.and_then(|frame| grouper.push(frame));
        let mut groups = [closed, grouper.finish()];
        let mut left = self.ahead;
        self.ahead = 0;
        for group in &mut groups {
            if group.is_some() {
                self.ahead += 1;
                if left > 0 {
                    left -= 1;
                    *group = None;
                }
            }
        }
        groups
    }
}

/// What is measured against a model.
#[derive(Clone, Debug)]
struct Judge {
    model: BurstModel,
    fine: Lane,
    coarse: Lane,
}

/// What is known since the last content event.
#[derive(Clone, Copy, Debug)]
struct Silence {
    since: Micros,
    /// A keep-alive came in it.
    keepalive: bool,
    /// A tick has judged all groups before it.
    settled: bool,
    /// It was flagged.
    flagged: bool,
}

/// The state of one live stream.
#[derive(Clone, Debug)]
pub struct BurstStream {
    judge: Option<Judge>,
    frames: Frames,
    run: Option<Run>,
    ended: bool,
    /// The silence before the end, once that is known to be a good one.
    ending: Option<Micros>,
    silence: Option<Silence>,
    /// Groups with positive evidence whose sender is known to have written them at once.
    proven: u8,
    tally: Tally,
}

impl BurstStream {
    /// A stream measured against `model`.
    pub fn new(model: &BurstModel) -> Self {
        let lane = |scale| Lane::new(model.measure(scale).grouper());
        let judge = Judge { model: model.clone(), fine: lane(Scale::Fine), coarse: lane(Scale::Coarse) };
        Self { judge: Some(judge), ..Self::empty() }
    }

    /// A stream of a scope that has no model yet: recorded for the baseline, never flagged.
    pub fn learning() -> Self {
        Self { run: Some(Run::default()), ..Self::empty() }
    }

    /// Also records the stream for the baseline, up to 2 KiB: for some of a scope's streams.
    #[must_use]
    pub fn recorded(self) -> Self {
        Self { run: Some(Run::default()), ..self }
    }

    fn empty() -> Self {
        Self {
            judge: None,
            frames: Frames::default(),
            run: None,
            ended: false,
            ending: None,
            silence: None,
            proven: 0,
            tally: Tally::default(),
        }
    }

    /// Takes in the next event.
    pub fn push(&mut self, delta: &Delta) -> Option<Flag> {
        if delta.is_content() {
            let since = delta.t.or(self.progress());
            let fresh = |since| Silence { since, keepalive: false, settled: false, flagged: false };
            self.silence = since.map(fresh);
        } else if let (Kind::Ping | Kind::Comment, Some(silence)) = (delta.kind, &mut self.silence) {
            silence.keepalive = true;
        }
        let frame = self.frames.push(delta)?;
        self.frame(frame)
    }

    /// Some events were lost: the silence before the next one is not known, nor whether there is one now.
    pub fn lost(&mut self) {
        self.frames.lost();
        self.silence = None;
    }

    /// Nobody knows whether events were lost: no silence so far proves anything.
    pub fn doubt(&mut self) {
        self.silence = None;
    }

    /// Says how late it is, in time since the stream's start: closes what nothing can join any more, and looks
    /// for dead air. `now` must not be later than events that are still to be pushed.
    pub fn tick(&mut self, now: Micros) -> Option<Flag> {
        let silence = self.silence.as_mut()?;
        let silent = now.since(silence.since);
        if !silence.settled && silent > COARSE_WINDOW {
            silence.settled = true;
            let flag = self.settle();
            if flag.is_some() {
                return flag;
            }
        }
        self.dead_air(silent)
    }

    /// Ends a stream that came to its end at `at`, for those that teach: the silence before the end is honest.
    /// Without it a route whose closing events drip in would look dead at the end of each stream.
    pub fn complete(&mut self, at: Micros) -> Option<Flag> {
        self.ending = self.silent_for(at).filter(|silence| silence.0 > 0);
        self.end()
    }

    /// Ends the stream: judges what was still open.
    pub fn end(&mut self) -> Option<Flag> {
        self.ended = true;
        let mut flag = self.frames.finish().and_then(|frame| self.frame(frame));
        if let (Some(run), Some(silence)) = (&mut self.run, self.ending) {
            run.push_end(silence);
        }
        for scale in [Scale::Fine, Scale::Coarse] {
            let group = self.lane(scale).and_then(Lane::finish);
            flag = flag.or(group.and_then(|group| self.judge(scale, &group)));
        }
        flag
    }

    /// A run for the baseline: when one is full, or after the end. A flagged stream has none.
    pub fn take_run(&mut self) -> Option<Run> {
        let run = self.run.as_mut()?;
        if run.is_full() || (self.ended && !run.is_empty()) { Some(std::mem::take(run)) } else { None }
    }

    /// When content last came, since the stream's start. Keep-alives are no progress.
    pub fn progress(&self) -> Option<Micros> {
        self.silence.map(|silence| silence.since)
    }

    /// How long no content has come; `None` before the first.
    pub fn silent_for(&self, now: Micros) -> Option<Micros> {
        self.progress().map(|progress| now.since(progress))
    }

    /// Groups, hits and flags so far.
    pub fn tally(&self) -> Tally {
        self.tally
    }

    /// Bytes of a stream that is not recorded, all of them in place.
    pub const fn bytes() -> usize {
        size_of::<Self>()
    }

    fn lane(&mut self, scale: Scale) -> Option<&mut Lane> {
        let judge = self.judge.as_mut()?;
        Some(match scale {
            Scale::Fine => &mut judge.fine,
            Scale::Coarse => &mut judge.coarse,
        })
    }

    fn frame(&mut self, frame: Flush) -> Option<Flag> {
        if let Some(run) = &mut self.run {
            run.push(&frame);
        }
        let mut flag = None;
        for scale in [Scale::Fine, Scale::Coarse] {
            let group = self.lane(scale).and_then(|lane| lane.push(frame));
            flag = flag.or(group.and_then(|group| self.judge(scale, &group)));
        }
        flag
    }

    /// Judges the groups that are still open but cannot grow.
    fn settle(&mut self) -> Option<Flag> {
        let frame = self.frames.open().copied();
        let mut flag = None;
        for scale in [Scale::Fine, Scale::Coarse] {
            let groups = self.lane(scale).map_or([None; 2], |lane| lane.early(frame));
            for group in groups.iter().flatten() {
                flag = flag.or(self.judge(scale, group));
            }
        }
        flag
    }

    fn judge(&mut self, scale: Scale, group: &Flush) -> Option<Flag> {
        let Gap::Within(gap) = group.gap else { return None };
        let judge = self.judge.as_mut()?;
        let (unit, measure) = (judge.model.unit(), judge.model.measure(scale));
        let (size, trust) = (unit.of(&group.size), &measure.likelihood.trust);
        let ratios: Lanes = measure.likelihood.ratios(logs(gap.0, size));
        let lane = match scale {
            Scale::Fine => &mut judge.fine,
            Scale::Coarse => &mut judge.coarse,
        };
        lane.cusum.push(&ratios);
        if scale == Scale::Coarse {
            self.tally.groups = self.tally.groups.saturating_add(1);
            let hit = judge.model.is_hit(&ratios);
            self.tally.hits = self.tally.hits.saturating_add(u32::from(hit));
            self.proven = self.proven.saturating_add(u8::from(hit && written_together(group, gap)));
        }
        if lane.cusum.mean(trust) < measure.limit {
            return None;
        }
        let (picture, groups) = lane.cusum.leading(trust);
        let flag = Flag {
            what: What::Clusters,
            scale,
            statistic: lane.cusum.statistic(trust),
            threshold: measure.threshold,
            groups: groups.into(),
            gap,
            size,
            unit,
            picture: measure.likelihood.names[picture],
            cause: (self.proven > 0).then_some(Cause::UpstreamBatching),
        };
        (judge.fine.cusum, judge.coarse.cusum) = (Cusum::default(), Cusum::default());
        Some(self.flagged(flag))
    }

    fn dead_air(&mut self, silent: Micros) -> Option<Flag> {
        let (model, silence) = (&self.judge.as_ref()?.model, self.silence.as_mut()?);
        if silence.flagged || silent < model.dead_air() {
            return None;
        }
        silence.flagged = true;
        let flag = Flag {
            what: What::DeadAir { keepalive: silence.keepalive },
            scale: Scale::Coarse,
            statistic: silent.seconds(),
            threshold: model.dead_air().seconds(),
            groups: 1,
            gap: silent,
            size: 0,
            unit: model.unit(),
            picture: "dead air",
            cause: None,
        };
        Some(self.flagged(flag))
    }

    /// Counts a flag; a flagged stream is not learned.
    fn flagged(&mut self, flag: Flag) -> Flag {
        self.tally.flags = self.tally.flags.saturating_add(1);
        self.run = None;
        self.proven = 0;
        flag
    }
}

/// Whether the stream's own events prove that the sender wrote a late group at once: a keep-alive passed in
/// the silence, or the sender's own clock stood still within the group. The rules of the offline signature.
fn written_together(group: &Flush, gap: Micros) -> bool {
    let by_clock = group.provider.is_some_and(|(from, to)| {
        let fine = from % 1_000_000 != 0 || to % 1_000_000 != 0;
        group.size.events > 1 && fine && to - from <= gap.0 / 10
    });
    group.keepalive || by_clock
}
