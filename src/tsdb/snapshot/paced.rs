//! A snapshot whose selections and listings ask a pace.

use super::{SelectedSeries, Snapshot, labelled, order};
use crate::model::{Matcher, Pace, Stopped, TimeRange};

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
        let table = store.table();
        let hits = self.find(store, &table, &[matchers], range)?;
        let hits = order::by_labels(&table, &hits, self.pace)?;
        labelled::labelled(&table, &hits, &|_| true, self.pace)
    }

    /// The numbers of those series, in no order.
    ///
    /// # Errors
    /// [`Stopped`].
    pub(in crate::tsdb) fn ids(&self, matchers: &[Matcher], range: TimeRange) -> Result<Vec<u32>, Stopped> {
        let Some(store) = &self.snapshot.store else { return Ok(Vec::new()) };
        let table = store.table();
        let hits = self.find(store, &table, &[matchers], range)?;
        self.pace.hold_each(hits.len(), size_of::<u32>())?;
        Ok(hits.iter().map(|hit| hit.id).collect())
    }
}

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
