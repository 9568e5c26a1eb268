//! What the upstream means to do with one request: tokens and their times, before any bytes.
//!
//! In: an [`Ask`] and draws. Out: a [`Plan`] that behaviours then change, each in its turn.

use serde::Serialize;
use serde_json::Value;
use sseismo_trace::{Micros, Phase};

use crate::draw::Draw;
use crate::unit::micros;

/// What a step of the stream carries.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum What {
    /// Reasoning tokens, as raw text.
    Reasoning,
    /// Summary text: its tokens are not those that are billed as reasoning.
    Summary,
    /// The summary goes on in a new part.
    NextPart,
    /// Answer tokens.
    Text,
    /// A keep-alive: an SSE comment, or the API's own event.
    KeepAlive {
        /// Sent as a comment rather than as an event.
        comment: bool,
    },
    /// A data line that is not JSON.
    Malformed,
    /// The API's error event; the plan's [`Plan::error`] says which.
    Error,
}

/// One event of the stream.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Beat {
    /// When it is generated, since the request came.
    pub at: Micros,
    /// What it carries.
    pub what: What,
    /// Tokens of text in it.
    pub tokens: u32,
}

/// What the answer is worth.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Answer {
    /// Right.
    #[default]
    Right,
    /// Well formed and wrong.
    Wrong,
    /// JSON that breaks off.
    BrokenJson,
    /// A placeholder where the answer should be.
    Placeholder,
    /// Nothing.
    Empty,
}

/// How the bytes end.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Close {
    /// As HTTP ends a body.
    #[default]
    Clean,
    /// The connection closes in the middle of the body.
    Cut,
    /// The connection is reset (RST).
    Reset,
}

/// An error that the upstream states.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Refusal {
    /// The API's error type.
    pub kind: &'static str,
    /// The API's error code.
    pub code: &'static str,
    /// For people.
    pub message: String,
}

/// One thing that was done to a request on purpose.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Injection {
    /// The behaviour's name in the scenario file.
    pub behaviour: &'static str,
    /// What exactly: times in µs since the request came.
    pub detail: Value,
}

/// What will happen to one request.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Plan {
    /// HTTP status.
    pub status: u16,
    /// Response headers beside the API's own.
    pub headers: Vec<(&'static str, String)>,
    /// When the response's head goes out.
    pub head_at: Micros,
    /// When the first token is generated.
    pub first_at: Micros,
    /// Prompt tokens.
    pub input: u64,
    /// Of these, read from a cache.
    pub cached: u64,
    /// Reasoning tokens, as billed.
    pub reasoning: u64,
    /// Answer tokens.
    pub output: u64,
    /// The steps, in order of time.
    pub beats: Vec<Beat>,
    /// What the answer is worth.
    pub answer: Answer,
    /// Generation stopped at the token limit.
    pub at_limit: bool,
    /// The API's terminal event is sent.
    pub terminal: bool,
    /// An error that is stated: instead of an answer (status ≥ 400) or in the stream.
    pub error: Option<Refusal>,
    /// How the bytes end.
    pub close: Close,
    /// The truth.
    pub injected: Vec<Injection>,
}

impl Plan {
    /// Notes what was done.
    pub(crate) fn note(&mut self, behaviour: &'static str, detail: Value) {
        self.injected.push(Injection { behaviour, detail });
    }

    /// Refuses the request with `status`.
    pub(crate) fn refuse(&mut self, status: u16, error: Refusal) {
        self.status = status;
        self.beats.clear();
        (self.reasoning, self.output) = (0, 0);
        self.first_at = self.head_at;
        self.error = Some(error);
    }

    /// Whether the request is answered at all.
    pub(crate) fn is_answered(&self) -> bool {
        self.status < 400
    }

    /// When the last step is generated.
    pub(crate) fn end(&self) -> Micros {
        self.beats.last().map_or(self.first_at, |beat| beat.at).max(self.head_at)
    }

    /// Moves everything from step `from` on by `by`; with 0, the first token too.
    pub(crate) fn delay(&mut self, from: usize, by: i64) {
        if from == 0 {
            self.first_at.0 += by;
        }
        for beat in self.beats.iter_mut().skip(from) {
            beat.at.0 += by;
        }
    }

    /// Lays reasoning and answer out in the rhythm of `step`, which gives the gap in seconds before each
    /// frame and the tokens in it, and may say in which phase it is asked.
    pub(crate) fn lay(&mut self, draw: &mut Draw, mut step: impl FnMut(&mut Draw, Phase) -> (f64, u32)) {
        self.beats.clear();
        let mut at = self.first_at.seconds();
        for (what, phase, tokens) in
            [(What::Reasoning, Phase::Reasoning, self.reasoning), (What::Text, Phase::Output, self.output)]
        {
            let mut left = u32::try_from(tokens).unwrap_or(u32::MAX);
            while left > 0 {
                let (gap, tokens) = step(draw, phase);
                let tokens = tokens.clamp(1, left);
                if !self.beats.is_empty() {
                    at += gap.max(0.0);
                }
                self.beats.push(Beat { at: Micros(micros(at)), what, tokens });
                left -= tokens;
            }
        }
    }

    /// Places of the steps that carry reasoning or a summary.
    pub(crate) fn thinking(&self) -> std::ops::Range<usize> {
        let end = self.beats.iter().position(|beat| beat.what == What::Text).unwrap_or(self.beats.len());
        0..end
    }
}
