//! Signals against the truth of a simulated upstream: precision, recall, delay, false alarms.
//!
//! Streams to which something was done form *episodes*: those of one signature that are at most two minutes
//! apart. An onset inside an episode, or within a minute after it, is right; any other is a false alarm.

use std::collections::{BTreeMap, HashMap};
use std::io::{self, BufRead as _, BufReader, Write};
use std::path::Path;

use anyhow::Context as _;
use serde::{Deserialize, Serialize};
use sseismo_analysis::stats::quantile::of_sorted;
use sseismo_analysis::stats::real;
use sseismo_trace::{Delta, Signal, SignalState, SignatureId, Summary, UtcMicros};

use crate::show::{plain_table, right_align};

/// Streams of one episode are no farther apart, µs.
const APART: i64 = 120_000_000;
/// An onset may come this long after the episode's end, µs.
const AFTER: i64 = 60_000_000;
/// Upper 95 % limit of a rate of which nothing was seen in one unit of time (rule of three).
const THREE: f64 = 3.0;

/// What each behaviour of the simulator looks like. Those that are not named are innocent.
const BEHAVIOURS: &[(&str, SignatureId)] = &[
    ("write-up-burst", SignatureId::Burst),
    ("multi-frame-burst", SignatureId::Burst),
    ("byte-buffer", SignatureId::Burst),
    ("token-bucket", SignatureId::Burst),
    ("cork", SignatureId::Burst),
    ("dead-air", SignatureId::Burst),
    ("silence", SignatureId::Burst),
    ("count-lattice", SignatureId::CountLattice),
    ("shard-pinning", SignatureId::SizeWindow),
    ("concurrency-cooldown", SignatureId::Concurrency),
    ("saturation", SignatureId::Saturation),
];

/// A line of the truth file, as far as it is needed.
#[derive(Deserialize)]
struct Line {
    stream_id: u64,
    truth: Done,
}

#[derive(Deserialize)]
struct Done {
    ask: Ask,
    injected: Vec<Injection>,
}

#[derive(Deserialize)]
struct Ask {
    attempt: u32,
}

#[derive(Deserialize)]
struct Injection {
    behaviour: String,
}

/// One signature's result.
#[derive(Debug, Serialize)]
pub(super) struct Score {
    signature: SignatureId,
    /// Streams to which it was done.
    affected: u64,
    episodes: u64,
    /// Of these, episodes with an onset or a signal that still stood.
    found: u64,
    onsets: u64,
    /// Of these, outside of every episode.
    false_alarms: u64,
    precision: Option<f64>,
    recall: Option<f64>,
    /// From an episode's start to its first onset, s.
    delay_median: Option<f64>,
    delay_p95: Option<f64>,
    /// Hours of streams to which it was not done.
    healthy_hours: f64,
    false_alarms_per_stream_hour: Option<f64>,
    /// With no false alarm: 95 % limit of that rate, 3 / hours.
    at_most_per_stream_hour: Option<f64>,
}

/// Streams to which one thing was done, and the time of the others.
#[derive(Debug, Default)]
struct Seen {
    affected: Vec<(i64, i64)>,
    healthy_us: i64,
}

/// What was done, and to whom.
#[derive(Debug)]
pub(super) struct Truth {
    done: HashMap<u64, Vec<SignatureId>>,
    seen: BTreeMap<SignatureId, Seen>,
}

impl Truth {
    /// Reads a truth file.
    pub(super) fn load(path: &Path) -> anyhow::Result<Self> {
        let name = path.display();
        let file = std::fs::File::open(path).with_context(|| format!("cannot read the truth {name}"))?;
        let mut done = HashMap::new();
        for (number, line) in (1..).zip(BufReader::new(file).lines()) {
            let line = line.with_context(|| format!("cannot read the truth {name}"))?;
            let line: Line = serde_json::from_str(&line).with_context(|| {
                format!(
                    "{name}, line {number}: not a line that `sseismo simulate --dataset DIR --truth FILE` writes"
                )
            })?;
            done.insert(line.stream_id, signatures(&line.truth));
        }
        Ok(Self { done, seen: BTreeMap::new() })
    }

    /// Takes in a stream of the backtest.
    pub(super) fn stream(&mut self, started: UtcMicros, summary: &Summary, deltas: &[Delta]) {
        let last = deltas.iter().filter_map(|delta| delta.t).max().unwrap_or_default();
        let span = summary.t_end.unwrap_or_default().max(last).0.max(0);
        let done = self.done.get(&summary.stream_id).map_or(&[][..], Vec::as_slice);
        for id in watched() {
            let seen = self.seen.entry(id).or_default();
            if done.contains(&id) {
                seen.affected.push((started.0, started.0.saturating_add(span)));
            } else {
                seen.healthy_us = seen.healthy_us.saturating_add(span);
            }
        }
    }

    /// Judges the signals.
    pub(super) fn scores(self, signals: &[Signal]) -> Vec<Score> {
        self.seen.into_iter().map(|(id, seen)| score(id, seen, signals)).collect()
    }
}

/// What can be watched live.
fn watched() -> impl Iterator<Item = SignatureId> {
    SignatureId::ALL.into_iter().filter(|id| *id != SignatureId::Semantic)
}

fn signatures(done: &Done) -> Vec<SignatureId> {
    let of = |injection: &Injection| BEHAVIOURS.iter().find(|(name, _)| *name == injection.behaviour);
    let mut found: Vec<SignatureId> = done.injected.iter().filter_map(of).map(|(_, id)| *id).collect();
    if done.ask.attempt > 1 {
        found.push(SignatureId::RetryAmplification);
    }
    found
}

