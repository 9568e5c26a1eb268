//! What a request asks for, as far as routing needs it.

use serde_json::Value;

use crate::choice::Router;
use crate::rewrite::Members;

/// Prompt tokens per byte of request body: the start ratio of `prompt_tokens_est` in traces.
const TOKENS_PER_BYTE: f64 = 0.27;

/// The settings of a request.
#[derive(Clone, Debug, Default)]
pub(super) struct Asked {
    /// The model as the client named it; where a path has none, that of the first route, so that what
    /// belongs to no model (files, batches) goes where most requests go.
    pub(super) model: String,
    pub(super) effort: Option<String>,
    pub(super) streamed: bool,
    pub(super) cache_key: Option<String>,
}

impl Asked {
    pub(super) fn of(members: &Members<'_>, router: &Router) -> Self {
        let routes = &router.config().routes;
        let any = || routes.iter().find(|route| &*route.model == "*").or_else(|| routes.first());
        let model = members.text("model").or_else(|| any().map(|route| route.model.to_string()));
        Self {
            model: model.unwrap_or_default(),
            effort: effort(members),
            streamed: members.flag("stream").unwrap_or(false),
            cache_key: members.text("prompt_cache_key"),
        }
    }
}

/// The longest name of a model, bytes: names reach logs, metrics and the list of the last requests. Resource names of
/// clouds, the longest known, take about 150.
const LONGEST_NAME: usize = 1_024;

/// Why the model that is named cannot be one. Without this, what is no text would be taken for no name at all and be
/// sent where requests without one go.
pub(super) fn unfit_model(members: &Members<'_>) -> Option<&'static str> {
    let json = members.get("model").filter(|json| *json != "null")?;
    match members.text("model") {
        None => Some("`model` is not a text"),
        Some(_) if json.len() > LONGEST_NAME => Some("`model` is longer than 1,024 bytes"),
        Some(_) => None,
    }
}

/// Whether a stream is asked for without its usage.
pub(super) fn lacks_usage(members: &Members<'_>) -> bool {
    let options = members.get("stream_options").and_then(|options| Members::read(options.as_bytes()).ok());
    let asked = options.and_then(|options| options.flag("include_usage"));
    members.flag("stream") == Some(true) && asked != Some(true)
}

/// What the model reads: attempts of one turn send the same again.
pub(super) fn input<'a>(members: &'a Members<'_>, body: &'a [u8]) -> &'a [u8] {
    members.get("input").or_else(|| members.get("messages")).map_or(body, str::as_bytes)
}

/// Reasoning effort, wherever an API puts it; a budget of thinking tokens is written `budget-N`, as in traces.
fn effort(members: &Members<'_>) -> Option<String> {
    let within = |name: &str, inner: &str| -> Option<Value> {
        serde_json::from_str::<Value>(members.get(name)?).ok()?.get_mut(inner).map(Value::take)
    };
    let word = |value: Option<Value>| value.as_ref().and_then(Value::as_str).map(str::to_owned);
    word(within("reasoning", "effort"))
        .or_else(|| members.text("reasoning_effort"))
        .or_else(|| word(within("output_config", "effort")))
        .or_else(|| {
            within("thinking", "budget_tokens").and_then(|n| n.as_i64()).map(|n| format!("budget-{n}"))
        })
}

/// Prompt tokens of a body of this many bytes, estimated.
#[expect(
    clippy::cast_precision_loss,
    clippy::cast_possible_truncation,
    clippy::cast_sign_loss,
    reason = "an estimate of a positive size far below 2^53"
)]
pub(super) fn tokens(bytes: usize) -> u64 {
    (bytes as f64 * TOKENS_PER_BYTE) as u64
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_cannot_be_a_model_is_said() {
        let long = format!(r#"{{"model":"{}"}}"#, "m".repeat(2_000));
        for (body, expected) in [
            (r#"{"model":"gpt-5.5"}"#, None),
            (r#"{"model":null}"#, None),
            ("{}", None),
            (r#"{"model":5}"#, Some("not a text")),
            (r#"{"model":"m\ud800"}"#, Some("not a text")),
            (&long, Some("longer")),
        ] {
            let said = unfit_model(&Members::read(body.as_bytes()).unwrap());
            let fits = expected.map_or(said.is_none(), |word| said.is_some_and(|said| said.contains(word)));
            assert!(fits, "{body}: {said:?}");
        }
    }

    #[test]
    fn effort_is_found_in_each_api() {
        for (body, expected) in [
            (r#"{"reasoning":{"effort":"high"}}"#, Some("high")),
            (r#"{"reasoning_effort":"low"}"#, Some("low")),
            (r#"{"output_config":{"effort":"max"}}"#, Some("max")),
            (r#"{"thinking":{"type":"enabled","budget_tokens":2048}}"#, Some("budget-2048")),
            (r#"{"reasoning":null,"thinking":[]}"#, None),
        ] {
            assert_eq!(effort(&Members::read(body.as_bytes()).unwrap()).as_deref(), expected, "{body}");
        }
    }
}
