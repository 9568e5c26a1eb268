//! Seeded draws: the only source of chance in this crate.

use rand::{RngExt, SeedableRng};
use rand_chacha::ChaCha8Rng;

/// A stream of chance that depends on nothing but its seed.
#[derive(Clone, Debug)]
pub(crate) struct Draw(ChaCha8Rng);

impl Draw {
    /// The draws of one `part` of request `number` under `seed`. Parts do not disturb each other: a
    /// behaviour that is added to a scenario leaves the draws of the others as they were.
    pub(crate) fn new(seed: u64, number: u64, part: u64) -> Self {
        let mixed = mix(mix(mix(seed) ^ number) ^ part);
        Self(ChaCha8Rng::seed_from_u64(mixed))
    }

    /// Uniform in `0..1`.
    pub(crate) fn unit(&mut self) -> f64 {
        self.0.random::<f64>()
    }

    /// Uniform in `lo..hi`.
    pub(crate) fn between(&mut self, lo: f64, hi: f64) -> f64 {
        lo + (hi - lo) * self.unit()
    }

    /// A whole number in `lo..=hi`.
    pub(crate) fn whole(&mut self, lo: u32, hi: u32) -> u32 {
        self.0.random_range(lo..=hi.max(lo))
    }

    /// A place in `0..n`; 0 when `n` is 0.
    pub(crate) fn index(&mut self, n: usize) -> usize {
        if n == 0 { 0 } else { self.0.random_range(0..n) }
    }

    /// True with probability `p`.
    pub(crate) fn chance(&mut self, p: f64) -> bool {
        self.unit() < p
    }

    /// Exponential with `mean`.
    pub(crate) fn exponential(&mut self, mean: f64) -> f64 {
        -mean * (1.0 - self.unit()).ln()
    }

    /// Standard normal (Box–Muller).
    pub(crate) fn normal(&mut self) -> f64 {
        let radius = (-2.0 * (1.0 - self.unit()).ln()).sqrt();
        radius * (std::f64::consts::TAU * self.unit()).cos()
    }

    /// Lognormal with `median` and log-sd `sigma`.
    pub(crate) fn lognormal(&mut self, median: f64, sigma: f64) -> f64 {
        median * (sigma * self.normal()).exp()
    }

    /// Gamma with `shape` and scale 1 (Marsaglia and Tsang, ACM Trans. Math. Softw. 26 (2000) 363–372).
    pub(crate) fn gamma(&mut self, shape: f64) -> f64 {
        if shape < 1.0 {
            return self.gamma(shape + 1.0) * (1.0 - self.unit()).powf(1.0 / shape);
        }
        let d = shape - 1.0 / 3.0;
        let c = 1.0 / (9.0 * d).sqrt();
        loop {
            let x = self.normal();
            let v = (1.0 + c * x).powi(3);
            if v > 0.0 && (1.0 - self.unit()).ln() < 0.5 * x * x + d * (1.0 - v + v.ln()) {
                return d * v;
            }
        }
    }

    /// How many trials until the first success of probability `p`: 1, 2, 3 …, at most `max`.
    pub(crate) fn geometric(&mut self, p: f64, max: u32) -> u32 {
        (1..max).find(|_| self.chance(p)).unwrap_or(max)
    }
}

/// splitmix64's finaliser: neighbouring numbers become unrelated seeds (Steele, Lea & Flood,
/// "Fast splittable pseudorandom number generators", OOPSLA 2014).
pub(crate) fn mix(x: u64) -> u64 {
    let x = x.wrapping_add(0x9e37_79b9_7f4a_7c15);
    let x = (x ^ (x >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    let x = (x ^ (x >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    x ^ (x >> 31)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_same_seed_draws_the_same() {
        let take = |part| {
            let mut draw = Draw::new(7, 3, part);
            [draw.unit(), draw.normal(), draw.exponential(2.0)]
        };
        assert_eq!(take(1).map(f64::to_bits), take(1).map(f64::to_bits));
        assert_ne!(take(1).map(f64::to_bits), take(2).map(f64::to_bits));
    }

    #[test]
    fn moments_are_those_asked_for() {
        let mut draw = Draw::new(1, 0, 0);
        let n = 20_000;
        let mean = (0..n).map(|_| draw.exponential(2.0)).sum::<f64>() / f64::from(n);
        assert!((mean - 2.0).abs() < 0.06, "{mean}");
        for shape in [0.3, 1.0, 4.0] {
            let drawn: Vec<f64> = (0..n).map(|_| draw.gamma(shape)).collect();
            let mean = drawn.iter().sum::<f64>() / f64::from(n);
            let variance = drawn.iter().map(|value| (value - mean).powi(2)).sum::<f64>() / f64::from(n);
            assert!((mean / shape - 1.0).abs() < 0.06 && (variance / shape - 1.0).abs() < 0.12, "{shape}");
        }
        let mut logs: Vec<f64> = (0..n).map(|_| draw.lognormal(800.0, 1.0)).collect();
        logs.sort_by(f64::total_cmp);
        let median = logs[logs.len() / 2];
        assert!((760.0..840.0).contains(&median), "{median}");
    }
}
