//! How often one pair of scope and signature may raise a false alarm.
//!
//! In: the time between two false alarms of the whole process, and how many pairs are watching. Out: the
//! average run length (ARL) of one pair, in its own observations. If every pair's false alarms come `pairs`
//! times more seldom than the process may have them, those of all pairs together come as seldom as wanted:
//! rates of false alarms add up, whatever the dependence between pairs.

use sseismo_trace::Micros;

use crate::sequential::aggregate::Thresholds;

/// The shortest run length that is ever asked for: a pair that sees an observation a week must still not
/// alarm on its first.
const SHORTEST: f64 = 1_000.0;

/// What a watch is given to set its thresholds.
#[derive(Debug)]
pub(crate) struct Share<'a> {
    pub(crate) budget: Budget,
    /// Thresholds that were computed before, by anyone.
    pub(crate) thresholds: &'a mut Thresholds,
    /// Where the chance of resampling comes from.
    pub(crate) seed: u64,
}

/// The share of each pair.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Budget {
    every: Micros,
    pairs: u64,
}

impl Budget {
    pub(crate) fn new(every: Micros, pairs: u64) -> Self {
        Self { every, pairs: pairs.max(1) }
    }

    /// Pairs that share it.
    pub(crate) fn pairs(self) -> u64 {
        self.pairs
    }

    /// The share of each of so many statistics of one pair.
    pub(crate) fn split(self, parts: u64) -> Self {
        Self { pairs: self.pairs.saturating_mul(parts.max(1)), ..self }
    }

    /// Observations between two false alarms of a pair that makes one observation per `pace`.
    pub(crate) fn run_length(self, pace: Micros) -> f64 {
        #[expect(clippy::cast_precision_loss, reason = "pairs are few")]
        let pairs = self.pairs as f64;
        (self.every.seconds() * pairs / pace.seconds().max(1e-6)).max(SHORTEST)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_false_alarms_of_all_pairs_add_up_to_what_was_asked_for() {
        let day = Micros(86_400_000_000);
        let budget = Budget::new(day, 7);
        // One observation per 10 s.
        let per_day = 8_640.0 / budget.run_length(Micros(10_000_000));
        assert!((7.0 * per_day - 1.0).abs() < 1e-12);
        assert!(Budget::new(day, 1).run_length(Micros(604_800_000_000)) >= 1_000.0);
    }
}
