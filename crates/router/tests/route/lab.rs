//! Upstreams with known faults, a routing relay in front of them, and a client: all on loopback.

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::io;
use std::net::SocketAddr;
use std::sync::mpsc::Receiver;
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use arc_swap::ArcSwap;
use bytes::Bytes;
use http_body_util::{BodyExt, Full};
use hyper::body::Incoming;
use hyper::{Request, Response};
use hyper_util::client::legacy::Client;
use hyper_util::rt::TokioExecutor;
use serde_json::Value;
use sseismo_capture::tap::{Keep, Note, Observer, Options, Record, Tap};
use sseismo_router::access::{Access, Sink, counting};
use sseismo_router::admin::{Admin, Health};
use sseismo_router::choice::Router;
use sseismo_router::config;
use sseismo_router::exchange::Shared;
use sseismo_router::feed::Feed;
use sseismo_router::front::{Current, Front};
use sseismo_router::health;
use sseismo_router::keys::Source;
use sseismo_router::link::Links;
use sseismo_router::metrics::Metrics;
use sseismo_router::operator::Operator;
use sseismo_router::serve::{Limits, Served, serve};
use sseismo_simulator::{Scenario, Server};
use tokio::net::TcpListener;
use tokio::sync::watch;
use tokio::task::JoinHandle;

/// What one finished request of a simulated upstream was, and when its end was noticed.
#[derive(Clone, Debug)]
pub(crate) struct Hit {
    pub(crate) line: Value,
    pub(crate) at: Instant,
}

#[derive(Clone, Debug, Default)]
struct Lines {
    hits: Arc<Mutex<Vec<Hit>>>,
    begun: Vec<u8>,
}

impl io::Write for Lines {
    /// A line comes in pieces.
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.begun.extend_from_slice(bytes);
        if self.begun.ends_with(b"\n") {
            let line = serde_json::from_slice(&std::mem::take(&mut self.begun)).unwrap();
            self.hits.lock().unwrap().push(Hit { line, at: Instant::now() });
        }
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

/// A simulated upstream; it ends with this.
pub(crate) struct Sim {
    pub(crate) address: SocketAddr,
    lines: Lines,
    server: JoinHandle<()>,
}

impl Drop for Sim {
    fn drop(&mut self) {
        self.server.abort();
    }
}

impl Sim {
    /// A healthy and quick upstream with these faults: tables of a scenario file.
    pub(crate) async fn start(faults: &str) -> Self {
        Self::paced("5ms", 30, faults).await
    }

    pub(crate) async fn paced(gap: &str, reasoning: u32, faults: &str) -> Self {
        let text = format!(
            "seed = 1\n[answer]\nfirst-token = \"20ms\"\nfirst-token-sigma = 0.0001\n\
             reasoning = {{ median = {reasoning}, sigma = 0.0001 }}\noutput = {{ median = 9, sigma = 0.0001 }}\n\
             [[behaviour]]\nkind = \"steady\"\ngap = \"{gap}\"\njitter = 0.0\n{faults}"
        );
        let scenario = Scenario::parse(&text, std::path::Path::new(".")).unwrap();
        let lines = Lines::default();
        let listen = "127.0.0.1:0".parse().unwrap();
        let server = Server::bind(&scenario, listen, 0, Some(Box::new(lines.clone()))).await.unwrap();
        let address = server.address().unwrap();
        let server = tokio::spawn(async move { drop(server.run(std::future::pending()).await) });
        Self { address, lines, server }
    }

    /// The requests that are over.
    pub(crate) fn hits(&self) -> Vec<Hit> {
        self.lines.hits.lock().unwrap().clone()
    }

