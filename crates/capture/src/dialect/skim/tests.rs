//! Events for the laws of the skimmers, here and in the dialects.

use std::path::Path;

use proptest::prelude::*;
use serde::de::IgnoredAny;

use super::*;
use crate::dialect::{Learnt, Said};

/// Both ways read the same from `data`, and learn the same.
pub(in crate::dialect) fn same(
    data: &str,
    skimmed: impl FnOnce(&mut Learnt) -> serde_json::Result<Said>,
    read: impl FnOnce(&mut Learnt) -> serde_json::Result<Said>,
) {
    let (mut ours, mut reference) = (Learnt::default(), Learnt::default());
    assert_eq!(skimmed(&mut ours).ok(), read(&mut reference).ok(), "{data}");
    assert_eq!(format!("{ours:?}"), format!("{reference:?}"), "{data}");
}

/// Both ways read the same from `data` after `before`, of which ours may have kept the form.
pub(in crate::dialect) fn same_after(
    before: &str,
    data: &str,
    skimmed: impl Fn(&str, &mut Learnt) -> serde_json::Result<Said>,
    read: impl Fn(&str, &mut Learnt) -> serde_json::Result<Said>,
) {
    let (mut ours, mut reference) = (Learnt::default(), Learnt::default());
    for event in [before, data, data, before] {
        assert_eq!(skimmed(event, &mut ours).ok(), read(event, &mut reference).ok(), "{before} then {data}");
        assert_eq!(format!("{ours:?}"), format!("{reference:?}"), "{before} then {data}");
    }
}

/// The data of every event in `data/sse`.
pub(in crate::dialect) fn recorded() -> impl Iterator<Item = String> {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../data/sse");
    let files = std::fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().path());
    let bodies = files.filter(|path| path.extension().is_some_and(|extension| extension == "sse"));
    bodies.flat_map(|path| {
        let body = String::from_utf8_lossy(&std::fs::read(path).unwrap()).into_owned();
        let data: Vec<_> =
            body.lines().filter_map(|line| line.strip_prefix("data:").map(str::to_owned)).collect();
        data
    })
}

/// A string as JSON: plain, or with every UTF-16 unit escaped, or as serde writes it.
pub(in crate::dialect) fn text() -> impl Strategy<Value = String> {
    let written = |(text, way): (String, u8)| match way {
        0 => {
            let units: String = text.encode_utf16().map(|unit| format!("\\u{unit:04X}")).collect();
            format!("\"{units}\"")
        }
        1 => serde_json::to_string(&text).unwrap().replace('/', "\\/"),
        _ => serde_json::to_string(&text).unwrap(),
    };
    let texts =
        prop_oneof![any::<String>(), "[ a-z<>/\"\\\\\n]{0,40}", "(<think>)?[a-z]{0,9}(</think>)?[a-z]?"];
    (texts, 0..4_u8).prop_map(written)
}

/// Any JSON value.
fn value() -> impl Strategy<Value = String> {
    let leaf = prop_oneof![
        text(),
        Just("null".to_owned()),
        any::<bool>().prop_map(|value| value.to_string()),
        any::<i64>().prop_map(|value| value.to_string()),
        any::<f64>().prop_filter_map("no JSON", |value| value.is_finite().then(|| format!("{value:e}"))),
    ];
    leaf.prop_recursive(3, 12, 4, |inner| {
        let items = prop::collection::vec((text(), inner), 0..4);
        (items, any::<bool>()).prop_map(|(items, named)| {
            let members = items.iter().map(|(key, value)| {
                // Escaped keys are left to serde.
                let key = key.replace(['\\', '"'], "");
                if named { format!("\"{key}\": {value}") } else { value.clone() }
            });
            let members = members.collect::<Vec<_>>().join(" ,\t");
            if named { format!("{{{members}}}") } else { format!("[ {members} ]") }
        })
    })
}

