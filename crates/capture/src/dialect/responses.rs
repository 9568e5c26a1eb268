//! OpenAI Responses, and its speakers (xAI, DeepSeek, OpenRouter, llama.cpp, the Codex backend).
//!
//! Every event has a name, and the struct to read is chosen by it: by far most events are text deltas, and
//! of these only length, indices and obfuscation matter. The stream ends with `response.completed`,
//! `.incomplete` or `.failed`, which hold the usage. Reasoning comes raw (`reasoning_text`) or as a summary
//! (`reasoning_summary_text`); with neither, a reasoning item opens and closes after a silence.
//!
//! Also read: `response.reasoning.delta` with `delta_tokens` and `response.output.delta`, names under which
//! a published account of clustering logs its streams.

use serde::Deserialize;
use serde_json::{Value, json};
use sseismo_trace::{Api, Kind, Outcome, Phase, Usage};

use super::field::{Few, Piece, Size};
use super::skim::{self, Form, Json, Spans, once};
use super::{Asks, Dialect, Learnt, Marks, Said, arguments_at, count, fields, list_at, text_at};

#[derive(Debug)]
pub(super) struct Responses;

/// Values of a text delta that change from event to event.
const DELTA: u8 = 0;
const TOKENS: u8 = 1;
const NUMBER: u8 = 2;
const PADDING: u8 = 3;

/// A delta of text, of whatever kind.
#[derive(Default, Deserialize)]
#[serde(default)]
struct TextDelta {
    delta: Size,
    delta_tokens: Option<u32>,
    output_index: Option<u16>,
    sequence_number: Option<u32>,
    obfuscation: Size,
}

/// An event that opens, closes or comments.
#[derive(Default, Deserialize)]
#[serde(default)]
struct Step<'a> {
    #[serde(borrow, rename = "type")]
    kind: Piece<'a>,
    output_index: Option<u16>,
    sequence_number: Option<u32>,
    #[serde(borrow)]
    item: Option<Item<'a>>,
}

#[derive(Default, Deserialize)]
#[serde(default)]
struct Item<'a> {
    #[serde(borrow, rename = "type")]
    kind: Piece<'a>,
}

/// An event about the response as a whole.
#[derive(Default, Deserialize)]
#[serde(default)]
struct Whole<'a> {
    sequence_number: Option<u32>,
    #[serde(borrow)]
    response: Option<Answer<'a>>,
}

#[derive(Default, Deserialize)]
#[serde(default)]
struct Answer<'a> {
    #[serde(borrow)]
    model: Piece<'a>,
    #[serde(borrow)]
    status: Piece<'a>,
    #[serde(borrow)]
    reasoning: Option<Reasoning<'a>>,
    usage: Option<Tokens>,
}

#[derive(Default, Deserialize)]
#[serde(default)]
struct Reasoning<'a> {
    #[serde(borrow)]
    effort: Piece<'a>,
}

#[derive(Default, Deserialize)]
#[serde(default)]
#[expect(clippy::struct_field_names, reason = "named as on the wire")]
struct Tokens {
    input_tokens: Option<u64>,
    input_tokens_details: Option<Input>,
    output_tokens: Option<u64>,
    output_tokens_details: Option<Output>,
}

#[derive(Default, Deserialize)]
#[serde(default)]
struct Input {
    cached_tokens: Option<u64>,
}

#[derive(Default, Deserialize)]
#[serde(default)]
struct Output {
    reasoning_tokens: Option<u64>,
}

/// The parts of a whole answer that a stream would have sent as deltas.
#[derive(Default, Deserialize)]
#[serde(default)]
struct Body<'a> {
    #[serde(borrow)]
    output: Few<OutputItem<'a>>,
    error: Option<serde::de::IgnoredAny>,
}

#[derive(Default, Deserialize)]
#[serde(default)]
struct OutputItem<'a> {
    #[serde(borrow, rename = "type")]
    kind: Piece<'a>,
    content: Few<Text>,
}

#[derive(Default, Deserialize)]
#[serde(default)]
struct Text {
    text: Size,
}

impl Dialect for Responses {
    fn api(&self) -> Api {
        Api::Responses
    }

    fn serves(&self, path: &str) -> bool {
        path.ends_with("/responses")
    }

    fn speaks(&self, marks: &Marks<'_>) -> bool {
        marks.kind.0.starts_with("response.") || marks.object.0 == "response"
    }

