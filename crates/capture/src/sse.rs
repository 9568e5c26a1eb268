//! Chunks to frames: server-sent events, incrementally.
//!
//! In: the bytes of one body in whatever pieces the reads brought. Out: [`Frame`]s, one per event and one
//! per comment line, each with its place in the body and the reads that brought it.
//!
//! Own code, because what an instrument needs is what parsers throw away: which read an event came with,
//! keep-alive comments, an unfinished last event, and an event at the very read that completes it. Line
//! ends may be LF, CRLF or CR, mixed, and cut anywhere; a CR ends its line at once, without waiting for a
//! possible LF. Fields and dispatch follow WHATWG HTML § 9.2.6; `id` and `retry` are not kept, since a
//! recorded stream is never resumed. `sse/tests.rs` compares with the crate `eventsource-stream` and names
//! the places where that one does otherwise.
//!
//! An event that lies within one chunk is not copied.

use std::borrow::Cow;
use std::ops::Range;

use memchr::{memchr, memchr2};
use sseismo_trace::{Body, Chunk, Frame, Micros};

use crate::budget::{Budget, Held, OverBudget};

const BOM: &[u8] = b"\xEF\xBB\xBF";

/// Incremental decoder of one body.
///
/// ```
/// use sseismo_capture::budget::BUDGET;
/// use sseismo_capture::sse::Decoder;
/// use sseismo_trace::{Body, Chunk};
///
/// let mut decoder = Decoder::new(&BUDGET);
/// let mut seen = Vec::new();
/// for (read, bytes) in [(0, &b": ping\n\nda"[..]), (1, &b"ta: {}\n\n"[..])] {
///     decoder.push(Chunk { bytes, read, at: None }, |frame| {
///         seen.push((matches!(frame.body, Body::Comment(_)), frame.bytes, frame.first_read..=frame.last_read));
///     })?;
/// }
/// assert_eq!(seen, [(true, 0..7, 0..=0), (false, 8..18, 0..=1)]);
/// # Ok::<(), sseismo_capture::budget::OverBudget>(())
/// ```
#[derive(Debug)]
pub struct Decoder {
    /// The open block's bytes from its start on, when it was not complete at the end of the last chunk.
    held: Held,
    /// Place in the body of the next byte to come.
    offset: u64,
    /// How many bytes of a BOM were seen; 3 when the start of the body is behind us.
    bom: usize,
    /// The last byte was a CR, so that an LF now belongs to it.
    after_cr: bool,
    block: Block,
    /// The last chunk's read and time, for a frame that ends with the body.
    last: (u32, Option<Micros>),
}

/// The lines since the last blank line. Places are those of the body.
#[derive(Debug, Default)]
struct Block {
    start: u64,
    read: u32,
    line: u64,
    line_read: u32,
    /// A field was seen: the block is more than comments.
    open: bool,
    name: Option<Range<u64>>,
    data: Option<Range<u64>>,
    /// Further data lines; rare.
    more: Vec<Range<u64>>,
}

/// Bytes to look into, and what is to be said of a frame that is completed in them.
struct View<'a> {
    bytes: &'a [u8],
    /// Place in the body of the first of `bytes`.
    base: u64,
    read: u32,
    at: Option<Micros>,
}

impl Decoder {
    /// A decoder at the start of a body that charges what it holds back to `budget`.
    pub fn new(budget: &'static Budget) -> Self {
        Self {
            held: Held::new(budget),
            offset: 0,
            bom: 0,
            after_cr: false,
            block: Block::default(),
            last: (0, None),
        }
    }

