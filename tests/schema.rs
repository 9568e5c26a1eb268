//! The relay's part of JSON Schema, held against a whole implementation.

use proptest::prelude::*;
use serde_json::{Value, json};
use sseismo_router::policy::content_checks::schema::{Holds, holds};

fn value() -> impl Strategy<Value = Value> {
    let leaf = prop_oneof![
        Just(json!(null)),
        any::<bool>().prop_map(Value::from),
        (-3..4_i32).prop_map(Value::from),
        prop_oneof![Just(1.0), Just(1.5), Just(-0.5)].prop_map(Value::from),
        "[ab]{0,3}".prop_map(Value::from),
    ];
    leaf.prop_recursive(3, 12, 4, |inner| {
        prop_oneof![
            prop::collection::vec(inner.clone(), 0..4).prop_map(Value::from),
            prop::collection::btree_map("[abc]", inner, 0..4).prop_map(|map| json!(map)),
        ]
    })
}

fn schema() -> impl Strategy<Value = Value> {
    let names = ["null", "boolean", "object", "array", "string", "number", "integer"];
    let name = prop::sample::select(names.to_vec());
    let size = 0..3_u32;
    let leaf = prop_oneof![
        name.clone().prop_map(|name| json!({"type": name})),
        prop::collection::vec(name, 1..3).prop_map(|names| {
            let names: std::collections::BTreeSet<_> = names.into_iter().collect();
            json!({"type": names})
        }),
        value().prop_map(|value| json!({"const": value})),
        prop::collection::vec(value(), 1..3).prop_map(|values| json!({"enum": values})),
        (size.clone(), size.clone()).prop_map(|(a, b)| json!({"minItems": a, "maxItems": b})),
        (size.clone(), size).prop_map(|(a, b)| json!({"minLength": a, "maxLength": b})),
        (-2..3_i32, -2..3_i32).prop_map(|(a, b)| json!({"minimum": a, "exclusiveMaximum": b})),
        (-2..3_i32, -2..3_i32).prop_map(|(a, b)| json!({"exclusiveMinimum": a, "maximum": b})),
        prop::collection::vec("[abc]", 0..3).prop_map(|names| {
            let names: std::collections::BTreeSet<_> = names.into_iter().collect();
            json!({"required": names})
        }),
        Just(json!({"pattern": "a"})),
        Just(json!({"uniqueItems": true})),
        Just(json!(true)),
        Just(json!(false)),
    ];
    leaf.prop_recursive(3, 16, 3, |inner| {
        let some = || prop::collection::vec(inner.clone(), 1..3);
        prop_oneof![
            some().prop_map(|all| json!({"allOf": all})),
            some().prop_map(|any| json!({"anyOf": any})),
            some().prop_map(|one| json!({"oneOf": one})),
            inner.clone().prop_map(|not| json!({"not": not})),
            inner.clone().prop_map(|items| json!({"items": items})),
            (prop::collection::btree_map("[abc]", inner.clone(), 0..3), inner.clone()).prop_map(
                |(properties, more)| json!({"properties": properties, "additionalProperties": more})
            ),
            inner.clone().prop_map(|of| json!({"$defs": {"x": of}, "$ref": "#/$defs/x"})),
        ]
    })
}

proptest! {
    /// What is decided here, the whole specification decides in the same way.
    #[test]
    fn decisions_are_those_of_the_specification(schema in schema(), value in value()) {
        // A reference is looked up from the root, which is another one for a part of a schema.
        prop_assume!(schema.get("$ref").is_some() || !schema.to_string().contains("$ref"));
        let known = jsonschema::validator_for(&schema).unwrap().is_valid(&value);
        match holds(&schema, &value) {
            Holds::Yes => prop_assert!(known, "{schema} {value}"),
            Holds::No => prop_assert!(!known, "{schema} {value}"),
            Holds::Unknown => {}
        }
    }
}
