//! Cached evaluations of subqueries, stored in the [`RangeCache`].
//!
//! The key of an entry contains the text of the subquery's expression and the range of the
//! subquery. The text has the same meaning in every query, because expressions that read the range
//! or step of their query have no text (see
//! [`MatrixSource::Subquery`](crate::promql::plan::MatrixSource)).

use crate::model::Access;
use crate::promql::plan::VectorNode;
use crate::promql::{Budget, MatrixSeries, Options};
use crate::tsdb::Snapshot;

use super::reach::{Reach, vector_has_parts};
use super::{CacheLookup, ENTRY_DIVISOR, RangeCache, RangeKey, RangeRequest, carries_types};

/// The cached subqueries that one caller may read.
#[derive(Debug)]
pub(in crate::promql) struct SubqueryCache<'c> {
    cache: &'c RangeCache,
    access: &'c Access,
}

/// The times of an evaluation of a subquery, in milliseconds.
#[derive(Clone, Copy, Debug)]
pub(in crate::promql) struct SubqueryTimes {
    /// The range of the subquery.
    pub(in crate::promql) range_ms: i64,
    /// The first step, inclusive.
    pub(in crate::promql) first_ms: i64,
    /// The last step, inclusive.
    pub(in crate::promql) last_ms: i64,
    pub(in crate::promql) step_ms: i64,
}

/// The cache key and the steps of one evaluation of a subquery.
pub(in crate::promql) struct SubqueryRequest {
    key: RangeKey,
    request: RangeRequest,
}

impl<'c> SubqueryCache<'c> {
    /// The view of `access`, for which the query's snapshot was taken.
    pub(super) fn of(cache: &'c RangeCache, access: &'c Access) -> SubqueryCache<'c> {
        SubqueryCache { cache, access }
    }

    /// Returns the request for a subquery's expression, given with its text. Must be called before
    /// any sample is read. Returns `None` if the result must not be cached.
    pub(in crate::promql) fn request(
        &self,
        text: &str,
        expr: &VectorNode,
        times: SubqueryTimes,
        snapshot: &Snapshot,
        options: &Options,
    ) -> Option<SubqueryRequest> {
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
        Some(SubqueryRequest { key, request })
    }

    /// Returns the cached part of an evaluation.
    pub(in crate::promql) fn look_up(
        &self,
        request: &SubqueryRequest,
        snapshot: &Snapshot,
        budget: &Budget<'_>,
    ) -> CacheLookup {
        match self.cache.look_up(&request.key, &request.request, snapshot) {
            CacheLookup::Prefix(..) if carries_types(snapshot, budget) => CacheLookup::Miss,
            found => found,
        }
    }

    /// Returns whether the size limit of one entry admits `rows` rows of `steps` steps.
    pub(in crate::promql) fn admits(&self, rows: usize, steps: usize) -> bool {
        let bytes = (rows as u64).saturating_mul((steps as u64).saturating_mul(16));
        bytes <= self.cache.bytes_max / 2 / ENTRY_DIVISOR
    }

    /// Stores the result of an evaluation without annotations, sorted by labels.
    pub(in crate::promql) fn store(
        &self,
        request: SubqueryRequest,
        snapshot: &Snapshot,
        budget: &Budget<'_>,
        series: &[MatrixSeries],
    ) {
        if !carries_types(snapshot, budget) {
            self.cache.store(request.key, &request.request, snapshot, series);
        }
    }

    /// Counts an evaluation that was cached as a whole.
    pub(in crate::promql) fn hit(&self) {
        self.cache.subquery_outcomes.hit();
    }

    /// Counts an evaluation of which a part was cached.
    pub(in crate::promql) fn extended(&self) {
        self.cache.subquery_outcomes.extended();
    }

    /// Counts an evaluation that was computed as a whole.
    pub(in crate::promql) fn miss(&self) {
        self.cache.subquery_outcomes.miss();
    }
}
