//! What each signature says of upstreams with known truth: detected share, false share, AUC and causes.
//!
//! ```text
//! cargo run --profile quick -p sseismo-analysis --example truth_table -- [RUNS] [OPTIONS]
//!   RUNS               seeded runs of each scenario, 200 unless given
//!   --tuning           the seeds on which thresholds may be tuned (0 on); without it the test seeds
//!   --only PART        scenarios whose name holds PART
//!   --json | --csv     every cell as JSON Lines or CSV on stdout, instead of the tables
//! ```
//!
//! Every scenario of `data/scenarios` runs in virtual time, once a seed, and goes through the whole analysis
//! as one scope ([`run`]). What is right to say of it stands in [`truth`]; a detected share is that of runs in
//! which the right word was said, a false share that of runs in which a signature alarmed without cause.
//! Thresholds were tuned on seeds under 1,000 only; the tables show seeds from 10,000 on.
#![expect(clippy::print_stdout, clippy::print_stderr, reason = "tables and progress are what it is for")]

mod auc;
mod run;
mod table;
mod truth;

use std::collections::BTreeMap;
use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering};

use sseismo_simulator::Scenario;

use run::Run;
use truth::{TRUTHS, Truth};

/// First of the seeds on which thresholds may be tuned.
const TUNING_SEED: u64 = 0;
/// First of the seeds on which nothing was tuned.
const TEST_SEED: u64 = 10_000;

struct Arguments {
    runs: u64,
    first_seed: u64,
    only: String,
    format: Format,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Format {
    Markdown,
    Json,
    Csv,
}

fn arguments() -> Result<Arguments, String> {
    let mut parsed =
        Arguments { runs: 200, first_seed: TEST_SEED, only: String::new(), format: Format::Markdown };
    let mut given = std::env::args().skip(1);
    while let Some(argument) = given.next() {
        match argument.as_str() {
            "--tuning" => parsed.first_seed = TUNING_SEED,
            "--only" => parsed.only = given.next().ok_or("--only needs a part of a name")?,
            "--json" => parsed.format = Format::Json,
            "--csv" => parsed.format = Format::Csv,
            number => {
                parsed.runs =
                    number.parse().map_err(|_| format!("{number} is neither an option nor a number"))?;
            }
        }
    }
    Ok(parsed)
}

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let arguments = arguments()?;
    let scenarios = scenarios(&arguments.only)?;
    let results = all(&scenarios, &arguments);
    match arguments.format {
        Format::Json => table::json(&results)?,
        Format::Csv => table::csv(&results)?,
        Format::Markdown => {
            println!("{} runs a scenario, seeds from {}.\n", arguments.runs, arguments.first_seed);
            table::signatures(&results);
            table::matrix(&results);
            auc::table(&results);
            table::causes(&results);
        }
    }
    Ok(())
}

/// The runs of one scenario.
struct Results {
    truth: &'static Truth,
    runs: Vec<Run>,
}

/// Every file of `data/scenarios`, each with its truth: a file without one is an error, not left out.
fn scenarios(only: &str) -> Result<Vec<(&'static Truth, Scenario)>, Box<dyn std::error::Error>> {
    let folder = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("../../data/scenarios");
    let mut names: Vec<String> = std::fs::read_dir(&folder)?
        .filter_map(|entry| Some(entry.ok()?.path().file_stem()?.to_str()?.to_owned()))
        .filter(|name| name.contains(only))
        .collect();
    names.sort();
    names
        .iter()
        .map(|name| {
            let truth = TRUTHS.iter().find(|truth| truth.scenario == name);
            let truth = truth.ok_or_else(|| format!("{name} has no line in truth.rs: say what it shows"))?;
            Ok((truth, Scenario::load(&folder.join(format!("{name}.toml")))?))
        })
        .collect()
}

/// Runs everything on as many threads as there are cores; progress on stderr.
fn all(scenarios: &[(&'static Truth, Scenario)], arguments: &Arguments) -> Vec<Results> {
    let runs = usize::try_from(arguments.runs).unwrap_or(usize::MAX);
    let (next, total) = (AtomicUsize::new(0), scenarios.len() * runs);
    let done: Mutex<BTreeMap<usize, Vec<Run>>> = Mutex::new(BTreeMap::new());
    std::thread::scope(|scope| {
        for _ in 0..std::thread::available_parallelism().map_or(1, usize::from) {
            scope.spawn(|| {
                loop {
                    let job = next.fetch_add(1, Ordering::Relaxed);
                    let Some((truth, scenario)) = scenarios.get(job / runs.max(1)).filter(|_| job < total)
                    else {
                        return;
                    };
                    let seed = arguments.first_seed + (job % runs) as u64;
                    let run = run::run(scenario, seed, truth.streams);
                    let mut done = done.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
                    let of_scenario = done.entry(job / runs).or_default();
                    of_scenario.push(run);
                    if of_scenario.len() == runs {
                        eprintln!("{:>4} of {total}  {}", job + 1, truth.scenario);
                    }
                }
            });
        }
    });
    let done = done.into_inner().unwrap_or_else(std::sync::PoisonError::into_inner);
    let in_order = |mut runs: Vec<Run>| {
        runs.sort_by_key(|run| run.seed);
        runs
    };
    done.into_iter()
        .filter_map(|(place, runs)| Some(Results { truth: scenarios.get(place)?.0, runs: in_order(runs) }))
        .collect()
}
