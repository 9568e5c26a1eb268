//! One share on two sides.

use std::collections::{HashMap, HashSet};

use super::report::{Proportion, Share, Test, Unit};
use super::too_few;
use crate::stats::clustered::{Cluster, Estimate, difference};
use crate::stats::proportion::{difference_ci95, two_proportion_z, wilson};
use crate::stats::{fisher, real};

/// One row that could have been a hit.
pub(super) struct Trial {
    /// 0 or 1.
    pub(super) side: usize,
    pub(super) hit: bool,
    pub(super) cluster: (usize, u32),
}

/// Compares; `None` when no row has the column.
pub(super) fn proportion(
    name: String,
    between: [String; 2],
    trials: &[Trial],
    unit: Unit,
) -> Option<Proportion> {
    if trials.is_empty() {
        return None;
    }
    let count = |side: usize| {
        let of_side = || trials.iter().filter(move |h| h.side == side);
        (of_side().filter(|h| h.hit).count() as u64, of_side().count() as u64)
    };
    let [(k1, n1), (k2, n2)] = [count(0), count(1)];
    let grouped = [0, 1].map(|side| clusters(trials, side));
    // Where each cluster has one trial, trials are independent whatever their unit is called.
    let clustered = unit != Unit::Row && !one_each(trials);
    let estimates = [0, 1].map(|side| Estimate::of(&grouped[side]).filter(|_| clustered));
    let share = |k: u64, n: u64, estimate: Option<Estimate>| Share {
        hits: k,
        n,
        share: (n > 0).then(|| real(k) / real(n)),
        ci95: match certain(k, n, estimate).filter(|_| clustered) {
            Some((k, clusters)) => wilson(k, clusters),
            None if clustered => over_clusters(estimate),
            None => wilson(k, n),
        },
    };
    let both = n1 > 0 && n2 > 0;
    let by_cluster = estimates[1].zip(estimates[0]).and_then(|(second, first)| difference(&second, &first));
    let mut tests = Vec::new();
    if clustered {
        tests.extend(by_cluster.map(|d| Test { name: "welch-t".into(), unit, p: d.p, q: None }));
    } else if both {
        let p = fisher::two_sided([[k1, n1 - k1], [k2, n2 - k2]]);
        tests.push(Test { name: "fisher-exact".into(), unit, p, q: None });
        let z = two_proportion_z(k1, n1, k2, n2);
        tests.extend(z.map(|(_, p)| Test { name: "two-proportion-z".into(), unit, p, q: None }));
    }
    Some(Proportion {
        name,
        between,
        first: share(k1, n1, estimates[0]),
        second: share(k2, n2, estimates[1]),
        difference: both.then(|| real(k2) / real(n2) - real(k1) / real(n1)),
        difference_ci95: if clustered {
            let certain = certain(k2, n2, estimates[1]).zip(certain(k1, n1, estimates[0]));
            certain.map(|((k2, m2), (k1, m1))| difference_ci95(k2, m2, k1, m1)).or(by_cluster.map(|d| d.ci95))
        } else {
            both.then(|| difference_ci95(k2, n2, k1, n1))
        },
        tests,
        too_few: too_few([0, 1].map(|side| grouped[side].len()), unit),
        does_not_prove: "cause; and a large p-value does not prove that the shares are equal".into(),
    })
}

/// Hits and clusters where all rows are hits or none is: no spread between the clusters to learn from, which
/// does not make the share certain. Each cluster then counts as one trial.
fn certain(k: u64, n: u64, estimate: Option<Estimate>) -> Option<(u64, u64)> {
    let clusters = estimate?.clusters as u64;
    (n > 0 && (k == 0 || k == n)).then_some((if k == 0 { 0 } else { clusters }, clusters))
}

/// Unknown until two clusters differ in number; a share stays in 0..=1.
fn over_clusters(estimate: Option<Estimate>) -> [f64; 2] {
    let interval = estimate.and_then(|e| e.ci95());
    interval.map_or([0.0, 1.0], |[low, high]| [low.max(0.0), high.min(1.0)])
}

/// Whether no cluster has two trials, be it on one side of the line or on both.
fn one_each(trials: &[Trial]) -> bool {
    let mut seen = HashSet::new();
    trials.iter().all(|trial| seen.insert(trial.cluster))
}

fn clusters(trials: &[Trial], side: usize) -> Vec<Cluster> {
    let mut sums: HashMap<(usize, u32), Cluster> = HashMap::new();
    for trial in trials.iter().filter(|trial| trial.side == side) {
        let cluster = sums.entry(trial.cluster).or_default();
        cluster.rows += 1;
        cluster.sum += f64::from(u8::from(trial.hit));
    }
    // The order of a hash map changes from run to run, and with it the last digits of a sum.
    let mut ordered: Vec<_> = sums.into_iter().collect();
    ordered.sort_unstable_by_key(|c| c.0);
    ordered.into_iter().map(|c| c.1).collect()
}
