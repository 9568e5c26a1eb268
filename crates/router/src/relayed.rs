//! A committed answer on its way to the client.
//!
//! In: the held bytes, then the upstream's body. Out: the same bytes, each piece as soon as it is there; only
//! usage that the client did not ask for is taken out. One poll of the client's connection does all of it: no
//! task, no queue and no copy lies between the two sockets.
//!
//! | the upstream's body | the client gets |
//! |---|---|
//! | ends with its API's end | the end |
//! | ends without it | the API's error event, then the end |
//! | breaks off | a broken body: every client takes that for a failure |
//! | reasons longer than a policy allows | the API's end at a limit |
//! | is silent | signs of life, where they are configured; after [`MAX_SILENCE`] the error event |

use std::collections::VecDeque;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};
use std::time::Duration;

use bytes::Bytes;
use hyper::body::{Body, Frame};
use sseismo_capture::tap::TapBody;
use sseismo_trace::{Api, Outcome as Ending, Summary};
use tokio::time::{Instant, Sleep, sleep_until};

use crate::access::{Open, Tokens, Tried};
use crate::affinity::Learner;
use crate::choice::Attempt;
use crate::exchange::{Answer, ms, note::Noted};
use crate::finish::{self, Boundary};
use crate::hold::Reading;
use crate::metrics::InFlight;
use crate::outcome::{FailureKind, Outcome};
use crate::own::BodyError;
use crate::policy::Expected;
use crate::usage::Strip;
use crate::{clock, keepalive};

/// An upstream that says nothing for this long in the middle of an answer has left it: twice the time after
/// which Codex CLI gives up by itself.
pub const MAX_SILENCE: Duration = Duration::from_mins(10);

/// An upstream's answer.
#[derive(Debug)]
pub struct Relayed {
    ready: VecDeque<Bytes>,
    /// `None` once it has ended.
    source: Option<TapBody>,
    reading: Option<Reading>,
    strip: Option<Strip>,
    learner: Option<Learner>,
    boundary: Boundary,
    api: Option<Api>,
    began: Instant,
    silence: Silence,
    noted: Noted,
    /// What a whole answer told.
    summary: Option<Summary>,
    /// The upstream's error, to be handed on when everything before it was.
    broken: Option<BodyError>,
    /// What it is held against when it has ended.
    expected: Option<Arc<Expected>>,
    /// A policy ended it.
    stopped: bool,
    settle: Option<Settle>,
}

/// What is to be told of an answer when it is over.
#[derive(Debug)]
pub(crate) struct Settle {
    pub(crate) open: Open,
    /// The attempt's place in the entry.
    pub(crate) place: usize,
    pub(crate) attempt: Attempt,
    pub(crate) started: Instant,
    /// Known already.
    pub(crate) outcome: Option<Outcome>,
    pub(crate) in_flight: Option<InFlight>,
}

impl Settle {
    /// Whether the answer is to be ended here, after so much raw reasoning. Told once when it would be.
    fn is_enough(&mut self, reasoning: u64) -> bool {
        let Open { entry, considered: Some(considered), .. } = &mut self.open else { return false };
        let limit = &mut considered.advised.stop_reasoning;
        let Some((_, told)) = limit.take_if(|(most, _)| reasoning > *most) else { return false };
        let stops = told.why.is_none();
        if stops {
            entry.policy.push(told);
        } else {
            entry.would_have.push(told);
        }
        stops
    }

    fn tried(&mut self) -> Option<&mut Tried> {
        self.open.entry.attempts.get_mut(self.place)
    }

    fn first_content(&mut self, now: Instant) {
        self.attempt.first_content(now);
        self.open.entry.first_content_ms = Some(ms(now - self.started));
    }

    /// The answer is over; logs it.
    fn end(mut self, outcome: Outcome, ending: &'static str, summary: &Summary) {
        let now = Instant::now();
        let entry = &mut self.open.entry;
        entry.outcome = ending;
        entry.duration_ms = ms(now - self.started);
        entry.reported = Tokens::from(summary.usage);
        if let Some(tried) = entry.attempts.get_mut(self.place) {
            (tried.outcome, tried.kind) = (outcome.to_string(), outcome.name());
            tried.ended_ms = entry.duration_ms;
            tried.costs(summary.usage, &self.attempt);
        }
        self.attempt.end(outcome, now);
        drop(self.in_flight);
    }
}

/// How long the upstream has said nothing.
#[derive(Debug)]
struct Silence {
    keep_alive: Option<Duration>,
    /// When it last said something, and when a sign of life last went out.
    heard: Instant,
    signed: Instant,
    timer: Pin<Box<Sleep>>,
}

/// What is to be done about it.
enum Silent {
    SignOfLife,
    Over,
}

