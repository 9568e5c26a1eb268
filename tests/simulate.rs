//! Known truth through the files: a scenario written by `sseismo simulate --dataset` and read back by `sseismo
//! analyze` gets the verdicts and causes that the same streams get in memory, so whatever the table of
//! `truth_table` says of them is said from stored columns alone.

use std::path::{Path, PathBuf};

use serde_json::Value;
use sseismo_analysis::Analysis;
use sseismo_analysis::signature::Options;
use sseismo_simulator::{Scenario, Simulation};
use sseismo_tests::{data, json, run};
use sseismo_trace::{Dim, Finding, Scope};

fn scenario(name: &str) -> PathBuf {
    data(&format!("scenarios/{name}.toml"))
}

/// Writes `streams` streams of a scenario; yields the lines of truth.
fn simulate(name: &str, folder: &Path, streams: usize) -> Vec<Value> {
    let (path, truth) = (scenario(name), folder.join("truth.jsonl"));
    let traces = folder.join("traces");
    let streams = streams.to_string();
    let words: [&dyn AsRef<std::ffi::OsStr>; 8] =
        [&"simulate", &path, &"--dataset", &traces, &"--streams", &streams, &"--truth", &truth];
    let output = run(&words.map(|word| word.as_ref().to_owned()));
    assert!(output.status.success(), "{name}: {}", String::from_utf8_lossy(&output.stderr));
    let lines = std::fs::read_to_string(truth).expect("the truth");
    lines.lines().map(|line| serde_json::from_str(line).expect("a line of truth")).collect()
}

/// The findings that the same streams get without files.
fn in_memory(name: &str, streams: usize) -> Vec<Finding> {
    let scenario = Scenario::load(&scenario(name)).expect("a scenario");
    let all: Vec<_> = Simulation::new(&scenario).take(streams).collect();
    let mut analysis = Analysis::new(vec![Dim::Upstream], Options::default());
    for pass in 0..2 {
        if pass == 1 {
            analysis.start_second_pass();
        }
        for one in &all {
            analysis.push("", &one.stream());
        }
    }
    analysis.finish()
}

/// Every named cause, a word of each signature, and a healthy upstream.
const CASES: [(&str, usize, &str, Option<&str>); 9] = [
    ("steady", 40, "none", None),
    ("summary-parts", 40, "none", Some("phase-border")),
    ("write-up-burst", 40, "present", Some("unknown")),
    ("burst-pings", 40, "present", Some("upstream-batching")),
    ("burst-throttled", 240, "present", Some("rate-limit-cooldown")),
    ("burst-retried", 300, "present", Some("retry-amplification")),
    ("byte-buffer", 20, "present", Some("proxy-buffering")),
    ("cork", 40, "coalesced", Some("tcp-coalescing")),
    ("count-lattice", 120, "none", None),
];

#[test]
fn what_is_read_back_is_judged_as_what_was_simulated() {
    for (name, streams, verdict, cause) in CASES {
        let folder = tempfile::tempdir().expect("a folder");
        let truth = simulate(name, folder.path(), streams);
        assert_eq!(truth.len(), streams, "{name}");
        let traces = folder.path().join("traces");
        let report = json(&["analyze", traces.to_str().expect("UTF-8"), "--by", "upstream", "--json"]);
        assert_eq!(report["inputs"][0]["streams"].as_u64(), Some(streams as u64), "{name}");
        let read: Vec<Finding> = serde_json::from_value(report["findings"].clone()).expect("findings");
        let made = in_memory(name, streams);
        assert_eq!(read.len(), made.len(), "{name}");
        for (read, made) in read.iter().zip(&made) {
            assert_eq!(read.scope, Scope::default().with(Dim::Upstream, "simulated.invalid"));
            let said = |finding: &Finding| (finding.signature, finding.verdict, finding.n, finding.cause);
            assert_eq!(said(read), said(made), "{name}");
        }
        let burst = read.iter().find(|finding| finding.signature.name() == "burst").expect("burst");
        assert_eq!(
            (burst.verdict.name(), burst.cause.map(sseismo_trace::Cause::name)),
            (verdict, cause),
            "{name}: {burst:#?}"
        );
    }
}

/// Two simulated upstreams, as `sseismo compare --help` shows them.
#[test]
fn the_comparison_of_the_help_page_finds_the_burst() {
    let folder = tempfile::tempdir().expect("a folder");
    let sides = ["steady", "write-up-burst"].map(|name| {
        let own = folder.path().join(name);
        std::fs::create_dir(&own).expect("a folder");
        simulate(name, &own, 40);
        own.join("traces").to_str().expect("UTF-8").to_owned()
    });
    let report = json(&["compare", &sides[0], &sides[1], "--json"]);
    let rates = report["rates"].as_array().expect("rates");
    let rate = rates.iter().find(|rate| rate["name"] == "cluster events per stream-hour").expect("the rate");
    assert_eq!(rate["first"]["events"].as_u64(), Some(0), "{rate:#}");
    assert!(rate["second"]["events"].as_u64().expect("events") > 40, "{rate:#}");
    assert!(rate["ratio_ci95"][0].as_f64().expect("a limit") > 1.0 && rate["ratio_ci95"][1].is_null());
}

#[test]
fn what_cannot_be_simulated_is_said() {
    let folder = tempfile::tempdir().expect("a folder");
    let bad = folder.path().join("bad.toml");
    std::fs::write(&bad, "[[behaviour]]\nkind = 'corck'\n").expect("a file");
    let traces = folder.path().join("traces");
    let output =
        run(&["simulate", bad.to_str().expect("UTF-8"), "--dataset", traces.to_str().expect("UTF-8")]);
    let told = String::from_utf8_lossy(&output.stderr);
    assert_eq!(output.status.code(), Some(2), "{told}");
    assert!(told.contains("line 2") && told.contains("kind"), "{told}");
    assert!(!traces.exists(), "nothing is written before the scenario is understood");
}

/// What each signature rests on is told to people in words and units, not as the JSON of its evidence.
#[test]
fn people_are_told_in_words_what_a_verdict_rests_on() {
    let cases = [
        ("write-up-burst", 40, "late and large"),
        ("cork", 40, "an even grid: a group every 200 ms"),
        ("shard-pinning", 400, "time to first token p50"),
        ("concurrency-cooldown", 1_500, "deep calls are crowded (more than 6 of them start within 3 s)"),
        ("saturation", 1_500, "times as often as the others together"),
        ("retry-storm", 120, "turns were tried again"),
    ];
    for (name, streams, words) in cases {
        let folder = tempfile::tempdir().expect("a folder");
        simulate(name, folder.path(), streams);
        let output = run(&["analyze".as_ref(), folder.path().join("traces").as_os_str()]);
        let text = String::from_utf8(output.stdout).expect("text");
        assert!(text.contains(words), "{name}: no {words:?} in\n{text}");
        assert!(!text.contains("{\""), "{name}: raw evidence in\n{text}");
    }
}
