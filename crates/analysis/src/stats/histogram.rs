//! A histogram of whole numbers over many decades: constant memory, exact merging, quantiles within
//! 0.8 %.
//!
//! In: µs or sizes. Out: quantiles. Each power of two is cut into 64 equal buckets (numbers under 128
//! are exact), the layout of `HdrHistogram`. Integer arithmetic only, because the first pass of the
//! column kernel does little else than push into one of these.

/// Bits that are kept below the leading one.
const SUB_BITS: u32 = 6;
const SUB: u64 = 1 << SUB_BITS;

/// Counts per bucket.
#[derive(Clone, Debug, Default)]
pub struct Histogram {
    counts: Vec<u64>,
    total: u64,
    largest: u64,
}

impl Histogram {
    /// Counts one value.
    pub fn push(&mut self, value: u64) {
        let at = bucket(value);
        if at >= self.counts.len() {
            self.counts.resize(at + 1, 0);
        }
        self.counts[at] += 1;
        self.total += 1;
        self.largest = self.largest.max(value);
    }

    /// Adds what another histogram counted.
    pub fn merge(&mut self, other: &Self) {
        if other.counts.len() > self.counts.len() {
            self.counts.resize(other.counts.len(), 0);
        }
        for (mine, theirs) in self.counts.iter_mut().zip(&other.counts) {
            *mine += theirs;
        }
        self.total += other.total;
        self.largest = self.largest.max(other.largest);
    }

    /// How many values were counted.
    pub fn len(&self) -> u64 {
        self.total
    }

    /// Whether nothing was counted.
    pub fn is_empty(&self) -> bool {
        self.total == 0
    }

    /// The largest value, exactly; `None` when empty.
    pub fn max(&self) -> Option<u64> {
        (self.total > 0).then_some(self.largest)
    }

    /// The value at rank ⌈q·n⌉, within 0.8 %: the middle of its bucket. `None` when empty.
    pub fn quantile(&self, q: f64) -> Option<f64> {
        if self.total == 0 {
            return None;
        }
        #[expect(
            clippy::cast_precision_loss,
            clippy::cast_possible_truncation,
            clippy::cast_sign_loss,
            reason = "counts are far below 2^53 and the rank lies between 1 and their sum"
        )]
        let rank = ((self.total as f64 * q).ceil() as u64).clamp(1, self.total);
        let mut below = 0;
        let at = self.counts.iter().position(|count| {
            below += count;
            below >= rank
        })?;
        Some(middle(at))
    }
}

fn bucket(value: u64) -> usize {
    let shift = (value | SUB).ilog2().saturating_sub(SUB_BITS);
    let at = u64::from(shift) * SUB + (value >> shift);
    usize::try_from(at).unwrap_or(usize::MAX)
}

#[expect(clippy::cast_precision_loss, reason = "a bucket's edge needs no more than its leading bits")]
fn middle(bucket: usize) -> f64 {
    let bucket = bucket as u64;
    if bucket < 2 * SUB {
        return bucket as f64;
    }
    let shift = bucket / SUB - 1;
    let low = (bucket - shift * SUB) << shift;
    low as f64 + ((1_u64 << shift) - 1) as f64 / 2.0
}

#[cfg(test)]
#[expect(
    clippy::cast_possible_truncation,
    clippy::cast_sign_loss,
    clippy::cast_precision_loss,
    reason = "ranks of short samples"
)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        /// A quantile is within 0.8 % of the exact order statistic.
        #[test]
        fn quantiles_are_close(mut values in prop::collection::vec(0_u64..1 << 40, 1..300), q in 0.0_f64..=1.0) {
            let mut histogram = Histogram::default();
            for &value in &values {
                histogram.push(value);
            }
            values.sort_unstable();
            let rank = ((values.len() as f64 * q).ceil() as usize).clamp(1, values.len());
            let exact = values[rank - 1] as f64;
            let got = histogram.quantile(q).unwrap();
            prop_assert!((got - exact).abs() <= 0.008 * exact, "{got} for {exact}");
        }

        /// Merging equals counting everything in one.
        #[test]
        fn merging_is_exact(a in prop::collection::vec(0_u64..1 << 30, 0..50), b in prop::collection::vec(0_u64..1 << 30, 0..50)) {
            let fill = |values: &[u64]| {
                let mut histogram = Histogram::default();
                for &value in values {
                    histogram.push(value);
                }
                histogram
            };
            let mut merged = fill(&a);
            merged.merge(&fill(&b));
            let whole = fill(&[a, b].concat());
            prop_assert_eq!(merged.len(), whole.len());
            for q in [0.0, 0.1, 0.5, 0.9, 1.0] {
                prop_assert_eq!(merged.quantile(q), whole.quantile(q));
            }
        }
    }
}
