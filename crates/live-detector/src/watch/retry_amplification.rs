//! `retry-amplification`: one client turn becomes many attempts.
//!
//! **Observation**: a client turn; flagged when a second attempt of it begins. A turn ends unflagged when an
//! attempt comes to its end, or when nobody asked again within 60 s of a failure.
//! **Null**: the share of retried turns that was learned, as an upper limit, but never above the 5 % that
//! the offline signature calls health: a storm that was there from the start must not pass for normal.
//! **Signal**: needs what `present` needs offline, 5 % of turns and 1.1 attempts per turn.
//! **Smallest n**: 50 turns are learned first.
//! **False positives**: a turn that is asked again after a good answer counts as a second, retried turn.

use std::collections::{HashMap, VecDeque};

use serde_json::Value;
use sseismo_analysis::signature::retry_amplification::{FACTOR, SHARE, TURNS};
use sseismo_analysis::stats::real;
use sseismo_trace::{Detail, Outcome, UtcMicros};

use super::flagged::Flagged;
use super::{Call, Watch};
use crate::Options;
use crate::baseline::Kept;
use crate::sequence::{Learned, Sequence, Step};
use crate::view::Figure;

/// Nobody asks again after this long, µs: twice the longest back-off of the usual SDKs.
const GIVEN_UP: i64 = 60_000_000;
/// Turns that are kept open at once.
const OPEN: usize = 512;

/// Starts watching.
pub(super) fn open(_: &Options) -> Box<dyn Watch> {
    Box::new(RetryAmplification {
        learned: Learned::default(),
        sequence: Sequence::new(SHARE),
        turns: HashMap::new(),
        order: VecDeque::new(),
        attempts: 0,
    })
}

/// A turn that may still be asked again.
#[derive(Clone, Copy, Debug)]
struct Turn {
    retried: bool,
    failed_at: Option<UtcMicros>,
}

#[derive(Debug)]
struct RetryAmplification {
    learned: Learned,
    sequence: Sequence,
    turns: HashMap<u64, Turn>,
    /// Keys of `turns` in the order in which they came; some may be gone.
    order: VecDeque<u64>,
    /// Attempts of the turns since the evidence was last at rest.
    attempts: u64,
}

impl RetryAmplification {
    fn flag(&mut self, at: UtcMicros, retried: bool) {
        let mut step = self.sequence.push(at, retried);
        self.attempts = if step == Step::Rest { 0 } else { self.attempts + 1 + u64::from(retried) };
        if step == Step::Onset && self.factor() < FACTOR {
            self.sequence.reset();
            step = Step::Open;
        }
        self.learned.push(retried, step);
        self.set_null();
    }

    fn set_null(&mut self) {
        if self.learned.n() >= TURNS {
            self.sequence.set_null(self.learned.upper_limit().min(SHARE));
        }
    }

    fn factor(&self) -> f64 {
        real(self.attempts) / real(self.sequence.hits().n.max(1))
    }

    /// Ends the turns that nobody will ask again, and those that are too many.
    fn expire(&mut self, now: UtcMicros) {
        while let Some(&key) = self.order.front() {
            match self.turns.get(&key) {
                Some(turn)
                    if self.order.len() <= OPEN
                        && turn.failed_at.is_none_or(|at| now.0 - at.0 < GIVEN_UP) =>
                {
                    return;
                }
                Some(turn) => {
                    let (retried, failed) = (turn.retried, turn.failed_at.is_some());
                    self.turns.remove(&key);
                    if failed && !retried {
                        self.flag(now, false);
                    }
                }
                None => {}
            }
            self.order.pop_front();
        }
    }
}

impl Flagged for RetryAmplification {
    const UNIT: &'static str = "client turns";

    fn begin(&mut self, call: &Call<'_>) {
        let summary = call.summary;
        let (Some(key), Some(attempt), None) = (summary.turn_key, summary.attempt, summary.group_id) else {
            return;
        };
        let known = self.turns.get(&key).copied();
        if known.is_none() {
            self.order.push_back(key);
        }
        let again = attempt > 1;
        let retried = again || known.is_some_and(|turn| turn.retried);
        self.turns.insert(key, Turn { retried, failed_at: None });
        if again && known.is_some_and(|turn| turn.retried) {
            self.attempts += 1;
        } else if again {
            self.flag(call.at, true);
        }
        self.expire(call.at);
    }

    fn end(&mut self, call: &Call<'_>) {
        let Some(key) = call.summary.turn_key else { return };
        let Some(turn) = self.turns.get_mut(&key) else { return };
        if matches!(call.summary.outcome, Outcome::Completed | Outcome::Incomplete | Outcome::ClientGone) {
            let retried = turn.retried;
            self.turns.remove(&key);
            if !retried {
                self.flag(call.at, false);
            }
        } else {
            turn.failed_at = Some(call.at);
        }
    }

    fn tick(&mut self, now: UtcMicros) {
        self.expire(now);
    }

    fn sequence(&self) -> &Sequence {
        &self.sequence
    }

    fn sequence_mut(&mut self) -> &mut Sequence {
        &mut self.sequence
    }

    fn learned(&self) -> [u64; 2] {
        [self.learned.n(), TURNS]
    }

    fn detail(&self) -> Detail {
        Detail::RetryAmplification { attempts_per_turn: self.factor() }
    }

    fn figures(&self) -> Vec<Figure> {
        vec![Figure::new("share of retried turns", self.learned.share(), "")]
    }

    fn reset(&mut self) {
        self.attempts = 0;
    }

    fn bytes(&self) -> usize {
        size_of_val(self) + self.turns.capacity() * size_of::<(u64, Turn)>() + 8 * self.order.capacity()
    }

    fn save(&self) -> Kept {
        Kept::of(self.learned)
    }

    fn restore(&mut self, saved: Value) -> Result<(), serde_json::Error> {
        self.learned = serde_json::from_value(saved)?;
        self.set_null();
        Ok(())
    }
}
