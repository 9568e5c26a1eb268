//! Recorded requests sent again, each at its own time whatever became of the others.
//!
//! In: [`Shape`]s. Out: requests, and the observer's notes. The loop is open: no request waits for an answer to
//! another one, and times count from the moment at which a request was due, so a server that stalls cannot hide
//! the wait of those who would have come meanwhile (coordinated omission; G. Tene, "How NOT to measure latency").
//! What cannot be sent in time because too many answers are open is shed and counted, never sent later in silence.

use std::collections::BTreeMap;
use std::pin::pin;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use bytes::Bytes;
use http_body_util::{BodyExt, Full};
use hyper::header::{HeaderMap, HeaderValue, RETRY_AFTER};
use hyper::{Request, StatusCode, Uri};
use sseismo_trace::{Api, Micros, Outcome};
use tokio::task::JoinSet;

use super::probe::{BadProbe, header_map, target};
use super::{Observer, SentBody, Tap};
use crate::clock;
use crate::shape::{Shape, text};

/// So long before it is due a request is prepared: writing a body of megabytes takes milliseconds.
const LEAD_US: i64 = 250_000;

/// A trace that lasts longer, by its times or by a speed near 0, is sent as far as anybody waits: a century, µs.
const LONGEST_US: i64 = 100 * 365 * 86_400 * 1_000_000;

/// How clients wait before they ask again: 0.5 s doubled up to 8 s, less up to a quarter, unless Retry-After says
/// a time of up to a minute (`openai-python`, `_base_client.py`; Anthropic's SDKs are generated from the same).
const BACKOFF: Duration = Duration::from_millis(500);
const MAX_BACKOFF: Duration = Duration::from_secs(8);
const MAX_RETRY_AFTER: Duration = Duration::from_mins(1);

/// How requests are sent again.
#[derive(Clone, Copy, Debug)]
pub struct Pace {
    /// How many times as fast as they were recorded; above 0.
    pub speed: f64,
    /// A request without a whole answer so long after it was due is given up.
    pub deadline: Duration,
    /// Requests that may be open at once; those above it are shed.
    pub in_flight: u64,
    /// How often a request is sent again after 408, 409, 429, 5xx, or no answer.
    pub retries: u32,
    /// What the texts are drawn from.
    pub seed: u64,
    /// The most tokens of an answer.
    pub most_tokens: Option<u64>,
}

/// What has happened so far; to be read at any time.
#[derive(Debug, Default)]
pub struct Tally {
    sent: AtomicU64,
    shed: AtomicU64,
    again: AtomicU64,
    open: AtomicU64,
    unanswered: AtomicU64,
    late: Mutex<Vec<i64>>,
    error: Mutex<Option<String>>,
}

impl Tally {
    /// Requests that were sent, each counted once.
    pub fn sent(&self) -> u64 {
        self.sent.load(Ordering::Relaxed)
    }

    /// Requests that were not sent because too many were open.
    pub fn shed(&self) -> u64 {
        self.shed.load(Ordering::Relaxed)
    }

    /// Second and later attempts.
    pub fn again(&self) -> u64 {
        self.again.load(Ordering::Relaxed)
    }

    /// Requests that are open now.
    pub fn open(&self) -> u64 {
        self.open.load(Ordering::Relaxed)
    }

    /// Attempts to which no answer came at all, and why the first of them had none.
    pub fn unanswered(&self) -> (u64, Option<String>) {
        let error = self.error.lock().unwrap_or_else(PoisonError::into_inner).clone();
        (self.unanswered.load(Ordering::Relaxed), error)
    }

    /// By how many µs each first attempt was sent later than it was due, in no order.
    pub fn lateness(&self) -> Vec<i64> {
        self.late.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// One more open request, until what is returned is dropped; `None` when there are `most` already.
    fn enter(&self, most: u64) -> Option<Open<'_>> {
        let one_more = |open| (open < most).then_some(open + 1);
        self.open.fetch_update(Ordering::Relaxed, Ordering::Relaxed, one_more).ok()?;
        Some(Open(self))
    }

