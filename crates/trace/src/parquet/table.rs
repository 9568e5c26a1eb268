//! The tables: which column holds which field. The only list of columns; writing, reading and the
//! published names all come from it.

use std::path::Path;
use std::sync::Arc;

use arrow_array::{Array, ArrayRef, RecordBatch};
use arrow_schema::{Field, Schema, SchemaRef};

use super::Error;
use super::cell::Cell;
use crate::{Delta, Kind, Micros, Phase, Read, SignalState, Summary, UtcMicros};

/// A row of one table.
pub(super) trait Row: Sized {
    /// The table's folder.
    const TABLE: &'static str;
    /// Names of the columns.
    const COLUMNS: &'static [&'static str];
    /// The order of rows, as it is called in messages.
    const ORDER: &'static str;

    /// A row to be filled.
    fn blank() -> Self;
    /// Where the row stands in its table; rising.
    fn key(&self) -> (u64, u32);
    /// The columns.
    fn fields() -> Vec<Field>;
    /// Columns of `rows`, in the order of [`Row::fields`].
    fn arrays(rows: &[Self]) -> Vec<ArrayRef>;
    /// Fills `rows` from a batch of the same length.
    fn fill(rows: &mut [Self], batch: &RecordBatch) -> Result<(), (&'static str, String)>;

    /// The table's schema.
    fn schema() -> SchemaRef {
        Arc::new(Schema::new(Self::fields()))
    }

    /// All rows of a batch of `path`.
    fn read(batch: &RecordBatch, path: &Path) -> Result<Vec<Self>, Error> {
        let mut rows: Vec<Self> = (0..batch.num_rows()).map(|_| Self::blank()).collect();
        let wrong = |(column, problem)| Error::Column { path: path.to_owned(), column, problem };
        Self::fill(&mut rows, batch).map_err(wrong)?;
        Ok(rows)
    }
}

/// A row of `events/`: a [`Delta`] with the stream that it belongs to.
#[derive(Clone, Copy, Debug)]
pub(super) struct Event {
    pub(super) stream_id: u64,
    pub(super) delta: Delta,
}

/// A row of `texts/`: the text of one event. Stored only when asked for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Text {
    /// The stream.
    pub stream_id: u64,
    /// The event, as in `events/`.
    pub seq: u32,
    /// What the text is.
    pub kind: Kind,
    /// The text.
    pub text: String,
}

/// A row of `raw/`: bytes of a stream's body as one read brought them. Stored only when asked for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Raw {
    /// The stream.
    pub stream_id: u64,
    /// Position among the stream's chunks, from 0.
    pub chunk: u32,
    /// The read that brought the chunk, as in `reads/`.
    pub read_id: Option<u32>,
    /// When, since the stream's start.
    pub t: Option<Micros>,
    /// The body's bytes, with any content encoding taken off.
    pub bytes: Vec<u8>,
}

/// A row of `signals/`.
#[derive(Clone, Debug)]
pub(super) struct SignalRow {
    pub(super) signal_id: u64,
    pub(super) at: Option<UtcMicros>,
    pub(super) upstream: Option<String>,
    pub(super) route: Option<String>,
    pub(super) model: Option<String>,
    pub(super) effort: Option<String>,
    pub(super) signature: String,
    pub(super) cause: Option<String>,
    pub(super) state: SignalState,
    pub(super) strength: f64,
    pub(super) detail: String,
    pub(super) evidence: String,
    pub(super) ttl_s: f64,
    pub(super) action: Option<String>,
    pub(super) acted: Option<bool>,
}

impl SignalRow {
    fn blank() -> Self {
        Self {
            signal_id: 0,
            at: None,
            upstream: None,
            route: None,
            model: None,
            effort: None,
            signature: String::new(),
            cause: None,
            state: SignalState::Onset,
            strength: 0.0,
            detail: String::new(),
            evidence: String::new(),
            ttl_s: 0.0,
            action: None,
            acted: None,
        }
    }

    /// By time; messages of one moment by signal and state.
    fn key(&self) -> (u64, u32) {
        let at = self.at.unwrap_or_default().0;
        let id = u32::try_from(self.signal_id & 0x3fff_ffff).unwrap_or(0);
        (at.cast_unsigned() ^ (1 << 63), (id << 2) | super::signals::place(self.state))
    }
}

