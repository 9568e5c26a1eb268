//! Bad input: a clear error or a counted skip each, never a panic, and the rest is still read.

use std::io::Write as _;
use std::path::Path;
use std::process::{Command, Stdio};

use serde_json::Value;
use sseismo_tests::{Peer, data, needs, run, sseismo};

/// Runs `analyze --json` on `path` and returns (exit code, report, stderr).
fn analyze(path: &Path) -> (Option<i32>, Value, String) {
    let output = run(&["analyze", path.to_str().expect("UTF-8"), "--json"]);
    let stderr = String::from_utf8_lossy(&output.stderr).into_owned();
    assert!(!stderr.contains("panicked"), "{stderr}");
    (output.status.code(), serde_json::from_slice(&output.stdout).unwrap_or(Value::Null), stderr)
}

fn folder() -> tempfile::TempDir {
    tempfile::tempdir().expect("a temporary folder")
}

#[test]
fn a_picture_is_not_a_log() {
    let dir = folder();
    let path = dir.path().join("photo.jpg");
    std::fs::write(&path, [0xFF, 0xD8, 0xFF, 0xE0, 0, 16, b'J', b'F', b'I', b'F', 0, 1, 2, 3, 0xFF, 0xD9])
        .expect("written");
    let (code, _, stderr) = analyze(&path);
    assert_eq!(code, Some(2));
    assert!(stderr.contains("photo.jpg"), "{stderr}");
}

#[test]
fn an_empty_file_and_a_missing_one_are_named() {
    let dir = folder();
    let path = dir.path().join("nothing.csv");
    std::fs::write(&path, "").expect("written");
    let (code, _, stderr) = analyze(&path);
    assert_eq!(code, Some(2));
    assert!(stderr.contains("nothing.csv") && stderr.contains("empty"), "{stderr}");
    let (code, _, stderr) = analyze(&dir.path().join("gone.csv"));
    assert_eq!(code, Some(2));
    assert!(stderr.contains("gone.csv"), "{stderr}");
}

#[test]
fn a_folder_without_logs_says_so() {
    let dir = folder();
    std::fs::write(dir.path().join("README.txt"), "no logs here\n").expect("written");
    let (code, _, stderr) = analyze(dir.path());
    assert_eq!(code, Some(2), "{stderr}");
}

#[test]
fn a_table_without_a_known_column_names_its_columns_and_the_way_out() {
    let dir = folder();
    let path = dir.path().join("odd.csv");
    std::fs::write(&path, "who,think_toks\na,516\nb,700\n").expect("written");
    let (code, _, stderr) = analyze(&path);
    assert_eq!(code, Some(2));
    assert!(stderr.contains("think_toks") && stderr.contains("--map"), "{stderr}");
}

#[test]
fn invalid_utf8_in_one_line_costs_one_line() {
    let dir = folder();
    let path = dir.path().join("rollout-x.jsonl");
    let whole = std::fs::read(data("rollouts/rollout-invented.jsonl")).expect("read");
    let mut bad =
        b"{\"timestamp\":\"2026\xFF\xFE\",\"type\":\"event_msg\",\"payload\":{\"type\":\"token_count\"}}\n"
            .to_vec();
    let first_line = whole.iter().position(|&b| b == b'\n').expect("lines") + 1;
    let mut bytes = whole[..first_line].to_vec();
    bytes.append(&mut bad);
    bytes.extend_from_slice(&whole[first_line..]);
    std::fs::write(&path, bytes).expect("written");
    let (code, report, stderr) = analyze(&path);
    assert_eq!(code, Some(0), "{stderr}");
    assert_eq!(report["inputs"][0]["streams"], 3);
}

