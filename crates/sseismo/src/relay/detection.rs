//! The live detector beside the traffic: a thread of its own between the notes of the tap and everybody who
//! wants to know.
//!
//! In: notes. Out: signals to the feed, to JSON Lines and to the dataset; metrics; a snapshot of the detector
//! about once a second for those who look. What the detector learned is kept in the dataset's folder.
//!
//! The thread never stands in the way: notes that do not fit into its queue are dropped and counted. It is only
//! silence if no note is still on its way: notes come up to half a second after their events, so silence is judged
//! as of a second ago, or as of as long ago as a note has lately been late (`lateness`). When notes were dropped,
//! no silence so far proves anything. What takes milliseconds is done on another thread (`worker`).

use std::fs::File;
use std::io::BufWriter;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::mpsc::{Receiver, RecvTimeoutError, SyncSender, sync_channel};
use std::thread::JoinHandle;
use std::time::Duration;

use anyhow::Context as _;
use sseismo_capture::tap::Note;
use sseismo_live_detector::{Baselines, Detector, Jobs, Options, Preset, Snapshot, State, View};
use sseismo_router::admin::{Admin, Health};
use sseismo_router::feed::Feed;
use sseismo_router::metrics::{DetectorState, Loss, Meter, Metrics};
use sseismo_router::operator::Outside;
use sseismo_router::steer::Answer;
use sseismo_trace::parquet::{Manifest, StoredSignal, write_signals};
use sseismo_trace::{Micros, Signal, SignalState, Summary, UtcMicros};
use tokio::net::TcpListener;

use super::lines::Lines;
use crate::clock;
use crate::recording::{Listened, parse_time, tell};

mod lateness;
mod worker;

use lateness::Lateness;
use worker::Worker;

/// Signals that a listener may be away for.
const KEPT_SIGNALS: usize = 1_024;

/// Time between two looks at what time alone changes, µs.
const TICK: i64 = 1_000_000;
/// The same as a wait: short, so that ticks come on time.
const WAIT: Duration = Duration::from_millis(250);
/// How long notes gather once some have come: the thread sleeps then and need not be woken for each.
const GATHER: Duration = Duration::from_millis(20);
/// Notes that are read before a tick, however many more there are.
const BEFORE_TICK: usize = 4_096;

/// Signals wait so long for the dataset, µs: each time makes a file.
const STORE: i64 = 60_000_000;
/// Signals that wait at most, when the dataset takes none.
const UNSTORED: usize = 10_000;

/// Time between two saves of what was learned, µs.
const SAVE: i64 = 300_000_000;
/// Where it is saved, in the dataset's folder.
const BASELINES: &str = "baselines.json";

/// Where operators ask when nobody says otherwise.
const ADMIN: SocketAddr = SocketAddr::new(std::net::IpAddr::V4(std::net::Ipv4Addr::LOCALHOST), 8_898);

/// How to detect, and whom to tell.
#[derive(Debug, clap::Args)]
pub(crate) struct Detection {
    /// How often all signatures in all scopes together may raise a false alarm, for example 12h or 30d.
    #[arg(long, value_name = "TIME", default_value = "30d", value_parser = parse_time)]
    false_alarm_every: Duration,
    /// Which rules to use.
    #[arg(long, value_enum, default_value_t = Rules::Measured)]
    preset: Rules,
    /// Append signals to this file as JSON Lines, instead of writing them to stdout.
    #[arg(long, value_name = "FILE")]
    signals_file: Option<PathBuf>,
    /// Where to serve /signals, /metrics and /health; only on loopback. [default: `admin` of the
    /// configuration, else 127.0.0.1:8898, or any free port when that is taken]
    #[arg(long, value_name = "ADDRESS", value_parser = parse_loopback)]
    admin: Option<SocketAddr>,
}

#[derive(Clone, Copy, Debug, clap::ValueEnum)]
enum Rules {
    /// Baselines learned from the traffic, thresholds from the rate of false alarms.
    Measured,
    /// The literal rules of the production write-ups.
    WriteUp,
}

/// Takes a signal to the router, where there is one, and says what becomes of it.
pub(crate) type Steer = Box<dyn Fn(&Signal) -> Answer + Send>;

/// A detector at work.
pub(crate) struct Detecting {
    feed: Feed,
    metrics: Arc<Metrics>,
    pub(crate) health: Health,
    thread: Option<JoinHandle<Told>>,
    /// Signals that others raise, for the dataset.
    outside: SyncSender<StoredSignal>,
    others: Option<Receiver<StoredSignal>>,
}

