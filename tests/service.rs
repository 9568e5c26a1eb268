//! What operators see of a running relay: metrics that a real Prometheus scrapes, rules that it accepts,
//! signals as server-sent events, and `sseismo watch`.

use std::path::Path;
use std::process::{Command, Stdio};
use std::time::Duration;

use sseismo_tests::{Listening, Peer, Program, free_port, needs, root, run, sseismo};
use sseismo_trace::parquet::Dataset;

#[path = "service/access_log.rs"]
mod access_log;
#[path = "service/http.rs"]
mod http;
#[path = "service/keeping.rs"]
mod keeping;

use http::{Events, get};

/// An upstream, and a relay in front of it that records to `traces` of the folder.
struct Stand {
    folder: tempfile::TempDir,
    _upstream: Listening,
    relay: Listening,
}

impl Stand {
    fn new(scenario: &str, flags: &[&str]) -> Self {
        Self::within(tempfile::tempdir().expect("a folder"), scenario, flags)
    }

    fn within(folder: tempfile::TempDir, scenario: &str, flags: &[&str]) -> Self {
        let scenario = root().join(scenario);
        let upstream = Listening::start(&["simulate", &scenario.display().to_string()]);
        let traces = folder.path().join("traces").display().to_string();
        let args = ["relay", "--observe", "--to", &upstream.url, "--listen", "127.0.0.1:0"];
        let args = [&args[..], &["--admin", "127.0.0.1:0", "-o", &traces], flags].concat();
        let relay = Listening::start(&args);
        Self { folder, _upstream: upstream, relay }
    }

    fn path(&self, name: &str) -> std::path::PathBuf {
        self.folder.path().join(name)
    }

    /// Sends so many requests through the relay.
    fn traffic(&self, requests: u32, at_once: u32) {
        let body = self.path("request.json");
        let request = r#"{"model":"gpt-5.5","stream":true,"reasoning":{"effort":"high"},"input":"hi"}"#;
        std::fs::write(&body, request).expect("written");
        let url = format!("{}/v1/responses", self.relay.url);
        let (requests, at_once) = (requests.to_string(), at_once.to_string());
        let mut command = sseismo();
        command.args(["capture", "--json", "--yes", "--repeat", &requests, "--concurrency", &at_once]);
        command.args(["--url", &url]).arg("--body").arg(&body).arg("-o").arg(self.path("probe"));
        let output = command.output().expect("the binary starts");
        assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    }

    /// Asks the operators' address until the answer satisfies, for at most ten seconds.
    fn ask_until(&self, path: &str, satisfies: impl Fn(&str) -> bool) -> String {
        wait_for(|| Some(get(&format!("{}{path}", self.relay.admin), &[]).1).filter(|body| satisfies(body)))
    }
}

/// What `look` finds, within ten seconds.
fn wait_for<T>(look: impl Fn() -> Option<T>) -> T {
    for _ in 0..200 {
        if let Some(found) = look() {
            return found;
        }
        std::thread::sleep(Duration::from_millis(50));
    }
    panic!("not within 10 s")
}

/// The sum over the series of one sample name.
fn sum(metrics: &str, name: &str) -> f64 {
    let of = |line: &str| line.strip_prefix(name).is_some_and(|rest| rest.starts_with(['{', ' ']));
    let values = metrics.lines().filter(|line| of(line)).filter_map(|line| line.rsplit_once(' '));
    values.map(|(_, value)| value.parse::<f64>().expect("a number")).sum()
}

const GAPS: &str = "gen_ai_client_operation_time_per_output_chunk_seconds_count";

