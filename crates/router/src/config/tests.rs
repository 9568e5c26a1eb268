use super::*;

fn env(name: &str) -> Option<String> {
    match name {
        "GOOD" => Some("sk-good".to_owned()),
        "SPACED" => Some("sk bad".to_owned()),
        "TOKENS" => Some(format!("{} me", "0".repeat(64))),
        _ => None,
    }
}

fn faults(text: &str) -> Vec<String> {
    match check_in(text, Path::new(""), &env) {
        Ok(_) => Vec::new(),
        Err(faults) => faults.iter().map(Fault::to_string).collect(),
    }
}

/// One fault in the line with `<-`, told with this word.
#[track_caller]
fn one_fault(text: &str, word: &str) {
    let line = 1 + text.lines().position(|line| line.contains("<-")).expect("a marked line");
    let found = faults(text);
    assert_eq!(found.len(), 1, "{found:#?}");
    assert!(found[0].starts_with(&format!("line {line}: ")), "{found:#?} instead of line {line}");
    assert!(found[0].contains(word), "{found:#?}");
}

const A: &str =
    "[[upstream]]\nname = \"a\"\nurl = \"https://a.example/v1\"\napis = [\"responses\", \"chat\"]\n";
const B: &str = "[[upstream]]\nname = \"b\"\nurl = \"https://b.example/v1\"\napis = [\"chat\"]\n";
const ROUTE: &str = "[[route]]\nmodel = \"m\"\ntiers = [[\"a\"]]\n";

#[test]
fn the_example_is_read_as_it_says() {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../data/relay/relay.toml");
    let text = std::fs::read_to_string(&path).unwrap();
    let config = check_in(&text, path.parent().unwrap(), &|_| Some("sk-test".to_owned())).unwrap();
    assert_eq!(config.upstreams.len(), 3);
    assert_eq!(config.server.limits, Limits::default());
    assert_eq!(config.breaker, breaker::Settings::default());
    let [openai, azure, anthropic] = &config.upstreams[..] else { panic!("three upstreams") };
    assert_eq!(openai.base.name(), "api.openai.com");
    assert_eq!((azure.key_header, azure.model("gpt-5.5")), (KeyHeader::ApiKey, "gpt-5.5-eu"));
    assert_eq!(azure.connection, Connection::MaxAge(Duration::from_mins(5)));
    assert_eq!(azure.clamp["max_output_tokens"].to_bits(), 64_000_f64.to_bits());
    assert_eq!((anthropic.key_header, &*anthropic.organisation), (KeyHeader::XApiKey, "anthropic"));
    assert_eq!(config.signals, steer::Settings::default());
    let [gpt, other] = &config.routes[..] else { panic!("two routes") };
    assert_eq!(gpt.apis, [Api::Responses, Api::Chat]);
    let policies: Vec<_> = gpt.policies.iter().map(|own| (own.policy.name(), own.act)).collect();
    // In the order of precedence; all but `prompt_shape`, which takes a second tier.
    let all = [
        "content_checks",
        "cost_ceiling",
        "reasoning_budget",
        "token_bucket",
        "canary",
        "deep_concurrency",
        "size_window",
        "warm_up",
        "aimd_share",
    ];
    assert_eq!(policies, all.map(|name| (name, false)));
    assert_eq!(gpt.commit_after, Duration::from_secs(1));
    assert_eq!((&*other.model, &other.apis[..]), ("*", &[Api::Messages][..]));
}

#[test]
fn what_the_example_names_as_defaults_are_the_defaults() {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../data/relay/relay.toml");
    let text = std::fs::read_to_string(path).unwrap();
    let mut uncommented = String::new();
    let mut section = "";
    for line in text.lines() {
        section = if line.starts_with('[') || line.starts_with("# [") { line } else { section };
        let named = section.trim_start_matches("# ");
        let told = ["[breaker]", "[server.limits]", "[affinity]", "[signals"];
        // Their keys are known and their values taken.
        let policies =
            ["token_bucket", "warm_up", "content_checks", "reasoning_budget", "cost_ceiling", "canary"];
        let of_policy =
            |named: &str| policies.iter().any(|name| named.starts_with(&format!("[route.{name}]")));
        let numbers = told.iter().any(|name| named.starts_with(name)) || of_policy(named);
        let is_setting = |line: &&str| {
            let (key, _) = line.split_once(" = ").unwrap_or_default();
            !key.is_empty() && key.chars().all(|c| c.is_ascii_lowercase() || c == '_')
        };
        let table = line.strip_prefix("# ").filter(|line| line.starts_with("[signals."));
        let default = line.strip_prefix("# ").filter(is_setting).filter(|_| numbers).or(table);
        uncommented += default.unwrap_or(if line.starts_with('#') { "" } else { line });
        uncommented.push('\n');
    }
    assert!(uncommented.contains("\nfloor_share = 0.05"));
    assert!(uncommented.contains("\nalpha = 0.01") && uncommented.contains("\nspent = \"refuse\""));
    let config = check_in(&uncommented, Path::new(""), &|_| Some("sk-test".to_owned())).unwrap();
    assert_eq!(config.server.limits, Limits::default());
    assert_eq!(config.breaker, breaker::Settings::default());
    assert_eq!(config.affinity.unknown_state, UnknownState::default());
    assert!(uncommented.contains("\n[signals.burst]\neffect = \"step-share\""));
    assert_eq!(config.signals, steer::Settings::default());
}