impl Silence {
    fn new(keep_alive: Option<Duration>, now: Instant) -> Self {
        let due = now + keep_alive.unwrap_or(MAX_SILENCE);
        Self { keep_alive, heard: now, signed: now, timer: Box::pin(sleep_until(due)) }
    }

    /// The timer is not moved at each event: when it fires, it looks how long ago the last one was.
    fn poll(&mut self, cx: &mut Context<'_>) -> Poll<Silent> {
        loop {
            ready!(self.timer.as_mut().poll(cx));
            let now = self.timer.deadline();
            let over = self.heard + MAX_SILENCE;
            let sign = self.keep_alive.map(|every| self.heard.max(self.signed) + every);
            self.timer
                .as_mut()
                .reset(sign.map_or(over, |sign| sign.max(now + Duration::from_millis(1)).min(over)));
            if now >= over {
                return Poll::Ready(Silent::Over);
            }
            if sign.is_some_and(|sign| now >= sign) {
                self.signed = now;
                return Poll::Ready(Silent::SignOfLife);
            }
        }
    }
}

impl Relayed {
    /// `began` is when the answer's attempt began; `learner` gets to know what state the answer issues.
    pub(crate) fn new(
        answer: Answer,
        settle: Settle,
        api: Option<Api>,
        began: Instant,
        learner: Option<Learner>,
        keep_alive: Option<Duration>,
    ) -> Self {
        let now = Instant::now();
        let mut relayed = Self {
            ready: VecDeque::with_capacity(answer.held.len()),
            source: answer.body,
            strip: answer.strip.then(Strip::default),
            learner,
            boundary: Boundary::default(),
            api,
            began,
            silence: Silence::new(keep_alive, now),
            noted: answer.noted,
            summary: answer.summary,
            broken: None,
            expected: answer.expected,
            stopped: false,
            settle: Some(settle),
            reading: answer.reading,
        };
        if let (Some(reading), Some(settle)) = (&relayed.reading, &mut relayed.settle)
            && let Some(at) = reading.first_content
        {
            let at = began + Duration::from_micros(u64::try_from(at.0).unwrap_or(0));
            settle.open.entry.first_content_ms = Some(ms(at.saturating_duration_since(settle.started)));
        }
        if let Some(tried) = relayed.settle.as_mut().and_then(Settle::tried) {
            tried.content_check = answer.check;
        }
        for bytes in answer.held {
            relayed.learn(&bytes);
            relayed.pass(bytes);
        }
        if relayed.source.is_none() {
            relayed.flush();
        }
        relayed
    }

    /// Whether nothing follows.
    pub(crate) fn is_over(&self) -> bool {
        self.source.is_none() && self.ready.is_empty() && self.broken.is_none()
    }

    pub(crate) fn poll(&mut self, cx: &mut Context<'_>) -> Poll<Option<Result<Frame<Bytes>, BodyError>>> {
        loop {
            if let Some(bytes) = self.ready.pop_front() {
                return Poll::Ready(Some(Ok(self.sent(bytes))));
            }
            if let Some(error) = self.broken.take() {
                self.over(true);
                return Poll::Ready(Some(Err(error)));
            }
            let Some(source) = &mut self.source else {
                self.over(false);
                return Poll::Ready(None);
            };
            match Pin::new(&mut *source).poll_frame(cx) {
                Poll::Ready(Some(Ok(frame))) => match frame.into_data() {
                    Ok(bytes) => {
                        let last = source.is_end_stream();
                        self.hear(&bytes);
                        self.pass(bytes);
                        if self.stopped && self.ahead().is_between_events() {
                            self.stop();
                        } else if last {
                            self.end(); // nobody polls a body again that says it is at its end
                        }
                    }
                    Err(trailers) => return Poll::Ready(Some(Ok(trailers))),
                },
                Poll::Ready(Some(Err(error))) => {
                    self.source = None;
                    self.broken = Some(error.into());
                }
                Poll::Ready(None) => self.end(),
                Poll::Pending => match ready!(self.silence.poll(cx)) {
                    Silent::SignOfLife => self.sign_of_life(),
                    Silent::Over => {
                        self.noted.ends(Ending::Timeout);
                        self.source = None;
                        self.finish("the upstream fell silent in the middle of the stream");
                    }
                },
            }
        }
    }

    /// Looks at bytes of the upstream.
    fn hear(&mut self, bytes: &[u8]) {
        let now = Instant::now();
        self.silence.heard = now;
        if let Some(reading) = &mut self.reading {
            let before = reading.first_content;
            reading.push(bytes, clock::micros(now - self.began));
            if before.is_none()
                && reading.first_content.is_some()
                && let Some(settle) = &mut self.settle
            {
                settle.first_content(now);
            }
            if let (false, Some(settle)) = (reading.over, &mut self.settle) {
                self.stopped |= settle.is_enough(reading.reasoning);
            }
        }
        self.learn(bytes);
    }