/// What was told in the end.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Told {
    /// Onsets.
    pub(crate) onsets: u64,
    /// Notes that the detector did not get.
    pub(crate) missed: u64,
}

impl Detection {
    /// Whether an operators' address was given.
    pub(crate) fn has_address(&self) -> bool {
        self.admin.is_some()
    }

    /// Opens the operators' address.
    pub(crate) async fn listen(&self) -> anyhow::Result<TcpListener> {
        let asked = self.admin.unwrap_or(ADMIN);
        match TcpListener::bind(asked).await {
            Err(error) if self.admin.is_none() && error.kind() == std::io::ErrorKind::AddrInUse => {
                TcpListener::bind((ADMIN.ip(), 0)).await.context("cannot listen on any loopback port")
            }
            bound => bound.with_context(|| format!("cannot serve /signals and /metrics on {asked}")),
        }
    }

    fn options(&self) -> Options {
        let every = i64::try_from(self.false_alarm_every.as_micros()).unwrap_or(i64::MAX);
        let preset = match self.preset {
            Rules::Measured => Preset::Measured,
            Rules::WriteUp => Preset::WriteUp,
        };
        Options {
            false_alarm_every: Micros(every),
            preset,
            jobs: Jobs::ByHost,
            seed: clock::now().0.cast_unsigned(),
            ..Options::default()
        }
    }
}

impl Detecting {
    /// Whom to tell; the detector itself is not there yet.
    pub(crate) fn new() -> Self {
        let feed = Feed::new(clock::now().0.cast_unsigned(), KEPT_SIGNALS);
        let metrics = Arc::new(Metrics::new(&feed));
        let (outside, others) = sync_channel(KEPT_SIGNALS);
        Self { feed, metrics, health: Health::default(), thread: None, outside, others: Some(others) }
    }

    /// Where signals that others raise go in, with what became of them.
    pub(crate) fn outside(&self) -> Outside {
        let outside = self.outside.clone();
        // One that does not fit is missing in the dataset; it was acted on all the same.
        Box::new(move |signal, answer| drop(outside.try_send(stored(signal, Some(answer)))))
    }

    /// Starts the detector on `listened`; `recorder_lost` counts what the recorder did not get, `steer` acts on
    /// its signals.
    pub(crate) fn start(
        &mut self,
        how: &Detection,
        folder: Option<&Path>,
        listened: Listened,
        recorder_lost: Option<Arc<AtomicU64>>,
        steer: Option<Steer>,
    ) -> anyhow::Result<()> {
        let detector = match folder.and_then(|folder| load(&folder.join(BASELINES))) {
            None => Detector::new(how.options()),
            Some(baselines) => {
                tell(&format!("{} scopes are known from an earlier run", baselines.scopes.len()));
                Detector::with_baselines(how.options(), baselines)
            }
        };
        let lines = Lines::start("signal log", how.signals_file.as_deref())?;
        let host = Host {
            detector,
            worker: Worker::start()?,
            lateness: Lateness::default(),
            meter: self.metrics.meter(),
            feed: self.feed.clone(),
            metrics: Arc::clone(&self.metrics),
            lines,
            dataset: folder.map(Path::to_owned),
            saved: clock::now(),
            saving: None,
            unstored: Vec::new(),
            others: self.others.take(),
            steer,
            stored: clock::now(),
            recorder_lost,
            missed: listened.missed,
            told: Told::default(),
        };
        let health = self.health.clone();
        let thread = std::thread::Builder::new().name("detector".to_owned()).spawn(move || {
            let _ended = EndsEarly(health);
            follow(&listened.notes, host)
        });
        self.thread = Some(thread.context("cannot start the detector's thread")?);
        Ok(())
    }

    /// What is counted.
    pub(crate) fn metrics(&self) -> Arc<Metrics> {
        Arc::clone(&self.metrics)
    }

    /// The signals.
    pub(crate) fn feed(&self) -> Feed {
        self.feed.clone()
    }

    /// The operators' pages.
    pub(crate) fn admin(&self) -> Admin {
        Admin::new(self.feed.clone(), Arc::clone(&self.metrics), self.health.clone())
    }

