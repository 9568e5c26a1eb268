//! The access log on a disk that is full for a while, and moved away by others.

use std::io::{Read as _, Write as _};
use std::net::TcpStream;
use std::os::unix::fs::symlink;
use std::path::Path;

use super::*;

/// Nobody listens at the upstream: an answer by the relay itself is a line, too.
const CONFIG: &str = "[server]\nlisten = \"127.0.0.1:0\"\n\
    [[upstream]]\nname = \"a\"\nurl = \"http://127.0.0.1:9/v1\"\napis = [\"chat\"]\n\
    [[route]]\nmodel = \"m\"\ntiers = [[\"a\"]]\n";

fn send(url: &str, requests: usize) {
    let address = url.strip_prefix("http://").expect("a URL");
    for _ in 0..requests {
        let mut stream = TcpStream::connect(address).expect("connected");
        let body = r#"{"model":"m","messages":[]}"#;
        let length = body.len();
        let head = "POST /v1/chat/completions HTTP/1.1\r\nhost: relay\r\nconnection: close\r\ncontent-length";
        write!(stream, "{head}: {length}\r\n\r\n{body}").expect("sent");
        let mut answer = String::new();
        stream.read_to_string(&mut answer).expect("an answer");
        assert!(answer.starts_with("HTTP/1.1 502"), "{answer}");
    }
}

/// Lines of the file, each one document.
fn lines(path: &Path) -> usize {
    let text = std::fs::read_to_string(path).unwrap_or_default();
    let whole = |line: &&str| serde_json::from_str::<serde_json::Value>(line).is_ok();
    text.lines().filter(whole).count()
}

/// The second signal ends what is open, and no count is made up.
#[test]
fn an_impatient_end_counts_nothing() {
    let folder = tempfile::tempdir().expect("a folder");
    let path = |name: &str| folder.path().join(name);
    let (config, log, said) = (path("relay.toml"), path("access.log"), path("stderr"));
    std::fs::write(&config, CONFIG).expect("written");
    let mut command = sseismo();
    command.arg("relay").arg("--config").arg(&config).arg("--access-log").arg(&log);
    command.stderr(std::fs::File::create(&said).expect("made"));
    let relay = Listening::of(&mut command);
    send(&relay.url, 3);
    // Half a request keeps the relay waiting.
    let mut open = TcpStream::connect(relay.url.strip_prefix("http://").expect("a URL")).expect("connected");
    write!(open, "POST /v1/chat/completions HTTP/1.1\r\nhost: relay\r\ncontent-length: 9\r\n\r\n")
        .expect("sent");
    std::thread::sleep(Duration::from_millis(200));
    let told = || std::fs::read_to_string(&said).unwrap_or_default();
    let id = relay.id().to_string();
    assert!(Command::new("kill").args(["-TERM", &id]).status().expect("kill").success());
    wait_for(|| told().contains("ending; open streams").then_some(()));
    relay.end();
    assert!(told().contains("ended at once") && !told().contains("requests passed on"), "{}", told());
    assert_eq!(lines(&log), 4, "the one that was cut off, too");
}

#[test]
fn no_line_of_the_access_log_is_lost_to_a_full_disk_or_to_logrotate() {
    let folder = tempfile::tempdir().expect("a folder");
    let path = |name: &str| folder.path().join(name);
    let (config, log, said) = (path("relay.toml"), path("access.log"), path("stderr"));
    std::fs::write(&config, CONFIG).expect("written");
    symlink("/dev/full", &log).expect("linked");
    let mut command = sseismo();
    command.arg("relay").arg("--config").arg(&config).arg("--access-log").arg(&log);
    command.stderr(std::fs::File::create(&said).expect("made"));
    let relay = Listening::of(&mut command);
    send(&relay.url, 20);
    let told = || std::fs::read_to_string(&said).unwrap_or_default();
    wait_for(|| told().contains("No space left").then_some(()));
    // The disk has room again: what waited is written, and nothing twice.
    std::fs::remove_file(&log).expect("removed");
    wait_for(|| (lines(&log) == 20).then_some(()));
    wait_for(|| told().contains("0 lines were lost").then_some(()));
    let moved = path("access.log.1");
    std::fs::rename(&log, &moved).expect("moved");
    send(&relay.url, 5);
    relay.end();
    assert_eq!((lines(&moved), lines(&log)), (20, 5), "{}", told());
    assert!(!told().contains('\u{1b}'), "no colours in a file: {}", told());
}
