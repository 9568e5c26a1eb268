//! Frames to deltas: what an event means in the API that sent it.
//!
//! In: an event's name and data. Out: [`Said`], the event reduced to kind, phase and sizes; and [`Learnt`],
//! what the stream has told about itself so far (model, usage, how it ended). Text is measured and dropped;
//! who asks for it gets it from [`Dialect::words`].
//!
//! One file per API behind [`Dialect`]. To add one: write the file, add its line to [`DIALECTS`], add a
//! recorded body to `data/sse`.
//!
//! | event of the API | kind | phase from here on |
//! |---|---|---|
//! | content, not empty | `reasoning`, `summary`, `text`, `tool` | that of the content |
//! | an item or block opens | `meta` | that of the item |
//! | an item or block closes, generation stopped | `meta` | `tail` |
//! | usage without content | `usage` | `tail` |
//! | the terminal event, `[DONE]` | `done` | `tail` |
//! | an error object | `error` | unchanged |
//! | keep-alives, unknown events, JSON that cannot be read | `ping`, `meta` | unchanged |
//!
//! An event that carries two kinds of content is of the kind with more characters.

use std::borrow::Cow;

use serde::Deserialize;
use serde::de::IgnoredAny;
use serde_json::Value;
use sseismo_trace::{Api, Kind, Outcome, Phase, Usage};

use self::field::Piece;

mod chat;
mod cohere;
pub(crate) mod field;
mod generate_content;
mod messages;
mod ollama;
mod responses;
mod skim;
mod think;

/// Every API that can be read, one line each.
pub static DIALECTS: [&dyn Dialect; 6] = [
    &responses::Responses,
    &chat::Chat,
    &messages::Messages,
    &generate_content::GenerateContent,
    &ollama::Ollama,
    &cohere::Cohere,
];

/// One API.
pub trait Dialect: Sync + std::fmt::Debug {
    /// Which one.
    fn api(&self) -> Api;

    /// Whether requests to `path` (without its query) speak it.
    fn serves(&self, path: &str) -> bool;

    /// Whether an answer, or an event of one, with these marks can only be of this API.
    fn speaks(&self, marks: &Marks<'_>) -> bool;

    /// Reads one event.
    ///
    /// # Errors
    /// The JSON error when the data cannot be read; what it says never holds text of the stream.
    fn event(&self, name: &str, data: &str, learnt: &mut Learnt) -> serde_json::Result<Said>;

    /// Reads a whole JSON answer.
    ///
    /// # Errors
    /// The JSON error when the body cannot be read.
    fn whole(&self, body: &str, learnt: &mut Learnt) -> serde_json::Result<()>;

    /// Hands on the text of one event or of a whole answer, which the other two only measure. To be called
    /// before them: `learnt` is what was known until now.
    fn words(&self, name: &str, json: &Value, learnt: &Learnt, each: &mut dyn FnMut(Kind, &str));

    /// Where below the API's root a request for `model` goes; a query may follow.
    fn path(&self, model: &str, streamed: bool) -> String;

    /// The body of a request with one prompt.
    fn request(&self, asks: &Asks<'_>) -> Value;
}

/// What a request with one prompt asks for, in no API's words. What an API has no word for is left out.
#[derive(Clone, Copy, Debug, Default)]
pub struct Asks<'a> {
    /// The model.
    pub model: &'a str,
    /// The reasoning effort, as in traces: a word, or `budget-N` for so many tokens.
    pub effort: Option<&'a str>,
    /// Whether the answer is to be streamed.
    pub streamed: bool,
    /// Whether JSON is to be answered.
    pub json: bool,
    /// Whether usage is wanted at the end of a stream; most APIs tell it unasked.
    pub usage: bool,
    /// The most tokens to be generated.
    pub most: Option<u64>,
    /// What is asked.
    pub prompt: &'a str,
}

impl<'a> Asks<'a> {
    /// The effort where it is a word.
    pub(crate) fn word(&self) -> Option<&'a str> {
        self.effort.filter(|_| self.budget().is_none())
    }

    /// The effort where it is a budget of tokens.
    pub(crate) fn budget(&self) -> Option<u64> {
        self.effort?.strip_prefix("budget-")?.parse().ok()
    }
}

/// An object of the fields that have a value.
pub(crate) fn fields<const N: usize>(all: [(&str, Option<Value>); N]) -> Value {
    all.into_iter().filter_map(|(name, value)| Some((name.to_owned(), value?))).collect()
}

/// The string at a JSON pointer; any other value is empty.
pub(crate) fn text_at<'a>(json: &'a Value, pointer: &str) -> &'a str {
    json.pointer(pointer).and_then(Value::as_str).unwrap_or_default()
}

/// The elements of the list at a JSON pointer.
pub(crate) fn list_at<'a>(json: &'a Value, pointer: &str) -> &'a [Value] {
    json.pointer(pointer).and_then(Value::as_array).map_or(&[], Vec::as_slice)
}

/// Arguments of a tool call, which come as text or as JSON.
pub(crate) fn arguments_at<'a>(json: &'a Value, pointer: &str) -> Cow<'a, str> {
    match json.pointer(pointer) {
        None | Some(Value::Null) => "".into(),
        Some(Value::String(text)) => text.into(),
        Some(other) => other.to_string().into(),
    }
}

/// The kind of text in which reasoning may stand inline.
pub(crate) fn inline(is_reasoning: bool) -> Kind {
    if is_reasoning { Kind::Reasoning } else { Kind::Text }
}

/// The dialect of requests to `path`; a query is ignored.
pub fn by_path(path: &str) -> Option<&'static dyn Dialect> {
    let path = path.split(['?', '#']).next().unwrap_or(path).trim_end_matches('/');
    DIALECTS.into_iter().find(|dialect| dialect.serves(path))
}

