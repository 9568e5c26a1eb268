//! One scenario with one seed, through the whole analysis.
//!
//! Only what a trace dataset stores goes in ([`sseismo_trace::Stream`]): the simulator's truth stays outside.
//! That the same streams come back from Parquet files with the same findings is the test
//! `tests/simulate.rs`.

use sseismo_analysis::Analysis;
use sseismo_analysis::flush::{Frames, Gap};
use sseismo_analysis::signature::burst::Burst;
use sseismo_analysis::signature::{Options, Pass, Signature as _};
use sseismo_analysis::stats::interval::{Regularity, regularity};
use sseismo_simulator::{Scenario, Simulated, Simulation};
use sseismo_trace::{Finding, Scope, Stream};

/// What came of it.
pub(crate) struct Run {
    pub(crate) seed: u64,
    pub(crate) findings: Vec<Finding>,
    /// Of one stream, judged as a scope of its own.
    pub(crate) alone: Alone,
}

/// How bursty one stream looks to each statistic; the larger, the burstier.
#[derive(Clone, Copy)]
pub(crate) struct Alone {
    /// −ln p of the signature `burst`.
    pub(crate) burst: f64,
    pub(crate) regularity: Regularity,
    /// Gaps over 1 s inside a phase.
    pub(crate) long_gaps: f64,
}

pub(crate) fn run(scenario: &Scenario, seed: u64, streams: usize) -> Run {
    let mut scenario = scenario.clone();
    scenario.seed = seed;
    let all: Vec<Simulated> = Simulation::new(&scenario).take(streams).collect();
    let findings = findings(&all);
    // The first stream that something was done to: an onset comes later than the first one.
    let answered = || all.iter().filter(|one| one.summary.status == Some(200));
    let marked =
        answered().find(|one| one.truth.injected.iter().any(|what| what.behaviour.contains("burst")));
    Run { seed, findings, alone: marked.or(answered().next()).map_or_else(none, alone) }
}

/// The verdicts on one scope.
fn findings(all: &[Simulated]) -> Vec<Finding> {
    let mut analysis = Analysis::new(Vec::new(), Options::default());
    for one in all {
        analysis.push("", &one.stream());
    }
    if analysis.wants_second_pass() {
        analysis.start_second_pass();
        for one in all {
            analysis.push("", &one.stream());
        }
    }
    analysis.finish()
}

fn none() -> Alone {
    Alone { burst: 0.0, regularity: Regularity::default(), long_gaps: 0.0 }
}

fn alone(one: &Simulated) -> Alone {
    let mut score = Burst.open(&Options::default());
    score.push(Pass::Baseline, &one.stream());
    score.push(Pass::Groups, &one.stream());
    let p = score.finding(&Scope::default()).significance.and_then(|found| found.p).unwrap_or(1.0);
    let gaps = gaps(&one.stream());
    let long = gaps.iter().filter(|gap| **gap > 1.0).count();
    Alone {
        // A probability may round to 0.
        burst: -p.max(f64::MIN_POSITIVE).ln(),
        regularity: regularity(&gaps),
        long_gaps: f64::from(u32::try_from(long).unwrap_or(u32::MAX)),
    }
}

/// Gaps between frames inside a phase, s.
fn gaps(stream: &Stream<'_>) -> Vec<f64> {
    let mut frames = Frames::default();
    let mut closed: Vec<_> = stream.deltas.iter().filter_map(|delta| frames.push(delta)).collect();
    closed.extend(frames.finish());
    closed
        .iter()
        .filter_map(|frame| match frame.gap {
            Gap::Within(gap) => Some(gap.seconds()),
            Gap::First | Gap::Border(_) | Gap::Unknown => None,
        })
        .collect()
}
