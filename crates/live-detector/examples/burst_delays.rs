//! How soon a stream is flagged after clustering begins, injected into the gaps of real GPT-4o streams.
//!
//! `cargo run --profile quick -p sseismo-live-detector --example burst_delays -- 200`: so many streams a kind
//! (default 100), each honest for 5 s and then clustered. Beside it the oracle: one CUSUM per scale that knows
//! how the clustered groups look, at the same run length. The baseline is the recording itself; the clustered
//! part is never in it. Run length: one false alarm per 30 days over 10 streams.
#![expect(clippy::print_stdout, reason = "the table is what this program is for")]

use rand::{RngExt as _, SeedableRng as _};
use rand_chacha::ChaCha8Rng;
use sseismo_live_detector::burst::{BurstBaseline, BurstModel, BurstStream, Flag, Run, Scale, What};
use sseismo_trace::{Delta, Kind, Micros, Phase};

#[path = "shared/recorded.rs"]
mod recorded;

use recorded::{flags, learned, recorded, runs};

/// When clustering begins, and how long it is waited for a flag.
const CHANGE: i64 = 5_000_000;
const WAIT: i64 = 60_000_000;
/// A tick of the process's clock.
const TICK: i64 = 50_000;
/// First of the seeds on which nothing was tuned; those of the oracle's lessons lie above.
const FIRST_SEED: u64 = 10_000;
const LESSONS: u64 = 1_000_000;

/// An event on its way: when it left, tokens, bytes.
#[derive(Clone, Copy)]
struct Event {
    at: i64,
    tokens: u32,
    bytes: u32,
}

/// What clustering makes of the honest events after the change.
type Inject = fn(&[Event], &mut ChaCha8Rng) -> Vec<Event>;

const KINDS: [(&str, Inject); 6] = [
    ("write-up: 40-80 tokens each 1-2 s", write_up),
    ("multi-frame: the same in 20 frames", multi_frame),
    ("200 ms cork", |events, _| cork(events, 200_000)),
    ("4 KiB buffer", |events, _| buffer(events, 4_096)),
    ("16 KiB buffer", |events, _| buffer(events, 16_384)),
    ("token bucket: 60 each 1.5 s", |events, _| bucket(events)),
];

fn main() {
    let count: u64 = std::env::args().nth(1).and_then(|arg| arg.parse().ok()).unwrap_or(100);
    let first: u64 = std::env::args().nth(2).and_then(|arg| arg.parse().ok()).unwrap_or(FIRST_SEED);
    let streams = recorded("whisperleak/gpt4o-part1.json");
    let baseline = learned(&streams);
    let Ok(model) = baseline.freeze(1e6, 1) else {
        println!("{:?}", baseline.learning());
        return;
    };
    let arl = model.groups_per_second() * 10.0 * 30.0 * 86_400.0;
    let model = model.at(arl);
    println!("{} GPT-4o streams; run length {arl:.1e} coarse groups", streams.len());
    for scale in [Scale::Fine, Scale::Coarse] {
        let (most, mean) = model.mean_ratio(scale);
        println!(
            "{}: threshold {:.1}, E0[L] {most:.2} at most, {mean:.2} on average",
            scale.name(),
            model.threshold(scale)
        );
    }
    for note in model.notes() {
        println!("note: {note}");
    }
    println!(
        "\n| injected | flagged | mean s | p95 s | oracle mean s | p95 s | ratio of means |\n|---|---|---|---|---|---|---|"
    );
    for (name, inject) in KINDS {
        let lessons: Vec<Run> =
            (0..20).flat_map(|seed| runs(&after(&stream(&streams, inject, LESSONS + seed)))).collect();
        let Ok(oracle) = baseline.freeze_oracle(&lessons, arl, 1) else { return };
        let ours = delays(&model, &streams, inject, first..first + count);
        let best = delays(&oracle, &streams, inject, first..first + count);
        let (mean, p95) = figures(&ours);
        let (oracle_mean, oracle_p95) = figures(&best);
        let found = ours.iter().filter(|delay| delay.is_some()).count();
        println!(
            "| {name} | {found}/{count} | {mean:.2} | {p95:.2} | {oracle_mean:.2} | {oracle_p95:.2} | {:.2} |",
            mean / oracle_mean
        );
    }
}

/// Seconds from the change to the flag; `None` when there was none.
fn delays(
    model: &BurstModel,
    streams: &[Vec<Delta>],
    inject: Inject,
    seeds: std::ops::Range<u64>,
) -> Vec<Option<f64>> {
    let first = |seed| {
        let flags = flags(model, &stream(streams, inject, seed), TICK);
        let clusters = flags.iter().find(|(at, flag)| flag.what == What::Clusters && at.0 > CHANGE);
        clusters.map(|(at, _)| Micros(at.0 - CHANGE).seconds())
    };
    seeds.map(first).collect()
}

