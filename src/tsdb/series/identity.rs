//! The identity of raw label bytes: a keyed hash of 128 bits, of which 96 bits are stored.
//!
//! The key is a secret of the organisation that lives as long as the process, so that no sender can
//! prepare two label sets that collide. Up to 1 KiB the hash is NH of UMAC (RFC 4418, section 5.2)
//! over 64-bit words: the 128-bit sum of the products of neighbouring words, after adding a word of
//! the key to each. For any two texts of the same length, at most one key in 2^64 gives equal sums.
//! So two of 1 M label sets collide with a probability of 10^-8 in the worst case. The sums of
//! texts that do not depend on the key are practically random, and 96 bits of them collide with a
//! probability of 10^-17. Longer texts use two seeded rapidhash lanes. One pass in place of two
//! halves the cost (16 ns against 26 ns for 250 bytes).

use std::sync::Arc;

use rapidhash::v3::{RapidSecrets, rapidhash_v3_seeded};

/// The hash that identifies a label set.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct LabelsKey([u32; 3]);

impl LabelsKey {
    /// Returns the key with these bits.
    #[cfg(test)]
    pub(crate) const fn of_test(bits: [u32; 3]) -> LabelsKey {
        LabelsKey(bits)
    }

    /// Returns the first 32 bits.
    pub(super) const fn hash(self) -> u32 {
        self.0[0]
    }

    /// Returns 32 bits that are independent of [`LabelsKey::hash`].
    pub(super) const fn second(self) -> u32 {
        self.0[1]
    }

    /// Returns 32 bits that are independent of the others.
    pub(super) const fn third(self) -> u32 {
        self.0[2]
    }
}

/// Returns the slot of a hash in a table of `slots` slots. It is monotonic: a greater hash never
/// has a lower slot.
#[inline]
pub(super) const fn home(hash: u32, slots: usize) -> usize {
    ((hash as u64 * slots as u64) >> 32) as usize
}

/// An id that no series has.
const NO_ID: u32 = u32::MAX;

/// A hash table of ids with slots of 8 bytes. The caller compares the texts of the ids.
///
/// Robin Hood hashing with linear probing: an insertion takes the first slot whose content is
/// nearer to its home than the new id would be, and moves that content on. So a lookup ends at the
/// first slot that is nearer to its home than the hash would be. A lookup of an absent hash is as
/// short as one of a present hash, in a table that is four fifths full.
#[derive(Debug, Default)]
pub(in crate::tsdb) struct IdTable {
    /// `hash << 32 | id`.
    slots: Vec<u64>,
    len: usize,
}

/// The result of a search for a hash.
enum Probed {
    /// The index of the slot whose id satisfies the condition.
    At(usize),
    /// The slot index for a new id with this hash, and the distance of that slot from its home.
    Absent { place: usize, distance: usize },
}

/// Returns the hash of a slot.
const fn hash_of(slot: u64) -> u32 {
    (slot >> 32) as u32
}

/// Returns the id of a slot.
#[expect(clippy::cast_possible_truncation, reason = "the low half is the id")]
const fn id_of(slot: u64) -> u32 {
    slot as u32
}

impl IdTable {
    /// Returns the memory in bytes.
    pub(super) fn bytes(&self) -> usize {
        self.slots.capacity() * 8
    }

    /// Returns the content of the home slot of a hash. Callers touch the slots of many hashes
    /// before the first lookup, so that the cache misses overlap.
    #[inline]
    pub(super) fn touch(&self, hash: u32) -> u64 {
        self.slots.get(home(hash, self.slots.len())).copied().unwrap_or(u64::MAX)
    }

    /// Returns the id with this hash for which `is` returns true.
    #[inline]
    pub(super) fn find(&self, hash: u32, is: impl FnMut(u32) -> bool) -> Option<u32> {
        match self.probe(hash, is) {
            Probed::At(place) => self.slots.get(place).copied().map(id_of),
            Probed::Absent { .. } => None,
        }
    }

    #[inline]
    fn probe(&self, hash: u32, mut is: impl FnMut(u32) -> bool) -> Probed {
        let mut place = home(hash, self.slots.len());
        let mut distance = 0;
        while let Some(slot) = self.slots.get(place).copied() {
            if id_of(slot) == NO_ID {
                break;
            }
            if hash_of(slot) == hash {
                if is(id_of(slot)) {
                    return Probed::At(place);
                }
            } else if self.distance(slot, place) < distance {
                break;
            }
            place = self.after(place);
            distance += 1;
        }
        Probed::Absent { place, distance }
    }

    const fn after(&self, place: usize) -> usize {
        if place + 1 < self.slots.len() { place + 1 } else { 0 }
    }

