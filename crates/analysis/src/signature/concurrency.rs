//! Deep calls pile into a few seconds, and latency and throttling of just those calls climb.
//!
//! **Looks like**: more than 6 deep calls started within 2–4 s wait together and are released together;
//! 429s follow. Busy hours without such piles, or piles without harm, are not this.
//! **Known causes**: concurrency limits per account or per deployment; a fan-out of one client.
//! **Statistic**: for each deep call, the deep calls started in the 3 s before it. Crowded calls (more
//! than 6) against the others: time to the first token (p50 or p90, whichever inflates more: often only
//! those above the limit wait; ratio with a bootstrap interval over piles), share of 429. A pile, not a call, is the unit: its calls share their fate.
//! **Deep** is decided by what is known at the start: effort `high` or above; without an effort, a prompt
//! size whose calls took 1,000 reasoning tokens or more at the median. The evidence says how many of the
//! deep calls then really took 1,000.
//! **Defaults**: 3 s and 6 calls from the write-ups; harm is a p50 or p90 ratio of at least 1.5 with a lower
//! limit above 1.2, or a 429 share that is higher at p ≤ 0.01 and by 5 points.
//! **Smallest n**: 50 crowded calls in 10 piles, and as many others.
//! **False positives**: harder questions come as fan-outs. 429s that come after a pile are reported
//! (`throttled_after`), never decided on: retries make them.
//! **Shown by**: `data/scenarios/concurrency-cooldown.toml`; `busy-hours.toml` is innocent.

use std::collections::BTreeMap;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use sseismo_trace::{Effect, Finding, Scope, SignatureId, Significance, Stream, Summary, Verdict};

use super::{Options, Pass, Score, Signature, duration, time_to_first_token};
use crate::stats::bootstrap::{Observation, Ratio, quantile_ratio};
use crate::stats::clustered::{Cluster, Estimate, difference};
use crate::stats::quantile::of_sorted;
use crate::stats::real_len;

/// Deep calls are counted over this long, µs: the middle of the write-ups' 2–4 s.
pub const WINDOW: i64 = 3_000_000;
/// More than this many are a pile.
pub const CALLS: usize = 6;
/// 429s within this long after a pile are reported beside it, µs.
const AFTER: i64 = 30_000_000;
/// A call that took this many reasoning tokens was deep.
pub const DEEP_TOKENS: f64 = 1_000.0;
/// Calls needed before a prompt size counts as deep.
pub const LEARNED_FROM: usize = 10;
/// Fewest crowded and other calls, fewest piles.
const VALUES: usize = 50;
/// See [`VALUES`].
const PILES: usize = 10;
/// Quantile ratio that is harm, and what its lower limit must exceed.
pub const HARM: [f64; 2] = [1.5, 1.2];
/// Level and smallest difference of the 429 share.
const THROTTLED: [f64; 2] = [0.01, 0.05];

/// The signature.
#[derive(Debug)]
pub(super) struct Concurrency;

/// What was found.
#[derive(Debug, Default, Serialize, Deserialize, JsonSchema)]
pub struct Evidence {
    /// Deep calls.
    pub deep: usize,
    /// Share of them, of those whose count is known, that took 1,000 reasoning tokens or more.
    pub deep_confirmed: Option<f64>,
    /// Most deep calls in one window.
    pub most_in_window: usize,
    /// Crowded deep calls.
    pub crowded: usize,
    /// Piles that they form.
    pub piles: usize,
    /// Median time to the first token of crowded calls, s.
    pub crowded_ttft_p50: Option<f64>,
    /// Median time to the first token of other deep calls, s.
    pub other_ttft_p50: Option<f64>,
    /// Which quantile of it inflates more: 0.5 or 0.9.
    pub ttft_quantile: Option<f64>,
    /// By how much, with its 95 % interval.
    pub ttft_ratio: Option<[f64; 3]>,
    /// Ratio of the median durations, with its 95 % interval.
    pub duration_ratio: Option<[f64; 3]>,
    /// Share of 429 among crowded calls.
    pub crowded_throttled: Option<f64>,
    /// Share of 429 among other deep calls.
    pub other_throttled: Option<f64>,
    /// p-value of their difference, piles as the unit.
    pub throttled_p: Option<f64>,
    /// Share of 429 among deep calls in the 30 s after a pile.
    pub throttled_after: Option<f64>,
}

