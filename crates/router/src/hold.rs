//! The start of an answer, held back until it is known whether it is one.
//!
//! In: the bytes of a 2xx answer. Out: a [`Verdict`] after each piece, and on commit every byte again, as it
//! came. Nothing has reached the client until then, so another upstream can still take over unseen.
//!
//! Content is generated text: keep-alives, role-only chunks and lifecycle events such as `response.created`
//! are none (<https://github.com/maximhq/bifrost/issues/5395>,
//! <https://github.com/livekit/agents/issues/6171>), and an error frame is no first token
//! (<https://github.com/hugalafutro/model-hotel/pull/803>).

use bytes::Bytes;
use serde_json::Value;
use sseismo_capture::answer::{Answer, Head, Words};
use sseismo_capture::budget::BUDGET;
use sseismo_capture::sse::Decoder;
use sseismo_trace::{Body, Chunk, Delta, Kind, Micros, Outcome, Phase, Summary};

/// A streamed answer whose start is larger than this is committed: that much is no keep-alive.
pub const MAX_STREAM: usize = 256 << 10;

/// A whole answer larger than this is committed before its end.
pub const MAX_WHOLE: usize = 16 << 20;

/// Text of an answer that is kept for a check, bytes; what is longer is not checked.
pub const MAX_TEXT: usize = 1 << 20;

/// What the held bytes say.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Verdict {
    /// Nothing yet.
    Wait,
    /// This is the answer.
    Commit,
    /// The first thing that it says is an error.
    Error,
}

/// How an answer ended while it was held.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Ended {
    /// As an answer does.
    Well,
    /// With an error inside.
    Error,
    /// Without any content.
    Empty,
    /// Before its API's end.
    Early,
}

/// What is known of an answer so far; outlives the hold.
#[derive(Debug)]
pub struct Reading {
    answer: Answer,
    /// Time of the first content, since the attempt began.
    pub first_content: Option<Micros>,
    /// Something was generated or announced: an item, a block or content.
    pub opened: bool,
    /// The API's terminal event or an error was seen.
    pub over: bool,
    /// An error event was seen.
    pub error: bool,
    /// Number of content events.
    pub content_events: u64,
    /// The provider's last sequence number.
    pub sequence: Option<u32>,
    /// Raw reasoning so far, estimated tokens; summaries are none.
    pub reasoning: u64,
    /// The text so far, where somebody checks it.
    text: Option<Text>,
}

/// What was generated, as far as [`MAX_TEXT`] goes.
#[derive(Debug, Default)]
pub struct Text {
    /// The answer.
    pub output: String,
    /// Arguments of tool calls, one after the other.
    pub tools: String,
    /// There was more.
    pub cut: bool,
}

impl Text {
    fn add(&mut self, words: Vec<Words>) {
        for Words { kind, text, .. } in words {
            let into = match kind {
                Kind::Text => &mut self.output,
                Kind::Tool => &mut self.tools,
                Kind::Reasoning
                | Kind::Summary
                | Kind::Usage
                | Kind::Ping
                | Kind::Comment
                | Kind::Error
                | Kind::Done
                | Kind::Meta => continue,
            };
            if into.len() + text.len() > MAX_TEXT {
                self.cut = true;
            } else {
                into.push_str(&text);
            }
        }
    }
}

impl Reading {
    /// An answer with this head.
    pub fn new(head: &Head<'_>) -> Self {
        Self {
            answer: Answer::new(head),
            first_content: None,
            opened: false,
            over: false,
            error: false,
            content_events: 0,
            sequence: None,
            reasoning: 0,
            text: None,
        }
    }

    /// The same, with its text.
    #[must_use]
    pub fn with_text(self) -> Self {
        Self { answer: self.answer.keep_words(), text: Some(Text::default()), ..self }
    }

    /// Takes the next bytes, which came `at` since the attempt began.
    pub fn push(&mut self, bytes: &[u8], at: Micros) {
        let Self { answer, first_content, opened, over, error, content_events, sequence, reasoning, text } =
            self;
        answer.push(Chunk { bytes, read: 0, at: Some(at) }, |delta| {
            if delta.is_content() {
                first_content.get_or_insert(at);
                *content_events += 1;
            }
            *opened |= opens(&delta);
            *over |= matches!(delta.kind, Kind::Done | Kind::Error);
            *error |= delta.kind == Kind::Error;
            *sequence = delta.provider_seq.or(*sequence);
            if delta.kind == Kind::Reasoning {
                *reasoning += u64::from(delta.tokens_est.unwrap_or(0));
            }
        });
        if let Some(text) = text {
            text.add(answer.take_words());
        }
    }

    /// The body has ended. Fills the part of `summary` that a body tells, usage and outcome among it.
    /// Returned is its text, where it was kept.
    pub fn finish(self, summary: &mut Summary) -> Option<Text> {
        let (_, words) = self.answer.finish_with_words(summary, |_| {});
        let mut text = self.text?;
        text.add(words);
        Some(text)
    }
}

