//! Rollouts: the repository's real and invented files, and each trap on its own.

use std::fs;

use proptest::prelude::*;
use sseismo_trace::Summary;

use super::super::tests::{Kept, data, folder, read};
use super::super::{Imported, Options, import};
use super::*;

/// (model, effort, reasoning tokens) of each stream.
fn counts(kept: &Kept) -> Vec<(Option<&str>, Option<&str>, Option<f64>)> {
    let of = |summary: &'_ Summary| summary.usage.reasoning;
    kept.streams.iter().map(|(_, s)| (s.model(), s.effort.as_deref(), of(s))).collect()
}

fn skipped(imported: &Imported) -> Vec<(&str, u64)> {
    imported.skipped.iter().map(|(reason, count)| (*reason, *count)).collect()
}

/// One line, `second` seconds after ten.
fn line(second: u32, kind: &str, payload: &str) -> String {
    let (minute, second) = (second / 60, second % 60);
    format!(
        "{{\"timestamp\":\"2026-07-01T10:{minute:02}:{second:02}.000Z\",\"type\":\"{kind}\",\"payload\":{payload}}}\n"
    )
}

fn tokens(input: u64, reasoning: u64) -> String {
    format!(
        r#"{{"input_tokens":{input},"output_tokens":{},"reasoning_output_tokens":{reasoning}}}"#,
        reasoning + 10
    )
}

fn count(second: u32, total: (u64, u64), last: (u64, u64)) -> String {
    let info = format!(
        r#"{{"type":"token_count","info":{{"total_token_usage":{},"last_token_usage":{}}}}}"#,
        tokens(total.0, total.1),
        tokens(last.0, last.1)
    );
    line(second, "event_msg", &info)
}

