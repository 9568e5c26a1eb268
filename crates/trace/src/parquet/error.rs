//! Why a dataset could not be read or written. Paths and columns are named, values never.

use std::fmt;
use std::io;
use std::path::{Path, PathBuf};

/// Why a dataset, or one file of it, could not be used.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// The file system said no.
    #[error("cannot {doing} `{}`", path.display())]
    Io {
        /// `open`, `write`, `rename` …
        doing: &'static str,
        /// The file or folder.
        path: PathBuf,
        /// What the system said.
        source: io::Error,
    },
    /// The folder is not one of ours.
    #[error("`{}` is not a trace dataset: {why}; convert other formats with `sseismo import PATH -o DIR`", path.display())]
    NotADataset {
        /// The folder or file.
        path: PathBuf,
        /// What is missing or wrong.
        why: String,
    },
    /// A later version of this program wrote it.
    #[error("`{}` has trace schema {found}, this program reads up to {known}; use a newer sseismo", path.display())]
    Newer {
        /// The file.
        path: PathBuf,
        /// Its version.
        found: u32,
        /// Ours.
        known: u32,
    },
    /// The file is damaged, was never finished, or others wrote it with a compression that is not read here.
    #[error("`{}` is damaged or unfinished, or not compressed with zstd: {reason}; move it away to read the rest in silence", path.display())]
    Damaged {
        /// The file.
        path: PathBuf,
        /// What the Parquet reader found.
        reason: String,
    },
    /// Something of a file's name that is none: a pipe, a folder, a socket.
    #[error("`{}` is not a regular file; move it away", .0.display())]
    NotAFile(PathBuf),
    /// A file of a part is gone.
    #[error("`{}` is missing: it held {rows} rows of {owners} streams or connections; put it back, or remove the part's other files", path.display())]
    Missing {
        /// The file.
        path: PathBuf,
        /// The rows that it held.
        rows: u64,
        /// The streams or connections that they belong to.
        owners: u64,
    },
    /// A column is missing or has the wrong type.
    #[error("`{}`: column `{column}` {problem}", path.display())]
    Column {
        /// The file.
        path: PathBuf,
        /// The column.
        column: &'static str,
        /// What is wrong with it.
        problem: String,
    },
    /// Rows are not in the order that the format promises.
    #[error("`{}`: rows are not sorted by {by}; sort them and write the file again", path.display())]
    Unsorted {
        /// The file.
        path: PathBuf,
        /// The columns of the order.
        by: &'static str,
    },
    /// Values could not be encoded.
    #[error("cannot encode rows for `{}`: {reason}", path.display())]
    Encode {
        /// The file that was being written.
        path: PathBuf,
        /// What the Parquet writer said.
        reason: String,
    },
}

impl Error {
    pub(super) fn io(doing: &'static str, path: &Path) -> impl FnOnce(io::Error) -> Self {
        let path = path.to_owned();
        move |source| Self::Io { doing, path, source }
    }

    pub(super) fn damaged(path: &Path, reason: impl fmt::Display) -> Self {
        Self::Damaged { path: path.to_owned(), reason: reason.to_string() }
    }

    pub(super) fn encode(path: &Path, reason: impl fmt::Display) -> Self {
        Self::Encode { path: path.to_owned(), reason: reason.to_string() }
    }
}
