//! When a client is told to come back.
//!
//! In: the headers of a refusal that is passed on. Out: the same, and a 429 without any word on when to
//! retry gets one: Codex CLI fails at once on a bare 429, and waits as told when there is a `retry-after`.
//! Whatever the upstream said (`retry-after`, `retry-after-ms`, `x-should-retry`) stays as it is.

use std::time::Duration;

use hyper::header::{HeaderValue, RETRY_AFTER};
use hyper::{HeaderMap, StatusCode};

/// Told when nobody knows better; Codex CLI and the OpenAI and Anthropic SDKs wait that long.
pub const DEFAULT: Duration = Duration::from_secs(2);

/// Longest wait that is taken from an upstream for our own cooling.
pub const CEILING: Duration = Duration::from_mins(10);

/// Adds a `retry-after` to a bare 429. `expected` is when an upstream should be usable again.
/// `hopeless` refusals (a spent quota) get none: waiting does not help there.
pub fn complete(status: StatusCode, headers: &mut HeaderMap, expected: Option<Duration>, hopeless: bool) {
    let told = [RETRY_AFTER.as_str(), "retry-after-ms", "x-should-retry"];
    if status != StatusCode::TOO_MANY_REQUESTS
        || hopeless
        || told.iter().any(|name| headers.contains_key(*name))
    {
        return;
    }
    let wait = expected.unwrap_or(DEFAULT).clamp(Duration::from_secs(1), CEILING);
    headers.insert(RETRY_AFTER, seconds(wait));
}

/// Whole seconds, rounded up.
pub fn seconds(wait: Duration) -> HeaderValue {
    HeaderValue::from(wait.as_millis().div_ceil(1_000).try_into().unwrap_or(u64::MAX))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn completed(status: u16, given: &[(&'static str, &'static str)], hopeless: bool) -> Option<String> {
        let mut headers = HeaderMap::new();
        for (name, value) in given {
            headers.insert(*name, HeaderValue::from_static(value));
        }
        complete(
            StatusCode::from_u16(status).unwrap(),
            &mut headers,
            Some(Duration::from_millis(3_100)),
            hopeless,
        );
        headers.get(RETRY_AFTER).map(|value| value.to_str().unwrap().to_owned())
    }

    #[test]
    fn only_a_bare_429_gets_a_word() {
        assert_eq!(completed(429, &[], false).as_deref(), Some("4"));
        assert_eq!(completed(429, &[("retry-after", "7")], false).as_deref(), Some("7"));
        assert_eq!(completed(429, &[("retry-after-ms", "70")], false), None);
        assert_eq!(completed(429, &[("x-should-retry", "false")], false), None);
        assert_eq!(completed(429, &[], true), None);
        assert_eq!(completed(503, &[], false), None);
    }
}
