//! The figures behind a verdict.

use std::collections::BTreeMap;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::background::Background;
use super::scan::{Fit, threshold};
use super::scorecard::{Answers, scorecard};
use super::{Count, Detectable, FIELD, Lattice, RuleScore};
use crate::stats::proportion::wilson;
use crate::stats::real;

/// How many of the most frequent values are listed.
const TOP_VALUES: usize = 10;

/// Evidence of `count-lattice`. Without a lattice, step and offset are those of the strongest candidate.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Evidence {
    /// Distance between two values of the lattice, tokens; absent when no pair was hit often enough.
    pub step: Option<u32>,
    /// Smallest positive value on the lattice, tokens.
    pub offset: Option<u32>,
    /// Counts on the lattice.
    pub hits: u64,
    /// Counts that the smooth background puts there.
    pub expected: f64,
    /// `hits` over all positive counts.
    pub share: f64,
    /// 95 % Wilson interval of `share`.
    pub share_ci95: [f64; 2],
    /// Log-likelihood ratio of the lattice without its most outstanding value, natural logarithm.
    pub llr: f64,
    /// What `llr` had to reach: ln(hypotheses / 0.01).
    pub threshold: f64,
    /// The values of the lattice that were hit; empty when no lattice was found.
    pub tiers: Vec<Tier>,
    /// The most frequent values, whether on the lattice or not.
    pub top_values: Vec<TopValue>,
    /// The smallest lattice that these counts would have shown; only for `none` and `too-few`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub detectable: Option<Detectable>,
    /// How well rules on the count predict a wrong answer; empty without labels.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub scorecard: Vec<RuleScore>,
}

/// One value of the lattice.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Tier {
    /// Its number, from 1.
    pub n: u32,
    /// The value, tokens.
    pub value: u32,
    /// Counts with this value.
    pub hits: u64,
    /// Of the labelled ones, correct answers.
    pub correct: u64,
    /// Labelled answers with this value.
    pub labelled: u64,
}

/// One frequent value.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct TopValue {
    /// The value, tokens.
    pub value: u32,
    /// Counts with this value.
    pub count: u64,
    /// Counts that the smooth background puts there.
    pub expected: f64,
}

/// Puts the figures together; `found` is the lattice that the verdict names.
pub(super) fn evidence(
    answers: &BTreeMap<u32, Answers>,
    counts: &[Count],
    background: &Background,
    fit: Option<&Fit>,
    found: bool,
) -> Evidence {
    let hits = fit.map_or(0, |fit| fit.hits);
    let n = background.n();
    let lattice = fit.filter(|_| found).map(|fit| fit.lattice);
    Evidence {
        step: fit.map(|fit| fit.lattice.step),
        offset: fit.map(|fit| fit.lattice.offset),
        hits,
        expected: fit.map_or(0.0, |fit| fit.expected),
        share: if n == 0 { 0.0 } else { real(hits) / real(n) },
        share_ci95: wilson(hits, n),
        llr: fit.map_or(0.0, |fit| fit.llr),
        threshold: threshold(),
        tiers: lattice.map_or_else(Vec::new, |lattice| tiers(answers, counts, lattice)),
        top_values: top_values(counts, background),
        detectable: None,
        scorecard: scorecard(answers, lattice.unwrap_or(FIELD)),
    }
}

fn tiers(answers: &BTreeMap<u32, Answers>, counts: &[Count], lattice: Lattice) -> Vec<Tier> {
    counts
        .iter()
        .filter_map(|&Count { value, count }| {
            let n = lattice.tier(value)?;
            let folds = answers.get(&value).copied().unwrap_or_default();
            let correct = folds.iter().map(|fold| fold[1]).sum();
            let labelled = folds.iter().flatten().sum();
            Some(Tier { n, value, hits: count, correct, labelled })
        })
        .collect()
}

fn top_values(counts: &[Count], background: &Background) -> Vec<TopValue> {
    let mut by_count = counts.to_vec();
    by_count.sort_by_key(|c| (std::cmp::Reverse(c.count), c.value));
    by_count
        .iter()
        .take(TOP_VALUES)
        .map(|&Count { value, count }| TopValue { value, count, expected: background.at(value) })
        .collect()
}
