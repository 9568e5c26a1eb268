//! Columns of events as plain slices, stream by stream: what the statistics kernels run over.
//!
//! In: `events/` files. Out: for each stream its values, without building a [`crate::Delta`] per row.
//! The first pass decodes `stream_id` (run lengths) and `t_us` alone; the second the columns that say
//! what each event was.

use std::ops::{ControlFlow, Range};
use std::path::Path;

use arrow_array::cast::AsArray;
use arrow_array::types::UInt64Type;
use arrow_array::{Array, RecordBatch};
use parquet::arrow::arrow_reader::ParquetRecordBatchReader;

use super::{Dataset, Error, Report, Row, reader};
use crate::parquet::cell::Cell;
use crate::parquet::events;
use crate::parquet::table::Event;
use crate::{Kind, Micros, Phase};

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

/// When the events of one stream came and what they were: slices of the same length.
#[derive(Clone, Copy, Debug)]
pub struct EventColumns<'a> {
    /// Their times.
    pub times: Times<'a>,
    /// What each carried.
    pub kind: &'a [Kind],
    /// Where in the answer it came.
    pub phase: &'a [Phase],
    /// Characters of content.
    pub chars: &'a [u32],
    /// Tokens that the provider reported.
    pub tokens: &'a [Option<u32>],
    /// Tokens estimated from characters.
    pub tokens_est: &'a [Option<u32>],
    /// Bytes in the decoded body.
    pub wire_bytes: &'a [u32],
    /// The read that brought each event's first byte.
    pub first_read: &'a [Option<u32>],
}

const TIMES: [&str; 2] = [events::STREAM_ID, events::T_US];

const COLUMNS: [&str; 9] = [
    events::STREAM_ID,
    events::T_US,
    events::KIND,
    events::PHASE,
    events::CHARS,
    events::TOKENS,
    events::TOKENS_EST,
    events::WIRE_BYTES,
    events::FIRST_READ,
];

