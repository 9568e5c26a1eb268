//! Leases: what another router was told, and a process beside the relay that takes it back when the relay cannot.
//!
//! In: "until then, and if I say no more, undo it so". Out: one JSON line each to the restorer, which answers it
//! before anything is done, so that nothing stands without somebody to take it back. Routers without a time to
//! live of their own (HAProxy, Envoy) keep what they were told for ever; a relay that is killed takes nothing back.
//!
//! The restorer is the same program with the verb `restore`, in a session of its own. It hangs on one socket: its
//! end says that the relay is gone. See [`restore`](super::restore) for the other side.

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::os::fd::OwnedFd;
use std::os::unix::process::CommandExt as _;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use serde::{Deserialize, Serialize};
use tokio::io::{AsyncBufReadExt as _, AsyncWriteExt as _, BufReader};
use tokio::net::UnixStream;
use tokio::sync::{mpsc, oneshot};
use tokio::time::Instant;

use super::Failed;

/// The verb of the program that is the restorer.
pub const VERB: &str = "restore";

/// The restorer answers within a millisecond; one that takes so long, on a machine however busy, is replaced.
const ANSWER: Duration = Duration::from_secs(10);

/// Words that may wait for it.
const WAITING: usize = 64;

/// How to take something back. It holds no secret: it is written to another process.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case", tag = "on")]
pub enum Undo {
    /// Lines for HAProxy's Runtime API.
    HaproxyRuntime {
        /// Where it listens: a path, or host and port.
        socket: String,
        /// What to say, in order.
        commands: Vec<String>,
    },
    /// An agent that tells HAProxy that all is well, in the place of the relay's.
    HaproxyAgent {
        /// Where the relay's agent listened.
        listen: SocketAddr,
        /// Names to be asked for → what to answer.
        answers: BTreeMap<String, String>,
    },
    /// A request to Envoy's admin address.
    Envoy {
        /// The whole URL, to be posted to.
        url: String,
    },
}

/// What the relay tells the restorer; one JSON line each, answered by an empty line.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case", tag = "say")]
pub enum Said {
    /// Undo this unless another word on the same lease comes in time.
    Hold {
        /// Names the lease; the latest word on it counts.
        lease: String,
        /// Time from now, ms.
        ttl_ms: u64,
        /// How.
        undo: Undo,
    },
    /// It has been undone.
    Release {
        /// The lease.
        lease: String,
    },
    /// Undo it now.
    Undo {
        /// The lease.
        lease: String,
    },
}

/// The relay's side: a handle for each sink to one task that talks to the restorer. A sink that is given up in the
/// middle of a call, because it took too long, leaves that conversation whole.
#[derive(Clone, Debug)]
pub struct Restorer(mpsc::Sender<Asked>);

/// A word for the restorer, and who waits for its answer.
#[derive(Debug)]
struct Asked {
    word: Word,
    answer: oneshot::Sender<Result<(), Failed>>,
}

#[derive(Debug)]
enum Word {
    Start,
    Hold { lease: String, until: Instant, undo: Undo },
    Release { lease: String },
    Undo { lease: String },
}

impl Restorer {
    /// Runs `program restore` when it is needed, and again whenever it is gone. Called inside a tokio runtime.
    pub fn new(program: PathBuf) -> Self {
        let (asks, asked) = mpsc::channel(WAITING);
        let keeper = Keeper { program, link: None, held: BTreeMap::new() };
        tokio::spawn(keeper.run(asked));
        Self(asks)
    }

    /// Starts the process if it does not run.
    ///
    /// # Errors
    /// When it cannot be started.
    pub async fn start(&self) -> Result<(), Failed> {
        self.ask(Word::Start).await
    }

    /// Makes sure that `undo` happens at `until` unless this is called again or [`release`](Self::release)d.
    ///
    /// # Errors
    /// When nobody can promise that: then what should be undone must not be done.
    pub async fn hold(&self, lease: &str, until: Instant, undo: Undo) -> Result<(), Failed> {
        self.ask(Word::Hold { lease: lease.to_owned(), until, undo }).await
    }

    /// What the lease stood for is undone.
    ///
    /// # Errors
    /// When that cannot be told: then it is undone once more, which does no harm.
    pub async fn release(&self, lease: &str) -> Result<(), Failed> {
        self.ask(Word::Release { lease: lease.to_owned() }).await
    }

    /// Has it undone by the restorer, from now on.
    ///
    /// # Errors
    /// When that cannot be told: then it is undone at its end.
    pub async fn undo(&self, lease: &str) -> Result<(), Failed> {
        self.ask(Word::Undo { lease: lease.to_owned() }).await
    }

