//! `sseismo analyze`: logs and traces in, a verdict per scope and signature out.

use std::collections::BTreeMap;
use std::io::Write as _;
use std::path::PathBuf;

use anyhow::{Context as _, bail};
use clap::ValueEnum;
use sseismo_analysis::Analysis;
use sseismo_analysis::report::{Input, Report, SCHEMA};
use sseismo_analysis::signature::{Options, Preset};
use sseismo_capture::import;
use sseismo_trace::{Dim, Finding, SignatureId, Verdict};

use crate::exit::End;
use crate::reading::Reading;
use crate::show;

const EXAMPLES: &str = "Examples:
  sseismo analyze                                   # your own ~/.codex (or $CODEX_HOME)
  sseismo analyze ~/.codex --by model,effort,month
  sseismo analyze runs.csv --labels correct=is_correct
  sseismo analyze runs.csv --map reasoning=think_toks --json | jq '.findings[].verdict'
  sseismo analyze traces/ --fail-on burst,count-lattice   # exit code 1 when found";

/// Looks for clustered reasoning tokens in logs, count tables and traces.
///
/// Every format is recognised by content. Without a path, `$CODEX_HOME` or `~/.codex` is read.
#[derive(Debug, clap::Args)]
#[command(after_help = EXAMPLES)]
pub(crate) struct Args {
    /// Files or folders; `-` reads standard input.
    paths: Vec<PathBuf>,
    /// Print one JSON document (schema `sseismo.report/1`).
    #[arg(long)]
    json: bool,
    /// Print the JSON Schema of the report and stop.
    #[arg(long, exclusive = true)]
    json_schema: bool,
    /// Group streams by these: source, month, upstream, api, route, client, arm, model, effort.
    #[arg(long, value_delimiter = ',', value_parser = parse_dim, default_value = "source,model,effort")]
    by: Vec<Dim>,
    /// Exit with 1 when one of these signatures is found.
    #[arg(long, value_delimiter = ',', value_parser = parse_signature)]
    fail_on: Vec<SignatureId>,
    /// Which thresholds to use.
    #[arg(long, value_enum, default_value_t = PresetName::Measured)]
    preset: PresetName,
    #[command(flatten)]
    columns: Columns,
}

/// How columns of foreign tables are to be read.
#[derive(Debug, clap::Args)]
pub(crate) struct Columns {
    /// Take a label from a column, for example `correct=adjudicated_correct`.
    #[arg(long, value_name = "LABEL=COLUMN", value_parser = parse_pair)]
    labels: Vec<(String, String)>,
    /// Take a field from a column with an unusual name, for example `reasoning=think_toks`. Fields: reasoning,
    /// cached, input, output, model, effort, upstream, time, session, turn, `wall_ms`, `wall_s`, `ttft_ms`, `ttft_s`.
    #[arg(long, value_name = "FIELD=COLUMN", value_parser = parse_pair)]
    map: Vec<(String, String)>,
}

impl Columns {
    /// As the importers want it.
    pub(crate) fn options(&self, split: Option<String>) -> import::Options {
        let map = |pairs: &[(String, String)]| pairs.iter().cloned().collect::<BTreeMap<_, _>>();
        import::Options { map: map(&self.map), labels: map(&self.labels), split }
    }
}

#[derive(Clone, Copy, Debug, ValueEnum)]
pub(crate) enum PresetName {
    /// From measured data.
    Measured,
    /// The literal thresholds of the production write-ups.
    WriteUp,
}

impl From<PresetName> for Preset {
    fn from(name: PresetName) -> Self {
        match name {
            PresetName::Measured => Self::Measured,
            PresetName::WriteUp => Self::WriteUp,
        }
    }
}

