//! `sseismo replay`: recorded requests, sent again at their recorded times.

use std::io::IsTerminal as _;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::mpsc::{self, Receiver};
use std::time::Duration;

use anyhow::{Context as _, bail};
use indicatif::{ProgressBar, ProgressStyle};
use sseismo_analysis::report::Input;
use sseismo_capture::dialect;
use sseismo_capture::import;
use sseismo_capture::shape::{Given, Shape};
use sseismo_capture::tap::{Note, OpenLoop, Pace, Record, Tally, Tap};
use sseismo_trace::{Api, Outcome};

use crate::analyze::print_json;
use crate::exit::End;
use crate::reading::Reading;
use crate::recording::{Recording, Running, parse_time, tell};
use crate::sending::Sending;

mod report;

use report::{LeftOut, Report};

const EXAMPLES: &str = "Examples:
  sseismo replay traces/ --to http://127.0.0.1:8899 --yes -o replayed/
  sseismo compare traces/ replayed/
  sseismo replay traces/ --to https://api.openai.com --key-env OPENAI_API_KEY --limit 20 \\
      -o replayed/

The same load at two upstreams, one after the other:
  sseismo simulate data/scenarios/shard-pinning.toml --dataset load --streams 1000
  sseismo simulate data/scenarios/steady.toml --listen 127.0.0.1:8800   # in another terminal
  sseismo replay load --to http://127.0.0.1:8800 --speed 2 --yes -o replayed/";

/// Sends recorded requests again, each at its recorded time whatever became of the others, and records the answers.
///
/// What is sent again is the shape: time, API, model, effort, streamed or not, session, turn and fan-out, size and
/// numeric share. No prompt was ever stored, so the text is made up. Any file that holds times and sizes of requests
/// will do, not only our own traces. The loop is open: a slow answer delays no other request, and latency counts
/// from the moment at which a request was due. What was sent late or not at all is told. Attempts after the first
/// answered failures that may not come again: they are left out, and made anew with --retries.
///
/// The requests are real and may cost money: more than --budget of them are refused without --yes.
#[derive(Debug, clap::Args)]
#[command(after_help = EXAMPLES)]
pub(crate) struct Args {
    /// A trace dataset, or any file that `sseismo analyze` reads.
    #[arg(required = true, value_name = "DIR")]
    paths: Vec<PathBuf>,
    /// The API's root, with or without the version: `https://api.example/v1`.
    #[arg(long, value_name = "URL")]
    to: String,
    /// How many times as fast as recorded.
    #[arg(long, default_value_t = 1.0, value_name = "X", value_parser = parse_speed)]
    speed: f64,
    /// Send only the first so many requests.
    #[arg(long, value_name = "N")]
    limit: Option<usize>,
    /// Ask for this model instead of the recorded ones.
    #[arg(long, value_name = "NAME")]
    model: Option<String>,
    /// The API of requests whose record does not say one.
    #[arg(long, value_name = "NAME", value_parser = parse_api)]
    api: Option<Api>,
    /// The most tokens that an answer may have, reasoning included.
    #[arg(long, value_name = "N")]
    max_tokens: Option<u64>,
    /// Send a request again, so often, after 408, 409, 429, 5xx or no answer: 2 in OpenAI's and Anthropic's SDKs.
    #[arg(long, default_value_t = 0, value_name = "N", value_parser = clap::value_parser!(u32).range(0..=20))]
    retries: u32,
    /// Give a request up so long after it was due, for example 30s or 10m.
    #[arg(long, default_value = "10m", value_name = "TIME", value_parser = parse_time)]
    deadline: Duration,
    /// How many requests may be open at once. Those above it are not sent, and counted.
    #[arg(long, default_value_t = 1_000, value_name = "N", value_parser = clap::value_parser!(u64).range(1..=20_000))]
    max_in_flight: u64,
    /// What the texts are drawn from.
    #[arg(long, default_value_t = 1, value_name = "N")]
    seed: u64,
    #[command(flatten)]
    sending: Sending,
    /// Print one JSON document (schema `sseismo.replay/1`) instead of a table.
    #[arg(long)]
    json: bool,
    /// Folder of the trace dataset; made when it is not there. Without it nothing is kept.
    #[arg(short, long, value_name = "DIR")]
    out: Option<PathBuf>,
    #[command(flatten)]
    recording: Recording,
}

