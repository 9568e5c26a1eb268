//! The signatures: one file each, one line in [`SIGNATURES`] to register it.
//!
//! Each file says what the signature looks like, its known causes, its statistic, its defaults with
//! their source, its smallest n, its false positives, and the golden case that shows it.

use std::fmt;

use sseismo_trace::{Finding, Scope, SignatureId, Stream, Summary};

pub mod burst;
pub mod concurrency;
pub mod count_lattice;
pub mod retry_amplification;
pub mod saturation;
#[cfg(test)]
mod simulated;
pub mod size_window;

/// Every signature that `analyze` looks for.
pub const SIGNATURES: &[&dyn Signature] = &[
    &count_lattice::CountLattice,
    &burst::Burst,
    &size_window::SizeWindow,
    &concurrency::Concurrency,
    &saturation::Saturation,
    &retry_amplification::RetryAmplification,
];

/// Which set of thresholds to use.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Preset {
    /// Thresholds from measured data.
    #[default]
    Measured,
    /// The literal thresholds of the production write-ups.
    WriteUp,
}

/// What the user chose, the same for every signature.
#[derive(Clone, Debug, Default)]
pub struct Options {
    /// The set of thresholds.
    pub preset: Preset,
}

/// Which time a stream is being pushed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Pass {
    /// First: counts, and the baselines that the second pass is measured against.
    Baseline,
    /// Second, only when a score asked for it: events against the baselines.
    Groups,
}

/// A way in which reasoning traffic clusters.
pub trait Signature: Sync + fmt::Debug {
    /// Its name.
    fn id(&self) -> SignatureId;
    /// Starts looking for it in one scope.
    fn open(&self, options: &Options) -> Box<dyn Score>;
    /// JSON Schema of its evidence.
    fn evidence_schema(&self) -> schemars::Schema;
}

/// One signature at work on one scope.
pub trait Score {
    /// Takes in one stream of the scope. Streams come in the same order in each pass.
    fn push(&mut self, pass: Pass, stream: &Stream<'_>);
    /// Whether what came in the first pass makes a second one worth its time.
    fn wants_second_pass(&self) -> bool {
        false
    }
    /// The verdict.
    fn finding(&self, scope: &Scope) -> Finding;
}

/// Seconds to the first content, else to the first byte; `None` for answers that are errors.
pub fn time_to_first_token(summary: &Summary) -> Option<f64> {
    let first = [summary.t_first_reasoning, summary.t_first_output].into_iter().flatten().min();
    answered(summary, first.or(summary.t_first_byte))
}

/// Seconds to the last byte; `None` for answers that are errors.
pub fn duration(summary: &Summary) -> Option<f64> {
    answered(summary, summary.t_end)
}

fn answered(summary: &Summary, time: Option<sseismo_trace::Micros>) -> Option<f64> {
    time.filter(|_| summary.status.is_none_or(|status| status < 400)).map(sseismo_trace::Micros::seconds)
}
