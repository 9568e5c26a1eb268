//! How many second attempts a route may make: requests in, leave to retry out.
//!
//! A token bucket in the way of Finagle's retry budget: each request puts in its share, each retry takes one
//! token out. When everything fails, retries add that share to the load and no more; a reserve that refills
//! slowly lets a quiet route fall over at all.

use std::time::Duration;

use tokio::time::Instant;

/// Tokens at hand at the start, and the most that can be saved up: three failures in a row open a breaker, so
/// this lets some members of a tier die at once.
const RESERVE: f64 = 10.0;

/// Time in which a route without traffic gets one token.
const REFILL: Duration = Duration::from_secs(1);

/// The retry budget of one route.
#[derive(Clone, Debug)]
pub(crate) struct Budget {
    share: f64,
    tokens: f64,
    refilled: Instant,
}

impl Budget {
    pub(crate) fn new(share: f64, now: Instant) -> Self {
        Self { share, tokens: RESERVE, refilled: now }
    }

    /// Takes over a changed share.
    pub(crate) fn configure(&mut self, share: f64) {
        self.share = share;
    }

    /// A request has come.
    pub(crate) fn request(&mut self) {
        self.tokens = (self.tokens + self.share).min(RESERVE.max(self.share));
    }

    /// Whether one more attempt may be made; it is counted. A share of 0 means none, ever.
    pub(crate) fn retry(&mut self, now: Instant) -> bool {
        let idle = now.saturating_duration_since(self.refilled);
        self.refilled = self.refilled.max(now);
        self.tokens = (self.tokens + idle.as_secs_f64() / REFILL.as_secs_f64()).min(RESERVE);
        let may = self.share > 0.0 && self.tokens >= 1.0;
        if may {
            self.tokens -= 1.0;
        }
        may
    }

    /// The attempt was not made after all.
    pub(crate) fn give_back(&mut self) {
        self.tokens += 1.0;
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn a_share_of_nothing_never_retries() {
        let now = Instant::now();
        assert!(!Budget::new(0.0, now).retry(now));
    }

    proptest! {
        /// However requests and retries alternate, retries never exceed reserve + share × requests + refill.
        #[test]
        fn retries_stay_within_the_budget(share in 0.01..1.0f64, steps in prop::collection::vec((0..20u64, any::<bool>()), 1..400)) {
            let start = Instant::now();
            let (mut budget, mut now) = (Budget::new(share, start), start);
            let (mut requests, mut retries) = (0.0, 0.0);
            for (wait, request) in steps {
                now += Duration::from_millis(wait);
                if request {
                    budget.request();
                    requests += 1.0;
                } else if budget.retry(now) {
                    retries += 1.0;
                }
            }
            let most = RESERVE + share * requests + (now - start).as_secs_f64() / REFILL.as_secs_f64();
            prop_assert!(retries <= most + 1e-6, "{retries} of {most}");
        }
    }
}
