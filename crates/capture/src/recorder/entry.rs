//! One entry of the journal to bytes and back. Numbers are LEB128 (signed ones zigzag), summaries are
//! JSON: rare and with many fields.

use sseismo_trace::parquet::{Anchor, Raw, Text};
use sseismo_trace::{Delta, Kind, Micros, Phase, Read, Summary, UtcMicros};

/// What the journal holds.
#[derive(Clone, Debug, PartialEq)]
pub(super) enum Entry {
    /// A stream began; what is known of it so far.
    Begin(Box<Summary>),
    /// An event of a stream.
    Delta(u64, Delta),
    /// A socket read.
    Read(Read),
    /// The text of an event.
    Text(Text),
    /// Bytes of a stream.
    Raw(Raw),
    /// A stream ended; whether it is kept.
    Finish(Box<Summary>, bool),
    /// The clocks.
    Anchor(Anchor),
    /// What came before was left over from an earlier segment.
    Carried,
}

/// By place, as written.
const KINDS: [Kind; 10] = [
    Kind::Reasoning,
    Kind::Summary,
    Kind::Text,
    Kind::Tool,
    Kind::Usage,
    Kind::Ping,
    Kind::Comment,
    Kind::Error,
    Kind::Done,
    Kind::Meta,
];

/// By place, as written.
const PHASES: [Phase; 6] =
    [Phase::Queued, Phase::Reasoning, Phase::Summary, Phase::Output, Phase::Tool, Phase::Tail];

fn unsigned(out: &mut Vec<u8>, mut value: u64) {
    loop {
        let [low, ..] = value.to_le_bytes();
        value >>= 7;
        if value == 0 {
            out.push(low);
            break;
        }
        out.push(low | 0x80);
    }
}

fn signed(out: &mut Vec<u8>, value: i64) {
    unsigned(out, ((value << 1) ^ (value >> 63)).cast_unsigned());
}

fn bytes(out: &mut Vec<u8>, value: &[u8]) {
    unsigned(out, value.len() as u64);
    out.extend_from_slice(value);
}

/// Writes which of the values are there (at most 8), then these.
fn optional(out: &mut Vec<u8>, values: &[Option<i64>]) {
    let present = values.iter().rev().fold(0_u8, |mask, value| mask << 1 | u8::from(value.is_some()));
    out.push(present);
    values.iter().flatten().for_each(|value| signed(out, *value));
}

fn summary(out: &mut Vec<u8>, summary: &Summary) {
    bytes(out, &serde_json::to_vec(summary).expect("a summary has no maps with keys that are not strings"));
    // JSON readers may round a float in its last bit.
    for float in [summary.prompt_numeric_share, summary.usage.reasoning, summary.cost_usd] {
        unsigned(out, float.unwrap_or(0.0).to_bits());
    }
}

impl Entry {
    /// Appends the entry to `out`.
    pub(super) fn encode(&self, out: &mut Vec<u8>) {
        match self {
            Self::Begin(begun) => {
                out.push(0);
                summary(out, begun);
            }
            Self::Delta(stream_id, delta) => {
                out.push(1);
                unsigned(out, *stream_id);
                encode_delta(out, delta);
            }
            Self::Read(read) => {
                out.push(2);
                unsigned(out, read.conn_id);
                unsigned(out, read.read_id.into());
                signed(out, read.t.0);
                unsigned(out, read.bytes.into());
                out.push(read.drained.into());
                optional(
                    out,
                    &[read.kernel_lag, read.idle, read.loop_lag].map(|span| span.map(|span| span.0)),
                );
            }
            Self::Text(text) => {
                out.push(3);
                unsigned(out, text.stream_id);
                unsigned(out, text.seq.into());
                out.push(text.kind as u8);
                bytes(out, text.text.as_bytes());
            }
            Self::Raw(raw) => {
                out.push(4);
                unsigned(out, raw.stream_id);
                unsigned(out, raw.chunk.into());
                optional(out, &[raw.read_id.map(i64::from), raw.t.map(|t| t.0)]);
                bytes(out, &raw.bytes);
            }
            Self::Finish(finished, kept) => {
                out.push(5);
                out.push((*kept).into());
                summary(out, finished);
            }
            Self::Anchor(anchor) => {
                out.push(6);
                signed(out, anchor.wall.0);
                signed(out, anchor.monotonic.0);
            }
            Self::Carried => out.push(7),
        }
    }

    /// Takes one entry off the front of `input`; `None` when it is none.
    pub(super) fn decode(input: &mut &[u8]) -> Option<Self> {
        let input = &mut Input(input);
        Some(match input.byte()? {
            0 => Self::Begin(Box::new(input.summary()?)),
            1 => Self::Delta(input.unsigned()?, input.delta()?),
            2 => Self::Read(input.read()?),
            3 => Self::Text(input.text()?),
            4 => Self::Raw(input.raw()?),
            5 => {
                let kept = input.byte()? != 0;
                Self::Finish(Box::new(input.summary()?), kept)
            }
            6 => {
                Self::Anchor(Anchor { wall: UtcMicros(input.signed()?), monotonic: Micros(input.signed()?) })
            }
            7 => Self::Carried,
            _ => return None,
        })
    }
}

