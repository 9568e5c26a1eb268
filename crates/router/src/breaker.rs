//! Whether an upstream's model is left alone: outcomes and times in, [`Admit`] out.
//!
//! One breaker stands for one model at one upstream. It is a value with times as arguments; who holds it locks
//! it.
//!
//! ```text
//!            3 failures in a row, 50 % of ≥ 20 calls, Retry-After, health check
//!   closed ────────────────────────────────────────────────────────────────────► open
//!      ▲                                                                     cooldown │ or every 20th request
//!      └── a good probe (after a failure rate: ≤ 20 % of 5 probes failed) ◄─── half-open: ONE probe
//!                                              a failed probe: open again, cooldown × 2 ┘
//! ```
//!
//! What other gateways got wrong is why it is so (`gateways` in the README): a cooldown that nobody re-checks
//! stayed for 144 hours, so every wait has a ceiling and ends in a probe; a 429 during the probe kept the slot
//! for good, so an outcome that says nothing releases it; a second cooldown kept the first, shorter end, so
//! the later end counts; and one threshold on 50 samples decides on noise, so opening and closing have
//! thresholds of their own.

use std::collections::VecDeque;
use std::time::Duration;

use tokio::time::Instant;

use crate::outcome::{Failure, FailureKind, LimitKind, Outcome};

/// `[breaker]`: when breakers open and close.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Settings {
    /// Failures in a row that open it. 3: what keeps hits on a dead primary at 3 of 8.
    pub failures: u32,
    /// Calls that the failure rate looks back on.
    pub window: usize,
    /// How long it looks back.
    pub window_age: Duration,
    /// Calls without which there is no rate.
    pub min_calls: usize,
    /// Share of failures at which it opens.
    pub open_at: f64,
    /// Share of failed probes at which it closes again after having opened for its rate.
    pub close_at: f64,
    /// Probes that this share is taken of.
    pub probation: usize,
    /// First cooldown; each failed probe doubles it.
    pub cooldown: Duration,
    /// Longest cooldown.
    pub max_cooldown: Duration,
    /// Longest Retry-After that is honoured; then a probe looks whether it is still true.
    pub max_retry_after: Duration,
    /// Share of the requests turned away that go through as probes all the same, one at a time: recovery is
    /// seen before the cooldown ends. Never below 5 %, except under a Retry-After.
    pub floor_share: f64,
    /// A probe that has not ended by then no longer holds its slot.
    pub probe_timeout: Duration,
}

impl Default for Settings {
    fn default() -> Self {
        Self {
            failures: 3,
            window: 50,
            window_age: Duration::from_mins(1),
            min_calls: 20,
            open_at: 0.5,
            close_at: 0.2,
            probation: 5,
            cooldown: Duration::from_secs(5),
            max_cooldown: Duration::from_mins(1),
            max_retry_after: Duration::from_mins(10),
            floor_share: FLOOR,
            probe_timeout: Duration::from_mins(2),
        }
    }
}

/// The smallest floor share: under it recovery would not be seen for too long.
pub const FLOOR: f64 = 0.05;

/// What a breaker answers to a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Admit {
    /// Go.
    Pass,
    /// Go, and its outcome decides. The number must be given back with the outcome.
    Probe(u64),
    /// Not now.
    Refuse {
        /// When it will look again.
        until: Instant,
        /// The upstream itself asked for the wait.
        asked: bool,
    },
}

/// What a breaker is in, for metrics and the admin API.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum State {
    /// All traffic passes.
    Closed,
    /// Left alone until then.
    Open(Instant),
    /// The cooldown is over; one probe at a time.
    HalfOpen,
}

/// Why a breaker is open.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Trip {
    /// Failures in a row.
    Failures,
    /// The failure rate.
    Rate,
    /// The upstream asked for a wait.
    RetryAfter,
    /// Health checks in a row.
    Health,
}

/// The breaker of one model at one upstream.
#[derive(Clone, Debug)]
pub struct Breaker {
    settings: Settings,
    state: Inner,
    /// Health checks that failed in a row.
    sick: u32,
    /// The last failure broke streams off after their first content.
    cuts: bool,
    probes: u64,
    /// When it last closed again.
    closed_at: Option<Instant>,
}

#[derive(Clone, Debug)]
enum Inner {
    Closed(Closed),
    Tripped(Tripped),
}

#[derive(Clone, Debug, Default)]
struct Closed {
    in_a_row: u32,
    /// When each of the last calls ended, and whether it failed.
    calls: VecDeque<(Instant, bool)>,
}

#[derive(Clone, Debug)]
struct Tripped {
    why: Trip,
    until: Instant,
    /// Until then no probe at all: the upstream asked for it.
    quiet_until: Option<Instant>,
    cooldown: Duration,
    probe: Option<(u64, Instant)>,
    /// Requests turned away × floor share: 1 is one probe.
    credit: f64,
    /// Failed or not, the last probes.
    probation: VecDeque<bool>,
}

