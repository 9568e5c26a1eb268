//! The framework on files that no format wants, and on folders.

use std::io::{Read, Write};
use std::path::PathBuf;

use proptest::prelude::*;

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

/// Keeps the events, too.
#[derive(Debug, Default)]
struct Streams(Vec<(sseismo_trace::Summary, Vec<sseismo_trace::Delta>)>);

impl Sink for Streams {
    fn stream(&mut self, _: &str, stream: Stream<'_>) {
        self.0.push((stream.summary.clone(), stream.deltas.to_vec()));
    }

    fn progress(&mut self, _: u64) -> ControlFlow<()> {
        ControlFlow::Continue(())
    }
}

/// Imports one file of streams with events.
pub(super) fn streams(path: &Path) -> (Imported, Vec<(sseismo_trace::Summary, Vec<sseismo_trace::Delta>)>) {
    let mut kept = Streams::default();
    let mut imported = import(path, &Options::default(), &mut kept);
    assert_eq!(imported.len(), 1);
    (imported.remove(0), kept.0)
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

#[test]
fn a_session_that_lies_in_two_places_is_read_once() {
    let name = "rollout-2026-07-01T10-00-00-00000000-0000-7000-8000-000000000001.jsonl";
    let (archived, live) = (format!("archived_sessions/{name}.zst"), format!("sessions/2026/07/01/{name}"));
    let folder =
        folder(&[(&archived, b"longer, but packed"), (&live, b"plain"), ("old/rollout-1.jsonl", b"x")]);
    let walk = Walk::new(folder.path());
    let paths: Vec<_> = walk.files.iter().map(|file| file.path.clone()).collect();
    assert_eq!(paths, [folder.path().join("old/rollout-1.jsonl"), folder.path().join(live)]);
    assert_eq!(walk.skipped, BTreeMap::from([("same-session", 1)]));
}

#[test]
fn a_line_over_the_limit_costs_one_record() {
    let rollout = fs::read(data("rollouts/rollout-invented.jsonl")).unwrap();
    let table = b"reasoning_tokens\n516\n".to_vec();
    for (start, more, streams) in [(&rollout, &rollout, 6), (&table, &b"700\n".to_vec(), 2)] {
        let folder = folder(&[("file", start)]);
        let path = folder.path().join("file");
        // 80 MiB of nothing, most of it a hole.
        let mut file = fs::OpenOptions::new().append(true).open(&path).unwrap();
        file.set_len(start.len() as u64 + (80 << 20)).unwrap();
        file.write_all(b"\n").unwrap();
        file.write_all(more).unwrap();
        let (imported, _) = read(&path, &Options::default());
        assert_eq!(imported[0].skipped.get("line-too-long"), Some(&1), "{imported:?}");
        assert_eq!((imported[0].streams, &imported[0].error), (streams, &None));
    }
}

proptest! {
    /// Law: whatever the bytes, an import ends, names each file once, and has gone through all bytes.
    #[test]
    fn no_content_stops_an_import(
        which in 0..4_usize,
        keep in 0..2000_usize,
        noise in proptest::collection::vec(any::<u8>(), 0..300),
        at in 0..2000_usize,
    ) {
        let real = ["rollouts/rollout-invented.jsonl", "counts/candy-study/gpt-5.5-xhigh.csv",
            "sse/stripped/gpt-5.5-516.jsonl", "rollouts/rollout-codex-0.171-rt516.jsonl"];
        let mut content = fs::read(data(real[which])).unwrap();
        content.truncate(keep);
        let at = at.min(content.len());
        content.splice(at..at, noise);
        let folder = folder(&[("file", &content), ("twice", &content)]);
        let (imported, kept) = read(folder.path(), &Options::default());
        prop_assert_eq!(kept.bytes, 2 * content.len() as u64);
        let mut paths: Vec<_> = imported.iter().map(|file| &file.path).collect();
        paths.dedup();
        prop_assert_eq!(paths.len(), imported.len());
        prop_assert_eq!(imported.iter().map(|file| file.streams).sum::<u64>(), kept.streams.len() as u64);
    }
}
