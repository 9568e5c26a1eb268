use proptest::prelude::*;

use super::*;
use crate::config::check_in;
use crate::outcome::{Failure, FailureKind, Incapable, Limit, LimitKind, Outcome};

const GOOD: Outcome = Outcome::Good;
const BAD: Outcome = Outcome::Failed(Failure { kind: FailureKind::Status(500), retry_after: None });

fn env(name: &str) -> Option<String> {
    name.starts_with("KEY").then(|| format!("sk-{name}"))
}

fn config(text: &str) -> Config {
    check_in(text, std::path::Path::new(""), &env).unwrap_or_else(|faults| panic!("{faults:#?}"))
}

fn router(text: &str, now: Instant) -> Arc<Router> {
    Arc::new(Router::new(config(text), &env, 7, now))
}

/// An upstream that speaks everything, with more lines.
fn upstream(name: &str, more: &str) -> String {
    format!(
        "[[upstream]]\nname = \"{name}\"\nurl = \"http://{name}.example/v1\"\n{}{more}\n",
        if more.contains("apis") { "" } else { "apis = [\"responses\", \"chat\", \"messages\"]\n" }
    )
}

fn two_tiers(more: &str) -> String {
    format!(
        "{}{}[[route]]\nmodel = \"m\"\ntiers = [[\"a\"], [\"b\"]]\n{more}\n",
        upstream("a", ""),
        upstream("b", "")
    )
}

fn ask() -> Ask<'static> {
    Ask { model: "m", api: Some(Api::Responses), ..Ask::default() }
}

/// Runs one request against upstreams of which those in `dead` fail; the upstreams that were asked, in order.
fn run(router: &Arc<Router>, ask: &Ask<'_>, dead: &[&str], now: Instant) -> (Vec<String>, Option<Stop>) {
    let mut plan = match router.candidates(ask, now) {
        Ok(plan) => plan,
        Err(stop) => return (Vec::new(), Some(stop)),
    };
    let mut asked = Vec::new();
    loop {
        let attempt = match plan.next(now) {
            Ok(attempt) => attempt,
            Err(stop) => return (asked, Some(stop)),
        };
        let name = attempt.upstream.name.to_string();
        let outcome = if dead.contains(&name.as_str()) { BAD } else { GOOD };
        asked.push(name);
        plan.report(attempt, outcome, now);
        if outcome == GOOD {
            return (asked, None);
        }
    }
}

fn first(router: &Arc<Router>, ask: &Ask<'_>, now: Instant) -> Attempt {
    router.candidates(ask, now).unwrap().next(now).unwrap()
}

#[test]
fn a_dead_primary_is_hit_three_times_and_comes_back() {
    let now = Instant::now();
    let router = router(&two_tiers(""), now);
    let runs: Vec<_> = (0..8).map(|_| run(&router, &ask(), &["a"], now)).collect();
    assert!(runs.iter().all(|(_, stop)| stop.is_none()), "every request is served");
    let hits = runs.iter().filter(|(asked, _)| asked.contains(&"a".to_owned())).count();
    assert_eq!(hits, 3, "{runs:?}");
    let later = now + Duration::from_secs(5);
    let mut plan = router.candidates(&ask(), later).unwrap();
    let probe = plan.next(later).unwrap();
    assert_eq!((&*probe.upstream.name, probe.reason), ("a", Reason::Probe));
    // Beside the probe everybody else stays with the fallback.
    let beside = first(&router, &ask(), later);
    assert_eq!((&*beside.upstream.name, beside.reason, beside.fallback), ("b", Reason::NextTier, true));
    plan.report(probe, GOOD, later);
    assert_eq!(plan.next(later).unwrap_err(), Stop::Settled);
    assert_eq!(&*first(&router, &ask(), later).upstream.name, "a");
}

#[test]
fn a_client_that_leaves_counts_for_nothing_and_frees_the_probe() {
    let now = Instant::now();
    let router = router(&two_tiers(""), now);
    for _ in 0..3 {
        run(&router, &ask(), &["a"], now);
    }
    let later = now + Duration::from_secs(5);
    drop(first(&router, &ask(), later));
    assert_eq!(first(&router, &ask(), later).reason, Reason::Probe);
}

#[test]
fn what_the_client_did_wrong_is_not_tried_elsewhere() {
    let now = Instant::now();
    let router = router(&two_tiers(""), now);
    let mut plan = router.candidates(&ask(), now).unwrap();
    let attempt = plan.next(now).unwrap();
    plan.report(attempt, Outcome::Neutral, now);
    assert_eq!(plan.next(now).unwrap_err(), Stop::Settled);
}

