//! Subqueries: their expression is evaluated at the steps of the subquery, or taken from the cache.
//!
//! The steps are absolute multiples of the step length, so two queries at different moments need
//! the same steps. Rows are in the order of their labels: the order of an aggregation's groups
//! would depend on which steps are evaluated together.

use std::sync::Arc;

use crate::model::Timestamp;
use crate::promql::error::QueryError;
use crate::promql::plan::{MatrixNode, MatrixSource, VectorNode};
use crate::promql::value::{MatrixSeries, cut_series, join_series};

use super::hooks::{CacheLookup, CachedSubquery, SubqueryTimes};
use super::rows::{Grid, LabelledRows, RowHead};
use super::{Context, matrix, matrix_bytes};

impl Context<'_> {
    /// Returns the rows of the expression of a subquery, and the steps at which they were
    /// evaluated. Returns `None` for a selector.
    pub(super) fn subquery(
        &self,
        node: &MatrixNode,
        grid: Grid,
    ) -> Result<Option<(LabelledRows, Grid)>, QueryError> {
        let MatrixSource::Subquery { expr, step_ms, text, selectors } = &node.source else { return Ok(None) };
        let (first, last) = self.window_span(node, grid);
        let steps = subquery_grid(first, last, *step_ms);
        let cache = self.hooks.subqueries.zip(text.as_deref()).filter(|_| steps.len > 0);
        let cached = cache.and_then(|(subqueries, text)| {
            let times = SubqueryTimes {
                range_ms: node.range_ms,
                first_ms: steps.start_ms,
                last_ms: steps.last(),
                step_ms: steps.step_ms,
            };
            subqueries.subquery(text, expr, times, self.snapshot, self.options)
        });
        let rows = match cached {
            Some(cached) => self.cached_or_computed(expr, *selectors, steps, cached)?,
            None => self.vector(expr, steps)?.sorted_by_labels()?,
        };
        Ok(Some((rows, steps)))
    }

    fn cached_or_computed(
        &self,
        expr: &VectorNode,
        selectors: usize,
        steps: Grid,
        cached: Box<dyn CachedSubquery + '_>,
    ) -> Result<LabelledRows, QueryError> {
        match cached.look_up(self.snapshot, self.budget) {
            CacheLookup::Hit(series) => {
                self.budget.check()?;
                // If there is no memory for them, the evaluation below reports the error.
                if let Ok(rows) = self.rows_of(&series, steps) {
                    cached.count_hit();
                    self.meter.skip_selectors(selectors);
                    return Ok(rows);
                }
            }
            CacheLookup::Prefix(series, until_ms) => {
                if let Some((all, rows)) = self.extend_cached(expr, steps, &series, until_ms) {
                    cached.count_extended();
                    cached.store(self.snapshot, self.budget, &all);
                    return Ok(rows);
                }
            }
            CacheLookup::Miss => {}
        }
        cached.count_miss();
        let count = self.notes.borrow().recorded();
        let rows = self.vector(expr, steps)?.sorted_by_labels()?;
        if self.is_silent_since(count)
            && cached.admits(rows.len(), steps.len)
            && self.meter.has_memory(matrix_bytes(&rows)).is_ok()
        {
            cached.store(self.snapshot, self.budget, &matrix(steps, &rows));
        }
        Ok(rows)
    }

    /// Extends cached series by evaluating the steps after `until_ms`. Returns `None` if that
    /// evaluation fails or adds an annotation, because either may concern all steps.
    fn extend_cached(
        &self,
        expr: &VectorNode,
        steps: Grid,
        series: &[MatrixSeries],
        until_ms: i64,
    ) -> Option<(Vec<MatrixSeries>, LabelledRows)> {
        let cached_steps = usize::try_from(until_ms.saturating_sub(steps.start_ms) / steps.step_ms).ok()? + 1;
        let later =
            Grid { start_ms: steps.at(cached_steps), len: steps.len.checked_sub(cached_steps)?, ..steps };
        let (notes, count) = (self.notes.borrow().clone(), self.notes.borrow().recorded());
        let newer = self.vector(expr, later).and_then(|rows| {
            self.meter.has_memory(matrix_bytes(&rows))?;
            Ok(matrix(later, &rows))
        });
        let Some(newer) = newer.ok().filter(|_| self.is_silent_since(count)) else {
            self.notes.replace(notes);
            return None;
        };
        let all = join_series(cut_series(series, steps.start_ms, until_ms), newer);
        let rows = self.rows_of(&all, steps).ok()?;
        Some((all, rows))
    }

    /// Returns whether no annotation and no warning of the snapshot was added since `count`.
    fn is_silent_since(&self, count: u64) -> bool {
        self.notes.borrow().recorded() == count && self.snapshot.warnings().is_empty()
    }

    /// Converts series to rows of these steps. Samples at other times are omitted.
    fn rows_of(&self, series: &[MatrixSeries], steps: Grid) -> Result<LabelledRows, QueryError> {
        let mut rows = LabelledRows::with_capacity(&self.meter, series.len(), steps.len)?;
        let (first, last) = (Timestamp::from_ms(steps.start_ms), Timestamp::from_ms(steps.last()));
        let step_of = |at_ms: i64| {
            let ahead = usize::try_from(at_ms.checked_sub(steps.start_ms)? / steps.step_ms).ok()?;
            (at_ms >= steps.start_ms && ahead < steps.len).then_some(ahead)
        };
        for one in series {
            let row = rows.push_absent(RowHead { labels: one.labels.clone(), drops_name: false });
            let from = one.samples.partition_point(|sample| sample.at < first);
            let to = one.samples.partition_point(|sample| sample.at <= last);
            let inside = one.samples.get(from..to).unwrap_or_default();
            if inside.len() == row.len() {
                row.iter_mut().zip(inside).for_each(|(value, sample)| *value = sample.value);
            } else {
                for sample in inside {
                    if let Some(step) = step_of(sample.at.as_ms()) {
                        row[step] = sample.value;
                    }
                }
            }
            let number = rows.len() - 1;
            for point in &one.histograms {
                if let Some(step) = step_of(point.at.as_ms()) {
                    rows.charge_shared(point.value.bytes())?;
                    rows.put_histogram(number, step, Arc::clone(&point.value))?;
                }
            }
            rows.finish_last()?;
        }
        Ok(rows)
    }
}

/// Returns the absolute multiples of the step in `(after, until]`.
pub(super) fn subquery_grid(after: i64, until: i64, step_ms: i64) -> Grid {
    let step_ms = step_ms.max(1);
    // Division rounds towards zero, so a negative quotient may already be beyond `after`.
    let mut start_ms = (after / step_ms).saturating_mul(step_ms);
    if start_ms <= after {
        start_ms = start_ms.saturating_add(step_ms);
    }
    let len = if start_ms > until { 0 } else { (until.saturating_sub(start_ms) / step_ms).saturating_add(1) };
    Grid { start_ms, step_ms, len: usize::try_from(len).unwrap_or(usize::MAX) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn subquery_steps_are_absolute_multiples_of_the_step_length() {
        let cases = [
            ((0, 100, 30), (30, 3)),
            ((-1, 100, 30), (0, 4)),
            ((29, 30, 30), (30, 1)),
            ((30, 31, 30), (60, 0)),
        ];
        for ((after, until, step), (start, len)) in cases {
            let grid = subquery_grid(after, until, step);
            assert_eq!((grid.start_ms, grid.len), (start, len), "({after}, {until}] by {step}");
        }
        assert_eq!(subquery_grid(-95, -31, 30), Grid { start_ms: -90, step_ms: 30, len: 2 }, "before 1970");
    }
}
