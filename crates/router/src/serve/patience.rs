//! How long a caller is waited for: a socket that gives up on heads that drip in and on answers that are not
//! taken.
//!
//! In: reads and writes of one connection, and when a request begins and ends on it. Out: the same, or a
//! timeout. hyper's own header timer also runs while a connection is idle between requests, where much more
//! patience is due; and it has no timer for a peer that stops reading.

use std::io;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::task::{Context, Poll};
use std::time::Duration;

use bytes::Bytes;
use hyper::body::{Body, Frame, SizeHint};
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::net::TcpStream;
use tokio::time::{Instant, Sleep, sleep_until};

/// What the socket has to know of the requests on it.
#[derive(Debug)]
pub(super) struct Patience {
    head: Duration,
    write: Duration,
    /// Requests whose answer is not finished.
    open: AtomicUsize,
    /// Requests were heard on HTTP/2: other frames come between requests, and heads cannot drip.
    multiplexed: AtomicBool,
}

impl Patience {
    pub(super) fn new(head: Duration, write: Duration) -> Self {
        Self { head, write, open: AtomicUsize::new(0), multiplexed: AtomicBool::new(false) }
    }

    /// A request's head is complete.
    pub(super) fn request(self: &Arc<Self>, multiplexed: bool) -> Busy {
        self.open.fetch_add(1, Ordering::Relaxed);
        if multiplexed {
            self.multiplexed.store(true, Ordering::Relaxed);
        }
        Busy(Arc::clone(self))
    }

    fn expects_a_head(&self) -> bool {
        self.open.load(Ordering::Relaxed) == 0 && !self.multiplexed.load(Ordering::Relaxed)
    }
}

/// A request that is being answered.
#[derive(Debug)]
pub(super) struct Busy(Arc<Patience>);

impl Drop for Busy {
    fn drop(&mut self) {
        self.0.open.fetch_sub(1, Ordering::Relaxed);
    }
}

impl Busy {
    /// The request lasts as long as this body.
    pub(super) fn until_end_of<B>(self, body: B) -> BusyBody<B> {
        BusyBody { body, _busy: self }
    }
}

/// A body whose end ends its request.
#[derive(Debug)]
pub(super) struct BusyBody<B> {
    body: B,
    _busy: Busy,
}

impl<B: Body<Data = Bytes> + Unpin> Body for BusyBody<B> {
    type Data = Bytes;
    type Error = B::Error;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, B::Error>>> {
        Pin::new(&mut self.body).poll_frame(cx)
    }

    fn is_end_stream(&self) -> bool {
        self.body.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        self.body.size_hint()
    }
}

/// A socket with a limit to its patience.
#[derive(Debug)]
pub(super) struct Patient {
    stream: TcpStream,
    patience: Arc<Patience>,
    /// A head has begun and must be complete by then.
    head_due: Option<Instant>,
    /// Bytes wait to be taken and must be by then.
    write_due: Option<Instant>,
    timer: Pin<Box<Sleep>>,
}

impl Patient {
    pub(super) fn new(stream: TcpStream, patience: Arc<Patience>) -> Self {
        let due = Instant::now() + patience.head;
        let timer = Box::pin(sleep_until(due));
        Self { stream, patience, head_due: Some(due), write_due: None, timer }
    }

    /// Pending until the nearer deadline, then a timeout.
    fn wait(&mut self, cx: &mut Context<'_>) -> io::Result<()> {
        let Some(due) = self.head_due.into_iter().chain(self.write_due).min() else { return Ok(()) };
        if self.timer.deadline() != due {
            self.timer.as_mut().reset(due);
        }
        match self.timer.as_mut().poll(cx) {
            Poll::Ready(()) => Err(io::ErrorKind::TimedOut.into()),
            Poll::Pending => Ok(()),
        }
    }

