//! Opening a file: compression by magic number, progress in bytes on disk, any number of times.

use std::cell::{Cell, RefCell};
use std::fs::File;
use std::io::{self, Cursor, Read, Seek};
use std::ops::ControlFlow;
use std::path::Path;

use sseismo_trace::Stream;

use super::Sink;
use super::importer::Error;
use super::lines::Lines;

/// How much of a file is looked at to recognise it. A rollout's first line alone can hold 22 KB of
/// instructions.
const HEAD: u64 = 64 * 1024;
/// How much is looked at where the first line does not end before.
const LONGEST_HEAD: usize = 4 * 1024 * 1024;

/// What readers and importers tell the import that they belong to.
///
/// A trait only to hide the sink's lifetime from every importer.
pub(super) trait Gauge {
    /// Whether the sink wants no more.
    fn stopped(&self) -> bool;
    /// Hands one stream on.
    fn stream(&self, source: &str, stream: Stream<'_>);
    /// The current file was read up to `at`. A second pass over it is no progress; bytes that were
    /// added to it after its size was taken are not counted.
    fn reach(&self, at: u64);
    /// Asks the sink whether it wants more, where a little on disk is much to go through.
    fn ask(&self);
}

/// The sink, and how far the current file was read. Shared by all readers of one import.
pub(super) struct Meter<'s> {
    sink: RefCell<&'s mut dyn Sink>,
    stopped: Cell<bool>,
    size: Cell<u64>,
    reached: Cell<u64>,
}

impl<'s> Meter<'s> {
    pub(super) fn new(sink: &'s mut dyn Sink) -> Self {
        Self {
            sink: RefCell::new(sink),
            stopped: Cell::new(false),
            size: Cell::new(0),
            reached: Cell::new(0),
        }
    }

    /// A file of `size` bytes begins.
    pub(super) fn start(&self, size: u64) {
        self.size.set(size);
        self.reached.set(0);
    }

    /// Nothing more is read of the current file.
    pub(super) fn finish(&self) {
        if !self.stopped() {
            self.reach(self.size.get());
        }
    }
}

impl Gauge for Meter<'_> {
    fn stopped(&self) -> bool {
        self.stopped.get()
    }

    fn stream(&self, source: &str, stream: Stream<'_>) {
        self.sink.borrow_mut().stream(source, stream);
    }

    fn ask(&self) {
        if self.sink.borrow_mut().progress(0) == ControlFlow::Break(()) {
            self.stopped.set(true);
        }
    }

    fn reach(&self, at: u64) {
        let (at, reached) = (at.min(self.size.get()), self.reached.get());
        if at > reached {
            self.reached.set(at);
            if self.sink.borrow_mut().progress(at - reached) == ControlFlow::Break(()) {
                self.stopped.set(true);
            }
        }
    }
}

/// One file.
pub(super) struct Input<'a> {
    path: &'a Path,
    gauge: &'a dyn Gauge,
    head: Vec<u8>,
    head_is_whole: bool,
}

impl<'a> Input<'a> {
    pub(super) fn new(path: &'a Path, gauge: &'a dyn Gauge) -> Result<Self, Error> {
        let mut input = Self { path, gauge, head: Vec::new(), head_is_whole: false };
        let mut content = input.open()?;
        let (mut head, mut whole) = (Vec::new(), false);
        // A format is told by whole lines: a longer first line (a prompt beside its counts) is read on.
        while !whole && (head.is_empty() || is_unfinished(&head)) {
            let before = head.len() as u64;
            let read = content.by_ref().take(HEAD).read_to_end(&mut head);
            whole = head.len() as u64 - before < HEAD;
            // A compressed file that is cut early still has a head; reading it to the end will say so.
            if let (Err(error), true) = (read, head.is_empty()) {
                return Err(error.into());
            }
        }
        drop(content);
        (input.head, input.head_is_whole) = (head, whole);
        Ok(input)
    }

    /// Where the file lies.
    pub(super) fn path(&self) -> &'a Path {
        self.path
    }

    pub(super) fn gauge(&self) -> &'a dyn Gauge {
        self.gauge
    }

    /// The first bytes of the content.
    pub(super) fn head(&self) -> &[u8] {
        &self.head
    }

    /// Whether the content ends within [`head`](Self::head).
    pub(super) fn head_is_whole(&self) -> bool {
        self.head_is_whole
    }

    /// The content from its start: decompressed, a UTF-8 byte-order mark removed.
    ///
    /// Can be called any number of times. Once the sink has stopped the import, reads fail.
    pub(super) fn open(&self) -> io::Result<Box<dyn Read + 'a>> {
        let mut file = File::open(self.path)?;
        let magic = first::<4>(&mut file)?;
        file.rewind()?;
        let raw = Metered { file, at: 0, gauge: self.gauge };
        let mut content: Box<dyn Read + 'a> = match magic[..] {
            [0x28, 0xb5, 0x2f, 0xfd] => {
                Box::new(Unpacked { content: zstd::stream::read::Decoder::new(raw)?, gauge: self.gauge })
            }
            [0x1f, 0x8b, ..] => {
                Box::new(Unpacked { content: flate2::read::MultiGzDecoder::new(raw), gauge: self.gauge })
            }
            _ => Box::new(raw),
        };
        let start = first::<3>(&mut content)?;
        if start == BYTE_ORDER_MARK { Ok(content) } else { Ok(Box::new(Cursor::new(start).chain(content))) }
    }

    /// The content line by line.
    pub(super) fn lines(&self) -> io::Result<Lines<Box<dyn Read + 'a>>> {
        Ok(Lines::new(self.open()?))
    }
}

/// UTF-8 text saved by some editors and spreadsheets begins so.
const BYTE_ORDER_MARK: [u8; 3] = [0xef, 0xbb, 0xbf];

/// The first `N` bytes, fewer where the content is shorter.
fn first<const N: usize>(reader: &mut impl Read) -> io::Result<Vec<u8>> {
    let mut start = Vec::with_capacity(N);
    reader.take(N as u64).read_to_end(&mut start)?;
    Ok(start)
}

/// Whether this is text in whose first line the head ends.
fn is_unfinished(head: &[u8]) -> bool {
    head.len() < LONGEST_HEAD && !head.contains(&b'\n') && !is_binary(head)
}

/// Whether a file that begins so is no text. A character that the head cuts in two is no sign.
pub(super) fn is_binary(head: &[u8]) -> bool {
    head.contains(&0) || std::str::from_utf8(head).is_err_and(|error| error.error_len().is_some())
}

/// Decompressed content: a few KB on disk can unpack to gigabytes, so the sink is asked at every read.
struct Unpacked<'a, R> {
    content: R,
    gauge: &'a dyn Gauge,
}

impl<R: Read> Read for Unpacked<'_, R> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        self.gauge.ask();
        if self.gauge.stopped() {
            return Err(io::Error::other("stopped"));
        }
        self.content.read(buffer)
    }
}

/// Reads a file and says how far.
struct Metered<'a> {
    file: File,
    at: u64,
    gauge: &'a dyn Gauge,
}

impl Read for Metered<'_> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        if self.gauge.stopped() {
            return Err(io::Error::other("stopped"));
        }
        let read = self.file.read(buffer)?;
        self.at += read as u64;
        self.gauge.reach(self.at);
        Ok(read)
    }
}
