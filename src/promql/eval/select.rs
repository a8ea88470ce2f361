//! Instant selectors: at each step the newest sample within the lookback, or a value interpolated
//! between the neighbouring samples (`smoothed`).

use crate::model::{Labels, TimeRange, Timestamp, is_stale};
use crate::promql::error::QueryError;
use crate::promql::functions::extended::interpolate;
use crate::promql::numbers::seconds;
use crate::promql::plan::{Selector, SelectorOutput};
use crate::promql::query::Options;

use super::Context;
use super::native::{SampleBuffers, SeriesSamples};
use super::parallel_rows::{LOOKUP_NS, ReadPlan, RowsOrSeries, fill_row};
use super::rows::{Grid, LabelledRows, RowHead};
use super::start_timestamps::StartTimestamps;

impl Context<'_> {
    /// Returns one row for each series that has a sample for any step.
    pub(super) fn select(&self, selector: &Selector, grid: Grid) -> Result<LabelledRows, QueryError> {
        let rows = self.select_where(selector, grid, &|_| true)?;
        match selector.look {
            SelectorOutput::Value | SelectorOutput::Smoothed => Ok(rows),
            SelectorOutput::Time | SelectorOutput::Start => self.drop_names(rows),
        }
    }

    /// Returns the range of times that a selector may read, both ends inclusive.
    pub(super) fn selected_range(&self, selector: &Selector, grid: Grid) -> TimeRange {
        selected_range(selector, grid, self.options)
    }

    /// Like `select`, for series that `admit` accepts; names are not removed.
    pub(super) fn select_where(
        &self,
        selector: &Selector,
        grid: Grid,
        admit: &dyn Fn(&Labels) -> bool,
    ) -> Result<LabelledRows, QueryError> {
        let lookback = self.options.lookback_ms;
        let range = self.selected_range(selector, grid);
        let mut found = self.select_series(&selector.matchers, range)?;
        found.retain(|series| admit(&series.labels));
        if matches!(selector.look, SelectorOutput::Value | SelectorOutput::Time) {
            let when = selector.when;
            let edges = move |at_ms: i64| (when.look(at_ms).saturating_sub(lookback), when.look(at_ms));
            let fill = if selector.look == SelectorOutput::Time {
                // A staleness marker hides all earlier samples and has no value itself.
                let time_of = |at: i64, value: f64| if is_stale(value) { value } else { seconds(at) };
                fill_row(move |scratch, floats, row, _| {
                    scratch.newest(grid, floats, edges, time_of, row);
                    Ok(())
                })
            } else {
                fill_row(move |scratch, floats, row, _| {
                    scratch.newest(grid, floats, edges, |_, value| value, row);
                    Ok(())
                })
            };
            let plan = ReadPlan { range, windows: false, step_ns: LOOKUP_NS };
            match self.compute_rows(found, plan, grid.len, fill)? {
                RowsOrSeries::Rows(rows) => return Ok(rows),
                RowsOrSeries::Native(series) => found = series,
            }
        } else {
            self.meter.found_series(found.len())?;
            self.meter.reserve_rows(found.len(), grid.len, self.budget)?;
        }
        let mut rows = LabelledRows::with_capacity(&self.meter, found.len(), grid.len)?;
        let mut buffers = SampleBuffers::default();
        for series in found {
            self.budget.check()?;
            self.read(series.id, range, selector.counts_only, &mut buffers);
            let head = RowHead { labels: series.labels, drops_name: false };
            let row = rows.push_absent(head);
            let samples = buffers.samples(Some(series.id));
            if buffers.has_histograms() {
                self.select_native(selector, grid, series.id, &buffers, &mut rows)?;
            } else if selector.look == SelectorOutput::Smoothed {
                self.smooth(selector, grid, &samples, row);
            } else {
                self.newest(selector, grid, &samples, row);
            }
            rows.finish_last()?;
        }
        Ok(rows)
    }

    fn newest(&self, selector: &Selector, grid: Grid, series: &SeriesSamples<'_>, row: &mut [f64]) {
        // Without the option no sample has a start timestamp.
        if selector.look == SelectorOutput::Start && !self.options.use_start_timestamps {
            return;
        }
        let starts = if selector.look == SelectorOutput::Start {
            self.start_timestamps(series.id, series.times)
        } else {
            StartTimestamps::default()
        };
        let lookback = self.options.lookback_ms;
        let mut next = 0;
        for (step, out) in row.iter_mut().enumerate() {
            let eval_ms = selector.when.look(grid.at(step));
            next += series.times[next..].iter().take_while(|at| **at <= eval_ms).count();
            let Some(newest) = next.checked_sub(1) else { continue };
            let (at, value) = (series.times[newest], series.values[newest]);
            // A staleness marker hides all earlier samples.
            if at > eval_ms.saturating_sub(lookback) && !is_stale(value) {
                *out = match selector.look {
                    SelectorOutput::Time => seconds(at),
                    SelectorOutput::Start => seconds(starts.of.get(newest).copied().unwrap_or(0)),
                    SelectorOutput::Value | SelectorOutput::Smoothed => value,
                };
            }
        }
    }

    /// Fills a row with interpolated values. Staleness markers are ignored, as in Prometheus.
    fn smooth(&self, selector: &Selector, grid: Grid, series: &SeriesSamples<'_>, row: &mut [f64]) {
        let lookback = self.options.lookback_ms;
        let samples = series.times.iter().copied().zip(series.values.iter().copied());
        let samples: Vec<(i64, f64)> = samples.filter(|(_, value)| !is_stale(*value)).collect();
        let mut next = 0;
        for (step, out) in row.iter_mut().enumerate() {
            let eval_ms = selector.when.look(grid.at(step));
            next += samples[next..].iter().take_while(|(at, _)| *at < eval_ms).count();
            let before = next.checked_sub(1).map(|i| samples[i]);
            let before = before.filter(|(at, _)| *at > eval_ms.saturating_sub(lookback));
            let after = samples.get(next).filter(|(at, _)| *at <= eval_ms.saturating_add(lookback));
            match (before, after) {
                (_, Some((at, value))) if *at == eval_ms => *out = *value,
                (Some(before), Some(after)) => *out = interpolate(before, *after, eval_ms, false),
                (Some((_, value)), None) => *out = value,
                (None, _) => {}
            }
        }
    }
}

/// Returns the range of times that a selector may read, both ends inclusive.
pub(super) fn selected_range(selector: &Selector, grid: Grid, options: &Options) -> TimeRange {
    let lookback = options.lookback_ms;
    let first = selector.when.look(grid.start_ms);
    let last = selector.when.look(grid.last());
    // The lookback is left-open: a sample exactly one lookback old is excluded.
    let oldest = first.saturating_sub(lookback).saturating_add(1);
    let newest = if selector.look == SelectorOutput::Smoothed { last.saturating_add(lookback) } else { last };
    TimeRange::new(Timestamp::from_ms(oldest), Timestamp::from_ms(newest))
}
