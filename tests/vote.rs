//! `sseismo vote` whole: the published table from recorded fan-outs, a live fan-out over scripted upstreams, and
//! a real embeddings server.

#![expect(clippy::unwrap_used, reason = "helpers of tests: a failure here is a failed test")]
#![expect(clippy::disallowed_methods, reason = "the scripted upstream measures when a stream is closed")]

use std::io::{BufRead as _, BufReader, Read as _, Write as _};
use std::net::{TcpListener, TcpStream};
use std::process::{Child, Command, Stdio};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use serde_json::{Value, json};
use sseismo_tests::{Peer, data, needs, root, run, sseismo};
use sseismo_trace::parquet::Dataset;

fn vote(args: &[&str]) -> Value {
    let args: Vec<&str> = ["vote", "--json"].iter().chain(args).copied().collect();
    sseismo_tests::json(&args)
}

fn row<'a>(document: &'a Value, table: &str, key: &str, name: &str) -> &'a Value {
    document[table].as_array().unwrap().iter().find(|row| row[key] == name).unwrap()
}

#[test]
fn the_table_of_rules_is_reproduced() {
    let document = vote(&["data/fanout/gsm8k-openai-n4.jsonl", "--labels", "--early-stop"]);
    assert_eq!(document["schema"], "sseismo.vote/1");
    let accuracy = |rule: &str| row(&document, "rules", "rule", rule)["accuracy"].as_f64().unwrap();
    // Measured before this program existed, over the same 300 fan-outs: a sample 0.393, plurality with ties to
    // the medoid 0.497, coherence-weighted 0.493, 1/tokens (characters here) 0.463, the write-up 0.393 in
    // expectation over members. One fan-out is 0.0033.
    let near = |rule: &str, want: f64, within: f64| {
        let got = accuracy(rule);
        assert!((got - want).abs() <= within, "{rule}: {got}, not {want}");
    };
    near("single", 0.3933, 0.0001);
    near("plurality", 0.497, 0.0005);
    near("coherence-weighted", 0.493, 0.0005);
    near("cost-weighted", 0.463, 0.0005);
    near("write-up", 0.393, 0.005);
    let writeup = row(&document, "rules", "rule", "write-up");
    assert!(writeup["diff_ci95"][1].as_f64().unwrap() < 0.0);
    let share = |stop: &str| row(&document, "early_stop", "stop", stop)["samples_share"].as_f64().unwrap();
    assert!(share("lock-in") <= share("full") && share("beta-0.8") < share("beta-0.95"));
    let full = row(&document, "early_stop", "stop", "full")["accuracy"].as_f64().unwrap();
    // Lock-in never changes a winner, so the credit is the same.
    assert!(
        (row(&document, "early_stop", "stop", "lock-in")["accuracy"].as_f64().unwrap() - full).abs() < 1e-9
    );
}

#[test]
fn winners_equal_the_golden_ones_and_every_run_is_the_same() {
    let golden: Value =
        serde_json::from_str(&std::fs::read_to_string(data("golden/real_fanouts.json")).unwrap()).unwrap();
    let args = ["vote", "data/fanout/gsm8k-openai-n4.jsonl", "--json"];
    let first = run(&args).stdout;
    assert_eq!(first, run(&args).stdout);
    let document: Value = serde_json::from_slice(&first).unwrap();
    let mut compared = 0;
    for case in golden["cases"].as_array().unwrap() {
        if !case["source"].as_str().unwrap().starts_with("MIT") {
            continue;
        }
        let decision = row(&document, "decisions", "id", &case["qid"].to_string());
        assert_eq!(decision["winner"], case["default_rule_winner"], "{}", case["qid"]);
        compared += 1;
    }
    assert_eq!(compared, 30);
    // Answers extracted from the texts are the recorded ones.
    let extracted = vote(&["data/fanout/gsm8k-openai-n4.jsonl", "--extract", "line"]);
    for (a, b) in
        document["decisions"].as_array().unwrap().iter().zip(extracted["decisions"].as_array().unwrap())
    {
        assert_eq!(a["winner"], b["winner"], "{}", a["id"]);
    }
}