impl Signature for Concurrency {
    fn id(&self) -> SignatureId {
        SignatureId::Concurrency
    }

    fn open(&self, _: &Options) -> Box<dyn Score> {
        Box::new(Calls::default())
    }

    fn evidence_schema(&self) -> schemars::Schema {
        schemars::schema_for!(Evidence)
    }
}

/// What is kept of a call: times are needed in order, so memory grows with calls (64 bytes each).
#[derive(Clone, Copy, Debug)]
struct Call {
    at: i64,
    deep: Option<bool>,
    size: Option<u32>,
    reasoning: Option<f64>,
    ttft: Option<f64>,
    duration: Option<f64>,
    throttled: Option<bool>,
}

#[derive(Debug, Default)]
struct Calls {
    streams: u64,
    calls: Vec<Call>,
}

impl Score for Calls {
    fn push(&mut self, pass: Pass, stream: &Stream<'_>) {
        if pass != Pass::Baseline {
            return;
        }
        self.streams += 1;
        if let Some(started) = stream.summary.started_at {
            self.calls.push(call(started.0, stream.summary));
        }
    }

    fn finding(&self, scope: &Scope) -> Finding {
        let deep = self.deep();
        let crowds = Crowds::of(&deep);
        let evidence = crowds.evidence(&deep);
        let harm = Harm::of(&evidence);
        let no_times = deep.iter().all(|call| call.ttft.is_none() && call.throttled.is_none());
        let verdict = if self.streams > 0 && (self.calls.is_empty() || (!deep.is_empty() && no_times)) {
            Verdict::NotMeasurable
        } else if evidence.crowded < VALUES
            || evidence.piles < PILES
            || deep.len() < evidence.crowded + VALUES
        {
            Verdict::TooFew
        } else if harm.slow || harm.throttled {
            Verdict::Present
        } else {
            Verdict::None
        };
        let measured = matches!(verdict, Verdict::Present | Verdict::None);
        Finding {
            signature: SignatureId::Concurrency,
            scope: scope.clone(),
            verdict,
            n: deep.len() as u64,
            unit: "deep calls".into(),
            effect: evidence.ttft_ratio.filter(|_| measured).map(|[value, low, high]| Effect {
                name: format!("ttft-p{:.0}-ratio", evidence.ttft_quantile.unwrap_or(0.5) * 100.0),
                unit: String::new(),
                value,
                ci95: Some([low, high]),
            }),
            significance: evidence.throttled_p.filter(|_| measured).map(|p| Significance {
                kind: "p".into(),
                value: p,
                threshold: THROTTLED[0],
                // A verdict that rests on latency must not be withdrawn for the 429s' p.
                p: (harm.throttled && !harm.slow).then_some(p),
                q: None,
            }),
            notes: harm.notes(verdict),
            evidence: serde_json::to_value(evidence).unwrap_or_default(),
            cause: None,
            labelled: 0,
            compared_with: format!(
                "deep calls with at most {CALLS} deep calls in the {} s before",
                WINDOW / 1_000_000
            ),
            does_not_prove: "that the upstream limits concurrency: what comes in piles may be \
                             harder work."
                .into(),
            next_step: next_step(verdict).into(),
        }
    }
}

fn next_step(verdict: Verdict) -> &'static str {
    match verdict {
        Verdict::NotMeasurable => {
            "Columns started_at and t_first_reasoning (or status) are missing: record with `sseismo capture` or the relay."
        }
        Verdict::TooFew => "Record at least 10 piles of more than 6 deep calls, 50 crowded calls in all.",
        Verdict::Present => "Start deep calls further apart, or cap those in flight at 6, and compare.",
        _ => "nothing to do",
    }
}

/// Whether the effort that was asked for makes a call deep; `None` when none was.
pub fn deep_effort(summary: &Summary) -> Option<bool> {
    summary.effort.as_deref().map(|effort| matches!(effort, "high" | "xhigh" | "max"))
}

fn call(at: i64, summary: &Summary) -> Call {
    Call {
        at,
        deep: deep_effort(summary),
        size: summary
            .usage
            .input
            .or(summary.prompt_tokens_est)
            .map(|tokens| tokens.saturating_add(1).ilog2()),
        reasoning: summary.usage.reasoning,
        ttft: time_to_first_token(summary),
        duration: duration(summary),
        throttled: summary.status.map(|status| status == 429),
    }
}

