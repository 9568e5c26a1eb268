//! Tunes the alternatives and weights of the route's mixture CUSUM, and prints them as they are shipped in
//! `sequential/design.rs`.
//!
//! `cargo run -p sseismo-live-detector --example tune_aggregate`, or with one p0: for each p0 and ARL a seeded
//! random search for the smallest "worst delay relative to what is allowed", each candidate at its own
//! computed threshold. Tuning seeds are under 1,000; `oracle_table` measures on others.
#![expect(clippy::print_stdout, reason = "the table is what this program is for")]

use rand::{RngExt as _, SeedableRng as _};
use rand_chacha::ChaCha8Rng;
use sseismo_live_detector::sequential::calibration::{run_length, threshold};
use sseismo_live_detector::sequential::e_detector::{Mixture, MixtureError};
use sseismo_live_detector::sequential::markov::OracleCusum;

/// p0, where the search starts, the changes to see.
type Case = (f64, &'static [(f64, f64)], &'static [f64]);
const CASES: [Case; 5] = [
    (
        0.0003,
        &[(0.003, 0.7), (0.04, 0.13), (0.06, 0.09), (0.2, 0.05), (0.5, 0.03)],
        &[0.003, 0.01, 0.03, 0.1, 0.3, 0.8],
    ),
    (
        0.001,
        &[(0.011, 0.78), (0.025, 0.1), (0.07, 0.05), (0.15, 0.04), (0.5, 0.03)],
        &[0.01, 0.025, 0.05, 0.1, 0.3, 0.8],
    ),
    (0.003, &[(0.028, 0.7), (0.08, 0.2), (0.25, 0.07), (0.7, 0.03)], &[0.015, 0.03, 0.1, 0.3, 0.8]),
    (0.01, &[(0.085, 0.65), (0.25, 0.29), (0.8, 0.06)], &[0.05, 0.1, 0.3, 0.8]),
    (0.03, &[(0.13, 0.7), (0.3, 0.2), (0.8, 0.1)], &[0.1, 0.3, 0.8]),
];
const ARLS: [f64; 2] = [1e5, 1e8];
/// Candidates per case.
const TRIES: u32 = 400;
const EXCURSIONS: u32 = 3_000;
const RUNS: u32 = 8_000;
const SEED: u64 = 11;

/// A change to see, and the delay that is allowed for it.
struct Goal {
    p1: f64,
    allowed: f64,
}

fn main() -> Result<(), MixtureError> {
    let only: Option<f64> = std::env::args().nth(1).and_then(|arg| arg.parse().ok());
    let wanted = |p0: f64| only.is_none_or(|only| (only / p0 - 1.0).abs() < 1e-9);
    for (p0, start, changes) in CASES.into_iter().filter(|case| wanted(case.0)) {
        for arl in ARLS {
            let goals: Vec<Goal> = changes.iter().map(|p1| goal(p0, *p1, arl)).collect::<Result<_, _>>()?;
            let (worst, found) = search(p0, arl, start, &goals);
            let list: Vec<String> = found.iter().map(|(p1, weight)| format!("({p1}, {weight})")).collect();
            println!("    // worst delay {worst:.3} of what is allowed");
            println!("    Design {{ p0: {p0}, arl: {arl:e}, alternatives: &[{}] }},", list.join(", "));
        }
    }
    Ok(())
}

/// Ten per cent or one observation above the oracle; 30 % where the change is less than tenfold.
fn goal(p0: f64, p1: f64, arl: f64) -> Result<Goal, MixtureError> {
    let oracle = OracleCusum::new(p0, p1)?;
    let delay = oracle.run_length(oracle.limit(arl), p1);
    let share = if p1 < 9.99 * p0 { 1.3 } else { 1.1 };
    Ok(Goal { p1, allowed: (share * delay).max(delay + 1.0) })
}

fn search(p0: f64, arl: f64, start: &[(f64, f64)], goals: &[Goal]) -> (f64, Vec<(f64, f64)>) {
    let mut rng = ChaCha8Rng::seed_from_u64(SEED);
    let (mut best, mut worst) = (tidy(start), f64::INFINITY);
    for attempt in 0..TRIES {
        let candidate = if attempt == 0 { best.clone() } else { neighbour(&best, &mut rng) };
        let Ok(mixture) = Mixture::new(p0, &candidate) else { continue };
        let got = badness(&mixture, arl, goals);
        if got < worst {
            (best, worst) = (candidate, got);
        }
    }
    (worst, best)
}

fn badness(mixture: &Mixture, arl: f64, goals: &[Goal]) -> f64 {
    let level = threshold(mixture, arl, EXCURSIONS, SEED).ln;
    let share = |goal: &Goal| run_length(mixture, level, goal.p1, RUNS, SEED).mean / goal.allowed;
    goals.iter().map(share).fold(0.0, f64::max)
}

/// Moves each alternative by about 20 % of its odds and each weight by about 30 %.
fn neighbour(best: &[(f64, f64)], rng: &mut ChaCha8Rng) -> Vec<(f64, f64)> {
    let moved: Vec<(f64, f64)> = best
        .iter()
        .map(|(p1, weight)| {
            let odds = p1 / (1.0 - p1) * rng.random_range(-0.2..0.2_f64).exp();
            (odds / (1.0 + odds), weight * rng.random_range(-0.3..0.3_f64).exp())
        })
        .collect();
    tidy(&moved)
}

/// Rounds to what can be read and lets the weights sum to 1.
fn tidy(alternatives: &[(f64, f64)]) -> Vec<(f64, f64)> {
    let sum: f64 = alternatives.iter().map(|(_, weight)| weight).sum();
    let round = |value: f64, digits: f64| (value * digits).round() / digits;
    let mut out: Vec<(f64, f64)> = alternatives
        .iter()
        .map(|(p1, weight)| (round(*p1, 1e4), round(weight / sum, 1e3).max(0.001)))
        .collect();
    let rest: f64 = out.iter().skip(1).map(|(_, weight)| weight).sum();
    if let Some(first) = out.first_mut() {
        first.1 = round(1.0 - rest, 1e3);
    }
    out
}
