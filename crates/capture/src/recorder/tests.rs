//! Laws of the recorder: what goes in comes out, a kill loses only what was not flushed, a disk that
//! takes no writes stops nobody.

use std::collections::BTreeMap;
use std::ops::ControlFlow;
use std::path::Path;
use std::time::Duration;

use sseismo_trace::parquet::{Anchor, Dataset};
use sseismo_trace::{Delta, Kind, Micros, Phase, Read, Stream, Summary, Usage, UtcMicros};

use super::{Error, Limits, Options, Recorder};

mod journal;
mod process;

/// A moment `ms` after the start of the test's clock.
pub(super) fn at(ms: i64) -> Anchor {
    Anchor { wall: UtcMicros(1_790_000_000_000_000 + ms * 1_000), monotonic: Micros(ms * 1_000) }
}

pub(super) fn delta(seq: u32) -> Delta {
    let mut delta = Delta::new(seq, Kind::Reasoning, Phase::Reasoning, Some(Micros(i64::from(seq) * 20_000)));
    delta.first_read = Some(seq);
    delta.chars = 4;
    delta.wire_bytes = 180 + seq % 7;
    delta
}

pub(super) fn read(conn_id: u64, read_id: u32) -> Read {
    let t = Micros(200_000 + i64::from(read_id) * 20_000);
    Read { conn_id, read_id, t, bytes: 300, drained: true, ..Read::default() }
}

pub(super) fn summary(stream_id: u64) -> Summary {
    Summary {
        stream_id,
        conn_id: Some(stream_id + 1_000),
        started_at: Some(at(0).wall),
        prompt_numeric_share: Some(0.1 + 0.2),
        usage: Usage { reasoning: Some(516.0), ..Usage::default() },
        ..Summary::default()
    }
}

/// Streams by id, with the numbers of their reads.
pub(super) fn recorded(root: &Path) -> BTreeMap<u64, (Summary, Vec<Delta>, Vec<u32>)> {
    let mut found = BTreeMap::new();
    let report = Dataset::open(root).unwrap().streams(|Stream { summary, deltas, reads }| {
        let numbers = reads.iter().map(|read| read.read_id).collect();
        let before = found.insert(summary.stream_id, (summary.clone(), deltas.to_vec(), numbers));
        assert!(before.is_none(), "stream {} is there twice", summary.stream_id);
        ControlFlow::Continue(())
    });
    assert!(report.damaged.is_empty() && report.orphans == 0, "{report:?}");
    found
}

fn open(root: &Path, options: Options) -> Recorder {
    Recorder::open(root, options, at(0)).unwrap().0
}

/// Records `count` streams of `events` events each, interleaved, a tick after each round.
fn interleaved(recorder: &mut Recorder, count: u64, events: u32) {
    (0..count).for_each(|stream| recorder.begin(&summary(stream)));
    for seq in 0..events {
        for stream in 0..count {
            recorder.read(&read(stream + 1_000, seq));
            recorder.delta(stream, &delta(seq));
        }
        recorder.tick(at(i64::from(seq) * 20));
    }
    (0..count).for_each(|stream| recorder.finish(summary(stream), false));
}

#[test]
fn many_streams_over_many_segments_come_back_whole() {
    let folder = tempfile::tempdir().unwrap();
    let mut recorder = open(folder.path(), Options { rotate_bytes: 4_096, ..Options::default() });
    interleaved(&mut recorder, 20, 60);
    // The second stream of a connection, in a later segment.
    recorder.tick(at(2_000));
    recorder.begin(&Summary { conn_id: Some(1_003), ..summary(77) });
    recorder.read(&read(1_003, 60));
    recorder.delta(77, &Delta { first_read: Some(60), ..delta(0) });
    recorder.finish(Summary { conn_id: Some(1_003), ..summary(77) }, false);
    let status = recorder.close(at(2_001));
    assert_eq!(status.trouble, None);
    assert_eq!((status.flushed.streams, status.flushed.events, status.lost.events), (21, 1_201, 0));
    let mut found = recorded(folder.path());
    let second = found.remove(&77).unwrap();
    assert_eq!(second.2, [59, 60], "the read before the first event is found in the earlier part");
    assert_eq!(found.len(), 20);
    for (stream, (found, deltas, reads)) in found {
        assert_eq!(found, summary(stream));
        assert_eq!(deltas, (0..60).map(delta).collect::<Vec<_>>());
        assert_eq!(reads, (0..60).collect::<Vec<_>>());
    }
    let journal: Vec<_> = std::fs::read_dir(folder.path().join("journal")).unwrap().collect();
    assert_eq!(journal.len(), 1, "only the lock is left: {journal:?}");
    let dataset = Dataset::open(folder.path()).unwrap();
    assert!(!dataset.anchors(&dataset.parts()[0]).unwrap().is_empty());
}

