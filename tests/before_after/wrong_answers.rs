//! Saturation: long prompts that are dense with numbers are answered 200 and wrong. Content checks see it, pass whole
//! answers over and put the primary off for such prompts for a while (10 s instead of 5 minutes: then it is asked
//! again); knowing the shape beforehand, the relay sends such prompts to the second tier at once.

use serde_json::Value;

use super::lab::{Case, Line};

const ANSWERS: &str = "[answer]
reasoning = { median = 15, sigma = 0.3 }
output = { median = 20, sigma = 0.3 }
first-token = \"150ms\"
first-token-sigma = 0.2
per-prompt-token = \"0ms\"
[[behaviour]]
kind = \"steady\"
gap = \"10ms\"
";

fn case(policies: &'static str) -> Case {
    Case {
        load: "[load]\narrivals = { rate = 6 }\nsessions = 100000\njson = 1\nnumeric = 0.6\nstreamed = 0.5\n\
               prompt = { median = 2500, sigma = 1.0 }\n"
            .to_owned(),
        requests: 360,
        primary: format!("{ANSWERS}[[behaviour]]\nkind = \"saturation\"\nfails = 0.8\nfails-elsewhere = 0\n"),
        fallback: ANSWERS.to_owned(),
        policies,
        ..Case::default()
    }
}

/// Runs both.
pub(crate) fn lines() -> Vec<Line> {
    let checks = "[route.content_checks]\nact = ACT\noff = \"10s\"\n";
    let ran = case(checks).run();
    let valid = ran.compare(|_, _| true).share("valid at first parse");
    let [healthy, direct, telling, acting] = valid.all();
    assert!(healthy > 0.999 && direct < 0.9 && telling < 0.9, "{valid:?}");
    assert!(1.0 - acting < 0.5 * (1.0 - direct), "{valid:?}");
    let is_wrong =
        |tried: &&Value| !matches!(tried["content_check"].as_str(), None | Some("ok" | "not-checked"));
    let wrong =
        |line: &Value| line["attempts"].as_array().is_some_and(|all| all.iter().any(|one| is_wrong(&one)));
    let served = |line: &Value| {
        let number = line["attempt"].as_u64().unwrap_or(1);
        line["attempts"]
            .as_array()
            .and_then(|all| all.iter().find(|one| one["number"] == number))
            .is_some_and(|one| is_wrong(&one))
    };
    let caught = ran.acting.log.iter().filter(|line| wrong(line) && !served(line)).count();
    let passed = ran.acting.log.iter().filter(|line| served(line)).count();
    assert!(caught > 0, "whole answers that are wrong are passed over");
    let told = ran.acting.told("policy");
    let opened = told.get("content_checks off-for-shape").copied().unwrap_or_default();
    assert!(opened >= 2, "opened, closed and opened again: {told:?}");
    let steering = ran.steering();
    let mut lines = vec![
        valid.line("saturation", "answers that are the JSON asked for, with content checks", &steering),
        Line([
            String::new(),
            "wrong answers: seen by the check and replaced / passed on (streams)".into(),
            "–".into(),
            "–".into(),
            "–".into(),
            format!("{caught} / {passed}"),
            format!("circuit opened {opened} times for 10 s | "),
        ]),
    ];
    let ran = case("[route.prompt_shape]\npreset = \"write-up\"\nact = ACT\n").run();
    let valid = ran.compare(|_, _| true).share("valid at first parse");
    let [_, direct, _, acting] = valid.all();
    assert!(direct < 0.9 && acting > 0.97, "{valid:?}");
    lines.push(valid.line("", "the same, by prompt shape to tier 2", &ran.steering()));
    lines
}