fn meta(more: &str) -> String {
    line(0, "session_meta", &format!(r#"{{"id":"s","originator":"codex-tui"{more}}}"#))
}

fn context(second: u32, turn: &str) -> String {
    line(second, "turn_context", &format!(r#"{{"turn_id":"{turn}","model":"gpt-5.5","effort":"xhigh"}}"#))
}

fn read_text(text: &str) -> (Imported, Kept) {
    let folder = folder(&[("rollout.jsonl", text.as_bytes())]);
    let (mut imported, kept) = read(&folder.path().join("rollout.jsonl"), &Options::default());
    (imported.remove(0), kept)
}

#[test]
fn the_invented_file_is_read_right() {
    let (imported, kept) = read(&data("rollouts/rollout-invented.jsonl"), &Options::default());
    assert_eq!(
        counts(&kept),
        [
            (Some("gpt-5.5"), Some("xhigh"), Some(516.0)),
            (Some("gpt-5.5"), Some("xhigh"), Some(516.0)),
            (Some("gpt-5.4"), Some("high"), Some(700.0))
        ]
    );
    assert_eq!(skipped(&imported[0]), [("null-info", 1), ("repeated-snapshot", 1), ("torn-line", 1)]);
    assert_eq!((imported[0].format, imported[0].streams, imported[0].events), ("codex-rollout", 3, 0));
    assert_eq!(imported[0].error, None);
    let first = &kept.streams[0].1;
    assert_eq!(first.t_end, Some(Micros(19_000_000)), "from the turn's context to its counts");
    assert_eq!(kept.streams[1].1.t_end, None, "nothing tells when the second request was sent");
    assert_eq!((first.turn_index, kept.streams[2].1.turn_index), (Some(0), Some(1)));
    assert_eq!(first.session_key, kept.streams[2].1.session_key);
    assert_ne!(first.turn_key, kept.streams[2].1.turn_key);
}

#[test]
fn files_of_0_171_count_each_response_once() {
    for (file, reasoning, effort) in
        [("rt0", 0.0, None), ("rt64", 64.0, Some("high")), ("rt516", 516.0, None), ("rt2588", 2588.0, None)]
    {
        let path = data(&format!("rollouts/rollout-codex-0.171-{file}.jsonl"));
        let (imported, kept) = read(&path, &Options::default());
        assert_eq!(counts(&kept), [(Some("gpt-5.5"), effort, Some(reasoning))], "{file}");
        assert_eq!(skipped(&imported[0]), [("recorded-twice", 1)], "{file}");
        assert_eq!(kept.streams[0].1.client_app.as_deref(), Some("codex_exec"));
    }
}

#[test]
fn a_folder_is_one_source_and_its_other_files_are_counted() {
    let (imported, kept) = read(&data("rollouts"), &Options::default());
    assert_eq!(imported.iter().filter(|file| file.format == "codex-rollout").count(), 5);
    let folder = imported.iter().find(|entry| entry.format == "folder").unwrap();
    assert_eq!((skipped(folder), &folder.error), (vec![("other-file", 1)], &None), "its NOTICE");
    assert_eq!(kept.streams.len(), 7);
    let source = data("rollouts").display().to_string();
    assert!(kept.streams.iter().all(|(of, _)| *of == source));
    let mut ids: Vec<u64> = kept.streams.iter().map(|(_, summary)| summary.stream_id).collect();
    ids.sort_unstable();
    ids.dedup();
    assert_eq!(ids.len(), 7, "stream ids are unique");
}

#[test]
fn compressed_logs_read_the_same_and_a_cut_one_says_so() {
    let plain = fs::read(data("rollouts/rollout-invented.jsonl")).unwrap();
    // Long enough that the cut does not take everything.
    let long = [plain.repeat(1), context(100, "t9").repeat(20_000).into_bytes()].concat();
    let zst = zstd::encode_all(&long[..], 3).unwrap();
    let folder = folder(&[("whole.jsonl.zst", &zst), ("cut.jsonl.zst", &zst[..zst.len() - 9])]);
    let (imported, kept) = read(folder.path(), &Options::default());
    let [cut, whole] = &imported[..] else { panic!("{imported:?}") };
    assert_eq!((whole.streams, &whole.error), (3, &None));
    assert_eq!(cut.streams, 3, "what stands before the cut is read");
    assert!(cut.error.as_ref().unwrap().contains("too early"), "{cut:?}");
    assert_eq!(kept.bytes, super::super::bytes(folder.path()));
}

#[test]
fn forks_do_not_count_their_parents_responses_again() {
    let text = [
        meta(r#","forked_from_id":"parent""#),
        line(0, "session_meta", r#"{"id":"parent"}"#),
        context(0, "t1"),
        count(1, (1000, 516), (1000, 516)),
        count(2, (2000, 1032), (1000, 516)),
        context(30, "t2"),
        count(60, (3000, 1132), (1000, 100)),
    ]
    .concat();
    let (imported, kept) = read_text(&text);
    assert_eq!(counts(&kept), [(Some("gpt-5.5"), Some("xhigh"), Some(100.0))]);
    assert_eq!(skipped(&imported), [("forked-copy", 2)]);
    assert_eq!(kept.streams[0].1.session_key, Some(key(&["s"])), "its own id, not its parent's");
}

#[test]
fn a_resumed_session_repeats_its_meta_and_its_last_counts() {
    let text = [
        meta(""),
        context(1, "t1"),
        count(20, (1000, 516), (1000, 516)),
        meta(""),
        count(3000, (1000, 516), (1000, 516)),
        context(3001, "t2"),
        count(3030, (2000, 1032), (1000, 516)),
    ]
    .concat();
    let (imported, kept) = read_text(&text);
    assert_eq!(kept.streams.len(), 2);
    assert_eq!(skipped(&imported), [("repeated-snapshot", 1)]);
}

#[test]
fn helpers_have_a_source_of_their_own() {
    for more in
        [r#","source":{"subagent":"review"}"#, r#","parent_thread_id":"p""#, r#","thread_source":"subagent""#]
    {
        let text = [meta(more), context(5, "t1"), count(20, (1000, 516), (1000, 516))].concat();
        let (imported, kept) = read_text(&text);
        assert_eq!(kept.streams[0].0, format!("{} (helper threads)", imported.path), "{more}");
    }
    let reviewer = line(5, "turn_context", r#"{"turn_id":"t1","model":"codex-auto-review"}"#);
    let text = [meta(r#","source":"cli""#), reviewer, count(20, (1000, 516), (1000, 516))].concat();
    assert!(read_text(&text).1.streams[0].0.ends_with("(helper threads)"));
    let text = [meta(r#","source":"cli","thread_source":"user""#), count(20, (9, 9), (9, 9))].concat();
    let (imported, kept) = read_text(&text);
    assert_eq!(kept.streams[0].0, imported.path);
    assert_eq!(kept.streams[0].1.model(), None, "a turn before any context has no model");
}

#[test]
fn effort_is_found_in_all_three_shapes() {
    let old = line(1, "turn_context", r#"{"model":"m","effort":"high"}"#);
    let mode = line(
        1,
        "turn_context",
        r#"{"model":"m","collaboration_mode":{"settings":{"model":"x","reasoning_effort":"low"}}}"#,
    );
    let applied = old.clone()
        + &line(
            2,
            "event_msg",
            r#"{"type":"thread_settings_applied","thread_id":"s","thread_settings":{"model":"n","reasoning_effort":"xhigh"}}"#,
        );
    for (settings, model, effort) in [(old, "m", "high"), (mode, "m", "low"), (applied, "n", "xhigh")] {
        let (_, kept) = read_text(&[meta(""), settings, count(20, (1000, 1), (1000, 1))].concat());
        assert_eq!(counts(&kept), [(Some(model), Some(effort), Some(1.0))]);
    }
}

#[test]
fn counts_of_no_response_are_left_out() {
    let filled = r#"{"type":"token_count","info":{"total_token_usage":{"total_tokens":258400},"last_token_usage":{"total_tokens":9000}}}"#;
    let (imported, kept) = read_text(&[meta(""), line(5, "event_msg", filled)].concat());
    assert!(kept.streams.is_empty());
    assert_eq!(skipped(&imported), [("not-a-response", 1)]);
}

#[test]
fn totals_alone_are_differenced_and_flagged() {
    let total = |second, input, reasoning| {
        let total = tokens(input, reasoning);
        line(
            second,
            "event_msg",
            &format!(r#"{{"type":"token_count","info":{{"total_token_usage":{total}}}}}"#),
        )
    };
    let (_, kept) = read_text(&[meta(""), total(5, 1000, 516), total(9, 1800, 816)].concat());
    let reasoning: Vec<_> = kept.streams.iter().map(|(_, s)| (s.usage.reasoning, s.folded)).collect();
    assert_eq!(reasoning, [(Some(516.0), true), (Some(300.0), true)]);
}

#[test]
fn bad_lines_are_counted_and_the_rest_is_read() {
    let mut text = [meta(""), context(1, "t1")].concat().into_bytes();
    text.extend(b"{\"timestamp\":\"x\",\"type\":\"event_msg\",\"payload\":{\"type\":\"token_count\",\"m\":\"\xff\"}}\n");
    text.extend(line(2, "event_msg", r#"{"type":"token_count","info":"soon"}"#).bytes());
    text.extend(b"{\"timestamp\":\"2026\",\"type\":\"turn_context\",\"payload\":}\n");
    text.extend(b"{\"timestamp\":\"2026-07-01T10:00:0\n");
    text.extend(count(20, (1000, 516), (1000, 516)).bytes());
    let folder = folder(&[("rollout.jsonl", &text)]);
    let (imported, kept) = read(folder.path(), &Options::default());
    assert_eq!(kept.streams.len(), 1);
    assert_eq!(
        skipped(&imported[0]),
        [("invalid-json", 1), ("invalid-utf8", 1), ("torn-line", 1), ("unexpected-shape", 1)]
    );
}

#[test]
fn a_sink_that_breaks_ends_the_reading_and_keeps_what_was_read() {
    let text = [meta(""), context(1, "t1"), count(20, (1000, 516), (1000, 516))].concat();
    let filler = line(30, "compacted", &format!("\"{}\"", "x".repeat(1 << 20)));
    let folder = folder(&[("a.jsonl", (text.clone() + &filler).as_bytes()), ("b.jsonl", text.as_bytes())]);
    let mut kept = Kept { stop_after: Some(1), ..Kept::default() };
    let imported = import(folder.path(), &Options::default(), &mut kept);
    assert_eq!(imported.len(), 1);
    assert_eq!((imported[0].streams, &imported[0].error), (1, &None));
}

#[cfg(target_os = "linux")]
#[test]
fn an_unreadable_file_is_told_and_the_others_are_read() {
    let folder = folder(&[("a.jsonl", [meta(""), count(20, (9, 9), (9, 9))].concat().as_bytes())]);
    // A file whose reading fails even for root.
    std::os::unix::fs::symlink("/proc/self/mem", folder.path().join("b.jsonl")).unwrap();
    let (imported, kept) = read(folder.path(), &Options::default());
    assert_eq!(kept.streams.len(), 1);
    assert!(imported[1].error.as_ref().unwrap().starts_with("cannot be read"), "{imported:?}");
}

#[test]
fn a_file_that_vanishes_while_others_are_read_is_told() {
    struct Remover(std::path::PathBuf);
    impl super::super::Sink for Remover {
        fn stream(&mut self, _: &str, _: sseismo_trace::Stream<'_>) {
            let _ = fs::remove_file(&self.0);
        }
        fn progress(&mut self, _: u64) -> std::ops::ControlFlow<()> {
            std::ops::ControlFlow::Continue(())
        }
    }
    let text = [meta(""), count(20, (9, 9), (9, 9))].concat();
    let folder = folder(&[("a.jsonl", text.as_bytes()), ("b.jsonl", text.as_bytes())]);
    let imported = import(folder.path(), &Options::default(), &mut Remover(folder.path().join("b.jsonl")));
    assert_eq!(imported[0].streams, 1);
    assert!(imported[1].error.as_ref().unwrap().contains("went away"), "{imported:?}");
}

proptest! {
    /// Law: a log that was cut anywhere gives the streams before the cut, and at most one torn line.
    #[test]
    fn a_cut_log_gives_the_streams_before_the_cut(cut in 0.0..1.0_f64) {
        let whole = fs::read(data("rollouts/rollout-invented.jsonl")).unwrap();
        #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, clippy::cast_precision_loss,
            reason = "a place in a small file")]
        let cut = (whole.len() as f64 * cut) as usize;
        let folder = folder(&[("whole", &whole), ("cut", &whole[..cut])]);
        let all = read(&folder.path().join("whole"), &Options::default()).1;
        let (imported, some) = read(&folder.path().join("cut"), &Options::default());
        prop_assert_eq!(counts(&some), &counts(&all)[..some.streams.len()]);
        prop_assert!(imported[0].skipped.get("torn-line").copied().unwrap_or(0) <= 1);
        let usage = whole[..cut].split(|&byte| byte == b'\n').filter(|line| line.ends_with(b"}}}")).count();
        prop_assert!(some.streams.len() <= usage);
    }
}
