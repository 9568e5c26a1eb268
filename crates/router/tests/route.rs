//! The routing relay over real sockets on loopback: who answers under each fault, what passes unchanged, what
//! never crosses, and when things end.

#![expect(
    clippy::unwrap_used,
    clippy::disallowed_methods,
    clippy::panic,
    reason = "a test stops at what it does not expect, and its bounds are in real time"
)]

#[path = "route/connections.rs"]
mod connections;
#[path = "route/lab.rs"]
mod lab;
#[path = "route/matrix.rs"]
mod matrix;
#[path = "route/state.rs"]
mod state;
#[path = "observe/upstream.rs"]
#[expect(dead_code, reason = "shared with the tests of the observing relay")]
mod upstream;

use std::time::{Duration, Instant};

use http_body_util::BodyExt;
use hyper::StatusCode;
use lab::{ALL, CHAT, Relay, Sim, a_then_b, ask, body, nobody, open, request, send};
use sseismo_router::serve::Limits;
use sseismo_trace::Outcome;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use upstream::{Framing, Script, http1};

/// Requests of a crowd.
const CROWD: usize = 200;

const PATHS: [&str; 3] = ["/v1/responses", CHAT, "/v1/messages"];

fn fault(kind: &str, more: &str) -> String {
    format!("[[behaviour]]\nkind = \"{kind}\"\n{more}\n")
}

/// Whether a body ends as its API ends an answer.
fn is_complete(path: &str, body: &str) -> bool {
    body.contains(match path {
        "/v1/responses" => "response.completed",
        CHAT => "data: [DONE]",
        _ => "message_stop",
    })
}

/// The faults that show before any content: the fallback answers, in all three APIs.
#[tokio::test]
async fn faults_before_content_are_answered_by_the_fallback() {
    let silent = |at| fault("silence", &format!("at = \"{at}\"\nlasts = \"6s\""));
    for (faults, reason) in [
        (fault("http-error", "status = 500"), "status-500"),
        (fault("http-error", "status = 529"), "overloaded"),
        (fault("quota", "of = \"requests\"\nlimit = 0"), "rate-limit"),
        (fault("quota", "of = \"credit\"\nlimit = 0\nretry-after = false"), "insufficient-quota"),
        (silent("before-headers"), "no-headers"),
        (silent("after-headers"), "no-content"),
        (fault("error-event", "after = 0"), "error-frame"),
        (fault("clean-eof", "after = 0"), "cut"),
        (fault("cut", "after = 0"), "cut"),
        (fault("reset", "after = 0"), "cut|connect"), // it may destroy the head on its way
    ] {
        let (a, b) = (Sim::start(&faults).await, Sim::start("").await);
        let limit = "first_content_timeout = \"300ms\"";
        let relay = Relay::start(&a_then_b(a.address, b.address, limit, "")).await;
        for path in PATHS {
            let since = Instant::now();
            let got = ask(&relay, path).await;
            assert_eq!(got.head.status, StatusCode::OK, "{reason} {path}: {}", got.text);
            assert_eq!(got.header("x-sseismo-served-by"), "b", "{reason} {path}");
            assert!(got.whole && is_complete(path, &got.text), "{reason} {path}: {}", got.text);
            assert!(since.elapsed() < Duration::from_secs(2), "{reason} {path}: {:?}", since.elapsed());
        }
        relay.logged().await;
        let first = relay.access.latest(3).pop().unwrap();
        let outcomes: Vec<_> = first.attempts.iter().map(|tried| tried.outcome.as_str()).collect();
        assert!(reason.split('|').any(|reason| outcomes == [reason, "good"]), "{reason}: {first:?}");
        assert_eq!((first.attempt, first.outcome), (2, "completed"));
        let records = relay.records(2).await;
        let mut attempts: Vec<_> = records.iter().map(|record| record.summary.attempt).collect();
        attempts.sort_unstable();
        assert_eq!(attempts, [Some(1), Some(2)]);
        let second = records.iter().find(|record| record.summary.attempt == Some(2)).unwrap();
        let told = second.summary.fallback_reason.as_deref().unwrap();
        assert!(reason.split('|').any(|reason| told == reason), "{reason}: {told}");
        assert_eq!(second.summary.route.as_deref(), Some("m"));
        assert!(records[0].summary.turn_key.is_some());
        assert_eq!(records[0].summary.turn_key, records[1].summary.turn_key);
    }
}

