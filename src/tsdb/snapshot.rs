//! Reading: one organisation within one scope.
//!
//! **Isolation.** A snapshot fixes who reads (organisation and scope), not a moment: a series or a sample that is
//! applied while a query runs may be seen by its later reads. Each `read` sees a series at one moment, and whole
//! samples; samples of one request become visible stripe by stripe. Only what is durable is ever visible, since
//! samples are applied after they are logged. Ranges that end in the past are stable but for late samples.
//!
//! **Seals.** A sample is in the head until after the segment that has it is published: whoever reads the head first and
//! asks for the segments then, or finds afterwards that they are still the ones that count, has seen every sample.
//!
//! **Locks.** The table, the metadata and the exemplars of an organisation are locked for short stretches: writers wait
//! behind them, and readers behind those. No pattern is matched, no segment is looked at and no
//! memory is waited for under one. A snapshot that does not wait ([`Snapshot::without_waiting`]) gives a read up where
//! such a lock is not free.

mod cardinality;
mod find;
mod grouped;
mod labelled;
mod listings;
mod merge;
mod order;
mod paced;
mod presence;
mod reader;
mod side;
mod sources;
mod warnings;
mod window;

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, MutexGuard, RwLockReadGuard};

use super::report::{SampleColumns, SeriesId};
use super::series::metadata::Metadata;
use super::series::table::Table;
use super::side_data::exemplars::ExemplarRings;
use super::store::OrgStore;
use crate::model::{HistogramColumns, Labels, Matcher, Pace, Scope, Stopped, TimeRange, Timestamp};
pub use grouped::{Grouped, GroupedSeries};
pub use paced::Paced;
pub use reader::{ReadColumns, Reader};
use warnings::Warnings;

/// One organisation within one scope. The only way to read.
#[derive(Clone, Debug)]
pub struct Snapshot {
    store: Option<Arc<OrgStore>>,
    scope: Scope,
    /// Whether what retention hides is seen.
    too_old_too: bool,
    warnings: Warnings,
    /// Its number, for what is kept decoded.
    query: u32,
    /// Set where a lock was not free. None: locks are waited for.
    busy: Option<Arc<AtomicBool>>,
}

/// A series that a selection found.
#[derive(Clone, Debug)]
pub struct SelectedSeries {
    /// Hand this to [`Snapshot::read`].
    pub id: SeriesId,
    /// Its whole label set, metric name included.
    pub labels: Labels,
}

impl Snapshot {
    pub(super) fn new(store: Option<Arc<OrgStore>>, scope: Scope) -> Snapshot {
        let query = store.as_ref().map_or(0, |store| store.decoded.query());
        Snapshot { store, scope, too_old_too: false, warnings: Warnings::default(), query, busy: None }
    }

    /// A snapshot for a thread that must not wait. Where a lock that another query may hold is not free, a read is given
    /// up and finds nothing, and `busy` is set: what was read is then of no use.
    #[must_use]
    pub fn without_waiting(self, busy: Arc<AtomicBool>) -> Snapshot {
        Snapshot { busy: Some(busy), ..self }
    }

    /// Waits for locks from now on.
    pub fn wait_for_locks(&mut self) {
        self.busy = None;
    }

    /// Whether a read was given up because a lock was not free.
    pub fn is_given_up(&self) -> bool {
        self.busy.as_ref().is_some_and(|busy| busy.load(Ordering::Relaxed))
    }

