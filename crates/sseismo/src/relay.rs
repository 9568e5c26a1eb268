//! `sseismo relay`: production traffic through one listening socket, observed.

use std::io::Write as _;
use std::net::SocketAddr;
use std::path::PathBuf;
use std::time::Duration;

use anyhow::{Context as _, bail};
use sseismo_capture::recorder::Status;
use sseismo_capture::tap::Tap;
use sseismo_router::admin;
use sseismo_router::observe::{Observe, Served, Upstream, serve};
use tokio::net::TcpListener;
use tokio::sync::watch;

use crate::exit::End;
use crate::recording::{Recording, parse_time, tell};

mod detection;

use detection::{Detecting, Detection};

const EXAMPLES: &str = "Examples:
  sseismo relay --observe --to https://api.openai.com -o traces/
  OPENAI_BASE_URL=http://127.0.0.1:8899/v1 your-program       in another terminal
  sseismo watch http://127.0.0.1:8898                          what the detector sees
  curl -N http://127.0.0.1:8898/signals                        its signals as server-sent events
  sseismo relay --observe --to https://api.anthropic.com -o traces/ --sample 0.01 --max-age 14d
  sseismo analyze traces/                                      at any time";

/// Passes every request on to one upstream, unchanged, records how the answers stream, and signals when
/// their reasoning begins to cluster.
///
/// Signals go to stdout as JSON Lines; /signals, /metrics and /health are served on an address of their own.
/// No prompt, answer or key is stored, unless --keep-text or --keep-raw asks for answers; identifiers become
/// hashes that only this dataset knows.
#[derive(Debug, clap::Args)]
#[command(after_help = EXAMPLES)]
pub(crate) struct Args {
    /// Change nothing, watch everything.
    #[arg(long, required = true)]
    observe: bool,
    /// The upstream; callers' credentials go there and nowhere else.
    #[arg(long, value_name = "URL")]
    to: String,
    /// Where to listen.
    #[arg(long, value_name = "ADDRESS", default_value = "127.0.0.1:8899")]
    listen: SocketAddr,
    /// Ask callers for the token in this environment variable, in the header `x-sseismo-token` or as
    /// `proxy-authorization: Bearer …`. Needed to listen beyond loopback.
    #[arg(long, value_name = "NAME")]
    auth_token_env: Option<String>,
    /// Keep this share of streams, 0 to 1; streams in which something went wrong are always kept.
    #[arg(long, default_value_t = 1.0, value_parser = parse_share)]
    sample: f64,
    /// How long open streams may go on after Ctrl-C or SIGTERM.
    #[arg(long, value_name = "TIME", default_value = "30s", value_parser = parse_time)]
    drain: Duration,
    /// Folder of the trace dataset; made when it is not there. Without it nothing is kept.
    #[arg(short, long, value_name = "DIR")]
    out: Option<PathBuf>,
    #[command(flatten)]
    recording: Recording,
    #[command(flatten)]
    detection: Detection,
}