    fn event(&self, name: &str, data: &str, learnt: &mut Learnt) -> serde_json::Result<Said> {
        let name = Some(name).filter(|name| !name.is_empty() && *name != "message");
        if let Some((kind, delta)) = TextDelta::like_the_last(name, data, &learnt.form) {
            return Ok(delta.said(kind, learnt));
        }
        if let Some((kind, delta, spans)) = TextDelta::skim(name, data) {
            let named = name.unwrap_or_default();
            learnt.form.keep(named, data, &spans, Some(kind), delta.output_index);
            return Ok(delta.said(kind, learnt));
        }
        read(name, data, learnt)
    }

    fn whole(&self, body: &str, learnt: &mut Learnt) -> serde_json::Result<()> {
        learn(&serde_json::from_str(body)?, learnt);
        let parts: Body<'_> = serde_json::from_str(body)?;
        for item in parts.output.iter().filter(|item| item.kind.0 == "reasoning") {
            learnt.reasoning_chars += item.content.iter().map(|part| u64::from(part.text.chars)).sum::<u64>();
        }
        if parts.error.is_some() {
            learnt.end(Outcome::Failed);
        }
        Ok(())
    }

    fn words(&self, name: &str, json: &Value, _: &Learnt, each: &mut dyn FnMut(Kind, &str)) {
        let name = if name.is_empty() || name == "message" { text_at(json, "/type") } else { name };
        if let Some(kind) = content(name) {
            each(kind, text_at(json, "/delta"));
        }
        for item in list_at(json, "/output") {
            let kind = if text_at(item, "/type") == "reasoning" { Kind::Reasoning } else { Kind::Text };
            for part in list_at(item, "/summary") {
                each(Kind::Summary, text_at(part, "/text"));
            }
            for part in list_at(item, "/content") {
                each(kind, text_at(part, "/text"));
                each(kind, text_at(part, "/refusal"));
            }
            each(Kind::Tool, &arguments_at(item, "/arguments"));
        }
    }

    fn path(&self, _: &str, _: bool) -> String {
        "/v1/responses".to_owned()
    }

    fn request(&self, asks: &Asks<'_>) -> Value {
        fields([
            ("model", Some(asks.model.into())),
            ("input", Some(asks.prompt.into())),
            ("stream", asks.streamed.then_some(true.into())),
            ("reasoning", asks.word().map(|effort| json!({"effort": effort}))),
            ("text", asks.json.then(|| json!({"format": {"type": "json_object"}}))),
            ("max_output_tokens", asks.most.map(Value::from)),
        ])
    }
}

/// Reads an event, whatever it is.
fn read(name: Option<&str>, data: &str, learnt: &mut Learnt) -> serde_json::Result<Said> {
    if let Some(name) = name {
        return named(name, data, learnt);
    }
    let step: Step<'_> = serde_json::from_str(data)?;
    named(&step.kind.0, data, learnt)
}

/// The kind of content of a text delta with this name.
fn content(name: &str) -> Option<Kind> {
    Some(match name {
        "response.output_text.delta" | "response.output.delta" | "response.refusal.delta" => Kind::Text,
        "response.reasoning_text.delta" | "response.reasoning.delta" => Kind::Reasoning,
        "response.reasoning_summary_text.delta" | "response.reasoning_summary.delta" => Kind::Summary,
        "response.function_call_arguments.delta"
        | "response.custom_tool_call_input.delta"
        | "response.mcp_call_arguments.delta"
        | "response.mcp_call.arguments.delta"
        | "response.code_interpreter_call_code.delta" => Kind::Tool,
        _ => return None,
    })
}

fn named(name: &str, data: &str, learnt: &mut Learnt) -> serde_json::Result<Said> {
    if let Some(kind) = content(name) {
        let delta: TextDelta = serde_json::from_str(data)?;
        return Ok(delta.said(kind, learnt));
    }
    match name {
        "response.completed" | "response.incomplete" | "response.failed" | "response.cancelled" => {
            let event: Whole<'_> = serde_json::from_str(data)?;
            if let Some(answer) = &event.response {
                learn(answer, learnt);
            }
            learnt.end(match name {
                "response.completed" => Outcome::Completed,
                "response.failed" => Outcome::Failed,
                _ => Outcome::Incomplete,
            });
            Ok(Said { provider_seq: event.sequence_number, ..Said::new(Kind::Done).phase(Phase::Tail) })
        }
        "response.created" | "response.queued" | "response.in_progress" => {
            let event: Whole<'_> = serde_json::from_str(data)?;
            if let Some(answer) = &event.response {
                learn(answer, learnt);
            }
            Ok(Said { provider_seq: event.sequence_number, ..Said::new(Kind::Meta) })
        }
        "error" | "response.error" => {
            learnt.end(Outcome::Failed);
            step(Kind::Error, data).map(|(said, _)| said)
        }
        "keepalive" | "ping" => Ok(Said::new(Kind::Ping)),
        _ => {
            let (said, opens) = step(Kind::Meta, data)?;
            let phase = if name.rsplit('.').next() == Some("done") {
                Some(Phase::Tail)
            } else if name == "response.reasoning_summary_part.added" {
                Some(Phase::Summary)
            } else {
                opens.filter(|_| name == "response.output_item.added")
            };
            Ok(Said { phase, ..said })
        }
    }
}