#[test]
fn a_folder_has_one_recorder_and_one_key() {
    let folder = tempfile::tempdir().unwrap();
    let recorder = open(folder.path(), Options::default());
    assert!(matches!(Recorder::open(folder.path(), Options::default(), at(0)), Err(Error::InUse(_))));
    assert_eq!(recorder.close(at(1)).trouble, None);
    std::fs::write(folder.path().join("dataset.key"), [7; 32]).unwrap();
    assert!(matches!(Recorder::open(folder.path(), Options::default(), at(0)), Err(Error::OtherKey(_))));
}

#[test]
fn a_dropped_recorder_is_recovered_and_a_foreign_journal_set_aside() {
    let folder = tempfile::tempdir().unwrap();
    let mut recorder = open(folder.path(), Options { rotate_bytes: 2_048, ..Options::default() });
    interleaved(&mut recorder, 3, 40);
    recorder.begin(&Summary { route: Some("cut".to_owned()), ..summary(9) });
    recorder.delta(9, &delta(0));
    recorder.tick(at(900));
    recorder.delta(9, &delta(1));
    drop(recorder);
    let foreign = folder.path().join("journal/part-1-1-0.journal");
    std::fs::write(&foreign, b"something quite different").unwrap();
    let (recorder, recovered) = Recorder::open(folder.path(), Options::default(), at(5_000)).unwrap();
    assert_eq!((recovered.unfinished, recovered.torn_bytes), (1, 0));
    assert_eq!(recovered.set_aside, [foreign.with_extension("set-aside")]);
    let found = recorded(folder.path());
    assert_eq!(found.len(), 4);
    assert_eq!(found[&9].1, [delta(0)], "what was flushed is there, what was not is lost");
    assert_eq!(found[&9].0.route.as_deref(), Some("cut"));
    assert_eq!(found[&2].1.len(), 40);
    assert_eq!(recorder.close(at(5_001)).trouble, None);
    let (_, again) = Recorder::open(folder.path(), Options::default(), at(6_000)).unwrap();
    assert_eq!(again, super::Recovered::default());
}

#[test]
fn sampling_keeps_anomalous_streams_and_whole_turns() {
    let folder = tempfile::tempdir().unwrap();
    let mut recorder =
        open(folder.path(), Options { sample: 0.25, rotate_bytes: 8_192, ..Options::default() });
    for stream in 0..400_u64 {
        let summary = Summary { turn_key: Some(stream / 2), ..summary(stream) };
        recorder.begin(&summary);
        recorder.read(&read(stream + 1_000, 0));
        recorder.delta(stream, &delta(0));
        recorder.finish(summary, stream % 100 == 7);
        recorder.tick(at(stream.cast_signed()));
    }
    let status = recorder.close(at(500));
    let found = recorded(folder.path());
    assert_eq!(found.len() as u64, 400 - status.sampled_out);
    assert!([7, 107, 207, 307].iter().all(|stream| found.contains_key(stream)));
    // Binomial(200 turns, 0.25): five standard deviations are 31.
    let turns = (0..200).filter(|turn| found.contains_key(&(turn * 2))).count();
    assert!((19..=81).contains(&turns), "{turns} of 200 turns");
    for turn in (0..200).filter(|turn| found.contains_key(&(turn * 2))) {
        assert!(found.contains_key(&(turn * 2 + 1)), "turn {turn} is kept in part");
    }
    let dataset = Dataset::open(folder.path()).unwrap();
    assert!((dataset.manifest().sample - 0.25).abs() < 1e-12);
}

