//! A real engine through the tap: llama.cpp's server over its three APIs. What is recorded is what a plain
//! reader of the same bytes counts, and a healthy engine gets no verdict.

use std::collections::BTreeMap;
use std::io::{BufRead as _, BufReader};
use std::ops::ControlFlow;
use std::process::{Child, Command, Stdio};

use serde_json::Value;
use sseismo_tests::{Listening, Peer, json, needs, root};
use sseismo_trace::parquet::Dataset;
use sseismo_trace::{Kind, Outcome};

/// The engine; it ends with the test.
struct Engine {
    child: Child,
    port: u16,
}

impl Drop for Engine {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

fn engine(command: &mut Command) -> Engine {
    let mut child = command
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::null())
        .spawn()
        .expect("the engine starts");
    let mut lines = BufReader::new(child.stdout.take().expect("piped")).lines().map_while(Result::ok);
    let port = lines.find_map(|line| line.strip_prefix("port ")?.parse().ok());
    Engine { child, port: port.expect("its port") }
}

/// Deltas of reasoning and of text, by API and in the order of the streams.
type Counts = BTreeMap<String, Vec<(u64, u64)>>;

#[test]
fn llama_cpp_is_recorded_delta_for_delta() {
    // The environment of the embeddings test: one installation for both.
    let Some(python) = needs(Peer::Python("llama-embeddings", &["xllamacpp", "gguf", "numpy"])) else {
        return;
    };
    let folder = tempfile::tempdir().expect("a folder");
    let traces = folder.path().join("traces").display().to_string();
    let script = |name: &str| root().join("tests/engine").join(name);
    let mut server = Command::new(&python);
    server.arg(script("llama_server.py")).arg(folder.path().join("random.gguf"));
    let engine = engine(&mut server);
    let to = format!("http://127.0.0.1:{}", engine.port);
    let relay =
        Listening::start(&["relay", "--observe", "--to", &to, "--listen", "127.0.0.1:0", "-o", &traces]);
    let counted =
        Command::new(&python).arg(script("count.py")).arg(&relay.url).output().expect("the counter starts");
    assert!(counted.status.success(), "{}", String::from_utf8_lossy(&counted.stderr));
    relay.end();

    let mut direct = Counts::new();
    for line in String::from_utf8(counted.stdout).expect("text").lines() {
        let line: Value = serde_json::from_str(line).expect("JSON");
        let of = |part: &str| line[part].as_u64().expect("a count");
        let api = line["api"].as_str().expect("an API").to_owned();
        direct.entry(api).or_default().push((of("reasoning"), of("text")));
    }
    let mut recorded = Counts::new();
    let report = Dataset::open(traces.as_ref()).expect("a dataset").streams(|stream| {
        let of = |kind| stream.deltas.iter().filter(|delta| delta.kind == kind).count() as u64;
        let counts = (of(Kind::Reasoning) + of(Kind::Summary), of(Kind::Text));
        assert!(
            matches!(stream.summary.outcome, Outcome::Completed | Outcome::Incomplete),
            "{:?}",
            stream.summary
        );
        let api = stream.summary.api.expect("a known API").name().to_owned();
        recorded.entry(api).or_default().push(counts);
        ControlFlow::Continue(())
    });
    assert!(report.damaged.is_empty(), "{:?}", report.damaged);
    // The dataset holds streams in the order of their ids.
    for streams in direct.values_mut().chain(recorded.values_mut()) {
        streams.sort_unstable();
    }
    assert_eq!(recorded, direct);
    assert_eq!(direct.keys().collect::<Vec<_>>(), ["chat", "messages", "responses"]);
    let sum =
        |streams: &[(u64, u64)]| streams.iter().fold((0, 0), |sum, next| (sum.0 + next.0, sum.1 + next.1));
    for (api, streams) in &direct {
        let (reasoning, text) = sum(streams);
        assert!(reasoning + text > 100, "{api}: {streams:?}");
        // The messages API of this server takes no seed: there it is left to chance.
        assert!(api == "messages" || (reasoning > 0 && text > 0), "{api}: {streams:?}");
    }

    let report = json(&["analyze", &traces, "--json"]);
    let findings = report["findings"].as_array().expect("findings");
    let burst: Vec<_> = findings.iter().filter(|finding| finding["signature"] == "burst").collect();
    assert!(!burst.is_empty());
    for finding in findings {
        let verdict = finding["verdict"].as_str().expect("a verdict");
        assert!(["none", "too-few", "not-measurable"].contains(&verdict), "{finding:#}");
    }
}
