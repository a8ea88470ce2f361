//! Late start timestamps of one series: what samples said whose time a seal had closed before they came.
//!
//! Each is about its own time alone and lies over the changes ([`super::starts`]), which are in segments by then and which
//! nobody reads for a write. Of several about one time the one of the later record counts. So points may be put together
//! in any order and more than once, and are the same: a seal, a merge, a checkpoint and a replay need not agree on who
//! has them.
//!
//! ```text
//! entries, ascending in time: n x { zigzag (time - time before), zigzag (start - start before), zigzag (seq - seq before) }
//! ```
//! each at first to 0; `seq` is the number of the record that said it.

use std::collections::BTreeMap;

use crate::tsdb::codec::{Reader, put_zigzag};
use crate::tsdb::error::Damage;

/// Memory of an entry: itself and its share of a node, about.
const POINT_BYTES: u64 = 40;

/// What a late sample said.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Point {
    start: i64,
    seq: u64,
}

/// Late start timestamps by the time of their samples.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(in crate::tsdb) struct Points {
    by_time: BTreeMap<i64, Point>,
}

impl Points {
    pub(in crate::tsdb) fn len(&self) -> usize {
        self.by_time.len()
    }

    pub(in crate::tsdb) fn is_empty(&self) -> bool {
        self.by_time.is_empty()
    }

    /// Estimated memory.
    pub(in crate::tsdb) fn memory(&self) -> u64 {
        POINT_BYTES * self.by_time.len() as u64
    }

    /// Least and greatest time.
    pub(in crate::tsdb) fn span(&self) -> Option<(i64, i64)> {
        Some((*self.by_time.first_key_value()?.0, *self.by_time.last_key_value()?.0))
    }

    /// What the sample at `at` said in record `seq`. Within a record the last word counts.
    pub(in crate::tsdb) fn put(&mut self, at: i64, start: i64, seq: u64) {
        let said = Point { start, seq };
        let here = self.by_time.entry(at).or_insert(said);
        if here.seq <= seq {
            *here = said;
        }
    }

    /// Takes in what others are.
    pub(in crate::tsdb) fn add(&mut self, others: &Points) {
        for (at, Point { start, seq }) in &others.by_time {
            self.put(*at, *start, *seq);
        }
    }

    pub(in crate::tsdb) fn retain(&mut self, keep: impl Fn(i64) -> bool) {
        self.by_time.retain(|at, _| keep(*at));
    }

    /// Lays the points over `changes`, which ascend in time: after each point holds what held before it.
    pub(in crate::tsdb) fn over(&self, changes: Vec<(i64, i64)>) -> Vec<(i64, i64)> {
        if self.is_empty() {
            return changes;
        }
        let mut out: Vec<(i64, i64)> = Vec::with_capacity(changes.len() + 2 * self.len());
        let mut say = |at: i64, start: i64| {
            if out.last().is_none_or(|(_, have)| *have != start) {
                out.push((at, start));
            }
        };
        let mut changes = changes.into_iter().peekable();
        let mut held = None;
        for (at, point) in &self.by_time {
            while let Some((from, start)) = changes.next_if(|(from, _)| from <= at) {
                held = Some(start);
                if from < *at {
                    say(from, start);
                }
            }
            say(*at, point.start);
            if let (Some(held), Some(next)) = (held, at.checked_add(1))
                && !self.by_time.contains_key(&next)
                && changes.peek().is_none_or(|(from, _)| *from > next)
            {
                say(next, held);
            }
        }
        changes.for_each(|(from, start)| say(from, start));
        out
    }

    pub(in crate::tsdb) fn encode(&self) -> Vec<u8> {
        let mut out = Vec::with_capacity(self.by_time.len() * 6);
        let (mut last_at, mut last) = (0i64, Point { start: 0, seq: 0 });
        for (at, point) in &self.by_time {
            put_zigzag(&mut out, at.wrapping_sub(last_at));
            put_zigzag(&mut out, point.start.wrapping_sub(last.start));
            put_zigzag(&mut out, point.seq.wrapping_sub(last.seq).cast_signed());
            (last_at, last) = (*at, *point);
        }
        out
    }

    /// Takes in `entries` points as [`Points::encode`] wrote them, all that is in `bytes`.
    ///
    /// # Errors
    /// [`Damage`] where they are none; some may have been taken in.
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

    fn of(said: &[(i64, i64, u64)]) -> Points {
        let mut points = Points::default();
        for (at, start, seq) in said {
            points.put(*at, *start, *seq);
        }
        points
    }

    fn held(changes: &[(i64, i64)], time: i64) -> Option<i64> {
        changes.iter().take_while(|(from, _)| *from <= time).last().map(|(_, start)| *start)
    }

    proptest! {
        #[test]
        fn in_whatever_order_and_however_often_they_come_the_later_record_counts(
            said in prop::collection::vec((0i64..9, 0i64..4, any::<u64>()), 0..40), order: u64,
        ) {
            // Of one record and time there is one word here: within a record their order is kept.
            let mut said: Vec<_> = said;
            said.sort_by_key(|(at, _, seq)| (*at, *seq));
            said.dedup_by_key(|(at, _, seq)| (*at, *seq));
            let mut other = said.clone();
            let len = other.len().max(1);
            other.rotate_left(usize::try_from(order % len as u64).expect("small"));
            let whole = of(&said);
            let (one, two) = other.split_at(other.len() / 2);
            let mut joined = of(two);
            joined.add(&of(one));
            joined.add(&of(two));
            prop_assert_eq!(&joined, &whole);
            let mut again = Points::default();
            again.decode(whole.len() as u64, &whole.encode()).expect("reads");
            prop_assert_eq!(again, whole);
        }

        #[test]
        fn a_point_is_about_its_own_time_alone(
            changes in prop::collection::btree_map(-20i64..20, 0i64..4, 0..9),
            points in prop::collection::btree_map(-22i64..22, 0i64..4, 0..9),
        ) {
            let changes: Vec<(i64, i64)> = changes.into_iter().collect();
            let over = of(&points.iter().map(|(at, start)| (*at, *start, 1)).collect::<Vec<_>>()).over(changes.clone());
            prop_assert!(over.is_sorted_by(|a, b| a.0 < b.0));
            for time in -25..25 {
                let (found, base) = (held(&over, time), held(&changes, time));
                match (points.get(&time), base) {
                    (Some(said), _) => prop_assert_eq!(found, Some(*said), "at {}", time),
                    (None, Some(base)) => prop_assert_eq!(found, Some(base), "at {}", time),
                    // Nobody said anything up to here but of other times.
                    (None, None) => {}
                }
            }
        }

        #[test]
        fn hostile_bytes_are_no_panic(entries: u64, bytes in prop::collection::vec(any::<u8>(), 0..60)) {
            let _ = Points::default().decode(entries, &bytes);
        }
    }

    #[test]
    fn the_bytes_are_the_drawing() {
        let points = of(&[(-1, -3, 7), (5, -3, 7), (6, 4, 6)]);
        assert_eq!(points.encode(), [0x01, 0x05, 0x0e, 0x0c, 0x00, 0x00, 0x02, 0x0e, 0x01]);
        assert_eq!(points.span(), Some((-1, 6)));
        assert!(Points::default().decode(2, &[2, 0, 0, 1, 0, 0]).is_err(), "they ascend");
        assert!(Points::default().decode(1, &[2, 0, 0, 1, 0, 0]).is_err(), "they end");
    }
}
