//! Second pass: groups at both scales, measured against the baselines of the first.

use std::collections::{BTreeMap, BTreeSet};

use sseismo_trace::{Cause, Micros, Stream};

use super::baseline::{Baseline, Unit};
use super::cause::{Around, Grid, Judged, judge};
use super::whole;
use crate::flush::{Borders, COARSE_SPAN, COARSE_WINDOW, Flush, Frames, Gap, Grouper};
use crate::signature::Preset;
use crate::stats::histogram::Histogram;
use crate::stats::interval::{gini, regularity};

/// No healthy stream of 180 was silent for longer (figures: module docs of `burst`).
const STALL_MIN: Micros = Micros(750_000);
/// However slow a stream, this is dead air.
pub const STALL_MAX: Micros = Micros(1_000_000);
/// A stall is longer than this many median gaps of its stream: no healthy stream reached 50.
const STALL_RATIO: f64 = 50.0;
/// The least number of tokens that is much at once; also the write-up's.
pub const MUCH_TOKENS: u32 = 40;
/// The write-up's upper bound.
const WRITE_UP_TOKENS_MAX: u32 = 80;
/// The write-up's window and count.
const WRITE_UP_WINDOW: Micros = Micros(60_000_000);
const WRITE_UP_HITS: usize = 3;
/// At the fine scale this many events with [`MUCH_RATIO`] times the usual size are much, too.
const MUCH_EVENTS: u32 = 8;
const MUCH_RATIO: f64 = 10.0;
/// For an API whose honest frames are large, much is this many usual events.
const LARGE_FRAME_RATIO: f64 = 3.0;
/// A cork joins at least this many events a group on average (healthy: 1.3 records, 2.3 tokens) …
const CORK_EVENTS: u64 = 3;
/// … at least this often …
const CORK_GROUPS: u64 = 10;
/// … and is longer than what people notice as a delay (Nielsen's 100 ms) but no stall: healthy streams
/// pass 500 ms 2.6 times in 10,000 gaps.
const CORK_MS: std::ops::RangeInclusive<f64> = 100.0..=500.0;
/// Half the span of the middle 68 % over the median: a timer stays within 15 %, a buffer within 10 %.
const PERIOD_SPREAD: f64 = 0.15;
const BYTES_SPREAD: f64 = 0.10;
/// A full buffer leaves less than one event's bytes to chance (0.34 of one within the middle 68 %), while
/// the number of events jumps by whole ones (at least 0.5): a ratio of at most 0.68. Behind a timer bytes
/// stray as the number does or more: measured 1.06 for HAProxy's cork on a steady source, where a bare
/// comparison of bytes and periods was decided by the machine's load.
const FULL_SPREAD: f64 = 0.8;
/// A whole answer of so many events cannot have been generated within a millisecond.
const WHOLE_EVENTS: u32 = 20;
/// From here on a single late group is worth showing: the warning threshold of the false-alarm table.
const NOTABLE: Micros = Micros(500_000);
const NOTABLE_EVENTS: u32 = 4;
/// Width of the bins of the Gini coefficient.
const GINI_BIN: Micros = Micros(100_000);

/// What one scale saw.
#[derive(Debug)]
pub(super) struct Scale {
    pub(super) window: Micros,
    span: Option<Micros>,
    /// Groups, and those of them that a known silence inside a phase precedes.
    pub(super) groups: u64,
    pub(super) gaps: u64,
    pub(super) hits: u64,
    events: u64,
    weight: f64,
    weighted: f64,
    pub(super) sizes: Histogram,
    periods: Histogram,
    bytes: Histogram,
    counts: Histogram,
    silences: Histogram,
    pub(super) hit_causes: Votes,
    pub(super) cork_causes: Votes,
}

impl Scale {
    fn new(window: Micros, span: Option<Micros>) -> Self {
        Self {
            window,
            span,
            groups: 0,
            gaps: 0,
            hits: 0,
            events: 0,
            weight: 0.0,
            weighted: 0.0,
            sizes: Histogram::default(),
            periods: Histogram::default(),
            bytes: Histogram::default(),
            counts: Histogram::default(),
            silences: Histogram::default(),
            hit_causes: Votes::default(),
            cork_causes: Votes::default(),
        }
    }

    /// Silence before the average token, in seconds.
    pub(super) fn weighted_gap(&self) -> Option<f64> {
        (self.weight > 0.0).then(|| self.weighted / self.weight)
    }

    #[expect(clippy::cast_precision_loss, reason = "numbers of events are far below 2^53")]
    pub(super) fn events_per_group(&self) -> Option<f64> {
        (self.groups > 0).then(|| self.events as f64 / self.groups as f64)
    }

