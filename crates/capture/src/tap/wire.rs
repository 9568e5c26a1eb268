//! One connection to an upstream, shared by hyper and by the body that it brings.
//!
//! In: what the pump read, above TLS. Out: to hyper everything but the data of a chunked body, to the
//! [`TapBody`](super::TapBody) that data, one [`Portion`] per read.
//!
//! Why hyper does not get it: it would hand each chunk from its connection's task to the task that writes to
//! the client and wait for that one to ask for the next, three wake-ups and one write per event even when
//! many came in one read. The head, the end of the body with its trailers, and whatever cannot be followed
//! are hyper's as ever. Where one chunk ends and the next begins is lost; that is the hop's own affair (RFC
//! 9112 § 7.1), and no byte of the body changes.

use std::io;
use std::ops::Range;
use std::pin::Pin;
use std::sync::{Arc, Mutex, PoisonError};
use std::task::{Context, Poll, Waker, ready};

use bytes::{Buf, Bytes, BytesMut};
use hyper_util::client::legacy::connect::{Connected, Connection};
use sseismo_trace::Micros;
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio_rustls::client::TlsStream;

use super::ledger::Ledger;
use super::pump::{Chunk, Pumped};
use super::shadow::Dechunked;
use super::socket;

/// What hyper gets in place of a chunked body that was taken out: its last chunk.
const LAST_CHUNK: &[u8] = b"0\r\n";
/// What it gets where the framing broke: no chunk size, so that it fails as it would have.
const NO_CHUNK: &[u8] = b"?\r\n";

/// What a response's extensions say about the connection that brought it.
#[derive(Clone, Debug)]
pub(crate) struct Handle {
    pub(crate) ledger: Arc<Ledger>,
    pub(crate) http2: bool,
    pub(crate) tls: bool,
    wire: Arc<Wire>,
}

#[derive(Debug)]
struct Wire(Mutex<Inner>);

#[derive(Debug)]
struct Inner {
    /// `None` once hyper has left the connection.
    io: Option<Io>,
    owner: Owner,
    /// To be given to hyper before anything else.
    instead: &'static [u8],
    /// What was read with the end of a head, or with that of a chunked body.
    ahead: Option<Chunk>,
    /// hyper waits for its turn.
    hyper: Option<Waker>,
}

#[derive(Debug)]
pub(super) enum Io {
    Plain(Pumped),
    Tls(Box<TlsStream<Pumped>>),
}

/// Who reads the connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Owner {
    Hyper,
    /// hyper, unless somebody takes the body of the chunked response whose head has just passed.
    Offered,
    Body,
    /// Nobody: a body that was taken was left before its end.
    Left,
}

/// Data of a chunked body that one read completed; may be empty.
#[derive(Debug)]
pub(crate) struct Portion {
    pub(crate) bytes: Bytes,
    pub(crate) read: u32,
    pub(crate) at: Micros,
    pub(crate) then: Then,
}

/// What follows.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Then {
    More,
    /// Nothing, and the body is whole; hyper is told.
    End,
    /// No more data; hyper tells whether trailers follow or the connection broke.
    AskHyper,
}

impl Io {
    /// The bytes of the next read; none of them at the end.
    fn poll_chunk(&mut self, ledger: &Ledger, cx: &mut Context<'_>) -> Poll<io::Result<Chunk>> {
        match self {
            Self::Plain(io) => io.poll_chunk(cx),
            Self::Tls(io) => socket::with_room(|room| {
                let mut buf = ReadBuf::new(room);
                ready!(Pin::new(io).poll_read(cx, &mut buf))?;
                let (read, at) = ledger.latest().unwrap_or((0, Micros(0)));
                Poll::Ready(Ok(Chunk { read, at, bytes: Bytes::copy_from_slice(buf.filled()) }))
            }),
        }
    }
}

impl Inner {
    /// Gives the connection back to hyper, which finds `instead` first.
    fn give_back(&mut self, instead: &'static [u8]) {
        (self.owner, self.instead) = (Owner::Hyper, instead);
        self.wake();
    }

    fn wake(&mut self) {
        if let Some(hyper) = self.hyper.take() {
            hyper.wake();
        }
    }

