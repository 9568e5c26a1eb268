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
  sseismo compare direct/ proxied/          two trace datasets: which hop holds the stream back
  sseismo compare last-week/ today/ --match-hours     today against the same hours of last week

Two simulated upstreams, a healthy one and one that flushes after dead air:
  sseismo simulate data/scenarios/steady.toml --dataset healthy --streams 200
  sseismo simulate data/scenarios/write-up-burst.toml --dataset bursting --streams 200
  sseismo compare healthy bursting          see \"cluster events per hour\"";

/// Compares two sets of streams: shares, means, quantiles and rates, with intervals.
///
/// Success (`completed`), sessions of 5 or more calls that all succeeded, throughput, attempts per client turn,
/// cost, requests and cluster events per hour, and whatever else both sides hold. Differences are second minus
/// first, ratios second over first. Where sessions or turns are known they are the unit of every interval and
/// test: rows of one session are not independent. What rests on too few observations says so.
#[derive(Debug, clap::Args)]
#[command(after_help = EXAMPLES)]
pub(crate) struct Args {
    /// Two files or folders, or one with `--split`.
    #[arg(required_unless_present = "json_schema", num_args = 1..=2)]
    paths: Vec<PathBuf>,
    /// Compare the values of this column with each other.
    #[arg(long, value_name = "COLUMN")]
    split: Option<String>,
    /// Which two values of the split column to compare, in this order.
    #[arg(long, num_args = 2, value_names = ["FIRST", "SECOND"], requires = "split")]
    arms: Option<Vec<String>>,
    /// Compare only streams whose hour of day (UTC) both sides have; also whose weekday, where the first side
    /// has each weekday of the second. For a second side of some hours and a first one of several days.
    #[arg(long)]
    match_hours: bool,
    /// Print one JSON document (schema `sseismo.compare/1`).
    #[arg(long)]
    json: bool,
    /// Print the JSON Schema of the report and stop.
    #[arg(long, exclusive = true)]
    json_schema: bool,
    #[command(flatten)]
    columns: Columns,
}

/// Runs the verb.
pub(crate) fn run(args: &Args) -> anyhow::Result<End> {
    if args.json_schema {
        return print_json(&sseismo_analysis::compare::schema()).map(|()| End::Fine);
    }
    let mut comparison = Comparison::default();
    let mut sides_read = Vec::new();
    let first = read(args, &mut sides_read, &mut comparison)?;
    if first.interrupted && comparison.groups().len() < 2 {
        bail!("interrupted before there were two sides to compare");
    }
    if first.bad && comparison.groups().len() < 2 {
        return Ok(End::BadInput);
    }
    let [left, right] = sides(args, comparison.groups())?;
    let mut interrupted = first.interrupted;
    if comparison.wants_second_pass() && !interrupted {
        comparison.start_second_pass();
        interrupted = read(args, &mut sides_read, &mut comparison)?.interrupted;
    }
    let mut report = if args.match_hours {
        comparison.finish_at_shared_hours(&left, &right)?
    } else {
        comparison.finish(&left, &right)?
    };
    if let (Some(column), true) = (&args.split, first.unsplit > 0) {
        report.notes.push(format!("{} rows have no value in `{column}` and are left out", first.unsplit));
    }
    if interrupted {
        report.notes.push("interrupted: what is compared is what had been read by then".to_owned());
    }
    print(args, &report)?;
    Ok(if first.bad { End::BadInput } else { End::Fine })
}

/// What came of reading every path once.
struct Pass {
    /// A path could not be read.
    bad: bool,
    interrupted: bool,
    /// Rows without a value in the split column.
    unsplit: u64,
}

/// Reads each path by itself, so that its streams are known to be of that side. The first time `readings` is
/// filled, and what cannot be read is told.
fn read(args: &Args, readings: &mut Vec<Reading>, comparison: &mut Comparison) -> anyhow::Result<Pass> {
    let again = !readings.is_empty();
    let mut pass = Pass { bad: false, interrupted: false, unsplit: 0 };
    for (place, path) in args.paths.iter().enumerate() {
        if readings.len() == place {
            let options = args.columns.options(args.split.clone());
            readings.push(Reading::new(std::slice::from_ref(path), options)?);
        }
        let Some(reading) = readings.get_mut(place) else { break };
        let side = path.display().to_string();
        let inputs = reading.read(&mut |_, stream| match (&args.split, &stream.summary.canary_arm) {
            (None, _) => comparison.push(&side, &stream),
            (Some(_), Some(arm)) => comparison.push(arm, &stream),
            (Some(_), None) => pass.unsplit += 1,
        });
        pass.bad |= !again && (reading.tell_errors(&inputs) || reading.tell_nothing(&inputs));
        pass.interrupted = reading.interrupted();
        if pass.interrupted {
            break;
        }
    }
    Ok(pass)
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
        ([only], None) if args.paths.len() > 1 => bail!("nothing to compare `{only}` with"),
        ([only], None) => {
            bail!("nothing to compare `{only}` with: name a second path, or a column with `--split`")
        }
        (_, None) => bail!("two paths are compared, not {}", groups.len()),
    }
}
