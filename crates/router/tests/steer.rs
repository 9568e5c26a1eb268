//! Signals and policies over real sockets on loopback: what moves, what would have, and what a storm of false
//! signals cannot do.

#![expect(
    clippy::unwrap_used,
    clippy::disallowed_methods,
    clippy::panic,
    clippy::print_stderr,
    reason = "a test stops at what it does not expect, and its bounds are in real time"
)]

#[path = "route/lab.rs"]
#[expect(dead_code, reason = "shared with the tests of the routing relay")]
mod lab;

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use http_body_util::{BodyExt as _, Full};
use hyper::Request;
use lab::{CHAT, Relay, Sim, a_then_b, body, request, send};
use rand::{RngExt as _, SeedableRng as _};
use rand_chacha::ChaCha8Rng;
use serde_json::{Value, json};
use sseismo_router::admin;
use tokio::net::TcpListener;
use tokio::sync::watch;

/// The operators' address of a relay, and what keeps it there.
struct Operators {
    address: SocketAddr,
    _stop: watch::Sender<bool>,
}

impl Operators {
    async fn of(relay: &Relay) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        let (stop, stopping) = watch::channel(false);
        tokio::spawn(admin::serve(listener, relay.admin.clone(), stopping));
        Self { address, _stop: stop }
    }

    async fn ask(&self, request: hyper::http::request::Builder, body: String) -> (u16, Value) {
        let request = request.header("authorization", "Bearer operators-token");
        let request = request.body(Full::new(body.into())).unwrap();
        let (head, body) = lab::open(request).await.into_parts();
        let bytes = body.collect().await.unwrap().to_bytes();
        (head.status.as_u16(), serde_json::from_slice(&bytes).unwrap_or(Value::Null))
    }

    async fn get(&self, path: &str) -> Value {
        self.ask(Request::get(format!("http://{}{path}", self.address)), String::new()).await.1
    }

    async fn post(&self, path: &str, body: &Value) -> (u16, Value) {
        self.ask(Request::post(format!("http://{}{path}", self.address)), body.to_string()).await
    }

    async fn metric(&self, starts: &str) -> f64 {
        let request = Request::get(format!("http://{}/metrics", self.address)).body(Full::default()).unwrap();
        let bytes = lab::open(request).await.into_body().collect().await.unwrap().to_bytes();
        let text = String::from_utf8(bytes.to_vec()).unwrap();
        let values = text.lines().filter(|line| line.starts_with(starts));
        values.map(|line| line.rsplit_once(' ').unwrap().1.parse::<f64>().unwrap()).sum()
    }
}

fn now() -> i64 {
    i64::try_from(SystemTime::now().duration_since(UNIX_EPOCH).unwrap().as_micros()).unwrap()
}

fn burst(id: &str, upstream: &str, state: &str) -> Value {
    json!({"id": id, "target": {"upstream": upstream}, "signature": "burst", "gap_s": 1.5, "tokens": 60,
        "state": state, "ttl": 600_000_000, "at": now()})
}

/// Asks for a stream in a session of its own; who served, and the request's id.
async fn ask(relay: &Relay, session: u64) -> (String, String) {
    let mut request = request(relay.address, CHAT, body(CHAT));
    request.headers_mut().insert("session-id", session.to_string().parse().unwrap());
    let got = send(request).await;
    assert_eq!(got.head.status.as_u16(), 200, "{}", got.text);
    (got.header("x-sseismo-served-by").to_owned(), got.header("x-sseismo-request-id").to_owned())
}

/// Who served each of so many sessions.
async fn served(relay: &Relay, sessions: std::ops::Range<u64>) -> BTreeMap<String, u64> {
    let mut served = BTreeMap::new();
    for session in sessions {
        *served.entry(ask(relay, session).await.0).or_default() += 1;
    }
    relay.logged().await;
    served
}

/// Labels so many answers of `a` as wrong.
async fn label_wrong(relay: &Relay, operators: &Operators, count: u64) {
    for session in 0..count {
        let (_, id) = ask(relay, session).await;
        relay.logged().await;
        let (status, answer) = operators.post("/admin/labels", &json!({"request": id, "right": false})).await;
        assert_eq!((status, &answer["upstream"]), (200, &json!("a")), "{answer}");
    }
}

async fn relay(signals: &str, more: &str) -> (Sim, Sim, Relay, Operators) {
    let (a, b) = (Sim::paced("1ms", 3, "").await, Sim::paced("1ms", 3, "").await);
    let text = format!("[signals]\n{signals}\n{}", a_then_b(a.address, b.address, "", more));
    let relay = Relay::start(&text).await;
    let operators = Operators::of(&relay).await;
    (a, b, relay, operators)
}

