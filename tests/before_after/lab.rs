//! One load, four ways at once: at a healthy upstream, at the faulty primary, and through the relay with the same
//! primary and a healthy fallback, telling only and acting.
//!
//! The load is a simulated record that `sseismo replay` sends again; what is compared is what the clients saw.

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::ops::ControlFlow;
use std::path::{Path, PathBuf};
use std::sync::{Mutex, PoisonError};
use std::thread;

use serde_json::Value;
use sseismo_tests::{Listening, json, run};
use sseismo_trace::parquet::{Dataset, DatasetWriter, Manifest};
use sseismo_trace::{Summary, UtcMicros};

/// How a healthy upstream of most rows answers.
pub(crate) const ANSWERS: &str = "[answer]
reasoning = { median = 30, sigma = 0.3 }
output = { median = 15, sigma = 0.3 }
first-token = \"150ms\"
first-token-sigma = 0.2
[[behaviour]]
kind = \"steady\"
gap = \"10ms\"
";

/// How a healthy upstream of most rows answers, with half of the tokens.
pub(crate) const BRIEF_ANSWERS: &str = "[answer]
reasoning = { median = 15, sigma = 0.3 }
output = { median = 6, sigma = 0.3 }
first-token = \"150ms\"
first-token-sigma = 0.2
[[behaviour]]
kind = \"steady\"
gap = \"10ms\"
";

/// Where the load that comes first is recorded, and the answers to it.
const FIRST: &str = "first";

/// What a scenario needs.
#[derive(Clone, Debug, Default)]
pub(crate) struct Case {
    /// The scenario of the load: its `[load]`, `[answer]` and nothing that goes wrong.
    pub(crate) load: String,
    /// Requests of the load.
    pub(crate) requests: usize,
    /// Another load that is sent before it, and its requests: what is healthy is learned from it. It is in no figure.
    pub(crate) first: Option<(String, usize)>,
    /// Scenario of the primary.
    pub(crate) primary: String,
    /// Scenario of the fallback, and of the healthy upstream.
    pub(crate) fallback: String,
    /// The route's tiers, where the primary is not the first.
    pub(crate) tiers: &'static str,
    /// More lines for the relay's tables of upstreams.
    pub(crate) upstreams: &'static str,
    /// The rest of the relay's configuration; `ACT` becomes true or false. Empty: the relay that tells only is
    /// `--observe --to`.
    pub(crate) policies: &'static str,
    /// More arguments for `sseismo relay`.
    pub(crate) relay: &'static [&'static str],
    /// More arguments for `sseismo replay`.
    pub(crate) replay: &'static [&'static str],
}

/// What one way gave.
#[derive(Debug)]
pub(crate) struct Way {
    /// What the clients saw.
    pub(crate) clients: PathBuf,
    /// What the relay saw upstream.
    pub(crate) upstream: PathBuf,
    /// The relay's access log.
    pub(crate) log: Vec<Value>,
    /// The relay's signals.
    pub(crate) signals: Vec<Value>,
    /// What the first upstream did to each request.
    pub(crate) truth: Vec<Value>,
    /// What `sseismo replay` said.
    pub(crate) replay: Value,
}

/// What all ways gave.
#[derive(Debug)]
pub(crate) struct Ran {
    folder: tempfile::TempDir,
    pub(crate) healthy: Way,
    pub(crate) direct: Way,
    pub(crate) telling: Way,
    pub(crate) acting: Way,
}

/// How requests go.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum By {
    Healthy,
    Direct,
    Telling,
    Acting,
}

impl Case {
    /// Runs all four ways, one case at a time: what else runs on the machine moves the figures.
    pub(crate) fn run(&self) -> Ran {
        static ONE: Mutex<()> = Mutex::new(());
        let _alone = ONE.lock().unwrap_or_else(PoisonError::into_inner);
        // For those who look for the reasons of a figure: everything is left there.
        let mut folder = tempfile::tempdir().expect("a folder");
        folder.disable_cleanup(std::env::var_os("KEEP_BEFORE_AFTER").is_some());
        record(folder.path(), "load", &self.load, self.requests);
        if let Some((load, requests)) = &self.first {
            record(folder.path(), FIRST, load, *requests);
        }
        let [healthy, direct, telling, acting] = thread::scope(|scope| {
            [By::Healthy, By::Direct, By::Telling, By::Acting]
                .map(|by| {
                    let root = folder.path();
                    scope.spawn(move || self.way(by, root))
                })
                .map(|way| way.join().expect("it ran"))
        });
        let ran = Ran { folder, healthy, direct, telling, acting };
        ran.tell();
        ran
    }

