//! The observing relay: every path, one upstream, nothing changed.
//!
//! In: requests on a listening socket. Out: the same requests at the upstream, its answers byte for byte,
//! and [`Record`](sseismo_capture::tap::Record)s through the [`Observer`]. It never retries what was sent, never
//! rewrites, never follows a redirect, and holds nothing back. Credentials of the caller go to the one
//! configured upstream and nowhere else. When the client leaves, the upstream request is dropped.
//!
//! What is changed, and why: hop-by-hop headers (RFC 9110 § 7.6.1) end here, `host` names the upstream, and
//! a websocket upgrade is answered 426, which makes Codex CLI fall back to server-sent events at once.

use std::io;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use http_body_util::{Either, Full};
use hyper::body::Incoming;
use hyper::header::{HOST, HeaderValue, UPGRADE};
use hyper::http::uri::{Authority, PathAndQuery, Scheme};
use hyper::{Method, Request, Response, StatusCode, Uri, Version};
use sseismo_capture::tap::{Observer, SentBody, Tap, TapBody, causes};
use sseismo_trace::Outcome;
use tokio::net::TcpListener;
use tokio::sync::watch;

use crate::serve::Limits;

pub(crate) mod headers;

pub use crate::serve::Served;

/// Header that carries the relay's own token, beside `proxy-authorization`.
pub const TOKEN_HEADER: &str = "x-sseismo-token";

/// What the relay answers with.
pub type RelayBody = Either<TapBody, Full<Bytes>>;

/// Why an upstream cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum BadUpstream {
    /// No URL at all.
    #[error("`{0}` is not a URL; expected one like https://api.example")]
    NotUrl(String),
    /// A scheme that is not spoken.
    #[error("`{0}` must begin with http:// or https://")]
    Scheme(String),
    /// The URL carries a user or password: it would end up in records.
    #[error("the upstream's URL must not carry credentials; clients send their own")]
    Credentials,
    /// The URL has a query.
    #[error("the upstream's URL must not have a query")]
    Query,
}

/// Where every request goes.
#[derive(Clone, Debug)]
pub struct Upstream {
    scheme: Scheme,
    authority: Authority,
    /// Path before each request's own; empty or without a slash at its end.
    prefix: String,
    host: HeaderValue,
}

impl Upstream {
    /// Reads a base URL, for example `https://api.example` or `http://127.0.0.1:8000/openai`.
    ///
    /// # Errors
    /// When it is no such URL.
    pub fn parse(url: &str) -> Result<Self, BadUpstream> {
        let uri: Uri = url.parse().map_err(|_| BadUpstream::NotUrl(url.to_owned()))?;
        let parts = uri.into_parts();
        let (Some(scheme), Some(authority)) = (parts.scheme, parts.authority) else {
            return Err(BadUpstream::NotUrl(url.to_owned()));
        };
        if scheme != Scheme::HTTP && scheme != Scheme::HTTPS {
            return Err(BadUpstream::Scheme(url.to_owned()));
        }
        if authority.as_str().contains('@') {
            return Err(BadUpstream::Credentials);
        }
        let path = parts.path_and_query.unwrap_or_else(|| PathAndQuery::from_static("/"));
        if path.query().is_some() {
            return Err(BadUpstream::Query);
        }
        let host =
            HeaderValue::from_str(authority.as_str()).map_err(|_| BadUpstream::NotUrl(url.to_owned()))?;
        Ok(Self { scheme, prefix: path.path().trim_end_matches('/').to_owned(), authority, host })
    }

    /// The `host` header of requests to it.
    pub(crate) fn host(&self) -> &HeaderValue {
        &self.host
    }

    /// Host, with its port where it was given one: the name in records.
    pub fn name(&self) -> &str {
        self.authority.as_str()
    }

    /// Path before each request's own, without a slash at its end.
    pub(crate) fn prefix(&self) -> &str {
        &self.prefix
    }

    /// The same path and query at the upstream, byte for byte.
    fn uri(&self, asked: &Uri) -> Result<Uri, hyper::http::Error> {
        self.join(asked.path_and_query().map_or("/", PathAndQuery::as_str))
    }

    /// `path`, which begins with a slash, below the base URL.
    pub(crate) fn join(&self, path: &str) -> Result<Uri, hyper::http::Error> {
        Uri::builder()
            .scheme(self.scheme.clone())
            .authority(self.authority.clone())
            .path_and_query(format!("{}{path}", self.prefix))
            .build()
    }
}

/// Serves `relay` until `stop` becomes true, then lets open requests finish for at most `drain`.
///
/// # Errors
/// When the listening socket fails for good.
pub async fn serve(
    listener: TcpListener,
    relay: Observe,
    stop: watch::Receiver<bool>,
    drain: Duration,
) -> io::Result<Served> {
    let answer = move |request| {
        let relay = relay.clone();
        async move { relay.forward(request).await }
    };
    crate::serve::serve(listener, answer, Limits::default(), stop, drain).await
}

