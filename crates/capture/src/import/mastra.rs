//! Mastra's recordings: a JSON document with the text and the time of each read.
//!
//! In: `recordings[].response.{chunks, chunkTimings}`, where `chunkTimings` holds the ms since the read
//! before. Out: one stream per recording, decoded like a live one, with true read boundaries. Also the
//! same reduced to numbers: `chunkTimings` with `read_kinds` (ranges of reads by what they carried) or
//! `text_deltas_per_read`.
//!
//! The first timing runs from the headers, so the time to the first token is not in the file; times run
//! from the headers on. The reads are those of a user-space stream in whole milliseconds, so the
//! `reads` table stays empty and causes that need it stay unknown.

use std::borrow::Cow;
use std::collections::HashMap;
use std::io::BufReader;

use serde::Deserialize;
use sseismo_trace::{
    Api, Attribution, Chunk, Delta, Kind, Micros, Phase, Stream, Summary, TimeSource, Usage, UtcMicros,
};

use super::Options;
use super::importer::{Error, Fit, Grain, Head, Importer, Out, key};
use super::input::Input;
use crate::answer::{self, Answer};

/// Recordings of Mastra's test suite.
pub(super) struct Mastra;

impl Importer for Mastra {
    fn name(&self) -> &'static str {
        "mastra"
    }

    fn expects(&self) -> &'static str {
        "a Mastra recording (JSON with chunkTimings)"
    }

    fn grain(&self) -> Grain {
        Grain::Table
    }

    fn recognises(&self, head: &Head<'_>) -> Fit {
        let has = |needle: &str| memchr::memmem::find(head.bytes, needle.as_bytes()).is_some();
        let document = head.bytes.trim_ascii_start().starts_with(b"{");
        // In a long recording the timings stand behind the texts, beyond the head.
        (document && (has("\"chunkTimings\"") || (has("\"recordings\"") && has("\"testFile\"")))).into()
    }

    fn read(&self, input: &Input<'_>, _: &Options, out: &mut Out<'_>) -> Result<(), Error> {
        let document: Document = serde_json::from_reader(BufReader::new(input.open()?))
            .map_err(|error| Error::Unusable(format!("not a Mastra recording: {error}")))?;
        for recording in &document.recordings {
            recording.stream(out);
        }
        let api = document.api();
        let model = document.model.as_deref().and_then(|model| model.split(' ').next());
        if document.streams.is_empty() && !document.own.timings.is_empty() {
            document.own.stream(api, model, out);
        }
        for reduced in &document.streams {
            reduced.stream(api, model, out);
        }
        Ok(())
    }
}

#[derive(Deserialize)]
struct Document {
    #[serde(default)]
    recordings: Vec<Recording>,
    #[serde(default)]
    streams: Vec<Reduced>,
    model: Option<String>,
    #[serde(flatten)]
    own: Reduced,
}

impl Document {
    fn api(&self) -> Option<Api> {
        let model = self.model.as_deref()?;
        [("Messages API", Api::Messages), ("Responses API", Api::Responses)]
            .into_iter()
            .find_map(|(name, api)| model.contains(name).then_some(api))
    }
}

#[derive(Deserialize)]
struct Recording {
    hash: Option<String>,
    request: Request,
    response: Response,
}

#[derive(Deserialize)]
struct Request {
    url: String,
    timestamp: Option<i64>,
    body: Option<Body>,
}

