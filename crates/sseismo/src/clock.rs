//! The one place of this crate that reads the clock.

use sseismo_trace::UtcMicros;

/// The wall clock.
#[expect(clippy::disallowed_methods, reason = "the binary is where time enters")]
pub(crate) fn now() -> UtcMicros {
    let since = std::time::SystemTime::UNIX_EPOCH.elapsed().unwrap_or_default();
    UtcMicros(i64::try_from(since.as_micros()).unwrap_or(i64::MAX))
}