    /// Takes the data out of `chunk`; the rest of it waits for hyper once the data is over.
    fn dechunk(&mut self, ledger: &Ledger, mut chunk: Chunk) -> Portion {
        let mut data = Data::default();
        let followed = ledger.dechunk(&chunk.bytes, |place| data.add(&chunk.bytes, place));
        let (bytes, read, at) = (data.finish(&chunk.bytes), chunk.read, chunk.at);
        let then = match followed {
            Dechunked::More => Then::More,
            Dechunked::Broken => {
                self.give_back(NO_CHUNK);
                Then::AskHyper
            }
            Dechunked::Last { used } => {
                chunk.bytes.advance(used);
                let whole = chunk.bytes.starts_with(b"\r\n");
                self.ahead = (!chunk.bytes.is_empty()).then_some(chunk);
                self.give_back(LAST_CHUNK);
                if whole { Then::End } else { Then::AskHyper }
            }
        };
        Portion { bytes, read, at, then }
    }
}

/// The data in one read, uncopied while it lies in one piece.
#[derive(Debug, Default)]
struct Data {
    first: Option<Range<usize>>,
    joined: BytesMut,
}

impl Data {
    fn add(&mut self, bytes: &[u8], place: Range<usize>) {
        match &self.first {
            None => self.first = Some(place),
            Some(first) => {
                if self.joined.is_empty() {
                    self.joined.reserve(bytes.len());
                    self.joined.extend_from_slice(&bytes[first.clone()]);
                }
                self.joined.extend_from_slice(&bytes[place]);
            }
        }
    }

    fn finish(self, bytes: &Bytes) -> Bytes {
        match self.first {
            Some(first) if self.joined.is_empty() => bytes.slice(first),
            _ => self.joined.freeze(),
        }
    }
}

impl Handle {
    fn with<T>(&self, change: impl FnOnce(&mut Inner) -> T) -> T {
        change(&mut self.wire.0.lock().unwrap_or_else(PoisonError::into_inner))
    }

    /// Takes the body of the response whose head has just come, if it is chunked. It must then be read with
    /// [`Handle::poll_data`] to its end or [left](Handle::leave).
    pub(crate) fn take_body(&self) -> bool {
        self.with(|inner| {
            let offered = inner.owner == Owner::Offered;
            if offered {
                inner.owner = Owner::Body;
            }
            offered
        })
    }

    /// Nobody takes that body: hyper reads it.
    pub(crate) fn decline_body(&self) {
        self.with(|inner| {
            if inner.owner == Owner::Offered {
                inner.give_back(b"");
            }
        });
    }

    /// The body that was taken is not read to its end, so the connection is of no more use.
    pub(crate) fn leave(&self) {
        self.with(|inner| {
            if inner.owner == Owner::Body {
                inner.owner = Owner::Left;
                inner.wake();
            }
        });
    }

    /// The next data of the body that was taken.
    pub(crate) fn poll_data(&self, cx: &mut Context<'_>) -> Poll<Portion> {
        self.with(|inner| {
            loop {
                let chunk = match (inner.ahead.take(), &mut inner.io) {
                    (Some(ahead), _) => ahead,
                    (None, Some(io)) => match ready!(io.poll_chunk(&self.ledger, cx)) {
                        Ok(chunk) if !chunk.bytes.is_empty() => chunk,
                        // hyper meets the same end, and makes it an error.
                        Ok(Chunk { read, at, bytes }) => {
                            inner.give_back(b"");
                            return Poll::Ready(Portion { bytes, read, at, then: Then::AskHyper });
                        }
                        Err(_) => {
                            inner.give_back(b"");
                            return Poll::Ready(Portion::broken());
                        }
                    },
                    (None, None) => return Poll::Ready(Portion::broken()),
                };
                let portion = inner.dechunk(&self.ledger, chunk);
                if !portion.bytes.is_empty() || portion.then != Then::More {
                    return Poll::Ready(portion);
                }
            }
        })
    }
}

impl Portion {
    fn broken() -> Self {
        Self { bytes: Bytes::new(), read: 0, at: Micros(0), then: Then::AskHyper }
    }
}

/// The connection as hyper sees it. Dropping it closes the connection, whoever still has a [`Handle`].
#[derive(Debug)]
pub(crate) struct Tapped(Handle);

impl Tapped {
    pub(super) fn new(io: Io, http2: bool, ledger: Arc<Ledger>) -> Self {
        let tls = matches!(io, Io::Tls(..));
        let inner = Inner { io: Some(io), owner: Owner::Hyper, instead: b"", ahead: None, hyper: None };
        Self(Handle { ledger, http2, tls, wire: Arc::new(Wire(Mutex::new(inner))) })
    }

    /// Does something to the connection itself.
    fn on_io<T>(&self, act: impl FnOnce(&mut Io) -> Poll<io::Result<T>>) -> Poll<io::Result<T>> {
        self.0.with(|inner| match &mut inner.io {
            Some(io) => act(io),
            None => Poll::Ready(Err(io::ErrorKind::NotConnected.into())),
        })
    }
}

