//! Tables of counts that people make from their logs: CSV, TSV, semicolons, JSON Lines.
//!
//! In: a header and rows, or one object a line (nested objects by dotted paths). Out: one stream per
//! row, with what its columns tell. Columns are known by the field's usual names ([`columns`]) or by
//! `--map`; other columns are taken only as labels that the user asked for.
//!
//! A count that is no whole number stays as it is: analysis says that the source estimates. Without a
//! column for the model the file's name may tell it ([`file_name`]); otherwise there is none.

use std::borrow::Cow;
use std::cell::Cell;
use std::io::{self, Read};

use serde_json::Value;

use super::Options;
use super::importer::{Error, Fit, Grain, Head, Importer, Out, key};
use super::input::Input;
use super::lines::Lines;

mod columns;
mod file_name;
mod row;
#[cfg(test)]
mod tests;

use columns::{Columns, Paths};

/// What can stand between the columns of a table.
const DELIMITERS: [u8; 4] = [b',', b'\t', b';', b'|'];
/// A row that spans more bytes has a quotation mark that is never closed.
const LONGEST_ROW: u64 = 64 * 1024 * 1024;
/// Follows the last row. It is read as a row, unless a quotation mark before it is never closed.
const END: &[u8] = b"\x1eend of the table\n";
/// How deep objects are looked into.
const DEEPEST: usize = 6;

/// Model and effort that the file's name tells.
type Named<'a> = Option<(&'a str, &'a str)>;

/// Tables of counts.
pub(super) struct Counts;

impl Importer for Counts {
    fn name(&self) -> &'static str {
        "counts"
    }

    fn expects(&self) -> &'static str {
        "a CSV, TSV or JSON Lines table with a column of reasoning tokens"
    }

    fn grain(&self) -> Grain {
        Grain::Table
    }

    fn recognises(&self, head: &Head<'_>) -> Fit {
        let mut columns = match Columns::new(head.options) {
            Ok(columns) => columns,
            Err(error) => return Fit::Near(error.to_string()),
        };
        let seen = if is_objects(head.bytes) {
            see_objects(head, &mut columns)
        } else {
            see_header(head, &mut columns)
        };
        match (columns.has_reasoning(), seen) {
            (true, _) => Fit::Yes,
            (false, true) => Fit::Near(columns.why_not()),
            (false, false) => Fit::No,
        }
    }

    fn read(&self, input: &Input<'_>, options: &Options, out: &mut Out<'_>) -> Result<(), Error> {
        let columns = Columns::new(options)?;
        let named = file_name::model_and_effort(input.path());
        if is_objects(input.head()) {
            objects(input, columns, named, out)
        } else {
            table(input, columns, named, out)
        }
    }
}

fn is_objects(head: &[u8]) -> bool {
    head.trim_ascii_start().starts_with(b"{")
}

/// Looks at the first objects; false when there are none.
fn see_objects(head: &Head<'_>, columns: &mut Columns<'_>) -> bool {
    let (mut seen, mut paths) = (false, Paths::default());
    for line in head.lines().take(50) {
        if let Ok(object @ Value::Object(_)) = serde_json::from_slice(line) {
            seen = true;
            leaves(&object, &mut String::new(), 0, &mut |path, _| {
                paths.slots_of(path, columns);
            });
        }
    }
    seen
}

/// Looks at the header; false when what follows is not a table.
fn see_header(head: &Head<'_>, columns: &mut Columns<'_>) -> bool {
    let mut reader = csv_reader(head.bytes, delimiter(head.bytes));
    let (mut header, mut row) = (csv::ByteRecord::new(), csv::ByteRecord::new());
    let Ok(true) = reader.read_byte_record(&mut header) else { return false };
    for name in &header {
        let Ok(name) = std::str::from_utf8(name) else { return false };
        columns.slots_of(name);
    }
    header.len() > 1 && reader.read_byte_record(&mut row).is_ok_and(|any| any && row.len() == header.len())
}

