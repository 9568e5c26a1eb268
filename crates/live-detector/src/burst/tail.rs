//! How far values can lie beyond those seen: a generalised Pareto tail.
//!
//! In: a sample. Out: a threshold, and draws beyond it. Probability-weighted moments after Hosking and
//! Wallis, "Parameter and quantile estimation for the generalized Pareto distribution", Technometrics 29
//! (1987): closed form, and better than maximum likelihood for the few dozen values of a tail.

use super::density::real;

/// What lies above this quantile is tail.
const TAIL_FROM: f64 = 0.99;
/// Fewer values than this do not tell a shape.
const EXCEEDANCES_MIN: usize = 20;
/// Shapes that few values suggest but no finite sample of logarithms can prove are cut off here: the tail of
/// the *logarithm* of a Pareto variable is exponential, shape 0.
const SHAPE: std::ops::RangeInclusive<f64> = -0.5..=0.2;

/// P(X > from + y) = share · (1 + shape·y/scale)^(−1/shape).
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct Tail {
    pub(super) from: f64,
    pub(super) share: f64,
    pub(super) scale: f64,
    pub(super) shape: f64,
}

impl Tail {
    /// The tail of a sample; `None` when it is too small or has no spread.
    pub(super) fn fit(values: &[f64]) -> Option<Self> {
        let mut ascending = values.to_vec();
        ascending.sort_by(f64::total_cmp);
        let above = (ascending.len() / 100).max(EXCEEDANCES_MIN);
        let at = ascending.len().checked_sub(above + 1)?;
        let from = ascending[at];
        let excess: Vec<f64> = ascending[at + 1..].iter().map(|x| x - from).collect();
        let n = real(above);
        let mean = excess.iter().sum::<f64>() / n;
        let weighted =
            (1_u32..).zip(&excess).map(|(rank, y)| (1.0 - (f64::from(rank) - 0.35) / n) * y).sum::<f64>() / n;
        if mean <= 1e-9 {
            return None;
        }
        let shape = (2.0 - mean / (mean - 2.0 * weighted)).clamp(*SHAPE.start(), *SHAPE.end());
        let share = n / real(ascending.len());
        // The scale that keeps the mean, whatever the shape was cut to.
        Some(Self { from, share: share.max(1.0 - TAIL_FROM), scale: mean * (1.0 - shape), shape })
    }

    /// A value beyond `from`; `survival` is uniform in (0, 1].
    pub(super) fn draw(&self, survival: f64) -> f64 {
        let survival = survival.max(1e-300);
        self.from
            + if self.shape.abs() < 1e-6 {
                -self.scale * survival.ln()
            } else {
                self.scale / self.shape * (survival.powf(-self.shape) - 1.0)
            }
    }

    /// The value that is passed with probability `p`; `from` for a `p` above the tail's share.
    pub(super) fn passed_with(&self, p: f64) -> f64 {
        self.draw((p / self.share).min(1.0))
    }
}

#[cfg(test)]
mod tests {
    use super::super::tests::{golden, numbers};
    use super::*;

    /// Draws equal `SciPy`'s `genpareto.isf`, and a fit equals the moments in `NumPy`, to 1e-9.
    #[test]
    fn equals_the_reference() {
        let golden = golden("burst_likelihood");
        for case in golden["tails"].as_array().unwrap() {
            let number = |key: &str| case[key].as_f64().unwrap();
            let tail =
                Tail { from: number("from"), share: 0.01, scale: number("scale"), shape: number("shape") };
            for (survival, want) in numbers(&case["survival"]).into_iter().zip(numbers(&case["value"])) {
                let got = tail.draw(survival);
                assert!((got - want).abs() < 1e-9 * want.abs(), "{case} {survival}: {got}");
            }
        }
        let fit = &golden["fit"];
        let mut values = vec![0.0; usize::try_from(fit["zeros"].as_u64().unwrap()).unwrap()];
        values.extend(numbers(&fit["values"]));
        let tail = Tail::fit(&values).unwrap();
        assert!((tail.shape - fit["shape"].as_f64().unwrap()).abs() < 1e-9);
        assert!((tail.scale - fit["scale"].as_f64().unwrap()).abs() < 1e-9);
    }

    #[test]
    fn a_tail_is_passed_as_often_as_it_says() {
        let tail = Tail { from: 3.0, share: 0.01, scale: 0.5, shape: 0.0 };
        assert!((tail.passed_with(0.01) - 3.0).abs() < 1e-12);
        assert!((tail.passed_with(0.000_1) - (3.0 + 0.5 * 100.0_f64.ln())).abs() < 1e-12);
        assert!((tail.passed_with(0.5) - 3.0).abs() < 1e-12, "above its share a tail tells nothing");
    }

    #[test]
    fn few_or_equal_values_have_no_tail() {
        assert_eq!(Tail::fit(&[]), None);
        assert_eq!(Tail::fit(&[1.0; 20]), None);
        assert_eq!(Tail::fit(&vec![1.0; 5_000]), None);
    }
}
