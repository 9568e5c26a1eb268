//! Bytes to lines, of bounded length: memory stays flat whatever a file holds.

use std::io::{self, Read};
use std::ops::Range;

use super::importer::Out;

/// How much is read at once: large enough that system calls do not matter, small enough for the cache.
const CHUNK: usize = 256 * 1024;
/// Lines of so many bytes and more are skipped. The longest that a client writes is a turn with images inlined, a few MB.
const LONGEST: usize = 64 * 1024 * 1024;

/// The reason under which they are counted.
const TOO_LONG: &str = "line-too-long";

/// Lines of a reader, without their ends.
pub(super) struct Lines<R> {
    reader: R,
    /// Bytes read; those in `start..end` are not yet given out.
    buffer: Vec<u8>,
    start: usize,
    end: usize,
    number: u64,
    longest: usize,
    /// Inside a line that is too long: drop everything up to its end.
    dropping: bool,
    too_long: u64,
}

/// One line.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Line<'a> {
    /// From 1.
    pub(super) number: u64,
    /// Without line feed, carriage return and other space at its end.
    pub(super) bytes: &'a [u8],
    /// A line feed follows it. Where none does, the writer may have been cut off.
    pub(super) ended: bool,
}

impl<R: Read> Lines<R> {
    pub(super) fn new(reader: R) -> Self {
        Self::bounded(reader, CHUNK, LONGEST)
    }

    fn bounded(reader: R, chunk: usize, longest: usize) -> Self {
        let buffer = vec![0; chunk];
        Self { reader, buffer, start: 0, end: 0, number: 0, longest, dropping: false, too_long: 0 }
    }

    /// The next line that is not blank. Lines over the limit are counted as `line-too-long`.
    ///
    /// # Errors
    /// When the reader fails; the lines before were given out.
    pub(super) fn next(&mut self, out: &mut Out<'_>) -> io::Result<Option<Line<'_>>> {
        let found = self.find();
        for _ in 0..self.take_too_long() {
            out.skip(TOO_LONG);
        }
        Ok(found?.map(|found| self.line(found)))
    }

    /// The next line that is not blank; [`take_too_long`](Self::take_too_long) tells what was left out.
    ///
    /// # Errors
    /// When the reader fails.
    pub(super) fn next_uncounted(&mut self) -> io::Result<Option<Line<'_>>> {
        Ok(self.find()?.map(|found| self.line(found)))
    }

    /// How many lines were too long since this was last asked.
    pub(super) fn take_too_long(&mut self) -> u64 {
        std::mem::take(&mut self.too_long)
    }

    fn find(&mut self) -> io::Result<Option<(Range<usize>, bool)>> {
        while let Some((line, ended)) = self.advance()? {
            if !self.buffer[line.clone()].trim_ascii().is_empty() {
                return Ok(Some((line, ended)));
            }
        }
        Ok(None)
    }

    fn line(&self, (line, ended): (Range<usize>, bool)) -> Line<'_> {
        Line { number: self.number, bytes: self.buffer[line].trim_ascii_end(), ended }
    }

    /// Where the next line stands in the buffer, and whether it has an end.
    fn advance(&mut self) -> io::Result<Option<(Range<usize>, bool)>> {
        let mut searched = self.start;
        loop {
            if let Some(found) = memchr::memchr(b'\n', &self.buffer[searched..self.end]) {
                let line = self.start..searched + found;
                self.start = line.end + 1;
                self.number += 1;
                if !std::mem::take(&mut self.dropping) {
                    return Ok(Some((line, true)));
                }
                self.too_long += 1;
                searched = self.start;
                continue;
            }
            if self.dropping || self.end - self.start >= self.longest {
                self.dropping = true;
                self.start = self.end;
                self.buffer.truncate(CHUNK);
                self.buffer.shrink_to_fit();
                (self.start, self.end) = (0, 0);
            }
            let unfinished = self.end - self.start;
            if !self.fill()? {
                return Ok(self.rest());
            }
            searched = self.start + unfinished;
        }
    }

    /// Moves the unfinished line to the front and reads on; false when the reader has no more.
    fn fill(&mut self) -> io::Result<bool> {
        self.buffer.copy_within(self.start..self.end, 0);
        self.end -= self.start;
        self.start = 0;
        if self.end == self.buffer.len() {
            self.buffer.resize(2 * self.end, 0);
        }
        let read = loop {
            match self.reader.read(&mut self.buffer[self.end..]) {
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                read => break read?,
            }
        };
        self.end += read;
        Ok(read > 0)
    }

    /// What stands after the last line feed.
    fn rest(&mut self) -> Option<(Range<usize>, bool)> {
        if std::mem::take(&mut self.dropping) {
            self.too_long += 1;
        }
        let line = self.start..self.end;
        self.start = self.end;
        self.number += 1;
        (!line.is_empty()).then_some((line, false))
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::super::importer::Out;
    use super::super::input::Gauge;
    use super::super::{FOLDER, Imported};
    use super::*;

    struct Nobody;

    impl Gauge for Nobody {
        fn stopped(&self) -> bool {
            false
        }
        fn stream(&self, _: &str, _: sseismo_trace::Stream<'_>) {}
        fn reach(&self, _: u64) {}
        fn ask(&self) {}
    }

    /// Lines of `text` as (number, bytes, ended), and how many were too long.
    fn lines(text: &[u8], chunk: usize, longest: usize) -> (Vec<(u64, Vec<u8>, bool)>, u64) {
        let mut imported = Imported::new(std::path::Path::new(""), FOLDER);
        let mut out = Out::new("", &Nobody, &mut imported);
        let mut lines = Lines::bounded(text, chunk, longest);
        let mut seen = Vec::new();
        while let Some(line) = lines.next(&mut out).unwrap() {
            seen.push((line.number, line.bytes.to_vec(), line.ended));
        }
        (seen, imported.skipped.get(TOO_LONG).copied().unwrap_or(0))
    }

    #[test]
    fn blank_lines_are_numbered_but_not_given() {
        let (seen, _) = lines(b"a\r\n\n  \nb", 8, 100);
        assert_eq!(seen, [(1, b"a".to_vec(), true), (4, b"b".to_vec(), false)]);
    }

    #[test]
    fn a_line_over_the_limit_is_counted_and_takes_no_memory() {
        let text =
            [b"first\n".to_vec(), vec![b'x'; 1 << 20], b"\nlast\n".to_vec(), vec![b'y'; 1 << 20]].concat();
        let (seen, too_long) = lines(&text, 256, 1024);
        assert_eq!(seen, [(1, b"first".to_vec(), true), (3, b"last".to_vec(), true)]);
        assert_eq!(too_long, 2);
        let mut imported = Imported::new(std::path::Path::new(""), FOLDER);
        let mut bounded = Lines::bounded(&text[..], 256, 1024);
        while bounded.next(&mut Out::new("", &Nobody, &mut imported)).unwrap().is_some() {}
        assert!(bounded.buffer.len() <= 4096, "{}", bounded.buffer.len());
    }

    proptest! {
        /// Law: lines do not depend on how much is read at once.
        #[test]
        fn lines_are_those_of_split(text in "[ab\n]{0,200}", chunk in 1_usize..50) {
            let (seen, too_long) = lines(text.as_bytes(), chunk, 1000);
            let expected: Vec<Vec<u8>> =
                text.split('\n').filter(|line| !line.is_empty()).map(|line| line.as_bytes().to_vec()).collect();
            prop_assert_eq!(seen.into_iter().map(|(_, line, _)| line).collect::<Vec<_>>(), expected);
            prop_assert_eq!(too_long, 0);
        }
    }
}