fn field<R, C: Cell>(name: &str, _: impl Fn(&R) -> &C) -> Field {
    Field::new(name, C::data_type(), C::NULLABLE)
}

fn array<'a, R: 'a, C: Cell + 'a>(rows: &'a [R], get: impl Fn(&'a R) -> &'a C) -> ArrayRef {
    C::write(rows.iter().map(get))
}

fn fill<R, C: Cell>(
    rows: &mut [R],
    batch: &RecordBatch,
    name: &'static str,
    slot: impl Fn(&mut R) -> &mut C,
) -> Result<(), (&'static str, String)> {
    let column: &dyn Array = batch.column_by_name(name).ok_or((name, "is missing".to_owned()))?;
    C::read(column, |row, value| *slot(&mut rows[row]) = value).map_err(|problem| (name, problem))
}

/// One table: its folder, its row, its columns.
macro_rules! table {
    ($folder:ident, $order:literal, $row:ty, blank: $blank:expr, key: $key:expr,
     { $($constant:ident = $name:literal: $($field:ident).+;)* }) => {
        #[doc = concat!("Columns of `", stringify!($folder), "/`.")]
        pub mod $folder {
            $(
                #[doc = concat!("Column `", $name, "`.")]
                pub const $constant: &str = $name;
            )*
            /// The table's folder.
            pub const FOLDER: &str = stringify!($folder);
            /// Every column, in the file's order.
            pub const ALL: &[&str] = &[$($constant),*];
        }

        impl Row for $row {
            const TABLE: &'static str = $folder::FOLDER;
            const COLUMNS: &'static [&'static str] = $folder::ALL;
            const ORDER: &'static str = $order;

            fn blank() -> Self {
                $blank
            }

            fn key(&self) -> (u64, u32) {
                ($key)(self)
            }

            fn fields() -> Vec<Field> {
                vec![$(field($name, |row: &Self| &row.$($field).+)),*]
            }

            fn arrays(rows: &[Self]) -> Vec<ArrayRef> {
                vec![$(array(rows, |row: &Self| &row.$($field).+)),*]
            }

            fn fill(rows: &mut [Self], batch: &RecordBatch) -> Result<(), (&'static str, String)> {
                $(fill(rows, batch, $name, |row: &mut Self| &mut row.$($field).+)?;)*
                Ok(())
            }
        }
    };
}

table!(streams, "stream_id", Summary, blank: Self::default(), key: |row: &Self| (row.stream_id, 0), {
    STREAM_ID = "stream_id": stream_id;
    SESSION_KEY = "session_key": session_key;
    TURN_INDEX = "turn_index": turn_index;
    TURN_KEY = "turn_key": turn_key;
    ATTEMPT = "attempt": attempt;
    GROUP_ID = "group_id": group_id;
    API = "api": api;
    UPSTREAM = "upstream": upstream;
    KEY_SLOT = "key_slot": key_slot;
    ROUTE = "route": route;
    CANARY_ARM = "canary_arm": canary_arm;
    CLIENT_APP = "client_app": client_app;
    CALLER_HASH = "caller_hash": caller_hash;
    MODEL_REQUESTED = "model_requested": model_requested;
    MODEL_SERVED = "model_served": model_served;
    EFFORT = "effort": effort;
    STREAMED = "streamed": streamed;
    STARTED_AT = "started_at": started_at;
    T_HEADERS = "t_headers": t_headers;
    T_FIRST_BYTE = "t_first_byte": t_first_byte;
    T_FIRST_REASONING = "t_first_reasoning": t_first_reasoning;
    T_FIRST_OUTPUT = "t_first_output": t_first_output;
    T_END = "t_end": t_end;
    TIME_SOURCE = "time_source": time_source;
    ATTRIBUTION = "attribution": attribution;
    STATUS = "status": status;
    OUTCOME = "outcome": outcome;
    FALLBACK_REASON = "fallback_reason": fallback_reason;
    HTTP_VERSION = "http_version": http_version;
    TLS = "tls": tls;
    CONN_ID = "conn_id": conn_id;
    CONN_STARTED_AT = "conn_started_at": conn_started_at;
    CONN_REUSED = "conn_reused": conn_reused;
    CONTENT_ENCODING = "content_encoding": content_encoding;
    VIA = "via": via;
    SERVER = "server": server;
    TCP_RTT_US = "tcp_rtt_us": tcp_rtt_us;
    TCP_RETRANS = "tcp_retrans": tcp_retrans;
    PROMPT_BYTES = "prompt_bytes": prompt_bytes;
    PROMPT_TOKENS_EST = "prompt_tokens_est": prompt_tokens_est;
    PROMPT_NUMERIC_SHARE = "prompt_numeric_share": prompt_numeric_share;
    USAGE_INPUT = "usage_input": usage.input;
    USAGE_CACHED = "usage_cached": usage.cached;
    USAGE_OUTPUT = "usage_output": usage.output;
    USAGE_REASONING = "usage_reasoning": usage.reasoning;
    REASONING_TOKENS_EST = "reasoning_tokens_est": reasoning_tokens_est;
    CONTENT_CHECK = "content_check": content_check;
    COST_USD = "cost_usd": cost_usd;
    RETRY_AFTER_MS = "retry_after_ms": retry_after_ms;
    RATE_LIMIT = "rate_limit": rate_limit;
    REQUEST_IDS = "request_ids": request_ids;
    EVENTS_DROPPED = "events_dropped": events_dropped;
    LABELS = "labels": labels;
    PROVENANCE = "provenance": provenance;
    FOLDED = "folded": folded;
});