    fn way(&self, by: By, root: &Path) -> Way {
        let folder = root.join(format!("{by:?}"));
        std::fs::create_dir(&folder).expect("a folder");
        let a = written(&folder, "a.toml", &self.primary);
        let b = written(&folder, "b.toml", &self.fallback);
        let truth = text(&folder.join("truth.jsonl"));
        let scenario = if by == By::Healthy { &b } else { &a };
        let first = Listening::start(&["simulate", scenario, "--truth", &truth]);
        let way = Way {
            clients: folder.join("clients"),
            upstream: folder.join("upstream"),
            log: Vec::new(),
            signals: Vec::new(),
            truth: Vec::new(),
            replay: Value::Null,
        };
        if matches!(by, By::Healthy | By::Direct) {
            let replay = self.replay(root, &first.url, &way.clients);
            first.end();
            return Way { truth: lines(Path::new(&truth)), replay, ..way };
        }
        let second = Listening::start(&["simulate", &b]);
        let (log, signals) = (folder.join("access.jsonl"), folder.join("signals.jsonl"));
        let (log, signals) = (text(&log), text(&signals));
        let upstream = text(&way.upstream);
        let mut args = vec!["relay", "-o", &upstream, "--signals-file", &signals, "--admin", "127.0.0.1:0"];
        args.extend(self.relay);
        let act = by == By::Acting;
        let config = written(&folder, "relay.toml", &self.config(&first.url, &second.url, act));
        if act || !self.policies.is_empty() {
            args.extend(["--config", &config, "--access-log", &log]);
        } else {
            args.extend(["--observe", "--to", &first.url, "--listen", "127.0.0.1:0"]);
        }
        let relay = Listening::start(&args);
        let replay = self.replay(root, &relay.url, &way.clients);
        relay.end();
        first.end();
        let [log, signals, truth] = [log, signals, truth].map(|path| lines(Path::new(&path)));
        Way { log, signals, truth, replay, ..way }
    }

    fn config(&self, a: &str, b: &str, act: bool) -> String {
        let mut config = "[server]\nlisten = \"127.0.0.1:0\"\n".to_owned();
        for (name, url) in [("a", a), ("b", b)] {
            let _ = write!(
                config,
                "[[upstream]]\nname = \"{name}\"\nurl = \"{url}/v1\"\napis = [\"responses\"]\n{}\n",
                self.upstreams
            );
        }
        let tiers = if self.tiers.is_empty() { "[[\"a\"], [\"b\"]]" } else { self.tiers };
        let _ = write!(config, "[[route]]\nmodel = \"*\"\ntiers = {tiers}\n");
        config.push_str(&self.policies.replace("ACT", &act.to_string()));
        config
    }

    /// Sends the load, after the one that comes first.
    fn replay(&self, root: &Path, to: &str, out: &Path) -> Value {
        if self.first.is_some() {
            self.send(&root.join(FIRST), to, &out.with_file_name(FIRST));
        }
        self.send(&root.join("load"), to, out)
    }

    fn send(&self, load: &Path, to: &str, out: &Path) -> Value {
        let (load, out) = (text(load), text(out));
        let mut args = vec!["replay", &load, "--to", to, "--yes", "--json", "--deadline", "2m", "-o", &out];
        args.extend(self.replay);
        let report = json(&args);
        assert_eq!(report["shed"], 0, "{report}");
        report
    }
}

impl Ran {
    /// How it went, for those who look for the reasons of a figure.
    fn tell(&self) {
        for (name, way) in [
            ("healthy", &self.healthy),
            ("direct", &self.direct),
            ("telling", &self.telling),
            ("acting", &self.acting),
        ] {
            println!(
                "{name}: sent late by {}; outcomes {}; first asked {:?}; policy {:?}; would have {:?}; {} signals",
                way.replay["late_us"],
                way.replay["outcomes"],
                way.first_asked(),
                way.told("policy"),
                way.told("would_have"),
                way.signals.len()
            );
        }
    }

    /// `sseismo compare` of the clients' records, of those streams alone that `keep` wants: the direct way
    /// against each of the others.
    pub(crate) fn compare(&self, keep: impl Fn(&Summary, f64) -> bool) -> Table {
        let side = |name: &str, way: &Way| {
            let out = self.folder.path().join(format!("{name}-kept"));
            let _ = std::fs::remove_dir_all(&out);
            kept(&way.clients, &out, &keep);
            text(&out)
        };
        let direct = side("direct", &self.direct);
        let against = |name: &str, way: &Way| json(&["compare", &direct, &side(name, way), "--json"]);
        Table {
            healthy: against("healthy", &self.healthy),
            telling: against("telling", &self.telling),
            acting: against("acting", &self.acting),
        }
    }