impl Calls {
    /// Deep calls in order of their start.
    fn deep(&self) -> Vec<Call> {
        let mut by_size: BTreeMap<u32, Vec<f64>> = BTreeMap::new();
        for call in self.calls.iter().filter(|call| call.deep.is_none()) {
            if let (Some(size), Some(reasoning)) = (call.size, call.reasoning) {
                by_size.entry(size).or_default().push(reasoning);
            }
        }
        let learned = |size: u32| {
            by_size.get(&size).is_some_and(|counts| {
                let mut counts = counts.clone();
                counts.sort_by(f64::total_cmp);
                counts.len() >= LEARNED_FROM && of_sorted(&counts, 0.5) >= DEEP_TOKENS
            })
        };
        let deep_sizes: Vec<u32> = by_size.keys().copied().filter(|&size| learned(size)).collect();
        let is_deep = |call: &&Call| {
            call.deep.unwrap_or_else(|| call.size.is_some_and(|size| deep_sizes.contains(&size)))
        };
        let mut deep: Vec<Call> = self.calls.iter().filter(is_deep).copied().collect();
        deep.sort_by_key(|call| call.at);
        deep
    }
}

/// Which calls are crowded, and in which pile.
struct Crowds {
    /// Pile of each deep call; none when it was not crowded.
    pile: Vec<Option<u32>>,
    most: usize,
}

impl Crowds {
    /// A call belongs to a pile when any window of 3 s that holds it holds more than 6: those that came
    /// first suffer, and count, as well.
    fn of(deep: &[Call]) -> Self {
        let mut crowded = vec![false; deep.len()];
        let (mut first, mut most) = (0, 0);
        for (last, call) in deep.iter().enumerate() {
            while call.at - deep[first].at > WINDOW {
                first += 1;
            }
            most = most.max(last + 1 - first);
            if last + 1 - first > CALLS {
                crowded[first..=last].fill(true);
            }
        }
        let (mut number, mut previous) = (0, None);
        let pile = deep
            .iter()
            .zip(&crowded)
            .map(|(call, &crowded)| {
                if !crowded {
                    return None;
                }
                if previous.is_some_and(|at| call.at - at > WINDOW) {
                    number += 1;
                }
                previous = Some(call.at);
                Some(number)
            })
            .collect();
        Self { pile, most }
    }

    fn evidence(&self, deep: &[Call]) -> Evidence {
        let known: Vec<f64> = deep.iter().filter_map(|call| call.reasoning).collect();
        let confirmed = known.iter().filter(|tokens| **tokens >= DEEP_TOKENS).count();
        let crowded = self.pile.iter().flatten().count();
        let [other, piled] = self.split(deep, |call| call.ttft);
        let [other_long, piled_long] = self.split(deep, |call| call.duration);
        let [other_429, piled_429] = self.split(deep, |call| call.throttled.map(|t| f64::from(u8::from(t))));
        let ratio = |a: &[Observation], b: &[Observation], q| {
            quantile_ratio(a, b, q, 1).ok().map(|Ratio { value, ci95: [low, high], .. }| [value, low, high])
        };
        let ttft = [0.5, 0.9]
            .into_iter()
            .filter_map(|q| Some((q, ratio(&other, &piled, q)?)))
            .max_by(|a, b| a.1[0].total_cmp(&b.1[0]));
        Evidence {
            deep: deep.len(),
            deep_confirmed: (!known.is_empty()).then(|| real_len(confirmed) / real_len(known.len())),
            most_in_window: self.most,
            crowded,
            piles: self.pile.iter().flatten().max().map_or(0, |last| *last as usize + 1),
            crowded_ttft_p50: median(&piled),
            other_ttft_p50: median(&other),
            ttft_quantile: ttft.map(|(q, _)| q),
            ttft_ratio: ttft.map(|(_, ratio)| ratio),
            duration_ratio: ratio(&other_long, &piled_long, 0.5),
            crowded_throttled: mean(&piled_429),
            other_throttled: mean(&other_429),
            throttled_p: compare(&piled_429, &other_429),
            throttled_after: self.after(deep),
        }
    }

