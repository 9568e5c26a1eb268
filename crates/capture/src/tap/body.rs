//! The body tap: hands a response body on unchanged and at once, and copies it to whoever analyses it.
//!
//! In: hyper's response body. Out: the same frames as [`TapBody`], and [`Piece`]s on a bounded queue. When
//! the queue is full, pieces are dropped and their events counted; the body never waits for the analysis.
//! Nor is the analysis woken for each piece, which would cost more than the analysis itself: see [`Watch::more`].
//!
//! HTTP/1.1 pieces carry the read that brought them, byte for byte: a chunked body is read without hyper, a read
//! at a time (see [`wire`](super::wire) for the why); of others the framing shadow tells. Under HTTP/2
//! a task polls the body promptly, so that the connection's latest read is the frame's own; that is
//! `attribution = frame`.

use std::collections::VecDeque;
use std::pin::Pin;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::task::{Context, Poll, ready};
use std::time::Duration;

use bytes::Bytes;
use http_body_util::BodyExt;
use hyper::body::{Body, Frame, Incoming, SizeHint};
use sseismo_trace::{Attribution, Micros};
use tokio::sync::{Notify, mpsc};
use tokio::task::AbortHandle;
use tokio::time::{Instant, timeout_at};

use super::pump::QUEUE_BYTES;
use super::wire::{Handle, Portion, Then};
use crate::clock;

/// Bytes that may wait for the analysis of one stream, and pieces: more than it needs in a second.
const WATCH_BYTES: usize = 1 << 20;
const WATCH_PIECES: usize = 4_096;

/// How long pieces gather after the analysis has looked. Notes wait for half a second anyway.
const GATHER: Duration = Duration::from_millis(100);

/// So much is looked at without waiting for that: an eighth of the queue.
const MANY_BYTES: usize = WATCH_BYTES / 8;
const MANY_PIECES: usize = WATCH_PIECES / 8;

/// How a body ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum End {
    /// Its framing says that it is whole.
    Complete,
    /// The upstream broke off.
    Broken,
    /// Whoever read it went away.
    Left,
}

/// What the analysis gets.
#[derive(Debug)]
pub(crate) enum Piece {
    /// Bytes of the body, all completed by one read.
    Bytes { bytes: Bytes, read: Option<u32>, at: Micros },
    /// Events were lost here because the queue was full.
    Dropped { events: u64 },
    /// Nothing follows.
    End { at: Micros, how: End },
}

/// The queue between a body and its analysis.
#[derive(Debug, Default)]
struct Queue {
    waiting: Mutex<Waiting>,
    /// There is a piece again.
    some: Notify,
    /// There is more than should wait, or the end.
    many: Notify,
}

#[derive(Debug, Default)]
struct Waiting {
    pieces: VecDeque<Piece>,
    bytes: usize,
}

impl Waiting {
    fn has_room(&self, bytes: usize) -> bool {
        self.pieces.len() < WATCH_PIECES && self.bytes + bytes <= WATCH_BYTES
    }
}

impl Queue {
    fn with<T>(&self, change: impl FnOnce(&mut Waiting) -> T) -> T {
        change(&mut self.waiting.lock().unwrap_or_else(PoisonError::into_inner))
    }

    /// Adds a piece of `bytes` bytes unless the queue is full; whether there was room.
    fn push(&self, piece: Piece, bytes: usize) -> bool {
        let pieces = self.with(|waiting| {
            if !waiting.has_room(bytes) {
                return None;
            }
            waiting.bytes += bytes;
            waiting.pieces.push_back(piece);
            let many = waiting.bytes >= MANY_BYTES && waiting.bytes - bytes < MANY_BYTES;
            Some((waiting.pieces.len(), many))
        });
        let Some((pieces, many)) = pieces else { return false };
        self.woken(pieces, many || pieces == MANY_PIECES);
        true
    }

    fn has_room(&self, bytes: usize) -> bool {
        self.with(|waiting| waiting.has_room(bytes))
    }