#[test]
fn a_truncated_archive_yields_what_it_holds_and_an_error() {
    let dir = folder();
    let path = dir.path().join("rollout-z.jsonl.zst");
    // Many copies of one session, so that the cut falls behind some whole blocks.
    let text: String =
        std::fs::read_to_string(data("rollouts/rollout-codex-0.171-rt516.jsonl")).expect("read").repeat(400);
    let Some(zstd) = needs(Peer::Debian("zstd", "zstd")) else { return };
    let mut child = std::process::Command::new(zstd)
        .args(["-q", "-c"])
        .stdin(std::process::Stdio::piped())
        .stdout(std::process::Stdio::piped())
        .spawn()
        .expect("zstd starts");
    let mut stdin = child.stdin.take().expect("piped");
    let writer = std::thread::spawn(move || stdin.write_all(text.as_bytes()));
    let mut packed = Vec::new();
    std::io::Read::read_to_end(&mut child.stdout.take().expect("piped"), &mut packed).expect("read");
    writer.join().expect("joined").expect("written");
    child.wait().expect("ends");
    packed.truncate(packed.len() * 2 / 3);
    std::fs::write(&path, packed).expect("written");
    let (code, _, stderr) = analyze(&path);
    assert_eq!(code, Some(2));
    assert!(stderr.contains("rollout-z.jsonl.zst"), "{stderr}");
}

#[test]
fn a_symlink_loop_ends() {
    let dir = folder();
    std::fs::copy(data("rollouts/rollout-invented.jsonl"), dir.path().join("rollout-a.jsonl"))
        .expect("copied");
    std::os::unix::fs::symlink(dir.path(), dir.path().join("again")).expect("linked");
    let (code, report, stderr) = analyze(dir.path());
    assert_eq!(code, Some(0), "{stderr}");
    let streams: u64 =
        report["inputs"].as_array().expect("inputs").iter().filter_map(|i| i["streams"].as_u64()).sum();
    assert_eq!(streams, 3);
}

#[test]
fn one_bad_path_beside_a_good_one_costs_only_itself() {
    let good = data("counts/candy-study/gpt-5.5-xhigh.csv");
    let output = run(&["analyze", good.to_str().expect("UTF-8"), "no-such-file.csv", "--json"]);
    assert_eq!(output.status.code(), Some(2));
    let report: Value = serde_json::from_slice(&output.stdout).expect("the report is still printed");
    assert!(report["findings"].as_array().is_some_and(|f| !f.is_empty()));
    assert!(String::from_utf8_lossy(&output.stderr).contains("no-such-file.csv"));
}

/// A file of records that are all bad must not pass for a good one, least of all under `--fail-on`.
#[test]
fn nothing_read_is_an_error_and_says_why() {
    let dir = folder();
    let path = dir.path().join("negative.csv");
    std::fs::write(&path, "model,reasoning_tokens\nm,-5\nm,many\n").expect("written");
    let (code, report, stderr) = analyze(&path);
    assert_eq!(code, Some(2));
    assert_eq!(report["inputs"][0]["skipped"]["negative-count"], 1, "the report is printed all the same");
    assert!(stderr.contains("no streams were read") && stderr.contains("1 not-a-number"), "{stderr}");
    std::fs::write(&path, "model,reasoning_tokens\n").expect("written");
    let (code, _, stderr) = analyze(&path);
    assert_eq!(code, Some(2));
    assert!(stderr.contains("no records"), "{stderr}");
    // Only links to nowhere.
    let links = folder();
    std::os::unix::fs::symlink("nowhere", links.path().join("rollout-x.jsonl")).expect("linked");
    let (code, _, stderr) = analyze(links.path());
    assert_eq!(code, Some(2), "{stderr}");
}

