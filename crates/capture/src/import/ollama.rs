//! Ollama's NDJSON: plain, or inside the YAML cassettes that Python test suites record.
//!
//! In: one object per token or so, each with `created_at`. Out: one stream per response, timed by the
//! *server's* clock: what lies between server and client cannot be seen, and when the request was sent is
//! not known, so times run from the first line.

mod cassette;

use std::io::{BufRead as _, BufReader};

use sseismo_trace::{Chunk, Delta, Micros, Stream, TimeSource, UtcMicros};

use super::Options;
use super::importer::{Error, Fit, Grain, Head, Importer, Out, key};
use super::input::Input;
use crate::answer::{self, Answer};

/// Responses of Ollama.
pub(super) struct Ollama;

impl Importer for Ollama {
    fn name(&self) -> &'static str {
        "ollama"
    }

    fn expects(&self) -> &'static str {
        "NDJSON of Ollama, plain or in a VCR cassette"
    }

    fn grain(&self) -> Grain {
        Grain::Table
    }

    fn recognises(&self, head: &Head<'_>) -> Fit {
        let plain = head.lines().next().is_some_and(is_line);
        (plain || is_cassette(head.bytes)).into()
    }

    fn read(&self, input: &Input<'_>, _: &Options, out: &mut Out<'_>) -> Result<(), Error> {
        if is_cassette(input.head()) {
            return cassettes(input, out);
        }
        let mut lines = input.lines()?;
        let mut response = Response::default();
        while let Some(line) = lines.next(out)? {
            if !line.ended && serde_json::from_slice::<serde::de::IgnoredAny>(line.bytes).is_err() {
                out.skip("torn-line");
                continue;
            }
            response.line(line.bytes);
            if is_last(line.bytes) {
                std::mem::take(&mut response).stream(out);
            }
        }
        response.stream(out);
        Ok(())
    }
}

fn cassettes(input: &Input<'_>, out: &mut Out<'_>) -> Result<(), Error> {
    let mut bodies = cassette::Bodies::default();
    let mut reader = BufReader::new(input.open()?);
    let mut line = Vec::new();
    loop {
        line.clear();
        if reader.read_until(b'\n', &mut line)? == 0 {
            break;
        }
        let text = String::from_utf8_lossy(&line);
        let Some(body) = bodies.line(text.trim_end_matches(['\n', '\r'])) else { continue };
        let mut response = Response::default();
        body.lines().filter(|line| !line.trim().is_empty()).for_each(|line| response.line(line.as_bytes()));
        if body.lines().next().is_some_and(|line| is_line(line.as_bytes())) {
            response.stream(out);
        } else {
            out.skip("not-ollama");
        }
    }
    if bodies.is_open() {
        out.skip("torn-cassette");
    }
    Ok(())
}

fn is_cassette(head: &[u8]) -> bool {
    let has = |needle: &str| memchr::memmem::find(head, needle.as_bytes()).is_some();
    head.trim_ascii_start().starts_with(b"interactions:")
        && (has("/api/chat") || has("/api/generate"))
        && has("created_at")
}

fn is_line(line: &[u8]) -> bool {
    let Ok(line) = serde_json::from_slice::<serde_json::Map<String, serde_json::Value>>(line) else {
        return false;
    };
    ["model", "created_at", "done"].iter().all(|field| line.contains_key(*field))
        && (line.contains_key("message") || line.contains_key("response"))
}

fn is_last(line: &[u8]) -> bool {
    #[derive(serde::Deserialize)]
    struct Line {
        #[serde(default)]
        done: bool,
    }
    serde_json::from_slice::<Line>(line).is_ok_and(|line| line.done)
}

/// One response that is being read.
#[derive(Default)]
struct Response {
    answer: Option<Answer>,
    deltas: Vec<Delta>,
}

