//! Real clients through `sseismo relay --observe`, in front of the simulator: they get what they would
//! get without it, and every stream is recorded.

use std::path::Path;
use std::process::{Command, Stdio};

use serde_json::Value;
use sseismo_tests::{Listening, Peer, json, needs, root, run};
use sseismo_trace::parquet::Dataset;
use sseismo_trace::{Api, Attribution, Outcome, Summary};

/// Runs `client` against the simulator through the relay; the JSON lines that it printed, and what was
/// recorded.
fn through_the_relay(client: impl Fn(&str, &Path) -> Command) -> (Vec<Value>, Vec<Summary>) {
    let folder = tempfile::tempdir().expect("a folder");
    let traces = folder.path().join("traces");
    let scenario = root().join("tests/clients/quick.toml");
    let upstream = Listening::start(&["simulate", &scenario.display().to_string()]);
    let out = traces.display().to_string();
    let args = ["relay", "--observe", "--to", &upstream.url, "--listen", "127.0.0.1:0", "-o", &out];
    let relay = Listening::start(&args);
    let output = client(&relay.url, folder.path()).stdin(Stdio::null()).output().expect("the client starts");
    let told = String::from_utf8_lossy(&output.stdout).into_owned();
    assert!(output.status.success(), "{told}{}", String::from_utf8_lossy(&output.stderr));
    relay.end();
    let mut summaries = Vec::new();
    let report = Dataset::open(&traces).expect("a dataset").streams(|stream| {
        assert!(!stream.deltas.is_empty() && !stream.reads.is_empty());
        summaries.push(stream.summary.clone());
        std::ops::ControlFlow::Continue(())
    });
    assert!(report.damaged.is_empty(), "{:?}", report.damaged);
    (told.lines().filter_map(|line| serde_json::from_str(line).ok()).collect(), summaries)
}

/// What both SDK scripts must have seen, and we with them.
fn check_sdks(lines: &[Value], summaries: &[Summary]) {
    assert_eq!(lines.len(), 3, "{lines:?}");
    for (line, api) in lines.iter().zip([Api::Responses, Api::Chat, Api::Messages]) {
        assert_eq!(line["api"], api.name());
        assert!(line["text"].as_u64() > Some(0) && line["events"].as_u64() > Some(3), "{line}");
        let recorded: Vec<_> = summaries.iter().filter(|summary| summary.api == Some(api)).collect();
        assert_eq!(recorded.len(), 1, "{api:?}: {summaries:?}");
        assert_eq!(recorded[0].outcome, Outcome::Completed, "{recorded:?}");
        assert_eq!(recorded[0].attribution, Attribution::Exact);
        assert_eq!((recorded[0].streamed, recorded[0].attempt), (Some(true), Some(1)));
        assert!(recorded[0].client_app.is_some() && recorded[0].caller_hash.is_some());
    }
}

#[test]
fn the_python_sdks_stream_through_the_relay() {
    let Some(python) = needs(Peer::Python("client-sdks", &["openai", "anthropic"])) else { return };
    let script = root().join("tests/clients/stream.py");
    let (lines, summaries) = through_the_relay(|url, _| {
        let mut command = Command::new(&python);
        command.arg(&script).arg(url);
        command
    });
    check_sdks(&lines, &summaries);
}

#[test]
fn the_node_sdks_stream_through_the_relay() {
    let Some(home) = needs(Peer::Node("client-sdks-node", &["openai", "@anthropic-ai/sdk"])) else { return };
    let script = root().join("tests/clients/stream.mjs");
    let (lines, summaries) = through_the_relay(|url, _| {
        let mut command = Command::new("node");
        command.arg(&script).arg(url).current_dir(&home);
        command
    });
    check_sdks(&lines, &summaries);
}

/// Codex's built-in provider asks for a websocket first and must fall back at once.
#[test]
fn codex_completes_a_turn_through_the_relay() {
    let Some(home) = needs(Peer::Node("codex", &["@openai/codex"])) else { return };
    let (_, summaries) = through_the_relay(|url, folder| {
        let codex_home = folder.join("codex");
        std::fs::create_dir_all(&codex_home).expect("a folder");
        let mut command = Command::new(home.join("node_modules/.bin/codex"));
        command
            .args(["exec", "--skip-git-repo-check", "--json", "-c"])
            .arg(format!("openai_base_url=\"{url}/v1\""))
            .arg("say hi")
            .current_dir(folder)
            .env("CODEX_HOME", codex_home)
            .env("OPENAI_API_KEY", "sk-client")
            .env("CODEX_API_KEY", "sk-client");
        command
    });
    let turn = summaries.iter().find(|summary| summary.outcome == Outcome::Completed).expect("a whole turn");
    assert_eq!((turn.api, turn.streamed), (Some(Api::Responses), Some(true)));
    assert_eq!(turn.client_app.as_deref(), Some("codex_exec"));
    assert!(turn.session_key.is_some() && turn.turn_key.is_some(), "{turn:?}");
    assert!(turn.effort.is_some() && turn.prompt_bytes > Some(1_000), "{turn:?}");
}

/// Our own client: every answer is recorded, the last one too, and judged; more than the budget is refused.
#[test]
fn capture_records_every_answer_and_stays_in_its_budget() {
    let folder = tempfile::tempdir().expect("a folder");
    let path = |name: &str| folder.path().join(name).display().to_string();
    let body = r#"{"model":"m","stream":true,"reasoning":{"effort":"low"},"input":"hi"}"#;
    std::fs::write(path("req.json"), body).expect("written");
    let upstream =
        Listening::start(&["simulate", &root().join("tests/clients/quick.toml").display().to_string()]);
    let url = format!("{}/v1/responses", upstream.url);
    let (request, out) = (path("req.json"), path("traces"));
    let args = ["capture", "--url", &url, "--body", &request, "-o", &out, "--json", "--repeat"];
    let report = json(&[&args[..], &["12", "--concurrency", "3"]].concat());
    assert_eq!(report["inputs"][0]["streams"], 12);
    assert!(report["findings"].as_array().is_some_and(|findings| !findings.is_empty()));
    let stored = Dataset::open(folder.path().join("traces").as_path()).expect("a dataset");
    assert_eq!(stored.streams(|_| std::ops::ControlFlow::Continue(())).streams, 12);
    let refused = run(&[&args[..], &["21"]].concat());
    assert_eq!(refused.status.code(), Some(2));
    assert!(String::from_utf8_lossy(&refused.stderr).contains("--yes"));
}
