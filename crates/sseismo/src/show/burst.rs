//! `burst` for people: late groups at both scales, gaps and group sizes, silences, grid and causes.

use sseismo_analysis::signature::burst::{Evidence, GridEvidence, LateGroup, Quantiles, ScaleEvidence};

use super::percent;

/// The lines below a verdict.
pub(super) fn lines(evidence: &Evidence) -> Vec<String> {
    let mut lines = vec![format!(
        "{} of {} streams with times, {} content events",
        evidence.timed_streams, evidence.streams, evidence.events
    )];
    lines.extend(evidence.fine.map(|fine| scale("fine", &fine, &evidence.unit)));
    lines.extend(evidence.coarse.map(|coarse| scale("coarse", &coarse, &evidence.unit)));
    lines.push(format!("gaps between frames: {}", quantiles(&evidence.frame_gap_ms, " ms", 1)));
    if let (Some(half), Some(one)) = (evidence.silent_share_500ms, evidence.silent_share_1s) {
        lines.push(format!(
            "streaming time spent in silences of 0.5 s or more: {:.1} %, of 1 s or more: {:.1} %",
            100.0 * half,
            100.0 * one
        ));
    }
    lines.extend(evidence.largest.as_ref().map(late_group));
    lines.extend(evidence.grid.as_ref().map(grid));
    if evidence.held_whole > 0 {
        let encodings: Vec<String> =
            evidence.held_encodings.iter().map(|(encoding, n)| format!("{encoding} {n}")).collect();
        let of = if encodings.is_empty() { String::new() } else { format!(" ({})", encodings.join(", ")) };
        lines.push(format!(
            "came in one read: {} of {} streams of 20 events or more{of}",
            evidence.held_whole, evidence.long_streams
        ));
    }
    if evidence.border_silences_over_1s > 0 {
        lines.push(format!(
            "silences over 1 s between phases, which are no stalls: {}, the longest {:.1} s",
            evidence.border_silences_over_1s,
            evidence.longest_border_silence_ms / 1e3
        ));
    }
    if !evidence.causes.is_empty() {
        let causes: Vec<String> = evidence.causes.iter().map(|(cause, n)| format!("{cause} {n}")).collect();
        lines.push(format!("causes, group by group: {}", causes.join(", ")));
    }
    lines.extend(evidence.missing.iter().map(|column| format!("missing {column}")));
    lines.push(format!(
        "per stream, told and never judged by alone: Gini of 100 ms {}; CV of gaps {}; burstiness B {}; LV {}",
        median(&evidence.gini_100ms),
        median(&evidence.cv),
        median(&evidence.burstiness),
        median(&evidence.lv)
    ));
    lines
}

fn scale(name: &str, scale: &ScaleEvidence, unit: &str) -> String {
    let size = |value: Option<f64>| value.map_or_else(|| "–".to_owned(), |value| format!("{value:.0}"));
    let before = scale
        .token_weighted_gap_s
        .map_or_else(String::new, |seconds| format!("; {seconds:.3} s of silence before the average token"));
    format!(
        "{name} scale (events within {:.0} ms are a group): {} of {} groups late and large ({}); size p50 {}, p95 {} \
         {unit}, {:.1} events a group{before}",
        scale.window_ms,
        scale.hits,
        scale.gaps,
        percent(scale.hits, scale.gaps),
        size(scale.size_p50),
        size(scale.size_p95),
        scale.events_per_group.unwrap_or_default(),
    )
}

fn late_group(late: &LateGroup) -> String {
    let reads = late.reads.map_or_else(String::new, |reads| format!(" and {reads} reads"));
    let alive = if late.keepalive { ", with a keep-alive in the silence" } else { "" };
    format!(
        "longest silence that ended in several events: {:.2} s, then {} events in {:.0} ms{reads}{alive}",
        late.gap_ms / 1e3,
        late.events,
        late.span_ms
    )
}

fn grid(grid: &GridEvidence) -> String {
    match grid {
        GridEvidence::Period { ms, spread } => {
            format!("an even grid: a group every {ms:.0} ms (± {:.0} %)", 100.0 * spread)
        }
        GridEvidence::Bytes { bytes, spread } => {
            format!("an even grid: a group every {bytes:.0} bytes (± {:.0} %)", 100.0 * spread)
        }
    }
}

fn quantiles(figure: &Quantiles, unit: &str, digits: usize) -> String {
    let shown: Vec<String> =
        [("p50", figure.p50), ("p95", figure.p95), ("p99", figure.p99), ("longest", figure.max)]
            .into_iter()
            .filter_map(|(name, value)| Some(format!("{name} {:.digits$}{unit}", value?)))
            .collect();
    if shown.is_empty() { "none".to_owned() } else { shown.join(", ") }
}

fn median(figure: &Quantiles) -> String {
    figure.p50.map_or_else(|| "–".to_owned(), |value| format!("{value:.2}"))
}
