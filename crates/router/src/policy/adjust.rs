//! Changes to a request on its way to an upstream: less effort, smaller caps. Only what the request states, or
//! what its API has a parameter for, is changed; everything else keeps its bytes.

use sseismo_trace::Api;

use super::effort::{self, LEAST_BUDGET};
use crate::rewrite::Members;

/// What to change.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Adjust {
    /// Steps less effort.
    pub steps: u8,
    /// Generated tokens at most.
    pub output: Option<u64>,
    /// Reasoning tokens at most.
    pub reasoning: Option<u64>,
}

impl Adjust {
    /// Whether nothing is to be changed.
    pub fn is_nothing(&self) -> bool {
        *self == Self::default()
    }

    /// At least so many steps less effort.
    pub fn lower(&mut self, steps: u8) {
        self.steps = self.steps.max(steps);
    }

    /// At most so many generated tokens.
    pub fn cap_output(&mut self, tokens: u64) {
        self.output = Some(self.output.map_or(tokens, |known| known.min(tokens)));
    }

    /// At most so many reasoning tokens.
    pub fn cap_reasoning(&mut self, tokens: u64) {
        self.reasoning = Some(self.reasoning.map_or(tokens, |known| known.min(tokens)));
    }

    /// The strictest of both.
    #[must_use]
    pub fn and(mut self, other: Self) -> Self {
        self.lower(other.steps);
        if let Some(tokens) = other.output {
            self.cap_output(tokens);
        }
        if let Some(tokens) = other.reasoning {
            self.cap_reasoning(tokens);
        }
        self
    }

    /// Changes a request of this API.
    pub(crate) fn apply(&self, api: Api, members: &mut Members<'_>) {
        if self.steps > 0 {
            self.apply_effort(members);
        }
        if let Some(tokens) = self.reasoning {
            inner(members, "thinking", |thinking| cap(thinking, "budget_tokens", tokens.max(LEAST_BUDGET)));
        }
        let Some(tokens) = self.output else { return };
        let name = match api {
            Api::Responses => "max_output_tokens",
            Api::Messages => "max_tokens",
            _ if members.get("max_tokens").is_some() => "max_tokens",
            _ => "max_completion_tokens",
        };
        // Anthropic's API refuses a budget that is not smaller than the whole, or smaller than its least.
        let thinks = api == Api::Messages && members.get("thinking").is_some();
        let tokens = if thinks { tokens.max(LEAST_BUDGET + 1) } else { tokens };
        if members.get(name).is_none() {
            members.set(name, tokens.to_string());
        }
        cap(members, name, tokens);
        if thinks {
            inner(members, "thinking", |thinking| cap(thinking, "budget_tokens", tokens - 1));
        }
    }

    fn apply_effort(&self, members: &mut Members<'_>) {
        for name in ["reasoning", "output_config"] {
            inner(members, name, |inner| self.lower_word(inner, "effort"));
        }
        self.lower_word(members, "reasoning_effort");
        inner(members, "thinking", |thinking| {
            let budget = thinking.get("budget_tokens").and_then(|value| value.parse().ok());
            if let Some(lower) = budget.and_then(|tokens| effort::lowered_budget(tokens, self.steps)) {
                thinking.set("budget_tokens", lower.to_string());
            }
        });
    }

    fn lower_word(&self, members: &mut Members<'_>, name: &str) {
        let stated = members.text(name);
        if let Some(lower) = stated.and_then(|stated| effort::lowered(&stated, self.steps)) {
            members.set(name, format!("\"{lower}\""));
        }
    }
}

/// Lowers a whole number to `most`; what is none stays.
fn cap(members: &mut Members<'_>, name: &str, most: u64) {
    let stated = members.get(name).and_then(|value| value.parse::<u64>().ok());
    if stated.is_some_and(|stated| stated > most) {
        members.set(name, most.to_string());
    }
}

/// Changes a member that is an object.
fn inner(members: &mut Members<'_>, name: &str, change: impl FnOnce(&mut Members<'_>)) {
    let Some(json) = members.get(name).map(str::to_owned) else { return };
    let Ok(mut inner) = Members::read(json.as_bytes()) else { return };
    change(&mut inner);
    if inner.is_changed()
        && let Ok(json) = String::from_utf8(inner.write())
    {
        members.set(name, json);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn applied(adjust: Adjust, api: Api, body: &str) -> String {
        let mut members = Members::read(body.as_bytes()).unwrap();
        adjust.apply(api, &mut members);
        String::from_utf8(members.write()).unwrap()
    }

    #[test]
    fn effort_is_lowered_where_it_is_stated_and_nowhere_else() {
        let adjust = Adjust { steps: 1, ..Adjust::default() };
        for (api, body, expected) in [
            (
                Api::Responses,
                r#"{"reasoning":{"effort":"high","x":1.0}}"#,
                r#"{"reasoning":{"effort":"medium","x":1.0}}"#,
            ),
            (Api::Chat, r#"{"reasoning_effort":"xhigh"}"#, r#"{"reasoning_effort":"high"}"#),
            (
                Api::Messages,
                r#"{"output_config":{"effort":"max"}}"#,
                r#"{"output_config":{"effort":"high"}}"#,
            ),
            (
                Api::Messages,
                r#"{"thinking":{"budget_tokens":8000}}"#,
                r#"{"thinking":{"budget_tokens":4000}}"#,
            ),
            (Api::Chat, r#"{"reasoning_effort":"low"}"#, r#"{"reasoning_effort":"low"}"#),
            (Api::Chat, r#"{"x":1}"#, r#"{"x":1}"#),
        ] {
            assert_eq!(applied(adjust, api, body), expected);
        }
    }

    #[test]
    fn caps_only_ever_lower() {
        let adjust = Adjust { output: Some(500), ..Adjust::default() };
        for (api, body, expected) in [
            (Api::Responses, r#"{"max_output_tokens":900}"#, r#"{"max_output_tokens":500}"#),
            (Api::Responses, r"{}", r#"{"max_output_tokens":500}"#),
            (Api::Chat, r#"{"max_tokens":100}"#, r#"{"max_tokens":100}"#),
            (Api::Chat, r"{}", r#"{"max_completion_tokens":500}"#),
            (
                Api::Messages,
                r#"{"max_tokens":9000,"thinking":{"budget_tokens":8000}}"#,
                r#"{"max_tokens":1025,"thinking":{"budget_tokens":1024}}"#,
            ),
        ] {
            assert_eq!(applied(adjust, api, body), expected);
        }
        let strict = Adjust { steps: 1, output: Some(9), reasoning: None };
        let both = adjust.and(strict).and(Adjust::default());
        assert_eq!(both, Adjust { steps: 1, output: Some(9), reasoning: None });
    }
}