/// Runs the verb.
pub(crate) fn run(args: &Args) -> anyhow::Result<End> {
    let upstream = Upstream::parse(&args.to)?;
    let token = args.auth_token_env.as_deref().map(secret).transpose()?;
    if !args.listen.ip().is_loopback() && token.is_none() {
        bail!(
            "{} can be reached by others: name a variable that holds a token with --auth-token-env, or listen on 127.0.0.1",
            args.listen
        );
    }
    if args.out.is_none() && (args.sample < 1.0 || args.recording.needs_folder()) {
        bail!("how to record was said, but not where: name a folder with --out");
    }
    let options = args.recording.tap()?;
    let mut detecting = Detecting::new();
    let health = detecting.health.clone();
    let folder = args.out.as_deref();
    let mut running = args.recording.start(folder, args.sample, drop, move |what| health.trouble(what))?;
    let recorder_lost = folder.map(|_| running.observer.lost());
    if let Some(listened) = running.listen() {
        detecting.start(&args.detection, folder, listened, recorder_lost)?;
    }
    let observer = running.observer.clone();
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .enable_all()
        .build()
        .context("cannot start the runtime")?;
    let admin = detecting.admin();
    let served = runtime.block_on(async {
        let listener = TcpListener::bind(args.listen).await.with_context(|| format!("cannot listen on {}", args.listen))?;
        let operators = args.detection.listen().await?;
        let relay = Observe::new(Tap::new(&options)?, observer, upstream, token);
        announce(args, listener.local_addr()?, operators.local_addr()?);
        let (stop, stopping) = watch::channel(false);
        tokio::spawn(admin::serve(operators, admin, stopping.clone()));
        tokio::select! {
            served = serve(listener, relay, stopping, args.drain) => served.context("the listening socket failed"),
            () = signals(stop, args.drain) => Ok(Served::default()),
        }
    });
    // The runtime must outlive the recording: the last streams are still being analysed on it.
    let status = running.finish()?;
    let told = detecting.finish()?;
    runtime.shutdown_background();
    let Served { requests, cut_off, .. } = served?;
    if cut_off > 0 {
        tell(&format!("{cut_off} connections were cut off after the drain time"));
    }
    tell(&format!("{requests} requests passed on; {} signals raised", told.onsets));
    if told.missed > 0 {
        tell(&format!("warning: the detector fell behind; {} notes did not reach it", told.missed));
    }
    status.map_or(Ok(End::Fine), |status| recorded(&status))
}

/// Says where everything is: a line for programs, and the same for people.
fn announce(args: &Args, address: SocketAddr, operators: SocketAddr) {
    let line =
        serde_json::json!({"listening": format!("http://{address}"), "admin": format!("http://{operators}")});
    // As `sseismo simulate` says it; nobody has to read it.
    let _ = writeln!(anstream::stdout(), "{line}");
    let into = args.out.as_ref().map(|folder| format!(" into {}", folder.display())).unwrap_or_default();
    tell(&format!(
        "observing {}{into}\npoint clients at http://{address}   (OPENAI_BASE_URL=http://{address}/v1, ANTHROPIC_BASE_URL=http://{address}; Ctrl-C ends)\nsignals and metrics at http://{operators}/signals and /metrics",
        args.to,
    ));
}

/// Says what is on disk.
fn recorded(status: &Status) -> anyhow::Result<End> {
    tell(&format!(
        "{} streams with {} events recorded, {} left out by sampling",
        status.flushed.streams, status.flushed.events, status.sampled_out
    ));
    if status.lost.streams + status.lost.events > 0 {
        tell(&format!(
            "{} streams and {} events could not be written",
            status.lost.streams, status.lost.events
        ));
    }
    match &status.trouble {
        None => Ok(End::Fine),
        Some(trouble) => bail!("not everything is on disk: {trouble}"),
    }
}

/// Asks for a graceful end at the first signal, and returns at the second: then the end is at once.
async fn signals(stop: watch::Sender<bool>, drain: Duration) {
    use tokio::signal::unix::{SignalKind, signal};

    let (Ok(mut terminate), Ok(mut interrupt)) =
        (signal(SignalKind::terminate()), signal(SignalKind::interrupt()))
    else {
        tell("warning: signals cannot be caught; the next run recovers what this one leaves");
        return std::future::pending().await;
    };
    tokio::select! {
        _ = terminate.recv() => {}
        _ = interrupt.recv() => {}
    }
    tell(&format!("ending; open streams have {} s to finish", drain.as_secs()));
    let _ = stop.send(true);
    tokio::select! {
        _ = terminate.recv() => {}
        _ = interrupt.recv() => {}
    }
}

/// The value of an environment variable, which must not be empty.
pub(crate) fn secret(name: &str) -> anyhow::Result<String> {
    match std::env::var(name) {
        Ok(value) if !value.trim().is_empty() => Ok(value.trim().to_owned()),
        Ok(_) => bail!("the environment variable {name} is empty"),
        Err(_) => bail!("the environment variable {name} is not set"),
    }
}

fn parse_share(text: &str) -> Result<f64, String> {
    text.parse()
        .ok()
        .filter(|share| (0.0..=1.0).contains(share))
        .ok_or_else(|| "expected a share from 0 to 1".to_owned())
}
