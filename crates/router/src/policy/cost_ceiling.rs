//! `[route.cost_ceiling]`: what one call, and what one caller in an hour, may cost.
//!
//! Before a call is planned, its cost is estimated for each upstream from the price table: the estimated prompt
//! at the price of fresh tokens, and as many generated tokens as the 90th percentile of this route's latest
//! answers, but no more than the request allows. Upstreams at which that is more than `per_call`, or more than
//! what is left of the caller's `per_hour`, are left out, so that a cheaper one takes the call; when none is
//! left, the call is refused: with 429 and the time at which enough of the hour will have passed, or with 400
//! when no time helps. Until 20 answers are known, the generated tokens are `expected_output`, or else what the
//! request allows, or else none.
//!
//! Spent is what upstreams reported at their prices, failed attempts included; a call that ends without a
//! report is charged its estimate, or a client could leave each stream before its end and pay nothing. Calls in
//! flight count with their estimate. Callers are told apart by the names of their tokens; without `[auth]`
//! there is one. **An upstream without a price is not held to the ceiling**: that is told as `enforce
//! unknown-price`.

use std::collections::{HashMap, VecDeque};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use tokio::time::Instant;

use super::hour::Hour;
use super::{Advice, Call, Policy, Thought};
use crate::access::Entry;
use crate::config::{Route, Section};
use crate::rewrite::Members;

/// The table's name.
pub(crate) const NAME: &str = "cost_ceiling";

/// Answers that the expected size rests on, and the least.
const LEARNED: (usize, usize) = (100, 20);

/// Money is counted in millionths of a dollar, so that a call's note is a whole number.
const MICRO: f64 = 1e6;

#[derive(Clone, Debug)]
struct CostCeiling {
    settings: Settings,
    state: Arc<Mutex<State>>,
}

#[derive(Clone, Copy, Debug)]
struct Settings {
    per_call: f64,
    per_hour: f64,
    expected_output: Option<u64>,
}

#[derive(Debug, Default)]
struct State {
    callers: HashMap<String, Spent>,
    outputs: VecDeque<u64>,
}

/// One caller's money, US dollars.
#[derive(Debug, Default)]
struct Spent {
    hour: Hour,
    in_flight: f64,
}

pub(crate) fn read(section: &Section<'_>, _: &Route) -> Option<Arc<dyn Policy>> {
    let (per_call, per_hour) = (section.amount("per_call"), section.amount("per_hour"));
    if !section.has("per_call") && !section.has("per_hour") {
        section.fault("per_call", "state `per_call` or `per_hour`, in US dollars");
    }
    per_call.or(per_hour)?;
    let settings = Settings {
        per_call: per_call.unwrap_or(f64::INFINITY),
        per_hour: per_hour.unwrap_or(f64::INFINITY),
        expected_output: section.whole("expected_output", 0..=100_000_000),
    };
    Some(Arc::new(CostCeiling { settings, state: Arc::default() }))
}

impl State {
    /// Generated tokens to expect.
    fn output(&self, settings: &Settings, allowed: Option<u64>) -> u64 {
        let mut sorted: Vec<u64> = self.outputs.iter().copied().collect();
        let place = sorted.len() * 9 / 10;
        let learned = (sorted.len() >= LEARNED.1).then(|| *sorted.select_nth_unstable(place).1);
        let most = allowed.unwrap_or(u64::MAX);
        let expected = learned.or(settings.expected_output).unwrap_or(allowed.unwrap_or(0));
        expected.min(most)
    }
}

