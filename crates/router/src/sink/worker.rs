//! One sink's worker: notices in, calls of the sink out, at the pace at which it takes them.
//!
//! What waits is not a list of calls but what is right now: the orders that stand, and the latest word on each
//! signal. So a sink that was away for a minute gets one call, not sixty.

use std::collections::BTreeMap;
use std::hash::{BuildHasher as _, RandomState};
use std::sync::Arc;
use std::time::Duration;

use sseismo_trace::{Signal, SignalId};
use tokio::sync::mpsc;
use tokio::time::{Instant, timeout};

use super::standing::Standing;
use super::{Doing, FAREWELL, Failed, Named, Sink};
use crate::metrics::Metrics;
use crate::order::Notice;

/// Longest time for one call.
const CALL: Duration = Duration::from_secs(5);

/// Time between two tries, the first and the longest; each is twice the one before, and up to half of it more by
/// chance, so that several relays do not come at once.
const AGAIN: [Duration; 2] = [Duration::from_millis(100), Duration::from_secs(5)];

/// Signals that wait at most; the earliest are forgotten.
const UNTOLD: usize = 1_024;

pub(super) struct Worker {
    name: Arc<str>,
    /// Takes orders about one effort, too.
    efforts: bool,
    sink: Box<dyn Sink>,
    metrics: Arc<Metrics>,
    standing: Standing,
    /// The standing orders have not been said since they changed.
    changed: bool,
    /// When they were last said.
    said: Instant,
    /// Signals by their place in the order of coming; the later word on one replaces the earlier.
    untold: BTreeMap<u64, Arc<Signal>>,
    places: BTreeMap<SignalId, u64>,
    next_place: u64,
    /// Failed in a row.
    failures: u32,
    /// Not before.
    again: Option<Instant>,
}

impl Worker {
    pub(super) fn new(named: &Named, sink: Box<dyn Sink>, metrics: Arc<Metrics>) -> Self {
        Self {
            name: Arc::clone(&named.name),
            efforts: named.efforts,
            sink,
            metrics,
            standing: Standing::default(),
            changed: false,
            said: Instant::now(),
            untold: BTreeMap::new(),
            places: BTreeMap::new(),
            next_place: 0,
            failures: 0,
            again: None,
        }
    }

    /// Works until the queue's other end is gone.
    pub(super) async fn run(mut self, mut queue: mpsc::Receiver<Notice>) {
        loop {
            let wake = self.wake();
            let notice = tokio::select! {
                notice = queue.recv() => notice,
                () = sleep_until(wake) => {
                    self.work().await;
                    continue;
                }
            };
            let Some(notice) = notice else { break };
            self.take(notice);
            while let Ok(notice) = queue.try_recv() {
                self.take(notice);
            }
            self.work().await;
        }
        if timeout(FAREWELL, self.farewell()).await.is_err() {
            tracing::warn!("sink {}: not everything could be taken back in time", self.name);
        }
    }

    fn take(&mut self, notice: Notice) {
        match notice {
            Notice::Order(order) if order.about.effort.is_some() && !self.efforts => {}
            Notice::Order(order) => {
                self.standing.take(order, Instant::now());
                self.changed = true;
            }
            Notice::Signal(_) if !self.sink.informs() => {}
            Notice::Signal(signal) => {
                if let Some(place) = self.places.insert(signal.id, self.next_place) {
                    self.untold.remove(&place);
                }
                self.untold.insert(self.next_place, signal);
                self.next_place += 1;
                if self.untold.len() > UNTOLD
                    && let Some((_, oldest)) = self.untold.pop_first()
                {
                    self.places.remove(&oldest.id);
                    self.metrics.sinks().dropped(&self.name);
                }
            }
        }
    }

    /// When there will be something to do, if nothing comes.
    fn wake(&self) -> Option<Instant> {
        let due = |at: Instant| self.again.map_or(at, |again| again.max(at));
        let now = self.changed || !self.untold.is_empty();
        let again = self.goes_on().then(|| self.said + self.sink.every());
        let next = [again, self.standing.next_end(), now.then_some(self.said)].into_iter().flatten().min();
        next.map(due)
    }

    fn goes_on(&self) -> bool {
        !self.standing.is_empty() || self.sink.unfinished()
    }

    async fn work(&mut self) {
        let now = Instant::now();
        self.changed |= self.standing.expire(now);
        if self.again.is_some_and(|again| again > now) {
            return;
        }
        let repeat = self.goes_on() && now >= self.said + self.sink.every();
        if self.changed || repeat {
            let done = in_time(self.sink.steer(&self.standing)).await;
            self.said = Instant::now();
            if self.note(done) {
                self.changed = false;
            }
        }
        self.inform().await;
        self.metrics.sinks().standing(&self.name, self.standing.len(), self.changed);
    }

    async fn inform(&mut self) {
        if self.untold.is_empty() || self.again.is_some_and(|again| again > Instant::now()) {
            return;
        }
        let signals: Vec<_> = self.untold.values().cloned().collect();
        let done = in_time(self.sink.inform(&signals)).await;
        if self.note(done) {
            self.untold.clear();
            self.places.clear();
        }
    }

    /// Takes back what stands. What was never done need not be undone.
    async fn farewell(&mut self) {
        if !self.standing.is_empty() || self.changed {
            self.standing.clear();
            let done = in_time(self.sink.steer(&self.standing)).await;
            self.note(done);
        }
        self.again = None;
        self.inform().await;
        if let Err(error) = in_time(self.sink.end()).await {
            self.note(Err(error));
        }
    }

    /// Counts how a call ended, and says when to try again.
    fn note(&mut self, done: Result<(), Failed>) -> bool {
        self.metrics.sinks().called(&self.name, done.is_ok());
        let Err(error) = done else {
            if self.failures > 0 {
                tracing::info!("sink {}: works again after {} failures", self.name, self.failures);
            }
            (self.failures, self.again) = (0, None);
            return true;
        };
        if self.failures == 0 {
            tracing::warn!("sink {}: {error}; trying again", self.name);
        }
        let doubled = AGAIN[0] * 2_u32.saturating_pow(self.failures.min(10));
        let percent = 100 + RandomState::new().hash_one(self.failures) % 50;
        let wait = doubled.min(AGAIN[1]) * u32::try_from(percent).unwrap_or(100) / 100;
        self.failures = self.failures.saturating_add(1);
        self.again = Some(Instant::now() + wait);
        false
    }
}

async fn in_time(doing: Doing<'_>) -> Result<(), Failed> {
    timeout(CALL, doing).await.unwrap_or(Err(Failed::TimedOut))
}

async fn sleep_until(at: Option<Instant>) {
    match at {
        Some(at) => tokio::time::sleep_until(at).await,
        None => std::future::pending().await,
    }
}

#[cfg(test)]
mod tests;