table!(reads, "(conn_id, read_id)", Read, blank: Self::default(),
key: |row: &Self| (row.conn_id, row.read_id), {
    CONN_ID = "conn_id": conn_id;
    READ_ID = "read_id": read_id;
    T_US = "t_us": t;
    KERNEL_LAG_US = "kernel_lag_us": kernel_lag;
    BYTES = "bytes": bytes;
    DRAINED = "drained": drained;
    IDLE_US = "idle_us": idle;
    LOOP_LAG_US = "loop_lag_us": loop_lag;
});

table!(events, "(stream_id, seq)", Event,
blank: Self { stream_id: 0, delta: Delta::new(0, Kind::Meta, Phase::Queued, None) },
key: |row: &Self| (row.stream_id, row.delta.seq), {
    STREAM_ID = "stream_id": stream_id;
    SEQ = "seq": delta.seq;
    FIRST_READ = "first_read": delta.first_read;
    EXTRA_READS = "extra_reads": delta.extra_reads;
    T_US = "t_us": delta.t;
    KIND = "kind": delta.kind;
    PHASE = "phase": delta.phase;
    ITEM_INDEX = "item_index": delta.item_index;
    PROVIDER_SEQ = "provider_seq": delta.provider_seq;
    PROVIDER_TS = "provider_ts": delta.provider_ts;
    CHARS = "chars": delta.chars;
    TOKENS = "tokens": delta.tokens;
    TOKENS_EST = "tokens_est": delta.tokens_est;
    WIRE_BYTES = "wire_bytes": delta.wire_bytes;
    PAD_BYTES = "pad_bytes": delta.pad_bytes;
});

table!(texts, "(stream_id, seq)", Text,
blank: Self { stream_id: 0, seq: 0, kind: Kind::Meta, text: String::new() },
key: |row: &Self| (row.stream_id, row.seq), {
    STREAM_ID = "stream_id": stream_id;
    SEQ = "seq": seq;
    KIND = "kind": kind;
    TEXT = "text": text;
});

table!(raw, "(stream_id, chunk)", Raw,
blank: Self { stream_id: 0, chunk: 0, read_id: None, t: None, bytes: Vec::new() },
key: |row: &Self| (row.stream_id, row.chunk), {
    STREAM_ID = "stream_id": stream_id;
    CHUNK = "chunk": chunk;
    READ_ID = "read_id": read_id;
    T_US = "t_us": t;
    BYTES = "bytes": bytes;
});

table!(signals, "at", SignalRow, blank: Self::blank(), key: |row: &Self| row.key(), {
    SIGNAL_ID = "signal_id": signal_id;
    AT = "at": at;
    UPSTREAM = "upstream": upstream;
    ROUTE = "route": route;
    MODEL = "model": model;
    EFFORT = "effort": effort;
    SIGNATURE = "signature": signature;
    CAUSE = "cause": cause;
    STATE = "state": state;
    STRENGTH = "strength": strength;
    DETAIL = "detail": detail;
    EVIDENCE = "evidence": evidence;
    TTL_S = "ttl_s": ttl_s;
    ACTION = "action": action;
    ACTED = "acted": acted;
});
