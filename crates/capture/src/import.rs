//! Foreign files to streams: one file per format, one line in [`IMPORTERS`] to register it.
//!
//! A format is recognised by content, never by a file's name alone. Readers stream: memory does not
//! grow with the size of a file. A record that cannot be used is counted under its reason and the rest
//! is still read; only a file that nothing can be made of is an error.

use std::collections::BTreeMap;
use std::ops::ControlFlow;
use std::path::Path;

use sseismo_trace::Stream;

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
    /// source each.
    fn stream(&mut self, source: &str, stream: Stream<'_>);
    /// `bytes` more of the input are done. Break to stop: what was read so far stands.
    fn progress(&mut self, bytes: u64) -> ControlFlow<()>;
}

/// What became of one file.
#[derive(Clone, Debug, Default)]
pub struct Imported {
    /// Where it lies, as reached from the path that was asked for.
    pub path: String,
    /// Its format; `unknown` when none fits.
    pub format: &'static str,
    /// Streams read.
    pub streams: u64,
    /// Server-sent events read, comments not counted.
    pub events: u64,
    /// Records left out, by reason.
    pub skipped: BTreeMap<&'static str, u64>,
    /// Why the file, or the rest of it, could not be read.
    pub error: Option<String>,
}

/// Reads `path`, a file or a folder, to the end or until the sink breaks.
pub fn import(path: &Path, options: &Options, sink: &mut dyn Sink) -> Vec<Imported> {
    let _ = (path, options, sink);
    Vec::new()
}