#[tokio::test]
async fn a_posted_signal_with_harm_moves_traffic_and_its_clear_lets_it_come_back() {
    let settings =
        "act = true\ndwell = \"100ms\"\ncalm = \"200ms\"\nchanges = 1000\n[signals.burst]\neffect = \"cool\"";
    let (_a, _b, relay, operators) = relay(settings, "").await;
    let (status, answer) = operators.post("/admin/signals", &burst("1", "a", "onset")).await;
    assert_eq!((status, &answer[0]["why"]), (200, &json!("no-harm")), "{answer}");
    assert_eq!(served(&relay, 0..20).await["a"], 20, "a signature alone moves nothing");
    label_wrong(&relay, &operators, 20).await;
    let (_, answer) = operators.post("/admin/signals", &json!([burst("1", "a", "refresh")])).await;
    assert_eq!((&answer[0]["acted"], &answer[0]["action"]), (&json!(true), &json!("cool")), "{answer}");
    let shares = served(&relay, 100..160).await;
    assert!(shares["b"] >= 50, "{shares:?}");
    let listed = operators.get("/admin/signals").await;
    assert_eq!(listed["shares"][0]["keeps"], 0.05, "{listed}");
    assert_eq!(listed["signals"][0]["harm"]["labels"]["seen"], "harm", "{listed}");
    // A call that moved says so wherever one looks.
    let moved =
        relay.access.latest(60).into_iter().find(|entry| entry.served_by.as_deref() == Some("b")).unwrap();
    let entry = operators.get(&format!("/admin/requests/{}", moved.id)).await;
    assert_eq!(entry["policy"][0], json!({"policy": "signal:burst", "action": "cool"}), "{entry}");
    assert_eq!(entry["reason"], "steered");
    let counted = "sseismo_steering_decisions_total{route=\"m\",policy=\"signal:burst\",action=\"cool\",mode=\"acted\"}";
    #[expect(clippy::cast_precision_loss, reason = "60 calls")]
    let by_b = shares["b"] as f64;
    assert!((operators.metric(counted).await - by_b).abs() < 0.5);
    operators.post("/admin/signals", &burst("1", "a", "clear")).await;
    let since = Instant::now();
    while operators.get("/admin/signals").await["shares"] != json!([]) {
        assert!(since.elapsed() < Duration::from_secs(30), "it comes back");
        tokio::time::sleep(Duration::from_millis(100)).await;
    }
    assert!(since.elapsed() > Duration::from_secs(1), "step by step");
    assert_eq!(served(&relay, 100..130).await["a"], 30);
}

#[tokio::test]
async fn observe_only_moves_nothing_and_counts_what_would_have() {
    let (_a, b, relay, operators) = relay("[signals.burst]\neffect = \"cool\"", "").await;
    label_wrong(&relay, &operators, 20).await;
    let (_, answer) = operators.post("/admin/signals", &burst("1", "a", "onset")).await;
    assert_eq!((&answer[0]["acted"], &answer[0]["why"]), (&json!(false), &json!("observe-only")));
    assert_eq!(served(&relay, 0..60).await["a"], 60);
    assert!(b.hits().is_empty());
    let counted =
        "sseismo_steering_decisions_total{route=\"m\",policy=\"signal:burst\",action=\"cool\",mode=";
    let would = operators.metric(&format!("{counted}\"would-have\"}}")).await;
    assert!((50.0..=60.0).contains(&would), "{would}");
    assert!(operators.metric(&format!("{counted}\"acted\"}}")).await < 0.5);
    let entry = relay.access.latest(60).into_iter().find(|entry| !entry.would_have.is_empty()).unwrap();
    assert_eq!(entry.would_have[0].why, Some("observe-only"));
}

#[tokio::test]
async fn what_is_posted_wrongly_is_refused_with_its_field() {
    let (_a, _b, relay, operators) = relay("act = true", "").await;
    let mut wrong = burst("1", "a", "onset");
    wrong["target"]["efort"] = json!("high");
    let (status, answer) = operators.post("/admin/signals", &json!([burst("1", "a", "onset"), wrong])).await;
    assert_eq!(status, 400);
    assert!(answer["error"].as_str().unwrap().contains("signal 2: `target.efort`"), "{answer}");
    assert_eq!(operators.get("/admin/signals").await["signals"], json!([]), "none of a bad list is taken");
    let (status, _) = operators.post("/admin/labels", &json!({"request": "none", "right": true})).await;
    assert_eq!(status, 404);
    let url = format!("http://{}/admin/signals", operators.address);
    let stranger = Request::post(&url).body(Full::new(burst("1", "a", "onset").to_string().into())).unwrap();
    assert_eq!(lab::open(stranger).await.status().as_u16(), 401);
    assert_eq!(served(&relay, 0..5).await["a"], 5);
}

