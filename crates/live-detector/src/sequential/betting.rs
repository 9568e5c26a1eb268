//! Bets on token counts: do they stop exactly on a lattice more often than their neighbours?
//!
//! In: counts of reasoning tokens, one by one. Out: evidence, and the lattice it is about. A count within
//! 25 tokens of a lattice value is a trial; exactly on the value is a success. Where counts are locally flat a
//! value holds 1 in 51 of its neighbourhood; the null allows 50 % more. No background is fitted, so there is
//! none to be wrong.
//!
//! [`LatticeBet`] knows the lattice (518n − 2 is the field's). [`LatticeSearch`] does not: every 500 counts
//! the offline scan proposes one from the last 2,000, and only counts that come *afterwards* are bet on, so
//! the evidence stays valid whatever is proposed. Proposals cost a scan of all steps and offsets (tens of
//! milliseconds), bets a few multiplications.
//!
//! Source of the figures: simulations on log-normal, bimodal and heaped counts, repeated in the tests.

use std::collections::{BTreeMap, VecDeque};

use sseismo_analysis::signature::count_lattice::{self, Lattice};

use super::e_detector::{EDetector, Mixture, Recursion};

/// Counts no farther than this from a lattice value are trials.
const REACH: u32 = 25;
/// How much more than its share a value may hold in innocent counts.
const SLACK: f64 = 1.5;
/// Success probabilities that are bet on, equally.
const BETS: [f64; 6] = [0.03, 0.06, 0.12, 0.25, 0.5, 0.8];
/// Counts from one proposal to the next.
const EVERY: usize = 500;
/// Counts that a proposal looks back on.
pub(crate) const LOOK_BACK: usize = 2_000;

/// Evidence on one lattice that is known beforehand.
#[derive(Clone, Debug)]
pub struct LatticeBet {
    lattice: Lattice,
    always: EDetector,
    change: EDetector,
    trials: u64,
    hits: u64,
}

impl LatticeBet {
    /// Bets on `lattice`.
    pub fn new(lattice: Lattice) -> Self {
        let mixture = mixture(lattice);
        Self {
            lattice,
            always: EDetector::new(mixture.clone(), Recursion::Product),
            change: EDetector::new(mixture, Recursion::ShiryaevRoberts),
            trials: 0,
            hits: 0,
        }
    }

    /// Takes a positive count in; whether it was a trial.
    pub fn push(&mut self, count: u32) -> bool {
        let Some(hit) = trial(self.lattice, count) else { return false };
        self.always.push(hit);
        self.change.push(hit);
        self.trials += 1;
        self.hits += u64::from(hit);
        true
    }

    /// The lattice.
    pub fn lattice(&self) -> Lattice {
        self.lattice
    }

    /// Logarithm of the e-process "the lattice was there from the start": reaches ln(1/α) by chance with a
    /// probability of at most α, however long one looks.
    pub fn ln_always(&self) -> f64 {
        self.always.ln_statistic()
    }

    /// Logarithm of the e-detector "the lattice appeared at some time" (Shiryaev–Roberts): reaches ln A by
    /// chance not more often than every A trials.
    pub fn ln_change(&self) -> f64 {
        self.change.ln_statistic()
    }

    /// Trials so far, and how many were exactly on the lattice.
    pub fn seen(&self) -> (u64, u64) {
        (self.trials, self.hits)
    }
}

/// Evidence on lattices that nobody knew.
#[derive(Clone, Debug)]
pub struct LatticeSearch {
    recent: VecDeque<u32>,
    since_proposal: usize,
    proposal: Option<Lattice>,
    evidence: EDetector,
}

impl Default for LatticeSearch {
    fn default() -> Self {
        let evidence = EDetector::new(Mixture::equal_bets(0.5, &BETS), Recursion::Product);
        Self { recent: VecDeque::with_capacity(LOOK_BACK), since_proposal: 0, proposal: None, evidence }
    }
}

impl LatticeSearch {
    /// Takes a positive count in: bets on it, then remembers it, and proposes anew when it is time.
    pub fn push(&mut self, count: u32) {
        if let Some(counts) = self.bet(count) {
            self.propose(find(&counts));
        }
    }

    /// Takes a positive count in without proposing: the counts to search when it is time to.
    pub(crate) fn bet(&mut self, count: u32) -> Option<Vec<u32>> {
        if let Some(hit) = self.proposal.and_then(|lattice| trial(lattice, count)) {
            self.evidence.push(hit);
        }
        if self.recent.len() == LOOK_BACK {
            self.recent.pop_front();
        }
        self.recent.push_back(count);
        self.since_proposal += 1;
        if self.since_proposal < EVERY {
            return None;
        }
        self.since_proposal = 0;
        Some(self.recent.iter().copied().collect())
    }

    /// Bets on `lattice` from now on.
    pub(crate) fn propose(&mut self, lattice: Option<Lattice>) {
        self.proposal = lattice;
        if let Some(lattice) = lattice {
            self.evidence.bet_on(mixture(lattice));
        }
    }

    /// The lattice that is bet on now.
    pub fn proposal(&self) -> Option<Lattice> {
        self.proposal
    }

    /// Logarithm of the e-process over all bets, whatever the lattices: reaches ln(1/α) by chance with a
    /// probability of at most α.
    pub fn ln_always(&self) -> f64 {
        self.evidence.ln_statistic()
    }
}

