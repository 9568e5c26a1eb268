//! Fan-outs out of a trace dataset that kept its texts (`--keep-text`).
//!
//! Streams of one `group_id` asked the same: `sseismo capture` says so of what it repeats. So did attempts of
//! one turn that we recorded ourselves, because the hash in `turn_key` covers what was asked. A turn of a
//! foreign file may hold several prompts, so it makes no fan-out. Only completed answers are samples.

use std::collections::{BTreeMap, HashMap};
use std::ops::ControlFlow;
use std::path::Path;

use anyhow::ensure;
use sseismo_analysis::vote::Sample;
use sseismo_analysis::vote::answer::Extract;
use sseismo_analysis::vote::geometry::MAX_TRACES;
use sseismo_trace::parquet::{Dataset, Manifest};
use sseismo_trace::{Kind, Outcome, Provenance, Summary};

use super::live::cost;
use super::recorded::{FanOut, Input, Wanted};

/// Whether `path` is the folder of a dataset.
pub(super) fn is_dataset(path: &Path) -> bool {
    Manifest::path(path).is_file()
}

/// What ties streams together.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Tie {
    Group(u64),
    Turn(u64),
}

impl Tie {
    fn of(summary: &Summary) -> Option<Self> {
        let turn = summary.turn_key.filter(|_| summary.provenance == Provenance::Live);
        summary.group_id.map(Self::Group).or(turn.map(Self::Turn))
    }

    fn name(self) -> String {
        match self {
            Self::Group(id) => format!("group {id:016x}"),
            Self::Turn(id) => format!("turn {id:016x}"),
        }
    }
}

/// What one stream wrote.
#[derive(Debug, Default)]
struct Written {
    reasoning: String,
    output: String,
}

/// Adds the fan-outs of the dataset at `root`. The label wanted is one of the streams'
/// that is `true` or `false`.
///
/// # Errors
/// When it is no dataset that can be read, kept no texts, or has damaged parts; what could be read is kept.
pub(super) fn read(
    root: &Path,
    wanted: Wanted<'_>,
    input: &mut Input,
    fan_outs: &mut Vec<FanOut>,
) -> anyhow::Result<()> {
    let dataset = Dataset::open(root)?;
    ensure!(
        !dataset.manifest().left_out.iter().any(|table| table == "texts"),
        "the dataset has no texts: record with --keep-text to a new folder"
    );
    let mut ties: BTreeMap<Tie, Vec<Summary>> = BTreeMap::new();
    let mut written: HashMap<u64, Written> = HashMap::new();
    let mut damaged = dataset
        .summaries(|summary| {
            match Tie::of(summary) {
                None => skip(input, "stream-without-group"),
                Some(_) if summary.outcome != Outcome::Completed => skip(input, "stream-not-completed"),
                Some(tie) => {
                    written.insert(summary.stream_id, Written::default());
                    ties.entry(tie).or_default().push(summary.clone());
                }
            }
            ControlFlow::Continue(())
        })
        .damaged;
    let texts = dataset.texts(|text| {
        if let Some(written) = written.get_mut(&text.stream_id) {
            match text.kind {
                Kind::Reasoning | Kind::Summary => written.reasoning.push_str(&text.text),
                Kind::Text => written.output.push_str(&text.text),
                _ => {}
            }
        }
        ControlFlow::Continue(())
    });
    damaged.extend(texts.damaged);
    let mut found: Vec<(Tie, Vec<Summary>)> = ties.into_iter().collect();
    for (_, streams) in &mut found {
        streams.sort_by_key(|summary| (summary.started_at, summary.stream_id));
    }
    found.sort_by_key(|(tie, streams)| (streams.first().and_then(|summary| summary.started_at), *tie));
    for (tie, streams) in found {
        match fan_out(tie, &streams, &mut written, wanted) {
            Ok(fan_out) => {
                input.fan_outs += 1;
                input.samples += fan_out.samples.len() as u64;
                fan_outs.push(fan_out);
            }
            Err(reason) => skip(input, reason),
        }
    }
    ensure!(damaged.is_empty(), "{} parts cannot be read; the first: {}", damaged.len(), damaged[0]);
    ensure!(input.fan_outs > 0, "no two completed answers to the same prompt");
    Ok(())
}

fn skip(input: &mut Input, reason: &'static str) {
    *input.skipped.entry(reason).or_default() += 1;
}

fn fan_out(
    tie: Tie,
    streams: &[Summary],
    written: &mut HashMap<u64, Written>,
    wanted: Wanted<'_>,
) -> Result<FanOut, &'static str> {
    if streams.len() < 2 {
        return Err("single-answer");
    }
    if streams.len() > MAX_TRACES {
        return Err("too-many-samples");
    }
    let samples = streams
        .iter()
        .map(|summary| sample(summary, written.remove(&summary.stream_id).unwrap_or_default(), wanted))
        .collect();
    let is_right = |summary: &Summary, label: &str| summary.labels.get(label)?.parse::<bool>().ok();
    let correct =
        wanted.label.and_then(|label| streams.iter().map(|summary| is_right(summary, label)).collect());
    Ok(FanOut { id: tie.name(), samples, correct })
}

