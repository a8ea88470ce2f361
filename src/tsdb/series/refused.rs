//! Refused label sets, so that refusing one again costs a single lookup.
//!
//! A sender repeats refused series with every request. Entries are keyed by the hash of the raw
//! label bytes, as known series are in [`super::ids`], and hold the reason why the series has no
//! id: its labels are invalid, or the series is unknown and the limit is reached. The second reason
//! holds until the label set is registered, perhaps with other raw bytes. So each entry has a
//! fingerprint of the label set, and the fingerprints of label sets that were registered later are
//! stored as well. If two label sets have the same fingerprint, the labels are parsed needlessly,
//! but never refused wrongly.
//!
//! The memory is bounded by the organisation's remaining memory for names and by the number of
//! registered series; see [`entries_max`]. In a full table, one miss in [`MISSES_PER_REPLACEMENT`]
//! replaces an entry chosen at random. So a sender that cycles through more label sets than there
//! are entries still hits most entries in the next cycle, and a sender whose label sets have
//! changed hits the new ones after some cycles.

use std::collections::HashSet;

use super::identity::{LabelsKey, TextHash};
use super::ids::Ids;
use crate::tsdb::options::OrgLimits;

/// The entries that an organisation may always have: 8 MB.
const ENTRIES_MIN: usize = 1 << 18;
/// The most entries that an organisation may have because of its memory: 128 MB.
const ENTRIES_MAX: usize = 1 << 22;
/// The estimated memory of an entry, in bytes.
const ENTRY_BYTES: u64 = 32;
/// The divisor of the remaining memory for names that gives the memory for entries.
const MEMORY_PART: u64 = 16;
/// In a full table, one miss in this many replaces an entry.
const MISSES_PER_REPLACEMENT: u32 = 4;
/// The low bits of an entry, which hold a fingerprint. The bits above hold one more than the index
/// of a code in [`CODES`], or 0.
const FINGERPRINT_BITS: u32 = 28;

/// The codes of invalid labels.
const CODES: [&str; 10] = [
    "invalid_encoding",
    "invalid_utf8",
    "duplicate_label",
    "too_many_labels",
    "invalid_label",
    "label_name_too_long",
    "metric_name_too_long",
    "label_value_too_long",
    "missing_metric_name",
    "labels_too_long",
];

/// The reason why a series has no id.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::tsdb) enum Cause {
    /// The labels are invalid. Contains the code of the refusal.
    Invalid(&'static str),
    /// The labels are valid, but no series has them.
    Unknown,
}

/// The fingerprint of a label set.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(in crate::tsdb) struct Fingerprint(u32);

/// Returns the number of entries that an organisation may have with `live` registered series and
/// `spare_bytes` of memory left for names.
pub(in crate::tsdb) fn entries_max(live: u32, spare_bytes: u64) -> usize {
    let by_memory = usize::try_from(spare_bytes / MEMORY_PART / ENTRY_BYTES).unwrap_or(ENTRIES_MAX);
    by_memory.clamp(ENTRIES_MIN, ENTRIES_MAX).max(live as usize)
}

/// The refused label sets of an organisation.
#[derive(Debug, Default)]
pub(in crate::tsdb) struct RefusedSeries {
    entries: Ids,
    /// Fingerprints of label sets that were registered while there were entries.
    registered: HashSet<Fingerprint>,
    /// Refused label sets that got no entry in the full table; wraps around.
    misses: u32,
    /// The label limits with which the entries were checked.
    labels_max: usize,
    name_bytes_max: usize,
    value_bytes_max: usize,
}

impl RefusedSeries {
    /// Appends the reason for each key, or None if there is no entry or it no longer holds.
    pub(in crate::tsdb) fn causes(
        &self,
        keys: &[LabelsKey],
        limits: &OrgLimits,
        out: &mut Vec<Option<Cause>>,
    ) {
        if self.entries.len() == 0 || !self.is_under(limits) {
            out.resize(out.len() + keys.len(), None);
            return;
        }
        let mut entries = Vec::new();
        self.entries.get_many(keys, &mut entries);
        out.extend(entries.into_iter().map(|entry| self.cause(entry?)));
    }

    /// Returns a function that takes the keys of a request batch by batch. It returns true for a
    /// batch of label sets that were refused in this order; no registered series has such a key.
    pub(super) fn recognizer(&self, limits: &OrgLimits) -> impl FnMut(&[LabelsKey]) -> bool {
        let is_current = self.is_under(limits);
        self.entries.recognizer(move |entry| is_current && self.cause(entry).is_some())
    }