    /// Adds what takes no room and must not be lost.
    fn tell(&self, piece: Piece, last: bool) {
        let pieces = self.with(|waiting| {
            waiting.pieces.push_back(piece);
            waiting.pieces.len()
        });
        self.woken(pieces, last);
    }

    /// Wakes the analysis when it waits for what there is now.
    fn woken(&self, pieces: usize, many: bool) {
        if pieces == 1 {
            self.some.notify_one();
        }
        if many {
            self.many.notify_one();
        }
    }

    /// Moves everything that waits to `batch`, which is empty.
    fn take(&self, batch: &mut VecDeque<Piece>) {
        self.with(|waiting| {
            waiting.bytes = 0;
            std::mem::swap(&mut waiting.pieces, batch);
        });
    }
}

/// The analysing end.
#[derive(Debug)]
pub(crate) struct Watch {
    queue: Arc<Queue>,
    /// Until when pieces gather, unless there are many.
    gathers: Instant,
    pub(crate) attribution: Attribution,
    /// The read that completed the response's head, and when.
    pub(crate) head: (u32, Micros),
    pub(crate) handle: Option<Handle>,
}

impl Watch {
    /// Moves what is there already to `batch`, which must be empty.
    pub(crate) fn at_hand(&mut self, batch: &mut VecDeque<Piece>) {
        self.queue.take(batch);
        if !batch.is_empty() {
            self.gathers = Instant::now() + GATHER;
        }
    }

    /// Waits for pieces and moves them to `batch`, which must be empty; the last piece of all is
    /// [`Piece::End`]. The first piece after a silence comes at once; those that follow gather for
    /// [`GATHER`], or until there are many. Nothing is lost when the future is dropped.
    pub(crate) async fn more(&mut self, batch: &mut VecDeque<Piece>) {
        // Either way it is time to look.
        let _ = timeout_at(self.gathers, self.queue.many.notified()).await;
        loop {
            self.at_hand(batch);
            if !batch.is_empty() {
                return;
            }
            self.queue.some.notified().await;
        }
    }
}

/// Where pieces come from and go to: one per response.
#[derive(Debug)]
struct Feed {
    queue: Arc<Queue>,
    handle: Option<Handle>,
    /// Number of the response on its connection, under HTTP/1.1.
    exchange: Option<u64>,
    /// Events cannot be counted in the bytes as they are.
    encoded: bool,
    offset: u64,
    /// Events dropped since the last piece that was handed on.
    dropped: u64,
    dropping: bool,
    ended: bool,
}

impl Feed {
    fn new(handle: Option<Handle>, encoded: bool) -> (Self, Watch) {
        let queue = Arc::<Queue>::default();
        let http2 = handle.as_ref().is_some_and(|handle| handle.http2);
        let claimed = handle.as_ref().filter(|_| !http2).and_then(|handle| handle.ledger.claim());
        let latest = handle.as_ref().and_then(|handle| handle.ledger.latest());
        let (attribution, head) = match (http2, claimed) {
            (true, _) => (Attribution::Frame, latest),
            (false, Some((_, head))) => (Attribution::Exact, Some(head)),
            (false, None) => (Attribution::None, latest),
        };
        let feed = Self {
            queue: Arc::clone(&queue),
            handle: handle.clone(),
            exchange: claimed.map(|(number, _)| number),
            encoded,
            offset: 0,
            dropped: 0,
            dropping: false,
            ended: false,
        };
        let head = head.unwrap_or_else(|| (0, clock::now()));
        (feed, Watch { queue, gathers: Instant::now(), attribution, head, handle })
    }

    fn data(&mut self, mut bytes: Bytes) {
        while !bytes.is_empty() {
            let end = self.offset + bytes.len() as u64;
            let run = match (&self.handle, self.exchange) {
                (Some(handle), Some(exchange)) => {
                    let run = handle.ledger.take(exchange, self.offset, end);
                    run.map(|run| (run.end, run.read, run.at))
                }
                (Some(handle), None) if handle.http2 => {
                    handle.ledger.latest().map(|(read, at)| (end, read, at))
                }
                _ => None,
            };
            let (until, read, at) =
                run.map_or_else(|| (end, None, clock::now()), |(until, read, at)| (until, Some(read), at));
            let part = bytes.split_to(usize::try_from(until - self.offset).unwrap_or(bytes.len()));
            self.offset = until;
            self.hand_on(part, read, at);
        }
    }

