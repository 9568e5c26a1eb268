//! What a dataset may grow to: while traffic goes on the oldest parts go and the newest stay.

use std::ops::ControlFlow;
use std::path::Path;
use std::time::{Duration, Instant};

use sseismo_capture::recorder::{Limits, Options as Record};
use sseismo_capture::tap::{self, Keep, Observer, Tap};
use sseismo_router::observe::{Observe, Upstream, serve};
use sseismo_trace::parquet::Dataset;
use tokio::net::TcpListener;
use tokio::sync::watch;

use super::upstream::{Framing, Script, http1};
use super::{Options, chat, send};

/// Streams and bytes of the finished parts, by part, oldest first.
fn parts(folder: &Path) -> Vec<(String, u64)> {
    let dataset = Dataset::open(folder).unwrap();
    let tables = ["streams", "events", "reads"];
    let bytes = |part| {
        let files = tables.iter().map(|table| std::fs::metadata(dataset.file(table, part)));
        files.map(|file| file.map_or(0, |file| file.len())).sum()
    };
    dataset.parts().iter().map(|part| (part.name.clone(), bytes(part))).collect()
}

fn sizes(folder: &Path) -> u64 {
    parts(folder).iter().map(|(_, bytes)| bytes).sum()
}

/// Sends `rounds` requests through a relay that records to `folder`, each into a part of its own, and returns
/// the names of these parts.
async fn relay(folder: &Path, limits: Limits, rounds: usize) -> Vec<String> {
    let record = Record { limits, rotate_bytes: 1, ..Record::default() };
    let (recorder, _) = tap::open(folder, record).unwrap();
    let (observer, notes) = Observer::new(std::sync::Arc::new(|_: &str, _: &[u8]| 0), Keep::default());
    let recording = std::thread::spawn(move || tap::record(&notes, recorder, drop, |_| {}));
    let script = Script::events(Framing::Chunked, Duration::ZERO);
    let (address, _) = http1(script.clone(), None).await;
    let upstream = Upstream::parse(&format!("http://{address}")).unwrap();
    let relay = Observe::new(Tap::new(&Options::default()).unwrap(), observer, upstream, None);
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let relay_address = listener.local_addr().unwrap();
    let (stop, stopping) = watch::channel(false);
    let served = tokio::spawn(serve(listener, relay, stopping, Duration::from_secs(5)));
    let before: Vec<String> = parts(folder).into_iter().map(|(name, _)| name).collect();
    let mut seen: Vec<String> = Vec::new();
    for _ in 0..rounds {
        assert_eq!(*send(chat(relay_address)).await.body(), script.body());
        let since = Instant::now();
        let newest = loop {
            let newest = parts(folder).last().map(|(name, _)| name.clone());
            match newest {
                Some(name) if !seen.contains(&name) && !before.contains(&name) => break name,
                _ => assert!(since.elapsed() < Duration::from_secs(10), "no new part came: {seen:?}"),
            }
            tokio::time::sleep(Duration::from_millis(20)).await;
        };
        seen.push(newest);
    }
    stop.send(true).unwrap();
    served.await.unwrap().unwrap();
    assert_eq!(recording.join().unwrap().trouble, None);
    seen
}

#[tokio::test]
async fn beyond_its_size_a_dataset_loses_its_oldest_parts() {
    let unlimited = tempfile::tempdir().unwrap();
    relay(unlimited.path(), Limits::default(), 1).await;
    let one = sizes(unlimited.path());
    let limit = one * 5 / 2;

    let folder = tempfile::tempdir().unwrap();
    let seen = relay(folder.path(), Limits { max_bytes: Some(limit), ..Limits::default() }, 5).await;
    let left = parts(folder.path());
    assert!(sizes(folder.path()) <= limit, "{left:?} of at most {limit} bytes");
    let names: Vec<&String> = left.iter().map(|(name, _)| name).collect();
    assert_eq!(names, seen[3..].iter().collect::<Vec<_>>(), "the newest two of {seen:?}");
    let report = Dataset::open(folder.path()).unwrap().streams(|stream| {
        assert_eq!(stream.deltas.len(), 24);
        ControlFlow::Continue(())
    });
    assert_eq!((report.streams, report.damaged.len(), report.bereft), (2, 0, 0), "{report:?}");
    for table in ["events", "reads"] {
        let folders = std::fs::read_dir(folder.path().join(table)).unwrap();
        let files = folders.flat_map(|folder| std::fs::read_dir(folder.unwrap().path()).unwrap()).count();
        assert_eq!(files, 2, "{table}/ keeps no file of a part that is gone");
    }
}

/// The age is that of the part, told by its name; an earlier run's old parts go when a new run writes.
#[tokio::test]
async fn beyond_its_age_a_part_goes() {
    let folder = tempfile::tempdir().unwrap();
    relay(folder.path(), Limits::default(), 1).await;
    let dataset = Dataset::open(folder.path()).unwrap();
    let part = &dataset.parts()[0];
    for table in ["streams", "events", "reads"] {
        let path = dataset.file(table, part);
        std::fs::rename(&path, path.with_file_name("part-1600000000-1-0.parquet")).unwrap();
    }
    let day = Limits { max_age: Some(Duration::from_hours(24)), ..Limits::default() };
    let seen = relay(folder.path(), day, 2).await;
    let left: Vec<String> = parts(folder.path()).into_iter().map(|(name, _)| name).collect();
    assert_eq!(left, seen, "the part of 2020 is gone, those of now are not");
}
