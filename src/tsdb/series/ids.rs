//! Which raw label bytes are which series, in the order in which they were met.
//!
//! Senders repeat themselves: what came after a series once comes after it again. So keys stand one after the other as
//! they were first met, and the keys of a request are compared with those that follow the last one that was found: memory
//! that is read in order, and no search. Only where a request departs from it is there a look into the hash. A key that is
//! expected and one that is searched for are compared alike, all 96 bits: the order decides nothing but where to look first.

use super::columns::make_room;
use super::identity::{Key, Rows};

/// Keys that are looked up together: so many lines may be on their way from memory at once.
const AT_ONCE: usize = 16;

#[derive(Clone, Copy, Debug)]
struct Met {
    key: Key,
    id: u32,
}

/// Ids by key: 16 bytes in order, and 10 to 13 to find the place.
#[derive(Debug, Default)]
pub(in crate::tsdb) struct Ids {
    met: Vec<Met>,
    /// Places in `met`.
    places: Rows,
}

impl Ids {
    pub(super) const fn len(&self) -> usize {
        self.met.len()
    }

    /// Memory.
    pub(super) fn bytes(&self) -> usize {
        self.met.capacity() * size_of::<Met>() + self.places.bytes()
    }

    fn at(&self, place: u32, key: Key) -> Option<Met> {
        self.met.get(place as usize).copied().filter(|met| met.key == key)
    }

    fn place(&self, key: Key) -> Option<u32> {
        self.places.find(key.hash(), |place| self.at(place, key).is_some())
    }

    #[cfg(test)]
    pub(super) fn get(&self, key: Key) -> Option<u32> {
        self.at(self.place(key)?, key).map(|met| met.id)
    }

    /// Appends the id of each key, if there is one.
    pub(super) fn get_many(&self, keys: &[Key], out: &mut Vec<Option<u32>>) {
        out.reserve(keys.len());
        let mut next = 0;
        for keys in keys.chunks(AT_ONCE) {
            let expected = self.met.get(next..next + keys.len()).unwrap_or_default();
            let as_before =
                expected.len() == keys.len() && expected.iter().zip(keys).all(|(met, key)| met.key == *key);
            if as_before {
                out.extend(expected.iter().map(|met| Some(met.id)));
                next += keys.len();
            } else {
                self.search(keys, &mut next, out);
            }
        }
    }

    /// The same by the hash. What many keys need is fetched before the first is looked at: one after another they would
    /// each wait for the memory.
    fn search(&self, keys: &[Key], next: &mut usize, out: &mut Vec<Option<u32>>) {
        let mut likely = [None; AT_ONCE];
        for (likely, key) in likely.iter_mut().zip(keys) {
            *likely = self.places.likely(key.hash());
        }
        let mut found = [None; AT_ONCE];
        for ((found, likely), key) in found.iter_mut().zip(likely).zip(keys) {
            *found = likely.filter(|place| self.at(*place, *key).is_some());
        }
        for (found, key) in found.iter().zip(keys) {
            let met =
                found.or_else(|| self.place(*key)).and_then(|place| Some((place, self.at(place, *key)?)));
            if let Some((place, _)) = met {
                *next = place as usize + 1;
            }
            out.push(met.map(|(_, met)| met.id));
        }
    }

    /// Adds a key, or changes its id.
    pub(super) fn insert(&mut self, key: Key, id: u32) {
        let known = self.place(key).and_then(|place| self.met.get_mut(place as usize));
        if let Some(met) = known {
            met.id = id;
            return;
        }
        // There are four for each series at most; what has no place is read again each time.
        if let Ok(place) = u32::try_from(self.met.len()) {
            make_room(&mut self.met);
            self.met.push(Met { key, id });
            self.places.insert(key.hash(), place);
        }
    }

    pub(super) fn clear(&mut self) {
        *self = Ids::default();
    }
}

#[cfg(test)]
mod tests {
    use super::super::identity::Secret;
    use super::*;

    #[test]
    fn every_key_has_its_id_one_by_one_and_together_in_any_order() {
        let domain = Secret::of(&[3; 32], 1).domain(0, &[]);
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
        let ask = |numbers: &[u32]| {
            let keys: Vec<Key> = numbers.iter().map(|n| key(*n)).collect();
            let mut found = Vec::new();
            ids.get_many(&keys, &mut found);
            let one_by_one: Vec<_> = keys.iter().map(|key| ids.get(*key)).collect();
            let all: Vec<_> = numbers.iter().map(|n| expected(*n)).collect();
            assert_eq!((&found, &one_by_one), (&all, &all));
        };
        ask(&(0..40_001).collect::<Vec<_>>());
        // Backwards, with one left out, with one that is strange, from the middle on, twice the same, past the end.
        ask(&(0..5_000).rev().collect::<Vec<_>>());
        ask(&(0..5_000).filter(|n| n % 23 != 7).collect::<Vec<_>>());
        ask(&(0..5_000).map(|n| if n % 41 == 3 { n + 30_000 } else { n }).collect::<Vec<_>>());
        ask(&(13_000..13_700).chain(100..900).chain(899..1_000).collect::<Vec<_>>());
        ask(&[5; 100]);
        ask(&(19_990..20_040).collect::<Vec<_>>());
        ids.clear();
        assert_eq!((ids.get(key(1)), ids.len()), (None, 0));
    }
}