impl Drop for Tapped {
    fn drop(&mut self) {
        drop(self.0.with(|inner| inner.io.take()));
    }
}

impl Connection for Tapped {
    fn connected(&self) -> Connected {
        let connected = Connected::new().extra(self.0.clone());
        if self.0.http2 { connected.negotiated_h2() } else { connected }
    }
}

impl Inner {
    /// Fills `buf` for hyper.
    fn poll_fill(&mut self, cx: &mut Context<'_>, buf: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        if let Some(ahead) = &mut self.ahead {
            let n = buf.remaining().min(ahead.bytes.len());
            buf.put_slice(&ahead.bytes.split_to(n));
            if ahead.bytes.is_empty() {
                self.ahead = None;
            }
            return Poll::Ready(Ok(()));
        }
        match &mut self.io {
            Some(Io::Plain(io)) => Pin::new(io).poll_read(cx, buf),
            Some(Io::Tls(io)) => Pin::new(io).poll_read(cx, buf),
            None => Poll::Ready(Err(io::ErrorKind::NotConnected.into())),
        }
    }

    /// Shows the framing shadow what hyper gets. Behind the head of a chunked response `buf` is cut off: who
    /// gets the rest is not decided yet.
    fn show(&mut self, ledger: &Ledger, buf: &mut ReadBuf<'_>, before: usize) {
        let fresh = &buf.filled()[before..];
        let Some(head) = ledger.plain(fresh) else { return };
        self.owner = Owner::Offered;
        let rest = &fresh[head..];
        if !rest.is_empty() {
            let (read, at) = ledger.latest().unwrap_or((0, Micros(0)));
            let mut bytes = BytesMut::from(rest);
            if let Some(ahead) = self.ahead.take() {
                bytes.extend_from_slice(&ahead.bytes);
            }
            self.ahead = Some(Chunk { read, at, bytes: bytes.freeze() });
            buf.set_filled(before + head);
        }
    }
}

impl AsyncRead for Tapped {
    fn poll_read(self: Pin<&mut Self>, cx: &mut Context<'_>, buf: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        let Handle { ledger, http2, .. } = &self.0;
        self.0.with(|inner| {
            match inner.owner {
                Owner::Hyper => {}
                Owner::Left => return Poll::Ready(Err(io::ErrorKind::ConnectionAborted.into())),
                Owner::Offered | Owner::Body => {
                    inner.hyper = Some(cx.waker().clone());
                    return Poll::Pending;
                }
            }
            if !inner.instead.is_empty() {
                let n = buf.remaining().min(inner.instead.len());
                buf.put_slice(&inner.instead[..n]);
                inner.instead = &inner.instead[n..];
                return Poll::Ready(Ok(()));
            }
            let before = buf.filled().len();
            ready!(inner.poll_fill(cx, buf))?;
            if !http2 {
                inner.show(ledger, buf, before);
            }
            Poll::Ready(Ok(()))
        })
    }
}

impl AsyncWrite for Tapped {
    fn poll_write(self: Pin<&mut Self>, cx: &mut Context<'_>, buf: &[u8]) -> Poll<io::Result<usize>> {
        if !self.0.http2 {
            self.0.ledger.wrote(buf);
        }
        self.on_io(|io| match io {
            Io::Plain(io) => Pin::new(io).poll_write(cx, buf),
            Io::Tls(io) => Pin::new(io).poll_write(cx, buf),
        })
    }

    fn poll_write_vectored(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        bufs: &[io::IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        if let Some(first) = bufs.iter().find(|buf| !buf.is_empty()).filter(|_| !self.0.http2) {
            self.0.ledger.wrote(first);
        }
        self.on_io(|io| match io {
            Io::Plain(io) => Pin::new(io).poll_write_vectored(cx, bufs),
            Io::Tls(io) => Pin::new(io).poll_write_vectored(cx, bufs),
        })
    }

    fn is_write_vectored(&self) -> bool {
        self.0.with(|inner| match &inner.io {
            Some(Io::Plain(io)) => io.is_write_vectored(),
            Some(Io::Tls(io)) => io.is_write_vectored(),
            None => false,
        })
    }

    fn poll_flush(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        self.on_io(|io| match io {
            Io::Plain(io) => Pin::new(io).poll_flush(cx),
            Io::Tls(io) => Pin::new(io).poll_flush(cx),
        })
    }

    fn poll_shutdown(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        self.on_io(|io| match io {
            Io::Plain(io) => Pin::new(io).poll_shutdown(cx),
            Io::Tls(io) => Pin::new(io).poll_shutdown(cx),
        })
    }
}
