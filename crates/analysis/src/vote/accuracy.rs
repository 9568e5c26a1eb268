//! What a rule or a stop is worth on recorded fan-outs whose samples are labelled right or wrong.

use rand::seq::SliceRandom as _;
use rand::{RngExt as _, SeedableRng as _};
use rand_chacha::ChaCha8Rng;
use serde::Serialize;

use super::ballot::{Ballots, count};
use super::stop::Stop;

/// Bootstrap resamples behind an interval.
const RESAMPLES: usize = 2_000;
/// Random orders in which each fan-out is replayed for early stopping.
const ORDERS: usize = 5;

/// Credit per fan-out, 0..=1, of one rule.
#[derive(Clone, Debug)]
pub struct Column {
    /// The rule's name.
    pub rule: &'static str,
    /// One value a fan-out.
    pub credits: Vec<f64>,
}

/// One line of the table of rules.
#[derive(Clone, Debug, Serialize)]
pub struct Row {
    /// The rule.
    pub rule: &'static str,
    /// Share of fan-outs answered right.
    pub accuracy: f64,
    /// 95 % bootstrap interval over fan-outs.
    pub ci95: [f64; 2],
    /// Accuracy minus plurality's on the same fan-outs.
    pub diff: f64,
    /// 95 % interval of the difference; resampled in pairs.
    pub diff_ci95: [f64; 2],
}

/// Accuracy of one sample picked at random: the share of right ones.
pub fn single(correct: &[bool]) -> f64 {
    count(correct.iter().filter(|c| **c).count()) / count(correct.len().max(1))
}

/// Means of `columns` with percentile bootstrap intervals, each against column `baseline`. All columns see
/// the same resamples. Empty when there is no fan-out.
pub fn table(columns: &[Column], baseline: usize, seed: u64) -> Vec<Row> {
    let n = columns.first().map_or(0, |c| c.credits.len());
    if n == 0 {
        return Vec::new();
    }
    let mut rng = ChaCha8Rng::seed_from_u64(seed);
    let mut means = vec![Vec::with_capacity(RESAMPLES); columns.len()];
    for _ in 0..RESAMPLES {
        let drawn: Vec<usize> = (0..n).map(|_| rng.random_range(0..n)).collect();
        for (column, means) in columns.iter().zip(&mut means) {
            means.push(drawn.iter().map(|&i| column.credits[i]).sum::<f64>() / count(n));
        }
    }
    let mean = |column: &Column| column.credits.iter().sum::<f64>() / count(n);
    columns
        .iter()
        .zip(&means)
        .map(|(column, resampled)| {
            let diffs = resampled.iter().zip(&means[baseline]).map(|(a, b)| a - b).collect();
            Row {
                rule: column.rule,
                accuracy: mean(column),
                ci95: middle95(resampled.clone()),
                diff: mean(column) - mean(&columns[baseline]),
                diff_ci95: middle95(diffs),
            }
        })
        .collect()
}

fn middle95(mut values: Vec<f64>) -> [f64; 2] {
    values.sort_by(f64::total_cmp);
    // Of 2,000 sorted values: the 51st from either end.
    let edge = values.len() / 40;
    [values[edge], values[values.len() - 1 - edge]]
}

/// One line of the table of early stops.
#[derive(Clone, Debug, Serialize)]
pub struct StopRow {
    /// `full`, `lock-in`, or `beta-0.95`.
    pub stop: String,
    /// Accuracy of plurality over the samples taken; tied answers share the credit.
    pub accuracy: f64,
    /// Samples taken, as a share of all.
    pub samples_share: f64,
}

