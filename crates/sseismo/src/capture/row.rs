//! The live table of `sseismo capture`: one line per finished stream.
//!
//! In: records as they finish. Out: lines. The p99 of gaps is pooled over the streams so far, and only
//! shown from 1,000 gaps on: below that it rests on fewer than ten observations.

use std::io::{self, Write};

use sseismo_capture::tap::Record;
use sseismo_trace::Delta;

use crate::sending;

/// Reads closer than this are one flush (measured: only 1.6 % of gaps lie between 0.1 and 1 ms).
const MERGE_US: i64 = 1_000;

/// Gaps below which no p99 is claimed.
const ENOUGH_FOR_P99: usize = 1_000;

/// What was printed so far.
#[derive(Debug, Default)]
pub(super) struct Table {
    rows: u64,
    gaps: Vec<i64>,
}

impl Table {
    /// Prints the line of `record`, and the heading before the first one.
    ///
    /// # Errors
    /// When `out` cannot be written.
    pub(super) fn row(&mut self, out: &mut dyn Write, record: &Record) -> io::Result<()> {
        if self.rows == 0 {
            writeln!(
                out,
                "{:>4} {:>10} {:>8} {:>9} {:>10} {:>12} {:>9} {:>13}  status",
                "#",
                "outcome",
                "TTFT ms",
                "output ms",
                "gap p50 ms",
                "p99 ms (all)",
                "tok/flush",
                "reasoning tok"
            )?;
        }
        self.rows += 1;
        let flushes = flushes(&record.deltas);
        let mut gaps: Vec<i64> = flushes.windows(2).map(|pair| pair[1].first - pair[0].last).collect();
        self.gaps.extend_from_slice(&gaps);
        let mut tokens: Vec<i64> = flushes.iter().map(|flush| flush.tokens).collect();
        let summary = &record.summary;
        let first = record.deltas.iter().find(|delta| delta.is_content()).and_then(|delta| delta.t);
        let p99 = (self.gaps.len() >= ENOUGH_FOR_P99).then(|| quantile(&mut self.gaps, 99)).flatten();
        let reasoning = match (summary.usage.reasoning, summary.reasoning_tokens_est) {
            (Some(reported), _) => format!("{reported:.0}"),
            (None, Some(estimated)) => format!("~{estimated}"),
            (None, None) => "-".to_owned(),
        };
        let sign = if flushes.iter().any(|flush| flush.estimated) { "~" } else { "" };
        let tokens = quantile(&mut tokens, 50).map_or("-".to_owned(), |tokens| format!("{sign}{tokens}"));
        writeln!(
            out,
            "{:>4} {:>10} {:>8} {:>9} {:>10} {:>12} {:>9} {:>13}  {}",
            self.rows,
            sending::outcome(summary.outcome),
            ms(first.map(|t| t.0)),
            ms(summary.t_first_output.map(|t| t.0)),
            ms(quantile(&mut gaps, 50)),
            p99.map_or_else(|| format!("n={}", self.gaps.len()), |p99| ms(Some(p99))),
            tokens,
            reasoning,
            summary.status.map_or("-".to_owned(), |status| status.to_string()),
        )
    }
}

/// Content events that came together.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Flush {
    first: i64,
    last: i64,
    tokens: i64,
    /// At least one of its counts is an estimate.
    estimated: bool,
}

fn flushes(deltas: &[Delta]) -> Vec<Flush> {
    let mut flushes: Vec<Flush> = Vec::new();
    for delta in deltas.iter().filter(|delta| delta.is_content()) {
        let Some(at) = delta.t else { continue };
        let tokens = i64::from(delta.tokens.or(delta.tokens_est).unwrap_or(0));
        let estimated = delta.tokens.is_none();
        match flushes.last_mut() {
            Some(flush) if at.0 - flush.last < MERGE_US => {
                flush.last = at.0;
                flush.tokens += tokens;
                flush.estimated |= estimated;
            }
            _ => flushes.push(Flush { first: at.0, last: at.0, tokens, estimated }),
        }
    }
    flushes
}

/// The value below which `percent` of `values` lie (nearest rank).
fn quantile(values: &mut [i64], percent: usize) -> Option<i64> {
    let rank = (values.len() * percent).div_ceil(100).checked_sub(1)?;
    Some(*values.select_nth_unstable(rank).1)
}

fn ms(us: Option<i64>) -> String {
    us.map_or("-".to_owned(), |us| format!("{}.{}", us / 1_000, us.rem_euclid(1_000) / 100))
}

#[cfg(test)]
mod tests {
    use sseismo_trace::{Kind, Micros, Phase};

    use super::*;

    #[test]
    fn events_within_a_millisecond_are_one_flush() {
        let at = |seq, us, tokens| Delta {
            tokens,
            tokens_est: Some(9),
            ..Delta::new(seq, Kind::Reasoning, Phase::Reasoning, Some(Micros(us)))
        };
        let deltas = [at(0, 0, Some(2)), at(1, 500, Some(3)), at(2, 5_000, None)];
        let first = Flush { first: 0, last: 500, tokens: 5, estimated: false };
        let second = Flush { first: 5_000, last: 5_000, tokens: 9, estimated: true };
        assert_eq!(flushes(&deltas), [first, second]);
    }

    #[test]
    fn few_gaps_have_no_p99_and_estimates_are_marked() {
        let deltas = (0..30).map(|seq| Delta {
            tokens_est: Some(2),
            ..Delta::new(seq, Kind::Reasoning, Phase::Reasoning, Some(Micros(i64::from(seq) * 10_000)))
        });
        let record = Record { deltas: deltas.collect(), ..Record::default() };
        let (mut table, mut out) = (Table::default(), Vec::new());
        table.row(&mut out, &record).unwrap();
        let out = String::from_utf8(out).unwrap();
        assert!(out.contains("n=29") && out.contains("~2") && out.contains("10.0"), "{out}");
    }
}
