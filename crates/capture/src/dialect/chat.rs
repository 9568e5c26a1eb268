//! OpenAI Chat Completions, and its many speakers.
//!
//! Reasoning comes as `reasoning_content` (DeepSeek, vLLM, SGLang, GLM, llama.cpp), as `reasoning`
//! (OpenRouter, Groq, Ollama, newer vLLM), as `reasoning_details` beside it (OpenRouter; may say that it is
//! a summary, or be encrypted), as a content list with `thinking` parts (Mistral), or inline as `<think>`.
//! A choice ends with its `finish_reason`, the stream with `[DONE]`; some servers send only the first, so
//! either is a clean end. Usage comes with the last chunk or in one of its own; reasoning tokens are in
//! `completion_tokens_details` or beside the other counts. `created` has whole seconds and names the
//! answer, not the event: it is no clock.

use std::fmt;

use serde::Deserialize;
use serde::de::{Deserializer, IgnoredAny, MapAccess, SeqAccess, Visitor};
use serde_json::{Value, json};
use sseismo_trace::{Api, Kind, Outcome, Phase, Usage};

use super::field::{Arguments, Few, Piece, Size};
use super::skim::{self, Json, Spans, once};
use super::{Asks, Dialect, Learnt, Marks, Said, arguments_at, count, fields, inline, list_at, text_at};

#[derive(Debug)]
pub(super) struct Chat;

/// Values of a chunk that change from one to the next.
const CONTENT: u8 = 0;
const REASONING_CONTENT: u8 = 1;
const REASONING: u8 = 2;
const PADDING: u8 = 3;

/// A chunk of a stream, or a whole answer.
///
/// What few chunks carry is boxed here and below: else moving the empty places of a chunk costs a third of
/// the time that it takes to read it.
#[derive(Default, Deserialize)]
#[serde(default)]
struct Chunk<'a> {
    #[serde(borrow)]
    model: Piece<'a>,
    #[serde(borrow)]
    choices: Few<Choice<'a>>,
    usage: Option<Box<Tokens>>,
    x_groq: Option<Box<Groq>>,
    error: Option<IgnoredAny>,
    obfuscation: Size,
}

#[derive(Default, Deserialize)]
#[serde(default)]
struct Choice<'a> {
    index: Option<u16>,
    #[serde(borrow)]
    delta: Option<Message<'a>>,
    #[serde(borrow)]
    message: Option<Box<Message<'a>>>,
    /// The older completions API.
    #[serde(borrow)]
    text: Option<Box<Content<'a>>>,
    #[serde(borrow)]
    finish_reason: Piece<'a>,
}

#[derive(Default, Deserialize)]
#[serde(default)]
struct Message<'a> {
    #[serde(borrow)]
    content: Content<'a>,
    reasoning_content: Size,
    reasoning: Size,
    #[serde(borrow)]
    reasoning_details: Option<Box<Few<Detail<'a>>>>,
    refusal: Size,
    tool_calls: Option<Box<Few<ToolCall>>>,
    function_call: Option<Function>,
}

#[derive(Default, Deserialize)]
#[serde(default)]
struct Detail<'a> {
    #[serde(borrow, rename = "type")]
    kind: Piece<'a>,
    text: Size,
    summary: Size,
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

#[derive(Default, Deserialize)]
#[serde(default)]
struct Groq {
    usage: Option<Tokens>,
}

#[derive(Clone, Copy, Default, Deserialize)]
#[serde(default)]
#[expect(clippy::struct_field_names, reason = "named as on the wire")]
struct Tokens {
    prompt_tokens: Option<u64>,
    completion_tokens: Option<u64>,
    total_tokens: Option<u64>,
    prompt_tokens_details: Option<Prompt>,
    prompt_cache_hit_tokens: Option<u64>,
    completion_tokens_details: Option<Completion>,
    reasoning_tokens: Option<u64>,
}

#[derive(Clone, Copy, Default, Deserialize)]
#[serde(default)]
struct Prompt {
    cached_tokens: Option<u64>,
}