    async fn ask(&self, word: Word) -> Result<(), Failed> {
        let (answer, answered) = oneshot::channel();
        let gone = || Failed::Unleased("the relay ends".to_owned());
        self.0.send(Asked { word, answer }).await.map_err(|_| gone())?;
        answered.await.unwrap_or_else(|_| Err(gone()))
    }
}

/// Talks to the restorer.
struct Keeper {
    program: PathBuf,
    link: Option<Link>,
    /// What a new restorer must be told.
    held: BTreeMap<String, (Instant, Undo)>,
}

struct Link {
    stream: BufReader<UnixStream>,
    child: Child,
}

impl Keeper {
    async fn run(mut self, mut asked: mpsc::Receiver<Asked>) {
        while let Some(Asked { word, answer }) = asked.recv().await {
            // Who asked may have given up; what was promised to it runs out.
            let _ = answer.send(self.take(word).await);
        }
        // The link ends here, and the restorer does what is left.
    }

    async fn take(&mut self, word: Word) -> Result<(), Failed> {
        match word {
            Word::Start => self.linked().await.map(drop),
            Word::Hold { lease, until, undo } => {
                let said = hold(&lease, until, undo.clone());
                self.tell(&said).await?;
                self.held.insert(lease, (until, undo));
                Ok(())
            }
            Word::Release { lease } => self.forget(lease, |lease| Said::Release { lease }).await,
            Word::Undo { lease } => self.forget(lease, |lease| Said::Undo { lease }).await,
        }
    }

    async fn forget(&mut self, lease: String, said: impl FnOnce(String) -> Said) -> Result<(), Failed> {
        if self.held.remove(&lease).is_none() {
            return Ok(());
        }
        self.tell(&said(lease)).await
    }

    /// Tells it, and a new one if it is gone.
    async fn tell(&mut self, said: &Said) -> Result<(), Failed> {
        for _ in 0..2 {
            if self.linked().await?.tell(said).await.is_ok() {
                return Ok(());
            }
            self.discard();
        }
        Err(Failed::Unleased("it does not answer".to_owned()))
    }

    /// The running restorer, or a new one that has been told all that is held.
    async fn linked(&mut self) -> Result<&mut Link, Failed> {
        if self.link.as_mut().is_some_and(|link| !matches!(link.child.try_wait(), Ok(None))) {
            self.link = None;
        }
        if self.link.is_none() {
            let failed = |error: std::io::Error| Failed::Unleased(error.to_string());
            let link = self.link.insert(spawn(&self.program).map_err(failed)?);
            for (lease, (until, undo)) in &self.held {
                if let Err(error) = link.tell(&hold(lease, *until, undo.clone())).await {
                    self.discard();
                    return Err(failed(error));
                }
            }
        }
        self.link.as_mut().ok_or_else(|| Failed::Unleased("it has not started".to_owned()))
    }

    /// Ends one that hangs: it would undo what its successor holds.
    fn discard(&mut self) {
        if let Some(mut link) = self.link.take() {
            let _ = link.child.kill();
            let _ = link.child.wait();
        }
    }
}

fn spawn(program: &Path) -> std::io::Result<Link> {
    let (ours, theirs) = UnixStream::pair()?;
    let theirs = theirs.into_std()?;
    theirs.set_nonblocking(false)?;
    let child = Command::new(program)
        .arg0("sseismo")
        .arg(VERB)
        .stdin(Stdio::from(OwnedFd::from(theirs)))
        .stdout(Stdio::null())
        .spawn()?;
    Ok(Link { stream: BufReader::new(ours), child })
}

fn hold(lease: &str, until: Instant, undo: Undo) -> Said {
    let left = until.saturating_duration_since(Instant::now());
    let ttl_ms = u64::try_from(left.as_millis()).unwrap_or(u64::MAX);
    Said::Hold { lease: lease.to_owned(), ttl_ms, undo }
}

impl Link {
    async fn tell(&mut self, said: &Said) -> std::io::Result<()> {
        let line = serde_json::to_string(said).map_err(std::io::Error::from)? + "\n";
        let told = async {
            self.stream.get_mut().write_all(line.as_bytes()).await?;
            let mut answer = String::new();
            match self.stream.read_line(&mut answer).await? {
                0 => Err(std::io::ErrorKind::UnexpectedEof.into()),
                _ => Ok(()),
            }
        };
        tokio::time::timeout(ANSWER, told).await.unwrap_or_else(|_| Err(std::io::ErrorKind::TimedOut.into()))
    }
}
