//! Our own trace datasets: a folder with `dataset.json`, read as a whole.
//!
//! Streams keep their provenance: what another importer wrote there stays `import:<its format>`.

use std::cell::Cell;
use std::ops::ControlFlow;
use std::path::Path;

use sseismo_trace::Kind;
use sseismo_trace::parquet::{Dataset, Manifest};

use super::Imported;
use super::input::Gauge;

/// The format's name in reports.
const NAME: &str = "sseismo-dataset";

/// What a stream and an event take on disk, for progress alone: columns are not read in step.
const BYTES_PER_STREAM: u64 = 100;
const BYTES_PER_EVENT: u64 = 10;

/// Whether a folder is a dataset, or claims to be one.
pub(super) fn is_dataset(folder: &Path) -> bool {
    Manifest::path(folder).is_file()
}

/// Reads the dataset to its end. Damaged parts are said and the rest is read.
pub(super) fn read(folder: &Path, gauge: &dyn Gauge) -> Imported {
    let mut imported = Imported::new(folder, NAME);
    let dataset = match Dataset::open(folder) {
        Ok(dataset) => dataset,
        Err(error) => return Imported { error: Some(said(&error)), ..imported },
    };
    let source = folder.display().to_string();
    let (streams, events) = (Cell::new(0_u64), Cell::new(0_u64));
    let mut read = 0;
    let report = dataset.streams(|stream| {
        streams.set(streams.get() + 1);
        let counted = stream.deltas.iter().filter(|delta| delta.kind != Kind::Comment).count();
        events.set(events.get() + counted as u64);
        gauge.stream(&source, stream);
        read += BYTES_PER_STREAM + BYTES_PER_EVENT * stream.deltas.len() as u64;
        gauge.reach(read);
        if gauge.stopped() { ControlFlow::Break(()) } else { ControlFlow::Continue(()) }
    });
    imported.streams = streams.get();
    imported.events = events.get();
    if report.orphans > 0 {
        imported.skip("event-without-stream", report.orphans);
    }
    if report.bereft > 0 {
        imported.skip("stream-without-its-events", report.bereft);
    }
    if let Some(first) = report.damaged.first() {
        imported.skip("damaged-or-missing-file", report.damaged.len() as u64);
        imported.error = Some(said(first));
    } else if imported.streams == 0 && !gauge.stopped() {
        imported.error = Some(empty(folder).to_owned());
    }
    imported
}

/// Why a dataset in order holds no streams.
fn empty(folder: &Path) -> &'static str {
    let journal = std::fs::read_dir(folder.join("journal"));
    if journal.is_ok_and(|mut segments| segments.next().is_some()) {
        "no streams yet, but a journal: a recorder is at work, and stores what it has after some minutes and when it \
         ends; or it was killed, and recording to this folder again recovers the journal"
    } else {
        "this trace dataset has no streams: nothing was recorded, or its streams/ is gone"
    }
}

/// An error with its causes.
fn said(error: &dyn std::error::Error) -> String {
    match error.source() {
        Some(cause) => format!("{error}: {}", said(cause)),
        None => error.to_string(),
    }
}

#[cfg(test)]
mod tests {
    use std::fs;

    use sseismo_trace::parquet::DatasetWriter;
    use sseismo_trace::{Delta, Micros, Phase, Stream, Summary, UtcMicros};

    use super::super::{Options, Sink, bytes, import};
    use super::*;

    #[derive(Default)]
    struct Seen {
        streams: Vec<(String, u64, usize)>,
        bytes: u64,
    }

    impl Sink for Seen {
        fn stream(&mut self, source: &str, stream: Stream<'_>) {
            self.streams.push((source.to_owned(), stream.summary.stream_id, stream.deltas.len()));
        }

        fn progress(&mut self, bytes: u64) -> ControlFlow<()> {
            self.bytes += bytes;
            ControlFlow::Continue(())
        }
    }

    fn written(folder: &Path) {
        let mut writer = DatasetWriter::create(folder, Manifest::default(), UtcMicros(0)).unwrap();
        for stream_id in 0..3 {
            let summary = Summary { stream_id, started_at: Some(UtcMicros(9)), ..Summary::default() };
            let deltas = [
                Delta::new(0, Kind::Comment, Phase::Queued, Some(Micros(1))),
                Delta::new(1, Kind::Text, Phase::Output, Some(Micros(2))),
            ];
            writer.stream(Stream { summary: &summary, deltas: &deltas, reads: &[] }).unwrap();
        }
        writer.finish().unwrap();
    }

    #[test]
    fn a_dataset_is_one_source() {
        let folder = tempfile::tempdir().unwrap();
        written(folder.path());
        let mut seen = Seen::default();
        let imported = import(folder.path(), &Options::default(), &mut seen);
        assert_eq!(imported.len(), 1);
        assert_eq!((imported[0].format, imported[0].streams, imported[0].events), (NAME, 3, 3));
        assert_eq!(imported[0].error, None);
        let source = folder.path().display().to_string();
        assert_eq!(seen.streams, [(source.clone(), 0, 2), (source.clone(), 1, 2), (source, 2, 2)]);
        assert_eq!(seen.bytes, bytes(folder.path()));
    }

    #[test]
    fn damage_is_said_and_a_newer_version_refused() {
        let folder = tempfile::tempdir().unwrap();
        written(folder.path());
        let events = folder.path().join("events/date=1970-01-01");
        for file in fs::read_dir(&events).unwrap() {
            fs::write(file.unwrap().path(), b"PAR1").unwrap();
        }
        let imported = import(folder.path(), &Options::default(), &mut Seen::default());
        assert_eq!(imported[0].skipped.get("damaged-or-missing-file"), Some(&1));
        assert!(imported[0].error.as_ref().unwrap().contains("damaged or unfinished"));
        fs::write(Manifest::path(folder.path()), r#"{"format":"sseismo.trace","schema_version":9}"#).unwrap();
        let imported = import(folder.path(), &Options::default(), &mut Seen::default());
        assert!(imported[0].error.as_ref().unwrap().contains("newer sseismo"), "{imported:?}");
    }
}
