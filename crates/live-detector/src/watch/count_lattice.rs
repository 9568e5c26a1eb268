//! `count-lattice`: reasoning-token counts pile up at step·n + offset.
//!
//! Bets on counts that are still to come ([`crate::sequential::betting`]): on the lattice that the field knows
//! (518n−2), and on whatever the offline scan proposes from the last 2,000 counts. No healthy time is needed: a
//! lattice value is compared with its neighbours.
//!
//! **Informs, and moves no traffic**: counts alone do not show that answers are worse. The signal says so.
//! **Not signalled**: multiples of a unit (offset 0), which are how a provider reports or how people round;
//! fractions, which are estimates; answers that a proxy folded.
//! **Threshold**: the average run length itself, for which the claim is proved: in trials (counts within 25
//! tokens of a value) for the known lattice, which may have appeared at any time; in counts for the others, of
//! which a false one is then ever proposed and believed with at most one chance in that number.
//! **Clear**: the mirror image, a CUSUM for the neighbourhood's share of hits against half the raised one.

use serde_json::Value;
use sseismo_analysis::signature::count_lattice::{FIELD, Lattice, whole_count};
use sseismo_trace::{Detail, Evidence, Micros, UtcMicros};

use super::{Alarm, Call, Standing, Watch};
use crate::Options;
use crate::baseline::Kept;
use crate::budget::{Budget, Share};
use crate::job::{Outcome, Task};
use crate::sequence::{Hits, Pace};
use crate::sequential::betting::{LOOK_BACK, LatticeBet, LatticeSearch};
use crate::view::Figure;

/// Statistics that share the budget.
const STATISTICS: u64 = 2;
/// Share of hits among trials under health, at most: 1.5 of 51 neighbours.
const NULL: f64 = 1.5 / 51.0;
/// ln 1000: cleared when health is a thousand times likelier.
const CLEAR: f64 = 6.907_755_278_982_137;
/// Counts over which the affected share is a mean.
const RECENT: u64 = 400;
/// What is counted.
const UNIT: &str = "positive counts";
/// What every signal says.
const INFORMS: &str = "informs only: counts do not show that answers are worse, so no traffic is moved";

/// Starts watching.
pub(super) fn open(_: &Options) -> Box<dyn Watch> {
    Box::new(CountLattice {
        known: LatticeBet::new(FIELD),
        search: LatticeSearch::default(),
        wanted: None,
        won_before: 0.0,
        counts: 0,
        trials: Pace::default(),
        pace: Pace::default(),
        budget: None,
        recent: Hits::default(),
        raised: None,
        last_hit: UtcMicros::default(),
    })
}

#[derive(Debug)]
struct CountLattice {
    known: LatticeBet,
    search: LatticeSearch,
    /// Counts in which a lattice is to be looked for.
    wanted: Option<Vec<u32>>,
    /// Logarithm of the search's evidence when it proposed anew.
    won_before: f64,
    counts: u64,
    trials: Pace,
    pace: Pace,
    budget: Option<Budget>,
    /// Counts on the raised lattice, else on the known one.
    recent: Hits,
    raised: Option<Raised>,
    last_hit: UtcMicros,
}

/// A lattice that is there.
#[derive(Debug)]
struct Raised {
    /// Tells trials from hits.
    bet: LatticeBet,
    /// Share of hits against which recovery is measured.
    against: f64,
    recovery: f64,
    ln: f64,
    ln_threshold: f64,
}

/// Whether a lattice accuses: multiples of a unit do not.
fn accuses(lattice: Lattice) -> bool {
    lattice.offset != lattice.step
}

impl CountLattice {
    fn ln_threshold(&self, pace: &Pace) -> f64 {
        let pace = pace.mean().unwrap_or(Micros(1_000_000));
        self.budget.map_or(f64::INFINITY, |budget| budget.split(STATISTICS).run_length(pace).ln())
    }

    /// Bets on a count, and wants a new proposal when it is time.
    fn search(&mut self, count: u32) {
        if let Some(counts) = self.search.bet(count) {
            self.wanted = Some(counts);
        }
    }

    /// Bets on what was proposed. Evidence counts from the proposal on: what was won on another lattice, perhaps
    /// an innocent one, speaks not for this.
    fn propose(&mut self, lattice: Option<Lattice>) {
        let before = self.search.proposal();
        self.search.propose(lattice);
        if lattice != before {
            self.won_before = self.search.ln_always();
        }
    }

    fn searched(&self) -> f64 {
        self.search.ln_always() - self.won_before
    }

    fn lattice(&self) -> Lattice {
        self.raised.as_ref().map_or(self.known.lattice(), |raised| raised.bet.lattice())
    }

    fn raise(&mut self, lattice: Lattice, ln: f64, ln_threshold: f64) {
        let (trials, hits) = self.known.seen();
        let share = if lattice == FIELD { Hits { hits, n: trials }.share() } else { 0.5 };
        self.raised = Some(Raised {
            bet: LatticeBet::new(lattice),
            against: f64::midpoint(share, NULL).clamp(NULL * 1.5, 0.95),
            recovery: 0.0,
            ln,
            ln_threshold,
        });
    }

