//! One prompt fanned out over live upstreams: started together, counted as they come in, and stopped as soon
//! as more would not matter.
//!
//! Each branch is one task that sends what it reads as [`Event`]s; all decisions are taken here, in one place,
//! from those events. Stopping drops the tasks, and with them the connections, so that an upstream stops
//! generating (and billing).

mod branch;
mod budget;
mod plan;

use std::io::Write as _;
use std::path::PathBuf;
use std::time::Duration;

use anyhow::{Context as _, bail};
use serde::Serialize;
use sseismo_analysis::vote::Sample;
use sseismo_analysis::vote::answer::{self, Extract};
use sseismo_analysis::vote::stop::{Reason, Stop};
use tokio::sync::mpsc;
use tokio::task::JoinSet;

pub(super) use branch::plain;
use branch::{Event, Usage};
pub(super) use budget::Price;
use plan::Plan;

/// Where and how to fan out.
#[derive(Clone, Debug, clap::Args)]
#[command(next_help_heading = "Live fan-out")]
#[group(id = "live")]
pub(super) struct Args {
    /// Fan this file's text out as one user message.
    #[arg(long, value_name = "FILE", requires_all = ["model", "base_url"])]
    pub(super) prompt_file: Option<PathBuf>,
    /// Model; several are taken in turn.
    #[arg(long, value_delimiter = ',')]
    model: Vec<String>,
    /// Base URL of a chat-completions API, as far as `/v1`; one for all models or one each.
    #[arg(long, value_name = "URL", value_delimiter = ',')]
    base_url: Vec<String>,
    /// Environment variable with the key; one for all models or one each. Without it no key is sent.
    #[arg(long, value_name = "VAR", value_delimiter = ',')]
    key_env: Vec<String>,
    /// Branches.
    #[arg(long, default_value_t = 8, value_parser = clap::value_parser!(u16).range(1..=256))]
    n: u16,
    /// Temperatures, taken in turn; not sent when not given.
    #[arg(long, value_delimiter = ',')]
    temperature: Vec<f64>,
    /// Reasoning efforts, taken in turn; not sent when not given.
    #[arg(long, value_delimiter = ',')]
    effort: Vec<String>,
    /// When to stop early: beta:P, lock-in, or never. beta includes lock-in.
    #[arg(long, default_value = "beta:0.95", value_parser = parse_stop)]
    stop: Halt,
    /// Answers needed before an early stop, and for a result at all; half of n when not given.
    #[arg(long)]
    quorum: Option<usize>,
    /// Seconds for the whole fan-out.
    #[arg(long, default_value_t = 600)]
    timeout: u64,
    /// USD per million tokens as INPUT:OUTPUT or INPUT:OUTPUT:CACHED; one for all models or one each. One also
    /// prices the tokens of a trace dataset.
    #[arg(long, value_name = "PRICE", value_delimiter = ',', value_parser = budget::parse_price)]
    price: Vec<Price>,
    /// Hard limit for all branches together, prompt and output tokens.
    #[arg(long, value_name = "TOKENS")]
    max_tokens: Option<u64>,
    /// Hard limit for all branches together, US dollars; needs --price.
    #[arg(long, value_name = "USD", requires = "price")]
    max_usd: Option<f64>,
    /// Request field that caps a branch's output under a budget; older servers want `max_tokens`.
    #[arg(long, default_value = "max_completion_tokens")]
    cap_field: String,
}

impl Args {
    /// The price of all models, where one was given.
    pub(super) fn one_price(&self) -> Option<Price> {
        if let [price] = self.price[..] { Some(price) } else { None }
    }
}

/// US dollars for recorded tokens; `None` when the counts were not reported.
pub(super) fn cost(price: Price, usage: sseismo_trace::Usage) -> Option<f64> {
    let (input, output) = usage.input.zip(usage.output)?;
    Some(price.of(Usage { input, output, cached: usage.cached.unwrap_or(0) }))
}

/// When to stop early.
#[derive(Clone, Copy, Debug)]
struct Halt(Option<Stop>);

