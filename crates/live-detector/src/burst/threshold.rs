//! A baseline's groups to the threshold that a wanted run length asks for.
//!
//! In: groups of the baseline at one scale and their likelihood ratios. Out: a [`Curve`] from thresholds to
//! average run lengths (ARL), in groups.
//!
//! **Null model.** Blocks of 8 neighbouring groups are drawn with a seed, so that short dependence stays
//! (Künsch, Annals of Statistics 17 (1989)); gaps and sizes in the last hundredth are drawn anew from a
//! generalised Pareto tail, so that values beyond the sample occur.
//!
//! **Long run lengths** are out of reach of plain simulation (5e8 groups and more), so the rate of alarms is
//! split: how often the statistic leaves nothing for the first level, times the chance to climb from each
//! level to the next, each from states that really got there (forward flux sampling: Allen, Warren, ten
//! Wolde, Phys. Rev. Lett. 94 (2005) 018104). No shape is assumed between the levels. The error of ln ARL is
//! about 0.05 per level. Beyond the last level that was reached each nat counts e-fold, which is what a
//! valid likelihood ratio guarantees.

use rand::{RngExt as _, SeedableRng as _};
use rand_chacha::ChaCha8Rng;

use super::cusum::Cusum;
use super::density::real;
use super::likelihood::{ALTERNATIVES, GROUP_MAX, Lanes, Likelihood, narrow};
use super::tail::Tail;

/// No threshold below this: it takes two groups at least.
const LOWEST: f64 = GROUP_MAX + 0.5;
/// Groups in a block.
const BLOCK: usize = 8;
/// Distance of two levels, nats.
const LEVEL: f64 = 1.5;
/// States kept and climbs tried per level.
const CLIMBS: usize = 2_000;
/// Groups simulated at most to collect the states of the first level.
const FIRST_GROUPS: usize = 300_000;
/// With fewer successes a level tells nothing.
const SUCCESSES_MIN: usize = 10;
/// A climb that is still under way after so many groups goes on for ever: the baseline itself clusters.
const ENDLESS: usize = 2_000;
/// No threshold above this is looked for; e^60 groups are more than any service will see.
const LEVEL_MAX: f64 = 60.0;
/// ln of the longest run length that is looked for: 1e14 groups.
const LN_ARL_MAX: f64 = 32.3;

/// One group of a baseline, ready to be drawn.
#[derive(Clone, Copy, Debug)]
pub(super) struct Sample {
    /// ln µs; `None` for a group whose gap is unknown or on a border.
    pub(super) ln_gap: Option<f32>,
    pub(super) ln_size: f32,
}

/// The null model: a baseline's groups, drawn in blocks.
pub(super) struct Null<'a> {
    likelihood: &'a Likelihood,
    samples: Vec<Sample>,
    ratios: Vec<Lanes>,
    /// Where blocks may begin, and how long they are.
    blocks: Vec<(u32, u8)>,
    gap_tail: Option<Tail>,
    size_tail: Option<Tail>,
}

/// A place in the null model.
#[derive(Clone, Copy, Debug)]
struct Cursor {
    at: u32,
    left: u8,
}

const NOTHING: Lanes = [1.0; ALTERNATIVES];

impl<'a> Null<'a> {
    /// From runs of neighbouring groups.
    pub(super) fn new(likelihood: &'a Likelihood, runs: &[Vec<Sample>]) -> Self {
        let samples: Vec<Sample> = runs.concat();
        let known = |value: fn(&Sample) -> f32| -> Vec<f64> {
            let known = samples.iter().filter(|sample| sample.ln_gap.is_some());
            known.map(|sample| f64::from(value(sample))).collect()
        };
        let gap_tail = Tail::fit(&known(|sample| sample.ln_gap.unwrap_or_default()));
        let size_tail = Tail::fit(&known(|sample| sample.ln_size));
        let ratios = samples.iter().map(|sample| ratios(likelihood, sample)).collect();
        Self { likelihood, ratios, blocks: blocks(runs), samples, gap_tail, size_tail }
    }

