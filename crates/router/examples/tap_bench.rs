//! What `sseismo relay --observe` costs beside a bare hyper proxy: same source, same client, one run.
//!
//! ```text
//! cargo build --release -p sseismo -p sseismo-router --no-default-features \
//!     --features sseismo/relay,sseismo-router/relay --bin sseismo --example tap_bench
//! target/release/examples/tap_bench
//! ```
//!
//! For each row a fresh source and a fresh proxy are started as processes of their own; this process is
//! the client. The source replays the events of a recorded chat stream, each in a write of its own: paced
//! at 50 per second and stream, or as fast as the proxy takes them. CPU is the proxy's alone, from
//! `/proc/PID/task/*/schedstat` (ns), so neighbours on a busy machine hardly move it: `live` until 1.5 s
//! after the last byte, when the recorder has flushed, and `all` until the process has ended, the
//! compaction of the dataset included (in steps of 10 ms). RSS is the process's peak. Linux only.
#![expect(clippy::print_stdout, reason = "the figures are what this program is for")]

use std::convert::Infallible;
use std::io::{BufRead as _, BufReader, Read as _};
use std::path::{Path, PathBuf};
use std::pin::Pin;
use std::process::{Child, Command, Stdio};
use std::sync::LazyLock;
use std::task::{Context, Poll};
use std::time::Duration;

use bytes::Bytes;
use http_body_util::{BodyExt as _, Full};
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
        [] => compare().await,
        _ => Err("usage: tap_bench".into()),
    }
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
        if let Some(ticks) = &mut self.ticks {
            std::task::ready!(ticks.poll_tick(context));
        } else if !std::mem::replace(&mut self.flushed, true) {
            context.waker().wake_by_ref(); // hyper writes when a body has nothing more for now
            return Poll::Pending;
        }
        self.flushed = false;
        let event = EVENTS[self.sent % EVENTS.len()].clone();
        self.sent += 1;
        Poll::Ready(Some(Ok(Frame::data(event))))
    }
}

/// Serves `/EVENTS/paced/v1/chat/completions` and the like with `flat`.
async fn source() -> Result<()> {
    serve(|request: Request<Incoming>| async move {
        let mut path = request.uri().path().trim_start_matches('/').split('/');
        let events = path.next().unwrap_or("").parse()?;
        let ticks = (path.next() == Some("paced")).then(|| interval(GAP));
        request.into_body().collect().await?;
        let body = Replay { sent: 0, events, ticks, flushed: false };
        Ok(Response::builder().header("content-type", "text/event-stream").body(body)?)
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
    B: Body<Data = Bytes, Error: std::error::Error + Send + Sync> + Send + 'static,
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

/// What one row shows.
struct Figures {
    live: f64,
    all: f64,
    peak_rss_kib: u32,
}

async fn compare() -> Result<()> {
    println!("load: {}", std::fs::read_to_string("/proc/loadavg")?.trim());
    println!("CPU µs per forwarded event; peak RSS in MiB\n");
    println!("load   streams   bare live   all    relay live   all   ratio live   bare RSS   relay RSS");
    for load in ["paced", "flat"] {
        let mut peaks = Vec::new();
        for streams in STREAMS {
            let bare = measure(false, load, streams).await?;
            let relay = measure(true, load, streams).await?;
            println!(
                "{load:<5} {streams:>8} {:>11.2} {:>6.2} {:>12.2} {:>6.2} {:>11.2} {:>10.1} {:>11.1}",
                bare.live,
                bare.all,
                relay.live,
                relay.all,
                relay.live / bare.live,
                f64::from(bare.peak_rss_kib) / 1024.0,
                f64::from(relay.peak_rss_kib) / 1024.0,
            );
            peaks.push([bare.peak_rss_kib, relay.peak_rss_kib].map(f64::from));
        }
        let each = |at: usize| (peaks[2][at] - peaks[0][at]) / 99.0;
        println!("{load}: KiB per live stream: bare {:.1}, relay {:.1}\n", each(0), each(1));
    }
    println!("load: {}", std::fs::read_to_string("/proc/loadavg")?.trim());
    Ok(())
}

async fn measure(relay: bool, load: &str, streams: usize) -> Result<Figures> {
    let this = std::env::current_exe()?;
    let folder = tempfile::tempdir()?;
    let source = Process::start(&this, &["source"])?;
    let proxy = if relay {
        let sseismo = this.with_file_name("../sseismo");
        let out = folder.path().to_str().ok_or("the temporary folder is not UTF-8")?;
        let args = ["relay", "--observe", "--to", &source.url, "--listen", "127.0.0.1:0", "-o", out];
        Process::start(&sseismo, &args)?
    } else {
        Process::start(&this, &["bare", &source.url])?
    };
    let events = if load == "paced" { PACED_EVENTS } else { FLAT_EVENTS / streams };
    fetch(format!("{}/1/flat/v1/chat/completions", proxy.url), 1).await?;
    sleep(Duration::from_millis(200)).await;

    let start = proxy.cpu()?;
    let mut clients = JoinSet::new();
    for _ in 0..streams {
        clients.spawn(fetch(format!("{}/{events}/{load}/v1/chat/completions", proxy.url), events));
        // Streams tick one after the other, not all at once.
        sleep(GAP / u32::try_from(streams)?).await;
    }
    while let Some(done) = clients.join_next().await {
        done??;
    }
    sleep(Duration::from_millis(1_500)).await;
    let live = proxy.cpu()?.saturating_sub(start);
    let peak_rss_kib = proxy.peak_rss_kib()?;
    let (all, words) = proxy.end().await?;
    let sent = u32::try_from(events * streams)?;
    let recorded = format!("with {} events recorded", sent + 1);
    if relay && !words.contains(&recorded) {
        let said = words.lines().find(|line| line.contains("recorded")).unwrap_or("no word");
        println!("not every event of {sent} and 1 to warm up was recorded: {said}");
    }
    let each = |spent: Duration| spent.as_secs_f64() * 1e6 / f64::from(sent);
    Ok(Figures { live: each(live), all: each(all.saturating_sub(start)), peak_rss_kib })
}

/// Reads one stream to its end and checks its length.
async fn fetch(url: String, events: usize) -> Result<()> {
    let asked = r#"{"model":"qwen3","stream":true,"messages":[{"role":"user","content":"why"}]}"#;
    let request = Request::post(url).header("content-type", "application/json").body(Full::from(asked))?;
    let mut body = client().request(request).await?.into_body();
    let mut left: usize = (0..events).map(|i| EVENTS[i % EVENTS.len()].len()).sum();
    while let Some(frame) = body.frame().await {
        let data = frame?.into_data().map_err(|_| "trailers came")?;
        left = left.checked_sub(data.len()).ok_or("more bytes came than were sent")?;
    }
    if left == 0 { Ok(()) } else { Err(format!("{left} bytes did not come").into()) }
}