impl TextDelta {
    /// A text delta of the form of the one before it.
    fn like_the_last(name: Option<&str>, data: &str, form: &Form) -> Option<(Kind, Self)> {
        let mut like = Self { output_index: form.item_index, ..Self::default() };
        form.read(name.unwrap_or_default(), data, |json, slot| {
            match slot {
                DELTA => like.delta = json.size()?,
                TOKENS => like.delta_tokens = json.number()?,
                NUMBER => like.sequence_number = json.number()?,
                _ => like.obfuscation = json.size()?,
            }
            Some(())
        })?;
        Some((form.kind?, like))
    }

    /// The usual forms of a text delta, of its kind; the name may be the `type` within.
    fn skim(name: Option<&str>, data: &str) -> Option<(Kind, Self, Spans)> {
        let mut kind = match name {
            Some(name) => Some(content(name)?),
            None => None,
        };
        let (mut named, mut delta, mut tokens, mut item, mut seq, mut padding) =
            (None, None, None, None, None, None);
        let spans = skim::object(data, |json, key| match key {
            "type" if name.is_none() => {
                kind = Some(content(&json.piece()?.0)?);
                once(&mut named, ())
            }
            // Not in a text delta, and read from events without a name.
            "item" => None,
            "delta" => once(&mut delta, json.slot(DELTA, Json::size)?),
            "delta_tokens" => once(&mut tokens, json.slot(TOKENS, Json::number)?),
            "output_index" => once(&mut item, json.number()?),
            "sequence_number" => once(&mut seq, json.slot(NUMBER, Json::number)?),
            "obfuscation" => once(&mut padding, json.slot(PADDING, Json::size)?),
            _ => json.skip(),
        })?;
        let delta = Self {
            delta: delta.unwrap_or_default(),
            delta_tokens: tokens.flatten(),
            output_index: item.flatten(),
            sequence_number: seq.flatten(),
            obfuscation: padding.unwrap_or_default(),
        };
        Some((kind?, delta, spans))
    }

    fn said(&self, kind: Kind, learnt: &mut Learnt) -> Said {
        if kind == Kind::Reasoning {
            learnt.reasoning_chars += u64::from(self.delta.chars);
        }
        let said = Said::content(kind, self.delta.chars);
        Said {
            // The published logs give a count and no text.
            kind: if self.delta_tokens.is_some() { kind } else { said.kind },
            item_index: self.output_index,
            provider_seq: self.sequence_number,
            tokens: self.delta_tokens,
            padding: self.obfuscation.bytes,
            ..said
        }
    }
}

fn step(kind: Kind, data: &str) -> serde_json::Result<(Said, Option<Phase>)> {
    let event: Step<'_> = serde_json::from_str(data)?;
    let opens = event.item.and_then(|item| match &*item.kind.0 {
        "reasoning" => Some(Phase::Reasoning),
        "message" => Some(Phase::Output),
        kind if kind.ends_with("_call") => Some(Phase::Tool),
        _ => None,
    });
    Ok((Said { provider_seq: event.sequence_number, ..Said::new(kind).item(event.output_index) }, opens))
}

