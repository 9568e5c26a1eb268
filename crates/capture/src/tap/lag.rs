//! How late the runtime wakes its tasks: tells our own slowness from the sender's.
//!
//! A task sleeps for [`PERIOD`] over and over. How long past its due time it is, or last was, is what a
//! read of that moment may have waited for the runtime. Resolution: tokio's timer, 1 ms.

use std::sync::Arc;
use std::sync::atomic::{AtomicI64, Ordering};
use std::time::Duration;

use sseismo_trace::Micros;

use crate::clock;

/// Short enough that a stall which matters (10 ms and more) does not slip between two ticks.
const PERIOD: Duration = Duration::from_millis(20);
const PERIOD_US: i64 = 20_000;

/// The latest state of the probe.
#[derive(Debug, Default)]
pub(crate) struct Lag {
    due: AtomicI64,
    late: AtomicI64,
}

impl Lag {
    /// Starts the probe; it ends when the last holder of the returned value is gone.
    pub(crate) fn start() -> Arc<Self> {
        let lag = Arc::new(Self::default());
        lag.due.store(clock::now().0 + PERIOD_US, Ordering::Relaxed);
        let probe = Arc::downgrade(&lag);
        tokio::spawn(async move {
            loop {
                tokio::time::sleep(PERIOD).await;
                let Some(lag) = probe.upgrade() else { return };
                lag.tick(clock::now());
            }
        });
        lag
    }

    fn tick(&self, now: Micros) {
        self.late.store(self.overdue(now), Ordering::Relaxed);
        self.due.store(now.0 + PERIOD_US, Ordering::Relaxed);
    }

    fn overdue(&self, now: Micros) -> i64 {
        (now.0 - self.due.load(Ordering::Relaxed)).max(0)
    }

    /// The lag that a read at `now` may have suffered: of the tick that is overdue, or of the last one.
    pub(crate) fn at(&self, now: Micros) -> Micros {
        Micros(self.overdue(now).max(self.late.load(Ordering::Relaxed)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_overdue_tick_counts_at_once_and_until_the_next_one() {
        let lag = Lag::default();
        lag.tick(Micros(0));
        assert_eq!(lag.at(Micros(PERIOD_US)), Micros(0));
        assert_eq!(lag.at(Micros(PERIOD_US + 50_000)), Micros(50_000));
        lag.tick(Micros(PERIOD_US + 60_000));
        assert_eq!(lag.at(Micros(PERIOD_US + 60_100)), Micros(60_000));
        lag.tick(Micros(2 * PERIOD_US + 60_000));
        assert_eq!(lag.at(Micros(2 * PERIOD_US + 60_100)), Micros(0));
    }
}
