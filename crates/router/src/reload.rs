//! A configuration that changes while the relay runs: file events and SIGHUP in, a new [`Router`] out.
//!
//! Every request takes the router that stands when it comes and keeps it to its end. A new router takes over
//! breakers, budgets, resting keys, learned waits and known issuers; a file with faults changes nothing and is
//! told with its lines. Files with keys and tokens count as parts of the configuration. Addresses and limits of
//! the listening socket are read at the start only.

use std::collections::BTreeSet;
use std::ffi::OsString;
use std::hash::{BuildHasher as _, BuildHasherDefault, DefaultHasher};
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use arc_swap::ArcSwap;
use notify::event::ModifyKind;
use notify::{EventKind, RecommendedWatcher, RecursiveMode, Watcher as _};
use tokio::sync::Notify;
use tokio::time::Instant;

use crate::affinity::Affinity;
use crate::choice::Router;
use crate::config::{self, Config, Fault, Server};
use crate::keys;

/// Editors and orchestrators change a file in several steps; one reading is enough.
const SETTLE: Duration = Duration::from_millis(200);

/// Files are looked at this often besides: some file systems tell nothing, and watches can run out.
const LOOK: Duration = Duration::from_secs(10);

/// Why a configuration cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum Unusable {
    /// The file cannot be read.
    #[error("cannot read {path}")]
    Unreadable {
        /// The file.
        path: PathBuf,
        /// Why not.
        source: std::io::Error,
    },
    /// It has faults.
    #[error("{path} has {} (sseismo relay --config {path} --check)", count(.faults))]
    Faulty {
        /// The file.
        path: PathBuf,
        /// What is wrong, by line.
        faults: Vec<Fault>,
    },
}

/// What a reading has changed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Change {
    /// Nothing: it is the text that is in use, or that was refused last time.
    Same,
    /// The new configuration is in use.
    New {
        /// `[server]`, the file of known issuers or a sink has changed, which takes a restart.
        restart: bool,
    },
}

/// The router in use.
#[derive(Debug)]
pub struct Live {
    path: PathBuf,
    router: ArcSwap<Router>,
    /// Of the text and files that were read last, used or not.
    fingerprint: Mutex<u64>,
    /// `[server]` as it was at the start.
    server: Server,
    /// The file of known issuers, as it was at the start.
    issuers: Option<PathBuf>,
    /// The sinks as they were at the start.
    sinks: String,
    /// Why the file could not be read last time: told once, however often is looked.
    unreadable: Mutex<String>,
}

impl Drop for Live {
    fn drop(&mut self) {
        self.save();
    }
}

impl Live {
    /// Reads the configuration for the first time. `seed` decides the draws of requests without a session.
    ///
    /// # Errors
    /// When it cannot be used.
    pub fn start(path: &Path, seed: u64, now: Instant) -> Result<Self, Unusable> {
        let (config, fingerprint) = load(path)?;
        let issuers = config.affinity.file.clone();
        let server = config.server.clone();
        let sinks = sinks(&config);
        let mut router = Router::new(config, &env, seed, now);
        if let Some(path) = &issuers {
            let known = Affinity::in_file(path);
            let known = known.map_err(|source| Unusable::Unreadable { path: path.clone(), source })?;
            router = router.knowing(known);
        }
        Ok(Self {
            issuers,
            sinks,
            unreadable: Mutex::default(),
            path: path.to_owned(),
            fingerprint: Mutex::new(fingerprint),
            server,
            router: ArcSwap::from_pointee(router),
        })
    }

    /// The router that stands now.
    pub fn router(&self) -> Arc<Router> {
        self.router.load_full()
    }

