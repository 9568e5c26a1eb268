//! As little HTTP as these tests need: one request a connection, to loopback.

use std::io::{BufRead as _, BufReader, Read as _, Write as _};
use std::net::TcpStream;
use std::time::Duration;

/// Longest wait for an answer or an event.
const PATIENCE: Duration = Duration::from_secs(20);

fn open(url: &str, headers: &[&str]) -> BufReader<TcpStream> {
    let (address, path) = url.trim_start_matches("http://").split_once('/').expect("a path");
    let stream = TcpStream::connect(address).expect("somebody listens");
    stream.set_read_timeout(Some(PATIENCE)).expect("a timeout");
    let headers: String = headers.iter().map(|header| format!("{header}\r\n")).collect();
    // HTTP/1.0: the answer ends with the connection and is not chunked.
    write!(&stream, "GET /{path} HTTP/1.0\r\nHost: {address}\r\n{headers}\r\n").expect("sent");
    BufReader::new(stream)
}

/// Status and body.
pub(crate) fn get(url: &str, headers: &[&str]) -> (u16, String) {
    let mut answer = String::new();
    open(url, headers).read_to_string(&mut answer).expect("an answer");
    let (head, body) = answer.split_once("\r\n\r\n").expect("a head");
    let status = head.split(' ').nth(1).and_then(|status| status.parse().ok()).expect("a status");
    (status, body.to_owned())
}

/// One server-sent event.
#[derive(Debug, Default)]
pub(crate) struct Event {
    pub(crate) id: String,
    pub(crate) name: String,
    pub(crate) data: String,
}

/// A stream of events.
pub(crate) struct Events(BufReader<TcpStream>);

impl Events {
    pub(crate) fn open(url: &str, after: Option<&str>) -> Self {
        let after = after.map(|id| format!("Last-Event-ID: {id}"));
        let mut stream = open(url, &after.iter().map(String::as_str).collect::<Vec<_>>());
        let mut line = String::new();
        while stream.read_line(&mut line).expect("a head") > 2 {
            line.clear();
        }
        Self(stream)
    }

    /// The next event that is wanted.
    pub(crate) fn find(&mut self, wanted: impl Fn(&Event) -> bool) -> Event {
        let mut event = Event::default();
        loop {
            let mut line = String::new();
            assert!(self.0.read_line(&mut line).expect("an event in time") > 0, "the stream ended");
            match line.trim_end().split_once(": ") {
                Some(("id", id)) => id.clone_into(&mut event.id),
                Some(("event", name)) => name.clone_into(&mut event.name),
                Some(("data", data)) => data.clone_into(&mut event.data),
                Some(_) => {}
                None if wanted(&event) => return event,
                None => event = Event::default(),
            }
        }
    }
}
