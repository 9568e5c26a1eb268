use std::collections::BTreeMap;

use ndarray::Array2;
use proptest::prelude::*;
use serde_json::Value;

use super::*;
use crate::vote::embed::{Embed as _, Hash};
use crate::vote::geometry::Eps;
use crate::vote::{Options, Sample, decide};

fn json(path: &str) -> String {
    std::fs::read_to_string(format!("{}/../../data/{path}", env!("CARGO_MANIFEST_DIR"))).unwrap()
}

fn cases(name: &str) -> Vec<Value> {
    let golden: Value = serde_json::from_str(&json(&format!("golden/{name}.json"))).unwrap();
    golden["cases"].as_array().unwrap().clone()
}

fn matrix(value: &Value) -> Array2<f64> {
    let rows: Vec<Vec<f64>> = serde_json::from_value(value.clone()).unwrap();
    Array2::from_shape_vec((rows.len(), rows[0].len()), rows.concat()).unwrap()
}

fn samples(answers: &Value) -> Vec<Sample> {
    let answers: Vec<Option<String>> = serde_json::from_value(answers.clone()).unwrap();
    answers.into_iter().map(|answer| Sample { trace: "x".into(), answer, ..Sample::default() }).collect()
}

fn winner(rule: &str, ballots: &Ballots<'_>) -> Option<String> {
    let outcome = decide(named(rule).unwrap(), ballots, Options::default());
    outcome.winner
}

fn text(value: &Value) -> Option<String> {
    value.as_str().map(str::to_owned)
}

#[test]
fn the_synthetic_fan_outs_are_decided_as_the_reference() {
    let cases = cases("cluster_vote");
    assert_eq!(cases.len(), 17);
    for case in &cases {
        let name = &case["name"];
        let samples = samples(&case["answers"]);
        let geometry = |semantic| Geometry::of(matrix(&case["vectors"]), Eps::Median, semantic).unwrap();
        let (wording, meaning) = (geometry(false), geometry(true));
        let ballots = Ballots::new(&samples, Some(&wording), Some(&wording));
        let semantic = Ballots::new(&samples, Some(&meaning), Some(&meaning));
        let vote = &case["vote"];
        let plain = Ballots::new(&samples, None, None);
        assert_eq!(winner("plurality", &plain), text(&vote["plurality_winner"]), "{name}");
        if let Some(means) = case["mean_cosine_to_others"].as_array() {
            for (i, want) in means
                .iter()
                .enumerate()
                .filter(|(_, want)| want.is_number())
                // The reference takes 1 off for the trace itself, which an empty trace never had.
                .filter(|(i, _)| !wording.is_blank(*i))
            {
                let got = wording.mean_cosine(i).unwrap();
                // Reference vectors are rounded to six decimals.
                assert!((got - want.as_f64().unwrap()).abs() < 2e-6, "{name} {i}: {got} {want}");
            }
        }
        if vote.get("tie_by_mean_cosine").is_some() {
            assert_eq!(winner("plurality", &semantic), text(&vote["tie_by_mean_cosine"]), "{name}");
            assert_eq!(
                winner("coherence-weighted", &ballots),
                text(&vote["coherence_weighted_winner"]),
                "{name}"
            );
            let weighted = named("coherence-weighted").unwrap().choose(&ballots).weights;
            let tally: BTreeMap<String, f64> =
                serde_json::from_value(vote["coherence_weighted_tally"].clone()).unwrap();
            if tally.values().sum::<f64>() > 0.0 {
                for (group, got) in ballots.groups.iter().zip(weighted) {
                    assert!((got - tally[&group.answer]).abs() < 1e-5, "{name} {}", group.answer);
                }
            }
        }
        if let Some(medoid) = case["medoid"].as_u64() {
            let got = wording.medoid(0..samples.len()).unwrap();
            assert_eq!(u64::try_from(got).unwrap(), medoid, "{name}");
        }
        if let Some(seed_rule) = vote.get("seed_rule") {
            assert_eq!(winner("write-up", &ballots), text(&seed_rule["winner"]), "write-up, {name}");
        }
    }
}

#[test]
fn the_automatic_eps_is_the_clamped_median_of_the_reference() {
    for case in cases("cluster_vote") {
        // An empty trace takes no part in the median here; the reference counts it.
        let (Some(median), false) =
            (case["median_pairwise_cosine_distance"].as_f64(), case["name"] == "zero_vector")
        else {
            continue;
        };
        let geometry = Geometry::of(matrix(&case["vectors"]), Eps::Median, false).unwrap();
        assert!((geometry.eps().unwrap() - median.clamp(0.05, 0.35)).abs() < 2e-6, "{}", case["name"]);
    }
}

