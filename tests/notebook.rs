//! The notebook of `notebooks/`, executed as a reader would: nothing fails, and its figures are ours.

use std::path::Path;
use std::process::Command;

use serde_json::Value;
use sseismo_tests::{Peer, copy, data, json, needs, root};

const NEEDS: Peer = Peer::Python("notebook", &["polars", "matplotlib", "nbconvert", "ipykernel"]);
/// What the notebook's last cell prints its figures behind.
const FIGURES: &str = "figures: ";

#[test]
fn the_notebook_runs_and_agrees_with_the_binary() {
    let Some(python) = needs(NEEDS) else { return };
    let folder = tempfile::tempdir().expect("a folder");
    let home = folder.path();
    // The same layout as in the repository: the notebook finds its data by a relative path.
    copy(&root().join("notebooks"), &home.join("notebooks"));
    copy(&data("traces"), &home.join("data/traces"));
    let run = Command::new(python)
        .args(["-m", "nbconvert", "--to", "notebook", "--execute", "--output", "executed.ipynb"])
        // Seconds for the kernel to start and for each cell.
        .args(["--ExecutePreprocessor.startup_timeout=120", "--ExecutePreprocessor.timeout=120"])
        .arg("gaps.ipynb")
        .current_dir(home.join("notebooks"))
        .envs([("HOME", home), ("MPLCONFIGDIR", home), ("IPYTHONDIR", home), ("JUPYTER_DATA_DIR", home)])
        .output()
        .expect("python starts");
    assert!(run.status.success(), "{}", String::from_utf8_lossy(&run.stderr));

    let cells = outputs(&home.join("notebooks/executed.ipynb"));
    assert!(cells.iter().flatten().all(|output| output["output_type"] != "error"));
    let plots = cells.iter().flatten().filter(|output| output["data"]["image/png"].is_string()).count();
    assert_eq!(plots, 3, "one picture for each of the three plots");
    let figures = figures(&cells);

    let report = json(&[
        "analyze".as_ref(),
        "--json".as_ref(),
        "--by=model".as_ref(),
        data("traces/timing").as_os_str(),
    ]);
    for field in ["streams", "events"] {
        assert_eq!(figures[field], report["inputs"][0][field], "{field}");
    }
    let findings = report["findings"].as_array().expect("findings");
    let mut compared = 0;
    for finding in findings.iter().filter(|finding| finding["signature"] == "burst") {
        let model = finding["scope"]["model"].as_str().expect("a model");
        let gaps = &finding["evidence"]["frame_gap_ms"];
        assert_eq!(figures["gaps"][model], gaps["n"], "{model}: number of gaps");
        let (theirs, ours) = (&figures["gap_ms_p50"][model], gaps["p50"].as_f64());
        let (Some(theirs), Some(ours)) = (theirs.as_f64(), ours) else {
            panic!("{model}: {theirs} in the notebook, {ours:?} in the report");
        };
        // The report's quantiles come from a histogram: within 0.8 %. One of few gaps may be its neighbour.
        assert!((theirs / ours - 1.0).abs() < 0.01, "{model}: {theirs} ms against {ours} ms");
        compared += 1;
    }
    assert_eq!(compared, 6, "{compared} models were compared");
}

/// What is committed has no outputs: nothing of the machine that ran it, and small changes stay small.
#[test]
fn the_committed_notebook_is_stripped() {
    let outputs = outputs(&root().join("notebooks/gaps.ipynb"));
    assert!(!outputs.is_empty() && outputs.iter().all(Vec::is_empty));
}

/// The outputs of each code cell.
fn outputs(notebook: &Path) -> Vec<Vec<Value>> {
    let text = std::fs::read_to_string(notebook).expect("a notebook");
    let notebook: Value = serde_json::from_str(&text).expect("a notebook is JSON");
    let cells = notebook["cells"].as_array().expect("cells");
    cells.iter().filter_map(|cell| cell["outputs"].as_array().cloned()).collect()
}

fn figures(cells: &[Vec<Value>]) -> Value {
    let lines = cells.iter().flatten().filter_map(|output| output["text"].as_array()).flatten();
    let line = lines.filter_map(|line| line.as_str()?.strip_prefix(FIGURES)).next_back();
    serde_json::from_str(line.expect("the notebook prints its figures")).expect("figures are JSON")
}
