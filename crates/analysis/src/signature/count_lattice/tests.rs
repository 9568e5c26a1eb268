//! The lattice on golden values, on all real batches, and on simulated counts with known truth.

use sseismo_simulator::counts::{Background as Shape, Lattice as Planted, counts};
use sseismo_trace::{Dim, Finding, Summary, Usage, Verdict};

use super::*;
use crate::Analysis;
use crate::stats::golden::{assert_close, cases, number};

const PLANTED: Planted = Planted { step: 518, offset: 516, mass: 0.2, stop: 0.4 };

fn histogram(values: impl IntoIterator<Item = u32>) -> BTreeMap<u32, u64> {
    let mut histogram = BTreeMap::new();
    for value in values {
        *histogram.entry(value).or_default() += 1;
    }
    histogram
}

fn row(reasoning: f64, model: Option<&str>) -> Summary {
    let usage = Usage { reasoning: Some(reasoning), ..Usage::default() };
    Summary { usage, model_served: model.map(str::to_owned), ..Summary::default() }
}

fn findings(by: Vec<Dim>, rows: &[Summary]) -> Vec<Finding> {
    let mut analysis = Analysis::new(by, Options::default());
    for summary in rows {
        analysis.push("test", &Stream { summary, deltas: &[], reads: &[] });
    }
    let all = analysis.finish();
    all.into_iter().filter(|f| f.signature == SignatureId::CountLattice).collect()
}

/// The verdict on counts of one model.
fn judge(values: impl IntoIterator<Item = u32>) -> Finding {
    let rows: Vec<Summary> = values.into_iter().map(|v| row(f64::from(v), Some("m"))).collect();
    findings(vec![Dim::Model], &rows).remove(0)
}

fn evidence(finding: &Finding) -> Evidence {
    serde_json::from_value(finding.evidence.clone()).expect("evidence as its schema says")
}

/// Rows of a file in `data/counts`: model, count and label from the named columns.
fn csv_rows(path: &str, model: Result<&str, &str>, count: &str, label: Option<&str>) -> Vec<Summary> {
    let path = format!("{}/../../data/counts/{path}", env!("CARGO_MANIFEST_DIR"));
    let mut reader = csv::Reader::from_path(path).expect("a table");
    let headers = reader.headers().expect("headers").clone();
    let column = |name: &str| headers.iter().position(|h| h == name).expect("column");
    let (count, label) = (column(count), label.map(column));
    let model_column = model.err().map(column);
    let mut rows = Vec::new();
    for record in reader.records() {
        let record = record.expect("a record");
        let Ok(reasoning) = record[count].parse() else { continue };
        let model = model_column.map_or_else(|| model.unwrap_or_default(), |column| &record[column]);
        let mut row = row(reasoning, Some(model));
        if let Some(label) = label {
            row.labels.insert("correct".into(), record[label].to_ascii_lowercase());
        }
        rows.push(row);
    }
    rows
}

fn gpt_5_5() -> Vec<Summary> {
    csv_rows(
        "candy-study/gpt-5.5-xhigh.csv",
        Ok("gpt-5.5"),
        "reasoning_output_tokens",
        Some("adjudicated_correct"),
    )
}

/// The grid of the background is the reference's, so the ratio agrees to 1e-6.
#[test]
fn scan_equals_the_reference() {
    for case in cases("lattice_scan") {
        let values = case["input"]["counts"].as_array().expect("counts");
        let values = values.iter().filter_map(|v| u32::try_from(v.as_u64()?).ok());
        let counts = ascending(&histogram(values));
        let background = Background::of(&counts);
        let scan = Scan::new(&counts, &background);
        let want = &case["expected"];
        let Some(strongest) = scan.strongest() else {
            assert_close(number(&want["rob_LLR"]), 0.0, 0.0, "the reference found nothing either");
            continue;
        };
        let fit = scan.fit(strongest);
        assert_close(fit.llr, number(&want["rob_LLR"]), 1e-6, &format!("{}", case["name"]));
        assert_eq!(u64::from(strongest.step), want["rob_a"].as_u64().expect("a step"));
        assert_eq!(u64::from(strongest.offset), want["rob_b"].as_u64().expect("an offset"));
        let field = scan.fit(FIELD);
        assert_eq!(field.hits, want["hits_518n_minus_2"].as_u64().expect("hits"));
    }
}

#[test]
fn hypotheses_and_threshold() {
    assert_close(hypotheses_as_printed(), 604_770.0, 0.0, "pairs");
    assert_close(scan::threshold(), 17.918, 1e-4, "threshold");
}

fn hypotheses_as_printed() -> f64 {
    scan::hypotheses()
}