#[test]
fn an_unclosed_quotation_mark_is_told_with_its_line() {
    let dir = folder();
    let path = dir.path().join("quote.csv");
    let rows = "m,600,fine\n".repeat(40);
    std::fs::write(&path, format!("model,reasoning_tokens,text\n{rows}m,516,\"never closed MARK\n{rows}"))
        .expect("written");
    let (code, report, stderr) = analyze(&path);
    assert_eq!(code, Some(2));
    assert_eq!(report["inputs"][0]["streams"], 41, "what stands before it is read");
    assert!(stderr.contains("line 42") && stderr.contains("never closed:"), "{stderr}");
    assert!(!stderr.contains("MARK"), "{stderr}");
    // A text that is quoted over several lines is none, nor is a last line without an end.
    std::fs::write(&path, format!("model,reasoning_tokens,text\n{rows}m,516,\"two\nlines\""))
        .expect("written");
    let (code, report, stderr) = analyze(&path);
    assert_eq!((code, &report["inputs"][0]["streams"]), (Some(0), &Value::from(41)), "{stderr}");
}

/// A prompt of 200 KB beside its counts, in the first line.
#[test]
fn a_long_first_line_is_recognised() {
    let dir = folder();
    let path = dir.path().join("long.jsonl");
    let prompt = "MARK ".repeat(40_000);
    let line = format!("{{\"prompt\":\"{prompt}\",\"model\":\"m\",\"reasoning_tokens\":600}}\n");
    std::fs::write(&path, line.repeat(3)).expect("written");
    let (code, report, stderr) = analyze(&path);
    assert_eq!((code, &report["inputs"][0]["streams"]), (Some(0), &Value::from(3)), "{stderr}");
    assert!(!report.to_string().contains("MARK"));
}

#[test]
fn text_that_is_no_utf8_and_json_arrays_are_told_the_way_out() {
    let dir = folder();
    let path = dir.path().join("table");
    for (content, word) in [
        (&b"mod\xe8le,reasoning_tokens\nm,516\n"[..], "saved as UTF-8"),
        (b"[{\"reasoning_tokens\":516}]", "one object a line"),
        (b"\xff\xfem\0", "UTF-16"),
        (b" \n\t\n", "blank"),
    ] {
        std::fs::write(&path, content).expect("written");
        let (code, _, stderr) = analyze(&path);
        assert_eq!(code, Some(2));
        assert!(stderr.contains(word), "{word}: {stderr}");
    }
}

#[test]
fn labels_that_are_no_truth_are_counted() {
    let dir = folder();
    let path = dir.path().join("labels.csv");
    std::fs::write(&path, "model,reasoning_tokens,ok\nm,600,true\nm,700,maybe\nm,800,7\n").expect("written");
    let output = run(&["analyze", path.to_str().expect("UTF-8"), "--labels", "correct=ok", "--json"]);
    let report: Value = serde_json::from_slice(&output.stdout).expect("a report");
    let notes = report["findings"][0]["notes"].to_string();
    assert!(notes.contains("2 labels `correct` are neither true nor false"), "{notes}");
    assert_eq!(report["findings"][0]["labelled"], 1);
}

/// Standard input keeps its name, and has one only once.
#[test]
fn standard_input_is_called_so() {
    let from = |args: &[&str]| {
        let table = std::fs::File::open(data("counts/candy-study/gpt-5.5-xhigh.csv")).expect("opened");
        sseismo().args(args).stdin(table).output().expect("the binary starts")
    };
    let output = from(&["analyze", "-", "--json"]);
    let report: Value = serde_json::from_slice(&output.stdout).expect("a report");
    assert_eq!((&report["inputs"][0]["path"], &report["inputs"][0]["streams"]), (&"-".into(), &200.into()));
    assert_eq!(report["findings"][0]["scope"]["source"], "-");
    let output = from(&["analyze", "-", "-"]);
    assert_eq!(output.status.code(), Some(2));
    assert!(String::from_utf8_lossy(&output.stderr).contains("only once"));
}

