//! Tables: the published ones, and what people's own may look like.

use std::collections::BTreeMap;

use super::super::tests::{Kept, data, folder, read};
use super::super::{Imported, Options};

fn options(map: &[(&str, &str)], labels: &[(&str, &str)], split: Option<&str>) -> Options {
    let owned = |pairs: &[(&str, &str)]| {
        pairs.iter().map(|(key, value)| ((*key).to_owned(), (*value).to_owned())).collect::<BTreeMap<_, _>>()
    };
    Options { map: owned(map), labels: owned(labels), split: split.map(str::to_owned) }
}

fn read_text(text: &[u8], options: &Options) -> (Imported, Kept) {
    let folder = folder(&[("table", text)]);
    let (mut imported, kept) = read(&folder.path().join("table"), options);
    (imported.remove(0), kept)
}

fn counts(kept: &Kept) -> Vec<Option<f64>> {
    kept.streams.iter().map(|(_, summary)| summary.usage.reasoning).collect()
}

#[test]
fn the_candy_study_is_read_with_labels_and_arms() {
    let options = options(&[], &[("correct", "adjudicated_correct")], Some("arm"));
    let (imported, kept) = read(&data("counts/candy-study/gpt-5.5-xhigh.csv"), &options);
    assert_eq!((imported[0].format, imported[0].streams), ("counts", 200));
    assert_eq!((&imported[0].error, imported[0].skipped.len()), (&None, 0));
    let hits: Vec<_> =
        kept.streams.iter().filter(|(_, s)| s.usage.reasoning == Some(516.0)).map(|(_, s)| s).collect();
    assert_eq!(hits.len(), 129, "as published");
    assert!(hits.iter().all(|summary| summary.labels["correct"] == "false"));
    let correct = |arm: &str| {
        kept.streams
            .iter()
            .filter(|(_, s)| s.canary_arm.as_deref() == Some(arm) && s.labels["correct"] == "true")
            .count()
    };
    assert_eq!((correct("control"), correct("treatment")), (34, 31), "as published");
    let first = &kept.streams[0].1;
    assert_eq!(first.model(), Some("gpt-5.5"), "as the file's name says");
    assert_eq!(first.effort.as_deref(), Some("xhigh"));
    assert!(!imported[0].notes.is_empty(), "and the report says so");
    assert_eq!(first.t_end, Some(sseismo_trace::Micros(20_158_000)));
    assert_eq!(first.t_first_output, Some(sseismo_trace::Micros(18_505_000)));
    assert_eq!(
        (first.usage.input, first.usage.cached, first.usage.output),
        (Some(11331), Some(9088), Some(700))
    );
    assert_eq!(first.labels.len(), 1, "no other column was asked for");
}

#[test]
fn a_label_that_a_file_lacks_is_an_error_with_its_columns() {
    let options = options(&[], &[("correct", "adjudicated_correct")], None);
    let (imported, kept) = read(&data("counts/candy-study/gpt-5.3-codex-spark-xhigh.csv"), &options);
    let error = imported[0].error.as_ref().unwrap();
    assert!(error.contains("no column `adjudicated_correct`") && error.contains("strict_correct"), "{error}");
    assert!(kept.streams.is_empty());
}

#[test]
fn the_token_economy_table_is_read_by_model() {
    let (imported, kept) = read(&data("counts/lrm-token-economy"), &Options::default());
    let table = imported.iter().find(|file| file.format == "counts").unwrap();
    assert_eq!(table.error, None);
    let of = |model: &str| -> Vec<f64> {
        kept.streams
            .iter()
            .filter(|(_, s)| s.model() == Some(model))
            .filter_map(|(_, s)| s.usage.reasoning)
            .filter(|tokens| *tokens > 0.0)
            .collect()
    };
    for (model, n) in [("o1-mini", 95), ("o4-mini-high-long", 93)] {
        let tokens = of(model);
        assert_eq!(tokens.len(), n, "{model}, as published");
        assert!(tokens.iter().all(|tokens| tokens % 64.0 == 0.0), "{model}, as published");
    }
    assert!(kept.streams[0].0.ends_with("evaluation_stats.csv"), "a table is its own source");
}

