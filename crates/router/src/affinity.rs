//! Which organisation issued the state that a request carries.
//!
//! Encrypted reasoning, response ids and thinking signatures can be read by their issuer alone; sent to
//! another organisation they fail at best and leak at worst. In: what answers issue ([`Learner`])
//! and what requests carry ([`references::carried`], [`paths::carried`]). Out: the one organisation that may be asked. What is kept
//! is a bounded map of keyed hashes, in memory and, where the configuration names one, in a file (`kept`): without
//! it a restart forgets (see [`UnknownState`](crate::config::UnknownState)).

use std::collections::HashMap;
use std::collections::hash_map::RandomState;
use std::hash::BuildHasher as _;
use std::io;
use std::path::Path;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use sha2::{Digest as _, Sha256};

mod kept;
mod learner;
pub mod paths;
mod pieces;
pub mod references;

pub use learner::Learner;

use kept::Kept;

/// References in each of two generations: about 20 MB at the most.
const GENERATION: usize = 100_000;

/// The keyed hash of one reference.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct StateKey(u64);

/// The key of a reference whose text is not whole yet.
#[derive(Clone, Debug)]
struct PartialKey(Sha256);

/// Who issued what a request carries.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Issuer {
    /// It carries no state.
    Stateless,
    /// It carries state, and no issuer is known.
    Unknown,
    /// All that is known was issued by this organisation.
    One(Arc<str>),
    /// By more than one: no upstream can read all of it.
    Several(Vec<Arc<str>>),
}

/// The references that this process has seen issued.
#[derive(Debug)]
pub struct Affinity {
    key: [u8; 32],
    generations: Mutex<Generations>,
    kept: Option<Mutex<Kept>>,
}

/// What is used moves to the young generation; when that is full, the old one is dropped.
#[derive(Debug, Default)]
struct Generations {
    young: HashMap<StateKey, Arc<str>>,
    old: HashMap<StateKey, Arc<str>>,
    limit: usize,
    /// What the file does not have yet; `None`: there is no file.
    unwritten: Option<Vec<(StateKey, Arc<str>)>>,
}

impl Affinity {
    /// A map that forgets at the end of the process.
    pub fn in_memory() -> Self {
        // Each `RandomState` has a key of its own; its hashes are as random as this process needs them.
        let part = |number: u64| RandomState::new().hash_one(number).to_le_bytes();
        let mut key = [0; 32];
        for (number, eight) in (0..).zip(key.chunks_exact_mut(8)) {
            eight.copy_from_slice(&part(number));
        }
        Self::with_key(key, GENERATION)
    }

    /// A map that goes on from `path`, which is made when it is not there.
    ///
    /// # Errors
    /// When it can be neither read nor made, or is something else.
    pub fn in_file(path: &Path) -> io::Result<Self> {
        let (kept, key, references) = Kept::open(path)?;
        let mut affinity = Self { kept: Some(Mutex::new(kept)), ..Self::with_key(key, GENERATION) };
        let generations = affinity.generations.get_mut().unwrap_or_else(PoisonError::into_inner);
        for (reference, organisation) in references {
            generations.insert(reference, organisation);
        }
        generations.unwritten = Some(Vec::new());
        Ok(affinity)
    }

    fn with_key(key: [u8; 32], limit: usize) -> Self {
        let generations = Generations { limit, ..Generations::default() };
        Self { key, generations: Mutex::new(generations), kept: None }
    }

    /// Writes to the file what it does not have yet; nothing where there is none.
    ///
    /// # Errors
    /// When it cannot be written; what could not be is tried again at the next call.
    pub fn save(&self) -> io::Result<()> {
        let Some(kept) = &self.kept else { return Ok(()) };
        let mut kept = kept.lock().unwrap_or_else(PoisonError::into_inner);
        let fresh = self.locked().unwritten.as_mut().map(std::mem::take).unwrap_or_default();
        let written = if kept.is_long(2 * GENERATION) {
            let all = self.locked().all();
            kept.rewrite(&self.key, &all)
        } else {
            kept.append(&fresh)
        };
        if written.is_err()
            && let Some(unwritten) = &mut self.locked().unwritten
        {
            unwritten.extend(fresh);
        }
        written
    }

    fn locked(&self) -> MutexGuard<'_, Generations> {
        self.generations.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The key of a reference's text.
    pub fn key(&self, reference: &str) -> StateKey {
        let mut key = self.begin();
        key.push(reference);
        key.key()
    }

    fn begin(&self) -> PartialKey {
        PartialKey(Sha256::new_with_prefix(self.key))
    }

    /// `organisation` has issued these references.
    pub fn issued(&self, references: &[StateKey], organisation: &Arc<str>) {
        if references.is_empty() {
            return;
        }
        let mut generations = self.locked();
        for reference in references {
            if generations.young.get(reference) == Some(organisation) {
                continue; // an item is named when it begins, when it ends and at the end of all
            }
            generations.insert(*reference, organisation.clone());
            if let Some(unwritten) = &mut generations.unwritten {
                unwritten.push((*reference, organisation.clone()));
            }
        }
    }

