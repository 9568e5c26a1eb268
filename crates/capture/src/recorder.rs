//! Recording: streams as they happen to a dataset on disk.
//!
//! In: summaries, events and reads of many streams at once, and the time, as arguments. Out: a dataset
//! of [`sseismo_trace::parquet`]. There is no clock and no async code here; a recorder lives on a plain
//! thread, whoever owns it calls [`Recorder::tick`] at least once a second.
//!
//! An unfinished Parquet file cannot be read, so everything goes to a journal first. Each tick appends
//! one checksummed block; a killed process loses what came since the last tick and nothing else. When a
//! segment of the journal is large or old enough, a thread turns it into Parquet parts. What a killed
//! process left is recovered when the dataset is opened again.
//!
//! A full or unwritable disk never stops the caller: what could not be written is counted, [`Status`]
//! says so, and writing is tried again every second. Streams whose events were lost say how many in
//! `events_dropped`.

use std::collections::{HashMap, VecDeque};
use std::fs::{self, File, TryLockError};
use std::io;
use std::path::{Path, PathBuf};
use std::thread::{self, JoinHandle};

use sseismo_trace::parquet::{self, Anchor, PartName, Raw, Text};
use sseismo_trace::{Delta, Kind, Micros, Read, Summary};

mod coarse;
mod compact;
mod entry;
mod hasher;
mod journal;
mod options;
mod recovery;
mod retain;
#[cfg(test)]
mod tests;

use compact::{Done, Job};
use entry::Entry;
pub use hasher::Hasher;
use journal::Journal;
pub use options::Options;
pub use recovery::Recovered;
pub use retain::Limits;

/// Bytes after which the waiting block is written without a tick.
const BLOCK_BYTES: usize = 1 << 18;

/// Time until parts are tried again after a failure, µs.
const RETRY: i64 = 30_000_000;
/// Time between syncs, and until a failed write to the journal is tried again, µs.
const SYNC: i64 = 1_000_000;

/// Streams whose begin or end waits for a disk that takes no writes; more are counted as lost.
const MAX_WAITING: usize = 4_096;

/// Why a recorder cannot start, or a part could not be written.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// The file system said no.
    #[error("cannot {doing} `{}`", path.display())]
    Io {
        /// `create`, `read` …
        doing: &'static str,
        /// The file or folder.
        path: PathBuf,
        /// What the system said.
        source: io::Error,
    },
    /// Another process records there.
    #[error("`{}` is being recorded to by another process; choose another folder", .0.display())]
    InUse(PathBuf),
    /// The identifiers of the dataset were hashed with another key.
    #[error("`{}` holds identifiers hashed with a key that is not in its dataset.key; record to a new folder", .0.display())]
    OtherKey(PathBuf),
    /// The dataset itself.
    #[error(transparent)]
    Dataset(#[from] parquet::Error),
}

impl Error {
    fn io(doing: &'static str, path: &Path) -> impl FnOnce(io::Error) -> Self {
        let path = path.to_owned();
        move |source| Self::Io { doing, path, source }
    }

    /// The error with its causes in one line.
    fn whole(&self) -> String {
        let mut text = self.to_string();
        let mut cause = std::error::Error::source(self);
        while let Some(error) = cause {
            text = format!("{text}: {error}");
            cause = error.source();
        }
        text
    }
}

/// Rows by table.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counts {
    /// Finished streams.
    pub streams: u64,
    /// Events.
    pub events: u64,
    /// Reads.
    pub reads: u64,
}

impl Counts {
    fn add(&mut self, other: Self) {
        self.streams += other.streams;
        self.events += other.events;
        self.reads += other.reads;
    }
}

/// How recording goes.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Status {
    /// Flushed to the journal.
    pub flushed: Counts,
    /// Could not be written, gone.
    pub lost: Counts,
    /// Streams that sampling left out.
    pub sampled_out: u64,
    /// Events, texts and bytes of streams that were not begun or had already ended: refused.
    pub unclaimed: u64,
    /// Streams that are in Parquet parts.
    pub compacted: u64,
    /// What is wrong now; `None` when all is well. To be logged loudly by the caller.
    pub trouble: Option<String>,
}

/// A stream that has not ended.
#[derive(Debug, Default)]
struct Live {
    /// With `--coarse`: the flush that is being summed up.
    flush: Option<Delta>,
    chunks: u32,
    lost: u64,
}

/// What waits to be flushed.
#[derive(Debug, Default)]
struct Block {
    payload: Vec<u8>,
    counts: Counts,
    events: HashMap<u64, u64>,
    begun: Vec<Summary>,
    finished: Vec<(Summary, bool)>,
}