    /// Reads the file again; `force` also when nothing has changed, since keys in the environment of a file
    /// that names them may have.
    ///
    /// # Errors
    /// When it cannot be used: then the old one stays.
    pub fn reload(&self, force: bool, now: Instant) -> Result<Change, Unusable> {
        let mut last = self.fingerprint.lock().unwrap_or_else(PoisonError::into_inner);
        // A pipe may be read once, at the start; to wait for one now would hold up traffic.
        if std::fs::metadata(&self.path).is_ok_and(|meta| !meta.is_file() && !meta.is_dir()) {
            let source = std::io::Error::other("it is no regular file");
            return Err(Unusable::Unreadable { path: self.path.clone(), source });
        }
        let text = text(&self.path)?;
        let old = self.router();
        let fingerprint = fingerprint(&text, &old.config().files);
        if fingerprint == *last && !force {
            return Ok(Change::Same);
        }
        *last = fingerprint;
        let config = parse(&self.path, &text)?;
        *last = self::fingerprint(&text, &config.files);
        let restart = config.server != self.server
            || config.affinity.file != self.issuers
            || sinks(&config) != self.sinks;
        self.router.store(Arc::new(old.reconfigured(config, &env, now)));
        Ok(Change::New { restart })
    }

    /// Writes the known issuers to their file, where there is one.
    pub fn save(&self) {
        if let Err(error) = self.router().save_issuers() {
            tracing::warn!("the issuers of state cannot be written ({error}); a restart would forget them");
        }
    }

    /// [`reload`](Self::reload), told in the log.
    fn reload_and_tell(&self, force: bool) {
        let path = self.path.display();
        let reloaded = self.reload(force, Instant::now());
        let why = match &reloaded {
            Err(Unusable::Unreadable { source, .. }) => source.to_string(),
            _ => String::new(),
        };
        let before = std::mem::replace(
            &mut *self.unreadable.lock().unwrap_or_else(PoisonError::into_inner),
            why.clone(),
        );
        match reloaded {
            Ok(Change::Same) if !before.is_empty() => {
                tracing::info!("{path}: can be read again, and is the configuration in use");
            }
            Ok(Change::Same) => {}
            Ok(Change::New { restart }) => {
                tracing::info!("{path}: the new configuration is in use");
                if restart {
                    tracing::warn!(
                        "{path}: changes of [server], of [affinity] file and of [[sink]] take a restart"
                    );
                }
            }
            Err(Unusable::Unreadable { .. }) if why == before && !force => {}
            Err(Unusable::Unreadable { path, source }) => {
                tracing::warn!("cannot read {}: {source}; the old configuration stays", path.display());
            }
            Err(Unusable::Faulty { faults, .. }) => {
                for fault in &faults {
                    tracing::warn!("{path}: {fault}");
                }
                tracing::warn!("{path}: {}; the old configuration stays", count(&faults));
            }
        }
    }
}

/// Follows changes for as long as it is polled: file events, SIGHUP, and a look every ten seconds, at which the
/// known issuers are written, too.
pub async fn follow(live: Arc<Live>) {
    let changed = Arc::new(Notify::new());
    let mut watches = Watches::new(&changed);
    let mut look = tokio::time::interval(LOOK);
    look.set_missed_tick_behavior(tokio::time::MissedTickBehavior::Delay);
    let mut hangup = tokio::signal::unix::signal(tokio::signal::unix::SignalKind::hangup()).ok();
    loop {
        watches.cover(&live.path, &live.router().config().files);
        let force = tokio::select! {
            _ = look.tick() => false,
            () = changed.notified() => {
                tokio::time::sleep(SETTLE).await;
                false
            }
            Some(()) = hung_up(&mut hangup) => true,
        };
        live.reload_and_tell(force);
        live.save();
    }
}

/// The next SIGHUP; never, where signals cannot be caught.
async fn hung_up(hangup: &mut Option<tokio::signal::unix::Signal>) -> Option<()> {
    match hangup {
        Some(hangup) => hangup.recv().await,
        None => std::future::pending().await,
    }
}

/// Watches folders, not files: an editor replaces a file, and a watch on the old one sees nothing more.
struct Watches {
    watcher: Option<RecommendedWatcher>,
    folders: BTreeSet<PathBuf>,
    names: Arc<Mutex<BTreeSet<OsString>>>,
}