    /// The even grid of a cork, its spread, and whether its silences are short.
    pub(super) fn grid(&self) -> Option<Corked> {
        if self.periods.len() < CORK_GROUPS || self.events < self.groups * CORK_EVENTS {
            return None;
        }
        let silence = self.silences.quantile(0.5)? / 1e3;
        let (period, bytes) =
            (spread(&self.periods)?, spread(&self.bytes).filter(|(middle, _)| *middle > 0.0));
        let by_bytes = bytes.filter(|&(_, spread)| spread <= BYTES_SPREAD && spread < period.1);
        let counts = spread(&self.counts)?.1;
        let full = |spread: f64| spread < FULL_SPREAD * counts;
        let (grid, spread) = match by_bytes {
            Some((bytes, spread)) if full(spread) || period.1 > PERIOD_SPREAD => {
                (Grid::Bytes { bytes, full: full(spread) }, spread)
            }
            _ if period.1 <= PERIOD_SPREAD => (Grid::Period { ms: period.0 / 1e3 }, period.1),
            _ => return None,
        };
        Some(Corked {
            grid,
            spread,
            short: CORK_MS.contains(&silence),
            noticeable: silence >= *CORK_MS.start(),
        })
    }

    fn group(&mut self, group: &Flush, before: Option<&Flush>, unit: Unit) {
        self.groups += 1;
        self.events += u64::from(group.size.events);
        self.sizes.push(u64::from(unit.of(&group.size)));
        let Gap::Within(gap) = group.gap else { return };
        self.gaps += 1;
        let size = f64::from(unit.of(&group.size));
        self.weight += size;
        self.weighted += size * gap.seconds();
        if let Some(before) = before {
            self.periods.push(group.first.since(before.first).0.unsigned_abs());
            self.silences.push(gap.0.unsigned_abs());
            self.bytes.push(u64::from(group.size.bytes));
            self.counts.push(u64::from(group.size.events));
        }
    }
}

/// An even grid.
#[derive(Clone, Copy, Debug)]
pub(super) struct Corked {
    pub(super) grid: Grid,
    pub(super) spread: f64,
    /// Too short to be a stall.
    pub(super) short: bool,
    /// Long enough to be noticed.
    pub(super) noticeable: bool,
}

/// Median, and half the span of the middle 68 % over it.
fn spread(histogram: &Histogram) -> Option<(f64, f64)> {
    let (low, middle, high) =
        (histogram.quantile(0.16)?, histogram.quantile(0.5)?, histogram.quantile(0.84)?);
    Some((middle, if middle > 0.0 { (high - low) / (2.0 * middle) } else { f64::INFINITY }))
}

/// How many groups each cause explains.
#[derive(Clone, Debug, Default)]
pub(super) struct Votes {
    pub(super) counts: Vec<(Cause, u64)>,
    together: u64,
    missing: BTreeSet<&'static str>,
}

impl Votes {
    fn add(&mut self, judged: &Judged) {
        match self.counts.iter_mut().find(|(cause, _)| *cause == judged.cause) {
            Some((_, count)) => *count += 1,
            None => self.counts.push((judged.cause, 1)),
        }
        self.together += u64::from(judged.together);
        self.missing.extend(&judged.missing);
    }

    /// The cause of more than half of the groups.
    pub(super) fn most(&self) -> Judged {
        let total: u64 = self.counts.iter().map(|(_, count)| count).sum();
        let cause = self.counts.iter().find(|(_, count)| count * 2 > total).map(|(cause, _)| *cause);
        let cause = cause.unwrap_or(Cause::Unknown);
        let missing = if cause == Cause::Unknown { self.missing.clone() } else { BTreeSet::new() };
        Judged { cause, missing, together: self.together * 2 > total }
    }
}

/// The longest silence that ended in several events at once.
#[derive(Clone, Debug)]
pub(super) struct Largest {
    pub(super) gap: Micros,
    pub(super) group: Flush,
    pub(super) judged: Judged,
}

/// Everything the second pass counts; constant in size.
#[derive(Debug)]
pub(super) struct Tally {
    preset: Preset,
    pub(super) unit: Unit,
    event_size: f64,
    large_frames: bool,
    pub(super) fine: Scale,
    pub(super) coarse: Scale,
    /// Most hits of one scale in one stream.
    pub(super) most_hits: u64,
    /// The write-up's three in a minute happened.
    pub(super) write_up: bool,
    pub(super) borders: Borders,
    /// Streams long enough to say whether they were held whole, and those that were.
    pub(super) long_streams: u64,
    pub(super) held_whole: u64,
    pub(super) held_causes: Votes,
    /// Content encodings of those.
    pub(super) held_encodings: BTreeMap<String, u64>,
    /// Per stream, in thousandths; B is shifted by one to be positive.
    pub(super) cv: Histogram,
    pub(super) kim_jo: Histogram,
    pub(super) lv: Histogram,
    pub(super) gini: Histogram,
    /// Time between first and last content, and of it in silences of at least 0.5 and 1 s.
    pub(super) seconds: f64,
    pub(super) silent_500ms: f64,
    pub(super) silent_1s: f64,
    pub(super) largest: Option<Largest>,
    /// Hits of either scale in the stream pushed last.
    pub(super) hits_of_stream: u64,
    frames: Vec<Flush>,
    gaps: Vec<f64>,
}