impl Block {
    fn push(&mut self, entry: &Entry) {
        entry.encode(&mut self.payload);
        match entry {
            Entry::Delta(stream_id, _) => {
                self.counts.events += 1;
                *self.events.entry(*stream_id).or_default() += 1;
            }
            Entry::Read(_) => self.counts.reads += 1,
            Entry::Begin(summary) => self.begun.push(summary.as_ref().clone()),
            Entry::Finish(summary, kept) => {
                self.counts.streams += 1;
                self.finished.push((summary.as_ref().clone(), *kept));
            }
            Entry::Text(_) | Entry::Raw(_) | Entry::Anchor(_) | Entry::Carried => {}
        }
    }
}

/// Records to one dataset. Dropped without [`Recorder::close`] it leaves a journal, which the next
/// [`Recorder::open`] recovers.
#[derive(Debug)]
pub struct Recorder {
    root: PathBuf,
    options: Options,
    hasher: Hasher,
    /// Held for as long as we record.
    _lock: File,
    journal: Journal,
    name: PartName,
    opened: Micros,
    synced: Micros,
    ticked: Micros,
    block: Block,
    /// Begins and ends of streams that a failed write left.
    waiting: Vec<Entry>,
    /// When a failed write is tried again.
    write_again: Micros,
    live: HashMap<u64, Live>,
    /// Streams that began since the last block. One that ends before the next is stored once.
    fresh: HashMap<u64, Summary>,
    rotated: VecDeque<(PartName, PathBuf)>,
    left_over: Option<PathBuf>,
    compaction: Option<JoinHandle<Result<Done, Error>>>,
    retry_at: Micros,
    status: Status,
    write_trouble: Option<String>,
    part_trouble: Option<String>,
}

impl Recorder {
    /// Opens the dataset at `root`, makes it if it is not there, and recovers what a killed process
    /// left in its journal.
    ///
    /// # Errors
    /// The folder cannot be written, another process records there, or it is not a dataset of ours.
    pub fn open(root: &Path, options: Options, now: Anchor) -> Result<(Self, Recovered), Error> {
        fs::create_dir_all(compact::folder(root)).map_err(Error::io("create", root))?;
        let lock = lock(root)?;
        let hasher = Hasher::open(root).map_err(Error::io("open the key of", root))?;
        let manifest = options.manifest(&hasher).create_or_load(root)?;
        if manifest.hash_key_id.is_some_and(|id| id != hasher.key_id()) {
            return Err(Error::OtherKey(root.to_owned()));
        }
        let (recovered, newest) = recovery::run(root, options.limits, now)?;
        let unix_s =
            now.wall.0.div_euclid(1_000_000).max(newest.map_or(i64::MIN, |newest| newest.unix_s + 1));
        let name = PartName { unix_s, pid: std::process::id(), n: 0 };
        let path = compact::segment(root, name);
        let journal = Journal::create(&path).map_err(Error::io("create", &path))?;
        let mut recorder = Self {
            root: root.to_owned(),
            options,
            hasher,
            _lock: lock,
            journal,
            name,
            opened: now.monotonic,
            synced: now.monotonic,
            ticked: now.monotonic,
            block: Block::default(),
            waiting: Vec::new(),
            write_again: now.monotonic,
            live: HashMap::new(),
            fresh: HashMap::new(),
            rotated: VecDeque::new(),
            left_over: None,
            compaction: None,
            retry_at: now.monotonic,
            status: Status::default(),
            write_trouble: None,
            part_trouble: None,
        };
        recorder.block.push(&Entry::Anchor(now));
        Ok((recorder, recovered))
    }

    /// Hashes identifiers with this dataset's key.
    pub fn hasher(&self) -> &Hasher {
        &self.hasher
    }

    /// A stream begins: its answer's head has arrived. What is known of it is stored in case that it
    /// never ends.
    pub fn begin(&mut self, summary: &Summary) {
        self.live.insert(summary.stream_id, Live::default());
        self.fresh.insert(summary.stream_id, summary.clone());
    }

    /// An event of a stream that has begun.
    pub fn delta(&mut self, stream_id: u64, delta: &Delta) {
        let Some(live) = self.live.get_mut(&stream_id) else {
            self.status.unclaimed += 1;
            return;
        };
        let whole = if self.options.coarse {
            let folded = live.flush.as_mut().is_some_and(|flush| coarse::fold(flush, delta));
            if folded { None } else { live.flush.replace(*delta) }
        } else {
            Some(*delta)
        };
        if let Some(delta) = whole {
            self.push(&Entry::Delta(stream_id, delta));
        }
    }

    /// A socket read, whatever it brought.
    pub fn read(&mut self, read: &Read) {
        self.push(&Entry::Read(*read));
    }

