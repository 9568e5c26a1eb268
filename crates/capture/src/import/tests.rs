//! The framework on files that no format wants, and on folders.

use std::io::{Read, Write};
use std::path::PathBuf;

use super::*;

/// Keeps everything.
#[derive(Debug, Default)]
pub(super) struct Kept {
    pub(super) streams: Vec<(String, sseismo_trace::Summary)>,
    pub(super) bytes: u64,
    /// Break after so many streams.
    pub(super) stop_after: Option<usize>,
}

impl Sink for Kept {
    fn stream(&mut self, source: &str, stream: Stream<'_>) {
        self.streams.push((source.to_owned(), stream.summary.clone()));
    }

    fn progress(&mut self, bytes: u64) -> ControlFlow<()> {
        self.bytes += bytes;
        match self.stop_after {
            Some(streams) if self.streams.len() >= streams => ControlFlow::Break(()),
            _ => ControlFlow::Continue(()),
        }
    }
}

/// Imports one path with the given options.
pub(super) fn read(path: &Path, options: &Options) -> (Vec<Imported>, Kept) {
    let mut kept = Kept::default();
    let imported = import(path, options, &mut kept);
    (imported, kept)
}

/// A file of the repository's real data.
pub(super) fn data(path: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../data").join(path)
}

/// A folder with these files.
pub(super) fn folder(files: &[(&str, &[u8])]) -> tempfile::TempDir {
    let folder = tempfile::tempdir().unwrap();
    for (name, content) in files {
        let path = folder.path().join(name);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(path, content).unwrap();
    }
    folder
}

/// The error of the only entry.
fn error_of(content: &[u8]) -> String {
    let folder = folder(&[("file", content)]);
    let (imported, kept) = read(&folder.path().join("file"), &Options::default());
    assert_eq!(imported.len(), 1);
    assert_eq!(imported[0].format, UNKNOWN);
    assert!(kept.streams.is_empty());
    assert_eq!(kept.bytes, content.len() as u64, "all of it is done, even if nothing came of it");
    imported[0].error.clone().unwrap()
}

#[test]
fn what_is_no_log_is_said_with_what_was_expected() {
    let jpeg = [b"\xff\xd8\xff\xe0\x00\x10JFIF\x00".to_vec(), (0..=255).collect()].concat();
    assert!(error_of(&jpeg).starts_with("binary data"));
    assert!(error_of(b"").starts_with("the file is empty"));
    assert!(error_of(b"\xff\xfea\0,\0b\0").starts_with("UTF-16"));
    assert!(error_of(b"Dear diary,\n").starts_with("text of no known format"));
    assert!(error_of(b"").contains("expected one of"));
}

#[test]
fn a_path_that_is_not_there_is_an_error() {
    let (imported, _) = read(Path::new("no/such/file"), &Options::default());
    assert!(imported[0].error.as_ref().unwrap().contains("no such file"));
    assert_eq!(bytes(Path::new("no/such/file")), 0);
}

#[test]
fn a_folder_without_logs_is_an_error_and_counts_what_it_saw() {
    let folder = folder(&[("LICENSE", b"free"), ("a/photo.jpg", b"\xff\xd8\xff\x00"), ("empty", b"")]);
    let (imported, kept) = read(folder.path(), &Options::default());
    assert_eq!(imported.len(), 1);
    assert_eq!(imported[0].format, FOLDER);
    assert_eq!(imported[0].skipped, BTreeMap::from([("other-file", 2), ("empty-file", 1)]));
    assert!(imported[0].error.as_ref().unwrap().starts_with("no logs in this folder (3 files seen)"));
    assert_eq!(kept.bytes, bytes(folder.path()));
}

#[cfg(unix)]
#[test]
fn links_are_followed_once_and_loops_end() {
    let folder = folder(&[("a/one", b"1"), ("two", b"22")]);
    std::os::unix::fs::symlink(folder.path(), folder.path().join("a/up")).unwrap();
    std::os::unix::fs::symlink(folder.path().join("two"), folder.path().join("three")).unwrap();
    std::os::unix::fs::symlink("nowhere", folder.path().join("broken")).unwrap();
    let walk = Walk::new(folder.path());
    let names: Vec<_> =
        walk.files.iter().map(|file| file.path.strip_prefix(folder.path()).unwrap().to_owned()).collect();
    assert_eq!(names, [Path::new("a/one"), Path::new("three")]);
    assert_eq!(walk.skipped, BTreeMap::from([("same-file", 1)]));
    let (imported, _) = read(folder.path(), &Options::default());
    let broken = imported.iter().find(|file| file.path.ends_with("broken")).unwrap();
    assert!(broken.error.as_ref().unwrap().contains("no such file"));
}

#[test]
fn a_log_beside_its_compressed_copy_is_read_once() {
    let folder = folder(&[("log.jsonl", b"{}"), ("log.jsonl.zst", b"x"), ("only.jsonl.zst", b"x")]);
    let walk = Walk::new(folder.path());
    assert_eq!(walk.files.len(), 2);
    assert_eq!(walk.skipped, BTreeMap::from([("compressed-copy", 1)]));
}

#[test]
fn compression_is_known_by_its_magic_number() {
    let text = b"\xef\xbb\xbfDear diary,\n";
    let zst = zstd::encode_all(&text[..], 3).unwrap();
    let mut gz = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::default());
    gz.write_all(text).unwrap();
    let gz = gz.finish().unwrap();
    for content in [&text[..], &zst, &gz] {
        let folder = folder(&[("file", content)]);
        let path = folder.path().join("file");
        let mut nobody = Kept::default();
        let meter = Meter::new(&mut nobody);
        let input = Input::new(&path, &meter).unwrap();
        assert_eq!(input.head(), b"Dear diary,\n");
        let mut twice = String::new();
        input.open().unwrap().read_to_string(&mut twice).unwrap();
        assert_eq!(twice, "Dear diary,\n");
    }
    assert!(error_of(&zst[..5]).contains("too early"), "{}", error_of(&zst[..5]));
    assert!(error_of(&gz[..12]).contains("too early"));
}
