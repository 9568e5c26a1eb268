//! Sizes converge on a narrow window that is slow, without any error.
//!
//! **Looks like**: prompts (or outputs) of, say, 150–220 tokens wait longer than those a little smaller
//! and a little larger. The write-ups saw p99 climb from 2.9 to 14.7 s for just such a window.
//! **Known causes**: routing by size or by a hash of it pins the window to one shard.
//! **Statistic**: sizes on a log grid of ratio 1.10; every window of up to 8 cells against its two flanks
//! (as wide, one cell apart). Slow is beyond the mean of the flanks' own q98; one-sided exact test of the
//! odds ratio against 2, Bonferroni over all windows. A session has one vote on each side.
//! **Defaults**: present at p ≤ 0.01 and a p50 or p90 ratio of at least 1.5 whose lower limit is above
//! 1.2. Simulated: false at p ≤ 0.01 in 0 of 120 nulls (trend, busy, heteroscedastic, clumped); power .53
//! and 1.0 at 5 % and 10 % slowed calls. A share alone is never a finding: popular sizes are healthy.
//! **Smallest n**: 200 calls with size and latency; p99 is shown from 1,000 in the window.
//! **False positives**: a kind of work that has just that size; a step in price or context class.
//! **Shown by**: `data/scenarios/shard-pinning.toml`; `popular-sizes.toml` is innocent.

use std::borrow::Cow;
use std::collections::BTreeSet;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use sseismo_trace::{Effect, Finding, Scope, SignatureId, Significance, Stream, Verdict};

use super::{Options, Pass, Score, Signature, duration, time_to_first_token};
use crate::stats::bootstrap::{Observation, quantile_ratio};
use crate::stats::quantile::of_sorted;
use crate::stats::{odds, real_len};

/// Ratio from one cell of sizes to the next.
const CELL: f64 = 1.10;
/// Widest window, in cells: 150–220 tokens are 4.
pub const WIDEST: i32 = 8;
/// Fewest calls with a size and a latency.
pub const CALLS: usize = 200;
/// Fewest votes in a window and in its flanks: the quantile ratio needs as many.
pub const VOTES: usize = 50;
/// Level, after Bonferroni.
const ALPHA: f64 = 0.01;
/// Odds ratio that is still called healthy.
pub const ODDS: f64 = 2.0;
/// Quantile ratio that is harm, and what its lower limit must exceed.
pub const HARM: [f64; 2] = [1.5, 1.2];
/// The window of the write-ups, and their edge of long prompts, for the shares in the evidence.
pub const WRITE_UP: [u64; 2] = [150, 220];
/// See [`WRITE_UP`].
const LONG: u64 = 3_200;
/// p99 is shown from this many calls.
const P99_FROM: usize = 1_000;

/// The signature.
#[derive(Debug)]
pub(super) struct SizeWindow;

/// A window that was tested.
#[derive(Clone, Debug, Serialize, Deserialize, JsonSchema)]
pub struct Window {
    /// Which size: `prompt` or `output`.
    pub size: Cow<'static, str>,
    /// Smallest size in it, tokens.
    pub lo: u64,
    /// Largest size in it, tokens.
    pub hi: u64,
    /// Calls in it, one per session.
    pub calls: usize,
    /// Share of all calls.
    pub share: f64,
    /// Votes in its flanks.
    pub flank_calls: usize,
    /// Of the window's votes, slower than the flanks' q98.
    pub slow: usize,
    /// Of the flanks' votes.
    pub flank_slow: usize,
    /// One-sided p-value, before Bonferroni.
    pub p: f64,
}

/// Latency of a window beside its flanks.
#[derive(Debug, Serialize, Deserialize, JsonSchema)]
pub struct Latency {
    /// p50, p90 and, from 1,000 calls, p99 of the window, s.
    pub window: Vec<f64>,
    /// The same of its flanks.
    pub flanks: Vec<f64>,
    /// Which quantile inflates most: 0.5 or 0.9.
    pub quantile: f64,
    /// By how much, with its 95 % interval.
    pub ratio: [f64; 3],
}

