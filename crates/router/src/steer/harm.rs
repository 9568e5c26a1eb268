//! Whether users of a lane (a model at an upstream) are worse off than they ordinarily are there.
//!
//! In: waits for the first content, outcomes, and labels ("this answer was right" or not), as they come. Out:
//! [`Seen`] for each of the three. A signature alone is no reason to move traffic: most lattice hits on real
//! work were judged harmless, and a healthy stream may be as uneven as a sick one. What is not known is no harm.
//!
//! | seen | harm when | rests on |
//! |---|---|---|
//! | waits | of the last minute's, each as a multiple of the median for its effort, the median is ≥ 1.5 and the lower quartile ≥ 1.2 | from 16 waits on the lower quartile is below the true median with a probability of 98.9 % (order statistics), so chance does not reach 1.2 without a real inflation; baselines are medians of ≥ 50 waits, the least from which a median is claimed anywhere in this product |
//! | outcomes | the lower end of Wilson's 95 % interval of the last minute's error share lies above 3 % and above the baseline's share | one threshold on 50 outcomes decides on noise: a production controller of this kind was corrected from "5 %" to "hold up to 10 %, forgive below 3 %"; 20 calls are the least |
//! | labels | the same for wrong answers | |
//!
//! A signal about a window of prompt sizes is judged by the waits of those sizes, too, against the same baseline.
//!
//! Baselines learn only from what has left the last minute while no signal was live on the lane: harm must not
//! become the ordinary.

use std::collections::{HashMap, VecDeque};
use std::ops::RangeInclusive;
use std::time::Duration;

use tokio::time::Instant;

use crate::outcome::{LimitKind, Outcome};

/// Recent observations of one kind that are kept at most.
const KEPT: usize = 512;
/// Waits of a baseline, per effort; the oldest make room.
const BASELINE: usize = 256;
/// Waits without which there is no baseline.
const BASELINE_ENOUGH: usize = 50;
/// Efforts told apart, as in learned waits.
const EFFORTS: usize = 16;
/// Recent waits without which nothing is said.
const WAITS_ENOUGH: usize = 16;
/// Outcomes or labels without which nothing is said.
const OUTCOMES_ENOUGH: usize = 20;
/// A baseline of outcomes forgets: at this many it is halved.
const OUTCOMES_KEPT: f64 = 2_000.0;
/// The normal quantile of a two-sided 95 % interval.
const Z: f64 = 1.959_964;

/// When a lane counts as harmed.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Thresholds {
    /// What counts as recent.
    pub recent: Duration,
    /// Multiple of the ordinary wait that the median must reach.
    pub wait_ratio: f64,
    /// Multiple that the lower quartile must reach.
    pub wait_quartile: f64,
    /// Share of errors or wrong answers that the interval's lower end must pass.
    pub error_share: f64,
}

impl Default for Thresholds {
    fn default() -> Self {
        Self { recent: Duration::from_mins(1), wait_ratio: 1.5, wait_quartile: 1.2, error_share: 0.03 }
    }
}

/// What is known of one kind of harm.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub enum Seen {
    /// Too little to say.
    #[default]
    Unknown,
    /// As ordinarily: the multiple or the share.
    Ordinary(f64),
    /// Worse: the multiple or the share.
    Harm(f64),
}

impl Seen {
    /// Whether it is harm.
    pub fn is_harm(self) -> bool {
        matches!(self, Self::Harm(_))
    }

    /// `unknown`, `ordinary` or `harm`.
    pub fn name(self) -> &'static str {
        match self {
            Self::Unknown => "unknown",
            Self::Ordinary(_) => "ordinary",
            Self::Harm(_) => "harm",
        }
    }

    /// The multiple or share.
    pub fn value(self) -> Option<f64> {
        match self {
            Self::Unknown => None,
            Self::Ordinary(value) | Self::Harm(value) => Some(value),
        }
    }

    /// The worse of two lanes.
    #[must_use]
    pub fn worse(self, other: Self) -> Self {
        match (self, other) {
            (harm @ Self::Harm(_), _) | (_, harm @ Self::Harm(_)) => harm,
            (Self::Unknown, other) => other,
            (known, _) => known,
        }
    }
}

/// What is known of the harm in a lane.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Harmed {
    /// Waits for the first content, as a multiple of the ordinary.
    pub waits: Seen,
    /// Errors, as a share.
    pub errors: Seen,
    /// Wrong answers, as a share of the labelled.
    pub labels: Seen,
}

impl Harmed {
    /// Whether there is any.
    pub fn any(self) -> bool {
        self.waits.is_harm() || self.errors.is_harm() || self.labels.is_harm()
    }

