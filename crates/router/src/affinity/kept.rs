//! The map of issuers on disk: so that sessions outlive a restart.
//!
//! The first line holds the version and the key of the hashes, each further one a hash and an organisation; lines
//! are appended, and the whole is written anew when it has grown too long. Nobody can read a reference from it;
//! who has it can only see whether a reference that he already knows was issued here. Only its owner can read it.

use std::fs::{File, OpenOptions};
use std::io::{self, BufWriter, Write as _};
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use super::StateKey;

/// Begins the first line.
const VERSION: &str = "sseismo-affinity/1";

/// The file, and how long it is.
#[derive(Debug)]
pub(super) struct Kept {
    path: PathBuf,
    lines: usize,
}

/// A reference and who issued it.
type Issued = (StateKey, Arc<str>);

impl Kept {
    /// Reads the file, or begins it. A line that cannot be read is left out: the last may have been cut off.
    pub(super) fn open(path: &Path) -> io::Result<(Self, [u8; 32], Vec<Issued>)> {
        let text = match std::fs::read_to_string(path) {
            Ok(text) => text,
            Err(error) if error.kind() == io::ErrorKind::NotFound => {
                let (mut kept, key) = (Self { path: path.to_owned(), lines: 0 }, random_key()?);
                kept.rewrite(&key, &[])?;
                return Ok((kept, key, Vec::new()));
            }
            Err(error) => return Err(error),
        };
        let (first, rest) = text.split_once('\n').unwrap_or((&text, ""));
        let key = first.strip_prefix(VERSION).and_then(|key| key_of_hex(key.trim()));
        let foreign = || io::Error::new(io::ErrorKind::InvalidData, "it is no file of known issuers");
        let key = key.ok_or_else(foreign)?;
        let references: Vec<Issued> = rest.lines().filter_map(issued).collect();
        let mut kept = Self { path: path.to_owned(), lines: references.len() };
        if !rest.is_empty() && !rest.ends_with('\n') {
            kept.rewrite(&key, &references)?; // what is appended must begin a line
        }
        Ok((kept, key, references))
    }

    /// Whether it should be written anew.
    pub(super) fn is_long(&self, limit: usize) -> bool {
        self.lines > 2 * limit
    }

    pub(super) fn append(&mut self, references: &[Issued]) -> io::Result<()> {
        if references.is_empty() {
            return Ok(());
        }
        write(OpenOptions::new().append(true).open(&self.path)?, references)?;
        self.lines += references.len();
        Ok(())
    }

    /// Writes a new file and puts it in the old one's place.
    pub(super) fn rewrite(&mut self, key: &[u8; 32], references: &[Issued]) -> io::Result<()> {
        let mut new = self.path.clone().into_os_string();
        new.push(".new");
        let mut file = OpenOptions::new().write(true).create(true).truncate(true).mode(0o600).open(&new)?;
        let key: String = key.iter().map(|byte| format!("{byte:02x}")).collect();
        writeln!(file, "{VERSION} {key}")?;
        write(file, references)?;
        std::fs::rename(&new, &self.path)?;
        self.lines = references.len();
        Ok(())
    }
}

fn write(file: File, references: &[Issued]) -> io::Result<()> {
    let mut file = BufWriter::new(file);
    for (StateKey(hash), organisation) in references {
        writeln!(file, "{hash:016x} {organisation}")?;
    }
    file.flush()
}

fn issued(line: &str) -> Option<Issued> {
    let (hash, organisation) = line.split_once(' ').filter(|(hash, _)| hash.len() == 16)?;
    Some((StateKey(u64::from_str_radix(hash, 16).ok()?), organisation.into()))
}

fn key_of_hex(text: &str) -> Option<[u8; 32]> {
    let mut key = [0; 32];
    if text.len() != 64 || !text.is_ascii() {
        return None;
    }
    for (byte, at) in key.iter_mut().zip((0..).step_by(2)) {
        *byte = u8::from_str_radix(text.get(at..at + 2)?, 16).ok()?;
    }
    Some(key)
}

fn random_key() -> io::Result<[u8; 32]> {
    let mut key = [0; 32];
    getrandom::fill(&mut key).map_err(|error| io::Error::other(error.to_string()))?;
    Ok(key)
}
