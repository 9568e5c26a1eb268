//! Likelihood ratios of a stream's groups to one statistic.
//!
//! In: [`Lanes`] of one group after the other. Out: the log-mean-exp of one CUSUM per alternative. A CUSUM is
//! kept as its exponential, E = max(E, 1)·L, so that a group costs a few multiplications and no logarithm
//! (Page, Biometrika 41 (1954); the mean over alternatives: statistics of mixtures as in Siegmund,
//! Sequential Analysis (1985)).

use super::likelihood::{ALTERNATIVES, Lanes, mean};

/// No ratio is let over this, so that the products stay finite: 80 nats, far above any threshold.
const CEILING: f32 = 5e34;

/// One CUSUM per alternative.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct Cusum {
    /// Exponentials of the CUSUMs.
    level: Lanes,
    /// Groups since each was last at nothing.
    since: [u16; ALTERNATIVES],
}

impl Default for Cusum {
    fn default() -> Self {
        Self { level: [0.0; ALTERNATIVES], since: [0; ALTERNATIVES] }
    }
}

impl Cusum {
    /// Takes in the ratios of one group.
    pub(super) fn push(&mut self, ratios: &Lanes) {
        for ((level, since), ratio) in self.level.iter_mut().zip(&mut self.since).zip(ratios) {
            *since = if *level <= 1.0 { 1 } else { since.saturating_add(1) };
            *level = (level.max(1.0) * ratio).min(CEILING);
        }
    }

    /// The mean of the exponentials: what is compared with e^threshold.
    pub(super) fn mean(&self, trust: &Lanes) -> f32 {
        mean(&self.level, trust)
    }

    /// The statistic, in nats.
    pub(super) fn statistic(&self, trust: &Lanes) -> f64 {
        f64::from(self.mean(trust)).ln()
    }

    /// Nothing is gathered for any trusted alternative: the state of a new stream.
    pub(super) fn is_idle(&self, trust: &Lanes) -> bool {
        self.level.iter().zip(trust).all(|(level, trust)| *level <= 1.0 || *trust <= 0.0)
    }

    /// The alternative that explains most, and for how many groups.
    pub(super) fn leading(&self, trust: &Lanes) -> (usize, u16) {
        let share = |k: usize| self.level[k] * trust[k];
        let most = (1..ALTERNATIVES).fold(0, |best, k| if share(k) > share(best) { k } else { best });
        (most, self.since[most])
    }
}
