//! Reading what few series have: native histograms, start timestamps, exemplars.

use std::sync::Arc;

use super::{Paced, Snapshot};
use crate::model::{Exemplar, HistogramColumns, Labels, Matcher, StartChange, Stopped, TimeRange, Timestamp};
use crate::tsdb::report::{Listing, SampleColumns, SeriesExemplars, SeriesId};
use crate::tsdb::segments::SegmentSet;
use crate::tsdb::side_data::late_starts::LateStarts;
use crate::tsdb::side_data::{sealed, start_timestamps};
use crate::tsdb::store::OrgStore;

/// Series whose exemplars are looked at under one lock; each has 100 at most.
const SERIES_AT_ONCE: usize = 128;

impl Snapshot {
    /// Replaces `out` with the native histograms of `id` inside `range` and the scope's time; ascending, each time once.
    ///
    /// A series outside the scope has none, whatever id is asked for.
    pub fn read_histograms(&self, id: SeriesId, range: TimeRange, out: &mut HistogramColumns) {
        out.clear();
        if let Some(store) = self.readable(id) {
            self.histograms_of(store, id, self.within(range), out);
        }
    }

    /// Of a series that may be read, within a range that may be.
    pub(super) fn histograms_of(
        &self,
        store: &OrgStore,
        id: SeriesId,
        range: TimeRange,
        out: &mut HistogramColumns,
    ) {
        let mut set = store.segments();
        loop {
            self.read_sealed(&set, id.0, range, out);
            store.side.read_histograms(id.0, range, out);
            let after = store.segments();
            if Arc::ptr_eq(&set, &after) {
                return sealed::sort_and_dedup(out);
            }
            // The head may have let go of what only the newer set has. Sets change with seals and compactions alone.
            set = after;
            out.clear();
        }
    }

    fn read_sealed(&self, set: &SegmentSet, id: u32, range: TimeRange, out: &mut HistogramColumns) {
        set.bad_in(range).for_each(|bad| self.warnings.bad(bad));
        for part in set.beside().filter(|part| part.overlaps(range)) {
            let mut here = HistogramColumns::default();
            let read = part.segment.side_data(id).and_then(|run| {
                let read = run.map_or(Ok(()), |run| sealed::read_histograms(run, range, &mut here));
                read.map_err(|damage| part.segment.side_data_damage(damage))
            });
            if let Err(damage) = read {
                self.warnings.damage(part, &damage);
            }
            let shown = here.times.into_iter().zip(here.histograms);
            out.extend(shown.filter(|(at, _)| !set.tombstones_of(part, id).any(|t| t.hides(id, *at))));
        }
    }

    /// The start timestamps that samples of `id` inside `range` and the scope's time have, as changes: each holds until
    /// the next. The first may be at a time before the range. None where no sender gave one.
    pub fn starts(&self, id: SeriesId, range: TimeRange) -> Vec<StartChange> {
        let Some(store) = self.readable(id) else { return Vec::new() };
        let range = self.within(range);
        let (mut changes, mut late) = (Vec::new(), LateStarts::default());
        let mut set = store.segments();
        loop {
            // Whatever their time: a start holds until the next.
            for part in set.beside() {
                let read = part.segment.side_data(id.0).and_then(|run| {
                    let read = run.map_or(Ok(()), |run| sealed::read_starts(run, &mut changes, &mut late));
                    read.map_err(|damage| part.segment.side_data_damage(damage))
                });
                if let Err(damage) = read {
                    self.warnings.damage(part, &damage);
                }
            }
            store.side.starts(id.0, &mut changes, &mut late);
            let after = store.segments();
            if Arc::ptr_eq(&set, &after) {
                break;
            }
            // The head may have let go of what only the newer set has. Sets change with seals and compactions alone.
            set = after;
            changes.clear();
            late = LateStarts::default();
        }
        sealed::sort_and_dedup_starts(&mut changes);
        let changes = late.merged_into(changes);
        let within = start_timestamps::within(&changes, range.start.as_ms(), range.end.as_ms());
        within
            .iter()
            .map(|(at, start)| StartChange { at: Timestamp::from_ms(*at), start: Timestamp::from_ms(*start) })
            .collect()
    }

