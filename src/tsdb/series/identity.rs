//! Raw label bytes to a series id: a keyed 128-bit hash, of which 96 bits are kept.
//!
//! The hash is two seeded rapidhash lanes under a secret of the organisation that lives as long as the process, so
//! that nobody can prepare two label sets that collide. By chance two of 1 M series do with probability 10^-17.

use std::collections::HashMap;
use std::hash::{BuildHasherDefault, Hash, Hasher};

use rapidhash::v3::{RapidSecrets, rapidhash_v3_seeded};

/// What a label set is known by.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::tsdb) struct Key([u32; 3]);

impl Hash for Key {
    fn hash<H: Hasher>(&self, state: &mut H) {
        state.write_u64(u64::from(self.0[0]) << 32 | u64::from(self.0[1]));
    }
}

/// The key is a hash already.
#[derive(Default)]
pub(in crate::tsdb) struct Unhashed(u64);

impl Hasher for Unhashed {
    fn finish(&self) -> u64 {
        self.0
    }

    fn write(&mut self, bytes: &[u8]) {
        // Only keys are hashed here and they write one number; anything else still hashes, if badly.
        for byte in bytes {
            self.0 = self.0.rotate_left(8) ^ u64::from(*byte);
        }
    }

    fn write_u64(&mut self, value: u64) {
        self.0 = value;
    }
}

/// Ids by key.
pub(in crate::tsdb) type Ids = HashMap<Key, u32, BuildHasherDefault<Unhashed>>;

/// The secret of one organisation.
#[derive(Clone, Copy)]
pub(in crate::tsdb) struct Secret {
    lanes: [RapidSecrets; 2],
}

impl std::fmt::Debug for Secret {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Secret(***)")
    }
}

/// The hash of one kind of bytes: one protocol's encoding, with one set of forced labels.
#[derive(Clone, Copy)]
pub(in crate::tsdb) struct Domain {
    lanes: [RapidSecrets; 2],
}

impl Secret {
    /// An organisation's secret, from the process's.
    pub(in crate::tsdb) fn of(process: &[u8; 32], org: u32) -> Secret {
        let lane = |number: u8| {
            let (a, b) = if number == 0 { process.split_at(16) } else { (process.as_slice(), &[][..]) };
            let first = rapidhash_v3_seeded(a, &RapidSecrets::seed(u64::from(org) << 8 | u64::from(number)));
            RapidSecrets::seed(rapidhash_v3_seeded(b, &RapidSecrets::seed(first)) ^ first.rotate_left(32))
        };
        Secret { lanes: [lane(0), lane(1)] }
    }

    /// Everything that tells equal raw bytes apart.
    pub(in crate::tsdb) fn domain(&self, encoding: u8, forced: &[(Box<str>, Box<str>)]) -> Domain {
        let mut bytes = vec![1, encoding];
        for text in forced.iter().flat_map(|(name, value)| [name, value]) {
            bytes.extend_from_slice(&(text.len() as u64).to_le_bytes());
            bytes.extend_from_slice(text.as_bytes());
        }
        self.salted(&bytes)
    }

    /// For canonical label sets, which no protocol's bytes are mistaken for.
    pub(in crate::tsdb) fn canonical(&self) -> Domain {
        self.salted(&[0])
    }

    fn salted(&self, salt: &[u8]) -> Domain {
        let lanes = self
            .lanes
            .map(|lane| RapidSecrets { seed: rapidhash_v3_seeded(salt, &lane), secrets: lane.secrets });
        Domain { lanes }
    }
}

impl Domain {
    #[inline]
    #[expect(clippy::cast_possible_truncation, reason = "96 of 128 bits are kept")]
    pub(in crate::tsdb) fn key(&self, bytes: &[u8]) -> Key {
        let [a, b] = &self.lanes;
        let (a, b) = (rapidhash_v3_seeded(bytes, a), rapidhash_v3_seeded(bytes, b));
        Key([a as u32, (a >> 32) as u32, b as u32])
    }
}

/// The bytes of a sorted label set that its canonical key is taken of.
pub(in crate::tsdb) fn canonical_bytes(out: &mut Vec<u8>, pairs: &[(&str, &str)]) {
    out.clear();
    for text in pairs.iter().flat_map(|(name, value)| [name, value]) {
        out.extend_from_slice(&(text.len() as u64).to_le_bytes());
        out.extend_from_slice(text.as_bytes());
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn keys_differ_by_organisation_encoding_and_forced_labels() {
        let secret = |org| Secret::of(&[3; 32], org);
        let forced = [("a".into(), "b".into())];
        let keys = [
            secret(1).domain(0, &[]).key(b"x"),
            secret(2).domain(0, &[]).key(b"x"),
            secret(1).domain(1, &[]).key(b"x"),
            secret(1).domain(0, &forced).key(b"x"),
            secret(1).canonical().key(b"x"),
            secret(1).domain(0, &[]).key(b"y"),
            Secret::of(&[4; 32], 1).domain(0, &[]).key(b"x"),
        ];
        for (place, key) in keys.iter().enumerate() {
            assert!(!keys[..place].contains(key), "key {place}");
        }
        assert_eq!(keys[0], secret(1).domain(0, &[]).key(b"x"));
    }
}
