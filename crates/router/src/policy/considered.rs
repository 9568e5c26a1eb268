//! What the policies of a route think of one call, merged: by the precedence that [`policy`](super) states.
//!
//! In: a call and the route's policies. Out: what is done, what would have been, and who is told when it has ended.

use std::cell::OnceCell;
use std::sync::Arc;
use std::time::Duration;

use hyper::HeaderMap;
use sseismo_trace::Api;
use tokio::time::{Instant, sleep, timeout};

use super::{Adjust, Advice, Call, Expected, Installed, Line, Place, Policy, Refusal, Thought, Told};
use crate::access::Entry;
use crate::choice::Router;
use crate::config::Upstream;
use crate::rewrite::Members;
use crate::steer::Held;

/// What all policies that act advise together.
#[derive(Clone, Debug, Default)]
pub struct Advised {
    /// No upstream is asked.
    pub refuse: Option<Refusal>,
    /// Preferred upstreams, and for whom.
    pub prefer: Vec<(Arc<str>, Told)>,
    /// Upstreams that stand last, and for whom.
    pub avoid: Vec<(Arc<str>, Told)>,
    /// Upstreams that are not asked, and for whom.
    pub without: Vec<(Arc<str>, Told)>,
    /// Tiers before this stand last.
    pub from_tier: Option<(usize, Told)>,
    /// The primary stands last.
    pub spill: Option<Told>,
    /// Of the others the cheapest first.
    pub cheapest: bool,
    /// Changes to the request.
    pub adjust: Adjust,
    /// Raw reasoning is ended after so many tokens, for this.
    pub stop_reasoning: Option<(u64, Told)>,
    waits: Vec<(Wait, Told)>,
}

/// What a call waits for before it is planned.
#[derive(Clone, Debug)]
enum Wait {
    /// A place in a line, so long at most.
    Line(Arc<Line>, Duration),
    /// Time to pass.
    Time(Duration),
}

impl Advised {
    /// Whether it changes the order of places.
    #[cfg(test)]
    pub(crate) fn moves(&self) -> bool {
        let named = [&self.prefer, &self.avoid, &self.without];
        !(named.iter().all(|list| list.is_empty()) && self.from_tier.is_none() && self.spill.is_none())
    }

    pub(super) fn add(&mut self, advice: Advice, told: Told) {
        match advice {
            Advice::Prefer(names) => self.prefer.extend(names.into_iter().map(|name| (name, told.clone()))),
            Advice::Avoid(names) => self.avoid.extend(names.into_iter().map(|name| (name, told.clone()))),
            Advice::Without(names) => self.without.extend(names.into_iter().map(|name| (name, told.clone()))),
            Advice::FromTier(tier) => {
                if self.from_tier.as_ref().is_none_or(|(known, _)| *known < tier) {
                    self.from_tier = Some((tier, told));
                }
            }
            Advice::Spill { cheapest } => {
                self.cheapest |= cheapest;
                self.spill.get_or_insert(told);
            }
            Advice::Queue(line, within) => self.waits.push((Wait::Line(line, within), told)),
            Advice::Wait(time) => self.waits.push((Wait::Time(time), told)),
            Advice::StopReasoning(tokens) => {
                if self.stop_reasoning.as_ref().is_none_or(|(known, _)| *known > tokens) {
                    self.stop_reasoning = Some((tokens, told));
                }
            }
            Advice::LowerEffort(steps) => self.adjust.lower(steps),
            Advice::CapOutput(tokens) => self.adjust.cap_output(tokens),
            Advice::CapReasoning(tokens) => self.adjust.cap_reasoning(tokens),
            Advice::Refuse { retry_after, message } => {
                self.refuse.get_or_insert(Refusal { policy: told.policy, retry_after, message });
            }
        }
    }
}

/// What was thought of one call. Held until the call has ended: then every policy learns how.
#[derive(Debug, Default)]
pub struct Considered {
    /// The route's model.
    pub route: Arc<str>,
    /// What to do.
    pub advised: Advised,
    /// What is done whatever the plan: everything but the order of places.
    pub done: Vec<Told>,
    /// What would have been done.
    pub would_have: Vec<Told>,
    /// The arm of a comparison that it belongs to.
    pub arm: Option<&'static str>,
    /// What the answer is held against, and whether a failure moves the call on while it can be moved.
    pub expected: Option<(Arc<Expected>, bool)>,
    marks: Vec<Mark>,
    places: Vec<Place>,
}

/// A policy's note on a call.
#[derive(Debug)]
struct Mark {
    policy: Arc<dyn Policy>,
    note: u64,
    act: bool,
}

impl Considered {
    /// Waits for what was advised, one after the other.
    pub(crate) async fn wait(&mut self) {
        for (wait, told) in std::mem::take(&mut self.advised.waits) {
            let why = match wait {
                Wait::Line(line, within) => self.stand_in(&line, within).await,
                Wait::Time(time) => {
                    sleep(time).await;
                    None
                }
            };
            self.done.push(Told { why, ..told });
        }
    }