#[test]
fn tabs_semicolons_and_single_columns_are_tables() {
    for text in [
        "model\treasoning_tokens\nm\t516\nm\t1034\n",
        "model;Reasoning Tokens;note\nm;516;\"a;b\"\nm;1034;\n",
        "reasoning_tokens\n516\n1034\n",
        "\u{feff}reasoning_tokens,model\r\n516,m\r\n1034,m\r\n",
        "note,reasoning_tokens\n\"two\nlines\",516\nx,1034",
    ] {
        let (imported, kept) = read_text(text.as_bytes(), &Options::default());
        assert_eq!(counts(&kept), [Some(516.0), Some(1034.0)], "{text:?}: {imported:?}");
    }
}

#[test]
fn objects_are_read_by_nested_paths() {
    let text = br#"{"model":"m","usage":{"output_tokens":536,"output_tokens_details":{"reasoning_tokens":516}},"ok":true,"session_id":"s"}
{"event":"heartbeat"}
[1]
{"model":"m","usage":{"output_tokens_details":{"reasoning_tokens":10.5}},"ok":false}
{"model":"m","usage":{"outp"#;
    let (imported, kept) = read_text(text, &options(&[], &[("correct", "ok")], None));
    assert_eq!(counts(&kept), [Some(516.0), Some(10.5)]);
    assert_eq!(kept.streams[0].1.labels["correct"], "true");
    assert_eq!(kept.streams[0].1.usage.output, Some(536));
    assert!(kept.streams[0].1.session_key.is_some());
    assert_eq!(imported.skipped, [("no-count", 1), ("not-an-object", 1), ("torn-line", 1)].into());
}

#[test]
fn the_shallow_name_wins_over_the_deep_one() {
    let text = br#"{"usage":{"reasoning_tokens":1},"reasoning_tokens":516}"#;
    assert_eq!(counts(&read_text(text, &Options::default()).1), [Some(516.0)]);
}

#[test]
fn unknown_columns_are_named_and_can_be_mapped() {
    let text = b"when,thoughts,who\n1,516,m\n2,1034,m\n";
    let (imported, _) = read_text(text, &Options::default());
    let error = imported.error.unwrap();
    assert!(
        error.contains("columns: when, thoughts, who") && error.contains("--map reasoning=COLUMN"),
        "{error}"
    );
    let mapped = options(&[("reasoning", "thoughts"), ("model", "who")], &[], None);
    let (imported, kept) = read_text(text, &mapped);
    assert_eq!((counts(&kept), kept.streams[0].1.model()), (vec![Some(516.0), Some(1034.0)], Some("m")));
    assert_eq!(imported.error, None);
    let (imported, _) = read_text(b"reasoning_tokens\n1\n", &options(&[("colour", "red")], &[], None));
    assert!(imported.error.unwrap().contains("--map: no field `colour`"));
    let (imported, _) = read_text(b"{\"reasoning_tokens\":1}\n", &options(&[], &[("correct", "no")], None));
    assert!(imported.error.unwrap().contains("no column `no`"));
}

#[test]
fn bad_rows_are_counted_and_the_rest_is_read() {
    let text = b"model,reasoning_tokens,note\nm,516,\nm,many,\nm,-3,\nm\xff,9,\nm,1034,\xff\nm,,\nm\n";
    let (imported, kept) = read_text(text, &Options::default());
    assert_eq!(counts(&kept), [Some(516.0), Some(1034.0)], "bytes in other columns do no harm");
    assert_eq!(
        imported.skipped,
        [("invalid-utf8", 1), ("negative-count", 1), ("no-count", 2), ("not-a-number", 1)].into()
    );
}

#[test]
fn a_text_is_never_taken_as_a_label() {
    let text = format!("reasoning_tokens,answer\n1,{}\n2,short\n", "word ".repeat(20));
    let (imported, kept) = read_text(text.as_bytes(), &options(&[], &[("a", "answer")], None));
    assert_eq!(kept.streams.len(), 1);
    assert_eq!(imported.skipped, [("label-too-long", 1)].into());
}

#[test]
fn tables_of_something_else_are_passed_over_in_a_folder() {
    let folder = folder(&[("a.csv", b"a,b\n1,2\n"), ("b.csv", b"reasoning_tokens\n1\n")]);
    let (imported, kept) = read(folder.path(), &Options::default());
    assert_eq!(kept.streams.len(), 1);
    assert!(imported.iter().all(|file| file.error.is_none()));
    assert_eq!(imported[0].skipped, [("other-file", 1)].into());
}
