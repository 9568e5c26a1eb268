//! `sseismo import`: foreign files in, a trace dataset out.

use std::collections::BTreeMap;
use std::io::Write as _;
use std::path::{Path, PathBuf};

use anyhow::{Context as _, bail};
use serde::Serialize;
use sseismo_analysis::report::Input;
use sseismo_capture::recorder::Hasher;
use sseismo_trace::parquet::{DatasetWriter, Manifest};
use sseismo_trace::{Read, Stream, Summary};

use crate::analyze::{Columns, print_json};
use crate::clock;
use crate::exit::End;
use crate::reading::Reading;

const EXAMPLES: &str = "Examples:
  sseismo import ~/.codex -o codex-traces
  sseismo import run1/profile_export.jsonl run2/profile_export.jsonl -o traces
  sseismo import runs.csv --split arm --labels correct=is_correct -o traces
  duckdb -c \"SELECT model_served, count(*) FROM 'traces/streams/*/*.parquet' GROUP BY 1\"";

/// Converts logs, count tables and recordings of other tools to a trace dataset (Parquet).
///
/// No text is taken over. Identifiers are hashed with a key of the new dataset, so that they cannot be
/// matched with those of another. All inputs become one source: import what you want to compare into
/// folders of their own.
#[derive(Debug, clap::Args)]
#[command(after_help = EXAMPLES)]
pub(crate) struct Args {
    /// Files or folders; `-` reads standard input.
    #[arg(required = true)]
    paths: Vec<PathBuf>,
    /// The dataset's folder; it must not hold one yet.
    #[arg(short, long, value_name = "DIR")]
    output: PathBuf,
    /// Column whose value becomes the streams' arm.
    #[arg(long, value_name = "COLUMN")]
    split: Option<String>,
    /// Print one JSON document.
    #[arg(long)]
    json: bool,
    #[command(flatten)]
    columns: Columns,
}

/// What was written.
#[derive(Debug, Serialize)]
struct Outcome {
    output: String,
    streams: u64,
    events: u64,
    /// Bytes on disk by table.
    bytes: BTreeMap<&'static str, u64>,
    /// The user ended the reading early.
    interrupted: bool,
    inputs: Vec<Input>,
}

/// Runs the verb.
pub(crate) fn run(args: Args) -> anyhow::Result<End> {
    let mut reading = Reading::new(&args.paths, args.columns.options(args.split))?;
    let mut target = Target::create(&args.output)?;
    let inputs = reading.read(&mut |source, stream| target.take(source, stream));
    let (streams, events) = (target.streams, target.events);
    let outcome = Outcome {
        output: args.output.display().to_string(),
        streams,
        events,
        bytes: target.finish()?,
        interrupted: reading.interrupted(),
        inputs,
    };
    if args.json {
        print_json(&outcome)?;
    } else {
        print(&outcome)?;
    }
    let bad = reading.tell_errors(&outcome.inputs) || reading.tell_nothing(&outcome.inputs);
    Ok(if bad { End::BadInput } else { End::Fine })
}

fn print(outcome: &Outcome) -> std::io::Result<()> {
    let mut out = anstream::stdout().lock();
    for input in &outcome.inputs {
        write!(out, "{}: {}, {} streams, {} events", input.path, input.format, input.streams, input.events)?;
        let skipped = input.skipped.iter().map(|(reason, count)| format!(", {count} left out ({reason})"));
        writeln!(out, "{}", skipped.collect::<String>())?;
    }
    let bytes: u64 = outcome.bytes.values().sum();
    let early = if outcome.interrupted { "; interrupted, the rest was not read" } else { "" };
    writeln!(
        out,
        "{}: {} streams and {} events in {bytes} bytes{early}",
        outcome.output, outcome.streams, outcome.events
    )
}

/// The dataset that is being written.
struct Target {
    writer: DatasetWriter,
    hasher: Hasher,
    streams: u64,
    /// Comments not counted, as in reports.
    events: u64,
    failed: Option<sseismo_trace::parquet::Error>,
}

impl Target {
    fn create(root: &Path) -> anyhow::Result<Self> {
        if Manifest::path(root).exists() {
            bail!("{} holds a dataset already: choose a new folder", root.display());
        }
        std::fs::create_dir_all(root).with_context(|| format!("cannot create {}", root.display()))?;
        let hasher =
            Hasher::open(root).with_context(|| format!("cannot make a key in {}", root.display()))?;
        let manifest = Manifest { hash_key_id: Some(hasher.key_id()), ..Manifest::default() };
        let writer = DatasetWriter::create(root, manifest, clock::now())?;
        Ok(Self { writer, hasher, streams: 0, events: 0, failed: None })
    }

