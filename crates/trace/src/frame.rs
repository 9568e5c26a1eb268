//! One server-sent event, or one line of NDJSON, with the place in the body that it came from.

use std::borrow::Cow;
use std::ops::Range;

use crate::Micros;

/// What a frame carries.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Body<'a> {
    /// A dispatched event: its name (empty when no `event:` field was sent) and its joined data lines.
    Event {
        /// Value of the last `event:` field.
        name: Cow<'a, str>,
        /// The data lines, joined by a line feed.
        data: Cow<'a, str>,
    },
    /// A comment line, without its colon: the usual keep-alive.
    Comment(Cow<'a, str>),
}

/// One event or comment of a stream.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Frame<'a> {
    /// The content.
    pub body: Body<'a>,
    /// Bytes of the decoded body that the frame spans, its closing blank line included.
    pub bytes: Range<u64>,
    /// Read that brought the frame's first byte.
    pub first_read: u32,
    /// Read that completed it.
    pub last_read: u32,
    /// When it was complete, since the stream's start.
    pub at: Option<Micros>,
    /// Some bytes were not UTF-8 and were replaced by U+FFFD.
    pub invalid_utf8: bool,
}
