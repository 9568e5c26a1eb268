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

/// Streams of scenarios in virtual time, pushed twice.
fn simulated(sides: [(&str, &str); 2], streams: usize) -> Comparison {
    let folder = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("../../data/scenarios");
    let runs = sides.map(|(name, text)| {
        let scenario = sseismo_simulator::Scenario::parse(text, &folder).expect("a scenario");
        let all: Vec<_> = sseismo_simulator::Simulation::new(&scenario).take(streams).collect();
        (name, all)
    });
    let mut comparison = Comparison::default();
    let push = |comparison: &mut Comparison| {
        for (name, all) in &runs {
            for one in all {
                comparison.push(name, &one.stream());
            }
        }
    };
    push(&mut comparison);
    assert!(comparison.wants_second_pass());
    comparison.start_second_pass();
    push(&mut comparison);
    assert!(!comparison.wants_second_pass());
    comparison
}

fn rate<'a>(report: &'a CompareReport, name: &str) -> &'a Rate {
    report.rates.iter().find(|rate| rate.name == name).expect("a rate")
}

fn holds(rate: &Rate, truth: f64) -> bool {
    let [low, high] = rate.ratio_ci95.map(|limit| limit.expect("a limit"));
    low <= truth && truth <= high
}

const SHORT: &str = "[answer]\nreasoning = { median = 400, sigma = 0.5 }\n[load]\nsessions = 60\n";

/// Twice the requests, and of these twice the share that bursts: truth is 2, 4 and 2.
#[test]
fn rates_hold_the_simulated_truth() {
    let burst = "[[behaviour]]\nkind = 'write-up-burst'\nshare = ";
    let side = |rate: f64, share: f64, seed: u64| {
        format!("seed = {seed}\n{SHORT}arrivals = {{ rate = {rate}, even = true }}\n{burst}{share}")
    };
    // A session of its own for each stream: nothing bunches.
    let (a, b) = (side(0.05, 0.4, 10_001), side(0.1, 0.8, 10_002));
    let (a, b) =
        (a.replace("sessions = 60", "sessions = 1000000"), b.replace("sessions = 60", "sessions = 1000000"));
    let report = simulated([("a", &a), ("b", &b)], 500).finish("a", "b").expect("a comparison");
    let requests = rate(&report, "requests per hour");
    assert!(holds(requests, 2.0) && !holds(requests, 1.5) && !holds(requests, 2.7), "{requests:#?}");
    assert!((requests.first.rate.expect("a rate") / 180.0 - 1.0).abs() < 0.05, "{requests:#?}");
    let events = rate(&report, "cluster events per hour");
    assert!(holds(events, 4.0) && !holds(events, 1.0) && events.first.events > 300, "{events:#?}");
    // Per stream-hour a bursting stream lasts longer, so the ratio is of shares of time, not of streams.
    let in_streams = rate(&report, "cluster events per stream-hour");
    assert!(in_streams.ratio.is_some_and(|ratio| (1.0..2.0).contains(&ratio)), "{in_streams:#?}");
    assert!(events.too_few.is_none() && events.tests[0].p < 1e-6 && events.tests[0].q.is_some());
}

#[test]
fn a_healthy_side_has_no_cluster_events_and_the_ratio_a_lower_limit() {
    let side = |kind: &str| format!("{SHORT}[[behaviour]]\nkind = '{kind}'");
    let (healthy, burst) = (side("lognormal"), side("write-up-burst"));
    let report = simulated([("a", &healthy), ("b", &burst)], 60).finish("a", "b").expect("a comparison");
    let events = rate(&report, "cluster events per hour");
    assert_eq!((events.first.events, events.ratio, events.ratio_ci95[1]), (0, None, None));
    assert!(events.ratio_ci95[0].is_some_and(|low| low > 1.0), "{events:#?}");
    assert!(events.too_few.as_deref().is_some_and(|why| why.contains("extrapolation")), "half a minute");
}

