//! The detector on simulated upstreams with known truth, in virtual time: where the offline signature says that
//! something is there it signals, where offline says that nothing is there it does not. Exceptions are named.

#![expect(clippy::unwrap_used, reason = "a test that cannot read its scenario has failed")]

use std::path::{Path, PathBuf};

use sseismo_analysis::Analysis;
use sseismo_analysis::signature::Options as OfflineOptions;
use sseismo_live_detector::{Options, Replay};
use sseismo_simulator::{Scenario, Simulation};
use sseismo_trace::{Dim, Finding, Signal, SignalState, SignatureId, Verdict};

fn folder() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../data/scenarios")
}

struct Both {
    offline: Vec<Finding>,
    live: Vec<Signal>,
    watches: Vec<String>,
}

/// The first `streams` streams of a scenario through both.
fn both(name: &str, streams: usize) -> Both {
    let scenario = Scenario::load(&folder().join(name)).unwrap();
    let mut analysis = Analysis::new(vec![Dim::Upstream, Dim::Model, Dim::Effort], OfflineOptions::default());
    let mut replay = Replay::new(Options::default());
    let all: Vec<_> = Simulation::new(&scenario).take(streams).collect();
    for one in &all {
        analysis.push("simulated", &one.stream());
        replay.push(one.summary.started_at.unwrap(), &one.summary, &one.deltas);
    }
    if analysis.wants_second_pass() {
        analysis.start_second_pass();
        for one in &all {
            analysis.push("simulated", &one.stream());
        }
    }
    replay.finish();
    let watches = replay.detector().view().watches.iter().map(|watch| format!("{watch:?}")).collect();
    Both { offline: analysis.finish(), live: replay.take_signals(), watches }
}

/// Streams per scenario: as many as live needs where more than 120.
const STREAMS: &[(&str, usize)] = &[
    ("slow-drip.toml", 400),
    ("concurrency-cooldown.toml", 2_000),
    ("saturation.toml", 1_000),
    ("count-lattice.toml", 200),
    ("retry-storm.toml", 300),
    ("http-error.toml", 300),
    ("reset.toml", 300),
    ("cut.toml", 300),
    ("clean-eof.toml", 300),
    ("error-event-first.toml", 300),
    ("error-event-mid-stream.toml", 300),
];

/// Where live and offline differ, and why.
const EXCEPTIONS: &[(&str, SignatureId, &str)] = &[];

#[test]
fn live_and_offline_agree_on_every_scenario() {
    let mut names: Vec<String> = std::fs::read_dir(folder())
        .unwrap()
        .map(|entry| entry.unwrap().file_name().into_string().unwrap())
        .collect();
    names.sort();
    assert!(names.len() > 40);
    let mut disagreements = Vec::new();
    for name in &names {
        let streams = STREAMS.iter().find(|(one, _)| one == name).map_or(120, |(_, streams)| *streams);
        let Both { offline, live, watches } = both(name, streams);
        for id in SignatureId::ALL {
            let verdicts: Vec<Verdict> =
                offline.iter().filter(|found| found.signature == id).map(|found| found.verdict).collect();
            let onset =
                live.iter().find(|one| one.detail.signature() == id && one.state == SignalState::Onset);
            let agree = verdicts.iter().any(|verdict| verdict.is_alarm()) == onset.is_some();
            let excepted = EXCEPTIONS.iter().any(|(one, signature, _)| one == name && *signature == id);
            if agree == excepted {
                disagreements.push(format!(
                    "{name} {}: offline {verdicts:?}, live {onset:?}\n{}",
                    id.name(),
                    watches.join("\n")
                ));
            }
        }
    }
    assert!(disagreements.is_empty(), "{}", disagreements.join("\n"));
}