/// Replays fan-outs with and without each stop, in seeded random orders. One pair of ballots and labels a
/// fan-out.
pub fn early_stop(
    fan_outs: &[(&Ballots<'_>, &[bool])],
    stops: &[(&str, Option<Stop>)],
    seed: u64,
) -> Vec<StopRow> {
    let mut credit = vec![0.0; stops.len()];
    let mut used = vec![0_usize; stops.len()];
    let mut taken = 0;
    let mut rng = ChaCha8Rng::seed_from_u64(seed);
    for (ballots, correct) in fan_outs {
        let mut order: Vec<usize> = (0..correct.len()).collect();
        for _ in 0..ORDERS {
            order.shuffle(&mut rng);
            taken += order.len();
            for (k, (_, stop)) in stops.iter().enumerate() {
                let (right, samples) = replay(ballots, correct, &order, *stop);
                credit[k] += right;
                used[k] += samples;
            }
        }
    }
    let runs = count((fan_outs.len() * ORDERS).max(1));
    stops
        .iter()
        .zip(credit.iter().zip(&used))
        .map(|((name, _), (credit, used))| StopRow {
            stop: (*name).to_owned(),
            accuracy: credit / runs,
            samples_share: count(*used) / count(taken.max(1)),
        })
        .collect()
}

/// Credit and samples used when `order` is cut by `stop`.
fn replay(ballots: &Ballots<'_>, correct: &[bool], order: &[usize], stop: Option<Stop>) -> (f64, usize) {
    let mut counts = vec![0_u32; ballots.groups.len()];
    let mut used = 0;
    for &i in order {
        used += 1;
        if let Some(group) = ballots.group_of[i] {
            counts[group] += 1;
        }
        let remaining = u32::try_from(order.len() - used).unwrap_or(u32::MAX);
        if stop.is_some_and(|stop| stop.at(&counts, remaining).is_some()) {
            break;
        }
    }
    let top = counts.iter().copied().max().unwrap_or(0);
    if top == 0 {
        return (0.0, used);
    }
    let tied: Vec<f64> = ballots
        .groups
        .iter()
        .zip(&counts)
        .filter(|(_, c)| **c == top)
        .map(|(group, _)| {
            let right: Vec<bool> = group.samples.iter().map(|&i| correct[i]).collect();
            single(&right)
        })
        .collect();
    (tied.iter().sum::<f64>() / count(tied.len()), used)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::vote::Sample;

    #[test]
    fn intervals_hold_the_mean_and_are_seeded() {
        let credits: Vec<f64> = (0..200).map(|i| f64::from(u8::from(i % 4 == 0))).collect();
        let columns = [Column { rule: "a", credits: vec![1.0; 200] }, Column { rule: "b", credits }];
        let rows = table(&columns, 0, 7);
        assert!((rows[1].accuracy - 0.25).abs() < 1e-12);
        // Normal approximation: 0.25 ± 1.96·√(0.25·0.75/200) = 0.19..0.31.
        assert!((rows[1].ci95[0] - 0.19).abs() < 0.015 && (rows[1].ci95[1] - 0.31).abs() < 0.015);
        assert!((rows[1].diff + 0.75).abs() < 1e-12 && rows[1].diff_ci95[1] < -0.6);
        assert_eq!(rows[0].diff_ci95.map(f64::to_bits), [0.0_f64; 2].map(f64::to_bits));
        let again = table(&columns, 0, 7);
        assert_eq!(rows[1].ci95.map(f64::to_bits), again[1].ci95.map(f64::to_bits));
        assert!(table(&[], 0, 7).is_empty());
    }

    #[test]
    fn lock_in_keeps_the_full_accuracy() {
        let sample = |answer: &str| Sample { answer: Some(answer.into()), ..Sample::default() };
        let samples: Vec<Sample> = ["1", "1", "1", "1", "1", "2", "2", "3"].map(sample).to_vec();
        let ballots = Ballots::new(&samples, None, None);
        let correct = [true, true, true, true, true, false, false, false];
        let stops = [("full", None), ("lock-in", Some(Stop::LockIn)), ("beta-0.8", Some(Stop::Beta(0.8)))];
        let rows = early_stop(&[(&ballots, &correct)], &stops, 1);
        assert!((rows[0].samples_share - 1.0).abs() < 1e-12 && (rows[0].accuracy - 1.0).abs() < 1e-12);
        assert!((rows[1].accuracy - 1.0).abs() < 1e-12 && rows[1].samples_share < 1.0);
        assert!(rows[2].samples_share < rows[1].samples_share);
    }
}
