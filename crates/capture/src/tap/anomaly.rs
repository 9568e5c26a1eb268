//! Which streams sampling must not leave out.
//!
//! In: events as they come, and a finished record. Out: whether something went wrong in it.

use sseismo_trace::{Delta, Micros, Outcome, Phase};

use super::Record;

/// A gap within one phase that no healthy stream shows: more than 750 ms and more than 50 times the
/// stream's median. In 22,856 gaps of 180 healthy GPT-4o streams neither was ever reached.
const STALL_US: i64 = 750_000;
const STALL_MEDIANS: i64 = 50;

/// Reads closer than this belong together; gaps below it say nothing about the sender (measured: only
/// 1.6 % of gaps lie between 0.1 and 1 ms).
const MERGE_US: i64 = 1_000;

/// Whether something went wrong in the stream: it did not end well, events were lost, or it stalled.
pub fn is_anomalous(record: &Record) -> bool {
    let summary = &record.summary;
    summary.outcome != Outcome::Completed
        || summary.status.is_some_and(|status| status >= 400)
        || summary.attempt.is_some_and(|attempt| attempt > 1)
        || summary.events_dropped > 0
        || record.stalled
}

/// The gaps of one stream: all that is kept of its events to tell whether it stalled.
#[derive(Debug, Default)]
pub(crate) struct Gaps {
    /// Those that say something, µs; more than an hour and eleven minutes is that long.
    all: Vec<u32>,
    last: Option<(Micros, Phase)>,
    /// The longest within one phase, µs.
    longest: u32,
}

impl Gaps {
    pub(crate) fn push(&mut self, delta: &Delta) {
        if !delta.is_content() {
            return;
        }
        let before = std::mem::replace(&mut self.last, delta.t.map(|t| (t, delta.phase)));
        let (Some((before, phase)), Some(t)) = (before, delta.t) else { return };
        let gap = t.since(before).0;
        if gap >= MERGE_US {
            let gap = u32::try_from(gap).unwrap_or(u32::MAX);
            self.all.push(gap);
            if phase == delta.phase {
                self.longest = self.longest.max(gap);
            }
        }
    }

    /// Whether a content event came [`STALL_US`] after the one before it in the same phase.
    pub(crate) fn stalled(mut self) -> bool {
        if i64::from(self.longest) < STALL_US {
            return false;
        }
        let middle = self.all.len() / 2;
        let (_, median, _) = self.all.select_nth_unstable(middle);
        i64::from(self.longest) > i64::from(*median) * STALL_MEDIANS || self.all.len() < 3
    }
}

#[cfg(test)]
mod tests {
    use sseismo_trace::{Kind, Micros, Phase, Summary};

    use super::*;

    fn stalled(times_ms: &[i64]) -> bool {
        let mut gaps = Gaps::default();
        for (seq, &ms) in (0..).zip(times_ms) {
            gaps.push(&Delta::new(seq, Kind::Reasoning, Phase::Reasoning, Some(Micros(ms * 1_000))));
        }
        gaps.stalled()
    }

    fn record(times_ms: &[i64]) -> Record {
        let summary = Summary { outcome: Outcome::Completed, ..Summary::default() };
        Record { stalled: stalled(times_ms), summary, ..Record::default() }
    }

    #[test]
    fn a_stalled_or_broken_stream_is_an_anomaly() {
        assert!(!is_anomalous(&record(&[0, 10, 20, 30])));
        assert!(is_anomalous(&record(&[0, 10, 20, 1_000, 1_010])));
        let mut broken = record(&[0, 10]);
        broken.summary.outcome = Outcome::Truncated;
        assert!(is_anomalous(&broken));
    }

    #[test]
    fn a_slow_but_even_stream_is_no_stall() {
        assert!(!stalled(&[0, 900, 1_800, 2_700, 3_600]));
    }
}
