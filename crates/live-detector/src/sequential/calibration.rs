//! The threshold at which the mixture CUSUM has a wanted average run length (ARL), computed.
//!
//! In: a [`Mixture`], an ARL in observations. Out: a [`Threshold`] with the ARL it gives and the error of that
//! figure. The statistic has one coordinate per alternative, too many for a chain; but it starts afresh
//! whenever no alternative has evidence left, so by Wald's identity
//!
//! ARL = (1/p0 + mean length of an excursion after its first flag) / P(alarm in an excursion).
//!
//! The length is a plain simulated mean. The probability is tiny, so excursions are drawn from a mixture in
//! which the change has happened or happens after a while, and each alarm is weighted by the exact likelihood
//! ratio (importance sampling): the relative error hardly depends on the ARL, and one set of excursions
//! serves every threshold. With one alternative it is compared with the exact chain in the tests.
//!
//! All chance comes from a seed. The threshold is the smallest whose ARL is as wanted at two standard
//! errors below the estimate; it never exceeds the ARL itself, for which no simulation is needed (e-detectors,
//! arXiv 2203.03532, proposition 2.4).

use rand::{RngExt as _, SeedableRng as _};
use rand_chacha::ChaCha8Rng;

use super::e_detector::Mixture;

/// A threshold and what is known about it.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Threshold {
    /// Alarm when the logarithm of the statistic reaches this.
    pub ln: f64,
    /// Average run length at p0, observations: an estimate, at least the wanted one.
    pub arl: f64,
    /// Its relative standard error.
    pub relative_error: f64,
}

/// A simulated mean.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Estimate {
    /// The mean.
    pub mean: f64,
    /// Its standard error.
    pub error: f64,
}

/// Excursions drawn for one threshold: a relative error of about 1 %.
pub const EXCURSIONS: u32 = 20_000;

/// The threshold of the mixture CUSUM ([`Recursion::Cusum`](super::e_detector::Recursion)) for an ARL of `arl`
/// observations (at least 1), from `excursions` seeded excursions (at least 2).
pub fn threshold(mixture: &Mixture, arl: f64, excursions: u32, seed: u64) -> Threshold {
    let arl = arl.max(1.0);
    let excursions = excursions.max(2);
    // Should the first excursions mislead, all climbs are kept.
    from_excursions(mixture, arl, excursions, seed, PILOT)
        .or_else(|| from_excursions(mixture, arl, excursions, seed, excursions))
        .filter(|found| found.arl.is_finite())
        .unwrap_or(Threshold { ln: arl.ln(), arl, relative_error: 0.0 })
}

/// Excursions after which it is known where about the threshold lies.
const PILOT: u32 = 1_000;
/// How far below that place climbs are still kept: 3 in the logarithm, of which the pilot knows the second digit.
const MARGIN: f64 = 0.05;

/// The threshold, with climbs far below the estimate of the first `pilot` excursions left out: they are most of the
/// climbs and say nothing of the threshold. `None` when it may lie among them.
fn from_excursions(mixture: &Mixture, arl: f64, excursions: u32, seed: u64, pilot: u32) -> Option<Threshold> {
    let mut rng = ChaCha8Rng::seed_from_u64(seed);
    let length = lengths(mixture, arl, excursions, &mut rng);
    let proposal = Proposal::new(mixture, length.mean);
    let cycle = Cycle { mean: 1.0 / mixture.p0() + length.mean, error: length.error, arl };
    let mut climbs = Climbs::default();
    for drawn in 0..excursions {
        if drawn == pilot {
            let level = cycle.search(climbs.clone(), 0.0, drawn).ln.exp();
            climbs.forget(MARGIN * level);
        }
        proposal.excursion(mixture, arl, &mut climbs, &mut rng);
    }
    let floor = climbs.floor;
    let is_above_floor =
        floor == 0.0 || !cycle.is_enough(&cycle.estimate(&climbs, floor.next_up(), excursions));
    is_above_floor.then(|| cycle.search(climbs, floor, excursions))
}

