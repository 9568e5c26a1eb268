//! The pump's promise: a slow reader does not move the stamps.

#![expect(clippy::unwrap_used, reason = "a test stops at what it does not expect")]

use std::convert::Infallible;
use std::sync::Arc;
use std::sync::mpsc::Receiver;
use std::time::Duration;

use bytes::Bytes;
use http_body_util::{BodyExt, Full};
use hyper::Request;
use sseismo_capture::tap::{Keep, Note, Observer, Options, Record, SentBody, Tap};
use sseismo_trace::Kind;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};

const EVENTS: u32 = 100;
const EVERY: Duration = Duration::from_millis(4);

/// Answers two connections with the same events at the same moments.
async fn twins(listener: TcpListener) {
    let mut both = Vec::<TcpStream>::new();
    for _ in 0..2 {
        let (mut stream, _) = listener.accept().await.unwrap();
        stream.set_nodelay(true).unwrap();
        let _ = stream.read(&mut [0; 4096]).await.unwrap();
        both.push(stream);
    }
    let head = b"HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\ntransfer-encoding: chunked\r\n\r\n";
    for stream in &mut both {
        stream.write_all(head).await.unwrap();
    }
    let mut tick = tokio::time::interval(EVERY);
    for event in 0..EVENTS {
        tick.tick().await;
        let data =
            format!("data: {{\"choices\":[{{\"delta\":{{\"reasoning_content\":\"{event:04}\"}}}}]}}\n\n");
        let chunk = format!("{:x}\r\n{data}\r\n", data.len());
        for stream in &mut both {
            stream.write_all(chunk.as_bytes()).await.unwrap();
        }
    }
    for stream in &mut both {
        stream.write_all(b"0\r\n\r\n").await.unwrap();
    }
}

/// Reads one answer, taking `pause` for each frame; how long that took.
async fn consume(
    tap: Tap<SentBody<Full<Bytes>>>,
    observer: Observer,
    url: String,
    pause: Duration,
) -> Duration {
    let request = Request::post(url).body(Full::<Bytes>::from("{}")).unwrap();
    let (head, body) = request.into_parts();
    let exchange = observer.request(&head, "twins");
    let request = Request::from_parts(head, exchange.body(body));
    let mut body = exchange.answered(tap.send(request).await.unwrap()).into_body();
    let began = tokio::time::Instant::now();
    while let Some(frame) = body.frame().await {
        frame.unwrap();
        tokio::time::sleep(pause).await;
    }
    began.elapsed()
}

/// The next finished stream.
fn record(notes: &Receiver<Note>) -> Record {
    loop {
        if let Note::End(record) = notes.recv_timeout(Duration::from_secs(5)).unwrap() {
            return *record;
        }
    }
}

/// Moments of the events in µs since the process began.
fn moments(record: &Record) -> Vec<i64> {
    let content = record.deltas.iter().filter(|delta| delta.kind == Kind::Reasoning);
    let start = record.summary.started_at.unwrap().0;
    content.map(|delta| start + delta.t.unwrap().0).collect()
}

/// A consumer that takes 20 ms for each frame and a prompt one read the same events at once. The stamps
/// must agree within 1 ms, although the slow consumer sees its last event more than a second late.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_slow_consumer_does_not_move_the_stamps() {
    let mut worst = Vec::new();
    for _attempt in 0..8 {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let url = format!("http://{}/v1/chat/completions", listener.local_addr().unwrap());
        let (observer, notes) = Observer::new(Arc::new(|_: &str, _: &[u8]| 0), Keep::default());
        let tap = Tap::new(&Options::default()).unwrap();
        let source = tokio::spawn(twins(listener));
        let prompt = tokio::spawn(consume(tap.clone(), observer.clone(), url.clone(), Duration::ZERO));
        let slow = tokio::spawn(consume(tap, observer, url, Duration::from_millis(20)));
        source.await.unwrap();
        let (prompt, slow) = (prompt.await.unwrap(), slow.await.unwrap());
        assert!(slow > prompt + Duration::from_secs(1), "the consumer was not slow: {slow:?} {prompt:?}");
        let (one, other) = (record(&notes), record(&notes));
        let (one, other) = (moments(&one), moments(&other));
        assert_eq!((one.len(), other.len()), (EVENTS as usize, EVENTS as usize));
        let apart = one.iter().zip(&other).map(|(one, other)| (one - other).abs()).max().unwrap();
        worst.push(apart);
        // A busy machine can stop one of the two reads for longer than the bound; then we look again.
        if apart <= 1_000 {
            return;
        }
    }
    panic!("stamps lie apart by up to {worst:?} µs in every attempt");
}

