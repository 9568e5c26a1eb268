//! The vote for people: aligned tables with units.

use std::io::{self, Write};

use comfy_table::{CellAlignment, Table, presets};
use sseismo_analysis::vote::Outcome;

use super::live::{Ended, Report, State};
use super::{Decision, Document};

/// Decisions listed; more are in `--json`.
const LISTED: usize = 40;
/// Characters of an answer shown in a table.
const ANSWER: usize = 40;

/// Prints everything.
///
/// # Errors
/// When `out` cannot be written.
pub(super) fn document(out: &mut dyn Write, document: &Document) -> io::Result<()> {
    for input in &document.inputs {
        writeln!(out, "{}: {} fan-outs, {} samples", input.path, input.fan_outs, input.samples)?;
        for (reason, count) in &input.skipped {
            // Streams of a dataset have no lines.
            let first = input.first_skipped.filter(|line| *line > 0);
            let first = first.map_or_else(String::new, |line| format!(" (the first: line {line})"));
            writeln!(out, "  {count} left out: {reason}{first}")?;
        }
    }
    if let Some(report) = &document.live {
        live(out, report)?;
    }
    if !document.rules.is_empty() {
        rules(out, document)?;
    } else if let [decision] = document.decisions.as_slice() {
        one(out, &decision.outcome)?;
    } else {
        decisions(out, &document.decisions)?;
    }
    if !document.early_stop.is_empty() {
        early_stop(out, document)?;
    }
    Ok(())
}

fn table(header: &[&str]) -> Table {
    let mut table = Table::new();
    table.load_style(presets::NOTHING);
    table.set_header(header.to_vec());
    for column in table.column_iter_mut().skip(1) {
        column.set_cell_alignment(CellAlignment::Right);
    }
    table
}

fn percent(share: f64) -> String {
    format!("{:.1} %", share * 100.0)
}

fn points(diff: f64) -> String {
    format!("{:+.1}", diff * 100.0)
}

fn rules(out: &mut dyn Write, document: &Document) -> io::Result<()> {
    let scored = document.rules.first();
    let mut table =
        table(&["rule", "accuracy", "95 % interval", "against plurality, points", "95 % interval"]);
    for row in &document.rules {
        table.add_row(vec![
            row.rule.to_owned(),
            percent(row.accuracy),
            format!("{} to {}", percent(row.ci95[0]), percent(row.ci95[1])),
            points(row.diff),
            format!("{} to {}", points(row.diff_ci95[0]), points(row.diff_ci95[1])),
        ]);
    }
    writeln!(out, "\nAccuracy of each rule (embedder: {})\n{table}", document.embedder.unwrap_or("none"))?;
    if scored.is_some() {
        writeln!(
            out,
            "Intervals: bootstrap over fan-outs, differences in pairs. `single` is one sample at random."
        )?;
    }
    Ok(())
}

fn early_stop(out: &mut dyn Write, document: &Document) -> io::Result<()> {
    let mut table = table(&["stop", "accuracy", "samples used"]);
    for row in &document.early_stop {
        table.add_row(vec![row.stop.clone(), percent(row.accuracy), percent(row.samples_share)]);
    }
    writeln!(out, "\nPlurality stopped early (5 seeded orders each; tied answers share the credit)\n{table}")
}

fn decisions(out: &mut dyn Write, decisions: &[Decision]) -> io::Result<()> {
    let mut table =
        table(&["fan-out", "answer", "share", "margin", "votes", "abstained", "outliers", "note"]);
    for Decision { id, outcome } in decisions.iter().take(LISTED) {
        let votes: usize = outcome.answers.iter().map(|a| a.count).sum();
        table.add_row(vec![
            id.clone(),
            answer(outcome),
            percent(outcome.share),
            percent(outcome.margin),
            votes.to_string(),
            outcome.abstained.to_string(),
            outcome.clusters.as_ref().map_or("-".to_owned(), |c| c.outliers.len().to_string()),
            note(outcome),
        ]);
    }
    writeln!(out, "\n{table}")?;
    if decisions.len() > LISTED {
        writeln!(out, "… and {} more: see --json", decisions.len() - LISTED)?;
    }
    Ok(())
}

