//! Anthropic Messages, and its speakers.
//!
//! Blocks open, grow and close: `thinking`, `redacted_thinking`, `text`, tool use. `message_start` names
//! the model and the prompt's tokens, `message_delta` the stop reason and the usage so far (cumulative),
//! `message_stop` is the end: without it the stream was cut. `input_tokens` leaves out what came from or
//! went to the cache; [`Usage`] adds it. Newer models stream a summary under the name of thinking; the wire
//! does not say so, hence `reasoning`. Events are padded with blanks before their last brace.

use serde::Deserialize;
use serde::de::IgnoredAny;
use serde_json::{Value, json};
use sseismo_trace::{Api, Kind, Outcome, Phase, Usage};

use super::field::{Few, Piece, Size};
use super::{Asks, Dialect, Learnt, Marks, Said, arguments_at, count, fields, list_at, text_at};

#[derive(Debug)]
pub(super) struct Messages;

#[derive(Default, Deserialize)]
#[serde(default)]
struct Named<'a> {
    #[serde(borrow, rename = "type")]
    kind: Piece<'a>,
}

#[derive(Default, Deserialize)]
#[serde(default)]
struct BlockDelta {
    index: Option<u16>,
    delta: Piecewise,
}

/// What a block grew by; exactly one of these is there.
#[derive(Default, Deserialize)]
#[serde(default)]
struct Piecewise {
    thinking: Size,
    text: Size,
    partial_json: Size,
}

#[derive(Default, Deserialize)]
#[serde(default)]
struct BlockStep<'a> {
    index: Option<u16>,
    #[serde(borrow)]
    content_block: Option<Named<'a>>,
}

#[derive(Default, Deserialize)]
#[serde(default)]
struct Start<'a> {
    #[serde(borrow)]
    message: Option<Answer<'a>>,
}

/// The message: empty at the start of a stream, or a whole answer.
#[derive(Default, Deserialize)]
#[serde(default)]
struct Answer<'a> {
    #[serde(borrow)]
    model: Piece<'a>,
    content: Few<Piecewise>,
    #[serde(borrow)]
    stop_reason: Piece<'a>,
    usage: Option<Tokens>,
    error: Option<IgnoredAny>,
}

#[derive(Default, Deserialize)]
#[serde(default)]
struct Change<'a> {
    #[serde(borrow)]
    delta: Option<Stop<'a>>,
    usage: Option<Tokens>,
}

#[derive(Default, Deserialize)]
#[serde(default)]
struct Stop<'a> {
    #[serde(borrow)]
    stop_reason: Piece<'a>,
}

#[derive(Default, Deserialize)]
#[serde(default)]
#[expect(clippy::struct_field_names, reason = "named as on the wire")]
struct Tokens {
    input_tokens: Option<u64>,
    cache_creation_input_tokens: Option<u64>,
    cache_read_input_tokens: Option<u64>,
    output_tokens: Option<u64>,
    output_tokens_details: Option<Output>,
}

#[derive(Default, Deserialize)]
#[serde(default)]
struct Output {
    thinking_tokens: Option<u64>,
}

/// `max_tokens`, which this API requires, where nobody says it: what its reasoning models all allow.
const MOST_TOKENS: u64 = 32_000;

/// What is left for the answer where a budget of thinking tokens, which counts too, is larger.
const ANSWER_TOKENS: u64 = 4_096;

impl Dialect for Messages {
    fn api(&self) -> Api {
        Api::Messages
    }

    fn serves(&self, path: &str) -> bool {
        path.ends_with("/messages") || path.ends_with(":streamRawPredict") || path.ends_with(":rawPredict")
    }

    fn speaks(&self, marks: &Marks<'_>) -> bool {
        matches!(&*marks.kind.0, "message_start" | "content_block_start" | "content_block_delta" | "message")
    }

    fn event(&self, name: &str, data: &str, learnt: &mut Learnt) -> serde_json::Result<Said> {
        if !name.is_empty() && name != "message" {
            return named(name, data, learnt);
        }
        let event: Named<'_> = serde_json::from_str(data)?;
        named(&event.kind.0, data, learnt)
    }

    fn whole(&self, body: &str, learnt: &mut Learnt) -> serde_json::Result<()> {
        let answer: Answer<'_> = serde_json::from_str(body)?;
        learnt.model(&answer.model);
        learnt.reasoning_chars +=
            answer.content.iter().map(|block| u64::from(block.thinking.chars)).sum::<u64>();
        if let Some(tokens) = &answer.usage {
            learnt.usage(tokens.usage());
        }
        if answer.error.is_some() {
            learnt.end(Outcome::Failed);
        } else if !answer.stop_reason.is_empty() {
            learnt.end(stop(&answer.stop_reason.0));
        }
        Ok(())
    }

