//! The binary: flags, wiring, exit codes. Each verb is one file; the work is done by the crates.

#[cfg(feature = "analyze")]
mod analyze;
#[cfg(feature = "detect")]
mod backtest;
#[cfg(all(feature = "relay", feature = "analyze"))]
mod capture;
#[cfg(any(feature = "analyze", feature = "relay"))]
mod clock;
#[cfg(feature = "analyze")]
mod compare;
mod exit;
#[cfg(feature = "analyze")]
mod import;
#[cfg(feature = "analyze")]
mod reading;
#[cfg(feature = "relay")]
mod recording;
#[cfg(feature = "relay")]
mod relay;
#[cfg(all(feature = "relay", feature = "analyze"))]
mod replay;
#[cfg(feature = "relay")]
mod restore;
#[cfg(all(feature = "relay", feature = "analyze"))]
mod sending;
#[cfg(feature = "analyze")]
mod show;
#[cfg(feature = "simulate")]
mod simulate;
#[cfg(feature = "detect")]
mod spool;
#[cfg(feature = "vote")]
mod vote;
#[cfg(feature = "watch")]
mod watch;

use std::process::ExitCode;

use clap::{Parser, Subcommand};

/// The relay lives on small allocations that one thread makes and another frees: with it a routed request takes a
/// quarter less CPU than with glibc's (`tests/bench/peers.py`).
#[cfg(feature = "relay")]
#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

/// Find out whether, where and why the reasoning tokens of LLM APIs cluster.
///
/// Results go to stdout, everything else to stderr. Exit code 0: fine; 1: a signature named by
/// `--fail-on` was found; 2: an error.
#[derive(Debug, Parser)]
#[command(version, max_term_width = 100)]
struct Cli {
    #[command(subcommand)]
    verb: Verb,
}

#[derive(Debug, Subcommand)]
enum Verb {
    #[cfg(feature = "analyze")]
    Analyze(analyze::Args),
    #[cfg(feature = "analyze")]
    Compare(compare::Args),
    #[cfg(feature = "analyze")]
    Import(import::Args),
    #[cfg(feature = "detect")]
    Backtest(backtest::Args),
    #[cfg(feature = "simulate")]
    Simulate(simulate::Args),
    #[cfg(all(feature = "relay", feature = "analyze"))]
    Capture(capture::Args),
    #[cfg(feature = "relay")]
    Relay(Box<relay::Args>),
    #[cfg(all(feature = "relay", feature = "analyze"))]
    Replay(Box<replay::Args>),
    #[cfg(feature = "relay")]
    Restore(restore::Args),
    #[cfg(feature = "vote")]
    Vote(Box<vote::Args>),
    #[cfg(feature = "watch")]
    Watch(watch::Args),
}

fn main() -> ExitCode {
    let outcome = match Cli::parse().verb {
        #[cfg(feature = "analyze")]
        Verb::Analyze(args) => analyze::run(args),
        #[cfg(feature = "analyze")]
        Verb::Compare(args) => compare::run(&args),
        #[cfg(feature = "analyze")]
        Verb::Import(args) => import::run(args),
        #[cfg(feature = "detect")]
        Verb::Backtest(args) => backtest::run(&args),
        #[cfg(feature = "simulate")]
        Verb::Simulate(args) => simulate::run(&args),
        #[cfg(all(feature = "relay", feature = "analyze"))]
        Verb::Capture(args) => capture::run(&args),
        #[cfg(feature = "relay")]
        Verb::Relay(args) => relay::run(&args),
        #[cfg(all(feature = "relay", feature = "analyze"))]
        Verb::Replay(args) => replay::run(&args),
        #[cfg(feature = "relay")]
        Verb::Restore(args) => restore::run(&args),
        #[cfg(feature = "vote")]
        Verb::Vote(args) => vote::run(&args),
        #[cfg(feature = "watch")]
        Verb::Watch(args) => watch::run(&args),
    };
    exit::code(outcome)
}
