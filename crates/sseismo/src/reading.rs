//! Reading the paths of a command: progress on stderr, Ctrl-C, standard input, and the list of what
//! became of each file.

use std::borrow::Cow;
use std::io::{IsTerminal as _, Read as _, Write as _};
use std::ops::ControlFlow;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{RecvTimeoutError, sync_channel};
use std::time::Duration;

use anyhow::{Context as _, bail};
use indicatif::{ProgressBar, ProgressStyle};
use sseismo_analysis::report::Input;
use sseismo_capture::import::{self, Imported};
use sseismo_trace::Stream;

/// The paths of one command. They can be read more than once.
#[derive(Debug)]
pub(crate) struct Reading {
    paths: Vec<PathBuf>,
    options: import::Options,
    interrupted: Arc<AtomicBool>,
    /// The user ended standard input early; what had come by then is read.
    cut: bool,
    /// Standard input, kept so that it can be read twice; removed when this is dropped.
    spool: Option<tempfile::NamedTempFile>,
}

impl Reading {
    /// Prepares to read `paths`; `-` is standard input, which is spooled to a temporary file.
    ///
    /// # Errors
    /// When standard input cannot be spooled or Ctrl-C cannot be watched.
    pub(crate) fn new(paths: &[PathBuf], options: import::Options) -> anyhow::Result<Self> {
        let interrupted = Arc::new(AtomicBool::new(false));
        // The first Ctrl-C ends the reading and prints what was done; the second ends the process.
        signal_hook::flag::register_conditional_shutdown(
            signal_hook::consts::SIGINT,
            130,
            interrupted.clone(),
        )
        .context("cannot watch for Ctrl-C")?;
        signal_hook::flag::register(signal_hook::consts::SIGINT, interrupted.clone())
            .context("cannot watch for Ctrl-C")?;
        let mut reading = Self { paths: Vec::new(), options, interrupted, cut: false, spool: None };
        for path in paths {
            if path.as_os_str() != STDIN {
                reading.paths.push(path.clone());
                continue;
            }
            if reading.spool.is_some() {
                bail!("standard input can be read only once: name `{STDIN}` once");
            }
            let mut file =
                tempfile::NamedTempFile::new().context("cannot make a temporary file for stdin")?;
            spool(file.as_file_mut(), &reading.interrupted).context("cannot spool stdin")?;
            // The first Ctrl-C ended the waiting; what came by then is still to be read.
            reading.cut = reading.interrupted.swap(false, Ordering::Relaxed);
            reading.paths.push(file.path().to_owned());
            reading.spool = Some(file);
        }
        Ok(reading)
    }

    /// Whether the user ended the reading.
    pub(crate) fn interrupted(&self) -> bool {
        self.cut || self.interrupted.load(Ordering::Relaxed)
    }

