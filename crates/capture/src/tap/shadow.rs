//! A shadow of HTTP/1.1's framing: which socket read brought which byte of a response body.
//!
//! In: the response bytes of one connection, above TLS, each piece with the read that completed it.
//! Out: [`Run`]s, the body's bytes grouped by read.
//!
//! hyper hands out body bytes without saying where they came from, so the same bytes are followed a
//! second time, just far enough to know where each body starts, where its chunks lie and where it ends.
//! The rules are those of RFC 9112 §6.3 as hyper applies them. What the shadow does not understand makes
//! it blind for the rest of the connection (attribution `none`), never wrong.

use std::collections::VecDeque;

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
        digits: u8,
        extension: bool,
    },
    ChunkData(u64),
    ChunkEnd,
    /// Trailer lines; `blank` while the current line is empty.
    Trailer {
        blank: bool,
    },
    UntilClose,
    Blind,
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

    /// Bytes of a response came, completed by `read` at `at`.
    pub(crate) fn read(&mut self, mut bytes: &[u8], read: u32, at: Micros) {
        while !bytes.is_empty() {
            let used = self.step(bytes, read, at);
            bytes = &bytes[used..];
        }
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
                self.state = match left - n as u64 {
                    0 => State::ChunkEnd,
                    left => State::ChunkData(left),
                };
                n
            }
            State::UntilClose => self.body(bytes, u64::MAX, read, at),
            State::ChunkSize { size, digits, extension } => {
                self.state = chunk_size(bytes[0], size, digits, extension);
                1
            }
            State::ChunkEnd => {
                if bytes[0] == b'\n' {
                    self.state = State::ChunkSize { size: 0, digits: 0, extension: false };
                } else if bytes[0] != b'\r' {
                    self.state = State::Blind;
                }
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
            Framing::Chunked => State::ChunkSize { size: 0, digits: 0, extension: false },
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

fn chunk_size(byte: u8, size: u64, digits: u8, extension: bool) -> State {
    let digit = char::from(byte).to_digit(16).map(u64::from);
    match (byte, digit) {
        (b'\n', _) if digits == 0 => State::Blind,
        (b'\n', _) if size == 0 => State::Trailer { blank: true },
        (b'\n', _) => State::ChunkData(size),
        (b'\r', _) => State::ChunkSize { size, digits, extension },
        (b';' | b' ' | b'\t', _) => State::ChunkSize { size, digits, extension: true },
        _ if extension => State::ChunkSize { size, digits, extension },
        (_, Some(digit)) if digits < 16 => {
            State::ChunkSize { size: (size << 4) | digit, digits: digits + 1, extension }
        }
        _ => State::Blind,
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
                coding = Some(value.trim().to_ascii_lowercase());
            }
        }
        Some(match (status, coding, length) {
            (101, _, _) => Self::Upgraded,
            (100..=199, _, _) => Self::Interim,
            (204 | 304, _, _) => Self::Length(0),
            _ if to_head_request => Self::Length(0),
            (_, Some(coding), _) if coding.ends_with("chunked") => Self::Chunked,
            (_, None, Some(length)) => Self::Length(length),
            (_, Some(_), _) | (_, None, None) => Self::UntilClose,
        })
    }
}

#[cfg(test)]
mod tests;
