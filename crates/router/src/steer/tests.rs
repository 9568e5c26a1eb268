use std::fmt::Write as _;

use proptest::prelude::*;
use sseismo_trace::{Evidence, Micros, Scope, SignalId, UtcMicros};

use super::*;
use crate::choice::Ask;
use crate::config::check_in;
use crate::outcome::{Failure, FailureKind, Outcome};

const BAD: Outcome = Outcome::Failed(Failure { kind: FailureKind::Cut, retry_after: None });

/// A chat call of a session.
fn ask_of(session: u64) -> Ask<'static> {
    Ask { model: "m", api: Some(sseismo_trace::Api::Chat), session: Some(session), ..Ask::default() }
}

/// A router over `a`, then `b`; `c` shares the first tier where it is named.
fn router(signals: &str, tiers: &str, now: Instant) -> Arc<Router> {
    let mut text = format!("[signals]\n{signals}\n");
    for name in ["a", "b", "c"] {
        write!(
            text,
            "[[upstream]]\nname = \"{name}\"\nurl = \"http://{name}.example/v1\"\napis = [\"chat\"]\norganisation = \"o\"\n"
        )
        .unwrap();
    }
    write!(text, "[[route]]\nmodel = \"m\"\n{tiers}\n").unwrap();
    let config = check_in(&text, std::path::Path::new(""), &|_| None);
    Arc::new(Router::new(config.unwrap_or_else(|faults| panic!("{faults:#?}")), &|_| None, 7, now))
}

const TIERS: &str = "tiers = [[\"a\"], [\"b\"]]";

fn signal(id: u64, upstream: Option<&str>, detail: Detail, state: SignalState) -> Signal {
    Signal {
        id: SignalId(id),
        target: Scope {
            upstream: upstream.map(str::to_owned),
            model: Some("m".to_owned()),
            ..Scope::default()
        },
        detail,
        cause: None,
        state,
        strength: 1.0,
        evidence: Evidence::default(),
        at: clock::now(),
        ttl: Micros(3_600_000_000),
    }
}

const BURST: Detail = Detail::Burst { gap_s: 1.5, tokens: 60.0 };

fn onset(router: &Router, detail: Detail, now: Instant) -> Answer {
    router.signal(signal(1, Some("a"), detail, SignalState::Onset), Source::Detector, now)
}

/// Ends so many attempts at `a` badly.
fn fail(router: &Router, count: u32, now: Instant) {
    let target = Target { upstream: Some("a".to_owned()), ..Target::default() };
    for lane in router.lanes_of(&target) {
        (0..count).for_each(|_| lane.harm().ended(BAD, now));
    }
}

/// How many of 1,000 calls with sessions go to `a` first, and what was told about them.
fn to_a(router: &Arc<Router>, now: Instant) -> (u32, usize, usize) {
    let (mut calls, mut told, mut would) = (0, 0, 0);
    for session in 0..1_000 {
        let ask = ask_of(session);
        let mut plan = router.candidates(&ask, now).unwrap();
        let attempt = plan.next(now).unwrap();
        calls += u32::from(&*attempt.upstream.name == "a");
        told += plan.told().len();
        would += plan.would_have().len();
    }
    (calls, told, would)
}

#[test]
fn nothing_moves_unless_the_configuration_says_so() {
    let now = Instant::now();
    let router = router("", TIERS, now);
    let answer = onset(&router, BURST, now);
    assert_eq!(answer, Answer { action: Effect::StepShare, acted: false, held: Some(Held::NoHarm) });
    fail(&router, 30, now);
    let answer = onset(&router, BURST, now);
    assert_eq!(answer.held, Some(Held::ObserveOnly));
    let (calls, told, would) = to_a(&router, now);
    assert_eq!((calls, told), (1_000, 0));
    assert!((150..250).contains(&would), "a fifth of the calls would have moved: {would}");
}

