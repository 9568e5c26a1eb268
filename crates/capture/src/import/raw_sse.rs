//! Recorded bodies of server-sent events, as `curl -N … > file` leaves them: one stream per file.
//!
//! In: the bytes of one body; or the same with a time before every line, as `curl -N … | ts '%.s'` leaves
//! it. Out: its events, through the decoders that live traffic takes.
//!
//! A body alone has no times, so its events have none. With stamps, an event's time is that of its closing
//! line, counted from the first line: when the request was sent is not in the file, so nothing that is
//! counted from there (time to first byte, to first reasoning) is claimed. No reads are claimed either.

use std::io::Read;

use sseismo_trace::{Chunk, Delta, Micros, Stream, Summary, TimeSource};

use super::Options;
use super::importer::{Error, Fit, Grain, Head, Importer, Out, key};
use super::input::Input;
use crate::answer::{self, Answer};

/// A recorded body, with or without times.
pub(super) struct RawSse;

/// Bytes that are read from a file at once.
const PIECE: usize = 64 << 10;

impl Importer for RawSse {
    fn name(&self) -> &'static str {
        "raw-sse"
    }

    fn expects(&self) -> &'static str {
        "a recorded event stream (`curl -N … > file`, also through `ts '%.s'`)"
    }

    fn grain(&self) -> Grain {
        Grain::Piece
    }

    fn recognises(&self, head: &Head<'_>) -> Fit {
        let mut fields = head.lines().take(50).map(|line| stamped(line).map_or(line, |(_, rest)| rest));
        let is_field =
            |line: &[u8]| [&b"data:"[..], b"event:", b":", b"id:"].iter().any(|name| line.starts_with(name));
        fields.next().is_some_and(is_field).into()
    }

    fn read(&self, input: &Input<'_>, _: &Options, out: &mut Out<'_>) -> Result<(), Error> {
        let head = answer::Head { content_type: Some("text/event-stream"), ..answer::Head::default() };
        let mut body = Recorded { answer: Answer::new(&head), deltas: Vec::new() };
        let first = input.head().split(|&byte| byte == b'\n').next().and_then(stamped);
        match first {
            Some((start, _)) => stamped_lines(input, start, &mut body, out)?,
            None => bare(input, &mut body, out)?,
        }
        body.finish(if first.is_some() { TimeSource::User } else { TimeSource::None }, out)
    }
}

struct Recorded {
    answer: Answer,
    deltas: Vec<Delta>,
}

impl Recorded {
    fn push(&mut self, bytes: &[u8], at: Option<Micros>) {
        let deltas = &mut self.deltas;
        let keep = |delta| deltas.push(Delta { first_read: None, ..delta });
        self.answer.push(Chunk { bytes, read: 0, at }, keep);
    }

    fn finish(mut self, time_source: TimeSource, out: &mut Out<'_>) -> Result<(), Error> {
        let mut summary = Summary { stream_id: key(&[out.path()]), time_source, ..out.summary() };
        let deltas = &mut self.deltas;
        let counts =
            self.answer.finish(&mut summary, |delta| deltas.push(Delta { first_read: None, ..delta }));
        if counts.over_budget {
            return Err(Error::Unusable("an event is larger than the buffer budget of 64 MiB".to_owned()));
        }
        if summary.api.is_none() {
            out.skip("no-known-api");
            return Ok(());
        }
        for _ in 0..counts.unreadable {
            out.skip("unreadable-event");
        }
        if counts.tail_bytes > 0 {
            out.skip("unfinished-event");
        }
        summary.t_first_byte = None;
        summary.t_first_reasoning = None;
        summary.t_first_output = None;
        summary.t_end = None;
        out.stream(Stream { summary: &summary, deltas: &self.deltas, reads: &[] });
        Ok(())
    }
}

fn bare(input: &Input<'_>, body: &mut Recorded, out: &Out<'_>) -> Result<(), Error> {
    let mut file = input.open()?;
    let mut piece = vec![0; PIECE];
    while !out.stopped() {
        let length = file.read(&mut piece)?;
        if length == 0 {
            break;
        }
        body.push(&piece[..length], None);
    }
    Ok(())
}

