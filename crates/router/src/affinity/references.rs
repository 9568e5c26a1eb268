//! Finds references to state in JSON, without building a tree of it.
//!
//! | where | what |
//! |---|---|
//! | Responses | `encrypted_content` of reasoning items, `previous_response_id`, `conversation`, the answer's `id`, those of its items; `item_reference`s and reasoning items that hold nothing but their `id` |
//! | Messages | `signature` of thinking blocks, `data` of redacted ones |
//! | Chat | `reasoning_details[].data` of encrypted ones and their `signature` (OpenRouter), `thought_signature` (Gemini) |

use std::borrow::Cow;
use std::fmt;

use serde::de::{Deserialize, DeserializeSeed, Deserializer, IgnoredAny, MapAccess, SeqAccess, Visitor};
use serde_json::value::RawValue;

/// Keys whose string is a reference wherever it stands.
const ANYWHERE: [&str; 4] =
    ["encrypted_content", "previous_response_id", "thought_signature", "thoughtSignature"];

/// Types of blocks whose `signature` is a reference; elsewhere the word may be an argument of a tool.
const SIGNED: [&str; 4] = ["thinking", "signature_delta", "reasoning.text", "reasoning.encrypted"];

/// Types of blocks whose `data` is a reference.
const OPAQUE: [&str; 2] = ["redacted_thinking", "reasoning.encrypted"];

/// One of these words stands in every answer that issues a reference.
const WORDS: [&str; 7] = [
    "\"response\"",
    "output_item",
    "encrypted_content",
    "ignature\"",
    "redacted_thinking",
    "reasoning.encrypted",
    "\"conversation\"",
];

/// Deeper nesting holds no references.
const DEEPEST: u8 = 24;

/// References that a request's body carries; what stands before a fault in its JSON counts.
pub fn carried(body: &[u8]) -> Vec<String> {
    walk(body, Ids { of_top: false, of: &["conversation"], of_each: &[], of_references: true })
}

/// References that an answer, or the JSON of one of its events, issues.
pub fn issued(json: &[u8]) -> Vec<String> {
    // Most events are text deltas: look before parsing.
    let interesting = WORDS.iter().any(|word| memchr::memmem::find(json, word.as_bytes()).is_some());
    if !interesting {
        return Vec::new();
    }
    let of = &["response", "conversation", "item"];
    walk(json, Ids { of_top: true, of, of_each: &["output"], of_references: false })
}

/// Which objects' `id` is a reference.
#[derive(Clone, Copy)]
struct Ids {
    of_top: bool,
    /// Names of such objects; a string under such a name is a reference itself.
    of: &'static [&'static str],
    /// Names of arrays of such objects.
    of_each: &'static [&'static str],
    /// Items that stand for what their organisation keeps.
    of_references: bool,
}

fn walk(json: &[u8], ids: Ids) -> Vec<String> {
    let mut found = Vec::new();
    let mut json = serde_json::Deserializer::from_slice(json);
    let top = Walk { found: &mut found, ids, this: ids.of_top, named: false, each: false, depth: 0 };
    let _ = top.deserialize(&mut json);
    found.retain(|reference| !reference.is_empty());
    found
}

/// Visits one value.
struct Walk<'a> {
    found: &'a mut Vec<String>,
    ids: Ids,
    /// The `id` of this object is a reference.
    this: bool,
    /// This value, if it is a string, is a reference.
    named: bool,
    /// The `id`s of the objects in this array are references.
    each: bool,
    depth: u8,
}

impl Walk<'_> {
    fn member(&mut self, name: &str) -> Walk<'_> {
        let (named, each) = (self.ids.of.contains(&name), self.ids.of_each.contains(&name));
        Walk { found: self.found, ids: self.ids, this: named, named, each, depth: self.depth + 1 }
    }

    fn element(&mut self) -> Walk<'_> {
        let this = self.each;
        Walk { found: self.found, ids: self.ids, this, named: false, each: false, depth: self.depth + 1 }
    }
}

impl<'de> DeserializeSeed<'de> for Walk<'_> {
    type Value = ();

    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<(), D::Error> {
        if self.depth > DEEPEST {
            return IgnoredAny::deserialize(deserializer).map(|_| ());
        }
        deserializer.deserialize_any(self)
    }
}

