//! Rates of events: exact intervals of one, and of the ratio of two.
//!
//! In: events, the time in which they could have come, and how they bunch. Out: 95 % intervals.
//!
//! Events that bunch (many in one session) are fewer independent ones. After Rao and Scott, Stat. Med. 18
//! (1999) 1373–1385, both the count and its time are divided by the design effect: variance of the count
//! between clusters over what Poisson's law gives. An effect under 1 is not used: it would narrow an
//! interval on the word of few clusters.

use statrs::distribution::{Beta, ContinuousCDF, Gamma};
use statrs::function::beta::beta_reg;

use super::{real, real_len};

/// Half of what a 95 % interval leaves out.
const TAIL: f64 = 0.025;

/// One cluster (session, turn, stream): its events and its own time.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Bunch {
    /// Events.
    pub events: u64,
    /// The cluster's own time, where time belongs to clusters; any unit.
    pub exposure: f64,
}

/// Events over a time.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Counted {
    /// Events.
    pub events: u64,
    /// The time in which they could have come.
    pub exposure: f64,
    /// How many events count as one independent event, at least 1.
    pub design_effect: f64,
}

impl Counted {
    /// Events in a time that passes for all clusters alike: a cluster of x events adds x² to the variance.
    pub fn on_the_clock(bunches: &[Bunch], exposure: f64) -> Self {
        let events: u64 = bunches.iter().map(|bunch| bunch.events).sum();
        let squares: f64 = bunches.iter().map(|bunch| real(bunch.events).powi(2)).sum();
        Self { events, exposure, design_effect: effect(squares, events) }
    }

    /// Events in the clusters' own time, which varies with them.
    pub fn in_own_time(bunches: &[Bunch]) -> Self {
        let events: u64 = bunches.iter().map(|bunch| bunch.events).sum();
        let exposure: f64 = bunches.iter().map(|bunch| bunch.exposure).sum();
        let (k, rate) = (real_len(bunches.len()), if exposure > 0.0 { real(events) / exposure } else { 0.0 });
        let squares: f64 =
            bunches.iter().map(|bunch| (real(bunch.events) - rate * bunch.exposure).powi(2)).sum();
        let variance = if k > 1.0 { squares * k / (k - 1.0) } else { squares };
        Self { events, exposure, design_effect: effect(variance, events) }
    }

    /// Events per unit of time; `None` without time.
    pub fn rate(&self) -> Option<f64> {
        (self.exposure > 0.0).then(|| real(self.events) / self.exposure)
    }

    /// 95 % interval of the rate after Garwood, Biometrika 28 (1936) 437–442; `None` without time.
    pub fn ci95(&self) -> Option<[f64; 2]> {
        if self.exposure <= 0.0 || !self.exposure.is_finite() {
            return None;
        }
        let (count, exposure) = self.effective();
        let low = if self.events == 0 { 0.0 } else { Gamma::new(count, 1.0).ok()?.inverse_cdf(TAIL) };
        let high = Gamma::new(count + 1.0, 1.0).ok()?.inverse_cdf(1.0 - TAIL);
        Some([low / exposure, high / exposure])
    }

    fn effective(&self) -> (f64, f64) {
        (real(self.events) / self.design_effect, self.exposure / self.design_effect)
    }
}

fn effect(variance: f64, events: u64) -> f64 {
    if events == 0 { 1.0 } else { (variance / real(events)).max(1.0) }
}

/// How one rate stands to another.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Ratio {
    /// Second over first; `None` when the first side has no event.
    pub value: Option<f64>,
    /// 95 % limits; an upper one of `None` is none at all.
    pub ci95: [Option<f64>; 2],
    /// Two-sided p-value of equal rates: twice the smaller tail.
    pub p: f64,
}