    /// Whether the raised lattice is over.
    fn recover(&mut self, count: u32) {
        let Some(raised) = &mut self.raised else { return };
        let before = raised.bet.seen();
        if !raised.bet.push(count) {
            return;
        }
        let hit = raised.bet.seen().1 > before.1;
        let p1 = raised.against;
        let ratio = if hit { NULL / p1 } else { (1.0 - NULL) / (1.0 - p1) };
        raised.recovery = (raised.recovery + ratio.ln()).max(0.0);
        if raised.recovery >= CLEAR {
            self.reset();
        }
    }
}

impl Watch for CountLattice {
    fn end(&mut self, call: &Call<'_>) {
        let summary = call.summary;
        let reported = summary.usage.reasoning.filter(|count| count.fract() == 0.0 && !summary.folded);
        let Some(count) = reported.and_then(whole_count).filter(|count| *count > 0) else { return };
        self.counts += 1;
        self.pace.push(call.at);
        let on = {
            let lattice = self.lattice();
            count >= lattice.offset && (count - lattice.offset).is_multiple_of(lattice.step)
        };
        self.recent.push(on);
        if self.recent.n >= RECENT {
            self.recent.halve();
        }
        if on {
            self.last_hit = call.at;
        }
        if self.raised.is_some() {
            self.recover(count);
            return;
        }
        if self.known.push(count) {
            self.trials.push(call.at);
        }
        self.search(count);
        let (known, searched) = (self.ln_threshold(&self.trials), self.ln_threshold(&self.pace));
        if self.known.ln_change() >= known {
            self.raise(self.known.lattice(), self.known.ln_change(), known);
        } else if let Some(lattice) = self.search.proposal().filter(|lattice| accuses(*lattice))
            && self.searched() >= searched
        {
            self.raise(lattice, self.searched(), searched);
        }
        if self.raised.is_some() {
            self.last_hit = call.at;
        }
    }

    fn share(&mut self, share: &mut Share<'_>) {
        self.budget = Some(share.budget);
    }

    fn task(&mut self) -> Option<Task> {
        self.wanted.take().map(Task::Lattice)
    }

    fn done(&mut self, outcome: Outcome) {
        if let Outcome::Lattice(lattice) = outcome {
            self.propose(lattice);
        }
    }

    fn ready(&self) -> bool {
        self.counts > 0
    }

    fn alarming(&self) -> bool {
        self.raised.is_some()
    }

    fn pace(&self) -> Option<Micros> {
        self.pace.mean()
    }

    fn last_evidence(&self) -> UtcMicros {
        self.last_hit
    }

    fn alarm(&self) -> Option<Alarm> {
        let raised = self.raised.as_ref()?;
        let lattice = raised.bet.lattice();
        Some(Alarm {
            detail: Detail::CountLattice { step: lattice.step, offset: lattice.offset },
            cause: None,
            strength: self.recent.share(),
            evidence: Evidence {
                statistic: format!("e-process of bets on {lattice}"),
                value: raised.ln.exp(),
                threshold: raised.ln_threshold.exp(),
                n: self.recent.n,
                unit: UNIT.into(),
                average_run_length: raised.ln_threshold.exp(),
                notes: vec![INFORMS.into()],
            },
        })
    }

    fn reset(&mut self) {
        self.raised = None;
        self.known = LatticeBet::new(FIELD);
        self.search = LatticeSearch::default();
        self.won_before = 0.0;
        self.recent = Hits::default();
    }

    fn standing(&self) -> Standing {
        let ln = self.raised.as_ref().map_or(self.known.ln_change().max(0.0), |raised| raised.ln);
        let ln_threshold = self.ln_threshold(&self.trials);
        let known = ln_threshold.is_finite();
        let mut notes = vec![INFORMS.to_owned()];
        if let Some(lattice) = self.search.proposal() {
            let why = if accuses(lattice) { "" } else { ", multiples of a unit: not signalled" };
            notes.push(format!("the scan proposes {lattice}{why}"));
        }
        Standing {
            learned: self.counts,
            needed: 1,
            unit: UNIT,
            baseline: vec![Figure::new(
                format!("share of counts on {}", self.lattice()),
                self.recent.share(),
                "",
            )],
            statistic: "e-process of bets on a lattice",
            value: ln.exp(),
            threshold: known.then(|| ln_threshold.exp()),
            average_run_length: known.then(|| ln_threshold.exp()),
            notes,
        }
    }

    fn bytes(&self) -> usize {
        size_of_val(self) + LOOK_BACK * size_of::<u32>()
    }

    fn save(&self) -> Kept {
        // Nothing about health is learned, and suspicion is not kept.
        Kept::nothing()
    }

    fn restore(&mut self, _: Value) -> Result<(), serde_json::Error> {
        Ok(())
    }
}
