//! Bad input: a clear error or a counted skip each, never a panic, and the rest is still read.

use std::io::Write as _;
use std::path::Path;

use serde_json::Value;
use sseismo_tests::{Peer, data, needs, run};

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
