//! One stream (one attempt of one request): a row of `streams/`.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use crate::{Delta, Micros, Read, UtcMicros};

/// The API that a stream spoke.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Api {
    /// OpenAI Responses.
    Responses,
    /// OpenAI Chat Completions and its many speakers.
    Chat,
    /// Anthropic Messages.
    Messages,
    /// Gemini generateContent.
    GenerateContent,
    /// Ollama's NDJSON.
    Ollama,
    /// Cohere v2 chat.
    Cohere,
}

impl Api {
    /// The name used in trace files and on the command line.
    pub fn name(self) -> &'static str {
        match self {
            Self::Responses => "responses",
            Self::Chat => "chat",
            Self::Messages => "messages",
            Self::GenerateContent => "generate-content",
            Self::Ollama => "ollama",
            Self::Cohere => "cohere",
        }
    }
}

/// Where event times come from. Times of different sources must not be compared to the millisecond.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum TimeSource {
    /// The kernel's receive stamp.
    Kernel,
    /// Our clock right after the socket read, below TLS.
    Socket,
    /// A client's clock after its own parsing.
    User,
    /// The provider's clock.
    Server,
    /// A packet capture.
    Pcap,
    /// No event has a time.
    #[default]
    None,
}

/// How exactly events are tied to socket reads.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Attribution {
    /// Byte for byte.
    Exact,
    /// Up to one HTTP frame.
    Frame,
    /// Not at all.
    #[default]
    None,
}

/// How a stream ended.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Outcome {
    /// The API's own clean end was seen.
    Completed,
    /// The provider said that it stopped early (length, filter).
    Incomplete,
    /// The provider said that it failed.
    Failed,
    /// The bytes ended without the API's end.
    Truncated,
    /// The client left.
    ClientGone,
    /// Somebody's timer fired.
    Timeout,
    /// Not known.
    #[default]
    Unknown,
}

/// What a check of the answer's content said.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum ContentCheck {
    /// Passed.
    Ok,
    /// JSON was asked for and does not parse.
    InvalidJson,
    /// It parses but breaks the schema.
    Schema,
    /// A placeholder instead of an answer.
    Placeholder,
    /// Nothing.
    Empty,
    /// Nobody checked.
    #[default]
    NotChecked,
}

/// Whether we measured a stream ourselves.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Provenance {
    /// Recorded by our own tap.
    #[default]
    Live,
    /// Read from a foreign file of this format.
    Import(String),
}

/// Tokens as the provider reported them for one response.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Usage {
    /// Prompt tokens.
    pub input: Option<u64>,
    /// Of these, read from a cache.
    pub cached: Option<u64>,
    /// All generated tokens, reasoning included.
    pub output: Option<u64>,
    /// Of these, reasoning. A fraction only where the source itself holds one (an estimate).
    pub reasoning: Option<f64>,
}

/// Everything known about one stream except its events. Column meanings: `README.md`, "Trace files".
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct Summary {
    /// Unique in its dataset; a hash where the source has its own id.
    pub stream_id: u64,
    /// Hash of the session or thread.
    pub session_key: Option<u64>,
    /// Number of the turn in its session.
    pub turn_index: Option<u32>,
    /// Hash of the client turn: attempts of one turn share it.
    pub turn_key: Option<u64>,
    /// Which attempt of its turn, from 1.
    pub attempt: Option<u32>,
    /// Hash of the fan-out that the stream belongs to.
    pub group_id: Option<u64>,
    /// The API spoken.
    pub api: Option<Api>,
    /// Host that answered.
    pub upstream: Option<String>,
    /// Which of an upstream's keys was used (its place, never the key).
    pub key_slot: Option<u16>,
    /// Our relay's route.
    pub route: Option<String>,
    /// Canary arm, or the value of a split column.
    pub canary_arm: Option<String>,
    /// The calling program's name.
    pub client_app: Option<String>,
    /// Hash of the caller's credential.
    pub caller_hash: Option<u64>,
    /// Model asked for.
    pub model_requested: Option<String>,
    /// Model that the answer names.
    pub model_served: Option<String>,
    /// Reasoning effort asked for.
    pub effort: Option<String>,
    /// Whether the answer was streamed.
    pub streamed: Option<bool>,
    /// When the request was sent.
    pub started_at: Option<UtcMicros>,
    /// Response headers complete, since the start.
    pub t_headers: Option<Micros>,
    /// First body byte.
    pub t_first_byte: Option<Micros>,
    /// First reasoning or summary delta.
    pub t_first_reasoning: Option<Micros>,
    /// First answer text or tool delta.
    pub t_first_output: Option<Micros>,
    /// Last byte.
    pub t_end: Option<Micros>,
    /// Where event times come from.
    pub time_source: TimeSource,
    /// How events are tied to reads.
    pub attribution: Attribution,
    /// HTTP status.
    pub status: Option<u16>,
    /// How the stream ended.
    pub outcome: Outcome,
    /// Why another upstream was tried.
    pub fallback_reason: Option<String>,
    /// `1.1` or `2`.
    pub http_version: Option<String>,
    /// Whether TLS was used.
    pub tls: Option<bool>,
    /// The connection, as in `reads/`.
    pub conn_id: Option<u64>,
    /// When the connection was opened.
    pub conn_started_at: Option<UtcMicros>,
    /// Whether it had served a request before.
    pub conn_reused: Option<bool>,
    /// Content encoding of the answer on the wire.
    pub content_encoding: Option<String>,
    /// `via` header of the answer.
    pub via: Option<String>,
    /// `server` header of the answer.
    pub server: Option<String>,
    /// Smoothed round-trip time at the end, µs.
    pub tcp_rtt_us: Option<u32>,
    /// Segments sent again on the connection.
    pub tcp_retrans: Option<u32>,
    /// Bytes of the request body.
    pub prompt_bytes: Option<u64>,
    /// Prompt tokens estimated from bytes; never mixed with reported usage.
    pub prompt_tokens_est: Option<u64>,
    /// Share of prompt characters that are digits or separators inside digit runs.
    pub prompt_numeric_share: Option<f64>,
    /// Tokens as reported.
    pub usage: Usage,
    /// Reasoning tokens estimated from streamed characters.
    pub reasoning_tokens_est: Option<u64>,
    /// What a content check said.
    pub content_check: ContentCheck,
    /// Cost in US dollars, from a stated price table.
    pub cost_usd: Option<f64>,
    /// Retry-After of the answer.
    pub retry_after_ms: Option<u64>,
    /// Rate-limit headers that were kept, by name.
    pub rate_limit: BTreeMap<String, String>,
    /// Request-id headers that were kept, by name.
    pub request_ids: BTreeMap<String, String>,
    /// Events that our own queue dropped.
    pub events_dropped: u64,
    /// Labels and other columns that the user mapped.
    pub labels: BTreeMap<String, String>,
    /// Who measured.
    pub provenance: Provenance,
    /// A proxy folded several upstream rounds into this one answer: its counts are sums.
    pub folded: bool,
}

impl Summary {
    /// The model: served, else requested.
    pub fn model(&self) -> Option<&str> {
        self.model_served.as_deref().or(self.model_requested.as_deref())
    }
}

/// One stream with its events: the unit that importers yield and signatures take in.
#[derive(Clone, Copy, Debug)]
pub struct Stream<'a> {
    /// What is known about the stream.
    pub summary: &'a Summary,
    /// Its events in order; empty where the source has none.
    pub deltas: &'a [Delta],
    /// The socket reads that its events refer to; empty where reads were not seen.
    pub reads: &'a [Read],
}
