//! What `sseismo relay --observe` costs beside a bare hyper proxy: same source, same client, one run.
//!
//! ```text
//! cargo build --profile dist -p sseismo -p sseismo-router --no-default-features \
//!     --features sseismo/relay,sseismo-router/relay --bin sseismo --example tap_bench
//! target/dist/examples/tap_bench
//! ```
//!
//! For each row a fresh source and a fresh proxy are started as processes of their own; this process is
//! the client. The source replays the events of a recorded chat stream, each in a write of its own: paced
//! at 50 per second and stream, or as fast as the proxy takes them; or it answers with one whole JSON
//! document. CPU is the proxy's alone, from `/proc/PID/task/*/schedstat` (ns), so neighbours on a busy
//! machine hardly move it: `live` until 1.5 s after the last byte, when the recorder has flushed, and `all`
//! until the process has ended, the compaction of the dataset included (in steps of 10 ms). Latency is that
//! of the median: of a paced event from when it was written, of a whole answer from when it was asked for,
//! one after the other. RSS is the process's peak. Linux only.
#![expect(clippy::print_stdout, reason = "the figures are what this program is for")]
#![expect(clippy::disallowed_methods, reason = "source and client compare times across processes")]

use std::convert::Infallible;
use std::io::{BufRead as _, BufReader, Read as _};
use std::path::{Path, PathBuf};
use std::pin::Pin;
use std::process::{Child, Command, Stdio};
use std::sync::LazyLock;
use std::task::{Context, Poll};
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use bytes::Bytes;
use http_body_util::{BodyExt as _, Either, Full};
use hyper::body::{Body, Frame, Incoming};
use hyper::service::service_fn;
use hyper::{Request, Response, Uri};
use hyper_util::client::legacy::Client;
use hyper_util::client::legacy::connect::HttpConnector;
use hyper_util::rt::{TokioExecutor, TokioIo};
use tokio::net::TcpListener;
use tokio::task::JoinSet;
use tokio::time::{Interval, interval, sleep};

type Result<T> = std::result::Result<T, Box<dyn std::error::Error + Send + Sync>>;

/// Between events of a paced stream: 50 per second.
const GAP: Duration = Duration::from_millis(20);
/// Events of each paced stream: 10 s.
const PACED_EVENTS: usize = 500;
/// Events of all flat-out streams together.
const FLAT_EVENTS: usize = 200_000;
const STREAMS: [usize; 3] = [1, 10, 100];
/// Whole answers, asked for one after the other.
const ANSWERS: u32 = 3_000;

/// Where paced events carry the µs at which they were written: the ten digits behind it.
const STAMP: &[u8] = b"\"created\":";
const STAMP_DIGITS: usize = 10;

/// A whole answer.
const WHOLE: &str = r#"{"id":"chatcmpl-1","object":"chat.completion","created":1756000000,"model":"qwen3","choices":[{"index":0,"message":{"role":"assistant","content":"Because the sky scatters short waves more than long ones, and our eyes see blue better than violet.","reasoning_content":"The user asks why. Rayleigh scattering goes with the fourth power of the frequency."},"finish_reason":"stop"}],"usage":{"prompt_tokens":11,"completion_tokens":45,"total_tokens":56,"completion_tokens_details":{"reasoning_tokens":18}}}"#;

/// The events of a recorded chat stream, about 225 bytes each.
static EVENTS: LazyLock<Vec<Bytes>> = LazyLock::new(|| {
    include_str!("../../../data/sse/45_reasoning_gpustack-api-base_qwen3.sse")
        .split_inclusive("\n\n")
        .filter(|event| event.starts_with("data: {\"choices\""))
        .map(|event| Bytes::from_static(event.as_bytes()))
        .collect()
});

