//! A dataset says what its source files say: import, then the same verdicts.

use std::collections::BTreeMap;
use std::path::Path;

use serde_json::Value;
use sseismo_tests::{copy, data, json, root, run};

/// Verdict, number of observations and cause, by signature and model.
type Verdicts = BTreeMap<(String, String), (String, u64, Value)>;

/// `analyze --json` of one path. By model alone: files are sources of their own, a dataset is one.
fn analyze(path: &Path) -> (u64, u64, Verdicts) {
    let report = json(&["analyze".as_ref(), "--by=model".as_ref(), "--json".as_ref(), path.as_os_str()]);
    let inputs = report["inputs"].as_array().expect("inputs");
    let sum = |field: &str| inputs.iter().filter_map(|input| input[field].as_u64()).sum();
    let findings = report["findings"].as_array().expect("findings");
    let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
    let verdicts = findings.iter().map(|finding| {
        let key = (text(&finding["signature"]), text(&finding["scope"]["model"]));
        (key, (text(&finding["verdict"]), finding["n"].as_u64().expect("n"), finding["cause"].clone()))
    });
    (sum("streams"), sum("events"), verdicts.collect())
}

fn burst(verdicts: &Verdicts) -> Vec<(&str, &str)> {
    let burst = verdicts.iter().filter(|((signature, _), _)| signature == "burst");
    burst.map(|((_, model), (verdict, ..))| (model.as_str(), verdict.as_str())).collect()
}

#[test]
fn an_imported_dataset_gets_the_verdicts_of_its_files() {
    let folder = tempfile::tempdir().expect("a folder");
    let dataset = folder.path().join("timing");
    let args = ["import".as_ref(), data("timing").as_os_str(), "-o".as_ref(), dataset.as_os_str()]
        .map(std::ffi::OsStr::to_owned);
    let imported = run(&args);
    assert!(imported.status.success(), "{}", String::from_utf8_lossy(&imported.stderr));

    let files = analyze(&data("timing"));
    assert_eq!(analyze(&dataset), files);
    assert!(burst(&files.2).contains(&("GPT4o", "none")), "{:?}", files.2);
}

/// `data/traces/timing` is what its NOTICE says: the import of `data/timing`.
#[test]
fn the_committed_dataset_is_the_import_of_its_sources() {
    let dataset = data("traces/timing");
    assert_eq!(analyze(&dataset), analyze(&data("timing")));
    assert!(!dataset.join("dataset.key").exists(), "the key of the hashes is not published");
    let bytes: u64 = sizes(&dataset).iter().sum();
    assert!(bytes < 1_500_000, "{bytes} bytes in {}", root().join("data/traces/timing").display());
}

/// Its parts say what they held, so that a file which is gone is not taken for streams without events.
#[test]
fn what_is_gone_from_the_committed_dataset_is_noticed() {
    let (dataset, folder) = (data("traces/timing"), tempfile::tempdir().expect("a folder"));
    copy(&dataset.join("streams"), &folder.path().join("streams"));
    std::fs::copy(dataset.join("dataset.json"), folder.path().join("dataset.json")).expect("copied");
    let (whole, torn) = (input(&dataset), input(folder.path()));
    assert_eq!(whole["skipped"], serde_json::json!({}));
    assert_eq!(torn["skipped"]["stream-without-its-events"], whole["streams"]);
    assert!(torn["error"].as_str().expect("an error").contains("is missing: it held"), "{}", torn["error"]);
}

/// What a report says of its only input.
fn input(path: &Path) -> Value {
    json(&["analyze".as_ref(), "--json".as_ref(), path.as_os_str()])["inputs"][0].clone()
}

fn sizes(folder: &Path) -> Vec<u64> {
    let entries = std::fs::read_dir(folder).expect("a folder").map(|entry| entry.expect("an entry"));
    entries
        .flat_map(|entry| match entry.metadata().expect("a size") {
            meta if meta.is_dir() => sizes(&entry.path()),
            meta => vec![meta.len()],
        })
        .collect()
}
