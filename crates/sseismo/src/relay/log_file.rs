//! A file that lines are appended to for days, and that others move away or delete meanwhile (logrotate).

use std::fs::{File, OpenOptions};
use std::io::{self, Write};
use std::os::unix::fs::{FileTypeExt as _, MetadataExt as _};
use std::path::{Path, PathBuf};

/// Appends to what stands at its path now: looked up at each write, so lines are best written in batches.
#[derive(Debug)]
pub(super) struct LogFile {
    path: PathBuf,
    file: File,
    /// Device and inode of `file`.
    place: (u64, u64),
}

impl LogFile {
    /// Opens it, and makes it when it is not there.
    pub(super) fn open(path: &Path) -> io::Result<Self> {
        // Opened to write alone, a named pipe that nobody reads yet would keep the relay from starting.
        let pipe = path.metadata().is_ok_and(|meta| meta.file_type().is_fifo());
        let file = OpenOptions::new().create(true).append(true).read(pipe).open(path)?;
        let meta = file.metadata()?;
        Ok(Self { path: path.to_owned(), file, place: (meta.dev(), meta.ino()) })
    }

    /// Goes on in a new file when the old one is no longer at the path. Where none can be made, a file that was
    /// only moved goes on taking lines; one that was deleted is an error, since nobody could read them.
    fn follow(&mut self) -> io::Result<()> {
        if self.path.metadata().is_ok_and(|meta| (meta.dev(), meta.ino()) == self.place) {
            return Ok(());
        }
        match Self::open(&self.path) {
            Ok(new) => *self = new,
            Err(error) if self.file.metadata()?.nlink() == 0 => return Err(error),
            Err(_) => {}
        }
        Ok(())
    }
}

impl Write for LogFile {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.follow()?;
        self.file.write(bytes)
    }

    fn flush(&mut self) -> io::Result<()> {
        self.file.flush()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_file_that_was_moved_or_deleted_is_begun_anew() {
        let folder = tempfile::tempdir().unwrap();
        let [path, moved] = ["access.log", "access.log.1"].map(|name| folder.path().join(name));
        let read = |path: &Path| std::fs::read_to_string(path).unwrap();
        let mut log = LogFile::open(&path).unwrap();
        log.write_all(b"1\n").unwrap();
        std::fs::rename(&path, &moved).unwrap();
        log.write_all(b"2\n").unwrap();
        assert_eq!((read(&moved), read(&path)), ("1\n".to_owned(), "2\n".to_owned()));
        std::fs::remove_file(&path).unwrap();
        log.write_all(b"3\n").unwrap();
        assert_eq!(read(&path), "3\n");
        // Nothing can be made in a folder that is gone.
        std::fs::remove_dir_all(folder.path()).unwrap();
        assert_eq!(log.write_all(b"4\n").unwrap_err().kind(), io::ErrorKind::NotFound);
    }
}
