//! Recorded bodies of `data/sse` against snapshots and independent counts, and what they do not show.

use std::collections::BTreeMap;
use std::fmt::Write;
use std::io::Read;
use std::path::Path;

use proptest::prelude::*;
use sseismo_trace::Usage;

use super::*;

/// Everything that a body yields.
type Yield = (Vec<Delta>, Summary, Counts);

fn read<'a>(head: &Head<'_>, chunks: impl IntoIterator<Item = &'a [u8]>) -> Yield {
    let mut answer = Answer::new(head);
    let (mut deltas, mut summary) = (Vec::new(), Summary::default());
    for (read, bytes) in (0..).zip(chunks) {
        answer.push(Chunk { bytes, read, at: None }, |delta| deltas.push(delta));
    }
    let counts = answer.finish(&mut summary, |delta| deltas.push(delta));
    (deltas, summary, counts)
}

const SSE: Head<'_> = Head { path: "", content_type: Some("text/event-stream"), status: Some(200) };
const NDJSON: Head<'_> = Head { path: "", content_type: Some("application/x-ndjson"), status: Some(200) };
const JSON: Head<'_> =
    Head { path: "", content_type: Some("application/json; charset=utf-8"), status: Some(200) };

fn body(path: &Path) -> Vec<u8> {
    let stored = std::fs::read(path).unwrap();
    if path.extension().is_some_and(|extension| extension == "gz") {
        let mut plain = Vec::new();
        flate2::read::GzDecoder::new(stored.as_slice()).read_to_end(&mut plain).unwrap();
        return plain;
    }
    stored
}

/// The recorded body whose name begins with `number`.
fn recorded(number: &str) -> Vec<u8> {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../data/sse");
    let mut files = std::fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().path());
    body(&files.find(|path| path.file_name().unwrap().to_str().unwrap().starts_with(number)).unwrap())
}

/// Events and characters by kind, those without characters left out.
fn content(deltas: &[Delta]) -> BTreeMap<String, (u32, u32)> {
    let mut kinds = BTreeMap::new();
    for delta in deltas.iter().filter(|delta| delta.is_content()) {
        let (events, chars) = kinds.entry(format!("{:?}", delta.kind).to_lowercase()).or_insert((0, 0));
        *events += 1;
        *chars += delta.chars;
    }
    kinds
}

/// A few lines that change when the meaning of a body changes. No text of the stream.
fn reduced((deltas, summary, counts): &Yield) -> String {
    let mut out = String::new();
    let Usage { input, cached, output, reasoning } = summary.usage;
    writeln!(
        out,
        "{:?} {:?} effort {:?} {:?}",
        summary.api, summary.model_served, summary.effort, summary.outcome
    )
    .unwrap();
    writeln!(out, "input {input:?} cached {cached:?} output {output:?} reasoning {reasoning:?}").unwrap();
    writeln!(out, "estimated reasoning {:?}", summary.reasoning_tokens_est).unwrap();
    writeln!(out, "{counts:?}").unwrap();
    let mut groups: BTreeMap<String, [u64; 4]> = BTreeMap::new();
    for delta in deltas {
        let sums = groups.entry(format!("{:?} in {:?}", delta.kind, delta.phase)).or_default();
        for (sum, part) in sums.iter_mut().zip([1, delta.chars, delta.wire_bytes, delta.pad_bytes]) {
            *sum += u64::from(part);
        }
    }
    for (group, [events, chars, bytes, pad]) in groups {
        writeln!(out, "{group}: {events} events, {chars} chars, {bytes} bytes, {pad} pad").unwrap();
    }
    for d in deltas.iter().take(5) {
        let place = (d.item_index, d.provider_seq);
        writeln!(
            out,
            "#{} {:?} in {:?}: {} chars, {} bytes, {place:?}",
            d.seq, d.kind, d.phase, d.chars, d.wire_bytes
        )
        .unwrap();
    }
    out
}

#[test]
fn every_recorded_body_is_read_as_before() {
    insta::glob!("../../../../data/sse", "*.sse*", |path| {
        insta::assert_snapshot!(reduced(&read(&SSE, [body(path).as_slice()])));
    });
}

/// The text that was kept, by event, and the deltas.
fn heard<'a>(head: &Head<'_>, chunks: impl IntoIterator<Item = &'a [u8]>) -> (Vec<Words>, Vec<Delta>) {
    let mut answer = Answer::new(head).keep_words();
    let (mut words, mut deltas) = (Vec::new(), Vec::new());
    for bytes in chunks {
        answer.push(Chunk { bytes, read: 0, at: None }, |delta| deltas.push(delta));
        words.extend(answer.take_words());
    }
    let (_, rest) = answer.finish_with_words(&mut Summary::default(), |delta| deltas.push(delta));
    words.extend(rest);
    (words, deltas)
}

