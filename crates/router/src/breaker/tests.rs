use proptest::prelude::*;

use super::*;
use crate::outcome::{Incapable, Limit};

const GOOD: Outcome = Outcome::Good;
const BAD: Outcome = Outcome::Failed(Failure { kind: FailureKind::Status(500), retry_after: None });

fn seconds(seconds: u64) -> Duration {
    Duration::from_secs(seconds)
}

fn limited(kind: LimitKind, retry_after: Option<Duration>) -> Outcome {
    Outcome::Limited(Limit { kind, retry_after, elsewhere: false })
}

fn busy(retry_after: Duration) -> Outcome {
    Outcome::Failed(Failure { kind: FailureKind::Overloaded, retry_after: Some(retry_after) })
}

/// A breaker that has just opened after three failures in a row.
fn opened(now: Instant) -> Breaker {
    let mut breaker = Breaker::new(Settings::default());
    for _ in 0..3 {
        assert_eq!(breaker.admit(now), Admit::Pass);
        breaker.record(BAD, None, now);
    }
    assert_eq!(breaker.tripped(), Some(Trip::Failures));
    breaker
}

fn probe(breaker: &mut Breaker, now: Instant) -> u64 {
    match breaker.admit(now) {
        Admit::Probe(probe) => probe,
        other => panic!("no probe: {other:?}"),
    }
}

fn refused(breaker: &mut Breaker, now: Instant) -> bool {
    matches!(breaker.admit(now), Admit::Refuse { .. })
}

#[test]
fn three_failures_in_a_row_open_and_a_success_between_does_not() {
    let now = Instant::now();
    let mut breaker = Breaker::new(Settings::default());
    for outcome in [BAD, BAD, GOOD, BAD, BAD] {
        breaker.record(outcome, None, now);
    }
    assert_eq!(breaker.state(now), State::Closed);
    breaker.record(BAD, None, now);
    assert_eq!(breaker.state(now), State::Open(now + seconds(5)));
    assert_eq!(breaker.admit(now), Admit::Refuse { until: now + seconds(5), asked: false });
}

#[test]
fn after_the_cooldown_one_probe_goes_and_closes_it() {
    let now = Instant::now();
    let mut breaker = opened(now);
    let later = now + seconds(5);
    assert_eq!(breaker.state(later), State::HalfOpen);
    let first = probe(&mut breaker, later);
    assert!(refused(&mut breaker, later), "a second probe");
    breaker.record(GOOD, Some(first), later);
    assert_eq!(breaker.state(later), State::Closed);
    assert_eq!(breaker.admit(later), Admit::Pass);
}

#[test]
fn a_failed_probe_doubles_the_cooldown_up_to_the_longest() {
    let mut now = Instant::now();
    let mut breaker = opened(now);
    for cooldown in [10, 20, 40, 60, 60] {
        let State::Open(until) = breaker.state(now) else { panic!("not open") };
        now = until;
        let probe = probe(&mut breaker, now);
        breaker.record(BAD, Some(probe), now);
        assert_eq!(breaker.state(now), State::Open(now + seconds(cooldown)));
    }
}

#[test]
fn an_outcome_that_says_nothing_releases_the_probe() {
    let now = Instant::now();
    let neutral = [
        Outcome::Neutral,
        Outcome::Incapable(Incapable::Context),
        limited(LimitKind::Rate, Some(seconds(30))),
        limited(LimitKind::Insufficient, None),
    ];
    for outcome in neutral {
        let mut breaker = opened(now);
        let later = now + seconds(5);
        let first = probe(&mut breaker, later);
        breaker.record(outcome, Some(first), later);
        assert_eq!(breaker.state(later), State::HalfOpen, "{outcome}");
        assert_ne!(probe(&mut breaker, later), first);
    }
}

#[test]
fn a_probe_that_is_dropped_or_never_ends_gives_its_slot_back() {
    let now = Instant::now();
    let mut breaker = opened(now);
    let later = now + seconds(5);
    let first = probe(&mut breaker, later);
    breaker.release(first);
    let second = probe(&mut breaker, later);
    assert!(refused(&mut breaker, later + seconds(119)));
    let third = probe(&mut breaker, later + seconds(120));
    assert_ne!(second, third);
    // The lost probe comes back after all: it holds nothing any more.
    breaker.record(GOOD, Some(second), later + seconds(121));
    assert_eq!(breaker.state(later + seconds(121)), State::HalfOpen);
    breaker.record(GOOD, Some(third), later + seconds(122));
    assert_eq!(breaker.state(later + seconds(122)), State::Closed);
}

#[test]
fn what_began_before_it_opened_decides_nothing() {
    let now = Instant::now();
    let mut breaker = opened(now);
    breaker.record(GOOD, None, now);
    breaker.record(BAD, None, now + seconds(1));
    assert_eq!(breaker.state(now), State::Open(now + seconds(5)));
}

