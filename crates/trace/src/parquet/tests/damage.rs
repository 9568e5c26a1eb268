//! What is refused, what is reported, and what is still read.

use std::fs;
use std::ops::ControlFlow;
use std::path::Path;

use super::identity::{Owned, read, write};
use crate::parquet::{Dataset, Error, Manifest, PartName, PartWriter, events, reads, streams, texts};
use crate::{Delta, Kind, Micros, Phase, Summary, UtcMicros};

/// One stream of each day, with one event.
fn three_days(root: &Path) {
    let stream = |day: i64| Owned {
        summary: Summary {
            stream_id: day.cast_unsigned(),
            started_at: Some(UtcMicros((20_000 + day) * 86_400_000_000)),
            ..Summary::default()
        },
        deltas: vec![Delta::new(0, Kind::Text, Phase::Output, Some(Micros(day)))],
        reads: Vec::new(),
    };
    write(root, &(0..3).map(stream).collect::<Vec<_>>());
}

#[test]
fn parts_lie_under_the_date_of_their_streams() {
    let folder = tempfile::tempdir().unwrap();
    three_days(folder.path());
    let dataset = Dataset::open(folder.path()).unwrap();
    let partitions: Vec<&str> = dataset.parts().iter().map(|part| part.partition.as_str()).collect();
    assert_eq!(partitions, ["date=2024-10-04", "date=2024-10-05", "date=2024-10-06"]);
    assert!(dataset.parts().iter().all(|part| PartName::parse(&part.name).is_some()));
}

