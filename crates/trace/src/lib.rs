//! The nouns of the path, and the schema of trace files.
//!
//! In: nothing. Out: the values that the other crates hand to each other.
//!
//! ```text
//! Chunk → Frame → Delta → Summary → Finding → Signal
//! ```
//!
//! A type lives here only when two crates exchange it or a file stores it. There are no sockets, no
//! clock and no async code in this crate; Arrow types appear only behind the `parquet` feature.
//!
//! Two rules hold everywhere: a time that was not measured is `None`, never invented, and reported
//! token counts never share a field with estimated ones.
//!
//! ```
//! use sseismo_trace::{Dim, Scope};
//!
//! let scope = Scope::default().with(Dim::Model, "gpt-5.5").with(Dim::Effort, "xhigh");
//! assert_eq!(scope.to_string(), "model=gpt-5.5 effort=xhigh");
//! ```

mod chunk;
mod delta;
mod finding;
mod frame;
#[cfg(feature = "parquet")]
pub mod parquet;
mod scope;
mod signal;
mod summary;
mod time;

pub use chunk::{Chunk, Read};
pub use delta::{Delta, Kind, Phase};
pub use finding::{Cause, Effect, Finding, SignatureId, Significance, Verdict};
pub use frame::{Body, Frame};
pub use scope::{Dim, Scope};
pub use signal::{Detail, Evidence, Signal, SignalId, SignalState};
pub use summary::{Api, Attribution, ContentCheck, Outcome, Provenance, Stream, Summary, TimeSource, Usage};
pub use time::{Micros, UtcMicros};
