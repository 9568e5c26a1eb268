//! Flags, one after the other, against the share that health shows.
//!
//! In: a flag per observation (a client turn, a pile of calls, a checked answer) and the share p0 of flags
//! under health, an upper confidence limit. Out: whether the share has risen, with a stated average run
//! length (ARL) between two false alarms.
//!
//! **Statistic**: the mixture e-CUSUM of [`crate::sequential`]. Its threshold is computed for p0 and ARL when
//! p0 holds still; where p0 moves with every observation the threshold is the ARL itself, for which the claim
//! is proved without any computation.
//!
//! **Hysteresis**: a raised sequence is cleared by its mirror image, a CUSUM for p0 against half the raised
//! share that reaches ln 1000.
//!
//! **Assumption**: flags are independent of each other under health; [`crate::sequential::dependence`] checks
//! it on what was learned, and every signal and view says how that came out.

use serde::{Deserialize, Serialize};
use sseismo_analysis::stats::real;
use sseismo_trace::{Evidence, Micros, UtcMicros};

use crate::budget::{Budget, Share};
use crate::sequential::dependence;
use crate::sequential::design::{Design, LARGEST_P0};
use crate::sequential::e_detector::{EDetector, Mixture, Recursion};
use crate::sequential::upper_limit::clopper_pearson;
use crate::view::Figure;
use crate::watch::Standing;

/// ln 1000: a raised sequence is cleared when health is a thousand times likelier.
const CLEAR: f64 = 6.907_755_278_982_137;
/// Null shares are kept within these: below, a single flag would decide; above, there is no health.
const NULLS: [f64; 2] = [1e-4, LARGEST_P0];
/// A null that moved by less than this factor changes nothing.
const MOVED: f64 = 1.1;
/// A share that is to be told from the null must be this many times as large.
const APART: f64 = 1.5;
/// Confidence of the upper limits.
const CONFIDENCE: f64 = 0.95;
/// What is computed.
const STATISTIC: &str = "mixture e-CUSUM";

/// Flags among observations.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Hits {
    pub(crate) hits: u64,
    pub(crate) n: u64,
}

impl Hits {
    pub(crate) fn push(&mut self, flag: bool) {
        self.n += 1;
        self.hits += u64::from(flag);
    }

    pub(crate) fn share(self) -> f64 {
        if self.n == 0 { 0.0 } else { real(self.hits) / real(self.n) }
    }

    pub(crate) fn add(&mut self, other: Self) {
        self.hits += other.hits;
        self.n += other.n;
    }

    /// Halves both, so that what is older weighs less.
    pub(crate) fn halve(&mut self) {
        self.hits /= 2;
        self.n /= 2;
    }
}

/// What an observation changed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Step {
    /// Nothing: neither suspicion nor signal. What came since the last rest was health.
    Rest,
    /// Suspicion, or an onset that goes on.
    Open,
    /// The share has risen.
    Onset,
    /// The share has fallen back.
    Clear,
}

/// Mean time between observations, the older the less it weighs.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Pace {
    last: Option<UtcMicros>,
    mean: Option<f64>,
    seen: u32,
}

impl Pace {
    /// Observations that weigh in.
    const MEMORY: u32 = 200;

    pub(crate) fn push(&mut self, at: UtcMicros) {
        if let Some(last) = self.last {
            #[expect(clippy::cast_precision_loss, reason = "spans stay far below 2^53 µs")]
            let gap = (at.0 - last.0).max(0) as f64;
            self.seen = (self.seen + 1).min(Self::MEMORY);
            let mean = self.mean.get_or_insert(gap);
            *mean += (gap - *mean) / f64::from(self.seen);
        }
        self.last = Some(at);
    }

    pub(crate) fn mean(&self) -> Option<Micros> {
        #[expect(clippy::cast_possible_truncation, reason = "a mean of spans is a span")]
        self.mean.map(|mean| Micros(mean as i64))
    }
}

/// Flags of one scope against the share of health.
#[derive(Debug)]
pub(crate) struct Sequence {
    /// Smallest share of flags since the change began that is worth a signal.
    least: f64,
    /// Whether the threshold may be computed: the null holds still.
    computed: bool,
    null: Option<f64>,
    budget: Option<Budget>,
    detector: Option<EDetector>,
    ln_threshold: f64,
    arl: f64,
    /// Since the evidence was last at rest.
    excursion: Hits,
    raised: Option<Raised>,
    pace: Pace,
    health: dependence::Baseline,
    last_flag: UtcMicros,
}

