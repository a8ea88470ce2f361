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
pub(in crate::tsdb) struct LabelsKey([u32; 3]);

impl LabelsKey {
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

/// A hash table of ids with slots of 8 bytes. The caller compares what the ids stand for.
#[derive(Debug, Default)]
pub(in crate::tsdb) struct IdTable {
    /// `hash << 32 | id`.
    slots: Vec<u64>,
    len: usize,
}

impl IdTable {
    /// Returns the memory in bytes.
    pub(super) fn bytes(&self) -> usize {
        self.slots.capacity() * 8
    }

    /// Returns the id in the first slot of this hash, which is mostly the right one.
    #[inline]
    #[expect(clippy::cast_possible_truncation, reason = "the low half is the id")]
    pub(super) fn likely(&self, hash: u32) -> Option<u32> {
        let slot = *self.slots.get(home(hash, self.slots.len()))?;
        (slot >> 32 == u64::from(hash)).then_some(slot as u32)
    }

    /// Returns the id with this hash for which `is` returns true.
    #[expect(clippy::cast_possible_truncation, reason = "the low half is the id")]
    pub(super) fn find(&self, hash: u32, mut is: impl FnMut(u32) -> bool) -> Option<u32> {
        let mut place = home(hash, self.slots.len());
        loop {
            let slot = *self.slots.get(place)?;
            let id = slot as u32;
            if id == NO_ID {
                return None;
            }
            if slot >> 32 == u64::from(hash) && is(id) {
                return Some(id);
            }
            place = if place + 1 < self.slots.len() { place + 1 } else { 0 };
        }
    }

    /// Adds an id and returns true, unless the table has an id with this hash for which `is`
    /// returns true.
    #[expect(clippy::cast_possible_truncation, reason = "the low half is the id")]
    pub(super) fn insert_new(&mut self, hash: u32, id: u32, mut is: impl FnMut(u32) -> bool) -> bool {
        self.grow();
        let mut place = home(hash, self.slots.len());
        while let Some(slot) = self.slots.get_mut(place) {
            if *slot as u32 == NO_ID {
                *slot = u64::from(hash) << 32 | u64::from(id);
                self.len += 1;
                return true;
            }
            if *slot >> 32 == u64::from(hash) && is(*slot as u32) {
                return false;
            }
            place = if place + 1 < self.slots.len() { place + 1 } else { 0 };
        }
        false
    }

    /// Adds an id that is not in the table.
    pub(super) fn insert(&mut self, hash: u32, id: u32) {
        self.grow();
        self.put(u64::from(hash) << 32 | u64::from(id));
        self.len += 1;
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
        for slot in old.into_iter().filter(|slot| *slot & u64::from(NO_ID) != u64::from(NO_ID)) {
            self.put(slot);
        }
    }

    fn put(&mut self, new: u64) {
        let mut place = home((new >> 32) as u32, self.slots.len());
        while let Some(slot) = self.slots.get_mut(place) {
            if *slot & u64::from(NO_ID) == u64::from(NO_ID) {
                *slot = new;
                return;
            }
            place = if place + 1 < self.slots.len() { place + 1 } else { 0 };
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
