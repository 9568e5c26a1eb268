//! A request's shape: what of it decides how it is answered.

use http_body_util::{BodyExt, Limited};
use hyper::body::Incoming;
use hyper::http::request::Parts;
use hyper::{Response, StatusCode};
use serde_json::{Value, json};
use sseismo_trace::{Api, Micros};

use super::body::Paced;
use super::plain;
use crate::ask::Ask;

/// Largest request body taken in.
const LARGEST: usize = 64 << 20;

/// Prompt tokens per byte of prompt text: the start ratio of `prompt_tokens_est`.
const TOKENS_PER_BYTE: f64 = 0.27;

/// Reads a request; what cannot be used is answered at once.
pub(super) async fn read(head: &Parts, body: Incoming) -> Result<Ask, Response<Paced>> {
    let api = match head.uri.path().trim_end_matches('/') {
        path if path.ends_with("/responses") => Api::Responses,
        path if path.ends_with("/chat/completions") => Api::Chat,
        path if path.ends_with("/messages") => Api::Messages,
        _ => return Err(refuse(StatusCode::NOT_FOUND, "no such path")),
    };
    if head.headers.contains_key(hyper::header::CONTENT_ENCODING) {
        return Err(refuse(StatusCode::UNSUPPORTED_MEDIA_TYPE, "send the body without content-encoding"));
    }
    let body = Limited::new(body, LARGEST).collect().await;
    let Ok(body) = body else { return Err(refuse(StatusCode::PAYLOAD_TOO_LARGE, "the body was not read")) };
    let body = body.to_bytes();
    let request: Value = serde_json::from_slice(&body)
        .map_err(|error| refuse(StatusCode::BAD_REQUEST, &format!("the body is not JSON: {error}")))?;
    let attempt = head
        .headers
        .get("x-stainless-retry-count")
        .and_then(|count| count.to_str().ok()?.parse::<u32>().ok())
        .map_or(1, |retries| retries.saturating_add(1));
    Ok(Ask { attempt, prompt_bytes: body.len() as u64, ..shape(api, &request) })
}

fn refuse(status: StatusCode, message: &str) -> Response<Paced> {
    plain(status, &json!({ "error": { "message": message, "type": "invalid_request_error" } }).to_string())
}

fn shape(api: Api, request: &Value) -> Ask {
    let mut prompt = String::new();
    for field in ["instructions", "system", "input", "messages"] {
        collect(&request[field], &mut prompt);
    }
    let text = |pointer| request.pointer(pointer).and_then(Value::as_str);
    let number = |field: &str| request[field].as_u64();
    let format = text("/text/format/type").or_else(|| text("/response_format/type"));
    let effort = text("/reasoning/effort")
        .or_else(|| text("/reasoning_effort"))
        .or_else(|| text("/output_config/effort"))
        .or_else(|| request.pointer("/thinking/budget_tokens").and_then(Value::as_u64).map(effort_of));
    #[expect(
        clippy::cast_precision_loss,
        clippy::cast_possible_truncation,
        clippy::cast_sign_loss,
        reason = "a prompt is far below 2^53 bytes"
    )]
    let prompt_tokens = (prompt.len() as f64 * TOKENS_PER_BYTE).ceil() as u64;
    Ask {
        number: 0,
        at: Micros(0),
        api,
        streamed: request["stream"].as_bool().unwrap_or(false),
        include_usage: request
            .pointer("/stream_options/include_usage")
            .and_then(Value::as_bool)
            .unwrap_or(false),
        wants_json: format.is_some_and(|format| format.starts_with("json")),
        model: request["model"].as_str().unwrap_or_default().to_owned(),
        effort: effort.map(str::to_owned),
        prompt_bytes: 0,
        prompt_tokens,
        numeric_share: numeric_share(&prompt),
        amounts: None,
        max_tokens: number("max_output_tokens")
            .or_else(|| number("max_completion_tokens"))
            .or_else(|| number("max_tokens")),
        session: None,
        turn: None,
        attempt: 1,
    }
}

/// Anthropic's thinking budget in the words of the others.
fn effort_of(budget: u64) -> &'static str {
    match budget {
        0..=4_095 => "low",
        4_096..=15_999 => "medium",
        _ => "high",
    }
}

fn collect(value: &Value, prompt: &mut String) {
    match value {
        Value::String(text) => prompt.push_str(text),
        Value::Array(items) => items.iter().for_each(|item| collect(item, prompt)),
        Value::Object(fields) => {
            for name in ["content", "text", "input", "output", "arguments"] {
                if let Some(field) = fields.get(name) {
                    collect(field, prompt);
                }
            }
        }
        Value::Null | Value::Bool(_) | Value::Number(_) => {}
    }
}

/// Share of characters that are digits, or separators between two digits.
#[expect(clippy::cast_precision_loss, reason = "a prompt is far below 2^53 characters")]
fn numeric_share(text: &str) -> f64 {
    let (mut all, mut numeric, mut held, mut in_run) = (0_u64, 0_u64, 0_u64, false);
    for c in text.chars() {
        all += 1;
        if c.is_ascii_digit() {
            numeric += 1 + held;
            (in_run, held) = (true, 0);
        } else if in_run && ".,|;:%$-".contains(c) {
            held += 1;
        } else {
            (in_run, held) = (false, 0);
        }
    }
    if all == 0 { 0.0 } else { numeric as f64 / all as f64 }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn separators_count_between_digits_only() {
        assert!((numeric_share("1,234.5") - 1.0).abs() < 1e-12);
        assert!((numeric_share("ab, 12") - 2.0 / 6.0).abs() < 1e-12);
        assert!((numeric_share("12, ab") - 2.0 / 6.0).abs() < 1e-12);
        assert!(numeric_share("").abs() < 1e-12);
    }

    #[test]
    fn the_three_apis_say_the_same_in_their_own_words() {
        let responses = json!({"input": [{"role": "user", "content": [{"type": "input_text", "text": "abcd"}]}],
            "reasoning": {"effort": "high"}, "stream": true, "text": {"format": {"type": "json_object"}}});
        let chat = json!({"messages": [{"role": "user", "content": "abcd"}], "reasoning_effort": "high",
            "stream": true, "response_format": {"type": "json_schema"}});
        let messages = json!({"messages": [{"role": "user", "content": "abcd"}], "stream": true,
            "thinking": {"type": "enabled", "budget_tokens": 20_000}});
        for (api, request) in [(Api::Responses, &responses), (Api::Chat, &chat), (Api::Messages, &messages)] {
            let ask = shape(api, request);
            assert!(ask.is_deep() && ask.streamed, "{ask:?}");
            assert_eq!(ask.prompt_tokens, 2);
        }
        assert!(shape(Api::Responses, &responses).wants_json && shape(Api::Chat, &chat).wants_json);
    }
}
