//! Answers of the relay's own, in the words of the API that was spoken.
//!
//! In: a status and why. Out: a response that the API's clients read as an error of theirs.

use std::pin::Pin;
use std::task::{Context, Poll};
use std::time::Duration;

use bytes::Bytes;
use http_body_util::Full;
use hyper::body::{Body, Frame, SizeHint};
use hyper::header::{CONTENT_TYPE, HeaderMap, HeaderValue, RETRY_AFTER};
use hyper::{Response, StatusCode};
use serde_json::{Value, json};
use sseismo_trace::Api;

use crate::admin::AdminBody;
use crate::relayed::Relayed;
use crate::retry_after;

/// Why a body could not be sent to its end.
pub type BodyError = Box<dyn std::error::Error + Send + Sync>;

/// What a front answers with.
#[derive(Debug)]
pub enum FrontBody {
    /// An upstream's answer on its way.
    Relayed(Box<Relayed>),
    /// Bytes that are at hand.
    Own(Full<Bytes>),
    /// Signals and metrics.
    Admin(AdminBody),
}

impl Body for FrontBody {
    type Data = Bytes;
    type Error = BodyError;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, BodyError>>> {
        match &mut *self {
            Self::Relayed(body) => body.poll(cx),
            Self::Own(body) => Pin::new(body).poll_frame(cx).map_err(|never| match never {}),
            Self::Admin(body) => Pin::new(body).poll_frame(cx),
        }
    }

    fn is_end_stream(&self) -> bool {
        match self {
            Self::Relayed(body) => body.is_over(),
            Self::Own(body) => body.is_end_stream(),
            Self::Admin(body) => body.is_end_stream(),
        }
    }

    fn size_hint(&self) -> SizeHint {
        match self {
            Self::Relayed(_) => SizeHint::default(), // its head says how long it is
            Self::Own(body) => body.size_hint(),
            Self::Admin(body) => body.size_hint(),
        }
    }
}

/// Whether a body is one JSON document.
pub(crate) fn is_json(headers: &HeaderMap) -> bool {
    let media = headers.get(CONTENT_TYPE).map_or(&b""[..], HeaderValue::as_bytes).trim_ascii_start();
    media.get(..16).is_some_and(|media| media.eq_ignore_ascii_case(b"application/json"))
}

/// JSON of the relay's own.
pub fn json(status: StatusCode, body: &Value) -> Response<FrontBody> {
    let mut response = Response::new(FrontBody::Own(Full::new(Bytes::from(body.to_string()))));
    *response.status_mut() = status;
    response.headers_mut().insert(CONTENT_TYPE, HeaderValue::from_static("application/json"));
    response
}

/// An error of the relay's own. `code` is a short name that programs can tell apart.
pub fn error(
    api: Option<Api>,
    status: StatusCode,
    code: &str,
    message: &str,
    wait: Option<Duration>,
) -> Response<FrontBody> {
    let kind = match status.as_u16() {
        401 => "authentication_error",
        404 => "not_found_error",
        429 => "rate_limit_error",
        400..=499 => "invalid_request_error",
        _ if api == Some(Api::Messages) => "api_error",
        _ => "server_error",
    };
    let body = if api == Some(Api::Messages) {
        json!({"type": "error", "error": {"type": kind, "message": message, "code": code}})
    } else {
        json!({"error": {"message": message, "type": kind, "param": null, "code": code}})
    };
    let mut response = json(status, &body);
    if let Some(wait) = wait {
        response.headers_mut().insert(RETRY_AFTER, retry_after::seconds(wait));
    }
    response
}
