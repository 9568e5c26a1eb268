//! AIPerf's `profile_export.jsonl` and `profile_export_raw.jsonl`: one request a line.
//!
//! In: JSON Lines of `metadata` with `metrics` (times per chunk, no text), or with `responses` (each
//! packet with its `perf_ns`). Out: one stream per request, its events timed by the client after its own
//! parsing.
//!
//! `inter_chunk_latency` counts content chunks alone, and the first chunk is `time_to_first_token`. The
//! export does not say what a chunk carried: those before `time_to_first_output_token` are reasoning. A
//! chunk is not a token, so no event gets a token count. Packets of equal `perf_ns` came in one read.

use serde::Deserialize;
use serde::de::IgnoredAny;
use sseismo_trace::{Chunk, Delta, Kind, Micros, Outcome, Phase, Stream, TimeSource, Usage, UtcMicros};

use super::Options;
use super::importer::{Error, Fit, Grain, Head, Importer, Out, key};
use super::input::Input;
use crate::answer::{self, Answer};

/// Results of AIPerf.
pub(super) struct Aiperf;

impl Importer for Aiperf {
    fn name(&self) -> &'static str {
        "aiperf"
    }

    fn expects(&self) -> &'static str {
        "profile_export.jsonl or profile_export_raw.jsonl of AIPerf"
    }

    fn grain(&self) -> Grain {
        Grain::Table
    }

    /// Lines can be longer than the head, so the first one's start has to do.
    fn recognises(&self, head: &Head<'_>) -> Fit {
        let has = |needle: &str| memchr::memmem::find(head.bytes, needle.as_bytes()).is_some();
        let record = head.bytes.trim_ascii_start().starts_with(b"{\"metadata\"");
        (record && has("\"benchmark_phase\"") && (has("\"metrics\"") || has("\"start_perf_ns\""))).into()
    }

    fn read(&self, input: &Input<'_>, _: &Options, out: &mut Out<'_>) -> Result<(), Error> {
        let mut lines = input.lines()?;
        while let Some(line) = lines.next(out)? {
            match serde_json::from_slice::<Record>(line.bytes) {
                Ok(record) => record.stream(line.number, out),
                Err(error) if error.is_eof() || !line.ended => out.skip("torn-line"),
                Err(error) if error.is_data() => out.skip("unexpected-shape"),
                Err(_) => out.skip("invalid-json"),
            }
        }
        Ok(())
    }
}

#[derive(Deserialize)]
struct Record {
    metadata: Metadata,
    metrics: Option<Metrics>,
    start_perf_ns: Option<i64>,
    payload: Option<Payload>,
    status: Option<u16>,
    responses: Option<Vec<Response>>,
    error: Option<IgnoredAny>,
}

#[derive(Deserialize)]
struct Metadata {
    x_request_id: Option<String>,
    x_correlation_id: Option<String>,
    turn_index: Option<u32>,
    request_start_ns: Option<i64>,
    #[serde(default)]
    was_cancelled: bool,
}

#[derive(Deserialize)]
struct Metrics {
    time_to_first_token: Option<Metric<f64>>,
    time_to_first_output_token: Option<Metric<f64>>,
    inter_chunk_latency: Option<Metric<Vec<f64>>>,
    request_latency: Option<Metric<f64>>,
    input_sequence_length: Option<Metric<f64>>,
    output_sequence_length: Option<Metric<f64>>,
    reasoning_token_count: Option<Metric<f64>>,
}

#[derive(Deserialize)]
struct Metric<T> {
    value: T,
    unit: String,
}

#[derive(Deserialize)]
struct Payload {
    model: Option<String>,
    reasoning_effort: Option<String>,
}

#[derive(Deserialize)]
struct Response {
    perf_ns: i64,
    #[serde(default)]
    packets: Vec<Packet>,
}

#[derive(Deserialize)]
struct Packet {
    name: String,
    value: Option<String>,
}

