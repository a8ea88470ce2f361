//! One series out of segments and head, ascending, each time once.

use std::sync::{Arc, PoisonError};

use rapidhash::RapidHashMap;

use super::reader::ReadColumns;
use super::warnings::Warnings;
use crate::model::TimeRange;
use crate::tsdb::decoded::Keeper;
use crate::tsdb::head::{STRIPE_SERIES, slot};
use crate::tsdb::report::SampleColumns;
use crate::tsdb::segment::{KnownTimes, Rows, rises_at};
use crate::tsdb::segments::{Part, SegmentSet};
use crate::tsdb::store::OrgStore;

/// Families of segments known at most before all are forgotten.
const FAMILIES_MAX: usize = 1 << 14;

/// Times of series in several segments kept at most before all are forgotten, 2 MiB; and of how many kinds of series.
const JOINED_TIMES_MAX: usize = 1 << 18;
const JOINED_MAX: usize = 4_096;

/// What reading one series after the other finds out once: the segments that count, where families lie in them, and the
/// times that series share.
#[derive(Debug, Default)]
pub(super) struct Known {
    set: Option<Arc<SegmentSet>>,
    /// By place of the part in the set, and the table's number of the family.
    families: RapidHashMap<(usize, u32), Option<Found>>,
    times: KnownTimes,
    /// Where values may be that were decoded before.
    keeper: Option<Keeper>,
    sources: Vec<Source>,
    /// Whose times the values are that were read last, and the times of such series as are in several segments.
    of: Vec<(u64, usize)>,
    joined: RapidHashMap<Vec<(u64, usize)>, Arc<Vec<i64>>>,
    /// Times in all of those.
    held: usize,
    /// What was looked up beforehand, and the first of it that was not asked for yet.
    ahead: Vec<Ahead>,
    next: usize,
}

/// A series that will be read.
#[derive(Clone, Copy, Debug)]
struct Ahead {
    series: u32,
    family: Option<u32>,
    /// Nothing of the range was in the head, when the segments that count were those that are known.
    is_sealed: bool,
}

/// A family in a segment.
#[derive(Clone, Copy, Debug)]
struct Found {
    rows: Rows,
    /// Behind the row that was found last: series come mostly in the same order here and there.
    next: usize,
}

/// What of a segment is to be read.
#[derive(Clone, Copy, Debug)]
struct Source {
    /// Place of the part in the set.
    part: usize,
    rows: Rows,
    row: usize,
    first: i64,
    last: i64,
}

/// Appends the samples of `series` inside `range` to `out`, which is empty.
pub(super) fn read(
    store: &OrgStore,
    series: u32,
    range: TimeRange,
    warnings: &Warnings,
    known: &mut Known,
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
    known: &mut Known,
    out: &mut SampleColumns,
) {
    let mut columns = ReadColumns::of(std::mem::take(out));
    read_next(store, (family, series), range, warnings, known, &mut columns);
    *out = columns.into_columns();
}

/// Looks up what series will be read, in that order: locks are taken once for all of them, which threads that read side by
/// side would wait for at each series.
pub(super) fn look_ahead(
    store: &OrgStore,
    series: impl Iterator<Item = u32>,
    range: TimeRange,
    known: &mut Known,
) {
    let Known { ahead, next, .. } = known;
    ahead.clear();
    *next = 0;
    let table = store.table();
    ahead.extend(series.map(|series| Ahead { series, family: table.family_of(series), is_sealed: false }));
    drop(table);
    let set = known.set.take().unwrap_or_else(|| store.segments());
    let in_stripe = |a: &Ahead, b: &Ahead| a.series / STRIPE_SERIES == b.series / STRIPE_SERIES;
    for alike in known.ahead.chunk_by_mut(in_stripe) {
        let stripe = alike.first().and_then(|first| store.head.stripe(first.series));
        let stripe = stripe.as_ref().map(|stripe| stripe.read().unwrap_or_else(PoisonError::into_inner));
        for one in alike {
            let span = stripe.as_ref().and_then(|stripe| stripe.span(slot(one.series)));
            one.is_sealed = !span.is_some_and(|span| span.overlaps(range));
        }
    }
    match store.segments_if_not(&set) {
        None => known.set = Some(set),
        Some(after) => {
            // What the head let go of meanwhile may be in the newer set alone: each is read with a look at the head.
            known.ahead.iter_mut().for_each(|one| one.is_sealed = false);
            known.families.clear();
            known.set = Some(after);
        }
    }
}