/// 194 of 200 on 518n−2; the 129 answers that stopped at 516 are all wrong; the rules' precision,
/// recall and discarded correct answers are those measured by hand on this file.
#[test]
fn gpt_5_5_stops_at_boundaries() {
    let finding = findings(vec![Dim::Model], &gpt_5_5()).remove(0);
    assert_eq!((finding.verdict, finding.n, finding.labelled), (Verdict::BoundaryStops, 200, 200));
    let e = evidence(&finding);
    assert_eq!((e.step, e.offset, e.hits), (Some(518), Some(516), 194));
    assert_eq!(e.tiers[0], Tier { n: 1, value: 516, hits: 129, correct: 0, labelled: 129 });
    assert!((e.llr - 346.4).abs() < 0.5, "llr {}", e.llr);
    assert!(finding.next_step.contains("suspect"), "labels show harm: {}", finding.next_step);
    let card: Vec<_> = e
        .scorecard
        .iter()
        .map(|r| {
            let percent = |share: Option<f64>| format!("{:.3}", share.expect("a share"));
            (r.rule.as_str(), percent(r.precision), percent(r.recall), r.correct_discarded)
        })
        .collect();
    let expect = |precision: &str, recall: &str| (precision.to_owned(), recall.to_owned());
    for (row, (rule, (precision, recall), discarded)) in card.iter().zip([
        ("reasoning == 516", expect("1.000", "0.956"), 0),
        ("reasoning in {516, 1034, 1552}", expect("1.000", "1.000"), 0),
        ("518n-2, n <= 6", expect("0.912", "1.000"), 13),
        ("518n-2, any n", expect("0.696", "1.000"), 59),
    ]) {
        assert_eq!(row, &(rule, precision, recall, discarded));
    }
    let plain = e.scorecard.last().expect("the threshold");
    assert!(plain.rule.starts_with("reasoning < "), "{}", plain.rule);
    assert!(plain.precision.expect("a share") > 0.97 && plain.recall.expect("a share") > 0.97, "{plain:?}");
}

/// Without a model the same lattice accuses nobody.
#[test]
fn an_unknown_model_is_not_accused() {
    let rows: Vec<Summary> = gpt_5_5().into_iter().map(|r| Summary { model_served: None, ..r }).collect();
    assert_eq!(findings(vec![Dim::Model], &rows)[0].verdict, Verdict::LatticeUnclassified);
}

/// No lattice, and still every answer wrong: the detectable mass says how small a lattice could hide.
#[test]
fn spark_has_none() {
    let rows = csv_rows(
        "candy-study/gpt-5.3-codex-spark-xhigh.csv",
        Ok("gpt-5.3-codex-spark"),
        "reasoning_output_tokens",
        Some("strict_correct"),
    );
    let finding = findings(vec![Dim::Model], &rows).remove(0);
    assert_eq!((finding.verdict, finding.n), (Verdict::None, 200));
    let mass = evidence(&finding).detectable.expect("printed for none").mass.expect("detectable");
    assert!((0.04..0.15).contains(&mass), "{mass}");
}

#[test]
fn reporting_units_of_the_o_series() {
    let rows =
        csv_rows("lrm-token-economy/evaluation_stats.csv", Err("model_name"), "tokens_reasoning", None);
    for finding in findings(vec![Dim::Model], &rows) {
        let model = finding.scope.model.clone().unwrap_or_default();
        let e = evidence(&finding);
        match model.as_str() {
            "o1-mini" | "o4-mini-high-long" => {
                assert_eq!(finding.verdict, Verdict::ReportingQuantised, "{model}");
                assert_eq!((e.step, e.offset, e.hits), (Some(64), Some(64), finding.n), "{model}");
            }
            _ => {
                assert!(
                    matches!(finding.verdict, Verdict::None | Verdict::TooFew),
                    "{model}: {:?}",
                    finding.verdict
                );
                assert!(e.detectable.is_some(), "{model}");
            }
        }
        if model.starts_with("claude-4-sonnet") {
            assert!(finding.notes.iter().any(|n| n.contains("estimated counts")), "{:?}", finding.notes);
        }
    }
    let pooled = findings(vec![Dim::Source], &rows).remove(0);
    assert_eq!(pooled.verdict, Verdict::LatticeUnclassified, "models pooled: nobody is accused");
}

#[test]
fn nothing_few_and_folded() {
    let none = findings(vec![Dim::Model], &[Summary::default()]).remove(0);
    assert_eq!(none.verdict, Verdict::NotMeasurable);
    assert!(none.does_not_prove.contains("usage_"));
    let few = judge([516; 29]);
    assert_eq!((few.verdict, &few.significance), (Verdict::TooFew, &None));
    assert!(evidence(&few).detectable.is_some());
    let zero = judge([0; 50]);
    assert_eq!(
        (zero.verdict, zero.n, evidence(&zero).detectable.and_then(|d| d.mass)),
        (Verdict::TooFew, 0, None)
    );
    let folded: Vec<Summary> = (0..40).map(|_| Summary { folded: true, ..row(516.0, Some("m")) }).collect();
    assert_eq!(findings(vec![Dim::Model], &folded)[0].verdict, Verdict::NotMeasurable);
    let odd = [f64::NAN, -1.0, 1e12, f64::INFINITY].map(|v| row(v, Some("m")));
    let odd = findings(vec![Dim::Model], &odd).remove(0);
    assert!(odd.notes[0].starts_with("4 counts"), "{:?}", odd.notes);
}