#[tokio::test]
async fn a_dead_address_and_an_empty_answer_are_answered_by_the_fallback() {
    let b = Sim::start("").await;
    let relay = Relay::start(&a_then_b(nobody().await, b.address, "", "")).await;
    let got = ask(&relay, CHAT).await;
    assert_eq!((got.header("x-sseismo-served-by"), got.header("x-sseismo-attempt")), ("b", "2"));
    assert_eq!(got.header("x-sseismo-reason"), "next-tier");

    let mut empty = Script::events(Framing::Length, Duration::ZERO);
    empty.pieces.clear();
    let (a, _) = http1(empty, None).await;
    let relay = Relay::start(&a_then_b(a, b.address, "", "")).await;
    let got = ask(&relay, CHAT).await;
    assert_eq!(got.header("x-sseismo-served-by"), "b", "{}", got.text);
    assert!(is_complete(CHAT, &got.text));
}

/// What may have done something is not done again elsewhere; what generates is.
#[tokio::test]
async fn only_what_can_be_repeated_is_sent_to_another_upstream() {
    let refusing = async || {
        let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        tokio::spawn(async move {
            while let Ok((mut socket, _)) = listener.accept().await {
                let _ = socket.read(&mut [0; 4096]).await;
                let answer = b"HTTP/1.1 503 x\r\ncontent-length: 4\r\nconnection: close\r\n\r\nbusy";
                let _ = socket.write_all(answer).await;
            }
        });
        address
    };
    let relay = Relay::start(&a_then_b(refusing().await, refusing().await, "", "")).await;
    for (path, served_by) in [("/v1/batches", "a"), ("/v1/embeddings", "b")] {
        let got = send(request(relay.address, path, body(CHAT))).await;
        assert_eq!((got.head.status.as_u16(), got.text.as_str()), (503, "busy"), "{path}");
        assert_eq!(got.header("x-sseismo-served-by"), served_by, "{path}");
    }
}

/// Nobody is left: the client gets the last upstream's own words.
#[tokio::test]
async fn the_last_refusal_is_passed_on() {
    let (a, b) = (
        Sim::start(&fault("http-error", "status = 500")).await,
        Sim::start(&fault("http-error", "status = 503\nretry-after = \"7s\"")).await,
    );
    let relay = Relay::start(&a_then_b(a.address, b.address, "", "")).await;
    let got = ask(&relay, CHAT).await;
    assert_eq!((got.head.status.as_u16(), got.header("retry-after")), (503, "7"));
    assert!(got.text.contains("server_is_overloaded"), "{}", got.text);
    let bare = "of = \"requests\"\nlimit = 0\nretry-after = false";
    let (a, b) = (Sim::start(&fault("quota", bare)).await, Sim::start(&fault("quota", bare)).await);
    let relay = Relay::start(&a_then_b(a.address, b.address, "", "")).await;
    let got = ask(&relay, CHAT).await;
    assert_eq!(got.head.status.as_u16(), 429);
    assert_ne!(got.header("retry-after"), "", "Codex gives up at once on a bare 429");
    let a = Sim::start(&fault("http-error", "status = 400")).await;
    let b = Sim::start("").await;
    let relay = Relay::start(&a_then_b(a.address, b.address, "", "")).await;
    let got = ask(&relay, CHAT).await;
    assert_eq!((got.head.status.as_u16(), b.hits().len()), (400, 0), "the client's own mistake");
}

#[tokio::test]
async fn a_dead_primary_is_left_alone_and_taken_back_when_it_has_recovered() {
    let a = Sim::start(&fault("http-error", "status = 500\nuntil = \"1200ms\"")).await;
    let b = Sim::start("").await;
    let settings = "[breaker]\ncooldown = \"1s\"\nmax_cooldown = \"1s\"\n";
    let text = format!("{}{settings}", a_then_b(a.address, b.address, "", ""));
    let relay = Relay::start(&text).await;
    for _ in 0..8 {
        assert_eq!(ask(&relay, CHAT).await.header("x-sseismo-served-by"), "b");
    }
    assert!(a.hits().len() <= 3, "{} of 8 calls hit the dead primary", a.hits().len());
    tokio::time::sleep(Duration::from_millis(1_200)).await;
    ask(&relay, CHAT).await; // the probe
    for _ in 0..4 {
        assert_eq!(ask(&relay, CHAT).await.header("x-sseismo-served-by"), "a");
    }
}

