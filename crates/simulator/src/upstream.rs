//! A scenario at work: requests in, scripts out.

use serde::Serialize;
use sseismo_trace::{Micros, Outcome, Phase};

use crate::api;
use crate::ask::Ask;
use crate::behaviour::Stage;
use crate::draw::Draw;
use crate::plan::{Answer, Close, Injection, Plan};
use crate::scenario::{Amount, Part, Scenario};
use crate::script::Script;
use crate::unit::micros;

/// Draws that belong to the request itself rather than to a behaviour.
const OWN: u64 = u64::MAX;

/// An upstream with its state.
#[derive(Clone, Debug)]
pub(crate) struct Upstream {
    scenario: Scenario,
    parts: Vec<Part>,
    epoch_s: i64,
}

/// What was done to one request: a line of the truth file.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Truth {
    /// The request as the upstream saw it.
    pub ask: Ask,
    /// HTTP status.
    pub status: u16,
    /// What was done on purpose, in order. Times in µs since the request came.
    pub injected: Vec<Injection>,
    /// What the answer is worth.
    pub answer: Answer,
    /// Reasoning tokens billed.
    pub reasoning_tokens: u64,
    /// Answer tokens billed.
    pub output_tokens: u64,
    /// When the head goes out.
    pub head_at: Micros,
    /// When the body ends.
    pub close_at: Micros,
    /// How it ends.
    pub close: Close,
    /// How the stream ends, as an exact reader would call it.
    pub outcome: Outcome,
}

fn outcome(plan: &Plan) -> Outcome {
    if plan.error.is_some() {
        return Outcome::Failed;
    }
    if !plan.terminal || plan.close != Close::Clean {
        return Outcome::Truncated;
    }
    if plan.at_limit { Outcome::Incomplete } else { Outcome::Completed }
}

impl Upstream {
    /// An upstream whose clock starts at `epoch_s` seconds since 1970 UTC.
    pub(crate) fn new(scenario: &Scenario, epoch_s: i64) -> Self {
        Self { parts: scenario.parts.clone(), scenario: scenario.clone(), epoch_s }
    }

    /// Takes a request and decides everything about its answer. Requests come in order of time.
    pub(crate) fn answer(&mut self, ask: Ask) -> (Script, Truth) {
        let mut plan = self.plan(&ask);
        let created = self.epoch_s + ask.at.0.div_euclid(1_000_000);
        let applies: Vec<bool> = self.parts.iter().map(|part| self.applies(part, &ask)).collect();
        let mut has_rhythm = false;
        for (part, _) in self.parts.iter_mut().zip(&applies).filter(|(_, applies)| **applies) {
            if part.entry.stage > Stage::Rhythm && !has_rhythm {
                steady(&mut plan, self.scenario.seed, ask.number);
                has_rhythm = true;
            }
            if part.entry.stage == Stage::Rhythm {
                has_rhythm = true;
            }
            if part.entry.stage < Stage::Delivery && plan.is_answered() {
                let mut draw = Draw::new(self.scenario.seed, ask.number, part.place);
                if let Some(detail) = part.behaviour.shape(&ask, &mut plan, &mut draw) {
                    plan.note(part.entry.name, detail);
                }
            }
        }
        if !has_rhythm {
            steady(&mut plan, self.scenario.seed, ask.number);
        }
        let mut script = api::encode(&ask, &plan, &self.scenario.model, created);
        let streamed = ask.streamed && plan.is_answered();
        for (part, _) in self.parts.iter_mut().zip(&applies).filter(|(_, applies)| **applies && streamed) {
            if let Some(detail) = part.behaviour.deliver(&mut script) {
                plan.note(part.entry.name, detail);
            }
        }
        let truth = Truth {
            status: plan.status,
            outcome: outcome(&plan),
            injected: plan.injected,
            answer: plan.answer,
            reasoning_tokens: plan.reasoning,
            output_tokens: plan.output,
            head_at: script.head_at,
            close_at: script.close_at,
            close: plan.close,
            ask,
        };
        (script, truth)
    }

    fn applies(&self, part: &Part, ask: &Ask) -> bool {
        part.covers(ask) && Draw::new(self.scenario.seed, ask.number, OWN ^ part.place).chance(part.share())
    }

    fn plan(&self, ask: &Ask) -> Plan {
        let sizes = &self.scenario.answer;
        let mut draw = Draw::new(self.scenario.seed, ask.number, OWN);
        let effort = match ask.effort.as_deref() {
            Some("none") => 0.0,
            Some("minimal") => 0.1,
            Some("low") => 1.0 / 3.0,
            Some("high" | "xhigh" | "max") => 3.0,
            _ => 1.0,
        };
        let limit = ask.max_tokens.unwrap_or(u64::MAX);
        let drawn = amount(sizes.reasoning, effort, &mut draw);
        let wanted = ask.amounts.map_or(drawn, |amounts| amounts.reasoning);
        let reasoning = wanted.min(limit);
        let drawn = amount(sizes.output, 1.0, &mut draw).max(1);
        let wanted_output = ask.amounts.map_or(drawn, |amounts| amounts.output);
        let output = wanted_output.min(limit - reasoning);
        let first = draw.lognormal(sizes.first_token.seconds(), sizes.first_token_sigma.0);
        #[expect(clippy::cast_precision_loss, reason = "prompt tokens are far below 2^53")]
        let first = first + sizes.per_prompt_token.seconds() * ask.prompt_tokens as f64;
        let first_at = Micros(micros(first));
        #[expect(
            clippy::cast_precision_loss,
            clippy::cast_possible_truncation,
            clippy::cast_sign_loss,
            reason = "a share of a count stays a count"
        )]
        let cached = (ask.prompt_tokens as f64 * sizes.cached.0) as u64;
        Plan {
            status: 200,
            headers: Vec::new(),
            head_at: Micros(first_at.0 / 2),
            first_at,
            input: ask.prompt_tokens,
            cached,
            reasoning,
            output,
            beats: Vec::new(),
            answer: Answer::Right,
            at_limit: wanted + wanted_output > limit,
            terminal: true,
            error: None,
            close: Close::Clean,
            injected: Vec::new(),
        }
    }
}

/// The rhythm of an upstream that is asked for none: 20 frames a second of 3 tokens.
fn steady(plan: &mut Plan, seed: u64, number: u64) {
    if plan.is_answered() {
        let mut draw = Draw::new(seed, number, OWN - 1);
        plan.lay(&mut draw, |draw, _: Phase| (0.05 * (1.0 + 0.04 * draw.normal()), 3));
    }
}

fn amount(amount: Amount, factor: f64, draw: &mut Draw) -> u64 {
    let drawn = draw.lognormal(amount.median.0, amount.sigma.0) * factor;
    #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "bounded by `max`")]
    let tokens = drawn.min(f64::from(amount.max)).round() as u64;
    tokens
}
