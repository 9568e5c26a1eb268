//! What somebody spent in the last hour, whatever it is: amounts in, their sum out.

use std::collections::VecDeque;
use std::time::Duration;

use tokio::time::Instant;

/// What is spent is forgotten after an hour, in steps of this.
const STEP: Duration = Duration::from_mins(5);
const STEPS: u32 = 12;

/// One hour that slides.
#[derive(Clone, Debug, Default)]
pub(super) struct Hour {
    /// When each step began, and what was spent in it.
    steps: VecDeque<(Instant, f64)>,
}

impl Hour {
    /// Something is spent.
    pub(super) fn spend(&mut self, amount: f64, now: Instant) {
        self.forget(now);
        match self.steps.back_mut() {
            Some((began, sum)) if now.saturating_duration_since(*began) < STEP => *sum += amount,
            _ => self.steps.push_back((now, amount)),
        }
    }

    /// What was spent.
    pub(super) fn sum(&mut self, now: Instant) -> f64 {
        self.forget(now);
        self.steps.iter().fold(0.0, |all, (_, sum)| all + sum)
    }

    /// The time until no more than `most` is left of it, at least a second; an hour at most.
    pub(super) fn until_below(&mut self, most: f64, now: Instant) -> Duration {
        let mut left = self.sum(now);
        let ends = |began: Instant| began + STEP * STEPS;
        let mut until = now;
        for (began, sum) in &self.steps {
            if left <= most {
                break;
            }
            left -= sum;
            until = ends(*began);
        }
        until.saturating_duration_since(now).max(Duration::from_secs(1))
    }

    fn forget(&mut self, now: Instant) {
        while self
            .steps
            .front()
            .is_some_and(|(began, _)| now.saturating_duration_since(*began) >= STEP * STEPS)
        {
            self.steps.pop_front();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_hour_is_remembered_and_no_more() {
        let (mut hour, now) = (Hour::default(), Instant::now());
        let at = |minutes| now + Duration::from_mins(minutes);
        for minutes in [0, 4, 5, 30] {
            hour.spend(1.0, at(minutes));
        }
        let sums = [59, 60, 65, 89, 90].map(|minutes| hour.clone().sum(at(minutes)));
        assert_eq!(sums.map(|sum| format!("{sum}")), ["4", "2", "1", "1", "0"]);
        assert_eq!(hour.until_below(4.0, at(31)), Duration::from_secs(1));
        assert_eq!(hour.until_below(3.0, at(31)), Duration::from_mins(29));
        assert_eq!(hour.until_below(1.5, at(31)), Duration::from_mins(34));
        assert_eq!(hour.until_below(-1.0, at(31)), Duration::from_mins(59), "it is never enough");
    }
}
