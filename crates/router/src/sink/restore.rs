//! The restorer: leases in from a relay, what they stand for undone when it says no more.
//!
//! It outlives the relay: when the relay is gone, by `kill -9` or otherwise, each lease still runs to its end and is
//! undone then, tried again until it succeeds. The process ends when nothing is left. SIGTERM (a service manager
//! that clears up after a dead relay) undoes all at once, and what cannot be undone in 8 s is given up; while the
//! relay is there it waits for the relay's end, since service managers stop both with one signal.
//!
//! What it cannot survive is what kills both at a time: the machine's end, or a container whose first process was
//! the relay. There a sink whose orders run out by themselves (Redis, Alertmanager) is the safe one.

use std::collections::BTreeMap;
use std::time::Duration;

use tokio::io::{AsyncBufReadExt as _, AsyncWriteExt as _, BufReader};
use tokio::net::UnixStream;
use tokio::sync::watch;
use tokio::task::{AbortHandle, JoinSet};
use tokio::time::Instant;

use super::Failed;
use super::lease::{Said, Undo};
use super::{envoy, haproxy_agent, haproxy_runtime};

/// A relay that is well undoes its own orders at their end; the restorer comes this much after.
const AFTER: Duration = Duration::from_millis(300);

/// Time between two tries, the first and the longest.
const AGAIN: [Duration; 2] = [Duration::from_millis(200), Duration::from_secs(5)];

/// A router that could not be reached for so long has been taken down, and forgets with its process.
const GIVE_UP: Duration = Duration::from_mins(10);

/// Service managers wait so long at least before they kill.
const HURRY: Duration = Duration::from_secs(8);

/// Follows the relay's words until it is gone and nothing is left to undo. `hurry`: undo all as soon as it is gone.
pub async fn restore(relay: UnixStream, mut hurry: watch::Receiver<bool>) {
    let (words, mut answers) = relay.into_split();
    let mut words = BufReader::new(words).lines();
    let (now, undo_now) = watch::channel(false);
    let mut leases = Leases { hurry: undo_now, running: BTreeMap::new(), tasks: JoinSet::new() };
    loop {
        let word = tokio::select! {
            word = words.next_line() => word,
            Some(_) = leases.tasks.join_next() => continue,
        };
        let Ok(Some(word)) = word else { break }; // the relay is gone
        match serde_json::from_str(&word) {
            Ok(said) => leases.take(said),
            Err(error) => tracing::warn!("a word of the relay cannot be read: {error}"),
        }
        if answers.write_all(b"\n").await.is_err() {
            break;
        }
    }
    // What was released has been stopped, but still counts until it is looked at.
    while leases.tasks.try_join_next().is_some() {}
    if !leases.tasks.is_empty() {
        tracing::warn!("the relay is gone; {} of its leases run out", leases.tasks.len());
    }
    let hurries = async {
        if hurry.wait_for(|hurry| *hurry).await.is_ok() {
            let _ = now.send(true);
        }
        std::future::pending::<()>().await;
    };
    tokio::select! {
        () = async { while leases.tasks.join_next().await.is_some() {} } => {}
        () = hurries => {}
    }
}

/// A task for each lease: it waits, and undoes.
struct Leases {
    hurry: watch::Receiver<bool>,
    running: BTreeMap<String, (Undo, AbortHandle)>,
    tasks: JoinSet<()>,
}

impl Leases {
    fn take(&mut self, said: Said) {
        match said {
            Said::Hold { lease, ttl_ms, undo } => {
                let now = Instant::now();
                let due = now.checked_add(Duration::from_millis(ttl_ms)).unwrap_or(now) + AFTER;
                self.start(lease, due, undo);
            }
            Said::Release { lease } => drop(self.stop(&lease)),
            Said::Undo { lease } => {
                if let Some(undo) = self.stop(&lease) {
                    self.start(lease, Instant::now(), undo);
                }
            }
        }
    }

    fn start(&mut self, lease: String, due: Instant, undo: Undo) {
        self.stop(&lease);
        let mut hurry = self.hurry.clone();
        let (name, todo) = (lease.clone(), undo.clone());
        let task = self.tasks.spawn(async move {
            tokio::select! {
                () = tokio::time::sleep_until(due) => {}
                Ok(_) = hurry.wait_for(|hurry| *hurry) => {}
            }
            tokio::select! {
                () = until_undone(&name, &todo) => {}
                () = hurried(&mut hurry) => tracing::warn!("{name}: given up, it stays as it is"),
            }
        });
        self.running.insert(lease, (undo, task));
    }

    fn stop(&mut self, lease: &str) -> Option<Undo> {
        let (undo, task) = self.running.remove(lease)?;
        task.abort();
        Some(undo)
    }
}

/// Returns when there has been a hurry for long enough.
async fn hurried(hurry: &mut watch::Receiver<bool>) {
    if hurry.wait_for(|hurry| *hurry).await.is_err() {
        std::future::pending::<()>().await; // there will be none
    }
    tokio::time::sleep(HURRY).await;
}

