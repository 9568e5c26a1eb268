//! Gap and burst statistics over columns: the same figures as the signature's, without a [`Delta`] per
//! row, for datasets of many millions of events.
//!
//! In: plain slices of one stream at a time, as the trace reader yields them. Out: totals, and one
//! [`Row`] per stream. Two passes: [`FrameGaps`] reads times alone and learns the scope's window,
//! [`Groups`] reads kinds and sizes, too. Rows of a stream are in order and together, so one pass needs
//! no sort and holds one stream's running state: memory does not grow with events or streams.
//!
//! The first pass cannot see kinds: its gaps include those on phase borders, a few in each stream, which
//! do not move a median.
//!
//! [`Delta`]: sseismo_trace::Delta

use sseismo_trace::{Kind, Micros, Phase};

use crate::flush::{COARSE_SPAN, COARSE_WINDOW, FRAME_WINDOW, fine_window};
use crate::stats::histogram::Histogram;

/// One second: dead air.
const DEAD: i64 = 1_000_000;

/// First pass: gaps between frames, from times alone.
#[derive(Clone, Debug, Default)]
pub struct FrameGaps {
    gaps: Histogram,
}

impl FrameGaps {
    /// Takes in the times of one stream, µs, in order; `measured` tells which of them are times.
    pub fn push(&mut self, t: &[i64], measured: Option<&[bool]>) {
        for (i, pair) in t.windows(2).enumerate() {
            let known = measured.is_none_or(|measured| measured[i] && measured[i + 1]);
            // A negative difference is a clock step; events under 1 ms apart are one frame.
            let gap = pair[1].wrapping_sub(pair[0]);
            if known && gap > FRAME_WINDOW.0 {
                self.gaps.push(gap.unsigned_abs());
            }
        }
    }

    /// The fine scale's window for what was pushed.
    pub fn fine_window(&self) -> Micros {
        #[expect(clippy::cast_possible_truncation, reason = "a gap in µs, far below 2^53")]
        let median = self.gaps.quantile(0.5).unwrap_or(0.0) as i64;
        fine_window(Micros(median))
    }

    /// The gaps, in µs.
    pub fn gaps(&self) -> &Histogram {
        &self.gaps
    }
}

/// Columns of one stream, all of the same length.
#[derive(Clone, Copy, Debug)]
pub struct Columns<'a> {
    /// Times since the stream's start, µs.
    pub t: &'a [i64],
    /// Which events have a time; `None` when all have.
    pub measured: Option<&'a [bool]>,
    /// What each event carried.
    pub kind: &'a [Kind],
    /// Where in the answer it came.
    pub phase: &'a [Phase],
    /// Sizes in one unit: reported tokens, estimated tokens or characters, never mixed.
    pub size: &'a [u32],
}

/// Gaps between the content events of one stream, inside phases.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Row {
    /// Content events.
    pub events: u64,
    /// Gaps, those under 1 ms included.
    pub gaps: u64,
    /// Mean of the gaps, s.
    pub mean: f64,
    /// Their population standard deviation, s.
    pub sd: f64,
    /// The longest, s.
    pub max: f64,
    /// Gaps over 1 s.
    pub dead: u64,
    /// Gaps under 1 ms: events of one frame.
    pub joined: u64,
}

/// What one scale saw over all streams.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct ScaleTotals {
    /// Groups.
    pub groups: u64,
    /// Groups that a known silence inside a phase precedes.
    pub gaps: u64,
    /// Σ size over those groups.
    pub size: f64,
    /// Σ size × silence, s.
    pub size_seconds: f64,
}

impl ScaleTotals {
    /// Silence before the average token, s.
    pub fn weighted_gap(&self) -> Option<f64> {
        (self.size > 0.0).then(|| self.size_seconds / self.size)
    }
}

/// Second pass: gaps inside phases, and groups at both scales.
#[derive(Clone, Debug)]
pub struct Groups {
    fine: Running,
    coarse: Running,
}

impl Groups {
    /// Starts with the window that the first pass found.
    pub fn new(fine_window: Micros) -> Self {
        Self {
            fine: Running::new(fine_window.0, i64::MAX),
            coarse: Running::new(COARSE_WINDOW.0, COARSE_SPAN.0),
        }
    }

