//! When deltas arrive: honest and clustered arrival processes with known truth.
//!
//! In: a process and a seed. Out: content events of about 30 s, each with a time, tokens and bytes.
//! Pure: no clock, no socket; the same seed gives the same stream. The shapes and their numbers are
//! those on which the detection thresholds were chosen and are judged.

use rand::{RngExt as _, SeedableRng as _};
use rand_chacha::ChaCha8Rng;
use sseismo_trace::{Delta, Kind, Micros, Phase};

/// Length of a stream, s.
const SECONDS: f64 = 30.0;
/// Frames per second of the honest processes.
const RATE: f64 = 20.0;
/// Bytes of an event around its text.
const OVERHEAD: u32 = 180;

/// An arrival process.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Process {
    /// Honest: 20 frames a second, 15 % jitter.
    Steady,
    /// Honest: exponential gaps.
    Poisson,
    /// Honest: heavy-tailed network jitter (lognormal gaps, σ = 1).
    Lognormal,
    /// Honest: steady with a pause of 0.3–0.9 s about every six seconds.
    SlowPhase,
    /// Honest: 10–30 tokens a frame, four frames a second.
    BigFrame,
    /// Honest: parts of a reasoning summary; 2–6 s of silence, then 40–120 tokens word by word.
    SummaryParts,
    /// Clustered: one frame of 40–80 tokens every 1–2 s.
    Burst,
    /// Clustered: the same, but each burst is about 20 small frames within 40 ms.
    BurstMulti,
    /// Clustered: a steady stream behind a 200 ms cork.
    Coalesced,
    /// Clustered: a steady stream behind a 4 KiB buffer.
    Buffered,
    /// Clustered: 60 tokens each 1.5 s at line rate, then nothing.
    TokenBucket,
}

impl Process {
    /// Every process, the honest ones first.
    pub const ALL: [Self; 11] = [
        Self::Steady,
        Self::Poisson,
        Self::Lognormal,
        Self::SlowPhase,
        Self::BigFrame,
        Self::SummaryParts,
        Self::Burst,
        Self::BurstMulti,
        Self::Coalesced,
        Self::Buffered,
        Self::TokenBucket,
    ];

    /// Its name in tables.
    pub fn name(self) -> &'static str {
        match self {
            Self::Steady => "steady",
            Self::Poisson => "poisson",
            Self::Lognormal => "lognormal",
            Self::SlowPhase => "slowphase",
            Self::BigFrame => "bigframe",
            Self::SummaryParts => "summary",
            Self::Burst => "burst",
            Self::BurstMulti => "burst_multi",
            Self::Coalesced => "coalesced",
            Self::Buffered => "nginx",
            Self::TokenBucket => "tokbucket",
        }
    }

    /// Whether nothing is wrong with such a stream.
    pub fn is_honest(self) -> bool {
        match self {
            Self::Steady
            | Self::Poisson
            | Self::Lognormal
            | Self::SlowPhase
            | Self::BigFrame
            | Self::SummaryParts => true,
            Self::Burst | Self::BurstMulti | Self::Coalesced | Self::Buffered | Self::TokenBucket => false,
        }
    }

    /// The events of one stream.
    pub fn deltas(self, seed: u64) -> Vec<Delta> {
        let mut dice = Dice(ChaCha8Rng::seed_from_u64(seed));
        let arrivals = match self {
            Self::Steady => steady(&mut dice),
            Self::Poisson => dice.frames(|dice| dice.exponential(1.0 / RATE)),
            Self::Lognormal => dice.frames(|dice| (dice.normal() - 0.5).exp() / RATE),
            Self::SlowPhase => dice.frames(slow_phase),
            Self::BigFrame => big_frames(&mut dice),
            Self::SummaryParts => return summary_parts(&mut dice),
            Self::Burst => bursts(&mut dice, false),
            Self::BurstMulti => bursts(&mut dice, true),
            Self::Coalesced => corked(&mut dice),
            Self::Buffered => buffered(&mut dice),
            Self::TokenBucket => token_bucket(&mut dice),
        };
        arrivals.iter().zip(0..).map(|(&(at, tokens), seq)| delta(seq, Kind::Reasoning, at, tokens)).collect()
    }
}

/// Seconds since the start, and tokens.
type Arrival = (f64, u32);

struct Dice(ChaCha8Rng);

impl Dice {
    fn uniform(&mut self, from: f64, to: f64) -> f64 {
        self.0.random_range(from..to)
    }

    fn tokens(&mut self) -> u32 {
        self.0.random_range(1..6)
    }

    fn exponential(&mut self, mean: f64) -> f64 {
        -mean * self.uniform(f64::MIN_POSITIVE, 1.0).ln()
    }

    /// Standard normal, by Box and Muller.
    fn normal(&mut self) -> f64 {
        let radius = (-2.0 * self.uniform(f64::MIN_POSITIVE, 1.0).ln()).sqrt();
        radius * (std::f64::consts::TAU * self.uniform(0.0, 1.0)).cos()
    }

    /// Frames of 1–5 tokens with gaps drawn by `gap`.
    fn frames(&mut self, mut gap: impl FnMut(&mut Self) -> f64) -> Vec<Arrival> {
        let mut at = 0.0;
        let mut out = Vec::new();
        loop {
            at += gap(self);
            if at >= SECONDS {
                return out;
            }
            out.push((at, self.tokens()));
        }
    }
}