#[test]
fn a_real_prometheus_scrapes_the_relay() {
    let Some(prometheus) = needs(Peer::Debian("prometheus", "prometheus")) else { return };
    let stand = Stand::new("tests/clients/quick.toml", &[]);
    stand.traffic(6, 3);
    let metrics = stand.ask_until("/metrics", |metrics| {
        sum(metrics, "gen_ai_server_request_duration_seconds_count") >= 6.0
            && sum(metrics, "sseismo_detector_scopes") >= 1.0
    });
    check_metrics(&metrics);

    let port = free_port();
    let config = stand.path("prometheus.yml");
    let target = stand.relay.admin.trim_start_matches("http://");
    let shipped = std::fs::read_to_string(root().join("data/prometheus/prometheus.yml")).expect("shipped");
    let rules = root().join("data/prometheus/sseismo.rules.yml");
    let own = shipped
        .replace("127.0.0.1:8898", target)
        .replace("interval: 15s", "interval: 1s")
        .replace("sseismo.rules.yml", &rules.display().to_string());
    std::fs::write(&config, own).expect("written");
    let mut command = Command::new(prometheus);
    command.arg(format!("--config.file={}", config.display()));
    command.arg(format!("--storage.tsdb.path={}", stand.path("tsdb").display()));
    command.arg(format!("--web.listen-address=127.0.0.1:{port}"));
    command.stdout(Stdio::null()).stderr(Stdio::null());
    let _prometheus = Program::start(&mut command, &[port]);
    let query = |what: &str| {
        let (status, body) = get(&format!("http://127.0.0.1:{port}/api/v1/query?query={what}"), &[]);
        let answer: serde_json::Value = serde_json::from_str(&body).unwrap_or_default();
        let value = answer["data"]["result"][0]["value"][1].as_str().map(str::to_owned);
        value.filter(|_| status == 200)
    };
    assert_eq!(wait_for(|| query("up")), "1");
    let gaps = wait_for(|| query(&format!("sum({GAPS})")));
    assert_eq!(gaps.parse::<f64>().ok(), Some(sum(&metrics, GAPS)), "what the relay told, it has");
    let types = wait_for(|| {
        let (_, body) = get(&format!("http://127.0.0.1:{port}/api/v1/metadata"), &[]);
        serde_json::from_str::<serde_json::Value>(&body).ok().filter(|answer| answer["data"][OWN].is_array())
    });
    assert_eq!(types["data"][OWN][0]["type"], "histogram", "{types:#}");
    let rules = wait_for(|| {
        let (_, body) = get(&format!("http://127.0.0.1:{port}/api/v1/rules"), &[]);
        Some(body).filter(|body| body.contains("SseismoSignal"))
    });
    assert!(!rules.contains(r#""health":"err""#), "{rules}");
}

const OWN: &str = "sseismo_stream_burst_share";

/// `promtool check metrics` has nothing to say.
fn check_metrics(metrics: &str) {
    use std::io::Write as _;
    let Some(promtool) = needs(Peer::Debian("promtool", "prometheus")) else { return };
    let mut command = Command::new(promtool);
    command.args(["check", "metrics"]).stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
    let mut child = command.spawn().expect("promtool starts");
    child.stdin.take().expect("piped").write_all(metrics.as_bytes()).expect("written");
    let output = child.wait_with_output().expect("it ends");
    let said = [output.stdout, output.stderr].concat();
    assert!(output.status.success() && said.is_empty(), "{}", String::from_utf8_lossy(&said));
}

/// The rules that ship hold what their own tests say.
#[test]
fn the_alert_rules_hold() {
    let Some(promtool) = needs(Peer::Debian("promtool", "prometheus")) else { return };
    let folder = root().join("data/prometheus");
    for args in [["check", "rules", "sseismo.rules.yml"], ["test", "rules", "sseismo.rules.test.yml"]] {
        let output = Command::new(&promtool).args(args).current_dir(&folder).output().expect("it starts");
        assert!(output.status.success(), "{args:?}: {}", String::from_utf8_lossy(&output.stdout));
    }
}

/// The relay hands every path to the upstream, `/metrics` too; what is ours is on the admin address alone.
#[test]
fn every_path_of_the_relay_belongs_to_the_upstream() {
    let stand = Stand::new("tests/clients/quick.toml", &[]);
    for path in ["/metrics", "/signals", "/health"] {
        let (_, passed) = get(&format!("{}{path}", stand.relay.url), &[]);
        let (status, ours) = get(&format!("{}{path}?once", stand.relay.admin), &[]);
        assert_eq!(status, 200, "{ours}");
        assert_ne!(passed, ours, "{path}");
    }
    let (_, health) = get(&format!("{}/health", stand.relay.admin), &[]);
    assert_eq!(health, "{\"status\":\"ok\"}\n");
}

/// Views come to those who ask; `watch` without a terminal says why it cannot go on.
#[test]
fn views_come_to_those_who_ask() {
    let stand = Stand::new("tests/clients/quick.toml", &[]);
    let mut events = Events::open(&format!("{}/signals?views", stand.relay.admin), None);
    stand.traffic(4, 2);
    let view = events.find(|event| event.name == "view" && event.data.contains("gpt-5.5"));
    let view: serde_json::Value = serde_json::from_str(&view.data).expect("JSON");
    assert!(view["scopes"].as_u64() >= Some(1), "{view:#}");
    assert!(view["watches"].as_array().is_some_and(|watches| !watches.is_empty()), "{view:#}");

    let nobody = run(&["watch", &format!("http://127.0.0.1:{}", free_port())]);
    let said = String::from_utf8_lossy(&nobody.stderr);
    assert!(nobody.status.code() == Some(2) && said.contains("no relay answers"), "{said}");
    let wrong = run(&["watch", &stand.relay.url]);
    let said = String::from_utf8_lossy(&wrong.stderr);
    assert!(wrong.status.code() == Some(2) && said.contains("admin address"), "{said}");
}

/// Streams that burst by the write-ups' literal rule: the signal reaches server-sent events, JSON, metrics,
/// `watch` and the dataset, and a reader that was away gets what it missed.
#[test]
fn a_burst_is_told_everywhere() {
    let stand = Stand::new("tests/service/bursts.toml", &["--preset", "write-up"]);
    let admin = stand.relay.admin.clone();
    let mut watch = sseismo();
    watch.args(["watch", &admin]).stdout(Stdio::piped()).stderr(Stdio::null());
    let mut watch = Ends(watch.spawn().expect("the binary starts"));
    let mut events = Events::open(&format!("{admin}/signals"), None);
    stand.traffic(3, 3);
    let onset = events.find(|event| event.name == "onset" && event.data.contains(r#""signature":"burst""#));

    let active = get(&format!("{admin}/signals"), &["Accept: application/json"]).1;
    let active: serde_json::Value = serde_json::from_str(&active).expect("JSON");
    assert_eq!(active[0]["target"]["model"], "gpt-5.5", "{active:#}");
    let metrics = get(&format!("{admin}/metrics"), &[]).1;
    assert!(sum(&metrics, "sseismo_signals_active") >= 1.0, "{metrics}");
    // Another run's id is none of ours, so the reader is told what goes on; its own last id, and it has it all.
    let again = Events::open(&format!("{admin}/signals"), Some("1-0")).find(|event| event.name == "onset");
    assert_eq!((again.id, &again.data), (onset.id, &onset.data));

    let mut line = String::new();
    let told = watch.0.stdout.take().expect("piped");
    std::io::BufRead::read_line(&mut std::io::BufReader::new(told), &mut line).expect("a line");
    assert!(line.contains("onset") && line.contains("burst") && line.contains("model=gpt-5.5"), "{line}");

    let Stand { folder, relay, _upstream } = stand;
    relay.end();
    let dataset = Dataset::open(&folder.path().join("traces")).expect("a dataset");
    let mut stored = Vec::new();
    let report = dataset.signals(|stored_signal| {
        stored.push(serde_json::to_string(&stored_signal.signal).expect("JSON"));
        std::ops::ControlFlow::Continue(())
    });
    assert!(report.expect("the table").damaged.is_empty() && stored.contains(&onset.data), "{stored:?}");
}

/// A process that ends with the test.
struct Ends(std::process::Child);

impl Drop for Ends {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// A run's baselines are there for the next one, in the dataset's folder.
#[test]
fn what_was_learned_is_kept_with_the_dataset() {
    let stand = Stand::new("tests/clients/quick.toml", &[]);
    stand.traffic(2, 1);
    let Stand { folder, relay, _upstream } = stand;
    relay.end();
    let saved = folder.path().join("traces/baselines.json");
    let saved: serde_json::Value = read(&saved);
    assert_eq!(saved["version"], 1, "{saved:#}");
}

fn read(path: &Path) -> serde_json::Value {
    serde_json::from_slice(&std::fs::read(path).expect("a file")).expect("JSON")
}
