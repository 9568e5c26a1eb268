//! Upstreams with a script: raw HTTP/1.1 on a socket, and hyper's server for HTTP/2.

use std::convert::Infallible;
use std::io::Write as _;
use std::net::SocketAddr;
use std::pin::Pin;
use std::sync::{Arc, Mutex};
use std::task::{Context, Poll};
use std::time::Duration;

use bytes::Bytes;
use hyper::body::{Frame, Incoming};
use hyper::service::service_fn;
use hyper::{Request, Response};
use hyper_util::rt::{TokioExecutor, TokioIo};
use rustls::pki_types::{CertificateDer, PrivateKeyDer, PrivatePkcs8KeyDer};
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::mpsc;
use tokio_rustls::TlsAcceptor;

/// How the upstream says where its body ends.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Framing {
    Length,
    Chunked,
    Close,
}

/// One scripted answer.
#[derive(Clone, Debug)]
pub(crate) struct Script {
    pub(crate) framing: Framing,
    pub(crate) headers: Vec<(&'static str, &'static str)>,
    pub(crate) pieces: Vec<Vec<u8>>,
    pub(crate) pause: Duration,
}

impl Script {
    /// Events of a reasoning stream, with comments, as one piece each.
    pub(crate) fn events(framing: Framing, pause: Duration) -> Self {
        let mut pieces = vec![b": keep-alive\n\n".to_vec()];
        for word in 0..20 {
            let event = format!(
                "data: {{\"model\":\"m-1\",\"choices\":[{{\"delta\":{{\"reasoning_content\":\"secret-answer {word} \"}}}}]}}\r\n\r\n"
            );
            pieces.push(event.into_bytes());
        }
        pieces.push(b"data: {\"choices\":[{\"delta\":{\"content\":\"secret-answer\"}}]}\n\n".to_vec());
        pieces.push(b"data: {\"choices\":[{\"delta\":{},\"finish_reason\":\"stop\"}]}\n\n".to_vec());
        pieces.push(b"data: [DONE]\n\n".to_vec());
        let headers = vec![("content-type", "text/event-stream"), ("x-request-id", "req-1")];
        Self { framing, headers, pieces, pause }
    }

    /// The same events, each compressed and flushed.
    pub(crate) fn gzip(framing: Framing, pause: Duration) -> Self {
        let mut script = Self::events(framing, pause);
        let mut encoder = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::default());
        for piece in &mut script.pieces {
            encoder.write_all(piece).unwrap();
            encoder.flush().unwrap();
            *piece = std::mem::take(encoder.get_mut());
        }
        script.pieces.push(encoder.finish().unwrap());
        script.headers.push(("content-encoding", "gzip"));
        script
    }

    /// Bytes that no API says.
    pub(crate) fn binary(framing: Framing, size: usize) -> Self {
        let bytes: Vec<u8> = (0..=250).cycle().take(size).collect();
        let pieces = bytes.chunks(10_007).map(<[u8]>::to_vec).collect();
        Self { framing, headers: vec![("content-type", "image/png")], pieces, pause: Duration::ZERO }
    }

    pub(crate) fn body(&self) -> Vec<u8> {
        self.pieces.concat()
    }
}

/// A certificate for `localhost` that signs itself, and its key.
pub(crate) struct Certificate {
    pub(crate) der: CertificateDer<'static>,
    key: PrivateKeyDer<'static>,
}

impl Certificate {
    pub(crate) fn new() -> Self {
        let made = rcgen::generate_simple_self_signed(["localhost".to_owned()]).unwrap();
        let key = PrivatePkcs8KeyDer::from(made.signing_key.serialize_der()).into();
        Self { der: made.cert.der().clone(), key }
    }

    fn acceptor(&self, alpn: &[u8]) -> TlsAcceptor {
        let provider = Arc::new(rustls::crypto::ring::default_provider());
        let mut config = rustls::ServerConfig::builder_with_provider(provider)
            .with_safe_default_protocol_versions()
            .unwrap()
            .with_no_client_auth()
            .with_single_cert(vec![self.der.clone()], self.key.clone_key())
            .unwrap();
        config.alpn_protocols = vec![alpn.to_vec()];
        TlsAcceptor::from(Arc::new(config))
    }
}

/// What an upstream met.
#[derive(Clone, Debug, Default)]
pub(crate) struct Seen(Arc<Mutex<Vec<String>>>);

impl Seen {
    pub(crate) fn all(&self) -> Vec<String> {
        self.0.lock().unwrap().clone()
    }

    fn add(&self, what: String) {
        self.0.lock().unwrap().push(what);
    }
}

/// Serves `script` for every request over HTTP/1.1; requests, and `gone` when a write fails, are seen.
pub(crate) async fn http1(script: Script, tls: Option<&Certificate>) -> (SocketAddr, Seen) {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    let acceptor = tls.map(|certificate| certificate.acceptor(b"http/1.1"));
    let seen = Seen::default();
    let all = seen.clone();
    tokio::spawn(async move {
        loop {
            let (stream, _) = listener.accept().await.unwrap();
            stream.set_nodelay(true).unwrap();
            let (script, seen, acceptor) = (script.clone(), all.clone(), acceptor.clone());
            tokio::spawn(async move {
                match acceptor {
                    Some(acceptor) => {
                        if let Ok(stream) = acceptor.accept(stream).await {
                            answer(stream, script, seen).await;
                        }
                    }
                    None => answer(stream, script, seen).await,
                }
            });
        }
    });
    (address, seen)
}

