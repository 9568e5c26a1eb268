//! What the live path costs: CPU time per event of the detector and of the metrics, and memory per stream.
//!
//! Streams of made-up gaps (log-normal, median 20 ms, seeded) come in notes as the tap cuts them, round robin
//! over the streams that are open: a hundred new ones each 30 s of their time. Models, scans and thresholds are
//! made on another thread in the relay: here they are timed apart. CPU time is the kernel's account of this thread,
//! so a busy machine does not change it much.
//!
//! ```text
//! cargo run --release -p sseismo --no-default-features --features relay --example live_bench -- [EVENTS]
//! ```

use std::hint::black_box;
use std::sync::Arc;

use anyhow::Context as _;
use sseismo_live_detector::{Detector, Job, Jobs, Options};
use sseismo_router::feed::Feed;
use sseismo_router::metrics::Metrics;
use sseismo_trace::{Api, Delta, Kind, Micros, Outcome, Phase, Summary, Usage, UtcMicros};

/// Streams open at once.
const OPEN: u64 = 100;
/// Events of one stream, and of one note of it: half a second at this pace.
const EVENTS: usize = 1_000;
const NOTE: usize = 25;
/// Rounds in which scopes learn what is usual: before the count begins.
const WARM: usize = 10;
/// Scopes.
const MODELS: u64 = 8;

fn main() -> anyhow::Result<()> {
    let events: usize = match std::env::args().nth(1) {
        Some(text) => text.parse().context("the number of events")?,
        None => 4_000_000,
    };
    let rounds = (events / EVENTS / usize::try_from(OPEN)?).max(1);
    let tapes: Vec<Vec<Delta>> = (0..16).map(tape).collect();
    let both = run(rounds, &tapes, true, true)?;
    let detector = run(rounds, &tapes, true, false)?;
    let metrics = run(rounds, &tapes, false, true)?;
    let none = run(rounds, &tapes, false, false)?;
    let line = |name: &str, ns: f64| println(&format!("{name:<28} {ns:>7.1} ns per event"));
    line("detector", detector - none);
    line("metrics", metrics - none);
    line("both", both - none);
    println(&format!("{:<28} {:>7.2} M events/s on one core", "both", 1_000.0 / (both - none)));
    memory()
}

/// CPU time per event, ns, jobs apart.
fn run(rounds: usize, tapes: &[Vec<Delta>], detect: bool, measure: bool) -> anyhow::Result<f64> {
    let feed = Feed::new(1, 64);
    let metrics = Arc::new(Metrics::new(&feed));
    let mut meter = metrics.meter();
    let mut detector = Detector::new(Options { jobs: Jobs::ByHost, ..Options::default() });
    let mut apart = Apart::default();
    let mut before = cpu_ns()?;
    for round in 0..WARM + rounds {
        if round == WARM {
            if detect && !measure {
                println(&format!("{:<28} {}", "learning 8 scopes", apart.told()));
            }
            (before, apart) = (cpu_ns()?, Apart::default());
        }
        let start = i64::try_from(round)? * 30_000_000;
        let summaries: Vec<Summary> =
            (0..OPEN).map(|i| summary(u64::try_from(round).unwrap_or(0) * OPEN + i, start)).collect();
        for summary in &summaries {
            if detect {
                detector.begin(UtcMicros(start), summary);
            }
            if measure {
                meter.begin(Micros(start), summary);
            }
        }
        for cut in 0..EVENTS / NOTE {
            for summary in &summaries {
                let tape = &tapes[usize::try_from(summary.stream_id)? % tapes.len()];
                let deltas = black_box(&tape[cut * NOTE..(cut + 1) * NOTE]);
                if detect {
                    detector.deltas(summary.stream_id, deltas);
                }
                if measure {
                    meter.deltas(summary.stream_id, deltas);
                }
            }
            if detect && cut % 2 == 0 {
                apart.work(&mut detector)?;
                detector.tick(UtcMicros(start + i64::try_from(cut)? * 500_000 - 1_000_000));
            }
        }
        for summary in &summaries {
            if detect {
                detector.end(UtcMicros(start + 29_000_000), summary);
            }
            if measure {
                meter.end(summary);
            }
        }
        black_box(detector.take_signals());
    }
    let spent = cpu_ns()?.saturating_sub(before).saturating_sub(apart.ns);
    if detect && !measure {
        println(&format!("{:<28} {}", "the same, steady", apart.told()));
        saving(&detector)?;
    }
    #[expect(clippy::cast_precision_loss, reason = "a mean")]
    let per_event = spent as f64 / (rounds * EVENTS) as f64 / OPEN as f64;
    Ok(per_event)
}

