//! Bytes to deltas, against `eventsource-stream` and `serde_json::Value` in the same run.
//!
//! Three recorded bodies, in reads of 260 B (one event or so), 1,400 B (a TCP segment) and 8 KiB. The time is
//! per body; criterion divides by its events. It is CPU time of this thread, so that neighbours on a busy
//! machine do not decide who is faster. Ours frames, reads the dialect, measures and fills a summary;
//! the other side frames and parses, nothing more.

#![allow(missing_docs, reason = "criterion's macros make undocumented items")]

use std::convert::Infallible;
use std::hint::black_box;
use std::path::Path;
use std::time::Duration;

use criterion::measurement::{Measurement, ValueFormatter, WallTime};
use criterion::{BenchmarkId, Criterion, SamplingMode, Throughput, criterion_group, criterion_main};
use eventsource_stream::Eventsource;
use futures_util::{FutureExt, StreamExt, stream};
use sseismo_capture::answer::{Answer, Head};
use sseismo_trace::{Chunk, Micros, Summary};

const BODIES: [(&str, &str); 3] = [
    ("responses", "20_reasoning_api-openai-com_gpt-5-2025-08-07.sse"),
    ("chat", "45_reasoning_gpustack-api-base_qwen3.sse"),
    ("messages", "68_non-ascii_api-anthropic-com_claude-sonnet-4-5-20250929.sse"),
];

/// CPU time of this thread, in ns. Linux only: elsewhere the bench says so and stops.
struct CpuTime;

impl Measurement for CpuTime {
    type Intermediate = f64;
    type Value = f64;

    fn start(&self) -> f64 {
        let stat = std::fs::read_to_string("/proc/thread-self/schedstat").unwrap_or_default();
        let spent = stat.split(' ').next().and_then(|ns| ns.parse().ok());
        let Some(spent) = spent else { panic!("this system has no /proc/thread-self/schedstat") };
        spent
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
        // It formats nanoseconds, whatever clock they are of.
        WallTime.formatter()
    }
}

fn ours(body: &[u8], read: usize) -> u64 {
    let head = Head { content_type: Some("text/event-stream"), ..Head::default() };
    let mut answer = Answer::new(&head);
    for (read, bytes) in (0..).zip(body.chunks(read)) {
        answer.push(Chunk { bytes, read, at: Some(Micros(i64::from(read))) }, |delta| {
            black_box(delta);
        });
    }
    let mut summary = Summary::default();
    let counts = answer.finish(&mut summary, |delta| {
        black_box(delta);
    });
    black_box(summary);
    counts.events
}

fn theirs(body: &[u8], read: usize) -> u64 {
    let chunks = stream::iter(body.chunks(read).map(Ok::<_, Infallible>));
    let events = chunks.eventsource().fold(0, |events, event| async move {
        if let Ok(event) = event {
            black_box(serde_json::from_str::<serde_json::Value>(&event.data).ok());
            events + 1
        } else {
            events
        }
    });
    events.now_or_never().unwrap_or(0)
}

fn decode(c: &mut Criterion<CpuTime>) {
    let mut group = c.benchmark_group("decode");
    // The kernel brings a thread's CPU time up to date every few ms: samples are many times as long.
    group.sampling_mode(SamplingMode::Flat).sample_size(10);
    group.warm_up_time(Duration::from_millis(300)).measurement_time(Duration::from_secs(3));
    for (name, file) in BODIES {
        let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../data/sse").join(file);
        let Ok(body) = std::fs::read(&path) else { panic!("no body at {}", path.display()) };
        assert_eq!(ours(&body, 1400), theirs(&body, 1400), "both see the same events");
        group.throughput(Throughput::Elements(ours(&body, 1400)));
        for read in [260, 1400, 8192] {
            let id = |side| BenchmarkId::new(format!("{name}/{side}"), read);
            group.bench_function(id("ours"), |b| b.iter(|| ours(&body, read)));
            group.bench_function(id("eventsource-stream+Value"), |b| b.iter(|| theirs(&body, read)));
        }
    }
    group.finish();
}

criterion_group! {
    name = benches;
    config = Criterion::default().with_measurement(CpuTime);
    targets = decode
}
criterion_main!(benches);