    fn cause(&self, entry: u32) -> Option<Cause> {
        match (entry >> FINGERPRINT_BITS).checked_sub(1) {
            Some(index) => CODES.get(index as usize).copied().map(Cause::Invalid),
            None => (!self.registered.contains(&Fingerprint(entry))).then_some(Cause::Unknown),
        }
    }

    /// Returns whether the entries were checked with these limits.
    const fn is_under(&self, limits: &OrgLimits) -> bool {
        self.labels_max == limits.labels_max
            && self.name_bytes_max == limits.name_bytes_max
            && self.value_bytes_max == limits.value_bytes_max
    }

    /// Adds invalid labels. See [`entries_max`] for the argument of that name.
    pub(in crate::tsdb) fn add_invalid(
        &mut self,
        key: LabelsKey,
        code: &'static str,
        limits: &OrgLimits,
        entries_max: usize,
    ) {
        if let Some(index) =
            CODES.iter().position(|known| *known == code).and_then(|at| u32::try_from(at).ok())
        {
            self.add(key, || (index + 1) << FINGERPRINT_BITS, limits, entries_max);
        }
    }

    /// Adds labels that no series has. See [`entries_max`] for the argument of that name.
    pub(in crate::tsdb) fn add_unknown(
        &mut self,
        key: LabelsKey,
        of: impl FnOnce() -> Fingerprint,
        limits: &OrgLimits,
        entries_max: usize,
    ) {
        self.add(key, || of().0, limits, entries_max);
    }

    fn add(&mut self, key: LabelsKey, entry: impl FnOnce() -> u32, limits: &OrgLimits, entries_max: usize) {
        let has_shrunk = self.entries.len() / 2 > entries_max;
        if !self.is_under(limits) || has_shrunk || self.registered.len() >= entries_max {
            self.clear();
            self.labels_max = limits.labels_max;
            self.name_bytes_max = limits.name_bytes_max;
            self.value_bytes_max = limits.value_bytes_max;
        }
        let entry = if self.entries.len() < entries_max {
            let entry = entry();
            self.entries.insert(key, entry);
            entry
        } else {
            self.misses = self.misses.wrapping_add(1);
            // The key decides as well, so that a repeated sequence of misses replaces other
            // entries.
            if !key.third().wrapping_add(self.misses).is_multiple_of(MISSES_PER_REPLACEMENT) {
                return;
            }
            let entry = entry();
            self.entries.insert_or_replace_any(key.second(), key, entry);
            entry
        };
        // The label set was looked up before the entry was added, so the entry is current.
        self.registered.remove(&Fingerprint(entry));
    }

    /// Records that a series with this label set was registered.
    pub(in crate::tsdb) fn registered(&mut self, fingerprint: impl FnOnce() -> Fingerprint) {
        if self.entries.len() > 0 {
            self.registered.insert(fingerprint());
        }
    }

    /// Removes all entries and fingerprints.
    pub(in crate::tsdb) fn clear(&mut self) {
        self.entries.clear();
        self.registered = HashSet::new();
    }

    /// Returns the memory in bytes.
    pub(in crate::tsdb) fn bytes(&self) -> usize {
        self.entries.bytes() + self.registered.capacity() * 5
    }
}

impl Fingerprint {
    /// Returns the fingerprint of sorted pairs.
    pub(in crate::tsdb) fn of(hash: &TextHash, pairs: &[(&str, &str)]) -> Fingerprint {
        let mut bytes =
            Vec::with_capacity(pairs.iter().map(|(name, value)| name.len() + value.len() + 8).sum());
        for text in pairs.iter().flat_map(|(name, value)| [name, value]) {
            bytes.extend_from_slice(&u32::try_from(text.len()).unwrap_or(u32::MAX).to_le_bytes());
            bytes.extend_from_slice(text.as_bytes());
        }
        Fingerprint(hash.of(&bytes) >> (u32::BITS - FINGERPRINT_BITS))
    }
}

#[cfg(test)]
mod tests {
    use super::super::identity::HashSecret;
    use super::*;

    fn key(n: u32) -> LabelsKey {
        HashSecret::of(&[3; 32], 1).domain(0, &[]).key(&n.to_le_bytes())
    }

    fn fingerprint(value: &str) -> Fingerprint {
        Fingerprint::of(&TextHash::new(&HashSecret::of(&[3; 32], 1)), &[("__name__", "up"), ("job", value)])
    }

    fn causes(refused: &RefusedSeries, numbers: &[u32], limits: &OrgLimits) -> Vec<Option<Cause>> {
        let mut out = Vec::new();
        refused.causes(&numbers.iter().map(|n| key(*n)).collect::<Vec<_>>(), limits, &mut out);
        out
    }