    /// Takes in one stream.
    pub fn push(&mut self, columns: &Columns<'_>) -> Row {
        let mut sums = Sums::default();
        let mut open: Option<Group> = None;
        let (mut of, mut at) = (Kind::Meta, Phase::Queued);
        let (mut unknown, mut structural) = (false, false);
        let rows = columns.t.iter().zip(columns.kind).zip(columns.phase.iter().zip(columns.size));
        for (i, ((&t, &kind), (&phase, &size))) in rows.enumerate() {
            if !matches!(kind, Kind::Reasoning | Kind::Summary | Kind::Text | Kind::Tool) {
                structural |= !matches!(kind, Kind::Ping | Kind::Comment);
                continue;
            }
            if columns.measured.is_some_and(|measured| !measured[i]) {
                unknown = true;
                continue;
            }
            sums.events += 1;
            let inside = of == kind && at == phase && !(structural && kind == Kind::Summary);
            let broken = std::mem::take(&mut unknown);
            (of, at, structural) = (kind, phase, false);
            let mut next = Group::of(t, size);
            if let Some(frame) = &mut open {
                let gap = t.saturating_sub(frame.last);
                if gap >= 0 && !broken {
                    if inside {
                        sums.push(gap);
                        next.within = gap;
                    }
                    if gap <= FRAME_WINDOW.0 {
                        frame.last = t;
                        frame.size += u64::from(size);
                        continue;
                    }
                    next.after = gap;
                }
                self.join(frame);
            }
            open = Some(next);
        }
        if let Some(frame) = &open {
            self.join(frame);
        }
        self.fine.close();
        self.coarse.close();
        sums.row()
    }

    /// A frame has ended.
    fn join(&mut self, frame: &Group) {
        self.fine.join(frame);
        self.coarse.join(frame);
    }

    /// Totals of the fine and the coarse scale.
    pub fn totals(&self) -> (ScaleTotals, ScaleTotals) {
        (self.fine.totals, self.coarse.totals)
    }
}

/// Moments of the gaps of one stream, in µs.
#[derive(Debug, Default)]
struct Sums {
    events: u64,
    gaps: u64,
    sum: f64,
    sum_squares: f64,
    longest: i64,
    dead: u64,
    joined: u64,
}

impl Sums {
    fn push(&mut self, gap: i64) {
        #[expect(clippy::cast_precision_loss, reason = "a gap in µs, far below 2^53")]
        let exact = gap as f64;
        self.sum += exact;
        self.sum_squares += exact * exact;
        self.longest = self.longest.max(gap);
        self.gaps += 1;
        self.dead += u64::from(gap > DEAD);
        self.joined += u64::from(gap <= FRAME_WINDOW.0);
    }

    #[expect(clippy::cast_precision_loss, reason = "counts and gaps in µs, far below 2^53")]
    fn row(&self) -> Row {
        let Self { events, gaps, dead, joined, .. } = *self;
        if gaps == 0 {
            return Row { events, ..Row::default() };
        }
        let n = gaps as f64;
        let mean = self.sum / n;
        Row {
            events,
            gaps,
            mean: mean / 1e6,
            sd: (self.sum_squares / n - mean * mean).max(0.0).sqrt() / 1e6,
            max: self.longest as f64 / 1e6,
            dead,
            joined,
        }
    }
}

/// No silence inside a phase came before.
const BORDER: i64 = -1;
/// So far from everything before that nothing joins it: the first, or after a clock step.
const ALONE: i64 = i64::MAX;

/// A frame, or a group of them. Silences are plain numbers, for there are as many as frames.
#[derive(Clone, Copy, Debug)]
struct Group {
    first: i64,
    last: i64,
    /// Silence before it inside a phase, µs; or [`BORDER`].
    within: i64,
    /// Distance from what came before, µs; or [`ALONE`].
    after: i64,
    size: u64,
}

impl Group {
    fn of(t: i64, size: u32) -> Self {
        Self { first: t, last: t, within: BORDER, after: ALONE, size: u64::from(size) }
    }
}

/// One scale, over the stream at hand and in total.
///
/// It is given whole frames, as [`crate::flush`] merges them before it weighs them against the span of a
/// coarse group; so both scales share the merging.
#[derive(Clone, Debug)]
struct Running {
    window: i64,
    span: i64,
    group: Option<Group>,
    totals: ScaleTotals,
}

impl Running {
    fn new(window: i64, span: i64) -> Self {
        // What is alone must stay so at any window.
        Self { window: window.min(ALONE - 1), span, group: None, totals: ScaleTotals::default() }
    }

    /// Adds the frame to the group, or closes that and begins another.
    fn join(&mut self, frame: &Group) {
        if let Some(group) = &mut self.group {
            if frame.after <= self.window && frame.last.saturating_sub(group.first) <= self.span {
                group.last = frame.last;
                group.size += frame.size;
                return;
            }
            self.totals.count(group);
        }
        self.group = Some(*frame);
    }

    fn close(&mut self) {
        if let Some(group) = self.group.take() {
            self.totals.count(&group);
        }
    }
}