    fn no_answer(&self, error: String) {
        self.unanswered.fetch_add(1, Ordering::Relaxed);
        self.error.lock().unwrap_or_else(PoisonError::into_inner).get_or_insert(error);
    }
}

/// One open request.
struct Open<'a>(&'a Tally);

impl Drop for Open<'_> {
    fn drop(&mut self) {
        self.0.open.fetch_sub(1, Ordering::Relaxed);
    }
}

/// Requests that are ready to be sent again.
#[derive(Debug)]
pub struct OpenLoop {
    /// In the order in which they are due, and where they go.
    requests: Vec<(Shape, Uri)>,
    headers: BTreeMap<&'static str, HeaderMap>,
    pace: Pace,
}

/// What each request needs while it is open.
struct Sender {
    tap: Tap<SentBody<Full<Bytes>>>,
    observer: Observer,
    headers: BTreeMap<&'static str, HeaderMap>,
    pace: Pace,
    tally: Arc<Tally>,
}

/// How an attempt ended.
enum Ended {
    /// Nothing more is to be done.
    Over,
    /// It may be tried again, after so long where the upstream says so.
    Failed(Option<Duration>),
}

impl OpenLoop {
    /// `shapes` to be sent to the API at `root`, `https://api.example` or `https://api.example/v1`. The key goes
    /// where each API wants it. `headers` come last and win.
    ///
    /// # Errors
    /// When a part of it cannot be sent.
    pub fn new(
        root: &str,
        mut shapes: Vec<Shape>,
        key: Option<&str>,
        headers: &[(String, String)],
        pace: Pace,
    ) -> Result<Self, BadProbe> {
        target(root)?;
        shapes.sort_by_key(|shape| shape.at);
        let mut of_api = BTreeMap::new();
        let mut requests = Vec::with_capacity(shapes.len());
        for shape in shapes {
            if !of_api.contains_key(shape.api.name()) {
                of_api.insert(shape.api.name(), header_map(Some(shape.api), key, headers)?);
            }
            let uri = target(&join(root, &shape.path()))?;
            requests.push((shape, uri));
        }
        Ok(Self { requests, headers: of_api, pace })
    }

    /// From the first request to the last.
    pub fn lasts(&self) -> Duration {
        let last = self.requests.last().map_or(0, |(shape, _)| self.offset_us(shape));
        Duration::from_micros(u64::try_from(last).unwrap_or(0))
    }

    /// When a request is due after the first one, µs.
    #[expect(
        clippy::cast_precision_loss,
        clippy::cast_possible_truncation,
        reason = "spans of traces are far below 2^53 µs"
    )]
    fn offset_us(&self, shape: &Shape) -> i64 {
        let first = self.requests.first().map_or(shape.at.0, |(first, _)| first.at.0);
        let offset = (shape.at.0.saturating_sub(first) as f64 / self.pace.speed) as i64;
        offset.min(LONGEST_US)
    }

    /// Sends everything and waits for the answers.
    ///
    /// Dropping the future leaves the open answers, which are noted as `client-gone`.
    pub async fn run(self, tap: Tap<SentBody<Full<Bytes>>>, observer: Observer, tally: Arc<Tally>) {
        let offsets: Vec<i64> = self.requests.iter().map(|(shape, _)| self.offset_us(shape)).collect();
        let sender = Arc::new(Sender { tap, observer, headers: self.headers, pace: self.pace, tally });
        let mut open = JoinSet::new();
        let begin = clock::now().0 + LEAD_US;
        for ((shape, uri), offset) in self.requests.into_iter().zip(offsets) {
            let due = Micros(begin + offset);
            until(Micros(due.0 - LEAD_US)).await;
            while open.try_join_next().is_some() {}
            let sender = Arc::clone(&sender);
            open.spawn(async move { sender.turn(&shape, &uri, due).await });
        }
        while open.join_next().await.is_some() {}
    }
}