#[test]
fn bad_files_are_told_and_end_with_2() {
    let output = run(&["vote", "data/fanout/no-such-file.jsonl"]);
    assert_eq!(output.status.code(), Some(2));
    assert!(String::from_utf8_lossy(&output.stderr).contains("no-such-file.jsonl"));
    let output = run(&["vote", "data/fanout", "--labels=nonsense"]);
    assert_eq!(output.status.code(), Some(2));
    assert!(String::from_utf8_lossy(&output.stderr).contains("nonsense"));
    assert_eq!(run(&["vote"]).status.code(), Some(2));
}

/// What the upstream saw, by model.
#[derive(Default)]
struct Seen {
    /// When the answer that locks the vote in was sent.
    answered: Vec<Instant>,
    /// When held streams were closed by the client.
    closed: Vec<(String, Instant)>,
    /// Dollars billed where usage was sent.
    billed: f64,
    keys: Vec<Option<String>>,
}

const INPUT_PRICE: f64 = 2.0;
const OUTPUT_PRICE: f64 = 8.0;

/// `answers-N`: N tokens and the answer 42. `dead`: the connection is closed. `stalls`: one token and its usage,
/// then silence. `mute`: one token without usage, then silence.
fn upstream(seen: Arc<Mutex<Seen>>) -> String {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let url = format!("http://{}/v1", listener.local_addr().unwrap());
    std::thread::spawn(move || {
        for stream in listener.incoming().flatten() {
            let seen = seen.clone();
            std::thread::spawn(move || answer(stream, &seen));
        }
    });
    url
}

fn request(reader: &mut BufReader<TcpStream>) -> (Value, Option<String>) {
    let (mut length, mut key) = (0, None);
    loop {
        let mut line = String::new();
        reader.read_line(&mut line).unwrap();
        let line = line.trim().to_owned();
        if let Some(value) = line.to_ascii_lowercase().strip_prefix("content-length:") {
            length = value.trim().parse().unwrap();
        }
        if line.to_ascii_lowercase().starts_with("authorization:") {
            key = Some(line["authorization:".len()..].trim().to_owned());
        }
        if line.is_empty() {
            break;
        }
    }
    let mut body = vec![0; length];
    reader.read_exact(&mut body).unwrap();
    (serde_json::from_slice(&body).unwrap(), key)
}

fn answer(stream: TcpStream, seen: &Mutex<Seen>) {
    let mut reader = BufReader::new(stream);
    let (body, key) = request(&mut reader);
    seen.lock().unwrap().keys.push(key);
    let model = body["model"].as_str().unwrap().to_owned();
    if model == "dead" {
        return;
    }
    let mut out = reader.get_ref();
    write!(out, "HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\nconnection: close\r\n\r\n").unwrap();
    let mut send = |value: Value| write!(out, "data: {value}\n\n").unwrap();
    let delta =
        |field: &str, text: &str| json!({"choices": [{"delta": {field: text}, "finish_reason": null}]});
    let usage = |tokens: u32| json!({"prompt_tokens": 100, "completion_tokens": tokens});
    let bill = |tokens: u32| {
        seen.lock().unwrap().billed += (100.0 * INPUT_PRICE + f64::from(tokens) * OUTPUT_PRICE) / 1e6;
    };
    if let Some(tokens) = model.strip_prefix("answers-") {
        let tokens: u32 = tokens.parse().unwrap();
        send(delta("reasoning_content", "six sevens are"));
        for _ in 0..tokens - 1 {
            send(delta("content", "so "));
        }
        send(delta("content", "\nAnswer: 42."));
        send(json!({"choices": [{"delta": {}, "finish_reason": "stop"}]}));
        send(json!({"choices": [], "usage": usage(tokens)}));
        bill(tokens);
        seen.lock().unwrap().answered.push(Instant::now());
        write!(out, "data: [DONE]\n\n").unwrap();
        return;
    }
    let mut first = delta("content", "hm");
    if model == "stalls" {
        first["usage"] = usage(1);
        bill(1);
    }
    send(first);
    // Nothing more is sent; what is read next is the client's farewell.
    let mut rest = [0];
    let _ = reader.get_ref().set_read_timeout(Some(Duration::from_mins(1)));
    let _ = reader.get_mut().read(&mut rest);
    seen.lock().unwrap().closed.push((model, Instant::now()));
}

