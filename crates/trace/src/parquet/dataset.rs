//! A dataset's own description, and writing whole streams to it.

use std::collections::BTreeMap;
use std::fs::{self, File, OpenOptions};
use std::io::{self, Write};
use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};

use super::part::{PartName, PartWriter, Written, file, partition};
use super::{Error, VERSION};
use crate::{Delta, Read, Stream, Summary, UtcMicros};

/// What `dataset.json` calls the format.
const FORMAT: &str = "sseismo.trace";

/// Rows of `events/` and `reads/` together after which a part is written: about 50 MB of values.
const ROWS_PER_PART: usize = 1 << 19;

/// Streams after which a part is written, however few rows they have.
const STREAMS_PER_PART: usize = 1 << 15;

/// What `dataset.json` says, written once when the dataset is made.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Manifest {
    /// Always `sseismo.trace`.
    pub format: String,
    /// Version of the columns' meaning.
    pub schema_version: u32,
    /// Names the key of the identifiers' HMACs; none when no identifier is an HMAC.
    pub hash_key_id: Option<String>,
    /// Share of streams that are kept besides anomalous ones; 1 keeps all.
    pub sample: f64,
    /// What could have been stored and was not: `texts`, `raw`, `event-sizes` (per-flush sums instead).
    pub left_out: Vec<String>,
}

impl Default for Manifest {
    fn default() -> Self {
        Self {
            format: FORMAT.to_owned(),
            schema_version: VERSION,
            hash_key_id: None,
            sample: 1.0,
            left_out: vec!["texts".to_owned(), "raw".to_owned()],
        }
    }
}

impl Manifest {
    /// Where it lies in the dataset at `root`.
    pub fn path(root: &Path) -> PathBuf {
        root.join("dataset.json")
    }

    /// The description of the dataset at `root`.
    ///
    /// # Errors
    /// There is none, it is not ours, or a newer version wrote it.
    pub fn load(root: &Path) -> Result<Self, Error> {
        let path = Self::path(root);
        let not_ours = |why: String| Error::NotADataset { path: root.to_owned(), why };
        if fs::metadata(&path).is_ok_and(|meta| !meta.is_file()) {
            return Err(not_ours("its dataset.json is not a regular file".to_owned()));
        }
        let text = match fs::read_to_string(&path) {
            Ok(text) => text,
            Err(error) if error.kind() == io::ErrorKind::NotFound => {
                return Err(not_ours("it has no dataset.json".to_owned()));
            }
            Err(error) => return Err(Error::io("read", &path)(error)),
        };
        // The version comes first: a newer file may have other fields.
        let value: serde_json::Value =
            serde_json::from_str(&text).map_err(|e| not_ours(format!("dataset.json: {e}")))?;
        if value["format"] != FORMAT {
            return Err(not_ours(format!("dataset.json has no \"format\": \"{FORMAT}\"")));
        }
        let found = value["schema_version"].as_u64().and_then(|found| u32::try_from(found).ok());
        let found = found.ok_or_else(|| not_ours("dataset.json has no schema_version".to_owned()))?;
        if found > VERSION {
            return Err(Error::Newer { path, found, known: VERSION });
        }
        serde_json::from_value(value).map_err(|e| not_ours(format!("dataset.json: {e}")))
    }

    /// Makes the dataset at `root` and writes the description, or reads the one that is there: what it
    /// says then holds.
    ///
    /// # Errors
    /// The folder cannot be written, holds something else, or is a newer version's dataset.
    pub fn create_or_load(self, root: &Path) -> Result<Self, Error> {
        let path = Self::path(root);
        if path.exists() {
            return Self::load(root);
        }
        fs::create_dir_all(root).map_err(Error::io("create", root))?;
        let unfinished = root.join(".dataset.json.unfinished");
        let json = serde_json::to_vec_pretty(&self).map_err(|e| Error::encode(&path, e))?;
        let mut file: File = OpenOptions::new()
            .create(true)
            .write(true)
            .truncate(true)
            .open(&unfinished)
            .map_err(Error::io("create", &unfinished))?;
        file.write_all(&json).and_then(|()| file.sync_all()).map_err(Error::io("write", &unfinished))?;
        fs::rename(&unfinished, &path).map_err(Error::io("rename", &path))?;
        Ok(self)
    }
}

