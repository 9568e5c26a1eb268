//! Streams to findings: statistics, signatures, before/after, the report.
//!
//! In: [`sseismo_trace::Stream`]s, pushed one by one. Out: [`sseismo_trace::Finding`]s and the
//! [`report::Report`] that carries them. Everything here is pure: no sockets, no files, no clock.
//!
//! The path through this crate: [`Analysis`] sorts streams into scopes, each scope keeps one
//! [`signature::Score`] per signature, and each score ends as one finding. [`compare::Comparison`] takes
//! the same streams under the names of two groups and ends as one [`compare::CompareReport`].

mod analyze;
#[cfg(feature = "cohort")]
pub mod cohort;
pub mod compare;
pub mod flush;
pub mod kernel;
pub mod report;
pub mod signature;
pub mod stats;
#[cfg(feature = "vote")]
pub mod vote;

pub use analyze::Analysis;
