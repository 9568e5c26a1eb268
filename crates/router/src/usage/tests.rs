use proptest::prelude::*;

use super::*;

fn strip(pieces: &[&[u8]]) -> String {
    let mut strip = Strip::default();
    let mut out = Vec::new();
    for piece in pieces {
        strip.push(Bytes::copy_from_slice(piece), |bytes| out.extend_from_slice(&bytes));
    }
    strip.finish(|bytes| out.extend_from_slice(&bytes));
    String::from_utf8(out).unwrap()
}

/// A stream as OpenAI sends it, with the option and without.
fn chunks(asked: bool, line_end: &str) -> String {
    let null = if asked { ",\"usage\":null" } else { "" };
    let mut all = format!(": hi{line_end}{line_end}");
    for delta in [r#"{"role":"assistant"}"#, r#"{"content":"\"usage\":null,"}"#, r#"{"content":"ü"}"#] {
        let choices = format!("[{{\"index\":0,\"delta\":{delta}}}]");
        all.push_str("data: {\"id\":\"c\",\"choices\":");
        all.push_str(&[&choices, null, ",\"obfuscation\":\"xy\"}", line_end, line_end].concat());
    }
    if asked {
        let last = "data: {\"id\":\"c\",\"choices\":[],\"usage\":{\"completion_tokens\":9,\"usage\":1}}";
        all.push_str(&[last, line_end, line_end].concat());
    }
    all + &format!("data: [DONE]{line_end}{line_end}")
}

#[test]
fn the_caller_gets_what_it_would_have_got() {
    for line_end in ["\n", "\r\n"] {
        assert_eq!(strip(&[chunks(true, line_end).as_bytes()]), chunks(false, line_end));
    }
}

proptest! {
    /// However the bytes are cut, the same comes out.
    #[test]
    fn cuts_do_not_matter(cuts in prop::collection::vec(0_usize..600, 0..8)) {
        let all = chunks(true, "\n");
        let mut cuts: Vec<_> = cuts.into_iter().map(|cut| cut.min(all.len())).collect();
        cuts.extend([0, all.len()]);
        cuts.sort_unstable();
        let pieces: Vec<_> = cuts.windows(2).map(|pair| &all.as_bytes()[pair[0]..pair[1]]).collect();
        prop_assert_eq!(strip(&pieces), chunks(false, "\n"));
    }
}

#[test]
fn the_comma_goes_with_the_field_wherever_it_stands() {
    for (given, expected) in [
        (r#"{"usage":null,"choices":[1]}"#, r#"{"choices":[1]}"#),
        (r#"{"usage" : null , "choices":[1]}"#, r#"{"choices":[1]}"#),
        (r#"{"choices":[1] , "usage": {"a":[1,{}]} }"#, r#"{"choices":[1]  }"#),
        (r#"{"choices":[1],"usage":{"a":1},"z":0}"#, r#"{"choices":[1],"z":0}"#),
        (r#"{"x":{"usage":1},"choices":[]}"#, r#"{"x":{"usage":1},"choices":[]}"#),
        (r#"{"choices":[ ],"usage":null}"#, r#"{"choices":[ ]}"#),
    ] {
        assert_eq!(strip(&[format!("data: {given}\n\n").as_bytes()]), format!("data: {expected}\n\n"));
    }
    assert_eq!(strip(&[b"data: {\"choices\":[ ],\"usage\":{}}\n\n"]), "");
    assert_eq!(strip(&[b"data: {\"choices\":[1],\"usage\":{}}"]), "data: {\"choices\":[1]}");
    assert_eq!(strip(&[b"data: {\"choices\":[1],\ndata: \"usage\":{}}\n\n"]), "data: {\"choices\":[1]}\n\n");
}

/// Recorded bodies of all dialects: what has no `usage` at the top of an event passes byte for byte, and
/// unedited pieces are the very same memory.
#[test]
fn recorded_bodies_lose_nothing_else() {
    let folder = concat!(env!("CARGO_MANIFEST_DIR"), "/../../data/sse");
    let (mut same, mut edited) = (0, 0);
    for entry in std::fs::read_dir(folder).unwrap() {
        let path = entry.unwrap().path();
        if path.extension().is_none_or(|extension| extension != "sse") {
            continue;
        }
        let body = Bytes::from(std::fs::read(&path).unwrap());
        let mut stripped = Strip::default();
        let mut pieces = Vec::new();
        stripped.push(body.clone(), |bytes| pieces.push(bytes));
        stripped.finish(|bytes| pieces.push(bytes));
        let out = pieces.concat();
        let has_usage = |bytes: &[u8]| {
            let mut found = false;
            let mut decoder = Decoder::new(&BUDGET);
            let chunk = Chunk { bytes, read: 0, at: None };
            decoder.push(chunk, |frame| found |= edit(&frame).is_some()).unwrap();
            decoder.finish(|frame| found |= edit(&frame).is_some());
            found
        };
        if has_usage(&body) {
            edited += 1;
            assert!(out.len() < body.len(), "{}", path.display());
            assert!(!has_usage(&out), "{}", path.display());
        } else {
            same += 1;
            assert!(out == body, "{}", path.display());
            assert_eq!(pieces[0].as_ptr(), body.as_ptr());
        }
    }
    assert!(same >= 10 && edited >= 5, "{same} {edited}");
}

#[test]
fn usage_is_asked_for_only_where_it_must_be() {
    let asked = |body: &str| {
        let mut members = Members::read(body.as_bytes()).unwrap();
        let strip = ask(Api::Chat, &mut members);
        (strip, String::from_utf8(members.write()).unwrap())
    };
    let with = |options: &str| format!(r#"{{"stream":true,"stream_options":{options}}}"#);
    for (body, strip, expected) in [
        (r#"{"stream":true}"#.to_owned(), true, with(r#"{"include_usage":true}"#)),
        (with("null"), true, with(r#"{"include_usage":true}"#)),
        (with(r#"{"x":1,"include_usage":false}"#), true, with(r#"{"x":1,"include_usage":true}"#)),
        (with(r#"{"include_usage":true}"#), false, with(r#"{"include_usage":true}"#)),
        (with("[]"), false, with("[]")),
        (r#"{"stream":false}"#.to_owned(), false, r#"{"stream":false}"#.to_owned()),
    ] {
        assert_eq!(asked(&body), (strip, expected), "{body}");
    }
    let mut members = Members::read(br#"{"stream":true}"#).unwrap();
    assert!(!ask(Api::Responses, &mut members) && !members.is_changed());
}
