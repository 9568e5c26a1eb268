//! Upstreams with known truth: every signature, cause and fault, scripted and seeded.
//!
//! In: a scenario file. Out: real HTTP answers on loopback (feature `serve`), or the same streams in
//! virtual time, both with what was really done to each request. An instrument is calibrated against
//! known truth; no public trace holds a labelled shard hot-spot or a saturated prompt.
//!
//! ```text
//! Ask → Plan (tokens and times) → Script (bytes and writes) → socket, or Summary + Deltas + Reads
//! ```
//!
//! [`timing`] holds the bare arrival processes on which burst thresholds were chosen, [`counts`] the
//! reasoning-token counts on which the lattice is calibrated.
//!
//! Nothing here uses the decoders of `capture`: the truth stays independent of what it tests.
//!
//! ```
//! use sseismo_simulator::{Scenario, Simulation};
//!
//! let text = "[[behaviour]]\nkind = 'write-up-burst'";
//! let scenario = Scenario::parse(text, std::path::Path::new("."))?;
//! let one = Simulation::new(&scenario).next().unwrap();
//! assert_eq!(one.truth.injected[0].behaviour, "write-up-burst");
//! # Ok::<(), sseismo_simulator::Error>(())
//! ```

mod api;
mod ask;
mod behaviour;
mod client;
pub mod counts;
mod draw;
mod load;
mod plan;
mod scenario;
mod script;
#[cfg(feature = "serve")]
mod serve;
mod simulation;
pub mod timing;
mod unit;
mod upstream;

pub use ask::{Amounts, Ask};
pub use behaviour::{BEHAVIOURS, Entry, Stage};
pub use plan::{Answer, Close, Injection};
pub use scenario::{Error, Fault, Scenario};
#[cfg(feature = "serve")]
pub use serve::{Lateness, Server};
pub use simulation::{Simulated, Simulation};
pub use upstream::Truth;
