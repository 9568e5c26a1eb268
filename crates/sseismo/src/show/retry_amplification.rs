//! `retry-amplification` for people: attempts per turn, and what was billed again.

use sseismo_analysis::signature::retry_amplification::Evidence;

/// The lines below a verdict.
pub(super) fn lines(evidence: &Evidence) -> Vec<String> {
    let cost = evidence.rebilled_cost_usd.map_or_else(String::new, |usd| format!(", {usd:.4} US$"));
    let mut lines = vec![format!(
        "{} attempts for {} turns: {:.2} a turn, at most {}",
        evidence.attempts, evidence.turns, evidence.attempts_per_turn, evidence.most_attempts
    )];
    if evidence.retried_turns > 0 {
        lines.push(format!(
            "{} turns were tried again; the last attempt completed in {} of them",
            evidence.retried_turns, evidence.healed_turns
        ));
        lines.push(format!(
            "reported for attempts before the last: {} prompt tokens, {} generated tokens{cost}",
            evidence.rebilled_input, evidence.rebilled_output
        ));
        lines.push(format!(
            "attempts before the last without reported usage: {} (about {} prompt tokens, estimated); whether they \
             were billed is not known",
            evidence.without_usage, evidence.without_usage_input_est
        ));
    }
    lines
}
