//! What is kept of a request: sizes and settings, never its text.
//!
//! In: head and body of a request. Out: the request's part of a [`Summary`]. Credentials and session ids
//! are kept as keyed hashes only. Which headers tell sessions, turns and attempts apart was measured with
//! Codex CLI, opencode and the OpenAI and Anthropic SDKs.

use std::collections::BTreeMap;

use hyper::HeaderMap;
use hyper::header::{CONTENT_ENCODING, USER_AGENT};
use hyper::http::request;
use serde_json::Value;
use serde_json::value::RawValue;
use sseismo_trace::Summary;

use super::{decompress, numeric};
use crate::dialect;

/// Prompt tokens per byte of request body, until a model's own ratio is learned from reported usage.
const TOKENS_PER_BYTE: f64 = 0.27;

/// Headers that carry a credential, in the order in which they are looked for.
const CREDENTIALS: [&str; 4] = ["authorization", "x-api-key", "api-key", "x-goog-api-key"];

/// Headers that name a session or thread.
const SESSIONS: [&str; 4] = ["thread-id", "session-id", "x-session-affinity", "x-claude-code-session-id"];

/// A keyed hash of a value in a domain: the same in one dataset, meaningless outside it.
pub(crate) type Hash<'a> = &'a dyn Fn(&str, &[u8]) -> u64;

/// What of a head is needed until the body has been sent. The head itself would hold on to the buffer that it was
/// read into for as long as the answer lasts.
#[derive(Debug, Default)]
pub(crate) struct Kept {
    encoding: Option<String>,
    /// Bytes that name the turn, where a client says so.
    turn: Option<Vec<u8>>,
}

impl Kept {
    pub(crate) fn of(headers: &HeaderMap) -> Self {
        let encoding = headers.get(CONTENT_ENCODING).and_then(|value| value.to_str().ok());
        let turn = headers.get("x-codex-turn-metadata").or_else(|| headers.get("x-turn-id"));
        Self { encoding: encoding.map(str::to_owned), turn: turn.map(|turn| turn.as_bytes().to_vec()) }
    }
}

/// What the head says.
pub(crate) fn from_head(head: &request::Parts, hash: Hash<'_>, summary: &mut Summary) {
    let headers = &head.headers;
    let text = |name: &str| headers.get(name).and_then(|value| value.to_str().ok());
    summary.api = dialect::by_path(head.uri.path()).map(dialect::Dialect::api);
    summary.model_requested = model_in_path(head.uri.path());
    summary.client_app = text("originator").or_else(|| text(USER_AGENT.as_str())).and_then(product);
    summary.caller_hash =
        CREDENTIALS.iter().find_map(|name| Some(hash("caller", headers.get(*name)?.as_bytes())));
    summary.session_key =
        SESSIONS.iter().find_map(|name| Some(hash("session", headers.get(*name)?.as_bytes())));
    summary.attempt =
        text("x-stainless-retry-count").and_then(|count| count.parse::<u32>().ok()).map(|count| count + 1);
}

/// What the body says, given its copy when that is complete. `sent` counts all its bytes.
pub(crate) fn from_body(kept: &Kept, sent: u64, copy: Option<&[u8]>, hash: Hash<'_>, summary: &mut Summary) {
    let encoding = kept.encoding.as_deref();
    let decoded = copy.and_then(|copy| match encoding {
        None => Some(std::borrow::Cow::Borrowed(copy)),
        Some(_) => decompress::whole(encoding, copy).map(std::borrow::Cow::Owned),
    });
    let bytes = match (&decoded, encoding) {
        (Some(decoded), _) => Some(decoded.len() as u64),
        (None, None) => Some(sent),
        (None, Some(_)) => None, // the size of the prompt itself is not known
    };
    summary.prompt_bytes = bytes;
    summary.prompt_tokens_est = bytes.filter(|&bytes| bytes > 0).map(tokens);
    let Some(body) = decoded.as_deref() else { return };
    let Ok(fields) = serde_json::from_slice::<BTreeMap<String, &RawValue>>(body) else { return };
    let value = |name: &str| fields.get(name).and_then(|raw| serde_json::from_str::<Value>(raw.get()).ok());
    if let Some(Value::String(model)) = value("model") {
        summary.model_requested = Some(model).filter(is_name);
    }
    summary.effort = effort(&value).filter(is_name);
    summary.streamed = value("stream").and_then(|stream| stream.as_bool());
    summary.prompt_numeric_share = numeric::share(&fields);
    if summary.session_key.is_none()
        && let Some(Value::String(key)) = value("prompt_cache_key")
    {
        summary.session_key = Some(hash("session", key.as_bytes()));
    }
    summary.turn_key = kept.turn.as_deref().map(|turn| {
        // Attempts of one turn send the same input again; the turn's tool calls send another one.
        let input = fields.get("input").or_else(|| fields.get("messages")).map_or("", |raw| raw.get());
        hash("turn", &[turn, input.as_bytes()].concat())
    });
}

#[expect(
    clippy::cast_precision_loss,
    clippy::cast_possible_truncation,
    clippy::cast_sign_loss,
    reason = "an estimate of a positive size far below 2^53"
)]
fn tokens(bytes: u64) -> u64 {
    (bytes as f64 * TOKENS_PER_BYTE).round() as u64
}

