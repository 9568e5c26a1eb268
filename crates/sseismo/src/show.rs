//! The report for people: aligned tables with units, colour only where the terminal wants it.

use std::io::{self, Write};

use anstyle::{AnsiColor, Style};
use comfy_table::{CellAlignment, Table, presets};
use serde::de::DeserializeOwned;
use sseismo_analysis::report::{Input, Report};
use sseismo_trace::{Dim, Finding, Scope, SignatureId, Verdict};

mod burst;
mod comparison;
mod concurrency;
mod count_lattice;
mod retry_amplification;
mod saturation;
#[cfg(feature = "detect")]
mod signal;
mod size_window;

pub(crate) use comparison::comparison;
#[cfg(feature = "detect")]
pub(crate) use signal::detail;

/// Inputs beyond this number are summed up by format instead of listed; notes beyond it are left out.
const LISTED: usize = 12;

const BOLD: Style = Style::new().bold();
const DIM: Style = Style::new().dimmed();
const ALARM: Style = AnsiColor::Red.on_default().bold();
const NOTICE: Style = AnsiColor::Yellow.on_default();

/// Prints the whole report.
///
/// # Errors
/// When `out` cannot be written.
pub(crate) fn report(out: &mut dyn Write, report: &Report) -> io::Result<()> {
    inputs(out, &report.inputs)?;
    if report.interrupted {
        writeln!(out, "{NOTICE}Interrupted: what follows covers what had been read by then.{NOTICE:#}")?;
    }
    for of_one_signature in report.findings.chunk_by(|a, b| a.signature == b.signature) {
        findings(out, of_one_signature)?;
    }
    Ok(())
}

fn inputs(out: &mut dyn Write, inputs: &[Input]) -> io::Result<()> {
    let mut table = plain_table(["input", "format", "streams", "events", "left out"]);
    right_align(&mut table, &[2, 3]);
    if inputs.len() <= LISTED {
        for input in inputs {
            table.add_row(row(&input.path, input));
        }
    } else {
        for (label, sum) in by_format(inputs) {
            table.add_row(row(&label, &sum));
        }
    }
    writeln!(out, "{table}")?;
    for input in inputs {
        for note in &input.notes {
            writeln!(out, "{DIM}{}: {note}{DIM:#}", input.path)?;
        }
    }
    Ok(())
}

fn row(label: &str, input: &Input) -> [String; 5] {
    let skipped: Vec<String> =
        input.skipped.iter().map(|(reason, count)| format!("{count} {reason}")).collect();
    [
        label.to_owned(),
        input.format.clone(),
        input.streams.to_string(),
        input.events.to_string(),
        skipped.join(", "),
    ]
}

fn by_format(inputs: &[Input]) -> Vec<(String, Input)> {
    let mut sums: std::collections::BTreeMap<&str, (usize, Input)> = std::collections::BTreeMap::new();
    for input in inputs {
        let (files, sum) = sums.entry(&input.format).or_default();
        *files += 1;
        sum.format.clone_from(&input.format);
        sum.streams += input.streams;
        sum.events += input.events;
        for (reason, count) in &input.skipped {
            *sum.skipped.entry(reason.clone()).or_default() += count;
        }
    }
    sums.into_values().map(|(files, sum)| (format!("{files} files"), sum)).collect()
}

/// One signature: a line per scope that could be measured, then what stands behind the lines that say
/// more than "no". Scopes without the columns it needs are told in one line.
fn findings(out: &mut dyn Write, findings: &[Finding]) -> io::Result<()> {
    let Some(first) = findings.first() else { return Ok(()) };
    let shared = shared_scope(findings);
    let of = if shared == Scope::default() { String::new() } else { format!("  {DIM}{shared}{DIM:#}") };
    writeln!(out, "\n{BOLD}{}{BOLD:#}{of}", first.signature.name())?;
    let (blind, measured): (Vec<_>, Vec<_>) =
        findings.iter().partition(|finding| finding.verdict == Verdict::NotMeasurable);
    if !measured.is_empty() {
        writeln!(out, "{}", table(&measured, &shared))?;
    }
    if let Some(one) = blind.first() {
        let scopes = if blind.len() == 1 { "1 scope".to_owned() } else { format!("{} scopes", blind.len()) };
        writeln!(out, "{DIM}not measurable in {scopes}: {}{DIM:#}", one.next_step)?;
        for note in blind.iter().flat_map(|finding| &finding.notes).take(LISTED) {
            writeln!(out, "{DIM}note: {note}{DIM:#}")?;
        }
    }
    let alone = measured.len() == 1;
    measured
        .into_iter()
        .filter(|finding| alone || speaks(finding))
        .try_for_each(|finding| details(out, finding))
}

/// Whether a verdict says more than "no" or "too little data".
fn speaks(finding: &Finding) -> bool {
    !matches!(finding.verdict, Verdict::None | Verdict::TooFew)
}

/// What all scopes have in common: said once above the table instead of in each of its rows.
fn shared_scope(findings: &[Finding]) -> Scope {
    let [first, others @ ..] = findings else { return Scope::default() };
    let same = |dim: &Dim| others.iter().all(|other| other.scope.get(*dim) == first.scope.get(*dim));
    Dim::ALL.into_iter().filter(|dim| !others.is_empty() && same(dim)).fold(
        Scope::default(),
        |shared, dim| match first.scope.get(dim) {
            Some(value) => shared.with(dim, value),
            None => shared,
        },
    )
}

