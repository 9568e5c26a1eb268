//! What is written is what is read.

use std::collections::BTreeMap;
use std::ops::ControlFlow;
use std::path::Path;

use proptest::collection::{btree_map, vec};
use proptest::option::of;
use proptest::prelude::*;
use proptest::sample::select;

use crate::parquet::cell::Word;
use crate::parquet::{
    Anchor, Dataset, DatasetWriter, Manifest, PartName, PartWriter, Raw, Sizes, Text, partition,
};
use crate::{
    Api, Attribution, ContentCheck, Delta, Kind, Micros, Outcome, Phase, Provenance, Read, Stream, Summary,
    TimeSource, Usage, UtcMicros,
};

/// A stream that owns its rows.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Owned {
    pub(super) summary: Summary,
    pub(super) deltas: Vec<Delta>,
    pub(super) reads: Vec<Read>,
}

impl Owned {
    pub(super) fn from(stream: Stream<'_>) -> Self {
        let Stream { summary, deltas, reads } = stream;
        Self { summary: summary.clone(), deltas: deltas.to_vec(), reads: reads.to_vec() }
    }

    pub(super) fn as_stream(&self) -> Stream<'_> {
        Stream { summary: &self.summary, deltas: &self.deltas, reads: &self.reads }
    }
}

pub(super) fn write(root: &Path, streams: &[Owned]) {
    let mut writer =
        DatasetWriter::create(root, Manifest::default(), UtcMicros(1_790_000_000_000_000)).unwrap();
    for stream in streams {
        writer.stream(stream.as_stream()).unwrap();
    }
    writer.finish().unwrap();
}

pub(super) fn read(root: &Path) -> Vec<Owned> {
    let mut found = Vec::new();
    let report = Dataset::open(root).unwrap().streams(|stream| {
        found.push(Owned::from(stream));
        ControlFlow::Continue(())
    });
    assert!(report.damaged.is_empty(), "{:?}", report.damaged);
    assert_eq!((report.streams, report.orphans), (found.len() as u64, 0));
    found
}

fn word<W: Word + std::fmt::Debug>() -> impl Strategy<Value = W> {
    select(W::WORDS.iter().map(|(word, _)| *word).collect::<Vec<_>>())
}

fn text() -> impl Strategy<Value = Option<String>> {
    of("\\PC{0,12}")
}

fn map() -> impl Strategy<Value = BTreeMap<String, String>> {
    btree_map("[a-z-]{1,8}", "\\PC{0,8}", 0..3)
}

fn span() -> impl Strategy<Value = Option<Micros>> {
    of(any::<i64>().prop_map(Micros))
}

/// Moments between 1677 and 2262.
fn moment() -> impl Strategy<Value = Option<UtcMicros>> {
    of((-9_223_372_036_854_775..9_223_372_036_854_775_i64).prop_map(UtcMicros))
}

prop_compose! {
    fn identifiers()(
        session_key in any::<Option<u64>>(), turn_index in any::<Option<u32>>(), turn_key in any::<Option<u64>>(),
        attempt in any::<Option<u32>>(), group_id in any::<Option<u64>>(), key_slot in any::<Option<u16>>(),
        caller_hash in any::<Option<u64>>(), conn_id in any::<Option<u64>>(), status in any::<Option<u16>>(),
        streamed in any::<Option<bool>>(), tls in any::<Option<bool>>(), conn_reused in any::<Option<bool>>(),
    ) -> Summary {
        Summary {
            session_key, turn_index, turn_key, attempt, group_id, key_slot, caller_hash, streamed, status,
            tls, conn_id, conn_reused, ..Summary::default()
        }
    }
}

prop_compose! {
    fn named(base: Summary)(
        api in of(word::<Api>()), time_source in word::<TimeSource>(), attribution in word::<Attribution>(),
        outcome in word::<Outcome>(), content_check in word::<ContentCheck>(),
        texts in vec(text(), 12), rate_limit in map(), request_ids in map(), labels in map(),
        provenance in of("[a-z-]{0,8}"), folded: bool,
    ) -> Summary {
        let mut texts = texts.into_iter();
        let mut next = || texts.next().flatten();
        Summary {
            api, time_source, attribution, outcome, content_check, rate_limit, request_ids, labels, folded,
            upstream: next(), route: next(), canary_arm: next(), client_app: next(), model_requested: next(),
            model_served: next(), effort: next(), fallback_reason: next(), http_version: next(),
            content_encoding: next(), via: next(), server: next(),
            provenance: provenance.map_or(Provenance::Live, Provenance::Import),
            ..base.clone()
        }
    }
}