fn sample(summary: &Summary, written: Written, wanted: Wanted<'_>) -> Sample {
    let Written { reasoning, output } = written;
    let priced = wanted.price.and_then(|price| cost(price, summary.usage));
    Sample {
        answer: wanted.extract.unwrap_or(&Extract::Auto).answer(&output),
        trace: if reasoning.is_empty() { output } else { format!("{reasoning}\n{output}") },
        tokens: summary.usage.output,
        cost_usd: summary.cost_usd.filter(|cost| cost.is_finite()).or(priced),
    }
}

#[cfg(test)]
mod tests {
    use sseismo_trace::parquet::{Anchor, PartName, PartWriter, Text, partition};
    use sseismo_trace::{Micros, Usage, UtcMicros};

    use super::*;

    const NOON: UtcMicros = UtcMicros(1_767_268_800_000_000);

    /// A dataset of these streams, each with its reasoning and its output in two events.
    fn dataset(streams: Vec<(Summary, &str, &str)>, left_out: &[&str]) -> tempfile::TempDir {
        let folder = tempfile::tempdir().unwrap();
        let left_out = left_out.iter().map(|table| (*table).to_owned()).collect();
        Manifest { left_out, ..Manifest::default() }.create_or_load(folder.path()).unwrap();
        let anchor = Anchor { wall: NOON, monotonic: Micros(0) };
        let name = PartName { unix_s: 1, pid: 1, n: 0 };
        let mut part = PartWriter::new(folder.path(), &partition(Some(NOON)), name, &[anchor]);
        for (summary, reasoning, output) in streams {
            let stream_id = summary.stream_id;
            for (seq, kind, text) in [(0, Kind::Reasoning, reasoning), (1, Kind::Text, output)] {
                part.text(Text { stream_id, seq, kind, text: text.to_owned() }).unwrap();
            }
            part.summary(summary).unwrap();
        }
        part.finish().unwrap();
        folder
    }

    fn stream(stream_id: u64, group_id: Option<u64>, turn_key: Option<u64>) -> Summary {
        Summary {
            stream_id,
            group_id,
            turn_key,
            started_at: Some(NOON),
            outcome: Outcome::Completed,
            usage: Usage { output: Some(10 * stream_id), ..Usage::default() },
            cost_usd: Some(0.25),
            labels: BTreeMap::from([("right".to_owned(), (stream_id != 2).to_string())]),
            ..Summary::default()
        }
    }

    fn read_all(folder: &Path, label: Option<&str>) -> (anyhow::Result<()>, Input, Vec<FanOut>) {
        let (mut input, mut fan_outs) = (Input::default(), Vec::new());
        let wanted = Wanted { label, ..Wanted::default() };
        let result = read(folder, wanted, &mut input, &mut fan_outs);
        (result, input, fan_outs)
    }

    #[test]
    fn streams_of_a_group_or_of_a_turn_of_ours_are_a_fan_out_and_no_others() {
        let foreign = Provenance::Import("codex-rollout".to_owned());
        let folder = dataset(
            vec![
                (stream(1, Some(7), None), "six sevens", "Answer: 42"),
                (stream(2, Some(7), Some(3)), "guess", "Answer: 41"),
                (stream(3, Some(7), None), "", "no answer"),
                (Summary { outcome: Outcome::Truncated, ..stream(4, Some(7), None) }, "cut", "Ans"),
                (stream(5, None, Some(9)), "a", "Answer: 1"),
                (stream(6, None, Some(9)), "b", "Answer: 1"),
                (Summary { provenance: foreign.clone(), ..stream(7, None, Some(8)) }, "c", "Answer: 2"),
                (Summary { provenance: foreign, ..stream(8, None, Some(8)) }, "d", "Answer: 2"),
                (stream(9, Some(1), None), "alone", "Answer: 3"),
            ],
            &["raw"],
        );
        let (result, input, fan_outs) = read_all(folder.path(), Some("right"));
        result.unwrap();
        assert_eq!((input.fan_outs, input.samples), (2, 5));
        let skipped = [("single-answer", 1), ("stream-not-completed", 1), ("stream-without-group", 2)];
        assert_eq!(input.skipped, BTreeMap::from(skipped));
        assert_eq!(fan_outs[0].id, "group 0000000000000007");
        assert_eq!(fan_outs[1].id, "turn 0000000000000009");
        let answers: Vec<_> = fan_outs[0].samples.iter().map(|sample| sample.answer.as_deref()).collect();
        assert_eq!(answers, [Some("42"), Some("41"), None]);
        assert_eq!(fan_outs[0].samples[0].trace, "six sevens\nAnswer: 42");
        assert_eq!((fan_outs[0].samples[1].tokens, fan_outs[0].samples[1].cost_usd), (Some(20), Some(0.25)));
        assert_eq!(fan_outs[0].correct, Some(vec![true, false, true]));
        assert_eq!(read_all(folder.path(), Some("missing")).2[0].correct, None);
    }

    #[test]
    fn a_dataset_without_texts_says_how_to_get_them() {
        let folder = dataset(Vec::new(), &["texts", "raw"]);
        assert!(is_dataset(folder.path()));
        assert!(read_all(folder.path(), None).0.unwrap_err().to_string().contains("--keep-text"));
    }
}
