//! One series out of segments and head, ascending, each time once.

use std::sync::{Arc, PoisonError};

use super::warnings::Warnings;
use crate::model::TimeRange;
use crate::tsdb::head::slot;
use crate::tsdb::report::SampleColumns;
use crate::tsdb::segment::KnownTimes;
use crate::tsdb::segments::{Part, SegmentSet};
use crate::tsdb::store::OrgStore;

/// Appends the samples of `series` inside `range` to `out`, which is empty.
pub(super) fn read(
    store: &OrgStore,
    series: u32,
    range: TimeRange,
    warnings: &Warnings,
    known: &mut KnownTimes,
    out: &mut SampleColumns,
) {
    let family = store.table().family_of(series);
    read_of(store, (family, series), range, warnings, known, out);
}

/// As [`read`] for who knows the family: the table is not asked, and may be held by who asks.
pub(super) fn read_of(
    store: &OrgStore,
    (family, series): (Option<u32>, u32),
    range: TimeRange,
    warnings: &Warnings,
    known: &mut KnownTimes,
    out: &mut SampleColumns,
) {
    let mut set = store.segments();
    loop {
        let at_end = read_segments(&set, (family, series), range, warnings, known, out);
        let from = out.times.len();
        if let Some(stripe) = store.head.stripe(series) {
            let stripe = stripe.read().unwrap_or_else(PoisonError::into_inner);
            stripe.read(slot(series), range, out);
        }
        let after = store.segments();
        if Arc::ptr_eq(&set, &after) {
            if at_end {
                settle(out, from);
            }
            return;
        }
        // The head may have let go of what only the newer set has. Sets change with seals and compactions alone.
        set = after;
        out.times.clear();
        out.values.clear();
    }
}

/// What of a segment is to be read.
struct Source<'s> {
    part: &'s Part,
    family: usize,
    row: usize,
    first: i64,
    last: i64,
}

/// Whether anything was found.
fn read_segments(
    set: &SegmentSet,
    (family, series): (Option<u32>, u32),
    range: TimeRange,
    warnings: &Warnings,
    known: &mut KnownTimes,
    out: &mut SampleColumns,
) -> bool {
    set.bad_in(range).for_each(|bad| warnings.bad(bad));
    let Some(family) = family else { return false };
    let mut sources: Vec<Source<'_>> = Vec::new();
    for part in set.overlapping(range).filter(|part| !part.has_histograms()) {
        let Some(number) = part.family(family) else { continue };
        let Some((row, (first, last))) = part.segment.locate(number, series) else { continue };
        if first <= range.end.as_ms() && range.start.as_ms() <= last {
            sources.push(Source { part, family: number, row, first, last });
        }
    }
    // Sets are in order of who wins. Where no two overlap, the order of time does, and nothing has to be merged.
    if !sources.is_sorted_by(|a, b| a.last < b.first) {
        let mut in_time: Vec<(i64, i64)> = sources.iter().map(|source| (source.first, source.last)).collect();
        in_time.sort_unstable();
        if in_time.is_sorted_by(|a, b| a.1 < b.0) {
            sources.sort_unstable_by_key(|source| source.first);
        }
    }
    for source in &sources {
        let from = out.times.len();
        if let Err(damage) = source.part.segment.read(source.family, source.row, range, known, out) {
            warnings.damage(source.part, &damage);
        }
        hide(set, source.part, series, from, out);
        settle(out, from);
    }
    !out.times.is_empty()
}

/// Takes out what was deleted after the segment was made.
fn hide(set: &SegmentSet, part: &Part, series: u32, from: usize, out: &mut SampleColumns) {
    for tombstone in set.tombstones_of(part, series) {
        let (mut kept, mut place) = (from, from);
        while let (Some(at), Some(value)) = (out.times.get(place).copied(), out.values.get(place).copied()) {
            if !(tombstone.from_ms..=tombstone.to_ms).contains(&at) {
                if let (Some(time), Some(bits)) = (out.times.get_mut(kept), out.values.get_mut(kept)) {
                    (*time, *bits) = (at, value);
                }
                kept += 1;
            }
            place += 1;
        }
        out.times.truncate(kept);
        out.values.truncate(kept);
    }
}

/// Merges the samples of `out` from `from` on into those before them; where both have a moment, the later win.
fn settle(out: &mut SampleColumns, from: usize) {
    let (Some(before), Some(first)) =
        (from.checked_sub(1).and_then(|place| out.times.get(place)), out.times.get(from))
    else {
        return;
    };
    if before < first {
        return;
    }
    let start = out.times.get(..from).unwrap_or_default().partition_point(|at| at < first);
    let (times, values) = (out.times.split_off(start), out.values.split_off(start));
    let (old_times, new_times) = times.split_at(from - start);
    let (old_values, new_values) = values.split_at(from - start);
    let mut old = old_times.iter().zip(old_values).peekable();
    let mut new = new_times.iter().zip(new_values).peekable();
    loop {
        let next = match (old.peek(), new.peek()) {
            (Some((a, _)), Some((b, _))) if a < b => old.next(),
            (Some((a, _)), Some((b, _))) => {
                if a == b {
                    old.next();
                }
                new.next()
            }
            (Some(_), None) => old.next(),
            (None, _) => new.next(),
        };
        let Some((at, value)) = next else { return };
        out.times.push(*at);
        out.values.push(*value);
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn what_is_settled_is_what_a_map_has(
            old in prop::collection::btree_map(-20i64..20, 0u8..3, 0..20),
            new in prop::collection::btree_map(-20i64..20, 0u8..3, 0..20),
        ) {
            let mut out = SampleColumns::default();
            for (at, value) in old.iter().chain(&new) {
                out.times.push(*at);
                out.values.push(f64::from(*value));
            }
            settle(&mut out, old.len());
            let mut expected: BTreeMap<i64, u8> = old;
            expected.extend(new);
            let found: Vec<(i64, f64)> = out.times.into_iter().zip(out.values).collect();
            let expected: Vec<(i64, f64)> = expected.into_iter().map(|(at, v)| (at, f64::from(v))).collect();
            prop_assert_eq!(found, expected);
        }
    }
}
