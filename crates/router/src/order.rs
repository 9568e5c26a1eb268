//! What steering decided, for those who steer other routers by it.
//!
//! In: decisions of the relay's own steering, and every signal. Out: a [`Notice`] for the sinks, through a bounded
//! channel: the binary makes it, steering holds the [`Notices`] end, the sinks the other.
//!
//! Whoever sends need not wait and need not care what is lost. An order stands for its `ttl` and is sent again
//! while it should go on standing, so a lost one is made good by the next; one that is not sent again runs out by
//! itself, so a lost restore costs a ttl at most.

use std::sync::Arc;
use std::time::Duration;

use sseismo_trace::Signal;
use tokio::sync::mpsc;

/// Notices that may wait for the sinks; more than that, and the newest are dropped. A storm of one signal a
/// second over a hundred targets fits in ten times.
pub const WAITING: usize = 1_024;

/// The end that steering sends to, with `try_send`: an error says that the sinks are too slow or gone, and is no
/// reason to stop anything.
pub type Notices = mpsc::Sender<Notice>;

/// How much of its ordinary traffic an upstream, or one of its models, should be given from now on.
#[derive(Clone, Debug, PartialEq)]
pub struct Order {
    /// The upstream's name in the configuration.
    pub upstream: Arc<str>,
    /// The model, by the name that clients use; `None`: the whole upstream.
    pub model: Option<Arc<str>>,
    /// What it keeps of its ordinary share: 0 is drained, 1 is restored. Always from 0 to 1.
    pub share: f64,
    /// For how long, from now, unless another order for the same target comes first. Without meaning at share 1.
    pub ttl: Duration,
    /// What it was decided by.
    pub signal: Arc<Signal>,
}

/// One thing that the sinks are told.
#[derive(Clone, Debug, PartialEq)]
pub enum Notice {
    /// Traffic should move, or come back. Sent only where steering acts, not where it observes.
    Order(Order),
    /// A signal was raised, goes on or is over; sent whether or not anything is done about it.
    Signal(Arc<Signal>),
}

/// The channel between steering and the sinks.
pub fn notices() -> (Notices, mpsc::Receiver<Notice>) {
    mpsc::channel(WAITING)
}
