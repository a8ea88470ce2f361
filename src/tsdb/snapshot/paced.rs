//! A snapshot whose selections and listings ask a pace.

use std::sync::RwLockReadGuard;

use super::find::{FoundSeries, Hit, located};
use super::labelled::labelled;
use super::{SelectedSeries, Snapshot, order};
use crate::model::{Matcher, Pace, Stopped, TimeRange};
use crate::tsdb::series::table::Table;
use crate::tsdb::store::OrgStore;

/// A snapshot, and the pace of one request.
#[derive(Clone, Copy, Debug)]
pub struct Paced<'s> {
    pub(super) snapshot: &'s Snapshot,
    pub(super) pace: &'s Pace<'s>,
}

impl Paced<'_> {
    /// The series that pass every matcher and the scope, and may have samples in `range`; sorted by labels. With a scope
    /// that hides time those that would be found if what it hides had never been there.
    ///
    /// Costs a scan of the columns that the matchers name, and some 3 ns for each label of each series found that tells any
    /// two apart.
    ///
    /// # Errors
    /// [`Stopped`].
    pub fn select(&self, matchers: &[Matcher], range: TimeRange) -> Result<Vec<SelectedSeries>, Stopped> {
        self.snapshot.warnings.looked();
        let Some(store) = &self.snapshot.store else { return Ok(Vec::new()) };
        let found = self.find(store, &[matchers], range)?;
        let found = self.in_order(store, &found)?;
        self.labelled(store, &found, &|_| true)
    }

    /// The numbers of those series, in no order.
    ///
    /// # Errors
    /// [`Stopped`].
    pub(in crate::tsdb) fn ids(&self, matchers: &[Matcher], range: TimeRange) -> Result<Vec<u32>, Stopped> {
        let Some(store) = &self.snapshot.store else { return Ok(Vec::new()) };
        let found = self.find(store, &[matchers], range)?;
        self.pace.hold_each(found.len(), size_of::<u32>())?;
        Ok(found.iter().map(|one| one.id).collect())
    }

    /// The locked table; see [`Snapshot::table`].
    pub(super) fn table<'s>(&self, store: &'s OrgStore) -> Result<RwLockReadGuard<'s, Table>, Stopped> {
        self.snapshot.table(store)
    }

    /// Series in the order of their labels. The table is locked while they are sorted.
    pub(super) fn in_order(
        &self,
        store: &OrgStore,
        found: &[FoundSeries],
    ) -> Result<Vec<FoundSeries>, Stopped> {
        self.pace.hold_each(found.len(), size_of::<FoundSeries>())?;
        let table = self.table(store)?;
        let hits = located(&table, found, self.pace)?;
        let order = order::by_labels(&table, &hits, self.pace)?;
        self.pace.release((hits.len() * (size_of::<Hit<'_>>() + size_of::<u32>())) as u64);
        Ok(order.iter().filter_map(|place| found.get(*place as usize).copied()).collect())
    }

    /// Series, which are in the order of their labels, with those labels that are to be kept. The table is locked for
    /// some of them after others.
    pub(super) fn labelled(
        &self,
        store: &OrgStore,
        found: &[FoundSeries],
        keep: &dyn Fn(&str) -> bool,
    ) -> Result<Vec<SelectedSeries>, Stopped> {
        let mut all = Vec::with_capacity(found.len());
        for some in found.chunks(LABELLED_AT_ONCE) {
            let table = self.table(store)?;
            let hits = located(&table, some, self.pace)?;
            all.extend(labelled(&table, &hits, keep, self.pace)?);
            self.pace.release((hits.len() * size_of::<Hit<'_>>()) as u64);
        }
        Ok(all)
    }
}

/// Series whose labels are put together under one lock: some milliseconds of work.
const LABELLED_AT_ONCE: usize = if cfg!(test) { 19 } else { 1 << 16 };

/// Listings for tests, which no request waits for.
#[cfg(test)]
mod unpaced {
    use std::sync::Arc;

    use super::super::{Grouped, SelectedSeries, Snapshot};
    use crate::model::{Labels, Matcher, Pace, TimeRange};
    use crate::tsdb::report::{
        Cardinality, Description, LabelSummary, Listing, Metric, MetricFilter, SeriesExemplars,
    };

    const GOES_ON: &str = "this pace never stops";

    impl Snapshot {
        pub(crate) fn label_names(
            &self,
            selectors: &[Vec<Matcher>],
            range: TimeRange,
            limit: usize,
        ) -> Listing<Arc<str>> {
            self.paced(&Pace::endless()).label_names(selectors, range, limit).expect(GOES_ON)
        }

        pub(crate) fn label_values(
            &self,
            name: &str,
            selectors: &[Vec<Matcher>],
            range: TimeRange,
            limit: usize,
        ) -> Listing<Arc<str>> {
            self.paced(&Pace::endless()).label_values(name, selectors, range, limit).expect(GOES_ON)
        }

        pub(crate) fn label_summaries(
            &self,
            selectors: &[Vec<Matcher>],
            range: TimeRange,
            values_max: usize,
        ) -> Vec<LabelSummary> {
            self.paced(&Pace::endless()).label_summaries(selectors, range, values_max).expect(GOES_ON)
        }

        pub(crate) fn exists(&self, selectors: &[Vec<Matcher>], range: TimeRange) -> bool {
            self.paced(&Pace::endless()).exists(selectors, range).expect(GOES_ON)
        }

        pub(crate) fn series(
            &self,
            selectors: &[Vec<Matcher>],
            range: TimeRange,
            limit: usize,
        ) -> Listing<Labels> {
            self.paced(&Pace::endless()).series(selectors, range, limit).expect(GOES_ON)
        }

        pub(crate) fn metrics(
            &self,
            filter: &MetricFilter<'_>,
            range: TimeRange,
            limit: usize,
        ) -> Listing<Metric> {
            self.paced(&Pace::endless()).metrics(filter, range, limit).expect(GOES_ON)
        }

        pub(crate) fn metadata(&self, metric: Option<&str>, limit: usize) -> Listing<Description> {
            self.paced(&Pace::endless()).metadata(metric, limit).expect(GOES_ON)
        }

        pub(crate) fn cardinality(&self, limit: usize) -> Cardinality {
            self.paced(&Pace::endless()).cardinality(limit).expect(GOES_ON)
        }

        pub(crate) fn exemplars(
            &self,
            selectors: &[&[Matcher]],
            range: TimeRange,
            limit: usize,
        ) -> Listing<SeriesExemplars> {
            self.paced(&Pace::endless()).exemplars(selectors, range, limit).expect(GOES_ON)
        }

        pub(crate) fn select_grouped(
            &self,
            matchers: &[Matcher],
            range: TimeRange,
            tells_apart: &dyn Fn(&str) -> bool,
            goes: &dyn Fn(&str) -> bool,
        ) -> Grouped {
            self.paced(&Pace::endless()).select_grouped(matchers, range, tells_apart, goes).expect(GOES_ON)
        }

        pub(crate) fn select_without(
            &self,
            matchers: &[Matcher],
            range: TimeRange,
            goes: &dyn Fn(&str) -> bool,
        ) -> Option<(Arc<str>, Vec<SelectedSeries>)> {
            self.paced(&Pace::endless()).select_without(matchers, range, goes).expect(GOES_ON)
        }
    }
}
