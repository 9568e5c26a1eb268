//! What the detector knows, for people and metrics.

use serde::{Deserialize, Serialize};
use sseismo_trace::{Micros, Scope, SignalId, SignatureId, UtcMicros};

/// Where one watch stands.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum State {
    /// It does not know yet what health looks like.
    Learning,
    /// It knows, and nothing is raised.
    Watching,
    /// A signal is raised.
    Signalling,
}

impl State {
    /// The name used in views and metrics.
    pub fn name(self) -> &'static str {
        match self {
            Self::Learning => "learning",
            Self::Watching => "watching",
            Self::Signalling => "signalling",
        }
    }
}

/// One learned figure.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Figure {
    /// What it is.
    pub name: String,
    /// Its value.
    pub value: f64,
    /// Its unit; empty for shares and ratios.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub unit: String,
}

impl Figure {
    /// A figure from its parts.
    pub fn new(name: impl Into<String>, value: f64, unit: impl Into<String>) -> Self {
        Self { name: name.into(), value, unit: unit.into() }
    }
}

/// One signature in one scope.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct WatchView {
    /// The scope.
    pub target: Scope,
    /// The signature.
    pub signature: SignatureId,
    /// Where it stands.
    pub state: State,
    /// Observations of health so far.
    pub learned: u64,
    /// … of so many that it needs before it watches.
    pub needed: u64,
    /// What `learned` and the run length count, for example `client turns`.
    pub unit: String,
    /// What it learned.
    pub baseline: Vec<Figure>,
    /// What is computed, for example `mixture e-CUSUM`.
    pub statistic: String,
    /// Its value now.
    pub value: f64,
    /// What raises a signal; `None` while learning.
    pub threshold: Option<f64>,
    /// Observations between two false alarms, as far as the null holds; `None` while learning.
    pub average_run_length: Option<f64>,
    /// Mean time between two observations; `None` before the second.
    pub pace: Option<Micros>,
    /// Bytes that it takes, its live streams included.
    pub bytes: u64,
    /// The signal that is raised.
    pub signal: Option<SignalId>,
    /// Reservations: the assumption of independence and what its check says, and the like.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub notes: Vec<String>,
}

impl WatchView {
    /// How far the evidence has climbed, 0 to 1: on a logarithmic scale where the statistic is an
    /// e-value, which starts at 1.
    pub fn progress(&self) -> f64 {
        let Some(threshold) = self.threshold.filter(|threshold| *threshold > 1.0) else { return 0.0 };
        (self.value.max(1.0).ln() / threshold.ln()).clamp(0.0, 1.0)
    }
}

/// Everything that the detector knows at one moment.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct View {
    /// The moment.
    pub at: UtcMicros,
    /// Time between two false alarms of the whole process.
    pub false_alarm_every: Micros,
    /// Pairs of scope and signature that share it: those that are past learning.
    pub live_pairs: u64,
    /// Streams that began and did not end.
    pub live_streams: u64,
    /// Scopes that are kept.
    pub scopes: u64,
    /// Scopes that had to make room.
    pub evicted_scopes: u64,
    /// Streams that had to make room, or that were silent for too long.
    pub evicted_streams: u64,
    /// Deltas whose stream was not known.
    pub stray_deltas: u64,
    /// Events that streams that are known did not bring here: gaps in their numbers.
    #[serde(default)]
    pub lost_events: u64,
    /// Saved baselines that could not be used.
    pub rejected_baselines: u64,
    /// Each signature in each scope.
    pub watches: Vec<WatchView>,
}
