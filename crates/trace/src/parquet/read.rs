//! Reading a dataset: whole streams, with memory bounded by a few row groups.
//!
//! A part is read with one cursor in `streams/` and one in `events/`, both sorted by stream; the reads
//! of a stream are looked up by connection, first in the stream's own part, then in the others (the
//! reads of a long stream may lie in an earlier part).

use std::collections::BTreeSet;
use std::fs::{self, File};
use std::marker::PhantomData;
use std::ops::ControlFlow;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use arrow_schema::{DataType, Field, Schema};
use parquet::arrow::ProjectionMask;
use parquet::arrow::arrow_reader::{
    ArrowReaderMetadata, ArrowReaderOptions, ParquetRecordBatchReader, ParquetRecordBatchReaderBuilder,
};

use super::dataset::Manifest;
use super::part::{ANCHORS_KEY, Held, PartName, file};
use super::table::{Event, Raw, Row, Text};
use super::{Anchor, Error, SCHEMA_KEY, VERSION};
use crate::{Delta, Read, Stream, Summary};

mod lookup;
mod scan;

use lookup::Lookup;
pub use scan::{EventColumns, Sizes, Times};

/// Rows decoded at once.
const BATCH_ROWS: usize = 8_192;

/// A part of a dataset.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Part {
    /// Its folder, `date=2026-07-01`.
    pub partition: String,
    /// Its file name without ending, the same in each table.
    pub name: String,
}

/// What was read, and what could not be.
#[derive(Debug, Default)]
pub struct Report {
    /// Parts in which something was read.
    pub parts: u64,
    /// Streams handed on.
    pub streams: u64,
    /// Events handed on.
    pub events: u64,
    /// Events of streams that are not in `streams/`: passed over.
    pub orphans: u64,
    /// Streams whose events were written and are gone, with their file.
    pub bereft: u64,
    /// Files that could not be read to their end or are gone, and why; the others were read.
    pub damaged: Vec<Error>,
}

/// Whether no file is there; one that may not be looked at is no such file.
fn is_gone(path: &Path) -> bool {
    matches!(path.try_exists(), Ok(false))
}

/// A dataset opened for reading.
#[derive(Debug)]
pub struct Dataset {
    root: PathBuf,
    manifest: Manifest,
    parts: Vec<Part>,
}

impl Dataset {
    /// Opens the dataset in folder `root`.
    ///
    /// # Errors
    /// The folder is not a dataset of ours, a newer version wrote it, or it cannot be listed. Damaged
    /// parts are no error here: they are reported by whatever reads them.
    pub fn open(root: &Path) -> Result<Self, Error> {
        let manifest = Manifest::load(root)?;
        Ok(Self { root: root.to_owned(), manifest, parts: parts(root)? })
    }

    pub(super) fn root(&self) -> &Path {
        &self.root
    }

    /// What `dataset.json` says.
    pub fn manifest(&self) -> &Manifest {
        &self.manifest
    }

    /// The parts, oldest first.
    pub fn parts(&self) -> &[Part] {
        &self.parts
    }

    /// Where the file of a part in one table (`streams`, `events`, `reads` …) lies; not every table has one.
    pub fn file(&self, table: &str, part: &Part) -> PathBuf {
        file(&self.root, table, &part.partition, &part.name)
    }

    /// The clock anchors of a part; empty where the writer had no clock of its own (imports).
    ///
    /// # Errors
    /// The part's `streams/` file cannot be read.
    pub fn anchors(&self, part: &Part) -> Result<Vec<Anchor>, Error> {
        let path = self.file(Summary::TABLE, part);
        let (_, metadata) = load(&path)?;
        let stored = metadata.metadata().file_metadata().key_value_metadata();
        let json = stored.into_iter().flatten().find(|pair| pair.key == ANCHORS_KEY);
        match json.and_then(|pair| pair.value.as_deref()) {
            Some(json) => serde_json::from_str(json).map_err(|e| Error::damaged(&path, e)),
            None => Ok(Vec::new()),
        }
    }