/// A renewal cycle: the wait for a flag and the excursion that it begins.
struct Cycle {
    mean: f64,
    /// Standard error of the mean.
    error: f64,
    /// The ARL that is asked for.
    arl: f64,
}

impl Cycle {
    fn estimate(&self, climbs: &Climbs, level: f64, excursions: u32) -> Threshold {
        let alarm = climbs.alarm(level, excursions);
        let relative_error = (alarm.error / alarm.mean).hypot(self.error / self.mean);
        Threshold { ln: level.ln(), arl: self.mean / alarm.mean, relative_error }
    }

    fn is_enough(&self, at: &Threshold) -> bool {
        at.arl * (1.0 - 2.0 * at.relative_error) >= self.arl
    }

    /// The lowest level above `floor` that is enough.
    fn search(&self, mut climbs: Climbs, floor: f64, excursions: u32) -> Threshold {
        let (mut low, mut high) = (0.0, self.arl.ln());
        // 50 halvings: to the resolution of the numbers.
        for _ in 0..50 {
            let middle = f64::midpoint(low, high);
            let level = f64::exp(middle);
            if level > floor && self.is_enough(&self.estimate(&climbs, level, excursions)) {
                high = middle;
            } else {
                low = middle;
            }
            climbs.narrow(low.exp(), high.exp());
        }
        self.estimate(&climbs, high.exp(), excursions)
    }
}

/// Mean observations to the alarm of the mixture CUSUM from a fresh start, when flags have probability `p`, over
/// `runs` seeded runs (at least 2).
pub fn run_length(mixture: &Mixture, ln_threshold: f64, p: f64, runs: u32, seed: u64) -> Estimate {
    let mut rng = ChaCha8Rng::seed_from_u64(seed);
    let level = ln_threshold.exp();
    let mut evidence = Evidence::new(mixture);
    Mean::of(runs.max(2), || {
        evidence.clear();
        let mut n = 0;
        loop {
            let misses = geometric(p, &mut rng);
            n += misses + 1;
            evidence.misses(misses);
            if evidence.hit() >= level {
                return real(n);
            }
        }
    })
}

/// The evidence per alternative: what an [`EDetector`](super::e_detector::EDetector) holds, but a run of
/// misses is taken in at once.
struct Evidence<'a> {
    mixture: &'a Mixture,
    values: Vec<f64>,
    /// Loss of ln evidence per miss.
    decay: Vec<f64>,
}

impl<'a> Evidence<'a> {
    fn new(mixture: &'a Mixture) -> Self {
        let decay = mixture.alternatives().iter().map(|alternative| -alternative.miss.ln()).collect();
        Self { mixture, values: vec![1.0; mixture.alternatives().len()], decay }
    }

    fn clear(&mut self) {
        self.values.fill(1.0);
    }

    /// Misses after which no evidence is left.
    fn lifetime(&self) -> u64 {
        let lives = self.values.iter().zip(&self.decay).map(|(value, decay)| value.ln() / decay);
        whole(lives.fold(0.0, f64::max).ceil())
    }

    fn misses(&mut self, n: u64) {
        for (value, decay) in self.values.iter_mut().zip(&self.decay) {
            *value = (*value * (-real(n) * decay).exp()).max(1.0);
        }
    }

    /// Takes a flag in and returns the statistic.
    fn hit(&mut self) -> f64 {
        let mut statistic = 0.0;
        for (value, alternative) in self.values.iter_mut().zip(self.mixture.alternatives()) {
            *value *= alternative.hit;
            statistic += alternative.weight * *value;
        }
        statistic
    }
}

/// Mean length of an excursion at p0, observations after its first flag, no longer than to `level`.
fn lengths(mixture: &Mixture, level: f64, excursions: u32, rng: &mut ChaCha8Rng) -> Estimate {
    let mut evidence = Evidence::new(mixture);
    Mean::of(excursions, || {
        evidence.clear();
        let mut length = 0;
        while evidence.hit() < level {
            let (misses, lifetime) = (geometric(mixture.p0(), rng), evidence.lifetime());
            if misses >= lifetime {
                length += lifetime;
                break;
            }
            length += misses + 1;
            evidence.misses(misses);
        }
        real(length)
    })
}

