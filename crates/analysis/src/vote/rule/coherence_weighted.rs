//! Each vote weighs the mean cosine of its trace to all others, never below 0.
//!
//! Worth −0.1 points [−0.6, +0.3] against plurality: coherence follows wording, not truth. When every
//! weight is 0 the votes are counted plainly.

use super::{Choice, Rule, best, summed};
use crate::vote::Ballots;

#[derive(Debug)]
pub(super) struct CoherenceWeighted;

impl Rule for CoherenceWeighted {
    fn name(&self) -> &'static str {
        "coherence-weighted"
    }

    fn about(&self) -> &'static str {
        "votes weigh their trace's mean cosine to all others (measured: -0.1 points)"
    }

    fn choose(&self, ballots: &Ballots<'_>) -> Choice {
        let Some(geometry) = ballots.geometry else { return best(ballots, ballots.counts()) };
        let weights = summed(ballots, |i| geometry.mean_cosine(i).unwrap_or(1.0).max(0.0));
        let any = weights.iter().any(|w| *w > 0.0);
        best(ballots, if any { weights } else { ballots.counts() })
    }
}