prop_compose! {
    fn measured(base: Summary)(
        started_at in moment(), conn_started_at in moment(), spans in vec(span(), 5),
        numbers in vec(any::<Option<u64>>(), 7), floats in vec(of(-1e12..1e12), 3),
        tcp_rtt_us in any::<Option<u32>>(), tcp_retrans in any::<Option<u32>>(), events_dropped: u64,
    ) -> Summary {
        Summary {
            started_at, conn_started_at, tcp_rtt_us, tcp_retrans, events_dropped,
            t_headers: spans[0], t_first_byte: spans[1], t_first_reasoning: spans[2],
            t_first_output: spans[3], t_end: spans[4],
            prompt_bytes: numbers[0], prompt_tokens_est: numbers[1], prompt_numeric_share: floats[0],
            usage: Usage { input: numbers[2], cached: numbers[3], output: numbers[4], reasoning: floats[1] },
            reasoning_tokens_est: numbers[5], retry_after_ms: numbers[6], cost_usd: floats[2],
            ..base.clone()
        }
    }
}

fn summary() -> impl Strategy<Value = Summary> {
    identifiers().prop_flat_map(named).prop_flat_map(measured)
}

prop_compose! {
    fn delta()(
        first_read in of(0..400_u32), extra_reads in 0..3_u16, t in span(), kind in word::<Kind>(),
        phase in word::<Phase>(), item_index in any::<Option<u16>>(), provider_seq in any::<Option<u32>>(),
        provider_ts in any::<Option<i64>>(), tokens in any::<Option<u32>>(), tokens_est in any::<Option<u32>>(),
        sizes in any::<[u32; 3]>(),
    ) -> Delta {
        Delta {
            seq: 0, first_read, extra_reads, t, kind, phase, item_index, provider_seq, provider_ts, tokens,
            tokens_est, chars: sizes[0], wire_bytes: sizes[1], pad_bytes: sizes[2],
        }
    }
}

/// The reads of a connection that events refer to, and the one before.
fn reads(conn_id: u64, deltas: &[Delta]) -> Vec<Read> {
    let first = deltas.iter().filter_map(|delta| delta.first_read).min();
    let last = deltas.iter().filter_map(|delta| Some(delta.first_read? + u32::from(delta.extra_reads))).max();
    let (Some(first), Some(last)) = (first, last) else { return Vec::new() };
    let read = |read_id: u32| Read {
        conn_id,
        read_id,
        t: Micros(i64::from(read_id) * 977),
        kernel_lag: (!read_id.is_multiple_of(3)).then_some(Micros(i64::from(read_id % 50))),
        bytes: read_id * 7,
        drained: read_id.is_multiple_of(2),
        idle: read_id.is_multiple_of(5).then_some(Micros(3)),
        loop_lag: read_id.is_multiple_of(7).then_some(Micros(9)),
    };
    (first.saturating_sub(1)..=last).map(read).collect()
}

fn streams() -> impl Strategy<Value = Vec<Owned>> {
    let stream = (summary(), vec(delta(), 0..12), any::<u64>());
    vec(stream, 1..8).prop_map(|streams| {
        let mut streams: Vec<Owned> = streams
            .into_iter()
            .map(|(mut summary, mut deltas, stream_id)| {
                summary.stream_id = stream_id;
                (0..).zip(&mut deltas).for_each(|(seq, delta)| delta.seq = seq * 3);
                let reads = summary.conn_id.map_or(Vec::new(), |conn| reads(conn, &deltas));
                Owned { summary, deltas, reads }
            })
            .collect();
        streams.sort_by_key(|stream| stream.summary.stream_id);
        streams.dedup_by_key(|stream| stream.summary.stream_id);
        streams
    })
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(24))]

    /// Law: every field of every noun comes back as it was written, absent values as absent.
    #[test]
    fn written_is_read(mut streams in streams()) {
        let folder = tempfile::tempdir().unwrap();
        write(folder.path(), &streams);
        let mut found = read(folder.path());
        found.sort_by_key(|stream| stream.summary.stream_id);
        streams.sort_by_key(|stream| stream.summary.stream_id);
        prop_assert_eq!(found, streams);
    }

    /// Law: the column paths say the same as the whole streams.
    #[test]
    fn columns_agree_with_streams(streams in streams()) {
        let folder = tempfile::tempdir().unwrap();
        write(folder.path(), &streams);
        let dataset = Dataset::open(folder.path()).unwrap();
        let whole: BTreeMap<u64, Vec<Delta>> = streams.into_iter()
            .filter(|stream| !stream.deltas.is_empty())
            .map(|stream| (stream.summary.stream_id, stream.deltas)).collect();
        let mut times = BTreeMap::new();
        let report = dataset.times(|stream| {
            let measured = |at: usize| stream.measured.is_none_or(|measured| measured[at]);
            let t = (0..stream.t.len()).map(|at| measured(at).then_some(Micros(stream.t[at]))).collect::<Vec<_>>();
            times.insert(stream.stream_id, t);
            ControlFlow::Continue(())
        });
        prop_assert!(report.damaged.is_empty());
        let expected: BTreeMap<_, Vec<_>> =
            whole.iter().map(|(id, deltas)| (*id, deltas.iter().map(|delta| delta.t).collect())).collect();
        prop_assert_eq!(times, expected);
        let unknown = |size: Option<u32>| size.unwrap_or(0);
        for sizes in [Sizes::Tokens, Sizes::EstimatedTokens, Sizes::Characters] {
            let size = |delta: &Delta| match sizes {
                Sizes::Tokens => unknown(delta.tokens),
                Sizes::EstimatedTokens => unknown(delta.tokens_est),
                Sizes::Characters => delta.chars,
            };
            let mut seen = 0;
            let report = dataset.events(sizes, |stream| {
                let deltas = &whole[&stream.times.stream_id];
                seen += 1;
                assert_eq!(stream.times.t, deltas.iter().map(|delta| delta.t.unwrap_or_default().0).collect::<Vec<_>>());
                assert_eq!(stream.kind, deltas.iter().map(|delta| delta.kind).collect::<Vec<_>>());
                assert_eq!(stream.phase, deltas.iter().map(|delta| delta.phase).collect::<Vec<_>>());
                assert_eq!(stream.size, deltas.iter().map(size).collect::<Vec<_>>());
                ControlFlow::Continue(())
            });
            prop_assert!(report.damaged.is_empty());
            prop_assert_eq!(seen, whole.len());
        }
    }
}

