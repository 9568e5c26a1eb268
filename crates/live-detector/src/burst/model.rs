//! A baseline to what a stream is measured against: densities frozen into grids, and thresholds.
//!
//! In: runs of frames, a wanted run length and a seed. Out: a [`BurstModel`], shared by all streams of a
//! scope. The same input and seed give the same model.

use std::sync::Arc;

use sseismo_analysis::flush::{COARSE_SPAN, COARSE_WINDOW, Gap, Grouper, fine_window};
use sseismo_analysis::signature::burst::Unit;
use sseismo_analysis::stats::proportion;
use sseismo_trace::Micros;

use super::cusum::Cusum;
use super::density::real;
use super::likelihood::{
    ALTERNATIVES, GROUP_MAX, Lanes, Likelihood, Usual, alternatives, logs, mean, narrow,
};
use super::run::{Group, Packed, groups};
use super::tail::Tail;
use super::threshold::{Curve, Null, Sample};

/// Fine scale, coarse scale and dead air share the wanted rate of false alarms.
const SHARES: f64 = 3.0;
/// A healthy baseline holds a run over the fence with this probability.
const TRIM_LEVEL: f64 = 0.05;
/// … but never one that two odd groups explain: healthy GPT-4o streams have such, and a baseline without its own
/// tail would promise too much.
const TRIM_MIN: f64 = 2.0 * GROUP_MAX;
/// Rounds of trimming: each makes the next one's densities cleaner.
const TRIM_ROUNDS: usize = 3;
/// More than this share of runs is no contamination.
const TRIM_MAX: f64 = 1.0 / 3.0;
/// A group is a hit when its likelihood ratio passes this quantile of the baseline's …
const HIT_QUANTILE: f64 = 0.995;
/// … and at least e²: evidence, not a ranking.
const HIT_MIN: f32 = 7.389;
/// However regular a route is, silences up to here are not called dead air: a healthy gpt-5.4 stream was
/// silent for 2.458 s before its last event (`data/timing/mastra`), and nobody sees a border coming.
const DEAD_AIR_MIN: Micros = Micros(3_000_000);
/// … and beyond here always, whatever the tail says: an hour.
const DEAD_AIR_MAX_S: f64 = 3_600.0;

/// Where a run length comes from.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Basis {
    /// The baseline is at least three times as long as the run length (rule of three).
    Measured,
    /// The run length is that of a model: blocks of the baseline with tails.
    ModelBased,
}

/// Which scale saw it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Scale {
    /// Groups of frames at most W1 apart.
    Fine,
    /// Groups of frames at most 30 ms apart, no longer than 100 ms.
    Coarse,
}

impl Scale {
    /// The name used in evidence.
    pub fn name(self) -> &'static str {
        match self {
            Self::Fine => "fine",
            Self::Coarse => "coarse",
        }
    }
}

/// One scale of a model.
#[derive(Clone, Debug)]
pub(super) struct Measure {
    window: Micros,
    span: Option<Micros>,
    pub(super) likelihood: Arc<Likelihood>,
    curve: Arc<Curve>,
    /// Groups with known gaps in the baseline.
    groups: usize,
    mean_ratio: Lanes,
    /// The run length of this scale's threshold, in its own groups.
    arl: f64,
    pub(super) threshold: f64,
    /// e^threshold: what the mean of the exponentials has to reach.
    pub(super) limit: f32,
}

impl Measure {
    pub(super) fn grouper(&self) -> Grouper {
        Grouper::new(self.window, self.span)
    }

    fn set(&mut self, arl: f64) {
        self.arl = arl;
        self.threshold = self.curve.threshold(arl);
        // Above the ceiling of the CUSUM: never.
        self.limit = if self.threshold < 75.0 { narrow(self.threshold.exp()) } else { f32::INFINITY };
    }
}

/// How often a healthy group is a hit: p0 of a route's statistic.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct HitRate {
    /// Hits among the baseline's coarse groups.
    pub hits: u64,
    /// Those groups.
    pub groups: u64,
    /// Upper end of the 95 % interval of their share (Wilson).
    pub upper95: f64,
}