    #[test]
    fn a_cause_holds_until_the_label_set_is_registered_or_the_limits_change() {
        let limits = OrgLimits::default();
        let mut refused = RefusedSeries::default();
        refused.registered(|| fingerprint("a"));
        refused.add_unknown(key(1), || fingerprint("a"), &limits, 99);
        refused.add_unknown(key(2), || fingerprint("b"), &limits, 99);
        refused.add_unknown(key(3), || fingerprint("a"), &limits, 99);
        for (at, code) in (10..).zip(CODES) {
            refused.add_invalid(key(at), code, &limits, 99);
            assert_eq!(causes(&refused, &[at], &limits), [Some(Cause::Invalid(code))]);
        }
        refused.add_invalid(key(4), "no_such_code", &limits, 99);
        let unknown = Some(Cause::Unknown);
        assert_eq!(causes(&refused, &[1, 2, 3, 4], &limits), [unknown, unknown, unknown, None]);
        // The label set of two keys is registered under the raw bytes of one of them.
        refused.registered(|| fingerprint("a"));
        assert_eq!(causes(&refused, &[1, 2, 3], &limits), [None, unknown, None]);
        let other = OrgLimits { labels_max: 3, ..OrgLimits::default() };
        assert_eq!(causes(&refused, &[2, 10], &other), [None, None]);
        refused.add_unknown(key(5), || fingerprint("c"), &other, 99);
        assert_eq!(causes(&refused, &[2, 5], &other), [None, unknown]);
    }

    #[test]
    fn keys_in_the_order_of_refusal_are_recognized_until_one_is_registered() {
        let limits = OrgLimits::default();
        let mut refused = RefusedSeries::default();
        let keys: Vec<LabelsKey> = (0..100).map(key).collect();
        assert!(!refused.recognizer(&limits)(&keys[..10]));
        for (n, key) in keys.iter().enumerate() {
            refused.add_unknown(*key, || fingerprint(&n.to_string()), &limits, 999);
        }
        let recognized = |refused: &RefusedSeries| {
            let mut recognizer = refused.recognizer(&limits);
            [0..10, 10..30, 60..70, 70..100, 20..30].map(|chunk| recognizer(&keys[chunk]))
        };
        assert_eq!(recognized(&refused), [true; 5]);
        assert!(!refused.recognizer(&limits)(&[keys[3], keys[5]]));
        assert!(!refused.recognizer(&limits)(&[keys[98], keys[99], key(100)]));
        refused.registered(|| fingerprint("25"));
        assert_eq!(recognized(&refused), [true, false, true, true, false]);
        let other = OrgLimits { labels_max: 3, ..OrgLimits::default() };
        assert!(!refused.recognizer(&other)(&keys[..10]));
    }

    #[test]
    fn entries_are_bounded_by_memory_and_by_the_number_of_series() {
        assert_eq!(entries_max(0, 0), ENTRIES_MIN);
        assert_eq!(entries_max(1_000, 512 << 20), 1 << 20);
        assert_eq!(entries_max(1_000, u64::MAX), ENTRIES_MAX);
        assert_eq!(entries_max(5_000_000, 0), 5_000_000);
        let limits = OrgLimits::default();
        let mut refused = RefusedSeries::default();
        for n in 0..50_000 {
            refused.add_invalid(key(n), CODES[0], &limits, 10_000);
            assert!(refused.entries.len() <= 10_000);
        }
        assert!(refused.bytes() as u64 <= 10_000 * ENTRY_BYTES, "{}", refused.bytes());
        refused.add_invalid(key(0), CODES[0], &limits, 4_999);
        assert_eq!(refused.entries.len(), 1, "memory is released when the bound has shrunk to half");
    }

    /// Runs cycles of twice as many label sets as there are entries, and then cycles of other label
    /// sets, which fit.
    #[test]
    fn a_full_table_keeps_most_entries_and_learns_others() {
        const MAX: usize = 4_096;
        let limits = OrgLimits::default();
        let mut refused = RefusedSeries::default();
        let mut hits_of_cycle = |numbers: std::ops::Range<u32>| {
            let mut hits = 0;
            for n in numbers {
                if causes(&refused, &[n], &limits) == [None] {
                    refused.add_invalid(key(n), CODES[0], &limits, MAX);
                } else {
                    hits += 1;
                }
            }
            hits
        };
        for cycle in 0..10 {
            let hits = hits_of_cycle(0..8_192);
            assert!(if cycle == 0 { hits == 0 } else { hits > MAX * 2 / 3 }, "cycle {cycle}: {hits} hits");
        }
        let hits: Vec<usize> = (0..20).map(|_| hits_of_cycle(20_000..23_000)).collect();
        assert!(hits[19] > 2_000, "{hits:?}");
    }
}
