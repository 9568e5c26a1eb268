//! Do the flags of a baseline depend on one another?
//!
//! In: the baseline's flags, one by one. Out: how far they are from independent, with a plain sentence. Every
//! threshold here assumes that an innocent flag says nothing about the next: flags that come in clumps alarm
//! more often than stated.
//!
//! Two looks. *Neighbours*: is a flag likelier right after a flag? One-sided exact test on the table of
//! (before, now), which holds for rare flags, too. *Clumps*: of the pairs of flags up to ten places apart,
//! are there more than independent flags would have? Their number is compared with a Poisson tail (rare
//! flags; for frequent ones it is the numerator of a Ljung–Box statistic), at the price of a slightly small p
//! where pairs overlap.

use std::fmt;

use sseismo_analysis::stats::odds;
use statrs::distribution::{DiscreteCDF as _, Poisson};

/// Places that a flag is compared with.
const LAGS: u32 = 10;
/// At or under this p a baseline is called dependent.
const SIGNIFICANT: f64 = 0.01;
/// Fewer flags show nothing.
const FEWEST_FLAGS: u64 = 10;

/// Counts of a baseline, taken in flag by flag.
#[derive(Clone, Debug, Default)]
pub struct Baseline {
    n: u64,
    flags: u64,
    /// The first observation, which follows nothing, was a flag.
    starts_with_flag: bool,
    /// Flags that follow a flag.
    neighbours: u64,
    /// Observations that follow a flag.
    after_flag: u64,
    /// Pairs of flags at most [`LAGS`] places apart.
    pairs: u64,
    /// The last observations, the latest in bit 0.
    recent: u32,
}

impl Baseline {
    /// Takes one observation in.
    pub fn push(&mut self, flag: bool) {
        let after_flag = self.recent & 1 == 1;
        self.starts_with_flag |= flag && self.n == 0;
        self.n += 1;
        self.after_flag += u64::from(after_flag);
        if flag {
            self.flags += 1;
            self.neighbours += u64::from(after_flag);
            self.pairs += u64::from(self.recent.count_ones());
        }
        self.recent = ((self.recent << 1) | u32::from(flag)) & ((1 << LAGS) - 1);
    }

    /// Observations and flags so far.
    pub fn seen(&self) -> (u64, u64) {
        (self.n, self.flags)
    }

    /// What the flags so far say about their dependence.
    pub fn dependence(&self) -> Dependence {
        let (n, flags) = (real(self.n), real(self.flags));
        let others = self.n.saturating_sub(1) - self.after_flag;
        let alone = self.flags - self.neighbours - u64::from(self.starts_with_flag);
        let table = [[self.neighbours, self.after_flag - self.neighbours], [alone, others - alone]];
        let expected = if n > 0.0 { flags * flags / n * f64::from(LAGS) } else { 0.0 };
        Dependence {
            n: self.n,
            flags: self.flags,
            after_flag: share(self.neighbours, self.after_flag),
            elsewhere: share(alone, others),
            neighbours_p: odds::at_least(table, 1.0),
            pairs: self.pairs,
            expected_pairs: expected,
            pairs_p: poisson_at_least(self.pairs, expected),
        }
    }
}

/// How far the flags of a baseline are from independent.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Dependence {
    /// Observations.
    pub n: u64,
    /// Flags among them.
    pub flags: u64,
    /// Share of flags right after a flag; `None` where there was none.
    pub after_flag: Option<f64>,
    /// Share of flags after no flag.
    pub elsewhere: Option<f64>,
    /// One-sided p-value of the first being larger by chance.
    pub neighbours_p: f64,
    /// Pairs of flags at most ten places apart.
    pub pairs: u64,
    /// Pairs that independent flags would have.
    pub expected_pairs: f64,
    /// p-value of that many pairs by chance.
    pub pairs_p: f64,
}

