//! Late start timestamps of one series: those of samples that arrived after a later one, or after a
//! seal had closed their time.
//!
//! A late start applies only to its own time. It takes precedence over the changes
//! ([`super::start_timestamps`]), which may be in segments by then and which a write does not read.
//! If several late starts have the same time, that of the later record wins. So late starts may be
//! merged in any order and repeatedly with the same result: a seal, a merge, a checkpoint and a
//! replay need not agree on which of them holds one.
//!
//! ```text
//! entries, ascending in time:
//!   n x { zigzag (time - time before), zigzag (start - start before), zigzag (seq - seq before) }
//! ```
//! The values before the first entry are 0. `seq` is the number of the record with the start.

use std::collections::BTreeMap;

use crate::tsdb::codec::{Reader, put_zigzag};
use crate::tsdb::error::Damage;

/// Estimated memory of an entry, with its share of a tree node.
const POINT_BYTES: u64 = 40;

/// The start timestamp of a late sample, and the number of its record.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct LateStart {
    start: i64,
    seq: u64,
}

/// Late start timestamps by the time of their samples.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(in crate::tsdb) struct LateStarts {
    by_time: BTreeMap<i64, LateStart>,
}

impl LateStarts {
    pub(in crate::tsdb) fn len(&self) -> usize {
        self.by_time.len()
    }

    pub(in crate::tsdb) fn is_empty(&self) -> bool {
        self.by_time.is_empty()
    }

    /// Returns the estimated memory in bytes.
    pub(in crate::tsdb) fn memory(&self) -> u64 {
        POINT_BYTES * self.by_time.len() as u64
    }

    /// Returns the least and the greatest time.
    pub(in crate::tsdb) fn span(&self) -> Option<(i64, i64)> {
        Some((*self.by_time.first_key_value()?.0, *self.by_time.last_key_value()?.0))
    }

    /// Adds the start of the sample at `at` from record `seq`. Within a record the last one wins.
    pub(in crate::tsdb) fn put(&mut self, at: i64, start: i64, seq: u64) {
        let late = LateStart { start, seq };
        let stored = self.by_time.entry(at).or_insert(late);
        if stored.seq <= seq {
            *stored = late;
        }
    }

    pub(in crate::tsdb) fn contains(&self, at: i64) -> bool {
        self.by_time.contains_key(&at)
    }

    /// Removes and returns those before `end`, exclusive.
    pub(in crate::tsdb) fn take_before(&mut self, end: i64) -> LateStarts {
        let rest = self.by_time.split_off(&end);
        LateStarts { by_time: std::mem::replace(&mut self.by_time, rest) }
    }

    /// Merges other late starts.
    pub(in crate::tsdb) fn add(&mut self, others: &LateStarts) {
        for (at, LateStart { start, seq }) in &others.by_time {
            self.put(*at, *start, *seq);
        }
    }

    pub(in crate::tsdb) fn retain(&mut self, keep: impl Fn(i64) -> bool) {
        self.by_time.retain(|at, _| keep(*at));
    }

    /// Merges the late starts into `changes`, which ascend in time. After each late start, the
    /// change before it applies again.
    pub(in crate::tsdb) fn merged_into(&self, changes: Vec<(i64, i64)>) -> Vec<(i64, i64)> {
        if self.is_empty() {
            return changes;
        }
        let mut out: Vec<(i64, i64)> = Vec::with_capacity(changes.len() + 2 * self.len());
        let mut push = |at: i64, start: i64| {
            if out.last().is_none_or(|(_, have)| *have != start) {
                out.push((at, start));
            }
        };
        let mut changes = changes.into_iter().peekable();
        let mut current = None;
        for (at, point) in &self.by_time {
            while let Some((from, start)) = changes.next_if(|(from, _)| from <= at) {
                current = Some(start);
                if from < *at {
                    push(from, start);
                }
            }
            push(*at, point.start);
            if let (Some(start), Some(next)) = (current, at.checked_add(1))
                && !self.by_time.contains_key(&next)
                && changes.peek().is_none_or(|(from, _)| *from > next)
            {
                push(next, start);
            }
        }
        changes.for_each(|(from, start)| push(from, start));
        out
    }

    /// Encodes all entries.
    pub(in crate::tsdb) fn encode(&self) -> Vec<u8> {
        let mut out = Vec::with_capacity(self.by_time.len() * 6);
        let (mut last_at, mut last) = (0i64, LateStart { start: 0, seq: 0 });
        for (at, point) in &self.by_time {
            put_zigzag(&mut out, at.wrapping_sub(last_at));
            put_zigzag(&mut out, point.start.wrapping_sub(last.start));
            put_zigzag(&mut out, point.seq.wrapping_sub(last.seq).cast_signed());
            (last_at, last) = (*at, *point);
        }
        out
    }

