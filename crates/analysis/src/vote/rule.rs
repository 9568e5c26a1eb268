//! Vote rules: one file each, one line in [`RULES`] to register it.
//!
//! Each file says what the rule does and what it was measured to be worth against plurality, pooled over
//! 2,100 real fan-outs.

mod coherence_weighted;
mod cost_weighted;
mod largest_cluster;
mod medoid;
mod plurality;
mod write_up;

use std::fmt;

use super::ballot::Ballots;
use super::decide::Tie;
use super::geometry::{Geometry, rounded};

/// Every rule; the first is the default.
pub const RULES: &[&dyn Rule] = &[
    &plurality::Plurality,
    &largest_cluster::LargestCluster,
    &coherence_weighted::CoherenceWeighted,
    &cost_weighted::CostWeighted,
    &medoid::Medoid,
    &write_up::WriteUp,
];

/// A way to choose one answer out of many.
pub trait Rule: Sync + fmt::Debug {
    /// Its name.
    fn name(&self) -> &'static str;
    /// One line on what it does and what that is worth.
    fn about(&self) -> &'static str;
    /// Chooses.
    fn choose(&self, ballots: &Ballots<'_>) -> Choice;
}

/// What a rule chose.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Choice {
    /// The winning answer's place in [`Ballots::groups`].
    pub group: Option<usize>,
    /// The sample to show for it.
    pub representative: Option<usize>,
    /// How a tie was broken.
    pub tie: Option<Tie>,
    /// Score of each answer.
    pub weights: Vec<f64>,
    /// Samples among which the rule has no reason to prefer one, so that its choice hangs on the order in
    /// which they were recorded; empty when it has a reason. Its accuracy is the mean over them.
    pub arbitrary: Vec<usize>,
}

/// A rule by its name.
pub fn named(name: &str) -> Option<&'static dyn Rule> {
    RULES.iter().copied().find(|rule| rule.name() == name)
}

/// The best-scored answer. Scores that are equal to 1e-9 tie: by group means of a semantic embedder, else
/// by the medoid, else the first that appeared.
fn best(ballots: &Ballots<'_>, weights: Vec<f64>) -> Choice {
    let Some(top) = weights.iter().map(|w| rounded(*w)).max_by(f64::total_cmp) else {
        return Choice::default();
    };
    let tied: Vec<usize> =
        (0..weights.len()).filter(|&g| rounded(weights[g]).total_cmp(&top).is_eq()).collect();
    let (group, broken_by) = match ballots.geometry {
        _ if tied.len() == 1 => (tied[0], ""),
        Some(geometry) if geometry.is_semantic() => (by_mean_cosine(ballots, geometry, &tied), "mean-cosine"),
        Some(geometry) => (by_medoid(ballots, geometry, &tied), "medoid"),
        None => (tied[0], "first"),
    };
    let tie = (tied.len() > 1).then(|| Tie {
        answers: tied.iter().map(|&g| ballots.groups[g].answer.clone()).collect(),
        broken_by,
    });
    Choice {
        group: Some(group),
        representative: representative(ballots, group),
        tie,
        weights,
        arbitrary: Vec::new(),
    }
}

/// The sample to show for an answer: the one closest to all, without vectors the first.
fn representative(ballots: &Ballots<'_>, group: usize) -> Option<usize> {
    let members = &ballots.groups[group].samples;
    match ballots.geometry {
        Some(geometry) => geometry.medoid(members.iter().copied()),
        None => members.first().copied(),
    }
}

fn by_medoid(ballots: &Ballots<'_>, geometry: &Geometry, tied: &[usize]) -> usize {
    // By answer, then by sample: of equally close samples the first answer's wins.
    let members = tied.iter().flat_map(|&g| ballots.groups[g].samples.iter().copied());
    geometry.medoid(members).and_then(|i| ballots.group_of[i]).unwrap_or(tied[0])
}

fn by_mean_cosine(ballots: &Ballots<'_>, geometry: &Geometry, tied: &[usize]) -> usize {
    let mean = |g: usize| {
        let members = &ballots.groups[g].samples;
        let sum: f64 = members.iter().map(|&i| geometry.mean_cosine(i).unwrap_or(0.0)).sum();
        rounded(sum / super::ballot::count(members.len()))
    };
    // `rev` because `max_by` takes the last of equals.
    tied.iter().copied().rev().max_by(|&a, &b| mean(a).total_cmp(&mean(b))).unwrap_or(tied[0])
}

/// Sum of `weight` over the samples of each answer.
fn summed(ballots: &Ballots<'_>, weight: impl Fn(usize) -> f64) -> Vec<f64> {
    ballots.groups.iter().map(|group| group.samples.iter().map(|&i| weight(i)).sum()).collect()
}

#[cfg(test)]
mod tests;
