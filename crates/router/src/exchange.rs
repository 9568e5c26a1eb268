//! One client request: attempts over the plan's candidates, until one answer is committed.
//!
//! ```text
//! plan.next → send → head → hold ──content──► commit: the client's answer, passed on as it comes
//!     ▲                │      │
//!     └── report ◄─────┴──────┴── connect error, status, silence, error frame, empty 200
//! ```
//!
//! Until the commit the client has seen nothing, so the next candidate takes over unseen. The commit comes
//! with the first content; without a limit for the first content it comes `commit_after` after the head, and
//! with such a limit the limit decides, since an answer that was committed cannot be replaced any more. An
//! answer that is no stream is held to its end: its client can use no part of it. After the commit bytes pass
//! on unchanged, and when the client leaves, everything here is dropped, the upstream's connection with it.

use std::sync::Arc;
use std::time::Duration;

use bytes::{Bytes, BytesMut};
use http_body_util::BodyExt;
use hyper::header::{CONTENT_ENCODING, CONTENT_TYPE};
use hyper::http::{request, response};
use hyper::{Response, StatusCode};
use sseismo_capture::answer::Head;
use sseismo_capture::tap::{Observer, TapBody, causes};
use sseismo_trace::{Api, ContentCheck, Outcome as Ending, Summary, Usage};
use tokio::time::{Instant, timeout_at};

use crate::access::{Open, PassedOver, Tried};
use crate::affinity::{Learner, paths};
use crate::choice::{Attempt, Plan, Router, Stop};
use crate::clock;
use crate::hold::{Ended, Hold, Reading, Verdict, error_in};
use crate::link::Links;
use crate::metrics::{InFlight, Metrics};
use crate::outcome::{FailureKind, Incapable, Limit, LimitKind, Outcome};
use crate::own::{self, FrontBody};
use crate::policy::{Expected, content_checks};
use crate::relayed::{Relayed, Settle};

mod head;
pub(crate) mod note;
mod send;

pub(crate) use head::name_request;
pub use send::Inbound;

use note::Noted;

/// Bytes of a refusal's body that are read and passed on.
const MAX_REFUSAL: usize = 1 << 20;

/// What all exchanges of a front share.
#[derive(Debug)]
pub struct Shared {
    /// The ways to upstreams.
    pub links: Arc<Links>,
    /// Who records.
    pub observer: Observer,
    /// A sign of life for the client after this much silence of the upstream.
    pub keep_alive: Option<Duration>,
    /// Where attempts in flight are counted.
    pub metrics: Option<Arc<Metrics>>,
}

/// One client request, let in and read.
#[derive(Debug)]
pub struct Exchange {
    pub(crate) shared: Arc<Shared>,
    pub(crate) router: Arc<Router>,
    pub(crate) plan: Plan,
    pub(crate) head: request::Parts,
    pub(crate) inbound: Inbound,
    pub(crate) api: Option<Api>,
    /// The client asked for a stream.
    pub(crate) streamed: bool,
    /// Hash of the client's turn, and which attempt of the client this is.
    pub(crate) turn: (u64, u32),
    pub(crate) started: Instant,
    pub(crate) open: Open,
}

/// An answer for the client.
#[derive(Debug)]
pub(crate) struct Answer {
    pub(crate) head: response::Parts,
    /// What came before the commit.
    pub(crate) held: Vec<Bytes>,
    /// What follows; `None` when nothing does.
    pub(crate) body: Option<TapBody>,
    /// What was understood so far; `None` when nobody can read it.
    pub(crate) reading: Option<Reading>,
    /// What the whole body told, when it is whole.
    pub(crate) summary: Option<Summary>,
    /// What a check of the whole said.
    pub(crate) check: ContentCheck,
    /// What a stream is held against when it has ended.
    pub(crate) expected: Option<Arc<Expected>>,
    /// Usage was asked for on the client's behalf and must go again.
    pub(crate) strip: bool,
    pub(crate) noted: Noted,
}

