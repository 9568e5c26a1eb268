//! Streams to metrics: follows each stream from its beginning to its end.
//!
//! In: beginnings, events and ends, in order per stream. Out: observations. It belongs to one thread and costs
//! a few tens of nanoseconds an event; the labels of a stream are looked up once, when it begins.

use std::collections::HashMap;
use std::sync::Arc;

use sseismo_trace::{Delta, Micros, Outcome, Summary};

use super::streams::{Handles, LATTICES};
use super::target::Target;
use super::{Loss, Metrics};

/// Events this close belong to one flush (the wider of the two merging windows of the `burst` signature).
const FLUSH: i64 = 30_000;
/// Silence before a flush that counts as dead air: the write-ups' 1 s.
const DEAD_AIR: i64 = 1_000_000;

/// Streams followed at a time. Ends can be lost when notes are dropped; when this many are open, those that
/// said nothing for [`FORGOTTEN`] are given up.
const MAX_LIVE: usize = 65_536;
/// An hour, µs.
const FORGOTTEN: i64 = 3_600_000_000;

/// Measures streams. See [`Metrics::meter`].
#[derive(Debug)]
pub struct Meter {
    metrics: Arc<Metrics>,
    targets: HashMap<Target, Arc<Handles>>,
    live: HashMap<u64, Live>,
    /// Events dropped by the tap, of ended streams.
    dropped: u64,
}

#[derive(Debug)]
struct Live {
    handles: Arc<Handles>,
    /// When it began, µs of the caller's clock.
    began: i64,
    first: Option<Micros>,
    last: Micros,
    flush: Flush,
    /// Characters of content after the first event, and of these, in bursts.
    chars: u64,
    burst_chars: u64,
    streamed: bool,
}

/// Content events without a pause.
#[derive(Clone, Copy, Debug, Default)]
struct Flush {
    chars: u64,
    events: u32,
    after_dead_air: bool,
}

impl Live {
    fn delta(&mut self, delta: &Delta) {
        let Some(t) = delta.t.filter(|_| delta.is_content()) else { return };
        let chars = u64::from(delta.chars);
        if self.first.is_none() {
            self.first = Some(t);
            if self.streamed {
                self.handles.first_token.observe(t.seconds());
            }
        } else {
            let gap = t.since(self.last);
            self.handles.gap.observe(gap.seconds().max(0.0));
            if gap.0 > FLUSH {
                self.end_flush();
                self.flush = Flush { after_dead_air: gap.0 >= DEAD_AIR, ..Flush::default() };
            }
            self.chars += chars;
        }
        self.last = t;
        self.flush.chars += chars;
        self.flush.events += 1;
    }

    /// A flush of at least two events after dead air is a burst; one large honest frame is not.
    fn end_flush(&mut self) {
        if self.flush.after_dead_air && self.flush.events >= 2 {
            self.burst_chars += self.flush.chars;
        }
    }

    #[expect(clippy::cast_precision_loss, reason = "characters of one stream")]
    fn burst_share(&mut self) -> Option<f64> {
        self.end_flush();
        (self.chars > 0).then(|| self.burst_chars as f64 / self.chars as f64)
    }
}

impl Meter {
    pub(super) fn new(metrics: Arc<Metrics>) -> Self {
        Self { metrics, targets: HashMap::new(), live: HashMap::new(), dropped: 0 }
    }

    /// A stream begins at `at`, on any clock that is the same for all calls.
    pub fn begin(&mut self, at: Micros, summary: &Summary) {
        if self.live.len() >= MAX_LIVE {
            self.forget(at);
        }
        let handles = self.handles(summary);
        handles.live.inc();
        let live = Live {
            handles,
            began: at.0,
            first: None,
            last: Micros(0),
            flush: Flush::default(),
            chars: 0,
            burst_chars: 0,
            streamed: summary.streamed != Some(false),
        };
        if let Some(before) = self.live.insert(summary.stream_id, live) {
            before.handles.live.dec();
        }
    }

