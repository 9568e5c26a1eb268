//! What became of each request: a line of the access log, and the last of them for `GET /admin/requests/{id}`.
//!
//! In: one [`Entry`] per client request, when it is over. Out: JSON. It names models, upstreams, key slots and
//! counts; it never holds a text, a key, or an identifier of the caller but the name that its token stands for.

use std::collections::VecDeque;
use std::fmt;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

use serde::Serialize;
use sseismo_trace::{Api, ContentCheck, Usage, UtcMicros};

use tokio::time::Instant;

use crate::choice::Attempt;
use crate::metrics::{Metrics, Mode, TokenKind};
use crate::policy::{Considered, Told};

/// Requests that the admin API remembers.
pub const REMEMBERED: usize = 1_000;

/// One client request.
#[derive(Clone, Debug, Default, Serialize)]
pub struct Entry {
    /// Its id, as in the response header `x-sseismo-request-id`.
    #[serde(rename = "request")]
    pub id: String,
    /// When it came, µs since 1970 UTC.
    pub at: UtcMicros,
    /// `POST` …
    pub method: String,
    /// Without its query.
    pub path: String,
    /// The API spoken; `None` for paths that are passed on as they are.
    pub api: Option<Api>,
    /// The name that the caller's token stands for.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub caller: Option<String>,
    /// The route that took it.
    pub route: Option<String>,
    /// The model as the client named it.
    pub model: String,
    /// Whether the client asked for a stream.
    pub streamed: bool,
    /// Hash of the client's turn, for one run of the relay.
    pub turn: Option<String>,
    /// Which attempt of the client it is, from 1.
    pub client_attempt: u32,
    /// Bytes of its body as they came.
    pub request_bytes: u64,
    /// The status that the client got.
    pub status: u16,
    /// How it went: `completed`, `incomplete`, `failed`, `truncated`, `client-gone`, or why nobody was asked.
    pub outcome: &'static str,
    /// The upstream whose answer the client got.
    pub served_by: Option<String>,
    /// The number of the attempt that the client got.
    pub attempt: u32,
    /// Why that upstream: see [`Tried::reason`].
    pub reason: Option<&'static str>,
    /// When its body was read, ms since it came.
    pub read_ms: f64,
    /// How long policies let it wait in a line, ms.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub queued_ms: Option<f64>,
    /// When the answer's head was given to the client, ms since the request came.
    pub committed_ms: Option<f64>,
    /// First generated text, ms since the request came.
    pub first_content_ms: Option<f64>,
    /// How long it took, ms.
    pub duration_ms: f64,
    /// Bytes of the answer's body as they were sent.
    pub answer_bytes: u64,
    /// Every attempt, in order.
    pub attempts: Vec<Tried>,
    /// Upstreams that were not asked.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub passed_over: Vec<PassedOver>,
    /// What signals and policies did about it.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub policy: Vec<Told>,
    /// What they would have done.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub would_have: Vec<Told>,
    /// Tokens that the answer which the client got reports.
    pub reported: Tokens,
    /// Tokens that all attempts together reported.
    pub billed: Tokens,
    /// Their cost in US dollars, where every attempt that reported tokens has a price.
    pub cost_usd: Option<f64>,
}

/// One attempt.
#[derive(Clone, Debug, Default, Serialize)]
pub struct Tried {
    /// From 1.
    pub number: u32,
    /// Where.
    pub upstream: String,
    /// The model's name there.
    pub model: String,
    /// Which of the upstream's keys.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub key_slot: Option<u16>,
    /// Why there.
    pub reason: &'static str,
    /// How it went, in the words of [`Outcome`](crate::outcome::Outcome).
    pub outcome: String,
    /// The same without numbers, for metrics.
    #[serde(skip)]
    pub kind: &'static str,
    /// Status of its answer.
    pub status: Option<u16>,
    /// When it began, ms since the request came.
    pub started_ms: f64,
    /// When it was over, ms since the request came.
    pub ended_ms: f64,
    /// Tokens that it reported.
    pub tokens: Tokens,
    /// Their cost in US dollars.
    pub cost_usd: Option<f64>,
    /// What a check of its answer's content said, where somebody checked.
    #[serde(skip_serializing_if = "is_unchecked")]
    pub content_check: ContentCheck,
    /// Raw reasoning that its answer streamed, estimated tokens.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub reasoning_est: Option<u64>,
}

