//! `sseismo replay` on real sockets: what is sent, when, and what becomes of it.

use std::collections::BTreeMap;
use std::io::{Read as _, Write as _};
use std::net::TcpListener;
use std::path::Path;
use std::time::Duration;

use serde_json::Value;
use sseismo_tests::{Listening, json, run, sseismo};
use sseismo_trace::parquet::Dataset;
use sseismo_trace::{Api, Summary};

/// A load of three APIs, efforts, numeric and other prompts; the upstream is quick.
const LOAD: &str = "[answer]
reasoning = { median = 20, sigma = 0.3 }
output = { median = 10, sigma = 0.3 }
first-token = \"20ms\"
[load]
arrivals = { rate = 40 }
apis = [\"responses\", \"chat\", \"messages\"]
efforts = { low = 0.5, high = 0.5 }
streamed = 0.8
numeric = 0.5
json = 0.5
sessions = 5
[[behaviour]]
kind = \"steady\"
gap = \"5ms\"
";

fn scenario(folder: &Path, name: &str, text: &str) -> String {
    let path = folder.join(name);
    std::fs::write(&path, text).expect("written");
    path.display().to_string()
}

fn load(folder: &Path, text: &str, streams: usize) -> String {
    let scenario = scenario(folder, "load.toml", text);
    let dataset = folder.join("load").display().to_string();
    let output = run(&["simulate", &scenario, "--dataset", &dataset, "--streams", &streams.to_string()]);
    assert!(output.status.success());
    dataset
}

/// The streams of a dataset in the order in which they started.
fn streams(folder: &str) -> Vec<Summary> {
    let mut streams = Vec::new();
    let dataset = Dataset::open(Path::new(folder)).expect("a dataset");
    dataset.streams(|stream| {
        streams.push(stream.summary.clone());
        std::ops::ControlFlow::Continue(())
    });
    streams.sort_by_key(|summary| summary.started_at);
    streams
}

/// Streams of equal session (or turn) by the places that they have in the order of time.
fn groups(streams: &[Summary], key: impl Fn(&Summary) -> Option<u64>) -> Vec<Vec<usize>> {
    let mut groups: BTreeMap<u64, Vec<usize>> = BTreeMap::new();
    for (place, stream) in streams.iter().enumerate() {
        groups.entry(key(stream).expect("a key")).or_default().push(place);
    }
    let mut groups: Vec<_> = groups.into_values().collect();
    groups.sort();
    groups
}

#[test]
fn shapes_arrive_as_they_were_recorded_and_answers_become_a_dataset() {
    let folder = tempfile::tempdir().expect("a folder");
    let dataset = load(folder.path(), LOAD, 120);
    let truth = folder.path().join("truth.jsonl").display().to_string();
    let upstream =
        Listening::start(&["simulate", &scenario(folder.path(), "up.toml", LOAD), "--truth", &truth]);
    let out = folder.path().join("replayed").display().to_string();
    let report =
        json(&["replay", &dataset, "--to", &upstream.url, "--speed", "2", "--yes", "--json", "-o", &out]);
    upstream.end();
    assert_eq!(report["schema"], "sseismo.replay/1");
    assert_eq!((&report["sent"], &report["shed"]), (&120.into(), &0.into()), "{report}");
    assert_eq!(report["outcomes"]["completed"], 120, "{report}");

    let (recorded, replayed) = (streams(&dataset), streams(&out));
    assert_eq!(replayed.len(), 120);
    let start = |streams: &[Summary], place: usize| {
        let at = |place: usize| streams[place].started_at.expect("a start").0;
        at(place) - at(0)
    };
    for (place, (before, after)) in recorded.iter().zip(&replayed).enumerate() {
        let planned = start(&recorded, place) / 2;
        assert!(
            (start(&replayed, place) - planned).abs() <= 1_000,
            "the plan itself is recorded as the start"
        );
        assert_eq!((before.api, before.streamed), (after.api, after.streamed));
        // Messages has no word for "answer in JSON", so there it is only checked.
        if before.api != Some(Api::Messages) {
            assert_eq!(before.content_check, after.content_check);
        }
        assert_eq!((&before.model_requested, &before.effort), (&after.model_requested, &after.effort));
        // The smallest body of a request without a prompt is larger than a prompt of a few tokens.
        let smallest = 230;
        let (wanted, got) = (before.prompt_bytes.expect("bytes"), after.prompt_bytes.expect("bytes"));
        assert!(got == wanted || (wanted < smallest && got <= smallest), "{wanted} bytes, sent {got}");
        if wanted > 1_000 {
            let [wanted, got] = [before, after].map(|one| one.prompt_numeric_share.expect("a share"));
            assert!((wanted - got).abs() < 0.001, "numeric share {wanted}, sent {got}");
        }
    }
    for key in [|s: &Summary| s.session_key, |s: &Summary| s.turn_key] {
        assert_eq!(groups(&recorded, key), groups(&replayed, key));
    }

    // What reached the upstream, by its own clock.
    let truth = std::fs::read_to_string(&truth).expect("truth");
    let mut arrived: Vec<i64> = truth
        .lines()
        .map(|line| {
            serde_json::from_str::<Value>(line).expect("JSON")["truth"]["ask"]["at"].as_i64().expect("µs")
        })
        .collect();
    arrived.sort_unstable();
    let mut off: Vec<i64> =
        (0..120).map(|place| arrived[place] - arrived[0] - start(&recorded, place) / 2).collect();
    off.sort_unstable();
    let spread = off[90] - off[30];
    assert!(spread < 10_000, "half of the requests lie within {spread} µs of each other's plan");
    assert!(report["late_us"]["p50"].as_i64().expect("µs") < 10_000, "{report}");

    // The dataset is one like any other.
    let analyzed = json(&["analyze", &out, "--json"]);
    assert_eq!(analyzed["inputs"][0]["streams"], 120);
    let compared = json(&["compare", &dataset, &out, "--json"]);
    assert_eq!(compared["groups"][1]["rows"], 120);
    assert_eq!(compared["unit"], "session");
}

/// A server that answers nothing for 1.5 s after the first request, and everything after that.
fn stalls(listener: TcpListener) -> std::thread::JoinHandle<Vec<Duration>> {
    std::thread::spawn(move || {
        #[expect(clippy::disallowed_methods, reason = "a server has a clock")]
        let now = std::time::Instant::now;
        let mut first = None;
        let mut arrived = Vec::new();
        let mut waiting = Vec::new();
        for _ in 0..30 {
            let (mut stream, _) = listener.accept().expect("a connection");
            let begin = *first.get_or_insert_with(now);
            arrived.push(begin.elapsed());
            waiting.push(std::thread::spawn(move || {
                let mut read = vec![0; 65_536];
                let mut all = Vec::new();
                while !all.windows(4).any(|four| four == b"\r\n\r\n") {
                    let n = stream.read(&mut read).expect("a request");
                    all.extend_from_slice(&read[..n]);
                }
                std::thread::sleep(Duration::from_millis(1_500).saturating_sub(begin.elapsed()));
                let body = "data: {\"choices\":[{\"delta\":{\"content\":\"x\"}}]}\n\ndata: [DONE]\n\n";
                let _ = write!(
                    stream,
                    "HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\nconnection: close\r\ncontent-length: {}\r\n\r\n{body}",
                    body.len()
                );
            }));
        }
        for one in waiting {
            one.join().expect("joined");
        }
        arrived
    })
}

/// Coordinated omission: a load generator that waits for the server would send two requests here and report one
/// slow answer. All thirty are sent on time, and each waits for as long as the stall still lasted when it was due.
#[test]
fn a_server_that_stalls_delays_no_request_and_hides_no_wait() {
    let folder = tempfile::tempdir().expect("a folder");
    let even = LOAD
        .replace("rate = 40", "rate = 30, even = true")
        .replace("apis = [\"responses\", \"chat\", \"messages\"]", "apis = [\"chat\"]");
    let dataset = load(folder.path(), &even, 30);
    let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
    let url = format!("http://{}", listener.local_addr().expect("an address"));
    let server = stalls(listener);
    let out = folder.path().join("replayed").display().to_string();
    let report = json(&["replay", &dataset, "--to", &url, "--yes", "--json", "-o", &out]);
    let arrived = server.join().expect("joined");
    assert_eq!(report["outcomes"]["completed"], 30, "{report}");
    let took = arrived[29];
    assert!(took < Duration::from_millis(1_400), "30 requests at 30 a second took {took:?}");
    let waits: Vec<i64> = streams(&out).iter().map(|s| s.t_headers.expect("a head").0 / 1_000).collect();
    for (place, wait) in waits.iter().enumerate() {
        let expected = 1_500 - i64::try_from(place).expect("small") * 1_000 / 30;
        // A busy machine may add to it.
        assert!(
            (expected - 100..expected + 500).contains(wait),
            "request {place} of {waits:?}, not {expected}"
        );
    }
}

#[test]
fn what_cannot_be_sent_in_time_is_counted_and_what_never_ends_is_given_up() {
    let folder = tempfile::tempdir().expect("a folder");
    let dataset = load(folder.path(), LOAD, 40);
    let silent =
        format!("{LOAD}[[behaviour]]\nkind = \"silence\"\nat = \"before-headers\"\nlasts = \"60s\"\n");
    let upstream = Listening::start(&["simulate", &scenario(folder.path(), "silent.toml", &silent)]);
    let out = folder.path().join("replayed").display().to_string();
    let output = sseismo()
        .args(["replay", &dataset, "--to", &upstream.url, "--speed", "4", "--yes", "--json", "-o", &out])
        .args(["--max-in-flight", "10", "--deadline", "2s"])
        .output()
        .expect("the binary starts");
    let stderr = String::from_utf8_lossy(&output.stderr);
    let report: Value = serde_json::from_slice(&output.stdout).expect("a report");
    assert_eq!((&report["sent"], &report["shed"]), (&10.into(), &30.into()), "{report}");
    assert_eq!(report["outcomes"]["timeout"], 10, "{report}");
    assert_eq!(output.status.code(), Some(2), "nothing was answered");
    assert!(stderr.contains("30 of 40 requests were not sent"), "{stderr}");
    assert_eq!(streams(&out).len(), 10);
}

#[test]
fn failures_are_sent_again_as_clients_do_and_later_attempts_of_the_record_are_not() {
    let folder = tempfile::tempdir().expect("a folder");
    let failing = format!("{LOAD}[[behaviour]]\nkind = \"http-error\"\nstatus = 503\nshare = 0.5\n");
    let dataset = load(folder.path(), &failing, 60);
    let recorded = streams(&dataset);
    let first = recorded.iter().filter(|one| one.attempt == Some(1)).count();
    assert!(first < 60);
    let upstream = Listening::start(&["simulate", &scenario(folder.path(), "up.toml", &failing)]);
    let out = folder.path().join("replayed").display().to_string();
    let args = ["replay", &dataset, "--to", &upstream.url, "--retries", "2", "--yes", "--json", "-o", &out];
    let report = json(&args);
    assert_eq!(report["sent"], first);
    assert_eq!(report["left_out"]["later-attempt"], 60 - first);
    let again = report["again"].as_u64().expect("a count");
    assert!(again > 5, "{report}");
    let replayed = streams(&out);
    assert_eq!(replayed.len() as u64, first as u64 + again);
    // An attempt is of its turn: second attempts share the key of a first one.
    for later in replayed.iter().filter(|one| one.attempt > Some(1)) {
        let firsts = replayed.iter().filter(|one| one.turn_key == later.turn_key && one.attempt == Some(1));
        assert_eq!(firsts.count(), 1);
    }
}

#[test]
fn bad_input_is_named_and_nothing_is_sent() {
    let folder = tempfile::tempdir().expect("a folder");
    let dataset = load(folder.path(), LOAD, 30);
    let fails = |args: &[&str], words: &[&str]| {
        let output = run(args);
        let stderr = String::from_utf8_lossy(&output.stderr);
        assert_eq!(output.status.code(), Some(2), "{args:?}: {stderr}");
        for word in words {
            assert!(stderr.contains(word), "{args:?}: {stderr}");
        }
        assert!(!stderr.contains("panicked"), "{stderr}");
    };
    let to = "http://127.0.0.1:9";
    fails(&["replay", &dataset, "--to", to], &["30", "budget of 20", "--yes"]);
    fails(&["replay", &dataset, "--to", "nowhere", "--yes"], &["nowhere", "URL"]);
    fails(&["replay", &dataset, "--to", to, "--speed", "0"], &["--speed", "above 0"]);
    fails(&["replay", &dataset, "--to", to, "--api", "soap"], &["--api", "responses"]);
    fails(&["replay", &dataset, "--to", to, "--yes", "--coarse"], &["--out"]);
    fails(&["replay", &dataset, "--to", to, "--yes", "--key-env", "NOT_SET_HERE"], &["NOT_SET_HERE"]);
    fails(&["replay", "/nonexistent", "--to", to], &["/nonexistent"]);
    fails(
        &["replay", "data/counts/candy-study/gpt-5.5-xhigh.csv", "--to", to],
        &["nothing can be sent again", "no-start-time"],
    );
    // Nobody listens there: every attempt says so, once, and the exit code tells.
    fails(&["replay", &dataset, "--to", to, "--limit", "3"], &["3 attempts got no answer", "refused"]);
}
