//! Cached evaluations of subqueries, stored in the [`RangeCache`].
//!
//! The key of an entry contains the text of the subquery's expression and the range of the
//! subquery. The text has the same meaning in every query, because expressions that read the range
//! or step of their query have no text (see
//! [`MatrixSource::Subquery`](crate::promql::plan::MatrixSource)).

use crate::model::Access;
use crate::promql::budget::Budget;
use crate::promql::eval::{CacheLookup, CachedSubquery, SubqueryCache, SubqueryTimes};
use crate::promql::plan::VectorNode;
use crate::promql::query::Options;
use crate::promql::value::MatrixSeries;
use crate::tsdb::Snapshot;

use super::reach::{Reach, vector_has_parts};
use super::{ENTRY_DIVISOR, RangeCache, RangeKey, RangeRequest, carries_types};

/// The cached subqueries that one caller may read.
#[derive(Debug)]
pub(super) struct CallerSubqueries<'c> {
    cache: &'c RangeCache,
    access: &'c Access,
}

/// The cache key and the steps of one evaluation of a subquery.
struct SubqueryRequest<'c> {
    cache: &'c RangeCache,
    key: RangeKey,
    request: RangeRequest,
}

impl<'c> CallerSubqueries<'c> {
    /// The view of `access`, for which the query's snapshot was taken.
    pub(super) fn of(cache: &'c RangeCache, access: &'c Access) -> CallerSubqueries<'c> {
        CallerSubqueries { cache, access }
    }
}

impl SubqueryCache for CallerSubqueries<'_> {
    fn subquery<'s>(
        &'s self,
        text: &str,
        expr: &VectorNode,
        times: SubqueryTimes,
        snapshot: &Snapshot,
        options: &Options,
    ) -> Option<Box<dyn CachedSubquery + 's>> {
        // With delayed removal of names, the rows still carry names that are to be removed.
        let version = snapshot.version().filter(|_| !options.delayed_name_removal)?;
        let SubqueryTimes { range_ms, first_ms, last_ms, step_ms } = times;
        let key = RangeKey {
            org: self.access.org,
            text: text.to_owned(),
            scope: self.access.scope.series_key(),
            options: format!("{options:?}"),
            step_ms,
            phase_ms: first_ms.rem_euclid(step_ms),
            subquery_range_ms: Some(range_ms),
        };
        let request = RangeRequest {
            first_ms,
            last_ms,
            step_ms,
            version,
            floor_ms: snapshot.floor().as_ms(),
            reach: Reach::of_vector(expr, options),
            has_parts: vector_has_parts(expr, options),
        };
        Some(Box::new(SubqueryRequest { cache: self.cache, key, request }))
    }
}

impl CachedSubquery for SubqueryRequest<'_> {
    fn look_up(&self, snapshot: &Snapshot, budget: &Budget<'_>) -> CacheLookup {
        match self.cache.look_up(&self.key, &self.request, snapshot) {
            CacheLookup::Prefix(..) if carries_types(snapshot, budget) => CacheLookup::Miss,
            found => found,
        }
    }

    fn admits(&self, rows: usize, steps: usize) -> bool {
        let bytes = (rows as u64).saturating_mul((steps as u64).saturating_mul(16));
        bytes <= self.cache.bytes_max / 2 / ENTRY_DIVISOR
    }

    fn store(self: Box<Self>, snapshot: &Snapshot, budget: &Budget<'_>, series: &[MatrixSeries]) {
        if !carries_types(snapshot, budget) {
            self.cache.store(self.key, &self.request, snapshot, series);
        }
    }

    fn count_hit(&self) {
        self.cache.subquery_outcomes.hit();
    }

    fn count_extended(&self) {
        self.cache.subquery_outcomes.extended();
    }

    fn count_miss(&self) {
        self.cache.subquery_outcomes.miss();
    }
}
