//! A part of JSON Schema (2020-12): a schema and a value in, what is certain about them out.
//!
//! Understood are `type`, `enum`, `const`, `properties`, `required`, `additionalProperties`, `items`,
//! `minItems`, `maxItems`, `minLength`, `maxLength`, `minimum`, `maximum`, `exclusiveMinimum`,
//! `exclusiveMaximum`, `anyOf`, `allOf`, `oneOf`, `not` and `$ref` within the schema: what structured outputs
//! of OpenAI and Anthropic take, but for `pattern`, `format` and `multipleOf`. A keyword that is not understood
//! makes the answer [`Holds::Unknown`], never [`Holds::No`]: an answer is not failed for what this file lacks.
//! Written here because the whole of the specification would bring some thirty packages into the relay; a test
//! holds it against the `jsonschema` package.

use serde_json::{Map, Number, Value};

/// Deepest nesting, and most steps for one value: a schema is a client's. A step is a schema held against a value, a
/// value compared, a name looked for, or some text counted: about as much time each.
const DEPTH: u32 = 64;
const STEPS: u32 = 200_000;

/// Bytes of text that count as a step.
const TEXT: usize = 256;

/// Annotations: they ask for nothing.
const SILENT: [&str; 11] = [
    "$schema",
    "$comment",
    "$defs",
    "definitions",
    "title",
    "description",
    "default",
    "examples",
    "deprecated",
    "readOnly",
    "writeOnly",
];

/// Whether a value is what a schema asks for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Holds {
    /// It is.
    Yes,
    /// It is not.
    No,
    /// It depends on something that is not understood here.
    Unknown,
}

impl Holds {
    fn of(holds: bool) -> Self {
        if holds { Self::Yes } else { Self::No }
    }

    fn and(self, other: Self) -> Self {
        match (self, other) {
            (Self::No, _) | (_, Self::No) => Self::No,
            (Self::Yes, Self::Yes) => Self::Yes,
            (Self::Unknown, _) | (_, Self::Unknown) => Self::Unknown,
        }
    }

    fn not(self) -> Self {
        match self {
            Self::Yes => Self::No,
            Self::No => Self::Yes,
            Self::Unknown => Self::Unknown,
        }
    }

    fn all(each: impl Iterator<Item = Self>) -> Self {
        each.fold(Self::Yes, Self::and)
    }
}

/// Holds `value` against `schema`.
pub fn holds(schema: &Value, value: &Value) -> Holds {
    Check { root: schema, steps: STEPS }.schema(schema, value, 0)
}

struct Check<'a> {
    root: &'a Value,
    steps: u32,
}

impl<'a> Check<'a> {
    fn schema(&mut self, schema: &'a Value, value: &Value, depth: u32) -> Holds {
        self.steps = self.steps.saturating_sub(1);
        if depth > DEPTH || self.steps == 0 {
            return Holds::Unknown;
        }
        let Value::Object(keywords) = schema else {
            return schema.as_bool().map_or(Holds::Unknown, Holds::of);
        };
        let mut all = Holds::Yes;
        for (keyword, asked) in keywords {
            all = all.and(self.keyword(keyword, asked, keywords, value, depth + 1));
            if all == Holds::No {
                break;
            }
        }
        // Before 2019 a `$ref` made everything beside it void.
        let beside = keywords.contains_key("$ref")
            && keywords.keys().any(|key| !SILENT.contains(&&**key) && key != "$ref");
        if beside && all == Holds::No { Holds::Unknown } else { all }
    }

    fn keyword(
        &mut self,
        keyword: &str,
        asked: &'a Value,
        beside: &'a Map<String, Value>,
        value: &Value,
        depth: u32,
    ) -> Holds {
        match keyword {
            "type" => type_holds(asked, value),
            "const" => self.is_one_of(std::slice::from_ref(asked), value),
            "enum" => list(asked).map_or(Holds::Unknown, |list| self.is_one_of(list, value)),
            "$ref" => self.reference(asked, value, depth),
            "allOf" => {
                self.each(asked, value, depth).map_or(Holds::Unknown, |each| Holds::all(each.into_iter()))
            }
            "anyOf" => self
                .each(asked, value, depth)
                .map_or(Holds::Unknown, |each| Holds::all(each.into_iter().map(Holds::not)).not()),
            "oneOf" => self.each(asked, value, depth).map_or(Holds::Unknown, |each| one(&each)),
            "not" => self.schema(asked, value, depth).not(),
            "properties" | "required" | "additionalProperties" => match value {
                Value::Object(members) => self.members(keyword, asked, beside, members, depth),
                _ => Holds::Yes,
            },
            "items" => match value {
                Value::Array(_) if beside.contains_key("prefixItems") || asked.is_array() => Holds::Unknown,
                Value::Array(items) => {
                    let mut all = Holds::Yes;
                    for item in items {
                        all = all.and(self.schema(asked, item, depth));
                    }
                    all
                }
                _ => Holds::Yes,
            },
            "minItems" | "maxItems" => bound(keyword, asked, value.as_array().map(Vec::len)),
            "minLength" | "maxLength" => {
                let text = value.as_str();
                if !self.spend(text.map_or(0, str::len) / TEXT) {
                    return Holds::Unknown;
                }
                bound(keyword, asked, text.map(|text| text.chars().count()))
            }
            "minimum" | "maximum" | "exclusiveMinimum" | "exclusiveMaximum" => range(keyword, asked, value),
            silent if SILENT.contains(&silent) => Holds::Yes,
            _ => Holds::Unknown,
        }
    }

