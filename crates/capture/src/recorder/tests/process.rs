//! Real processes: one that is killed, one whose disk is full.

use std::io::{BufRead, BufReader, Write};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use super::super::{Options, Recorder};
use super::{at, delta, read, recorded, summary};

/// Says to the child process where to record.
const FOLDER: &str = "SSEISMO_TEST_FOLDER";

/// Streams at a time, events of each.
const STREAMS: u64 = 5;
const EVENTS: u32 = 200;

/// The arguments that make this test binary run one ignored test.
fn only(test: &str) -> [String; 4] {
    [format!("recorder::tests::process::{test}"), "--exact".into(), "--ignored".into(), "--nocapture".into()]
}

/// Records rounds of streams, a tick after each event of all; says what is flushed. Bounded.
fn record(folder: &Path, mut said: impl FnMut(&Recorder)) -> Recorder {
    let options = Options { rotate_bytes: 16_384, ..Options::default() };
    let (mut recorder, _) = Recorder::open(folder, options, at(0)).unwrap();
    for round in 0..40 {
        let streams = round * STREAMS..(round + 1) * STREAMS;
        streams.clone().for_each(|stream| recorder.begin(&summary(stream)));
        for seq in 0..EVENTS {
            for stream in streams.clone() {
                recorder.read(&read(stream + 1_000, seq));
                recorder.delta(stream, &delta(seq));
            }
            recorder.tick(at(i64::from(seq)));
            said(&recorder);
        }
        streams.for_each(|stream| recorder.finish(summary(stream), false));
    }
    recorder
}

#[test]
#[ignore = "run as a child process by the tests below"]
fn child() {
    let Some(folder) = std::env::var_os(FOLDER).map(PathBuf::from) else { return };
    let mut out = std::io::stdout();
    let recorder = record(&folder, |recorder| {
        let status = recorder.status();
        let (flushed, lost) = (status.flushed.events, status.lost.events);
        writeln!(out, "\nsaid {flushed} {lost} {}", status.trouble.is_some()).unwrap();
    });
    let status = recorder.close(at(100_000));
    let (flushed, lost) = (status.flushed.events, status.lost.events);
    writeln!(out, "\nclosed {flushed} {lost} {}", status.trouble.unwrap_or_default()).unwrap();
}

/// `kill -9` at some moment: everything that the process knew to be flushed is there, in order.
#[test]
fn a_killed_process_loses_nothing_that_was_flushed() {
    for enough in [700, 5_003, 17_000] {
        let folder = tempfile::tempdir().unwrap();
        let mut child = Command::new(std::env::current_exe().unwrap())
            .args(only("child"))
            .env(FOLDER, folder.path())
            .stdout(Stdio::piped())
            .stderr(Stdio::null())
            .spawn()
            .unwrap();
        let lines = BufReader::new(child.stdout.take().unwrap()).lines();
        let mut flushed = 0;
        for line in lines.map_while(Result::ok) {
            let said = line.strip_prefix("said ").and_then(|said| said.split(' ').next()?.parse().ok());
            flushed = said.unwrap_or(flushed);
            if flushed >= enough {
                break;
            }
        }
        child.kill().unwrap();
        child.wait().unwrap();
        let (recorder, _) = Recorder::open(folder.path(), Options::default(), at(0)).unwrap();
        assert_eq!(recorder.close(at(1)).trouble, None);
        let found = recorded(folder.path());
        let mut events = 0;
        for (stream, (_, deltas, reads)) in &found {
            let count = u32::try_from(deltas.len()).unwrap();
            assert_eq!(*deltas, (0..count).map(delta).collect::<Vec<_>>(), "stream {stream}");
            assert_eq!(*reads, (0..count).collect::<Vec<_>>(), "reads of stream {stream}");
            events += u64::from(count);
        }
        assert!(flushed >= enough && events >= flushed, "{events} events found, {flushed} were flushed");
    }
}

/// No file may grow beyond 12 blocks (of 512 or 1,024 bytes, as the shell counts): the journal fills up.
#[test]
fn a_full_disk_is_counted_and_said_while_recording_goes_on() {
    let folder = tempfile::tempdir().unwrap();
    let exe = std::env::current_exe().unwrap();
    // The signal that a too large file raises is ignored, so that writes fail instead.
    let script = "trap '' XFSZ; ulimit -f 12; exec \"$0\" \"$@\"";
    let output = Command::new("sh")
        .args(["-c", script])
        .arg(exe)
        .args(only("child"))
        .env(FOLDER, folder.path())
        .stdin(Stdio::null())
        .output()
        .unwrap();
    let said = String::from_utf8_lossy(&output.stdout);
    let closed =
        said.lines().find_map(|line| line.strip_prefix("closed ")).unwrap_or_else(|| panic!("{output:?}"));
    let mut fields = closed.splitn(3, ' ');
    let mut number = || fields.next().unwrap().parse::<u64>().unwrap();
    let (flushed, lost) = (number(), number());
    assert_eq!(flushed + lost, 40 * STREAMS * u64::from(EVENTS), "every event is flushed or counted as lost");
    assert!(flushed > 0 && lost > 0 && fields.next().unwrap().contains("events are lost"), "{closed}");
    // With room again, what was flushed is there.
    let (recorder, recovered) = Recorder::open(folder.path(), Options::default(), at(0)).unwrap();
    assert_eq!((recovered.torn_bytes, recorder.close(at(1)).trouble), (0, None));
    let events: u64 = recorded(folder.path()).values().map(|(_, deltas, _)| deltas.len() as u64).sum();
    assert_eq!(events, flushed);
}
