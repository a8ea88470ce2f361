//! A cache of the series of raw label bytes, in the order in which they were first seen.
//!
//! Senders repeat the order of their series. So keys are stored in the order in which they were
//! first seen, and the keys of a request are compared with those that follow the last match. This
//! reads memory in order and needs no search. Only where a request deviates is a hash lookup
//! needed. All 96 bits of a key are compared in both cases: the order only decides where to look
//! first.

use super::columns::reserve_one;
use super::identity::{IdTable, LabelsKey, home};

/// Keys that are looked up together, so that their cache misses overlap.
const BATCH_KEYS: usize = 16;

#[derive(Clone, Copy, Debug)]
struct SeenKey {
    key: LabelsKey,
    id: u32,
}

/// Ids by key: 16 bytes per key in order, and 10 to 13 for the hash table.
#[derive(Debug, Default)]
pub(in crate::tsdb) struct Ids {
    seen: Vec<SeenKey>,
    /// Indexes in `seen`, by hash.
    places: IdTable,
}

impl Ids {
    pub(super) const fn len(&self) -> usize {
        self.seen.len()
    }

    /// Returns the memory in bytes.
    pub(super) fn bytes(&self) -> usize {
        self.seen.capacity() * size_of::<SeenKey>() + self.places.bytes()
    }

    fn at(&self, place: u32, key: LabelsKey) -> Option<SeenKey> {
        self.seen.get(place as usize).copied().filter(|seen| seen.key == key)
    }

    fn place(&self, key: LabelsKey) -> Option<u32> {
        self.places.find(key.hash(), |place| self.at(place, key).is_some())
    }

    #[cfg(test)]
    pub(super) fn get(&self, key: LabelsKey) -> Option<u32> {
        self.at(self.place(key)?, key).map(|seen| seen.id)
    }

    /// Returns the ids of these keys, if they were first seen one after another from `place` on.
    fn run(&self, place: usize, keys: &[LabelsKey]) -> Option<impl Iterator<Item = u32>> {
        let seen = self.seen.get(place..place + keys.len())?;
        let is_run = seen.iter().zip(keys).all(|(seen, key)| seen.key == *key);
        is_run.then(|| seen.iter().map(|seen| seen.id))
    }

    /// Appends the id of each key, or None.
    pub(super) fn get_many(&self, keys: &[LabelsKey], out: &mut Vec<Option<u32>>) {
        self.get_many_unless(keys, |_| false, out);
    }

    /// Like [`Ids::get_many`], but skips the lookup of a batch of keys if `are_absent` returns true
    /// for it.
    pub(super) fn get_many_unless(
        &self,
        keys: &[LabelsKey],
        mut are_absent: impl FnMut(&[LabelsKey]) -> bool,
        out: &mut Vec<Option<u32>>,
    ) {
        out.reserve(keys.len());
        let mut next = 0;
        for keys in keys.chunks(BATCH_KEYS) {
            if let Some(ids) = self.run(next, keys) {
                out.extend(ids.map(Some));
                next += keys.len();
            } else if are_absent(keys) {
                out.extend(keys.iter().map(|_| None));
            } else {
                self.search(keys, &mut next, out);
            }
        }
    }

    /// Returns a function that takes the keys of a request batch by batch. It returns whether a
    /// batch is a run of known keys whose ids all satisfy `is`.
    pub(super) fn recognizer(&self, is: impl Fn(u32) -> bool) -> impl FnMut(&[LabelsKey]) -> bool {
        let mut next = 0;
        move |keys| {
            let mut ids = self.run(next, keys);
            if ids.is_none()
                && let Some(place) = keys.first().and_then(|key| self.place(*key))
            {
                next = place as usize;
                ids = self.run(next, keys);
            }
            ids.is_some_and(|mut ids| {
                next += keys.len();
                ids.all(&is)
            })
        }
    }

