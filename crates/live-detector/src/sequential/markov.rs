//! The oracle: the CUSUM that knows the alternative, with its exact run lengths.
//!
//! In: p0, p1 and a wanted average run length (ARL). Out: a limit at exactly that ARL, and the mean run
//! length under any flag probability. It is what a detector without that knowledge is measured against:
//! no rule has a smaller worst-case mean delay at the same ARL (Moustakides, Ann. Stat. 14, 1986).
//!
//! The log-likelihood ratio of a flag and that of no flag are scaled to whole numbers (`up` and `down`; their
//! ratio is kept to 0.05 %), so the CUSUM is a Markov chain on 0, 1, 2 … and its run lengths solve a
//! banded linear system (Reynolds and Stoumbos, J. Qual. Technol. 31, 1999). Run lengths of a discrete
//! chain rise in steps; to meet an ARL exactly, a CUSUM that lands on the limit itself alarms with a probability.

use super::e_detector::MixtureError;

/// How far the ratio of the scaled increments may be from the true one.
const SCALE_TOLERANCE: f64 = 5e-4;
/// Largest increment for no flag: at a ratio of increments near 1 the tolerance needs about 1,000.
const LARGEST_DOWN: u16 = 1_000;

/// The CUSUM for p0 against p1, in whole steps: max(C, 0) + `up` on a flag, − `down` otherwise.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct OracleCusum {
    p0: f64,
    up: usize,
    down: usize,
    /// Natural logarithm of the likelihood ratio in one step.
    unit: f64,
}

/// When an [`OracleCusum`] alarms.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Limit {
    /// Above this it alarms.
    pub steps: usize,
    /// … and with this probability when it is exactly there.
    pub boundary: f64,
}

impl OracleCusum {
    /// The CUSUM for flags of probability `p0` that change to `p1`.
    ///
    /// # Errors
    /// When the two are not probabilities with p0 < p1.
    pub fn new(p0: f64, p1: f64) -> Result<Self, MixtureError> {
        if !(p0 > 0.0 && p0 < 1.0) {
            return Err(MixtureError::Baseline(p0));
        }
        if !(p1 > p0 && p1 < 1.0) {
            return Err(MixtureError::Alternative { p1, p0 });
        }
        let (hit, miss) = ((p1 / p0).ln(), ((1.0 - p0) / (1.0 - p1)).ln());
        let fits = |down: &u16| {
            let exact = f64::from(*down) * hit / miss;
            exact >= 0.5 && (exact.round() / exact - 1.0).abs() <= SCALE_TOLERANCE
        };
        let down = (1..LARGEST_DOWN).find(fits).unwrap_or(LARGEST_DOWN);
        let unit = miss / f64::from(down);
        Ok(Self { p0, up: steps(hit / unit).max(1), down: usize::from(down), unit })
    }

    /// The limit at which the mean run length under p0 is `arl` (above 1) to 1e-6 of itself.
    pub fn limit(&self, arl: f64) -> Limit {
        let alarms_at = |steps| Limit { steps, boundary: 1.0 };
        // A CUSUM of likelihood ratios with limit ln(arl) has at least that ARL (Lorden).
        let (mut low, mut high) = (0, steps(arl.ln() / self.unit) + 2);
        while high - low > 1 {
            let middle = low + (high - low) / 2;
            if self.run_length(alarms_at(middle), self.p0) <= arl { low = middle } else { high = middle }
        }
        let (mut never, mut always) = (0.0, 1.0);
        for _ in 0..50 {
            let limit = Limit { steps: low, boundary: f64::midpoint(never, always) };
            let got = self.run_length(limit, self.p0);
            if (got / arl - 1.0).abs() < 1e-6 {
                return limit;
            }
            if got > arl { never = limit.boundary } else { always = limit.boundary }
        }
        Limit { steps: low, boundary: f64::midpoint(never, always) }
    }

    /// Mean number of observations to the alarm when flags have probability `p`, from a fresh start: with p0
    /// the ARL, with another the worst-case mean delay, because 0 is the lowest state there is.
    pub fn run_length(&self, limit: Limit, p: f64) -> f64 {
        let states = limit.steps + 1;
        let mut system = Band::new(states, self.down, self.up);
        for state in 0..states {
            system.add(state, state, 1.0);
            system.add(state, state.saturating_sub(self.down), p - 1.0);
            match (state + self.up).cmp(&limit.steps) {
                std::cmp::Ordering::Less => system.add(state, state + self.up, -p),
                std::cmp::Ordering::Equal => {
                    system.add(state, state + self.up, -p * (1.0 - limit.boundary));
                }
                std::cmp::Ordering::Greater => {}
            }
        }
        system.solve_for_ones()
    }
}

#[cfg(test)]
impl OracleCusum {
    /// A logarithm that is reached exactly when the CUSUM is above `steps`.
    #[expect(clippy::cast_precision_loss, reason = "a few thousand steps")]
    pub(super) fn ln_above(&self, steps: usize) -> f64 {
        (steps as f64 + 0.5) * self.unit
    }

    /// The highest number of steps that does not reach `ln`.
    pub(super) fn steps_below(&self, ln: f64) -> usize {
        steps((ln / self.unit).ceil()) - 1
    }
}

