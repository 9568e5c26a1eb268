//! `--preset write-up`: the literal rules of the production write-ups, for comparison.
//!
//! - `burst`: a flush of 40–80 tokens, then more than 1 s of silence; three of these in 60 s; 5 minutes.
//! - `concurrency`: more than 6 deep calls started within 4 s; whether they suffer is not asked.
//! - `size-window`: prompts converge on 150–220 tokens. The write-ups name the window and no share: here it is
//!   half of the last 100 prompts.
//!
//! These rules have no stated error rate: how often an honest group looks like a hit decides it, and that is
//! measured nowhere (one false alarm in 30 days to 67,500 for a chance of 1e-5 to 1e-3 per group). Every
//! signal says so. The other signatures keep their measured rules: the write-ups have none for them.

use std::collections::{HashMap, VecDeque};

use serde_json::Value;
use sseismo_analysis::flush::{Flush, Frames, Gap, Grouper};
use sseismo_analysis::signature::concurrency::{CALLS, deep_effort};
use sseismo_analysis::signature::size_window::WRITE_UP;
use sseismo_trace::{Delta, Detail, Evidence, Micros, UtcMicros};

use super::{Alarm, Call, Standing, Watch};
use crate::baseline::Kept;
use crate::budget::Share;
use crate::sequence::Hits;

/// How long a signal stands after the last evidence, µs.
const STANDS: i64 = 300_000_000;
/// Tokens of a burst.
const TOKENS: [u32; 2] = [40, 80];
/// The silence after it is longer, µs.
const SILENCE: Micros = Micros(1_000_000);
/// So many bursts …
const BURSTS: usize = 3;
/// … in so much time, µs.
const MINUTE: i64 = 60_000_000;
/// Deep calls are counted over this long, µs.
const WINDOW: i64 = 4_000_000;
/// Prompts over which the share is taken, and the share.
const PROMPTS: u64 = 100;
/// See [`PROMPTS`].
const CONVERGED: f64 = 0.5;
/// Characters of a token, where tokens are unknown.
const CHARS: u32 = 4;

/// Starts the rule for `burst`.
pub(super) fn burst() -> Box<dyn Watch> {
    Box::new(Rule::<Bursts>::default())
}

/// Starts the rule for `concurrency`.
pub(super) fn concurrency() -> Box<dyn Watch> {
    Box::new(Rule::<Piles>::default())
}

/// Starts the rule for `size-window`.
pub(super) fn size_window() -> Box<dyn Watch> {
    Box::new(Rule::<Sizes>::default())
}

/// What one rule looks at.
trait Look: std::fmt::Debug + Default + Send {
    const UNIT: &'static str;
    const STATISTIC: &'static str;
    const THRESHOLD: f64;

