//! A comparison for people: shares, then quantities, each with its interval and its tests.

use std::io::{self, Write};

use sseismo_analysis::compare::{CompareReport, Proportion, Quantity, Share, Test, Unit};

use super::{BOLD, DIM, plain_table, right_align};

/// Prints the whole comparison.
///
/// # Errors
/// When `out` cannot be written.
pub(crate) fn comparison(out: &mut dyn Write, report: &CompareReport) -> io::Result<()> {
    let [first, second] = &report.groups;
    for group in &report.groups {
        let units = if report.unit == Unit::Row {
            String::new()
        } else {
            format!(", {} {}s", group.units, report.unit.name())
        };
        writeln!(out, "{BOLD}{}{BOLD:#}: {} rows{units}", group.name, group.rows)?;
    }
    writeln!(out, "{DIM}unit of intervals and tests: {}{DIM:#}\n", report.unit.name())?;
    shares(out, "share", [&first.name, &second.name], &report.proportions)?;
    quantities(out, [&first.name, &second.name], &report.quantities)?;
    for association in &report.associations {
        let [first, second] = &association.between;
        shares(out, "share within", [first, second], std::slice::from_ref(association))?;
    }
    if let Some(hop) = &report.hop {
        writeln!(out, "{BOLD}hop{BOLD:#}: {}", hop.finding)?;
    }
    for note in &report.notes {
        writeln!(out, "note: {note}")?;
    }
    writeln!(out, "does not prove: {}", report.does_not_prove)
}

fn shares(out: &mut dyn Write, what: &str, names: [&str; 2], shares: &[Proportion]) -> io::Result<()> {
    if shares.is_empty() {
        return Ok(());
    }
    let mut table = plain_table([what, names[0], names[1], "difference (95 %)", "tests"]);
    right_align(&mut table, &[1, 2, 3]);
    for share in shares {
        table.add_row([
            share.name.clone(),
            one_share(&share.first),
            one_share(&share.second),
            share.difference.map_or_else(String::new, |value| interval(value, share.difference_ci95, 3)),
            tests(&share.tests),
        ]);
    }
    writeln!(out, "{table}\n")
}

fn one_share(share: &Share) -> String {
    let [low, high] = share.ci95;
    match share.share {
        Some(value) => format!("{}/{} = {value:.3} ({low:.3}–{high:.3})", share.hits, share.n),
        None => "–".to_owned(),
    }
}

fn quantities(out: &mut dyn Write, names: [&str; 2], quantities: &[Quantity]) -> io::Result<()> {
    if quantities.is_empty() {
        return Ok(());
    }
    let mut table = plain_table(["quantity", "figure", names[0], names[1], "change (95 %)", "tests"]);
    right_align(&mut table, &[2, 3, 4]);
    for quantity in quantities {
        let name = if quantity.unit.is_empty() {
            quantity.name.clone()
        } else {
            format!("{} [{}]", quantity.name, quantity.unit)
        };
        let mean = |side: &sseismo_analysis::compare::QuantitySide| {
            side.mean.map_or_else(|| "–".to_owned(), |mean| interval(mean, side.mean_ci95, 1))
        };
        table.add_row([
            name,
            format!("mean, n={}/{}", quantity.first.n, quantity.second.n),
            mean(&quantity.first),
            mean(&quantity.second),
            quantity
                .mean_difference
                .as_ref()
                .map_or_else(String::new, |d| interval(d.value, Some(d.ci95), 1)),
            tests(&quantity.tests),
        ]);
        for ratio in &quantity.quantile_ratios {
            let figure =
                |value: Option<f64>| value.map_or_else(|| "–".to_owned(), |value| format!("{value:.1}"));
            let change = match (&ratio.refused, ratio.ratio) {
                (Some(why), _) => why.clone(),
                (None, Some(value)) => format!("× {}", interval(value, ratio.ci95, 2)),
                (None, None) => String::new(),
            };
            table.add_row([
                String::new(),
                format!("p{:.0}", 100.0 * ratio.q),
                figure(ratio.first),
                figure(ratio.second),
                change,
                String::new(),
            ]);
        }
    }
    writeln!(out, "{table}\n")
}

fn interval(value: f64, ci95: Option<[f64; 2]>, digits: usize) -> String {
    match ci95 {
        Some([low, high]) => format!("{value:.digits$} ({low:.digits$} to {high:.digits$})"),
        None => format!("{value:.digits$}"),
    }
}

fn tests(tests: &[Test]) -> String {
    let shown: Vec<String> =
        tests.iter().map(|test| format!("{} p={}", test.name, p_value(test.p))).collect();
    shown.join(", ")
}

/// Six digits near 1, scientific when small.
fn p_value(p: f64) -> String {
    if p >= 1e-4 { format!("{p:.6}") } else { format!("{p:.5e}") }
}