    /// Waits until the last note was seen; what was learned is on disk then.
    pub(crate) fn finish(self) -> anyhow::Result<Told> {
        let Some(thread) = self.thread else { return Ok(Told::default()) };
        thread.join().map_err(|_| anyhow::anyhow!("the detector's thread ended early"))
    }
}

/// Tells the state of health when the thread ends by a panic.
struct EndsEarly(Health);

impl Drop for EndsEarly {
    fn drop(&mut self) {
        if std::thread::panicking() {
            self.0.ended("the detector; traffic goes on and is recorded");
        }
    }
}

/// Follows the notes until the last exchange is over.
fn follow(notes: &Receiver<Note>, mut host: Host) -> Told {
    let mut ticked = clock::now();
    loop {
        match notes.recv_timeout(WAIT) {
            Ok(first) => {
                for note in std::iter::once(first).chain(notes.try_iter().take(BEFORE_TICK)) {
                    host.note(&note);
                }
                std::thread::sleep(GATHER);
            }
            Err(RecvTimeoutError::Timeout) => {}
            Err(RecvTimeoutError::Disconnected) => return host.finish(clock::now()),
        }
        let now = clock::now();
        if now.0.abs_diff(ticked.0) >= TICK.cast_unsigned() {
            ticked = now;
            // What waits was said before now: no silence must be seen where there is none.
            for note in notes.try_iter().take(BEFORE_TICK) {
                host.note(&note);
            }
            host.tick(now);
        }
    }
}

/// The detector and everybody whom it tells.
struct Host {
    detector: Detector,
    worker: Worker,
    lateness: Lateness,
    meter: Meter,
    feed: Feed,
    metrics: Arc<Metrics>,
    lines: Lines,
    dataset: Option<PathBuf>,
    saved: UtcMicros,
    /// Whoever writes what was learned.
    saving: Option<JoinHandle<()>>,
    /// Signals that are not in the dataset yet.
    unstored: Vec<StoredSignal>,
    /// Those that others raise.
    others: Option<Receiver<StoredSignal>>,
    steer: Option<Steer>,
    stored: UtcMicros,
    recorder_lost: Option<Arc<AtomicU64>>,
    missed: Arc<AtomicU64>,
    told: Told,
}

impl Host {
    fn note(&mut self, note: &Note) {
        match note {
            Note::Begin(summary) => {
                let at = moment(summary, summary.t_headers);
                self.meter.begin(Micros(at.0), summary);
                self.detector.begin(at, summary);
            }
            Note::Events { stream_id, deltas, .. } => {
                self.lateness.note(clock::now(), self.detector.started(*stream_id), deltas);
                self.meter.deltas(*stream_id, deltas);
                self.detector.deltas(*stream_id, deltas);
            }
            Note::End(record) => {
                self.meter.end(&record.summary);
                self.detector.end(moment(&record.summary, record.summary.t_end), &record.summary);
            }
        }
        self.tell();
    }

    fn tick(&mut self, now: UtcMicros) {
        self.worker.exchange(&mut self.detector);
        if self.lateness.lost(self.missed.load(Ordering::Relaxed)) {
            self.detector.doubt();
        }
        self.detector.tick(self.lateness.settled(now));
        self.tell();
        while let Some(other) = self.others.as_ref().and_then(|others| others.try_recv().ok()) {
            self.keep(other);
        }
        self.feed.expire(now);
        let view = self.detector.view();
        self.metrics.detector(state(&view, self.missed.load(Ordering::Relaxed)));
        if let Some(lost) = &self.recorder_lost {
            self.metrics.total_dropped(Loss::Recorder, lost.load(Ordering::Relaxed));
        }
        if self.feed.has_viewers()
            && let Ok(view) = serde_json::to_string(&view)
        {
            self.feed.show(&view);
        }
        if now.0.abs_diff(self.saved.0) >= SAVE.cast_unsigned() {
            self.save(now);
        }
        if now.0.abs_diff(self.stored.0) >= STORE.cast_unsigned() {
            self.store(now);
        }
    }

    fn tell(&mut self) {
        for signal in self.detector.take_signals() {
            self.metrics.signal(&signal);
            if signal.state == SignalState::Onset {
                self.told.onsets += 1;
            }
            self.lines.send(&signal);
            let answer = self.steer.as_ref().map(|steer| steer(&signal));
            self.keep(stored(signal.clone(), answer));
            self.feed.publish(signal);
        }
    }

