//! `sseismo vote`: many answers to one prompt in, one answer with its honest confidence out.
//!
//! Offline it reads recorded fan-outs and, where they are labelled, says what each rule is worth. With
//! `--prompt-file` it fans the prompt out itself and stops as soon as more samples would not matter.

mod dataset;
mod http;
mod live;
mod recorded;
mod show;
mod worth;

use std::io::Write as _;
use std::path::PathBuf;

use anyhow::{Context as _, bail};
use serde::Serialize;
use sseismo_analysis::vote::answer::Extract;
use sseismo_analysis::vote::embed::{self, Embed, tail};
use sseismo_analysis::vote::geometry::{Eps, Geometry};
use sseismo_analysis::vote::rule::{RULES, Rule, named};
use sseismo_analysis::vote::{Ballots, Options, Outcome, Sample, decide};

use crate::exit::End;

/// Name and version of the JSON that this verb prints.
const SCHEMA: &str = "sseismo.vote/1";

const EXAMPLES: &str = "Examples:
  sseismo vote data/fanout --labels                 # what is each rule worth? (needs `correct`)
  sseismo vote data/fanout --labels --early-stop    # and what does stopping early cost?
  sseismo vote run.jsonl --json | jq '.decisions[] | [.id, .winner, .share]'
  sseismo vote traces/                              # recorded by `sseismo capture --keep-text`
  sseismo vote --prompt-file question.txt --base-url http://127.0.0.1:8080/v1 --model qwen3 --n 8
  sseismo vote --prompt-file q.txt --base-url https://api.openai.com/v1 --key-env OPENAI_API_KEY \\
      --model gpt-5-mini --effort low,high --price 0.25:2.00 --max-usd 0.05
  sseismo vote run.jsonl --embedder http --embed-model bge-small \\
      --embed-url http://127.0.0.1:8080/v1

