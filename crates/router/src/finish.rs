//! The end of a stream that its upstream ended too early, in the words of its API.
//!
//! In: an API, and where the stream stopped. Out: the error event to send before the body ends. A clean end
//! of file without the API's terminal event passes for success in most clients (OpenAI's and `LangChain`'s
//! SDKs, the Vercel AI SDK), so it must not be passed on as it is. What is never made up: a `completed`, or
//! `[DONE]` after an error.

use bytes::Bytes;
use serde_json::json;
use sseismo_trace::Api;

/// The error event of `api`, or `None` where the API has none. `sequence` is the provider's last sequence
/// number; `open` says that the stream stopped within an event, which is ended first.
pub fn error_event(api: Api, message: &str, sequence: Option<u32>, open: bool) -> Option<Bytes> {
    let end = if open { "\n\n" } else { "" };
    let event = match api {
        Api::Responses => {
            let data = json!({
                "type": "error", "code": "server_error", "message": message, "param": null,
                "sequence_number": sequence.map_or(0, |last| last.saturating_add(1)),
            });
            format!("{end}event: error\ndata: {data}\n\n")
        }
        Api::Chat => {
            let data = json!({"error": {
                "message": message, "type": "server_error", "param": null, "code": "server_error",
            }});
            format!("{end}data: {data}\n\n")
        }
        Api::Messages => {
            let data = json!({"type": "error", "error": {"type": "api_error", "message": message}});
            format!("{end}event: error\ndata: {data}\n\n")
        }
        Api::GenerateContent => {
            let data = json!({"error": {"code": 500, "message": message, "status": "INTERNAL"}});
            format!("{end}data: {data}\n\n")
        }
        Api::Ollama | Api::Cohere => return None,
    };
    Some(event.into())
}

/// The end of a stream whose generation was stopped at a limit, as `api` ends it: what the request's own limit
/// would have led to. `sequence` is as in [`error_event`], and `tokens` what was generated, by estimate.
///
/// An error event would be truer to the letter, and is not safe here: Codex CLI answers one with five more
/// requests, each of which would reason as long; after these ends no client was seen to ask again.
pub fn limit_events(api: Api, sequence: Option<u32>, tokens: u64) -> Option<Bytes> {
    Some(match api {
        Api::Responses => {
            let data = json!({
                "type": "response.incomplete",
                "sequence_number": sequence.map_or(0, |last| last.saturating_add(1)),
                "response": {
                    "id": "", "object": "response", "status": "incomplete", "error": null,
                    "incomplete_details": {"reason": "max_output_tokens"}, "output": [], "usage": null,
                },
            });
            format!("event: response.incomplete\ndata: {data}\n\n").into()
        }
        Api::Chat => {
            let choice = json!({"index": 0, "delta": {}, "finish_reason": "length"});
            let data = json!({
                "id": "", "object": "chat.completion.chunk", "created": 0, "model": "", "choices": [choice],
            });
            format!("data: {data}\n\ndata: [DONE]\n\n").into()
        }
        Api::Messages => {
            let data = json!({
                "type": "message_delta", "delta": {"stop_reason": "max_tokens", "stop_sequence": null},
                "usage": {"output_tokens": tokens},
            });
            let end = "event: message_stop\ndata: {\"type\":\"message_stop\"}\n\n";
            format!("event: message_delta\ndata: {data}\n\n{end}").into()
        }
        Api::GenerateContent | Api::Ollama | Api::Cohere => return None,
    })
}

/// Follows whether the bytes that went out so far end an event.
#[derive(Clone, Copy, Debug, Default)]
pub struct Boundary {
    /// Line ends at the very end, CRLF counted once; starts as if an event had just ended.
    lines: Option<u8>,
    last: u8,
}

impl Boundary {
    /// Takes the next bytes.
    pub fn push(&mut self, bytes: &[u8]) {
        // Four bytes hold the longest blank line; what came before them matters only in tiny pieces.
        let from = bytes.len().saturating_sub(4);
        for &byte in &bytes[from..] {
            let lines = self.lines.unwrap_or(2);
            self.lines = Some(match byte {
                b'\n' if self.last == b'\r' => lines,
                b'\n' | b'\r' => lines.saturating_add(1),
                _ => 0,
            });
            self.last = byte;
        }
    }

    /// Whether something may be put in here without cutting an event in two.
    pub fn is_between_events(self) -> bool {
        self.lines.is_none_or(|lines| lines >= 2)
    }
}

