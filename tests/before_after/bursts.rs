//! Bursts: from its 60th second on the primary begins a second late and flushes 40 to 80 tokens after dead air. The
//! live detector has learned what is healthy there and signals the change, the relay sees that users wait longer and
//! leaves the primary its floor. Bursts that nobody waits longer for are told and not acted on.
//!
//! Time is compressed: harm is judged by the last 15 s instead of a minute, the detector may raise one false alarm
//! an hour instead of one in 30 days, and the primary cools at once instead of by steps. Measured from 30 s after
//! the onset on.

use super::lab::{Case, Line};

const ANSWERS: &str = "[answer]
reasoning = { median = 150, sigma = 0.2 }
output = { median = 20, sigma = 0.2 }
first-token = \"150ms\"
first-token-sigma = 0.2
[[behaviour]]
kind = \"lognormal\"
";

fn case() -> Case {
    Case {
        load: "[load]\narrivals = { rate = 3 }\nsessions = 100000\n".to_owned(),
        requests: 480,
        primary: format!(
            "{ANSWERS}[[behaviour]]\nkind = \"write-up-burst\"\nfrom = \"60s\"\n[[behaviour]]\nkind = \"silence\"\n\
             at = \"after-headers\"\nlasts = \"1s\"\nfrom = \"60s\"\n"
        ),
        fallback: ANSWERS.to_owned(),
        policies: "[signals]\nact = ACT\nharm_recent = \"15s\"\n[signals.burst]\neffect = \"cool\"\n",
        relay: &["--false-alarm-every", "1h"],
        ..Case::default()
    }
}

/// Runs it.
pub(crate) fn lines() -> Vec<Line> {
    let ran = case().run();
    let table = ran.compare(|_, since| since > 90.0);
    let events = table.rate("cluster events per hour");
    let [_, direct, telling, acting] = events.all();
    assert!(direct > 100.0 && telling > 100.0, "{events:?}");
    assert!(acting < 0.2 * direct, "{events:?}\n{:?}", ran.acting.signals);
    let steering = ran.steering();
    vec![
        events.line("bursts", "cluster events", &steering),
        table.quantile("t_first_reasoning", 0.5).line("", "first token, p50", ""),
    ]
}
