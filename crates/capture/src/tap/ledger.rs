//! What is known of one connection: its socket reads, and where its response bytes came from.
//!
//! In: the pump's reads (below TLS) and the plaintext that hyper reads (above TLS). Out: the reads of a
//! stream, and the read that completed a given body byte.
//!
//! The bridge over TLS is a single number: [`Pumped`](super::pump::Pumped) hands out the bytes of one
//! read at a time, and rustls stops asking as soon as it has plaintext; so plaintext was always completed
//! by the read whose bytes were handed out last.

use std::collections::btree_map::Entry;
use std::collections::{BTreeMap, VecDeque};
use std::net::SocketAddr;
use std::ops::Range;
use std::sync::{Mutex, PoisonError};

use sseismo_trace::{Micros, Read, UtcMicros};

use super::shadow::{Dechunked, Run, Shadow};
use super::tcp::{self, Tcp};
use crate::clock;

/// Reads kept for streams that have not ended: a day of a stream of three events a second. Beyond it the
/// oldest are forgotten.
const MAX_READS: usize = 1 << 18;

/// Streams that end within this time of each other on one connection share what the kernel said of it, µs. To ask
/// costs as much as to decode a short answer; a smoothed round-trip time moves more slowly than this.
const TCP_FRESH: i64 = 100_000;

/// The record of one connection.
#[derive(Debug)]
pub(crate) struct Ledger {
    pub(crate) conn_id: u64,
    pub(crate) started: Micros,
    pub(crate) started_at: UtcMicros,
    pub(crate) local: Option<SocketAddr>,
    pub(crate) peer: Option<SocketAddr>,
    state: Mutex<State>,
}

#[derive(Debug, Default)]
struct State {
    reads: VecDeque<Read>,
    next: u32,
    reached: Option<(u32, Micros)>,
    shadow: Shadow,
    /// The first reads that streams which have not ended need, with how many share it.
    open: BTreeMap<u32, u32>,
    served: bool,
    /// What the kernel said, and when.
    tcp: Option<(Micros, Option<Tcp>)>,
}

impl State {
    fn between(&self, from: u32, to: u32) -> Vec<Read> {
        let wanted = self.reads.iter().rev().skip_while(|read| read.read_id > to);
        let mut reads: Vec<_> = wanted.take_while(|read| read.read_id >= from).copied().collect();
        reads.reverse();
        reads
    }

    /// Forgets the reads that no stream needs.
    fn forget(&mut self) {
        let needed = self.open.keys().next().copied().unwrap_or(self.next);
        while self.reads.front().is_some_and(|read| read.read_id < needed) {
            self.reads.pop_front();
        }
    }
}

impl Ledger {
    pub(crate) fn new(conn_id: u64, local: Option<SocketAddr>, peer: Option<SocketAddr>) -> Self {
        Self {
            conn_id,
            started: clock::now(),
            started_at: clock::wall(),
            local,
            peer,
            state: Mutex::default(),
        }
    }

    fn with<T>(&self, change: impl FnOnce(&mut State) -> T) -> T {
        change(&mut self.state.lock().unwrap_or_else(PoisonError::into_inner))
    }

    /// Adds a read that returned at `at`; its number.
    pub(crate) fn note(&self, at: Micros, read: Read) -> u32 {
        self.with(|state| {
            let read_id = state.next;
            state.next = state.next.wrapping_add(1);
            if state.reads.len() == MAX_READS {
                state.reads.pop_front();
            }
            let t = at.since(self.started);
            state.reads.push_back(Read { conn_id: self.conn_id, read_id, t, ..read });
            read_id
        })
    }

    /// Bytes of `read` are being handed to the layer above.
    pub(crate) fn reached(&self, read: u32, at: Micros) {
        self.with(|state| state.reached = Some((read, at)));
    }

    /// The read whose bytes were handed out last.
    pub(crate) fn latest(&self) -> Option<(u32, Micros)> {
        self.with(|state| state.reached)
    }

    /// Response bytes of HTTP/1.1, above TLS; see [`Shadow::read`].
    pub(crate) fn plain(&self, bytes: &[u8]) -> Option<usize> {
        self.with(|state| {
            let (read, at) = state.reached?;
            state.shadow.read(bytes, read, at)
        })
    }

    /// Response bytes that somebody else than hyper reads; see [`Shadow::dechunk`].
    pub(crate) fn dechunk(&self, bytes: &[u8], data: impl FnMut(Range<usize>)) -> Dechunked {
        self.with(|state| state.shadow.dechunk(bytes, data))
    }

    /// Request bytes of HTTP/1.1, above TLS.
    pub(crate) fn wrote(&self, bytes: &[u8]) {
        self.with(|state| state.shadow.wrote(bytes));
    }

    /// See [`Shadow::claim`].
    pub(crate) fn claim(&self) -> Option<(u64, (u32, Micros))> {
        self.with(|state| state.shadow.claim())
    }

    /// See [`Shadow::take`].
    pub(crate) fn take(&self, number: u64, offset: u64, limit: u64) -> Option<Run> {
        self.with(|state| state.shadow.take(number, offset, limit))
    }

    /// See [`Shadow::release`].
    pub(crate) fn release(&self, number: u64) {
        self.with(|state| state.shadow.release(number));
    }

    /// A stream begins, whose head `read` completed; whether the connection had served one before.
    pub(crate) fn begin(&self, read: u32) -> bool {
        self.with(|state| {
            *state.open.entry(read).or_default() += 1;
            std::mem::replace(&mut state.served, true)
        })
    }

    /// The reads numbered `from..=to`, as far as they are still kept.
    pub(crate) fn reads(&self, from: u32, to: u32) -> Vec<Read> {
        self.with(|state| state.between(from, to))
    }

    /// The stream that holds on to the reads from `from` on needs only those from `to` on.
    pub(crate) fn go_on(&self, from: u32, to: u32) {
        self.with(|state| {
            if let Entry::Occupied(mut open) = state.open.entry(from) {
                *open.get_mut() -= 1;
                if *open.get() == 0 {
                    open.remove();
                }
                *state.open.entry(to).or_default() += 1;
                state.forget();
            }
        });
    }

    /// The stream that holds on to the reads from `from` on ended at `to`: its reads, as far as they are still kept. Reads that
    /// no open stream needs are forgotten.
    pub(crate) fn finish(&self, from: u32, to: u32) -> Vec<Read> {
        self.with(|state| {
            let reads = state.between(from, to);
            if let Entry::Occupied(mut open) = state.open.entry(from) {
                *open.get_mut() -= 1;
                if *open.get() == 0 {
                    open.remove();
                }
            }
            state.forget();
            reads
        })
    }

    /// What the kernel knows of the connection `now`, or knew up to [`TCP_FRESH`] before.
    pub(crate) fn tcp(&self, now: Micros) -> Option<Tcp> {
        let known = self.with(|state| state.tcp);
        if let Some((_, tcp)) = known.filter(|(at, _)| now.since(*at).0 < TCP_FRESH) {
            return tcp;
        }
        let (local, peer) = self.local.zip(self.peer)?;
        let tcp = tcp::ask(local, peer);
        self.with(|state| state.tcp = Some((now, tcp)));
        tcp
    }
}
