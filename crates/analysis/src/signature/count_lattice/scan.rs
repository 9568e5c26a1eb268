//! Finds the lattice: every step and offset is tried, none is known beforehand.

use super::alignment;
use super::background::Background;
use super::{Count, Lattice};
use crate::stats::{fdr, real, tail};

/// Steps that are tried. Scanning from 2 or up to 2,200 gave the same answers on all real batches.
pub(crate) const STEPS: std::ops::RangeInclusive<u32> = 40..=1_100;
/// Chance that a batch without a lattice reaches the threshold.
const ALPHA: f64 = 0.01;
/// A lattice must hold this many times more counts than the background explains.
const MIN_RATIO: f64 = 3.0;
/// … and this many of its values must stand out by themselves, at this false-discovery rate.
const MIN_VALUES: usize = 2;
const MAX_Q: f64 = 0.05;
/// Smallest reporting unit that can be told from chance by the ratio above (a unit of 2 reaches 2).
const SMALLEST_UNIT: u32 = 4;

/// Number of (step, offset) pairs that are tried.
pub(crate) fn hypotheses() -> f64 {
    STEPS.map(f64::from).sum()
}

/// Robust log-likelihood ratio that a lattice must reach.
pub(crate) fn threshold() -> f64 {
    (hypotheses() / ALPHA).ln()
}

/// How well one lattice explains the counts.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct Fit {
    pub(crate) lattice: Lattice,
    /// Counts on it.
    pub(crate) hits: u64,
    /// Counts that the background puts on it.
    pub(crate) expected: f64,
    /// Log-likelihood ratio without the point that stands out most: one popular value is no lattice.
    pub(crate) llr: f64,
}

/// Counts with their background, ready to be asked about lattices.
#[derive(Debug)]
pub(crate) struct Scan<'a> {
    counts: &'a [Count],
    background: &'a Background,
    largest: u32,
}

impl<'a> Scan<'a> {
    /// Takes ascending counts.
    pub(crate) fn new(counts: &'a [Count], background: &'a Background) -> Self {
        Self { counts, background, largest: counts.last().map_or(0, |c| c.value) }
    }

    /// The lattice that explains the counts best, harmonics and units resolved; `None` when no lattice
    /// holds three counts beside its strongest value.
    pub(crate) fn best(&self) -> Option<Fit> {
        let strongest = self.fit(self.strongest()?);
        let resolved = self.largest_step(strongest);
        Some(self.smallest_unit(resolved))
    }

    /// The highest robust log-likelihood ratio over all steps and offsets.
    pub(crate) fn strongest(&self) -> Option<Lattice> {
        let mut best = (0.0, None);
        let mut residues = Vec::new();
        for step in STEPS {
            residues.clear();
            residues.resize(step as usize, Residue::default());
            for count in self.counts {
                residues[(count.value % step) as usize].add(count.count, self.background.at(count.value));
            }
            for (residue, seen) in (0..step).zip(&residues) {
                if seen.hits - seen.top_hits < 3 {
                    continue;
                }
                let expected = self.background.along(residue, step, self.largest);
                let llr = seen.robust_llr(expected, self.background.n());
                if llr > best.0 {
                    best = (llr, Some(Lattice::new(step, residue)));
                }
            }
        }
        best.1
    }

    /// How well `lattice` explains the counts.
    pub(crate) fn fit(&self, lattice: Lattice) -> Fit {
        let mut seen = Residue::default();
        for count in self.on(lattice) {
            seen.add(count.count, self.background.at(count.value));
        }
        let expected = self.background.along(lattice.offset, lattice.step, self.largest);
        Fit { lattice, hits: seen.hits, expected, llr: seen.robust_llr(expected, self.background.n()) }
    }

    /// Whether `fit` is a lattice: counts that pile up on it, at values that share it by more than chance.
    pub(crate) fn stands(&self, fit: &Fit) -> bool {
        self.piles_up(fit) && alignment::chance(self.counts, self.background, fit.lattice) <= ALPHA
    }

    /// Threshold, ratio, and enough values that stand out.
    pub(crate) fn piles_up(&self, fit: &Fit) -> bool {
        fit.llr >= threshold()
            && real(fit.hits) >= MIN_RATIO * fit.expected
            && self.outstanding(fit.lattice).len() >= MIN_VALUES
    }

    /// Values of `lattice` that hold more counts than the background explains.
    pub(crate) fn outstanding(&self, lattice: Lattice) -> Vec<u32> {
        let values: Vec<u32> = lattice.values_up_to(self.largest).collect();
        let mut on = self.on(lattice).peekable();
        let hits_and_expected: Vec<(u64, f64)> = values
            .iter()
            .map(|&value| {
                let hit = on.next_if(|c| c.value == value).map_or(0, |c| c.count);
                (hit, self.background.at(value))
            })
            .collect();
        let stands_out = outstanding(&hits_and_expected);
        values.into_iter().zip(stands_out).filter(|v| v.1).map(|v| v.0).collect()
    }