/// After content nothing can be taken back: what comes is passed on, and a false end is none.
#[tokio::test]
async fn faults_after_content_reach_the_client_as_failures_and_never_as_an_end() {
    for (kind, whole, error) in [
        ("clean-eof", true, true),
        ("error-event", true, true),
        ("cut", false, false),
        ("reset", false, false),
    ] {
        let (a, b) = (Sim::start(&fault(kind, "after = 5")).await, Sim::start("").await);
        let relay = Relay::start(&a_then_b(a.address, b.address, "", "")).await;
        for path in PATHS {
            let got = ask(&relay, path).await;
            assert_eq!(got.header("x-sseismo-served-by"), "a", "{kind} {path}");
            assert!(!is_complete(path, &got.text), "{kind} {path}: {}", got.text);
            assert_eq!(got.whole, whole, "{kind} {path}");
            let told = ["event: error", "data: {\"error\"", "event: response.failed"];
            let told = told.iter().any(|words| got.text.contains(words));
            assert_eq!(told, error, "{kind} {path}: {}", got.text);
        }
        assert_eq!(b.hits().len(), 0, "{kind}");
        relay.logged().await;
        let last = relay.access.latest(1).remove(0);
        assert_eq!(last.outcome, if kind == "error-event" { "failed" } else { "truncated" }, "{kind}");
    }
}

/// What is no failure passes byte for byte: bad JSON in the middle, drops of a few bytes.
#[tokio::test]
async fn bytes_pass_unchanged() {
    for faults in [String::new(), fault("malformed", ""), fault("slow-drip", "bytes = 64\nevery = \"1ms\"")] {
        for path in PATHS {
            // Two upstreams of the same seed answer their first request with the same bytes.
            let (direct, a, b) = (Sim::start(&faults).await, Sim::start(&faults).await, Sim::start("").await);
            let relay = Relay::start(&a_then_b(a.address, b.address, "", "")).await;
            let expected = send(request(direct.address, path, body(path))).await;
            let got = ask(&relay, path).await;
            assert_eq!(got.text, expected.text, "{faults} {path}");
            assert_eq!(got.header("content-type"), expected.header("content-type"));
            assert_eq!(got.header("x-accel-buffering"), "no");
            assert!(!got.text.contains("\"usage\":{") || path != CHAT, "the client did not ask for it");
            relay.logged().await;
            let entry = relay.access.latest(1).remove(0);
            assert!(entry.reported.output.unwrap() > 0 && entry.first_content_ms.is_some(), "{entry:?}");
        }
    }
}

#[tokio::test]
async fn whole_answers_pass_unchanged_and_fall_over_when_they_break() {
    let plain = body(CHAT).replace("true", "false");
    let (direct, a) = (Sim::start("").await, Sim::start("").await);
    let relay = Relay::start(&a_then_b(a.address, nobody().await, "", "")).await;
    let expected = send(request(direct.address, CHAT, plain.clone())).await;
    let got = send(request(relay.address, CHAT, plain.clone())).await;
    assert_eq!((got.text, got.head.status), (expected.text, expected.head.status));
    let a = Sim::start(&fault("cut", "after = 2")).await;
    let b = Sim::start("").await;
    let relay = Relay::start(&a_then_b(a.address, b.address, "", "")).await;
    let got = send(request(relay.address, CHAT, plain)).await;
    assert!(got.head.status == StatusCode::OK && got.whole);
}

#[tokio::test]
async fn usage_that_the_client_asks_for_stays() {
    let (direct, a) = (Sim::start("").await, Sim::start("").await);
    let relay = Relay::start(&a_then_b(a.address, nobody().await, "", "")).await;
    let asking =
        body(CHAT).replace("\"stream\":true", "\"stream\":true,\"stream_options\":{\"include_usage\":true}");
    let expected = send(request(direct.address, CHAT, asking.clone())).await;
    let got = send(request(relay.address, CHAT, asking)).await;
    assert_eq!(got.text, expected.text);
    assert!(got.text.contains("\"usage\":{"));
}

