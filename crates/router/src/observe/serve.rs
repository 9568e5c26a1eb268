//! The listening side: HTTP/1.1 and HTTP/2 on one socket, and a graceful end.

use std::convert::Infallible;
use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use hyper::service::service_fn;
use hyper_util::rt::{TokioExecutor, TokioIo, TokioTimer};
use hyper_util::server::conn::auto::Builder;
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::watch;
use tokio::task::JoinSet;

use super::Observe;

/// A client may take this long for a request's head, and leave a connection idle for as long.
const HEAD_TIMEOUT: Duration = Duration::from_secs(75);

/// How a run ended.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Served {
    /// Requests that were answered or at least begun.
    pub requests: u64,
    /// Connections that were still busy when the drain time was over.
    pub cut_off: usize,
}

/// Serves until `stop` becomes true, then lets open requests finish for at most `drain`.
///
/// # Errors
/// When the listening socket fails for good.
pub async fn serve(
    listener: TcpListener,
    relay: Observe,
    stop: watch::Receiver<bool>,
    drain: Duration,
) -> io::Result<Served> {
    let mut stopping = stop.clone();
    let mut connections = JoinSet::new();
    let requests = Arc::<AtomicU64>::default();
    loop {
        tokio::select! {
            accepted = listener.accept() => match accepted {
                Ok((stream, _)) => {
                    let _ = stream.set_nodelay(true);
                    connections.spawn(connection(stream, relay.clone(), Arc::clone(&requests), stop.clone()));
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
    Ok(Served { requests: requests.load(Ordering::Relaxed), cut_off })
}

/// Waits for the word to stop, or for nobody being left who could give it.
async fn stopped(stop: &mut watch::Receiver<bool>) {
    let _ = stop.wait_for(|stop| *stop).await;
}

/// Errors of one connection attempt, or of a moment; the socket itself is sound.
fn is_passing(error: &io::Error) -> bool {
    !matches!(error.kind(), io::ErrorKind::InvalidInput | io::ErrorKind::NotConnected)
}

async fn connection(
    stream: TcpStream,
    relay: Observe,
    requests: Arc<AtomicU64>,
    mut stop: watch::Receiver<bool>,
) {
    let service = service_fn(move |request| {
        requests.fetch_add(1, Ordering::Relaxed);
        let relay = relay.clone();
        async move { Ok::<_, Infallible>(relay.forward(request).await) }
    });
    let mut builder = Builder::new(TokioExecutor::new());
    builder
        .http1()
        .preserve_header_case(true)
        .auto_date_header(false)
        .timer(TokioTimer::new())
        .header_read_timeout(HEAD_TIMEOUT);
    builder.http2().auto_date_header(false).timer(TokioTimer::new());
    let connection = builder.serve_connection(TokioIo::new(stream), service);
    tokio::pin!(connection);
    // A connection ends with an error when the client leaves in the middle; the record says so.
    tokio::select! {
        _ = connection.as_mut() => return,
        () = stopped(&mut stop) => connection.as_mut().graceful_shutdown(),
    }
    let _ = connection.await;
}