#[cfg(test)]
mod tests {
    use sseismo_capture::answer::{Answer, Head};
    use sseismo_trace::{Chunk, Kind, Outcome, Summary};

    use super::*;

    /// Cuts each recorded stream before its end; what follows is read as an error by the decoder that reads
    /// the traces, and never as a clean end.
    #[test]
    fn every_api_reads_the_event_as_its_error() {
        for (api, path, file) in [
            (Api::Responses, "/v1/responses", "llamacpp_responses.sse"),
            (Api::Chat, "/v1/chat/completions", "llamacpp_chat_reasoning.sse"),
            (Api::Messages, "/v1/messages", "68_non-ascii_api-anthropic-com_claude-sonnet-4-5-20250929.sse"),
        ] {
            let folder = concat!(env!("CARGO_MANIFEST_DIR"), "/../../data/sse/");
            let body = std::fs::read(format!("{folder}{file}")).unwrap();
            for cut in [body.len() / 2, body.len() / 2 + 1] {
                let mut boundary = Boundary::default();
                boundary.push(&body[..cut]);
                let event = error_event(api, "cut", Some(7), !boundary.is_between_events()).unwrap();
                let head = Head { path, content_type: Some("text/event-stream"), status: Some(200) };
                let mut answer = Answer::new(&head);
                let mut kinds = Vec::new();
                for bytes in [&body[..cut], &event[..]] {
                    answer.push(Chunk { bytes, read: 0, at: None }, |delta| kinds.push(delta.kind));
                }
                let mut summary = Summary::default();
                answer.finish(&mut summary, |delta| kinds.push(delta.kind));
                assert_eq!(kinds.last(), Some(&Kind::Error), "{file}");
                assert_eq!(summary.outcome, Outcome::Failed, "{file}");
                assert!(!kinds.contains(&Kind::Done), "{file}");
            }
        }
    }

    /// The same streams, stopped at a limit after an event.
    #[test]
    fn every_api_reads_a_stop_as_a_limit() {
        for (api, path, file) in [
            (Api::Responses, "/v1/responses", "llamacpp_responses.sse"),
            (Api::Chat, "/v1/chat/completions", "llamacpp_chat_reasoning.sse"),
            (Api::Messages, "/v1/messages", "68_non-ascii_api-anthropic-com_claude-sonnet-4-5-20250929.sse"),
        ] {
            let folder = concat!(env!("CARGO_MANIFEST_DIR"), "/../../data/sse/");
            let body = std::fs::read_to_string(format!("{folder}{file}")).unwrap();
            let cut = body[..body.len() / 2].rfind("\n\n").unwrap() + 2;
            let events = limit_events(api, Some(7), 30).unwrap();
            let head = Head { path, content_type: Some("text/event-stream"), status: Some(200) };
            let mut answer = Answer::new(&head);
            let mut kinds = Vec::new();
            for bytes in [&body.as_bytes()[..cut], &events[..]] {
                answer.push(Chunk { bytes, read: 0, at: None }, |delta| kinds.push(delta.kind));
            }
            let mut summary = Summary::default();
            let counts = answer.finish(&mut summary, |delta| kinds.push(delta.kind));
            assert_eq!((summary.outcome, counts.unreadable), (Outcome::Incomplete, 0), "{file}");
            assert_eq!(kinds.last(), Some(&Kind::Done), "{file}");
            assert!(!kinds.contains(&Kind::Error), "{file}");
        }
    }

    #[test]
    fn sequence_numbers_go_on() {
        let event = error_event(Api::Responses, "cut", Some(7), false).unwrap();
        assert!(String::from_utf8_lossy(&event).contains("\"sequence_number\":8"));
    }

    #[test]
    fn blank_lines_of_all_kinds_end_events() {
        let between = |pieces: &[&str]| {
            let mut boundary = Boundary::default();
            for piece in pieces {
                boundary.push(piece.as_bytes());
            }
            boundary.is_between_events()
        };
        for pieces in
            [&[][..], &["a\n\n"], &["a\r\n\r\n"], &["a\r", "\n\r", "\n"], &["a\r\r"], &["a\n", "\n"]]
        {
            assert!(between(pieces), "{pieces:?}");
        }
        for pieces in [&["a"][..], &["a\n"], &["a\r\n"], &["a\r", "\n"], &["a\n\nb"]] {
            assert!(!between(pieces), "{pieces:?}");
        }
    }
}
