//! A 2 × 2 table against an odds ratio other than 1.
//!
//! Source: Fisher's non-central hypergeometric distribution (Fisher, J. R. Stat. Soc. 98 (1935) 39–82);
//! with an odds ratio of 1 it is the one-sided exact test.

use statrs::function::gamma::ln_gamma;

use super::real;

/// P(K ≥ a) of `[[a, b], [c, d]]`, margins given, when the odds of the first row are `odds` times those
/// of the second: the p-value of "the odds ratio is at most `odds`".
///
/// A table with an empty row or column says nothing: 1. NaN or an `odds` not above 0 gives NaN. Time
/// grows with the smallest margin.
pub fn at_least([[a, b], [c, d]]: [[u64; 2]; 2], odds: f64) -> f64 {
    if odds.is_nan() || odds <= 0.0 {
        return f64::NAN;
    }
    let (row, other_row, column) = (a + b, c + d, a + c);
    let (lowest, highest) = (column.saturating_sub(other_row), row.min(column));
    if lowest == highest {
        return 1.0;
    }
    let weight = |k: u64| ln_choose(row, k) + ln_choose(other_row, column - k) + real(k) * odds.ln();
    let weights: Vec<f64> = (lowest..=highest).map(weight).collect();
    let largest = weights.iter().copied().fold(f64::NEG_INFINITY, f64::max);
    let sum = |from: &[f64]| from.iter().map(|weight| (weight - largest).exp()).sum::<f64>();
    let from = usize::try_from(a - lowest).unwrap_or(usize::MAX).min(weights.len());
    (sum(&weights[from..]) / sum(&weights)).min(1.0)
}

fn ln_choose(n: u64, k: u64) -> f64 {
    ln_gamma(real(n) + 1.0) - ln_gamma(real(k) + 1.0) - ln_gamma(real(n - k) + 1.0)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// By hand: margins 4, 4 and 4; weights C(4,k)² ωᵏ.
    #[test]
    fn small_tables_by_hand() {
        let central: f64 = (16.0 + 1.0) / 70.0;
        assert!((at_least([[3, 1], [1, 3]], 1.0) - central).abs() < 1e-12);
        let with_two = (16.0 * 8.0 + 16.0) / (1.0 + 16.0 * 2.0 + 36.0 * 4.0 + 16.0 * 8.0 + 16.0);
        assert!((at_least([[3, 1], [1, 3]], 2.0) - with_two).abs() < 1e-12);
    }

    #[test]
    fn edges_say_nothing() {
        assert!((at_least([[0, 0], [3, 4]], 2.0) - 1.0).abs() < 1e-12);
        assert!((at_least([[0, 5], [3, 4]], 2.0) - 1.0).abs() < 1e-12);
        assert!(at_least([[1, 2], [3, 4]], 0.0).is_nan());
    }
}
