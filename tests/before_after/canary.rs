//! A canary that is worse: of its requests 40 % fail. It gets 10 % of sessions, is held against the others after 20
//! calls, and is rolled back. Directly means all traffic on the new upstream at once, healthy the old one.

use super::lab::{BRIEF_ANSWERS, Case, Line};

fn case() -> Case {
    Case {
        load: "[load]\narrivals = { rate = 15 }\nsessions = 400\n".to_owned(),
        requests: 900,
        primary: format!("{BRIEF_ANSWERS}[[behaviour]]\nkind = \"http-error\"\nstatus = 503\nshare = 0.4\n"),
        fallback: BRIEF_ANSWERS.to_owned(),
        tiers: "[[\"b\"], [\"a\"]]",
        policies: "[route.canary]\nupstream = \"a\"\nact = ACT\nshares = [0.1, 0.25, 1.0]\nleast = 20\ndwell = \"10s\"\n",
        ..Case::default()
    }
}

/// Runs it.
pub(crate) fn lines() -> Vec<Line> {
    let ran = case().run();
    let success = ran.compare(|_, _| true).share("completed");
    let [_, direct, telling, acting] = success.all();
    assert!(direct < 0.7 && telling > 0.99 && acting > 0.99, "{success:?}");
    let told = ran.acting.told("policy");
    assert_eq!(told.get("canary roll-back"), Some(&1), "{told:?}");
    let rolled = ran.acting.log.iter().position(|line| line["policy"].to_string().contains("roll-back"));
    let at_canary = |lines: &[serde_json::Value]| {
        lines.iter().filter(|line| line["attempts"][0]["upstream"] == "a").count()
    };
    let (before, after) = ran.acting.log.split_at(rolled.expect("a call that told it") + 1);
    let (before, all, after) = (at_canary(before), before.len(), at_canary(after));
    assert!(after <= 5, "{after} calls at a canary that was rolled back");
    assert_eq!(at_canary(&ran.telling.log), 0, "telling sends nothing to the canary");
    vec![
        success.line("canary that fails 40 %", "success", &ran.steering()),
        Line([
            String::new(),
            "calls at the canary until it was rolled back, and after that".into(),
            "–".into(),
            "900".into(),
            "0".into(),
            format!("{before} of the first {all}, then {after}"),
            "– | ".into(),
        ]),
    ]
}
