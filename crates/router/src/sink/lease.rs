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
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use serde::{Deserialize, Serialize};
use tokio::io::{AsyncBufReadExt as _, AsyncWriteExt as _, BufReader};
use tokio::net::UnixStream;
use tokio::sync::Mutex;
use tokio::time::Instant;

use super::Failed;

/// The verb of the program that is the restorer.
pub const VERB: &str = "restore";

/// The restorer answers within a millisecond; one that takes so long on whatever machine is replaced.
const ANSWER: Duration = Duration::from_secs(3);

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

/// The relay's side. Shared by all its sinks.
#[derive(Debug)]
pub struct Restorer {
    program: PathBuf,
    state: Mutex<State>,
}

#[derive(Debug, Default)]
struct State {
    link: Option<Link>,
    /// What a new restorer must be told.
    held: BTreeMap<String, (Instant, Undo)>,
}

#[derive(Debug)]
struct Link {
    stream: BufReader<UnixStream>,
    child: Child,
}

impl Drop for Link {
    fn drop(&mut self) {
        // It ends by itself when it has nothing to do; here only its entry in the process table is given up.
        let _ = self.child.try_wait();
    }
}

impl Restorer {
    /// Runs `program restore` when the first lease is asked for, and again whenever it is gone.
    pub fn new(program: PathBuf) -> Self {
        Self { program, state: Mutex::default() }
    }

    /// Starts the process if it does not run.
    ///
    /// # Errors
    /// When it cannot be started.
    pub async fn start(&self) -> Result<(), Failed> {
        let mut state = self.state.lock().await;
        self.linked(&mut state).await.map(drop)
    }

    /// Makes sure that `undo` happens at `until` unless this is called again or [`release`](Self::release)d.
    ///
    /// # Errors
    /// When nobody can promise that: then what should be undone must not be done.
    pub async fn hold(&self, lease: &str, until: Instant, undo: Undo) -> Result<(), Failed> {
        let mut state = self.state.lock().await;
        state.held.insert(lease.to_owned(), (until, undo.clone()));
        let said = hold(lease, until, undo);
        let told = self.tell(&mut state, &said).await;
        if told.is_err() {
            state.held.remove(lease);
        }
        told
    }

    /// What the lease stood for is undone.
    ///
    /// # Errors
    /// When that cannot be told: then it is undone once more, which does no harm.
    pub async fn release(&self, lease: &str) -> Result<(), Failed> {
        let mut state = self.state.lock().await;
        if state.held.remove(lease).is_none() {
            return Ok(());
        }
        self.tell(&mut state, &Said::Release { lease: lease.to_owned() }).await
    }

    /// Has it undone by the restorer, from now on.
    ///
    /// # Errors
    /// When that cannot be told: then it is undone at its end.
    pub async fn undo(&self, lease: &str) -> Result<(), Failed> {
        let mut state = self.state.lock().await;
        if state.held.remove(lease).is_none() {
            return Ok(());
        }
        self.tell(&mut state, &Said::Undo { lease: lease.to_owned() }).await
    }

    async fn tell(&self, state: &mut State, said: &Said) -> Result<(), Failed> {
        // A restorer may have been killed since the last word: once more to a new one.
        for _ in 0..2 {
            let link = self.linked(state).await?;
            if link.tell(said).await.is_ok() {
                return Ok(());
            }
            // One that hangs would undo what its successor holds.
            let _ = link.child.kill();
            let _ = link.child.wait();
            state.link = None;
        }
        Err(Failed::Unleased("it does not answer".to_owned()))
    }

    /// The running restorer, or a new one that has been told all that is held.
    async fn linked<'a>(&self, state: &'a mut State) -> Result<&'a mut Link, Failed> {
        let State { link, held } = state;
        if link.as_mut().is_some_and(|link| !matches!(link.child.try_wait(), Ok(None))) {
            *link = None;
        }
        if link.is_none() {
            let mut fresh = self.spawn().map_err(|error| Failed::Unleased(error.to_string()))?;
            for (lease, (until, undo)) in held {
                let told = fresh.tell(&hold(lease, *until, undo.clone())).await;
                told.map_err(|error| Failed::Unleased(error.to_string()))?;
            }
            *link = Some(fresh);
        }
        link.as_mut().ok_or_else(|| Failed::Unleased("it has not started".to_owned()))
    }

    fn spawn(&self) -> std::io::Result<Link> {
        let (ours, theirs) = UnixStream::pair()?;
        let theirs = theirs.into_std()?;
        theirs.set_nonblocking(false)?;
        let child = Command::new(&self.program)
            .arg0("sseismo")
            .arg(VERB)
            .stdin(Stdio::from(OwnedFd::from(theirs)))
            .stdout(Stdio::null())
            .spawn()?;
        Ok(Link { stream: BufReader::new(ours), child })
    }
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