/// Each request fails with p = 0.35 and is tried at most five times: (1 − p⁵) ÷ (1 − p) = 1.53 attempts a turn.
#[test]
fn attempts_and_success_hold_the_simulated_truth() {
    let failing = format!("{SHORT}retries = 4\n[[behaviour]]\nkind = 'http-error'\nshare = 0.35");
    let report = simulated([("a", SHORT), ("b", &failing)], 1_500).finish("a", "b").expect("a comparison");
    assert_eq!(report.unit, Unit::Session);
    let attempts = report.quantities.iter().find(|q| q.name == "attempts per client turn").expect("turns");
    let ([low, high], truth) = (attempts.second.mean_ci95.expect("an interval"), 1.530);
    assert_eq!(attempts.first.mean, Some(1.0));
    // All of a side completed: as sure as its 60 sessions make it, not certain.
    let all = named(&report.proportions, "completed", "a").first.ci95;
    assert!((0.9..0.99).contains(&all[0]) && (all[1] - 1.0).abs() < 1e-12, "{all:?}");
    assert!(low <= truth && truth <= high && high - low < 0.3, "{low} {high}");
    let completed = named(&report.proportions, "completed", "a");
    let [low, high] = completed.second.ci95;
    assert!(low <= 0.65 && 0.65 <= high, "{low} {high}");
    // What the retries healed is a success of the call: only 0.35⁵ of the turns are lost.
    let chains = named(&report.proportions, "sessions of 5 or more calls in which every call succeeded", "a");
    assert_eq!((chains.first.share, chains.tests[0].name.as_str()), (Some(1.0), "fisher-exact"));
    assert!(chains.second.share.is_some_and(|share| share > 0.7), "{chains:#?}");
}

/// Sessions of six calls, each with p = 0.9: 0.9⁶ = 0.531 of the chains hold; Wilson, for sessions are independent.
#[test]
fn chains_are_of_five_or_more_calls_and_a_healed_call_is_a_success() {
    let mut comparison = Comparison::default();
    let mut turn = 0;
    let mut call = |group: &str, session: u64, outcomes: &[Outcome]| {
        turn += 1;
        for (attempt, outcome) in (1..).zip(outcomes) {
            let summary = Summary {
                session_key: Some(session),
                turn_key: Some(turn),
                attempt: Some(attempt),
                outcome: *outcome,
                ..Summary::default()
            };
            push(&mut comparison, group, &summary);
        }
    };
    for session in 0..20 {
        for number in 0..6 {
            let fails = session < 8 && number == 3;
            call("a", session, if fails { &[Outcome::Failed] } else { &[Outcome::Completed] });
            // The same failures, healed by a second attempt.
            call(
                "b",
                100 + session,
                if fails { &[Outcome::Failed, Outcome::Completed] } else { &[Outcome::Completed] },
            );
        }
        call("a", 200 + session, &[Outcome::Failed]);
    }
    for _ in 0..5 {
        call("a", 300, &[Outcome::Unknown]);
    }
    let report = comparison.finish("a", "b").expect("a comparison");
    let line = named(&report.proportions, "sessions of 5 or more calls in which every call succeeded", "a");
    assert_eq!((line.first.hits, line.first.n, line.second.hits, line.second.n), (12, 20, 20, 20));
    let [low, high] = crate::stats::proportion::wilson(12, 20);
    assert_close(line.first.ci95[0], low, 1e-12, "Wilson");
    assert_close(line.first.ci95[1], high, 1e-12, "Wilson");
    assert!(line.tests[0].p < 0.01, "{line:#?}");
    let note = report.notes.iter().find(|note| note.starts_with("a: sessions of 5")).expect("a note");
    assert!(note.contains("6.0 calls") && note.contains("1 of 21"), "{note}");
}

#[test]
fn unknown_cost_is_left_out_and_said() {
    let mut comparison = Comparison::default();
    for turn in 0..12_u64 {
        for attempt in 1..=2 {
            // The failed first attempt of every third turn has no known cost: nor has the turn.
            let known = attempt == 2 || turn % 3 != 0;
            for group in ["a", "b"] {
                let summary = Summary {
                    turn_key: Some(turn + if group == "a" { 0 } else { 100 }),
                    attempt: Some(attempt),
                    cost_usd: known.then_some(0.25),
                    ..Summary::default()
                };
                push(&mut comparison, group, &summary);
            }
        }
    }
    let report = comparison.finish("a", "b").expect("a comparison");
    let cost = |name: &str| report.quantities.iter().find(|q| q.name == name).expect("a cost").first;
    assert_eq!((cost("cost_usd").n, cost("cost_usd").mean), (20, Some(0.25)));
    assert_eq!((cost("cost per client turn").n, cost("cost per client turn").mean), (8, Some(0.5)));
    assert!(report.notes.iter().any(|note| note.contains("cost_usd of 4 of 24 rows is unknown")));
}

