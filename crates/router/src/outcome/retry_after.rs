//! How long an answer asks to wait: the header forms that the SDKs honour, and waits told in words.

use std::time::Duration;

use hyper::HeaderMap;
use sseismo_trace::UtcMicros;

/// `retry-after-ms`, then `retry-after` in seconds or as a date; a date in the past is no wait.
pub(super) fn of_headers(headers: &HeaderMap, now: UtcMicros) -> Option<Duration> {
    let text = |name| headers.get(name).and_then(|value| value.to_str().ok()).map(str::trim);
    let milliseconds = text("retry-after-ms").and_then(|ms| seconds(ms.parse::<f64>().ok()? / 1e3));
    milliseconds.or_else(|| {
        let given = text("retry-after")?;
        given.parse().ok().and_then(seconds).or_else(|| until(given, now))
    })
}

/// What `x-should-retry` says, when it says something.
pub(super) fn should_retry(headers: &HeaderMap) -> Option<bool> {
    headers.get("x-should-retry")?.to_str().ok()?.trim().parse().ok()
}

/// A message in lower case such as `please try again in 2.5s` or `retry in 1m30s`.
pub(super) fn of_message(message: &str) -> Option<Duration> {
    let at = ["try again in ", "retry in ", "retry after "].iter().find_map(|phrase| {
        let at = message.find(phrase)?;
        message.get(at + phrase.len()..)
    })?;
    span(at)
}

/// `250ms`, `2.5s`, `1m30.5s`, `6 minutes`, at the beginning of a text; a number alone is seconds.
pub(crate) fn span(text: &str) -> Option<Duration> {
    let mut rest = text;
    let mut total = None;
    loop {
        let digits = rest.find(|c: char| !c.is_ascii_digit() && c != '.').unwrap_or(rest.len());
        // A full stop after the number ends the sentence.
        let Ok(number) = rest[..digits].trim_end_matches('.').parse::<f64>() else { break };
        let after = rest[digits..].trim_start();
        let letters = after.find(|c: char| !c.is_ascii_alphabetic()).unwrap_or(after.len());
        let unit = match &after[..letters] {
            "ms" | "millisecond" | "milliseconds" => 1e-3,
            "" | "s" | "sec" | "secs" | "second" | "seconds" => 1.0,
            "m" | "min" | "mins" | "minute" | "minutes" => 60.0,
            "h" | "hour" | "hours" => 3600.0,
            "d" | "day" | "days" => 86_400.0,
            _ => break,
        };
        total = Some(total.unwrap_or(0.0) + number * unit);
        if letters == 0 {
            break;
        }
        rest = after[letters..].trim_start();
    }
    total.and_then(seconds)
}

/// A wait of this many seconds, unless it is negative, not finite or absurd.
pub(super) fn seconds(seconds: f64) -> Option<Duration> {
    Duration::try_from_secs_f64(seconds).ok()
}

/// The time until an HTTP date (RFC 9110 § 5.6.7, the preferred form).
fn until(date: &str, now: UtcMicros) -> Option<Duration> {
    let at = jiff::fmt::rfc2822::parse(date).ok()?.timestamp().as_microsecond();
    Some(Duration::from_micros(u64::try_from(at - now.0).unwrap_or(0)))
}
