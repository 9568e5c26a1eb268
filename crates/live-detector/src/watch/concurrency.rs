//! `concurrency`: deep calls pile into a few seconds, and just those wait or are throttled.
//!
//! **Observation**: a pile, as offline: deep calls of which any 3 s hold more than 6. Its calls share their
//! fate, so a pile is one flag: set when its p50 or p90 time to the first token is 1.5 times that of the deep
//! calls outside of piles, or when 429s are commoner by 20 points, and when so many slow or refused calls are
//! drawn from those outside with a chance of at most 2 %. The second condition matters: a few calls outside
//! are slow as well, since they come while a pile waits, and of ten calls two such are enough to move the p90.
//! **Null**: how often calls that were in no pile look like that, taken together in the order in which they
//! came, as many as a pile has: an upper limit. No healthy pile needs to be seen first. Piles that come before
//! there are enough such groups wait, the last 64 of them, and are judged then: calls outside of piles come
//! slowly, and a limit that was there from the start is seen no later for that.
//! **Deep**: as offline: effort `high` or above; without an effort, a prompt size whose calls took 1,000
//! reasoning tokens at the median.
//! **Signal**: needs 30 % of the piles since the change began.
//! **Smallest n**: 30 deep calls outside of piles, and 20 groups of them.
//! **False positives**: as offline, harder questions that come as fan-outs.

use std::collections::{HashMap, VecDeque};

use serde::{Deserialize, Serialize};
use serde_json::Value;
use sseismo_analysis::signature::concurrency::{CALLS, DEEP_TOKENS, HARM, LEARNED_FROM, WINDOW, deep_effort};
use sseismo_analysis::signature::time_to_first_token;
use sseismo_analysis::stats::quantile::of_sorted;
use sseismo_analysis::stats::real;
use sseismo_analysis::stats::tail::ln_binomial;
use sseismo_trace::{Detail, Micros, Summary, UtcMicros};

use super::flagged::Flagged;
use super::{Call, Watch, write_up};
use crate::baseline::Kept;
use crate::sequence::{Hits, Learned, Sequence, Step};
use crate::sketch::Sketch;
use crate::view::Figure;
use crate::{Options, Preset};

/// Deep calls outside of piles before these are compared with anything.
const OTHERS: u64 = 30;
/// Groups of them before piles are watched.
const GROUPS: u64 = 20;
/// Share of flagged piles that is worth a signal.
const LEAST: f64 = 0.3;
/// 429s of a pile are harm when they are commoner than elsewhere by this.
const THROTTLED: f64 = 0.2;
/// A pile is flagged only when calls outside of piles would look so with at most this chance.
const CHANCE: f64 = 0.02;
/// Piles that wait to be judged.
const WAITING: usize = 64;
/// A pile that goes on and on is cut after so many calls: each cut is one observation.
const LARGEST: usize = 64;
/// Calls that are followed at once; more are not looked at.
const OPEN: usize = 4_096;
/// From so many deep calls outside of piles on, older ones fade.
const EPOCH: u64 = 2_000;

/// Starts watching.
pub(super) fn open(options: &Options) -> Box<dyn Watch> {
    if options.preset == Preset::WriteUp {
        return write_up::concurrency();
    }
    Box::new(Concurrency {
        known: Known::default(),
        sequence: Sequence::new(LEAST),
        window: VecDeque::new(),
        calls: HashMap::new(),
        piles: VecDeque::new(),
        waiting: VecDeque::new(),
        number: 0,
        last_crowded: None,
        group: Vec::new(),
        group_size: CALLS + 2,
        largest: 0,
    })
}

/// What became of a call.
#[derive(Clone, Copy, Debug, PartialEq)]
struct Fate {
    ttft: Option<f64>,
    throttled: bool,
}

/// A deep call that is under way, or whose window is.
#[derive(Clone, Copy, Debug)]
struct Open {
    pile: Option<u64>,
    fate: Option<Fate>,
    /// No later call can make it crowded any more.
    passed: bool,
}

/// Calls that were crowded together.
#[derive(Debug)]
struct Pile {
    number: u64,
    /// Calls whose fate is not known.
    open: usize,
    calls: usize,
    fates: Vec<Fate>,
}

/// What was learned.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
struct Known {
    /// Reasoning tokens by size of the prompt, its power of two: which sizes are deep.
    sizes: HashMap<u32, Sketch>,
    /// Times to the first token of deep calls outside of piles.
    current: Sketch,
    previous: Sketch,
    throttled: Hits,
    /// Groups of such calls, flagged as piles are.
    groups: Learned,
}

#[derive(Debug)]
struct Concurrency {
    known: Known,
    sequence: Sequence,
    /// Deep calls of the last 3 s.
    window: VecDeque<(UtcMicros, u64)>,
    calls: HashMap<u64, Open>,
    /// Piles of which something is still unknown, oldest first.
    piles: VecDeque<Pile>,
    /// Piles of which everything is known, from before there was a null.
    waiting: VecDeque<(UtcMicros, Pile)>,
    number: u64,
    last_crowded: Option<UtcMicros>,
    /// Calls outside of piles that wait for their group to be full.
    group: Vec<Fate>,
    group_size: usize,
    /// Calls of the largest flagged pile since the change began.
    largest: usize,
}

