//! Both ends of `peers.py`: an upstream, and the clients in front of a gateway. The standard library alone, a
//! thread for each connection and a write for each event, so that neither end is what is measured.
//!
//! ```text
//! peer_lab source                                        prints its address
//! peer_lab load ADDRESS PREFIX flat|short|slow|whole STREAMS ANSWERS SECONDS
//! peer_lab compare ADDRESS PREFIX DIRECT latency|paced N
//! ```
//!
//! The model of a request says what comes: `flat` 2,000 events without a pause, `short` 20, `paced` 100 at
//! 50 a second, `slow` 120 at 20 a second, `whole` one JSON document. Each event carries the time at which it was
//! written. `PREFIX` stands before the model's name, and before that a path up to `/chat/completions`.
#![expect(clippy::print_stdout, reason = "the figures are what this program is for")]
#![expect(clippy::disallowed_methods, reason = "it measures time")]

use std::error::Error;
use std::io::{Read as _, Write as _};
use std::net::{Shutdown, SocketAddr, TcpListener, TcpStream};
use std::sync::atomic::{AtomicU64, Ordering};
use std::thread;
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

type Result<T> = std::result::Result<T, Box<dyn Error + Send + Sync>>;

/// Stands before the time in each event: 16 digits of µs since 1970.
const MARK: &[u8] = b"t=";
const DIGITS: usize = 16;

/// How long a connection may say nothing.
const PATIENCE: Duration = Duration::from_mins(2);

/// What the model of this name gives: events, and the pause before each.
fn shape(model: &str) -> Option<(u32, Duration)> {
    match model {
        "flat" => Some((2_000, Duration::ZERO)),
        "short" => Some((20, Duration::ZERO)),
        "paced" => Some((100, Duration::from_millis(20))),
        "slow" => Some((120, Duration::from_millis(50))),
        _ => None,
    }
}

fn main() -> Result<()> {
    let args: Vec<String> = std::env::args().skip(1).collect();
    let args: Vec<&str> = args.iter().map(String::as_str).collect();
    match args[..] {
        ["source"] => source(),
        ["load", to, prefix, model, streams, answers, seconds] => {
            let lasts = Duration::from_secs(seconds.parse()?);
            load(&Target::new(to, prefix, model)?, streams.parse()?, answers.parse()?, lasts)
        }
        ["compare", to, prefix, direct, "latency", n] => {
            latency([&Target::new(direct, "", "whole")?, &Target::new(to, prefix, "whole")?], n.parse()?)
        }
        ["compare", to, prefix, direct, "paced", n] => {
            paced([&Target::new(direct, "", "paced")?, &Target::new(to, prefix, "paced")?], n.parse()?)
        }
        _ => Err("usage: see the head of peer_lab.rs".into()),
    }
}

fn now_us() -> u64 {
    let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    u64::try_from(now.as_micros()).unwrap_or(u64::MAX)
}

/// A connection and the bytes that were read from it and not used yet.
struct Peer {
    stream: TcpStream,
    buffer: Vec<u8>,
}

impl Peer {
    fn connect(to: SocketAddr) -> Result<Self> {
        let stream = TcpStream::connect(to)?;
        Self::accepted(stream)
    }

    fn accepted(stream: TcpStream) -> Result<Self> {
        stream.set_nodelay(true)?;
        stream.set_read_timeout(Some(PATIENCE))?;
        Ok(Self { stream, buffer: Vec::new() })
    }

    /// Reads more; `false` at the end.
    fn more(&mut self) -> Result<bool> {
        let known = self.buffer.len();
        self.buffer.resize(known + (64 << 10), 0);
        let read = self.stream.read(&mut self.buffer[known..]);
        self.buffer.truncate(known + read.as_ref().copied().unwrap_or(0));
        Ok(read? > 0)
    }

    /// A message's head; `None` where the peer closes instead.
    fn head(&mut self) -> Result<Option<String>> {
        loop {
            if let Some(end) = find(&self.buffer, b"\r\n\r\n") {
                let head: Vec<u8> = self.buffer.drain(..end + 4).collect();
                return Ok(Some(String::from_utf8(head)?.to_ascii_lowercase()));
            }
            if !self.more()? {
                return if self.buffer.is_empty() { Ok(None) } else { Err("closed inside a head".into()) };
            }
        }
    }

    /// A message's body, in pieces as they come.
    fn body(&mut self, head: &str, mut piece: impl FnMut(&[u8])) -> Result<()> {
        let value = |name: &str| head.lines().find_map(|line| line.strip_prefix(name)).map(str::trim);
        if value("transfer-encoding:") == Some("chunked") {
            return self.chunks(&mut piece);
        }
        let Some(length) = value("content-length:") else {
            loop {
                piece(&std::mem::take(&mut self.buffer));
                if !self.more()? {
                    return Ok(());
                }
            }
        };
        self.exactly(length.parse()?, &mut piece)
    }