#[test]
fn half_of_twenty_calls_opens_and_fewer_calls_do_not() {
    let now = Instant::now();
    let mut breaker = Breaker::new(Settings::default());
    for call in 0..19 {
        breaker.record(if call % 2 == 0 { BAD } else { GOOD }, None, now);
    }
    assert_eq!(breaker.state(now), State::Closed, "19 calls are too few");
    breaker.record(GOOD, None, now);
    assert_eq!(breaker.state(now), State::Closed, "a success never opens");
    breaker.record(BAD, None, now);
    assert_eq!(breaker.tripped(), Some(Trip::Rate));
}

#[test]
fn calls_that_are_too_old_are_not_counted() {
    let now = Instant::now();
    let mut breaker = Breaker::new(Settings::default());
    for call in 0..20 {
        breaker.record(if call % 3 == 2 { GOOD } else { BAD }, None, now + seconds(call * 10));
    }
    assert_eq!(breaker.state(now + seconds(200)), State::Closed);
}

#[test]
fn after_a_failure_rate_one_good_probe_is_not_enough() {
    let now = Instant::now();
    let mut breaker = Breaker::new(Settings::default());
    for call in 0..21 {
        breaker.record(if call % 2 == 0 { BAD } else { GOOD }, None, now);
    }
    assert_eq!(breaker.tripped(), Some(Trip::Rate));
    let mut later = now + seconds(5);
    for outcome in [GOOD, GOOD, BAD] {
        let probe = probe(&mut breaker, later);
        breaker.record(outcome, Some(probe), later);
        assert_ne!(breaker.state(later), State::Closed);
    }
    later += seconds(10);
    // 1 of the last 5 failed: 20 %.
    let first = probe(&mut breaker, later);
    breaker.record(GOOD, Some(first), later);
    assert_eq!(breaker.state(later), State::HalfOpen);
    let second = probe(&mut breaker, later);
    breaker.record(GOOD, Some(second), later);
    assert_eq!(breaker.state(later), State::Closed);
}

#[test]
fn a_retry_after_is_kept_to_the_end_and_no_longer_than_the_ceiling() {
    let now = Instant::now();
    let mut breaker = Breaker::new(Settings::default());
    breaker.record(busy(seconds(30)), None, now);
    assert_eq!(breaker.tripped(), Some(Trip::RetryAfter));
    for request in 0..100 {
        let at = now + Duration::from_millis(request * 299);
        assert_eq!(breaker.admit(at), Admit::Refuse { until: now + seconds(30), asked: true });
    }
    assert!(matches!(breaker.force(now), Admit::Refuse { asked: true, .. }));
    assert!(matches!(breaker.admit(now + seconds(30)), Admit::Probe(_)));
    // 144 hours, as in CLIProxyAPI issue 5404: looked at again after ten minutes.
    let mut breaker = Breaker::new(Settings::default());
    breaker.record(busy(seconds(144 * 3600)), None, now);
    assert_eq!(breaker.state(now), State::Open(now + seconds(600)));
    assert!(matches!(breaker.admit(now + seconds(600)), Admit::Probe(_)));
}

#[test]
fn a_short_wait_is_believed_the_second_time() {
    let now = Instant::now();
    let mut breaker = Breaker::new(Settings::default());
    breaker.record(busy(seconds(1)), None, now);
    assert_eq!(breaker.admit(now), Admit::Pass);
    breaker.record(GOOD, None, now);
    breaker.record(busy(seconds(1)), None, now);
    breaker.record(busy(seconds(1)), None, now);
    assert_eq!(breaker.admit(now), Admit::Refuse { until: now + seconds(1), asked: true });
}

#[test]
fn a_later_wait_replaces_a_shorter_one_and_never_shortens_a_longer_one() {
    let now = Instant::now();
    let mut breaker = Breaker::new(Settings::default());
    breaker.record(busy(seconds(10)), None, now);
    breaker.record(busy(seconds(60)), None, now + seconds(1));
    assert_eq!(breaker.state(now + seconds(1)), State::Open(now + seconds(61)));
    breaker.record(busy(seconds(5)), None, now + seconds(2));
    assert_eq!(breaker.state(now + seconds(2)), State::Open(now + seconds(61)));
}

#[test]
fn a_limit_per_address_rests_the_upstream_and_a_limit_per_key_does_not() {
    let now = Instant::now();
    let mut breaker = Breaker::new(Settings::default());
    for _ in 0..10 {
        breaker.record(limited(LimitKind::Rate, Some(seconds(30))), None, now);
    }
    assert_eq!(breaker.state(now), State::Closed);
    breaker.record(limited(LimitKind::PerIp, Some(seconds(30))), None, now);
    assert_eq!(breaker.state(now), State::Open(now + seconds(30)));
}

#[test]
fn what_it_cannot_do_cools_nothing() {
    let now = Instant::now();
    let mut breaker = Breaker::new(Settings::default());
    for _ in 0..100 {
        breaker.record(Outcome::Incapable(Incapable::Parameter), None, now);
        breaker.record(Outcome::Neutral, None, now);
    }
    assert_eq!(breaker.state(now), State::Closed);
}

