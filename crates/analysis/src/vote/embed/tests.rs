use serde_json::Value;

use super::*;

#[test]
fn the_hash_embedder_fills_the_reference_buckets() {
    let path = concat!(env!("CARGO_MANIFEST_DIR"), "/../../data/golden/embed_cases.json");
    let cases: Vec<Value> = serde_json::from_str(&std::fs::read_to_string(path).unwrap()).unwrap();
    assert_eq!(cases.len(), 8);
    for case in cases {
        let text = case["text"].as_str().unwrap();
        let vectors = Hash.embed(&[text]).unwrap();
        let filled: Vec<(usize, f32)> =
            vectors.iter().copied().enumerate().filter(|(_, x)| *x != 0.0).take(8).collect();
        let want: Vec<(usize, f32)> = serde_json::from_value(case["hash1024_first_nonzero"].clone()).unwrap();
        assert_eq!(filled.len(), want.len(), "{text}");
        for (got, want) in filled.iter().zip(want) {
            assert_eq!(got.0, want.0, "{text}");
            assert!((got.1 - want.1).abs() < 1e-6, "{text}: {got:?} {want:?}");
        }
    }
}

#[test]
fn hashing_is_the_same_bits_every_time() {
    let text = "the same words, over and over: x²+y² — 中文 🤖";
    let bits = || Hash.embed(&[text]).unwrap().mapv(f32::to_bits);
    assert_eq!(bits(), bits());
}

#[test]
fn the_tail_is_counted_in_characters() {
    let text = "é".repeat(200) + "  \n";
    assert_eq!(tail(&text).chars().count(), TAIL_CHARS);
    assert_eq!(tail("short"), "short");
    assert_eq!(tail(""), "");
}

#[test]
fn embedders_by_name() {
    for name in NAMES {
        assert!(!matches!(local(name, None), Ok(None)), "{name}");
    }
    assert!(matches!(local("minilm", None), Err(LoadError::NoFolder)));
    assert!(matches!(local("nonsense", None), Ok(None)));
}
