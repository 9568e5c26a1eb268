//! Exact quantiles of a sample.

use super::real_len;

/// The `q`-quantile of ascending values: the ⌈q·n⌉-th of them, so always a value that was seen
/// (`inverted_cdf` in `NumPy`).
///
/// NaN when there is no value, when a value is NaN (it sorts last), or when `q` is outside 0..=1.
pub fn of_sorted(ascending: &[f64], q: f64) -> f64 {
    let Some(last) = ascending.last() else { return f64::NAN };
    if last.is_nan() || !(0.0..=1.0).contains(&q) {
        return f64::NAN;
    }
    #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "a rank inside the sample")]
    let rank = (q * real_len(ascending.len())).ceil() as usize;
    ascending[rank.clamp(1, ascending.len()) - 1]
}

#[cfg(test)]
mod tests {
    use super::super::golden::{assert_close, cases, number, numbers};
    use super::*;

    #[test]
    fn equals_numpy() {
        for case in cases("quantile_exact") {
            let mut x = numbers(&case["input"]["x"]);
            x.sort_by(f64::total_cmp);
            for q in [0.5, 0.95, 0.99] {
                let want = number(&case["expected"][format!("inverted_cdf@{q}")]);
                assert_close(of_sorted(&x, q), want, 1e-12, &format!("{} {q}", case["name"]));
            }
        }
    }

    #[test]
    fn a_place_outside_is_nan() {
        assert!(of_sorted(&[1.0], 1.5).is_nan());
        assert!(of_sorted(&[1.0], f64::NAN).is_nan());
    }
}