impl Dependence {
    /// Whether flags come in clumps, so that alarms are more frequent than stated; `None` when there are too
    /// few to say.
    pub fn clumped(&self) -> Option<bool> {
        let p = (2.0 * self.neighbours_p.min(self.pairs_p)).min(1.0);
        (self.flags >= FEWEST_FLAGS).then_some(p <= SIGNIFICANT)
    }
}

impl fmt::Display for Dependence {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { n, flags, pairs, expected_pairs, .. } = self;
        match self.clumped() {
            None => write!(
                f,
                "independence of flags is assumed and not checked: {flags} flags in {n} observations, \
                 {FEWEST_FLAGS} needed"
            ),
            Some(clumped) => {
                let verdict = if clumped {
                    "flags come in clumps: false alarms are more frequent than stated"
                } else {
                    "no dependence of flags seen"
                };
                write!(
                    f,
                    "{verdict} ({flags} flags in {n} observations; {pairs} pairs within {LAGS} places, \
                     {expected_pairs:.1} expected, {}; right after a flag {})",
                    p(self.pairs_p),
                    p(self.neighbours_p)
                )
            }
        }
    }
}

fn p(value: f64) -> String {
    if value < 0.001 { "p < 0.001".into() } else { format!("p = {value:.3}") }
}

/// P(X ≥ k) of a Poisson variable.
fn poisson_at_least(k: u64, mean: f64) -> f64 {
    if k == 0 {
        return 1.0;
    }
    Poisson::new(mean).map_or(1.0, |poisson| poisson.sf(k - 1))
}

fn share(part: u64, whole: u64) -> Option<f64> {
    (whole > 0).then(|| real(part) / real(whole))
}

#[expect(clippy::cast_precision_loss, reason = "counts of observations are far below 2^53")]
fn real(count: u64) -> f64 {
    count as f64
}

#[cfg(test)]
mod tests {
    use rand::{RngExt as _, SeedableRng as _};
    use rand_chacha::ChaCha8Rng;

    use super::*;

    fn baseline(flags: impl IntoIterator<Item = bool>) -> Baseline {
        let mut baseline = Baseline::default();
        flags.into_iter().for_each(|flag| baseline.push(flag));
        baseline
    }

    /// 200 seeded baselines per p0: independent flags are called clumped at most as often as p = 0.01 allows
    /// (6 of 200 or more have a chance of 2 %).
    #[test]
    fn independent_flags_are_left_alone() {
        for p0 in [0.002, 0.01, 0.1] {
            let clumped = (0..200).filter(|seed| {
                let mut rng = ChaCha8Rng::seed_from_u64(*seed);
                let flags = (0..10_000).map(|_| rng.random::<f64>() < p0);
                baseline(flags).dependence().clumped() == Some(true)
            });
            assert!(clumped.count() <= 5, "{p0}");
        }
    }

    #[test]
    fn clumps_are_seen() {
        // One flag in 100, always in threes, three places apart.
        let flags = (0..30_000_u32).map(|i| i % 300 < 9 && i % 3 == 0);
        let dependence = baseline(flags).dependence();
        assert_eq!(dependence.clumped(), Some(true), "{dependence:?}");
        assert_eq!((dependence.pairs, dependence.after_flag), (300, Some(0.0)));
        let text = dependence.to_string();
        assert!(text.starts_with("flags come in clumps") && text.contains("300 flags in 30000"), "{text}");
        let twins = baseline((0..30_000_u32).map(|i| i % 1_000 < 2)).dependence();
        assert!(twins.clumped() == Some(true) && twins.neighbours_p < 1e-6, "{twins:?}");
    }

    #[test]
    fn few_flags_say_nothing() {
        for flags in [vec![], vec![true], vec![false; 5_000], vec![true; 9]] {
            let dependence = baseline(flags).dependence();
            assert_eq!(dependence.clumped(), None);
            assert!(dependence.to_string().contains("not checked"));
        }
    }
}
