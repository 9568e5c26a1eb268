//! Sizes in a window all go to one of K shards, each with a queue: latency of just that window inflates,
//! p50 and p99, and nothing fails. Other sizes are spread over the other shards.

use std::path::Path;

use serde::Deserialize;
use serde_json::{Value, json};
use sseismo_trace::Micros;

use super::{Behaviour, ordered};
use crate::ask::Ask;
use crate::draw::Draw;
use crate::plan::Plan;

/// Which size decides.
#[derive(Clone, Copy, Debug, Deserialize, PartialEq, Eq)]
#[serde(rename_all = "kebab-case")]
enum Size {
    Prompt,
    Output,
}

/// `kind = "shard-pinning"`.
#[derive(Clone, Debug, Deserialize)]
#[serde(default, deny_unknown_fields, rename_all = "kebab-case")]
pub(super) struct ShardPinning {
    /// Smallest and largest size of the window, in tokens.
    window: [u64; 2],
    /// Which size: the prompt's, or that of all generated tokens.
    size: Size,
    /// Number of shards.
    shards: usize,
    /// Requests that a shard works on at a time.
    slots: usize,
    /// When each slot of each shard is free again.
    #[serde(skip)]
    free: Vec<Vec<Micros>>,
}

impl Default for ShardPinning {
    fn default() -> Self {
        Self { window: [150, 220], size: Size::Prompt, shards: 8, slots: 4, free: Vec::new() }
    }
}

impl Behaviour for ShardPinning {
    fn ready(&mut self, _: &Path) -> Result<(), (&'static str, String)> {
        if self.shards < 2 {
            return Err(("shards", "pinning needs at least 2 shards".into()));
        }
        if self.slots == 0 {
            return Err(("slots", "a shard needs at least 1 slot".into()));
        }
        self.free = vec![vec![Micros(0); self.slots]; self.shards];
        ordered("window", self.window)
    }

    fn shape(&mut self, ask: &Ask, plan: &mut Plan, draw: &mut Draw) -> Option<Value> {
        let size = match self.size {
            Size::Prompt => ask.prompt_tokens,
            Size::Output => plan.reasoning + plan.output,
        };
        let pinned = (self.window[0]..=self.window[1]).contains(&size);
        let shard = if pinned { 0 } else { 1 + draw.index(self.shards - 1) };
        let slot = self.free[shard].iter_mut().min()?;
        let wait = slot.since(ask.at).0.max(0);
        plan.head_at.0 += wait;
        plan.delay(0, wait);
        *slot = Micros(ask.at.0 + plan.end().0);
        pinned.then(|| json!({ "shard": shard, "wait_us": wait, "size": size }))
    }
}
