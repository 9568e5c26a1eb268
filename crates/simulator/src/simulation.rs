//! A scenario in virtual time: streams with their truth, as fast as they can be made.
//!
//! In: a [`Scenario`]. Out: what an exact recorder beside the upstream would have stored, and what was
//! really done. Nothing here knows the decoders.

use std::cmp::Reverse;
use std::collections::{BTreeMap, BinaryHeap};

use sseismo_trace::{
    Attribution, ContentCheck, Delta, Kind, Micros, Outcome, Provenance, Read, Stream, Summary, TimeSource,
    Usage, UtcMicros,
};

use crate::ask::Ask;
use crate::draw::{Draw, mix};
use crate::plan::Answer;
use crate::scenario::Scenario;
use crate::script::Script;
use crate::upstream::{Truth, Upstream};

/// When virtual time starts: 2026-01-01 00:00 UTC, seconds.
pub(crate) const EPOCH_S: i64 = 1_767_225_600;

/// One simulated stream.
#[derive(Clone, Debug)]
pub struct Simulated {
    /// What is known about it.
    pub summary: Summary,
    /// Its events.
    pub deltas: Vec<Delta>,
    /// The reads that brought them.
    pub reads: Vec<Read>,
    /// What was really done.
    pub truth: Truth,
}

impl Simulated {
    /// As signatures and writers take it in.
    pub fn stream(&self) -> Stream<'_> {
        Stream { summary: &self.summary, deltas: &self.deltas, reads: &self.reads }
    }
}

/// Streams of a scenario, in the order in which they start; it never ends by itself.
#[derive(Debug)]
pub struct Simulation {
    scenario: Scenario,
    upstream: Upstream,
    next_arrival: Micros,
    next_batch: Option<Micros>,
    waiting: BinaryHeap<Reverse<(Micros, u64)>>,
    asks: BTreeMap<u64, Ask>,
    made: u64,
    number: u64,
    turns: BTreeMap<u64, u32>,
}

impl Simulation {
    /// Starts `scenario`.
    pub fn new(scenario: &Scenario) -> Self {
        let arrivals = &scenario.load.arrivals;
        Self {
            upstream: Upstream::new(scenario, EPOCH_S),
            next_arrival: Micros(0),
            next_batch: (arrivals.batch > 0).then_some(Micros(arrivals.batch_every.us() / 2)),
            scenario: scenario.clone(),
            waiting: BinaryHeap::new(),
            asks: BTreeMap::new(),
            made: 0,
            number: 0,
            turns: BTreeMap::new(),
        }
    }

    /// Lets every request arrive that comes before the first one waiting.
    fn fill(&mut self) {
        let before = |waiting: &BinaryHeap<Reverse<(Micros, u64)>>, at: Micros| {
            waiting.peek().is_none_or(|Reverse((first, _))| at <= *first)
        };
        while before(&self.waiting, self.next_arrival) {
            let at = self.next_arrival;
            let mut draw = self.arrive(at, false);
            self.next_arrival = Micros(at.0 + self.scenario.load.gap(at, &mut draw).max(1));
        }
        while let Some(at) = self.next_batch.filter(|at| before(&self.waiting, *at)) {
            let arrivals = self.scenario.load.arrivals.clone();
            for i in 0..i64::from(arrivals.batch) {
                let step = arrivals.batch_spread.us() / i64::from(arrivals.batch);
                self.arrive(Micros(at.0 + i * step), true);
            }
            self.next_batch = Some(Micros(at.0 + arrivals.batch_every.us().max(1)));
        }
    }

    fn arrive(&mut self, at: Micros, deep: bool) -> Draw {
        let mut draw = Draw::new(self.scenario.seed, self.made, u64::MAX - 2);
        let mut ask = self.scenario.load.ask(at, deep, &mut draw);
        ask.model.clone_from(&self.scenario.model);
        ask.turn = Some(mix(self.made ^ self.scenario.seed.rotate_left(32)));
        self.wait(ask);
        draw
    }

    fn wait(&mut self, ask: Ask) {
        self.waiting.push(Reverse((ask.at, self.made)));
        self.asks.insert(self.made, ask);
        self.made += 1;
    }

    fn retry(&mut self, truth: &Truth, script: &Script) {
        let ask = &truth.ask;
        let again = matches!(truth.outcome, Outcome::Failed | Outcome::Truncated)
            && (matches!(truth.status, 200 | 408 | 409 | 429) || truth.status >= 500);
        if !again || ask.attempt > self.scenario.load.retries {
            return;
        }
        let backoff = 500_000_i64 << (ask.attempt - 1).min(6);
        let wait = retry_after_ms(script).map_or(backoff, |ms| i64::try_from(ms * 1_000).unwrap_or(backoff));
        let at = Micros(ask.at.0 + truth.close_at.0 + wait);
        self.wait(Ask { at, attempt: ask.attempt + 1, ..ask.clone() });
    }
}

impl Iterator for Simulation {
    type Item = Simulated;

