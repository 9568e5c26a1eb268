//! Foreign files to streams: one file per format, one line in `IMPORTERS` to register it.
//!
//! A format is recognised by content, never by a file's name alone. Readers stream: memory does not
//! grow with the size of a file. A record that cannot be used is counted under its reason and the rest
//! is still read; only a file that nothing can be made of is an error.
//!
//! | module | holds |
//! |---|---|
//! | `importer` | what a format must offer, and what it writes to |
//! | `input` | opening: compression, progress, a file that is opened twice |
//! | `lines` | lines of bounded length |
//! | `walk` | which files of a folder are read, in which order |
//! | the others | one format each |

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::ops::ControlFlow;
use std::path::Path;

use sseismo_trace::Stream;

mod aiperf;
mod azure;
mod codex_exec;
mod codex_rollout;
mod codex_usage;
mod counts;
mod dataset;
mod importer;
mod input;
mod lines;
mod mastra;
mod mooncake;
mod ollama;
mod opencode;
mod raw_sse;
mod servegen;
#[cfg(test)]
mod tests;
mod walk;
mod whisper_leak;

use importer::{Error, Fit, Grain, Head, Importer, Out};
use input::{Gauge, Input, Meter};
use walk::Walk;

/// Every format, asked in this order: the particular ones before those that take any table.
const IMPORTERS: &[&dyn Importer] = &[
    &codex_rollout::CodexRollout,
    &codex_exec::CodexExec,
    &opencode::OpenCode,
    &aiperf::Aiperf,
    &ollama::Ollama,
    &mastra::Mastra,
    &whisper_leak::WhisperLeak,
    &raw_sse::RawSse,
    &azure::Azure,
    &mooncake::Mooncake,
    &servegen::ServeGen,
    &counts::Counts,
];

/// What a file's format is called when none fits.
const UNKNOWN: &str = "unknown";
/// What a folder's own entry is called: it counts the files that were passed over.
const FOLDER: &str = "folder";

/// What the user said about columns.
#[derive(Clone, Debug, Default)]
pub struct Options {
    /// `--map field=column`: where the usual names are not used.
    pub map: BTreeMap<String, String>,
    /// `--labels label=column`.
    pub labels: BTreeMap<String, String>,
    /// `--split column`: its value becomes the stream's arm.
    pub split: Option<String>,
}

/// Who takes what is read.
pub trait Sink {
    /// One stream of `source`. Pieces of one log (a folder of sessions) share a source; tables are one
    /// source each. Threads that the user did not start have a source of their own, ending in
    /// ` (helper threads)`, so that no scope pools them with the user's.
    fn stream(&mut self, source: &str, stream: Stream<'_>);
    /// `bytes` more of the input are done. Break to stop: what was read so far stands.
    fn progress(&mut self, bytes: u64) -> ControlFlow<()>;
}

/// What became of one file.
#[derive(Clone, Debug, Default)]
pub struct Imported {
    /// Where it lies, as reached from the path that was asked for.
    pub path: String,
    /// Its format; `unknown` when none fits, `folder` for the count of a folder's other files.
    pub format: &'static str,
    /// Streams read.
    pub streams: u64,
    /// Server-sent events read, comments not counted.
    pub events: u64,
    /// Records left out, by reason.
    pub skipped: BTreeMap<&'static str, u64>,
    /// What a reader of the results should know about this file.
    pub notes: BTreeSet<&'static str>,
    /// Why the file, or the rest of it, could not be read.
    pub error: Option<String>,
}

impl Imported {
    fn new(path: &Path, format: &'static str) -> Self {
        Self { path: path.display().to_string(), format, ..Self::default() }
    }

    fn failed(path: &Path, error: &dyn ToString) -> Self {
        Self { error: Some(error.to_string()), ..Self::new(path, UNKNOWN) }
    }

