//! Policies of routes over real sockets on loopback: what each moves, refuses or changes, and that without
//! `act = true` it only tells.

#![expect(
    clippy::unwrap_used,
    clippy::disallowed_methods,
    clippy::panic,
    reason = "a test stops at what it does not expect, and its bounds are in real time"
)]

#[path = "route/lab.rs"]
#[expect(dead_code, reason = "shared with the tests of the routing relay")]
mod lab;

use std::collections::BTreeMap;

use lab::{ALL, CHAT, Got, Relay, Sim, request, send, upstream};
use sseismo_capture::tap::Record;
use sseismo_router::access::Entry;
use sseismo_trace::ContentCheck;

/// Two healthy upstreams behind a route with these lines; `a` and `b` have further lines of their own.
async fn two(more_a: &str, more_b: &str, route: &str) -> (Sim, Sim, Relay) {
    let (a, b) = (Sim::paced("1ms", 3, "").await, Sim::paced("1ms", 3, "").await);
    let relay = Relay::start(&over(&a, &b, more_a, more_b, route)).await;
    (a, b, relay)
}

fn over(a: &Sim, b: &Sim, more_a: &str, more_b: &str, route: &str) -> String {
    let upstreams = [("a", a, more_a), ("b", b, more_b)]
        .map(|(name, sim, more)| upstream(name, sim.address, &format!("{ALL}\n{more}")));
    format!("{}[[route]]\nmodel = \"m\"\ntiers = [[\"a\"], [\"b\"]]\n{route}\n", upstreams.concat())
}

