//! One attempt: which upstream, model and key, for how long, and what it holds until it ends.

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use tokio::time::Instant;

use super::{Lane, Shared, locked};
use crate::breaker::Settings;
use crate::config::Upstream;
use crate::keys::{Key, Keyring};
use crate::outcome::{FailureKind, LimitKind, Outcome};
use crate::policy::Adjust;

/// Why an attempt goes where it goes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Reason {
    /// Drawn by weight.
    Weight,
    /// Drawn by weight from its session: where its prompt cache is.
    Session,
    /// A signal or policy keeps it off the place that would have been first.
    Steered,
    /// The organisation that issued the state that it carries.
    State,
    /// Another key of the upstream that met a limit.
    OtherKey,
    /// Another region than the one that failed.
    OtherRegion,
    /// The next member of the tier.
    NextInTier,
    /// No earlier tier can.
    NextTier,
    /// To see whether an upstream that is left alone has recovered.
    Probe,
    /// The tiers have failed for `rollback_after`.
    Rollback,
    /// Everything is left alone; this was the best of it.
    LastResort,
}

impl Reason {
    /// The name in headers, metrics and logs.
    pub fn name(self) -> &'static str {
        match self {
            Self::Weight => "weight",
            Self::Session => "session",
            Self::Steered => "steered",
            Self::State => "state",
            Self::OtherKey => "other-key",
            Self::OtherRegion => "other-region",
            Self::NextInTier => "next-in-tier",
            Self::NextTier => "next-tier",
            Self::Probe => "probe",
            Self::Rollback => "rollback",
            Self::LastResort => "last-resort",
        }
    }
}

/// One attempt. End it with [`Plan::report`](super::Plan::report) while another could follow, or with
/// [`end`](Self::end); dropped without, it counts for nothing and gives back what it holds.
#[derive(Debug)]
pub struct Attempt {
    /// Its number in this request, from 1.
    pub number: u32,
    /// Where to send it.
    pub upstream: Arc<Upstream>,
    /// The model's name there.
    pub model: Arc<str>,
    /// The key to send; `None`: the upstream takes requests without one.
    pub key: Option<Key>,
    /// Why it goes there.
    pub reason: Reason,
    /// Whether it counts under the fallback's cap.
    pub fallback: bool,
    /// If nothing was committed by then, it is over: the rest of the deadline belongs to the next.
    pub until: Instant,
    /// If a stream was asked for and its head has not come after this long, it is over
    /// ([`FailureKind::NoHeaders`]); `None`: nobody else could take over.
    pub headers_within: Option<Duration>,
    /// Without content for this long, it is over ([`FailureKind::NoContent`]); `None`: no limit is known, or
    /// nobody else could take over.
    pub first_content_within: Option<Duration>,
    /// Changes to the request that were advised.
    pub adjust: Adjust,
    pub(super) place: usize,
    pub(super) hold: Hold,
    pub(super) learn: Learn,
}

/// What an attempt takes up.
#[derive(Debug)]
pub(super) struct Hold {
    pub(super) lane: Arc<Lane>,
    pub(super) probe: Option<u64>,
    pub(super) fallback: Option<FallbackPlace>,
    #[expect(dead_code, reason = "held for its drop")]
    pub(super) flight: Flight,
}

/// An attempt in flight in its lane.
#[derive(Debug)]
pub(super) struct Flight {
    lane: Arc<Lane>,
    deep: bool,
}

impl Flight {
    pub(super) fn begin(lane: &Arc<Lane>, deep: bool) -> Self {
        lane.in_flight.fetch_add(1, Ordering::Relaxed);
        lane.deep_in_flight.fetch_add(u64::from(deep), Ordering::Relaxed);
        Self { lane: lane.clone(), deep }
    }
}

impl Drop for Flight {
    fn drop(&mut self) {
        self.lane.in_flight.fetch_sub(1, Ordering::Relaxed);
        self.lane.deep_in_flight.fetch_sub(u64::from(self.deep), Ordering::Relaxed);
    }
}

/// A place under the fallback's cap.
#[derive(Debug)]
pub(super) struct FallbackPlace(Arc<Shared>);

