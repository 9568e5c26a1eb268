//! Alternatives to bet on, tuned.
//!
//! In: p0 and the wanted ARL. Out: alternatives and weights. Any choice keeps the false-alarm rate, because
//! the threshold is computed for it; the choice decides how close the delay comes to the oracle's.

use super::e_detector::{Mixture, MixtureError};

/// Alternatives tuned for one p0 and ARL.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Design {
    /// Flag probability of the baseline.
    pub p0: f64,
    /// Average run length, observations.
    pub arl: f64,
    /// Alternatives and their weights.
    pub alternatives: &'static [(f64, f64)],
}

/// Made by `cargo run -p sseismo-live-detector --example tune_aggregate`.
pub const DESIGNS: &[Design] = &[
    // worst delay 0.932 of what is allowed
    Design {
        p0: 0.0003,
        arl: 1e5,
        alternatives: &[(0.0034, 0.585), (0.0305, 0.102), (0.0529, 0.232), (0.1988, 0.054), (0.5925, 0.027)],
    },
    // worst delay 0.984 of what is allowed
    Design {
        p0: 0.0003,
        arl: 1e8,
        alternatives: &[(0.0037, 0.883), (0.0158, 0.068), (0.0513, 0.017), (0.2918, 0.026), (0.5557, 0.006)],
    },
    // worst delay 0.981 of what is allowed
    Design {
        p0: 0.001,
        arl: 1e5,
        alternatives: &[(0.0084, 0.825), (0.0209, 0.084), (0.0964, 0.043), (0.2001, 0.028), (0.5485, 0.02)],
    },
    // worst delay 0.984 of what is allowed
    Design {
        p0: 0.001,
        arl: 1e8,
        alternatives: &[(0.0097, 0.751), (0.0312, 0.15), (0.0856, 0.06), (0.0855, 0.02), (0.6983, 0.019)],
    },
    // worst delay 1.002 of what is allowed
    Design {
        p0: 0.003,
        arl: 1e5,
        alternatives: &[(0.0259, 0.689), (0.0782, 0.181), (0.2046, 0.092), (0.5776, 0.038)],
    },
    // worst delay 0.967 of what is allowed
    Design {
        p0: 0.003,
        arl: 1e8,
        alternatives: &[(0.0224, 0.439), (0.0414, 0.346), (0.1883, 0.17), (0.771, 0.045)],
    },
    // worst delay 0.945 of what is allowed
    Design { p0: 0.01, arl: 1e5, alternatives: &[(0.0857, 0.607), (0.2263, 0.329), (0.7591, 0.064)] },
    // worst delay 0.949 of what is allowed
    Design { p0: 0.01, arl: 1e8, alternatives: &[(0.0812, 0.685), (0.255, 0.241), (0.7785, 0.074)] },
    // worst delay 0.932 of what is allowed
    Design { p0: 0.03, arl: 1e5, alternatives: &[(0.0908, 0.303), (0.2643, 0.566), (0.6655, 0.131)] },
    // worst delay 0.950 of what is allowed
    Design { p0: 0.03, arl: 1e8, alternatives: &[(0.1339, 0.561), (0.3574, 0.339), (0.7388, 0.1)] },
];

/// Above this flags are no sign of anything.
pub const LARGEST_P0: f64 = 0.5;

impl Design {
    /// The design whose p0 and then ARL are nearest, as ratios.
    pub fn nearest(p0: f64, arl: f64) -> &'static Self {
        let distance = |design: &Self| {
            let ratio = |a: f64, b: f64| (a / b).ln().abs();
            (ratio(design.p0, p0), ratio(design.arl, arl))
        };
        let nearest = DESIGNS.iter().min_by(|a, b| {
            let (a, b) = (distance(a), distance(b));
            a.0.total_cmp(&b.0).then(a.1.total_cmp(&b.1))
        });
        nearest.unwrap_or(&DESIGNS[0])
    }

    /// Its alternatives against `p0`: those that are too close to p0 are left out, and when none is left one
    /// half-way to certainty is bet on.
    ///
    /// # Errors
    /// When p0 is not above 0 and at most [`LARGEST_P0`].
    pub fn against(&self, p0: f64) -> Result<Mixture, MixtureError> {
        if !(p0 > 0.0 && p0 <= LARGEST_P0) {
            return Err(MixtureError::Baseline(p0));
        }
        let kept: Vec<_> = self.alternatives.iter().filter(|(p1, _)| *p1 >= 1.5 * p0).copied().collect();
        let sum: f64 = kept.iter().map(|(_, weight)| weight).sum();
        if kept.is_empty() {
            return Mixture::new(p0, &[(f64::midpoint(p0, 1.0), 1.0)]);
        }
        let shares: Vec<_> = kept.into_iter().map(|(p1, weight)| (p1, weight / sum)).collect();
        Mixture::new(p0, &shares)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_design_is_a_mixture_and_every_usable_p0_has_one() {
        for design in DESIGNS {
            assert!(Mixture::new(design.p0, design.alternatives).is_ok(), "{design:?}");
        }
        for p0 in [1e-6, 1e-4, 0.001, 0.004, 0.03, 0.2, 0.5] {
            for arl in [1e3, 1e5, 1e9] {
                let mixture = Design::nearest(p0, arl).against(p0).unwrap();
                assert!(mixture.alternatives().iter().all(|alternative| alternative.p1 > p0));
            }
        }
        assert_eq!(DESIGNS[0].against(0.6), Err(MixtureError::Baseline(0.6)));
    }
}