/// The first Ctrl-C ends the waiting for standard input; what had come is judged.
#[test]
fn an_interrupt_while_standard_input_waits_prints_what_came() {
    let mut child = sseismo()
        .args(["analyze", "-", "--json"])
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .expect("the binary starts");
    let table = std::fs::read(data("counts/candy-study/gpt-5.5-xhigh.csv")).expect("read");
    let mut stdin = child.stdin.take().expect("piped");
    stdin.write_all(&table).expect("written");
    let pid = child.id().to_string();
    let ended = std::thread::spawn(move || child.wait_with_output());
    // Sent too early it would end the process: whether it listens shows in its mask of caught signals.
    let caught = || {
        let status = std::fs::read_to_string(format!("/proc/{pid}/status")).unwrap_or_default();
        let mask =
            status.lines().find_map(|line| line.strip_prefix("SigCgt:")?.trim().get(..16).map(str::to_owned));
        mask.and_then(|mask| u64::from_str_radix(&mask, 16).ok()).is_some_and(|mask| mask & 2 != 0)
    };
    let listens = (0..600).any(|_| {
        std::thread::sleep(std::time::Duration::from_millis(50));
        caught()
    });
    assert!(listens, "the binary listens for Ctrl-C");
    std::thread::sleep(std::time::Duration::from_millis(500));
    Command::new("kill").args(["-INT", &pid]).status().expect("kill");
    let output = ended.join().expect("joined").expect("ends");
    drop(stdin);
    let report: Value = serde_json::from_slice(&output.stdout).expect("a report");
    assert_eq!(report["interrupted"], true);
    assert_eq!(report["inputs"][0]["streams"], 200);
}

/// A full disk is an error with its name; a reader that has left is none.
#[test]
fn results_that_cannot_be_written_are_an_error() {
    let full = std::fs::OpenOptions::new().write(true).open("/dev/full").expect("opened");
    let table = data("counts/candy-study/gpt-5.5-xhigh.csv");
    let output = sseismo().arg("analyze").arg(&table).stdout(full).output().expect("the binary starts");
    assert_eq!(output.status.code(), Some(2));
    let stderr = String::from_utf8_lossy(&output.stderr).into_owned();
    assert!(stderr.contains("cannot write the results to stdout: No space left"), "{stderr}");
}

/// A named pipe nobody writes to, and a device that never ends: named, not waited for.
#[test]
fn what_is_no_file_is_not_waited_for() {
    let dir = folder();
    let pipe = dir.path().join("pipe.jsonl");
    assert!(Command::new("mkfifo").arg(&pipe).status().expect("mkfifo").success());
    let pipe = pipe.to_str().expect("UTF-8");
    for (verb, path) in [
        ("analyze", pipe),
        ("vote", pipe),
        ("simulate", pipe),
        ("analyze", "/dev/zero"),
        ("vote", "/dev/zero"),
        ("simulate", "/dev/zero"),
    ] {
        let output = run(&[verb, path]);
        assert_eq!(output.status.code(), Some(2), "{verb} {path}");
        assert!(String::from_utf8_lossy(&output.stderr).contains(path), "{verb} {path}");
    }
}

/// 64 MiB without an end of line cost `vote` one line.
#[test]
fn an_endless_line_costs_vote_one_line() {
    let dir = folder();
    let path = dir.path().join("long.jsonl");
    let mut bytes = vec![b'x'; 70 << 20];
    bytes.extend_from_slice(b"\n{\"samples\":[{\"text\":\"Answer: 1\"},{\"text\":\"Answer: 1\"}]}\n");
    std::fs::write(&path, bytes).expect("written");
    let output = run(&["vote", path.to_str().expect("UTF-8"), "--json"]);
    let report: Value = serde_json::from_slice(&output.stdout).expect("a report");
    assert_eq!(report["inputs"][0]["skipped"]["line-too-long"], 1, "{report}");
    assert_eq!(report["inputs"][0]["fan_outs"], 1);
}