/// Replaces `out` with the samples of the series that was said to be next, or of any other.
pub(super) fn read_ahead(
    store: &OrgStore,
    series: u32,
    range: TimeRange,
    warnings: &Warnings,
    known: &mut Known,
    out: &mut ReadColumns,
) {
    let ahead = known.ahead.get(known.next).copied().filter(|ahead| ahead.series == series);
    let Some(Ahead { family, is_sealed, .. }) = ahead else {
        let family = store.table().family_of(series);
        return read_next(store, (family, series), range, warnings, known, out);
    };
    known.next += 1;
    match known.set.take() {
        Some(set) if is_sealed => {
            known.read_sealed(&set, (family, series), range, warnings, out);
            known.set = Some(set);
        }
        set => {
            known.set = set;
            read_next(store, (family, series), range, warnings, known, out);
        }
    }
}

/// Replaces `out` with the samples of a series.
fn read_next(
    store: &OrgStore,
    (family, series): (Option<u32>, u32),
    range: TimeRange,
    warnings: &Warnings,
    known: &mut Known,
    out: &mut ReadColumns,
) {
    let mut set = known.set.take().unwrap_or_else(|| store.segments());
    loop {
        let at_end = known.read_sealed(&set, (family, series), range, warnings, out);
        if let Some(stripe) = store.head.stripe(series) {
            let stripe = stripe.read().unwrap_or_else(PoisonError::into_inner);
            if stripe.span(slot(series)).is_some_and(|span| span.overlaps(range)) {
                let out = out.change();
                let from = out.times.len();
                stripe.read(slot(series), range, out);
                if at_end {
                    settle(out, from);
                }
            }
        }
        let Some(after) = store.segments_if_not(&set) else {
            known.set = Some(set);
            return;
        };
        // The head may have let go of what only the newer set has. Sets change with seals and compactions alone, which
        // what was looked up ahead knew nothing of.
        set = after;
        known.families.clear();
        known.ahead.clear();
    }
}

impl Known {
    pub(super) fn with(keeper: Option<Keeper>) -> Known {
        Known { keeper, ..Known::default() }
    }

    /// Replaces `out` with what segments have of a series; whether that is anything.
    fn read_sealed(
        &mut self,
        set: &SegmentSet,
        (family, series): (Option<u32>, u32),
        range: TimeRange,
        warnings: &Warnings,
        out: &mut ReadColumns,
    ) -> bool {
        set.bad_in(range).for_each(|bad| warnings.bad(bad));
        self.sources.clear();
        if let Some(family) = family {
            self.find_sources(set, (family, series), range, warnings);
        }
        if self.read_alike(set, series, range, out).is_none() {
            self.read_sources(set, series, range, warnings, out.replace());
        }
        !out.times().is_empty()
    }

    /// Finds where samples of a series are, those that win last.
    fn find_sources(
        &mut self,
        set: &SegmentSet,
        (family, series): (u32, u32),
        range: TimeRange,
        warnings: &Warnings,
    ) {
        for (place, part) in set.parts.iter().enumerate() {
            if !part.overlaps(range) || part.has_histograms() {
                continue;
            }
            let Some((rows, row)) = self.row(place, part, (family, series), warnings) else { continue };
            let Some((first, last)) = part.segment.spans_of(&rows).get(row) else { continue };
            if first <= range.end.as_ms() && range.start.as_ms() <= last {
                self.sources.push(Source { part: place, rows, row, first, last });
            }
        }
        // Sets are in order of who wins. Where no two overlap, the order of time does, and nothing has to be merged.
        if !self.sources.is_sorted_by(|a, b| a.last < b.first) {
            let mut in_time: Vec<(i64, i64)> =
                self.sources.iter().map(|source| (source.first, source.last)).collect();
            in_time.sort_unstable();
            if in_time.is_sorted_by(|a, b| a.1 < b.0) {
                self.sources.sort_unstable_by_key(|source| source.first);
            }
        }
    }

