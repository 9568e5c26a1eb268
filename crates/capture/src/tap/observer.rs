//! From a request and its answer to one [`Record`].
//!
//! In: what the tap saw of one exchange. Out: a record on a bounded queue. The analysis of a body runs in
//! a task of its own; nothing that it does delays the exchange, and when nobody takes the records they are
//! dropped and counted.

use std::collections::hash_map::RandomState;
use std::fmt;
use std::hash::BuildHasher;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use bytes::Bytes;
use hyper::Response;
use hyper::body::{Body, Incoming};
use hyper::header::{CONTENT_ENCODING, CONTENT_TYPE, HeaderMap};
use hyper::http::request;
use sseismo_trace::{Attribution, Chunk, Delta, Micros, Outcome, Read, Stream, Summary, TimeSource};
use tokio::sync::mpsc;

use super::body::{End, Piece, TapBody, Watch, split_at_blank_line};
use super::connector::Handle;
use super::decompress::Decompressor;
use super::sent::{Sent, SentBody};
use super::{request as asked, response as answered};
use crate::answer::{Answer, Head};
use crate::clock;

/// Finished records that may wait for whoever stores them.
const QUEUE: usize = 1_024;

/// One finished stream.
#[derive(Clone, Debug, Default)]
pub struct Record {
    /// What is known of the stream.
    pub summary: Summary,
    /// Its events.
    pub deltas: Vec<Delta>,
    /// The socket reads from the one that completed the response's head to the last one of the body.
    pub reads: Vec<Read>,
    /// The body as it came, with the read of each piece; empty unless asked for.
    pub raw: Vec<(u32, Bytes)>,
}

impl Record {
    /// As signatures take it.
    pub fn stream(&self) -> Stream<'_> {
        Stream { summary: &self.summary, deltas: &self.deltas, reads: &self.reads }
    }
}

/// A keyed hash, the same within one dataset and meaningless outside it.
pub type Hash = Arc<dyn Fn(&[u8]) -> u64 + Send + Sync>;

/// Turns exchanges into records.
#[derive(Clone)]
pub struct Observer(Arc<Shared>);

struct Shared {
    hash: Hash,
    keep_raw: bool,
    records: mpsc::Sender<Record>,
    next_id: AtomicU64,
    lost: Arc<AtomicU64>,
}

impl fmt::Debug for Observer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Observer").field("lost", &self.0.lost).finish_non_exhaustive()
    }
}

impl Observer {
    /// An observer whose ids are hashed with `hash`, and the queue of its records. The queue ends when the
    /// observer and every exchange are gone.
    pub fn new(hash: Hash, keep_raw: bool) -> (Self, mpsc::Receiver<Record>) {
        let (records, queue) = mpsc::channel(QUEUE);
        let shared = Shared {
            hash,
            keep_raw,
            records,
            next_id: AtomicU64::new(random()),
            lost: Arc::default(),
        };
        (Self(Arc::new(shared)), queue)
    }

