//! The published figures, and what clustering changes.

use sseismo_trace::{Delta, Kind, Micros, Phase, Summary, Usage};

use super::*;
use crate::stats::golden::assert_close;

fn push(comparison: &mut Comparison, group: &str, summary: &Summary) {
    comparison.push(group, &Stream { summary, deltas: &[], reads: &[] });
}

/// The candy study's 200 runs by arm.
fn gpt_5_5() -> Comparison {
    let path = format!("{}/../../data/counts/candy-study/gpt-5.5-xhigh.csv", env!("CARGO_MANIFEST_DIR"));
    let mut reader = csv::Reader::from_path(path).expect("a table");
    let headers = reader.headers().expect("headers").clone();
    let mut comparison = Comparison::default();
    let mut records: Vec<csv::StringRecord> = reader.records().map(|r| r.expect("a record")).collect();
    let column = |name: &str| headers.iter().position(|h| h == name).expect("column");
    // Control first: the published order.
    records.sort_by_key(|r| r[column("arm")].to_owned());
    for record in &records {
        let number = |name: &str| record[column(name)].parse::<f64>().expect("a number");
        #[expect(clippy::cast_possible_truncation, reason = "milliseconds from a file")]
        let span = |name: &str| Some(Micros((number(name) * 1_000.0) as i64));
        let mut summary = Summary {
            usage: Usage { reasoning: Some(number("reasoning_output_tokens")), ..Usage::default() },
            t_end: span("wall_ms"),
            t_first_output: span("ttft_ms"),
            ..Summary::default()
        };
        summary.labels.insert("correct".into(), record[column("adjudicated_correct")].to_owned());
        push(&mut comparison, &record[column("arm")], &summary);
    }
    comparison
}

fn named<'a>(all: &'a [Proportion], name: &str, first: &str) -> &'a Proportion {
    all.iter().find(|p| p.name == name && p.between[0] == first).expect("a line of the report")
}

fn assert_published(line: &Proportion, [k1, n1, k2, n2]: [u64; 4], p: f64) {
    assert_eq!(
        [line.first.hits, line.first.n, line.second.hits, line.second.n],
        [k1, n1, k2, n2],
        "{}",
        line.name
    );
    assert_eq!(line.tests[0].name, "fisher-exact");
    assert_close(line.tests[0].p, p, 2e-6, &line.name);
}

/// `data/SOURCES.md`, to 6 digits.
#[test]
fn published_figures() {
    let comparison = gpt_5_5();
    assert_eq!(comparison.groups(), ["control", "treatment"]);
    let report = comparison.finish("control", "treatment").expect("a comparison");
    assert_eq!((report.unit, report.groups[0].rows, report.groups[1].units), (Unit::Row, 100, 100));
    assert_eq!(report.lattice, LatticeUsed { step: 518, offset: 516, found: true });
    let line = |name: &str| named(&report.proportions, name, "control");
    assert_published(line("correct"), [34, 100, 31, 100], 0.762_839);
    assert_published(line("reasoning tokens == 516"), [65, 100, 64, 100], 1.0);
    assert_published(line("reasoning tokens on 518n-2"), [98, 100, 96, 100], 0.682_717);
    let by_tier = named(&report.associations, "correct", "reasoning tokens 516");
    assert_published(by_tier, [0, 129, 65, 71], 4.02968e-46);
    let [low, high] = line("correct").first.ci95;
    assert_eq!(format!("{:.1}-{:.1}", low * 100.0, high * 100.0), "25.5-43.7");
    assert!(report.proportions.iter().all(|p| p.tests[0].q >= Some(p.tests[0].p)));
}

#[test]
fn times_have_intervals_and_p99_is_refused() {
    let report = gpt_5_5().finish("control", "treatment").expect("a comparison");
    let wall = report.quantities.iter().find(|q| q.name == "t_end").expect("wall time");
    assert_eq!((wall.unit.as_str(), wall.first.n, wall.second.n), ("ms", 100, 100));
    let [median, _, p99] = &wall.quantile_ratios[..] else { panic!("three quantiles") };
    let ([low, high], ratio) = (median.ci95.expect("an interval"), median.ratio.expect("a ratio"));
    assert!(low <= ratio && ratio <= high && high / low < 3.0, "{low} {ratio} {high}");
    assert_eq!((p99.ratio, p99.first), (None, None));
    assert_eq!(p99.refused.as_deref(), Some("p99 needs 1000 values on each side, there are 100"));
}

