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
        let mut row = Row::default();
        let (mut sum, mut sum_squares, mut longest) = (0.0_f64, 0.0_f64, 0_i64);
        let mut before: Option<(i64, Kind, Phase)> = None;
        let (mut unknown, mut structural) = (false, false);
        for (i, ((&t, &kind), (&phase, &size))) in
            columns.t.iter().zip(columns.kind).zip(columns.phase.iter().zip(columns.size)).enumerate()
        {
            if !matches!(kind, Kind::Reasoning | Kind::Summary | Kind::Text | Kind::Tool) {
                structural |= !matches!(kind, Kind::Ping | Kind::Comment);
                continue;
            }
            if columns.measured.is_some_and(|measured| !measured[i]) {
                unknown = true;
                continue;
            }
            row.events += 1;
            let silence = match before {
                None => Silence::Border(0),
                Some((last, _, _)) if unknown || t < last => Silence::Unknown,
                Some((last, of, at))
                    if of == kind && at == phase && !(structural && kind == Kind::Summary) =>
                {
                    Silence::Within(t - last)
                }
                Some((last, _, _)) => Silence::Border(t - last),
            };
            if let Silence::Within(gap) = silence {
                #[expect(clippy::cast_precision_loss, reason = "a gap in µs, far below 2^53")]
                let exact = gap as f64;
                sum += exact;
                sum_squares += exact * exact;
                longest = longest.max(gap);
                row.gaps += 1;
                row.dead += u64::from(gap > DEAD);
                row.joined += u64::from(gap <= FRAME_WINDOW.0);
            }
            let first = before.is_none();
            self.fine.push(t, silence, size, first);
            self.coarse.push(t, silence, size, first);
            before = Some((t, kind, phase));
            (unknown, structural) = (false, false);
        }
        self.fine.close();
        self.coarse.close();
        finish(row, sum, sum_squares, longest)
    }

    /// Totals of the fine and the coarse scale.
    pub fn totals(&self) -> (ScaleTotals, ScaleTotals) {
        (self.fine.totals, self.coarse.totals)
    }
}

#[expect(clippy::cast_precision_loss, reason = "counts and gaps in µs, far below 2^53")]
fn finish(row: Row, sum: f64, sum_squares: f64, longest: i64) -> Row {
    if row.gaps == 0 {
        return row;
    }
    let n = row.gaps as f64;
    let mean = sum / n;
    Row {
        mean: mean / 1e6,
        sd: (sum_squares / n - mean * mean).max(0.0).sqrt() / 1e6,
        max: longest as f64 / 1e6,
        ..row
    }
}

/// The silence before an event.
#[derive(Clone, Copy, Debug)]
enum Silence {
    Within(i64),
    Border(i64),
    Unknown,
}

/// One scale, over the stream at hand and in total.
///
/// A frame is merged before it is weighed against the span of a coarse group, as [`crate::flush`] does:
/// the span counts whole frames. So the last frame is kept apart from the group until it has ended.
#[derive(Clone, Debug)]
struct Running {
    window: i64,
    span: i64,
    group: Option<Group>,
    frame: Option<Group>,
    totals: ScaleTotals,
}

#[derive(Clone, Copy, Debug)]
struct Group {
    first: i64,
    last: i64,
    /// Silence before it inside a phase, µs.
    within: Option<i64>,
    /// Distance from the group before; `None` over a clock step, which nothing joins.
    after: Option<i64>,
    size: u64,
}

impl Running {
    fn new(window: i64, span: i64) -> Self {
        Self { window, span, group: None, frame: None, totals: ScaleTotals::default() }
    }

    fn push(&mut self, t: i64, silence: Silence, size: u32, first: bool) {
        let (within, after) = match silence {
            Silence::Within(gap) => (Some(gap), Some(gap)),
            Silence::Border(gap) => (None, Some(gap).filter(|_| !first)),
            Silence::Unknown => (None, None),
        };
        if let (Some(gap), Some(frame)) = (after, &mut self.frame)
            && gap <= FRAME_WINDOW.0
        {
            frame.last = t;
            frame.size += u64::from(size);
            return;
        }
        let next = Group { first: t, last: t, within, after, size: u64::from(size) };
        if let Some(frame) = self.frame.replace(next) {
            self.join(frame);
        }
    }

    /// A frame has ended: it joins the group or closes it.
    fn join(&mut self, frame: Group) {
        if let (Some(gap), Some(group)) = (frame.after, &mut self.group)
            && gap <= self.window
            && frame.last - group.first <= self.span
        {
            group.last = frame.last;
            group.size += frame.size;
            return;
        }
        if let Some(group) = self.group.replace(frame) {
            self.count(group);
        }
    }

    fn count(&mut self, group: Group) {
        self.totals.groups += 1;
        if let Some(gap) = group.within {
            #[expect(clippy::cast_precision_loss, reason = "a gap in µs and tokens, far below 2^53")]
            let (gap, size) = (gap as f64 / 1e6, group.size as f64);
            self.totals.gaps += 1;
            self.totals.size += size;
            self.totals.size_seconds += size * gap;
        }
    }

    fn close(&mut self) {
        if let Some(frame) = self.frame.take() {
            self.join(frame);
        }
        if let Some(group) = self.group.take() {
            self.count(group);
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
