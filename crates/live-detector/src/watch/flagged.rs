//! Watches whose observations are flags: what they share.
//!
//! Such a watch keeps a [`Sequence`] and pushes flags to it; the sequence decides.

use std::fmt;

use serde_json::Value;
use sseismo_trace::{Cause, Delta, Detail, Micros, UtcMicros};

use super::{Alarm, Call, Standing, Watch};
use crate::baseline::Kept;
use crate::budget::Share;
use crate::job::{Outcome, Task};
use crate::sequence::Sequence;
use crate::view::Figure;

/// A watch that pushes flags to a sequence.
pub(crate) trait Flagged: fmt::Debug + Send {
    /// What is flagged.
    const UNIT: &'static str;

    /// See [`Watch::begin`].
    fn begin(&mut self, _: &Call<'_>) {}
    /// See [`Watch::deltas`].
    fn deltas(&mut self, _stream_id: u64, _started: UtcMicros, _deltas: &[Delta]) {}
    /// See [`Watch::end`].
    fn end(&mut self, _: &Call<'_>) {}
    /// See [`Watch::tick`].
    fn tick(&mut self, _: UtcMicros) {}
    /// See [`Watch::forget`].
    fn forget(&mut self, _stream_id: u64) {}
    /// See [`Watch::task`].
    fn task(&mut self) -> Option<Task> {
        None
    }
    /// See [`Watch::done`].
    fn done(&mut self, _: Outcome) {}
    /// The sequence.
    fn sequence(&self) -> &Sequence;
    /// The same, to be told its budget.
    fn sequence_mut(&mut self) -> &mut Sequence;
    /// Observations of health so far, of so many that are needed.
    fn learned(&self) -> [u64; 2];
    /// What is there, while the sequence is raised.
    fn detail(&self) -> Detail;
    /// Why.
    fn cause(&self) -> Option<Cause> {
        None
    }
    /// What was learned.
    fn figures(&self) -> Vec<Figure>;
    /// Reservations besides those of the sequence.
    fn notes(&self) -> Vec<String> {
        Vec::new()
    }
    /// Forgets what it noted besides the sequence since the change began.
    fn reset(&mut self) {}
    /// See [`Watch::bytes`].
    fn bytes(&self) -> usize;
    /// See [`Watch::save`].
    fn save(&self) -> Kept;
    /// See [`Watch::restore`].
    fn restore(&mut self, saved: Value) -> Result<(), serde_json::Error>;
}

impl<F: Flagged> Watch for F {
    fn begin(&mut self, call: &Call<'_>) {
        Flagged::begin(self, call);
    }

    fn deltas(&mut self, stream_id: u64, started: UtcMicros, deltas: &[Delta]) {
        Flagged::deltas(self, stream_id, started, deltas);
    }

    fn end(&mut self, call: &Call<'_>) {
        Flagged::end(self, call);
    }

    fn tick(&mut self, now: UtcMicros) {
        Flagged::tick(self, now);
    }

    fn forget(&mut self, stream_id: u64) {
        Flagged::forget(self, stream_id);
    }

    fn share(&mut self, share: &mut Share<'_>) {
        self.sequence_mut().share(share);
    }

    fn task(&mut self) -> Option<Task> {
        Flagged::task(self)
    }

    fn done(&mut self, outcome: Outcome) {
        Flagged::done(self, outcome);
    }

    fn ready(&self) -> bool {
        let [learned, needed] = self.learned();
        learned >= needed
    }

    fn alarming(&self) -> bool {
        self.sequence().raised()
    }

    fn pace(&self) -> Option<Micros> {
        self.sequence().pace()
    }

    fn last_evidence(&self) -> UtcMicros {
        self.sequence().last_flag()
    }

    fn alarm(&self) -> Option<Alarm> {
        let mut evidence = self.alarming().then(|| self.sequence().evidence(F::UNIT))?;
        evidence.notes.extend(self.notes());
        Some(Alarm {
            detail: self.detail(),
            cause: self.cause(),
            strength: self.sequence().hits().share(),
            evidence,
        })
    }

    fn reset(&mut self) {
        self.sequence_mut().reset();
        Flagged::reset(self);
    }

    fn standing(&self) -> Standing {
        let mut standing = self.sequence().standing(F::UNIT);
        [standing.learned, standing.needed] = self.learned();
        standing.baseline.extend(self.figures());
        standing.notes.extend(self.notes());
        standing
    }

    fn bytes(&self) -> usize {
        Flagged::bytes(self)
    }

    fn save(&self) -> Kept {
        Flagged::save(self)
    }

    fn restore(&mut self, saved: Value) -> Result<(), serde_json::Error> {
        Flagged::restore(self, saved)
    }
}