    /// Waits in a line; why in vain. A line that is full or too slow is no reason to refuse: the call goes on.
    async fn stand_in(&mut self, line: &Line, within: Duration) -> Option<&'static str> {
        match timeout(within, line.enter()).await {
            Ok(Some(place)) => {
                self.places.push(place);
                None
            }
            Ok(None) => Some("line-full"),
            Err(_) => Some("waited-in-vain"),
        }
    }

    /// Whether there is something to wait for.
    pub(crate) fn has_to_wait(&self) -> bool {
        !self.advised.waits.is_empty()
    }

    /// A request is about to be sent.
    pub(crate) fn began(&self, upstream: &Upstream, now: Instant) {
        self.marks.iter().for_each(|mark| mark.policy.began(upstream, mark.note, now));
    }

    /// The head of an answer has come.
    pub(crate) fn answered(&self, upstream: &Upstream, slot: Option<u16>, headers: &HeaderMap, now: Instant) {
        self.marks.iter().for_each(|mark| mark.policy.answered(upstream, slot, headers, now));
    }

    /// The call has ended; what the policies did about that is added to its entry.
    pub(crate) fn ended(self, entry: &mut Entry, now: Instant) {
        for Mark { policy, note, act } in self.marks {
            let Some(action) = policy.ended(entry, note, now) else { continue };
            let told = Told { policy: policy.name(), action, why: None };
            if act {
                entry.policy.push(told);
            } else {
                entry.would_have.push(Told { why: Some(Held::ObserveOnly.name()), ..told });
            }
        }
    }
}

/// What a front knows of a call.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Known<'a> {
    pub(crate) api: Api,
    pub(crate) model: &'a str,
    pub(crate) effort: Option<&'a str>,
    pub(crate) prompt_tokens: u64,
    pub(crate) streamed: bool,
    pub(crate) caller: Option<&'a str>,
    pub(crate) session: Option<u64>,
    pub(crate) turn: (u64, u32),
    pub(crate) draw: u64,
    pub(crate) members: &'a Members<'a>,
    pub(crate) body: &'a [u8],
}

impl Router {
    /// Asks the policies of the route that takes a call; `None` when it has none.
    pub(crate) fn consider(&self, known: &Known<'_>, now: Instant) -> Option<Considered> {
        let (route, policies) = self.policies(known.model)?;
        let signals = self.steering_snapshot();
        let call = Call {
            route,
            api: known.api,
            model: known.model,
            effort: known.effort,
            prompt_tokens: known.prompt_tokens,
            streamed: known.streamed,
            caller: known.caller,
            session: known.session,
            turn: known.turn,
            draw: known.draw,
            members: known.members,
            body: known.body,
            signals: &signals,
            floor: self.config().signals.floor,
            router: self,
            numeric_share: OnceCell::new(),
        };
        Some(considered(policies, &call, now))
    }
}

/// Asks `policies` and merges what they say.
pub fn considered(policies: &[Installed], call: &Call<'_>, now: Instant) -> Considered {
    let mut considered = Considered { route: call.route.model.clone(), ..Considered::default() };
    for Installed { policy, act } in policies {
        let Thought { advice, held, mark, place, cannot, arm, expected } = policy.consider(call, now);
        considered.places.extend(place);
        let cannot =
            cannot.into_iter().map(|(action, why)| Told { policy: policy.name(), action, why: Some(why) });
        considered.would_have.extend(cannot);
        let held = held.or((!act).then_some(Held::ObserveOnly));
        considered.arm = arm.filter(|_| held.is_none()).or(considered.arm);
        considered.expected =
            expected.map(|expected| (expected, held.is_none())).or(considered.expected.take());
        for advice in advice {
            if let Advice::StopReasoning(_) = advice {
                // Told by the answer, once it has reasoned so long: then only is something done, or would be.
                let told = Told { policy: policy.name(), action: advice.name(), why: held.map(Held::name) };
                considered.advised.add(advice, told);
                continue;
            }
            let told = Told { policy: policy.name(), action: advice.name(), why: held.map(Held::name) };
            if held.is_some() {
                considered.would_have.push(told);
                continue;
            }
            match advice {
                // Told when the plan shows that somebody else took the call, when the wait is over, or when an
                // answer is ended.
                Advice::Prefer(_)
                | Advice::Avoid(_)
                | Advice::Without(_)
                | Advice::FromTier(_)
                | Advice::Spill { .. }
                | Advice::Queue(..)
                | Advice::Wait(_)
                | Advice::StopReasoning(_) => {}
                Advice::LowerEffort(_)
                | Advice::CapOutput(_)
                | Advice::CapReasoning(_)
                | Advice::Refuse { .. } => considered.done.push(told.clone()),
            }
            considered.advised.add(advice, told);
        }
        considered.marks.push(Mark { policy: Arc::clone(policy), note: mark, act: *act });
    }
    considered
}