#[test]
fn all_faults_are_told_at_once_by_line() {
    let text = "[server]\nlisten = \"0.0.0.0:1\"\nlisen = 3\n[[upstream]]\nname = \"a b\"\nurl = \"https://a.example\"\n\
        apis = [\"respones\"]\nkeys = [\"env:NONE\", \"sk-secret\"]\n[[route]]\nmodel = \"m\"\ntiers = [[], [\"c\"]]\n";
    let found = faults(text);
    let lines: Vec<&str> = found.iter().map(|fault| fault.split(':').next().unwrap()).collect();
    assert_eq!(
        lines,
        [
            "line 2", "line 3", "line 5", "line 6", "line 7", "line 7", "line 8", "line 8", "line 11",
            "line 11"
        ],
        "{found:#?}"
    );
    assert!(!found.concat().contains("sk-secret"));
}

#[test]
fn broken_toml_is_told_with_every_line() {
    let found = faults("[server\nlisten = 1\n[[route]]\nmodel = \n");
    assert!(found.len() >= 2, "{found:#?}");
    assert!(found[0].starts_with("line 1: ") && found.last().unwrap().starts_with("line 4: "), "{found:#?}");
}

#[test]
fn an_empty_file_says_what_is_missing() {
    assert_eq!(faults("").len(), 2);
}

#[test]
fn urls_need_a_version_and_no_credentials() {
    let with =
        |url: &str| format!("[[upstream]]\nname = \"a\"\nurl = \"{url}\" # <-\napis = [\"chat\"]\n{ROUTE}");
    one_fault(&with("https://a.example"), "/v1");
    one_fault(&with("https://a.example/openai"), "/v1");
    one_fault(&with("https://user:hunter2@a.example/v1"), "credentials");
    one_fault(&with("https://a.example/v1?key=hunter2"), "query");
    one_fault(&with("a.example/v1"), "URL");
    assert!(!faults(&with("https://user:hunter2@a.example/v1")).concat().contains("hunter2"));
    for good in ["https://a.example/v1", "https://a.example/api/paas/v4/", "https://a.example/v1beta/openai"]
    {
        assert!(faults(&with(good).replace("# <-", "")).is_empty(), "{good}");
    }
}

#[test]
fn keys_must_be_there_whole_and_elsewhere() {
    let with = |key: &str| format!("{A}keys = [\"env:GOOD\",\n\"{key}\"] # <-\n{ROUTE}");
    one_fault(&with("env:NONE"), "NONE is not set");
    one_fault(&with("env:SPACED"), "spaces");
    one_fault(&with("sk-live-1"), "env:NAME");
    one_fault(&with("file:no-such-file"), "no-such-file");
    assert!(!faults(&with("sk-live-1")).concat().contains("sk-live"));
}

#[test]
fn names_must_be_known_and_single() {
    one_fault(&format!("{A}{}{ROUTE}", A.replace("\"a\"", "\"a\" # <-")), "two upstreams");
    one_fault(&format!("{A}{ROUTE}[[route]]\nmodel = \"m\" # <-\ntiers = [[\"a\"]]\n"), "two routes");
    one_fault(&format!("{A}[[route]]\nmodel = \"m\"\ntiers = [[\"a\"],\n[\"c\"]] # <-\n"), "no upstream `c`");
    one_fault(&format!("{A}[[route]]\nmodel = \"m\"\ntiers = [[\"a\"],\n[\"a\"]] # <-\n"), "twice");
    one_fault(&format!("{A}{ROUTE}rollback = \"c\" # <-\n"), "no upstream `c`");
    one_fault(&format!("{A}{ROUTE}rollbak = \"a\" # <-\n"), "unknown key `rollbak`");
    one_fault(&format!("{A}{ROUTE}[reley] # <-\n"), "unknown key `reley`");
    let route = "[[route]]\nmodel = \"*\"\ntiers = [[{ upstream = \"a\", wieght = 9 }]] # <-\n";
    one_fault(&format!("{A}{route}"), "unknown key `wieght`; known are upstream, weight");
}

