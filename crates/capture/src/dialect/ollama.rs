//! Ollama's own API (`/api/chat`, `/api/generate`): NDJSON, one object per token or so.
//!
//! Each line has the server's clock (`created_at`), the last one `done: true` with the counts. Reasoning is
//! `thinking`, in the message or beside `response`, or inline as `<think>`; its tokens are not counted
//! apart, `eval_count` is all that was generated.

use serde::Deserialize;
use serde::de::IgnoredAny;
use serde_json::{Value, json};
use sseismo_trace::{Api, Kind, Outcome, Phase, Usage};

use super::field::{Arguments, Few, Piece, Size};
use super::{Asks, Dialect, Learnt, Marks, Said, arguments_at, fields, inline, list_at, text_at};

mod clock;

#[derive(Debug)]
pub(super) struct Ollama;

#[derive(Default, Deserialize)]
#[serde(default)]
struct Line<'a> {
    #[serde(borrow)]
    model: Piece<'a>,
    #[serde(borrow)]
    created_at: Piece<'a>,
    #[serde(borrow)]
    message: Option<Message<'a>>,
    #[serde(borrow)]
    response: Piece<'a>,
    thinking: Size,
    done: bool,
    #[serde(borrow)]
    done_reason: Piece<'a>,
    prompt_eval_count: Option<u64>,
    eval_count: Option<u64>,
    error: Option<IgnoredAny>,
}

#[derive(Default, Deserialize)]
#[serde(default)]
struct Message<'a> {
    #[serde(borrow)]
    content: Piece<'a>,
    thinking: Size,
    tool_calls: Few<ToolCall>,
}

#[derive(Default, Deserialize)]
#[serde(default)]
struct ToolCall {
    function: Option<Function>,
}

#[derive(Default, Deserialize)]
#[serde(default)]
struct Function {
    arguments: Arguments,
}

impl Dialect for Ollama {
    fn api(&self) -> Api {
        Api::Ollama
    }

    fn serves(&self, path: &str) -> bool {
        path.ends_with("/api/chat") || path.ends_with("/api/generate")
    }

    fn speaks(&self, marks: &Marks<'_>) -> bool {
        marks.done.is_some() && marks.created_at.is_some()
    }

    fn event(&self, _: &str, data: &str, learnt: &mut Learnt) -> serde_json::Result<Said> {
        Ok(read(&serde_json::from_str(data)?, learnt))
    }

    fn whole(&self, body: &str, learnt: &mut Learnt) -> serde_json::Result<()> {
        read(&serde_json::from_str(body)?, learnt);
        Ok(())
    }

    fn words(&self, _: &str, json: &Value, learnt: &Learnt, each: &mut dyn FnMut(Kind, &str)) {
        let mut think = learnt.think;
        each(Kind::Reasoning, text_at(json, "/thinking"));
        each(Kind::Reasoning, text_at(json, "/message/thinking"));
        for place in ["/response", "/message/content"] {
            think.parts(text_at(json, place), |inner, text| each(inline(inner), text));
        }
        for call in list_at(json, "/message/tool_calls") {
            each(Kind::Tool, &arguments_at(call, "/function/arguments"));
        }
    }

    fn path(&self, _: &str, _: bool) -> String {
        "/api/chat".to_owned()
    }

    fn request(&self, asks: &Asks<'_>) -> Value {
        fields([
            ("model", Some(asks.model.into())),
            ("messages", Some(json!([{"role": "user", "content": asks.prompt}]))),
            ("stream", Some(asks.streamed.into())),
            ("think", asks.word().map(Value::from)),
            ("format", asks.json.then(|| "json".into())),
            ("options", asks.most.map(|most| json!({"num_predict": most}))),
        ])
    }
}

fn read(line: &Line<'_>, learnt: &mut Learnt) -> Said {
    if line.error.is_some() {
        learnt.end(Outcome::Failed);
        return Said::new(Kind::Error);
    }
    learnt.model(&line.model);
    let (mut reasoning, mut text) = learnt.think.split(&line.response.0);
    let mut tool = 0;
    reasoning += line.thinking.chars;
    if let Some(message) = &line.message {
        let (inline, plain) = learnt.think.split(&message.content.0);
        reasoning += inline + message.thinking.chars;
        text += plain;
        tool = message
            .tool_calls
            .iter()
            .filter_map(|call| call.function.as_ref())
            .map(|call| call.arguments.0)
            .sum();
    }
    learnt.reasoning_chars += u64::from(reasoning);
    let mut said = Said::most([
        (Kind::Reasoning, reasoning),
        (Kind::Summary, 0),
        (Kind::Text, text),
        (Kind::Tool, tool),
    ]);
    if line.done {
        learnt.usage(Usage { input: line.prompt_eval_count, output: line.eval_count, ..Usage::default() });
        learnt.end(if line.done_reason.0 == "length" { Outcome::Incomplete } else { Outcome::Completed });
        if said.kind == Kind::Meta {
            said = Said::new(Kind::Done).phase(Phase::Tail);
        }
    }
    Said { provider_ts: clock::micros(&line.created_at.0), ..said }
}