/// The delimiter that the first line has most of.
fn delimiter(head: &[u8]) -> u8 {
    let line = head.split(|&byte| byte == b'\n').next().unwrap_or_default();
    let count = |delimiter: u8| memchr::memchr_iter(delimiter, line).count();
    // The first of equals is kept, so that one column alone is a CSV.
    DELIMITERS.into_iter().rev().max_by_key(|&delimiter| count(delimiter)).unwrap_or(b',')
}

fn csv_reader<R: Read>(reader: R, delimiter: u8) -> csv::Reader<R> {
    csv::ReaderBuilder::new().delimiter(delimiter).has_headers(false).flexible(true).from_reader(reader)
}

fn table(
    input: &Input<'_>,
    mut columns: Columns<'_>,
    named: Named<'_>,
    out: &mut Out<'_>,
) -> Result<(), Error> {
    let (row_bytes, too_long) = (Cell::new(0), Cell::new(0));
    let rows = Rows {
        lines: input.lines()?,
        line: Vec::new(),
        given: 0,
        ended: false,
        row_bytes: &row_bytes,
        too_long: &too_long,
    };
    let mut reader = csv_reader(rows, delimiter(input.head()));
    let mut record = csv::ByteRecord::new();
    reader.read_byte_record(&mut record).map_err(csv_error)?;
    let places = places(&record, &mut columns);
    columns.check_asked()?;
    let mut line = 1;
    loop {
        row_bytes.set(0);
        let more = reader.read_byte_record(&mut record).map_err(csv_error);
        for _ in 0..too_long.take() {
            out.skip("line-too-long");
        }
        if !more? {
            return Err(Error::Unusable(format!(
                "a quotation mark in the row of line {line} is never closed: the rows after it were not read"
            )));
        }
        if record.as_slice() == END.trim_ascii_end() {
            return Ok(());
        }
        line = record.position().map_or(0, csv::Position::line);
        let value = |place: &Option<usize>| -> Result<Option<Cow<'_, str>>, row::Reason> {
            let Some(value) = place.and_then(|place| record.get(place)) else { return Ok(None) };
            std::str::from_utf8(value).map(|value| Some(Cow::Borrowed(value))).map_err(|_| "invalid-utf8")
        };
        match places.iter().map(value).collect::<Result<Vec<_>, _>>() {
            Ok(values) => give(&columns, &values, named, line, out),
            Err(reason) => out.skip(reason),
        }
    }
}

/// By slot: the number of the column that fills it.
fn places(header: &csv::ByteRecord, columns: &mut Columns<'_>) -> Vec<Option<usize>> {
    let mut best = vec![None; columns.slots.len()];
    for (place, name) in header.iter().enumerate() {
        for (slot, rank) in columns.slots_of(&String::from_utf8_lossy(name)) {
            if best[slot].is_none_or(|(_, held)| rank < held) {
                best[slot] = Some((place, rank));
            }
        }
    }
    best.into_iter().map(|best| best.map(|(place, _)| place)).collect()
}

fn csv_error(error: csv::Error) -> Error {
    let text = error.to_string();
    match error.into_kind() {
        csv::ErrorKind::Io(error) => Error::Io(error),
        _ => Error::Unusable(text),
    }
}

fn objects(
    input: &Input<'_>,
    mut columns: Columns<'_>,
    named: Named<'_>,
    out: &mut Out<'_>,
) -> Result<(), Error> {
    let (mut lines, mut paths) = (input.lines()?, Paths::default());
    while let Some(line) = lines.next(out)? {
        match serde_json::from_slice(line.bytes) {
            Ok(object @ Value::Object(_)) => {
                let values = values(&object, &mut paths, &mut columns);
                give(&columns, &values, named, line.number, out);
            }
            Ok(_) => out.skip("not-an-object"),
            Err(_) if std::str::from_utf8(line.bytes).is_err() => out.skip("invalid-utf8"),
            Err(_) if !line.ended || !line.bytes.ends_with(b"}") => out.skip("torn-line"),
            Err(_) => out.skip("invalid-json"),
        }
    }
    columns.check_asked()
}