    /// Writes one stream. After a failure the rest is passed over; [`Target::finish`] says why.
    fn take(&mut self, source: &str, stream: Stream<'_>) {
        if self.failed.is_some() {
            return;
        }
        let summary = self.summary(source, stream.summary);
        let ours = |read: &Read| Read { conn_id: self.conn(source, read.conn_id), ..*read };
        let reads: Vec<Read> = stream.reads.iter().map(ours).collect();
        self.streams += 1;
        self.events +=
            stream.deltas.iter().filter(|delta| delta.kind != sseismo_trace::Kind::Comment).count() as u64;
        let written = self.writer.stream(Stream { summary: &summary, deltas: stream.deltas, reads: &reads });
        self.failed = written.err();
    }

    /// The summary with identifiers of this dataset. Streams are numbered as they come: ids of several
    /// sources may be the same. Sessions, turns and callers keep what they share.
    fn summary(&self, source: &str, summary: &Summary) -> Summary {
        let keyed =
            |domain: &str, key: Option<u64>| key.map(|key| self.hasher.hash(domain, &key.to_le_bytes()));
        Summary {
            stream_id: self.streams,
            session_key: keyed("session", summary.session_key),
            turn_key: keyed("turn", summary.turn_key),
            group_id: keyed("group", summary.group_id),
            caller_hash: keyed("caller", summary.caller_hash),
            conn_id: summary.conn_id.map(|id| self.conn(source, id)),
            ..summary.clone()
        }
    }

    /// Connections of several sources may have the same id.
    fn conn(&self, source: &str, id: u64) -> u64 {
        self.hasher.hash("conn", format!("{source}\0{id}").as_bytes())
    }

    fn finish(self) -> anyhow::Result<BTreeMap<&'static str, u64>> {
        if let Some(error) = self.failed {
            return Err(error).context("the dataset is not complete");
        }
        let mut bytes = BTreeMap::new();
        for part in self.writer.finish()? {
            for (table, size) in part.bytes {
                *bytes.entry(table).or_default() += size;
            }
        }
        Ok(bytes)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Streams with what an import must not change.
    fn read(path: &Path) -> Vec<(Summary, usize)> {
        let mut streams = Vec::new();
        let mut reading =
            Reading::new(&[path.to_owned()], sseismo_capture::import::Options::default()).unwrap();
        let inputs = reading.read(&mut |_, stream| {
            let kept = Summary {
                stream_id: 0,
                session_key: None,
                turn_key: None,
                group_id: None,
                caller_hash: None,
                conn_id: None,
                ..stream.summary.clone()
            };
            streams.push((kept, stream.deltas.len()));
        });
        assert!(inputs.iter().all(|input| input.error.is_none()), "{inputs:?}");
        streams
    }

    fn args(from: &Path, to: &Path) -> Args {
        let columns = <Columns as clap::FromArgMatches>::from_arg_matches(
            &<Columns as clap::Args>::augment_args(clap::Command::new("import")).get_matches_from(["import"]),
        );
        Args {
            paths: vec![from.to_owned()],
            output: to.to_owned(),
            split: None,
            json: true,
            columns: columns.unwrap(),
        }
    }

    /// Law: a real file read directly and through a dataset gives the same streams.
    #[test]
    fn a_dataset_holds_what_its_source_held() {
        let from = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../data/rollouts");
        let folder = tempfile::tempdir().unwrap();
        let to = folder.path().join("traces");
        assert_eq!(run(args(&from, &to)).unwrap(), End::Fine);
        let expected = read(&from);
        assert!(!expected.is_empty());
        // Parts are by date: the order of the days is the dataset's, within a day the source's.
        let mut expected = expected;
        expected.sort_by_key(|(summary, _)| summary.started_at.map(|at| at.0.div_euclid(86_400_000_000)));
        let mut found = read(&to);
        found.sort_by_key(|(summary, _)| summary.started_at.map(|at| at.0.div_euclid(86_400_000_000)));
        assert_eq!(found, expected);
        let again = run(args(&from, &to)).unwrap_err().to_string();
        assert!(again.contains("choose a new folder"), "{again}");
    }
}
