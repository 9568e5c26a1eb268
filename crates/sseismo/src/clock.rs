//! The one place of this crate that reads the clock.

use sseismo_trace::UtcMicros;

/// The wall clock.
#[expect(clippy::disallowed_methods, reason = "the binary is where time enters")]
pub(crate) fn now() -> UtcMicros {
    let now = std::time::SystemTime::now();
    let since = now.duration_since(std::time::SystemTime::UNIX_EPOCH).unwrap_or_default();
    UtcMicros(i64::try_from(since.as_micros()).unwrap_or(i64::MAX))
}
