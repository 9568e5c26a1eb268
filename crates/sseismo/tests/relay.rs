//! The routing relay as a program: what `--check` says, and a request that survives a dead primary.

#![cfg(feature = "relay")]

use std::io::{BufRead as _, BufReader, Read as _, Write as _};
use std::net::TcpStream;
use std::path::Path;
use std::process::{Child, Command, Output, Stdio};
use std::time::Duration;

fn sseismo(args: &[&str]) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_sseismo"));
    command.args(args);
    command
}

fn check(path: &Path) -> Output {
    let path = path.to_str().expect("a UTF-8 path");
    sseismo(&["relay", "--config", path, "--check"]).output().expect("the binary starts")
}

#[test]
fn a_check_names_every_fault_with_its_line() {
    let folder = tempfile::tempdir().expect("a folder");
    let path = folder.path().join("relay.toml");
    let good = "[[upstream]]\nname = \"a\"\nurl = \"http://127.0.0.1:1/v1\"\napis = [\"chat\"]\n\
                [[route]]\nmodel = \"m\"\ntiers = [[\"a\"]]\n";
    std::fs::write(&path, good).expect("a file");
    let said = check(&path);
    let line: serde_json::Value = serde_json::from_slice(&said.stdout).expect("one line of JSON");
    assert_eq!((said.status.code(), &line["upstreams"], &line["routes"]), (Some(0), &1.into(), &1.into()));
    let sink = "[[sink]]\nname = \"s\"\nkind = \"haproxy-agent\"\nlisten = \"8901\"\ntargets = [{ upstream = \"b\" }]\n";
    std::fs::write(&path, good.replace("/v1", "").replace("tiers", "teirs") + sink).expect("a file");
    let said = check(&path);
    let text = String::from_utf8_lossy(&said.stderr).into_owned();
    assert_eq!(said.status.code(), Some(2), "{text}");
    let sink = ["line 11: ", "`listen` must be an address", "line 12: ", "no upstream named `b`"];
    for fault in ["line 3: ", "/v1", "line 5: ", "line 7: ", "teirs"].into_iter().chain(sink) {
        assert!(text.contains(fault), "{fault}\n{text}");
    }
}

/// A process that says where it listens.
struct Running {
    child: Child,
    lines: BufReader<std::process::ChildStdout>,
    listening: String,
}

impl Running {
    fn start(args: &[&str]) -> Self {
        Self::telling(args, Stdio::null())
    }

    fn telling(args: &[&str], stderr: Stdio) -> Self {
        let mut child =
            sseismo(args).stdout(Stdio::piped()).stderr(stderr).spawn().expect("the binary starts");
        let mut lines = BufReader::new(child.stdout.take().expect("its stdout"));
        let mut line = String::new();
        lines.read_line(&mut line).expect("a line");
        let said: serde_json::Value = serde_json::from_str(&line).expect("where it listens");
        let listening =
            said["listening"].as_str().expect("an address").trim_start_matches("http://").to_owned();
        Self { child, lines, listening }
    }

    fn ask_to_end(&self) {
        let id = self.child.id().to_string();
        Command::new("kill").arg(id).status().expect("kill");
    }

    /// Asks it to end, and waits.
    fn end(&mut self) -> Option<i32> {
        self.ask_to_end();
        self.ended()
    }