/// An object with some of these fields, in any order, with blanks. Values are JSON; `<text>`, `<count>` and
/// `<any>` stand for a string, an integer and any value, the first two at times for `null`.
pub(in crate::dialect) fn event(fields: &[(&'static str, &'static str)]) -> BoxedStrategy<String> {
    let fields: Vec<_> = fields
        .iter()
        .map(|&(key, kind)| {
            let value = match kind {
                "<text>" => prop_oneof![9 => text(), 1 => Just("null".to_owned())].boxed(),
                "<count>" => {
                    prop_oneof![9 => any::<u32>().prop_map(|n| n.to_string()), 1 => Just("null".to_owned())]
                        .boxed()
                }
                "<any>" => value().boxed(),
                value => Just(value.to_owned()).boxed(),
            };
            (Just(key), value, prop::bool::weighted(0.85), "[ \t\r\n]{0,2}")
        })
        .collect();
    let shuffled = fields.prop_shuffle();
    (shuffled, "[ ]{0,3}")
        .prop_map(|(fields, end)| {
            let kept = fields.iter().filter(|(_, _, kept, _)| *kept);
            let members =
                kept.map(|(key, value, _, blank)| format!("{blank}\"{key}\"{blank}:{blank}{value}{blank}"));
            format!("{{{}}}{end}", members.collect::<Vec<_>>().join(","))
        })
        .boxed()
}

/// Events with a piece taken out, doubled, put elsewhere or replaced.
pub(in crate::dialect) fn broken(event: impl Strategy<Value = String>) -> impl Strategy<Value = String> {
    let at = || any::<prop::sample::Index>();
    let inserted = prop_oneof![
        any::<char>().prop_map(String::from),
        "[\"\\\\{}\\[\\],:0-9eE.+-]{0,3}",
        "[\\x00-\\x1f]",
        value(),
        Just("\\ud800".to_owned()),
        Just("\\u+123".to_owned()),
        Just(",\"delta\":\"a\",\"usage\":null".to_owned()),
    ];
    (event, at(), at(), at(), inserted, 0..4_u8).prop_map(|(event, from, to, at, inserted, way)| {
        let chars: Vec<char> = event.chars().collect();
        let [a, b, at] = [from, to, at].map(|index| index.index(chars.len() + 1));
        let (from, to) = (a.min(b), a.max(b));
        let cut = |range: std::ops::Range<usize>| chars[range].iter().collect::<String>();
        let (start, end) = (cut(0..at), cut(at..chars.len()));
        match way {
            0 => format!("{start}{inserted}{end}"),
            1 => format!("{start}{}{end}", cut(from..to)),
            2 => cut(0..from) + &cut(to..chars.len()),
            _ => cut(0..from) + &inserted + &cut(chars.len().min(from + 1)..chars.len()),
        }
    })
}

proptest! {
    /// The size of a string is that of the text that serde reads from it, however it was escaped.
    #[test]
    fn sizes_are_those_that_serde_reads(text in text()) {
        let mut json = Json::new(&text);
        prop_assert_eq!(json.size(), serde_json::from_str(&text).ok());
        prop_assert_eq!(json.at, text.len());
    }

    /// The scan stops at the first byte that needs a look.
    #[test]
    fn words_are_scanned_like_bytes(bytes in prop::collection::vec(prop_oneof![any::<u8>(), b' '..0x80], 0..40)) {
        let first = bytes.iter().position(|byte| *byte < 0x20 || matches!(byte, b'"' | b'\\'));
        prop_assert_eq!(plain(&bytes), first.unwrap_or(bytes.len()));
    }

    /// What is skipped is JSON.
    #[test]
    fn only_json_is_skipped(text in prop_oneof![value(), broken(value()), "[-0-9.eE+]{0,6}", any::<String>()]) {
        let text = format!("{{\"a\":{text}}}");
        let skipped = object(&text, |json, _| json.skip()).is_some();
        prop_assert!(!skipped || serde_json::from_str::<IgnoredAny>(&text).is_ok(), "{}", text);
    }

    /// Values of every kind are skipped.
    #[test]
    fn values_are_skipped(value in value()) {
        prop_assert_eq!(object(&format!(" {{\"a\" : {value}}} "), |json, _| json.skip()).map(drop), Some(()));
    }

    /// Integers are read when they fit and are written as JSON writes them.
    #[test]
    fn integers_are_those_that_serde_reads(text in prop_oneof!["[0-9]{1,20}", "null", "[0-9]{1,6}"]) {
        let mut json = Json::new(&text);
        if let Some(number) = json.number::<u16>() {
            prop_assert_eq!(serde_json::from_str::<Option<u16>>(&text).ok(), Some(number));
        } else {
            prop_assert!(serde_json::from_str::<Option<u16>>(&text).is_err());
        }
    }
}

#[test]
fn deep_values_are_left_to_serde() {
    let deep = format!("{{\"a\":{}{}}}", "[".repeat(40), "]".repeat(40));
    assert!(object(&deep, |json, _| json.skip()).is_none());
}
