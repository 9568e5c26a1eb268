use proptest::prelude::*;
use serde_json::Value;
use sseismo_trace::Summary;

use super::*;
use crate::stats::interval::{gini, weighted_gap};

fn text(seq: u32, t: i64, tokens: u32) -> Delta {
    Delta { tokens: Some(tokens), ..Delta::new(seq, Kind::Text, Phase::Output, Some(Micros(t))) }
}

fn frames(deltas: &[Delta]) -> (Vec<Flush>, Frames) {
    let mut frames = Frames::default();
    let mut out: Vec<Flush> = deltas.iter().filter_map(|delta| frames.push(delta)).collect();
    out.extend(frames.finish());
    (out, frames)
}

fn groups(mut grouper: Grouper, frames: &[Flush]) -> Vec<Flush> {
    let mut out: Vec<Flush> = frames.iter().filter_map(|&frame| grouper.push(frame)).collect();
    out.extend(grouper.finish());
    out
}

fn gaps(flushes: &[Flush]) -> Vec<Gap> {
    flushes.iter().map(|flush| flush.gap).collect()
}

/// The reference runs its gap from group start to group start, ours from the end of the group before:
/// where groups have no length both are equal, elsewhere start to start is rebuilt here. Tolerance 1e-9.
#[test]
fn groups_equal_the_reference() {
    let path = concat!(env!("CARGO_MANIFEST_DIR"), "/../../data/golden/marked_stream.json");
    let golden: Value = serde_json::from_str(&std::fs::read_to_string(path).unwrap()).unwrap();
    let cases = golden["cases"].as_array().unwrap();
    assert_eq!(cases.len(), 6);
    for case in cases {
        let name = case["name"].as_str().unwrap();
        let (input, want) = (&case["input"], &case["expected"]);
        let numbers = |value: &Value| -> Vec<f64> {
            value.as_array().unwrap().iter().map(|n| n.as_f64().unwrap()).collect()
        };
        let deltas: Vec<Delta> = numbers(&input["times_s"])
            .iter()
            .zip(numbers(&input["tokens"]))
            .zip(0..)
            .map(|((t, tokens), seq)| text(seq, (t * 1e6).round() as i64, tokens as u32))
            .collect();
        let (frames, _) = frames(&deltas);
        let window = Micros((input["coalesce_s"].as_f64().unwrap() * 1e6).round() as i64);
        let groups = groups(Grouper::new(window, None), &frames);

        assert_eq!(groups.len() as u64, want["groups"].as_u64().unwrap(), "{name}");
        let tokens: Vec<f64> = groups.iter().map(|group| f64::from(group.size.tokens)).collect();
        assert_eq!(tokens, numbers(&want["group_tokens"]), "{name}");
        let starts: Vec<f64> = groups.iter().map(|group| group.first.seconds()).collect();
        for (got, want) in starts.iter().zip(numbers(&want["group_times"])) {
            assert!((got - want).abs() < 1e-9, "{name}");
        }
        let pairs = starts.windows(2).zip(&tokens[tokens.len().min(1)..]).map(|(s, &m)| (s[1] - s[0], m));
        let close = |got: Option<f64>, want: &Value| match (got, want.as_f64()) {
            (Some(got), Some(want)) => assert!((got - want).abs() < 1e-9, "{name}: {got} is not {want}"),
            (got, want) => assert_eq!(got, want, "{name}"),
        };
        close(weighted_gap(pairs), &want["twgap"]);

        let bin = input["bin_s"].as_f64().unwrap();
        let bins = (input["T_s"].as_f64().unwrap() / bin).round() as usize;
        let mut filled = vec![0.0; bins];
        for delta in &deltas {
            let at = (delta.t.unwrap().seconds() / bin) as usize;
            filled[at.min(bins - 1)] += f64::from(delta.tokens.unwrap());
        }
        filled.retain(|&tokens| tokens > 0.0);
        close(gini(&mut filled, bins), &want["gini_bins"]);
    }
}

#[test]
fn events_under_a_millisecond_apart_are_one_frame() {
    let (frames, _) = frames(&[text(0, 0, 3), text(1, 999, 3), text(2, 1_999, 3)]);
    assert_eq!(frames.len(), 2, "999 µs joins, 1,000 µs does not");
    assert_eq!(gaps(&frames), [Gap::First, Gap::Within(Micros(1_000))]);
    assert_eq!(frames[0].size.tokens, 6);
}

#[test]
fn a_gap_starts_at_the_last_frame_of_the_group_before() {
    let (frames, _) = frames(&[text(0, 0, 1), text(1, 20_000, 1), text(2, 1_020_000, 1)]);
    let groups = groups(Grouper::coarse(), &frames);
    assert_eq!(gaps(&groups), [Gap::First, Gap::Within(Micros(1_000_000))]);
    assert_eq!(groups[0].frames, 2);
}

