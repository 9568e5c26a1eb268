//! The eager pump: reads the socket, below TLS, as soon as there is something to read.
//!
//! In: a connected socket. Out: the same bytes through [`Pumped`], and one [`Read`] per socket read in
//! the connection's [`Ledger`].
//!
//! Why a task of its own: hyper reads only when somebody asks for the body. Behind a consumer that takes
//! 20 ms per event a stamp taken there is seconds late and shows the consumer's pace instead of the
//! sender's. The pump asks all the time, into a queue bounded in bytes; when the queue is full it stops
//! and says for how long (`idle`), so that a late read is never mistaken for a late sender.

use std::collections::VecDeque;
use std::io;
use std::pin::Pin;
use std::sync::{Arc, Mutex, PoisonError};
use std::task::{Context, Poll, Waker, ready};

use bytes::{Buf, Bytes};
use sseismo_trace::{Micros, Read};
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::net::TcpStream;
use tokio::net::tcp::{OwnedReadHalf, OwnedWriteHalf};
use tokio::sync::Notify;
use tokio::task::AbortHandle;

use super::lag::Lag;
use super::ledger::Ledger;
use super::socket::{self, Reader};
use crate::clock;

/// Bytes that one connection may hold for a reader that does not come: about a thousand events.
pub(crate) const QUEUE_BYTES: usize = 256 * 1024;

#[derive(Debug, Default)]
struct Queue {
    chunks: VecDeque<Chunk>,
    bytes: usize,
    end: Option<Result<(), io::ErrorKind>>,
    reader: Option<Waker>,
}

/// Bytes that one read brought.
#[derive(Debug)]
pub(super) struct Chunk {
    pub(super) read: u32,
    pub(super) at: Micros,
    pub(super) bytes: Bytes,
}

#[derive(Debug, Default)]
struct Shared {
    queue: Mutex<Queue>,
    room: Notify,
}

impl Shared {
    fn with<T>(&self, change: impl FnOnce(&mut Queue) -> T) -> T {
        change(&mut self.queue.lock().unwrap_or_else(PoisonError::into_inner))
    }

    fn wake(&self, change: impl FnOnce(&mut Queue)) {
        let waker = self.with(|queue| {
            change(queue);
            queue.reader.take()
        });
        if let Some(waker) = waker {
            waker.wake();
        }
    }
}

/// The connection as the layers above see it. Dropping it stops the pump.
#[derive(Debug)]
pub(crate) struct Pumped {
    shared: Arc<Shared>,
    ledger: Arc<Ledger>,
    write: OwnedWriteHalf,
    pump: AbortHandle,
}

impl Drop for Pumped {
    fn drop(&mut self) {
        self.pump.abort();
    }
}

/// Starts the pump of `stream` on the current runtime.
pub(crate) fn start(stream: TcpStream, ledger: Arc<Ledger>, lag: Arc<Lag>) -> Pumped {
    socket::ask_for_stamps(&stream);
    let (read, write) = stream.into_split();
    let shared = Arc::new(Shared::default());
    let task = run(read, Arc::clone(&shared), Arc::clone(&ledger), lag);
    let pump = tokio::spawn(task).abort_handle();
    Pumped { shared, ledger, write, pump }
}

async fn run(half: OwnedReadHalf, shared: Arc<Shared>, ledger: Arc<Ledger>, lag: Arc<Lag>) {
    let mut reader = Reader::default();
    loop {
        let idle = wait_for_room(&shared).await;
        match reader.read(half.as_ref()).await {
            Ok(got) if got.bytes.is_empty() => return shared.wake(|queue| queue.end = Some(Ok(()))),
            Ok(got) => {
                let at = got.at;
                let read = ledger.note(
                    at,
                    Read {
                        kernel_lag: got.kernel_lag,
                        bytes: u32::try_from(got.bytes.len()).unwrap_or(u32::MAX),
                        drained: got.drained,
                        idle: Some(idle),
                        loop_lag: Some(lag.at(at)),
                        ..Read::default()
                    },
                );
                shared.wake(|queue| {
                    queue.bytes += got.bytes.len();
                    queue.chunks.push_back(Chunk { read, at, bytes: got.bytes });
                });
            }
            Err(error) => return shared.wake(|queue| queue.end = Some(Err(error.kind()))),
        }
    }
}

