//! The one place of this crate that reads clocks.
//!
//! In: nothing. Out: times since the process anchor, and wall-clock times. Spans are always taken from
//! the monotonic clock; the wall clock only dates things and is compared with kernel stamps.

#![expect(clippy::disallowed_methods, reason = "this is the crate's clock")]

use std::sync::OnceLock;
use std::time::{Instant, SystemTime, UNIX_EPOCH};

use sseismo_trace::{Micros, UtcMicros};

static ANCHOR: OnceLock<Instant> = OnceLock::new();

/// Monotonic time since the first call in this process.
pub(crate) fn now() -> Micros {
    let elapsed = ANCHOR.get_or_init(Instant::now).elapsed();
    Micros(i64::try_from(elapsed.as_micros()).unwrap_or(i64::MAX))
}

/// The wall clock.
pub(crate) fn wall() -> UtcMicros {
    let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    UtcMicros(i64::try_from(since.as_micros()).unwrap_or(i64::MAX))
}
