//! One part: the files of all tables that belong together. In: rows in order. Out: finished files.
//!
//! A Parquet file without its footer cannot be read, so each table is written under a name that no
//! reader picks up and renamed when complete. `streams/` is renamed last: a part exists when its
//! streams do, and what an interrupted run left of other tables is ignored and written over.

use std::collections::BTreeMap;
use std::fmt;
use std::fs::{self, File};
use std::path::{Path, PathBuf};

use arrow_array::RecordBatch;
use arrow_array::temporal_conversions::as_date;
use arrow_array::types::TimestampMicrosecondType;
use parquet::arrow::ArrowWriter;
use parquet::arrow::arrow_writer::ArrowWriterOptions;
use parquet::basic::{Compression, Encoding, ZstdLevel};
use parquet::file::metadata::KeyValue;
use parquet::file::properties::{EnabledStatistics, WriterProperties};
use parquet::schema::types::ColumnPath;
use serde::{Deserialize, Serialize};

use super::table::{self, Event, Raw, Row, Text};
use super::{Error, SCHEMA_KEY, VERSION};
use crate::{Delta, Micros, Read, Summary, UtcMicros};

/// Key of the clock anchors in a part's key-value metadata.
pub(super) const ANCHORS_KEY: &str = "sseismo.anchors";

/// Key of what a part's other tables held when it was written.
const TABLES_KEY: &str = "sseismo.tables";

/// What one table of a part held when it was written, so that a file that is gone later can be told from
/// one that never was.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Held {
    /// Rows.
    pub(super) rows: u64,
    /// Streams, or connections, with a row.
    pub(super) owners: u64,
}

impl Held {
    /// What the footer of a part's `streams/` says of its other tables, by name; nothing where a writer
    /// left no word of it.
    pub(super) fn by_table(stored: Option<&Vec<KeyValue>>) -> BTreeMap<String, Self> {
        let pair = stored.into_iter().flatten().find(|pair| pair.key == TABLES_KEY);
        pair.and_then(|pair| serde_json::from_str(pair.value.as_deref()?).ok()).unwrap_or_default()
    }
}

/// The folder of streams whose start is not known: Hive's name for a null, so that every engine reads
/// the date as null.
pub(super) const NO_DATE: &str = "__HIVE_DEFAULT_PARTITION__";

/// Rows in one row group. Small groups cost little space (measured on `events/`: 16 Ki rows 2.5 % larger
/// than 128 Ki) and bound what a writer holds, and a reader that looks rows up by their group.
const GROUP_ROWS: usize = 16_384;

/// Rows in one row group of `events/`. They are scanned by the million, and for each column of each group
/// the reader makes a decompressor: a fifth of a scan's time with groups of 16 Ki (measured, 20 µs each).
const EVENT_GROUP_ROWS: usize = 65_536;

/// Rows that wait before they are encoded: those of `streams/` are large, the others small.
const WAITING_ROWS: usize = 4_096;

/// The same moment on the wall clock and on the monotonic clock of the process that wrote a part.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Anchor {
    /// µs since 1970 UTC.
    pub wall: UtcMicros,
    /// µs since the process anchor.
    pub monotonic: Micros,
}

/// Name of a part, the same in every table: `part-<unix_s>-<pid>-<n>`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct PartName {
    /// When it was begun, s since 1970 UTC.
    pub unix_s: i64,
    /// The process that wrote it.
    pub pid: u32,
    /// Counts the parts of one second.
    pub n: u32,
}

impl PartName {
    /// The name in `stem`, the file name without its ending.
    pub fn parse(stem: &str) -> Option<Self> {
        let mut fields = stem.strip_prefix("part-")?.rsplitn(3, '-');
        let n = fields.next()?.parse().ok()?;
        let pid = fields.next()?.parse().ok()?;
        Some(Self { unix_s: fields.next()?.parse().ok()?, pid, n })
    }
}

impl fmt::Display for PartName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "part-{}-{}-{}", self.unix_s, self.pid, self.n)
    }
}

/// The folder of a stream's start, `date=2026-07-01`.
pub fn partition(start: Option<UtcMicros>) -> String {
    match start.and_then(|at| as_date::<TimestampMicrosecondType>(at.0)) {
        Some(date) => format!("date={date}"),
        None => format!("date={NO_DATE}"),
    }
}

/// Where the file of one table of a part lies.
pub(super) fn file(root: &Path, table: &str, partition: &str, name: &str) -> PathBuf {
    root.join(table).join(partition).join(format!("{name}.parquet"))
}

