//! The public LLM inference traces of Azure: `TIMESTAMP,ContextTokens,GeneratedTokens`.
//!
//! In: one request a line (2023 and 2024 sets of Azure/AzurePublicDataset). Out: a stream with its start
//! and its sizes. There is no latency, no model and no reasoning count in them.

use jiff::civil::DateTime;
use jiff::tz::TimeZone;
use sseismo_trace::{Summary, Usage, UtcMicros};

use super::Options;
use super::importer::{Error, Fit, Grain, Head, Importer, Out, key};
use super::input::Input;

const HEADER: &[u8] = b"TIMESTAMP,ContextTokens,GeneratedTokens";

/// An Azure LLM trace.
pub(super) struct Azure;

impl Importer for Azure {
    fn name(&self) -> &'static str {
        "azure-llm-trace"
    }

    fn expects(&self) -> &'static str {
        "a request trace of Azure/AzurePublicDataset"
    }

    fn grain(&self) -> Grain {
        Grain::Table
    }

    fn recognises(&self, head: &Head<'_>) -> Fit {
        (head.lines().next() == Some(HEADER)).into()
    }

    fn read(&self, input: &Input<'_>, _: &Options, out: &mut Out<'_>) -> Result<(), Error> {
        let mut lines = input.lines()?;
        lines.next(out)?;
        while let Some(line) = lines.next(out)? {
            match request(line.bytes) {
                Ok((started_at, usage)) => {
                    let stream_id = key(&[out.path(), &line.number.to_string()]);
                    let started_at = Some(started_at);
                    out.summary_only(&Summary { stream_id, started_at, usage, ..out.summary() });
                }
                Err(_) if !line.ended => out.skip("torn-line"),
                Err(reason) => out.skip(reason),
            }
        }
        Ok(())
    }
}

fn request(line: &[u8]) -> Result<(UtcMicros, Usage), &'static str> {
    let line = std::str::from_utf8(line).map_err(|_| "invalid-utf8")?;
    let mut columns = line.split(',');
    let (Some(time), Some(input), Some(output), None) =
        (columns.next(), columns.next(), columns.next(), columns.next())
    else {
        return Err("wrong-number-of-columns");
    };
    let count = |text: &str| text.trim().parse::<u64>().map_err(|_| "invalid-count");
    let usage = Usage { input: Some(count(input)?), output: Some(count(output)?), ..Usage::default() };
    Ok((moment(time).ok_or("invalid-time")?, usage))
}

/// The sets give UTC, that of 2024 with its offset.
fn moment(text: &str) -> Option<UtcMicros> {
    let text = text.trim().trim_end_matches("+00:00");
    let time: DateTime = text.parse().ok()?;
    Some(UtcMicros(TimeZone::UTC.to_timestamp(time).ok()?.as_microsecond()))
}

#[cfg(test)]
mod tests {
    use super::super::tests::{data, folder, read};
    use super::*;

    /// Published: 19,366 requests, 9.0 % of prompts in 150–220 tokens, 9.1 % over 3,200; inter-arrival
    /// CV 1.09.
    #[test]
    fn the_real_trace_has_its_published_shares() {
        let (imported, kept) = read(&data("workload/azure-2023-conv.csv"), &Options::default());
        assert_eq!((imported[0].format, imported[0].streams), ("azure-llm-trace", 19_366));
        assert!(imported[0].skipped.is_empty(), "{:?}", imported[0].skipped);
        let prompts: Vec<u64> = kept.streams.iter().filter_map(|(_, s)| s.usage.input).collect();
        let share =
            |fits: fn(u64) -> bool| prompts.iter().filter(|n| fits(**n)).count() * 1_000 / prompts.len();
        assert_eq!(share(|n| (150..=220).contains(&n)), 89);
        assert_eq!(share(|n| n > 3_200), 90);
        let times: Vec<i64> = kept.streams.iter().filter_map(|(_, s)| Some(s.started_at?.0)).collect();
        assert_eq!(times[0], 1_700_158_546_680_590);
        let cv = coefficient_of_variation(&times);
        assert!((cv - 1.09).abs() < 0.01, "{cv}");
    }

    #[expect(clippy::cast_precision_loss, reason = "gaps of one hour")]
    fn coefficient_of_variation(times: &[i64]) -> f64 {
        let gaps: Vec<f64> = times.windows(2).map(|pair| (pair[1] - pair[0]) as f64).collect();
        let n = gaps.len() as f64;
        let mean = gaps.iter().sum::<f64>() / n;
        (gaps.iter().map(|gap| (gap - mean).powi(2)).sum::<f64>() / n).sqrt() / mean
    }

    #[test]
    fn bad_lines_are_counted() {
        let text = b"TIMESTAMP,ContextTokens,GeneratedTokens\n2024-05-10 00:00:00.009930+00:00,10,2\n\
                     yesterday,1,2\n2023-11-16 18:15:46,x,2\n1,2\n2023-11-16 18:1";
        let folder = folder(&[("t.csv", text)]);
        let (imported, kept) = read(&folder.path().join("t.csv"), &Options::default());
        assert_eq!(kept.streams.len(), 1);
        let expected =
            [("invalid-count", 1), ("invalid-time", 1), ("torn-line", 1), ("wrong-number-of-columns", 1)];
        assert_eq!(imported[0].skipped, expected.into());
    }
}
