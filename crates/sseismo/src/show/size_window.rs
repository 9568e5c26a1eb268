//! `size-window` for people: the most striking window of sizes beside its flanks.

use sseismo_analysis::signature::size_window::{Evidence, Latency, Window};

use super::{percent, times};

/// The lines below a verdict.
pub(super) fn lines(evidence: &Evidence) -> Vec<String> {
    let Some(window) = &evidence.window else {
        return vec!["no range of sizes has enough calls in it and beside it".to_owned()];
    };
    let of = match evidence.latency_of.as_deref() {
        Some("ttft") => "time to first token",
        _ => "duration",
    };
    let mut lines = vec![
        side(&sizes(window), window.calls, of, evidence.latency.as_ref().map(|latency| &*latency.window)),
        side(
            "sizes beside it",
            window.flank_calls,
            of,
            evidence.latency.as_ref().map(|latency| &*latency.flanks),
        ),
    ];
    lines.extend(evidence.latency.as_ref().map(|latency| inflated(latency, of)));
    lines.push(format!(
        "slower than 98 % of the calls beside it: {} of {} ({}) in the window, {} of {} ({}) beside it",
        window.slow,
        window.calls,
        percent(window.slow, window.calls),
        window.flank_slow,
        window.flank_calls,
        percent(window.flank_slow, window.flank_calls),
    ));
    lines
}

fn sizes(window: &Window) -> String {
    format!(
        "{} sizes of {}–{} tokens, {:.1} % of all calls",
        window.size,
        window.lo,
        window.hi,
        100.0 * window.share
    )
}

/// One side: its calls (one of each session) and the quantiles of their latency.
fn side(name: &str, calls: usize, of: &str, quantiles: Option<&[f64]>) -> String {
    let figures: Vec<String> = ["p50", "p90", "p99"]
        .iter()
        .zip(quantiles.unwrap_or_default())
        .map(|(name, seconds)| format!("{name} {seconds:.3} s"))
        .collect();
    format!("{name}: {calls} compared, {of} {}", figures.join(", "))
}

fn inflated(latency: &Latency, of: &str) -> String {
    format!("{of} p{:.0} {}", 100.0 * latency.quantile, times(latency.ratio))
}
