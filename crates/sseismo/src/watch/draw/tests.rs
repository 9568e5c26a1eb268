use ratatui::Terminal;
use ratatui::backend::TestBackend;
use sseismo_live_detector::Figure;
use sseismo_trace::{Cause, Detail, Evidence, Micros, SignalId, SignatureId, UtcMicros};

use super::super::Update;
use super::*;

/// 2026-11-30 03:20:00 UTC.
const NOW: i64 = 1_796_008_800_000_000;

fn target(model: &str) -> Scope {
    Scope::default().with(Dim::Upstream, "api.example").with(Dim::Model, model).with(Dim::Effort, "high")
}

fn watch(model: &str, signature: SignatureId, state: State, value: f64) -> WatchView {
    WatchView {
        target: target(model),
        signature,
        state,
        learned: 312,
        needed: 500,
        unit: "flush groups".to_owned(),
        baseline: vec![Figure::new("median gap", 0.021, "s"), Figure::new("burst share", 0.012, "")],
        statistic: "mixture e-CUSUM".to_owned(),
        value,
        threshold: (state != State::Learning).then_some(4.5e5),
        average_run_length: (state != State::Learning).then_some(6.1e6),
        pace: Some(Micros(1_250_000)),
        bytes: 4_096,
        signal: (state == State::Signalling).then_some(SignalId(7)),
        notes: vec!["flags are taken for independent; lag-1 correlation 0.03".to_owned()],
    }
}

fn view(at: i64, value: f64) -> View {
    View {
        at: UtcMicros(NOW + at),
        false_alarm_every: Micros(30 * 86_400_000_000),
        live_pairs: 2,
        live_streams: 12,
        scopes: 2,
        evicted_scopes: 0,
        evicted_streams: 0,
        stray_deltas: 0,
        lost_events: 0,
        rejected_baselines: 0,
        watches: vec![
            watch("gpt-5.5", SignatureId::Concurrency, State::Learning, 1.0),
            watch("gpt-5.5", SignatureId::RetryAmplification, State::Watching, 30.0),
            watch("o4-mini", SignatureId::Burst, State::Signalling, value),
        ],
    }
}

fn signal(state: SignalState, at: i64) -> Signal {
    Signal {
        id: SignalId(7),
        target: target("o4-mini"),
        detail: Detail::Burst { gap_s: 1.4, tokens: 61.0 },
        cause: Some(Cause::UpstreamBatching),
        state,
        strength: 0.42,
        evidence: Evidence { statistic: "mixture e-CUSUM".to_owned(), ..Evidence::default() },
        at: UtcMicros(NOW + at),
        ttl: Micros(60_000_000),
    }
}

/// The picture in text.
fn picture(board: &mut Board, width: u16, height: u16) -> String {
    let mut terminal = Terminal::new(TestBackend::new(width, height)).unwrap();
    terminal.draw(|frame| draw(frame, board)).unwrap();
    terminal.backend().to_string()
}

#[test]
fn a_board_at_work() {
    let mut board = Board::new("http://127.0.0.1:8898");
    for step in 0..40 {
        board.apply(Update::View(Box::new(view(
            step * 1_000_000,
            1.5_f64.powi(i32::try_from(step).unwrap()),
        ))));
    }
    board.apply(Update::Signal(Box::new(signal(SignalState::Clear, -600_000_000))));
    board.apply(Update::Signal(Box::new(signal(SignalState::Onset, 39_000_000))));
    insta::assert_snapshot!(picture(&mut board, 100, 26));
    board.choose(1);
    assert_eq!(board.chosen(), 1);
    // The choice follows its row when rows change places.
    board
        .apply(Update::View(Box::new(View { watches: view(0, 1.0).watches[1..2].to_vec(), ..view(0, 1.0) })));
    assert_eq!((board.chosen(), board.rows()[0].signature), (0, SignatureId::RetryAmplification));
}

#[test]
fn a_board_without_anything() {
    insta::assert_snapshot!(picture(&mut Board::new("traces/"), 80, 20));
}

#[test]
fn no_size_of_the_terminal_is_too_small_to_draw() {
    let mut board = Board::new("traces/");
    board.apply(Update::View(Box::new(view(0, 9.0))));
    for (width, height) in [(1, 1), (3, 2), (20, 5), (40, 60), (300, 3)] {
        picture(&mut board, width, height);
    }
}