    /// Learns what state the bytes issue.
    fn learn(&mut self, bytes: &[u8]) {
        if let Some(learner) = &mut self.learner {
            learner.push(bytes);
        }
    }

    /// Makes bytes ready, without what must be stripped.
    fn pass(&mut self, bytes: Bytes) {
        match &mut self.strip {
            None => self.ready.push_back(bytes),
            Some(strip) => strip.push(bytes, |bytes| self.ready.push_back(bytes)),
        }
    }

    fn flush(&mut self) {
        if let Some(mut learner) = self.learner.take() {
            learner.finish();
        }
        if let Some(mut strip) = self.strip.take() {
            strip.finish(|bytes| self.ready.push_back(bytes));
        }
    }

    fn sent(&mut self, bytes: Bytes) -> Frame<Bytes> {
        self.boundary.push(&bytes);
        if let Some(settle) = &mut self.settle {
            settle.open.entry.answer_bytes += bytes.len() as u64;
        }
        Frame::data(bytes)
    }

    fn sign_of_life(&mut self) {
        let api = self.api.filter(|_| self.boundary.is_between_events());
        self.ready.extend(api.map(keepalive::event));
    }

    fn end(&mut self) {
        self.source = None;
        self.stopped = false; // it came to its own end first
        self.flush();
        self.finish("the upstream ended the stream before it was complete");
    }

    /// A policy has had enough of it. The connection is dropped: the upstream stops generating.
    fn stop(&mut self) {
        self.noted.ends(Ending::Incomplete);
        self.source = None;
        self.flush();
        let reading = self.reading.as_ref();
        let (sequence, tokens) = reading.map_or((None, 0), |reading| (reading.sequence, reading.reasoning));
        self.summary = self.told();
        self.ready.extend(self.api.and_then(|api| finish::limit_events(api, sequence, tokens)));
    }

    /// Where the client will be when it has all that is ready.
    fn ahead(&self) -> Boundary {
        let mut boundary = self.boundary;
        self.ready.iter().for_each(|bytes| boundary.push(bytes));
        boundary
    }

    /// The body has ended cleanly, or must end here: says so in the API's words when the API did not.
    fn finish(&mut self, message: &str) {
        let sequence = self.reading.as_ref().and_then(|reading| reading.sequence);
        let Some(summary) = self.told() else { return };
        if let (Ending::Truncated, Some(api), Some(true)) = (summary.outcome, self.api, summary.streamed) {
            let open = !self.ahead().is_between_events();
            self.ready.extend(finish::error_event(api, message, sequence, open));
        }
        self.summary = Some(summary);
    }

    /// Everything was handed on: tells how it went, once.
    fn over(&mut self, broken: bool) {
        let summary = self.summary.take().or_else(|| self.told()).unwrap_or_default();
        let Some(settle) = self.settle.take() else { return };
        let (outcome, ending) = match summary.outcome {
            Ending::Completed => (Outcome::Good, "completed"),
            Ending::Incomplete => (Outcome::Good, "incomplete"),
            Ending::Failed => (FailureKind::ErrorFrame.into(), "failed"),
            Ending::Truncated | Ending::Timeout | Ending::ClientGone => {
                (FailureKind::Cut.into(), "truncated")
            }
            Ending::Unknown if broken => (FailureKind::Cut.into(), "truncated"),
            Ending::Unknown => match settle.outcome {
                None | Some(Outcome::Good) => (Outcome::Good, "completed"),
                Some(outcome) => (outcome, "failed"),
            },
        };
        let (outcome, ending) =
            if self.stopped { (Outcome::Neutral, "stopped-by-policy") } else { (outcome, ending) };
        let outcome = settle.outcome.unwrap_or(outcome);
        settle.end(outcome, ending, &summary);
    }

    /// What the body told, now that it is over; its content is checked.
    fn told(&mut self) -> Option<Summary> {
        let reading = self.reading.take()?;
        let (mut summary, raw) = (Summary::default(), reading.reasoning);
        let text = reading.finish(&mut summary);
        let check =
            self.expected.take().zip(text).map(|(expected, text)| expected.judge(&text, summary.outcome));
        if let Some(check) = check {
            self.noted.checked(check);
        }
        self.noted.close();
        if let Some(tried) = self.settle.as_mut().and_then(Settle::tried) {
            tried.content_check = check.unwrap_or(tried.content_check);
            tried.reasoning_est = (raw > 0).then_some(raw);
        }
        Some(summary)
    }
}

impl Drop for Relayed {
    /// Dropped before its end, the client has left; after its API's end that is no matter.
    fn drop(&mut self) {
        if self.is_over() || self.reading.as_ref().is_some_and(|reading| reading.over) {
            return self.over(false);
        }
        let summary = self.summary.take().or_else(|| self.told()).unwrap_or_default();
        if let Some(settle) = self.settle.take() {
            settle.end(Outcome::Neutral, "client-gone", &summary);
        }
    }
}