#[test]
fn an_upstream_that_cannot_take_it_is_passed_over_without_cooling() {
    let now = Instant::now();
    let text = format!(
        "{}{}{}[[route]]\nmodel = \"m\"\ntiers = [[\"a\"], [\"b\"], [\"c\"]]\n",
        upstream("a", "context_limit = 1000"),
        upstream("b", "context_limit = 900"),
        upstream("c", "context_limit = 5000")
    );
    let router = router(&text, now);
    for _ in 0..10 {
        let mut plan = router.candidates(&ask(), now).unwrap();
        let attempt = plan.next(now).unwrap();
        assert_eq!(&*attempt.upstream.name, "a");
        plan.report(attempt, Outcome::Incapable(Incapable::Context), now);
        let next = plan.next(now);
        // `b` is smaller still. The budget of a quiet second covers these ten.
        assert_eq!(&*next.unwrap().upstream.name, "c");
    }
    let big = Ask { prompt_tokens: Some(3000), ..ask() };
    assert_eq!(&*first(&router, &big, now).upstream.name, "c");
    // Sizes are estimates: nobody is refused for one, the widest judges by itself.
    let huge = Ask { prompt_tokens: Some(9_000_000), ..ask() };
    assert_eq!(&*first(&router, &huge, now).upstream.name, "c");
}

#[test]
fn a_rate_limit_goes_to_the_other_key_first_and_rests_the_first() {
    let now = Instant::now();
    let text = format!(
        "{}{}[[route]]\nmodel = \"m\"\ntiers = [[\"a\"], [\"b\"]]\n",
        upstream("a", "keys = [\"env:KEY1\", \"env:KEY2\"]"),
        upstream("b", "")
    );
    let router = router(&text, now);
    let limit = |kind, elsewhere| {
        Outcome::Limited(Limit { kind, retry_after: Some(Duration::from_secs(20)), elsewhere })
    };
    let mut plan = router.candidates(&ask(), now).unwrap();
    let one = plan.next(now).unwrap();
    let slot = one.key.as_ref().unwrap().slot;
    plan.report(one, limit(LimitKind::Rate, false), now);
    let two = plan.next(now).unwrap();
    assert_eq!((&*two.upstream.name, two.reason), ("a", Reason::OtherKey));
    assert_ne!(two.key.as_ref().unwrap().slot, slot);
    plan.report(two, limit(LimitKind::Rate, true), now);
    let three = plan.next(now).unwrap();
    assert_eq!((&*three.upstream.name, three.reason), ("b", Reason::NextTier));
    drop(three);
    // Both keys rest now; the breaker has seen no failure.
    assert_eq!(&*first(&router, &ask(), now).upstream.name, "b");
    assert!(router.breakers(now).iter().all(|view| view.state == State::Closed));
    assert_eq!(&*first(&router, &ask(), now + Duration::from_secs(20)).upstream.name, "a");
}

#[test]
fn after_a_failure_another_region_of_the_tier_goes_first() {
    let now = Instant::now();
    let text = format!(
        "{}{}{}[[route]]\nmodel = \"m\"\ntiers = [[{{ upstream = \"us1\", weight = 9 }}, {{ upstream = \"us2\", weight = 9 }}, {{ upstream = \"eu\", weight = 0.001 }}]]\n",
        upstream("us1", "region = \"us\""),
        upstream("us2", "region = \"us\""),
        upstream("eu", "region = \"eu\"")
    );
    let router = router(&text, now);
    for _ in 0..5 {
        let mut plan = router.candidates(&ask(), now).unwrap();
        let attempt = plan.next(now).unwrap();
        let region = attempt.upstream.region.clone();
        plan.report(attempt, BAD, now);
        let next = plan.next(now).unwrap();
        assert_ne!(next.upstream.region, region);
        assert_eq!(next.reason, Reason::OtherRegion);
        next.end(GOOD, now);
        router.candidates(&ask(), now).unwrap().next(now).unwrap().end(GOOD, now);
    }
}

