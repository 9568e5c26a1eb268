//! `sseismo relay`: production traffic through one listening socket, observed or routed.
//!
//! Both ways share what runs beside the traffic: the recorder, the detector, and the operators' address.

use std::io::Write as _;
use std::net::SocketAddr;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::AtomicU64;
use std::time::Duration;

use anyhow::{Context as _, bail};
use sseismo_capture::recorder::Status;
use sseismo_router::serve::Served;
use tokio::runtime::Runtime;
use tokio::signal::unix::{Signal, SignalKind, signal};
use tokio::sync::watch;

use crate::exit::End;
use crate::recording::{Recording, Running, parse_time, tell};

mod detection;
mod lines;
mod log_file;
mod observe;
mod route;

use detection::{Detecting, Detection, Steer};

const EXAMPLES: &str = "Examples:
  sseismo relay --observe --to https://api.openai.com -o traces/
  OPENAI_BASE_URL=http://127.0.0.1:8899/v1 your-program  # in another terminal
  sseismo watch http://127.0.0.1:8898                     # what the detector sees
  curl -N http://127.0.0.1:8898/signals                   # its signals as server-sent events
  sseismo relay --observe --to https://api.anthropic.com -o traces/ --sample 0.01 --max-age 14d
  sseismo relay --config relay.toml --check --probe       # is it right, and are they there?
  sseismo relay --config relay.toml -o traces/            # routes, and falls over unseen
  sseismo analyze traces/                                 # at any time";

/// Passes requests on, to one upstream unchanged or to the upstreams of a configuration, records how the
/// answers stream, and signals when their reasoning begins to cluster.
///
/// Signals, and with --config one line per request, go to stdout as JSON Lines; /signals, /metrics and /health
/// are served on an address of their own. No prompt, answer or key is stored, unless --keep-text or --keep-raw
/// asks for answers; identifiers become hashes that only this dataset knows.
#[derive(Debug, clap::Args)]
#[command(after_help = EXAMPLES)]
pub(crate) struct Args {
    /// Change nothing, watch everything.
    #[arg(long, requires = "to")]
    observe: bool,
    /// The upstream; callers' credentials go there and nowhere else.
    #[arg(long, value_name = "URL", requires = "observe")]
    to: Option<String>,
    /// Route by this file; see data/relay/relay.toml. It is read again when it changes and on SIGHUP.
    #[arg(long, value_name = "FILE", conflicts_with = "observe")]
    config: Option<PathBuf>,
    /// Only say what is wrong with the configuration, each fault with its line.
    #[arg(long, requires = "config")]
    check: bool,
    /// With --check: also ask each upstream for its list of models, which costs no tokens.
    #[arg(long, requires = "check")]
    probe: bool,
    /// Append a line of JSON per request to this file, instead of writing it to stdout; a file that was moved or
    /// deleted (logrotate) is begun anew.
    #[arg(long, value_name = "FILE", requires = "config")]
    access_log: Option<PathBuf>,
    /// Where to listen. [default: 127.0.0.1:8899, or what the configuration says]
    #[arg(long, value_name = "ADDRESS", conflicts_with = "config")]
    listen: Option<SocketAddr>,
    /// Ask callers for the token in this environment variable, in the header `x-sseismo-token` or as
    /// `proxy-authorization: Bearer …`. Needed to listen beyond loopback.
    #[arg(long, value_name = "NAME", conflicts_with = "config")]
    auth_token_env: Option<String>,
    /// Keep this share of streams, 0 to 1; streams in which something went wrong are always kept.
    #[arg(long, default_value_t = 1.0, value_parser = parse_share)]
    sample: f64,
    /// How long open streams may go on after Ctrl-C or SIGTERM. [default: 30s, or what the configuration says]
    #[arg(long, value_name = "TIME", value_parser = parse_time, conflicts_with = "config")]
    drain: Option<Duration>,
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
    if args.out.is_none() && (args.sample < 1.0 || args.recording.needs_folder()) {
        bail!("how to record was said, but not where: name a folder with --out");
    }
    log_to_stderr();
    match (&args.config, &args.to) {
        (Some(path), _) if args.check => route::check(path, args.probe, &args.recording.tap()?),
        (Some(path), _) => route::run(args, path),
        (None, Some(to)) => observe::run(args, to),
        (None, None) => bail!("name an upstream with --observe --to URL, or a file with --config FILE"),
    }
}

