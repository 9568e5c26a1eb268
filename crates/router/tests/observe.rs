//! The observing relay over real sockets on loopback: what passes, what is recorded, what ends when.

#![expect(
    clippy::unwrap_used,
    clippy::disallowed_methods,
    reason = "a test stops at what it does not expect, and its bounds are in real time"
)]

#[path = "observe/encodings.rs"]
mod encodings;
#[path = "observe/retention.rs"]
mod retention;
#[path = "observe/upstream.rs"]
mod upstream;

use std::net::SocketAddr;
use std::sync::mpsc::{Receiver, TryRecvError};
use std::time::{Duration, Instant};

use bytes::Bytes;
use http_body_util::{BodyExt, Full};
use hyper::{Request, Response, StatusCode};
use hyper_util::client::legacy::Client;
use hyper_util::rt::TokioExecutor;
use sseismo_capture::tap::{Keep, Note, Observer, Options, RawPiece, Record, Tap};
use sseismo_router::observe::{Observe, Served, Upstream, serve};
use sseismo_trace::{Attribution, Kind, Outcome};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::watch;
use tokio::task::JoinHandle;
use upstream::{Certificate, Framing, Script, Seen, http1, http2};

const PAUSE: Duration = Duration::from_millis(3);

/// A running relay and what it says.
struct Relay {
    address: SocketAddr,
    notes: Receiver<Note>,
    raw: Vec<RawPiece>,
    stop: watch::Sender<bool>,
    served: JoinHandle<std::io::Result<Served>>,
}

impl Relay {
    async fn start(to: &str, options: &Options, token: Option<&str>) -> Self {
        let hash =
            std::sync::Arc::new(|_: &str, bytes: &[u8]| bytes.iter().map(|&byte| u64::from(byte)).sum());
        let (observer, notes) = Observer::new(hash, Keep { raw: true, ..Keep::default() });
        let tap = Tap::new(options).unwrap();
        let relay = Observe::new(tap, observer, Upstream::parse(to).unwrap(), token.map(str::to_owned));
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        let (stop, stopping) = watch::channel(false);
        let served = tokio::spawn(serve(listener, relay, stopping, Duration::from_secs(5)));
        Self { address, notes, raw: Vec::new(), stop, served }
    }

    async fn to(address: SocketAddr) -> Self {
        Self::start(&format!("http://{address}"), &Options::default(), None).await
    }

    /// The next finished stream; `None` when the queue has ended.
    async fn next(&mut self) -> Option<Record> {
        let since = Instant::now();
        loop {
            match self.notes.try_recv() {
                Ok(Note::End(record)) => return Some(*record),
                Ok(Note::Events { raw, .. }) => self.raw.extend(raw),
                Ok(Note::Begin(_)) => {}
                Err(TryRecvError::Disconnected) => return None,
                Err(TryRecvError::Empty) => tokio::time::sleep(Duration::from_millis(1)).await,
            }
            assert!(since.elapsed() < Duration::from_secs(5), "no record came");
        }
    }

    async fn record(&mut self) -> Record {
        self.next().await.unwrap()
    }
}

fn chat(relay: SocketAddr) -> Request<Full<Bytes>> {
    Request::post(format!("http://{relay}/v1/chat/completions"))
        .header("authorization", "Bearer sk-secret-key")
        .body(Full::from(
            r#"{"model":"m","stream":true,"messages":[{"role":"user","content":"secret-prompt 12"}]}"#,
        ))
        .unwrap()
}

async fn send(request: Request<Full<Bytes>>) -> Response<Bytes> {
    let client = Client::builder(TokioExecutor::new()).build_http();
    let (head, body) = client.request(request).await.unwrap().into_parts();
    Response::from_parts(head, body.collect().await.unwrap().to_bytes())
}

