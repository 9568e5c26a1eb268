use sseismo_trace::{Detail, Outcome};

use super::*;

const SECOND: i64 = 1_000_000;

fn attempt(id: u64, turn: u64, attempt: u32) -> Summary {
    Summary {
        stream_id: id,
        turn_key: Some(turn),
        attempt: Some(attempt),
        upstream: Some("api.example".into()),
        model_requested: Some("m".into()),
        ..Summary::default()
    }
}

/// `turns` client turns, one a second, each with so many attempts; returns the time after the last.
fn turns(detector: &mut Detector, from: i64, turns: i64, attempts: u32) -> i64 {
    for i in 0..turns {
        let at = from + i * SECOND;
        for number in 1..=attempts {
            let id = u64::try_from(at).unwrap() * 10 + u64::from(number);
            let outcome = if number == attempts { Outcome::Completed } else { Outcome::Failed };
            let summary = attempt(id, u64::try_from(at).unwrap(), number);
            detector.begin(UtcMicros(at + i64::from(number) * 1_000), &summary);
            detector.end(UtcMicros(at + i64::from(number) * 1_000 + 500), &Summary { outcome, ..summary });
        }
        detector.tick(UtcMicros(at + SECOND / 2));
    }
    from + turns * SECOND
}

fn states(signals: &[Signal]) -> Vec<SignalState> {
    signals.iter().map(|signal| signal.state).collect()
}

#[test]
fn onset_refresh_and_clear_share_an_id() {
    let mut detector = Detector::new(Options::default());
    let healthy = turns(&mut detector, 0, 200, 1);
    assert!(detector.take_signals().is_empty());
    let stormy = turns(&mut detector, healthy, 100, 3);
    let signals = detector.take_signals();
    assert_eq!(states(&signals)[..3], [SignalState::Onset, SignalState::Refresh, SignalState::Refresh]);
    assert!(signals[0].at.0 < healthy + 12 * SECOND, "{:?}", signals[0]);
    assert!(signals.windows(2).all(|two| two[1].at.0 - two[0].at.0 < two[0].ttl.0));
    let Detail::RetryAmplification { attempts_per_turn } = signals[2].detail else { panic!("{signals:?}") };
    assert!((2.5..3.01).contains(&attempts_per_turn), "{attempts_per_turn}");
    turns(&mut detector, stormy, 100, 1);
    let after = detector.take_signals();
    assert_eq!(after.last().unwrap().state, SignalState::Clear);
    assert!(signals.iter().chain(&after).all(|signal| signal.id == signals[0].id));
}

#[test]
fn without_evidence_a_signal_ends_after_its_time_to_live() {
    let mut detector = Detector::new(Options::default());
    let healthy = turns(&mut detector, 0, 200, 1);
    let stormy = turns(&mut detector, healthy, 20, 3);
    assert_eq!(states(&detector.take_signals()), [SignalState::Onset]);
    for s in 0..200 {
        detector.tick(UtcMicros(stormy + s * SECOND));
    }
    let signals = detector.take_signals();
    assert_eq!(signals.last().unwrap().state, SignalState::Clear);
    assert!(signals.last().unwrap().at.0 <= stormy + 61 * SECOND);
    assert!(signals.last().unwrap().evidence.notes.iter().any(|note| note.contains("time to live")));
}

#[test]
fn the_same_input_gives_the_same_signals() {
    let run = || {
        let mut detector = Detector::new(Options::default());
        let healthy = turns(&mut detector, 0, 100, 1);
        turns(&mut detector, healthy, 50, 2);
        detector.take_signals()
    };
    assert!(!run().is_empty());
    assert_eq!(run(), run());
}

#[test]
fn knowledge_survives_a_restart_and_suspicion_does_not() {
    let mut detector = Detector::new(Options::default());
    let end = turns(&mut detector, 0, 200, 1);
    let json = serde_json::to_string(&detector.save()).unwrap();
    let mut again = Detector::with_baselines(Options::default(), serde_json::from_str(&json).unwrap());
    assert_eq!(again.save(), detector.save());
    turns(&mut again, end, 10, 2);
    assert_eq!(states(&again.take_signals()), [SignalState::Onset]);
    assert_eq!(again.view().rejected_baselines, 0);

    let mut broken = detector.save();
    for scope in &mut broken.scopes {
        scope.watches.insert("retry-amplification".into(), Value::from("nonsense"));
    }
    let mut anew = Detector::with_baselines(Options::default(), broken);
    turns(&mut anew, end, 10, 2);
    assert!(anew.take_signals().is_empty(), "it learns again");
    assert_eq!(anew.view().rejected_baselines, 1);
}

/// What is written scope by scope is what would be written at once, whether it was seen by this process or not.
#[test]
fn a_snapshot_is_written_as_it_is_read() {
    let mut detector = Detector::new(Options::default());
    turns(&mut detector, 0, 200, 1);
    let mut earlier = detector.save();
    let mut other = earlier.scopes[0].clone();
    other.scope.upstream = Some("another".to_owned());
    earlier.scopes.push(other);
    let mut detector = Detector::with_baselines(Options::default(), earlier);
    turns(&mut detector, 0, 200, 1);
    let mut written = Vec::new();
    detector.snapshot().write(&mut written).unwrap();
    let read: Baselines = serde_json::from_slice(&written).unwrap();
    assert_eq!((read.scopes.len(), &read), (2, &detector.save()));
    assert_eq!(written, serde_json::to_vec(&read).unwrap());
}