    /// Waits for its end.
    fn ended(&mut self) -> Option<i32> {
        for _ in 0..1_000 {
            if let Some(status) = self.child.try_wait().expect("a child") {
                return status.code();
            }
            std::thread::sleep(Duration::from_millis(20));
        }
        None
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// Told to end in the very moment in which it tells its address, it ends as gracefully as later. stderr is a
/// full pipe, so that the process stands still between the line for programs and that for people.
#[test]
fn who_knows_the_address_can_end_it() {
    let folder = tempfile::tempdir().expect("a folder");
    let at = |name: &str| folder.path().join(name).to_str().expect("a UTF-8 path").to_owned();
    let routes = "[server]\nlisten = \"127.0.0.1:0\"\n[[upstream]]\nname = \"a\"\n\
                  url = \"http://127.0.0.1:1/v1\"\napis = [\"chat\"]\n\
                  [[route]]\nmodel = \"m\"\ntiers = [[\"a\"]]\n";
    std::fs::write(at("relay.toml"), routes).expect("a file");
    let observing = ["--observe", "--to", "http://127.0.0.1:1", "--listen", "127.0.0.1:0"];
    let routing = ["--config", &at("relay.toml")];
    for (how, out) in [(&observing[..], at("observed")), (&routing[..], at("routed"))] {
        let (mut told, mut full) = std::io::pipe().expect("a pipe");
        let stderr = full.try_clone().expect("a second end of it");
        // More than a pipe holds by default: the thread goes on once the pipe is read.
        let filling = std::thread::spawn(move || full.write_all("\n".repeat(80_000).as_bytes()));
        std::thread::sleep(Duration::from_millis(200));
        let args = [&["relay", "--admin", "127.0.0.1:0", "-o", &out], how].concat();
        let mut relay = Running::telling(&args, stderr.into());
        relay.ask_to_end();
        std::thread::sleep(Duration::from_millis(200));
        let reading = std::thread::spawn(move || {
            let mut all = String::new();
            told.read_to_string(&mut all).map(|_| all)
        });
        assert_eq!(relay.ended(), Some(0), "{how:?}");
        drop(relay);
        filling.join().expect("a thread").expect("the pipe was read");
        let said = reading.join().expect("a thread").expect("text");
        assert!(said.contains("0 streams with 0 events recorded"), "{said}");
    }
}

#[cfg(feature = "simulate")]
#[test]
fn a_request_survives_a_dead_primary_and_says_so_in_the_access_log() {
    let folder = tempfile::tempdir().expect("a folder");
    let at = |name: &str| folder.path().join(name).to_str().expect("a UTF-8 path").to_owned();
    let quick = "[answer]\nfirst-token = \"20ms\"\nreasoning = { median = 20, sigma = 0.0001 }\n\
                 [[behaviour]]\nkind = \"steady\"\ngap = \"5ms\"\n";
    std::fs::write(at("well.toml"), quick).expect("a file");
    std::fs::write(at("dead.toml"), "[[behaviour]]\nkind = \"http-error\"\n").expect("a file");
    let dead = Running::start(&["simulate", &at("dead.toml")]);
    let well = Running::start(&["simulate", &at("well.toml")]);
    let upstream = |name: &str, running: &Running| {
        format!(
            "[[upstream]]\nname = \"{name}\"\nurl = \"http://{}/v1\"\napis = [\"chat\"]\n",
            running.listening
        )
    };
    let text = format!(
        "[server]\nlisten = \"127.0.0.1:0\"\n{}{}[[route]]\nmodel = \"m\"\ntiers = [[\"dead\"], [\"well\"]]\n",
        upstream("dead", &dead),
        upstream("well", &well)
    );
    std::fs::write(at("relay.toml"), text).expect("a file");
    let mut relay = Running::start(&["relay", "--config", &at("relay.toml"), "-o", &at("traces")]);

    let body = r#"{"model":"m","stream":true,"messages":[{"role":"user","content":"hi"}]}"#;
    let mut socket = TcpStream::connect(&relay.listening).expect("the relay listens");
    socket.set_read_timeout(Some(Duration::from_secs(20))).expect("a timeout");
    let head = "POST /v1/chat/completions HTTP/1.1\r\nhost: relay\r\nconnection: close\r\n";
    write!(socket, "{head}content-length: {}\r\n\r\n{body}", body.len()).expect("sent");
    let mut answer = String::new();
    socket.read_to_string(&mut answer).expect("an answer");
    assert!(answer.contains("x-sseismo-served-by: well") && answer.contains("data: [DONE]"), "{answer}");

    let mut line = String::new();
    relay.lines.read_line(&mut line).expect("a line of the access log");
    let entry: serde_json::Value = serde_json::from_str(&line).expect("JSON");
    assert_eq!(
        (&entry["served_by"], &entry["attempts"][0]["outcome"]),
        (&"well".into(), &"status-500".into())
    );
    assert_eq!(relay.end(), Some(0), "it ends gracefully");
    let streams = std::fs::read_dir(at("traces")).expect("a dataset").filter_map(Result::ok);
    assert!(streams.map(|entry| entry.file_name()).any(|name| name == "streams"));
}
