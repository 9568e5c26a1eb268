//! The figures behind a verdict.

use std::collections::BTreeMap;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::baseline::Baseline;
use super::cause::Grid;
use super::tally::{Corked, Largest, Scale, Tally};
use crate::stats::histogram::Histogram;

/// Evidence of `burst`.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Evidence {
    /// What sizes are counted in: `tokens` (reported), `estimated tokens`, `characters` or `events`.
    pub unit: String,
    /// Streams, and those of them whose content events have times.
    pub streams: u64,
    /// Streams whose content events have times.
    pub timed_streams: u64,
    /// Content events.
    pub events: u64,
    /// Content events without a time.
    pub untimed_events: u64,
    /// Times that ran backwards: the gap there is unknown.
    pub clock_steps: u64,
    /// Gaps between frames (events less than 1 ms apart are one), inside a phase, ms.
    pub frame_gap_ms: Quantiles,
    /// The fine scale: W1 = min(30 ms, half the median frame gap).
    pub fine: Option<ScaleEvidence>,
    /// The coarse scale: 30 ms, groups of at most 100 ms.
    pub coarse: Option<ScaleEvidence>,
    /// Most hits in one stream.
    pub most_hits_in_a_stream: u64,
    /// Share of streaming time in silences of at least 0.5 s inside a phase.
    pub silent_share_500ms: Option<f64>,
    /// Share of streaming time in silences of at least 1 s inside a phase.
    pub silent_share_1s: Option<f64>,
    /// Gini coefficient of sizes over 100 ms bins, per stream of at least 30 gaps.
    pub gini_100ms: Quantiles,
    /// Coefficient of variation of frame gaps, per such stream. Reported, never alarmed on alone.
    pub cv: Quantiles,
    /// Burstiness B after Kim and Jo, per such stream. Reported, never alarmed on alone.
    pub burstiness: Quantiles,
    /// Local variation LV, per such stream. Reported, never alarmed on alone.
    pub lv: Quantiles,
    /// Silences over 1 s on the borders of phases: not stalls.
    pub border_silences_over_1s: u32,
    /// The longest of these, ms.
    pub longest_border_silence_ms: f64,
    /// Streams of at least 20 content events, and those of them that came in one read.
    pub long_streams: u64,
    /// Streams that came in one read.
    pub held_whole: u64,
    /// Content encodings of those, where the answer was compressed.
    pub held_encodings: BTreeMap<String, u64>,
    /// The even grid of a cork.
    pub grid: Option<GridEvidence>,
    /// The longest silence that ended in several events at once, when over 0.5 s.
    pub largest: Option<LateGroup>,
    /// Late groups by cause, each by itself, at the scale that decided; an even grid may tell more than they.
    pub causes: BTreeMap<String, u64>,
    /// Columns that would have told the cause.
    pub missing: Vec<String>,
    /// Smallest share of late, large groups that this n would have shown with 80 % power.
    pub detectable_share: Option<f64>,
}

/// Quantiles of a figure.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Quantiles {
    /// How many values.
    pub n: u64,
    /// Median.
    pub p50: Option<f64>,
    /// 95th percentile.
    pub p95: Option<f64>,
    /// 99th percentile.
    pub p99: Option<f64>,
    /// Largest.
    pub max: Option<f64>,
}

/// What one scale saw.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct ScaleEvidence {
    /// Frames closer than this are one group, ms.
    pub window_ms: f64,
    /// Groups.
    pub groups: u64,
    /// Groups that a known silence inside a phase precedes.
    pub gaps: u64,
    /// Groups that bring much after a stall.
    pub hits: u64,
    /// Silence before the average token, s.
    pub token_weighted_gap_s: Option<f64>,
    /// Median size of a group, in the unit.
    pub size_p50: Option<f64>,
    /// 95th percentile of it.
    pub size_p95: Option<f64>,
    /// Events per group, mean.
    pub events_per_group: Option<f64>,
}

/// An even grid.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(tag = "kind", rename_all = "kebab-case")]
pub enum GridEvidence {
    /// A timer releases the groups.
    Period {
        /// From group start to group start, ms.
        ms: f64,
        /// Half the span of the middle 68 % over the median.
        spread: f64,
    },
    /// A full buffer releases the groups.
    Bytes {
        /// Bytes of a group.
        bytes: f64,
        /// Half the span of the middle 68 % over the median.
        spread: f64,
    },
}