fn fan_out(url: &str, extra: &[&str]) -> Command {
    let folder = std::env::temp_dir().join(format!("sseismo-vote-{}", std::process::id()));
    std::fs::create_dir_all(&folder).unwrap();
    let prompt = folder.join("prompt.txt");
    std::fs::write(&prompt, "What is 6 times 7? End with `Answer: …`.").unwrap();
    let mut command = sseismo();
    command.args(["vote", "--base-url", url, "--price", "2:8", "--prompt-file"]).arg(prompt).args(extra);
    command.env("VOTE_TEST_KEY", "sk-secret-of-the-test");
    command
}

#[test]
fn lock_in_cancels_what_still_runs_and_cost_is_what_was_billed() {
    let models = "answers-5,answers-7,answers-9,answers-11,dead,stalls,stalls,mute";
    let flags = ["--model", models, "--n", "8", "--stop", "lock-in", "--key-env", "VOTE_TEST_KEY"];
    let mut slowest = Duration::MAX;
    // A crowded machine may deschedule us once; it may not do so three times.
    for _ in 0..3 {
        let seen = Arc::new(Mutex::new(Seen::default()));
        let url = upstream(seen.clone());
        let output = fan_out(&url, &[&flags[..], &["--json"]].concat()).output().unwrap();
        assert_eq!(output.status.code(), Some(0), "{}", String::from_utf8_lossy(&output.stderr));
        assert!(!String::from_utf8_lossy(&output.stderr).contains("sk-secret"));
        let document: Value = serde_json::from_slice(&output.stdout).unwrap();
        let live = &document["live"];
        assert_eq!(live["ended"], "lock-in");
        let states: Vec<String> =
            live["branches"].as_array().unwrap().iter().map(|b| b["state"].to_string()).collect();
        assert_eq!(states[..4], ["\"done\""; 4]);
        assert!(states[4].contains("failed"));
        assert_eq!(states[5..], ["\"cancelled\""; 3]);
        let decision = &document["decisions"][0];
        assert_eq!((&decision["winner"], &decision["no_quorum"]), (&json!("42."), &json!(false)));
        wait_for(|| seen.lock().unwrap().closed.len() == 3);
        let seen = seen.lock().unwrap();
        assert!(seen.keys.iter().all(|key| key.as_deref() == Some("Bearer sk-secret-of-the-test")));
        // Four answers of 5, 7, 9 and 11 tokens and two stalled ones of 1 token; `mute` never reported.
        let printed = live["cost_usd"].as_f64().unwrap();
        assert!((printed - seen.billed).abs() < 1e-12, "{printed} was printed, {} billed", seen.billed);
        assert!((printed - (600.0 * INPUT_PRICE + 34.0 * OUTPUT_PRICE) / 1e6).abs() < 1e-12);
        let mute = &live["branches"][7];
        assert!(mute["usage"].is_null() && mute["cost_usd"].is_null());
        assert!(mute["cost_usd_est"].as_f64().unwrap() > 0.0, "estimated, and never in the reported sum");
        let locked = *seen.answered.iter().max().unwrap();
        let last = seen.closed.iter().map(|(_, at)| *at).max().unwrap();
        slowest = slowest.min(last.saturating_duration_since(locked));
        if slowest <= Duration::from_millis(100) {
            break;
        }
    }
    assert!(slowest <= Duration::from_millis(100), "cancelled only after {slowest:?}");
    let _ = writeln!(std::io::stderr(), "cancelled {slowest:?} after the vote was locked in");
}

fn wait_for(done: impl Fn() -> bool) {
    let start = Instant::now();
    while !done() && start.elapsed() < Duration::from_secs(10) {
        std::thread::yield_now();
    }
    assert!(done());
}

