//! Which organisation issued the state that a request carries.
//!
//! Encrypted reasoning, response ids and thinking signatures can be read by their issuer alone; sent to
//! another organisation they fail at best and leak at worst. In: what answers issue ([`references::issued`])
//! and what requests carry ([`references::carried`]). Out: the one organisation that may be asked. What is kept
//! is a bounded map of keyed hashes; the key is made anew at each start, so the map is useless outside this
//! process, and forgets at a restart (see [`UnknownState`](crate::config::UnknownState)).

use std::collections::HashMap;
use std::collections::hash_map::RandomState;
use std::hash::BuildHasher as _;
use std::sync::{Arc, Mutex, PoisonError};

pub mod references;

/// References kept in each of two generations: about 20 MB at the most.
const GENERATION: usize = 100_000;

/// The keyed hash of one reference.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct StateKey(u64);

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
    hasher: RandomState,
    generations: Mutex<Generations>,
}

/// What is used moves to the young generation; when that is full, the old one is dropped.
#[derive(Debug, Default)]
struct Generations {
    young: HashMap<StateKey, Arc<str>>,
    old: HashMap<StateKey, Arc<str>>,
    limit: usize,
}

impl Default for Affinity {
    fn default() -> Self {
        Self::with_limit(GENERATION)
    }
}

impl Affinity {
    fn with_limit(limit: usize) -> Self {
        let generations = Generations { limit, ..Generations::default() };
        Self { hasher: RandomState::new(), generations: Mutex::new(generations) }
    }

    /// The key of a reference's text.
    pub fn key(&self, reference: &str) -> StateKey {
        StateKey(self.hasher.hash_one(reference))
    }

    /// `organisation` has issued these references.
    pub fn issued(&self, references: &[StateKey], organisation: &Arc<str>) {
        let mut generations = self.generations.lock().unwrap_or_else(PoisonError::into_inner);
        for reference in references {
            generations.insert(*reference, organisation.clone());
        }
    }

    /// Who issued what a request carries.
    pub fn issuer(&self, carried: &[StateKey]) -> Issuer {
        let mut generations = self.generations.lock().unwrap_or_else(PoisonError::into_inner);
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

impl Generations {
    fn insert(&mut self, key: StateKey, organisation: Arc<str>) {
        if self.young.len() >= self.limit {
            self.old = std::mem::take(&mut self.young);
        }
        self.young.insert(key, organisation);
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
        let affinity = Affinity::default();
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
        let affinity = Affinity::with_limit(10);
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
}