impl Answer {
    /// What was held, with nothing after it, and nobody has looked into it.
    fn unread(head: response::Parts, held: Vec<Bytes>, noted: Noted) -> Self {
        Self {
            head,
            held,
            body: None,
            reading: None,
            summary: None,
            check: ContentCheck::NotChecked,
            expected: None,
            strip: false,
            noted,
        }
    }
}

/// What one attempt came to.
#[derive(Debug)]
enum Came {
    /// The client's answer; what is known of its outcome, when it is over.
    Answer(Box<Answer>, Option<Outcome>),
    /// Not good enough, with what there is of an answer.
    Failed(Outcome, Option<Box<(response::Parts, Bytes)>>),
    /// A whole answer that is not what was asked for.
    Unfit(Box<Unfit>),
}

/// A whole answer that a content check failed.
#[derive(Debug)]
struct Unfit {
    head: response::Parts,
    body: Bytes,
    check: ContentCheck,
    usage: Usage,
}

/// The last answer that was not good enough, to be passed on when nothing better comes.
#[derive(Debug)]
struct Refusal {
    head: response::Parts,
    body: Bytes,
    outcome: Outcome,
    upstream: Arc<str>,
    number: u32,
    reason: &'static str,
}

impl From<FailureKind> for Came {
    fn from(kind: FailureKind) -> Self {
        Self::Failed(kind.into(), None)
    }
}

impl Exchange {
    /// Runs it. Dropped, it ends its attempt and is logged as `client-gone`.
    pub async fn run(mut self) -> Response<FrontBody> {
        let mut last: Option<Refusal> = None;
        let mut left_for = None;
        loop {
            let now = Instant::now();
            let mut attempt = match self.plan.next(now) {
                Ok(attempt) => attempt,
                Err(stop) => return self.refuse(&stop, last),
            };
            let place = self.begin(&attempt, now);
            if attempt.number == 1 {
                self.open.entry.policy.extend_from_slice(self.plan.told());
                self.open.entry.would_have.extend_from_slice(self.plan.would_have());
            }
            let in_flight = self.in_flight(&attempt);
            match self.attempt(&mut attempt, left_for, now).await {
                Came::Answer(answer, outcome) => {
                    return self.commit(*answer, attempt, outcome, place, in_flight);
                }
                Came::Failed(outcome, answer) => {
                    left_for = Some(outcome);
                    last = self.failed(attempt, place, outcome, answer.map(|answer| *answer)).or(last);
                }
                Came::Unfit(unfit) => {
                    let Unfit { head, body, check, usage } = *unfit;
                    let tried = &mut self.open.entry.attempts[place];
                    tried.content_check = check;
                    tried.costs(usage, &attempt);
                    let outcome = Outcome::Incapable(Incapable::Content);
                    left_for = Some(outcome);
                    last = self.failed(attempt, place, outcome, Some((head, body))).or(last);
                }
            }
        }
    }

    /// An attempt came to nothing; returned is what there is of an answer.
    fn failed(
        &mut self,
        attempt: Attempt,
        place: usize,
        outcome: Outcome,
        answer: Option<(response::Parts, Bytes)>,
    ) -> Option<Refusal> {
        let now = Instant::now();
        let tried = &mut self.open.entry.attempts[place];
        (tried.outcome, tried.kind) = (outcome.to_string(), outcome.name());
        tried.ended_ms = ms(now - self.started);
        let refusal = answer.map(|(head, body)| {
            tried.status = Some(head.status.as_u16());
            let (upstream, number) = (attempt.upstream.name.clone(), attempt.number);
            Refusal { head, body, outcome, upstream, number, reason: attempt.reason.name() }
        });
        self.plan.report(attempt, outcome, now);
        refusal
    }