#[derive(Clone, Copy, Default, Deserialize)]
#[serde(default)]
struct Completion {
    reasoning_tokens: Option<u64>,
}

/// The answer's text, as a string or as a list of parts.
#[derive(Default)]
struct Content<'a> {
    text: Piece<'a>,
    /// Characters of the parts of a list.
    listed: u32,
    thinking: u32,
}

#[derive(Default, Deserialize)]
#[serde(default)]
struct Part {
    text: Size,
    thinking: Few<Text>,
}

#[derive(Default, Deserialize)]
#[serde(default)]
struct Text {
    text: Size,
}

impl Dialect for Chat {
    fn api(&self) -> Api {
        Api::Chat
    }

    fn serves(&self, path: &str) -> bool {
        path.ends_with("/chat/completions") || path.ends_with("/v1/completions")
    }

    fn speaks(&self, marks: &Marks<'_>) -> bool {
        marks.choices.is_some() || marks.object.0.starts_with("chat.completion")
    }

    fn event(&self, _: &str, data: &str, learnt: &mut Learnt) -> serde_json::Result<Said> {
        if let Some(said) = like_the_last(data, learnt) {
            return Ok(said);
        }
        let Some((chunk, spans)) = Chunk::skim(data) else {
            return read(&serde_json::from_str(data)?, learnt);
        };
        // What stops or refuses comes once: the form is that of the chunks between.
        if let Some(choice) = chunk.choices.first.as_ref().filter(|choice| choice.is_plain()) {
            learnt.form.keep("", data, &spans, None, choice.index);
        }
        read(&chunk, learnt)
    }

    fn whole(&self, body: &str, learnt: &mut Learnt) -> serde_json::Result<()> {
        read(&serde_json::from_str(body)?, learnt).map(drop)
    }

    fn words(&self, _: &str, json: &Value, learnt: &Learnt, each: &mut dyn FnMut(Kind, &str)) {
        let mut think = learnt.think;
        for choice in list_at(json, "/choices") {
            think.parts(text_at(choice, "/text"), |inner, text| each(inline(inner), text));
            let message = choice.get("delta").filter(|delta| !delta.is_null());
            let Some(message) = message.or_else(|| choice.get("message")) else { continue };
            reasoning_words(message, each);
            for part in list_at(message, "/content") {
                for thought in list_at(part, "/thinking") {
                    each(Kind::Reasoning, text_at(thought, "/text"));
                }
                each(Kind::Text, text_at(part, "/text"));
            }
            think.parts(text_at(message, "/content"), |inner, text| each(inline(inner), text));
            each(Kind::Text, text_at(message, "/refusal"));
            for call in list_at(message, "/tool_calls") {
                each(Kind::Tool, &arguments_at(call, "/function/arguments"));
            }
            each(Kind::Tool, &arguments_at(message, "/function_call/arguments"));
        }
    }

    fn path(&self, _: &str, _: bool) -> String {
        "/v1/chat/completions".to_owned()
    }

    fn request(&self, asks: &Asks<'_>) -> Value {
        fields([
            ("model", Some(asks.model.into())),
            ("messages", Some(json!([{"role": "user", "content": asks.prompt}]))),
            ("stream", asks.streamed.then_some(true.into())),
            ("stream_options", (asks.streamed && asks.usage).then(|| json!({"include_usage": true}))),
            ("reasoning_effort", asks.word().map(Value::from)),
            ("response_format", asks.json.then(|| json!({"type": "json_object"}))),
            ("max_completion_tokens", asks.most.map(Value::from)),
        ])
    }
}