/// Whether an event announces content.
fn opens(delta: &Delta) -> bool {
    delta.is_content()
        || matches!(delta.phase, Phase::Reasoning | Phase::Summary | Phase::Output | Phase::Tool)
}

/// The start of one answer.
#[derive(Debug)]
pub struct Hold {
    reading: Reading,
    held: Vec<Bytes>,
    size: usize,
    /// Sent as events; a whole answer is judged at its end.
    streamed: bool,
}

impl Hold {
    /// Holds an answer with this head.
    pub fn new(head: &Head<'_>) -> Self {
        let media = head.content_type.unwrap_or_default().trim_start();
        let whole = media.get(..16).is_some_and(|media| media.eq_ignore_ascii_case("application/json"));
        Self { reading: Reading::new(head), held: Vec::new(), size: 0, streamed: !whole }
    }

    /// The same, with its text.
    #[must_use]
    pub fn with_text(self) -> Self {
        Self { reading: self.reading.with_text(), ..self }
    }

    /// Takes the next bytes, which came `at` since the attempt began.
    pub fn push(&mut self, bytes: Bytes, at: Micros) -> Verdict {
        self.reading.push(&bytes, at);
        self.size += bytes.len();
        self.held.push(bytes);
        if self.reading.first_content.is_some() {
            Verdict::Commit
        } else if self.reading.error {
            Verdict::Error
        } else if self.size > if self.streamed { MAX_STREAM } else { MAX_WHOLE } {
            Verdict::Commit
        } else {
            Verdict::Wait
        }
    }

    /// Whether it comes as events, so that a client waits for each of them.
    pub fn is_streamed(&self) -> bool {
        self.streamed
    }

    /// Whether content has come.
    pub fn has_content(&self) -> bool {
        self.reading.first_content.is_some()
    }

    /// The body ended while it was held: what it was, its part of the summary, and its text, where it is kept.
    pub fn end(self) -> (Ended, Summary, Vec<Bytes>, Option<Text>) {
        let (opened, over, size) = (self.reading.opened, self.reading.over, self.size);
        let mut summary = Summary::default();
        let text = self.reading.finish(&mut summary);
        let generated = summary.usage.output.is_some_and(|tokens| tokens > 0);
        let ended = match summary.outcome {
            Outcome::Failed => Ended::Error,
            _ if size == 0 => Ended::Empty,
            Outcome::Truncated | Outcome::ClientGone | Outcome::Timeout => Ended::Early,
            Outcome::Completed if self.streamed && over && !opened && !generated => Ended::Empty,
            // Unknown is not an API that can be read.
            Outcome::Completed | Outcome::Incomplete | Outcome::Unknown => Ended::Well,
        };
        (ended, summary, self.held, text)
    }

    /// The held pieces, and the reading that goes on with what follows.
    pub fn commit(self) -> (Vec<Bytes>, Reading) {
        (self.held, self.reading)
    }

    /// The event with the error that the held bytes carry.
    pub fn error(&self) -> Option<Value> {
        error_in(&self.held.concat())
    }
}

/// The first event of a streamed body that carries an error, or a whole body that does.
pub fn error_in(body: &[u8]) -> Option<Value> {
    if let Ok(whole) = serde_json::from_slice::<Value>(body) {
        return carries_error(&whole).then_some(whole);
    }
    let mut found = None;
    let mut decoder = Decoder::new(&BUDGET);
    let mut look = |body: &Body<'_>| {
        if let (None, Body::Event { data, .. }) = (&found, body) {
            found = serde_json::from_str(data).ok().filter(carries_error);
        }
    };
    let pushed = decoder.push(Chunk { bytes: body, read: 0, at: None }, |frame| look(&frame.body));
    if pushed.is_ok() {
        decoder.finish(|frame| look(&frame.body));
    }
    found
}

