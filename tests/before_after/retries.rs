//! The primary refuses a third of all requests with 503 and Retry-After, and clients ask again up to 4 times.
//! Behind the relay a client asks once.

use super::lab::{ANSWERS, Case, Line};

fn case() -> Case {
    Case {
        load: "[load]\narrivals = { rate = 15 }\nsessions = 100000\n".to_owned(),
        requests: 180,
        primary: format!(
            "{ANSWERS}[[behaviour]]\nkind = \"http-error\"\nstatus = 503\nshare = 0.35\nretry-after = \"1s\"\n"
        ),
        fallback: ANSWERS.to_owned(),
        replay: &["--retries", "4"],
        ..Case::default()
    }
}

/// Runs it.
pub(crate) fn lines() -> Vec<Line> {
    let ran = case().run();
    let table = ran.compare(|_, _| true);
    let posts = table.mean("attempts per client turn");
    let [healthy, direct, telling, acting] = posts.all();
    assert!((healthy - 1.0).abs() < 1e-9, "{posts:?}");
    // 1 / (1 − 0.35), less what the fifth attempt cuts off.
    assert!((1.3..1.8).contains(&direct) && (1.3..1.8).contains(&telling), "{posts:?}");
    assert!(acting < 1.1, "{posts:?}");
    let upstream = ran.upstream();
    vec![
        posts.line("retry amplification", "POSTs of a client per turn", "–"),
        upstream.mean("attempts per client turn").line("", "POSTs to upstreams per turn", "–"),
        table.quantile("t_first_reasoning", 0.9).line("", "first token, p90, of attempts that have one", "–"),
    ]
}