impl From<Corked> for GridEvidence {
    fn from(corked: Corked) -> Self {
        match corked.grid {
            Grid::Period { ms } => Self::Period { ms, spread: corked.spread },
            Grid::Bytes { bytes, .. } => Self::Bytes { bytes, spread: corked.spread },
        }
    }
}

/// One late group.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct LateGroup {
    /// The silence before it, ms.
    pub gap_ms: f64,
    /// Its events.
    pub events: u32,
    /// How long it took, ms.
    pub span_ms: f64,
    /// Reads that brought it; `None` where reads were not seen.
    pub reads: Option<u32>,
    /// A keep-alive came during the silence.
    pub keepalive: bool,
}

impl From<&Largest> for LateGroup {
    fn from(largest: &Largest) -> Self {
        Self {
            gap_ms: largest.gap.seconds() * 1e3,
            events: largest.group.size.events,
            span_ms: largest.group.last.since(largest.group.first).seconds() * 1e3,
            reads: largest.group.reads.map(|(first, last)| last - first + 1),
            keepalive: largest.group.keepalive,
        }
    }
}

impl From<&Scale> for ScaleEvidence {
    fn from(scale: &Scale) -> Self {
        Self {
            window_ms: scale.window.seconds() * 1e3,
            groups: scale.groups,
            gaps: scale.gaps,
            hits: scale.hits,
            token_weighted_gap_s: scale.weighted_gap(),
            size_p50: scale.sizes.quantile(0.5),
            size_p95: scale.sizes.quantile(0.95),
            events_per_group: scale.events_per_group(),
        }
    }
}

impl Evidence {
    /// What the first pass alone knows.
    pub(super) fn of_baseline(baseline: &Baseline) -> Self {
        Self {
            unit: baseline.unit().name().to_owned(),
            streams: baseline.streams,
            timed_streams: baseline.timed_streams,
            events: baseline.content,
            untimed_events: baseline.untimed,
            clock_steps: baseline.clock_steps,
            frame_gap_ms: Quantiles {
                n: baseline.frame_gaps.len(),
                p50: baseline.frame_gap_ms(0.5),
                p95: baseline.frame_gap_ms(0.95),
                p99: baseline.frame_gap_ms(0.99),
                max: baseline.longest_frame_gap_ms(),
            },
            ..Self::default()
        }
    }

    /// Adds what the second pass saw.
    #[must_use]
    pub(super) fn with(self, tally: &Tally) -> Self {
        let share = |part: f64| (tally.seconds > 0.0).then(|| part / tally.seconds);
        Self {
            fine: Some((&tally.fine).into()),
            coarse: Some((&tally.coarse).into()),
            most_hits_in_a_stream: tally.most_hits,
            silent_share_500ms: share(tally.silent_500ms),
            silent_share_1s: share(tally.silent_1s),
            gini_100ms: thousandths(&tally.gini, 0.0),
            cv: thousandths(&tally.cv, 0.0),
            burstiness: thousandths(&tally.kim_jo, 1.0),
            lv: thousandths(&tally.lv, 0.0),
            border_silences_over_1s: tally.borders.over_1s,
            longest_border_silence_ms: tally.borders.longest.seconds() * 1e3,
            long_streams: tally.long_streams,
            held_whole: tally.held_whole,
            held_encodings: tally.held_encodings.clone(),
            largest: tally.largest.as_ref().map(LateGroup::from),
            ..self
        }
    }
}

#[expect(clippy::cast_precision_loss, reason = "thousandths of small figures")]
fn thousandths(histogram: &Histogram, shift: f64) -> Quantiles {
    let at = |q| histogram.quantile(q).map(|value| value / 1e3 - shift);
    let max = histogram.max().map(|value| value as f64 / 1e3 - shift);
    // The middle of the last bucket may lie above the largest value in it.
    let at = |q| at(q).zip(max).map(|(value, max)| value.min(max));
    Quantiles { n: histogram.len(), p50: at(0.5), p95: at(0.95), p99: at(0.99), max }
}