fn parse_stop(text: &str) -> Result<Halt, String> {
    match text.split_once(':') {
        None if text == "lock-in" => Ok(Halt(Some(Stop::LockIn))),
        None if text == "never" => Ok(Halt(None)),
        Some(("beta", p)) => match p.parse::<f64>() {
            Ok(p) if p > 0.5 && p < 1.0 => Ok(Halt(Some(Stop::Beta(p)))),
            _ => Err("beta needs a probability between 0.5 and 1".to_owned()),
        },
        _ => Err("beta:P, lock-in or never".to_owned()),
    }
}

/// Why the fan-out ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub(super) enum Ended {
    /// Every branch came to its end.
    AllDone,
    /// Nobody can catch the leader.
    LockIn,
    /// The leader is far enough ahead.
    Beta,
    /// The budget is used up.
    Budget,
    /// The time is used up.
    Timeout,
    /// The user pressed Ctrl-C.
    Interrupted,
}

/// How one branch ended.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub(super) enum State {
    /// Still streaming; in a report: stopped while streaming.
    Cancelled,
    /// To its end.
    Done,
    /// Not; says why.
    Failed(String),
}

/// One branch.
#[derive(Clone, Debug, Serialize)]
pub(super) struct Branch {
    /// Its number among the samples of the decision; `None` when it took no part.
    pub(super) sample: Option<usize>,
    pub(super) model: String,
    pub(super) upstream: String,
    pub(super) temperature: Option<f64>,
    pub(super) effort: Option<String>,
    pub(super) state: State,
    pub(super) answer: Option<String>,
    /// Seconds from the fan-out's start to the branch's end or cancel.
    pub(super) seconds: f64,
    /// Tokens as the upstream reported them.
    pub(super) usage: Option<Usage>,
    /// US dollars for the reported tokens; `None` without a price or a report.
    pub(super) cost_usd: Option<f64>,
    /// Tokens by our own estimate, only where none were reported.
    pub(super) usage_est: Option<Usage>,
    /// US dollars for the estimated tokens.
    pub(super) cost_usd_est: Option<f64>,
    #[serde(skip)]
    reasoning: String,
    #[serde(skip)]
    text: String,
}

impl Branch {
    fn bytes(&self) -> usize {
        self.reasoning.len() + self.text.len()
    }
}

/// What happened on the wire.
#[derive(Clone, Debug, Serialize)]
pub(super) struct Report {
    pub(super) ended: Ended,
    pub(super) seconds: f64,
    pub(super) quorum: usize,
    pub(super) quorum_reached: bool,
    /// Sum over reported tokens.
    pub(super) cost_usd: Option<f64>,
    /// Sum over branches that were cut before they reported.
    pub(super) cost_usd_est: Option<f64>,
    pub(super) tokens: u64,
    pub(super) tokens_est: u64,
    pub(super) branches: Vec<Branch>,
}

/// Fans `prompt` out and gives the branches that came to their end as samples.
///
/// # Errors
/// When the plan cannot work: a key is missing, lists do not fit, or the budget is too small for `n` branches.
pub(super) fn run(args: &Args, prompt: &str, extract: &Extract) -> anyhow::Result<(Report, Vec<Sample>)> {
    let plan = Plan::new(args, prompt)?;
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build()?;
    let report = runtime.block_on(FanOut::new(plan).drive(extract))?;
    // Connections of cancelled branches are closed by now; a stuck name lookup is not waited for.
    runtime.shutdown_timeout(Duration::from_millis(100));
    for branch in &report.branches {
        if let State::Failed(why) = &branch.state {
            let _ = writeln!(anstream::stderr(), "warning: a branch of {} failed: {why}", branch.model);
        }
    }
    let samples = report.branches.iter().filter(|b| b.sample.is_some()).map(sample).collect();
    Ok((report, samples))
}

