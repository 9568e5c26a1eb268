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

use lab::{ALL, CHAT, Got, Relay, Sim, request, send, upstream};

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