/// The lattice of some counts, as the offline scan sees it.
pub(crate) fn find(counts: &[u32]) -> Option<Lattice> {
    let mut histogram = BTreeMap::new();
    for &count in counts {
        *histogram.entry(count).or_insert(0_u64) += 1;
    }
    count_lattice::find(&histogram)
}

/// Farthest distance at which a count belongs to one lattice value alone.
fn reach(step: u32) -> u32 {
    REACH.min(step.saturating_sub(1) / 2)
}

fn mixture(lattice: Lattice) -> Mixture {
    let neighbours = f64::from(2 * reach(lattice.step) + 1);
    Mixture::equal_bets((SLACK / neighbours).min(0.5), &BETS)
}

/// Whether `count` is a trial, and then whether it is a success.
fn trial(lattice: Lattice, count: u32) -> Option<bool> {
    let reach = reach(lattice.step);
    if count.saturating_add(reach) < lattice.offset {
        return None;
    }
    let past =
        (u64::from(count) + u64::from(lattice.step) - u64::from(lattice.offset)) % u64::from(lattice.step);
    let distance = past.min(u64::from(lattice.step) - past);
    (distance <= u64::from(reach)).then_some(distance == 0)
}

#[cfg(test)]
mod tests {
    use sseismo_analysis::signature::count_lattice::FIELD;
    use sseismo_simulator::counts::{self, Background, counts};

    use super::*;

    const BACKGROUNDS: [Background; 3] =
        [Background::LogNormal, Background::Bimodal, Background::Heaped { unit: 100, share: 0.03 }];

    fn on(mass: f64) -> counts::Lattice {
        counts::Lattice { step: 518, offset: 516, mass, stop: 0.4 }
    }

    #[test]
    fn a_trial_is_near_and_a_success_is_exact() {
        for (count, wanted) in [
            (516, Some(true)),
            (1_034, Some(true)),
            (491, Some(false)),
            (541, Some(false)),
            (490, None),
            (542, None),
            (1, None),
            (518 * 7 - 2, Some(true)),
        ] {
            assert_eq!(trial(FIELD, count), wanted, "{count}");
        }
        let small = Lattice { step: 40, offset: 40 };
        assert_eq!((1..=40).filter(|count| trial(small, *count).is_some()).count(), 20 + 19 - 19);
    }

    /// Simulated elsewhere at α = 0.01: medians of 56, 10 and 2 counts at 5 %, 20 % and 80 % of the counts on
    /// the lattice; here within a factor of 1.5 or two counts over 41 seeds.
    #[test]
    fn a_known_lattice_is_seen_as_soon_as_simulated_elsewhere() {
        for (mass, about) in [(0.05, 56.0), (0.2, 10.0), (0.8, 2.0)] {
            let mut needed: Vec<usize> = (0..41)
                .map(|seed| {
                    let mut bet = LatticeBet::new(FIELD);
                    let counts = counts(seed, 5_000, Background::LogNormal, Some(on(mass)));
                    let found = counts.iter().position(|count| {
                        bet.push(*count);
                        bet.ln_always() >= 100_f64.ln()
                    });
                    found.map_or(usize::MAX, |at| at + 1)
                })
                .collect();
            needed.sort_unstable();
            let median = f64::from(u32::try_from(needed[20]).unwrap());
            assert!(median <= (about * 1.5_f64).max(about + 2.0), "{mass}: {median}, about {about}");
        }
    }

    /// 60 innocent streams of 5,000 counts, three shapes: none reaches 100.
    #[test]
    fn innocent_counts_do_not_pay() {
        for background in BACKGROUNDS {
            for seed in 0..20 {
                let mut bet = LatticeBet::new(FIELD);
                for count in counts(seed, 5_000, background, None) {
                    bet.push(count);
                    assert!(bet.ln_always() < 100_f64.ln(), "{background:?} {seed}");
                }
            }
        }
    }

    /// A lattice that appears after 2,000 counts: the evidence for a change outruns the product, which first
    /// has to win back what it lost.
    #[test]
    fn a_lattice_that_appears_later_is_seen_as_a_change() {
        let mut bet = LatticeBet::new(FIELD);
        for count in counts(1, 2_000, Background::LogNormal, None) {
            bet.push(count);
        }
        let after = counts(2, 500, Background::LogNormal, Some(on(0.2))).into_iter().position(|count| {
            bet.push(count);
            bet.ln_change() >= 1e6_f64.ln()
        });
        assert!(after.is_some_and(|after| after < 100), "{after:?}");
        let (trials, hits) = bet.seen();
        assert!(hits < trials && bet.ln_always() < bet.ln_change());
    }

    #[test]
    fn an_unknown_lattice_is_proposed_and_then_bet_on() {
        let mut search = LatticeSearch::default();
        let found = counts(3, 3_000, Background::LogNormal, Some(on(0.05))).into_iter().position(|count| {
            search.push(count);
            search.ln_always() >= 100_f64.ln()
        });
        assert!(found.is_some_and(|at| at >= EVERY), "{found:?}: nothing was bet before the first proposal");
        assert_eq!(search.proposal(), Some(FIELD));
    }

    #[test]
    fn innocent_counts_give_a_search_nothing_to_win() {
        let mut search = LatticeSearch::default();
        for count in counts(4, 2_500, Background::Bimodal, None) {
            search.push(count);
            assert!(search.ln_always() < 100_f64.ln());
        }
    }
}
