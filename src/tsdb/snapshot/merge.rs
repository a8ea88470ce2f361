//! One series out of segments and head, ascending, each time once.

use std::sync::{Arc, RwLockReadGuard};

use rapidhash::RapidHashMap;

use super::reader::ReadColumns;
use super::sources::{Families, Source};
use super::warnings::Warnings;
use super::window::{WINDOW, Window};
use crate::model::{TimeRange, Times, TimesBuilder};
use crate::sync::IgnorePoison as _;
use crate::tsdb::decoded::Keeper;
use crate::tsdb::head::{STRIPE_SERIES, slot};
use crate::tsdb::report::SampleColumns;
use crate::tsdb::segment::{KnownTimes, rises_at};
use crate::tsdb::segments::{IndexedSegment, SegmentSet};
use crate::tsdb::series::table::Table;
use crate::tsdb::store::OrgStore;

/// Times of series in several segments kept at most before all are forgotten, 2 MiB; and of how many kinds of series.
const JOINED_TIMES_MAX: usize = 1 << 18;
const JOINED_MAX: usize = 4_096;

/// What reading one series after the other finds out once: the segments that count, where families lie in them, and the
/// times that series share.
#[derive(Debug, Default)]
pub(super) struct Known {
    set: Option<Arc<SegmentSet>>,
    families: Families,
    times: KnownTimes,
    /// Only the newest sample of a range is asked for: what is known of times then. Whatever more is read may be what
    /// something else hides.
    newest: Option<KnownTimes>,
    /// Where values may be that were decoded before.
    keeper: Option<Keeper>,
    sources: Vec<Source>,
    /// Whose times the values are that were read last, and the times of such series as are in several segments.
    of: Vec<(u64, usize)>,
    joined: RapidHashMap<Vec<(u64, usize)>, Arc<Times>>,
    /// Times in all of those.
    held: usize,
    /// What was looked up beforehand, and the first of it that was not asked for yet.
    ahead: Vec<Ahead>,
    next: usize,
    /// The next ones of those, as they lie in segments.
    window: Window,
}

/// A series that will be read.
#[derive(Clone, Copy, Debug)]
struct Ahead {
    series: u32,
    family: Option<u32>,
    /// Nothing of the range was in the head, when the segments that count were those that are known.
    is_sealed: bool,
}

/// Appends the samples of a series inside `range` to `out`, which is empty. `family`: the number of its family in the
/// table.
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

/// Looks up what series will be read, in that order; `table` is the locked table. Locks are taken once for all of them, which threads that read side by
/// side would wait for at each series.
pub(super) fn look_ahead(
    store: &OrgStore,
    table: RwLockReadGuard<'_, Table>,
    series: impl Iterator<Item = u32>,
    range: TimeRange,
    known: &mut Known,
) {
    let Known { ahead, next, window, .. } = known;
    ahead.clear();
    *next = 0;
    window.clear();
    ahead.extend(series.map(|series| Ahead { series, family: table.family_of(series), is_sealed: false }));
    drop(table);
    let set = known.set.take().unwrap_or_else(|| store.segments());
    let in_stripe = |a: &Ahead, b: &Ahead| a.series / STRIPE_SERIES == b.series / STRIPE_SERIES;
    for alike in known.ahead.chunk_by_mut(in_stripe) {
        let stripe = alike.first().and_then(|first| store.head.stripe(first.series));
        let stripe = stripe.as_ref().map(|stripe| stripe.read().ignore_poison());
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
            known.forget_places();
            known.set = Some(after);
        }
    }
}

