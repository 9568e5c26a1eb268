//! The smallest lattice that a batch would have shown: what separates "none" from "cannot tell".

use rand::{RngExt, SeedableRng};
use rand_chacha::ChaCha8Rng;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::background::{Background, kernel};
use super::scan::would_stand;
use super::{FIELD, Lattice};
use crate::stats::real;

/// Power that the mass is given for.
const POWER: f64 = 0.8;
/// Simulated batches per mass; the standard error of a power of 0.8 is 0.02.
const DRAWS: u32 = 300;
/// Share of the lattice's counts that stop at each tier they reach, and the last tier, as fitted to the
/// field's batches.
const STOP: f64 = 0.4;
const TIERS: u32 = 10;
/// Halvings of the (logarithmic) interval of masses: to within 1 %.
const HALVINGS: u32 = 11;

/// The smallest share of counts on a lattice that these counts would have shown.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Detectable {
    /// Share of all counts; `None` when even a batch that lies on the lattice altogether would not do.
    pub mass: Option<f64>,
    /// Chance that a lattice of this mass is found.
    pub power: f64,
    /// The lattice that is assumed.
    pub lattice: String,
}

/// Adds a lattice like the field's (518n−2, 40 % of the stops at each tier reached) to the observed
/// background and looks for the mass at which four of five simulated batches pass every condition.
pub(crate) fn detectable(background: &Background) -> Detectable {
    let power = |mass: f64| {
        let cells = cells(background, mass);
        let mut rng = ChaCha8Rng::seed_from_u64(0);
        let shown = (0..DRAWS).filter(|_| shows(&cells, background.n(), &mut rng)).count();
        real(shown as u64) / f64::from(DRAWS)
    };
    let mass = (background.n() > 0 && power(1.0) >= POWER).then(|| {
        let (mut low, mut high) = (1.0 / real(background.n()), 1.0);
        for _ in 0..HALVINGS {
            let middle = (low * high).sqrt();
            if power(middle) >= POWER { high = middle } else { low = middle }
        }
        high
    });
    Detectable {
        mass,
        power: POWER,
        lattice: format!("{FIELD} with 40 % of the answers that reach a tier stopping there"),
    }
}

/// One lattice value of an imagined batch.
struct Cell {
    /// Mean number of counts there.
    mean: f64,
    /// Background that the scan would estimate there: the lattice's own counts lift it a little.
    background: f64,
}

fn cells(background: &Background, mass: f64) -> Vec<Cell> {
    let Lattice { step, offset } = FIELD;
    let stops = real(background.n()) * mass;
    let tiers: Vec<(u32, f64)> = (0..TIERS)
        .map(|tier| {
            let reached = (1.0 - STOP).powi(i32::try_from(tier).unwrap_or(i32::MAX));
            (offset + tier * step, stops * if tier + 1 == TIERS { reached } else { reached * STOP })
        })
        .collect();
    tiers
        .iter()
        .map(|&(value, added)| {
            let honest = (1.0 - mass) * background.at(value);
            let lift: f64 =
                tiers.iter().map(|&(from, k)| k * kernel(f64::from(value), f64::from(from))).sum();
            Cell { mean: honest + added, background: honest + lift }
        })
        .collect()
}

fn shows(cells: &[Cell], n: u64, rng: &mut ChaCha8Rng) -> bool {
    let hits: Vec<(u64, f64)> = cells.iter().map(|cell| (poisson(cell.mean, rng), cell.background)).collect();
    would_stand(&hits, n.max(hits.iter().map(|h| h.0).sum()))
}

/// Knuth's product of uniforms; above a mean of 60 the normal limit, where power is 1 anyway.
fn poisson(mean: f64, rng: &mut ChaCha8Rng) -> u64 {
    if mean > 60.0 {
        let radius = (-2.0 * (1.0 - rng.random::<f64>()).ln()).sqrt();
        let normal = radius * (std::f64::consts::TAU * rng.random::<f64>()).cos();
        #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "not negative")]
        return (mean + mean.sqrt() * normal).round().max(0.0) as u64;
    }
    let (limit, mut product, mut k) = ((-mean).exp(), 1.0, 0);
    loop {
        product *= rng.random::<f64>();
        if product <= limit {
            return k;
        }
        k += 1;
    }
}