fn sample(branch: &Branch) -> Sample {
    let trace = if branch.reasoning.is_empty() {
        branch.text.clone()
    } else {
        format!("{}\n{}", branch.reasoning, branch.text)
    };
    Sample {
        trace,
        answer: branch.answer.clone(),
        tokens: branch.usage.map(|usage| usage.output),
        cost_usd: branch.cost_usd,
    }
}

/// A fan-out in flight.
struct FanOut {
    plan: Plan,
    branches: Vec<Branch>,
    running: usize,
}

impl FanOut {
    fn new(plan: Plan) -> Self {
        let branches: Vec<Branch> = plan.branches.iter().map(plan::BranchPlan::start).collect();
        Self { running: branches.len(), plan, branches }
    }

    async fn drive(mut self, extract: &Extract) -> anyhow::Result<Report> {
        let start = tokio::time::Instant::now();
        let client = client()?;
        let (events, mut inbox) = mpsc::unbounded_channel();
        let mut tasks = JoinSet::new();
        for (i, plan) in self.plan.branches.iter().enumerate() {
            tasks.spawn(branch::run(client.clone(), plan.request(), i, events.clone()));
        }
        drop(events);
        let deadline = tokio::time::sleep(self.plan.timeout);
        tokio::pin!(deadline);
        let ended = loop {
            let event = tokio::select! {
                event = inbox.recv() => event,
                () = &mut deadline => break Ended::Timeout,
                _ = tokio::signal::ctrl_c() => break Ended::Interrupted,
            };
            let Some(event) = event else { break Ended::AllDone };
            self.take(event, start.elapsed(), extract);
            if self.running == 0 {
                break Ended::AllDone;
            }
            if let Some(ended) = self.enough() {
                break ended;
            }
        };
        tasks.shutdown().await;
        // What had arrived by then was paid for.
        while let Ok(event) = inbox.try_recv() {
            self.take(event, start.elapsed(), extract);
        }
        Ok(self.report(ended, start.elapsed()))
    }

    fn take(&mut self, event: Event, at: Duration, extract: &Extract) {
        match event {
            Event::Text(i, text) => self.branches[i].text.push_str(&text),
            Event::Reasoning(i, text) => self.branches[i].reasoning.push_str(&text),
            Event::Usage(i, usage) => self.branches[i].usage = Some(usage),
            Event::End(i, outcome) => {
                self.running -= 1;
                let branch = &mut self.branches[i];
                branch.seconds = at.as_secs_f64();
                branch.state = match outcome {
                    Ok(()) => State::Done,
                    Err(why) => State::Failed(why),
                };
                branch.split_thinking();
                branch.answer = (branch.state == State::Done).then(|| extract.answer(&branch.text)).flatten();
            }
        }
    }

    /// Whether the branches still running are not needed or may not go on.
    fn enough(&self) -> Option<Ended> {
        if self.plan.budget.is_spent(self.spent_tokens(), self.spent_usd()) {
            return Some(Ended::Budget);
        }
        let (counts, answered) = self.counts();
        if answered < self.plan.quorum {
            return None;
        }
        match self.plan.stop?.at(&counts, u32::try_from(self.running).unwrap_or(u32::MAX))? {
            Reason::LockIn => Some(Ended::LockIn),
            Reason::Beta => Some(Ended::Beta),
        }
    }

    /// Votes per answer so far, and how many in all.
    fn counts(&self) -> (Vec<u32>, usize) {
        let answers: Vec<Option<&str>> = self.branches.iter().map(|b| b.answer.as_deref()).collect();
        let mut counts: std::collections::BTreeMap<String, u32> = std::collections::BTreeMap::new();
        for key in answer::keys(&answers).into_iter().flatten() {
            *counts.entry(key).or_default() += 1;
        }
        let counts: Vec<u32> = counts.into_values().collect();
        let answered = counts.iter().sum::<u32>();
        (counts, usize::try_from(answered).unwrap_or(usize::MAX))
    }

    /// Reported where reported, estimated where not.
    fn usage(&self, i: usize) -> Usage {
        self.branches[i].usage.unwrap_or_else(|| self.estimate(i))
    }

