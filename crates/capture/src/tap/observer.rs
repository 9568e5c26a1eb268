//! From a request and its answer to notes for the recorder.
//!
//! In: what the tap saw of one exchange. Out: [`Note`]s on a bounded queue: a stream's beginning, its
//! events as they come (at most [`NOTE_EVERY`] late, so that a killed process loses no more than that),
//! and its end with all that is known. The analysis of a body runs in a task of its own; nothing that it
//! does delays the exchange, and when nobody takes the notes they are dropped and counted.

use std::collections::VecDeque;
use std::collections::hash_map::RandomState;
use std::fmt;
use std::hash::BuildHasher;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::mpsc::{Receiver, SyncSender, sync_channel};
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use bytes::Bytes;
use hyper::Response;
use hyper::body::{Body, Incoming};
use hyper::header::{CONTENT_ENCODING, CONTENT_TYPE};
use hyper::http::request;
use sseismo_trace::{Delta, Micros, Outcome, Read, Stream, Summary, TimeSource, UtcMicros};
use tokio::sync::oneshot;
use tokio::time::Instant;

use super::body::{Piece, TapBody, Watch};
use super::follow::Follow;
use super::sent::{Sent, SentBody};
use super::wire::Handle;
use super::{request as asked, response as answered};
use crate::answer::{Head, Words};
use crate::clock;

/// Notes that may wait for the recorder.
pub(super) const QUEUE: usize = 4_096;

/// Events wait at most this long before they are noted, and at most this many.
const NOTE_EVERY: Duration = Duration::from_millis(500);
const NOTE_EVENTS: usize = 256;

/// One finished stream.
#[derive(Clone, Debug, Default)]
pub struct Record {
    /// What is known of the stream.
    pub summary: Summary,
    /// Its events.
    pub deltas: Vec<Delta>,
    /// The socket reads from the one that completed the response's head to the last one of the body.
    pub reads: Vec<Read>,
    /// Content stopped in the middle of a phase, for much longer than is usual in the stream.
    pub stalled: bool,
}

impl Record {
    /// As signatures take it.
    pub fn stream(&self) -> Stream<'_> {
        Stream { summary: &self.summary, deltas: &self.deltas, reads: &self.reads }
    }
}

/// Bytes of a body that one read completed, before decompression.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RawPiece {
    /// The read; `None` where bytes could not be tied to one.
    pub read: Option<u32>,
    /// When it returned, since the stream's start.
    pub t: Micros,
    /// The bytes.
    pub bytes: Bytes,
}

/// One step of a stream, in order.
#[derive(Clone, Debug)]
pub enum Note {
    /// The answer's head has come, or will never come. Left out where the end comes with it and nothing between.
    Begin(Box<Summary>),
    /// More of the stream.
    Events {
        /// Which.
        stream_id: u64,
        /// Events that came since the last note.
        deltas: Vec<Delta>,
        /// The reads that brought them; streams that share a connection may tell the same ones.
        reads: Vec<Read>,
        /// The bytes, when they were asked for.
        raw: Vec<RawPiece>,
        /// The text, when it was asked for.
        words: Vec<Words>,
    },
    /// The stream has ended: all of it once more, except for its bytes and text. With [`Keep::notes_only`] only
    /// what came since the last note.
    End(Box<Record>),
}

/// What notes hold beside sizes and times. Nothing unless asked for.
#[derive(Clone, Copy, Debug, Default)]
pub struct Keep {
    /// The bytes of bodies.
    pub raw: bool,
    /// The text of answers.
    pub text: bool,
    /// Nothing that was noted: a stream's events and reads are forgotten then, and a long stream takes no more
    /// memory than a short one.
    pub notes_only: bool,
}

/// A keyed hash of a value in a domain (`session`, `caller` …): the same within one dataset, meaningless
/// outside it.
pub type Hash = Arc<dyn Fn(&str, &[u8]) -> u64 + Send + Sync>;

/// Turns exchanges into notes.
#[derive(Clone)]
pub struct Observer(Arc<Shared>);

struct Shared {
    hash: Hash,
    keep: Keep,
    notes: SyncSender<Note>,
    next_id: AtomicU64,
    lost: Arc<AtomicU64>,
    listener: OnceLock<Listener>,
}