    /// The text of an event; stored with `keep_text` alone.
    pub fn text(&mut self, stream_id: u64, seq: u32, kind: Kind, text: &str) {
        if !self.options.keep_text {
            return;
        }
        if self.live.contains_key(&stream_id) {
            self.push(&Entry::Text(Text { stream_id, seq, kind, text: text.to_owned() }));
        } else {
            self.status.unclaimed += 1;
        }
    }

    /// Bytes of a stream's body as one read brought them; stored with `keep_raw` alone.
    pub fn raw(&mut self, stream_id: u64, read_id: Option<u32>, t: Option<Micros>, bytes: &[u8]) {
        if !self.options.keep_raw {
            return;
        }
        if let Some(live) = self.live.get_mut(&stream_id) {
            let chunk = live.chunks;
            live.chunks += 1;
            self.push(&Entry::Raw(Raw { stream_id, chunk, read_id, t, bytes: bytes.to_vec() }));
        } else {
            self.status.unclaimed += 1;
        }
    }

    /// A stream has ended. Sampling keeps it when it is `anomalous`, or by chance: attempts of one turn
    /// and branches of one fan-out are kept or left out together.
    pub fn finish(&mut self, summary: Summary, anomalous: bool) {
        let stream_id = summary.stream_id;
        let live = self.live.remove(&stream_id).unwrap_or_default();
        self.fresh.remove(&stream_id);
        if let Some(flush) = live.flush {
            self.push(&Entry::Delta(stream_id, flush));
        }
        let kept = anomalous || self.options.samples(&self.hasher, &summary);
        self.status.sampled_out += u64::from(!kept);
        let events_dropped = summary.events_dropped + live.lost;
        self.push(&Entry::Finish(Box::new(Summary { events_dropped, ..summary }), kept));
    }

    fn push(&mut self, entry: &Entry) {
        self.block.push(entry);
        if self.block.payload.len() < BLOCK_BYTES {
            return;
        }
        if self.write_trouble.is_none() {
            self.flush();
        } else {
            // The disk is tried again with a later tick, not with each block.
            let block = std::mem::take(&mut self.block);
            self.lose(block);
        }
    }

    /// Flushes what waits, rotates, and looks after compaction. To be called at least once a second:
    /// what came since the last tick is what a kill can lose.
    pub fn tick(&mut self, now: Anchor) -> &Status {
        self.ticked = now.monotonic;
        if self.write_trouble.is_none() || now.monotonic >= self.write_again {
            self.flush();
        }
        if now.monotonic.since(self.synced).0 >= SYNC && self.write_trouble.is_none() {
            self.synced = now.monotonic;
            if let Err(error) = self.journal.sync() {
                self.write_trouble = Some(format!("the journal cannot be made durable: {error}"));
            }
        }
        let age = now.monotonic.since(self.opened).0;
        let full = self.journal.len() >= self.options.rotate_bytes;
        if full || age >= i64::try_from(self.options.rotate_age.as_micros()).unwrap_or(i64::MAX) {
            self.rotate(now);
        }
        if self.compaction.as_ref().is_some_and(JoinHandle::is_finished) {
            self.join(now);
        }
        self.start_compaction(now, false);
        self.say()
    }

    /// How recording goes, as of the last tick.
    pub fn status(&self) -> &Status {
        &self.status
    }

    fn say(&mut self) -> &Status {
        self.status.trouble = self.write_trouble.clone().or_else(|| self.part_trouble.clone());
        &self.status
    }

    /// Writes what waits in one block.
    fn flush(&mut self) {
        let mut block = std::mem::take(&mut self.block);
        for (_, begun) in self.fresh.drain() {
            block.push(&Entry::Begin(Box::new(begun)));
        }
        for entry in &self.waiting {
            entry.encode(&mut block.payload);
        }
        if block.payload.is_empty() {
            return;
        }
        match self.journal.append(&block.payload) {
            Ok(()) => {
                self.status.flushed.add(block.counts);
                let ends = self.waiting.iter().filter(|entry| matches!(entry, Entry::Finish(..)));
                self.status.flushed.streams += ends.count() as u64;
                self.waiting.clear();
                self.write_trouble = None;
            }
            Err(error) => {
                self.write_trouble = Some(format!(
                    "cannot write to `{}`: {error}; events are lost",
                    self.journal.path().display()
                ));
                self.write_again = Micros(self.ticked.0.saturating_add(SYNC));
                self.lose(block);
            }
        }
    }

