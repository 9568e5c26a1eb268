//! Journal to Parquet parts. In: one segment and what earlier segments left over. Out: parts with whole
//! streams, and a journal of what is not finished yet.
//!
//! Order makes this safe to repeat after a kill: parts are renamed into place under the segment's own
//! name, then the left-overs become visible, and only then the inputs are removed. A segment without
//! left-overs of its own name was not compacted, or is compacted again to the very same parts.

use std::collections::{BTreeMap, BTreeSet, HashMap, HashSet};
use std::fs;
use std::io;
use std::path::{Path, PathBuf};

use sseismo_trace::parquet::{Anchor, PartName, PartWriter, partition};
use sseismo_trace::{Outcome, Summary};

use super::entry::Entry;
use super::journal::{Journal, blocks};
use super::{Error, retain};

/// One compaction.
#[derive(Clone, Debug)]
pub(super) struct Job {
    pub(super) root: PathBuf,
    /// Names the parts and the left-overs.
    pub(super) name: PartName,
    /// Left-overs of the segment before.
    pub(super) carried: Option<PathBuf>,
    pub(super) segment: Option<PathBuf>,
    /// Nothing follows: unfinished streams are written as they are.
    pub(super) last: bool,
    pub(super) limits: retain::Limits,
    pub(super) now: Anchor,
}

/// What a compaction did.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Done {
    pub(super) streams: u64,
    /// Streams without an end, written as they are.
    pub(super) unfinished: u64,
    pub(super) events: u64,
    /// Bytes of torn ends.
    pub(super) torn: u64,
    /// Reads that no stream refers to.
    pub(super) unclaimed: u64,
    /// Files that are no journal of this version, renamed.
    pub(super) set_aside: Vec<PathBuf>,
    pub(super) left_over: Option<PathBuf>,
}

/// A row that waits to be sorted: its key in the table and its place in the payload.
type Place = (u64, u32, usize);

/// Entries by what they are, by place in the payload.
#[derive(Default)]
struct Index {
    anchors: Vec<Anchor>,
    begun: BTreeMap<u64, Summary>,
    finished: BTreeMap<u64, (Summary, bool)>,
    /// Per stream and seq or chunk.
    deltas: Vec<Place>,
    texts: Vec<Place>,
    raw: Vec<Place>,
    /// Per connection and number.
    reads: Vec<Place>,
    /// Everything before was left over once already.
    carried_until: usize,
}

impl Index {
    /// Reads until the end or the first byte that is no entry; says where that is.
    fn fill(&mut self, payload: &[u8]) -> usize {
        let mut rest = payload;
        loop {
            let place = payload.len() - rest.len();
            match Entry::decode(&mut rest) {
                Some(Entry::Begin(summary)) => drop(self.begun.insert(summary.stream_id, *summary)),
                Some(Entry::Finish(summary, kept)) => {
                    self.finished.insert(summary.stream_id, (*summary, kept));
                }
                Some(Entry::Delta(stream_id, delta)) => self.deltas.push((stream_id, delta.seq, place)),
                Some(Entry::Read(read)) => self.reads.push((read.conn_id, read.read_id, place)),
                Some(Entry::Text(text)) => self.texts.push((text.stream_id, text.seq, place)),
                Some(Entry::Raw(raw)) => self.raw.push((raw.stream_id, raw.chunk, place)),
                Some(Entry::Anchor(anchor)) => self.anchors.push(anchor),
                Some(Entry::Carried) => self.carried_until = place,
                None => break place,
            }
        }
    }

    fn sort(&mut self) {
        for rows in [&mut self.deltas, &mut self.texts, &mut self.raw, &mut self.reads] {
            rows.sort_unstable();
            rows.dedup_by_key(|(id, number, _)| (*id, *number));
        }
    }

    /// Streams that have something but no end.
    fn open(&self) -> BTreeSet<u64> {
        let rows = self.deltas.iter().chain(&self.texts).chain(&self.raw).map(|(stream, ..)| *stream);
        let all = rows.chain(self.begun.keys().copied());
        all.filter(|stream| !self.finished.contains_key(stream)).collect()
    }
}

/// Rows of one stream or connection.
fn rows_of(rows: &[Place], id: u64) -> &[Place] {
    let start = rows.partition_point(|(row, ..)| *row < id);
    let len = rows[start..].partition_point(|(row, ..)| *row == id);
    &rows[start..start + len]
}

fn entry(payload: &[u8], place: usize) -> Option<Entry> {
    Entry::decode(&mut payload.get(place..)?)
}

/// Runs a job. On an error nothing is removed: it can be run again.
pub(super) fn run(job: &Job) -> Result<Done, Error> {
    let mut done = Done::default();
    let mut payload = Vec::new();
    for path in [&job.carried, &job.segment].into_iter().flatten() {
        let bytes = fs::read(path).map_err(Error::io("read", path))?;
        match blocks(&bytes) {
            Some(content) => {
                payload.extend_from_slice(&content.payload);
                done.torn += content.torn;
            }
            None => done.set_aside.push(set_aside(path)?),
        }
    }
    let mut index = Index::default();
    let end = index.fill(&payload);
    done.torn += (payload.len() - end) as u64;
    index.sort();
    if job.last {
        end_open_streams(&mut index, &mut done);
    }
    let homes = write_parts(job, &payload, &index, &mut done)?;
    done.left_over = if job.last { None } else { write_left_over(job, &payload, &index, &homes, &mut done)? };
    for path in [&job.carried, &job.segment].into_iter().flatten() {
        match fs::remove_file(path) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => {
                return Err(Error::io("remove", path)(error));
            }
            _ => {}
        }
    }
    retain::apply(&job.root, job.limits, job.now.wall)?;
    Ok(done)
}