#[test]
fn a_steady_stream_does_not_chain_into_one_coarse_group() {
    let deltas: Vec<Delta> = (0..100).map(|i| text(i, i64::from(i) * 18_000, 1)).collect();
    let groups = groups(Grouper::coarse(), &frames(&deltas).0);
    assert!(groups.iter().all(|group| group.last.since(group.first) <= COARSE_SPAN));
    assert!(groups.len() > 15);
}

#[test]
fn over_lost_events_nothing_is_known() {
    let mut frames = Frames::default();
    assert_eq!(frames.push(&text(0, 0, 1)), None);
    frames.lost();
    let first = frames.push(&text(5, 500, 1)).unwrap();
    assert_eq!((first.gap, first.size.events), (Gap::First, 1));
    assert_eq!(frames.finish().unwrap().gap, Gap::Unknown);
}

#[test]
fn silence_between_phases_is_a_border() {
    let event = |seq, kind, phase, t| Delta::new(seq, kind, phase, Some(Micros(t)));
    let (frames, state) = frames(&[
        event(0, Kind::Meta, Phase::Queued, 0),
        event(1, Kind::Summary, Phase::Summary, 1_600_000),
        event(2, Kind::Meta, Phase::Summary, 1_610_000),
        event(3, Kind::Summary, Phase::Summary, 4_000_000),
        event(4, Kind::Text, Phase::Output, 6_500_000),
        event(5, Kind::Text, Phase::Output, 6_520_000),
        event(6, Kind::Ping, Phase::Output, 8_000_000),
        event(7, Kind::Done, Phase::Tail, 9_000_000),
    ]);
    assert_eq!(
        gaps(&frames),
        [
            Gap::First,
            Gap::Border(Micros(2_400_000)),
            Gap::Border(Micros(2_500_000)),
            Gap::Within(Micros(20_000))
        ]
    );
    assert_eq!(state.borders, Borders { over_1s: 4, longest: Micros(2_500_000) });
}

#[test]
fn an_empty_chunk_between_deltas_hides_no_stall() {
    let mut deltas = [text(0, 0, 1), text(1, 600_000, 0), text(2, 1_300_000, 40)];
    (deltas[1].kind, deltas[1].tokens) = (Kind::Meta, None);
    let (frames, state) = frames(&deltas);
    assert_eq!(gaps(&frames), [Gap::First, Gap::Within(Micros(1_300_000))]);
    assert_eq!(state.borders, Borders::default());
}

#[test]
fn a_clock_step_leaves_the_gap_unknown_and_joins_nothing() {
    let (frames, state) = frames(&[text(0, 50_000, 1), text(1, 10_000, 1), text(2, 30_000, 1)]);
    assert_eq!(gaps(&frames), [Gap::First, Gap::Unknown, Gap::Within(Micros(20_000))]);
    assert_eq!(state.clock_steps, 1);
    assert_eq!(groups(Grouper::coarse(), &frames).len(), 2);
}

#[test]
fn an_event_without_a_time_makes_the_next_gap_unknown() {
    let mut deltas = [text(0, 0, 1), text(1, 0, 1), text(2, 2_000_000, 1)];
    deltas[1].t = None;
    let (frames, state) = frames(&deltas);
    assert_eq!(gaps(&frames), [Gap::First, Gap::Unknown]);
    assert_eq!(state.untimed_events, 1);
}

#[test]
fn pace_is_what_a_comparison_needs() {
    let deltas: Vec<Delta> = (0..41).map(|i| text(i, 100_000 + i64::from(i / 2) * 20_000, 3)).collect();
    let summary = Summary { t_first_output: Some(Micros(100_000)), ..Summary::default() };
    let pace = pace(&Stream { summary: &summary, deltas: &deltas, reads: &[] });
    assert_eq!(pace.ttft, Some(Micros(100_000)));
    assert_eq!(pace.itl_median, Some(Micros(20_000)));
    assert_eq!(pace.events_per_flush, Some(41.0 / 21.0));
}

proptest! {
    /// No event and no token is lost or counted twice, at any scale.
    #[test]
    fn grouping_conserves_size(steps in prop::collection::vec((-2_000_i64..200_000, 0_u32..50), 1..100), window in 1_000_i64..100_000) {
        let mut t = 0;
        let deltas: Vec<Delta> = steps.iter().zip(0..).map(|(&(step, tokens), seq)| { t += step; text(seq, t, tokens) }).collect();
        let (frames, _) = frames(&deltas);
        for groups in [groups(Grouper::new(Micros(window), None), &frames), groups(Grouper::coarse(), &frames)] {
            let mut sum = Size::default();
            for group in &groups {
                sum.add(group.size);
            }
            prop_assert_eq!(sum.events as usize, deltas.len());
            prop_assert_eq!(sum.tokens, deltas.iter().map(|delta| delta.tokens.unwrap()).sum::<u32>());
            prop_assert_eq!(groups.iter().map(|group| group.frames as usize).sum::<usize>(), frames.len());
        }
    }
}