    fn begin(&mut self, _: &Call<'_>) {}
    fn deltas(&mut self, _stream_id: u64, _started: UtcMicros, _deltas: &[Delta]) {}
    fn end(&mut self, _: &Call<'_>) {}
    fn lost(&mut self, _stream_id: u64) {}
    fn forget(&mut self, _stream_id: u64) {}
    /// What it counts now, and when it last counted something.
    fn value(&self) -> (f64, UtcMicros);
    /// Observations so far.
    fn seen(&self) -> u64;
    fn detail(&self) -> Detail;
    fn bytes(&self) -> usize;
}

/// A rule at work.
#[derive(Debug, Default)]
struct Rule<L> {
    look: L,
    /// When the rule last held; a signal stands for 5 minutes.
    held: Option<UtcMicros>,
}

impl<L: Look> Rule<L> {
    fn judge(&mut self) {
        let (value, at) = self.look.value();
        if value >= L::THRESHOLD {
            self.held = self.held.max(Some(at));
        }
    }
}

impl<L: Look> Watch for Rule<L> {
    fn begin(&mut self, call: &Call<'_>) {
        self.look.begin(call);
        self.judge();
    }

    fn deltas(&mut self, stream_id: u64, started: UtcMicros, deltas: &[Delta]) {
        self.look.deltas(stream_id, started, deltas);
        self.judge();
    }

    fn end(&mut self, call: &Call<'_>) {
        self.look.end(call);
        self.judge();
    }

    fn tick(&mut self, now: UtcMicros) {
        self.held = self.held.filter(|held| now.0 - held.0 < STANDS);
    }

    fn lost(&mut self, stream_id: u64) {
        self.look.lost(stream_id);
    }

    fn forget(&mut self, stream_id: u64) {
        self.look.forget(stream_id);
    }

    fn share(&mut self, _: &mut Share<'_>) {}

    fn ready(&self) -> bool {
        self.look.seen() > 0
    }

    fn alarming(&self) -> bool {
        self.held.is_some()
    }

    fn pace(&self) -> Option<Micros> {
        // A signal lives ten paces: 5 minutes.
        Some(Micros(STANDS / 10))
    }

    fn last_evidence(&self) -> UtcMicros {
        self.held.unwrap_or_default()
    }

    fn alarm(&self) -> Option<Alarm> {
        let (value, _) = self.look.value();
        self.held.map(|_| Alarm {
            detail: self.look.detail(),
            cause: None,
            strength: 1.0,
            evidence: Evidence {
                statistic: L::STATISTIC.into(),
                value,
                threshold: L::THRESHOLD,
                n: self.look.seen(),
                unit: L::UNIT.into(),
                average_run_length: 0.0,
                notes: vec![NO_RATE.into()],
            },
        })
    }

    fn reset(&mut self) {
        self.held = None;
        self.look = L::default();
    }

    fn bytes(&self) -> usize {
        size_of_val(self) + self.look.bytes()
    }

    fn standing(&self) -> Standing {
        Standing {
            learned: self.look.seen(),
            needed: 1,
            unit: L::UNIT,
            statistic: L::STATISTIC,
            value: self.look.value().0,
            threshold: Some(L::THRESHOLD),
            average_run_length: None,
            baseline: Vec::new(),
            notes: vec![NO_RATE.to_owned()],
        }
    }

    fn save(&self) -> Kept {
        Kept::nothing()
    }

    fn restore(&mut self, _: Value) -> Result<(), serde_json::Error> {
        Ok(())
    }
}

/// Stands beside every signal of these rules.
const NO_RATE: &str = "the write-up's literal rule: its false-alarm rate is not known";

/// Times of bursts.
#[derive(Debug, Default)]
struct Bursts {
    streams: HashMap<u64, Groups>,
    recent: VecDeque<UtcMicros>,
    groups: u64,
    last: Option<(Micros, u32)>,
}

/// Groups of one stream.
#[derive(Debug)]
struct Groups {
    frames: Frames,
    grouper: Grouper,
    /// Size of the group before.
    before: u32,
}

impl Default for Groups {
    fn default() -> Self {
        Self { frames: Frames::default(), grouper: Grouper::coarse(), before: 0 }
    }
}

fn tokens(flush: &Flush) -> u32 {
    match flush.size.tokens.max(flush.size.tokens_est) {
        0 => flush.size.chars / CHARS,
        tokens => tokens,
    }
}

impl Bursts {
    /// A burst is a group of 40 to 80 tokens that is followed by silence.
    fn group(&mut self, stream_id: u64, started: UtcMicros, flush: &Flush) {
        let Some(groups) = self.streams.get_mut(&stream_id) else { return };
        let before = std::mem::replace(&mut groups.before, tokens(flush));
        self.groups += 1;
        let Gap::Within(gap) = flush.gap else { return };
        if gap <= SILENCE || !(TOKENS[0]..=TOKENS[1]).contains(&before) {
            return;
        }
        let at = UtcMicros(started.0 + flush.first.0);
        self.last = Some((gap, before));
        self.recent.push_back(at);
        while self.recent.len() > BURSTS || self.recent.front().is_some_and(|first| at.0 - first.0 > MINUTE) {
            self.recent.pop_front();
        }
    }
}

impl Look for Bursts {
    const UNIT: &'static str = "flush groups";
    const STATISTIC: &'static str = "bursts of 40 to 80 tokens with over 1 s of silence after, in 60 s";
    const THRESHOLD: f64 = 3.0;

    fn begin(&mut self, call: &Call<'_>) {
        self.streams.insert(call.summary.stream_id, Groups::default());
    }

    fn deltas(&mut self, stream_id: u64, started: UtcMicros, deltas: &[Delta]) {
        for delta in deltas {
            let Some(groups) = self.streams.get_mut(&stream_id) else { return };
            let flush = groups.frames.push(delta).and_then(|frame| groups.grouper.push(frame));
            if let Some(flush) = flush {
                self.group(stream_id, started, &flush);
            }
        }
    }

    fn end(&mut self, call: &Call<'_>) {
        let id = call.summary.stream_id;
        if let Some(groups) = self.streams.get_mut(&id) {
            let frame = groups.frames.finish();
            let flushes = [frame.and_then(|frame| groups.grouper.push(frame)), groups.grouper.finish()];
            for flush in flushes.iter().flatten() {
                self.group(id, call.started, flush);
            }
        }
        self.streams.remove(&id);
    }

    fn lost(&mut self, stream_id: u64) {
        if let Some(groups) = self.streams.get_mut(&stream_id) {
            groups.frames.lost();
        }
    }

    fn forget(&mut self, stream_id: u64) {
        self.streams.remove(&stream_id);
    }

    fn value(&self) -> (f64, UtcMicros) {
        let count = f64::from(u32::try_from(self.recent.len()).unwrap_or(u32::MAX));
        (count, self.recent.back().copied().unwrap_or_default())
    }

    fn seen(&self) -> u64 {
        self.groups
    }

    fn detail(&self) -> Detail {
        let (gap, tokens) = self.last.unwrap_or_default();
        Detail::Burst { gap_s: gap.seconds(), tokens: f64::from(tokens) }
    }

    fn bytes(&self) -> usize {
        self.streams.capacity() * size_of::<(u64, Groups)>() + 8 * self.recent.capacity()
    }
}

/// Starts of deep calls.
#[derive(Debug, Default)]
struct Piles {
    recent: VecDeque<UtcMicros>,
    deep: u64,
}

impl Look for Piles {
    const UNIT: &'static str = "deep calls";
    const STATISTIC: &'static str = "deep calls started within 4 s";
    const THRESHOLD: f64 = 7.0;

    fn begin(&mut self, call: &Call<'_>) {
        if deep_effort(call.summary) != Some(true) {
            return;
        }
        self.deep += 1;
        self.recent.push_back(call.started);
        while self.recent.front().is_some_and(|first| call.started.0 - first.0 > WINDOW) {
            self.recent.pop_front();
        }
    }

    fn value(&self) -> (f64, UtcMicros) {
        let count = f64::from(u32::try_from(self.recent.len()).unwrap_or(u32::MAX));
        (count, self.recent.back().copied().unwrap_or_default())
    }

    fn seen(&self) -> u64 {
        self.deep
    }

    fn detail(&self) -> Detail {
        let calls = u32::try_from(self.recent.len().max(CALLS + 1)).unwrap_or(u32::MAX);
        Detail::Concurrency { calls, window_s: Micros(WINDOW).seconds() }
    }

    fn bytes(&self) -> usize {
        8 * self.recent.capacity()
    }
}

/// Prompts in the window of 150 to 220 tokens.
#[derive(Debug, Default)]
struct Sizes {
    recent: Hits,
    prompts: u64,
    last: UtcMicros,
}

impl Look for Sizes {
    const UNIT: &'static str = "prompts";
    const STATISTIC: &'static str = "share of the last prompts with 150 to 220 tokens";
    const THRESHOLD: f64 = CONVERGED;

    fn end(&mut self, call: &Call<'_>) {
        let Some(size) = call.summary.usage.input.or(call.summary.prompt_tokens_est) else { return };
        self.prompts += 1;
        self.recent.push((WRITE_UP[0]..=WRITE_UP[1]).contains(&size));
        if self.recent.n > PROMPTS {
            self.recent.halve();
        }
        self.last = call.at;
    }

    fn value(&self) -> (f64, UtcMicros) {
        let enough = self.recent.n >= PROMPTS / 2;
        (if enough { self.recent.share() } else { 0.0 }, self.last)
    }

    fn seen(&self) -> u64 {
        self.prompts
    }

    fn detail(&self) -> Detail {
        let [lo, hi] = WRITE_UP.map(|size| u32::try_from(size).unwrap_or(u32::MAX));
        Detail::SizeWindow { lo, hi }
    }

    fn bytes(&self) -> usize {
        0
    }
}

#[cfg(test)]
mod tests {
    use sseismo_trace::{Kind, Phase, SignalState, Summary};

    use crate::{Detector, Options, Preset};

    use super::*;

    fn detector() -> Detector {
        Detector::new(Options { preset: Preset::WriteUp, ..Options::default() })
    }

    fn states(detector: &mut Detector) -> Vec<(SignalState, i64)> {
        detector.take_signals().iter().map(|signal| (signal.state, signal.at.0)).collect()
    }

    #[test]
    fn three_bursts_in_a_minute_signal_for_five_minutes() {
        for (tokens, gap, onset) in [(60, 1_500_000, true), (90, 1_500_000, false), (60, 900_000, false)] {
            let mut detector = detector();
            detector.begin(UtcMicros(0), &Summary::default());
            for i in 0..6_u32 {
                let at = Some(Micros(i64::from(i) * gap));
                let mut delta = Delta::new(i, Kind::Reasoning, Phase::Reasoning, at);
                delta.tokens = Some(tokens);
                detector.deltas(0, &[delta]);
            }
            detector.end(UtcMicros(6 * gap), &Summary::default());
            let found = states(&mut detector);
            assert_eq!(
                found.first().map(|(state, _)| *state),
                onset.then_some(SignalState::Onset),
                "{tokens} {gap}"
            );
            for s in 0..400 {
                detector.tick(UtcMicros(s * 1_000_000));
            }
            if let Some((state, at)) = states(&mut detector).last() {
                assert_eq!(*state, SignalState::Clear);
                assert!((300_000_000..320_000_000).contains(at), "{at}");
            }
        }
    }

    #[test]
    fn seven_deep_calls_in_four_seconds_are_enough_and_six_are_not() {
        for (calls, onset) in [(6, false), (7, true)] {
            let mut detector = detector();
            for i in 0..calls {
                let summary = Summary { stream_id: i, effort: Some("high".into()), ..Summary::default() };
                detector.begin(UtcMicros(i64::try_from(i).unwrap() * 600_000), &summary);
            }
            assert_eq!(!states(&mut detector).is_empty(), onset, "{calls}");
        }
    }
}
