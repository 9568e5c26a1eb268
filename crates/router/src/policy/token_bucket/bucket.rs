//! A bucket that fills steadily: what is taken out is an amount at a time, the wait until so much is there comes out.

use std::time::Duration;

use tokio::time::Instant;

/// The bucket. It may owe: what was sent was sent, whether there was room or not.
#[derive(Clone, Debug)]
pub(super) struct Bucket {
    capacity: f64,
    per_second: f64,
    level: f64,
    at: Option<Instant>,
}

impl Bucket {
    /// A full bucket.
    pub(super) fn new(capacity: f64, per_second: f64) -> Self {
        Self { capacity, per_second, level: capacity, at: None }
    }

    /// What is there.
    pub(super) fn level(&mut self, now: Instant) -> f64 {
        let since = self.at.map_or(Duration::ZERO, |at| now.saturating_duration_since(at));
        self.level = (self.level + since.as_secs_f64() * self.per_second).min(self.capacity);
        self.at = self.at.max(Some(now));
        self.level
    }

    /// Takes out so much; a negative amount is given back.
    pub(super) fn take(&mut self, amount: f64, now: Instant) {
        self.level = (self.level(now) - amount).min(self.capacity);
    }

    /// The wait until so much is there, an hour at most; never more than a full bucket is waited for.
    pub(super) fn wait(&mut self, amount: f64, now: Instant) -> Duration {
        let lacks = amount.min(self.capacity) - self.level(now);
        if lacks <= 0.0 {
            return Duration::ZERO;
        }
        // An hour is as good as never.
        let never = Duration::from_hours(1);
        Duration::try_from_secs_f64(lacks / self.per_second).unwrap_or(never).min(never)
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn a_burst_passes_and_then_the_rate_does() {
        let (mut bucket, now) = (Bucket::new(20.0, 25.0), Instant::now());
        for _ in 0..20 {
            assert_eq!(bucket.wait(1.0, now), Duration::ZERO);
            bucket.take(1.0, now);
        }
        assert_eq!(bucket.wait(1.0, now), Duration::from_millis(40));
        assert_eq!(bucket.wait(1.0, now + Duration::from_millis(40)), Duration::ZERO);
        bucket.take(9.0, now);
        assert_eq!(bucket.wait(99.0, now + Duration::from_millis(40)), Duration::from_millis(1_120));
    }

    #[test]
    fn no_wait_is_too_long_to_reckon_with() {
        for per_second in [1e-300, 6e-20, 1e-9] {
            let (mut bucket, now) = (Bucket::new(1.0, per_second), Instant::now());
            bucket.take(1.0, now);
            assert_eq!(bucket.wait(1.0, now), Duration::from_hours(1), "{per_second}");
        }
    }

    proptest! {
        /// Who only takes what is there takes no more than the burst and the rate, however the times fall.
        #[test]
        fn no_more_than_burst_and_rate_is_taken(steps in prop::collection::vec((0..200_u64, 0.0..5.0_f64), 1..200)) {
            let start = Instant::now();
            let (mut bucket, mut now, mut taken) = (Bucket::new(5.0, 10.0), start, 0.0);
            for (ms, amount) in steps {
                now += Duration::from_millis(ms);
                if bucket.wait(amount, now).is_zero() {
                    bucket.take(amount, now);
                    taken += amount;
                }
                prop_assert!(bucket.level(now) <= 5.0);
                prop_assert!(taken <= 5.0 + (now - start).as_secs_f64() * 10.0 + 1e-6, "{taken}");
            }
        }
    }
}