/// Gemini names the model in the path.
fn model_in_path(path: &str) -> Option<String> {
    let (_, last) = path.rsplit_once("/models/")?;
    let (model, _) = last.split_once(':')?;
    Some(model.to_owned()).filter(is_name)
}

/// Whether it may be the name of a model or an effort. What is longer is none, and would be kept with each stream and
/// each scope; resource names of clouds, the longest known, take about 150 bytes.
#[expect(clippy::ptr_arg, reason = "as filters ask")]
fn is_name(name: &String) -> bool {
    name.len() <= 1_024
}

/// `codex_exec` of `codex_exec/0.171.0 (…)`.
fn product(agent: &str) -> Option<String> {
    let name = agent.split(['/', ' ']).next().filter(|name| !name.is_empty())?;
    Some(name.chars().filter(char::is_ascii_graphic).take(64).collect())
}

/// Reasoning effort, wherever an API puts it; a budget of thinking tokens is written `budget-N`.
fn effort(value: &dyn Fn(&str) -> Option<Value>) -> Option<String> {
    let word = |found: Option<Value>| found.as_ref().and_then(Value::as_str).map(str::to_owned);
    let at = |name: &str, pointer: &str| value(name).and_then(|value| value.pointer(pointer).cloned());
    let budget = |found: Option<Value>| found.and_then(|n| n.as_i64()).map(|n| format!("budget-{n}"));
    word(at("reasoning", "/effort"))
        .or_else(|| word(value("reasoning_effort")))
        .or_else(|| word(at("output_config", "/effort")))
        .or_else(|| word(at("generationConfig", "/thinkingConfig/thinkingLevel")))
        .or_else(|| word(value("think")))
        .or_else(|| budget(at("thinking", "/budget_tokens")))
        .or_else(|| budget(at("generationConfig", "/thinkingConfig/thinkingBudget")))
}

#[cfg(test)]
mod tests {
    use hyper::Request;
    use sseismo_trace::Api;

    use super::*;

    fn fnv(domain: &str, bytes: &[u8]) -> u64 {
        domain
            .bytes()
            .chain(bytes.iter().copied())
            .fold(0xcbf2_9ce4_8422_2325, |hash, byte| (hash ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3))
    }

    fn summary(path: &str, headers: &[(&str, &str)], body: &[u8]) -> Summary {
        let mut request = Request::post(path);
        for (name, value) in headers {
            request = request.header(*name, *value);
        }
        let (head, ()) = request.body(()).unwrap().into_parts();
        let mut summary = Summary::default();
        from_head(&head, &fnv, &mut summary);
        from_body(&Kept::of(&head.headers), body.len() as u64, Some(body), &fnv, &mut summary);
        summary
    }

    #[test]
    fn a_codex_request_gives_settings_and_hashes() {
        let headers = [
            ("originator", "codex_exec"),
            ("thread-id", "thread-1"),
            ("authorization", "Bearer sk-secret"),
            ("x-codex-turn-metadata", "{\"turn_id\":\"t1\"}"),
        ];
        let body = br#"{"model":"gpt-5.5","stream":true,"reasoning":{"effort":"xhigh"},
            "input":[{"type":"message","role":"user","content":[{"type":"input_text","text":"1,234.5 ab"}]}]}"#;
        let got = summary("/v1/responses", &headers, body);
        assert_eq!(got.api, Some(Api::Responses));
        assert_eq!(got.model_requested.as_deref(), Some("gpt-5.5"));
        assert_eq!((got.effort.as_deref(), got.streamed), (Some("xhigh"), Some(true)));
        assert_eq!(got.client_app.as_deref(), Some("codex_exec"));
        assert_eq!(got.prompt_numeric_share, Some(0.7));
        assert_eq!(got.prompt_bytes, Some(body.len() as u64));
        assert!(got.caller_hash.is_some() && got.session_key.is_some() && got.turn_key.is_some());
        let other = summary("/v1/responses", &headers, br#"{"input":[]}"#);
        assert_ne!(got.turn_key, other.turn_key);
    }

    #[test]
    fn a_compressed_body_is_read_all_the_same() {
        let json = br#"{"model":"m","reasoning_effort":"low","messages":[{"role":"user","content":"12"}]}"#;
        let zstd = zstd::bulk::compress(json, 1).unwrap();
        let got = summary("/v1/chat/completions", &[("content-encoding", "zstd")], &zstd);
        assert_eq!((got.model_requested.as_deref(), got.effort.as_deref()), (Some("m"), Some("low")));
        assert_eq!((got.prompt_bytes, got.prompt_numeric_share), (Some(json.len() as u64), Some(1.0)));
    }

    #[test]
    fn settings_are_found_in_each_api() {
        let claude = summary("/v1/messages", &[], br#"{"thinking":{"type":"enabled","budget_tokens":2048}}"#);
        assert_eq!((claude.api, claude.effort.as_deref()), (Some(Api::Messages), Some("budget-2048")));
        let gemini = summary("/v1beta/models/gemini-3:streamGenerateContent?key=secret", &[], b"{}");
        assert_eq!(gemini.api, Some(Api::GenerateContent));
        assert_eq!(gemini.model_requested.as_deref(), Some("gemini-3"));
    }

    #[test]
    fn what_is_no_json_leaves_only_its_size() {
        let got = summary("/upload", &[], b"\x00\x01");
        assert_eq!((got.prompt_bytes, got.model_requested, got.prompt_numeric_share), (Some(2), None, None));
    }
}