    /// Returns the number of slots between the content of a slot and its home.
    const fn distance(&self, slot: u64, place: usize) -> usize {
        let home = home(hash_of(slot), self.slots.len());
        if place >= home { place - home } else { place + self.slots.len() - home }
    }

    /// Adds an id and returns true, unless the table has an id with this hash for which `is`
    /// returns true.
    pub(super) fn insert_new(&mut self, hash: u32, id: u32, is: impl FnMut(u32) -> bool) -> bool {
        self.grow();
        let Probed::Absent { place, distance } = self.probe(hash, is) else { return false };
        self.put(u64::from(hash) << 32 | u64::from(id), place, distance);
        self.len += 1;
        true
    }

    /// Adds an id that is not in the table.
    pub(super) fn insert(&mut self, hash: u32, id: u32) {
        self.insert_new(hash, id, |_| false);
    }

    /// Removes an id.
    pub(super) fn remove(&mut self, hash: u32, id: u32) {
        let Probed::At(mut place) = self.probe(hash, |have| have == id) else { return };
        // The following slots move one back, up to a slot that is empty or at home.
        loop {
            let next = self.after(place);
            let moves = self.slots.get(next).copied();
            let moves = moves.filter(|slot| id_of(*slot) != NO_ID && self.distance(*slot, next) > 0);
            if let Some(slot) = self.slots.get_mut(place) {
                *slot = moves.unwrap_or(u64::MAX);
            }
            if moves.is_none() {
                break;
            }
            place = next;
        }
        self.len -= 1;
    }

    /// Creates a table for `len` ids with spare slots for another quarter.
    pub(super) fn for_rows(len: usize) -> IdTable {
        let mut rows = IdTable::default();
        rows.resize((len + len / 2).max(16));
        rows
    }

    fn grow(&mut self) {
        if (self.len + 1) * 5 > self.slots.len() * 4 {
            self.resize((self.slots.len() + self.slots.len() / 4).max(16));
        }
    }

    fn resize(&mut self, slots: usize) {
        let old = std::mem::replace(&mut self.slots, vec![u64::MAX; slots]);
        for slot in old.into_iter().filter(|slot| id_of(*slot) != NO_ID) {
            if let Probed::Absent { place, distance } = self.probe(hash_of(slot), |_| false) {
                self.put(slot, place, distance);
            }
        }
    }

    /// Puts content into the slot at which [`IdTable::probe`] ended. Displaced contents move on.
    fn put(&mut self, new: u64, mut place: usize, mut distance: usize) {
        let mut new = new;
        while let Some(have) = self.slots.get(place).copied() {
            if id_of(have) == NO_ID {
                break;
            }
            let its = self.distance(have, place);
            if its < distance {
                if let Some(slot) = self.slots.get_mut(place) {
                    *slot = new;
                }
                (new, distance) = (have, its);
            }
            place = self.after(place);
            distance += 1;
        }
        if let Some(slot) = self.slots.get_mut(place) {
            *slot = new;
        }
    }
}

/// The hash secret of one organisation.
#[derive(Clone)]
pub(in crate::tsdb) struct HashSecret {
    lanes: [RapidSecrets; 2],
    nh_key: Arc<NhKey>,
}

/// The longest text that is hashed by [`NhKey`], in bytes.
const SHORT_BYTES_MAX: usize = 1_024;

/// A key of NH, the hash of UMAC.
struct NhKey {
    pairs: [[u64; 2]; SHORT_BYTES_MAX / 16],
    /// The key of the last 16 bytes, which may overlap the last pair.
    last: [u64; 2],
    /// The key of the length, because texts may differ only in trailing zeros.
    length: [u64; 2],
}

impl NhKey {
    fn of(lanes: &[RapidSecrets; 2]) -> NhKey {
        let [a, b] = lanes;
        let word = |lane: &RapidSecrets, n: usize| rapidhash_v3_seeded(&(n as u64).to_le_bytes(), lane);
        let pair = |n: usize| [word(a, n), word(b, n)];
        NhKey {
            pairs: std::array::from_fn(pair),
            last: pair(SHORT_BYTES_MAX),
            length: pair(SHORT_BYTES_MAX + 1),
        }
    }

