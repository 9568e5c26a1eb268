use std::path::Path;

use bytes::Bytes;
use http_body_util::{BodyExt, Full};
use hyper_util::client::legacy::Client;
use hyper_util::client::legacy::connect::HttpConnector;
use tokio::sync::oneshot;

use super::*;

struct Running {
    base: String,
    stop: oneshot::Sender<()>,
    server: tokio::task::JoinHandle<Lateness>,
}

async fn start(text: &str) -> Running {
    let scenario = Scenario::parse(text, Path::new(".")).unwrap();
    let server = Server::bind(&scenario, "127.0.0.1:0".parse().unwrap(), 1_767_225_600, None).await.unwrap();
    let base = format!("http://{}", server.address().unwrap());
    let (stop, stopped) = oneshot::channel();
    let server = tokio::spawn(server.run(async { stopped.await.unwrap_or(()) }));
    Running { base, stop, server }
}

fn client() -> Client<HttpConnector, Full<Bytes>> {
    Client::builder(TokioExecutor::new()).build_http()
}

async fn post(
    client: &Client<HttpConnector, Full<Bytes>>,
    base: &str,
    path: &str,
    body: &str,
) -> Response<Incoming> {
    let request = Request::post(format!("{base}{path}")).body(Full::from(body.to_owned())).unwrap();
    client.request(request).await.unwrap()
}

const SHORT: &str = "[answer]\nreasoning = { median = 60, sigma = 0.001 }\noutput = { median = 12, sigma = 0.001 }\n\
                     first-token = '30ms'\n";
const STREAM: &str =
    r#"{"model":"m","stream":true,"input":"hi","messages":[{"role":"user","content":"hi"}]}"#;

#[tokio::test]
async fn three_apis_stream_to_their_end() {
    let running = start(&format!("{SHORT}[[behaviour]]\nkind = 'steady'\ngap = '5ms'")).await;
    let client = client();
    for (path, end) in [
        ("/v1/responses", "response.completed"),
        ("/v1/chat/completions", "data: [DONE]"),
        ("/v1/messages", "message_stop"),
    ] {
        let response = post(&client, &running.base, path, STREAM).await;
        assert_eq!(response.status(), 200);
        let body = response.into_body().collect().await.unwrap().to_bytes();
        let body = String::from_utf8(body.to_vec()).unwrap();
        assert!(body.contains(end), "{path}: {body}");
        let whole = post(&client, &running.base, path, &STREAM.replace("true", "false")).await;
        let whole = whole.into_body().collect().await.unwrap().to_bytes();
        assert!(serde_json::from_slice::<serde_json::Value>(&whole).is_ok());
    }
    running.stop.send(()).unwrap();
    assert!(running.server.await.unwrap().writes() > 60);
}

#[tokio::test]
async fn http2_with_prior_knowledge_is_served_too() {
    let running = start(SHORT).await;
    let client = Client::builder(TokioExecutor::new()).http2_only(true).build_http::<Full<Bytes>>();
    let response = post(&client, &running.base, "/v1/responses", STREAM).await;
    assert_eq!(response.version(), Version::HTTP_2);
    assert!(response.into_body().collect().await.is_ok());
}

#[tokio::test]
async fn cuts_and_resets_are_errors_and_a_clean_end_is_not() {
    for (kind, clean) in [("cut", false), ("reset", false), ("clean-eof", true)] {
        let running = start(&format!("{SHORT}[[behaviour]]\nkind = '{kind}'\nafter = 2")).await;
        let response = post(&client(), &running.base, "/v1/responses", STREAM).await;
        let end = response.into_body().collect().await;
        assert_eq!(end.is_ok(), clean, "{kind}");
        if kind == "reset" {
            let text = format!("{:?}", end.unwrap_err());
            assert!(text.contains("ConnectionReset"), "{text}");
        }
    }
}