async fn until_undone(lease: &str, undo: &Undo) {
    let (until, mut wait) = (Instant::now() + GIVE_UP, AGAIN[0]);
    loop {
        match once(undo).await {
            Ok(()) => return tracing::warn!("{lease}: undone, since the relay said no more"),
            Err(error) if Instant::now() > until => {
                return tracing::warn!("{lease}: given up, it stays as it is: {error}");
            }
            Err(error) => tracing::warn!("{lease}: {error}; trying again"),
        }
        tokio::time::sleep(wait).await;
        wait = (wait * 2).min(AGAIN[1]);
    }
}

async fn once(undo: &Undo) -> Result<(), Failed> {
    match undo {
        Undo::HaproxyRuntime { socket, commands } => haproxy_runtime::say(socket, commands).await,
        Undo::HaproxyAgent { listen, answers } => haproxy_agent::stand_in(*listen, answers).await,
        Undo::Envoy { url } => envoy::post(&super::client()?, url).await,
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use tokio::io::AsyncReadExt as _;
    use tokio::net::UnixListener;
    use tokio::sync::Mutex;

    use super::*;

    /// A relay's end, the restorer on the other, and what HAProxy hears.
    struct Stand {
        relay: BufReader<UnixStream>,
        hurry: watch::Sender<bool>,
        restorer: tokio::task::JoinHandle<()>,
        heard: Arc<Mutex<Vec<String>>>,
        socket: String,
        _folder: tempfile::TempDir,
    }

    impl Stand {
        fn new() -> Self {
            let folder = tempfile::tempdir().unwrap();
            let socket = folder.path().join("sock").display().to_string();
            let listener = UnixListener::bind(&socket).unwrap();
            let heard = Arc::<Mutex<Vec<String>>>::default();
            let hears = Arc::clone(&heard);
            tokio::spawn(async move {
                while let Ok((mut stream, _)) = listener.accept().await {
                    let mut line = vec![0; 256];
                    let read = stream.read(&mut line).await.unwrap();
                    hears.lock().await.push(String::from_utf8_lossy(&line[..read]).trim().to_owned());
                }
            });
            let (ours, theirs) = UnixStream::pair().unwrap();
            let (hurry, hurried) = watch::channel(false);
            let restorer = tokio::spawn(restore(theirs, hurried));
            Self { relay: BufReader::new(ours), hurry, restorer, heard, socket, _folder: folder }
        }

        async fn say(&mut self, said: &Said) {
            let line = serde_json::to_string(said).unwrap() + "\n";
            self.relay.get_mut().write_all(line.as_bytes()).await.unwrap();
            let mut answer = String::new();
            self.relay.read_line(&mut answer).await.unwrap();
            assert_eq!(answer, "\n");
        }

        async fn hold(&mut self, lease: &str, ttl_ms: u64) {
            let undo = Undo::HaproxyRuntime { socket: self.socket.clone(), commands: vec![lease.to_owned()] };
            self.say(&Said::Hold { lease: lease.to_owned(), ttl_ms, undo }).await;
        }
    }

    #[tokio::test]
    async fn what_is_neither_repeated_nor_released_is_undone() {
        let mut stand = Stand::new();
        stand.hold("over", 50).await;
        stand.hold("released", 50).await;
        stand.hold("repeated", 50).await;
        stand.hold("asked", 600_000).await;
        stand.say(&Said::Release { lease: "released".to_owned() }).await;
        stand.hold("repeated", 600_000).await;
        stand.say(&Said::Undo { lease: "asked".to_owned() }).await;
        tokio::time::sleep(AFTER + Duration::from_millis(700)).await;
        let mut heard = stand.heard.lock().await.clone();
        heard.sort();
        assert_eq!(heard, ["asked", "over"]);
        assert!(!stand.restorer.is_finished(), "the relay is there");
    }

    #[tokio::test]
    async fn without_a_relay_leases_run_to_their_end_and_no_longer() {
        let mut stand = Stand::new();
        stand.hold("a", 400).await;
        stand.hold("b", 1).await;
        stand.say(&Said::Release { lease: "b".to_owned() }).await;
        let Stand { relay, restorer, heard, hurry: _hurry, _folder, .. } = stand;
        drop(relay);
        tokio::time::sleep(Duration::from_millis(300)).await;
        assert!(heard.lock().await.is_empty() && !restorer.is_finished());
        tokio::time::timeout(Duration::from_secs(5), restorer).await.expect("in time").unwrap();
        assert_eq!(*heard.lock().await, ["a"]);
    }

    #[tokio::test]
    async fn in_a_hurry_all_is_undone_at_once() {
        let mut stand = Stand::new();
        stand.hold("a", 600_000).await;
        stand.hurry.send(true).unwrap();
        tokio::time::sleep(Duration::from_millis(200)).await;
        assert!(stand.heard.lock().await.is_empty(), "the relay is there, and sees to it itself");
        let Stand { relay, restorer, heard, hurry: _hurry, _folder, .. } = stand;
        drop(relay);
        tokio::time::timeout(Duration::from_secs(5), restorer).await.expect("in time").unwrap();
        assert_eq!(*heard.lock().await, ["a"]);
    }
}
