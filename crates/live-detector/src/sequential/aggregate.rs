//! Many streams of one route to one alarm: the mixture CUSUM with its computed threshold.
//!
//! In: a flag per observation (a stream, or a flush group) of a route. Out: how much evidence there is and
//! how much is needed. One owner per route: flags of several owners cannot be merged afterwards, though
//! statistics of independent owners may be added.

use std::collections::{BTreeMap, BTreeSet};

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
    known: BTreeMap<Question, Known>,
    wanted: BTreeSet<Question>,
    asked: BTreeSet<Question>,
}

/// What to bet on, and when to alarm.
pub(crate) type Known = (Mixture, Threshold);

/// p0 and ARL, each by its step on its scale.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Question {
    p0: i32,
    arl: i32,
}

impl Question {
    fn new(p0: f64, arl: f64) -> Result<Self, MixtureError> {
        if !(p0 > 0.0 && p0 < 1.0) {
            return Err(MixtureError::Baseline(p0));
        }
        let question = Self { p0: step_up(p0, P0_PER_DECADE), arl: step_up(arl.max(1.0), ARL_PER_DECADE) };
        question.mixture().map(|_| question)
    }

    fn arl(self) -> f64 {
        at_step(self.arl, ARL_PER_DECADE)
    }

    fn mixture(self) -> Result<Mixture, MixtureError> {
        let p0 = at_step(self.p0, P0_PER_DECADE);
        Design::nearest(p0, self.arl()).against(p0)
    }

    /// Computes the threshold.
    pub(crate) fn answer(self) -> Result<Known, MixtureError> {
        let mixture = self.mixture()?;
        let threshold = threshold(&mixture, self.arl(), EXCURSIONS, SEED);
        Ok((mixture, threshold))
    }
}

impl Thresholds {
    /// What to bet on and when to alarm when flags have at most probability `p0` and alarms may come every
    /// `arl` observations.
    ///
    /// # Errors
    /// When p0 is not above 0 and at most [`LARGEST_P0`](super::design::LARGEST_P0), rounded up.
    pub fn of(&mut self, p0: f64, arl: f64) -> Result<(Mixture, Threshold), MixtureError> {
        let question = Question::new(p0, arl)?;
        if let Some(known) = self.known.get(&question) {
            return Ok(known.clone());
        }
        let known = question.answer()?;
        self.learn(question, known.clone());
        Ok(known)
    }

    /// The same where it is known; else it is wanted from now on.
    pub(crate) fn known(&mut self, p0: f64, arl: f64) -> Option<Known> {
        let question = Question::new(p0, arl).ok()?;
        let known = self.known.get(&question).cloned();
        if known.is_none() && !self.asked.contains(&question) {
            self.wanted.insert(question);
        }
        known
    }

    /// What is wanted and nobody works on; from now on somebody does.
    pub(crate) fn take_wanted(&mut self) -> BTreeSet<Question> {
        self.asked.extend(&self.wanted);
        std::mem::take(&mut self.wanted)
    }

    /// Takes up an answer.
    pub(crate) fn learn(&mut self, question: Question, known: Known) {
        self.asked.remove(&question);
        self.known.insert(question, known);
    }
}

/// The place on a logarithmic scale, whose value is never below `value` by more than rounding.
#[expect(clippy::cast_possible_truncation, reason = "a few thousand at most")]
fn step_up(value: f64, per_decade: f64) -> i32 {
    (value.log10() * per_decade - 1e-9).ceil() as i32
}

fn at_step(step: i32, per_decade: f64) -> f64 {
    10_f64.powf(f64::from(step) / per_decade)
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