impl<'de> Visitor<'de> for Walk<'_> {
    type Value = ();

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("JSON")
    }

    fn visit_map<A: MapAccess<'de>>(mut self, mut map: A) -> Result<(), A::Error> {
        let (mut kind, mut data, mut signature, mut id) = (None, None, None, None);
        let mut holds = false;
        while let Some(key) = map.next_key::<Cow<'de, str>>()? {
            match &*key {
                "type" => kind = map.next_value::<Text>()?.0,
                "data" => data = map.next_value::<Text>()?.0,
                "signature" => signature = map.next_value::<Text>()?.0,
                "id" => id = map.next_value::<Text>()?.0,
                key if ANYWHERE.contains(&key) => {
                    let reference = map.next_value::<Text>()?.0;
                    holds |= reference.is_some();
                    self.found.extend(reference);
                }
                key => {
                    holds |= key == "content";
                    map.next_value_seed(self.member(key))?;
                }
            }
        }
        let is = |kinds: &[&str]| kind.as_deref().is_some_and(|kind| kinds.contains(&kind));
        self.found.extend(signature.filter(|_| is(&SIGNED)));
        self.found.extend(data.filter(|_| is(&OPAQUE)));
        let stands_for = is(&["item_reference"]) || is(&["reasoning"]) && !holds;
        self.found.extend(id.filter(|_| self.this || self.ids.of_references && stands_for));
        Ok(())
    }

    fn visit_seq<A: SeqAccess<'de>>(mut self, mut items: A) -> Result<(), A::Error> {
        while items.next_element_seed(self.element())?.is_some() {}
        Ok(())
    }

    fn visit_str<E>(self, text: &str) -> Result<(), E> {
        if self.named {
            self.found.push(text.to_owned());
        }
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

    fn visit_unit<E>(self) -> Result<(), E> {
        Ok(())
    }
}

/// A string, or nothing of any other value.
struct Text(Option<String>);

impl<'de> Deserialize<'de> for Text {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let raw = <&RawValue>::deserialize(deserializer)?;
        Ok(Self(serde_json::from_str(raw.get()).ok()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_requests_carry_is_found_in_each_api() {
        let responses = br#"{"model":"m","previous_response_id":"resp_1","conversation":"conv_1","input":[
            {"type":"reasoning","id":"rs_1","encrypted_content":"gAAA","summary":[]},
            {"type":"message","role":"user","content":[{"type":"input_text","text":"encrypted_content"}]}]}"#;
        assert_eq!(carried(responses), ["resp_1", "conv_1", "gAAA"]);
        let kept = br#"{"input":[{"type":"item_reference","id":"msg_1"},{"id":"rs_1","summary":[],"type":"reasoning"},
            {"type":"reasoning","id":"rs_2","content":[{"type":"reasoning_text","text":"hm"}]},
            {"type":"message","id":"msg_2","content":[]}],"tools":[{"id":"t","type":"x"}]}"#;
        assert_eq!(carried(kept), ["msg_1", "rs_1"], "what holds its own text needs nobody");
        let messages = br#"{"messages":[{"role":"assistant","content":[
            {"signature":"EqQB","thinking":"hm","type":"thinking"},{"data":"Em4","type":"redacted_thinking"},
            {"type":"tool_use","id":"t","input":{"signature":"of a letter","data":"x"}},
            {"type":"image","source":{"type":"base64","data":"AAAA"}}]}]}"#;
        assert_eq!(carried(messages), ["EqQB", "Em4"]);
        let chat = br#"{"messages":[{"role":"assistant","reasoning_details":[{"type":"reasoning.encrypted","data":"ZZ"}],
            "tool_calls":[{"id":"c","extra_content":{"google":{"thought_signature":"sig"}}}]}]}"#;
        assert_eq!(carried(chat), ["ZZ", "sig"]);
    }

    #[test]
    fn what_answers_issue_is_found_in_events_and_whole_answers() {
        let created =
            br#"{"type":"response.created","response":{"id":"resp_9","conversation":{"id":"conv_9"}}}"#;
        assert_eq!(issued(created), ["conv_9", "resp_9"]);
        let done = br#"{"type":"response.output_item.done","item":{"type":"reasoning","id":"rs_9","encrypted_content":"gBBB"}}"#;
        assert_eq!(issued(done), ["gBBB", "rs_9"]);
        let delta = br#"{"type":"content_block_delta","index":0,"delta":{"type":"signature_delta","signature":"Eq=="}}"#;
        assert_eq!(issued(delta), ["Eq=="]);
        let whole = br#"{"id":"9f-7","object":"response","output":[{"type":"message","id":"msg_7","content":[{"id":"no"}]}]}"#;
        assert_eq!(issued(whole), ["msg_7", "9f-7"]);
        assert!(issued(br#"{"type":"response.output_text.delta","delta":"resp_"}"#).is_empty());
    }

    #[test]
    fn empty_and_broken_json_gives_what_there_is() {
        assert!(carried(b"").is_empty());
        assert!(carried(br#"{"encrypted_content":"","previous_response_id":null}"#).is_empty());
        assert_eq!(carried(br#"{"encrypted_content":"gA","input":["#), ["gA"]);
        let deep = format!("{}{}", "[".repeat(100), "]".repeat(100));
        assert!(carried(deep.as_bytes()).is_empty());
    }
}