#[derive(Deserialize)]
#[serde(untagged)]
enum Body {
    Asked { model: Option<String> },
    Other(serde::de::IgnoredAny),
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Response {
    status: Option<u16>,
    #[serde(default)]
    headers: HashMap<String, serde_json::Value>,
    #[serde(default)]
    chunks: Vec<String>,
    #[serde(default)]
    chunk_timings: Vec<f64>,
}

impl Recording {
    fn stream(&self, out: &mut Out<'_>) {
        let response = &self.response;
        if response.chunks.is_empty() {
            out.skip("not-streamed");
            return;
        }
        if response.chunks.len() != response.chunk_timings.len() {
            out.skip("chunks-and-timings-differ-in-number");
            return;
        }
        let header = |name: &str| response.headers.get(name).and_then(serde_json::Value::as_str);
        let (host, path) = split(&self.request.url);
        let head = answer::Head { path, content_type: header("content-type"), status: response.status };
        let mut answer = Answer::new(&head);
        let mut deltas = Vec::new();
        let times = times(&response.chunk_timings);
        for ((read, chunk), at) in (0..).zip(&response.chunks).zip(times) {
            answer.push(Chunk { bytes: chunk.as_bytes(), read, at: Some(at) }, |delta| deltas.push(delta));
        }
        let mut summary = base(self.request.timestamp, out);
        answer.finish(&mut summary, |delta| deltas.push(delta));
        // These run from the headers, not from the request.
        (summary.t_first_byte, summary.t_first_reasoning, summary.t_first_output) = (None, None, None);
        summary.stream_id = key(&[self.hash.as_deref().unwrap_or(out.path()), &self.request.url]);
        summary.upstream = Some(host.to_owned());
        if let Some(Body::Asked { model }) = &self.request.body {
            summary.model_requested.clone_from(model);
        }
        summary.server = header("server").map(str::to_owned);
        summary.via = header("via").map(str::to_owned);
        summary.content_encoding = header("content-encoding").map(str::to_owned);
        out.stream(Stream { summary: &summary, deltas: &deltas, reads: &[] });
    }
}

/// Timings without texts.
#[derive(Deserialize)]
struct Reduced {
    #[serde(default, rename = "chunkTimings")]
    timings: Vec<f64>,
    request_ts_ms: Option<i64>,
    output_tokens: Option<u64>,
    reasoning_tokens: Option<f64>,
    /// What the reads `from..=to` carried.
    #[serde(default)]
    read_kinds: Vec<(Kind, usize, usize)>,
    #[serde(default)]
    text_deltas_per_read: Vec<u32>,
}

impl Reduced {
    fn stream(&self, api: Option<Api>, model: Option<&str>, out: &mut Out<'_>) {
        let carried: Cow<'_, [(Kind, u32)]> = self.carried().into();
        if carried.len() != self.timings.len() {
            out.skip("no-kinds-per-read");
            return;
        }
        let mut deltas = Vec::new();
        let mut phase = Phase::Queued;
        for ((read, at), &(kind, count)) in (0..).zip(times(&self.timings)).zip(carried.iter()) {
            phase = match kind {
                Kind::Summary => Phase::Summary,
                Kind::Reasoning => Phase::Reasoning,
                Kind::Text => Phase::Output,
                Kind::Tool => Phase::Tool,
                Kind::Done | Kind::Usage => Phase::Tail,
                Kind::Ping | Kind::Comment | Kind::Error | Kind::Meta => phase,
            };
            for _ in 0..count {
                let seq = u32::try_from(deltas.len()).unwrap_or(u32::MAX);
                deltas.push(Delta { first_read: Some(read), ..Delta::new(seq, kind, phase, Some(at)) });
            }
        }
        let summary = Summary {
            stream_id: key(&[out.path(), &self.request_ts_ms.unwrap_or(0).to_string()]),
            api,
            model_served: model.map(str::to_owned),
            streamed: Some(true),
            t_end: times(&self.timings).last(),
            usage: Usage { output: self.output_tokens, reasoning: self.reasoning_tokens, ..Usage::default() },
            ..base(self.request_ts_ms, out)
        };
        out.stream(Stream { summary: &summary, deltas: &deltas, reads: &[] });
    }

