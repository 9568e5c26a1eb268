//! The listening side: HTTP/1.1 and HTTP/2 on one socket, limits, and a graceful end.
//!
//! In: a listening socket, and what answers a request. Out: answers, until told to stop. What a caller may
//! take up is bounded before anything of it is read: connections, bytes and time of a request's head, and
//! the time that it may leave an answer untaken.

use std::convert::Infallible;
use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use bytes::Bytes;
use hyper::body::{Body, Incoming};
use hyper::service::service_fn;
use hyper::{Request, Response, Version};
use hyper_util::rt::{TokioExecutor, TokioIo, TokioTimer};
use hyper_util::server::conn::auto::Builder;
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::{OwnedSemaphorePermit, Semaphore, watch};
use tokio::task::JoinSet;

mod patience;

use patience::{Patience, Patient};

/// A caller that is still there answers within this time; checked on HTTP/2, where TCP alone says nothing.
const PING: Duration = Duration::from_secs(20);

/// What callers may take up.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Limits {
    /// Bytes of a request's head.
    pub header_bytes: usize,
    /// Connections at once; more are closed at once.
    pub connections: usize,
    /// Time for a request's head, from its first byte or the connection's start.
    pub header_timeout: Duration,
    /// How long a connection may stay open without a request.
    pub idle_timeout: Duration,
    /// How long a caller may leave what was sent to it untaken.
    pub write_timeout: Duration,
}

impl Default for Limits {
    /// Heads: what nginx takes (four buffers of 8 KiB), doubled, for clients with much metadata.
    fn default() -> Self {
        Self {
            header_bytes: 64 << 10,
            connections: 4_096,
            header_timeout: Duration::from_secs(10),
            idle_timeout: Duration::from_secs(75),
            write_timeout: Duration::from_mins(5),
        }
    }
}

/// How a run ended.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Served {
    /// Requests that were answered or at least begun.
    pub requests: u64,
    /// Connections that were still busy when the drain time was over.
    pub cut_off: usize,
    /// Connections that were closed because there were too many.
    pub turned_away: u64,
}

/// Serves with `answer` until `stop` becomes true, then lets open requests finish for at most `drain`.
///
/// # Errors
/// When the listening socket fails for good.
pub async fn serve<F, R, B>(
    listener: TcpListener,
    answer: F,
    limits: Limits,
    stop: watch::Receiver<bool>,
    drain: Duration,
) -> io::Result<Served>
where
    F: Fn(Request<Incoming>) -> R + Clone + Send + Sync + 'static,
    R: Future<Output = Response<B>> + Send + 'static,
    B: Body<Data = Bytes> + Send + Unpin + 'static,
    B::Error: Into<Box<dyn std::error::Error + Send + Sync>>,
{
    let mut stopping = stop.clone();
    let mut connections = JoinSet::new();
    let requests = Arc::<AtomicU64>::default();
    let room = Arc::new(Semaphore::new(limits.connections.min(Semaphore::MAX_PERMITS)));
    let mut turned_away = 0;
    loop {
        tokio::select! {
            accepted = listener.accept() => match accepted {
                Ok((stream, _)) => {
                    let Ok(place) = Arc::clone(&room).try_acquire_owned() else {
                        turned_away += 1;
                        continue;
                    };
                    let _ = stream.set_nodelay(true);
                    let requests = Arc::clone(&requests);
                    connections.spawn(connection(stream, place, answer.clone(), limits, requests, stop.clone()));
                }
                Err(error) if is_passing(&error) => {
                    tracing::warn!("cannot accept a connection: {error}");
                    tokio::time::sleep(Duration::from_millis(50)).await; // out of file descriptors
                }
                Err(error) => return Err(error),
            },
            () = stopped(&mut stopping) => break,
            Some(_) = connections.join_next() => {}
        }
    }
    drop(listener);
    let finished = async { while connections.join_next().await.is_some() {} };
    let in_time = tokio::time::timeout(drain, finished).await.is_ok();
    let cut_off = if in_time { 0 } else { connections.len() };
    connections.shutdown().await;
    Ok(Served { requests: requests.load(Ordering::Relaxed), cut_off, turned_away })
}

/// Waits for the word to stop, or for nobody being left who could give it.
async fn stopped(stop: &mut watch::Receiver<bool>) {
    let _ = stop.wait_for(|stop| *stop).await;
}

/// Errors of one connection attempt, or of a moment; the socket itself is sound.
fn is_passing(error: &io::Error) -> bool {
    !matches!(error.kind(), io::ErrorKind::InvalidInput | io::ErrorKind::NotConnected)
}

async fn connection<F, R, B>(
    stream: TcpStream,
    place: OwnedSemaphorePermit,
    answer: F,
    limits: Limits,
    requests: Arc<AtomicU64>,
    mut stop: watch::Receiver<bool>,
) where
    F: Fn(Request<Incoming>) -> R + Clone + Send + Sync + 'static,
    R: Future<Output = Response<B>> + Send + 'static,
    B: Body<Data = Bytes> + Send + Unpin + 'static,
    B::Error: Into<Box<dyn std::error::Error + Send + Sync>>,
{
    let patience = Arc::new(Patience::new(limits.header_timeout, limits.write_timeout));
    let io = TokioIo::new(Patient::new(stream, Arc::clone(&patience)));
    let service = service_fn(move |request: Request<Incoming>| {
        requests.fetch_add(1, Ordering::Relaxed);
        let busy = patience.request(request.version() == Version::HTTP_2);
        // Boxed: hyper keeps room for the future itself for as long as the connection lives.
        let answered = Box::pin(answer(request));
        async move { Ok::<_, Infallible>(answered.await.map(|body| busy.until_end_of(body))) }
    });
    let mut builder = Builder::new(TokioExecutor::new());
    builder
        .http1()
        .preserve_header_case(true)
        .auto_date_header(false)
        .timer(TokioTimer::new())
        .max_buf_size(limits.header_bytes.max(8 << 10)) // hyper takes no less
        .header_read_timeout(limits.idle_timeout);
    builder
        .http2()
        .auto_date_header(false)
        .timer(TokioTimer::new())
        .max_header_list_size(u32::try_from(limits.header_bytes).unwrap_or(u32::MAX))
        .keep_alive_interval(PING)
        .keep_alive_timeout(PING);
    // Boxed once rather than moved from place to place in this future, which would be twice as large.
    let mut connection = Box::pin(builder.serve_connection(io, service));
    // A connection ends with an error when the client leaves in the middle; the record says so.
    tokio::select! {
        _ = connection.as_mut() => return drop(place),
        () = stopped(&mut stop) => connection.as_mut().graceful_shutdown(),
    }
    let _ = connection.await;
    drop(place);
}
