//! What a dataset keeps: the share that `--sample` says and every stream in which something went wrong; and
//! parts no older than `--max-age`, no more of them than `--max-bytes`.

use std::collections::BTreeSet;
use std::ops::ControlFlow;
use std::path::Path;

use sseismo_trace::Outcome;
use sseismo_trace::parquet::{Dataset, Part};
use tempfile::TempDir;

use super::Stand;

const TABLES: [&str; 3] = ["streams", "events", "reads"];

/// How many streams ended well, and how many not.
fn outcomes(folder: &Path) -> (u64, u64) {
    let mut counted = (0, 0);
    let dataset = Dataset::open(folder).expect("a dataset");
    let report = dataset.summaries(|summary| {
        let count = if summary.outcome == Outcome::Completed { &mut counted.0 } else { &mut counted.1 };
        *count += 1;
        ControlFlow::Continue(())
    });
    assert!(report.damaged.is_empty(), "{report:?}");
    counted
}

/// Half of the answers carry an error: with `--sample 0` exactly these are kept. What there was to keep is
/// known from the client, which records everything.
#[test]
fn sampling_keeps_every_stream_that_went_wrong() {
    let stand = Stand::new("tests/service/half-failing.toml", &["--sample", "0"]);
    stand.traffic(24, 6);
    let Stand { folder, relay, _upstream } = stand;
    relay.end();
    let (well, badly) = outcomes(&folder.path().join("probe"));
    assert!(well > 0 && badly > 0 && well + badly == 24, "{well} well, {badly} badly");
    assert_eq!(outcomes(&folder.path().join("traces")), (0, badly));
}

/// One run of the relay over the dataset in `folder`, which makes one part.
fn run(folder: TempDir, flags: &[&str]) -> TempDir {
    let stand = Stand::within(folder, "tests/clients/quick.toml", flags);
    stand.traffic(3, 3);
    let Stand { folder, relay, _upstream } = stand;
    relay.end();
    folder
}

/// The parts, oldest first, and their bytes.
fn parts(folder: &TempDir) -> (Vec<String>, u64) {
    let dataset = Dataset::open(&folder.path().join("traces")).expect("a dataset");
    let size = |part: &Part| -> u64 {
        let files = TABLES.map(|table| std::fs::metadata(dataset.file(table, part)));
        files.into_iter().map(|file| file.map_or(0, |file| file.len())).sum()
    };
    (dataset.parts().iter().map(|part| part.name.clone()).collect(), dataset.parts().iter().map(size).sum())
}

/// Every file below the tables, by its name.
fn files(folder: &TempDir) -> BTreeSet<String> {
    let list =
        |path: &Path| std::fs::read_dir(path).expect("a folder").map(|entry| entry.expect("it").path());
    let dates = TABLES.iter().flat_map(|table| list(&folder.path().join("traces").join(table)));
    let all = dates.flat_map(|date| list(&date));
    all.map(|path| path.file_stem().expect("a name").to_string_lossy().into_owned()).collect()
}

/// Three runs, each a part: beyond `--max-bytes` the oldest part goes with all its files, and beyond
/// `--max-age` one that was begun long ago.
#[test]
fn old_parts_go() {
    let folder = run(tempfile::tempdir().expect("a folder"), &[]);
    let (first, bytes) = parts(&folder);
    assert_eq!(first.len(), 1);
    let most = (bytes * 3 / 2).to_string();
    let folder = run(folder, &["--max-bytes", &most]);
    let (second, left) = parts(&folder);
    assert!(second.len() == 1 && second != first && left <= bytes * 3 / 2, "{first:?} {second:?}, {left}");
    assert_eq!(files(&folder), second.iter().cloned().collect());

    let dataset = Dataset::open(&folder.path().join("traces")).expect("a dataset");
    for table in TABLES {
        let path = dataset.file(table, &dataset.parts()[0]);
        std::fs::rename(&path, path.with_file_name("part-1600000000-1-0.parquet")).expect("renamed");
    }
    let folder = run(folder, &["--max-age", "36h"]);
    let (third, _) = parts(&folder);
    assert!(third.len() == 1 && third != second && !third[0].contains("1600000000"), "{third:?}");
    assert_eq!(files(&folder), third.iter().cloned().collect());
}