    fn chunks(&mut self, piece: &mut dyn FnMut(&[u8])) -> Result<()> {
        loop {
            let end = loop {
                if let Some(end) = find(&self.buffer, b"\r\n") {
                    break end;
                }
                if !self.more()? {
                    return Err("closed inside a chunk's head".into());
                }
            };
            let line: Vec<u8> = self.buffer.drain(..end + 2).collect();
            let size = std::str::from_utf8(&line)?.trim().split(';').next().unwrap_or_default().to_owned();
            let size = usize::from_str_radix(&size, 16)?;
            self.exactly(size, piece)?;
            self.exactly(2, &mut |_| {})?;
            if size == 0 {
                return Ok(());
            }
        }
    }

    fn exactly(&mut self, mut left: usize, piece: &mut dyn FnMut(&[u8])) -> Result<()> {
        while left > 0 {
            let taken = left.min(self.buffer.len());
            piece(&self.buffer[..taken]);
            self.buffer.drain(..taken);
            left -= taken;
            if left > 0 && !self.more()? {
                return Err("closed inside a body".into());
            }
        }
        Ok(())
    }
}

fn find(text: &[u8], word: &[u8]) -> Option<usize> {
    text.windows(word.len()).position(|window| window == word)
}

/// Answers until it is ended.
fn source() -> Result<()> {
    let listener = TcpListener::bind("127.0.0.1:0")?;
    println!("{}", listener.local_addr()?);
    for stream in listener.incoming() {
        let stream = stream?;
        thread::spawn(move || {
            // A gateway that leaves is no news.
            let _ = Peer::accepted(stream).and_then(|mut peer| answer(&mut peer));
        });
    }
    Ok(())
}

fn answer(peer: &mut Peer) -> Result<()> {
    while let Some(head) = peer.head()? {
        let mut body = Vec::new();
        peer.body(&head, |piece| body.extend_from_slice(piece))?;
        let body: String = String::from_utf8(body)?.split_whitespace().collect();
        let model = body.split("\"model\":\"").nth(1).and_then(|rest| rest.split('"').next());
        let stream = &mut peer.stream;
        match model.and_then(|model| Some((model, shape(model)?))) {
            Some((model, (events, pause))) => stream_events(stream, model, events, pause)?,
            None => whole(stream)?,
        }
    }
    Ok(())
}

fn stream_events(stream: &mut TcpStream, model: &str, events: u32, pause: Duration) -> Result<()> {
    let head = "HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\ntransfer-encoding: chunked\r\n\r\n";
    stream.write_all(head.as_bytes())?;
    let start = Instant::now();
    for number in 0..events {
        let due = start + pause * number;
        thread::sleep(due.saturating_duration_since(Instant::now()));
        if pause.is_zero() {
            thread::yield_now(); // to the other streams, so that reads do not take many events at once
        }
        let last = number + 1 == events;
        let text = format!("t={:016} ", now_us());
        let delta = if last { "\"content\"" } else { "\"reasoning_content\"" };
        let reason = if last { "\"stop\"" } else { "null" };
        chunk(
            stream,
            &format!(
                "data: {{\"id\":\"chatcmpl-1\",\"object\":\"chat.completion.chunk\",\"created\":1764480000,\"model\":\"{model}\",\
                 \"system_fingerprint\":\"fp_44709d6fcb\",\"choices\":[{{\"index\":0,\"delta\":{{{delta}:\"{text}\"}},\
                 \"logprobs\":null,\"finish_reason\":{reason}}}]}}\n\n"
            ),
        )?;
    }
    chunk(stream, "data: [DONE]\n\n")?;
    Ok(stream.write_all(b"0\r\n\r\n")?)
}

fn chunk(stream: &mut TcpStream, text: &str) -> Result<()> {
    Ok(stream.write_all(format!("{:x}\r\n{text}\r\n", text.len()).as_bytes())?)
}

fn whole(stream: &mut TcpStream) -> Result<()> {
    let body = format!(
        "{{\"id\":\"chatcmpl-1\",\"object\":\"chat.completion\",\"created\":1764480000,\"model\":\"whole\",\"choices\":[{{\"index\":0,\
         \"message\":{{\"role\":\"assistant\",\"content\":\"{}\"}},\"logprobs\":null,\"finish_reason\":\"stop\"}}],\
         \"usage\":{{\"prompt_tokens\":9,\"completion_tokens\":200,\"total_tokens\":209}}}}",
        "word ".repeat(200)
    );
    let length = body.len();
    let head =
        format!("HTTP/1.1 200 OK\r\ncontent-type: application/json\r\ncontent-length: {length}\r\n\r\n");
    Ok(stream.write_all((head + &body).as_bytes())?)
}

/// Whom to ask, and for what.
struct Target {
    to: SocketAddr,
    request: Vec<u8>,
}

/// What one answer brought.
#[derive(Default)]
struct Got {
    events: u64,
    /// Per event: from the source's write to our read, µs.
    late: Vec<u64>,
}