/// Every event's text has the characters that were measured in it, and the kind that has the most of them.
/// Tool arguments that come as a JSON object are kept without its blanks, so with fewer.
#[test]
fn the_text_kept_of_recorded_bodies_is_the_text_measured() {
    insta::glob!("../../../../data/sse", "*.sse*", |path| {
        let (words, deltas) = heard(&SSE, [body(path).as_slice()]);
        for delta in deltas {
            let said: Vec<_> = words.iter().filter(|words| words.seq == delta.seq).collect();
            let chars: usize = said.iter().map(|words| words.text.chars().count()).sum();
            let place = format!("{} of {}", delta.seq, path.display());
            let measured = if delta.is_content() { delta.chars as usize } else { 0 };
            let blanks = measured - chars.min(measured);
            assert!(chars <= measured && (blanks == 0 || delta.kind == Kind::Tool && blanks < 20), "{place}");
            assert!(chars == 0 || said.iter().any(|words| words.kind == delta.kind), "{place}");
        }
    });
}

#[test]
fn text_is_kept_only_when_asked_for_and_does_not_depend_on_reads() {
    let body = recorded("17");
    let (whole, _) = heard(&SSE, [body.as_slice()]);
    assert_eq!(heard(&SSE, body.chunks(7)).0, whole);
    let mut answer = Answer::new(&SSE);
    answer.push(Chunk { bytes: &body, read: 0, at: None }, drop);
    assert!(answer.take_words().is_empty());
    assert!(answer.finish_with_words(&mut Summary::default(), drop).1.is_empty());
}

#[test]
fn inline_reasoning_and_whole_answers_are_told_apart_from_the_answer() {
    let event = |text: &str| format!("data: {{\"choices\":[{{\"delta\":{{\"content\":\"{text}\"}}}}]}}\n\n");
    let stream = ["<thi", "nk>six ", "sevens</think>4", "2"].map(event).concat();
    let words = |head, body: &str| -> Vec<(u32, Kind, String)> {
        heard(head, [body.as_bytes()]).0.into_iter().map(|w| (w.seq, w.kind, w.text)).collect()
    };
    let said = |seq, kind, text: &str| (seq, kind, text.to_owned());
    assert_eq!(
        words(&SSE, &stream),
        [
            said(1, Kind::Reasoning, "six "),
            said(2, Kind::Reasoning, "sevens"),
            said(2, Kind::Text, "4"),
            said(3, Kind::Text, "2")
        ]
    );
    let both = [said(0, Kind::Reasoning, "six sevens"), said(0, Kind::Text, "42")];
    for whole in [
        r#"{"choices":[{"message":{"reasoning_content":"six sevens","content":"42"}}]}"#,
        r#"{"type":"message","content":[{"type":"thinking","thinking":"six sevens"},{"type":"text","text":"42"}]}"#,
        r#"{"object":"response","output":[{"type":"reasoning","content":[{"text":"six sevens"}]},{"type":"message","content":[{"text":"42"}]}]}"#,
        r#"{"model":"m","created_at":"","message":{"thinking":"six sevens","content":"42"},"done":true}"#,
        r#"{"finish_reason":"COMPLETE","message":{"content":[{"thinking":"six sevens"},{"text":"42"}]}}"#,
    ] {
        assert_eq!(words(&JSON, whole), both, "{whole}");
    }
    let gemini = r#"[{"candidates":[{"content":{"parts":[{"text":"six","thought":true},{"text":"4"}]}}]},
        {"candidates":[{"content":{"parts":[{"text":"2"}]}}]}]"#;
    assert_eq!(words(&JSON, gemini), [said(0, Kind::Summary, "six"), said(0, Kind::Text, "42")]);
}

/// Deltas as they do not depend on reads.
fn cut_free(deltas: Vec<Delta>) -> Vec<Delta> {
    let rid = |delta| Delta { first_read: None, extra_reads: 0, wire_bytes: 0, ..delta };
    deltas.into_iter().map(rid).collect()
}