/// Runs the verb.
pub(crate) fn run(args: Args) -> anyhow::Result<End> {
    if args.json_schema {
        return print_json(&sseismo_analysis::report::schema()).map(|()| End::Fine);
    }
    let paths = if args.paths.is_empty() { vec![codex_home()?] } else { args.paths };
    let mut reading = Reading::new(&paths, args.columns.options(None))?;
    let options = Options { preset: args.preset.into() };
    let mut analysis = Analysis::new(args.by, options);
    let inputs = reading.read(&mut |source, stream| analysis.push(source, &stream));
    if analysis.wants_second_pass() && !reading.interrupted() {
        analysis.start_second_pass();
        reading.read(&mut |source, stream| analysis.push(source, &stream));
    }
    let mut findings = analysis.finish();
    name_lost_events(&inputs, &mut findings);
    let report = Report {
        schema: SCHEMA.to_owned(),
        version: env!("CARGO_PKG_VERSION").to_owned(),
        interrupted: reading.interrupted(),
        inputs,
        findings,
    };
    if args.json {
        print_json(&report)?;
    } else {
        show::report(&mut anstream::stdout().lock(), &report)?;
    }
    let bad = reading.tell_errors(&report.inputs) || reading.tell_nothing(&report.inputs);
    Ok(if bad {
        End::BadInput
    } else if found(&report.findings, &args.fail_on) {
        End::Found
    } else {
        End::Fine
    })
}

/// Where events were recorded and are gone, recording again is no way to have them: what is missing must come back.
fn name_lost_events(inputs: &[Input], findings: &mut [Finding]) {
    let unseen = |finding: &&mut Finding| {
        finding.signature == SignatureId::Burst
            && matches!(finding.verdict, Verdict::NotMeasurable | Verdict::TooFew)
    };
    for finding in findings.iter_mut().filter(unseen) {
        let of = |input: &&Input| finding.scope.source.as_ref().is_none_or(|source| *source == input.path);
        let lost =
            inputs.iter().filter(of).filter_map(|input| input.skipped.get("stream-without-its-events"));
        let lost: u64 = lost.sum();
        if lost > 0 {
            // They were not "only counts".
            finding.notes.retain(|note| !note.starts_with("missing: events"));
            finding.next_step = format!(
                "put the missing files of `events/` back: {lost} streams of this source were stored with events that \
                 are gone, so that it cannot be told how they streamed"
            );
        }
    }
}

fn found(findings: &[Finding], fail_on: &[SignatureId]) -> bool {
    findings.iter().any(|finding| finding.verdict.is_alarm() && fail_on.contains(&finding.signature))
}

/// Prints one JSON document to stdout.
pub(crate) fn print_json(value: &impl serde::Serialize) -> anyhow::Result<()> {
    let mut out = std::io::stdout().lock();
    serde_json::to_writer_pretty(&mut out, value).map_err(std::io::Error::from)?;
    writeln!(out)?;
    Ok(())
}

fn codex_home() -> anyhow::Result<PathBuf> {
    let home = match std::env::var_os("CODEX_HOME") {
        Some(home) => PathBuf::from(home),
        None => std::env::home_dir().context("no path was given and there is no home folder")?.join(".codex"),
    };
    if !home.is_dir() {
        bail!("no path was given and {} is not a folder: name a file or folder to read", home.display());
    }
    Ok(home)
}

/// A dimension by its name.
pub(crate) fn parse_dim(text: &str) -> Result<Dim, String> {
    Dim::ALL
        .into_iter()
        .find(|dim| dim.name() == text)
        .ok_or_else(|| format!("one of {}", Dim::ALL.map(Dim::name).join(", ")))
}

fn parse_signature(text: &str) -> Result<SignatureId, String> {
    SignatureId::ALL
        .into_iter()
        .find(|id| id.name() == text)
        .ok_or_else(|| format!("one of {}", SignatureId::ALL.map(SignatureId::name).join(", ")))
}

fn parse_pair(text: &str) -> Result<(String, String), String> {
    match text.split_once('=') {
        Some((name, column)) if !name.is_empty() && !column.is_empty() => {
            Ok((name.to_owned(), column.to_owned()))
        }
        _ => Err("expected NAME=COLUMN".to_owned()),
    }
}