/// Where excursions that matter are drawn from: an alternative that holds from the first flag on (half of
/// them), or from a geometric time on.
struct Proposal {
    /// Chance of each alternative: half by weight, half evenly, because rare ones must be tried too.
    chances: Vec<f64>,
    /// Chance per observation that the change comes, in the second half.
    hazard: f64,
}

impl Proposal {
    fn new(mixture: &Mixture, length: f64) -> Self {
        let alternatives = mixture.alternatives();
        let even = 1.0 / alternatives.iter().map(|_| 1.0).sum::<f64>();
        let chances =
            alternatives.iter().map(|alternative| f64::midpoint(alternative.weight, even)).collect();
        Self { chances, hazard: 1.0 / (length + 1.0) }
    }

    /// Draws one excursion until it ends or reaches `most`, and notes each new height of the statistic with
    /// the likelihood ratio of p0 against this proposal at that moment.
    fn excursion(&self, mixture: &Mixture, most: f64, climbs: &mut Climbs, rng: &mut ChaCha8Rng) {
        let p1 = self.draw(mixture, rng);
        let change = if rng.random::<bool>() { 0 } else { geometric(self.hazard, rng) };
        let mut evidence = Evidence::new(mixture);
        let mut ratio = Ratio::new(self);
        let mut height = evidence.hit();
        climbs.note(0.0, height, 1.0);
        let mut n = 0;
        while height < most {
            let misses = gap(n, change, mixture.p0(), p1, rng);
            if misses >= evidence.lifetime() {
                return;
            }
            n += misses + 1;
            evidence.misses(misses);
            ratio.step(self, mixture, misses);
            let reached = evidence.hit();
            if reached > height {
                climbs.note(height, reached, 1.0 / ratio.value());
                height = reached;
            }
        }
    }

    fn draw(&self, mixture: &Mixture, rng: &mut ChaCha8Rng) -> f64 {
        let mut left: f64 = rng.random();
        let mut drawn = mixture.p0();
        for (alternative, chance) in mixture.alternatives().iter().zip(&self.chances) {
            drawn = alternative.p1;
            left -= chance;
            if left <= 0.0 {
                break;
            }
        }
        drawn
    }
}

/// Misses before the next flag after `n` observations, when flags change from `p0` to `p1` after `change`.
fn gap(n: u64, change: u64, p0: f64, p1: f64, rng: &mut ChaCha8Rng) -> u64 {
    let innocent = change.saturating_sub(n);
    let misses = if innocent > 0 { geometric(p0, rng) } else { 0 };
    if misses < innocent { misses } else { innocent + geometric(p1, rng) }
}

/// Likelihood ratio of the proposal against p0 along one excursion. Per alternative one sum over the times at
/// which the change may have come; besides, the chance that it has not come yet.
struct Ratio {
    changed: Vec<f64>,
    /// (1 − hazard)^n
    unchanged: f64,
}

impl Ratio {
    fn new(proposal: &Proposal) -> Self {
        Self { changed: proposal.chances.iter().map(|chance| 0.5 * chance).collect(), unchanged: 1.0 }
    }

    /// Takes in `misses` and the flag after them. Per observation with likelihood ratio L:
    /// changed ← (changed + ½ · chance · hazard · unchanged) · L, unchanged ← unchanged · (1 − hazard).
    fn step(&mut self, proposal: &Proposal, mixture: &Mixture, misses: u64) {
        let (misses, keep) = (real(misses), 1.0 - proposal.hazard);
        let kept = keep.powf(misses);
        let arriving = 0.5 * proposal.hazard * self.unchanged;
        let each = self.changed.iter_mut().zip(&proposal.chances).zip(mixture.alternatives());
        for ((changed, chance), alternative) in each {
            let miss = alternative.miss;
            let missed = miss.powf(misses);
            // Sum over i of keep^i · miss^(misses − i), i from 0 to misses − 1.
            let series = if (keep - miss).abs() < 1e-9 * keep {
                misses * missed
            } else {
                miss * (kept - missed) / (keep - miss)
            };
            let before = *changed * missed + arriving * chance * series;
            *changed = (before + arriving * chance * kept) * alternative.hit;
        }
        self.unchanged *= kept * keep;
    }