    fn begin(&mut self, attempt: &Attempt, now: Instant) -> usize {
        let at = ms(now - self.started);
        if let Some(considered) = &self.open.considered {
            considered.began(&attempt.upstream, now);
        }
        self.open.entry.attempts.push(Tried {
            number: attempt.number,
            upstream: attempt.upstream.name.to_string(),
            model: attempt.model.to_string(),
            key_slot: attempt.key.as_ref().map(|key| key.slot),
            reason: attempt.reason.name(),
            outcome: "client-gone".to_owned(), // unless something better is learnt
            kind: "client-gone",
            started_ms: at,
            ended_ms: at,
            ..Tried::default()
        });
        self.open.entry.attempts.len() - 1
    }

    fn in_flight(&self, attempt: &Attempt) -> Option<InFlight> {
        let metrics = self.shared.metrics.as_ref()?;
        Some(metrics.traffic().in_flight(&attempt.upstream.name))
    }

    async fn attempt(&mut self, attempt: &mut Attempt, left_for: Option<Outcome>, now: Instant) -> Came {
        let mut start = match self.send(attempt, left_for, now).await {
            Ok(start) => start,
            Err(failed) => return failed.into(),
        };
        if start.head.status == StatusCode::UNSUPPORTED_MEDIA_TYPE && self.inbound.encoded {
            self.inbound.encoded = false; // it does not read the client's compression: plain, then
            start = match self.send(attempt, left_for, now).await {
                Ok(start) => start,
                Err(failed) => return failed.into(),
            };
        }
        let refused = start.head.status.is_client_error() || start.head.status.is_server_error();
        if refused && (self.api.is_some() || is_repeatable(&self.head)) {
            return start.refused(attempt.until).await;
        }
        if self.api.is_none()
            || start.head.headers.contains_key(CONTENT_ENCODING)
            || !start.head.status.is_success()
        {
            return start.unread();
        }
        let content_due = self.content_due(attempt, now);
        let commit_after = self.plan.route().commit_after;
        start.hold(self.head.uri.path(), attempt, content_due, commit_after).await
    }

    fn content_due(&self, attempt: &Attempt, now: Instant) -> Option<Instant> {
        attempt.first_content_within.filter(|_| self.streamed).map(|within| now + within)
    }

    /// Sends the request and waits for the answer's head.
    async fn send(
        &self,
        attempt: &Attempt,
        left_for: Option<Outcome>,
        now: Instant,
    ) -> Result<Start, FailureKind> {
        let upstream = &attempt.upstream;
        let made = send::request(&self.head, &self.inbound, self.api, attempt);
        let undone =
            made.as_ref().is_ok_and(|(request, _)| !request.headers().contains_key(CONTENT_ENCODING));
        let mut observed = if undone && self.head.headers.contains_key(CONTENT_ENCODING) {
            let mut head = self.head.clone();
            head.headers.remove(CONTENT_ENCODING); // the record is of what is sent
            self.shared.observer.request(&head, &upstream.name)
        } else {
            self.shared.observer.request(&self.head, &upstream.name)
        };
        let considered = self.open.considered.as_ref();
        let expected = considered.and_then(|considered| considered.expected.clone());
        let about = note::About {
            route: &self.plan.route().model,
            turn: self.turn,
            left_for,
            arm: considered.and_then(|considered| considered.arm),
            checked: expected.is_some(),
        };
        let noted = note::annotate(&mut observed, attempt, &about);
        let (request, strip) = match made {
            Ok(request) => request,
            Err(error) => {
                tracing::warn!("no request to {} can be made: {error}", upstream.name);
                observed.failed(Ending::Failed);
                return Err(FailureKind::Connect);
            }
        };
        let request = request.map(|body| observed.body(body));
        let head_due = attempt.headers_within.filter(|_| self.streamed).map(|within| now + within);
        let due =
            head_due.into_iter().chain(self.content_due(attempt, now)).fold(attempt.until, Instant::min);
        let tap = self.shared.links.to(upstream, now);
        match timeout_at(due, tap.send(request)).await {
            Ok(Ok(response)) if response.status().is_informational() => {
                // Nobody asked to switch protocols, and no other such answer gets here.
                tracing::warn!("no answer from {}: status {}", upstream.name, response.status());
                observed.failed(Ending::Failed);
                Err(FailureKind::Connect)
            }
            Ok(Ok(response)) => {
                let (head, body) = observed.answered(response).into_parts();
                if let Some(considered) = considered {
                    let slot = attempt.key.as_ref().map(|key| key.slot);
                    considered.answered(upstream, slot, &head.headers, Instant::now());
                }
                Ok(Start { head, body, strip, noted, began: now, expected })
            }
            Ok(Err(error)) => {
                tracing::warn!("no answer from {}: {}", upstream.name, causes(&error));
                observed.failed(Ending::Failed);
                Err(FailureKind::Connect)
            }
            Err(_) => {
                observed.failed(Ending::Timeout);
                Err(FailureKind::NoHeaders)
            }
        }
    }

