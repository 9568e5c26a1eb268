//! `size-window`: prompts of a narrow range of sizes are slow, without any error.
//!
//! **Predict, then bet.** Every 200 calls the cells of prompt sizes (a DDSketch of latencies each, as wide as
//! offline) are scanned as offline: each window of up to 8 cells against its two flanks. The most striking
//! window is proposed, and only calls that come afterwards are flagged, so the search costs no false alarms.
//!
//! **Observation**: a call inside the proposed window, one per session and proposal; flagged when it is slower
//! than the mean of the flanks' q98.
//! **Null**: the flanks' share of such calls, as an upper limit, at odds of 2, which offline calls health. It
//! rises with what the flanks do meanwhile: an upstream that slows down for all sizes is not this.
//! **Signal**: needs a p50 or p90 ratio of at least 1.5 against the flanks since the proposal.
//! **Differs from offline**: prompt sizes only, since a router can act on nothing else; the lower limit of the
//! ratio is not bootstrapped.
//! **Smallest n**: 200 calls with a size and a latency.
//! **False positives**: as offline, a kind of work that has just that size.

use std::collections::{BTreeMap, HashSet};

use serde::{Deserialize, Serialize};
use serde_json::Value;
use sseismo_analysis::signature::size_window::{CALLS, HARM, ODDS, VOTES, WIDEST, cell};
use sseismo_analysis::signature::{duration, time_to_first_token};
use sseismo_analysis::stats::odds;
use sseismo_trace::Detail;

use super::flagged::Flagged;
use super::{Call, Watch, write_up};
use crate::baseline::Kept;
use crate::job::{Outcome, Task};
use crate::sequence::{Hits, Sequence, Step, upper_limit};
use crate::sketch::Sketch;
use crate::view::Figure;
use crate::{Options, Preset};

/// Calls after which windows are scanned anew: offline's smallest n.
const EVERY: u64 = CALLS as u64;
/// Calls after which older ones fade: the scan sees the last 2,000 to 4,000.
const EPOCH: u64 = 2_000;
/// One-sided p below which a window is worth a bet. A bet on chance costs nothing but time.
const WORTH: f64 = 0.05;
/// Calls by which the latency to look at is chosen.
const CHOICE: u64 = 20;
/// Calls of a window that its latency ratio needs.
const FRESH: u64 = 10;
/// Calls over which the flanks' present share is a mean.
const PRESENT: f64 = 50.0;
/// With so many slow calls in the flanks all sizes are slow, and nothing can be told.
const ALL_SLOW: f64 = 0.3;
/// Sessions remembered per proposal; one has one vote.
const SESSIONS: usize = 4_096;

/// Starts watching.
pub(super) fn open(options: &Options) -> Box<dyn Watch> {
    if options.preset == Preset::WriteUp {
        return write_up::size_window();
    }
    Box::new(SizeWindow {
        known: Known::default(),
        calls: 0,
        wanted: false,
        bet: None,
        sessions: HashSet::new(),
        sequence: Sequence::moving(0.0),
    })
}

/// Latencies by cell of prompt sizes.
pub(crate) type Cells = BTreeMap<i32, Sketch>;

/// What was learned.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
struct Known {
    /// Calls that know their time to the first token.
    first_token: Hits,
    current: Cells,
    previous: Cells,
    /// Calls in `current`, and in all.
    epoch: u64,
    calls: u64,
}

/// A window that is bet on.
#[derive(Clone, Debug)]
pub(crate) struct Bet {
    window: [i32; 2],
    flanks: [[i32; 2]; 2],
    /// Slower than this is slow, s.
    slow: f64,
    /// Share of slow calls under health.
    null: f64,
    /// Share of slow calls in the flanks now.
    present: f64,
    /// Latencies since the proposal.
    inside: Sketch,
    outside: Sketch,
    /// Sizes that were seen inside.
    sizes: [u64; 2],
}

#[derive(Debug)]
struct SizeWindow {
    known: Known,
    /// Since the last scan.
    calls: u64,
    /// A scan is due.
    wanted: bool,
    bet: Option<Bet>,
    sessions: HashSet<u64>,
    sequence: Sequence,
}