    /// Reads every path once and hands each stream, with its source, to `take`.
    pub(crate) fn read(&mut self, take: &mut dyn FnMut(&str, Stream<'_>)) -> Vec<Input> {
        let bar = progress_bar(&self.paths);
        let mut inputs = Vec::new();
        for path in &self.paths {
            let spool = self.spool.as_ref().map(|file| file.path().display().to_string());
            let mut sink = Sink { take, bar: &bar, interrupted: &self.interrupted, spool: spool.as_deref() };
            let imported = import::import(path, &self.options, &mut sink);
            inputs.extend(imported.into_iter().map(|imported| {
                let path = shown(&imported.path, spool.as_deref()).into_owned();
                input(Imported { path, ..imported })
            }));
        }
        bar.finish_and_clear();
        inputs
    }

    /// Tells on stderr what could not be read. True when one of the paths that the user named is among
    /// them; a bad file somewhere inside a named folder is told but does not fail the run.
    pub(crate) fn tell_errors(&self, inputs: &[Input]) -> bool {
        let mut bad = false;
        for input in inputs {
            if let Some(error) = &input.error {
                let _ = writeln!(anstream::stderr(), "error: {}: {error}", input.path);
                bad |= input.path == STDIN
                    || self.paths.iter().any(|path| path.as_os_str() == input.path.as_str());
            }
        }
        bad
    }

    /// Tells on stderr when nothing at all could be used: no verdict on nothing passes for a good one.
    /// True then.
    pub(crate) fn tell_nothing(&self, inputs: &[Input]) -> bool {
        let nothing = inputs.iter().all(|input| input.streams == 0) && !self.interrupted();
        if nothing {
            let left_out = inputs.iter().flat_map(|input| &input.skipped);
            let reasons: Vec<String> = left_out.map(|(reason, count)| format!("{count} {reason}")).collect();
            if reasons.is_empty() && inputs.iter().any(|input| input.error.is_some()) {
                return true; // said with its path
            }
            let reasons = if reasons.is_empty() {
                "there are no records in it".to_owned()
            } else {
                format!("left out: {}", reasons.join(", "))
            };
            let from = match inputs {
                [input] => format!(" from {}", input.path),
                _ => String::new(),
            };
            let _ = writeln!(anstream::stderr(), "error: no streams were read{from}; {reasons}");
        }
        nothing
    }
}

/// What the user writes for standard input.
const STDIN: &str = "-";

/// Copies standard input to `file` until it ends or the user ends the waiting.
fn spool(file: &mut std::fs::File, interrupted: &AtomicBool) -> std::io::Result<()> {
    // A thread of its own, for a read that waits cannot be called off; it ends with the process.
    let (send, receive) = sync_channel(4);
    std::thread::spawn(move || {
        let mut stdin = std::io::stdin().lock();
        loop {
            let mut chunk = vec![0; 256 * 1024];
            let read = stdin.read(&mut chunk).map(|read| {
                chunk.truncate(read);
                chunk
            });
            let last = !matches!(&read, Ok(chunk) if !chunk.is_empty());
            if send.send(read).is_err() || last {
                return;
            }
        }
    });
    while !interrupted.load(Ordering::Relaxed) {
        match receive.recv_timeout(Duration::from_millis(50)) {
            Ok(chunk) => file.write_all(&chunk?)?,
            Err(RecvTimeoutError::Timeout) => {}
            Err(RecvTimeoutError::Disconnected) => break,
        }
    }
    Ok(())
}

/// `path`, or what it begins with, under the name that the user gave it.
fn shown<'p>(path: &'p str, spool: Option<&str>) -> Cow<'p, str> {
    match spool.and_then(|spool| path.strip_prefix(spool)) {
        Some(rest) => Cow::Owned(format!("{STDIN}{rest}")),
        None => Cow::Borrowed(path),
    }
}

struct Sink<'a> {
    take: &'a mut dyn FnMut(&str, Stream<'_>),
    bar: &'a ProgressBar,
    interrupted: &'a AtomicBool,
    spool: Option<&'a str>,
}

impl import::Sink for Sink<'_> {
    fn stream(&mut self, source: &str, stream: Stream<'_>) {
        (self.take)(&shown(source, self.spool), stream);
    }

    fn progress(&mut self, bytes: u64) -> ControlFlow<()> {
        self.bar.inc(bytes);
        if self.interrupted.load(Ordering::Relaxed) {
            ControlFlow::Break(())
        } else {
            ControlFlow::Continue(())
        }
    }
}

fn input(imported: Imported) -> Input {
    Input {
        path: imported.path,
        format: imported.format.to_owned(),
        streams: imported.streams,
        events: imported.events,
        skipped: imported.skipped.into_iter().map(|(reason, count)| (reason.to_owned(), count)).collect(),
        notes: imported.notes.into_iter().map(str::to_owned).collect(),
        error: imported.error,
    }
}

/// Bytes and time left, drawn on stderr and only when that is a terminal.
fn progress_bar(paths: &[PathBuf]) -> ProgressBar {
    if !std::io::stderr().is_terminal() {
        return ProgressBar::hidden();
    }
    let style =
        ProgressStyle::with_template("{bar:24} {bytes} of {total_bytes}, {bytes_per_sec}, {eta} left");
    let total = paths.iter().map(|path| import::bytes(path)).sum();
    ProgressBar::new(total).with_style(style.unwrap_or_else(|_| ProgressStyle::default_bar()))
}
