//! Detectors of clustered streams beside one another, all at one false alarm in 1e5 flush groups.
//!
//! `cargo run -p sseismo-live-detector --example detector_table`, optionally with a number of runs per
//! scenario, one of groups per healthy scenario, and names of scenarios: the rows of those alone. Streams come
//! from `data/scenarios` in virtual time, one
//! after another on one route; time is streaming time.
//!
//! Rivals are calibrated on as many healthy groups as are then used to count false alarms; ours learns 200
//! streams and computes its thresholds. Seeds under 1,000 are for learning and calibrating, those from 10,000
//! on for measuring. Only here are there detectors that we do not ship.
#![expect(clippy::print_stdout, reason = "the tables are what this program is for")]
#![expect(clippy::print_stderr, reason = "progress")]

mod ours;
mod rivals;
mod traffic;
mod whole;

use std::error::Error;
use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};

use ours::Ours;
use sseismo_live_detector::Baselines;

use rivals::{RIVALS, alarms, calibrate, real};
use traffic::{Stream, healthy, injected, streams};
use whole::Whole;

const ARL: f64 = 1e5;
/// Real gaps, into which everything is injected.
const BASE: &str = "resampled-gpt-4o";
const CLUSTERED: [&str; 6] =
    ["write-up-burst", "multi-frame-burst", "token-bucket", "byte-buffer", "cork", "dead-air"];
const HEALTHY: [&str; 9] = [
    "resampled-gpt-4o",
    "resampled-aiperf",
    "resampled-summary",
    "steady",
    "poisson",
    "lognormal",
    "slow-phases",
    "summary-parts",
    "big-frames",
];
/// Healthy streams before the change: whoever keeps a mean or a window has one.
const WARM: usize = 6;
/// What is not seen within this streaming time counts as missed.
const PATIENCE_S: f64 = 60.0;
/// The burst detector at the same average run length, and the whole process at its default one.
const OURS: [&str; 2] = ["ours", "`Detector`, 30 days"];
const TUNING_SEED: u64 = 1;
const LEARNING_SEED: u64 = 2;
const FIRST_SEED: u64 = 10_000;

/// A detector at work on one route: stream in, times of alarms out.
type Detector<'a> = Box<dyn FnMut(&Stream) -> Vec<f64> + 'a>;

/// Every detector, set for one healthy scenario.
#[derive(Clone)]
struct Bench {
    settings: Vec<f64>,
    ours: Ours,
    baselines: Baselines,
}

impl Bench {
    fn new(name: &str, groups: usize) -> Outcome<Self> {
        let scenario = healthy(name)?;
        let null = take(streams(&scenario, TUNING_SEED).map(Stream::bare), groups);
        let settings = RIVALS.iter().map(|kind| calibrate(kind, &null, ARL)).collect();
        let ours = Ours::learn(streams(&scenario, LEARNING_SEED), ARL)?;
        let baselines = Whole::learn(streams(&scenario, LEARNING_SEED).take(ours::LEARNED));
        Ok(Self { settings, ours, baselines })
    }

    fn detectors(&mut self) -> Vec<Detector<'_>> {
        let mut write_up = rivals::write_up::WriteUp::default();
        let mut all: Vec<Detector<'_>> = vec![Box::new(move |stream| alarms(&mut write_up, stream))];
        for (kind, setting) in RIVALS.iter().zip(&self.settings) {
            let mut rival = (kind.make)(*setting);
            all.push(Box::new(move |stream| alarms(rival.as_mut(), stream)));
        }
        self.ours.restart();
        all.push(Box::new(|stream| self.ours.alarms(stream)));
        all
    }

    fn settings(&self) -> String {
        let shown = RIVALS.iter().zip(&self.settings).map(|(kind, at)| format!("{} {at:.3}", kind.name));
        format!("{}; ours: {}", shown.collect::<Vec<_>>().join(", "), self.ours.note)
    }
}

fn take(streams: impl Iterator<Item = Stream>, groups: usize) -> Vec<Stream> {
    let mut seen = 0;
    streams
        .take_while(|stream| {
            seen += stream.groups.len();
            seen <= groups
        })
        .collect()
}

