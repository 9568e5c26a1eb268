//! What operators and their programs ask for, on an address of its own: so every path of the relay itself goes
//! to the upstream.
//!
//! In: `GET /signals`, `/metrics`, `/health`, and to the routing relay `POST`s below `/admin/`. Out:
//!
//! | asked | answered |
//! |---|---|
//! | `/signals` | server-sent events, from `Last-Event-ID` on where that is given |
//! | `/signals?views` | the same with a snapshot of the detector about once a second |
//! | `/signals?once` | what is active, as JSON Lines |
//! | `/signals`, `Accept: application/json` | what is active, as one JSON array |
//! | `/metrics` | `OpenMetrics` to those who accept it, else Prometheus's text format |
//! | `/admin/…` | what the routing relay does: see [`operator`](crate::operator); with a token |
//! | `/health` | 200 while everything runs, 503 when a part has ended; the body says what is wrong |
//!
//! It knows models and hosts, never texts or keys; it is meant for loopback, and has no login.

use std::convert::Infallible;
use std::io;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use bytes::Bytes;
use http_body_util::{Either, Full};
use hyper::body::Incoming;
use hyper::header::{ACCEPT, ALLOW, CACHE_CONTROL, CONTENT_TYPE, HeaderMap, HeaderValue};
use hyper::service::service_fn;
use hyper::{Method, Request, Response, StatusCode};
use hyper_util::rt::{TokioIo, TokioTimer};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::watch;
use tokio::task::JoinSet;

use crate::feed::{EventBody, EventId, Feed};
use crate::inbound;
use crate::metrics::{Metrics, OPEN_METRICS, TEXT};
use crate::operator::Operator;

/// Connections at a time; event streams and scrapes together need far fewer.
const MAX_CONNECTIONS: usize = 256;

/// Bytes of a posted body: 256 signals with much evidence.
const MAX_BODY: usize = 1 << 20;

/// A client may take this long for a request's head, and for its body.
const HEAD_TIMEOUT: Duration = Duration::from_secs(30);

/// What is said of a path that is no page, where there are operators' pages, too.
const WITH_OPERATOR: &str = "there are /signals, /metrics and /health; with the token /admin/state, /admin/signals and \
                             /admin/requests; and /admin/signals and /admin/labels to post to\n";

/// What is answered.
pub type AdminBody = Either<EventBody, Full<Bytes>>;

/// How the process is. Clones are the same.
#[derive(Clone, Debug, Default)]
pub struct Health(Arc<Mutex<Wrong>>);

#[derive(Debug, Default)]
struct Wrong {
    trouble: Option<String>,
    ended: Option<String>,
}

impl Health {
    /// Something does not work at the moment and is tried again; traffic goes on. `None`: it works again.
    pub fn trouble(&self, what: Option<&str>) {
        self.wrong(|wrong| wrong.trouble = what.map(str::to_owned));
    }

    /// A part has ended that should go on: only a restart helps.
    pub fn ended(&self, part: &str) {
        self.wrong(|wrong| wrong.ended = Some(part.to_owned()));
    }

    fn wrong<T>(&self, with: impl FnOnce(&mut Wrong) -> T) -> T {
        with(&mut self.0.lock().unwrap_or_else(PoisonError::into_inner))
    }

    fn answer(&self) -> (StatusCode, serde_json::Value) {
        self.wrong(|wrong| match (&wrong.ended, &wrong.trouble) {
            (Some(part), _) => {
                (StatusCode::SERVICE_UNAVAILABLE, serde_json::json!({"status": "ended", "what": part}))
            }
            (None, Some(trouble)) => {
                (StatusCode::OK, serde_json::json!({"status": "trouble", "what": trouble}))
            }
            (None, None) => (StatusCode::OK, serde_json::json!({"status": "ok"})),
        })
    }
}

/// The three pages.
#[derive(Clone, Debug)]
pub struct Admin {
    feed: Feed,
    metrics: Arc<Metrics>,
    health: Health,
    operator: Option<Arc<Operator>>,
}

impl Admin {
    /// Serves these.
    pub fn new(feed: Feed, metrics: Arc<Metrics>, health: Health) -> Self {
        Self { feed, metrics, health, operator: None }
    }

    /// The same with the routing relay's pages under `/admin/`.
    #[must_use]
    pub fn with_operator(self, operator: Operator) -> Self {
        Self { operator: Some(Arc::new(operator)), ..self }
    }