#[derive(Clone, Debug)]
struct Frozen {
    unit: Unit,
    fine: Measure,
    coarse: Measure,
    hit_limit: f32,
    hit_rate: HitRate,
    silences: Option<Tail>,
    /// Frames per coarse group.
    frames_per_group: f64,
    dead_air: Micros,
    groups_per_second: f64,
    trimmed: usize,
    runs: usize,
    contaminated: bool,
    arl: f64,
}

/// What the streams of one scope are measured against. Cheap to clone.
#[derive(Clone, Debug)]
pub struct BurstModel(Arc<Frozen>);

/// Groups of all runs at one scale.
type Runs = Vec<Vec<Group>>;

impl BurstModel {
    pub(super) fn fit(runs: &[&[Packed]], unit: Option<Unit>, arl: f64, seed: u64) -> Self {
        let unit = unit.unwrap_or(Unit::Events);
        let (fine, coarse) = scales(runs);
        let (kept, contaminated) = trim(&fine, &coarse, unit);
        let take = |runs: &Runs| -> Runs {
            runs.iter().zip(&kept).filter(|(_, kept)| **kept).map(|(run, _)| run.clone()).collect()
        };
        let frames: Vec<&[Packed]> =
            runs.iter().zip(&kept).filter(|(_, kept)| **kept).map(|(run, _)| *run).collect();
        let (fine, coarse) = (take(&fine), take(&coarse));
        let measures = [&fine, &coarse].map(|groups| likelihood(groups, unit));
        let mut model = Self::with(&frames, unit, [&fine, &coarse], measures, arl, seed);
        if let Some(frozen) = Arc::get_mut(&mut model.0) {
            frozen.trimmed = runs.len() - frames.len();
            frozen.runs = runs.len();
            frozen.contaminated = contaminated;
        }
        model
    }

    pub(super) fn oracle(
        runs: &[&[Packed]],
        truth: &[&[Packed]],
        unit: Option<Unit>,
        arl: f64,
        seed: u64,
    ) -> Self {
        let (fine, coarse) = scales(runs);
        let window = fine_window(median_gap(runs));
        let truth = [Grouper::new(window, None), Grouper::coarse()]
            .map(|grouper| truth.iter().map(|run| groups(run, grouper.clone())).collect::<Runs>());
        let measures = [(&fine, &truth[0]), (&coarse, &truth[1])].map(|(null, truth)| {
            let (null, truth) = (ln_columns(null), ln_columns(truth));
            Likelihood::oracle((&null.0, &null.1), (&truth.0, &truth.1))
        });
        Self::with(runs, unit.unwrap_or(Unit::Events), [&fine, &coarse], measures, arl, seed)
    }

    fn with(
        frames: &[&[Packed]],
        unit: Unit,
        [fine, coarse]: [&Runs; 2],
        [fine_likelihood, coarse_likelihood]: [Likelihood; 2],
        arl: f64,
        seed: u64,
    ) -> Self {
        let window = fine_window(median_gap(frames));
        let per_coarse = real(known(fine).count()) / real(known(coarse).count().max(1));
        let budget = arl * SHARES;
        let fine_measure = measure((window, None), fine, fine_likelihood, budget * per_coarse, seed);
        let coarse_scale = (COARSE_WINDOW, Some(COARSE_SPAN));
        let coarse_measure = measure(coarse_scale, coarse, coarse_likelihood, budget, seed ^ 1);
        let hit = Hit::of(coarse, &coarse_measure.likelihood);
        let silences: Vec<f64> =
            frames.iter().flat_map(|run| run.iter().copied().skip(1)).filter_map(silence).collect();
        let count: usize = frames.iter().map(|run| run.len()).sum();
        let model = Self(Arc::new(Frozen {
            unit,
            hit_limit: hit.limit,
            hit_rate: hit.rate,
            silences: Tail::fit(&silences),
            frames_per_group: real(count) / real(coarse_measure.groups.max(1)),
            dead_air: DEAD_AIR_MIN,
            groups_per_second: real(coarse_measure.groups) / seconds(coarse).max(1e-6),
            fine: fine_measure,
            coarse: coarse_measure,
            trimmed: 0,
            runs: frames.len(),
            contaminated: false,
            arl,
        }));
        model.at(arl)
    }