/// What is remembered of an onset.
#[derive(Clone, Copy, Debug)]
struct Raised {
    /// Logarithms of the statistic when it was raised, and of what it had to reach.
    ln: f64,
    ln_threshold: f64,
    arl: f64,
    /// Flags since the change began.
    hits: Hits,
    /// Share against which recovery is measured.
    against: f64,
    recovery: f64,
}

impl Sequence {
    /// Starts without a null; a signal needs at least the share `least`.
    pub(crate) fn new(least: f64) -> Self {
        Self {
            least,
            computed: true,
            null: None,
            budget: None,
            detector: None,
            ln_threshold: f64::INFINITY,
            arl: f64::INFINITY,
            excursion: Hits::default(),
            raised: None,
            pace: Pace::default(),
            health: dependence::Baseline::default(),
            last_flag: UtcMicros::default(),
        }
    }

    /// Starts without a null, and with one that will move with every observation.
    pub(crate) fn moving(least: f64) -> Self {
        Self { computed: false, ..Self::new(least) }
    }

    /// Sets the share of flags under health: an upper confidence limit. The threshold is the proved one until
    /// [`Self::share`] computes a lower one.
    pub(crate) fn set_null(&mut self, share: f64) {
        let share = share.clamp(NULLS[0], NULLS[1]);
        if self.null.is_some_and(|old| share <= old * MOVED && share * MOVED >= old) {
            return;
        }
        self.null = Some(share);
        if let Ok(mixture) = Design::nearest(share, self.arl.min(1e9)).against(share) {
            self.bet_on(mixture);
            self.ln_threshold = self.arl.ln();
        }
    }

    /// Takes its share of the false alarms; until the threshold is computed the proved one holds.
    pub(crate) fn share(&mut self, share: &mut Share<'_>) {
        self.budget = Some(share.budget);
        self.arl = share.budget.run_length(self.pace.mean().unwrap_or(Micros(1_000_000)));
        self.ln_threshold = self.arl.ln();
        let Some(null) = self.null.filter(|_| self.computed) else { return };
        if let Some((mixture, threshold)) = share.thresholds.known(null, self.arl) {
            self.bet_on(mixture);
            (self.ln_threshold, self.arl) = (threshold.ln, threshold.arl);
        }
    }

    /// Changes the bets. Evidence is kept as long as its parts weigh the same: otherwise the change itself
    /// could raise it.
    fn bet_on(&mut self, mixture: Mixture) {
        let weights = |mixture: &Mixture| -> Vec<f64> {
            mixture.alternatives().iter().map(|alternative| alternative.weight).collect()
        };
        match &mut self.detector {
            Some(detector) if weights(detector.mixture()) == weights(&mixture) => detector.bet_on(mixture),
            _ => self.detector = Some(EDetector::new(mixture, Recursion::Cusum)),
        }
    }

    /// Takes in one observation.
    pub(crate) fn push(&mut self, at: UtcMicros, flag: bool) -> Step {
        self.pace.push(at);
        if flag {
            self.last_flag = at;
        }
        let (Some(null), Some(detector)) = (self.null, &mut self.detector) else { return Step::Rest };
        if self.raised.is_some() {
            return self.recover(null, flag);
        }
        self.health.push(flag);
        self.excursion.push(flag);
        let ln = detector.push(flag);
        if ln <= 0.0 {
            self.excursion = Hits::default();
            return Step::Rest;
        }
        if ln < self.ln_threshold || self.excursion.share() < self.least {
            return Step::Open;
        }
        self.raise(null);
        Step::Onset
    }

    fn raise(&mut self, null: f64) {
        let hits = self.excursion;
        let against = f64::midpoint(hits.share().clamp(null, 0.95), null).max(null * APART);
        self.raised = Some(Raised {
            ln: self.ln_statistic(),
            ln_threshold: self.ln_threshold,
            arl: self.arl,
            hits,
            against: against.min(0.95),
            recovery: 0.0,
        });
    }