    /// Answers one request whose body may matter. Must be called inside a tokio runtime.
    pub async fn answer_whole(&self, request: Request<Incoming>) -> Response<AdminBody> {
        let operator = self.operator.as_ref().filter(|_| *request.method() == Method::POST);
        let Some(operator) = operator.filter(|_| request.uri().path().starts_with("/admin/")) else {
            return self.answer(&request);
        };
        let (head, body) = request.into_parts();
        let path = head.uri.path();
        // Nothing of a stranger's body is read.
        let (status, answer) = match operator.refuses(&head.headers) {
            Some(refusal) => refusal,
            None => match inbound::collect(body, MAX_BODY, HEAD_TIMEOUT).await {
                Ok(body) => operator.post(path, &body, &self.feed, &self.metrics),
                Err(error) => (StatusCode::BAD_REQUEST, serde_json::json!({"error": error.to_string()})),
            },
        };
        whole(status, "application/json", format!("{answer}\n"))
    }

    /// Answers one request without a body. Must be called inside a tokio runtime.
    pub fn answer<B>(&self, request: &Request<B>) -> Response<AdminBody> {
        if *request.method() != Method::GET {
            let mut response = text(StatusCode::METHOD_NOT_ALLOWED, "ask with GET\n");
            response.headers_mut().insert(ALLOW, HeaderValue::from_static("GET"));
            return response;
        }
        match request.uri().path() {
            "/signals" => self.signals(request.headers(), request.uri().query().unwrap_or_default()),
            "/metrics" => {
                let open = accepts(request.headers(), "application/openmetrics-text");
                let kind = if open { OPEN_METRICS } else { TEXT };
                whole(StatusCode::OK, kind, self.metrics.encode(open))
            }
            path if path.starts_with("/admin/") && self.operator.is_some() => {
                let operator =
                    self.operator.as_ref().map(|operator| operator.answer(path, request.headers()));
                let (status, body) = operator.unwrap_or_default();
                whole(status, "application/json", format!("{body}\n"))
            }
            "/health" => {
                let (status, body) = self.health.answer();
                whole(status, "application/json", format!("{body}\n"))
            }
            _ if self.operator.is_some() => text(StatusCode::NOT_FOUND, WITH_OPERATOR),
            _ => text(StatusCode::NOT_FOUND, "there are /signals, /metrics and /health\n"),
        }
    }

    fn signals(&self, headers: &HeaderMap, query: &str) -> Response<AdminBody> {
        let asked = |flag| query.split('&').any(|part| part.split('=').next() == Some(flag));
        if asked("once") {
            let lines = self.feed.active().iter().map(|item| format!("{}\n", item.json)).collect::<String>();
            return whole(StatusCode::OK, "application/x-ndjson", lines);
        }
        if accepts(headers, "application/json") {
            let active = self.feed.active();
            let items: Vec<&str> = active.iter().map(|item| item.json.as_str()).collect();
            return whole(StatusCode::OK, "application/json", format!("[{}]\n", items.join(",")));
        }
        let after = headers.get("last-event-id").and_then(|id| EventId::parse(id.to_str().ok()?));
        let Some(body) = self.feed.events(after, asked("views")) else {
            return text(StatusCode::SERVICE_UNAVAILABLE, "too many are listening\n");
        };
        let mut response = Response::new(Either::Left(body));
        let headers = response.headers_mut();
        headers.insert(CONTENT_TYPE, HeaderValue::from_static("text/event-stream"));
        headers.insert(CACHE_CONTROL, HeaderValue::from_static("no-store"));
        // nginx would hold events back otherwise.
        headers.insert("x-accel-buffering", HeaderValue::from_static("no"));
        response
    }
}

/// Whether a media type is accepted by name; `*/*` is no name.
fn accepts(headers: &HeaderMap, kind: &str) -> bool {
    let listed = headers.get_all(ACCEPT).iter().filter_map(|value| value.to_str().ok());
    listed
        .flat_map(|value| value.split(','))
        .any(|one| one.split(';').next().is_some_and(|name| name.trim().eq_ignore_ascii_case(kind)))
}

fn text(status: StatusCode, body: &'static str) -> Response<AdminBody> {
    whole(status, "text/plain; charset=utf-8", body.to_owned())
}

fn whole(status: StatusCode, kind: &'static str, body: String) -> Response<AdminBody> {
    let mut response = Response::new(Either::Right(Full::new(Bytes::from(body))));
    *response.status_mut() = status;
    response.headers_mut().insert(CONTENT_TYPE, HeaderValue::from_static(kind));
    response
}

