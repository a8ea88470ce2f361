//! Read access to one organisation within one scope.
//!
//! **Isolation.** A snapshot fixes the organisation and the scope, not a moment. A series or a
//! sample that is applied while a query runs may be seen by its later reads. Each `read` sees a
//! series at one moment and sees whole samples. Samples of one request become visible stripe by
//! stripe. Samples are applied after they are logged, so only durable samples are visible. Ranges
//! that end in the past are stable, apart from late samples.
//!
//! **Seals.** The head keeps a sample until the segment that contains it is published. So a reader
//! sees every sample if it reads the head before it fetches the segment set, or if it finds
//! afterwards that the set it used is still the current one.
//!
//! **Locks.** The table, the metadata and the exemplars of an organisation are locked for short
//! periods, because a reader that holds such a lock blocks writers, and they block other readers.
//! While one is held, no pattern is matched, no segment is read and no memory is waited for. A
//! snapshot that does not wait ([`Snapshot::without_waiting`]) abandons a read if such a lock is
//! taken.

mod ends;
mod list;
mod older;
mod paced;
mod read;
mod select;
mod warnings;

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, MutexGuard, RwLockReadGuard};

use super::report::{SampleColumns, SeriesId};
use super::series::metadata::Metadata;
use super::side_data::exemplars::ExemplarRings;
use super::store::OrgStore;
use super::store::table_guard::TableGuard;
use crate::model::{HistogramColumns, Labels, Matcher, Pace, Scope, Stopped, TimeRange, Timestamp};
pub use ends::SeriesEnds;
use older::OlderSource;
pub use older::{OLDER_SERIES_MAX, OlderSamples};
pub use paced::Paced;
pub use read::reader::{ReadColumns, SeriesReader};
use read::{merge, side_data};
pub use select::grouped::{Grouped, GroupedSeries};
use warnings::Warnings;

/// The view of one organisation within one scope: the only way to read.
#[derive(Clone, Debug)]
pub struct Snapshot {
    store: Option<Arc<OrgStore>>,
    scope: Scope,
    /// Whether samples that retention hides are visible.
    ignore_retention: bool,
    warnings: Warnings,
    /// The number of this query in the block cache.
    query: u32,
    /// The flag that is set if a lock is taken. `None` if reads wait for locks.
    busy: Option<Arc<AtomicBool>>,
    /// Samples of an older source, which every selection and read includes.
    older: Option<Arc<OlderSource>>,
    /// The ends of series, after which every read hides their samples.
    ends: Option<Arc<SeriesEnds>>,
}

/// A series that a selection matched.
#[derive(Clone, Debug)]
pub struct SelectedSeries {
    /// The argument of [`Snapshot::read`].
    pub id: SeriesId,
    /// The whole label set, metric name included.
    pub labels: Labels,
}

impl Snapshot {
    pub(super) fn new(store: Option<Arc<OrgStore>>, scope: Scope) -> Snapshot {
        let query = store.as_ref().map_or(0, |store| store.decoded.query());
        Snapshot {
            store,
            scope,
            ignore_retention: false,
            warnings: Warnings::default(),
            query,
            busy: None,
            older: None,
            ends: None,
        }
    }

    /// Returns a snapshot for a thread that must not wait. If a lock that another query may hold is
    /// taken, a read is abandoned, returns nothing and sets `busy`. All results of the snapshot are
    /// invalid then.
    #[must_use]
    pub fn without_waiting(self, busy: Arc<AtomicBool>) -> Snapshot {
        Snapshot { busy: Some(busy), ..self }
    }

    /// Lets reads wait for locks from now on.
    pub fn wait_for_locks(&mut self) {
        self.busy = None;
    }

    /// Returns whether a read was abandoned because a lock was taken.
    pub fn is_given_up(&self) -> bool {
        self.busy.as_ref().is_some_and(|busy| busy.load(Ordering::Relaxed))
    }