    /// Returns NH of at most [`SHORT_BYTES_MAX`] bytes.
    #[inline]
    fn sum(&self, bytes: &[u8]) -> u128 {
        let product = |at: &[u8; 16], key: &[u64; 2]| {
            let [a0, a1, a2, a3, a4, a5, a6, a7, b0, b1, b2, b3, b4, b5, b6, b7] = *at;
            let a = u64::from_le_bytes([a0, a1, a2, a3, a4, a5, a6, a7]).wrapping_add(key[0]);
            let b = u64::from_le_bytes([b0, b1, b2, b3, b4, b5, b6, b7]).wrapping_add(key[1]);
            u128::from(a) * u128::from(b)
        };
        let (chunks, rest) = bytes.as_chunks::<16>();
        let whole = chunks.iter().zip(&self.pairs).map(|(chunk, key)| product(chunk, key));
        let sum = whole.fold(0_u128, u128::wrapping_add);
        // The last 16 bytes overlap the last whole chunk, and are hashed with another part of the
        // key.
        let mut padded = [0; 16];
        let last = bytes.last_chunk().unwrap_or_else(|| {
            for (to, from) in padded.iter_mut().zip(rest) {
                *to = *from;
            }
            &padded
        });
        let length =
            u128::from((bytes.len() as u64).wrapping_add(self.length[0])) * u128::from(self.length[1]);
        sum.wrapping_add(product(last, &self.last)).wrapping_add(length)
    }
}

impl std::fmt::Debug for HashSecret {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Secret(***)")
    }
}

/// The hash function for one kind of bytes: the encoding of one protocol with one set of forced
/// labels.
#[derive(Clone)]
pub(in crate::tsdb) struct Domain {
    lanes: [RapidSecrets; 2],
    nh_key: Arc<NhKey>,
}

impl HashSecret {
    /// Derives an organisation's secret from the process's secret.
    pub(in crate::tsdb) fn of(process: &[u8; 32], org: u32) -> HashSecret {
        let lane = |number: u8| {
            let (a, b) = if number == 0 { process.split_at(16) } else { (process.as_slice(), &[][..]) };
            let first = rapidhash_v3_seeded(a, &RapidSecrets::seed(u64::from(org) << 8 | u64::from(number)));
            RapidSecrets::seed(rapidhash_v3_seeded(b, &RapidSecrets::seed(first)) ^ first.rotate_left(32))
        };
        let lanes = [lane(0), lane(1)];
        HashSecret { lanes, nh_key: Arc::new(NhKey::of(&lanes)) }
    }

    /// Returns the hash function for an encoding and a set of forced labels, which give equal bytes
    /// different meanings.
    pub(in crate::tsdb) fn domain(&self, encoding: u8, forced: &[(Box<str>, Box<str>)]) -> Domain {
        let mut bytes = vec![1, encoding];
        for text in forced.iter().flat_map(|(name, value)| [name, value]) {
            bytes.extend_from_slice(&(text.len() as u64).to_le_bytes());
            bytes.extend_from_slice(text.as_bytes());
        }
        self.salted(&bytes)
    }

    fn salted(&self, salt: &[u8]) -> Domain {
        let lanes = self
            .lanes
            .map(|lane| RapidSecrets { seed: rapidhash_v3_seeded(salt, &lane), secrets: lane.secrets });
        Domain { lanes, nh_key: Arc::clone(&self.nh_key) }
    }
}

impl Domain {
    #[inline]
    #[expect(clippy::cast_possible_truncation, reason = "halves of 128 bits, of which 96 are kept")]
    pub(in crate::tsdb) fn key(&self, bytes: &[u8]) -> LabelsKey {
        let [a, b] = &self.lanes;
        let (a, b) = if bytes.len() <= SHORT_BYTES_MAX {
            // Sums are not evenly spread, and are the same in all domains. Folding them with the
            // seeds and secrets of this domain corrects both. The results of two different sums
            // collide no more often than random numbers of 128 bits.
            let sum = self.nh_key.sum(bytes);
            let (low, high) = (sum as u64, (sum >> 64) as u64);
            (fold(low ^ a.seed, high ^ a.secrets[0]), fold(low ^ b.seed, high.rotate_left(32) ^ b.secrets[0]))
        } else {
            (rapidhash_v3_seeded(bytes, a), rapidhash_v3_seeded(bytes, b))
        };
        LabelsKey([a as u32, (a >> 32) as u32, b as u32])
    }
}

/// Returns the XOR of the halves of a product.
#[inline]
#[expect(clippy::cast_possible_truncation, reason = "halves of 128 bits")]
const fn fold(a: u64, b: u64) -> u64 {
    let product = a as u128 * b as u128;
    product as u64 ^ (product >> 64) as u64
}

impl std::fmt::Debug for TextHash {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("TextHash(***)")
    }
}

/// The hash of texts and of rows within one organisation. Callers compare the texts where hashes
/// are equal.
#[derive(Clone)]
pub(in crate::tsdb) struct TextHash(Arc<RapidSecrets>);

