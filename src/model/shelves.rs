//! What was made of texts, kept for the next time that the same organisation comes with one: found by organisation and text,
//! so that the time it takes says nothing about what others ask.
//!
//! Bounded in bytes: one organisation beyond its bound loses what it used longest ago itself. Where everybody's bound is met,
//! the organisation that holds most loses of its own: a flood of texts, or of organisations, takes nothing from who holds
//! less.

use std::collections::HashMap;
use std::sync::{Mutex, MutexGuard, PoisonError};

use super::OrgId;

/// How many bytes may be kept.
#[derive(Clone, Copy, Debug)]
pub struct ShelfBounds {
    /// Of everybody.
    pub all: usize,
    /// Of one organisation.
    pub org: usize,
    /// Of one text; what is larger is not kept.
    pub one: usize,
}

/// What is kept of everybody; values are handed out as clones.
#[derive(Debug)]
pub struct Shelves<V> {
    bounds: ShelfBounds,
    kept: Mutex<Kept<V>>,
}

#[derive(Debug)]
struct Kept<V> {
    orgs: HashMap<OrgId, Shelf<V>>,
    bytes: usize,
    /// Counts uses up: an entry's last use.
    uses: u64,
}

/// Those of one organisation.
#[derive(Debug)]
struct Shelf<V> {
    entries: HashMap<Box<str>, Entry<V>>,
    bytes: usize,
}

#[derive(Debug)]
struct Entry<V> {
    value: V,
    bytes: usize,
    used: u64,
}

impl<V> Default for Shelf<V> {
    fn default() -> Shelf<V> {
        Shelf { entries: HashMap::new(), bytes: 0 }
    }
}

impl<V: Clone> Shelves<V> {
    /// Nothing yet.
    pub fn within(bounds: ShelfBounds) -> Shelves<V> {
        Shelves { bounds, kept: Mutex::new(Kept { orgs: HashMap::new(), bytes: 0, uses: 0 }) }
    }

    fn lock(&self) -> MutexGuard<'_, Kept<V>> {
        // Whole entries and their sums: a panic elsewhere leaves nothing half done.
        self.kept.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// What was kept of a text of this organisation, if it is still there.
    pub fn find(&self, org: OrgId, text: &str) -> Option<V> {
        let mut kept = self.lock();
        kept.uses += 1;
        let uses = kept.uses;
        let entry = kept.orgs.get_mut(&org)?.entries.get_mut(text)?;
        entry.used = uses;
        Some(entry.value.clone())
    }

    /// Keeps what was made of a text, which takes so many bytes, all told.
    pub fn keep(&self, org: OrgId, text: &str, value: V, bytes: usize) {
        if bytes > self.bounds.one {
            return;
        }
        let mut kept = self.lock();
        kept.uses += 1;
        let used = kept.uses;
        let shelf = kept.orgs.entry(org).or_default();
        // Two of its queries may have made it at once.
        let before =
            shelf.entries.insert(text.into(), Entry { value, bytes, used }).map_or(0, |old| old.bytes);
        shelf.bytes = shelf.bytes + bytes - before;
        kept.bytes = kept.bytes + bytes - before;
        while kept.orgs.get(&org).is_some_and(|shelf| shelf.bytes > self.bounds.org) {
            kept.drop_oldest_of(org);
        }
        while kept.bytes > self.bounds.all
            && let Some(most) = kept.orgs.iter().max_by_key(|(_, shelf)| shelf.bytes).map(|(org, _)| *org)
        {
            kept.drop_oldest_of(most);
        }
    }
}

impl<V> Kept<V> {
    /// Removes what this organisation used longest ago; some hundreds are looked at, once for one that is made.
    fn drop_oldest_of(&mut self, org: OrgId) {
        let Some(shelf) = self.orgs.get_mut(&org) else { return };
        let oldest = shelf.entries.iter().min_by_key(|(_, entry)| entry.used).map(|(text, _)| text.clone());
        if let Some(entry) = oldest.and_then(|text| shelf.entries.remove(&text)) {
            shelf.bytes -= entry.bytes;
            self.bytes -= entry.bytes;
        }
        if shelf.entries.is_empty() {
            self.orgs.remove(&org);
        }
    }
}

#[cfg(test)]
impl<V: Clone> Shelves<V> {
    /// How many texts of an organisation are kept, and their bytes.
    pub(crate) fn held(&self, org: OrgId) -> (usize, usize) {
        self.lock().orgs.get(&org).map_or((0, 0), |shelf| (shelf.entries.len(), shelf.bytes))
    }

    /// That what is held is what it says, and within the bounds.
    pub(crate) fn check_sums(&self) {
        let kept = self.lock();
        for shelf in kept.orgs.values() {
            assert_eq!(shelf.bytes, shelf.entries.values().map(|entry| entry.bytes).sum::<usize>());
            assert!(shelf.bytes <= self.bounds.org);
        }
        assert_eq!(kept.bytes, kept.orgs.values().map(|shelf| shelf.bytes).sum::<usize>());
        assert!(kept.bytes <= self.bounds.all);
    }
}