/// Whether there is an error where the APIs put theirs.
fn carries_error(json: &Value) -> bool {
    let is_error =
        |pointer: &str| json.pointer(pointer).is_some_and(|error| error.is_object() || error.is_string());
    is_error("/error")
        || is_error("/response/error")
        || json.get("type").and_then(Value::as_str) == Some("error")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn head(path: &'static str) -> Head<'static> {
        Head { path, content_type: Some("text/event-stream"), status: Some(200) }
    }

    fn folder() -> String {
        concat!(env!("CARGO_MANIFEST_DIR"), "/../../data/sse/").to_owned()
    }

    /// Every recorded body of every dialect: held until its first content, and no byte is lost or moved.
    #[test]
    fn recorded_bodies_are_committed_at_their_first_content_and_come_back_byte_for_byte() {
        let mut committed = 0;
        for entry in std::fs::read_dir(folder()).unwrap() {
            let path = entry.unwrap().path();
            if path.extension().is_none_or(|extension| extension != "sse") {
                continue;
            }
            let body = std::fs::read(&path).unwrap();
            let mut hold = Hold::new(&head(""));
            let mut verdict = Verdict::Wait;
            let mut used = 0;
            for piece in body.chunks(97) {
                used += piece.len();
                verdict = hold.push(Bytes::copy_from_slice(piece), Micros(0));
                if verdict != Verdict::Wait {
                    break;
                }
            }
            if verdict == Verdict::Commit {
                committed += 1;
                let (held, reading) = hold.commit();
                assert!(held.concat() == body[..used], "{}", path.display());
                assert!(reading.content_events > 0, "{}", path.display());
            }
        }
        assert!(committed >= 30, "{committed}");
    }

    #[test]
    fn what_only_announces_is_held() {
        let cases: [(&str, &[&str]); 3] = [
            (
                "/v1/chat/completions",
                &[
                    ": hi\n\n",
                    "data: {\"choices\":[{\"delta\":{\"role\":\"assistant\",\"content\":\"\"}}]}\n\n",
                ],
            ),
            (
                "/v1/responses",
                &[
                    "event: response.created\ndata: {\"type\":\"response.created\",\"response\":{}}\n\n",
                    "event: keepalive\ndata: {\"type\":\"keepalive\"}\n\n",
                ],
            ),
            (
                "/v1/messages",
                &[
                    "event: message_start\ndata: {\"type\":\"message_start\",\"message\":{}}\n\n",
                    "event: ping\ndata: {\"type\":\"ping\"}\n\n",
                ],
            ),
        ];
        for (path, pieces) in cases {
            let mut hold = Hold::new(&head(path));
            for piece in pieces {
                assert_eq!(
                    hold.push(Bytes::from_static(piece.as_bytes()), Micros(0)),
                    Verdict::Wait,
                    "{piece}"
                );
            }
        }
    }

    #[test]
    fn an_error_frame_is_no_first_token() {
        let cases = [
            ("/v1/chat/completions", "data: {\"error\":{\"code\":\"x1\"}}\n\n", "/error/code"),
            ("/v1/responses", "event: error\ndata: {\"type\":\"error\",\"code\":\"x1\"}\n\n", "/code"),
            (
                "/v1/messages",
                "event: error\ndata: {\"type\":\"error\",\"error\":{\"code\":\"x1\"}}\n\n",
                "/error/code",
            ),
        ];
        for (path, event, code) in cases {
            let mut hold = Hold::new(&head(path));
            assert_eq!(hold.push(Bytes::from_static(b": hi\n\n"), Micros(0)), Verdict::Wait);
            assert_eq!(hold.push(Bytes::from_static(event.as_bytes()), Micros(0)), Verdict::Error, "{path}");
            assert_eq!(hold.error().unwrap().pointer(code).unwrap(), "x1");
            assert_eq!(hold.end().0, Ended::Error);
        }
        let mut failed = Hold::new(&head("/v1/responses"));
        let event = "event: response.failed\ndata: {\"type\":\"response.failed\",\"response\":{\"status\":\"failed\",\"error\":{\"code\":\"x2\"}}}\n\n";
        failed.push(Bytes::from_static(event.as_bytes()), Micros(0));
        assert_eq!(failed.error().unwrap()["response"]["error"]["code"], "x2");
        assert_eq!(failed.end().0, Ended::Error);
    }

    #[test]
    fn ends_within_the_hold_are_told_apart() {
        let end = |path, body: &'static str| {
            let mut hold = Hold::new(&head(path));
            hold.push(Bytes::from_static(body.as_bytes()), Micros(0));
            hold.end().0
        };
        let chat = "/v1/chat/completions";
        assert_eq!(end(chat, ""), Ended::Empty);
        assert_eq!(end(chat, "data: [DONE]\n\n"), Ended::Empty);
        assert_eq!(end(chat, ": hi\n\n"), Ended::Early);
        assert_eq!(
            end(
                chat,
                "data: {\"choices\":[{\"delta\":{},\"finish_reason\":\"stop\"}],\"usage\":{\"completion_tokens\":5}}\n\n"
            ),
            Ended::Well
        );
    }

    #[test]
    fn a_whole_answer_is_judged_at_its_end() {
        let head =
            Head { content_type: Some("application/json; charset=utf-8"), ..head("/v1/chat/completions") };
        let mut hold = Hold::new(&head);
        for piece in ["{\"choices\":[{\"message\":{\"content\":\"x\"},", "\"finish_reason\":\"stop\"}]}"] {
            assert_eq!(hold.push(Bytes::from_static(piece.as_bytes()), Micros(0)), Verdict::Wait);
        }
        assert_eq!(hold.end().0, Ended::Well);
        let mut hold = Hold::new(&head);
        hold.push(Bytes::from_static(b"{\"error\":{\"message\":\"no\"}}"), Micros(0));
        assert_eq!(hold.end().0, Ended::Error);
        let mut cut = Hold::new(&head);
        cut.push(Bytes::from_static(b"{\"choices\":[{"), Micros(0));
        assert_eq!(cut.end().0, Ended::Early);
    }
}
