//! The journal: blocks of entries, each with its length and checksum, appended to a file.
//!
//! A block is written with one call, so that a killed process leaves whole blocks and at most one torn
//! one at the end: what was flushed is read back exactly, a torn end is cut off.

use std::fs::{self, File, OpenOptions};
use std::io::{self, Read, Write};
use std::path::{Path, PathBuf};

use flate2::Crc;

/// First bytes of a journal; the digit is its version.
pub(super) const MAGIC: &[u8; 8] = b"SSEISMJ0";

/// Bytes before a block's payload: length and CRC-32, both little-endian.
const BLOCK_HEAD: usize = 8;

fn checksum(payload: &[u8]) -> u32 {
    let mut crc = Crc::new();
    crc.update(payload);
    crc.sum()
}

/// An open segment of the journal.
#[derive(Debug)]
pub(super) struct Journal {
    path: PathBuf,
    file: File,
    /// Bytes that are known to be whole.
    len: u64,
}

impl Journal {
    /// A new, empty segment.
    pub(super) fn create(path: &Path) -> io::Result<Self> {
        let file = OpenOptions::new().append(true).create_new(true).open(path)?;
        let mut journal = Self { path: path.to_owned(), file, len: 0 };
        if let Err(error) = journal.write(MAGIC) {
            // A segment without its head would be taken for a foreign file.
            let _ = fs::remove_file(path);
            return Err(error);
        }
        Ok(journal)
    }

    pub(super) fn path(&self) -> &Path {
        &self.path
    }

    pub(super) fn len(&self) -> u64 {
        self.len
    }

    /// Appends one block. On failure the segment is as before.
    pub(super) fn append(&mut self, payload: &[u8]) -> io::Result<()> {
        let len = u32::try_from(payload.len()).map_err(|_| io::Error::from(io::ErrorKind::FileTooLarge))?;
        let mut block = Vec::with_capacity(BLOCK_HEAD + payload.len());
        block.extend_from_slice(&len.to_le_bytes());
        block.extend_from_slice(&checksum(payload).to_le_bytes());
        block.extend_from_slice(payload);
        self.write(&block)
    }

    fn write(&mut self, bytes: &[u8]) -> io::Result<()> {
        if let Err(error) = self.file.write_all(bytes) {
            // What follows a torn block could not be read.
            self.file.set_len(self.len)?;
            return Err(error);
        }
        self.len += bytes.len() as u64;
        Ok(())
    }

    /// Makes what was appended survive a power cut.
    pub(super) fn sync(&self) -> io::Result<()> {
        self.file.sync_data()
    }
}

/// Whether a file is a journal of this version, or too short to be anything else.
pub(super) fn is_ours(path: &Path) -> io::Result<bool> {
    let mut head = Vec::new();
    File::open(path)?.take(MAGIC.len() as u64).read_to_end(&mut head)?;
    Ok(MAGIC.starts_with(&head))
}

/// What a segment held.
#[derive(Debug, Default, PartialEq, Eq)]
pub(super) struct Content {
    /// The payloads of all whole blocks, one after the other.
    pub(super) payload: Vec<u8>,
    /// Bytes of a torn end.
    pub(super) torn: u64,
}

/// The whole blocks in the bytes of a segment; `None` when it is not a journal of this version.
pub(super) fn blocks(segment: &[u8]) -> Option<Content> {
    if segment.len() < MAGIC.len() {
        // Killed while the segment was made.
        return Some(Content { payload: Vec::new(), torn: segment.len() as u64 });
    }
    let mut rest = segment.strip_prefix(MAGIC)?;
    let mut payload = Vec::with_capacity(rest.len());
    while let Some((head, body)) = rest.split_first_chunk::<BLOCK_HEAD>() {
        let [a, b, c, d, crc @ ..] = *head;
        let len = usize::try_from(u32::from_le_bytes([a, b, c, d])).ok()?;
        let Some(block) = body.get(..len).filter(|block| checksum(block) == u32::from_le_bytes(crc)) else {
            break;
        };
        payload.extend_from_slice(block);
        rest = &body[len..];
    }
    Some(Content { payload, torn: rest.len() as u64 })
}
