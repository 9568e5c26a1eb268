//! Gaps of real streams, drawn as runs so that neighbours stay neighbours.
//!
//! Reads three of the forms in `data/timing`, by content: Whisper-Leak (packet captures; the first three
//! differences are the handshake and the first token, records under 1 ms apart are one frame, a negative
//! difference is a clock step and ends a run), AIPerf `profile_export.jsonl`, and the times between
//! network reads of a Mastra recording.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use serde::Deserialize;
use serde_json::{Value, json};

use super::Behaviour;
use super::steady::frame;
use crate::ask::Ask;
use crate::draw::Draw;
use crate::plan::Plan;
use crate::unit::Positive;

/// Shortest run of gaps that is worth drawing from.
const SHORTEST: usize = 8;

/// `kind = "resampled"`.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
pub(super) struct Resampled {
    /// The recording, relative to the scenario file.
    file: PathBuf,
    /// Tokens in a frame: 2.3 in the GPT-4o streams.
    #[serde(default = "tokens")]
    tokens: Positive,
    /// Runs of gaps, in seconds.
    #[serde(skip)]
    runs: Arc<Vec<Vec<f64>>>,
}

fn tokens() -> Positive {
    Positive(2.3)
}

impl Behaviour for Resampled {
    fn ready(&mut self, base: &Path) -> Result<(), (&'static str, String)> {
        let path = base.join(&self.file);
        let text = std::fs::read_to_string(&path)
            .map_err(|error| ("file", format!("cannot read {}: {error}", self.file.display())))?;
        let runs = runs(&text).map_err(|why| ("file", format!("{}: {why}", self.file.display())))?;
        self.runs = Arc::new(runs);
        Ok(())
    }

    fn shape(&mut self, _: &Ask, plan: &mut Plan, draw: &mut Draw) -> Option<Value> {
        let mut run: &[f64] = &[];
        plan.lay(draw, |draw, _| {
            if run.is_empty() {
                let whole = &self.runs[draw.index(self.runs.len())];
                run = &whole[draw.index(whole.len() - SHORTEST + 1)..];
            }
            let gap = run.first().copied().unwrap_or_default();
            run = run.get(1..).unwrap_or_default();
            (gap, frame(self.tokens, draw))
        });
        Some(json!({}))
    }
}

fn runs(text: &str) -> Result<Vec<Vec<f64>>, String> {
    let mut runs = match serde_json::from_str::<Value>(text) {
        Ok(Value::Array(streams)) => streams.iter().flat_map(packets).collect(),
        Ok(Value::Object(one)) if one.contains_key("chunkTimings") => vec![reads(&one["chunkTimings"])],
        _ => text.lines().filter_map(chunks).collect::<Vec<_>>(),
    };
    runs.retain(|run| run.len() >= SHORTEST);
    if runs.is_empty() {
        return Err("no run of gaps found; known are Whisper-Leak JSON, AIPerf profile_export.jsonl and \
                    a JSON object with chunkTimings"
            .into());
    }
    Ok(runs)
}

fn numbers(value: &Value) -> impl Iterator<Item = f64> {
    value.as_array().into_iter().flatten().filter_map(Value::as_f64)
}

fn packets(stream: &Value) -> Vec<Vec<f64>> {
    let mut runs = vec![Vec::new()];
    let mut held = 0.0;
    for diff in numbers(&stream["time_diffs"]).skip(3) {
        if diff < 0.0 {
            runs.push(Vec::new());
            held = 0.0;
        } else if diff < 1e-3 {
            held += diff;
        } else if let Some(run) = runs.last_mut() {
            run.push(diff + held);
            held = 0.0;
        }
    }
    runs
}

fn reads(timings: &Value) -> Vec<f64> {
    numbers(timings).map(|ms| ms / 1e3).collect()
}

fn chunks(line: &str) -> Option<Vec<f64>> {
    let record: Value = serde_json::from_str(line).ok()?;
    let gaps: Vec<f64> =
        numbers(&record["metrics"]["inter_chunk_latency"]["value"]).map(|ms| ms / 1e3).collect();
    (!gaps.is_empty()).then_some(gaps)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn data(file: &str) -> Vec<Vec<f64>> {
        let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../data/timing").join(file);
        runs(&std::fs::read_to_string(path).unwrap()).unwrap()
    }

    /// Published for all 180 streams: p50 20.2 ms, longest 600 ms; these 90 are half of them.
    #[test]
    fn real_gaps_are_as_published() {
        let mut gaps: Vec<f64> = data("whisperleak/gpt4o-part1.json").concat();
        gaps.sort_by(f64::total_cmp);
        let median = gaps[gaps.len() / 2];
        assert!((0.017..0.024).contains(&median), "{median}");
        assert!(*gaps.last().unwrap() <= 0.601);
        assert_eq!(data("aiperf/qwen-c1/profile_export.jsonl").len(), 10);
        assert_eq!(data("mastra/gpt-5.4_responses_reasoning-summary.json")[0].len(), 187);
    }

    #[test]
    fn a_file_without_gaps_is_refused() {
        assert!(runs("hello").unwrap_err().contains("no run of gaps"));
    }
}