#[tokio::test]
async fn refusals_and_bad_requests_are_answered_at_once() {
    let running = start(&format!("{SHORT}[[behaviour]]\nkind = 'quota'\nlimit = 0")).await;
    let client = client();
    let refused = post(&client, &running.base, "/v1/chat/completions", STREAM).await;
    assert_eq!((refused.status().as_u16(), &refused.headers()["retry-after"]), (429, &"61".parse().unwrap()));
    assert_eq!(post(&client, &running.base, "/v1/responses", "{").await.status(), 400);
    assert_eq!(post(&client, &running.base, "/v1/nothing", "{}").await.status(), 404);
    let health = client.get(format!("{}/health", running.base).parse().unwrap()).await.unwrap();
    assert_eq!(health.status(), 200);
}

#[tokio::test]
async fn only_loopback_is_listened_on() {
    let scenario = Scenario::parse("", Path::new(".")).unwrap();
    let error = Server::bind(&scenario, "0.0.0.0:0".parse().unwrap(), 0, None).await.unwrap_err();
    assert!(error.to_string().contains("not a loopback address"), "{error}");
}

/// Gaps that a client measures are those of the plan, to a few milliseconds; lateness does not add up.
#[tokio::test]
async fn a_client_sees_the_planned_gaps() {
    let running = start(&format!("{SHORT}[[behaviour]]\nkind = 'steady'\ngap = '20ms'\njitter = 0")).await;
    let response = post(&client(), &running.base, "/v1/chat/completions", STREAM).await;
    let mut body = response.into_body();
    let mut times = Vec::new();
    while let Some(frame) = body.frame().await {
        if frame.unwrap().into_data().is_ok_and(|data| data.windows(9).any(|w| w == b"reasoning")) {
            times.push(Instant::now());
        }
    }
    assert_eq!(times.len(), 20);
    let span = times[19].duration_since(times[0]).as_secs_f64();
    assert!((span - 19.0 * 0.02).abs() < 0.05, "{span}");
}

/// Reads one stream to its end over a bare socket, and throws it away.
async fn drain(address: SocketAddr) -> u64 {
    use tokio::io::{AsyncReadExt, AsyncWriteExt};
    let mut socket = tokio::net::TcpStream::connect(address).await.unwrap();
    let head = format!(
        "POST /v1/chat/completions HTTP/1.1\r\nhost: localhost\r\nconnection: close\r\ncontent-length: {}\r\n\r\n",
        STREAM.len()
    );
    socket.write_all(format!("{head}{STREAM}").as_bytes()).await.unwrap();
    let (mut buffer, mut bytes) = (vec![0; 16_384], 0);
    loop {
        match socket.read(&mut buffer).await.unwrap() {
            0 => return bytes,
            n => bytes += n as u64,
        }
    }
}

/// How late writes are with clients in the same process: 200 and 1,000 streams of 20 frames a second.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
#[ignore = "takes 25 s and wants a quiet machine: cargo test --release -p sseismo-simulator --features serve \
            -- --ignored --nocapture pacing"]
async fn pacing_of_many_streams() {
    for streams in [200, 1_000] {
        let text = "[answer]\nreasoning = { median = 600, sigma = 0.001 }\nfirst-token-sigma = 0.5";
        let scenario = Scenario::parse(text, Path::new(".")).unwrap();
        let server = Server::bind(&scenario, "127.0.0.1:0".parse().unwrap(), 0, None).await.unwrap();
        let address = server.address().unwrap();
        let (stop, stopped) = oneshot::channel();
        let server = tokio::spawn(server.run(async { stopped.await.unwrap_or(()) }));
        let clients: Vec<_> = (0..streams).map(|_| tokio::spawn(drain(address))).collect();
        for client in clients {
            assert!(client.await.unwrap() > 10_000);
        }
        stop.send(()).unwrap();
        let late = server.await.unwrap();
        let line = format!(
            "{streams} streams, {} writes: late by p50 {} µs, p99 {} µs, max {} µs\n",
            late.writes(),
            late.quantile(0.5),
            late.quantile(0.99),
            late.max_us()
        );
        io::stderr().write_all(line.as_bytes()).unwrap();
        assert!(late.quantile(0.5) < 5_000, "{line}");
    }
}