    /// The values, and the times that they share with other series, told by their places in the segments. None where there
    /// is more to it, or damage; it has to be read the long way then.
    fn read_alike(
        &mut self,
        set: &SegmentSet,
        series: u32,
        range: TimeRange,
        out: &mut ReadColumns,
    ) -> Option<()> {
        let Known { sources, times: known, keeper, of, joined, held, .. } = self;
        if !sources.is_sorted_by(|a, b| a.last < b.first) {
            return None;
        }
        of.clear();
        let values = &mut out.replace().values;
        let (mut times, mut all_rise) = (None, true);
        for Source { part, rows, row, .. } in &*sources {
            let part = set.parts.get(*part)?;
            if set.tombstones_of(part, series).next().is_some() {
                return None;
            }
            let keeper = keeper.as_mut();
            let before = values.len();
            let (timeline, found, rises) =
                part.segment.values_alone(rows, *row, range, known, keeper, values).ok()?;
            all_rise &= rises && rises_at(values, before);
            of.push((part.meta().seq, timeline));
            times = Some(found);
        }
        if sources.len() > 1 {
            times = joined.get(&*of).map(Arc::clone);
            if times.is_none() {
                let mut all = Vec::with_capacity(values.len());
                for Source { part, rows, row, .. } in &*sources {
                    let part = set.parts.get(*part)?;
                    all.extend_from_slice(&part.segment.times_within(rows, *row, range, known).ok()?);
                }
                if *held + all.len() > JOINED_TIMES_MAX || joined.len() >= JOINED_MAX {
                    joined.clear();
                    *held = 0;
                }
                *held += all.len();
                let all = Arc::new(all);
                joined.insert(of.clone(), Arc::clone(&all));
                times = Some(all);
            }
        }
        if let Some(times) = times {
            out.share(times, all_rise);
        }
        (out.times().len() == out.values().len()).then_some(())
    }

    /// Appends everything, part by part.
    fn read_sources(
        &mut self,
        set: &SegmentSet,
        series: u32,
        range: TimeRange,
        warnings: &Warnings,
        out: &mut SampleColumns,
    ) {
        let Known { sources, times, keeper, .. } = self;
        for Source { part, rows, row, .. } in &*sources {
            let Some(part) = set.parts.get(*part) else { continue };
            let from = out.times.len();
            if let Err(damage) = part.segment.read(rows, *row, range, times, keeper.as_mut(), out) {
                warnings.damage(part, &damage);
            }
            hide(set, part, series, from, out);
            settle(out, from);
        }
    }

    /// The row of a series in a part.
    fn row(
        &mut self,
        place: usize,
        part: &Part,
        (family, series): (u32, u32),
        warnings: &Warnings,
    ) -> Option<(Rows, usize)> {
        if self.families.len() >= FAMILIES_MAX {
            self.families.clear();
        }
        let found = self.families.entry((place, family)).or_insert_with(|| {
            let rows = part.segment.rows(part.family(family)?);
            let rows = rows.inspect_err(|damage| warnings.damage(part, damage)).ok()?;
            Some(Found { rows, next: 0 })
        });
        let Found { rows, next } = found.as_mut()?;
        let ids = part.segment.ids_of(rows);
        let row = if ids.get(*next) == Some(series) { Some(*next) } else { ids.row_of(series) }?;
        *next = row + 1;
        Some((*rows, row))
    }
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