/// The values of an object, by slot.
fn values<'v>(object: &'v Value, paths: &mut Paths, columns: &mut Columns<'_>) -> Vec<Option<Cow<'v, str>>> {
    let mut best = vec![None; columns.slots.len()];
    leaves(object, &mut String::new(), 0, &mut |path, leaf| {
        let value = match leaf {
            Value::String(text) => Cow::Borrowed(text.as_str()),
            Value::Number(number) => Cow::Owned(number.to_string()),
            Value::Bool(truth) => Cow::Borrowed(if *truth { "true" } else { "false" }),
            Value::Null | Value::Array(_) | Value::Object(_) => return,
        };
        for (slot, rank) in paths.slots_of(path, columns) {
            if best[slot].as_ref().is_none_or(|(_, held)| rank < *held) {
                best[slot] = Some((value.clone(), rank));
            }
        }
    });
    best.into_iter().map(|best| best.map(|(value, _)| value)).collect()
}

/// Calls `see` with the dotted path of each value that is neither object nor array.
fn leaves<'v>(value: &'v Value, path: &mut String, depth: usize, see: &mut dyn FnMut(&str, &'v Value)) {
    match value {
        Value::Object(object) if depth < DEEPEST => {
            for (name, inner) in object {
                let length = path.len();
                if !path.is_empty() {
                    path.push('.');
                }
                path.push_str(name);
                leaves(inner, path, depth + 1, see);
                path.truncate(length);
            }
        }
        Value::Object(_) | Value::Array(_) => {}
        leaf => see(path, leaf),
    }
}

fn give(
    columns: &Columns<'_>,
    values: &[Option<Cow<'_, str>>],
    named: Named<'_>,
    line: u64,
    out: &mut Out<'_>,
) {
    let mut blank = out.summary();
    blank.stream_id = key(&[out.path(), &format!("line {line}")]);
    match row::summary(&columns.slots, values, blank) {
        Ok(mut summary) => {
            if let (None, None, Some((model, effort))) = (summary.model(), &summary.effort, named) {
                summary.model_requested = Some(model.to_owned());
                summary.effort = Some(effort.to_owned());
                out.note("model and effort are taken from the file's name");
            }
            out.summary_only(&summary);
        }
        Err(reason) => out.skip(reason),
    }
}

/// The lines of a file as a reader again: those that are too long are left out, and a row that goes on
/// for too many lines is an error, so that memory stays flat.
struct Rows<'a, R> {
    lines: Lines<R>,
    /// The line being given out.
    line: Vec<u8>,
    given: usize,
    /// [`END`] was given out.
    ended: bool,
    /// Bytes given out since the last row.
    row_bytes: &'a Cell<u64>,
    too_long: &'a Cell<u64>,
}

impl<R: Read> Read for Rows<'_, R> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        if self.given == self.line.len() {
            let copied = self.lines.next_uncounted().map(|next| {
                next.map(|line| {
                    self.line.clear();
                    self.line.extend_from_slice(line.bytes);
                    self.line.push(b'\n');
                    line.number
                })
            });
            self.too_long.set(self.too_long.get() + self.lines.take_too_long());
            let number = match copied? {
                Some(number) => number,
                None if std::mem::replace(&mut self.ended, true) => return Ok(0),
                None => {
                    self.line.clear();
                    self.line.extend_from_slice(END);
                    0
                }
            };
            if self.row_bytes.get() > LONGEST_ROW {
                let why = "a row goes on for over 64 MiB: an unclosed quotation mark?";
                return Err(io::Error::other(format!("{why} (line {number})")));
            }
            self.given = 0;
        }
        let give = buffer.len().min(self.line.len() - self.given);
        buffer[..give].copy_from_slice(&self.line[self.given..self.given + give]);
        self.given += give;
        self.row_bytes.set(self.row_bytes.get() + give as u64);
        Ok(give)
    }
}
