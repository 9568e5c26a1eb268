//! Any bytes, cut anywhere, under any framing: no panic, and no delta depends on the cut.
//!
//! `cargo +nightly fuzz run answer corpus ../../../data/sse` in `crates/capture` uses the recorded bodies as
//! seeds. The first two bytes choose the framing and the place of the cut.

#![no_main]

use libfuzzer_sys::fuzz_target;
use sseismo_capture::answer::{Answer, Counts, Head};
use sseismo_trace::{Chunk, Delta, Summary};

fn read<'a>(content_type: Option<&str>, chunks: impl IntoIterator<Item = &'a [u8]>) -> (Vec<Delta>, Summary, Counts) {
    let head = Head { content_type, ..Head::default() };
    let mut answer = Answer::new(&head);
    let (mut deltas, mut summary) = (Vec::new(), Summary::default());
    // One read number for all, so that deltas can be compared.
    for bytes in chunks {
        answer.push(Chunk { bytes, read: 0, at: None }, |delta| deltas.push(delta));
    }
    let counts = answer.finish(&mut summary, |delta| deltas.push(delta));
    // The LF of a CRLF that was cut in two counts for no event.
    for delta in &mut deltas {
        delta.wire_bytes = 0;
    }
    (deltas, summary, counts)
}

fuzz_target!(|input: &[u8]| {
    let [framing, at, body @ ..] = input else { return };
    let content_type = match framing % 4 {
        0 => Some("text/event-stream"),
        1 => Some("application/x-ndjson"),
        2 => Some("application/json"),
        _ => None,
    };
    let at = usize::from(*at).min(body.len());
    let whole = read(content_type, [body]);
    if content_type.is_some() {
        assert_eq!(read(content_type, [&body[..at], &body[at..]]), whole);
    } else {
        read(content_type, [&body[..at], &body[at..]]);
    }
});