/// Streams to episodes: overlapping or close ones are one.
fn episodes(mut streams: Vec<(i64, i64)>) -> Vec<(i64, i64)> {
    streams.sort_unstable();
    let mut episodes: Vec<(i64, i64)> = Vec::new();
    for (start, end) in streams {
        match episodes.last_mut() {
            Some(last) if start - last.1 <= APART => last.1 = last.1.max(end),
            _ => episodes.push((start, end)),
        }
    }
    episodes
}

fn score(id: SignatureId, seen: Seen, signals: &[Signal]) -> Score {
    let affected = seen.affected.len() as u64;
    let episodes = episodes(seen.affected);
    let of = |state| move |signal: &&Signal| signal.detail.signature() == id && signal.state == state;
    let onsets: Vec<i64> = signals.iter().filter(of(SignalState::Onset)).map(|signal| signal.at.0).collect();
    let within = |at: i64, (start, end): (i64, i64)| (start..=end.saturating_add(AFTER)).contains(&at);
    let right =
        onsets.iter().filter(|at| episodes.iter().any(|episode| within(**at, *episode))).count() as u64;
    let mut delays: Vec<f64> = episodes
        .iter()
        .filter_map(|episode| onsets.iter().find(|at| within(**at, *episode)).map(|at| at - episode.0))
        .map(|delay| sseismo_trace::Micros(delay).seconds())
        .collect();
    delays.sort_by(f64::total_cmp);
    let total = onsets.len() as u64;
    let false_alarms = total - right;
    let healthy_hours = sseismo_trace::Micros(seen.healthy_us).seconds() / 3_600.0;
    let share = |part: u64, whole: u64| (whole > 0).then(|| real(part) / real(whole));
    let timed = healthy_hours > 0.0;
    let found = delays.len() as u64;
    let quantile = |q| (!delays.is_empty()).then(|| of_sorted(&delays, q));
    Score {
        signature: id,
        affected,
        episodes: episodes.len() as u64,
        found,
        onsets: total,
        false_alarms,
        precision: share(right, total),
        recall: share(found, episodes.len() as u64),
        delay_median: quantile(0.5),
        delay_p95: quantile(0.95),
        healthy_hours,
        false_alarms_per_stream_hour: timed.then(|| real(false_alarms) / healthy_hours),
        at_most_per_stream_hour: (timed && false_alarms == 0).then(|| THREE / healthy_hours),
    }
}

/// The table.
pub(super) fn show(out: &mut dyn Write, scores: &[Score]) -> io::Result<()> {
    let mut table = plain_table([
        "against the truth",
        "affected",
        "episodes",
        "found",
        "onsets",
        "precision",
        "recall",
        "delay p50 / p95",
        "false alarms per healthy stream-hour",
    ]);
    right_align(&mut table, &[1, 2, 3, 4, 5, 6, 7, 8]);
    let percent = |value: Option<f64>| value.map_or_else(|| "–".into(), |v| format!("{:.0} %", v * 100.0));
    for score in scores {
        let delay = match (score.delay_median, score.delay_p95) {
            (Some(median), Some(p95)) => format!("{median:.1} / {p95:.1} s"),
            _ => "–".to_owned(),
        };
        let alarms = match (score.at_most_per_stream_hour, score.false_alarms_per_stream_hour) {
            (Some(most), _) => format!("0 in {:.2} h: at most {most:.2}", score.healthy_hours),
            (None, Some(rate)) => {
                format!("{} in {:.2} h: {rate:.2}", score.false_alarms, score.healthy_hours)
            }
            (None, None) => format!("{} in 0 h", score.false_alarms),
        };
        table.add_row([
            score.signature.name().to_owned(),
            score.affected.to_string(),
            score.episodes.to_string(),
            score.found.to_string(),
            score.onsets.to_string(),
            percent(score.precision),
            percent(score.recall),
            delay,
            alarms,
        ]);
    }
    writeln!(out, "\n{table}")
}

#[cfg(test)]
mod tests {
    use sseismo_trace::{Detail, Evidence, Micros, Scope, SignalId};

    use super::*;

    const S: i64 = 1_000_000;

    fn onset(at: i64) -> Signal {
        Signal {
            id: SignalId(1),
            target: Scope::default(),
            detail: Detail::Burst { gap_s: 1.0, tokens: 50.0 },
            cause: None,
            state: SignalState::Onset,
            strength: 1.0,
            evidence: Evidence::default(),
            at: UtcMicros(at),
            ttl: Micros(S),
        }
    }

    #[test]
    fn onsets_are_right_within_episodes_only() {
        let affected = vec![(0, 10 * S), (100 * S, 130 * S), (1_000 * S, 1_010 * S)];
        let seen = Seen { affected, healthy_us: 7_200 * S };
        let signals = [onset(4 * S), onset(150 * S), onset(600 * S)];
        let score = score(SignatureId::Burst, seen, &signals);
        assert_eq!((score.episodes, score.found, score.onsets, score.false_alarms), (2, 1, 3, 1));
        assert_eq!((score.delay_median, score.recall), (Some(4.0), Some(0.5)));
        assert_eq!(score.false_alarms_per_stream_hour, Some(0.5));
        assert_eq!(score.at_most_per_stream_hour, None);
    }

    #[test]
    fn a_zero_comes_with_its_limit() {
        let score = score(SignatureId::Burst, Seen { affected: Vec::new(), healthy_us: 3_600 * S }, &[]);
        assert_eq!(score.at_most_per_stream_hour, Some(3.0));
        assert_eq!((score.precision, score.recall), (None, None));
    }
}
