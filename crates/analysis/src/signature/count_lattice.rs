//! `count-lattice`: reasoning-token counts pile up at step·n + offset.
//!
//! **What it looks like.** Far too many answers stop at exactly 516, 1034, 1552 … reasoning tokens
//! (518n−2). Of 200 answers to one puzzle 194 lay on that lattice, and the 129 that stopped at 516 were
//! all wrong (`data/counts/candy-study`, openai/codex issue 30364).
//!
//! **Known causes.** Reasoning cut at the border of an internal budget (`boundary-stops`); a provider
//! that reports in multiples of a unit, as o1-mini and o4-mini do with 64 (`reporting-quantised`); round
//! numbers made by people or tools (`heaping`); a token limit (`capped`).
//!
//! **Statistic.** A robust lattice scan: for each of 604,770 pairs of step (40 to 1,100) and offset, the
//! Bernoulli log-likelihood ratio of the counts on it against a smooth background (the same counts,
//! smoothed in ln(count)), without the one value that stands out most. A lattice needs a ratio of at
//! least ln(pairs / 0.01) = 17.9, at least 2 values that stand out by themselves (BH q ≤ 0.05), 3
//! times the expected counts, and values that share the lattice by more than chance (1 %, `alignment`).
//! Of a family of harmonics the largest step that keeps the hits is named.
//!
//! **Smallest n.** 30 positive counts. `none` and `too-few` print the mass that would have been seen.
//!
//! **False positives.** Scopes that pool models (two reporting units look like a lattice): nobody is
//! accused there, the verdict is `lattice-unclassified`. Any two popular values share some step: two are
//! a lattice only where it was known before (518n−2), otherwise the verdict is `none`, or `capped` with a
//! limit as one of them, and a note names the step. Token limits at three or more evenly spaced values
//! do look like a lattice.
//!
//! **Golden cases.** `data/golden/lattice_scan.json`, the two batches and eleven models in `data/counts`.

mod alignment;
mod background;
mod detectable;
mod evidence;
mod scan;
mod scorecard;
#[cfg(test)]
mod tests;
mod verdict;

use std::collections::BTreeMap;
use std::fmt;

use sseismo_trace::{Finding, Scope, SignatureId, Stream, Usage};

pub use detectable::Detectable;
pub use evidence::{Evidence, Tier, TopValue};
pub use scorecard::RuleScore;

use super::{Options, Pass, Score, Signature};
use crate::stats::real;
use background::Background;
use scan::Scan;
use scorecard::Answers;

/// The lattice that the field reports for gpt-5.x: 516, 1034, 1552 … (openai/codex issue 30364).
pub const FIELD: Lattice = Lattice { step: 518, offset: 516 };

/// Above this share of non-integer counts the source holds estimates.
const MAX_FRACTIONAL: f64 = 0.05;

/// Larger "counts" are no token counts of one answer (no context window is that large) and would only
/// cost memory; they are left out and reported.
const LARGEST_COUNT: f64 = 1_048_576.0;

/// The values `offset`, `offset + step`, `offset + 2·step` …
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Lattice {
    /// Distance between two values, tokens.
    pub step: u32,
    /// The smallest positive value, tokens.
    pub offset: u32,
}

impl Lattice {
    /// The lattice of `step` through `value`.
    pub(crate) fn new(step: u32, value: u32) -> Self {
        let residue = value % step;
        Self { step, offset: if residue == 0 { step } else { residue } }
    }

    pub(crate) fn holds(self, value: u32) -> bool {
        value > 0 && value % self.step == self.offset % self.step
    }

    /// Number of `value` among the lattice's values, from 1.
    pub(crate) fn tier(self, value: u32) -> Option<u32> {
        self.holds(value).then(|| (value - self.offset) / self.step + 1)
    }

    fn values_up_to(self, largest: u32) -> impl Iterator<Item = u32> {
        (self.offset..=largest).step_by(self.step as usize)
    }
}

impl fmt::Display for Lattice {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.step - self.offset {
            0 => write!(f, "{}n", self.step),
            short => write!(f, "{}n-{short}", self.step),
        }
    }
}

/// How often one value was counted.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Count {
    pub(crate) value: u32,
    pub(crate) count: u64,
}