#[test]
fn state_stays_with_its_issuer_and_the_error_says_so() {
    let now = Instant::now();
    let text = two_tiers("");
    let router = router(&text, now);
    let keys = router.state_keys(&["gAAA".to_owned()]);
    // The primary is dead, so the fallback answers and issues the state.
    run(&router, &ask(), &["a"], now);
    let issuer = router.config().upstreams[1].clone();
    router.issued(&keys, &issuer);
    let bound = Ask { state: &keys, ..ask() };
    let attempt = first(&router, &bound, now);
    assert_eq!(&*attempt.upstream.name, "b");
    drop(attempt);
    let (asked, stop) = run(&router, &bound, &["b"], now);
    assert_eq!(asked, ["b"]);
    let stop = stop.unwrap();
    assert!(stop.to_string().contains("only `b` can read"), "{stop}");
    assert_eq!(stop.status(), 503);
    // State of two organisations can be read by neither.
    let other = router.state_keys(&["gBBB".to_owned()]);
    router.issued(&other, &router.config().upstreams[0]);
    let both = [keys[0], other[0]];
    let stop = router.candidates(&Ask { state: &both, ..ask() }, now).unwrap_err();
    assert_eq!(stop.name(), "mixed-state");
}

#[test]
fn state_of_an_unknown_issuer_goes_to_one_organisation_or_is_refused() {
    let now = Instant::now();
    let open = router(&two_tiers(""), now);
    let keys = open.state_keys(&["gAAA".to_owned()]);
    let bound = Ask { state: &keys, ..ask() };
    let (asked, stop) = run(&open, &bound, &["a"], now);
    assert_eq!((asked, stop.unwrap().name()), (vec!["a".to_owned()], "state-bound"));
    let strict = router(&two_tiers("[affinity]\nunknown_state = \"refuse\""), now);
    assert_eq!(strict.candidates(&bound, now).unwrap_err(), Stop::UnknownState);
    // With one organisation there is nothing to guess.
    let text = two_tiers("[affinity]\nunknown_state = \"refuse\"")
        .replace("[[upstream]]", "[[upstream]]\norganisation = \"one\"");
    assert_eq!(run(&router(&text, now), &bound, &["a"], now).0, ["a", "b"]);
}

#[test]
fn sessions_stay_where_they_are_and_others_spread() {
    let now = Instant::now();
    let text = format!(
        "{}{}[[route]]\nmodel = \"m\"\ntiers = [[\"a\", \"b\"]]\n",
        upstream("a", ""),
        upstream("b", "")
    );
    let router = router(&text, now);
    for session in 0..20 {
        let ask = Ask { session: Some(session), ..ask() };
        let one = first(&router, &ask, now);
        assert_eq!(one.reason, Reason::Session);
        assert!((0..5).all(|_| first(&router, &ask, now).upstream.name == one.upstream.name));
    }
    let names: std::collections::BTreeSet<_> =
        (0..20).map(|_| first(&router, &ask(), now).upstream.name.clone()).collect();
    assert_eq!(names.len(), 2);
}

#[test]
fn an_upstream_that_does_not_speak_the_api_is_never_asked() {
    let now = Instant::now();
    let text = format!(
        "{}{}[[route]]\nmodel = \"m\"\napis = [\"responses\"]\ntiers = [[\"a\", \"b\"]]\n",
        upstream("a", "apis = [\"responses\"]"),
        upstream("b", "apis = [\"responses\", \"chat\"]")
    );
    let router = router(&text, now);
    let chat = Ask { api: Some(Api::Chat), ..ask() };
    assert_eq!(run(&router, &chat, &["b"], now).0, ["b"]);
    let messages = Ask { api: Some(Api::Messages), ..ask() };
    assert_eq!(router.candidates(&messages, now).unwrap_err().name(), "no-api");
    let nobody = Ask { model: "other", ..ask() };
    assert_eq!(router.candidates(&nobody, now).unwrap_err().status(), 404);
}

#[test]
fn the_fallback_takes_no_more_than_its_cap() {
    let now = Instant::now();
    let router = router(&two_tiers("fallback_in_flight = 2"), now);
    for _ in 0..3 {
        run(&router, &ask(), &["a"], now);
    }
    let one = first(&router, &ask(), now);
    let _two = first(&router, &ask(), now);
    // The primary is the last resort beside a full fallback.
    let mut plan = router.candidates(&ask(), now).unwrap();
    let third = plan.next(now).unwrap();
    assert_eq!((&*third.upstream.name, third.reason), ("a", Reason::LastResort));
    plan.report(third, BAD, now);
    assert!(plan.next(now).is_err());
    assert!(plan.passed().iter().any(|passed| passed.why == Why::FallbackFull));
    drop(one);
    assert_eq!(&*first(&router, &ask(), now).upstream.name, "b");
}