    /// Takes so many steps; false when there are not as many left.
    fn spend(&mut self, steps: usize) -> bool {
        self.steps = self.steps.saturating_sub(u32::try_from(steps).unwrap_or(u32::MAX));
        self.steps > 0
    }

    fn is_one_of(&mut self, list: &[Value], value: &Value) -> Holds {
        let each = 1 + size(value);
        if !self.spend(each) {
            return Holds::Unknown; // to take its size was as much work
        }
        for one in list {
            if !self.spend(each) {
                return Holds::Unknown;
            }
            if equal(one, value) {
                return Holds::Yes;
            }
        }
        Holds::No
    }

    fn each(&mut self, asked: &'a Value, value: &Value, depth: u32) -> Option<Vec<Holds>> {
        Some(list(asked)?.iter().map(|schema| self.schema(schema, value, depth)).collect())
    }

    /// `#` and `#/…`.
    fn reference(&mut self, asked: &Value, value: &Value, depth: u32) -> Holds {
        let pointer = asked.as_str().and_then(|reference| reference.strip_prefix('#'));
        let found = pointer.and_then(|pointer| self.root.pointer(pointer));
        found.map_or(Holds::Unknown, |schema| self.schema(schema, value, depth))
    }

    fn members(
        &mut self,
        keyword: &str,
        asked: &'a Value,
        beside: &'a Map<String, Value>,
        members: &Map<String, Value>,
        depth: u32,
    ) -> Holds {
        match (keyword, asked) {
            ("required", Value::Array(names)) => {
                if !self.spend(names.len()) {
                    return Holds::Unknown;
                }
                let there = |name: &Value| name.as_str().is_some_and(|name| members.contains_key(name));
                Holds::of(names.iter().all(there))
            }
            ("properties", Value::Object(schemas)) => {
                let mut all = Holds::Yes;
                if !self.spend(schemas.len()) {
                    return Holds::Unknown;
                }
                for (name, schema) in schemas {
                    if let Some(member) = members.get(name) {
                        all = all.and(self.schema(schema, member, depth));
                    }
                }
                all
            }
            ("additionalProperties", schema) => {
                if !self.spend(members.len()) {
                    return Holds::Unknown;
                }
                let named = beside.get("properties").and_then(Value::as_object);
                let others =
                    members.iter().filter(|(name, _)| named.is_none_or(|named| !named.contains_key(*name)));
                let mut all = Holds::Yes;
                for (_, member) in others {
                    let held = self.schema(schema, member, depth);
                    // A pattern may name it.
                    let held = if beside.contains_key("patternProperties") { Holds::Unknown } else { held };
                    all = all.and(held);
                }
                all
            }
            _ => Holds::Unknown,
        }
    }
}

/// Steps that it takes at most to compare a value with another one, above the first.
fn size(value: &Value) -> usize {
    match value {
        Value::Null | Value::Bool(_) | Value::Number(_) => 0,
        Value::String(text) => text.len() / TEXT,
        Value::Array(items) => items.iter().map(|item| 1 + size(item)).sum(),
        Value::Object(members) => members.values().map(|member| 1 + size(member)).sum(),
    }
}

fn list(asked: &Value) -> Option<&Vec<Value>> {
    asked.as_array()
}

/// Exactly one.
fn one(each: &[Holds]) -> Holds {
    let count = |holds| each.iter().filter(|each| **each == holds).count();
    match (count(Holds::Yes), count(Holds::Unknown)) {
        (yes, 0) => Holds::of(yes == 1),
        (yes, _) if yes > 1 => Holds::No,
        _ => Holds::Unknown,
    }
}

fn type_holds(asked: &Value, value: &Value) -> Holds {
    match asked {
        Value::String(name) => is_a(name, value),
        Value::Array(names) => {
            let each =
                names.iter().map(|name| name.as_str().map_or(Holds::Unknown, |name| is_a(name, value)));
            Holds::all(each.map(Holds::not)).not()
        }
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::Object(_) => Holds::Unknown,
    }
}

