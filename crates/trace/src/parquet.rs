//! Trace files: a dataset is a folder of Parquet files. Schema, writer and the only reader.
//!
//! In: [`Summary`]s, [`Delta`]s and [`Read`]s. Out: the same values, or columns as plain slices. Arrow
//! types stay inside this module.
//!
//! # The files
//!
//! ```text
//! DIR/dataset.json                                       what it is, what was left out
//! DIR/streams/date=2026-07-01/part-1782864000-4711-0.parquet
//! DIR/events/date=2026-07-01/part-1782864000-4711-0.parquet
//! DIR/reads/date=2026-07-01/part-1782864000-4711-0.parquet
//! ```
//!
//! Any engine that reads hive-partitioned Parquet reads it: `DuckDB`
//! `SELECT model_served, count(*) FROM 'DIR/streams/*/*.parquet' GROUP BY 1`, polars
//! `scan_parquet("DIR/events")`, Spark, Daft. The date is the UTC date of the stream's start; streams
//! without one lie in `date=__HIVE_DEFAULT_PARTITION__`, which engines read as null. A part holds whole
//! streams, its rows sorted by (`stream_id`, `seq`) and (`conn_id`, `read_id`). Parquet's key-value
//! metadata holds `sseismo.schema` (the version, now 0: columns may still change), `sseismo.anchors` (pairs
//! of wall and monotonic clock, JSON) and, in `streams/`, `sseismo.tables` (how many rows of how many streams
//! or connections the part's other files hold, JSON): a file that is gone is noticed.
//!
//! **These files are sensitive**: no text is stored unless asked for, but sizes and times of events are
//! a known side channel on the text. Identifiers are HMACs with a key of the dataset.
//!
//! A null means "not measured" or "not said", never zero. Times in µs; unless said otherwise since the
//! stream's start (the request was sent). Reported token counts and estimates have columns of their own.
//!
//! ## `streams/`: one row for each attempt of a request
//!
//! | column | type, unit | meaning |
//! |---|---|---|
//! | `stream_id` | u64 | unique in the dataset |
//! | `session_key`, `turn_key`, `group_id`, `caller_hash` | u64, null | hashes of the session, of the client's turn (its attempts share it), of the fan-out, of the caller's credential |
//! | `turn_index` | u32, null | number of the turn in its session |
//! | `attempt` | u32, null | attempt of its turn, from 1 |
//! | `api` | word, null | `responses` `chat` `messages` `generate-content` `ollama` `cohere` |
//! | `upstream` | string, null | host that answered |
//! | `key_slot` | u16, null | which of the upstream's keys was used: its place, never the key |
//! | `route`, `canary_arm` | string, null | the relay's route and canary arm, or the value of a split column |
//! | `client_app` | string, null | the calling program |
//! | `model_requested`, `model_served` | string, null | model asked for; model that the answer names |
//! | `effort` | string, null | reasoning effort asked for |
//! | `streamed` | bool, null | the answer was streamed |
//! | `started_at` | timestamp µs UTC, null | when the request was sent |
//! | `t_headers`, `t_first_byte` | µs, null | response headers complete; first byte of the body |
//! | `t_first_reasoning`, `t_first_output` | µs, null | first reasoning or summary event; first answer text or tool event |
//! | `t_end` | µs, null | last byte |
//! | `time_source` | word | where event times come from: `kernel` `socket` `user` `server` `pcap` `none` |
//! | `attribution` | word | how events are tied to reads: `exact` `frame` `none` |
//! | `status` | u16, null | HTTP status |
//! | `outcome` | word | `completed` `incomplete` `failed` `truncated` `client-gone` `timeout` `unknown` |
//! | `fallback_reason` | string, null | why another upstream was tried |
//! | `http_version`, `tls` | string, bool, null | `1.1` or `2`; whether TLS was used |
//! | `conn_id` | u64, null | the connection, as in `reads/` |
//! | `conn_started_at` | timestamp µs UTC, null | when it was opened |
//! | `conn_reused` | bool, null | it had served a request before |
//! | `content_encoding`, `via`, `server` | string, null | headers of the answer |
//! | `tcp_rtt_us` | µs, null | smoothed round-trip time at the end |
//! | `tcp_retrans` | u32, null | segments sent again on the connection |
//! | `prompt_bytes` | bytes, null | size of the request's body |
//! | `prompt_tokens_est` | tokens, null | **estimated** from the bytes |
//! | `prompt_numeric_share` | 0–1, null | share of prompt characters that are digits, or separators inside runs of digits |
//! | `usage_input`, `usage_cached`, `usage_output` | tokens, null | as **reported** |
//! | `usage_reasoning` | tokens (f64), null | as **reported**; a fraction only where the source holds one |
//! | `reasoning_tokens_est` | tokens, null | **estimated** from streamed characters |
//! | `content_check` | word | `ok` `invalid-json` `schema` `placeholder` `empty` `not-checked` |
//! | `cost_usd` | US dollars, null | from a stated price table |
//! | `retry_after_ms` | ms, null | the answer's Retry-After |
//! | `rate_limit`, `request_ids`, `labels` | map string → string | headers that were kept; labels that the user mapped |
//! | `events_dropped` | u64 | events lost because a queue of ours was full or the disk was |
//! | `provenance` | string | `live`, or `import:` and the format |
//! | `folded` | bool | a proxy folded several upstream rounds into this answer: its counts are sums |
//!
//! ## `events/`: one row for each event of a stream
//!
//! | column | type, unit | meaning |
//! |---|---|---|
//! | `stream_id` | u64 | the stream |
//! | `seq` | u32 | place in the stream, from 0 |
//! | `first_read` | u32, null | the read (`reads.read_id`) that brought the event's first byte |
//! | `extra_reads` | u16 | further reads that it took to complete the event |
//! | `t_us` | µs, null | when the event was complete |
//! | `kind` | word | `reasoning` `summary` `text` `tool` `usage` `ping` `comment` `error` `done` `meta` |
//! | `phase` | word | `queued` `reasoning` `summary` `output` `tool` `tail` |
//! | `item_index` | u16, null | the provider's number of the output item or content block |
//! | `provider_seq` | u32, null | the provider's sequence number |
//! | `provider_ts` | µs since 1970 UTC, null | the provider's clock |
//! | `chars` | characters | Unicode scalar values of content |
//! | `tokens` | tokens, null | as **reported** for this event |
//! | `tokens_est` | tokens, null | **estimated** from the characters |
//! | `wire_bytes`, `pad_bytes` | bytes | size in the decoded body; of these, obfuscation or blank padding |
//!
//! An event's earliest possible time is not stored: it is the time of the read before `first_read`.
//!
//! ## `reads/`: one row for each socket read, below TLS
//!
//! | column | type, unit | meaning |
//! |---|---|---|
//! | `conn_id` | u64 | the connection |
//! | `read_id` | u32 | number of the read on its connection, from 0 |
//! | `t_us` | µs since the connection's start | when the read returned |
//! | `kernel_lag_us` | µs, null | how long the kernel had held the last byte; null without kernel stamps and after a clock step |
//! | `bytes` | bytes | what the read returned (ciphertext under TLS) |
//! | `drained` | bool | the read was short: nothing more was there |
//! | `idle_us` | µs, null | how long nobody had asked to read because our own queue was full |
//! | `loop_lag_us` | µs, null | how late our runtime woke us, by its own probe |
//!
//! ## `signals/`: one row for each signal of the live detector
//!
//! Parts stand alone, one or more a day; rows are sorted by `at`.
//!
//! | column | type, unit | meaning |
//! |---|---|---|
//! | `signal_id` | u64 | the onset that it belongs to: refreshes and the clear carry its id |
//! | `at` | timestamp µs UTC | when it was raised |
//! | `upstream`, `route`, `model`, `effort` | string, null | the traffic that it is about |
//! | `signature`, `cause` | string; string, null | `burst` …; why, where that is known |
//! | `state` | word | `onset` `refresh` `clear` |
//! | `strength` | 0–1 | how far the traffic is affected |
//! | `detail`, `evidence` | JSON | what exactly clusters; the statistic, its threshold and reservations |
//! | `ttl_s` | s | after this time without a refresh it counts as cleared |
//! | `action`, `acted` | string, bool, null | what the router did, or would have done when `acted` is false |
//!
//! ## `texts/` and `raw/`: only when asked for
//!
//! | column | type, unit | meaning |
//! |---|---|---|
//! | `texts.stream_id`, `texts.seq`, `texts.kind`, `texts.text` | u64, u32, word, string | the text of one event |
//! | `raw.stream_id`, `raw.chunk` | u64, u32 | the stream; place among its chunks, from 0 |
//! | `raw.read_id`, `raw.t_us` | u32, µs, null | the read that brought the chunk, and when |
//! | `raw.bytes` | binary | the body's bytes, content encoding taken off |
//!
//! # Reading in Rust
//!
//! [`Dataset::streams`] hands on whole streams; [`Dataset::summaries`] reads `streams/` alone;
//! [`Dataset::times`] and [`Dataset::events`] hand on columns as slices for kernels.
//! [`DatasetWriter`] writes streams in any order; [`PartWriter`] writes one part from sorted rows.
//!
//! [`Summary`]: crate::Summary
//! [`Delta`]: crate::Delta
//! [`Read`]: crate::Read

mod cell;
mod dataset;
mod error;
mod part;
mod read;
mod signals;
mod table;
#[cfg(test)]
mod tests;
mod words;

pub use dataset::{DatasetWriter, Manifest};
pub use error::Error;
pub use part::{Anchor, PartName, PartWriter, Written, partition};
pub use read::{Dataset, EventColumns, Part, Report, Sizes, Times};
pub use signals::{StoredSignal, write_signals};
pub use table::{Raw, Text, events, raw, reads, signals as signal_columns, streams, texts};

/// Version of the trace schema that this program writes, and the newest that it reads. 0 until the
/// columns are frozen.
pub const VERSION: u32 = 0;

/// Key of the version in each file's key-value metadata.
const SCHEMA_KEY: &str = "sseismo.schema";