    /// Events of a stream. Those of a stream whose beginning was lost are left out.
    pub fn deltas(&mut self, stream_id: u64, deltas: &[Delta]) {
        if let Some(live) = self.live.get_mut(&stream_id) {
            for delta in deltas {
                live.delta(delta);
            }
        }
    }

    /// A stream has ended.
    pub fn end(&mut self, summary: &Summary) {
        let live = self.live.remove(&summary.stream_id);
        let handles = match &live {
            Some(live) => Arc::clone(&live.handles),
            None => self.handles(summary),
        };
        if let Some(mut live) = live {
            handles.live.dec();
            if live.streamed {
                if let Some(share) = live.burst_share() {
                    handles.burst_share.observe(share);
                }
                if let Some(time) = per_token(&live, summary) {
                    handles.per_token.observe(time);
                }
            }
        }
        count_tokens(&handles, summary);
        if let Some(t) = summary.t_end {
            self.metrics.streams.ended(&handles, error_type(summary), t.seconds());
        }
        if summary.events_dropped > 0 {
            self.dropped += summary.events_dropped;
            self.metrics.total_dropped(Loss::Tap, self.dropped);
        }
    }

    fn handles(&mut self, summary: &Summary) -> Arc<Handles> {
        let target = self.metrics.targets.of(summary);
        if let Some(handles) = self.targets.get(&target) {
            return Arc::clone(handles);
        }
        let handles = Arc::new(self.metrics.streams.of(&target));
        self.targets.insert(target, Arc::clone(&handles));
        handles
    }

    /// Gives up streams whose end was lost; all of them when every one of them spoke lately.
    fn forget(&mut self, now: Micros) {
        let lately = |live: &Live| now.0 - live.began - live.last.0 < FORGOTTEN;
        let some = self.live.values().any(|live| !lately(live));
        self.live.retain(|_, live| {
            let keep = some && lately(live);
            if !keep {
                live.handles.live.dec();
            }
            keep
        });
    }
}

/// Seconds per output token after the first: only where the provider counted and the answer is whole.
#[expect(clippy::cast_precision_loss, reason = "tokens of one answer")]
fn per_token(live: &Live, summary: &Summary) -> Option<f64> {
    let tokens = summary.usage.output.filter(|tokens| *tokens >= 2)?;
    let span = live.last.since(live.first?);
    (summary.outcome == Outcome::Completed && span.0 > 0).then(|| span.seconds() / (tokens - 1) as f64)
}

#[expect(
    clippy::cast_precision_loss,
    clippy::cast_possible_truncation,
    clippy::cast_sign_loss,
    reason = "token counts are far below 2^53; fractions are sorted out before"
)]
fn count_tokens(handles: &Handles, summary: &Summary) {
    if let Some(tokens) = summary.usage.input {
        handles.input.observe(tokens as f64);
    }
    if let Some(tokens) = summary.usage.output {
        handles.output.observe(tokens as f64);
    }
    // A fraction is an estimate, and a sum of several rounds lies on no lattice.
    let whole = summary.usage.reasoning.filter(|count| *count >= 1.0 && count.fract().abs() < f64::EPSILON);
    if let Some(count) = whole.filter(|_| !summary.folded) {
        handles.reasoning_counts.inc();
        for (lattice, counter) in LATTICES.iter().zip(&handles.on_lattice) {
            if lattice.holds(count as u64) {
                counter.inc();
            }
        }
    }
}

/// OpenTelemetry's `error.type`: the HTTP status where that is the error, else how the stream ended; `None`
/// for what ended well.
fn error_type(summary: &Summary) -> Option<String> {
    if let Some(status) = summary.status.filter(|status| *status >= 400) {
        return Some(status.to_string());
    }
    let name = match summary.outcome {
        Outcome::Completed | Outcome::Incomplete => return None,
        Outcome::Failed => "failed",
        Outcome::Truncated => "truncated",
        Outcome::ClientGone => "client-gone",
        Outcome::Timeout => "timeout",
        Outcome::Unknown => "_OTHER",
    };
    Some(name.to_owned())
}
