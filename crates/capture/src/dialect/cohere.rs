//! Cohere v2 chat.
//!
//! Contents open, grow and close, as `thinking` or `text`; tool plans and tool calls stream beside them.
//! `message-end` holds the finish reason and the usage: `tokens` is what the model saw and generated,
//! `billed_units` what is charged, so the first is read. `[DONE]` may follow.

use serde::Deserialize;
use serde_json::{Value, json};
use sseismo_trace::{Api, Kind, Outcome, Phase, Usage};

use super::field::{Few, Piece, Size};
use super::{Asks, Dialect, Learnt, Marks, Said, arguments_at, count, fields, list_at, text_at};

#[derive(Debug)]
pub(super) struct Cohere;

#[derive(Default, Deserialize)]
#[serde(default)]
struct Event<'a> {
    #[serde(borrow, rename = "type")]
    kind: Piece<'a>,
    index: Option<u16>,
    #[serde(borrow)]
    delta: Option<Change<'a>>,
}

#[derive(Default, Deserialize)]
#[serde(default)]
struct Change<'a> {
    #[serde(borrow)]
    message: Option<Message<'a>>,
    #[serde(borrow)]
    finish_reason: Piece<'a>,
    usage: Option<Tokens>,
}

/// Of a start event, `content` and `tool_calls` are empty lists, which serde reads as empty objects.
#[derive(Default, Deserialize)]
#[serde(default)]
struct Message<'a> {
    #[serde(borrow)]
    content: Option<Content<'a>>,
    tool_plan: Size,
    tool_calls: Option<ToolCall>,
}

#[derive(Default, Deserialize)]
#[serde(default)]
struct Content<'a> {
    #[serde(borrow, rename = "type")]
    kind: Piece<'a>,
    thinking: Size,
    text: Size,
}

#[derive(Default, Deserialize)]
#[serde(default)]
struct ToolCall {
    function: Option<Function>,
}

#[derive(Default, Deserialize)]
#[serde(default)]
struct Function {
    arguments: Size,
}

#[derive(Default, Deserialize)]
#[serde(default)]
struct Tokens {
    tokens: Option<Counts>,
    cached_tokens: Option<u64>,
}

#[derive(Default, Deserialize)]
#[serde(default)]
#[expect(clippy::struct_field_names, reason = "named as on the wire")]
struct Counts {
    input_tokens: Option<u64>,
    output_tokens: Option<u64>,
    reasoning_tokens: Option<u64>,
}

/// A whole answer.
#[derive(Default, Deserialize)]
#[serde(default)]
struct Answer<'a> {
    #[serde(borrow)]
    finish_reason: Piece<'a>,
    #[serde(borrow)]
    message: Option<WholeMessage<'a>>,
    usage: Option<Tokens>,
}

#[derive(Default, Deserialize)]
#[serde(default)]
struct WholeMessage<'a> {
    #[serde(borrow)]
    content: Few<Content<'a>>,
}

impl Dialect for Cohere {
    fn api(&self) -> Api {
        Api::Cohere
    }

    fn serves(&self, path: &str) -> bool {
        path.ends_with("/v2/chat")
    }

    fn speaks(&self, marks: &Marks<'_>) -> bool {
        matches!(&*marks.kind.0, "message-start" | "content-start" | "content-delta")
            || (marks.finish_reason.is_some() && marks.message.is_some())
    }

