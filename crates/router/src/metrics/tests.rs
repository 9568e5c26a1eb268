use proptest::prelude::*;
use sseismo_trace::{
    Api, Delta, Detail, Dim, Evidence, Kind, Micros, Outcome, Phase, Scope, SignalId, Summary, Usage,
    UtcMicros,
};

use super::*;

fn metrics() -> (Feed, Arc<Metrics>) {
    let feed = Feed::new(1, 16);
    let metrics = Arc::new(Metrics::new(&feed));
    (feed, metrics)
}

fn summary(stream_id: u64) -> Summary {
    Summary {
        stream_id,
        upstream: Some("api.example".to_owned()),
        model_requested: Some("gpt-5.5".to_owned()),
        api: Some(Api::Responses),
        streamed: Some(true),
        outcome: Outcome::Completed,
        ..Summary::default()
    }
}

fn content(ms: i64, chars: u32) -> Delta {
    Delta { chars, ..Delta::new(0, Kind::Reasoning, Phase::Reasoning, Some(Micros(ms * 1_000))) }
}

/// The value of the one series whose name and labels hold all of `parts`.
fn value(text: &str, parts: &[&str]) -> Option<f64> {
    let mut lines = text.lines().filter(|line| !line.starts_with('#'));
    let line = lines.find(|line| parts.iter().all(|part| line.contains(part)))?;
    line.rsplit_once(' ')?.1.parse().ok()
}