/// Replaces `out` with the samples of the series that was said to be next, or of any other.
pub(super) fn read_ahead(
    store: &OrgStore,
    (series, family_of): (u32, impl FnOnce(u32) -> Option<u32>),
    range: TimeRange,
    warnings: &Warnings,
    known: &mut Known,
    out: &mut ReadColumns,
) {
    let ahead = known.ahead.get(known.next).copied().filter(|ahead| ahead.series == series);
    let Some(Ahead { family, is_sealed, .. }) = ahead else {
        return read_next(store, (family_of(series), series), range, warnings, known, out);
    };
    let number = known.next;
    known.next += 1;
    match known.set.take() {
        Some(set) if is_sealed => {
            known.read_in_window(&set, (number, family, series), range, warnings, out);
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
            let stripe = stripe.read().ignore_poison();
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
        known.forget_places();
        known.ahead.clear();
    }
}

impl Known {
    pub(super) fn with(keeper: Option<Keeper>) -> Known {
        Known { keeper, ..Known::default() }
    }

    /// From now on nothing but the newest sample of a range is asked for; others may be there or not.
    pub(super) fn newest_only(&mut self) {
        self.newest = Some(KnownTimes::of_newest());
    }

    /// Forgets where series lie in segments.
    fn forget_places(&mut self) {
        self.families.forget();
        self.window.clear();
    }

    fn make_room(&mut self) {
        if self.families.are_many() {
            self.forget_places();
        }
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
        self.make_room();
        if let Some(family) = family {
            self.find_sources(set, (family, series), range, warnings);
        }
        if self.read_alike(set, series, range, out).is_none() {
            self.read_sources(set, series, range, warnings, out.replace());
        }
        !out.is_empty()
    }

    /// Replaces `out` with what segments have of a series that was looked up beforehand, by this number.
    fn read_in_window(
        &mut self,
        set: &SegmentSet,
        (number, family, series): (usize, Option<u32>, u32),
        range: TimeRange,
        warnings: &Warnings,
        out: &mut ReadColumns,
    ) {
        if !self.window.has(number, range) {
            self.look_up(set, number, range, warnings);
        }
        let Some(source) = self.window.source(number) else {
            self.read_sealed(set, (family, series), range, warnings, out);
            return;
        };
        set.bad_in(range).for_each(|bad| warnings.bad(bad));
        let known = self.newest.as_mut().unwrap_or(&mut self.times);
        if let Some((values, rises)) = self.window.values(number)
            && let Some(part) = set.parts.get(source.part)
            && let Ok(times) = part.segment.times_within(source.timeline, range, known)
            && times.len() == values.len()
        {
            out.replace().values.extend_from_slice(values);
            out.share(times, rises);
            return;
        }
        self.sources.clear();
        self.sources.push(source);
        if self.read_alike(set, series, range, out).is_none() {
            self.read_sources(set, series, range, warnings, out.replace());
        }
    }

    /// Looks up where the series from this number on are in segments, and what is kept decoded of them.
    fn look_up(&mut self, set: &SegmentSet, number: usize, range: TimeRange, warnings: &Warnings) {
        self.make_room();
        let Known { ahead, families, sources, times, newest, keeper, window, .. } = self;
        let known = newest.as_mut().unwrap_or(times);
        window.begin(number, range);
        for one in ahead.iter().skip(number).take(WINDOW) {
            sources.clear();
            if let Some(family) = one.family.filter(|_| one.is_sealed) {
                families.sources(set, (family, one.series), range, warnings, sources);
            }
            // Where there is more than one, what they have may have to be merged.
            let source = if let [source] = **sources { Some(source) } else { None };
            window.push(
                source,
                source.and_then(|source| families.piece(set, one.series, &source, range, known)),
            );
        }
        window.find(set, families, keeper.as_mut());
    }

    /// Finds where samples of a series are, those that win last.
    fn find_sources(
        &mut self,
        set: &SegmentSet,
        (family, series): (u32, u32),
        range: TimeRange,
        warnings: &Warnings,
    ) {
        let Known { families, sources, .. } = self;
        families.sources(set, (family, series), range, warnings, sources);
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
        let Known { sources, families, times, newest, keeper, of, joined, held, .. } = self;
        let known = newest.as_mut().unwrap_or(times);
        if !sources.is_sorted_by(|a, b| a.last < b.first) {
            return None;
        }
        of.clear();
        let values = &mut out.replace().values;
        let (mut shared, mut all_rise) = (None, true);
        for source @ Source { part, row, timeline, .. } in &*sources {
            let part = set.parts.get(*part)?;
            if set.tombstones_of(part, series).next().is_some() {
                return None;
            }
            let rows = families.rows(source)?;
            let keeper = keeper.as_mut().filter(|_| source.may_be_kept);
            let before = values.len();
            let (times, rises) =
                part.segment.values_alone((rows, *row, *timeline), range, known, keeper, values).ok()?;
            all_rise &= rises && rises_at(values, before);
            of.push((part.meta().seq, *timeline));
            shared = Some(times);
        }
        if sources.len() > 1 {
            shared = joined.get(&*of).map(Arc::clone);
            if shared.is_none() {
                let mut all = TimesBuilder::default();
                for Source { part, timeline, .. } in &*sources {
                    let part = set.parts.get(*part)?;
                    all.push(&*part.segment.times_within(*timeline, range, known).ok()?);
                }
                if *held + all.len() > JOINED_TIMES_MAX || joined.len() >= JOINED_MAX {
                    joined.clear();
                    *held = 0;
                }
                *held += all.len();
                let all = Arc::new(all.build());
                joined.insert(of.clone(), Arc::clone(&all));
                shared = Some(all);
            }
        }
        if let Some(times) = shared {
            out.share(times, all_rise);
        }
        (out.len() == out.values().len()).then_some(())
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
        let Known { sources, families, times, keeper, .. } = self;
        for source @ Source { part, row, .. } in &*sources {
            let (Some(part), Some(rows)) = (set.parts.get(*part), families.rows(source)) else { continue };
            let from = out.times.len();
            if let Err(damage) = part.segment.read((rows, *row), range, times, keeper.as_mut(), out) {
                warnings.damage(part, &damage);
            }
            hide(set, part, series, from, out);
            settle(out, from);
        }
    }
}

/// Takes out what was deleted after the segment was made.
fn hide(set: &SegmentSet, part: &IndexedSegment, series: u32, from: usize, out: &mut SampleColumns) {
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
