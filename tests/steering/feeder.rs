//! Sinks without a relay: this test's own program once more, as a process that takes orders from its stdin and can
//! be killed like a relay.

use std::io::{BufRead as _, BufReader, Write as _};
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::sync::Arc;
use std::time::Duration;

use serde_json::{Value, json};
use sseismo_router::config;
use sseismo_router::feed::Feed;
use sseismo_router::metrics::Metrics;
use sseismo_router::order::{About, Notice, Order, notices};
use sseismo_router::sink::Sinks;
use sseismo_router::sink::lease::Restorer;
use sseismo_trace::{Detail, Evidence, Micros, Scope, Signal, SignalId, SignalState, UtcMicros};

/// The test that is the process, and the variable that names its configuration.
const TEST: &str = "feeder::the_process";
const CONFIG: &str = "SSEISMO_TEST_SINKS";

/// A process with sinks; killed with the test, and its restorer, too, unless that is what is looked at.
pub(crate) struct Feeder {
    child: Child,
    restorer: Option<u32>,
}

impl Feeder {
    /// Starts the sinks of a configuration: these `[[sink]]`s below two upstreams, `a` and `b`.
    pub(crate) fn start(folder: &Path, sinks: &str) -> Self {
        let config = folder.join("relay.toml");
        std::fs::write(&config, format!("{}{sinks}", upstreams(1, 2))).expect("written");
        let mut child = Command::new(std::env::current_exe().expect("a test knows its own path"))
            .args([TEST, "--exact", "--ignored", "--nocapture", "--quiet"])
            .env(CONFIG, &config)
            .env("SINKS_SECRET", "key")
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .expect("this program starts");
        let mut lines = BufReader::new(child.stdout.take().expect("piped")).lines();
        assert!(lines.any(|line| line.expect("text").contains("ready")), "the sinks start");
        let restorer = restorer_of(child.id());
        Self { child, restorer }
    }

    /// `a` keeps this share for so long.
    pub(crate) fn order(&mut self, share: f64, ttl: Duration) {
        self.order_for("a", share, ttl);
    }

    /// The same for another upstream.
    pub(crate) fn order_for(&mut self, upstream: &str, share: f64, ttl: Duration) {
        let line = json!({"upstream": upstream, "share": share, "ttl_ms": ttl.as_millis()});
        let mut stdin = self.child.stdin.as_ref().expect("piped");
        writeln!(stdin, "{line}").expect("it listens");
    }

    /// A signal in this state.
    pub(crate) fn signal(&mut self, state: &str, ttl: Duration) {
        let mut stdin = self.child.stdin.as_ref().expect("piped");
        writeln!(stdin, "{}", json!({"state": state, "ttl_ms": ttl.as_millis()})).expect("it listens");
    }

    /// The id of its restorer, the one process that it has started.
    pub(crate) fn restorer(&self) -> u32 {
        self.restorer.expect("a restorer")
    }

    /// The one that it has started since that one was killed.
    pub(crate) fn new_restorer(&mut self) -> u32 {
        let old = self.restorer;
        self.restorer = restorer_of(self.child.id());
        assert!(self.restorer != old, "another one");
        self.restorer()
    }

    /// The process's id.
    pub(crate) fn id(&self) -> u32 {
        self.child.id()
    }

    /// `kill -9`.
    pub(crate) fn kill(mut self) {
        self.restorer = None;
        self.child.kill().expect("killed");
        self.child.wait().expect("gone");
    }

    /// Lets it end by itself: no more orders.
    pub(crate) fn end(mut self) {
        self.restorer = None;
        drop(self.child.stdin.take());
        assert!(self.child.wait().expect("it ends").success());
    }
}

