//! One request sent again and again: how an endpoint streams.
//!
//! In: a URL and a body. Out: the observer's notes. Answers are read as fast as they come and dropped.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use bytes::Bytes;
use http_body_util::{BodyExt, Full};
use hyper::header::{ACCEPT, AUTHORIZATION, CONTENT_TYPE, HeaderMap, HeaderName, HeaderValue, USER_AGENT};
use hyper::{Request, Uri};
use sseismo_trace::{Api, Outcome};
use tokio::task::JoinSet;

use super::{Observer, SentBody, Tap};
use crate::dialect;

/// The version of Anthropic's API that is asked for unless a header says otherwise.
const ANTHROPIC_VERSION: HeaderValue = HeaderValue::from_static("2023-06-01");

/// Why a probe cannot be sent. Never holds a key.
#[derive(Debug, thiserror::Error)]
pub enum BadProbe {
    /// No URL with scheme and host.
    #[error("`{0}` is not a URL; expected one like https://api.example/v1/responses")]
    Url(String),
    /// A header that cannot be sent.
    #[error("header `{0}` cannot be sent; expected NAME: VALUE in ASCII")]
    Header(String),
    /// A key with characters that no header takes.
    #[error("the key holds characters that cannot be sent; is there a line break in it?")]
    Key,
}

/// A request to be repeated.
#[derive(Clone, Debug)]
pub struct Probe {
    uri: Uri,
    headers: HeaderMap,
    body: Bytes,
}

impl Probe {
    /// A POST of JSON to `url`. The key goes where the API of the URL's path wants it. `headers` come
    /// last and win.
    ///
    /// # Errors
    /// When a part of it cannot be sent.
    pub fn new(
        url: &str,
        body: Vec<u8>,
        key: Option<&str>,
        headers: &[(String, String)],
    ) -> Result<Self, BadProbe> {
        let uri = target(url)?;
        let api = dialect::by_path(uri.path()).map(dialect::Dialect::api);
        let all = header_map(api, key, headers)?;
        Ok(Self { uri, headers: all, body: Bytes::from(body) })
    }

    /// Sends the request `repeat` times, at most `concurrency` at once. Every answer, and every request
    /// without one, is noted by `observer`; the first error without an answer is returned.
    ///
    /// Dropping the future leaves the open answers, which are noted as `client-gone`.
    pub async fn run(
        self,
        tap: Tap<SentBody<Full<Bytes>>>,
        observer: Observer,
        repeat: usize,
        concurrency: usize,
    ) -> Option<String> {
        let left = Arc::new(AtomicUsize::new(repeat));
        let mut workers = JoinSet::new();
        for _ in 0..concurrency.clamp(1, repeat.max(1)) {
            let (probe, tap, observer, left) =
                (self.clone(), tap.clone(), observer.clone(), Arc::clone(&left));
            workers.spawn(async move {
                let mut first = None;
                while left
                    .fetch_update(Ordering::Relaxed, Ordering::Relaxed, |left| left.checked_sub(1))
                    .is_ok()
                {
                    if let Err(error) = probe.once(&tap, &observer).await {
                        first.get_or_insert(error);
                    }
                }
                first
            });
        }
        let mut first = None;
        while let Some(worker) = workers.join_next().await {
            first = first.or(worker.ok().flatten());
        }
        first
    }

    async fn once(&self, tap: &Tap<SentBody<Full<Bytes>>>, observer: &Observer) -> Result<(), String> {
        let mut request =
            Request::post(self.uri.clone()).body(Full::new(self.body.clone())).map_err(|e| e.to_string())?;
        request.headers_mut().clone_from(&self.headers);
        let (head, body) = request.into_parts();
        let upstream = self.uri.authority().map_or("", |authority| authority.as_str());
        let exchange = observer.request(&head, upstream).repeats(&self.body);
        let request = Request::from_parts(head, exchange.body(body));
        match tap.send(request).await {
            Ok(response) => {
                let mut body = exchange.answered(response).into_body();
                while let Some(frame) = body.frame().await {
                    if frame.is_err() {
                        break; // the record says that it broke off
                    }
                }
                Ok(())
            }
            Err(error) => {
                exchange.failed(Outcome::Failed);
                Err(super::causes(&error))
            }
        }
    }
}

/// A URL that requests can go to.
pub(super) fn target(url: &str) -> Result<Uri, BadProbe> {
    let uri: Uri = url.parse().map_err(|_| BadProbe::Url(url.to_owned()))?;
    if uri.host().is_none() || !matches!(uri.scheme_str(), Some("http" | "https")) {
        return Err(BadProbe::Url(url.to_owned()));
    }
    Ok(uri)
}

/// The headers of a request of JSON; the key goes where `api` wants it, `headers` come last and win.
pub(super) fn header_map(
    api: Option<Api>,
    key: Option<&str>,
    headers: &[(String, String)],
) -> Result<HeaderMap, BadProbe> {
    let mut all = HeaderMap::new();
    all.insert(CONTENT_TYPE, HeaderValue::from_static("application/json"));
    all.insert(ACCEPT, HeaderValue::from_static("text/event-stream, application/json"));
    all.insert(USER_AGENT, HeaderValue::from_static(concat!("sseismo/", env!("CARGO_PKG_VERSION"))));
    if api == Some(Api::Messages) {
        all.insert("anthropic-version", ANTHROPIC_VERSION);
    }
    if let Some(key) = key {
        let (name, value) = match api {
            Some(Api::Messages) => (HeaderName::from_static("x-api-key"), key.to_owned()),
            Some(Api::GenerateContent) => (HeaderName::from_static("x-goog-api-key"), key.to_owned()),
            _ => (AUTHORIZATION, format!("Bearer {key}")),
        };
        let mut value = HeaderValue::from_str(&value).map_err(|_| BadProbe::Key)?;
        value.set_sensitive(true);
        all.insert(name, value);
    }
    for (name, value) in headers {
        let bad = || BadProbe::Header(name.clone());
        let parsed = name.parse::<HeaderName>().map_err(|_| bad())?;
        all.insert(parsed, HeaderValue::from_str(value).map_err(|_| bad())?);
    }
    Ok(all)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_key_goes_where_the_api_wants_it_and_never_into_errors_or_debug() {
        let probe = |url| Probe::new(url, Vec::new(), Some("sk-secret"), &[]).unwrap();
        assert_eq!(probe("https://h/v1/responses").headers["authorization"], "Bearer sk-secret");
        let claude = probe("https://h/v1/messages");
        assert_eq!(
            (&claude.headers["x-api-key"], &claude.headers["anthropic-version"]),
            (&HeaderValue::from_static("sk-secret"), &ANTHROPIC_VERSION)
        );
        assert!(!format!("{claude:?}").contains("secret"));
        let error = Probe::new("https://h/", Vec::new(), Some("sk-secret\n"), &[]).unwrap_err();
        assert!(!error.to_string().contains("secret"));
        assert!(Probe::new("h/v1", Vec::new(), None, &[]).is_err());
    }
}
