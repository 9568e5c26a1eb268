//! Mann–Whitney U test: does one group tend to hold larger values than the other?
//!
//! Own code: the exact test of statrs 0.19.1 answers p = 1 whenever the first group is the smaller
//! one and there are no ties, and its asymptotic test loses small p-values to 1 − cdf.

use super::{real, real_len, two_sided_normal};

/// How a p-value was computed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Method {
    /// By counting every arrangement.
    Exact,
    /// By the normal limit with tie and continuity correction.
    Asymptotic,
}

/// Result of a test.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Test {
    /// U of the first group: pairs in which it is larger, ties counted half.
    pub u: f64,
    /// Two-sided p-value.
    pub p: f64,
    /// U as a share of all pairs: P(X > Y) + P(X = Y) / 2.
    pub superiority: f64,
    /// How `p` was computed.
    pub method: Method,
}

/// Groups up to this size are counted exactly when there are no ties, as in `SciPy`.
const EXACT_UP_TO: usize = 8;

/// Two-sided test of `x` against `y`: exact without ties when the smaller group has at most 8 values,
/// else asymptotic.
///
/// `None` when a group is empty or a value is NaN. All values equal: p = 1.
pub fn two_sided(x: &[f64], y: &[f64]) -> Option<Test> {
    let ranks = Ranks::of(x, y)?;
    let exact = ranks.ties == 0.0 && x.len().min(y.len()) <= EXACT_UP_TO;
    Some(if exact { ranks.exact() } else { ranks.asymptotic() })
}

/// Two-sided test by the normal limit whatever the sizes; cases as in [`two_sided`].
pub fn asymptotic(x: &[f64], y: &[f64]) -> Option<Test> {
    Some(Ranks::of(x, y)?.asymptotic())
}

struct Ranks {
    n1: usize,
    n2: usize,
    u: f64,
    /// Σ(t³ − t) over groups of t equal values.
    ties: f64,
}

impl Ranks {
    fn of(x: &[f64], y: &[f64]) -> Option<Self> {
        if x.is_empty() || y.is_empty() || x.iter().chain(y).any(|v| v.is_nan()) {
            return None;
        }
        let mut all: Vec<(f64, bool)> =
            x.iter().map(|&v| (v, true)).chain(y.iter().map(|&v| (v, false))).collect();
        all.sort_by(|a, b| a.0.total_cmp(&b.0));
        let (mut rank_sum, mut ties, mut before) = (0.0, 0.0, 0_usize);
        #[expect(clippy::float_cmp, reason = "ties are exactly equal values, 0 and -0 included")]
        for group in all.chunk_by(|a, b| a.0 == b.0) {
            let size = real_len(group.len());
            let mid_rank = real_len(before) + f64::midpoint(size, 1.0);
            rank_sum += mid_rank * real_len(group.iter().filter(|v| v.1).count());
            ties += size * size * size - size;
            before += group.len();
        }
        let n1 = real_len(x.len());
        Some(Self { n1: x.len(), n2: y.len(), u: rank_sum - n1 * (n1 + 1.0) / 2.0, ties })
    }

    fn test(&self, p: f64, method: Method) -> Test {
        Test { u: self.u, p, superiority: self.u / (real_len(self.n1) * real_len(self.n2)), method }
    }

    fn asymptotic(&self) -> Test {
        let (n1, n2) = (real_len(self.n1), real_len(self.n2));
        let n = n1 + n2;
        let mean = n1 * n2 / 2.0;
        let variance = n1 * n2 / 12.0 * (n + 1.0 - self.ties / (n * (n - 1.0)));
        let larger = self.u.max(n1 * n2 - self.u);
        // All values equal leaves no variance, and nothing to tell apart.
        let p = if variance > 0.0 {
            let z = (larger - mean - 0.5) / variance.sqrt();
            if z <= 0.0 { 1.0 } else { two_sided_normal(z) }
        } else {
            1.0
        };
        self.test(p, Method::Asymptotic)
    }

