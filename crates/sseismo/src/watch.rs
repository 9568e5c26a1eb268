//! `sseismo watch`: what the live detector sees, as it sees it.
//!
//! In: the feed of a running relay, or a folder of recorded traces that a detector of our own runs over. Out: a
//! board in the terminal; without a terminal, one line per signal.
//!
//! ```text
//! remote │ replay → Update → Board → draw │ lines
//! ```

use std::io::{IsTerminal as _, Write as _};
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{Receiver, RecvTimeoutError, SyncSender, sync_channel};
use std::time::Duration;

use anyhow::{Context as _, bail};
use ratatui::crossterm::event::{self, Event, KeyCode, KeyEvent, KeyEventKind, KeyModifiers};
use sseismo_live_detector::{Options, Preset, View};
use sseismo_trace::{Micros, Signal};

use crate::analyze::PresetName;
use crate::exit::End;
use crate::recording::{parse_time, tell};

mod board;
mod draw;
mod lines;
mod remote;
mod replay;

use board::Board;

const EXAMPLES: &str = "Examples:
  sseismo watch http://127.0.0.1:8898         # a running `sseismo relay`
  sseismo watch traces/                       # recorded traces, at 60 times their pace
  sseismo watch traces/ --speed max | cat     # their signals, one a line
  sseismo watch traces/ --preset write-up     # by the literal rules of the write-ups

In the terminal: ↑ ↓ choose a row, q or Ctrl-C ends.";

/// Updates that may wait for the screen; a source waits for room, for nothing hangs on its pace.
const WAITING: usize = 64;
/// How long the screen waits for news before it looks at the keyboard again.
const FRAME: Duration = Duration::from_millis(50);

/// Shows scopes, baselines, evidence on its way to the threshold, and signals.
#[derive(Debug, clap::Args)]
#[command(after_help = EXAMPLES)]
pub(crate) struct Args {
    /// Admin address of a running relay, or a folder or file of recorded traces.
    #[arg(value_name = "URL|DIR")]
    target: String,
    /// Recorded traces: how many times faster than they were; `max` for as fast as possible.
    /// [default: 60 in a terminal, else max]
    #[arg(long, value_name = "X", value_parser = parse_speed)]
    speed: Option<Speed>,
    /// Recorded traces: how often all signatures together may raise a false alarm. [default: 30d]
    #[arg(long, value_name = "TIME", value_parser = parse_time)]
    false_alarm_every: Option<Duration>,
    /// Recorded traces: which rules to use. [default: measured]
    #[arg(long, value_enum)]
    preset: Option<PresetName>,
}

impl Args {
    /// What the detector over recorded traces is to do.
    fn options(&self) -> Options {
        let usual = Options::default();
        let every = self.false_alarm_every.map(|every| i64::try_from(every.as_micros()).unwrap_or(i64::MAX));
        Options {
            false_alarm_every: every.map_or(usual.false_alarm_every, Micros),
            preset: self.preset.map_or(usual.preset, Preset::from),
            ..usual
        }
    }
}

/// Pace of recorded traces.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Speed {
    /// So many times the recorded pace.
    Times(f64),
    /// Without waiting.
    Max,
}

/// News for the board.
#[derive(Debug)]
enum Update {
    /// Everything that the detector knows.
    View(Box<View>),
    /// A signal was raised, refreshed or cleared.
    Signal(Box<Signal>),
    /// How the source is: nothing of interest, or what is wrong at the moment.
    Status(String),
    /// The source has ended, well or not.
    End(Result<String, String>),
}

/// Runs the verb.
pub(crate) fn run(args: &Args) -> anyhow::Result<End> {
    let screen = std::io::stdout().is_terminal() && std::io::stdin().is_terminal();
    let stop: Arc<AtomicBool> = Arc::default();
    for signal in [signal_hook::consts::SIGINT, signal_hook::consts::SIGTERM] {
        signal_hook::flag::register(signal, Arc::clone(&stop)).context("cannot watch for Ctrl-C")?;
    }
    let (sender, updates) = sync_channel(WAITING);
    start(args, screen, sender, &stop)?;
    if screen { on_screen(&args.target, &updates, &stop) } else { as_lines(&updates, &stop) }
}

/// Starts the source on a thread of its own; it ends with the process.
fn start(
    args: &Args,
    screen: bool,
    sender: SyncSender<Update>,
    stop: &Arc<AtomicBool>,
) -> anyhow::Result<()> {
    let source: Box<dyn FnOnce() + Send> = if args.target.contains("://") {
        if args.speed.is_some() {
            bail!("--speed is for recorded traces; a relay has the pace of its traffic");
        }
        if args.preset.is_some() || args.false_alarm_every.is_some() {
            bail!(
                "--preset and --false-alarm-every are for recorded traces; a relay has its own: give them to \
                 `sseismo relay`"
            );
        }
        let url = remote::address(&args.target)?;
        let client = remote::client()?;
        Box::new(move || remote::follow(&client, &url, &sender))
    } else {
        let path = PathBuf::from(&args.target);
        if !path.exists() {
            bail!("{} is neither a folder nor a file, and no URL of a relay", path.display());
        }
        let speed = args.speed.unwrap_or(if screen { Speed::Times(60.0) } else { Speed::Max });
        let (options, stop) = (args.options(), Arc::clone(stop));
        // Before the board is up: its progress and its complaints go to stderr.
        let tape = replay::read(&path)?;
        Box::new(move || replay::play(tape, speed, options, &sender, &stop))
    };
    std::thread::Builder::new()
        .name("source".to_owned())
        .spawn(source)
        .map(drop)
        .context("cannot start a thread")
}