/// What was found.
#[derive(Debug, Serialize, Deserialize, JsonSchema)]
pub struct Evidence {
    /// Prompts with a known size.
    pub prompts: usize,
    /// Share of them with 150–220 tokens.
    pub share_150_220: Option<f64>,
    /// Share of them with more than 3,200 tokens.
    pub share_over_3200: Option<f64>,
    /// Which latency was used: `ttft`, else `duration`.
    pub latency_of: Option<Cow<'static, str>>,
    /// Windows that were tested.
    pub windows: usize,
    /// The most striking one.
    pub window: Option<Window>,
    /// Its latency.
    pub latency: Option<Latency>,
}

impl Signature for SizeWindow {
    fn id(&self) -> SignatureId {
        SignatureId::SizeWindow
    }

    fn open(&self, _: &Options) -> Box<dyn Score> {
        Box::new(Sizes::default())
    }

    fn evidence_schema(&self) -> schemars::Schema {
        schemars::schema_for!(Evidence)
    }
}

/// What is kept of a call: windows are not known beforehand, so memory grows with calls.
#[derive(Clone, Copy, Debug)]
struct Call {
    prompt: Option<u64>,
    output: Option<u64>,
    ttft: Option<f64>,
    duration: Option<f64>,
    session: u64,
}

/// A call as one test sees it.
#[derive(Clone, Copy, Debug)]
struct Vote {
    cell: i32,
    size: u64,
    latency: f64,
    session: u64,
}

#[derive(Debug, Default)]
struct Sizes {
    calls: Vec<Call>,
}

impl Score for Sizes {
    fn push(&mut self, pass: Pass, stream: &Stream<'_>) {
        if pass != Pass::Baseline {
            return;
        }
        let summary = stream.summary;
        self.calls.push(Call {
            prompt: summary.usage.input.or(summary.prompt_tokens_est),
            output: summary.usage.output,
            ttft: time_to_first_token(summary),
            duration: duration(summary),
            // Without a session every call is its own; the high bit keeps the two apart.
            session: summary.session_key.map_or(1 << 63 | self.calls.len() as u64, |key| key >> 1),
        });
    }

    fn finding(&self, scope: &Scope) -> Finding {
        let latency_of = self.latency_of();
        let votes = latency_of.map_or_else(Vec::new, |(_, of)| {
            [("prompt", self.votes(|call| call.prompt, of)), ("output", self.votes(|call| call.output, of))]
                .into_iter()
                .filter(|(_, votes)| votes.len() >= CALLS)
                .collect()
        });
        let sized = self.calls.iter().filter(|call| call.prompt.is_some() || call.output.is_some()).count();
        let timed = self.calls.iter().filter(|call| call.ttft.is_some() || call.duration.is_some()).count();
        let scan = Scan::of(&votes);
        let evidence = self.evidence(latency_of.map(|(name, _)| name), scan.as_ref());
        let p = scan.as_ref().map_or(1.0, |scan| (scan.best.p * real_len(scan.windows)).min(1.0));
        let harm = evidence.latency.as_ref().is_some_and(|l| l.ratio[0] >= HARM[0] && l.ratio[1] > HARM[1]);
        let verdict = if !self.calls.is_empty() && (sized == 0 || timed == 0) {
            Verdict::NotMeasurable
        } else if scan.is_none() {
            Verdict::TooFew
        } else if p <= ALPHA && harm {
            Verdict::Present
        } else {
            Verdict::None
        };
        let measured = matches!(verdict, Verdict::Present | Verdict::None);
        Finding {
            signature: SignatureId::SizeWindow,
            scope: scope.clone(),
            verdict,
            n: if measured { votes.iter().map(|(_, votes)| votes.len()).max().unwrap_or(0) } else { sized }
                as u64,
            unit: if measured { "calls with size and latency" } else { "calls with a size" }.into(),
            effect: evidence.latency.as_ref().filter(|_| measured).map(|latency| Effect {
                name: format!("latency-p{:.0}-ratio", latency.quantile * 100.0),
                unit: String::new(),
                value: latency.ratio[0],
                ci95: Some([latency.ratio[1], latency.ratio[2]]),
            }),
            significance: measured.then(|| Significance {
                kind: "p".into(),
                value: p,
                threshold: ALPHA,
                p: Some(p),
                q: None,
            }),
            notes: notes(&evidence, verdict),
            evidence: serde_json::to_value(&evidence).unwrap_or_default(),
            cause: None,
            labelled: 0,
            compared_with: "sizes a little smaller and a little larger than the window".into(),
            does_not_prove: "that a shard is hot: one kind of work may have just that size and be slow"
                .into(),
            next_step: next_step(verdict, sized).into(),
        }
    }
}