#[expect(clippy::trivially_copy_pass_by_ref, reason = "as serde asks")]
fn is_unchecked(check: &ContentCheck) -> bool {
    *check == ContentCheck::NotChecked
}

/// An upstream that was not asked.
#[derive(Clone, Debug, Serialize)]
pub struct PassedOver {
    /// Which.
    pub upstream: String,
    /// Why.
    pub why: &'static str,
}

/// Tokens as upstreams reported them.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize)]
pub struct Tokens {
    /// Prompt.
    pub input: Option<u64>,
    /// Of these, from a cache.
    pub cached: Option<u64>,
    /// Generated, reasoning included.
    pub output: Option<u64>,
    /// Of these, reasoning.
    pub reasoning: Option<f64>,
}

impl From<Usage> for Tokens {
    fn from(usage: Usage) -> Self {
        Self { input: usage.input, cached: usage.cached, output: usage.output, reasoning: usage.reasoning }
    }
}

impl Tokens {
    fn add(&mut self, other: Self) {
        let sum = |a: Option<u64>, b: Option<u64>| a.map_or(b, |a| Some(a.saturating_add(b.unwrap_or(0))));
        self.input = sum(self.input, other.input);
        self.cached = sum(self.cached, other.cached);
        self.output = sum(self.output, other.output);
        self.reasoning = self.reasoning.map_or(other.reasoning, |a| Some(a + other.reasoning.unwrap_or(0.0)));
    }
}

impl Tried {
    /// What its answer reported, and what that costs.
    pub(crate) fn costs(&mut self, usage: Usage, attempt: &Attempt) {
        self.tokens = Tokens::from(usage);
        let price = attempt.upstream.prices.get(&*attempt.model);
        self.cost_usd = price.and_then(|price| price.cost(&usage));
    }
}

impl Entry {
    /// Adds up what the attempts reported.
    fn total(&mut self) {
        self.billed = Tokens::default();
        let mut cost = Some(0.0);
        let mut any = false;
        for tried in self.attempts.iter().filter(|tried| tried.tokens != Tokens::default()) {
            self.billed.add(tried.tokens);
            cost = cost.zip(tried.cost_usd).map(|(sum, more)| sum + more);
            any = true;
        }
        self.cost_usd = cost.filter(|_| any);
    }
}

/// Takes entries that are finished.
pub type Sink = Box<dyn Fn(&Entry) + Send + Sync>;

/// Counts each entry.
pub fn counting(metrics: Arc<Metrics>) -> Sink {
    Box::new(move |entry| {
        let traffic = metrics.traffic();
        let route = entry.route.as_deref().unwrap_or_default();
        traffic.request(route, entry.outcome);
        if let Some(first) = entry.attempts.first() {
            traffic.overhead(
                route,
                (first.started_ms - entry.read_ms - entry.queued_ms.unwrap_or(0.0)).max(0.0) / 1e3,
            );
        }
        for (told, mode) in [(&entry.policy, Mode::Acted), (&entry.would_have, Mode::WouldHave)] {
            for told in told {
                traffic.steering(route, told.policy, told.action, mode);
            }
        }
        for (tried, next) in entry.attempts.iter().zip(entry.attempts.iter().skip(1)) {
            if tried.upstream != next.upstream {
                traffic.fallback(route, &tried.upstream, tried.kind);
            }
        }
        for tried in &entry.attempts {
            traffic.attempt(&tried.upstream, tried.kind);
            traffic.cost(route, &tried.upstream, tried.cost_usd.unwrap_or(0.0));
            let cached = tried.tokens.cached.unwrap_or(0);
            let fresh = tried.tokens.input.map(|input| input.saturating_sub(cached));
            #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "a count of tokens")]
            let reasoning = tried.tokens.reasoning.map(|tokens| tokens as u64);
            for (kind, tokens) in [
                (TokenKind::Input, fresh),
                (TokenKind::Cached, tried.tokens.cached),
                (TokenKind::Output, tried.tokens.output),
                (TokenKind::Reasoning, reasoning),
            ] {
                if let Some(tokens) = tokens.filter(|tokens| *tokens > 0) {
                    traffic.tokens(route, &tried.upstream, kind, tokens);
                }
            }
        }
    })
}

/// The log. Shared by reference; one per process.
pub struct Access {
    next: AtomicU64,
    last: Mutex<VecDeque<Arc<Entry>>>,
    sinks: Vec<Sink>,
    open: AtomicU64,
}

impl fmt::Debug for Access {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Access").field("open", &self.open).finish_non_exhaustive()
    }
}