#[tokio::test]
async fn a_client_that_leaves_takes_its_upstream_with_it() {
    let faults = [String::new(), fault("silence", "at = \"before-headers\"\nlasts = \"4s\"")];
    for (round, faults) in faults.iter().enumerate() {
        let a = Sim::paced("20ms", 900, faults).await;
        let relay = Relay::start(&a_then_b(a.address, nobody().await, "", "")).await;
        let left = if round == 0 {
            let mut response = open(request(relay.address, CHAT, body(CHAT))).await;
            for _ in 0..3 {
                response.body_mut().frame().await.unwrap().unwrap();
            }
            drop(response);
            Instant::now()
        } else {
            let asked = tokio::time::timeout(Duration::from_millis(300), ask(&relay, CHAT)).await;
            assert!(asked.is_err(), "it is silent");
            Instant::now()
        };
        relay.logged().await;
        let logged = left.elapsed();
        assert!(logged < Duration::from_millis(100), "the relay noticed after {logged:?}");
        assert_eq!(relay.access.latest(1)[0].outcome, "client-gone");
        assert_eq!(relay.records(1).await[0].summary.outcome, Outcome::ClientGone);
        if round == 0 {
            let hit = a.hit(0).await;
            assert_eq!(hit.line["client_left"], true, "{}", hit.line);
            let late = hit.at.saturating_duration_since(left);
            assert!(late < Duration::from_millis(100), "the upstream was left after {late:?}");
        }
    }
}

/// Each upstream gets the operator's key for it, and nothing of the caller's, before and after a failover.
#[tokio::test]
async fn no_credential_of_the_caller_reaches_an_upstream() {
    let mut refusing = Script::events(Framing::Length, Duration::ZERO);
    refusing.pieces = vec![b"data: {\"error\":{\"type\":\"server_error\"}}\n\n".to_vec()];
    let (a, seen_a) = http1(refusing, None).await;
    let (b, seen_b) = http1(Script::events(Framing::Chunked, Duration::ZERO), None).await;
    let folder = tempfile::tempdir().unwrap();
    let key = |name: &str| {
        let path = folder.path().join(name);
        std::fs::write(&path, format!("sk-ours-{name}\n")).unwrap();
        format!("{ALL}\nkeys = [\"file:{}\"]", path.display())
    };
    let text = format!(
        "{}{}[[route]]\nmodel = \"m\"\ntiers = [[\"a\"], [\"b\"]]\n",
        lab::upstream("a", a, &format!("{}\nkey_header = \"x-api-key\"", key("A"))),
        lab::upstream("b", b, &format!("{}\nmodels = {{ m = \"other-name\" }}", key("B")))
    );
    let relay = Relay::start(&text).await;
    let mut asked = request(relay.address, "/v1/chat/completions?key=caller-secret&beta=1", body(CHAT));
    for header in
        ["authorization", "x-api-key", "cookie", "openai-organization", "api-key", "x-sseismo-token"]
    {
        asked.headers_mut().insert(header, "caller-secret".parse().unwrap());
    }
    let got = send(asked).await;
    assert_eq!(got.header("x-sseismo-served-by"), "b", "{}", got.text);
    let (to_a, to_b) = (seen_a.all().remove(0), seen_b.all().remove(0));
    for sent in [&to_a, &to_b] {
        assert!(!sent.contains("caller-secret"), "{sent}");
        assert!(sent.starts_with("POST /v1/chat/completions?beta=1 HTTP/1.1"), "{sent}");
    }
    assert!(to_a.contains("x-api-key: sk-ours-A") && !to_a.contains("sk-ours-B"), "{to_a}");
    assert!(to_b.contains("authorization: Bearer sk-ours-B") && !to_b.contains("sk-ours-A"), "{to_b}");
    assert!(to_a.contains("\"model\":\"m\"") && to_b.contains("\"model\":\"other-name\""), "{to_b}");
}

#[tokio::test]
async fn compressed_requests_are_understood_and_go_on_as_they_came() {
    let (a, seen) = http1(Script::events(Framing::Chunked, Duration::ZERO), None).await;
    let relay = Relay::start(&a_then_b(a, nobody().await, "", "")).await;
    let compressed = zstd::bulk::compress(body("/v1/responses").as_bytes(), 3).unwrap();
    let size = compressed.len();
    let mut asked = request(relay.address, "/v1/responses", compressed);
    asked.headers_mut().insert("content-encoding", "zstd".parse().unwrap());
    let got = send(asked).await;
    assert_eq!((got.head.status, got.header("x-sseismo-served-by")), (StatusCode::OK, "a"), "{}", got.text);
    let sent = seen.all().remove(0);
    assert!(
        sent.contains("content-encoding: zstd") && sent.contains(&format!("content-length: {size}")),
        "{sent}"
    );
}