fn next_step(verdict: Verdict, sized: usize) -> &'static str {
    match verdict {
        Verdict::NotMeasurable if sized == 0 => "Columns usage_input and usage_output are empty: no sizes.",
        Verdict::NotMeasurable => {
            "No latency: columns t_first_reasoning, t_first_output and t_end are empty; shares of sizes alone prove nothing."
        }
        Verdict::TooFew => "Record at least 200 calls, 50 sessions in a window and 50 in its flanks.",
        Verdict::Present => "Pad prompts of that window to another size and compare the latency.",
        _ => "nothing to do",
    }
}

fn notes(evidence: &Evidence, verdict: Verdict) -> Vec<String> {
    let mut notes = Vec::new();
    if let (Some(window), Some(long)) = (evidence.share_150_220, evidence.share_over_3200) {
        notes.push(format!(
            "{:.1} % of prompts in {}–{} tokens, {:.1} % over {LONG}",
            window * 100.0,
            WRITE_UP[0],
            WRITE_UP[1],
            long * 100.0
        ));
    }
    if let (Verdict::None, Some(window)) = (verdict, &evidence.window) {
        notes.push(format!(
            "the most striking of {} windows is {}–{} {} tokens; {}",
            evidence.windows,
            window.lo,
            window.hi,
            window.size,
            detectable(window, evidence.windows).map_or_else(
                || "so few calls would not have shown any slowness".to_owned(),
                |share| format!(
                    "it would have shown, with 80 % power, had {:.1} % of its calls been slower than 98 % of those \
                     beside it and raised its p50 or p90 by half",
                    share * 100.0
                )
            )
        ));
    }
    notes
}

/// Share of slow calls in the window that [`test`] finds with 80 % power beside flanks as they are. At least the
/// tenth that it takes to move a p90; `None` when even a window of slow calls alone would not do.
fn detectable(window: &Window, windows: usize) -> Option<f64> {
    let flanks = [window.flank_slow as u64, (window.flank_calls - window.flank_slow) as u64];
    let shows = |slow: usize| {
        let table = [[slow as u64, (window.calls - slow) as u64], flanks];
        odds::at_least(table, ODDS) * real_len(windows) <= ALPHA
    };
    let all: Vec<usize> = (0..=window.calls).collect();
    let needed = *all.get(all.partition_point(|&slow| !shows(slow)))?;
    // The normal approximation of the binomial, with its continuity correction; z of 80 % is 0.842.
    let n = real_len(window.calls);
    (100..=1_000)
        .map(|thousandths| f64::from(thousandths) / 1e3)
        .find(|share| share - 0.842 * (share * (1.0 - share) / n).sqrt() >= (real_len(needed) - 0.5) / n)
}

type Figure = fn(&Call) -> Option<f64>;

impl Sizes {
    /// Time to the first token where most calls have one, else the duration.
    fn latency_of(&self) -> Option<(&'static str, Figure)> {
        let known = |of: Figure| self.calls.iter().filter(|call| of(call).is_some()).count();
        let (first, whole): (Figure, Figure) = (|call| call.ttft, |call| call.duration);
        match (known(first), known(whole)) {
            (0, 0) => None,
            (a, b) if 2 * a >= b => Some(("ttft", first)),
            _ => Some(("duration", whole)),
        }
    }

    fn votes(&self, size: impl Fn(&Call) -> Option<u64>, latency: Figure) -> Vec<Vote> {
        let vote = |call: &Call| {
            let (size, latency) = (size(call).filter(|size| *size > 0)?, latency(call)?);
            Some(Vote { cell: cell(size), size, latency, session: call.session })
        };
        let mut votes: Vec<Vote> =
            self.calls.iter().filter_map(vote).filter(|vote| vote.latency.is_finite()).collect();
        votes.sort_by_key(|vote| vote.cell);
        votes
    }

    fn evidence(&self, latency_of: Option<&'static str>, scan: Option<&Scan>) -> Evidence {
        let prompts: Vec<u64> = self.calls.iter().filter_map(|call| call.prompt).collect();
        let share = |fits: &dyn Fn(u64) -> bool| {
            let hits = prompts.iter().filter(|size| fits(**size)).count();
            (!prompts.is_empty()).then(|| real_len(hits) / real_len(prompts.len()))
        };
        Evidence {
            prompts: prompts.len(),
            share_150_220: share(&|size| (WRITE_UP[0]..=WRITE_UP[1]).contains(&size)),
            share_over_3200: share(&|size| size > LONG),
            latency_of: latency_of.map(Cow::Borrowed),
            windows: scan.map_or(0, |scan| scan.windows),
            window: scan.map(|scan| scan.best.clone()),
            latency: scan.and_then(Scan::latency),
        }
    }
}