/// As [`Message::reasoning`] counts them.
fn reasoning_words(message: &Value, each: &mut dyn FnMut(Kind, &str)) {
    let longer = |a: String, b: String| if b.chars().count() > a.chars().count() { b } else { a };
    let text = |name: &str| text_at(message, name).to_owned();
    let plain = longer(text("/reasoning_content"), text("/reasoning"));
    let details = list_at(message, "/reasoning_details");
    let all = |name: &str| details.iter().map(|detail| text_at(detail, name)).collect::<String>();
    if details.iter().any(|detail| text_at(detail, "/type") == "reasoning.summary") {
        each(Kind::Reasoning, &all("/text"));
        each(Kind::Summary, &longer(all("/summary"), plain));
    } else {
        each(Kind::Reasoning, &longer(plain, all("/text")));
    }
}

impl<'a> Chunk<'a> {
    /// The usual chunk of one choice. Others, and the fields that only they carry, are left to serde.
    fn skim(data: &'a str) -> Option<(Self, Spans)> {
        let (mut model, mut choice, mut padding) = (None, None, None);
        let (mut usage, mut groq, mut error) = (None, None, None);
        let spans = skim::object(data, |json, key| match key {
            "model" => once(&mut model, json.piece()?),
            "choices" => json.array(|json| once(&mut choice, Choice::skim(json)?)),
            "obfuscation" => once(&mut padding, json.slot(PADDING, Json::size)?),
            "usage" => once(&mut usage, json.null()?),
            "x_groq" => once(&mut groq, json.null()?),
            "error" => once(&mut error, json.null()?),
            _ => json.skip(),
        })?;
        let chunk = Self {
            model: model.unwrap_or_default(),
            choices: Few { first: Some(choice?), rest: Vec::new() },
            obfuscation: padding.unwrap_or_default(),
            ..Self::default()
        };
        Some((chunk, spans))
    }
}

impl<'a> Choice<'a> {
    /// A choice that goes on and says nothing but text and reasoning.
    fn is_plain(&self) -> bool {
        self.finish_reason.is_empty() && self.delta.as_ref().is_some_and(|delta| delta.refusal.chars == 0)
    }

    fn skim(json: &mut Json<'a>) -> Option<Self> {
        let (mut index, mut delta, mut finish) = (None, None, None);
        let (mut message, mut text) = (None, None);
        json.object(|json, key| match key {
            "index" => once(&mut index, json.number()?),
            "delta" => once(&mut delta, Message::skim(json)?),
            "finish_reason" => once(&mut finish, json.piece()?),
            "message" => once(&mut message, json.null()?),
            "text" => once(&mut text, json.null()?),
            _ => json.skip(),
        })?;
        let (index, finish_reason) = (index.flatten(), finish.unwrap_or_default());
        Some(Self { index, delta: Some(delta?), finish_reason, ..Self::default() })
    }
}

impl<'a> Message<'a> {
    fn skim(json: &mut Json<'a>) -> Option<Self> {
        let (mut content, mut reasoning_content, mut reasoning, mut refusal) = (None, None, None, None);
        let (mut details, mut tool_calls, mut function_call) = (None, None, None);
        json.object(|json, key| match key {
            "content" => once(&mut content, json.slot(CONTENT, Json::piece)?),
            "reasoning_content" => once(&mut reasoning_content, json.slot(REASONING_CONTENT, Json::size)?),
            "reasoning" => once(&mut reasoning, json.slot(REASONING, Json::size)?),
            "refusal" => once(&mut refusal, json.size()?),
            "reasoning_details" => once(&mut details, json.null()?),
            "tool_calls" => once(&mut tool_calls, json.null()?),
            "function_call" => once(&mut function_call, json.null()?),
            _ => json.skip(),
        })?;
        Some(Self {
            content: Content { text: content.unwrap_or_default(), ..Content::default() },
            reasoning_content: reasoning_content.unwrap_or_default(),
            reasoning: reasoning.unwrap_or_default(),
            refusal: refusal.unwrap_or_default(),
            ..Self::default()
        })
    }
}

