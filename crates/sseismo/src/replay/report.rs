//! What `sseismo replay` says at its end.

use std::collections::BTreeMap;
use std::io::{self, Write};

use comfy_table::{Table, presets};
use serde::Serialize;
use sseismo_analysis::report::Input;
use sseismo_capture::shape::Shapeless;
use sseismo_capture::tap::{Record, Tally};
use sseismo_trace::Outcome;

use crate::sending;

/// Recorded streams that were not sent again, by reason.
#[derive(Debug, Default, Serialize)]
#[serde(transparent)]
pub(super) struct LeftOut(BTreeMap<&'static str, u64>, #[serde(skip)] BTreeMap<Shapeless, u64>);

impl LeftOut {
    pub(super) fn count(&mut self, why: Shapeless) {
        *self.0.entry(why.name()).or_default() += 1;
        *self.1.entry(why).or_default() += 1;
    }

    pub(super) fn is_empty(&self) -> bool {
        self.1.is_empty()
    }

    /// The reasons with their numbers, and what can be done about each.
    pub(super) fn told(&self) -> String {
        let one = |(why, count): (&Shapeless, &u64)| {
            let advice = why.advice().map(|advice| format!(" ({advice})")).unwrap_or_default();
            format!("{count} {}{advice}", why.name())
        };
        self.1.iter().map(one).collect::<Vec<_>>().join(", ")
    }
}

/// Quantiles of times, µs: the nearest ranks.
#[derive(Debug, Default, Serialize)]
pub(super) struct Times {
    n: usize,
    p50: Option<i64>,
    p90: Option<i64>,
    /// Only where at least ten lie above it.
    p99: Option<i64>,
    max: Option<i64>,
}

impl Times {
    fn of(mut times: Vec<i64>) -> Self {
        times.sort_unstable();
        let n = times.len();
        let at = |percent: usize| times.get((n * percent).div_ceil(100).checked_sub(1)?).copied();
        Self { n, p50: at(50), p90: at(90), p99: at(99).filter(|_| n >= 1_000), max: times.last().copied() }
    }
}

/// The whole of it.
#[derive(Debug, Serialize)]
pub(super) struct Report {
    schema: &'static str,
    version: &'static str,
    pub(super) inputs: Vec<Input>,
    pub(super) left_out: LeftOut,
    pub(super) planned: usize,
    pub(super) speed: f64,
    /// From the first request to the last.
    pub(super) lasts_s: f64,
    pub(super) sent: u64,
    /// Not sent, because too many were open.
    pub(super) shed: u64,
    /// Second and later attempts.
    pub(super) again: u64,
    /// Attempts without any answer.
    pub(super) unanswered: u64,
    pub(super) first_error: Option<String>,
    /// By how much first attempts were sent later than they were due.
    late_us: Times,
    /// From the moment at which an attempt was due to its first reasoning or answer.
    first_content_us: Times,
    /// From the moment at which an attempt was due to the end of its answer.
    end_us: Times,
    statuses: BTreeMap<String, u64>,
    outcomes: BTreeMap<&'static str, u64>,
    pub(super) interrupted: bool,
    pub(super) dataset: Option<String>,
}

impl Report {
    /// What was counted; the caller adds what it knows itself.
    pub(super) fn new(tally: &Tally, records: &[Record]) -> Self {
        let mut statuses: BTreeMap<String, u64> = BTreeMap::new();
        let mut outcomes: BTreeMap<&'static str, u64> = BTreeMap::new();
        for record in records {
            let status = record.summary.status.map_or("none".to_owned(), |status| status.to_string());
            *statuses.entry(status).or_default() += 1;
            *outcomes.entry(sending::outcome(record.summary.outcome)).or_default() += 1;
        }
        let first = |record: &Record| {
            let summary = &record.summary;
            summary.t_first_reasoning.into_iter().chain(summary.t_first_output).map(|t| t.0).min()
        };
        let completed = records.iter().filter(|record| record.summary.outcome == Outcome::Completed);
        let (unanswered, first_error) = tally.unanswered();
        Self {
            schema: "sseismo.replay/1",
            version: env!("CARGO_PKG_VERSION"),
            inputs: Vec::new(),
            left_out: LeftOut::default(),
            planned: 0,
            speed: 1.0,
            lasts_s: 0.0,
            sent: tally.sent(),
            shed: tally.shed(),
            again: tally.again(),
            unanswered,
            first_error,
            late_us: Times::of(tally.lateness()),
            first_content_us: Times::of(records.iter().filter_map(first).collect()),
            end_us: Times::of(completed.filter_map(|record| Some(record.summary.t_end?.0)).collect()),
            statuses,
            outcomes,
            interrupted: false,
            dataset: None,
        }
    }

    /// For people.
    pub(super) fn show(&self, out: &mut dyn Write) -> io::Result<()> {
        let mut table = Table::new();
        table.load_style(presets::NOTHING);
        let counts = |counts: Vec<String>| counts.join(", ");
        table.add_row(["planned", &format!("{} requests over {:.1} s", self.planned, self.lasts_s)]);
        table.add_row([
            "sent",
            &format!("{}; {} not sent, {} sent again after a failure", self.sent, self.shed, self.again),
        ]);
        table.add_row(["sent late by", &ms(&self.late_us)]);
        let statuses = self.statuses.iter().map(|(status, count)| format!("{count} × {status}"));
        table.add_row(["status", &counts(statuses.collect())]);
        let outcomes = self.outcomes.iter().map(|(outcome, count)| format!("{count} {outcome}"));
        table.add_row(["ended", &counts(outcomes.collect())]);
        table.add_row(["first content", &ms(&self.first_content_us)]);
        table.add_row(["whole answer", &ms(&self.end_us)]);
        writeln!(out, "{table}")?;
        match &self.dataset {
            Some(dataset) => {
                writeln!(out, "\nsseismo compare BEFORE {dataset}   compares it with another run")
            }
            None => writeln!(out, "\nnothing was kept: -o DIR keeps the answers' times for sseismo compare"),
        }
    }
}

fn ms(times: &Times) -> String {
    let one = |name: &str, us: Option<i64>| {
        #[expect(clippy::cast_precision_loss, reason = "times of answers are far below 2^53 µs")]
        us.map(|us| format!("{name} {:.1} ms", us as f64 / 1e3))
    };
    let all = [one("p50", times.p50), one("p90", times.p90), one("p99", times.p99), one("max", times.max)];
    format!("{} (n = {})", all.into_iter().flatten().collect::<Vec<_>>().join(", "), times.n)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_tail_is_claimed_of_few() {
        let few = Times::of((1..=100).rev().collect());
        assert_eq!((few.p50, few.p90, few.p99, few.max), (Some(50), Some(90), None, Some(100)));
        assert_eq!(Times::of((1..=1_000).collect()).p99, Some(990));
        assert_eq!(Times::of(Vec::new()).max, None);
    }

    #[test]
    fn what_was_left_out_says_what_to_do() {
        let mut left_out = LeftOut::default();
        left_out.count(Shapeless::Api);
        left_out.count(Shapeless::Api);
        assert_eq!(left_out.told(), "2 no-api (name it with --api)");
        assert_eq!(serde_json::to_string(&left_out).unwrap(), r#"{"no-api":2}"#);
    }
}