/// One stream that waits for its part.
#[derive(Debug)]
struct Waiting {
    summary: Summary,
    deltas: Vec<Delta>,
}

#[derive(Debug, Default)]
struct Buffer {
    streams: BTreeMap<u64, Waiting>,
    reads: BTreeMap<(u64, u32), Read>,
}

/// Writes whole streams to a dataset; parts come out as memory fills.
///
/// Streams may come in any order. A read that streams of several parts share is written to each of
/// these parts, within one part it is written once.
///
/// ```
/// use sseismo_trace::parquet::{Dataset, DatasetWriter, Manifest};
/// use sseismo_trace::{Delta, Kind, Micros, Phase, Stream, Summary, UtcMicros};
///
/// let folder = tempfile::tempdir()?;
/// let now = UtcMicros(1_790_000_000_000_000);
/// let mut writer = DatasetWriter::create(folder.path(), Manifest::default(), now)?;
/// let summary = Summary { stream_id: 7, started_at: Some(now), ..Summary::default() };
/// let deltas = [Delta::new(0, Kind::Reasoning, Phase::Reasoning, Some(Micros(1_500)))];
/// writer.stream(Stream { summary: &summary, deltas: &deltas, reads: &[] })?;
/// writer.finish()?;
///
/// let mut seen = 0;
/// Dataset::open(folder.path())?.streams(|stream| {
///     assert_eq!(stream.deltas, deltas);
///     seen += 1;
///     std::ops::ControlFlow::Continue(())
/// });
/// assert_eq!(seen, 1);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Debug)]
pub struct DatasetWriter {
    root: PathBuf,
    next: PartName,
    buffers: BTreeMap<String, Buffer>,
    rows: usize,
    streams: usize,
    written: Vec<Written>,
}

impl DatasetWriter {
    /// A writer to the dataset at `root`, which is made with this `manifest` if it is not there. `now`
    /// names the parts.
    ///
    /// # Errors
    /// The folder cannot be written, or holds another format's or a newer version's dataset.
    pub fn create(root: &Path, manifest: Manifest, now: UtcMicros) -> Result<Self, Error> {
        manifest.create_or_load(root)?;
        Ok(Self {
            root: root.to_owned(),
            next: PartName { unix_s: now.0.div_euclid(1_000_000), pid: std::process::id(), n: 0 },
            buffers: BTreeMap::new(),
            rows: 0,
            streams: 0,
            written: Vec::new(),
        })
    }

    /// Takes one stream. Of two streams with the same id in one part the later one stands, with
    /// events in the order of `seq`.
    ///
    /// # Errors
    /// A part was full and could not be written.
    pub fn stream(&mut self, stream: Stream<'_>) -> Result<(), Error> {
        let buffer = self.buffers.entry(partition(stream.summary.started_at)).or_default();
        let waiting = Waiting { summary: stream.summary.clone(), deltas: stream.deltas.to_vec() };
        buffer.streams.insert(stream.summary.stream_id, waiting);
        buffer.reads.extend(stream.reads.iter().map(|read| ((read.conn_id, read.read_id), *read)));
        self.rows += stream.deltas.len() + stream.reads.len();
        self.streams += 1;
        if self.rows >= ROWS_PER_PART || self.streams >= STREAMS_PER_PART { self.flush() } else { Ok(()) }
    }

    fn flush(&mut self) -> Result<(), Error> {
        self.rows = 0;
        self.streams = 0;
        for (partition, buffer) in std::mem::take(&mut self.buffers) {
            while file(&self.root, super::streams::FOLDER, &partition, &self.next.to_string()).exists() {
                self.next.n += 1;
            }
            let mut part = PartWriter::new(&self.root, &partition, self.next, &[]);
            self.next.n += 1;
            for (stream_id, mut waiting) in buffer.streams {
                waiting.deltas.sort_by_key(|delta| delta.seq);
                for delta in &waiting.deltas {
                    part.delta(stream_id, delta)?;
                }
                part.summary(waiting.summary)?;
            }
            for read in buffer.reads.into_values() {
                part.read(read)?;
            }
            self.written.push(part.finish()?);
        }
        Ok(())
    }

    /// Writes what waits and says what was written, part by part.
    ///
    /// # Errors
    /// A part could not be written.
    pub fn finish(mut self) -> Result<Vec<Written>, Error> {
        self.flush()?;
        Ok(self.written)
    }
}