#[test]
fn the_printed_cost_is_the_billed_one() {
    let seen = Arc::new(Mutex::new(Seen::default()));
    let url = upstream(seen.clone());
    let flags = ["--model", "answers-5,answers-5,dead", "--n", "3", "--stop", "never"];
    let output = fan_out(&url, &flags).output().unwrap();
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    let billed = seen.lock().unwrap().billed;
    assert!(text.contains(&format!("cost: ${billed:.6} for 210 reported tokens")), "{text}");
    assert!(seen.lock().unwrap().keys.iter().all(Option::is_none), "no key is sent unasked");
}

#[test]
fn a_budget_stops_streams_and_too_few_answers_are_no_quorum() {
    let seen = Arc::new(Mutex::new(Seen::default()));
    let url = upstream(seen.clone());
    // The stalled branches report 101 tokens each; the limit is passed at once.
    let flags = ["--model", "stalls", "--n", "4", "--max-tokens", "400", "--json"];
    let output = fan_out(&url, &flags).output().unwrap();
    assert_eq!(output.status.code(), Some(2));
    let document: Value = serde_json::from_slice(&output.stdout).unwrap();
    assert_eq!(document["live"]["ended"], "budget");
    assert_eq!(document["live"]["quorum_reached"], false);
    let flags = ["--model", "answers-5,dead,dead,dead", "--n", "4", "--json"];
    let output = fan_out(&url, &flags).output().unwrap();
    assert_eq!(output.status.code(), Some(2));
    let document: Value = serde_json::from_slice(&output.stdout).unwrap();
    assert_eq!(document["live"]["quorum"], 2);
    assert_eq!(document["decisions"][0]["no_quorum"], true);
}

/// `sseismo simulate`; it ends with the test.
struct Simulator {
    child: Child,
    url: String,
}

impl Simulator {
    fn start() -> Self {
        let scenario = root().join("tests/clients/quick.toml");
        let mut child = sseismo().arg("simulate").arg(scenario).stdout(Stdio::piped()).spawn().unwrap();
        let mut line = String::new();
        BufReader::new(child.stdout.take().unwrap()).read_line(&mut line).unwrap();
        let told: Value = serde_json::from_str(&line).unwrap();
        Self { child, url: told["listening"].as_str().unwrap().to_owned() }
    }
}