#[test]
fn the_last_resort_keeps_off_whoever_asked_for_a_wait() {
    let now = Instant::now();
    let router = router(&two_tiers(""), now);
    for _ in 0..20 {
        run(&router, &ask(), &["a", "b"], now);
    }
    let attempt = first(&router, &ask(), now);
    assert!(matches!(attempt.reason, Reason::LastResort | Reason::Probe));
    drop(attempt);
    let wait = Outcome::Failed(Failure {
        kind: FailureKind::Overloaded,
        retry_after: Some(Duration::from_secs(30)),
    });
    for _ in 0..2 {
        let attempt = first(&router, &ask(), now);
        attempt.end(wait, now);
    }
    let stop = router.candidates(&ask(), now).unwrap().next(now).unwrap_err();
    assert_eq!(stop, Stop::Resting { route: "m".into(), retry_after: Duration::from_secs(30) });
}

#[test]
fn the_rollback_takes_over_when_the_tiers_have_failed_long_enough() {
    let now = Instant::now();
    let text = format!(
        "{}{}[[route]]\nmodel = \"m\"\ntiers = [[\"a\"]]\nrollback = \"old\"\nrollback_after = \"5m\"\n",
        upstream("a", ""),
        upstream("old", "")
    );
    let router = router(&text.replace("name = \"a\"", "name = \"a\"\ncontext_limit = 1000"), now);
    let big = Ask { prompt_tokens: Some(3000), ..ask() };
    assert_eq!(run(&router, &big, &[], now).0, ["a"], "the rollback's room does not count before it is due");
    assert_eq!(run(&router, &ask(), &["a"], now).0, ["a"]);
    let later = now + Duration::from_mins(5);
    assert_eq!(run(&router, &ask(), &["a"], later).0, ["a", "old"]);
    for _ in 0..3 {
        run(&router, &ask(), &["a"], later);
    }
    assert_eq!(first(&router, &ask(), later).reason, Reason::Rollback);
    // A success of the tiers ends it.
    let recovered = later + Duration::from_mins(10);
    assert_eq!(run(&router, &ask(), &[], recovered).0, ["a"]);
    assert_eq!(run(&router, &ask(), &["a"], recovered).0, ["a"]);
}

#[test]
fn the_deadline_keeps_a_share_for_whoever_comes_next() {
    let now = Instant::now();
    let router = router(&two_tiers("deadline = \"60s\"\nfallback_share = 0.5"), now);
    let mut plan = router.candidates(&ask(), now).unwrap();
    let one = plan.next(now).unwrap();
    assert_eq!(one.until, now + Duration::from_secs(30));
    let later = now + Duration::from_secs(30);
    plan.report(one, FailureKind::NoHeaders.into(), later);
    let two = plan.next(later).unwrap();
    assert_eq!(two.until, now + Duration::from_mins(1), "nobody is left to keep time for");
    plan.report(two, BAD, now + Duration::from_mins(1));
    assert_eq!(plan.next(now + Duration::from_mins(1)).unwrap_err(), Stop::Deadline);
}

#[test]
fn a_timeout_for_the_first_content_is_used_where_somebody_could_take_over() {
    let now = Instant::now();
    let text = two_tiers("").replace("name = \"a\"", "name = \"a\"\nfirst_content_timeout = \"9s\"");
    let given = router(&text, now);
    assert_eq!(first(&given, &ask(), now).first_content_within, Some(Duration::from_secs(9)));
    let learned = router(&two_tiers(""), now);
    for _ in 0..100 {
        let mut attempt = first(&learned, &ask(), now);
        assert_eq!(attempt.first_content_within, None);
        attempt.first_content(now + Duration::from_secs(4));
        attempt.end(GOOD, now + Duration::from_secs(9));
    }
    assert_eq!(first(&learned, &ask(), now).first_content_within, Some(Duration::from_secs(8)));
    assert_eq!(first(&learned, &ask(), now).headers_within, Some(Duration::from_secs(30)));
    let other = Ask { effort: Some("xhigh"), ..ask() };
    assert_eq!(first(&learned, &other, now).first_content_within, None);
    // Nobody could take over while the fallback is left alone.
    learned.health("b", false, now);
    learned.health("b", false, now);
    learned.health("b", false, now);
    let alone = first(&learned, &ask(), now);
    assert_eq!((alone.first_content_within, alone.headers_within), (None, None));
}

