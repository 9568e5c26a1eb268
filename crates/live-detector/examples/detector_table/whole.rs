//! The whole `Detector` with its default options: all signatures, one false alarm of the process in 30 days.

use std::collections::BTreeMap;

use sseismo_live_detector::{Baselines, Detector, Options};
use sseismo_trace::{Micros, Signal, SignalState, SignatureId, Summary, UtcMicros};

use crate::traffic::Stream;

const SECOND: i64 = 1_000_000;
/// Between two streams.
const IDLE: i64 = SECOND / 10;
/// Silence in which every signal ends.
const LONG_IDLE: i64 = 1_200 * SECOND;

/// The detector, and a clock that goes on from stream to stream.
pub(crate) struct Whole {
    detector: Detector,
    now: i64,
    next_tick: i64,
    /// Onsets by signature.
    pub(crate) onsets: BTreeMap<SignatureId, usize>,
}

impl Whole {
    /// Learns `streams`, one after another.
    pub(crate) fn learn(streams: impl Iterator<Item = Stream>) -> Baselines {
        let mut whole = Self::of(Detector::new(Options::default()));
        for stream in streams {
            whole.alarms(&stream);
        }
        whole.detector.save()
    }

    /// A process that starts with what was learned.
    pub(crate) fn new(baselines: Baselines) -> Self {
        Self::of(Detector::with_baselines(Options::default(), baselines))
    }

    fn of(detector: Detector) -> Self {
        Self { detector, now: 0, next_tick: SECOND, onsets: BTreeMap::new() }
    }

    /// Twenty minutes without traffic.
    pub(crate) fn rest(&mut self) {
        self.until(self.now + LONG_IDLE);
        self.detector.take_signals();
    }

    /// Times of onsets of `burst` in one stream, seconds since its first content.
    pub(crate) fn alarms(&mut self, stream: &Stream) -> Vec<f64> {
        let started = self.now;
        let summary = Summary { started_at: Some(UtcMicros(started)), ..stream.summary.clone() };
        let head = Summary {
            stream_id: summary.stream_id,
            api: summary.api,
            upstream: summary.upstream.clone(),
            model_requested: summary.model_requested.clone(),
            effort: summary.effort.clone(),
            started_at: summary.started_at,
            ..Summary::default()
        };
        let mut alarms = Vec::new();
        self.detector.begin(UtcMicros(started), &head);
        for delta in &stream.deltas {
            if let Some(at) = delta.t {
                self.until(started + at.0);
            }
            self.detector.deltas(summary.stream_id, std::slice::from_ref(delta));
            self.collect(started, stream.begin, &mut alarms);
        }
        self.until(self.now.max(started + summary.t_end.unwrap_or_default().0));
        self.detector.end(UtcMicros(self.now), &summary);
        self.collect(started, stream.begin, &mut alarms);
        self.until(self.now + IDLE);
        alarms
    }

    /// Lets time pass, second by second.
    fn until(&mut self, at: i64) {
        while self.next_tick <= at {
            self.detector.tick(UtcMicros(self.next_tick));
            self.next_tick += SECOND;
        }
        self.now = self.now.max(at);
    }

    fn collect(&mut self, started: i64, begin: Micros, alarms: &mut Vec<f64>) {
        let onset = |signal: &Signal| signal.state == SignalState::Onset;
        for signal in self.detector.take_signals().into_iter().filter(onset) {
            let signature = signal.detail.signature();
            *self.onsets.entry(signature).or_default() += 1;
            if signature == SignatureId::Burst {
                alarms.push(Micros(signal.at.0 - started).since(begin).seconds().max(0.0));
            }
        }
    }
}
