//! What a killed process left in the journal becomes parts when the dataset is opened again.

use std::fs;
use std::path::{Path, PathBuf};

use sseismo_trace::parquet::{Anchor, PartName};

use super::compact::{self, Job};
use super::{Error, Limits, journal};

/// What was found in the journal. Worth a message when not [`Recovered::default`].
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Recovered {
    /// Streams that were written to parts.
    pub streams: u64,
    /// Of these, streams without an end: their outcome is `unknown`.
    pub unfinished: u64,
    /// Events of these streams.
    pub events: u64,
    /// Bytes of blocks that the kill tore, cut off.
    pub torn_bytes: u64,
    /// Reads that belong to no stream, left out.
    pub unclaimed_reads: u64,
    /// Files that are no journal of this version: renamed, not read.
    pub set_aside: Vec<PathBuf>,
}

/// Files of one ending in the journal's folder, by name.
fn files(root: &Path, ending: &str) -> Result<Vec<(PartName, PathBuf)>, Error> {
    let folder = compact::folder(root);
    let mut found = Vec::new();
    for file in fs::read_dir(&folder).map_err(Error::io("list", &folder))? {
        let path = file.map_err(Error::io("list", &folder))?.path();
        let name = path.file_stem().and_then(|stem| PartName::parse(stem.to_str()?));
        if let (Some(name), true) = (name, path.extension().is_some_and(|end| end == ending)) {
            found.push((name, path));
        }
    }
    found.sort();
    Ok(found)
}

fn remove(path: &Path) -> Result<(), Error> {
    fs::remove_file(path).map_err(Error::io("remove", path))
}

/// Compacts what is there. Says, too, the newest name that was used.
pub(super) fn run(root: &Path, limits: Limits, now: Anchor) -> Result<(Recovered, Option<PartName>), Error> {
    let mut left_over = None;
    for (name, path) in files(root, "left-over")? {
        // A newer one holds all that is left of an older one.
        if let Some((_, older)) = left_over.replace((name, path)) {
            remove(&older)?;
        }
    }
    let mut recovered = Recovered::default();
    let mut segments = Vec::new();
    for (name, path) in files(root, "journal")? {
        if journal::is_ours(&path).map_err(Error::io("read", &path))? {
            segments.push((name, path));
        } else {
            recovered.set_aside.push(compact::set_aside(&path)?);
        }
    }
    let newest = segments.last().map(|(name, _)| *name).max(left_over.as_ref().map(|(name, _)| *name));
    if let Some((done, _)) = &left_over {
        for (_, path) in segments.extract_if(.., |(name, _)| *name <= *done) {
            remove(&path)?;
        }
    }
    let mut jobs: Vec<(PartName, Option<PathBuf>)> =
        segments.into_iter().map(|(name, path)| (name, Some(path))).collect();
    if let (Some((name, _)), true) = (&left_over, jobs.is_empty()) {
        // The parts of `name` are complete; the next name of that process was not used.
        jobs.push((PartName { n: name.n + 1, ..*name }, None));
    }
    let mut carried = left_over.map(|(_, path)| path);
    let count = jobs.len();
    for (number, (name, segment)) in jobs.into_iter().enumerate() {
        let last = number + 1 == count;
        let job = Job { root: root.to_owned(), name, carried, segment, last, limits, now };
        let done = compact::run(&job)?;
        recovered.streams += done.streams;
        recovered.unfinished += done.unfinished;
        recovered.events += done.events;
        recovered.torn_bytes += done.torn;
        recovered.unclaimed_reads += done.unclaimed;
        recovered.set_aside.extend(done.set_aside);
        carried = done.left_over;
    }
    Ok((recovered, newest))
}
