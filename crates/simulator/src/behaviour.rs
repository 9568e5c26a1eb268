//! What an upstream does on purpose: one file per behaviour, one line in [`BEHAVIOURS`] to register it.
//!
//! A behaviour changes the plan of a request, or the writes that carry its bytes, and returns what it
//! did: that is the truth. What it left alone it does not return. State (queues, cooldowns) lives in
//! the behaviour and moves with the requests' own times, so a scenario runs the same on sockets and in
//! virtual time.

mod big_frames;
mod byte_buffer;
mod clean_eof;
mod concurrency_cooldown;
mod cork;
mod count_lattice;
mod cut;
mod dead_air;
mod endless;
mod error_event;
mod http_error;
mod lognormal;
mod malformed;
mod multi_frame_burst;
mod poisson;
mod quota;
mod resampled;
mod reset;
mod saturation;
mod shard_pinning;
mod silence;
mod silent_reasoning;
mod slow_drip;
mod slow_phases;
mod steady;
mod summary_parts;
mod token_bucket;
mod write_up_burst;

use std::fmt;
use std::path::Path;

use serde::de::DeserializeOwned;
use serde_json::Value;
use toml::de::ValueDeserializer;

use crate::ask::Ask;
use crate::draw::Draw;
use crate::plan::Plan;
use crate::script::Script;

/// Every behaviour that a scenario can name.
pub const BEHAVIOURS: &[Entry] = &[
    Entry::of::<count_lattice::CountLattice>("count-lattice", Stage::Count),
    Entry::of::<endless::Endless>("endless", Stage::Count),
    Entry::of::<saturation::Saturation>("saturation", Stage::Count),
    Entry::of::<steady::Steady>("steady", Stage::Rhythm),
    Entry::of::<poisson::Poisson>("poisson", Stage::Rhythm),
    Entry::of::<lognormal::Lognormal>("lognormal", Stage::Rhythm),
    Entry::of::<resampled::Resampled>("resampled", Stage::Rhythm),
    Entry::of::<slow_phases::SlowPhases>("slow-phases", Stage::Rhythm),
    Entry::of::<summary_parts::SummaryParts>("summary-parts", Stage::Rhythm),
    Entry::of::<big_frames::BigFrames>("big-frames", Stage::Rhythm),
    Entry::of::<silent_reasoning::SilentReasoning>("silent-reasoning", Stage::Rhythm),
    Entry::of::<write_up_burst::WriteUpBurst>("write-up-burst", Stage::Rhythm),
    Entry::of::<multi_frame_burst::MultiFrameBurst>("multi-frame-burst", Stage::Rhythm),
    Entry::of::<shard_pinning::ShardPinning>("shard-pinning", Stage::Load),
    Entry::of::<concurrency_cooldown::ConcurrencyCooldown>("concurrency-cooldown", Stage::Load),
    Entry::of::<quota::Quota>("quota", Stage::Load),
    Entry::of::<http_error::HttpError>("http-error", Stage::Load),
    Entry::of::<dead_air::DeadAir>("dead-air", Stage::Fault),
    Entry::of::<silence::Silence>("silence", Stage::Fault),
    Entry::of::<malformed::Malformed>("malformed", Stage::Fault),
    Entry::of::<error_event::ErrorEvent>("error-event", Stage::Fault),
    Entry::of::<clean_eof::CleanEof>("clean-eof", Stage::Fault),
    Entry::of::<cut::Cut>("cut", Stage::Fault),
    Entry::of::<reset::Reset>("reset", Stage::Fault),
    Entry::of::<cork::Cork>("cork", Stage::Delivery),
    Entry::of::<byte_buffer::ByteBuffer>("byte-buffer", Stage::Delivery),
    Entry::of::<token_bucket::TokenBucket>("token-bucket", Stage::Delivery),
    Entry::of::<slow_drip::SlowDrip>("slow-drip", Stage::Delivery),
];

/// Where on the way from the model to the client a behaviour sits. Behaviours act in this order, those
/// of one stage in the order of the file.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Stage {
    /// How many tokens, and what the answer is worth.
    Count,
    /// When the model generates them; the last one that applies wins.
    Rhythm,
    /// What the upstream's load and limits do to it.
    Load,
    /// What goes wrong.
    Fault,
    /// What holds the bytes back on the way.
    Delivery,
}

/// One thing that an upstream does.
pub(crate) trait Behaviour: fmt::Debug + Send + Sync + Fresh {
    /// Checks what single fields cannot show and reads the files that the scenario names, relative to
    /// `base`.
    ///
    /// # Errors
    /// The field that is at fault, and why.
    fn ready(&mut self, base: &Path) -> Result<(), (&'static str, String)> {
        let _ = base;
        Ok(())
    }

    /// Changes the plan of a request that is still to be answered. Returns what was done.
    fn shape(&mut self, ask: &Ask, plan: &mut Plan, draw: &mut Draw) -> Option<Value> {
        let _ = (ask, plan, draw);
        None
    }

    /// Changes when the bytes are written. Returns what was done.
    fn deliver(&mut self, script: &mut Script) -> Option<Value> {
        let _ = script;
        None
    }
}

/// A copy of a behaviour, so that one scenario can run many times.
pub(crate) trait Fresh {
    /// The same behaviour with the same state.
    fn fresh(&self) -> Box<dyn Behaviour>;
}

impl<T: Behaviour + Clone + 'static> Fresh for T {
    fn fresh(&self) -> Box<dyn Behaviour> {
        Box::new(self.clone())
    }
}

type Read = fn(ValueDeserializer<'_>) -> Result<Box<dyn Behaviour>, toml::de::Error>;

/// A behaviour's name and how its table is read.
#[derive(Clone, Copy)]
pub struct Entry {
    /// The value of `kind`.
    pub name: &'static str,
    /// When it acts.
    pub stage: Stage,
    pub(crate) read: Read,
}

impl fmt::Debug for Entry {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Entry").field("name", &self.name).field("stage", &self.stage).finish_non_exhaustive()
    }
}

impl Entry {
    const fn of<T: Behaviour + DeserializeOwned + 'static>(name: &'static str, stage: Stage) -> Self {
        Self { name, stage, read: |table| T::deserialize(table).map(|b| Box::new(b) as Box<dyn Behaviour>) }
    }
}

/// Refuses a range that is upside down.
pub(crate) fn ordered<T: PartialOrd + Copy>(
    field: &'static str,
    [lo, hi]: [T; 2],
) -> Result<(), (&'static str, String)> {
    if lo <= hi { Ok(()) } else { Err((field, "the first value must not be above the second".into())) }
}
