//! What counts would look like without a lattice: their own histogram, smoothed.

use super::Count;
use crate::stats::{real, real_len};

/// Bandwidth in ln(count). Wide enough that a spike hardly lifts its own background (a spike of 100 at
/// 500 lifts it by 0.5), narrow enough to follow two modes; measured on all real batches.
const BANDWIDTH: f64 = 0.15;

/// Grid in ln(count): 1,200 points over 1..12,000, extended with the same spacing for larger counts.
const GRID_TOP: f64 = 12_000.0;
const GRID_TOP_VALUES: usize = 12_000;
const GRID_POINTS: usize = 1_200;

/// Expected number of counts at each whole value.
#[derive(Clone, Debug)]
pub(crate) struct Background {
    expected: Vec<f64>,
    n: u64,
}

impl Background {
    /// Smooths ascending counts in ln(count). With no counts, nothing is expected anywhere.
    pub(crate) fn of(counts: &[Count]) -> Self {
        let n: u64 = counts.iter().map(|c| c.count).sum();
        let Some(largest) = counts.last() else { return Self { expected: Vec::new(), n } };
        let top = GRID_TOP_VALUES.max(largest.value as usize + 1);
        let spacing = GRID_TOP.ln() / (real_len(GRID_POINTS) - 1.0);
        let density = smooth(&binned(counts, spacing, grid_points(top, spacing)), spacing);
        let mut expected = vec![0.0; top];
        for (value, slot) in expected.iter_mut().enumerate().skip(1) {
            let value = real_len(value);
            *slot = interpolate(&density, value.ln() / spacing) / value;
        }
        let scale = real(n) / expected.iter().sum::<f64>().max(1e-9);
        for slot in &mut expected {
            *slot *= scale;
        }
        Self { expected, n }
    }

    /// All counts.
    pub(crate) fn n(&self) -> u64 {
        self.n
    }

    /// Expected number at `value`.
    pub(crate) fn at(&self, value: u32) -> f64 {
        self.expected.get(value as usize).copied().unwrap_or(0.0)
    }

    /// Expected number at `first`, `first + step` … up to `last`.
    pub(crate) fn along(&self, first: u32, step: u32, last: u32) -> f64 {
        let end = self.expected.len().min(last as usize + 1);
        self.expected.get(first as usize..end).map_or(0.0, |part| part.iter().step_by(step as usize).sum())
    }
}

/// How one count at `from` lifts the background at `at`.
pub(crate) fn kernel(at: f64, from: f64) -> f64 {
    let distance = (at.ln() - from.ln()) / BANDWIDTH;
    (-0.5 * distance * distance).exp() / (BANDWIDTH * std::f64::consts::TAU.sqrt() * at)
}

#[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "ln of a count over the spacing")]
fn grid_points(top: usize, spacing: f64) -> usize {
    GRID_POINTS.max((real_len(top).ln() / spacing).ceil() as usize + 1)
}

fn binned(counts: &[Count], spacing: f64, points: usize) -> Vec<f64> {
    let mut bins = vec![0.0; points];
    for count in counts {
        #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "clamped to the grid")]
        let bin = (f64::from(count.value).ln() / spacing + 0.5) as usize;
        bins[bin.min(points - 1)] += real(count.count);
    }
    bins
}

/// Gaussian kernel, cut at four bandwidths.
fn smooth(bins: &[f64], spacing: f64) -> Vec<f64> {
    #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "a fixed 76 bins")]
    let reach = (4.0 * BANDWIDTH / spacing) as usize;
    let weight = |distance: usize| (-0.5 * (real_len(distance) * spacing / BANDWIDTH).powi(2)).exp();
    let weights: Vec<f64> = (0..=reach).map(weight).collect();
    let total = 2.0 * weights.iter().sum::<f64>() - weights[0];
    let mut smoothed = vec![0.0; bins.len()];
    for (centre, &mass) in bins.iter().enumerate().filter(|bin| *bin.1 > 0.0) {
        let from = centre.saturating_sub(reach);
        let to = (centre + reach).min(bins.len() - 1);
        for (slot, place) in smoothed[from..=to].iter_mut().zip(from..) {
            *slot += mass * weights[place.abs_diff(centre)] / (total * spacing);
        }
    }
    smoothed
}

fn interpolate(density: &[f64], place: f64) -> f64 {
    #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "a place on the grid")]
    let below = (place as usize).min(density.len() - 1);
    let above = (below + 1).min(density.len() - 1);
    let part = place - real_len(below);
    density[below] * (1.0 - part) + density[above] * part
}
