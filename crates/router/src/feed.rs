//! The feed of signals: what the detector says, for everybody who listens.
//!
//! In: [`Signal`]s in the order in which they were raised, and snapshots ("views") of the detector. Out: to
//! each subscriber what is active when it comes and every signal after that, once and in order. The feed keeps
//! the last signals, so that a subscriber that was away gets what it missed.
//!
//! Nobody is waited for: a subscriber that falls further behind than the feed keeps is dropped, and comes back
//! with the id of the last signal that it saw. Views are not kept; a slow reader of views skips some.
//!
//! There is no clock here: [`Feed::expire`] takes the time.

use std::collections::{BTreeMap, VecDeque};
use std::fmt;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use sseismo_trace::{Signal, SignalId, SignalState, UtcMicros};
use tokio::sync::{broadcast, watch};

mod events;

pub use events::{EventBody, MAX_SUBSCRIBERS};

/// Onsets that are kept as active. Operators may post any number of them.
const MAX_ACTIVE: usize = crate::steer::MAX_LIVE;

/// Names one signal of one run of the feed, as `Last-Event-ID` carries it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct EventId {
    /// The run: ids of another process's run name nothing here.
    pub run: u64,
    /// Place in the run, from 0.
    pub seq: u64,
}

impl fmt::Display for EventId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:x}-{}", self.run, self.seq)
    }
}

impl EventId {
    /// Reads what [`Display`](fmt::Display) wrote; `None` for anything else.
    pub fn parse(text: &str) -> Option<Self> {
        let (run, seq) = text.trim().split_once('-')?;
        Some(Self { run: u64::from_str_radix(run, 16).ok()?, seq: seq.parse().ok()? })
    }
}

/// A signal with its place in the feed.
#[derive(Clone, Debug)]
pub struct Item {
    /// Its id.
    pub id: EventId,
    /// The signal.
    pub signal: Signal,
    /// The same as JSON, written once for all subscribers.
    pub json: String,
}

/// Why a subscriber gets nothing more.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Ended {
    /// It fell behind by this many signals more than the feed keeps.
    TooSlow(u64),
    /// The feed is gone.
    Closed,
}

/// The feed. Clones are the same feed.
#[derive(Clone, Debug)]
pub struct Feed(Arc<Shared>);

#[derive(Debug)]
struct Shared {
    run: u64,
    keep: usize,
    kept: Mutex<Kept>,
    live: broadcast::Sender<Arc<Item>>,
    views: watch::Sender<Option<Arc<str>>>,
    too_slow: AtomicU64,
    subscribers: Arc<tokio::sync::Semaphore>,
}

#[derive(Debug, Default)]
struct Kept {
    next: u64,
    last: VecDeque<Arc<Item>>,
    /// The latest word on each onset that was not cleared and has not run out.
    active: BTreeMap<SignalId, Arc<Item>>,
}

impl Kept {
    /// Forgets the active onset that would end first.
    fn forget_first(&mut self) {
        let first = self.active.iter().min_by_key(|(_, item)| ends(&item.signal)).map(|(id, _)| *id);
        first.map(|id| self.active.remove(&id));
    }
}

/// When a signal's time to live runs out, µs of the wall clock.
fn ends(signal: &Signal) -> i64 {
    signal.at.0.saturating_add(signal.ttl.0)
}

impl Feed {
    /// A feed that keeps the last `keep` signals. `run` tells this run's ids from those of other runs; the
    /// time of the start does.
    pub fn new(run: u64, keep: usize) -> Self {
        let keep = keep.max(1);
        Self(Arc::new(Shared {
            run,
            keep,
            kept: Mutex::default(),
            live: broadcast::Sender::new(keep),
            views: watch::Sender::new(None),
            too_slow: AtomicU64::new(0),
            subscribers: Arc::new(tokio::sync::Semaphore::new(MAX_SUBSCRIBERS)),
        }))
    }

