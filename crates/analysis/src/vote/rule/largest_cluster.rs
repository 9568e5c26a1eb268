//! The largest DBSCAN cluster of traces, and the majority inside it: the published rule with its two
//! faults repaired. Noise never wins, and when all is noise or one cluster everybody votes.
//!
//! Still worth −0.7 to −4.3 points against plurality, by eps: whoever sits outside the cluster loses a
//! vote that was often right. Equal clusters: the more coherent one, then the one that came first.

use super::{Choice, Rule, best};
use crate::vote::Ballots;
use crate::vote::ballot::count;
use crate::vote::geometry::{Geometry, rounded};

#[derive(Debug)]
pub(super) struct LargestCluster;

impl Rule for LargestCluster {
    fn name(&self) -> &'static str {
        "largest-cluster"
    }

    fn about(&self) -> &'static str {
        "majority inside the largest cluster of traces; noise never wins (measured: -0.7 to -4.3 points)"
    }

    fn choose(&self, ballots: &Ballots<'_>) -> Choice {
        let inside = ballots.geometry.and_then(largest);
        let counts = match inside {
            Some(members) => ballots
                .groups
                .iter()
                .map(|group| count(group.samples.iter().filter(|i| members.contains(i)).count()))
                .collect(),
            None => ballots.counts(),
        };
        let any = counts.iter().any(|c| *c > 0.0);
        best(ballots, if any { counts } else { ballots.counts() })
    }
}

/// Members of the largest of several clusters; `None` when there are not at least two groups of traces
/// to tell apart.
fn largest(geometry: &Geometry) -> Option<Vec<usize>> {
    let labels = geometry.labels();
    let clusters = labels.iter().flatten().max()? + 1;
    let members = |c: usize| -> Vec<usize> { (0..labels.len()).filter(|&i| labels[i] == Some(c)).collect() };
    let score = |c: &usize| {
        let inside = members(*c);
        (inside.len(), rounded(geometry.coherence(&inside).unwrap_or(0.0)))
    };
    let best = (0..clusters).rev().max_by(|a, b| {
        let ((n, x), (m, y)) = (score(a), score(b));
        n.cmp(&m).then(x.total_cmp(&y))
    })?;
    Some(members(best))
}