    fn next(&mut self) -> Option<Simulated> {
        self.fill();
        let Reverse((_, made)) = self.waiting.pop()?;
        let mut ask = self.asks.remove(&made)?;
        ask.number = self.number;
        self.number += 1;
        let (script, truth) = self.upstream.answer(ask);
        self.retry(&truth, &script);
        let turn = truth.ask.session.map(|session| {
            let turn = self.turns.entry(session).or_default();
            *turn += u32::from(truth.ask.attempt == 1);
            *turn
        });
        let stream_id = mix(self.scenario.seed ^ mix(truth.ask.number)) >> 1;
        let (deltas, reads) = script.observed(stream_id);
        let mut summary = summary(&self.scenario, &truth, &script, &deltas);
        summary.turn_index = turn;
        summary.stream_id = stream_id;
        summary.conn_id = Some(stream_id);
        Some(Simulated { summary, deltas, reads, truth })
    }
}

fn retry_after_ms(script: &Script) -> Option<u64> {
    let (_, value) = script.headers.iter().find(|(name, _)| *name == "retry-after")?;
    value.parse::<u64>().ok().map(|seconds| seconds * 1_000)
}

fn summary(scenario: &Scenario, truth: &Truth, script: &Script, deltas: &[Delta]) -> Summary {
    let ask = &truth.ask;
    let first =
        |wanted: &[Kind]| deltas.iter().find(|delta| wanted.contains(&delta.kind)).and_then(|delta| delta.t);
    let header =
        |name| script.headers.iter().find(|(known, _)| *known == name).map(|(_, value)| value.clone());
    let chars: u32 =
        deltas.iter().filter(|delta| delta.kind == Kind::Reasoning).map(|delta| delta.chars).sum();
    let usage_seen = matches!(truth.outcome, Outcome::Completed | Outcome::Incomplete);
    let started = UtcMicros(EPOCH_S * 1_000_000 + ask.at.0);
    Summary {
        session_key: ask.session.map(mix),
        turn_key: ask.turn,
        attempt: Some(ask.attempt),
        api: Some(ask.api),
        upstream: Some(scenario.upstream.clone()),
        model_requested: Some(ask.model.clone()),
        model_served: (truth.status < 400).then(|| scenario.model.clone()),
        effort: ask.effort.clone(),
        streamed: Some(ask.streamed),
        started_at: Some(started),
        t_headers: Some(script.head_at),
        t_first_byte: script.writes.first().map(|write| write.at),
        t_first_reasoning: first(&[Kind::Reasoning, Kind::Summary]),
        t_first_output: first(&[Kind::Text, Kind::Tool]),
        t_end: Some(script.close_at),
        time_source: TimeSource::Socket,
        attribution: Attribution::Exact,
        status: Some(truth.status),
        outcome: truth.outcome,
        http_version: Some("1.1".into()),
        tls: Some(false),
        conn_started_at: Some(started),
        conn_reused: Some(false),
        server: header("server"),
        prompt_bytes: Some(ask.prompt_bytes),
        prompt_tokens_est: Some(ask.prompt_tokens),
        prompt_numeric_share: Some(ask.numeric_share),
        usage: if usage_seen { usage(truth) } else { Usage::default() },
        reasoning_tokens_est: (chars > 0).then(|| u64::from(chars / 4)),
        content_check: content_check(truth),
        retry_after_ms: retry_after_ms(script),
        request_ids: header("x-request-id").map(|id| ("x-request-id".to_owned(), id)).into_iter().collect(),
        labels: correct(truth),
        provenance: Provenance::Import("simulation".into()),
        ..Summary::default()
    }
}

#[expect(clippy::cast_precision_loss, reason = "token counts are far below 2^53")]
fn usage(truth: &Truth) -> Usage {
    Usage {
        input: Some(truth.ask.prompt_tokens),
        cached: None,
        output: Some(truth.reasoning_tokens + truth.output_tokens),
        reasoning: Some(truth.reasoning_tokens as f64),
    }
}

/// What a checker of the answer's form would say; it cannot see a wrong answer in good form.
fn content_check(truth: &Truth) -> ContentCheck {
    if !matches!(truth.outcome, Outcome::Completed) {
        return ContentCheck::NotChecked;
    }
    match truth.answer {
        Answer::BrokenJson => ContentCheck::InvalidJson,
        Answer::Placeholder => ContentCheck::Placeholder,
        Answer::Empty => ContentCheck::Empty,
        Answer::Right | Answer::Wrong if truth.ask.wants_json => ContentCheck::Ok,
        Answer::Right | Answer::Wrong => ContentCheck::NotChecked,
    }
}

/// The label of a grader who knows the right answer.
fn correct(truth: &Truth) -> BTreeMap<String, String> {
    let graded = matches!(truth.outcome, Outcome::Completed);
    let label = || ("correct".to_owned(), (truth.answer == Answer::Right).to_string());
    graded.then(label).into_iter().collect()
}

#[cfg(test)]
mod tests;
