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
//! about 0.02 per level where the statistic climbs in small steps. GPT-4o streams pass high thresholds by two rare
//! jumps instead, of which few states know: plain simulation agrees up to 3e6 groups; at 1e7 and 3e7 the curve strays
//! from seed to seed, and false alarms came up to 27 times as often as stated (example `burst_false_alarms`). Beyond the last level that was reached each nat counts e-fold, as a valid likelihood
//! ratio guarantees; the model's notes say where that begins.

use rand::{RngExt as _, SeedableRng as _};
use rand_chacha::ChaCha8Rng;

use super::cusum::Cusum;
use super::density::real;
use super::likelihood::{ALTERNATIVES, EQUAL, GROUP_MAX, Lanes, Likelihood, narrow};
use super::tail::Tail;

/// No threshold below this, nats: it takes two groups at least, and the worst of 90 healthy GPT-4o streams reached
/// 13.3 to 14.2 under baselines that had not seen it (example `burst_false_alarms`): no tail model covers that.
const LOWEST: f64 = GROUP_MAX + 3.0;
/// Longest run length, groups, that plain simulation has confirmed; beyond it the curve may be far too long.
pub(super) const CONFIRMED: f64 = 3e6;
/// Groups in a block.
const BLOCK: usize = 8;
/// Distance of two levels, nats: the curve has steps where one more group is needed.
const LEVEL: f64 = 0.5;
/// The first level.
const FIRST: f64 = 1.5;
/// States kept per level …
const STATES: usize = 1_000;
/// … and where alternatives are only compared.
const TRUST_STATES: usize = 600;
/// Climbs tried at most for each of them.
const CLIMBS_PER_STATE: usize = 20;
/// Groups simulated at most to collect the states of the first level.
const FIRST_GROUPS: usize = 300_000;
/// With fewer states a level tells nothing.
const STATES_MIN: usize = 10;
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
        let trust = &self.likelihood.trust;
        let mut dice = ChaCha8Rng::seed_from_u64(seed);
        let (mut cursor, mut cusum, mut alarms) = (self.start(&mut dice), Cusum::default(), 0);
        let limit = narrow(threshold.exp());
        for _ in 0..groups {
            cusum.push(&self.step(&mut cursor, &mut dice));
            if cusum.mean(trust) >= limit {
                alarms += 1;
                // A run length runs from a fresh start: not from the middle of what raised the alarm.
                (cusum, cursor) = (Cusum::default(), self.start(&mut dice));
            }
        }
        alarms
    }

    /// How far each alternative can be trusted: e^−h, where h is the threshold that it would need alone. So all
    /// raise equally many false alarms, and one that healthy groups often look like does not raise the
    /// threshold of the others; one without a threshold is not trusted at all.
    pub(super) fn trust(&self, arl: f64, seed: u64) -> Lanes {
        let alone = |k: usize| -> Lanes { std::array::from_fn(|other| if other == k { 1.0 } else { 0.0 }) };
        let arl = arl * real(ALTERNATIVES);
        let thresholds: [f64; ALTERNATIVES] =
            std::array::from_fn(|k| self.curve(&alone(k), TRUST_STATES, seed).threshold(arl));
        let least = thresholds.iter().fold(f64::INFINITY, |least, threshold| least.min(*threshold));
        if least.is_infinite() {
            return EQUAL;
        }
        let trust = thresholds.map(|threshold| narrow((least - threshold).exp()));
        let sum: f32 = trust.iter().sum();
        trust.map(|trust| trust / sum)
    }

    /// The curve of the statistic with this trust.
    pub(super) fn full_curve(&self, trust: &Lanes, seed: u64) -> Curve {
        self.curve(trust, STATES, seed)
    }

    /// Run lengths of rising thresholds.
    fn curve(&self, trust: &Lanes, wanted: usize, seed: u64) -> Curve {
        let view = View { null: self, trust, wanted };
        let inflation = self.mean_ratio().iter().fold(1.0_f32, |most, &mean| most.max(mean));
        let mut curve = Curve { points: Vec::new(), inflation: f64::from(inflation), endless: false };
        if self.blocks.is_empty() {
            return curve;
        }
        let mut dice = ChaCha8Rng::seed_from_u64(seed);
        let (mut states, groups) = view.first_level(&mut dice);
        if states.len() < STATES_MIN {
            return curve;
        }
        let mut level = FIRST;
        let mut ln_arl = (real(groups) / real(states.len())).ln();
        curve.points.push((level, ln_arl));
        while level < LEVEL_MAX && ln_arl < LN_ARL_MAX {
            let (climbed, tried) = view.climb(&states, level + LEVEL, &mut curve.endless, &mut dice);
            if curve.endless {
                break;
            }
            level += LEVEL;
            if climbed.len() < STATES_MIN {
                // Hardly any: what is left is the upper 95 % limit of their share (rule of three).
                curve.points.push((level, ln_arl + (real(tried) / (real(climbed.len()) + 3.0)).ln()));
                break;
            }
            ln_arl += (real(tried) / real(climbed.len())).ln();
            curve.points.push((level, ln_arl));
            states = climbed;
        }
        curve
    }
}

/// The null model as one statistic sees it.
struct View<'a> {
    null: &'a Null<'a>,
    trust: &'a Lanes,
    /// States to find per level.
    wanted: usize,
}

impl View<'_> {
    /// States in which the statistic first passed the first level after having been at nothing, and the
    /// groups that it took to find them.
    fn first_level(&self, dice: &mut ChaCha8Rng) -> (Vec<(Cusum, Cursor)>, usize) {
        let limit = narrow(FIRST.exp());
        let (mut cursor, mut cusum, mut armed) = (self.null.start(dice), Cusum::default(), true);
        let mut states = Vec::new();
        let mut groups = 0;
        while groups < FIRST_GROUPS && states.len() < self.wanted {
            cusum.push(&self.null.step(&mut cursor, dice));
            groups += 1;
            if armed && cusum.mean(self.trust) >= limit {
                states.push((cusum, cursor));
                armed = false;
            }
            armed |= cusum.is_idle(self.trust);
        }
        (states, groups)
    }

    /// Climbs from states at one level: those that reached the next before they fell to nothing, and how many
    /// were tried.
    fn climb(
        &self,
        states: &[(Cusum, Cursor)],
        level: f64,
        endless: &mut bool,
        dice: &mut ChaCha8Rng,
    ) -> (Vec<(Cusum, Cursor)>, usize) {
        let limit = narrow(level.exp());
        let (mut reached, mut tried) = (Vec::new(), 0);
        while reached.len() < self.wanted && tried < self.wanted * CLIMBS_PER_STATE && !*endless {
            tried += 1;
            let (mut cusum, mut cursor) = states[dice.random_range(0..states.len())];
            let mut groups = 0;
            while cusum.mean(self.trust) < limit && !cusum.is_idle(self.trust) && groups < ENDLESS {
                cusum.push(&self.null.step(&mut cursor, dice));
                groups += 1;
            }
            *endless |= groups == ENDLESS;
            if cusum.mean(self.trust) >= limit {
                reached.push((cusum, cursor));
            }
        }
        (reached, tried)
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