#[test]
fn a_stream_leaves_its_first_token_gaps_burst_share_and_usage() {
    let (_, metrics) = metrics();
    let mut meter = metrics.meter();
    meter.begin(Micros(0), &summary(7));
    let ping = Delta::new(0, Kind::Ping, Phase::Queued, Some(Micros(10)));
    meter.deltas(7, &[ping, content(800, 5), content(810, 5)]);
    assert_eq!(value(&metrics.encode(true), &["sseismo_streams_live", "gpt-5.5"]), Some(1.0));
    // 1.3 s of dead air, 40 characters in one flush; then one honest frame after 1.1 s, and an even end.
    meter.deltas(7, &[content(2_110, 20), content(2_112, 20), content(3_300, 10), content(3_400, 5)]);
    let usage = Usage { input: Some(900), output: Some(701), reasoning: Some(516.0), cached: None };
    let t_end = Some(Micros(3_500_000));
    meter.end(&Summary { usage, t_end, ..summary(7) });

    let text = metrics.encode(true);
    let at = |parts: &[&str]| value(&text, parts);
    assert_eq!(at(&["time_to_first_token_seconds_sum"]), Some(0.8));
    assert_eq!(at(&["time_to_first_token_seconds_count", r#"gen_ai_provider_name="openai""#]), Some(1.0));
    let gap = "gen_ai_client_operation_time_per_output_chunk_seconds";
    assert_eq!(at(&[&format!("{gap}_count")]), Some(5.0));
    assert_eq!((at(&[gap, r#"le="0.01""#]), at(&[gap, r#"le="1.0""#])), (Some(2.0), Some(3.0)));
    // After the first event come 60 characters.
    let close = |parts: &[&str], to: f64| at(parts).is_some_and(|value| (value - to).abs() < 1e-9);
    assert!(close(&["burst_share_sum"], 40.0 / 60.0), "{text}");
    assert!(close(&["time_per_output_token_seconds_sum"], 2.6 / 700.0));
    assert_eq!(at(&["request_duration_seconds_sum", r#"error_type="""#]), Some(3.5));
    assert_eq!(at(&["token_usage_sum", r#"gen_ai_token_type="input""#]), Some(900.0));
    assert_eq!(at(&["reasoning_counts_total"]), Some(1.0));
    assert_eq!(at(&["on_lattice_total", "518n-2"]), Some(1.0));
    assert_eq!(at(&["on_lattice_total", "64n"]), Some(0.0));
    assert_eq!(at(&["sseismo_streams_live"]), Some(0.0));
}

#[test]
fn what_was_not_measured_is_not_counted() {
    let (_, metrics) = metrics();
    let mut meter = metrics.meter();
    // Not streamed; times unknown; an estimate for reasoning; a beginning that was lost.
    meter.begin(Micros(0), &Summary { streamed: Some(false), ..summary(1) });
    meter.deltas(1, &[content(100, 5)]);
    meter.end(&summary(1));
    meter.begin(Micros(0), &summary(2));
    meter.deltas(2, &[Delta { t: None, ..content(0, 5) }]);
    let usage = Usage { reasoning: Some(516.5), ..Usage::default() };
    meter.end(&Summary { usage, outcome: Outcome::Truncated, ..summary(2) });
    meter.deltas(3, &[content(5, 1)]);
    meter.end(&Summary { status: Some(429), t_end: Some(Micros(9)), events_dropped: 4, ..summary(3) });
    let text = metrics.encode(false);
    for family in
        ["time_to_first_token_seconds", "per_output_chunk_seconds", "burst_share", "per_output_token_seconds"]
    {
        assert_eq!(value(&text, &[&format!("{family}_count")]), Some(0.0), "{family}");
    }
    assert_eq!(value(&text, &["reasoning_counts_total"]), Some(0.0));
    assert_eq!(value(&text, &["request_duration_seconds_count", r#"error_type="429""#]), Some(1.0));
    assert_eq!(value(&text, &["sseismo_dropped_total", "tap"]), Some(4.0));
}

#[test]
fn streams_whose_end_was_lost_are_given_up_in_time() {
    let (_, metrics) = metrics();
    let mut meter = metrics.meter();
    for id in 0..70_000 {
        meter.begin(Micros(i64::try_from(id).unwrap() * 100_000), &summary(id));
    }
    let live = value(&metrics.encode(true), &["sseismo_streams_live"]).unwrap();
    assert!((4_000.0..66_000.0).contains(&live), "{live}");
}

#[test]
fn signals_are_counted_and_active_ones_shown_until_they_run_out() {
    let (feed, metrics) = metrics();
    let signal = Signal {
        id: SignalId(1),
        target: Scope::default().with(Dim::Upstream, "api.example").with(Dim::Model, "m\"1\n"),
        detail: Detail::Burst { gap_s: 1.4, tokens: 60.0 },
        cause: None,
        state: SignalState::Onset,
        strength: 0.25,
        evidence: Evidence::default(),
        at: UtcMicros(0),
        ttl: Micros(10),
    };
    let twin = Signal { id: SignalId(2), strength: 0.75, ..signal.clone() };
    for signal in [signal, twin] {
        metrics.signal(&signal);
        feed.publish(signal);
    }
    metrics.detector(DetectorState {
        scopes: 3,
        learning: 2,
        watching: 1,
        signalling: 0,
        evicted: 1,
        notes_dropped: 9,
    });
    let text = metrics.encode(true);
    let active = |text: &str| value(text, &["sseismo_signals_active{", r#"signature="burst""#]);
    assert_eq!(active(&text), Some(2.0), "{text}");
    assert_eq!(value(&text, &["sseismo_signal_strength{", r#"model="m\"1\n""#]), Some(0.75));
    assert_eq!(value(&text, &["sseismo_signals_total", r#"state="onset""#]), Some(2.0));
    assert_eq!(value(&text, &["sseismo_detector_watches", r#"state="learning""#]), Some(2.0));
    assert_eq!(value(&text, &["sseismo_detector_evictions_total"]), Some(1.0));
    assert_eq!(value(&text, &["sseismo_dropped_total", "detector"]), Some(9.0));
    assert!(value(&text, &["process_resident_memory_bytes"]).is_some_and(|bytes| bytes > 1e6));
    feed.expire(UtcMicros(11));
    assert_eq!(active(&metrics.encode(true)), None);
}

#[test]
fn the_router_counts_by_route_and_upstream() {
    let (_, metrics) = metrics();
    let traffic = metrics.traffic();
    traffic.request("main", "completed");
    traffic.attempt("a", "status-500");
    traffic.fallback("main", "a", "status-500");
    traffic.breaker("a", Breaker::Open);
    traffic.tokens("main", "b", TokenKind::Reasoning, 516);
    traffic.cost("main", "b", 0.25);
    traffic.cost("main", "b", f64::NAN);
    traffic.overhead("main", 0.000_12);
    let flying = traffic.in_flight("b");
    let text = metrics.encode(true);
    let at = |parts: &[&str]| value(&text, parts);
    assert_eq!(at(&["sseismo_route_breaker_state", r#"upstream="a""#]), Some(2.0));
    assert_eq!(at(&["billed_tokens_total", r#"type="reasoning""#]), Some(516.0));
    assert_eq!(at(&["sseismo_route_cost_usd_total"]), Some(0.25));
    assert_eq!(at(&["sseismo_route_in_flight"]), Some(1.0));
    assert_eq!(at(&["sseismo_route_fallbacks_total", r#"reason="status-500""#]), Some(1.0));
    drop(flying);
    assert_eq!(value(&metrics.encode(true), &["sseismo_route_in_flight"]), Some(0.0));
}

proptest! {
    /// However events are cut into notes, the same is counted.
    #[test]
    fn the_cut_of_notes_does_not_matter(
        steps in prop::collection::vec((0_i64..2_000, 0_u32..50), 1..60),
        cuts in prop::collection::vec(1_usize..20, 1..60),
    ) {
        let times = steps.iter().scan(0, |at, (step, chars)| { *at += step; Some(content(*at, *chars)) });
        let deltas: Vec<Delta> = times.collect();
        let (_, whole) = metrics();
        let mut meter = whole.meter();
        meter.begin(Micros(0), &summary(1));
        meter.deltas(1, &deltas);
        meter.end(&summary(1));
        let (_, pieces) = metrics();
        let mut meter = pieces.meter();
        meter.begin(Micros(0), &summary(1));
        let mut rest = &deltas[..];
        for cut in cuts {
            let (now, later) = rest.split_at(cut.min(rest.len()));
            meter.deltas(1, now);
            rest = later;
        }
        meter.deltas(1, rest);
        meter.end(&summary(1));
        let without_memory = |text: String| -> Vec<String> {
            text.lines().filter(|line| !line.contains("resident")).map(str::to_owned).collect()
        };
        let (mut one, mut other) = (without_memory(whole.encode(true)), without_memory(pieces.encode(true)));
        one.sort();
        other.sort();
        prop_assert_eq!(one, other);
    }
}

#[test]
fn whatever_signals_are_posted_series_stay_bounded() {
    let (_, metrics) = metrics();
    for n in 0..3 * signals::MAX_NAMED {
        metrics.signal(&Signal {
            id: SignalId(1),
            target: Scope::default().with(Dim::Upstream, "a").with(Dim::Model, n.to_string()),
            detail: Detail::Burst { gap_s: 1.4, tokens: 60.0 },
            cause: None,
            state: SignalState::Onset,
            strength: 0.5,
            evidence: Evidence::default(),
            at: UtcMicros(0),
            ttl: Micros(1),
        });
    }
    let text = metrics.encode(false);
    let series = text.lines().filter(|line| line.starts_with("sseismo_signals_total{")).count();
    assert_eq!(series, signals::MAX_NAMED + 1);
    assert_eq!(value(&text, &["sseismo_signals_total", "model=\"other\""]), Some(2_048.0), "none is lost");
}
