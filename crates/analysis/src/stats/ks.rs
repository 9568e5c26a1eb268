//! Two-sample Kolmogorov–Smirnov test: do two samples come from one distribution?

use super::{real, real_len};

/// Result of a test.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Test {
    /// Largest distance between the two empirical distribution functions.
    pub distance: f64,
    /// Two-sided p-value; with ties it is conservative.
    pub p: f64,
    /// Whether `p` counts lattice paths exactly, or is the Kolmogorov limit.
    pub exact: bool,
}

/// Up to this many cells (n1 · n2) paths are counted exactly.
const EXACT_CELLS: usize = 1_000_000;

/// Tests `x` against `y`: exact up to n1·n2 = 1,000,000, above it the Kolmogorov limit with Stephens's
/// correction of the effective n.
///
/// `None` when a group is empty or a value is NaN. All values equal: distance 0, p = 1.
///
/// Sources: Hodges, Arkiv för Matematik 3 (1958) 469–486 (paths); Stephens, J. R. Stat. Soc. B 32
/// (1970) 115–122 (correction).
pub fn two_sided(x: &[f64], y: &[f64]) -> Option<Test> {
    if x.is_empty() || y.is_empty() || x.iter().chain(y).any(|v| v.is_nan()) {
        return None;
    }
    let (n1, n2) = (x.len(), y.len());
    let steps = largest_steps(x, y);
    let distance = real(steps) / (real_len(n1) * real_len(n2));
    let exact = n1.saturating_mul(n2) <= EXACT_CELLS;
    let p = if exact { paths_that_reach(steps, n1 as u64, n2 as u64) } else { limit(distance, n1, n2) };
    Some(Test { distance, p: p.clamp(0.0, 1.0), exact })
}

/// The distance in units of 1 / (n1 · n2), a whole number.
fn largest_steps(x: &[f64], y: &[f64]) -> u64 {
    let mut all: Vec<(f64, bool)> =
        x.iter().map(|&v| (v, true)).chain(y.iter().map(|&v| (v, false))).collect();
    all.sort_by(|a, b| a.0.total_cmp(&b.0));
    let (n1, n2) = (x.len() as u64, y.len() as u64);
    let (mut seen1, mut seen2, mut largest) = (0_u64, 0_u64, 0_u64);
    #[expect(clippy::float_cmp, reason = "ties are exactly equal values")]
    for group in all.chunk_by(|a, b| a.0 == b.0) {
        let first = group.iter().filter(|v| v.1).count() as u64;
        seen1 += first;
        seen2 += group.len() as u64 - first;
        largest = largest.max((seen1 * n2).abs_diff(seen2 * n1));
    }
    largest
}

/// Probability that a random arrangement reaches the distance somewhere. The mass is taken out where a
/// path first reaches it and added up, so that small probabilities keep their digits.
fn paths_that_reach(steps: u64, n1: u64, n2: u64) -> f64 {
    if steps == 0 {
        return 1.0;
    }
    let all = n1 + n2;
    let mut row = vec![0.0_f64; usize::try_from(n2).unwrap_or(usize::MAX).saturating_add(1)];
    let mut reached = 0.0;
    for i in 0..=n1 {
        let mut left = 0.0;
        for (cell, j) in row.iter_mut().zip(0_u64..) {
            let mass = if i == 0 && j == 0 {
                1.0
            } else {
                let before = real(all - (i + j) + 1);
                let from_x = if i > 0 { *cell * real(n1 - i + 1) / before } else { 0.0 };
                let from_y = if j > 0 { left * real(n2 - j + 1) / before } else { 0.0 };
                from_x + from_y
            };
            if (i * n2).abs_diff(j * n1) >= steps {
                reached += mass;
                *cell = 0.0;
            } else {
                *cell = mass;
            }
            left = *cell;
        }
    }
    reached
}

/// 2 Σ (−1)^(j−1) e^(−2 j² λ²).
fn limit(distance: f64, n1: usize, n2: usize) -> f64 {
    let (n1, n2) = (real_len(n1), real_len(n2));
    let root = (n1 * n2 / (n1 + n2)).sqrt();
    let lambda = (root + 0.12 + 0.11 / root) * distance;
    if lambda < 0.2 {
        return 1.0;
    }
    let (mut sum, mut sign) = (0.0, 1.0);
    for j in 1..=100 {
        let term = (-2.0 * f64::from(j * j) * lambda * lambda).exp();
        sum += sign * term;
        sign = -sign;
        if term < 1e-16 * sum {
            break;
        }
    }
    2.0 * sum
}

#[cfg(test)]
mod tests {
    use super::super::golden::{assert_close, cases, numbers};
    use super::*;

    #[test]
    fn exact_equals_scipy_to_1e_9() {
        for case in cases("ks_2samp") {
            let want = numbers(&case["expected"]["exact"]);
            let got =
                two_sided(&numbers(&case["input"]["x"]), &numbers(&case["input"]["y"])).expect("a test");
            assert_close(got.distance, want[0], 1e-12, "distance");
            assert_close(got.p, want[1], 1e-9, "p");
        }
    }

    /// At 300 against 400 the limit is within 6 % of the exact value (it is a limit, no identity).
    #[test]
    fn limit_is_near_the_exact_value() {
        for steps in [8_000_u64, 10_000, 12_000, 15_000] {
            let exact = paths_that_reach(steps, 300, 400);
            let near = limit(real(steps) / 120_000.0, 300, 400);
            assert!((near / exact - 1.0).abs() < 0.06, "{steps}: {near} against {exact}");
        }
    }

    #[test]
    fn empty_and_nan() {
        assert_eq!(two_sided(&[], &[1.0]), None);
        assert_eq!(two_sided(&[f64::NAN], &[1.0]), None);
    }
}
