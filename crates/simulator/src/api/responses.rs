//! OpenAI Responses: named events with sequence numbers, one reasoning item, one message item.

use serde_json::{Value, json};
use sseismo_trace::{Kind, Phase};

use super::{Call, Mark, Stream, quoted};
use crate::plan::What;

/// The stream's place between its items.
#[derive(PartialEq)]
enum Open {
    Nothing,
    Reasoning,
    Message,
}

struct Writer<'a> {
    call: &'a Call<'a>,
    stream: &'a mut Stream,
    sequence: u32,
    part: u32,
    thought: String,
    said: String,
    summary: bool,
}

pub(super) fn stream(call: &Call<'_>, stream: &mut Stream) {
    let summary = call.plan.beats.iter().any(|beat| beat.what == What::Summary);
    let mut writer =
        Writer { call, stream, sequence: 0, part: 0, thought: String::new(), said: String::new(), summary };
    writer.run();
}

impl Writer<'_> {
    fn run(&mut self) {
        let plan = self.call.plan;
        if plan.beats.first().is_none_or(|beat| beat.what != What::Error) {
            for name in ["response.created", "response.in_progress"] {
                let response = self.response("in_progress");
                self.send(name, Mark::new(Kind::Meta, Phase::Queued), json!({ "response": response }));
            }
        }
        let mut open = Open::Nothing;
        if plan.reasoning > 0 && !plan.beats.is_empty() && plan.error.is_none() {
            self.open_reasoning();
            open = Open::Reasoning;
        }
        for beat in &plan.beats {
            self.stream.at = beat.at;
            match beat.what {
                What::Reasoning | What::Summary | What::NextPart if open == Open::Nothing => {
                    self.open_reasoning();
                    open = Open::Reasoning;
                }
                What::Text if open != Open::Message => {
                    if open == Open::Reasoning {
                        self.close_reasoning();
                    }
                    self.open_message();
                    open = Open::Message;
                }
                _ => {}
            }
            self.beat(beat.what, beat.tokens, &open);
        }
        if !plan.terminal {
            return;
        }
        match open {
            Open::Reasoning => self.close_reasoning(),
            Open::Message => self.close_message(),
            Open::Nothing => {}
        }
        let (name, status) = if plan.at_limit {
            ("response.incomplete", "incomplete")
        } else {
            ("response.completed", "completed")
        };
        let mut response = self.response(status);
        response["output"] = output(self.call, &self.said);
        response["usage"] = usage(self.call);
        self.send(name, Mark::new(Kind::Done, Phase::Tail), json!({ "response": response }));
    }

    fn beat(&mut self, what: What, tokens: u32, open: &Open) {
        let phase = match open {
            Open::Nothing => Phase::Queued,
            Open::Reasoning if self.summary => Phase::Summary,
            Open::Reasoning => Phase::Reasoning,
            Open::Message => Phase::Output,
        };
        match what {
            What::Reasoning | What::Summary => {
                let text = self.stream.reasoning.take(tokens);
                self.thought.push_str(&text);
                let (kind, phase, name, index) = if what == What::Summary {
                    let name = "response.reasoning_summary_text.delta";
                    (Kind::Summary, Phase::Summary, name, ("summary_index", self.part))
                } else {
                    let name = "response.reasoning_text.delta";
                    (Kind::Reasoning, Phase::Reasoning, name, ("content_index", 0))
                };
                let mark = Mark::new(kind, phase).item(0).content(&text, tokens);
                self.send_text(name, mark, "rs", index, &text);
            }
            What::NextPart => {
                self.part_event("response.reasoning_summary_part.done");
                self.part += 1;
                self.part_event("response.reasoning_summary_part.added");
            }
            What::Text => {
                let text = self.stream.answer.take(tokens);
                self.said.push_str(&text);
                let mark =
                    Mark::new(Kind::Text, Phase::Output).item(self.message_index()).content(&text, tokens);
                self.send_text("response.output_text.delta", mark, "msg", ("content_index", 0), &text);
            }
            What::KeepAlive { comment: true } => self.stream.comment("keep-alive", phase),
            What::KeepAlive { comment: false } => {
                self.send("keepalive", Mark::new(Kind::Ping, phase), json!({}));
            }
            What::Malformed => {
                let mark = Mark::new(Kind::Meta, phase);
                self.stream.event(mark, "response.output_text.delta", "{\"type\":\"response.output_te");
            }
            What::Error => {
                let mut response = self.response("failed");
                if let Some(error) = &self.call.plan.error {
                    response["error"] = json!({ "code": error.code, "message": error.message });
                }
                self.send("response.failed", Mark::new(Kind::Error, phase), json!({ "response": response }));
            }
        }
    }

    fn send(&mut self, name: &str, mark: Mark, mut data: Value) {
        data["type"] = name.into();
        data["sequence_number"] = self.sequence.into();
        let mark = Mark { sequence: Some(self.sequence), ..mark };
        self.stream.event(mark, name, &data.to_string());
        self.sequence += 1;
    }

    /// A delta of text: by far the most frequent event, so it is written without a tree of values.
    fn send_text(&mut self, name: &str, mark: Mark, item: &str, (index, of): (&str, u32), text: &str) {
        let (sequence, id, place) = (self.sequence, &self.call.id, mark.item.unwrap_or(0));
        let data = format!(
            r#"{{"type":"{name}","sequence_number":{sequence},"item_id":"{item}_{id}","output_index":{place},"{index}":{of},"delta":{}}}"#,
            quoted(text),
        );
        self.stream.event(Mark { sequence: Some(sequence), ..mark }, name, &data);
        self.sequence += 1;
    }

    fn open_reasoning(&mut self) {
        let item = json!({ "id": self.item_id("rs"), "type": "reasoning", "summary": [] });
        let mark = Mark::new(Kind::Meta, Phase::Queued).item(0);
        self.send("response.output_item.added", mark, json!({ "output_index": 0, "item": item }));
        if self.summary {
            self.part_event("response.reasoning_summary_part.added");
        }
    }

    fn part_event(&mut self, name: &str) {
        let data = json!({
            "item_id": self.item_id("rs"), "output_index": 0, "summary_index": self.part,
            "part": { "type": "summary_text", "text": "" },
        });
        self.send(name, Mark::new(Kind::Meta, Phase::Summary).item(0), data);
    }

    fn close_reasoning(&mut self) {
        let mut item = json!({ "id": self.item_id("rs"), "type": "reasoning", "summary": [] });
        let phase = if self.summary { Phase::Summary } else { Phase::Reasoning };
        if self.summary {
            self.part_event("response.reasoning_summary_part.done");
            item["summary"] = json!([{ "type": "summary_text", "text": self.thought }]);
        } else if !self.thought.is_empty() {
            item["content"] = json!([{ "type": "reasoning_text", "text": self.thought }]);
        }
        let mark = Mark::new(Kind::Meta, phase).item(0);
        self.send("response.output_item.done", mark, json!({ "output_index": 0, "item": item }));
    }

    fn open_message(&mut self) {
        let mark = Mark::new(Kind::Meta, Phase::Output).item(self.message_index());
        let item = json!({
            "id": self.item_id("msg"), "type": "message", "status": "in_progress", "role": "assistant", "content": [],
        });
        self.send(
            "response.output_item.added",
            mark,
            json!({ "output_index": self.message_index(), "item": item }),
        );
        let data = json!({
            "item_id": self.item_id("msg"), "output_index": self.message_index(), "content_index": 0,
            "part": { "type": "output_text", "text": "", "annotations": [] },
        });
        self.send("response.content_part.added", mark, data);
    }

    fn close_message(&mut self) {
        let mark = Mark::new(Kind::Meta, Phase::Output).item(self.message_index());
        let data = json!({
            "item_id": self.item_id("msg"), "output_index": self.message_index(), "content_index": 0, "text": self.said,
        });
        self.send("response.output_text.done", mark, data);
        let item = message(self.call, &self.said);
        self.send(
            "response.output_item.done",
            mark,
            json!({ "output_index": self.message_index(), "item": item }),
        );
    }

    fn item_id(&self, prefix: &str) -> String {
        format!("{prefix}_{}", self.call.id)
    }

    fn message_index(&self) -> u16 {
        u16::from(self.call.plan.reasoning > 0)
    }

    fn response(&self, status: &str) -> Value {
        response(self.call, status)
    }
}

