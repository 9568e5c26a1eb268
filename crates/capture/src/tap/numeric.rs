//! How much of a prompt is numbers: long numeric prompts are where answers come back whole and wrong.
//!
//! In: the members of a request's body. Out: the share of prompt characters that are digits, or one of
//! `.,|;:%$-` inside a run of digits. The text is looked at where it stands: a long prompt is not copied.

use std::collections::BTreeMap;
use std::fmt;

use serde::de::{DeserializeSeed, Deserializer, IgnoredAny, MapAccess, SeqAccess, Visitor};
use serde_json::value::RawValue;

/// Body keys that hold what the model reads.
const PROMPTS: [&str; 8] =
    ["messages", "input", "instructions", "system", "contents", "systemInstruction", "prompt", "message"];

/// Keys under a prompt whose strings are no prompt text.
const NOT_TEXT: [&str; 14] = [
    "type",
    "role",
    "id",
    "encrypted_content",
    "data",
    "url",
    "image_url",
    "file_data",
    "signature",
    "status",
    "call_id",
    "tool_call_id",
    "internal_chat_message_metadata_passthrough",
    "cache_control",
];

/// Members of a JSON object by name.
type Members<'a> = BTreeMap<String, &'a RawValue>;

/// The `prompt_numeric_share` of a decoded request body; `None` when it is no JSON object or has no prompt.
pub fn prompt_numeric_share(body: &[u8]) -> Option<f64> {
    share(&serde_json::from_slice::<Members<'_>>(body).ok()?)
}

/// The same of its members.
pub(super) fn share(members: &Members<'_>) -> Option<f64> {
    let mut count = Count::default();
    for prompt in PROMPTS.iter().filter_map(|name| members.get(*name)) {
        // What cannot be read is left out: the upstream will say what is wrong with it.
        let _ = count.deserialize(&mut serde_json::Deserializer::from_str(prompt.get()));
    }
    count.share()
}

/// Characters of a prompt.
#[derive(Debug, Default)]
struct Count {
    numeric: u64,
    all: u64,
}

impl Count {
    fn text(&mut self, text: &str) {
        self.all += text.chars().count() as u64;
        let mut after_digit = false;
        let mut separators = 0;
        for byte in text.bytes() {
            match byte {
                b'0'..=b'9' => {
                    self.numeric += 1 + std::mem::take(&mut separators);
                    after_digit = true;
                }
                b'.' | b',' | b'|' | b';' | b':' | b'%' | b'$' | b'-' if after_digit => separators += 1,
                _ => (after_digit, separators) = (false, 0),
            }
        }
    }

    #[expect(clippy::cast_precision_loss, reason = "character counts stay far below 2^53")]
    fn share(&self) -> Option<f64> {
        (self.all > 0).then(|| self.numeric as f64 / self.all as f64)
    }
}

impl<'de> DeserializeSeed<'de> for &mut Count {
    type Value = ();

    fn deserialize<D: Deserializer<'de>>(self, value: D) -> Result<(), D::Error> {
        value.deserialize_any(self)
    }
}

impl<'de> Visitor<'de> for &mut Count {
    type Value = ();

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a prompt")
    }

    fn visit_str<E>(self, text: &str) -> Result<(), E> {
        self.text(text);
        Ok(())
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut items: A) -> Result<(), A::Error> {
        while items.next_element_seed(&mut *self)?.is_some() {}
        Ok(())
    }

    fn visit_map<A: MapAccess<'de>>(self, mut members: A) -> Result<(), A::Error> {
        while let Some(is_text) = members.next_key_seed(IsText)? {
            if is_text {
                members.next_value_seed(&mut *self)?;
            } else {
                members.next_value::<IgnoredAny>()?;
            }
        }
        Ok(())
    }

    fn visit_unit<E>(self) -> Result<(), E> {
        Ok(())
    }

    fn visit_bool<E>(self, _: bool) -> Result<(), E> {
        Ok(())
    }

    fn visit_i64<E>(self, _: i64) -> Result<(), E> {
        Ok(())
    }

    fn visit_u64<E>(self, _: u64) -> Result<(), E> {
        Ok(())
    }

    fn visit_f64<E>(self, _: f64) -> Result<(), E> {
        Ok(())
    }
}

/// Whether what a key names may be text of the prompt.
struct IsText;

impl<'de> DeserializeSeed<'de> for IsText {
    type Value = bool;

    fn deserialize<D: Deserializer<'de>>(self, key: D) -> Result<bool, D::Error> {
        key.deserialize_str(self)
    }
}

impl Visitor<'_> for IsText {
    type Value = bool;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a key")
    }

    fn visit_str<E>(self, key: &str) -> Result<bool, E> {
        Ok(!NOT_TEXT.contains(&key))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn digits_and_what_joins_them_are_counted_in_prompt_text_alone() {
        let cases: [(&str, Option<f64>); 8] = [
            (r#"{"messages":[{"role":"user","content":"1,234.5 ab"}]}"#, Some(0.7)),
            (r#"{"input":"12","model":"gpt-5555"}"#, Some(1.0)),
            (
                r#"{"input":[{"type":"x","id":"1234","content":[{"type":"y","text":"a\n9-"}],"n":17,"b":true,"z":null}]}"#,
                Some(0.25),
            ),
            (r#"{"input":"é1é2"}"#, Some(0.5)),
            (r#"{"system":"ab","prompt":["12",["cd"]]}"#, Some(1.0 / 3.0)),
            (r#"{"model":"m"}"#, None),
            (r#"{"input":[]}"#, None),
            ("[1]", None),
        ];
        for (body, expected) in cases {
            assert_eq!(prompt_numeric_share(body.as_bytes()), expected, "{body}");
        }
    }
}
