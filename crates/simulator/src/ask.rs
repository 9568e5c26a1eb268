//! What an upstream can see of a request: shape and sizes, no text.

use serde::Serialize;
use sseismo_trace::{Api, Micros};

/// How much is generated for a request, in tokens.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub struct Amounts {
    /// Reasoning.
    pub reasoning: u64,
    /// The answer.
    pub output: u64,
}

/// One request as it reaches the upstream.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Ask {
    /// Its number since the upstream started, from 0.
    pub number: u64,
    /// When it came, since the upstream started.
    pub at: Micros,
    /// The API spoken: Responses, Chat Completions or Messages.
    pub api: Api,
    /// Whether the answer is to be streamed.
    pub streamed: bool,
    /// Whether a Chat Completions client asked for usage at the end of a stream.
    pub include_usage: bool,
    /// Whether JSON was asked for.
    pub wants_json: bool,
    /// The model asked for.
    pub model: String,
    /// The reasoning effort asked for.
    pub effort: Option<String>,
    /// Bytes of the request's body.
    pub prompt_bytes: u64,
    /// Prompt tokens, as the upstream counts and bills them.
    pub prompt_tokens: u64,
    /// Share of the prompt's characters that are digits or separators inside digit runs.
    pub numeric_share: f64,
    /// The most tokens that may be generated, reasoning included.
    pub max_tokens: Option<u64>,
    /// What is generated for it, where the load says; else the scenario's `[answer]` does.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub amounts: Option<Amounts>,
    /// The session, where the caller names one.
    pub session: Option<u64>,
    /// The client's turn; attempts of one turn share it.
    pub turn: Option<u64>,
    /// Which attempt of its turn, from 1.
    pub attempt: u32,
}

impl Ask {
    /// Whether the request will think deeply, by what is known at its start: effort of high or above.
    pub fn is_deep(&self) -> bool {
        matches!(self.effort.as_deref(), Some("high" | "xhigh" | "max"))
    }
}
