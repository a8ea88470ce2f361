//! Instant selectors: for each step the newest sample within the lookback, or a value on the line around the step.

use crate::model::{Labels, TimeRange, Timestamp, is_stale};
use crate::promql::QueryError;
use crate::promql::functions::extended::interpolate;
use crate::promql::functions::seconds;
use crate::promql::plan::{Selector, SelectorOutput};

use super::Context;
use super::native::{Readings, Samples};
use super::parallel_rows::{LOOK_NS, ReadPlan, RowsOrSeries, fill_row};
use super::rows::{Grid, Head, Rows};
use super::starts::Starts;

impl Context<'_> {
    /// One row for each series that has a sample for any step.
    pub(super) fn select(&self, selector: &Selector, grid: Grid) -> Result<Rows, QueryError> {
        let rows = self.select_where(selector, grid, &|_| true)?;
        match selector.look {
            SelectorOutput::Value | SelectorOutput::Smoothed => Ok(rows),
            SelectorOutput::Time | SelectorOutput::Start => self.unnamed(rows),
        }
    }

    /// All times that a selector may look at.
    pub(super) fn selected_range(&self, selector: &Selector, grid: Grid) -> TimeRange {
        let lookback = self.options.lookback_ms;
        let first = selector.when.look(grid.start_ms);
        let last = selector.when.look(grid.last());
        // Left-open: the sample that is exactly one lookback old is too old.
        let oldest = first.saturating_sub(lookback).saturating_add(1);
        let newest =
            if selector.look == SelectorOutput::Smoothed { last.saturating_add(lookback) } else { last };
        TimeRange::new(Timestamp::from_ms(oldest), Timestamp::from_ms(newest))
    }

    /// The same for series that `admit` lets in, names left on.
    pub(super) fn select_where(
        &self,
        selector: &Selector,
        grid: Grid,
        admit: &dyn Fn(&Labels) -> bool,
    ) -> Result<Rows, QueryError> {
        let lookback = self.options.lookback_ms;
        let range = self.selected_range(selector, grid);
        let mut found = self.selected(&selector.matchers, range)?;
        found.retain(|series| admit(&series.labels));
        if matches!(selector.look, SelectorOutput::Value | SelectorOutput::Time) {
            let when = selector.when;
            let edges = move |at_ms: i64| (when.look(at_ms).saturating_sub(lookback), when.look(at_ms));
            let fill = if selector.look == SelectorOutput::Time {
                // A marker hides everything before it, and is no value.
                let told = |at: i64, value: f64| if is_stale(value) { value } else { seconds(at) };
                fill_row(move |scratch, floats, row, _| {
                    scratch.newest(grid, floats, edges, told, row);
                    Ok(())
                })
            } else {
                fill_row(move |scratch, floats, row, _| {
                    scratch.newest(grid, floats, edges, |_, value| value, row);
                    Ok(())
                })
            };
            let plan = ReadPlan { range, windows: false, step_ns: LOOK_NS };
            match self.compute_rows(found, plan, grid.len, fill)? {
                RowsOrSeries::Rows(rows) => return Ok(rows),
                RowsOrSeries::Native(series) => found = series,
            }
        } else {
            self.meter.found_series(found.len())?;
            self.meter.reserve_rows(found.len(), grid.len, self.budget)?;
        }
        let mut rows = Rows::with_room(&self.meter, found.len(), grid.len)?;
        let mut readings = Readings::default();
        for series in found {
            self.budget.check()?;
            self.read(series.id, range, selector.counts_only, &mut readings);
            let head = Head { labels: series.labels, drops_name: false };
            let row = rows.push_absent(head);
            let samples = readings.samples(Some(series.id));
            if readings.has_histograms() {
                self.select_native(selector, grid, series.id, &readings, &mut rows)?;
            } else if selector.look == SelectorOutput::Smoothed {
                self.smooth(selector, grid, &samples, row);
            } else {
                self.newest(selector, grid, &samples, row);
            }
            rows.settle_last()?;
        }
        Ok(rows)
    }

    fn newest(&self, selector: &Selector, grid: Grid, series: &Samples<'_>, row: &mut [f64]) {
        // Where start timestamps are not looked at, nothing has one.
        if selector.look == SelectorOutput::Start && !self.options.use_start_timestamps {
            return;
        }
        let starts = if selector.look == SelectorOutput::Start {
            self.starts_of(series.id, series.times)
        } else {
            Starts::default()
        };
        let lookback = self.options.lookback_ms;
        let mut next = 0;
        for (step, out) in row.iter_mut().enumerate() {
            let look = selector.when.look(grid.at(step));
            next += series.times[next..].iter().take_while(|at| **at <= look).count();
            let Some(newest) = next.checked_sub(1) else { continue };
            let (at, value) = (series.times[newest], series.values[newest]);
            // A marker hides everything before it.
            if at > look.saturating_sub(lookback) && !is_stale(value) {
                *out = match selector.look {
                    SelectorOutput::Time => seconds(at),
                    SelectorOutput::Start => seconds(starts.of.get(newest).copied().unwrap_or(0)),
                    SelectorOutput::Value | SelectorOutput::Smoothed => value,
                };
            }
        }
    }

    /// Markers hide nothing here, as upstream has it.
    fn smooth(&self, selector: &Selector, grid: Grid, series: &Samples<'_>, row: &mut [f64]) {
        let lookback = self.options.lookback_ms;
        let samples = series.times.iter().copied().zip(series.values.iter().copied());
        let samples: Vec<(i64, f64)> = samples.filter(|(_, value)| !is_stale(*value)).collect();
        let mut next = 0;
        for (step, out) in row.iter_mut().enumerate() {
            let look = selector.when.look(grid.at(step));
            next += samples[next..].iter().take_while(|(at, _)| *at < look).count();
            let before = next.checked_sub(1).map(|i| samples[i]);
            let before = before.filter(|(at, _)| *at > look.saturating_sub(lookback));
            let after = samples.get(next).filter(|(at, _)| *at <= look.saturating_add(lookback));
            match (before, after) {
                (_, Some((at, value))) if *at == look => *out = *value,
                (Some(before), Some(after)) => *out = interpolate(before, *after, look, false),
                (Some((_, value)), None) => *out = value,
                (None, _) => {}
            }
        }
    }
}