/// Runs the verb.
pub(crate) fn run(args: &Args) -> anyhow::Result<End> {
    if args.out.is_none() && args.recording.needs_folder() {
        bail!("how to record was said, but not where: name a folder with --out");
    }
    let key = args.sending.key()?;
    let mut reading = Reading::new(&args.paths, import::Options::default())?;
    let mut left_out = LeftOut::default();
    let mut shapes = Vec::new();
    let given = Given { api: args.api, model: args.model.clone() };
    let inputs = reading.read(&mut |_, stream| match Shape::of(stream.summary, &given) {
        Ok(shape) => shapes.push(shape),
        Err(why) => left_out.count(why),
    });
    if reading.tell_errors(&inputs) {
        return Ok(End::BadInput);
    }
    if reading.interrupted() {
        bail!("interrupted before anything was sent");
    }
    if reading.tell_nothing(&inputs) {
        return Ok(End::BadInput);
    }
    if shapes.is_empty() {
        bail!("nothing can be sent again: {}", left_out.told());
    }
    shapes.sort_by_key(|shape| shape.at);
    shapes.truncate(args.limit.unwrap_or(usize::MAX));
    if shapes.is_empty() {
        bail!("--limit 0 leaves nothing to send");
    }
    within_budget(args, shapes.len())?;
    let pace = Pace {
        speed: args.speed,
        deadline: args.deadline,
        in_flight: args.max_in_flight,
        retries: args.retries,
        seed: args.seed,
        most_tokens: args.max_tokens,
    };
    let planned = shapes.len();
    let open_loop = OpenLoop::new(&args.to, shapes, key.as_deref(), &args.sending.headers, pace)?;
    let lasts = open_loop.lasts();
    if !left_out.is_empty() {
        tell(&format!("left out: {}", left_out.told()));
    }
    let sent = send(args, open_loop, planned)?;
    conclude(args, inputs, left_out, planned, lasts, &sent)
}

fn within_budget(args: &Args, requests: usize) -> anyhow::Result<()> {
    let most = requests.saturating_mul(args.retries as usize + 1);
    if args.sending.refuses(most) {
        bail!(
            "up to {most} requests are more than the budget of {}: raise --budget, add --yes, or send fewer with --limit",
            args.sending.budget
        );
    }
    Ok(())
}

/// What came of sending.
struct Sent {
    tally: Arc<Tally>,
    records: Vec<Record>,
    interrupted: bool,
    trouble: Option<String>,
}

/// Sends everything; Ctrl-C ends it, and what came so far is kept.
fn send(args: &Args, open_loop: OpenLoop, planned: usize) -> anyhow::Result<Sent> {
    let options = args.recording.tap()?;
    let (finished, records) = mpsc::channel();
    let each = move |record: Record| {
        // Events are on disk by now, and only sums are told.
        let _ = finished.send(Record { reads: Vec::new(), ..record });
    };
    let (running, drain) = start(args, each)?;
    let observer = running.observer.clone();
    let tally: Arc<Tally> = Arc::default();
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .enable_all()
        .build()
        .context("cannot start the runtime")?;
    let interrupted = runtime.block_on(async {
        let tap = Tap::new(&options)?;
        let work = open_loop.run(tap, observer, Arc::clone(&tally));
        let bar = progress_bar(planned);
        anyhow::Ok(tokio::select! {
            () = work => false,
            () = show(&bar, &tally) => false,
            _ = tokio::signal::ctrl_c() => {
                bar.finish_and_clear();
                tell("interrupted; what came so far is kept");
                true
            }
        })
    });
    // The runtime must outlive the recording: the last streams are still being analysed on it.
    let status = running.finish()?;
    if let Some(drain) = drain {
        let _ = drain.join();
    }
    runtime.shutdown_background();
    let trouble = status.and_then(|status| status.trouble);
    Ok(Sent { tally, records: records.into_iter().collect(), interrupted: interrupted?, trouble })
}

