//! Speed of the vote, CPU time, one measurement a run: `vote_speed dbscan FILE N D EPS`, `hash`, or `vote N`.
//!
//! `benches/vote_speed.py` drives it beside scikit-learn; JSON on stdout. FILE holds N·D little-endian `f32`.

#![expect(clippy::print_stdout, reason = "its result is for the driver")]
#![expect(clippy::cast_precision_loss, reason = "sizes of a benchmark")]

use ndarray::Array2;
use serde_json::json;
use sseismo_analysis::vote::cluster::dbscan;
use sseismo_analysis::vote::embed::{Embed as _, Hash};
use sseismo_analysis::vote::geometry::Geometry;
use sseismo_analysis::vote::rule::RULES;
use sseismo_analysis::vote::{Ballots, Options, Sample, decide};

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let args: Vec<String> = std::env::args().skip(1).collect();
    let args: Vec<&str> = args.iter().map(String::as_str).collect();
    let result = match args.as_slice() {
        ["dbscan", file, n, d, eps] => run_dbscan(file, n.parse()?, d.parse()?, eps.parse()?)?,
        ["hash"] => run_hash()?,
        ["vote", n] => run_vote(n.parse()?)?,
        _ => return Err("usage: vote_speed dbscan FILE N D EPS | hash | vote N".into()),
    };
    println!("{result}");
    Ok(())
}

fn run_dbscan(
    file: &str,
    n: usize,
    d: usize,
    eps: f64,
) -> Result<serde_json::Value, Box<dyn std::error::Error>> {
    let bytes = std::fs::read(file)?;
    let values = bytes.as_chunks::<4>().0.iter().map(|b| f32::from_le_bytes(*b)).collect();
    drop(bytes);
    let points = Array2::from_shape_vec((n, d), values)?;
    let start = cpu_seconds()?;
    let labels = dbscan(&points.view(), eps, 2)?;
    let seconds = cpu_seconds()? - start;
    let labels: Vec<i64> = labels.iter().map(|l| l.map_or(-1, |c| i64::try_from(c).unwrap_or(-2))).collect();
    Ok(json!({"seconds": seconds, "labels": labels}))
}

/// Time that this process has been on a processor: what else runs on the machine does not count. Linux only.
fn cpu_seconds() -> Result<f64, Box<dyn std::error::Error>> {
    let stat = std::fs::read_to_string("/proc/self/schedstat")?;
    let nanos: f64 = stat.split_whitespace().next().ok_or("/proc/self/schedstat is empty")?.parse()?;
    Ok(nanos / 1e9)
}

/// A text of reasoning: words of the question and numbers, 4 KB each.
fn trace(seed: usize) -> String {
    let words =
        ["so", "we", "first", "compute", "the", "product", "of", "both", "sides", "wait", "therefore"];
    let mut text = String::new();
    for i in 0..800 {
        text.push_str(words[(i * 7 + seed * 13 + i * i) % words.len()]);
        text.push_str(if i % 9 == 0 { ".\n" } else { " " });
        if i % 5 == seed % 5 {
            text.push_str(&(i * seed).to_string());
            text.push(' ');
        }
    }
    text
}

fn run_hash() -> Result<serde_json::Value, Box<dyn std::error::Error>> {
    let texts: Vec<String> = (0..2_000).map(trace).collect();
    let texts: Vec<&str> = texts.iter().map(String::as_str).collect();
    let bytes: usize = texts.iter().map(|t| t.len()).sum();
    let start = cpu_seconds()?;
    let vectors = Hash.embed(&texts)?;
    let seconds = cpu_seconds()? - start;
    Ok(json!({"seconds": seconds, "megabytes": bytes as f64 / 1e6, "rows": vectors.nrows()}))
}

/// Median of many whole votes: embedding, geometry, decision.
fn run_vote(n: usize) -> Result<serde_json::Value, Box<dyn std::error::Error>> {
    let samples: Vec<Sample> = (0..n)
        .map(|i| Sample { trace: trace(i), answer: Some((i % 3).to_string()), ..Sample::default() })
        .collect();
    let texts: Vec<&str> = samples.iter().map(|s| s.trace.as_str()).collect();
    let mut whole = Vec::new();
    let mut counting = Vec::new();
    for _ in 0..21 {
        let start = cpu_seconds()?;
        let geometry = Geometry::new(&Hash.embed(&texts)?, Hash.eps(), false)?;
        let embedded = cpu_seconds()?;
        let outcome = decide(RULES[0], &Ballots::new(&samples, Some(&geometry), None), Options::default());
        std::hint::black_box(outcome);
        let end = cpu_seconds()?;
        whole.push(end - start);
        counting.push(end - embedded);
    }
    whole.sort_by(f64::total_cmp);
    counting.sort_by(f64::total_cmp);
    Ok(json!({"milliseconds": whole[10] * 1e3, "counting_milliseconds": counting[10] * 1e3}))
}
