//! The route's statistic, which does not know how bad a change is, beside the CUSUM that does.
//!
//! `cargo run -p sseismo-live-detector --example oracle_table`: mean worst-case delays in
//! observations at an average run length (ARL) of 1e5. The oracle's figures are exact (Markov chain), the
//! aggregate's simulated. Seeds start at 10,000; those of the tuning are under 1,000.
#![expect(clippy::print_stdout, reason = "the table is what this program is for")]

use rand::{RngExt as _, SeedableRng as _};
use rand_chacha::ChaCha8Rng;
use sseismo_live_detector::sequential::calibration::{Threshold, run_length, threshold};
use sseismo_live_detector::sequential::design::Design;
use sseismo_live_detector::sequential::e_detector::{Mixture, MixtureError};
use sseismo_live_detector::sequential::markov::OracleCusum;
use sseismo_live_detector::sequential::upper_limit::clopper_pearson;

const ARL: f64 = 1e5;
const CASES: [(f64, &[f64]); 2] =
    [(0.01, &[0.05, 0.1, 0.3, 0.8]), (0.001, &[0.01, 0.025, 0.05, 0.1, 0.3, 0.8])];
/// Baselines from which p0 is learned, observations.
const LEARNED: [u32; 3] = [3_000, 30_000, 300_000];
/// Baselines drawn of each length.
const BASELINES: u32 = 30;
const CONFIDENCE: f64 = 0.95;
const EXCURSIONS: u32 = 100_000;
const RUNS: u32 = 100_000;
const FIRST_SEED: u64 = 10_000;

fn main() -> Result<(), MixtureError> {
    println!("| p0 → p1 | oracle | aggregate | × oracle | + observations | goal | p0 learned from {} |", {
        LEARNED.map(|n| n.to_string()).join(" | from ")
    });
    println!("|---|---|---|---|---|---|{}", "---|".repeat(LEARNED.len()));
    let mut notes = Vec::new();
    for (p0, changes) in CASES {
        let mixture = Design::nearest(p0, ARL).against(p0)?;
        let level = threshold(&mixture, ARL, EXCURSIONS, FIRST_SEED);
        let plain = run_length(&mixture, level.ln, p0, 3_000, FIRST_SEED + 1);
        notes.push(format!(
            "p0 = {p0}: alternatives and weights {:?}, threshold e^{:.3}, ARL {:.0} ± {:.0} by weighted \
             excursions, {:.0} ± {:.0} by 3,000 plain runs",
            Design::nearest(p0, ARL).alternatives,
            level.ln,
            level.arl,
            level.arl * level.relative_error,
            plain.mean,
            plain.error
        ));
        let learned: Vec<Vec<(Mixture, Threshold)>> =
            LEARNED.iter().map(|n| learned(p0, *n)).collect::<Result<_, _>>()?;
        for &p1 in changes {
            row(p0, p1, &mixture, level, &learned)?;
        }
    }
    println!();
    for note in notes {
        println!("- {note}");
    }
    println!(
        "- learned p0: its {:.0} % upper limit (Clopper–Pearson) from {BASELINES} drawn baselines each; the \
         figure is the mean delay × oracle",
        100.0 * CONFIDENCE
    );
    Ok(())
}

fn row(
    p0: f64,
    p1: f64,
    mixture: &Mixture,
    level: Threshold,
    learned: &[Vec<(Mixture, Threshold)>],
) -> Result<(), MixtureError> {
    let oracle = OracleCusum::new(p0, p1)?;
    let best = oracle.run_length(oracle.limit(ARL), p1);
    let got = run_length(mixture, level.ln, p1, RUNS, FIRST_SEED + 2);
    let (ratio, more) = (got.mean / best, got.mean - best);
    let (wanted, met) = if p1 < 9.99 * p0 {
        ("≤ 1.30 ×", ratio <= 1.3)
    } else {
        ("≤ 1.10 × or + 1", ratio <= 1.1 || more <= 1.0)
    };
    let prices: Vec<String> = learned
        .iter()
        .map(|rules| {
            let delays = rules.iter().zip(FIRST_SEED + 3..);
            let sum: f64 = delays
                .map(|((mixture, level), seed)| run_length(mixture, level.ln, p1, 4_000, seed).mean)
                .sum();
            format!("{:.2} ×", sum / f64::from(BASELINES) / best)
        })
        .collect();
    println!(
        "| {p0} → {p1} | {best:.2} | {:.2} ± {:.2} | {ratio:.3} | {more:+.2} | {wanted}: {} | {} |",
        got.mean,
        got.error,
        if met { "met" } else { "**missed**" },
        prices.join(" | ")
    );
    Ok(())
}

/// What a route would use that has seen `n` innocent observations: one rule per drawn baseline.
fn learned(p0: f64, n: u32) -> Result<Vec<(Mixture, Threshold)>, MixtureError> {
    let mut rng = ChaCha8Rng::seed_from_u64(FIRST_SEED + 1_000);
    (0..BASELINES)
        .map(|_| {
            let hits = (0..n).filter(|_| rng.random::<f64>() < p0).count();
            let limit = clopper_pearson(hits as u64, n.into(), CONFIDENCE);
            let mixture = Design::nearest(limit, ARL).against(limit)?;
            let level = threshold(&mixture, ARL, 5_000, FIRST_SEED);
            Ok((mixture, level))
        })
        .collect()
}