    /// Every stream with its events and the reads that these refer to. Break to stop early.
    pub fn streams(&self, mut take: impl FnMut(Stream<'_>) -> ControlFlow<()>) -> Report {
        let mut report = Report::default();
        let mut lookup = Lookup::new(self, &mut report.damaged);
        for (place, part) in self.parts.iter().enumerate() {
            match self.part_streams(place, part, &mut lookup, &mut report, &mut take) {
                Ok(ControlFlow::Continue(())) => {}
                Ok(ControlFlow::Break(())) => break,
                Err(error) => report.damaged.push(error),
            }
        }
        report
    }

    fn part_streams(
        &self,
        place: usize,
        part: &Part,
        lookup: &mut Lookup,
        report: &mut Report,
        take: &mut impl FnMut(Stream<'_>) -> ControlFlow<()>,
    ) -> Result<ControlFlow<()>, Error> {
        let summaries = Rows::<Summary>::open(&self.file(Summary::TABLE, part))?;
        let mut events = Events::open(&self.file(Event::TABLE, part))?;
        report.parts += 1;
        self.missing(part, report);
        let (mut deltas, mut reads) = (Vec::new(), Vec::new());
        for batch in summaries {
            for summary in &batch? {
                report.orphans += events.take(summary.stream_id, &mut deltas)?;
                reads.clear();
                if let (Some(conn), Some((from, to))) = (summary.conn_id, reads_of(&deltas)) {
                    lookup.find(place, conn, from, to, &mut reads)?;
                }
                report.streams += 1;
                report.events += deltas.len() as u64;
                let flow = take(Stream { summary, deltas: &deltas, reads: &reads });
                if flow.is_break() {
                    return Ok(flow);
                }
            }
        }
        report.orphans += events.rest()?;
        Ok(ControlFlow::Continue(()))
    }

    /// Notes the files of a part that held events or reads and are gone.
    fn missing(&self, part: &Part, report: &mut Report) {
        let gone = [Event::TABLE, Read::TABLE].map(|table| (table, self.file(table, part)));
        let mut gone = gone.into_iter().filter(|(_, path)| is_gone(path)).peekable();
        if gone.peek().is_none() {
            return;
        }
        // A footer that cannot be read is damage, which whoever reads `streams/` reports.
        let Ok((_, metadata)) = load(&self.file(Summary::TABLE, part)) else { return };
        let held = Held::by_table(metadata.metadata().file_metadata().key_value_metadata());
        for (table, path) in gone {
            let Held { rows, owners } = held.get(table).copied().unwrap_or_default();
            if rows > 0 {
                report.bereft += if table == Event::TABLE { owners } else { 0 };
                report.damaged.push(Error::Missing { path, rows, owners });
            }
        }
    }

    /// The rows of `streams/` alone. Break to stop early.
    pub fn summaries(&self, mut take: impl FnMut(&Summary) -> ControlFlow<()>) -> Report {
        let mut report = Report::default();
        let streams = &mut report.streams;
        let mut take = |summary: Summary| {
            *streams += 1;
            take(&summary)
        };
        let (parts, damaged) = self.rows(&mut take);
        Report { parts, damaged, ..report }
    }

    /// The rows of `texts/`, where they were kept. Break to stop early.
    pub fn texts(&self, mut take: impl FnMut(Text) -> ControlFlow<()>) -> Report {
        let (parts, damaged) = self.rows(&mut take);
        Report { parts, damaged, ..Report::default() }
    }

    /// The rows of `raw/`, where they were kept. Break to stop early.
    pub fn raw(&self, mut take: impl FnMut(Raw) -> ControlFlow<()>) -> Report {
        let (parts, damaged) = self.rows(&mut take);
        Report { parts, damaged, ..Report::default() }
    }

    /// Every row of one table, in the parts that have it.
    fn rows<R: Row>(&self, take: &mut impl FnMut(R) -> ControlFlow<()>) -> (u64, Vec<Error>) {
        let (mut done, mut damaged) = (0, Vec::new());
        for path in self.parts.iter().map(|part| self.file(R::TABLE, part)).filter(|path| path.exists()) {
            let mut one = || -> Result<ControlFlow<()>, Error> {
                for batch in Rows::<R>::open(&path)? {
                    for row in batch? {
                        if take(row).is_break() {
                            return Ok(ControlFlow::Break(()));
                        }
                    }
                }
                Ok(ControlFlow::Continue(()))
            };
            match one() {
                Ok(flow) => {
                    done += 1;
                    if flow.is_break() {
                        break;
                    }
                }
                Err(error) => damaged.push(error),
            }
        }
        (done, damaged)
    }
}

/// The parts below `root`, by date and age.
fn parts(root: &Path) -> Result<Vec<Part>, Error> {
    table_parts(root, Summary::TABLE)
}

/// The parts of one table, by date and age. Unfinished files begin with a dot and are passed over.
pub(super) fn table_parts(root: &Path, table: &str) -> Result<Vec<Part>, Error> {
    let table = root.join(table);
    let mut found = BTreeSet::new();
    if !table.exists() {
        return Ok(Vec::new());
    }
    for folder in list(&table)? {
        let partition = folder.file_name().unwrap_or_default().to_string_lossy().into_owned();
        if !folder.is_dir() || !partition.starts_with("date=") {
            continue;
        }
        for path in list(&folder)? {
            let name = path.file_stem().unwrap_or_default().to_string_lossy().into_owned();
            if path.extension().is_some_and(|end| end == "parquet") && !name.starts_with('.') {
                found.insert((partition.clone(), PartName::parse(&name), name));
            }
        }
    }
    Ok(found.into_iter().map(|(partition, _, name)| Part { partition, name }).collect())
}

fn list(folder: &Path) -> Result<Vec<PathBuf>, Error> {
    let entries = fs::read_dir(folder).map_err(Error::io("list", folder))?;
    entries.map(|entry| entry.map(|entry| entry.path()).map_err(Error::io("list", folder))).collect()
}

/// The reads that events refer to, with the one before: an event's earliest possible time is the time
/// of the read before its first.
fn reads_of(deltas: &[Delta]) -> Option<(u32, u32)> {
    let first = deltas.iter().filter_map(|delta| delta.first_read).min()?;
    let last = deltas
        .iter()
        .filter_map(|delta| Some(delta.first_read?.saturating_add(delta.extra_reads.into())))
        .max()?;
    Some((first.saturating_sub(1), last))
}

/// Opens a regular file: to open a pipe would wait for whoever writes to it.
fn open(path: &Path) -> Result<File, Error> {
    match fs::metadata(path) {
        Ok(meta) if !meta.is_file() => Err(Error::NotAFile(path.to_owned())),
        Ok(_) => File::open(path).map_err(Error::io("open", path)),
        Err(error) => Err(Error::io("open", path)(error)),
    }
}

/// A file and its footer, checked to be of a version that we read.
fn load(path: &Path) -> Result<(File, ArrowReaderMetadata), Error> {
    let file = open(path)?;
    let options = ArrowReaderOptions::new().with_skip_arrow_metadata(true);
    let metadata = ArrowReaderMetadata::load(&file, options).map_err(|e| Error::damaged(path, e))?;
    let stored = metadata.metadata().file_metadata().key_value_metadata();
    let version = stored.into_iter().flatten().find(|pair| pair.key == SCHEMA_KEY);
    let found = version.and_then(|pair| pair.value.as_deref()?.parse().ok()).unwrap_or(0);
    if found > VERSION {
        return Err(Error::Newer { path: path.to_owned(), found, known: VERSION });
    }
    Ok((file, metadata))
}

/// A reader of some columns of a table. Columns of words come as dictionaries, which spares a string
/// per row; the file itself holds plain strings.
fn reader<R: Row>(
    path: &Path,
    columns: &[&'static str],
    groups: Option<Vec<usize>>,
) -> Result<ParquetRecordBatchReader, Error> {
    let (file, plain) = load(path)?;
    for column in columns {
        if plain.schema().column_with_name(column).is_none() {
            let problem = format!("is missing; is this a `{}` file?", R::TABLE);
            return Err(Error::Column { path: path.to_owned(), column, problem });
        }
    }
    let ours = R::schema();
    let typed = |field: &Arc<Field>| match ours.field_with_name(field.name()).map(Field::data_type) {
        Ok(words @ DataType::Dictionary(..)) if *field.data_type() == DataType::Utf8 => {
            Arc::new(field.as_ref().clone().with_data_type(words.clone()))
        }
        _ => Arc::clone(field),
    };
    let schema = Schema::new(plain.schema().fields().iter().map(typed).collect::<Vec<_>>());
    let options = ArrowReaderOptions::new().with_schema(Arc::new(schema));
    let damaged = |error| Error::damaged(path, error);
    let metadata = ArrowReaderMetadata::try_new(Arc::clone(plain.metadata()), options).map_err(damaged)?;
    let mask = ProjectionMask::columns(metadata.parquet_schema(), columns.iter().copied());
    let builder = ParquetRecordBatchReaderBuilder::new_with_metadata(file, metadata)
        .with_projection(mask)
        .with_batch_size(BATCH_ROWS);
    match groups {
        Some(groups) => builder.with_row_groups(groups),
        None => builder,
    }
    .build()
    .map_err(damaged)
}

/// The rows of one file, batch by batch, checked to be in order.
pub(super) struct Rows<R: Row> {
    path: PathBuf,
    reader: ParquetRecordBatchReader,
    last: Option<(u64, u32)>,
    row: PhantomData<R>,
}

impl<R: Row> Rows<R> {
    pub(super) fn open(path: &Path) -> Result<Self, Error> {
        Self::some(path, None)
    }

    /// Only these row groups.
    fn some(path: &Path, groups: Option<Vec<usize>>) -> Result<Self, Error> {
        let reader = reader::<R>(path, R::COLUMNS, groups)?;
        Ok(Self { path: path.to_owned(), reader, last: None, row: PhantomData })
    }
}

impl<R: Row> Iterator for Rows<R> {
    type Item = Result<Vec<R>, Error>;

    fn next(&mut self) -> Option<Self::Item> {
        let batch = match self.reader.next()? {
            Ok(batch) => batch,
            Err(error) => return Some(Err(Error::damaged(&self.path, error))),
        };
        let rows = match R::read(&batch, &self.path) {
            Ok(rows) => rows,
            Err(error) => return Some(Err(error)),
        };
        for row in &rows {
            let key = Some(row.key());
            if self.last >= key {
                return Some(Err(Error::Unsorted { path: self.path.clone(), by: R::ORDER }));
            }
            self.last = key;
        }
        Some(Ok(rows))
    }
}

/// The events of a part, taken stream by stream.
struct Events {
    rows: Option<Rows<Event>>,
    batch: std::vec::IntoIter<Event>,
}

impl Events {
    fn open(path: &Path) -> Result<Self, Error> {
        let rows = if is_gone(path) { None } else { Some(Rows::open(path)?) };
        Ok(Self { rows, batch: Vec::new().into_iter() })
    }

    /// The next event, not taken.
    fn peek(&mut self) -> Result<Option<Event>, Error> {
        while self.batch.as_slice().is_empty() {
            match self.rows.as_mut().and_then(Iterator::next) {
                Some(rows) => self.batch = rows?.into_iter(),
                None => return Ok(None),
            }
        }
        Ok(self.batch.as_slice().first().copied())
    }

    /// The events of a stream; says how many events of unknown streams lay before them.
    fn take(&mut self, stream_id: u64, deltas: &mut Vec<Delta>) -> Result<u64, Error> {
        deltas.clear();
        let mut orphans = 0;
        while let Some(event) = self.peek()? {
            if event.stream_id > stream_id {
                break;
            }
            self.batch.next();
            if event.stream_id == stream_id {
                deltas.push(event.delta);
            } else {
                orphans += 1;
            }
        }
        Ok(orphans)
    }

    /// How many events are left.
    fn rest(&mut self) -> Result<u64, Error> {
        let mut orphans = 0;
        while self.peek()?.is_some() {
            orphans += self.batch.len() as u64;
            self.batch = Vec::new().into_iter();
        }
        Ok(orphans)
    }
}
