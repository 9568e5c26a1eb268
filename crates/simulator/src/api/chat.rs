//! Chat Completions with `reasoning_content`, as `DeepSeek`, vLLM and many others speak it: unnamed
//! events, usage only when asked for, `[DONE]` at the end.

use serde_json::{Value, json};
use sseismo_trace::{Kind, Phase};

use super::{Call, Mark, Stream, quoted};
use crate::plan::What;

pub(super) fn stream(call: &Call<'_>, stream: &mut Stream) {
    let plan = call.plan;
    let mut phase = Phase::Queued;
    if plan.beats.first().is_none_or(|beat| beat.what != What::Error) {
        let role = chunk(call, &json!({ "role": "assistant", "content": "" }), None);
        stream.event(Mark::new(Kind::Meta, phase), "", &role);
    }
    for beat in &plan.beats {
        stream.at = beat.at;
        match beat.what {
            What::Reasoning | What::Summary => {
                phase = Phase::Reasoning;
                let text = stream.reasoning.take(beat.tokens);
                let mark = Mark::new(Kind::Reasoning, phase).content(&text, beat.tokens);
                stream.event(mark, "", &text_chunk(call, "reasoning_content", &text));
            }
            What::NextPart => {}
            What::Text => {
                phase = Phase::Output;
                let text = stream.answer.take(beat.tokens);
                if !text.is_empty() {
                    let mark = Mark::new(Kind::Text, phase).content(&text, beat.tokens);
                    stream.event(mark, "", &text_chunk(call, "content", &text));
                }
            }
            What::KeepAlive { .. } => stream.comment("keep-alive", phase),
            What::Malformed => stream.event(Mark::new(Kind::Meta, phase), "", "{\"id\":\"chatcmpl"),
            What::Error => {
                let body = super::error_body(call.ask.api, plan).to_string();
                stream.event(Mark::new(Kind::Error, phase), "", &body);
            }
        }
    }
    if !plan.terminal {
        return;
    }
    let tail = Mark::new(Kind::Meta, Phase::Tail);
    stream.event(tail, "", &chunk(call, &json!({}), Some(finish_reason(call))));
    if call.ask.include_usage {
        let mut last = envelope(call, "chat.completion.chunk");
        last["choices"] = json!([]);
        last["usage"] = usage(call);
        stream.event(Mark::new(Kind::Usage, Phase::Tail), "", &last.to_string());
    }
    stream.event(Mark::new(Kind::Done, Phase::Tail), "", "[DONE]");
}

pub(super) fn whole(call: &Call<'_>) -> Value {
    let plan = call.plan;
    let said = super::answer(call.ask, plan).all;
    let thought = super::Text::filler(super::streamed_reasoning(plan)).all;
    let mut body = envelope(call, "chat.completion");
    let message = json!({ "role": "assistant", "reasoning_content": thought, "content": said });
    body["choices"] = json!([{ "index": 0, "message": message, "finish_reason": finish_reason(call) }]);
    body["usage"] = usage(call);
    body
}

fn finish_reason(call: &Call<'_>) -> &'static str {
    if call.plan.at_limit { "length" } else { "stop" }
}

fn envelope(call: &Call<'_>, object: &str) -> Value {
    json!({
        "id": format!("chatcmpl-{}", call.id), "object": object, "created": call.created, "model": call.model,
    })
}

fn chunk(call: &Call<'_>, delta: &Value, finish: Option<&str>) -> String {
    let mut body = envelope(call, "chat.completion.chunk");
    body["choices"] = json!([{ "index": 0, "delta": delta, "finish_reason": finish }]);
    body.to_string()
}

/// A chunk of text: by far the most frequent event, so it is written without a tree of values.
fn text_chunk(call: &Call<'_>, field: &str, text: &str) -> String {
    let (id, created) = (&call.id, call.created);
    format!(
        r#"{{"id":"chatcmpl-{id}","object":"chat.completion.chunk","created":{created},"model":{},"choices":[{{"index":0,"delta":{{"{field}":{}}},"finish_reason":null}}]}}"#,
        quoted(call.model),
        quoted(text),
    )
}

fn usage(call: &Call<'_>) -> Value {
    let plan = call.plan;
    json!({
        "prompt_tokens": plan.input, "completion_tokens": call.generated(),
        "total_tokens": plan.input + call.generated(),
        "prompt_tokens_details": { "cached_tokens": plan.cached },
        "completion_tokens_details": { "reasoning_tokens": plan.reasoning },
    })
}
