//! Label sets that were refused, so that refusing them again costs one look-up.
//!
//! A sender repeats what was refused with every request. Entries are keyed by the raw bytes of the labels, as
//! [`super::ids`] keys known series, and hold why the series has no id: its labels are invalid, or it was unknown. That it
//! was unknown holds until its label set is registered, perhaps under other raw bytes: an entry has a fingerprint of the
//! label set, and the fingerprints of label sets that were registered later are kept beside the entries. Two label sets
//! with the same fingerprint cost a needless look at the labels, never a wrong refusal.
//!
//! Memory is bounded by the number of registered series. When the bound is reached, entries stay until as many label sets
//! found no room; then all are dropped, because the sender's label sets have changed.

use std::collections::HashSet;

use super::identity::{Key, TextHash};
use super::ids::Ids;
use crate::tsdb::options::OrgLimits;

/// Entries that are kept in any case: 8 MB.
const ENTRIES_MIN: usize = 1 << 18;
/// Bits of an entry that hold a fingerprint; the ones above hold the place of a code in [`CODES`], from 1 on.
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

/// Why a series has no id.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::tsdb) enum Cause {
    /// Its labels are invalid; the code of the refusal.
    Invalid(&'static str),
    /// Its labels are valid, and no series has them.
    Unknown,
}

/// The fingerprint of a label set.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(in crate::tsdb) struct Fingerprint(u32);

/// Label sets that were refused.
#[derive(Debug, Default)]
pub(in crate::tsdb) struct RefusedSeries {
    entries: Ids,
    /// Fingerprints of label sets that were registered while there were entries.
    registered: HashSet<Fingerprint>,
    /// Label sets that found no room since all entries were dropped.
    homeless: usize,
    /// The limits of labels that the entries were checked against.
    labels_max: usize,
    name_bytes_max: usize,
    value_bytes_max: usize,
}

impl RefusedSeries {
    /// Appends for each key why it was refused, if that is known and still holds.
    pub(in crate::tsdb) fn causes(&self, keys: &[Key], limits: &OrgLimits, out: &mut Vec<Option<Cause>>) {
        if self.entries.len() == 0 || !self.is_under(limits) {
            out.resize(out.len() + keys.len(), None);
            return;
        }
        let mut entries = Vec::new();
        self.entries.get_many(keys, &mut entries);
        out.extend(entries.into_iter().map(|entry| self.cause(entry?)));
    }

    fn cause(&self, entry: u32) -> Option<Cause> {
        match (entry >> FINGERPRINT_BITS).checked_sub(1) {
            Some(place) => CODES.get(place as usize).copied().map(Cause::Invalid),
            None => (!self.registered.contains(&Fingerprint(entry))).then_some(Cause::Unknown),
        }
    }

    /// Whether labels were checked against these limits.
    const fn is_under(&self, limits: &OrgLimits) -> bool {
        self.labels_max == limits.labels_max
            && self.name_bytes_max == limits.name_bytes_max
            && self.value_bytes_max == limits.value_bytes_max
    }

    /// Remembers invalid labels. `live` series are registered.
    pub(in crate::tsdb) fn add_invalid(
        &mut self,
        key: Key,
        code: &'static str,
        limits: &OrgLimits,
        live: u32,
    ) {
        if let Some(place) =
            CODES.iter().position(|known| *known == code).and_then(|at| u32::try_from(at).ok())
        {
            self.add(key, (place + 1) << FINGERPRINT_BITS, limits, live);
        }
    }

    /// Remembers labels that no series has. `live` series are registered.
    pub(in crate::tsdb) fn add_unknown(&mut self, key: Key, of: Fingerprint, limits: &OrgLimits, live: u32) {
        self.add(key, of.0, limits, live);
    }

    fn add(&mut self, key: Key, entry: u32, limits: &OrgLimits, live: u32) {
        let entries_max = ENTRIES_MIN.max(live as usize);
        if !self.is_under(limits) || self.homeless >= entries_max || self.registered.len() >= entries_max {
            self.clear();
            self.labels_max = limits.labels_max;
            self.name_bytes_max = limits.name_bytes_max;
            self.value_bytes_max = limits.value_bytes_max;
        }
        if self.entries.len() < entries_max {
            self.entries.insert(key, entry);
            // The entry was made after the label set was looked for.
            self.registered.remove(&Fingerprint(entry));
        } else {
            self.homeless += 1;
        }
    }

    /// A series with this label set was registered.
    pub(in crate::tsdb) fn registered(&mut self, fingerprint: impl FnOnce() -> Fingerprint) {
        if self.entries.len() > 0 {
            self.registered.insert(fingerprint());
        }
    }

    /// Forgets everything.
    pub(in crate::tsdb) fn clear(&mut self) {
        self.entries.clear();
        self.registered = HashSet::new();
        self.homeless = 0;
    }

    /// Memory.
    pub(in crate::tsdb) fn bytes(&self) -> usize {
        self.entries.bytes() + self.registered.capacity() * 5
    }
}

impl Fingerprint {
    /// The fingerprint of sorted pairs.
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
    use super::super::identity::Secret;
    use super::*;

    fn key(n: u32) -> Key {
        Secret::of(&[3; 32], 1).domain(0, &[]).key(&n.to_le_bytes())
    }

    fn fingerprint(value: &str) -> Fingerprint {
        Fingerprint::of(&TextHash::new(&Secret::of(&[3; 32], 1)), &[("__name__", "up"), ("job", value)])
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
        refused.add_unknown(key(1), fingerprint("a"), &limits, 0);
        refused.add_unknown(key(2), fingerprint("b"), &limits, 0);
        refused.add_unknown(key(3), fingerprint("a"), &limits, 0);
        for (at, code) in (10..).zip(CODES) {
            refused.add_invalid(key(at), code, &limits, 0);
            assert_eq!(causes(&refused, &[at], &limits), [Some(Cause::Invalid(code))]);
        }
        refused.add_invalid(key(4), "no_such_code", &limits, 0);
        let unknown = Some(Cause::Unknown);
        assert_eq!(causes(&refused, &[1, 2, 3, 4], &limits), [unknown, unknown, unknown, None]);
        // The label set of two keys is registered under the raw bytes of one of them.
        refused.registered(|| fingerprint("a"));
        assert_eq!(causes(&refused, &[1, 2, 3], &limits), [None, unknown, None]);
        let other = OrgLimits { labels_max: 3, ..OrgLimits::default() };
        assert_eq!(causes(&refused, &[2, 10], &other), [None, None]);
        refused.add_unknown(key(5), fingerprint("c"), &other, 0);
        assert_eq!(causes(&refused, &[2, 5], &other), [None, unknown]);
    }

    #[test]
    fn entries_are_bounded_and_replaced_when_the_label_sets_change() {
        let limits = OrgLimits::default();
        let mut refused = RefusedSeries::default();
        let most = u32::try_from(ENTRIES_MIN).expect("small");
        for n in 0..2 * most {
            refused.add_invalid(key(n), CODES[0], &limits, 9);
        }
        assert_eq!(refused.entries.len(), ENTRIES_MIN);
        assert!(refused.bytes() < ENTRIES_MIN * 32, "{}", refused.bytes());
        refused.add_invalid(key(2 * most), CODES[0], &limits, 9);
        assert_eq!((refused.entries.len(), refused.homeless), (1, 0));
    }
}
