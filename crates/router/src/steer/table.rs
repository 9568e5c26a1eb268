//! The signals that are live: one entry per onset, until it is cleared or its time to live runs out.
//!
//! In: signals of the detector and of others, in any order, as many as anybody likes to send. Out: at most
//! [`MAX_LIVE`] of them. When there are more, the one that would end first makes room.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use sseismo_trace::{Signal, SignalId, SignalState, UtcMicros};
use tokio::time::Instant;

/// Signals that live at once. The detector holds fewer scopes than this for any traffic seen.
pub const MAX_LIVE: usize = 1_024;

/// No signal lives longer without a refresh, whatever it says.
pub(super) const MAX_TTL: Duration = Duration::from_hours(24);

/// Who said it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Source {
    /// The detector in this process.
    Detector,
    /// Somebody who knows the admin token.
    Admin,
}

impl Source {
    /// The name in lists.
    pub fn name(self) -> &'static str {
        match self {
            Self::Detector => "detector",
            Self::Admin => "admin",
        }
    }
}

/// A live signal.
#[derive(Clone, Debug)]
pub(super) struct Entry {
    /// The latest word on it.
    pub(super) signal: Arc<Signal>,
    /// Who said it.
    pub(super) source: Source,
    /// When it was first heard of.
    pub(super) since: Instant,
    /// When it ends without a further word.
    pub(super) expires: Instant,
}

/// The table.
#[derive(Debug, Default)]
pub(super) struct Table {
    live: BTreeMap<SignalId, Entry>,
}

impl Table {
    /// Takes in one signal. `wall` and `now` are the same moment on both clocks.
    pub(super) fn take(&mut self, signal: Signal, source: Source, wall: UtcMicros, now: Instant) {
        match signal.state {
            SignalState::Onset | SignalState::Refresh => {
                let expires = now + lives(&signal, wall);
                let since = self.live.get(&signal.id).map_or(now, |known| known.since);
                self.live.insert(signal.id, Entry { signal: Arc::new(signal), source, since, expires });
                if self.live.len() > MAX_LIVE
                    && let Some(first) =
                        self.live.iter().min_by_key(|(_, entry)| entry.expires).map(|(id, _)| *id)
                {
                    self.live.remove(&first);
                }
            }
            SignalState::Clear => {
                self.live.remove(&signal.id);
            }
        }
    }

    /// Forgets what has run out.
    pub(super) fn expire(&mut self, now: Instant) {
        self.live.retain(|_, entry| entry.expires > now);
    }

    pub(super) fn live(&self) -> impl Iterator<Item = &Entry> {
        self.live.values()
    }
}

/// How long a signal lives from now on: what is left of its time to live, and never more than that, should its
/// clock run ahead of ours.
fn lives(signal: &Signal, wall: UtcMicros) -> Duration {
    let ttl = u64::try_from(signal.ttl.0).unwrap_or(0);
    let age = u64::try_from(wall.0.saturating_sub(signal.at.0)).unwrap_or(0);
    Duration::from_micros(ttl.saturating_sub(age)).min(MAX_TTL)
}

#[cfg(test)]
mod tests {
    use sseismo_trace::{Detail, Evidence, Micros, Scope};

    use super::*;

    fn signal(id: u64, state: SignalState, at: i64, ttl: i64) -> Signal {
        Signal {
            id: SignalId(id),
            target: Scope::default(),
            detail: Detail::Concurrency { calls: 7, window_s: 4.0 },
            cause: None,
            state,
            strength: 1.0,
            evidence: Evidence::default(),
            at: UtcMicros(at),
            ttl: Micros(ttl),
        }
    }

    fn ids(table: &Table) -> Vec<u64> {
        table.live().map(|entry| entry.signal.id.0).collect()
    }

    #[test]
    fn a_signal_lives_until_it_is_cleared_or_its_time_is_over() {
        let (mut table, now) = (Table::default(), Instant::now());
        let at = |micros| now + Duration::from_micros(micros);
        table.take(signal(1, SignalState::Onset, 0, 10), Source::Detector, UtcMicros(0), now);
        table.take(signal(2, SignalState::Onset, 0, 10), Source::Admin, UtcMicros(4), now);
        table.expire(at(5));
        assert_eq!(ids(&table), [1, 2]);
        table.expire(at(6));
        assert_eq!(ids(&table), [1], "4 of its 10 µs were over when it came");
        table.take(signal(1, SignalState::Refresh, 8, 10), Source::Detector, UtcMicros(8), at(8));
        table.expire(at(17));
        assert_eq!(ids(&table), [1]);
        table.take(signal(1, SignalState::Clear, 17, 10), Source::Detector, UtcMicros(17), at(17));
        assert_eq!(ids(&table), [0_u64; 0]);
        // A clock that runs ahead gives no longer life.
        table.take(signal(3, SignalState::Onset, 1_000, 10), Source::Admin, UtcMicros(0), now);
        table.expire(at(10));
        assert_eq!(ids(&table), [0_u64; 0]);
    }

    #[test]
    fn the_table_is_bounded_and_what_would_end_first_makes_room() {
        let (mut table, now) = (Table::default(), Instant::now());
        for id in 0..2 * MAX_LIVE as u64 {
            let ttl = if id == 7 { 1 } else { 1_000_000 };
            table.take(signal(id, SignalState::Onset, 0, ttl), Source::Admin, UtcMicros(0), now);
        }
        assert_eq!(ids(&table).len(), MAX_LIVE);
        assert!(!ids(&table).contains(&7));
    }
}
