//! A shadow of HTTP/1.1's framing: which socket read brought which byte of a response body.
//!
//! In: the response bytes of one connection, above TLS, each piece with the read that completed it.
//! Out: [`Run`]s, the body's bytes grouped by read.
//!
//! hyper hands out body bytes without saying where they came from, so the same bytes are followed a
//! second time, just far enough to know where each body starts, where its chunks lie and where it ends.
//! The rules are those of RFC 9112 §6.3 and §7.1 as hyper applies them. Chunked bodies are taken apart here for
//! those who read them without hyper: [`Shadow::dechunk`]. What the shadow does not understand makes
//! it blind for the rest of the connection (attribution `none`), never wrong.

use std::collections::VecDeque;
use std::ops::Range;

use memchr::memchr;
use sseismo_trace::Micros;

/// A response head longer than this is not followed (hyper's own limit is about 400 KiB).
const MAX_HEAD: usize = 512 * 1024;

/// Responses that are complete on the wire and whose bodies nobody has asked for yet.
const MAX_EXCHANGES: usize = 16;

/// Body bytes up to `end` (exclusive; from the end of the run before) were completed by `read`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Run {
    pub(crate) end: u64,
    pub(crate) read: u32,
    pub(crate) at: Micros,
}

/// One response on the connection.
#[derive(Debug, Default)]
struct Exchange {
    number: u64,
    /// The read that completed the head, and when.
    head: (u32, Micros),
    claimed: bool,
    body: u64,
    runs: VecDeque<Run>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum State {
    /// Between two responses: no byte is expected.
    Idle,
    Head,
    Length(u64),
    ChunkSize {
        size: u64,
        line: SizeLine,
    },
    ChunkData(u64),
    /// Behind a chunk's data; with its CR or still before it.
    ChunkEnd {
        cr: bool,
    },
    /// Trailer lines; `blank` while the current line is empty.
    Trailer {
        blank: bool,
    },
    UntilClose,
    Blind,
}

/// Where in the line of a chunk's size.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum SizeLine {
    Start,
    Digits,
    Blanks,
    Extension,
    Cr,
}

impl State {
    const CHUNK: Self = Self::ChunkSize { size: 0, line: SizeLine::Start };
}

/// How far a chunked body was followed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Dechunked {
    /// To the end of the bytes.
    More,
    /// The last chunk, which is empty, ends before byte `used`; trailers may follow.
    Last { used: usize },
    /// These are no chunks.
    Broken,
}

/// Follows the responses of one connection.
#[derive(Debug)]
pub(crate) struct Shadow {
    state: State,
    head: Vec<u8>,
    to_head_request: bool,
    requests: u64,
    exchanges: VecDeque<Exchange>,
    /// Claims that must stay unanswered because two responses were waiting at once.
    ambiguous: usize,
}

impl Default for Shadow {
    fn default() -> Self {
        Self {
            state: State::Idle,
            head: Vec::new(),
            to_head_request: false,
            requests: 0,
            exchanges: VecDeque::new(),
            ambiguous: 0,
        }
    }
}

impl Shadow {
    /// Bytes of a request are about to be written. Between two responses they start a new request.
    pub(crate) fn wrote(&mut self, bytes: &[u8]) {
        if self.state == State::Idle && !bytes.is_empty() {
            self.to_head_request = bytes.starts_with(b"HEAD ");
            self.state = State::Head;
        }
    }

    /// Bytes of a response came, completed by `read` at `at`. Stops behind the head of a chunked response and
    /// says how many bytes it followed: what comes next may be read here or with [`Shadow::dechunk`].
    pub(crate) fn read(&mut self, bytes: &[u8], read: u32, at: Micros) -> Option<usize> {
        let mut used = 0;
        while used < bytes.len() {
            let in_head = self.state == State::Head;
            used += self.step(&bytes[used..], read, at);
            if in_head && self.state == State::CHUNK {
                return Some(used);
            }
        }
        None
    }