    fn event(&self, _: &str, data: &str, learnt: &mut Learnt) -> serde_json::Result<Said> {
        let event: Event<'_> = serde_json::from_str(data)?;
        let delta = event.delta.unwrap_or_default();
        let message = delta.message.unwrap_or_default();
        let said = match &*event.kind.0 {
            "content-delta" => message.content.map_or(Said::new(Kind::Meta), |content| {
                learnt.reasoning_chars += u64::from(content.thinking.chars);
                if content.thinking.chars > 0 {
                    Said::content(Kind::Reasoning, content.thinking.chars)
                } else {
                    Said::content(Kind::Text, content.text.chars)
                }
            }),
            "content-start" => {
                let thinks = message.content.is_some_and(|content| content.kind.0 == "thinking");
                Said::new(Kind::Meta).phase(if thinks { Phase::Reasoning } else { Phase::Output })
            }
            "tool-plan-delta" => {
                learnt.reasoning_chars += u64::from(message.tool_plan.chars);
                Said::content(Kind::Reasoning, message.tool_plan.chars)
            }
            "tool-call-start" | "tool-call-delta" => {
                let call = message.tool_calls.and_then(|call| call.function);
                Said::content(Kind::Tool, call.map_or(0, |call| call.arguments.chars)).phase(Phase::Tool)
            }
            "content-end" | "tool-call-end" => Said::new(Kind::Meta).phase(Phase::Tail),
            "message-end" => {
                if let Some(tokens) = &delta.usage {
                    learnt.usage(tokens.usage());
                }
                learnt.end(finish(&delta.finish_reason.0));
                Said::new(Kind::Done).phase(Phase::Tail)
            }
            _ => Said::new(Kind::Meta),
        };
        Ok(said.item(event.index))
    }

    fn whole(&self, body: &str, learnt: &mut Learnt) -> serde_json::Result<()> {
        let answer: Answer<'_> = serde_json::from_str(body)?;
        if let Some(tokens) = &answer.usage {
            learnt.usage(tokens.usage());
        }
        if !answer.finish_reason.is_empty() {
            learnt.end(finish(&answer.finish_reason.0));
        }
        let parts = answer.message.iter().flat_map(|message| message.content.iter());
        learnt.reasoning_chars += parts.map(|part| u64::from(part.thinking.chars)).sum::<u64>();
        Ok(())
    }

    fn words(&self, _: &str, json: &Value, _: &Learnt, each: &mut dyn FnMut(Kind, &str)) {
        // A stream sends one content and one call at a time, a whole answer lists of them.
        let Some(message) = json.pointer("/delta/message").or_else(|| json.get("message")) else { return };
        each(Kind::Reasoning, text_at(message, "/tool_plan"));
        for part in message.get("content").into_iter().chain(list_at(message, "/content")) {
            each(Kind::Reasoning, text_at(part, "/thinking"));
            each(Kind::Text, text_at(part, "/text"));
        }
        for call in message.get("tool_calls").into_iter().chain(list_at(message, "/tool_calls")) {
            each(Kind::Tool, &arguments_at(call, "/function/arguments"));
        }
    }

    fn path(&self, _: &str, _: bool) -> String {
        "/v2/chat".to_owned()
    }

    fn request(&self, asks: &Asks<'_>) -> Value {
        fields([
            ("model", Some(asks.model.into())),
            ("messages", Some(json!([{"role": "user", "content": asks.prompt}]))),
            ("stream", Some(asks.streamed.into())),
            ("thinking", asks.budget().map(|budget| json!({"type": "enabled", "token_budget": budget}))),
            ("response_format", asks.json.then(|| json!({"type": "json_object"}))),
            ("max_tokens", asks.most.map(Value::from)),
        ])
    }
}

fn finish(reason: &str) -> Outcome {
    match reason {
        "MAX_TOKENS" => Outcome::Incomplete,
        "ERROR" | "ERROR_TOXIC" | "ERROR_LIMIT" | "TIMEOUT" => Outcome::Failed,
        _ => Outcome::Completed,
    }
}

impl Tokens {
    fn usage(&self) -> Usage {
        let tokens = self.tokens.as_ref();
        Usage {
            input: tokens.and_then(|tokens| tokens.input_tokens),
            cached: self.cached_tokens,
            output: tokens.and_then(|tokens| tokens.output_tokens),
            reasoning: count(tokens.and_then(|tokens| tokens.reasoning_tokens)),
        }
    }
}