    fn skip(&mut self, reason: &'static str, records: u64) {
        *self.skipped.entry(reason).or_default() += records;
    }
}

/// Bytes that [`import`] will go through at `path`: the whole of its progress.
pub fn bytes(path: &Path) -> u64 {
    match fs::metadata(path) {
        Ok(meta) if meta.is_dir() => Walk::new(path).files.iter().map(|file| file.bytes).sum(),
        Ok(meta) => meta.len(),
        Err(_) => 0,
    }
}

/// Reads `path`, a file or a folder, to the end or until the sink breaks.
///
/// In a folder, files of no known format are passed over and counted; asked for by name, such a file
/// is an error. What lies there twice (through links, beside its compressed copy, as a session that was
/// archived and restored) is read once.
pub fn import(path: &Path, options: &Options, sink: &mut dyn Sink) -> Vec<Imported> {
    let meter = Meter::new(sink);
    match fs::metadata(path) {
        Ok(meta) if meta.is_dir() && dataset::is_dataset(path) => {
            meter.start(bytes(path));
            let imported = dataset::read(path, &meter);
            meter.finish();
            vec![imported]
        }
        Ok(meta) if meta.is_dir() => folder(path, options, &meter),
        Ok(meta) if meta.is_file() => vec![file(path, meta.len(), None, options, &meter)],
        Ok(_) => vec![Imported::failed(path, &"neither a file nor a folder; write the data to a file first")],
        Err(error) => vec![Imported::failed(path, &Error::Io(error))],
    }
}

fn folder(path: &Path, options: &Options, meter: &Meter<'_>) -> Vec<Imported> {
    let walk = Walk::new(path);
    let mut others = Imported { skipped: walk.skipped, ..Imported::new(path, FOLDER) };
    let mut done: Vec<Imported> =
        walk.unreadable.iter().map(|(path, error)| Imported::failed(path, error)).collect();
    for found in &walk.files {
        if meter.stopped() {
            break;
        }
        let imported = file(&found.path, found.bytes, Some(path), options, meter);
        if imported.format == UNKNOWN && imported.error.is_none() {
            for (reason, records) in imported.skipped {
                others.skip(reason, records);
            }
        } else {
            done.push(imported);
        }
    }
    if done.is_empty() && !meter.stopped() {
        others.error = Some(if path.join("streams").is_dir() {
            "the files of a trace dataset without its dataset.json: put it back".to_owned()
        } else {
            format!("no logs in this folder ({} files seen); {}", walk.files.len(), known())
        });
    }
    if others.error.is_some() || !others.skipped.is_empty() {
        done.push(others);
    }
    done.sort_by(|a, b| a.path.cmp(&b.path));
    done
}

/// Reads one file. `folder` is the folder that was asked for; without it the file itself was.
fn file(path: &Path, bytes: u64, folder: Option<&Path>, options: &Options, meter: &Meter<'_>) -> Imported {
    meter.start(bytes);
    let mut imported = Imported::new(path, UNKNOWN);
    let read = Input::new(path, meter).and_then(|input| recognised(&input, folder, options, &mut imported));
    // A sink that breaks ends reading by an error of its own, which nobody needs to see.
    if let (Err(error), false) = (read, meter.stopped()) {
        imported.error = Some(error.to_string());
    }
    meter.finish();
    imported
}

fn recognised(
    input: &Input<'_>,
    folder: Option<&Path>,
    options: &Options,
    imported: &mut Imported,
) -> Result<(), Error> {
    let mut nearest = None;
    let head = Head { bytes: input.head(), whole: input.head_is_whole(), path: input.path(), options };
    for importer in IMPORTERS {
        match importer.recognises(&head) {
            Fit::Yes => {
                imported.format = importer.name();
                let source = match (importer.grain(), folder) {
                    (Grain::Piece, Some(folder)) => folder.display().to_string(),
                    _ => imported.path.clone(),
                };
                return importer.read(input, options, &mut Out::new(&source, input.gauge(), imported));
            }
            Fit::Near(why) => nearest = nearest.or(Some(why)),
            Fit::No => {}
        }
    }
    if folder.is_some() {
        imported.skip(if head.bytes.is_empty() { "empty-file" } else { "other-file" }, 1);
        return Ok(());
    }
    Err(Error::Unusable(nearest.unwrap_or_else(|| unknown(head.bytes))))
}

/// What to say of a file that no importer wants.
fn unknown(head: &[u8]) -> String {
    let looks = match head {
        [] => "the file is empty",
        [0xff, 0xfe, ..] | [0xfe, 0xff, ..] => "UTF-16 text: save it as UTF-8 first",
        [b'P', b'A', b'R', b'1', ..] => {
            "a Parquet file: of a trace dataset name the folder with its dataset.json, save others as CSV first"
        }
        head if head.contains(&0) => "binary data, not a log or a table",
        head if input::is_binary(head) => {
            "not UTF-8: binary data, or text in an older encoding that must be saved as UTF-8 first"
        }
        [b'[', ..] => "a JSON array: write one object a line first (`jq -c '.[]'`)",
        head if head.trim_ascii().is_empty() => "the file is blank",
        _ => "text of no known format",
    };
    format!("{looks}; {}", known())
}

fn known() -> String {
    let formats: Vec<&str> = IMPORTERS.iter().map(|importer| importer.expects()).collect();
    format!("expected one of: {}", formats.join(", "))
}
