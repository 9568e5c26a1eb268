//! JSON fields that are measured, not kept.
//!
//! Providers send `null`, numbers or objects where a string is usual. None of that may cost the rest of an
//! event, so these fields take any JSON value. Reading into [`Size`] or a borrowed [`Piece`] allocates
//! nothing unless the string has escapes, also inside `Option` (where serde's own `Cow` always copies).

use std::borrow::Cow;
use std::fmt;
use std::marker::PhantomData;

use serde::Deserialize;
use serde::de::{self, Deserializer, IgnoredAny, MapAccess, SeqAccess, Visitor};

/// `n` as a column holds it.
pub(crate) fn small(n: usize) -> u32 {
    u32::try_from(n).unwrap_or(u32::MAX)
}

/// How long a string was. Any other value has no length.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Size {
    /// Unicode scalar values.
    pub(crate) chars: u32,
    /// Bytes of UTF-8, unescaped.
    pub(crate) bytes: u32,
}

/// A string that must be looked at: a name, or text with possible markers. Any other value is empty.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Piece<'a>(pub(crate) Cow<'a, str>);

impl Piece<'_> {
    pub(crate) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// The owned text, unless it is empty.
    pub(crate) fn named(&self) -> Option<String> {
        (!self.is_empty()).then(|| self.0.as_ref().to_owned())
    }
}

/// Length of a string, or of any other value's JSON text: tool arguments come as either.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Arguments(pub(crate) u32);

/// A list that nearly always has one element, which then needs no allocation; `null` is an empty list.
#[derive(Clone, Debug)]
pub(crate) struct Few<T> {
    pub(crate) first: Option<T>,
    pub(crate) rest: Vec<T>,
}

impl<T> Few<T> {
    pub(crate) fn iter(&self) -> impl Iterator<Item = &T> {
        self.first.iter().chain(&self.rest)
    }
}

impl<T> Default for Few<T> {
    fn default() -> Self {
        Self { first: None, rest: Vec::new() }
    }
}

/// What a lenient field makes of a string; everything else is its default.
trait FromText<'de>: Default {
    fn borrowed(text: &'de str) -> Self;
    fn passing(text: &str) -> Self;
}

impl FromText<'_> for Size {
    fn borrowed(text: &str) -> Self {
        Self::passing(text)
    }

    fn passing(text: &str) -> Self {
        Self { chars: small(text.chars().count()), bytes: small(text.len()) }
    }
}

impl<'de: 'a, 'a> FromText<'de> for Piece<'a> {
    fn borrowed(text: &'de str) -> Self {
        Self(Cow::Borrowed(text))
    }

    fn passing(text: &str) -> Self {
        Self(Cow::Owned(text.to_owned()))
    }
}

struct Lenient<T>(PhantomData<T>);

impl<'de, T: FromText<'de>> Visitor<'de> for Lenient<T> {
    type Value = T;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("any value")
    }

    fn visit_borrowed_str<E>(self, text: &'de str) -> Result<T, E> {
        Ok(T::borrowed(text))
    }

    fn visit_str<E>(self, text: &str) -> Result<T, E> {
        Ok(T::passing(text))
    }

    fn visit_unit<E>(self) -> Result<T, E> {
        Ok(T::default())
    }

    fn visit_bool<E>(self, _: bool) -> Result<T, E> {
        Ok(T::default())
    }

    fn visit_i64<E>(self, _: i64) -> Result<T, E> {
        Ok(T::default())
    }

    fn visit_u64<E>(self, _: u64) -> Result<T, E> {
        Ok(T::default())
    }

    fn visit_f64<E>(self, _: f64) -> Result<T, E> {
        Ok(T::default())
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut items: A) -> Result<T, A::Error> {
        while items.next_element::<IgnoredAny>()?.is_some() {}
        Ok(T::default())
    }

    fn visit_map<A: MapAccess<'de>>(self, mut fields: A) -> Result<T, A::Error> {
        while fields.next_entry::<IgnoredAny, IgnoredAny>()?.is_some() {}
        Ok(T::default())
    }
}

impl<'de> Deserialize<'de> for Size {
    fn deserialize<D: Deserializer<'de>>(json: D) -> Result<Self, D::Error> {
        json.deserialize_any(Lenient(PhantomData))
    }
}

impl<'de: 'a, 'a> Deserialize<'de> for Piece<'a> {
    fn deserialize<D: Deserializer<'de>>(json: D) -> Result<Self, D::Error> {
        json.deserialize_any(Lenient(PhantomData))
    }
}

impl<'de> Deserialize<'de> for Arguments {
    fn deserialize<D: Deserializer<'de>>(json: D) -> Result<Self, D::Error> {
        let raw = <&serde_json::value::RawValue>::deserialize(json)?.get();
        if raw.starts_with('"') {
            let size: Size = serde_json::from_str(raw).map_err(de::Error::custom)?;
            return Ok(Self(size.chars));
        }
        Ok(Self(if raw == "null" { 0 } else { small(raw.chars().count()) }))
    }
}

impl<'de, T: Deserialize<'de>> Deserialize<'de> for Few<T> {
    fn deserialize<D: Deserializer<'de>>(json: D) -> Result<Self, D::Error> {
        struct List<T>(PhantomData<T>);
        impl<'de, T: Deserialize<'de>> Visitor<'de> for List<T> {
            type Value = Few<T>;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("a list")
            }

            fn visit_unit<E>(self) -> Result<Few<T>, E> {
                Ok(Few::default())
            }

            fn visit_seq<A: SeqAccess<'de>>(self, mut items: A) -> Result<Few<T>, A::Error> {
                let mut few = Few { first: items.next_element()?, rest: Vec::new() };
                while let Some(item) = items.next_element()? {
                    few.rest.push(item);
                }
                Ok(few)
            }
        }
        json.deserialize_any(List(PhantomData))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes_are_those_of_the_unescaped_text_and_other_values_have_none() {
        let size = |json| serde_json::from_str::<Size>(json).unwrap();
        assert_eq!(size(r#""n\u00e4\n""#), Size { chars: 3, bytes: 4 });
        for other in ["null", "1", "-1", "1.5", "true", "[1,[2]]", r#"{"a":{"b":1}}"#] {
            assert_eq!(size(other), Size::default(), "{other}");
        }
    }

    #[test]
    fn an_optional_piece_without_escapes_is_borrowed() {
        let piece: Option<Piece<'_>> = serde_json::from_str(r#""gpt""#).unwrap();
        assert!(matches!(piece, Some(Piece(Cow::Borrowed("gpt")))));
    }

    #[test]
    fn arguments_count_as_text_or_as_json() {
        let chars = |json| serde_json::from_str::<Arguments>(json).unwrap().0;
        assert_eq!((chars(r#""{\"a\":1}""#), chars(r#"{"a":1}"#), chars("null")), (7, 7, 0));
    }
}
