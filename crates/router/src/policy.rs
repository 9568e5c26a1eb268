//! Policies: what a route does about a call before it is planned, and what it learns from how the call ended.
//!
//! ```text
//! policy.consider(call)      → a Thought: advice, told or done
//!   merged over all policies → Advised: refuse, wait in a line, change the request, change the order of places
//! policy.ended(entry)        once for each call that was considered, however it ended
//! ```
//!
//! One file each, one line in `KINDS`, one table `[route.NAME]` in the configuration; off unless that table is
//! there, and told as "would have" unless it says `act = true`.
//!
//! **Precedence**, first to last. State and ability (organisation, API, context) decide who may take a call at
//! all; no advice changes that. Then: a refusal ends the call, the first policy's in the order of `KINDS`; waits
//! and lines follow in that order; an upstream that somebody wants left out (for money) is not asked; one that
//! anybody advises against stands last, whoever prefers
//! it; among the others those preferred stand first; then tiers and weights as ever. Of several changes to a
//! request the strictest counts: the most steps less effort, the smallest cap. Signals ([`steer`](crate::steer))
//! are heard like one more policy that advises against places. But for the ceiling on cost, nobody is left out:
//! whoever stands last is still asked when nobody else can.

use std::any::Any;
use std::cell::OnceCell;
use std::fmt;
use std::hash::{BuildHasher as _, BuildHasherDefault, DefaultHasher};
use std::sync::Arc;
use std::time::Duration;

use hyper::HeaderMap;
use serde::Serialize;
use serde_json::Value;
use sseismo_capture::tap::prompt_numeric_share;
use sseismo_trace::{Api, SignatureId};
use tokio::time::Instant;

use crate::access::Entry;
use crate::breaker::State;
use crate::choice::Router;
use crate::config::{Member, Route, Section, Upstream};
use crate::rewrite::Members;
use crate::steer::{Called, Force, Held, Snapshot};

pub mod adjust;
pub mod aimd_share;
pub mod canary;
mod considered;
pub mod content_checks;
pub mod cost_ceiling;
pub mod deep_concurrency;
pub mod effort;
mod hour;
pub mod line;
pub mod prompt_shape;
pub mod reasoning_budget;
pub mod size_window;
pub mod token_bucket;
pub mod warm_up;

pub use adjust::Adjust;
pub(crate) use considered::Known;
pub use considered::{Advised, Considered, considered};
pub use content_checks::Expected;
pub use line::{Line, Place};

/// Every policy, in the order of precedence.
pub(crate) const KINDS: [Kind; 10] = [
    Kind { name: content_checks::NAME, read: content_checks::read, write_up: true },
    Kind { name: cost_ceiling::NAME, read: cost_ceiling::read, write_up: false },
    Kind { name: reasoning_budget::NAME, read: reasoning_budget::read, write_up: false },
    Kind { name: token_bucket::NAME, read: token_bucket::read, write_up: true },
    Kind { name: canary::NAME, read: canary::read, write_up: false },
    Kind { name: deep_concurrency::NAME, read: deep_concurrency::read, write_up: true },
    Kind { name: prompt_shape::NAME, read: prompt_shape::read, write_up: true },
    Kind { name: size_window::NAME, read: size_window::read, write_up: true },
    Kind { name: warm_up::NAME, read: warm_up::read, write_up: false },
    Kind { name: aimd_share::NAME, read: aimd_share::read, write_up: false },
];

/// One kind of policy.
#[derive(Clone, Copy)]
pub(crate) struct Kind {
    /// The name of its table.
    name: &'static str,
    read: Read,
    /// Whether the write-ups have figures for it, so that the route's `preset = "write-up"` turns it on.
    write_up: bool,
}