/// The second queue of the same notes.
struct Listener {
    notes: SyncSender<Note>,
    missed: Arc<AtomicU64>,
}

impl Listener {
    fn note(&self, note: Note) {
        if self.notes.try_send(note).is_err() {
            self.missed.fetch_add(1, Ordering::Relaxed);
        }
    }
}

impl fmt::Debug for Observer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Observer").field("lost", &self.0.lost).finish_non_exhaustive()
    }
}

impl Observer {
    /// An observer whose ids are hashed with `hash`, and the queue of its notes. The queue ends when the
    /// observer and every exchange are gone.
    pub fn new(hash: Hash, keep: Keep) -> (Self, Receiver<Note>) {
        let (notes, queue) = sync_channel(QUEUE);
        let shared = Shared {
            hash,
            keep,
            notes,
            next_id: AtomicU64::new(random()),
            lost: Arc::default(),
            listener: OnceLock::new(),
        };
        (Self(Arc::new(shared)), queue)
    }

    /// A second queue, for somebody who works at a pace of their own: summaries and events, without reads,
    /// bytes and texts. What does not fit there is counted in the number beside it and touches nobody else.
    /// `None` when somebody listens already.
    pub fn listen(&self) -> Option<(Receiver<Note>, Arc<AtomicU64>)> {
        let (notes, queue) = sync_channel(QUEUE);
        let missed: Arc<AtomicU64> = Arc::default();
        self.0.listener.set(Listener { notes, missed: Arc::clone(&missed) }).ok()?;
        Some((queue, missed))
    }

    /// Counts the streams of which a beginning or an end was dropped because nobody took notes in time.
    pub fn lost(&self) -> Arc<AtomicU64> {
        Arc::clone(&self.0.lost)
    }

    /// A request is about to be sent to `upstream`.
    pub fn request(&self, head: &request::Parts, upstream: &str) -> Exchange {
        let mut summary = Summary {
            stream_id: self.0.next_id.fetch_add(1, Ordering::Relaxed),
            upstream: Some(upstream.to_owned()),
            started_at: Some(clock::wall()),
            outcome: Outcome::ClientGone, // unless something better is learnt
            ..Summary::default()
        };
        asked::from_head(head, &*self.0.hash, &mut summary);
        Exchange {
            observer: self.clone(),
            draft: Some(Draft {
                started: clock::now(),
                path: head.uri.path().to_owned(),
                kept: asked::Kept::of(&head.headers),
                sent: Arc::default(),
                summary,
                at_end: AtEnd::default(),
                json: false,
                known: None,
            }),
        }
    }

    /// Notes the events of `body` that were not noted yet. Those that nobody takes are lost to it.
    fn events(&self, body: &mut Follow, stream_id: u64, handle: Option<&Handle>) {
        let Some(note) = body.take(stream_id, handle) else { return };
        let Note::Events { deltas, .. } = &note else { return };
        let events = deltas.len() as u64;
        if let Some(listener) = self.0.listener.get().filter(|_| events > 0) {
            let (reads, raw, words) = (Vec::new(), Vec::new(), Vec::new());
            listener.note(Note::Events { stream_id, deltas: deltas.clone(), reads, raw, words });
        }
        if self.0.notes.try_send(note).is_err() {
            body.dropped += events;
        }
    }

    /// Notes a stream's beginning or end. What speaks no API is not a stream.
    fn note(&self, note: Note) {
        if let Some(listener) = self.0.listener.get() {
            match &note {
                Note::Begin(summary) => listener.note(Note::Begin(summary.clone())),
                Note::End(record) => {
                    let summary = record.summary.clone();
                    listener.note(Note::End(Box::new(Record { summary, ..Record::default() })));
                }
                Note::Events { .. } => {} // told by whoever cut them into notes
            }
        }
        if self.0.notes.try_send(note).is_err() {
            self.0.lost.fetch_add(1, Ordering::Relaxed);
        }
    }
}

/// One request that was sent. Dropped without an answer, it is recorded as `client-gone`.
#[derive(Debug)]
pub struct Exchange {
    observer: Observer,
    draft: Option<Draft>,
}

/// What is known before the answer.
#[derive(Debug)]
struct Draft {
    started: Micros,
    path: String,
    kept: asked::Kept,
    sent: Arc<Sent>,
    summary: Summary,
    at_end: AtEnd,
    /// JSON was asked for, and the answer is to be held against it.
    json: bool,
    known: Option<oneshot::Receiver<()>>,
}

