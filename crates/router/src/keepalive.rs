//! A sign of life for clients of a silent upstream.
//!
//! In: an API. Out: an event that every client of it ignores. Codex CLI gives up on a stream after its idle
//! timeout, which comments do not reset and data events do; so the sign is a data event where the API has a
//! harmless one. It never carries `id:` or `retry:`: after either, OpenAI's Python SDK fails at the next
//! comment.

use bytes::Bytes;
use sseismo_trace::Api;

/// The event to send between two events of the upstream.
pub fn event(api: Api) -> Bytes {
    Bytes::from_static(match api {
        Api::Responses => b"event: keepalive\ndata: {\"type\":\"keepalive\"}\n\n",
        Api::Messages => b"event: ping\ndata: {\"type\":\"ping\"}\n\n",
        // Chat chunks have no harmless form: some clients read `choices[0]` of whatever comes.
        Api::Chat | Api::GenerateContent | Api::Ollama | Api::Cohere => b": keep-alive\n\n",
    })
}

#[cfg(test)]
mod tests {
    use sseismo_capture::answer::{Answer, Head};
    use sseismo_trace::{Chunk, Kind, Summary};

    use super::*;

    #[test]
    fn it_is_read_as_a_sign_of_life_and_as_nothing_else() {
        for (api, path, kind) in [
            (Api::Responses, "/v1/responses", Kind::Ping),
            (Api::Messages, "/v1/messages", Kind::Ping),
            (Api::Chat, "/v1/chat/completions", Kind::Comment),
        ] {
            let head = Head { path, content_type: Some("text/event-stream"), status: Some(200) };
            let mut answer = Answer::new(&head);
            let mut kinds = Vec::new();
            let bytes = event(api);
            answer.push(Chunk { bytes: &bytes, read: 0, at: None }, |delta| kinds.push(delta.kind));
            answer.finish(&mut Summary::default(), |delta| kinds.push(delta.kind));
            assert_eq!(kinds, [kind]);
            let text = String::from_utf8_lossy(&bytes);
            assert!(!text.contains("id:") && !text.contains("retry:"));
        }
    }
}
