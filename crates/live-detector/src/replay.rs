//! Recorded streams through the detector, at their recorded times.
//!
//! In: whole streams in the order of their starts. Out: what the detector would have said at the time. Streams
//! that overlapped are interleaved event by event, and the detector is told of a stream's end, its usage and
//! its outcome, only when it ended. Memory grows with the streams that run at once.

use std::cmp::Reverse;
use std::collections::{BTreeMap, BinaryHeap};

use sseismo_trace::{Delta, Outcome, Signal, Summary, Usage, UtcMicros};

use crate::{Detector, Options};

/// Time passes in steps of this.
const TICK: i64 = 1_000_000;
/// After so long without any stream nothing changes any more, and the rest is skipped: longer than any signal
/// and any turn lives.
const IDLE: i64 = 1_200_000_000;

/// A stream under way.
#[derive(Debug)]
struct Running {
    summary: Summary,
    started: i64,
    deltas: Vec<Delta>,
    next: usize,
}

impl Running {
    /// When it gives its next event, or ends.
    fn due(&self) -> i64 {
        let known = self.deltas[self.next..].iter().find_map(|delta| delta.t);
        let last = || self.deltas.iter().rev().find_map(|delta| delta.t).unwrap_or_default();
        let at = if self.next < self.deltas.len() {
            known.unwrap_or_else(last)
        } else {
            self.summary.t_end.unwrap_or_default().max(last())
        };
        self.started.saturating_add(at.0)
    }
}

/// Runs recorded streams through a detector.
#[derive(Debug)]
pub struct Replay {
    detector: Detector,
    running: BTreeMap<u64, Running>,
    /// When each of them is due, earliest first.
    due: BinaryHeap<Reverse<(i64, u64)>>,
    /// The detector's next tick.
    tick: Option<i64>,
    heard: i64,
    number: u64,
    late: u64,
}

impl Replay {
    /// Starts with a new detector.
    pub fn new(options: Options) -> Self {
        Self {
            detector: Detector::new(options),
            running: BTreeMap::new(),
            due: BinaryHeap::new(),
            tick: None,
            heard: 0,
            number: 0,
            late: 0,
        }
    }

    /// Takes in the next stream: everything before its start happens first. A stream that starts earlier than
    /// the one before it is counted in [`Self::late`], and its past counts as now.
    pub fn push(&mut self, started: UtcMicros, summary: &Summary, deltas: &[Delta]) {
        self.late += u64::from(self.number > 0 && started.0 < self.heard);
        self.until(started.0);
        self.heard = self.heard.max(started.0);
        let head = Summary { started_at: Some(started), ..head(summary) };
        self.detector.begin(started, &head);
        let mut running = Running {
            summary: Summary { started_at: Some(started), ..summary.clone() },
            started: started.0,
            deltas: deltas.to_vec(),
            next: 0,
        };
        // Sums of flushes keep the place of their first event: no event is missing for that.
        if summary.events_dropped == 0 {
            for (delta, place) in running.deltas.iter_mut().zip(0..) {
                delta.seq = place;
            }
        }
        self.number += 1;
        self.due.push(Reverse((running.due(), self.number)));
        self.running.insert(self.number, running);
    }

    /// Lets everything happen that is left, and ten minutes of silence after it.
    pub fn finish(&mut self) {
        while let Some(Reverse((at, _))) = self.due.peek() {
            self.until(at.saturating_add(1));
        }
        if self.number > 0 {
            self.until(self.heard.saturating_add(IDLE / 2));
        }
    }

    /// The signals since the last call.
    pub fn take_signals(&mut self) -> Vec<Signal> {
        self.detector.take_signals()
    }

    /// The detector, as it stands.
    pub fn detector(&self) -> &Detector {
        &self.detector
    }

    /// Streams that came in the wrong order.
    pub fn late(&self) -> u64 {
        self.late
    }

    /// Lets everything happen that is due before `to`, for those who look on while it happens.
    pub fn advance(&mut self, to: UtcMicros) {
        self.until(to.0);
    }