/// An upstream that cannot read the compression gets the same request plain. (The simulated one cannot.)
#[tokio::test]
async fn compression_that_an_upstream_cannot_read_is_undone() {
    let a = Sim::start("").await;
    let relay = Relay::start(&a_then_b(a.address, nobody().await, "", "")).await;
    let compressed = zstd::bulk::compress(body("/v1/responses").as_bytes(), 3).unwrap();
    let mut asked = request(relay.address, "/v1/responses", compressed);
    asked.headers_mut().insert("content-encoding", "zstd".parse().unwrap());
    let got = send(asked).await;
    assert_eq!((got.head.status, got.header("x-sseismo-attempt")), (StatusCode::OK, "1"), "{}", got.text);
    assert!(is_complete("/v1/responses", &got.text));
    // Both sendings are recorded, and both are understood.
    for record in relay.records(2).await {
        assert_eq!(record.summary.prompt_bytes, Some(body("/v1/responses").len() as u64));
    }
}

/// A crowd of requests of all kinds under random faults and departures: each leaves exactly one entry, each
/// attempt exactly one record, and nothing is left open.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn nothing_is_left_behind_by_a_crowd() {
    let some = |kind, more: &str| fault(kind, &format!("{more}\nshare = 0.2"));
    let faults = [
        some("http-error", "status = 503"),
        some("silence", "at = \"before-headers\"\nlasts = \"4s\""),
        some("error-event", "after = 0"),
        some("cut", "after = 3"),
        some("clean-eof", "after = 2"),
    ];
    let (a, b) = (Sim::start(&faults.concat()).await, Sim::start(&some("reset", "after = 4")).await);
    let more = "retry_budget = 1.0\n[breaker]\nfailures = 1000\nmin_calls = 1000\nwindow = 1000\n";
    let relay = Relay::start(&a_then_b(a.address, b.address, "first_content_timeout = \"1s\"", more)).await;
    let client =
        hyper_util::client::legacy::Client::builder(hyper_util::rt::TokioExecutor::new()).build_http();
    let mut crowd = tokio::task::JoinSet::new();
    for n in 0..CROWD {
        let (path, streamed) = (PATHS[n % 3], n % 5 != 0);
        let text = if streamed { body(path) } else { body(path).replace("true", "false") };
        let (client, asked) = (client.clone(), request(relay.address, path, text));
        crowd.spawn(async move {
            tokio::time::sleep(Duration::from_millis(n as u64 * 10)).await;
            // Every seventh leaves: before the head, or in the middle of the body.
            let stay =
                if n % 7 == 0 { Duration::from_millis(n as u64 % 120) } else { Duration::from_secs(30) };
            let all = async move {
                if let Ok(response) = client.request(asked).await {
                    let mut body = response.into_body();
                    while let Some(Ok(_)) = body.frame().await {}
                }
            };
            let _ = tokio::time::timeout(stay, all).await;
        });
    }
    while crowd.join_next().await.is_some() {}
    relay.logged().await;
    let entries = relay.access.latest(2 * CROWD);
    // A client that leaves while its request is being read may never have been a request.
    assert!((CROWD - CROWD / 7..=CROWD).contains(&entries.len()), "{} entries", entries.len());
    let ids: std::collections::BTreeSet<_> = entries.iter().map(|entry| entry.id.clone()).collect();
    assert_eq!(ids.len(), entries.len());
    let attempts: usize = entries.iter().map(|entry| entry.attempts.len()).sum();
    let records = relay.records(attempts).await;
    let ids: std::collections::BTreeSet<_> = records.iter().map(|record| record.summary.stream_id).collect();
    assert_eq!((ids.len(), relay.further_records().await), (attempts, 0));
    let ends: std::collections::BTreeSet<_> = entries.iter().map(|entry| entry.outcome).collect();
    for end in ["completed", "truncated", "client-gone"] {
        assert!(ends.contains(end), "{ends:?}");
    }
    assert!(entries.iter().all(|entry| entry.outcome != "completed" || entry.reported.output.is_some()));
    let mut asked = request(relay.address, "/metrics", "");
    *asked.method_mut() = hyper::Method::GET;
    let metrics = send(asked).await.text;
    for upstream in ["a", "b"] {
        assert!(
            metrics.contains(&format!("sseismo_route_in_flight{{upstream=\"{upstream}\"}} 0")),
            "{upstream}"
        );
    }
    let served = relay.end().await;
    assert_eq!(served.cut_off, 0);
}

