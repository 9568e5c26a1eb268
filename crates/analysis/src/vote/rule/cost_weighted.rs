//! Each vote weighs one over its size: reported tokens, or characters when a count is missing.
//!
//! Worth −2.8 points [−3.7, −1.9] against plurality. To save cost, stop early instead.

use super::{Choice, Rule, best, summed};
use crate::vote::Ballots;

#[derive(Debug)]
pub(super) struct CostWeighted;

impl Rule for CostWeighted {
    fn name(&self) -> &'static str {
        "cost-weighted"
    }

    fn about(&self) -> &'static str {
        "votes weigh 1/tokens (measured: -2.8 points)"
    }

    fn choose(&self, ballots: &Ballots<'_>) -> Choice {
        let sizes = ballots.sizes();
        best(ballots, summed(ballots, |i| 1.0 / sizes[i].max(1.0)))
    }
}