/// Reads a policy's own table, given the route, whose policies are not read yet; faults go to the section, `None`
/// when it cannot be used.
pub(crate) type Read = fn(&Section<'_>, &Route) -> Option<Arc<dyn Policy>>;

/// One way to treat calls of a route.
pub trait Policy: Any + fmt::Debug + Send + Sync {
    /// Its name in the configuration, in metrics and in logs.
    fn name(&self) -> &'static str;

    /// What to do about a call. Called once per call, on the way of the call: quick, and never waiting.
    fn consider(&self, call: &Call<'_>, now: Instant) -> Thought;

    /// A request of a call that was considered is about to be sent to `upstream`; told or done.
    fn began(&self, _upstream: &Upstream, _mark: u64, _now: Instant) {}

    /// The head of `upstream`'s answer to it has come. `slot` is the key that was sent.
    fn answered(&self, _upstream: &Upstream, _slot: Option<u16>, _headers: &HeaderMap, _now: Instant) {}

    /// A call that was considered has ended. `mark` is the one of its [`Thought`]. Returned is what the policy
    /// itself does about that, to be counted and logged: it disarms a check, it halts a canary.
    fn ended(&self, _entry: &Entry, _mark: u64, _now: Instant) -> Option<&'static str> {
        None
    }

    /// What it knows, for operators. No texts, no keys.
    fn view(&self, _now: Instant) -> Option<Value> {
        None
    }

    /// The same policy under a changed configuration, with what `old` has learned; `None`: nothing is learned
    /// that could be kept. `old` is of the same name.
    fn after(&self, _old: &dyn Policy) -> Option<Arc<dyn Policy>> {
        None
    }
}

/// What a policy thinks of one call.
#[derive(Debug, Default)]
pub struct Thought {
    /// What to do.
    pub advice: Vec<Advice>,
    /// Why it must not be done, whatever the configuration says: then it is told only.
    pub held: Option<Held>,
    /// The policy's own note on this call, given back when it has ended.
    pub mark: u64,
    /// A place in a line that the call holds until it has ended.
    pub place: Option<Place>,
    /// What the policy is for and cannot do about this call: an action, and why.
    pub cannot: Vec<(&'static str, &'static str)>,
    /// The arm of a comparison that the call belongs to, when it acts: the traces' `canary_arm`.
    pub arm: Option<&'static str>,
    /// What the answer is held against.
    pub expected: Option<Arc<Expected>>,
}

impl Thought {
    /// Nothing to do; the call is still remembered with `mark`.
    pub fn nothing(mark: u64) -> Self {
        Self { mark, ..Self::default() }
    }
}

/// One thing to do about a call.
#[derive(Clone, Debug)]
pub enum Advice {
    /// These upstreams, by name, before others.
    Prefer(Vec<Arc<str>>),
    /// These upstreams after all others.
    Avoid(Vec<Arc<str>>),
    /// These upstreams not at all, not even when nobody else can.
    Without(Vec<Arc<str>>),
    /// The tiers before this one (from 0) after all others.
    FromTier(usize),
    /// The primary after all others: the first tier, or of a single tier the heaviest member.
    Spill {
        /// The cheapest of the others first, by configured prices, instead of the next by tier and weight.
        cheapest: bool,
    },
    /// Wait for a place in this line, so long at most; then, or when the line is full, go on as if there were
    /// none.
    Queue(Arc<Line>, Duration),
    /// So many steps less effort than asked for, where the request states one.
    LowerEffort(u8),
    /// Generated tokens at most, in the request's own parameter.
    CapOutput(u64),
    /// Reasoning tokens at most, where the API has a parameter for it.
    CapReasoning(u64),
    /// An answer that streams more raw reasoning than so many tokens, estimated, is ended there.
    StopReasoning(u64),
    /// Wait so long, then go on.
    Wait(Duration),
    /// No upstream is asked.
    Refuse {
        /// When to come back; `None`: the same request would be refused again.
        retry_after: Option<Duration>,
        /// What the client is told: no names of upstreams, no keys.
        message: &'static str,
    },
}

impl Advice {
    /// The name in metrics and logs.
    pub fn name(&self) -> &'static str {
        match self {
            Self::Prefer(_) => "prefer",
            Self::Avoid(_) => "avoid",
            Self::Without(_) => "without",
            Self::FromTier(_) => "from-tier",
            Self::Spill { .. } => "spill",
            Self::Queue(..) => "queue",
            Self::LowerEffort(_) => "lower-effort",
            Self::CapOutput(_) => "cap-output",
            Self::CapReasoning(_) => "cap-reasoning",
            Self::StopReasoning(_) => "stop-reasoning",
            Self::Wait(_) => "wait",
            Self::Refuse { .. } => "refuse",
        }
    }
}

