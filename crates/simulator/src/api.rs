//! Plans to bytes, in the words of three APIs: one file each.
//!
//! In: an [`Ask`] and its [`Plan`]. Out: a [`Script`]. Written from the APIs' documents and recorded
//! streams; shares no code with the decoders that it is there to test.

mod chat;
mod messages;
mod responses;

use std::fmt::Write as _;

use serde_json::{Value, json};
use sseismo_trace::{Api, Kind, Micros, Phase};

use crate::ask::Ask;
use crate::plan::{Answer, Close, Plan};
use crate::script::{Event, Script, Write};

/// Bytes and times of the answer to `ask`. `created` is the provider's clock, seconds since 1970 UTC.
pub(crate) fn encode(ask: &Ask, plan: &Plan, model: &str, created: i64) -> Script {
    let call = Call { ask, plan, model, created, id: format!("{:016x}", crate::draw::mix(ask.number)) };
    if !plan.is_answered() {
        return call.whole(&error_body(ask.api, plan), plan.head_at);
    }
    if !ask.streamed {
        let body = match ask.api {
            Api::Chat => chat::whole(&call),
            Api::Messages => messages::whole(&call),
            _ => responses::whole(&call),
        };
        return call.whole(&body, plan.end());
    }
    let mut stream = call.stream();
    match ask.api {
        Api::Chat => chat::stream(&call, &mut stream),
        Api::Messages => messages::stream(&call, &mut stream),
        _ => responses::stream(&call, &mut stream),
    }
    stream.finish()
}

/// Everything that an encoder needs to know.
struct Call<'a> {
    ask: &'a Ask,
    plan: &'a Plan,
    model: &'a str,
    created: i64,
    id: String,
}

impl Call<'_> {
    fn script(&self, content_type: &str, head_at: Micros) -> Script {
        let mut headers = vec![
            ("content-type", content_type.to_owned()),
            ("x-request-id", format!("req_{}", self.id)),
            ("server", "sseismo-simulator".to_owned()),
        ];
        headers.extend(self.plan.headers.iter().cloned());
        Script {
            status: self.plan.status,
            headers,
            head_at,
            body: Vec::new(),
            events: Vec::new(),
            writes: Vec::new(),
            close_at: self.plan.end().max(head_at),
            close: self.plan.close,
        }
    }

    fn whole(&self, body: &Value, at: Micros) -> Script {
        let mut script = self.script("application/json", at);
        script.body = body.to_string().into_bytes();
        let keep = if self.plan.close == Close::Clean { script.body.len() } else { script.body.len() / 2 };
        script.writes.push(Write { at, end: keep });
        script
    }

    fn stream(&self) -> Stream {
        Stream {
            script: self.script("text/event-stream; charset=utf-8", self.plan.head_at),
            reasoning: Text::filler(self.plan.reasoning.max(streamed_reasoning(self.plan))),
            answer: answer(self.ask, self.plan),
            at: self.plan.head_at,
        }
    }

    fn generated(&self) -> u64 {
        self.plan.reasoning + self.plan.output
    }
}

fn streamed_reasoning(plan: &Plan) -> u64 {
    plan.beats[plan.thinking()].iter().map(|beat| u64::from(beat.tokens)).sum()
}

/// A stream in the making.
struct Stream {
    script: Script,
    reasoning: Text,
    answer: Text,
    at: Micros,
}

/// What an event is, beside its text.
#[derive(Clone, Copy)]
struct Mark {
    kind: Kind,
    phase: Phase,
    item: Option<u16>,
    sequence: Option<u32>,
    chars: usize,
    tokens: u32,
}

impl Mark {
    fn new(kind: Kind, phase: Phase) -> Self {
        Self { kind, phase, item: None, sequence: None, chars: 0, tokens: 0 }
    }

    fn item(self, item: u16) -> Self {
        Self { item: Some(item), ..self }
    }

    fn content(self, text: &str, tokens: u32) -> Self {
        Self { chars: text.chars().count(), tokens, ..self }
    }
}

