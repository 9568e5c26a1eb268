//! Quantiles of times and counts in bounded memory, mergeable exactly: DDSketch with 1 % relative error.
//!
//! DDSketch: Masson, Rim, Lee 2019 (arxiv.org/abs/1908.10693). Merged sketches equal the sketch of all values.

use serde::{Deserialize, Serialize};
use sketches_ddsketch::{Config, DDSketch};

/// Relative error of a quantile.
const ALPHA: f64 = 0.01;
/// Bins: 1,024 of 2 % each span a factor of 7e8, more than from 1 µs to 10 min. 8 bytes a bin, made as
/// values come.
const BINS: u32 = 1_024;
/// Values below this count as zero: 1 µs, where values are seconds.
const SMALLEST: f64 = 1e-6;

/// A bounded sample of values that are not negative.
#[derive(Clone, Serialize, Deserialize)]
#[serde(from = "Stored", into = "Stored")]
pub(crate) struct Sketch(DDSketch);

impl std::fmt::Debug for Sketch {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Sketch of {} values", self.count())
    }
}

impl Default for Sketch {
    fn default() -> Self {
        Self(DDSketch::new(Config::new(ALPHA, BINS, SMALLEST)))
    }
}

impl Sketch {
    /// Takes in a value; NaN, infinity and negative values are left out.
    pub(crate) fn push(&mut self, value: f64) {
        if value.is_finite() && value >= 0.0 {
            self.0.add(value);
        }
    }

    pub(crate) fn count(&self) -> u64 {
        self.0.count() as u64
    }

    /// The `q`-quantile; `None` when it is empty.
    pub(crate) fn quantile(&self, q: f64) -> Option<f64> {
        self.0.quantile(q).ok().flatten()
    }

    /// Takes in every value of `other`.
    pub(crate) fn merge(&mut self, other: &Self) {
        // The error says that the configurations differ; all of ours are the same.
        let _ = self.0.merge(&other.0);
    }

    /// Values above `limit`, as far as bins tell.
    pub(crate) fn above(&self, limit: f64) -> u64 {
        let n = self.count();
        // The sketch takes the rank floor(q·(n − 1)): half a rank more keeps rounding from taking the one before.
        let at = |rank: u64| self.quantile(share(2 * rank + 1, 2 * n.saturating_sub(1))).unwrap_or(0.0);
        // The first rank whose value is above.
        let (mut low, mut high) = (0, n);
        while low < high {
            let middle = low.midpoint(high);
            if at(middle) > limit { high = middle } else { low = middle + 1 }
        }
        n - low
    }

    /// Bytes that it takes.
    pub(crate) fn bytes(&self) -> usize {
        size_of::<Self>() + 8 * self.0.length()
    }
}

fn share(part: u64, whole: u64) -> f64 {
    #[expect(clippy::cast_precision_loss, reason = "counts of observations are far below 2^53")]
    let share = part as f64 / whole.max(1) as f64;
    share.min(1.0)
}

/// A sketch as it is saved: the bytes that `DataDog`'s sketches exchange, which hold no infinities.
#[derive(Serialize, Deserialize)]
#[serde(transparent)]
struct Stored(Vec<u8>);

impl From<Sketch> for Stored {
    fn from(sketch: Sketch) -> Self {
        Self(sketch.0.to_java_bytes())
    }
}

impl From<Stored> for Sketch {
    fn from(stored: Stored) -> Self {
        DDSketch::from_java_bytes(&stored.0).map_or_else(|_| Self::default(), Self)
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn of(values: &[f64]) -> Sketch {
        let mut sketch = Sketch::default();
        for value in values {
            sketch.push(*value);
        }
        sketch
    }

    proptest! {
        /// A quantile is within 1 % of the exact one; merging is the same as taking everything in; so is
        /// saving and reloading.
        #[test]
        fn quantiles_are_close_and_merges_exact(
            mut a in prop::collection::vec(1e-4_f64..1e3, 1..200), b in prop::collection::vec(1e-4_f64..1e3, 0..200)
        ) {
            let mut merged = of(&a);
            merged.merge(&of(&b));
            a.extend(&b);
            let whole = of(&a);
            a.sort_by(f64::total_cmp);
            for q in [0.1, 0.5, 0.9] {
                #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, clippy::cast_precision_loss, reason = "ranks")]
                let exact = a[(q * (a.len() as f64 - 1.0)) as usize];
                let found = whole.quantile(q).unwrap();
                prop_assert!((found / exact - 1.0).abs() <= ALPHA + 1e-9, "{found} {exact}");
                prop_assert_eq!(merged.quantile(q), Some(found));
                let json = serde_json::to_string(&merged).unwrap();
                let again: Sketch = serde_json::from_str(&json).unwrap();
                let back = again.quantile(q).unwrap();
                prop_assert!((back / found - 1.0).abs() < 0.021, "{back} {found}");
                prop_assert_eq!(again.count(), merged.count());
            }
        }

        /// As many values are above a limit as were pushed above it, but for those within 2 % of it.
        #[test]
        fn counts_above_a_limit(values in prop::collection::vec(0.01_f64..100.0, 0..300), limit in 0.01_f64..100.0) {
            let sketch = of(&values);
            let surely = values.iter().filter(|value| **value > limit * 1.021).count() as u64;
            let perhaps = values.iter().filter(|value| **value > limit / 1.021).count() as u64;
            let above = sketch.above(limit);
            prop_assert!((surely..=perhaps).contains(&above), "{surely} {above} {perhaps}");
        }
    }

    #[test]
    fn what_is_no_time_is_left_out() {
        let sketch = of(&[f64::NAN, f64::INFINITY, -1.0, 0.0, 2.0]);
        assert_eq!(sketch.count(), 2);
        assert_eq!(Sketch::default().quantile(0.5), None);
        assert_eq!(Sketch::default().above(1.0), 0);
    }
}
