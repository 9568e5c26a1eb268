//! `sseismo simulate`: an upstream with known truth on loopback.

use std::fs::File;
use std::io::{BufWriter, Write as _};
use std::net::SocketAddr;
use std::path::{Path, PathBuf};

use anyhow::Context as _;
use sseismo_simulator::{Lateness, Scenario, Server, Simulation};
use sseismo_trace::UtcMicros;
use sseismo_trace::parquet::{DatasetWriter, Manifest};

use crate::exit::End;

const EXAMPLES: &str = "Examples:
  sseismo simulate data/scenarios/write-up-burst.toml
  sseismo simulate data/scenarios/shard-pinning.toml --dataset traces --streams 5000
  sseismo simulate data/scenarios/concurrency-cooldown.toml --listen 127.0.0.1:8800 \\
      --truth truth.jsonl

In another terminal, while the last one runs:
  curl -N http://127.0.0.1:8800/v1/responses -d '{\"model\":\"m\",\"input\":\"hi\",\"stream\":true}'";

/// Answers requests on loopback as a scenario says, and writes down what was really done.
///
/// Speaks OpenAI Responses, Chat Completions and Anthropic Messages, streamed or not, over HTTP/1.1 and
/// HTTP/2 with prior knowledge. Prints its address as one JSON line on stdout; Ctrl-C ends it, and then
/// says how late its writes were. With `--dataset` nothing listens: the scenario's own load is run in
/// virtual time and written as a trace dataset.
#[derive(Debug, clap::Args)]
#[command(after_help = EXAMPLES)]
pub(crate) struct Args {
    /// The scenario, a TOML file; data/scenarios holds one for every behaviour.
    scenario: PathBuf,
    /// A loopback address; port 0 takes a free one.
    #[arg(long, default_value = "127.0.0.1:0")]
    listen: SocketAddr,
    /// Write what was done to each request to this file, JSON Lines.
    #[arg(long, value_name = "FILE")]
    truth: Option<PathBuf>,
    /// Write a trace dataset to this folder instead of listening.
    #[arg(long, value_name = "DIR", conflicts_with = "listen")]
    dataset: Option<PathBuf>,
    /// Streams of the dataset.
    #[arg(long, default_value_t = 1_000, requires = "dataset")]
    streams: usize,
    /// Use this seed instead of the scenario's.
    #[arg(long)]
    seed: Option<u64>,
}

/// Runs the verb.
pub(crate) fn run(args: &Args) -> anyhow::Result<End> {
    let name = args.scenario.display();
    let meta = std::fs::metadata(&args.scenario).with_context(|| format!("{name} cannot be read"))?;
    anyhow::ensure!(meta.is_file(), "{name} is no file: name a scenario, for example one of data/scenarios");
    let mut scenario = Scenario::load(&args.scenario).with_context(|| format!("{name} cannot be run"))?;
    scenario.seed = args.seed.unwrap_or(scenario.seed);
    let truth = args.truth.as_deref().map(create).transpose()?;
    if let Some(folder) = &args.dataset {
        return write(&scenario, folder, args.streams, truth);
    }
    let lateness = tokio::runtime::Builder::new_multi_thread()
        .enable_all()
        .build()
        .context("the runtime does not start")?
        .block_on(serve(&scenario, args.listen, truth))?;
    report(&lateness)?;
    Ok(End::Fine)
}

fn create(path: &Path) -> anyhow::Result<BufWriter<File>> {
    Ok(BufWriter::new(File::create(path).with_context(|| format!("cannot write {}", path.display()))?))
}

/// The scenario in virtual time, as a dataset; lines of truth carry the streams' ids.
fn write(
    scenario: &Scenario,
    folder: &Path,
    streams: usize,
    mut truth: Option<BufWriter<File>>,
) -> anyhow::Result<End> {
    let problem = || format!("cannot write the dataset {}", folder.display());
    let now = UtcMicros(epoch_s() * 1_000_000);
    let mut writer = DatasetWriter::create(folder, Manifest::default(), now).with_context(problem)?;
    let mut events = 0;
    for one in Simulation::new(scenario).take(streams) {
        events += one.deltas.len();
        writer.stream(one.stream()).with_context(problem)?;
        if let Some(file) = &mut truth {
            let line = serde_json::json!({ "stream_id": one.summary.stream_id, "truth": one.truth });
            writeln!(file, "{line}").context("cannot write the truth")?;
        }
    }
    writer.finish().with_context(problem)?;
    if let Some(mut file) = truth {
        file.flush().context("cannot write the truth")?;
    }
    writeln!(anstream::stderr(), "{streams} streams, {events} events in {}", folder.display())?;
    Ok(End::Fine)
}

async fn serve(
    scenario: &Scenario,
    listen: SocketAddr,
    truth: Option<BufWriter<File>>,
) -> anyhow::Result<Lateness> {
    let truth = truth.map(|file| Box::new(file) as Box<dyn std::io::Write + Send>);
    let server = Server::bind(scenario, listen, epoch_s(), truth)
        .await
        .with_context(|| format!("cannot listen on {listen}"))?;
    let line = serde_json::json!({ "listening": format!("http://{}", server.address()?) });
    writeln!(anstream::stdout(), "{line}")?;
    Ok(server.run(stopped()).await)
}

#[expect(clippy::disallowed_methods, reason = "the provider's clock of `created` fields starts here")]
fn epoch_s() -> i64 {
    let now = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH);
    now.ok().and_then(|since| i64::try_from(since.as_secs()).ok()).unwrap_or(0)
}

/// Ready when the user or the system asks to stop; never where neither can be heard.
async fn stopped() {
    let terminate = async {
        match tokio::signal::unix::signal(tokio::signal::unix::SignalKind::terminate()) {
            Ok(mut signal) => drop(signal.recv().await),
            Err(_) => std::future::pending().await,
        }
    };
    tokio::select! {
        Ok(()) = tokio::signal::ctrl_c() => {}
        () = terminate => {}
    }
}

fn report(lateness: &Lateness) -> std::io::Result<()> {
    let ms = |us: u64| format!("{}.{:02} ms", us / 1_000, us % 1_000 / 10);
    writeln!(
        anstream::stderr(),
        "{} writes; late by p50 {}, p99 {}, max {}",
        lateness.writes(),
        ms(lateness.quantile(0.5)),
        ms(lateness.quantile(0.99)),
        ms(lateness.max_us())
    )
}
