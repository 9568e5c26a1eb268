//! The `http` embedder: any server that speaks `POST /v1/embeddings`.
//!
//! Texts go out in batches; rows come back in order of `index`, whatever the order of the response. A busy
//! or broken server is asked again. An empty text is not sent: its row is zeros.

use std::time::Duration;

use anyhow::Context as _;
use ndarray::Array2;
use reqwest::StatusCode;
use serde::Deserialize;
use serde_json::json;
use sseismo_analysis::vote::cluster;
use sseismo_analysis::vote::embed::{Embed, Error};
use sseismo_analysis::vote::geometry::Eps;

/// Texts in one request.
const BATCH: usize = 64;
/// Tries of one request, the first included.
const TRIES: u32 = 4;
/// Wait before the second try; it doubles.
const WAIT: Duration = Duration::from_millis(250);
/// No wait is longer, whatever the server asks for.
const LONGEST_WAIT: Duration = Duration::from_secs(10);
/// Of a longer text the end is sent: the head is the worst part of a trace to judge it by, and servers refuse
/// what is over their context.
const MAX_CHARS: usize = 8_000;

/// Where embeddings come from.
#[derive(Clone, Debug, clap::Args)]
#[group(id = "embeddings")]
pub(super) struct Args {
    /// Base URL of the embeddings server, as far as `/v1`.
    #[arg(id = "embed-url", long, value_name = "URL")]
    url: Option<String>,
    /// Model that the embeddings server is asked for.
    #[arg(id = "embed-model", long, value_name = "NAME", default_value = "text-embedding-3-small")]
    model: String,
    /// Environment variable with the embeddings server's key.
    #[arg(id = "embed-key-env", long, value_name = "VAR")]
    key_env: Option<String>,
}

/// The embedder.
pub(super) struct Http {
    runtime: tokio::runtime::Runtime,
    client: reqwest::Client,
    url: String,
    model: String,
    key: Option<String>,
}

impl std::fmt::Debug for Http {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Http").field("url", &self.url).field("model", &self.model).finish_non_exhaustive()
    }
}

#[derive(Deserialize)]
struct Response {
    data: Vec<Embedding>,
}

#[derive(Deserialize)]
struct Embedding {
    index: usize,
    embedding: Vec<f32>,
}

impl Http {
    /// Prepares; nothing is sent yet.
    pub(super) fn new(args: &Args) -> anyhow::Result<Self> {
        let url = args.url.as_deref().context("--embedder http needs --embed-url")?.trim_end_matches('/');
        let url = if url.ends_with("/embeddings") { url.to_owned() } else { format!("{url}/embeddings") };
        let key = args.key_env.as_deref().map(super::live::key).transpose()?;
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
        Ok(Self { runtime, client: super::live::client()?, url, model: args.model.clone(), key })
    }

    async fn batch(&self, texts: &[&str]) -> Result<Vec<Vec<f32>>, Error> {
        let mut wait = WAIT;
        for attempt in 1.. {
            match self.ask(texts).await {
                Ok(rows) => return Ok(rows),
                Err(Failure { retry: true, asked, .. }) if attempt < TRIES => {
                    tokio::time::sleep(asked.unwrap_or(wait).min(LONGEST_WAIT)).await;
                    wait *= 2;
                }
                Err(failure) => return Err(Error::Service(format!("{} ({attempt} tries)", failure.what))),
            }
        }
        Err(Error::Service("no try was made".to_owned()))
    }

    async fn ask(&self, texts: &[&str]) -> Result<Vec<Vec<f32>>, Failure> {
        let body = json!({"model": self.model, "input": texts, "encoding_format": "float"});
        let mut request = self.client.post(&self.url).json(&body);
        if let Some(key) = &self.key {
            request = request.bearer_auth(key);
        }
        let response = request.send().await.map_err(|error| Failure::again(super::live::plain(&error)))?;
        let status = response.status();
        if !status.is_success() {
            let what = format!("{} answered {status}", self.url);
            let busy = status == StatusCode::TOO_MANY_REQUESTS || status.is_server_error();
            let asked = response.headers().get("retry-after").and_then(|v| v.to_str().ok()?.parse().ok());
            return Err(Failure { what, retry: busy, asked: asked.map(Duration::from_secs) });
        }
        let response: Response = response.json().await.map_err(|error| {
            Failure::last(format!("{} sent no embeddings: {}", self.url, super::live::plain(&error)))
        })?;
        in_order(response.data, texts.len()).map_err(Failure::last)
    }
}

struct Failure {
    what: String,
    /// Whether asking again may help.
    retry: bool,
    /// The wait that the server asked for.
    asked: Option<Duration>,
}

impl Failure {
    fn last(what: String) -> Self {
        Self { what, retry: false, asked: None }
    }

    fn again(what: String) -> Self {
        Self { what, retry: true, asked: None }
    }
}

/// Rows by `index`, each exactly once.
fn in_order(data: Vec<Embedding>, expected: usize) -> Result<Vec<Vec<f32>>, String> {
    let mut rows: Vec<Option<Vec<f32>>> = vec![None; expected];
    let found = data.len();
    for row in data {
        let place = rows
            .get_mut(row.index)
            .ok_or_else(|| format!("index {} of {expected} texts came back", row.index))?;
        if place.replace(row.embedding).is_some() {
            return Err(format!("index {} came back twice", row.index));
        }
    }
    rows.into_iter()
        .collect::<Option<_>>()
        .ok_or_else(|| format!("{found} vectors came back for {expected} texts"))
}

