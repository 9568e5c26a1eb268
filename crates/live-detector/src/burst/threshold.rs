//! A baseline's groups to the threshold that a wanted run length asks for.
//!
//! In: groups of the baseline at one scale and their likelihood ratios. Out: a [`Curve`] from thresholds to
//! average run lengths (ARL), in groups.
//!
//! **Null model.** Blocks of 8 neighbouring groups are drawn with a seed, so that short dependence stays
//! (Künsch, Annals of Statistics 17 (1989)); gaps and sizes in the last hundredth are drawn anew from a
//! generalised Pareto tail, so that values beyond the sample occur.
//!
//! **Long run lengths** are out of reach of plain simulation (5e8 groups and more), and honest streams pass high
//! thresholds by two rare groups close together, of which a simulation knows few. So the chain of the statistic at
//! the ends of blocks is followed, from nothing gathered until nothing is left (a cycle), by weight: first over
//! every block there is, its tails drawn evenly over their quantiles; then each state that is left meets a sample
//! of the blocks, striking ones first, each weighted by how likely it was to be taken; then states of one height
//! are thinned to a few that carry their weight (weighted ensemble: Huber and Kim, Biophys. J. 70 (1996)). All
//! steps keep means, so the share of cycles that pass a threshold is right on average at every height, and
//! ARL = groups in a cycle / that share (renewal reward). Beyond the last level that was reached each nat counts
//! e-fold, as a valid likelihood ratio guarantees; the model's notes say where that begins.

use rand::{RngExt as _, SeedableRng as _};
use rand_chacha::ChaCha8Rng;

use super::cusum::Cusum;
use super::density::real;
use super::likelihood::{ALTERNATIVES, EQUAL, GROUP_MAX, Lanes, Likelihood, narrow};
use super::tail::Tail;

/// No threshold below this, nats: it takes two groups at least, and the worst of 90 healthy GPT-4o streams reached
/// 13.3 to 14.2 under baselines that had not seen it (example `burst_false_alarms`): no tail model covers that.
const LOWEST: f64 = GROUP_MAX + 3.0;
/// Groups in a block.
const BLOCK: usize = 8;
/// Draws per block that reaches into a tail: with 3,200 groups some 2,000 quantiles of each tail.
const DRAWS: u32 = 8;
/// Distance of two levels, nats: the curve has steps where one more group is needed.
const LEVEL: f64 = 0.25;
/// The first level.
const FIRST: f64 = 1.5;
/// Levels looked at.
const LEVELS: usize = 235;
/// States kept of one height, and blocks that each of them meets …
const EFFORT: Effort = Effort { states: 6, blocks: 200 };
/// … and where alternatives are only compared.
const TRUST_EFFORT: Effort = Effort { states: 3, blocks: 80 };
/// Independent curves, the shortest of which holds: single ones strayed by 0.4 nats, some by 1.
const REPEATS: u64 = 3;
/// States within so many nats are of one height.
const HEIGHT: f64 = 0.5;
/// Blocks after which a cycle that still counts goes on for ever: the baseline itself clusters.
const ENDLESS: usize = 250;
/// Blocks after which a share may be called settled …
const SETTLED_MIN: usize = 4;
/// … when no level gained more than this part of its share by one more block.
const SETTLED: f64 = 1.002;
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

/// How much is spent on a curve.
#[derive(Clone, Copy)]
struct Effort {
    states: usize,
    blocks: usize,
}

/// A block with its tails drawn.
struct Path {
    ratios: std::ops::Range<usize>,
    /// How likely it is to be the next.
    share: f64,
}

/// A cycle under way, standing for many.
#[derive(Clone, Copy)]
struct State {
    cusum: Cusum,
    /// The most that its statistic's exponential was.
    most: f32,
    weight: f64,
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

    /// Ratios of a group with its tails drawn.
    fn drawn(&self, at: usize, dice: &mut ChaCha8Rng) -> Lanes {
        let tails = self.tails(at);
        if tails.iter().all(Option::is_none) {
            return self.ratios[at];
        }
        self.redrawn(at, tails, tails.map(|tail| tail.map_or(0.0, |_| dice.random::<f64>())))
    }

