//! `sseismo compare` on the candy study: the published figures, to 6 digits.

use serde_json::Value;
use sseismo_tests::{data, json, run};

fn candy() -> String {
    data("counts/candy-study/gpt-5.5-xhigh.csv").to_str().expect("UTF-8").to_owned()
}

fn split_by_arm() -> Value {
    json(&["compare", &candy(), "--split", "arm", "--labels", "correct=adjudicated_correct", "--json"])
}

/// Whether `actual` shows `expected` to 6 significant digits.
fn shows(actual: &Value, expected: f64) {
    let actual = actual.as_f64().expect("a number");
    assert!((actual / expected - 1.0).abs() < 5e-6, "{actual} is not {expected}");
}

fn fisher(share: &Value) -> &Value {
    let tests = share["tests"].as_array().expect("tests");
    let test = tests.iter().find(|test| test["name"].as_str().is_some_and(|name| name.contains("fisher")));
    &test.expect("Fisher's test is among them")["p"]
}

/// The share whose name contains `name`.
fn share<'a>(shares: &'a Value, name: &str) -> &'a Value {
    let shares = shares.as_array().expect("a list");
    shares
        .iter()
        .find(|s| s["name"].as_str().is_some_and(|n| n.contains(name)))
        .unwrap_or_else(|| panic!("{name} in {shares:#?}"))
}

#[test]
fn the_published_figures_of_the_candy_study() {
    let report = split_by_arm();
    let correct = share(&report["proportions"], "correct");
    assert_eq!((correct["first"]["hits"].as_u64(), correct["second"]["hits"].as_u64()), (Some(34), Some(31)));
    shows(fisher(correct), 0.762_839);
    let interval = correct["first"]["ci95"].as_array().expect("Wilson");
    assert!((interval[0].as_f64().expect("number") - 0.255).abs() < 5e-4);
    assert!((interval[1].as_f64().expect("number") - 0.437).abs() < 5e-4);
    let at_516 = share(&report["proportions"], "516");
    assert_eq!((at_516["first"]["hits"].as_u64(), at_516["second"]["hits"].as_u64()), (Some(65), Some(64)));
    shows(fisher(at_516), 1.0);
    let lattice = share(&report["proportions"], "518n-2");
    assert_eq!((lattice["first"]["hits"].as_u64(), lattice["second"]["hits"].as_u64()), (Some(98), Some(96)));
    shows(fisher(lattice), 0.682_717);
}

#[test]
fn the_exact_p_of_0_in_129_against_65_in_71() {
    let report = split_by_arm();
    let at_516 = share(&report["associations"], "correct");
    assert_eq!((at_516["first"]["hits"].as_u64(), at_516["first"]["n"].as_u64()), (Some(0), Some(129)));
    assert_eq!((at_516["second"]["hits"].as_u64(), at_516["second"]["n"].as_u64()), (Some(65), Some(71)));
    shows(fisher(at_516), 4.029_68e-46);
}

#[test]
fn what_cannot_be_compared_is_said() {
    let output = run(&["compare", &candy()]);
    assert_eq!(output.status.code(), Some(2));
    assert!(String::from_utf8_lossy(&output.stderr).contains("--split"));
    let output = run(&["compare", &candy(), "--split", "no_such_column"]);
    assert_eq!(output.status.code(), Some(2));
    assert!(String::from_utf8_lossy(&output.stderr).contains("no_such_column"));
}
