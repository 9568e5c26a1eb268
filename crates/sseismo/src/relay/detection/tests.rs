use std::sync::mpsc::sync_channel;

use sseismo_capture::tap::Record;
use sseismo_router::steer::{Effect, Held};
use sseismo_trace::parquet::Dataset;
use sseismo_trace::{Api, Outcome, Signal, SignalId, SignalState};

use super::*;

/// A host, and the folder with its signals as lines: `signals.jsonl`.
fn host(dataset: Option<PathBuf>) -> (Host, tempfile::TempDir) {
    let feed = Feed::new(1, 64);
    let metrics = Arc::new(Metrics::new(&feed));
    let written = tempfile::tempdir().unwrap();
    let lines = Lines::start("signal log", Some(&written.path().join("signals.jsonl"))).unwrap();
    let host = Host {
        detector: Detector::new(Options::default()),
        worker: Worker::start().unwrap(),
        lateness: Lateness::default(),
        meter: metrics.meter(),
        feed,
        metrics,
        lines,
        dataset,
        saved: UtcMicros(0),
        saving: None,
        unstored: Vec::new(),
        others: None,
        steer: None,
        stored: UtcMicros(0),
        recorder_lost: None,
        missed: Arc::default(),
        told: Told::default(),
    };
    (host, written)
}

/// One attempt of a client turn, `at` s after the start.
fn attempt(stream_id: u64, turn: u64, attempt: u32, at: i64) -> Summary {
    Summary {
        stream_id,
        turn_key: Some(turn),
        attempt: Some(attempt),
        upstream: Some("api.example".to_owned()),
        model_requested: Some("m".to_owned()),
        api: Some(Api::Responses),
        started_at: Some(UtcMicros(at * 1_000_000)),
        t_end: Some(Micros(500_000)),
        status: Some(200),
        outcome: Outcome::Completed,
        ..Summary::default()
    }
}

fn pass(host: &mut Host, summary: Summary) {
    host.note(&Note::Begin(Box::new(summary.clone())));
    host.note(&Note::End(Box::new(Record { summary, ..Record::default() })));
}

#[test]
fn a_retry_storm_reaches_the_feed_the_lines_the_metrics_and_the_dataset() {
    let folder = tempfile::tempdir().unwrap();
    let (mut host, written) = host(Some(folder.path().to_owned()));
    host.steer = Some(Box::new(|_| Answer { action: Effect::Cool, acted: true, held: None }));
    let (outside, others) = sync_channel(8);
    host.others = Some(others);
    let mut id = 0;
    // A quiet time of one attempt per turn, then storms of six.
    for turn in 0..2_000_u64 {
        let attempts = if turn < 1_500 { 1 } else { 6 };
        for number in 1..=attempts {
            id += 1;
            pass(&mut host, attempt(id, turn, number, i64::try_from(turn).unwrap() * 10));
        }
        if turn % 20 == 19 {
            host.tick(UtcMicros(i64::try_from(turn).unwrap() * 10_000_000 + 5_000_000));
        }
    }
    host.lines.finish();
    let written = std::fs::read_to_string(written.path().join("signals.jsonl")).unwrap();
    let told: Vec<Signal> = written.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    assert!(told.iter().any(|signal| signal.state == SignalState::Onset), "{written}");
    assert_eq!(host.feed.active().len(), 1);
    assert_eq!(host.feed.active()[0].signal.detail.signature().name(), "retry-amplification");
    let text = host.metrics.encode(true);
    assert!(text.contains(r#"sseismo_signals_active{signature="retry-amplification""#), "{text}");
    assert!(text.contains("sseismo_detector_scopes 1\n"), "{text}");
    // Somebody else signals, too.
    let posted = Signal { id: SignalId(7), state: SignalState::Onset, ..told[0].clone() };
    let only_told = Answer { action: Effect::Spill, acted: false, held: Some(Held::ObserveOnly) };
    outside.send(super::stored(posted, Some(only_told))).unwrap();
    assert_eq!(host.finish(UtcMicros(20_005_000_000)).onsets, 1);
    let mut stored = Vec::new();
    let report = Dataset::open(folder.path()).unwrap().signals(|signal| {
        stored.push((signal.signal.id, signal.signal.state, signal.action, signal.acted));
        std::ops::ControlFlow::Continue(())
    });
    assert!(report.unwrap().damaged.is_empty());
    for signal in &told {
        let done = if signal.state == SignalState::Clear { None } else { Some("cool".to_owned()) };
        let acted = done.as_ref().map(|_| true);
        assert!(stored.contains(&(signal.id, signal.state, done, acted)), "{stored:?}");
    }
    let posted = (SignalId(7), SignalState::Onset, Some("spill".to_owned()), Some(false));
    assert!(stored.contains(&posted), "{stored:?}");
}

#[test]
fn what_was_learned_outlives_the_process_and_a_torn_file_does_not_stop_it() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join(BASELINES);
    assert!(load(&path).is_none());
    let (mut host, _) = host(Some(folder.path().to_owned()));
    for turn in 0..500 {
        pass(&mut host, attempt(turn, turn, 1, i64::try_from(turn).unwrap() * 10));
    }
    let learned = host.detector.save();
    host.finish(UtcMicros(6_000_000_000));
    assert_eq!(load(&path).as_ref(), Some(&learned));
    std::fs::write(&path, "{\"version\":1,\"sco").unwrap();
    assert!(load(&path).is_none());
}

#[test]
fn it_ends_when_the_last_exchange_has_ended() {
    let (host, _) = host(None);
    let (sender, notes) = sync_channel(8);
    sender.send(Note::Begin(Box::new(attempt(1, 1, 1, 0)))).unwrap();
    drop(sender);
    let feed = host.feed.clone();
    assert_eq!(follow(&notes, host).missed, 0);
    assert!(feed.active().is_empty());
}

#[test]
fn the_operators_address_stays_on_loopback() {
    assert!(parse_loopback("127.0.0.1:0").is_ok() && parse_loopback("[::1]:8898").is_ok());
    assert!(parse_loopback("0.0.0.0:8898").unwrap_err().contains("loopback"));
    assert!(parse_loopback("8898").is_err());
}