#[test]
fn recorded_bodies_mean_the_same_in_small_reads() {
    for number in ["00", "09", "17", "20", "23", "25", "48"] {
        let body = recorded(number);
        let (deltas, summary, counts) = read(&SSE, [body.as_slice()]);
        let deltas = cut_free(deltas);
        for size in [1, 7, 1400] {
            let (cut, cut_summary, cut_counts) = read(&SSE, body.chunks(size));
            assert_eq!(
                (cut_free(cut), &cut_summary, cut_counts),
                (deltas.clone(), &summary, counts),
                "{number}"
            );
        }
    }
}

/// A row of the table below: body, API, outcome, usage (input, cached, output, reasoning), events, comments,
/// padding, content (kind, events, characters).
type Row<'a> = (&'a str, Api, Outcome, [Option<u64>; 4], [u64; 3], &'a [(&'a str, u32, u32)]);

/// Counted from the bodies by a separate script in another language, not by this crate.
#[rustfmt::skip]
const COUNTED: [Row<'static>; 17] = [
    ("05", Api::Messages, Outcome::Completed, [Some(404_500), Some(0), Some(943), Some(261)], [168, 0, 1253], &[("reasoning", 7, 1051), ("text", 5, 166), ("tool", 89, 566)]),
    ("07", Api::Responses, Outcome::Completed, [Some(366), Some(256), Some(59), Some(14)], [34, 0, 0], &[("reasoning", 14, 61), ("tool", 9, 17)]),
    ("09", Api::GenerateContent, Outcome::Completed, [Some(34), None, Some(469 + 787), Some(787)], [23, 0, 0], &[("summary", 4, 1575), ("text", 19, 1938)]),
    ("13", Api::Chat, Outcome::Completed, [Some(304), None, Some(49), Some(23)], [26, 0, 0], &[("reasoning", 22, 92), ("tool", 1, 18)]),
    ("15", Api::Chat, Outcome::Failed, [None, None, None, None], [86, 0, 0], &[("reasoning", 83, 361), ("text", 1, 5)]),
    ("17", Api::Chat, Outcome::Completed, [Some(10), None, Some(232), None], [159, 0, 0], &[("reasoning", 57, 421), ("text", 97, 607)]),
    ("18", Api::Responses, Outcome::Completed, [Some(78), Some(0), Some(37), Some(22)], [41, 1, 0], &[("reasoning", 26, 85), ("text", 1, 1)]),
    ("20", Api::Responses, Outcome::Completed, [Some(3727), Some(3200), Some(347), Some(128)], [365, 0, 4198], &[("summary", 92, 440), ("text", 215, 646), ("tool", 27, 60)]),
    ("22", Api::Chat, Outcome::Completed, [Some(13), Some(0), Some(564), Some(561)], [94, 0, 0], &[("reasoning", 90, 2173), ("text", 1, 1)]),
    ("23", Api::Cohere, Outcome::Completed, [Some(508), Some(144), Some(86), Some(28)], [73, 0, 0], &[("reasoning", 27, 146), ("text", 35, 170)]),
    ("25", Api::Chat, Outcome::Completed, [Some(300), None, Some(45), None], [16, 0, 0], &[("reasoning", 12, 61), ("tool", 1, 43)]),
    ("37", Api::Chat, Outcome::Completed, [Some(626), Some(0), Some(106), Some(54)], [23, 2, 0], &[("reasoning", 15, 211), ("tool", 2, 18)]),
    ("39", Api::Chat, Outcome::Completed, [Some(15), Some(0), Some(171), Some(160)], [171, 0, 0], &[("reasoning", 159, 674), ("text", 9, 10)]),
    ("48", Api::Chat, Outcome::Completed, [Some(888), Some(0), Some(74), Some(0)], [26, 30, 0], &[("text", 23, 109)]),
    ("59", Api::GenerateContent, Outcome::Completed, [Some(15 + 770), None, Some(37 + 742), Some(742)], [4, 0, 0], &[("text", 3, 108), ("tool", 1, 52)]),
    ("64", Api::Messages, Outcome::Completed, [Some(16), Some(0), Some(28), None], [10, 0, 101], &[("text", 4, 102)]),
    ("66", Api::Messages, Outcome::Completed, [Some(231), Some(0), Some(101), None], [13, 0, 103], &[("text", 7, 434)]),
];

