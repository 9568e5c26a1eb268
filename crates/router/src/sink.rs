//! Sinks: other routers are told to give an upstream less, and to give it back.
//!
//! In: [`Notice`]s of the relay's own steering. Out: whatever the other router understands, from one worker for each
//! sink. Nothing here is on the way of a request: a notice that does not fit into a sink's queue is dropped and
//! counted, and a sink that cannot be reached is tried again, longer and longer apart, with whatever is right then.
//!
//! | sink | how it steers | without the relay |
//! |---|---|---|
//! | `webhook` | tells Alertmanager, or who reads what Alertmanager sends; steers nothing by itself | alerts end by themselves |
//! | `redis` | a key with a time to live and a message for each order | orders end by themselves |
//! | `litellm` | `LiteLLM`'s own cooldown in its Redis | cooldowns end by themselves |
//! | `haproxy-agent` | answers HAProxy's agent checks | the restorer answers in its place |
//! | `haproxy-runtime` | sets weights over HAProxy's Runtime API | the restorer sets them back |
//! | `envoy` | overrides weights over Envoy's admin address | the restorer deletes them |
//!
//! **Leases.** An order has a time to live. While it stands it is said again, so that a router that was started
//! anew learns of it; a clear or its end undoes it. Where the other router forgets nothing by itself, a
//! [`restorer`](restore) is told first how to undo what is about to be done.
//!
//! A new sink is one file with a [`Plan`] and a [`Sink`], and one line in `KINDS`.

use std::pin::Pin;
use std::sync::Arc;
use std::time::Duration;

use sseismo_trace::Signal;
use tokio::sync::mpsc;
use tokio::task::JoinSet;

use crate::config::sink::Reading;
use crate::metrics::Metrics;
use crate::order::Notice;

mod envoy;
mod haproxy_agent;
mod haproxy_runtime;
pub mod lease;
mod litellm;
mod redis;
pub mod restore;
pub mod standing;
mod webhook;
mod worker;

use lease::Restorer;
use standing::Standing;
use worker::Worker;

/// Reads the keys of one kind of sink; what is wrong is told to the section.
pub(crate) type Read = fn(&Reading<'_>) -> Option<Arc<dyn Plan>>;

/// One line for each kind.
pub(crate) const KINDS: [(&str, Read); 6] = [
    ("webhook", webhook::read),
    ("redis", redis::read),
    ("litellm", litellm::read),
    ("haproxy-agent", haproxy_agent::read),
    ("haproxy-runtime", haproxy_runtime::read),
    ("envoy", envoy::read),
];

/// Notices that may wait for one sink.
const WAITING: usize = 256;

/// Time for taking back what stands when the relay ends. What is not done by then, the restorer does.
const FAREWELL: Duration = Duration::from_secs(3);

/// Work in progress.
pub type Doing<'a> = Pin<Box<dyn Future<Output = Result<(), Failed>> + Send + 'a>>;

/// Why something was not done. It is tried again.
#[derive(Debug, thiserror::Error)]
pub enum Failed {
    /// There is no connection, or it broke.
    #[error("{to} cannot be reached: {why}")]
    Unreachable {
        /// Where.
        to: String,
        /// Why not.
        why: String,
    },
    /// It was asked, and said no.
    #[error("{by} refused: {said}")]
    Refused {
        /// Who.
        by: String,
        /// In its words, cut.
        said: String,
    },
    /// Nobody would undo it.
    #[error("no restorer, so nothing is done that would stay: {0}")]
    Unleased(String),
    /// It took too long.
    #[error("no answer in time")]
    TimedOut,
}

impl Failed {
    /// No connection.
    pub(crate) fn unreachable(to: &str, why: &dyn std::error::Error) -> Self {
        Self::Unreachable { to: to.to_owned(), why: with_causes(why) }
    }

    /// A refusal, of which no more is repeated than fits in a line.
    pub(crate) fn refused(by: &str, said: &str) -> Self {
        let said = said.trim().replace(['\r', '\n'], " ");
        Self::Refused { by: by.to_owned(), said: said[..said.floor_char_boundary(200)].to_owned() }
    }
}

/// An error with all that caused it.
fn with_causes(error: &dyn std::error::Error) -> String {
    let mut told = error.to_string();
    let mut cause = error.source();
    while let Some(error) = cause {
        told = format!("{told}: {error}");
        cause = error.source();
    }
    told
}

/// A sink as configured.
pub trait Plan: std::fmt::Debug + Send + Sync {
    /// Whether a restorer must be there, since what it does would stay.
    fn leases(&self) -> bool {
        false
    }

    /// The sink itself. Nothing is connected yet. Called inside a tokio runtime.
    ///
    /// # Errors
    /// When it can never work.
    fn sink(&self, name: &str, restorer: &Restorer) -> Result<Box<dyn Sink>, Failed>;
}

/// Tells one other router.
pub trait Sink: Send {
    /// How often what stands is said again, while anything stands.
    fn every(&self) -> Duration;

    /// Brings the other router to what stands: whatever it was told before, and however often it has been told.
    ///
    /// # Errors
    /// When some of it was not done: the same is tried again.
    fn steer<'a>(&'a mut self, standing: &'a Standing) -> Doing<'a>;

    /// Whether it must be called again although nothing stands: what it did is not undone yet.
    fn unfinished(&self) -> bool {
        false
    }

    /// Whether it tells of signals.
    fn informs(&self) -> bool {
        false
    }

    /// Tells of signals, the latest word on each, in the order in which they came.
    ///
    /// # Errors
    /// When some were not told: all are told again.
    fn inform<'a>(&'a mut self, signals: &'a [Arc<Signal>]) -> Doing<'a> {
        let _ = signals;
        Box::pin(async { Ok(()) })
    }

    /// Nothing stands any more and nothing will: the relay ends.
    ///
    /// # Errors
    /// When something is left to the restorer.
    fn end(&mut self) -> Doing<'_> {
        Box::pin(async { Ok(()) })
    }
}

