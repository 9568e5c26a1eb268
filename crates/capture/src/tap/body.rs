//! The body tap: hands a response body on unchanged and at once, and copies it to whoever analyses it.
//!
//! In: hyper's response body. Out: the same frames as [`TapBody`], and [`Piece`]s on a bounded queue. When
//! the queue is full, pieces are dropped and their events counted; the body never waits for the analysis.
//!
//! HTTP/1.1 pieces carry the read that brought them, byte for byte, from the framing shadow. Under HTTP/2
//! a task polls the body promptly, so that the connection's latest read is the frame's own; that is
//! `attribution = frame`.

use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::task::{Context, Poll};

use bytes::Bytes;
use http_body_util::BodyExt;
use hyper::body::{Body, Frame, Incoming, SizeHint};
use sseismo_trace::{Attribution, Micros};
use tokio::sync::{Notify, mpsc};
use tokio::task::AbortHandle;

use super::connector::Handle;
use super::pump::QUEUE_BYTES;
use crate::clock;

/// Bytes that may wait for the analysis of one stream, and pieces: more than it needs in a second.
const WATCH_BYTES: usize = 1 << 20;
const WATCH_PIECES: usize = 4_096;

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

/// Size of the queue between a body and its analysis.
#[derive(Debug, Default)]
struct Queued {
    bytes: AtomicUsize,
    pieces: AtomicUsize,
}

/// The analysing end.
#[derive(Debug)]
pub(crate) struct Watch {
    pieces: mpsc::UnboundedReceiver<Piece>,
    queued: Arc<Queued>,
    pub(crate) attribution: Attribution,
    /// The read that completed the response's head, and when.
    pub(crate) head: (u32, Micros),
    pub(crate) handle: Option<Handle>,
}

impl Watch {
    /// The next piece; `None` after the end.
    pub(crate) async fn next(&mut self) -> Option<Piece> {
        let piece = self.pieces.recv().await;
        if let Some(Piece::Bytes { bytes, .. }) = &piece {
            self.queued.bytes.fetch_sub(bytes.len(), Ordering::Relaxed);
            self.queued.pieces.fetch_sub(1, Ordering::Relaxed);
        }
        piece
    }
}

/// Where pieces come from and go to: one per response.
#[derive(Debug)]
struct Feed {
    pieces: mpsc::UnboundedSender<Piece>,
    queued: Arc<Queued>,
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
        let (sender, pieces) = mpsc::unbounded_channel();
        let queued = Arc::<Queued>::default();
        let http2 = handle.as_ref().is_some_and(|handle| handle.http2);
        let claimed = handle.as_ref().filter(|_| !http2).and_then(|handle| handle.ledger.claim());
        let latest = handle.as_ref().and_then(|handle| handle.ledger.latest());
        let (attribution, head) = match (http2, claimed) {
            (true, _) => (Attribution::Frame, latest),
            (false, Some((_, head))) => (Attribution::Exact, Some(head)),
            (false, None) => (Attribution::None, latest),
        };
        let feed = Self {
            pieces: sender,
            queued: Arc::clone(&queued),
            handle: handle.clone(),
            exchange: claimed.map(|(number, _)| number),
            encoded,
            offset: 0,
            dropped: 0,
            dropping: false,
            ended: false,
        };
        let watch =
            Watch { pieces, queued, attribution, head: head.unwrap_or_else(|| (0, clock::now())), handle };
        (feed, watch)
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

    fn hand_on(&mut self, bytes: Bytes, read: Option<u32>, at: Micros) {
        let full = self.queued.pieces.load(Ordering::Relaxed) >= WATCH_PIECES
            || self.queued.bytes.load(Ordering::Relaxed) + bytes.len() > WATCH_BYTES;
        if full {
            self.dropped += if self.encoded { 1 } else { blank_lines(&bytes) };
            self.dropping = true;
            return;
        }
        self.tell_dropped();
        self.queued.bytes.fetch_add(bytes.len(), Ordering::Relaxed);
        self.queued.pieces.fetch_add(1, Ordering::Relaxed);
        let _ = self.pieces.send(Piece::Bytes { bytes, read, at });
    }

    fn tell_dropped(&mut self) {
        if std::mem::replace(&mut self.dropping, false) {
            let _ = self.pieces.send(Piece::Dropped { events: std::mem::take(&mut self.dropped) });
        }
    }

    fn end(&mut self, how: End) {
        if std::mem::replace(&mut self.ended, true) {
            return;
        }
        self.tell_dropped();
        let _ = self.pieces.send(Piece::End { at: clock::now(), how });
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
    Direct { body: Incoming, feed: Option<Feed> },
    Prompt(Prompt),
}

impl TapBody {
    /// A body that nobody watches. Its connection is told, so that the next body is not taken for it.
    pub(crate) fn unwatched(body: Incoming, handle: Option<&Handle>) -> Self {
        if let Some(handle) = handle.filter(|handle| !handle.http2)
            && let Some((number, _)) = handle.ledger.claim()
        {
            handle.ledger.release(number);
        }
        Self(Source::Direct { body, feed: None })
    }

    /// Watches `body`, which came over the connection of `handle`; `encoded` when it is compressed.
    pub(crate) fn watched(body: Incoming, handle: Option<Handle>, encoded: bool) -> (Self, Watch) {
        let http2 = handle.as_ref().is_some_and(|handle| handle.http2);
        let (feed, watch) = Feed::new(handle, encoded);
        if http2 && !body.is_end_stream() {
            (Self(Source::Prompt(Prompt::start(body, feed))), watch)
        } else {
            (Self(Source::Direct { body, feed: Some(feed) }), watch)
        }
    }
}

impl Body for TapBody {
    type Data = Bytes;
    type Error = hyper::Error;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, hyper::Error>>> {
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
            Source::Prompt(prompt) => prompt.poll(cx),
        }
    }

    fn is_end_stream(&self) -> bool {
        match &self.0 {
            Source::Direct { body, .. } => body.is_end_stream(),
            Source::Prompt(prompt) => prompt.left == Some(0),
        }
    }

    fn size_hint(&self) -> SizeHint {
        match &self.0 {
            Source::Direct { body, .. } => body.size_hint(),
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
        while let Some(piece) = watch.next().await {
            match piece {
                Piece::Bytes { .. } => kept += 1,
                Piece::Dropped { events } => dropped += events,
                Piece::End { how, .. } => assert_eq!(how, End::Complete),
            }
        }
        assert_eq!(kept + dropped, sent);
        assert!(kept * event.len() as u64 <= WATCH_BYTES as u64 && dropped > 0, "{kept} {dropped}");
    }

    #[test]
    fn blank_lines_end_events() {
        assert_eq!(blank_lines(b"data: a\n\ndata: b\r\n\r\nda"), 2);
        assert_eq!(blank_lines(b"data: a\n"), 0);
        assert_eq!(split_at_blank_line(b"a\n\nb"), Some((&b"a\n\n"[..], &b"b"[..])));
    }
}