fn stamped_lines(
    input: &Input<'_>,
    start: Micros,
    body: &mut Recorded,
    out: &mut Out<'_>,
) -> Result<(), Error> {
    let mut lines = input.lines()?;
    while let Some(line) = lines.next(out)? {
        match stamped(line.bytes) {
            Some((at, rest)) => {
                let at = Some(at.since(start));
                body.push(rest, at);
                body.push(b"\n", at);
            }
            None => out.skip("line-without-time"),
        }
    }
    Ok(())
}

/// The time before a line (seconds since 1970 with a fraction, then a blank) and the line.
fn stamped(line: &[u8]) -> Option<(Micros, &[u8])> {
    let end = line.iter().position(|byte| !byte.is_ascii_digit() && *byte != b'.').unwrap_or(line.len());
    let (stamp, rest) = line.split_at(end);
    let (seconds, fraction) = std::str::from_utf8(stamp).ok()?.split_once('.')?;
    let micros: i64 = format!("{fraction:0<6}").get(..6)?.parse().ok()?;
    let seconds: i64 = seconds.parse().ok()?;
    let rest = rest.strip_prefix(b" ").unwrap_or(rest);
    Some((Micros(seconds.checked_mul(1_000_000)?.checked_add(micros)?), rest))
}

#[cfg(test)]
mod tests {
    use sseismo_trace::{Api, Kind, Outcome};

    use std::ops::ControlFlow;
    use std::path::Path;

    use super::super::tests::{data, folder};
    use super::super::{Imported, Sink, import};
    use super::*;

    #[derive(Default)]
    struct Kept {
        streams: Vec<(Summary, Vec<Delta>)>,
    }

    impl Sink for Kept {
        fn stream(&mut self, _: &str, stream: Stream<'_>) {
            self.streams.push((stream.summary.clone(), stream.deltas.to_vec()));
        }

        fn progress(&mut self, _: u64) -> ControlFlow<()> {
            ControlFlow::Continue(())
        }
    }

    fn read(path: &Path) -> (Vec<Imported>, Kept) {
        let mut kept = Kept::default();
        (import(path, &Options::default(), &mut kept), kept)
    }

    #[test]
    fn every_recorded_body_is_one_stream_and_what_is_no_answer_is_counted() {
        let (imported, kept) = read(&data("sse"));
        let bodies: Vec<_> = imported.iter().filter(|imported| imported.format == "raw-sse").collect();
        let no_api: u64 = bodies.iter().filter_map(|body| body.skipped.get("no-known-api")).sum();
        assert_eq!((bodies.len(), no_api), (44, 2), "two bodies are of the MCP protocol");
        assert_eq!(kept.streams.iter().filter(|(summary, _)| summary.api.is_some()).count(), 42);
    }

    #[test]
    fn a_body_without_times_claims_none() {
        let (imported, kept) = read(&data("sse/20_reasoning_api-openai-com_gpt-5-2025-08-07.sse"));
        assert_eq!((imported[0].format, imported[0].streams, imported[0].events), ("raw-sse", 1, 365));
        let (summary, deltas) = &kept.streams[0];
        assert_eq!((summary.api, summary.outcome), (Some(Api::Responses), Outcome::Completed));
        assert!(deltas.iter().all(|delta| delta.t.is_none() && delta.first_read.is_none()));
    }

    #[test]
    fn stamps_of_ts_are_the_times_of_the_closing_lines() {
        let text = "1700000000.000100 data: {\"choices\":[{\"delta\":{\"reasoning\":\"a\"}}]}\n1700000000.000200 \n\
                    1700000001.500000 : ping\n1700000001.500001 \nlost\n\
                    1700000002.000100 data: [DONE]\n1700000002.000100 \n";
        let folder = folder(&[("body.txt", text.as_bytes())]);
        let (imported, kept) = read(&folder.path().join("body.txt"));
        assert_eq!(imported[0].skipped.get("line-without-time"), Some(&1));
        let (summary, deltas) = &kept.streams[0];
        let times: Vec<_> = deltas.iter().map(|delta| (delta.kind, delta.t.map(|t| t.0))).collect();
        assert_eq!(
            times,
            [(Kind::Reasoning, Some(100)), (Kind::Comment, Some(1_499_900)), (Kind::Done, Some(2_000_000))]
        );
        assert_eq!((summary.time_source, summary.t_first_byte), (TimeSource::User, None));
    }
}
