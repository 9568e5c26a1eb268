//! Concurrency cooldown: of more than 6 deep calls in 3 s those above it stall together, and after that deep calls
//! get 429. The relay lets 6 in 4 s begin at the primary; the others go to the fallback.
//!
//! Window, stall and cooldown are those of the write-ups; the batches come each 20 s.

use super::lab::{BRIEF_ANSWERS, Case, Line};

fn case() -> Case {
    Case {
        load: "[load]
arrivals = { rate = 14, batch = 12, batch-every = \"20s\", batch-spread = \"2s\" }
efforts = { medium = 0.94, high = 0.06 }
sessions = 200
"
        .to_owned(),
        requests: 1_200,
        primary: format!(
            "{BRIEF_ANSWERS}[[behaviour]]\nkind = \"concurrency-cooldown\"\ncalls = 6\nwindow = \"3s\"\nstall = \"8s\"\n\
             cooldown = \"5s\"\n"
        ),
        fallback: BRIEF_ANSWERS.to_owned(),
        policies: "[route.deep_concurrency]\npreset = \"write-up\"\nact = ACT\n",
        ..Case::default()
    }
}

/// Runs it.
pub(crate) fn lines() -> Vec<Line> {
    let ran = case().run();
    let all = ran.compare(|_, _| true);
    let deep = ran.compare(|summary, _| summary.effort.as_deref() == Some("high"));
    let (success, p99) = (deep.share("completed"), all.quantile("t_first_reasoning", 0.99));
    let chains = all.share("sessions of 5 or more calls in which every call succeeded");
    let [_, direct, _, acting] = success.all();
    assert!(direct < 0.95 && acting > 0.98, "{success:?}");
    // A busy machine delays all ways alike; the stall is the primary's alone.
    let [healthy, direct, telling, acting] = p99.all();
    assert!(direct > 3.0 * healthy && telling > 3.0 * healthy && acting < 0.6 * direct, "{p99:?}");
    let [_, direct, _, acting] = chains.all();
    assert!(direct < 0.95 && acting > 0.98, "{chains:?}");
    let steering = ran.steering();
    vec![
        success.line("concurrency cooldown", "success of deep calls", &steering),
        p99.line("", "first token, p99, of all calls", ""),
        chains.line("", "chains of 5 or more steps in which every step succeeded", ""),
    ]
}
