//! Recorded fan-outs: JSON Lines, one prompt with all its samples a line, or trace datasets.

use std::collections::BTreeMap;
use std::io::{BufRead as _, BufReader, Read as _};
use std::path::{Path, PathBuf};

use anyhow::Context as _;
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};
use sseismo_analysis::vote::Sample;
use sseismo_analysis::vote::answer::{self, Extract};
use sseismo_analysis::vote::geometry::MAX_TRACES;

use super::dataset;
use super::live::Price;

/// Longer lines are left out: so many bytes are no fan-out, and would only cost memory.
const LONGEST: u64 = 64 * 1024 * 1024;

/// One file.
#[derive(Debug, Default, Serialize)]
pub(super) struct Input {
    pub(super) path: String,
    pub(super) fan_outs: u64,
    pub(super) samples: u64,
    /// Lines, or streams and groups of a dataset, left out, by reason.
    pub(super) skipped: BTreeMap<&'static str, u64>,
    /// The first line that was left out.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) first_skipped: Option<u64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) error: Option<String>,
}

/// One prompt and its samples.
#[derive(Debug)]
pub(super) struct FanOut {
    pub(super) id: String,
    pub(super) samples: Vec<Sample>,
    /// Whether each sample is right; `None` when one of them is not labelled.
    pub(super) correct: Option<Vec<bool>>,
}

#[derive(Deserialize)]
struct Record {
    #[serde(alias = "id")]
    qid: Option<Value>,
    samples: Vec<Map<String, Value>>,
    #[serde(flatten)]
    rest: Map<String, Value>,
}

/// What is wanted of recorded fan-outs.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Wanted<'a> {
    /// How answers are extracted; `None` takes recorded ones where there are any.
    pub(super) extract: Option<&'a Extract>,
    /// The field that says what is right.
    pub(super) label: Option<&'a str>,
    /// Prices the tokens of streams that have no cost of their own.
    pub(super) price: Option<Price>,
}

/// Reads every file; of a folder that is no dataset, its `.jsonl` files in order of name.
///
/// # Errors
/// When a path does not exist or a folder holds no JSON Lines file.
pub(super) fn read(paths: &[PathBuf], wanted: Wanted<'_>) -> anyhow::Result<(Vec<Input>, Vec<FanOut>)> {
    let mut inputs = Vec::new();
    let mut fan_outs = Vec::new();
    for path in files(paths)? {
        let mut input = Input { path: path.display().to_string(), ..Input::default() };
        if dataset::is_dataset(&path) {
            let read = dataset::read(&path, wanted, &mut input, &mut fan_outs);
            input.error = read.err().map(|error| error.to_string());
        } else if let Err(error) = read_file(&path, wanted.extract, wanted.label, &mut input, &mut fan_outs) {
            input.error = Some(error.to_string());
        } else if input.fan_outs == 0 {
            input.error = Some("no line is a fan-out: each must be a JSON object with `samples`, a list of objects with `text`".to_owned());
        }
        inputs.push(input);
    }
    Ok((inputs, fan_outs))
}

fn files(paths: &[PathBuf]) -> anyhow::Result<Vec<PathBuf>> {
    let mut files = Vec::new();
    for path in paths {
        if !path.is_dir() || dataset::is_dataset(path) {
            files.push(path.clone());
            continue;
        }
        let entries = std::fs::read_dir(path).with_context(|| format!("cannot read {}", path.display()))?;
        let mut inside: Vec<PathBuf> = entries
            .filter_map(|entry| Some(entry.ok()?.path()))
            .filter(|file| file.extension().is_some_and(|ext| ext == "jsonl"))
            .collect();
        anyhow::ensure!(!inside.is_empty(), "{} holds no .jsonl file", path.display());
        inside.sort();
        files.extend(inside);
    }
    Ok(files)
}

fn read_file(
    path: &Path,
    extract: Option<&Extract>,
    label: Option<&str>,
    input: &mut Input,
    fan_outs: &mut Vec<FanOut>,
) -> std::io::Result<()> {
    // Asked before it is opened: a named pipe without a writer would never open.
    if !std::fs::metadata(path)?.is_file() {
        return Err(std::io::Error::other("not a file; write the data to a .jsonl file first"));
    }
    let mut reader = BufReader::new(std::fs::File::open(path)?);
    let mut line = Vec::new();
    for number in 1.. {
        line.clear();
        if reader.by_ref().take(LONGEST).read_until(b'\n', &mut line)? == 0 {
            break;
        }
        if line.len() as u64 == LONGEST && !line.ends_with(b"\n") {
            reader.skip_until(b'\n')?;
            *input.skipped.entry("line-too-long").or_default() += 1;
            input.first_skipped.get_or_insert(number);
            continue;
        }
        if line.trim_ascii().is_empty() {
            continue;
        }
        match fan_out(&line, number, extract, label) {
            Ok(fan_out) => {
                input.fan_outs += 1;
                input.samples += fan_out.samples.len() as u64;
                fan_outs.push(fan_out);
            }
            Err(reason) => {
                *input.skipped.entry(reason).or_default() += 1;
                input.first_skipped.get_or_insert(number);
            }
        }
    }
    Ok(())
}