#[test]
fn a_spent_retry_budget_ends_the_attempts() {
    let now = Instant::now();
    let router = router(&two_tiers("[breaker]\nfailures = 1000\nmin_calls = 1000\nwindow = 1000"), now);
    let retried = (0..100).filter(|_| run(&router, &ask(), &["a"], now).0.len() > 1).count();
    // 10 in reserve and 10 % of 100 requests; the reserve is full until the first retry.
    assert!((18..=20).contains(&retried), "{retried}");
    assert_eq!(run(&router, &ask(), &["a"], now).1, Some(Stop::BudgetSpent));
}

#[test]
fn a_wildcard_route_takes_every_other_model_and_names_stay() {
    let now = Instant::now();
    let text = two_tiers("")
        .replace("model = \"m\"", "model = \"*\"")
        .replace("name = \"a\"", "name = \"a\"\nmodels = { \"gpt\" = \"gpt-eu\" }");
    let router = router(&text, now);
    let model = |model| first(&router, &Ask { model, ..ask() }, now).model.to_string();
    assert_eq!((model("gpt"), model("x/y")), ("gpt-eu".to_owned(), "x/y".to_owned()));
    assert_eq!(router.breakers(now).len(), 2, "made-up models make no breakers");
}

#[test]
fn a_new_configuration_keeps_what_is_known() {
    let now = Instant::now();
    let router = router(&two_tiers(""), now);
    let keys = router.state_keys(&["gAAA".to_owned()]);
    router.issued(&keys, &router.config().upstreams[1]);
    for _ in 0..3 {
        run(&router, &ask(), &["a"], now);
    }
    let text = two_tiers("commit_after = \"2s\"").replace("[\"b\"]", "[\"b\", \"c\"]") + &upstream("c", "");
    let new = Arc::new(router.reconfigured(config(&text), &env, now));
    let states: Vec<_> =
        new.breakers(now).iter().map(|view| (view.upstream.to_string(), view.state)).collect();
    let open = State::Open(now + Duration::from_secs(5));
    assert_eq!(
        states,
        [("a".to_owned(), open), ("b".to_owned(), State::Closed), ("c".to_owned(), State::Closed)]
    );
    let bound = Ask { state: &keys, ..ask() };
    assert_eq!(&*first(&new, &bound, now).upstream.name, "b");
    assert!(new.ready(now));
}

/// Upstreams with random APIs and organisations in random tiers.
fn any_config() -> impl Strategy<Value = String> {
    let upstream = (1..8_u8, 0..3_u8, 1..4_u8);
    (prop::collection::vec(upstream, 2..6), 1..3_usize).prop_map(|(upstreams, size)| {
        let mut text = String::new();
        for (number, (apis, organisation, _)) in upstreams.iter().enumerate() {
            let apis: Vec<&str> = ["\"responses\"", "\"chat\"", "\"messages\""]
                .into_iter()
                .enumerate()
                .filter(|(bit, _)| apis >> bit & 1 == 1)
                .map(|(_, api)| api)
                .collect();
            let more = format!("apis = [{}]\norganisation = \"org{organisation}\"", apis.join(", "));
            text += &self::upstream(&format!("u{number}"), &more);
        }
        let member = |number: usize, weight: u8| format!("{{ upstream = \"u{number}\", weight = {weight} }}");
        let members: Vec<String> =
            upstreams.iter().enumerate().map(|(n, (_, _, weight))| member(n, *weight)).collect();
        let tiers: Vec<String> = members.chunks(size).map(|tier| format!("[{}]", tier.join(", "))).collect();
        text + &format!("[[route]]\nmodel = \"m\"\ntiers = [{}]\n", tiers.join(", "))
    })
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(128))]
    /// Whatever fails, no upstream is asked that does not speak the API, none that belongs to another
    /// organisation than the state, and none twice without another key.
    #[test]
    fn only_who_can_and_may_is_asked(text in any_config(), outcomes in prop::collection::vec((0..6_u8, 0..3_u8, 0..4_u8), 60)) {
        let mut now = Instant::now();
        let Ok(config) = check_in(&text, std::path::Path::new(""), &env) else { return Ok(()) }; // a fallback that cannot
        let router = Arc::new(Router::new(config, &env, 1, now));
        let references: Vec<_> = (0..3).map(|org| router.state_keys(&[format!("state{org}")])).collect();
        for (organisation, references) in references.iter().enumerate() {
            router.affinity.issued(references, &format!("org{organisation}").into());
        }
        for (outcome, api, state) in outcomes {
            now += Duration::from_millis(700);
            let api = [Api::Responses, Api::Chat, Api::Messages][usize::from(api)];
            let carried = references.get(usize::from(state)).map_or(&[][..], Vec::as_slice);
            let Ok(mut plan) = router.candidates(&Ask { api: Some(api), state: carried, ..ask() }, now) else { continue };
            let mut asked = Vec::new();
            while let Ok(attempt) = plan.next(now) {
                prop_assert!(attempt.upstream.apis.contains(&api));
                if !carried.is_empty() {
                    prop_assert_eq!(attempt.upstream.organisation.to_string(), format!("org{state}"));
                }
                prop_assert!(!asked.contains(&attempt.upstream.name));
                asked.push(attempt.upstream.name.clone());
                let outcome = match outcome {
                    0 => GOOD,
                    1 => BAD,
                    2 => FailureKind::Cut.into(),
                    3 => Outcome::Incapable(Incapable::Api),
                    4 => Outcome::Limited(Limit { kind: LimitKind::PerIp, retry_after: None, elsewhere: false }),
                    _ => Outcome::Limited(Limit { kind: LimitKind::Rate, retry_after: Some(Duration::from_secs(1)), elsewhere: false }),
                };
                plan.report(attempt, outcome, now);
            }
        }
    }

    /// A dead upstream that all traffic would go to still gets at least 5 % of it as probes, and never two at
    /// a time.
    #[test]
    fn recovery_can_be_seen(seed in any::<u64>()) {
        let now = Instant::now();
        let router = Arc::new(Router::new(config(&two_tiers("retry_budget = 1.0")), &env, seed, now));
        let asked: Vec<_> = (0..400).map(|_| run(&router, &ask(), &["a"], now)).collect();
        let hits = asked.iter().filter(|(asked, _)| asked[0] == "a").count();
        prop_assert!((20..=3 + 20).contains(&hits), "{hits} of 400");
    }
}