impl Drop for Simulator {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// The simulator's right answers end like this.
const EXTRACT: [&str; 2] = ["--extract", r"regex:(\d+)\.\s*$"];

#[test]
fn a_live_vote_runs_against_the_simulator() {
    let simulator = Simulator::start();
    let url = format!("{}/v1", simulator.url);
    let flags = ["--model", "m", "--n", "4", "--stop", "never", "--json"];
    let output = fan_out(&url, &[&flags[..], &EXTRACT].concat()).output().unwrap();
    assert_eq!(output.status.code(), Some(0), "{}", String::from_utf8_lossy(&output.stderr));
    let document: Value = serde_json::from_slice(&output.stdout).unwrap();
    let (decision, live) = (&document["decisions"][0], &document["live"]);
    assert_eq!((&decision["winner"], &decision["answers"][0]["count"]), (&json!("42"), &json!(4)));
    assert!(live["cost_usd"].as_f64().unwrap() > 0.0 && live["tokens_est"] == 0, "{live}");
}

/// What `capture` repeats and keeps is a fan-out; what it does not keep is not there.
#[test]
fn captured_answers_are_voted_on_when_their_texts_were_kept() {
    let simulator = Simulator::start();
    let folder = tempfile::tempdir().unwrap();
    let path = |name: &str| folder.path().join(name).to_str().unwrap().to_owned();
    let body = json!({
        "model": "m",
        "stream": true,
        "stream_options": {"include_usage": true},
        "messages": [{"role": "user", "content": "6 times 7?"}],
    });
    std::fs::write(path("req.json"), body.to_string()).unwrap();
    let url = format!("{}/v1/chat/completions", simulator.url);
    let capture = |out: &str, extra: &[&str]| {
        let (request, out) = (path("req.json"), path(out));
        let args = ["capture", "--url", &url, "--body", &request, "-o", &out, "--repeat", "5"];
        let output = run(&[&args[..], extra].concat());
        assert_eq!(output.status.code(), Some(0), "{}", String::from_utf8_lossy(&output.stderr));
        String::from_utf8_lossy(&output.stderr).into_owned()
    };
    assert!(capture("kept", &["--keep-text"]).contains("WARNING: the texts of answers are STORED"));
    assert!(!capture("plain", &[]).contains("STORED"));
    let document = vote(&[&[path("kept").as_str(), "--price", "2:8"][..], &EXTRACT].concat());
    assert_eq!(
        (&document["inputs"][0]["fan_outs"], &document["inputs"][0]["samples"]),
        (&json!(1), &json!(5))
    );
    let answer = &document["decisions"][0]["answers"][0];
    assert_eq!((&answer["answer"], &answer["count"]), (&json!("42"), &json!(5)));
    let mut billed = 0.0;
    let mut tokens = 0;
    let dataset = Dataset::open(std::path::Path::new(&path("kept"))).unwrap();
    dataset.summaries(|summary| {
        let count = |tokens: Option<u64>| u32::try_from(tokens.unwrap()).unwrap();
        let (input, output) = (count(summary.usage.input), count(summary.usage.output));
        billed += (f64::from(input) * INPUT_PRICE + f64::from(output) * OUTPUT_PRICE) / 1e6;
        tokens += u64::from(output);
        std::ops::ControlFlow::Continue(())
    });
    assert!(tokens > 0 && answer["tokens"] == tokens, "{answer}");
    assert!((answer["cost_usd"].as_f64().unwrap() - billed).abs() < 1e-12, "{answer}");
    // Fifty are asked for, so five are refused with the reason.
    let refused = run(&["vote", &path("kept"), "--cluster", "hdbscan"]);
    assert_eq!(refused.status.code(), Some(2));
    assert!(String::from_utf8_lossy(&refused.stderr).contains("5 traces are too few for HDBSCAN"));
    let plain = run(&["vote", &path("plain")]);
    assert_eq!(plain.status.code(), Some(2));
    assert!(String::from_utf8_lossy(&plain.stderr).contains("--keep-text"));
}

#[test]
fn a_real_embeddings_server_clusters_real_traces() {
    let Some(python) = needs(Peer::Python("llama-embeddings", &["xllamacpp", "gguf", "numpy"])) else {
        return;
    };
    let folder = root().join("target/peers/llama-embeddings");
    let mut server = Command::new(python)
        .arg(root().join("tests/engine/llama_embeddings.py"))
        .arg(folder.join("random.gguf"))
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::null())
        .spawn()
        .unwrap();
    let mut lines = BufReader::new(server.stdout.take().unwrap()).lines().map_while(Result::ok);
    let port = lines.find_map(|line| line.strip_prefix("port ").map(str::to_owned));
    let file = folder.join("ten.jsonl");
    let all = std::fs::read_to_string(data("fanout/gsm8k-openai-n4.jsonl")).unwrap();
    std::fs::write(&file, all.lines().take(10).collect::<Vec<_>>().join("\n")).unwrap();
    let url = format!("http://127.0.0.1:{}/v1", port.expect("the server starts"));
    let file = file.to_str().unwrap();
    let document = vote(&[file, "--embedder", "http", "--embed-url", &url, "--embed-model", "random"]);
    // Closing its standard input ends the server; if it lingers, it is ours to end.
    drop(server.stdin.take());
    let _ = server.kill();
    let _ = server.wait();
    let decisions = document["decisions"].as_array().unwrap();
    assert_eq!(decisions.len(), 10);
    for decision in decisions {
        let clusters = &decision["clusters"];
        assert_eq!(clusters["labels"].as_array().unwrap().len(), 4);
        let coherence = clusters["coherence"].as_f64().unwrap();
        assert!(coherence > 0.0 && coherence < 1.0, "{coherence}");
    }
}
