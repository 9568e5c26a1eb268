//! A paced source that batches on command, and a hop that holds bytes without saying so.
//!
//! Both leave the same bytes at the same times on our socket. What differs is who held them.

use std::io::{BufRead as _, BufReader, Read as _, Write as _};
use std::net::{Shutdown, TcpListener, TcpStream};
use std::sync::{Arc, Mutex};
use std::thread::{scope, sleep, spawn};
use std::time::{Duration, Instant};

/// Between two events of a smooth stream; 60 of them fill one hold.
const PACE: Duration = Duration::from_millis(25);
/// How long the hop holds, and how long a batching source is silent.
pub(crate) const HOLD: Duration = Duration::from_millis(1_500);
const BATCH: usize = 60;
const EVENTS: usize = 4 * BATCH;

/// What the source speaks.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Speaks {
    /// Chat Completions: no clock per event.
    Chat,
    /// Ollama's own API: each event carries the time at which it was generated.
    Ollama,
}

/// What the source does.
#[derive(Clone, Copy)]
pub(crate) struct Source {
    pub(crate) speaks: Speaks,
    /// Sixty events at once after 1.5 s of silence, else one each 25 ms.
    pub(crate) batches: bool,
    /// A comment each 300 ms.
    pub(crate) keepalives: bool,
    /// Say in a header that a proxy was passed.
    pub(crate) via: bool,
}

impl Source {
    /// Serves on loopback until the test ends; the URL of its API.
    pub(crate) fn url(self, held: bool) -> String {
        let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
        let mut port = listener.local_addr().expect("an address").port();
        spawn(move || {
            for stream in listener.incoming().flatten() {
                spawn(move || self.answer(&stream));
            }
        });
        if held {
            port = holding(port);
        }
        let path = if self.speaks == Speaks::Chat { "/v1/chat/completions" } else { "/api/chat" };
        format!("http://127.0.0.1:{port}{path}")
    }

    /// Reads one request and streams the answer, chunked.
    fn answer(self, stream: &TcpStream) -> Option<()> {
        stream.set_nodelay(true).ok()?;
        let mut reader = BufReader::new(stream);
        let mut length = 0;
        loop {
            let mut line = String::new();
            reader.read_line(&mut line).ok()?;
            let line = line.trim().to_ascii_lowercase();
            match line.split_once(':') {
                Some(("content-length", value)) => length = value.trim().parse().ok()?,
                _ if line.is_empty() => break,
                _ => {}
            }
        }
        reader.read_exact(&mut vec![0; length]).ok()?;
        let kind = if self.speaks == Speaks::Chat { "text/event-stream" } else { "application/x-ndjson" };
        let via = if self.via { "via: 1.1 holder\r\n" } else { "" };
        let head =
            format!("HTTP/1.1 200 OK\r\ncontent-type: {kind}\r\n{via}transfer-encoding: chunked\r\n\r\n");
        let writer = Mutex::new(stream);
        write(&writer, head.as_bytes())?;
        let start = Instant::now();
        scope(|scope| {
            if self.keepalives {
                scope.spawn(|| {
                    while start.elapsed() < HOLD * 4 {
                        sleep(Duration::from_millis(300));
                        chunk(&writer, ": keep-alive\n\n")?;
                    }
                    Some(())
                });
            }
            self.events(&writer, start)
        })?;
        if self.speaks == Speaks::Chat {
            chunk(&writer, "data: [DONE]\n\n")?;
        }
        write(&writer, b"0\r\n\r\n")
    }

    fn events(self, writer: &Mutex<&TcpStream>, start: Instant) -> Option<()> {
        let together = if self.batches { BATCH } else { 1 };
        for first in (0..EVENTS).step_by(together) {
            sleep(if self.batches { HOLD } else { PACE });
            let made = start.elapsed();
            let events: String = (first..first + together).map(|number| self.event(number, made)).collect();
            chunk(writer, &events)?;
        }
        Some(())
    }

    fn event(self, number: usize, made: Duration) -> String {
        let last = number + 1 == EVENTS;
        match self.speaks {
            Speaks::Chat => {
                let reason = if last { "\"stop\"" } else { "null" };
                format!(
                    "data: {{\"id\":\"c\",\"object\":\"chat.completion.chunk\",\"created\":1700000000,\"model\":\"m\",\
                     \"choices\":[{{\"index\":0,\"delta\":{{\"content\":\"word \"}},\"finish_reason\":{reason}}}]}}\n\n"
                )
            }
            Speaks::Ollama => format!(
                "{{\"model\":\"m\",\"created_at\":\"2026-01-01T00:00:{:02}.{:06}Z\",\
                 \"message\":{{\"role\":\"assistant\",\"content\":\"word \"}},\"done\":{last}}}\n",
                made.as_secs(),
                made.subsec_micros()
            ),
        }
    }
}

fn chunk(writer: &Mutex<&TcpStream>, text: &str) -> Option<()> {
    write(writer, format!("{:x}\r\n{text}\r\n", text.len()).as_bytes())
}

/// One write, so that the kernel sees what belongs together at once.
fn write(writer: &Mutex<&TcpStream>, bytes: &[u8]) -> Option<()> {
    let mut stream: &TcpStream = *writer.lock().ok()?;
    stream.write_all(bytes).ok()
}

/// A hop that passes requests at once and lets answers through each 1.5 s only; its port.
fn holding(to: u16) -> u16 {
    let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
    let port = listener.local_addr().expect("an address").port();
    spawn(move || {
        for client in listener.incoming().flatten() {
            spawn(move || hold(&client, to));
        }
    });
    port
}

fn hold(client: &TcpStream, to: u16) -> Option<()> {
    let upstream = TcpStream::connect(("127.0.0.1", to)).ok()?;
    client.set_nodelay(true).ok()?;
    let (mut requests, mut forward) = (client.try_clone().ok()?, upstream.try_clone().ok()?);
    spawn(move || std::io::copy(&mut requests, &mut forward));
    let held = Arc::new(Mutex::new(Some(Vec::new())));
    let filling = Arc::clone(&held);
    let (mut answers, mut out) = (upstream, client);
    spawn(move || {
        let mut buffer = [0; 4_096];
        while let Ok(n @ 1..) = answers.read(&mut buffer) {
            filling.lock().ok()?.as_mut()?.extend_from_slice(&buffer[..n]);
        }
        Some(())
    });
    // The last bytes leave with the last release; nothing comes for two holds then, and it ends.
    let mut quiet = 0;
    while quiet < 2 {
        sleep(HOLD);
        let bytes = std::mem::take(held.lock().ok()?.as_mut()?);
        quiet = if bytes.is_empty() { quiet + 1 } else { 0 };
        out.write_all(&bytes).ok()?;
    }
    *held.lock().ok()? = None;
    client.shutdown(Shutdown::Both).ok()
}