/// Moves a file that we cannot read out of the way.
pub(super) fn set_aside(path: &Path) -> Result<PathBuf, Error> {
    let aside = path.with_extension("set-aside");
    fs::rename(path, &aside).map_err(Error::io("rename", path))?;
    Ok(aside)
}

/// Gives the streams that a kill cut off an end: how they ended is not known.
fn end_open_streams(index: &mut Index, done: &mut Done) {
    for stream_id in index.open() {
        let known = index.begun.get(&stream_id).cloned().unwrap_or_default();
        let summary = Summary { stream_id, outcome: Outcome::Unknown, ..known };
        index.finished.insert(stream_id, (summary, true));
        done.unfinished += 1;
    }
}

/// Writes the finished streams that are kept. Says in which partition each connection's reads lie.
fn write_parts(
    job: &Job,
    payload: &[u8],
    index: &Index,
    done: &mut Done,
) -> Result<HashMap<u64, String>, Error> {
    let mut dates: BTreeMap<String, Vec<&Summary>> = BTreeMap::new();
    let mut homes = HashMap::new();
    for (summary, _) in index.finished.values().filter(|(_, kept)| *kept) {
        let date = partition(summary.started_at);
        if let Some(conn) = summary.conn_id {
            homes.entry(conn).or_insert_with(|| date.clone());
        }
        dates.entry(date).or_default().push(summary);
    }
    let ends = [index.anchors.first(), index.anchors.last()];
    let mut anchors: Vec<Anchor> = ends.into_iter().flatten().copied().collect();
    anchors.dedup();
    for (date, summaries) in dates {
        let mut part = PartWriter::new(&job.root, &date, job.name, &anchors);
        for summary in summaries {
            done.streams += 1;
            write_stream(&mut part, payload, index, summary, done)?;
        }
        for (_, _, place) in index.reads.iter().filter(|(conn, ..)| homes.get(conn) == Some(&date)) {
            if let Some(Entry::Read(read)) = entry(payload, *place) {
                part.read(read)?;
            }
        }
        part.finish()?;
    }
    Ok(homes)
}

fn write_stream(
    part: &mut PartWriter,
    payload: &[u8],
    index: &Index,
    summary: &Summary,
    done: &mut Done,
) -> Result<(), Error> {
    part.summary(summary.clone())?;
    for rows in [&index.deltas, &index.texts, &index.raw] {
        for (stream_id, _, place) in rows_of(rows, summary.stream_id) {
            match entry(payload, *place) {
                Some(Entry::Delta(_, delta)) => {
                    done.events += 1;
                    part.delta(*stream_id, &delta)?;
                }
                Some(Entry::Text(text)) => part.text(text)?,
                Some(Entry::Raw(raw)) => part.raw(raw)?,
                _ => {}
            }
        }
    }
    Ok(())
}

/// Entries of streams without an end, and reads that a stream may still refer to: those of connections
/// with such a stream, and those seen for the first time that nobody claimed yet.
fn write_left_over(
    job: &Job,
    payload: &[u8],
    index: &Index,
    homes: &HashMap<u64, String>,
    done: &mut Done,
) -> Result<Option<PathBuf>, Error> {
    let open = index.open();
    let busy: HashSet<u64> =
        open.iter().filter_map(|stream| index.begun.get(stream)).filter_map(|begun| begun.conn_id).collect();
    let refused: HashSet<u64> = index.finished.values().filter_map(|(summary, _)| summary.conn_id).collect();
    let mut kept = Vec::new();
    for summary in open.iter().filter_map(|stream| index.begun.get(stream)) {
        Entry::Begin(Box::new(summary.clone())).encode(&mut kept);
    }
    for (stream, _, place) in index.deltas.iter().chain(&index.texts).chain(&index.raw) {
        if open.contains(stream) {
            copy(payload, *place, &mut kept);
        }
    }
    for (conn, _, place) in index.reads.iter().filter(|(conn, ..)| !homes.contains_key(conn)) {
        let fresh = *place >= index.carried_until && !refused.contains(conn);
        if busy.contains(conn) || fresh {
            copy(payload, *place, &mut kept);
        } else {
            done.unclaimed += 1;
        }
    }
    if kept.is_empty() {
        return Ok(None);
    }
    Entry::Carried.encode(&mut kept);
    let path = left_over(&job.root, job.name);
    let unfinished = path.with_extension("unfinished");
    let failed = |error| Error::io("write", &path)(error);
    if unfinished.exists() {
        fs::remove_file(&unfinished).map_err(failed)?;
    }
    let mut journal = Journal::create(&unfinished).map_err(failed)?;
    journal.append(&kept).and_then(|()| journal.sync()).map_err(failed)?;
    fs::rename(&unfinished, &path).map_err(failed)?;
    Ok(Some(path))
}

fn copy(payload: &[u8], place: usize, out: &mut Vec<u8>) {
    if let Some(entry) = entry(payload, place) {
        entry.encode(out);
    }
}

/// Where the journal lies.
pub(super) fn folder(root: &Path) -> PathBuf {
    root.join("journal")
}

/// The segment of this name.
pub(super) fn segment(root: &Path, name: PartName) -> PathBuf {
    folder(root).join(format!("{name}.journal"))
}

/// What the segment of this name left over.
pub(super) fn left_over(root: &Path, name: PartName) -> PathBuf {
    folder(root).join(format!("{name}.left-over"))
}
