//! How long a first content may take: the waits that were seen in, a timeout out.
//!
//! Learned per model at an upstream and effort, since `xhigh` is silent for minutes where `low` answers at
//! once. The timeout is twice the longest of the last waits: a mixture of short and long prompts must not cut
//! off the long ones. A wait that ran into the timeout counts with its length, so a route that really became
//! slower raises its timeout instead of failing for good.

use std::collections::{HashMap, VecDeque};
use std::time::Duration;

/// Waits looked back on.
const KEPT: usize = 256;

/// Waits without which there is no timeout: with 100 the longest is about the 99th percentile.
const ENOUGH: usize = 100;

/// The longest wait is multiplied with this.
const FACTOR: u32 = 2;

/// No learned timeout is shorter than this.
const SHORTEST: Duration = Duration::from_secs(5);

/// Efforts told apart; further ones share a place, since clients may write anything.
const EFFORTS: usize = 16;

/// The waits of one model at one upstream.
#[derive(Clone, Debug, Default)]
pub(crate) struct Patience {
    by_effort: HashMap<String, VecDeque<Duration>>,
}

impl Patience {
    /// The first content came after this long, or not within it.
    pub(crate) fn waited(&mut self, effort: &str, wait: Duration) {
        let place = self.place(effort).to_owned();
        let waits = self.by_effort.entry(place).or_default();
        waits.push_back(wait);
        if waits.len() > KEPT {
            waits.pop_front();
        }
    }

    /// The timeout, once enough is known.
    pub(crate) fn timeout(&self, effort: &str) -> Option<Duration> {
        let waits = self.by_effort.get(self.place(effort)).filter(|waits| waits.len() >= ENOUGH)?;
        waits.iter().max().map(|longest| (*longest * FACTOR).max(SHORTEST))
    }

    fn place<'a>(&self, effort: &'a str) -> &'a str {
        let known = self.by_effort.contains_key(effort) || self.by_effort.len() < EFFORTS;
        if known { effort } else { "other" }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn there_is_no_timeout_before_enough_was_seen() {
        let mut patience = Patience::default();
        for _ in 1..ENOUGH {
            patience.waited("high", Duration::from_secs(20));
        }
        assert_eq!(patience.timeout("high"), None);
        patience.waited("high", Duration::from_secs(30));
        assert_eq!(patience.timeout("high"), Some(Duration::from_mins(1)));
        assert_eq!(patience.timeout("low"), None);
    }

    #[test]
    fn old_waits_are_forgotten_and_quick_routes_keep_a_floor() {
        let mut patience = Patience::default();
        patience.waited("", Duration::from_secs(500));
        for _ in 0..KEPT {
            patience.waited("", Duration::from_millis(10));
        }
        assert_eq!(patience.timeout(""), Some(SHORTEST));
    }

    #[test]
    fn efforts_that_clients_make_up_do_not_pile_up() {
        let mut patience = Patience::default();
        for made_up in 0..1000 {
            patience.waited(&made_up.to_string(), Duration::from_secs(1));
        }
        assert!(patience.by_effort.len() <= EFFORTS + 1);
    }
}
