//! Whisper-Leak's packet captures: a JSON array, one stream an element.
//!
//! In: TLS record sizes and the times between them, taken from packets on the wire. Out: one stream each,
//! one event per record.
//!
//! `time_diffs[0]` is the handshake's and `time_diffs[1]` the wait for the first token: both are dropped,
//! and times run from the second record on. A negative difference is a clock step, and the gap there is
//! unknown. One event can be split over two records less than a millisecond apart, which the signature's
//! first merge undoes. Prompts and answers in the file are not read.

use std::fmt;
use std::io::BufReader;

use serde::Deserialize;
use serde::de::{Deserializer as _, SeqAccess, Visitor};
use sseismo_trace::{
    Api, Delta, Kind, Micros, Outcome, Phase, Stream, Summary, TimeSource, Usage, UtcMicros,
};

use super::Options;
use super::importer::{Error, Fit, Grain, Head, Importer, Out, key};
use super::input::Input;

/// Packet captures of the Whisper-Leak project.
pub(super) struct WhisperLeak;

impl Importer for WhisperLeak {
    fn name(&self) -> &'static str {
        "whisper-leak"
    }

    fn expects(&self) -> &'static str {
        "a Whisper-Leak capture (JSON array with data_lengths and time_diffs)"
    }

    fn grain(&self) -> Grain {
        Grain::Table
    }

    /// The arrays can begin far behind the texts, so the names of the fields before them do, too.
    fn recognises(&self, head: &Head<'_>) -> Fit {
        let has = |needle: &str| memchr::memmem::find(head.bytes, needle.as_bytes()).is_some();
        let array = head.bytes.trim_ascii_start().starts_with(b"[");
        (array && (has("\"time_diffs\"") || (has("\"pertubated_prompt\"") && has("\"remote_port\"")))).into()
    }

    fn read(&self, input: &Input<'_>, _: &Options, out: &mut Out<'_>) -> Result<(), Error> {
        let mut json =
            serde_json::Deserializer::from_reader(BufReader::with_capacity(256 * 1024, input.open()?));
        json.deserialize_seq(Records { out }).map_err(|error| {
            Error::Unusable(format!(
                "{error}; what stands before that was read. Mend the file or cut it there"
            ))
        })
    }
}

/// Reads the array element by element: memory holds one.
struct Records<'a, 'o> {
    out: &'a mut Out<'o>,
}

impl<'de> Visitor<'de> for Records<'_, '_> {
    type Value = ();

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("an array of captured streams")
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut records: A) -> Result<(), A::Error> {
        let mut number = 0_u64;
        while let Some(record) = records.next_element::<Record>()? {
            record.stream(number, self.out);
            number += 1;
        }
        Ok(())
    }
}

#[derive(Deserialize)]
struct Record {
    timestamp: Option<f64>,
    chatbot_name: Option<String>,
    response_token_count: Option<u64>,
    hash: Option<String>,
    trial: Option<u64>,
    #[serde(default)]
    data_lengths: Vec<u32>,
    #[serde(default)]
    time_diffs: Vec<f64>,
}

impl Record {
    fn stream(&self, number: u64, out: &mut Out<'_>) {
        if self.data_lengths.len() != self.time_diffs.len() {
            out.skip("lengths-and-times-differ-in-number");
            return;
        }
        let mut at = Micros(0);
        let mut deltas = Vec::with_capacity(self.time_diffs.len());
        for (seq, (&bytes, &diff)) in (0..).zip(self.data_lengths.iter().zip(&self.time_diffs).skip(1)) {
            if seq > 0 {
                let Some(step) = micros(diff) else {
                    out.skip("time-out-of-range");
                    return;
                };
                at = Micros(at.0 + step);
            }
            deltas.push(Delta { wire_bytes: bytes, ..Delta::new(seq, Kind::Text, Phase::Output, Some(at)) });
        }
        let id = self.hash.as_deref().unwrap_or(out.path());
        let summary = Summary {
            stream_id: key(&[id, &self.trial.unwrap_or(0).to_string(), &number.to_string()]),
            api: Some(Api::Chat),
            model_requested: self.chatbot_name.clone(),
            streamed: Some(true),
            started_at: self.timestamp.and_then(micros).map(UtcMicros),
            t_end: Some(at).filter(|_| !deltas.is_empty()),
            time_source: if deltas.is_empty() { TimeSource::None } else { TimeSource::Pcap },
            tls: Some(true),
            outcome: Outcome::Completed,
            usage: Usage { output: self.response_token_count, ..Usage::default() },
            ..out.summary()
        };
        out.stream(Stream { summary: &summary, deltas: &deltas, reads: &[] });
    }
}

/// Seconds to µs, within what 300 years hold.
fn micros(seconds: f64) -> Option<i64> {
    #[expect(clippy::cast_possible_truncation, reason = "checked to be within 300 years")]
    (seconds.abs() < 1e10).then(|| (seconds * 1e6).round() as i64)
}

#[cfg(test)]
mod tests {
    use super::super::tests::{data, folder, streams};

    /// n, and that no record is lost, against the file itself.
    #[test]
    fn ninety_captured_streams() {
        let path = data("timing/whisperleak/gpt4o-part1.json");
        let (imported, streams) = streams(&path);
        assert_eq!((imported.format, imported.streams), ("whisper-leak", 90));
        assert!(imported.skipped.is_empty());

        let file: serde_json::Value = serde_json::from_slice(&std::fs::read(path).unwrap()).unwrap();
        let mut steps = 0;
        for ((summary, deltas), record) in streams.iter().zip(file.as_array().unwrap()) {
            let diffs: Vec<f64> =
                record["time_diffs"].as_array().unwrap().iter().map(|diff| diff.as_f64().unwrap()).collect();
            assert_eq!(deltas.len(), diffs.len() - 1);
            assert_eq!(summary.usage.output, record["response_token_count"].as_u64());
            let step = deltas[1].t.unwrap().seconds() - diffs[2];
            assert!(step.abs() < 1e-6, "the first gap is the third difference");
            steps += diffs[2..].iter().filter(|diff| **diff < -5e-7).count();
            let backwards = deltas.windows(2).filter(|pair| pair[1].t < pair[0].t).count();
            assert_eq!(backwards, diffs[2..].iter().filter(|diff| **diff < -5e-7).count());
        }
        assert!(steps > 0, "some of these streams hold clock steps");
    }

    #[test]
    fn a_record_whose_arrays_differ_is_counted_and_the_rest_read() {
        let text = r#"[{"time_diffs":[0.1],"data_lengths":[1,2]},{"time_diffs":[0.1,1.0,0.02],"data_lengths":[9,8,7]}]"#;
        let folder = folder(&[("capture.json", text.as_bytes())]);
        let (imported, streams) = streams(&folder.path().join("capture.json"));
        assert_eq!(imported.skipped["lengths-and-times-differ-in-number"], 1);
        let times: Vec<_> = streams[0].1.iter().map(|delta| delta.t.unwrap().0).collect();
        assert_eq!(times, [0, 20_000]);
    }

    #[test]
    fn a_cut_file_keeps_what_was_read() {
        let text = r#"[{"time_diffs":[0.1,1.0,0.02],"data_lengths":[9,8,7]},{"time_diffs":[0.1"#;
        let folder = folder(&[("capture.json", text.as_bytes())]);
        let (imported, streams) = streams(&folder.path().join("capture.json"));
        assert_eq!(streams.len(), 1);
        assert!(imported.error.unwrap().contains("line 1"));
    }
}
