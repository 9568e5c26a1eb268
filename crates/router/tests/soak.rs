//! Many requests at once, with random faults, aborts and reloads: nothing leaks, and each request is logged
//! once.
//!
//! One seed with 2,000 requests runs with the other tests; the whole, 24 seeds and 10,000 requests, is
//!
//! ```text
//! cargo test -p sseismo-router --all-features --test soak -- --ignored --nocapture
//! ```

#![expect(
    clippy::unwrap_used,
    clippy::disallowed_methods,
    clippy::panic,
    clippy::print_stdout,
    reason = "a test stops at what it does not expect, its bounds are in real time, and it tells what it saw"
)]

#[path = "route/lab.rs"]
#[expect(dead_code, reason = "shared with the tests of single requests")]
mod lab;

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::{Duration, Instant};

use http_body_util::BodyExt;
use hyper_util::client::legacy::Client;
use hyper_util::rt::TokioExecutor;
use lab::{Relay, Sim, a_then_b, body, request};
use rand::{RngExt as _, SeedableRng as _};
use rand_chacha::ChaCha8Rng;
use sseismo_router::config;
use tokio::sync::Semaphore;

/// Tasks and handles are counted for the whole process, so one run at a time.
static ALONE: tokio::sync::Mutex<()> = tokio::sync::Mutex::const_new(());

/// Every fault that the simulator knows, each in a small share of the requests.
const FAULTS: &str = r#"
[[behaviour]]
kind = "http-error"
status = 503
share = 0.06
[[behaviour]]
kind = "silence"
at = "before-headers"
lasts = "2s"
share = 0.03
[[behaviour]]
kind = "silence"
at = "after-headers"
lasts = "2s"
share = 0.03
[[behaviour]]
kind = "silence"
at = "mid-stream"
after = 4
lasts = "100ms"
share = 0.03
[[behaviour]]
kind = "error-event"
after = 0
share = 0.03
[[behaviour]]
kind = "error-event"
after = 5
share = 0.03
[[behaviour]]
kind = "cut"
after = 5
share = 0.03
[[behaviour]]
kind = "reset"
after = 3
share = 0.03
[[behaviour]]
kind = "clean-eof"
after = 4
share = 0.03
[[behaviour]]
kind = "malformed"
share = 0.03
"#;

/// What the process holds.
#[derive(Clone, Copy, Debug)]
struct Held {
    tasks: usize,
    handles: usize,
    resident_kib: u64,
}

fn held() -> Held {
    let status = std::fs::read_to_string("/proc/self/status").unwrap();
    let resident = status.lines().find(|line| line.starts_with("VmRSS")).unwrap();
    Held {
        tasks: tokio::runtime::Handle::current().metrics().num_alive_tasks(),
        handles: std::fs::read_dir("/proc/self/fd").unwrap().count(),
        resident_kib: resident.split_whitespace().nth(1).unwrap().parse().unwrap(),
    }
}

/// Opened with the first connection and kept by the process: the socket that asks the kernel about connections.
const KEPT_HANDLES: usize = 1;