/// Vectors with the given cosines, by Cholesky; a little on the diagonal keeps every order.
fn vectors_of(distance: &Array2<f64>) -> Array2<f64> {
    let n = distance.nrows();
    let mut l = Array2::<f64>::zeros((n, n));
    for i in 0..n {
        for j in 0..=i {
            let dot: f64 = (0..j).map(|k| l[[i, k]] * l[[j, k]]).sum();
            let gram = 1.0 - distance[[i, j]];
            l[[i, j]] = if i == j { (gram + 1e-5 - dot).sqrt() } else { (gram - dot) / l[[j, j]] };
        }
    }
    l
}

#[test]
fn plurality_wins_as_the_reference_on_every_real_fan_out() {
    let cases = cases("real_fanouts");
    assert_eq!(cases.len(), 45);
    for case in cases {
        let samples = samples(&case["answers"]);
        let vectors = vectors_of(&matrix(&case["cosine_distance"]));
        let geometry = Geometry::of(vectors, Eps::Fixed(0.3), false).unwrap();
        let ballots = Ballots::new(&samples, Some(&geometry), None);
        assert_eq!(
            winner("plurality", &ballots),
            text(&case["default_rule_winner"]),
            "{} {}",
            case["source"],
            case["qid"]
        );
    }
}

#[test]
fn real_texts_give_the_reference_distances_clusters_and_winners() {
    let golden = cases("real_fanouts");
    let mut seen = 0;
    for line in json("fanout/gsm8k-openai-n4.jsonl").lines() {
        let fan_out: Value = serde_json::from_str(line).unwrap();
        let same = |case: &&Value| {
            case["source"].as_str().unwrap().starts_with("MIT") && case["qid"] == fan_out["qid"]
        };
        let Some(case) = golden.iter().find(same) else { continue };
        seen += 1;
        let recorded = fan_out["samples"].as_array().unwrap();
        let texts: Vec<&str> = recorded.iter().map(|s| s["text"].as_str().unwrap()).collect();
        let samples = samples(&case["answers"]);
        let want = matrix(&case["cosine_distance"]);
        for eps in ["0.1", "0.2", "0.3"] {
            let fixed = Eps::Fixed(eps.parse().unwrap());
            let geometry = Geometry::new(&Hash.embed(&texts).unwrap(), fixed, false).unwrap();
            for i in 0..texts.len() {
                let mean: f64 = (0..texts.len()).filter(|&j| j != i).map(|j| 1.0 - want[[i, j]]).sum::<f64>()
                    / super::super::ballot::count(texts.len() - 1);
                assert!((geometry.mean_cosine(i).unwrap() - mean).abs() < 2e-6);
            }
            let labels: Vec<i64> =
                geometry.labels().iter().map(|l| l.map_or(-1, |c| i64::try_from(c).unwrap())).collect();
            let want = &case["dbscan"][format!("eps={eps},min_samples=2")];
            assert_eq!(serde_json::json!(labels), *want, "{} eps {eps}", case["qid"]);
            let ballots = Ballots::new(&samples, Some(&geometry), None);
            assert_eq!(winner("plurality", &ballots), text(&case["default_rule_winner"]));
        }
    }
    assert_eq!(seen, 30);
}

#[test]
fn noise_never_wins_the_largest_cluster() {
    // Four stray traces answer "no"; two close ones answer "yes".
    let mut rows = vec![0.0; 6 * 6];
    for (i, axis) in [0, 1, 2, 3, 4, 4].into_iter().enumerate() {
        rows[i * 6 + axis] = 1.0;
    }
    let vectors = Array2::from_shape_vec((6, 6), rows).unwrap();
    let geometry = Geometry::of(vectors, Eps::Fixed(0.3), false).unwrap();
    let answers = serde_json::json!(["no", "no", "no", "no", "yes", "yes"]);
    let samples = samples(&answers);
    let ballots = Ballots::new(&samples, Some(&geometry), None);
    assert_eq!(winner("largest-cluster", &ballots).as_deref(), Some("yes"));
    assert_eq!(winner("plurality", &ballots).as_deref(), Some("no"));
    assert_eq!(geometry.outliers(), [0, 1, 2, 3]);
}