/// Columns whose steps are small: delta-encoded, without a dictionary. Everything else is dictionary
/// encoded. Measured on the realistic sample of this module's size test, see there.
const DELTA_ENCODED: [(&str, &[&str]); 3] = [
    (
        "events",
        &[
            table::events::SEQ,
            table::events::FIRST_READ,
            table::events::T_US,
            table::events::PROVIDER_SEQ,
            table::events::PROVIDER_TS,
        ],
    ),
    ("reads", &[table::reads::READ_ID, table::reads::T_US]),
    ("streams", &[table::streams::STREAM_ID]),
];

fn properties<R: Row>(anchors: &[Anchor]) -> WriterProperties {
    let mut metadata = vec![KeyValue::new(SCHEMA_KEY.to_owned(), VERSION.to_string())];
    if !anchors.is_empty() {
        let json = serde_json::to_string(anchors).unwrap_or_default();
        metadata.push(KeyValue::new(ANCHORS_KEY.to_owned(), json));
    }
    let mut properties = WriterProperties::builder()
        .set_created_by(concat!("sseismo ", env!("CARGO_PKG_VERSION")).to_owned())
        .set_compression(Compression::ZSTD(ZstdLevel::default()))
        .set_max_row_group_row_count(Some(GROUP_ROWS))
        .set_statistics_enabled(EnabledStatistics::Chunk)
        .set_offset_index_disabled(true)
        .set_key_value_metadata(Some(metadata));
    let columns =
        DELTA_ENCODED.iter().filter(|(table, _)| *table == R::TABLE).flat_map(|(_, columns)| *columns);
    for column in columns {
        let path = ColumnPath::from(*column);
        properties = properties
            .set_column_encoding(path.clone(), Encoding::DELTA_BINARY_PACKED)
            .set_column_dictionary_enabled(path, false);
    }
    if R::TABLE == Event::TABLE {
        // What delta encoding leaves of times is noise. Of real ones zstd saves nothing (38,343 bytes become
        // 38,353 in the 90 GPT-4o streams of `data/traces`), and undoing it took a fifth of a scan's time.
        properties = properties
            .set_max_row_group_row_count(Some(EVENT_GROUP_ROWS))
            .set_column_compression(ColumnPath::from(table::events::T_US), Compression::UNCOMPRESSED);
    }
    properties.build()
}

/// The file of one table, made when the first row comes.
#[derive(Debug)]
pub(super) struct TableWriter<R: Row> {
    target: PathBuf,
    unfinished: PathBuf,
    anchors: Vec<Anchor>,
    rows: Vec<R>,
    last: Option<(u64, u32)>,
    held: Held,
    writer: Option<ArrowWriter<File>>,
}

impl<R: Row> TableWriter<R> {
    pub(super) fn new(root: &Path, partition: &str, name: PartName, anchors: &[Anchor]) -> Self {
        let target = file(root, R::TABLE, partition, &name.to_string());
        let unfinished = target.with_file_name(format!(".{name}.unfinished"));
        Self {
            target,
            unfinished,
            anchors: anchors.to_vec(),
            rows: Vec::new(),
            last: None,
            held: Held::default(),
            writer: None,
        }
    }

    pub(super) fn push(&mut self, row: R) -> Result<(), Error> {
        let key = row.key();
        if self.last.is_some_and(|last| last >= key) {
            return Err(Error::Unsorted { path: self.target.clone(), by: R::ORDER });
        }
        self.held.rows += 1;
        self.held.owners += u64::from(self.last.is_none_or(|(owner, _)| owner != key.0));
        self.last = Some(key);
        self.rows.push(row);
        if self.rows.len() >= WAITING_ROWS { self.encode() } else { Ok(()) }
    }

    fn encode(&mut self) -> Result<(), Error> {
        if self.rows.is_empty() {
            return Ok(());
        }
        if self.writer.is_none() {
            self.writer = Some(self.create()?);
        }
        let failed = |error| Error::encode(&self.target, error);
        let batch =
            RecordBatch::try_new(R::schema(), R::arrays(&self.rows)).map_err(|e| failed(e.to_string()))?;
        self.rows.clear();
        match &mut self.writer {
            Some(writer) => writer.write(&batch).map_err(|e| failed(e.to_string())),
            None => Ok(()),
        }
    }

    fn create(&self) -> Result<ArrowWriter<File>, Error> {
        if let Some(folder) = self.target.parent() {
            fs::create_dir_all(folder).map_err(Error::io("create", folder))?;
        }
        let file = File::create(&self.unfinished).map_err(Error::io("create", &self.unfinished))?;
        let options = ArrowWriterOptions::new()
            .with_properties(properties::<R>(&self.anchors))
            .with_skip_arrow_metadata(true);
        ArrowWriter::try_new_with_options(file, R::schema(), options)
            .map_err(|e| Error::encode(&self.target, e))
    }