fn response(call: &Call<'_>, status: &str) -> Value {
    let incomplete = (status == "incomplete").then(|| json!({ "reason": "max_output_tokens" }));
    json!({
        "id": format!("resp_{}", call.id), "object": "response", "created_at": call.created, "status": status,
        "error": null, "incomplete_details": incomplete, "model": call.model, "output": [],
        "reasoning": { "effort": call.ask.effort, "summary": null }, "usage": null,
    })
}

fn message(call: &Call<'_>, said: &str) -> Value {
    json!({
        "id": format!("msg_{}", call.id), "type": "message", "status": "completed", "role": "assistant",
        "content": [{ "type": "output_text", "text": said, "annotations": [] }],
    })
}

fn output(call: &Call<'_>, said: &str) -> Value {
    let mut items = Vec::new();
    if call.plan.reasoning > 0 {
        items.push(json!({ "id": format!("rs_{}", call.id), "type": "reasoning", "summary": [] }));
    }
    if !said.is_empty() {
        items.push(message(call, said));
    }
    Value::Array(items)
}

fn usage(call: &Call<'_>) -> Value {
    let plan = call.plan;
    json!({
        "input_tokens": plan.input, "input_tokens_details": { "cached_tokens": plan.cached },
        "output_tokens": call.generated(), "output_tokens_details": { "reasoning_tokens": plan.reasoning },
        "total_tokens": plan.input + call.generated(),
    })
}

pub(super) fn whole(call: &Call<'_>) -> Value {
    let said = super::answer(call.ask, call.plan).all;
    let mut body = response(call, if call.plan.at_limit { "incomplete" } else { "completed" });
    body["output"] = output(call, &said);
    body["usage"] = usage(call);
    body
}
