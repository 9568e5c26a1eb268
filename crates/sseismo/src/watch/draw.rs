//! The board as a picture.
//!
//! ```text
//! ┌ where it comes from ───────────────── time ┐
//! │ streams, scopes, budget of false alarms    │
//! ├ scope · signature · state · evidence ──────┤
//! ├ the chosen row: baseline │ its evidence ───┤
//! ├ signals ───────────────────────────────────┤
//! └────────────────────────────────────────────┘
//! ```

use ratatui::Frame;
use ratatui::layout::{Constraint, Layout, Rect};
use ratatui::style::{Color, Modifier, Style, Stylize as _};
use ratatui::text::{Line, Span};
use ratatui::widgets::{Block, Paragraph, Row, Sparkline, Table, TableState, Wrap};
use sseismo_live_detector::{State, View, WatchView};
use sseismo_trace::{Dim, Scope, Signal, SignalState};

use super::board::Board;
use super::lines;

/// Cells of a bar of evidence.
const BAR: u8 = 16;

/// Draws everything.
pub(super) fn draw(frame: &mut Frame<'_>, board: &mut Board) {
    let signals = (board.signals.len().clamp(1, 8) + 2).try_into().unwrap_or(3);
    let [head, table, chosen, told] = Layout::vertical([
        Constraint::Length(3),
        Constraint::Min(5),
        Constraint::Length(9),
        Constraint::Length(signals),
    ])
    .areas(frame.area());
    draw_head(frame, head, board);
    draw_table(frame, table, board);
    draw_chosen(frame, chosen, board);
    draw_signals(frame, told, board);
}

fn draw_head(frame: &mut Frame<'_>, area: Rect, board: &Board) {
    let time = board.view.as_ref().map(|view| lines::date(view.at)).unwrap_or_default();
    let block = Block::bordered()
        .title(Line::from(format!(" sseismo watch {} ", board.target)).bold())
        .title(Line::from(format!(" {time} ")).right_aligned());
    let text = match &board.view {
        Some(view) if board.status.is_empty() => Line::from(summary(view)),
        Some(view) => {
            Line::from(vec![Span::from(summary(view)), Span::from(format!(" · {}", board.status)).yellow()])
        }
        None => Line::from(board.status.clone()).yellow(),
    };
    frame.render_widget(Paragraph::new(text).block(block), area);
}

fn summary(view: &View) -> String {
    let lost = match (view.evicted_scopes, view.stray_deltas, view.lost_events) {
        (0, 0, 0) => String::new(),
        (scopes, deltas, lost) => {
            format!(" · {scopes} scopes evicted, {deltas} events without a stream, {lost} events lost")
        }
    };
    format!(
        "{} streams live · {} scopes · one false alarm per {}, shared by {} watches{lost}",
        view.live_streams,
        view.scopes,
        lines::span(view.false_alarm_every),
        view.live_pairs,
    )
}

fn draw_table(frame: &mut Frame<'_>, area: Rect, board: &Board) {
    let signalling = board.rows().iter().filter(|watch| watch.state == State::Signalling).count();
    let title = match signalling {
        0 => " evidence ".to_owned(),
        n => format!(" evidence · {n} signalling "),
    };
    let rows = board.rows().iter().map(|watch| {
        Row::new([
            scope(&watch.target),
            watch.signature.name().to_owned(),
            watch.state.name().to_owned(),
            bar(watch),
            against(watch),
        ])
        .style(style(watch.state))
    });
    let widths = [
        Constraint::Min(16),
        Constraint::Length(19),
        Constraint::Length(10),
        Constraint::Length(18),
        Constraint::Length(18),
    ];
    let table = Table::new(rows, widths)
        .header(Row::new(["scope", "signature", "state", "evidence", "value of threshold"]).dim())
        .row_highlight_style(Style::new().add_modifier(Modifier::REVERSED))
        .block(Block::bordered().title(title));
    let mut state = TableState::new().with_selected(board.chosen());
    frame.render_stateful_widget(table, area, &mut state);
}

/// A scope by its values alone; the names of upstream, model and effort need not be said each time.
fn scope(scope: &Scope) -> String {
    let values: Vec<&str> = Dim::ALL.into_iter().filter_map(|dim| scope.get(dim)).collect();
    if values.is_empty() { "everything".to_owned() } else { values.join(" ") }
}

