//! `[route.reasoning_budget]`: how much one call, and one caller in an hour, may reason.
//!
//! A call may reason for `per_call` tokens, or for what is left of its caller's `per_hour` where that is less.
//! How that is enforced depends on what the upstream shows, and is told for each call:
//!
//! | the upstream | enforced by | told as |
//! |---|---|---|
//! | streams raw reasoning | ending the stream when it is over the budget, by an estimate of 4 characters a token | `stop-reasoning`, when it happens |
//! | streams summaries or nothing, or no stream is asked for | the request's own limit, which is lowered and never raised | `stop-reasoning not-enforceable` under "would have", and one of the below |
//! | has not shown yet what it does | both | `stop-reasoning raw-reasoning-unknown`, and one of the below |
//!
//! The request's own limit is Anthropic's `thinking.budget_tokens` where the request thinks (`cap-reasoning`);
//! else `max_output_tokens` or its like, as budget + `answer_tokens` (`cap-output`), since those APIs count
//! reasoning as output; and one step less effort (`lower-effort`) once four fifths of the hour are spent. Calls
//! that are not known to reason are left alone: no effort is stated, and the upstream never reported any.
//!
//! When the hour is spent, calls that reason are refused with 429 and the time to wait (`spent = "refuse"`), or
//! ask for two steps less effort (`spent = "lower-effort"`). Spent is what upstreams report, else the estimate
//! of what they streamed; a call that was ended counts with that estimate. Callers are told apart by the names
//! of their tokens; without `[auth]` there is one.
//!
//! A stream that is ended ends as its API ends one at a limit of tokens (`length`, `max_tokens`,
//! `response.incomplete`): what the request's own limit would have led to, and no client asks again after it.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use serde_json::{Value, json};
use sseismo_trace::Api;
use tokio::time::Instant;

use super::effort::can_be_lowered;
use super::hour::Hour;
use super::{Advice, Call, Policy, Thought};
use crate::access::{Entry, Tried};
use crate::config::{Route, Section};

/// The table's name.
pub(crate) const NAME: &str = "reasoning_budget";

/// Part of the hour from which effort is lowered.
const NEARLY: f64 = 0.8;

#[derive(Clone, Debug)]
struct ReasoningBudget {
    settings: Settings,
    state: Arc<Mutex<State>>,
}

#[derive(Clone, Copy, Debug)]
struct Settings {
    per_call: Option<u64>,
    per_hour: Option<u64>,
    answer_tokens: u64,
    /// When the hour is spent; otherwise effort is lowered.
    refuses: bool,
}

#[derive(Debug, Default)]
struct State {
    callers: HashMap<String, Hour>,
    shown: HashMap<String, Shown>,
}

/// What an upstream has shown of its reasoning.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
enum Shown {
    #[default]
    Nothing,
    /// It streams it.
    Raw,
    /// It reports some and streams none.
    Hidden,
}

pub(crate) fn read(section: &Section<'_>, _: &Route) -> Option<Arc<dyn Policy>> {
    let tokens = |key| section.whole(key, 1..=1_000_000_000);
    let (per_call, per_hour) = (tokens("per_call"), tokens("per_hour"));
    if !section.has("per_call") && !section.has("per_hour") {
        section.fault("per_call", "state `per_call` or `per_hour`, in reasoning tokens");
    }
    per_call.or(per_hour)?;
    let settings = Settings {
        per_call,
        per_hour,
        answer_tokens: section.whole("answer_tokens", 1..=1_000_000_000).unwrap_or(4_096),
        refuses: section.word("spent", &["refuse", "lower-effort"]).unwrap_or("refuse") == "refuse",
    };
    Some(Arc::new(ReasoningBudget { settings, state: Arc::default() }))
}

impl ReasoningBudget {
    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// What is done with a call that may reason so long.
    fn limit(&self, call: &Call<'_>, budget: u64, nearly: bool, shown: &[Shown]) -> Thought {
        let raw = call.streamed && shown.iter().all(|shown| *shown == Shown::Raw);
        let may_be_raw = call.streamed && shown.iter().any(|shown| *shown != Shown::Hidden);
        let mut advice = Vec::new();
        if may_be_raw {
            advice.push(Advice::StopReasoning(budget));
        }
        if nearly && can_be_lowered(call.effort) {
            advice.push(Advice::LowerEffort(1));
        }
        if raw {
            return Thought { advice, ..Thought::default() };
        }
        let why = if may_be_raw { "raw-reasoning-unknown" } else { "not-enforceable" };
        if call.api == Api::Messages {
            advice.extend(call.members.get("thinking").map(|_| Advice::CapReasoning(budget)));
        } else {
            advice.push(Advice::CapOutput(budget.saturating_add(self.settings.answer_tokens)));
        }
        Thought { advice, cannot: vec![("stop-reasoning", why)], ..Thought::default() }
    }
}

