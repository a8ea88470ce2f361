//! Reads of one series from segments and head, in ascending order, one sample per time.
//!
//! A read looks up the locations of the series in the segments ([`super::locate`]) and appends
//! their samples. Mostly the locations do not overlap in time, and nothing of the series was
//! deleted. Then [`ReadState::read_shared_times`] decodes only the values, and the times are a list
//! that series of the same timelines share. Otherwise [`ReadState::read_locations`] decodes both,
//! removes deleted samples, and merges one location after the other. The samples of the head are
//! merged last, because they take precedence. If the segment set has changed meanwhile, the read is
//! repeated with the new set.
//!
//! A reader may announce the series that it will read ([`look_ahead`]). Series without samples of
//! the range in the head are then read from the segments of that moment only, with batched lookups
//! ([`super::prefetch`]).

use std::sync::Arc;

use rapidhash::RapidHashMap;

use super::locate::{LocationCache, SampleLocation};
use super::prefetch::{PREFETCH_SERIES, PrefetchWindow};
use super::reader::ReadColumns;
use crate::model::{TimeRange, Times, TimesBuilder};
use crate::sync::IgnorePoison as _;
use crate::tsdb::block_cache::CacheHandle;
use crate::tsdb::head::{STRIPE_SERIES, slot};
use crate::tsdb::report::SampleColumns;
use crate::tsdb::segment::{FamilyRow, TimelineCache, TimelineRow, non_decreasing_at};
use crate::tsdb::snapshot::warnings::Warnings;
use crate::tsdb::store::OrgStore;
use crate::tsdb::store::segments::{IndexedSegment, SegmentSet};
use crate::tsdb::store::table_guard::TableGuard;

/// The times of series in several segments that are cached at most, 2 MiB. The cache is cleared
/// when it reaches this bound.
const JOINED_TIMES_MAX: usize = 1 << 18;
/// The lists of such times that are cached at most.
const JOINED_MAX: usize = 4_096;

/// A series, and the number of its family in the table, if the series is in the table.
#[derive(Clone, Copy, Debug)]
pub(in crate::tsdb::snapshot) struct TableSeries {
    pub(in crate::tsdb::snapshot) series: u32,
    pub(in crate::tsdb::snapshot) family: Option<u32>,
}

/// The state that reads of several series share: the current segment set, the locations of families
/// in it, and the times that series share.
#[derive(Debug, Default)]
pub(in crate::tsdb::snapshot) struct ReadState {
    set: Option<Arc<SegmentSet>>,
    cache: LocationCache,
    times: TimelineCache,
    /// Set if callers need only the newest sample of a range: the cache of times for such reads.
    /// Any further samples that such a read returns are unreliable.
    newest: Option<TimelineCache>,
    /// Access to the block cache.
    cache_handle: Option<CacheHandle>,
    locations: Vec<SampleLocation>,
    /// The segments and timelines of the values read last: the key in `joined`.
    timelines: Vec<(u64, usize)>,
    /// The times of series that are in several segments.
    joined: RapidHashMap<Vec<(u64, usize)>, Arc<Times>>,
    /// The number of times in `joined`.
    joined_times: usize,
    /// The series that were announced, and the index of the next one to be read.
    planned: Vec<PlannedRead>,
    next: usize,
    /// The lookups of the next announced series.
    window: PrefetchWindow,
}

/// An announced series.
#[derive(Clone, Copy, Debug)]
struct PlannedRead {
    series: u32,
    family: Option<u32>,
    /// Whether the head had no samples of the range at the time of the current set.
    is_sealed: bool,
}

/// Replaces `out` with the samples of a series inside `range`.
pub(in crate::tsdb::snapshot) fn read_series(
    store: &OrgStore,
    series: TableSeries,
    range: TimeRange,
    warnings: &Warnings,
    state: &mut ReadState,
    out: &mut SampleColumns,
) {
    let mut columns = ReadColumns::of(std::mem::take(out));
    read_merged(store, series, range, warnings, state, &mut columns);
    *out = columns.into_columns();
}

