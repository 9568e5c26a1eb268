//! What `relay`, `capture` and `replay` share: how to record.

use std::hash::{BuildHasher as _, RandomState};
use std::io::Write as _;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::mpsc::Receiver;
use std::thread::JoinHandle;
use std::time::Duration;

use anyhow::Context as _;
use sseismo_capture::recorder::{Limits, Options, Recorder, Status};
use sseismo_capture::tap::{self, Hash, Keep, Note, Observer, Record};

/// How to record.
#[derive(Debug, clap::Args)]
#[expect(clippy::struct_excessive_bools, reason = "each is a flag of the command line")]
pub(crate) struct Recording {
    /// Keep the text of answers and of reasoning, in `texts/`: for `sseismo vote` and for reading them.
    #[arg(long)]
    keep_text: bool,
    /// Keep the bytes of answers with their read boundaries, in `raw/`. They hold the answers' text.
    #[arg(long)]
    keep_raw: bool,
    /// Store sums of each flush instead of the size of each event (sizes are a known side channel).
    #[arg(long)]
    coarse: bool,
    /// Remove the oldest parts of the dataset beyond this size, for example 500M or 20G.
    #[arg(long, value_name = "SIZE", value_parser = parse_bytes)]
    max_bytes: Option<u64>,
    /// Remove parts older than this, for example 36h or 14d.
    #[arg(long, value_name = "TIME", value_parser = parse_time)]
    max_age: Option<Duration>,
    /// Trust the certificates in this PEM file, too.
    #[arg(long, value_name = "FILE")]
    ca: Option<PathBuf>,
    /// Speak HTTP/2 to an http:// upstream without asking.
    #[arg(long)]
    http2_prior_knowledge: bool,
}

/// Exchanges that are observed, and where their notes go.
pub(crate) struct Running {
    pub(crate) observer: Observer,
    /// The thread that records to a dataset of its own, where there is one.
    recorder: Option<JoinHandle<Status>>,
    /// The notes, where nobody records them.
    notes: Option<Receiver<Note>>,
}

/// The notes for the detector, and how many it did not get.
pub(crate) struct Listened {
    pub(crate) notes: Receiver<Note>,
    pub(crate) missed: Arc<AtomicU64>,
}

impl Recording {
    /// How upstreams are reached.
    pub(crate) fn tap(&self) -> anyhow::Result<tap::Options> {
        use rustls::pki_types::pem::PemObject as _;

        let extra_roots = match &self.ca {
            None => Vec::new(),
            Some(path) => {
                rustls::pki_types::CertificateDer::pem_file_iter(path).and_then(Iterator::collect).map_err(
                    |error| anyhow::anyhow!("cannot read certificates from {}: {error}", path.display()),
                )?
            }
        };
        Ok(tap::Options { extra_roots, http2_prior_knowledge: self.http2_prior_knowledge })
    }

    /// Starts recording to the dataset at `folder`, or observing without a record when there is none; `each`
    /// gets every finished stream that is recorded, `warn` each new trouble and `None` when it is over.
    #[cfg(feature = "analyze")]
    pub(crate) fn start(
        &self,
        folder: Option<&Path>,
        sample: f64,
        each: impl FnMut(Record) + Send + 'static,
        warn: impl FnMut(Option<&str>) + Send + 'static,
    ) -> anyhow::Result<Running> {
        self.run(folder, sample, Keep::default(), each, warn)
    }

    /// The same where nobody looks at finished streams, so that they need not be kept until they end.
    pub(crate) fn start_notes(
        &self,
        folder: Option<&Path>,
        sample: f64,
        warn: impl FnMut(Option<&str>) + Send + 'static,
    ) -> anyhow::Result<Running> {
        self.run(folder, sample, Keep { notes_only: true, ..Keep::default() }, drop, warn)
    }

    fn run(
        &self,
        folder: Option<&Path>,
        sample: f64,
        keep: Keep,
        each: impl FnMut(Record) + Send + 'static,
        warn: impl FnMut(Option<&str>) + Send + 'static,
    ) -> anyhow::Result<Running> {
        let Some(folder) = folder else {
            let hasher = RandomState::new();
            let hash: Hash = Arc::new(move |domain: &str, value: &[u8]| hasher.hash_one((domain, value)));
            let (observer, notes) = Observer::new(hash, keep);
            return Ok(Running { observer, recorder: None, notes: Some(notes) });
        };
        let recorder = self.open(folder, sample)?;
        let hasher = recorder.hasher().clone();
        let hash: Hash = Arc::new(move |domain: &str, value: &[u8]| hasher.hash(domain, value));
        let keep = Keep { raw: self.keep_raw, text: self.keep_text, ..keep };
        let (observer, notes) = Observer::new(hash, keep);
        let thread = std::thread::Builder::new()
            .name("recorder".to_owned())
            .spawn(move || record(&notes, recorder, each, warn))
            .context("cannot start the recorder's thread")?;
        Ok(Running { observer, recorder: Some(thread), notes: None })
    }

