//! How far apart two samples' quantiles are, as a ratio with a seeded percentile bootstrap.
//!
//! Whole sessions are drawn, not rows, because the rows of a session are not independent. Coverage of
//! the nominal 95 % interval of a p99 ratio was measured as .94–.99 from n = 240 up, but at n = 240 the
//! interval spans a factor of 3 to 10: such a claim is refused rather than printed.
//!
//! Source: Efron & Tibshirani, An Introduction to the Bootstrap (1993), §13.

use rand::{RngExt, SeedableRng};
use rand_chacha::ChaCha8Rng;

use super::quantile::of_sorted;
use super::real;

/// One value and the session (turn, row) that it belongs to.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Observation {
    /// The value; NaN is left out.
    pub value: f64,
    /// Number of its session, from 0, dense within its side.
    pub cluster: u32,
}

/// A ratio of quantiles.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Ratio {
    /// Quantile of the second sample over that of the first.
    pub value: f64,
    /// 95 % percentile interval.
    pub ci95: [f64; 2],
    /// Resamples drawn.
    pub resamples: usize,
}

/// Why no ratio is given.
#[derive(Clone, Debug, PartialEq, thiserror::Error)]
pub enum Refusal {
    /// The quantile rests on too few values.
    #[error("p{percent} needs {need} values on each side, there are {have}")]
    TooFewValues {
        /// The quantile, in percent.
        percent: f64,
        /// Values needed on each side.
        need: usize,
        /// Values on the smaller side.
        have: usize,
    },
    /// The spread between sessions cannot be seen.
    #[error("needs {need} independent sessions or turns on each side, there are {have}")]
    TooFewClusters {
        /// Clusters needed on each side.
        need: usize,
        /// Clusters on the smaller side.
        have: usize,
    },
    /// The first quantile is not above 0.
    #[error("the quantile to divide by is {0}, a ratio has no meaning")]
    NotPositive(f64),
}

/// Values needed on each side for the `q`-quantile: 50 up to p90; above it ten values must lie beyond
/// the quantile (1,000 for p99).
pub fn values_needed(q: f64) -> usize {
    #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "10 / (1 − q) is small")]
    let ten_beyond = if q < 1.0 { (10.0 / (1.0 - q)).round() as usize } else { usize::MAX };
    if q <= 0.9 { 50 } else { ten_beyond }
}

/// Fewer clusters than this give no idea of the spread between them.
const CLUSTERS_NEEDED: usize = 10;

/// Resamples: 2,000, fewer on large samples, never under the 400 that coverage was measured with.
fn resamples(values: usize) -> usize {
    (20_000_000 / values.max(1)).clamp(400, 2_000)
}

/// The `q`-quantile of `second` over that of `first`.
///
/// # Errors
/// A [`Refusal`] that says what is missing.
pub fn quantile_ratio(
    first: &[Observation],
    second: &[Observation],
    q: f64,
    seed: u64,
) -> Result<Ratio, Refusal> {
    let (first, second) = (Sample::of(first), Sample::of(second));
    let have = first.values.len().min(second.values.len());
    let need = values_needed(q);
    if have < need {
        return Err(Refusal::TooFewValues { percent: q * 100.0, need, have });
    }
    let have = first.rows.len().min(second.rows.len());
    if have < CLUSTERS_NEEDED {
        return Err(Refusal::TooFewClusters { need: CLUSTERS_NEEDED, have });
    }
    let base = of_sorted(&first.values, q);
    if base <= 0.0 {
        return Err(Refusal::NotPositive(base));
    }
    let mut rng = ChaCha8Rng::seed_from_u64(seed);
    let count = resamples(first.values.len().max(second.values.len()));
    let mut ratios: Vec<f64> = (0..count)
        .map(|_| {
            let below = first.resampled_quantile(q, &mut rng);
            second.resampled_quantile(q, &mut rng) / below
        })
        .collect();
    ratios.sort_by(f64::total_cmp);
    Ok(Ratio {
        value: of_sorted(&second.values, q) / base,
        ci95: [of_sorted(&ratios, 0.025), of_sorted(&ratios, 0.975)],
        resamples: count,
    })
}

/// Values in ascending order, each with its cluster; sorted once, so that a resample is one walk.
struct Sample {
    values: Vec<f64>,
    clusters: Vec<u32>,
    /// Rows of each cluster.
    rows: Vec<u64>,
}

impl Sample {
    fn of(observations: &[Observation]) -> Self {
        let mut kept: Vec<Observation> = observations.iter().copied().filter(|o| !o.value.is_nan()).collect();
        kept.sort_by(|a, b| a.value.total_cmp(&b.value));
        let most = kept.iter().map(|o| o.cluster as usize + 1).max().unwrap_or(0);
        let mut rows = vec![0_u64; most];
        for observation in &kept {
            rows[observation.cluster as usize] += 1;
        }
        // A cluster whose values were all NaN is no cluster of this sample.
        let mut dense = vec![0_u32; most];
        let mut next = 0;
        for (number, &count) in dense.iter_mut().zip(&rows) {
            *number = next;
            next += u32::from(count > 0);
        }
        rows.retain(|&count| count > 0);
        Self {
            values: kept.iter().map(|o| o.value).collect(),
            clusters: kept.iter().map(|o| dense[o.cluster as usize]).collect(),
            rows,
        }
    }

