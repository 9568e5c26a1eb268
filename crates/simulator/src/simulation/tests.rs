use std::collections::BTreeSet;
use std::path::{Path, PathBuf};

use super::*;
use crate::BEHAVIOURS;

fn folder() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../data/scenarios")
}

fn named(name: &str) -> Scenario {
    Scenario::load(&folder().join(format!("{name}.toml"))).unwrap_or_else(|error| panic!("{name}:\n{error}"))
}

fn parsed(text: &str) -> Scenario {
    Scenario::parse(text, &folder()).unwrap()
}

fn gaps(one: &Simulated, kind: Kind) -> Vec<f64> {
    let times: Vec<f64> = one
        .deltas
        .iter()
        .filter(|delta| delta.kind == kind)
        .map(|delta| delta.t.unwrap().seconds())
        .collect();
    times.windows(2).map(|pair| pair[1] - pair[0]).collect()
}

fn median(mut values: Vec<f64>) -> f64 {
    values.sort_by(f64::total_cmp);
    values[values.len() / 2]
}

/// Every file of `data/scenarios` runs, does what it names, and every behaviour is in some file.
#[test]
fn every_scenario_file_does_what_it_names() {
    let mut seen = BTreeSet::new();
    for entry in std::fs::read_dir(folder()).unwrap() {
        let path = entry.unwrap().path();
        let scenario = Scenario::load(&path).unwrap_or_else(|error| panic!("{}:\n{error}", path.display()));
        assert!(!scenario.about.is_empty(), "{}", path.display());
        let wanted: BTreeSet<&str> = scenario.parts.iter().map(|part| part.entry.name).collect();
        let mut done = BTreeSet::new();
        let mut last = UtcMicros(0);
        for one in Simulation::new(&scenario).take(120) {
            done.extend(one.truth.injected.iter().map(|injection| injection.behaviour));
            assert!(one.summary.started_at.unwrap() >= last, "requests come in order of time");
            last = one.summary.started_at.unwrap();
            check(&one);
        }
        assert_eq!(done, wanted, "{}", path.display());
        seen.extend(wanted);
    }
    assert_eq!(seen, BEHAVIOURS.iter().map(|entry| entry.name).collect(), "a behaviour without a scenario");
}

/// Laws that hold for any stream: time does not run back, counts are billed as the truth says.
fn check(one: &Simulated) {
    assert!(one.deltas.windows(2).all(|pair| pair[0].t <= pair[1].t), "{:?}", one.truth);
    assert!(one.reads.windows(2).all(|pair| pair[0].t <= pair[1].t), "{:?}", one.truth);
    for delta in &one.deltas {
        let last = delta.first_read.unwrap() as usize + usize::from(delta.extra_reads);
        assert_eq!(delta.t, Some(one.reads[last].t), "an event is complete when its last read is");
    }
    if matches!(one.truth.outcome, Outcome::Completed | Outcome::Incomplete) {
        assert_eq!(one.summary.usage.output, Some(one.truth.reasoning_tokens + one.truth.output_tokens));
        let bytes: u32 = one.reads.iter().map(|read| read.bytes).sum();
        let events: u32 = one.deltas.iter().map(|delta| delta.wire_bytes).sum();
        assert_eq!(bytes, events, "{:?}", one.truth);
    } else {
        assert_eq!(one.summary.usage, Usage::default());
    }
}

/// The same seed gives the same streams; another behaviour does not disturb their sizes.
#[test]
fn a_seed_fixes_everything() {
    let run = |text: &str| -> Vec<Simulated> { Simulation::new(&parsed(text)).take(30).collect() };
    let (a, b) = (run("seed = 9"), run("seed = 9"));
    assert!(a.iter().zip(&b).all(|(a, b)| a.deltas == b.deltas && a.truth == b.truth));
    assert_ne!(a[0].truth.reasoning_tokens, run("seed = 10")[0].truth.reasoning_tokens);
    let corked = run("seed = 9\n[[behaviour]]\nkind = 'cork'");
    let sizes = |runs: &[Simulated]| runs.iter().map(|one| one.truth.reasoning_tokens).collect::<Vec<_>>();
    assert_eq!(sizes(&a), sizes(&corked));
}

#[test]
fn a_burst_is_forty_to_eighty_tokens_after_one_to_two_seconds() {
    for one in Simulation::new(&named("write-up-burst")).take(30) {
        assert!(gaps(&one, Kind::Reasoning).iter().all(|gap| (1.0..=2.0).contains(gap)));
        let reasoning = one.deltas.iter().filter(|delta| delta.kind == Kind::Reasoning);
        let mut tokens: Vec<u32> = reasoning.map(|delta| delta.tokens_est.unwrap()).collect();
        tokens.pop();
        assert!(tokens.iter().all(|tokens| (40..=80).contains(tokens)), "{tokens:?}");
    }
}

#[test]
fn resampled_gaps_are_those_of_the_recording() {
    let all: Vec<f64> = Simulation::new(&named("resampled-gpt-4o"))
        .take(60)
        .flat_map(|one| gaps(&one, Kind::Reasoning))
        .collect();
    let middle = median(all.clone());
    assert!((0.017..0.024).contains(&middle), "published: 20.2 ms; got {middle}");
    assert!(all.iter().all(|gap| *gap <= 0.601), "published: at most 600 ms");
}

