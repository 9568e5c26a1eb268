//! Columns of events as plain slices, stream by stream: what the statistics kernels run over.
//!
//! In: `events/` files. Out: for each stream its values, without building a [`crate::Delta`] per row.
//! The first pass decodes `stream_id` (run lengths) and `t_us` alone; the second the columns that say
//! what each event was. A stream that lies within one batch is handed on where the reader left it; only
//! one that a batch's end cuts is gathered first.

use std::ops::{ControlFlow, Range};
use std::path::Path;

use arrow_array::cast::AsArray;
use arrow_array::types::{Int64Type, UInt32Type, UInt64Type};
use arrow_array::{Array, PrimitiveArray, RecordBatch};
use parquet::arrow::arrow_reader::ParquetRecordBatchReader;

use super::{Dataset, Error, Report, Row, reader};
use crate::parquet::cell::{plain, words_of};
use crate::parquet::events;
use crate::parquet::table::Event;
use crate::{Kind, Phase};

/// When the events of one stream came.
#[derive(Clone, Copy, Debug)]
pub struct Times<'a> {
    /// The part, as a place in [`Dataset::parts`].
    pub part: usize,
    /// The stream.
    pub stream_id: u64,
    /// µs since the stream's start, in order of `seq`; 0 where nobody measured it.
    pub t: &'a [i64],
    /// Which events have a time; `None` when all have.
    pub measured: Option<&'a [bool]>,
}

/// The column that says how much each event brought. One at a time: their values never mix.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Sizes {
    /// Tokens that the provider reported.
    Tokens,
    /// Tokens estimated from characters.
    EstimatedTokens,
    /// Characters of content.
    Characters,
}

impl Sizes {
    fn column(self) -> &'static str {
        match self {
            Self::Tokens => events::TOKENS,
            Self::EstimatedTokens => events::TOKENS_EST,
            Self::Characters => events::CHARS,
        }
    }
}

/// When the events of one stream came and what they were: slices of the same length.
#[derive(Clone, Copy, Debug)]
pub struct EventColumns<'a> {
    /// Their times.
    pub times: Times<'a>,
    /// What each carried.
    pub kind: &'a [Kind],
    /// Where in the answer it came.
    pub phase: &'a [Phase],
    /// How much it brought, in the sizes asked for; 0 where nobody said.
    pub size: &'a [u32],
}