impl Known {
    fn deep(&self, summary: &Summary) -> bool {
        deep_effort(summary).unwrap_or_else(|| {
            size(summary).and_then(|size| self.sizes.get(&size)).is_some_and(|counts| {
                counts.count() >= LEARNED_FROM as u64 && counts.quantile(0.5) >= Some(DEEP_TOKENS)
            })
        })
    }

    fn others(&self) -> Sketch {
        let mut others = self.previous.clone();
        others.merge(&self.current);
        others
    }

    fn learn(&mut self, fate: Fate) {
        self.throttled.push(fate.throttled);
        if let Some(ttft) = fate.ttft {
            self.current.push(ttft);
        }
        if self.current.count() >= EPOCH {
            self.previous = std::mem::take(&mut self.current);
            self.throttled.halve();
        }
    }

    /// Whether these calls fare worse than those outside of piles.
    fn harmed(&self, fates: &[Fate]) -> bool {
        let mut refused = Hits::default();
        for fate in fates {
            refused.push(fate.throttled);
        }
        if refused.share() >= self.throttled.share() + THROTTLED && is_rare(refused, self.throttled) {
            return true;
        }
        let mut ttfts: Vec<f64> = fates.iter().filter_map(|fate| fate.ttft).collect();
        if ttfts.len() <= CALLS / 2 {
            return false;
        }
        ttfts.sort_by(f64::total_cmp);
        let others = self.others();
        [0.5, 0.9].into_iter().any(|q| {
            let Some(slow) = others.quantile(q).map(|usual| HARM[0] * usual) else { return false };
            let above = ttfts.len() - ttfts.partition_point(|ttft| *ttft <= slow);
            of_sorted(&ttfts, q) >= slow
                && is_rare(
                    Hits { hits: above as u64, n: ttfts.len() as u64 },
                    Hits { hits: others.above(slow), n: others.count() },
                )
        })
    }
}

/// Whether calls like those outside of piles show as much with a chance of at most [`CHANCE`].
fn is_rare(seen: Hits, outside: Hits) -> bool {
    let usual = (real(outside.hits) + 1.0) / (real(outside.n) + 2.0);
    ln_binomial(seen.hits, seen.n, usual) <= CHANCE.ln()
}

/// A prompt's size as a power of two.
fn size(summary: &Summary) -> Option<u32> {
    summary.usage.input.or(summary.prompt_tokens_est).map(|tokens| tokens.saturating_add(1).ilog2())
}

impl Concurrency {
    /// A deep call starts: it, and all of the last 3 s with it, may be crowded.
    fn start(&mut self, at: UtcMicros, id: u64) {
        self.pass(at);
        if self.calls.len() >= OPEN {
            return;
        }
        self.window.push_back((at, id));
        self.calls.insert(id, Open { pile: None, fate: None, passed: false });
        if self.window.len() <= CALLS {
            return;
        }
        let full = self.piles.back().is_some_and(|pile| pile.calls >= LARGEST);
        if full || self.last_crowded.is_none_or(|last| at.0 - last.0 > WINDOW) || self.piles.is_empty() {
            self.number += 1;
            self.piles.push_back(Pile { number: self.number, open: 0, calls: 0, fates: Vec::new() });
        }
        self.last_crowded = Some(at);
        let Some(pile) = self.piles.back_mut() else { return };
        for (_, id) in &self.window {
            let Some(call) = self.calls.get_mut(id).filter(|call| call.pile.is_none()) else { continue };
            call.pile = Some(pile.number);
            pile.calls += 1;
            match call.fate {
                Some(fate) => pile.fates.push(fate),
                None => pile.open += 1,
            }
        }
    }

    /// Lets calls leave the window that are too old to be crowded by later ones.
    fn pass(&mut self, now: UtcMicros) {
        while let Some(&(at, id)) = self.window.front().filter(|(at, _)| now.0 - at.0 > WINDOW) {
            self.window.pop_front();
            let Some(call) = self.calls.get_mut(&id) else { continue };
            call.passed = true;
            if let Some(fate) = call.fate {
                let alone = call.pile.is_none();
                self.calls.remove(&id);
                if alone {
                    self.other(at, fate);
                }
            }
        }
        self.judge(now);
    }

    fn finish(&mut self, now: UtcMicros, id: u64, fate: Fate) {
        let Some(call) = self.calls.get_mut(&id) else { return };
        call.fate = Some(fate);
        let Open { pile, passed, .. } = *call;
        if passed {
            self.calls.remove(&id);
        }
        match pile {
            Some(number) => {
                if let Some(pile) = self.piles.iter_mut().find(|pile| pile.number == number) {
                    pile.open -= 1;
                    pile.fates.push(fate);
                }
            }
            None if passed => self.other(now, fate),
            None => {}
        }
        self.pass(now);
    }