impl Default for Breaker {
    fn default() -> Self {
        Self::new(Settings::default())
    }
}

impl Breaker {
    /// A closed breaker.
    pub fn new(settings: Settings) -> Self {
        Self {
            settings,
            state: Inner::Closed(Closed::default()),
            sick: 0,
            cuts: false,
            probes: 0,
            closed_at: None,
        }
    }

    /// Takes over new settings and keeps what is known.
    pub fn configure(&mut self, settings: Settings) {
        self.settings = settings;
    }

    /// Asks for one request. A probe must be ended by [`record`](Self::record) or
    /// [`release`](Self::release).
    pub fn admit(&mut self, now: Instant) -> Admit {
        let settings = self.settings;
        let Inner::Tripped(tripped) = &mut self.state else { return Admit::Pass };
        if tripped.probe.is_some_and(|(_, since)| now >= since + settings.probe_timeout) {
            tripped.probe = None;
        }
        let quiet = tripped.quiet(now);
        if !quiet {
            tripped.credit = (tripped.credit + settings.floor_share.max(FLOOR)).min(1.0);
        }
        let due = !quiet && (now >= tripped.until || tripped.credit > 1.0 - 1e-9);
        if !due || tripped.probe.is_some() {
            return Admit::Refuse { until: tripped.end().max(now), asked: quiet };
        }
        tripped.credit = 0.0;
        self.probes += 1;
        tripped.probe = Some((self.probes, now));
        Admit::Probe(self.probes)
    }

    /// Lets one request through although the breaker is open, because nothing else is left: as a probe when
    /// the slot is free. Only a wait that the upstream asked for still holds.
    pub fn force(&mut self, now: Instant) -> Admit {
        match &mut self.state {
            Inner::Tripped(tripped) if tripped.quiet(now) => {
                Admit::Refuse { until: tripped.end(), asked: true }
            }
            Inner::Tripped(tripped) if tripped.probe.is_none() => {
                self.probes += 1;
                tripped.probe = Some((self.probes, now));
                Admit::Probe(self.probes)
            }
            Inner::Closed(_) | Inner::Tripped(_) => Admit::Pass,
        }
    }

    /// The first content of a probe: enough to close, unless broken streams are why it is open.
    pub fn first_content(&mut self, probe: u64, now: Instant) {
        if !self.cuts {
            self.record(Outcome::Good, Some(probe), now);
        }
    }

    /// A probe ended without saying anything.
    pub fn release(&mut self, probe: u64) {
        if let Inner::Tripped(tripped) = &mut self.state
            && tripped.holds(probe)
        {
            tripped.probe = None;
        }
    }

    /// Takes in an outcome; `probe` is the number that [`admit`](Self::admit) gave.
    pub fn record(&mut self, outcome: Outcome, probe: Option<u64>, now: Instant) {
        let wait = outcome.retry_after();
        match outcome {
            Outcome::Good => self.good(probe, now),
            Outcome::Failed(Failure { kind, .. }) => {
                self.cuts = kind == FailureKind::Cut;
                self.failed(probe, now);
                if let Some(wait) = wait.filter(|wait| self.believes(*wait)) {
                    self.quiet(wait, now);
                }
            }
            Outcome::Limited(limit) if limit.kind == LimitKind::PerIp => {
                self.quiet(wait.unwrap_or(self.settings.cooldown), now);
                self.released(probe);
            }
            // Keys are cooled elsewhere; the rest is no fault of the upstream.
            Outcome::Limited(_) | Outcome::Incapable(_) | Outcome::Neutral => self.released(probe),
        }
    }

    /// Takes in a health check. A good one ends the cooldown, not the probing: it proves no generation.
    pub fn health(&mut self, well: bool, now: Instant) {
        self.sick = if well { 0 } else { self.sick.saturating_add(1) };
        let sick = self.sick >= self.settings.failures;
        match &mut self.state {
            Inner::Closed(_) if sick => self.trip(Trip::Health, now),
            Inner::Closed(_) => {}
            Inner::Tripped(tripped) if well => tripped.until = tripped.until.min(now),
            Inner::Tripped(tripped) => tripped.until = tripped.until.max(now + tripped.cooldown),
        }
    }

    /// What it is in.
    pub fn state(&self, now: Instant) -> State {
        match &self.state {
            Inner::Closed(_) => State::Closed,
            Inner::Tripped(tripped) if now < tripped.end() => State::Open(tripped.end()),
            Inner::Tripped(_) => State::HalfOpen,
        }
    }

    /// When it last closed again, if it was ever open.
    pub fn closed_at(&self) -> Option<Instant> {
        self.closed_at
    }

    /// Why it is open.
    pub fn tripped(&self) -> Option<Trip> {
        match &self.state {
            Inner::Closed(_) => None,
            Inner::Tripped(tripped) => Some(tripped.why),
        }
    }