/// Serves until `stop` becomes true; event streams end then.
///
/// # Errors
/// When the listening socket fails for good.
pub async fn serve(listener: TcpListener, admin: Admin, mut stop: watch::Receiver<bool>) -> io::Result<()> {
    let mut connections = JoinSet::new();
    loop {
        tokio::select! {
            accepted = listener.accept() => match accepted {
                Ok((stream, _)) if connections.len() < MAX_CONNECTIONS => {
                    connections.spawn(connection(stream, admin.clone()));
                }
                Ok(_) => {} // closed at once: somebody leaks connections
                Err(error) if error.kind() == io::ErrorKind::InvalidInput => return Err(error),
                Err(error) => {
                    tracing::warn!("cannot accept a connection: {error}");
                    tokio::time::sleep(Duration::from_millis(50)).await; // out of file descriptors
                }
            },
            () = stopped(&mut stop) => return Ok(()),
            Some(_) = connections.join_next() => {}
        }
    }
}

/// Waits for the word to stop, or for nobody being left who could give it.
async fn stopped(stop: &mut watch::Receiver<bool>) {
    let _ = stop.wait_for(|stop| *stop).await;
}

async fn connection(stream: TcpStream, admin: Admin) {
    let _ = stream.set_nodelay(true);
    let service = service_fn(move |request| {
        let admin = admin.clone();
        async move { Ok::<_, Infallible>(admin.answer_whole(request).await) }
    });
    let mut http = hyper::server::conn::http1::Builder::new();
    http.timer(TokioTimer::new()).header_read_timeout(HEAD_TIMEOUT);
    // A client that leaves in the middle is no error.
    let _ = http.serve_connection(TokioIo::new(stream), service).await;
}

#[cfg(test)]
mod tests {
    use http_body_util::BodyExt as _;
    use sseismo_trace::{Detail, Evidence, Micros, Scope, Signal, SignalId, SignalState, UtcMicros};

    use super::*;

    fn admin() -> Admin {
        let feed = Feed::new(1, 8);
        feed.publish(Signal {
            id: SignalId(3),
            target: Scope::default(),
            detail: Detail::Concurrency { calls: 7, window_s: 4.0 },
            cause: None,
            state: SignalState::Onset,
            strength: 1.0,
            evidence: Evidence::default(),
            at: UtcMicros(0),
            ttl: Micros(1),
        });
        let metrics = Arc::new(Metrics::new(&feed));
        Admin::new(feed, metrics, Health::default())
    }

    async fn ask(admin: &Admin, path: &str, accept: &str) -> (u16, String, String) {
        let request = Request::get(path).header(ACCEPT, accept).body(()).unwrap();
        let response = admin.answer(&request);
        let kind = response.headers()[CONTENT_TYPE].to_str().unwrap().to_owned();
        let status = response.status().as_u16();
        let body = match response.into_body() {
            Either::Right(body) => {
                String::from_utf8(body.collect().await.unwrap().to_bytes().into()).unwrap()
            }
            Either::Left(_) => String::new(),
        };
        (status, kind, body)
    }

    #[tokio::test]
    async fn each_asker_gets_the_form_it_reads() {
        let admin = admin();
        let (_, kind, body) = ask(&admin, "/signals", "application/json").await;
        assert_eq!(
            (kind.as_str(), serde_json::from_str::<Vec<Signal>>(&body).unwrap().len()),
            ("application/json", 1)
        );
        let (_, kind, body) = ask(&admin, "/signals?once=1", "*/*").await;
        assert_eq!((kind.as_str(), body.lines().count()), ("application/x-ndjson", 1));
        assert_eq!(ask(&admin, "/signals", "*/*").await.1, "text/event-stream");
        let scraper = "application/openmetrics-text;version=1.0.0,text/plain;version=0.0.4;q=0.5,*/*;q=0.1";
        let (_, kind, body) = ask(&admin, "/metrics", scraper).await;
        assert!(kind.starts_with("application/openmetrics-text") && body.ends_with("# EOF\n"), "{kind}");
        let (_, kind, body) = ask(&admin, "/metrics", "*/*").await;
        assert!(kind.starts_with("text/plain") && !body.contains("# EOF"), "{kind}");
        assert_eq!(ask(&admin, "/v1/responses", "*/*").await.0, 404);
        let post = Request::post("/signals").body(()).unwrap();
        assert_eq!(admin.answer(&post).status(), 405);
    }

    #[tokio::test]
    async fn health_tells_passing_trouble_from_an_end() {
        let admin = admin();
        assert_eq!(
            ask(&admin, "/health", "*/*").await,
            (200, "application/json".into(), "{\"status\":\"ok\"}\n".into())
        );
        admin.health.trouble(Some("no space left"));
        let (status, _, body) = ask(&admin, "/health", "*/*").await;
        assert!(status == 200 && body.contains("no space left"), "{status} {body}");
        admin.health.trouble(None);
        admin.health.ended("detector");
        let (status, _, body) = ask(&admin, "/health", "*/*").await;
        assert!(status == 503 && body.contains("detector"), "{status} {body}");
    }
}
