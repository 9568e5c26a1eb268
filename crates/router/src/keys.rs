//! The keys of an upstream: where they are kept, which one is used next, which ones rest.
//!
//! In: names of environment variables and files. Out: a [`Key`] for one request, or the time at which one is
//! free again. A key that met its limit rests for that model alone; one that is refused or out of money rests
//! for all. Keys never reach a log, a trace or an error: [`Secret`] prints as `***`.

use std::collections::HashMap;
use std::fmt;
use std::io::Read as _;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use tokio::time::Instant;

/// Bytes of a file with a key or tokens; ten thousand callers fit.
const MAX_FILE: u64 = 1 << 20;

/// Reads an environment variable; tests put their own here.
pub type Env<'a> = &'a dyn Fn(&str) -> Option<String>;

/// A secret that cannot be printed by accident.
#[derive(Clone, PartialEq, Eq)]
pub struct Secret(Arc<str>);

impl Secret {
    /// The secret itself: for the header that carries it and nothing else.
    pub fn expose(&self) -> &str {
        &self.0
    }
}

impl fmt::Debug for Secret {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("***")
    }
}

/// Where a secret is kept: `env:NAME` or `file:PATH`.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum Source {
    /// In an environment variable.
    Env(String),
    /// In a file, alone; white space around it does not count.
    File(PathBuf),
}

/// Why a source cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum BadSource {
    /// Neither form.
    #[error("expected \"env:NAME\" or \"file:PATH\"; a key itself must never stand here")]
    Form,
    /// The variable does not exist.
    #[error("the environment variable {0} is not set")]
    Unset(String),
    /// The file cannot be read.
    #[error("cannot read {path}")]
    Unreadable {
        /// The file.
        path: PathBuf,
        /// Why not.
        source: std::io::Error,
    },
    /// Nothing in it.
    #[error("{0} is empty")]
    Empty(Source),
    /// White space or control characters inside: a header cannot carry it, or something was pasted twice.
    #[error("{0} holds a key with spaces, line ends or characters that no header can carry")]
    Spaces(Source),
}

impl fmt::Display for Source {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Env(name) => write!(f, "the environment variable {name}"),
            Self::File(path) => write!(f, "{}", path.display()),
        }
    }
}

impl Source {
    /// Reads `env:NAME` or `file:PATH`; a relative path begins at `folder`.
    ///
    /// # Errors
    /// When it is neither. The text is not repeated: it may be a key.
    pub fn parse(text: &str, folder: &Path) -> Result<Self, BadSource> {
        match text.split_once(':') {
            Some(("env", name)) if !name.is_empty() && !name.contains(char::is_whitespace) => {
                Ok(Self::Env(name.to_owned()))
            }
            Some(("file", path)) if !path.is_empty() => Ok(Self::File(folder.join(path))),
            _ => Err(BadSource::Form),
        }
    }

    /// The file, if it is one.
    pub fn file(&self) -> Option<&Path> {
        match self {
            Self::Env(_) => None,
            Self::File(path) => Some(path),
        }
    }

    /// The text kept there, without white space around it.
    ///
    /// # Errors
    /// When there is none.
    pub fn text(&self, env: Env<'_>) -> Result<String, BadSource> {
        let text = match self {
            Self::Env(name) => env(name).ok_or_else(|| BadSource::Unset(name.clone()))?,
            Self::File(path) => {
                contents(path).map_err(|source| BadSource::Unreadable { path: path.clone(), source })?
            }
        };
        match text.trim() {
            "" => Err(BadSource::Empty(self.clone())),
            text => Ok(text.to_owned()),
        }
    }

    /// The one secret kept there.
    ///
    /// # Errors
    /// When there is none, or one that no header can carry.
    pub fn read(&self, env: Env<'_>) -> Result<Secret, BadSource> {
        let text = self.text(env)?;
        if !text.chars().all(|c| c.is_ascii_graphic()) {
            return Err(BadSource::Spaces(self.clone()));
        }
        Ok(Secret(text.into()))
    }
}

/// What stands in a small file. A device or a pipe might never end, and would keep the relay from starting.
pub(crate) fn contents(path: &Path) -> std::io::Result<String> {
    let unfit = |why: &str| Err(std::io::Error::new(std::io::ErrorKind::InvalidInput, why));
    let kind = std::fs::metadata(path)?;
    if !kind.is_file() && !kind.is_dir() {
        return unfit("it is no regular file");
    }
    let mut text = String::new();
    std::fs::File::open(path)?.take(MAX_FILE + 1).read_to_string(&mut text)?;
    if text.len() as u64 > MAX_FILE { unfit("it is larger than 1 MiB") } else { Ok(text) }
}

