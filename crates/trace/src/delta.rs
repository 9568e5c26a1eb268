//! One step of a stream: a row of `events/`.

use serde::{Deserialize, Serialize};

use crate::Micros;

/// What an event carried.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Kind {
    /// Raw reasoning text.
    Reasoning,
    /// A summary of the reasoning: its timing says nothing about token counts.
    Summary,
    /// Answer text.
    Text,
    /// Tool-call arguments.
    Tool,
    /// Token usage.
    Usage,
    /// A keep-alive sent as an event.
    Ping,
    /// A keep-alive sent as a comment.
    Comment,
    /// An error in the middle of a stream.
    Error,
    /// The API's terminal event.
    Done,
    /// Anything else: lifecycle events and events that no dialect knows.
    Meta,
}

/// What the model was doing when the event came.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Phase {
    /// Nothing generated yet.
    #[default]
    Queued,
    /// Raw reasoning is being streamed.
    Reasoning,
    /// Reasoning is being summarised.
    Summary,
    /// The answer is being streamed.
    Output,
    /// A tool call is being streamed.
    Tool,
    /// After the last content: closing events and usage.
    Tail,
}

/// One event of a stream, reduced to what analysis needs: no text.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct Delta {
    /// Position in the stream, from 0.
    pub seq: u32,
    /// Read that brought the event's first byte; `None` where reads were not seen.
    pub first_read: Option<u32>,
    /// How many further reads it took to complete the event.
    pub extra_reads: u16,
    /// When the event was complete, since the stream's start; `None` when unmeasured.
    pub t: Option<Micros>,
    /// What it carried.
    pub kind: Kind,
    /// Where in the answer it came.
    pub phase: Phase,
    /// The provider's index of the output item or content block.
    pub item_index: Option<u16>,
    /// The provider's own sequence number.
    pub provider_seq: Option<u32>,
    /// The provider's own clock, µs since 1970 UTC.
    pub provider_ts: Option<i64>,
    /// Unicode scalar values of content.
    pub chars: u32,
    /// Tokens that the provider reported for this event.
    pub tokens: Option<u32>,
    /// Tokens estimated from `chars`; never mixed with `tokens`.
    pub tokens_est: Option<u32>,
    /// Bytes of the event in the decoded body.
    pub wire_bytes: u32,
    /// Of these, bytes that are obfuscation or blank padding.
    pub pad_bytes: u32,
}

impl Delta {
    /// An event of `kind` at `t` with everything else empty.
    pub fn new(seq: u32, kind: Kind, phase: Phase, t: Option<Micros>) -> Self {
        Self {
            seq,
            first_read: None,
            extra_reads: 0,
            t,
            kind,
            phase,
            item_index: None,
            provider_seq: None,
            provider_ts: None,
            chars: 0,
            tokens: None,
            tokens_est: None,
            wire_bytes: 0,
            pad_bytes: 0,
        }
    }

    /// Whether the event carried generated content (reasoning, summary, text or tool arguments).
    pub fn is_content(&self) -> bool {
        matches!(self.kind, Kind::Reasoning | Kind::Summary | Kind::Text | Kind::Tool)
    }
}