    /// A deep call outside of piles: it teaches what is usual, and how often the usual looks like harm.
    fn other(&mut self, _: UtcMicros, fate: Fate) {
        if self.known.current.count() + self.known.previous.count() >= OTHERS {
            self.group.push(fate);
            if self.group.len() >= self.group_size {
                let harmed = self.known.harmed(&self.group);
                self.known.groups.push(harmed, Step::Rest);
                self.group.clear();
                self.set_null();
                self.flag();
            }
        }
        self.known.learn(fate);
    }

    /// Flags the piles of which everything is known.
    fn judge(&mut self, now: UtcMicros) {
        let growing = |pile: &Pile, last: Option<UtcMicros>, number| {
            pile.number == number && pile.calls < LARGEST && last.is_some_and(|last| now.0 - last.0 <= WINDOW)
        };
        while let Some(pile) = self.piles.front() {
            if pile.open > 0 || growing(pile, self.last_crowded, self.number) {
                return;
            }
            let Some(pile) = self.piles.pop_front() else { return };
            self.group_size = pile.fates.len().clamp(CALLS + 1, LARGEST);
            if self.waiting.len() == WAITING {
                self.waiting.pop_front();
            }
            self.waiting.push_back((now, pile));
            self.flag();
        }
    }

    /// Flags the piles that wait, once there is a null.
    fn flag(&mut self) {
        if !self.ready() {
            return;
        }
        for (at, pile) in std::mem::take(&mut self.waiting) {
            let harmed = self.known.harmed(&pile.fates);
            let quiet = self.sequence.hits().hits == 0;
            self.sequence.push(at, harmed);
            if harmed {
                self.largest = pile.calls.max(if quiet { 0 } else { self.largest });
            }
        }
    }

    fn ready(&self) -> bool {
        self.known.groups.n() >= GROUPS
    }

    fn set_null(&mut self) {
        if self.ready() {
            self.sequence.set_null(self.known.groups.upper_limit());
        }
    }
}

impl Flagged for Concurrency {
    const UNIT: &'static str = "piles of deep calls";

    fn begin(&mut self, call: &Call<'_>) {
        if self.known.deep(call.summary) {
            self.start(call.started, call.summary.stream_id);
        } else {
            self.pass(call.at);
        }
    }

    fn end(&mut self, call: &Call<'_>) {
        let summary = call.summary;
        if let (None, Some(size), Some(reasoning)) =
            (deep_effort(summary), size(summary), summary.usage.reasoning)
        {
            self.known.sizes.entry(size).or_default().push(reasoning);
        }
        let fate = Fate { ttft: time_to_first_token(summary), throttled: summary.status == Some(429) };
        self.finish(call.at, summary.stream_id, fate);
    }

    fn forget(&mut self, stream_id: u64) {
        let Some(call) = self.calls.remove(&stream_id).filter(|call| call.fate.is_none()) else { return };
        let number = call.pile.unwrap_or(0);
        if let Some(pile) = self.piles.iter_mut().find(|pile| pile.number == number) {
            pile.open -= 1;
        }
    }

    fn tick(&mut self, now: UtcMicros) {
        self.pass(now);
    }

    fn sequence(&self) -> &Sequence {
        &self.sequence
    }

    fn sequence_mut(&mut self) -> &mut Sequence {
        &mut self.sequence
    }

    fn learned(&self) -> [u64; 2] {
        [self.known.groups.n(), GROUPS]
    }

    fn detail(&self) -> Detail {
        Detail::Concurrency {
            calls: u32::try_from(self.largest).unwrap_or(u32::MAX),
            window_s: Micros(WINDOW).seconds(),
        }
    }

    fn figures(&self) -> Vec<Figure> {
        let others = self.known.others();
        [(0.5, "p50"), (0.9, "p90")]
            .into_iter()
            .filter_map(|(q, name)| {
                let name = format!("time to first token of deep calls outside of piles, {name}");
                Some(Figure::new(name, others.quantile(q)?, "s"))
            })
            .chain([Figure::new("their share of 429", self.known.throttled.share(), "")])
            .collect()
    }

    fn bytes(&self) -> usize {
        let piles = self
            .piles
            .iter()
            .chain(self.waiting.iter().map(|(_, pile)| pile))
            .map(|pile| size_of::<Pile>() + size_of_val(pile.fates.as_slice()));
        size_of_val(self)
            + self.known.sizes.values().map(Sketch::bytes).sum::<usize>()
            + self.known.current.bytes()
            + self.known.previous.bytes()
            + self.calls.capacity() * size_of::<(u64, Open)>()
            + self.window.capacity() * size_of::<(UtcMicros, u64)>()
            + piles.sum::<usize>()
    }

    fn save(&self) -> Kept {
        Kept::of(self.known.clone())
    }

    fn restore(&mut self, saved: Value) -> Result<(), serde_json::Error> {
        self.known = serde_json::from_value(saved)?;
        self.set_null();
        Ok(())
    }
}
