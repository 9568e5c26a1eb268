//! One fan-out decided: the rule's choice with the tally, the confidence and the clusters around it.

use serde::Serialize;

use super::Sample;
use super::ballot::{Ballots, count};
use super::geometry::Geometry;
use super::rule::Rule;

/// What "enough" means.
#[derive(Clone, Copy, Debug)]
pub struct Options {
    /// Below this share of the votes cast the outcome is flagged "no quorum". 0.5 is half the votes.
    pub min_share: f64,
    /// Fewer votes than this are "no quorum" too.
    pub min_votes: usize,
}

impl Default for Options {
    fn default() -> Self {
        Self { min_share: 0.5, min_votes: 1 }
    }
}

/// How a tie was broken.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Tie {
    /// The answers that stood equal.
    pub answers: Vec<String>,
    /// What set the winner apart: `medoid`, `mean-cosine` or `first`.
    pub broken_by: &'static str,
}

/// One line of the tally.
#[derive(Clone, Debug, Serialize)]
pub struct Answer {
    /// As the first sample wrote it.
    pub answer: String,
    /// Votes.
    pub count: usize,
    /// Share of the votes cast, 0..=1.
    pub share: f64,
    /// The rule's score; equals `count` for plurality.
    pub weight: f64,
    /// Mean cosine between its samples' traces; `None` for a lone one or without vectors.
    pub coherence: Option<f64>,
    /// Output tokens of its samples; `None` unless every one of them was reported.
    pub tokens: Option<u64>,
    /// US dollars for its samples; `None` unless every one of them is known.
    pub cost_usd: Option<f64>,
    /// Which samples gave it.
    pub samples: Vec<usize>,
}

/// How the traces lie.
#[derive(Clone, Debug, Serialize)]
pub struct Clusters {
    /// Cluster of each trace; `None` = in no cluster.
    pub labels: Vec<Option<usize>>,
    /// How many clusters.
    pub clusters: usize,
    /// Traces in no cluster. A flag to look at, no reason to drop a vote: dropping costs 1 point.
    pub outliers: Vec<usize>,
    /// Cosine distance within which two traces are neighbours; `None` when HDBSCAN clustered.
    pub eps: Option<f64>,
    /// Mean cosine over all pairs; `None` for fewer than two traces.
    pub coherence: Option<f64>,
}

/// What one fan-out came to.
#[derive(Clone, Debug, Serialize)]
pub struct Outcome {
    /// The rule that chose.
    pub rule: &'static str,
    /// The answer; `None` when every sample abstained and no vector helps.
    pub winner: Option<String>,
    /// The sample to show for it.
    pub representative: Option<usize>,
    /// Share of the winner among the votes cast: the confidence (AUROC 0.80–0.95 on nine data sets).
    pub share: f64,
    /// Votes between the winner and the best other answer, as a share of the votes cast.
    pub margin: f64,
    /// Shannon entropy of the votes, bits.
    pub entropy_bits: f64,
    /// Samples without an answer.
    pub abstained: usize,
    /// Too few votes, or too small a share.
    pub no_quorum: bool,
    /// Set when answers stood equal.
    pub tie: Option<Tie>,
    /// The tally, most votes first.
    pub answers: Vec<Answer>,
    /// Set when the traces were embedded.
    pub clusters: Option<Clusters>,
}

/// Counts one fan-out by `rule`.
pub fn decide(rule: &dyn Rule, ballots: &Ballots<'_>, options: Options) -> Outcome {
    let choice = rule.choose(ballots);
    let cast = ballots.cast();
    let group = choice.group;
    let counts = ballots.counts();
    let won = group.map_or(0.0, |g| counts[g]);
    let best_other =
        counts.iter().enumerate().filter(|(g, _)| Some(*g) != group).map(|(_, c)| *c).fold(0.0, f64::max);
    let of_cast = |votes: f64| if cast == 0 { 0.0 } else { votes / count(cast) };
    let share = of_cast(won);
    Outcome {
        rule: rule.name(),
        winner: group.map(|g| ballots.groups[g].answer.clone()),
        representative: choice.representative,
        share,
        margin: of_cast(won - best_other),
        entropy_bits: entropy_bits(&counts),
        abstained: ballots.samples.len() - cast,
        no_quorum: cast < options.min_votes || share < options.min_share,
        tie: choice.tie,
        answers: tally(ballots, &choice.weights),
        clusters: ballots.geometry.map(clusters),
    }
}

fn tally(ballots: &Ballots<'_>, weights: &[f64]) -> Vec<Answer> {
    let cast = ballots.cast();
    let mut answers: Vec<Answer> = ballots
        .groups
        .iter()
        .zip(weights)
        .map(|(group, &weight)| {
            let members: Vec<&Sample> = group.samples.iter().map(|&i| &ballots.samples[i]).collect();
            Answer {
                answer: group.answer.clone(),
                count: members.len(),
                share: count(members.len()) / count(cast),
                weight,
                coherence: ballots.geometry.and_then(|g| g.coherence(&group.samples)),
                tokens: members.iter().map(|s| s.tokens).sum(),
                cost_usd: members.iter().map(|s| s.cost_usd).sum(),
                samples: group.samples.clone(),
            }
        })
        .collect();
    // Stable: equal counts stay in the order of first appearance.
    answers.sort_by_key(|a| std::cmp::Reverse(a.count));
    answers
}

fn clusters(geometry: &Geometry) -> Clusters {
    let all: Vec<usize> = (0..geometry.len()).collect();
    Clusters {
        labels: geometry.labels().to_vec(),
        clusters: geometry.labels().iter().flatten().max().map_or(0, |top| top + 1),
        outliers: geometry.outliers(),
        eps: geometry.eps(),
        coherence: geometry.coherence(&all),
    }
}

fn entropy_bits(counts: &[f64]) -> f64 {
    let total: f64 = counts.iter().sum();
    counts.iter().map(|c| c / total).map(|p| -p * p.log2()).sum::<f64>().max(0.0)
}