/// What goes wrong in the traffic is told, `RUST_LOG` says how much.
pub(crate) fn log_to_stderr() {
    let level = tracing_subscriber::EnvFilter::try_from_default_env()
        .unwrap_or_else(|_| tracing_subscriber::EnvFilter::new("warn,sseismo_router=info"));
    // Another subscriber may be there in tests; that one is as good.
    let _ = tracing_subscriber::fmt().with_env_filter(level).with_writer(anstream::stderr).try_init();
}

/// What runs beside the traffic.
struct Beside {
    running: Running,
    detecting: Detecting,
}

impl Beside {
    /// Starts it; `steer` acts on the detector's signals.
    fn start(args: &Args, steer: Option<Steer>) -> anyhow::Result<Self> {
        let mut detecting = Detecting::new();
        let health = detecting.health.clone();
        let folder = args.out.as_deref();
        let warn = move |what: Option<&str>| health.trouble(what);
        let mut running = args.recording.start_notes(folder, args.sample, warn)?;
        let recorder_lost: Option<Arc<AtomicU64>> = folder.map(|_| running.observer.lost());
        if let Some(listened) = running.listen() {
            detecting.start(&args.detection, folder, listened, recorder_lost, steer)?;
        }
        Ok(Self { running, detecting })
    }

    /// Says how it went. The runtime must outlive the recording: the last streams are still being analysed
    /// on it. Every holder of the observer but this one must be gone.
    /// Without `served` the end came before connections could be counted.
    fn finish(self, runtime: Runtime, served: Option<Served>) -> anyhow::Result<End> {
        let status = self.running.finish()?;
        let told = self.detecting.finish()?;
        runtime.shutdown_background();
        if let Some(Served { requests, cut_off, turned_away }) = served {
            if cut_off > 0 {
                tell(&format!("{cut_off} connections were cut off after the drain time"));
            }
            if turned_away > 0 {
                tell(&format!("{turned_away} connections were turned away: too many at once"));
            }
            tell(&format!("{requests} requests passed on; {} signals raised", told.onsets));
        } else {
            tell(&format!("ended at once, whatever was open; {} signals raised", told.onsets));
        }
        if told.missed > 0 {
            tell(&format!("warning: the detector fell behind; {} notes did not reach it", told.missed));
        }
        status.map_or(Ok(End::Fine), |status| recorded(&status))
    }
}

fn runtime() -> anyhow::Result<Runtime> {
    let mut builder = tokio::runtime::Builder::new_multi_thread();
    builder.enable_all().build().context("cannot start the runtime")
}

/// Says where everything is: a line for programs, and the same for people.
fn announce(doing: &str, args: &Args, address: SocketAddr, operators: SocketAddr) {
    let line =
        serde_json::json!({"listening": format!("http://{address}"), "admin": format!("http://{operators}")});
    // As `sseismo simulate` says it; nobody has to read it.
    let _ = writeln!(anstream::stdout(), "{line}");
    let into = args.out.as_ref().map(|folder| format!(" into {}", folder.display())).unwrap_or_default();
    tell(&format!(
        "{doing}{into}\npoint clients at http://{address}   (OPENAI_BASE_URL=http://{address}/v1, ANTHROPIC_BASE_URL=http://{address}; Ctrl-C ends)\nsignals and metrics at http://{operators}/signals and /metrics",
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

/// Ctrl-C and SIGTERM, caught from when this is made: before anybody is told an address, or whoever ends the
/// process as soon as it listens kills it without a clean end.
struct Ending(Option<[Signal; 2]>);

impl Ending {
    /// Must be called inside the runtime.
    fn catch() -> Self {
        let caught = signal(SignalKind::terminate()).and_then(|terminate| {
            let interrupt = signal(SignalKind::interrupt())?;
            Ok([terminate, interrupt])
        });
        if let Err(error) = &caught {
            tell(&format!(
                "warning: signals cannot be caught ({error}); the next run recovers what this one leaves"
            ));
        }
        Self(caught.ok())
    }

    /// Waits for either.
    async fn signalled(&mut self) {
        let Some([terminate, interrupt]) = &mut self.0 else { return std::future::pending().await };
        tokio::select! {
            _ = terminate.recv() => {}
            _ = interrupt.recv() => {}
        }
    }

    /// Asks for a graceful end at the first signal, and returns at the second: then the end is at once.
    async fn watch(mut self, stop: watch::Sender<bool>, drain: Duration) {
        self.signalled().await;
        tell(&format!("ending; open streams have {} s to finish", drain.as_secs()));
        let _ = stop.send(true);
        self.signalled().await;
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
