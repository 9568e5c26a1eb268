//! Gemini `generateContent` and `streamGenerateContent`.
//!
//! Every event is a whole response with a few more parts; the one with a `finishReason` is the last. Parts
//! marked `thought` are summaries of the reasoning, large and regular (about 400 characters each), so their
//! timing says nothing about token counts. `usageMetadata` comes with every event, cumulative; thoughts are
//! counted beside the candidates. Without `alt=sse` the stream is one JSON list.

use serde::Deserialize;
use serde::de::IgnoredAny;
use serde_json::{Value, json};
use sseismo_trace::{Api, Kind, Outcome, Phase, Usage};

use super::field::{Arguments, Few, Piece, Size};
use super::{Asks, Dialect, Learnt, Marks, Said, arguments_at, count, fields, list_at, text_at};

#[derive(Debug)]
pub(super) struct GenerateContent;

#[derive(Default, Deserialize)]
#[serde(default, rename_all = "camelCase")]
struct Response<'a> {
    #[serde(borrow)]
    candidates: Few<Candidate<'a>>,
    usage_metadata: Option<Tokens>,
    #[serde(borrow)]
    model_version: Piece<'a>,
    #[serde(borrow)]
    prompt_feedback: Option<Feedback<'a>>,
    error: Option<IgnoredAny>,
}

#[derive(Default, Deserialize)]
#[serde(default, rename_all = "camelCase")]
struct Candidate<'a> {
    content: Option<Content>,
    #[serde(borrow)]
    finish_reason: Piece<'a>,
    index: Option<u16>,
}

#[derive(Default, Deserialize)]
#[serde(default)]
struct Content {
    parts: Few<Part>,
}

#[derive(Default, Deserialize)]
#[serde(default, rename_all = "camelCase")]
struct Part {
    text: Size,
    thought: Option<bool>,
    function_call: Option<Call>,
    executable_code: Option<Code>,
}

#[derive(Default, Deserialize)]
#[serde(default)]
struct Call {
    args: Arguments,
}

#[derive(Default, Deserialize)]
#[serde(default)]
struct Code {
    code: Size,
}

#[derive(Default, Deserialize)]
#[serde(default, rename_all = "camelCase")]
struct Feedback<'a> {
    #[serde(borrow)]
    block_reason: Piece<'a>,
}

#[derive(Default, Deserialize)]
#[serde(default, rename_all = "camelCase")]
#[expect(clippy::struct_field_names, reason = "named as on the wire")]
struct Tokens {
    prompt_token_count: Option<u64>,
    tool_use_prompt_token_count: Option<u64>,
    cached_content_token_count: Option<u64>,
    candidates_token_count: Option<u64>,
    thoughts_token_count: Option<u64>,
}

impl Dialect for GenerateContent {
    fn api(&self) -> Api {
        Api::GenerateContent
    }

    fn serves(&self, path: &str) -> bool {
        path.ends_with(":streamGenerateContent") || path.ends_with(":generateContent")
    }

    fn speaks(&self, marks: &Marks<'_>) -> bool {
        marks.candidates.is_some() || marks.usage_metadata.is_some()
    }

    fn event(&self, _: &str, data: &str, learnt: &mut Learnt) -> serde_json::Result<Said> {
        Ok(read(&serde_json::from_str(data)?, learnt))
    }

