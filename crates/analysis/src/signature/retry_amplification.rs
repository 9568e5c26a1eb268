//! One client turn becomes many billed attempts.
//!
//! **Looks like**: several attempts with one turn key. A Codex client sends up to 30 requests in 25 s
//! while an upstream answers 500; OpenAI's and Anthropic's SDKs send 3. A log of the client under-counts
//! them: failed attempts leave no token count there, a proxy sees them.
//! **Known causes**: 429 and 5xx, streams that break after the first byte, gateways that retry beneath a
//! client that retries (attempts multiply).
//! **Statistic**: attempts per turn, and the share of turns that took more than one, with Wilson's
//! interval: turns are the unit, attempts are not independent.
//! **Defaults**: present when the interval's lower limit is above 5 % of turns and attempts per turn are
//! at least 1.1; both are this project's choice: below them retries cost less than a tenth of the bill.
//! **Smallest n**: 50 turns.
//! **False positives**: fan-outs that reuse one turn key (they share a group id and are left out);
//! imports that number turns but not attempts are not measurable.
//! **Shown by**: `data/scenarios/retry-storm.toml`.

use std::collections::BTreeMap;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use sseismo_trace::{Effect, Finding, Outcome, Scope, SignatureId, Stream, Verdict};

use super::{Options, Pass, Score, Signature};
use crate::stats::{proportion::wilson, real};

/// Fewest turns.
pub const TURNS: u64 = 50;
/// The lower limit of the share of retried turns must be above this.
pub const SHARE: f64 = 0.05;
/// Attempts per turn must be at least this.
pub const FACTOR: f64 = 1.1;

/// The signature.
#[derive(Debug)]
pub(super) struct RetryAmplification;

/// What was found.
#[derive(Debug, Default, Serialize, Deserialize, JsonSchema)]
pub struct Evidence {
    /// Client turns.
    pub turns: u64,
    /// Requests sent for them.
    pub attempts: u64,
    /// Attempts per turn.
    pub attempts_per_turn: f64,
    /// Most attempts of one turn.
    pub most_attempts: u64,
    /// Turns with more than one attempt.
    pub retried_turns: u64,
    /// Of these, turns whose last attempt completed.
    pub healed_turns: u64,
    /// Prompt tokens reported for attempts that were not the last of their turn.
    pub rebilled_input: u64,
    /// Generated tokens reported for these.
    pub rebilled_output: u64,
    /// Cost of these in US dollars, where a price is known.
    pub rebilled_cost_usd: Option<f64>,
    /// Attempts before the last without reported usage: whether they were billed is not known.
    pub without_usage: u64,
    /// Estimated prompt tokens of those.
    pub without_usage_input_est: u64,
}

impl Signature for RetryAmplification {
    fn id(&self) -> SignatureId {
        SignatureId::RetryAmplification
    }

    fn open(&self, _: &Options) -> Box<dyn Score> {
        Box::new(Turns::default())
    }

    fn evidence_schema(&self) -> schemars::Schema {
        schemars::schema_for!(Evidence)
    }
}

/// One attempt.
#[derive(Clone, Copy, Debug)]
struct Attempt {
    number: u32,
    completed: bool,
    input: Option<u64>,
    output: u64,
    input_est: u64,
    cost_usd: Option<f64>,
}

#[derive(Debug, Default)]
struct Turns {
    streams: u64,
    turns: BTreeMap<u64, Vec<Attempt>>,
}

impl Score for Turns {
    fn push(&mut self, pass: Pass, stream: &Stream<'_>) {
        if pass != Pass::Baseline {
            return;
        }
        let summary = stream.summary;
        self.streams += 1;
        let (Some(turn), Some(number), None) = (summary.turn_key, summary.attempt, summary.group_id) else {
            return;
        };
        self.turns.entry(turn).or_default().push(Attempt {
            number,
            completed: matches!(summary.outcome, Outcome::Completed | Outcome::Incomplete),
            input: summary.usage.input,
            output: summary.usage.output.unwrap_or(0),
            input_est: summary.prompt_tokens_est.unwrap_or(0),
            cost_usd: summary.cost_usd,
        });
    }

