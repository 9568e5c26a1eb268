//! The connection policy, seen from the upstream: how many connections it gets.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpListener;

use super::lab::{ALL, CHAT, Relay, body, request, send, upstream};

/// Requests of each policy, one after the other.
const REQUESTS: usize = 6;

const ANSWER: &str = r#"{"object":"chat.completion","choices":[{"index":0,"message":{"role":"assistant","content":"hi"},"finish_reason":"stop"}]}"#;

/// Answers any number of requests on each connection, and counts connections.
async fn counting() -> (std::net::SocketAddr, Arc<AtomicUsize>) {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let (address, connections) = (listener.local_addr().unwrap(), Arc::new(AtomicUsize::new(0)));
    let counted = Arc::clone(&connections);
    tokio::spawn(async move {
        while let Ok((mut socket, _)) = listener.accept().await {
            counted.fetch_add(1, Ordering::SeqCst);
            tokio::spawn(async move {
                let mut buffer = [0; 4096];
                // A request of a few hundred bytes comes in one read.
                while socket.read(&mut buffer).await.is_ok_and(|n| n > 0) {
                    let length = ANSWER.len();
                    let head = format!(
                        "HTTP/1.1 200 OK\r\ncontent-type: application/json\r\ncontent-length: {length}\r\n\r\n"
                    );
                    socket.write_all(format!("{head}{ANSWER}").as_bytes()).await.unwrap();
                }
            });
        }
    });
    (address, connections)
}

#[tokio::test]
async fn a_policy_decides_how_many_connections_an_upstream_gets() {
    for (policy, expected) in
        [("\"reuse\"", 1..=1), ("{ max_age = \"300ms\" }", 2..=4), ("\"fresh\"", REQUESTS..=REQUESTS)]
    {
        let (address, connections) = counting().await;
        let more = format!("{ALL}\nconnection = {policy}");
        let route = "[[route]]\nmodel = \"m\"\ntiers = [[\"a\"]]\n";
        let relay = Relay::start(&format!("{}{route}", upstream("a", address, &more))).await;
        for _ in 0..REQUESTS {
            let got = send(request(relay.address, CHAT, body(CHAT).replace("true", "false"))).await;
            assert_eq!(got.text, ANSWER, "{policy}");
            tokio::time::sleep(Duration::from_millis(100)).await;
        }
        let got = connections.load(Ordering::SeqCst);
        assert!(expected.contains(&got), "{policy}: {got} connections for {REQUESTS} requests");
        assert_eq!(relay.end().await.cut_off, 0);
    }
}
