//! HAProxy's agent check: HAProxy connects, says whom it asks for, and gets one line.
//!
//! ```text
//! server a 10.0.0.1:443 weight 100 agent-check agent-addr 127.0.0.1 agent-port 8901 agent-inter 1s agent-send "a\n"
//! ```
//!
//! One socket answers for all servers: `agent-send` says which one, by the target's `asks` (the upstream's name
//! unless stated). The answer is the weight, `0%` to `100%` of the server's configured one: after `0%` a plain
//! `100%` brings it back. With `drain = "state"` it is `drain` at 0 and `ready NN%` otherwise, since after `drain`
//! only `ready` does; that ends a maintenance, too, that somebody else has set. Who asks for a name that is not
//! configured is answered nothing, and HAProxy keeps what it has.
//!
//! HAProxy counts weights in whole numbers: give its servers `weight 100`, or a share of 25 % is none.
//!
//! **Without the relay** HAProxy keeps the last answer: for an agent that is gone it has no opinion of its own, so
//! this form does not fail open alone. The restorer takes the agent's place, at the same address, at the end of the
//! order, and answers that all is well until every name has been asked for, and for [`STAND_IN`] at least, since
//! more than one HAProxy may ask. A relay that hangs keeps the address and answers nothing: then its order stays until
//! it is killed or goes on. Over the Runtime API that case is covered, too.

use std::collections::{BTreeMap, BTreeSet};
use std::net::SocketAddr;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use tokio::io::{AsyncBufReadExt as _, AsyncReadExt as _, AsyncWriteExt as _, BufReader};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::Semaphore;
use tokio::task::JoinHandle;
use tokio::time::{Instant, timeout};

use super::lease::{Restorer, Undo};
use super::standing::{Standing, Target, Want};
use super::{Doing, Failed, Plan, Sink};
use crate::config::sink::Reading;

/// How often the state is looked at while an order stands; HAProxy asks at its own pace.
const EVERY: Duration = Duration::from_secs(1);

/// HAProxy says at once whom it asks for.
const PATIENCE: Duration = Duration::from_secs(1);

/// Checks at once; each takes a millisecond.
const CHECKS: usize = 256;

/// A server is back when HAProxy has been told so; until then the lease is kept this much longer each time.
const LINGER: Duration = Duration::from_secs(5);

/// The restorer answers at least so long.
const STAND_IN: Duration = Duration::from_secs(5);

/// The restorer waits at most so long to be asked: a HAProxy that does not ask has been taken down.
const UNASKED: Duration = Duration::from_mins(5);

#[derive(Clone, Debug)]
struct Agent {
    listen: SocketAddr,
    targets: Vec<Target<String>>,
    drain_state: bool,
}

/// Reads its keys.
pub(super) fn read(reading: &Reading<'_>) -> Option<Arc<dyn Plan>> {
    let section = reading.section;
    let listen = section.needed("listen").and_then(|text| {
        let listen = text.parse().ok();
        if listen.is_none() {
            section.fault("listen", "`listen` must be an address such as \"127.0.0.1:8901\"");
        }
        listen
    });
    let drain_state = reading.drain_state();
    let targets = reading.targets(|target| {
        let asks = target.text("asks").or_else(|| target.text("upstream"))?;
        Some((asks.to_owned(), String::new()))
    });
    Some(Arc::new(Agent { listen: listen?, targets, drain_state }))
}

impl Agent {
    fn line(&self, want: Want) -> String {
        match (self.drain_state, want.is_drained()) {
            (false, _) => format!("{}%", want.percent()),
            (true, true) => "drain".to_owned(),
            (true, false) => format!("ready {}%", want.percent()),
        }
    }
}

impl Plan for Agent {
    fn leases(&self) -> bool {
        true
    }

    fn sink(&self, name: &str, restorer: &Restorer) -> Result<Box<dyn Sink>, Failed> {
        let well = self.targets.iter().map(|target| (target.own.clone(), self.line(Want::ALL))).collect();
        let answers = Arc::new(Answers { lines: Mutex::new(well), told: Mutex::default() });
        let serving = tokio::spawn(serve(self.listen, Arc::clone(&answers), name.to_owned()));
        Ok(Box::new(Answering {
            lease: format!("{name} {}", self.listen),
            plan: self.clone(),
            restorer: restorer.clone(),
            answers,
            serving,
            touched: BTreeSet::new(),
        }))
    }
}

/// What is answered, by name, and what was answered last.
#[derive(Debug)]
struct Answers {
    lines: Mutex<BTreeMap<String, String>>,
    told: Mutex<BTreeMap<String, String>>,
}

impl Answers {
    fn set(&self, name: &str, line: String) {
        self.lines.lock().unwrap_or_else(PoisonError::into_inner).insert(name.to_owned(), line);
    }

    fn get(&self, name: &str) -> Option<String> {
        self.lines.lock().unwrap_or_else(PoisonError::into_inner).get(name).cloned()
    }

    fn told(&self, name: String, line: String) {
        self.told.lock().unwrap_or_else(PoisonError::into_inner).insert(name, line);
    }