/// Sends one chat request through a relay to `script` and compares what came with what was sent.
async fn passes(script: &Script, address: SocketAddr, options: &Options, scheme: &str) -> Record {
    let host = if scheme == "https" { "localhost".to_owned() } else { address.ip().to_string() };
    let to = format!("{scheme}://{host}:{}", address.port());
    let mut relay = Relay::start(&to, options, None).await;
    let response = send(chat(relay.address)).await;
    assert_eq!(response.status(), StatusCode::OK);
    for (name, value) in &script.headers {
        assert_eq!(response.headers()[*name], *value);
    }
    assert!(*response.body() == script.body(), "the body was changed: {script:?}");
    let record = relay.record().await;
    let raw: Vec<u8> = relay.raw.iter().flat_map(|piece| piece.bytes.to_vec()).collect();
    assert!(raw == script.body(), "the copy differs: {script:?}");
    record
}

fn check_events(record: &Record, attribution: Attribution) {
    let summary = &record.summary;
    assert_eq!(summary.outcome, Outcome::Completed, "{summary:?}");
    assert_eq!(summary.attribution, attribution);
    assert_eq!(summary.model_served.as_deref(), Some("m-1"));
    assert_eq!((summary.model_requested.as_deref(), summary.streamed), (Some("m"), Some(true)));
    assert_eq!(summary.request_ids["x-request-id"], "req-1");
    assert!(summary.t_headers <= summary.t_first_byte && summary.t_first_byte <= summary.t_end);
    assert!(summary.prompt_numeric_share.unwrap() > 0.0 && summary.caller_hash.is_some());
    let count = |kind| record.deltas.iter().filter(|delta| delta.kind == kind).count();
    assert_eq!(
        (count(Kind::Comment), count(Kind::Reasoning), count(Kind::Text), count(Kind::Done)),
        (1, 20, 1, 1)
    );
    assert!(record.deltas.iter().all(|delta| delta.t.is_some()));
    let firsts: Vec<_> = record.deltas.iter().map(|delta| delta.first_read.unwrap()).collect();
    assert!(firsts.is_sorted() && firsts[0] < firsts[20], "{firsts:?}");
    assert!(record.reads.iter().all(|read| Some(read.conn_id) == summary.conn_id && read.bytes > 0));
    let drained = record.reads.iter().filter(|read| read.drained).count();
    assert!(drained >= 20, "paced events empty the socket: {:?}", record.reads);
    assert!(record.reads.iter().all(|read| read.idle == Some(sseismo_trace::Micros(0))));
    if cfg!(target_os = "linux") {
        let mut lags: Vec<_> = record.reads.iter().filter_map(|read| read.kernel_lag).collect();
        lags.sort_unstable();
        assert!(lags.len() >= 20 && lags[lags.len() / 2].0 < 50_000, "{lags:?}");
    }
    let last = *firsts.last().unwrap();
    assert!(record.reads.iter().any(|read| read.read_id == firsts[0]));
    assert!(record.reads.iter().any(|read| read.read_id == last));
}

#[tokio::test]
async fn every_framing_passes_unchanged_over_http1() {
    for framing in [Framing::Length, Framing::Chunked, Framing::Close] {
        for script in [Script::events(framing, PAUSE), Script::gzip(framing, PAUSE)] {
            let (address, _) = http1(script.clone(), None).await;
            let record = passes(&script, address, &Options::default(), "http").await;
            check_events(&record, Attribution::Exact);
            assert_eq!(record.summary.tls, Some(false));
        }
        let script = Script::binary(framing, 3_000_000);
        let (address, _) = http1(script.clone(), None).await;
        passes(&script, address, &Options::default(), "http").await;
    }
}

#[tokio::test]
async fn every_framing_passes_unchanged_over_tls() {
    let certificate = Certificate::new();
    let options = Options { extra_roots: vec![certificate.der.clone()], ..Options::default() };
    for framing in [Framing::Length, Framing::Chunked, Framing::Close] {
        let script = Script::events(framing, PAUSE);
        let (address, _) = http1(script.clone(), Some(&certificate)).await;
        let record = passes(&script, address, &options, "https").await;
        check_events(&record, Attribution::Exact);
        assert_eq!((record.summary.tls, record.summary.http_version.as_deref()), (Some(true), Some("1.1")));
    }
}

