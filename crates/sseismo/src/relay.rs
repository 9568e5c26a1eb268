//! `sseismo relay`: production traffic through one listening socket, observed.

use std::io::Write as _;
use std::net::SocketAddr;
use std::time::Duration;

use anyhow::{Context as _, bail};
use sseismo_capture::tap::Tap;
use sseismo_router::observe::{Observe, Served, Upstream, serve};
use tokio::net::TcpListener;
use tokio::sync::watch;

use crate::exit::End;
use crate::recording::{Recording, parse_time, tell};

const EXAMPLES: &str = "Examples:
  sseismo relay --observe --to https://api.openai.com -o traces/
  OPENAI_BASE_URL=http://127.0.0.1:8899/v1 your-program       in another terminal
  sseismo relay --observe --to https://api.anthropic.com -o traces/ --sample 0.01 --max-age 14d
  sseismo analyze traces/                                      at any time";

/// Passes every request on to one upstream, unchanged, and records how the answers stream.
///
/// No prompt, answer or key is stored, unless --keep-text or --keep-raw asks for answers; identifiers become
/// hashes that only this dataset knows.
#[derive(Debug, clap::Args)]
#[command(after_help = EXAMPLES)]
pub(crate) struct Args {
    /// Change nothing, record everything.
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
    #[command(flatten)]
    recording: Recording,
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
    let options = args.recording.tap()?;
    let running = args.recording.start(args.sample, drop)?;
    let observer = running.observer.clone();
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .enable_all()
        .build()
        .context("cannot start the runtime")?;
    let served = runtime.block_on(async {
        let listener = TcpListener::bind(args.listen).await.with_context(|| format!("cannot listen on {}", args.listen))?;
        let address = listener.local_addr()?;
        let relay = Observe::new(Tap::new(&options)?, observer, upstream, token);
        // For programs, as `sseismo simulate` says it; nobody has to read it.
        let line = serde_json::json!({ "listening": format!("http://{address}") });
        let _ = writeln!(anstream::stdout(), "{line}");
        tell(&format!(
            "observing {} into {}\npoint clients at http://{address}   (OPENAI_BASE_URL=http://{address}/v1, ANTHROPIC_BASE_URL=http://{address}; Ctrl-C ends)",
            args.to,
            args.recording.folder().display()
        ));
        let (stop, stopping) = watch::channel(false);
        tokio::select! {
            served = serve(listener, relay, stopping, args.drain) => served.context("the listening socket failed"),
            () = signals(stop, args.drain) => Ok(Served::default()),
        }
    });
    // The runtime must outlive the recording: the last streams are still being analysed on it.
    let status = running.finish()?;
    runtime.shutdown_background();
    let Served { requests, cut_off, .. } = served?;
    if cut_off > 0 {
        tell(&format!("{cut_off} connections were cut off after the drain time"));
    }
    tell(&format!(
        "{requests} requests passed on; {} streams with {} events recorded, {} left out by sampling",
        status.flushed.streams, status.flushed.events, status.sampled_out
    ));
    if status.lost.streams + status.lost.events > 0 {
        tell(&format!(
            "{} streams and {} events could not be written",
            status.lost.streams, status.lost.events
        ));
    }
    match status.trouble {
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