    /// E0[L] of each alternative over the baseline: 1 for the true baseline density, more where gap and size
    /// hang together or the kernels miss.
    pub(super) fn mean_ratio(&self) -> Lanes {
        let known = || self.samples.iter().zip(&self.ratios).filter(|(sample, _)| sample.ln_gap.is_some());
        let n = real(known().count().max(1));
        std::array::from_fn(|k| narrow(known().map(|(_, ratios)| f64::from(ratios[k])).sum::<f64>() / n))
    }

    /// Alarms in `groups` simulated groups: plain simulation, for a check of a threshold.
    ///
    /// Most blocks come to a statistic that has gathered nothing, and always do the same to it: that is looked up.
    pub(super) fn alarms(&self, threshold: f64, groups: u64, seed: u64) -> u64 {
        let trust = &self.likelihood.trust;
        let fresh: Vec<Option<(Cusum, f32)>> = self.blocks.iter().map(|block| self.fresh(*block)).collect();
        let mut dice = ChaCha8Rng::seed_from_u64(seed);
        let (mut cusum, mut alarms, mut simulated) = (Cusum::default(), 0, 0);
        let limit = narrow(threshold.exp());
        while simulated < groups {
            let index = dice.random_range(0..self.blocks.len());
            let (at, length) = self.blocks[index];
            if let Some((after, most)) = fresh[index]
                && most < limit
                && cusum.is_idle(trust)
            {
                (cusum, simulated) = (after, simulated + u64::from(length));
                continue;
            }
            for at in at..at + u32::from(length) {
                cusum.push(&self.drawn(at as usize, &mut dice));
                simulated += 1;
                if cusum.mean(trust) >= limit {
                    alarms += 1;
                    // A run length runs from a fresh start: not from the middle of what raised the alarm.
                    cusum = Cusum::default();
                    break;
                }
            }
        }
        alarms
    }

    /// What a block makes of nothing, and the most that the statistic's exponential is in it; `None` where tails are
    /// drawn.
    fn fresh(&self, (at, length): (u32, u8)) -> Option<(Cusum, f32)> {
        let (mut cusum, mut most) = (Cusum::default(), 0.0_f32);
        for at in at as usize..at as usize + usize::from(length) {
            if self.tails(at).iter().any(Option::is_some) {
                return None;
            }
            cusum.push(&self.ratios[at]);
            most = most.max(cusum.mean(&self.likelihood.trust));
        }
        Some((cusum, most))
    }

    /// How far each alternative can be trusted: e^−h, where h is the threshold that it would need alone. So all
    /// raise equally many false alarms, and one that healthy groups often look like does not raise the
    /// threshold of the others; one without a threshold is not trusted at all.
    pub(super) fn trust(&self, arl: f64, seed: u64) -> Lanes {
        let alone = |k: usize| -> Lanes { std::array::from_fn(|other| if other == k { 1.0 } else { 0.0 }) };
        let arl = arl * real(ALTERNATIVES);
        let thresholds: [f64; ALTERNATIVES] =
            std::array::from_fn(|k| self.curve(&alone(k), TRUST_EFFORT, seed).threshold(arl));
        let least = thresholds.iter().fold(f64::INFINITY, |least, threshold| least.min(*threshold));
        if least.is_infinite() {
            return EQUAL;
        }
        let trust = thresholds.map(|threshold| narrow((least - threshold).exp()));
        let sum: f32 = trust.iter().sum();
        trust.map(|trust| trust / sum)
    }

    /// The curve of the statistic with this trust: of a few independent ones the shortest run length at each level,
    /// since a sample that missed a rare pair promises too much.
    pub(super) fn full_curve(&self, trust: &Lanes, seed: u64) -> Curve {
        let curves = (1..REPEATS).map(|repeat| self.curve(trust, EFFORT, seed.wrapping_add(repeat << 32)));
        curves.fold(self.curve(trust, EFFORT, seed), Curve::shorter)
    }

