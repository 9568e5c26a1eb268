//! One group to its likelihood ratios: how much better each picture of clustering explains it than the
//! baseline does.
//!
//! In: gap and size of a group. Out: for each alternative L = (1 − w) + w·f1/f0, whose logarithm is the
//! log-likelihood ratio (LLR). w < 1, because in a clustered stream some groups are ordinary, and so that
//! one ordinary group never wipes out what was gathered (a floor of ln(1 − w)).
//!
//! The absolute pictures are those of the write-ups. The others follow the baseline: a cork or a buffer keeps
//! the rate, so a silence of T brings rate·T tokens, which is far narrower than any absolute picture and so
//! is seen sooner.

use super::density::{GAP, SIZE, estimate, normal};

/// No group alone counts for more than this, nats: one odd silence is no clustering, and the tail of a
/// very regular baseline is known least. Two such groups pass the thresholds of real baselines.
pub(super) const GROUP_MAX: f64 = 12.0;
/// Alternatives; a fixed number, so that a stream's state has a fixed size.
pub(super) const ALTERNATIVES: usize = 8;
/// One number per alternative.
pub(super) type Lanes = [f32; ALTERNATIVES];

/// Equal trust in every alternative.
pub(super) const EQUAL: Lanes = [0.125; ALTERNATIVES];

/// Mean over the alternatives, by how far each is trusted.
pub(super) fn mean(lanes: &Lanes, trust: &Lanes) -> f32 {
    lanes.iter().zip(trust).map(|(lane, trust)| lane * trust).sum()
}

/// One picture of clustering: lognormal gaps and sizes.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct Alternative {
    /// Its name in evidence.
    pub(super) name: &'static str,
    /// Median silence, s, and the standard deviation of its logarithm.
    pub(super) gap_s: (f64, f64),
    /// Median size in the baseline's unit, and the standard deviation of its logarithm.
    pub(super) size: (f64, f64),
    /// Share of groups that look so.
    pub(super) weight: f64,
}

/// What the alternatives depend on.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct Usual {
    /// Median size of a group.
    pub(super) size: f64,
    /// Size per second inside phases.
    pub(super) rate: f64,
    /// Units per token.
    pub(super) per_token: f64,
}

/// The pictures, for one scale of one baseline.
///
/// Sources: silences of 1–2 s with 40–80 tokens are the write-ups'; 200 ms is Linux' `TCP_CORK`; 4–16 KiB are
/// the buffers of nginx. Spreads and weights were tuned on streams that no table of results uses.
pub(super) fn alternatives(usual: Usual) -> [Alternative; ALTERNATIVES] {
    let much = |tokens: f64| (tokens * usual.per_token).max(4.0 * usual.size);
    let kept = |gap_s: f64| (usual.rate * gap_s).max(2.0 * usual.size);
    let alternative = |name, gap_s, size, weight| Alternative { name, gap_s, size, weight };
    [
        alternative("write-up", (1.2, 0.5), (much(45.0), 0.7), 0.9),
        alternative("half-second", (0.5, 0.5), (much(45.0), 0.7), 0.9),
        alternative("half-second, small", (0.5, 0.5), (much(15.0), 0.7), 0.9),
        alternative("fifth of a second", (0.2, 0.25), (much(8.0), 0.7), 0.9),
        alternative("kept rate, 0.1 s", (0.1, 0.3), (kept(0.1), 0.4), 0.9),
        alternative("kept rate, 0.2 s", (0.2, 0.3), (kept(0.2), 0.4), 0.9),
        alternative("kept rate, 0.45 s", (0.45, 0.3), (kept(0.45), 0.4), 0.9),
        alternative("bucket", (0.8, 0.6), (much(30.0), 0.7), 0.3),
    ]
}

/// Ratios of one axis at its nodes, one row of alternatives a node.
#[derive(Clone, Debug, PartialEq)]
struct Rows(Box<[Lanes]>);

impl Rows {
    fn at(&self, (node, part): (usize, f32)) -> Lanes {
        let (low, high) = (&self.0[node], &self.0[node + 1]);
        std::array::from_fn(|k| low[k] + part * (high[k] - low[k]))
    }
}

/// Likelihood ratios of one scale.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Likelihood {
    gap: Rows,
    size: Rows,
    weight: Lanes,
    most: f32,
    /// How far each alternative is trusted, summing to 1: one that healthy groups often look like is less.
    pub(super) trust: Lanes,
    pub(super) names: [&'static str; ALTERNATIVES],
}

/// ln of a gap in µs and ln of a size, as the axes want them.
pub(super) fn logs(gap_us: i64, size: u32) -> (f32, f32) {
    #[expect(clippy::cast_precision_loss, reason = "logarithms of µs and sizes need no more than 24 bits")]
    ((gap_us.max(1) as f32).ln(), (size.max(1) as f32).ln())
}

impl Likelihood {
    /// Ratios against the densities of ln gaps (µs) and ln sizes of a baseline.
    pub(super) fn new(ln_gaps: &[f64], ln_sizes: &[f64], alternatives: &[Alternative; ALTERNATIVES]) -> Self {
        let (gap0, size0) = (estimate(GAP, ln_gaps), estimate(SIZE, ln_sizes));
        let ln_us = |seconds: f64| (seconds * 1e6).ln();
        Self {
            gap: rows(&gap0, |node, k| {
                let (median, sd) = alternatives[k].gap_s;
                normal(GAP.at(node) - ln_us(median), sd)
            }),
            size: rows(&size0, |node, k| {
                let (median, sd) = alternatives[k].size;
                normal(SIZE.at(node) - median.max(1.0).ln(), sd)
            }),
            weight: std::array::from_fn(|k| narrow(alternatives[k].weight)),
            most: narrow(GROUP_MAX.exp()),
            trust: EQUAL,
            names: std::array::from_fn(|k| alternatives[k].name),
        }
    }

