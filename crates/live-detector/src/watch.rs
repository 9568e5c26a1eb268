//! The watches: one file each, one line in [`WATCHES`] to register it.
//!
//! A watch sees the streams of one scope. It learns what health looks like, turns what it sees into a
//! sequence with a known false-alarm rate, and says whether its signature is there. It raises nothing
//! itself: [`crate::Detector`] makes onset, refresh and clear of it.

use std::fmt;

use serde_json::Value;
use sseismo_trace::{Cause, Delta, Detail, Evidence, Micros, SignatureId, Summary, UtcMicros};

use crate::Options;
use crate::budget::Budget;
use crate::view::Figure;

mod retry_amplification;

/// Every signature that is watched.
pub(crate) const WATCHES: &[Entry] = &[(SignatureId::RetryAmplification, retry_amplification::open)];

/// A signature, and how to start watching for it in a new scope.
pub(crate) type Entry = (SignatureId, fn(&Options) -> Box<dyn Watch>);

/// One stream, as far as it is known.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Call<'a> {
    /// Now.
    pub(crate) at: UtcMicros,
    /// What is known of it.
    pub(crate) summary: &'a Summary,
}

/// The signature is there.
#[derive(Clone, Debug)]
pub(crate) struct Alarm {
    pub(crate) detail: Detail,
    pub(crate) cause: Option<Cause>,
    /// 0 to 1.
    pub(crate) strength: f64,
    pub(crate) evidence: Evidence,
}

/// Where a watch stands.
#[derive(Clone, Debug, Default)]
pub(crate) struct Standing {
    pub(crate) learned: u64,
    pub(crate) needed: u64,
    pub(crate) unit: &'static str,
    pub(crate) baseline: Vec<Figure>,
    pub(crate) statistic: &'static str,
    pub(crate) value: f64,
    pub(crate) threshold: Option<f64>,
    pub(crate) average_run_length: Option<f64>,
    pub(crate) notes: Vec<String>,
}

/// One signature at work on one scope. Every method but [`Watch::standing`] and [`Watch::save`] costs O(1).
pub(crate) trait Watch: fmt::Debug + Send {
    /// A stream's request is known.
    fn begin(&mut self, _: &Call<'_>) {}
    /// Events of a stream came; their times count from `started`.
    fn deltas(&mut self, _stream_id: u64, _started: UtcMicros, _deltas: &[Delta]) {}
    /// A stream ended.
    fn end(&mut self, _: &Call<'_>) {}
    /// Time passed.
    fn tick(&mut self, _: UtcMicros) {}
    /// A stream is given up: nothing more will be heard of it.
    fn forget(&mut self, _stream_id: u64) {}
    /// Its share of the false alarms.
    fn share(&mut self, budget: Budget);
    /// Whether it is past learning.
    fn ready(&self) -> bool;
    /// Whether the signature is there. Cheap: asked after every event.
    fn alarming(&self) -> bool;
    /// Mean time between two observations.
    fn pace(&self) -> Option<Micros>;
    /// When the last observation spoke for the signature.
    fn last_evidence(&self) -> UtcMicros;
    /// What is there; `None` when [`Watch::alarming`] says no.
    fn alarm(&self) -> Option<Alarm>;
    /// Forgets its suspicion, as the signal was cleared; what it learned of health stays.
    fn reset(&mut self);
    /// What it knows.
    fn standing(&self) -> Standing;
    /// What it learned, to be kept over a restart.
    fn save(&self) -> Value;
    /// Takes up what [`Watch::save`] wrote.
    ///
    /// # Errors
    /// When it is something else; the watch is then as new.
    fn restore(&mut self, saved: Value) -> Result<(), serde_json::Error>;
}
