//! Anthropic Messages: content blocks, thinking before text, usage at the start and, cumulative, at the
//! end.

use serde_json::{Value, json};
use sseismo_trace::{Kind, Phase};

use super::{Call, Mark, Stream, quoted};
use crate::plan::What;

/// The content block that is open.
#[derive(Clone, Copy, PartialEq)]
enum Block {
    Thinking,
    Text,
}

pub(super) fn stream(call: &Call<'_>, stream: &mut Stream) {
    let plan = call.plan;
    if plan.beats.first().is_none_or(|beat| beat.what != What::Error) {
        let mut message = message(call);
        message["usage"] = json!({
            "input_tokens": plan.input - plan.cached, "cache_read_input_tokens": plan.cached,
            "cache_creation_input_tokens": 0, "output_tokens": 1,
        });
        let start = json!({ "type": "message_start", "message": message });
        send(stream, Mark::new(Kind::Meta, Phase::Queued), &start);
        send(stream, Mark::new(Kind::Ping, Phase::Queued), &json!({ "type": "ping" }));
    }
    let (mut open, mut index, mut phase) = (None, 0, Phase::Queued);
    for beat in &plan.beats {
        stream.at = beat.at;
        let wanted = match beat.what {
            What::Reasoning | What::Summary => Some(Block::Thinking),
            What::Text => Some(Block::Text),
            _ => None,
        };
        if wanted.is_some() && wanted != open {
            if let Some(block) = open {
                close_block(stream, block, index, phase);
                index += 1;
            }
            open = wanted;
            phase = if wanted == Some(Block::Text) { Phase::Output } else { Phase::Reasoning };
            open_block(stream, wanted, index, phase);
        }
        match beat.what {
            What::Reasoning | What::Summary => {
                let text = stream.reasoning.take(beat.tokens);
                let mark = Mark::new(Kind::Reasoning, phase).item(index).content(&text, beat.tokens);
                send_text(stream, mark, index, "thinking", &text);
            }
            What::Text => {
                let text = stream.answer.take(beat.tokens);
                let mark = Mark::new(Kind::Text, phase).item(index).content(&text, beat.tokens);
                send_text(stream, mark, index, "text", &text);
            }
            What::NextPart => {}
            What::KeepAlive { comment: true } => stream.comment("keep-alive", phase),
            What::KeepAlive { comment: false } => {
                send(stream, Mark::new(Kind::Ping, phase), &json!({ "type": "ping" }));
            }
            What::Malformed => {
                stream.event(Mark::new(Kind::Meta, phase), "content_block_delta", "{\"type\":\"content_blo");
            }
            What::Error => {
                let body = error(call);
                send(stream, Mark::new(Kind::Error, phase), &body);
            }
        }
    }
    if !plan.terminal {
        return;
    }
    if let Some(block) = open {
        close_block(stream, block, index, phase);
    }
    let last = json!({
        "type": "message_delta", "delta": { "stop_reason": stop_reason(call), "stop_sequence": null },
        "usage": usage(call),
    });
    send(stream, Mark::new(Kind::Usage, Phase::Tail), &last);
    send(stream, Mark::new(Kind::Done, Phase::Tail), &json!({ "type": "message_stop" }));
}

fn open_block(stream: &mut Stream, block: Option<Block>, index: u16, phase: Phase) {
    let content = if block == Some(Block::Thinking) {
        json!({ "type": "thinking", "thinking": "", "signature": "" })
    } else {
        json!({ "type": "text", "text": "" })
    };
    let start = json!({ "type": "content_block_start", "index": index, "content_block": content });
    send(stream, Mark::new(Kind::Meta, phase).item(index), &start);
}

fn close_block(stream: &mut Stream, block: Block, index: u16, phase: Phase) {
    let mark = Mark::new(Kind::Meta, phase).item(index);
    if block == Block::Thinking {
        send_delta(stream, mark, index, &json!({ "type": "signature_delta", "signature": "c2ltdWxhdGVk" }));
    }
    send(stream, mark, &json!({ "type": "content_block_stop", "index": index }));
}

fn send_delta(stream: &mut Stream, mark: Mark, index: u16, delta: &Value) {
    send(stream, mark, &json!({ "type": "content_block_delta", "index": index, "delta": delta }));
}

/// A delta of text: by far the most frequent event, so it is written without a tree of values.
fn send_text(stream: &mut Stream, mark: Mark, index: u16, field: &str, text: &str) {
    let data = format!(
        r#"{{"type":"content_block_delta","index":{index},"delta":{{"type":"{field}_delta","{field}":{}}}}}"#,
        quoted(text)
    );
    stream.event(mark, "content_block_delta", &data);
}

/// An event is named after the `type` of its data.
fn send(stream: &mut Stream, mark: Mark, data: &Value) {
    stream.event(mark, data["type"].as_str().unwrap_or_default(), &data.to_string());
}

pub(super) fn whole(call: &Call<'_>) -> Value {
    let plan = call.plan;
    let mut content = Vec::new();
    let thought = super::streamed_reasoning(plan);
    if thought > 0 {
        let thinking = super::Text::filler(thought).all;
        content.push(json!({ "type": "thinking", "thinking": thinking, "signature": "c2ltdWxhdGVk" }));
    }
    content.push(json!({ "type": "text", "text": super::answer(call.ask, plan).all }));
    let mut body = message(call);
    body["content"] = Value::Array(content);
    body["stop_reason"] = stop_reason(call).into();
    body["usage"] = usage(call);
    body["usage"]["input_tokens"] = (plan.input - plan.cached).into();
    body["usage"]["cache_read_input_tokens"] = plan.cached.into();
    body
}

fn stop_reason(call: &Call<'_>) -> &'static str {
    if call.plan.at_limit { "max_tokens" } else { "end_turn" }
}

fn message(call: &Call<'_>) -> Value {
    json!({
        "id": format!("msg_{}", call.id), "type": "message", "role": "assistant", "model": call.model,
        "content": [], "stop_reason": null, "stop_sequence": null,
    })
}

fn usage(call: &Call<'_>) -> Value {
    json!({
        "output_tokens": call.generated(),
        "output_tokens_details": { "thinking_tokens": call.plan.reasoning },
    })
}

fn error(call: &Call<'_>) -> Value {
    let message = call.plan.error.as_ref().map_or("", |error| error.message.as_str());
    json!({ "type": "error", "error": { "type": "overloaded_error", "message": message } })
}