    /// The number of arrangements with each U is a Gaussian binomial coefficient, built up one factor
    /// (1 − q^(n2+i)) / (1 − q^i) at a time.
    fn exact(&self) -> Test {
        let (small, large) = (self.n1.min(self.n2), self.n1.max(self.n2));
        let top = small * large;
        let mut ways = vec![0.0_f64; top + 1];
        ways[0] = 1.0;
        for i in 1..=small {
            for u in (large + i..=top).rev() {
                ways[u] -= ways[u - large - i];
            }
            for u in i..=top {
                ways[u] += ways[u - i];
            }
        }
        let total: f64 = ways.iter().sum();
        let larger = self.u.max(real_len(top) - self.u);
        let tail: f64 =
            ways.iter().zip(0_u64..).filter(|&(_, u)| real(u) >= larger).map(|(&count, _)| count).sum();
        self.test((2.0 * tail / total).min(1.0), Method::Exact)
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use statrs::stats_tests::Alternative;
    use statrs::stats_tests::mannwhitneyu::{MannWhitneyUMethod, mannwhitneyu};

    use super::super::golden::{assert_close, cases, numbers};
    use super::*;

    /// Tolerance 1e-9 for exact tests, 1e-8 for asymptotic ones (statrs's erfc).
    #[test]
    fn equals_scipy() {
        for case in cases("mannwhitneyu") {
            let (x, y) = (numbers(&case["input"]["x"]), numbers(&case["input"]["y"]));
            for (key, got) in
                [("two-sided/auto", two_sided(&x, &y)), ("two-sided/asymptotic", asymptotic(&x, &y))]
            {
                let want = numbers(&case["expected"][key]);
                let Some(got) = got else {
                    assert!(want[0].is_nan(), "{key} of {x:?}: SciPy has a value");
                    continue;
                };
                assert_close(got.u, want[0], 1e-12, key);
                let tolerance = if got.method == Method::Exact { 1e-9 } else { 1e-8 };
                assert_close(got.p, want[1], tolerance, &format!("{key} of {x:?}"));
            }
        }
    }

    #[test]
    fn empty_nan_and_one_value() {
        assert_eq!(two_sided(&[], &[1.0]), None);
        assert_eq!(two_sided(&[1.0], &[f64::NAN]), None);
        let one = two_sided(&[1.0], &[2.0]).expect("a test");
        assert_close(one.p, 1.0, 1e-12, "one value a side cannot differ");
    }

    /// Far apart groups keep their digits: 1 − cdf would print 0.
    #[test]
    fn small_p_values_do_not_vanish() {
        let low: Vec<f64> = (0..200).map(f64::from).collect();
        let high: Vec<f64> = (1_000..1_200).map(f64::from).collect();
        let p = two_sided(&low, &high).expect("a test").p;
        assert!(p > 0.0 && p < 1e-60, "{p:e}");
    }

    /// Why statrs's own test is not used. When this fails, statrs has been repaired: drop this file.
    #[test]
    fn statrs_is_still_wrong() {
        let (x, y) = ([1.1, 2.2, 3.3, 4.4, 5.5], [2.0, 3.0, 4.0, 6.0, 7.0, 8.0]);
        let (_, theirs) =
            mannwhitneyu(&x, &y, MannWhitneyUMethod::Automatic, Alternative::TwoSided).expect("a p-value");
        assert!((theirs - 0.329_004_329).abs() > 0.5, "statrs says {theirs} now");
    }

    proptest! {
        /// Swapping the groups keeps p and mirrors U.
        #[test]
        fn symmetric(x in prop::collection::vec(-9_i32..9, 1..20), y in prop::collection::vec(-9_i32..9, 1..20)) {
            let (x, y): (Vec<f64>, Vec<f64>) = (x.into_iter().map(f64::from).collect(), y.into_iter().map(f64::from).collect());
            let (a, b) = (two_sided(&x, &y).expect("a test"), two_sided(&y, &x).expect("a test"));
            prop_assert!((a.p - b.p).abs() < 1e-9 && a.p > 0.0 && a.p <= 1.0);
            prop_assert!((a.superiority + b.superiority - 1.0).abs() < 1e-9);
        }
    }
}
