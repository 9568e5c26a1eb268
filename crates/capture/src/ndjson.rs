//! Chunks to frames: newline-delimited JSON, as Ollama streams it.
//!
//! In: the bytes of one body. Out: one [`Frame`] per line that is not blank, with an empty event name.

use std::borrow::Cow;

use memchr::memchr;
use sseismo_trace::{Body, Chunk, Frame, Micros};

use crate::budget::{Budget, Held, OverBudget};
use crate::sse::text;

/// Incremental decoder of one body.
#[derive(Debug)]
pub struct Decoder {
    /// The line that was not complete at the end of the last chunk.
    held: Held,
    /// Place in the body of the next byte to come.
    offset: u64,
    /// Where the current line begins, and the read that brought that byte.
    start: u64,
    first_read: u32,
    last: (u32, Option<Micros>),
}

impl Decoder {
    /// A decoder at the start of a body that charges what it holds back to `budget`.
    pub fn new(budget: &'static Budget) -> Self {
        Self { held: Held::new(budget), offset: 0, start: 0, first_read: 0, last: (0, None) }
    }

    /// Hands every line that `chunk` completes to `each`.
    ///
    /// # Errors
    /// [`OverBudget`] when the rest of the chunk would have to be held back and must not be. The decoder has
    /// then lost its place and is of no more use.
    pub fn push(&mut self, chunk: Chunk<'_>, mut each: impl FnMut(Frame<'_>)) -> Result<(), OverBudget> {
        self.last = (chunk.read, chunk.at);
        let mut rest = chunk.bytes;
        while !rest.is_empty() {
            if self.start == self.offset {
                self.first_read = chunk.read;
            }
            let Some(end) = memchr(b'\n', rest) else {
                self.offset += rest.len() as u64;
                return self.held.extend(rest);
            };
            self.offset += end as u64 + 1;
            if self.held.is_empty() {
                self.line(&rest[..end], &mut each);
            } else {
                self.held.extend(&rest[..end])?;
                self.line(self.held.as_slice(), &mut each);
                self.held.clear();
            }
            self.start = self.offset;
            rest = &rest[end + 1..];
        }
        Ok(())
    }

    /// Ends the body. A last line needs no line end. Returns how many bytes such a line had: whether it is
    /// whole, only its reader can tell.
    pub fn finish(self, mut each: impl FnMut(Frame<'_>)) -> u64 {
        self.line(self.held.as_slice(), &mut each);
        self.offset - self.start
    }

    /// Bytes of memory that the stream takes now, its buffer included.
    pub fn memory(&self) -> usize {
        size_of::<Self>() + self.held.capacity()
    }

    fn line(&self, line: &[u8], each: &mut impl FnMut(Frame<'_>)) {
        let line = line.trim_ascii();
        if line.is_empty() {
            return;
        }
        let (data, invalid_utf8) = text(line);
        each(Frame {
            body: Body::Event { name: Cow::Borrowed(""), data },
            bytes: self.start..self.offset,
            first_read: self.first_read,
            last_read: self.last.0,
            at: self.last.1,
            invalid_utf8,
        });
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::budget::BUDGET;

    fn lines(bytes: &[u8], cuts: &[usize]) -> Vec<(String, std::ops::Range<u64>)> {
        let mut decoder = Decoder::new(&BUDGET);
        let mut out = Vec::new();
        let mut keep = |frame: Frame<'_>| {
            let Body::Event { data, .. } = frame.body else { panic!("NDJSON has no comments") };
            out.push((data.into_owned(), frame.bytes));
        };
        let mut from = 0;
        for (read, to) in cuts.iter().copied().chain([bytes.len()]).enumerate() {
            let chunk = Chunk { bytes: &bytes[from..to], read: u32::try_from(read).unwrap(), at: None };
            decoder.push(chunk, &mut keep).unwrap();
            from = to;
        }
        decoder.finish(&mut keep);
        out
    }

    #[test]
    fn blank_lines_are_no_frames_and_the_last_line_needs_no_end() {
        let got = lines(b"{\"a\":1}\r\n\n  \n{\"b\":2}", &[]);
        assert_eq!(got, [("{\"a\":1}".to_owned(), 0..9), ("{\"b\":2}".to_owned(), 13..20)]);
    }

    #[test]
    fn reads_are_those_of_the_first_and_last_byte() {
        let mut decoder = Decoder::new(&BUDGET);
        let mut reads = Vec::new();
        for (read, bytes) in [(3, &b"{}\n{"[..]), (4, &b""[..]), (5, &b"}\n"[..]), (6, &b"{}\n"[..])] {
            decoder
                .push(Chunk { bytes, read, at: None }, |frame| {
                    reads.push((frame.first_read, frame.last_read));
                })
                .unwrap();
        }
        assert_eq!(reads, [(3, 3), (3, 5), (6, 6)]);
    }

    proptest! {
        /// Frames do not depend on where the bytes are cut.
        #[test]
        fn cuts_do_not_matter(
            bytes in proptest::collection::vec(prop_oneof![Just(b'\n'), Just(b'\r'), Just(b'{'), any::<u8>()], 0..80),
            cuts in proptest::collection::vec(any::<prop::sample::Index>(), 0..6),
        ) {
            let mut cuts: Vec<usize> = cuts.iter().map(|cut| cut.index(bytes.len() + 1)).collect();
            cuts.sort_unstable();
            prop_assert_eq!(lines(&bytes, &cuts), lines(&bytes, &[]));
        }
    }
}