/// A plain chunk of the form of the one before it; as [`read`] reads it.
fn like_the_last(data: &str, learnt: &mut Learnt) -> Option<Said> {
    let (mut content, mut padding) = (Piece::default(), Size::default());
    let (mut reasoning_content, mut reasoning) = (Size::default(), Size::default());
    learnt.form.read("", data, |json, slot| {
        match slot {
            CONTENT => content = json.piece()?,
            REASONING_CONTENT => reasoning_content = json.size()?,
            REASONING => reasoning = json.size()?,
            _ => padding = json.size()?,
        }
        Some(())
    })?;
    let (inline, text) = learnt.think.split(&content.0);
    let raw = reasoning_content.chars.max(reasoning.chars);
    if raw > 0 {
        learnt.think.tell_apart();
    }
    learnt.reasoning_chars += u64::from(inline + raw);
    let most = [(Kind::Reasoning, inline + raw), (Kind::Summary, 0), (Kind::Text, text), (Kind::Tool, 0)];
    Some(Said { item_index: learnt.form.item_index, padding: padding.bytes, ..Said::most(most) })
}

#[expect(clippy::unnecessary_wraps, reason = "the last step of two functions that can fail")]
fn read(chunk: &Chunk<'_>, learnt: &mut Learnt) -> serde_json::Result<Said> {
    learnt.model(&chunk.model);
    let tokens = chunk.usage.as_deref().or_else(|| chunk.x_groq.as_ref()?.usage.as_ref());
    if let Some(tokens) = tokens {
        learnt.usage(tokens.usage());
    }
    if chunk.error.is_some() {
        learnt.end(Outcome::Failed);
        return Ok(Said::new(Kind::Error));
    }
    let (mut reasoning, mut summary, mut text, mut tool) = (0, 0, 0, 0);
    let mut stops = false;
    for choice in chunk.choices.iter() {
        stops |= finish(&choice.finish_reason.0, learnt);
        if let Some(older) = &choice.text {
            let (inline, plain) = older.split(learnt);
            reasoning += inline;
            text += plain;
        }
        let Some(message) = choice.delta.as_ref().or(choice.message.as_deref()) else { continue };
        let (inline, plain) = message.content.split(learnt);
        reasoning += inline;
        text += plain + message.refusal.chars;
        let (raw, summarised) = message.reasoning();
        reasoning += raw;
        summary += summarised;
        if raw + summarised > 0 {
            learnt.think.tell_apart();
        }
        let calls = message.tool_calls.iter().flat_map(|calls| calls.iter());
        let calls = calls.filter_map(|call| call.function.as_ref());
        tool += calls.chain(&message.function_call).map(|call| call.arguments.0).sum::<u32>();
    }
    learnt.reasoning_chars += u64::from(reasoning);
    let most =
        [(Kind::Reasoning, reasoning), (Kind::Summary, summary), (Kind::Text, text), (Kind::Tool, tool)];
    let mut said = Said::most(most);
    if said.kind == Kind::Meta && tokens.is_some() {
        said = Said::new(Kind::Usage).phase(Phase::Tail);
    } else if said.kind == Kind::Meta && stops {
        said = said.phase(Phase::Tail);
    }
    Ok(Said {
        item_index: chunk.choices.first.as_ref().and_then(|choice| choice.index),
        padding: chunk.obfuscation.bytes,
        ..said
    })
}

/// Whether the choice stops, and how.
fn finish(reason: &str, learnt: &mut Learnt) -> bool {
    match reason {
        "" => return false,
        "length" | "content_filter" | "max_tokens" | "insufficient_system_resource" | "abort" => {
            learnt.end(Outcome::Incomplete);
        }
        "error" => learnt.end(Outcome::Failed),
        _ => learnt.end(Outcome::Completed),
    }
    true
}

impl Message<'_> {
    /// Characters of raw and of summarised reasoning. `reasoning_details` repeats `reasoning`.
    fn reasoning(&self) -> (u32, u32) {
        let plain = self.reasoning_content.chars.max(self.reasoning.chars);
        let Some(details) = &self.reasoning_details else { return (plain, 0) };
        let raw: u32 = details.iter().map(|detail| detail.text.chars).sum();
        let summary: u32 = details.iter().map(|detail| detail.summary.chars).sum();
        let said_so = details.iter().any(|detail| detail.kind.0 == "reasoning.summary");
        if said_so { (raw, summary.max(plain)) } else { (plain.max(raw), 0) }
    }
}

