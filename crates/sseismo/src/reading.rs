//! Reading the paths of a command: progress on stderr, Ctrl-C, standard input, and the list of what
//! became of each file.

use std::io::{IsTerminal as _, Write as _};
use std::ops::ControlFlow;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use anyhow::Context as _;
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
    /// Standard input, kept so that it can be read twice; removed when this is dropped.
    _spool: Option<tempfile::NamedTempFile>,
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
        let mut spool = None;
        let mut read = Vec::with_capacity(paths.len());
        for path in paths {
            if path.as_os_str() == "-" {
                let mut file =
                    tempfile::NamedTempFile::new().context("cannot make a temporary file for stdin")?;
                std::io::copy(&mut std::io::stdin().lock(), &mut file).context("cannot spool stdin")?;
                read.push(file.path().to_owned());
                spool = Some(file);
            } else {
                read.push(path.clone());
            }
        }
        Ok(Self { paths: read, options, interrupted, _spool: spool })
    }

    /// Whether the user ended the reading.
    pub(crate) fn interrupted(&self) -> bool {
        self.interrupted.load(Ordering::Relaxed)
    }

    /// Reads every path once and hands each stream, with its source, to `take`.
    pub(crate) fn read(&mut self, take: &mut dyn FnMut(&str, Stream<'_>)) -> Vec<Input> {
        let bar = progress_bar(&self.paths);
        let mut inputs = Vec::new();
        for path in &self.paths {
            let mut sink = Sink { take, bar: &bar, interrupted: &self.interrupted };
            inputs.extend(import::import(path, &self.options, &mut sink).into_iter().map(input));
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
                bad |= self.paths.iter().any(|path| path.as_os_str() == input.path.as_str());
            }
        }
        bad
    }
}

struct Sink<'a> {
    take: &'a mut dyn FnMut(&str, Stream<'_>),
    bar: &'a ProgressBar,
    interrupted: &'a AtomicBool,
}

impl import::Sink for Sink<'_> {
    fn stream(&mut self, source: &str, stream: Stream<'_>) {
        (self.take)(source, stream);
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
