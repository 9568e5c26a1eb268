//! How late notes come, so that no silence is seen where a note is still on its way.
//!
//! In: notes as they arrive, and how many were dropped. Out: the moment up to which everything is known, and whether
//! silences can be believed.

use sseismo_trace::{Delta, UtcMicros};

/// Notes come at least this much late at times, µs: the tap gathers events for half a second; as long again for a
/// busy machine.
const LEAST: i64 = 1_000_000;
/// No note is waited for longer, µs: a clock that was set must not stop the detector.
const MOST: i64 = 60_000_000;
/// The latest note is remembered for one to two of these, µs.
const MEMORY: i64 = 60_000_000;
/// Looks after a loss in which its traces may still show: the queue holds what came before it, and one look reads it
/// all.
const LOOKS: u8 = 2;

/// Watches the notes.
#[derive(Debug, Default)]
pub(super) struct Lateness {
    /// The latest note of the present and of the past minute, µs.
    most: [i64; 2],
    since: UtcMicros,
    missed: u64,
    doubtful: u8,
}

impl Lateness {
    /// Events of a stream that started at `started` arrive.
    pub(super) fn note(&mut self, now: UtcMicros, started: Option<UtcMicros>, deltas: &[Delta]) {
        let first = deltas.iter().find_map(|delta| delta.t);
        if let (Some(started), Some(first)) = (started, first) {
            let late = now.0.saturating_sub(started.0.saturating_add(first.0));
            self.most[0] = self.most[0].max(late.min(MOST));
        }
    }

    /// The moment of which no note is still on its way.
    pub(super) fn settled(&mut self, now: UtcMicros) -> UtcMicros {
        if now.0.saturating_sub(self.since.0) >= MEMORY {
            self.most = [0, self.most[0]];
            self.since = now;
        }
        // Half as late again: what was seen once is not the worst.
        let late = self.most[0].max(self.most[1]);
        UtcMicros(now.0 - LEAST.max(late + late / 2))
    }

    /// Whether notes were dropped whose absence may still look like silence; `missed` counts all so far.
    pub(super) fn lost(&mut self, missed: u64) -> bool {
        if missed != self.missed {
            (self.missed, self.doubtful) = (missed, LOOKS);
        }
        let is_doubtful = self.doubtful > 0;
        self.doubtful = self.doubtful.saturating_sub(1);
        is_doubtful
    }
}

#[cfg(test)]
mod tests {
    use sseismo_trace::{Kind, Micros, Phase};

    use super::*;

    const SECOND: i64 = 1_000_000;

    fn event(t: i64) -> [Delta; 1] {
        [Delta::new(0, Kind::Text, Phase::Output, Some(Micros(t)))]
    }

    #[test]
    fn silence_is_judged_as_of_as_long_ago_as_notes_are_late() {
        let mut lateness = Lateness::default();
        let mut at = |now: i64| now - lateness.settled(UtcMicros(now)).0;
        assert_eq!(at(100 * SECOND), SECOND);
        let mut lateness = Lateness::default();
        lateness.settled(UtcMicros(100 * SECOND));
        lateness.note(UtcMicros(104 * SECOND), Some(UtcMicros(90 * SECOND)), &event(10 * SECOND));
        lateness.note(UtcMicros(105 * SECOND), None, &event(0));
        let mut at = |now: i64| now - lateness.settled(UtcMicros(now)).0;
        assert_eq!(at(105 * SECOND), 6 * SECOND);
        assert_eq!(at(165 * SECOND), 6 * SECOND, "the past minute counts");
        assert_eq!(at(226 * SECOND), SECOND, "and the one before it does not");
    }

    #[test]
    fn after_a_loss_two_looks_are_doubtful() {
        let mut lateness = Lateness::default();
        let looks = [0, 3, 3, 3, 4, 5, 5, 5].map(|missed| lateness.lost(missed));
        assert_eq!(looks, [false, true, true, false, true, true, true, false]);
    }
}