impl Access {
    /// A log that hands each entry to `sinks`; ids are counted from `first`.
    pub fn new(first: u64, sinks: Vec<Sink>) -> Self {
        Self { next: AtomicU64::new(first), last: Mutex::default(), sinks, open: AtomicU64::new(0) }
    }

    /// A request has come; what it becomes is logged when the returned value is dropped: exactly one entry,
    /// whatever happens to it.
    pub fn begin(self: &Arc<Self>, entry: Entry) -> Open {
        let id = self.next.fetch_add(1, Ordering::Relaxed);
        self.open.fetch_add(1, Ordering::Relaxed);
        let entry = Entry { id: format!("{id:016x}"), ..entry };
        Open { access: Arc::clone(self), entry, considered: None, remembered: true }
    }

    /// The request with this id, if it is over and still remembered.
    pub fn find(&self, id: &str) -> Option<Arc<Entry>> {
        self.last().iter().rev().find(|entry| entry.id == id).cloned()
    }

    /// The latest requests that are over, the newest first.
    pub fn latest(&self, most: usize) -> Vec<Arc<Entry>> {
        self.last().iter().rev().take(most).cloned().collect()
    }

    /// Requests that are not over.
    pub fn open(&self) -> u64 {
        self.open.load(Ordering::Relaxed)
    }

    fn last(&self) -> std::sync::MutexGuard<'_, VecDeque<Arc<Entry>>> {
        self.last.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// A request that is not over.
#[derive(Debug)]
pub struct Open {
    access: Arc<Access>,
    /// What is known of it.
    pub entry: Entry,
    /// What policies thought of it; they learn how it ended.
    pub(crate) considered: Option<Considered>,
    remembered: bool,
}

impl Open {
    /// It will be logged and counted, and not remembered: strangers must not push out what operators look for.
    #[must_use]
    pub fn forgotten(self) -> Self {
        let mut open = self;
        open.remembered = false;
        open
    }
}

impl Drop for Open {
    fn drop(&mut self) {
        self.access.open.fetch_sub(1, Ordering::Relaxed);
        let mut entry = std::mem::take(&mut self.entry);
        entry.total();
        if let Some(considered) = self.considered.take() {
            considered.ended(&mut entry, Instant::now());
        }
        for sink in &self.access.sinks {
            sink(&entry);
        }
        if !self.remembered {
            return;
        }
        let mut last = self.access.last();
        if last.len() == REMEMBERED {
            last.pop_front();
        }
        last.push_back(Arc::new(entry));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn tried(output: u64, cost_usd: Option<f64>) -> Tried {
        let tokens = Tokens { output: Some(output), ..Tokens::default() };
        Tried { tokens, cost_usd, ..Tried::default() }
    }

    #[test]
    fn each_request_is_logged_once_and_the_last_are_found_again() {
        let lines = Arc::new(Mutex::new(Vec::new()));
        let sink = Arc::clone(&lines);
        let access = Arc::new(Access::new(
            255,
            vec![Box::new(move |entry| sink.lock().unwrap().push(serde_json::to_string(entry).unwrap()))],
        ));
        for _ in 0..REMEMBERED + 5 {
            drop(access.begin(Entry::default()));
        }
        assert_eq!(lines.lock().unwrap().len(), REMEMBERED + 5);
        assert!(access.find("00000000000000ff").is_none(), "forgotten");
        let open = access.begin(Entry::default());
        assert_eq!(access.open(), 1);
        let id = open.entry.id.clone();
        assert!(access.find(&id).is_none(), "not over");
        drop(open);
        assert_eq!((access.find(&id).unwrap().id.clone(), access.open()), (id.clone(), 0));
        assert_eq!(access.latest(2)[0].id, id);
    }

    #[test]
    fn what_failed_attempts_cost_is_counted_and_a_missing_price_is_no_price() {
        let mut entry = Entry {
            attempts: vec![tried(3, Some(0.5)), Tried::default(), tried(4, Some(0.25))],
            ..Entry::default()
        };
        entry.total();
        assert_eq!((entry.billed.output, entry.cost_usd), (Some(7), Some(0.75)));
        entry.attempts.push(tried(1, None));
        entry.total();
        assert_eq!((entry.billed.output, entry.cost_usd), (Some(8), None));
        let mut nothing = Entry::default();
        nothing.total();
        assert_eq!((nothing.billed, nothing.cost_usd), (Tokens::default(), None));
    }
}
