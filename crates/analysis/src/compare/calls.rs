//! Attempts to client turns, and turns to chains.
//!
//! A *call* is one client turn with all its attempts; a stream without a turn, without an attempt number, or
//! of a fan-out is a call by itself. It succeeded when its last attempt completed, however often it was tried.
//! A *chain* is the calls of one session, at least [`CHAIN`] of them: it succeeded when all of them did.

use std::collections::BTreeMap;

use super::Row;

/// Fewest calls of a chain.
pub(super) const CHAIN: usize = 5;

/// One client turn.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct Call {
    pub(super) side: usize,
    /// The observation that it belongs to.
    pub(super) cluster: u32,
    session: Option<u64>,
    /// Attempts, where the source numbers them.
    pub(super) attempts: Option<u32>,
    last: u32,
    succeeded: Option<bool>,
    /// Cost of all attempts; unknown as soon as that of one is.
    pub(super) cost: Option<f64>,
}

/// The calls of rows that come with their side and the observation that they belong to.
pub(super) fn calls<'a>(rows: impl Iterator<Item = (&'a Row, usize, u32)>) -> Vec<Call> {
    let mut calls: Vec<Call> = Vec::new();
    let mut known: BTreeMap<(usize, Option<u64>, u64), usize> = BTreeMap::new();
    for (row, side, cluster) in rows {
        let numbered = row.turn.zip(row.attempt).filter(|_| !row.fan_out);
        let cost = row.cost();
        let new = Call {
            side,
            cluster,
            session: row.session,
            attempts: numbered.map(|_| 1),
            last: row.attempt.unwrap_or(1),
            succeeded: row.completed,
            cost,
        };
        let Some((turn, attempt)) = numbered else {
            calls.push(new);
            continue;
        };
        let place = *known.entry((side, row.session, turn)).or_insert(calls.len());
        let Some(call) = calls.get_mut(place) else {
            calls.push(new);
            continue;
        };
        call.attempts = call.attempts.map(|attempts| attempts + 1);
        call.cost = call.cost.zip(cost).map(|(sum, cost)| sum + cost);
        if attempt >= call.last {
            (call.last, call.succeeded) = (attempt, row.completed);
        }
    }
    calls
}

/// The calls of one session.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Chain {
    pub(super) side: usize,
    pub(super) calls: u64,
    /// Whether all succeeded; unknown when that of a call is and no other failed.
    pub(super) succeeded: Option<bool>,
}

/// Sessions of at least [`CHAIN`] calls.
pub(super) fn chains(calls: &[Call]) -> Vec<Chain> {
    let mut sessions: BTreeMap<(usize, u64), Vec<Option<bool>>> = BTreeMap::new();
    for call in calls {
        if let Some(session) = call.session {
            sessions.entry((call.side, session)).or_default().push(call.succeeded);
        }
    }
    let chain = |((side, _), results): ((usize, u64), Vec<Option<bool>>)| {
        let succeeded = if results.contains(&Some(false)) {
            Some(false)
        } else {
            results.iter().all(Option::is_some).then_some(true)
        };
        Chain { side, calls: results.len() as u64, succeeded }
    };
    sessions.into_iter().filter(|(_, results)| results.len() >= CHAIN).map(chain).collect()
}