impl Tally {
    pub(super) fn new(baseline: &Baseline, preset: Preset) -> Self {
        let unit = baseline.unit();
        Self {
            preset,
            unit,
            event_size: baseline.event_size(unit).max(1.0),
            large_frames: baseline.has_large_frames(),
            fine: Scale::new(baseline.fine_window(), None),
            coarse: Scale::new(COARSE_WINDOW, Some(COARSE_SPAN)),
            most_hits: 0,
            write_up: false,
            borders: Borders::default(),
            long_streams: 0,
            held_whole: 0,
            held_causes: Votes::default(),
            held_encodings: BTreeMap::new(),
            cv: Histogram::default(),
            kim_jo: Histogram::default(),
            lv: Histogram::default(),
            gini: Histogram::default(),
            seconds: 0.0,
            silent_500ms: 0.0,
            silent_1s: 0.0,
            largest: None,
            hits_of_stream: 0,
            frames: Vec::new(),
            gaps: Vec::new(),
        }
    }

    pub(super) fn push(&mut self, stream: &Stream<'_>, baseline: &Baseline) {
        let mut frames = std::mem::take(&mut self.frames);
        frames.clear();
        let mut state = Frames::default();
        frames.extend(stream.deltas.iter().filter_map(|delta| state.push(delta)));
        frames.extend(state.finish());
        self.borders.add(state.borders);
        self.whole(stream, &frames);
        self.figures(&frames);
        let throttled = baseline.was_throttled(stream.summary.started_at);
        let stall = self.stall();
        let mut hits = self.groups(stream, &frames, true, stall, throttled);
        hits.extend(self.groups(stream, &frames, false, stall, throttled));
        // Both scales see the same silence end at the same moment.
        hits.sort_unstable();
        hits.dedup();
        self.hits_of_stream = hits.len() as u64;
        self.frames = frames;
    }

    /// Whether the whole answer came in one read, or, where reads were not seen, within 1 ms.
    fn whole(&mut self, stream: &Stream<'_>, frames: &[Flush]) {
        let events: u32 = frames.iter().map(|frame| frame.size.events).sum();
        if events < WHOLE_EVENTS || stream.summary.streamed == Some(false) {
            return;
        }
        self.long_streams += 1;
        let (Some(first), Some(last)) = (frames.first(), frames.last()) else { return };
        let held = match (first.reads, last.reads) {
            (Some((first, _)), Some((_, last))) => first == last,
            _ => last.last.since(first.first) < Micros(1_000),
        };
        if held && frames.len() == 1 {
            self.held_whole += 1;
            self.held_causes.add(&whole::judge(stream, first));
            if let Some(encoding) = whole::encoding(stream.summary) {
                *self.held_encodings.entry(encoding.to_owned()).or_default() += 1;
            }
        }
    }

    /// The figures that need the gaps of one stream together; leaves these in `self.gaps`, sorted.
    fn figures(&mut self, frames: &[Flush]) {
        self.gaps.clear();
        self.gaps.extend(frames.iter().filter_map(|frame| match frame.gap {
            Gap::Within(gap) => Some(gap.seconds()),
            _ => None,
        }));
        self.silent_500ms += self.gaps.iter().filter(|gap| **gap >= 0.5).sum::<f64>();
        self.silent_1s += self.gaps.iter().filter(|gap| **gap >= 1.0).sum::<f64>();
        if let (Some(first), Some(last)) = (frames.first(), frames.last()) {
            self.seconds += last.last.since(first.first).seconds().max(0.0);
        }
        if self.gaps.len() >= MIN_REGULARITY {
            let figures = regularity(&self.gaps);
            push_thousandths(&mut self.cv, figures.cv);
            push_thousandths(&mut self.kim_jo, figures.burstiness_kim_jo.map(|b| b + 1.0));
            push_thousandths(&mut self.lv, figures.lv);
            let gini = self.gini_of(frames);
            push_thousandths(&mut self.gini, gini);
        }
        self.gaps.sort_unstable_by(f64::total_cmp);
    }