/// A configured sink with its name.
#[derive(Clone, Debug)]
pub struct Named {
    /// Its name, in metrics and logs.
    pub name: Arc<str>,
    /// Whether orders about one effort of a model are followed, too.
    pub efforts: bool,
    /// The sink.
    pub plan: Arc<dyn Plan>,
}

/// The sinks at work.
#[derive(Debug)]
pub struct Sinks {
    workers: JoinSet<()>,
    queues: Vec<(Arc<str>, mpsc::Sender<Notice>)>,
    metrics: Arc<Metrics>,
}

impl Sinks {
    /// Starts a worker for each, and the restorer where one of them needs it. Called inside a tokio runtime; those
    /// that speak HTTP need rustls's default provider.
    ///
    /// # Errors
    /// When a sink can never work, or the restorer does not start.
    pub async fn start(sinks: &[Named], restorer: Restorer, metrics: Arc<Metrics>) -> Result<Self, Failed> {
        if sinks.iter().any(|sink| sink.plan.leases()) {
            restorer.start().await?;
        }
        let (mut workers, mut queues) = (JoinSet::new(), Vec::new());
        for named in sinks {
            let (queue, waiting) = mpsc::channel(WAITING);
            let sink = named.plan.sink(&named.name, &restorer)?;
            workers.spawn(Worker::new(named, sink, Arc::clone(&metrics)).run(waiting));
            queues.push((Arc::clone(&named.name), queue));
        }
        Ok(Self { workers, queues, metrics })
    }

    /// Passes notices on to every sink until their sender is gone, then takes back what stands.
    pub async fn follow(self, mut notices: mpsc::Receiver<Notice>) {
        let Self { mut workers, queues, metrics } = self;
        while let Some(notice) = notices.recv().await {
            for (name, queue) in &queues {
                if queue.try_send(notice.clone()).is_err() {
                    metrics.sinks().dropped(name);
                }
            }
        }
        drop(queues);
        while workers.join_next().await.is_some() {}
    }
}

/// A client for the sinks that speak HTTP.
pub(crate) fn client() -> Result<reqwest::Client, Failed> {
    let client = reqwest::Client::builder()
        .user_agent(concat!("sseismo/", env!("CARGO_PKG_VERSION")))
        .connect_timeout(Duration::from_secs(2))
        .timeout(Duration::from_secs(5))
        .redirect(reqwest::redirect::Policy::none())
        .no_proxy()
        .build();
    client.map_err(|error| Failed::unreachable("the HTTP client", &error))
}

/// Bytes of a refusal's text that are waited for: more than is ever told of it.
const REFUSAL: usize = 1_024;

/// What an HTTP answer means; of a refusal, the beginning of its text.
pub(crate) async fn accepted(
    to: &str,
    sent: Result<reqwest::Response, reqwest::Error>,
) -> Result<(), Failed> {
    // An error of reqwest prints the whole URL, which may hold a token.
    let mut response = sent.map_err(|error| Failed::unreachable(to, &error.without_url()))?;
    let status = response.status();
    if status.is_success() {
        return Ok(());
    }
    let mut text = Vec::new();
    while text.len() < REFUSAL
        && let Ok(Some(chunk)) = response.chunk().await
    {
        text.extend_from_slice(&chunk);
    }
    Err(Failed::refused(to, &format!("{status} {}", String::from_utf8_lossy(&text))))
}

#[cfg(test)]
mod tests {
    use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
    use tokio::net::TcpListener;

    use super::*;

    /// A refusal whose text never ends is told at once, and not gathered until time is up.
    #[tokio::test]
    async fn of_an_endless_refusal_the_beginning_is_enough() {
        let _ = rustls::crypto::ring::default_provider().install_default();
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let url = format!("http://{}/", listener.local_addr().unwrap());
        let sending = tokio::spawn(async move {
            let (mut stream, _) = listener.accept().await.unwrap();
            stream.read_buf(&mut Vec::with_capacity(4_096)).await.unwrap();
            let mut sent = 0_u64;
            stream.write_all(b"HTTP/1.1 500 No\r\ncontent-type: text/plain\r\n\r\nno way ").await.unwrap();
            while stream.write_all(&[b'o'; 4_096]).await.is_ok() {
                sent += 4_096;
            }
            sent
        });
        let said = accepted("it", client().unwrap().post(&url).body("{}").send().await).await;
        assert!(
            said.unwrap_err().to_string().starts_with("it refused: 500 Internal Server Error no way ooo")
        );
        // What lies in the buffers of both sockets, and no more.
        let sent = sending.await.unwrap();
        assert!(sent < 64 << 20, "{sent} bytes were taken");
    }
}