fn is_a(name: &str, value: &Value) -> Holds {
    Holds::of(match name {
        "null" => value.is_null(),
        "boolean" => value.is_boolean(),
        "object" => value.is_object(),
        "array" => value.is_array(),
        "string" => value.is_string(),
        "number" => value.is_number(),
        "integer" => value.as_number().is_some_and(is_whole),
        _ => return Holds::Unknown,
    })
}

/// 1.0 is an integer, too.
fn is_whole(number: &Number) -> bool {
    number.is_i64()
        || number.is_u64()
        || number.as_f64().is_some_and(|number| number.fract().abs() < f64::MIN_POSITIVE)
}

/// 1 and 1.0 are equal.
fn equal(a: &Value, b: &Value) -> bool {
    match (a, b) {
        (Value::Number(a), Value::Number(b)) => {
            a == b
                || (a.is_f64() != b.is_f64()
                    && a.as_f64().zip(b.as_f64()).is_some_and(|(a, b)| a.total_cmp(&b).is_eq()))
        }
        (Value::Array(a), Value::Array(b)) => a.len() == b.len() && a.iter().zip(b).all(|(a, b)| equal(a, b)),
        (Value::Object(a), Value::Object(b)) => {
            a.len() == b.len() && a.iter().all(|(name, a)| b.get(name).is_some_and(|b| equal(a, b)))
        }
        (a, b) => a == b,
    }
}

/// A bound of a size; what has no such size is not bound.
fn bound(keyword: &str, asked: &Value, size: Option<usize>) -> Holds {
    let Some(size) = size.and_then(|size| u64::try_from(size).ok()) else { return Holds::Yes };
    let Some(most) = asked.as_u64() else { return Holds::Unknown };
    Holds::of(if keyword.starts_with("min") { size >= most } else { size <= most })
}

fn range(keyword: &str, asked: &Value, value: &Value) -> Holds {
    let Some(number) = value.as_f64() else { return Holds::Yes };
    let Some(edge) = asked.as_f64() else { return Holds::Unknown };
    Holds::of(match keyword {
        "minimum" => number >= edge,
        "maximum" => number <= edge,
        "exclusiveMinimum" => number > edge,
        _ => number < edge,
    })
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn what_is_understood_is_decided_and_the_rest_is_left_open() {
        let person = json!({
            "type": "object", "additionalProperties": false, "required": ["name"],
            "properties": {"name": {"type": "string", "minLength": 1}, "age": {"type": ["integer", "null"], "minimum": 0},
                "of": {"$ref": "#/$defs/list"}},
            "$defs": {"list": {"type": "array", "items": {"anyOf": [{"const": 1}, {"$ref": "#"}]}, "maxItems": 2}},
        });
        for (value, holds_it) in [
            (json!({"name": "x", "age": 3.0, "of": [1, {"name": "y"}]}), Holds::Yes),
            (json!({"name": ""}), Holds::No),
            (json!({"name": "x", "age": 0.5}), Holds::No),
            (json!({"name": "x", "more": 1}), Holds::No),
            (json!({"name": "x", "of": [2]}), Holds::No),
            (json!({"name": "x", "of": [1, 1, 1]}), Holds::No),
            (json!({"age": 3}), Holds::No),
            (json!([]), Holds::No),
        ] {
            assert_eq!(holds(&person, &value), holds_it, "{value}");
        }
        for (schema, holds_it) in [
            (json!({"pattern": "a"}), Holds::Unknown),
            (json!({"not": {"pattern": "a"}}), Holds::Unknown),
            (json!({"pattern": "a", "type": "string"}), Holds::Unknown),
            (json!({"pattern": "a", "type": "number"}), Holds::No),
            (json!({"oneOf": [{"type": "string"}, {}]}), Holds::No),
            (json!({"$ref": "https://elsewhere.example/x"}), Holds::Unknown),
            (json!({"$ref": "#"}), Holds::Unknown),
            (json!({"type": "text"}), Holds::Unknown),
        ] {
            assert_eq!(holds(&schema, &json!("a")), holds_it, "{schema}");
        }
    }

    #[test]
    fn giant_schemas_and_answers_are_given_up_undecided() {
        let numbers: Vec<u32> = (0..100_000).collect();
        let text = "a".repeat(100_000);
        for (schema, value) in [
            // The last of them: looking it up twice costs more than may be spent.
            (json!({"items": {"enum": numbers}}), json!(vec![99_999; 100_000])),
            (json!({"allOf": vec![json!({"minLength": 1}); 50_000]}), json!(text)),
            (json!({"items": {"enum": [[text]]}}), json!(vec![json!([text]); 1_000])),
        ] {
            assert_eq!(holds(&schema, &value), Holds::Unknown);
        }
        let around = json!({"anyOf": [{"$ref": "#"}, {"$ref": "#"}]});
        assert_eq!(holds(&around, &json!(1)), Holds::Unknown, "a loop of references");
    }
}