    /// The same baseline with thresholds for another run length, in coarse groups. Nothing is simulated anew.
    #[must_use]
    pub fn at(&self, arl: f64) -> Self {
        let mut frozen = Frozen::clone(&self.0);
        frozen.arl = arl;
        let fine_per_coarse = real(frozen.fine.groups) / real(frozen.coarse.groups.max(1));
        frozen.coarse.set(arl * SHARES);
        frozen.fine.set(arl * SHARES * fine_per_coarse);
        frozen.dead_air = frozen.silences.map_or(DEAD_AIR_MIN, |tail| {
            let ln_us = tail.passed_with(1.0 / (arl * SHARES * frozen.frames_per_group).max(1.0));
            let us = ln_us.exp().min(DEAD_AIR_MAX_S * 1e6);
            #[expect(clippy::cast_possible_truncation, reason = "at most an hour")]
            Micros(us as i64).max(DEAD_AIR_MIN)
        });
        Self(Arc::new(frozen))
    }

    /// The run length of the thresholds, in coarse groups.
    pub fn arl(&self) -> f64 {
        self.0.arl
    }

    /// Coarse groups per second of a stream: turns a wished time between false alarms into a run length.
    pub fn groups_per_second(&self) -> f64 {
        self.0.groups_per_second
    }

    /// What sizes are counted in.
    pub fn unit(&self) -> Unit {
        self.0.unit
    }

    /// The threshold of one scale, nats.
    pub fn threshold(&self, scale: Scale) -> f64 {
        self.measure(scale).threshold
    }

    /// The window of the fine scale, W1.
    pub fn fine_window(&self) -> Micros {
        self.0.fine.window
    }

    /// The silence after which a stream is called dead, if no phase began before.
    pub fn dead_air(&self) -> Micros {
        self.0.dead_air
    }

    /// How often a healthy group is a hit.
    pub fn hit_rate(&self) -> HitRate {
        self.0.hit_rate
    }

    /// Whether it can tell clustering from what is usual: not where the baseline itself looks clustered.
    pub fn decides(&self) -> bool {
        !self.0.contaminated && self.0.fine.limit.is_finite() && self.0.coarse.limit.is_finite()
    }

    /// Whether the run length was seen or is a model's.
    pub fn basis(&self) -> Basis {
        if real(self.0.coarse.groups) >= 3.0 * self.0.arl { Basis::Measured } else { Basis::ModelBased }
    }

    /// E0[e^LLR] of one scale: the largest and the mean over alternatives. 1 for an exact baseline; this is
    /// why thresholds are simulated and not ln(ARL).
    pub fn mean_ratio(&self, scale: Scale) -> (f64, f64) {
        let ratios = self.measure(scale).mean_ratio;
        let mean = ratios.iter().map(|ratio| f64::from(*ratio)).sum::<f64>() / real(ALTERNATIVES);
        (f64::from(ratios.iter().fold(0.0_f32, |most, ratio| most.max(*ratio))), mean)
    }

    /// Reservations that belong beside every alarm.
    pub fn notes(&self) -> Vec<String> {
        let frozen = &self.0;
        let mut notes = Vec::new();
        if self.basis() == Basis::ModelBased {
            notes.push(format!(
                "a run length of {:.1e} groups is model-based (8-group blocks of {} groups with tails)",
                frozen.arl, frozen.coarse.groups
            ));
        }
        if frozen.contaminated {
            notes
                .push("more than a third of the baseline looks clustered itself: nothing was trimmed".into());
        } else if frozen.trimmed > 0 {
            notes.push(format!("{} of {} runs were trimmed from the baseline", frozen.trimmed, frozen.runs));
        }
        for (scale, measure) in [(Scale::Fine, &frozen.fine), (Scale::Coarse, &frozen.coarse)] {
            let scale = scale.name();
            if !measure.limit.is_finite() {
                notes.push(format!("no threshold at the {scale} scale: the baseline itself looks clustered"));
            } else if measure.arl > measure.curve.simulated() {
                let simulated = measure.curve.simulated();
                notes.push(format!(
                    "{scale} scale: beyond {simulated:.1e} groups a nat counts e-fold, unsimulated"
                ));
            }
        }
        notes
    }

