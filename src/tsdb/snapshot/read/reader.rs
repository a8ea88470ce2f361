//! A reader of many series. Series that are written together share one list of times.

use std::sync::Arc;

use super::{merge, side_data};
use crate::model::{HistogramColumns, TimeRange, Times, Timestamp};
use crate::tsdb::report::{SampleColumns, SeriesId};
use crate::tsdb::snapshot::Snapshot;

/// The samples of one series, ascending in time; see [`SeriesReader::read`].
#[derive(Debug, Default)]
pub struct ReadColumns {
    /// The samples; without times if they are shared.
    columns: SampleColumns,
    shared: Option<Arc<Times>>,
    /// True if all values are known to be numbers that do not decrease.
    rises: bool,
}

impl ReadColumns {
    /// Returns columns that start with these samples.
    pub(in crate::tsdb::snapshot) fn of(columns: SampleColumns) -> ReadColumns {
        ReadColumns { columns, shared: None, rises: false }
    }

    pub(in crate::tsdb::snapshot) fn into_columns(mut self) -> SampleColumns {
        std::mem::take(self.change())
    }

    /// Returns the times in milliseconds since the epoch.
    pub fn times(&self) -> &[i64] {
        self.shared.as_ref().map_or(&self.columns.times, |shared| shared.list())
    }

    /// Returns the number of samples.
    pub fn len(&self) -> usize {
        self.shared.as_ref().map_or(self.columns.times.len(), |shared| shared.len())
    }

    /// Returns whether there are no samples.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Returns the times if other series may have the same list; all of those share one `Arc`.
    pub fn shared_times(&self) -> Option<&Arc<Times>> {
        self.shared.as_ref()
    }

    /// Returns the values, including staleness markers.
    pub fn values(&self) -> &[f64] {
        &self.columns.values
    }

    /// Returns whether all values are known to be numbers that do not decrease.
    pub fn is_known_to_rise(&self) -> bool {
        self.rises
    }

    /// Returns the samples for modification; copies shared times.
    pub fn change(&mut self) -> &mut SampleColumns {
        self.rises = false;
        if let Some(shared) = self.shared.take() {
            self.columns.times.clear();
            self.columns.times.extend_from_slice(shared.list());
        }
        &mut self.columns
    }

    /// Removes all samples, and returns the columns to fill.
    pub(in crate::tsdb::snapshot) fn replace(&mut self) -> &mut SampleColumns {
        (self.shared, self.rises) = (None, false);
        self.columns.times.clear();
        self.columns.values.clear();
        &mut self.columns
    }

    /// Removes all samples but the newest.
    fn keep_newest(&mut self) {
        if self.len() > 1 {
            let SampleColumns { times, values } = self.change();
            times.drain(..times.len() - 1);
            values.drain(..values.len() - 1);
        }
    }

    /// Sets the times of the values, and whether the values are known not to decrease.
    pub(in crate::tsdb::snapshot) fn share(&mut self, times: Arc<Times>, rises: bool) {
        (self.shared, self.rises) = (Some(times), rises);
    }
}

/// A reader of many series; see [`Snapshot::reader`].
#[derive(Debug)]
pub struct SeriesReader<'s> {
    snapshot: &'s Snapshot,
    range: TimeRange,
    histograms_from: Timestamp,
    newest: bool,
    state: merge::ReadState,
}

impl<'s> SeriesReader<'s> {
    pub(in crate::tsdb::snapshot) fn new(
        snapshot: &'s Snapshot,
        range: TimeRange,
        histograms_from: Timestamp,
    ) -> SeriesReader<'s> {
        let store = snapshot.store.as_deref();
        let cache_handle = store.and_then(|store| store.decoded.handle(snapshot.query));
        SeriesReader {
            snapshot,
            range,
            histograms_from,
            newest: false,
            state: merge::ReadState::with(cache_handle),
        }
    }

    /// Limits reads to the newest sample of each series in the range, which is cheaper.
    pub fn newest_only(mut self) -> SeriesReader<'s> {
        self.newest = true;
        self.state.newest_only();
        self
    }

    /// Announces the series that will be read next, in order. Series without samples of the range
    /// in the head are read from the segments of this moment.
    pub fn look_ahead(&mut self, ids: impl Iterator<Item = SeriesId>) {
        if let Some(store) = &self.snapshot.store {
            let range = self.snapshot.within(self.range);
            let Ok(table) = self.snapshot.table(store) else { return };
            let ids = ids.filter_map(|id| self.snapshot.parts(id).0).map(|id| id.0);
            merge::look_ahead(store, table, ids, range, &mut self.state);
        }
    }

    /// Replaces `out` and `histograms` with the samples of the series.
    pub fn read(&mut self, id: SeriesId, out: &mut ReadColumns, histograms: &mut HistogramColumns) {
        let (stored, older) = self.snapshot.parts(id);
        self.read_stored(stored, out, histograms);
        if let Some(older) = older {
            let range = self.snapshot.visible_in_older(self.range);
            let from = self.range.start.min(self.histograms_from);
            let histograms_range = self.snapshot.visible_in_older(TimeRange::new(from, self.range.end));
            older.add_to(range, histograms_range, self.newest, out, histograms);
            if self.newest {
                out.keep_newest();
            }
        }
    }

    /// Replaces `out` and `histograms` with the samples that the store has.
    fn read_stored(
        &mut self,
        id: Option<SeriesId>,
        out: &mut ReadColumns,
        histograms: &mut HistogramColumns,
    ) {
        histograms.clear();
        let Some((id, store)) = id.and_then(|id| Some((id, self.snapshot.readable(id)?))) else {
            out.replace();
            return;
        };
        let range = self.snapshot.visible(store, id, self.range);
        let warnings = &self.snapshot.warnings;
        match self.state.next_planned(id.0) {
            Some(number) => merge::read_planned(store, number, range, warnings, &mut self.state, out),
            None => {
                let series = self.snapshot.table_series(store, id.0);
                merge::read_merged(store, series, range, warnings, &mut self.state, out);
            }
        }
        if store.side.has_histograms() {
            let from = self.range.start.min(self.histograms_from);
            self.snapshot.read_histograms(id, TimeRange::new(from, self.range.end), histograms);
            if !histograms.is_empty() {
                side_data::drop_shadowed_floats(histograms, out.change());
            }
        }
        if self.newest {
            out.keep_newest();
        }
    }
}