    /// Gives the client its answer. What follows is told to the upstream's breaker when it is over.
    fn commit(
        mut self,
        answer: Answer,
        attempt: Attempt,
        outcome: Option<Outcome>,
        place: usize,
        in_flight: Option<InFlight>,
    ) -> Response<FrontBody> {
        let now = Instant::now();
        let entry = &mut self.open.entry;
        entry.status = answer.head.status.as_u16();
        entry.served_by = Some(attempt.upstream.name.to_string());
        (entry.attempt, entry.reason) = (attempt.number, Some(attempt.reason.name()));
        entry.committed_ms = Some(ms(now - self.started));
        entry.attempts[place].status = Some(entry.status);
        passed_over(&mut self.open, &self.plan);
        let mut head = answer.head.clone();
        let told = head::Told {
            upstream: &attempt.upstream.name,
            number: attempt.number,
            reason: attempt.reason.name(),
        };
        head::complete(&mut head, &told, &self.open.entry.id, answer.strip);
        let began = Duration::from_secs_f64(self.open.entry.attempts[place].started_ms / 1e3);
        let learner = self.learner(&attempt, &answer.head);
        let settle = Settle { open: self.open, place, attempt, started: self.started, outcome, in_flight };
        let keep_alive = self.shared.keep_alive.filter(|_| answer.reading.is_some());
        let began = self.started + began;
        let body = Relayed::new(answer, settle, self.api, began, learner, keep_alive);
        Response::from_parts(head, FrontBody::Relayed(Box::new(body)))
    }

    /// Who must learn what the answer issues; nobody where it issues nothing, cannot be read, or it does not
    /// matter.
    fn learner(&self, attempt: &Attempt, head: &response::Parts) -> Option<Learner> {
        let issues = self.api.is_some() || paths::issues(self.head.uri.path());
        let readable = head.status.is_success() && !head.headers.contains_key(CONTENT_ENCODING);
        let events = !own::is_json(&head.headers);
        (issues && readable).then(|| self.router.learner(&attempt.upstream, events)).flatten()
    }