impl Known {
    /// The latency of a call: to the first token where most calls have one, else the duration.
    fn latency(&mut self, call: &Call<'_>) -> Option<f64> {
        let first = time_to_first_token(call.summary);
        if self.first_token.n < CHOICE {
            self.first_token.push(first.is_some());
            return None;
        }
        if 2 * self.first_token.hits >= self.first_token.n { first } else { duration(call.summary) }
    }

    fn push(&mut self, cell: i32, latency: f64) {
        self.current.entry(cell).or_default().push(latency);
        self.calls += 1;
        self.epoch += 1;
        if self.epoch >= EPOCH {
            self.previous = std::mem::take(&mut self.current);
            self.epoch = 0;
        }
    }

    fn epochs(&self) -> [Cells; 2] {
        [self.previous.clone(), self.current.clone()]
    }
}

/// Both epochs.
fn merged([previous, current]: &[Cells; 2]) -> Cells {
    let mut cells = previous.clone();
    for (cell, sketch) in current {
        cells.entry(*cell).or_default().merge(sketch);
    }
    cells
}

/// The latencies of a range of cells.
fn range(cells: &Cells, [lo, hi]: [i32; 2]) -> Sketch {
    let mut sum = Sketch::default();
    cells.range(lo..=hi).for_each(|(_, sketch)| sum.merge(sketch));
    sum
}

/// The most striking window that is worth a bet; its p is one-sided and not corrected for the search.
pub(crate) fn propose(epochs: &[Cells; 2]) -> Option<Bet> {
    let cells = &merged(epochs);
    let windows = cells.keys().flat_map(|lo| (1..=WIDEST).map(move |width| (*lo, width)));
    let best = windows.filter_map(|(lo, width)| test(cells, lo, width)).min_by(|a, b| a.0.total_cmp(&b.0));
    best.filter(|(p, _)| *p <= WORTH).map(|(_, bet)| bet)
}

/// One window against its flanks, as wide and one cell apart.
fn test(cells: &Cells, lo: i32, width: i32) -> Option<(f64, Bet)> {
    let hi = lo + width - 1;
    let flanks = [[lo - 1 - width, lo - 2], [hi + 2, hi + 1 + width]];
    let inside = range(cells, [lo, hi]);
    let [below, above] = flanks.map(|flank| range(cells, flank));
    let needed = VOTES as u64;
    if inside.count() < needed || below.count() + above.count() < needed {
        return None;
    }
    let slow = f64::midpoint(below.quantile(0.98)?, above.quantile(0.98)?);
    let flank = Hits { hits: below.above(slow) + above.above(slow), n: below.count() + above.count() };
    let hits = inside.above(slow);
    let table = [[hits, inside.count() - hits], [flank.hits, flank.n - flank.hits]];
    let bet = Bet {
        window: [lo, hi],
        flanks,
        slow,
        null: at_odds(upper_limit(flank)),
        present: flank.share(),
        inside: Sketch::default(),
        outside: Sketch::default(),
        sizes: [u64::MAX, 0],
    };
    Some((odds::at_least(table, ODDS), bet))
}

/// The share whose odds are those of `share`, times what health allows.
fn at_odds(share: f64) -> f64 {
    let odds = ODDS * share / (1.0 - share).max(1e-9);
    odds / (1.0 + odds)
}

impl Bet {
    fn inside(&self, cell: i32) -> bool {
        (self.window[0]..=self.window[1]).contains(&cell)
    }

    fn beside(&self, cell: i32) -> bool {
        self.flanks.iter().any(|[lo, hi]| (*lo..=*hi).contains(&cell))
    }

    /// The larger ratio of p50 and p90 since the proposal.
    fn ratio(&self) -> Option<f64> {
        if self.inside.count() < FRESH || self.outside.count() < FRESH {
            return None;
        }
        let ratio = |q| Some(self.inside.quantile(q)? / self.outside.quantile(q)?.max(1e-6));
        [ratio(0.5), ratio(0.9)].into_iter().flatten().max_by(f64::total_cmp)
    }
}

impl SizeWindow {
    /// Wants a new proposal, unless a signal holds on to one.
    fn scan(&mut self) {
        self.calls = 0;
        self.wanted = !self.sequence.raised() && self.known.calls >= EVERY;
    }

    /// Takes up a proposal.
    fn found(&mut self, found: Option<Bet>) {
        if self.sequence.raised() {
            return;
        }
        let same = |bet: &Bet| self.bet.as_ref().is_some_and(|old| old.window == bet.window);
        match found {
            Some(bet) if same(&bet) => {}
            Some(bet) => {
                self.sessions.clear();
                self.bet = Some(bet);
            }
            // Evidence that is under way is not given up for want of a better window.
            None if self.sequence.hits().hits > 0 => {}
            None => self.bet = None,
        }
    }

