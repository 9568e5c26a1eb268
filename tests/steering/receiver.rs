//! Somebody who takes webhooks, and says no to the first; and somebody who never says anything.

use std::io::{BufRead as _, BufReader, Read as _, Write as _};
use std::net::{TcpListener, TcpStream};
use std::sync::mpsc::{Receiver, channel};

/// What came: the signature's header and the body.
pub(crate) struct Received {
    pub(crate) signature: String,
    pub(crate) body: String,
}

/// Where it listens, and what it has taken.
pub(crate) fn receiver() -> (u16, Receiver<Received>) {
    let listener = TcpListener::bind("127.0.0.1:0").expect("a free port");
    let port = listener.local_addr().expect("an address").port();
    let (taken, takes) = channel();
    std::thread::spawn(move || {
        let mut refused = false;
        for stream in listener.incoming().filter_map(Result::ok) {
            let Some(received) = receive(&stream) else { continue };
            let status = if refused { "204 No Content" } else { "503 Busy" };
            let answer = format!("HTTP/1.1 {status}\r\nconnection: close\r\ncontent-length: 0\r\n\r\n");
            let mut stream = &stream;
            if stream.write_all(answer.as_bytes()).is_ok() && refused && taken.send(received).is_err() {
                return;
            }
            refused = true;
        }
    });
    (port, takes)
}

/// Where somebody takes connections and never answers.
pub(crate) fn black_hole() -> u16 {
    let listener = TcpListener::bind("127.0.0.1:0").expect("a free port");
    let port = listener.local_addr().expect("an address").port();
    std::thread::spawn(move || {
        let mut taken = Vec::new();
        for stream in listener.incoming() {
            taken.push(stream); // never closed
        }
    });
    port
}

fn receive(stream: &TcpStream) -> Option<Received> {
    let mut reader = BufReader::new(stream);
    let (mut line, mut length, mut signature) = (String::new(), 0, String::new());
    loop {
        line.clear();
        reader.read_line(&mut line).ok().filter(|read| *read > 0)?;
        match line.trim_end().split_once(": ") {
            Some(("content-length", value)) => length = value.parse().ok()?,
            Some(("x-sseismo-signature", value)) => value.clone_into(&mut signature),
            None if line.trim_end().is_empty() => break,
            Some(_) | None => {}
        }
    }
    let mut body = String::new();
    reader.take(length).read_to_string(&mut body).ok()?;
    Some(Received { signature, body })
}