    fn words(&self, _: &str, json: &Value, _: &Learnt, each: &mut dyn FnMut(Kind, &str)) {
        for block in json.get("delta").into_iter().chain(list_at(json, "/content")) {
            each(Kind::Reasoning, text_at(block, "/thinking"));
            each(Kind::Text, text_at(block, "/text"));
            each(Kind::Tool, text_at(block, "/partial_json"));
            each(Kind::Tool, &arguments_at(block, "/input"));
        }
    }

    fn path(&self, _: &str, _: bool) -> String {
        "/v1/messages".to_owned()
    }

    fn request(&self, asks: &Asks<'_>) -> Value {
        let budget = asks.budget();
        let most = asks.most.unwrap_or(MOST_TOKENS).max(budget.map_or(0, |budget| budget + ANSWER_TOKENS));
        fields([
            ("model", Some(asks.model.into())),
            ("max_tokens", Some(most.into())),
            ("messages", Some(json!([{"role": "user", "content": asks.prompt}]))),
            ("stream", asks.streamed.then_some(true.into())),
            ("output_config", asks.word().map(|effort| json!({"effort": effort}))),
            ("thinking", budget.map(|budget| json!({"type": "enabled", "budget_tokens": budget}))),
        ])
    }
}

fn named(name: &str, data: &str, learnt: &mut Learnt) -> serde_json::Result<Said> {
    Ok(match name {
        "content_block_delta" => {
            let BlockDelta { index, delta } = serde_json::from_str(data)?;
            learnt.reasoning_chars += u64::from(delta.thinking.chars);
            let said = if delta.thinking.chars > 0 {
                Said::content(Kind::Reasoning, delta.thinking.chars)
            } else if delta.partial_json.chars > 0 {
                Said::content(Kind::Tool, delta.partial_json.chars)
            } else {
                Said::content(Kind::Text, delta.text.chars)
            };
            said.item(index)
        }
        "content_block_start" => {
            let event: BlockStep<'_> = serde_json::from_str(data)?;
            let phase = event.content_block.map(|block| match &*block.kind.0 {
                "thinking" | "redacted_thinking" => Phase::Reasoning,
                "text" => Phase::Output,
                _ => Phase::Tool,
            });
            Said { phase, ..Said::new(Kind::Meta).item(event.index) }
        }
        "content_block_stop" => {
            let event: BlockStep<'_> = serde_json::from_str(data)?;
            Said::new(Kind::Meta).item(event.index).phase(Phase::Tail)
        }
        "message_start" => {
            let event: Start<'_> = serde_json::from_str(data)?;
            if let Some(answer) = event.message {
                learnt.model(&answer.model);
                if let Some(tokens) = &answer.usage {
                    learnt.usage(tokens.usage());
                }
            }
            Said::new(Kind::Meta)
        }
        "message_delta" => {
            let event: Change<'_> = serde_json::from_str(data)?;
            if let Some(tokens) = &event.usage {
                learnt.usage(tokens.usage());
            }
            if let Some(reason) = event.delta.filter(|delta| !delta.stop_reason.is_empty()) {
                learnt.stopping = stop(&reason.stop_reason.0);
            }
            Said::new(Kind::Usage).phase(Phase::Tail)
        }
        "message_stop" => {
            learnt.end(if learnt.stopping == Outcome::Unknown {
                Outcome::Completed
            } else {
                learnt.stopping
            });
            Said::new(Kind::Done).phase(Phase::Tail)
        }
        "ping" => Said::new(Kind::Ping),
        "error" => {
            learnt.end(Outcome::Failed);
            Said::new(Kind::Error)
        }
        _ => Said::new(Kind::Meta),
    })
}

fn stop(reason: &str) -> Outcome {
    match reason {
        "max_tokens" | "model_context_window_exceeded" | "refusal" => Outcome::Incomplete,
        _ => Outcome::Completed,
    }
}

impl Tokens {
    fn usage(&self) -> Usage {
        let created = self.cache_creation_input_tokens.unwrap_or(0);
        let cache = created.saturating_add(self.cache_read_input_tokens.unwrap_or(0));
        Usage {
            input: self.input_tokens.map(|input| input.saturating_add(cache)),
            cached: self.cache_read_input_tokens,
            output: self.output_tokens,
            reasoning: count(self.output_tokens_details.as_ref().and_then(|output| output.thinking_tokens)),
        }
    }
}