    /// Counts what could not be written. Begins and ends of streams wait for the next try.
    fn lose(&mut self, block: Block) {
        self.status.lost.add(Counts { streams: 0, ..block.counts });
        let mut lost = block.events;
        for summary in block.begun.into_iter().filter(|summary| self.live.contains_key(&summary.stream_id)) {
            if self.waiting.len() < MAX_WAITING {
                self.waiting.push(Entry::Begin(Box::new(summary)));
            }
        }
        for (mut summary, kept) in block.finished {
            summary.events_dropped += lost.remove(&summary.stream_id).unwrap_or(0);
            if self.waiting.len() < MAX_WAITING {
                self.waiting.push(Entry::Finish(Box::new(summary), kept));
            } else {
                self.status.lost.streams += 1;
            }
        }
        for (stream_id, events) in lost {
            if let Some(live) = self.live.get_mut(&stream_id) {
                live.lost += events;
            }
        }
    }

    /// Begins a new segment. Where none can be made, the old one goes on.
    fn rotate(&mut self, now: Anchor) {
        self.opened = now.monotonic;
        let unix_s = now.wall.0.div_euclid(1_000_000).max(self.name.unix_s);
        let name = PartName { unix_s, n: self.name.n + 1, ..self.name };
        let path = compact::segment(&self.root, name);
        match Journal::create(&path) {
            Ok(journal) => {
                // Each segment has the clocks at its beginning and at its end.
                self.block.push(&Entry::Anchor(now));
                self.flush();
                let old = std::mem::replace(&mut self.journal, journal);
                self.rotated.push_back((self.name, old.path().to_owned()));
                self.name = name;
                self.block.push(&Entry::Anchor(now));
            }
            Err(error) => self.part_trouble = Some(format!("cannot create `{}`: {error}", path.display())),
        }
    }

    fn start_compaction(&mut self, now: Anchor, last: bool) {
        if self.compaction.is_some() || now.monotonic < self.retry_at {
            return;
        }
        let Some((name, segment)) = self.rotated.front().cloned() else { return };
        let job = Job {
            root: self.root.clone(),
            name,
            carried: self.left_over.clone(),
            segment: Some(segment),
            last,
            limits: self.options.limits,
            now,
        };
        let spawned = thread::Builder::new().name("compaction".to_owned()).spawn(move || compact::run(&job));
        match spawned {
            Ok(handle) => self.compaction = Some(handle),
            Err(error) => self.part_trouble = Some(format!("cannot start compaction: {error}")),
        }
    }

    /// Takes in the result of a compaction; waits for it.
    fn join(&mut self, now: Anchor) {
        let Some(handle) = self.compaction.take() else { return };
        match handle.join() {
            Ok(Ok(done)) => {
                self.rotated.pop_front();
                self.left_over = done.left_over;
                self.status.compacted += done.streams;
                self.part_trouble = None;
            }
            Ok(Err(error)) => self.part_failed(now, &error.whole()),
            Err(_) => self.part_failed(now, "the compaction thread died"),
        }
    }

    fn part_failed(&mut self, now: Anchor, why: &str) {
        self.retry_at = Micros(now.monotonic.0.saturating_add(RETRY));
        self.part_trouble = Some(format!("{why}; the journal is kept and written to Parquet later"));
    }

    /// Flushes everything and writes all parts. Streams that have not ended are written as they are,
    /// with outcome `unknown`. With trouble in the status the journal is kept for the next
    /// [`Recorder::open`].
    #[must_use]
    pub fn close(mut self, now: Anchor) -> Status {
        let flushes: Vec<(u64, Delta)> =
            self.live.iter_mut().filter_map(|(id, live)| Some((*id, live.flush.take()?))).collect();
        for (stream_id, delta) in flushes {
            self.push(&Entry::Delta(stream_id, delta));
        }
        self.block.push(&Entry::Anchor(now));
        self.flush();
        if let Err(error) = self.journal.sync() {
            self.write_trouble.get_or_insert(format!("the journal cannot be made durable: {error}"));
        }
        self.rotated.push_back((self.name, self.journal.path().to_owned()));
        self.join(now);
        self.retry_at = now.monotonic;
        while !self.rotated.is_empty() {
            self.start_compaction(now, self.rotated.len() == 1);
            let before = self.rotated.len();
            self.join(now);
            if self.rotated.len() == before {
                break;
            }
        }
        self.say().clone()
    }
}

impl Drop for Recorder {
    /// A compaction that still runs holds files of the dataset: it ends before the lock goes.
    fn drop(&mut self) {
        if let Some(handle) = self.compaction.take() {
            // Whatever it says: its journal is kept on an error, and the next recorder finds it.
            let _ = handle.join();
        }
    }
}

fn lock(root: &Path) -> Result<File, Error> {
    let path = compact::folder(root).join("lock");
    let file = File::create(&path).map_err(Error::io("create", &path))?;
    match file.try_lock() {
        Ok(()) => Ok(file),
        Err(TryLockError::WouldBlock) => Err(Error::InUse(root.to_owned())),
        Err(TryLockError::Error(error)) => Err(Error::io("lock", &path)(error)),
    }
}