/// The board, until the user has seen enough.
fn on_screen(target: &str, updates: &Receiver<Update>, stop: &AtomicBool) -> anyhow::Result<End> {
    let mut terminal = ratatui::try_init().context("cannot use the terminal")?;
    let _restored = Restored;
    let mut board = Board::new(target);
    while !stop.load(Ordering::Relaxed) {
        match updates.recv_timeout(FRAME) {
            Ok(update) => board.apply(update),
            Err(RecvTimeoutError::Timeout) => {}
            // The source has said why it ended; the board stays until the user leaves.
            Err(RecvTimeoutError::Disconnected) => std::thread::sleep(FRAME),
        }
        updates.try_iter().take(WAITING).for_each(|update| board.apply(update));
        terminal.draw(|frame| draw::draw(frame, &mut board)).context("cannot draw")?;
        while event::poll(Duration::ZERO).context("cannot read the keyboard")? {
            let Event::Key(key) = event::read().context("cannot read the keyboard")? else { continue };
            match meant(key) {
                Some(Key::Quit) => return Ok(board.end()),
                Some(Key::Move(by)) => board.choose(by),
                None => {}
            }
        }
    }
    Ok(board.end())
}

/// What a key asks for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Key {
    Quit,
    Move(i32),
}

fn meant(key: KeyEvent) -> Option<Key> {
    if key.kind == KeyEventKind::Release {
        return None;
    }
    match key.code {
        KeyCode::Char('q') | KeyCode::Esc => Some(Key::Quit),
        KeyCode::Char('c' | 'd') if key.modifiers.contains(KeyModifiers::CONTROL) => Some(Key::Quit),
        KeyCode::Up | KeyCode::Char('k') => Some(Key::Move(-1)),
        KeyCode::Down | KeyCode::Char('j') => Some(Key::Move(1)),
        _ => None,
    }
}

/// Gives the terminal back, however the board ends; a panic does it by ratatui's own hook.
struct Restored;

impl Drop for Restored {
    fn drop(&mut self) {
        ratatui::restore();
    }
}

/// One line per signal, until the source ends.
fn as_lines(updates: &Receiver<Update>, stop: &AtomicBool) -> anyhow::Result<End> {
    while !stop.load(Ordering::Relaxed) {
        match updates.recv_timeout(FRAME) {
            Ok(Update::Signal(signal)) => writeln!(anstream::stdout().lock(), "{}", lines::signal(&signal))?,
            Ok(Update::View(_)) | Err(RecvTimeoutError::Timeout) => {}
            Ok(Update::Status(text)) => {
                if !text.is_empty() {
                    tell(&text);
                }
            }
            Ok(Update::End(Ok(text))) => {
                tell(&text);
                return Ok(End::Fine);
            }
            Ok(Update::End(Err(text))) => bail!(text),
            Err(RecvTimeoutError::Disconnected) => bail!("the source ended early"),
        }
    }
    Ok(End::Fine)
}

fn parse_speed(text: &str) -> Result<Speed, String> {
    if text == "max" {
        return Ok(Speed::Max);
    }
    let times = text.trim_end_matches('x').parse::<f64>().ok();
    times
        .filter(|times| times.is_finite() && *times > 0.0)
        .map(Speed::Times)
        .ok_or_else(|| "expected a number above 0, or `max`".to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn keys_and_speeds_are_understood() {
        let key = |code, modifiers| meant(KeyEvent::new(code, modifiers));
        assert_eq!(key(KeyCode::Char('q'), KeyModifiers::NONE), Some(Key::Quit));
        assert_eq!(key(KeyCode::Char('c'), KeyModifiers::CONTROL), Some(Key::Quit));
        assert_eq!(key(KeyCode::Char('c'), KeyModifiers::NONE), None);
        assert_eq!(key(KeyCode::Down, KeyModifiers::NONE), Some(Key::Move(1)));
        assert_eq!(parse_speed("10"), Ok(Speed::Times(10.0)));
        assert_eq!(parse_speed("0.5x"), Ok(Speed::Times(0.5)));
        assert_eq!(parse_speed("max"), Ok(Speed::Max));
        assert!(["0", "-1", "fast", "NaN", "inf"].iter().all(|text| parse_speed(text).is_err()));
    }
}
