//! Notes to the recorder: the loop of the thread that owns a dataset.
//!
//! In: the observer's notes. Out: a dataset. It is a plain thread, because the recorder writes files and
//! must never stand in the way of a socket.

use std::collections::HashMap;
use std::sync::mpsc::{Receiver, RecvTimeoutError};
use std::time::Duration;

use sseismo_trace::parquet::Anchor;

use super::observer::QUEUE;
use super::{Note, Record, is_anomalous};
use crate::clock;
use crate::recorder::{Error, Options, Recorder, Recovered, Status};

/// How often the recorder flushes; it asks for at least once a second.
const TICK: Duration = Duration::from_millis(250);
const TICK_US: i64 = 250_000;

/// How long notes gather once some have come. While the thread sleeps it need not be woken for each, which
/// would cost the tasks that move the traffic more than all else they do for a note.
const GATHER: Duration = Duration::from_millis(20);

fn anchor() -> Anchor {
    Anchor { wall: clock::wall(), monotonic: clock::now() }
}

/// Opens the dataset at `root` for recording, now.
///
/// # Errors
/// See [`Recorder::open`].
pub fn open(root: &std::path::Path, options: Options) -> Result<(Recorder, Recovered), Error> {
    Recorder::open(root, options, anchor())
}

/// Records until the last sender of `notes` is gone, then closes the dataset. Each finished stream is
/// handed to `each`; `warn` is called once for each new trouble, and with `None` when it is over. With
/// trouble in the returned status the journal is kept, and the next run recovers it.
pub fn record(
    notes: &Receiver<Note>,
    mut recorder: Recorder,
    mut each: impl FnMut(Record),
    mut warn: impl FnMut(Option<&str>),
) -> Status {
    let mut told = HashMap::<u64, u32>::new();
    let mut trouble = None;
    let mut ticked = clock::now();
    loop {
        match notes.recv_timeout(TICK) {
            Ok(first) => {
                for note in std::iter::once(first).chain(notes.try_iter().take(QUEUE)) {
                    take(note, &mut recorder, &mut told, &mut each);
                }
                std::thread::sleep(GATHER);
            }
            Err(RecvTimeoutError::Timeout) => {}
            Err(RecvTimeoutError::Disconnected) => return recorder.close(anchor()),
        }
        let now = anchor();
        if now.monotonic.since(ticked).0 >= TICK_US {
            ticked = now.monotonic;
            let status = recorder.tick(now);
            if status.trouble != trouble {
                trouble.clone_from(&status.trouble);
                warn(trouble.as_deref());
            }
        }
    }
}

/// Records one note. `told` knows the next read of each connection.
fn take(note: Note, recorder: &mut Recorder, told: &mut HashMap<u64, u32>, each: &mut impl FnMut(Record)) {
    match note {
        Note::Begin(summary) => recorder.begin(&summary),
        Note::Events { stream_id, deltas, reads, raw, words } => {
            for read in &reads {
                // Streams of one HTTP/2 connection tell the same reads; each is stored once.
                let next = told.entry(read.conn_id).or_default();
                if read.read_id >= *next {
                    *next = read.read_id + 1;
                    recorder.read(read);
                }
            }
            for delta in &deltas {
                recorder.delta(stream_id, delta);
            }
            for words in &words {
                recorder.text(stream_id, words.seq, words.kind, &words.text);
            }
            for piece in &raw {
                recorder.raw(stream_id, piece.read, Some(piece.t), &piece.bytes);
            }
        }
        Note::End(record) => {
            recorder.finish(record.summary.clone(), is_anomalous(&record));
            each(*record);
        }
    }
}
