//! `sseismo capture`: one request, sent again and again, and what its answers look like.

use std::io::Write as _;
use std::path::PathBuf;
use std::sync::mpsc;

use anyhow::{Context as _, bail};
use sseismo_analysis::Analysis;
use sseismo_analysis::report::{Report, SCHEMA};
use sseismo_analysis::signature::Options;
use sseismo_capture::tap::{Probe, Record, Tap};
use sseismo_trace::{Dim, Outcome};

use crate::exit::End;
use crate::recording::{Recording, tell};
use crate::sending::Sending;
use crate::show;

mod row;

const EXAMPLES: &str = "Examples:
  sseismo capture --url https://api.openai.com/v1/responses --key-env OPENAI_API_KEY \\
      --body req.json --repeat 10 -o traces/
  sseismo capture --url http://127.0.0.1:8000/v1/chat/completions --body req.json --repeat 100 \\
      --concurrency 8 --budget 100 -o traces/";

/// Sends a request several times, records how the answers stream, and says what it finds.
///
/// The requests are real and may cost money: more than --budget of them are refused without --yes.
#[derive(Debug, clap::Args)]
#[command(after_help = EXAMPLES)]
pub(crate) struct Args {
    /// The endpoint.
    #[arg(long)]
    url: String,
    /// File with the request's JSON body.
    #[arg(long, value_name = "FILE")]
    body: PathBuf,
    /// How often to send it.
    #[arg(long, default_value_t = 10, value_name = "N")]
    repeat: usize,
    /// How many requests may be open at once.
    #[arg(long, default_value_t = 1, value_name = "K", value_parser = clap::value_parser!(u16).range(1..=1024))]
    concurrency: u16,
    #[command(flatten)]
    sending: Sending,
    /// Print one JSON document (schema `sseismo.report/1`) instead of tables.
    #[arg(long)]
    json: bool,
    /// Folder of the trace dataset; made when it is not there.
    #[arg(short, long, value_name = "DIR")]
    out: PathBuf,
    #[command(flatten)]
    recording: Recording,
}

/// Runs the verb.
pub(crate) fn run(args: &Args) -> anyhow::Result<End> {
    if args.sending.refuses(args.repeat) {
        bail!(
            "{} requests are more than the budget of {}: raise --budget or add --yes",
            args.repeat,
            args.sending.budget
        );
    }
    let body = std::fs::read(&args.body).with_context(|| format!("cannot read {}", args.body.display()))?;
    serde_json::from_slice::<serde::de::IgnoredAny>(&body).map_err(|error| {
        anyhow::anyhow!(
            "{} is not JSON: line {}, column {}",
            args.body.display(),
            error.line(),
            error.column()
        )
    })?;
    let key = args.sending.key()?;
    let probe = Probe::new(&args.url, body, key.as_deref(), &args.sending.headers)?;
    let (records, error) = send(args, probe)?;
    if records.is_empty() {
        bail!("nothing was recorded: the path of {} is none of an API that is known", args.url);
    }
    let answered = records.iter().filter(|record| record.summary.status.is_some()).count();
    if let Some(error) = error {
        tell(&format!(
            "{} of {} requests got no answer; the first: {error}",
            args.repeat - answered,
            args.repeat
        ));
    }
    judge(args, &records)?;
    let failed = records.iter().filter(|record| record.summary.outcome == Outcome::Failed).count();
    Ok(if failed == records.len() { End::BadInput } else { End::Fine })
}

/// Sends everything; the finished streams, and the first error of a request without an answer.
fn send(args: &Args, probe: Probe) -> anyhow::Result<(Vec<Record>, Option<String>)> {
    let options = args.recording.tap()?;
    let (finished, records) = mpsc::channel();
    let mut table = (!args.json).then(row::Table::default);
    let each = move |record: Record| {
        if let Some(table) = &mut table {
            // Nobody is left to read the table when stdout is gone; the recording goes on.
            let _ = table.row(&mut anstream::stdout().lock(), &record);
        }
        let _ = finished.send(record);
    };
    let running = args.recording.start(Some(&args.out), 1.0, each, |_| {})?;
    let observer = running.observer.clone();
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .enable_all()
        .build()
        .context("cannot start the runtime")?;
    let error = runtime.block_on(async {
        let tap = Tap::new(&options)?;
        let work = probe.run(tap, observer, args.repeat, usize::from(args.concurrency));
        tokio::select! {
            error = work => anyhow::Ok(error),
            _ = tokio::signal::ctrl_c() => {
                tell("interrupted; what came so far is kept");
                Ok(None)
            }
        }
    });
    // The runtime must outlive the recording: the last streams are still being analysed on it.
    let status = running.finish()?;
    runtime.shutdown_background();
    if let Some(trouble) = status.and_then(|status| status.trouble) {
        tell(&format!("warning: not everything is on disk: {trouble}"));
    }
    Ok((records.into_iter().collect(), error?))
}

/// What the analysis says of the streams.
fn judge(args: &Args, records: &[Record]) -> anyhow::Result<()> {
    let source = args.out.display().to_string();
    let mut analysis = Analysis::new(vec![Dim::Source, Dim::Model, Dim::Effort], Options::default());
    for record in records {
        analysis.push(&source, &record.stream());
    }
    if analysis.wants_second_pass() {
        analysis.start_second_pass();
        for record in records {
            analysis.push(&source, &record.stream());
        }
    }
    let events = records.iter().map(|record| record.deltas.len() as u64).sum();
    let input = sseismo_analysis::report::Input {
        path: source,
        format: "live".to_owned(),
        streams: records.len() as u64,
        events,
        ..sseismo_analysis::report::Input::default()
    };
    let report = Report {
        schema: SCHEMA.to_owned(),
        version: env!("CARGO_PKG_VERSION").to_owned(),
        interrupted: records.len() < args.repeat,
        inputs: vec![input],
        findings: analysis.finish(),
    };
    let mut out = anstream::stdout().lock();
    if args.json {
        serde_json::to_writer_pretty(&mut out, &report).map_err(std::io::Error::from)?;
        writeln!(out)?;
    } else {
        writeln!(out)?;
        show::report(&mut out, &report)?;
    }
    Ok(())
}
