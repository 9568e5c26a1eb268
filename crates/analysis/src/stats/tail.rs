//! Upper tails of counts, in logarithms: P(X ≥ k) stays meaningful far below the smallest `f64`.

use statrs::function::gamma::ln_gamma;

use super::real;

/// Terms smaller than this share of the sum no longer change it.
const NEGLIGIBLE: f64 = 1e-17;

/// ln P(X ≥ k) for X ~ Poisson(`mean`).
///
/// `k` = 0 gives 0. A mean of 0 gives −∞ for any k ≥ 1. A NaN or negative mean gives NaN.
pub fn ln_poisson(k: u64, mean: f64) -> f64 {
    if mean.is_nan() || mean < 0.0 {
        return f64::NAN;
    }
    if k == 0 {
        return 0.0;
    }
    if mean == 0.0 {
        return f64::NEG_INFINITY;
    }
    let ln_pmf = |j: u64| real(j) * mean.ln() - mean - ln_gamma(real(j) + 1.0);
    if real(k) > mean {
        ln_pmf(k) + sum_of_ratios(|i| mean / real(k + i)).ln()
    } else {
        complement(ln_pmf(k - 1) + sum_of_ratios(|i| if i < k { real(k - i) / mean } else { 0.0 }).ln())
    }
}

/// ln P(X ≥ k) for X ~ Binomial(`n`, `p`).
///
/// `k` = 0 gives 0, `k` > `n` gives −∞. NaN or a `p` outside 0..=1 gives NaN.
pub fn ln_binomial(k: u64, n: u64, p: f64) -> f64 {
    if p.is_nan() || !(0.0..=1.0).contains(&p) {
        return f64::NAN;
    }
    if k == 0 {
        return 0.0;
    }
    if k > n || p == 0.0 {
        return f64::NEG_INFINITY;
    }
    if p >= 1.0 {
        return 0.0;
    }
    let odds = p / (1.0 - p);
    let ln_pmf = |j: u64| {
        ln_gamma(real(n) + 1.0) - ln_gamma(real(j) + 1.0) - ln_gamma(real(n - j) + 1.0)
            + real(j) * p.ln()
            + real(n - j) * (-p).ln_1p()
    };
    if real(k) > real(n) * p {
        let up = |i: u64| if k + i <= n { real(n - k - i + 1) / real(k + i) * odds } else { 0.0 };
        ln_pmf(k) + sum_of_ratios(up).ln()
    } else {
        let down = |i: u64| if i < k { real(k - i) / (real(n - k + 1 + i) * odds) } else { 0.0 };
        complement(ln_pmf(k - 1) + sum_of_ratios(down).ln())
    }
}

/// 1 + r1 + r1·r2 + r1·r2·r3 + …, for ratios that fall below 1 and keep falling.
fn sum_of_ratios(ratio: impl Fn(u64) -> f64) -> f64 {
    let (mut sum, mut term) = (1.0, 1.0);
    for i in 1.. {
        term *= ratio(i);
        sum += term;
        if term < sum * NEGLIGIBLE {
            break;
        }
    }
    sum
}

/// ln(1 − e^x) for x ≤ 0.
fn complement(ln_p: f64) -> f64 {
    (-ln_p.min(0.0).exp()).ln_1p()
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use statrs::distribution::{Binomial, DiscreteCDF};

    use super::super::golden::{assert_close, cases, number};
    use super::*;

    #[test]
    fn poisson_equals_scipy_to_1e_9() {
        for case in cases("poisson_tail") {
            let k = case["input"]["k_at_least"].as_u64().expect("a count");
            let got = ln_poisson(k, number(&case["input"]["lam"]));
            assert_close(got, number(&case["expected"]["log_p_ge"]), 1e-9, &format!("k = {k}"));
        }
    }

    #[test]
    fn edges() {
        assert!(ln_poisson(1, 0.0).is_infinite(), "nothing expected");
        assert!(ln_binomial(0, 0, 0.5).abs() < 1e-15);
        assert!(ln_binomial(3, 2, 0.5).is_infinite());
        assert!(ln_binomial(1, 2, f64::NAN).is_nan());
        assert!(ln_poisson(1, f64::NAN).is_nan());
        assert_close(ln_binomial(2, 2, 0.25), (0.0625_f64).ln(), 1e-12, "both");
    }

    proptest! {
        /// The binomial tail equals statrs's survival function to 1e-8.
        #[test]
        fn binomial_equals_statrs(n in 1_u64..400, part in 0.0_f64..=1.0, p in 0.01_f64..0.99) {
            #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "a share of n")]
            let k = ((part * real(n)) as u64).max(1);
            let want = Binomial::new(p, n).expect("a distribution").sf(k - 1);
            prop_assume!(want > 1e-250);
            prop_assert!((ln_binomial(k, n, p) - want.ln()).abs() < 1e-8);
        }
    }
}