    /// Waits for the `n`-th request to be over.
    pub(crate) async fn hit(&self, n: usize) -> Hit {
        let since = Instant::now();
        loop {
            if let Some(hit) = self.hits().get(n) {
                return hit.clone();
            }
            assert!(since.elapsed() < Duration::from_secs(5), "no such request was seen");
            tokio::time::sleep(Duration::from_millis(1)).await;
        }
    }
}

/// An address at which nobody listens.
pub(crate) async fn nobody() -> SocketAddr {
    TcpListener::bind("127.0.0.1:0").await.unwrap().local_addr().unwrap()
}

/// One upstream's table, with further lines.
pub(crate) fn upstream(name: &str, address: SocketAddr, more: &str) -> String {
    format!("[[upstream]]\nname = \"{name}\"\nurl = \"http://{address}/v1\"\n{more}\n")
}

pub(crate) const ALL: &str = "apis = [\"responses\", \"chat\", \"messages\"]";

/// A relay whose route `m` goes to `a`, and then to `b`.
pub(crate) fn a_then_b(a: SocketAddr, b: SocketAddr, more_a: &str, more: &str) -> String {
    let mut text = String::new();
    write!(
        text,
        "{}{}[[route]]\nmodel = \"m\"\ntiers = [[\"a\"], [\"b\"]]\n{more}\n",
        upstream("a", a, &format!("{ALL}\n{more_a}")),
        upstream("b", b, ALL)
    )
    .unwrap();
    text
}

/// A running relay.
pub(crate) struct Relay {
    pub(crate) address: SocketAddr,
    pub(crate) access: Arc<Access>,
    pub(crate) router: Arc<ArcSwap<Router>>,
    pub(crate) front: Front,
    pub(crate) admin: Admin,
    notes: Receiver<Note>,
    stop: watch::Sender<bool>,
    served: JoinHandle<io::Result<Served>>,
    health: JoinHandle<()>,
    outcomes: Arc<Mutex<BTreeMap<String, u64>>>,
}

impl Relay {
    pub(crate) async fn start(text: &str) -> Self {
        Self::with(text, Limits::default(), None).await
    }

    pub(crate) async fn with(text: &str, limits: Limits, keep_alive: Option<Duration>) -> Self {
        let config = config::check(text, std::path::Path::new("relay.toml"));
        let config = config.unwrap_or_else(|faults| panic!("{faults:#?}\n{text}"));
        let now = tokio::time::Instant::now();
        let router = Arc::new(ArcSwap::from_pointee(Router::new(config, &|_| None, 7, now)));
        let hash = Arc::new(|_: &str, bytes: &[u8]| bytes.iter().map(|&byte| u64::from(byte)).sum());
        let (observer, notes) = Observer::new(hash, Keep::default());
        let links = Arc::new(Links::new(Tap::new(&Options::default()).unwrap()));
        let feed = Feed::new(1, 8);
        let metrics = Arc::new(Metrics::new(&feed));
        let outcomes = Arc::<Mutex<BTreeMap<String, u64>>>::default();
        let tally = Arc::clone(&outcomes);
        let tallying: Sink = Box::new(move |entry| {
            *tally.lock().unwrap().entry(entry.outcome.to_owned()).or_default() += 1;
        });
        let access = Arc::new(Access::new(1, vec![counting(Arc::clone(&metrics)), tallying]));
        let health = tokio::spawn(health::watch(
            Arc::new({
                let standing = Arc::clone(&router);
                move || standing.load_full()
            }),
            Arc::clone(&links),
            observer.clone(),
        ));
        let shared = Shared { links, observer, keep_alive, metrics: Some(Arc::clone(&metrics)) };
        let standing = Arc::clone(&router);
        let current: Current = Arc::new(move || standing.load_full());
        let key = tempfile::NamedTempFile::new().unwrap();
        std::fs::write(key.path(), "operators-token").unwrap();
        let token = Source::File(key.path().to_owned()).read(&|_| None).unwrap();
        let operator = Operator::new(token, Arc::clone(&current), Arc::clone(&access));
        let admin = Admin::new(feed, metrics, Health::default()).with_operator(operator);
        let front = Front::new(current, shared, Arc::clone(&access), Some(admin.clone()));
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        let (stop, stopping) = watch::channel(false);
        let answering = front.clone();
        let answer = move |request| {
            let front = answering.clone();
            async move { front.answer(request).await }
        };
        let served = tokio::spawn(serve(listener, answer, limits, stopping, Duration::from_secs(5)));
        Self { address, access, router, front, admin, notes, stop, served, health, outcomes }
    }

