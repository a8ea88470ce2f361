//! Selections and listings of a snapshot whose cost is charged to a pace.

use super::select::labels::with_labels;
use super::select::matching::{MatchedSeries, SeriesRow, locate_rows};
use super::select::sort;
use super::{SelectedSeries, Snapshot};
use crate::model::{Matcher, Pace, Stopped, TimeRange};
use crate::tsdb::store::OrgStore;
use crate::tsdb::store::table_guard::TableGuard;

/// A snapshot and the pace of one request.
#[derive(Clone, Copy, Debug)]
pub struct Paced<'s> {
    pub(super) snapshot: &'s Snapshot,
    pub(super) pace: &'s Pace<'s>,
}

impl Paced<'_> {
    /// Returns the series that pass every matcher and the scope and may have samples in `range`,
    /// sorted by labels. If the scope hides time, the result is as if the hidden samples had never
    /// existed.
    ///
    /// The cost is a scan of the columns that the matchers name, and about 3 ns for each label of
    /// each matched series that distinguishes any two of them.
    ///
    /// # Errors
    /// [`Stopped`] if the pace stops the request.
    pub fn select(&self, matchers: &[Matcher], range: TimeRange) -> Result<Vec<SelectedSeries>, Stopped> {
        self.snapshot.warnings.add_log_warning();
        let stored = match &self.snapshot.store {
            None => Vec::new(),
            Some(store) => {
                let found = self.find(store, &[matchers], range)?;
                let found = self.in_order(store, &found)?;
                self.with_labels(store, &found, &|_| true)?
            }
        };
        self.with_older(stored, matchers, range)
    }

    /// Returns the numbers of those series, in no particular order.
    ///
    /// # Errors
    /// [`Stopped`] if the pace stops the request.
    pub(in crate::tsdb) fn ids(&self, matchers: &[Matcher], range: TimeRange) -> Result<Vec<u32>, Stopped> {
        let Some(store) = &self.snapshot.store else { return Ok(Vec::new()) };
        let found = self.find(store, &[matchers], range)?;
        self.pace.hold_each(found.len(), size_of::<u32>())?;
        Ok(found.iter().map(|one| one.id).collect())
    }

    /// Locks the table; see [`Snapshot::table`].
    pub(super) fn table<'s>(&self, store: &'s OrgStore) -> Result<TableGuard<'s>, Stopped> {
        self.snapshot.table(store)
    }

    /// Sorts series by their labels. The table is locked during the sort.
    pub(super) fn in_order(
        &self,
        store: &OrgStore,
        found: &[MatchedSeries],
    ) -> Result<Vec<MatchedSeries>, Stopped> {
        self.pace.hold_each(found.len(), size_of::<MatchedSeries>())?;
        let table = self.table(store)?;
        let hits = locate_rows(&table, found, self.pace)?;
        let order = sort::by_labels(&table, &hits, self.pace)?;
        self.pace.release((hits.len() * (size_of::<SeriesRow<'_>>() + size_of::<u32>())) as u64);
        Ok(order.iter().filter_map(|place| found.get(*place as usize).copied()).collect())
    }

    /// Adds the labels for which `keep` returns true to series that are sorted by their labels. The
    /// table is locked again for each `LABELLED_AT_ONCE` series.
    pub(super) fn with_labels(
        &self,
        store: &OrgStore,
        found: &[MatchedSeries],
        keep: &dyn Fn(&str) -> bool,
    ) -> Result<Vec<SelectedSeries>, Stopped> {
        let mut all = Vec::with_capacity(found.len());
        for some in found.chunks(LABELLED_AT_ONCE) {
            let table = self.table(store)?;
            let hits = locate_rows(&table, some, self.pace)?;
            all.extend(with_labels(&table, &hits, keep, self.pace)?);
            self.pace.release((hits.len() * size_of::<SeriesRow<'_>>()) as u64);
        }
        Ok(all)
    }
}

/// Series whose labels are assembled under one lock: some milliseconds of work.
const LABELLED_AT_ONCE: usize = if cfg!(test) { 19 } else { 1 << 16 };

/// Selections and listings without a pace, for tests.
#[cfg(test)]
mod unpaced {
    use std::sync::Arc;

    use super::super::{Grouped, SelectedSeries, Snapshot};
    use crate::model::{Labels, Matcher, Pace, TimeRange};
    use crate::tsdb::report::{
        Cardinality, Description, LabelSummary, Listing, Metric, MetricFilter, SeriesExemplars,
    };

    const NEVER_STOPS: &str = "this pace never stops";

    impl Snapshot {
        pub(crate) fn label_names(
            &self,
            selectors: &[Vec<Matcher>],
            range: TimeRange,
            limit: usize,
        ) -> Listing<Arc<str>> {
            self.paced(&Pace::endless()).label_names(selectors, range, limit).expect(NEVER_STOPS)
        }

        pub(crate) fn label_values(
            &self,
            name: &str,
            selectors: &[Vec<Matcher>],
            range: TimeRange,
            limit: usize,
        ) -> Listing<Arc<str>> {
            self.paced(&Pace::endless()).label_values(name, selectors, range, limit).expect(NEVER_STOPS)
        }

        pub(crate) fn label_summaries(
            &self,
            selectors: &[Vec<Matcher>],
            range: TimeRange,
            values_max: usize,
        ) -> Vec<LabelSummary> {
            self.paced(&Pace::endless()).label_summaries(selectors, range, values_max).expect(NEVER_STOPS)
        }

        pub(crate) fn exists(&self, selectors: &[Vec<Matcher>], range: TimeRange) -> bool {
            self.paced(&Pace::endless()).exists(selectors, range).expect(NEVER_STOPS)
        }

        pub(crate) fn series(
            &self,
            selectors: &[Vec<Matcher>],
            range: TimeRange,
            limit: usize,
        ) -> Listing<Labels> {
            self.paced(&Pace::endless()).series(selectors, range, limit).expect(NEVER_STOPS)
        }

        pub(crate) fn metrics(
            &self,
            filter: &MetricFilter<'_>,
            range: TimeRange,
            limit: usize,
        ) -> Listing<Metric> {
            self.paced(&Pace::endless()).metrics(filter, range, limit).expect(NEVER_STOPS)
        }

        pub(crate) fn metadata(&self, metric: Option<&str>, limit: usize) -> Listing<Description> {
            self.paced(&Pace::endless()).metadata(metric, limit).expect(NEVER_STOPS)
        }

        pub(crate) fn cardinality(&self, limit: usize) -> Cardinality {
            self.paced(&Pace::endless()).cardinality(limit).expect(NEVER_STOPS)
        }

        pub(crate) fn exemplars(
            &self,
            selectors: &[&[Matcher]],
            range: TimeRange,
            limit: usize,
        ) -> Listing<SeriesExemplars> {
            self.paced(&Pace::endless()).exemplars(selectors, range, limit).expect(NEVER_STOPS)
        }

        pub(crate) fn select_grouped(
            &self,
            matchers: &[Matcher],
            range: TimeRange,
            is_group_label: &dyn Fn(&str) -> bool,
            is_dropped: &dyn Fn(&str) -> bool,
        ) -> Grouped {
            self.paced(&Pace::endless())
                .select_grouped(matchers, range, is_group_label, is_dropped)
                .expect(NEVER_STOPS)
        }

        pub(crate) fn select_without(
            &self,
            matchers: &[Matcher],
            range: TimeRange,
            is_dropped: &dyn Fn(&str) -> bool,
        ) -> Option<(Arc<str>, Vec<SelectedSeries>)> {
            self.paced(&Pace::endless()).select_without(matchers, range, is_dropped).expect(NEVER_STOPS)
        }
    }
}
