//! E-detectors on flags: evidence that flags have become more frequent than p0.
//!
//! In: flags, one by one. Out: the statistic, whose logarithm is compared with a threshold. One recursion
//! per alternative p1 runs on the likelihood ratio L = P(flag | p1) / P(flag | p0), the statistic is their
//! weighted mean. Because E\[L\] ≤ 1 for *every* flag probability up to p0, p0 may be an upper limit: being
//! wrong on that side costs delay, never false alarms. O(alternatives) per flag, no logarithm taken.

/// Evidence grows no further: far above every threshold, and products stay finite.
const MOST: f64 = 1e250;

/// Why alternatives cannot be bet on.
#[derive(Clone, Copy, Debug, PartialEq, thiserror::Error)]
pub enum MixtureError {
    /// p0 must leave room on both sides.
    #[error("the flag probability of the baseline, {0}, is not between 0 and 1")]
    Baseline(f64),
    /// An alternative must be more frequent than the baseline.
    #[error("the alternative {p1} is not between the baseline's {p0} and 1")]
    Alternative {
        /// The alternative.
        p1: f64,
        /// Flag probability of the baseline.
        p0: f64,
    },
    /// Weights must be shares of one whole.
    #[error("the weights of the alternatives must be above 0 and sum to 1, not {0}")]
    Weights(f64),
}

/// One alternative to p0.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct Alternative {
    /// Flag probability.
    pub(crate) p1: f64,
    /// Its share of the mixture.
    pub(crate) weight: f64,
    /// Likelihood ratio of a flag, above 1.
    pub(crate) hit: f64,
    /// Likelihood ratio of no flag, below 1.
    pub(crate) miss: f64,
}

impl Alternative {
    fn new(p0: f64, p1: f64, weight: f64) -> Self {
        Self { p1, weight, hit: p1 / p0, miss: (1.0 - p1) / (1.0 - p0) }
    }
}

/// A baseline probability and weighted alternatives to it.
#[derive(Clone, Debug, PartialEq)]
pub struct Mixture {
    p0: f64,
    alternatives: Vec<Alternative>,
}

impl Mixture {
    /// Alternatives `(p1, weight)` to `p0`.
    ///
    /// # Errors
    /// When p0 is no probability, an alternative is not above it, or the weights do not sum to 1.
    pub fn new(p0: f64, alternatives: &[(f64, f64)]) -> Result<Self, MixtureError> {
        if !(p0 > 0.0 && p0 < 1.0) {
            return Err(MixtureError::Baseline(p0));
        }
        if let Some(&(p1, _)) = alternatives.iter().find(|(p1, _)| !(*p1 > p0 && *p1 < 1.0)) {
            return Err(MixtureError::Alternative { p1, p0 });
        }
        let sum: f64 = alternatives.iter().map(|(_, weight)| weight).sum();
        if !((sum - 1.0).abs() < 1e-9 && alternatives.iter().all(|(_, weight)| *weight > 0.0)) {
            return Err(MixtureError::Weights(sum));
        }
        let alternatives =
            alternatives.iter().map(|&(p1, weight)| Alternative::new(p0, p1, weight)).collect();
        Ok(Self { p0, alternatives })
    }

    /// Equally weighted `bets` against `p0`, both between 0 and 1; a bet that is not above p0 is not
    /// placed: its share stays as it is.
    pub(crate) fn equal_bets(p0: f64, bets: &[f64]) -> Self {
        let weight = 1.0 / f64::from(u32::try_from(bets.len().max(1)).unwrap_or(u32::MAX));
        let alternatives = bets.iter().map(|&p1| Alternative::new(p0, p1.max(p0), weight)).collect();
        Self { p0, alternatives }
    }

    /// The flag probability of the baseline.
    pub fn p0(&self) -> f64 {
        self.p0
    }

    pub(crate) fn alternatives(&self) -> &[Alternative] {
        &self.alternatives
    }
}

/// How evidence is carried from one flag to the next.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Recursion {
    /// M ← M·L from 1: "it was never innocent". P(M ever ≥ 1/α) ≤ α (Ville).
    Product,
    /// M ← max(M, 1)·L from 1: "it changed at some time". The mean run length to M ≥ A is at least A; the
    /// threshold for an exact one is far lower and is computed.
    Cusum,
    /// R ← (R + 1)·L from 0: the same, summed over all times of change (Shiryaev–Roberts). The mean run
    /// length to R ≥ A is at least A, and closer to it.
    ShiryaevRoberts,
}

impl Recursion {
    fn start(self) -> f64 {
        match self {
            Self::Product | Self::Cusum => 1.0,
            Self::ShiryaevRoberts => 0.0,
        }
    }

    fn carried(self, value: f64) -> f64 {
        match self {
            Self::Product => value,
            Self::Cusum => value.max(1.0),
            Self::ShiryaevRoberts => value + 1.0,
        }
    }
}

/// Running evidence for a mixture.
#[derive(Clone, Debug, PartialEq)]
pub struct EDetector {
    mixture: Mixture,
    recursion: Recursion,
    values: Vec<f64>,
}