fn fan_out(
    line: &[u8],
    number: u64,
    extract: Option<&Extract>,
    label: Option<&str>,
) -> Result<FanOut, &'static str> {
    let value: Value = serde_json::from_slice(line).map_err(|_| "not-json")?;
    let record: Record = serde_json::from_value(value).map_err(|_| "not-a-fan-out")?;
    if record.samples.is_empty() {
        return Err("no-samples");
    }
    if record.samples.len() > MAX_TRACES {
        return Err("too-many-samples");
    }
    let samples: Vec<Sample> = record
        .samples
        .iter()
        .map(|raw| sample(raw, extract))
        .collect::<Option<_>>()
        .ok_or("sample-without-text")?;
    let correct = label.and_then(|label| correct(&record, &samples, label));
    let id = match record.qid {
        Some(Value::String(id)) => id,
        Some(Value::Null) | None => format!("line {number}"),
        Some(other) => other.to_string(),
    };
    Ok(FanOut { id, samples, correct })
}

fn sample(raw: &Map<String, Value>, extract: Option<&Extract>) -> Option<Sample> {
    let text = raw.get("text")?.as_str()?;
    let trace = match raw.get("reasoning").and_then(Value::as_str) {
        Some(reasoning) => format!("{reasoning}\n{text}"),
        None => text.to_owned(),
    };
    let answer = match (extract, raw.get("answer")) {
        (Some(extract), _) => extract.answer(text),
        (None, Some(Value::Null)) => None,
        (None, Some(Value::String(answer))) => Some(answer.clone()),
        (None, Some(other)) => Some(other.to_string()),
        (None, None) => Extract::Auto.answer(text),
    };
    let tokens = raw.get("tokens").and_then(Value::as_u64);
    let cost_usd = raw.get("cost_usd").and_then(Value::as_f64).filter(|cost| cost.is_finite());
    Some(Sample { trace, answer, tokens, cost_usd })
}

fn correct(record: &Record, samples: &[Sample], label: &str) -> Option<Vec<bool>> {
    if let Some(right) = record.rest.get(label) {
        let right = right.as_str().map_or_else(|| right.to_string(), str::to_owned);
        // Together, so that a bare number and the same number with its unit are one answer.
        let mut answers: Vec<Option<&str>> = samples.iter().map(|s| s.answer.as_deref()).collect();
        answers.push(Some(&right));
        let mut keys = answer::keys(&answers);
        let right = keys.pop()??;
        return Some(keys.iter().map(|key| key.as_ref() == Some(&right)).collect());
    }
    record.samples.iter().map(|raw| raw.get(label)?.as_bool()).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn one(line: &str, extract: Option<&Extract>, label: Option<&str>) -> Result<FanOut, &'static str> {
        fan_out(line.as_bytes(), 7, extract, label)
    }

    #[test]
    fn a_recorded_answer_counts_unless_extraction_is_asked_for() {
        let line =
            r#"{"samples":[{"text":"A: 1","answer":"2"},{"text":"A: 3","answer":null},{"text":"A: 4"}]}"#;
        let answers = |fan_out: FanOut| fan_out.samples.into_iter().map(|s| s.answer).collect::<Vec<_>>();
        let some = |text: &str| Some(text.to_owned());
        assert_eq!(answers(one(line, None, None).unwrap()), [some("2"), None, some("4")]);
        assert_eq!(
            answers(one(line, Some(&Extract::Auto), None).unwrap()),
            [some("1"), some("3"), some("4")]
        );
    }

    #[test]
    fn labels_are_a_field_of_each_sample_or_the_right_answer() {
        let line = r#"{"qid":"q","gold":5,"samples":[{"text":"","answer":"5 cm","ok":true},{"text":"","answer":"7","ok":false}]}"#;
        assert_eq!(one(line, None, Some("ok")).unwrap().correct, Some(vec![true, false]));
        assert_eq!(one(line, None, Some("gold")).unwrap().correct, Some(vec![true, false]));
        assert_eq!(one(line, None, Some("missing")).unwrap().correct, None);
        assert_eq!(one(line, None, None).unwrap().id, "q");
    }

    #[test]
    fn bad_lines_have_a_reason() {
        assert_eq!(one("{", None, None).unwrap_err(), "not-json");
        assert_eq!(one("{}", None, None).unwrap_err(), "not-a-fan-out");
        assert_eq!(one(r#"{"samples":[]}"#, None, None).unwrap_err(), "no-samples");
        assert_eq!(one(r#"{"samples":[{"x":1}]}"#, None, None).unwrap_err(), "sample-without-text");
    }

    #[test]
    fn a_bad_line_does_not_stop_the_rest() {
        let file = tempfile::NamedTempFile::new().unwrap();
        std::fs::write(
            file.path(),
            "{\"samples\":[{\"text\":\"A: 1\"}]}\n\nnope\n{\"samples\":[{\"text\":\"A: 2\"}]}",
        )
        .unwrap();
        let (inputs, fan_outs) = read(&[file.path().to_owned()], Wanted::default()).unwrap();
        assert_eq!(fan_outs.len(), 2);
        assert_eq!((inputs[0].skipped["not-json"], inputs[0].first_skipped), (1, Some(3)));
        let (inputs, _) = read(&[PathBuf::from("/nonexistent")], Wanted::default()).unwrap();
        assert!(inputs[0].error.is_some());
    }
}