#[test]
fn learning_is_said_and_pairs_that_learn_do_not_share_the_budget() {
    let mut detector = Detector::new(Options::default());
    turns(&mut detector, 0, 10, 1);
    let view = detector.view();
    let retry = view.watches.iter().find(|w| w.signature == SignatureId::RetryAmplification).unwrap();
    assert_eq!((retry.state, retry.learned, retry.needed), (State::Learning, 10, 50));
    assert_eq!(retry.threshold, None);
}

#[test]
fn streams_and_scopes_are_bounded_and_counted() {
    let options = Options { max_scopes: 3, max_streams: 5, ..Options::default() };
    let mut detector = Detector::new(options);
    for i in 0..20_u64 {
        let summary = Summary { model_requested: Some(format!("m{}", i % 4)), ..attempt(i, i, 1) };
        detector.begin(UtcMicros(i64::try_from(i).unwrap()), &summary);
    }
    let view = detector.view();
    assert_eq!((view.scopes, view.live_streams, view.evicted_streams), (3, 5, 15));
    assert_eq!(view.evicted_scopes, 17);
    detector.deltas(999, &[Delta::new(0, sseismo_trace::Kind::Text, sseismo_trace::Phase::Output, None)]);
    assert_eq!(detector.view().stray_deltas, 1);
    detector.tick(UtcMicros(7_200 * SECOND));
    assert_eq!(detector.view().live_streams, 0);
}

/// Whether the host does the work at once or the detector does, the signals are the same; until it is done a
/// sequence goes on with the proved threshold, which is higher.
#[test]
fn jobs_may_be_done_elsewhere_and_later() {
    let run = |jobs: Jobs, mut host: Box<dyn FnMut(&mut Detector)>| {
        let mut detector = Detector::new(Options { jobs, ..Options::default() });
        let mut at = 0;
        for (calls, attempts) in [(100, 1), (100, 1), (25, 2), (25, 2)] {
            at = turns(&mut detector, at, calls, attempts);
            host(&mut detector);
        }
        let retry = detector.view().watches.into_iter().find(|w| w.signature.name() == "retry-amplification");
        (detector.take_signals(), retry.unwrap().threshold.unwrap())
    };
    let (signals, threshold) = run(Jobs::AtOnce, Box::new(|_| {}));
    let mut count = 0;
    let answered = run(
        Jobs::ByHost,
        Box::new(move |detector| {
            let jobs = detector.take_jobs();
            count += jobs.len();
            let answers: Vec<_> = jobs.into_iter().rev().map(Job::run).collect();
            detector.take_answers(answers);
            assert!(count > 0, "a threshold is wanted");
        }),
    );
    let (late, proved) = run(Jobs::ByHost, Box::new(|_| {}));
    assert_eq!(states(&signals)[0], SignalState::Onset);
    assert_eq!(states(&answered.0)[0], SignalState::Onset);
    assert!((answered.1 / threshold - 1.0).abs() < 1e-9, "{} {threshold}", answered.1);
    assert!(proved > threshold, "{proved} {threshold}");
    assert!(late[0].at >= signals[0].at);
}

/// A detector that knows how an upstream's streams usually come, a new stream of it, and that stream's events.
fn taught() -> (Detector, Summary, Vec<Delta>) {
    let scenario = sseismo_simulator::Scenario::parse(
        "[answer]\nreasoning = { median = 300, sigma = 0.1 }",
        std::path::Path::new("."),
    );
    let mut streams = sseismo_simulator::Simulation::new(&scenario.unwrap());
    let mut replay = crate::Replay::new(Options::default());
    for one in streams.by_ref().take(60) {
        replay.push(one.summary.started_at.unwrap(), &one.summary, &one.deltas);
    }
    replay.finish();
    assert!(replay.take_signals().is_empty());
    let one = streams.next().unwrap();
    let mut detector = Detector::with_baselines(Options::default(), replay.detector().save());
    let summary = Summary { started_at: Some(UtcMicros(0)), ..one.summary };
    detector.begin(UtcMicros(0), &summary);
    (detector, summary, one.deltas)
}

/// A stream that falls silent is dead air; one of which notes were lost may not be silent at all.
#[test]
fn what_was_lost_on_the_way_is_no_silence() {
    for doubtful in [false, true] {
        let (mut detector, summary, deltas) = taught();
        let half = deltas.len() / 2;
        let from = deltas[half - 1].t.unwrap().0;
        detector.deltas(summary.stream_id, &deltas[..half]);
        for s in 1..=60 {
            if doubtful && s == 2 {
                detector.doubt();
            }
            detector.tick(UtcMicros(from + s * SECOND));
        }
        let burst = detector.take_signals().iter().any(|signal| signal.detail.signature().name() == "burst");
        assert_eq!(burst, !doubtful);
    }
}

#[test]
fn gaps_in_the_numbers_are_counted() {
    let (mut detector, summary, deltas) = taught();
    detector.deltas(summary.stream_id, &deltas[..50]);
    detector.deltas(summary.stream_id, &deltas[50..60]);
    assert_eq!(detector.view().lost_events, 0);
    detector.deltas(summary.stream_id, &deltas[67..70]);
    detector.deltas(summary.stream_id, &deltas[60..67]);
    detector.deltas(summary.stream_id, &deltas[70..72]);
    assert_eq!(detector.view().lost_events, 7, "what comes late after all is no gap");
}
