//! Functions of windows: two moving places in each series' samples, one call of the kernel for each step.

use crate::model::{TimeRange, Timestamp, is_stale};
use crate::promql::QueryError;
use crate::promql::functions::{Vet, Window, WindowKernel};
use crate::promql::plan::{MatrixNode, MatrixSource, WindowNode};
use crate::tsdb::SampleColumns;

use super::Context;
use super::rows::{Duplicates, Grid, Head, Rows, Scalars, is_absent};

/// What is done with one series' samples: its head, times and values, no staleness markers.
type VisitSeries<'v> = dyn FnMut(&Head, &[i64], &[f64]) -> Result<(), QueryError> + 'v;

/// What is done with one window that has samples: its series, the step, and where the window lies.
type VisitWindow<'v> = dyn FnMut(&Head, usize, std::ops::Range<usize>) -> Result<(), QueryError> + 'v;

/// Long windows at many steps take long for one series too: the deadline is looked at after this many samples.
const SAMPLES_BETWEEN_CHECKS: usize = 65_536;

/// How the names of counters end.
const NAMES_OF_COUNTERS: [&str; 4] = ["_total", "_sum", "_count", "_bucket"];

impl Context<'_> {
    /// Calls `visit` for every series that may have samples in any step's window. Of each series the caller is going to
    /// keep `kept` values: room for them is made sure of before the first is read.
    pub(super) fn each_series(
        &self,
        node: &MatrixNode,
        grid: Grid,
        kept: usize,
        visit: &mut VisitSeries<'_>,
    ) -> Result<(), QueryError> {
        if grid.len == 0 {
            return Ok(());
        }
        let first = node.when.look(grid.start_ms).saturating_sub(node.range_ms);
        let last = node.when.look(grid.last());
        match &node.source {
            MatrixSource::Select(matchers) => {
                let range =
                    TimeRange::new(Timestamp::from_ms(first.saturating_add(1)), Timestamp::from_ms(last));
                let found = self.snapshot.select(matchers, range);
                self.meter.found_series(found.len())?;
                if kept > 0 {
                    self.meter.foresee(found.len(), kept, self.budget)?;
                }
                let mut columns = SampleColumns::default();
                for series in found {
                    self.budget.check()?;
                    self.snapshot.read(series.id, range, &mut columns);
                    self.meter.read_samples(columns.times.len());
                    drop_stale(&mut columns);
                    let mut held = self.meter.charge();
                    held.add_samples(columns.times.len())?;
                    let head = Head { labels: series.labels, drops_name: false };
                    visit(&head, &columns.times, &columns.values)?;
                }
            }
            MatrixSource::Subquery { expr, step_ms } => {
                let inner = subquery_grid(first, last, *step_ms);
                let rows = self.vector(expr, inner)?;
                let mut columns = SampleColumns::default();
                for (head, row) in rows.iter() {
                    self.budget.check()?;
                    columns.times.clear();
                    columns.values.clear();
                    for (i, value) in row.iter().enumerate().filter(|(_, value)| !is_absent(**value)) {
                        columns.times.push(inner.at(i));
                        columns.values.push(*value);
                    }
                    visit(head, &columns.times, &columns.values)?;
                }
            }
        }
        Ok(())
    }

    /// Calls `visit` for every step of every series whose window has samples.
    pub(super) fn each_window(
        &self,
        node: &MatrixNode,
        grid: Grid,
        visit: &mut VisitWindow<'_>,
    ) -> Result<(), QueryError> {
        self.each_series(node, grid, 0, &mut |head, times, _| {
            let mut places = Places::default();
            for step in 0..grid.len {
                let end = node.when.look(grid.at(step));
                let inside = places.advance(times, end.saturating_sub(node.range_ms), end);
                if !inside.is_empty() {
                    visit(head, step, inside)?;
                }
            }
            Ok(())
        })
    }

    /// A function of windows.
    pub(super) fn window(&self, node: &WindowNode, grid: Grid) -> Result<Rows, QueryError> {
        let params = self.params(&node.params, grid)?;
        let mut rows = Rows::new(&self.meter, grid.len);
        let kernel = &node.kernel;
        self.each_series(&node.arg, grid, grid.len, &mut |head, times, values| {
            let drops_name = head.drops_name;
            let row = rows.push_paid(Head { labels: head.labels.clone(), drops_name })?;
            self.fill_row(node, grid, (times, values), &params, row)?;
            let before = rows.len();
            rows.settle_last()?;
            if kernel.counts && rows.len() == before {
                self.doubt_counter(node, head.labels.metric_name());
            }
            Ok(())
        })?;
        if kernel.keeps_name {
            return Ok(rows);
        }
        rows.without_names(self.options.delayed_name_removal, Duplicates::Refuse)
    }

    fn fill_row(
        &self,
        node: &WindowNode,
        grid: Grid,
        (times, values): (&[i64], &[f64]),
        params: &[Scalars],
        row: &mut [f64],
    ) -> Result<(), QueryError> {
        let WindowKernel { run, vet, needs_resets, .. } = node.kernel;
        let resets = if needs_resets { drops(values) } else { Vec::new() };
        let mut places = Places::default();
        let mut reset_places = Places::default();
        let mut at_step = vec![0.0; params.len()];
        let mut looked_at = 0;
        for (step, out) in row.iter_mut().enumerate() {
            let at_ms = grid.at(step);
            let end_ms = node.arg.when.look(at_ms);
            let start_ms = end_ms.saturating_sub(node.arg.range_ms);
            let inside = places.advance(times, start_ms, end_ms);
            if inside.is_empty() {
                continue;
            }
            looked_at += inside.len();
            if looked_at > SAMPLES_BETWEEN_CHECKS {
                looked_at = 0;
                self.budget.check()?;
            }
            for (value, scalars) in at_step.iter_mut().zip(params) {
                *value = scalars.values[step];
            }
            if let Some(vet) = vet {
                match vet(&at_step) {
                    Vet::Fine => {}
                    Vet::Warn(text) => self.notes.borrow_mut().warn(node.param_span, text),
                    Vet::Refuse(text) => return Err(QueryError::execution(text)),
                }
            }
            // A drop belongs to the window when the sample before it does too.
            let resets_inside = reset_places.between(&resets, inside.start + 1, inside.end);
            let window = Window {
                times: &times[inside.clone()],
                values: &values[inside.clone()],
                start_ms,
                end_ms,
                at_ms,
                params: &at_step,
                resets: &resets[resets_inside],
                first: inside.start,
            };
            if let Some(value) = run(&window) {
                *out = value;
            }
        }
        Ok(())
    }

    /// Says so where a function for counters is used on what is not named like one.
    fn doubt_counter(&self, node: &WindowNode, name: &str) {
        if !name.is_empty() && !NAMES_OF_COUNTERS.iter().any(|end| name.ends_with(end)) {
            let text = format!(
                "metric might not be a counter, name does not end in _total/_sum/_count/_bucket: {name:?}"
            );
            self.notes.borrow_mut().info(node.arg_span, text);
        }
    }
}

