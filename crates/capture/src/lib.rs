//! Bytes to frames to deltas, and recording them.
//!
//! In: what arrived, with times; or files that other tools wrote. Out: [`sseismo_trace::Stream`]s.
//!
//! | module | arrow | feature |
//! |---|---|---|
//! | `import` | foreign file → Stream | `import` |

#[cfg(feature = "import")]
pub mod import;
