//! Laws of the decoder, and the comparison with `eventsource-stream` 0.2.3.

use std::convert::Infallible;
use std::io::Write as _;
use std::panic::{AssertUnwindSafe, catch_unwind};

use eventsource_stream::Eventsource;
use futures_util::{FutureExt, StreamExt, stream};
use proptest::prelude::*;

use super::*;
use crate::budget::BUDGET;

/// A frame that outlives its bytes.
#[derive(Clone, Debug, PartialEq)]
struct Kept {
    comment: bool,
    name: String,
    data: String,
    bytes: Range<u64>,
    reads: (u32, u32),
    invalid: bool,
}

fn keep(frame: Frame<'_>) -> Kept {
    let (comment, name, data) = match frame.body {
        Body::Event { name, data } => (false, name.into_owned(), data.into_owned()),
        Body::Comment(text) => (true, String::new(), text.into_owned()),
    };
    let reads = (frame.first_read, frame.last_read);
    Kept { comment, name, data, bytes: frame.bytes, reads, invalid: frame.invalid_utf8 }
}

/// The frames of `chunks`, one read each, and the length of the tail.
fn decode<'a>(chunks: impl IntoIterator<Item = &'a [u8]>) -> (Vec<Kept>, u64) {
    let mut decoder = Decoder::new(&BUDGET);
    let mut frames = Vec::new();
    for (read, bytes) in (0..).zip(chunks) {
        decoder.push(Chunk { bytes, read, at: None }, |frame| frames.push(keep(frame))).unwrap();
    }
    let tail = decoder.finish(|frame| frames.push(keep(frame)));
    (frames, tail)
}

fn data<'a>(chunks: impl IntoIterator<Item = &'a [u8]>) -> Vec<String> {
    decode(chunks).0.into_iter().filter(|frame| !frame.comment).map(|frame| frame.data).collect()
}

/// What `eventsource-stream` makes of the same chunks: name and data, errors left out.
fn oracle<'a>(chunks: impl IntoIterator<Item = &'a [u8]>) -> Vec<(String, String)> {
    let chunks: Vec<Result<Vec<u8>, Infallible>> =
        chunks.into_iter().map(|chunk| Ok(chunk.to_vec())).collect();
    let events =
        stream::iter(chunks).eventsource().collect::<Vec<_>>().now_or_never().expect("nothing to wait for");
    events.into_iter().filter_map(Result::ok).map(|event| (event.event, event.data)).collect()
}

fn cut<'a>(bytes: &'a [u8], cuts: &[prop::sample::Index]) -> Vec<&'a [u8]> {
    let mut places: Vec<usize> = cuts.iter().map(|cut| cut.index(bytes.len() + 1)).collect();
    places.sort_unstable();
    let mut from = 0;
    places
        .into_iter()
        .chain([bytes.len()])
        .map(|to| {
            let piece = &bytes[from..to];
            from = to;
            piece
        })
        .collect()
}

/// Number of the piece that holds byte `place`.
fn read_of(pieces: &[&[u8]], place: u64) -> u32 {
    let mut end = 0;
    let read = pieces.iter().position(|piece| {
        end += piece.len() as u64;
        place < end
    });
    u32::try_from(read.unwrap()).unwrap()
}

fn anything() -> impl Strategy<Value = Vec<u8>> {
    let piece = prop_oneof![
        prop::sample::select(vec![
            &b"data"[..],
            b"data: x",
            b"data:y",
            b"event: e",
            b"event",
            b"id: 1",
            b": ping",
            b":",
            b" ",
            b"\n",
            b"\n\n",
            b"\r",
            b"\r\n",
            b"\r\n\r\n",
            b"\xEF\xBB\xBF",
            b"\xEF",
            b"\xBB",
            b"\xBF",
            b"\xFF",
            b"\xC3\xA4",
            b"\xC3",
        ])
        .prop_map(<[u8]>::to_vec),
    ];
    prop::collection::vec(piece, 0..24).prop_map(|pieces| pieces.concat())
}

/// Lines that both decoders understand: UTF-8, ended by LF or CRLF.
fn well_formed() -> impl Strategy<Value = Vec<u8>> {
    let line = prop_oneof![
        4 => "data: ?[a-zä€:{}\" ]{0,8}",
        2 => "event: ?[a-z.]{0,6}",
        1 => Just("data".to_owned()),
        1 => Just("event".to_owned()),
        1 => ": ?[a-zä]{0,6}",
        1 => "[b-d]{1,3}: ?[a-z]{0,3}",
        5 => Just(String::new()),
    ];
    let ended = (line, any::<bool>()).prop_map(|(line, crlf)| line + if crlf { "\r\n" } else { "\n" });
    prop::collection::vec(ended, 0..20).prop_map(|lines| lines.concat().into_bytes())
}