impl TextHash {
    pub(in crate::tsdb) fn new(secret: &HashSecret) -> TextHash {
        let [lane, _] = secret.salted(&[2]).lanes;
        TextHash(Arc::new(lane))
    }

    #[inline]
    #[expect(clippy::cast_possible_truncation, reason = "32 bits are enough: what is equal is compared")]
    pub(super) fn of(&self, bytes: &[u8]) -> u32 {
        rapidhash_v3_seeded(bytes, &self.0) as u32
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn keys_differ_by_organisation_encoding_and_forced_labels() {
        let secret = |org| HashSecret::of(&[3; 32], org);
        let forced = [("a".into(), "b".into())];
        let keys = [
            secret(1).domain(0, &[]).key(b"x"),
            secret(2).domain(0, &[]).key(b"x"),
            secret(1).domain(1, &[]).key(b"x"),
            secret(1).domain(0, &forced).key(b"x"),
            secret(1).domain(0, &[]).key(b"y"),
            HashSecret::of(&[4; 32], 1).domain(0, &[]).key(b"x"),
        ];
        for (place, key) in keys.iter().enumerate() {
            assert!(!keys[..place].contains(key), "key {place}");
        }
        assert_eq!(keys[0], secret(1).domain(0, &[]).key(b"x"));
    }

    #[test]
    fn texts_that_differ_in_a_bit_or_in_length_have_different_keys() {
        let domain = HashSecret::of(&[3; 32], 1).domain(0, &[]);
        let mut seen = std::collections::BTreeMap::new();
        for length in (0..100).chain(SHORT_BYTES_MAX - 20..SHORT_BYTES_MAX + 3) {
            for flipped in std::iter::once(None).chain((0..length).map(Some)) {
                let mut text = vec![0; length];
                flipped.into_iter().for_each(|place: usize| text[place] ^= 1 << (place % 8));
                let LabelsKey(parts) = domain.key(&text);
                assert_eq!(seen.insert(parts, (length, flipped)), None, "{length} bytes, {flipped:?}");
            }
        }
        // Each of the three parts alone distinguishes most keys: none is constant or a copy of
        // another.
        for part in 0..3 {
            let different: std::collections::BTreeSet<u32> = seen.keys().map(|key| key[part]).collect();
            assert!(different.len() > seen.len() * 999 / 1_000, "part {part}");
        }
        assert!(seen.keys().all(|[a, b, c]| a != b && b != c && a != c));
    }

    /// Many hashes, few hashes, and hashes at both ends of the table.
    #[test]
    fn ids_are_found_and_removed_for_every_spread_of_hashes() {
        let spreads: [fn(u32) -> u32; 3] =
            [|n| n.wrapping_mul(2_654_435_769), |n| n % 50 * 80_000_000, |n| u32::MAX - n % 3_000 * (n % 2)];
        for hash in spreads {
            let mut table = IdTable::default();
            for id in 0..5_000 {
                assert!(table.insert_new(hash(id), id, |have| have == id));
                assert!(!table.insert_new(hash(id), id, |have| have == id));
            }
            let found = |table: &IdTable, id: u32| table.find(hash(id), |have| have == id);
            for gone in (0..5_000).step_by(3) {
                table.remove(hash(gone), gone);
                table.remove(hash(gone), gone);
                assert_eq!(found(&table, gone), None);
            }
            for id in 0..5_000 {
                assert_eq!(found(&table, id), (id % 3 != 0).then_some(id));
            }
            assert_eq!(table.len, 5_000 - 1_667);
            // The distance grows by at most one from slot to slot.
            for (place, slot) in table.slots.iter().enumerate().filter(|(_, slot)| id_of(**slot) != NO_ID) {
                let distance = table.distance(*slot, place);
                let before = (place + table.slots.len() - 1) % table.slots.len();
                let fits = table.slots.get(before).is_some_and(|have| {
                    id_of(*have) != NO_ID && table.distance(*have, before) + 1 >= distance
                });
                assert!(distance == 0 || fits, "slot {place} at distance {distance}");
            }
        }
    }

    #[test]
    fn the_caller_distinguishes_ids_with_the_same_hash() {
        let mut rows = IdTable::default();
        assert_eq!(rows.find(7, |_| true), None);
        for id in 0..5_000 {
            rows.insert(id % 50 * 80_000_000, id);
        }
        for id in 0..5_000 {
            assert_eq!(rows.find(id % 50 * 80_000_000, |have| have == id), Some(id));
        }
        assert_eq!(rows.find(0, |have| have == 1), None);
        assert_eq!(rows.find(u32::MAX, |_| true), None);
    }
}