    /// Nobody is left to ask: the last answer is passed on, or why there is none is said.
    fn refuse(mut self, stop: &Stop, last: Option<Refusal>) -> Response<FrontBody> {
        passed_over(&mut self.open, &self.plan);
        let entry = &mut self.open.entry;
        entry.duration_ms = ms(self.started.elapsed());
        let last = last.filter(|_| !matches!(stop, Stop::StateBound { .. }));
        let Some(Refusal { mut head, body, outcome, upstream, number, reason }) = last else {
            entry.outcome = stop.name();
            let status = StatusCode::from_u16(stop.status()).unwrap_or(StatusCode::BAD_GATEWAY);
            entry.status = status.as_u16();
            let mut message = stop.to_string();
            if let Some(tried) = entry.attempts.last() {
                message = format!("{message}; the last one, {}, failed: {}", tried.upstream, tried.outcome);
            }
            let mut response = own::error(self.api, status, stop.name(), &message, stop.retry_after());
            head::name_request(response.headers_mut(), &entry.id);
            return response;
        };
        entry.outcome = "failed";
        (entry.served_by, entry.attempt, entry.reason) = (Some(upstream.to_string()), number, Some(reason));
        if let Outcome::Limited(Limit { kind: LimitKind::Key, .. }) = outcome {
            // The client's own token was right, and the answer may quote a part of the relay's key.
            entry.status = 502;
            let message = format!("{upstream} refused the relay's key");
            let mut response = own::error(self.api, StatusCode::BAD_GATEWAY, outcome.name(), &message, None);
            head::name_request(response.headers_mut(), &entry.id);
            return response;
        }
        if outcome == Outcome::Incapable(Incapable::Content) {
            // Nobody had a better one: it is passed on, since a check may be wrong.
            let passed = entry.attempts.iter().find(|tried| tried.number == number);
            entry.reported = passed.map(|tried| tried.tokens).unwrap_or_default();
        }
        entry.status = head.status.as_u16();
        entry.answer_bytes = body.len() as u64;
        head::complete(&mut head, &head::Told { upstream: &upstream, number, reason }, &entry.id, true);
        head::come_back(&mut head, outcome);
        Response::from_parts(head, FrontBody::Own(body.into()))
    }
}

/// The start of one answer.
struct Start {
    head: response::Parts,
    body: TapBody,
    strip: bool,
    noted: Noted,
    /// When its attempt began.
    began: Instant,
    /// What it is held against, and whether a failure moves the call on.
    expected: Option<(Arc<Expected>, bool)>,
}

impl Start {
    /// An answer that nobody can read: it is passed on as it is.
    fn unread(self) -> Came {
        let Self { head, body, noted, .. } = self;
        let answer = Answer { body: Some(body), ..Answer::unread(head, Vec::new(), noted) };
        Came::Answer(Box::new(answer), None)
    }

    /// An answer that says no: what it says, and what that means.
    async fn refused(self, until: Instant) -> Came {
        let Self { head, mut body, noted, .. } = self;
        let mut bytes = BytesMut::new();
        while let Ok(Some(Ok(frame))) = timeout_at(until, body.frame()).await {
            if let Ok(data) = frame.into_data() {
                bytes.extend_from_slice(&data);
            }
            if bytes.len() > MAX_REFUSAL {
                noted.ends(Ending::Failed);
                break;
            }
        }
        let outcome = Outcome::of_answer(head.status, &head.headers, &bytes, clock::now());
        if outcome.goes_on() {
            return Came::Failed(outcome, Some(Box::new((head, bytes.freeze()))));
        }
        let summary = Some(Summary::default());
        let answer = Answer { summary, ..Answer::unread(head, vec![bytes.freeze()], noted) };
        Came::Answer(Box::new(answer), Some(outcome))
    }

    /// Holds the answer until it is known whether it is one.
    async fn hold(
        mut self,
        path: &str,
        attempt: &mut Attempt,
        content_due: Option<Instant>,
        commit_after: Duration,
    ) -> Came {
        let content_type = self.head.headers.get(CONTENT_TYPE).and_then(|value| value.to_str().ok());
        let mut hold = Hold::new(&Head { path, content_type, status: Some(self.head.status.as_u16()) });
        if self.expected.is_some() {
            hold = hold.with_text();
        }
        let commit_due = (content_due.is_none() && hold.is_streamed()).then(|| Instant::now() + commit_after);
        let due = content_due.or(commit_due).map_or(attempt.until, |due| due.min(attempt.until));
        loop {
            let frame = match timeout_at(due, self.body.frame()).await {
                Ok(frame) => frame,
                Err(_) if commit_due == Some(due) => return self.commit(hold),
                Err(_) => {
                    self.noted.ends(Ending::Timeout);
                    return FailureKind::NoContent.into();
                }
            };
            match frame {
                Some(Ok(frame)) => {
                    let Ok(bytes) = frame.into_data() else { continue };
                    let now = Instant::now();
                    match hold.push(bytes, clock::micros(now - self.began)) {
                        Verdict::Wait => {}
                        Verdict::Commit => {
                            if hold.has_content() {
                                attempt.first_content(now);
                            }
                            return self.commit(hold);
                        }
                        Verdict::Error => return self.error(hold),
                    }
                }
                Some(Err(_)) => return FailureKind::Cut.into(),
                None => return self.ended(hold),
            }
        }
    }

