//! What arrived: bytes of one stream, and the socket reads that brought them.

use serde::{Deserialize, Serialize};

use crate::Micros;

/// Bytes of one response body as they came out of one read, before any decoding.
#[derive(Clone, Copy, Debug)]
pub struct Chunk<'a> {
    /// The body's bytes.
    pub bytes: &'a [u8],
    /// Number of the read that completed them (per connection, from 0).
    pub read: u32,
    /// When that read returned, since the stream's start; `None` where nobody measured it.
    pub at: Option<Micros>,
}

/// One socket read below TLS: a row of `reads/`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Read {
    /// The connection that was read.
    pub conn_id: u64,
    /// Number of the read on its connection, from 0.
    pub read_id: u32,
    /// When the read returned, since the connection's start.
    pub t: Micros,
    /// How long the kernel had held the last byte when the read returned; `None` without kernel stamps
    /// and after a clock step.
    pub kernel_lag: Option<Micros>,
    /// Bytes that the read returned (ciphertext under TLS).
    pub bytes: u32,
    /// The read was short: the socket had nothing more to give.
    pub drained: bool,
    /// How long nobody had asked to read because our own queue was full.
    pub idle: Option<Micros>,
    /// How late the runtime woke us, from its own lag probe.
    pub loop_lag: Option<Micros>,
}