fn main() -> Outcome<()> {
    let mut numbers = std::env::args().skip(1).filter_map(|arg| arg.parse::<usize>().ok());
    let (runs, groups) = (numbers.next().unwrap_or(200), numbers.next().unwrap_or(1_000_000));
    let named: Vec<String> = std::env::args().skip(1).filter(|arg| arg.parse::<usize>().is_err()).collect();
    let wanted = |names: &[&'static str]| -> Vec<&'static str> {
        let wants = |name: &&str| named.is_empty() || named.iter().any(|wanted| wanted == name);
        names.iter().copied().filter(wants).collect()
    };
    let names: Vec<&str> =
        ["write-up rule"].into_iter().chain(RIVALS.map(|kind| kind.name)).chain(OURS).collect();
    let head = format!("| scenario | {} |\n|---|{}", names.join(" | "), "---|".repeat(names.len()));

    println!("Detected within {PATIENCE_S} s, median / p95 delay in s; {runs} runs, injected into {BASE}:\n");
    println!("{head}");
    let clustered = wanted(&CLUSTERED);
    if !clustered.is_empty() {
        let bench = Bench::new(BASE, groups)?;
        for row in in_parallel(&clustered, |name| delays(name, bench.clone(), runs)) {
            println!("{}", row?);
        }
    }
    println!("\nFalse alarms per 1,000 stream-hours, in {groups} healthy groups on which nothing was set:\n");
    println!("{head}");
    let mut notes = Vec::new();
    for row in in_parallel(&wanted(&HEALTHY), |name| false_alarms(name, groups)) {
        let (row, note) = row?;
        println!("{row}");
        notes.push(note);
    }
    println!("\n< is the rule-of-three bound beside a zero. Settings:\n");
    for note in notes {
        println!("- {note}");
    }
    Ok(())
}

type Outcome<T> = Result<T, Box<dyn Error + Send + Sync>>;

/// One result per name, in order, on every core.
fn in_parallel<T: Send>(names: &[&str], row: impl Fn(&str) -> Outcome<T> + Sync) -> Vec<Outcome<T>> {
    let next = AtomicUsize::new(0);
    let found = Mutex::new(Vec::new());
    std::thread::scope(|scope| {
        for _ in 0..std::thread::available_parallelism().map_or(1, usize::from) {
            scope.spawn(|| {
                while let Some(name) = names.get(next.fetch_add(1, Relaxed)) {
                    eprintln!("{name}");
                    let result = row(name);
                    if let Ok(mut found) = found.lock() {
                        found.push((*name, result));
                    }
                }
            });
        }
    });
    let mut found = found.into_inner().unwrap_or_default();
    found.sort_by_key(|(name, _)| names.iter().position(|other| other == name));
    found.into_iter().map(|(_, result)| result).collect()
}

/// The row of a clustered scenario.
fn delays(name: &str, mut bench: Bench, runs: usize) -> Outcome<String> {
    let (scenario, base) = (injected(name, BASE)?, healthy(BASE)?);
    let mut delays = vec![Vec::new(); RIVALS.len() + 1 + OURS.len()];
    let mut whole = Whole::new(bench.baselines.clone());
    for seed in (FIRST_SEED..).take(runs) {
        let warm: Vec<Stream> = streams(&base, seed + 100_000).take(WARM).collect();
        let changed = until_patience(streams(&scenario, seed));
        whole.rest();
        let whole: Detector<'_> = Box::new(|stream| whole.alarms(stream));
        let detectors = bench.detectors().into_iter().chain([whole]);
        for (delays, mut detector) in delays.iter_mut().zip(detectors) {
            for stream in &warm {
                detector(stream);
            }
            delays.extend(delay(&mut detector, &changed));
        }
    }
    let cells: Vec<String> = delays.into_iter().map(|delays| cell(delays, runs)).collect();
    Ok(format!("| {name} | {} |", cells.join(" | ")))
}

/// The row of a healthy scenario, and how the detectors were set for it.
fn false_alarms(name: &str, groups: usize) -> Outcome<(String, String)> {
    let mut bench = Bench::new(name, groups)?;
    let (mut seconds, mut count, mut counts) = (0.0, 0, vec![0; RIVALS.len() + 1 + OURS.len()]);
    let mut whole = Whole::new(bench.baselines.clone());
    {
        let mut detectors = bench.detectors();
        detectors.push(Box::new(|stream| whole.alarms(stream)));
        for stream in streams(&healthy(name)?, FIRST_SEED) {
            count += stream.groups.len();
            if count > groups {
                break;
            }
            seconds += stream.length;
            for (count, detector) in counts.iter_mut().zip(&mut detectors) {
                *count += detector(&stream).len();
            }
        }
    }
    let thousands = seconds / 3.6e6;
    let rate = |alarms: usize| match alarms {
        0 => format!("0 (< {:.0})", 3.0 / thousands),
        alarms => format!("{:.0}", real(alarms) / thousands),
    };
    let cells: Vec<String> = counts.into_iter().map(rate).collect();
    let nominal = real(groups) / ARL / thousands;
    let row =
        format!("| {name} ({:.0} h; allowed {nominal:.0}) | {} |", seconds / 3_600.0, cells.join(" | "));
    Ok((row, format!("{name}: {}; onsets of the whole detector: {:?}", bench.settings(), whole.onsets)))
}

/// Changed streams that together last as long as anybody waits.
fn until_patience(streams: impl Iterator<Item = Stream>) -> Vec<Stream> {
    let mut before = 0.0;
    streams
        .take_while(|stream| {
            let wanted = before < PATIENCE_S;
            before += stream.length;
            wanted
        })
        .collect()
}

/// Streaming time from the first changed content to the first alarm.
fn delay(detector: &mut Detector<'_>, changed: &[Stream]) -> Option<f64> {
    let mut before = 0.0;
    for stream in changed {
        if let Some(at) = detector(stream).first() {
            return Some(before + at).filter(|delay| *delay <= PATIENCE_S);
        }
        before += stream.length;
    }
    None
}

fn cell(mut delays: Vec<f64>, runs: usize) -> String {
    if delays.is_empty() {
        return format!("0 % (< {:.1})", 300.0 / real(runs));
    }
    delays.sort_by(f64::total_cmp);
    let quantile = |per_cent: usize| delays[(delays.len() - 1) * per_cent / 100];
    let share = 100.0 * real(delays.len()) / real(runs);
    format!("{share:.1} % · {:.1} / {:.1}", quantile(50), quantile(95))
}