/// The cell of a size above 0: cells are as wide as a tenth of their size.
#[expect(clippy::cast_precision_loss, clippy::cast_possible_truncation, reason = "a logarithm is small")]
pub fn cell(size: u64) -> i32 {
    (size as f64).log(CELL).floor() as i32
}

/// The best of all windows, with the votes that it rests on.
struct Scan {
    windows: usize,
    best: Window,
    inside: Vec<Vote>,
    outside: Vec<Vote>,
}

impl Scan {
    fn of(sides: &[(&'static str, Vec<Vote>)]) -> Option<Self> {
        let mut best: Option<Self> = None;
        let mut windows = 0;
        for (size, votes) in sides {
            let cells: BTreeSet<i32> = votes.iter().map(|vote| vote.cell).collect();
            for (&lo, width) in cells.iter().flat_map(|lo| (1..=WIDEST).map(move |width| (lo, width))) {
                let Some(found) = test(size, votes, lo, width) else { continue };
                windows += 1;
                if best.as_ref().is_none_or(|best| found.best.p < best.best.p) {
                    best = Some(found);
                }
            }
        }
        best.map(|best| Self { windows, ..best })
    }

    /// p50 and p90 of the window over those of its flanks; the larger ratio.
    fn latency(&self) -> Option<Latency> {
        let observations = |votes: &[Vote]| -> Vec<Observation> {
            (0..).zip(votes).map(|(cluster, vote)| Observation { value: vote.latency, cluster }).collect()
        };
        let (inside, outside) = (observations(&self.inside), observations(&self.outside));
        let ratio = |q| quantile_ratio(&outside, &inside, q, 1).ok().map(|ratio| (q, ratio));
        let (quantile, ratio) =
            [ratio(0.5), ratio(0.9)].into_iter().flatten().max_by(|a, b| a.1.value.total_cmp(&b.1.value))?;
        Some(Latency {
            window: quantiles(&self.inside),
            flanks: quantiles(&self.outside),
            quantile,
            ratio: [ratio.value, ratio.ci95[0], ratio.ci95[1]],
        })
    }
}

/// One window against its flanks; none when there are too few votes.
fn test(size: &'static str, votes: &[Vote], lo: i32, width: i32) -> Option<Scan> {
    // One cell is left free on either side, so that an edge in the middle of a cell harms neither.
    let hi = lo + width - 1;
    let inside = one_per_session(range(votes, lo, hi));
    let below = one_per_session(range(votes, lo - 1 - width, lo - 2));
    let above = one_per_session(range(votes, hi + 2, hi + 1 + width));
    if inside.len() < VOTES || below.len() + above.len() < VOTES || below.is_empty() || above.is_empty() {
        return None;
    }
    let threshold = f64::midpoint(q98(&below), q98(&above));
    let outside = [below, above].concat();
    let slow = |votes: &[Vote]| votes.iter().filter(|vote| vote.latency > threshold).count();
    let (hits, flank_hits) = (slow(&inside), slow(&outside));
    let table = [
        [hits as u64, (inside.len() - hits) as u64],
        [flank_hits as u64, (outside.len() - flank_hits) as u64],
    ];
    let sizes = || range(votes, lo, hi).iter().map(|vote| vote.size);
    let best = Window {
        size: Cow::Borrowed(size),
        lo: sizes().min()?,
        hi: sizes().max()?,
        calls: inside.len(),
        share: real_len(range(votes, lo, hi).len()) / real_len(votes.len()),
        flank_calls: outside.len(),
        slow: hits,
        flank_slow: flank_hits,
        p: odds::at_least(table, ODDS),
    };
    Some(Scan { windows: 1, best, inside, outside })
}

fn range(votes: &[Vote], lo: i32, hi: i32) -> &[Vote] {
    let start = votes.partition_point(|vote| vote.cell < lo);
    let end = votes.partition_point(|vote| vote.cell <= hi);
    &votes[start..end.max(start)]
}

/// The first call of each session: its calls are not independent.
fn one_per_session(votes: &[Vote]) -> Vec<Vote> {
    let mut seen = BTreeSet::new();
    votes.iter().filter(|vote| seen.insert(vote.session)).copied().collect()
}

fn sorted(votes: &[Vote]) -> Vec<f64> {
    let mut values: Vec<f64> = votes.iter().map(|vote| vote.latency).collect();
    values.sort_by(f64::total_cmp);
    values
}

fn q98(votes: &[Vote]) -> f64 {
    of_sorted(&sorted(votes), 0.98)
}

fn quantiles(votes: &[Vote]) -> Vec<f64> {
    let values = sorted(votes);
    let wanted: &[f64] = if values.len() >= P99_FROM { &[0.5, 0.9, 0.99] } else { &[0.5, 0.9] };
    wanted.iter().map(|&q| of_sorted(&values, q)).collect()
}

#[cfg(test)]
mod tests {
    use super::super::simulated::{finding, parsed, scenario};
    use super::*;

    /// Short answers, so that thousands of calls are cheap; sessions are many, as one has one vote.
    fn pinned(window: &str) -> String {
        format!(
            "[answer]\nreasoning = {{ median = 40, sigma = 0.5 }}\noutput = {{ median = 20, sigma = 0.5 }}\n\
             [load]\nsessions = 100000\narrivals = {{ rate = 12 }}\nprompt = {{ median = 300, sigma = 0.8 }}\n{window}"
        )
    }

    #[test]
    fn a_pinned_window_is_found_where_it_is() {
        let text =
            pinned("[[behaviour]]\nkind = 'shard-pinning'\nwindow = [150, 220]\nshards = 12\nslots = 3");
        let found = finding(&SizeWindow, &parsed(&text), 4_000);
        assert_eq!(found.verdict, Verdict::Present, "{found:#?}");
        let (lo, hi) = (&found.evidence["window"]["lo"], &found.evidence["window"]["hi"]);
        assert!((120..=185).contains(&lo.as_u64().unwrap()), "{lo}");
        assert!((185..=260).contains(&hi.as_u64().unwrap()), "{hi}");
    }

    #[test]
    fn popular_sizes_with_healthy_latency_are_innocent() {
        let found = finding(&SizeWindow, &parsed(&pinned("")), 4_000);
        assert_eq!(found.verdict, Verdict::None, "{found:#?}");
        assert!(found.notes.iter().any(|note| note.contains("would have shown")), "{:?}", found.notes);
    }

    #[test]
    fn few_calls_are_too_few() {
        assert_eq!(finding(&SizeWindow, &scenario("steady"), 40).verdict, Verdict::TooFew);
    }

    #[test]
    fn p99_needs_a_thousand_calls() {
        let votes = |n: u32| -> Vec<Vote> {
            (0..n).map(|i| Vote { cell: 1, size: 2, latency: f64::from(i), session: u64::from(i) }).collect()
        };
        assert_eq!(quantiles(&votes(999)).len(), 2);
        assert_eq!(quantiles(&votes(1_000)).len(), 3);
    }

    /// What `none` says would have shown has 80 % power, by the test itself over all binomial outcomes.
    #[test]
    fn the_share_that_would_have_shown_is_found_four_times_in_five() {
        let (calls, flank_calls, flank_slow, windows) = (120_u64, 300_u64, 6_u64, 400);
        let window = Window {
            size: Cow::Borrowed("prompt"),
            lo: 150,
            hi: 220,
            calls: 120,
            share: 0.1,
            flank_calls: 300,
            slow: 3,
            flank_slow: 6,
            p: 1.0,
        };
        let share = detectable(&window, windows).unwrap();
        assert!(share > 0.1, "{share}: the floor would not try the power");
        let mut probability = (1.0 - share).powi(120);
        let mut power = 0.0;
        for slow in 0..=calls {
            let table = [[slow, calls - slow], [flank_slow, flank_calls - flank_slow]];
            if odds::at_least(table, ODDS) * real_len(windows) <= ALPHA {
                power += probability;
            }
            let (k, n) = (crate::stats::real(slow), crate::stats::real(calls));
            probability *= (n - k) / (k + 1.0) * share / (1.0 - share);
        }
        assert!((0.78..0.83).contains(&power), "{power} at {share}");
    }
}