    /// Opens the dataset, and says what was found there and what will be stored.
    fn open(&self, folder: &Path, sample: f64) -> anyhow::Result<Recorder> {
        let options = Options {
            keep_text: self.keep_text,
            keep_raw: self.keep_raw,
            coarse: self.coarse,
            sample,
            limits: Limits { max_bytes: self.max_bytes, max_age: self.max_age },
            ..Options::default()
        };
        for (_, what) in
            [(self.keep_text, "texts"), (self.keep_raw, "bytes")].iter().filter(|(kept, _)| *kept)
        {
            tell(&format!(
                "WARNING: the {what} of answers are STORED in {}: who can read that folder can read them",
                folder.display()
            ));
        }
        let (recorder, recovered) =
            tap::open(folder, options).with_context(|| format!("cannot record to {}", folder.display()))?;
        if recovered.streams > 0 {
            tell(&format!(
                "recovered {} streams of an earlier run, {} of them unfinished",
                recovered.streams, recovered.unfinished
            ));
        }
        for path in &recovered.set_aside {
            tell(&format!("could not be recovered and was set aside: {}", path.display()));
        }
        Ok(recorder)
    }

    /// Whether something was asked for that only a dataset can give.
    pub(crate) fn needs_folder(&self) -> bool {
        self.keep_text || self.keep_raw || self.coarse || self.max_bytes.is_some() || self.max_age.is_some()
    }
}

impl Running {
    /// The notes for the detector; `None` when they were given away.
    pub(crate) fn listen(&mut self) -> Option<Listened> {
        match self.notes.take() {
            Some(notes) => Some(Listened { notes, missed: self.observer.lost() }),
            None => self.observer.listen().map(|(notes, missed)| Listened { notes, missed }),
        }
    }

    /// Waits until everything is on disk. Every exchange must be over, or it is waited for. `None`: nothing
    /// was to be recorded.
    pub(crate) fn finish(self) -> anyhow::Result<Option<Status>> {
        let lost = self.observer.lost();
        drop(self.observer);
        let Some(recorder) = self.recorder else { return Ok(None) };
        let status = recorder.join().map_err(|_| anyhow::anyhow!("the recorder's thread ended early"))?;
        let lost = lost.load(Ordering::Relaxed);
        if lost > 0 {
            tell(&format!(
                "warning: the recorder fell behind; {lost} beginnings or ends of streams were not recorded"
            ));
        }
        Ok(Some(status))
    }
}

fn record(
    notes: &Receiver<Note>,
    recorder: Recorder,
    each: impl FnMut(Record),
    mut warn: impl FnMut(Option<&str>),
) -> Status {
    tap::record(notes, recorder, each, |trouble| {
        warn(trouble);
        match trouble {
            Some(trouble) => {
                tell(&format!("WARNING: recording is in trouble, traffic goes on: {trouble}"));
            }
            None => tell("recording works again"),
        }
    })
}

/// Says something to the person at the terminal.
pub(crate) fn tell(text: &str) {
    // Nobody is left to tell when stderr itself is gone.
    let _ = writeln!(anstream::stderr(), "{text}");
}

/// `1500`, `20k`, `500M`, `2G`: powers of 1,000.
fn parse_bytes(text: &str) -> Result<u64, String> {
    with_unit(
        text,
        &[
            ("", 1),
            ("k", 1_000),
            ("K", 1_000),
            ("M", 1_000_000),
            ("G", 1_000_000_000),
            ("T", 1_000_000_000_000),
        ],
    )
    .ok_or_else(|| "expected a size such as 500M or 20G".to_owned())
}

/// `30s`, `90m`, `36h`, `14d`.
pub(crate) fn parse_time(text: &str) -> Result<Duration, String> {
    with_unit(text, &[("s", 1), ("m", 60), ("h", 3_600), ("d", 86_400)])
        .map(Duration::from_secs)
        .ok_or_else(|| "expected a time such as 30s, 36h or 14d".to_owned())
}

fn with_unit(text: &str, units: &[(&str, u64)]) -> Option<u64> {
    let digits = text.len() - text.trim_start_matches(|c: char| c.is_ascii_digit()).len();
    let (number, unit) = text.split_at(digits);
    let (_, factor) = units.iter().find(|(name, _)| *name == unit.trim())?;
    number.parse::<u64>().ok()?.checked_mul(*factor)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes_and_times_need_a_number_and_a_known_unit() {
        assert_eq!((parse_bytes("20G"), parse_bytes("7")), (Ok(20_000_000_000), Ok(7)));
        assert_eq!(parse_time("2d"), Ok(Duration::from_hours(48)));
        assert!(parse_bytes("G").is_err() && parse_bytes("5X").is_err() && parse_time("5").is_err());
    }
}