    /// Writes the footer, with a `note`, and makes the bytes durable. The file is not visible yet.
    pub(super) fn complete(&mut self, note: Option<KeyValue>) -> Result<u64, Error> {
        self.encode()?;
        let Some(mut writer) = self.writer.take() else { return Ok(0) };
        if let Some(note) = note {
            writer.append_key_value_metadata(note);
        }
        let file = writer.into_inner().map_err(|e| Error::encode(&self.target, e))?;
        file.sync_all().map_err(Error::io("sync", &self.unfinished))?;
        let bytes = file.metadata().map_err(Error::io("look at", &self.unfinished))?.len();
        self.writer = None;
        Ok(bytes)
    }

    pub(super) fn publish(&mut self) -> Result<(), Error> {
        if self.last.is_none() {
            return Ok(());
        }
        fs::rename(&self.unfinished, &self.target).map_err(Error::io("rename", &self.target))?;
        self.last = None;
        Ok(())
    }
}

impl<R: Row> Drop for TableWriter<R> {
    fn drop(&mut self) {
        if self.last.is_some() {
            // Nothing can be done about a file that cannot be removed; readers pass over its name.
            let _ = fs::remove_file(&self.unfinished);
        }
    }
}

/// Bytes on disk of one part, by table.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Written {
    /// Table name → bytes.
    pub bytes: BTreeMap<&'static str, u64>,
}

/// Writes one part. Rows come in the order of their table: streams, events and texts by stream, reads
/// by connection. [`PartWriter::finish`] makes the part visible; a writer dropped before leaves nothing.
#[derive(Debug)]
pub struct PartWriter {
    streams: TableWriter<Summary>,
    events: TableWriter<Event>,
    reads: TableWriter<Read>,
    texts: TableWriter<Text>,
    raw: TableWriter<Raw>,
}

impl PartWriter {
    /// A part named `name` in the `partition` folder (see [`partition`]) of the dataset at `root`.
    /// Nothing is created before the first row.
    pub fn new(root: &Path, partition: &str, name: PartName, anchors: &[Anchor]) -> Self {
        Self {
            streams: TableWriter::new(root, partition, name, anchors),
            events: TableWriter::new(root, partition, name, anchors),
            reads: TableWriter::new(root, partition, name, anchors),
            texts: TableWriter::new(root, partition, name, anchors),
            raw: TableWriter::new(root, partition, name, anchors),
        }
    }

    /// A row of `streams/`.
    ///
    /// # Errors
    /// Not in order, or the file cannot be written. This holds for the other rows too.
    pub fn summary(&mut self, summary: Summary) -> Result<(), Error> {
        self.streams.push(summary)
    }

    /// A row of `events/`.
    ///
    /// # Errors
    /// As [`PartWriter::summary`].
    pub fn delta(&mut self, stream_id: u64, delta: &Delta) -> Result<(), Error> {
        self.events.push(Event { stream_id, delta: *delta })
    }

    /// A row of `reads/`.
    ///
    /// # Errors
    /// As [`PartWriter::summary`].
    pub fn read(&mut self, read: Read) -> Result<(), Error> {
        self.reads.push(read)
    }

    /// A row of `texts/`.
    ///
    /// # Errors
    /// As [`PartWriter::summary`].
    pub fn text(&mut self, text: Text) -> Result<(), Error> {
        self.texts.push(text)
    }

    /// A row of `raw/`.
    ///
    /// # Errors
    /// As [`PartWriter::summary`].
    pub fn raw(&mut self, raw: Raw) -> Result<(), Error> {
        self.raw.push(raw)
    }

    /// Completes all files and makes the part visible.
    ///
    /// # Errors
    /// A file cannot be written; the part is then not visible.
    pub fn finish(mut self) -> Result<Written, Error> {
        let held = BTreeMap::from([
            (Event::TABLE, self.events.held),
            (Read::TABLE, self.reads.held),
            (Text::TABLE, self.texts.held),
            (Raw::TABLE, self.raw.held),
        ]);
        let note = serde_json::to_string(&held).ok().map(|json| KeyValue::new(TABLES_KEY.to_owned(), json));
        let bytes = BTreeMap::from([
            (Event::TABLE, self.events.complete(None)?),
            (Read::TABLE, self.reads.complete(None)?),
            (Text::TABLE, self.texts.complete(None)?),
            (Raw::TABLE, self.raw.complete(None)?),
            (Summary::TABLE, self.streams.complete(note)?),
        ]);
        self.events.publish()?;
        self.reads.publish()?;
        self.texts.publish()?;
        self.raw.publish()?;
        self.streams.publish()?;
        Ok(Written { bytes })
    }
}