/// A pipe among the parts of a dataset is not waited for, and events that are gone are missed.
#[test]
fn a_dataset_with_a_pipe_and_a_hole_is_read_as_far_as_it_goes() {
    let dir = folder();
    let dataset = dir.path().join("traces");
    let timing = data("timing");
    let args: [&std::ffi::OsStr; 4] = ["import".as_ref(), timing.as_ref(), "-o".as_ref(), dataset.as_ref()];
    assert!(run(&args).status.success());
    let (_, whole, _) = analyze(&dataset);
    let events = dataset.join("events");
    let parts: Vec<_> = std::fs::read_dir(&events)
        .expect("dates")
        .flat_map(|date| std::fs::read_dir(date.expect("a date").path()).expect("parts"))
        .map(|part| part.expect("a part").path())
        .collect();
    assert!(parts.len() > 1, "{parts:?}");
    std::fs::remove_file(&parts[0]).expect("removed");
    std::fs::remove_file(&parts[1]).expect("removed");
    assert!(Command::new("mkfifo").arg(&parts[1]).status().expect("mkfifo").success());
    let (code, report, stderr) = analyze(&dataset);
    assert_eq!(code, Some(2), "{stderr}");
    let input = &report["inputs"][0];
    assert_eq!(input["skipped"]["damaged-or-missing-file"], 2, "{input:#}");
    assert!(input["skipped"]["stream-without-its-events"].as_u64().is_some_and(|n| n > 0), "{input:#}");
    assert!(stderr.contains("is missing") || stderr.contains("not a regular file"), "{stderr}");
    assert!(input["events"].as_u64() < whole["inputs"][0]["events"].as_u64());
    // Without any events the way out is not to record again.
    std::fs::remove_dir_all(events).expect("removed");
    let (code, report, _) = analyze(&dataset);
    assert_eq!(code, Some(2));
    let steps: Vec<&Value> = report["findings"]
        .as_array()
        .expect("findings")
        .iter()
        .filter(|finding| finding["signature"] == "burst")
        .map(|finding| &finding["next_step"])
        .collect();
    let all = steps.iter().all(|step| step.as_str().is_some_and(|step| step.contains("`events/` back")));
    assert!(!steps.is_empty() && all, "{steps:?}");
    assert!(!report.to_string().contains("only counts per response"), "{report:#}");
    // What is played is not all that there was.
    let output = run(&["watch".as_ref(), dataset.as_os_str(), "--speed".as_ref(), "max".as_ref()]);
    assert_eq!(output.status.code(), Some(2), "{}", String::from_utf8_lossy(&output.stderr));
}

/// What a dataset lacks is named, and so is the way out.
#[test]
fn pieces_of_a_dataset_are_called_so() {
    let dir = folder();
    let dataset = dir.path().join("traces");
    let timing = data("timing");
    let args: [&std::ffi::OsStr; 4] = ["import".as_ref(), timing.as_ref(), "-o".as_ref(), dataset.as_ref()];
    assert!(run(&args).status.success());
    let date =
        std::fs::read_dir(dataset.join("streams")).expect("dates").next().expect("one").expect("a date");
    let part = std::fs::read_dir(date.path()).expect("parts").next().expect("one").expect("a part");
    let (code, _, stderr) = analyze(&part.path());
    assert!(code == Some(2) && stderr.contains("dataset.json"), "{stderr}");
    let manifest = dataset.join("dataset.json");
    let moved = dir.path().join("dataset.json");
    std::fs::rename(&manifest, &moved).expect("moved");
    let (code, _, stderr) = analyze(&dataset);
    assert!(code == Some(2) && stderr.contains("put it back"), "{stderr}");
    std::fs::rename(&moved, &manifest).expect("moved");
    std::fs::remove_dir_all(dataset.join("streams")).expect("removed");
    let (code, _, stderr) = analyze(&dataset);
    assert!(code == Some(2) && stderr.contains("no streams: nothing was recorded"), "{stderr}");
    assert!(stderr.contains("traces") && !stderr.contains("no streams were read"), "said once: {stderr}");
    // A recorder was killed there.
    std::fs::create_dir(dataset.join("journal")).expect("made");
    std::fs::write(dataset.join("journal/1-2-0.journal"), "x").expect("written");
    let (code, _, stderr) = analyze(&dataset);
    assert!(code == Some(2) && stderr.contains("recovers the journal"), "{stderr}");
}