#[test]
fn a_signature_without_harm_moves_nothing_and_with_harm_it_does() {
    let now = Instant::now();
    let router = router("act = true", TIERS, now);
    assert_eq!(onset(&router, BURST, now).held, Some(Held::NoHarm));
    assert_eq!(to_a(&router, now).0, 1_000);
    fail(&router, 30, now);
    assert!(onset(&router, BURST, now).acted);
    let (calls, told, would) = to_a(&router, now);
    assert!((750..850).contains(&calls), "{calls} of 1,000 stay");
    assert_eq!((told, would), (1_000 - usize::try_from(calls).unwrap(), 0), "each call that moved is told");
    // Down to the floor and no further, for as long as it is signalled.
    for second in 1..300 {
        let later = now + Duration::from_secs(second);
        fail(&router, 30, later);
        router.steer(later);
    }
    let later = now + Duration::from_mins(5);
    let (calls, ..) = to_a(&router, later);
    assert!((30..75).contains(&calls), "5 % stay: {calls}");
    // It is over: back step by step.
    router.signal(signal(1, Some("a"), BURST, SignalState::Clear), Source::Detector, later);
    assert!(to_a(&router, later).0 < 75);
    let mut whole = None;
    for second in 300..700 {
        let later = now + Duration::from_secs(second);
        router.steer(later);
        if whole.is_none() && router.steering_snapshot().is_quiet() {
            whole = Some(second - 300);
        }
    }
    let whole = whole.unwrap();
    assert!((30 + 13 * 10..30 + 15 * 10).contains(&whole), "14 steps of 10 s after 30 s: {whole}");
    assert_eq!(to_a(&router, now + Duration::from_secs(700)).0, 1_000);
}

#[test]
fn a_share_comes_back_when_harm_is_known_to_be_gone_and_stays_while_that_is_unknown() {
    let start = Instant::now();
    let router = router("act = true\n[signals.burst]\neffect = \"cool\"", TIERS, start);
    fail(&router, 30, start);
    onset(&router, BURST, start);
    let share = |router: &Router| router.steering_snapshot().shares[0].acted;
    let later = |seconds| start + Duration::from_secs(seconds);
    for second in 1..200 {
        router.steer(later(second));
    }
    assert!((share(&router) - FLOOR).abs() < 1e-9, "the errors are old, nothing is known since");
    let target = Target { upstream: Some("a".to_owned()), ..Target::default() };
    for second in 200..300 {
        for lane in router.lanes_of(&target) {
            (0..5).for_each(|_| lane.harm().ended(Outcome::Good, later(second)));
        }
        router.steer(later(second));
        if second < 225 {
            assert!((share(&router) - FLOOR).abs() < 1e-9, "not before it is calm");
        }
    }
    assert!(share(&router) > 3.0 * FLOOR, "{}", share(&router));
    fail(&router, 200, later(300));
    router.steer(later(311));
    assert!((share(&router) - FLOOR).abs() < 1e-9, "harm is back, and so is the effect after a dwell");
}

#[test]
fn a_session_that_was_moved_stays_moved() {
    let now = Instant::now();
    let router = router("act = true", TIERS, now);
    fail(&router, 30, now);
    onset(&router, BURST, now);
    let first = |session, now| {
        let ask = ask_of(session);
        router.candidates(&ask, now).unwrap().next(now).unwrap().upstream.name.clone()
    };
    let before: Vec<_> = (0..200).map(|session| first(session, now)).collect();
    let later = now + Duration::from_secs(11);
    fail(&router, 30, later);
    let after: Vec<_> = (0..200).map(|session| first(session, later)).collect();
    let came_back =
        before.iter().zip(&after).filter(|(before, after)| &***before == "b" && &***after == "a").count();
    let left =
        before.iter().zip(&after).filter(|(before, after)| &***before == "a" && &***after == "b").count();
    assert!(came_back == 0 && left > 10, "{came_back} came back, {left} more left");
}

