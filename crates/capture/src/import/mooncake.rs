//! Request traces of Mooncake: `{"timestamp", "input_length", "output_length", "hash_ids"}` a line.
//!
//! In: one request a line. Out: a stream with its sizes. `timestamp` counts ms from an unknown moment:
//! it is no time of day, so `started_at` stays empty. `hash_ids` name cached blocks, not sessions.

use serde::Deserialize;
use sseismo_trace::{Summary, Usage};

use super::Options;
use super::importer::{Error, Fit, Grain, Head, Importer, Out, key};
use super::input::Input;

/// A Mooncake trace.
pub(super) struct Mooncake;

#[derive(Deserialize)]
struct Request {
    #[expect(dead_code, reason = "its presence tells the format")]
    timestamp: f64,
    input_length: u64,
    output_length: u64,
    #[expect(dead_code, reason = "its presence tells the format")]
    hash_ids: Vec<u64>,
}

impl Importer for Mooncake {
    fn name(&self) -> &'static str {
        "mooncake"
    }

    fn expects(&self) -> &'static str {
        "a request trace of Mooncake"
    }

    fn grain(&self) -> Grain {
        Grain::Table
    }

    fn recognises(&self, head: &Head<'_>) -> Fit {
        head.lines().next().is_some_and(|line| serde_json::from_slice::<Request>(line).is_ok()).into()
    }

    fn read(&self, input: &Input<'_>, _: &Options, out: &mut Out<'_>) -> Result<(), Error> {
        let mut lines = input.lines()?;
        while let Some(line) = lines.next(out)? {
            match serde_json::from_slice::<Request>(line.bytes) {
                Ok(request) => {
                    let usage = Usage {
                        input: Some(request.input_length),
                        output: Some(request.output_length),
                        ..Usage::default()
                    };
                    let stream_id = key(&[out.path(), &line.number.to_string()]);
                    out.summary_only(&Summary { stream_id, usage, ..out.summary() });
                }
                Err(error) if error.is_data() => out.skip("unexpected-shape"),
                Err(_) if !line.ended => out.skip("torn-line"),
                Err(_) => out.skip("invalid-json"),
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::super::tests::{data, folder, read};
    use super::*;

    #[test]
    fn the_real_trace_is_read() {
        let (imported, kept) = read(&data("workload/mooncake-conversation-300.jsonl"), &Options::default());
        assert_eq!((imported[0].format, imported[0].streams), ("mooncake", 300));
        assert_eq!(kept.streams[0].1.usage.input, Some(6_758));
        assert_eq!(kept.streams[0].1.usage.output, Some(500));
        assert!(kept.streams.iter().all(|(_, summary)| summary.started_at.is_none()));
    }

    #[test]
    fn bad_lines_are_counted() {
        let text = b"{\"timestamp\":0,\"input_length\":1,\"output_length\":2,\"hash_ids\":[]}\n{\"timestamp\":1}\n{\"timestamp\":0,,}\n{\"t";
        let folder = folder(&[("t.jsonl", text)]);
        let (imported, _) = read(&folder.path().join("t.jsonl"), &Options::default());
        assert_eq!(imported[0].streams, 1);
        let expected = [("invalid-json", 1), ("torn-line", 1), ("unexpected-shape", 1)];
        assert_eq!(imported[0].skipped, expected.into());
    }
}
