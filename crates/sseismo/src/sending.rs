//! What verbs that send requests of their own have in common: the flags that sign and limit them, and the word for
//! how each ended.

use sseismo_trace::Outcome;

use crate::relay::secret;

/// How requests are signed, and how many there may be.
#[derive(Debug, clap::Args)]
pub(crate) struct Sending {
    /// Environment variable that holds the API key.
    #[arg(long, value_name = "NAME")]
    key_env: Option<String>,
    /// Send this header, too.
    #[arg(short = 'H', long = "header", value_name = "NAME: VALUE", value_parser = parse_header)]
    pub(crate) headers: Vec<(String, String)>,
    /// Refuse to send more requests than this without --yes; every attempt counts.
    #[arg(long, default_value_t = 20, value_name = "N")]
    pub(crate) budget: usize,
    /// Send them all the same.
    #[arg(long)]
    yes: bool,
}

impl Sending {
    /// The API key, where one is named.
    ///
    /// # Errors
    /// When the variable does not hold one.
    pub(crate) fn key(&self) -> anyhow::Result<Option<String>> {
        self.key_env.as_deref().map(secret).transpose()
    }

    /// Whether so many requests are more than may be sent.
    pub(crate) fn refuses(&self, requests: usize) -> bool {
        requests > self.budget && !self.yes
    }
}

fn parse_header(text: &str) -> Result<(String, String), String> {
    let (name, value) = text.split_once(':').ok_or_else(|| "expected NAME: VALUE".to_owned())?;
    Ok((name.trim().to_owned(), value.trim().to_owned()))
}

/// The word for how an answer ended.
pub(crate) fn outcome(outcome: Outcome) -> &'static str {
    match outcome {
        Outcome::Completed => "completed",
        Outcome::Incomplete => "incomplete",
        Outcome::Failed => "failed",
        Outcome::Truncated => "truncated",
        Outcome::ClientGone => "cut off",
        Outcome::Timeout => "timeout",
        Outcome::Unknown => "unknown",
    }
}