    /// A figure of the other calls and of the crowded ones, each call with its pile.
    fn split(&self, deep: &[Call], figure: impl Fn(&Call) -> Option<f64>) -> [Vec<Observation>; 2] {
        let mut sides = [Vec::new(), Vec::new()];
        let mut alone = 0;
        for (call, pile) in deep.iter().zip(&self.pile) {
            let Some(value) = figure(call) else { continue };
            let cluster = pile.unwrap_or(alone);
            alone += u32::from(pile.is_none());
            sides[usize::from(pile.is_some())].push(Observation { value, cluster });
        }
        sides
    }

    fn after(&self, deep: &[Call]) -> Option<f64> {
        let mut last = None;
        let mut after = Vec::new();
        for (call, pile) in deep.iter().zip(&self.pile) {
            if pile.is_some() {
                last = Some(call.at);
            } else if last.is_some_and(|at| call.at - at <= AFTER) {
                after.extend(call.throttled);
            }
        }
        let hits = after.iter().filter(|throttled| **throttled).count();
        (!after.is_empty()).then(|| real_len(hits) / real_len(after.len()))
    }
}

fn median(values: &[Observation]) -> Option<f64> {
    let mut values: Vec<f64> = values.iter().map(|observation| observation.value).collect();
    values.sort_by(f64::total_cmp);
    (!values.is_empty()).then(|| of_sorted(&values, 0.5))
}

fn mean(values: &[Observation]) -> Option<f64> {
    let sum: f64 = values.iter().map(|observation| observation.value).sum();
    (!values.is_empty()).then(|| sum / real_len(values.len()))
}

fn compare(a: &[Observation], b: &[Observation]) -> Option<f64> {
    let estimate = |values: &[Observation]| {
        let mut clusters: BTreeMap<u32, Cluster> = BTreeMap::new();
        for observation in values {
            let cluster = clusters.entry(observation.cluster).or_default();
            cluster.rows += 1;
            cluster.sum += observation.value;
        }
        Estimate::of(&clusters.into_values().collect::<Vec<_>>())
    };
    difference(&estimate(a)?, &estimate(b)?).map(|difference| difference.p)
}

/// What the piles do to their calls.
struct Harm {
    slow: bool,
    throttled: bool,
    high: Option<f64>,
}

impl Harm {
    fn of(evidence: &Evidence) -> Self {
        let more = evidence.crowded_throttled.unwrap_or(0.0) - evidence.other_throttled.unwrap_or(0.0);
        Self {
            slow: evidence.ttft_ratio.is_some_and(|[value, low, _]| value >= HARM[0] && low > HARM[1]),
            throttled: evidence.throttled_p.is_some_and(|p| p <= THROTTLED[0]) && more >= THROTTLED[1],
            high: evidence.ttft_ratio.map(|[_, _, high]| high),
        }
    }

    fn notes(&self, verdict: Verdict) -> Vec<String> {
        match (verdict, self.high) {
            (Verdict::Present, _) => vec![format!(
                "harm: {}",
                match (self.slow, self.throttled) {
                    (true, true) => "slower first tokens and more 429",
                    (true, false) => "slower first tokens",
                    _ => "more 429",
                }
            )],
            (Verdict::None, Some(high)) => {
                vec![format!("a ratio of up to {high:.2} remains possible (95 % limit)")]
            }
            _ => Vec::new(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::simulated::{finding, parsed, scenario};
    use super::*;

    #[test]
    fn piles_that_stall_together_are_found() {
        let found = finding(&Concurrency, &scenario("concurrency-cooldown"), 2_000);
        assert_eq!(found.verdict, Verdict::Present, "{found:#?}");
        assert!(found.evidence["throttled_after"].as_f64().unwrap() > 0.05, "{found:#?}");
        assert!(found.n > 100);
    }

    /// Fan-outs in busy hours, and nothing that minds them.
    #[test]
    fn busy_hours_without_harm_are_innocent() {
        let text = "[answer]\nreasoning = { median = 60 }\noutput = { median = 20 }\n[load]\n\
                    arrivals = { rate = 0.5, busy = 6, day = '10m', batch = 10, batch-every = '60s' }\n\
                    efforts = { medium = 0.7, high = 0.3 }";
        let found = finding(&Concurrency, &parsed(text), 2_500);
        assert_eq!(found.verdict, Verdict::None, "{found:#?}");
    }

    #[test]
    fn calls_far_apart_are_too_few_piles() {
        assert_eq!(finding(&Concurrency, &scenario("steady"), 60).verdict, Verdict::TooFew);
    }
}
