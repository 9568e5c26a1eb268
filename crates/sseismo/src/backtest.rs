//! `sseismo backtest`: the live detector over recorded traces, at their recorded times.
//!
//! Streams are spooled to a temporary file and read back in the order of their starts, so that memory grows
//! with what runs at once and not with what was recorded.

use std::io;
use std::ops::ControlFlow;
use std::path::{Path, PathBuf};

use anstyle::Style;
use anyhow::Context as _;
use serde::Serialize;
use sseismo_analysis::report::Input;
use sseismo_live_detector::{Options, Preset, Replay, View};
use sseismo_trace::parquet::{Manifest, StoredSignal, write_signals};
use sseismo_trace::{Micros, Signal, SignalState};

use crate::analyze::{Columns, PresetName, print_json};
use crate::clock;
use crate::exit::End;
use crate::reading::Reading;
use crate::show::{detail, plain_table, right_align};
use crate::spool::Spool;

mod score;

use score::{Score, Truth};

/// Schema of `--json`.
const SCHEMA: &str = "sseismo.backtest/0";
const DIM: Style = Style::new().dimmed();
/// Signals that are listed for people; `--json` has all.
const LISTED: usize = 40;

const EXAMPLES: &str = "Examples:
  sseismo backtest traces/
  sseismo backtest traces/ --false-alarm-every 7d --json \\
      | jq '.signals[] | select(.state==\"onset\")'
  sseismo simulate data/scenarios/onset.toml --dataset traces --streams 500 --truth truth.jsonl
  sseismo backtest traces --truth truth.jsonl
  sseismo backtest traces/ -o traces/                # adds the signals to the dataset";

/// Runs the live detector over recorded traces: what would it have said, and when?
///
/// Reads every format that `analyze` reads. With the truth of a simulated upstream it also says how much was
/// found, how soon, and how often it cried wolf.
#[derive(Debug, clap::Args)]
#[command(after_help = EXAMPLES)]
pub(crate) struct Args {
    /// Files or folders; `-` reads standard input.
    #[arg(required = true)]
    paths: Vec<PathBuf>,
    /// What was really done to each stream, as `simulate --dataset … --truth FILE` writes it.
    #[arg(long, value_name = "FILE")]
    truth: Option<PathBuf>,
    /// Time between two false alarms of the whole detector: 90s, 30m, 12h, 30d.
    #[arg(long, value_name = "TIME", default_value = "30d", value_parser = parse_span)]
    false_alarm_every: Micros,
    /// Which rules to use.
    #[arg(long, value_enum, default_value_t = PresetName::Measured)]
    preset: PresetName,
    /// Print one JSON document.
    #[arg(long)]
    json: bool,
    /// Add the signals to the trace dataset in this folder, which is made if it is not there.
    #[arg(short, long, value_name = "DIR")]
    output: Option<PathBuf>,
    #[command(flatten)]
    columns: Columns,
}

/// What `--json` prints.
#[derive(Debug, Serialize)]
struct Outcome {
    schema: &'static str,
    version: &'static str,
    interrupted: bool,
    inputs: Vec<Input>,
    /// Streams without a start, laid one after another.
    undated: u64,
    signals: Vec<Signal>,
    /// The detector at the end.
    view: View,
    /// Only with `--truth`.
    #[serde(skip_serializing_if = "Option::is_none")]
    scores: Option<Vec<Score>>,
}

/// Runs the verb.
pub(crate) fn run(args: &Args) -> anyhow::Result<End> {
    let mut truth = args.truth.as_deref().map(Truth::load).transpose()?;
    let mut reading = Reading::new(&args.paths, args.columns.options(None))?;
    let mut spool = Spool::new().context("cannot make a temporary file for the streams")?;
    let mut failed = None;
    let inputs = reading.read(&mut |_, stream| {
        if failed.is_none() {
            failed = spool.push(stream.summary, stream.deltas).err();
        }
    });
    if let Some(error) = failed {
        return Err(error).context("cannot spool the streams to a temporary file");
    }
    let options = Options {
        false_alarm_every: args.false_alarm_every,
        preset: Preset::from(args.preset),
        ..Options::default()
    };
    let mut replay = Replay::new(options);
    let undated = spool.undated();
    spool
        .read(|started, summary, deltas| {
            if let Some(truth) = &mut truth {
                truth.stream(started, summary, deltas);
            }
            replay.push(started, summary, deltas);
            ControlFlow::Continue(())
        })
        .context("cannot read the spooled streams back")?;
    replay.finish();
    let signals = replay.take_signals();
    let outcome = Outcome {
        schema: SCHEMA,
        version: env!("CARGO_PKG_VERSION"),
        interrupted: reading.interrupted(),
        inputs,
        undated,
        view: replay.detector().view(),
        scores: truth.map(|truth| truth.scores(&signals)),
        signals,
    };
    if let Some(folder) = &args.output {
        store(folder, &outcome.signals)?;
    }
    if args.json {
        print_json(&outcome)?;
    } else {
        show(&mut anstream::stdout().lock(), &outcome)?;
    }
    let bad = reading.tell_errors(&outcome.inputs) || reading.tell_nothing(&outcome.inputs);
    Ok(if bad { End::BadInput } else { End::Fine })
}

fn store(folder: &Path, signals: &[Signal]) -> anyhow::Result<()> {
    let stored: Vec<StoredSignal> = signals.iter().cloned().map(StoredSignal::from).collect();
    write_signals(folder, Manifest::default(), &stored, clock::now())
        .with_context(|| format!("cannot add the signals to {}", folder.display()))
}