    /// Hands every frame that `chunk` completes to `each`.
    ///
    /// # Errors
    /// [`OverBudget`] when the rest of the chunk would have to be held back and must not be. The decoder has
    /// then lost its place and is of no more use.
    pub fn push(&mut self, chunk: Chunk<'_>, mut each: impl FnMut(Frame<'_>)) -> Result<(), OverBudget> {
        let Chunk { bytes, read, at } = chunk;
        if bytes.is_empty() {
            return Ok(());
        }
        self.last = (read, at);
        let base = self.offset;
        let mut pos = self.skip_bom(bytes, read)?;
        if pos == bytes.len() {
            self.offset += bytes.len() as u64;
            return Ok(());
        }
        self.block.comes_with(base + pos as u64, read);
        if self.after_cr {
            self.after_cr = false;
            if bytes[pos] == b'\n' {
                self.block.skip_line_feed();
                if !self.held.is_empty() {
                    self.held.extend(&bytes[pos..=pos])?;
                }
                pos += 1;
            }
        }
        while !self.held.is_empty() && pos < bytes.len() {
            let Some((end, next)) = self.line_end(bytes, pos) else {
                self.held.extend(&bytes[pos..])?;
                pos = bytes.len();
                break;
            };
            self.held.extend(&bytes[pos..next])?;
            let view = View { bytes: self.held.as_slice(), base: self.block.start, read, at };
            let next_place = base + next as u64;
            self.block.line(&view, base + end as u64, next_place, &mut each);
            if self.block.start == next_place {
                self.held.clear();
            }
            pos = next;
        }
        let view = View { bytes, base, read, at };
        while let Some((end, next)) = self.line_end(bytes, pos) {
            self.block.line(&view, base + end as u64, base + next as u64, &mut each);
            pos = next;
        }
        self.offset = base + bytes.len() as u64;
        if self.held.is_empty() && self.block.start < self.offset {
            self.held.extend(&bytes[within(self.block.start, base)..])?;
        }
        Ok(())
    }

    /// Ends the body. An event without its closing blank line, which a WHATWG client drops, is handed to
    /// `each` all the same: it did arrive. Returns how many bytes such a tail had; 0 is a clean end.
    pub fn finish(mut self, mut each: impl FnMut(Frame<'_>)) -> u64 {
        let tail = self.offset.saturating_sub(self.block.start);
        if tail == 0 || self.bom < BOM.len() {
            return tail;
        }
        let (read, at) = self.last;
        let view = View { bytes: self.held.as_slice(), base: self.block.start, read, at };
        if self.block.line < self.offset {
            self.block.line(&view, self.offset, self.offset, &mut each);
        }
        self.block.dispatch(&view, self.offset, &mut each);
        tail
    }

    /// Bytes of memory that the stream takes now, its buffers included.
    pub fn memory(&self) -> usize {
        size_of::<Self>() + self.held.capacity() + self.block.more.capacity() * size_of::<Range<u64>>()
    }

    /// How many leading bytes of `bytes` belong to a byte order mark at the start of the body.
    fn skip_bom(&mut self, bytes: &[u8], read: u32) -> Result<usize, OverBudget> {
        if self.bom == BOM.len() {
            return Ok(0);
        }
        let (seen, rest) = (self.bom, &BOM[self.bom..]);
        let same = rest.iter().zip(bytes).take_while(|(a, b)| a == b).count();
        self.bom += same;
        if self.bom == BOM.len() {
            self.block.start = BOM.len() as u64;
            self.block.line = self.block.start;
            return Ok(same);
        }
        if seen == 0 && same > 0 {
            (self.block.read, self.block.line_read) = (read, read);
        }
        if same == bytes.len() {
            return Ok(same);
        }
        // Not a mark: what looked like one in earlier chunks begins the first line.
        self.bom = BOM.len();
        self.held.extend(&BOM[..seen])?;
        Ok(0)
    }

    /// The end of the line that goes on at `pos`, without and with its line end; `None` when it goes on
    /// after `bytes`.
    fn line_end(&mut self, bytes: &[u8], pos: usize) -> Option<(usize, usize)> {
        let end = pos + memchr2(b'\n', b'\r', &bytes[pos..])?;
        if bytes[end] == b'\n' {
            return Some((end, end + 1));
        }
        match bytes.get(end + 1) {
            Some(b'\n') => Some((end, end + 2)),
            Some(_) => Some((end, end + 1)),
            None => {
                self.after_cr = true;
                Some((end, end + 1))
            }
        }
    }
}

