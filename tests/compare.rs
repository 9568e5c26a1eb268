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

/// The line of `lines` whose name is or begins with `name`.
fn line<'a>(lines: &'a Value, name: &str) -> &'a Value {
    let lines = lines.as_array().expect("a list");
    lines
        .iter()
        .find(|line| line["name"].as_str().is_some_and(|own| own.starts_with(name)))
        .unwrap_or_else(|| panic!("{name} in {lines:#?}"))
}

/// Two parts of Azure's trace, some minutes each: requests per hour are the lines over the time between its first
/// and last stamp.
#[test]
fn requests_per_hour_of_a_real_trace() {
    let text = std::fs::read_to_string(data("workload/azure-2023-conv.csv")).expect("the trace");
    let (header, rows) = text.split_once('\n').expect("a header");
    let rows: Vec<&str> = rows.lines().take(3_000).collect();
    let folder = tempfile::tempdir().expect("a folder");
    let halves = [&rows[..rows.len() / 2], &rows[rows.len() / 2..]];
    let paths = [0, 1].map(|half: usize| {
        let path = folder.path().join(format!("half-{half}.csv"));
        std::fs::write(&path, format!("{header}\n{}\n", halves[half].join("\n"))).expect("a file");
        path.to_str().expect("UTF-8").to_owned()
    });
    let report = json(&["compare", &paths[0], &paths[1], "--json"]);
    let rate = line(&report["rates"], "requests per hour");
    // Seconds since the hour 18:00 of the day.
    let seconds = |row: &str| -> f64 {
        let [hour, minute, second] =
            [11..13, 14..16, 17..26].map(|at| row[at].parse::<f64>().expect("a number"));
        (hour - 18.0) * 3_600.0 + minute * 60.0 + second
    };
    for (side, half) in [("first", halves[0]), ("second", halves[1])] {
        let hours = (seconds(half[half.len() - 1]) - seconds(half[0])) / 3_600.0;
        assert_eq!(rate[side]["events"].as_u64(), Some(half.len() as u64));
        let got = rate[side]["hours"].as_f64().expect("hours");
        assert!((got / hours - 1.0).abs() < 1e-4, "{got} is not {hours}");
    }
    assert!(rate["too_few"].as_str().expect("minutes").contains("extrapolation"), "{rate:#}");
    // Both parts ran on one day; where they share an hour there is something to match.
    let matched = json(&["compare", &paths[0], &paths[1], "--json", "--match-hours"]);
    assert_eq!(matched["matched_hours"]["by"], "weekday-and-hour");
    assert!(matched["notes"][1].as_str().expect("a note").contains("on one day only"));
}

/// A recorded Claude stream that stalled against 90 healthy GPT-4o streams.
#[test]
fn cluster_events_of_real_streams() {
    let paths =
        ["timing/whisperleak", "timing/mastra"].map(|path| data(path).to_str().expect("UTF-8").to_owned());
    let report = json(&["compare", &paths[0], &paths[1], "--json"]);
    let rate = line(&report["rates"], "cluster events per stream-hour");
    assert_eq!(rate["first"]["events"].as_u64(), Some(0), "{rate:#}");
    assert!(rate["first"]["hours"].as_f64().expect("hours") > 0.05, "{rate:#}");
    assert!(rate["too_few"].as_str().expect("few events").contains("events on both sides"), "{rate:#}");
}

#[test]
fn the_comparison_satisfies_its_own_json_schema() {
    let schema = json(&["compare", "--json-schema"]);
    let validator = jsonschema::validator_for(&schema).expect("a schema");
    let paths =
        ["timing/whisperleak", "timing/mastra"].map(|path| data(path).to_str().expect("UTF-8").to_owned());
    for report in [split_by_arm(), json(&["compare", &paths[0], &paths[1], "--json"])] {
        let errors: Vec<String> = validator.iter_errors(&report).map(|error| error.to_string()).collect();
        assert!(errors.is_empty(), "{errors:#?}");
    }
}