impl Sender {
    /// One request with all its attempts.
    async fn turn(&self, shape: &Shape, uri: &Uri, due: Micros) {
        let body = Bytes::from(shape.body(self.pace.seed, self.pace.most_tokens));
        until(due).await;
        let Some(_open) = self.tally.enter(self.pace.in_flight) else {
            self.tally.shed.fetch_add(1, Ordering::Relaxed);
            return;
        };
        self.tally.sent.fetch_add(1, Ordering::Relaxed);
        let late = clock::now().since(due).0;
        self.tally.late.lock().unwrap_or_else(PoisonError::into_inner).push(late);
        let give_up = Micros(due.0.saturating_add(micros(self.pace.deadline)));
        let (mut due, mut draw) = (due, text::Draw(self.pace.seed ^ shape.draw));
        for attempt in 1.. {
            let ended = Box::pin(self.attempt(shape, uri, body.clone(), attempt, due, give_up)).await;
            let Ended::Failed(told) = ended else { return };
            if attempt > self.pace.retries {
                return;
            }
            due = Micros(clock::now().0 + micros(told.unwrap_or_else(|| backoff(attempt, &mut draw))));
            if due >= give_up {
                return;
            }
            until(due).await;
            self.tally.again.fetch_add(1, Ordering::Relaxed);
        }
    }

    async fn attempt(
        &self,
        shape: &Shape,
        uri: &Uri,
        body: Bytes,
        attempt: u32,
        due: Micros,
        give_up: Micros,
    ) -> Ended {
        let mut request = Request::new(Full::new(body));
        *request.method_mut() = hyper::Method::POST;
        *request.uri_mut() = uri.clone();
        *request.headers_mut() = self.headers_of(shape, attempt);
        let (head, body) = request.into_parts();
        let upstream = uri.authority().map_or("", |authority| authority.as_str());
        let mut exchange = self.observer.request(&head, upstream).due(due);
        if let Some(group) = shape.group {
            exchange = exchange.repeats(&group.to_le_bytes());
        }
        if shape.json {
            exchange = exchange.asks_json();
        }
        exchange.annotate(|summary| {
            (summary.attempt, summary.turn_index) = (Some(attempt), shape.turn_index);
        });
        let expired = Arc::new(AtomicBool::new(false));
        let told = Arc::clone(&expired);
        exchange.at_end(move |summary| {
            if told.load(Ordering::Relaxed) && summary.outcome == Outcome::ClientGone {
                summary.outcome = Outcome::Timeout;
            }
        });
        let request = Request::from_parts(head, exchange.body(body));
        let work = async {
            let response = match self.tap.send(request).await {
                Ok(response) => response,
                Err(error) => {
                    exchange.failed(Outcome::Failed);
                    self.tally.no_answer(super::causes(&error));
                    return Ended::Failed(None);
                }
            };
            let ended = ended(response.status(), response.headers());
            let mut body = exchange.answered(response).into_body();
            while let Some(Ok(_)) = body.frame().await {} // the record says whether it broke off
            ended
        };
        let mut work = pin!(work);
        tokio::select! {
            ended = &mut work => ended,
            () = until(give_up) => {
                // Said before the body is dropped, which ends the record.
                expired.store(true, Ordering::Relaxed);
                Ended::Over
            }
        }
    }

    /// Sessions and turns are named by their hashes, which the recorder hashes again: the same groups.
    fn headers_of(&self, shape: &Shape, attempt: u32) -> HeaderMap {
        let mut headers = self.headers.get(shape.api.name()).cloned().unwrap_or_default();
        let mut set = |name: &'static str, value: String| {
            if let Ok(value) = HeaderValue::from_str(&value) {
                headers.insert(name, value);
            }
        };
        if let Some(session) = shape.session {
            set("session-id", format!("{session:016x}"));
        }
        if let Some(turn) = shape.turn {
            set("x-turn-id", format!("{turn:016x}"));
        }
        if matches!(shape.api, Api::Responses | Api::Chat | Api::Messages) {
            set("x-stainless-retry-count", (attempt - 1).to_string());
        }
        headers
    }
}

/// Whether a client would ask again after such a head.
fn ended(status: StatusCode, headers: &HeaderMap) -> Ended {
    if !matches!(status.as_u16(), 408 | 409 | 429 | 500..) {
        return Ended::Over;
    }
    let told = headers.get(RETRY_AFTER).and_then(|value| value.to_str().ok()?.trim().parse::<f64>().ok());
    let told = told.and_then(|seconds| Duration::try_from_secs_f64(seconds).ok());
    Ended::Failed(told.filter(|told| !told.is_zero() && *told <= MAX_RETRY_AFTER))
}