impl Policy for ReasoningBudget {
    fn name(&self) -> &'static str {
        NAME
    }

    fn consider(&self, call: &Call<'_>, now: Instant) -> Thought {
        let mut state = self.state();
        let ask = |upstream: &str| state.shown.get(upstream).copied().unwrap_or_default();
        let speaks = call.route.upstreams().filter(|upstream| upstream.apis.contains(&call.api));
        let shown: Vec<Shown> = speaks.map(|upstream| ask(&upstream.name)).collect();
        let thinks = call.api == Api::Messages && call.members.get("thinking").is_some();
        let reasons = thinks || call.effort.is_some() || shown.iter().any(|shown| *shown != Shown::Nothing);
        if !reasons {
            return Thought::default();
        }
        let hour = state.callers.entry(call.caller.unwrap_or_default().to_owned()).or_default();
        let spent = hour.sum(now);
        let left = self.settings.per_hour.map(|most| number(most) - spent);
        if left.is_some_and(|left| left < 1.0) {
            let advice = if self.settings.refuses {
                Advice::Refuse {
                    retry_after: Some(
                        hour.until_below(self.settings.per_hour.map_or(0.0, number) * NEARLY, now),
                    ),
                    message: "your calls of the last hour have reasoned as long as this route lets one caller reason in an hour",
                }
            } else if can_be_lowered(call.effort) {
                Advice::LowerEffort(2)
            } else {
                return Thought { cannot: vec![("lower-effort", "not-enforceable")], ..Thought::default() };
            };
            return Thought { advice: vec![advice], ..Thought::default() };
        }
        let nearly = self.settings.per_hour.is_some_and(|most| spent >= number(most) * NEARLY);
        let budget = left.map(whole).into_iter().chain(self.settings.per_call).min().unwrap_or(u64::MAX);
        drop(state);
        self.limit(call, budget, nearly, &shown)
    }

    fn ended(&self, entry: &Entry, _: u64, now: Instant) -> Option<&'static str> {
        let mut state = self.state();
        for tried in &entry.attempts {
            if let Some(shown) = shown(tried, entry.streamed) {
                state.shown.insert(tried.upstream.clone(), shown);
            }
        }
        let reasoned: f64 = entry.attempts.iter().map(reasoned).sum();
        if reasoned > 0.0 {
            let hour = state.callers.entry(entry.caller.clone().unwrap_or_default()).or_default();
            hour.spend(reasoned, now);
        }
        None
    }

    fn view(&self, now: Instant) -> Option<Value> {
        let mut state = self.state();
        let spent: serde_json::Map<_, _> =
            state.callers.iter_mut().map(|(name, hour)| (name.clone(), json!(hour.sum(now)))).collect();
        let raw: Vec<_> =
            state.shown.iter().filter(|(_, shown)| **shown == Shown::Raw).map(|(name, _)| name).collect();
        Some(json!({"reasoned_in_the_last_hour": spent, "raw_reasoning": raw}))
    }

    fn after(&self, old: &dyn Policy) -> Option<Arc<dyn Policy>> {
        let old: &dyn std::any::Any = old;
        let old = old.downcast_ref::<Self>()?;
        Some(Arc::new(Self { settings: self.settings, state: Arc::clone(&old.state) }))
    }
}

/// What an attempt shows of its upstream; an answer that was not streamed shows nothing.
fn shown(tried: &Tried, streamed: bool) -> Option<Shown> {
    match (tried.reasoning_est, tried.tokens.reasoning) {
        (Some(_), _) => Some(Shown::Raw),
        (None, Some(reported)) if reported > 0.0 && streamed => Some(Shown::Hidden),
        (None, _) => None,
    }
}

/// Reasoning tokens of an attempt: reported, else estimated.
fn reasoned(tried: &Tried) -> f64 {
    tried.tokens.reasoning.or(tried.reasoning_est.map(number)).unwrap_or(0.0)
}

#[expect(clippy::cast_precision_loss, reason = "token counts stay far below 2^53")]
fn number(tokens: u64) -> f64 {
    tokens as f64
}

