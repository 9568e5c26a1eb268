//! Means and quantiles of one column on two sides.

use sseismo_trace::{Micros, Summary};

use super::report::{MeanDifference, QuantileRatio, Quantity, QuantitySide, Test, Unit};
use super::too_few;
use crate::flush::Pace;
use crate::stats::bootstrap::{Observation, quantile_ratio, values_needed};
use crate::stats::clustered::{Cluster, Estimate, difference};
use crate::stats::quantile::of_sorted;
use crate::stats::{ks, mann_whitney, real};

/// A column that is compared.
pub(super) struct Measure {
    pub(super) name: &'static str,
    pub(super) unit: &'static str,
    pub(super) read: fn(&Summary, &Pace) -> Option<f64>,
}

/// Time to the first content event, where the events are known.
pub(super) const TTFT: &str = "TTFT";
/// Median time between two content events of a phase.
pub(super) const INTER_TOKEN: &str = "inter-token latency (median)";
/// Content events that arrived within a millisecond of each other.
pub(super) const PER_FLUSH: &str = "events per flush";

/// Cost of one stream.
pub(super) const COST: &str = "cost_usd";

/// Everything that is compared: columns of the stream by their names, then what its events say of its
/// pace. Reported token counts only; counts of folded answers are sums and left out.
pub(super) const MEASURES: [Measure; 11] = [
    Measure {
        name: "usage_reasoning",
        unit: "tokens",
        read: |s, _| s.usage.reasoning.filter(|v| *v >= 0.0 && !s.folded),
    },
    Measure {
        name: "usage_output",
        unit: "tokens",
        read: |s, _| s.usage.output.filter(|_| !s.folded).map(real),
    },
    Measure { name: "t_first_byte", unit: "ms", read: |s, _| s.t_first_byte.map(milliseconds) },
    Measure { name: "t_first_reasoning", unit: "ms", read: |s, _| s.t_first_reasoning.map(milliseconds) },
    Measure { name: "t_first_output", unit: "ms", read: |s, _| s.t_first_output.map(milliseconds) },
    Measure { name: "t_end", unit: "ms", read: |s, _| s.t_end.map(milliseconds) },
    Measure { name: COST, unit: "USD", read: |s, _| s.cost_usd },
    // All that was generated over the whole time: a client that waits cares for no less.
    Measure {
        name: "throughput (generated tokens, reasoning included)",
        unit: "tokens/s",
        read: |s, _| {
            let seconds = s.t_end.filter(|t| t.0 > 0)?.seconds();
            s.usage.output.filter(|tokens| *tokens > 0 && !s.folded).map(|tokens| real(tokens) / seconds)
        },
    },
    // Without events it would only repeat t_first_reasoning or t_first_output.
    Measure {
        name: TTFT,
        unit: "ms",
        read: |_, pace| pace.ttft.filter(|_| pace.events_per_flush.is_some()).map(milliseconds),
    },
    Measure { name: INTER_TOKEN, unit: "ms", read: |_, pace| pace.itl_median.map(milliseconds) },
    Measure { name: PER_FLUSH, unit: "", read: |_, pace| pace.events_per_flush },
];

fn milliseconds(span: Micros) -> f64 {
    span.seconds() * 1_000.0
}

const QUANTILES: [f64; 3] = [0.5, 0.9, 0.99];
/// Any seed does; a fixed one makes reports repeatable.
const SEED: u64 = 0;

/// One value and the unit (session, turn, row) that it belongs to, dense within its side.
#[derive(Clone, Copy)]
pub(super) struct Reading {
    pub(super) value: f64,
    pub(super) cluster: u32,
}

/// Compares; `None` when a side has no value.
pub(super) fn quantity(
    [name, measured_in]: [&str; 2],
    sides: &[Vec<Reading>; 2],
    unit: Unit,
) -> Option<Quantity> {
    if sides.iter().any(Vec::is_empty) {
        return None;
    }
    let clusters = [0, 1].map(|side| clusters(&sides[side]));
    let estimates = [0, 1].map(|side| Estimate::of(&clusters[side]));
    let side = |side: usize| QuantitySide {
        n: sides[side].len() as u64,
        mean: estimates[side].map(|e| e.value),
        mean_ci95: estimates[side].and_then(|e| e.ci95()),
    };
    let apart = estimates[1].zip(estimates[0]).and_then(|(second, first)| difference(&second, &first));
    // One value a cluster: its mean. For independent rows that is the row itself.
    let means = [0, 1].map(|side| clusters[side].iter().map(|c| c.sum / real(c.rows)).collect::<Vec<_>>());
    let ranks = mann_whitney::two_sided(&means[1], &means[0]);
    let test = |name: &str, p: f64| Test { name: name.into(), unit, p, q: None };
    let mut tests = Vec::new();
    tests.extend(ranks.map(|t| test("mann-whitney", t.p)));
    tests.extend(apart.map(|d| test("welch-t", d.p)));
    tests.extend(ks::two_sided(&means[0], &means[1]).map(|t| test("kolmogorov-smirnov", t.p)));
    Some(Quantity {
        name: name.into(),
        unit: measured_in.into(),
        first: side(0),
        second: side(1),
        mean_difference: apart.map(|d| MeanDifference { value: d.value, ci95: d.ci95 }),
        quantile_ratios: quantile_ratios(sides),
        superiority: ranks.map(|t| t.superiority),
        tests,
        too_few: too_few([0, 1].map(|side| clusters[side].len()), unit),
        does_not_prove: "cause; and a large p-value does not prove that the distributions are equal".into(),
    })
}

fn quantile_ratios(sides: &[Vec<Reading>; 2]) -> Vec<QuantileRatio> {
    let observations = |side: &[Reading]| -> Vec<Observation> {
        side.iter().map(|r| Observation { value: r.value, cluster: r.cluster }).collect()
    };
    let [first, second] = [0, 1].map(|side| observations(&sides[side]));
    let [first_values, second_values] = [&first, &second].map(|side| {
        let mut values: Vec<f64> = side.iter().map(|o| o.value).collect();
        values.sort_by(f64::total_cmp);
        values
    });
    QUANTILES
        .iter()
        .map(|&q| {
            let value = |values: &[f64]| (values.len() >= values_needed(q)).then(|| of_sorted(values, q));
            let ratio = quantile_ratio(&first, &second, q, SEED);
            QuantileRatio {
                q,
                first: value(&first_values),
                second: value(&second_values),
                ratio: ratio.as_ref().ok().map(|r| r.value),
                ci95: ratio.as_ref().ok().map(|r| r.ci95),
                refused: ratio.err().map(|refusal| refusal.to_string()),
            }
        })
        .collect()
}

fn clusters(readings: &[Reading]) -> Vec<Cluster> {
    let most = readings.iter().map(|r| r.cluster as usize + 1).max().unwrap_or(0);
    let mut clusters = vec![Cluster::default(); most];
    for reading in readings {
        let cluster = &mut clusters[reading.cluster as usize];
        cluster.rows += 1;
        cluster.sum += reading.value;
    }
    clusters.retain(|cluster| cluster.rows > 0);
    clusters
}
