//! A scenario on loopback: real HTTP/1.1, and HTTP/2 with prior knowledge, at the scripted moments.
//!
//! Every write has an absolute deadline on one clock, that of tokio's timer wheel, so lateness does not
//! add up over a stream. How late the writes were handed to the connection is measured and reported;
//! the wheel itself has a grain of 1 ms.

mod body;
mod connection;
mod lateness;
mod request;

use std::io;
use std::io::Write as _;
use std::net::SocketAddr;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use hyper::body::Incoming;
use hyper::service::service_fn;
use hyper::{Method, Request, Response, StatusCode, Version};
use hyper_util::rt::{TokioExecutor, TokioIo};
use hyper_util::server::conn::auto;
use serde_json::json;
use sseismo_trace::Micros;
use tokio::net::TcpListener;
use tokio::task::JoinSet;
use tokio::time::{Instant, sleep_until};

use self::body::Paced;
use self::connection::Connection;
pub use self::lateness::Lateness;
use crate::scenario::Scenario;
use crate::upstream::{Truth, Upstream};

/// Where lines of truth go.
pub(crate) type TruthSink = Box<dyn io::Write + Send>;

/// A listening upstream.
#[derive(Debug)]
pub struct Server {
    listener: TcpListener,
    shared: Arc<Shared>,
}

struct Shared {
    start: Instant,
    number: AtomicU64,
    upstream: Mutex<Upstream>,
    truth: Mutex<Option<TruthSink>>,
    lateness: Mutex<Lateness>,
}

impl std::fmt::Debug for Shared {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Shared").field("number", &self.number).finish_non_exhaustive()
    }
}

/// The value behind a lock; a panic elsewhere does not make counters wrong.
fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Shared {
    fn now(&self) -> Micros {
        Micros(i64::try_from(self.start.elapsed().as_micros()).unwrap_or(i64::MAX))
    }

    fn moment(&self, at: Micros, since: Micros) -> Instant {
        self.start + Duration::from_micros(u64::try_from(at.0 + since.0).unwrap_or(0))
    }

    /// One request is over.
    fn finished(&self, truth: &Truth, sent: usize, writes: usize, lateness: &Lateness) {
        lock(&self.lateness).merge(lateness);
        let mut sink = lock(&self.truth);
        let Some(out) = sink.as_mut() else { return };
        let line = json!({
            "truth": truth, "sent_writes": sent, "writes": writes, "client_left": sent < writes,
            "late_us": { "p50": lateness.quantile(0.5), "max": lateness.max_us() },
        });
        if writeln!(out, "{line}").and_then(|()| out.flush()).is_err() {
            *sink = None;
        }
    }
}

impl Server {
    /// Listens on `listen`, which must be a loopback address. `epoch_s` is the provider's clock at the
    /// start, seconds since 1970 UTC. Lines of truth go to `truth`.
    ///
    /// # Errors
    /// When `listen` is not a loopback address or cannot be bound.
    pub async fn bind(
        scenario: &Scenario,
        listen: SocketAddr,
        epoch_s: i64,
        truth: Option<TruthSink>,
    ) -> io::Result<Self> {
        if !listen.ip().is_loopback() {
            let why = format!("{listen} is not a loopback address: simulated upstreams stay on this machine");
            return Err(io::Error::new(io::ErrorKind::InvalidInput, why));
        }
        let shared = Shared {
            start: Instant::now(),
            number: AtomicU64::new(0),
            upstream: Mutex::new(Upstream::new(scenario, epoch_s)),
            truth: Mutex::new(truth),
            lateness: Mutex::new(Lateness::default()),
        };
        Ok(Self { listener: TcpListener::bind(listen).await?, shared: Arc::new(shared) })
    }

    /// Where it listens.
    ///
    /// # Errors
    /// When the socket does not know.
    pub fn address(&self) -> io::Result<SocketAddr> {
        self.listener.local_addr()
    }

    /// Serves until `stop` is ready, then drops what is open. Returns how late its writes were.
    pub async fn run(self, stop: impl Future<Output = ()>) -> Lateness {
        let mut connections = JoinSet::new();
        tokio::pin!(stop);
        loop {
            tokio::select! {
                () = &mut stop => break,
                accepted = self.listener.accept() => {
                    if let Ok((socket, _)) = accepted {
                        connections.spawn(serve(socket, Arc::clone(&self.shared)));
                    }
                }
                Some(_) = connections.join_next() => {}
            }
        }
        connections.shutdown().await;
        lock(&self.shared.lateness).clone()
    }
}

async fn serve(socket: tokio::net::TcpStream, shared: Arc<Shared>) {
    // Small writes must leave at once; a socket that refuses is as good as closed.
    if socket.set_nodelay(true).is_err() {
        return;
    }
    let reset = Arc::new(AtomicBool::new(false));
    let io = TokioIo::new(Connection::new(socket, Arc::clone(&reset)));
    let service = service_fn(move |request| answer(request, Arc::clone(&shared), Arc::clone(&reset)));
    // An error here is a client that left, or a cut that we made ourselves.
    let _ = auto::Builder::new(TokioExecutor::new()).serve_connection(io, service).await;
}

async fn answer(
    request: Request<Incoming>,
    shared: Arc<Shared>,
    reset: Arc<AtomicBool>,
) -> Result<Response<Paced>, hyper::Error> {
    let at = shared.now();
    let (head, body) = request.into_parts();
    if head.method == Method::GET {
        return Ok(information(&head));
    }
    let ask = match request::read(&head, body).await {
        Ok(ask) => ask,
        Err(refusal) => return Ok(refusal),
    };
    let (script, truth) = {
        let mut upstream = lock(&shared.upstream);
        let number = shared.number.fetch_add(1, Ordering::Relaxed);
        upstream.answer(crate::ask::Ask { number, at, ..ask })
    };
    let may_reset = head.version < Version::HTTP_2;
    sleep_until(shared.moment(at, script.head_at)).await;
    let mut response = Response::builder().status(script.status);
    for (name, value) in &script.headers {
        response = response.header(*name, value);
    }
    let paced = Paced::new(script, truth, at, shared, may_reset.then_some(reset));
    Ok(response.body(paced).unwrap_or_else(|_| plain(StatusCode::INTERNAL_SERVER_ERROR, "bad header")))
}

/// What clients ask before they start.
fn information(head: &hyper::http::request::Parts) -> Response<Paced> {
    if head.headers.contains_key(hyper::header::UPGRADE) {
        return plain(StatusCode::UPGRADE_REQUIRED, "no WebSocket here: use POST");
    }
    match head.uri.path() {
        "/health" | "/v1/health" => plain(StatusCode::OK, "ok"),
        "/models" | "/v1/models" => plain(
            StatusCode::OK,
            &json!({ "object": "list", "data": [{ "id": "sim-reasoner", "object": "model" }] }).to_string(),
        ),
        _ => plain(StatusCode::NOT_FOUND, "known are POST /v1/responses, /v1/chat/completions, /v1/messages"),
    }
}

fn plain(status: StatusCode, text: &str) -> Response<Paced> {
    let mut response = Response::new(Paced::whole(text));
    *response.status_mut() = status;
    response
}

#[cfg(test)]
mod tests;