    /// The same of what the relay sent upstream, where it tells or acts; clients sent the rest themselves.
    pub(crate) fn upstream(&self) -> Table {
        let direct = text(&self.direct.clients);
        let against = |folder: &Path| json(&["compare", &direct, &text(folder), "--json"]);
        Table {
            healthy: against(&self.healthy.clients),
            telling: against(&self.telling.upstream),
            acting: against(&self.acting.upstream),
        }
    }

    /// What the policies did: calls that they moved or changed, when acting; calls that they would have, when
    /// telling; and asserts that telling moved nothing.
    pub(crate) fn steering(&self) -> String {
        let count = |way: &Way, field: &str| way.log.iter().filter(|line| line[field].is_array()).count();
        assert_eq!(count(&self.telling, "policy"), 0, "telling alone must change nothing");
        format!("{} / {}", count(&self.telling, "would_have"), count(&self.acting, "policy"))
    }
}

impl Way {
    /// What was done, or would have been, by policy and action.
    pub(crate) fn told(&self, field: &str) -> BTreeMap<String, usize> {
        let mut told = BTreeMap::new();
        for one in self.log.iter().filter_map(|line| line[field].as_array()).flatten() {
            let name = format!("{} {}", word(&one["policy"]), word(&one["action"]));
            *told.entry(name).or_default() += 1;
        }
        told
    }

    /// Calls by the upstream that was asked first.
    pub(crate) fn first_asked(&self) -> BTreeMap<String, usize> {
        let mut asked = BTreeMap::new();
        for line in &self.log {
            *asked.entry(word(&line["attempts"][0]["upstream"])).or_default() += 1;
        }
        asked
    }
}

fn word(value: &Value) -> String {
    value.as_str().unwrap_or("-").to_owned()
}

/// Three comparisons with the direct way, and lines of them.
#[derive(Debug)]
pub(crate) struct Table {
    pub(crate) healthy: Value,
    pub(crate) telling: Value,
    pub(crate) acting: Value,
}

/// A line of the table of all scenarios.
#[derive(Clone, Debug)]
pub(crate) struct Line(pub(crate) [String; 7]);

/// Healthy, direct, telling and acting, and the change from direct to acting with its interval.
#[derive(Clone, Debug)]
pub(crate) struct Figures {
    pub(crate) values: [Option<f64>; 4],
    cells: [String; 4],
    change: String,
}

impl Figures {
    /// As a line.
    pub(crate) fn line(&self, scenario: &str, figure: &str, steering: &str) -> Line {
        let [healthy, direct, telling, acting] = self.cells.clone();
        let change = &self.change;
        let figure = figure.to_owned();
        Line([
            scenario.to_owned(),
            figure,
            healthy,
            direct,
            telling,
            acting,
            format!("{change} | {steering}"),
        ])
    }

    /// Healthy, direct, telling, acting; 0 where there is none.
    pub(crate) fn all(&self) -> [f64; 4] {
        self.values.map(Option::unwrap_or_default)
    }
}

impl Table {
    /// A share, as `sseismo compare` calls it.
    pub(crate) fn share(&self, name: &str) -> Figures {
        let [healthy, telling, acting] =
            [&self.healthy, &self.telling, &self.acting].map(|report| named(&report["proportions"], name));
        let sides = [&healthy["second"], &acting["first"], &telling["second"], &acting["second"]];
        let cell = |side: &Value| {
            let percent =
                |value: &Value| value.as_f64().map_or("–".to_owned(), |v| format!("{:.1}", v * 100.0));
            format!(
                "{} % ({}–{}), n = {}",
                percent(&side["share"]),
                percent(&side["ci95"][0]),
                percent(&side["ci95"][1]),
                side["n"]
            )
        };
        let change = acting["difference"].as_f64();
        let ci95 = [0, 1].map(|end| acting["difference_ci95"][end].as_f64());
        let points = |v: Option<f64>| v.map_or("–".to_owned(), |v| format!("{:+.1}", v * 100.0));
        let told = format!("{} points ({} to {})", points(change), points(ci95[0]), points(ci95[1]));
        Figures { values: sides.map(|s| s["share"].as_f64()), cells: sides.map(cell), change: told }
    }

    /// A quantile.
    pub(crate) fn quantile(&self, name: &str, q: f64) -> Figures {
        let [healthy, telling, acting] = [&self.healthy, &self.telling, &self.acting].map(|report| {
            let quantity = named(&report["quantities"], name);
            let all = quantity["quantile_ratios"].as_array().cloned().unwrap_or_default();
            all.into_iter().find(|one| one["q"] == q).unwrap_or_default()
        });
        let values =
            [&healthy["second"], &acting["first"], &telling["second"], &acting["second"]].map(Value::as_f64);
        let change = acting["ratio"].as_f64();
        let ci95 = [0, 1].map(|end| acting["ci95"][end].as_f64());
        let cell = |value: Option<f64>| value.map_or("too few".to_owned(), |ms| format!("{ms:.0} ms"));
        Figures { values, cells: values.map(cell), change: times(change, ci95) }
    }

