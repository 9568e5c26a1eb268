use rand::{RngExt as _, SeedableRng as _};
use rand_chacha::ChaCha8Rng;

use super::*;
use crate::sequential::aggregate::Thresholds;

fn watching(null: f64, arl: f64, computed: bool, thresholds: &mut Thresholds) -> Sequence {
    let mut sequence = if computed { Sequence::new(0.0) } else { Sequence::moving(0.0) };
    sequence.pace.push(UtcMicros(0));
    sequence.pace.push(UtcMicros(1_000_000));
    sequence.set_null(null);
    #[expect(clippy::cast_possible_truncation, reason = "a test's run length is small")]
    let budget = Budget::new(Micros((arl * 1e6) as i64), 1);
    sequence.share(&mut Share { budget, thresholds: &mut *thresholds, seed: 1 });
    for question in thresholds.take_wanted() {
        assert!((sequence.ln_threshold - arl.ln()).abs() < 1e-9, "the proved one until it is computed");
        thresholds.learn(question, question.answer().unwrap());
    }
    sequence.share(&mut Share { budget, thresholds, seed: 1 });
    sequence
}

fn run(sequence: &mut Sequence, rng: &mut ChaCha8Rng, share: f64, most: i64) -> Option<i64> {
    (1..=most).find(|i| sequence.push(UtcMicros(i * 1_000_000), rng.random_bool(share)) == Step::Onset)
}

#[test]
fn false_alarms_are_no_oftener_than_stated() {
    let mut rng = ChaCha8Rng::seed_from_u64(7);
    let (runs, arl) = (200, 2_000.0);
    let (mut total, mut thresholds) = (0, Thresholds::default());
    for _ in 0..runs {
        let mut sequence = watching(0.02, arl, true, &mut thresholds);
        assert!(sequence.ln_threshold < arl.ln());
        total += run(&mut sequence, &mut rng, 0.02, 200_000).unwrap_or(200_000);
    }
    // Of 200 run lengths, nearly exponential, the mean strays by 7 %: 3 of these below.
    assert!(total / runs >= 1_580, "mean run length {}", total / runs);
}

/// Without a computed threshold the run length is far above the stated one: that is the price of a null that
/// moves.
#[test]
fn a_proved_threshold_keeps_its_word() {
    let mut rng = ChaCha8Rng::seed_from_u64(6);
    let total: i64 = (0..50)
        .map(|_| {
            run(&mut watching(0.02, 2_000.0, false, &mut Thresholds::default()), &mut rng, 0.02, 50_000)
                .unwrap_or(50_000)
        })
        .sum();
    assert!(total / 50 >= 4_000, "mean run length {}", total / 50);
}

#[test]
fn a_risen_share_is_seen_soon_and_its_end_as_well() {
    let mut rng = ChaCha8Rng::seed_from_u64(8);
    let mut sequence = watching(0.01, 1e6, true, &mut Thresholds::default());
    let delay = run(&mut sequence, &mut rng, 0.5, 1_000).unwrap();
    assert!(delay < 20, "{delay}");
    assert!(sequence.raised());
    let cleared = (1..200)
        .find(|i| sequence.push(UtcMicros(i * 1_000_000), rng.random_bool(0.01)) == Step::Clear)
        .unwrap();
    assert!((5..60).contains(&cleared), "{cleared}");
    assert!(!sequence.raised());
}

#[test]
fn a_change_below_the_smallest_share_of_interest_is_no_signal() {
    let mut rng = ChaCha8Rng::seed_from_u64(9);
    let mut sequence = watching(0.001, 1e4, true, &mut Thresholds::default());
    sequence.least = 0.2;
    assert_eq!(run(&mut sequence, &mut rng, 0.05, 5_000), None);
    assert!(run(&mut sequence, &mut rng, 0.9, 5_000).is_some());
}

#[test]
fn a_signal_teaches_nothing_about_health() {
    let mut rng = ChaCha8Rng::seed_from_u64(10);
    let mut sequence = watching(0.02, 1e5, true, &mut Thresholds::default());
    let mut learned = Learned::default();
    for i in 0..5_000_i64 {
        let share = if i < 2_500 { 0.01 } else { 0.7 };
        let flag = rng.random_bool(share);
        let step = sequence.push(UtcMicros(i * 1_000_000), flag);
        learned.push(flag, step);
    }
    assert!(sequence.raised());
    assert!(learned.share() < 0.03, "{}", learned.share());
}

/// SciPy 1.16: `beta.ppf(.95, 1, 50)` and `beta.ppf(.95, 4, 97)`.
#[test]
fn upper_limits_are_those_of_clopper_and_pearson() {
    assert!((upper_limit(Hits { hits: 0, n: 50 }) - 0.058_155_079).abs() < 1e-6);
    assert!((upper_limit(Hits { hits: 3, n: 100 }) - 0.075_710_7).abs() < 1e-4);
    assert!((upper_limit(Hits::default()) - 1.0).abs() < 1e-12);
}
