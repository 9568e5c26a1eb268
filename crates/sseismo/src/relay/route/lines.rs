//! The access log: one line of JSON per request, written by a thread of its own.
//!
//! A pipe that nobody reads must not hold up traffic: lines that do not fit into the queue are left out and
//! counted.

use std::io::Write;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::mpsc::{Receiver, SyncSender, sync_channel};
use std::time::Duration;

use anyhow::Context as _;
use sseismo_router::access::Sink;

use crate::recording::tell;

/// Lines that may wait.
const QUEUE: usize = 4_096;

/// How long lines gather once some have come: requests need not wake the thread one by one then, and whoever
/// watches the file is woken as rarely.
const GATHER: Duration = Duration::from_millis(20);

/// Bytes of lines that are written at once.
const BATCH: usize = 64 << 10;

/// How long the last lines may take, in steps.
const PATIENCE: (u32, Duration) = (200, Duration::from_millis(10));

/// The log.
pub(super) struct Lines {
    sender: SyncSender<String>,
    counts: Arc<Counts>,
}

#[derive(Debug, Default)]
struct Counts {
    waiting: AtomicU64,
    lost: AtomicU64,
}

/// Where lines go in.
pub(super) struct Sender {
    sender: SyncSender<String>,
    counts: Arc<Counts>,
}

impl Lines {
    /// A log that is appended to `path`, or written to stdout.
    pub(super) fn start(path: Option<&Path>) -> anyhow::Result<Self> {
        let out: Box<dyn Write + Send> = match path {
            None => Box::new(anstream::stdout()),
            Some(path) => {
                let file = std::fs::OpenOptions::new().create(true).append(true).open(path);
                Box::new(file.with_context(|| format!("cannot write the access log to {}", path.display()))?)
            }
        };
        let (sender, lines) = sync_channel(QUEUE);
        let counts = Arc::<Counts>::default();
        let counted = Arc::clone(&counts);
        std::thread::Builder::new()
            .name("access-log".to_owned())
            .spawn(move || write(&lines, out, &counted))
            .context("cannot start the access log's thread")?;
        Ok(Self { sender, counts })
    }

    pub(super) fn sender(&self) -> Sender {
        Sender { sender: self.sender.clone(), counts: Arc::clone(&self.counts) }
    }

    /// Waits for the last lines, not for ever.
    pub(super) fn finish(self) {
        let (steps, step) = PATIENCE;
        for _ in 0..steps {
            if self.counts.waiting.load(Ordering::Acquire) == 0 {
                break;
            }
            std::thread::sleep(step);
        }
        let lost = self.counts.lost.load(Ordering::Relaxed) + self.counts.waiting.load(Ordering::Relaxed);
        if lost > 0 {
            tell(&format!("warning: {lost} lines of the access log were not written"));
        }
    }
}

impl Sender {
    pub(super) fn sink(self) -> Sink {
        Box::new(move |entry| {
            let Ok(line) = serde_json::to_string(entry) else { return };
            self.counts.waiting.fetch_add(1, Ordering::Release);
            if self.sender.try_send(line).is_err() {
                self.counts.waiting.fetch_sub(1, Ordering::Release);
                self.counts.lost.fetch_add(1, Ordering::Relaxed);
            }
        })
    }
}

fn write(lines: &Receiver<String>, mut out: Box<dyn Write + Send>, counts: &Counts) {
    let mut batch = String::new();
    while let Ok(first) = lines.recv() {
        let mut taken = 0;
        for line in std::iter::once(first).chain(lines.try_iter()) {
            batch.push_str(&line);
            batch.push('\n');
            taken += 1;
            if batch.len() >= BATCH {
                break;
            }
        }
        let written = out.write_all(batch.as_bytes()).and_then(|()| out.flush());
        if written.is_err() {
            counts.lost.fetch_add(taken, Ordering::Relaxed); // nobody reads any more
        }
        counts.waiting.fetch_sub(taken, Ordering::Release);
        if batch.len() < BATCH {
            std::thread::sleep(GATHER);
        }
        batch.clear();
    }
}
