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

/// Follows all of one read.
fn whole_read(shadow: &mut Shadow, mut bytes: &[u8], read: u32) {
    while let Some(used) = shadow.read(bytes, read, Micros(i64::from(read))) {
        bytes = &bytes[used..];
    }
}

/// Takes a chunked body apart, `cut` bytes at a time: its data, and how it ended with how many bytes left.
fn dechunked(wire: &[u8], cut: usize) -> (Vec<u8>, Dechunked, usize) {
    let mut shadow = Shadow { state: State::CHUNK, ..Shadow::default() };
    let mut body = Vec::new();
    let mut left = wire.len();
    for piece in wire.chunks(cut) {
        match shadow.dechunk(piece, |place| body.extend_from_slice(&piece[place])) {
            Dechunked::More => left -= piece.len(),
            Dechunked::Last { used } => return (body, Dechunked::Last { used: 0 }, left - used),
            Dechunked::Broken => return (body, Dechunked::Broken, left),
        }
    }
    (body, Dechunked::More, left)
}

proptest! {
    /// Wherever the bytes are cut, the data of a chunked body comes out whole, and what follows it is left.
    #[test]
    fn a_chunked_body_is_taken_apart(
        chunks in proptest::collection::vec(proptest::collection::vec(any::<u8>(), 1..300), 0..6),
        cut in 1_usize..400,
    ) {
        let answer = Answer::Chunked(chunks.clone()).wire();
        let wire: Vec<u8> = answer.iter().map(|&(byte, _)| byte).collect();
        let heads = "HTTP/1.1 100 Continue\r\n\r\nHTTP/1.1 200 OK\r\nTransfer-Encoding: gzip, Chunked\r\n\r\n";
        let rest = "x-trailer: 1\r\n\r\n";
        let expected = (chunks.concat(), Dechunked::Last { used: 0 }, rest.len());
        prop_assert_eq!(dechunked(&wire[heads.len()..], cut), expected);
        let cut_off = &wire[heads.len()..wire.len() - rest.len() - "0\r\n".len()];
        prop_assert_eq!(dechunked(cut_off, cut), (chunks.concat(), Dechunked::More, 0));
    }

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
                whole_read(&mut shadow, &bytes, read);
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
    assert_eq!(shadow.read(b"HTTP/1.1 200 OK\n\nab", 0, Micros(5)), None);
    shadow.read(b"cd", 1, Micros(9));
    assert_eq!(shadow.claim(), Some((1, (0, Micros(5)))));
    assert_eq!(shadow.take(1, 0, 100), Some(Run { end: 2, read: 0, at: Micros(5) }));
    assert_eq!(shadow.take(1, 3, 100), Some(Run { end: 4, read: 1, at: Micros(9) }));
}

/// As hyper has it: a lone line feed, a sign, a size of 65 bits and data without its line end are no chunks.
#[test]
fn what_is_no_chunk_is_not_guessed_at() {
    for wire in [
        "3\nabc\r\n",
        "+3\r\nabc\r\n",
        "10000000000000000\r\n",
        "3\r\nabcd\r\n",
        "3;a\nb\r\n",
        " 3\r\n",
        "\r\n",
    ] {
        for cut in [1, wire.len()] {
            assert_eq!(dechunked(wire.as_bytes(), cut).1, Dechunked::Broken, "{wire:?}");
        }
    }
    for wire in ["3 \t;a=\"b\"\r\nabc\r\n", "0003\r\nabc\r\n", "03;\r\nabc\r\n"] {
        assert_eq!(dechunked(wire.as_bytes(), 2), (b"abc".to_vec(), Dechunked::More, 0), "{wire:?}");
    }
}

/// Reading stops behind the head of a chunked response, and goes on with its body by either way.
#[test]
fn the_body_of_a_chunked_response_can_be_taken_over() {
    let head = b"HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n";
    let wire = [&head[..], b"2\r\nab\r\n0\r\n", b"\r\n"].concat();
    for taken in [false, true] {
        let mut shadow = Shadow::default();
        for number in 1..3 {
            shadow.wrote(b"GET / HTTP/1.1\r\n\r\n");
            assert_eq!(shadow.read(&wire, 7, Micros(7)), Some(head.len()));
            assert_eq!(shadow.claim(), Some((number, (7, Micros(7)))));
            let mut rest = &wire[head.len()..];
            if taken {
                let mut data = Vec::new();
                let take = |place: Range<usize>| data.extend_from_slice(&rest[place]);
                let Dechunked::Last { used } = shadow.dechunk(rest, take) else {
                    panic!("the last chunk is there");
                };
                assert_eq!(data, b"ab");
                rest = &rest[used..];
            }
            assert_eq!(shadow.read(rest, 7, Micros(7)), None);
            assert_eq!(shadow.state, State::Idle);
            shadow.release(number);
        }
    }
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