    /// The records of streams that have ended, once there are `n`.
    pub(crate) async fn records(&self, n: usize) -> Vec<Record> {
        let since = Instant::now();
        let mut records = Vec::new();
        while records.len() < n {
            match self.notes.try_recv() {
                Ok(Note::End(record)) => records.push(*record),
                Ok(_) => {}
                Err(_) => tokio::time::sleep(Duration::from_millis(1)).await,
            }
            assert!(since.elapsed() < Duration::from_secs(5), "{} of {n} records came", records.len());
        }
        records
    }

    /// How many more streams have ended by now, and a little later.
    pub(crate) async fn further_records(&self) -> usize {
        tokio::time::sleep(Duration::from_millis(100)).await;
        self.notes.try_iter().filter(|note| matches!(note, Note::End(_))).count()
    }

    /// How many requests were logged under each outcome.
    pub(crate) fn outcomes(&self) -> BTreeMap<String, u64> {
        self.outcomes.lock().unwrap().clone()
    }

    /// Waits until all requests are logged.
    pub(crate) async fn logged(&self) {
        let since = Instant::now();
        while self.access.open() > 0 {
            assert!(since.elapsed() < Duration::from_secs(5), "requests are still open");
            tokio::time::sleep(Duration::from_millis(1)).await;
        }
    }

    pub(crate) async fn end(self) -> Served {
        self.stop.send(true).unwrap();
        self.health.abort();
        self.served.await.unwrap().unwrap()
    }
}

/// A request for a streamed answer of the model `m`.
pub(crate) fn body(path: &str) -> String {
    let input = match path {
        "/v1/responses" => r#""input":"12 ab""#,
        _ => r#""max_tokens":1000,"messages":[{"role":"user","content":"12 ab"}]"#,
    };
    format!(r#"{{"model":"m","stream":true,{input}}}"#)
}

pub(crate) const CHAT: &str = "/v1/chat/completions";

pub(crate) fn request(to: SocketAddr, path: &str, body: impl Into<Bytes>) -> Request<Full<Bytes>> {
    Request::post(format!("http://{to}{path}"))
        .header("content-type", "application/json")
        .body(Full::new(body.into()))
        .unwrap()
}

/// Sends a request on a connection of its own.
pub(crate) async fn open(request: Request<Full<Bytes>>) -> Response<Incoming> {
    let client = Client::builder(TokioExecutor::new()).build_http();
    client.request(request).await.unwrap()
}

/// An answer, and whether its body came to its proper end.
pub(crate) struct Got {
    pub(crate) head: hyper::http::response::Parts,
    pub(crate) text: String,
    pub(crate) whole: bool,
}

impl Got {
    pub(crate) fn header(&self, name: &str) -> &str {
        self.head.headers.get(name).map_or("", |value| value.to_str().unwrap())
    }
}

pub(crate) async fn send(request: Request<Full<Bytes>>) -> Got {
    let (head, mut body) = open(request).await.into_parts();
    let (mut bytes, mut whole) = (Vec::new(), true);
    while let Some(frame) = body.frame().await {
        let Ok(frame) = frame else {
            whole = false;
            break;
        };
        bytes.extend_from_slice(&frame.into_data().unwrap_or_default());
    }
    Got { head, text: String::from_utf8(bytes).unwrap(), whole }
}

/// Asks the relay for a stream.
pub(crate) async fn ask(relay: &Relay, path: &str) -> Got {
    send(request(relay.address, path, body(path))).await
}