/// 40 sessions of 25 equal rows: as rows the difference would be certain, as sessions it is not.
#[test]
fn sessions_are_the_unit_where_they_are_known() {
    let build = |with_ids: bool| {
        let mut comparison = Comparison::default();
        for session in 0..40_u64 {
            let group = if session < 20 { "before" } else { "after" };
            let correct = if group == "before" { session % 20 < 12 } else { session % 20 < 8 };
            let mut summary = Summary { session_key: with_ids.then_some(session), ..Summary::default() };
            summary.labels.insert("correct".into(), correct.to_string());
            for _ in 0..25 {
                push(&mut comparison, group, &summary);
            }
        }
        comparison.finish("before", "after").expect("a comparison")
    };
    let (rows, sessions) = (build(false), build(true));
    assert_eq!((rows.unit, sessions.unit, sessions.groups[0].units), (Unit::Row, Unit::Session, 20));
    let p = |report: &CompareReport| report.proportions[0].tests[0].p;
    assert!(p(&rows) < 1e-9 && p(&sessions) > 0.1, "{} {}", p(&rows), p(&sessions));
    assert_eq!(sessions.proportions[0].tests.len(), 1, "no row-level test beside it");
    let [low, high] = sessions.proportions[0].difference_ci95.expect("an interval");
    assert!(low < 0.0 && high > 0.0);
}

#[test]
fn first_parse_counts_first_attempts_only() {
    let mut comparison = Comparison::default();
    for (attempt, check) in [(1, ContentCheck::InvalidJson), (2, ContentCheck::Ok), (1, ContentCheck::Ok)] {
        let summary = Summary { attempt: Some(attempt), content_check: check, ..Summary::default() };
        push(&mut comparison, "a", &summary);
        push(&mut comparison, "b", &summary);
    }
    let report = comparison.finish("a", "b").expect("a comparison");
    let line = named(&report.proportions, "valid at first parse", "a");
    assert_eq!((line.first.hits, line.first.n), (1, 2));
}

#[test]
fn empty_one_and_unknown() {
    let mut comparison = Comparison::default();
    let error = comparison.finish("a", "b").expect_err("no groups");
    assert_eq!(error.to_string(), "no group `a`: there are ");
    push(&mut comparison, "a", &Summary::default());
    push(&mut comparison, "b", &Summary::default());
    assert_eq!(comparison.finish("a", "a"), Err(Error::Same("a".into())));
    let report = comparison.finish("a", "b").expect("a comparison");
    assert!(report.proportions.is_empty() && report.quantities.is_empty());
    assert!(report.notes[0].contains("no count lattice"));
}

#[test]
fn the_report_survives_json() {
    let report = gpt_5_5().finish("control", "treatment").expect("a comparison");
    let text = serde_json::to_string(&report).expect("JSON");
    let back: CompareReport = serde_json::from_str(&text).expect("the same type");
    assert_eq!(back.proportions.len(), report.proportions.len());
    assert_eq!(back.groups, report.groups);
}

/// Streams of 60 events each `gap` ms, the first at `first`; `cork` collects for that long. Streams differ
/// by a millisecond or so, as real ones do.
fn stream(comparison: &mut Comparison, group: &str, number: i64, [first, gap, cork]: [i64; 3]) {
    let made = |event: i64| first * 1_000 + event * gap * 1_000 + number * 700 + event % 7 * number * 100;
    let arrived = |event: i64| match cork * 1_000 {
        0 => made(event),
        cork => made(event).div_euclid(cork) * cork + cork + number * 300,
    };
    let deltas: Vec<Delta> =
        (0..60).map(|event| Delta::new(0, Kind::Text, Phase::Output, Some(Micros(arrived(event))))).collect();
    let summary = Summary { t_first_output: deltas[0].t, ..Summary::default() };
    comparison.push(group, &Stream { summary: &summary, deltas: &deltas, reads: &[] });
}

fn hop(first: [i64; 3], second: [i64; 3]) -> Option<Hop> {
    let mut comparison = Comparison::default();
    for number in 0..6 {
        stream(&mut comparison, "a", number, first);
        stream(&mut comparison, "b", number, second);
    }
    comparison.finish("a", "b").expect("a comparison").hop
}

#[test]
fn the_hop_that_collects_events_is_named_in_both_directions() {
    let (direct, corked) = ([50, 15, 0], [50, 15, 200]);
    let forth = hop(direct, corked).expect("a hop");
    assert_eq!(forth.group, "b");
    assert!(forth.finding.contains("TTFT +1") && forth.finding.contains("latency -1"), "{}", forth.finding);
    let back = hop(corked, direct).expect("a hop");
    assert_eq!(back.group, "a");
    let figures = |hop: &Hop| hop.finding.split_once(": ").expect("figures").1.to_owned();
    assert_eq!(figures(&forth), figures(&back));
}

#[test]
fn slower_faster_and_equal_routes_are_no_hops() {
    let direct = [50, 15, 0];
    assert_eq!(hop(direct, direct), None);
    assert_eq!(hop(direct, [250, 15, 0]), None, "a longer queue");
    assert_eq!(hop(direct, [250, 30, 0]), None, "a slower model");
    assert_eq!(hop(direct, [250, 8, 0]), None, "a longer queue before a faster model");
    assert_eq!(hop([50, 15, 200], [50, 15, 200]), None, "both behind one");
}
