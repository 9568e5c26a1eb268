//! The body of a request, changed where the configuration says so and nowhere else.
//!
//! In: a JSON object as the caller sent it. Out: the same members in the same order, some with another value,
//! some left out. What is not touched keeps its bytes: numbers of any precision, escapes, fields that nobody
//! here knows. A body in which nothing is to be changed is never written again: it goes out as it came.

use std::borrow::Cow;
use std::fmt;

use serde::Deserialize;
use serde::de::{Deserializer, MapAccess, Visitor};
use serde_json::value::RawValue;

/// The members of a JSON object, their values as raw JSON.
///
/// ```
/// use sseismo_router::rewrite::Members;
///
/// let mut members = Members::read(br#"{"model": "fast", "x": 1.00, "n": 900}"#)?;
/// members.set("model", "\"gpt-5.5\"".into());
/// members.clamp("n", 64.0);
/// assert_eq!(members.write(), br#"{"model":"gpt-5.5","x":1.00,"n":64}"#);
/// # Ok::<(), serde_json::Error>(())
/// ```
#[derive(Clone, Debug, Default)]
pub struct Members<'a> {
    members: Vec<(Cow<'a, str>, Cow<'a, str>)>,
    changed: bool,
}

impl<'a> Members<'a> {
    /// Reads an object.
    ///
    /// # Errors
    /// When `body` is not one JSON object; the error's text names a place, never a value.
    pub fn read(body: &'a [u8]) -> serde_json::Result<Self> {
        serde_json::from_slice(body)
    }

    /// The raw value of a member; of a repeated one the last, as most parsers take it.
    pub fn get(&self, name: &str) -> Option<&str> {
        self.members.iter().rev().find(|(member, _)| member == name).map(|(_, value)| &**value)
    }

    /// A member that is a string.
    pub fn text(&self, name: &str) -> Option<String> {
        serde_json::from_str(self.get(name)?).ok()
    }

    /// A member that is a truth value.
    pub fn flag(&self, name: &str) -> Option<bool> {
        self.get(name)?.parse().ok()
    }

    /// Gives a member another value, or adds it at the end.
    pub fn set(&mut self, name: &str, json: String) {
        self.changed = true;
        let mut found = false;
        self.members.retain(|(member, _)| member != name || !std::mem::replace(&mut found, true));
        match self.members.iter_mut().find(|(member, _)| member == name) {
            Some((_, value)) => *value = json.into(),
            None => self.members.push((name.to_owned().into(), json.into())),
        }
    }

    /// Leaves a member out.
    pub fn remove(&mut self, name: &str) {
        let before = self.members.len();
        self.members.retain(|(member, _)| member != name);
        self.changed |= self.members.len() < before;
    }

    /// Lowers a number to `most`; what is no number stays.
    pub fn clamp(&mut self, name: &str, most: f64) {
        let above = |value: &str| value.parse::<f64>().is_ok_and(|value| value > most);
        if self.get(name).is_some_and(above) {
            self.set(name, most.to_string());
        }
    }

    /// Whether anything was changed since the object was read.
    pub fn is_changed(&self) -> bool {
        self.changed
    }

    /// The object, without blanks between members.
    pub fn write(&self) -> Vec<u8> {
        let size: usize = self.members.iter().map(|(name, value)| name.len() + value.len() + 4).sum();
        let mut json = Vec::with_capacity(size + 2);
        json.push(b'{');
        for (place, (name, value)) in self.members.iter().enumerate() {
            if place > 0 {
                json.push(b',');
            }
            json.extend_from_slice(serde_json::Value::from(&**name).to_string().as_bytes());
            json.push(b':');
            json.extend_from_slice(value.as_bytes());
        }
        json.push(b'}');
        json
    }
}

#[derive(Deserialize)]
struct Name<'a>(#[serde(borrow)] Cow<'a, str>);

impl<'de: 'a, 'a> Deserialize<'de> for Members<'a> {
    fn deserialize<D: Deserializer<'de>>(json: D) -> Result<Self, D::Error> {
        struct Object;
        impl<'de> Visitor<'de> for Object {
            type Value = Members<'de>;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("a JSON object")
            }

            fn visit_map<A: MapAccess<'de>>(self, mut fields: A) -> Result<Members<'de>, A::Error> {
                let mut members = Vec::with_capacity(16);
                while let Some((Name(name), value)) = fields.next_entry::<Name<'de>, &'de RawValue>()? {
                    members.push((name, Cow::Borrowed(value.get())));
                }
                Ok(Members { members, changed: false })
            }
        }
        json.deserialize_map(Object)
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn unknown_fields_and_order_stay_and_values_keep_their_bytes() {
        let body =
            r#"{ "z":1e400, "model":"a", "input":[ {"type" :"x", "n":0.10} ], "\u0061":"\ud83d\ude00"}"#;
        let mut members = Members::read(body.as_bytes()).unwrap();
        assert!(!members.is_changed());
        members.set("model", "\"b\"".into());
        members.remove("missing");
        members.set("new", "true".into());
        let expected =
            r#"{"z":1e400,"model":"b","input":[ {"type" :"x", "n":0.10} ],"a":"\ud83d\ude00","new":true}"#;
        assert_eq!(String::from_utf8(members.write()).unwrap(), expected);
    }

    #[test]
    fn the_last_of_a_repeated_member_counts_and_a_new_value_stands_once() {
        let mut members = Members::read(br#"{"model":"a","x":0,"model":"b"}"#).unwrap();
        assert_eq!(members.text("model").as_deref(), Some("b"));
        members.set("model", "\"c\"".into());
        assert_eq!(members.write(), br#"{"model":"c","x":0}"#);
    }

    #[test]
    fn only_numbers_above_the_most_are_lowered() {
        for (value, expected) in [
            ("10", "10"),
            ("11", "10"),
            ("1e30", "10"),
            ("\"99\"", "\"99\""),
            ("null", "null"),
            ("10.5", "10"),
        ] {
            let body = format!(r#"{{"n":{value}}}"#);
            let mut members = Members::read(body.as_bytes()).unwrap();
            members.clamp("n", 10.0);
            assert_eq!(members.get("n"), Some(expected), "{value}");
            assert_eq!(members.is_changed(), value != expected);
        }
    }

    #[test]
    fn what_is_no_object_is_an_error() {
        for body in ["", "[]", "1", "{\"a\":}", "{} x"] {
            assert!(Members::read(body.as_bytes()).is_err(), "{body}");
        }
    }

    proptest! {
        /// Written again, an object means the same.
        #[test]
        fn writing_keeps_the_meaning(pairs in prop::collection::btree_map(".{0,8}", ".{0,8}", 0..6)) {
            let body = serde_json::to_vec(&pairs).unwrap();
            let written = Members::read(&body).unwrap().write();
            let again: std::collections::BTreeMap<String, String> = serde_json::from_slice(&written).unwrap();
            prop_assert_eq!(again, pairs);
        }
    }
}