/// A request for a streamed answer with this prompt and these further members.
fn prompt(prompt: &str, more: &str) -> String {
    format!(r#"{{"model":"m","stream":true{more},"messages":[{{"role":"user","content":"{prompt}"}}]}}"#)
}

async fn ask(relay: &Relay, body: String) -> Got {
    send(request(relay.address, CHAT, body)).await
}

/// Who served it.
async fn served_by(relay: &Relay, body: String) -> String {
    let got = ask(relay, body).await;
    assert_eq!(got.head.status.as_u16(), 200, "{}", got.text);
    got.header("x-sseismo-served-by").to_owned()
}

/// What was done about the last request, and what would have been: `policy action why`.
async fn told(relay: &Relay) -> (Vec<String>, Vec<String>) {
    relay.logged().await;
    let last = relay.access.latest(1).remove(0);
    let names = |told: &[sseismo_router::policy::Told]| {
        let words = |told: &sseismo_router::policy::Told| {
            [Some(told.policy), Some(told.action), told.why]
                .into_iter()
                .flatten()
                .collect::<Vec<_>>()
                .join(" ")
        };
        told.iter().map(words).collect()
    };
    (names(&last.policy), names(&last.would_have))
}

/// Every policy's table is tried as it is and with `act = true`.
fn acting(table: &str) -> [(bool, String); 2] {
    [(false, table.to_owned()), (true, format!("{table}\nact = true"))]
}

#[tokio::test]
async fn long_dense_prompts_go_to_the_second_tier() {
    let dense = prompt(&"1234.5, ".repeat(2_000), "");
    for (acts, table) in acting("[route.prompt_shape]\npreset = \"write-up\"") {
        let (_a, _b, relay) = two("", "", &table).await;
        assert_eq!(served_by(&relay, prompt("how much is 1 + 1?", "")).await, "a");
        assert_eq!(told(&relay).await, (vec![], vec![]));
        assert_eq!(served_by(&relay, dense.clone()).await, if acts { "b" } else { "a" });
        let (done, would) = told(&relay).await;
        if acts {
            assert_eq!((done, would), (vec!["prompt_shape from-tier".to_owned()], vec![]));
        } else {
            assert_eq!((done, would), (vec![], vec!["prompt_shape from-tier observe-only".to_owned()]));
        }
    }
}

#[tokio::test]
async fn money_is_spent_up_to_the_ceiling_and_no_further() {
    let price = |usd: u32| format!("prices = {{ m = {{ input = {usd}, output = {usd} }} }}");
    // 300 tokens of prompt or so: 0.30 at `a`, 0.03 at `b`.
    let body = prompt(&"a word ".repeat(160), "");
    for (acts, table) in acting("[route.cost_ceiling]\nper_call = 0.1\nper_hour = 0.05\nexpected_output = 0")
    {
        let (a, b, relay) = two(&price(1_000), &price(100), &table).await;
        assert_eq!(served_by(&relay, body.clone()).await, if acts { "b" } else { "a" });
        let (done, would) = told(&relay).await;
        let said = if acts { done } else { would };
        assert_eq!(said, [if acts { "cost_ceiling without" } else { "cost_ceiling without observe-only" }]);
        assert_eq!(relay.access.latest(1)[0].passed_over.len(), usize::from(acts));
        let got = ask(&relay, body.clone()).await;
        let (done, would) = told(&relay).await;
        if acts {
            assert_eq!(got.head.status.as_u16(), 429, "{}", got.text);
            assert!(got.text.contains("lets one caller spend in an hour"), "{}", got.text);
            let seconds: u32 = got.header("retry-after").parse().unwrap();
            assert!((3_000..=3_600).contains(&seconds), "{seconds}");
            assert_eq!(
                (done, a.hits().len(), b.hits().len()),
                (vec!["cost_ceiling refuse".to_owned()], 0, 1)
            );
        } else {
            assert_eq!((would, a.hits().len()), (vec!["cost_ceiling refuse observe-only".to_owned()], 2));
        }
    }
    let (a, _b, relay) = two(&price(1_000), "", "[route.cost_ceiling]\nper_call = 0.1\nact = true").await;
    assert_eq!(served_by(&relay, body).await, "b", "its price is not known");
    let (done, would) = told(&relay).await;
    assert_eq!(done, ["cost_ceiling without"]);
    assert_eq!((would, a.hits().len()), (vec!["cost_ceiling enforce unknown-price".to_owned()], 0));
}

/// An upstream that answers long numeric prompts 200 and wrong: JSON that breaks off, a placeholder, nothing.
const SATURATED: &str = "[[behaviour]]\nkind = \"saturation\"\ntokens = 100\nnumeric-share = 0.3\nfails = 1.0\nfails-elsewhere = 0.0\n";

/// `a` is saturated by numbers.
async fn saturated(route: &str) -> (Sim, Sim, Relay) {
    let (a, b) = (Sim::paced("1ms", 3, SATURATED).await, Sim::paced("1ms", 3, "").await);
    let relay = Relay::start(&over(&a, &b, "", "", route)).await;
    (a, b, relay)
}

fn numbers(streamed: bool) -> String {
    let json = r#","response_format":{"type":"json_object"}"#;
    let body = prompt(&"1234.5, ".repeat(300), json);
    if streamed { body } else { body.replace(r#""stream":true"#, r#""stream":false"#) }
}

#[tokio::test]
async fn wrong_answers_are_passed_over_while_they_can_be_and_put_an_upstream_off_for_their_shape() {
    for (acts, table) in acting("[route.content_checks]") {
        let (a, b, relay) = saturated(&table).await;
        for call in 0..4 {
            let got = ask(&relay, numbers(false)).await;
            assert_eq!(got.head.status.as_u16(), 200, "{}", got.text);
            let last = if acts { "b" } else { "a" };
            assert_eq!(got.header("x-sseismo-served-by"), last, "{call}");
            relay.logged().await;
            let entry = relay.access.latest(1).remove(0);
            let checks: Vec<_> = entry.attempts.iter().map(|tried| tried.content_check).collect();
            let expected = match (acts, call) {
                (true, 0..3) => 2,
                // It is told only; or `a` is off, and `b` is asked at once.
                _ => 1,
            };
            assert_eq!(checks.len(), expected, "{entry:?}");
            if expected == 2 {
                assert_eq!(entry.attempts[0].outcome, "content-check");
                assert!(entry.attempts[0].tokens.output.is_some(), "what it cost is counted: {entry:?}");
            }
            let wrong = checks[0] != ContentCheck::Ok && checks[0] != ContentCheck::NotChecked;
            assert_eq!(wrong, !(acts && call == 3), "{checks:?}");
            if acts {
                assert_eq!(checks.last(), Some(&ContentCheck::Ok));
                assert!(got.text.contains("answer"), "{}", got.text);
            }
        }
        let (done, would) = told(&relay).await;
        if acts {
            assert_eq!((done, would), (vec!["content_checks avoid".to_owned()], vec![]));
        } else {
            assert_eq!((done, would), (vec![], vec!["content_checks avoid observe-only".to_owned()]));
        }
        assert_eq!((a.hits().len(), b.hits().len()), if acts { (3, 4) } else { (4, 0) });
        assert_eq!(
            served_by(&relay, prompt("how much is 1 + 1?", "")).await,
            "a",
            "its breaker heard nothing"
        );
        let records = relay.records(if acts { 8 } else { 5 }).await;
        let wrong = |record: &&Record| {
            !matches!(record.summary.content_check, ContentCheck::Ok | ContentCheck::NotChecked)
        };
        let of_a = |record: &&Record| record.summary.upstream.as_deref() == Some("a");
        assert_eq!(records.iter().filter(wrong).count(), if acts { 3 } else { 4 });
        assert!(records.iter().filter(wrong).all(|record| of_a(&record)));
        let checked = records.iter().filter(|record| record.summary.content_check == ContentCheck::Ok);
        assert_eq!(checked.count(), if acts { 5 } else { 1 });
    }
}

/// What is streamed cannot be taken back: it is counted, and the fourth call goes elsewhere.
#[tokio::test]
async fn streamed_wrong_answers_are_only_counted() {
    let (a, b, relay) = saturated("[route.content_checks]\nact = true").await;
    for call in 0..4 {
        let expected = if call < 3 { "a" } else { "b" };
        let got = ask(&relay, numbers(true)).await;
        assert_eq!(got.header("x-sseismo-served-by"), expected, "{call}: {}", got.text);
        relay.logged().await; // an answer is checked when it has ended
    }
    assert_eq!((a.hits().len(), b.hits().len()), (3, 1));
    let mut records = relay.records(4).await;
    records.sort_by_key(|record| record.summary.started_at);
    let checks: Vec<_> = records.iter().map(|record| record.summary.content_check).collect();
    assert_eq!(checks[3], ContentCheck::Ok);
    assert!(checks[..3].iter().all(|check| *check != ContentCheck::Ok && *check != ContentCheck::NotChecked));
}

fn in_session(
    relay: &Relay,
    session: u64,
    body: String,
) -> hyper::Request<http_body_util::Full<bytes::Bytes>> {
    let mut request = request(relay.address, CHAT, body);
    request.headers_mut().insert("session-id", format!("session {session}").parse().unwrap());
    request
}

/// Who served each of so many sessions.
async fn served(relay: &Relay, sessions: std::ops::Range<u64>) -> BTreeMap<String, usize> {
    let mut served = BTreeMap::new();
    for session in sessions {
        let got = send(in_session(relay, session, prompt("x", ""))).await;
        assert_eq!(got.head.status.as_u16(), 200, "{}", got.text);
        *served.entry(got.header("x-sseismo-served-by").to_owned()).or_default() += 1;
    }
    relay.logged().await;
    served
}

/// How often a policy did something, and how often it would have.
fn count(relay: &Relay, told: &str) -> (usize, usize) {
    let is = |one: &&sseismo_router::policy::Told| format!("{} {}", one.policy, one.action) == told;
    let entries = relay.access.latest(1_000);
    let of = |told: fn(&Entry) -> &Vec<sseismo_router::policy::Told>| {
        entries.iter().map(|entry| told(entry).iter().filter(is).count()).sum()
    };
    (of(|entry| &entry.policy), of(|entry| &entry.would_have))
}

#[tokio::test]
async fn a_bucket_lets_a_burst_through_and_sends_the_rest_elsewhere() {
    for (acts, table) in acting("[route.token_bucket]\nburst = 3\nper_second = 0.01") {
        let (a, b, relay) = two("", "", &table).await;
        let served = served(&relay, 0..8).await;
        assert_eq!((a.hits().len(), b.hits().len()), if acts { (5, 3) } else { (8, 0) }, "{served:?}");
        // Three at each; then nobody has room, and it goes on.
        assert_eq!(count(&relay, "token_bucket avoid"), if acts { (3, 0) } else { (0, 5) });
    }
    let limits = "[[behaviour]]\nkind = \"quota\"\nof = \"requests\"\nlimit = 2\n";
    for (acts, table) in acting("[route.token_bucket]\nempty = [\"next\", \"refuse\"]") {
        let (a, b) = (Sim::paced("1ms", 3, limits).await, Sim::paced("1ms", 3, limits).await);
        let relay = Relay::start(&over(&a, &b, "", "", &table)).await;
        let mut statuses = Vec::new();
        for session in 0..6 {
            let got = send(in_session(&relay, session, prompt("x", ""))).await;
            statuses.push(got.head.status.as_u16());
            if acts && session == 5 {
                assert!(got.text.contains("as many requests as it takes"), "{}", got.text);
                assert_ne!(got.header("retry-after"), "");
            }
        }
        // Both refuse in the fifth call, and say with it that nothing is left.
        assert_eq!(statuses[..4], [200; 4]);
        assert_eq!(statuses[4..], [429; 2]);
        let (done, would) = told(&relay).await;
        assert_eq!(
            (done.contains(&"token_bucket refuse".to_owned()), would.is_empty()),
            (acts, acts),
            "{done:?} {would:?}"
        );
    }
}

#[tokio::test]
async fn an_empty_bucket_can_be_waited_for() {
    let table =
        "[route.token_bucket]\nburst = 2\nper_second = 5\nempty = [\"queue\"]\njitter = 0.0\nact = true";
    let (a, _b, relay) = two("", "", table).await;
    let since = std::time::Instant::now();
    served(&relay, 0..5).await;
    assert_eq!((a.hits().len(), count(&relay, "token_bucket wait").0 >= 2), (5, true));
    assert!(since.elapsed() > std::time::Duration::from_millis(400), "{:?}", since.elapsed());
}

#[tokio::test]
async fn who_comes_back_warms_up() {
    let dead = "[[behaviour]]\nkind = \"http-error\"\nstatus = 500\nuntil = \"700ms\"\n";
    for (acts, table) in acting("[route.warm_up]\nshares = [0.3]\nstep = \"10m\"") {
        let (a, b) = (Sim::paced("1ms", 3, dead).await, Sim::paced("1ms", 3, "").await);
        let breaker = "[breaker]\ncooldown = \"200ms\"\nmax_cooldown = \"200ms\"\n";
        let relay = Relay::start(&format!("{}{breaker}", over(&a, &b, "", "", &table))).await;
        let since = std::time::Instant::now();
        while since.elapsed() < std::time::Duration::from_secs(1) {
            served(&relay, 0..1).await;
        }
        let mut of_a = 0;
        for round in 0..20 {
            // The probe that closes the breaker is among these.
            of_a = served(&relay, 1_000..1_100).await.get("a").copied().unwrap_or(0);
            if of_a > 10 || round > 3 {
                break;
            }
        }
        if acts {
            assert!((15..45).contains(&of_a), "{of_a} of 100 at 30 %");
            assert!(count(&relay, "warm_up avoid").0 > 50);
        } else {
            assert!(of_a > 90, "{of_a} of 100");
            assert!(count(&relay, "warm_up avoid").1 > 50);
        }
    }
}

#[tokio::test]
async fn raw_reasoning_is_ended_when_it_is_over_budget() {
    let high = prompt("x", r#","reasoning_effort":"high""#);
    for (acts, table) in acting("[route.reasoning_budget]\nper_call = 100\nanswer_tokens = 900") {
        // 1,500 tokens of reasoning, 1 ms each.
        let (a, b) = (Sim::paced("1ms", 1_500, "").await, Sim::paced("1ms", 3, "").await);
        let relay = Relay::start(&over(&a, &b, "", "", &table)).await;
        let got = ask(&relay, high.clone()).await;
        let hit = a.hit(0).await;
        let (done, would) = told(&relay).await;
        let entry = relay.access.latest(1).remove(0);
        let shown = entry.attempts[0].reasoning_est.unwrap();
        if acts {
            assert!(done.contains(&"reasoning_budget stop-reasoning".to_owned()), "{done:?}");
            assert!(got.text.contains(r#""finish_reason":"length""#), "{}", got.text);
            assert!(got.whole && got.text.ends_with("data: [DONE]\n\n") && shown < 1_000, "{shown}");
            assert_eq!((entry.outcome, entry.attempts[0].outcome.as_str()), ("stopped-by-policy", "neutral"));
            assert_eq!(relay.records(1).await[0].summary.outcome, sseismo_trace::Outcome::Incomplete);
            assert_eq!(hit.line["truth"]["ask"]["max_tokens"], 1_000, "{}", hit.line);
        } else {
            let expected = "reasoning_budget stop-reasoning observe-only".to_owned();
            assert!(done.is_empty() && would.contains(&expected), "{would:?}");
            assert!(got.text.contains("[DONE]") && shown >= 1_000, "{shown}");
            assert_eq!(hit.line["truth"]["ask"]["max_tokens"], serde_json::Value::Null, "{}", hit.line);
        }
    }
}

/// The arm with the canary, the sessions that saw it, and its end when it does badly.
#[tokio::test]
async fn a_canary_that_fails_is_rolled_back_and_one_that_does_not_grows() {
    let table = "[route.canary]\nupstream = \"b\"\nshares = [0.3, 1.0]\nleast = 20\ndwell = \"1ms\"";
    let failing = "[[behaviour]]\nkind = \"http-error\"\nstatus = 500\n";
    for (acts, table) in acting(table) {
        for (faults, ends) in [("", "canary step"), (failing, "canary roll-back")] {
            let (a, b) = (Sim::paced("1ms", 3, "").await, Sim::paced("1ms", 3, faults).await);
            // A breaker that stays closed: the canary's own verdict is what is seen here.
            let breaker = "[breaker]\nfailures = 1000\nmin_calls = 1000\nwindow = 1000\n";
            let route = format!("retry_budget = 1.0\n{table}");
            let relay = Relay::start(&format!("{}{breaker}", over(&a, &b, "", "", &route))).await;
            served(&relay, 0..150).await;
            let told = count(&relay, ends);
            if !acts {
                assert_eq!((told, b.hits().len()), ((0, 0), 0));
                assert!((20..70).contains(&count(&relay, "canary prefer").1));
                continue;
            }
            assert_eq!(told, (1, 0), "{ends}");
            let late = served(&relay, 1_000..1_020).await;
            assert_eq!(
                late.keys().collect::<Vec<_>>(),
                [if faults.is_empty() { "b" } else { "a" }],
                "{late:?}"
            );
            let arms: BTreeMap<Option<String>, usize> =
                relay.records(100).await.iter().fold(BTreeMap::new(), |mut arms, record| {
                    *arms.entry(record.summary.canary_arm.clone()).or_default() += 1;
                    arms
                });
            assert!(
                arms.contains_key(&Some("canary".into())) && arms.contains_key(&Some("control".into())),
                "{arms:?}"
            );
        }
    }
}