impl Embed for Http {
    fn name(&self) -> &'static str {
        "http"
    }

    fn is_semantic(&self) -> bool {
        true
    }

    fn eps(&self) -> Eps {
        // Distances of an unknown model are of an unknown size.
        Eps::Median
    }

    fn embed(&self, texts: &[&str]) -> Result<Array2<f32>, Error> {
        let full: Vec<(usize, &str)> = texts
            .iter()
            .enumerate()
            .filter(|(_, t)| !t.trim().is_empty())
            .map(|(i, t)| (i, end_of(t)))
            .collect();
        let mut rows: Vec<Vec<f32>> = vec![Vec::new(); texts.len()];
        for batch in full.chunks(BATCH) {
            let texts: Vec<&str> = batch.iter().map(|(_, text)| *text).collect();
            for ((i, _), row) in batch.iter().zip(self.runtime.block_on(self.batch(&texts))?) {
                rows[*i] = row;
            }
        }
        let width = full.first().map_or(1, |(i, _)| rows[*i].len());
        for row in rows.iter_mut().filter(|row| row.is_empty()) {
            row.resize(width, 0.0);
        }
        Ok(cluster::rows(&rows)?)
    }
}

fn end_of(text: &str) -> &str {
    text.char_indices().rev().nth(MAX_CHARS - 1).map_or(text, |(at, _)| &text[at..])
}

#[cfg(test)]
mod tests {
    use std::io::{BufRead as _, BufReader, Read as _, Write as _};

    use super::*;

    #[test]
    fn rows_are_ordered_by_index() {
        let row = |index, value| Embedding { index, embedding: vec![value] };
        assert_eq!(in_order(vec![row(1, 1.0), row(0, 0.5)], 2), Ok(vec![vec![0.5], vec![1.0]]));
        assert!(in_order(vec![row(0, 1.0), row(0, 1.0)], 2).unwrap_err().contains("twice"));
        assert!(in_order(vec![row(0, 1.0)], 2).is_err());
        assert!(in_order(vec![row(5, 1.0)], 1).is_err());
    }

    /// Answers each request with the next of `replies`: a status, and rows in reverse order when it is 200.
    fn server(replies: Vec<u16>) -> (String, std::thread::JoinHandle<Vec<usize>>) {
        let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
        let url = format!("http://{}/v1", listener.local_addr().unwrap());
        let thread = std::thread::spawn(move || {
            let mut sizes = Vec::new();
            for status in replies {
                let (stream, _) = listener.accept().unwrap();
                let mut reader = BufReader::new(stream);
                let mut length = 0;
                loop {
                    let mut line = String::new();
                    reader.read_line(&mut line).unwrap();
                    if let Some(value) = line.to_ascii_lowercase().strip_prefix("content-length:") {
                        length = value.trim().parse().unwrap();
                    }
                    if line == "\r\n" {
                        break;
                    }
                }
                let mut body = vec![0; length];
                reader.read_exact(&mut body).unwrap();
                let body: serde_json::Value = serde_json::from_slice(&body).unwrap();
                let texts = body["input"].as_array().unwrap();
                sizes.push(texts.len());
                let rows: Vec<_> = texts
                    .iter()
                    .enumerate()
                    .rev()
                    .map(|(i, t)| json!({"index": i, "embedding": [t.as_str().unwrap().len(), 1]}))
                    .collect();
                let body = json!({"data": rows}).to_string();
                write!(
                    reader.get_mut(),
                    "HTTP/1.1 {status} X\r\nretry-after: 0\r\ncontent-length: {}\r\nconnection: close\r\n\r\n{body}",
                    body.len()
                )
                .unwrap();
            }
            sizes
        });
        (url, thread)
    }

    fn embedder(url: String) -> Http {
        Http::new(&Args { url: Some(url), model: "m".into(), key_env: None }).unwrap()
    }

    #[test]
    fn batches_are_retried_and_put_in_order() {
        let (url, thread) = server(vec![503, 429, 200]);
        let texts: Vec<String> = (0..=BATCH).map(|i| "x".repeat(i)).collect();
        let texts: Vec<&str> = texts.iter().map(String::as_str).collect();
        let rows = embedder(url).embed(&texts).unwrap();
        // The first text is empty: not sent, zeros.
        let lengths: Vec<u16> = (0..=64).collect();
        let want: Vec<f32> = lengths.into_iter().map(f32::from).collect();
        assert_eq!(rows.column(0).to_vec(), want);
        assert!(rows[[0, 1]].abs() < f32::EPSILON);
        assert_eq!(thread.join().unwrap(), [64, 64, 64]);
    }

    #[test]
    fn a_refusal_is_an_error_at_once() {
        let (url, thread) = server(vec![401]);
        let error = embedder(url).embed(&["secret text"]).unwrap_err().to_string();
        assert!(error.contains("401") && error.contains("1 tries") && !error.contains("secret"), "{error}");
        thread.join().unwrap();
    }
}
