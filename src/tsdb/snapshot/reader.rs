//! One series after the other. Those that are written together share their times, which are made once.

use std::sync::Arc;

use super::{Snapshot, merge, side};
use crate::model::{HistogramColumns, TimeRange, Times, Timestamp};
use crate::tsdb::report::{SampleColumns, SeriesId};

/// The samples of one series after the other, ascending in time; see [`Reader::read`].
#[derive(Debug, Default)]
pub struct ReadColumns {
    /// Without times where they are shared.
    columns: SampleColumns,
    shared: Option<Arc<Times>>,
    /// All values are numbers, and none is less than the one before; as far as that is known.
    rises: bool,
}

impl ReadColumns {
    /// With these samples for a beginning.
    pub(super) fn of(columns: SampleColumns) -> ReadColumns {
        ReadColumns { columns, shared: None, rises: false }
    }

    pub(super) fn into_columns(mut self) -> SampleColumns {
        std::mem::take(self.change())
    }

    /// Milliseconds since the epoch.
    pub fn times(&self) -> &[i64] {
        self.shared.as_ref().map_or(&self.columns.times, |shared| shared.list())
    }

    /// How many samples there are.
    pub fn len(&self) -> usize {
        self.shared.as_ref().map_or(self.columns.times.len(), |shared| shared.len())
    }

    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// The times where they are other series' as well: the same list for all of those.
    pub fn shared_times(&self) -> Option<&Arc<Times>> {
        self.shared.as_ref()
    }

    /// The values, staleness markers included.
    pub fn values(&self) -> &[f64] {
        &self.columns.values
    }

    /// Whether it is known that all values are numbers, and none is less than the one before.
    pub fn is_known_to_rise(&self) -> bool {
        self.rises
    }

    /// The samples, to be changed.
    pub fn change(&mut self) -> &mut SampleColumns {
        self.rises = false;
        if let Some(shared) = self.shared.take() {
            self.columns.times.clear();
            self.columns.times.extend_from_slice(shared.list());
        }
        &mut self.columns
    }

    /// No samples, to be added to.
    pub(super) fn replace(&mut self) -> &mut SampleColumns {
        (self.shared, self.rises) = (None, false);
        self.columns.times.clear();
        self.columns.values.clear();
        &mut self.columns
    }

    /// Leaves the newest sample alone.
    fn keep_newest(&mut self) {
        if self.len() > 1 {
            let SampleColumns { times, values } = self.change();
            times.drain(..times.len() - 1);
            values.drain(..values.len() - 1);
        }
    }

    /// Gives the values these times, and says what is known of them.
    pub(super) fn share(&mut self, times: Arc<Times>, rises: bool) {
        (self.shared, self.rises) = (Some(times), rises);
    }
}

/// A reader of many series; see [`Snapshot::reader`].
#[derive(Debug)]
pub struct Reader<'s> {
    snapshot: &'s Snapshot,
    range: TimeRange,
    histograms_from: Timestamp,
    newest: bool,
    known: merge::Known,
}

impl<'s> Reader<'s> {
    pub(super) fn new(snapshot: &'s Snapshot, range: TimeRange, histograms_from: Timestamp) -> Reader<'s> {
        let store = snapshot.store.as_deref();
        let keeper = store.and_then(|store| store.decoded.handle(snapshot.query));
        Reader { snapshot, range, histograms_from, newest: false, known: merge::Known::with(keeper) }
    }

    /// Of each series nothing but the newest sample of the range is read, which costs less.
    pub fn newest_only(mut self) -> Reader<'s> {
        self.newest = true;
        self.known.newest_only();
        self
    }

    /// Tells which series will be read next, in that order. Where nothing of them is in the head, each is then as it is now.
    pub fn look_ahead(&mut self, ids: impl Iterator<Item = SeriesId>) {
        if let Some(store) = &self.snapshot.store {
            let range = self.snapshot.within(self.range);
            let Ok(table) = self.snapshot.table(store) else { return };
            merge::look_ahead(store, table, ids.map(|id| id.0), range, &mut self.known);
        }
    }

    /// Replaces `out` and `histograms` with what the series has.
    pub fn read(&mut self, id: SeriesId, out: &mut ReadColumns, histograms: &mut HistogramColumns) {
        histograms.clear();
        let Some(store) = self.snapshot.readable(id) else {
            out.replace();
            return;
        };
        let range = self.snapshot.within(self.range);
        let family_of = |series| self.snapshot.family_of(store, series);
        merge::read_ahead(store, (id.0, family_of), range, &self.snapshot.warnings, &mut self.known, out);
        if store.side.has_histograms() {
            let from = self.range.start.min(self.histograms_from);
            self.snapshot.read_histograms(id, TimeRange::new(from, self.range.end), histograms);
            if !histograms.is_empty() {
                side::yield_to_histograms(histograms, out.change());
            }
        }
        if self.newest {
            out.keep_newest();
        }
    }
}
