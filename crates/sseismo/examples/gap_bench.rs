//! Gap and burst statistics of a trace dataset by the column kernel, timed: both passes together.
//!
//! ```text
//! cargo run --profile quick -p sseismo --no-default-features --features analyze \
//!     --example gap_bench -- DIR 10000000
//! python3 crates/sseismo/examples/gap_bench.py DIR
//! ```
//!
//! Writes a seeded dataset of so many events to `DIR` unless it is there (streams of 500, half of them
//! bursty), then reads it twice: times alone, then kinds and sizes. The script asks `DuckDB` and polars for
//! the first half of these figures (count, mean, sd, longest, dead, joined per stream) from the same files,
//! one thread each, and prints the same lines. CPU seconds are the process's own, from `/proc/self/stat`.
#![expect(clippy::print_stdout, reason = "the figures are what this program is for")]

use std::ops::ControlFlow;
use std::path::Path;

use anyhow::Context as _;
use sseismo_analysis::kernel::{Columns, FrameGaps, Groups};
use sseismo_trace::parquet::{Dataset, DatasetWriter, Manifest, Sizes};
use sseismo_trace::{Delta, Kind, Micros, Phase, Stream, Summary, TimeSource, UtcMicros};

const EVENTS_PER_STREAM: u32 = 500;

fn main() -> anyhow::Result<()> {
    let mut args = std::env::args().skip(1);
    let folder = args.next().context("usage: gap_bench DIR [EVENTS]")?;
    let events: u32 = args.next().map_or(Ok(10_000_000), |events| events.parse()).context("EVENTS")?;
    let folder = Path::new(&folder);
    if !Manifest::path(folder).exists() {
        write(folder, events)?;
    }
    let dataset = Dataset::open(folder)?;

    let start = cpu_seconds()?;
    let mut gaps = FrameGaps::default();
    dataset.times(|times| {
        gaps.push(times.t, times.measured);
        ControlFlow::Continue(())
    });
    let first = cpu_seconds()?;
    let mut groups = Groups::new(gaps.fine_window());
    let (mut dead, mut joined, mut counted) = (0, 0, 0);
    let report = dataset.events(Sizes::Tokens, |columns| {
        let row = groups.push(&Columns {
            t: columns.times.t,
            measured: columns.times.measured,
            kind: columns.kind,
            phase: columns.phase,
            size: columns.size,
        });
        (dead, joined, counted) = (dead + row.dead, joined + row.joined, counted + row.gaps);
        ControlFlow::Continue(())
    });
    let second = cpu_seconds()?;

    println!(
        "kernel: {} events, {} streams, {counted} gaps, {dead} dead, {joined} joined",
        report.events, report.streams
    );
    let (fine, coarse) = groups.totals();
    println!("groups: {} at W1, {} at W2", fine.groups, coarse.groups);
    println!("weighted gap: {:?} s at W1, {:?} s at W2", fine.weighted_gap(), coarse.weighted_gap());
    println!(
        "cpu: first pass {:.2} s, second {:.2} s, both {:.2} s",
        first - start,
        second - first,
        second - start
    );
    Ok(())
}

/// A small linear congruential generator: the data must not cost more than the measurement.
struct Dice(u64);

impl Dice {
    /// Below `limit`. Constants: Knuth, MMIX.
    fn below(&mut self, limit: u64) -> u64 {
        self.0 = self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (self.0 >> 33) % limit
    }
}

fn write(folder: &Path, events: u32) -> anyhow::Result<()> {
    let now = UtcMicros(1_780_000_000_000_000);
    let mut writer = DatasetWriter::create(folder, Manifest::default(), now)?;
    let mut dice = Dice(42);
    let mut deltas = Vec::new();
    for number in 0..events / EVENTS_PER_STREAM {
        deltas.clear();
        let bursty = number % 2 == 1;
        let mut t = 0;
        for seq in 0..EVENTS_PER_STREAM {
            // The mix that the published engine figures were measured on: half of the streams bursty,
            // with 0.3 ms gaps and 2 % of stalls over 1.2 s.
            let gap = match bursty {
                true if dice.below(50) == 0 => 1_200_000 + dice.below(800_000),
                true => 200 + dice.below(200),
                false => 15_000 + dice.below(30_000),
            };
            t += gap.cast_signed();
            let (kind, phase) = if seq < EVENTS_PER_STREAM / 2 {
                (Kind::Reasoning, Phase::Reasoning)
            } else {
                (Kind::Text, Phase::Output)
            };
            let tokens = u32::try_from(1 + dice.below(5))?;
            deltas.push(Delta {
                tokens: Some(tokens),
                chars: tokens * 4,
                wire_bytes: 180 + tokens * 4,
                ..Delta::new(seq, kind, phase, Some(Micros(t)))
            });
        }
        let summary = Summary {
            stream_id: u64::from(number),
            started_at: Some(now),
            time_source: TimeSource::Socket,
            ..Summary::default()
        };
        writer.stream(Stream { summary: &summary, deltas: &deltas, reads: &[] })?;
    }
    writer.finish()?;
    Ok(())
}

/// User and system time of this process: fields 14 and 15 of `/proc/self/stat`, in ticks of 10 ms.
fn cpu_seconds() -> anyhow::Result<f64> {
    let stat =
        std::fs::read_to_string("/proc/self/stat").context("only Linux tells a process's CPU time here")?;
    let fields: Vec<&str> = stat.rsplit(") ").next().unwrap_or("").split(' ').collect();
    let ticks =
        |i: usize| -> anyhow::Result<f64> { Ok(fields.get(i).context("a short /proc/self/stat")?.parse()?) };
    Ok((ticks(11)? + ticks(12)?) / 100.0)
}