/// Second rate over first: given all events, those of the second side are binomial (Przyborowski and
/// Wilenski, Biometrika 31 (1940) 313–323), with Clopper and Pearson's limits. `None` when a side has no
/// time or there is no event at all.
pub fn ratio(first: &Counted, second: &Counted) -> Option<Ratio> {
    let timed = |side: &Counted| side.exposure > 0.0 && side.exposure.is_finite();
    if !timed(first) || !timed(second) || first.events + second.events == 0 {
        return None;
    }
    // A side without events shows nothing of how they bunch: it is taken to bunch as the other does.
    let like = |side: &Counted, other: &Counted| {
        let design_effect = if side.events == 0 { other.design_effect } else { side.design_effect };
        Counted { design_effect, ..*side }.effective()
    };
    let ((x1, t1), (x2, t2)) = (like(first, second), like(second, first));
    let times = t1 / t2;
    let odds = |share: f64| share / (1.0 - share) * times;
    let low = if x2 > 0.0 { odds(Beta::new(x2, x1 + 1.0).ok()?.inverse_cdf(TAIL)) } else { 0.0 };
    let high =
        if x1 > 0.0 { Some(odds(Beta::new(x2 + 1.0, x1).ok()?.inverse_cdf(1.0 - TAIL))) } else { None };
    let null = t2 / (t1 + t2);
    let at_least = if x2 > 0.0 { beta_reg(x2, x1 + 1.0, null) } else { 1.0 };
    let at_most = if x1 > 0.0 { beta_reg(x1, x2 + 1.0, 1.0 - null) } else { 1.0 };
    Some(Ratio {
        value: (x1 > 0.0).then(|| x2 / x1 * times),
        ci95: [Some(low), high],
        p: (2.0 * at_least.min(at_most)).min(1.0),
    })
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use rand::SeedableRng as _;

    use super::super::golden::{assert_close, cases, number};
    use super::*;

    fn counted(events: u64, exposure: f64) -> Counted {
        Counted { events, exposure, design_effect: 1.0 }
    }

    /// Garwood's own table, five digits: 0 events 0–3.6889, 1 event 0.0253–5.5716, 10 events 4.7954–18.390.
    #[test]
    fn intervals_equal_garwoods_table() {
        for (events, low, high) in [(0, 0.0, 3.6889), (1, 0.0253, 5.5716), (10, 4.7954, 18.390)] {
            let [got_low, got_high] = counted(events, 1.0).ci95().expect("a time");
            assert!((got_low - low).abs() < 5e-5, "{events}: {got_low}");
            assert!((got_high / high - 1.0).abs() < 3e-5, "{events}: {got_high}");
        }
        let [_, high] = counted(0, 2.0).ci95().expect("a time");
        assert!((high - 3.6889 / 2.0).abs() < 5e-5, "per two hours: {high}");
    }

    /// With equal times the share of the second side's events has Clopper and Pearson's limits: SciPy's, to
    /// 1e-6.
    #[test]
    fn limits_of_the_ratio_are_those_of_scipys_binomial() {
        let mut seen = 0;
        for case in cases("proportion_ci") {
            let whole = |name: &str| case["input"][name].as_u64().expect("a whole number");
            let (k, n) = (whole("k"), whole("n"));
            let (Some(want), true) = (case["expected"]["exact"].as_array(), 0 < k && k < n) else {
                continue;
            };
            let found = ratio(&counted(n - k, 1.0), &counted(k, 1.0)).expect("events");
            for (got, want) in found.ci95.iter().zip(want) {
                let odds = got.expect("both sides have events");
                assert_close(odds / (1.0 + odds), number(want), 1e-6, "share");
            }
            seen += 1;
        }
        assert!(seen >= 3, "{seen}");
    }

    #[test]
    fn a_side_without_events_has_a_lower_limit_only() {
        let found = ratio(&counted(0, 10.0), &counted(8, 10.0)).expect("events");
        assert_eq!((found.value, found.ci95[1]), (None, None));
        assert!(found.ci95[0].is_some_and(|low| low > 1.0) && found.p < 0.01, "{found:?}");
        assert_eq!(ratio(&counted(0, 1.0), &counted(0, 1.0)), None);
        assert_eq!(ratio(&counted(3, 0.0), &counted(3, 1.0)), None);
        assert_eq!((counted(3, 0.0).ci95(), counted(3, 0.0).rate()), (None, None));
    }

    /// Ten events of one session are one event: 100 in 10 sessions of 10 are as uncertain as 10.
    #[test]
    fn bunched_events_are_fewer() {
        let bunches = vec![Bunch { events: 10, exposure: 1.0 }; 10];
        let bunched = Counted::on_the_clock(&bunches, 10.0);
        assert!((bunched.design_effect - 10.0).abs() < 1e-12);
        let [low, high] = bunched.ci95().expect("a time");
        let [ten_low, ten_high] = counted(10, 1.0).ci95().expect("a time");
        assert!((low - ten_low).abs() < 1e-9 && (high - ten_high).abs() < 1e-9);
        // Where each cluster brings its own time, ten events in each are perfectly even.
        assert!((Counted::in_own_time(&bunches).design_effect - 1.0).abs() < 1e-12);
    }

    /// Sessions that come at random and bring three events each: the interval holds the true rate at least as
    /// often as it says; without the design effect it would not.
    #[test]
    fn the_interval_of_bunched_events_covers() {
        let mut dice = rand_chacha::ChaCha8Rng::seed_from_u64(7);
        let (mut covered, mut naive) = (0, 0);
        for _ in 0..400 {
            // Sessions of a Poisson process at 4 an hour for 10 hours.
            let (mut at, mut sessions) = (0.0, Vec::new());
            loop {
                at -= dice.random_range(f64::MIN_POSITIVE..1.0).ln() / 4.0;
                if at > 10.0 {
                    break;
                }
                sessions.push(Bunch { events: 3, exposure: 0.0 });
            }
            let found = Counted::on_the_clock(&sessions, 10.0);
            let holds = |c: Counted| c.ci95().is_some_and(|[low, high]| low <= 12.0 && 12.0 <= high);
            covered += u32::from(holds(found));
            naive += u32::from(holds(Counted { design_effect: 1.0, ..found }));
        }
        assert!((375..=400).contains(&covered), "{covered} of 400");
        assert!(naive < 340, "{naive} of 400");
    }

    proptest! {
        /// Exchanging the sides turns the ratio and its limits over and leaves p alone.
        #[test]
        fn sides_can_be_exchanged(a in 1_u64..200, b in 1_u64..200, s in 0.1_f64..100.0, t in 0.1_f64..100.0) {
            let (forth, back) = (
                ratio(&counted(a, s), &counted(b, t)).expect("events"),
                ratio(&counted(b, t), &counted(a, s)).expect("events"),
            );
            let (low, high) = (back.ci95[0].expect("a limit"), back.ci95[1].expect("a limit"));
            prop_assert!((forth.p - back.p).abs() < 1e-9);
            prop_assert!((forth.ci95[0].expect("a limit") * high - 1.0).abs() < 1e-6);
            prop_assert!((forth.ci95[1].expect("a limit") * low - 1.0).abs() < 1e-6);
        }
    }
}