    /// Takes what a read brought of a body that is read without hyper.
    fn portion(&mut self, portion: &Portion) {
        self.offset += portion.bytes.len() as u64;
        self.hand_on(portion.bytes.clone(), Some(portion.read), portion.at);
    }

    fn hand_on(&mut self, bytes: Bytes, read: Option<u32>, at: Micros) {
        if self.dropping && self.queue.has_room(bytes.len()) {
            self.tell_dropped();
        }
        let size = bytes.len();
        // A handle on the same bytes: only when they are dropped are they looked at here.
        let copy = bytes.clone();
        if !self.queue.push(Piece::Bytes { bytes, read, at }, size) {
            self.dropped += if self.encoded { 1 } else { blank_lines(&copy) };
            self.dropping = true;
        }
    }

    fn tell_dropped(&mut self) {
        if std::mem::replace(&mut self.dropping, false) {
            self.queue.tell(Piece::Dropped { events: std::mem::take(&mut self.dropped) }, false);
        }
    }

    fn end(&mut self, how: End) {
        if std::mem::replace(&mut self.ended, true) {
            return;
        }
        self.tell_dropped();
        self.queue.tell(Piece::End { at: clock::now(), how }, true);
        if let (Some(handle), Some(exchange)) = (&self.handle, self.exchange) {
            handle.ledger.release(exchange);
        }
    }

    fn frame(&mut self, frame: Option<&Result<Frame<Bytes>, hyper::Error>>) {
        match frame {
            Some(Ok(frame)) => {
                if let Some(bytes) = frame.data_ref() {
                    self.data(bytes.clone());
                }
            }
            Some(Err(_)) => self.end(End::Broken),
            None => self.end(End::Complete),
        }
    }
}

impl Drop for Feed {
    fn drop(&mut self) {
        self.end(End::Left);
    }
}

/// How many events end in `bytes`, give or take one whose blank line is cut.
fn blank_lines(bytes: &[u8]) -> u64 {
    let mut count = 0;
    let mut rest = bytes;
    while let Some((_, after)) = split_at_blank_line(rest) {
        count += 1;
        rest = after;
    }
    count
}

/// `bytes` up to and with its first blank line, and what follows.
pub(crate) fn split_at_blank_line(bytes: &[u8]) -> Option<(&[u8], &[u8])> {
    memchr::memchr_iter(b'\n', bytes).find_map(|at| {
        let end = match bytes.get(at + 1..)? {
            [b'\n', ..] => at + 2,
            [b'\r', b'\n', ..] => at + 3,
            _ => return None,
        };
        Some(bytes.split_at(end))
    })
}

/// A response body that is being watched.
#[derive(Debug)]
pub struct TapBody(Source);

#[derive(Debug)]
enum Source {
    /// hyper hands the body over.
    Direct {
        body: Incoming,
        feed: Option<Feed>,
    },
    /// Its data is read without hyper.
    Taken(Box<Taken>),
    Prompt(Prompt),
}

/// A chunked body of HTTP/1.1 whose data comes straight from the connection.
#[derive(Debug)]
struct Taken {
    handle: Handle,
    feed: Feed,
    /// What hyper has to say once the data is over: trailers, or what went wrong.
    body: Incoming,
    then: Then,
}