    /// Whether something is known and nothing of it is harm.
    pub fn is_ordinary(self) -> bool {
        let known = |seen: Seen| matches!(seen, Seen::Ordinary(_));
        !self.any() && (known(self.waits) || known(self.errors) || known(self.labels))
    }

    /// The worse of two lanes.
    #[must_use]
    pub fn worse(self, other: Self) -> Self {
        Self {
            waits: self.waits.worse(other.waits),
            errors: self.errors.worse(other.errors),
            labels: self.labels.worse(other.labels),
        }
    }
}

/// What was observed in one lane.
#[derive(Clone, Debug, Default)]
pub(crate) struct Harm {
    thresholds: Thresholds,
    waits: VecDeque<Wait>,
    ordinary: Vec<Ordinary>,
    efforts: HashMap<String, u8>,
    errors: Rate,
    labels: Rate,
    /// A signal is live here: nothing is learned as ordinary.
    disturbed: bool,
}

/// One wait for the first content.
#[derive(Clone, Copy, Debug)]
struct Wait {
    at: Instant,
    effort: u8,
    /// Of the prompt, where they are known.
    tokens: Option<u64>,
    seconds: f64,
}

/// Ordinary waits of one effort.
#[derive(Clone, Debug, Default)]
struct Ordinary {
    waits: VecDeque<f64>,
    median: Option<f64>,
}

/// Bad among all.
#[derive(Clone, Debug, Default)]
struct Rate {
    recent: VecDeque<(Instant, bool)>,
    ordinary_bad: f64,
    ordinary_all: f64,
}

impl Harm {
    /// Judges by these from now on; what was observed stays.
    pub(crate) fn configure(&mut self, thresholds: Thresholds) {
        self.thresholds = thresholds;
    }

    /// The first content came after this long.
    pub(crate) fn waited(&mut self, effort: &str, tokens: Option<u64>, wait: Duration, now: Instant) {
        let effort = self.effort(effort);
        self.age(now);
        if self.waits.len() == KEPT {
            self.oldest_wait();
        }
        self.waits.push_back(Wait { at: now, effort, tokens, seconds: wait.as_secs_f64() });
    }

    /// An attempt has ended. What says nothing about the upstream is neither good nor bad.
    pub(crate) fn ended(&mut self, outcome: Outcome, now: Instant) {
        let bad = match outcome {
            Outcome::Good => false,
            Outcome::Failed(_) => true,
            // A refused or unpaid key is the operator's matter, and another share would not mend it.
            Outcome::Limited(limit) => match limit.kind {
                LimitKind::Rate | LimitKind::PerIp => true,
                LimitKind::Insufficient | LimitKind::Key => return,
            },
            Outcome::Neutral | Outcome::Incapable(_) => return,
        };
        self.errors.push(bad, self.disturbed, self.thresholds.recent, now);
    }

    /// Somebody knows whether an answer was right.
    pub(crate) fn label(&mut self, right: bool, now: Instant) {
        self.labels.push(!right, self.disturbed, self.thresholds.recent, now);
    }

    /// Whether a signal is live on the lane.
    pub(crate) fn disturb(&mut self, disturbed: bool, now: Instant) {
        self.age(now); // what is old by now was ordinary, or not, under the old state
        self.disturbed = disturbed;
    }

    /// What is known.
    pub(crate) fn seen(&mut self, now: Instant) -> Harmed {
        self.age(now);
        Harmed {
            waits: self.waits_seen(|_| true),
            errors: self.errors.seen(self.thresholds.error_share),
            labels: self.labels.seen(self.thresholds.error_share),
        }
    }

    /// What is known of the waits of calls with prompts of these sizes alone: a window of sizes that suffers is
    /// seldom half of the calls, and the median of all says nothing of it.
    pub(crate) fn waits_of(&mut self, sizes: RangeInclusive<u64>, now: Instant) -> Seen {
        self.age(now);
        self.waits_seen(|wait| wait.tokens.is_some_and(|tokens| sizes.contains(&tokens)))
    }

    fn waits_seen(&self, of: impl Fn(&Wait) -> bool) -> Seen {
        let thresholds = &self.thresholds;
        let ratio = |wait: &Wait| {
            let median = self.ordinary.get(usize::from(wait.effort))?.median?;
            (median > 0.0).then(|| wait.seconds / median)
        };
        let mut ratios: Vec<f64> = self.waits.iter().filter(|wait| of(wait)).filter_map(ratio).collect();
        if ratios.len() < WAITS_ENOUGH {
            return Seen::Unknown;
        }
        ratios.sort_by(f64::total_cmp);
        let (quartile, median) = (ratios[ratios.len() / 4], ratios[ratios.len() / 2]);
        if median >= thresholds.wait_ratio && quartile >= thresholds.wait_quartile {
            Seen::Harm(median)
        } else {
            Seen::Ordinary(median)
        }
    }