type Change = Box<dyn FnOnce(&mut Summary) + Send>;

/// What else is to be said of a stream once its end is known.
#[derive(Default)]
struct AtEnd(Option<Change>);

impl fmt::Debug for AtEnd {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("AtEnd").field(&self.0.is_some()).finish()
    }
}

impl AtEnd {
    fn apply(&mut self, summary: &mut Summary) {
        if let Some(change) = self.0.take() {
            change(summary);
        }
    }
}

impl Draft {
    /// Adds what the request's body says.
    fn read_request(&mut self, observer: &Observer) {
        let Some((bytes, copy)) = self.sent.take() else { return };
        asked::from_body(&self.kept, bytes, copy.as_deref(), &*observer.0.hash, &mut self.summary);
    }
}

impl Exchange {
    /// The request is one of several that ask the same: `prompt` is what they ask, and only its hash is kept.
    #[must_use]
    pub fn repeats(mut self, prompt: &[u8]) -> Self {
        if let Some(draft) = &mut self.draft {
            draft.summary.group_id = Some((self.observer.0.hash)("group", prompt));
        }
        self
    }

    /// The request was to be sent at `due`, and the stream's times count from then: what we were late by is part
    /// of what the client waited, or a slow answer would hide the slowness of those behind it.
    #[must_use]
    pub(super) fn due(mut self, due: Micros) -> Self {
        if let Some(draft) = &mut self.draft {
            let ago = clock::now().since(due).0;
            draft.summary.started_at = Some(UtcMicros(clock::wall().0 - ago));
            draft.started = due;
        }
        self
    }

    /// JSON was asked for: whether the answer is some, is said in `content_check`. Its text is not kept for that
    /// longer than the answer lasts.
    #[must_use]
    pub(super) fn asks_json(mut self) -> Self {
        if let Some(draft) = &mut self.draft {
            draft.json = true;
        }
        self
    }

    /// Says something of the stream that only the sender knows: its route, which attempt it is.
    pub fn annotate(&mut self, change: impl FnOnce(&mut Summary)) {
        if let Some(draft) = &mut self.draft {
            change(&mut draft.summary);
        }
    }

    /// Says something of the stream once everything else is known of it, usage among it.
    pub fn at_end(&mut self, change: impl FnOnce(&mut Summary) + Send + 'static) {
        if let Some(draft) = &mut self.draft {
            draft.at_end = AtEnd(Some(Box::new(change)));
        }
    }

    /// What [`at_end`](Self::at_end) says is not known before the other end of `known` has sent or is dropped:
    /// the record waits for it.
    pub fn known_when(&mut self, known: oneshot::Receiver<()>) {
        if let Some(draft) = &mut self.draft {
            draft.known = Some(known);
        }
    }

    /// The request's body, to be sent instead of `body`.
    pub fn body<B: Body>(&self, body: B) -> SentBody<B> {
        let sent = self.draft.as_ref().map(|draft| Arc::clone(&draft.sent)).unwrap_or_default();
        SentBody::new(body, sent)
    }

    /// No answer came: `outcome` says why.
    pub fn failed(mut self, outcome: Outcome) {
        if let Some(draft) = &mut self.draft {
            draft.summary.outcome = outcome;
        }
    }

    /// The answer: the same response, watched.
    pub fn answered(mut self, response: Response<Incoming>) -> Response<TapBody> {
        let (mut head, body) = response.into_parts();
        let handle = head.extensions.remove::<Handle>();
        let Some(mut draft) = self.draft.take().filter(|draft| draft.summary.api.is_some()) else {
            return Response::from_parts(head, TapBody::unwatched(body, handle.as_ref()));
        };
        answered::from_head(&head, &mut draft.summary);
        let encoded = head.headers.contains_key(CONTENT_ENCODING);
        let (body, watch) = TapBody::watched(body, handle, encoded);
        describe(&watch, &mut draft);
        let media = head.headers.get(CONTENT_TYPE).and_then(|value| value.to_str().ok()).map(str::to_owned);
        tokio::spawn(analyse(self.observer.clone(), draft, watch, media));
        Response::from_parts(head, body)
    }
}

