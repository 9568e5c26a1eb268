//! A folder, captures into it, and what the stored columns say of them.

use std::path::PathBuf;
use std::process::{Child, Stdio};

use serde_json::Value;
use sseismo_tests::{json, sseismo};
use tempfile::TempDir;

/// Streams of one capture that are open at once.
const AT_ONCE: u32 = 4;

/// The files of one test.
pub(crate) struct Lab(TempDir);

impl Lab {
    pub(crate) fn new() -> Self {
        Self(tempfile::tempdir().expect("a folder"))
    }

    pub(crate) fn path(&self, name: &str) -> PathBuf {
        self.0.path().join(name)
    }

    /// Starts `sseismo capture` of `url` into the dataset `name`: as many rounds of four streams.
    pub(crate) fn capture(&self, name: &str, url: &str, headers: &[&str], rounds: u32) -> Capture {
        let body = self.path(&format!("{name}.request"));
        let request =
            r#"{"model":"m","stream":true,"reasoning":{"effort":"medium"},"input":"hi","messages":[]}"#;
        std::fs::write(&body, request).expect("written");
        let dataset = self.path(name);
        // Of an attempt before.
        let _ = std::fs::remove_dir_all(&dataset);
        let mut command = sseismo();
        let (repeat, at_once) = ((AT_ONCE * rounds).to_string(), AT_ONCE.to_string());
        command.args(["capture", "--json", "--repeat", &repeat, "--concurrency", &at_once, "--url", url]);
        command.arg("--body").arg(&body).arg("-o").arg(&dataset);
        for header in headers {
            command.args(["-H", header]);
        }
        let child = command.stdout(Stdio::null()).stderr(Stdio::null()).spawn().expect("the binary starts");
        Capture { child, dataset }
    }
}

/// A capture under way; it ends with the test.
pub(crate) struct Capture {
    pub(crate) child: Child,
    dataset: PathBuf,
}

impl Capture {
    /// Waits for its end; what `sseismo analyze` says of burst, from the dataset alone.
    pub(crate) fn judged(mut self) -> Value {
        let status = self.child.wait().expect("it ends");
        assert!(status.success(), "{status}");
        judged(&self.dataset.display().to_string())
    }
}

impl Drop for Capture {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// The one finding of burst in a dataset.
fn judged(dataset: &str) -> Value {
    let report = json(&["analyze", dataset, "--json"]);
    let findings = report["findings"].as_array().expect("findings").iter();
    let mut found: Vec<Value> = findings.filter(|finding| finding["signature"] == "burst").cloned().collect();
    assert_eq!(found.len(), 1, "{report:#}");
    found.remove(0)
}
