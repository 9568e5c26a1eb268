//! One streamed chat completion: a request out, [`Event`]s back.
//!
//! The vote is off the measured path: times below the socket do not matter here, so the stream is read with
//! `reqwest` and `eventsource-stream`.

use bytes::Bytes;
use eventsource_stream::Eventsource as _;
use futures_util::{Stream, StreamExt as _, stream};
use serde::{Deserialize, Serialize};
use serde_json::Value;
use tokio::sync::mpsc::UnboundedSender;

/// Text of one branch beyond this is a runaway upstream.
const MAX_TEXT: usize = 8 << 20;
const BOM: &[u8] = "\u{feff}".as_bytes();

/// What to send.
#[derive(Clone)]
pub(super) struct Request {
    pub(super) url: String,
    pub(super) key: Option<String>,
    pub(super) body: Value,
}

/// Tokens of one branch.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub(in super::super) struct Usage {
    pub(in super::super) input: u64,
    /// Reasoning included.
    pub(in super::super) output: u64,
    /// Part of `input` that was found in the upstream's cache.
    pub(in super::super) cached: u64,
}

/// What a branch tells; the number is its place.
#[derive(Debug)]
pub(super) enum Event {
    Text(usize, String),
    Reasoning(usize, String),
    /// The newest report; some upstreams send one with every chunk.
    Usage(usize, Usage),
    End(usize, Result<(), String>),
}

#[derive(Deserialize)]
struct Chunk {
    #[serde(default)]
    choices: Vec<Choice>,
    usage: Option<Counts>,
    error: Option<Value>,
}

#[derive(Deserialize)]
struct Choice {
    delta: Option<Delta>,
    finish_reason: Option<String>,
}

#[derive(Deserialize)]
struct Delta {
    content: Option<String>,
    #[serde(alias = "reasoning")]
    reasoning_content: Option<String>,
}

#[derive(Deserialize)]
struct Counts {
    prompt_tokens: u64,
    completion_tokens: u64,
    prompt_tokens_details: Option<Details>,
}

#[derive(Deserialize)]
struct Details {
    cached_tokens: Option<u64>,
}

/// Runs branch `i` to its end. A receiver that is gone ends it too.
pub(super) async fn run(client: reqwest::Client, request: Request, i: usize, events: UnboundedSender<Event>) {
    let outcome = stream_one(&client, request, i, &events).await;
    let _ = events.send(Event::End(i, outcome));
}

async fn stream_one(
    client: &reqwest::Client,
    request: Request,
    i: usize,
    events: &UnboundedSender<Event>,
) -> Result<(), String> {
    let mut call = client.post(&request.url).json(&request.body).header("accept", "text/event-stream");
    if let Some(key) = &request.key {
        call = call.bearer_auth(key);
    }
    let response = call.send().await.map_err(|error| plain(&error))?;
    if !response.status().is_success() {
        return Err(format!("the upstream answered {}", response.status()));
    }
    let body = without_bom(response.bytes_stream()).await;
    let mut frames = Box::pin(body.eventsource());
    let mut finished = false;
    let mut length = 0;
    while let Some(frame) = frames.next().await {
        let data = match frame {
            Ok(frame) => frame.data,
            Err(_) if finished => break,
            Err(_) => return Err("the stream broke off".to_owned()),
        };
        if data == "[DONE]" {
            return Ok(());
        }
        length += data.len();
        if length > MAX_TEXT {
            return Err(format!("more than {MAX_TEXT} bytes were streamed"));
        }
        let chunk: Chunk =
            serde_json::from_str(&data).map_err(|_| "a chunk was no chat completion".to_owned())?;
        if chunk.error.is_some() {
            return Err("the upstream reported an error in the stream".to_owned());
        }
        finished |= tell(chunk, i, events);
    }
    // Some servers end without [DONE].
    if finished { Ok(()) } else { Err("the stream ended before the answer did".to_owned()) }
}

/// Sends on what a chunk holds; true when it ends the answer.
fn tell(chunk: Chunk, i: usize, events: &UnboundedSender<Event>) -> bool {
    let mut finished = false;
    for choice in chunk.choices {
        if let Some(delta) = choice.delta {
            let reasoning = delta.reasoning_content.filter(|text| !text.is_empty());
            let text = delta.content.filter(|text| !text.is_empty());
            let parts =
                [reasoning.map(|text| Event::Reasoning(i, text)), text.map(|text| Event::Text(i, text))];
            for event in parts.into_iter().flatten() {
                let _ = events.send(event);
            }
        }
        finished |= choice.finish_reason.is_some();
    }
    if let Some(counts) = chunk.usage {
        let cached = counts.prompt_tokens_details.and_then(|details| details.cached_tokens).unwrap_or(0);
        let usage = Usage { input: counts.prompt_tokens, output: counts.completion_tokens, cached };
        let _ = events.send(Event::Usage(i, usage));
    }
    finished
}

/// The stream without a byte order mark at its start: `eventsource-stream` panics on one.
async fn without_bom(
    body: impl Stream<Item = reqwest::Result<Bytes>>,
) -> impl Stream<Item = reqwest::Result<Bytes>> {
    let mut body = Box::pin(body);
    let mut head = Vec::new();
    let mut broken = None;
    while head.len() < BOM.len() {
        match body.next().await {
            Some(Ok(chunk)) => head.extend_from_slice(&chunk),
            Some(Err(error)) => {
                broken = Some(Err(error));
                break;
            }
            None => break,
        }
    }
    let head = head.strip_prefix(BOM).map(<[u8]>::to_vec).unwrap_or(head);
    stream::iter(std::iter::once(Ok(Bytes::from(head))).chain(broken)).chain(body)
}

/// An error of the client without the URL, which may hold a key.
pub(in super::super) fn plain(error: &reqwest::Error) -> String {
    let what = if error.is_connect() {
        "cannot connect"
    } else if error.is_timeout() {
        "timed out"
    } else if error.is_decode() {
        "cannot decode the response"
    } else if error.is_builder() {
        "the URL or a header is not valid"
    } else {
        "the connection failed"
    };
    let mut deepest: &dyn std::error::Error = error;
    while let Some(source) = deepest.source() {
        deepest = source;
    }
    // The root cause is the system's, such as "connection refused"; the client's own texts name the URL.
    if std::ptr::addr_eq(deepest, std::ptr::from_ref(error)) {
        what.to_owned()
    } else {
        format!("{what}: {deepest}")
    }
}