    /// Takes a chunked body apart: hands the places of its data in `bytes` to `data`. Its bytes are tied to
    /// no read here; whoever takes it apart knows which one brought them.
    pub(crate) fn dechunk(&mut self, bytes: &[u8], mut data: impl FnMut(Range<usize>)) -> Dechunked {
        let mut used = 0;
        while used < bytes.len() {
            match self.state {
                State::ChunkData(left) => {
                    let n = usize::try_from(left).unwrap_or(usize::MAX).min(bytes.len() - used);
                    data(used..used + n);
                    used += n;
                    self.state = after_data(left, n);
                }
                State::ChunkSize { .. } | State::ChunkEnd { .. } => {
                    used += self.step(&bytes[used..], 0, Micros(0));
                    if matches!(self.state, State::Trailer { .. }) {
                        return Dechunked::Last { used };
                    }
                }
                State::Idle
                | State::Head
                | State::Length(_)
                | State::Trailer { .. }
                | State::UntilClose
                | State::Blind => return Dechunked::Broken,
            }
        }
        if self.state == State::Blind { Dechunked::Broken } else { Dechunked::More }
    }

    /// The response whose head was completed last belongs to the caller: its number, and the read that
    /// completed its head. `None` when two were waiting and it cannot be told which one is meant.
    pub(crate) fn claim(&mut self) -> Option<(u64, (u32, Micros))> {
        if self.ambiguous > 0 {
            self.ambiguous -= 1;
            return None;
        }
        let mut waiting = self.exchanges.iter_mut().filter(|exchange| !exchange.claimed);
        let first = waiting.next()?;
        let others = waiting.count();
        if others == 0 {
            first.claimed = true;
            return Some((first.number, first.head));
        }
        self.ambiguous = others;
        self.exchanges.retain(|exchange| exchange.claimed);
        None
    }

    /// Takes the run that holds body byte `offset` of response `number`, shortened to end at `limit`.
    pub(crate) fn take(&mut self, number: u64, offset: u64, limit: u64) -> Option<Run> {
        let exchange = self.exchanges.iter_mut().find(|exchange| exchange.number == number)?;
        while exchange.runs.front().is_some_and(|run| run.end <= offset) {
            exchange.runs.pop_front();
        }
        let run = *exchange.runs.front()?;
        Some(Run { end: run.end.min(limit), ..run })
    }

    /// Nobody will ask for response `number` again.
    pub(crate) fn release(&mut self, number: u64) {
        self.exchanges.retain(|exchange| exchange.number != number);
    }

    /// Does one step at the front of `bytes`; how many of them it used (at least one).
    fn step(&mut self, bytes: &[u8], read: u32, at: Micros) -> usize {
        match self.state {
            State::Idle | State::Blind => {
                self.state = State::Blind;
                bytes.len()
            }
            State::Head => self.head(bytes, read, at),
            State::Length(left) => {
                let n = self.body(bytes, left, read, at);
                self.state = match left - n as u64 {
                    0 => State::Idle,
                    left => State::Length(left),
                };
                n
            }
            State::ChunkData(left) => {
                let n = self.body(bytes, left, read, at);
                self.state = after_data(left, n);
                n
            }
            State::UntilClose => self.body(bytes, u64::MAX, read, at),
            State::ChunkSize { size, line } => {
                self.state = chunk_size(bytes[0], size, line);
                1
            }
            State::ChunkEnd { cr } => {
                self.state = match (bytes[0], cr) {
                    (b'\r', false) => State::ChunkEnd { cr: true },
                    (b'\n', true) => State::CHUNK,
                    _ => State::Blind,
                };
                1
            }
            State::Trailer { blank } => {
                self.state = match bytes[0] {
                    b'\n' if blank => State::Idle,
                    b'\n' => State::Trailer { blank: true },
                    b'\r' => State::Trailer { blank },
                    _ => State::Trailer { blank: false },
                };
                1
            }
        }
    }

    fn body(&mut self, bytes: &[u8], left: u64, read: u32, at: Micros) -> usize {
        let n = usize::try_from(left).unwrap_or(usize::MAX).min(bytes.len());
        // The response on the wire may have been released already: nobody asks for its bytes any more.
        if let Some(exchange) = self.exchanges.back_mut().filter(|exchange| exchange.number == self.requests)
        {
            exchange.body += n as u64;
            let end = exchange.body;
            match exchange.runs.back_mut() {
                Some(run) if run.read == read => run.end = end,
                _ => exchange.runs.push_back(Run { end, read, at }),
            }
        }
        n
    }

    /// Collects the head up to its blank line, then decides how the body is framed.
    fn head(&mut self, bytes: &[u8], read: u32, at: Micros) -> usize {
        for (used, line_end) in line_ends(bytes) {
            let before = self.head.len() + line_end;
            let last = |back: usize| {
                let at = before.checked_sub(back)?;
                if at >= self.head.len() { bytes.get(at - self.head.len()) } else { self.head.get(at) }
            };
            let blank = last(1) == Some(&b'\n') || (last(1) == Some(&b'\r') && last(2) == Some(&b'\n'));
            if blank {
                self.head.extend_from_slice(&bytes[..used]);
                let head = std::mem::take(&mut self.head);
                self.open(&head, read, at);
                return used;
            }
        }
        if self.head.len() + bytes.len() > MAX_HEAD {
            self.state = State::Blind;
        } else {
            self.head.extend_from_slice(bytes);
        }
        bytes.len()
    }