#[test]
fn recorded_bodies_hold_what_was_counted_in_them() {
    for (number, api, outcome, [input, cached, output, reasoning], [events, comments, pad], kinds) in COUNTED
    {
        let (deltas, summary, counts) = read(&SSE, [recorded(number).as_slice()]);
        assert_eq!((summary.api, summary.outcome), (Some(api), outcome), "{number}");
        let usage = Usage { input, cached, output, reasoning: dialect::count(reasoning) };
        assert_eq!(summary.usage, usage, "{number}");
        assert_eq!((counts.events, counts.comments, counts.unreadable), (events, comments, 0), "{number}");
        assert_eq!(deltas.iter().map(|delta| u64::from(delta.pad_bytes)).sum::<u64>(), pad, "{number}");
        let kinds =
            kinds.iter().map(|(kind, events, chars)| ((*kind).to_owned(), (*events, *chars))).collect();
        assert_eq!(content(&deltas), kinds, "{number}");
    }
}

/// The NDJSON of a cassette: YAML in single quotes, where one line break is a blank and two are one.
fn cassette() -> String {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../data/timing/ollama/llama3-chat.yaml");
    let yaml = std::fs::read_to_string(path).unwrap();
    let (_, text) = yaml.split_once("string: '").unwrap();
    let mut lines = String::new();
    let mut rest = text;
    while let Some(at) = rest.find('\'') {
        lines.push_str(&rest[..at]);
        rest = &rest[at + 1..];
        if !rest.starts_with('\'') {
            break;
        }
        lines.push('\'');
        rest = &rest[1..];
    }
    let unfolded = lines.split("\n\n").map(|part| part.lines().map(str::trim).collect::<Vec<_>>().join(" "));
    unfolded.collect::<Vec<_>>().join("\n")
}

#[test]
fn ollama_lines_carry_the_servers_clock() {
    let (deltas, summary, counts) = read(&NDJSON, cassette().as_bytes().chunks(1000));
    assert_eq!((summary.api, summary.outcome, counts.unreadable), (Some(Api::Ollama), Outcome::Completed, 0));
    assert_eq!(summary.model_served.as_deref(), Some("llama3"));
    assert_eq!(
        (summary.usage.input, summary.usage.output, summary.usage.reasoning),
        (Some(17), Some(50), None)
    );
    assert_eq!((deltas.len(), deltas[0].provider_ts), (50, Some(1_716_582_406_294_874)));
    assert!(deltas.windows(2).all(|pair| pair[0].provider_ts < pair[1].provider_ts));
    assert_eq!(deltas.last().map(|delta| delta.kind), Some(Kind::Done));
}

#[test]
fn ndjson_without_a_content_type_is_read_at_its_end_and_claims_no_reads() {
    let lines = cassette();
    let (deltas, summary, counts) =
        read(&Head { content_type: None, ..NDJSON }, lines.as_bytes().chunks(1000));
    let (known, known_summary, known_counts) = read(&NDJSON, [lines.as_bytes()]);
    assert_eq!((summary, counts), (known_summary, known_counts));
    assert!(deltas.iter().all(|delta| delta.first_read.is_none()));
    assert_eq!(deltas.len(), known.len());
}

/// A whole answer: its JSON, API, outcome, usage (input, cached, output, reasoning), estimated reasoning.
type Whole<'a> = (&'a str, Api, Outcome, [Option<u64>; 4], Option<u64>);

