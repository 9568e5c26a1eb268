//! What is kept of a response's head.
//!
//! In: status and headers. Out: their part of a [`Summary`]. Only named headers are kept: rate limits,
//! request ids, and what tells hops apart.

use std::collections::BTreeMap;

use hyper::HeaderMap;
use hyper::header::{CONTENT_ENCODING, RETRY_AFTER, SERVER, VIA};
use hyper::http::{Version, response};
use sseismo_trace::Summary;

/// Headers that identify a request at its provider or on a hop before it.
const REQUEST_IDS: [&str; 6] =
    ["x-request-id", "request-id", "cf-ray", "x-amzn-requestid", "apim-request-id", "x-oai-request-id"];

/// Beginnings of the names of rate-limit headers.
const RATE_LIMITS: [&str; 3] = ["x-ratelimit-", "anthropic-ratelimit-", "ratelimit"];

/// What the head says.
pub(crate) fn from_head(head: &response::Parts, summary: &mut Summary) {
    let text = |name| text(&head.headers, name);
    summary.status = Some(head.status.as_u16());
    summary.http_version = Some(if head.version == Version::HTTP_2 { "2" } else { "1.1" }.to_owned());
    summary.content_encoding = text(CONTENT_ENCODING.as_str());
    summary.via = text(VIA.as_str());
    summary.server = text(SERVER.as_str());
    summary.retry_after_ms = retry_after(&head.headers);
    summary.rate_limit = kept(&head.headers, |name| RATE_LIMITS.iter().any(|start| name.starts_with(start)));
    summary.request_ids = kept(&head.headers, |name| REQUEST_IDS.contains(&name));
}

fn text(headers: &HeaderMap, name: &str) -> Option<String> {
    headers.get(name).and_then(|value| value.to_str().ok()).map(str::to_owned)
}

fn kept(headers: &HeaderMap, keep: impl Fn(&str) -> bool) -> BTreeMap<String, String> {
    let names = headers.keys().map(hyper::header::HeaderName::as_str).filter(|name| keep(name));
    names.filter_map(|name| Some((name.to_owned(), text(headers, name)?))).collect()
}

/// `retry-after-ms`, or `retry-after` in seconds. A date is not turned into a span: that would mix clocks.
fn retry_after(headers: &HeaderMap) -> Option<u64> {
    let number = |name| text(headers, name)?.trim().parse::<f64>().ok().filter(|n| *n >= 0.0);
    let ms = number("retry-after-ms").or_else(|| Some(number(RETRY_AFTER.as_str())? * 1e3))?;
    #[expect(
        clippy::cast_possible_truncation,
        clippy::cast_sign_loss,
        reason = "`as` saturates, and ms >= 0"
    )]
    Some(ms.round() as u64)
}

#[cfg(test)]
mod tests {
    use hyper::Response;

    use super::*;

    #[test]
    fn named_headers_are_kept_and_others_are_not() {
        let response = Response::builder()
            .status(429)
            .header("retry-after", "1.5")
            .header("x-ratelimit-remaining-tokens", "7")
            .header("x-request-id", "req_1")
            .header("openai-organization", "org-secret")
            .header("set-cookie", "secret")
            .body(())
            .unwrap();
        let mut summary = Summary::default();
        from_head(&response.into_parts().0, &mut summary);
        assert_eq!((summary.status, summary.retry_after_ms), (Some(429), Some(1_500)));
        assert_eq!(summary.rate_limit.len(), 1);
        assert_eq!(summary.request_ids["x-request-id"], "req_1");
        assert!(!format!("{summary:?}").contains("secret"));
    }
}