#[tokio::test]
async fn what_is_not_allowed_is_refused_before_it_is_read() {
    // `printf %s secret | sha256sum`
    let tokens = "2bb80d537b1da3e38bd30361aa855686bde0eacd7162fef6a25fe97bf527a25b me";
    let file = tempfile::NamedTempFile::new().unwrap();
    std::fs::write(file.path(), tokens).unwrap();
    let a = Sim::start("").await;
    let limits = Limits { header_timeout: Duration::from_millis(200), ..Limits::default() };
    let routes = a_then_b(a.address, nobody().await, "", "");
    let file = file.path().display();
    let text = format!("{routes}[server.limits]\nbody_bytes = 1024\n[auth]\ntokens_file = \"{file}\"\n");
    let relay = Relay::with(&text, limits, None).await;
    let got = ask(&relay, CHAT).await;
    assert_eq!((got.head.status.as_u16(), a.hits().len()), (401, 0));
    assert!(got.text.contains("authentication_error"));
    let with_token = |mut asked: hyper::Request<_>| {
        asked.headers_mut().insert("authorization", "Bearer secret".parse().unwrap());
        asked
    };
    assert_eq!(send(with_token(request(relay.address, CHAT, body(CHAT)))).await.head.status.as_u16(), 200);
    let large = format!("{{\"model\":\"{}\"}}", "m".repeat(2_000));
    assert_eq!(send(with_token(request(relay.address, CHAT, large))).await.head.status.as_u16(), 413);
    let unknown = body(CHAT).replace("\"m\"", "\"x\"");
    let got = send(with_token(request(relay.address, CHAT, unknown))).await;
    assert!(got.head.status.as_u16() == 404 && got.text.contains("model_not_found"), "{}", got.text);

    // A websocket is refused before the token is asked for: anything else costs Codex CLI 6 s.
    let mut upgrade = request(relay.address, "/v1/responses", "");
    upgrade.headers_mut().insert("connection", "upgrade".parse().unwrap());
    upgrade.headers_mut().insert("upgrade", "websocket".parse().unwrap());
    assert_eq!(send(upgrade).await.head.status.as_u16(), 426);

    // A head that drips in is given up.
    let mut slow = TcpStream::connect(relay.address).await.unwrap();
    slow.write_all(b"POST /v1/responses HTTP/1.1\r\n").await.unwrap();
    let since = Instant::now();
    let mut rest = Vec::new();
    let _ = tokio::time::timeout(Duration::from_secs(5), slow.read_to_end(&mut rest)).await.unwrap();
    assert!(since.elapsed() < Duration::from_secs(2), "{:?}", since.elapsed());
    relay.logged().await;
    assert_eq!(relay.access.latest(10)[2].caller.as_deref(), Some("me"));
    // Strangers are logged, and push nobody out of what is remembered.
    let outcomes = relay.outcomes();
    for (outcome, times) in
        [("invalid_api_key", 1), ("upgrade-refused", 1), ("request-too-large", 1), ("no-route", 1)]
    {
        assert_eq!(outcomes.get(outcome), Some(&times), "{outcome}: {outcomes:?}");
    }
    assert_eq!(relay.access.latest(10).len(), 3);
}

#[tokio::test]
async fn the_relay_says_what_it_serves_and_how_it_is() {
    let a = Sim::start("").await;
    let relay = Relay::start(&a_then_b(a.address, nobody().await, "", "")).await;
    let get = |path: &str| {
        let mut asked = request(relay.address, path, "");
        *asked.method_mut() = hyper::Method::GET;
        send(asked)
    };
    let models = get("/v1/models").await;
    assert!(models.text.contains("\"id\":\"m\""), "{}", models.text);
    assert_eq!(get("/health").await.head.status, StatusCode::OK);
    assert_eq!(get("/ready").await.head.status, StatusCode::OK);
    relay.front.drain();
    assert_eq!(get("/ready").await.head.status, StatusCode::SERVICE_UNAVAILABLE);
    assert_eq!(get("/elsewhere").await.head.status, StatusCode::NOT_FOUND);
    assert_eq!(relay.router.load().breakers(tokio::time::Instant::now()).len(), 2);
    assert_eq!(relay.end().await.cut_off, 0);
}