/// Mean and 95th percentile; a stream that was never flagged counts as the whole wait.
fn figures(delays: &[Option<f64>]) -> (f64, f64) {
    let mut delays: Vec<f64> = delays.iter().map(|delay| delay.unwrap_or(Micros(WAIT).seconds())).collect();
    delays.sort_by(f64::total_cmp);
    #[expect(clippy::cast_precision_loss, reason = "a few hundred")]
    let mean = delays.iter().sum::<f64>() / delays.len() as f64;
    (mean, delays[delays.len() * 95 / 100])
}

/// One stream: real events end to end, and from [`CHANGE`] on what `inject` makes of them.
fn stream(streams: &[Vec<Delta>], inject: Inject, seed: u64) -> Vec<Delta> {
    let mut dice = ChaCha8Rng::seed_from_u64(seed);
    let mut events: Vec<Event> = Vec::new();
    let mut at = 0;
    while at < CHANGE + WAIT {
        let one = &streams[dice.random_range(0..streams.len())];
        for pair in one.windows(2) {
            let times = pair[0].t.zip(pair[1].t);
            // A clock that went back tells no gap: the events come together.
            at += times.map_or(0, |(a, b)| b.since(a).0.max(0));
            events.push(Event { at, tokens: pair[1].tokens_est.unwrap_or(0), bytes: pair[1].wire_bytes });
        }
        at += 20_000;
    }
    let honest = events.partition_point(|event| event.at < CHANGE);
    let clustered = inject(&events[honest..], &mut dice);
    events.truncate(honest);
    events.extend(clustered.into_iter().take_while(|event| event.at < CHANGE + WAIT));
    let delta = |(seq, event): (u32, &Event)| Delta {
        tokens_est: Some(event.tokens),
        wire_bytes: event.bytes,
        ..Delta::new(seq, Kind::Text, Phase::Output, Some(Micros(event.at)))
    };
    (0..).zip(&events).map(delta).collect()
}

fn after(stream: &[Delta]) -> Vec<Delta> {
    stream.iter().filter(|delta| delta.t > Some(Micros(CHANGE))).copied().collect()
}

fn write_up(_: &[Event], dice: &mut ChaCha8Rng) -> Vec<Event> {
    bursts(dice, 1)
}

fn multi_frame(_: &[Event], dice: &mut ChaCha8Rng) -> Vec<Event> {
    bursts(dice, 20)
}

/// Bursts of so many frames, 2 ms apart.
fn bursts(dice: &mut ChaCha8Rng, frames: u32) -> Vec<Event> {
    let mut at = CHANGE;
    let mut out = Vec::new();
    while at < CHANGE + WAIT {
        at += dice.random_range(1_000_000..2_000_000);
        let tokens: u32 = dice.random_range(40..81);
        for frame in 0..frames {
            let tokens = tokens * (frame + 1) / frames - tokens * frame / frames;
            out.push(Event { at: at + i64::from(frame) * 2_000, tokens, bytes: tokens * 365 });
        }
    }
    out
}

/// Everything leaves on the next tick of a timer.
fn cork(events: &[Event], period: i64) -> Vec<Event> {
    let tick = |at: i64| CHANGE + (at - CHANGE + period - 1) / period * period;
    events.iter().map(|event| Event { at: tick(event.at), ..*event }).collect()
}

/// Everything leaves when so many bytes have gathered.
fn buffer(events: &[Event], size: u32) -> Vec<Event> {
    let (mut out, mut held, mut bytes) = (Vec::new(), Vec::new(), 0);
    for event in events {
        held.push(*event);
        bytes += event.bytes;
        if bytes >= size {
            out.extend(held.drain(..).map(|held| Event { at: event.at, ..held }));
            bytes = 0;
        }
    }
    out
}

/// 60 tokens each 1.5 s; what waited leaves 6 ms apart.
fn bucket(events: &[Event]) -> Vec<Event> {
    let (mut left, mut refill, mut free) = (60_u32, CHANGE + 1_500_000, CHANGE);
    let mut out = Vec::new();
    for event in events {
        let mut at = event.at.max(free);
        while at >= refill {
            (left, refill) = (60, refill + 1_500_000);
        }
        if left < event.tokens {
            at = refill;
            (left, refill) = (60, refill + 1_500_000);
        }
        left = left.saturating_sub(event.tokens);
        free = at + 6_000;
        out.push(Event { at, ..*event });
    }
    out
}