impl Taken {
    fn poll(&mut self, cx: &mut Context<'_>) -> Poll<Option<Framed>> {
        if self.then == Then::More {
            let portion = ready!(self.handle.poll_data(cx));
            self.then = portion.then;
            if !portion.bytes.is_empty() {
                self.feed.portion(&portion);
                if self.then == Then::End {
                    self.feed.end(End::Complete); // nobody polls a body again that says it is at its end
                }
                return Poll::Ready(Some(Ok(Frame::data(portion.bytes))));
            }
        }
        if self.then == Then::End {
            self.feed.end(End::Complete);
            return Poll::Ready(None);
        }
        let frame = ready!(Pin::new(&mut self.body).poll_frame(cx));
        self.feed.frame(frame.as_ref());
        Poll::Ready(frame)
    }
}

impl Drop for Taken {
    fn drop(&mut self) {
        if self.then == Then::More {
            self.handle.leave();
        }
    }
}

impl TapBody {
    /// A body that nobody watches. Its connection is told, so that the next body is not taken for it.
    pub(crate) fn unwatched(body: Incoming, handle: Option<&Handle>) -> Self {
        if let Some(handle) = handle.filter(|handle| !handle.http2) {
            if let Some((number, _)) = handle.ledger.claim() {
                handle.ledger.release(number);
            }
            handle.decline_body();
        }
        Self(Source::Direct { body, feed: None })
    }

    /// Watches `body`, which came over the connection of `handle`; `encoded` when it is compressed.
    pub(crate) fn watched(body: Incoming, handle: Option<Handle>, encoded: bool) -> (Self, Watch) {
        let http2 = handle.as_ref().is_some_and(|handle| handle.http2);
        let taken = handle.clone().filter(|handle| !http2 && handle.take_body());
        let (feed, watch) = Feed::new(handle, encoded);
        let source = match taken {
            Some(handle) => Source::Taken(Box::new(Taken { handle, feed, body, then: Then::More })),
            None if http2 && !body.is_end_stream() => Source::Prompt(Prompt::start(body, feed)),
            None => Source::Direct { body, feed: Some(feed) },
        };
        (Self(source), watch)
    }
}

impl Body for TapBody {
    type Data = Bytes;
    type Error = hyper::Error;

    fn poll_frame(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Framed>> {
        match &mut self.0 {
            Source::Direct { body, feed } => {
                let polled = Pin::new(&mut *body).poll_frame(cx);
                if let (Poll::Ready(frame), Some(feed)) = (&polled, feed) {
                    feed.frame(frame.as_ref());
                    if body.is_end_stream() {
                        feed.end(End::Complete); // nobody polls a body again that says it is at its end
                    }
                }
                polled
            }
            Source::Taken(taken) => taken.poll(cx),
            Source::Prompt(prompt) => prompt.poll(cx),
        }
    }

    fn is_end_stream(&self) -> bool {
        match &self.0 {
            Source::Direct { body, .. } => body.is_end_stream(),
            Source::Taken(taken) => taken.then == Then::End,
            Source::Prompt(prompt) => prompt.left == Some(0),
        }
    }

    fn size_hint(&self) -> SizeHint {
        match &self.0 {
            Source::Direct { body, .. } => body.size_hint(),
            Source::Taken(_) => SizeHint::default(),
            Source::Prompt(prompt) => prompt.left.map_or_else(SizeHint::default, SizeHint::with_exact),
        }
    }
}

type Framed = Result<Frame<Bytes>, hyper::Error>;

/// An HTTP/2 body that a task polls as fast as frames come, up to [`QUEUE_BYTES`] ahead of its reader.
#[derive(Debug)]
struct Prompt {
    frames: mpsc::UnboundedReceiver<Framed>,
    ahead: Arc<Ahead>,
    task: AbortHandle,
    /// Bytes still to come, when the length is known.
    left: Option<u64>,
}

#[derive(Debug, Default)]
struct Ahead {
    bytes: AtomicUsize,
    room: Notify,
}

impl Prompt {
    fn start(body: Incoming, feed: Feed) -> Self {
        let (sender, frames) = mpsc::unbounded_channel();
        let ahead = Arc::<Ahead>::default();
        let left = body.size_hint().exact();
        let task = tokio::spawn(poll_promptly(body, feed, sender, Arc::clone(&ahead))).abort_handle();
        Self { frames, ahead, task, left }
    }

