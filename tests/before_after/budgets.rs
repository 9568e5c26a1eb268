//! Budget guard. Every tenth call of the primary reasons without end, up to its limit of 2,000 tokens: the relay
//! stops at 200. And a caller who may spend a twentieth of a dollar an hour spends no more than that.

use serde_json::Value;

use super::lab::{BRIEF_ANSWERS, Case, Line, Way};

const LOAD: &str =
    "[load]\narrivals = { rate = 6 }\nsessions = 100000\nprompt = { median = 400, sigma = 0.5 }\n";

/// Runs both.
pub(crate) fn lines() -> Vec<Line> {
    let mut lines = reasoning();
    lines.extend(money());
    lines
}

fn reasoning() -> Vec<Line> {
    let case = Case {
        load: LOAD.to_owned(),
        requests: 300,
        primary: format!("{BRIEF_ANSWERS}[[behaviour]]\nkind = \"endless\"\nlimit = 2000\nshare = 0.1\n"),
        fallback: BRIEF_ANSWERS.to_owned(),
        policies: "[route.reasoning_budget]\nper_call = 200\nanswer_tokens = 100\nact = ACT\n",
        ..Case::default()
    };
    let ran = case.run();
    let ways = [&ran.healthy, &ran.direct, &ran.telling, &ran.acting].map(generated);
    let [_, direct, telling, acting] = ways;
    assert!(direct > 1_500.0 && telling > 1_500.0 && acting < 400.0, "{ways:?}");
    let [healthy, direct, telling, acting] = ways.map(|tokens| format!("{tokens:.0}"));
    let end = ran.compare(|_, _| true).quantile("t_end", 0.9);
    vec![
        Line([
            "budget guard".into(),
            "most reasoning tokens that a call generated".into(),
            healthy,
            direct,
            telling,
            acting,
            format!("budget 200 | {}", ran.steering()),
        ]),
        end.line("", "whole answer, p90", ""),
    ]
}

/// The most reasoning tokens that one call of the primary generated before it was ended.
fn generated(way: &Way) -> f64 {
    let of_call = |line: &Value| {
        let number = |value: &Value| value.as_f64().unwrap_or_default();
        let sent = number(&line["sent_writes"]) / number(&line["writes"]).max(1.0);
        number(&line["truth"]["reasoning_tokens"]) * sent
    };
    way.truth.iter().map(of_call).fold(0.0, f64::max)
}

fn money() -> Vec<Line> {
    let case = Case {
        load: LOAD.to_owned(),
        requests: 200,
        primary: BRIEF_ANSWERS.to_owned(),
        fallback: BRIEF_ANSWERS.to_owned(),
        upstreams: "[upstream.prices]\n\"sim-reasoner\" = { input = 1.0, output = 10.0 }\n",
        policies: "[route.cost_ceiling]\nper_hour = 0.05\nact = ACT\n",
        ..Case::default()
    };
    let ran = case.run();
    let spent = |way: &Way| way.log.iter().filter_map(|line| line["cost_usd"].as_f64()).sum::<f64>();
    let (telling, acting) = (spent(&ran.telling), spent(&ran.acting));
    assert!(telling > 0.08 && acting <= 0.0505, "spent {telling} and {acting} US dollars");
    let success = ran.compare(|_, _| true).share("completed");
    vec![
        Line([
            String::new(),
            "US dollars spent, of 0.05 an hour".into(),
            "–".into(),
            "–".into(),
            format!("{telling:.3}"),
            format!("{acting:.3}"),
            format!("– | {}", ran.steering()),
        ]),
        success.line("", "calls served (the others get 429 and the time to wait)", ""),
    ]
}