#[test]
fn whole_answers_give_usage_wherever_each_api_puts_it() {
    let whole: [Whole<'_>; 8] = [
        (
            r#"{"object":"response","model":"m","status":"incomplete","output":[{"type":"reasoning","content":[{"type":"reasoning_text","text":"12345678"}]}],
                "usage":{"input_tokens":9,"input_tokens_details":{"cached_tokens":4},"output_tokens":8,"output_tokens_details":{"reasoning_tokens":6}}}"#,
            Api::Responses,
            Outcome::Incomplete,
            [Some(9), Some(4), Some(8), Some(6)],
            Some(2),
        ),
        (
            r#"{"object":"chat.completion","model":"m","choices":[{"message":{"content":"ok","reasoning_content":"1234"},"finish_reason":"length"}],
                "usage":{"prompt_tokens":9,"prompt_cache_hit_tokens":4,"completion_tokens":8,"total_tokens":17,"completion_tokens_details":{"reasoning_tokens":6}}}"#,
            Api::Chat,
            Outcome::Incomplete,
            [Some(9), Some(4), Some(8), Some(6)],
            Some(1),
        ),
        (
            r#"{"object":"chat.completion","model":"m","choices":[{"message":{"content":"<think>12345678</think>ok"},"finish_reason":"stop"}],
                "usage":{"prompt_tokens":9,"completion_tokens":2,"total_tokens":17,"completion_tokens_details":{"reasoning_tokens":6}}}"#,
            Api::Chat,
            Outcome::Completed,
            [Some(9), None, Some(8), Some(6)],
            Some(2),
        ),
        (
            r#"{"type":"message","model":"m","content":[{"type":"thinking","thinking":"1234"},{"type":"text","text":"ok"}],"stop_reason":"max_tokens",
                "usage":{"input_tokens":2,"cache_creation_input_tokens":3,"cache_read_input_tokens":4,"output_tokens":8,"output_tokens_details":{"thinking_tokens":6}}}"#,
            Api::Messages,
            Outcome::Incomplete,
            [Some(9), Some(4), Some(8), Some(6)],
            Some(1),
        ),
        (
            r#"[{"modelVersion":"m","candidates":[{"content":{"parts":[{"text":"x","thought":true}]}}]},
                {"candidates":[{"finishReason":"STOP"}],"usageMetadata":{"promptTokenCount":9,"cachedContentTokenCount":4,"candidatesTokenCount":2,"thoughtsTokenCount":6}}]"#,
            Api::GenerateContent,
            Outcome::Completed,
            [Some(9), Some(4), Some(8), Some(6)],
            None,
        ),
        (
            r#"{"model":"m","created_at":"2026-08-07T06:08:14Z","message":{"content":"ok","thinking":"1234"},"done":true,"done_reason":"stop","prompt_eval_count":9,"eval_count":8}"#,
            Api::Ollama,
            Outcome::Completed,
            [Some(9), None, Some(8), None],
            Some(1),
        ),
        (
            r#"{"id":"i","finish_reason":"COMPLETE","message":{"role":"assistant","content":[{"type":"thinking","thinking":"1234"}]},
                "usage":{"billed_units":{"input_tokens":1},"tokens":{"input_tokens":9,"output_tokens":8,"reasoning_tokens":6},"cached_tokens":4}}"#,
            Api::Cohere,
            Outcome::Completed,
            [Some(9), Some(4), Some(8), Some(6)],
            Some(1),
        ),
        (
            r#"{"object":"chat.completion","model":"m","choices":[],"error":{"message":"no"}}"#,
            Api::Chat,
            Outcome::Failed,
            [None; 4],
            None,
        ),
    ];
    for (json, api, outcome, [input, cached, output, reasoning], estimate) in whole {
        let (deltas, summary, counts) = read(&JSON, json.as_bytes().chunks(50));
        assert_eq!(
            (summary.api, summary.outcome, summary.streamed),
            (Some(api), outcome, Some(false)),
            "{json}"
        );
        assert_eq!(
            summary.usage,
            Usage { input, cached, output, reasoning: dialect::count(reasoning) },
            "{json}"
        );
        assert_eq!(
            (summary.reasoning_tokens_est, deltas.len(), counts),
            (estimate, 0, Counts::default()),
            "{json}"
        );
        let (_, sniffed, _) = read(&Head { content_type: None, ..JSON }, [json.as_bytes()]);
        assert_eq!(sniffed, summary);
    }
}

fn kinds(body: &str, head: &Head<'_>) -> (Vec<(Kind, Phase, u32)>, Outcome) {
    let (deltas, summary, _) = read(head, [body.as_bytes()]);
    (deltas.iter().map(|delta| (delta.kind, delta.phase, delta.chars)).collect(), summary.outcome)
}

#[test]
fn published_logs_with_token_counts_are_read() {
    let body = "data: {\"type\":\"response.reasoning.delta\",\"delta_tokens\":67}\n\n\
                data: {\"type\":\"response.output.delta\",\"delta\":\"ok\"}\n\n";
    let (deltas, summary, _) = read(&SSE, [body.as_bytes()]);
    assert_eq!((deltas[0].kind, deltas[0].tokens, deltas[0].tokens_est), (Kind::Reasoning, Some(67), None));
    assert_eq!((deltas[1].kind, deltas[1].tokens, deltas[1].tokens_est), (Kind::Text, None, Some(1)));
    assert_eq!((summary.api, summary.outcome), (Some(Api::Responses), Outcome::Truncated));
}

#[test]
fn inline_thinking_is_reasoning() {
    let piece = |text: &str| format!("data: {{\"choices\":[{{\"delta\":{{\"content\":\"{text}\"}}}}]}}\n\n");
    let body = ["<thi", "nk>abc", "d</think", ">ok"].map(piece).concat();
    let (kinds, _) = kinds(&body, &SSE);
    let expected = [
        (Kind::Meta, Phase::Queued, 0),
        (Kind::Reasoning, Phase::Reasoning, 3),
        (Kind::Reasoning, Phase::Reasoning, 1),
        (Kind::Text, Phase::Output, 2),
    ];
    assert_eq!(kinds, expected);
}