/// Announces the series that will be read, in order. `table` is the locked table. Each lock is
/// taken once for all series, because threads that read in parallel would otherwise wait for it at
/// each series.
pub(in crate::tsdb::snapshot) fn look_ahead(
    store: &OrgStore,
    table: TableGuard<'_>,
    series: impl Iterator<Item = u32>,
    range: TimeRange,
    state: &mut ReadState,
) {
    let ReadState { planned, next, window, .. } = state;
    planned.clear();
    *next = 0;
    window.clear();
    planned.extend(series.map(|series| PlannedRead {
        series,
        family: table.family_of(series),
        is_sealed: false,
    }));
    drop(table);
    let set = state.set.take().unwrap_or_else(|| store.segments());
    let in_stripe = |a: &PlannedRead, b: &PlannedRead| a.series / STRIPE_SERIES == b.series / STRIPE_SERIES;
    for same_stripe in state.planned.chunk_by_mut(in_stripe) {
        let stripe = same_stripe.first().and_then(|first| store.head.stripe(first.series));
        let stripe = stripe.as_ref().map(|stripe| stripe.read().ignore_poison());
        for one in same_stripe {
            let span = stripe.as_ref().and_then(|stripe| stripe.span(slot(one.series)));
            one.is_sealed = !span.is_some_and(|span| span.overlaps(range));
        }
    }
    match store.segments_if_not(&set) {
        None => state.set = Some(set),
        Some(after) => {
            // The head may have released samples that are only in the newer set, so each read has
            // to check the head.
            state.planned.iter_mut().for_each(|one| one.is_sealed = false);
            state.clear_locations();
            state.set = Some(after);
        }
    }
}

/// Replaces `out` with the samples of the announced series of this number.
pub(in crate::tsdb::snapshot) fn read_planned(
    store: &OrgStore,
    number: usize,
    range: TimeRange,
    warnings: &Warnings,
    state: &mut ReadState,
    out: &mut ReadColumns,
) {
    let Some(PlannedRead { series, family, is_sealed }) = state.planned.get(number).copied() else {
        out.replace();
        return;
    };
    match state.set.take() {
        Some(set) if is_sealed => {
            state.read_prefetched(&set, number, range, warnings, out);
            state.set = Some(set);
        }
        set => {
            state.set = set;
            read_merged(store, TableSeries { series, family }, range, warnings, state, out);
        }
    }
}

/// Replaces `out` with the samples of a series.
pub(in crate::tsdb::snapshot) fn read_merged(
    store: &OrgStore,
    series: TableSeries,
    range: TimeRange,
    warnings: &Warnings,
    state: &mut ReadState,
    out: &mut ReadColumns,
) {
    let mut set = state.set.take().unwrap_or_else(|| store.segments());
    loop {
        let has_sealed = state.read_sealed(&set, series, range, warnings, out);
        let series = series.series;
        if let Some(stripe) = store.head.stripe(series) {
            let stripe = stripe.read().ignore_poison();
            if stripe.span(slot(series)).is_some_and(|span| span.overlaps(range)) {
                let out = out.change();
                let from = out.times.len();
                stripe.read(slot(series), range, out);
                if has_sealed {
                    merge_tail(out, from);
                }
            }
        }
        let Some(after) = store.segments_if_not(&set) else {
            state.set = Some(set);
            return;
        };
        // The head may have released samples that are only in the newer set. The set changes with
        // seals, compactions, deletions and retention, all rare. The announced lookups are of the
        // old set.
        set = after;
        state.clear_locations();
        state.planned.clear();
    }
}

impl ReadState {
    pub(in crate::tsdb::snapshot) fn with(cache_handle: Option<CacheHandle>) -> ReadState {
        ReadState { cache_handle, ..ReadState::default() }
    }

    /// Limits reads to the newest sample of a range. Other samples may be returned or not.
    pub(in crate::tsdb::snapshot) fn newest_only(&mut self) {
        self.newest = Some(TimelineCache::newest_only());
    }

    /// Returns the number of the announced series that is next, if it is this one, and advances.
    pub(in crate::tsdb::snapshot) fn next_planned(&mut self, series: u32) -> Option<usize> {
        let number = self.next;
        self.planned.get(number).filter(|planned| planned.series == series)?;
        self.next += 1;
        Some(number)
    }

    /// Clears the cached locations of series in segments.
    fn clear_locations(&mut self) {
        self.cache.clear();
        self.window.clear();
    }

    fn trim_locations(&mut self) {
        if self.cache.is_full() {
            self.clear_locations();
        }
    }