/// One key, chosen for one request.
#[derive(Clone, Debug)]
pub struct Key {
    /// Its place in the configuration, from 0: what records and metrics call it.
    pub slot: u16,
    /// The key.
    pub secret: Secret,
}

/// What a keyring offers.
#[derive(Clone, Debug)]
pub enum Pick {
    /// The upstream takes requests without a key.
    Keyless,
    /// This one.
    Key(Key),
    /// None before then.
    Resting {
        /// When the first one has rested.
        until: Instant,
        /// The upstream asked for the wait.
        asked: bool,
    },
    /// None at all: no source can be read, or all were used for this request.
    None,
}

/// The keys of one upstream.
#[derive(Debug, Default)]
pub struct Keyring {
    slots: Vec<Slot>,
    turn: AtomicUsize,
}

#[derive(Debug)]
struct Slot {
    source: Source,
    secret: Option<Secret>,
    /// Until when it rests, by model; `None` stands for all models.
    rests: Mutex<HashMap<Option<Arc<str>>, Rest>>,
}

#[derive(Clone, Copy, Debug)]
struct Rest {
    until: Instant,
    asked: bool,
}

impl Keyring {
    /// Reads all sources; one that cannot be read is never picked.
    pub fn new(sources: &[Source], env: Env<'_>) -> Self {
        let slot = |source: &Source| Slot {
            source: source.clone(),
            secret: source.read(env).ok(),
            rests: Mutex::default(),
        };
        Self { slots: sources.iter().map(slot).collect(), turn: AtomicUsize::new(0) }
    }

    /// Whether it holds the same keys in the same places.
    pub fn has_the_keys_of(&self, other: &Self) -> bool {
        let keys = |ring: &Self| -> Vec<_> {
            ring.slots.iter().map(|slot| (slot.source.clone(), slot.secret.clone())).collect()
        };
        keys(self) == keys(other)
    }

    /// Takes over which keys of `old` rest, as far as they are the same.
    pub fn take_over(&self, old: &Self) {
        for slot in &self.slots {
            let same = |other: &&Slot| other.source == slot.source && other.secret == slot.secret;
            if let Some(other) = old.slots.iter().find(same) {
                let rests = locked(&other.rests).clone();
                *locked(&slot.rests) = rests;
            }
        }
    }

    /// The next key by turns that is not in `used` and does not rest for `model`. With `force` a key may be used
    /// although it rests, unless the upstream asked for the wait.
    pub fn pick(&self, model: &str, used: &[u16], force: bool, now: Instant) -> Pick {
        if self.slots.is_empty() {
            return if used.is_empty() { Pick::Keyless } else { Pick::None };
        }
        let first = self.turn.fetch_add(1, Ordering::Relaxed);
        let mut soonest: Option<Rest> = None;
        for place in (0..self.slots.len()).map(|step| first.wrapping_add(step) % self.slots.len()) {
            let Ok(number) = u16::try_from(place) else { continue };
            let (slot, secret) = (&self.slots[place], self.slots[place].secret.clone());
            let Some(secret) = secret.filter(|_| !used.contains(&number)) else { continue };
            match slot.resting(model, now) {
                None => return Pick::Key(Key { slot: number, secret }),
                Some(rest) if force && !rest.asked => return Pick::Key(Key { slot: number, secret }),
                Some(rest) => {
                    soonest = Some(soonest.filter(|soonest| soonest.until <= rest.until).unwrap_or(rest));
                }
            }
        }
        soonest.map_or(Pick::None, |Rest { until, asked }| Pick::Resting { until, asked })
    }

    /// Lets a key rest until then, for one model or for all; `asked`: because the upstream said so. An end that
    /// is set already is never shortened.
    pub fn rest(&self, slot: u16, model: Option<&Arc<str>>, until: Instant, asked: bool) {
        let Some(slot) = self.slots.get(usize::from(slot)) else { return };
        let mut rests = locked(&slot.rests);
        let rest = rests.entry(model.cloned()).or_insert(Rest { until, asked });
        if until > rest.until {
            *rest = Rest { until, asked };
        }
    }

    /// How many keys there are, and how many of them rest for `model`.
    pub fn resting(&self, model: &str, now: Instant) -> (usize, usize) {
        (self.slots.len(), self.slots.iter().filter(|slot| slot.resting(model, now).is_some()).count())
    }
}

impl Slot {
    fn resting(&self, model: &str, now: Instant) -> Option<Rest> {
        let mut rests = locked(&self.rests);
        rests.retain(|_, rest| rest.until > now);
        let here = rests.iter().filter(|(of, _)| of.as_deref().is_none_or(|of| of == model));
        here.map(|(_, rest)| *rest).max_by_key(|rest| rest.until)
    }
}