#[test]
fn an_error_in_the_middle_stands_whatever_follows() {
    for error in [
        "event: error\ndata: {\"type\":\"error\",\"error\":{\"type\":\"overloaded_error\"}}\n\n",
        "data: {\"error\":{\"message\":\"no\"}}\n\n",
    ] {
        let path = if error.starts_with("event") { "/v1/messages" } else { "/v1/chat/completions?x=1" };
        let (kinds, outcome) = kinds(&format!("{error}data: [DONE]\n\n"), &Head { path, ..SSE });
        assert_eq!((kinds[0].0, outcome), (Kind::Error, Outcome::Failed), "{error}");
    }
}

#[test]
fn a_stream_without_its_apis_end_is_truncated() {
    let start = "event: message_start\ndata: {\"type\":\"message_start\",\"message\":{}}\n\n";
    let stops = "event: message_delta\ndata: {\"delta\":{\"stop_reason\":\"end_turn\"}}\n\n";
    assert_eq!(kinds(&format!("{start}{stops}"), &SSE).1, Outcome::Truncated);
    assert_eq!(
        kinds(&format!("{start}{stops}event: message_stop\ndata: {{}}\n\n"), &SSE).1,
        Outcome::Completed
    );
    assert_eq!(kinds("data: {\"jsonrpc\":\"2.0\"}\n\n", &SSE).1, Outcome::Unknown);
    assert_eq!(kinds("", &Head { status: Some(503), ..SSE }).1, Outcome::Failed);
}

#[test]
fn unreadable_and_unknown_events_are_meta_and_the_rest_is_read() {
    let body = "data: {\"choices\":[]}\n\ndata: {\"choices\":\n\nevent: new.thing\ndata: {\"a\":1}\n\ndata: [DONE]\n\n";
    let (deltas, _, counts) = read(&SSE, [body.as_bytes()]);
    let kinds: Vec<_> = deltas.iter().map(|delta| delta.kind).collect();
    assert_eq!(kinds, [Kind::Meta, Kind::Meta, Kind::Meta, Kind::Done]);
    assert_eq!((counts.unreadable, counts.events), (1, 4));
}

#[test]
fn over_budget_the_body_is_passed_on_and_the_fact_is_told() {
    static TINY: Budget = Budget::new(1 << 10);
    let mut answer = Answer::within(&Head { path: "/v1/responses", ..SSE }, &TINY);
    let mut deltas = 0;
    for bytes in [&b": x\n\n"[..], &[b'x'; 4096], b"\n\n: y\n\n"] {
        answer.push(Chunk { bytes, read: 0, at: None }, |_| deltas += 1);
    }
    let mut summary = Summary::default();
    let counts = answer.finish(&mut summary, |_| deltas += 1);
    assert_eq!((deltas, counts.over_budget, summary.outcome), (1, true, Outcome::Unknown));
    assert_eq!((TINY.used(), TINY.refused()), (0, 1));
}

#[test]
fn a_live_stream_is_small() {
    let mut answer = Answer::new(&SSE);
    let body = recorded("20");
    let mut most = 0;
    for bytes in body.chunks(1400) {
        answer.push(Chunk { bytes, read: 0, at: None }, |_| ());
        most = most.max(answer.memory());
    }
    assert!(size_of::<Answer>() <= 768, "{} bytes without buffers", size_of::<Answer>());
    assert!(most <= 768 + (16 << 10), "{most} bytes with the closing event held");
}

proptest! {
    /// No body panics, whatever it holds and however it is cut; its times are in its chunks alone.
    #[test]
    fn any_bytes_are_read(
        bytes in prop::collection::vec(prop_oneof![Just(b'\n'), Just(b'{'), Just(b'"'), Just(b'}'), any::<u8>()], 0..120),
        framing in 0..4,
        size in 1_usize..40,
    ) {
        let content_type = [Some("text/event-stream"), Some("application/x-ndjson"), Some("application/json"), None];
        let content_type = content_type[usize::try_from(framing).unwrap()];
        let (deltas, summary, _) = read(&Head { content_type, ..SSE }, bytes.chunks(size));
        prop_assert!(deltas.iter().all(|delta| delta.t.is_none()));
        prop_assert_eq!(summary.t_end, None);
    }
}