    fn start(&self, dice: &mut ChaCha8Rng) -> Cursor {
        let (at, left) = self.blocks[dice.random_range(0..self.blocks.len())];
        Cursor { at, left }
    }

    /// Ratios of the next group.
    fn step(&self, cursor: &mut Cursor, dice: &mut ChaCha8Rng) -> Lanes {
        if cursor.left == 0 {
            *cursor = self.start(dice);
        }
        let at = cursor.at as usize;
        (cursor.at, cursor.left) = (cursor.at + 1, cursor.left - 1);
        let sample = self.samples[at];
        let Some(ln_gap) = sample.ln_gap else { return NOTHING };
        let gap = self.gap_tail.filter(|tail| f64::from(ln_gap) > tail.from);
        let size = self.size_tail.filter(|tail| f64::from(sample.ln_size) > tail.from);
        if gap.is_none() && size.is_none() {
            return self.ratios[at];
        }
        let mut beyond = |tail: Tail| narrow(tail.draw(1.0 - dice.random::<f64>()));
        let ln_gap = gap.map_or(ln_gap, &mut beyond);
        let ln_size = size.map_or(sample.ln_size, &mut beyond);
        self.likelihood.ratios((ln_gap, ln_size))
    }

    /// E0[L] of each alternative over the baseline: 1 for the true baseline density, more where gap and size
    /// hang together or the kernels miss.
    pub(super) fn mean_ratio(&self) -> Lanes {
        let known = || self.samples.iter().zip(&self.ratios).filter(|(sample, _)| sample.ln_gap.is_some());
        let n = real(known().count().max(1));
        std::array::from_fn(|k| narrow(known().map(|(_, ratios)| f64::from(ratios[k])).sum::<f64>() / n))
    }

    /// Alarms in `groups` simulated groups: no splitting, for a check of a threshold.
    pub(super) fn alarms(&self, threshold: f64, groups: u64, seed: u64) -> u64 {
        let mut dice = ChaCha8Rng::seed_from_u64(seed);
        let (mut cursor, mut cusum, mut alarms) = (self.start(&mut dice), Cusum::default(), 0);
        let limit = narrow(threshold.exp());
        for _ in 0..groups {
            cusum.push(&self.step(&mut cursor, &mut dice));
            if cusum.mean() >= limit {
                alarms += 1;
                cusum = Cusum::default();
            }
        }
        alarms
    }

    /// Run lengths of rising thresholds.
    pub(super) fn curve(&self, seed: u64) -> Curve {
        let inflation = self.mean_ratio().iter().fold(1.0_f32, |most, &mean| most.max(mean));
        let mut curve = Curve { points: Vec::new(), inflation: f64::from(inflation), endless: false };
        if self.blocks.is_empty() {
            return curve;
        }
        let mut dice = ChaCha8Rng::seed_from_u64(seed);
        let (mut states, groups) = self.first_level(&mut dice);
        if states.len() < SUCCESSES_MIN {
            return curve;
        }
        let mut level = LEVEL;
        let mut ln_arl = (real(groups) / real(states.len())).ln();
        curve.points.push((level, ln_arl));
        while level < LEVEL_MAX && ln_arl < LN_ARL_MAX {
            let climbed = self.climb(&states, level + LEVEL, &mut curve.endless, &mut dice);
            if climbed.len() < SUCCESSES_MIN || curve.endless {
                break;
            }
            level += LEVEL;
            ln_arl += (real(CLIMBS) / real(climbed.len())).ln();
            curve.points.push((level, ln_arl));
            states = climbed;
        }
        curve
    }