/// A span such as `90s`, `30m`, `12h` or `30d`.
fn parse_span(text: &str) -> Result<Micros, String> {
    let wrong = || format!("`{text}` is no time: write a whole number and s, m, h or d, for example 30d");
    let (digits, unit) = text.split_at_checked(text.len().saturating_sub(1)).ok_or_else(wrong)?;
    let seconds = match unit {
        "s" => 1,
        "m" => 60,
        "h" => 3_600,
        "d" => 86_400,
        _ => return Err(wrong()),
    };
    let span = digits.parse::<i64>().ok().and_then(|n| n.checked_mul(seconds)?.checked_mul(1_000_000));
    span.filter(|span| *span > 0).map(Micros).ok_or_else(wrong)
}

fn show(out: &mut dyn io::Write, outcome: &Outcome) -> io::Result<()> {
    let streams: u64 = outcome.inputs.iter().map(|input| input.streams).sum();
    let events: u64 = outcome.inputs.iter().map(|input| input.events).sum();
    writeln!(out, "{streams} streams, {events} events")?;
    if outcome.undated > 0 {
        writeln!(out, "{DIM}{} streams have no start: laid one after another{DIM:#}", outcome.undated)?;
    }
    if outcome.interrupted {
        writeln!(out, "{DIM}interrupted: what follows covers what had been read by then{DIM:#}")?;
    }
    signals(out, &outcome.signals)?;
    watches(out, &outcome.view)?;
    match &outcome.scores {
        Some(scores) => score::show(out, scores),
        None => Ok(()),
    }
}

fn signals(out: &mut dyn io::Write, signals: &[Signal]) -> io::Result<()> {
    let told: Vec<&Signal> = signals.iter().filter(|signal| signal.state != SignalState::Refresh).collect();
    if told.is_empty() {
        return writeln!(out, "\nno signals");
    }
    let mut table = plain_table(["at (UTC)", "signal", "state", "target", "detail", "strength", "evidence"]);
    right_align(&mut table, &[5]);
    for signal in told.iter().take(LISTED) {
        let evidence = &signal.evidence;
        let cause = signal.cause.map(|cause| format!(", {}", cause.name())).unwrap_or_default();
        table.add_row([
            time(signal.at.0),
            signal.detail.signature().name().to_owned(),
            signal.state.name().to_owned(),
            signal.target.to_string(),
            format!("{}{cause}", detail(&signal.detail)),
            format!("{:.2}", signal.strength),
            format!(
                "{:.4} of {:.4} ({}) in {} {}",
                Short(evidence.value),
                Short(evidence.threshold),
                evidence.statistic,
                evidence.n,
                evidence.unit
            ),
        ]);
    }
    writeln!(out, "\n{table}")?;
    if told.len() > LISTED {
        writeln!(out, "{DIM}and {} more; --json has all{DIM:#}", told.len() - LISTED)?;
    }
    Ok(())
}

/// A number in few characters, whatever its size.
struct Short(f64);

impl std::fmt::Display for Short {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        if self.0 == 0.0 || (0.001..1e5).contains(&self.0.abs()) {
            write!(f, "{:.1}", self.0)
        } else {
            write!(f, "{:.1e}", self.0)
        }
    }
}

/// A moment as people read it, to the second.
fn time(at: i64) -> String {
    let seconds = at.div_euclid(1_000_000);
    let (day, second) = (seconds.div_euclid(86_400), seconds.rem_euclid(86_400));
    let date = sseismo_trace::parquet::partition(Some(sseismo_trace::UtcMicros(day * 86_400_000_000)));
    let date = date.trim_start_matches("date=");
    format!("{date} {:02}:{:02}:{:02}", second / 3_600, second / 60 % 60, second % 60)
}

/// Where each watch stands that has seen anything.
fn watches(out: &mut dyn io::Write, view: &View) -> io::Result<()> {
    let mut table = plain_table(["scope", "signature", "state", "learned", "statistic", "threshold", "ARL"]);
    right_align(&mut table, &[3, 4, 5, 6]);
    for watch in view.watches.iter().filter(|watch| watch.learned > 0) {
        let number =
            |value: Option<f64>| value.map_or_else(|| "–".to_owned(), |value| Short(value).to_string());
        table.add_row([
            watch.target.to_string(),
            watch.signature.name().to_owned(),
            watch.state.name().to_owned(),
            format!("{} of {} {}", watch.learned, watch.needed, watch.unit),
            Short(watch.value).to_string(),
            number(watch.threshold),
            number(watch.average_run_length),
        ]);
    }
    writeln!(out, "\n{table}")?;
    let every = view.false_alarm_every.seconds() / 86_400.0;
    writeln!(
        out,
        "{DIM}one false alarm in {every:.1} days over {} pairs of scope and signature; ARL: observations \
         between two false alarms of one{DIM:#}",
        view.live_pairs
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn spans_have_units() {
        assert_eq!(parse_span("30d"), Ok(Micros(2_592_000_000_000)));
        assert_eq!(parse_span("90s"), Ok(Micros(90_000_000)));
        for wrong in ["", "d", "30", "0s", "-1h", "30 d", "5w", "9999999999999d", "ü"] {
            assert!(parse_span(wrong).is_err(), "{wrong}");
        }
    }

    #[test]
    fn a_moment_is_a_date_and_a_time() {
        assert_eq!(time(1_767_225_661_000_001), "2026-01-01 00:01:01");
    }
}