/// The dialect of an API.
pub fn by_api(api: Api) -> &'static dyn Dialect {
    match api {
        Api::Responses => &responses::Responses,
        Api::Chat => &chat::Chat,
        Api::Messages => &messages::Messages,
        Api::GenerateContent => &generate_content::GenerateContent,
        Api::Ollama => &ollama::Ollama,
        Api::Cohere => &cohere::Cohere,
    }
}

/// The dialect of an answer, from one of its events or the whole of it.
pub fn by_content(json: &str) -> Option<&'static dyn Dialect> {
    // A stream of Gemini without `alt=sse` is one list.
    let first = json.trim_ascii_start().strip_prefix('[').unwrap_or(json);
    let marks = serde_json::Deserializer::from_str(first).into_iter::<Marks<'_>>().next()?.ok()?;
    DIALECTS.into_iter().find(|dialect| dialect.speaks(&marks))
}

/// The top-level fields by which answers are told apart.
#[derive(Debug, Default, Deserialize)]
#[serde(default)]
#[expect(missing_docs, reason = "named as on the wire")]
pub struct Marks<'a> {
    #[serde(borrow, rename = "type")]
    pub(crate) kind: Piece<'a>,
    #[serde(borrow)]
    pub(crate) object: Piece<'a>,
    pub choices: Option<IgnoredAny>,
    pub candidates: Option<IgnoredAny>,
    #[serde(rename = "usageMetadata")]
    pub usage_metadata: Option<IgnoredAny>,
    pub done: Option<IgnoredAny>,
    pub created_at: Option<IgnoredAny>,
    pub finish_reason: Option<IgnoredAny>,
    pub message: Option<IgnoredAny>,
}

/// What one event carried.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Said {
    /// What it is.
    pub kind: Kind,
    /// The phase from this event on, where the kind alone does not tell.
    pub phase: Option<Phase>,
    /// Index of the output item, content block or choice.
    pub item_index: Option<u16>,
    /// The provider's sequence number.
    pub provider_seq: Option<u32>,
    /// The provider's clock, µs since 1970 UTC.
    pub provider_ts: Option<i64>,
    /// Unicode scalar values of content.
    pub chars: u32,
    /// Tokens that the provider reported for this event alone.
    pub tokens: Option<u32>,
    /// Bytes of obfuscation.
    pub padding: u32,
}

impl Said {
    pub(crate) fn new(kind: Kind) -> Self {
        Self {
            kind,
            phase: None,
            item_index: None,
            provider_seq: None,
            provider_ts: None,
            chars: 0,
            tokens: None,
            padding: 0,
        }
    }

    /// Content of `kind`; an event that carries none of it is `meta`.
    pub(crate) fn content(kind: Kind, chars: u32) -> Self {
        Self { chars, ..Self::new(if chars == 0 { Kind::Meta } else { kind }) }
    }

    /// The most of several kinds of content, with the characters of all.
    pub(crate) fn most(parts: [(Kind, u32); 4]) -> Self {
        let (mut kind, mut most, mut chars) = (Kind::Meta, 0, 0_u32);
        for (part, count) in parts {
            chars = chars.saturating_add(count);
            if count > most {
                (kind, most) = (part, count);
            }
        }
        Self { chars, ..Self::new(kind) }
    }

    pub(crate) fn phase(self, phase: Phase) -> Self {
        Self { phase: Some(phase), ..self }
    }

    pub(crate) fn item(self, item_index: Option<u16>) -> Self {
        Self { item_index, ..self }
    }
}

/// What a stream has told about itself so far.
#[derive(Debug, Default)]
pub struct Learnt {
    /// The model that answers.
    pub model: Option<String>,
    /// Reasoning effort, where the answer repeats the request's.
    pub effort: Option<String>,
    /// Tokens as reported; later reports replace earlier ones.
    pub usage: Usage,
    /// How the stream ended; `Unknown` while it has not.
    pub outcome: Outcome,
    /// Unicode scalar values of raw reasoning (not of summaries).
    pub reasoning_chars: u64,
    /// How it will have ended once the API's terminal event comes.
    pub(crate) stopping: Outcome,
    pub(crate) think: think::Think,
    /// How the event before was written.
    pub(crate) form: skim::Form,
}

impl Learnt {
    /// The stream ended like this; of several endings the worst stands.
    pub(crate) fn end(&mut self, outcome: Outcome) {
        let rank = |outcome| match outcome {
            Outcome::Unknown => 0,
            Outcome::Completed => 1,
            Outcome::Truncated => 2,
            Outcome::Incomplete => 3,
            Outcome::ClientGone => 4,
            Outcome::Timeout => 5,
            Outcome::Failed => 6,
        };
        if rank(outcome) > rank(self.outcome) {
            self.outcome = outcome;
        }
    }

    /// The answer names its model; the first name stands.
    pub(crate) fn model(&mut self, name: &Piece<'_>) {
        if self.model.is_none() {
            self.model = name.named();
        }
    }

    /// A newer report: what it does not mention stays.
    pub(crate) fn usage(&mut self, newer: Usage) {
        self.usage = Usage {
            input: newer.input.or(self.usage.input),
            cached: newer.cached.or(self.usage.cached),
            output: newer.output.or(self.usage.output),
            reasoning: newer.reasoning.or(self.usage.reasoning),
        };
    }
}

/// A count of tokens as [`Usage`] holds reasoning.
#[expect(clippy::cast_precision_loss, reason = "token counts stay far below 2^53")]
pub(crate) fn count(tokens: Option<u64>) -> Option<f64> {
    tokens.map(|tokens| tokens as f64)
}