impl Block {
    /// The byte at `place` came with `read`: where a block or a line begins with it, that is its first read.
    fn comes_with(&mut self, place: u64, read: u32) {
        if self.start == place {
            self.read = read;
        }
        if self.line == place {
            self.line_read = read;
        }
    }

    /// The LF of a CRLF that was cut in two: it belongs to the line before.
    fn skip_line_feed(&mut self) {
        if self.start == self.line {
            self.start += 1;
        }
        self.line += 1;
    }

    /// Takes in the line that ends at `end`; the next one begins at `next`.
    fn line(&mut self, view: &View<'_>, end: u64, next: u64, each: &mut impl FnMut(Frame<'_>)) {
        let (start, read) = (self.line, self.line_read);
        (self.line, self.line_read) = (next, view.read);
        let line = view.slice(&(start..end));
        match line.first() {
            None => self.dispatch(view, next, each),
            Some(b':') => {
                let (text, invalid_utf8) = text(&line[1..]);
                each(view.frame(Body::Comment(text), start..next, read, invalid_utf8));
                if !self.open {
                    (self.start, self.read) = (next, view.read);
                }
            }
            Some(_) => self.field(line, start..end),
        }
    }

    fn field(&mut self, line: &[u8], place: Range<u64>) {
        self.open = true;
        let (name, value) = match memchr(b':', line) {
            Some(colon) => (&line[..colon], colon + 1 + usize::from(line.get(colon + 1) == Some(&b' '))),
            None => (line, line.len()),
        };
        let value = place.start + value as u64..place.end;
        match name {
            b"data" if self.data.is_none() => self.data = Some(value),
            b"data" => self.more.push(value),
            b"event" => self.name = Some(value),
            _ => {}
        }
    }

    /// A blank line, or the end of the body, at `next`. Without data there is no event.
    fn dispatch(&mut self, view: &View<'_>, next: u64, each: &mut impl FnMut(Frame<'_>)) {
        let (name, data) = (self.name.take(), self.data.take());
        if let Some(data) = data {
            let (name, bad_name) = name.map_or((Cow::Borrowed(""), false), |name| text(view.slice(&name)));
            let (data, bad_data) = if self.more.is_empty() {
                text(view.slice(&data))
            } else {
                let mut lines = view.slice(&data).to_vec();
                for line in self.more.drain(..) {
                    lines.push(b'\n');
                    lines.extend_from_slice(view.slice(&line));
                }
                let (data, bad) = text(&lines);
                (Cow::Owned(data.into_owned()), bad)
            };
            each(view.frame(Body::Event { name, data }, self.start..next, self.read, bad_name || bad_data));
        }
        self.open = false;
        (self.start, self.read) = (next, view.read);
    }
}

impl<'a> View<'a> {
    fn slice(&self, place: &Range<u64>) -> &'a [u8] {
        &self.bytes[within(place.start, self.base)..within(place.end, self.base)]
    }

    fn frame(&self, body: Body<'a>, bytes: Range<u64>, first_read: u32, invalid_utf8: bool) -> Frame<'a> {
        Frame { body, bytes, first_read, last_read: self.read, at: self.at, invalid_utf8 }
    }
}

/// Index of `place` in a buffer that begins at `base`.
#[expect(clippy::cast_possible_truncation, reason = "a place inside a buffer fits the buffer's index")]
fn within(place: u64, base: u64) -> usize {
    (place - base) as usize
}

/// The bytes as text, with U+FFFD for what is not UTF-8, and whether there was any such.
pub(crate) fn text(bytes: &[u8]) -> (Cow<'_, str>, bool) {
    match std::str::from_utf8(bytes) {
        Ok(text) => (Cow::Borrowed(text), false),
        Err(_) => (String::from_utf8_lossy(bytes), true),
    }
}

#[cfg(test)]
mod tests;