#[tokio::test]
async fn http2_passes_unchanged_with_prior_knowledge_and_over_tls() {
    let certificate = Certificate::new();
    let tls = Options { extra_roots: vec![certificate.der.clone()], ..Options::default() };
    let plain = Options { http2_prior_knowledge: true, ..Options::default() };
    for script in [
        Script::events(Framing::Length, PAUSE),
        Script::events(Framing::Chunked, PAUSE),
        Script::gzip(Framing::Chunked, PAUSE),
    ] {
        let (address, seen) = http2(script.clone(), None).await;
        let record = passes(&script, address, &plain, "http").await;
        check_events(&record, Attribution::Frame);
        assert!(seen.all()[0].contains("HTTP/2"), "{seen:?}");
        let (address, _) = http2(script.clone(), Some(&certificate)).await;
        let record = passes(&script, address, &tls, "https").await;
        check_events(&record, Attribution::Frame);
        assert_eq!((record.summary.tls, record.summary.http_version.as_deref()), (Some(true), Some("2")));
    }
    let script = Script::binary(Framing::Chunked, 3_000_000);
    let (address, _) = http2(script.clone(), Some(&certificate)).await;
    passes(&script, address, &tls, "https").await;
}

#[tokio::test]
async fn the_request_passes_with_its_own_headers_and_the_hop_ends() {
    let script = Script::binary(Framing::Length, 10);
    let (address, seen) = http1(script, None).await;
    let relay = Relay::to(address).await;
    let mut client = TcpStream::connect(relay.address).await.unwrap();
    let request = b"PUT /odd//path?q=%20 HTTP/1.1\r\nHost: example\r\nX-MiXed: Value\r\nAuthorization: Bearer k\r\n\
        Connection: keep-alive, X-Hop\r\nX-Hop: 1\r\nTransfer-Encoding: chunked\r\n\r\n3\r\nabc\r\n2\r\nde\r\n0\r\n\r\n";
    client.write_all(request).await.unwrap();
    let mut answer = vec![0; 16];
    client.read_exact(&mut answer).await.unwrap();
    assert_eq!(answer, b"HTTP/1.1 200 Fin"); // the upstream's own reason, too
    let sent = seen.all().remove(0);
    assert!(sent.starts_with("PUT /odd//path?q=%20 HTTP/1.1\r\n"), "{sent}");
    assert!(
        sent.contains("\r\nX-MiXed: Value\r\n") && sent.contains("\r\nAuthorization: Bearer k\r\n"),
        "{sent}"
    );
    assert!(sent.to_ascii_lowercase().contains(&format!("\r\nhost: {address}\r\n")), "{sent}");
    assert!(!sent.contains("X-Hop") && !sent.contains("example"), "{sent}");
    assert!(sent.contains("abc") && sent.contains("de"), "{sent}");
}

#[tokio::test]
async fn connections_are_reused_and_head_requests_do_not_confuse_the_shadow() {
    let script = Script::events(Framing::Length, Duration::ZERO);
    let (address, _) = http1(script.clone(), None).await;
    let mut relay = Relay::to(address).await;
    for round in 0..3 {
        let mut head = chat(relay.address);
        *head.method_mut() = hyper::Method::HEAD;
        *head.body_mut() = Full::default();
        let answer = send(head).await;
        assert_eq!(answer.headers()["content-length"], script.body().len().to_string());
        let headed = relay.record().await;
        assert_eq!(*send(chat(relay.address)).await.body(), script.body());
        let record = relay.record().await;
        assert_eq!(record.summary.attribution, Attribution::Exact);
        assert_eq!(headed.summary.conn_id, record.summary.conn_id);
        assert_eq!((headed.summary.conn_reused, record.summary.conn_reused), (Some(round > 0), Some(true)));
        let read = record.deltas[0].first_read.unwrap();
        assert!(record.reads.first().unwrap().read_id <= read, "{:?}", record.reads);
    }
}