proptest! {
    /// Frames do not depend on where the bytes are cut; reads are those of a frame's first and last byte; and
    /// only a cut inside a CRLF shortens a range, by the LF that came later.
    #[test]
    fn frames_do_not_depend_on_cuts(bytes in anything(), cuts in prop::collection::vec(any::<prop::sample::Index>(), 0..8)) {
        let pieces = cut(&bytes, &cuts);
        let (whole, whole_tail) = decode([bytes.as_slice()]);
        let (frames, tail) = decode(pieces.iter().copied());
        prop_assert_eq!(tail, whole_tail);
        prop_assert_eq!(frames.len(), whole.len());
        for (frame, whole) in frames.iter().zip(&whole) {
            prop_assert_eq!(frame.reads, (read_of(&pieces, frame.bytes.start), read_of(&pieces, frame.bytes.end - 1)));
            if frame.bytes.end != whole.bytes.end {
                prop_assert_eq!(frame.bytes.end + 1, whole.bytes.end);
                prop_assert_eq!(bytes[within(whole.bytes.end, 0) - 1], b'\n');
                prop_assert!(read_of(&pieces, frame.bytes.end) > frame.reads.1);
            }
            let same = Kept { bytes: frame.bytes.clone(), reads: frame.reads, ..whole.clone() };
            prop_assert_eq!(frame, &same);
            prop_assert_eq!(frame.bytes.start, whole.bytes.start);
        }
    }

    /// Frames lie one after the other in the body.
    #[test]
    fn frames_do_not_overlap_but_for_comments_inside_an_event(bytes in anything()) {
        let (frames, tail) = decode([bytes.as_slice()]);
        let mut end = 0;
        for frame in frames.iter().filter(|frame| !frame.comment) {
            prop_assert!(frame.bytes.start >= end && frame.bytes.end > frame.bytes.start);
            end = frame.bytes.end;
        }
        prop_assert!(end <= bytes.len() as u64 && tail <= bytes.len() as u64);
    }

    /// Where `eventsource-stream` follows the WHATWG text, events are the same, for every cut.
    #[test]
    fn events_are_those_of_eventsource_stream(bytes in well_formed(), cuts in prop::collection::vec(any::<prop::sample::Index>(), 0..6)) {
        let pieces = cut(&bytes, &cuts);
        let mut decoder = Decoder::new(&BUDGET);
        let mut ours = Vec::new();
        for (read, bytes) in (0..).zip(pieces.iter().copied()) {
            decoder.push(Chunk { bytes, read, at: None }, |frame| {
                if let Body::Event { name, data } = frame.body {
                    ours.push((if name.is_empty() { "message".to_owned() } else { name.into_owned() }, data.into_owned()));
                }
            }).unwrap();
        }
        prop_assert_eq!(ours, oracle(pieces));
    }
}

#[test]
fn line_ends_may_be_mixed_and_fields_bare() {
    let (frames, tail) = decode([&b"event:a\r\ndata: 1\rdata\ndata:2\n\r\n: c\r\rid: 7\n\n"[..]]);
    let events: Vec<_> = frames.iter().map(|frame| (frame.name.as_str(), frame.data.as_str())).collect();
    assert_eq!(events, [("a", "1\n\n2"), ("", " c")]);
    assert_eq!((frames[0].bytes.clone(), frames[1].bytes.clone(), tail), (0..31, 31..35, 0));
}

#[test]
fn an_unfinished_event_is_handed_out_and_its_bytes_are_counted() {
    let (frames, tail) = decode([&b"data: 1\n\ndata: [DO"[..], b"NE]"]);
    assert_eq!(
        (frames[1].data.as_str(), frames[1].bytes.clone(), frames[1].reads),
        ("[DONE]", 9..21, (0, 1))
    );
    assert_eq!(tail, 12);
}

#[test]
fn a_stream_over_budget_is_refused_and_gives_its_bytes_back() {
    static TINY: Budget = Budget::new(1 << 10);
    let mut decoder = Decoder::new(&TINY);
    let long = vec![b'x'; 2 << 10];
    assert_eq!(decoder.push(Chunk { bytes: &long, read: 0, at: None }, |_| ()), Err(OverBudget));
    drop(decoder);
    assert_eq!((TINY.used(), TINY.refused()), (0, 1));
}

