//! Flags, one after the other, against the share that health shows.
//!
//! In: a flag per observation (a client turn, a pile of calls, a checked answer) and the share p0 of flags
//! under health, an upper confidence limit. Out: whether the share has risen, with a stated average run
//! length (ARL) between two false alarms.
//!
//! **Statistic**: a mixture e-CUSUM. For each alternative p1 of a grid M = max(M, 1) · L, with L the
//! likelihood ratio of the flag; the weighted mean of the M alarms at its threshold. With the threshold equal to the
//! ARL the claim holds without any computation (an e-detector; Shin, Ramdas, Rinaldo 2024,
//! arxiv.org/abs/2203.03532).
//!
//! **Hysteresis**: a raised sequence is cleared by its mirror image, a CUSUM for p0 against half the raised
//! share that reaches ln 1000.
//!
//! **Assumption**: flags are independent of each other under health. [`Sequence::dependence`] says how far
//! they were: flags that come in runs alarm more often than stated.

use serde::{Deserialize, Serialize};
use sseismo_analysis::stats::real;
use sseismo_trace::{Evidence, Micros, UtcMicros};
use statrs::distribution::{Beta, ContinuousCDF as _};

use crate::budget::Budget;
use crate::view::Figure;
use crate::watch::Standing;

/// Alternatives and their weights: from a weak change to a strong one; the strongest needs few flags anyway.
const GRID: [(f64, f64); 5] = [(0.05, 0.3), (0.12, 0.25), (0.3, 0.2), (0.6, 0.15), (0.9, 0.1)];
/// An alternative must be this many times the null share: closer ones only cost weight.
const APART: f64 = 1.5;
/// ln 1000: a raised sequence is cleared when health is a thousand times likelier.
const CLEAR: f64 = 6.907_755_278_982_137;
/// Null shares are kept within these: below, a single flag would decide; above, there is no health.
const NULLS: [f64; 2] = [1e-4, 0.5];
/// A null that moved by less than this factor changes nothing.
const MOVED: f64 = 1.1;

/// Flags with a successor that the check of independence needs.
const CHECKED: u64 = 20;
/// What is computed.
const STATISTIC: &str = "mixture e-CUSUM";
/// E-values stay below this: evidence for a change too small to matter must not grow without end.
const MOST: f64 = 1e15;

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

/// How far flags come in runs: pairs of neighbours.
#[derive(Clone, Copy, Debug, Default)]
struct Neighbours {
    last: Option<bool>,
    /// Observations after a flag, and flags among them.
    after_flag: Hits,
    all: Hits,
}

impl Neighbours {
    fn push(&mut self, flag: bool) {
        if self.last == Some(true) {
            self.after_flag.push(flag);
        }
        self.all.push(flag);
        self.last = Some(flag);
    }
}

/// Flags of one scope against the share of health.
#[derive(Debug)]
pub(crate) struct Sequence {
    /// Smallest share of flags since the change began that is worth a signal.
    least: f64,
    null: Option<f64>,
    budget: Option<Budget>,
    arl: f64,
    threshold: f64,
    /// One e-value per alternative.
    evidence: [f64; GRID.len()],
    /// Since the evidence was last at rest.
    excursion: Hits,
    raised: Option<Raised>,
    pace: Pace,
    neighbours: Neighbours,
    last_flag: UtcMicros,
}

/// What is remembered of an onset.
#[derive(Clone, Copy, Debug)]
struct Raised {
    /// Statistic when it was raised, and what it had to reach.
    value: f64,
    threshold: f64,
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
            null: None,
            budget: None,
            arl: f64::INFINITY,
            threshold: f64::INFINITY,
            evidence: [1.0; GRID.len()],
            excursion: Hits::default(),
            raised: None,
            pace: Pace::default(),
            neighbours: Neighbours::default(),
            last_flag: UtcMicros::default(),
        }
    }

    /// Sets the share of flags under health: an upper confidence limit.
    pub(crate) fn set_null(&mut self, share: f64) {
        let share = share.clamp(NULLS[0], NULLS[1]);
        if self.null.is_none_or(|old| share > old * MOVED || share * MOVED < old) {
            self.null = Some(share);
            self.rate();
        }
    }

    pub(crate) fn set_budget(&mut self, budget: Budget) {
        self.budget = Some(budget);
        self.rate();
    }

    /// Sets the run length and the threshold anew.
    fn rate(&mut self) {
        let (Some(budget), Some(_)) = (self.budget, self.null) else { return };
        let pace = self.pace.mean().unwrap_or(Micros(1_000_000));
        self.arl = budget.run_length(pace);
        self.threshold = self.arl;
    }

    /// Takes in one observation.
    pub(crate) fn push(&mut self, at: UtcMicros, flag: bool) -> Step {
        self.pace.push(at);
        if flag {
            self.last_flag = at;
        }
        let Some(null) = self.null else { return Step::Rest };
        if self.raised.is_some() {
            return self.recover(null, flag);
        }
        self.neighbours.push(flag);
        self.excursion.push(flag);
        for (evidence, (p1, _)) in self.evidence.iter_mut().zip(GRID) {
            let p1 = alternative(p1, null);
            let ratio = if flag { p1 / null } else { (1.0 - p1) / (1.0 - null) };
            *evidence = (evidence.max(1.0) * ratio).min(MOST);
        }
        if self.evidence.iter().all(|evidence| *evidence <= 1.0) {
            self.excursion = Hits::default();
            return Step::Rest;
        }
        if self.value() < self.threshold || self.excursion.share() < self.least {
            return Step::Open;
        }
        self.raise(null);
        Step::Onset
    }

    fn raise(&mut self, null: f64) {
        let hits = self.excursion;
        let against = f64::midpoint(hits.share().clamp(null, 0.95), null).max(null * APART);
        self.raised = Some(Raised {
            value: self.value(),
            threshold: self.threshold,
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
        self.evidence = [1.0; GRID.len()];
        self.excursion = Hits::default();
    }

    /// The weighted mean of the e-values.
    pub(crate) fn value(&self) -> f64 {
        let sum: f64 = self.evidence.iter().zip(GRID).map(|(evidence, (_, weight))| evidence * weight).sum();
        self.raised.map_or(sum, |raised| raised.value)
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
        let (threshold, arl) =
            self.raised.map_or((self.threshold, self.arl), |raised| (raised.threshold, raised.arl));
        Evidence {
            statistic: STATISTIC.into(),
            value: self.value(),
            threshold,
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
            value: self.value(),
            threshold: known.then_some(self.threshold),
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
        let Neighbours { after_flag, all, .. } = self.neighbours;
        let check = if after_flag.n < CHECKED {
            format!("not checked yet ({} flags, {CHECKED} needed)", after_flag.n)
        } else {
            format!(
                "{:.1} % flags right after a flag, {:.1} % overall",
                100.0 * after_flag.share(),
                100.0 * all.share()
            )
        };
        vec![format!("the run length assumes that flags are independent under health: {check}")]
    }
}

/// An alternative that is far enough from the null.
fn alternative(p1: f64, null: f64) -> f64 {
    p1.max((null * APART).min(f64::midpoint(null, 1.0)))
}

/// At most this share of observations is flagged under health, at 95 % confidence (Clopper–Pearson).
pub(crate) fn upper_limit(hits: Hits) -> f64 {
    if hits.hits >= hits.n {
        return 1.0;
    }
    Beta::new(real(hits.hits) + 1.0, real(hits.n - hits.hits)).map_or(1.0, |beta| beta.inverse_cdf(0.95))
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