/// The lattice in a histogram of positive counts, if there is one.
pub fn find(histogram: &BTreeMap<u32, u64>) -> Option<Lattice> {
    let counts = ascending(histogram);
    let background = Background::of(&counts);
    let scan = Scan::new(&counts, &background);
    let fit = scan.best()?;
    (background.n() >= verdict::MIN_COUNTS && scan.stands(&fit)).then_some(fit.lattice)
}

/// A reported count rounded to whole tokens; `None` for what cannot be the count of one answer.
pub fn whole_count(reasoning: f64) -> Option<u32> {
    #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "0 to 2^20")]
    (0.0..=LARGEST_COUNT).contains(&reasoning).then(|| reasoning.round() as u32)
}

fn ascending(histogram: &BTreeMap<u32, u64>) -> Vec<Count> {
    histogram.iter().map(|(&value, &count)| Count { value, count }).collect()
}

/// The signature.
#[derive(Debug)]
pub struct CountLattice;

impl Signature for CountLattice {
    fn id(&self) -> SignatureId {
        SignatureId::CountLattice
    }

    fn open(&self, _options: &Options) -> Box<dyn Score> {
        Box::new(Tally::default())
    }

    fn evidence_schema(&self) -> schemars::Schema {
        schemars::schema_for!(Evidence)
    }
}

/// What is kept of one scope: histograms, no list of streams.
#[derive(Debug, Default)]
struct Tally {
    /// By model, because an estimate of one model must not be mixed with reports of another.
    models: BTreeMap<Option<String>, Counts>,
    /// Streams that reported any token count of their own.
    with_usage: u64,
    /// Of these, streams without a count of reasoning tokens.
    unreported: u64,
    labelled: u64,
    /// Labels that are neither true nor false.
    unclear: u64,
    folded: u64,
    unusable: u64,
}

/// Counts of one model, or of several that are judged together.
#[derive(Clone, Debug, Default)]
struct Counts {
    /// Positive counts.
    histogram: BTreeMap<u32, u64>,
    /// Labelled answers by count, zero counts included.
    answers: BTreeMap<u32, Answers>,
    positive: u64,
    /// Of these, no whole numbers.
    fractional: u64,
}

impl Counts {
    fn add(&mut self, other: &Self) {
        for (&value, count) in &other.histogram {
            *self.histogram.entry(value).or_default() += count;
        }
        for (&value, folds) in &other.answers {
            let sum = self.answers.entry(value).or_default();
            for (slot, more) in sum.iter_mut().flatten().zip(folds.iter().flatten()) {
                *slot += more;
            }
        }
        self.positive += other.positive;
        self.fractional += other.fractional;
    }

    /// Whether the source holds estimates: no provider reports fractions of tokens.
    fn estimated(&self) -> bool {
        real(self.fractional) > MAX_FRACTIONAL * real(self.positive)
    }
}

impl Score for Tally {
    fn push(&mut self, pass: Pass, stream: &Stream<'_>) {
        let summary = stream.summary;
        if pass != Pass::Baseline || summary.usage == Usage::default() {
            return;
        }
        if summary.folded {
            self.folded += 1;
            return;
        }
        self.with_usage += 1;
        let Some(reasoning) = summary.usage.reasoning else {
            self.unreported += 1;
            return;
        };
        let Some(value) = whole_count(reasoning) else {
            self.unusable += 1;
            return;
        };
        let counts = self.models.entry(summary.model().map(str::to_owned)).or_default();
        if value > 0 {
            *counts.histogram.entry(value).or_default() += 1;
            counts.positive += 1;
            counts.fractional += u64::from(reasoning.fract() != 0.0);
        }
        let label = summary.labels.get("correct").map(|label| label.parse::<bool>());
        self.unclear += u64::from(matches!(label, Some(Err(_))));
        if let Some(Ok(correct)) = label {
            let key = summary.session_key.unwrap_or(self.labelled);
            let fold = usize::try_from(key % scorecard::FOLDS as u64).unwrap_or(0);
            counts.answers.entry(value).or_default()[fold][usize::from(correct)] += 1;
            self.labelled += 1;
        }
    }

    fn finding(&self, scope: &Scope) -> Finding {
        verdict::finding(self, scope)
    }
}
