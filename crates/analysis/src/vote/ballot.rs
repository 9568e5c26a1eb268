//! Samples sorted by normalised answer: what every rule counts.

use super::Sample;
use super::answer;
use super::geometry::Geometry;

/// All samples with the same normalised answer.
#[derive(Clone, Debug)]
pub struct Group {
    /// The answer as the first of them wrote it.
    pub answer: String,
    /// Who gave it, in index order.
    pub samples: Vec<usize>,
}

/// One fan-out, ready to be counted.
#[derive(Clone, Debug)]
pub struct Ballots<'a> {
    /// The samples.
    pub samples: &'a [Sample],
    /// Distinct answers, by first appearance.
    pub groups: Vec<Group>,
    /// For each sample its place in `groups`; `None` abstains.
    pub group_of: Vec<Option<usize>>,
    /// The traces as vectors; `None` when nothing was embedded.
    pub geometry: Option<&'a Geometry>,
    /// The last characters of each trace as vectors, for free text.
    pub tails: Option<&'a Geometry>,
}

impl<'a> Ballots<'a> {
    /// Normalises and groups the answers.
    pub fn new(samples: &'a [Sample], geometry: Option<&'a Geometry>, tails: Option<&'a Geometry>) -> Self {
        let answers: Vec<Option<&str>> = samples.iter().map(|s| s.answer.as_deref()).collect();
        let mut keys: Vec<String> = Vec::new();
        let mut groups: Vec<Group> = Vec::new();
        let mut group_of = Vec::with_capacity(samples.len());
        for (i, key) in answer::keys(&answers).into_iter().enumerate() {
            let Some(key) = key else {
                group_of.push(None);
                continue;
            };
            let at = keys.iter().position(|k| *k == key).unwrap_or_else(|| {
                keys.push(key);
                let answer = answers[i].unwrap_or_default().trim().to_owned();
                groups.push(Group { answer, samples: Vec::new() });
                groups.len() - 1
            });
            groups[at].samples.push(i);
            group_of.push(Some(at));
        }
        Self { samples, groups, group_of, geometry, tails }
    }

    /// Votes cast; abstentions do not count.
    pub fn cast(&self) -> usize {
        self.groups.iter().map(|g| g.samples.len()).sum()
    }

    /// Number of samples of each answer.
    pub fn counts(&self) -> Vec<f64> {
        self.groups.iter().map(|g| count(g.samples.len())).collect()
    }

    /// What a sample cost: reported tokens where every sample has them, otherwise characters. The two
    /// are never mixed in one fan-out.
    pub fn sizes(&self) -> Vec<f64> {
        let tokens: Option<Vec<f64>> = self.samples.iter().map(|s| s.tokens.map(float)).collect();
        tokens.unwrap_or_else(|| self.samples.iter().map(|s| count(s.trace.chars().count())).collect())
    }
}

/// A count as a number to calculate with.
#[expect(clippy::cast_precision_loss, reason = "counts of samples and characters stay far below 2^52")]
pub(crate) fn count(n: usize) -> f64 {
    n as f64
}

#[expect(clippy::cast_precision_loss, reason = "token counts stay far below 2^52")]
fn float(n: u64) -> f64 {
    n as f64
}
