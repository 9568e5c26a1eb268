//! Three long gaps within a minute of a route.

use std::collections::VecDeque;

use super::Rival;
use crate::traffic::Seen;

const HITS: usize = 3;
const WINDOW_S: f64 = 60.0;

/// The last hits of a route, whose streams come one after the other.
#[derive(Default)]
pub(crate) struct Recent {
    times: VecDeque<f64>,
    /// Streaming time before this stream.
    before: f64,
    now: f64,
}

impl Recent {
    /// A new stream begins.
    pub(crate) fn begin(&mut self) {
        self.before = self.now;
    }

    /// Takes in a hit or none, seconds since the stream's first content; whether there are enough.
    pub(crate) fn push(&mut self, at: f32, hit: bool) -> bool {
        self.now = self.before + f64::from(at);
        if !hit {
            return false;
        }
        self.times.push_back(self.now);
        while self.times.front().is_some_and(|first| self.now - first > WINDOW_S) {
            self.times.pop_front();
        }
        let alarm = self.times.len() >= HITS;
        if alarm {
            self.times.clear();
        }
        alarm
    }
}

/// The detector.
pub(crate) struct GapCount {
    gap: f64,
    recent: Recent,
}

impl GapCount {
    pub(crate) fn new(gap: f64) -> Self {
        Self { gap, recent: Recent::default() }
    }
}

impl Rival for GapCount {
    fn begin(&mut self) {
        self.recent.begin();
    }

    fn frame(&mut self, frame: &Seen) -> bool {
        self.recent.push(frame.at, frame.gap.is_some_and(|gap| f64::from(gap) >= self.gap))
    }
}
