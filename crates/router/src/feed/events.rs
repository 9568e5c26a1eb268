//! A subscription as server-sent events.
//!
//! In: a [`Subscription`], and views where they were asked for. Out: the body of a response:
//! `id:`, `event: onset | refresh | clear` and one line of JSON per signal, `event: view` without an id (so
//! that `Last-Event-ID` stays a signal's), and a comment when nothing else was said for a while, so that
//! neither side takes the silence for a dead connection.

use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;

use bytes::Bytes;
use hyper::body::{Body, Frame};
use tokio::sync::{OwnedSemaphorePermit, mpsc, watch};
use tokio::time::{Instant, MissedTickBehavior, interval_at, timeout};

use super::{Ended, EventId, Feed, Item, Subscription};

/// Event streams at a time; more are refused.
pub const MAX_SUBSCRIBERS: usize = 64;

/// Silence until a comment is sent. Proxies cut idle connections after 60 s and more.
const KEEP_ALIVE: Duration = Duration::from_secs(15);

/// A client that takes nothing for this long is dropped.
const PATIENCE: Duration = Duration::from_secs(30);

/// Pieces that wait for the client's socket. What does not fit waits in the feed, which keeps only so much.
const WAITING: usize = 16;

/// How soon a client should come back, ms.
const RETRY_MS: u32 = 2_000;

/// A response body of server-sent events.
#[derive(Debug)]
pub struct EventBody {
    pieces: mpsc::Receiver<Bytes>,
}

impl Body for EventBody {
    type Data = Bytes;
    type Error = std::convert::Infallible;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, Self::Error>>> {
        self.pieces.poll_recv(cx).map(|piece| piece.map(|bytes| Ok(Frame::data(bytes))))
    }
}

impl Feed {
    /// Everything from `after` on as server-sent events, with views if they are wanted; `None` when
    /// [`MAX_SUBSCRIBERS`] are listening already. Must be called inside a tokio runtime.
    pub fn events(&self, after: Option<EventId>, views: bool) -> Option<EventBody> {
        let permit = Arc::clone(&self.0.subscribers).try_acquire_owned().ok()?;
        let (sender, pieces) = mpsc::channel(WAITING);
        let views = views.then(|| self.views());
        tokio::spawn(pour(self.subscribe(after), views, sender, permit));
        Some(EventBody { pieces })
    }
}

/// Moves events to the client until either side has gone.
async fn pour(
    mut signals: Subscription,
    mut views: Option<watch::Receiver<Option<Arc<str>>>>,
    client: mpsc::Sender<Bytes>,
    _permit: OwnedSemaphorePermit,
) {
    if let Some(views) = &mut views {
        views.mark_changed(); // the present view comes first
    }
    let mut keep_alive = interval_at(Instant::now() + KEEP_ALIVE, KEEP_ALIVE);
    keep_alive.set_missed_tick_behavior(MissedTickBehavior::Delay);
    let mut next = Bytes::from(format!("retry: {RETRY_MS}\n\n"));
    loop {
        if !matches!(timeout(PATIENCE, client.send(next)).await, Ok(Ok(()))) {
            return;
        }
        next = tokio::select! {
            biased;
            () = client.closed() => return,
            item = signals.next() => match item {
                Ok(item) => event(&item),
                Err(Ended::TooSlow(_) | Ended::Closed) => return,
            },
            view = changed(&mut views) => match view {
                Some(view) => Bytes::from(format!("event: view\ndata: {view}\n\n")),
                None => return,
            },
            _ = keep_alive.tick() => Bytes::from_static(b": keep-alive\n\n"),
        };
        keep_alive.reset();
    }
}

/// The next view, or `None` when there will be none; waits for ever when none are wanted.
async fn changed(views: &mut Option<watch::Receiver<Option<Arc<str>>>>) -> Option<Arc<str>> {
    let Some(views) = views else { return std::future::pending().await };
    loop {
        views.changed().await.ok()?;
        if let Some(view) = views.borrow_and_update().clone() {
            return Some(view);
        }
    }
}

/// One signal as an event. JSON has no line breaks of its own.
fn event(item: &Item) -> Bytes {
    Bytes::from(format!("id: {}\nevent: {}\ndata: {}\n\n", item.id, item.signal.state.name(), item.json))
}