#[test]
fn a_lattice_takes_labels_and_other_harm_is_none() {
    let now = Instant::now();
    let router = router("act = true", TIERS, now);
    let lattice = Detail::CountLattice { step: 518, offset: 516 };
    fail(&router, 100, now);
    assert_eq!(onset(&router, lattice, now).held, Some(Held::NoLabelledHarm));
    assert_eq!(to_a(&router, now).0, 1_000);
    (0..30).for_each(|n| router.label("a", "m", n % 3 > 0, now));
    assert!(onset(&router, lattice, now).acted);
}

#[test]
fn a_signal_that_names_nobody_or_blames_us_moves_nothing() {
    let now = Instant::now();
    let router = router("act = true", TIERS, now);
    fail(&router, 30, now);
    for (upstream, cause, held) in [
        (None, None, Held::NoUpstream),
        (Some("elsewhere"), None, Held::NoUpstream),
        (Some("a"), Some(Cause::SlowReader), Held::OwnDoing),
    ] {
        let signal = Signal { cause, ..signal(1, upstream, BURST, SignalState::Onset) };
        assert_eq!(router.signal(signal, Source::Admin, now).held, Some(held));
        assert_eq!(to_a(&router, now).0, 1_000);
    }
}

#[test]
fn spilling_moves_the_calls_that_the_signal_is_about_and_keeps_the_floor() {
    let now = Instant::now();
    let router = router("act = true", TIERS, now);
    fail(&router, 30, now);
    onset(&router, Detail::SizeWindow { lo: 150, hi: 220 }, now);
    let first = |session, tokens| {
        let ask = Ask { prompt_tokens: Some(tokens), ..ask_of(session) };
        router.candidates(&ask, now).unwrap().next(now).unwrap().upstream.name.clone()
    };
    let stay = |tokens| (0..1_000).filter(|session| &*first(*session, tokens) == "a").count();
    assert_eq!((stay(149), stay(221)), (1_000, 1_000));
    assert!((30..75).contains(&stay(150)), "{}", stay(150));
}

#[test]
fn a_limit_holds_deep_calls_back_while_so_many_are_in_flight() {
    let now = Instant::now();
    let signals = "act = true\n[signals.concurrency]\neffect = \"limit-concurrency\"\nlimit = 2";
    let router = router(signals, TIERS, now);
    fail(&router, 30, now);
    onset(&router, Detail::Concurrency { calls: 9, window_s: 4.0 }, now);
    let go = |effort| {
        let ask = Ask { effort: Some(effort), ..ask_of(5) };
        router.candidates(&ask, now).unwrap().next(now).unwrap()
    };
    let names = |attempts: &[crate::choice::Attempt]| {
        attempts.iter().map(|attempt| attempt.upstream.name.to_string()).collect::<Vec<_>>()
    };
    let held: Vec<_> = (0..4).map(|_| go("high")).collect();
    assert_eq!(names(&held), ["a", "a", "b", "b"]);
    assert_eq!(held[2].reason, crate::choice::Reason::Steered);
    assert_eq!(&*go("low").upstream.name, "a");
    drop(held);
    assert_eq!(&*go("high").upstream.name, "a");
}

#[test]
fn effort_is_lowered_where_it_is_stated() {
    let now = Instant::now();
    let router = router("act = true\n[signals.burst]\neffect = \"lower-effort\"", TIERS, now);
    fail(&router, 30, now);
    onset(&router, BURST, now);
    for (effort, steps) in [(Some("high"), 1), (Some("low"), 0), (None, 0)] {
        let ask = Ask { model: "m", api: Some(sseismo_trace::Api::Chat), effort, ..Ask::default() };
        let mut plan = router.candidates(&ask, now).unwrap();
        let attempt = plan.next(now).unwrap();
        assert_eq!((&*attempt.upstream.name, attempt.adjust.steps), ("a", steps));
        assert_eq!(plan.told().len(), usize::from(steps));
    }
}

