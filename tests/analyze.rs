//! `sseismo analyze` on the real data: the verdicts that the published studies support, and no others.

use std::process::Command;

use serde_json::Value;
use sseismo_tests::{data, json, run, sseismo};

fn path(name: &str) -> String {
    data(name).to_str().expect("data paths are UTF-8").to_owned()
}

/// The only finding of `signature` in a report, or the one whose scope holds `dim=value`.
fn finding<'a>(report: &'a Value, signature: &str, wanted: &[(&str, &str)]) -> &'a Value {
    let matching: Vec<&Value> = report["findings"]
        .as_array()
        .expect("findings is a list")
        .iter()
        .filter(|f| {
            f["signature"] == signature && wanted.iter().all(|(dim, value)| f["scope"][dim] == *value)
        })
        .collect();
    assert_eq!(matching.len(), 1, "{signature} {wanted:?} in {report:#}");
    matching[0]
}

#[test]
fn the_candy_batch_stops_at_518n_minus_2_and_its_first_tier_is_always_wrong() {
    let report = json(&[
        "analyze",
        &path("counts/candy-study/gpt-5.5-xhigh.csv"),
        "--labels",
        "correct=adjudicated_correct",
        "--json",
    ]);
    let found = finding(&report, "count-lattice", &[]);
    assert_eq!(found["verdict"], "boundary-stops");
    assert_eq!(found["n"], 200);
    assert_eq!(found["labelled"], 200);
    let evidence = &found["evidence"];
    assert_eq!(evidence["step"], 518);
    assert_eq!(evidence["offset"], 516);
    assert_eq!(evidence["hits"], 194);
    let first = &evidence["tiers"][0];
    assert_eq!((&first["n"], &first["value"]), (&1.into(), &516.into()));
    assert_eq!((&first["hits"], &first["correct"]), (&129.into(), &0.into()));
    // Wilson 95 % of 194/200: published design figures.
    let interval = evidence["share_ci95"].as_array().expect("an interval");
    assert!((interval[0].as_f64().expect("number") - 0.936).abs() < 5e-4);
    assert!((interval[1].as_f64().expect("number") - 0.986).abs() < 5e-4);
}

#[test]
fn a_lattice_found_makes_fail_on_exit_with_1_and_only_then() {
    let candy = path("counts/candy-study/gpt-5.5-xhigh.csv");
    assert_eq!(run(&["analyze", &candy, "--fail-on", "count-lattice"]).status.code(), Some(1));
    assert_eq!(run(&["analyze", &candy]).status.code(), Some(0));
    let spark = path("counts/candy-study/gpt-5.3-codex-spark-xhigh.csv");
    assert_eq!(run(&["analyze", &spark, "--fail-on", "count-lattice"]).status.code(), Some(0));
}

#[test]
fn the_spark_batch_has_no_lattice_although_every_answer_is_wrong() {
    let report = json(&[
        "analyze",
        &path("counts/candy-study/gpt-5.3-codex-spark-xhigh.csv"),
        "--labels",
        "correct=strict_correct",
        "--json",
    ]);
    assert_eq!(finding(&report, "count-lattice", &[])["verdict"], "none");
}

#[test]
fn o_series_models_report_in_units_of_64_and_nobody_else_is_accused() {
    let report = json(&["analyze", &path("counts/lrm-token-economy"), "--by", "model", "--json"]);
    let findings = report["findings"].as_array().expect("findings");
    let mut quantised = Vec::new();
    for found in findings.iter().filter(|f| f["signature"] == "count-lattice") {
        let model = found["scope"]["model"].as_str().expect("scoped by model");
        match found["verdict"].as_str().expect("a verdict") {
            "reporting-quantised" => {
                assert_eq!(found["evidence"]["step"], 64, "{model}");
                assert_eq!(found["evidence"]["offset"], 64, "{model}");
                quantised.push(model);
            }
            "none" | "too-few" => {
                let detectable = &found["evidence"]["detectable"];
                assert!(detectable.get("mass").is_some(), "{model}: {found:#}");
            }
            other => panic!("{model}: {other}"),
        }
    }
    quantised.sort_unstable();
    assert_eq!(quantised, ["o1-mini", "o4-mini-high-long"]);
}