#[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "a positive count of tokens")]
fn whole(tokens: f64) -> u64 {
    tokens as u64
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::super::tests::{Asked, Lab, PLAIN, fault, lab, names};
    use super::*;
    use crate::access::Tokens;
    use crate::policy::Considered;

    const TABLE: &str = "[route.reasoning_budget]\nact = true\n";
    const HIGH: Asked = Asked { effort: Some("high"), ..PLAIN };

    /// A streamed answer that reported and showed so much.
    fn answered(lab: &Lab, upstream: &str, reported: Option<f64>, shown: Option<u64>) {
        let tokens = Tokens { reasoning: reported, ..Tokens::default() };
        let tried = Tried { upstream: upstream.into(), tokens, reasoning_est: shown, ..Tried::default() };
        let mut entry = Entry { attempts: vec![tried], streamed: true, ..Entry::default() };
        lab.considered(&HIGH).ended(&mut entry, lab.now);
    }

    fn told(considered: &Considered) -> (Vec<String>, Vec<String>) {
        (names(&considered.done), names(&considered.would_have))
    }

    fn stops_at(considered: &Considered) -> Option<u64> {
        considered.advised.stop_reasoning.as_ref().map(|(tokens, _)| *tokens)
    }

    #[test]
    fn who_streams_raw_reasoning_is_stopped_and_others_get_their_own_limit() {
        let lab = lab(&format!("{TABLE}per_call = 2000\n"));
        let unknown = lab.considered(&HIGH);
        assert_eq!((stops_at(&unknown), unknown.advised.adjust.output), (Some(2_000), Some(6_096)));
        let said = (
            vec!["reasoning_budget cap-output"],
            vec!["reasoning_budget stop-reasoning raw-reasoning-unknown"],
        );
        assert_eq!(
            told(&unknown),
            (
                said.0.iter().map(ToString::to_string).collect(),
                said.1.iter().map(ToString::to_string).collect()
            )
        );
        for name in ["a", "b", "c"] {
            answered(&lab, name, None, Some(30));
        }
        let raw = lab.considered(&HIGH);
        assert_eq!(
            (stops_at(&raw), raw.advised.adjust.is_nothing(), told(&raw).1.len()),
            (Some(2_000), true, 0)
        );
        let whole = lab.considered(&Asked { streamed: false, ..HIGH });
        assert_eq!((stops_at(&whole), whole.advised.adjust.output), (None, Some(6_096)));
        assert_eq!(told(&whole).1, ["reasoning_budget stop-reasoning not-enforceable"]);
        for name in ["a", "b", "c"] {
            answered(&lab, name, Some(30.0), None);
        }
        let hidden = lab.considered(&HIGH);
        assert_eq!((stops_at(&hidden), hidden.advised.adjust.output), (None, Some(6_096)));
        assert_eq!(told(&hidden).1, ["reasoning_budget stop-reasoning not-enforceable"]);
    }

    #[test]
    fn each_api_has_its_own_limit() {
        let lab = lab(&format!("{TABLE}per_call = 2000\nanswer_tokens = 100\n"));
        let thinking = r#"{"thinking":{"type":"enabled","budget_tokens":9000}}"#;
        let messages = Asked { api: Api::Messages, body: thinking, effort: Some("budget-9000"), ..PLAIN };
        let adjust = lab.considered(&messages).advised.adjust;
        assert_eq!((adjust.reasoning, adjust.output), (Some(2_000), None));
        let adjust = lab.considered(&Asked { api: Api::Responses, ..HIGH }).advised.adjust;
        assert_eq!((adjust.reasoning, adjust.output), (None, Some(2_100)));
        let plain = lab.considered(&PLAIN);
        assert!(
            plain.advised.adjust.is_nothing() && stops_at(&plain).is_none(),
            "nothing says that it reasons"
        );
    }

    #[test]
    fn an_hour_of_a_caller_is_bounded_and_passes() {
        let mut lab = lab(&format!("{TABLE}per_hour = 1000\n"));
        answered(&lab, "a", Some(700.0), None);
        assert_eq!(lab.considered(&HIGH).advised.adjust.output, Some(300 + 4_096));
        answered(&lab, "a", None, Some(200));
        let nearly = lab.considered(&HIGH).advised.adjust;
        assert_eq!((nearly.output, nearly.steps), (Some(100 + 4_096), 1));
        answered(&lab, "a", Some(100.0), None);
        let refused = lab.considered(&HIGH).advised.refuse.unwrap();
        assert_eq!(refused.retry_after, Some(Duration::from_hours(1)));
        assert!(lab.considered(&Asked { caller: Some("other"), ..HIGH }).advised.refuse.is_none());
        let gentle = lab.reconfigured(&format!("{TABLE}per_hour = 1000\nspent = \"lower-effort\"\n"));
        assert_eq!(names(&gentle.considered(&HIGH).done), ["reasoning_budget lower-effort"]);
        assert_eq!(gentle.considered(&HIGH).advised.adjust.steps, 2);
        lab.now += Duration::from_hours(1);
        assert!(lab.considered(&HIGH).advised.refuse.is_none());
    }

    #[test]
    fn observe_only_tells_and_changes_nothing() {
        let lab = lab("[route.reasoning_budget]\nper_call = 10\nper_hour = 1000\n");
        let considered = lab.considered(&HIGH);
        assert!(considered.advised.adjust.is_nothing() && considered.done.is_empty());
        let would = names(&considered.would_have);
        assert!(would.contains(&"reasoning_budget cap-output observe-only".to_owned()), "{would:?}");
        let told_only = considered.advised.stop_reasoning.unwrap().1;
        assert_eq!(told_only.why, Some("observe-only"), "the stream tells, and goes on");
        answered(&lab, "a", Some(1_000.0), None);
        let spent = lab.considered(&HIGH);
        assert_eq!(
            (spent.advised.refuse, names(&spent.would_have)),
            (None, vec!["reasoning_budget refuse observe-only".to_owned()])
        );
    }

    #[test]
    fn faults_are_told() {
        assert!(fault(TABLE).contains("state `per_call` or `per_hour`"));
        assert!(fault(&format!("{TABLE}per_call = 0\n")).contains("`per_call` must be"));
    }
}