/// Recording to the folder; without one, a thread that takes the finished streams off the observer's hands.
fn start(
    args: &Args,
    mut each: impl FnMut(Record) + Send + 'static,
) -> anyhow::Result<(Running, Option<std::thread::JoinHandle<()>>)> {
    if let Some(folder) = &args.out {
        return Ok((args.recording.start(Some(folder), 1.0, each, |_| {})?, None));
    }
    let mut running = args.recording.start(None, 1.0, |_| {}, |_| {})?;
    let notes: Option<Receiver<Note>> = running.listen().map(|listened| listened.notes);
    let drain = move || {
        for note in notes.into_iter().flatten() {
            if let Note::End(record) = note {
                each(*record);
            }
        }
    };
    let thread = std::thread::Builder::new().name("records".to_owned()).spawn(drain);
    Ok((running, Some(thread.context("cannot start a thread")?)))
}

/// Requests sent and open, drawn on stderr and only when that is a terminal.
fn progress_bar(planned: usize) -> ProgressBar {
    if !std::io::stderr().is_terminal() {
        return ProgressBar::hidden();
    }
    let style = ProgressStyle::with_template("{bar:24} {pos} of {len} sent, {msg}, {elapsed}");
    ProgressBar::new(planned as u64).with_style(style.unwrap_or_else(|_| ProgressStyle::default_bar()))
}

/// Draws how far it is, for ever.
async fn show(bar: &ProgressBar, tally: &Tally) {
    let mut tick = tokio::time::interval(Duration::from_millis(200));
    loop {
        tick.tick().await;
        bar.set_position(tally.sent() + tally.shed());
        bar.set_message(format!("{} open, {} not sent, {} again", tally.open(), tally.shed(), tally.again()));
    }
}

/// Says how it went.
fn conclude(
    args: &Args,
    inputs: Vec<Input>,
    left_out: LeftOut,
    planned: usize,
    lasts: Duration,
    sent: &Sent,
) -> anyhow::Result<End> {
    let mut report = Report::new(&sent.tally, &sent.records);
    report.inputs = inputs;
    report.left_out = left_out;
    (report.planned, report.speed, report.lasts_s) = (planned, args.speed, lasts.as_secs_f64());
    report.interrupted = sent.interrupted;
    report.dataset = args.out.as_ref().map(|folder| folder.display().to_string());
    if let Some(error) = &report.first_error {
        tell(&format!("{} attempts got no answer; the first: {error}", report.unanswered));
    }
    if report.shed > 0 {
        tell(&format!(
            "warning: {} of {planned} requests were not sent, because {} were open: raise --max-in-flight, or what \
             is measured is a lighter load than the recorded one",
            report.shed, args.max_in_flight
        ));
    }
    if let Some(trouble) = &sent.trouble {
        tell(&format!("warning: not everything is on disk: {trouble}"));
    }
    if args.json {
        print_json(&report)?;
    } else {
        report.show(&mut anstream::stdout().lock())?;
    }
    let failed = |record: &Record| matches!(record.summary.outcome, Outcome::Failed | Outcome::Timeout);
    let all_failed = sent.records.iter().all(failed) && !sent.interrupted;
    Ok(if all_failed || sent.trouble.is_some() { End::BadInput } else { End::Fine })
}

fn parse_speed(text: &str) -> Result<f64, String> {
    let speed = text.parse().ok().filter(|speed: &f64| speed.is_finite() && *speed > 0.0);
    speed.ok_or_else(|| "expected a number above 0, for example 1 or 0.5".to_owned())
}

fn parse_api(text: &str) -> Result<Api, String> {
    let all = dialect::DIALECTS.into_iter().map(dialect::Dialect::api);
    let names: Vec<&str> = all.clone().map(Api::name).collect();
    all.into_iter()
        .find(|api| api.name() == text)
        .ok_or_else(|| format!("expected one of {}", names.join(", ")))
}
