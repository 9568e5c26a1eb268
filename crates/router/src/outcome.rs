//! What an attempt's answer says about its upstream: status, headers and error words in, an [`Outcome`] out.
//!
//! The kinds differ in what follows. A failure counts against the breaker, a limit cools the key or the whole
//! upstream, a lack of ability sends this one request elsewhere and cools nothing (a provider that cannot
//! take 300 k tokens is healthy), and what is the client's own doing ends the attempts. Words were collected
//! from the providers' documented error bodies; a status without known words is judged by its number.

use std::fmt;
use std::time::Duration;

use hyper::{HeaderMap, StatusCode};
use serde_json::Value;
use sseismo_trace::UtcMicros;

mod retry_after;
mod words;

pub(crate) use retry_after::span;

use words::Words;

/// How an attempt went, as far as its upstream is concerned.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Outcome {
    /// Content came and, at the end of the stream, so did the API's own end.
    Good,
    /// Says nothing about the upstream: the client left, or its request was wrong everywhere. No other
    /// candidate is tried.
    Neutral,
    /// A healthy upstream that cannot take this request: another candidate is tried, nothing is cooled.
    Incapable(Incapable),
    /// Too much was asked of it: another key or candidate is tried, and the key or upstream is cooled.
    Limited(Limit),
    /// It failed: another candidate is tried, and the breaker counts it.
    Failed(Failure),
}

/// What an upstream cannot do.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Incapable {
    /// The prompt does not fit.
    Context,
    /// It has no such model.
    Model,
    /// It does not speak this API, or not this path.
    Api,
    /// It does not take a parameter of the request.
    Parameter,
    /// It may not or will not (403): a model that the key may not use, a country, a policy.
    Forbidden,
    /// Its answer is not what was asked for: a content check failed.
    Content,
}

/// A refusal for reasons of quantity, with the wait that it asks for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Limit {
    /// What was used up.
    pub kind: LimitKind,
    /// The wait that the answer asks for.
    pub retry_after: Option<Duration>,
    /// `x-should-retry: false`: the same upstream is not asked again for this request, not even with
    /// another key.
    pub elsewhere: bool,
}

/// What was used up.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LimitKind {
    /// The key's requests or tokens per minute (or day) for this model.
    Rate,
    /// What one address may ask: no key of this upstream helps.
    PerIp,
    /// Money or plan: the key stays useless until somebody pays.
    Insufficient,
    /// The key itself is refused (401).
    Key,
}

/// How an upstream failed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Failure {
    /// What was seen.
    pub kind: FailureKind,
    /// The wait that the answer asks for.
    pub retry_after: Option<Duration>,
}

/// What was seen of a failure.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FailureKind {
    /// No connection.
    Connect,
    /// A status that says so.
    Status(u16),
    /// It says that it is overloaded.
    Overloaded,
    /// No response headers in time.
    NoHeaders,
    /// Headers, but no content in time; keep-alives and role-only frames are none.
    NoContent,
    /// An error event before any content.
    ErrorFrame,
    /// 200 and an end without content.
    Empty,
    /// The stream broke off, or fell silent, after content.
    Cut,
}

impl From<FailureKind> for Outcome {
    fn from(kind: FailureKind) -> Self {
        Self::Failed(Failure { kind, retry_after: None })
    }
}

impl Outcome {
    /// Reads an answer whose status is no success. `body` is what there is of its decoded body (a few KiB do);
    /// `now` dates an absolute `retry-after`.
    pub fn of_answer(status: StatusCode, headers: &HeaderMap, body: &[u8], now: UtcMicros) -> Self {
        let json: Option<Value> = serde_json::from_slice(body).ok();
        let words = json.as_ref().map_or_else(|| Words::of_text(body), Words::of_json);
        let retry_after = retry_after::of_headers(headers, now).or_else(|| words.retry_after());
        let should_retry = retry_after::should_retry(headers);
        let found = words
            .outcome(status.as_u16() == 429, retry_after)
            .unwrap_or_else(|| by_status(status, headers, &words, retry_after));
        match (found, should_retry) {
            (Self::Limited(limit), Some(false)) => Self::Limited(Limit { elsewhere: true, ..limit }),
            (Self::Neutral, Some(true)) => {
                Self::Failed(Failure { kind: FailureKind::Status(status.as_u16()), retry_after })
            }
            (found, _) => found,
        }
    }

