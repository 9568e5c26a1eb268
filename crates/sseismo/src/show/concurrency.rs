//! `concurrency` for people: deep calls that came in piles beside those that did not.

use sseismo_analysis::signature::concurrency::{CALLS, DEEP_TOKENS, Evidence, WINDOW};

use super::times;

/// The lines below a verdict.
pub(super) fn lines(evidence: &Evidence) -> Vec<String> {
    let window = WINDOW / 1_000_000;
    let mut lines = vec![format!(
        "{} of {} deep calls are crowded (more than {CALLS} of them start within {window} s), in {} piles; \
         most within {window} s: {}",
        evidence.crowded, evidence.deep, evidence.piles, evidence.most_in_window
    )];
    if let (Some(crowded), Some(other)) = (evidence.crowded_ttft_p50, evidence.other_ttft_p50) {
        let ratio = evidence.ttft_ratio.map_or_else(String::new, |ratio| {
            format!("; p{:.0} {}", 100.0 * evidence.ttft_quantile.unwrap_or(0.5), times(ratio))
        });
        lines.push(format!("time to first token p50: crowded {crowded:.3} s, others {other:.3} s{ratio}"));
    }
    lines.extend(evidence.duration_ratio.map(|ratio| format!("duration p50 {}", times(ratio))));
    if let (Some(crowded), Some(other)) = (evidence.crowded_throttled, evidence.other_throttled) {
        let p = evidence.throttled_p.map_or_else(String::new, |p| format!(", p = {}", super::probability(p)));
        let after = evidence
            .throttled_after
            .map_or_else(String::new, |share| format!("; {:.1} % in the 30 s after a pile", 100.0 * share));
        lines.push(format!(
            "answered 429: crowded {:.1} %, others {:.1} %{p}{after}",
            100.0 * crowded,
            100.0 * other
        ));
    }
    lines.extend(evidence.deep_confirmed.map(|share| {
        format!(
            "{:.1} % of the deep calls whose count is known took {DEEP_TOKENS} reasoning tokens or more",
            100.0 * share
        )
    }));
    lines
}