    fn open(&mut self, head: &[u8], read: u32, at: Micros) {
        let Some(framing) = Framing::of(head, self.to_head_request) else {
            self.state = State::Blind;
            return;
        };
        if framing == Framing::Interim {
            return; // 1xx: the real head follows
        }
        self.requests += 1;
        self.exchanges.push_back(Exchange { number: self.requests, head: (read, at), ..Exchange::default() });
        if self.exchanges.len() > MAX_EXCHANGES {
            self.exchanges.pop_front();
        }
        self.state = match framing {
            Framing::Length(0) => State::Idle,
            Framing::Length(length) => State::Length(length),
            Framing::Chunked => State::CHUNK,
            Framing::UntilClose => State::UntilClose,
            Framing::Upgraded | Framing::Interim => State::Blind,
        };
    }
}

/// `(bytes up to and with the line feed, position of the line feed)` of each line of `bytes`.
fn line_ends(bytes: &[u8]) -> impl Iterator<Item = (usize, usize)> {
    let mut from = 0;
    std::iter::from_fn(move || {
        let at = from + memchr(b'\n', &bytes[from..])?;
        from = at + 1;
        Some((from, at))
    })
}

/// Behind `n` of the `left` bytes of a chunk's data.
fn after_data(left: u64, n: usize) -> State {
    match left - n as u64 {
        0 => State::ChunkEnd { cr: false },
        left => State::ChunkData(left),
    }
}

/// One more byte of the line with a chunk's size.
fn chunk_size(byte: u8, size: u64, line: SizeLine) -> State {
    use SizeLine::{Blanks, Cr, Digits, Extension, Start};
    let next = |line| State::ChunkSize { size, line };
    match (line, byte) {
        (Start | Digits, _) if byte.is_ascii_hexdigit() => {
            let digit = char::from(byte).to_digit(16).unwrap_or(0);
            let size = size.checked_mul(16).and_then(|size| size.checked_add(digit.into()));
            size.map_or(State::Blind, |size| State::ChunkSize { size, line: Digits })
        }
        (Digits | Blanks, b' ' | b'\t') => next(Blanks),
        (Digits | Blanks, b';') => next(Extension),
        (Digits | Blanks | Extension, b'\r') => next(Cr),
        (Extension, byte) if byte != b'\n' => next(Extension),
        (Cr, b'\n') if size == 0 => State::Trailer { blank: true },
        (Cr, b'\n') => State::ChunkData(size),
        (Start | Digits | Blanks | Extension | Cr, _) => State::Blind,
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Framing {
    Interim,
    Upgraded,
    Length(u64),
    Chunked,
    UntilClose,
}

impl Framing {
    fn of(head: &[u8], to_head_request: bool) -> Option<Self> {
        let head = String::from_utf8_lossy(head);
        let mut lines = head.lines().skip_while(|line| line.is_empty());
        let status: u16 = lines.next()?.strip_prefix("HTTP/1.")?.get(2..5)?.parse().ok()?;
        let mut length = None;
        let mut coding = None;
        for (name, value) in lines.filter_map(|line| line.split_once(':')) {
            if name.eq_ignore_ascii_case("content-length") {
                length = Some(value.trim().parse::<u64>().ok()?);
            } else if name.eq_ignore_ascii_case("transfer-encoding") {
                coding = Some(value.to_owned());
            }
        }
        Some(match (status, coding, length) {
            (101, _, _) => Self::Upgraded,
            (100..=199, _, _) => Self::Interim,
            (204 | 304, _, _) => Self::Length(0),
            _ if to_head_request => Self::Length(0),
            (_, Some(coding), _) if is_chunked(&coding) => Self::Chunked,
            (_, None, Some(length)) => Self::Length(length),
            (_, Some(_), _) | (_, None, None) => Self::UntilClose,
        })
    }
}

/// Whether the last of the transfer codings is `chunked`.
fn is_chunked(codings: &str) -> bool {
    codings.rsplit(',').next().is_some_and(|last| last.trim().eq_ignore_ascii_case("chunked"))
}

#[cfg(test)]
mod tests;
