//! Dead air in the middle of reasoning, with or without keep-alives: they keep a connection open and a
//! client's timer calm, and say nothing about tokens.

use serde::Deserialize;
use serde_json::{Value, json};
use sseismo_trace::Micros;

use super::Behaviour;
use crate::ask::Ask;
use crate::draw::Draw;
use crate::plan::{Beat, Plan, What};
use crate::unit::{Share, Span};

/// How the upstream shows that it is alive.
#[derive(Clone, Copy, Debug, Deserialize, PartialEq, Eq)]
#[serde(rename_all = "kebab-case")]
enum KeepAlive {
    None,
    /// An SSE comment.
    Comment,
    /// The API's own event: `ping`, `keepalive`.
    Event,
}

/// `kind = "dead-air"`.
#[derive(Clone, Debug, Deserialize)]
#[serde(default, deny_unknown_fields, rename_all = "kebab-case")]
pub(super) struct DeadAir {
    /// How long each silence lasts.
    silence: Span,
    /// How many there are in a stream.
    times: u32,
    /// What is sent meanwhile.
    keep_alive: KeepAlive,
    /// How often it is sent.
    every: Span,
    /// How far a silence strays from its length, as a share of it.
    jitter: Share,
}

impl Default for DeadAir {
    fn default() -> Self {
        Self {
            silence: Span::ms(5_000),
            times: 1,
            keep_alive: KeepAlive::None,
            every: Span::ms(1_000),
            jitter: Share(0.1),
        }
    }
}

impl Behaviour for DeadAir {
    fn shape(&mut self, _: &Ask, plan: &mut Plan, draw: &mut Draw) -> Option<Value> {
        let mut starts = Vec::new();
        for _ in 0..self.times {
            let thinking = plan.thinking().end;
            if thinking < 2 {
                break;
            }
            let place = 1 + draw.index(thinking - 1);
            let from = plan.beats[place - 1].at;
            let silence = self.silence.us() + self.stray(draw);
            plan.delay(place, silence);
            self.keep_alive(plan, place, from, silence);
            starts.push(json!([from, silence]));
        }
        (!starts.is_empty()).then(|| json!({ "silences_us": starts }))
    }
}

impl DeadAir {
    fn stray(&self, draw: &mut Draw) -> i64 {
        crate::unit::micros(self.silence.seconds() * self.jitter.0 * draw.between(-1.0, 1.0))
    }

    fn keep_alive(&self, plan: &mut Plan, place: usize, from: Micros, silence: i64) {
        let comment = match self.keep_alive {
            KeepAlive::None => return,
            KeepAlive::Comment => true,
            KeepAlive::Event => false,
        };
        let every = self.every.us().max(1_000);
        let beats: Vec<Beat> = (1..=(silence - 1) / every)
            .map(|i| Beat { at: Micros(from.0 + i * every), what: What::KeepAlive { comment }, tokens: 0 })
            .collect();
        plan.beats.splice(place..place, beats);
    }
}