/// How far evidence has climbed, or how much was learned.
fn bar(watch: &WatchView) -> String {
    #[expect(clippy::cast_precision_loss, reason = "observations of a baseline")]
    let (share, full, rest) = match watch.state {
        State::Learning => (watch.learned as f64 / watch.needed.max(1) as f64, '▒', ' '),
        State::Watching | State::Signalling => (watch.progress(), '█', '·'),
    };
    #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "0 to BAR")]
    let cells = (share.clamp(0.0, 1.0) * f64::from(BAR)).round() as u8;
    let bar = (0..BAR).map(|cell| if cell < cells { full } else { rest });
    std::iter::once('│').chain(bar).chain(['│']).collect()
}

fn against(watch: &WatchView) -> String {
    match (watch.state, watch.threshold) {
        (State::Learning, _) => format!("{} of {} {}", watch.learned, watch.needed, watch.unit),
        (_, Some(threshold)) => {
            format!("{} of {}", lines::figure(watch.value), lines::figure(threshold))
        }
        (_, None) => lines::figure(watch.value),
    }
}

fn style(state: State) -> Style {
    match state {
        State::Learning => Style::new().dim(),
        State::Watching => Style::new(),
        State::Signalling => Style::new().fg(Color::Red).add_modifier(Modifier::BOLD),
    }
}

fn draw_chosen(frame: &mut Frame<'_>, area: Rect, board: &Board) {
    let [left, right] =
        Layout::horizontal([Constraint::Percentage(60), Constraint::Percentage(40)]).areas(area);
    let Some(watch) = board.rows().get(board.chosen()) else {
        frame.render_widget(Block::bordered(), area);
        return;
    };
    let title = format!(" {} · {} ", scope(&watch.target), watch.signature.name());
    let text = Paragraph::new(known(watch)).wrap(Wrap { trim: true });
    frame.render_widget(text.block(Block::bordered().title(title)), left);

    let block = Block::bordered().title(" its evidence, the newest on the right ");
    let width = usize::from(block.inner(right).width);
    #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "0 to 1,000")]
    let mut past: Vec<u64> =
        board.history(watch).rev().take(width).map(|share| (share * 1_000.0) as u64).collect();
    past.resize(width, 0);
    past.reverse();
    let color = if watch.state == State::Signalling { Color::Red } else { Color::Cyan };
    let spark = Sparkline::default().data(&past).max(1_000).style(Style::new().fg(color));
    frame.render_widget(spark.block(block), right);
}

/// What is known of one watch, in lines.
fn known(watch: &WatchView) -> Vec<Line<'static>> {
    let mut text = vec![Line::from(match watch.average_run_length {
        None => format!("{}, still learning", watch.statistic),
        Some(length) => {
            format!("{}; by chance once in {} {}", watch.statistic, lines::figure(length), watch.unit)
        }
    })];
    if let Some(pace) = watch.pace {
        text.push(Line::from(format!("one of these per {}", lines::span(pace))));
    }
    if !watch.baseline.is_empty() {
        let figures = watch.baseline.iter().map(|figure| {
            let unit = if figure.unit.is_empty() { String::new() } else { format!(" {}", figure.unit) };
            format!("{} {}{unit}", figure.name, lines::figure(figure.value))
        });
        text.push(Line::from(format!("baseline: {}", figures.collect::<Vec<_>>().join(", "))));
    }
    text.extend(watch.notes.iter().map(|note| Line::from(note.clone()).dim()));
    text
}

fn draw_signals(frame: &mut Frame<'_>, area: Rect, board: &Board) {
    let text: Vec<Line<'_>> = if board.signals.is_empty() {
        vec![Line::from("none so far").dim()]
    } else {
        board.signals.iter().map(told).collect()
    };
    let block = Block::bordered().title(" signals ").title_bottom(Line::from(" ↑ ↓ choose · q ends ").dim());
    frame.render_widget(Paragraph::new(text).block(block), area);
}

fn told(signal: &Signal) -> Line<'static> {
    let state = match signal.state {
        SignalState::Onset => Span::from("onset  ").red().bold(),
        SignalState::Refresh => Span::from("refresh").red(),
        SignalState::Clear => Span::from("clear  ").green(),
    };
    let cause = signal.cause.map(|cause| format!(", {}", cause.name())).unwrap_or_default();
    let what = match signal.state {
        SignalState::Clear => String::new(),
        SignalState::Onset | SignalState::Refresh => {
            format!(": {}{cause}, strength {:.2}", crate::show::detail(&signal.detail), signal.strength)
        }
    };
    Line::from(vec![
        Span::from(format!("{} ", lines::time_of_day(signal.at))).dim(),
        state,
        Span::from(format!(" {} {}{what}", signal.detail.signature().name(), scope(&signal.target))),
    ])
}

#[cfg(test)]
mod tests;