async fn until_gone(seen: &Seen) -> Duration {
    let since = Instant::now();
    while !seen.all().contains(&"gone".to_owned()) {
        assert!(since.elapsed() < Duration::from_secs(5), "the upstream was never cancelled");
        tokio::time::sleep(Duration::from_millis(1)).await;
    }
    since.elapsed()
}

/// Reads a stream's first bytes, leaves, and says how long the upstream took to notice.
async fn leave(relay: &mut Relay, seen: &Seen) -> Duration {
    let mut client = TcpStream::connect(relay.address).await.unwrap();
    client
        .write_all(b"POST /v1/chat/completions HTTP/1.1\r\nhost: x\r\ncontent-length: 0\r\n\r\n")
        .await
        .unwrap();
    let mut buffer = [0; 200];
    client.read_exact(&mut buffer).await.unwrap();
    drop(client);
    let took = until_gone(seen).await;
    assert_eq!(relay.record().await.summary.outcome, Outcome::ClientGone);
    took
}

#[tokio::test]
async fn when_the_client_leaves_the_upstream_is_cancelled_at_once() {
    // The pauses are long: it is not the next event that makes the relay notice.
    let script = Script::events(Framing::Chunked, Duration::from_secs(2));
    let (address, seen) = http1(script.clone(), None).await;
    let took = leave(&mut Relay::to(address).await, &seen).await;
    assert!(took < Duration::from_millis(100), "{took:?}");
    let (address, seen) = http2(script, None).await;
    let options = Options { http2_prior_knowledge: true, ..Options::default() };
    let mut relay = Relay::start(&format!("http://{address}"), &options, None).await;
    let took = leave(&mut relay, &seen).await;
    assert!(took < Duration::from_millis(100), "{took:?}");
}

#[tokio::test]
async fn websockets_are_answered_426_and_nothing_reaches_the_upstream() {
    let (address, seen) = http1(Script::binary(Framing::Length, 1), None).await;
    let relay = Relay::to(address).await;
    let mut client = TcpStream::connect(relay.address).await.unwrap();
    let request = b"GET /v1/responses HTTP/1.1\r\nhost: x\r\nconnection: Upgrade\r\nupgrade: websocket\r\n\
        sec-websocket-key: x\r\nsec-websocket-version: 13\r\n\r\n";
    client.write_all(request).await.unwrap();
    let mut answer = [0; 12];
    client.read_exact(&mut answer).await.unwrap();
    assert_eq!(&answer, b"HTTP/1.1 426");
    assert!(seen.all().is_empty());
}

#[tokio::test]
async fn with_a_token_only_its_bearers_pass_and_the_token_stays_here() {
    let (address, seen) = http1(Script::binary(Framing::Length, 1), None).await;
    let relay = Relay::start(&format!("http://{address}"), &Options::default(), Some("hush")).await;
    assert_eq!(send(chat(relay.address)).await.status(), StatusCode::UNAUTHORIZED);
    let mut request = chat(relay.address);
    request.headers_mut().insert("x-sseismo-token", "hush".parse().unwrap());
    request.headers_mut().insert("proxy-authorization", "Bearer hush".parse().unwrap());
    assert_eq!(send(request).await.status(), StatusCode::OK);
    assert_eq!(seen.all().len(), 1);
    assert!(!seen.all()[0].contains("hush"));
}

