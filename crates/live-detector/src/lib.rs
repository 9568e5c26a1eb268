//! The signatures over live windows.
//!
//! In: deltas and summaries with their times, as they come. Out: [`Signal`](sseismo_trace::Signal)s. There is
//! no I/O, no clock and no async code here: time is an argument, so recorded traffic gives the same signals
//! as live traffic.
//!
//! ```text
//! Detector ─ scopes (upstream × model × effort) ─ one Watch per signature ─ Sequence (flags against a null)
//! ```
//!
//! [`Detector`] sorts streams into scopes and turns what the watches say into onset, refresh and clear. Each
//! watch is one file in `watch/` and one line in its list. How often all of them together may cry wolf is one
//! number, [`Options::false_alarm_every`], which `budget` splits.
//!
//! ```
//! use sseismo_live_detector::{Detector, Options};
//! use sseismo_trace::{Summary, UtcMicros};
//!
//! let mut detector = Detector::new(Options::default());
//! let summary = Summary { stream_id: 1, upstream: Some("api.example".into()), ..Summary::default() };
//! detector.begin(UtcMicros(0), &summary);
//! detector.end(UtcMicros(2_000_000), &summary);
//! detector.tick(UtcMicros(3_000_000));
//! assert!(detector.take_signals().is_empty());
//! assert_eq!(detector.view().scopes, 1);
//! ```

mod baseline;
mod budget;
pub mod burst;
mod detector;
mod job;
mod replay;
mod scopes;
mod sequence;
pub mod sequential;
mod sketch;
mod view;
mod watch;

pub use baseline::{Baselines, ScopeBaselines, Snapshot};
pub use detector::{Detector, Options};
pub use job::{Answer, Job, Jobs};
pub use replay::Replay;
pub use sseismo_analysis::signature::Preset;
pub use view::{Figure, State, View, WatchView};