    fn age(&mut self, now: Instant) {
        let recent = self.thresholds.recent;
        let old = |at: &Instant| now.saturating_duration_since(*at) >= recent;
        while self.waits.front().is_some_and(|wait| old(&wait.at)) {
            self.oldest_wait();
        }
        self.errors.age(self.disturbed, recent, now);
        self.labels.age(self.disturbed, recent, now);
    }

    fn oldest_wait(&mut self) {
        let Some(wait) = self.waits.pop_front().filter(|_| !self.disturbed) else { return };
        let effort = usize::from(wait.effort);
        if self.ordinary.len() <= effort {
            self.ordinary.resize_with(effort + 1, Ordinary::default);
        }
        self.ordinary[effort].push(wait.seconds);
    }

    fn effort(&mut self, effort: &str) -> u8 {
        if let Some(known) = self.efforts.get(effort) {
            return *known;
        }
        let next = self.efforts.len().min(EFFORTS - 1);
        let next = u8::try_from(next).unwrap_or(0);
        if self.efforts.len() < EFFORTS {
            self.efforts.insert(effort.to_owned(), next);
        }
        next
    }
}

impl Ordinary {
    fn push(&mut self, wait: f64) {
        self.waits.push_back(wait);
        if self.waits.len() > BASELINE {
            self.waits.pop_front();
        }
        // Sorting 256 numbers each time would be waste: the median moves slowly.
        let due = self.median.is_none() || self.waits.len() < BASELINE || self.waits.len().is_multiple_of(16);
        if due && self.waits.len() >= BASELINE_ENOUGH {
            let mut sorted: Vec<f64> = self.waits.iter().copied().collect();
            let middle = sorted.len() / 2;
            self.median = Some(*sorted.select_nth_unstable_by(middle, f64::total_cmp).1);
        }
    }
}

impl Rate {
    fn push(&mut self, bad: bool, disturbed: bool, recent: Duration, now: Instant) {
        self.age(disturbed, recent, now);
        if self.recent.len() == KEPT {
            self.oldest(disturbed);
        }
        self.recent.push_back((now, bad));
    }

    fn age(&mut self, disturbed: bool, recent: Duration, now: Instant) {
        while self.recent.front().is_some_and(|(at, _)| now.saturating_duration_since(*at) >= recent) {
            self.oldest(disturbed);
        }
    }

    fn oldest(&mut self, disturbed: bool) {
        let Some((_, bad)) = self.recent.pop_front().filter(|_| !disturbed) else { return };
        self.ordinary_all += 1.0;
        self.ordinary_bad += if bad { 1.0 } else { 0.0 };
        if self.ordinary_all >= OUTCOMES_KEPT {
            (self.ordinary_all, self.ordinary_bad) = (self.ordinary_all / 2.0, self.ordinary_bad / 2.0);
        }
    }

    fn seen(&self, threshold: f64) -> Seen {
        if self.recent.len() < OUTCOMES_ENOUGH {
            return Seen::Unknown;
        }
        let bad = self.recent.iter().filter(|(_, bad)| *bad).count();
        let (bad, all) = (small(bad), small(self.recent.len()));
        let ordinary = if self.ordinary_all > 0.0 { self.ordinary_bad / self.ordinary_all } else { 0.0 };
        let share = bad / all;
        if wilson_lower(bad, all) > threshold.max(ordinary) {
            Seen::Harm(share)
        } else {
            Seen::Ordinary(share)
        }
    }
}

/// The lower end of Wilson's 95 % interval of a share.
fn wilson_lower(bad: f64, all: f64) -> f64 {
    let (share, z2) = (bad / all, Z * Z);
    let spread = Z * (share * (1.0 - share) / all + z2 / (4.0 * all * all)).sqrt();
    (share + z2 / (2.0 * all) - spread) / (1.0 + z2 / all)
}