    fn value(&self) -> f64 {
        self.changed.iter().sum::<f64>() + 0.5 * self.unchanged
    }
}

/// New heights of the statistic: a threshold above `from` and up to `to` alarms at this moment.
#[derive(Clone, Default)]
struct Climbs {
    /// From, to, weight.
    open: Vec<[f64; 3]>,
    /// Levels up to this one are not asked for.
    floor: f64,
    /// Sum of the weights, and of their squares, of those that hold every level still asked for.
    settled: [f64; 2],
}

impl Climbs {
    fn note(&mut self, from: f64, to: f64, weight: f64) {
        if to > self.floor {
            self.open.push([from, to, weight]);
        }
    }

    /// Levels up to `floor` will not be asked for.
    fn forget(&mut self, floor: f64) {
        self.floor = floor;
        self.open.retain(|[_, to, _]| *to > floor);
    }

    /// From now on only levels above `low` and up to `high` are asked for: most climbs hold all of these or none.
    fn narrow(&mut self, low: f64, high: f64) {
        let Self { open, settled: [sum, squares], .. } = self;
        open.retain(|&[from, to, weight]| {
            let holds_all = from <= low && high <= to;
            if holds_all {
                (*sum, *squares) = (*sum + weight, *squares + weight * weight);
            }
            !holds_all && from < high && low < to
        });
    }

    /// Probability at p0 that an excursion reaches `level`: each of `excursions` has at most one weight there.
    fn alarm(&self, level: f64, excursions: u32) -> Estimate {
        let weights =
            self.open.iter().filter(|[from, to, _]| *from < level && level <= *to).map(|climb| climb[2]);
        let [sum, squares] = self.settled;
        let (sum, squares) = weights.fold((sum, squares), |(sum, squares), w| (sum + w, squares + w * w));
        Mean { n: f64::from(excursions), sum, squares }.estimate()
    }
}

struct Mean {
    n: f64,
    sum: f64,
    squares: f64,
}

impl Mean {
    fn of(n: u32, mut draw: impl FnMut() -> f64) -> Estimate {
        let (mut sum, mut squares) = (0.0, 0.0);
        for _ in 0..n {
            let value = draw();
            sum += value;
            squares += value * value;
        }
        Self { n: f64::from(n), sum, squares }.estimate()
    }

    fn estimate(&self) -> Estimate {
        let mean = self.sum / self.n;
        let variance = (self.squares / self.n - mean * mean).max(0.0);
        Estimate { mean, error: (variance / (self.n - 1.0)).sqrt() }
    }
}

/// Failures before the first success of probability `p`, by inversion.
fn geometric(p: f64, rng: &mut ChaCha8Rng) -> u64 {
    let unit: f64 = 1.0 - rng.random::<f64>();
    whole(unit.ln() / (-p).ln_1p())
}

#[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "a count; saturates at 2^64")]
fn whole(count: f64) -> u64 {
    count as u64
}

#[expect(clippy::cast_precision_loss, reason = "counts of observations are far below 2^53")]
fn real(count: u64) -> f64 {
    count as f64
}

#[cfg(test)]
mod tests {
    use super::super::e_detector::{EDetector, Recursion};
    use super::super::markov::{Limit, OracleCusum};
    use super::*;

    fn mixture(p0: f64, alternatives: &[(f64, f64)]) -> Mixture {
        Mixture::new(p0, alternatives).unwrap()
    }

