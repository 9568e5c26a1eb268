//! Burstiness of the last eight seconds of a stream: the write-ups alarm at B > 0.47.
//!
//! Source: Kim and Jo, Phys. Rev. E 94 (2016) 032311, for few events.

use std::collections::VecDeque;

use super::Rival;
use crate::traffic::Seen;

const WINDOW_S: f32 = 8.0;
const FEWEST: f64 = 5.0;

/// The detector.
pub(crate) struct Window {
    limit: f64,
    /// Time and length of each gap.
    gaps: VecDeque<(f32, f64)>,
    sum: f64,
    squares: f64,
    /// The window is full from here on.
    from: f32,
}

impl Window {
    pub(crate) fn new(limit: f64) -> Self {
        Self { limit, gaps: VecDeque::new(), sum: 0.0, squares: 0.0, from: WINDOW_S }
    }

    fn restart(&mut self, at: f32) {
        *self = Self { from: at + WINDOW_S, ..Self::new(self.limit) };
    }

    fn burstiness(&self) -> f64 {
        let n: f64 = super::real(self.gaps.len());
        if n < FEWEST || self.sum <= 0.0 {
            return -1.0;
        }
        let mean = self.sum / n;
        let r = (self.squares / n - mean * mean).max(0.0).sqrt() / mean;
        let (more, less) = ((n + 2.0).sqrt(), n.sqrt());
        (more * r - less) / ((more - 2.0) * r + less)
    }
}

impl Rival for Window {
    fn begin(&mut self) {
        self.restart(0.0);
    }

    fn frame(&mut self, frame: &Seen) -> bool {
        let Some(gap) = frame.gap.map(f64::from) else { return false };
        self.gaps.push_back((frame.at, gap));
        (self.sum, self.squares) = (self.sum + gap, self.squares + gap * gap);
        while let Some(&(at, gone)) = self.gaps.front().filter(|(at, _)| frame.at - at > WINDOW_S) {
            debug_assert!(at <= frame.at);
            (self.sum, self.squares) = (self.sum - gone, self.squares - gone * gone);
            self.gaps.pop_front();
        }
        let alarm = frame.at >= self.from && self.burstiness() > self.limit;
        if alarm {
            self.restart(frame.at);
        }
        alarm
    }
}