impl Stream {
    /// One event with its `event:` line, unless `name` is empty.
    fn event(&mut self, mark: Mark, name: &str, data: &str) {
        if !name.is_empty() {
            self.push(&["event: ", name, "\n"]);
        }
        self.push(&["data: ", data, "\n\n"]);
        self.close_event(mark);
    }

    fn comment(&mut self, text: &str, phase: Phase) {
        self.push(&[": ", text, "\n\n"]);
        self.close_event(Mark::new(Kind::Comment, phase));
    }

    fn push(&mut self, parts: &[&str]) {
        for part in parts {
            self.script.body.extend_from_slice(part.as_bytes());
        }
    }

    fn close_event(&mut self, mark: Mark) {
        let end = self.script.body.len();
        self.script.events.push(Event {
            end,
            kind: mark.kind,
            phase: mark.phase,
            item: mark.item,
            sequence: mark.sequence,
            chars: u32::try_from(mark.chars).unwrap_or(u32::MAX),
            tokens: mark.tokens,
        });
        self.script.writes.push(Write { at: self.at, end });
    }

    fn finish(mut self) -> Script {
        self.script.close_at = self.script.close_at.max(self.at);
        self.script
    }
}

/// `text` as a JSON string.
fn quoted(text: &str) -> String {
    if text.bytes().all(|byte| (b' '..=b'~').contains(&byte) && byte != b'"' && byte != b'\\') {
        return format!("\"{text}\"");
    }
    Value::from(text).to_string()
}

/// Text that is handed out token by token.
struct Text {
    all: String,
    ends: Vec<usize>,
    next: usize,
}

/// Words of simulated text: 4 characters each with their space, so that characters and tokens agree.
const WORDS: [&str; 8] = [" the", " sum", " and", " now", " odd", " set", " row", " try"];

impl Text {
    fn new() -> Self {
        Self { all: String::new(), ends: Vec::new(), next: 0 }
    }

    fn filler(tokens: u64) -> Self {
        let mut text = Self::new();
        (0..tokens).for_each(|i| text.add(WORDS[usize::try_from(i % 8).unwrap_or(0)]));
        text
    }

    fn add(&mut self, token: &str) {
        self.all.push_str(token);
        self.ends.push(self.all.len());
    }

    /// The next `tokens` tokens.
    fn take(&mut self, tokens: u32) -> String {
        let start = self.next.checked_sub(1).map_or(0, |last| self.ends[last]);
        self.next = (self.next + tokens as usize).min(self.ends.len());
        let end = self.next.checked_sub(1).map_or(0, |last| self.ends[last]);
        self.all[start..end].to_owned()
    }
}

/// The answer's text. JSON where JSON was asked for; a right answer says 42.
fn answer(ask: &Ask, plan: &Plan) -> Text {
    let mut text = Text::new();
    let n = plan.output;
    let value = if plan.answer == Answer::Wrong { "41" } else { "42" };
    match plan.answer {
        Answer::Empty => return text,
        Answer::Placeholder => {
            text.add("[placeholder]");
            return text;
        }
        Answer::Right | Answer::Wrong | Answer::BrokenJson => {}
    }
    let is_json = ask.wants_json || plan.answer == Answer::BrokenJson;
    for i in 0..n {
        let mut token = String::new();
        if is_json && i == 0 {
            let _ = write!(token, "{{\"answer\": {value}, \"steps\": \"");
        } else if !is_json && i + 1 == n {
            let _ = write!(token, " {value}.");
        } else {
            token.push_str(WORDS[usize::try_from(i % 8).unwrap_or(0)]);
        }
        if is_json && i + 1 == n && plan.answer != Answer::BrokenJson {
            token.push_str("\"}");
        }
        text.add(&token);
    }
    text
}

/// The body of a refusal.
fn error_body(api: Api, plan: &Plan) -> Value {
    let Some(error) = &plan.error else { return json!({}) };
    if api == Api::Messages {
        let kind = match plan.status {
            429 => "rate_limit_error",
            529 => "overloaded_error",
            500..=599 => "api_error",
            _ => error.kind,
        };
        return json!({ "type": "error", "error": { "type": kind, "message": error.message } });
    }
    json!({ "error": { "message": error.message, "type": error.kind, "code": error.code, "param": null } })
}

#[cfg(test)]
mod tests;