impl Record {
    fn stream(&self, line: u64, out: &mut Out<'_>) {
        let mut deltas = Vec::new();
        let mut summary = sseismo_trace::Summary {
            stream_id: key(&[self.metadata.x_request_id.as_deref().unwrap_or(out.path()), &line.to_string()]),
            session_key: self.metadata.x_correlation_id.as_deref().map(|id| key(&[id])),
            turn_index: self.metadata.turn_index,
            started_at: self.metadata.request_start_ns.map(|ns| UtcMicros(ns / 1_000)),
            status: self.status,
            streamed: Some(true),
            ..out.summary()
        };
        let read = match (&self.responses, &self.metrics) {
            (Some(responses), _) => self.raw(responses, &mut summary, &mut deltas),
            (None, Some(metrics)) => metrics.chunks(&mut summary, &mut deltas),
            (None, None) => Err("no-metrics"),
        };
        if let (Err(reason), true) = (read, self.error.is_none() && !self.metadata.was_cancelled) {
            out.skip(reason);
            return;
        }
        if self.metadata.was_cancelled {
            summary.outcome = Outcome::ClientGone;
        } else if self.error.is_some() {
            summary.outcome = Outcome::Failed;
        }
        if !deltas.is_empty() {
            summary.time_source = TimeSource::User;
        }
        out.stream(Stream { summary: &summary, deltas: &deltas, reads: &[] });
    }

    fn raw(
        &self,
        responses: &[Response],
        summary: &mut sseismo_trace::Summary,
        deltas: &mut Vec<Delta>,
    ) -> Result<(), &'static str> {
        let start = self.start_perf_ns.ok_or("no-start-time")?;
        let head = answer::Head { content_type: Some("text/event-stream"), ..answer::Head::default() };
        let mut answer = Answer::new(&head);
        let (mut read, mut before) = (0, None);
        for response in responses {
            if before.is_some_and(|before| before != response.perf_ns) {
                read += 1;
            }
            before = Some(response.perf_ns);
            let text = response.text();
            let at = Some(Micros((response.perf_ns - start) / 1_000));
            answer.push(Chunk { bytes: text.as_bytes(), read, at }, |delta| deltas.push(delta));
        }
        answer.finish(summary, |delta| deltas.push(delta));
        summary.status = self.status;
        if let Some(payload) = &self.payload {
            summary.model_requested.clone_from(&payload.model);
            summary.effort = summary.effort.take().or_else(|| payload.reasoning_effort.clone());
        }
        Ok(())
    }
}

impl Response {
    /// The event as it was on the wire.
    fn text(&self) -> String {
        let mut text = String::new();
        for packet in &self.packets {
            let name = if packet.name == "comment" { "" } else { &packet.name };
            for line in packet.value.as_deref().unwrap_or("").split('\n') {
                text.push_str(name);
                text.push_str(": ");
                text.push_str(line);
                text.push('\n');
            }
        }
        text.push('\n');
        text
    }
}

impl Metrics {
    fn chunks(
        &self,
        summary: &mut sseismo_trace::Summary,
        deltas: &mut Vec<Delta>,
    ) -> Result<(), &'static str> {
        let latencies = self.inter_chunk_latency.as_ref().ok_or("no-chunk-latencies")?;
        let first = self.time_to_first_token.as_ref().ok_or("no-first-token-time")?;
        let scale = |unit: &str| microseconds(unit).ok_or("unknown-unit");
        let chunk = scale(&latencies.unit)?;
        let mut at = first.value * scale(&first.unit)?;
        let output = match &self.time_to_first_output_token {
            Some(output) => output.value * scale(&output.unit)?,
            None => at,
        };
        let reasoned = at < output;
        for (seq, latency) in (0..).zip([0.0].iter().chain(&latencies.value)) {
            at += latency * chunk;
            let (kind, phase) =
                if at < output { (Kind::Reasoning, Phase::Reasoning) } else { (Kind::Text, Phase::Output) };
            deltas.push(Delta::new(seq, kind, phase, micros(at)));
        }
        summary.t_first_reasoning = micros(first.value * scale(&first.unit)?).filter(|_| reasoned);
        summary.t_first_output = micros(output);
        if let Some(latency) = &self.request_latency {
            summary.t_end = micros(latency.value * scale(&latency.unit)?);
        }
        summary.outcome = Outcome::Completed;
        summary.usage = Usage {
            input: self.input_sequence_length.as_ref().and_then(count),
            output: self.output_sequence_length.as_ref().and_then(count),
            reasoning: self.reasoning_token_count.as_ref().map(|count| count.value),
            ..Usage::default()
        };
        Ok(())
    }
}

/// µs in one `unit`.
fn microseconds(unit: &str) -> Option<f64> {
    match unit {
        "ns" => Some(1e-3),
        "us" => Some(1.0),
        "ms" => Some(1e3),
        "sec" | "s" => Some(1e6),
        _ => None,
    }
}