    fn on(&self, lattice: Lattice) -> impl Iterator<Item = &Count> {
        self.counts.iter().filter(move |c| lattice.holds(c.value))
    }

    /// 518 and not 259: the largest multiple of the step whose left-out values hold no more than the
    /// background explains.
    fn largest_step(&self, fit: Fit) -> Fit {
        let step = fit.lattice.step;
        let keeps = |coarser: &Fit| {
            let left_out =
                tail::ln_poisson(fit.hits - coarser.hits, (fit.expected - coarser.expected).max(0.0));
            left_out > MAX_Q.ln() && coarser.llr >= fit.llr.min(threshold())
        };
        (2..=*STEPS.end() / step)
            .rev()
            .find_map(|times| {
                (0..times)
                    .map(|tier| self.fit(Lattice::new(step * times, fit.lattice.offset + tier * step)))
                    .filter(keeps)
                    .max_by(|a, b| a.llr.total_cmp(&b.llr))
            })
            .unwrap_or(fit)
    }

    /// A unit under the scanned steps (say 32) shows up as one of its multiples (64, offset 32). It is
    /// told by the counts *off* the found lattice: they are multiples of the unit too.
    fn smallest_unit(&self, fit: Fit) -> Fit {
        let Lattice { step, offset } = fit.lattice;
        let common = greatest_common_divisor(step, offset);
        let explains_the_rest = |unit: &Fit| {
            let hits = unit.hits - fit.hits;
            let expected = (unit.expected - fit.expected).max(0.0);
            hits >= 3
                && real(hits) >= MIN_RATIO * expected
                && tail::ln_poisson(hits, expected) <= -threshold()
        };
        (SMALLEST_UNIT..=common)
            .filter(|unit| common.is_multiple_of(*unit) && *unit < step)
            .map(|unit| self.fit(Lattice::new(unit, 0)))
            .filter(explains_the_rest)
            .max_by(|a, b| a.llr.total_cmp(&b.llr))
            .unwrap_or(fit)
    }
}

/// Which of these (hits, expected) stand out, Benjamini–Hochberg over all of them.
pub(crate) fn outstanding(hits_and_expected: &[(u64, f64)]) -> Vec<bool> {
    let p: Vec<f64> =
        hits_and_expected.iter().map(|&(hits, expected)| tail::ln_poisson(hits, expected).exp()).collect();
    fdr::benjamini_hochberg(&p).into_iter().map(|q| q <= MAX_Q).collect()
}

/// Whether hits on a lattice would pass for one, were it the one that the scan looks at.
pub(crate) fn would_stand(hits_and_expected: &[(u64, f64)], n: u64) -> bool {
    let mut seen = Residue::default();
    let mut expected = 0.0;
    for &(hits, at) in hits_and_expected {
        seen.add(hits, at);
        expected += at;
    }
    seen.robust_llr(expected, n) >= threshold()
        && real(seen.hits) >= MIN_RATIO * expected
        && outstanding(hits_and_expected).into_iter().filter(|&out| out).count() >= MIN_VALUES
}

/// Counts on one residue of one step.
#[derive(Clone, Copy, Debug, Default)]
struct Residue {
    hits: u64,
    /// The value that stands out most: its counts …
    top_hits: u64,
    /// … and what the background puts there.
    top_expected: f64,
}

impl Residue {
    fn add(&mut self, hits: u64, expected: f64) {
        self.hits += hits;
        if real(hits) - expected > real(self.top_hits) - self.top_expected {
            self.top_hits = hits;
            self.top_expected = expected;
        }
    }

    /// Bernoulli log-likelihood ratio of the hits without the top value; 0 under three hits or two
    /// standard deviations, where it means nothing.
    fn robust_llr(&self, expected: f64, n: u64) -> f64 {
        let hits = real(self.hits - self.top_hits);
        let expected = expected - self.top_expected;
        if hits < 3.0 || hits < expected + 2.0 * expected.max(0.0).sqrt() {
            return 0.0;
        }
        let n = real(n);
        let (seen, background) = (hits / n, (expected / n).max(1e-9));
        if seen >= 1.0 {
            return hits * (1.0 / background).ln();
        }
        hits * (seen / background).ln() + (n - hits) * ((1.0 - seen) / (1.0 - background)).ln()
    }
}

fn greatest_common_divisor(a: u32, b: u32) -> u32 {
    if b == 0 { a } else { greatest_common_divisor(b, a % b) }
}