#[tokio::main]
async fn main() -> Result<()> {
    let args: Vec<String> = std::env::args().skip(1).collect();
    match args.iter().map(String::as_str).collect::<Vec<_>>()[..] {
        ["source"] => source().await,
        ["bare", to] => bare(to.parse()?).await,
        [] => compare(&["paced", "flat", "whole"], &STREAMS).await,
        [load @ ("paced" | "flat" | "whole")] => compare(&[load], &STREAMS).await,
        [load @ ("paced" | "flat"), streams] => compare(&[load], &[streams.parse()?]).await,
        _ => Err("usage: tap_bench [paced|flat [STREAMS] | whole]".into()),
    }
}

/// µs of the wall clock, which all processes share, in ten digits that a JSON number may have.
fn stamp() -> u64 {
    let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    1_000_000_000 + u64::try_from(now.as_micros()).unwrap_or(0) % 9_000_000_000
}

/// The event with the moment in it.
fn stamped(event: &Bytes) -> Bytes {
    let mut bytes = event.to_vec();
    let at = bytes.windows(STAMP.len()).position(|window| window == STAMP).map(|at| at + STAMP.len());
    if let Some(digits) = at.and_then(|at| bytes.get_mut(at..at + STAMP_DIGITS)) {
        digits.copy_from_slice(stamp().to_string().as_bytes());
    }
    bytes.into()
}

/// How long ago the events in `data` were written, µs.
fn ages(data: &[u8], into: &mut Vec<u64>) {
    let now = stamp();
    for at in (0..data.len()).filter(|&at| data[at..].starts_with(STAMP)) {
        let digits = data.get(at + STAMP.len()..at + STAMP.len() + STAMP_DIGITS).unwrap_or_default();
        let written = std::str::from_utf8(digits).ok().and_then(|digits| digits.parse::<u64>().ok());
        into.extend(written.map(|written| now.saturating_sub(written)));
    }
}

fn median(mut of: Vec<u64>) -> u64 {
    of.sort_unstable();
    of.get(of.len() / 2).copied().unwrap_or(0)
}

/// One body: `events` in all, each at a tick or, without ticks, each in a write of its own.
struct Replay {
    sent: usize,
    events: usize,
    ticks: Option<Interval>,
    flushed: bool,
}

impl Body for Replay {
    type Data = Bytes;
    type Error = Infallible;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<std::result::Result<Frame<Bytes>, Infallible>>> {
        if self.sent == self.events {
            return Poll::Ready(None);
        }
        let event = &EVENTS[self.sent % EVENTS.len()];
        let event = if let Some(ticks) = &mut self.ticks {
            std::task::ready!(ticks.poll_tick(context));
            stamped(event)
        } else if std::mem::replace(&mut self.flushed, true) {
            event.clone()
        } else {
            context.waker().wake_by_ref(); // hyper writes when a body has nothing more for now
            return Poll::Pending;
        };
        self.flushed = false;
        self.sent += 1;
        Poll::Ready(Some(Ok(Frame::data(event))))
    }
}

/// Serves `/EVENTS/paced/v1/chat/completions`, the like with `flat`, and `/whole/v1/chat/completions`.
async fn source() -> Result<()> {
    serve(|request: Request<Incoming>| async move {
        let mut path = request.uri().path().trim_start_matches('/').split('/');
        let events = path.next().unwrap_or("").to_owned();
        let ticks = (path.next() == Some("paced")).then(|| interval(GAP));
        request.into_body().collect().await?;
        let response = Response::builder();
        if events == "whole" {
            let body = Full::new(Bytes::from_static(WHOLE.as_bytes()));
            return Ok(response.header("content-type", "application/json").body(Either::Left(body))?);
        }
        let body = Replay { sent: 0, events: events.parse()?, ticks, flushed: false };
        Ok(response.header("content-type", "text/event-stream").body(Either::Right(body))?)
    })
    .await
}