#[test]
fn texts_and_bodies_are_stored_only_when_asked_for() {
    const SECRET: &str = "the answer is forty-two";
    for keep in [false, true] {
        let folder = tempfile::tempdir().unwrap();
        let mut recorder =
            open(folder.path(), Options { keep_text: keep, keep_raw: keep, ..Options::default() });
        recorder.begin(&summary(1));
        recorder.delta(1, &delta(0));
        recorder.text(1, 0, Kind::Reasoning, SECRET);
        recorder.raw(1, Some(0), Some(Micros(3)), SECRET.as_bytes());
        recorder.tick(at(1));
        let journal = std::fs::read(recorder.journal.path()).unwrap();
        assert_eq!(journal.windows(SECRET.len()).any(|bytes| bytes == SECRET.as_bytes()), keep);
        recorder.finish(summary(1), false);
        assert_eq!(recorder.close(at(2)).trouble, None);
        let (mut texts, mut bodies) = (Vec::new(), Vec::new());
        let dataset = Dataset::open(folder.path()).unwrap();
        dataset.texts(|text| {
            texts.push(text.text);
            ControlFlow::Continue(())
        });
        dataset.raw(|raw| {
            bodies.push(raw.bytes);
            ControlFlow::Continue(())
        });
        assert_eq!((texts.len(), bodies.len()), (usize::from(keep), usize::from(keep)));
        assert_eq!(dataset.manifest().left_out.is_empty(), keep);
    }
}

#[test]
fn coarse_stores_sums_of_flushes() {
    let folder = tempfile::tempdir().unwrap();
    let mut recorder = open(folder.path(), Options { coarse: true, ..Options::default() });
    recorder.begin(&summary(1));
    let times = [0, 400, 900, 30_000, 30_200];
    for (seq, t) in (0..).zip(times) {
        recorder.delta(1, &Delta { t: Some(Micros(t)), tokens_est: Some(2), ..delta(seq) });
    }
    recorder.finish(summary(1), false);
    assert_eq!(recorder.close(at(1)).trouble, None);
    let deltas = &recorded(folder.path())[&1].1;
    let sums: Vec<_> =
        deltas.iter().map(|sum| (sum.seq, sum.t, sum.chars, sum.tokens, sum.tokens_est)).collect();
    let expected = [(0, Some(Micros(900)), 12, None, Some(6)), (3, Some(Micros(30_200)), 8, None, Some(4))];
    assert_eq!(sums, expected);
    assert_eq!((deltas[0].first_read, deltas[0].extra_reads), (Some(0), 2));
}

#[test]
fn the_oldest_parts_go() {
    let folder = tempfile::tempdir().unwrap();
    let record = |stream, ms, limits| {
        let options = Options { limits, ..Options::default() };
        let mut recorder = Recorder::open(folder.path(), options, at(ms)).unwrap().0;
        recorder.begin(&summary(stream));
        recorder.delta(stream, &delta(0));
        recorder.finish(summary(stream), false);
        assert_eq!(recorder.close(at(ms + 1)).trouble, None);
        recorded(folder.path()).into_keys().collect::<Vec<_>>()
    };
    let age = |seconds| Limits { max_age: Some(Duration::from_secs(seconds)), ..Limits::default() };
    assert_eq!(record(1, 0, age(60)), [1]);
    assert_eq!(record(2, 50_000, age(60)), [1, 2]);
    assert_eq!(record(3, 70_000, age(60)), [2, 3]);
    assert_eq!(record(4, 71_000, Limits { max_bytes: Some(1), ..Limits::default() }), [0_u64; 0]);
    assert_eq!(std::fs::read_dir(folder.path().join("events")).unwrap().count(), 1, "folders stay");
}

#[test]
fn late_events_are_refused_and_counted() {
    let folder = tempfile::tempdir().unwrap();
    let mut recorder = open(folder.path(), Options::default());
    recorder.delta(5, &delta(0));
    recorder.begin(&summary(5));
    recorder.finish(summary(5), false);
    recorder.delta(5, &delta(1));
    let status = recorder.close(at(1));
    assert_eq!((status.unclaimed, status.flushed.events), (2, 0));
}