#[tokio::test]
async fn a_silent_upstream_is_bridged_with_signs_of_life() {
    let a = Sim::start(&fault("silence", "at = \"mid-stream\"\nafter = 5\nlasts = \"400ms\"")).await;
    let text = a_then_b(a.address, nobody().await, "", "");
    let relay = Relay::with(&text, Limits::default(), Some(Duration::from_millis(100))).await;
    let got = ask(&relay, "/v1/responses").await;
    let signs = got.text.matches("event: keepalive\ndata: {\"type\":\"keepalive\"}\n\n").count();
    assert!((2..=4).contains(&signs), "{signs}");
    assert!(is_complete("/v1/responses", &got.text));
}

/// What a request became can be asked for afterwards, with the operators' token, and is counted.
#[tokio::test]
async fn a_request_explains_itself() {
    let (a, b) = (Sim::start(&fault("http-error", "status = 500")).await, Sim::start("").await);
    let text = a_then_b(a.address, b.address, "", "")
        + "[[upstream]]\nname = \"c\"\nurl = \"http://127.0.0.1:1/v1\"\napis = [\"chat\"]\n";
    let relay = Relay::start(&text).await;
    let got = ask(&relay, CHAT).await;
    relay.logged().await;
    let page = |path: String, token: &'static str| {
        let asked = hyper::Request::get(path).header("authorization", token).body(()).unwrap();
        let response = relay.admin.answer(&asked);
        async { (response.status().as_u16(), response.into_body().collect().await.unwrap().to_bytes()) }
    };
    let path = format!("/admin/requests/{}", got.header("x-sseismo-request-id"));
    assert_eq!(page(path.clone(), "Bearer wrong").await.0, 401);
    let (status, body) = page(path, "Bearer operators-token").await;
    let entry: serde_json::Value = serde_json::from_slice(&body).unwrap();
    assert_eq!(
        (status, &entry["served_by"], &entry["attempts"][0]["outcome"]),
        (200, &"b".into(), &"status-500".into())
    );
    assert_eq!(entry["reported"], entry["billed"]);
    let (_, state) = page("/admin/state".to_owned(), "Bearer operators-token").await;
    let state: serde_json::Value = serde_json::from_slice(&state).unwrap();
    assert_eq!((&state["ready"], &state["open_requests"]), (&true.into(), &0.into()));
    assert_eq!(state["breakers"].as_array().unwrap().len(), 2);

    let mut asked = request(relay.address, "/metrics", "");
    *asked.method_mut() = hyper::Method::GET;
    let metrics = send(asked).await.text;
    for line in [
        "sseismo_route_requests_total{route=\"m\",outcome=\"completed\"} 1",
        "sseismo_route_attempts_total{upstream=\"a\",outcome=\"status\"} 1",
        "sseismo_route_fallbacks_total{route=\"m\",upstream=\"a\",reason=\"status\"} 1",
        "sseismo_route_in_flight{upstream=\"b\"} 0",
    ] {
        assert!(metrics.contains(line), "{line}\n{metrics}");
    }
    assert!(
        metrics.contains("sseismo_route_billed_tokens_total{route=\"m\",upstream=\"b\",type=\"reasoning\"}"),
        "{metrics}"
    );
}

/// Without any traffic: checks open the breaker of a dead upstream, and a good one lets it be tried again.
#[tokio::test]
async fn health_checks_open_breakers_without_traffic() {
    let a = Sim::start("").await;
    let check = "[upstream.health]\npath = \"/models\"\nevery = \"250ms\"\ntimeout = \"1s\"";
    let relay = Relay::start(&a_then_b(nobody().await, a.address, check, "")).await;
    let since = Instant::now();
    let open = || {
        let views = relay.router.load().breakers(tokio::time::Instant::now());
        views.iter().any(|view| &*view.upstream == "a" && view.why.is_some())
    };
    while !open() {
        assert!(since.elapsed() < Duration::from_secs(5), "no check was made");
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
    assert_eq!(ask(&relay, CHAT).await.header("x-sseismo-served-by"), "b");
    assert_eq!(relay.access.latest(1)[0].attempts.len(), 1, "the dead one was not asked");
}