impl Target {
    fn new(to: &str, prefix: &str, model: &str) -> Result<Self> {
        let streamed = shape(model).is_some();
        let (path, prefix) = prefix.split_once(' ').unwrap_or(("/v1", prefix));
        let body = format!(
            "{{\"model\":\"{prefix}{model}\",\"stream\":{streamed},\"messages\":[{{\"role\":\"user\",\"content\":\"{}\"}}]}}",
            "why ".repeat(250)
        );
        let request = format!(
            "POST {path}/chat/completions HTTP/1.1\r\nhost: {to}\r\ncontent-type: application/json\r\n\
             authorization: Bearer sk-none\r\ncontent-length: {}\r\n\r\n{body}",
            body.len()
        );
        Ok(Self { to: to.parse()?, request: request.into_bytes() })
    }

    /// Asks once and reads the answer to its end.
    fn ask(&self, peer: &mut Peer) -> Result<Got> {
        peer.stream.write_all(&self.request)?;
        let head = peer.head()?.ok_or("closed without an answer")?;
        if head.split(' ').nth(1) != Some("200") {
            return Err(format!("answered {}", head.lines().next().unwrap_or_default()).into());
        }
        let (mut got, mut begun) = (Got::default(), Vec::new());
        peer.body(&head, |piece| {
            begun.extend_from_slice(piece);
            let used = got.take(&begun);
            begun.drain(..used);
        })?;
        if head.contains("connection: close") {
            peer.stream.shutdown(Shutdown::Both)?;
            *peer = Peer::connect(self.to)?;
        }
        Ok(got)
    }
}

impl Got {
    /// Counts the events in these bytes; returns how many bytes are done with.
    fn take(&mut self, bytes: &[u8]) -> usize {
        let now = now_us();
        let mut used = 0;
        while let Some(at) = find(&bytes[used..], MARK) {
            let Some(digits) = bytes.get(used + at + 2..used + at + 2 + DIGITS) else { return used + at };
            if let Some(sent) = std::str::from_utf8(digits).ok().and_then(|digits| digits.parse::<u64>().ok())
            {
                self.events += 1;
                self.late.push(now.saturating_sub(sent));
            }
            used += at + 2;
        }
        bytes.len().saturating_sub(1).max(used)
    }
}

/// Asks from so many connections at once, for so many answers in all or so long.
fn load(target: &Target, streams: usize, answers: u64, lasts: Duration) -> Result<()> {
    let (start, asked, events) = (Instant::now(), AtomicU64::new(0), AtomicU64::new(0));
    let one = || -> Result<()> {
        let mut peer = Peer::connect(target.to)?;
        while start.elapsed() < lasts && asked.fetch_add(1, Ordering::Relaxed) < answers {
            events.fetch_add(target.ask(&mut peer)?.events, Ordering::Relaxed);
        }
        Ok(())
    };
    thread::scope(|scope| -> Result<()> {
        let threads: Vec<_> = (0..streams).map(|_| scope.spawn(one)).collect();
        threads.into_iter().try_for_each(|thread| thread.join().map_err(|_| "a client broke")?)
    })?;
    let answers = asked.into_inner().min(answers);
    println!(
        "{{\"answers\":{answers},\"events\":{},\"seconds\":{}}}",
        events.into_inner(),
        start.elapsed().as_secs_f64()
    );
    Ok(())
}

/// One request after the other, by turns directly and through the gateway.
fn latency(targets: [&Target; 2], n: usize) -> Result<()> {
    let mut peers = [Peer::connect(targets[0].to)?, Peer::connect(targets[1].to)?];
    let mut took = [Vec::new(), Vec::new()];
    for round in 0..n + 20 {
        for way in [round % 2, (round + 1) % 2] {
            let start = Instant::now();
            targets[way].ask(&mut peers[way])?;
            if round >= 20 {
                took[way].push(u64::try_from(start.elapsed().as_micros())?);
            }
        }
    }
    report(took)
}

/// So many paced streams directly and as many through the gateway, all at once.
fn paced(targets: [&Target; 2], n: usize) -> Result<()> {
    let mut late = [Vec::new(), Vec::new()];
    thread::scope(|scope| -> Result<()> {
        let mut threads = Vec::new();
        for way in (0..2 * n).map(|number| number % 2) {
            let target = targets[way];
            threads.push((way, scope.spawn(move || target.ask(&mut Peer::connect(target.to)?))));
            thread::sleep(Duration::from_millis(7)); // not all at the same moment
        }
        for (way, thread) in threads {
            late[way].extend(thread.join().map_err(|_| "a client broke")??.late);
        }
        Ok(())
    })?;
    report(late)
}

/// The medians of both ways, µs.
fn report(mut both: [Vec<u64>; 2]) -> Result<()> {
    let mut median = |way: usize| {
        both[way].sort_unstable();
        both[way].get(both[way].len() / 2).copied().ok_or("nothing came")
    };
    println!("{{\"direct_us\":{},\"through_us\":{}}}", median(0)?, median(1)?);
    Ok(())
}
