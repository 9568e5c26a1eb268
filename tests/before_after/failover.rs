//! From its 6th second on the primary answers 503: the relay moves each request on before its client notices, and
//! leaves the primary alone after the third failure.

use super::lab::{ANSWERS, Case, Line};

fn case() -> Case {
    Case {
        load: "[load]\narrivals = { rate = 10 }\nsessions = 100000\n".to_owned(),
        requests: 160,
        primary: format!("{ANSWERS}[[behaviour]]\nkind = \"http-error\"\nstatus = 503\nfrom = \"6s\"\n"),
        fallback: ANSWERS.to_owned(),
        ..Case::default()
    }
}

/// What the write-ups call a switch must be over in this time, ms.
const SWITCH_MS: f64 = 1_800.0;

/// Runs it.
pub(crate) fn lines() -> Vec<Line> {
    let ran = case().run();
    // The primary's clock started up to a second before the load's.
    let table = ran.compare(|_, since| since > 6.0);
    let done = table.share("completed");
    let [_, direct, telling, acting] = done.all();
    assert!(direct < 0.01 && telling < 0.01, "the primary is down: {done:?}");
    assert!(acting > 0.99, "the fallback serves: {done:?}");

    let wait = |line: &&serde_json::Value| line["attempts"][0]["status"] == 503;
    let met: Vec<&serde_json::Value> = ran.acting.log.iter().filter(wait).collect();
    assert!(!met.is_empty(), "somebody met a 503");
    let longest = met
        .iter()
        .map(|line| line["first_content_ms"].as_f64().expect("content from the fallback"))
        .fold(0.0, f64::max);
    // A busy machine makes all wait.
    let ordinary = ran.healthy.replay["first_content_us"]["max"].as_f64().expect("content") / 1e3;
    assert!(longest < SWITCH_MS + ordinary, "switching took {longest} ms: {met:#?}");
    vec![
        done.line("503s on the primary", "success", "–"),
        Line([
            String::new(),
            format!("longest wait for the first token of the {} calls that met a 503", met.len()),
            "–".into(),
            "for ever".into(),
            "for ever".into(),
            format!("{longest:.0} ms"),
            format!("below {SWITCH_MS:.0} ms | –"),
        ]),
    ]
}