/// The relay's one job, without its sockets.
#[derive(Clone, Debug)]
pub struct Observe {
    tap: Tap<SentBody<Incoming>>,
    observer: Observer,
    upstream: Arc<Upstream>,
    token: Option<Arc<str>>,
}

impl Observe {
    /// Passes requests on to `upstream` over `tap`. With a `token`, requests that do not carry it are
    /// refused.
    pub fn new(
        tap: Tap<SentBody<Incoming>>,
        observer: Observer,
        upstream: Upstream,
        token: Option<String>,
    ) -> Self {
        Self { tap, observer, upstream: Arc::new(upstream), token: token.map(Arc::from) }
    }

    /// Answers one request. Never fails: what goes wrong on the way becomes a response of our own.
    pub async fn forward(&self, request: Request<Incoming>) -> Response<RelayBody> {
        if let Some(token) = &self.token
            && !headers::carries_token(request.headers(), token)
        {
            return refusal(StatusCode::UNAUTHORIZED, "the relay's token is missing or wrong");
        }
        if *request.method() == Method::CONNECT {
            return refusal(StatusCode::METHOD_NOT_ALLOWED, "the relay is no forward proxy");
        }
        if request.headers().contains_key(UPGRADE) && !headers::is_http2_upgrade(request.headers()) {
            let mut response =
                refusal(StatusCode::UPGRADE_REQUIRED, "the relay speaks plain HTTP; use server-sent events");
            response.headers_mut().insert(UPGRADE, HeaderValue::from_static("HTTP/1.1"));
            return response;
        }
        let Ok(uri) = self.upstream.uri(request.uri()) else {
            return refusal(StatusCode::BAD_REQUEST, "the path is not one that can be passed on");
        };
        let (mut head, body) = request.into_parts();
        let exchange = self.observer.request(&head, self.upstream.name());
        head.uri = uri;
        head.version = Version::HTTP_11; // the connection decides
        headers::end_hop(&mut head.headers);
        head.headers.remove(TOKEN_HEADER);
        head.headers.insert(HOST, self.upstream.host.clone());
        let request = Request::from_parts(head, exchange.body(body));
        match self.tap.send(request).await {
            Ok(response) if response.status().is_informational() => {
                // Nobody asked to switch protocols, and no other such answer gets here.
                exchange.failed(Outcome::Failed);
                let message =
                    format!("no answer from {}: status {}", self.upstream.name(), response.status());
                tracing::warn!("{message}");
                refusal(StatusCode::BAD_GATEWAY, &message)
            }
            Ok(response) => {
                let mut response = exchange.answered(response);
                *response.version_mut() = Version::HTTP_11;
                headers::end_hop(response.headers_mut());
                response.map(Either::Left)
            }
            Err(error) => {
                exchange.failed(Outcome::Failed);
                let message = format!("no answer from {}: {}", self.upstream.name(), causes(&error));
                tracing::warn!("{message}");
                refusal(StatusCode::BAD_GATEWAY, &message)
            }
        }
    }
}

/// A response of our own, in the shape that the clients of most APIs print.
fn refusal(status: StatusCode, message: &str) -> Response<RelayBody> {
    let body = serde_json::json!({"error": {"type": "sseismo_relay", "message": message}});
    let mut response = Response::new(Either::Right(Full::new(Bytes::from(body.to_string()))));
    *response.status_mut() = status;
    let json = HeaderValue::from_static("application/json");
    response.headers_mut().insert(hyper::header::CONTENT_TYPE, json);
    response
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn paths_reach_the_upstream_byte_for_byte() {
        let at = |base: &str, path: &str| {
            let upstream = Upstream::parse(base).unwrap();
            upstream.uri(&path.parse().unwrap()).unwrap().to_string()
        };
        assert_eq!(
            at("https://api.example", "/v1/a%2Fb//c?x=%20&y"),
            "https://api.example/v1/a%2Fb//c?x=%20&y"
        );
        assert_eq!(at("http://h:1/openai/", "/v1"), "http://h:1/openai/v1");
        assert_eq!(at("http://h:1", "http://other/v1"), "http://h:1/v1");
    }

    #[test]
    fn bad_upstreams_say_what_is_wrong() {
        let error = |url| Upstream::parse(url).unwrap_err().to_string();
        assert!(error("api.example").contains("not a URL"));
        assert!(error("ftp://api.example").contains("http://"));
        assert!(!error("https://user:secret@api.example").contains("secret"));
        assert!(error("https://api.example/?x=1").contains("query"));
    }
}