    fn estimate(&self, i: usize) -> Usage {
        let branch = &self.branches[i];
        let mut told = self.branches.iter().filter(|b| b.model == branch.model && b.state == State::Done);
        let like = told.find_map(|b| Some((b.usage?, b.bytes())));
        budget::estimate(branch.bytes(), self.plan.prompt.len(), like)
    }

    fn spent_tokens(&self) -> u64 {
        (0..self.branches.len()).map(|i| self.usage(i)).fold(0, tokens_with)
    }

    fn spent_usd(&self) -> f64 {
        (0..self.branches.len()).filter_map(|i| Some(self.plan.branches[i].price?.of(self.usage(i)))).sum()
    }

    fn report(mut self, ended: Ended, took: Duration) -> Report {
        for i in 0..self.branches.len() {
            let price = self.plan.branches[i].price;
            let failed_unheard =
                matches!(self.branches[i].state, State::Failed(_)) && self.branches[i].bytes() == 0;
            let estimate = (self.branches[i].usage.is_none() && !failed_unheard).then(|| self.estimate(i));
            let branch = &mut self.branches[i];
            if branch.state == State::Cancelled {
                branch.seconds = took.as_secs_f64();
            }
            branch.usage_est = estimate;
            branch.cost_usd = price.zip(branch.usage).map(|(price, usage)| price.of(usage));
            branch.cost_usd_est = price.zip(estimate).map(|(price, usage)| price.of(usage));
        }
        let finished = self.branches.iter_mut().filter(|b| b.state == State::Done);
        finished.enumerate().for_each(|(number, branch)| branch.sample = Some(number));
        let (_, answered) = self.counts();
        let done = self.branches.iter().filter(|b| b.state == State::Done).count();
        let sum = |of: fn(&Branch) -> Option<f64>| {
            let costs: Vec<f64> = self.branches.iter().filter_map(of).collect();
            (!costs.is_empty()).then(|| costs.iter().sum())
        };
        let tokens =
            |of: fn(&Branch) -> Option<Usage>| self.branches.iter().filter_map(of).fold(0, tokens_with);
        Report {
            ended,
            seconds: took.as_secs_f64(),
            quorum: self.plan.quorum,
            // Free text has no answers to count: there the branches that ended count.
            quorum_reached: answered.max(if answered == 0 { done } else { 0 }) >= self.plan.quorum,
            cost_usd: sum(|b| b.cost_usd),
            cost_usd_est: sum(|b| b.cost_usd_est),
            tokens: tokens(|b| b.usage),
            tokens_est: tokens(|b| b.usage_est),
            branches: self.branches,
        }
    }
}

impl Branch {
    /// Moves an inline `<think>…</think>` from the text to the reasoning.
    fn split_thinking(&mut self) {
        if let Some(at) = self.text.find("</think>") {
            let rest = self.text.split_off(at + "</think>".len());
            let inline = std::mem::replace(&mut self.text, rest);
            let inline = inline.trim_start().trim_end_matches("</think>");
            self.reasoning.push_str(inline.strip_prefix("<think>").unwrap_or(inline));
        }
    }
}

/// A client with the platform's roots.
pub(super) fn client() -> anyhow::Result<reqwest::Client> {
    // Fails only when a provider is set already.
    let _ = rustls::crypto::ring::default_provider().install_default();
    reqwest::Client::builder()
        .user_agent(concat!("sseismo/", env!("CARGO_PKG_VERSION")))
        .connect_timeout(Duration::from_secs(10))
        .build()
        .context("cannot set up the HTTP client")
}

/// The key in an environment variable.
pub(super) fn key(variable: &str) -> anyhow::Result<String> {
    match std::env::var(variable) {
        Ok(key) if !key.trim().is_empty() => Ok(key.trim().to_owned()),
        _ => bail!("the environment variable {variable} holds no key"),
    }
}

/// A sum of tokens with one more answer's; what an API reports may be anything.
fn tokens_with(sum: u64, usage: Usage) -> u64 {
    sum.saturating_add(usage.input).saturating_add(usage.output)
}

#[cfg(test)]
mod tests;
