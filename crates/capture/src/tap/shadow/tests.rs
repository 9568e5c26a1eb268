use proptest::prelude::*;

use super::*;

/// One response of a scripted connection.
#[derive(Clone, Debug)]
enum Answer {
    Length(Vec<u8>),
    Chunked(Vec<Vec<u8>>),
    Empty(u16),
    ToHead,
}

impl Answer {
    fn request(&self) -> &'static [u8] {
        if matches!(self, Self::ToHead) { b"HEAD /v1 HTTP/1.1\r\n\r\n" } else { b"POST /v1 HTTP/1.1\r\n\r\n" }
    }

    /// The bytes on the wire, and for each of them the body offset that it carries.
    fn wire(&self) -> Vec<(u8, Option<u64>)> {
        let mut wire = Vec::new();
        let mut body = 0;
        let frame = |bytes: &[u8], wire: &mut Vec<(u8, Option<u64>)>| {
            wire.extend(bytes.iter().map(|&byte| (byte, None)));
        };
        match self {
            Self::Length(bytes) => {
                let head =
                    format!("HTTP/1.1 200 OK\r\ncontent-LENGTH:  {} \r\nx: \u{e9}\r\n\r\n", bytes.len());
                frame(head.as_bytes(), &mut wire);
                carry(bytes, &mut body, &mut wire);
            }
            Self::Chunked(chunks) => {
                frame(b"HTTP/1.1 100 Continue\r\n\r\n", &mut wire);
                frame(b"HTTP/1.1 200 OK\r\nTransfer-Encoding: gzip, Chunked\r\n\r\n", &mut wire);
                for chunk in chunks.iter().filter(|chunk| !chunk.is_empty()) {
                    frame(format!("{:X};ext=\"1\"\r\n", chunk.len()).as_bytes(), &mut wire);
                    carry(chunk, &mut body, &mut wire);
                    frame(b"\r\n", &mut wire);
                }
                frame(b"0\r\nx-trailer: 1\r\n\r\n", &mut wire);
            }
            Self::Empty(status) => {
                frame(format!("HTTP/1.1 {status} No\r\n\r\n").as_bytes(), &mut wire);
            }
            Self::ToHead => frame(b"HTTP/1.1 200 OK\r\ncontent-length: 77\r\n\r\n", &mut wire),
        }
        wire
    }
}

fn carry(bytes: &[u8], body: &mut u64, wire: &mut Vec<(u8, Option<u64>)>) {
    for &byte in bytes {
        wire.push((byte, Some(*body)));
        *body += 1;
    }
}

fn answer() -> impl Strategy<Value = Answer> {
    let bytes = || proptest::collection::vec(any::<u8>(), 0..40);
    prop_oneof![
        bytes().prop_map(Answer::Length),
        proptest::collection::vec(bytes(), 0..6).prop_map(Answer::Chunked),
        prop_oneof![Just(204), Just(304)].prop_map(Answer::Empty),
        Just(Answer::ToHead),
    ]
}

proptest! {
    /// Wherever the bytes are cut into reads, each body byte is tied to the read that brought it, over
    /// any sequence of responses on one connection.
    #[test]
    fn every_body_byte_is_tied_to_its_read(
        answers in proptest::collection::vec(answer(), 1..5),
        cuts in proptest::collection::vec(1_usize..30, 1..60),
    ) {
        let mut shadow = Shadow::default();
        let mut read = 0;
        let mut cuts = cuts.iter().cycle();
        for (number, answer) in (1..).zip(&answers) {
            shadow.wrote(answer.request());
            shadow.wrote(b"HEAD of a body that merely looks like a request");
            let wire = answer.wire();
            let mut expected = Vec::new();
            let mut rest = &wire[..];
            while !rest.is_empty() {
                let (now, later) = rest.split_at((*cuts.next().expect("endless")).min(rest.len()));
                let bytes: Vec<u8> = now.iter().map(|&(byte, _)| byte).collect();
                shadow.read(&bytes, read, Micros(i64::from(read)));
                expected.extend(now.iter().filter_map(|&(_, offset)| Some((offset?, read))));
                read += 1;
                rest = later;
            }
            prop_assert_eq!(shadow.claim().map(|(number, _)| number), Some(number));
            let total = expected.len() as u64;
            for (offset, read) in expected {
                let run = shadow.take(number, offset, offset + 1);
                prop_assert_eq!(run, Some(Run { end: offset + 1, read, at: Micros(i64::from(read)) }));
            }
            prop_assert_eq!(shadow.take(number, total, u64::MAX), None);
            shadow.release(number);
        }
        prop_assert_eq!(shadow.state, State::Idle);
    }

    /// Any bytes at all are survived.
    #[test]
    fn noise_does_not_panic(pieces in proptest::collection::vec(proptest::collection::vec(any::<u8>(), 0..30), 0..30)) {
        let mut shadow = Shadow::default();
        shadow.wrote(b"GET / HTTP/1.1\r\n\r\n");
        for (read, piece) in (0..).zip(&pieces) {
            shadow.read(piece, read, Micros(0));
        }
    }
}

#[test]
fn a_close_delimited_body_runs_to_the_end() {
    let mut shadow = Shadow::default();
    shadow.wrote(b"GET / HTTP/1.1\r\n\r\n");
    shadow.read(b"HTTP/1.1 200 OK\n\nab", 0, Micros(5));
    shadow.read(b"cd", 1, Micros(9));
    assert_eq!(shadow.claim(), Some((1, (0, Micros(5)))));
    assert_eq!(shadow.take(1, 0, 100), Some(Run { end: 2, read: 0, at: Micros(5) }));
    assert_eq!(shadow.take(1, 3, 100), Some(Run { end: 4, read: 1, at: Micros(9) }));
}

#[test]
fn two_waiting_responses_are_not_guessed_at() {
    let mut shadow = Shadow::default();
    for _ in 0..2 {
        shadow.wrote(b"GET / HTTP/1.1\r\n\r\n");
        shadow.read(b"HTTP/1.1 200 OK\r\ncontent-length: 1\r\n\r\nx", 0, Micros(0));
    }
    assert_eq!((shadow.claim(), shadow.claim()), (None, None));
    shadow.wrote(b"GET / HTTP/1.1\r\n\r\n");
    shadow.read(b"HTTP/1.1 200 OK\r\ncontent-length: 1\r\n\r\nx", 1, Micros(0));
    assert_eq!(shadow.claim(), Some((3, (1, Micros(0)))));
}

#[test]
fn bytes_that_nobody_asked_for_blind_the_shadow() {
    let mut shadow = Shadow::default();
    shadow.read(b"HTTP/1.1 200 OK\r\ncontent-length: 1\r\n\r\nx", 0, Micros(0));
    assert_eq!(shadow.state, State::Blind);
    assert_eq!(shadow.claim(), None);
}
