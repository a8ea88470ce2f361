//! Reads of native histograms, start timestamps and exemplars, which few series have.

use std::sync::Arc;

use crate::model::{Exemplar, HistogramColumns, Labels, Matcher, StartChange, Stopped, TimeRange, Timestamp};
use crate::tsdb::report::{Listing, SampleColumns, SeriesExemplars, SeriesId};
use crate::tsdb::side_data::late_starts::LateStarts;
use crate::tsdb::side_data::{sealed, start_timestamps};
use crate::tsdb::snapshot::{Paced, Snapshot};
use crate::tsdb::store::OrgStore;
use crate::tsdb::store::segments::SegmentSet;

/// Series whose exemplars are read under one lock; each has at most 100.
const SERIES_AT_ONCE: usize = 128;

impl Snapshot {
    /// Replaces `out` with the native histograms of `id` that are in `range` and in the scope's
    /// time, in ascending order, one per time.
    ///
    /// A series outside the scope has no histograms here.
    pub fn read_histograms(&self, id: SeriesId, range: TimeRange, out: &mut HistogramColumns) {
        out.clear();
        if let Some(store) = self.readable(id) {
            self.histograms_of(store, id, self.visible(store, id, range), out);
        }
    }

    /// Appends histograms; the caller has checked the series against the scope and clipped the
    /// range.
    pub(in crate::tsdb::snapshot) fn histograms_of(
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
            // The head may have released samples that only the newer set has. The set changes only
            // with seals and compactions.
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

    /// Returns the start timestamps of the samples of `id` in `range` and in the scope's time, as
    /// changes: each holds until the next. The first may be at a time before the range. Empty if no
    /// sender gave a start timestamp.
    pub fn starts(&self, id: SeriesId, range: TimeRange) -> Vec<StartChange> {
        let Some(store) = self.readable(id) else { return Vec::new() };
        let range = self.visible(store, id, range);
        let (mut changes, mut late) = (Vec::new(), LateStarts::default());
        let mut set = store.segments();
        loop {
            // Parts of all times are read, because a start timestamp holds until the next.
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
            // The head may have released changes that only the newer set has. The set changes only
            // with seals and compactions.
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

    /// Returns the store if the scope admits this series.
    pub(in crate::tsdb::snapshot) fn readable(&self, id: SeriesId) -> Option<&OrgStore> {
        self.store.as_deref().filter(|store| self.may_read(store, id))
    }
}

impl Paced<'_> {
    /// Returns at most `limit` exemplars, in `range` and in the scope's time, of the series that
    /// pass the scope and all matchers of any selector. They are grouped by series and sorted by
    /// labels.
    ///
    /// # Errors
    /// [`Stopped`] if the pace stops the request.
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
        // Each lock is released before the next is taken, and no label is matched under a lock.
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
                    // The exemplars may have been evicted since.
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
        let mut left = limit;
        for mut series in found {
            listing.truncated |= series.exemplars.len() > left;
            series.exemplars.truncate(left);
            left -= series.exemplars.len();
            if !series.exemplars.is_empty() {
                listing.items.push(series);
            }
        }
        Ok(listing)
    }
}

impl Paced<'_> {
    /// Returns whether labels pass the scope and all matchers of any selector.
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

/// Removes floats at times that also have a histogram, because the histogram takes precedence.
pub(in crate::tsdb::snapshot) fn drop_shadowed_floats(
    histograms: &HistogramColumns,
    out: &mut SampleColumns,
) {
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
