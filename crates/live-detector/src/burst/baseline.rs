//! Runs of healthy streams to what is usual in one scope.
//!
//! In: [`Run`]s of streams that raised no alarm. Out: a [`BurstModel`](super::BurstModel), once enough was
//! seen. Memory is bounded: a reservoir of runs, in which new ones slowly replace old ones at random
//! (Aggarwal, "On biased reservoir sampling", VLDB 2006), so that a baseline follows a route that drifts over
//! days and forgets a bad hour.
//!
//! **Contamination.** Streams that raised an alarm are not learned. What slipped in before there was a model
//! is trimmed when the model is made: a run whose own statistic passes ln(groups/0.05), and what two odd groups
//! can add up to, would come once in 20 healthy baselines at most. When more than a third would have to go, nothing is trimmed and the model says so: then
//! clustering *is* what is usual here.

use rand::{RngExt as _, SeedableRng as _};
use rand_chacha::ChaCha8Rng;
use serde::{Deserialize, Serialize};
use sseismo_analysis::flush::Grouper;
use sseismo_analysis::signature::burst::Unit;

use super::model::{self, BurstModel};
use super::run::{Packed, Run, groups};

/// Groups of either scale below which nothing is decided: at 2,500 the last hundredth, from which the tail is
/// fitted, holds 25.
pub const GROUPS_MIN: usize = 2_500;
/// Frames kept: 256 KiB, and 2,500 coarse groups of a stream with 13 frames in each.
const FRAMES_MAX: usize = 32_768;
/// A full reservoir takes one run in so many: it remembers some 700,000 frames, hours of one stream.
const TAKE_ONE_IN: u64 = 20;
/// Runs shorter than this tell nothing about neighbours.
const RUN_MIN: usize = 2;
/// Layout of the saved form.
const VERSION: u32 = 1;

/// Why there is no model yet.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("learning: {have} of {need} flush groups")]
pub struct Learning {
    /// Groups seen, at the scale that has fewer.
    pub have: usize,
    /// Groups needed.
    pub need: usize,
}

/// Why a saved baseline cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// It was saved by a version with another layout.
    #[error("burst baseline: `version` is {0}, this program reads {VERSION}; delete it to learn anew")]
    Version(u32),
    /// More frames than a reservoir holds.
    #[error(
        "burst baseline: `runs` hold {0} frames, at most {FRAMES_MAX} were ever written; delete it to learn anew"
    )]
    Frames(usize),
}

/// Frames of one run in the reservoir.
#[derive(Clone, Debug, PartialEq)]
struct Kept {
    frames: Vec<Packed>,
    /// Groups with known gaps at the coarse scale.
    coarse: usize,
}

impl Kept {
    fn new(frames: Vec<Packed>) -> Self {
        let coarse = groups(&frames, Grouper::coarse()).iter().filter(|group| group.gap.is_some()).count();
        Self { frames, coarse }
    }
}

/// What is usual in one scope.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(try_from = "Saved", into = "Saved")]
pub struct BurstBaseline {
    unit: Option<Unit>,
    runs: Vec<Kept>,
    frames: usize,
    coarse: usize,
    seen: u64,
    other_unit: u64,
}

/// The form on disk.
#[derive(Serialize, Deserialize)]
struct Saved {
    version: u32,
    unit: Option<Unit>,
    runs: Vec<Vec<Packed>>,
    seen: u64,
    other_unit: u64,
}

impl From<BurstBaseline> for Saved {
    fn from(baseline: BurstBaseline) -> Self {
        Self {
            version: VERSION,
            unit: baseline.unit,
            runs: baseline.runs.into_iter().map(|run| run.frames).collect(),
            seen: baseline.seen,
            other_unit: baseline.other_unit,
        }
    }
}

impl TryFrom<Saved> for BurstBaseline {
    type Error = Error;

    fn try_from(saved: Saved) -> Result<Self, Error> {
        if saved.version != VERSION {
            return Err(Error::Version(saved.version));
        }
        let frames: usize = saved.runs.iter().map(Vec::len).sum();
        if frames > FRAMES_MAX {
            return Err(Error::Frames(frames));
        }
        let runs: Vec<Kept> = saved.runs.into_iter().map(Kept::new).collect();
        let coarse = runs.iter().map(|run| run.coarse).sum();
        let (unit, seen, other_unit) = (saved.unit, saved.seen, saved.other_unit);
        Ok(Self { unit, runs, frames, coarse, seen, other_unit })
    }
}

