//! ADWIN on gaps: a window that is cut where two parts of it have different means.
//!
//! Source: Bifet and Gavaldà, SDM 2007; buckets and variances by Babcock et al., PODS 2003. Checked against
//! river 0.26.1, of which it also takes the defaults: a look every 32 values, five buckets of a size, at least
//! five values on each side.

use std::collections::VecDeque;

use super::Rival;
use crate::traffic::Seen;

const CLOCK: u64 = 32;
const BUCKETS: usize = 5;
const FEWEST: f64 = 5.0;
const GRACE: f64 = 10.0;

/// Values that are kept as one: their number, sum and sum of squared deviations.
#[derive(Clone, Copy, Debug, Default)]
struct Bucket {
    n: f64,
    sum: f64,
    squares: f64,
}

impl Bucket {
    fn mean(self) -> f64 {
        self.sum / self.n
    }

    fn with(self, other: Self) -> Self {
        if self.n == 0.0 || other.n == 0.0 {
            return if self.n == 0.0 { other } else { self };
        }
        let between = self.n * other.n * (self.mean() - other.mean()).powi(2) / (self.n + other.n);
        Self {
            n: self.n + other.n,
            sum: self.sum + other.sum,
            squares: self.squares + other.squares + between,
        }
    }
}

/// The detector.
pub(crate) struct Adwin {
    delta: f64,
    /// Row i holds buckets of 2^i values, oldest first.
    rows: Vec<VecDeque<Bucket>>,
    whole: Bucket,
    ticks: u64,
}

impl Adwin {
    pub(crate) fn new(delta: f64) -> Self {
        Self { delta, rows: vec![VecDeque::new()], whole: Bucket::default(), ticks: 0 }
    }

    /// Takes a value in; whether it cuts the window, and, as in river, starts afresh.
    pub(crate) fn push(&mut self, value: f64) -> bool {
        let one = Bucket { n: 1.0, sum: value, squares: 0.0 };
        self.whole = self.whole.with(one);
        self.rows[0].push_back(one);
        self.compress();
        self.ticks += 1;
        let cut = self.ticks.is_multiple_of(CLOCK) && self.whole.n > GRACE && self.differs();
        if cut {
            *self = Self::new(self.delta);
        }
        cut
    }

    fn compress(&mut self) {
        for row in 0.. {
            if self.rows[row].len() <= BUCKETS {
                return;
            }
            let (Some(first), Some(second)) = (self.rows[row].pop_front(), self.rows[row].pop_front()) else {
                return;
            };
            if row + 1 == self.rows.len() {
                self.rows.push(VecDeque::new());
            }
            self.rows[row + 1].push_back(first.with(second));
        }
    }

    /// Whether any cut, from the oldest on, leaves two means that differ too much.
    fn differs(&self) -> bool {
        let (mut old, mut new) = ([0.0_f64; 2], [self.whole.n, self.whole.sum]);
        let ln = (2.0 * self.whole.n.ln() / self.delta).ln();
        let variance = self.whole.squares / self.whole.n;
        for bucket in self.rows.iter().rev().flatten() {
            old = [old[0] + bucket.n, old[1] + bucket.sum];
            new = [new[0] - bucket.n, new[1] - bucket.sum];
            if old[0] < FEWEST || new[0] < FEWEST {
                continue;
            }
            let m = 1.0 / (old[0] - FEWEST + 1.0) + 1.0 / (new[0] - FEWEST + 1.0);
            let epsilon = (2.0 * m * variance * ln).sqrt() + 2.0 / 3.0 * ln * m;
            if (old[1] / old[0] - new[1] / new[0]).abs() > epsilon {
                return true;
            }
        }
        false
    }
}

impl Rival for Adwin {
    fn frame(&mut self, frame: &Seen) -> bool {
        frame.gap.is_some_and(|gap| self.push(gap.into()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::rivals::page_hinkley::tests::drifts;

    #[test]
    fn drifts_are_found_where_river_finds_them() {
        let mut found = 0;
        for (values, wanted, _) in drifts() {
            let mut adwin = Adwin::new(0.002);
            let got: Vec<usize> = (0..values.len()).filter(|at| adwin.push(values[*at])).collect();
            assert_eq!(got, wanted);
            found += got.len();
        }
        assert_eq!(found, 1);
    }
}
