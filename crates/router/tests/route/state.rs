//! State that one organisation issued: it goes back to it, and to nobody else, whether it is up or down.

use std::net::SocketAddr;
use std::sync::atomic::{AtomicU8, Ordering};
use std::sync::{Arc, Mutex};

use bytes::Bytes;
use http_body_util::{BodyExt as _, Full};
use hyper::body::Incoming;
use hyper::service::service_fn;
use hyper::{Method, Request, Response, StatusCode};
use hyper_util::rt::TokioIo;
use tokio::net::TcpListener;

use super::lab::{ALL, CHAT, Got, Relay, request, send, upstream};

/// Second turns that are sent while the issuer is up: by chance all would go to it once in 4,096 times.
const TURNS: usize = 12;

const UP: u8 = 0;
const REFUSES: u8 = 1;
const HANGS_UP: u8 = 2;

/// An upstream that answers every request with one body, until it is down.
struct Issuer {
    address: SocketAddr,
    /// Method, path and body of each request.
    seen: Arc<Mutex<Vec<String>>>,
    state: Arc<AtomicU8>,
}

impl Issuer {
    async fn start(body: String) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        let (seen, state) = (Arc::<Mutex<Vec<String>>>::default(), Arc::new(AtomicU8::new(UP)));
        let (all, standing) = (Arc::clone(&seen), Arc::clone(&state));
        tokio::spawn(async move {
            while let Ok((socket, _)) = listener.accept().await {
                let (body, all, standing) = (body.clone(), Arc::clone(&all), Arc::clone(&standing));
                let service = service_fn(move |asked: Request<Incoming>| {
                    let (body, all, standing) = (body.clone(), Arc::clone(&all), Arc::clone(&standing));
                    async move {
                        let begun = format!("{} {} ", asked.method(), asked.uri().path());
                        let sent = asked.into_body().collect().await?.to_bytes();
                        all.lock().unwrap().push(begun + &String::from_utf8_lossy(&sent));
                        answer(&body, standing.load(Ordering::SeqCst))
                    }
                });
                let http = hyper::server::conn::http1::Builder::new();
                tokio::spawn(http.serve_connection(TokioIo::new(socket), service));
            }
        });
        Self { address, seen, state }
    }

    fn seen(&self) -> Vec<String> {
        self.seen.lock().unwrap().clone()
    }
}

type Answered = Result<Response<Full<Bytes>>, Box<dyn std::error::Error + Send + Sync>>;

