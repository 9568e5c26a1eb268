//! The head of an answer on its way to the client.
//!
//! In: an upstream's status and headers. Out: the same without what ends at this hop, and with what is known
//! at the commit about who serves and why.

use std::sync::Arc;

use hyper::header::{CONTENT_LENGTH, CONTENT_TYPE, HeaderMap, HeaderName, HeaderValue, SET_COOKIE};
use hyper::http::response;
use hyper::{StatusCode, Version};

use crate::observe::headers::end_hop;
use crate::outcome::{LimitKind, Outcome};
use crate::retry_after;

/// Names the request, for `GET /admin/requests/{id}`.
const REQUEST: HeaderName = HeaderName::from_static("x-sseismo-request-id");
const SERVED_BY: HeaderName = HeaderName::from_static("x-sseismo-served-by");
const ATTEMPT: HeaderName = HeaderName::from_static("x-sseismo-attempt");
const REASON: HeaderName = HeaderName::from_static("x-sseismo-reason");
/// nginx would hold events back otherwise.
const BUFFERING: HeaderName = HeaderName::from_static("x-accel-buffering");

/// Who serves and why.
pub(super) struct Told<'a> {
    pub(super) upstream: &'a Arc<str>,
    pub(super) number: u32,
    pub(super) reason: &'static str,
}

/// Ends the hop and says who serves. `resized`: the body may not be as long as the upstream said.
pub(super) fn complete(head: &mut response::Parts, told: &Told<'_>, request: &str, resized: bool) {
    head.version = Version::HTTP_11; // the connection decides
    let headers = &mut head.headers;
    end_hop(headers);
    headers.remove(SET_COOKIE); // between the upstream and the operator's account
    if let Ok(name) = HeaderValue::from_str(told.upstream) {
        headers.insert(SERVED_BY, name);
    }
    headers.insert(ATTEMPT, told.number.into());
    headers.insert(REASON, HeaderValue::from_static(told.reason));
    name_request(headers, request);
    let media = headers.get(CONTENT_TYPE).map_or(&b""[..], HeaderValue::as_bytes);
    let events = media.get(..17).is_some_and(|media| media.eq_ignore_ascii_case(b"text/event-stream"));
    if events {
        headers.insert(BUFFERING, HeaderValue::from_static("no"));
    }
    if events || resized {
        headers.remove(CONTENT_LENGTH); // an error event may have to follow
    }
}

/// Names the request.
pub(crate) fn name_request(headers: &mut HeaderMap, request: &str) {
    if let Ok(id) = HeaderValue::from_str(request) {
        headers.insert(REQUEST, id);
    }
}

/// Tells a client of a refusal when to come back.
pub(super) fn come_back(head: &mut response::Parts, outcome: Outcome) {
    let hopeless = matches!(outcome, Outcome::Limited(limit) if limit.kind == LimitKind::Insufficient);
    let status: StatusCode = head.status;
    retry_after::complete(status, &mut head.headers, outcome.retry_after(), hopeless);
}