    /// Looks the keys up in the hash table. The memory for all keys is fetched before the first is
    /// compared, because single lookups would each wait for memory.
    fn search(&self, keys: &[LabelsKey], next: &mut usize, out: &mut Vec<Option<u32>>) {
        let mut homes = [0; BATCH_KEYS];
        for (home, key) in homes.iter_mut().zip(keys) {
            *home = self.places.touch(key.hash());
        }
        std::hint::black_box(&homes);
        // The first slot with the same hash is mostly the right one. Most unknown keys have none.
        let mut likely = [None; BATCH_KEYS];
        for (likely, key) in likely.iter_mut().zip(keys) {
            *likely = self.places.find(key.hash(), |_| true);
        }
        let mut found = [None; BATCH_KEYS];
        for ((found, likely), key) in found.iter_mut().zip(likely).zip(keys) {
            *found = likely.and_then(|place| Some((place, self.at(place, *key)?)));
        }
        for ((found, likely), key) in found.iter().zip(likely).zip(keys) {
            let other = || self.place(*key).and_then(|place| Some((place, self.at(place, *key)?)));
            let seen = found.or_else(|| likely.and_then(|_| other()));
            if let Some((place, _)) = seen {
                *next = place as usize + 1;
            }
            out.push(seen.map(|(_, seen)| seen.id));
        }
    }

    /// Adds a key, or changes its id.
    pub(super) fn insert(&mut self, key: LabelsKey, id: u32) {
        let known = self.place(key).and_then(|place| self.seen.get_mut(place as usize));
        if let Some(seen) = known {
            seen.id = id;
            return;
        }
        // There are at most four keys per series. A key that does not fit is not cached.
        if let Ok(place) = u32::try_from(self.seen.len()) {
            reserve_one(&mut self.seen);
            self.seen.push(SeenKey { key, id });
            self.places.insert(key.hash(), place);
        }
    }

    /// Like [`Ids::insert`], but a new key replaces one chosen by `random`.
    pub(super) fn insert_or_replace_any(&mut self, random: u32, key: LabelsKey, id: u32) {
        if self.place(key).is_some() {
            return self.insert(key, id);
        }
        let place = home(random, self.seen.len());
        if let (Some(seen), Ok(number)) = (self.seen.get_mut(place), u32::try_from(place)) {
            let old = std::mem::replace(seen, SeenKey { key, id });
            self.places.remove(old.key.hash(), number);
            self.places.insert(key.hash(), number);
        }
    }

    pub(super) fn clear(&mut self) {
        *self = Ids::default();
    }
}

#[cfg(test)]
mod tests {
    use super::super::identity::HashSecret;
    use super::*;

    #[test]
    fn every_key_has_its_id_alone_and_in_batches_of_any_order() {
        let domain = HashSecret::of(&[3; 32], 1).domain(0, &[]);
        let key = |n: u32| domain.key(&n.to_le_bytes());
        let mut ids = Ids::default();
        assert_eq!(ids.get(key(1)), None);
        for n in 0..20_000 {
            ids.insert(key(n), n + 1);
            ids.insert(key(n), n);
        }
        assert_eq!(ids.len(), 20_000);
        assert!(ids.bytes() < 20_000 * 31, "{}", ids.bytes());
        let expected = |n: u32| (n < 20_000).then_some(n);
        let check = |numbers: &[u32]| {
            let keys: Vec<LabelsKey> = numbers.iter().map(|n| key(*n)).collect();
            let mut found = Vec::new();
            ids.get_many(&keys, &mut found);
            let one_by_one: Vec<_> = keys.iter().map(|key| ids.get(*key)).collect();
            let all: Vec<_> = numbers.iter().map(|n| expected(*n)).collect();
            assert_eq!((&found, &one_by_one), (&all, &all));
        };
        check(&(0..40_001).collect::<Vec<_>>());
        // Reversed, with gaps, with unknown keys, from the middle on, one key repeated, past the
        // end.
        check(&(0..5_000).rev().collect::<Vec<_>>());
        check(&(0..5_000).filter(|n| n % 23 != 7).collect::<Vec<_>>());
        check(&(0..5_000).map(|n| if n % 41 == 3 { n + 30_000 } else { n }).collect::<Vec<_>>());
        check(&(13_000..13_700).chain(100..900).chain(899..1_000).collect::<Vec<_>>());
        check(&[5; 100]);
        check(&(19_990..20_040).collect::<Vec<_>>());
        for n in 0..5_000u32 {
            ids.insert_or_replace_any(n.wrapping_mul(2_654_435_769), key(n + 50_000), n);
        }
        assert_eq!(ids.len(), 20_000);
        let left = (0..55_000).filter(|n| ids.get(key(*n)).is_some()).count();
        assert_eq!(left, 20_000);
        assert!((0..5_000).all(|n| ids.get(key(n + 50_000)).is_none_or(|id| id == n)));
        ids.clear();
        assert_eq!((ids.get(key(1)), ids.len()), (None, 0));
    }
}
