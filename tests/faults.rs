//! Real clients against faulty upstreams: directly, and through `sseismo relay --config` with a healthy fallback.
//!
//! The vendors' SDKs for Python run with the other tests; the whole table, with Node's SDKs, the AI SDK and
//! Codex CLI, takes some minutes:
//!
//! ```text
//! cargo test --workspace --all-features --test help --test faults -- --include-ignored --nocapture
//! ```

#![expect(
    clippy::print_stdout,
    clippy::disallowed_methods,
    reason = "the table is what the test is for, and it tells how long a client took"
)]

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write as _;
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::Instant;

use serde_json::{Value, json};
use sseismo_tests::{Listening, Peer, needs, root};

/// A fault, and whether it shows before the first content: then the relay can hide it.
type Fault = (&'static str, &'static str, bool);

const FAULTS: [Fault; 9] = [
    ("500", "kind = \"http-error\"\nstatus = 500", true),
    ("429 with Retry-After", "kind = \"quota\"\nof = \"requests\"\nlimit = 0", true),
    ("429 bare, no credit", "kind = \"quota\"\nof = \"credit\"\nlimit = 0\nretry-after = false", true),
    ("silent before headers", "kind = \"silence\"\nat = \"before-headers\"\nlasts = \"6s\"", true),
    ("silent after headers", "kind = \"silence\"\nat = \"after-headers\"\nlasts = \"6s\"", true),
    ("error event first", "kind = \"error-event\"\nafter = 0", true),
    ("ends at once", "kind = \"clean-eof\"\nafter = 0", true),
    ("cut in the middle", "kind = \"cut\"\nafter = 6", false),
    ("false end in the middle", "kind = \"clean-eof\"\nafter = 6", false),
];

/// What `ask.mjs` needs.
const NODE_PACKAGES: &[&str] = &[
    "openai",
    "@anthropic-ai/sdk",
    "ai",
    "@ai-sdk/openai",
    "@ai-sdk/openai-compatible",
    "@ai-sdk/anthropic",
];

/// A program that asks once per API and tells how each ended.
trait Asks {
    fn ask(&self, url: &str, folder: &Path) -> Vec<Value>;
}

/// A script that prints JSON lines.
struct Script(Box<dyn Fn(&str) -> Command + Send + Sync>);

impl Asks for Script {
    fn ask(&self, url: &str, _: &Path) -> Vec<Value> {
        let output = (self.0)(url).stdin(Stdio::null()).output().expect("the client starts");
        assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
        String::from_utf8_lossy(&output.stdout)
            .lines()
            .filter_map(|line| serde_json::from_str(line).ok())
            .collect()
    }
}

/// Codex CLI with a provider of its own, as its users configure a gateway.
struct Codex(std::path::PathBuf);

impl Asks for Codex {
    fn ask(&self, url: &str, folder: &Path) -> Vec<Value> {
        let home = folder.join("codex");
        std::fs::create_dir_all(&home).expect("a folder");
        let since = Instant::now();
        let output = Command::new(self.0.join("node_modules/.bin/codex"))
            .args(["exec", "--skip-git-repo-check", "--json", "-c", "model_provider=\"relay\"", "-c"])
            .arg(format!("model_providers.relay={{name=\"relay\",base_url=\"{url}/v1\",env_key=\"OPENAI_API_KEY\",wire_api=\"responses\"}}"))
            .arg("say hi")
            .current_dir(folder)
            .env("CODEX_HOME", &home)
            .env("OPENAI_API_KEY", "sk-client")
            .stdin(Stdio::null())
            .output()
            .expect("codex starts");
        let told = String::from_utf8_lossy(&output.stdout);
        let ended = if told.contains("\"turn.completed\"") { "completed" } else { "error" };
        let s = (since.elapsed().as_secs_f64() * 100.0).round() / 100.0;
        vec![json!({"client": "codex", "ended": ended, "error": null, "s": s})]
    }
}

fn scenario(folder: &Path, name: &str, fault: &str) -> String {
    let path = folder.join(format!("{name}.toml"));
    let healthy = std::fs::read_to_string(root().join("tests/clients/quick.toml")).expect("a scenario");
    let behaviour = if fault.is_empty() { String::new() } else { format!("[[behaviour]]\n{fault}\n") };
    std::fs::write(&path, format!("{healthy}\n{behaviour}")).expect("written");
    path.display().to_string()
}

fn configuration(folder: &Path, a: &str, b: &str) -> String {
    let mut text = String::from("[server]\nlisten = \"127.0.0.1:0\"\n");
    for (name, url, more) in
        [("a", a, "first_content_timeout = \"1s\"\nheaders_timeout = \"1s\""), ("b", b, "")]
    {
        let _ = write!(
            text,
            "[[upstream]]\nname = \"{name}\"\nurl = \"{url}/v1\"\napis = [\"responses\", \"chat\", \"messages\"]\n{more}\n"
        );
    }
    text.push_str("[[route]]\nmodel = \"*\"\ntiers = [[\"a\"], [\"b\"]]\n");
    let path = folder.join("relay.toml");
    std::fs::write(&path, text).expect("written");
    path.display().to_string()
}

