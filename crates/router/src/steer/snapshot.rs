//! What is in force: one value for all calls until the next look, read without a lock.

use std::sync::Arc;

use sseismo_trace::{Detail, Signal, SignatureId};
use tokio::time::Instant;

use super::effect::{Effect, policy_name};
use super::harm::Harmed;
use super::table::Source;
use super::target::Target;
use super::{Answer, Held};
use crate::choice::uniform;
use crate::policy::Told;

/// Keeps the draws of steering apart from those of weights: who is moved must not depend on whose turn it is.
const SALT: u64 = 0x73_74_65_65_72;

/// A call's draw, from 0 to 1: it stays where the share is larger. One for all signals, policies and upstreams, so
/// that no two of them together move what each of them would leave.
pub(crate) fn draw(of_call: u64) -> f64 {
    uniform(of_call ^ SALT, "share")
}

/// A live signal and what is done about it.
#[derive(Clone, Debug)]
pub struct Force {
    /// The signal.
    pub signal: Arc<Signal>,
    /// Which calls it is about.
    pub target: Target,
    /// Who said it.
    pub source: Source,
    /// When it was first heard of.
    pub since: Instant,
    /// When it ends without a further word.
    pub expires: Instant,
    /// What is done about it.
    pub answer: Answer,
    /// What is known of the harm to its calls.
    pub harm: Harmed,
}

/// What a target keeps of the calls that a signal is about.
#[derive(Clone, Debug)]
pub struct Kept {
    /// Which traffic.
    pub target: Target,
    /// What is signalled, or was last.
    pub detail: Detail,
    /// What is done about it.
    pub effect: Effect,
    /// Calls in flight that [`Effect::LimitConcurrency`] leaves.
    pub limit: u64,
    /// The share that it keeps.
    pub acted: f64,
    /// The share that it would keep.
    pub would: f64,
    /// Why it is, or was last, told and not done.
    pub held: Option<Held>,
}

/// Everything in force.
#[derive(Clone, Debug, Default)]
pub struct Snapshot {
    /// Live signals.
    pub forces: Vec<Force>,
    /// Shares that are not whole, or are pulled at.
    pub shares: Vec<Kept>,
    floor: f64,
}

/// One call, were it sent to one place.
#[derive(Clone, Copy, Debug)]
pub struct Called<'a> {
    /// The upstream.
    pub upstream: &'a str,
    /// The model's name there.
    pub model: &'a str,
    /// The route's model.
    pub route: &'a str,
    /// Effort, as the client named it; empty when it did not.
    pub effort: &'a str,
    /// Prompt tokens, estimated.
    pub prompt_tokens: Option<u64>,
    /// Share of numeric characters in the prompt.
    pub numeric_share: Option<f64>,
    /// Whether it is expected to reason long.
    pub deep: bool,
    /// Calls in flight there; deep ones apart.
    pub in_flight: u64,
    /// Deep calls in flight there.
    pub deep_in_flight: u64,
    /// The call's draw: of its session, where it has one.
    pub draw: u64,
}

/// What signals say about one place for one call.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Judged {
    /// It stands last, for this.
    pub last: Option<Told>,
    /// It would stand last, for this.
    pub would: Option<Told>,
    /// Steps less effort there, for this.
    pub lower: Option<Told>,
    /// Effort would be lowered, for this.
    pub would_lower: Option<Told>,
}

impl Snapshot {
    pub(super) fn new(forces: Vec<Force>, shares: Vec<Kept>, floor: f64) -> Self {
        Self { forces, shares, floor }
    }

    /// Nothing is signalled and every share is whole.
    pub fn is_quiet(&self) -> bool {
        self.forces.is_empty() && self.shares.is_empty()
    }

    /// The live signal of a signature that a call of `model` and `effort` at `upstream` belongs to.
    pub fn signalled(&self, signature: SignatureId, called: &Called<'_>) -> Option<&Force> {
        self.forces.iter().find(|force| force.signal.detail.signature() == signature && force.meets(called))
    }

    /// What signals say about one place.
    pub fn judge(&self, called: &Called<'_>) -> Judged {
        let mut judged = Judged::default();
        let draw = draw(called.draw);
        for kept in self.shares.iter().filter(|kept| kept.is_about(called)) {
            let told =
                |why| Told { policy: policy_name(kept.detail.signature()), action: kept.effect.name(), why };
            if kept.moves(called, draw, kept.acted, self.floor) {
                judged.last = judged.last.or(Some(told(None)));
            } else if kept.moves(called, draw, kept.would, self.floor) {
                judged.would = judged.would.or(Some(told(kept.held.map(Held::name))));
            }
        }
        let lowers = |force: &&Force| force.answer.action == Effect::LowerEffort && force.meets(called);
        for force in self.forces.iter().filter(lowers).filter(|force| concerns(&force.signal.detail, called))
        {
            let told = Told {
                policy: policy_name(force.signal.detail.signature()),
                action: force.answer.action.name(),
                why: force.answer.held.map(Held::name),
            };
            let into = if force.answer.acted { &mut judged.lower } else { &mut judged.would_lower };
            into.get_or_insert(told);
        }
        judged
    }
}

impl Kept {
    /// Whether the share is one of calls like this.
    fn is_about(&self, called: &Called<'_>) -> bool {
        let whole = match self.effect {
            Effect::StepShare | Effect::Cool => true,
            Effect::Observe | Effect::Spill | Effect::LimitConcurrency | Effect::LowerEffort => {
                concerns(&self.detail, called)
            }
        };
        self.target.meets(called.upstream, called.model, called.route, called.effort) && whole
    }

    /// Whether a call with this draw goes to somebody else first. A limit rises with its share, from what is
    /// configured at the floor to twenty times as much before it is gone.
    fn moves(&self, called: &Called<'_>, draw: f64, share: f64, floor: f64) -> bool {
        match self.effect {
            Effect::StepShare | Effect::Cool | Effect::Spill => draw > share,
            Effect::LimitConcurrency => draw > floor && share < 1.0 && self.is_full(called, share / floor),
            Effect::Observe | Effect::LowerEffort => false,
        }
    }

    #[expect(clippy::cast_precision_loss, reason = "calls in flight")]
    fn is_full(&self, called: &Called<'_>, factor: f64) -> bool {
        let in_flight = match self.detail {
            Detail::Concurrency { .. } => called.deep_in_flight,
            Detail::SizeWindow { .. }
            | Detail::Saturation { .. }
            | Detail::CountLattice { .. }
            | Detail::Burst { .. }
            | Detail::RetryAmplification { .. } => called.in_flight,
        };
        in_flight as f64 >= self.limit as f64 * factor
    }
}

impl Force {
    fn meets(&self, called: &Called<'_>) -> bool {
        self.target.meets(called.upstream, called.model, called.route, called.effort)
    }
}

/// Whether a signal is about this call, as far as can be known before it is sent.
fn concerns(detail: &Detail, called: &Called<'_>) -> bool {
    match detail {
        Detail::SizeWindow { lo, hi } => {
            called.prompt_tokens.is_some_and(|tokens| (u64::from(*lo)..=u64::from(*hi)).contains(&tokens))
        }
        Detail::Concurrency { .. } => called.deep,
        Detail::Saturation { prompt_tokens, numeric_share } => {
            called.prompt_tokens.is_some_and(|tokens| tokens >= u64::from(*prompt_tokens))
                && called.numeric_share.is_none_or(|share| share >= *numeric_share)
        }
        Detail::CountLattice { .. } | Detail::Burst { .. } | Detail::RetryAmplification { .. } => true,
    }
}