/// A lane under a signal of an hour's age has learned that this is how it is.
#[test]
fn a_signal_that_lives_on_does_not_keep_its_lane_from_learning() {
    let start = Instant::now();
    let router = router("act = true", TIERS, start);
    let target = Target { upstream: Some("a".to_owned()), ..Target::default() };
    let wait = |ms, seconds: std::ops::Range<u64>| {
        for second in seconds {
            let now = start + Duration::from_secs(second);
            if second % 60 == 0 {
                onset(&router, BURST, now);
            }
            router.steer(now);
            router
                .lanes_of(&target)
                .for_each(|lane| lane.harm().waited("", None, Duration::from_millis(ms), now));
        }
    };
    let seen = |second| {
        let lane = router.lanes_of(&target).next().unwrap();
        lane.harm().seen(start + Duration::from_secs(second)).waits
    };
    wait(1_000, 0..3_000);
    assert_eq!(seen(3_000), harm::Seen::Unknown);
    wait(1_000, 3_000..4_000);
    assert!(matches!(seen(4_000), harm::Seen::Ordinary(_)));
    wait(3_000, 4_000..4_050);
    assert!(seen(4_050).is_harm());
}

#[test]
fn who_has_nowhere_to_go_stays_and_is_told_so() {
    let now = Instant::now();
    let router = router("act = true\n[signals.burst]\neffect = \"cool\"", "tiers = [[\"a\"]]", now);
    fail(&router, 30, now);
    assert!(onset(&router, BURST, now).acted);
    let (calls, told, would) = to_a(&router, now);
    assert_eq!((calls, told), (1_000, 0));
    assert!(would > 900, "{would}");
}

#[test]
fn the_fallbacks_cap_stands_above_signals() {
    let now = Instant::now();
    let tiers = format!("{TIERS}\nfallback_in_flight = 3");
    let router = router("act = true\n[signals.burst]\neffect = \"cool\"", &tiers, now);
    fail(&router, 30, now);
    onset(&router, BURST, now);
    let mut held = Vec::new();
    for session in 0..200 {
        let ask = ask_of(session);
        held.push(router.candidates(&ask, now).unwrap().next(now).unwrap());
    }
    assert_eq!(held.iter().filter(|attempt| &*attempt.upstream.name == "b").count(), 3);
}

#[test]
fn shares_and_signals_outlive_a_changed_configuration() {
    let now = Instant::now();
    let before = router("act = true\n[signals.burst]\neffect = \"cool\"", TIERS, now);
    fail(&before, 30, now);
    onset(&before, BURST, now);
    let after = Arc::new(before.reconfigured(before.config().clone(), &|_| None, now));
    let (calls, ..) = to_a(&after, now + Duration::from_secs(1));
    assert!((30..75).contains(&calls), "{calls}");
}

/// Whatever the effect, nothing moves and nothing is changed, and each call that would have been is told.
#[test]
fn every_effect_is_told_and_not_done_while_it_only_observes() {
    let now = Instant::now();
    for (signature, detail) in [
        ("burst", BURST),
        ("size-window", Detail::SizeWindow { lo: 50, hi: 200 }),
        ("concurrency", Detail::Concurrency { calls: 7, window_s: 4.0 }),
        ("saturation", Detail::Saturation { prompt_tokens: 50, numeric_share: 0.0 }),
        ("count-lattice", Detail::CountLattice { step: 518, offset: 516 }),
        ("retry-amplification", Detail::RetryAmplification { attempts_per_turn: 3.0 }),
    ] {
        for effect in Effect::ALL {
            let name = effect.name();
            let limit = if effect == Effect::LimitConcurrency { "limit = 3" } else { "" };
            let signals = format!("[signals.{signature}]\neffect = \"{name}\"\n{limit}");
            let router = router(&signals, TIERS, now);
            fail(&router, 30, now);
            (0..30).for_each(|_| router.label("a", "m", false, now));
            assert!(!onset(&router, detail, now).acted);
            let (mut held, mut would, mut done) = (Vec::new(), 0, 0);
            for session in 0..100 {
                let ask = Ask { effort: Some("high"), prompt_tokens: Some(100), ..ask_of(session) };
                let mut plan = router.candidates(&ask, now).unwrap();
                held.push(plan.next(now).unwrap());
                (would, done) = (would + plan.would_have().len(), done + plan.told().len());
                assert!(plan.would_have().iter().all(|told| told.action == name && told.why.is_some()));
            }
            assert!(held.iter().all(|held| &*held.upstream.name == "a" && held.adjust.is_nothing()));
            assert_eq!(done, 0, "{signature} {name}");
            let expected = match effect {
                Effect::Observe => 0..=0,
                Effect::StepShare => 10..=30,
                Effect::Cool | Effect::Spill | Effect::LimitConcurrency => 85..=100,
                Effect::LowerEffort => 100..=100,
            };
            assert!(expected.contains(&would), "{signature} {name}: {would}");
        }
    }
}

