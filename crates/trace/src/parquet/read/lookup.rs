//! Finding the reads of a connection. In: footers of all `reads/` files. Out: the reads asked for.
//!
//! Rows are sorted by connection, so a row group's statistics say which connections it holds; a few
//! decoded groups are kept.

use std::collections::VecDeque;
use std::path::{Path, PathBuf};

use parquet::file::statistics::Statistics;

use super::{Dataset, Error, Row, Rows, load};
use crate::Read;
use crate::parquet::reads;

/// Decoded row groups that are kept.
const KEPT: usize = 4;

/// One row group of `reads/` and the connections and read numbers that it spans.
struct Group {
    part: usize,
    number: usize,
    conn: (u64, u64),
    read: (u64, u64),
}

impl Group {
    fn may_hold(&self, conn: u64, from: u32, to: u32) -> bool {
        let reads = self.conn.0 < self.conn.1 || (self.read.0 <= to.into() && u64::from(from) <= self.read.1);
        (self.conn.0..=self.conn.1).contains(&conn) && reads
    }
}

pub(super) struct Lookup {
    files: Vec<PathBuf>,
    groups: Vec<Group>,
    kept: VecDeque<(usize, Vec<Read>)>,
}

impl Lookup {
    /// Reads the footers; what is damaged is said and left out.
    pub(super) fn new(dataset: &Dataset, damaged: &mut Vec<Error>) -> Self {
        let files: Vec<PathBuf> =
            dataset.parts.iter().map(|part| dataset.file(reads::FOLDER, part)).collect();
        let mut groups = Vec::new();
        for (part, path) in files.iter().enumerate().filter(|(_, path)| path.exists()) {
            match spans(path, part) {
                Ok(found) => groups.extend(found),
                Err(error) => damaged.push(error),
            }
        }
        Self { files, groups, kept: VecDeque::new() }
    }

    /// Appends the reads `from..=to` of a connection in order, looking first in part `own`.
    pub(super) fn find(
        &mut self,
        own: usize,
        conn: u64,
        from: u32,
        to: u32,
        found: &mut Vec<Read>,
    ) -> Result<(), Error> {
        self.collect(|part| part == own, conn, from, to, found)?;
        let whole = u64::from(to - from) + 1;
        if (found.len() as u64) < whole {
            self.collect(|part| part != own, conn, from, to, found)?;
            found.sort_by_key(|read| read.read_id);
            found.dedup_by_key(|read| read.read_id);
        }
        Ok(())
    }

    fn collect(
        &mut self,
        wanted: impl Fn(usize) -> bool,
        conn: u64,
        from: u32,
        to: u32,
        found: &mut Vec<Read>,
    ) -> Result<(), Error> {
        for at in 0..self.groups.len() {
            if wanted(self.groups[at].part) && self.groups[at].may_hold(conn, from, to) {
                let rows = self.rows(at)?;
                let start = rows.partition_point(|read| (read.conn_id, read.read_id) < (conn, from));
                let until = rows.partition_point(|read| (read.conn_id, read.read_id) <= (conn, to));
                found.extend_from_slice(&rows[start..until]);
            }
        }
        Ok(())
    }

    fn rows(&mut self, at: usize) -> Result<&[Read], Error> {
        let kept = self.kept.iter().position(|(group, _)| *group == at);
        let entry = if let Some(entry) = kept.and_then(|place| self.kept.remove(place)) {
            entry
        } else {
            let group = &self.groups[at];
            let mut rows = Vec::new();
            for batch in Rows::<Read>::some(&self.files[group.part], Some(vec![group.number]))? {
                rows.extend(batch?);
            }
            self.kept.truncate(KEPT - 1);
            (at, rows)
        };
        self.kept.push_front(entry);
        Ok(self.kept.front().map_or(&[], |(_, rows)| rows))
    }
}

/// The row groups of one file.
fn spans(path: &Path, part: usize) -> Result<Vec<Group>, Error> {
    let (_, metadata) = load(path)?;
    let place = |name| metadata.schema().index_of(name);
    let (Ok(conn), Ok(read)) = (place(reads::CONN_ID), place(reads::READ_ID)) else {
        let problem = format!("is missing; is this a `{}` file?", Read::TABLE);
        return Err(Error::Column { path: path.to_owned(), column: reads::CONN_ID, problem });
    };
    let groups = metadata.metadata().row_groups().iter().enumerate();
    Ok(groups
        .map(|(number, group)| Group {
            part,
            number,
            conn: span(group.column(conn).statistics()),
            read: span(group.column(read).statistics()),
        })
        .collect())
}

/// Least and greatest value of an unsigned column; everything where a writer left no statistics.
fn span(statistics: Option<&Statistics>) -> (u64, u64) {
    let unknown = (0, u64::MAX);
    match statistics {
        Some(Statistics::Int64(values)) => match (values.min_opt(), values.max_opt()) {
            (Some(min), Some(max)) => (min.cast_unsigned(), max.cast_unsigned()),
            _ => unknown,
        },
        Some(Statistics::Int32(values)) => match (values.min_opt(), values.max_opt()) {
            (Some(min), Some(max)) => (min.cast_unsigned().into(), max.cast_unsigned().into()),
            _ => unknown,
        },
        _ => unknown,
    }
}