    /// Tells everybody.
    pub fn publish(&self, signal: Signal) {
        // A signal is plain data without maps that could refuse; were that to change, nobody is told a half.
        let Ok(json) = serde_json::to_string(&signal) else { return };
        let mut kept = self.kept();
        let item = Arc::new(Item { id: EventId { run: self.0.run, seq: kept.next }, signal, json });
        kept.next += 1;
        match item.signal.state {
            SignalState::Onset | SignalState::Refresh => {
                kept.active.insert(item.signal.id, Arc::clone(&item));
                if kept.active.len() > MAX_ACTIVE {
                    kept.forget_first();
                }
            }
            SignalState::Clear => {
                kept.active.remove(&item.signal.id);
            }
        }
        if kept.last.len() == self.0.keep {
            kept.last.pop_front();
        }
        kept.last.push_back(Arc::clone(&item));
        // Under the lock, so that a new subscriber gets it either here or from what is kept. An error says
        // that nobody listens.
        let _ = self.0.live.send(item);
    }

    /// Replaces the snapshot of the detector, one JSON document, for those who asked for views.
    pub fn show(&self, view: &str) {
        self.0.views.send_replace(Some(Arc::from(view)));
    }

    /// Whether anybody looks at views; if not, none need be made.
    pub fn has_viewers(&self) -> bool {
        self.0.views.receiver_count() > 0
    }

    /// Forgets signals whose time to live ran out before `now` without a refresh: they count as cleared.
    pub fn expire(&self, now: UtcMicros) {
        self.kept().active.retain(|_, item| ends(&item.signal) >= now.0);
    }

    /// The latest word on everything that is going on.
    pub fn active(&self) -> Vec<Arc<Item>> {
        self.kept().active.values().cloned().collect()
    }

    /// Listens. With the id of the last signal seen: everything after it that is still kept. Without, or
    /// when signals were missed for good: first what is active.
    pub fn subscribe(&self, after: Option<EventId>) -> Subscription {
        let kept = self.kept();
        let first_kept = kept.last.front().map_or(kept.next, |item| item.id.seq);
        let known = after.filter(|id| id.run == self.0.run && id.seq < kept.next);
        let mut missed: VecDeque<Arc<Item>> = VecDeque::new();
        let from = match known {
            Some(id) if id.seq + 1 >= first_kept => id.seq + 1,
            // Some were missed for good: what goes on is told anew, then all that is kept.
            Some(_) => {
                missed.extend(kept.active.values().filter(|item| item.id.seq < first_kept).cloned());
                first_kept
            }
            None => {
                missed.extend(kept.active.values().cloned());
                kept.next
            }
        };
        missed.make_contiguous().sort_by_key(|item| item.id.seq);
        missed.extend(kept.last.iter().filter(|item| item.id.seq >= from).cloned());
        let live = self.0.live.subscribe();
        drop(kept);
        Subscription { missed, live, feed: self.clone() }
    }

    /// Subscribers that were dropped because they fell behind.
    pub fn too_slow(&self) -> u64 {
        self.0.too_slow.load(Ordering::Relaxed)
    }

    /// Subscribers now.
    pub fn subscribers(&self) -> usize {
        self.0.live.receiver_count()
    }

    fn views(&self) -> watch::Receiver<Option<Arc<str>>> {
        self.0.views.subscribe()
    }

    fn kept(&self) -> MutexGuard<'_, Kept> {
        // Nothing panics while it is held; even so, what is kept is whole after each statement.
        self.0.kept.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// One listener's place in the feed.
#[derive(Debug)]
pub struct Subscription {
    missed: VecDeque<Arc<Item>>,
    live: broadcast::Receiver<Arc<Item>>,
    feed: Feed,
}

impl Subscription {
    /// The next signal; waits for it.
    ///
    /// # Errors
    /// When there will be none: subscribe again with the id of the last one.
    pub async fn next(&mut self) -> Result<Arc<Item>, Ended> {
        if let Some(item) = self.missed.pop_front() {
            return Ok(item);
        }
        self.live.recv().await.map_err(|error| match error {
            broadcast::error::RecvError::Lagged(by) => {
                self.feed.0.too_slow.fetch_add(1, Ordering::Relaxed);
                Ended::TooSlow(by)
            }
            broadcast::error::RecvError::Closed => Ended::Closed,
        })
    }
}

#[cfg(test)]
mod tests;