    /// Whether what is right now was what was answered last.
    fn is_known(&self, name: &str) -> bool {
        let told = self.told.lock().unwrap_or_else(PoisonError::into_inner).get(name).cloned();
        told.is_some() && told == self.get(name)
    }
}

struct Answering {
    lease: String,
    plan: Agent,
    restorer: Restorer,
    answers: Arc<Answers>,
    serving: JoinHandle<()>,
    /// Names whose last answer that HAProxy got may be less than all.
    touched: BTreeSet<String>,
}

impl Drop for Answering {
    fn drop(&mut self) {
        self.serving.abort();
    }
}

impl Sink for Answering {
    fn every(&self) -> Duration {
        EVERY
    }

    fn steer<'a>(&'a mut self, standing: &'a Standing) -> Doing<'a> {
        Box::pin(async move {
            let wants = standing.wants(&self.plan.targets, Want::is_drained);
            let mut until = None;
            for (target, want) in self.plan.targets.iter().zip(&wants) {
                if !want.is_restored() {
                    self.touched.insert(target.own.clone());
                    until = until.min(want.until).or(want.until);
                }
            }
            if let Some(until) = until {
                self.hold(until).await?;
            }
            for (target, want) in self.plan.targets.iter().zip(&wants) {
                self.answers.set(&target.own, self.plan.line(*want));
                if want.is_restored() && self.answers.is_known(&target.own) {
                    self.touched.remove(&target.own);
                }
            }
            match (until, self.touched.is_empty()) {
                (Some(_), _) => Ok(()),
                (None, true) => self.restorer.release(&self.lease).await,
                // Nothing stands, but HAProxy does not know yet.
                (None, false) => self.hold(Instant::now() + LINGER).await,
            }
        })
    }

    fn unfinished(&self) -> bool {
        !self.touched.is_empty()
    }

    fn end(&mut self) -> Doing<'_> {
        Box::pin(async move {
            // The address is the restorer's from here on.
            self.serving.abort();
            self.restorer.undo(&self.lease).await
        })
    }
}

impl Answering {
    async fn hold(&self, until: Instant) -> Result<(), Failed> {
        let answers = self.touched.iter().map(|name| (name.clone(), self.plan.line(Want::ALL))).collect();
        let undo = Undo::HaproxyAgent { listen: self.plan.listen, answers };
        self.restorer.hold(&self.lease, until, undo).await
    }
}

/// Answers for as long as it is polled. The address may be held by the restorer of a relay that was killed.
async fn serve(listen: SocketAddr, answers: Arc<Answers>, sink: String) {
    let mut told = false;
    let listener = loop {
        match TcpListener::bind(listen).await {
            Ok(listener) => break listener,
            Err(error) if !told => tracing::warn!("sink {sink}: cannot listen on {listen} yet: {error}"),
            Err(_) => {}
        }
        told = true;
        tokio::time::sleep(Duration::from_millis(500)).await;
    };
    let room = Arc::new(Semaphore::new(CHECKS));
    loop {
        match listener.accept().await {
            Ok((stream, _)) => {
                let answers = Arc::clone(&answers);
                // Closed at once where there are too many: HAProxy keeps what it has and asks again.
                let Ok(place) = Arc::clone(&room).try_acquire_owned() else { continue };
                tokio::spawn(async move {
                    let _place = place;
                    let line = |name: &str| answers.get(name);
                    if let Some((name, line)) = answer(stream, line).await {
                        answers.told(name, line);
                    }
                });
            }
            Err(_) => tokio::time::sleep(Duration::from_millis(50)).await, // out of file descriptors
        }
    }
}

/// Answers one check; yields the name that was answered for, and the answer.
async fn answer(stream: TcpStream, line: impl Fn(&str) -> Option<String>) -> Option<(String, String)> {
    let talk = async {
        let mut stream = BufReader::new(stream);
        let mut name = String::new();
        (&mut stream).take(256).read_line(&mut name).await.ok()?;
        let name = name.trim();
        let line = line(name)?;
        stream.get_mut().write_all(format!("{line}\n").as_bytes()).await.ok()?;
        stream.get_mut().shutdown().await.ok()?;
        Some((name.to_owned(), line))
    };
    timeout(PATIENCE, talk).await.ok().flatten()
}

/// Answers in the relay's place until each name has been asked for, and long enough for others to ask, too.
///
/// # Errors
/// When the address is not free: then the relay, or another, answers there.
pub(super) async fn stand_in(listen: SocketAddr, answers: &BTreeMap<String, String>) -> Result<(), Failed> {
    let listener = TcpListener::bind(listen).await;
    let listener = listener.map_err(|error| Failed::unreachable(&listen.to_string(), &error))?;
    let (since, mut unasked) = (Instant::now(), answers.keys().collect::<BTreeSet<_>>());
    loop {
        let end = since + if unasked.is_empty() { STAND_IN } else { UNASKED };
        let Ok(accepted) = tokio::time::timeout_at(end, listener.accept()).await else { return Ok(()) };
        match accepted {
            Ok((stream, _)) => {
                if let Some((name, _)) = answer(stream, |name| answers.get(name).cloned()).await {
                    unasked.remove(&name);
                }
            }
            Err(_) => tokio::time::sleep(Duration::from_millis(50)).await,
        }
    }
}