#[test]
fn models_pooled_into_one_scope_accuse_nobody() {
    let report = json(&["analyze", &path("counts/lrm-token-economy"), "--by", "source", "--json"]);
    assert_eq!(finding(&report, "count-lattice", &[])["verdict"], "lattice-unclassified");
}

#[test]
fn rollouts_are_read_with_every_trap_counted() {
    let report = json(&["analyze", &path("rollouts"), "--json"]);
    let inputs = report["inputs"].as_array().expect("inputs");
    let invented = inputs
        .iter()
        .find(|input| input["path"].as_str().is_some_and(|p| p.ends_with("rollout-invented.jsonl")))
        .expect("the invented rollout is listed");
    assert_eq!(invented["format"], "codex-rollout");
    assert_eq!(invented["streams"], 3);
    let skipped = serde_json::json!({"repeated-snapshot": 1, "null-info": 1, "torn-line": 1});
    assert_eq!(invented["skipped"], skipped);
    let values = |model: &str, effort: &str| {
        let found = finding(&report, "count-lattice", &[("model", model), ("effort", effort)]);
        assert_eq!(found["verdict"], "too-few");
        let top = found["evidence"]["top_values"].as_array().expect("a list").clone();
        top.into_iter().map(|top| (top["value"].as_u64(), top["count"].as_u64())).collect::<Vec<_>>()
    };
    assert_eq!(values("gpt-5.5", "xhigh"), [(Some(516), Some(2))]);
    assert_eq!(values("gpt-5.4", "high"), [(Some(700), Some(1))]);
}

#[test]
fn codex_home_is_read_when_no_path_is_given() {
    let home = tempfile::tempdir().expect("a temporary folder");
    let day = home.path().join("sessions/2026/07/01");
    std::fs::create_dir_all(&day).expect("folders");
    std::fs::copy(data("rollouts/rollout-invented.jsonl"), day.join("rollout-a.jsonl")).expect("copied");
    let output = sseismo().args(["analyze", "--json"]).env("CODEX_HOME", home.path()).output().expect("runs");
    let report: Value = serde_json::from_slice(&output.stdout).expect("a report");
    assert_eq!(report["inputs"][0]["streams"], 3);
    // Without CODEX_HOME and without ~/.codex there is nothing to read, and it says what to do.
    let output = run(&["analyze"]);
    assert_eq!(output.status.code(), Some(2));
    assert!(String::from_utf8_lossy(&output.stderr).contains("name a file or folder"));
}

#[test]
fn the_report_satisfies_its_own_json_schema() {
    let schema = json(&["analyze", "--json-schema"]);
    let validator = jsonschema::validator_for(&schema).expect("the schema is a schema");
    for name in ["counts", "rollouts", "timing"] {
        let report = json(&["analyze", &path(name), "--json"]);
        let errors: Vec<String> =
            validator.iter_errors(&report).map(|e| format!("{e} at {}", e.instance_path())).collect();
        assert!(errors.is_empty(), "{name}: {errors:?}");
    }
}

#[test]
fn standard_input_is_read_like_a_file() {
    let file = std::fs::File::open(data("counts/candy-study/gpt-5.5-xhigh.csv")).expect("opens");
    let output = sseismo().args(["analyze", "-", "--json"]).stdin(file).output().expect("runs");
    let report: Value = serde_json::from_slice(&output.stdout).expect("a report");
    assert_eq!(finding(&report, "count-lattice", &[])["evidence"]["hits"], 194);
}

#[test]
fn a_reader_that_leaves_early_is_no_error() {
    let binary = sseismo();
    let script = format!(
        "{} analyze {} --json | head -c 10 >/dev/null; echo ${{PIPESTATUS[0]}}",
        binary.get_program().to_str().expect("UTF-8"),
        path("counts")
    );
    let output = Command::new("bash").args(["-c", &script]).output().expect("bash runs");
    assert_eq!(String::from_utf8_lossy(&output.stdout).trim(), "0");
}