    fn commit(self, hold: Hold) -> Came {
        let (held, reading) = hold.commit();
        let Self { head, body, strip, noted, expected, .. } = self;
        let answer = Answer {
            body: Some(body),
            reading: Some(reading),
            expected: expected.map(|(expected, _)| expected),
            strip,
            ..Answer::unread(head, held, noted)
        };
        Came::Answer(Box::new(answer), None)
    }

    fn error(self, hold: Hold) -> Came {
        let outcome =
            hold.error().map_or_else(|| FailureKind::ErrorFrame.into(), |event| Outcome::of_event(&event));
        if !outcome.goes_on() {
            return self.commit(hold); // the client's own doing: it gets to see it
        }
        let (held, _) = hold.commit();
        Came::Failed(outcome, Some(Box::new((self.head, held.concat().into()))))
    }

    /// The body ended while it was held.
    fn ended(self, hold: Hold) -> Came {
        let streamed = hold.is_streamed();
        let (ended, summary, held, text) = hold.end();
        let outcome = match ended {
            Ended::Well => Outcome::Good,
            Ended::Error => error_in(&held.concat())
                .map_or_else(|| FailureKind::ErrorFrame.into(), |event| Outcome::of_event(&event)),
            Ended::Empty => FailureKind::Empty.into(),
            Ended::Early => FailureKind::Cut.into(),
        };
        if outcome.goes_on() {
            // A stream without an end must not be taken for an answer, whoever else fails.
            let answer =
                (ended != Ended::Early || !streamed).then(|| Box::new((self.head, held.concat().into())));
            return Came::Failed(outcome, answer);
        }
        let Self { head, strip, mut noted, expected, .. } = self;
        let mut check = ContentCheck::NotChecked;
        if let (Some((expected, moves)), Some(text)) = (&expected, &text) {
            check = expected.judge(text, summary.outcome);
            noted.checked(check);
            if *moves && !streamed && !content_checks::is_fit(check) {
                let (body, usage) = (held.concat().into(), summary.usage);
                return Came::Unfit(Box::new(Unfit { head, body, check, usage }));
            }
        }
        noted.close();
        let answer = Answer { summary: Some(summary), check, strip, ..Answer::unread(head, held, noted) };
        Came::Answer(Box::new(answer), Some(outcome))
    }
}

/// Whether a request that an upstream has answered with a refusal may be sent to another one. What makes files
/// or batches might have made them all the same.
fn is_repeatable(head: &request::Parts) -> bool {
    let generates = [
        "/embeddings",
        "/moderations",
        "/rerank",
        "/count_tokens",
        "/input_tokens",
        "/completions",
        "/compact",
    ];
    head.method.is_safe() || generates.iter().any(|end| head.uri.path().ends_with(end))
}

/// Puts what the plan shows into the entry.
fn passed_over(open: &mut Open, plan: &Plan) {
    let passed = |passed: &crate::choice::Passed| PassedOver {
        upstream: passed.upstream.to_string(),
        why: passed.why.name(),
    };
    open.entry.passed_over = plan.passed().iter().map(passed).collect();
}

/// Milliseconds, for people.
pub(crate) fn ms(span: Duration) -> f64 {
    (span.as_secs_f64() * 1e6).round() / 1e3
}