    /// Replaces `out` with the samples that segments have of a series, and returns whether there
    /// are any.
    fn read_sealed(
        &mut self,
        set: &SegmentSet,
        series: TableSeries,
        range: TimeRange,
        warnings: &Warnings,
        out: &mut ReadColumns,
    ) -> bool {
        set.bad_in(range).for_each(|bad| warnings.bad(bad));
        self.locations.clear();
        self.trim_locations();
        self.find_locations(set, series, range, warnings);
        if self.read_shared_times(set, series.series, range, out).is_none() {
            self.read_locations(set, series.series, range, warnings, out.replace());
        }
        !out.is_empty()
    }

    /// Replaces `out` with the samples, in segments, of the announced series with this number.
    fn read_prefetched(
        &mut self,
        set: &SegmentSet,
        number: usize,
        range: TimeRange,
        warnings: &Warnings,
        out: &mut ReadColumns,
    ) {
        let Some(PlannedRead { series, family, .. }) = self.planned.get(number).copied() else { return };
        if !self.window.has(number, range) {
            self.prefetch(set, number, range, warnings);
        }
        let Some(location) = self.window.location(number) else {
            self.read_sealed(set, TableSeries { series, family }, range, warnings, out);
            return;
        };
        set.bad_in(range).for_each(|bad| warnings.bad(bad));
        let times_cache = self.newest.as_mut().unwrap_or(&mut self.times);
        if let Some((values, rises)) = self.window.values(number)
            && let Some(part) = set.parts.get(location.part)
            && let Ok(times) = part.segment.times_within(location.timeline, range, times_cache)
            && times.len() == values.len()
        {
            out.replace().values.extend_from_slice(values);
            out.share(times, rises);
            return;
        }
        self.locations.clear();
        self.locations.push(location);
        if self.read_shared_times(set, series, range, out).is_none() {
            self.read_locations(set, series, range, warnings, out.replace());
        }
    }

    /// Looks up the locations, and the cached values, of the announced series from this number on.
    fn prefetch(&mut self, set: &SegmentSet, number: usize, range: TimeRange, warnings: &Warnings) {
        self.trim_locations();
        let ReadState { planned, cache, locations, times, newest, cache_handle, window, .. } = self;
        let times_cache = newest.as_mut().unwrap_or(times);
        window.restart(number, range);
        for one in planned.iter().skip(number).take(PREFETCH_SERIES) {
            locations.clear();
            if one.is_sealed {
                let series = TableSeries { series: one.series, family: one.family };
                cache.locate(set, series, range, warnings, locations);
            }
            // Samples of several segments may have to be merged, which a later step does. If some
            // were deleted, `piece` returns None, so the window never has deleted samples.
            let location = if let [location] = **locations { Some(location) } else { None };
            window.push(
                location,
                location.and_then(|location| cache.piece(set, one.series, &location, range, times_cache)),
            );
        }
        window.resolve(set, cache, cache_handle.as_mut());
    }

    /// Finds the locations of a series' samples. If two overlap, the later one takes precedence.
    fn find_locations(
        &mut self,
        set: &SegmentSet,
        series: TableSeries,
        range: TimeRange,
        warnings: &Warnings,
    ) {
        let ReadState { cache, locations, .. } = self;
        cache.locate(set, series, range, warnings, locations);
        // A set is in order of precedence. If no two locations overlap in time, they are sorted by
        // time instead, and nothing has to be merged.
        if !self.locations.is_sorted_by(|a, b| a.last < b.first) {
            let mut in_time: Vec<(i64, i64)> =
                self.locations.iter().map(|location| (location.first, location.last)).collect();
            in_time.sort_unstable();
            if in_time.is_sorted_by(|a, b| a.1 < b.0) {
                self.locations.sort_unstable_by_key(|location| location.first);
            }
        }
    }