#[tokio::test]
async fn an_upstream_that_is_not_there_is_a_502_and_a_failed_record() {
    let free = TcpListener::bind("127.0.0.1:0").await.unwrap().local_addr().unwrap();
    let mut relay = Relay::to(free).await;
    let response = send(chat(relay.address)).await;
    assert_eq!(response.status(), StatusCode::BAD_GATEWAY);
    assert!(!String::from_utf8_lossy(response.body()).contains("secret"));
    let record = relay.record().await;
    assert_eq!((record.summary.outcome, record.summary.status), (Outcome::Failed, None));
    assert_eq!(record.summary.model_requested, None, "nothing of the body had been sent");
}

#[tokio::test]
async fn open_streams_are_finished_before_the_relay_ends() {
    let script = Script::events(Framing::Chunked, Duration::from_millis(20));
    let (address, seen) = http1(script.clone(), None).await;
    let mut relay = Relay::to(address).await;
    let open = tokio::spawn(send(chat(relay.address)));
    while seen.all().is_empty() {
        tokio::time::sleep(Duration::from_millis(1)).await;
    }
    relay.stop.send(true).unwrap();
    assert_eq!(*open.await.unwrap().body(), script.body());
    assert_eq!(relay.record().await.summary.outcome, Outcome::Completed);
    assert_eq!(
        (&mut relay.served).await.unwrap().unwrap(),
        Served { requests: 1, cut_off: 0, turned_away: 0 }
    );
    assert!(relay.next().await.is_none(), "the queue ends with the relay");
    assert!(TcpStream::connect(relay.address).await.is_err());
}

#[tokio::test]
async fn a_stream_that_breaks_off_breaks_off_for_the_client_too() {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let mut relay = Relay::to(listener.local_addr().unwrap()).await;
    tokio::spawn(async move {
        let (mut stream, _) = listener.accept().await.unwrap();
        let _ = stream.read(&mut [0; 4096]).await;
        let head =
            b"HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\ntransfer-encoding: chunked\r\n\r\n";
        stream.write_all(head).await.unwrap();
        stream.write_all(b"10\r\ndata: {\"a\":1}\n\n\r\n").await.unwrap();
    });
    let client = Client::builder(TokioExecutor::new()).build_http();
    let response = client.request(chat(relay.address)).await.unwrap();
    assert!(response.into_body().collect().await.is_err());
    assert_eq!(relay.record().await.summary.outcome, Outcome::Truncated);
}

/// Chunked answers in one piece with their heads, byte by byte and with trailers: the body passes, each event
/// is tied to its read, and the connection is used again. What is no chunk breaks the answer off.
#[tokio::test]
async fn chunked_answers_in_any_pieces_leave_the_connection_sound() {
    const HEAD: &str =
        "HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\ntransfer-encoding: chunked\r\n\r\n";
    const EVENT: &str = "data: {\"choices\":[{\"delta\":{\"reasoning_content\":\"w\"}}]}\n\n";
    let chunk = |data: &str| format!("{:x};x=1\r\n{data}\r\n", data.len());
    let good = [HEAD, &chunk(EVENT), &chunk(&EVENT[..5]), &chunk(&EVENT[5..])].concat();
    let answers = [
        (format!("{good}0\r\n\r\n"), usize::MAX),
        (format!("{good}0\r\nx-sum: 1\r\n\r\n"), usize::MAX),
        (format!("{good}0\r\n\r\n"), 1),
        (format!("{good}0\r\nx-sum: 1\r\n\r\n"), 7),
        (format!("{good}zz\r\n"), usize::MAX),
    ];
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let mut relay = Relay::to(listener.local_addr().unwrap()).await;
    let sent = answers.clone();
    tokio::spawn(async move {
        let (mut stream, _) = listener.accept().await.unwrap();
        stream.set_nodelay(true).unwrap();
        for (answer, size) in sent {
            assert!(stream.read(&mut [0; 4096]).await.unwrap() > 0);
            for piece in answer.as_bytes().chunks(size) {
                stream.write_all(piece).await.unwrap();
                tokio::task::yield_now().await;
            }
        }
        let _ = stream.read(&mut [0; 4096]).await;
    });
    let mut connection = None;
    for _ in &answers[..4] {
        assert_eq!(*send(chat(relay.address)).await.body(), [EVENT, EVENT].concat());
        let Record { summary, deltas, reads, .. } = relay.record().await;
        assert_eq!((summary.attribution, deltas.len()), (Attribution::Exact, 2));
        let brought = |read| reads.iter().any(|known| Some(known.read_id) == read);
        assert!(deltas.iter().all(|delta| brought(delta.first_read)), "{deltas:?} {reads:?}");
        assert_eq!(
            (summary.conn_reused, summary.conn_id),
            (Some(connection.is_some()), connection.or(summary.conn_id))
        );
        connection = summary.conn_id;
    }
    let client = Client::builder(TokioExecutor::new()).build_http();
    let response = client.request(chat(relay.address)).await.unwrap();
    assert!(response.into_body().collect().await.is_err());
    let Record { summary, deltas, .. } = relay.record().await;
    assert_eq!((summary.outcome, deltas.len()), (Outcome::Truncated, 2));
}

