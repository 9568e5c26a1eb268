//! Means and shares of rows that are not independent.
//!
//! The calls of one session share its prompt, its cache and its luck. Counting each as one independent
//! observation has turned a fall into a "highly significant" rise (call-level p = 2.5e-9 against
//! session-level p = 0.007 the other way, openai/codex issue 30364). Here whole sessions are the unit:
//! the share or mean is a ratio of session sums, its error comes from the spread between sessions.
//!
//! Source: Cochran, Sampling Techniques (3rd ed., 1977), §9A: single-stage cluster sampling, ratio to
//! size. With one row per session the test is Welch's.

use statrs::distribution::{ContinuousCDF, StudentsT};

use super::{real, real_len};

/// One session's (or turn's) rows.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Cluster {
    /// Rows.
    pub rows: u64,
    /// Sum of their values; for a share, the number of hits.
    pub sum: f64,
}

/// A mean or share over clusters.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Estimate {
    /// Sum over rows.
    pub value: f64,
    /// Standard error from the spread between clusters; `None` under two clusters.
    pub error: Option<f64>,
    /// Clusters that the error rests on.
    pub clusters: usize,
}

impl Estimate {
    /// The mean of `clusters`; `None` without rows or with a NaN or infinite sum.
    pub fn of(clusters: &[Cluster]) -> Option<Self> {
        let rows = real(clusters.iter().map(|c| c.rows).sum());
        let sum: f64 = clusters.iter().map(|c| c.sum).sum();
        if rows == 0.0 || !sum.is_finite() {
            return None;
        }
        let value = sum / rows;
        let k = real_len(clusters.len());
        let error = (clusters.len() >= 2).then(|| {
            let squares: f64 = clusters.iter().map(|c| (c.sum - value * real(c.rows)).powi(2)).sum();
            (squares * k / (k - 1.0)).sqrt() / rows
        });
        Some(Self { value, error, clusters: clusters.len() })
    }

    /// 95 % interval by Student's t; `None` under two clusters.
    pub fn ci95(&self) -> Option<[f64; 2]> {
        let half = self.error? * t95(real_len(self.clusters) - 1.0)?;
        Some([self.value - half, self.value + half])
    }
}

/// How far two clustered means lie apart.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Difference {
    /// First minus second.
    pub value: f64,
    /// 95 % interval.
    pub ci95: [f64; 2],
    /// Two-sided p-value (Welch's t with clusters as observations).
    pub p: f64,
}

/// Compares two clustered means.
///
/// `None` when a side has under two clusters, or when neither side varies between clusters: then there
/// is nothing to measure a difference against.
pub fn difference(first: &Estimate, second: &Estimate) -> Option<Difference> {
    let (v1, v2) = (first.error?.powi(2), second.error?.powi(2));
    let error = (v1 + v2).sqrt();
    if error == 0.0 {
        return None;
    }
    let (k1, k2) = (real_len(first.clusters), real_len(second.clusters));
    // Welch–Satterthwaite degrees of freedom.
    let freedom = (v1 + v2).powi(2) / (v1 * v1 / (k1 - 1.0) + v2 * v2 / (k2 - 1.0));
    let value = first.value - second.value;
    let half = error * t95(freedom)?;
    let p = 2.0 * StudentsT::new(0.0, 1.0, freedom).ok()?.sf((value / error).abs());
    Some(Difference { value, ci95: [value - half, value + half], p: p.min(1.0) })
}

fn t95(freedom: f64) -> Option<f64> {
    Some(StudentsT::new(0.0, 1.0, freedom).ok()?.inverse_cdf(0.975))
}

#[cfg(test)]
mod tests {
    use super::super::golden::assert_close;
    use super::*;

    fn rows(values: &[f64]) -> Vec<Cluster> {
        values.iter().map(|&sum| Cluster { rows: 1, sum }).collect()
    }

    /// Welch's own form by hand: means 3 and 6, variances 2.5 and 10, n = 5: t = −3/√2.5,
    /// ν = 2.5²/(0.5²/4 + 2²/4) = 5.882.
    #[test]
    fn one_row_per_cluster_is_welch() {
        let a = Estimate::of(&rows(&[1.0, 2.0, 3.0, 4.0, 5.0])).expect("rows");
        let b = Estimate::of(&rows(&[2.0, 4.0, 6.0, 8.0, 10.0])).expect("rows");
        let got = difference(&a, &b).expect("a test");
        assert_close(got.value, -3.0, 1e-12, "difference");
        assert_close(got.p, 0.107_531_192, 1e-6, "p");
    }

    /// The same hundred rows: as rows they look decisive, as two sessions a side they say nothing.
    #[test]
    fn few_sessions_prove_little() {
        let as_rows =
            |hits: u64| rows(&(0..50).map(|i| if i < hits { 1.0 } else { 0.0 }).collect::<Vec<_>>());
        let p_rows = difference(
            &Estimate::of(&as_rows(40)).expect("rows"),
            &Estimate::of(&as_rows(20)).expect("rows"),
        );
        let sessions = |sums: [f64; 2]| sums.map(|sum| Cluster { rows: 25, sum });
        let p_sessions = difference(
            &Estimate::of(&sessions([25.0, 15.0])).expect("rows"),
            &Estimate::of(&sessions([0.0, 20.0])).expect("rows"),
        );
        assert!(p_rows.expect("a test").p < 1e-4);
        assert!(p_sessions.expect("a test").p > 0.1);
    }

    #[test]
    fn empty_one_equal_and_nan() {
        assert_eq!(Estimate::of(&[]), None);
        assert_eq!(Estimate::of(&rows(&[f64::NAN])), None);
        let one = Estimate::of(&rows(&[7.0])).expect("a row");
        assert_eq!((one.error, one.ci95()), (None, None));
        let equal = Estimate::of(&rows(&[7.0, 7.0])).expect("rows");
        assert_eq!(difference(&equal, &equal), None);
    }
}