fn encode_delta(out: &mut Vec<u8>, delta: &Delta) {
    unsigned(out, delta.seq.into());
    out.push(delta.kind as u8);
    out.push(delta.phase as u8);
    let values = [
        delta.first_read.map(i64::from),
        delta.t.map(|t| t.0),
        delta.item_index.map(i64::from),
        delta.provider_seq.map(i64::from),
        delta.provider_ts,
        delta.tokens.map(i64::from),
        delta.tokens_est.map(i64::from),
    ];
    optional(out, &values);
    for value in [u32::from(delta.extra_reads), delta.chars, delta.wire_bytes, delta.pad_bytes] {
        unsigned(out, value.into());
    }
}

/// Bytes that are left to decode.
struct Input<'a, 'b>(&'a mut &'b [u8]);

impl<'b> Input<'_, 'b> {
    fn byte(&mut self) -> Option<u8> {
        let (first, rest) = self.0.split_first()?;
        *self.0 = rest;
        Some(*first)
    }

    fn unsigned(&mut self) -> Option<u64> {
        let mut value = 0;
        for shift in (0..64).step_by(7) {
            let byte = self.byte()?;
            value |= u64::from(byte & 0x7f) << shift;
            if byte < 0x80 {
                return Some(value);
            }
        }
        None
    }

    fn narrow<T: TryFrom<u64>>(&mut self) -> Option<T> {
        self.unsigned()?.try_into().ok()
    }

    fn signed(&mut self) -> Option<i64> {
        let value = self.unsigned()?;
        Some((value >> 1).cast_signed() ^ -(value & 1).cast_signed())
    }

    fn bytes(&mut self) -> Option<&'b [u8]> {
        let len = self.narrow()?;
        let (taken, rest) = self.0.split_at_checked(len)?;
        *self.0 = rest;
        Some(taken)
    }

    fn optional<const N: usize>(&mut self) -> Option<[Option<i64>; N]> {
        let present = self.byte()?;
        let mut values = [None; N];
        for (place, value) in values.iter_mut().enumerate() {
            if present >> place & 1 == 1 {
                *value = Some(self.signed()?);
            }
        }
        Some(values)
    }

    fn summary(&mut self) -> Option<Summary> {
        let mut summary: Summary = serde_json::from_slice(self.bytes()?).ok()?;
        let Summary { prompt_numeric_share, usage, cost_usd, .. } = &mut summary;
        for float in [prompt_numeric_share, &mut usage.reasoning, cost_usd] {
            let exact = f64::from_bits(self.unsigned()?);
            *float = float.map(|_| exact);
        }
        Some(summary)
    }

    fn delta(&mut self) -> Option<Delta> {
        let seq = self.narrow()?;
        let kind = *KINDS.get(usize::from(self.byte()?))?;
        let phase = *PHASES.get(usize::from(self.byte()?))?;
        let [first_read, t, item_index, provider_seq, provider_ts, tokens, tokens_est] = self.optional()?;
        Some(Delta {
            first_read: narrowed(first_read)?,
            t: t.map(Micros),
            item_index: narrowed(item_index)?,
            provider_seq: narrowed(provider_seq)?,
            provider_ts,
            tokens: narrowed(tokens)?,
            tokens_est: narrowed(tokens_est)?,
            extra_reads: self.narrow()?,
            chars: self.narrow()?,
            wire_bytes: self.narrow()?,
            pad_bytes: self.narrow()?,
            ..Delta::new(seq, kind, phase, None)
        })
    }

    fn read(&mut self) -> Option<Read> {
        let (conn_id, read_id, t) = (self.unsigned()?, self.narrow()?, Micros(self.signed()?));
        let (bytes, drained) = (self.narrow()?, self.byte()? != 0);
        let [kernel_lag, idle, loop_lag] = self.optional()?.map(|span| span.map(Micros));
        Some(Read { conn_id, read_id, t, kernel_lag, bytes, drained, idle, loop_lag })
    }

    fn text(&mut self) -> Option<Text> {
        let (stream_id, seq) = (self.unsigned()?, self.narrow()?);
        let kind = *KINDS.get(usize::from(self.byte()?))?;
        Some(Text { stream_id, seq, kind, text: String::from_utf8(self.bytes()?.to_vec()).ok()? })
    }

    fn raw(&mut self) -> Option<Raw> {
        let (stream_id, chunk) = (self.unsigned()?, self.narrow()?);
        let [read_id, t] = self.optional()?;
        let bytes = self.bytes()?.to_vec();
        Some(Raw { stream_id, chunk, read_id: narrowed(read_id)?, t: t.map(Micros), bytes })
    }
}

/// The outer option: whether the value fits.
#[expect(clippy::option_option, reason = "absent is a value, too large is none")]
fn narrowed<T: TryFrom<i64>>(value: Option<i64>) -> Option<Option<T>> {
    value.map(T::try_from).transpose().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn places_are_the_declared_ones() {
        for (place, kind) in KINDS.iter().enumerate() {
            assert_eq!(*kind as usize, place);
        }
        for (place, phase) in PHASES.iter().enumerate() {
            assert_eq!(*phase as usize, place);
        }
        assert_eq!((Kind::Meta as usize, Phase::Tail as usize), (KINDS.len() - 1, PHASES.len() - 1));
    }
}