fn learn(answer: &Answer<'_>, learnt: &mut Learnt) {
    learnt.model(&answer.model);
    if learnt.effort.is_none() {
        learnt.effort = answer.reasoning.as_ref().and_then(|reasoning| reasoning.effort.named());
    }
    if let Some(tokens) = &answer.usage {
        learnt.usage(Usage {
            input: tokens.input_tokens,
            cached: tokens.input_tokens_details.as_ref().and_then(|input| input.cached_tokens),
            output: tokens.output_tokens,
            reasoning: count(
                tokens.output_tokens_details.as_ref().and_then(|output| output.reasoning_tokens),
            ),
        });
    }
    match &*answer.status.0 {
        "completed" => learnt.end(Outcome::Completed),
        "incomplete" | "cancelled" => learnt.end(Outcome::Incomplete),
        "failed" => learnt.end(Outcome::Failed),
        _ => {}
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::super::skim::tests::{broken, event, recorded, same, same_after, text};
    use super::*;

    const NAMES: [Option<&str>; 3] =
        [None, Some("response.reasoning_text.delta"), Some("response.output_text.delta")];

    fn check(name: Option<&str>, data: &str) {
        same(
            data,
            |learnt| Responses.event(name.unwrap_or_default(), data, learnt),
            |learnt| read(name, data, learnt),
        );
    }

    /// Fields of a text delta as they usually are.
    fn usual() -> impl Strategy<Value = String> {
        event(&[
            ("type", r#""response.reasoning_text.delta""#),
            ("delta", "<text>"),
            ("delta_tokens", "<count>"),
            ("output_index", "7"),
            ("sequence_number", "<count>"),
            ("obfuscation", "<text>"),
            ("item_id", "<text>"),
            ("logprobs", "<any>"),
        ])
    }

    proptest! {
        /// Text deltas in any order of fields and with any text are skimmed, and serde reads the same.
        #[test]
        fn usual_deltas_are_skimmed_as_serde_reads_them(data in usual()) {
            for name in NAMES {
                prop_assert!(name.is_none() || TextDelta::skim(name, &data).is_some());
                check(name, &data);
            }
        }

        /// What serde cannot read stays unreadable.
        #[test]
        fn broken_deltas_are_read_as_serde_reads_them(data in broken(usual())) {
            for name in NAMES {
                check(name, &data);
            }
        }
    }

    proptest! {
        /// An event like the one before, and one that is nearly like it, reads as serde reads it.
        #[test]
        fn the_kept_form_changes_nothing(before in usual(), next in prop_oneof![usual(), broken(usual())], text in text(), n in any::<u16>()) {
            let alike = |text: &str, n: u16| format!(
                r#"{{"type":"response.reasoning_text.delta","sequence_number":{n},"item_id":"a","output_index":1,"delta":{text},"obfuscation":"{n:x}"}}"#
            );
            let event = alike("\"a\"", 9);
            for name in NAMES {
                let ours = |data: &str, learnt: &mut Learnt| Responses.event(name.unwrap_or_default(), data, learnt);
                let theirs = |data: &str, learnt: &mut Learnt| read(name, data, learnt);
                same_after(&before, &next, ours, theirs);
                same_after(&event, &alike(&text, n), ours, theirs);
                let mut learnt = Learnt::default();
                prop_assert!(ours(&event, &mut learnt).is_ok());
                prop_assert!(TextDelta::like_the_last(name, &alike(&text, n), &learnt.form).is_some());
            }
        }

        /// One changed place in an event that was like the one before.
        #[test]
        fn what_is_not_quite_of_the_form_is_read_anew(before in usual(), after in broken(Just(()).prop_map(|()| FIXED.to_owned()))) {
            let ours = |data: &str, learnt: &mut Learnt| Responses.event("", data, learnt);
            let theirs = |data: &str, learnt: &mut Learnt| read(None, data, learnt);
            same_after(FIXED, &after, ours, theirs);
            same_after(&before, &after, ours, theirs);
        }
    }

    const FIXED: &str = r#"{"type":"response.output_text.delta","sequence_number":7,"output_index":0,"delta":"a b","obfuscation":"xy"}"#;

    #[test]
    fn recorded_events_are_mostly_like_the_one_before() {
        let (mut ours, mut reference) = (Learnt::default(), Learnt::default());
        let (mut deltas, mut alike) = (0, 0);
        for data in recorded() {
            let step: Step<'_> = serde_json::from_str(&data).unwrap_or_default();
            if content(&step.kind.0).is_some() {
                deltas += 1;
                alike += u32::from(TextDelta::like_the_last(None, &data, &ours.form).is_some());
            }
            let (a, b) = (Responses.event("", &data, &mut ours), read(None, &data, &mut reference));
            assert_eq!(a.ok(), b.ok(), "{data}");
            assert_eq!(format!("{ours:?}"), format!("{reference:?}"), "{data}");
        }
        assert!(alike * 10 > deltas * 8, "{alike} of {deltas}");
    }

    #[test]
    fn recorded_events_are_skimmed_as_serde_reads_them() {
        let (mut deltas, mut skimmed) = (0, 0);
        for data in recorded() {
            for name in NAMES {
                check(name, &data);
            }
            let step: Step<'_> = serde_json::from_str(&data).unwrap_or_default();
            if content(&step.kind.0).is_some() {
                deltas += 1;
                skimmed += u32::from(TextDelta::skim(None, &data).is_some());
            }
        }
        assert!(deltas > 500 && skimmed == deltas, "{skimmed} of {deltas}");
    }
}