A recorded fan-out is one line of JSON (broken here to fit):
  {\"qid\": 1, \"gold\": \"18\", \"samples\": [
    {\"text\": \"…\", \"answer\": \"18\", \"correct\": true, \"tokens\": 210}, …]}
Only `text` is needed. `answer: null` abstains; without `answer` it is extracted from `text`.";

/// Fans out or reads fan-outs, clusters the reasoning traces, and votes on the answers.
///
/// The default rule is plain plurality: on the 420 recorded fan-outs of data/fanout it beats one sample by 16
/// points, and no rule that weighs votes by coherence, clusters or cost beats it. Clusters are shown as a flag.
#[derive(Debug, clap::Args)]
#[command(after_help = EXAMPLES)]
pub(crate) struct Args {
    /// JSON Lines files, or folders of them, with recorded fan-outs; or trace datasets recorded with
    /// --keep-text, in which repetitions of one request are a fan-out.
    #[arg(required_unless_present = "prompt_file", conflicts_with = "prompt_file")]
    paths: Vec<PathBuf>,
    /// How to vote: plurality, largest-cluster, coherence-weighted, cost-weighted, medoid, write-up.
    #[arg(long, default_value = "plurality", value_parser = parse_rule)]
    rule: &'static dyn Rule,
    /// Where the answer stands: auto (last \boxed{}, else an `Answer:` line), boxed, line, whole,
    /// `json:/POINTER`, `regex:PATTERN`. Given, it overrides recorded answers.
    #[arg(long, value_name = "HOW", value_parser = parse_extract)]
    extract: Option<Extract>,
    /// How traces become vectors: hash, minilm (with --model-dir), http (with --embed-url), none.
    #[arg(long, default_value = "hash")]
    embedder: String,
    /// Folder with model.safetensors, vocab.txt and config.json of all-MiniLM-L6-v2.
    #[arg(long, value_name = "DIR")]
    model_dir: Option<PathBuf>,
    #[command(flatten)]
    embeddings: http::Args,
    /// Cosine distance within which DBSCAN takes traces for neighbours, or `auto` (their median, 0.05 to 0.35).
    #[arg(long, value_parser = parse_eps)]
    eps: Option<Eps>,
    /// How traces are clustered: dbscan, or hdbscan for fan-outs of 50 traces and more.
    #[arg(long, value_enum, default_value_t)]
    cluster: Cluster,
    /// Flag "no quorum" below this share of the votes.
    #[arg(long, default_value_t = 0.5, value_parser = parse_share)]
    min_share: f64,
    /// Score every rule. FIELD is a boolean of each sample, or a text of the fan-out that the answer must
    /// equal (for example `gold`).
    #[arg(long, value_name = "FIELD", num_args = 0..=1, require_equals = true, default_missing_value = "correct")]
    labels: Option<String>,
    /// Replay early stopping at Beta 0.8, Beta 0.95 and lock-in (needs --labels).
    #[arg(long, requires = "labels")]
    early_stop: bool,
    /// Seed of the bootstrap and of the replayed orders.
    #[arg(long, default_value_t = 1)]
    seed: u64,
    /// Print one JSON document (schema `sseismo.vote/1`).
    #[arg(long)]
    json: bool,
    #[command(flatten)]
    live: live::Args,
}

/// How traces are clustered.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, clap::ValueEnum)]
enum Cluster {
    #[default]
    Dbscan,
    Hdbscan,
}

/// One decided fan-out.
#[derive(Debug, Serialize)]
struct Decision {
    /// The record's `qid` or `id`, else its line.
    id: String,
    #[serde(flatten)]
    outcome: Outcome,
}

/// Everything that a run says.
#[derive(Debug, Serialize)]
struct Document {
    schema: &'static str,
    version: &'static str,
    embedder: Option<&'static str>,
    inputs: Vec<recorded::Input>,
    /// Accuracy of every rule over all inputs; empty without labels.
    rules: Vec<worth::RuleRow>,
    early_stop: Vec<worth::StopRow>,
    decisions: Vec<Decision>,
    /// What happened on the wire; only of a live fan-out.
    #[serde(skip_serializing_if = "Option::is_none")]
    live: Option<live::Report>,
}

impl Document {
    fn new(embedder: Option<&dyn Embed>) -> Self {
        Self {
            schema: SCHEMA,
            version: env!("CARGO_PKG_VERSION"),
            embedder: embedder.map(Embed::name),
            inputs: Vec::new(),
            rules: Vec::new(),
            early_stop: Vec::new(),
            decisions: Vec::new(),
            live: None,
        }
    }
}

/// The traces of one fan-out as vectors: whole, and their ends.
struct Vectors {
    traces: Option<Geometry>,
    tails: Option<Geometry>,
}

/// Runs the verb.
pub(crate) fn run(args: &Args) -> anyhow::Result<End> {
    let embedder = embedder(args)?;
    let mut document = Document::new(embedder.as_deref());
    let end = match &args.live.prompt_file {
        Some(prompt) => fan_out(args, prompt, embedder.as_deref(), &mut document)?,
        None => read(args, embedder.as_deref(), &mut document)?,
    };
    if args.json {
        let mut out = std::io::stdout().lock();
        serde_json::to_writer_pretty(&mut out, &document).map_err(std::io::Error::from)?;
        writeln!(out)?;
    } else {
        show::document(&mut anstream::stdout().lock(), &document)?;
    }
    Ok(end)
}

fn fan_out(
    args: &Args,
    prompt: &std::path::Path,
    embedder: Option<&dyn Embed>,
    document: &mut Document,
) -> anyhow::Result<End> {
    let prompt = std::fs::read_to_string(prompt)
        .with_context(|| format!("cannot read the prompt from {}", prompt.display()))?;
    let extract = args.extract.clone().unwrap_or_default();
    let (report, samples) = live::run(&args.live, &prompt, &extract)?;
    let quorum = report.quorum;
    let reached = report.quorum_reached;
    document.live = Some(report);
    if samples.is_empty() {
        return Ok(End::BadInput);
    }
    let vectors = vectors(args, embedder, &samples, true)?;
    let options = Options { min_share: args.min_share, min_votes: quorum };
    let outcome = outcome(args.rule, &samples, &vectors, options);
    document.decisions.push(Decision { id: "live".to_owned(), outcome });
    Ok(if reached { End::Fine } else { End::BadInput })
}

fn read(args: &Args, embedder: Option<&dyn Embed>, document: &mut Document) -> anyhow::Result<End> {
    let label = args.labels.as_deref();
    let (inputs, fan_outs) = recorded::read(
        &args.paths,
        recorded::Wanted { extract: args.extract.as_ref(), label, price: args.live.one_price() },
    )?;
    let options = Options { min_share: args.min_share, min_votes: 1 };
    let mut worth = worth::Worth::default();
    for fan_out in &fan_outs {
        let wants_tails = label.is_some() || args.rule.name() == "medoid";
        let vectors = vectors(args, embedder, &fan_out.samples, wants_tails)?;
        let outcome = outcome(args.rule, &fan_out.samples, &vectors, options);
        if let Some(correct) = &fan_out.correct {
            worth.add(
                &Ballots::new(&fan_out.samples, vectors.traces.as_ref(), vectors.tails.as_ref()),
                correct,
            );
        }
        document.decisions.push(Decision { id: fan_out.id.clone(), outcome });
    }
    if label.is_some() {
        document.rules = worth.rules(args.seed);
    }
    if args.early_stop {
        document.early_stop = worth::early_stop(&fan_outs, args.seed);
    }
    let mut end = End::Fine;
    for input in &inputs {
        if let Some(error) = &input.error {
            let _ = writeln!(anstream::stderr(), "error: {}: {error}", input.path);
            end = End::BadInput;
        }
    }
    if label.is_some() && !fan_outs.is_empty() && document.rules.is_empty() {
        bail!("no fan-out has the label `{}`: name the field with --labels=FIELD", label.unwrap_or_default());
    }
    document.inputs = inputs;
    Ok(end)
}

/// The rule's outcome; when nobody gave an answer, the medoid's.
fn outcome(rule: &dyn Rule, samples: &[Sample], vectors: &Vectors, options: Options) -> Outcome {
    let ballots = Ballots::new(samples, vectors.traces.as_ref(), vectors.tails.as_ref());
    let free_text = ballots.cast() == 0 && ballots.tails.is_some();
    decide(if free_text { named("medoid").unwrap_or(rule) } else { rule }, &ballots, options)
}

fn vectors(
    args: &Args,
    embedder: Option<&dyn Embed>,
    samples: &[Sample],
    wants_tails: bool,
) -> anyhow::Result<Vectors> {
    let Some(embedder) = embedder else { return Ok(Vectors { traces: None, tails: None }) };
    let geometry = |texts: &[&str]| -> anyhow::Result<Geometry> {
        let vectors = embedder.embed(texts)?;
        let eps = args.eps.unwrap_or_else(|| embedder.eps());
        let geometry = Geometry::new(&vectors, eps, embedder.is_semantic())?;
        Ok(if args.cluster == Cluster::Hdbscan { geometry.by_hdbscan()? } else { geometry })
    };
    let traces: Vec<&str> = samples.iter().map(|s| s.trace.as_str()).collect();
    let wants_tails = wants_tails || samples.iter().all(|s| s.answer.is_none());
    let tails: Option<Vec<&str>> = wants_tails.then(|| traces.iter().map(|trace| tail(trace)).collect());
    Ok(Vectors { traces: Some(geometry(&traces)?), tails: tails.map(|tails| geometry(&tails)).transpose()? })
}

fn embedder(args: &Args) -> anyhow::Result<Option<Box<dyn Embed>>> {
    match args.embedder.as_str() {
        "none" => Ok(None),
        "http" => Ok(Some(Box::new(http::Http::new(&args.embeddings)?))),
        name => match embed::local(name, args.model_dir.as_deref())? {
            Some(embedder) => Ok(Some(embedder)),
            None => bail!("no embedder is called `{name}`: {}, http, none", embed::NAMES.join(", ")),
        },
    }
}

fn parse_rule(name: &str) -> Result<&'static dyn Rule, String> {
    named(name).ok_or_else(|| {
        let known: Vec<String> =
            RULES.iter().map(|rule| format!("{}: {}", rule.name(), rule.about())).collect();
        format!("one of\n  {}", known.join("\n  "))
    })
}

fn parse_extract(text: &str) -> Result<Extract, String> {
    text.parse().map_err(|error: sseismo_analysis::vote::answer::BadPattern| error.to_string())
}

fn parse_eps(text: &str) -> Result<Eps, String> {
    match text {
        "auto" => Ok(Eps::Median),
        number => match number.parse::<f64>() {
            Ok(eps) if eps > 0.0 && eps <= 2.0 => Ok(Eps::Fixed(eps)),
            _ => Err("a number above 0 and up to 2, or `auto`".to_owned()),
        },
    }
}

fn parse_share(text: &str) -> Result<f64, String> {
    text.parse()
        .ok()
        .filter(|share| (0.0..=1.0).contains(share))
        .ok_or_else(|| "a share from 0 to 1".to_owned())
}