fn backoff(attempt: u32, draw: &mut text::Draw) -> Duration {
    let full = BACKOFF.saturating_mul(1 << (attempt - 1).min(6)).min(MAX_BACKOFF);
    let less = u32::try_from(draw.next() % 250).unwrap_or(0);
    full * (1_000 - less) / 1_000
}

/// `path` below `root`, which may end in the path's first segment already: `…/v1` and `/v1/responses`.
fn join(root: &str, path: &str) -> String {
    let root = root.trim_end_matches('/');
    let first = path.split('/').nth(1).unwrap_or_default();
    let root = root.strip_suffix(first).filter(|rest| rest.ends_with('/')).unwrap_or(root);
    format!("{}{path}", root.trim_end_matches('/'))
}

fn micros(time: Duration) -> i64 {
    i64::try_from(time.as_micros()).unwrap_or(i64::MAX)
}

/// Waits until `moment`; not at all when it is past.
async fn until(moment: Micros) {
    let left = moment.since(clock::now()).0;
    if let Ok(left) = u64::try_from(left)
        && left > 0
    {
        tokio::time::sleep(Duration::from_micros(left)).await;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_root_may_end_in_the_version() {
        for root in ["https://h", "https://h/", "https://h/v1", "https://h/v1/"] {
            assert_eq!(join(root, "/v1/responses"), "https://h/v1/responses");
        }
        assert_eq!(join("https://h/openai/v1", "/v1/responses"), "https://h/openai/v1/responses");
        assert_eq!(join("http://h:1", "/api/chat"), "http://h:1/api/chat");
        assert_eq!(join("http://h/xv1", "/v1/messages"), "http://h/xv1/v1/messages");
    }

    #[test]
    fn no_speed_and_no_time_overflows_a_clock() {
        let shape = |at| Shape {
            at: sseismo_trace::UtcMicros(at),
            api: Api::Chat,
            model: "m".to_owned(),
            effort: None,
            streamed: true,
            bytes: 100,
            numeric_share: 0.0,
            json: false,
            usage: false,
            session: None,
            turn_index: None,
            turn: None,
            group: None,
            draw: 1,
        };
        for (speed, last) in [(1e-300, 1), (1e-18, 1), (1.0, i64::MAX), (5e-324, i64::MAX)] {
            let deadline = Duration::from_secs(1);
            let pace = Pace { speed, deadline, in_flight: 1, retries: 0, seed: 1, most_tokens: None };
            let shapes = vec![shape(i64::MIN), shape(last)];
            let open_loop = OpenLoop::new("http://h", shapes, None, &[], pace).unwrap();
            assert_eq!(micros(open_loop.lasts()), LONGEST_US, "{speed}");
            assert!(clock::now().0.checked_add(LEAD_US + LONGEST_US).is_some());
        }
    }

    #[test]
    fn clients_ask_again_after_what_may_pass() {
        let mut headers = HeaderMap::new();
        let again =
            |status: u16, headers: &HeaderMap| match ended(StatusCode::from_u16(status).unwrap(), headers) {
                Ended::Over => None,
                Ended::Failed(told) => Some(told),
            };
        assert_eq!(again(200, &headers), None);
        assert_eq!(again(400, &headers), None);
        assert_eq!(again(503, &headers), Some(None));
        headers.insert(RETRY_AFTER, HeaderValue::from_static("2"));
        assert_eq!(again(429, &headers), Some(Some(Duration::from_secs(2))));
        headers.insert(RETRY_AFTER, HeaderValue::from_static("600"));
        assert_eq!(again(429, &headers), Some(None));
    }

    #[test]
    fn waits_double_up_to_their_limit() {
        let mut draw = text::Draw(1);
        for (attempt, full) in [(1, 500), (2, 1_000), (3, 2_000), (5, 8_000), (40, 8_000)] {
            let wait = backoff(attempt, &mut draw).as_millis();
            assert!(wait <= full && wait * 4 >= full * 3, "{attempt}: {wait}");
        }
    }
}
