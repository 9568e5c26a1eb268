//! Where in a text the answer stands.

use std::sync::LazyLock;

use regex::Regex;
use serde_json::Value;

/// `Answer: …`, `**Final Answer:** …`, `A: …` at the start of a line, or `the answer is …` anywhere.
static ANSWER_LINE: LazyLock<Regex> = LazyLock::new(|| {
    Regex::new(concat!(
        r"(?im)(?:^[\s>*_#-]*(?:the\s+)?(?:final\s+)?(?:answer|a)[*_]*\s*:[*_]*|",
        r"\b(?:final\s+)?answer\s+is:?)[ \t]*(?P<answer>[^\n]+?)[ \t]*$"
    ))
    .expect("a constant pattern that the tests compile")
});

/// At most this many opening braces are tried as the start of a JSON object.
const JSON_TRIES: usize = 256;

/// How the answer is found. Each way takes the last place that fits: a text that corrects itself counts
/// by its last word.
#[derive(Clone, Debug, Default)]
pub enum Extract {
    /// [`Extract::Boxed`], else [`Extract::Line`].
    #[default]
    Auto,
    /// Inside LaTeX's `\boxed{…}`.
    Boxed,
    /// Behind `Answer:` or `A:`.
    Line,
    /// A JSON pointer (RFC 6901) into the last JSON object of the text.
    Pointer(String),
    /// The first group of a pattern, or its whole match.
    Pattern(Regex),
    /// The whole text.
    Whole,
}

/// A pattern that cannot be used.
#[derive(Debug, thiserror::Error)]
#[error("`{text}` is no way to extract an answer: auto, boxed, line, whole, json:/POINTER or regex:PATTERN")]
pub struct BadPattern {
    text: String,
    source: Option<regex::Error>,
}

impl std::str::FromStr for Extract {
    type Err = BadPattern;

    fn from_str(text: &str) -> Result<Self, BadPattern> {
        let bad = |source| BadPattern { text: text.to_owned(), source };
        match text.split_once(':') {
            Some(("json", pointer)) if pointer.is_empty() || pointer.starts_with('/') => {
                Ok(Self::Pointer(pointer.to_owned()))
            }
            Some(("regex", pattern)) => Regex::new(pattern).map(Self::Pattern).map_err(|e| bad(Some(e))),
            _ => match text {
                "auto" => Ok(Self::Auto),
                "boxed" => Ok(Self::Boxed),
                "line" => Ok(Self::Line),
                "whole" => Ok(Self::Whole),
                _ => Err(bad(None)),
            },
        }
    }
}

impl Extract {
    /// The answer of `text`, not yet normalised; `None` when there is none.
    pub fn answer(&self, text: &str) -> Option<String> {
        let found = match self {
            Self::Auto => boxed(text).or_else(|| line(text)),
            Self::Boxed => boxed(text),
            Self::Line => line(text),
            Self::Pointer(pointer) => pointed(text, pointer),
            Self::Pattern(pattern) => {
                let last = pattern.captures_iter(text).last()?;
                last.get(1).or_else(|| last.get(0)).map(|m| m.as_str().to_owned())
            }
            Self::Whole => Some(text.to_owned()),
        };
        found.map(|answer| answer.trim().to_owned()).filter(|answer| !answer.is_empty())
    }
}

/// What stands in the last `\boxed{…}` whose braces close.
fn boxed(text: &str) -> Option<String> {
    text.rmatch_indices(r"\boxed").find_map(|(at, mark)| {
        let rest = text[at + mark.len()..].trim_start().strip_prefix('{')?;
        braced(rest).map(str::to_owned)
    })
}

/// The text up to the brace that closes the one before it.
pub(super) fn braced(rest: &str) -> Option<&str> {
    let mut depth = 1_usize;
    let mut escaped = false;
    for (i, c) in rest.char_indices() {
        match c {
            _ if escaped => escaped = false,
            '\\' => escaped = true,
            '{' => depth += 1,
            '}' => {
                depth -= 1;
                if depth == 0 {
                    return Some(&rest[..i]);
                }
            }
            _ => {}
        }
    }
    None
}

fn line(text: &str) -> Option<String> {
    ANSWER_LINE.captures_iter(text).last().map(|found| found["answer"].to_owned())
}

fn pointed(text: &str, pointer: &str) -> Option<String> {
    match last_object(text)?.pointer(pointer)? {
        Value::Null => None,
        Value::String(text) => Some(text.clone()),
        other => Some(other.to_string()),
    }
}

/// The last outermost JSON object in a text.
fn last_object(text: &str) -> Option<Value> {
    if let Ok(whole) = serde_json::from_str(text) {
        return Some(whole);
    }
    let mut last = None;
    let mut at = 0;
    for _ in 0..JSON_TRIES {
        let Some(open) = text[at..].find('{') else { break };
        at += open;
        let mut values = serde_json::Deserializer::from_str(&text[at..]).into_iter::<Value>();
        match values.next() {
            Some(Ok(value)) => {
                last = Some(value);
                at += values.byte_offset();
            }
            _ => at += 1,
        }
    }
    last
}