    /// Ratios against a known alternative: what nobody has outside of a table of results.
    pub(super) fn oracle(null: (&[f64], &[f64]), truth: (&[f64], &[f64])) -> Self {
        let (gap0, size0) = (estimate(GAP, null.0), estimate(SIZE, null.1));
        let (gap1, size1) = (estimate(GAP, truth.0), estimate(SIZE, truth.1));
        Self {
            gap: rows(&gap0, |node, _| gap1[node]),
            size: rows(&size0, |node, _| size1[node]),
            weight: [0.999; ALTERNATIVES],
            most: narrow(GROUP_MAX.exp()),
            trust: EQUAL,
            names: ["oracle"; ALTERNATIVES],
        }
    }

    /// L of each alternative for one group.
    pub(super) fn ratios(&self, (ln_gap, ln_size): (f32, f32)) -> Lanes {
        let gap = self.gap.at(GAP.place(ln_gap));
        let size = self.size.at(SIZE.place(ln_size));
        let most = self.most;
        std::array::from_fn(|k| (1.0 - self.weight[k] + self.weight[k] * gap[k] * size[k]).min(most))
    }

    /// Bytes that it holds.
    pub(super) fn bytes(&self) -> usize {
        (self.gap.0.len() + self.size.0.len()) * size_of::<Lanes>() + size_of::<Self>()
    }
}

fn rows(null: &[f64], density: impl Fn(usize, usize) -> f64) -> Rows {
    let row = |(node, f0): (usize, &f64)| std::array::from_fn(|k| narrow(density(node, k) / f0));
    Rows(null.iter().enumerate().map(row).collect())
}

#[expect(clippy::cast_possible_truncation, reason = "ratios of densities need no more than 24 bits")]
pub(super) fn narrow(value: f64) -> f32 {
    value.clamp(0.0, 1e30) as f32
}

#[cfg(test)]
mod tests {
    use serde_json::Value;

    use super::super::cusum::Cusum;
    use super::super::density::estimate;
    use super::super::tests::{golden, numbers};
    use super::*;

    fn alternative(value: &Value) -> Alternative {
        let number = |i: usize| value[i].as_f64().unwrap();
        Alternative {
            name: "golden",
            gap_s: (number(0), number(1)),
            size: (number(2), number(3)),
            weight: number(4),
        }
    }

    fn interpolated(axis: super::super::density::Axis, density: &[f64], x: f64) -> f64 {
        let (node, part) = axis.place(narrow(x));
        density[node] + f64::from(part) * (density[node + 1] - density[node])
    }

    /// Densities, ratios and the CUSUMs' log-mean-exp equal `SciPy`'s exact ones up to the interpolation between
    /// nodes half a bandwidth apart: 15 % of a density, 0.25 nats of a ratio, 0.5 nats of ten groups together.
    #[test]
    fn equals_the_reference() {
        let golden = golden("burst_likelihood");
        for case in golden["cases"].as_array().unwrap() {
            let (name, input, want) = (&case["name"], &case["input"], &case["expected"]);
            let ln = |key: &str| -> Vec<f64> { numbers(&input[key]).iter().map(|x| x.ln()).collect() };
            let (gaps, sizes) = (ln("gaps_us"), ln("sizes"));
            let alternatives = std::array::from_fn(|k| alternative(&input["alternatives"][k]));
            let likelihood = Likelihood::new(&gaps, &sizes, &alternatives);
            let densities = [(GAP, estimate(GAP, &gaps)), (SIZE, estimate(SIZE, &sizes))];
            let mut cusum = Cusum::default();
            let traced = numbers(&want["log_mean_exp"]);
            for (point, traced) in want["points"].as_array().unwrap().iter().zip(traced) {
                let (gap, size) = (point["gap_us"].as_i64().unwrap(), point["size"].as_u64().unwrap());
                let logs = logs(gap, u32::try_from(size).unwrap());
                for ((axis, density), (x, key)) in
                    densities.iter().zip([(logs.0, "f0_ln_gap"), (logs.1, "f0_ln_size")])
                {
                    let got = interpolated(*axis, density, f64::from(x));
                    let want = point[key].as_f64().unwrap();
                    assert!(
                        (got / want - 1.0).abs() < 0.15,
                        "{name} {gap} {size} {key}: {got} is not {want}"
                    );
                }
                let ratios = likelihood.ratios(logs);
                for (got, want) in ratios.iter().zip(numbers(&point["llr"])) {
                    let got = f64::from(*got).ln();
                    assert!((got - want).abs() < 0.25, "{name} {gap} {size}: {got} is not {want}");
                }
                cusum.push(&ratios);
                assert!(
                    (cusum.statistic(&EQUAL) - traced).abs() < 0.5,
                    "{name}: {} is not {traced}",
                    cusum.statistic(&EQUAL)
                );
            }
        }
    }

    #[test]
    fn no_group_alone_passes_a_threshold() {
        let likelihood = Likelihood::new(
            &[9.0; 50],
            &[0.0; 50],
            &alternatives(Usual { size: 1.0, rate: 50.0, per_token: 1.0 }),
        );
        for gap in [1_000, 100_000, 1_200_000, i64::MAX] {
            for size in [0, 1, 45, u32::MAX] {
                let ratios = likelihood.ratios(logs(gap, size));
                assert!(
                    ratios
                        .iter()
                        .all(|ratio| ratio.is_finite() && f64::from(*ratio).ln() <= GROUP_MAX + 1e-6)
                );
            }
        }
    }
}
