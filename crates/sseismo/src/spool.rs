//! Streams in any order to streams in the order of their starts, through a temporary file.

use std::io::{BufReader, BufWriter, Read as _, Seek as _, SeekFrom, Write as _};
use std::ops::ControlFlow;

use sseismo_trace::{Delta, Summary, UtcMicros};

/// Between two streams without a start, µs.
const APART: i64 = 1_000_000;

/// Where a stream lies.
#[derive(Clone, Copy, Debug)]
struct Entry {
    started: i64,
    offset: u64,
    length: usize,
}

/// Streams on disk; 24 bytes of each in memory.
#[derive(Debug)]
pub(crate) struct Spool {
    file: BufWriter<std::fs::File>,
    entries: Vec<Entry>,
    length: u64,
    /// Where the next stream without a start begins.
    free: i64,
    undated: u64,
}

impl Spool {
    /// An empty one; its file has no name and goes with it.
    pub(crate) fn new() -> std::io::Result<Self> {
        let file = BufWriter::new(tempfile::tempfile()?);
        Ok(Self { file, entries: Vec::new(), length: 0, free: 0, undated: 0 })
    }

    /// Takes in a stream.
    pub(crate) fn push(&mut self, summary: &Summary, deltas: &[Delta]) -> std::io::Result<()> {
        let bytes = serde_json::to_vec(&(summary, deltas))?;
        self.file.write_all(&bytes)?;
        let started = summary.started_at.map_or(self.free, |at| at.0);
        if summary.started_at.is_none() {
            self.undated += 1;
            let last = deltas.iter().filter_map(|delta| delta.t).max().unwrap_or_default();
            let end = summary.t_end.unwrap_or_default().max(last);
            self.free = self.free.saturating_add(end.0.max(0)).saturating_add(APART);
        }
        self.entries.push(Entry { started, offset: self.length, length: bytes.len() });
        self.length += bytes.len() as u64;
        Ok(())
    }

    /// Streams without a start.
    pub(crate) fn undated(&self) -> u64 {
        self.undated
    }

    /// Whether there is no stream.
    #[cfg(feature = "watch")]
    pub(crate) fn is_empty(&self) -> bool {
        self.entries.is_empty()
    }

    /// Streams in it.
    #[cfg(feature = "watch")]
    pub(crate) fn len(&self) -> usize {
        self.entries.len()
    }

    /// Hands every stream to `take`, the earliest first, until it breaks off.
    pub(crate) fn read(
        self,
        mut take: impl FnMut(UtcMicros, &Summary, &[Delta]) -> ControlFlow<()>,
    ) -> anyhow::Result<()> {
        let mut entries = self.entries;
        entries.sort_by_key(|entry| (entry.started, entry.offset));
        let mut file = BufReader::new(self.file.into_inner().map_err(std::io::IntoInnerError::into_error)?);
        let mut bytes = Vec::new();
        for entry in entries {
            file.seek(SeekFrom::Start(entry.offset))?;
            bytes.resize(entry.length, 0);
            file.read_exact(&mut bytes)?;
            let (summary, deltas): (Summary, Vec<Delta>) = serde_json::from_slice(&bytes)?;
            if take(UtcMicros(entry.started), &summary, &deltas).is_break() {
                break;
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use sseismo_trace::Micros;

    use super::*;

    #[test]
    fn streams_come_back_by_start() {
        let mut spool = Spool::new().unwrap();
        let times = [Some(50), None, Some(7), None, Some(30_000_000)];
        for (id, started) in (1..).zip(times) {
            let started_at = started.map(UtcMicros);
            let summary =
                Summary { stream_id: id, started_at, t_end: Some(Micros(5_000_000)), ..Summary::default() };
            spool.push(&summary, &[]).unwrap();
        }
        assert_eq!(spool.undated(), 2);
        let mut seen = Vec::new();
        let take = |started: UtcMicros, summary: &Summary, _: &[Delta]| {
            seen.push((started.0, summary.stream_id));
            if seen.len() == 4 { ControlFlow::Break(()) } else { ControlFlow::Continue(()) }
        };
        spool.read(take).unwrap();
        assert_eq!(seen, [(0, 2), (7, 3), (50, 1), (6_000_000, 4)]);
    }
}