impl ScaleTotals {
    fn count(&mut self, group: &Group) {
        self.groups += 1;
        if group.within != BORDER {
            #[expect(clippy::cast_precision_loss, reason = "a gap in µs and tokens, far below 2^53")]
            let (gap, size) = (group.within as f64 / 1e6, group.size as f64);
            self.gaps += 1;
            self.size += size;
            self.size_seconds += size * gap;
        }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use sseismo_trace::Delta;

    use super::*;
    use crate::flush::{Flush, Frames, Gap, Grouper};

    fn totals(deltas: &[Delta], mut grouper: Grouper) -> ScaleTotals {
        let mut frames = Frames::default();
        let mut flushes: Vec<Flush> = deltas.iter().filter_map(|delta| frames.push(delta)).collect();
        flushes.extend(frames.finish());
        let mut groups: Vec<Flush> = flushes.into_iter().filter_map(|frame| grouper.push(frame)).collect();
        groups.extend(grouper.finish());
        let mut totals = ScaleTotals { groups: groups.len() as u64, ..ScaleTotals::default() };
        for group in groups {
            if let Gap::Within(gap) = group.gap {
                totals.gaps += 1;
                totals.size += f64::from(group.size.tokens);
                totals.size_seconds += f64::from(group.size.tokens) * gap.seconds();
            }
        }
        totals
    }

    fn event() -> impl Strategy<Value = (Kind, i64, bool, u32)> {
        let kinds = [Kind::Reasoning, Kind::Reasoning, Kind::Summary, Kind::Text, Kind::Meta, Kind::Ping];
        let step = prop_oneof![0_i64..1_500, 1_000_i64..60_000, 500_000_i64..2_000_000, -5_000_i64..0];
        (prop::sample::select(kinds.to_vec()), step, prop::bool::weighted(0.95), 0_u32..80)
    }

    proptest! {
        /// Columns give the very groups that events give, at both scales.
        #[test]
        fn the_kernel_agrees_with_the_extraction(events in prop::collection::vec(event(), 0..200), window in 1_000_i64..30_000) {
            let mut t = 0;
            let deltas: Vec<Delta> = (0..).zip(events).map(|(seq, (kind, step, timed, tokens))| {
                t += step;
                let phase = match kind { Kind::Text => Phase::Output, _ => Phase::Reasoning };
                Delta { tokens: Some(tokens), ..Delta::new(seq, kind, phase, timed.then_some(Micros(t))) }
            }).collect();
            let t: Vec<i64> = deltas.iter().map(|delta| delta.t.map_or(0, |t| t.0)).collect();
            let measured: Vec<bool> = deltas.iter().map(|delta| delta.t.is_some()).collect();
            let kind: Vec<Kind> = deltas.iter().map(|delta| delta.kind).collect();
            let phase: Vec<Phase> = deltas.iter().map(|delta| delta.phase).collect();
            let size: Vec<u32> = deltas.iter().map(|delta| delta.tokens.unwrap_or(0)).collect();
            let mut groups = Groups::new(Micros(window));
            let row = groups.push(&Columns { t: &t, measured: Some(&measured), kind: &kind, phase: &phase, size: &size });
            let (fine, coarse) = groups.totals();
            for (got, want) in [(fine, totals(&deltas, Grouper::new(Micros(window), None))), (coarse, totals(&deltas, Grouper::coarse()))] {
                prop_assert_eq!((got.groups, got.gaps), (want.groups, want.gaps));
                prop_assert!((got.size - want.size).abs() < 1e-9 && (got.size_seconds - want.size_seconds).abs() < 1e-6);
            }
            let content = deltas.iter().filter(|delta| delta.is_content() && delta.t.is_some()).count() as u64;
            prop_assert_eq!(row.events, content);
        }
    }

    #[test]
    fn a_row_holds_the_moments_of_its_gaps() {
        let t = [0, 20_000, 60_000, 1_560_000, 1_560_500];
        let (kind, phase) = ([Kind::Text; 5], [Phase::Output; 5]);
        let mut groups = Groups::new(Micros(10_000));
        let row = groups.push(&Columns {
            t: &t,
            measured: None,
            kind: &kind,
            phase: &phase,
            size: &[1, 1, 1, 40, 40],
        });
        assert_eq!((row.events, row.gaps, row.dead, row.joined), (5, 4, 1, 1));
        assert!((row.mean - 0.390_125).abs() < 1e-12 && (row.max - 1.5).abs() < 1e-12);
        assert!((row.sd - 0.640_938_8).abs() < 1e-6, "{}", row.sd);
        let weighted = groups.totals().0.weighted_gap().unwrap();
        assert!((weighted - (0.02 + 0.04 + 80.0 * 1.5) / 82.0).abs() < 1e-12);
    }

    #[test]
    fn the_first_pass_needs_times_alone() {
        let mut gaps = FrameGaps::default();
        gaps.push(&[0, 500, 20_000, 10_000, 31_000], None);
        gaps.push(&[0, 40_000, 0, 80_000], Some(&[true, true, false, true]));
        assert_eq!(gaps.gaps().len(), 3, "19.5, 21 and 40 ms; not the step, the frame or the unmeasured");
        let window = gaps.fine_window().0;
        assert!((10_400..10_600).contains(&window), "half of 21 ms: {window}");
    }
}