impl BurstBaseline {
    /// Learns a run of a stream that raised no alarm.
    ///
    /// The first run settles in which unit sizes are counted; runs that carry another are counted and left
    /// out, because tokens and estimates never mix.
    pub fn push(&mut self, run: &Run) {
        if run.len() < RUN_MIN {
            return;
        }
        let unit = *self.unit.get_or_insert_with(|| run.unit());
        if run.unit() != unit {
            self.other_unit += 1;
            return;
        }
        self.seen += 1;
        // Seeded by the count, so that a reloaded baseline goes on as if it had never stopped.
        let mut dice = ChaCha8Rng::seed_from_u64(self.seen);
        let full = self.frames + run.len() > FRAMES_MAX;
        if full && dice.random_range(0..TAKE_ONE_IN) > 0 {
            return;
        }
        while self.frames + run.len() > FRAMES_MAX {
            let gone = self.runs.swap_remove(dice.random_range(0..self.runs.len()));
            self.frames -= gone.frames.len();
            self.coarse -= gone.coarse;
        }
        let kept = Kept::new(run.packed(unit));
        self.frames += kept.frames.len();
        self.coarse += kept.coarse;
        self.runs.push(kept);
    }

    /// Whether there is enough for a model.
    pub fn ready(&self) -> bool {
        self.learning().is_none()
    }

    /// How much is still missing; `None` when there is enough.
    ///
    /// Coarse groups are the fewer. A full reservoir of a very fast stream is enough, whatever it holds.
    pub fn learning(&self) -> Option<Learning> {
        let full = self.frames + super::run::RUN_FRAMES > FRAMES_MAX;
        (self.coarse < GROUPS_MIN && !full).then_some(Learning { have: self.coarse, need: GROUPS_MIN })
    }

    /// Runs learned so far: a model that was made at half of this is worth making anew.
    pub fn seen(&self) -> u64 {
        self.seen
    }

    /// Runs left out because their sizes came in another unit.
    pub fn other_unit(&self) -> u64 {
        self.other_unit
    }

    /// The unit of sizes, once a run settled it.
    pub fn unit(&self) -> Option<Unit> {
        self.unit
    }

    /// Bytes on the heap.
    pub fn bytes(&self) -> usize {
        self.frames * size_of::<Packed>() + self.runs.capacity() * size_of::<Kept>()
    }

    /// Makes the model whose false alarms are `arl` coarse groups apart on average. Takes some two s of a
    /// processor: call it when [`Self::seen`] has doubled, and let [`BurstModel::at`] follow a changed `arl`.
    ///
    /// # Errors
    /// [`Learning`] while too little was seen.
    pub fn freeze(&self, arl: f64, seed: u64) -> Result<BurstModel, Learning> {
        match self.learning() {
            Some(learning) => Err(learning),
            None => Ok(BurstModel::fit(&self.frames(), self.unit(), arl, seed)),
        }
    }

    /// The model of somebody who knows how clustered streams look: the yardstick of tables of delays.
    ///
    /// # Errors
    /// [`Learning`] while too little was seen.
    pub fn freeze_oracle(&self, truth: &[Run], arl: f64, seed: u64) -> Result<BurstModel, Learning> {
        if let Some(learning) = self.learning() {
            return Err(learning);
        }
        let unit = self.unit.unwrap_or(Unit::Events);
        let truth: Vec<Vec<Packed>> = truth.iter().map(|run| run.packed(unit)).collect();
        let truth: Vec<&[Packed]> = truth.iter().map(Vec::as_slice).collect();
        Ok(BurstModel::oracle(&self.frames(), &truth, self.unit(), arl, seed))
    }

    /// False alarms of `model` at the fine and at the coarse scale in so many coarse groups (and as many seconds'
    /// worth of fine ones) drawn in blocks from this baseline with tails: the check of a threshold, by plain
    /// simulation.
    pub fn false_alarms(&self, model: &BurstModel, groups: u64, seed: u64) -> [u64; 2] {
        model::false_alarms(&self.frames(), model, groups, seed)
    }

    fn frames(&self) -> Vec<&[Packed]> {
        self.runs.iter().map(|run| run.frames.as_slice()).collect()
    }
}
