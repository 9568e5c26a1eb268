//! `saturation` for people: failed checks by length and numeric share of the prompt.

use sseismo_analysis::signature::saturation::{Evidence, LONG, NUMERIC};

use super::{percent, plain_table, right_align};

/// The lines below a verdict.
pub(super) fn lines(evidence: &Evidence) -> Vec<String> {
    let (long, numeric) = (format!("over {LONG} tokens"), format!("{:.0} % digits or more", 100.0 * NUMERIC));
    let (short, prose) = ("up to that".to_owned(), "fewer digits".to_owned());
    let mut table = plain_table(["prompt", "", "checked answers", "failed", "share"]);
    right_align(&mut table, &[2, 3, 4]);
    for (length, kind, shape) in [
        (&long, &numeric, evidence.long_numeric),
        (&long, &prose, evidence.long_prose),
        (&short, &numeric, evidence.short_numeric),
        (&short, &prose, evidence.short_prose),
    ] {
        table.add_row([
            length.clone(),
            kind.clone(),
            shape.n.to_string(),
            shape.failed.to_string(),
            percent(shape.failed, shape.n),
        ]);
    }
    let mut lines: Vec<String> = table.lines().collect();
    lines.extend(
        evidence
            .ratio
            .map(|ratio| format!("the first row fails {ratio:.1} times as often as the others together")),
    );
    lines.push(format!("{:.1} % of all prompts are {long}", 100.0 * evidence.long_share));
    lines
}