/// A poisoned lock is used on: the values under it are replaced whole.
fn locked<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    fn env(name: &str) -> Option<String> {
        match name {
            "A" => Some(" key-a\n".to_owned()),
            "B" => Some("key-b".to_owned()),
            "SPACED" => Some("key a".to_owned()),
            "EMPTY" => Some("  ".to_owned()),
            _ => None,
        }
    }

    fn ring(names: &[&str]) -> Keyring {
        let sources: Vec<Source> = names.iter().map(|name| Source::Env((*name).to_owned())).collect();
        Keyring::new(&sources, &env)
    }

    fn slot(pick: &Pick) -> Option<u16> {
        match pick {
            Pick::Key(key) => Some(key.slot),
            Pick::Keyless | Pick::Resting { .. } | Pick::None => None,
        }
    }

    #[test]
    fn what_never_ends_is_not_read_as_a_key() {
        let folder = tempfile::tempdir().unwrap();
        let large = folder.path().join("large");
        std::fs::write(&large, "k".repeat(2 << 20)).unwrap();
        for (path, why) in [(Path::new("/dev/zero"), "no regular file"), (&large, "larger than 1 MiB")] {
            let error = Source::File(path.to_owned()).read(&env).unwrap_err();
            let cause = std::error::Error::source(&error).unwrap().to_string();
            assert!(cause.contains(why), "{error}: {cause}");
        }
    }

    #[test]
    fn keys_take_turns_and_rest_apart() {
        let (ring, now) = (ring(&["A", "B"]), Instant::now());
        let model: Arc<str> = "m".into();
        let turns: Vec<_> = (0..4).map(|_| slot(&ring.pick("m", &[], false, now))).collect();
        assert_eq!(turns, [Some(0), Some(1), Some(0), Some(1)]);
        let later = now + Duration::from_secs(9);
        ring.rest(0, Some(&model), later, true);
        ring.rest(0, Some(&model), now + Duration::from_secs(1), false);
        assert!((0..4).all(|_| slot(&ring.pick("m", &[], false, now)) == Some(1)));
        assert!((0..4).any(|_| slot(&ring.pick("other", &[], false, now)) == Some(0)));
        assert!(
            matches!(ring.pick("m", &[1], false, now), Pick::Resting { until, asked: true } if until == later)
        );
        ring.rest(1, None, later, false);
        assert!((0..4).all(|_| slot(&ring.pick("other", &[], false, now)) == Some(0)));
        // The last resort: what rests by our own choice may be used, what was asked for may not.
        assert!((0..4).all(|_| slot(&ring.pick("m", &[], true, now)) == Some(1)));
        assert_eq!(slot(&ring.pick("m", &[1], false, later)), Some(0));
    }

    #[test]
    fn an_upstream_without_keys_is_asked_without_one_and_once() {
        let ring = ring(&[]);
        assert!(matches!(ring.pick("m", &[], false, Instant::now()), Pick::Keyless));
    }

    #[test]
    fn no_debug_form_holds_a_key() {
        let ring = ring(&["A", "B"]);
        let text = format!("{ring:?} {:?}", ring.pick("m", &[], false, Instant::now()));
        assert!(!text.contains("key-a") && !text.contains("key-b"), "{text}");
    }

    #[test]
    fn bad_sources_say_what_is_wrong_without_saying_the_key() {
        let folder = Path::new("/etc/relay");
        assert_eq!(Source::parse("file:k", folder).unwrap(), Source::File("/etc/relay/k".into()));
        assert!(!Source::parse("sk-live-123", folder).unwrap_err().to_string().contains("123"));
        let read = |name: &str| Source::Env(name.to_owned()).read(&env).unwrap_err().to_string();
        assert!(read("NONE").contains("NONE is not set"));
        assert!(read("EMPTY").contains("EMPTY is empty"));
        assert!(read("SPACED").contains("spaces") && !read("SPACED").contains("key a"));
    }

    #[test]
    fn a_new_keyring_takes_over_who_rests_unless_the_key_is_another() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("key");
        std::fs::write(&path, "old\n").unwrap();
        let (sources, now) = ([Source::File(path.clone())], Instant::now());
        let old = Keyring::new(&sources, &env);
        old.rest(0, None, now + Duration::from_mins(1), false);
        let same = Keyring::new(&sources, &env);
        same.take_over(&old);
        assert!(matches!(same.pick("m", &[], false, now), Pick::Resting { .. }));
        std::fs::write(&path, "new\n").unwrap();
        let other = Keyring::new(&sources, &env);
        other.take_over(&old);
        assert!(matches!(other.pick("m", &[], false, now), Pick::Key(key) if key.secret.expose() == "new"));
    }
}
