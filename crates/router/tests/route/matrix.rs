//! The fault matrix as one table: the faults that other gateways were measured with, and three more.
//!
//! ```text
//! cargo test -p sseismo-router --all-features --test route matrix -- --nocapture
//! ```
#![expect(clippy::print_stdout, reason = "the table is what the command is for")]

use std::fmt::Write as _;
use std::time::{Duration, Instant};

use http_body_util::BodyExt as _;

use super::lab::{CHAT, Relay, Sim, a_then_b, ask, body, open, request};
use super::{fault, is_complete};

/// What `a` has instead of the learned limit for the first content.
const LIMIT: &str = "first_content_timeout = \"1s\"\nheaders_timeout = \"1s\"";

/// A row: who answered, when its end came, and how the client saw it end.
async fn row(faults: &str) -> String {
    let (a, b) = (Sim::start(faults).await, Sim::start("").await);
    let relay = Relay::start(&a_then_b(a.address, b.address, LIMIT, "")).await;
    let since = Instant::now();
    let got = ask(&relay, CHAT).await;
    let took = since.elapsed();
    let end = match (is_complete(CHAT, &got.text), got.whole, got.text.contains("\"error\"")) {
        (true, true, false) => "whole",
        (false, true, true) => "error event, no [DONE]",
        (false, false, false) => "broken off",
        _ => "WRONG",
    };
    let by = got.header("x-sseismo-served-by").to_uppercase();
    format!("{by}, {end}, {:.2} s", took.as_secs_f64())
}

#[tokio::test]
async fn the_fault_matrix() {
    let silent = |at, lasts| fault("silence", &format!("at = \"{at}\"\nlasts = \"{lasts}\""));
    let stall = fault("silence", "at = \"mid-stream\"\nafter = 5\nlasts = \"1500ms\"");
    let mut table = String::from("| fault of A | ours |\n|---|---|\n");
    let mut add = |name: &str, told: &str, expected: &str| {
        let _ = writeln!(table, "| {name} | {told} |");
        assert!(told.starts_with(expected), "{name}: {told}");
    };
    for (name, faults, expected) in [
        ("500 before the stream", fault("http-error", "status = 500"), "B, whole"),
        ("429 with Retry-After", fault("quota", "of = \"requests\"\nlimit = 0"), "B, whole"),
        ("silent for 6 s before its head", silent("before-headers", "6s"), "B, whole"),
        ("head, then silent for 6 s", silent("after-headers", "6s"), "B, whole"),
        ("error event first", fault("error-event", "after = 0"), "B, whole"),
        ("stalls for 1.5 s after 5 events", stall, "A, whole"),
        ("drips 64 bytes at a time", fault("slow-drip", "bytes = 64\nevery = \"1ms\""), "A, whole"),
        ("connection cut after 5 events", fault("cut", "after = 5"), "A, broken off"),
        ("clean end after 5 events", fault("clean-eof", "after = 5"), "A, error event, no [DONE]"),
    ] {
        add(name, &row(&faults).await, expected);
    }
    let (hits, back) = dead_primary().await;
    add("8 calls while it gives 500", &format!("{hits} reach it"), "");
    assert!(hits <= 3, "{hits}");
    add("it recovers", &format!("taken back for good after {back} further calls"), "");
    let late = left_alone().await;
    add("client leaves after 3 events", &format!("A cancelled after {} ms", late.as_millis()), "");
    assert!(late < Duration::from_millis(500), "{late:?}"); // 100 ms are asserted elsewhere, on their own
    let gaps = bursts().await;
    add("10 events each 300 ms", &format!("{gaps} of 5 gaps kept"), "5 of 5");
    println!("{table}");
}

/// Requests of eight that reach a dead primary; after how many further ones it answers for good.
async fn dead_primary() -> (usize, usize) {
    let a = Sim::start(&fault("http-error", "status = 500\nuntil = \"3s\"")).await;
    let (b, started) = (Sim::start("").await, Instant::now());
    let settings = "[breaker]\ncooldown = \"1s\"\nmax_cooldown = \"1s\"\n";
    let relay = Relay::start(&(a_then_b(a.address, b.address, LIMIT, "") + settings)).await;
    for _ in 0..8 {
        ask(&relay, CHAT).await;
    }
    let hits = a.hits().len();
    tokio::time::sleep(Duration::from_millis(4_200).saturating_sub(started.elapsed())).await;
    let mut calls = 0;
    while ask(&relay, CHAT).await.header("x-sseismo-served-by") != "a" {
        calls += 1;
        assert!(calls < 20, "it is never asked again");
    }
    for _ in 0..4 {
        assert_eq!(ask(&relay, CHAT).await.header("x-sseismo-served-by"), "a");
    }
    (hits, calls)
}

/// From the client's leave to its upstream's notice of it.
async fn left_alone() -> Duration {
    let (a, b) = (Sim::paced("20ms", 900, "").await, Sim::start("").await);
    let relay = Relay::start(&a_then_b(a.address, b.address, LIMIT, "")).await;
    let mut response = open(request(relay.address, CHAT, body(CHAT))).await;
    for _ in 0..3 {
        response.body_mut().frame().await.unwrap().unwrap();
    }
    drop(response);
    let left = Instant::now();
    let hit = a.hit(0).await;
    assert_eq!(hit.line["client_left"], true, "{}", hit.line);
    hit.at.saturating_duration_since(left)
}

/// Of five gaps between bursts of ten events, those that the client sees.
async fn bursts() -> usize {
    let corked = fault("cork", "period = \"300ms\"");
    let (a, b) = (Sim::paced("30ms", 300, &corked).await, Sim::start("").await);
    let relay = Relay::start(&a_then_b(a.address, b.address, LIMIT, "")).await;
    let mut body = open(request(relay.address, CHAT, body(CHAT))).await.into_body();
    let (mut last, mut gaps) = (Instant::now(), 0);
    while let Some(frame) = body.frame().await {
        frame.unwrap();
        let now = Instant::now();
        gaps += usize::from(now - last > Duration::from_millis(200));
        last = now;
    }
    gaps.min(5)
}
