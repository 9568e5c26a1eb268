//! How late writes were: a histogram with 10 % wide buckets.

/// Deviation of writes from their deadlines.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Lateness {
    counts: Vec<u64>,
    writes: u64,
    max_us: u64,
}

/// Ratio from one bucket to the next: quantiles are exact to 10 %.
const RATIO: f64 = 1.1;

impl Lateness {
    #[expect(
        clippy::cast_precision_loss,
        clippy::cast_possible_truncation,
        clippy::cast_sign_loss,
        reason = "a logarithm of µs is a small positive number"
    )]
    pub(super) fn record(&mut self, us: u64) {
        let bucket = ((us + 1) as f64).log(RATIO) as usize;
        if self.counts.len() <= bucket {
            self.counts.resize(bucket + 1, 0);
        }
        self.counts[bucket] += 1;
        self.writes += 1;
        self.max_us = self.max_us.max(us);
    }

    pub(super) fn merge(&mut self, other: &Self) {
        if self.counts.len() < other.counts.len() {
            self.counts.resize(other.counts.len(), 0);
        }
        for (mine, theirs) in self.counts.iter_mut().zip(&other.counts) {
            *mine += theirs;
        }
        self.writes += other.writes;
        self.max_us = self.max_us.max(other.max_us);
    }

    /// Writes that were measured.
    pub fn writes(&self) -> u64 {
        self.writes
    }

    /// The latest one, µs.
    pub fn max_us(&self) -> u64 {
        self.max_us
    }

    /// A quantile in µs, at most 10 % too high; 0 when nothing was measured.
    #[expect(
        clippy::cast_precision_loss,
        clippy::cast_possible_truncation,
        clippy::cast_sign_loss,
        reason = "counts are far below 2^53 and µs fit"
    )]
    pub fn quantile(&self, q: f64) -> u64 {
        let wanted = (q * self.writes as f64).ceil() as u64;
        let mut seen = 0;
        for (bucket, count) in self.counts.iter().enumerate() {
            seen += count;
            if seen >= wanted && seen > 0 {
                return (RATIO.powf(bucket as f64 + 1.0) as u64).min(self.max_us);
            }
        }
        self.max_us
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn quantiles_are_within_a_bucket() {
        let mut lateness = Lateness::default();
        (1..=1_000).for_each(|us| lateness.record(us));
        assert!((500..=550).contains(&lateness.quantile(0.5)), "{}", lateness.quantile(0.5));
        assert!((990..=1_000).contains(&lateness.quantile(0.99)));
        assert_eq!((lateness.writes(), lateness.max_us()), (1_000, 1_000));
        assert_eq!(Lateness::default().quantile(0.5), 0);
    }
}