    /// Who issued what a request carries.
    pub fn issuer(&self, carried: &[StateKey]) -> Issuer {
        let mut generations = self.locked();
        let mut found: Vec<Arc<str>> = carried.iter().filter_map(|key| generations.get(*key)).collect();
        found.sort_unstable();
        found.dedup();
        match (carried.is_empty(), found.len()) {
            (true, _) => Issuer::Stateless,
            (false, 0) => Issuer::Unknown,
            (false, 1) => Issuer::One(found.remove(0)),
            (false, _) => Issuer::Several(found),
        }
    }
}

impl PartialKey {
    fn push(&mut self, text: &str) {
        self.0.update(text);
    }

    fn key(&self) -> StateKey {
        let hash = self.0.clone().finalize();
        let (first, _) = hash.split_first_chunk().unwrap_or((&[0; 8], &[]));
        StateKey(u64::from_le_bytes(*first))
    }
}

impl Generations {
    fn insert(&mut self, key: StateKey, organisation: Arc<str>) {
        if self.young.len() >= self.limit {
            self.old = std::mem::take(&mut self.young);
        }
        self.young.insert(key, organisation);
    }

    /// Everything, the older first.
    fn all(&self) -> Vec<(StateKey, Arc<str>)> {
        let both = self.old.iter().chain(&self.young);
        both.map(|(key, organisation)| (*key, organisation.clone())).collect()
    }

    /// Looks a reference up and keeps it young: a session sends its whole history each turn.
    fn get(&mut self, key: StateKey) -> Option<Arc<str>> {
        if let Some(found) = self.young.get(&key) {
            return Some(found.clone());
        }
        let found = self.old.remove(&key)?;
        self.insert(key, found.clone());
        Some(found)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_was_issued_is_found_and_nothing_else() {
        let affinity = Affinity::in_memory();
        let (a, b): (Arc<str>, Arc<str>) = ("a".into(), "b".into());
        let [one, two, three] = ["r1", "r2", "r3"].map(|text| affinity.key(text));
        affinity.issued(&[one], &a);
        affinity.issued(&[two], &b);
        assert_eq!(affinity.issuer(&[]), Issuer::Stateless);
        assert_eq!(affinity.issuer(&[three]), Issuer::Unknown);
        assert_eq!(affinity.issuer(&[three, one]), Issuer::One(a.clone()));
        assert_eq!(affinity.issuer(&[two, one]), Issuer::Several(vec![a, b]));
    }

    #[test]
    fn the_map_is_bounded_and_keeps_what_is_used() {
        let affinity = Affinity::with_key([7; 32], 10);
        let org: Arc<str> = "a".into();
        let kept = affinity.key("kept");
        affinity.issued(&[kept], &org);
        for round in 0..1000 {
            affinity.issued(&[affinity.key(&round.to_string())], &org);
            if round % 5 == 0 {
                assert_eq!(affinity.issuer(&[kept]), Issuer::One(org.clone()), "round {round}");
            }
        }
        let generations = affinity.generations.lock().unwrap();
        assert!(generations.young.len() + generations.old.len() <= 20);
    }

    #[test]
    fn a_file_outlives_the_process_and_holds_no_reference() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("state");
        let org: Arc<str> = "openai".into();
        let before = Affinity::in_file(&path).unwrap();
        before.issued(&[before.key("gAAA"), before.key("gBBB")], &org);
        before.save().unwrap();
        before.issued(&[before.key("gCCC")], &"azure".into());
        before.save().unwrap();
        drop(before);
        let text = std::fs::read_to_string(&path).unwrap();
        assert!(!text.contains("gAAA") && text.lines().count() == 4, "{text}");
        // A line that was cut off by the end of the process costs that line.
        std::fs::write(&path, text + "0123").unwrap();
        let after = Affinity::in_file(&path).unwrap();
        assert_eq!(after.issuer(&[after.key("gBBB")]), Issuer::One(org));
        assert_eq!(after.issuer(&[after.key("gCCC")]), Issuer::One("azure".into()));
        assert_eq!(after.issuer(&[after.key("gDDD")]), Issuer::Unknown);
        after.issued(&[after.key("gDDD")], &"azure".into());
        after.save().unwrap();
        let again = Affinity::in_file(&path).unwrap();
        assert_eq!(again.issuer(&[again.key("gDDD")]), Issuer::One("azure".into()));
    }

    #[test]
    fn a_foreign_file_is_refused_and_left_alone() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("state");
        std::fs::write(&path, "shopping list\n").unwrap();
        assert_eq!(Affinity::in_file(&path).unwrap_err().kind(), io::ErrorKind::InvalidData);
        assert_eq!(std::fs::read_to_string(&path).unwrap(), "shopping list\n");
    }
}
