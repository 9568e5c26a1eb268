//! A plan as bytes: the body, where its events end, and when which part of it is written.

use sseismo_trace::{Delta, Kind, Micros, Phase, Read};

use crate::plan::Close;

/// One event of the body.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Event {
    /// Where it ends in the body.
    pub end: usize,
    /// What it carries.
    pub kind: Kind,
    /// In which phase.
    pub phase: Phase,
    /// The API's index of the item or content block.
    pub item: Option<u16>,
    /// The API's sequence number.
    pub sequence: Option<u32>,
    /// Characters of content.
    pub chars: u32,
    /// Tokens of content.
    pub tokens: u32,
}

/// The body up to `end` is written at `at`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Write {
    /// Since the request came.
    pub at: Micros,
    /// Where in the body it ends.
    pub end: usize,
}

/// A response, ready to be sent on time.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Script {
    /// HTTP status.
    pub status: u16,
    /// Response headers.
    pub headers: Vec<(&'static str, String)>,
    /// When the head goes out.
    pub head_at: Micros,
    /// All bytes of the body.
    pub body: Vec<u8>,
    /// Its events; none when it is not a stream.
    pub events: Vec<Event>,
    /// When its parts are written.
    pub writes: Vec<Write>,
    /// When the body ends.
    pub close_at: Micros,
    /// How it ends.
    pub close: Close,
}

impl Script {
    /// When the last byte is written.
    pub(crate) fn last_write_at(&self) -> Micros {
        self.writes.last().map_or(self.head_at, |write| write.at)
    }

    /// Writes of one moment become one.
    pub(crate) fn join_equal(&mut self) {
        self.writes.dedup_by(|next, kept| {
            let same = next.at == kept.at;
            if same {
                kept.end = next.end;
            }
            same
        });
        self.close_at = self.close_at.max(self.last_write_at());
    }

    /// Tokens of the events that each write completes.
    pub(crate) fn tokens_by_write(&self) -> Vec<i64> {
        let mut events = self.events.iter().peekable();
        self.writes
            .iter()
            .map(|write| {
                let mut tokens = 0;
                while let Some(event) = events.next_if(|event| event.end <= write.end) {
                    tokens += i64::from(event.tokens);
                }
                tokens
            })
            .collect()
    }

    /// What a reader without any delay of its own would record: one read per write, with lags of zero, and
    /// the events.
    pub(crate) fn observed(&self, conn_id: u64) -> (Vec<Delta>, Vec<Read>) {
        let mut start = 0;
        let reads: Vec<Read> = (0_u32..)
            .zip(&self.writes)
            .map(|(read_id, write)| {
                let bytes = u32::try_from(write.end - start).unwrap_or(u32::MAX);
                start = write.end;
                let prompt = Some(Micros(0));
                Read {
                    conn_id,
                    read_id,
                    t: write.at,
                    bytes,
                    drained: true,
                    kernel_lag: prompt,
                    idle: prompt,
                    loop_lag: prompt,
                }
            })
            .collect();
        let mut deltas = Vec::with_capacity(self.events.len());
        let (mut start, mut first) = (0, 0);
        for (seq, event) in (0_u32..).zip(&self.events) {
            while self.writes.get(first).is_some_and(|write| write.end <= start) {
                first += 1;
            }
            let mut last = first;
            while self.writes.get(last).is_some_and(|write| write.end < event.end) {
                last += 1;
            }
            let Some(write) = self.writes.get(last) else { break };
            let mut delta = Delta::new(seq, event.kind, event.phase, Some(write.at));
            delta.first_read = u32::try_from(first).ok();
            delta.extra_reads = u16::try_from(last - first).unwrap_or(u16::MAX);
            delta.item_index = event.item;
            delta.provider_seq = event.sequence;
            delta.chars = event.chars;
            delta.tokens_est = delta.is_content().then(|| (event.chars / CHARS_PER_TOKEN).max(1));
            delta.wire_bytes = u32::try_from(event.end - start).unwrap_or(u32::MAX);
            deltas.push(delta);
            (start, first) = (event.end, last);
        }
        (deltas, reads)
    }
}

/// Characters of a token of the simulated text, on average: exact by construction of its words.
const CHARS_PER_TOKEN: u32 = 4;