#[test]
fn texts_raw_and_anchors_come_back() {
    let folder = tempfile::tempdir().unwrap();
    Manifest::default().create_or_load(folder.path()).unwrap();
    let anchors = [Anchor { wall: UtcMicros(1_790_000_000_000_000), monotonic: Micros(12) }];
    let name = PartName { unix_s: 1_790_000_000, pid: 1, n: 0 };
    let texts: Vec<Text> = (0..10_000)
        .map(|seq| Text { stream_id: 4, seq, kind: Kind::Reasoning, text: format!("step {seq} über") })
        .collect();
    let raw: Vec<Raw> = (0..300)
        .map(|chunk| Raw {
            stream_id: 4,
            chunk,
            read_id: chunk.is_multiple_of(2).then_some(chunk),
            t: (!chunk.is_multiple_of(3)).then_some(Micros(chunk.into())),
            bytes: vec![0xff; chunk as usize],
        })
        .collect();
    let mut part = PartWriter::new(folder.path(), &partition(Some(anchors[0].wall)), name, &anchors);
    part.summary(Summary { stream_id: 4, ..Summary::default() }).unwrap();
    for text in &texts {
        part.text(text.clone()).unwrap();
    }
    for raw in &raw {
        part.raw(raw.clone()).unwrap();
    }
    part.finish().unwrap();

    let dataset = Dataset::open(folder.path()).unwrap();
    assert_eq!(dataset.anchors(&dataset.parts()[0]).unwrap(), anchors);
    let (mut found_texts, mut found_raw) = (Vec::new(), Vec::new());
    let report = dataset.texts(|text| {
        found_texts.push(text);
        ControlFlow::Continue(())
    });
    assert!(report.damaged.is_empty(), "{:?}", report.damaged);
    dataset.raw(|raw| {
        found_raw.push(raw);
        ControlFlow::Continue(())
    });
    assert_eq!((found_texts, found_raw), (texts, raw));
}

/// The reads of a long stream lie in the part that was written while it ran.
#[test]
fn reads_are_found_in_other_parts() {
    let folder = tempfile::tempdir().unwrap();
    Manifest::default().create_or_load(folder.path()).unwrap();
    let mut delta = Delta::new(0, Kind::Text, Phase::Output, Some(Micros(5)));
    delta.first_read = Some(3);
    delta.extra_reads = 4;
    let all = reads(8, &[delta]);
    for (n, rows) in [(0, &all[..3]), (1, &all[3..])] {
        let mut part =
            PartWriter::new(folder.path(), "date=2026-07-01", PartName { unix_s: 1, pid: 1, n }, &[]);
        let stream_id = 10 - u64::from(n);
        part.summary(Summary { stream_id, conn_id: (n == 1).then_some(8), ..Summary::default() }).unwrap();
        if n == 1 {
            part.delta(stream_id, &delta).unwrap();
        }
        for read in rows {
            part.read(*read).unwrap();
        }
        part.finish().unwrap();
    }
    let found = read(folder.path());
    assert_eq!(found.iter().find(|stream| stream.summary.stream_id == 9).unwrap().reads, all);
}