    fn keep(&mut self, signal: StoredSignal) {
        if self.dataset.is_some() && self.unstored.len() < UNSTORED {
            self.unstored.push(signal);
        }
    }

    /// Has a copy of what was learned written by another thread.
    fn save(&mut self, now: UtcMicros) {
        self.saved = now;
        // One that still writes is let write: the next copy says more.
        if self.saving.as_ref().is_some_and(|saving| !saving.is_finished()) {
            return;
        }
        let Some(path) = self.dataset.as_ref().map(|folder| folder.join(BASELINES)) else { return };
        let learned = self.detector.snapshot();
        let saving = move || keep_learned(learned, &path);
        match std::thread::Builder::new().name("saving".to_owned()).spawn(saving) {
            Ok(saving) => self.saving = Some(saving),
            Err(error) => tell(&format!("warning: what was learned is not kept this time: {error}")),
        }
    }

    /// Waits until what was learned is written.
    fn written(&mut self) {
        if let Some(saving) = self.saving.take() {
            let _ = saving.join();
        }
    }

    /// Adds the signals that wait to the dataset; what it does not take is tried again.
    fn store(&mut self, now: UtcMicros) {
        self.stored = now;
        let Some(folder) = self.dataset.as_ref().filter(|_| !self.unstored.is_empty()) else { return };
        match write_signals(folder, Manifest::default(), &self.unstored, now) {
            Ok(()) => self.unstored.clear(),
            Err(error) => {
                tell(&format!("warning: signals cannot be kept in {}: {error}", folder.display()));
            }
        }
    }

    fn finish(mut self, now: UtcMicros) -> Told {
        self.tick(now);
        // After one that still writes: the last word counts.
        self.written();
        self.save(now);
        self.store(now);
        self.written();
        self.lines.finish();
        self.told.missed = self.missed.load(Ordering::Relaxed);
        self.told
    }
}

/// Writes what was learned beside the old and then in its place: a killed process leaves one of the two.
fn keep_learned(learned: Snapshot, path: &Path) {
    let fresh = path.with_extension("json.new");
    let written = File::create(&fresh).and_then(|file| learned.write(BufWriter::new(file)));
    if let Err(error) = written.and_then(|()| std::fs::rename(&fresh, path)) {
        tell(&format!("warning: what was learned cannot be kept in {}: {error}", path.display()));
    }
}

/// A signal with what became of it; of a clear nothing does, shares come back by themselves.
fn stored(signal: Signal, answer: Option<Answer>) -> StoredSignal {
    let answer = answer.filter(|_| signal.state != SignalState::Clear);
    StoredSignal {
        signal,
        action: answer.map(|answer| answer.action.name().to_owned()),
        acted: answer.map(|answer| answer.acted),
    }
}

/// A moment of a stream on the wall clock.
fn moment(summary: &Summary, since: Option<Micros>) -> UtcMicros {
    let start = summary.started_at.unwrap_or_default();
    UtcMicros(start.0.saturating_add(since.unwrap_or_default().0))
}

fn state(view: &View, notes_dropped: u64) -> DetectorState {
    let count = |state| view.watches.iter().filter(|watch| watch.state == state).count() as u64;
    DetectorState {
        scopes: view.scopes,
        learning: count(State::Learning),
        watching: count(State::Watching),
        signalling: count(State::Signalling),
        evicted: view.evicted_scopes,
        notes_dropped,
    }
}

/// What an earlier run learned. A file that cannot be read is told and set aside by the next save.
fn load(path: &Path) -> Option<Baselines> {
    let text = match std::fs::read(path) {
        Ok(text) => text,
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => return None,
        Err(error) => {
            tell(&format!("warning: cannot read {}: {error}; learning anew", path.display()));
            return None;
        }
    };
    serde_json::from_slice(&text)
        .inspect_err(|error| {
            tell(&format!("warning: {} is no longer readable: {error}; learning anew", path.display()));
        })
        .ok()
}

fn parse_loopback(text: &str) -> Result<SocketAddr, String> {
    let address: SocketAddr =
        text.parse().map_err(|_| "expected an address and a port such as 127.0.0.1:8898".to_owned())?;
    if address.ip().is_loopback() {
        Ok(address)
    } else {
        Err("it has no login, so it is served on loopback only; let a proxy of yours guard it".to_owned())
    }
}

#[cfg(test)]
mod tests;
