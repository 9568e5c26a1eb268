//! The access log and the signals: lines of JSON, written by a thread of their own.
//!
//! A pipe that nobody reads must not hold up traffic, nor must a full disk: what cannot be written is told at once
//! and waits, lines that do not fit into the queue are left out and counted.

use std::io::{self, Write};
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::mpsc::{Receiver, SyncSender, sync_channel};
use std::time::Duration;

use anyhow::Context as _;
use serde::Serialize;

use super::log_file::LogFile;
use crate::recording::tell;

/// Lines that may wait.
const QUEUE: usize = 4_096;

/// How long lines gather once some have come: requests need not wake the thread one by one then, and whoever
/// watches the file is woken as rarely.
const GATHER: Duration = Duration::from_millis(20);

/// Bytes of lines that are written at once.
const BATCH: usize = 64 << 10;

/// How long until lines that could not be written are tried again.
const AGAIN: Duration = Duration::from_secs(1);

/// How long the last lines may take, in steps. They are tried again at least once.
const PATIENCE: (u32, Duration) = (200, Duration::from_millis(10));

/// A log.
#[derive(Debug)]
pub(super) struct Lines {
    /// What it is called when something goes wrong: `access log`.
    name: &'static str,
    sender: Sender,
}

#[derive(Debug, Default)]
struct Counts {
    waiting: AtomicU64,
    lost: AtomicU64,
}

/// Where lines go in.
#[derive(Clone, Debug)]
pub(super) struct Sender {
    sender: SyncSender<String>,
    counts: Arc<Counts>,
}

impl Lines {
    /// A log that is appended to `path`, or written to stdout.
    pub(super) fn start(name: &'static str, path: Option<&Path>) -> anyhow::Result<Self> {
        let out: Box<dyn Write + Send> = match path {
            None => Box::new(anstream::stdout()),
            Some(path) => {
                let file = LogFile::open(path);
                Box::new(file.with_context(|| format!("cannot write the {name} to {}", path.display()))?)
            }
        };
        let place = path.map_or_else(|| "stdout".to_owned(), |path| path.display().to_string());
        let (sender, lines) = sync_channel(QUEUE);
        let counts = Arc::<Counts>::default();
        let writer = Writer { name, place, out, counts: Arc::clone(&counts) };
        std::thread::Builder::new()
            .name(name.replace(' ', "-"))
            .spawn(move || writer.follow(&lines))
            .with_context(|| format!("cannot start the thread of the {name}"))?;
        Ok(Self { name, sender: Sender { sender, counts } })
    }

    pub(super) fn sender(&self) -> Sender {
        self.sender.clone()
    }

    /// As [`Sender::send`].
    pub(super) fn send(&self, line: &impl Serialize) {
        self.sender.send(line);
    }

    /// Waits for the last lines, not for ever.
    pub(super) fn finish(&self) {
        let (counts, (steps, step)) = (&self.sender.counts, PATIENCE);
        for _ in 0..steps {
            if counts.waiting.load(Ordering::Acquire) == 0 {
                break;
            }
            std::thread::sleep(step);
        }
        let lost = counts.lost.load(Ordering::Relaxed) + counts.waiting.load(Ordering::Relaxed);
        if lost > 0 {
            tell(&format!("warning: {lost} lines of the {} were not written", self.name));
        }
    }
}

impl Sender {
    /// Takes a line; never waits.
    pub(super) fn send(&self, line: &impl Serialize) {
        let Ok(line) = serde_json::to_string(line) else { return };
        self.counts.waiting.fetch_add(1, Ordering::Release);
        if self.sender.try_send(line).is_err() {
            self.counts.waiting.fetch_sub(1, Ordering::Release);
            self.counts.lost.fetch_add(1, Ordering::Relaxed);
        }
    }
}

/// What the thread does.
struct Writer {
    name: &'static str,
    place: String,
    out: Box<dyn Write + Send>,
    counts: Arc<Counts>,
}

impl Writer {
    fn follow(mut self, lines: &Receiver<String>) {
        let mut batch = String::new();
        while let Ok(first) = lines.recv() {
            for line in std::iter::once(first).chain(lines.try_iter()) {
                batch.push_str(&line);
                batch.push('\n');
                if batch.len() >= BATCH {
                    break;
                }
            }
            self.write(batch.as_bytes());
            if batch.len() < BATCH {
                std::thread::sleep(GATHER);
            }
            batch.clear();
        }
    }

    /// Writes whole lines, however long it takes: each once, and none is torn by a disk that was full for a while.
    fn write(&mut self, mut rest: &[u8]) {
        let (name, place) = (self.name, &self.place);
        let mut failing = None;
        loop {
            let before = lines_in(rest);
            let written = write_some(&mut rest, &mut *self.out);
            self.counts.waiting.fetch_sub(before - lines_in(rest), Ordering::Release);
            match written {
                Ok(()) => break,
                Err(error) if error.kind() == io::ErrorKind::BrokenPipe => {
                    if self.counts.lost.fetch_add(lines_in(rest), Ordering::Relaxed) == 0 {
                        tell(&format!(
                            "warning: nobody reads the {name} on {place} any more; it is left out"
                        ));
                    }
                    self.counts.waiting.fetch_sub(lines_in(rest), Ordering::Release);
                    return;
                }
                Err(error) => {
                    if failing.is_none() {
                        tell(&format!(
                            "warning: cannot write the {name} to {place}: {error}; some {QUEUE} lines can wait, \
                             further ones are lost"
                        ));
                        failing = Some(self.counts.lost.load(Ordering::Relaxed));
                    }
                    std::thread::sleep(AGAIN);
                }
            }
        }
        if let Some(before) = failing {
            let lost = self.counts.lost.load(Ordering::Relaxed) - before;
            tell(&format!("the {name} is written to {place} again; {lost} lines were lost meanwhile"));
        }
    }
}

/// Writes `rest`; on an error it is what is still to be written.
fn write_some(rest: &mut &[u8], out: &mut dyn Write) -> io::Result<()> {
    while !rest.is_empty() {
        match out.write(rest) {
            Ok(0) => return Err(io::ErrorKind::WriteZero.into()),
            Ok(count) => *rest = &rest[count..],
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(error) => return Err(error),
        }
    }
    out.flush()
}

/// Lines that end in `bytes`.
fn lines_in(bytes: &[u8]) -> u64 {
    (bytes.split(|byte| *byte == b'\n').count() - 1) as u64
}