    /// Whether a stream has not ended yet.
    pub fn is_running(&self) -> bool {
        !self.due.is_empty()
    }

    /// Lets everything happen that is due before `until`.
    fn until(&mut self, until: i64) {
        while let Some(&Reverse((at, number))) = self.due.peek().filter(|Reverse((at, _))| *at < until) {
            self.ticks(at);
            self.due.pop();
            self.heard = self.heard.max(at);
            self.step(at, number);
        }
        self.ticks(until);
    }

    fn ticks(&mut self, until: i64) {
        let first = self.tick.unwrap_or(until);
        let mut at = first;
        while at < until {
            if at.saturating_sub(self.heard) > IDLE && self.due.is_empty() {
                at = until;
                break;
            }
            self.detector.tick(UtcMicros(at));
            at += TICK;
        }
        self.tick = Some(at);
    }

    /// One event, or the end, of one stream.
    fn step(&mut self, at: i64, number: u64) {
        let Some(running) = self.running.get_mut(&number) else { return };
        if let Some(delta) = running.deltas.get(running.next) {
            running.next += 1;
            self.detector.deltas(running.summary.stream_id, std::slice::from_ref(delta));
            self.due.push(Reverse((running.due().max(at), number)));
            return;
        }
        self.detector.end(UtcMicros(at), &running.summary);
        self.running.remove(&number);
    }
}

/// What is known of a stream when its request is sent.
fn head(summary: &Summary) -> Summary {
    Summary {
        model_served: summary.model_requested.is_none().then(|| summary.model_served.clone()).flatten(),
        t_headers: None,
        t_first_byte: None,
        t_first_reasoning: None,
        t_first_output: None,
        t_end: None,
        status: None,
        outcome: Outcome::Unknown,
        usage: Usage::default(),
        reasoning_tokens_est: None,
        content_check: sseismo_trace::ContentCheck::NotChecked,
        cost_usd: None,
        retry_after_ms: None,
        labels: BTreeMap::new(),
        ..summary.clone()
    }
}

#[cfg(test)]
mod tests {
    use sseismo_trace::{Kind, Micros, Phase};

    use super::*;

    fn stream(id: u64, times: &[i64]) -> (Summary, Vec<Delta>) {
        let deltas = (0..)
            .zip(times)
            .map(|(seq, t)| Delta::new(seq, Kind::Text, Phase::Output, Some(Micros(t * TICK))))
            .collect();
        (Summary { stream_id: id, ..Summary::default() }, deltas)
    }

    #[test]
    fn streams_overlap_as_they_did() {
        let mut replay = Replay::new(Options::default());
        let (long, long_deltas) = stream(1, &[1, 50]);
        let (short, short_deltas) = stream(2, &[1, 2]);
        replay.push(UtcMicros(0), &long, &long_deltas);
        replay.push(UtcMicros(10 * TICK), &short, &short_deltas);
        assert_eq!(replay.detector().view().live_streams, 2);
        let (third, none) = stream(3, &[]);
        replay.push(UtcMicros(20 * TICK), &third, &none);
        assert_eq!(replay.detector().view().live_streams, 2, "the short one ended, the third began");
        replay.finish();
        let view = replay.detector().view();
        assert_eq!((view.live_streams, view.stray_deltas, replay.late()), (0, 0, 0));
        assert_eq!(
            view.at,
            UtcMicros(49 * TICK + IDLE / 2),
            "the last tick before ten minutes after the last event"
        );
    }

    /// A year between two streams takes no year of ticks.
    #[test]
    fn long_silences_are_skipped() {
        let mut replay = Replay::new(Options::default());
        let (one, deltas) = stream(1, &[1]);
        replay.push(UtcMicros(0), &one, &deltas);
        replay.push(UtcMicros(31_536_000 * TICK), &one, &deltas);
        replay.finish();
        assert_eq!(replay.detector().view().live_streams, 0);
    }
}