impl Policy for CostCeiling {
    fn name(&self) -> &'static str {
        NAME
    }

    fn consider(&self, call: &Call<'_>, now: Instant) -> Thought {
        let mut state = locked(&self.state);
        let output = state.output(&self.settings, allowed(call.members));
        let spent = state.callers.entry(call.caller.unwrap_or_default().to_owned()).or_default();
        let left = (self.settings.per_hour - spent.hour.sum(now) - spent.in_flight).max(0.0);
        let most = self.settings.per_call.min(left);
        let (mut within, mut over, mut unknown) = (f64::INFINITY, Vec::new(), false);
        let mut least = f64::INFINITY;
        for upstream in call.route.upstreams().filter(|upstream| upstream.apis.contains(&call.api)) {
            let Some(price) = upstream.prices.get(upstream.model(call.model)) else {
                unknown = true;
                continue;
            };
            let usd = price.estimate(call.prompt_tokens, output);
            least = least.min(usd);
            if usd > most { over.push(Arc::clone(&upstream.name)) } else { within = within.min(usd) }
        }
        let cannot = if unknown { vec![("enforce", "unknown-price")] } else { Vec::new() };
        let refused = !over.is_empty() && within.is_infinite() && !unknown;
        let reserved = if within.is_finite() { within } else { 0.0 };
        spent.in_flight += reserved;
        let advice = match refused {
            true if least > self.settings.per_call => Advice::Refuse {
                retry_after: None,
                message: "the call would cost more than this route's ceiling for one call: ask for less, or state a smaller limit of generated tokens",
            },
            true => Advice::Refuse {
                retry_after: Some(
                    spent.hour.until_below(self.settings.per_hour - spent.in_flight - least, now),
                ),
                message: "your calls of the last hour have cost as much as this route lets one caller spend in an hour",
            },
            false => Advice::Without(over),
        };
        let idle = matches!(&advice, Advice::Without(over) if over.is_empty());
        let advice = if idle { Vec::new() } else { vec![advice] };
        Thought { advice, cannot, mark: micros(reserved), ..Thought::default() }
    }

    fn ended(&self, entry: &Entry, mark: u64, now: Instant) -> Option<&'static str> {
        let mut state = locked(&self.state);
        if let Some(output) = entry.reported.output {
            state.outputs.push_back(output);
            if state.outputs.len() > LEARNED.0 {
                state.outputs.pop_front();
            }
        }
        let spent = state.callers.entry(entry.caller.clone().unwrap_or_default()).or_default();
        let reserved = dollars(mark);
        spent.in_flight = (spent.in_flight - reserved).max(0.0);
        let unreported = matches!(entry.outcome, "client-gone" | "truncated") && !entry.attempts.is_empty();
        let charged = entry.cost_usd.unwrap_or(if unreported { reserved } else { 0.0 });
        if charged > 0.0 {
            spent.hour.spend(charged, now);
        }
        None
    }

    fn after(&self, old: &dyn Policy) -> Option<Arc<dyn Policy>> {
        let old: &dyn std::any::Any = old;
        let old = old.downcast_ref::<Self>()?;
        Some(Arc::new(Self { settings: self.settings, state: Arc::clone(&old.state) }))
    }
}

/// The most that the request lets a model generate, where it says so.
fn allowed(members: &Members<'_>) -> Option<u64> {
    ["max_output_tokens", "max_completion_tokens", "max_tokens"]
        .into_iter()
        .find_map(|name| members.get(name)?.parse().ok())
}

#[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "a positive sum of money")]
fn micros(usd: f64) -> u64 {
    (usd * MICRO).round() as u64
}

#[expect(clippy::cast_precision_loss, reason = "sums of money stay far below 2^53 µ$")]
fn dollars(micros: u64) -> f64 {
    micros as f64 / MICRO
}