/// What a policy may see of a call. Texts are for looking at, never for keeping.
#[derive(Debug)]
pub struct Call<'a> {
    /// The route that takes it.
    pub route: &'a Route,
    /// The API spoken.
    pub api: Api,
    /// The model as the client named it.
    pub model: &'a str,
    /// Reasoning effort, as the client named it.
    pub effort: Option<&'a str>,
    /// Prompt tokens, estimated.
    pub prompt_tokens: u64,
    /// Whether a stream is asked for.
    pub streamed: bool,
    /// The name that the caller's token stands for.
    pub caller: Option<&'a str>,
    /// Hash of its session, where it names one.
    pub session: Option<u64>,
    /// Hash of the client's turn, and which attempt of the client it is, from 1.
    pub turn: (u64, u32),
    /// Looks random, and is the same for all calls of a session.
    pub draw: u64,
    /// The body's members.
    pub members: &'a Members<'a>,
    /// The whole body, decoded.
    pub body: &'a [u8],
    /// What is signalled.
    pub signals: &'a Snapshot,
    /// The part of its ordinary calls that an upstream keeps, whatever is signalled.
    pub floor: f64,
    router: &'a Router,
    numeric_share: OnceCell<Option<f64>>,
}

impl<'a> Call<'a> {
    /// Whether the client asks for much reasoning: see [`effort::is_deep`].
    pub fn is_deep(&self) -> bool {
        effort::is_deep(self.effort)
    }

    /// Share of the prompt's characters that are numeric, as traces have it; looked at once, when asked for.
    pub fn numeric_share(&self) -> Option<f64> {
        *self.numeric_share.get_or_init(|| prompt_numeric_share(self.body))
    }

    /// Where an upstream's breaker stands for the route's model, and since when it is closed again, if it was
    /// ever open.
    pub fn breaker(&self, upstream: &Upstream, now: Instant) -> (State, Option<Instant>) {
        self.router.standing(upstream, self.route, now)
    }

    /// The upstreams that ordinary calls of the route go to.
    pub fn primary(&self) -> Vec<&'a Arc<Upstream>> {
        primary(self.route).collect()
    }

    /// The live signal of a signature that is about calls like this at one of the primary's upstreams.
    pub fn signalled(&self, signature: SignatureId) -> Option<&'a Force> {
        primary(self.route).find_map(|upstream| {
            let called = Called {
                upstream: &upstream.name,
                model: upstream.model(self.model),
                route: &self.route.model,
                effort: self.effort.unwrap_or_default(),
                prompt_tokens: Some(self.prompt_tokens),
                numeric_share: None,
                deep: self.is_deep(),
                in_flight: 0,
                deep_in_flight: 0,
                draw: self.draw,
            };
            self.signals.signalled(signature, &called)
        })
    }

    /// Whether the call is among those that an upstream keeps of its ordinary ones when its share is this. All who
    /// move shares ask for the same draw: who is within the floor for one of them is so for all.
    pub fn keeps(&self, share: f64) -> bool {
        crate::steer::draw(self.draw) <= share.max(self.floor)
    }

    /// The same for the calls of a session, or else of a caller, across restarts of the relay.
    pub fn stable(&self, salt: &str) -> f64 {
        let caller = || self.caller.map(|name| BuildHasherDefault::<DefaultHasher>::default().hash_one(name));
        crate::choice::uniform(self.session.or_else(caller).unwrap_or(self.draw), salt)
    }

    /// A number from 0 to 1 that is the same for all calls of a session; `salt` is the policy's own, so that
    /// not always the same sessions are chosen.
    pub fn uniform(&self, salt: &str) -> f64 {
        crate::choice::uniform(self.draw, salt)
    }
}

