//! The production write-ups end to end: simulated upstreams with known truth, the relay with its live detector,
//! the same load before and after by `sseismo replay`, and the difference by `sseismo compare`.
//!
//! Two scenarios run with the other tests. The whole table takes some ten minutes:
//!
//! ```text
//! cargo test --workspace --all-features --test help --test before_after -- --include-ignored --nocapture --test-threads 1
//! ```

#![expect(clippy::print_stdout, reason = "the table is what the tests are for")]

mod before_after {
    pub(crate) mod bursts;
    pub(crate) mod deep_calls;
    pub(crate) mod failover;
    pub(crate) mod lab;
    pub(crate) mod retries;
    pub(crate) mod sizes;
}

use before_after::lab::Line;
use before_after::{bursts, deep_calls, failover, retries, sizes};

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
#[ignore = "minutes long; see the file's documentation"]
fn sizes_that_queue_at_one_shard_are_kept_off_it() {
    print(&sizes::lines());
}

#[test]
#[ignore = "minutes long; see the file's documentation"]
fn no_more_deep_calls_pile_up_than_the_primary_bears() {
    print(&deep_calls::lines());
}

#[test]
#[ignore = "minutes long; see the file's documentation"]
fn a_primary_that_bursts_is_left_on_the_detectors_signal() {
    print(&bursts::lines());
}