    /// Reads an error event of a stream that began with 200; without known words it is an
    /// [`FailureKind::ErrorFrame`].
    pub fn of_event(event: &Value) -> Self {
        let words = Words::of_json(event);
        let retry_after = words.retry_after();
        words
            .outcome(false, retry_after)
            .unwrap_or(Self::Failed(Failure { kind: FailureKind::ErrorFrame, retry_after }))
    }

    /// Whether another candidate may do better.
    pub fn goes_on(self) -> bool {
        match self {
            Self::Good | Self::Neutral => false,
            Self::Incapable(_) | Self::Limited(_) | Self::Failed(_) => true,
        }
    }

    /// A short name for headers, metrics and logs.
    pub fn name(self) -> &'static str {
        match self {
            Self::Good => "good",
            Self::Neutral => "neutral",
            Self::Incapable(Incapable::Context) => "context-length",
            Self::Incapable(Incapable::Model) => "no-such-model",
            Self::Incapable(Incapable::Api) => "no-such-api",
            Self::Incapable(Incapable::Parameter) => "unsupported-parameter",
            Self::Incapable(Incapable::Forbidden) => "forbidden",
            Self::Incapable(Incapable::Content) => "content-check",
            Self::Limited(limit) => match limit.kind {
                LimitKind::Rate => "rate-limit",
                LimitKind::PerIp => "per-ip-limit",
                LimitKind::Insufficient => "insufficient-quota",
                LimitKind::Key => "key-refused",
            },
            Self::Failed(failure) => match failure.kind {
                FailureKind::Connect => "connect",
                FailureKind::Status(_) => "status",
                FailureKind::Overloaded => "overloaded",
                FailureKind::NoHeaders => "no-headers",
                FailureKind::NoContent => "no-content",
                FailureKind::ErrorFrame => "error-frame",
                FailureKind::Empty => "empty",
                FailureKind::Cut => "cut",
            },
        }
    }

    /// The wait that the answer asks for.
    pub fn retry_after(self) -> Option<Duration> {
        match self {
            Self::Good | Self::Neutral | Self::Incapable(_) => None,
            Self::Limited(limit) => limit.retry_after,
            Self::Failed(failure) => failure.retry_after,
        }
    }
}

impl fmt::Display for Outcome {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Failed(Failure { kind: FailureKind::Status(status), .. }) => write!(f, "status-{status}"),
            other => f.write_str(other.name()),
        }
    }
}

/// What the number alone says.
fn by_status(
    status: StatusCode,
    headers: &HeaderMap,
    words: &Words,
    retry_after: Option<Duration>,
) -> Outcome {
    let limited = |kind| Outcome::Limited(Limit { kind, retry_after, elsewhere: false });
    let failed = |kind| Outcome::Failed(Failure { kind, retry_after });
    match status.as_u16() {
        200..=299 => Outcome::Good,
        // An edge in front of the API answers in HTML and knows addresses only.
        429 if words.are_no_json() && headers.contains_key("cf-ray") => limited(LimitKind::PerIp),
        429 => limited(LimitKind::Rate),
        401 => limited(LimitKind::Key),
        403 => Outcome::Incapable(Incapable::Forbidden),
        402 => limited(LimitKind::Insufficient),
        413 => Outcome::Incapable(Incapable::Context),
        404 | 405 | 501 => Outcome::Incapable(Incapable::Api),
        529 => failed(FailureKind::Overloaded),
        // 408 and 425 ask for another try; 409 is what the SDKs of OpenAI and Anthropic retry, too.
        408 | 409 | 425 => failed(FailureKind::Status(status.as_u16())),
        400..=499 => Outcome::Neutral,
        other => failed(FailureKind::Status(other)),
    }
}

#[cfg(test)]
mod tests;
