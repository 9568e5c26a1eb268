//! What one event costs in the burst detector, and what it keeps.
//!
//! `cargo bench --profile quick -p sseismo-live-detector --bench burst`. CPU time of this thread, so that
//! neighbours on a busy machine do not count; criterion divides by the events.

#![allow(missing_docs, reason = "criterion's macros make undocumented items")]
#![expect(
    clippy::print_stdout,
    clippy::expect_used,
    reason = "a bench prints, and stops where it cannot measure"
)]

use std::hint::black_box;
use std::time::Duration;

use criterion::measurement::{Measurement, ValueFormatter, WallTime};
use criterion::{Criterion, SamplingMode, Throughput, criterion_group, criterion_main};
use sseismo_live_detector::burst::{BurstBaseline, BurstModel, BurstStream, Flag, Run};
use sseismo_simulator::timing::Process;
use sseismo_trace::Delta;

#[path = "../examples/shared/recorded.rs"]
mod recorded;

use recorded::{flags, learned, recorded};

/// CPU time of this thread, ns. Linux only.
struct CpuTime;

impl Measurement for CpuTime {
    type Intermediate = f64;
    type Value = f64;

    fn start(&self) -> f64 {
        let stat = std::fs::read_to_string("/proc/thread-self/schedstat").unwrap_or_default();
        stat.split(' ')
            .next()
            .and_then(|ns| ns.parse().ok())
            .expect("a system with /proc/thread-self/schedstat")
    }

    fn end(&self, start: f64) -> f64 {
        self.start() - start
    }

    fn add(&self, a: &f64, b: &f64) -> f64 {
        a + b
    }

    fn zero(&self) -> f64 {
        0.0
    }

    fn to_f64(&self, value: &f64) -> f64 {
        *value
    }

    fn formatter(&self) -> &dyn ValueFormatter {
        WallTime.formatter()
    }
}

fn events(criterion: &mut Criterion<CpuTime>) {
    let gpt4o = recorded("whisperleak/gpt4o-part1.json");
    let baseline = learned(&gpt4o);
    let model = baseline.freeze(1e8, 1).expect("90 streams hold enough groups");
    println!(
        "bytes: {} a stream, {} more while it is recorded, {} a model, {} a baseline of {} runs",
        BurstStream::bytes(),
        128 * 16,
        model.bytes(),
        baseline.bytes(),
        baseline.seen()
    );
    let steady: Vec<Vec<Delta>> = (0..20).map(|seed| Process::Steady.deltas(seed)).collect();
    let bursts: Vec<Vec<Delta>> = (0..20).map(|seed| Process::BurstMulti.deltas(seed)).collect();
    let mut group = criterion.benchmark_group("burst");
    // The kernel brings a thread's CPU time up to date every few ms: samples are many times as long.
    group.sampling_mode(SamplingMode::Flat).sample_size(10);
    group.warm_up_time(Duration::from_millis(300)).measurement_time(Duration::from_secs(3));
    for (name, streams) in [("gpt-4o", &gpt4o), ("a group an event", &steady), ("20 frames a burst", &bursts)]
    {
        group.throughput(Throughput::Elements(streams.iter().map(|stream| stream.len() as u64).sum()));
        group.bench_function(name, |bencher| bencher.iter(|| run(&model, streams)));
    }
    group.throughput(Throughput::Elements(1));
    group.bench_function("freeze a model", |bencher| bencher.iter(|| black_box(baseline.freeze(1e8, 2))));
    group.finish();
    black_box(flags(&model, &gpt4o[0], 50_000));
}

fn run(model: &BurstModel, streams: &[Vec<Delta>]) -> usize {
    let mut flagged = 0;
    for stream in streams {
        let mut live = BurstStream::new(model);
        flagged += stream.iter().filter_map(|delta| live.push(black_box(delta))).count();
        flagged += usize::from(live.end().is_some());
    }
    flagged
}

criterion_group! {
    name = benches;
    config = Criterion::default().with_measurement(CpuTime);
    targets = events
}
criterion_main!(benches);
