//! Units of time. Microseconds throughout: fine enough for socket stamps (a kernel stamp is late by
//! 24 µs at the median), coarse enough that an `i64` never overflows.

use serde::{Deserialize, Serialize};

/// A span in µs: since the start of a stream, of a connection, or of the process, as the field says.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(transparent)]
pub struct Micros(pub i64);

impl Micros {
    /// The span in seconds.
    #[expect(clippy::cast_precision_loss, reason = "spans stay far below 2^53 µs (285 years)")]
    pub fn seconds(self) -> f64 {
        self.0 as f64 / 1e6
    }

    /// The span from `earlier` to `self`; negative when the clock went back.
    #[must_use]
    pub fn since(self, earlier: Self) -> Self {
        Self(self.0 - earlier.0)
    }
}

/// A moment in µs since 1970-01-01 00:00 UTC.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(transparent)]
pub struct UtcMicros(pub i64);