#[test]
fn whoever_turns_acting_off_gets_the_traffic_back_at_once() {
    let now = Instant::now();
    let before = router("act = true\n[signals.burst]\neffect = \"cool\"", TIERS, now);
    fail(&before, 30, now);
    onset(&before, BURST, now);
    assert!(to_a(&before, now).0 < 100);
    let off = router("act = false\n[signals.burst]\neffect = \"cool\"", TIERS, now);
    let after = Arc::new(before.reconfigured(off.config().clone(), &|_| None, now));
    assert_eq!(to_a(&after, now + Duration::from_secs(1)).0, 1_000);
}

#[derive(Clone, Debug)]
struct Blow {
    id: u64,
    upstream: usize,
    kind: usize,
    state: usize,
    effort: bool,
    ttl_ms: i64,
}

fn blow() -> impl Strategy<Value = Blow> {
    (0..40_u64, 0..4_usize, 0..6_usize, 0..4_usize, any::<bool>(), 1..120_000_i64).prop_map(
        |(id, upstream, kind, state, effort, ttl_ms)| Blow { id, upstream, kind, state, effort, ttl_ms },
    )
}

fn blown(blow: &Blow) -> Signal {
    let detail = [
        BURST,
        Detail::CountLattice { step: 518, offset: 516 },
        Detail::SizeWindow { lo: 0, hi: u32::MAX },
        Detail::Concurrency { calls: 7, window_s: 4.0 },
        Detail::Saturation { prompt_tokens: 0, numeric_share: 0.0 },
        Detail::RetryAmplification { attempts_per_turn: 3.0 },
    ][blow.kind];
    let states = [SignalState::Onset, SignalState::Onset, SignalState::Refresh, SignalState::Clear];
    let mut signal =
        signal(blow.id, [Some("a"), Some("b"), Some("c"), None][blow.upstream], detail, states[blow.state]);
    signal.target.effort = blow.effort.then(|| "high".to_owned());
    signal.ttl = Micros(blow.ttl_ms * 1_000);
    signal
}

