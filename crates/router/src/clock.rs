//! The one place of this crate that reads the wall clock, and turns spans into the trace's unit.

use std::time::{Duration, SystemTime, UNIX_EPOCH};

use sseismo_trace::{Micros, UtcMicros};

/// The wall clock.
#[expect(clippy::disallowed_methods, reason = "this is the crate's clock")]
pub(crate) fn now() -> UtcMicros {
    let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    UtcMicros(micros(since).0)
}

/// A span as the trace holds it.
pub(crate) fn micros(span: Duration) -> Micros {
    Micros(i64::try_from(span.as_micros()).unwrap_or(i64::MAX))
}