/// Waits until the queue has room; how long that took.
async fn wait_for_room(shared: &Shared) -> Micros {
    let full = || shared.with(|queue| queue.bytes >= QUEUE_BYTES);
    if !full() {
        return Micros(0);
    }
    let since = clock::now();
    while full() {
        shared.room.notified().await;
    }
    clock::now().since(since)
}

impl Queue {
    /// The next chunk; `None` at the end.
    fn poll_front(&mut self, cx: &mut Context<'_>) -> Poll<io::Result<Option<&mut Chunk>>> {
        if self.chunks.is_empty() {
            if let Some(end) = self.end {
                return Poll::Ready(end.map(|()| None).map_err(io::Error::from));
            }
            if self.reader.as_ref().is_none_or(|reader| !reader.will_wake(cx.waker())) {
                self.reader = Some(cx.waker().clone());
            }
            return Poll::Pending;
        }
        Poll::Ready(Ok(self.chunks.front_mut()))
    }

    /// `n` bytes were handed out; whether the pump may have waited for that.
    fn took(&mut self, n: usize) -> bool {
        let was_full = self.bytes >= QUEUE_BYTES;
        self.bytes -= n;
        was_full
    }
}

impl Pumped {
    /// Takes from the queue, and tells the pump when it waits for room.
    fn take<T>(&self, take: impl FnOnce(&mut Queue) -> Poll<io::Result<(T, bool)>>) -> Poll<io::Result<T>> {
        let (taken, was_full) = ready!(self.shared.with(take))?;
        if was_full {
            self.shared.room.notify_one();
        }
        Poll::Ready(Ok(taken))
    }

    /// All the bytes of the next read; none of them at the end.
    pub(super) fn poll_chunk(&self, cx: &mut Context<'_>) -> Poll<io::Result<Chunk>> {
        self.take(|queue| {
            ready!(queue.poll_front(cx))?;
            let Some(chunk) = queue.chunks.pop_front() else {
                return Poll::Ready(Ok((Chunk { read: 0, at: Micros(0), bytes: Bytes::new() }, false)));
            };
            self.ledger.reached(chunk.read, chunk.at);
            let was_full = queue.took(chunk.bytes.len());
            Poll::Ready(Ok((chunk, was_full)))
        })
    }
}

impl AsyncRead for Pumped {
    /// Hands out bytes of one socket read at a time, so that the layer above can be asked which read
    /// completed what it returns.
    fn poll_read(self: Pin<&mut Self>, cx: &mut Context<'_>, buf: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        self.take(|queue| {
            let Some(chunk) = ready!(queue.poll_front(cx))? else { return Poll::Ready(Ok(((), false))) };
            let n = buf.remaining().min(chunk.bytes.len());
            buf.put_slice(&chunk.bytes[..n]);
            self.ledger.reached(chunk.read, chunk.at);
            chunk.bytes.advance(n);
            if chunk.bytes.is_empty() {
                queue.chunks.pop_front();
            }
            Poll::Ready(Ok(((), queue.took(n))))
        })
    }
}

impl AsyncWrite for Pumped {
    fn poll_write(mut self: Pin<&mut Self>, cx: &mut Context<'_>, buf: &[u8]) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.write).poll_write(cx, buf)
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        bufs: &[io::IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.write).poll_write_vectored(cx, bufs)
    }

    fn is_write_vectored(&self) -> bool {
        self.write.is_write_vectored()
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.write).poll_flush(cx)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.write).poll_shutdown(cx)
    }
}
