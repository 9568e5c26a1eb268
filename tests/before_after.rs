//! The production write-ups end to end: simulated upstreams with known truth, the relay with its live detector,
//! the same load before and after by `sseismo replay`, and the difference by `sseismo compare`.
//!
//! Three scenarios run with the other tests. The whole table takes a quarter of an hour; `ONLY=bursts` makes one of its
//! rows, `KEEP_BEFORE_AFTER=1` leaves every trace, log and truth behind:
//!
//! ```text
//! cargo test --workspace --all-features --test help --test before_after -- --ignored --nocapture
//! ```
//!
//! Each scenario runs four ways at once: at a healthy upstream, at the primary directly, and through the relay with
//! the primary and a fallback, once with `act = false` and once with `act = true`. What is compressed in time is said
//! in the scenario's file. A machine that is busy otherwise delays all ways alike.

#![expect(clippy::print_stdout, reason = "the table is what the tests are for")]

mod before_after {
    pub(crate) mod budgets;
    pub(crate) mod bursts;
    pub(crate) mod canary;
    pub(crate) mod converging_sizes;
    pub(crate) mod deep_calls;
    pub(crate) mod failover;
    pub(crate) mod lab;
    pub(crate) mod retries;
    pub(crate) mod sizes;
    pub(crate) mod wrong_answers;
}

use before_after::lab::Line;
use before_after::{
    budgets, bursts, canary, converging_sizes, deep_calls, failover, retries, sizes, wrong_answers,
};

/// Prints lines as a table in Markdown.
fn print(lines: &[Line]) {
    println!(
        "\n| scenario | figure | healthy upstream | primary, directly | relay, telling | relay, acting | directly → acting (95 %) | calls that it would have / has steered |"
    );
    println!("|---|---|---|---|---|---|---|---|");
    for Line(cells) in lines {
        println!("| {} |", cells.join(" | "));
    }
}

#[test]
fn a_primary_that_answers_503_is_left_before_clients_notice() {
    print(&failover::lines());
}

#[test]
fn a_client_behind_the_relay_asks_once() {
    print(&retries::lines());
}

#[test]
fn sizes_that_converge_are_signalled_and_the_signal_moves_them() {
    print(&converging_sizes::lines());
}

/// A scenario by its name.
type Scenario = (&'static str, fn() -> Vec<Line>);

/// Every scenario, in the order of the table.
const SCENARIOS: [Scenario; 9] = [
    ("sizes", sizes::lines),
    ("converging_sizes", converging_sizes::lines),
    ("deep_calls", deep_calls::lines),
    ("bursts", bursts::lines),
    ("wrong_answers", wrong_answers::lines),
    ("failover", failover::lines),
    ("retries", retries::lines),
    ("canary", canary::lines),
    ("budgets", budgets::lines),
];

#[test]
#[ignore = "a quarter of an hour long; see the file's documentation"]
fn the_whole_table() {
    let only = std::env::var("ONLY").unwrap_or_default();
    let wanted = SCENARIOS.iter().filter(|(name, _)| name.contains(&only));
    print(&wanted.flat_map(|(_, lines)| lines()).collect::<Vec<_>>());
}
