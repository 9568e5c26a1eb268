//! The watches: one file each, one line in [`WATCHES`] to register it.
//!
//! A watch sees the streams of one scope. It learns what health looks like, turns what it sees into a
//! sequence with a known false-alarm rate, and says whether its signature is there. It raises nothing
//! itself: [`crate::Detector`] makes onset, refresh and clear of it.

use std::fmt;

use serde_json::Value;
use sseismo_trace::{Cause, Delta, Detail, Evidence, Micros, SignatureId, Summary, UtcMicros};

use crate::Options;
use crate::baseline::Kept;
use crate::budget::Share;
use crate::job::{Outcome, Task};
use crate::view::Figure;

mod burst;
mod concurrency;
mod count_lattice;
mod flagged;
mod retry_amplification;
mod saturation;
pub(crate) mod size_window;
mod write_up;

/// Every signature that is watched.
pub(crate) const WATCHES: &[Entry] = &[
    (SignatureId::CountLattice, count_lattice::open),
    (SignatureId::Burst, burst::open),
    (SignatureId::SizeWindow, size_window::open),
    (SignatureId::Concurrency, concurrency::open),
    (SignatureId::Saturation, saturation::open),
    (SignatureId::RetryAmplification, retry_amplification::open),
];

/// A signature, and how to start watching for it in a new scope.
pub(crate) type Entry = (SignatureId, fn(&Options) -> Box<dyn Watch>);

/// One stream, as far as it is known.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Call<'a> {
    /// Now.
    pub(crate) at: UtcMicros,
    /// When it started.
    pub(crate) started: UtcMicros,
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

/// One signature at work on one scope. Every method but [`Watch::standing`] and [`Watch::save`] costs O(1): what
/// takes longer is a [`Watch::task`].
pub(crate) trait Watch: fmt::Debug + Send {
    /// A stream's request is known.
    fn begin(&mut self, _: &Call<'_>) {}
    /// Events of a stream came; their times count from `started`.
    fn deltas(&mut self, _stream_id: u64, _started: UtcMicros, _deltas: &[Delta]) {}
    /// A stream ended.
    fn end(&mut self, _: &Call<'_>) {}
    /// It is so late, and nothing older is still to come.
    fn tick(&mut self, _: UtcMicros) {}
    /// Events of a stream were lost before those that come next.
    fn lost(&mut self, _stream_id: u64) {}
    /// Nobody knows of which streams something was lost: no silence so far proves anything.
    fn doubt(&mut self) {}
    /// A stream is given up: nothing more will be heard of it.
    fn forget(&mut self, _stream_id: u64) {}
    /// Its share of the false alarms.
    fn share(&mut self, share: &mut Share<'_>);
    /// Work that takes milliseconds to seconds and is due: asked after the end of a stream and after [`Watch::share`].
    fn task(&mut self) -> Option<Task> {
        None
    }
    /// What came of it, perhaps much later.
    fn done(&mut self, _: Outcome) {}
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
    /// Bytes that it takes, its streams included.
    fn bytes(&self) -> usize;
    /// What it knows.
    fn standing(&self) -> Standing;
    /// What it learned, to be kept over a restart: a copy, no JSON yet.
    fn save(&self) -> Kept;
    /// Takes up what [`Watch::save`] wrote.
    ///
    /// # Errors
    /// When it is something else; the watch is then as new.
    fn restore(&mut self, saved: Value) -> Result<(), serde_json::Error>;
}

#[cfg(test)]
mod tests {
    use sseismo_simulator::{Scenario, Simulation};
    use sseismo_trace::Scope;

    use super::*;
    use crate::{Detector, Replay};

    #[expect(
        clippy::print_stdout,
        reason = "the figures of README come from here: cargo test -- --nocapture"
    )]
    fn tell(line: &str) {
        println!("{line}");
    }

    fn learned() -> Replay {
        let scenario = Scenario::parse("[load]\nnumeric = 0.3", std::path::Path::new(".")).unwrap();
        let mut replay = Replay::new(Options::default());
        for one in Simulation::new(&scenario).take(300) {
            replay.push(one.summary.started_at.unwrap(), &one.summary, &one.deltas);
        }
        replay.finish();
        replay
    }

    /// A live stream of a scope that has learned takes at most 1 KiB, whatever watches it.
    #[test]
    fn a_live_stream_takes_less_than_a_kilobyte() {
        let saved = learned().detector().save();
        let scope = &saved.scopes[0].scope;
        let call = Summary {
            upstream: scope.upstream.clone(),
            model_requested: scope.model.clone(),
            effort: scope.effort.clone(),
            ..Summary::default()
        };
        let bytes = |streams: u64| {
            let mut detector = Detector::with_baselines(Options::default(), saved.clone());
            for stream_id in 0..=streams {
                let summary = Summary { stream_id, ..call.clone() };
                detector.begin(UtcMicros(0), &summary);
                detector.tick(UtcMicros(0));
            }
            detector.view().watches.iter().map(|watch| watch.bytes).sum::<u64>()
        };
        let each = (bytes(201) - bytes(1)) / 200;
        tell(&format!("{each} bytes per live stream"));
        assert!((100..=1_024).contains(&each), "{each} bytes");
    }

    /// A scope that has learned everything takes at most 1 MiB, most of it the baseline of `burst`.
    #[test]
    fn a_scope_is_bounded() {
        let replay = learned();
        let view = replay.detector().view();
        let scopes: std::collections::BTreeSet<&Scope> =
            view.watches.iter().map(|watch| &watch.target).collect();
        assert_eq!(scopes.len(), 1);
        for watch in &view.watches {
            tell(&format!("{}: {} bytes", watch.signature.name(), watch.bytes));
        }
        let total: u64 = view.watches.iter().map(|watch| watch.bytes).sum();
        assert!((10_000..1 << 20).contains(&total), "{total} bytes");
    }
}