/// Throughput is what the study's own column says, mean by arm.
#[test]
fn throughput_equals_the_studys_own_figures() {
    let path = format!("{}/../../data/counts/candy-study/gpt-5.5-xhigh.csv", env!("CARGO_MANIFEST_DIR"));
    let mut comparison = Comparison::default();
    let mut theirs = std::collections::BTreeMap::<String, Vec<f64>>::new();
    let mut reader = csv::Reader::from_path(path).expect("a table");
    let headers = reader.headers().expect("headers").clone();
    let column = |name: &str| headers.iter().position(|h| h == name).expect("column");
    for record in reader.records().map(|record| record.expect("a record")) {
        let number = |name: &str| record[column(name)].parse::<f64>().expect("a number");
        #[expect(
            clippy::cast_possible_truncation,
            clippy::cast_sign_loss,
            reason = "whole numbers of a file"
        )]
        let (wall, output) = ((number("wall_ms") * 1e3) as i64, number("output_tokens") as u64);
        let usage = Usage { output: Some(output), ..Usage::default() };
        let summary = Summary { usage, t_end: Some(Micros(wall)), ..Summary::default() };
        push(&mut comparison, &record[column("arm")], &summary);
        theirs.entry(record[column("arm")].to_owned()).or_default().push(number("tokens_per_second"));
    }
    let report = comparison.finish("control", "treatment").expect("a comparison");
    let ours = report.quantities.iter().find(|q| q.name.starts_with("throughput")).expect("throughput");
    for (side, arm) in [(ours.first, "control"), (ours.second, "treatment")] {
        let values = &theirs[arm];
        let mean = values.iter().sum::<f64>() / crate::stats::real_len(values.len());
        assert_close(side.mean.expect("a mean"), mean, 1e-9, arm);
    }
}

/// A baseline of five days, busy by day and failing by night; the second side is a quiet noon. Unmatched, the
/// nights make the baseline look worse than noon; hour by hour there is no difference.
#[test]
fn matched_hours_compare_like_with_like() {
    const HOUR: i64 = 3_600_000_000;
    // Monday 2026-01-05 00:00 UTC.
    let monday = 1_767_571_200_000_000;
    let mut comparison = Comparison::default();
    let mut stream = |group: &str, day: i64, hour: i64, minute: i64| {
        let night = !(6..22).contains(&hour);
        let failed = if night { minute % 2 == 0 } else { minute % 10 == 0 };
        let summary = Summary {
            started_at: Some(sseismo_trace::UtcMicros(
                monday + (day * 24 + hour) * HOUR + minute * HOUR / 60,
            )),
            outcome: if failed { Outcome::Failed } else { Outcome::Completed },
            ..Summary::default()
        };
        push(&mut comparison, group, &summary);
    };
    for minute in 0..60 {
        (0..5).for_each(|day| (0..24).for_each(|hour| stream("week", day, hour, minute)));
        (11..14).for_each(|hour| stream("noon", 9, hour, minute));
        (11..14).for_each(|hour| stream("sunday", 13, hour, minute));
    }
    push(&mut comparison, "noon", &Summary { outcome: Outcome::Failed, ..Summary::default() });
    let all = comparison.finish("week", "noon").expect("a comparison");
    assert!(all.matched_hours.is_none() && named(&all.proportions, "completed", "week").tests[0].p < 0.01);
    let same = comparison.finish_at_shared_hours("week", "noon").expect("a comparison");
    let matched = MatchedHours {
        by: HourKey::WeekdayAndHour,
        hours: 3,
        days: [1, 1],
        left_out: [5 * 24 * 60 - 3 * 60, 0],
        without_start: [0, 1],
    };
    // Day 9 is a Wednesday, and the week has one.
    assert_eq!(same.matched_hours, Some(matched));
    let completed = named(&same.proportions, "completed", "week");
    assert_eq!((completed.first.n, completed.second.n, completed.difference), (180, 180, Some(0.0)));
    assert!(same.notes[0].contains("3 hours matched by weekday and hour of day (UTC): 7020 streams of week"));
    assert!(same.notes[1].contains("on one day only"));
    assert!((rate(&same, "requests per hour").ratio.expect("a ratio") - 1.0).abs() < 0.02);
    // The week has no Sunday: any day's noon will do.
    let sunday = comparison.finish_at_shared_hours("week", "sunday").expect("a comparison");
    let matched = sunday.matched_hours.expect("matched");
    assert_eq!((matched.by, matched.hours, matched.days), (HourKey::Hour, 3, [5, 1]));
    assert_eq!(named(&sunday.proportions, "completed", "week").first.n, 5 * 180);
}

#[test]
fn hours_that_nobody_shares_are_an_error() {
    let mut comparison = Comparison::default();
    for (group, hour) in [("a", 1), ("b", 2)] {
        let started_at = Some(sseismo_trace::UtcMicros(hour * 3_600_000_000));
        push(&mut comparison, group, &Summary { started_at, ..Summary::default() });
    }
    let error = comparison.finish_at_shared_hours("a", "b").expect_err("nothing to match");
    assert!(error.to_string().contains("no hour of day has streams of both `a` and `b`"), "{error}");
}
