//! Whether the values that stand out share one lattice by more than chance.
//!
//! The scan asks whether counts pile up on a lattice. It does not ask whether they pile up elsewhere as
//! well: rows that stand in a table twice, or a few tasks that are answered alike every time, make popular
//! values anywhere, and any two of them share some step. So the *values* are asked here, each once
//! however popular it is: were they popular at random places, how often would so many of them share a
//! lattice of this step or a larger one?

use super::background::Background;
use super::scan::STEPS;
use super::{Count, FIELD, Lattice};
use crate::stats::{real, tail};

/// Two values are the fewest that can share a lattice.
const FEWEST: u64 = 2;

/// Upper bound of the chance that values at random places share a lattice like `lattice`, at most 1.
///
/// The values are taken in the order in which they stand out, as many as make the bound smallest: a few
/// that tower over the rest, or all of them where each holds one or two counts.
pub(super) fn chance(counts: &[Count], background: &Background, lattice: Lattice) -> f64 {
    let mut values: Vec<(f64, bool)> = counts
        .iter()
        .map(|c| (tail::ln_poisson(c.count, background.at(c.value)), lattice.holds(c.value)))
        .collect();
    values.sort_by(|a, b| a.0.total_cmp(&b.0));
    let (mut on, mut smallest) = (0, 1.0);
    for (of, (_, holds)) in (1..).zip(&values) {
        if *holds {
            on += 1;
            smallest = chance_of(on, of, lattice).min(smallest);
        }
    }
    smallest
}

/// The same for `on` of `of` values. A random value lies on one lattice of step s with chance 1/s, and s
/// lattices have that step; the field's lattice was known before, so that nothing was searched for it.
fn chance_of(on: u64, of: u64, lattice: Lattice) -> f64 {
    if on < FEWEST {
        return 1.0;
    }
    if lattice == FIELD {
        return share_at_least(on, of, lattice.step);
    }
    let steps = lattice.step..=*STEPS.end();
    steps.map(|step| f64::from(step) * share_at_least(on, of, step)).sum::<f64>().min(1.0)
}

/// Chernoff's bound of P(X ≥ `on`) for X ~ Binomial(`of`, 1/`step`); exact where `on` = `of`.
fn share_at_least(on: u64, of: u64, step: u32) -> f64 {
    let (share, chance) = (real(on) / real(of), 1.0 / f64::from(step));
    if share <= chance {
        return 1.0;
    }
    let off = 1.0 - share;
    let rest = if on == of { 0.0 } else { off * (off / (1.0 - chance)).ln() };
    (-real(of) * (share * (share / chance).ln() + rest)).exp()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::stats::golden::assert_close;

    /// Two values share a step of 40 or more with near certainty, three with one chance in 41.
    #[test]
    fn chances_by_hand() {
        let any = Lattice { step: 40, offset: 7 };
        assert_close(chance_of(1, 1, any), 1.0, 0.0, "one value");
        assert_close(chance_of(2, 2, any), 1.0, 0.0, "two values");
        let three: f64 = STEPS.map(|step| f64::from(step).powi(-2)).sum();
        assert_close(chance_of(3, 3, any), three, 1e-12, "three values");
        assert_close(chance_of(2, 2, FIELD), 518_f64.powi(-2), 1e-12, "two values of a lattice known before");
    }

    /// Chernoff's bound is never under the exact tail.
    #[test]
    fn the_bound_bounds() {
        for (on, of, step) in [(2, 3, 518), (3, 10, 64), (5, 300, 96), (30, 31, 40), (1, 2_000, 1_100)] {
            let exact = tail::ln_binomial(on, of, 1.0 / f64::from(step)).exp();
            assert!(share_at_least(on, of, step) >= exact * (1.0 - 1e-9), "{on} of {of}, step {step}");
        }
    }
}
