//! How well rules on the count predict a wrong answer, when labels say which answers were wrong.

use std::collections::BTreeMap;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::Lattice;
use crate::stats::proportion::wilson;
use crate::stats::real;

/// Parts of the cross-validation; sessions are never torn apart.
pub(crate) const FOLDS: usize = 5;

/// Labelled answers with one count: by fold, wrong and correct.
pub(crate) type Answers = [[u64; 2]; FOLDS];
const WRONG: usize = 0;
const CORRECT: usize = 1;

/// One rule that people use to throw answers away.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct RuleScore {
    /// The rule.
    pub rule: String,
    /// Labelled answers that it would have thrown away.
    pub flagged: u64,
    /// Share of these that were wrong; `None` when it flags nothing.
    pub precision: Option<f64>,
    /// 95 % Wilson interval of the precision.
    pub precision_ci95: [f64; 2],
    /// Share of all wrong answers that it flags; `None` when no answer was wrong.
    pub recall: Option<f64>,
    /// 95 % Wilson interval of the recall.
    pub recall_ci95: [f64; 2],
    /// Correct answers thrown away.
    pub correct_discarded: u64,
}

/// Scores the rules in use, on `lattice`, and a plain threshold found by cross-validation (figures of
/// the held-out parts). Empty without labels.
pub(crate) fn scorecard(answers: &BTreeMap<u32, Answers>, lattice: Lattice) -> Vec<RuleScore> {
    if answers.is_empty() {
        return Vec::new();
    }
    let total = sum(answers.values().map(all_folds));
    let by = |name: String, flags: &dyn Fn(u32) -> bool| {
        let flagged = sum(answers.iter().filter(|a| flags(*a.0)).map(|a| all_folds(a.1)));
        score(name, flagged, total)
    };
    let mut rules = vec![
        by("reasoning == 516".into(), &|value| value == 516),
        by("reasoning in {516, 1034, 1552}".into(), &|value| matches!(value, 516 | 1_034 | 1_552)),
        by(format!("{lattice}, n <= 6"), &|value| lattice.tier(value).is_some_and(|n| n <= 6)),
        by(format!("{lattice}, any n"), &|value| lattice.holds(value)),
    ];
    rules.extend(cross_validated(answers, total));
    rules
}

fn score(rule: String, flagged: [u64; 2], total: [u64; 2]) -> RuleScore {
    let share = |part: u64, whole: u64| (whole > 0).then(|| real(part) / real(whole));
    let all_flagged = flagged[WRONG] + flagged[CORRECT];
    RuleScore {
        rule,
        flagged: all_flagged,
        precision: share(flagged[WRONG], all_flagged),
        precision_ci95: wilson(flagged[WRONG], all_flagged),
        recall: share(flagged[WRONG], total[WRONG]),
        recall_ci95: wilson(flagged[WRONG], total[WRONG]),
        correct_discarded: flagged[CORRECT],
    }
}

/// "Throw away what thought less than T": T is chosen on four parts and tried on the fifth, five times.
/// `None` when a training set lacks wrong or correct answers.
fn cross_validated(answers: &BTreeMap<u32, Answers>, total: [u64; 2]) -> Option<RuleScore> {
    let mut flagged = [0, 0];
    for held_out in 0..FOLDS {
        let limit = best_threshold(answers, |fold| fold != held_out)?;
        let below = sum(answers.range(..limit).map(|a| a.1[held_out]));
        flagged[WRONG] += below[WRONG];
        flagged[CORRECT] += below[CORRECT];
    }
    let limit = best_threshold(answers, |_| true)?;
    Some(score(format!("reasoning < {limit} (cross-validated)"), flagged, total))
}

/// The threshold with the highest share of wrong answers below it minus share of correct ones (Youden,
/// Cancer 3 (1950) 32–35), half-way between the two neighbouring counts.
fn best_threshold(answers: &BTreeMap<u32, Answers>, uses: impl Fn(usize) -> bool) -> Option<u32> {
    let used = |folds: &Answers| sum((0..FOLDS).filter(|&fold| uses(fold)).map(|fold| folds[fold]));
    let total = sum(answers.values().map(used));
    if total.contains(&0) {
        return None;
    }
    let seen: Vec<(u32, [u64; 2])> =
        answers.iter().map(|(&value, folds)| (value, used(folds))).filter(|v| v.1 != [0, 0]).collect();
    let mut below = [0, 0];
    let (mut best, mut limit) = (0.0, 0);
    for (i, (value, tally)) in seen.iter().enumerate() {
        below = sum([below, *tally].into_iter());
        let youden = real(below[WRONG]) / real(total[WRONG]) - real(below[CORRECT]) / real(total[CORRECT]);
        if youden > best {
            best = youden;
            limit = seen.get(i + 1).map_or(value + 1, |next| value.midpoint(next.0).max(value + 1));
        }
    }
    Some(limit)
}

fn all_folds(folds: &Answers) -> [u64; 2] {
    sum(folds.iter().copied())
}

fn sum(tallies: impl Iterator<Item = [u64; 2]>) -> [u64; 2] {
    tallies.fold([0, 0], |a, b| [a[0] + b[0], a[1] + b[1]])
}