    /// The store, if this series may be read.
    pub(super) fn readable(&self, id: SeriesId) -> Option<&OrgStore> {
        self.store.as_deref().filter(|store| self.may_read(store, id))
    }
}

impl Paced<'_> {
    /// The exemplars inside `range` and the scope's time of the series that pass all matchers of any selector, by series
    /// in order of labels; at most `limit` of them.
    ///
    /// # Errors
    /// [`Stopped`].
    pub fn exemplars(
        &self,
        selectors: &[&[Matcher]],
        range: TimeRange,
        limit: usize,
    ) -> Result<Listing<SeriesExemplars>, Stopped> {
        let mut listing = Listing::default();
        let Paced { snapshot, pace } = self;
        let Some(store) = &snapshot.store else { return Ok(listing) };
        let range = snapshot.within(range);
        let (start, end) = (range.start.as_ms(), range.end.as_ms());
        let series: Vec<u32> = snapshot.locked_exemplars(store)?.series().collect();
        pace.hold_each(series.len(), size_of::<u32>())?;
        pace.spend_each(series.len(), 20)?;
        let mut found: Vec<SeriesExemplars> = Vec::new();
        // Looked at, labelled, matched and copied one after the other: nothing is matched under a lock.
        for ids in series.chunks(SERIES_AT_ONCE) {
            pace.spend_each(ids.len(), 500)?;
            let within = {
                let exemplars = snapshot.locked_exemplars(store)?;
                let has_any = |id: &u32| exemplars.within(*id, start, end).next().is_some();
                ids.iter().copied().filter(has_any).collect::<Vec<u32>>()
            };
            let labelled: Vec<(u32, Labels)> = {
                let table = snapshot.table(store)?;
                within.iter().filter_map(|id| Some((*id, table.labels(*id)?))).collect()
            };
            let mut admitted = Vec::with_capacity(labelled.len());
            for (id, labels) in labelled {
                if self.passes(selectors, &labels)? {
                    admitted.push((id, labels));
                }
            }
            let before = found.len();
            if !admitted.is_empty() {
                let exemplars = snapshot.locked_exemplars(store)?;
                for (id, labels) in admitted {
                    let exemplars: Vec<Exemplar> = exemplars.within(id, start, end).cloned().collect();
                    // Those that were there may have gone since.
                    if !exemplars.is_empty() {
                        found.push(SeriesExemplars { labels, exemplars });
                    }
                }
            }
            let copied = found.iter().skip(before).map(|series| series.exemplars.len()).sum();
            pace.spend_each(copied, 50)?;
            pace.hold_each(copied, size_of::<Exemplar>())?;
        }
        pace.spend_each(found.len(), 300)?;
        found.sort_unstable_by(|a, b| a.labels.cmp(&b.labels));
        let mut room = limit;
        for mut series in found {
            listing.truncated |= series.exemplars.len() > room;
            series.exemplars.truncate(room);
            room -= series.exemplars.len();
            if !series.exemplars.is_empty() {
                listing.items.push(series);
            }
        }
        Ok(listing)
    }
}

impl Paced<'_> {
    /// Whether labels pass all matchers of any selector, and the scope.
    fn passes(&self, selectors: &[&[Matcher]], labels: &Labels) -> Result<bool, Stopped> {
        let Paced { snapshot, pace } = self;
        for matchers in selectors {
            let mut passes = true;
            for matcher in *matchers {
                passes = passes && matcher.admits_within(labels, pace)?;
            }
            if passes {
                return snapshot.admits_within(labels, pace);
            }
        }
        Ok(false)
    }
}

/// At a time that has a histogram too, the histogram is what the series has: takes such floats out.
pub(super) fn yield_to_histograms(histograms: &HistogramColumns, out: &mut SampleColumns) {
    if histograms.is_empty() {
        return;
    }
    let SampleColumns { times, values } = std::mem::take(out);
    let floats = times.into_iter().zip(values);
    for (at, value) in floats.filter(|(at, _)| histograms.times.binary_search(at).is_err()) {
        out.times.push(at);
        out.values.push(value);
    }
}
