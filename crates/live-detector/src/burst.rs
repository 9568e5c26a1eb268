//! `burst`, live: deltas come in flushes after dead air, seen within a stream while it runs.
//!
//! ```text
//! Delta → Frame → groups at two scales → likelihood ratios → CUSUMs → Flag
//! ```
//!
//! **Looks like** 40–80 tokens in one flush, then more than a second of silence, again and again; or a cork,
//! a buffer, a token bucket on the way.
//!
//! **Statistic.** Groups are those of the offline signature ([`sseismo_analysis::flush`]). Each group with a
//! known silence inside its phase gives likelihood ratios of eight pictures of clustering against the scope's
//! own baseline ([`BurstBaseline`]); each picture has a CUSUM, and a stream is flagged when the log of their
//! mean exponential passes the threshold. Unknown gaps and phase borders add nothing. Apart from that a
//! stream is flagged for *dead air*: a silence, keep-alives or not, beyond what the baseline's silences,
//! borders included, allow. Keep-alives are no progress.
//!
//! **Thresholds** are computed for a wanted run length, never typed in: blocks of the baseline with
//! generalised Pareto tails, rare alarms by a weighted ensemble (`threshold`). [`BurstModel::basis`] says whether a run
//! length was measured or is a model's, [`BurstModel::mean_ratio`] prints E0[e^LLR].
//!
//! **Defaults**: no decision below 2,500 coarse groups; windows as offline; kernel bandwidth 0.1 and tail as
//! in `density`, checked on 180 packet-captured GPT-4o streams.
//!
//! **False positives to know**: a route whose honest frames are as large and rare as bursts gets no threshold
//! and says so; a run length of months rests on the tail model.
//!
//! **For a route**, short streams are added up: each coarse group is a *hit* or not ([`Tally`]), with
//! [`BurstModel::hit_rate`] as what is usual.
//!
//! ```
//! use sseismo_live_detector::burst::{BurstBaseline, BurstStream};
//! use sseismo_simulator::timing::Process;
//!
//! let mut baseline = BurstBaseline::default();
//! for seed in 0..12 {
//!     let mut stream = BurstStream::learning();
//!     for delta in Process::Poisson.deltas(seed) {
//!         stream.push(&delta);
//!         if let Some(run) = stream.take_run() {
//!             baseline.push(&run);
//!         }
//!     }
//! }
//! let model = baseline.freeze(1e6, 1)?;
//! let mut stream = BurstStream::new(&model);
//! let flag = Process::Burst.deltas(1).iter().find_map(|delta| stream.push(delta));
//! assert!(flag.is_some_and(|flag| flag.statistic >= flag.threshold));
//! # Ok::<(), sseismo_live_detector::burst::Learning>(())
//! ```

mod baseline;
mod cusum;
mod density;
mod likelihood;
mod model;
mod run;
mod stream;
mod tail;
#[cfg(test)]
mod tests;
mod threshold;

pub use baseline::{BurstBaseline, Error, GROUPS_MIN, Learning};
pub use model::{Basis, BurstModel, HitRate, Scale};
pub use run::Run;
pub use sseismo_analysis::signature::burst::Unit;
pub use stream::{BurstStream, Flag, Tally, What};