    /// The table, locked: for a short stretch of work without matching.
    fn table<'s>(&self, store: &'s OrgStore) -> Result<RwLockReadGuard<'s, Table>, Stopped> {
        match &self.busy {
            None => Ok(store.table()),
            Some(busy) => store.try_table().ok_or_else(|| Snapshot::give_up(busy)),
        }
    }

    /// What senders said about metrics, locked: for a short stretch of work without matching.
    fn locked_metadata<'s>(&self, store: &'s OrgStore) -> Result<RwLockReadGuard<'s, Metadata>, Stopped> {
        match &self.busy {
            None => Ok(store.metadata()),
            Some(busy) => store.try_metadata().ok_or_else(|| Snapshot::give_up(busy)),
        }
    }

    /// The exemplars, locked: for a short stretch of work without matching.
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

    /// The number of a series' family; none also where the read is given up.
    fn family_of(&self, store: &OrgStore, series: u32) -> Option<u32> {
        self.table(store).ok()?.family_of(series)
    }

    /// Whether the scope admits a series. Its labels are compared after the table is released.
    fn may_read(&self, store: &OrgStore, id: SeriesId) -> bool {
        if self.scope.matchers.is_empty() && self.scope.names.is_empty() {
            return true;
        }
        let labels = self.table(store).ok().and_then(|table| table.labels(id.0));
        labels.is_some_and(|labels| self.admits(&labels))
    }

    /// One that sees what retention hides, too.
    pub(super) fn with_what_is_too_old(store: Arc<OrgStore>, scope: Scope) -> Snapshot {
        Snapshot { too_old_too: true, ..Snapshot::new(Some(store), scope) }
    }

    /// Every read of this snapshot warns of a damaged log.
    pub(super) fn with_log_warning(mut self, text: Option<Arc<str>>) -> Snapshot {
        self.warnings.of_the_log(text);
        self
    }

    /// Whether a scope may have hidden something: answers carry a warning then.
    pub fn is_scoped(&self) -> bool {
        !self.scope.is_whole()
    }

    /// Selections and listings that may have to be given up: everything whose cost depends on more than one series.
    pub fn paced<'s>(&'s self, pace: &'s Pace<'s>) -> Paced<'s> {
        Paced { snapshot: self, pace }
    }

    /// As [`Paced::select`], for work that no request waits for.
    pub fn select(&self, matchers: &[Matcher], range: TimeRange) -> Vec<SelectedSeries> {
        self.paced(&Pace::endless()).select(matchers, range).unwrap_or_default()
    }

    /// Replaces `out` with the samples of `id` inside `range` and the scope's time; ascending, each time once.
    ///
    /// A series outside the scope has none, whatever id is asked for.
    pub fn read(&self, id: SeriesId, range: TimeRange, out: &mut SampleColumns) {
        out.times.clear();
        out.values.clear();
        let Some(store) = &self.store else { return };
        if !self.may_read(store, id) {
            return;
        }
        let series = (self.family_of(store, id.0), id.0);
        merge::read_of(store, series, self.within(range), &self.warnings, &mut merge::Known::default(), out);
        if store.side.has_histograms() {
            let mut histograms = HistogramColumns::default();
            self.read_histograms(id, range, &mut histograms);
            side::yield_to_histograms(&histograms, out);
        }
    }

    /// As [`Snapshot::read`], with the native histograms too: at a time that has one, the series has no float. Those are
    /// read from `histograms_from` on, which may be before the range: what a histogram means depends on the one before.
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

    /// Reads one series after the other as [`Snapshot::read_both`] does, for less where they come in the order of their
    /// numbers: those that are written together share their times.
    pub fn reader(&self, range: TimeRange, histograms_from: Timestamp) -> Reader<'_> {
        Reader::new(self, range, histograms_from)
    }

    /// Whether any series of the organisation has native histograms.
    pub fn has_histograms(&self) -> bool {
        self.store.as_ref().is_some_and(|store| store.side.has_histograms())
    }

    /// What could not be read so far, through this snapshot and its clones, one sentence each.
    pub fn warnings(&self) -> Vec<String> {
        self.warnings.all()
    }

    /// What to remember beside an answer that is kept; see [`Snapshot::unchanged_before`]. None where there is nothing to
    /// remember, or just now something is changing.
    pub fn version(&self) -> Option<u64> {
        self.store.as_ref().and_then(|store| store.changes.version())
    }

    /// Everything before this time is as it was at `version`, but for what [`Snapshot::floor`] hides.
    pub fn unchanged_before(&self, version: u64) -> Timestamp {
        Timestamp::from_ms(self.store.as_ref().map_or(i64::MIN, |store| store.changes.least_since(version)))
    }

    /// No sample before this time is shown: of what the organisation keeps, and what the scope admits.
    pub fn floor(&self) -> Timestamp {
        self.within(TimeRange::ALL).start
    }

    fn admits(&self, labels: &Labels) -> bool {
        self.scope.matchers.iter().all(|matcher| matcher.admits(labels))
            && self.scope.admits_name(labels.metric_name())
    }

    /// As [`Snapshot::admits`], within a pace.
    fn admits_within(&self, labels: &Labels, pace: &Pace<'_>) -> Result<bool, Stopped> {
        for matcher in &self.scope.matchers {
            if !matcher.admits_within(labels, pace)? {
                return Ok(false);
            }
        }
        Ok(self.scope.admits_name(labels.metric_name()))
    }

    /// The range without what the scope's time hides, and what is older than the organisation keeps.
    fn within(&self, range: TimeRange) -> TimeRange {
        let kept = self.store.as_ref().filter(|_| !self.too_old_too);
        let kept = kept.map_or(i64::MIN, |store| store.kept_from_ms.load(Ordering::Relaxed));
        let start = range.start.max(Timestamp::from_ms(kept));
        TimeRange::new(self.scope.min_time.map_or(start, |min| start.max(min)), range.end)
    }
}