    /// Kind and number of events of each read.
    fn carried(&self) -> Vec<(Kind, u32)> {
        if self.read_kinds.is_empty() {
            let of = |&deltas: &u32| if deltas > 0 { (Kind::Text, deltas) } else { (Kind::Meta, 1) };
            return self.text_deltas_per_read.iter().map(of).collect();
        }
        let kind = |read: usize| {
            let range = self.read_kinds.iter().find(|(_, from, to)| (*from..=*to).contains(&read));
            range.map_or(Kind::Meta, |range| range.0)
        };
        (0..self.timings.len()).map(|read| (kind(read), 1)).collect()
    }
}

fn base(request_ms: Option<i64>, out: &Out<'_>) -> Summary {
    Summary {
        started_at: request_ms.map(|ms| UtcMicros(ms.saturating_mul(1_000))),
        time_source: TimeSource::User,
        attribution: Attribution::Frame,
        ..out.summary()
    }
}

/// Times of the reads, from the ms between them.
fn times(timings: &[f64]) -> impl Iterator<Item = Micros> {
    timings.iter().scan(0.0_f64, |at, step| {
        *at += step.clamp(0.0, 1e9);
        #[expect(clippy::cast_possible_truncation, reason = "each step is at most 12 days")]
        Some(Micros((*at * 1e3).round() as i64))
    })
}

/// Host and path of a URL.
fn split(url: &str) -> (&str, &str) {
    let rest = url.split_once("://").map_or(url, |(_, rest)| rest);
    rest.split_at(rest.find('/').unwrap_or(rest.len()))
}

#[cfg(test)]
mod tests {
    use super::super::tests::{data, folder, streams};
    use super::*;

    #[test]
    fn the_stalled_claude_stream_and_its_smooth_twin() {
        let (imported, streams) = streams(&data("timing/mastra/claude-sonnet-4-6_messages_pair.json"));
        assert_eq!((imported.format, imported.streams), ("mastra", 2));
        let text = |deltas: &[Delta]| -> Vec<(i64, u32)> {
            let text = deltas.iter().filter(|delta| delta.kind == Kind::Text);
            text.map(|delta| (delta.t.unwrap().0 / 1_000, delta.first_read.unwrap())).collect()
        };
        assert_eq!(text(&streams[0].1), [(0, 1), (680, 2), (680, 3), (680, 3), (680, 3), (680, 3), (680, 3)]);
        assert_eq!(text(&streams[1].1).len(), 9);
        assert_eq!(streams[0].0.model(), Some("claude-sonnet-4-6"));
        assert_eq!(streams[0].0.api, Some(Api::Messages));
    }

    #[test]
    fn the_reduced_gpt_5_4_stream_knows_its_phases() {
        let (imported, streams) = streams(&data("timing/mastra/gpt-5.4_responses_reasoning-summary.json"));
        assert_eq!((imported.format, imported.streams), ("mastra", 1));
        let (summary, deltas) = &streams[0];
        assert_eq!((deltas.len(), summary.usage.reasoning), (187, Some(86.0)));
        let long: Vec<_> = deltas
            .windows(2)
            .filter(|pair| pair[1].t.unwrap().since(pair[0].t.unwrap()) > Micros(1_000_000))
            .map(|pair| (pair[0].kind, pair[1].kind))
            .collect();
        assert_eq!(long, [(Kind::Meta, Kind::Meta), (Kind::Text, Kind::Meta)], "both on phase borders");
    }

    #[test]
    fn a_full_recording_is_decoded_with_its_reads() {
        let text = r#"{"meta":{"name":"n","testFile":"t","model":"m"},"recordings":[{"hash":"h","request":{"url":"https://api.openai.com/v1/responses","method":"POST","body":{"model":"gpt-5.4","input":[]},"timestamp":1779101447805},"response":{"status":200,"headers":{"content-type":"text/event-stream","server":"cloudflare"},"chunks":["event: response.output_text","\n.","data: {}\n\n","event: response.output_text.delta\ndata: {\"type\":\"response.output_text.delta\",\"delta\":\"Hi\",\"output_index\":1}\n\n"],"chunkTimings":[0,3,1,40],"isStreaming":true}}]}"#;
        let folder = folder(&[("recording.json", text.as_bytes())]);
        let (imported, streams) = streams(&folder.path().join("recording.json"));
        assert_eq!((imported.format, imported.streams), ("mastra", 1));
        let (summary, deltas) = &streams[0];
        let delta = deltas.last().unwrap();
        assert_eq!(
            (delta.kind, delta.chars, delta.t, delta.first_read),
            (Kind::Text, 2, Some(Micros(44_000)), Some(3))
        );
        assert_eq!(summary.upstream.as_deref(), Some("api.openai.com"));
        assert_eq!(summary.model_requested.as_deref(), Some("gpt-5.4"));
        assert_eq!(summary.t_first_output, None, "the file does not hold it");
    }
}
