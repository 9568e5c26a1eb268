//! Two servers that say their names, and the traffic that finds out who answers.

use std::io::{BufRead as _, BufReader, Read as _, Write as _};
use std::net::{TcpListener, TcpStream};
use std::time::{Duration, Instant};

/// A server that answers every request with its name, as a chat completion.
pub(crate) struct Backend {
    pub(crate) port: u16,
}

impl Backend {
    /// It ends with the test's process.
    pub(crate) fn start(name: &'static str) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").expect("a free port");
        let port = listener.local_addr().expect("an address").port();
        std::thread::spawn(move || {
            for stream in listener.incoming().filter_map(Result::ok) {
                std::thread::spawn(move || serve(&stream, name));
            }
        });
        Self { port }
    }
}

/// Answers one request; a connection that only looks whether somebody listens is no error.
fn serve(stream: &TcpStream, name: &str) -> Option<()> {
    let mut reader = BufReader::new(stream);
    let (mut line, mut length) = (String::new(), 0);
    loop {
        line.clear();
        if reader.read_line(&mut line).ok()? == 0 {
            return None;
        }
        let head = line.trim_end().to_ascii_lowercase();
        if head.is_empty() {
            break;
        }
        if let Some(value) = head.strip_prefix("content-length:") {
            length = value.trim().parse().ok()?;
        }
    }
    reader.take(length).read_to_end(&mut Vec::new()).ok()?;
    let message = format!(r#"{{"role":"assistant","content":"served by {name}"}}"#);
    let body = format!(
        r#"{{"id":"x","object":"chat.completion","created":1,"model":"m","choices":[{{"index":0,"message":{message},"finish_reason":"stop"}}],"usage":{{"prompt_tokens":1,"completion_tokens":1,"total_tokens":2}}}}"#
    );
    let head = "HTTP/1.1 200 OK\r\ncontent-type: application/json\r\nconnection: close";
    // In one piece: small ones would wait for each other.
    let answer = format!("{head}\r\ncontent-length: {}\r\n\r\n{body}", body.len());
    let mut stream = stream;
    stream.write_all(answer.as_bytes()).ok()
}

/// The key that a router may ask for.
pub(crate) const KEY: &str = "sk-only-on-loopback-0123456789";

/// Asks a router on this port once; who answered, `None` for nobody.
pub(crate) fn ask(port: u16) -> Option<char> {
    let body = r#"{"model":"m","messages":[{"role":"user","content":"hi"}]}"#;
    let url = format!("http://127.0.0.1:{port}/v1/chat/completions");
    let (status, answer, _) = post(&url, &[&format!("authorization: Bearer {KEY}")], body)?;
    let name = answer.split_once("served by ")?.1.chars().next();
    name.filter(|_| status == 200)
}

/// Posts JSON; status, body and head, `None` when nobody answers.
pub(crate) fn post(url: &str, headers: &[&str], body: &str) -> Option<(u16, String, String)> {
    let (address, path) = url.trim_start_matches("http://").split_once('/')?;
    let mut stream = TcpStream::connect(address).ok()?;
    stream.set_read_timeout(Some(Duration::from_secs(20))).ok()?;
    let headers: String = headers.iter().map(|header| format!("{header}\r\n")).collect();
    let head = format!(
        "POST /{path} HTTP/1.1\r\nhost: {address}\r\nconnection: close\r\ncontent-type: application/json"
    );
    let request = format!("{head}\r\n{headers}content-length: {}\r\n\r\n{body}", body.len());
    stream.write_all(request.as_bytes()).ok()?;
    let mut answer = String::new();
    stream.read_to_string(&mut answer).ok()?;
    let status = answer.split(' ').nth(1)?.parse().ok()?;
    let (head, body) = answer.split_once("\r\n\r\n")?;
    Some((status, body.to_owned(), head.to_ascii_lowercase()))
}

/// The share of so many requests that `a` answered. Every one must be answered.
pub(crate) fn share_of_a(port: u16, requests: u32) -> f64 {
    let of_a = (0..requests).filter(|_| ask(port).expect("an answer") == 'a').count();
    f64::from(u32::try_from(of_a).expect("few")) / f64::from(requests)
}

/// Asks until of twenty requests `a` answers a share in this range; how long that took.
pub(crate) fn until_share(port: u16, wanted: std::ops::Range<f64>) -> Duration {
    let since = Instant::now();
    loop {
        let (asked, share) = (since.elapsed(), share_of_a(port, 20));
        if wanted.contains(&share) {
            return asked;
        }
        assert!(asked < Duration::from_secs(30), "{share} of the requests for `a`, not {wanted:?}");
    }
}

/// Asks until so many in a row are answered by `name`; how long until the first of them.
pub(crate) fn until_served_by(port: u16, name: char, in_a_row: u32) -> Duration {
    let (since, mut first, mut row) = (Instant::now(), None, 0);
    while row < in_a_row {
        let asked = since.elapsed();
        assert!(asked < Duration::from_secs(20), "{name} does not answer");
        if ask(port) == Some(name) {
            first = first.or(Some(asked));
            row += 1;
        } else {
            (first, row) = (None, 0);
        }
        std::thread::sleep(Duration::from_millis(5));
    }
    first.unwrap_or_default()
}
