//! Flags to branches: who is asked what, with which temperature, effort, key, price and cap.

use std::time::Duration;

use anyhow::{Context as _, bail, ensure};
use serde_json::{Value, json};
use sseismo_analysis::vote::stop::Stop;

use super::branch::Request;
use super::budget::{Budget, Price, prompt_reserve};
use super::{Args, Branch, State};

/// What is going to be done.
pub(super) struct Plan {
    pub(super) branches: Vec<BranchPlan>,
    pub(super) prompt: String,
    pub(super) stop: Option<Stop>,
    pub(super) quorum: usize,
    pub(super) timeout: Duration,
    pub(super) budget: Budget,
}

/// One branch.
pub(super) struct BranchPlan {
    url: String,
    model: String,
    key: Option<String>,
    temperature: Option<f64>,
    effort: Option<String>,
    body: Value,
    pub(super) price: Option<Price>,
}

impl Plan {
    /// Checks that the flags fit together.
    pub(super) fn new(args: &Args, prompt: &str) -> anyhow::Result<Self> {
        ensure!(!prompt.trim().is_empty(), "the prompt is empty");
        let n = usize::from(args.n);
        let quorum = args.quorum.unwrap_or(n.div_ceil(2)).max(1);
        ensure!(quorum <= n, "--quorum {quorum} is more than --n {n}");
        // One model on several upstreams is as good as several models on one.
        let targets = args.model.len().max(args.base_url.len());
        let each = |count: usize, flag: &str| {
            ensure!(
                count <= 1 || count == targets,
                "--{flag} was given {count} times: once for all, or {targets} times"
            );
            Ok(())
        };
        each(args.model.len(), "model")?;
        each(args.base_url.len(), "base-url")?;
        each(args.key_env.len(), "key-env")?;
        each(args.price.len(), "price")?;
        ensure!(
            args.temperature.iter().all(|t| t.is_finite() && *t >= 0.0),
            "--temperature must be 0 or more"
        );
        let keys = args.key_env.iter().map(|name| super::key(name)).collect::<anyhow::Result<Vec<_>>>()?;
        let budget = Budget { max_tokens: args.max_tokens, max_usd: args.max_usd };
        let branches = (0..n)
            .map(|i| BranchPlan::new(args, prompt, &keys, budget, i, i % targets))
            .collect::<anyhow::Result<Vec<_>>>()?;
        Ok(Self {
            branches,
            prompt: prompt.to_owned(),
            stop: args.stop.0,
            quorum,
            timeout: Duration::from_secs(args.timeout),
            budget,
        })
    }
}

/// The entry of a list for target `t`: the only one, or the t-th.
fn of<T: Clone>(list: &[T], t: usize) -> Option<T> {
    list.get(if list.len() == 1 { 0 } else { t }).cloned()
}

fn turn<T: Clone>(list: &[T], i: usize) -> Option<T> {
    list.get(i.checked_rem(list.len())?).cloned()
}

impl BranchPlan {
    fn new(
        args: &Args,
        prompt: &str,
        keys: &[String],
        budget: Budget,
        i: usize,
        t: usize,
    ) -> anyhow::Result<Self> {
        let model = of(&args.model, t).context("--model is missing")?;
        let base = of(&args.base_url, t).context("--base-url is missing")?;
        let price = of(&args.price, t);
        let (temperature, effort) = (turn(&args.temperature, i), turn(&args.effort, i));
        let mut body = json!({
            "model": model,
            "messages": [{"role": "user", "content": prompt}],
            "stream": true,
            "stream_options": {"include_usage": true},
        });
        if let Some(temperature) = temperature {
            body["temperature"] = json!(temperature);
        }
        if let Some(effort) = &effort {
            body["reasoning_effort"] = json!(effort);
        }
        if let Some(cap) = budget.cap(u64::from(args.n), prompt.len(), price) {
            if cap == 0 {
                bail!(
                    "the budget does not hold {} branches with a prompt of up to {} tokens each: raise it or lower --n",
                    args.n,
                    prompt_reserve(prompt.len())
                );
            }
            body[&args.cap_field] = json!(cap);
        }
        let url =
            format!("{}/chat/completions", base.trim_end_matches('/').trim_end_matches("/chat/completions"));
        Ok(Self { url, model, key: of(keys, t), temperature, effort, body, price })
    }

    pub(super) fn request(&self) -> Request {
        Request { url: self.url.clone(), key: self.key.clone(), body: self.body.clone() }
    }

    /// The branch before anything came back.
    pub(super) fn start(&self) -> Branch {
        Branch {
            sample: None,
            model: self.model.clone(),
            upstream: self.url.clone(),
            temperature: self.temperature,
            effort: self.effort.clone(),
            state: State::Cancelled,
            answer: None,
            seconds: 0.0,
            usage: None,
            cost_usd: None,
            usage_est: None,
            cost_usd_est: None,
            reasoning: String::new(),
            text: String::new(),
        }
    }
}