fn answer(body: &str, state: u8) -> Answered {
    let (status, media, body) = match state {
        UP if body.starts_with('{') => (200, "application/json", body),
        UP => (200, "text/event-stream", body),
        REFUSES => (503, "application/json", r#"{"error":{"message":"busy","type":"server_error"}}"#),
        _ => return Err("hang up".into()),
    };
    let response = Response::builder().status(status).header("content-type", media);
    Ok(response.body(Full::new(Bytes::copy_from_slice(body.as_bytes())))?)
}

/// One way to issue state and to carry it.
struct Case {
    name: &'static str,
    path: &'static str,
    /// What the upstream called NAME answers.
    issues: &'static str,
    /// What the second turn carries.
    carries: &'static str,
}

/// The events of a Responses answer of which nothing is content before its message.
const RESPONSES: &str = r#"data: {"type":"response.created","response":{"id":"resp_NAME","status":"in_progress"}}

data: {"type":"response.output_item.done","output_index":0,"item":{"type":"reasoning","id":"rs_NAME","summary":[],"encrypted_content":"gAAA-NAME"}}

data: {"type":"response.output_item.added","output_index":1,"item":{"type":"message","id":"msg_NAME","role":"assistant","content":[]}}

data: {"type":"response.output_text.delta","output_index":1,"delta":"hi"}

data: {"type":"response.completed","response":{"id":"resp_NAME","status":"completed","output":[],"usage":{"input_tokens":1,"output_tokens":2}}}

"#;

const MESSAGES: &str = r#"event: message_start
data: {"type":"message_start","message":{"id":"msg_1","type":"message","role":"assistant","content":[],"model":"m","usage":{"input_tokens":1,"output_tokens":1}}}

event: content_block_start
data: {"type":"content_block_start","index":0,"content_block":{"type":"redacted_thinking","data":"Em-NAME"}}

event: content_block_start
data: {"type":"content_block_start","index":1,"content_block":{"type":"thinking","thinking":"","signature":""}}

event: content_block_delta
data: {"type":"content_block_delta","index":1,"delta":{"type":"thinking_delta","thinking":"hm"}}

event: content_block_delta
data: {"type":"content_block_delta","index":1,"delta":{"type":"signature_delta","signature":"Eq-"}}

event: content_block_delta
data: {"type":"content_block_delta","index":1,"delta":{"type":"signature_delta","signature":"NAME"}}

event: content_block_delta
data: {"type":"content_block_delta","index":1,"delta":{"type":"signature_delta","signature":"=="}}

event: content_block_stop
data: {"type":"content_block_stop","index":1}

event: message_delta
data: {"type":"message_delta","delta":{"stop_reason":"end_turn"},"usage":{"output_tokens":5}}

event: message_stop
data: {"type":"message_stop"}

"#;

const DETAILS: &str = r#"data: {"id":"c","object":"chat.completion.chunk","choices":[{"index":0,"delta":{"role":"assistant","content":"","reasoning_details":[{"type":"reasoning.encrypted","index":0,"data":"ZZ-"}]}}]}

data: {"id":"c","object":"chat.completion.chunk","choices":[{"index":0,"delta":{"content":"","reasoning_details":[{"type":"reasoning.encrypted","index":0,"data":"NAME"}]}}]}

data: {"id":"c","object":"chat.completion.chunk","choices":[{"index":0,"delta":{"content":"hi"}}]}

data: {"id":"c","object":"chat.completion.chunk","choices":[{"index":0,"delta":{},"finish_reason":"stop"}]}

data: [DONE]

"#;

const WHOLE: &str = r#"{"id":"resp_NAME","object":"response","status":"completed","output":[{"type":"reasoning","id":"rs_NAME","summary":[],"encrypted_content":"gAAA-NAME"},{"type":"message","id":"msg_NAME","role":"assistant","status":"completed","content":[{"type":"output_text","text":"hi"}]}],"usage":{"input_tokens":1,"output_tokens":2}}"#;

const CASES: [Case; 10] = [
    Case {
        name: "encrypted content",
        path: "/v1/responses",
        issues: RESPONSES,
        carries: r#""input":[{"type":"reasoning","id":"rs_x","summary":[],"encrypted_content":"gAAA-NAME"}]"#,
    },
    Case {
        name: "a response id",
        path: "/v1/responses",
        issues: RESPONSES,
        carries: r#""input":"more","previous_response_id":"resp_NAME""#,
    },
    Case {
        name: "an item reference",
        path: "/v1/responses",
        issues: RESPONSES,
        carries: r#""input":[{"type":"item_reference","id":"msg_NAME"}]"#,
    },
    Case {
        name: "a reasoning item that is kept there",
        path: "/v1/responses",
        issues: RESPONSES,
        carries: r#""input":[{"type":"reasoning","id":"rs_NAME","summary":[]}]"#,
    },
    Case {
        name: "encrypted content of a whole answer",
        path: "/v1/responses",
        issues: WHOLE,
        carries: r#""input":[{"type":"reasoning","summary":[],"encrypted_content":"gAAA-NAME"}]"#,
    },
    Case {
        name: "an item of a whole answer",
        path: "/v1/responses",
        issues: WHOLE,
        carries: r#""input":[{"type":"item_reference","id":"msg_NAME"}]"#,
    },
    Case {
        name: "a compacted prompt",
        path: "/v1/responses/compact",
        issues: WHOLE,
        carries: r#""input":[{"type":"compaction","encrypted_content":"gAAA-NAME"}]"#,
    },
    Case {
        name: "a signature in three pieces",
        path: "/v1/messages",
        issues: MESSAGES,
        carries: r#""messages":[{"role":"assistant","content":[{"type":"thinking","thinking":"hm","signature":"Eq-NAME=="}]}]"#,
    },
    Case {
        name: "redacted thinking before any content",
        path: "/v1/messages",
        issues: MESSAGES,
        carries: r#""messages":[{"role":"assistant","content":[{"type":"redacted_thinking","data":"Em-NAME"}]}]"#,
    },
    Case {
        name: "reasoning details in two pieces before any content",
        path: CHAT,
        issues: DETAILS,
        carries: r#""messages":[{"role":"assistant","reasoning_details":[{"type":"reasoning.encrypted","data":"ZZ-NAME"}]}]"#,
    },
];

/// Breakers as they are, but a retry budget that a test does not spend.
const ROUTE: &str = "[[route]]\nmodel = \"m\"\ntiers = [[\"a\", \"b\"]]\nretry_budget = 1.0\n";

async fn ask(relay: &Relay, path: &str, members: &str) -> Got {
    let streamed = !members.contains("\"stream\"");
    let more = if streamed { "\"stream\":true," } else { "" };
    send(request(relay.address, path, format!("{{\"model\":\"m\",{more}\"max_tokens\":9,{members}}}"))).await
}

#[tokio::test]
async fn state_goes_back_to_its_issuer_and_to_nobody_else() {
    for Case { name, path, issues, carries } in CASES {
        for down in [REFUSES, HANGS_UP] {
            let a = Issuer::start(issues.replace("NAME", "a")).await;
            let b = Issuer::start(issues.replace("NAME", "b")).await;
            let upstreams = [("a", a.address), ("b", b.address)].map(|(name, at)| upstream(name, at, ALL));
            let relay = Relay::start(&(upstreams.concat() + ROUTE)).await;
            // Both have issued something of their own, so that neither is the only one known.
            for wanted in ["a", "b"] {
                let mut served = String::new();
                for _ in 0..50 {
                    let first = ask(&relay, path, "\"input\":\"hi\",\"messages\":[]").await;
                    assert_eq!(first.head.status, StatusCode::OK, "{name}: {}", first.text);
                    first.header("x-sseismo-served-by").clone_into(&mut served);
                    if served == wanted {
                        break;
                    }
                }
                assert_eq!(served, wanted, "{name}");
            }
            let carried = carries.replace("NAME", "a");
            for _ in 0..TURNS {
                let second = ask(&relay, path, &carried).await;
                let told = (second.header("x-sseismo-served-by"), second.header("x-sseismo-reason"));
                assert_eq!(told, ("a", "state"), "{name}: {}", second.text);
            }
            let before = b.seen().len();
            a.state.store(down, Ordering::SeqCst);
            for _ in 0..6 {
                let second = ask(&relay, path, &carried).await;
                assert!(second.head.status.is_server_error(), "{name}: {}", second.head.status);
                assert!(second.text.contains("only `a` can read"), "{name}: {}", second.text);
            }
            assert_eq!(b.seen().len(), before, "{name}: state has crossed organisations");
            let fresh = ask(&relay, path, "\"input\":\"hi\",\"messages\":[]").await;
            assert_eq!(fresh.header("x-sseismo-served-by"), "b", "{name}: what carries no state moves on");
        }
    }
}

/// What belongs to two organisations can be read by neither, and the error says so.
#[tokio::test]
async fn state_of_two_organisations_is_refused() {
    let (a, b) =
        (Issuer::start(WHOLE.replace("NAME", "a")).await, Issuer::start(WHOLE.replace("NAME", "b")).await);
    let upstreams = [("a", a.address), ("b", b.address)].map(|(name, at)| upstream(name, at, ALL));
    let relay = Relay::start(&(upstreams.concat() + ROUTE)).await;
    while a.seen().is_empty() || b.seen().is_empty() {
        ask(&relay, "/v1/responses", "\"input\":\"hi\"").await;
    }
    let before = (a.seen().len(), b.seen().len());
    let both = r#""input":[{"type":"item_reference","id":"msg_a"},{"type":"item_reference","id":"msg_b"}]"#;
    let got = ask(&relay, "/v1/responses", both).await;
    assert_eq!(got.head.status.as_u16(), 400);
    assert!(got.text.contains("several organisations (a, b)"), "{}", got.text);
    assert_eq!((a.seen().len(), b.seen().len()), before);
}

/// A path that names a response goes to whoever made it, on whichever route that is.
#[tokio::test]
async fn a_response_is_asked_for_where_it_was_made() {
    let (a, b) =
        (Issuer::start(WHOLE.replace("NAME", "a")).await, Issuer::start(WHOLE.replace("NAME", "b")).await);
    let upstreams = [("a", a.address), ("b", b.address)].map(|(name, at)| upstream(name, at, ALL));
    let routes = "[[route]]\nmodel = \"m\"\ntiers = [[\"a\"]]\n[[route]]\nmodel = \"*\"\ntiers = [[\"b\"]]\n";
    let relay = Relay::start(&(upstreams.concat() + routes)).await;
    ask(&relay, "/v1/responses", "\"input\":\"hi\",\"stream\":false").await;
    let other = r#"{"model":"x","input":"hi"}"#;
    send(request(relay.address, "/v1/responses", other)).await;
    for (method, path, served_by) in [
        (Method::GET, "/v1/responses/resp_a", "a"),
        (Method::GET, "/v1/responses/resp_a/input_items?limit=1", "a"),
        (Method::POST, "/v1/responses/resp_a/cancel", "a"),
        (Method::DELETE, "/v1/responses/resp_a", "a"),
        (Method::GET, "/v1/responses/resp_b", "b"),
        (Method::GET, "/v1/responses/resp_unknown", "b"),
        (Method::GET, "/v1/files/file_1", "b"),
    ] {
        let mut asked = request(relay.address, path, "");
        *asked.method_mut() = method.clone();
        let got = send(asked).await;
        assert_eq!(got.header("x-sseismo-served-by"), served_by, "{method} {path}: {}", got.text);
        let issuer = if served_by == "a" { &a } else { &b };
        let seen = issuer.seen().pop().unwrap();
        let bare = path.split('?').next().unwrap();
        assert_eq!(seen, format!("{method} {bare} "), "{path}");
    }
}