    fn finding(&self, scope: &Scope) -> Finding {
        let evidence = self.evidence();
        let share =
            if evidence.turns == 0 { 0.0 } else { real(evidence.retried_turns) / real(evidence.turns) };
        let ci95 = wilson(evidence.retried_turns, evidence.turns);
        let verdict = match evidence.turns {
            0 if self.streams > 0 => Verdict::NotMeasurable,
            0..TURNS => Verdict::TooFew,
            _ if ci95[0] > SHARE && evidence.attempts_per_turn >= FACTOR => Verdict::Present,
            _ => Verdict::None,
        };
        let next_step = match verdict {
            Verdict::NotMeasurable => {
                "Columns turn_key and attempt are missing: record through the relay, which ties attempts to turns."
            }
            Verdict::TooFew => "Record at least 50 client turns.",
            Verdict::Present => {
                "Look at status and outcome of the first attempts, and let only one layer (client, gateway) retry."
            }
            _ => "nothing to do",
        };
        let measured = !matches!(verdict, Verdict::NotMeasurable | Verdict::TooFew);
        Finding {
            signature: SignatureId::RetryAmplification,
            scope: scope.clone(),
            verdict,
            n: evidence.turns,
            unit: "client turns".into(),
            effect: measured.then(|| Effect {
                name: "retried-share".into(),
                unit: String::new(),
                value: share,
                ci95: Some(ci95),
            }),
            evidence: serde_json::to_value(evidence).unwrap_or_default(),
            significance: None,
            cause: None,
            labelled: 0,
            compared_with: format!("at most {:.0} % of turns retried", SHARE * 100.0),
            does_not_prove:
                "who retried, nor that a provider billed an attempt whose usage it did not report".into(),
            next_step: next_step.into(),
            notes: note(verdict, ci95),
        }
    }
}

/// The largest share that `none` leaves possible.
fn note(verdict: Verdict, ci95: [f64; 2]) -> Vec<String> {
    let none = verdict == Verdict::None;
    none.then(|| format!("up to {:.1} % of turns may be retried (95 % limit)", ci95[1] * 100.0))
        .into_iter()
        .collect()
}

impl Turns {
    fn evidence(&self) -> Evidence {
        let mut evidence = Evidence { turns: self.turns.len() as u64, ..Evidence::default() };
        for attempts in self.turns.values() {
            let n = attempts.len() as u64;
            evidence.attempts += n;
            evidence.most_attempts = evidence.most_attempts.max(n);
            let Some(last) = attempts.iter().max_by_key(|attempt| attempt.number).filter(|_| n > 1) else {
                continue;
            };
            evidence.retried_turns += 1;
            evidence.healed_turns += u64::from(last.completed);
            let last = last.number;
            attempts.iter().filter(|attempt| attempt.number != last).for_each(|again| evidence.rebill(again));
        }
        if evidence.turns > 0 {
            evidence.attempts_per_turn = real(evidence.attempts) / real(evidence.turns);
        }
        evidence
    }
}

impl Evidence {
    fn rebill(&mut self, attempt: &Attempt) {
        if let Some(input) = attempt.input {
            self.rebilled_input += input;
            self.rebilled_output += attempt.output;
        } else {
            self.without_usage += 1;
            self.without_usage_input_est += attempt.input_est;
        }
        if let Some(cost) = attempt.cost_usd {
            *self.rebilled_cost_usd.get_or_insert(0.0) += cost;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::simulated::{finding, scenario};
    use super::*;

    /// A third of the requests fail, clients ask up to 4 times more: 1/(1 − 0.35) = 1.5 attempts a turn.
    #[test]
    fn a_retry_storm_is_found_and_counted() {
        let found = finding(&RetryAmplification, &scenario("retry-storm"), 600);
        assert_eq!(found.verdict, Verdict::Present);
        let per_turn = found.evidence["attempts_per_turn"].as_f64().unwrap();
        assert!((1.35..1.7).contains(&per_turn), "{per_turn}");
        assert!(found.evidence["without_usage_input_est"].as_u64().unwrap() > 0);
    }

    #[test]
    fn a_healthy_upstream_is_not_accused_and_few_turns_are_too_few() {
        let healthy = scenario("steady");
        assert_eq!(finding(&RetryAmplification, &healthy, 200).verdict, Verdict::None);
        assert_eq!(finding(&RetryAmplification, &healthy, 20).verdict, Verdict::TooFew);
    }
}