#[test]
fn what_is_not_ours_is_refused_with_what_to_do() {
    let folder = tempfile::tempdir().unwrap();
    let error = Dataset::open(folder.path()).unwrap_err().to_string();
    assert!(error.contains("no dataset.json") && error.contains("sseismo import"), "{error}");
    fs::write(folder.path().join("dataset.json"), r#"{"name":"squad"}"#).unwrap();
    assert!(matches!(Dataset::open(folder.path()), Err(Error::NotADataset { .. })));
    fs::write(folder.path().join("dataset.json"), "{").unwrap();
    assert!(matches!(Dataset::open(folder.path()), Err(Error::NotADataset { .. })));
    let newer = r#"{"format":"sseismo.trace","schema_version":7,"unheard_of":[]}"#;
    fs::write(folder.path().join("dataset.json"), newer).unwrap();
    assert!(matches!(Dataset::open(folder.path()), Err(Error::Newer { found: 7, .. })));
    assert!(matches!(Manifest::default().create_or_load(folder.path()), Err(Error::Newer { .. })));
}

#[test]
fn a_damaged_part_is_reported_and_the_others_are_read() {
    let folder = tempfile::tempdir().unwrap();
    three_days(folder.path());
    let dataset = Dataset::open(folder.path()).unwrap();
    let torn = dataset.file(events::FOLDER, &dataset.parts()[1]);
    let bytes = fs::read(&torn).unwrap();
    fs::write(&torn, &bytes[..bytes.len() / 2]).unwrap();
    let other = dataset.file(streams::FOLDER, &dataset.parts()[2]);
    fs::copy(dataset.file(events::FOLDER, &dataset.parts()[2]), &other).unwrap();
    let mut seen = Vec::new();
    let report = dataset.streams(|stream| {
        seen.push(stream.summary.stream_id);
        ControlFlow::Continue(())
    });
    assert_eq!(seen, [0]);
    assert!(matches!(&report.damaged[0], Error::Damaged { path, .. } if *path == torn), "{report:?}");
    assert!(matches!(&report.damaged[1], Error::Column { path, .. } if *path == other), "{report:?}");
    let times = dataset.times(|_| ControlFlow::Continue(()));
    assert_eq!((times.streams, times.damaged.len()), (2, 1));
}

#[test]
fn events_that_are_gone_are_said() {
    let folder = tempfile::tempdir().unwrap();
    three_days(folder.path());
    let dataset = Dataset::open(folder.path()).unwrap();
    let gone = dataset.file(events::FOLDER, &dataset.parts()[1]);
    fs::remove_file(&gone).unwrap();
    let mut events = Vec::new();
    let report = dataset.streams(|stream| {
        events.push(stream.deltas.len());
        ControlFlow::Continue(())
    });
    assert_eq!((events, report.bereft), (vec![1, 0, 1], 1));
    assert!(
        matches!(&report.damaged[..], [Error::Missing { path, rows: 1, owners: 1 }] if *path == gone),
        "{report:?}"
    );
    let times = dataset.times(|_| ControlFlow::Continue(()));
    assert_eq!((times.streams, times.bereft, times.damaged.len()), (2, 1, 1));
}

/// Counts of tokens alone have no events: their files were never there and are not missed.
#[test]
fn events_that_never_were_are_not_missed() {
    let folder = tempfile::tempdir().unwrap();
    write(folder.path(), &[Owned { summary: Summary::default(), deltas: Vec::new(), reads: Vec::new() }]);
    let report = Dataset::open(folder.path()).unwrap().streams(|_| ControlFlow::Continue(()));
    assert_eq!((report.streams, report.bereft, report.damaged.len()), (1, 0, 0));
}

/// To open a pipe waits for its writer: for ever, when nobody writes.
#[cfg(unix)]
#[test]
fn what_is_no_regular_file_is_said_and_not_waited_for() {
    let pipe = |path: &Path| {
        let _ = fs::remove_file(path);
        assert!(std::process::Command::new("mkfifo").arg(path).status().unwrap().success());
    };
    let folder = tempfile::tempdir().unwrap();
    three_days(folder.path());
    let parts = Dataset::open(folder.path()).unwrap();
    pipe(&parts.file(streams::FOLDER, &parts.parts()[0]).with_file_name("part-1-1-0.parquet"));
    pipe(&parts.file(events::FOLDER, &parts.parts()[1]));
    let reads = parts.file(reads::FOLDER, &parts.parts()[2]);
    fs::create_dir_all(reads.parent().unwrap()).unwrap();
    pipe(&reads);
    let other = parts.file(streams::FOLDER, &parts.parts()[2]).with_file_name("part-2-1-0.parquet");
    fs::create_dir(&other).unwrap();
    let dataset = Dataset::open(folder.path()).unwrap();
    let mut seen = Vec::new();
    let report = dataset.streams(|stream| {
        seen.push(stream.summary.stream_id);
        ControlFlow::Continue(())
    });
    assert_eq!(seen, [0, 2]);
    assert!(report.damaged.iter().all(|error| matches!(error, Error::NotAFile(_))), "{report:?}");
    assert_eq!(report.damaged.len(), 4, "{report:?}");
    let summaries = dataset.summaries(|_| ControlFlow::Continue(()));
    assert_eq!((summaries.streams, summaries.damaged.len()), (3, 2));
    assert_eq!(dataset.times(|_| ControlFlow::Continue(())).damaged.len(), 1);
    assert!(dataset.parts().iter().filter(|part| dataset.anchors(part).is_err()).count() == 2);
    pipe(&Manifest::path(folder.path()));
    assert!(matches!(Dataset::open(folder.path()), Err(Error::NotADataset { .. })));
}

#[test]
fn rows_out_of_order_are_refused_and_leave_nothing() {
    let folder = tempfile::tempdir().unwrap();
    let mut part =
        PartWriter::new(folder.path(), "date=2026-07-01", PartName { unix_s: 1, pid: 1, n: 0 }, &[]);
    let delta = Delta::new(0, Kind::Text, Phase::Output, None);
    part.delta(5, &delta).unwrap();
    assert!(matches!(part.delta(5, &delta), Err(Error::Unsorted { .. })));
    for stream in 6..6_000 {
        part.delta(stream, &delta).unwrap();
    }
    drop(part);
    assert_eq!(fs::read_dir(folder.path().join("events/date=2026-07-01")).unwrap().count(), 0);
}

#[test]
fn every_column_is_in_the_table_for_users() {
    let docs = include_str!("../../parquet.rs");
    for column in [streams::ALL, events::ALL, reads::ALL].concat() {
        assert!(docs.contains(&format!("`{column}`")), "`{column}` is not described");
    }
    assert!(texts::ALL.iter().all(|column| docs.contains(&format!("`texts.{column}`"))));
}

#[test]
fn an_empty_dataset_reads_as_nothing() {
    let folder = tempfile::tempdir().unwrap();
    write(folder.path(), &[]);
    assert_eq!(read(folder.path()), []);
}