    fn poll(&mut self, cx: &mut Context<'_>) -> Poll<Option<Framed>> {
        let polled = self.frames.poll_recv(cx);
        if let Poll::Ready(Some(Ok(frame))) = &polled
            && let Some(bytes) = frame.data_ref()
        {
            self.ahead.bytes.fetch_sub(bytes.len(), Ordering::Relaxed);
            self.ahead.room.notify_one();
            self.left = self.left.map(|left| left.saturating_sub(bytes.len() as u64));
        }
        polled
    }
}

impl Drop for Prompt {
    fn drop(&mut self) {
        self.task.abort();
    }
}

async fn poll_promptly(
    mut body: Incoming,
    mut feed: Feed,
    frames: mpsc::UnboundedSender<Framed>,
    ahead: Arc<Ahead>,
) {
    loop {
        while ahead.bytes.load(Ordering::Relaxed) >= QUEUE_BYTES {
            ahead.room.notified().await;
        }
        let frame = body.frame().await;
        feed.frame(frame.as_ref());
        let Some(frame) = frame else { return };
        if let Some(bytes) = frame.as_ref().ok().and_then(Frame::data_ref) {
            ahead.bytes.fetch_add(bytes.len(), Ordering::Relaxed);
        }
        if frames.send(frame).is_err() {
            return;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The analysis does not come at all: 2 MiB pass without waiting, the rest is dropped and counted.
    #[tokio::test]
    async fn a_full_queue_drops_and_counts_and_never_waits() {
        let (mut feed, mut watch) = Feed::new(None, false);
        let event = Bytes::from(format!("data: {}\n\n", "x".repeat(1_000)));
        let sent = 2_000;
        for _ in 0..sent {
            feed.data(event.clone()); // no await: there is nothing that could wait
        }
        feed.end(End::Complete);
        drop(feed);
        let (mut kept, mut dropped) = (0, 0);
        let mut batch = VecDeque::new();
        watch.more(&mut batch).await;
        assert!(
            matches!(batch.back(), Some(Piece::End { how: End::Complete, .. })),
            "all of it came at once"
        );
        for piece in batch {
            match piece {
                Piece::Bytes { .. } => kept += 1,
                Piece::Dropped { events } => dropped += events,
                Piece::End { .. } => {}
            }
        }
        assert_eq!(kept + dropped, sent);
        assert!(kept * event.len() as u64 <= WATCH_BYTES as u64 && dropped > 0, "{kept} {dropped}");
    }

    /// The first piece comes at once, the next ones together: after a while, when there are many, or with the end.
    #[tokio::test(start_paused = true)]
    async fn pieces_gather() {
        let (mut feed, mut watch) = Feed::new(None, false);
        let mut batch = VecDeque::new();
        let mut look = async |watch: &mut Watch| {
            let since = Instant::now();
            watch.more(&mut batch).await;
            (batch.drain(..).count(), since.elapsed())
        };
        let event = Bytes::from_static(b"data: x\n\n");
        feed.data(event.clone());
        assert_eq!(look(&mut watch).await, (1, Duration::ZERO));
        feed.data(event.clone());
        feed.data(event.clone());
        let (pieces, took) = look(&mut watch).await;
        assert!(pieces == 2 && took >= GATHER && took < GATHER * 2, "{pieces} after {took:?}");
        for _ in 0..MANY_PIECES {
            feed.data(event.clone());
        }
        assert_eq!(look(&mut watch).await, (MANY_PIECES, Duration::ZERO));
        feed.data(event.clone());
        feed.end(End::Complete);
        assert_eq!(look(&mut watch).await, (2, Duration::ZERO));
    }

    #[test]
    fn blank_lines_end_events() {
        assert_eq!(blank_lines(b"data: a\n\ndata: b\r\n\r\nda"), 2);
        assert_eq!(blank_lines(b"data: a\n"), 0);
        assert_eq!(split_at_blank_line(b"a\n\nb"), Some((&b"a\n\n"[..], &b"b"[..])));
    }
}
