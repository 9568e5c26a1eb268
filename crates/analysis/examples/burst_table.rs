//! How often `burst` is said of streams with known truth, honest and clustered.
//!
//! `cargo run -p sseismo-analysis --example burst_table -- 200`: so many seeds a process, one stream of
//! 30 s a scope. Tuning seeds are under 1,000; these start at 10,000.
#![expect(clippy::print_stdout, reason = "the table is what this program is for")]

use sseismo_analysis::signature::burst::Burst;
use sseismo_analysis::signature::{Options, Pass, Preset, Signature as _};
use sseismo_simulator::timing::Process;
use sseismo_trace::{Scope, Stream, Summary, TimeSource, Verdict};

/// First of the seeds on which nothing was tuned.
const FIRST_SEED: u64 = 10_000;
const VERDICTS: [Verdict; 5] =
    [Verdict::Present, Verdict::Coalesced, Verdict::HeldWhole, Verdict::None, Verdict::TooFew];

fn main() {
    let seeds: u64 = std::env::args().nth(1).and_then(|arg| arg.parse().ok()).unwrap_or(100);
    println!("| process | truth | {} |", VERDICTS.map(Verdict::name).join(" | "));
    println!("|---|---|{}", "---|".repeat(VERDICTS.len()));
    for process in Process::ALL {
        let mut counts = [0_u64; VERDICTS.len()];
        for seed in FIRST_SEED..FIRST_SEED + seeds {
            let verdict = verdict(process, seed);
            if let Some(at) = VERDICTS.iter().position(|of| *of == verdict) {
                counts[at] += 1;
            }
        }
        let truth = if process.is_honest() { "honest" } else { "clustered" };
        let shares = counts.map(|count| format!("{:.1} %", 100.0 * share(count, seeds)));
        println!("| {} | {truth} | {} |", process.name(), shares.join(" | "));
    }
}

fn verdict(process: Process, seed: u64) -> Verdict {
    let (deltas, summary) =
        (process.deltas(seed), Summary { time_source: TimeSource::Socket, ..Summary::default() });
    let stream = Stream { summary: &summary, deltas: &deltas, reads: &[] };
    let mut score = Burst.open(&Options { preset: Preset::Measured });
    score.push(Pass::Baseline, &stream);
    score.push(Pass::Groups, &stream);
    score.finding(&Scope::default()).verdict
}

#[expect(clippy::cast_precision_loss, reason = "small counts")]
fn share(part: u64, whole: u64) -> f64 {
    part as f64 / whole as f64
}