/// The first tier of several, or of a single tier the heaviest member.
pub(crate) fn primary(route: &Route) -> impl Iterator<Item = &Arc<Upstream>> {
    let first = route.tiers.first().map_or(&[][..], Vec::as_slice);
    let heavier = |a: &(usize, &Member), b: &(usize, &Member)| {
        a.1.weight.total_cmp(&b.1.weight).then(b.0.cmp(&a.0)) // of equals the first
    };
    let heaviest = first.iter().enumerate().max_by(heavier).map(|(place, _)| place);
    let several = route.tiers.len() > 1;
    let members = first.iter().enumerate().filter(move |(place, _)| several || Some(*place) == heaviest);
    members.map(|(_, member)| &member.upstream)
}

/// Something that was done about a call, or would have been.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Told {
    /// The policy, or `signal:SIGNATURE`.
    pub policy: &'static str,
    /// What.
    pub action: &'static str,
    /// Why it was not done.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub why: Option<&'static str>,
}

/// A policy of a route, as configured.
#[derive(Clone, Debug)]
pub struct Installed {
    /// The policy.
    pub policy: Arc<dyn Policy>,
    /// Whether it acts; otherwise it tells.
    pub act: bool,
}

impl Installed {
    /// The same with what the policy of its name among `old` has learned.
    #[must_use]
    pub(crate) fn after(&self, old: &[Self]) -> Self {
        let known = old.iter().find(|old| old.policy.name() == self.policy.name());
        let policy = known.and_then(|old| self.policy.after(&*old.policy));
        Self { policy: policy.unwrap_or_else(|| Arc::clone(&self.policy)), act: self.act }
    }
}

/// Reads the policies of a route: one table each. With the route's `preset = "write-up"` those that the write-ups
/// have figures for are there without a table, too, and tell.
pub(crate) fn read(section: &Section<'_>, route: &Route) -> Vec<Installed> {
    let preset = section.word("preset", &["write-up"]).is_some();
    let installed = |Kind { name, read, write_up }: Kind| {
        let own = section.section(name);
        let by_preset = || (preset && write_up && !section.has(name)).then(|| section.empty(name));
        let own = own.or_else(by_preset)?.with_preset(preset && write_up);
        let act = own.flag("act").unwrap_or(false);
        let policy = read(&own, route);
        own.end();
        Some(Installed { policy: policy?, act })
    };
    KINDS.into_iter().filter_map(installed).collect()
}

/// A refusal.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Refusal {
    /// Whose.
    pub policy: &'static str,
    /// When to come back; `None`: never with the same request.
    pub retry_after: Option<Duration>,
    /// What the client is told.
    pub message: &'static str,
}

/// Names of the route's upstreams under `key`; a name that is none is a fault.
pub(crate) fn upstreams(section: &Section<'_>, key: &'static str, route: &Route) -> Vec<Arc<str>> {
    let named = |(at, text): (std::ops::Range<usize>, &str)| {
        let found = route.upstreams().find(|upstream| *upstream.name == *text);
        if found.is_none() {
            section.fault_at(&at, &format!("the route has no upstream `{text}`"));
        }
        found.map(|upstream| Arc::clone(&upstream.name))
    };
    section.texts(key).into_iter().filter_map(named).collect()
}

/// Whether the write-ups' figures stand where nothing else is stated.
pub(crate) fn by_write_up(section: &Section<'_>) -> bool {
    section.word("preset", &["write-up"]).is_some() || section.has_preset()
}

/// A figure that nobody has measured for everybody: stated, or that of the write-ups with
/// `preset = "write-up"`, here or in the route.
pub(crate) fn figure(section: &Section<'_>, key: &'static str, write_up: u64) -> Option<u64> {
    let preset = by_write_up(section);
    let stated = section.whole(key, 1..=u64::MAX);
    if stated.is_none() && !preset && !section.has(key) {
        section.fault(
            key,
            &format!(
                "`{key}` is missing: state it, or take the write-ups' {write_up} with preset = \"write-up\""
            ),
        );
    }
    stated.or(preset.then_some(write_up))
}

#[cfg(test)]
pub(crate) mod tests;