impl Dataset {
    /// The times of each stream's events; no other column is decoded. Break to stop early.
    pub fn times(&self, mut take: impl FnMut(Times<'_>) -> ControlFlow<()>) -> Report {
        self.scan(&[events::STREAM_ID, events::T_US], None, |columns| take(columns.times))
    }

    /// The times of each stream's events and what they were, measured in `sizes`. Break to stop early.
    pub fn events(&self, sizes: Sizes, take: impl FnMut(EventColumns<'_>) -> ControlFlow<()>) -> Report {
        let columns = [events::STREAM_ID, events::T_US, events::KIND, events::PHASE, sizes.column()];
        self.scan(&columns, Some(sizes), take)
    }

    fn scan(
        &self,
        columns: &[&'static str],
        sizes: Option<Sizes>,
        mut take: impl FnMut(EventColumns<'_>) -> ControlFlow<()>,
    ) -> Report {
        let mut report = Report::default();
        for (part, place) in self.parts.iter().zip(0..) {
            let path = self.file(Event::TABLE, part);
            self.missing(part, &mut report);
            if !path.exists() {
                continue;
            }
            report.parts += 1;
            let (streams, events) = (&mut report.streams, &mut report.events);
            let scanned = reader::<Event>(&path, columns, None).and_then(|reader| {
                runs(&path, reader, sizes, |stream_id, rows| {
                    *streams += 1;
                    *events += rows.t.len() as u64;
                    let measured = rows.measured.filter(|measured| measured.contains(&false));
                    let times = Times { part: place, stream_id, t: rows.t, measured };
                    take(EventColumns { times, kind: rows.kind, phase: rows.phase, size: rows.size })
                })
            });
            match scanned {
                Ok(ControlFlow::Continue(())) => {}
                Ok(ControlFlow::Break(())) => break,
                Err(error) => report.damaged.push(error),
            }
        }
        report
    }
}

/// What is wrong with which column.
type Wrong = (&'static str, String);

/// Cuts a file into its streams.
fn runs(
    path: &Path,
    reader: ParquetRecordBatchReader,
    sizes: Option<Sizes>,
    mut take: impl FnMut(u64, Rows<'_>) -> ControlFlow<()>,
) -> Result<ControlFlow<()>, Error> {
    let mut cut = Gathered::default();
    let mut open: Option<u64> = None;
    let column = |(column, problem)| Error::Column { path: path.to_owned(), column, problem };
    for batch in reader {
        let batch = batch.map_err(|error| Error::damaged(path, error))?;
        let ids = typed_ids(&batch).map_err(column)?;
        let values = Batch::decode(&batch, sizes).map_err(column)?;
        if !ids.is_sorted() || ids.first().copied() < open {
            return Err(Error::Unsorted { path: path.to_owned(), by: Event::ORDER });
        }
        let mut start = 0;
        while let Some(&stream_id) = ids.get(start) {
            let end = start + ids[start..].partition_point(|id| *id == stream_id);
            if let Some(before) = open.take_if(|before| *before != stream_id) {
                if take(before, cut.rows()).is_break() {
                    return Ok(ControlFlow::Break(()));
                }
                cut.clear();
            }
            if end == ids.len() || open.is_some() {
                cut.append(values.rows(start..end));
                open = Some(stream_id);
            } else if take(stream_id, values.rows(start..end)).is_break() {
                return Ok(ControlFlow::Break(()));
            }
            start = end;
        }
    }
    Ok(open.map_or(ControlFlow::Continue(()), |last| take(last, cut.rows())))
}

fn typed_ids(batch: &RecordBatch) -> Result<&[u64], Wrong> {
    let ids = find(batch, events::STREAM_ID)?;
    match ids.as_primitive_opt::<UInt64Type>() {
        Some(typed) if typed.null_count() == 0 => Ok(typed.values()),
        _ => Err((events::STREAM_ID, "is not a column of unsigned 64-bit numbers without nulls".to_owned())),
    }
}

fn find<'a>(batch: &'a RecordBatch, name: &'static str) -> Result<&'a dyn Array, Wrong> {
    batch.column_by_name(name).map(AsRef::as_ref).ok_or((name, "is missing".to_owned()))
}

/// Rows of one stream; columns that were not asked for are empty.
#[derive(Clone, Copy)]
struct Rows<'a> {
    t: &'a [i64],
    /// `None` when every event of the batch has a time.
    measured: Option<&'a [bool]>,
    kind: &'a [Kind],
    phase: &'a [Phase],
    size: &'a [u32],
}

/// The columns of one batch.
struct Batch {
    t: PrimitiveArray<Int64Type>,
    measured: Option<Vec<bool>>,
    kind: Vec<Kind>,
    phase: Vec<Phase>,
    size: Option<PrimitiveArray<UInt32Type>>,
}

impl Batch {
    fn decode(batch: &RecordBatch, sizes: Option<Sizes>) -> Result<Self, Wrong> {
        let t = find(batch, events::T_US)?;
        let mut decoded = Self {
            t: plain::<Int64Type>(t).map_err(|problem| (events::T_US, problem))?,
            measured: t.nulls().filter(|nulls| nulls.null_count() > 0).map(|nulls| nulls.iter().collect()),
            kind: Vec::new(),
            phase: Vec::new(),
            size: None,
        };
        if let Some(sizes) = sizes {
            let (kind, phase) = (find(batch, events::KIND)?, find(batch, events::PHASE)?);
            decoded.kind = words_of(kind).map_err(|problem| (events::KIND, problem))?;
            decoded.phase = words_of(phase).map_err(|problem| (events::PHASE, problem))?;
            let size = plain(find(batch, sizes.column())?).map_err(|problem| (sizes.column(), problem))?;
            decoded.size = Some(size);
        }
        Ok(decoded)
    }

    fn rows(&self, rows: Range<usize>) -> Rows<'_> {
        let asked = self.size.is_some();
        let of = |rows: Range<usize>| if asked { rows } else { 0..0 };
        Rows {
            t: &self.t.values()[rows.clone()],
            measured: self.measured.as_ref().map(|measured| &measured[rows.clone()]),
            kind: &self.kind[of(rows.clone())],
            phase: &self.phase[of(rows.clone())],
            size: self.size.as_ref().map_or(&[], |size| &size.values()[rows]),
        }
    }
}

/// A stream that the end of a batch cut.
#[derive(Default)]
struct Gathered {
    t: Vec<i64>,
    /// Filled from the first batch with an event without a time on.
    measured: Vec<bool>,
    kind: Vec<Kind>,
    phase: Vec<Phase>,
    size: Vec<u32>,
}

impl Gathered {
    fn append(&mut self, rows: Rows<'_>) {
        if rows.measured.is_some() || !self.measured.is_empty() {
            self.measured.resize(self.t.len(), true);
            match rows.measured {
                Some(measured) => self.measured.extend_from_slice(measured),
                None => self.measured.resize(self.t.len() + rows.t.len(), true),
            }
        }
        self.t.extend_from_slice(rows.t);
        self.kind.extend_from_slice(rows.kind);
        self.phase.extend_from_slice(rows.phase);
        self.size.extend_from_slice(rows.size);
    }

    fn rows(&self) -> Rows<'_> {
        let measured = if self.measured.is_empty() { None } else { Some(self.measured.as_slice()) };
        Rows { t: &self.t, measured, kind: &self.kind, phase: &self.phase, size: &self.size }
    }

    fn clear(&mut self) {
        self.t.clear();
        self.measured.clear();
        self.kind.clear();
        self.phase.clear();
        self.size.clear();
    }
}
