//! What the whole-path tests share: the binary, the data, and the programs of other people.

use std::ffi::OsStr;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};

use serde_json::Value;

mod peer;
mod process;

pub use peer::{Peer, needs};
pub use process::{Listening, Program, free_port};

/// The workspace's root.
pub fn root() -> &'static Path {
    Path::new(concat!(env!("CARGO_MANIFEST_DIR"), "/.."))
}

/// A file or folder of `data/`.
pub fn data(path: &str) -> PathBuf {
    root().join("data").join(path)
}

/// Copies a folder with all that it holds.
///
/// # Panics
/// When something cannot be read or written.
pub fn copy(from: &Path, to: &Path) {
    std::fs::create_dir_all(to).expect("a folder");
    for entry in std::fs::read_dir(from).expect("a folder") {
        let entry = entry.expect("an entry");
        let to = to.join(entry.file_name());
        if entry.path().is_dir() {
            copy(&entry.path(), &to);
        } else {
            std::fs::copy(entry.path(), to).expect("a copy");
        }
    }
}

/// The built binary, run in the workspace's root with no home folder to read by accident.
///
/// # Panics
/// When it has not been built: `cargo test --workspace` builds it, a single test may not.
pub fn sseismo() -> Command {
    let mut path = std::env::current_exe().expect("a test knows its own path");
    path.pop();
    if path.ends_with("deps") {
        path.pop();
    }
    path.push("sseismo");
    assert!(path.exists(), "{} is missing: run `cargo build -p sseismo` first", path.display());
    let mut command = Command::new(path);
    command.current_dir(root()).env_remove("CODEX_HOME").env("HOME", "/nonexistent").env("NO_COLOR", "1");
    command
}

/// Runs the binary to its end.
///
/// # Panics
/// When it cannot be started.
pub fn run<S: AsRef<OsStr>>(args: &[S]) -> Output {
    sseismo().args(args).output().expect("the binary starts")
}

/// Runs the binary and reads its stdout as JSON.
///
/// # Panics
/// When stdout is not one JSON document; stderr is shown then.
pub fn json<S: AsRef<OsStr>>(args: &[S]) -> Value {
    let output = run(args);
    serde_json::from_slice(&output.stdout)
        .unwrap_or_else(|error| panic!("{error}: stderr was {}", String::from_utf8_lossy(&output.stderr)))
}
