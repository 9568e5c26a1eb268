//! Bytes to frames to deltas, and recording them.
//!
//! In: what arrived, with times; or files that other tools wrote. Out: [`sseismo_trace::Stream`]s.
//!
//! | module | arrow | feature |
//! |---|---|---|
//! | [`sse`], [`ndjson`] | Chunk → Frame | |
//! | [`dialect`] | Frame → what it means in its API | |
//! | [`answer`] | one body: Chunk → Delta and Summary | |
//! | [`shape`] | Summary → a request of the same shape | |
//! | `import` | foreign file → Stream | `import` |
//! | `recorder` | streams as they happen → dataset on disk | `record` |
//! | `tap` | sockets → Chunk, Read; requests and answers → streams | `tap` |
//!
//! [`budget`] bounds what all decoders hold back together.

pub mod answer;
pub mod budget;
pub mod dialect;
pub mod ndjson;
pub mod shape;
pub mod sse;

#[cfg(feature = "tap")]
mod clock;
#[cfg(feature = "import")]
pub mod import;
#[cfg(feature = "record")]
pub mod recorder;
#[cfg(feature = "tap")]
pub mod tap;