fn small(count: usize) -> f64 {
    u32::try_from(count).map_or(f64::from(u32::MAX), f64::from)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::outcome::{Failure, FailureKind, Limit};

    const BAD: Outcome = Outcome::Failed(Failure { kind: FailureKind::Cut, retry_after: None });

    /// Waits around `ms` (a quarter each at 0.8, 1, 1.2 and 1.6 times), one per second.
    fn waits(harm: &mut Harm, effort: &str, ms: u64, count: u64, from: Instant) -> Instant {
        for n in 0..count {
            let factor = [8, 10, 12, 16][usize::try_from(n % 4).unwrap()];
            harm.waited(effort, None, Duration::from_millis(ms * factor / 10), from + Duration::from_secs(n));
        }
        from + Duration::from_secs(count)
    }

    #[test]
    fn longer_waits_are_harm_against_the_lanes_own_baseline_only() {
        let (mut harm, start) = (Harm::default(), Instant::now());
        let now = waits(&mut harm, "high", 1_000, 100, start);
        assert_eq!(harm.seen(now).waits, Seen::Unknown, "40 are old enough to be a baseline");
        let now = waits(&mut harm, "high", 1_000, 100, now);
        assert!(matches!(harm.seen(now).waits, Seen::Ordinary(_)));
        harm.disturb(true, now);
        let now = waits(&mut harm, "high", 3_000, 60, now);
        assert!(harm.seen(now).waits.is_harm());
        // As long as it is disturbed it does not become the ordinary.
        let now = waits(&mut harm, "high", 3_000, 1_000, now);
        assert!(harm.seen(now).waits.is_harm());
        // Another effort has another baseline, which is not known yet.
        let later = now + Duration::from_mins(1);
        let now = waits(&mut harm, "xhigh", 9_000, 60, later);
        assert_eq!(harm.seen(now).waits, Seen::Unknown);
    }

    #[test]
    fn sizes_that_wait_are_harm_to_themselves_though_most_do_not_wait() {
        let (mut harm, start) = (Harm::default(), Instant::now());
        let mut now = start;
        for n in 0..300_u64 {
            now = start + Duration::from_millis(500 * n);
            let (tokens, ms) = if n % 3 == 0 { (200, 5_000) } else { (100 + 5 * (n % 40), 300) };
            let tokens = if ms == 300 && (150..=220).contains(&tokens) { 300 } else { tokens };
            harm.waited("", Some(tokens), Duration::from_millis(ms), now);
        }
        assert!(matches!(harm.seen(now).waits, Seen::Ordinary(_)));
        assert!(harm.waits_of(150..=220, now).is_harm());
        assert!(matches!(harm.waits_of(0..=149, now), Seen::Ordinary(_)));
        assert_eq!(harm.waits_of(400..=500, now), Seen::Unknown, "nobody asked");
    }

    #[test]
    fn a_few_errors_are_chance_and_unknown_outcomes_count_for_nothing() {
        let (mut harm, start) = (Harm::default(), Instant::now());
        let seen = |harm: &mut Harm| harm.seen(start).errors;
        for _ in 0..18 {
            harm.ended(Outcome::Good, start);
            harm.ended(Outcome::Neutral, start);
            harm.ended(
                Outcome::Limited(Limit { kind: LimitKind::Key, retry_after: None, elsewhere: false }),
                start,
            );
        }
        harm.ended(BAD, start);
        assert_eq!(seen(&mut harm), Seen::Unknown, "19 outcomes");
        harm.ended(BAD, start);
        assert_eq!(seen(&mut harm), Seen::Ordinary(0.1), "2 of 20 can be chance: 2.8 % is not excluded");
        harm.ended(BAD, start);
        harm.ended(BAD, start);
        assert!(seen(&mut harm).is_harm(), "4 of 22");
    }

    #[test]
    fn a_lane_that_ordinarily_fails_is_not_harmed_by_failing() {
        let (mut harm, start) = (Harm::default(), Instant::now());
        let mut now = start;
        for n in 0..600 {
            now = start + Duration::from_millis(500 * n);
            harm.ended(if n % 5 == 0 { BAD } else { Outcome::Good }, now);
        }
        assert!(matches!(harm.seen(now).errors, Seen::Ordinary(_)));
        assert_eq!(harm.seen(now + Duration::from_mins(1)).errors, Seen::Unknown, "all is old");
    }

    #[test]
    fn labels_are_harm_of_their_own() {
        let (mut harm, now) = (Harm::default(), Instant::now());
        for n in 0..30 {
            harm.label(n % 3 > 0, now);
        }
        let seen = harm.seen(now);
        assert!(seen.labels.is_harm() && seen.any());
        assert_eq!(seen.errors, Seen::Unknown);
    }

    #[test]
    fn wilson_agrees_with_published_values() {
        // 10 of 100: 0.0552 (Newcombe 1998, method 3, to the digits given by any implementation).
        assert!((wilson_lower(10.0, 100.0) - 0.055_229).abs() < 1e-5);
    }
}
