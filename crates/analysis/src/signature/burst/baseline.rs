//! First pass: what is usual in the scope.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};
use sseismo_trace::{Api, Delta, Kind, Micros, Stream, Summary, TimeSource, UtcMicros};

use crate::flush::{Frames, Gap, Size, fine_window};
use crate::stats::histogram::Histogram;

/// Characters of one token, for thresholds in tokens where only characters are known: a rule of thumb for
/// common English text (<https://platform.openai.com/tokenizer>), not a measurement of the model at hand,
/// and why the unit is part of the evidence.
const CHARS_PER_TOKEN: u32 = 4;

/// What sizes are counted in, the best that the scope's events carry. Reported and estimated tokens
/// never mix.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Unit {
    /// Tokens that the provider reported.
    Tokens,
    /// Tokens estimated from characters.
    EstimatedTokens,
    /// Characters.
    Characters,
    /// Events, where they carry no size.
    Events,
}

impl Unit {
    /// The name used in reports.
    pub fn name(self) -> &'static str {
        match self {
            Self::Tokens => "tokens",
            Self::EstimatedTokens => "estimated tokens",
            Self::Characters => "characters",
            Self::Events => "events",
        }
    }

    /// A size in this unit.
    pub fn of(self, size: &Size) -> u32 {
        match self {
            Self::Tokens => size.tokens,
            Self::EstimatedTokens => size.tokens_est,
            Self::Characters => size.chars,
            Self::Events => size.events,
        }
    }

    /// A threshold in tokens, in this unit; events say nothing about tokens.
    pub fn scaled(self, tokens: u32) -> Option<u32> {
        match self {
            Self::Tokens | Self::EstimatedTokens => Some(tokens),
            Self::Characters => Some(tokens * CHARS_PER_TOKEN),
            Self::Events => None,
        }
    }
}

/// How many events carry a size, and how large one usually is.
#[derive(Debug, Default)]
struct Sizes {
    events: u64,
    tokens: Histogram,
    tokens_est: Histogram,
    chars: Histogram,
}

impl Sizes {
    fn push(&mut self, delta: &Delta) {
        self.events += 1;
        if let Some(tokens) = delta.tokens {
            self.tokens.push(u64::from(tokens));
        }
        if let Some(tokens) = delta.tokens_est {
            self.tokens_est.push(u64::from(tokens));
        }
        if delta.chars > 0 {
            self.chars.push(u64::from(delta.chars));
        }
    }

    /// A unit serves when 19 of 20 events carry it.
    fn unit(&self) -> Unit {
        let carried =
            |histogram: &Histogram| !histogram.is_empty() && histogram.len() * 20 >= self.events * 19;
        if carried(&self.tokens) {
            Unit::Tokens
        } else if carried(&self.tokens_est) {
            Unit::EstimatedTokens
        } else if carried(&self.chars) {
            Unit::Characters
        } else {
            Unit::Events
        }
    }

    fn median(&self, unit: Unit) -> f64 {
        match unit {
            Unit::Tokens => self.tokens.quantile(0.5),
            Unit::EstimatedTokens => self.tokens_est.quantile(0.5),
            Unit::Characters => self.chars.quantile(0.5),
            Unit::Events => Some(1.0),
        }
        .unwrap_or(1.0)
    }
}

/// What the first pass learns. Constant in size but for the minutes in which something was throttled.
#[derive(Debug, Default)]
pub(super) struct Baseline {
    pub(super) streams: u64,
    /// Streams with content events that have times.
    pub(super) timed_streams: u64,
    /// Content events.
    pub(super) content: u64,
    pub(super) untimed: u64,
    pub(super) clock_steps: u64,
    /// Streams whose times are the provider's own.
    pub(super) server_clock: u64,
    /// Streams of an API or a model whose honest frames are large.
    large_frames: u64,
    pub(super) frame_gaps: Histogram,
    reasoning: Sizes,
    all: Sizes,
    throttled: BTreeMap<i64, u32>,
}

impl Baseline {
    pub(super) fn push(&mut self, stream: &Stream<'_>) {
        let summary = stream.summary;
        self.streams += 1;
        self.large_frames += u64::from(sends_large_frames(summary));
        self.server_clock += u64::from(summary.time_source == TimeSource::Server);
        if let (true, Some(at)) = (is_throttled(summary.status, summary.retry_after_ms), summary.started_at) {
            *self.throttled.entry(minute(at)).or_default() += 1;
        }
        let mut frames = Frames::default();
        let mut timed = 0_u64;
        for delta in stream.deltas {
            if delta.is_content() {
                self.content += 1;
                timed += u64::from(delta.t.is_some());
                self.all.push(delta);
                if matches!(delta.kind, Kind::Reasoning | Kind::Summary) {
                    self.reasoning.push(delta);
                }
            }
            if let Some(Gap::Within(gap)) = frames.push(delta).map(|frame| frame.gap) {
                self.frame_gaps.push(gap.0.unsigned_abs());
            }
        }
        if let Some(Gap::Within(gap)) = frames.finish().map(|frame| frame.gap) {
            self.frame_gaps.push(gap.0.unsigned_abs());
        }
        self.untimed += u64::from(frames.untimed_events);
        self.clock_steps += u64::from(frames.clock_steps);
        self.timed_streams += u64::from(timed > 0);
    }

    /// Sizes are judged by reasoning where there is any: only there do some dialects report tokens.
    fn sizes(&self) -> &Sizes {
        if self.reasoning.events > 0 { &self.reasoning } else { &self.all }
    }

    pub(super) fn unit(&self) -> Unit {
        self.sizes().unit()
    }

    /// The usual size of one event, in `unit`.
    pub(super) fn event_size(&self, unit: Unit) -> f64 {
        self.sizes().median(unit)
    }

    pub(super) fn fine_window(&self) -> Micros {
        #[expect(clippy::cast_possible_truncation, reason = "a gap in µs, far below 2^53")]
        let median = self.frame_gaps.quantile(0.5).unwrap_or(0.0) as i64;
        fine_window(Micros(median))
    }

    /// Quantile of the frame gaps, in ms.
    pub(super) fn frame_gap_ms(&self, q: f64) -> Option<f64> {
        self.frame_gaps.quantile(q).map(|gap| gap / 1e3)
    }

    #[expect(clippy::cast_precision_loss, reason = "a gap in µs, far below 2^53")]
    pub(super) fn longest_frame_gap_ms(&self) -> Option<f64> {
        self.frame_gaps.max().map(|gap| gap as f64 / 1e3)
    }

    /// Whether most streams are of an API or a model whose honest frames hold 40 tokens and more.
    pub(super) fn has_large_frames(&self) -> bool {
        self.large_frames * 2 > self.streams
    }

    /// Whether something of this scope was throttled within a minute of `at`.
    pub(super) fn was_throttled(&self, at: Option<UtcMicros>) -> bool {
        at.is_some_and(|at| self.throttled.range(minute(at) - 1..=minute(at) + 1).next().is_some())
    }
}

/// Gemini's thoughts come in frames of 360 characters at the median, whatever API passes them on.
pub fn sends_large_frames(summary: &Summary) -> bool {
    summary.api == Some(Api::GenerateContent) || summary.model().is_some_and(|model| model.contains("gemini"))
}

/// 429 (too many requests), 529 (Anthropic: overloaded), or a Retry-After header.
fn is_throttled(status: Option<u16>, retry_after_ms: Option<u64>) -> bool {
    matches!(status, Some(429 | 529)) || retry_after_ms.is_some()
}

fn minute(at: UtcMicros) -> i64 {
    at.0.div_euclid(60_000_000)
}