#[test]
fn a_byte_order_mark_is_skipped_where_eventsource_stream_panics() {
    let body = &b"\xEF\xBB\xBFdata: 1\n\n"[..];
    assert!(catch_unwind(AssertUnwindSafe(|| oracle([body]))).is_err());
    for at in 0..5 {
        assert_eq!(data([&body[..at], &body[at..]]), ["1"], "cut at {at}");
    }
    assert_eq!(data([&b"\xEF\xBBdata: 1\n\ndata: 2\n\n"[..]]), ["2"], "half a mark begins an unknown field");
}

#[test]
fn a_crlf_event_is_dispatched_at_its_cr_where_eventsource_stream_holds_it() {
    let first = b"data: 1\r\n\r";
    let chunk: Result<Vec<u8>, Infallible> = Ok(first.to_vec());
    let mut waiting = stream::iter([chunk]).chain(stream::pending()).eventsource();
    assert!(waiting.next().now_or_never().is_none(), "held until the next read");

    let mut decoder = Decoder::new(&BUDGET);
    let mut events = 0;
    decoder.push(Chunk { bytes: first, read: 0, at: None }, |_| events += 1).unwrap();
    assert_eq!(events, 1);
    decoder.push(Chunk { bytes: b"\ndata: 2\r\n\r\n", read: 1, at: None }, |_| events += 1).unwrap();
    assert_eq!((events, decoder.finish(|_| ())), (2, 0));
}

#[test]
fn a_body_of_lone_crs_keeps_its_last_event_where_eventsource_stream_loses_it() {
    let body = &b"data: 1\r\rdata: 2\r\r"[..];
    assert_eq!(oracle([body]), [("message".to_owned(), "1".to_owned())]);
    assert_eq!(data([body]), ["1", "2"]);
}

#[test]
fn invalid_utf8_is_flagged_where_eventsource_stream_goes_silent() {
    let chunks = [&b"data: 1\n\n"[..], b"data: \xFF\n\n", b"data: 3\n\n"];
    assert_eq!(oracle(chunks), [("message".to_owned(), "1".to_owned())]);
    let (frames, _) = decode(chunks);
    let seen: Vec<_> = frames.iter().map(|frame| (frame.data.as_str(), frame.invalid)).collect();
    assert_eq!(seen, [("1", false), ("\u{FFFD}", true), ("3", false)]);
}

/// One data line of `kib` KiB in reads of 1,400 bytes.
fn one_long_event(kib: usize) -> Vec<Vec<u8>> {
    let body = [&b"data: "[..], &vec![b'x'; kib << 10], b"\n\n"].concat();
    body.chunks(1400).map(<[u8]>::to_vec).collect()
}

/// CPU time of this thread in ns, which neighbours on the machine do not distort.
fn cpu_ns() -> Option<u64> {
    std::fs::read_to_string("/proc/thread-self/schedstat").ok()?.split(' ').next()?.parse().ok()
}

#[test]
fn a_long_event_costs_time_by_its_length_where_eventsource_stream_takes_the_square() {
    let cost = |work: &dyn Fn()| {
        let before = cpu_ns()?;
        work();
        Some(cpu_ns()?.saturating_sub(before).max(1))
    };
    let (short, long) = (one_long_event(128), one_long_event(512));
    let theirs = |chunks: &Vec<Vec<u8>>| assert_eq!(oracle(chunks.iter().map(Vec::as_slice)).len(), 1);
    let (Some(theirs_short), Some(theirs_long)) = (cost(&|| theirs(&short)), cost(&|| theirs(&long))) else {
        // Straight to the process's stderr: the test harness would swallow a print.
        let why = "this system has no /proc/thread-self/schedstat, so the costs were not compared";
        let _ = writeln!(std::io::stderr(), "SKIPPED: {why}");
        return;
    };
    let ours_long = cost(&|| assert_eq!(data(long.iter().map(Vec::as_slice)).len(), 1)).unwrap();
    assert!(theirs_long > 8 * theirs_short, "four times the bytes: {theirs_short} ns, then {theirs_long} ns");
    assert!(ours_long < theirs_short, "ours at 512 KiB {ours_long} ns, theirs at 128 KiB {theirs_short} ns");
}