impl Response {
    fn line(&mut self, line: &[u8]) {
        let head = answer::Head {
            path: "/api/chat",
            content_type: Some("application/x-ndjson"),
            ..answer::Head::default()
        };
        let answer = self.answer.get_or_insert_with(|| Answer::new(&head));
        for bytes in [line, b"\n"] {
            answer.push(Chunk { bytes, read: 0, at: None }, |delta| self.deltas.push(delta));
        }
    }

    fn stream(self, out: &mut Out<'_>) {
        let Some(answer) = self.answer else { return };
        let (mut deltas, mut summary) = (self.deltas, out.summary());
        let counts = answer.finish(&mut summary, |delta| deltas.push(delta));
        for _ in 0..counts.unreadable {
            out.skip("invalid-json");
        }
        let start = deltas.iter().find_map(|delta| delta.provider_ts);
        for delta in &mut deltas {
            // Nobody saw the reads, and the only clock is the server's.
            delta.first_read = None;
            delta.t = delta.provider_ts.zip(start).map(|(at, start)| Micros(at - start));
        }
        summary.stream_id = key(&[out.path(), &start.unwrap_or(0).to_string()]);
        summary.started_at = start.map(UtcMicros);
        summary.t_end = deltas.last().and_then(|delta| delta.t);
        summary.time_source = if start.is_some() { TimeSource::Server } else { TimeSource::None };
        out.stream(Stream { summary: &summary, deltas: &deltas, reads: &[] });
    }
}

#[cfg(test)]
mod tests {
    use sseismo_trace::{Kind, Outcome};

    use super::super::tests::{data, folder, streams};
    use super::*;

    #[test]
    fn a_thinking_stream_in_a_double_quoted_cassette() {
        let (imported, streams) = streams(&data("timing/ollama/qwen3-thinking.yaml"));
        assert_eq!((imported.format, imported.streams), ("ollama", 1));
        assert!(imported.skipped.is_empty(), "{:?}", imported.skipped);
        let (summary, deltas) = &streams[0];
        assert_eq!(summary.model(), Some("qwen3.6:latest"));
        assert_eq!(summary.time_source, TimeSource::Server);
        assert_eq!(summary.outcome, Outcome::Completed);
        assert_eq!((deltas[0].kind, deltas[0].t, deltas[0].chars), (Kind::Reasoning, Some(Micros(0)), 4));
        assert_eq!(deltas[1].t, Some(Micros(10_645)), "14.957782 − 14.947137 s");
        assert!(deltas.windows(2).all(|pair| pair[0].t <= pair[1].t));
        let reasoning = deltas.iter().filter(|delta| delta.kind == Kind::Reasoning).count();
        assert!((650..720).contains(&reasoning), "{reasoning}");
    }

    #[test]
    fn a_chat_in_a_single_quoted_cassette() {
        let (imported, streams) = streams(&data("timing/ollama/llama3-chat.yaml"));
        assert_eq!((imported.format, imported.streams), ("ollama", 1));
        let (summary, deltas) = &streams[0];
        assert_eq!(summary.model(), Some("llama3"));
        assert_eq!(deltas[1].t, Some(Micros(32_537)), "46.327411 − 46.294874 s");
        assert_eq!(deltas[1].chars, 4, "a space, folded from a line break, then `did`");
        assert_eq!(deltas.last().unwrap().kind, Kind::Done);
    }

    #[test]
    fn plain_lines_hold_several_responses() {
        let line = |second: u32, content: &str, done: bool| {
            format!(
                "{{\"model\":\"m\",\"created_at\":\"2026-01-01T00:00:{second:02}.5Z\",\"message\":{{\"role\":\"assistant\",\"content\":\"{content}\"}},\"done\":{done}}}\n"
            )
        };
        let text = [line(1, "a", false), line(2, "", true), line(7, "b", false), line(9, "", true)].concat();
        let folder = folder(&[("log.ndjson", text.as_bytes())]);
        let (imported, streams) = streams(&folder.path().join("log.ndjson"));
        assert_eq!((imported.format, imported.streams), ("ollama", 2));
        assert_eq!(streams[1].1[1].t, Some(Micros(2_000_000)));
    }
}