/// Waits until no more tasks and handles are held than before.
async fn settled(before: Held) -> Held {
    let since = Instant::now();
    loop {
        let now = held();
        if now.tasks <= before.tasks && now.handles <= before.handles + KEPT_HANDLES {
            return now;
        }
        assert!(since.elapsed() < Duration::from_secs(15), "leaked: {before:?} became {now:?}");
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
}

/// What a client does with its request.
#[derive(Clone, Copy, Debug)]
enum Way {
    /// Reads to the end.
    Stays,
    /// Leaves after so many frames.
    Leaves(usize),
    /// Leaves if there is no head after so many ms.
    Impatient(u64),
}

fn draw(rng: &mut ChaCha8Rng) -> Way {
    match rng.random_range(0..10) {
        0 => Way::Leaves(rng.random_range(1..8)),
        1 => Way::Impatient(rng.random_range(1..60)),
        _ => Way::Stays,
    }
}

/// How one seed went: entries by outcome.
async fn soak(seed: u64, requests: usize, at_once: usize) -> BTreeMap<String, u64> {
    let mut rng = ChaCha8Rng::seed_from_u64(seed);
    let (a, b) = (Sim::paced("1ms", 8, FAULTS).await, Sim::paced("1ms", 8, "").await);
    // Long for a busy machine, so that what times out is what is silent.
    let limit = "first_content_timeout = \"1s\"\nheaders_timeout = \"1s\"";
    let (one, other) = ("retry_budget = 0.5", "retry_budget = 1.0\nfallback_in_flight = 1000");
    // By turns breakers that open all the time, and breakers that let every fault through.
    let strict = "[breaker]\ncooldown = \"50ms\"\nmax_cooldown = \"100ms\"\n";
    let lax = "[breaker]\nfailures = 1000\nopen_at = 0.99\n";
    let text = |route: &str| {
        let breaker = if route == one { strict } else { lax };
        format!("{}{breaker}", a_then_b(a.address, b.address, limit, route))
    };
    let empty = held();
    let relay = Relay::start(&text(one)).await;
    let client = Client::builder(TokioExecutor::new()).build_http::<http_body_util::Full<bytes::Bytes>>();
    let permits = Arc::new(Semaphore::new(at_once));
    let mut asked = Vec::with_capacity(requests);
    for n in 0..requests {
        if n % 200 == 100 {
            let next = config::check(&text(if n % 400 == 100 { other } else { one }), "relay.toml".as_ref());
            let next =
                relay.router.load().reconfigured(next.unwrap(), &|_| None, tokio::time::Instant::now());
            relay.router.store(Arc::new(next));
        }
        let permit = Arc::clone(&permits).acquire_owned().await.unwrap();
        let path = ["/v1/responses", lab::CHAT, "/v1/messages"][rng.random_range(0..3)];
        let (request, way, client) =
            (request(relay.address, path, body(path)), draw(&mut rng), client.clone());
        asked.push(tokio::spawn(async move {
            let answer = client.request(request);
            let response = match way {
                Way::Impatient(ms) => tokio::time::timeout(Duration::from_millis(ms), answer).await,
                _ => Ok(answer.await),
            };
            let mut left = if let Way::Leaves(frames) = way { frames } else { usize::MAX };
            if let Ok(Ok(response)) = response {
                let mut body = response.into_body();
                while left > 0 && matches!(body.frame().await, Some(Ok(_))) {
                    left -= 1;
                }
            }
            drop(permit);
        }));
    }
    for task in asked {
        task.await.unwrap();
    }
    drop(client);
    relay.logged().await;
    let outcomes = relay.outcomes();
    let busy = held();
    // Idle connections stay pooled while the relay lives, at most as many as were busy at once; each is a
    // handle at both ends, which share this process.
    assert!(busy.handles < empty.handles + 6 * at_once, "{empty:?} became {busy:?}");
    relay.end().await;
    let after = settled(empty).await;
    println!(
        "seed {seed}: {requests} requests, {outcomes:?}; before {empty:?}, at its end {busy:?}, after it {after:?}"
    );
    outcomes
}

/// One entry for each request.
fn check(outcomes: &BTreeMap<String, u64>, requests: u64) {
    let logged: u64 = outcomes.values().sum();
    // A client that leaves before its request has come leaves no trace.
    assert!(logged <= requests && logged > requests * 9 / 10, "{logged} of {requests}: {outcomes:?}");
    assert!(outcomes["completed"] > requests / 2, "{outcomes:?}");
}

/// Every way to end was there: the faults have reached the clients that they cannot be hidden from.
fn check_faults(outcomes: &BTreeMap<String, u64>) {
    for wanted in ["completed", "client-gone", "truncated", "failed"] {
        assert!(outcomes.contains_key(wanted), "no request was {wanted}: {outcomes:?}");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn nothing_leaks_under_faults_aborts_and_reloads() {
    let _alone = ALONE.lock().await;
    let outcomes = soak(1, 2_000, 48).await;
    check(&outcomes, 2_000);
    check_faults(&outcomes);
}

/// Memory must not grow from seed to seed once the allocator has what it needs.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
#[ignore = "minutes long; see the module's documentation"]
async fn ten_thousand_requests_and_24_seeds() {
    let _alone = ALONE.lock().await;
    let cold = held();
    let mut all = soak(0, 10_000, 64).await;
    check(&all, 10_000);
    let warm = held();
    for seed in 1..=24 {
        let outcomes = soak(seed, 1_000, 64).await;
        check(&outcomes, 1_000);
        for (outcome, times) in outcomes {
            *all.entry(outcome).or_default() += times;
        }
    }
    check_faults(&all);
    let end = settled(cold).await;
    println!(
        "{all:?}\nresident: {} KiB after the first run, {} KiB after 24 more",
        warm.resident_kib, end.resident_kib
    );
    assert!(end.resident_kib < warm.resident_kib + 8_000, "{warm:?} became {end:?}");
}