    fn gini_of(&self, frames: &[Flush]) -> Option<f64> {
        let (first, last) = (frames.first()?, frames.last()?);
        let bin = |at: Micros| at.since(first.first).0 / GINI_BIN.0;
        let mut filled: Vec<(i64, f64)> = Vec::new();
        for frame in frames {
            let (at, size) = (bin(frame.first), f64::from(self.unit.of(&frame.size)));
            match filled.last_mut() {
                Some((before, sum)) if *before == at => *sum += size,
                _ => filled.push((at, size)),
            }
        }
        let mut sizes: Vec<f64> =
            filled.into_iter().map(|(_, size)| size).filter(|size| *size > 0.0).collect();
        gini(&mut sizes, usize::try_from(bin(last.last) + 1).ok()?)
    }

    /// How long a silence is a stall in the stream whose sorted gaps are at hand.
    fn stall(&self) -> Micros {
        let median = self.gaps.get(self.gaps.len() / 2).copied().unwrap_or(0.0);
        #[expect(clippy::cast_possible_truncation, reason = "a gap in µs, far below 2^53")]
        let relative = (median * STALL_RATIO * 1e6) as i64;
        Micros(relative.clamp(STALL_MIN.0, STALL_MAX.0))
    }

    /// Adds one stream at one scale; yields when each hit began to arrive.
    fn groups(
        &mut self,
        stream: &Stream<'_>,
        frames: &[Flush],
        fine: bool,
        stall: Micros,
        throttled: bool,
    ) -> Vec<Micros> {
        let (window, span) =
            if fine { (self.fine.window, self.fine.span) } else { (self.coarse.window, self.coarse.span) };
        let mut grouper = Grouper::new(window, span);
        let mut before: Option<Flush> = None;
        let mut hits: Vec<Micros> = Vec::new();
        let mut judged_before = 0;
        let closed = |grouper: &mut Grouper, frame: Option<&Flush>| match frame {
            Some(frame) => grouper.push(*frame),
            None => grouper.finish(),
        };
        for frame in frames.iter().map(Some).chain([None]) {
            let Some(group) = closed(&mut grouper, frame) else { continue };
            let unit = self.unit;
            let hit = self.is_hit(&group, before.as_ref(), fine, stall);
            let scale = if fine { &mut self.fine } else { &mut self.coarse };
            scale.group(&group, before.as_ref(), unit);
            if let Gap::Within(gap) = group.gap
                && (hit || group.size.events >= NOTABLE_EVENTS)
            {
                let judged = judge(stream, &group, gap, Around { throttled, earlier: judged_before });
                judged_before += 1;
                if hit {
                    scale.hits += 1;
                    scale.hit_causes.add(&judged);
                    hits.push(group.first);
                }
                scale.cork_causes.add(&judged);
                let longest = self.largest.as_ref().map_or(NOTABLE, |largest| largest.gap);
                if gap >= longest && group.size.events >= NOTABLE_EVENTS {
                    self.largest = Some(Largest { gap, group, judged });
                }
            }
            before = Some(group);
        }
        self.most_hits = self.most_hits.max(hits.len() as u64);
        self.write_up |=
            hits.windows(WRITE_UP_HITS).any(|hits| hits[WRITE_UP_HITS - 1].since(hits[0]) <= WRITE_UP_WINDOW);
        hits
    }

    fn is_hit(&self, group: &Flush, before: Option<&Flush>, fine: bool, stall: Micros) -> bool {
        let Gap::Within(gap) = group.gap else { return false };
        match self.preset {
            Preset::Measured => gap >= stall && self.is_much(group, fine),
            Preset::WriteUp => {
                let flushed = before.map_or(0, |before| self.unit.of(&before.size));
                let tokens = |tokens| self.unit.scaled(tokens).unwrap_or(u32::MAX);
                gap > STALL_MAX && flushed >= tokens(MUCH_TOKENS) && flushed <= tokens(WRITE_UP_TOKENS_MAX)
            }
        }
    }

    fn is_much(&self, group: &Flush, fine: bool) -> bool {
        let size = f64::from(self.unit.of(&group.size));
        let usual = self.event_size;
        // A scope of bursts alone has a baseline of bursts: an absolute size must count, too.
        let absolute = self.unit.scaled(MUCH_TOKENS).is_some_and(|much| size >= f64::from(much));
        let relative = fine
            && group.size.events >= MUCH_EVENTS
            && (self.unit == Unit::Events || size >= MUCH_RATIO * usual);
        if self.large_frames {
            (absolute || relative) && size >= LARGE_FRAME_RATIO * usual
        } else {
            absolute || relative
        }
    }
}

/// Fewer gaps make B and CV meaningless (the false-alarm table's n).
const MIN_REGULARITY: usize = 30;

fn push_thousandths(histogram: &mut Histogram, value: Option<f64>) {
    if let Some(value) = value.filter(|value| value.is_finite() && *value >= 0.0) {
        #[expect(
            clippy::cast_possible_truncation,
            clippy::cast_sign_loss,
            reason = "positive and small: checked above, dimensionless"
        )]
        histogram.push((value * 1e3).round() as u64);
    }
}