    /// A mean.
    pub(crate) fn mean(&self, name: &str) -> Figures {
        let [healthy, telling, acting] =
            [&self.healthy, &self.telling, &self.acting].map(|report| named(&report["quantities"], name));
        let sides = [&healthy["second"], &acting["first"], &telling["second"], &acting["second"]];
        let cell = |side: &Value| {
            let value = |value: &Value| value.as_f64().map_or("–".to_owned(), |v| format!("{v:.2}"));
            format!(
                "{} ({}–{}), n = {}",
                value(&side["mean"]),
                value(&side["mean_ci95"][0]),
                value(&side["mean_ci95"][1]),
                side["n"]
            )
        };
        let change = acting["mean_difference"]["value"].as_f64();
        let ci95 = [0, 1].map(|end| acting["mean_difference"]["ci95"][end].as_f64());
        let signed = |v: Option<f64>| v.map_or("–".to_owned(), |v| format!("{v:+.2}"));
        let told = format!("{} ({} to {})", signed(change), signed(ci95[0]), signed(ci95[1]));
        Figures { values: sides.map(|s| s["mean"].as_f64()), cells: sides.map(cell), change: told }
    }

    /// A rate per hour.
    pub(crate) fn rate(&self, name: &str) -> Figures {
        let [healthy, telling, acting] =
            [&self.healthy, &self.telling, &self.acting].map(|report| named(&report["rates"], name));
        let sides = [&healthy["second"], &acting["first"], &telling["second"], &acting["second"]];
        let cell = |side: &Value| {
            let value = |value: &Value| value.as_f64().map_or("–".to_owned(), |v| format!("{v:.0}"));
            format!("{}/h ({}–{})", value(&side["rate"]), value(&side["ci95"][0]), value(&side["ci95"][1]))
        };
        let change = acting["ratio"].as_f64();
        let ci95 = [0, 1].map(|end| acting["ratio_ci95"][end].as_f64());
        Figures {
            values: sides.map(|s| s["rate"].as_f64()),
            cells: sides.map(cell),
            change: times(change, ci95),
        }
    }
}

/// `× 0.25 (0.20–0.31)`.
fn times(change: Option<f64>, ci95: [Option<f64>; 2]) -> String {
    let value = |v: Option<f64>| v.map_or("–".to_owned(), |v| format!("{v:.2}"));
    format!("× {} ({}–{})", value(change), value(ci95[0]), value(ci95[1]))
}

fn named(all: &Value, name: &str) -> Value {
    let all = all.as_array().map(Vec::as_slice).unwrap_or_default();
    all.iter().find(|one| one["name"] == name).cloned().unwrap_or_default()
}

/// Writes those streams of a dataset that `keep` wants, given the seconds since the first one.
fn kept(from: &Path, to: &Path, keep: impl Fn(&Summary, f64) -> bool) {
    let dataset = Dataset::open(from).expect("a dataset");
    let mut first = i64::MAX;
    dataset.streams(|stream| {
        first = first.min(stream.summary.started_at.map_or(i64::MAX, |at| at.0));
        ControlFlow::Continue(())
    });
    let mut writer = DatasetWriter::create(to, Manifest::default(), UtcMicros(first)).expect("a dataset");
    dataset.streams(|stream| {
        #[expect(clippy::cast_precision_loss, reason = "a run lasts minutes")]
        let since = stream.summary.started_at.map_or(0.0, |at| (at.0 - first) as f64 / 1e6);
        if keep(stream.summary, since) {
            writer.stream(stream).expect("written");
        }
        ControlFlow::Continue(())
    });
    writer.finish().expect("written");
}

/// Records a load.
fn record(folder: &Path, name: &str, load: &str, requests: usize) {
    let scenario = written(folder, &format!("{name}.toml"), load);
    let requests = requests.to_string();
    let made = run(&["simulate", &scenario, "--dataset", &text(&folder.join(name)), "--streams", &requests]);
    assert!(made.status.success(), "{}", String::from_utf8_lossy(&made.stderr));
}

fn lines(path: &Path) -> Vec<Value> {
    let text = std::fs::read_to_string(path).unwrap_or_default();
    text.lines().map(|line| serde_json::from_str(line).expect("JSON")).collect()
}

fn written(folder: &Path, name: &str, content: &str) -> String {
    let path = folder.join(name);
    std::fs::write(&path, content).expect("written");
    text(&path)
}

fn text(path: &Path) -> String {
    path.display().to_string()
}