#[test]
fn a_faulty_upstream_is_not_told_as_unknown() {
    let text = format!("{}{ROUTE}", A.replace("https://a.example/v1\"", "https://a.example\" # <-"));
    one_fault(&text, "/v1");
}

#[test]
fn tiers_need_members_with_weight() {
    let with = |tiers: &str| {
        format!("{A}{B}[[route]]\nmodel = \"m\"\napis = [\"chat\"]\ntiers = [\n{tiers}] # <-\n")
    };
    one_fault(&with("[]"), "empty");
    one_fault(&with("[{ upstream = \"a\", weight = 0 }, { upstream = \"b\", weight = 0 }]"), "weights");
    one_fault(&with("[{ upstream = \"a\", weight = -1 }]"), "negative");
    one_fault(&with("\"a\""), "list");
    one_fault(&with("[{ upstrem = \"a\" }, \"b\"]").replace("upstrem", "weigth = 2, upstream"), "weigth");
    assert!(faults(&with("[{ upstream = \"a\", weight = 0 }, \"b\"]")).is_empty());
}

#[test]
fn a_fallback_must_take_what_the_first_tier_takes() {
    one_fault(
        &format!("{A}{B}[[route]]\nmodel = \"m\"\ntiers = [[\"a\"], [\"b\"]] # <-\n"),
        "`b` cannot take",
    );
    one_fault(
        &format!("{A}{B}{ROUTE}rollback = \"b\"\n").replace("[[\"a\"]]", "[[\"a\"]] # <-"),
        "`b` cannot take",
    );
    assert!(
        faults(&format!("{A}{B}[[route]]\nmodel = \"m\"\napis = [\"chat\"]\ntiers = [[\"a\"], [\"b\"]]\n"))
            .is_empty()
    );
    one_fault(
        &format!("{A}[[route]]\nmodel = \"m\"\napis = [\"messages\"] # <-\ntiers = [[\"a\"]]\n"),
        "messages",
    );
}

#[test]
fn listening_to_others_needs_auth_and_the_admin_api_a_token() {
    let with = |server: &str| format!("{A}{ROUTE}[server]\n{server}\n");
    one_fault(&with("listen = \"0.0.0.0:8899\" # <-"), "[auth]");
    assert!(faults(&with("listen = \"0.0.0.0:8899\"\n[auth]\ntokens_env = \"TOKENS\"")).is_empty());
    one_fault(&with("admin = \"127.0.0.1:8900\" # <-"), "admin_token");
    one_fault(&with("admin_token = \"env:GOOD\"\nadmin = \"0.0.0.0:8900\" # <-"), "loopback");
    one_fault(&with("admin_token = \"env:GOOD\"\nadmin = \"127.0.0.1:8899\" # <-"), "own");
    one_fault(&with("[auth]\ntokens_env = \"NONE\" # <-"), "NONE is not set");
    one_fault(&with("[auth]\ntokens_env = \"GOOD\" # <-"), "SHA-256");
}

#[test]
fn numbers_have_ranges_and_durations_units() {
    let with = |line: &str| format!("{A}{ROUTE}{line} # <-\n");
    one_fault(&with("deadline = 60"), "unit");
    one_fault(&with("deadline = \"60\""), "unit");
    one_fault(&with("deadline = \"0s\""), "unit");
    one_fault(&with("deadline = \"366d\""), "up to 365d");
    one_fault(&with("deadline = \"200000000000000d\""), "up to 365d");
    one_fault(&with("retry_budget = 10"), "share");
    one_fault(&with("fallback_in_flight = 0"), "whole number");
    one_fault(&with("rollback_after = \"5m\""), "rollback");
    one_fault(&with("commit_after = \"11m\""), "shorter");
    one_fault(&with("[breaker]\nfloor_share = 0.01"), "0.05");
    one_fault(&with("[breaker]\nclose_at = 0.6"), "smaller");
    one_fault(&with("[breaker]\nmin_calls = 60"), "window");
    one_fault(&with("[server.limits]\nbody_bytes = \"1 MB\""), "whole number");
}

#[test]
fn faults_of_signals_are_told_by_line() {
    let text = |signals: &str| format!("{A}{ROUTE}{signals}\n");
    for (signals, word) in [
        ("[signals]\nfloor = 0.01 # <-", "at least 0.05"),
        ("[signals]\nact = \"yes\" # <-", "true or false"),
        ("[signals]\nharm_wait_ratio = 0.5 # <-", "larger than 1"),
        ("[signals.burst]\neffect = \"explode\" # <-", "\"step-share\""),
        ("[signals.burst]\nlimit = 3 # <-", "needs `effect = \"limit-concurrency\"`"),
        ("[signals]\n[signals.semantic] # <-", "unknown key `semantic`"),
    ] {
        one_fault(&text(signals), word);
    }
}