#[tokio::test]
async fn policies_move_lower_and_tell_over_sockets() {
    let policies = "[route.deep_concurrency]\npreset = \"write-up\"\nwindow = \"60s\"\nact = true\nlower_effort = true\n\
         [route.size_window]\nlo = 1\nhi = 10000\nwhen = \"always\"";
    let (_a, b, relay, operators) = relay("", policies).await;
    let deep = body(CHAT).replace("\"model\"", "\"reasoning_effort\":\"high\",\"model\"");
    let mut by = Vec::new();
    for _ in 0..8 {
        by.push(
            send(request(relay.address, CHAT, deep.clone())).await.header("x-sseismo-served-by").to_owned(),
        );
    }
    assert_eq!(by, ["a", "a", "a", "a", "a", "a", "b", "b"]);
    relay.logged().await;
    let last = relay.access.latest(1).remove(0);
    let told: Vec<_> = last.policy.iter().map(|told| (told.policy, told.action)).collect();
    assert_eq!(told, [("deep_concurrency", "lower-effort"), ("deep_concurrency", "spill")]);
    assert_eq!(last.would_have[0].policy, "size_window", "{last:?}");
    assert_eq!(relay.records(8).await[7].summary.effort.as_deref(), Some("medium"));
    assert_eq!(b.hits().len(), 2);
    let would = "sseismo_steering_decisions_total{route=\"m\",policy=\"size_window\",action=\"spill\",mode=\"would-have\"}";
    assert!((operators.metric(would).await - 8.0).abs() < 0.5);
}

#[tokio::test]
async fn signals_lower_effort_and_spill_what_they_are_about() {
    let settings = "act = true\n[signals.burst]\neffect = \"lower-effort\"";
    let (_a, b, relay, operators) = relay(settings, "").await;
    label_wrong(&relay, &operators, 20).await;
    let before = relay.records(20).await.len();
    operators.post("/admin/signals", &burst("1", "a", "onset")).await;
    let ask_with = async |effort: &str| {
        let text = body("/v1/responses").replace("\"model\"", &format!("\"reasoning\":{effort},\"model\""));
        assert_eq!(
            send(request(relay.address, "/v1/responses", text)).await.header("x-sseismo-served-by"),
            "a"
        );
        relay.records(1).await[0].summary.effort.clone()
    };
    assert_eq!(before, 20);
    assert_eq!(ask_with("{\"effort\":\"xhigh\",\"summary\":\"auto\"}").await.as_deref(), Some("high"));
    assert_eq!(ask_with("{\"effort\":\"low\"}").await.as_deref(), Some("low"));
    assert_eq!(ask_with("{\"summary\":\"auto\"}").await, None, "no effort is made up");
    assert!(b.hits().is_empty());
    let window = json!({"id": "2", "target": {"upstream": "a", "model": "m"}, "signature": "size-window", "lo": 1,
        "hi": 100, "state": "onset", "ttl": 60_000_000});
    let (_, answer) = operators.post("/admin/signals", &window).await;
    assert_eq!((&answer[0]["action"], &answer[0]["acted"]), (&json!("spill"), &json!(true)), "{answer}");
    let moved = served(&relay, 0..40).await;
    assert!(moved["b"] >= 34, "all but the floor: {moved:?}");
    let long = body(CHAT).replace("12 ab", &"a long prompt ".repeat(60));
    assert_eq!(send(request(relay.address, CHAT, long)).await.header("x-sseismo-served-by"), "a");
}

#[tokio::test]
async fn deep_calls_wait_in_a_bounded_line() {
    let policies = "[route.deep_concurrency]\ncalls = 1\nwindow = \"1ms\"\nact = true\nspill = false\nqueue = 1\n\
         queue_for = \"5s\"";
    let a = Sim::paced("20ms", 30, "").await;
    let text = a_then_b(a.address, lab::nobody().await, "", policies);
    let relay = Relay::start(&text).await;
    let deep = body(CHAT).replace("\"model\"", "\"reasoning_effort\":\"high\",\"model\"");
    let one = || send(request(relay.address, CHAT, deep.clone()));
    let later = async |ms: u64| {
        tokio::time::sleep(Duration::from_millis(ms)).await;
        one().await
    };
    let (first, second, third) = tokio::join!(one(), later(50), later(100));
    assert!([&first, &second, &third].iter().all(|got| got.head.status.as_u16() == 200));
    relay.logged().await;
    let find = |got: &lab::Got| relay.access.find(got.header("x-sseismo-request-id")).unwrap();
    let (first, second, third) = (find(&first), find(&second), find(&third));
    assert_eq!((first.queued_ms, first.policy.len()), (None, 0));
    let waited = second.queued_ms.unwrap();
    assert!(
        waited > 100.0 && (waited + 50.0 - first.duration_ms).abs() < 300.0,
        "{waited}, {}",
        first.duration_ms
    );
    assert_eq!(second.policy[0].action, "queue");
    assert_eq!(third.policy[0].why, Some("line-full"), "{third:?}");
    assert!(third.duration_ms < second.duration_ms);
}

