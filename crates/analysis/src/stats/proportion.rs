//! Shares: their interval, and the large-sample comparison of two.

use super::{Z95, real, two_sided_normal};

/// 95 % Wilson score interval of `k` out of `n`; `[0, 1]` when `n` is 0: nothing is known.
///
/// Source: Wilson, J. Am. Stat. Assoc. 22 (1927) 209–212.
pub fn wilson(k: u64, n: u64) -> [f64; 2] {
    if n == 0 {
        return [0.0, 1.0];
    }
    let (share, n_real, z2) = (real(k) / real(n), real(n), Z95 * Z95);
    let centre = share + z2 / (2.0 * n_real);
    let half = Z95 * (share * (1.0 - share) / n_real + z2 / (4.0 * n_real * n_real)).sqrt();
    let scale = 1.0 + z2 / n_real;
    // The limits at 0 and n are exact; rounding must not move them.
    [
        if k == 0 { 0.0 } else { ((centre - half) / scale).max(0.0) },
        if k == n { 1.0 } else { ((centre + half) / scale).min(1.0) },
    ]
}

/// 95 % interval of the difference k1/n1 − k2/n2, Newcombe's hybrid of the two Wilson intervals;
/// `[-1, 1]` when a group is empty.
///
/// Source: Newcombe, Stat. Med. 17 (1998) 873–890, method 10.
pub fn difference_ci95(k1: u64, n1: u64, k2: u64, n2: u64) -> [f64; 2] {
    if n1 == 0 || n2 == 0 {
        return [-1.0, 1.0];
    }
    let (p1, p2) = (real(k1) / real(n1), real(k2) / real(n2));
    let ([low1, high1], [low2, high2]) = (wilson(k1, n1), wilson(k2, n2));
    [p1 - p2 - (p1 - low1).hypot(high2 - p2), p1 - p2 + (high1 - p1).hypot(p2 - low2)]
}

/// Pooled z-test of k1/n1 against k2/n2: (z, two-sided p).
///
/// `None` when a group is empty, or when all or none of the observations are hits: there is no
/// variance to measure against.
pub fn two_proportion_z(k1: u64, n1: u64, k2: u64, n2: u64) -> Option<(f64, f64)> {
    let (hits, all) = (k1 + k2, n1 + n2);
    if n1 == 0 || n2 == 0 || hits == 0 || hits == all {
        return None;
    }
    let pooled = real(hits) / real(all);
    let error = (pooled * (1.0 - pooled) * (1.0 / real(n1) + 1.0 / real(n2))).sqrt();
    let z = (real(k1) / real(n1) - real(k2) / real(n2)) / error;
    Some((z, two_sided_normal(z)))
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::super::golden::{assert_close, cases, number};
    use super::*;

    fn whole(value: &serde_json::Value) -> u64 {
        value.as_u64().expect("a whole number")
    }

    #[test]
    fn wilson_equals_scipy_to_1e_9() {
        for case in cases("proportion_ci") {
            let (k, n) = (whole(&case["input"]["k"]), whole(&case["input"]["n"]));
            let got = wilson(k, n);
            let Some(want) = case["expected"]["wilson"].as_array() else {
                assert_eq!((n, got), (0, [0.0, 1.0]), "SciPy fails only on n = 0");
                continue;
            };
            assert_close(got[0], number(&want[0]), 1e-9, "low");
            assert_close(got[1], number(&want[1]), 1e-9, "high");
        }
    }

    #[test]
    fn wilson_equals_the_published_interval() {
        let [low, high] = wilson(34, 100);
        assert_eq!(
            (format!("{:.1}", low * 100.0), format!("{:.1}", high * 100.0)),
            ("25.5".into(), "43.7".into())
        );
    }

    /// z to 1e-12, p to 1e-8 (statrs's erfc).
    #[test]
    fn z_equals_the_reference() {
        for case in cases("two_proportion_z") {
            let input = &case["input"];
            let got = two_proportion_z(
                whole(&input["k1"]),
                whole(&input["n1"]),
                whole(&input["k2"]),
                whole(&input["n2"]),
            );
            let (z, p) = got.unwrap_or((f64::NAN, f64::NAN));
            assert_close(z, number(&case["expected"]["z"]), 1e-12, "z");
            assert_close(p, number(&case["expected"]["p_two_sided"]), 1e-8, "p");
        }
    }

    /// Newcombe's own example, 56/70 against 48/80: 0.0524 to 0.3339.
    #[test]
    fn difference_equals_newcombe() {
        let [low, high] = difference_ci95(56, 70, 48, 80);
        assert_close(low, 0.0524, 1e-3, "low");
        assert_close(high, 0.3339, 1e-3, "high");
    }

    proptest! {
        /// The interval holds the share and lies in 0..=1.
        #[test]
        fn wilson_holds_the_share(n in 1_u64..10_000, part in 0.0_f64..=1.0) {
            #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "a share of n")]
            let k = (part * real(n)) as u64;
            let [low, high] = wilson(k, n);
            let share = real(k) / real(n);
            prop_assert!(0.0 <= low && low <= share && share <= high && high <= 1.0);
        }
    }
}