    fn resampled_quantile(&self, q: f64, rng: &mut ChaCha8Rng) -> f64 {
        let mut drawn = vec![0_u64; self.rows.len()];
        let mut total = 0;
        for _ in 0..self.rows.len() {
            let cluster = rng.random_range(0..self.rows.len());
            drawn[cluster] += 1;
            total += self.rows[cluster];
        }
        let rank = (q * real(total)).ceil().max(1.0);
        let mut passed = 0;
        for (&value, &cluster) in self.values.iter().zip(&self.clusters) {
            passed += drawn[cluster as usize];
            if real(passed) >= rank {
                return value;
            }
        }
        self.values.last().copied().unwrap_or(f64::NAN)
    }
}

#[cfg(test)]
mod tests {
    use super::super::golden::assert_close;
    use super::*;

    fn rows(values: impl Iterator<Item = f64>) -> Vec<Observation> {
        values.zip(0_u32..).map(|(value, cluster)| Observation { value, cluster }).collect()
    }

    fn exponential(rng: &mut ChaCha8Rng) -> f64 {
        -(1.0 - rng.random::<f64>()).ln()
    }

    #[test]
    fn p99_is_refused_under_a_thousand() {
        let few = rows((1..=999).map(f64::from));
        let refusal = quantile_ratio(&few, &few, 0.99, 1).expect_err("too few");
        assert_eq!(refusal.to_string(), "p99 needs 1000 values on each side, there are 999");
        let enough = rows((1..=1_000).map(f64::from));
        assert!(quantile_ratio(&enough, &enough, 0.99, 1).is_ok());
        assert!(quantile_ratio(&few[..49], &few, 0.5, 1).is_err());
        assert!(quantile_ratio(&few[..50], &few, 0.5, 1).is_ok());
    }

    #[test]
    fn sessions_not_rows_are_counted() {
        let sessions: Vec<Observation> =
            (0..900_u32).map(|i| Observation { value: f64::from(i + 1), cluster: i % 9 }).collect();
        let refusal = quantile_ratio(&sessions, &sessions, 0.5, 1).expect_err("nine sessions");
        assert_eq!(refusal, Refusal::TooFewClusters { need: 10, have: 9 });
    }

    #[test]
    fn empty_nan_and_all_equal() {
        assert!(quantile_ratio(&[], &[], 0.5, 1).is_err());
        let nan = rows(std::iter::repeat_n(f64::NAN, 60));
        assert!(matches!(quantile_ratio(&nan, &nan, 0.5, 1), Err(Refusal::TooFewValues { have: 0, .. })));
        let zero = rows(std::iter::repeat_n(0.0, 60));
        assert_eq!(quantile_ratio(&zero, &zero, 0.5, 1), Err(Refusal::NotPositive(0.0)));
        let equal = rows(std::iter::repeat_n(3.0, 60));
        let got = quantile_ratio(&equal, &equal, 0.5, 1).expect("a ratio");
        assert_close(got.ci95[0], 1.0, 1e-12, "low");
        assert_close(got.ci95[1], 1.0, 1e-12, "high");
    }

    #[test]
    fn the_same_seed_gives_the_same_interval() {
        let (a, b) = (rows((1..200).map(f64::from)), rows((1..300).map(f64::from)));
        assert_eq!(quantile_ratio(&a, &b, 0.5, 7), quantile_ratio(&a, &b, 0.5, 7));
    }

    /// The nominal 95 % interval of a median ratio holds the truth in 84 to 100 of 100 seeded pairs.
    #[test]
    fn intervals_hold_the_truth() {
        let mut rng = ChaCha8Rng::seed_from_u64(11);
        let held = (0..100_u64)
            .filter(|&run| {
                let a = rows((0..80).map(|_| exponential(&mut rng)));
                let b = rows((0..80).map(|_| 2.0 * exponential(&mut rng)));
                let [low, high] = quantile_ratio(&a, &b, 0.5, run).expect("a ratio").ci95;
                low <= 2.0 && 2.0 <= high
            })
            .count();
        assert!((84..=100).contains(&held), "{held} of 100");
    }

    /// Twenty sessions of forty equal rows carry twenty observations: the interval is much wider than
    /// eight hundred independent rows would give.
    #[test]
    fn clustering_widens_the_interval() {
        let mut rng = ChaCha8Rng::seed_from_u64(3);
        let levels: Vec<f64> = (0..20).map(|_| exponential(&mut rng)).collect();
        let clustered: Vec<Observation> =
            (0..800_u32).map(|i| Observation { value: levels[(i % 20) as usize], cluster: i % 20 }).collect();
        let independent = rows(clustered.iter().map(|o| o.value));
        let width = |sample: &[Observation]| {
            let [low, high] = quantile_ratio(sample, sample, 0.5, 5).expect("a ratio").ci95;
            (high / low).ln()
        };
        assert!(width(&clustered) > 2.0 * width(&independent));
    }

    #[test]
    fn needs_grow_with_the_quantile() {
        assert_eq!([0.5, 0.9, 0.95, 0.99].map(values_needed), [50, 50, 200, 1_000]);
        assert!(values_needed(0.999) >= 9_999);
    }
}