/// A time that makes sense: a year at most, not before the start.
fn micros(at: f64) -> Option<Micros> {
    #[expect(clippy::cast_possible_truncation, reason = "checked to be within a year")]
    (0.0..3.2e13).contains(&at).then(|| Micros(at.round() as i64))
}

fn count(metric: &Metric<f64>) -> Option<u64> {
    #[expect(
        clippy::cast_possible_truncation,
        clippy::cast_sign_loss,
        reason = "checked to be a small count"
    )]
    (0.0..1e12).contains(&metric.value).then(|| metric.value.round() as u64)
}

#[cfg(test)]
mod tests {
    use super::super::tests::{data, folder, streams};
    use super::*;

    #[test]
    fn real_runs_hold_ten_requests_of_200_chunks() {
        for run in ["qwen-c1", "qwen-c2"] {
            let (imported, streams) = streams(&data(&format!("timing/aiperf/{run}/profile_export.jsonl")));
            assert_eq!((imported.format, imported.streams), ("aiperf", 10));
            assert!(imported.skipped.is_empty());
            for (summary, deltas) in &streams {
                assert_eq!(summary.time_source, TimeSource::User);
                assert_eq!((deltas.len(), summary.usage.output), (200, Some(200)));
                assert!(deltas.iter().all(|delta| delta.kind == Kind::Text && delta.tokens.is_none()));
                let end = deltas.last().unwrap().t.unwrap();
                assert!(end <= summary.t_end.unwrap());
                assert_eq!(summary.t_first_output, deltas[0].t);
            }
        }
        let (_, streams) = streams(&data("timing/aiperf/qwen-c1/profile_export.jsonl"));
        assert_eq!(streams[0].1[0].t, Some(Micros(31_743)), "31.742934 ms");
        assert_eq!(streams[0].1[1].t, Some(Micros(49_611)), "and 17.868007 ms");
        assert_eq!(streams[0].0.started_at, Some(UtcMicros(1_762_551_534_797_067)));
    }

    #[test]
    fn raw_packets_are_decoded_with_their_reads() {
        let line = r#"{"metadata":{"x_request_id":"r","benchmark_phase":"profiling"},"start_perf_ns":1000000,"payload":{"model":"m"},"status":200,"responses":[{"perf_ns":3000000,"packets":[{"name":"comment","value":"waiting"}]},{"perf_ns":5000000,"packets":[{"name":"data","value":"{\"choices\":[{\"delta\":{\"reasoning_content\":\"Hm\"}}]}"}]},{"perf_ns":5000000,"packets":[{"name":"data","value":"{\"choices\":[{\"delta\":{\"content\":\"Yes\"}}]}"}]},{"perf_ns":9000000,"packets":[{"name":"data","value":"[DONE]"}]}],"error":null}
"#;
        let folder = folder(&[("profile_export_raw.jsonl", line.as_bytes())]);
        let (imported, streams) = streams(&folder.path().join("profile_export_raw.jsonl"));
        assert_eq!((imported.format, imported.events), ("aiperf", 3));
        let (summary, deltas) = &streams[0];
        let seen: Vec<_> =
            deltas.iter().map(|delta| (delta.kind, delta.t.unwrap().0, delta.first_read)).collect();
        assert_eq!(
            seen,
            [
                (Kind::Comment, 2_000, Some(0)),
                (Kind::Reasoning, 4_000, Some(1)),
                (Kind::Text, 4_000, Some(1)),
                (Kind::Done, 8_000, Some(2))
            ]
        );
        assert_eq!(summary.model(), Some("m"));
        assert_eq!(summary.t_first_reasoning, Some(Micros(4_000)));
        assert_eq!(summary.outcome, Outcome::Completed);
    }

    #[test]
    fn a_torn_line_and_a_record_without_times_are_counted() {
        let lines = concat!(
            r#"{"metadata":{"x_request_id":"a","benchmark_phase":"profiling"},"metrics":{},"error":null}"#,
            "\n",
            r#"{"metadata":{"x_request_id":"b","benchmark_phase":"profiling"},"metr"#,
        );
        let folder = folder(&[("profile_export.jsonl", lines.as_bytes())]);
        let (imported, streams) = streams(&folder.path().join("profile_export.jsonl"));
        assert!(streams.is_empty());
        assert_eq!(imported.skipped["no-chunk-latencies"], 1);
        assert_eq!(imported.skipped["torn-line"], 1);
    }
}
