//! Work that takes milliseconds to some seconds, apart from the events that take less than one millisecond.
//!
//! In: what a watch knows when it wants a model, a scan or a threshold. Out: what came of it. A [`Job`] owns all
//! that it needs and touches nothing else, so a host runs it on another thread while events go on; until the
//! answer is there a watch goes on with what it has. The same job gives the same answer wherever it runs.

use sseismo_analysis::signature::count_lattice::Lattice;
use sseismo_trace::SignatureId;

use crate::burst::{BurstBaseline, BurstModel};
use crate::scopes::Key;
use crate::sequential::aggregate::{Known, Question};
use crate::sequential::betting;
use crate::watch::size_window::{self, Bet, Cells};

/// Where jobs are done.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Jobs {
    /// By the detector itself, at once: the answer is there before the next event.
    #[default]
    AtOnce,
    /// By the host, which takes them by [`Detector::take_jobs`](crate::Detector::take_jobs) and brings the
    /// answers back.
    ByHost,
}

/// One piece of work.
#[derive(Debug)]
pub struct Job {
    pub(crate) of: Asker,
    pub(crate) task: Task,
}

/// What came of a [`Job`].
#[derive(Debug)]
pub struct Answer {
    pub(crate) of: Asker,
    pub(crate) outcome: Outcome,
}

/// Who wants it.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Asker {
    /// Every sequence: thresholds are shared.
    All,
    /// One signature in one scope.
    Watch(Key, SignatureId),
}

/// What is to be done.
#[derive(Debug)]
pub(crate) enum Task {
    /// The threshold of a sequence.
    Threshold(Question),
    /// A model of what is usual, for a run length in coarse groups, and its seed.
    Model { baseline: Box<BurstBaseline>, arl: f64, seed: u64 },
    /// The lattice of the last counts.
    Lattice(Vec<u32>),
    /// The most striking window of two epochs of sizes.
    Window([Cells; 2]),
}

/// What came of a [`Task`].
#[derive(Debug)]
pub(crate) enum Outcome {
    Threshold(Question, Option<Known>),
    /// With the number of runs that it was learned from; `None` when these were too few.
    Model(Option<BurstModel>, u64),
    Lattice(Option<Lattice>),
    Window(Option<Box<Bet>>),
}

impl Job {
    /// Does the work: a few to some hundred ms.
    pub fn run(self) -> Answer {
        Answer { of: self.of, outcome: self.task.run() }
    }
}

impl Task {
    fn run(self) -> Outcome {
        match self {
            Self::Threshold(question) => Outcome::Threshold(question, question.answer().ok()),
            Self::Model { baseline, arl, seed } => {
                Outcome::Model(baseline.freeze(arl, seed).ok(), baseline.seen())
            }
            Self::Lattice(counts) => Outcome::Lattice(betting::find(&counts)),
            Self::Window(epochs) => Outcome::Window(size_window::propose(&epochs).map(Box::new)),
        }
    }
}