/// A deep call that the route's policies are asked about, and which fails as far as they know.
fn storm_call(router: &Arc<Router>, session: u64, now: Instant) -> crate::choice::Attempt {
    let members = crate::rewrite::Members::default();
    let known = crate::policy::Known {
        api: sseismo_trace::Api::Chat,
        model: "m",
        effort: Some("high"),
        prompt_tokens: 100,
        streamed: true,
        caller: None,
        session: Some(session),
        turn: (session, 1),
        draw: session,
        members: &members,
        body: b"{}",
    };
    let considered = router.consider(&known, now).unwrap();
    let ask = Ask { effort: Some("high"), prompt_tokens: Some(100), ..ask_of(session) };
    let mut plan = router.candidates(&ask, now).unwrap();
    plan.heed(&considered.advised);
    let attempt = plan.next(now).unwrap();
    let failed = crate::access::Tried { upstream: "a".to_owned(), kind: "status", ..Default::default() };
    considered.ended(&mut crate::access::Entry { attempts: vec![failed], ..Default::default() }, now);
    attempt
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(24))]
    /// A storm of false signals, an onset every second and worse, with harm everywhere and every effect at its
    /// strongest, and a policy that moves the primary's share besides, because everything fails there: those
    /// calls that make up the floor, one in twenty of each upstream's, go where they always went, and no more
    /// calls are in flight at the fallback than its cap says.
    #[test]
    fn no_storm_takes_an_upstream_below_its_floor_or_the_fallback_above_its_cap(
        blows in prop::collection::vec(blow(), 20..120),
        kind in 0..4_usize,
    ) {
        let effect = ["step-share", "cool", "spill", "limit-concurrency"][kind];
        let mut signals = "act = true\nchanges = 1000\ndwell = \"1ms\"".to_owned();
        for name in ["burst", "count-lattice", "size-window", "concurrency", "saturation", "retry-amplification"] {
            let limit = if effect == "limit-concurrency" { "limit = 2" } else { "" };
            write!(signals, "\n[signals.{name}]\neffect = \"{effect}\"\n{limit}").unwrap();
        }
        let tiers = "tiers = [[{ upstream = \"a\", weight = 3 }, { upstream = \"c\", weight = 1 }], [\"b\"]]\n\
            fallback_in_flight = 5\n[route.aimd_share]\nact = true\ndwell = \"1ms\"";
        let mut now = Instant::now();
        let router = router(&signals, tiers, now);
        let spared: Vec<u64> = (0..2_000).filter(|session| draw(*session) <= FLOOR).collect();
        prop_assert!((60..140).contains(&spared.len()), "one in twenty: {}", spared.len());
        let upstream = |session, now| storm_call(&router, session, now).upstream.name.clone();
        let ordinary: Vec<_> = spared.iter().map(|session| upstream(*session, now)).collect();
        prop_assert!(ordinary.iter().any(|name| &**name == "c"));
        for blow in &blows {
            now += Duration::from_millis(700);
            for lane in router.lanes_of(&Target::default()) {
                (0..25).for_each(|_| lane.harm().ended(BAD, now));
                (0..25).for_each(|_| lane.harm().label(false, now));
            }
            router.signal(blown(blow), Source::Admin, now);
            let held: Vec<_> = (0..12).map(|session| storm_call(&router, session, now)).collect();
            let fallback = held.iter().filter(|attempt| &*attempt.upstream.name == "b").count();
            prop_assert!(fallback <= 5, "{fallback} calls at the fallback");
            for (session, ordinary) in spared.iter().zip(&ordinary).take(40) {
                prop_assert_eq!(&upstream(*session, now), ordinary, "session {}", session);
            }
            drop(held);
        }
    }
}

#[test]
fn a_storm_cannot_change_a_share_more_often_than_it_may() {
    let start = Instant::now();
    let router = router("act = true", TIERS, start);
    let mut last = 1.0;
    let mut changes = Vec::new();
    for second in 0..240_u64 {
        let now = start + Duration::from_secs(second);
        fail(&router, 25, now);
        let detail = [BURST, Detail::SizeWindow { lo: 0, hi: 9_999 }][usize::try_from(second % 2).unwrap()];
        let state = [SignalState::Onset, SignalState::Clear][usize::try_from(second / 7 % 2).unwrap()];
        router.signal(signal(second % 5, Some("a"), detail, state), Source::Detector, now);
        router.steer(now);
        let snapshot = router.steering_snapshot();
        let share: f64 = snapshot.shares.iter().map(|kept| kept.acted).sum();
        if (share - last).abs() > 1e-9 {
            changes.push(second);
            last = share;
        }
        let lately = changes.iter().filter(|at| second - **at < 60).count();
        // A share that is whole again and forgotten changes the sum as well.
        assert!(lately <= 8, "{lately} changes in a minute: {changes:?}");
    }
    assert!(changes.len() > 2, "{changes:?}");
}

#[test]
fn what_does_not_fit_into_a_signal_counts_for_nothing() {
    let now = Instant::now();
    let router = router("act = true", TIERS, now);
    fail(&router, 30, now);
    let stale = Signal { at: UtcMicros(0), ..signal(1, Some("a"), BURST, SignalState::Onset) };
    router.signal(stale, Source::Admin, now);
    assert!(router.steering_snapshot().is_quiet(), "it had run out before it came");
}