fn locked(state: &Mutex<State>) -> MutexGuard<'_, State> {
    state.lock().unwrap_or_else(PoisonError::into_inner)
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::super::tests::{Asked, Lab, PLAIN, fault, lab, names};
    use crate::access::{Entry, Tokens, Tried};
    use crate::policy::Refusal;

    /// 100,000 prompt tokens: 0.30 at `a`, 0.20 at `b`, 0.10 at `c`.
    const ASKED: Asked = Asked { prompt_tokens: 100_000, ..PLAIN };

    fn table(more: &str) -> String {
        format!("[route.cost_ceiling]\nact = true\n{more}\n")
    }

    /// Seconds until it may come back, `never`, or nothing when it is not refused.
    fn refused(lab: &Lab, asked: &Asked) -> String {
        let considered = lab.considered(asked);
        let refusal = considered.advised.refuse;
        lab.over(asked, considered);
        let told =
            |refusal: Refusal| refusal.retry_after.map_or("never".into(), |wait| wait.as_secs().to_string());
        refusal.map(told).unwrap_or_default()
    }

    /// A call of `caller` that cost so much.
    fn cost(lab: &Lab, caller: Option<&'static str>, usd: f64, output: u64) {
        let reported = Tokens { output: Some(output), ..Tokens::default() };
        let caller = caller.map(str::to_owned);
        let mut entry =
            Entry { caller, cost_usd: Some(usd), reported, outcome: "completed", ..Entry::default() };
        lab.considered(&Asked { prompt_tokens: 0, ..ASKED }).ended(&mut entry, lab.now);
    }

    #[test]
    fn a_dear_call_goes_to_who_is_cheaper_or_nowhere() {
        let lab = lab(&table("per_call = 0.25"));
        assert_eq!(lab.order(&ASKED), "b c", "a is left out, not last");
        assert_eq!(lab.order(&Asked { prompt_tokens: 80_000, ..ASKED }), "a b c");
        assert_eq!(lab.order(&Asked { prompt_tokens: 200_000, ..ASKED }), "c");
        assert_eq!(refused(&lab, &Asked { prompt_tokens: 300_000, ..ASKED }), "never", "no time helps");
    }

    #[test]
    fn what_is_generated_is_expected_from_what_was() {
        let stated = Asked { body: r#"{"max_tokens":100000}"#, ..ASKED };
        let lab = lab(&table("per_call = 0.25\nexpected_output = 50000"));
        assert_eq!(lab.order(&ASKED), "c");
        assert_eq!(lab.order(&stated), "c", "0.45 and 0.30 with 50,000 of the 100,000");
        assert_eq!(lab.order(&Asked { body: r#"{"max_tokens":20000}"#, ..ASKED }), "b c");
        assert_eq!(
            lab.order(&Asked { body: r#"{"max_tokens":20000}"#, prompt_tokens: 60_000, ..ASKED }),
            "a b c"
        );
        (0..20).for_each(|_| cost(&lab, None, 0.0, 10));
        assert_eq!(lab.order(&stated), "b c", "answers were short");
        let lab = self::lab(&table("per_call = 0.25"));
        assert_eq!(lab.order(&stated), "c", "0.60, 0.40, 0.20 while nothing is known");
    }

    #[test]
    fn an_hour_of_a_caller_is_bounded_and_passes() {
        let mut lab = lab(&table("per_hour = 0.5"));
        let (one, two) = (Asked { caller: Some("one"), ..ASKED }, Asked { caller: Some("two"), ..ASKED });
        assert_eq!(lab.order(&one), "a b c");
        let flying = lab.considered(&one); // the estimate of the cheapest counts while it is in flight: 0.10
        cost(&lab, Some("one"), 0.25, 10);
        assert_eq!(lab.order(&one), "c", "0.15 are left");
        cost(&lab, Some("one"), 0.25, 10);
        assert_eq!(refused(&lab, &one), "3600");
        assert_eq!(lab.order(&two), "a b c");
        lab.over(&one, flying);
        lab.now += Duration::from_mins(59);
        assert_ne!(refused(&lab, &one), "");
        lab.now += Duration::from_mins(2);
        assert_eq!(refused(&lab, &one), "");
    }

    #[test]
    fn who_leaves_early_pays_the_estimate() {
        let lab = lab(&table("per_hour = 0.15"));
        let mut left = Entry { outcome: "client-gone", attempts: vec![Tried::default()], ..Entry::default() };
        lab.considered(&ASKED).ended(&mut left, lab.now);
        assert_eq!(refused(&lab, &ASKED), "3600");
        let lab = self::lab(&table("per_hour = 0.15"));
        let mut failed = Entry { outcome: "exhausted", ..left };
        lab.considered(&ASKED).ended(&mut failed, lab.now);
        assert_eq!(refused(&lab, &ASKED), "", "nothing was generated");
    }

    #[test]
    fn without_a_price_nothing_is_enforced_and_that_is_said() {
        let lab = lab(&table("per_call = 0.01").replace("[route", "[[upstream]]\nname = \"free\"\nurl = \"http://f.example/v1\"\napis = [\"chat\"]\n[[route]]\nmodel = \"n\"\napis = [\"chat\"]\ntiers = [[\"a\"], [\"free\"]]\n[route"));
        let considered = lab.considered(&Asked { model: "n", ..ASKED });
        assert_eq!(names(&considered.would_have), ["cost_ceiling enforce unknown-price"]);
        assert!(considered.advised.refuse.is_none());
    }

    #[test]
    fn observe_only_tells_and_moves_nothing() {
        let lab = lab(&table("per_call = 0.25").replace("true", "false"));
        assert_eq!(names(&lab.considered(&ASKED).would_have), ["cost_ceiling without observe-only"]);
        let dear = Asked { prompt_tokens: 300_000, ..ASKED };
        assert_eq!(names(&lab.considered(&dear).would_have), ["cost_ceiling refuse observe-only"]);
        assert_eq!((lab.order(&dear).as_str(), refused(&lab, &dear)), ("a b c", String::new()));
    }

    #[test]
    fn a_changed_configuration_keeps_what_was_spent() {
        let lab = lab(&table("per_hour = 0.5"));
        cost(&lab, None, 0.5, 10);
        let lab = lab.reconfigured(&table("per_hour = 0.4"));
        assert_ne!(refused(&lab, &ASKED), "");
    }

    #[test]
    fn faults_are_told() {
        assert!(fault(&table("")).contains("state `per_call` or `per_hour`"));
        assert!(fault(&table("per_call = -1.0")).contains("not negative"));
    }
}