    /// Run lengths of rising thresholds.
    fn curve(&self, trust: &Lanes, effort: Effort, seed: u64) -> Curve {
        let inflation = self.mean_ratio().iter().fold(1.0_f32, |most, &mean| most.max(mean));
        let mut curve = Curve { points: Vec::new(), inflation: f64::from(inflation), endless: false };
        if self.blocks.is_empty() {
            return curve;
        }
        let mut dice = ChaCha8Rng::seed_from_u64(seed);
        let mut cycles = Cycles::new(self, trust, &mut dice);
        cycles.first();
        curve.endless = !cycles.settle(effort, &mut dice);
        let levels = (0_u32..).map(|level| FIRST + LEVEL * f64::from(level)).zip(&cycles.passed);
        curve.points = levels
            .take_while(|(_, passed)| **passed > 0.0)
            .map(|(level, passed)| (level, (cycles.groups / passed).max(1.0).ln()))
            .take_while(|(_, ln_arl)| *ln_arl < LN_ARL_MAX)
            .collect();
        curve
    }

    /// Every block, those with tails several times: their quantiles are spread evenly (a Kronecker sequence), since
    /// few draws decide the rarest ratios.
    fn paths(&self, dice: &mut ChaCha8Rng) -> (Vec<Path>, Vec<Lanes>) {
        let (mut paths, mut ratios) = (Vec::new(), Vec::new());
        let mut survivals = [dice.random::<f64>(), dice.random::<f64>()];
        for &(at, length) in &self.blocks {
            let samples = at as usize..at as usize + usize::from(length);
            let drawn = samples.clone().any(|at| self.tails(at).iter().any(Option::is_some));
            let draws = if drawn { DRAWS } else { 1 };
            let share = 1.0 / real(self.blocks.len()) / f64::from(draws);
            for _ in 0..draws {
                let from = ratios.len();
                ratios.extend(samples.clone().map(|at| {
                    let tails = self.tails(at);
                    if tails.iter().all(Option::is_none) {
                        return self.ratios[at];
                    }
                    // The plastic number's powers fill a square evenly.
                    for (survival, step) in survivals.iter_mut().zip([0.754_877_666, 0.569_840_291]) {
                        *survival = (*survival + step).fract();
                    }
                    self.redrawn(at, tails, survivals)
                }));
                paths.push(Path { ratios: from..ratios.len(), share });
            }
        }
        (paths, ratios)
    }

    /// The tails from which gap and size of a group are drawn.
    fn tails(&self, at: usize) -> [Option<Tail>; 2] {
        let Sample { ln_gap: Some(ln_gap), ln_size } = self.samples[at] else { return [None, None] };
        let beyond = |tail: Option<Tail>, ln: f32| tail.filter(|tail| f64::from(ln) > tail.from);
        [beyond(self.gap_tail, ln_gap), beyond(self.size_tail, ln_size)]
    }

    /// Ratios of a group whose tails are drawn at these survival probabilities less than 1.
    fn redrawn(&self, at: usize, [gap, size]: [Option<Tail>; 2], survivals: [f64; 2]) -> Lanes {
        let Sample { ln_gap: Some(ln_gap), ln_size } = self.samples[at] else { return NOTHING };
        let ln_gap = gap.map_or(ln_gap, |tail| narrow(tail.draw(1.0 - survivals[0])));
        let ln_size = size.map_or(ln_size, |tail| narrow(tail.draw(1.0 - survivals[1])));
        self.likelihood.ratios((ln_gap, ln_size))
    }
}

/// Cycles of one statistic: from nothing gathered to nothing left.
struct Cycles<'a> {
    trust: &'a Lanes,
    paths: Vec<Path>,
    ratios: Vec<Lanes>,
    /// Sums over the paths of how readily they are taken, and what a taken one stands for.
    pull: Vec<f64>,
    /// e^level of each level.
    levels: Vec<f32>,
    /// Share of the cycles that passed each level.
    passed: Vec<f64>,
    /// Mean number of groups in a cycle.
    groups: f64,
    block: f64,
    states: Vec<State>,
}

impl<'a> Cycles<'a> {
    fn new(null: &Null<'_>, trust: &'a Lanes, dice: &mut ChaCha8Rng) -> Self {
        let (paths, ratios) = null.paths(dice);
        let levels = (0_u32..).take(LEVELS).map(|level| narrow((FIRST + LEVEL * f64::from(level)).exp()));
        let block = paths.iter().map(|path| path.share * real(path.ratios.len())).sum();
        Self {
            trust,
            pull: Vec::with_capacity(paths.len()),
            paths,
            ratios,
            levels: levels.collect(),
            passed: vec![0.0; LEVELS],
            groups: block,
            block,
            states: Vec::new(),
        }
    }