    fn recover(&mut self, null: f64, flag: bool) -> Step {
        let Some(raised) = &mut self.raised else { return Step::Rest };
        raised.hits.push(flag);
        let p1 = raised.against.max(null * 1.01);
        let ratio = if flag { null / p1 } else { (1.0 - null) / (1.0 - p1) };
        raised.recovery = (raised.recovery + ratio.ln()).max(0.0);
        if raised.recovery < CLEAR {
            return Step::Open;
        }
        self.reset();
        Step::Clear
    }

    /// Forgets suspicion and signal.
    pub(crate) fn reset(&mut self) {
        self.raised = None;
        if let Some(detector) = &mut self.detector {
            detector.reset();
        }
        self.excursion = Hits::default();
    }

    fn ln_statistic(&self) -> f64 {
        let now = || self.detector.as_ref().map_or(0.0, EDetector::ln_statistic);
        self.raised.map_or_else(now, |raised| raised.ln)
    }

    pub(crate) fn raised(&self) -> bool {
        self.raised.is_some()
    }

    /// Flags since the change began, as far as the statistic tells.
    pub(crate) fn hits(&self) -> Hits {
        self.raised.map_or(self.excursion, |raised| raised.hits)
    }

    pub(crate) fn last_flag(&self) -> UtcMicros {
        self.last_flag
    }

    pub(crate) fn pace(&self) -> Option<Micros> {
        self.pace.mean()
    }

    /// What a signal rests on; `unit` names the observations.
    pub(crate) fn evidence(&self, unit: &str) -> Evidence {
        let (ln_threshold, arl) =
            self.raised.map_or((self.ln_threshold, self.arl), |raised| (raised.ln_threshold, raised.arl));
        Evidence {
            statistic: STATISTIC.into(),
            value: self.ln_statistic().exp(),
            threshold: ln_threshold.exp(),
            n: self.hits().n,
            unit: unit.into(),
            average_run_length: arl,
            notes: self.notes(),
        }
    }

    /// Where the sequence stands, for a watch that adds what it learned.
    pub(crate) fn standing(&self, unit: &'static str) -> Standing {
        let known = self.null.is_some() && self.budget.is_some();
        Standing {
            unit,
            statistic: STATISTIC,
            value: self.ln_statistic().exp(),
            threshold: known.then(|| self.ln_threshold.exp()),
            average_run_length: known.then_some(self.arl),
            baseline: self
                .null
                .map(|null| Figure::new("share of flags under health, upper limit", null, ""))
                .into_iter()
                .collect(),
            notes: self.notes(),
            ..Standing::default()
        }
    }

    /// The assumption that the run length rests on, and its check.
    fn notes(&self) -> Vec<String> {
        vec![self.health.dependence().to_string()]
    }
}

/// At most this share of observations is flagged under health, at 95 % confidence (Clopper–Pearson).
pub(crate) fn upper_limit(hits: Hits) -> f64 {
    clopper_pearson(hits.hits, hits.n, CONFIDENCE)
}

/// The share of flags under health, learned from what did not end in a signal.
///
/// Robust to contamination: flags since the evidence left its rest wait, and are learned only when it comes
/// back to rest; those of a signal never are.
#[derive(Clone, Copy, Debug, Default, Serialize, Deserialize)]
pub(crate) struct Learned {
    health: Hits,
    #[serde(skip)]
    waiting: Hits,
}

impl Learned {
    /// From twice as many observations on, the older half fades.
    const MEMORY: u64 = 10_000;

    /// Takes in a flag and what the sequence made of it.
    pub(crate) fn push(&mut self, flag: bool, step: Step) {
        match step {
            Step::Onset | Step::Clear => self.waiting = Hits::default(),
            Step::Open => self.waiting.push(flag),
            Step::Rest => {
                self.waiting.push(flag);
                self.health.add(std::mem::take(&mut self.waiting));
                if self.health.n >= 2 * Self::MEMORY {
                    self.health.halve();
                }
            }
        }
    }

    pub(crate) fn n(self) -> u64 {
        self.health.n
    }

    pub(crate) fn share(self) -> f64 {
        self.health.share()
    }

    pub(crate) fn upper_limit(self) -> f64 {
        upper_limit(self.health)
    }
}

#[cfg(test)]
mod tests;