fn one(out: &mut dyn Write, outcome: &Outcome) -> io::Result<()> {
    let mut table = table(&["answer", "votes", "share", "coherence", "output tokens", "USD", "samples"]);
    for line in &outcome.answers {
        table.add_row(vec![
            cut(&line.answer),
            line.count.to_string(),
            percent(line.share),
            line.coherence.map_or("-".to_owned(), |c| format!("{c:.3}")),
            line.tokens.map_or("-".to_owned(), |t| t.to_string()),
            line.cost_usd.map_or("-".to_owned(), usd),
            line.samples.iter().map(usize::to_string).collect::<Vec<_>>().join(","),
        ]);
    }
    writeln!(out, "\n{table}")?;
    if let Some(clusters) = &outcome.clusters {
        let stray: Vec<String> = clusters.outliers.iter().map(usize::to_string).collect();
        writeln!(
            out,
            "traces: {} clusters, stray: {} ({}, coherence {})",
            clusters.clusters,
            if stray.is_empty() { "none".to_owned() } else { stray.join(",") },
            clusters.eps.map_or("HDBSCAN".to_owned(), |eps| format!("cosine eps {eps:.2}")),
            clusters.coherence.map_or("-".to_owned(), |c| format!("{c:.3}")),
        )?;
    }
    writeln!(
        out,
        "answer: {}  (rule {}, share {}, margin {}, entropy {:.2} bits, {} abstained) {}",
        answer(outcome),
        outcome.rule,
        percent(outcome.share),
        percent(outcome.margin),
        outcome.entropy_bits,
        outcome.abstained,
        note(outcome)
    )
}

fn live(out: &mut dyn Write, report: &Report) -> io::Result<()> {
    let mut table =
        table(&["sample", "model", "upstream", "state", "seconds", "input", "output", "USD", "answer"]);
    for branch in &report.branches {
        let usage = branch.usage.or(branch.usage_est);
        // A tilde marks an estimate.
        let tilde = if branch.usage.is_some() { "" } else { "~" };
        let tokens = |count: Option<u64>| count.map_or("-".to_owned(), |n| format!("{tilde}{n}"));
        table.add_row(vec![
            branch.sample.map_or("-".to_owned(), |n| n.to_string()),
            branch.model.clone(),
            branch.upstream.clone(),
            match &branch.state {
                State::Cancelled => "cancelled".to_owned(),
                State::Done => "done".to_owned(),
                State::Failed(_) => "failed".to_owned(),
            },
            format!("{:.2}", branch.seconds),
            tokens(usage.map(|u| u.input)),
            tokens(usage.map(|u| u.output)),
            branch
                .cost_usd
                .or(branch.cost_usd_est)
                .map_or("-".to_owned(), |cost| format!("{tilde}{}", usd(cost))),
            branch.answer.as_deref().map_or("-".to_owned(), cut),
        ]);
    }
    writeln!(out, "{table}")?;
    let why = match report.ended {
        Ended::AllDone => "every branch ended",
        Ended::LockIn => "stopped early: nobody can catch the leader",
        Ended::Beta => "stopped early: the leader is far enough ahead",
        Ended::Budget => "stopped: the budget is used up",
        Ended::Timeout => "stopped: the time is used up",
        Ended::Interrupted => "stopped by Ctrl-C",
    };
    writeln!(out, "{why} after {:.2} s", report.seconds)?;
    let cost = |cost: Option<f64>| cost.map_or("no price".to_owned(), usd);
    writeln!(out, "cost: {} for {} reported tokens", cost(report.cost_usd), report.tokens)?;
    if report.tokens_est > 0 {
        writeln!(
            out,
            "      and about {} for {} tokens of branches that ended before they reported (estimated)",
            cost(report.cost_usd_est),
            report.tokens_est
        )?;
    }
    if !report.quorum_reached {
        writeln!(out, "no quorum: fewer than {} branches answered", report.quorum)?;
    }
    Ok(())
}

fn usd(cost: f64) -> String {
    format!("${cost:.6}")
}

fn answer(outcome: &Outcome) -> String {
    match (&outcome.winner, outcome.representative) {
        (Some(winner), _) => cut(winner),
        (None, Some(sample)) => format!("text of sample {sample}"),
        (None, None) => "none".to_owned(),
    }
}

fn note(outcome: &Outcome) -> String {
    let mut notes = Vec::new();
    if outcome.no_quorum {
        notes.push("no quorum".to_owned());
    }
    if let Some(tie) = &outcome.tie {
        notes.push(format!("tie of {} broken by {}", tie.answers.len(), tie.broken_by));
    }
    notes.join(", ")
}

fn cut(text: &str) -> String {
    let line = text.split_whitespace().collect::<Vec<_>>().join(" ");
    if line.chars().count() <= ANSWER { line } else { line.chars().take(ANSWER - 1).chain(['…']).collect() }
}
