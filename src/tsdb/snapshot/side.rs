//! Reading what few series have: native histograms, start timestamps, exemplars.

use std::sync::Arc;

use super::{Paced, Snapshot};
use crate::model::{Exemplar, HistogramColumns, Matcher, StartChange, Stopped, TimeRange, Timestamp};
use crate::tsdb::report::{Listing, SampleColumns, SeriesExemplars, SeriesId};
use crate::tsdb::segments::SegmentSet;
use crate::tsdb::side::points::Points;
use crate::tsdb::side::{sealed, starts};
use crate::tsdb::store::OrgStore;

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
                return sealed::settle(out);
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
            let read = part.segment.beside(id).and_then(|run| {
                let read = run.map_or(Ok(()), |run| sealed::read_histograms(run, range, &mut here));
                read.map_err(|damage| part.segment.beside_damage(damage))
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
        let (mut changes, mut late) = (Vec::new(), Points::default());
        let mut set = store.segments();
        loop {
            // Whatever their time: a start holds until the next.
            for part in set.beside() {
                let read = part.segment.beside(id.0).and_then(|run| {
                    let read = run.map_or(Ok(()), |run| sealed::read_starts(run, &mut changes, &mut late));
                    read.map_err(|damage| part.segment.beside_damage(damage))
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
            late = Points::default();
        }
        sealed::settle_starts(&mut changes);
        let changes = late.over(changes);
        let within = starts::within(&changes, range.start.as_ms(), range.end.as_ms());
        within
            .iter()
            .map(|(at, start)| StartChange { at: Timestamp::from_ms(*at), start: Timestamp::from_ms(*start) })
            .collect()
    }

    /// The store, if this series may be read.
    pub(super) fn readable(&self, id: SeriesId) -> Option<&OrgStore> {
        let store = self.store.as_deref()?;
        let by_labels = !self.scope.matchers.is_empty() || !self.scope.names.is_empty();
        let hidden = by_labels && !store.table().labels(id.0).is_some_and(|labels| self.admits(&labels));
        (!hidden).then_some(store)
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
        let table = store.table();
        let exemplars = store.side.exemplars();
        let mut found: Vec<SeriesExemplars> = Vec::new();
        for id in exemplars.series() {
            let mut within = exemplars.within(id, range.start.as_ms(), range.end.as_ms()).peekable();
            if within.peek().is_none() {
                continue;
            }
            let Some(labels) = table.labels(id) else { continue };
            pace.spend(200)?;
            let mut asked = false;
            for matchers in selectors {
                asked = true;
                for matcher in *matchers {
                    asked = asked && matcher.admits_within(&labels, pace)?;
                }
                if asked {
                    break;
                }
            }
            if asked && snapshot.admits(&labels) {
                let exemplars: Vec<Exemplar> = within.cloned().collect();
                pace.spend_each(exemplars.len(), 50)?;
                pace.hold_each(exemplars.len(), size_of::<Exemplar>())?;
                found.push(SeriesExemplars { labels, exemplars });
            }
        }
        drop(exemplars);
        drop(table);
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
