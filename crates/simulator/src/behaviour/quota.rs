//! The kinds of 429. Clients treat them differently: a Codex client waits when there is a Retry-After,
//! gives up at once without one, and never retries a spent quota.

use std::collections::VecDeque;

use serde::Deserialize;
use serde_json::{Value, json};
use sseismo_trace::Micros;

use super::Behaviour;
use crate::ask::Ask;
use crate::draw::Draw;
use crate::plan::{Plan, Refusal};
use crate::unit::Span;

/// What is spent.
#[derive(Clone, Copy, Debug, Deserialize, PartialEq, Eq)]
#[serde(rename_all = "kebab-case")]
enum Of {
    /// Requests in a window.
    Requests,
    /// Tokens in a window; told apart by its message and headers.
    Tokens,
    /// Money: `insufficient_quota`, waiting does not help.
    Credit,
    /// A plan's allowance: `usage_limit_reached`, with the moment it resets.
    Plan,
}

/// `kind = "quota"`.
#[derive(Clone, Debug, Deserialize)]
#[serde(default, deny_unknown_fields, rename_all = "kebab-case")]
pub(super) struct Quota {
    /// What is spent.
    of: Of,
    /// How much a window allows: requests, or prompt tokens. 0 refuses everything.
    limit: u64,
    /// The window.
    window: Span,
    /// Whether a refusal carries Retry-After.
    retry_after: bool,
    #[serde(skip)]
    spent: VecDeque<(Micros, u64)>,
}

impl Default for Quota {
    fn default() -> Self {
        let window = Span::ms(60_000);
        Self { of: Of::Requests, limit: 60, window, retry_after: true, spent: VecDeque::new() }
    }
}

impl Behaviour for Quota {
    fn shape(&mut self, ask: &Ask, plan: &mut Plan, _: &mut Draw) -> Option<Value> {
        while self.spent.front().is_some_and(|(at, _)| ask.at.since(*at).0 >= self.window.us()) {
            self.spent.pop_front();
        }
        let price = if self.of == Of::Tokens { ask.prompt_tokens } else { 1 };
        let spent: u64 = self.spent.iter().map(|(_, price)| price).sum();
        if spent + price <= self.limit {
            self.spent.push_back((ask.at, price));
            return None;
        }
        let wait =
            self.spent.front().map_or(self.window.us(), |(at, _)| self.window.us() - ask.at.since(*at).0);
        self.refuse(plan, wait.div_euclid(1_000_000) + 1);
        Some(json!({ "refused": true, "spent": spent, "limit": self.limit, "wait_us": wait }))
    }
}

impl Quota {
    fn refuse(&self, plan: &mut Plan, seconds: i64) {
        if self.retry_after {
            plan.headers.push(("retry-after", seconds.to_string()));
        }
        let (kind, code, message) = match self.of {
            Of::Requests => {
                plan.headers.push(("x-ratelimit-limit-requests", self.limit.to_string()));
                plan.headers.push(("x-ratelimit-remaining-requests", "0".into()));
                let message = format!("Rate limit reached for requests. Please try again in {seconds}s.");
                ("requests", "rate_limit_exceeded", message)
            }
            Of::Tokens => {
                plan.headers.push(("x-ratelimit-limit-tokens", self.limit.to_string()));
                plan.headers.push(("x-ratelimit-remaining-tokens", "0".into()));
                let message = format!("Rate limit reached for tokens. Please try again in {seconds}s.");
                ("tokens", "rate_limit_exceeded", message)
            }
            Of::Credit => {
                ("insufficient_quota", "insufficient_quota", "You exceeded your current quota.".to_owned())
            }
            Of::Plan => {
                plan.headers.push(("x-codex-primary-reset-after-seconds", seconds.to_string()));
                ("usage_limit_reached", "usage_limit_reached", "The usage limit has been reached.".to_owned())
            }
        };
        plan.refuse(429, Refusal { kind, code, message });
    }
}