/// The same over HTTP/2, where a task polls the body for the consumer.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn nor_does_it_over_http2() {
    let mut worst = Vec::new();
    for _attempt in 0..8 {
        let (address, source) = http2_source().await;
        let url = format!("http://{address}/v1/chat/completions");
        let (observer, notes) = Observer::new(Arc::new(|_: &str, _: &[u8]| 0), Keep::default());
        let tap = Tap::new(&Options { http2_prior_knowledge: true, ..Options::default() }).unwrap();
        let slow = consume(tap, observer, url, Duration::from_millis(20)).await;
        assert!(slow > EVERY * 2 * EVENTS, "the consumer was not slow: {slow:?}");
        let sent = source.await.unwrap();
        let stamps = moments(&record(&notes));
        assert_eq!((stamps.len(), sent.len()), (EVENTS as usize, EVENTS as usize));
        // The source's clock is the wall clock of the same machine: gaps are compared, not moments.
        let drift = |i: usize| ((stamps[i] - stamps[0]) - (sent[i] - sent[0])).abs();
        let apart = (0..stamps.len()).map(drift).max().unwrap();
        worst.push(apart);
        if apart <= 1_000 {
            return;
        }
    }
    panic!("stamps lie apart by up to {worst:?} µs in every attempt");
}

/// Sends the events over HTTP/2; when each was handed to the connection, in µs.
async fn http2_source() -> (std::net::SocketAddr, tokio::task::JoinHandle<Vec<i64>>) {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    let (sent, mut all) = tokio::sync::mpsc::unbounded_channel();
    tokio::spawn(async move {
        let (stream, _) = listener.accept().await.unwrap();
        stream.set_nodelay(true).unwrap();
        let service = hyper::service::service_fn(move |_| {
            let sent = sent.clone();
            let began = tokio::time::Instant::now();
            let events = futures_util::stream::unfold(0, move |event| {
                let sent = sent.clone();
                async move {
                    if event == EVENTS {
                        return None;
                    }
                    tokio::time::sleep_until(began + EVERY * event).await;
                    let data = format!(
                        "data: {{\"choices\":[{{\"delta\":{{\"reasoning_content\":\"{event:04}\"}}}}]}}\n\n"
                    );
                    sent.send(i64::try_from(began.elapsed().as_micros()).unwrap()).unwrap();
                    let frame = hyper::body::Frame::data(Bytes::from(data));
                    Some((Ok::<_, Infallible>(frame), event + 1))
                }
            });
            async move {
                let body = http_body_util::StreamBody::new(events);
                let response = hyper::Response::builder().header("content-type", "text/event-stream");
                Ok::<_, Infallible>(response.body(body).unwrap())
            }
        });
        let io = hyper_util::rt::TokioIo::new(stream);
        let builder = hyper::server::conn::http2::Builder::new(hyper_util::rt::TokioExecutor::new());
        let _ = builder.serve_connection(io, service).await;
    });
    let collect = tokio::spawn(async move {
        let mut moments = Vec::new();
        for _ in 0..EVENTS {
            moments.push(all.recv().await.unwrap());
        }
        moments
    });
    (address, collect)
}