/// What it takes to keep what was learned.
fn saving(detector: &Detector) -> anyhow::Result<()> {
    let before = cpu_ns()?;
    let learned = detector.snapshot();
    let copied = cpu_ns()?;
    let mut json = Vec::new();
    learned.write(&mut json)?;
    let written = cpu_ns()?;
    let [on, apart] = [copied - before, written - copied].map(|ns| ns / 1_000);
    println(&format!("{:<28} {on} µs, and {apart} µs apart, {} KiB", "saving 8 scopes", json.len() / 1_024));
    Ok(())
}

/// Work that is not on the way of events.
#[derive(Default)]
struct Apart {
    jobs: usize,
    ns: u64,
    longest: u64,
}

impl Apart {
    /// Does what the detector wants done.
    fn work(&mut self, detector: &mut Detector) -> anyhow::Result<()> {
        let mut answers = Vec::new();
        for job in detector.take_jobs() {
            let before = cpu_ns()?;
            answers.push(Job::run(job));
            let spent = cpu_ns()?.saturating_sub(before);
            self.jobs += 1;
            self.ns += spent;
            self.longest = self.longest.max(spent);
        }
        detector.take_answers(answers);
        Ok(())
    }

    fn told(&self) -> String {
        let [all, longest] = [self.ns, self.longest].map(|ns| ns / 1_000_000);
        format!("{} jobs apart, {all} ms, the longest {longest} ms", self.jobs)
    }
}

/// Memory of ten thousand streams in the middle of their lives.
fn memory() -> anyhow::Result<()> {
    let tape = tape(7);
    let feed = Feed::new(1, 64);
    let metrics = Arc::new(Metrics::new(&feed));
    let mut meter = metrics.meter();
    let mut detector = Detector::new(Options::default());
    // Scopes and series first, so that only streams are counted.
    for id in 0..MODELS {
        meter.begin(Micros(0), &summary(id, 0));
        detector.begin(UtcMicros(0), &summary(id, 0));
    }
    let told = |name: &str, with: &mut dyn FnMut(&Summary)| -> anyhow::Result<()> {
        let before = resident()?;
        for id in 100..10_100 {
            with(&summary(id, 0));
        }
        let bytes = resident()?.saturating_sub(before) / 10_000;
        println(&format!("{name:<28} {bytes:>7} bytes per live stream (10,000 streams, resident)"));
        Ok(())
    };
    told("detector", &mut |summary| {
        detector.begin(UtcMicros(0), summary);
        detector.deltas(summary.stream_id, &tape[..200]);
    })?;
    told("metrics", &mut |summary| {
        meter.begin(Micros(0), summary);
        meter.deltas(summary.stream_id, &tape[..200]);
    })?;
    println(&format!("{:<28} {:>7} KiB", "whole process, resident", resident()? / 1_024));
    Ok(())
}

fn summary(stream_id: u64, start: i64) -> Summary {
    Summary {
        stream_id,
        upstream: Some("api.example".to_owned()),
        model_requested: Some(format!("model-{}", stream_id % MODELS)),
        api: Some(Api::Responses),
        streamed: Some(true),
        started_at: Some(UtcMicros(start)),
        t_end: Some(Micros(29_000_000)),
        status: Some(200),
        outcome: Outcome::Completed,
        usage: Usage { output: Some(1_000), reasoning: Some(801.0), ..Usage::default() },
        ..Summary::default()
    }
}

/// Events with log-normal gaps: the sum of twelve uniform numbers less six is near enough to normal.
fn tape(seed: u64) -> Vec<Delta> {
    let mut state = seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1;
    let mut uniform = || {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        #[expect(clippy::cast_precision_loss, reason = "53 bits")]
        let unit = (state >> 11) as f64 / (1_u64 << 53) as f64;
        unit
    };
    let mut t = 400_000.0;
    (0..EVENTS)
        .zip(0_u32..)
        .map(|(_, seq)| {
            let normal = (0..12).map(|_| uniform()).sum::<f64>() - 6.0;
            t += 20_000.0 * (0.5 * normal).exp();
            #[expect(clippy::cast_possible_truncation, reason = "far below 2^63")]
            let at = Some(Micros(t as i64));
            Delta { chars: 4, ..Delta::new(seq, Kind::Reasoning, Phase::Reasoning, at) }
        })
        .collect()
}

/// Time that this thread spent on a CPU.
fn cpu_ns() -> anyhow::Result<u64> {
    let text = std::fs::read_to_string("/proc/thread-self/schedstat").context("the kernel's account")?;
    text.split(' ').next().and_then(|ns| ns.parse().ok()).context("a number of nanoseconds")
}

/// Resident memory, bytes.
fn resident() -> anyhow::Result<u64> {
    let text = std::fs::read_to_string("/proc/self/statm").context("the kernel's account")?;
    let pages: u64 = text.split(' ').nth(1).and_then(|pages| pages.parse().ok()).context("pages")?;
    Ok(pages * 4_096)
}

#[expect(clippy::print_stdout, reason = "an example's results")]
fn println(text: &str) {
    println!("{text}");
}