    /// Bets on a call with what was known before it.
    fn wager(&mut self, call: &Call<'_>, size: u64, cell: i32, latency: f64) {
        let Some(bet) = &mut self.bet else { return };
        let slow = latency > bet.slow;
        if bet.beside(cell) {
            bet.present += (f64::from(u8::from(slow)) - bet.present) / PRESENT;
            bet.outside.push(latency);
            return;
        }
        if !bet.inside(cell) || bet.present > ALL_SLOW {
            return;
        }
        if let Some(session) = call.summary.session_key
            && (self.sessions.len() >= SESSIONS || !self.sessions.insert(session))
        {
            return;
        }
        bet.inside.push(latency);
        bet.sizes = [bet.sizes[0].min(size), bet.sizes[1].max(size)];
        self.sequence.set_null(bet.null.max(at_odds(bet.present)));
        let step = self.sequence.push(call.at, slow);
        if step == Step::Onset && bet.ratio().is_none_or(|ratio| ratio < HARM[0]) {
            self.sequence.reset();
        }
    }
}

impl Flagged for SizeWindow {
    const UNIT: &'static str = "calls of the proposed sizes";

    fn end(&mut self, call: &Call<'_>) {
        // The estimate first: a router knows no other size when it has to choose.
        let size = call.summary.prompt_tokens_est.or(call.summary.usage.input).filter(|size| *size > 0);
        let latency = self.known.latency(call).filter(|latency| latency.is_finite());
        let (Some(size), Some(latency)) = (size, latency) else { return };
        let cell = cell(size);
        self.wager(call, size, cell, latency);
        self.known.push(cell, latency);
        self.calls += 1;
        if self.calls >= EVERY {
            self.scan();
        }
    }

    fn task(&mut self) -> Option<Task> {
        std::mem::take(&mut self.wanted).then(|| Task::Window(self.known.epochs()))
    }

    fn done(&mut self, outcome: Outcome) {
        if let Outcome::Window(bet) = outcome {
            self.found(bet.map(|bet| *bet));
        }
    }

    fn sequence(&self) -> &Sequence {
        &self.sequence
    }

    fn sequence_mut(&mut self) -> &mut Sequence {
        &mut self.sequence
    }

    fn learned(&self) -> [u64; 2] {
        [self.known.calls, EVERY]
    }

    fn detail(&self) -> Detail {
        let [lo, hi] = self.bet.as_ref().map_or([0, 0], |bet| bet.sizes);
        let tokens = |size: u64| u32::try_from(size).unwrap_or(u32::MAX);
        Detail::SizeWindow { lo: tokens(lo), hi: tokens(hi) }
    }

    fn figures(&self) -> Vec<Figure> {
        let all = range(&merged(&self.known.epochs()), [i32::MIN, i32::MAX]);
        let mut figures: Vec<Figure> = [(0.5, "p50"), (0.9, "p90")]
            .into_iter()
            .filter_map(|(q, name)| Some(Figure::new(format!("latency {name}"), all.quantile(q)?, "s")))
            .collect();
        if let Some(bet) = &self.bet {
            figures.push(Figure::new("slow in the proposed window is over", bet.slow, "s"));
            figures.extend(bet.ratio().map(|ratio| Figure::new("its latency ratio", ratio, "")));
        }
        figures
    }

    fn notes(&self) -> Vec<String> {
        let one = self.bet.as_ref().filter(|bet| bet.sizes[1] > 0);
        one.map(|bet| format!("prompts of {} to {} tokens are watched", bet.sizes[0], bet.sizes[1]))
            .into_iter()
            .collect()
    }

    fn bytes(&self) -> usize {
        let cells = self.known.current.values().chain(self.known.previous.values());
        size_of_val(self) + cells.map(Sketch::bytes).sum::<usize>() + 8 * self.sessions.capacity()
    }

    fn save(&self) -> Kept {
        Kept::of(self.known.clone())
    }

    fn restore(&mut self, saved: Value) -> Result<(), serde_json::Error> {
        self.known = serde_json::from_value(saved)?;
        self.scan();
        Ok(())
    }
}
