//! Token counts as Codex writes them, in its rollouts and in the output of `codex exec --json`.

use serde::Deserialize;
use sseismo_trace::Usage;

/// The counts of one response, or their running total.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(default)]
pub(super) struct Tokens {
    #[serde(rename = "input_tokens")]
    input: Option<u64>,
    #[serde(rename = "cached_input_tokens")]
    cached: Option<u64>,
    #[serde(rename = "output_tokens")]
    output: Option<u64>,
    #[serde(rename = "reasoning_output_tokens")]
    reasoning: Option<u64>,
    #[serde(rename = "total_tokens")]
    total: Option<u64>,
}

impl Tokens {
    /// What was added since an `earlier` running total; `None` when a count went down, so that this
    /// total was started anew.
    pub(super) fn since(&self, earlier: &Self) -> Option<Self> {
        let added = |now: Option<u64>, then: Option<u64>| match (now, then) {
            (Some(now), then) => now.checked_sub(then.unwrap_or(0)).map(Some),
            (None, _) => Some(None),
        };
        Some(Self {
            input: added(self.input, earlier.input)?,
            cached: added(self.cached, earlier.cached)?,
            output: added(self.output, earlier.output)?,
            reasoning: added(self.reasoning, earlier.reasoning)?,
            total: added(self.total, earlier.total)?,
        })
    }

    /// Whether a response can have these counts. After a compaction Codex writes estimates of the
    /// context's size into `total_tokens` alone: no response takes in nothing and gives nothing.
    pub(super) fn is_of_a_response(&self) -> bool {
        self.input.unwrap_or(0) > 0 || self.output.unwrap_or(0) > 0
    }

    /// The counts in our own terms.
    #[expect(clippy::cast_precision_loss, reason = "token counts stay far below 2^53")]
    pub(super) fn usage(&self) -> Usage {
        Usage {
            input: self.input,
            cached: self.cached,
            output: self.output,
            reasoning: self.reasoning.map(|tokens| tokens as f64),
        }
    }
}