/// Where an attempt's outcome is written down.
#[derive(Debug)]
pub(super) struct Learn {
    pub(super) shared: Arc<Shared>,
    pub(super) keyring: Arc<Keyring>,
    pub(super) settings: Settings,
    pub(super) effort: Arc<str>,
    pub(super) prompt_tokens: Option<u64>,
    pub(super) started: Instant,
    pub(super) content: bool,
    /// The rollback upstream's success says nothing about the tiers.
    pub(super) in_tiers: bool,
}

impl FallbackPlace {
    /// Takes a place; `None` when all are taken.
    pub(super) fn take(shared: &Arc<Shared>, cap: Option<usize>) -> Option<Self> {
        let cap = cap.and_then(|cap| u64::try_from(cap).ok()).unwrap_or(u64::MAX);
        let free = |taken: u64| (taken < cap).then_some(taken + 1);
        shared.fallbacks.fetch_update(Ordering::AcqRel, Ordering::Acquire, free).ok()?;
        Some(Self(shared.clone()))
    }
}

impl Drop for FallbackPlace {
    fn drop(&mut self) {
        self.0.fallbacks.fetch_sub(1, Ordering::AcqRel);
    }
}

impl Drop for Hold {
    fn drop(&mut self) {
        if let Some(probe) = self.probe.take() {
            locked(&self.lane.breaker).release(probe);
        }
    }
}

impl Attempt {
    /// Content came, reasoning included. The wait is learned; a probe has passed, unless broken streams are
    /// what it looks for.
    pub fn first_content(&mut self, now: Instant) {
        if std::mem::replace(&mut self.learn.content, true) {
            return;
        }
        let wait = now.saturating_duration_since(self.learn.started);
        locked(&self.hold.lane.patience).waited(&self.learn.effort, wait);
        self.hold.lane.harm().waited(&self.learn.effort, self.learn.prompt_tokens, wait, now);
        if let Some(probe) = self.hold.probe {
            locked(&self.hold.lane.breaker).first_content(probe, now);
        }
        self.note_success();
    }

    /// It is over.
    pub fn end(mut self, outcome: Outcome, now: Instant) {
        self.settle(outcome, now);
    }

    pub(super) fn settle(&mut self, outcome: Outcome, now: Instant) {
        locked(&self.hold.lane.breaker).record(outcome, self.hold.probe.take(), now);
        self.hold.lane.harm().ended(outcome, now);
        match outcome {
            Outcome::Good => self.note_success(),
            Outcome::Failed(failure) => {
                let silent = matches!(failure.kind, FailureKind::NoContent | FailureKind::NoHeaders);
                if silent && !self.learn.content {
                    let wait = now.saturating_duration_since(self.learn.started);
                    locked(&self.hold.lane.patience).waited(&self.learn.effort, wait);
                }
                self.note_failure(now);
            }
            Outcome::Limited(limit) => {
                self.rest_key(limit.kind, limit.retry_after, now);
                self.note_failure(now);
            }
            Outcome::Incapable(_) | Outcome::Neutral => {}
        }
    }

    /// Lets the key rest: for this model after a rate limit, for all models when it is refused or out of money.
    fn rest_key(&self, kind: LimitKind, asked: Option<Duration>, now: Instant) {
        let Some(key) = &self.key else { return };
        let settings = self.learn.settings;
        let (model, ordinary) = match kind {
            LimitKind::Rate => (Some(&self.model), settings.cooldown),
            LimitKind::Insufficient | LimitKind::Key => (None, settings.max_cooldown),
            LimitKind::PerIp => return, // no key helps: the breaker has it
        };
        let until = now + asked.unwrap_or(ordinary).min(settings.max_retry_after);
        self.learn.keyring.rest(key.slot, model, until, asked.is_some());
    }

    fn note_success(&self) {
        if self.learn.in_tiers {
            *locked(&self.learn.shared.failing_since) = None;
        }
    }

    fn note_failure(&self, now: Instant) {
        if self.learn.in_tiers {
            locked(&self.learn.shared.failing_since).get_or_insert(now);
        }
    }
}
