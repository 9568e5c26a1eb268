//! Reasoning-token counts with a known truth: a seed and a shape go in, counts come out.
//!
//! The shapes are those on which lattice statistics are known to fail: two modes, a hard cap, round
//! numbers. The same seed gives the same counts on every machine.

use rand::{Rng, RngExt, SeedableRng};
use rand_chacha::ChaCha8Rng;

/// Counts above this are drawn down to it, as a context window would.
const LARGEST: f64 = 11_999.0;

/// What honest counts look like.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Background {
    /// One broad mode: median 800, log-sd 1.
    LogNormal,
    /// Easy and hard questions: half around 250 (log-sd 0.4), half around 2,200 (log-sd 0.6).
    Bimodal,
    /// Log-normal, cut at a token limit that many answers hit.
    Capped {
        /// The limit.
        at: u32,
    },
    /// Log-normal, some counts rounded by people or tools.
    Heaped {
        /// Counts are rounded to multiples of this.
        unit: u32,
        /// Share of counts that are rounded, 0 to 1.
        share: f64,
    },
}

/// Counts that stop at `offset`, `offset + step`, `offset + 2·step` …
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Lattice {
    /// Distance between two values.
    pub step: u32,
    /// The first value.
    pub offset: u32,
    /// Share of all counts that stop on the lattice, 0 to 1.
    pub mass: f64,
    /// Chance that a count on the lattice stops at the tier it has reached (0.4 in the field's data);
    /// at the tenth tier all stop.
    pub stop: f64,
}

/// `n` counts: `background`, of which `lattice` takes its mass.
pub fn counts(seed: u64, n: usize, background: Background, lattice: Option<Lattice>) -> Vec<u32> {
    let mut rng = ChaCha8Rng::seed_from_u64(seed);
    (0..n)
        .map(|_| match lattice {
            Some(lattice) if rng.random::<f64>() < lattice.mass => lattice.draw(&mut rng),
            _ => background.draw(&mut rng),
        })
        .collect()
}

impl Background {
    fn draw(self, rng: &mut impl Rng) -> u32 {
        let value = match self {
            Self::LogNormal => broad(rng),
            Self::Bimodal if rng.random::<bool>() => log_normal(rng, 250.0, 0.4),
            Self::Bimodal => log_normal(rng, 2_200.0, 0.6),
            Self::Capped { at } => broad(rng).min(f64::from(at)),
            Self::Heaped { unit, share } => {
                let value = broad(rng);
                let unit = f64::from(unit);
                if rng.random::<f64>() < share { (value / unit).round() * unit } else { value }
            }
        };
        #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "clamped to 1..=11,999")]
        let whole = value.round().clamp(1.0, LARGEST) as u32;
        whole
    }
}

impl Lattice {
    fn draw(self, rng: &mut impl Rng) -> u32 {
        let mut tier = 0;
        while tier < 9 && rng.random::<f64>() >= self.stop {
            tier += 1;
        }
        self.offset + tier * self.step
    }
}

fn broad(rng: &mut impl Rng) -> f64 {
    log_normal(rng, 800.0, 1.0)
}

/// By Box–Muller.
fn log_normal(rng: &mut impl Rng, median: f64, log_sd: f64) -> f64 {
    let radius = (-2.0 * (1.0 - rng.random::<f64>()).ln()).sqrt();
    let angle = std::f64::consts::TAU * rng.random::<f64>();
    median * (log_sd * radius * angle.cos()).exp()
}

#[cfg(test)]
mod tests {
    use super::*;

    const FIELD: Lattice = Lattice { step: 518, offset: 516, mass: 0.2, stop: 0.4 };

    #[test]
    fn the_same_seed_gives_the_same_counts() {
        let a = counts(7, 500, Background::Bimodal, Some(FIELD));
        assert_eq!(a, counts(7, 500, Background::Bimodal, Some(FIELD)));
        assert_ne!(a, counts(8, 500, Background::Bimodal, Some(FIELD)));
    }

    /// 20 % of 5,000 lie on the lattice, within five standard deviations (and a few by chance).
    #[test]
    fn mass_and_shape_are_as_asked() {
        let drawn = counts(1, 5_000, Background::LogNormal, Some(FIELD));
        let on = drawn.iter().filter(|&&v| v % 518 == 516).count();
        assert!((860..1_160).contains(&on), "{on}");
        let mut plain = counts(2, 5_000, Background::LogNormal, None);
        plain.sort_unstable();
        assert!((740..860).contains(&plain[2_500]), "median {}", plain[2_500]);
    }

    #[test]
    fn caps_and_heaps_show() {
        let capped = counts(3, 2_000, Background::Capped { at: 1_000 }, None);
        assert!(capped.iter().all(|&v| v <= 1_000));
        assert!(capped.iter().filter(|&&v| v == 1_000).count() > 500);
        let heaped = counts(4, 2_000, Background::Heaped { unit: 100, share: 1.0 }, None);
        assert!(heaped.iter().filter(|&&v| v % 100 == 0).count() > 1_900);
    }
}
