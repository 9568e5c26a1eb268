//! HAProxy's Runtime API: weights of servers, set over its stats socket.
//!
//! A share of 0.25 is `set server BACKEND/SERVER weight 25%`, relative to the weight in HAProxy's own
//! configuration; 0 is `weight 0%`, which takes new sessions away and lets those that are bound to the server end
//! there, as its drain state does, and leaves its administrative state to the people who set it. With
//! `drain = "state"` 0 is `set server … state drain` instead, and `state ready` brings it back, from a maintenance,
//! too, that somebody else may have set meanwhile.
//!
//! HAProxy counts weights in whole numbers: give its servers `weight 100`, or a share of 25 % is none. Its socket
//! needs `level admin`.
//!
//! **Without the relay** a weight stays as it is: HAProxy forgets nothing. It does not fail open alone; the
//! restorer sets it back within a second after the order's end. A HAProxy that is started anew has its configured
//! weights, and is told again within [`EVERY`].

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;

use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::{TcpStream, UnixStream};
use tokio::time::timeout;

use super::lease::{Restorer, Undo};
use super::standing::{Standing, Target, Want};
use super::{Doing, Failed, Plan, Sink};
use crate::config::sink::Reading;

/// What stands is said again this often.
const EVERY: Duration = Duration::from_secs(2);

/// Its socket is on this machine or near, and answers within a millisecond.
const PATIENCE: Duration = Duration::from_secs(2);

#[derive(Clone, Debug)]
struct Runtime {
    socket: String,
    targets: Vec<Target<String>>,
    drain_state: bool,
}

/// Reads its keys.
pub(super) fn read(reading: &Reading<'_>) -> Option<Arc<dyn Plan>> {
    let section = reading.section;
    let socket = section.needed("socket");
    if let Some(socket) = socket
        && !socket.starts_with('/')
        && socket.rsplit_once(':').is_none_or(|(_, port)| port.parse::<u16>().is_err())
    {
        section.fault(
            "socket",
            "`socket` must be a path that begins with /, or host and port such as \"127.0.0.1:9999\"",
        );
    }
    let drain_state = reading.drain_state();
    let targets = reading.targets(|target| {
        let server = target.needed("server")?;
        let (backend, name) = server.split_once('/').unwrap_or_default();
        if word(backend) && word(name) {
            return Some((server.to_owned(), backend.to_owned()));
        }
        target.fault("server", "`server` must be BACKEND/SERVER, as in HAProxy's configuration");
        None
    });
    Some(Arc::new(Runtime { socket: socket?.to_owned(), targets, drain_state }))
}

/// Names that cannot end a command.
fn word(name: &str) -> bool {
    !name.is_empty() && name.chars().all(|c| c.is_ascii_alphanumeric() || "-_.:".contains(c))
}

impl Plan for Runtime {
    fn leases(&self) -> bool {
        true
    }

    fn sink(&self, name: &str, restorer: &Restorer) -> Result<Box<dyn Sink>, Failed> {
        Ok(Box::new(Steering {
            name: name.to_owned(),
            plan: self.clone(),
            restorer: restorer.clone(),
            touched: BTreeSet::new(),
        }))
    }
}

struct Steering {
    name: String,
    plan: Runtime,
    restorer: Restorer,
    /// Servers that do not have their configured weight because of us.
    touched: BTreeSet<String>,
}

impl Sink for Steering {
    fn every(&self) -> Duration {
        EVERY
    }

    fn steer<'a>(&'a mut self, standing: &'a Standing) -> Doing<'a> {
        Box::pin(async move {
            let wants = standing.wants(&self.plan.targets, Want::is_drained);
            let mut failed = None;
            for (target, want) in self.plan.targets.clone().iter().zip(wants) {
                if let Err(error) = self.set(&target.own, want).await {
                    failed = Some(error);
                }
            }
            failed.map_or(Ok(()), Err)
        })
    }
}

impl Steering {
    async fn set(&mut self, server: &str, want: Want) -> Result<(), Failed> {
        let lease = format!("{} {server}", self.name);
        let Some(until) = want.until.filter(|_| !want.is_restored()) else {
            if self.touched.contains(server) {
                say(&self.plan.socket, &self.commands(server, Want::ALL)).await?;
                self.touched.remove(server);
                self.restorer.release(&lease).await?;
            }
            return Ok(());
        };
        let undo = Undo::HaproxyRuntime {
            socket: self.plan.socket.clone(),
            commands: self.commands(server, Want::ALL),
        };
        self.restorer.hold(&lease, until, undo).await?;
        self.touched.insert(server.to_owned());
        say(&self.plan.socket, &self.commands(server, want)).await
    }

    fn commands(&self, server: &str, want: Want) -> Vec<String> {
        let mut commands = Vec::new();
        let drained = self.plan.drain_state && want.is_drained();
        if self.plan.drain_state {
            let state = if drained { "drain" } else { "ready" };
            commands.push(format!("set server {server} state {state}"));
        }
        if !drained {
            commands.push(format!("set server {server} weight {}%", want.percent()));
        }
        commands
    }
}

/// Says commands, which HAProxy answers with nothing when it does them.
///
/// # Errors
/// When it cannot be reached, or answers.
pub(super) async fn say(socket: &str, commands: &[String]) -> Result<(), Failed> {
    let line = commands.join("; ") + "\n";
    let talk = async {
        let mut answer = Vec::new();
        if socket.starts_with('/') {
            exchange(UnixStream::connect(socket).await?, &line, &mut answer).await?;
        } else {
            exchange(TcpStream::connect(socket).await?, &line, &mut answer).await?;
        }
        Ok::<_, std::io::Error>(answer)
    };
    let answer = timeout(PATIENCE, talk).await.map_err(|_| Failed::TimedOut)?;
    let answer = answer.map_err(|error| Failed::unreachable(socket, &error))?;
    let answer = String::from_utf8_lossy(&answer);
    if answer.trim().is_empty() { Ok(()) } else { Err(Failed::refused("HAProxy", &answer)) }
}

async fn exchange<S>(mut stream: S, line: &str, answer: &mut Vec<u8>) -> std::io::Result<()>
where
    S: tokio::io::AsyncRead + tokio::io::AsyncWrite + Unpin,
{
    stream.write_all(line.as_bytes()).await?;
    stream.take(64 << 10).read_to_end(answer).await?;
    Ok(())
}