    /// Counts the records that were dropped because nobody took them in time.
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
                headers: head.headers.clone(),
                sent: Arc::default(),
                summary,
            }),
        }
    }

    fn put(&self, record: Record) {
        if record.summary.api.is_some() && self.0.records.try_send(record).is_err() {
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
    headers: HeaderMap,
    sent: Arc<Sent>,
    summary: Summary,
}

impl Draft {
    /// Adds what the request's body says.
    fn read_request(&mut self, observer: &Observer) {
        let (bytes, copy) = self.sent.take();
        asked::from_body(&self.headers, bytes, copy.as_deref(), &*observer.0.hash, &mut self.summary);
    }
}

impl Exchange {
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
        let Some(mut draft) = self.draft.take() else {
            return Response::from_parts(head, TapBody::unwatched(body));
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
            self.observer.put(Record { summary: draft.summary, ..Record::default() });
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
    let head =
        Head { path: &draft.path, content_type: media.as_deref(), status: draft.summary.status };
    let mut body = Follow {
        answer: Answer::new(&head),
        decompressor: Decompressor::of(encoding.as_deref()),
        started: draft.started,
        deltas: Vec::new(),
        dropped: 0,
        resync: false,
        last_read: watch.head.0,
        raw: observer.0.keep_raw.then(Vec::new),
    };
    let mut ended = (clock::now(), End::Left);
    while let Some(piece) = watch.next().await {
        match piece {
            Piece::Bytes { bytes, read, at } => body.bytes(bytes, read, at),
            Piece::Dropped { events } => body.dropped(events),
            Piece::End { at, how } => ended = (at, how),
        }
    }
    draft.read_request(&observer);
    let last_read = body.last_read;
    let mut record = body.finish(draft.summary, ended.1);
    record.summary.t_end = record.summary.t_end.or(Some(ended.0.since(draft.started)));
    if let Some(handle) = &watch.handle {
        record.reads = handle.ledger.finish(watch.head.0, last_read);
    }
    observer.put(record);
}

/// One body on its way through decompression, framing and dialect.
#[derive(Debug)]
struct Follow {
    answer: Answer,
    /// `None` for an encoding that is not known or a body that broke its own.
    decompressor: Option<Decompressor>,
    started: Micros,
    deltas: Vec<Delta>,
    dropped: u64,
    /// Events were lost: what follows up to the next blank line belongs to one of them.
    resync: bool,
    last_read: u32,
    raw: Option<Vec<(u32, Bytes)>>,
}

impl Follow {
    fn bytes(&mut self, bytes: Bytes, read: Option<u32>, at: Micros) {
        let read = read.unwrap_or(0);
        self.last_read = self.last_read.max(read);
        let mut rest = &bytes[..];
        if self.resync {
            let Some((_, after)) = split_at_blank_line(rest) else { return };
            (self.resync, rest) = (false, after);
            self.dropped += 1;
        }
        let at = Some(at.since(self.started));
        let (answer, deltas) = (&mut self.answer, &mut self.deltas);
        let pushed = self.decompressor.as_mut().map(|decompressor| {
            decompressor.push(rest, |bytes| {
                answer.push(Chunk { bytes, read, at }, |delta| deltas.push(delta));
            })
        });
        if matches!(pushed, Some(Err(_))) {
            self.decompressor = None;
        }
        if let Some(raw) = &mut self.raw {
            raw.push((read, bytes));
        }
    }

    fn dropped(&mut self, events: u64) {
        self.dropped += events;
        if matches!(self.decompressor, Some(Decompressor::Identity)) {
            // Ends the event that was cut in two, whose half must not be taken for one.
            self.answer.push(Chunk { bytes: b"\n\n", read: self.last_read, at: None }, |_| {});
            self.resync = true;
        } else {
            self.decompressor = None; // a compressed stream with a hole cannot be read on
        }
    }

    fn finish(mut self, mut summary: Summary, end: End) -> Record {
        let unread = self.decompressor.is_none();
        let deltas = &mut self.deltas;
        summary.outcome = Outcome::Unknown;
        self.answer.finish(&mut summary, |delta| deltas.push(delta));
        summary.events_dropped = self.dropped;
        summary.outcome = match (summary.outcome, end) {
            (Outcome::Unknown | Outcome::Truncated, End::Left) => Outcome::ClientGone,
            (Outcome::Unknown | Outcome::Truncated, End::Broken) => Outcome::Truncated,
            (Outcome::Truncated, End::Complete) if unread || self.dropped > 0 => Outcome::Unknown,
            (outcome, _) => outcome,
        };
        if summary.attribution == Attribution::None {
            for delta in &mut self.deltas {
                (delta.first_read, delta.extra_reads) = (None, 0);
            }
        }
        Record { summary, deltas: self.deltas, reads: Vec::new(), raw: self.raw.unwrap_or_default() }
    }
}

/// A number that differs from run to run, without a generator of our own.
pub(crate) fn random() -> u64 {
    RandomState::new().hash_one(clock::wall().0)
}
