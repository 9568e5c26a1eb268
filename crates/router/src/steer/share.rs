//! The part of its ordinary calls that an upstream keeps: steps down while signalled, back when all is calm.
//!
//! In: what pulls at the share, and the time. Out: a share from the floor to 1. It moves at most once per
//! dwell, and no upstream's shares change more often than a budget says: whatever is signalled, nothing flaps.

use std::collections::VecDeque;

use tokio::time::Instant;

use super::settings::{STEP, Settings};

/// What pulls at a share.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Pull {
    /// No signal, or one whose harm is known to be gone: it comes back.
    Release,
    /// A signal of which no harm is known now: it stays.
    Hold,
    /// One step down.
    Step,
    /// To the floor.
    Floor,
}

/// A share.
#[derive(Clone, Debug)]
pub(super) struct Share {
    value: f64,
    changed: Option<Instant>,
    signalled: Option<Instant>,
}

impl Default for Share {
    fn default() -> Self {
        Self { value: 1.0, changed: None, signalled: None }
    }
}

impl Share {
    /// From the floor to 1.
    pub(super) fn value(&self) -> f64 {
        self.value
    }

    /// Whether it is whole.
    pub(super) fn is_whole(&self) -> bool {
        self.value >= 1.0
    }

    /// Lets time and signals work on it.
    pub(super) fn pull(&mut self, pull: Pull, settings: &Settings, budget: &mut Changes, now: Instant) {
        if pull != Pull::Release {
            self.signalled = Some(now);
        }
        let dwelt = |since: Option<Instant>, span| {
            since.is_none_or(|since| now.saturating_duration_since(since) >= span)
        };
        let next = match pull {
            Pull::Step => self.value * STEP,
            Pull::Floor => settings.floor,
            Pull::Release if dwelt(self.signalled, settings.calm) => self.value / STEP,
            Pull::Hold | Pull::Release => self.value,
        };
        let next = next.clamp(settings.floor, 1.0);
        let moves = (next - self.value).abs() > f64::EPSILON;
        if moves && dwelt(self.changed, settings.dwell) && budget.take(settings, now) {
            (self.value, self.changed) = (next, Some(now));
        }
    }
}

/// Changes of one upstream's shares in the last while.
#[derive(Clone, Debug, Default)]
pub(super) struct Changes(VecDeque<Instant>);

impl Changes {
    fn take(&mut self, settings: &Settings, now: Instant) -> bool {
        self.0.retain(|at| now.saturating_duration_since(*at) < settings.window);
        let free = self.0.len() < settings.changes;
        if free {
            self.0.push_back(now);
        }
        free
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use proptest::prelude::*;

    use super::*;

    fn after(start: Instant, seconds: u64) -> Instant {
        start + Duration::from_secs(seconds)
    }

    #[test]
    fn a_share_steps_down_while_signalled_and_comes_back_step_by_step_when_calm() {
        let (settings, start) = (Settings::default(), Instant::now());
        let (mut share, mut budget) = (Share::default(), Changes::default());
        let mut down = Vec::new();
        for second in 0..25 {
            share.pull(Pull::Step, &settings, &mut budget, after(start, second));
            down.push(share.value());
        }
        assert!((down[0] - 0.8).abs() < 1e-9, "at once: {down:?}");
        assert!((down[9] - 0.8).abs() < 1e-9 && (down[10] - 0.64).abs() < 1e-9, "once per dwell: {down:?}");
        assert!((down[24] - 0.512).abs() < 1e-9, "{down:?}");
        let mut whole = 0;
        for second in 25..200 {
            share.pull(Pull::Release, &settings, &mut budget, after(start, second));
            if second < 24 + 30 {
                assert!((share.value() - 0.512).abs() < 1e-9, "it waits until all is calm");
            }
            if share.is_whole() && whole == 0 {
                whole = second;
            }
        }
        assert!((24 + 30 + 20..24 + 30 + 24).contains(&whole), "three steps of 10 s: {whole}");
    }

    #[test]
    fn a_signal_of_unknown_harm_holds_the_share() {
        let (settings, start) = (Settings::default(), Instant::now());
        let (mut share, mut budget) = (Share::default(), Changes::default());
        share.pull(Pull::Floor, &settings, &mut budget, start);
        assert!((share.value() - 0.05).abs() < 1e-9);
        for second in 1..500 {
            share.pull(Pull::Hold, &settings, &mut budget, after(start, second));
        }
        assert!((share.value() - 0.05).abs() < 1e-9);
    }

    proptest! {
        /// Whatever pulls, the share stays between floor and 1 and changes no more often than it may.
        #[test]
        fn no_storm_gets_below_the_floor(pulls in prop::collection::vec((0..4_u8, 0..5_000_u64), 1..400)) {
            let mut settings = Settings::default();
            settings.dwell = Duration::from_millis(1);
            let mut now = Instant::now();
            let (mut share, mut budget) = (Share::default(), Changes::default());
            let mut changes: Vec<Instant> = Vec::new();
            for (pull, ms) in pulls {
                now += Duration::from_millis(ms);
                let before = share.value();
                let pull = [Pull::Release, Pull::Hold, Pull::Step, Pull::Floor][usize::from(pull)];
                share.pull(pull, &settings, &mut budget, now);
                prop_assert!(share.value() >= settings.floor && share.value() <= 1.0);
                if (share.value() - before).abs() > 1e-12 {
                    changes.push(now);
                    let lately = changes.iter().filter(|at| now - **at < settings.window).count();
                    prop_assert!(lately <= settings.changes, "{lately} changes");
                }
            }
        }
    }
}