    /// With one alternative the statistic is the oracle's CUSUM, whose ARL is exact. Its limit stands between
    /// two whole steps, where both are the same rule.
    #[test]
    fn the_arl_of_one_alternative_is_the_exact_one() {
        for (p0, p1, about, seed) in [(0.01, 0.1, 1e4, 1), (0.001, 0.05, 2e4, 2), (0.2, 0.8, 300.0, 3)] {
            let oracle = OracleCusum::new(p0, p1).unwrap();
            let steps = oracle.limit(about).steps;
            let exact = oracle.run_length(Limit { steps, boundary: 0.0 }, p0);
            let level = oracle.ln_above(steps);
            let mixture = mixture(p0, &[(p1, 1.0)]);
            let plain = run_length(&mixture, level, p0, 400, seed);
            assert!((plain.mean - exact).abs() < 4.0 * plain.error, "{p0} {p1}: {exact}, plain {plain:?}");
            let got = threshold(&mixture, exact, 4_000, seed);
            // Steps: the next lower limit must not do, this one must.
            let at = oracle.run_length(Limit { steps: oracle.steps_below(got.ln), boundary: 0.0 }, p0);
            let slack = 4.0 * got.relative_error + 0.01;
            assert!((got.arl / at - 1.0).abs() < slack, "{p0} {p1}: exact {at}, got {got:?}");
            assert!(got.relative_error < 0.05, "{got:?}");
        }
    }

    /// Weighted excursions and plain runs agree, at a threshold that plain runs can reach.
    #[test]
    fn the_arl_of_a_mixture_is_that_of_plain_runs() {
        let mixture = mixture(0.01, &[(0.1, 0.8), (0.3, 0.15), (0.8, 0.05)]);
        let got = threshold(&mixture, 20_000.0, 4_000, 4);
        let plain = run_length(&mixture, got.ln, 0.01, 400, 5);
        let error = plain.error.hypot(got.arl * got.relative_error);
        assert!((plain.mean - got.arl).abs() < 4.0 * error, "{plain:?} {got:?}");
        assert!(got.arl >= 20_000.0 && got.ln < 20_000_f64.ln(), "{got:?}");
    }

    /// The fast runs and the detector that takes flags one by one alarm at the same observation.
    #[test]
    fn runs_of_misses_are_what_the_detector_sees() {
        let mixture = mixture(0.02, &[(0.1, 0.5), (0.6, 0.5)]);
        let mut rng = ChaCha8Rng::seed_from_u64(6);
        let mut evidence = Evidence::new(&mixture);
        let mut detector = EDetector::new(mixture.clone(), Recursion::Cusum);
        for _ in 0..300 {
            let misses = geometric(0.1, &mut rng);
            for _ in 0..misses {
                detector.push(false);
            }
            evidence.misses(misses);
            let (fast, slow) = (evidence.hit().ln(), detector.push(true));
            assert!((fast - slow).abs() < 1e-9, "{fast} {slow}");
        }
    }

    /// A month at ten observations a second: far beyond plain runs, as cheap as any other.
    #[test]
    fn long_run_lengths_have_the_same_error() {
        let mixture = mixture(0.001, &[(0.01, 0.7), (0.06, 0.2), (0.5, 0.1)]);
        let [short, long] = [1e5, 2.592e7].map(|arl| threshold(&mixture, arl, 4_000, 7));
        assert!(long.ln > short.ln && long.ln < 2.592e7_f64.ln(), "{short:?} {long:?}");
        assert!(long.relative_error < 0.06, "{long:?}");
        assert_eq!(long, threshold(&mixture, 2.592e7, 4_000, 7), "a seed is a threshold");
    }

    /// What is forgotten says nothing of the threshold.
    #[test]
    fn climbs_far_below_the_threshold_are_not_needed() {
        let mixture = mixture(0.001, &[(0.01, 0.7), (0.06, 0.2), (0.5, 0.1)]);
        for arl in [1e4, 1e6, 2.592e7] {
            let [few, all] = [PILOT, 4_000].map(|pilot| from_excursions(&mixture, arl, 4_000, 8, pilot));
            let (few, all) = (few.expect("the pilot was right"), all.expect("nothing was forgotten"));
            assert!((few.ln - all.ln).abs() < 1e-9, "{few:?} {all:?}");
            assert!((few.relative_error / all.relative_error - 1.0).abs() < 1e-6, "{few:?} {all:?}");
        }
    }
}