    /// States in which the statistic first passed the first level after having been at nothing, and the
    /// groups that it took to find them.
    fn first_level(&self, dice: &mut ChaCha8Rng) -> (Vec<(Cusum, Cursor)>, usize) {
        let limit = narrow(LEVEL.exp());
        let (mut cursor, mut cusum, mut armed) = (self.start(dice), Cusum::default(), true);
        let mut states = Vec::new();
        let mut groups = 0;
        while groups < FIRST_GROUPS && states.len() < CLIMBS {
            cusum.push(&self.step(&mut cursor, dice));
            groups += 1;
            if armed && cusum.mean() >= limit {
                states.push((cusum, cursor));
                armed = false;
            }
            armed |= cusum.is_idle();
        }
        (states, groups)
    }

    /// Of [`CLIMBS`] climbs from states at one level, those that reach the next before they fall to nothing.
    fn climb(
        &self,
        states: &[(Cusum, Cursor)],
        level: f64,
        endless: &mut bool,
        dice: &mut ChaCha8Rng,
    ) -> Vec<(Cusum, Cursor)> {
        let limit = narrow(level.exp());
        let mut reached = Vec::new();
        for _ in 0..CLIMBS {
            let (mut cusum, mut cursor) = states[dice.random_range(0..states.len())];
            let mut groups = 0;
            while cusum.mean() < limit && !cusum.is_idle() && groups < ENDLESS {
                cusum.push(&self.step(&mut cursor, dice));
                groups += 1;
            }
            *endless |= groups == ENDLESS;
            if cusum.mean() >= limit {
                reached.push((cusum, cursor));
            }
        }
        reached
    }
}

fn ratios(likelihood: &Likelihood, sample: &Sample) -> Lanes {
    sample.ln_gap.map_or(NOTHING, |ln_gap| likelihood.ratios((ln_gap, sample.ln_size)))
}

/// Blocks begin at every group that has seven behind it in its run; a shorter run is one block.
fn blocks(runs: &[Vec<Sample>]) -> Vec<(u32, u8)> {
    let mut out = Vec::new();
    let mut start = 0_u32;
    for run in runs.iter().filter(|run| !run.is_empty()) {
        let length = run.len().min(BLOCK);
        let block = u8::try_from(length).unwrap_or(u8::MAX);
        let last = u32::try_from(run.len() - length).unwrap_or(u32::MAX);
        out.extend((0..=last).map(|offset| (start + offset, block)));
        start += u32::try_from(run.len()).unwrap_or(u32::MAX);
    }
    out
}

/// From thresholds to average run lengths.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Curve {
    /// (threshold in nats, ln of the average run length in groups), both rising.
    points: Vec<(f64, f64)>,
    /// The largest E0[L] of an alternative.
    pub(super) inflation: f64,
    /// Some climbs never ended: the baseline itself looks clustered, and no threshold helps.
    pub(super) endless: bool,
}

impl Curve {
    /// The threshold for a run length of `arl` groups; infinite when there is none.
    pub(super) fn threshold(&self, arl: f64) -> f64 {
        self.level(arl).max(LOWEST)
    }

    fn level(&self, arl: f64) -> f64 {
        let wanted = arl.max(1.0).ln();
        let Some(&(first, ln_first)) = self.points.first() else {
            // Nothing ever climbed. For a ratio of mean m per group the run length is at least
            // e^threshold / m.
            return if self.endless { f64::INFINITY } else { wanted + self.inflation.ln() };
        };
        if wanted <= ln_first {
            return first;
        }
        for pair in self.points.windows(2) {
            let ((low, ln_low), (high, ln_high)) = (pair[0], pair[1]);
            if wanted <= ln_high {
                return low + (high - low) * (wanted - ln_low) / (ln_high - ln_low).max(1e-9);
            }
        }
        let (last, ln_last) = self.points[self.points.len() - 1];
        if self.endless { f64::INFINITY } else { last + (wanted - ln_last) }
    }

    /// The longest run length that was simulated, groups.
    pub(super) fn simulated(&self) -> f64 {
        self.points.last().map_or(1.0, |point| point.1.exp())
    }
}
