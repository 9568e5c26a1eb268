//! Logarithms to a density on a fixed grid, so that a look-up costs the same however much was learned.
//!
//! In: ln gaps or ln sizes. Out: a kernel estimate with a heavy tail: 99 % Gaussian kernels of absolute
//! bandwidth 0.1 and 1 % Student's t with 2 degrees of freedom at twice the standard deviation (at least
//! 0.15). An absolute bandwidth, because a relative one breaks on constant streams; a tail, because on
//! real streams a lognormal baseline made E0[e^LLR] 1.5e3 and kernels without a tail make it infinite.

/// Bandwidth of the kernels, in units of ln.
const BANDWIDTH: f64 = 0.1;
/// Share of the heavy tail.
const TAIL_SHARE: f64 = 0.01;
/// The tail's scale in standard deviations, and the least standard deviation.
const TAIL_SCALE: f64 = 2.0;
const SD_MIN: f64 = 0.15;
/// Kernels end here, in bandwidths: below 1e-8 of the peak.
const REACH: f64 = 6.0;
/// Distance of two nodes, in units of ln: half a bandwidth, between which the densities are interpolated.
pub(super) const STEP: f64 = 0.05;

/// Where an axis lies.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct Axis {
    pub(super) low: f64,
    pub(super) nodes: usize,
}

/// ln µs, from 1 ms (frames are at least that far apart) to 1,000 s.
pub(super) const GAP: Axis = Axis { low: 6.907_755_278_982_137, nodes: 278 };
/// ln of tokens, characters or events, from 1 to 65,535.
pub(super) const SIZE: Axis = Axis { low: 0.0, nodes: 223 };

impl Axis {
    /// The value at a node.
    pub(super) fn at(self, node: usize) -> f64 {
        self.low + STEP * real(node)
    }

    /// The node below `value` and how far it is to the next one, 0 to 1; the ends hold what lies beyond.
    #[expect(
        clippy::cast_possible_truncation,
        clippy::cast_sign_loss,
        clippy::cast_precision_loss,
        reason = "clamped to the few hundred nodes of the axis"
    )]
    pub(super) fn place(self, value: f32) -> (usize, f32) {
        let nodes = (value - self.low as f32) / STEP as f32;
        let nodes = nodes.clamp(0.0, (self.nodes - 1) as f32 - 1e-3);
        (nodes as usize, nodes.fract())
    }
}

/// A density at the nodes of an axis.
pub(super) fn estimate(axis: Axis, values: &[f64]) -> Vec<f64> {
    let n = real(values.len());
    let mean = values.iter().sum::<f64>() / n;
    let sd = (values.iter().map(|x| (x - mean).powi(2)).sum::<f64>() / n).sqrt();
    let mut ascending = values.to_vec();
    ascending.sort_by(f64::total_cmp);
    (0..axis.nodes)
        .map(|node| {
            let x = axis.at(node);
            let tail = student_2(x - mean, TAIL_SCALE * sd.max(SD_MIN));
            (1.0 - TAIL_SHARE) * kernels(&ascending, x) + TAIL_SHARE * tail
        })
        .collect()
}

fn kernels(ascending: &[f64], x: f64) -> f64 {
    let from = ascending.partition_point(|value| *value < x - REACH * BANDWIDTH);
    let to = ascending.partition_point(|value| *value <= x + REACH * BANDWIDTH);
    let sum: f64 = ascending[from..to].iter().map(|value| normal(x - value, BANDWIDTH)).sum();
    sum / real(ascending.len())
}

/// Density of a normal distribution around 0.
pub(super) fn normal(x: f64, sd: f64) -> f64 {
    (-0.5 * (x / sd).powi(2)).exp() / (sd * std::f64::consts::TAU.sqrt())
}

/// Density of Student's t with 2 degrees of freedom, scaled: 1 / (s·(2 + (x/s)²)^1.5).
fn student_2(x: f64, scale: f64) -> f64 {
    (2.0 + (x / scale).powi(2)).powf(-1.5) / scale
}

#[expect(clippy::cast_precision_loss, reason = "numbers of groups are far below 2^53")]
pub(super) fn real(count: usize) -> f64 {
    count as f64
}