    /// Merges `entries` entries that [`LateStarts::encode`] has written; `bytes` must have no
    /// others.
    ///
    /// # Errors
    /// [`Damage`] if the bytes are not such entries. Some may have been merged.
    pub(in crate::tsdb) fn decode(&mut self, entries: u64, bytes: &[u8]) -> Result<(), Damage> {
        let mut reader = Reader::new(bytes);
        let mut last: Option<i64> = None;
        let (mut at, mut start, mut seq) = (0i64, 0i64, 0u64);
        for _ in 0..entries {
            at = at.wrapping_add(reader.zigzag()?);
            start = start.wrapping_add(reader.zigzag()?);
            seq = seq.wrapping_add(reader.zigzag()?.cast_unsigned());
            if last.replace(at).is_some_and(|last| last >= at) {
                return Err(reader.damage("late start timestamps do not ascend"));
            }
            self.put(at, start, seq);
        }
        reader.end()
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn from_entries(entries: &[(i64, i64, u64)]) -> LateStarts {
        let mut points = LateStarts::default();
        for (at, start, seq) in entries {
            points.put(*at, *start, *seq);
        }
        points
    }

    fn start_at(changes: &[(i64, i64)], time: i64) -> Option<i64> {
        changes.iter().take_while(|(from, _)| *from <= time).last().map(|(_, start)| *start)
    }

    proptest! {
        #[test]
        fn late_starts_merge_in_any_order_and_the_later_record_wins(
            entries in prop::collection::vec((0i64..9, 0i64..4, any::<u64>()), 0..40), order: u64,
        ) {
            // Only one start for each record and time, since within a record the order matters.
            let mut entries: Vec<_> = entries;
            entries.sort_by_key(|(at, _, seq)| (*at, *seq));
            entries.dedup_by_key(|(at, _, seq)| (*at, *seq));
            let mut other = entries.clone();
            let len = other.len().max(1);
            other.rotate_left(usize::try_from(order % len as u64).expect("small"));
            let whole = from_entries(&entries);
            let (one, two) = other.split_at(other.len() / 2);
            let mut joined = from_entries(two);
            joined.add(&from_entries(one));
            joined.add(&from_entries(two));
            prop_assert_eq!(&joined, &whole);
            let mut again = LateStarts::default();
            again.decode(whole.len() as u64, &whole.encode()).expect("reads");
            prop_assert_eq!(again, whole);
        }

        #[test]
        fn a_late_start_applies_only_to_its_own_time(
            changes in prop::collection::btree_map(-20i64..20, 0i64..4, 0..9),
            points in prop::collection::btree_map(-22i64..22, 0i64..4, 0..9),
        ) {
            let changes: Vec<(i64, i64)> = changes.into_iter().collect();
            let over = from_entries(&points.iter().map(|(at, start)| (*at, *start, 1)).collect::<Vec<_>>()).merged_into(changes.clone());
            prop_assert!(over.is_sorted_by(|a, b| a.0 < b.0));
            for time in -25..25 {
                let (found, base) = (start_at(&over, time), start_at(&changes, time));
                match (points.get(&time), base) {
                    (Some(start), _) => prop_assert_eq!(found, Some(*start), "at {}", time),
                    (None, Some(base)) => prop_assert_eq!(found, Some(base), "at {}", time),
                    // Only samples at other times have had a start so far.
                    (None, None) => {}
                }
            }
        }

        #[test]
        fn hostile_bytes_never_panic(entries: u64, bytes in prop::collection::vec(any::<u8>(), 0..60)) {
            let _ = LateStarts::default().decode(entries, &bytes);
        }
    }

    #[test]
    fn the_bytes_match_the_documented_format() {
        let points = from_entries(&[(-1, -3, 7), (5, -3, 7), (6, 4, 6)]);
        assert_eq!(points.encode(), [0x01, 0x05, 0x0e, 0x0c, 0x00, 0x00, 0x02, 0x0e, 0x01]);
        assert_eq!(points.span(), Some((-1, 6)));
        assert!(LateStarts::default().decode(2, &[2, 0, 0, 1, 0, 0]).is_err(), "they ascend");
        assert!(LateStarts::default().decode(1, &[2, 0, 0, 1, 0, 0]).is_err(), "they end");
    }
}