/// A scope without what it shares with the others.
fn own_scope(scope: &Scope, shared: &Scope) -> Scope {
    Dim::ALL.into_iter().filter(|dim| shared.get(*dim).is_none()).fold(Scope::default(), |own, dim| {
        match scope.get(dim) {
            Some(value) => own.with(dim, value),
            None => own,
        }
    })
}

fn table(findings: &[&Finding], shared: &Scope) -> Table {
    let mut table = plain_table(["scope", "n", "verdict", "effect (95 % interval)", "q", ""]);
    right_align(&mut table, &[1, 4]);
    for finding in findings {
        table.add_row([
            own_scope(&finding.scope, shared).to_string(),
            format!("{} {}", finding.n, finding.unit),
            finding.verdict.name().to_owned(),
            effect(finding),
            finding.significance.as_ref().and_then(|s| s.q).map_or_else(String::new, probability),
            remark(finding),
        ]);
    }
    table
}

fn effect(finding: &Finding) -> String {
    let Some(effect) = &finding.effect else { return String::new() };
    let unit = if effect.unit.is_empty() { String::new() } else { format!(" {}", effect.unit) };
    let interval = effect.ci95.map_or(String::new(), |[low, high]| format!(" ({low:.3}–{high:.3})"));
    format!("{} {:.3}{unit}{interval}", effect.name, effect.value)
}

fn details(out: &mut dyn Write, finding: &Finding) -> io::Result<()> {
    let style = match finding.verdict {
        Verdict::None | Verdict::TooFew | Verdict::NotMeasurable => DIM,
        verdict if verdict.is_alarm() => ALARM,
        _ => NOTICE,
    };
    writeln!(out, "\n  {style}{}{style:#}  {}", finding.verdict.name(), finding.scope)?;
    for line in evidence(finding) {
        writeln!(out, "    {line}")?;
    }
    for note in &finding.notes {
        writeln!(out, "    note: {note}")?;
    }
    if let Some(cause) = finding.cause {
        writeln!(out, "    cause: {}", cause.name())?;
    }
    writeln!(out, "    compared with: {}", finding.compared_with)?;
    writeln!(out, "    does not prove: {}", finding.does_not_prove)?;
    writeln!(out, "    next: {}", finding.next_step)
}

/// What the signature adds to its line in the table.
fn remark(finding: &Finding) -> String {
    match finding.signature {
        SignatureId::CountLattice => count_lattice::remark(finding),
        SignatureId::Burst
        | SignatureId::SizeWindow
        | SignatureId::Concurrency
        | SignatureId::Saturation
        | SignatureId::Semantic
        | SignatureId::RetryAmplification => String::new(),
    }
}

/// The signature's own lines.
fn evidence(finding: &Finding) -> Vec<String> {
    match finding.signature {
        SignatureId::CountLattice => view(finding, count_lattice::lines),
        SignatureId::Burst => view(finding, burst::lines),
        SignatureId::SizeWindow => view(finding, size_window::lines),
        SignatureId::Concurrency => view(finding, concurrency::lines),
        SignatureId::Saturation => view(finding, saturation::lines),
        SignatureId::RetryAmplification => view(finding, retry_amplification::lines),
        // Fan-outs have a verb of their own: `vote`.
        SignatureId::Semantic => Vec::new(),
    }
}

/// What `lines` makes of the evidence; evidence of another shape is shown as it is.
fn view<E: DeserializeOwned>(finding: &Finding, lines: fn(&E) -> Vec<String>) -> Vec<String> {
    match serde_json::from_value(finding.evidence.clone()) {
        Ok(evidence) => lines(&evidence),
        Err(_) => vec![finding.evidence.to_string()],
    }
}

/// A share in per cent.
fn percent<N: TryInto<u64>>(part: N, whole: N) -> String {
    let count = |n: N| n.try_into().unwrap_or(u64::MAX);
    let (part, whole) = (count(part), count(whole));
    #[expect(clippy::cast_precision_loss, reason = "a share for people")]
    let share = 100.0 * part as f64 / whole as f64;
    if whole == 0 { "–".to_owned() } else { format!("{share:.1} %") }
}

/// A ratio with its 95 % interval.
fn times([value, low, high]: [f64; 3]) -> String {
    format!("× {value:.2} ({low:.2}–{high:.2})")
}

/// A probability: three digits, scientific when small.
fn probability(p: f64) -> String {
    if p >= 1e-3 {
        format!("{p:.3}")
    } else if p > 0.0 {
        format!("{p:.1e}")
    } else {
        // Smaller than a double can be.
        "< 1e-300".to_owned()
    }
}

/// A table without lines: columns apart by spaces, the header in the same row of columns.
pub(crate) fn plain_table<const N: usize>(header: [&str; N]) -> Table {
    let mut table = Table::new();
    table.load_style(presets::NOTHING).set_header(header);
    table
}

/// Numbers stand right-aligned.
pub(crate) fn right_align(table: &mut Table, columns: &[usize]) {
    for &column in columns {
        if let Some(column) = table.column_mut(column) {
            column.set_cell_alignment(CellAlignment::Right);
        }
    }
}