/// A small generator, so that threads need no shared one.
fn next_random(state: &mut u64) -> u64 {
    *state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
    *state >> 33
}

#[test]
fn nothing_is_left_behind_by_many_threads_and_reloads() {
    let now = Instant::now();
    let text = format!(
        "[breaker]\ncooldown = \"1ms\"\nmax_cooldown = \"2ms\"\n{}{}{}[[route]]\nmodel = \"m\"\n\
         tiers = [[\"a\", \"b\"]]\nfallback_in_flight = 3\nretry_budget = 1.0\nrollback = \"c\"\nrollback_after = \"1ms\"\n",
        upstream("a", "keys = [\"env:KEY1\", \"env:KEY2\"]"),
        upstream("b", ""),
        upstream("c", "")
    );
    let current = Mutex::new(router(&text, now));
    std::thread::scope(|scope| {
        for seed in 0..4_u64 {
            let (current, text) = (&current, &text);
            scope.spawn(move || {
                let mut state = seed;
                for step in 0..1500_u64 {
                    let now = now + Duration::from_micros(100 * step);
                    if next_random(&mut state).is_multiple_of(200) {
                        let mut current = locked(current);
                        *current = Arc::new(current.reconfigured(config(text), &env, now));
                    }
                    let router = locked(current).clone();
                    let Ok(mut plan) = router.candidates(&ask(), now) else { continue };
                    while let Ok(mut attempt) = plan.next(now) {
                        match next_random(&mut state) % 6 {
                            0 => break, // the client has left
                            1 => {
                                attempt.first_content(now);
                                plan.report(attempt, FailureKind::Cut.into(), now);
                                break;
                            }
                            2 => {
                                let limit =
                                    Limit { kind: LimitKind::Rate, retry_after: None, elsewhere: false };
                                plan.report(attempt, Outcome::Limited(limit), now);
                            }
                            3 => plan.report(attempt, BAD, now),
                            _ => plan.report(attempt, GOOD, now),
                        }
                    }
                }
            });
        }
    });
    let router = locked(&current).clone();
    let shared = &router.routes["m"].shared;
    assert_eq!(shared.fallbacks.load(Ordering::SeqCst), 0, "places under the cap are held by nobody");
    // No probe is held: every breaker admits one, at once, when its time has come.
    for lane in router.lanes.values() {
        let mut breaker = locked(&lane.breaker);
        assert!(!matches!(breaker.admit(now + Duration::from_mins(1)), crate::breaker::Admit::Refuse { .. }));
    }
}
