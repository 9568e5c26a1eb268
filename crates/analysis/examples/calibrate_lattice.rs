//! False alarms and power of `count-lattice`, on seeded counts with known truth.
//!
//! ```text
//! cargo run --profile quick -p sseismo-analysis --example calibrate_lattice -- [RUNS] [SEED]
//! ```
//!
//! Each cell is a number of simulated scopes of one model that went through the whole analysis. A false
//! alarm is any word that accuses (`boundary-stops`); the innocent words that were given instead are
//! printed beside it. The simulated shapes end at 11,999 tokens, where 3 counts in 1,000 pile up: `capped`
//! is right about them. Power counts a detection only when step and offset are right.

use sseismo_analysis::Analysis;
use sseismo_analysis::signature::Options;
use sseismo_analysis::signature::count_lattice::Evidence;
use sseismo_analysis::stats::proportion::wilson;
use sseismo_simulator::counts::{Background, Lattice, counts};
use sseismo_trace::{Dim, Finding, SignatureId, Stream, Summary, Usage, Verdict};

const SIZES: [usize; 5] = [100, 300, 1_000, 3_000, 10_000];
const NULLS: [(&str, Background); 4] = [
    ("lognormal", Background::LogNormal),
    ("bimodal", Background::Bimodal),
    ("capped at 4,096", Background::Capped { at: 4_096 }),
    ("3 % heaped on 100", Background::Heaped { unit: 100, share: 0.03 }),
];
const MASSES: [f64; 3] = [0.01, 0.05, 0.2];

#[expect(clippy::print_stdout, reason = "the table is what this program is for")]
fn main() {
    let mut arguments = std::env::args().skip(1).map(|a| a.parse::<u64>().expect("a whole number"));
    let runs = arguments.next().unwrap_or(100);
    let seed = arguments.next().unwrap_or(1);
    println!("False alarms (boundary-stops) in {runs} batches without a lattice, 95 % Wilson interval:");
    println!("{:<20}{:>8}{:>8}{:>18}  other words", "background", "n", "alarms", "rate %");
    for (name, background) in NULLS {
        for n in SIZES {
            let found: Vec<Finding> =
                (0..runs).map(|run| judge(&counts(cell_seed(seed, n, run), n, background, None))).collect();
            let alarms = found.iter().filter(|f| f.verdict.is_alarm()).count() as u64;
            println!("{name:<20}{n:>8}{alarms:>8}{:>18}  {}", percent(alarms, runs), words(&found));
        }
    }
    println!("\nPower: found as exactly 518n-2 in {runs} lognormal batches with that mass on it:");
    println!("{:<20}{:>8}{:>8}{:>18}", "mass", "n", "found", "power %");
    for mass in MASSES {
        let lattice = Lattice { step: 518, offset: 516, mass, stop: 0.4 };
        for n in SIZES {
            let hits = (0..runs)
                .filter(|&run| {
                    let drawn = counts(cell_seed(seed + 1, n, run), n, Background::LogNormal, Some(lattice));
                    found_exactly(&judge(&drawn), lattice)
                })
                .count() as u64;
            println!("{:<20}{n:>8}{hits:>8}{:>18}", format!("{:.0} %", mass * 100.0), percent(hits, runs));
        }
    }
}

/// Cells must not share their batches.
fn cell_seed(seed: u64, n: usize, run: u64) -> u64 {
    (seed << 40) ^ ((n as u64) << 20) ^ run
}

fn judge(counts: &[u32]) -> Finding {
    let mut analysis = Analysis::new(vec![Dim::Model], Options::default());
    for &count in counts {
        let usage = Usage { reasoning: Some(f64::from(count)), ..Usage::default() };
        let summary = Summary { usage, model_served: Some("simulated".into()), ..Summary::default() };
        analysis.push("simulated", &Stream { summary: &summary, deltas: &[], reads: &[] });
    }
    let findings = analysis.finish();
    findings.into_iter().find(|f| f.signature == SignatureId::CountLattice).expect("it is registered")
}

fn found_exactly(finding: &Finding, lattice: Lattice) -> bool {
    let evidence: Evidence = serde_json::from_value(finding.evidence.clone()).expect("its own evidence");
    finding.verdict == Verdict::BoundaryStops
        && (evidence.step, evidence.offset) == (Some(lattice.step), Some(lattice.offset))
}

fn percent(k: u64, n: u64) -> String {
    let [low, high] = wilson(k, n).map(|share| share * 100.0);
    #[expect(clippy::cast_precision_loss, reason = "numbers of runs")]
    let share = 100.0 * k as f64 / n as f64;
    format!("{share:.0} ({low:.1}-{high:.1})")
}

fn words(findings: &[Finding]) -> String {
    let mut names: Vec<&str> = findings
        .iter()
        .map(|f| f.verdict)
        .filter(|v| *v != Verdict::None && !v.is_alarm())
        .map(Verdict::name)
        .collect();
    names.sort_unstable();
    names
        .chunk_by(|a, b| a == b)
        .map(|same| format!("{} {}", same.len(), same[0]))
        .collect::<Vec<_>>()
        .join(", ")
}
