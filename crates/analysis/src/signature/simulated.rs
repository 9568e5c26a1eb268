//! Streams with known truth for the tests of the signatures.

use std::path::{Path, PathBuf};

use sseismo_simulator::{Scenario, Simulation};
use sseismo_trace::{Finding, Scope};

use super::{Options, Pass, Signature};

fn folder() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../data/scenarios")
}

/// A scenario of `data/scenarios`.
pub(super) fn scenario(name: &str) -> Scenario {
    Scenario::load(&folder().join(format!("{name}.toml"))).unwrap()
}

/// A scenario from its text.
pub(super) fn parsed(text: &str) -> Scenario {
    Scenario::parse(text, &folder()).unwrap()
}

/// What `signature` says of the first `streams` streams.
pub(super) fn finding(signature: &dyn Signature, scenario: &Scenario, streams: usize) -> Finding {
    let mut score = signature.open(&Options::default());
    for one in Simulation::new(scenario).take(streams) {
        score.push(Pass::Baseline, &one.stream());
    }
    score.finding(&Scope::default())
}
