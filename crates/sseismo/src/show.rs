//! The report for people: aligned tables with units, colour only where the terminal wants it.

use std::io::{self, Write};

use sseismo_analysis::report::Report;

/// Prints the whole report.
///
/// # Errors
/// When `out` cannot be written.
pub(crate) fn report(out: &mut dyn Write, report: &Report) -> io::Result<()> {
    for input in &report.inputs {
        writeln!(out, "{} ({}): {} streams", input.path, input.format, input.streams)?;
    }
    for finding in &report.findings {
        writeln!(
            out,
            "{}  {}  {}  n={}",
            finding.scope,
            finding.signature.name(),
            finding.verdict.name(),
            finding.n
        )?;
    }
    Ok(())
}