    /// Reads the values, and takes the times from a list that the series shares with others of the
    /// same timelines. Returns None if locations overlap, if there are deletions, or on damage: the
    /// caller then uses [`ReadState::read_locations`].
    fn read_shared_times(
        &mut self,
        set: &SegmentSet,
        series: u32,
        range: TimeRange,
        out: &mut ReadColumns,
    ) -> Option<()> {
        let ReadState {
            locations, cache, times, newest, cache_handle, timelines, joined, joined_times, ..
        } = self;
        let times_cache = newest.as_mut().unwrap_or(times);
        if !locations.is_sorted_by(|a, b| a.last < b.first) {
            return None;
        }
        timelines.clear();
        let values = &mut out.replace().values;
        let (mut shared, mut all_rise) = (None, true);
        for location @ SampleLocation { part, row, timeline, .. } in &*locations {
            let part = set.parts.get(*part)?;
            if set.tombstones_of(part, series).next().is_some() {
                return None;
            }
            let rows = cache.rows(location)?;
            let cache_handle = cache_handle.as_mut().filter(|_| location.may_be_cached);
            let before = values.len();
            let (times, rises) = part
                .segment
                .read_values(
                    TimelineRow { rows, row: *row, timeline: *timeline },
                    range,
                    times_cache,
                    cache_handle,
                    values,
                )
                .ok()?;
            all_rise &= rises && non_decreasing_at(values, before);
            timelines.push((part.meta().seq, *timeline));
            shared = Some(times);
        }
        if locations.len() > 1 {
            shared = joined.get(&*timelines).map(Arc::clone);
            if shared.is_none() {
                let mut all = TimesBuilder::default();
                for SampleLocation { part, timeline, .. } in &*locations {
                    let part = set.parts.get(*part)?;
                    all.push(&*part.segment.times_within(*timeline, range, times_cache).ok()?);
                }
                if *joined_times + all.len() > JOINED_TIMES_MAX || joined.len() >= JOINED_MAX {
                    joined.clear();
                    *joined_times = 0;
                }
                *joined_times += all.len();
                let all = Arc::new(all.build());
                joined.insert(timelines.clone(), Arc::clone(&all));
                shared = Some(all);
            }
        }
        if let Some(times) = shared {
            out.share(times, all_rise);
        }
        (out.len() == out.values().len()).then_some(())
    }

    /// Appends the samples of all locations, merging one after the other.
    fn read_locations(
        &mut self,
        set: &SegmentSet,
        series: u32,
        range: TimeRange,
        warnings: &Warnings,
        out: &mut SampleColumns,
    ) {
        let ReadState { locations, cache, times, cache_handle, .. } = self;
        for location @ SampleLocation { part, row, .. } in &*locations {
            let (Some(part), Some(rows)) = (set.parts.get(*part), cache.rows(location)) else { continue };
            let from = out.times.len();
            if let Err(damage) =
                part.segment.read(FamilyRow { rows, row: *row }, range, times, cache_handle.as_mut(), out)
            {
                warnings.damage(part, &damage);
            }
            apply_tombstones(set, part, series, from, out);
            merge_tail(out, from);
        }
    }
}

/// Removes samples that were deleted after the segment was written.
fn apply_tombstones(
    set: &SegmentSet,
    part: &IndexedSegment,
    series: u32,
    from: usize,
    out: &mut SampleColumns,
) {
    for tombstone in set.tombstones_of(part, series) {
        let (mut write, mut read) = (from, from);
        while let (Some(at), Some(value)) = (out.times.get(read).copied(), out.values.get(read).copied()) {
            if !(tombstone.from_ms..=tombstone.to_ms).contains(&at) {
                if let (Some(time), Some(bits)) = (out.times.get_mut(write), out.values.get_mut(write)) {
                    (*time, *bits) = (at, value);
                }
                write += 1;
            }
            read += 1;
        }
        out.times.truncate(write);
        out.values.truncate(write);
    }
}

/// Merges the samples of `out` from index `from` on into those before them. At equal times, the
/// later sample is kept.
fn merge_tail(out: &mut SampleColumns, from: usize) {
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
        fn a_merged_tail_equals_a_map_with_later_values(
            old in prop::collection::btree_map(-20i64..20, 0u8..3, 0..20),
            new in prop::collection::btree_map(-20i64..20, 0u8..3, 0..20),
        ) {
            let mut out = SampleColumns::default();
            for (at, value) in old.iter().chain(&new) {
                out.times.push(*at);
                out.values.push(f64::from(*value));
            }
            merge_tail(&mut out, old.len());
            let mut expected: BTreeMap<i64, u8> = old;
            expected.extend(new);
            let found: Vec<(i64, f64)> = out.times.into_iter().zip(out.values).collect();
            let expected: Vec<(i64, f64)> = expected.into_iter().map(|(at, v)| (at, f64::from(v))).collect();
            prop_assert_eq!(found, expected);
        }
    }
}