impl Drop for Exchange {
    fn drop(&mut self) {
        if let Some(mut draft) = self.draft.take() {
            draft.read_request(&self.observer);
            draft.summary.t_end = Some(clock::now().since(draft.started));
            draft.at_end.apply(&mut draft.summary);
            if draft.summary.api.is_some() {
                self.observer.note(Note::Begin(Box::new(draft.summary.clone())));
                self.observer
                    .note(Note::End(Box::new(Record { summary: draft.summary, ..Record::default() })));
            }
        }
    }
}

/// What the connection tells.
fn describe(watch: &Watch, draft: &mut Draft) {
    let (read, at) = watch.head;
    let summary = &mut draft.summary;
    summary.t_headers = Some(at.since(draft.started));
    summary.attribution = watch.attribution;
    summary.time_source = TimeSource::Socket;
    if let Some(handle) = &watch.handle {
        summary.tls = Some(handle.tls);
        summary.conn_id = Some(handle.ledger.conn_id);
        summary.conn_started_at = Some(handle.ledger.started_at);
        summary.conn_reused = Some(handle.ledger.begin(read));
    }
}

/// Follows one body to its end.
async fn analyse(observer: Observer, mut draft: Draft, mut watch: Watch, media: Option<String>) {
    let encoding = draft.summary.content_encoding.clone();
    let head = Head { path: &draft.path, content_type: media.as_deref(), status: draft.summary.status };
    let keep = observer.0.keep;
    let mut body = Follow::new(&head, encoding.as_deref(), draft.started, watch.head.0, keep);
    if draft.json {
        body = body.expect_json();
    }
    draft.read_request(&observer);
    let (mut due, mut pieces, mut end) = (None, VecDeque::new(), None);
    watch.at_hand(&mut pieces);
    // An answer that is over already is told by its end alone.
    let begun = !matches!(pieces.back(), Some(Piece::End { .. }));
    if begun {
        observer.note(Note::Begin(Box::new(draft.summary.clone())));
    }
    let (ended, how) = loop {
        match due {
            _ if !pieces.is_empty() => {}
            None => watch.more(&mut pieces).await,
            // Too late, what waits is due to be noted.
            Some(due) => drop(tokio::time::timeout_at(due, watch.more(&mut pieces)).await),
        }
        for piece in pieces.drain(..) {
            match piece {
                Piece::Bytes { bytes, read, at } => body.bytes(bytes, read, at),
                Piece::Dropped { events } => body.dropped(events),
                Piece::End { at, how } => end = Some((at, how)),
            }
        }
        if let Some(end) = end {
            break end;
        }
        let waiting = body.waiting();
        if waiting == 0 {
            due = None;
        } else if waiting >= NOTE_EVENTS || due.is_some_and(|due| due <= Instant::now()) {
            observer.events(&mut body, draft.summary.stream_id, watch.handle.as_ref());
            due = None;
        } else if due.is_none() {
            due = Some(Instant::now() + NOTE_EVERY);
        }
    };
    draft.read_request(&observer);
    let stream_id = draft.summary.stream_id;
    let summary = body.finish(draft.summary, how);
    if !begun && body.waiting() > 0 {
        observer.note(Note::Begin(Box::new(summary.clone()))); // events are of a stream that has begun
    }
    observer.events(&mut body, stream_id, watch.handle.as_ref());
    let stalled = body.gaps.stalled();
    let mut record = Record { summary, deltas: body.deltas, reads: Vec::new(), stalled };
    record.summary.events_dropped += body.dropped;
    record.summary.t_end = record.summary.t_end.or(Some(ended.since(draft.started)));
    if let Some(handle) = &watch.handle {
        let ledger = &handle.ledger;
        record.reads = ledger.finish(body.needs, body.last_read);
        if let Some(tcp) = ledger.tcp(clock::now()) {
            record.summary.tcp_rtt_us = Some(tcp.rtt_us);
            record.summary.tcp_retrans = Some(tcp.retrans);
        }
    }
    if let Some(known) = draft.known.take() {
        let _ = known.await; // dropped says the same as sent
    }
    draft.at_end.apply(&mut record.summary);
    observer.note(Note::End(Box::new(record)));
}

/// A number that differs from run to run, without a generator of our own.
pub(crate) fn random() -> u64 {
    RandomState::new().hash_one(clock::wall().0)
}
