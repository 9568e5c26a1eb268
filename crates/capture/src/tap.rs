//! The tap: requests go out, answers come back unchanged, and what arrived when is written down.
//!
//! ```text
//! socket → pump → TLS → shadow → hyper → TapBody → the caller
//!            └ Read        └ Run            └ Piece → analysis → Record
//! ```
//!
//! In: requests of any kind to any upstream. Out: the responses, and for each one a [`Record`]. Times are
//! taken by the pump, below TLS and before anybody asks for the body, so the caller's pace does not move
//! them. See the modules for the why of each step.

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use hyper::body::{Body, Incoming};
use hyper::{Request, Response};
use hyper_util::client::legacy::{self, Client};
use hyper_util::rt::{TokioExecutor, TokioTimer};
use rustls::ClientConfig;
use rustls::crypto::ring;
use rustls::pki_types::CertificateDer;
use rustls_platform_verifier::Verifier;

mod anomaly;
mod body;
mod connector;
mod decompress;
mod follow;
mod lag;
mod ledger;
mod numeric;
mod observer;
mod open_loop;
mod probe;
mod pump;
#[cfg(feature = "record")]
mod recording;
mod request;
mod response;
mod sent;
mod shadow;
mod socket;
mod tcp;
mod wire;

pub use anomaly::is_anomalous;
pub use body::TapBody;
pub use connector::ConnectError;
pub use numeric::prompt_numeric_share;
pub use observer::{Exchange, Hash, Keep, Note, Observer, RawPiece, Record};
pub use open_loop::{OpenLoop, Pace, Tally};
pub use probe::{BadProbe, Probe};
#[cfg(feature = "record")]
pub use recording::{open, record};
pub use sent::SentBody;

/// Idle connections are closed after this long; most servers close theirs after 60 s or more.
const POOL_IDLE: Duration = Duration::from_secs(50);

/// HTTP/2 flow-control windows. Larger than the pump's queue, so that it is the pump that stops first
/// and says so.
const HTTP2_WINDOW: u32 = 1 << 20;

/// How upstreams are reached.
#[derive(Clone, Debug, Default)]
pub struct Options {
    /// Certificates to trust beside those of the operating system.
    pub extra_roots: Vec<CertificateDer<'static>>,
    /// Speak HTTP/2 without asking on `http://` upstreams.
    pub http2_prior_knowledge: bool,
}

/// A client whose connections are tapped. Cheap to clone; clones share connections.
#[derive(Debug)]
pub struct Tap<B> {
    client: Client<connector::Connector, B>,
    connector: connector::Connector,
    http2_only: bool,
}

impl<B> Clone for Tap<B> {
    fn clone(&self) -> Self {
        Self { client: self.client.clone(), connector: self.connector.clone(), http2_only: self.http2_only }
    }
}

impl<B> Tap<B>
where
    B: Body<Data = Bytes> + Send + Unpin + 'static,
    B::Error: Into<Box<dyn std::error::Error + Send + Sync>>,
{
    /// A client without connections. Must be called inside a tokio runtime.
    ///
    /// # Errors
    /// When the operating system's certificates cannot be used.
    pub fn new(options: &Options) -> Result<Self, rustls::Error> {
        let provider = Arc::new(ring::default_provider());
        let roots = options.extra_roots.iter().cloned();
        let verifier = Verifier::new_with_extra_roots(roots, Arc::clone(&provider))?;
        let mut tls = ClientConfig::builder_with_provider(provider)
            .with_safe_default_protocol_versions()?
            .dangerous()
            .with_custom_certificate_verifier(Arc::new(verifier))
            .with_no_client_auth();
        tls.alpn_protocols = vec![b"h2".to_vec(), b"http/1.1".to_vec()];
        let connector =
            connector::Connector::new(Arc::new(tls), options.http2_prior_knowledge, observer::random());
        Ok(Self::with_pool(connector, options.http2_prior_knowledge, usize::MAX))
    }

    /// A client with the same settings and none of the connections: requests that it sends never share one
    /// with requests of `self`. With `keep` false each request gets a connection of its own.
    #[must_use]
    pub fn apart(&self, keep: bool) -> Self {
        Self::with_pool(self.connector.clone(), self.http2_only, if keep { usize::MAX } else { 0 })
    }

    fn with_pool(connector: connector::Connector, http2_only: bool, idle: usize) -> Self {
        let client = Client::builder(TokioExecutor::new())
            .pool_timer(TokioTimer::new())
            .timer(TokioTimer::new())
            .pool_idle_timeout(POOL_IDLE)
            .pool_max_idle_per_host(idle)
            .http1_preserve_header_case(true)
            // Told beforehand, the pool opens one connection at a time; left to find out, it opens another for
            // each request that comes while the first is not yet known to be HTTP/2.
            .http2_only(http2_only)
            .http2_initial_stream_window_size(HTTP2_WINDOW)
            .http2_initial_connection_window_size(4 * HTTP2_WINDOW)
            .build(connector.clone());
        Self { client, connector, http2_only }
    }

    /// Sends `request` to where its URI points. Redirects are not followed.
    ///
    /// # Errors
    /// When no connection comes about or it breaks before the response's head.
    pub async fn send(&self, request: Request<B>) -> Result<Response<Incoming>, legacy::Error> {
        self.client.request(request).await
    }
}

/// An error with its causes in one line; they name hosts and ports, never what was sent.
pub fn causes(error: &dyn std::error::Error) -> String {
    let chain = std::iter::successors(Some(error), |error| error.source());
    chain.map(ToString::to_string).collect::<Vec<_>>().join(": ")
}