#[tokio::test]
async fn the_primarys_share_sinks_while_it_fails_and_its_callers_do_not_notice() {
    let faults = "[[behaviour]]\nkind = \"http-error\"\nstatus = 500\nshare = 0.3\n";
    let (a, b) = (Sim::paced("1ms", 3, faults).await, Sim::paced("1ms", 3, "").await);
    let policies = "retry_budget = 1.0\n[route.aimd_share]\nact = true\ndwell = \"10ms\"\n";
    // The breaker would open; here it is the share that moves.
    let text = format!(
        "[breaker]\nfailures = 1000\nmin_calls = 50\nopen_at = 1.0\n{}",
        a_then_b(a.address, b.address, "", policies)
    );
    let relay = Relay::start(&text).await;
    served(&relay, 0..150).await; // it asserts that each is answered
    let late = served(&relay, 1_000..1_060).await;
    assert!(late["b"] >= 35, "0.8 at each of several steps: {late:?}");
    let steered = relay.access.latest(60).iter().filter(|entry| entry.reason == Some("steered")).count();
    assert!(steered > 20, "{steered}");
}

/// Random onsets all the time, harm everywhere, every effect at its strongest: traffic moves, the first upstream
/// keeps its floor, the fallback its cap, and nobody is refused.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_storm_of_false_signals_leaves_floor_and_cap() {
    const CAP: u64 = 3;
    const CALLERS: u64 = 12;
    let effects =
        ["burst", "size-window", "concurrency", "saturation", "count-lattice", "retry-amplification"]
            .map(|name| format!("[signals.{name}]\neffect = \"cool\"\n"))
            .concat();
    let settings = format!("act = true\nchanges = 1000\ndwell = \"1ms\"\n{effects}");
    let (a, b, relay, operators) = relay(&settings, &format!("fallback_in_flight = {CAP}")).await;
    label_wrong(&relay, &operators, 30).await;
    let before = (a.hits().len(), b.hits().len());
    let end = Instant::now() + Duration::from_secs(5);
    let storm = async {
        let mut random = ChaCha8Rng::seed_from_u64(8);
        let (mut posted, mut most) = (0, 0.0_f64);
        while Instant::now() < end {
            let upstream = ["a", "a", "b"][random.random_range(0..3)];
            let state = ["onset", "onset", "refresh", "clear"][random.random_range(0..4)];
            let mut signal = burst(&format!("{:x}", random.random_range(1..50)), upstream, state);
            signal["ttl"] = json!(random.random_range(1..3_000_000));
            let (status, answer) = operators.post("/admin/signals", &signal).await;
            assert_eq!(status, 200, "{answer}");
            posted += 1;
            most = most.max(operators.metric("sseismo_route_in_flight{upstream=\"b\"}").await);
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
        (posted, most)
    };
    let callers = async {
        let caller = |caller: u64| {
            let relay = &relay;
            async move {
                let mut session = caller;
                while Instant::now() < end {
                    ask(relay, session).await; // it asserts that nobody is refused
                    session += CALLERS;
                }
            }
        };
        futures_util::future::join_all((0..CALLERS).map(caller)).await;
    };
    let ((posted, most), ()) = tokio::join!(storm, callers);
    relay.logged().await;
    let (at_a, at_b) = (a.hits().len() - before.0, b.hits().len() - before.1);
    assert!(posted > 5 && at_a + at_b > 40, "{posted} signals, {at_a} + {at_b} calls");
    #[expect(clippy::cast_precision_loss, reason = "counts of a short run")]
    let (share, cap) = (at_a as f64 / (at_a + at_b) as f64, CAP as f64);
    eprintln!("{posted} signals; a {at_a}, b {at_b} calls: share {share:.2}; at most {most} at the fallback");
    assert!(at_b > 2, "the storm moves something, or this shows nothing");
    assert!(share >= 0.05, "a kept {share}");
    assert!(most <= cap, "{most} calls at the fallback");
}