impl Dataset {
    /// The times of each stream's events; no other column is decoded. Break to stop early.
    pub fn times(&self, mut take: impl FnMut(Times<'_>) -> ControlFlow<()>) -> Report {
        self.scan::<TimeBuffer>(&TIMES, |part, stream_id, buffer| take(buffer.times(part, stream_id)))
    }

    /// The times of each stream's events and what they were. Break to stop early.
    pub fn events(&self, mut take: impl FnMut(EventColumns<'_>) -> ControlFlow<()>) -> Report {
        self.scan::<EventBuffer>(&COLUMNS, |part, stream_id, buffer| {
            take(EventColumns {
                times: buffer.times.times(part, stream_id),
                kind: &buffer.kind,
                phase: &buffer.phase,
                chars: &buffer.chars,
                tokens: &buffer.tokens,
                tokens_est: &buffer.tokens_est,
                wire_bytes: &buffer.wire_bytes,
                first_read: &buffer.first_read,
            })
        })
    }

    fn scan<B: Buffer>(
        &self,
        columns: &[&'static str],
        mut take: impl FnMut(usize, u64, &B) -> ControlFlow<()>,
    ) -> Report {
        let mut report = Report::default();
        for (place, part) in self.parts.iter().enumerate() {
            let path = self.file(Event::TABLE, part);
            self.missing(part, &mut report);
            if !path.exists() {
                continue;
            }
            report.parts += 1;
            let (streams, events) = (&mut report.streams, &mut report.events);
            let scanned = reader::<Event>(&path, columns, None).and_then(|reader| {
                runs(&path, reader, |stream_id, buffer: &B| {
                    *streams += 1;
                    *events += buffer.len() as u64;
                    take(place, stream_id, buffer)
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

/// Values of one stream, gathered from the batches that it lies in.
trait Buffer: Default {
    /// Values of one batch, decoded.
    type Batch;

    fn decode(batch: &RecordBatch) -> Result<Self::Batch, (&'static str, String)>;
    fn append(&mut self, batch: &Self::Batch, rows: Range<usize>);
    fn clear(&mut self);
    fn len(&self) -> usize;
}

/// Cuts a file into its streams.
fn runs<B: Buffer>(
    path: &Path,
    reader: ParquetRecordBatchReader,
    mut take: impl FnMut(u64, &B) -> ControlFlow<()>,
) -> Result<ControlFlow<()>, Error> {
    let mut buffer = B::default();
    let mut open: Option<u64> = None;
    let column = |(column, problem)| Error::Column { path: path.to_owned(), column, problem };
    for batch in reader {
        let batch = batch.map_err(|error| Error::damaged(path, error))?;
        let ids = typed_ids(&batch).map_err(column)?;
        let values = B::decode(&batch).map_err(column)?;
        if !ids.is_sorted() || ids.first().copied() < open {
            return Err(Error::Unsorted { path: path.to_owned(), by: Event::ORDER });
        }
        let mut start = 0;
        while let Some(&stream_id) = ids.get(start) {
            if let Some(before) = open.filter(|before| *before != stream_id) {
                if take(before, &buffer).is_break() {
                    return Ok(ControlFlow::Break(()));
                }
                buffer.clear();
            }
            open = Some(stream_id);
            let end = start + ids[start..].partition_point(|id| *id == stream_id);
            buffer.append(&values, start..end);
            start = end;
        }
    }
    Ok(open.map_or(ControlFlow::Continue(()), |last| take(last, &buffer)))
}

fn typed_ids(batch: &RecordBatch) -> Result<&[u64], (&'static str, String)> {
    let ids = find(batch, events::STREAM_ID)?;
    match ids.as_primitive_opt::<UInt64Type>() {
        Some(typed) if typed.null_count() == 0 => Ok(typed.values()),
        _ => Err((events::STREAM_ID, "is not a column of unsigned 64-bit numbers without nulls".to_owned())),
    }
}

fn find<'a>(batch: &'a RecordBatch, name: &'static str) -> Result<&'a dyn Array, (&'static str, String)> {
    batch.column_by_name(name).map(AsRef::as_ref).ok_or((name, "is missing".to_owned()))
}

/// One column of a batch as a vector.
fn vector<C: Cell>(batch: &RecordBatch, name: &'static str) -> Result<Vec<C>, (&'static str, String)> {
    let column = find(batch, name)?;
    let mut values = Vec::with_capacity(column.len());
    C::read(column, |_, value| values.push(value)).map_err(|problem| (name, problem))?;
    Ok(values)
}

#[derive(Default)]
struct TimeBuffer {
    t: Vec<i64>,
    /// Filled from the first event without a time on.
    measured: Vec<bool>,
}

impl TimeBuffer {
    fn times(&self, part: usize, stream_id: u64) -> Times<'_> {
        let measured = if self.measured.is_empty() { None } else { Some(self.measured.as_slice()) };
        Times { part, stream_id, t: &self.t, measured }
    }
}

/// Times of a batch; the flags are empty when every event has one.
struct TimeBatch {
    t: Vec<i64>,
    measured: Vec<bool>,
}

impl Buffer for TimeBuffer {
    type Batch = TimeBatch;

    fn decode(batch: &RecordBatch) -> Result<TimeBatch, (&'static str, String)> {
        let column = find(batch, events::T_US)?;
        let (mut t, mut measured) = (Vec::with_capacity(column.len()), Vec::new());
        if column.null_count() == 0 {
            Micros::read(column, |_, at| t.push(at.0)).map_err(|problem| (events::T_US, problem))?;
        } else {
            let push = |_, at: Option<Micros>| {
                t.push(at.unwrap_or_default().0);
                measured.push(at.is_some());
            };
            Option::<Micros>::read(column, push).map_err(|problem| (events::T_US, problem))?;
        }
        Ok(TimeBatch { t, measured })
    }

    fn append(&mut self, batch: &TimeBatch, rows: Range<usize>) {
        let flags = batch.measured.get(rows.clone());
        let missing = flags.is_some_and(|flags| flags.contains(&false));
        if missing || !self.measured.is_empty() {
            self.measured.resize(self.t.len(), true);
            match flags {
                Some(flags) => self.measured.extend_from_slice(flags),
                None => self.measured.resize(self.t.len() + rows.len(), true),
            }
        }
        self.t.extend_from_slice(&batch.t[rows]);
    }

    fn clear(&mut self) {
        self.t.clear();
        self.measured.clear();
    }

    fn len(&self) -> usize {
        self.t.len()
    }
}

macro_rules! event_buffer {
    ($($field:ident: $type:ty = $column:expr;)*) => {
        #[derive(Default)]
        struct EventBuffer {
            times: TimeBuffer,
            $($field: Vec<$type>,)*
        }

        struct EventBatch {
            times: TimeBatch,
            $($field: Vec<$type>,)*
        }

        impl Buffer for EventBuffer {
            type Batch = EventBatch;

            fn decode(batch: &RecordBatch) -> Result<EventBatch, (&'static str, String)> {
                Ok(EventBatch { times: TimeBuffer::decode(batch)?, $($field: vector(batch, $column)?,)* })
            }

            fn append(&mut self, batch: &EventBatch, rows: Range<usize>) {
                $(self.$field.extend_from_slice(&batch.$field[rows.clone()]);)*
                self.times.append(&batch.times, rows);
            }

            fn clear(&mut self) {
                $(self.$field.clear();)*
                self.times.clear();
            }

            fn len(&self) -> usize {
                self.times.len()
            }
        }
    };
}

event_buffer! {
    kind: Kind = events::KIND;
    phase: Phase = events::PHASE;
    chars: u32 = events::CHARS;
    tokens: Option<u32> = events::TOKENS;
    tokens_est: Option<u32> = events::TOKENS_EST;
    wire_bytes: u32 = events::WIRE_BYTES;
    first_read: Option<u32> = events::FIRST_READ;
}
