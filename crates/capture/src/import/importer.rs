//! What a format must offer, and what it writes to.

use std::io;
use std::path::Path;

use sha2::{Digest, Sha256};
use sseismo_trace::{Kind, Provenance, Stream, Summary};

use super::input::{Gauge, Input};
use super::{Imported, Options};

/// One foreign format.
pub(super) trait Importer: Sync {
    /// Name in reports and in `provenance`, `codex-rollout`.
    fn name(&self) -> &'static str;
    /// The format in the words of the person who has such a file, for error messages.
    fn expects(&self) -> &'static str;
    /// How its files relate to sources.
    fn grain(&self) -> Grain;
    /// Whether a file that begins so is of this format.
    fn recognises(&self, head: &Head<'_>) -> Fit;
    /// Reads the file to its end. What was written to `out` before an error stands.
    ///
    /// Records that cannot be used are [skipped](Out::skip) under a reason; an error is for a file that
    /// cannot be read further.
    fn read(&self, input: &Input<'_>, options: &Options, out: &mut Out<'_>) -> Result<(), Error>;
}

/// How the files of a format relate to sources.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Grain {
    /// A file is a piece of one log; the source is the path that was asked for.
    Piece,
    /// Each file is a source.
    Table,
}

/// How a file begins.
#[derive(Clone, Copy, Debug)]
pub(super) struct Head<'a> {
    /// First bytes of the content, decompressed, a byte-order mark removed.
    pub(super) bytes: &'a [u8],
    /// The whole content is in `bytes`.
    pub(super) whole: bool,
    /// Where the file lies, for formats that must be opened by a library.
    pub(super) path: &'a Path,
    /// What the user said about columns.
    pub(super) options: &'a Options,
}

impl Head<'_> {
    /// The first lines: all complete ones, and the last when the file ends in it.
    pub(super) fn lines(&self) -> impl Iterator<Item = &[u8]> {
        let end = match memchr::memrchr(b'\n', self.bytes) {
            Some(end) if !self.whole => end,
            _ => self.bytes.len(),
        };
        self.bytes[..end].split(|&byte| byte == b'\n').map(<[u8]>::trim_ascii).filter(|line| !line.is_empty())
    }
}

/// Whether a file is of a format.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Fit {
    /// It is.
    Yes,
    /// It is not.
    No,
    /// It nearly is: what is missing, and what to do. Said to the user when nothing else fits.
    Near(String),
}

impl From<bool> for Fit {
    fn from(fits: bool) -> Self {
        if fits { Self::Yes } else { Self::No }
    }
}

/// Why a file, or the rest of it, could not be read.
#[derive(Debug, thiserror::Error)]
pub(super) enum Error {
    /// The operating system or a decompressor said no.
    #[error("{}", describe(.0))]
    Io(#[from] io::Error),
    /// The content is not what it seemed to be: what is wrong, where, and what to do.
    #[error("{0}")]
    Unusable(String),
}

/// An I/O error in the words of the person who has to do something about it.
fn describe(error: &io::Error) -> String {
    match error.kind() {
        io::ErrorKind::NotFound => "no such file (or it went away while being read)".to_owned(),
        io::ErrorKind::UnexpectedEof => format!("the file ends too early: {error}"),
        _ => format!("cannot be read: {error}"),
    }
}

/// Where an importer puts what it reads.
pub(super) struct Out<'a> {
    source: &'a str,
    aside: Option<String>,
    gauge: &'a dyn Gauge,
    imported: &'a mut Imported,
}

impl<'a> Out<'a> {
    pub(super) fn new(source: &'a str, gauge: &'a dyn Gauge, imported: &'a mut Imported) -> Self {
        Self { source, aside: None, gauge, imported }
    }

    /// An empty summary that says which format it was read from.
    pub(super) fn summary(&self) -> Summary {
        Summary { provenance: Provenance::Import(self.imported.format.to_owned()), ..Summary::default() }
    }

    /// Hands one stream on.
    pub(super) fn stream(&mut self, stream: Stream<'_>) {
        self.imported.streams += 1;
        let events = stream.deltas.iter().filter(|delta| delta.kind != Kind::Comment);
        self.imported.events += events.count() as u64;
        self.gauge.stream(self.aside.as_deref().unwrap_or(self.source), stream);
    }

    /// From now on streams get a source of their own, the file's with ` (what)` added, so that they are
    /// not pooled with its others; `None` ends that.
    pub(super) fn set_aside(&mut self, what: Option<&str>) {
        self.aside = what.map(|what| format!("{} ({what})", self.source));
    }

    /// The file, as the user sees it.
    pub(super) fn path(&self) -> &str {
        &self.imported.path
    }

    /// Hands on a stream of which only the summary is known.
    pub(super) fn summary_only(&mut self, summary: &Summary) {
        self.stream(Stream { summary, deltas: &[], reads: &[] });
    }

    /// Counts a record that is left out. `reason` is kebab-case and goes into the report.
    pub(super) fn skip(&mut self, reason: &'static str) {
        self.imported.skip(reason, 1);
    }

    /// Says once what a reader of the results should know about this file.
    pub(super) fn note(&mut self, note: &'static str) {
        self.imported.notes.insert(note);
    }

    /// Whether the sink wants no more. Only importers that do not read through [`Input`] need to ask.
    pub(super) fn stopped(&self) -> bool {
        self.gauge.stopped()
    }
}

/// The stored form of an identifier: the first 8 bytes of SHA-256 over its parts.
///
/// Stable over runs, so that the same session read twice has the same key. It hides an identifier
/// only as far as that cannot be guessed (a UUID cannot, `turn-1` can).
pub(super) fn key(parts: &[&str]) -> u64 {
    let mut hash = Sha256::new();
    for part in parts {
        hash.update((part.len() as u64).to_le_bytes());
        hash.update(part.as_bytes());
    }
    let digest = hash.finalize();
    digest.iter().take(8).fold(0, |key, &byte| (key << 8) | u64::from(byte))
}