#[test]
fn a_byte_buffer_flushes_whole_buffers_and_a_cork_on_its_grid() {
    for one in Simulation::new(&named("byte-buffer")).take(20) {
        let (last, full) = one.reads.split_last().unwrap();
        assert!(full.iter().all(|read| read.bytes == 4_096) && last.bytes <= 4_096);
    }
    for one in Simulation::new(&named("cork")).take(20) {
        let head = one.summary.t_headers.unwrap();
        assert!(one.reads.iter().all(|read| read.t.since(head).0 % 200_000 == 0));
    }
}

/// No second ever carries more than the bucket and one frame.
#[test]
fn a_token_bucket_never_lets_more_through_than_a_filling() {
    for one in Simulation::new(&named("token-bucket")).take(20) {
        let mut periods = BTreeMap::new();
        for delta in one.deltas.iter().filter(|delta| delta.is_content()) {
            *periods.entry(delta.t.unwrap().0 / 1_500_000).or_insert(0) += delta.tokens_est.unwrap();
        }
        // What leaves at line rate after a filling may end in the next period.
        assert!(periods.values().all(|tokens| *tokens <= 2 * 60 + 4), "{periods:?}");
        let total: u32 = periods.values().sum();
        let span = u32::try_from(periods.len()).unwrap();
        assert!(total <= (span + 1) * 64, "{total} tokens in {span} periods");
    }
}

#[test]
fn lattice_values_are_where_they_are_asked_for_and_low_tiers_are_wrong() {
    let runs: Vec<Simulated> = Simulation::new(&named("count-lattice")).take(600).collect();
    let on = |one: &&Simulated| one.truth.reasoning_tokens % 518 == 516;
    let hits = runs.iter().filter(on).count();
    assert!((250..350).contains(&hits), "{hits}");
    let first: Vec<&Simulated> = runs.iter().filter(|one| one.truth.reasoning_tokens == 516).collect();
    assert!(first.len() > 60);
    let noted = |one: &&&Simulated| one.truth.injected.iter().any(|i| i.behaviour == "count-lattice");
    assert!(first.iter().filter(noted).all(|one| one.summary.labels["correct"] == "false"));
}

/// The pinned window is slow at the median and beyond, everything else is not, and nothing fails.
#[test]
fn shard_pinning_slows_just_its_window() {
    let runs: Vec<Simulated> = Simulation::new(&named("shard-pinning")).take(3_000).collect();
    assert!(runs.iter().all(|one| one.truth.status == 200));
    let first = |inside: bool| -> f64 {
        let wanted = |one: &&Simulated| (150..=220).contains(&one.truth.ask.prompt_tokens) == inside;
        median(
            runs.iter().filter(wanted).map(|one| one.summary.t_first_reasoning.unwrap().seconds()).collect(),
        )
    };
    assert!(first(true) > 1.5 * first(false), "{} against {}", first(true), first(false));
}

#[test]
fn a_cooldown_releases_together_and_then_refuses() {
    let runs: Vec<Simulated> = Simulation::new(&named("concurrency-cooldown")).take(600).collect();
    let refused: Vec<&Simulated> = runs.iter().filter(|one| one.truth.status == 429).collect();
    assert!(!refused.is_empty());
    assert!(refused.iter().all(|one| one.truth.ask.is_deep() && one.summary.retry_after_ms.is_some()));
    let mut releases = BTreeMap::new();
    for one in runs.iter().filter(|one| one.truth.status == 200 && !one.truth.injected.is_empty()) {
        let at = one.truth.ask.at.0 + one.summary.t_first_reasoning.unwrap().0;
        *releases.entry(at).or_insert(0) += 1;
    }
    assert!(releases.values().any(|together| *together >= 3), "{releases:?}");
    assert!(runs.iter().any(|one| one.truth.ask.attempt > 1 && one.truth.status == 200), "retries heal");
}

#[test]
fn saturation_fails_long_numeric_prompts() {
    let runs: Vec<Simulated> = Simulation::new(&named("saturation")).take(2_000).collect();
    let rate = |at_risk: bool| {
        let group: Vec<&Simulated> = runs
            .iter()
            .filter(|one| {
                (one.truth.ask.prompt_tokens > 3_200 && one.truth.ask.numeric_share >= 0.4) == at_risk
            })
            .collect();
        let failed = group.iter().filter(|one| one.summary.content_check != ContentCheck::Ok).count();
        (failed, group.len())
    };
    let ((bad, risky), (others, safe)) = (rate(true), rate(false));
    assert!(risky > 100 && bad * 100 > risky * 25, "{bad} of {risky}");
    assert!(others * 100 < safe * 3, "{others} of {safe}");
}

#[test]
fn attempts_of_a_turn_share_its_key() {
    let runs: Vec<Simulated> = Simulation::new(&named("retry-storm")).take(600).collect();
    let mut turns: BTreeMap<u64, Vec<u32>> = BTreeMap::new();
    for one in &runs {
        turns.entry(one.summary.turn_key.unwrap()).or_default().push(one.summary.attempt.unwrap());
    }
    assert!(turns.values().any(|attempts| attempts.len() >= 3));
    assert!(turns.values().all(|attempts| attempts.iter().zip(1..).all(|(attempt, n)| *attempt == n)));
}
