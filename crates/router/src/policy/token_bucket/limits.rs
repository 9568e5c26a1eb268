//! What an answer's head says of its upstream's limits.
//!
//! | header | says |
//! |---|---|
//! | `x-ratelimit-remaining-requests`, `-tokens` | how many are left (OpenAI, Azure, Groq, `OpenRouter` …) |
//! | `x-ratelimit-reset-requests`, `-tokens` | `6m0s`, `1.2s`, `87ms`: until all are there again |
//! | `anthropic-ratelimit-requests-remaining`, `-tokens-`, `-input-tokens-`, `-output-tokens-` | the same |
//! | `anthropic-ratelimit-…-reset` | as a time (RFC 3339) |
//! | `ratelimit-remaining`, `ratelimit-reset` | requests, and seconds (an early draft of the IETF) |

use std::time::Duration;

use hyper::HeaderMap;
use sseismo_trace::UtcMicros;

/// A wait that nobody told: providers count by the minute and refill as it goes on.
const UNTOLD: Duration = Duration::from_secs(2);

/// The longest wait that is believed.
const LONGEST: Duration = Duration::from_mins(10);

/// How much is left of one limit, and until when that is so at most.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct Left {
    pub(super) amount: f64,
    pub(super) resets: Duration,
}

/// What is left of requests and of tokens, where the head says so.
pub(super) fn of(headers: &HeaderMap, now: UtcMicros) -> (Option<Left>, Option<Left>) {
    let left = |(remaining, reset): &(&str, &str)| {
        let amount = text(headers, remaining)?.parse::<f64>().ok().filter(|amount| *amount >= 0.0)?;
        let resets = text(headers, reset).and_then(|text| span(text, now)).unwrap_or(UNTOLD);
        Some(Left { amount, resets: resets.min(LONGEST) })
    };
    let least = |pairs: &[(&str, &str)]| {
        pairs.iter().filter_map(left).min_by(|one, other| one.amount.total_cmp(&other.amount))
    };
    let requests = least(&[
        ("x-ratelimit-remaining-requests", "x-ratelimit-reset-requests"),
        ("anthropic-ratelimit-requests-remaining", "anthropic-ratelimit-requests-reset"),
        ("ratelimit-remaining", "ratelimit-reset"),
    ]);
    let tokens = least(&[
        ("x-ratelimit-remaining-tokens", "x-ratelimit-reset-tokens"),
        ("anthropic-ratelimit-tokens-remaining", "anthropic-ratelimit-tokens-reset"),
        ("anthropic-ratelimit-input-tokens-remaining", "anthropic-ratelimit-input-tokens-reset"),
        ("anthropic-ratelimit-output-tokens-remaining", "anthropic-ratelimit-output-tokens-reset"),
    ]);
    (requests, tokens)
}

fn text<'a>(headers: &'a HeaderMap, name: &str) -> Option<&'a str> {
    headers.get(name)?.to_str().ok().map(str::trim)
}

fn span(text: &str, now: UtcMicros) -> Option<Duration> {
    if let Ok(at) = text.parse::<jiff::Timestamp>() {
        return Some(Duration::from_micros(u64::try_from(at.as_microsecond() - now.0).unwrap_or(0)));
    }
    crate::outcome::span(text)
}

#[cfg(test)]
mod tests {
    use hyper::header::{HeaderName, HeaderValue};

    use super::*;

    fn read(pairs: &[(&'static str, &'static str)]) -> (Option<Left>, Option<Left>) {
        let header = |(name, value): &(&'static str, &'static str)| {
            (HeaderName::from_static(name), HeaderValue::from_static(value))
        };
        // 2026-03-01T12:00:00Z
        of(&pairs.iter().map(header).collect(), UtcMicros(1_772_366_400_000_000))
    }

    #[test]
    fn the_headers_of_providers_are_read() {
        let left = |amount, ms| Some(Left { amount, resets: Duration::from_millis(ms) });
        let openai = read(&[
            ("x-ratelimit-limit-requests", "500"),
            ("x-ratelimit-remaining-requests", "499"),
            ("x-ratelimit-reset-requests", "120ms"),
            ("x-ratelimit-remaining-tokens", "0"),
            ("x-ratelimit-reset-tokens", "1m30.5s"),
        ]);
        assert_eq!(openai, (left(499.0, 120), left(0.0, 90_500)));
        let anthropic = read(&[
            ("anthropic-ratelimit-requests-remaining", "3"),
            ("anthropic-ratelimit-requests-reset", "2026-03-01T12:00:07Z"),
            ("anthropic-ratelimit-input-tokens-remaining", "80000"),
            ("anthropic-ratelimit-input-tokens-reset", "2026-03-01T11:00:00Z"),
            ("anthropic-ratelimit-output-tokens-remaining", "2000"),
            ("anthropic-ratelimit-output-tokens-reset", "2026-03-01T13:00:00Z"),
        ]);
        assert_eq!(anthropic, (left(3.0, 7_000), left(2_000.0, 600_000)), "no longer wait is believed");
        assert_eq!(read(&[("ratelimit-remaining", "0"), ("ratelimit-reset", "5")]).0, left(0.0, 5_000));
        assert_eq!(read(&[("x-ratelimit-remaining-requests", "0")]).0, left(0.0, 2_000));
        assert_eq!(
            read(&[("x-ratelimit-remaining-requests", "-1"), ("x-ratelimit-remaining-tokens", "many")]),
            (None, None)
        );
    }
}