/// Every file below `folder`, as bytes.
fn files(folder: &std::path::Path) -> Vec<(std::path::PathBuf, Vec<u8>)> {
    let mut all = Vec::new();
    for entry in std::fs::read_dir(folder).unwrap() {
        let path = entry.unwrap().path();
        if path.is_dir() {
            all.extend(files(&path));
        } else {
            let bytes = std::fs::read(&path).unwrap();
            all.push((path, bytes));
        }
    }
    all
}

/// What must never be on disk: key, prompt, answer, account, session, cookie, query.
const SECRETS: [&str; 7] = [
    "sk-secret-key",
    "secret-prompt",
    "secret-answer",
    "secret-account",
    "secret-session",
    "secret-cookie",
    "secret-query",
];

fn assert_no_secret(what: &str, bytes: &[u8]) {
    for secret in SECRETS {
        let found = bytes.windows(secret.len()).any(|window| window == secret.as_bytes());
        assert!(!found, "`{secret}` was written to {what}");
    }
}

/// Sends requests full of secrets through a recording relay; while it runs and after its end nothing of
/// them is on disk. Parquet is compressed, so every row is read back and searched, too.
#[tokio::test]
async fn nothing_private_is_ever_written() {
    use sseismo_capture::recorder::Options as Record;
    use sseismo_capture::tap;

    let folder = tempfile::tempdir().unwrap();
    let (recorder, _) = tap::open(folder.path(), Record::default()).unwrap();
    let hasher = recorder.hasher().clone();
    let hash = std::sync::Arc::new(move |domain: &str, value: &[u8]| hasher.hash(domain, value));
    let (observer, notes) = Observer::new(hash, Keep::default());
    let recording = std::thread::spawn(move || tap::record(&notes, recorder, drop, |_| {}));

    let mut script = Script::events(Framing::Chunked, Duration::from_millis(40));
    script.headers.extend([("set-cookie", "secret-cookie"), ("openai-organization", "secret-account")]);
    let (address, _) = http1(script.clone(), None).await;
    let relay = Observe::new(
        Tap::new(&Options::default()).unwrap(),
        observer,
        Upstream::parse(&format!("http://{address}")).unwrap(),
        None,
    );
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let relay_address = listener.local_addr().unwrap();
    let (stop, stopping) = watch::channel(false);
    let served = tokio::spawn(serve(listener, relay, stopping, Duration::from_secs(5)));

    let mut request = chat(relay_address);
    *request.uri_mut() =
        format!("http://{relay_address}/v1/chat/completions?key=secret-query").parse().unwrap();
    for (name, value) in [
        ("chatgpt-account-id", "secret-account"),
        ("session-id", "secret-session"),
        ("x-codex-turn-metadata", "{\"turn_id\":\"secret-session\"}"),
        ("cookie", "secret-cookie"),
    ] {
        request.headers_mut().insert(name, value.parse().unwrap());
    }
    let open = tokio::spawn(send(request));
    tokio::time::sleep(Duration::from_millis(800)).await; // the stream is open and its journal is flushed
    let running = files(folder.path());
    assert!(running.iter().map(|(_, bytes)| bytes.len()).sum::<usize>() > 500, "{running:?}");
    for (path, bytes) in &running {
        assert_no_secret(&path.display().to_string(), bytes);
    }
    assert_eq!(*open.await.unwrap().body(), script.body());
    stop.send(true).unwrap();
    served.await.unwrap().unwrap();
    let status = recording.join().unwrap();
    assert_eq!((status.flushed.streams, status.flushed.events, status.trouble), (1, 24, None));

    for (path, bytes) in files(folder.path()) {
        assert_no_secret(&path.display().to_string(), &bytes);
    }
    let dataset = sseismo_trace::parquet::Dataset::open(folder.path()).unwrap();
    let mut rows = Vec::new();
    let report = dataset.streams(|stream| {
        assert_eq!(stream.deltas.len(), 24);
        assert!(stream.summary.caller_hash.is_some() && stream.summary.session_key.is_some());
        assert!(stream.reads.len() >= 20, "{} reads", stream.reads.len());
        rows.push(format!("{stream:?}"));
        std::ops::ControlFlow::Continue(())
    });
    assert_eq!((report.streams, report.events), (1, 24));
    let texts = dataset.texts(|text| {
        rows.push(text.text);
        std::ops::ControlFlow::Continue(())
    });
    assert_eq!(texts.parts, 0, "no texts were asked for");
    assert_no_secret("the dataset's rows", rows.concat().as_bytes());
}