/// The least that a proxy does: forwards heads and bodies, and looks at nothing.
async fn bare(to: Uri) -> Result<()> {
    let client: Client<_, Incoming> = client();
    let authority = to.authority().ok_or("no host")?.clone();
    serve(move |mut request: Request<Incoming>| {
        let (client, authority) = (client.clone(), authority.clone());
        async move {
            let path = request.uri().path().to_owned();
            *request.uri_mut() =
                Uri::builder().scheme("http").authority(authority).path_and_query(path).build()?;
            request.headers_mut().remove("host");
            Ok(client.request(request).await?)
        }
    })
    .await
}

fn client<B: Body<Data = Bytes> + Send>() -> Client<HttpConnector, B> {
    let mut connector = HttpConnector::new();
    connector.set_nodelay(true);
    Client::builder(TokioExecutor::new()).build(connector)
}

/// Serves HTTP/1.1 on a free loopback port, which it prints as the relay does.
async fn serve<B, F>(answer: impl Fn(Request<Incoming>) -> F + Clone + Send + 'static) -> Result<()>
where
    B: Body<Data = Bytes, Error: Into<Box<dyn std::error::Error + Send + Sync>>> + Send + 'static,
    F: Future<Output = Result<Response<B>>> + Send + 'static,
{
    let listener = TcpListener::bind("127.0.0.1:0").await?;
    println!("{}", serde_json::json!({ "listening": format!("http://{}", listener.local_addr()?) }));
    loop {
        let (stream, _) = listener.accept().await?;
        stream.set_nodelay(true)?;
        let service = service_fn(answer.clone());
        tokio::spawn(
            hyper::server::conn::http1::Builder::new().serve_connection(TokioIo::new(stream), service),
        );
    }
}

/// A process of this run, ended with it.
struct Process {
    child: Child,
    url: String,
}

impl Process {
    fn start(program: &Path, args: &[&str]) -> Result<Self> {
        let mut child = Command::new(program)
            .args(args)
            .env("MIMALLOC_PURGE_DELAY", "0") // as data/deploy starts the relay
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .map_err(|error| format!("cannot start {}: {error}", program.display()))?;
        let mut line = String::new();
        BufReader::new(child.stdout.take().ok_or("no stdout")?).read_line(&mut line)?;
        let said: serde_json::Value = serde_json::from_str(&line).map_err(|_| "it did not start")?;
        let url = said["listening"].as_str().ok_or("no address")?.to_owned();
        Ok(Self { child, url })
    }

    fn proc(&self) -> PathBuf {
        Path::new("/proc").join(self.child.id().to_string())
    }

    /// CPU time of the threads that live now.
    fn cpu(&self) -> Result<Duration> {
        let mut ns = 0;
        for task in std::fs::read_dir(self.proc().join("task"))? {
            let spent = std::fs::read_to_string(task?.path().join("schedstat"))?;
            ns += spent.split(' ').next().unwrap_or("").parse::<u64>()?;
        }
        Ok(Duration::from_nanos(ns))
    }

    fn peak_rss_kib(&self) -> Result<u32> {
        let status = std::fs::read_to_string(self.proc().join("status"))?;
        let peak = status.lines().find_map(|line| line.strip_prefix("VmHWM:")).ok_or("no VmHWM")?;
        Ok(peak.trim().trim_end_matches(" kB").parse()?)
    }

    /// Asks it to end and says what CPU time it took in all, and its last words.
    async fn end(mut self) -> Result<(Duration, String)> {
        Command::new("kill").arg(self.child.id().to_string()).status()?;
        for _ in 0..3_000 {
            let stat = std::fs::read_to_string(self.proc().join("stat"))?;
            let fields: Vec<&str> = stat.rsplit(") ").next().unwrap_or("").split(' ').collect();
            if fields[0] == "Z" {
                // Fields 14 and 15 of proc(5), in ticks of 10 ms; ended threads are in it.
                let ticks = fields[11].parse::<u64>()? + fields[12].parse::<u64>()?;
                let mut words = String::new();
                self.child.stderr.take().ok_or("no stderr")?.read_to_string(&mut words)?;
                return Ok((Duration::from_millis(ticks * 10), words));
            }
            sleep(Duration::from_millis(10)).await;
        }
        Err("it did not end in 30 s".into())
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// Between the source and the client.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Way {
    Direct,
    Bare,
    Relay,
}

/// A source with what is in front of it.
struct Stand {
    way: Way,
    folder: tempfile::TempDir,
    source: Process,
    proxy: Option<Process>,
}

impl Stand {
    fn new(way: Way) -> Result<Self> {
        let this = std::env::current_exe()?;
        let folder = tempfile::tempdir()?;
        let source = Process::start(&this, &["source"])?;
        let out = folder.path().to_str().ok_or("the temporary folder is not UTF-8")?;
        let args = ["relay", "--observe", "--to", &source.url, "--listen", "127.0.0.1:0", "-o", out];
        let proxy = match way {
            Way::Direct => None,
            Way::Bare => Some(Process::start(&this, &["bare", &source.url])?),
            Way::Relay => Some(Process::start(&this.with_file_name("../sseismo"), &args)?),
        };
        Ok(Self { way, folder, source, proxy })
    }

    fn url(&self, path: &str) -> String {
        let url = self.proxy.as_ref().map_or(&self.source.url, |proxy| &proxy.url);
        format!("{url}/{path}/v1/chat/completions")
    }

    fn cpu(&self) -> Result<Duration> {
        self.proxy.as_ref().map_or(Ok(Duration::ZERO), Process::cpu)
    }

    /// What was spent since `start` on `n` of something; the relay's last words must tell of so many events.
    async fn end(self, start: Duration, n: u32, events: u32, latency: u64) -> Result<Figures> {
        sleep(Duration::from_millis(1_500)).await;
        let live = self.cpu()?.saturating_sub(start);
        let Self { way, folder, source, proxy } = self;
        let mut figures = Figures { latency, ..Figures::default() };
        if let Some(proxy) = proxy {
            figures.peak_rss_kib = proxy.peak_rss_kib()?;
            let (all, words) = proxy.end().await?;
            let each = |spent: Duration| spent.as_secs_f64() * 1e6 / f64::from(n);
            (figures.live, figures.all) = (each(live), each(all.saturating_sub(start)));
            if way == Way::Relay && !words.contains(&format!("with {events} events recorded")) {
                let said = words.lines().find(|line| line.contains("recorded")).unwrap_or("no word");
                println!("not every one of {events} events was recorded: {said}");
            }
        }
        drop((folder, source));
        Ok(figures)
    }
}

/// What one row shows: CPU µs for each, median latency in µs.
#[derive(Default)]
struct Figures {
    live: f64,
    all: f64,
    peak_rss_kib: u32,
    latency: u64,
}

impl Figures {
    fn rss_mib(&self) -> f64 {
        f64::from(self.peak_rss_kib) / 1024.0
    }
}

async fn compare(loads: &[&str], streams: &[usize]) -> Result<()> {
    println!("load: {}", std::fs::read_to_string("/proc/loadavg")?.trim());
    println!("CPU µs per forwarded event or answer, µs of latency at the median, peak RSS in MiB\n");
    println!(
        "load   streams   bare live   all    relay live   all   ratio live   bare RSS   relay RSS   latency direct   bare   relay"
    );
    for &load in loads {
        if load == "whole" {
            let direct = answers(Way::Direct).await?.latency;
            row("whole", 1, direct, &answers(Way::Bare).await?, &answers(Way::Relay).await?);
        } else {
            of_streams(load, streams).await?;
        }
    }
    println!("load: {}", std::fs::read_to_string("/proc/loadavg")?.trim());
    Ok(())
}

async fn of_streams(load: &str, streams: &[usize]) -> Result<()> {
    let mut peaks = Vec::new();
    for &streams in streams {
        let direct = if load == "paced" { stream(Way::Direct, load, streams).await?.latency } else { 0 };
        let bare = stream(Way::Bare, load, streams).await?;
        let relay = stream(Way::Relay, load, streams).await?;
        row(load, streams, direct, &bare, &relay);
        peaks.push((streams, [bare, relay].map(|way| f64::from(way.peak_rss_kib))));
    }
    if let [(few, small), .., (many, large)] = peaks[..] {
        let more = f64::from(u32::try_from(many - few)?);
        let each = |at: usize| (large[at] - small[at]) / more;
        println!("{load}: KiB per live stream: bare {:.1}, relay {:.1}\n", each(0), each(1));
    }
    Ok(())
}

fn row(load: &str, streams: usize, direct: u64, bare: &Figures, relay: &Figures) {
    println!(
        "{load:<5} {streams:>8} {:>11.2} {:>6.2} {:>12.2} {:>6.2} {:>11.2} {:>10.1} {:>11.1} {direct:>16} {:>6} {:>7}",
        bare.live,
        bare.all,
        relay.live,
        relay.all,
        relay.live / bare.live,
        bare.rss_mib(),
        relay.rss_mib(),
        bare.latency,
        relay.latency,
    );
}

/// Streams side by side.
async fn stream(way: Way, load: &str, streams: usize) -> Result<Figures> {
    let stand = Stand::new(way)?;
    let events = if load == "paced" { PACED_EVENTS } else { FLAT_EVENTS / streams };
    fetch(stand.url("1/flat"), 1).await?;
    sleep(Duration::from_millis(200)).await;

    let start = stand.cpu()?;
    let mut clients = JoinSet::new();
    for _ in 0..streams {
        clients.spawn(fetch(stand.url(&format!("{events}/{load}")), events));
        // Streams tick one after the other, not all at once.
        sleep(GAP / u32::try_from(streams)?).await;
    }
    let mut latencies = Vec::new();
    while let Some(done) = clients.join_next().await {
        latencies.extend(done??);
    }
    let sent = u32::try_from(events * streams)?;
    stand.end(start, sent, sent + 1, median(latencies)).await
}

/// Whole answers one after the other, on one connection.
async fn answers(way: Way) -> Result<Figures> {
    let stand = Stand::new(way)?;
    let (client, url) = (client(), stand.url("whole"));
    let ask = async || -> Result<u64> {
        let began = Instant::now();
        let answer = client.request(asked(url.clone())?).await?.into_body().collect().await?.to_bytes();
        if answer == WHOLE {
            Ok(u64::try_from(began.elapsed().as_micros())?)
        } else {
            Err("another answer came".into())
        }
    };
    for _ in 0..100 {
        ask().await?;
    }
    let start = stand.cpu()?;
    let mut latencies = Vec::new();
    for _ in 0..ANSWERS {
        latencies.push(ask().await?);
    }
    stand.end(start, ANSWERS, 0, median(latencies)).await
}

fn asked(url: String) -> Result<Request<Full<Bytes>>> {
    let asked = r#"{"model":"qwen3","stream":true,"messages":[{"role":"user","content":"why"}]}"#;
    Ok(Request::post(url).header("content-type", "application/json").body(Full::from(asked))?)
}

/// Reads one stream to its end and checks its length; how old its paced events were.
async fn fetch(url: String, events: usize) -> Result<Vec<u64>> {
    let paced = url.contains("/paced/");
    let mut body = client().request(asked(url)?).await?.into_body();
    let mut left: usize = (0..events).map(|i| EVENTS[i % EVENTS.len()].len()).sum();
    let mut latencies = Vec::new();
    while let Some(frame) = body.frame().await {
        let data = frame?.into_data().map_err(|_| "trailers came")?;
        if paced {
            ages(&data, &mut latencies);
        }
        left = left.checked_sub(data.len()).ok_or("more bytes came than were sent")?;
    }
    if left == 0 { Ok(latencies) } else { Err(format!("{left} bytes did not come").into()) }
}
