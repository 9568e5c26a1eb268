//! `sseismo compare`: two files, or one file split by a column; every difference with its interval.

use std::path::PathBuf;

use anyhow::{Context as _, bail};
use sseismo_analysis::compare::{CompareReport, Comparison};

use crate::analyze::{Columns, print_json};
use crate::exit::End;
use crate::reading::Reading;
use crate::show;

const EXAMPLES: &str = "Examples:
  sseismo compare before.csv after.csv --labels correct=is_correct
  sseismo compare ~/codex-june ~/codex-july --json | jq '.quantities[] | {name, mean_difference}'
  sseismo compare runs.csv --split arm --labels correct=adjudicated_correct
  sseismo compare direct/ proxied/          two trace datasets: which hop holds the stream back";

/// Compares two sets of streams: shares, means and quantiles, with intervals.
///
/// Differences are second minus first, ratios second over first. Where sessions or turns are known they
/// are the unit of every interval and test: rows of one session are not independent.
#[derive(Debug, clap::Args)]
#[command(after_help = EXAMPLES)]
pub(crate) struct Args {
    /// Two files or folders, or one with `--split`.
    #[arg(required = true, num_args = 1..=2)]
    paths: Vec<PathBuf>,
    /// Compare the values of this column with each other.
    #[arg(long, value_name = "COLUMN")]
    split: Option<String>,
    /// Which two values of the split column to compare, in this order.
    #[arg(long, num_args = 2, value_names = ["FIRST", "SECOND"], requires = "split")]
    arms: Option<Vec<String>>,
    /// Print one JSON document (schema `sseismo.compare/1`).
    #[arg(long)]
    json: bool,
    #[command(flatten)]
    columns: Columns,
}

/// Runs the verb.
pub(crate) fn run(args: &Args) -> anyhow::Result<End> {
    let mut comparison = Comparison::default();
    let mut unsplit = 0_u64;
    let (mut bad, mut interrupted) = (false, false);
    // Each path is read by itself, so that its streams are known to be of that side.
    for path in &args.paths {
        let mut reading = Reading::new(std::slice::from_ref(path), args.columns.options(args.split.clone()))?;
        let side = path.display().to_string();
        let inputs = reading.read(&mut |_, stream| match (&args.split, &stream.summary.canary_arm) {
            (None, _) => comparison.push(&side, &stream),
            (Some(_), Some(arm)) => comparison.push(arm, &stream),
            (Some(_), None) => unsplit += 1,
        });
        bad |= reading.tell_errors(&inputs);
        interrupted = reading.interrupted();
        if interrupted {
            break;
        }
    }
    if interrupted && comparison.groups().len() < 2 {
        bail!("interrupted before there were two sides to compare");
    }
    if bad && comparison.groups().len() < 2 {
        return Ok(End::BadInput);
    }
    let [first, second] = sides(args, comparison.groups())?;
    let mut report = comparison.finish(&first, &second)?;
    if let (Some(column), true) = (&args.split, unsplit > 0) {
        report.notes.push(format!("{unsplit} rows have no value in `{column}` and are left out"));
    }
    if interrupted {
        report.notes.push("interrupted: what is compared is what had been read by then".to_owned());
    }
    print(args, &report)?;
    Ok(if bad { End::BadInput } else { End::Fine })
}

fn print(args: &Args, report: &CompareReport) -> anyhow::Result<()> {
    if args.json { print_json(report) } else { Ok(show::comparison(&mut anstream::stdout().lock(), report)?) }
}

/// The names of the two groups, in the order in which they are compared.
fn sides(args: &Args, groups: &[String]) -> anyhow::Result<[String; 2]> {
    if let Some(arms) = &args.arms {
        return <[String; 2]>::try_from(arms.clone()).ok().context("--arms takes two values");
    }
    match (groups, &args.split) {
        ([first, second], _) => Ok([first.clone(), second.clone()]),
        (_, Some(column)) => bail!(
            "`{column}` has {} values ({}): name two with `--arms FIRST SECOND`",
            groups.len(),
            groups.join(", ")
        ),
        ([], None) => bail!("nothing to compare: no streams were read"),
        ([only], None) => {
            bail!("nothing to compare `{only}` with: name a second path, or a column with `--split`")
        }
        (_, None) => bail!("two paths are compared, not {}", groups.len()),
    }
}
