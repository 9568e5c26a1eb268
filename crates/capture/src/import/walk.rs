//! Which files of a folder are read, in which order.

use std::collections::{BTreeMap, BTreeSet};
use std::ffi::OsString;
use std::fs;
use std::io;
use std::path::{Path, PathBuf};

use super::importer::Error;

/// Endings of a compressed copy that a client leaves beside, or instead of, the plain file.
const COMPRESSED: [&str; 2] = ["zst", "gz"];

/// A file to be read.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Found {
    /// As reached from the folder that was asked for.
    pub(super) path: PathBuf,
    /// Its size when it was found.
    pub(super) bytes: u64,
}

/// Everything under a folder, each file once however many links lead to it, in the order of paths.
#[derive(Debug, Default)]
pub(super) struct Walk {
    /// The files to read.
    pub(super) files: Vec<Found>,
    /// What could not be looked at.
    pub(super) unreadable: Vec<(PathBuf, Error)>,
    /// What is not read, by reason.
    pub(super) skipped: BTreeMap<&'static str, u64>,
    /// Folders and files already found, by their real paths.
    seen: BTreeSet<PathBuf>,
}

impl Walk {
    /// Walks `folder`. Symbolic links are followed, and a loop of them ends where it meets itself.
    pub(super) fn new(folder: &Path) -> Self {
        let mut walk = Self::default();
        let mut todo = vec![folder.to_owned()];
        while let Some(folder) = todo.pop() {
            match walk.folder(&folder) {
                Ok(inner) => todo.extend(inner.into_iter().rev()),
                Err(error) => walk.unreadable.push((folder, error.into())),
            }
        }
        walk.files.sort_by(|a, b| a.path.cmp(&b.path));
        walk.drop_compressed_copies();
        walk.drop_same_sessions();
        walk
    }

    /// Takes in the files of one folder; gives back its folders.
    fn folder(&mut self, folder: &Path) -> io::Result<Vec<PathBuf>> {
        let real = fs::canonicalize(folder)?;
        if !self.seen.insert(real.clone()) {
            return Ok(Vec::new());
        }
        let mut entries = fs::read_dir(folder)?.collect::<io::Result<Vec<_>>>()?;
        entries.sort_by_key(fs::DirEntry::file_name);
        let mut folders = Vec::new();
        for entry in entries {
            let path = entry.path();
            match fs::metadata(&path) {
                // `.git`, `.venv` and their like: many files, no logs.
                Ok(meta) if meta.is_dir() && is_hidden(&path) => self.skip("hidden-folder"),
                Ok(meta) if meta.is_dir() => folders.push(path),
                Ok(meta) if meta.is_file() => self.file(&entry, &real, meta.len())?,
                Ok(_) => self.skip("not-a-file"),
                Err(error) => self.unreadable.push((path, error.into())),
            }
        }
        Ok(folders)
    }

    fn file(&mut self, entry: &fs::DirEntry, real_folder: &Path, bytes: u64) -> io::Result<()> {
        let path = entry.path();
        let is_link = entry.file_type()?.is_symlink();
        let real = if is_link { fs::canonicalize(&path)? } else { real_folder.join(entry.file_name()) };
        if self.seen.insert(real) {
            self.files.push(Found { path, bytes });
        } else {
            self.skip("same-file");
        }
        Ok(())
    }

    /// A log beside its own compressed copy would be counted twice.
    fn drop_compressed_copies(&mut self) {
        let plain: BTreeSet<PathBuf> = self.files.iter().map(|file| file.path.clone()).collect();
        let is_copy =
            |file: &Found| is_compressed(&file.path) && plain.contains(&file.path.with_extension(""));
        self.drop("compressed-copy", is_copy);
    }

    /// So would a session that lies in two places (archived and restored, a backup): a rollout's name
    /// holds the session's UUID. The plain one is read, else the larger, for logs only grow.
    fn drop_same_sessions(&mut self) {
        let mut best: BTreeMap<OsString, (bool, u64, PathBuf)> = BTreeMap::new();
        for file in &self.files {
            let Some(session) = session(&file.path) else { continue };
            let rank = (!is_compressed(&file.path), file.bytes, file.path.clone());
            let held = best.entry(session).or_insert_with(|| rank.clone());
            if (rank.0, rank.1) > (held.0, held.1) {
                *held = rank;
            }
        }
        self.drop("same-session", |file| {
            session(&file.path).and_then(|session| best.get(&session)).is_some_and(|held| held.2 != file.path)
        });
    }

    fn drop(&mut self, reason: &'static str, unwanted: impl Fn(&Found) -> bool) {
        let before = self.files.len();
        self.files.retain(|file| !unwanted(file));
        for _ in self.files.len()..before {
            self.skip(reason);
        }
    }

    fn skip(&mut self, reason: &'static str) {
        *self.skipped.entry(reason).or_default() += 1;
    }
}

fn is_compressed(path: &Path) -> bool {
    path.extension().is_some_and(|end| COMPRESSED.iter().any(|compressed| end == *compressed))
}

/// The name of a Codex rollout, without the ending of its compression.
fn session(path: &Path) -> Option<OsString> {
    let name = if is_compressed(path) { path.file_stem()? } else { path.file_name()? };
    let name_has_uuid = name.len() >= "rollout-.jsonl".len() + 36;
    (name_has_uuid && name.as_encoded_bytes().starts_with(b"rollout-")).then(|| name.to_owned())
}

fn is_hidden(path: &Path) -> bool {
    path.file_name().is_some_and(|name| name.as_encoded_bytes().starts_with(b"."))
}
