//! A comparison for people: shares, quantities and rates, each with its interval and its tests.

use std::io::{self, Write};

use sseismo_analysis::compare::{CompareReport, Proportion, Quantity, Rate, RateSide, Share, Test, Unit};

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
    rates(out, [&first.name, &second.name], &report.rates)?;
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
            tests(&share.tests, share.too_few.as_deref()),
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
        // Dollars and other small figures would be 0.0 with one digit.
        let small =
            [quantity.first.mean, quantity.second.mean].into_iter().flatten().any(|mean| mean.abs() < 10.0);
        let digits = if small { 4 } else { 1 };
        let mean = |side: &sseismo_analysis::compare::QuantitySide| {
            side.mean.map_or_else(|| "–".to_owned(), |mean| interval(mean, side.mean_ci95, digits))
        };
        table.add_row([
            name,
            format!("mean, n={}/{}", quantity.first.n, quantity.second.n),
            mean(&quantity.first),
            mean(&quantity.second),
            quantity
                .mean_difference
                .as_ref()
                .map_or_else(String::new, |d| interval(d.value, Some(d.ci95), digits)),
            tests(&quantity.tests, quantity.too_few.as_deref()),
        ]);
        for ratio in &quantity.quantile_ratios {
            let figure = |value: Option<f64>| {
                value.map_or_else(|| "–".to_owned(), |value| format!("{value:.digits$}"))
            };
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

/// Figures too small for a fixed number of digits keep three.
fn figure(value: f64) -> String {
    let digits = if value == 0.0 { 1.0 } else { 2.0 - value.abs().log10().floor() };
    #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "clamped")]
    let digits = digits.clamp(1.0, 6.0) as usize;
    format!("{value:.digits$}")
}

fn rates(out: &mut dyn Write, names: [&str; 2], rates: &[Rate]) -> io::Result<()> {
    if rates.is_empty() {
        return Ok(());
    }
    let mut table = plain_table(["rate", names[0], names[1], "ratio (95 %)", "tests"]);
    right_align(&mut table, &[1, 2, 3]);
    for rate in rates {
        table.add_row([
            rate.name.clone(),
            one_rate(&rate.first),
            one_rate(&rate.second),
            rate_ratio(rate),
            tests(&rate.tests, rate.too_few.as_deref()),
        ]);
    }
    writeln!(out, "{table}\n")
}

fn one_rate(side: &RateSide) -> String {
    let counted = format!("{} in {} h", side.events, figure(side.hours));
    match (side.rate, side.ci95) {
        (Some(rate), Some([low, high])) => {
            format!("{counted} = {} ({} to {})", figure(rate), figure(low), figure(high))
        }
        _ => counted,
    }
}

fn rate_ratio(rate: &Rate) -> String {
    let [low, high] = rate.ratio_ci95.map(|limit| limit.map(figure));
    match (rate.ratio, low, high) {
        (Some(ratio), Some(low), Some(high)) => format!("× {} ({low} to {high})", figure(ratio)),
        (None, Some(low), None) => format!("at least × {low}"),
        _ => String::new(),
    }
}

fn tests(tests: &[Test], too_few: Option<&str>) -> String {
    let mut shown: Vec<String> =
        tests.iter().map(|test| format!("{} p{}", test.name, p_value(test.p))).collect();
    shown.extend(too_few.map(|why| format!("too few: {why}")));
    shown.join(", ")
}

/// Six digits near 1, scientific when small, a limit below what a double can be.
fn p_value(p: f64) -> String {
    if p >= 1e-4 {
        format!("={p:.6}")
    } else if p > 0.0 {
        format!("={p:.5e}")
    } else {
        " < 1e-300".to_owned()
    }
}