    fn released(&mut self, probe: Option<u64>) {
        if let Some(probe) = probe {
            self.release(probe);
        }
    }

    fn good(&mut self, probe: Option<u64>, now: Instant) {
        let settings = self.settings;
        match &mut self.state {
            Inner::Closed(closed) => {
                closed.in_a_row = 0;
                closed.push(&settings, false, now);
            }
            Inner::Tripped(tripped) => {
                // What began before it opened says nothing about now.
                let Some(probe) = probe.filter(|&probe| tripped.holds(probe)) else { return };
                if tripped.passes(&settings) {
                    self.state = Inner::Closed(Closed::default());
                    self.closed_at = Some(now);
                    self.cuts = false;
                } else {
                    tripped.until = tripped.until.min(now);
                    self.release(probe);
                }
            }
        }
    }

    fn failed(&mut self, probe: Option<u64>, now: Instant) {
        let settings = self.settings;
        match &mut self.state {
            Inner::Closed(closed) => {
                closed.in_a_row += 1;
                closed.push(&settings, true, now);
                if closed.in_a_row >= settings.failures {
                    self.trip(Trip::Failures, now);
                } else if closed.rate(settings.min_calls).is_some_and(|rate| rate >= settings.open_at) {
                    self.trip(Trip::Rate, now);
                }
            }
            Inner::Tripped(tripped) => {
                if !probe.is_some_and(|probe| tripped.holds(probe)) {
                    return;
                }
                tripped.probe = None;
                tripped.tried(&settings, true);
                tripped.cooldown = (tripped.cooldown * 2).min(settings.max_cooldown);
                tripped.until = tripped.until.max(now + tripped.cooldown);
            }
        }
    }

    /// Whether a wait is meant for everybody. A short one after a single failure is that request's own: one
    /// 503 with `retry-after: 1` among thousands must not turn all traffic away.
    fn believes(&self, wait: Duration) -> bool {
        match &self.state {
            Inner::Closed(closed) => wait >= self.settings.cooldown || closed.in_a_row > 1,
            Inner::Tripped(_) => true,
        }
    }

    /// The upstream asks to be left alone.
    fn quiet(&mut self, wait: Duration, now: Instant) {
        let until = now + wait.min(self.settings.max_retry_after);
        if matches!(self.state, Inner::Closed(_)) {
            self.trip(Trip::RetryAfter, now);
            if let Inner::Tripped(tripped) = &mut self.state {
                tripped.until = until;
            }
        }
        if let Inner::Tripped(tripped) = &mut self.state {
            tripped.quiet_until = tripped.quiet_until.max(Some(until));
            tripped.until = tripped.until.max(until);
        }
    }

    fn trip(&mut self, why: Trip, now: Instant) {
        let cooldown = self.settings.cooldown.min(self.settings.max_cooldown);
        self.state = Inner::Tripped(Tripped {
            why,
            until: now + cooldown,
            quiet_until: None,
            cooldown,
            probe: None,
            credit: 0.0,
            probation: VecDeque::new(),
        });
    }
}

impl Closed {
    fn push(&mut self, settings: &Settings, failed: bool, now: Instant) {
        self.calls.push_back((now, failed));
        while self.calls.len() > settings.window
            || self.calls.front().is_some_and(|(at, _)| *at + settings.window_age < now)
        {
            self.calls.pop_front();
        }
    }

    /// Share of failures, once there are `min_calls`.
    fn rate(&self, min_calls: usize) -> Option<f64> {
        let failed = self.calls.iter().filter(|(_, failed)| *failed).count();
        (self.calls.len() >= min_calls.max(1)).then(|| share(failed, self.calls.len()))
    }
}

impl Tripped {
    fn holds(&self, probe: u64) -> bool {
        self.probe.is_some_and(|(held, _)| held == probe)
    }

    /// Whether the upstream asked to be left alone until later than now.
    fn quiet(&self, now: Instant) -> bool {
        self.quiet_until.is_some_and(|until| now < until)
    }

    fn end(&self) -> Instant {
        self.quiet_until.map_or(self.until, |quiet| quiet.max(self.until))
    }

    fn tried(&mut self, settings: &Settings, failed: bool) {
        self.probation.push_back(failed);
        while self.probation.len() > settings.probation.max(1) {
            self.probation.pop_front();
        }
    }

    /// Whether a good probe closes the breaker.
    fn passes(&mut self, settings: &Settings) -> bool {
        self.tried(settings, false);
        let failed = self.probation.iter().filter(|failed| **failed).count();
        match self.why {
            Trip::Failures | Trip::RetryAfter | Trip::Health => true,
            Trip::Rate => {
                self.probation.len() >= settings.probation
                    && share(failed, self.probation.len()) <= settings.close_at
            }
        }
    }
}

#[expect(clippy::cast_precision_loss, reason = "windows hold some hundred calls")]
fn share(part: usize, whole: usize) -> f64 {
    part as f64 / whole as f64
}

#[cfg(test)]
mod tests;