impl Watches {
    fn new(changed: &Arc<Notify>) -> Self {
        let changed = changed.clone();
        let names = Arc::<Mutex<BTreeSet<OsString>>>::default();
        let ours = Arc::clone(&names);
        let watcher = notify::recommended_watcher(move |event: notify::Result<notify::Event>| {
            let concerns =
                |event: &notify::Event| concerns(event, &ours.lock().unwrap_or_else(PoisonError::into_inner));
            if event.is_ok_and(|event| concerns(&event)) {
                changed.notify_one();
            }
        });
        if let Err(error) = &watcher {
            tracing::warn!("files cannot be watched ({error}); they are looked at every {LOOK:?}");
        }
        Self { watcher: watcher.ok(), folders: BTreeSet::new(), names }
    }

    /// Watches the folders of all these files, as far as it can.
    fn cover(&mut self, path: &Path, files: &[PathBuf]) {
        let Some(watcher) = &mut self.watcher else { return };
        for file in files.iter().map(PathBuf::as_path).chain([path]) {
            if let Some(name) = file.file_name() {
                self.names.lock().unwrap_or_else(PoisonError::into_inner).insert(name.to_owned());
            }
            let folder = match file.parent() {
                Some(folder) if !folder.as_os_str().is_empty() => folder,
                _ => Path::new("."),
            };
            if self.folders.insert(folder.to_owned())
                && let Err(error) = watcher.watch(folder, RecursiveMode::NonRecursive)
            {
                tracing::warn!(
                    "{} cannot be watched ({error}); it is looked at every {LOOK:?}",
                    folder.display()
                );
            }
        }
    }
}

/// Whether what happened in a watched folder may have changed one of our files. Whatever comes, goes or gets a new
/// name may be what a link of ours points to; writing to a file that is not ours, a log say, is nothing.
fn concerns(event: &notify::Event, names: &BTreeSet<OsString>) -> bool {
    let is_ours = |path: &PathBuf| path.file_name().is_some_and(|name| names.contains(name));
    match event.kind {
        EventKind::Access(_) => false,
        EventKind::Modify(ModifyKind::Data(_)) => event.paths.iter().any(is_ours),
        _ => true,
    }
}

/// Reads and checks a configuration file.
///
/// # Errors
/// When it cannot be used.
pub fn read(path: &Path) -> Result<Config, Unusable> {
    load(path).map(|(config, _)| config)
}

fn load(path: &Path) -> Result<(Config, u64), Unusable> {
    let text = text(path)?;
    let config = parse(path, &text)?;
    let fingerprint = fingerprint(&text, &config.files);
    Ok((config, fingerprint))
}

fn text(path: &Path) -> Result<String, Unusable> {
    std::fs::read_to_string(path).map_err(|source| Unusable::Unreadable { path: path.to_owned(), source })
}

fn parse(path: &Path, text: &str) -> Result<Config, Unusable> {
    config::check(text, path).map_err(|faults| Unusable::Faulty { path: path.to_owned(), faults })
}

/// Changes when the text or one of the files does.
fn fingerprint(text: &str, files: &[PathBuf]) -> u64 {
    let contents: Vec<Option<String>> = files.iter().map(|file| keys::contents(file).ok()).collect();
    BuildHasherDefault::<DefaultHasher>::default().hash_one((text, contents))
}

fn env(name: &str) -> Option<String> {
    std::env::var(name).ok()
}

/// All that sinks are told, to be compared. Their secrets are not shown, so a changed one is not noticed.
#[cfg(feature = "sinks")]
fn sinks(config: &Config) -> String {
    format!("{:?}", config.sinks)
}

#[cfg(not(feature = "sinks"))]
fn sinks(_: &Config) -> String {
    String::new()
}

fn count(faults: &[Fault]) -> String {
    match faults.len() {
        1 => "1 fault".to_owned(),
        faults => format!("{faults} faults"),
    }
}

#[cfg(test)]
mod tests;
