//! What each rule and each early stop is worth on labelled fan-outs.

use sseismo_analysis::vote::Ballots;
use sseismo_analysis::vote::accuracy::{self, Column, single};
use sseismo_analysis::vote::rule::RULES;
use sseismo_analysis::vote::stop::Stop;

pub(super) use accuracy::{Row as RuleRow, StopRow};

use super::recorded::FanOut;

/// Credits of `single` and of every rule, one fan-out after the other.
#[derive(Debug)]
pub(super) struct Worth(Vec<Column>);

impl Default for Worth {
    fn default() -> Self {
        let names = std::iter::once("single").chain(RULES.iter().map(|rule| rule.name()));
        Self(names.map(|rule| Column { rule, credits: Vec::new() }).collect())
    }
}

impl Worth {
    /// Scores one fan-out by every rule: right when the answer that the rule chooses is right. A rule that takes
    /// any member of a group gets the mean over them, so that the order of recording gives no advantage.
    pub(super) fn add(&mut self, ballots: &Ballots<'_>, correct: &[bool]) {
        self.0[0].credits.push(single(correct));
        for (column, rule) in self.0[1..].iter_mut().zip(RULES) {
            let choice = rule.choose(ballots);
            // Where labels differ inside one answer, its share of right ones.
            let shown: Vec<bool> = match (choice.group, choice.representative) {
                _ if !choice.arbitrary.is_empty() => choice.arbitrary.iter().map(|&i| correct[i]).collect(),
                (Some(group), _) => ballots.groups[group].samples.iter().map(|&i| correct[i]).collect(),
                (None, Some(sample)) => vec![correct[sample]],
                (None, None) => Vec::new(),
            };
            column.credits.push(single(&shown));
        }
    }

    /// The table of rules, best first; differences are against plurality, the first rule.
    pub(super) fn rules(&self, seed: u64) -> Vec<RuleRow> {
        let mut rows = accuracy::table(&self.0, 1, seed);
        rows.sort_by(|a, b| b.accuracy.total_cmp(&a.accuracy));
        rows
    }
}

/// The table of early stops, over the labelled fan-outs.
pub(super) fn early_stop(fan_outs: &[FanOut], seed: u64) -> Vec<StopRow> {
    let labelled: Vec<(Ballots<'_>, &[bool])> = fan_outs
        .iter()
        .filter_map(|f| Some((Ballots::new(&f.samples, None, None), f.correct.as_deref()?)))
        .collect();
    let pairs: Vec<(&Ballots<'_>, &[bool])> =
        labelled.iter().map(|(ballots, correct)| (ballots, *correct)).collect();
    let stops = [
        ("full", None),
        ("lock-in", Some(Stop::LockIn)),
        ("beta-0.95", Some(Stop::Beta(0.95))),
        ("beta-0.8", Some(Stop::Beta(0.8))),
    ];
    accuracy::early_stop(&pairs, &stops, seed)
}
