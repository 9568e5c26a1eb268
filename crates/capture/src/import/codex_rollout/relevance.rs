//! Which lines of a rollout are worth parsing.
//!
//! Under one line in fifty is, and the others are long (prompts, outputs, encrypted reasoning). Codex
//! writes a line's type into its first hundred bytes, so that a line costs little more than finding
//! its end. A line of another shape (a file that some tool wrote anew) is searched for the names of
//! what is wanted.

use memchr::memmem;

/// How far into a line its type, and the role of a message, are looked for.
const START: usize = 400;

/// Names without which a line holds nothing that is wanted.
const WANTED: [&[u8]; 5] =
    [b"token_count", b"token_usage_record", b"turn_context", b"session_meta", b"thread_settings_applied"];

/// What a line is good for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Relevance<'a> {
    /// Usage or context: to be parsed.
    Parse,
    /// Input of the next request, complete at this time: the client sends the request right after.
    Input(&'a [u8]),
    /// Nothing.
    Skip,
}

/// Judges a line by its start.
pub(super) fn relevance(line: &[u8]) -> Relevance<'_> {
    judged(line).unwrap_or_else(|| {
        let wanted = WANTED.iter().any(|name| memmem::find(line, name).is_some());
        if wanted { Relevance::Parse } else { Relevance::Skip }
    })
}

/// `None` when the line does not start as Codex writes it.
fn judged(line: &[u8]) -> Option<Relevance<'_>> {
    let (time, rest) = quoted(line.strip_prefix(br#"{"timestamp":""#)?)?;
    let rest = match rest.strip_prefix(br#","ordinal":"#) {
        Some(rest) => &rest[rest.iter().position(|byte| !byte.is_ascii_digit())?..],
        None => rest,
    };
    let (kind, rest) = quoted(rest.strip_prefix(br#","type":""#)?)?;
    match kind {
        b"session_meta" | b"turn_context" | b"token_usage_record" => return Some(Relevance::Parse),
        b"compacted" | b"world_state" => return Some(Relevance::Skip),
        b"event_msg" | b"response_item" => {}
        _ => return None,
    }
    let (inner, _) = quoted(rest.strip_prefix(br#","payload":{"type":""#)?)?;
    Some(match inner {
        b"token_count" | b"thread_settings_applied" => Relevance::Parse,
        b"task_started" | b"user_message" => Relevance::Input(time),
        b"message" if is_from_user(line) => Relevance::Input(time),
        _ if kind == b"response_item" && inner.ends_with(b"_output") => Relevance::Input(time),
        _ => Relevance::Skip,
    })
}

fn is_from_user(line: &[u8]) -> bool {
    memmem::find(&line[..line.len().min(START)], br#""role":"user""#).is_some()
}

/// The bytes before the next quotation mark, and those after it.
fn quoted(bytes: &[u8]) -> Option<(&[u8], &[u8])> {
    let end = memchr::memchr(b'"', &bytes[..bytes.len().min(START)])?;
    Some((&bytes[..end], &bytes[end + 1..]))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_as_codex_writes_them_are_judged_by_their_start() {
        let time = b"2026-07-01T10:00:00.000Z";
        let of = |rest: &str| format!(r#"{{"timestamp":"2026-07-01T10:00:00.000Z",{rest}}}"#).into_bytes();
        for (rest, expected) in [
            (r#""type":"session_meta","payload":{}"#, Relevance::Parse),
            (r#""ordinal":12,"type":"turn_context","payload":{}"#, Relevance::Parse),
            (r#""type":"event_msg","payload":{"type":"token_count"}"#, Relevance::Parse),
            (r#""type":"event_msg","payload":{"type":"agent_message","m":"token_count"}"#, Relevance::Skip),
            (r#""type":"event_msg","payload":{"type":"task_started"}"#, Relevance::Input(time)),
            (r#""type":"response_item","payload":{"type":"message","role":"user"}"#, Relevance::Input(time)),
            (r#""type":"response_item","payload":{"type":"message","role":"assistant"}"#, Relevance::Skip),
            (
                r#""type":"response_item","payload":{"type":"custom_tool_call_output"}"#,
                Relevance::Input(time),
            ),
            (r#""type":"compacted","payload":{"message":"turn_context"}"#, Relevance::Skip),
        ] {
            assert_eq!(relevance(&of(rest)), expected, "{rest}");
        }
    }

    #[test]
    fn lines_of_another_shape_are_searched() {
        let spaced = br#"{"type": "event_msg", "timestamp": "", "payload": {"type": "token_count"}}"#;
        assert_eq!(relevance(spaced), Relevance::Parse);
        assert_eq!(relevance(br#"{"type": "event_msg", "payload": {}}"#), Relevance::Skip);
        assert_eq!(relevance(b""), Relevance::Skip);
        assert_eq!(relevance(br#"{"timestamp":"2026"#), Relevance::Skip);
    }
}