    fn whole(&self, body: &str, learnt: &mut Learnt) -> serde_json::Result<()> {
        if body.trim_ascii_start().starts_with('[') {
            for response in serde_json::from_str::<Few<Response<'_>>>(body)?.iter() {
                read(response, learnt);
            }
        } else {
            read(&serde_json::from_str(body)?, learnt);
        }
        Ok(())
    }

    fn words(&self, _: &str, json: &Value, _: &Learnt, each: &mut dyn FnMut(Kind, &str)) {
        let responses = json.as_array().map_or(std::slice::from_ref(json), Vec::as_slice).iter();
        let candidates = responses.flat_map(|response| list_at(response, "/candidates"));
        for part in candidates.flat_map(|candidate| list_at(candidate, "/content/parts")) {
            let is_thought = part.get("thought").and_then(Value::as_bool) == Some(true);
            each(if is_thought { Kind::Summary } else { Kind::Text }, text_at(part, "/text"));
            each(Kind::Tool, &arguments_at(part, "/functionCall/args"));
            each(Kind::Tool, text_at(part, "/executableCode/code"));
        }
    }

    fn path(&self, model: &str, streamed: bool) -> String {
        let what = if streamed { "streamGenerateContent?alt=sse" } else { "generateContent" };
        format!("/v1beta/models/{model}:{what}")
    }

    fn request(&self, asks: &Asks<'_>) -> Value {
        let thinking = fields([
            ("thinkingLevel", asks.word().map(Value::from)),
            ("thinkingBudget", asks.budget().map(Value::from)),
        ]);
        let settings = fields([
            ("thinkingConfig", asks.effort.map(|_| thinking)),
            ("responseMimeType", asks.json.then(|| "application/json".into())),
            ("maxOutputTokens", asks.most.map(Value::from)),
        ]);
        json!({
            "contents": [{"role": "user", "parts": [{"text": asks.prompt}]}],
            "generationConfig": settings,
        })
    }
}

fn read(response: &Response<'_>, learnt: &mut Learnt) -> Said {
    learnt.model(&response.model_version);
    if let Some(tokens) = &response.usage_metadata {
        learnt.usage(tokens.usage());
    }
    if response.error.is_some() {
        learnt.end(Outcome::Failed);
        return Said::new(Kind::Error);
    }
    let (mut thought, mut text, mut tool) = (0, 0, 0);
    let mut stops = false;
    for candidate in response.candidates.iter() {
        stops |= finish(&candidate.finish_reason.0, learnt);
        for part in candidate.content.iter().flat_map(|content| content.parts.iter()) {
            if part.thought == Some(true) {
                thought += part.text.chars;
            } else {
                text += part.text.chars;
            }
            tool += part.function_call.as_ref().map_or(0, |call| call.args.0);
            tool += part.executable_code.as_ref().map_or(0, |code| code.code.chars);
        }
    }
    if response.prompt_feedback.as_ref().is_some_and(|feedback| !feedback.block_reason.is_empty()) {
        learnt.end(Outcome::Incomplete);
        stops = true;
    }
    let said =
        Said::most([(Kind::Reasoning, 0), (Kind::Summary, thought), (Kind::Text, text), (Kind::Tool, tool)])
            .item(response.candidates.first.as_ref().and_then(|candidate| candidate.index));
    match said.kind {
        Kind::Meta if stops => Said { kind: Kind::Done, ..said.phase(Phase::Tail) },
        Kind::Meta if response.usage_metadata.is_some() && response.candidates.first.is_none() => {
            Said { kind: Kind::Usage, ..said }
        }
        _ => said,
    }
}

/// Whether the candidate stops, and how.
fn finish(reason: &str, learnt: &mut Learnt) -> bool {
    match reason {
        "" | "FINISH_REASON_UNSPECIFIED" => return false,
        "STOP" => learnt.end(Outcome::Completed),
        "MALFORMED_FUNCTION_CALL" | "UNEXPECTED_TOOL_CALL" | "OTHER" => learnt.end(Outcome::Failed),
        _ => learnt.end(Outcome::Incomplete),
    }
    true
}

impl Tokens {
    fn usage(&self) -> Usage {
        let thoughts = self.thoughts_token_count;
        let output = match (self.candidates_token_count, thoughts) {
            (None, None) => None,
            (candidates, thoughts) => Some(candidates.unwrap_or(0).saturating_add(thoughts.unwrap_or(0))),
        };
        Usage {
            input: self
                .prompt_token_count
                .map(|prompt| prompt.saturating_add(self.tool_use_prompt_token_count.unwrap_or(0))),
            cached: self.cached_content_token_count,
            output,
            reasoning: count(thoughts),
        }
    }
}
