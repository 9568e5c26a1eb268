//! Scopes under watch, bounded: the one that was used longest ago makes room.
//!
//! In: a scope per stream. Out: a key that finds its state in O(1), and says so when the state was evicted
//! meanwhile. Clients choose model names, so the number of scopes is not ours to trust.

use std::collections::HashMap;

use sseismo_trace::Scope;

/// Finds a scope's state while it is kept.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Key {
    slot: usize,
    generation: u64,
}

#[derive(Debug)]
struct Slot<T> {
    scope: Scope,
    generation: u64,
    used: u64,
    state: T,
}

/// At most `capacity` states, one per scope.
#[derive(Debug)]
pub(crate) struct Scopes<T> {
    capacity: usize,
    slots: Vec<Slot<T>>,
    index: HashMap<Scope, usize>,
    /// Counts uses; the order in which scopes were used.
    clock: u64,
    evicted: u64,
}

impl<T> Scopes<T> {
    pub(crate) fn new(capacity: usize) -> Self {
        Self { capacity: capacity.max(1), slots: Vec::new(), index: HashMap::new(), clock: 0, evicted: 0 }
    }

    pub(crate) fn len(&self) -> usize {
        self.slots.len()
    }

    /// Scopes that had to make room so far.
    pub(crate) fn evicted(&self) -> u64 {
        self.evicted
    }

    /// The state of `scope`, made when it is new; with it the state that had to go.
    pub(crate) fn open(&mut self, scope: Scope, make: impl FnOnce() -> T) -> (Key, Option<(Scope, T)>) {
        self.clock += 1;
        if let Some(&slot) = self.index.get(&scope) {
            self.slots[slot].used = self.clock;
            return (Key { slot, generation: self.slots[slot].generation }, None);
        }
        let new = Slot { scope: scope.clone(), generation: self.clock, used: self.clock, state: make() };
        let key = |slot| Key { slot, generation: new.generation };
        if self.slots.len() < self.capacity {
            let key = key(self.slots.len());
            self.index.insert(scope, key.slot);
            self.slots.push(new);
            return (key, None);
        }
        let oldest = (0..self.slots.len()).min_by_key(|&slot| self.slots[slot].used).unwrap_or(0);
        let key = key(oldest);
        let old = std::mem::replace(&mut self.slots[oldest], new);
        self.index.remove(&old.scope);
        self.index.insert(scope, oldest);
        self.evicted += 1;
        (key, Some((old.scope, old.state)))
    }

    /// The state behind `key`; `None` when it was evicted.
    pub(crate) fn get_mut(&mut self, key: Key) -> Option<(&Scope, &mut T)> {
        let slot = self.slots.get_mut(key.slot).filter(|slot| slot.generation == key.generation)?;
        Some((&slot.scope, &mut slot.state))
    }

    /// Every scope, in the order in which they came to their places.
    pub(crate) fn iter(&self) -> impl Iterator<Item = (&Scope, &T)> {
        self.slots.iter().map(|slot| (&slot.scope, &slot.state))
    }

    /// The same with their keys, to change the states.
    pub(crate) fn entries(&mut self) -> impl Iterator<Item = (Key, &mut T)> {
        self.slots
            .iter_mut()
            .enumerate()
            .map(|(slot, one)| (Key { slot, generation: one.generation }, &mut one.state))
    }

    /// The same, to change the states.
    pub(crate) fn iter_mut(&mut self) -> impl Iterator<Item = (&Scope, &mut T)> {
        self.slots.iter_mut().map(|slot| (&slot.scope, &mut slot.state))
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use sseismo_trace::Dim;

    use super::*;

    fn scope(name: u8) -> Scope {
        Scope::default().with(Dim::Model, name.to_string())
    }

    proptest! {
        /// Never more scopes than asked for; every scope either kept or counted as evicted; a key finds its
        /// own scope or nothing.
        #[test]
        fn bounded_and_never_confused(names in prop::collection::vec(0_u8..12, 1..200)) {
            let mut scopes = Scopes::new(5);
            let mut keys = Vec::new();
            let mut made = 0;
            for name in names {
                let (key, _) = scopes.open(scope(name), || { made += 1; name });
                keys.push((name, key));
                prop_assert!(scopes.len() <= 5);
                for (name, key) in &keys {
                    if let Some((found, state)) = scopes.get_mut(*key) {
                        prop_assert_eq!(found, &scope(*name));
                        prop_assert_eq!(*state, *name);
                    }
                }
            }
            prop_assert_eq!(made, scopes.len() as u64 + scopes.evicted());
        }
    }

    #[test]
    fn the_scope_used_longest_ago_makes_room() {
        let mut scopes = Scopes::new(2);
        let (first, _) = scopes.open(scope(1), || 1);
        scopes.open(scope(2), || 2);
        scopes.open(scope(1), || 0);
        let (_, gone) = scopes.open(scope(3), || 3);
        assert_eq!(gone, Some((scope(2), 2)));
        assert_eq!(scopes.get_mut(first).map(|(_, state)| *state), Some(1));
    }
}