/// Two places in ascending numbers that only move forward.
#[derive(Default)]
struct Places {
    from: usize,
    to: usize,
}

impl Places {
    /// The places of times in `(after, until]`.
    fn advance(&mut self, times: &[i64], after: i64, until: i64) -> std::ops::Range<usize> {
        while times.get(self.from).is_some_and(|at| *at <= after) {
            self.from += 1;
        }
        self.to = self.to.max(self.from);
        while times.get(self.to).is_some_and(|at| *at <= until) {
            self.to += 1;
        }
        self.from..self.to
    }

    /// The places of numbers in `[least, below)`.
    fn between(&mut self, numbers: &[usize], least: usize, below: usize) -> std::ops::Range<usize> {
        while numbers.get(self.from).is_some_and(|number| *number < least) {
            self.from += 1;
        }
        self.to = self.to.max(self.from);
        while numbers.get(self.to).is_some_and(|number| *number < below) {
            self.to += 1;
        }
        self.from..self.to
    }
}

/// Where values are lower than the one before. A comparison with NaN is no drop.
fn drops(values: &[f64]) -> Vec<usize> {
    let pairs = values.windows(2).enumerate();
    pairs.filter(|(_, pair)| pair[1] < pair[0]).map(|(i, _)| i + 1).collect()
}

fn drop_stale(columns: &mut SampleColumns) {
    if !columns.values.iter().any(|value| is_stale(*value)) {
        return;
    }
    let mut kept = 0;
    for i in 0..columns.values.len() {
        if !is_stale(columns.values[i]) {
            columns.values[kept] = columns.values[i];
            columns.times[kept] = columns.times[i];
            kept += 1;
        }
    }
    columns.values.truncate(kept);
    columns.times.truncate(kept);
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