async fn answer<S: AsyncRead + AsyncWrite + Unpin>(mut stream: S, script: Script, seen: Seen) {
    while let Some(request) = read_request(&mut stream).await {
        let head_only = request.starts_with("HEAD");
        seen.add(request);
        if write_answer(&mut stream, &script, head_only).await.is_err() {
            return seen.add("gone".to_owned());
        }
        if script.framing == Framing::Close {
            let _ = stream.shutdown().await;
            return;
        }
    }
}

async fn read_request<S: AsyncRead + Unpin>(stream: &mut S) -> Option<String> {
    let mut got = Vec::new();
    loop {
        let mut buffer = vec![0; 16 * 1024];
        let n = stream.read(&mut buffer).await.ok().filter(|n| *n > 0)?;
        got.extend_from_slice(&buffer[..n]);
        let Some(end) = got.windows(4).position(|four| four == b"\r\n\r\n") else { continue };
        let head = String::from_utf8_lossy(&got[..end]).to_ascii_lowercase();
        let length = head.lines().find_map(|line| line.strip_prefix("content-length: ")?.parse().ok());
        let whole = match length {
            Some(length) => got.len() - end - 4 >= length,
            None if head.contains("transfer-encoding: chunked") => got.ends_with(b"0\r\n\r\n"),
            None => true,
        };
        if whole {
            return Some(String::from_utf8_lossy(&got).into_owned());
        }
    }
}

async fn write_answer<S: AsyncRead + AsyncWrite + Unpin>(
    stream: &mut S,
    script: &Script,
    head_only: bool,
) -> std::io::Result<()> {
    let headers: String = script.headers.iter().map(|(name, value)| format!("{name}: {value}\r\n")).collect();
    let framing = match script.framing {
        Framing::Length => format!("content-length: {}", script.body().len()),
        Framing::Chunked => "transfer-encoding: chunked".to_owned(),
        Framing::Close => "connection: close".to_owned(),
    };
    stream.write_all(format!("HTTP/1.1 200 Fine\r\n{headers}{framing}\r\n\r\n").as_bytes()).await?;
    if head_only {
        return stream.flush().await;
    }
    for piece in &script.pieces {
        if script.framing == Framing::Chunked {
            let chunk = [format!("{:x}\r\n", piece.len()).as_bytes(), piece, b"\r\n"].concat();
            stream.write_all(&chunk).await?;
        } else {
            stream.write_all(piece).await?;
        }
        stream.flush().await?;
        // A peer that has left is noticed while waiting, not only at the next write.
        let mut byte = [0];
        let read = tokio::time::timeout(script.pause, stream.read(&mut byte)).await;
        if matches!(read, Ok(Ok(0) | Err(_))) {
            return Err(std::io::ErrorKind::BrokenPipe.into());
        }
    }
    if script.framing == Framing::Chunked {
        stream.write_all(b"0\r\n\r\n").await?;
    }
    stream.flush().await
}

/// Serves `script` for every request over HTTP/2: with prior knowledge, or over TLS.
pub(crate) async fn http2(script: Script, tls: Option<&Certificate>) -> (SocketAddr, Seen) {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    let acceptor = tls.map(|certificate| certificate.acceptor(b"h2"));
    let seen = Seen::default();
    let all = seen.clone();
    tokio::spawn(async move {
        loop {
            let (stream, _) = listener.accept().await.unwrap();
            stream.set_nodelay(true).unwrap();
            tokio::spawn(serve_http2(stream, acceptor.clone(), script.clone(), all.clone()));
        }
    });
    (address, seen)
}

async fn serve_http2(stream: TcpStream, acceptor: Option<TlsAcceptor>, script: Script, seen: Seen) {
    let service = service_fn(move |request: Request<Incoming>| {
        seen.add(format!("{} {} {:?}", request.method(), request.uri(), request.version()));
        let body = Paced::start(script.clone(), seen.clone());
        let mut response = Response::builder();
        for (name, value) in &script.headers {
            response = response.header(*name, *value);
        }
        if script.framing == Framing::Length {
            response = response.header("content-length", script.body().len());
        }
        async move { Ok::<_, Infallible>(response.body(body).unwrap()) }
    });
    let builder = hyper::server::conn::http2::Builder::new(TokioExecutor::new());
    if let Some(acceptor) = acceptor {
        let Ok(stream) = acceptor.accept(stream).await else { return };
        let _ = builder.serve_connection(TokioIo::new(stream), service).await;
    } else {
        let _ = builder.serve_connection(TokioIo::new(stream), service).await;
    }
}

/// A body that comes in paced pieces; dropped before its end it says `gone`.
struct Paced {
    pieces: mpsc::UnboundedReceiver<Vec<u8>>,
    seen: Option<Seen>,
}

impl Paced {
    fn start(script: Script, seen: Seen) -> Self {
        let (sender, pieces) = mpsc::unbounded_channel();
        tokio::spawn(async move {
            for piece in script.pieces {
                if sender.send(piece).is_err() {
                    return;
                }
                tokio::time::sleep(script.pause).await;
            }
        });
        Self { pieces, seen: Some(seen) }
    }
}

impl hyper::body::Body for Paced {
    type Data = Bytes;
    type Error = Infallible;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, Infallible>>> {
        let polled = self.pieces.poll_recv(cx);
        if let Poll::Ready(None) = polled {
            self.seen = None;
        }
        polled.map(|piece| piece.map(|piece| Ok(Frame::data(Bytes::from(piece)))))
    }
}

impl Drop for Paced {
    fn drop(&mut self) {
        if let Some(seen) = &self.seen {
            seen.add("gone".to_owned());
        }
    }
}
