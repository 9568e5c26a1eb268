//! Many tests at once.

use super::real_len;

/// Benjamini–Hochberg adjusted p-values, in the order of `p`.
///
/// NaN stays NaN and does not count as a test; no p-values give none.
///
/// Source: Benjamini & Hochberg, J. R. Stat. Soc. B 57 (1995) 289–300.
pub fn benjamini_hochberg(p: &[f64]) -> Vec<f64> {
    let mut order: Vec<usize> = (0..p.len()).filter(|&i| !p[i].is_nan()).collect();
    order.sort_by(|&a, &b| p[b].total_cmp(&p[a]));
    let mut adjusted = vec![f64::NAN; p.len()];
    let mut smallest = 1.0_f64;
    let m = order.len();
    for (from_top, &i) in order.iter().enumerate() {
        let scaled = p[i] * real_len(m) / real_len(m - from_top);
        smallest = smallest.min(scaled);
        adjusted[i] = smallest;
    }
    adjusted
}

#[cfg(test)]
mod tests {
    use super::super::golden::{assert_close, cases, numbers};
    use super::*;

    #[test]
    fn equals_scipy_to_1e_12() {
        for case in cases("fdr") {
            let got = benjamini_hochberg(&numbers(&case["input"]["p"]));
            let want = numbers(&case["expected"]["bh"]);
            assert_eq!(got.len(), want.len());
            for (got, want) in got.iter().zip(want) {
                assert_close(*got, want, 1e-12, "bh");
            }
        }
    }

    #[test]
    fn nan_is_kept_and_not_counted() {
        let got = benjamini_hochberg(&[0.01, f64::NAN, 0.04]);
        assert_close(got[0], 0.02, 1e-12, "two tests, not three");
        assert!(got[1].is_nan());
        assert_close(got[2], 0.04, 1e-12, "largest");
    }
}