    /// Bytes of the grids.
    pub fn bytes(&self) -> usize {
        self.0.fine.likelihood.bytes() + self.0.coarse.likelihood.bytes() + size_of::<Frozen>()
    }

    pub(super) fn measure(&self, scale: Scale) -> &Measure {
        match scale {
            Scale::Fine => &self.0.fine,
            Scale::Coarse => &self.0.coarse,
        }
    }

    /// Whether a coarse group with these ratios is a hit.
    pub(super) fn is_hit(&self, ratios: &Lanes) -> bool {
        mean(ratios, &self.0.coarse.likelihood.trust) >= self.0.hit_limit
    }
}

/// Which groups are hits, and how often healthy ones are.
struct Hit {
    limit: f32,
    rate: HitRate,
}

impl Hit {
    fn of(coarse: &Runs, likelihood: &Likelihood) -> Self {
        let mut ratios: Vec<f32> = known(coarse)
            .map(|(gap, size)| mean(&likelihood.ratios(logs(gap.0, size)), &likelihood.trust))
            .collect();
        ratios.sort_by(f32::total_cmp);
        #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "a rank of the sample")]
        let rank = (real(ratios.len()) * HIT_QUANTILE) as usize;
        let limit = ratios.get(rank).copied().unwrap_or(HIT_MIN).max(HIT_MIN);
        let hits = ratios.len() - ratios.partition_point(|ratio| *ratio < limit);
        let (hits, groups) = (hits as u64, ratios.len() as u64);
        let upper95 = proportion::wilson(hits, groups)[1];
        Self { limit, rate: HitRate { hits, groups, upper95 } }
    }
}

/// Groups of the runs at the fine and at the coarse scale.
fn scales(runs: &[&[Packed]]) -> (Runs, Runs) {
    let fine = Grouper::new(fine_window(median_gap(runs)), None);
    let of = |grouper: &Grouper| runs.iter().map(|run| groups(run, grouper.clone())).collect();
    (of(&fine), of(&Grouper::coarse()))
}

fn median_gap(runs: &[&[Packed]]) -> Micros {
    let within = |frame: &Packed| match frame.gap.gap() {
        Gap::Within(gap) => Some(gap),
        Gap::Border(_) | Gap::Unknown | Gap::First => None,
    };
    let mut gaps: Vec<Micros> = runs.iter().flat_map(|run| run.iter().filter_map(within)).collect();
    let middle = gaps.len() / 2;
    if gaps.is_empty() { Micros(0) } else { *gaps.select_nth_unstable(middle).1 }
}

/// ln µs of the silence before a frame, on a border or inside a phase.
fn silence(frame: Packed) -> Option<f64> {
    match frame.gap.gap() {
        Gap::Within(gap) | Gap::Border(gap) => Some((gap.seconds() * 1e6).max(1.0).ln()),
        Gap::Unknown | Gap::First => None,
    }
}

fn known(runs: &Runs) -> impl Iterator<Item = (Micros, u32)> {
    runs.iter().flatten().filter_map(|group| group.gap.map(|gap| (gap, group.size)))
}

/// Time that the known groups and their silences took.
fn seconds(runs: &Runs) -> f64 {
    let known = runs.iter().flatten().filter_map(|group| group.gap.map(|gap| (gap, group.span)));
    known.map(|(gap, span)| gap.seconds() + span.seconds()).sum()
}

fn ln_columns(runs: &Runs) -> (Vec<f64>, Vec<f64>) {
    known(runs)
        .map(|(gap, size)| logs(gap.0, size))
        .map(|(gap, size)| (f64::from(gap), f64::from(size)))
        .unzip()
}

fn likelihood(runs: &Runs, unit: Unit) -> Likelihood {
    let (ln_gaps, ln_sizes) = ln_columns(runs);
    let mut sizes: Vec<u32> = known(runs).map(|(_, size)| size).collect();
    let total: f64 = sizes.iter().map(|size| f64::from(*size)).sum();
    let middle = sizes.len() / 2;
    let median = if sizes.is_empty() { 1 } else { *sizes.select_nth_unstable(middle).1 };
    let usual = Usual {
        size: f64::from(median.max(1)),
        rate: total / seconds(runs).max(1e-6),
        per_token: f64::from(unit.scaled(1).unwrap_or(1)),
    };
    Likelihood::new(&ln_gaps, &ln_sizes, &alternatives(usual))
}