#[test]
fn health_checks_open_it_and_end_a_cooldown_but_do_not_close_it() {
    let now = Instant::now();
    let mut breaker = Breaker::new(Settings::default());
    for well in [false, false, true, false, false] {
        breaker.health(well, now);
    }
    assert_eq!(breaker.state(now), State::Closed);
    breaker.health(false, now);
    assert_eq!(breaker.tripped(), Some(Trip::Health));
    breaker.health(false, now + seconds(4));
    assert_eq!(breaker.state(now + seconds(4)), State::Open(now + seconds(9)), "still ill: no probe yet");
    breaker.health(true, now + seconds(6));
    assert_eq!(breaker.state(now + seconds(6)), State::HalfOpen);
    let probe = probe(&mut breaker, now + seconds(6));
    breaker.record(GOOD, Some(probe), now + seconds(6));
    assert_eq!(breaker.state(now + seconds(6)), State::Closed);
}

#[test]
fn a_good_health_check_does_not_end_a_wait_that_was_asked_for() {
    let now = Instant::now();
    let mut breaker = Breaker::new(Settings::default());
    breaker.record(busy(seconds(30)), None, now);
    breaker.health(true, now + seconds(1));
    assert!(refused(&mut breaker, now + seconds(29)));
    assert!(matches!(breaker.admit(now + seconds(30)), Admit::Probe(_)));
}

#[test]
fn the_first_content_of_a_probe_closes_it_unless_streams_were_cut() {
    let now = Instant::now();
    let later = now + seconds(5);
    let mut breaker = opened(now);
    let first = probe(&mut breaker, later);
    breaker.first_content(first, later);
    assert_eq!(breaker.state(later), State::Closed);

    let mut breaker = Breaker::new(Settings::default());
    for _ in 0..3 {
        breaker.record(FailureKind::Cut.into(), None, now);
    }
    let first = probe(&mut breaker, later);
    breaker.first_content(first, later);
    assert_eq!(breaker.state(later), State::HalfOpen);
    breaker.record(GOOD, Some(first), later + seconds(20));
    assert_eq!(breaker.state(later + seconds(20)), State::Closed);
}

#[test]
fn the_last_resort_goes_through_and_its_outcome_counts() {
    let now = Instant::now();
    let mut breaker = opened(now);
    let Admit::Probe(forced) = breaker.force(now) else { panic!("no probe") };
    assert_eq!(breaker.force(now), Admit::Pass, "the slot is taken: it goes without");
    breaker.record(GOOD, Some(forced), now);
    assert_eq!(breaker.state(now), State::Closed);
}

proptest! {
    /// While it is open without a Retry-After, at least one of 20 requests in a row goes through as a probe,
    /// whatever the probes say, as long as they end.
    #[test]
    fn the_floor_share_holds(outcomes in prop::collection::vec(0..3_u8, 200)) {
        let now = Instant::now();
        let settings = Settings { cooldown: seconds(3600), max_cooldown: seconds(3600), probation: 1000, ..Settings::default() };
        let mut breaker = Breaker::new(settings);
        for call in 0..21 {
            breaker.record(if call % 2 == 0 { BAD } else { GOOD }, None, now);
        }
        let mut since = 0;
        for outcome in outcomes {
            since += 1;
            if let Admit::Probe(probe) = breaker.admit(now) {
                since = 0;
                match outcome {
                    0 => breaker.record(BAD, Some(probe), now),
                    1 => breaker.record(Outcome::Neutral, Some(probe), now),
                    _ => breaker.release(probe),
                }
            }
            prop_assert!(since < 20, "{since} requests without a probe");
        }
    }

    /// However requests, outcomes and time follow each other, there are never two probes at once, and what is
    /// open always ends.
    #[test]
    fn never_two_probes(steps in prop::collection::vec((0..6_u8, 0..20_000_u64), 1..300)) {
        let mut now = Instant::now();
        let mut breaker = Breaker::new(Settings { probe_timeout: seconds(3600 * 24), ..Settings::default() });
        let mut held: Option<u64> = None;
        for (step, wait) in steps {
            now += Duration::from_millis(wait);
            match (step, held.take()) {
                (0 | 1, before) => match breaker.admit(now) {
                    Admit::Probe(probe) => {
                        prop_assert!(before.is_none(), "a probe beside {before:?}");
                        held = Some(probe);
                    }
                    Admit::Pass | Admit::Refuse { .. } => held = before,
                },
                (2, probe) => breaker.record(GOOD, probe, now),
                (3, probe) => breaker.record(BAD, probe, now),
                (4, probe) => breaker.record(busy(seconds(wait)), probe, now),
                (_, probe) => {
                    if let Some(probe) = probe {
                        breaker.release(probe);
                    }
                }
            }
        }
        if let Some(probe) = held {
            breaker.release(probe);
        }
        let open = refused(&mut breaker, now + Settings::default().max_retry_after);
        prop_assert!(!open, "still open after the longest wait");
    }
}