    /// Locks the table, for a short operation without pattern matching.
    fn table<'s>(&self, store: &'s OrgStore) -> Result<TableGuard<'s>, Stopped> {
        match &self.busy {
            None => Ok(store.table()),
            Some(busy) => store.try_table().ok_or_else(|| Snapshot::give_up(busy)),
        }
    }

    /// Locks the metadata of metrics, for a short operation without pattern matching.
    fn locked_metadata<'s>(&self, store: &'s OrgStore) -> Result<RwLockReadGuard<'s, Metadata>, Stopped> {
        match &self.busy {
            None => Ok(store.metadata()),
            Some(busy) => store.try_metadata().ok_or_else(|| Snapshot::give_up(busy)),
        }
    }

    /// Locks the exemplars, for a short operation without pattern matching.
    fn locked_exemplars<'s>(&self, store: &'s OrgStore) -> Result<MutexGuard<'s, ExemplarRings>, Stopped> {
        match &self.busy {
            None => Ok(store.side.exemplars()),
            Some(busy) => store.side.try_exemplars().ok_or_else(|| Snapshot::give_up(busy)),
        }
    }

    fn give_up(busy: &AtomicBool) -> Stopped {
        busy.store(true, Ordering::Relaxed);
        Stopped
    }

    /// Returns a series with the number of its family. The family is None if the series is unknown
    /// or the read is abandoned.
    fn table_series(&self, store: &OrgStore, series: u32) -> merge::TableSeries {
        let family = self.table(store).ok().and_then(|table| table.family_of(series));
        merge::TableSeries { series, family }
    }

    /// Returns whether the scope admits a series. The labels are compared after the table is
    /// released.
    fn may_read(&self, store: &OrgStore, id: SeriesId) -> bool {
        if self.scope.matchers.is_empty() && self.scope.names.is_empty() {
            return true;
        }
        let labels = self.table(store).ok().and_then(|table| table.labels(id.0));
        labels.is_some_and(|labels| self.admits(&labels))
    }

    /// Returns an unrestricted snapshot that also sees samples that retention hides.
    pub(super) fn ignoring_retention(store: Arc<OrgStore>) -> Snapshot {
        Snapshot { ignore_retention: true, ..Snapshot::new(Some(store), Scope::default()) }
    }

    /// Makes every read of this snapshot warn of a damaged log.
    pub(super) fn with_log_warning(mut self, text: Option<Arc<str>>) -> Snapshot {
        self.warnings.set_log_warning(text);
        self
    }

    /// Returns whether the scope may hide anything. Responses carry a warning then.
    pub fn is_scoped(&self) -> bool {
        !self.scope.is_whole()
    }

    /// Returns the view for selections and listings. Their cost grows with the number of series, so
    /// `pace` can stop them.
    pub fn paced<'s>(&'s self, pace: &'s Pace<'s>) -> Paced<'s> {
        Paced { snapshot: self, pace }
    }

    /// Like [`Paced::select`], for work outside requests, which is never stopped.
    pub fn select(&self, matchers: &[Matcher], range: TimeRange) -> Vec<SelectedSeries> {
        self.paced(&Pace::endless()).select(matchers, range).unwrap_or_default()
    }

    /// Replaces `out` with the samples of `id` that are in `range` and in the scope's time, in
    /// ascending order, one per time.
    ///
    /// A series outside the scope has no samples here.
    pub fn read(&self, id: SeriesId, range: TimeRange, out: &mut SampleColumns) {
        if self.older.is_some() {
            return self.read_both(id, range, range.start, out, &mut HistogramColumns::default());
        }
        out.times.clear();
        out.values.clear();
        let Some(store) = &self.store else { return };
        if !self.may_read(store, id) {
            return;
        }
        let series = self.table_series(store, id.0);
        merge::read_series(
            store,
            series,
            self.visible(store, id, range),
            &self.warnings,
            &mut merge::ReadState::default(),
            out,
        );
        if store.side.has_histograms() {
            let mut histograms = HistogramColumns::default();
            self.read_histograms(id, range, &mut histograms);
            side_data::drop_shadowed_floats(&histograms, out);
        }
    }

    /// Like [`Snapshot::read`], and reads native histograms too. At a time with a histogram, the
    /// series has no float. Histograms are read from `histograms_from` on, which may be before
    /// `range`, because the meaning of a histogram depends on its predecessor.
    pub fn read_both(
        &self,
        id: SeriesId,
        range: TimeRange,
        histograms_from: Timestamp,
        out: &mut SampleColumns,
        histograms: &mut HistogramColumns,
    ) {
        let mut columns = ReadColumns::of(std::mem::take(out));
        self.reader(range, histograms_from).read(id, &mut columns, histograms);
        *out = columns.into_columns();
    }

    /// Returns a reader of many series that reads as [`Snapshot::read_both`] does. It is cheaper if
    /// series are read in the order of their numbers, because series that are written together
    /// share their times.
    pub fn reader(&self, range: TimeRange, histograms_from: Timestamp) -> SeriesReader<'_> {
        SeriesReader::new(self, range, histograms_from)
    }

    /// Returns whether any series of the organisation has native histograms.
    pub fn has_histograms(&self) -> bool {
        self.older_has_histograms() || self.store.as_ref().is_some_and(|store| store.side.has_histograms())
    }

    /// Returns a sentence for each file that could not be read so far through this snapshot or its
    /// clones.
    pub fn warnings(&self) -> Vec<String> {
        self.warnings.all()
    }

    /// Returns the version to store with a cached result; see [`Snapshot::unchanged_before`].
    /// `None` if the organisation has no samples, while a change is in progress, with ends of
    /// series, or with an older source, whose changes are unknown.
    pub fn version(&self) -> Option<u64> {
        let is_plain = self.older.is_none() && self.ends.is_none();
        self.store.as_ref().filter(|_| is_plain).and_then(|store| store.changes.version())
    }

    /// Returns the time before which no sample has changed since `version`, apart from samples that
    /// [`Snapshot::floor`] hides.
    pub fn unchanged_before(&self, version: u64) -> Timestamp {
        Timestamp::from_ms(self.store.as_ref().map_or(i64::MIN, |store| store.changes.least_since(version)))
    }

    /// Returns the earliest visible time, by the organisation's retention and the scope.
    pub fn floor(&self) -> Timestamp {
        self.within(TimeRange::ALL).start
    }

    fn admits(&self, labels: &Labels) -> bool {
        self.scope.matchers.iter().all(|matcher| matcher.admits(labels))
            && self.scope.admits_name(labels.metric_name())
    }

    /// Like [`Snapshot::admits`], with the cost charged to a pace.
    fn admits_within(&self, labels: &Labels, pace: &Pace<'_>) -> Result<bool, Stopped> {
        for matcher in &self.scope.matchers {
            if !matcher.admits_within(labels, pace)? {
                return Ok(false);
            }
        }
        Ok(self.scope.admits_name(labels.metric_name()))
    }

    /// Returns the time from which samples are visible by the organisation's retention alone.
    pub fn kept_from(&self) -> Timestamp {
        let kept = self.store.as_ref().filter(|_| !self.ignore_retention);
        Timestamp::from_ms(kept.map_or(i64::MIN, |store| store.kept_from_ms.load(Ordering::Relaxed)))
    }

    /// Clips the range to the scope's time and to the organisation's retention.
    fn within(&self, range: TimeRange) -> TimeRange {
        let start = range.start.max(self.kept_from());
        TimeRange::new(self.scope.min_time.map_or(start, |min| start.max(min)), range.end)
    }
}