fn samples(runs: &Runs) -> Vec<Vec<Sample>> {
    let sample = |group: &Group| {
        let (ln_gap, ln_size) = logs(group.gap.unwrap_or_default().0, group.size);
        Sample { ln_gap: group.gap.map(|_| ln_gap), ln_size }
    };
    runs.iter().map(|run| run.iter().map(sample).collect()).collect()
}

fn measure(
    (window, span): (Micros, Option<Micros>),
    runs: &Runs,
    mut likelihood: Likelihood,
    arl: f64,
    seed: u64,
) -> Measure {
    let samples = samples(runs);
    likelihood.trust = Null::new(&likelihood, &samples).trust(arl, seed);
    let null = Null::new(&likelihood, &samples);
    let (curve, mean_ratio) = (null.full_curve(&likelihood.trust, seed), null.mean_ratio());
    Measure {
        window,
        span,
        curve: Arc::new(curve),
        groups: known(runs).count(),
        mean_ratio,
        arl: f64::INFINITY,
        threshold: f64::INFINITY,
        limit: f32::INFINITY,
        likelihood: Arc::new(likelihood),
    }
}

/// Which runs to keep, and whether so many would have to go that they are what is usual.
fn trim(fine: &Runs, coarse: &Runs, unit: Unit) -> (Vec<bool>, bool) {
    let mut kept = vec![true; fine.len()];
    for _ in 0..TRIM_ROUNDS {
        let before = kept.iter().filter(|kept| **kept).count();
        for scale in [fine, coarse] {
            let clean: Runs =
                scale.iter().zip(&kept).filter(|(_, kept)| **kept).map(|(run, _)| run.clone()).collect();
            let likelihood = likelihood(&clean, unit);
            let fence = (real(known(scale).count().max(1)) / TRIM_LEVEL).ln().max(TRIM_MIN);
            for (run, kept) in scale.iter().zip(&mut kept) {
                *kept = *kept && most(run, &likelihood) < fence;
            }
        }
        if kept.iter().filter(|kept| **kept).count() == before {
            break;
        }
    }
    let gone = kept.iter().filter(|kept| !**kept).count();
    let contaminated = real(gone) > TRIM_MAX * real(kept.len());
    (if contaminated { vec![true; fine.len()] } else { kept }, contaminated)
}

/// The largest statistic within a run.
fn most(run: &[Group], likelihood: &Likelihood) -> f64 {
    let (mut cusum, mut most) = (Cusum::default(), 0.0_f64);
    for group in run {
        if let Some(gap) = group.gap {
            cusum.push(&likelihood.ratios(logs(gap.0, group.size)));
            most = most.max(cusum.statistic(&likelihood.trust));
        }
    }
    most
}

/// Alarms of each scale, fine and coarse, in groups drawn from the runs that the model was made from.
pub(super) fn false_alarms(
    runs: &[&[Packed]],
    model: &BurstModel,
    coarse_groups: u64,
    seed: u64,
) -> [u64; 2] {
    let (fine, coarse) = scales(runs);
    let (kept, _) = trim(&fine, &coarse, model.unit());
    let take = |runs: &Runs| -> Runs {
        runs.iter().zip(&kept).filter(|(_, kept)| **kept).map(|(run, _)| run.clone()).collect()
    };
    let per_coarse = real(model.0.fine.groups) / real(model.0.coarse.groups.max(1));
    #[expect(
        clippy::cast_possible_truncation,
        clippy::cast_sign_loss,
        clippy::cast_precision_loss,
        reason = "numbers of simulated groups are far below 2^53"
    )]
    let fine_groups = (coarse_groups as f64 * per_coarse) as u64;
    let alarms = |measure: &Measure, runs: &Runs, groups, seed| {
        Null::new(&measure.likelihood, &samples(&take(runs))).alarms(measure.threshold, groups, seed)
    };
    [
        alarms(&model.0.fine, &fine, fine_groups, seed),
        alarms(&model.0.coarse, &coarse, coarse_groups, seed ^ 1),
    ]
}