    /// The first block of a cycle: all that there are, with what each of them brings by itself.
    fn first(&mut self) {
        let start = State { cusum: Cusum::default(), most: 0.0, weight: 1.0 };
        let mut sum = 0.0;
        for index in 0..self.paths.len() {
            let share = self.paths[index].share;
            let most = self.follow(start, index, share);
            let nats = f64::from(most.max(1.0)).ln();
            sum += share * (1.0 + nats * nats);
            self.pull.push(sum);
        }
    }

    /// Follows the cycles to their end; `false` when they have none.
    fn settle(&mut self, effort: Effort, dice: &mut ChaCha8Rng) -> bool {
        for block in 1..ENDLESS {
            let states = self.thinned(effort.states, dice);
            let before = self.passed.clone();
            self.groups += self.block * states.iter().map(|state| state.weight).sum::<f64>();
            for state in states {
                self.meet(state, effort.blocks, dice);
            }
            let settled = self.passed.iter().zip(&before).all(|(now, before)| *now <= before * SETTLED);
            if self.states.is_empty() || (settled && block >= SETTLED_MIN) {
                return true;
            }
        }
        false
    }

    /// One state and a systematic sample of the blocks.
    fn meet(&mut self, state: State, blocks: usize, dice: &mut ChaCha8Rng) {
        let all = self.pull.last().copied().unwrap_or_default();
        let step = all / real(blocks);
        let mut place = step * dice.random::<f64>();
        while place < all {
            let index = self.pull.partition_point(|sum| *sum <= place).min(self.paths.len() - 1);
            let pull = self.pull[index] - index.checked_sub(1).map_or(0.0, |before| self.pull[before]);
            self.follow(state, index, self.paths[index].share * step / pull);
            place += step;
        }
    }

    /// One state through one block: what it passes is noted, what is left is kept. The most it came to.
    fn follow(&mut self, state: State, index: usize, share: f64) -> f32 {
        let (mut cusum, mut most) = (state.cusum, state.most);
        for ratios in &self.ratios[self.paths[index].ratios.clone()] {
            cusum.push(ratios);
            most = most.max(cusum.mean(self.trust));
        }
        let weight = state.weight * share;
        if most >= self.levels[0] && most > state.most {
            let passed = |most: f32| self.levels.partition_point(|level| *level <= most);
            let (from, to) = (passed(state.most), passed(most));
            self.passed[from..to].iter_mut().for_each(|passed| *passed += weight);
        }
        if !cusum.is_idle(self.trust) {
            self.states.push(State { cusum, most, weight });
        }
        most
    }

    /// Of all states of one height a few, drawn evenly by weight, with the weight of all.
    fn thinned(&mut self, keep: usize, dice: &mut ChaCha8Rng) -> Vec<State> {
        let trust = self.trust;
        let height = |state: &State| (state.cusum.statistic(trust) / HEIGHT).floor().max(-4.0);
        let mut states: Vec<(f64, State)> =
            self.states.drain(..).map(|state| (height(&state), state)).collect();
        states.sort_by(|a, b| a.0.total_cmp(&b.0).then(a.1.most.total_cmp(&b.1.most)));
        let mut out = Vec::new();
        for same in states.chunk_by(|a, b| a.0.total_cmp(&b.0).is_eq()) {
            if same.len() <= keep {
                out.extend(same.iter().map(|(_, state)| *state));
                continue;
            }
            let weight = same.iter().map(|(_, state)| state.weight).sum::<f64>() / real(keep);
            let (mut place, mut sum) = (weight * dice.random::<f64>(), 0.0);
            for (_, state) in same {
                sum += state.weight;
                while place < sum {
                    out.push(State { weight, ..*state });
                    place += weight;
                }
            }
        }
        out
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

    /// At each level the shorter run length of two curves.
    fn shorter(self, other: Self) -> Self {
        let (mut longer, shorter) =
            if self.points.len() < other.points.len() { (other, self) } else { (self, other) };
        for (point, also) in longer.points.iter_mut().zip(&shorter.points) {
            point.1 = point.1.min(also.1);
        }
        longer.endless |= shorter.endless;
        longer
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