impl Drop for Feeder {
    fn drop(&mut self) {
        if let Some(id) = self.restorer {
            let _ = Command::new("kill").args(["-KILL", &id.to_string()]).status();
        }
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// The child of a relay that is its restorer, where it has one.
pub(crate) fn restorer_of(relay: u32) -> Option<u32> {
    // Each thread has its own list of children.
    let tasks = std::fs::read_dir(format!("/proc/{relay}/task")).expect("its threads");
    let lists = tasks.filter_map(Result::ok).map(|task| task.path().join("children"));
    let lists: String = lists.filter_map(|list| std::fs::read_to_string(list).ok()).collect();
    let ids: Vec<u32> = lists.split_whitespace().filter_map(|id| id.parse().ok()).collect();
    assert!(ids.len() < 2, "one restorer");
    ids.first().copied()
}

/// Whether a process is there.
pub(crate) fn lives(id: u32) -> bool {
    // One that has ended and whom nobody has asked yet is a zombie.
    std::fs::read_to_string(format!("/proc/{id}/stat"))
        .is_ok_and(|stat| !stat.rsplit_once(") ").is_none_or(|(_, rest)| rest.starts_with('Z')))
}

/// A configuration with two upstreams on these ports, and one route.
pub(crate) fn upstreams(a: u16, b: u16) -> String {
    let upstream = |name: &str, port: u16| {
        format!("[[upstream]]\nname = \"{name}\"\nurl = \"http://127.0.0.1:{port}/v1\"\napis = [\"chat\"]\n")
    };
    format!("{}{}[[route]]\nmodel = \"m\"\ntiers = [[\"a\"], [\"b\"]]\n", upstream("a", a), upstream("b", b))
}

fn signal(state: SignalState, ttl: Duration) -> Arc<Signal> {
    let since = std::time::SystemTime::UNIX_EPOCH.elapsed().expect("later than 1970");
    Arc::new(Signal {
        id: SignalId(0xabc),
        target: Scope { upstream: Some("a".to_owned()), ..Scope::default() },
        detail: Detail::Concurrency { calls: 7, window_s: 4.0 },
        cause: None,
        state,
        strength: 1.0,
        evidence: Evidence::default(),
        at: UtcMicros(i64::try_from(since.as_micros()).expect("this century")),
        ttl: Micros(i64::try_from(ttl.as_micros()).expect("a time")),
    })
}

fn notice(line: &str) -> Notice {
    let line: Value = serde_json::from_str(line).expect("JSON");
    let ttl = Duration::from_millis(line["ttl_ms"].as_u64().expect("a time"));
    match line["state"].as_str() {
        Some("onset") => Notice::Signal(signal(SignalState::Onset, ttl)),
        Some(_) => Notice::Signal(signal(SignalState::Clear, ttl)),
        None => Notice::Order(Order {
            about: About {
                upstream: line["upstream"].as_str().expect("a name").into(),
                model: None,
                effort: None,
            },
            share: line["share"].as_f64().expect("a share"),
            ttl,
            signal: signal(SignalState::Onset, ttl),
        }),
    }
}

/// No test: the process that [`Feeder`] starts.
#[test]
#[ignore = "started by the other tests"]
fn the_process() {
    let Some(path) = std::env::var_os(CONFIG) else { return };
    let text = std::fs::read_to_string(&path).expect("a configuration");
    let config = config::check(&text, path.as_ref()).expect("without faults");
    let _ = rustls::crypto::ring::default_provider().install_default();
    let metrics = Arc::new(Metrics::new(&Feed::new(1, 1)));
    let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build().expect("a runtime");
    runtime.block_on(async {
        let program = sseismo_tests::sseismo().get_program().into();
        let sinks = Sinks::start(&config.sinks, Restorer::new(program), metrics).await.expect("they start");
        let (told, telling) = notices();
        let reading = tokio::task::spawn_blocking(move || {
            // Straight to the process's stdout: the harness need not see it.
            writeln!(std::io::stdout(), "ready").expect("written");
            for line in std::io::stdin().lines().map_while(Result::ok) {
                told.blocking_send(notice(&line)).expect("taken");
            }
        });
        sinks.follow(telling).await;
        reading.await.expect("read");
    });
    // The harness would print to a pipe that nobody reads any more.
    std::process::exit(0);
}
