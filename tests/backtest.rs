//! The live detector over recorded traces, as the binary runs it: what offline calls present it signals, what
//! offline calls none it does not, and against a known truth it is scored.

use std::collections::BTreeSet;
use std::ops::ControlFlow;
use std::path::Path;

use serde_json::Value;
use sseismo_tests::{data, json, run};
use sseismo_trace::parquet::Dataset;

/// Signature and model.
type Pairs = BTreeSet<(String, String)>;

fn text(value: &Value) -> String {
    value.as_str().unwrap_or_default().to_owned()
}

fn offline(path: &Path) -> Pairs {
    let report = json(&["analyze".as_ref(), "--by=model".as_ref(), "--json".as_ref(), path.as_os_str()]);
    let findings = report["findings"].as_array().expect("findings");
    let alarms =
        findings.iter().filter(|one| one["verdict"] == "present" || one["verdict"] == "boundary-stops");
    alarms.map(|one| (text(&one["signature"]), text(&one["scope"]["model"]))).collect()
}

fn live(path: &Path) -> Pairs {
    let report = json(&["backtest".as_ref(), "--json".as_ref(), path.as_os_str()]);
    let onsets = report["signals"].as_array().expect("signals").iter().filter(|one| one["state"] == "onset");
    onsets.map(|one| (text(&one["signature"]), text(&one["target"]["model"]))).collect()
}

/// GPT-4o, AIPerf, Ollama and Claude streams: nothing is there. Reasoning counts of two models: one stops on
/// 518n−2, and the live detector names the same model.
#[test]
fn live_and_offline_agree_on_real_data() {
    let (streams, counts) = (data("traces/timing"), data("counts/candy-study"));
    assert_eq!((offline(&streams), live(&streams)), (Pairs::new(), Pairs::new()));
    let lattice = Pairs::from([("count-lattice".to_owned(), "gpt-5.5".to_owned())]);
    assert_eq!((offline(&counts), live(&counts)), (lattice.clone(), lattice));
}

/// A scenario as a dataset with its truth.
fn simulate(scenario: &str, streams: &str, folder: &Path) {
    let scenario = data(&format!("scenarios/{scenario}.toml"));
    let (dataset, truth) = (folder.join("traces"), folder.join("truth.jsonl"));
    let args = [
        "simulate".as_ref(),
        scenario.as_os_str(),
        "--dataset".as_ref(),
        dataset.as_os_str(),
        "--truth".as_ref(),
        truth.as_os_str(),
        "--streams".as_ref(),
        streams.as_ref(),
    ];
    let output = run(&args);
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
}

#[test]
fn a_simulated_onset_is_found_scored_and_stored() {
    let folder = tempfile::tempdir().expect("a folder");
    simulate("onset", "150", folder.path());
    let (dataset, truth) = (folder.path().join("traces"), folder.path().join("truth.jsonl"));
    let args = [
        "backtest".as_ref(),
        dataset.as_os_str(),
        "--truth".as_ref(),
        truth.as_os_str(),
        "-o".as_ref(),
        dataset.as_os_str(),
        "--json".as_ref(),
    ];
    let report = json(&args);
    let burst = &report["scores"].as_array().expect("scores")[1];
    assert_eq!(burst["signature"], "burst");
    assert_eq!((&burst["recall"], &burst["false_alarms"]), (&Value::from(1.0), &Value::from(0)), "{burst}");
    assert!(burst["delay_median"].as_f64().is_some_and(|delay| delay < 30.0), "{burst}");
    for score in report["scores"].as_array().expect("scores").iter().filter(|one| one["false_alarms"] == 0) {
        let (most, hours) = (&score["at_most_per_stream_hour"], &score["healthy_hours"]);
        let product = most.as_f64().expect("a limit") * hours.as_f64().expect("hours");
        assert!((product - 3.0).abs() < 1e-9, "the rule of three: {score}");
    }
    let mut stored = 0;
    let read = Dataset::open(&dataset).expect("a dataset").signals(|one| {
        assert_eq!((one.action, one.acted), (None, None));
        stored += 1;
        ControlFlow::Continue(())
    });
    assert!(read.expect("signals").damaged.is_empty());
    assert_eq!(stored, report["signals"].as_array().expect("signals").len());
}

#[test]
fn a_truth_that_is_none_is_told() {
    let folder = tempfile::tempdir().expect("a folder");
    let truth = folder.path().join("truth.jsonl");
    std::fs::write(&truth, "{\"stream_id\":1}\n").expect("a file");
    let path = data("traces/timing");
    let output = run(&["backtest".as_ref(), path.as_os_str(), "--truth".as_ref(), truth.as_os_str()]);
    let stderr = String::from_utf8_lossy(&output.stderr);
    assert_eq!(output.status.code(), Some(2));
    assert!(stderr.contains("line 1") && stderr.contains("sseismo simulate"), "{stderr}");
}