#[test]
fn all_noise_and_no_vectors_fall_back_to_plurality() {
    let samples = samples(&serde_json::json!(["a", "b", "b"]));
    let geometry = Geometry::of(Array2::eye(3), Eps::Fixed(0.3), false).unwrap();
    for rule in ["largest-cluster", "coherence-weighted", "cost-weighted"] {
        assert_eq!(
            winner(rule, &Ballots::new(&samples, Some(&geometry), None)).as_deref(),
            Some("b"),
            "{rule}"
        );
        assert_eq!(winner(rule, &Ballots::new(&samples, None, None)).as_deref(), Some("b"), "{rule}");
    }
}

#[test]
fn cost_weights_use_tokens_only_when_all_are_reported() {
    let sample = |answer: &str, tokens, length| Sample {
        trace: "x".repeat(length),
        answer: Some(answer.into()),
        tokens,
        cost_usd: None,
    };
    let all =
        [sample("long", Some(1_000), 1), sample("long", Some(1_000), 1), sample("short", Some(10), 100)];
    assert_eq!(winner("cost-weighted", &Ballots::new(&all, None, None)).as_deref(), Some("short"));
    let mut some = all;
    some[2].tokens = None;
    assert_eq!(winner("cost-weighted", &Ballots::new(&some, None, None)).as_deref(), Some("long"));
}

#[test]
fn free_text_is_answered_by_the_medoid_of_the_tails() {
    let texts = ["so we go north by train", "so we go north by train today", "bananas are yellow", ""];
    let samples: Vec<Sample> =
        texts.map(|trace| Sample { trace: trace.into(), ..Sample::default() }).to_vec();
    let tails = Geometry::new(&Hash.embed(&texts).unwrap(), Hash.eps(), false).unwrap();
    let ballots = Ballots::new(&samples, None, Some(&tails));
    let outcome = decide(named("medoid").unwrap(), &ballots, Options::default());
    assert_eq!((outcome.winner, outcome.representative), (None, Some(0)));
    assert_eq!(outcome.abstained, 4);
    assert!(outcome.no_quorum);
}

#[test]
fn an_outcome_tells_share_margin_entropy_and_the_tie() {
    let mut samples = samples(&serde_json::json!(["18", "$18", "7", null, "7.0", "9"]));
    for (i, sample) in samples.iter_mut().enumerate() {
        sample.tokens = (i != 5).then_some(100);
        sample.cost_usd = Some(0.25);
    }
    let outcome = decide(RULES[0], &Ballots::new(&samples, None, None), Options::default());
    assert_eq!(outcome.winner.as_deref(), Some("18"));
    assert!((outcome.share - 0.4).abs() < 1e-12 && outcome.margin.abs() < 1e-12);
    assert!((outcome.entropy_bits - 1.521_928_094_887_362).abs() < 1e-12);
    assert!(outcome.no_quorum && outcome.abstained == 1);
    let tie = outcome.tie.unwrap();
    assert_eq!((tie.answers, tie.broken_by), (vec!["18".to_owned(), "7".to_owned()], "first"));
    assert_eq!(outcome.answers[0].tokens, Some(200));
    assert_eq!(outcome.answers[2].tokens, None, "one count is missing: no sum");
    assert_eq!(outcome.answers[0].cost_usd, Some(0.5));
}

#[test]
fn nothing_and_one_sample_are_fine() {
    for rule in RULES {
        let none = decide(*rule, &Ballots::new(&[], None, None), Options::default());
        assert!(none.winner.is_none() && none.no_quorum, "{}", rule.name());
        let one = samples(&serde_json::json!(["42"]));
        let geometry = Geometry::of(Array2::eye(1), Eps::Median, true).unwrap();
        let outcome =
            decide(*rule, &Ballots::new(&one, Some(&geometry), Some(&geometry)), Options::default());
        assert_eq!(outcome.winner.as_deref(), Some("42"), "{}", rule.name());
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]
    /// A unique leader wins whatever the order of the samples.
    #[test]
    fn order_does_not_change_a_unique_leader(votes in prop::collection::vec(0_u32..4, 1..12), turn in 0_usize..12) {
        let counts: Vec<usize> = (0..4).map(|a| votes.iter().filter(|v| **v == a).count()).collect();
        let top = *counts.iter().max().unwrap();
        prop_assume!(counts.iter().filter(|c| **c == top).count() == 1);
        let winner_of = |votes: &[u32]| {
            let samples: Vec<Sample> = votes.iter()
                .map(|v| Sample { answer: Some(v.to_string()), ..Sample::default() }).collect();
            winner("plurality", &Ballots::new(&samples, None, None))
        };
        let mut turned = votes.clone();
        turned.rotate_left(turn % votes.len());
        prop_assert_eq!(winner_of(&votes), winner_of(&turned));
    }
}