impl EDetector {
    /// Evidence before the first flag.
    pub fn new(mixture: Mixture, recursion: Recursion) -> Self {
        let values = vec![recursion.start(); mixture.alternatives.len()];
        Self { mixture, recursion, values }
    }

    /// Takes one observation in and returns the logarithm of the statistic.
    pub fn push(&mut self, flag: bool) -> f64 {
        for (value, alternative) in self.values.iter_mut().zip(&self.mixture.alternatives) {
            let ratio = if flag { alternative.hit } else { alternative.miss };
            *value = (self.recursion.carried(*value) * ratio).min(MOST);
        }
        self.ln_statistic()
    }

    /// Logarithm of the weighted mean of the evidence; below 0 when it speaks for the baseline.
    pub fn ln_statistic(&self) -> f64 {
        let weighted = self.values.iter().zip(&self.mixture.alternatives);
        weighted.map(|(value, alternative)| alternative.weight * value).sum::<f64>().ln()
    }

    /// What it bets on.
    pub fn mixture(&self) -> &Mixture {
        &self.mixture
    }

    /// Keeps the evidence and bets on as many other alternatives from now on: an e-process stays one as
    /// long as each bet is placed before its outcome is known.
    pub(crate) fn bet_on(&mut self, mixture: Mixture) {
        self.values.resize(mixture.alternatives.len(), self.recursion.start());
        self.mixture = mixture;
    }

    /// Forgets all evidence.
    pub fn reset(&mut self) {
        self.values.fill(self.recursion.start());
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn one(p0: f64, p1: f64, recursion: Recursion) -> EDetector {
        EDetector::new(Mixture::new(p0, &[(p1, 1.0)]).unwrap(), recursion)
    }

    /// CUSUM, Shiryaev–Roberts and e-process of `data/golden/bernoulli_sequential.json`, to 1e-9.
    #[test]
    fn recursions_equal_the_reference() {
        let path = concat!(env!("CARGO_MANIFEST_DIR"), "/../../data/golden/bernoulli_sequential.json");
        let file: serde_json::Value = serde_json::from_str(&std::fs::read_to_string(path).unwrap()).unwrap();
        let mut compared = 0;
        for case in file["cases"].as_array().unwrap() {
            let (p0, p1) = (case["input"]["p0"].as_f64().unwrap(), case["input"]["p1"].as_f64().unwrap());
            for (recursion, name, logarithm) in [
                (Recursion::Cusum, "cusum", true),
                (Recursion::ShiryaevRoberts, "shiryaev_roberts", false),
                (Recursion::Product, "log_e_process", true),
            ] {
                let mut detector = one(p0, p1, recursion);
                let wanted = case["expected"][name].as_array().unwrap();
                for (flag, want) in case["input"]["x"].as_array().unwrap().iter().zip(wanted) {
                    let ln = detector.push(flag.as_u64() == Some(1));
                    let (got, want) = (if logarithm { ln } else { ln.exp() }, want.as_f64().unwrap());
                    assert!((got - want).abs() <= 1e-9 * want.abs().max(1.0), "{name}: {got}, want {want}");
                    compared += 1;
                }
            }
        }
        assert_eq!(compared, 3 * (20 + 17 + 20 + 6));
    }

    #[test]
    fn impossible_mixtures_are_refused() {
        assert_eq!(Mixture::new(0.0, &[(0.5, 1.0)]), Err(MixtureError::Baseline(0.0)));
        assert_eq!(Mixture::new(0.5, &[(0.5, 1.0)]), Err(MixtureError::Alternative { p1: 0.5, p0: 0.5 }));
        assert_eq!(Mixture::new(0.1, &[(0.5, 0.4)]), Err(MixtureError::Weights(0.4)));
    }

    #[test]
    fn endless_flags_stay_finite_and_are_forgotten_on_reset() {
        let mut detector = one(0.001, 0.8, Recursion::Product);
        let last = (0..1_000).map(|_| detector.push(true)).last().unwrap();
        assert!(last.is_finite() && last > 500.0, "{last}");
        detector.reset();
        assert_eq!(detector, one(0.001, 0.8, Recursion::Product));
    }

    proptest! {
        /// One more flag never lowers the evidence: of two histories that differ in one place, the one with
        /// the flag has at least the other's statistic ever after.
        #[test]
        fn evidence_rises_with_flags(mut flags in prop::collection::vec(prop::bool::weighted(0.1), 1..200),
                                     place in any::<prop::sample::Index>()) {
            for recursion in [Recursion::Product, Recursion::Cusum, Recursion::ShiryaevRoberts] {
                let mixture = Mixture::new(0.01, &[(0.05, 0.5), (0.4, 0.5)]).unwrap();
                let place = place.index(flags.len());
                let mut run = |flag| {
                    flags[place] = flag;
                    let mut detector = EDetector::new(mixture.clone(), recursion);
                    flags.iter().map(|flag| detector.push(*flag)).collect::<Vec<_>>()
                };
                let (with, without) = (run(true), run(false));
                prop_assert!(with.iter().zip(&without).all(|(a, b)| a >= &(b - 1e-9)));
            }
        }
    }
}