impl Tokens {
    fn usage(&self) -> Usage {
        let reasoning = self
            .completion_tokens_details
            .and_then(|details| details.reasoning_tokens)
            .or(self.reasoning_tokens);
        // xAI counts reasoning beside the completion, everybody else within it: the total tells.
        let beside = match (self.prompt_tokens, self.completion_tokens, reasoning, self.total_tokens) {
            (Some(prompt), Some(completion), Some(reasoning), Some(total)) if reasoning > 0 => {
                total == prompt.saturating_add(completion).saturating_add(reasoning)
            }
            _ => false,
        };
        let extra = if beside { reasoning.unwrap_or(0) } else { 0 };
        Usage {
            input: self.prompt_tokens,
            cached: self
                .prompt_tokens_details
                .and_then(|details| details.cached_tokens)
                .or(self.prompt_cache_hit_tokens),
            output: self.completion_tokens.map(|completion| completion.saturating_add(extra)),
            reasoning: count(reasoning),
        }
    }
}

impl Content<'_> {
    /// Characters of reasoning and of answer.
    fn split(&self, learnt: &mut Learnt) -> (u32, u32) {
        let (inline, plain) = learnt.think.split(&self.text.0);
        (inline + self.thinking, plain + self.listed)
    }
}

impl<'de: 'a, 'a> Deserialize<'de> for Content<'a> {
    fn deserialize<D: Deserializer<'de>>(json: D) -> Result<Self, D::Error> {
        struct Any;
        impl<'de> Visitor<'de> for Any {
            type Value = Content<'de>;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("text or a list of parts")
            }

            fn visit_borrowed_str<E>(self, text: &'de str) -> Result<Self::Value, E> {
                Ok(Content { text: Piece(text.into()), ..Content::default() })
            }

            fn visit_str<E>(self, text: &str) -> Result<Self::Value, E> {
                Ok(Content { text: Piece(text.to_owned().into()), ..Content::default() })
            }

            fn visit_unit<E>(self) -> Result<Self::Value, E> {
                Ok(Content::default())
            }

            fn visit_map<A: MapAccess<'de>>(self, mut fields: A) -> Result<Self::Value, A::Error> {
                while fields.next_entry::<IgnoredAny, IgnoredAny>()?.is_some() {}
                Ok(Content::default())
            }

            fn visit_seq<A: SeqAccess<'de>>(self, mut parts: A) -> Result<Self::Value, A::Error> {
                let mut content = Content::default();
                while let Some(part) = parts.next_element::<Part>()? {
                    content.listed += part.text.chars;
                    content.thinking += part.thinking.iter().map(|text| text.text.chars).sum::<u32>();
                }
                Ok(content)
            }
        }
        json.deserialize_any(Any)
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::super::skim::tests::{broken, event, recorded, same, same_after, text};
    use super::*;

    fn check(data: &str) {
        same(
            data,
            |learnt| Chat.event("", data, learnt),
            |learnt| read(&serde_json::from_str(data)?, learnt),
        );
    }

    /// Fields of a chunk as they usually are.
    fn usual() -> impl Strategy<Value = String> {
        let delta = event(&[
            ("role", r#""assistant""#),
            ("content", "<text>"),
            ("reasoning", "<text>"),
            ("reasoning_content", "<text>"),
            ("refusal", "<text>"),
            ("tool_calls", "null"),
            ("channel", "<any>"),
        ]);
        let choice = (
            delta,
            event(&[("index", "0"), ("finish_reason", "<text>"), ("logprobs", "<any>"), ("delta", "<hole>")]),
        );
        let chunk = event(&[
            ("id", "<text>"),
            ("object", r#""chat.completion.chunk""#),
            ("created", "<count>"),
            ("model", "<text>"),
            ("usage", "null"),
            ("obfuscation", "<text>"),
            ("choices", "[<hole>]"),
        ]);
        (choice, chunk).prop_map(|((delta, choice), chunk)| {
            chunk.replacen("<hole>", &choice.replacen("<hole>", &delta, 1), 1)
        })
    }

    #[test]
    fn absurd_counts_are_no_reason_to_panic() {
        let most = u64::MAX;
        let data = format!(
            r#"{{"usage":{{"prompt_tokens":{most},"completion_tokens":{most},"total_tokens":{most},
            "completion_tokens_details":{{"reasoning_tokens":{most}}}}}}}"#
        );
        let mut learnt = Learnt::default();
        Chat.event("", &data, &mut learnt).unwrap();
        assert_eq!(learnt.usage.output, Some(most));
    }

    proptest! {
        /// Chunks in any order of fields and with any text are skimmed, and serde reads the same.
        #[test]
        fn usual_chunks_are_skimmed_as_serde_reads_them(data in usual()) {
            let whole = data.contains("choices") && data.contains("\"delta\"");
            prop_assert_eq!(Chunk::skim(&data).is_some(), whole, "{}", data);
            check(&data);
        }

        /// What serde cannot read stays unreadable.
        #[test]
        fn broken_chunks_are_read_as_serde_reads_them(data in broken(usual())) {
            check(&data);
        }
    }

    const FIXED: &str = r#"{"id":"c","object":"chat.completion.chunk","created":1,"model":"m","choices":[{"index":0,"delta":{"content":"a b","reasoning_content":null},"finish_reason":null}],"obfuscation":"xy"}"#;

    fn ours(data: &str, learnt: &mut Learnt) -> serde_json::Result<Said> {
        Chat.event("", data, learnt)
    }

    fn theirs(data: &str, learnt: &mut Learnt) -> serde_json::Result<Said> {
        read(&serde_json::from_str(data)?, learnt)
    }

    proptest! {
        /// A chunk like the one before, and one that is nearly like it, reads as serde reads it.
        #[test]
        fn the_kept_form_changes_nothing(
            before in usual(), next in prop_oneof![usual(), broken(usual())],
            content in text(), thought in text(), nearly in broken(Just(FIXED.to_owned())),
        ) {
            same_after(&before, &next, ours, theirs);
            same_after(FIXED, &nearly, ours, theirs);
            let alike = FIXED.replacen("\"a b\"", &content, 1).replacen("_content\":null", &format!("_content\":{thought}"), 1);
            same_after(FIXED, &alike, ours, theirs);
            let mut learnt = Learnt::default();
            prop_assert!(ours(FIXED, &mut learnt).is_ok());
            prop_assert!(like_the_last(&alike, &mut learnt).is_some(), "{}", alike);
        }
    }

    #[test]
    fn recorded_chunks_are_mostly_like_the_one_before() {
        let (mut learnt, mut reference) = (Learnt::default(), Learnt::default());
        let (mut chunks, mut alike) = (0, 0);
        for data in recorded() {
            if data.contains("chat.completion.chunk") {
                chunks += 1;
                alike += u32::from(learnt.form.read("", &data, |json, _| json.piece().map(drop)).is_some());
            }
            assert_eq!(ours(&data, &mut learnt).ok(), theirs(&data, &mut reference).ok(), "{data}");
            assert_eq!(format!("{learnt:?}"), format!("{reference:?}"), "{data}");
        }
        assert!(chunks > 2000 && alike * 10 > chunks * 5, "{alike} of {chunks}");
    }

    #[test]
    fn recorded_chunks_are_skimmed_as_serde_reads_them() {
        let (mut chunks, mut skimmed) = (0, 0);
        for data in recorded() {
            check(&data);
            chunks += u32::from(data.contains("chat.completion.chunk"));
            skimmed += u32::from(Chunk::skim(&data).is_some());
        }
        assert!(chunks > 2000 && skimmed * 10 > chunks * 8, "{skimmed} of {chunks}");
    }
}