fn steady_gap(dice: &mut Dice) -> f64 {
    ((1.0 + 0.15 * dice.normal()) / RATE).max(1e-4)
}

fn steady(dice: &mut Dice) -> Vec<Arrival> {
    dice.frames(steady_gap)
}

fn slow_phase(dice: &mut Dice) -> f64 {
    if dice.uniform(0.0, 1.0) > 1.0 / (6.0 * RATE) { steady_gap(dice) } else { dice.uniform(0.3, 0.9) }
}

fn big_frames(dice: &mut Dice) -> Vec<Arrival> {
    let mut frames = dice.frames(|dice| ((1.0 + 0.15 * dice.normal()) / 4.0).max(1e-4));
    for frame in &mut frames {
        frame.1 = dice.0.random_range(10..31);
    }
    frames
}

fn bursts(dice: &mut Dice, many_frames: bool) -> Vec<Arrival> {
    let mut at = 0.0;
    let mut out = Vec::new();
    loop {
        at += dice.uniform(1.0, 2.0);
        if at >= SECONDS {
            return out;
        }
        let mut left: u32 = dice.0.random_range(40..81);
        let mut now = at;
        while left > 0 {
            let tokens = if many_frames { dice.tokens().min(left) } else { left };
            out.push((now, tokens));
            left -= tokens;
            now += dice.exponential(0.002);
        }
        at = at.max(now);
    }
}

/// Released at the next multiple of 200 ms, 50 µs apart.
fn corked(dice: &mut Dice) -> Vec<Arrival> {
    let mut place = (0.0, 0.0);
    let mut release = |(at, tokens): Arrival| {
        let flush = (at / 0.2).ceil() * 0.2;
        place = if flush > place.0 { (flush, 0.0) } else { (flush, place.1 + 5e-5) };
        (flush + place.1, tokens)
    };
    steady(dice).into_iter().map(&mut release).collect()
}

/// Released when 4 KiB have gathered, 50 µs apart.
fn buffered(dice: &mut Dice) -> Vec<Arrival> {
    let mut out = Vec::new();
    let mut held: Vec<Arrival> = Vec::new();
    let mut bytes = 0;
    for arrival in steady(dice) {
        bytes += wire_bytes(arrival.1);
        held.push(arrival);
        if bytes >= 4_096 {
            let places = (0_u32..).map(|place| arrival.0 + f64::from(place) * 5e-5);
            out.extend(held.drain(..).zip(places).map(|((_, tokens), at)| (at, tokens)));
            bytes = 0;
        }
    }
    out
}

fn token_bucket(dice: &mut Dice) -> Vec<Arrival> {
    let (mut at, mut refill, mut left) = (0.0_f64, 1.5_f64, 60);
    let mut out = Vec::new();
    while at < SECONDS {
        let tokens = dice.tokens();
        if left < tokens {
            at = at.max(refill);
            (refill, left) = (at + 1.5, 60);
        }
        out.push((at, tokens));
        left -= tokens;
        at += dice.exponential(0.01);
    }
    out.retain(|arrival| arrival.0 < SECONDS);
    out
}

/// Word deltas at about 100 tokens a second; lifecycle events stand between the parts.
fn summary_parts(dice: &mut Dice) -> Vec<Delta> {
    let mut out: Vec<Delta> = Vec::new();
    let mut at = 0.0;
    let mut seq = 0..;
    let mut push = |kind, at, tokens| {
        out.push(Delta { phase: Phase::Summary, ..delta(seq.next().unwrap_or(u32::MAX), kind, at, tokens) });
    };
    loop {
        at += dice.uniform(2.0, 6.0);
        if at >= SECONDS {
            break;
        }
        push(Kind::Meta, at, 0);
        for _ in 0..dice.0.random_range(40..121) {
            at += dice.exponential(0.01);
            push(Kind::Summary, at, 1);
        }
        push(Kind::Meta, at + 0.001, 0);
    }
    out
}

fn wire_bytes(tokens: u32) -> u32 {
    OVERHEAD + tokens * 4
}

fn delta(seq: u32, kind: Kind, at: f64, tokens: u32) -> Delta {
    #[expect(clippy::cast_possible_truncation, reason = "at most 30 s")]
    let at = Micros((at * 1e6) as i64);
    Delta {
        tokens: (tokens > 0).then_some(tokens),
        chars: tokens * 4,
        wire_bytes: wire_bytes(tokens),
        ..Delta::new(seq, kind, Phase::Reasoning, Some(at))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_seed_is_a_stream() {
        for process in Process::ALL {
            let stream = process.deltas(7);
            assert_eq!(stream, process.deltas(7), "{}", process.name());
            assert_ne!(stream, process.deltas(8), "{}", process.name());
            assert!(stream.windows(2).all(|pair| pair[0].t <= pair[1].t), "{}", process.name());
        }
    }

    /// Means of the definitions, within 10 %: 20 frames a second of 3 tokens.
    #[test]
    fn honest_streams_have_the_same_rate() {
        for process in [Process::Steady, Process::Poisson, Process::Lognormal] {
            let streams: Vec<Vec<Delta>> = (0..20).map(|seed| process.deltas(seed)).collect();
            let tokens: u32 = streams.iter().flatten().filter_map(|delta| delta.tokens).sum();
            let rate = f64::from(tokens) / (20.0 * SECONDS);
            assert!((rate - 60.0).abs() < 6.0, "{}: {rate} tokens a second", process.name());
        }
    }
}
