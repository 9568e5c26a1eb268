//! Sizes that converge: while prompts have all sizes, the shard that those of 150 to 220 tokens are pinned to keeps
//! up. Then most prompts have such a size and queue there. Nobody has named a window and no policy is configured: the
//! live detector, which has seen healthy waits of all sizes, finds the window; the relay sees that calls of those
//! sizes wait longer than it has learned, and sends them to the fallback first.
//!
//! Time is compressed: harm is judged by the last 8 s instead of a minute, and the detector may raise one false
//! alarm an hour instead of one in 30 days. Windows are looked for every 200 calls: the signal comes some 9 s after
//! the change. Measured from 13 s after it on.

use std::ops::ControlFlow;

use serde_json::Value;
use sseismo_trace::parquet::Dataset;
use sseismo_trace::{SignalState, SignatureId};

use super::lab::{Case, Line, Way};
use super::sizes::{ANSWERS, pinned};

/// How the access log names what the signal does.
const SPILLED: &str = "signal:size-window spill";

/// Calls a second, calls of all sizes, and calls of converged ones: 15 s and 18 s.
const RATE: usize = 30;
const SPREAD: usize = 15 * RATE;
const CONVERGED: usize = 18 * RATE;

/// Calls that the signal is about while it lives, at least: they come at 15 to 20 a second for some 9 s.
const MOVED: usize = 60;

fn case() -> Case {
    let load = |median: u32, sigma: f64| {
        format!(
            "[load]\narrivals = {{ rate = {RATE} }}\nsessions = 100000\nprompt = {{ median = {median}, sigma = {sigma} }}\n"
        )
    };
    Case {
        // A fifth of the prompts are pinned, and then two thirds: 6 and 20 a second, where the shard serves 12.
        first: Some((load(210, 0.7), SPREAD)),
        load: load(185, 0.2),
        requests: CONVERGED,
        primary: format!(
            "{ANSWERS}[[behaviour]]\nkind = \"shard-pinning\"\nwindow = [150, 220]\nshards = 12\nslots = 6\n"
        ),
        fallback: ANSWERS.to_owned(),
        policies: "[signals]\nact = ACT\nharm_recent = \"8s\"\n",
        relay: &["--false-alarm-every", "1h"],
        ..Case::default()
    }
}

/// The detector signalled a window of these sizes, after they converged and not before.
fn signalled(way: &Way) {
    let mut calls: Vec<i64> = way.log.iter().filter_map(|line| line["at"].as_i64()).collect();
    calls.sort_unstable();
    let converged = calls[SPREAD];
    let onsets: Vec<&Value> = way
        .signals
        .iter()
        .filter(|signal| signal["signature"] == "size-window" && signal["state"] == "onset")
        .collect();
    assert!(!onsets.is_empty(), "no window of sizes was signalled: {:?}", way.signals);
    for onset in onsets {
        let number = |field: &str| onset[field].as_i64().expect("a number");
        assert!(number("lo") < 185 && number("hi") > 185, "another window: {onset}");
        let after = number("at") - converged;
        assert!(after > 0, "{} ms before there was anything: {onset}", -after / 1_000);
        println!("{} to {} tokens, {} ms after the change", onset["lo"], onset["hi"], after / 1_000);
    }
}

/// What became of the first onset, as the dataset keeps it.
fn stored(way: &Way) -> (Option<String>, Option<bool>) {
    let mut stored = None;
    let dataset = Dataset::open(&way.upstream).expect("a dataset");
    let read = dataset.signals(|one| {
        let signal = &one.signal;
        if signal.detail.signature() == SignatureId::SizeWindow && signal.state == SignalState::Onset {
            stored = stored.take().or(Some((one.action, one.acted)));
        }
        ControlFlow::Continue(())
    });
    assert!(read.expect("signals").damaged.is_empty());
    stored.expect("the onset is stored")
}

/// Calls that the signal has steered, or would have; all of them were first asked of `upstream`.
fn steered(way: &Way, field: &str, upstream: &str) -> usize {
    let steered: Vec<&Value> = way.log.iter().filter(|line| line[field].is_array()).collect();
    for line in &steered {
        assert_eq!(line["attempts"][0]["upstream"], upstream, "{line}");
    }
    assert_eq!(
        way.told(field).get(SPILLED),
        Some(&steered.len()),
        "by the signal alone: {:?}",
        way.told(field)
    );
    steered.len()
}

/// Runs it.
pub(crate) fn lines() -> Vec<Line> {
    let ran = case().run();
    for way in [&ran.telling, &ran.acting] {
        signalled(way);
    }
    let steering = ran.steering();
    assert_eq!(ran.telling.first_asked().into_keys().collect::<Vec<_>>(), ["a"], "telling moves nothing");
    assert!(steered(&ran.telling, "would_have", "a") > MOVED && steered(&ran.acting, "policy", "b") > MOVED);
    let spill = Some("spill".to_owned());
    assert_eq!(stored(&ran.telling), (spill.clone(), Some(false)));
    assert_eq!(stored(&ran.acting), (spill, Some(true)));
    let p50 =
        ran.compare(|stream, since| since > 13.0 && pinned(stream, since)).quantile("t_first_reasoning", 0.5);
    let [healthy, direct, telling, acting] = p50.all();
    assert!(direct > 2.0 * healthy && telling > 2.0 * healthy, "the primary queues: {p50:?}");
    assert!(acting < 1.25 * healthy, "back to what is healthy: {p50:?}");
    vec![p50.line("sizes converge, signalled", "first token, p50, of 150–220-token prompts", &steering)]
}
