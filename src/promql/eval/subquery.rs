//! What a subquery is of, evaluated at the subquery's steps: anew, or from what was kept for an earlier question.
//!
//! Its steps are multiples of their length, whoever asks and when, so that two questions at different moments want the same
//! ones. Rows come in the order of their labels: that of an aggregation's groups would depend on which steps are evaluated
//! together.

use std::sync::Arc;

use crate::model::Timestamp;
use crate::promql::MatrixSeries;
use crate::promql::QueryError;
use crate::promql::cache::{self, CacheLookup, SubqueryCache, SubqueryRequest, SubqueryTimes};
use crate::promql::plan::{MatrixNode, MatrixSource, VectorNode};

use super::rows::{Grid, Head, Rows};
use super::{Context, matrix, matrix_bytes};

impl Context<'_> {
    /// The rows of what a subquery is of, and the steps that they were evaluated at; none of a selector.
    pub(super) fn subquery(&self, node: &MatrixNode, grid: Grid) -> Result<Option<(Rows, Grid)>, QueryError> {
        let MatrixSource::Subquery { expr, step_ms, text, selectors } = &node.source else { return Ok(None) };
        let (first, last) = self.window_span(node, grid);
        let steps = subquery_grid(first, last, *step_ms);
        let kept = self.subqueries.zip(text.as_deref()).filter(|_| steps.len > 0);
        let asked = kept.and_then(|(subqueries, text)| {
            let times = SubqueryTimes {
                range_ms: node.range_ms,
                first_ms: steps.start_ms,
                last_ms: steps.last(),
                step_ms: steps.step_ms,
            };
            let asked = subqueries.request(text, expr, times, self.snapshot, self.options);
            Some((subqueries, asked?))
        });
        let rows = match asked {
            Some((subqueries, asked)) => self.kept_or_new((expr, *selectors), steps, subqueries, asked)?,
            None => self.vector(expr, steps)?.by_labels()?,
        };
        Ok(Some((rows, steps)))
    }

    fn kept_or_new(
        &self,
        (expr, selectors): (&VectorNode, usize),
        steps: Grid,
        subqueries: &SubqueryCache<'_>,
        asked: SubqueryRequest,
    ) -> Result<Rows, QueryError> {
        match subqueries.look_up(&asked, self.snapshot, self.budget) {
            CacheLookup::Hit(series) => {
                self.budget.check()?;
                // Where there is no room for it the evaluation says so in its own words.
                if let Ok(rows) = self.rows_of(&series, steps) {
                    subqueries.hit();
                    self.meter.skip_selectors(selectors);
                    return Ok(rows);
                }
            }
            CacheLookup::Prefix(series, until_ms) => {
                if let Some((all, rows)) = self.extended(expr, steps, &series, until_ms) {
                    subqueries.extended();
                    subqueries.store(asked, self.snapshot, self.budget, &all);
                    return Ok(rows);
                }
            }
            CacheLookup::Miss => {}
        }
        subqueries.miss();
        let told = self.notes.borrow().recorded();
        let rows = self.vector(expr, steps)?.by_labels()?;
        if self.is_silent_since(told)
            && subqueries.admits(rows.len(), steps.len)
            && self.meter.has_memory(matrix_bytes(&rows)).is_ok()
        {
            subqueries.store(asked, self.snapshot, self.budget, &matrix(steps, &rows));
        }
        Ok(rows)
    }

    /// What is kept up to a step, and the steps after it computed; none where that has no answer, or one with a remark:
    /// both may be about all steps.
    fn extended(
        &self,
        expr: &VectorNode,
        steps: Grid,
        series: &[MatrixSeries],
        until_ms: i64,
    ) -> Option<(Vec<MatrixSeries>, Rows)> {
        let there = usize::try_from(until_ms.saturating_sub(steps.start_ms) / steps.step_ms).ok()? + 1;
        let later = Grid { start_ms: steps.at(there), len: steps.len.checked_sub(there)?, ..steps };
        let (notes, told) = (self.notes.borrow().clone(), self.notes.borrow().recorded());
        let newer = self.vector(expr, later).and_then(|rows| {
            self.meter.has_memory(matrix_bytes(&rows))?;
            Ok(matrix(later, &rows))
        });
        let Some(newer) = newer.ok().filter(|_| self.is_silent_since(told)) else {
            self.notes.replace(notes);
            return None;
        };
        let all = cache::join(cache::cut(series, steps.start_ms, until_ms), newer);
        let rows = self.rows_of(&all, steps).ok()?;
        Some((all, rows))
    }

    /// Whether nothing was to be said since, about an expression or a file.
    fn is_silent_since(&self, told: u64) -> bool {
        self.notes.borrow().recorded() == told && self.snapshot.warnings().is_empty()
    }

    /// Series as rows of these steps; what lies outside of them is left out.
    fn rows_of(&self, series: &[MatrixSeries], steps: Grid) -> Result<Rows, QueryError> {
        let mut rows = Rows::with_room(&self.meter, series.len(), steps.len)?;
        let (first, last) = (Timestamp::from_ms(steps.start_ms), Timestamp::from_ms(steps.last()));
        let place = |at_ms: i64| {
            let ahead = usize::try_from(at_ms.checked_sub(steps.start_ms)? / steps.step_ms).ok()?;
            (at_ms >= steps.start_ms && ahead < steps.len).then_some(ahead)
        };
        for one in series {
            let row = rows.push_absent(Head { labels: one.labels.clone(), drops_name: false });
            let from = one.samples.partition_point(|sample| sample.at < first);
            let to = one.samples.partition_point(|sample| sample.at <= last);
            let inside = one.samples.get(from..to).unwrap_or_default();
            if inside.len() == row.len() {
                row.iter_mut().zip(inside).for_each(|(value, sample)| *value = sample.value);
            } else {
                for sample in inside {
                    if let Some(step) = place(sample.at.as_ms()) {
                        row[step] = sample.value;
                    }
                }
            }
            let number = rows.len() - 1;
            for point in &one.histograms {
                if let Some(step) = place(point.at.as_ms()) {
                    rows.pay_for(point.value.bytes())?;
                    rows.put_histogram(number, step, Arc::clone(&point.value))?;
                }
            }
            rows.settle_last()?;
        }
        Ok(rows)
    }
}

/// The absolute multiples of the step in `(after, until]`.
fn subquery_grid(after: i64, until: i64, step_ms: i64) -> Grid {
    let step_ms = step_ms.max(1);
    // Division rounds towards zero: before 1970 that is already beyond the bound.
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
    fn a_subquery_lies_on_absolute_multiples_of_its_step() {
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
