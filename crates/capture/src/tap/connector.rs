//! The connector under hyper-util's client: TCP, the pump, TLS on top, and the framing shadow above all.
//!
//! In: a URI. Out: a connection that hyper can speak on, whose [`Handle`](super::wire::Handle) every response
//! carries in its extensions. It is our own because the pump must sit below TLS and the shadow
//! above it, and no ready connector lets anything in between.

use std::future::Future;
use std::io;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::task::{Context, Poll};
use std::time::Duration;

use hyper::Uri;
use hyper_util::rt::TokioIo;
use rustls::ClientConfig;
use rustls::pki_types::ServerName;
use tokio::net::TcpStream;
use tokio_rustls::TlsConnector;
use tower_service::Service;

use super::lag::Lag;
use super::ledger::Ledger;
use super::pump;
use super::wire::{Io, Tapped};

/// How long a TCP connect and the TLS handshake may take together.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(15);

/// Why no connection came about.
#[derive(Debug, thiserror::Error)]
pub enum ConnectError {
    /// The URI names no host.
    #[error("`{0}` names no host")]
    NoHost(Uri),
    /// The host is no valid TLS server name.
    #[error("`{0}` is no valid TLS server name")]
    ServerName(String),
    /// TCP or TLS failed.
    #[error("cannot connect to {host}")]
    Io {
        /// Where to.
        host: String,
        /// Why.
        source: io::Error,
    },
    /// Nobody answered in time.
    #[error("no connection to {0} within {limit} s", limit = CONNECT_TIMEOUT.as_secs())]
    Timeout(String),
}

/// Opens tapped connections.
#[derive(Clone, Debug)]
pub(crate) struct Connector {
    tls: Arc<ClientConfig>,
    lag: Arc<Lag>,
    next_id: Arc<AtomicU64>,
    http2_on_plain: bool,
}

impl Connector {
    /// `first_id` numbers the first connection, so that ids of several runs do not meet.
    pub(crate) fn new(tls: Arc<ClientConfig>, http2_on_plain: bool, first_id: u64) -> Self {
        Self { tls, lag: Lag::start(), next_id: Arc::new(AtomicU64::new(first_id)), http2_on_plain }
    }

    async fn open(self, uri: Uri) -> Result<TokioIo<Tapped>, ConnectError> {
        let host = uri.host().ok_or_else(|| ConnectError::NoHost(uri.clone()))?;
        let host = host.trim_start_matches('[').trim_end_matches(']').to_owned();
        match tokio::time::timeout(CONNECT_TIMEOUT, self.connect(&uri, &host)).await {
            Ok(tapped) => Ok(TokioIo::new(tapped?)),
            Err(_) => Err(ConnectError::Timeout(host)),
        }
    }

    async fn connect(&self, uri: &Uri, host: &str) -> Result<Tapped, ConnectError> {
        let failed = |source| ConnectError::Io { host: host.to_owned(), source };
        let secure = uri.scheme_str() == Some("https");
        let port = uri.port_u16().unwrap_or(if secure { 443 } else { 80 });
        let tcp = TcpStream::connect((host, port)).await.map_err(failed)?;
        tcp.set_nodelay(true).map_err(failed)?;
        let conn_id = self.next_id.fetch_add(1, Ordering::Relaxed);
        let ledger = Arc::new(Ledger::new(conn_id, tcp.local_addr().ok(), tcp.peer_addr().ok()));
        let pumped = pump::start(tcp, Arc::clone(&ledger), Arc::clone(&self.lag));
        if !secure {
            return Ok(Tapped::new(Io::Plain(pumped), self.http2_on_plain, ledger));
        }
        let name =
            ServerName::try_from(host.to_owned()).map_err(|_| ConnectError::ServerName(host.to_owned()))?;
        let connector = TlsConnector::from(Arc::clone(&self.tls));
        let tls = connector.connect(name, pumped).await.map_err(failed)?;
        let http2 = tls.get_ref().1.alpn_protocol() == Some(b"h2");
        Ok(Tapped::new(Io::Tls(Box::new(tls)), http2, ledger))
    }
}

impl Service<Uri> for Connector {
    type Response = TokioIo<Tapped>;
    type Error = ConnectError;
    type Future = Pin<Box<dyn Future<Output = Result<Self::Response, Self::Error>> + Send>>;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), Self::Error>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, uri: Uri) -> Self::Future {
        Box::pin(self.clone().open(uri))
    }
}
