//! Signals and figures as text.

use sseismo_trace::{Micros, Signal, UtcMicros};

use crate::show;

/// One signal on one line: when, what, where, how strong, and what it rests on.
pub(super) fn signal(signal: &Signal) -> String {
    let evidence = &signal.evidence;
    let cause = signal.cause.map(|cause| format!(" cause={}", cause.name())).unwrap_or_default();
    format!(
        "{} {:<7} {} {}{cause} strength={:.2} {} {:.1} ≥ {:.1} ({} {}): {}",
        date(signal.at),
        signal.state.name(),
        signal.detail.signature().name(),
        signal.target,
        signal.strength,
        evidence.statistic,
        evidence.value,
        evidence.threshold,
        evidence.n,
        evidence.unit,
        show::detail(&signal.detail),
    )
}

/// Date and time of day, UTC, to the second.
pub(super) fn date(at: UtcMicros) -> String {
    jiff::Timestamp::from_microsecond(at.0)
        .map_or_else(|_| "-".to_owned(), |at| at.strftime("%Y-%m-%dT%H:%M:%SZ").to_string())
}

/// Time of day, UTC, to the second.
pub(super) fn time_of_day(at: UtcMicros) -> String {
    jiff::Timestamp::from_microsecond(at.0)
        .map_or_else(|_| "-".to_owned(), |at| at.strftime("%H:%M:%S").to_string())
}

/// A span in the largest unit that leaves one or more: `250 ms`, `12 s`, `30 d`.
pub(super) fn span(span: Micros) -> String {
    let seconds = span.seconds();
    let (value, unit) = match seconds {
        s if s < 1.0 => (s * 1_000.0, "ms"),
        s if s < 120.0 => (s, "s"),
        s if s < 7_200.0 => (s / 60.0, "min"),
        s if s < 172_800.0 => (s / 3_600.0, "h"),
        s => (s / 86_400.0, "d"),
    };
    format!("{} {unit}", figure(value))
}

/// A number with about three digits that matter.
pub(super) fn figure(value: f64) -> String {
    match value.abs() {
        _ if !value.is_finite() => "-".to_owned(),
        v if v >= 1e6 => format!("{value:.1e}"),
        v if v < f64::EPSILON => "0".to_owned(),
        v if v >= 100.0 => format!("{value:.0}"),
        v if v >= 10.0 => format!("{value:.1}"),
        v if v >= 0.01 => format!("{value:.2}"),
        _ => format!("{value:.1e}"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn figures_and_spans_are_short() {
        let figures: Vec<_> = [0.0, 0.001_23, 0.123, 12.345, 456.7, 1.5e7, f64::NAN].map(figure).into();
        assert_eq!(figures, ["0", "1.2e-3", "0.12", "12.3", "457", "1.5e7", "-"]);
        let spans = [250_000, 12_000_000, 600_000_000, 36_000_000_000, 2_592_000_000_000];
        let spans: Vec<_> = spans.map(|us| span(Micros(us))).into();
        assert_eq!(spans, ["250 ms", "12.0 s", "10.0 min", "10.0 h", "30.0 d"]);
        assert_eq!(date(UtcMicros(1_764_472_800_000_000)), "2025-11-30T03:20:00Z");
    }
}
