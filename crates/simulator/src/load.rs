//! Who asks, when no client does: arrivals, shapes and retries of requests in virtual time.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use serde::Deserialize;
use sseismo_trace::{Api, Micros};

use crate::ask::Ask;
use crate::client::Client;
use crate::draw::Draw;
use crate::scenario::Amount;
use crate::unit::{Positive, Share, Span, micros};

/// When requests come.
#[derive(Clone, Debug, Deserialize)]
#[serde(default, deny_unknown_fields, rename_all = "kebab-case")]
pub struct Arrivals {
    /// Requests a second.
    pub rate: Positive,
    /// At an even pace rather than at random.
    pub even: bool,
    /// How many times the rate in busy hours.
    pub busy: Positive,
    /// Length of a day: its second half is busy.
    pub day: Span,
    /// Deep calls that come together, a fan-out, besides all others; 0 for none.
    pub batch: u32,
    /// From one such batch to the next.
    pub batch_every: Span,
    /// Within how much time they come.
    pub batch_spread: Span,
}

impl Default for Arrivals {
    fn default() -> Self {
        Self {
            rate: Positive(2.0),
            even: false,
            busy: Positive(1.0),
            day: Span::ms(3_600_000),
            batch: 0,
            batch_every: Span::ms(60_000),
            batch_spread: Span::ms(2_000),
        }
    }
}

/// Requests in virtual time: the `[load]` of a scenario.
#[derive(Clone, Debug, Deserialize)]
#[serde(default, deny_unknown_fields, rename_all = "kebab-case")]
pub struct Load {
    /// When they come.
    pub arrivals: Arrivals,
    /// A client of `ServeGen` that times and sizes are drawn from, in place of `arrivals`, `prompt` and the
    /// scenario's `[answer]`: its two files without `-trace.csv` and `-dataset.json`.
    pub client: Option<PathBuf>,
    #[serde(skip)]
    drawn: Option<Arc<Client>>,
    /// The APIs they speak, each as often: `responses`, `chat`, `messages`.
    pub apis: Vec<Api>,
    /// Share of streamed answers.
    pub streamed: Share,
    /// Share that asks for JSON.
    pub json: Share,
    /// Sessions that take turns.
    pub sessions: u32,
    /// Efforts and their weights.
    pub efforts: BTreeMap<String, Share>,
    /// Prompt tokens.
    pub prompt: Amount,
    /// Share of dense numeric prompts; their numeric share is 0.4–0.9, that of others 0–0.15.
    pub numeric: Share,
    /// How often a client asks again after a 429, a 5xx or a broken stream: 2 in the OpenAI and
    /// Anthropic SDKs.
    pub retries: u32,
}

impl Default for Load {
    fn default() -> Self {
        Self {
            arrivals: Arrivals::default(),
            client: None,
            drawn: None,
            apis: vec![Api::Responses],
            streamed: Share(1.0),
            json: Share(0.0),
            sessions: 20,
            efforts: BTreeMap::from([("medium".to_owned(), Share(1.0))]),
            prompt: Amount { median: Positive(400.0), sigma: Positive(1.2), max: 30_000 },
            numeric: Share(0.1),
            retries: 2,
        }
    }
}

/// Bytes of a prompt token: the inverse of the start ratio of `prompt_tokens_est`, 0.27 tokens a byte.
const BYTES_PER_TOKEN: f64 = 1.0 / 0.27;

impl Load {
    /// Reads the files that it names, relative to `base`.
    ///
    /// # Errors
    /// Why `client` cannot be drawn from.
    pub(crate) fn ready(&mut self, base: &Path) -> Result<(), String> {
        if let Some(client) = &self.client {
            self.drawn = Some(Arc::new(Client::load(&base.join(client))?));
        }
        Ok(())
    }

    /// Time from an arrival at `now` to the next one.
    pub(crate) fn gap(&self, now: Micros, draw: &mut Draw) -> i64 {
        if let Some(client) = &self.drawn {
            return client.gap(now, draw);
        }
        let arrivals = &self.arrivals;
        let day = arrivals.day.us().max(2);
        let busy = now.0.rem_euclid(day) >= day / 2;
        let rate = arrivals.rate.0 * if busy { arrivals.busy.0 } else { 1.0 };
        micros(if arrivals.even { 1.0 / rate } else { draw.exponential(1.0 / rate) })
    }

    /// The shape of a request that comes at `at`; `deep` asks for high effort.
    pub(crate) fn ask(&self, at: Micros, deep: bool, draw: &mut Draw) -> Ask {
        let drawn = draw.lognormal(self.prompt.median.0, self.prompt.sigma.0).min(f64::from(self.prompt.max));
        let client = self.drawn.as_ref().map(|client| client.sizes(at, draw));
        #[expect(clippy::cast_precision_loss, reason = "tokens of a prompt")]
        let prompt = client.map_or(drawn.round().max(1.0), |(input, _)| input as f64);
        let numeric = draw.chance(self.numeric.0);
        #[expect(
            clippy::cast_possible_truncation,
            clippy::cast_sign_loss,
            reason = "bounded by the amount's max"
        )]
        let (prompt_tokens, prompt_bytes) = (prompt as u64, (prompt * BYTES_PER_TOKEN) as u64);
        Ask {
            number: 0,
            at,
            api: self.apis.get(draw.index(self.apis.len())).copied().unwrap_or(Api::Responses),
            streamed: draw.chance(self.streamed.0),
            include_usage: true,
            wants_json: draw.chance(self.json.0),
            model: String::new(),
            effort: if deep { Some("high".to_owned()) } else { self.effort(draw) },
            prompt_bytes,
            prompt_tokens,
            numeric_share: if numeric { draw.between(0.4, 0.9) } else { draw.between(0.0, 0.15) },
            amounts: client.map(|(_, amounts)| amounts),
            max_tokens: None,
            session: Some(u64::from(draw.whole(1, self.sessions.max(1)))),
            turn: None,
            attempt: 1,
        }
    }

    fn effort(&self, draw: &mut Draw) -> Option<String> {
        let total: f64 = self.efforts.values().map(|weight| weight.0).sum();
        let mut left = draw.unit() * total;
        for (effort, weight) in &self.efforts {
            left -= weight.0;
            if left <= 0.0 {
                return Some(effort.clone());
            }
        }
        None
    }
}
