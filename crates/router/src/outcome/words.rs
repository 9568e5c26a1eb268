//! The words of an error body: code, type and message, wherever an API puts them.

use std::time::Duration;

use serde_json::Value;

use super::{Failure, FailureKind, Incapable, Limit, LimitKind, Outcome, retry_after};

/// Longest text that is searched when a body is no JSON.
const LONGEST: usize = 4096;

/// Codes and types → what they mean. Sources: the error pages of OpenAI (Responses, Chat), Anthropic and
/// Gemini, and what Codex CLI 0.171 tells apart.
const CODES: [(&str, Meaning); 26] = [
    ("context_length_exceeded", Meaning::Incapable(Incapable::Context)),
    ("request_too_large", Meaning::Incapable(Incapable::Context)),
    ("string_above_max_length", Meaning::Incapable(Incapable::Context)),
    ("model_not_found", Meaning::Incapable(Incapable::Model)),
    ("model_not_available", Meaning::Incapable(Incapable::Model)),
    ("deploymentnotfound", Meaning::Incapable(Incapable::Model)),
    ("unsupported_parameter", Meaning::Incapable(Incapable::Parameter)),
    ("unsupported_value", Meaning::Incapable(Incapable::Parameter)),
    ("insufficient_quota", Meaning::Limited(LimitKind::Insufficient)),
    ("usage_limit_reached", Meaning::Limited(LimitKind::Insufficient)),
    ("billing_hard_limit_reached", Meaning::Limited(LimitKind::Insufficient)),
    ("billing_not_active", Meaning::Limited(LimitKind::Insufficient)),
    ("billing_error", Meaning::Limited(LimitKind::Insufficient)),
    ("invalid_api_key", Meaning::Limited(LimitKind::Key)),
    ("authentication_error", Meaning::Limited(LimitKind::Key)),
    ("rate_limit_exceeded", Meaning::Limited(LimitKind::Rate)),
    ("rate_limit_error", Meaning::Limited(LimitKind::Rate)),
    ("rate_limit_reached", Meaning::Limited(LimitKind::Rate)),
    ("resource_exhausted", Meaning::Limited(LimitKind::Rate)),
    ("overloaded_error", Meaning::Overloaded),
    ("server_is_overloaded", Meaning::Overloaded),
    ("slow_down", Meaning::Overloaded),
    ("engine_overloaded", Meaning::Overloaded),
    ("invalid_prompt", Meaning::Neutral),
    ("content_policy_violation", Meaning::Neutral),
    ("content_filter", Meaning::Neutral),
];

/// Parts of messages → what they mean; they go before codes, which are often as vague as
/// `invalid_request_error`.
const PHRASES: [(&str, Meaning); 10] = [
    ("maximum context length", Meaning::Incapable(Incapable::Context)),
    ("prompt is too long", Meaning::Incapable(Incapable::Context)),
    ("exceed context limit", Meaning::Incapable(Incapable::Context)),
    ("exceeds the context window", Meaning::Incapable(Incapable::Context)),
    ("input token count exceeds", Meaning::Incapable(Incapable::Context)),
    ("credit balance is too low", Meaning::Limited(LimitKind::Insufficient)),
    ("exceeded your current quota, please check your plan", Meaning::Limited(LimitKind::Insufficient)),
    ("input was flagged", Meaning::Neutral),
    ("currently overloaded", Meaning::Overloaded),
    ("model is overloaded", Meaning::Overloaded),
];

/// Parts of the messages of limits per address. Messages may quote the prompt, so these count in answers that
/// are limits by their status or code, and nowhere else: a prompt must not cool an upstream.
const ADDRESS: [&str; 4] = ["your ip", "ip address", "error 1015", "error code: 1015"];

#[derive(Clone, Copy, Debug)]
enum Meaning {
    Neutral,
    Incapable(Incapable),
    Limited(LimitKind),
    Overloaded,
}

/// An error in lower case. Its message never leaves this module: providers quote prompts in it.
#[derive(Debug, Default)]
pub(super) struct Words {
    codes: Vec<String>,
    message: String,
    /// `resets_in_seconds` or Gemini's `retryDelay`.
    wait: Option<Duration>,
    json: bool,
}

impl Words {
    /// `{"error": {…}}`, `{"response": {"error": {…}}}`, or the error itself.
    pub(super) fn of_json(value: &Value) -> Self {
        let nested = value.pointer("/response/error").or_else(|| value.get("error"));
        let error = nested.filter(|error| !error.is_null()).unwrap_or(value);
        let lower = |name: &str| error.get(name).and_then(Value::as_str).map(str::to_ascii_lowercase);
        let message = lower("message").or_else(|| error.as_str().map(str::to_ascii_lowercase));
        Self {
            codes: ["code", "type", "status"].into_iter().filter_map(lower).collect(),
            message: message.unwrap_or_default(),
            wait: wait(error),
            json: true,
        }
    }

    /// A body that is no JSON.
    pub(super) fn of_text(body: &[u8]) -> Self {
        let body = body.get(..LONGEST).unwrap_or(body);
        Self { message: String::from_utf8_lossy(body).to_ascii_lowercase(), ..Self::default() }
    }

    pub(super) fn are_no_json(&self) -> bool {
        !self.json
    }

    /// The wait that the body asks for.
    pub(super) fn retry_after(&self) -> Option<Duration> {
        self.wait.or_else(|| retry_after::of_message(&self.message))
    }

    /// What the words mean; `None` when they are not known. `limited`: the status is 429.
    pub(super) fn outcome(&self, limited: bool, retry_after: Option<Duration>) -> Option<Outcome> {
        let limit = |kind| Outcome::Limited(Limit { kind, retry_after, elsewhere: false });
        let by_phrase = || PHRASES.iter().find(|(phrase, _)| self.message.contains(phrase));
        let by_code = || CODES.iter().find(|(code, _)| self.codes.iter().any(|given| given == code));
        let limited = limited || self.codes.iter().any(|code| code.starts_with("rate_limit"));
        if limited && ADDRESS.iter().any(|phrase| self.message.contains(phrase)) {
            return Some(limit(LimitKind::PerIp));
        }
        let (_, meaning) = by_phrase().or_else(by_code)?;
        Some(match *meaning {
            Meaning::Neutral => Outcome::Neutral,
            Meaning::Incapable(what) => Outcome::Incapable(what),
            Meaning::Limited(kind) => limit(kind),
            Meaning::Overloaded => Outcome::Failed(Failure { kind: FailureKind::Overloaded, retry_after }),
        })
    }
}

/// Waits that stand in fields of their own.
fn wait(error: &Value) -> Option<Duration> {
    let seconds = error.get("resets_in_seconds").and_then(Value::as_f64).and_then(retry_after::seconds);
    seconds.or_else(|| {
        let details = error.get("details")?.as_array()?;
        details.iter().find_map(|detail| retry_after::span(detail.get("retryDelay")?.as_str()?))
    })
}