/// Asked for, the answers' texts come back from the dataset; the request's text is stored in no case.
#[tokio::test]
async fn texts_come_back_when_they_are_kept() {
    use sseismo_capture::recorder::Options as Record;
    use sseismo_capture::tap;

    let folder = tempfile::tempdir().unwrap();
    let (recorder, _) = tap::open(folder.path(), Record { keep_text: true, ..Record::default() }).unwrap();
    let hash = std::sync::Arc::new(|_: &str, _: &[u8]| 0);
    let (observer, notes) = Observer::new(hash, Keep { text: true, ..Keep::default() });
    let recording = std::thread::spawn(move || tap::record(&notes, recorder, drop, |_| {}));
    let script = Script::events(Framing::Chunked, PAUSE);
    let (address, _) = http1(script.clone(), None).await;
    let upstream = Upstream::parse(&format!("http://{address}")).unwrap();
    let relay = Observe::new(Tap::new(&Options::default()).unwrap(), observer, upstream, None);
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let relay_address = listener.local_addr().unwrap();
    let (stop, stopping) = watch::channel(false);
    let served = tokio::spawn(serve(listener, relay, stopping, Duration::from_secs(5)));
    assert_eq!(*send(chat(relay_address)).await.body(), script.body());
    stop.send(true).unwrap();
    served.await.unwrap().unwrap();
    assert_eq!(recording.join().unwrap().trouble, None);

    let dataset = sseismo_trace::parquet::Dataset::open(folder.path()).unwrap();
    let mut events = std::collections::BTreeMap::new();
    dataset.streams(|stream| {
        let content = stream.deltas.iter().filter(|delta| delta.is_content());
        events.extend(content.map(|delta| (delta.seq, (delta.kind, delta.chars as usize))));
        std::ops::ControlFlow::Continue(())
    });
    let (mut texts, mut all) = (std::collections::BTreeMap::new(), String::new());
    dataset.texts(|text| {
        all.push_str(&text.text);
        texts.insert(text.seq, (text.kind, text.text.chars().count()));
        std::ops::ControlFlow::Continue(())
    });
    assert!(!events.is_empty());
    assert_eq!(texts, events);
    assert!(all.contains("secret-answer") && !all.contains("secret-prompt"), "{all}");
}