    /// Passes on what a write said; bytes that are not taken start the clock.
    fn written<T>(&mut self, polled: Poll<io::Result<T>>, cx: &mut Context<'_>) -> Poll<io::Result<T>> {
        if polled.is_ready() {
            self.write_due = None;
            return polled;
        }
        self.write_due.get_or_insert_with(|| Instant::now() + self.patience.write);
        self.wait(cx)?;
        Poll::Pending
    }
}

impl AsyncRead for Patient {
    fn poll_read(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buf: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        let this = &mut *self;
        let polled = Pin::new(&mut this.stream).poll_read(cx, buf);
        if !this.patience.expects_a_head() {
            this.head_due = None;
        } else if polled.is_ready() && this.head_due.is_none() {
            this.head_due = Some(Instant::now() + this.patience.head);
        }
        if polled.is_pending() {
            this.wait(cx)?;
        }
        polled
    }
}

impl AsyncWrite for Patient {
    fn poll_write(mut self: Pin<&mut Self>, cx: &mut Context<'_>, buf: &[u8]) -> Poll<io::Result<usize>> {
        let polled = Pin::new(&mut self.stream).poll_write(cx, buf);
        self.written(polled, cx)
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        bufs: &[io::IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        let polled = Pin::new(&mut self.stream).poll_write_vectored(cx, bufs);
        self.written(polled, cx)
    }

    fn is_write_vectored(&self) -> bool {
        self.stream.is_write_vectored()
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        let polled = Pin::new(&mut self.stream).poll_flush(cx);
        self.written(polled, cx)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_shutdown(cx)
    }
}

#[cfg(test)]
mod tests {
    use tokio::io::{AsyncReadExt, AsyncWriteExt};
    use tokio::net::TcpListener;

    use super::*;

    async fn pair(head: Duration, write: Duration) -> (TcpStream, Patient, Arc<Patience>) {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let client = TcpStream::connect(listener.local_addr().unwrap()).await.unwrap();
        let patience = Arc::new(Patience::new(head, write));
        let server = Patient::new(listener.accept().await.unwrap().0, Arc::clone(&patience));
        (client, server, patience)
    }

    const SHORT: Duration = Duration::from_millis(60);
    const LONG: Duration = Duration::from_mins(1);

    #[tokio::test]
    async fn a_dripping_head_is_given_up_and_an_idle_connection_is_not() {
        let (mut client, mut server, patience) = pair(SHORT, LONG).await;
        client.write_all(b"GET").await.unwrap();
        let mut bytes = [0; 8];
        assert_eq!(server.read(&mut bytes).await.unwrap(), 3);
        assert_eq!(server.read(&mut bytes).await.unwrap_err().kind(), io::ErrorKind::TimedOut);

        let (mut client, mut server, patience2) = pair(SHORT, LONG).await;
        drop(patience);
        client.write_all(b"GET").await.unwrap();
        server.read_exact(&mut bytes[..3]).await.unwrap();
        let busy = patience2.request(false);
        let idle = tokio::time::timeout(3 * SHORT, server.read(&mut bytes)).await;
        assert!(idle.is_err(), "a request is being answered: {idle:?}");
        drop(busy);
        let idle = tokio::time::timeout(3 * SHORT, server.read(&mut bytes)).await;
        assert!(idle.is_err(), "no new head has begun: {idle:?}");
        client.write_all(b"P").await.unwrap();
        server.read_exact(&mut bytes[..1]).await.unwrap();
        assert_eq!(server.read(&mut bytes).await.unwrap_err().kind(), io::ErrorKind::TimedOut);
    }

    #[tokio::test]
    async fn an_answer_that_is_not_taken_is_given_up() {
        let (_client, mut server, patience) = pair(LONG, SHORT).await;
        let _busy = patience.request(false);
        let much = vec![0; 64 << 20];
        assert_eq!(server.write_all(&much).await.unwrap_err().kind(), io::ErrorKind::TimedOut);
    }
}