/// One popular value is no lattice, however popular.
#[test]
fn one_value_is_no_lattice() {
    assert_eq!(judge([516; 200]).verdict, Verdict::None);
    let spiked = counts(5, 300, Shape::LogNormal, None).into_iter().chain([777; 100]);
    assert_eq!(judge(spiked).verdict, Verdict::None);
}

/// Any two popular values share a step. Rows that stand in a table many times, or tasks that are
/// always answered alike, make popular values at random places: no lattice.
#[test]
fn popular_values_at_random_places_are_no_lattice() {
    let spread = counts(5, 100, Shape::LogNormal, None);
    let two = judge(spread.iter().copied().chain([516; 60]).chain([700; 40]));
    assert_eq!(two.verdict, Verdict::None, "{:?}", two.evidence);
    assert!(two.notes.iter().any(|n| n.contains("share a step of 184")), "{:?}", two.notes);
    for (seed, tasks, times) in [(1, 3, 20), (2, 5, 12), (3, 8, 40), (4, 20, 10), (5, 100, 3)] {
        let answers = counts(seed, tasks, Shape::LogNormal, None);
        let rows = answers.into_iter().flat_map(|value| std::iter::repeat_n(value, times));
        let found = judge(rows);
        assert!(
            matches!(found.verdict, Verdict::None | Verdict::Capped),
            "{tasks} tasks: {:?}",
            found.evidence
        );
    }
}

/// Two values are enough for a lattice that was known before.
#[test]
fn two_tiers_of_the_field_s_lattice_are_one() {
    let spread = counts(5, 100, Shape::LogNormal, None);
    assert_eq!(judge(spread.into_iter().chain([516; 60]).chain([1_034; 40])).verdict, Verdict::BoundaryStops);
}

#[test]
fn innocent_twins_have_their_own_words() {
    let heaped = judge(counts(1, 2_000, Shape::Heaped { unit: 100, share: 0.3 }, None));
    assert_eq!((heaped.verdict, evidence(&heaped).step), (Verdict::Heaping, Some(100)));
    let capped = judge(counts(2, 1_000, Shape::Capped { at: 1_500 }, None));
    assert_eq!(capped.verdict, Verdict::Capped);
    let two_limits = counts(3, 400, Shape::Capped { at: 1_300 }, None).into_iter().chain(counts(
        4,
        400,
        Shape::Capped { at: 4_096 },
        None,
    ));
    let two_limits = judge(two_limits);
    assert_eq!(two_limits.verdict, Verdict::Capped, "{:?}", two_limits.evidence);
}

/// A unit under the scanned steps is named, and is not mistaken for stops at 64n−32.
#[test]
fn a_small_reporting_unit_is_found() {
    let unit = |value: u32| value.next_multiple_of(32);
    let finding = judge(counts(6, 400, Shape::LogNormal, None).into_iter().map(unit));
    assert_eq!((finding.verdict, evidence(&finding).step), (Verdict::ReportingQuantised, Some(32)));
}

/// With every count on the lattice and few of them, a unit with an offset cannot be excluded.
#[test]
fn all_on_the_lattice_is_said() {
    let all = Planted { mass: 1.0, ..PLANTED };
    let finding = judge(counts(9, 300, Shape::LogNormal, Some(all)));
    assert_eq!(finding.verdict, Verdict::BoundaryStops);
    assert!(finding.notes.iter().any(|n| n.contains("a reporting unit is not excluded")));
}

/// Steps and offsets nobody told it about, harmonics included.
#[test]
fn finds_planted_lattices() {
    for (seed, step, offset) in [(1, 518, 516), (2, 259, 120), (3, 777, 700), (4, 1_036, 100), (5, 96, 17)] {
        let planted = Planted { step, offset, mass: 0.3, stop: 0.25 };
        let found = find(&histogram(counts(seed, 600, Shape::LogNormal, Some(planted))));
        assert_eq!(found, Some(Lattice { step, offset }), "seed {seed}");
    }
}

/// A lattice of the printed mass is found in 65–95 % of simulated batches (80 % is promised; 60 runs
/// have a standard error of 5 %).
#[test]
fn detectable_mass_keeps_its_promise() {
    for n in [200, 1_000] {
        let honest = judge(counts(77, n, Shape::LogNormal, None));
        let mass = evidence(&honest).detectable.and_then(|d| d.mass).expect("detectable");
        let found = (0..60_u64)
            .filter(|&seed| {
                let drawn = counts(1_000 + seed, n, Shape::LogNormal, Some(Planted { mass, ..PLANTED }));
                find(&histogram(drawn)) == Some(FIELD)
            })
            .count();
        assert!((39..=57).contains(&found), "n = {n}, mass {mass:.3}: {found} of 60");
    }
}
