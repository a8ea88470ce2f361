//! An LRU cache per organisation, keyed by text.
//!
//! An organisation finds only its own entries, so the time of a look-up reveals nothing about the
//! texts of others. The cache is bounded in bytes. An organisation above its bound loses its own
//! least recently used entries; if entries belong to parts, those of the part with the most bytes.
//! At the bound of all organisations, the one with the most bytes loses entries. So a flood of
//! texts, or of organisations, removes no entry of an organisation that uses less.

use std::collections::HashMap;
use std::collections::hash_map::Entry;
use std::hash::Hash;
use std::sync::{Mutex, MutexGuard};

use super::OrgId;
use crate::sync::IgnorePoison as _;

/// Maximum sizes in bytes, inclusive.
#[derive(Clone, Copy, Debug)]
pub struct LruBounds {
    /// Entries of all organisations.
    pub all: usize,
    /// Entries of one organisation.
    pub org: usize,
    /// One entry; a larger one is not cached.
    pub one: usize,
}

/// The entries of all organisations. Look-ups return clones. `P` is a part of an organisation, such
/// as an API key.
#[derive(Debug)]
pub struct OrgLru<V, P = ()> {
    bounds: LruBounds,
    inner: Mutex<LruState<V, P>>,
}

#[derive(Debug)]
struct LruState<V, P> {
    orgs: HashMap<OrgId, OrgEntries<V, P>>,
    bytes: usize,
    /// Number of look-ups and insertions so far: the clock of [`LruEntry::used`].
    uses: u64,
}

/// The entries of one organisation.
#[derive(Debug)]
struct OrgEntries<V, P> {
    entries: HashMap<Box<str>, LruEntry<V, P>>,
    bytes: usize,
    /// The bytes of each part that has entries.
    parts: HashMap<P, usize>,
}

#[derive(Debug)]
struct LruEntry<V, P> {
    value: V,
    part: P,
    bytes: usize,
    /// The value of [`LruState::uses`] at the last use.
    used: u64,
}

impl<V, P> Default for OrgEntries<V, P> {
    fn default() -> OrgEntries<V, P> {
        OrgEntries { entries: HashMap::new(), bytes: 0, parts: HashMap::new() }
    }
}

impl<V: Clone> OrgLru<V> {
    /// Inserts a value. `bytes` is the size of the whole entry, key included.
    pub fn insert(&self, org: OrgId, text: &str, value: V, bytes: usize) {
        self.insert_of((org, ()), text, value, bytes);
    }
}

impl<V: Clone, P: Copy + Eq + Hash> OrgLru<V, P> {
    /// Creates an empty cache.
    pub fn new(bounds: LruBounds) -> OrgLru<V, P> {
        OrgLru { bounds, inner: Mutex::new(LruState { orgs: HashMap::new(), bytes: 0, uses: 0 }) }
    }

    fn lock(&self) -> MutexGuard<'_, LruState<V, P>> {
        // Entries and sums change together, so a panic of another thread leaves them consistent.
        self.inner.lock().ignore_poison()
    }

    /// Returns the value of this text, if it is cached for the organisation.
    pub fn get(&self, org: OrgId, text: &str) -> Option<V> {
        let mut inner = self.lock();
        inner.uses += 1;
        let uses = inner.uses;
        let entry = inner.orgs.get_mut(&org)?.entries.get_mut(text)?;
        entry.used = uses;
        Some(entry.value.clone())
    }

    /// Inserts a value of a part of an organisation. Parts share no entries if `text` names the
    /// part.
    pub fn insert_of(&self, (org, part): (OrgId, P), text: &str, value: V, bytes: usize) {
        if bytes > self.bounds.one {
            return;
        }
        let mut inner = self.lock();
        inner.uses += 1;
        let used = inner.uses;
        let own = inner.orgs.entry(org).or_default();
        // Two threads may have computed the value at the same time.
        let before = own.insert(text, LruEntry { value, part, bytes, used });
        inner.bytes = inner.bytes + bytes - before;
        while inner.orgs.get(&org).is_some_and(|own| own.bytes > self.bounds.org) {
            inner.remove_oldest_of(org);
        }
        while inner.bytes > self.bounds.all
            && let Some(most) = inner.orgs.iter().max_by_key(|(_, own)| own.bytes).map(|(org, _)| *org)
        {
            inner.remove_oldest_of(most);
        }
    }
}

impl<V, P: Copy + Eq + Hash> OrgEntries<V, P> {
    /// Inserts an entry. Returns the bytes of the one that it replaces.
    fn insert(&mut self, text: &str, entry: LruEntry<V, P>) -> usize {
        self.bytes += entry.bytes;
        *self.parts.entry(entry.part).or_default() += entry.bytes;
        let replaced = self.entries.insert(text.into(), entry);
        replaced.map_or(0, |old| self.subtract(&old))
    }

    /// Removes the least recently used entry of the part with the most bytes. Returns its bytes.
    /// Scans the entries: some microseconds for a thousand.
    fn remove_oldest(&mut self) -> usize {
        let most = self.parts.iter().max_by_key(|(_, bytes)| **bytes).map(|(part, _)| *part);
        let of_most = self.entries.iter().filter(|(_, entry)| Some(entry.part) == most);
        let oldest = of_most.min_by_key(|(_, entry)| entry.used).map(|(text, _)| text.clone());
        let removed = oldest.and_then(|text| self.entries.remove(&text));
        removed.map_or(0, |old| self.subtract(&old))
    }

    /// Subtracts the bytes of an entry that is no longer there, and returns them.
    fn subtract(&mut self, entry: &LruEntry<V, P>) -> usize {
        self.bytes -= entry.bytes;
        if let Entry::Occupied(mut part) = self.parts.entry(entry.part) {
            *part.get_mut() -= entry.bytes;
            if *part.get() == 0 {
                part.remove();
            }
        }
        entry.bytes
    }
}

impl<V, P: Copy + Eq + Hash> LruState<V, P> {
    fn remove_oldest_of(&mut self, org: OrgId) {
        let Some(own) = self.orgs.get_mut(&org) else { return };
        self.bytes -= own.remove_oldest();
        if own.entries.is_empty() {
            self.orgs.remove(&org);
        }
    }
}

#[cfg(test)]
impl<V: Clone, P: Copy + Eq + Hash> OrgLru<V, P> {
    /// Returns the number of entries of an organisation, and their bytes.
    pub(crate) fn held(&self, org: OrgId) -> (usize, usize) {
        self.lock().orgs.get(&org).map_or((0, 0), |own| (own.entries.len(), own.bytes))
    }

    /// Checks that the sums are those of the entries and within the bounds.
    pub(crate) fn check_sums(&self) {
        let inner = self.lock();
        for own in inner.orgs.values() {
            assert_eq!(own.bytes, own.entries.values().map(|entry| entry.bytes).sum::<usize>());
            assert!(own.bytes <= self.bounds.org);
            let mut parts: HashMap<P, usize> = HashMap::new();
            for entry in own.entries.values() {
                *parts.entry(entry.part).or_default() += entry.bytes;
            }
            assert_eq!(own.parts.len(), parts.len());
            assert!(parts.iter().all(|(part, bytes)| own.parts.get(part) == Some(bytes)));
        }
        assert_eq!(inner.bytes, inner.orgs.values().map(|own| own.bytes).sum::<usize>());
        assert!(inner.bytes <= self.bounds.all);
    }
}