/// Per client: how it ended directly and through the relay.
fn both_ways(client: &dyn Asks, fault: &str) -> BTreeMap<String, [Value; 2]> {
    let folder = tempfile::tempdir().expect("a folder");
    let a = Listening::start(&["simulate", &scenario(folder.path(), "a", fault)]);
    let b = Listening::start(&["simulate", &scenario(folder.path(), "b", "")]);
    let config = configuration(folder.path(), &a.url, &b.url);
    let out = folder.path().join("traces").display().to_string();
    let relay = Listening::start(&["relay", "--config", &config, "-o", &out]);
    let direct = client.ask(&a.url, folder.path());
    let relayed = client.ask(&relay.url, folder.path());
    assert_eq!(direct.len(), relayed.len());
    direct.into_iter().zip(relayed).map(|(one, two)| (name(&one), [one, two])).collect()
}

fn name(told: &Value) -> String {
    told["client"].as_str().expect("a name").to_owned()
}

fn cell(told: &Value) -> String {
    let error = told["error"].as_str().map(|error| format!(" ({error})")).unwrap_or_default();
    format!("{}{error}, {} s", ended(told), told["s"])
}

fn ended(told: &Value) -> &str {
    told["ended"].as_str().unwrap_or("?")
}

/// Runs the faults, prints the tables, and holds the relay to what it promises.
fn check(clients: &[&(dyn Asks + Sync)], faults: &[Fault]) {
    let mut table = String::from("| fault | client | directly | through the relay |\n|---|---|---|---|\n");
    let (mut broken, mut short) = (Vec::new(), BTreeMap::<&str, BTreeMap<String, String>>::new());
    for (fault, behaviour, hidden) in faults {
        for (who, [direct, relayed]) in all_ways(clients, behaviour) {
            let _ = writeln!(table, "| {fault} | {who} | {} | {} |", cell(&direct), cell(&relayed));
            // A fault after content cannot be hidden, and must never look like an end. After some of them
            // the primary is left alone, and Codex asks again: then all is well.
            let good = match (hidden, ended(&relayed)) {
                (true, ended) => ended == "completed",
                (false, ended) => ended != "silent",
            };
            if !good {
                broken.push(format!("{fault}, {who}: {relayed}"));
            }
            let both = format!("{} → {}", ended(&direct), ended(&relayed));
            short.entry(fault).or_default().insert(who, both);
        }
    }
    println!("{table}\n{}", compact(faults, &short));
    assert!(broken.is_empty(), "{broken:#?}");
}

/// All clients at once: most of their time they wait.
fn all_ways(clients: &[&(dyn Asks + Sync)], fault: &str) -> BTreeMap<String, [Value; 2]> {
    std::thread::scope(|scope| {
        let asked: Vec<_> =
            clients.iter().map(|client| scope.spawn(move || both_ways(*client, fault))).collect();
        asked.into_iter().flat_map(|asked| asked.join().expect("a client's thread")).collect()
    })
}

/// A row for each client, a column for each fault: how it ended directly → through the relay.
fn compact(faults: &[Fault], cells: &BTreeMap<&str, BTreeMap<String, String>>) -> String {
    let clients: BTreeSet<&String> = cells.values().flat_map(BTreeMap::keys).collect();
    let titles: Vec<_> = faults.iter().map(|(fault, ..)| *fault).collect();
    let mut table = format!("| client | {} |\n|---|{}\n", titles.join(" | "), "---|".repeat(faults.len()));
    for client in clients {
        let row: Vec<_> =
            titles.iter().map(|fault| cells[fault].get(client).map_or("", String::as_str)).collect();
        let _ = writeln!(table, "| {client} | {} |", row.join(" | "));
    }
    table
}

fn python() -> Option<Script> {
    let python = needs(Peer::Python("client-sdks", &["openai", "anthropic"]))?;
    let script = root().join("tests/clients/ask.py");
    Some(Script(Box::new(move |url| {
        let mut command = Command::new(&python);
        command.arg(&script).arg(url);
        command
    })))
}

#[test]
fn the_python_sdks_do_not_notice_a_primary_that_fails_before_content() {
    let Some(python) = python() else { return };
    check(&[&python], &[FAULTS[0], FAULTS[4], FAULTS[8]]);
}

#[test]
#[ignore = "minutes long; see the file's documentation"]
fn every_client_under_every_fault() {
    let Some(python) = python() else { return };
    let Some(home) = needs(Peer::Node("fault-clients", NODE_PACKAGES)) else { return };
    let Some(codex) = needs(Peer::Node("codex", &["@openai/codex"])) else { return };
    let script = root().join("tests/clients/ask.mjs");
    let node = Script(Box::new(move |url| {
        let mut command = Command::new("node");
        command.arg(&script).arg(url).current_dir(&home);
        command
    }));
    check(&[&python, &node, &Codex(codex)], &FAULTS);
}
