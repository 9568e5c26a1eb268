//! Many streams of one route to one alarm: the mixture CUSUM with its computed threshold.
//!
//! In: a flag per observation (a stream, or a flush group) of a route. Out: how much evidence there is and
//! how much is needed. One owner per route: flags of several owners cannot be merged afterwards, though
//! statistics of independent owners may be added.

use std::collections::BTreeMap;

use super::calibration::{EXCURSIONS, Threshold, threshold};
use super::design::Design;
use super::e_detector::{EDetector, Mixture, MixtureError, Recursion};

/// p0 is rounded up to the next of so many values per factor of ten: at most 7.5 % too high, which costs
/// delay, never false alarms.
const P0_PER_DECADE: f64 = 32.0;
/// ARLs are rounded up to the next of so many values per factor of ten.
const ARL_PER_DECADE: f64 = 8.0;
/// Where the chance of the calibration comes from.
const SEED: u64 = 1;

/// Thresholds that were computed once: about 50 ms each (optimised), then a look-up.
#[derive(Clone, Debug, Default)]
pub struct Thresholds {
    known: BTreeMap<(i32, i32), (Mixture, Threshold)>,
}

impl Thresholds {
    /// What to bet on and when to alarm when flags have at most probability `p0` and alarms may come every
    /// `arl` observations.
    ///
    /// # Errors
    /// When p0 is not above 0 and at most [`LARGEST_P0`](super::design::LARGEST_P0), rounded up.
    pub fn of(&mut self, p0: f64, arl: f64) -> Result<(Mixture, Threshold), MixtureError> {
        if !(p0 > 0.0 && p0 < 1.0) {
            return Err(MixtureError::Baseline(p0));
        }
        let (p0_step, p0) = rounded_up(p0, P0_PER_DECADE);
        let (arl_step, arl) = rounded_up(arl.max(1.0), ARL_PER_DECADE);
        if let Some(known) = self.known.get(&(p0_step, arl_step)) {
            return Ok(known.clone());
        }
        let mixture = Design::nearest(p0, arl).against(p0)?;
        let threshold = threshold(&mixture, arl, EXCURSIONS, SEED);
        self.known.insert((p0_step, arl_step), (mixture.clone(), threshold));
        Ok((mixture, threshold))
    }
}

/// The place on a logarithmic scale and the value there, never below `value` by more than rounding.
fn rounded_up(value: f64, per_decade: f64) -> (i32, f64) {
    #[expect(clippy::cast_possible_truncation, reason = "a few thousand at most")]
    let step = (value.log10() * per_decade - 1e-9).ceil() as i32;
    (step, 10_f64.powf(f64::from(step) / per_decade))
}

/// Evidence of one route.
#[derive(Clone, Debug)]
pub struct Aggregate {
    detector: EDetector,
    threshold: Threshold,
    ln_statistic: f64,
}

impl Aggregate {
    /// A route whose flags are innocent with a probability of at most `p0` (an upper limit), and that may
    /// alarm every `arl` observations.
    ///
    /// # Errors
    /// As [`Thresholds::of`].
    pub fn new(p0: f64, arl: f64, thresholds: &mut Thresholds) -> Result<Self, MixtureError> {
        let (mixture, threshold) = thresholds.of(p0, arl)?;
        let detector = EDetector::new(mixture, Recursion::Cusum);
        Ok(Self { ln_statistic: detector.ln_statistic(), detector, threshold })
    }

    /// Takes one observation in; whether the route is in alarm.
    pub fn push(&mut self, flag: bool) -> bool {
        self.ln_statistic = self.detector.push(flag);
        self.alarms()
    }

    /// Whether the evidence has reached the threshold.
    pub fn alarms(&self) -> bool {
        self.ln_statistic >= self.threshold.ln
    }

    /// Logarithm of the evidence.
    pub fn ln_statistic(&self) -> f64 {
        self.ln_statistic
    }

    /// What is needed, and how often an innocent route reaches it.
    pub fn threshold(&self) -> &Threshold {
        &self.threshold
    }

    /// What is bet on, with the p0 that is assumed.
    pub fn mixture(&self) -> &Mixture {
        self.detector.mixture()
    }

    /// Forgets all evidence: after an alarm was dealt with.
    pub fn reset(&mut self) {
        self.detector.reset();
        self.ln_statistic = self.detector.ln_statistic();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn thresholds_are_computed_once_and_on_the_safe_side() {
        let mut thresholds = Thresholds::default();
        let (mixture, first) = thresholds.of(0.0101, 900.0).unwrap();
        assert!((0.0101..0.0101 * 1.075).contains(&mixture.p0()), "{mixture:?}");
        assert!(first.arl >= 900.0, "{first:?}");
        assert_eq!(thresholds.of(0.0102, 950.0).unwrap().1, first);
        assert_eq!(thresholds.known.len(), 1);
        assert!(thresholds.of(0.0, 900.0).is_err() && thresholds.of(0.7, 900.0).is_err());
    }

    #[test]
    fn a_burst_of_flags_alarms_and_is_forgotten_on_reset() {
        let mut route = Aggregate::new(0.01, 1e4, &mut Thresholds::default()).unwrap();
        assert!((0..1_000).all(|_| !route.push(false)));
        let needed = (1..20).find(|_| route.push(true)).expect("an alarm");
        assert!((2..=5).contains(&needed), "{needed}");
        route.reset();
        assert!(!route.alarms() && route.ln_statistic() <= 0.0);
    }
}