#[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "a few thousand steps")]
fn steps(real: f64) -> usize {
    real.round().max(0.0) as usize
}

/// A banded matrix. I − P of a transient chain is diagonally dominant: elimination needs no pivots.
struct Band {
    states: usize,
    below: usize,
    width: usize,
    cells: Vec<f64>,
}

impl Band {
    fn new(states: usize, below: usize, above: usize) -> Self {
        let (below, above) = (below.min(states - 1), above.min(states - 1));
        let width = below + above + 1;
        Self { states, below, width, cells: vec![0.0; states * width] }
    }

    fn add(&mut self, row: usize, column: usize, value: f64) {
        self.cells[row * self.width + column + self.below - row] += value;
    }

    /// First component of x where the matrix times x is 1 everywhere.
    fn solve_for_ones(mut self) -> f64 {
        let (width, below) = (self.width, self.below);
        let mut right = vec![1.0; self.states];
        for pivot in 0..self.states {
            let (head, tail) = self.cells.split_at_mut((pivot + 1) * width);
            let pivot_row = &head[pivot * width + below..];
            for row in pivot + 1..(pivot + below + 1).min(self.states) {
                let start = (row - pivot - 1) * width + below + pivot - row;
                let factor = tail[start] / pivot_row[0];
                if factor != 0.0 {
                    for (cell, over) in tail[start..].iter_mut().zip(pivot_row) {
                        *cell -= factor * over;
                    }
                    right[row] -= factor * right[pivot];
                }
            }
        }
        for row in (0..self.states).rev() {
            let cells = &self.cells[row * width + below..(row + 1) * width];
            let known = cells.iter().zip(&right[row..]).skip(1).map(|(cell, x)| cell * x).sum::<f64>();
            right[row] = (right[row] - known) / cells[0];
        }
        right[0]
    }
}

#[cfg(test)]
mod tests {
    use rand::{RngExt as _, SeedableRng as _};
    use rand_chacha::ChaCha8Rng;

    use super::*;

    /// By hand: up 1, down 1 (p0 + p1 = 1), alarm at 2. From 0 a run of two flags is needed, so the mean is
    /// (1 + p) / p²; alarm at 1: 1 / p.
    #[test]
    fn run_lengths_by_hand() {
        let oracle = OracleCusum::new(0.2, 0.8).unwrap();
        assert_eq!((oracle.up, oracle.down), (1, 1));
        for p in [0.2, 0.5, 0.8] {
            let alarm_at = |steps| oracle.run_length(Limit { steps, boundary: 1.0 }, p);
            assert!((alarm_at(1) - 1.0 / p).abs() < 1e-9, "{p}");
            assert!((alarm_at(2) - (1.0 + p) / (p * p)).abs() < 1e-9, "{p}");
            let never = oracle.run_length(Limit { steps: 1, boundary: 0.0 }, p);
            assert!((never - alarm_at(2)).abs() < 1e-9, "{p}: above 1 is at 2");
        }
    }

    /// The exact mean lies within 4 standard errors of 20,000 simulated runs (seed 1), whose CUSUM is real-valued.
    #[test]
    fn run_lengths_equal_simulated_ones() {
        let (p0, p1, arl): (f64, f64, f64) = (0.02, 0.2, 2_000.0);
        let oracle = OracleCusum::new(p0, p1).unwrap();
        let limit = oracle.limit(arl);
        assert!((oracle.run_length(limit, p0) / arl - 1.0).abs() < 1e-5);
        let mut rng = ChaCha8Rng::seed_from_u64(1);
        for (p, runs) in [(p0, 2_000_u32), (p1, 20_000)] {
            let (mut sum, mut squares) = (0.0, 0.0);
            for _ in 0..runs {
                let (mut state, mut n) = (0_usize, 0.0_f64);
                loop {
                    n += 1.0;
                    let flag = rng.random::<f64>() < p;
                    state = if flag { state + oracle.up } else { state.saturating_sub(oracle.down) };
                    let there = flag && state == limit.steps && rng.random::<f64>() < limit.boundary;
                    if state > limit.steps || there {
                        break;
                    }
                }
                sum += n;
                squares += n * n;
            }
            let mean = sum / f64::from(runs);
            let error = ((squares / f64::from(runs) - mean * mean) / f64::from(runs)).sqrt();
            let exact = oracle.run_length(limit, p);
            assert!((mean - exact).abs() < 4.0 * error, "p {p}: {exact}, simulated {mean} ± {error}");
        }
    }

    /// Facts of an independent simulation at ARL 1e5 (± 13 %), p0 = 0.01: delays of about 170, 56, 12.5, 3.8
    /// at p1 = 0.05, 0.1, 0.3, 0.8; the ARL is met exactly although it rises in steps.
    #[test]
    fn delays_are_those_of_an_independent_simulation() {
        for (p1, about) in [(0.05, 170.0), (0.1, 56.0), (0.3, 12.5), (0.8, 3.8)] {
            let oracle = OracleCusum::new(0.01, p1).unwrap();
            let limit = oracle.limit(1e5);
            assert!((oracle.run_length(limit, 0.01) / 1e5 - 1.0).abs() < 1e-5, "{p1}");
            let delay = oracle.run_length(limit, p1);
            assert!((delay / about - 1.0).abs() < 0.15, "{p1}: {delay}");
        }
    }
}
