//! Functions of windows: two moving places in each series' samples, one call of the kernel for each step.

use std::sync::Arc;

use crate::model::{Sample, TimeRange, Timestamp, is_stale};
use crate::promql::QueryError;
use crate::promql::budget::Charge;
use crate::promql::functions::{ParamCheck, SampleWindow, WindowKernel, extended};
use crate::promql::plan::{MatrixNode, MatrixSource, WindowNode};
use crate::promql::syntax::tree::Extension;
use crate::tsdb::{SampleColumns, SelectedSeries};

use super::Context;
use super::kernels::{Floats, Kernel, Patience, Scratch, Stopped, TimesOf, any_stale};
use super::native::{Native, Readings, Samples, native_of_row};
use super::parallel_rows::{ReadPlan, RowsOrSeries};
use super::rows::{Duplicates, Grid, Head, Rows, Scalars, is_absent, is_metadata};
use super::starts::Starts;

/// What is done with one series' samples; no staleness markers.
type VisitSeries<'v> = dyn FnMut(&Head, Samples<'_>) -> Result<(), QueryError> + 'v;

/// What is done with one window that has samples: its series and the step.
type VisitWindow<'v> = dyn FnMut(&Head, usize) -> Result<(), QueryError> + 'v;

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
        match &node.source {
            MatrixSource::Select(matchers) => {
                let found = self.selected(matchers, self.window_range(node, grid))?;
                self.meter.found_series(found.len())?;
                if kept > 0 {
                    self.meter.reserve_rows(found.len(), kept, self.budget)?;
                }
                self.each_found(node, grid, found, visit)?;
            }
            MatrixSource::Subquery { .. } => {
                if let Some((rows, inner)) = self.subquery(node, grid)? {
                    self.each_row(&rows, inner, visit)?;
                }
            }
        }
        Ok(())
    }

    /// Calls `visit` for every one of these series.
    fn each_found(
        &self,
        node: &MatrixNode,
        grid: Grid,
        found: Vec<SelectedSeries>,
        visit: &mut VisitSeries<'_>,
    ) -> Result<(), QueryError> {
        let range = self.window_range(node, grid);
        let mut readings = Readings::default();
        for series in found {
            self.budget.check()?;
            self.read(series.id, range, node.counts_only, &mut readings);
            drop_stale(&mut readings.floats);
            let mut held = self.meter.charge();
            held.add_samples(readings.floats.times.len() + readings.native.samples())?;
            held.add_bytes(readings.native.bytes() as u64)?;
            let head = Head { labels: series.labels, drops_name: false };
            visit(&head, readings.samples(Some(series.id)))?;
        }
        Ok(())
    }

    /// Calls `visit` for every series of a subquery, of which the rows were evaluated at those steps.
    fn each_row(&self, rows: &Rows, inner: Grid, visit: &mut VisitSeries<'_>) -> Result<(), QueryError> {
        let mut columns = SampleColumns::default();
        let mut native = Native::default();
        for (number, (head, row)) in rows.iter().enumerate() {
            self.budget.check()?;
            present_samples(row, inner, &mut columns);
            native_of_row(rows, number, inner, &mut native);
            let (times, values) = (&columns.times[..], &columns.values[..]);
            visit(head, Samples { times, values, native: &native, id: None })?;
        }
        Ok(())
    }

    /// All times that the windows of all steps may look at, the first one left out.
    pub(super) fn window_span(&self, node: &MatrixNode, grid: Grid) -> (i64, i64) {
        let (before, after) = self.around(node);
        let first = node.when.look(grid.start_ms).saturating_sub(node.range_ms).saturating_sub(before);
        (first, node.when.look(grid.last()).saturating_add(after))
    }

    pub(super) fn window_range(&self, node: &MatrixNode, grid: Grid) -> TimeRange {
        let (first, last) = self.window_span(node, grid);
        TimeRange::new(Timestamp::from_ms(first.saturating_add(1)), Timestamp::from_ms(last))
    }

    /// How far before and after a window its function looks, milliseconds.
    pub(super) fn around(&self, node: &MatrixNode) -> (i64, i64) {
        match node.extension {
            None => (0, 0),
            Some(Extension::Anchored) => (self.options.lookback_ms, 0),
            Some(Extension::Smoothed) => (self.options.lookback_ms, self.options.lookback_ms),
        }
    }

    /// Calls `visit` for every step of every series whose window has samples.
    pub(super) fn each_window(
        &self,
        node: &MatrixNode,
        grid: Grid,
        visit: &mut VisitWindow<'_>,
    ) -> Result<(), QueryError> {
        self.each_series(node, grid, 0, &mut |head, samples| {
            let mut places = Places::default();
            let mut native = Places::default();
            for step in 0..grid.len {
                let (start, end) = node.edges(grid.at(step));
                let floats = places.advance(samples.times, start, end);
                let histograms = native.advance(&samples.native.times, start, end);
                if !floats.is_empty() || !histograms.is_empty() {
                    visit(head, step)?;
                }
            }
            Ok(())
        })
    }

    /// A function of windows.
    pub(super) fn window(&self, node: &Arc<WindowNode>, grid: Grid) -> Result<Rows, QueryError> {
        let params = self.params(&node.params, grid)?;
        if let Some(rows) = self.unnamed_windows(node, grid, &params)? {
            return Ok(rows);
        }
        let inner = self.subquery(&node.arg, grid)?;
        let rows = match self.plain_windows(node, grid, &params, inner.as_ref())? {
            Some(RowsOrSeries::Rows(rows)) => rows,
            Some(RowsOrSeries::Native(found)) => self.any_windows(node, grid, &params, &mut |visit| {
                self.each_found(&node.arg, grid, found.clone(), visit)
            })?,
            None => self.any_windows(node, grid, &params, &mut |visit| match &inner {
                Some((rows, inner)) => self.each_row(rows, *inner, visit),
                None => self.each_series(&node.arg, grid, grid.len, visit),
            })?,
        };
        if node.kernel.keeps_name {
            return Ok(rows);
        }
        rows.without_names(self.options.delayed_name_removal, Duplicates::Refuse)
    }

    /// The windows of series whose names go and do not tell them apart: their label sets are made without.
    fn unnamed_windows(
        &self,
        node: &Arc<WindowNode>,
        grid: Grid,
        params: &[Scalars],
    ) -> Result<Option<Rows>, QueryError> {
        let MatrixSource::Select(matchers) = &node.arg.source else { return Ok(None) };
        let columns: Vec<&[f64]> = params.iter().map(|param| &param.values[..]).collect();
        let names_stay = node.kernel.keeps_name || self.options.delayed_name_removal;
        if names_stay || !self.is_plain(node, &columns, grid) {
            return Ok(None);
        }
        let range = self.window_range(&node.arg, grid);
        let found = self.find(|paced| paced.select_without(matchers, range, &is_metadata))?;
        let Some((name, found)) = found else { return Ok(None) };
        self.charge_labels(&found)?;
        let count = found.len();
        let (whole, _held) = self.kernel(node, &columns, grid)?;
        let plan = ReadPlan { range, windows: true, step_ns: whole.step_ns() };
        let RowsOrSeries::Rows(rows) = self.compute_rows(found, plan, grid.len, whole.into_fill())? else {
            self.meter.revert_found_series(count);
            return Ok(None);
        };
        if node.kernel.counts && !rows.is_empty() {
            self.doubt_counter(node, &name);
        }
        Ok(Some(rows))
    }

    /// Whether there is nothing to be said about any window's parameters, and nothing to be looked at but samples.
    pub(super) fn is_plain(&self, node: &WindowNode, columns: &[&[f64]], grid: Grid) -> bool {
        let looks_at_starts = node.kernel.uses_starts && self.options.use_start_timestamps;
        let is_fine = |step: usize| {
            let at_step: Vec<f64> = columns.iter().map(|values| values[step]).collect();
            node.kernel.check_params.is_none_or(|check| check(&at_step) == ParamCheck::Valid)
        };
        let params_valid = node.kernel.check_params.is_none() || (0..grid.len).all(is_fine);
        node.arg.extension.is_none() && !looks_at_starts && params_valid
    }

    /// What computes whole rows, and what it holds beside the plan's.
    pub(super) fn kernel(
        &self,
        node: &Arc<WindowNode>,
        columns: &[&[f64]],
        grid: Grid,
    ) -> Result<(Kernel, Charge), QueryError> {
        let mut held = self.meter.charge();
        held.add_values(columns.iter().map(|column| column.len()).sum())?;
        let params = columns.iter().map(|column| column.to_vec()).collect();
        Ok((Kernel { node: Arc::clone(node), params, grid }, held))
    }

    /// Whole rows at once, where there is nothing but floats, and nothing to be said but of names.
    fn plain_windows(
        &self,
        node: &Arc<WindowNode>,
        grid: Grid,
        params: &[Scalars],
        inner: Option<&(Rows, Grid)>,
    ) -> Result<Option<RowsOrSeries>, QueryError> {
        let WindowNode { kernel, arg, .. } = &**node;
        let columns: Vec<&[f64]> = params.iter().map(|param| &param.values[..]).collect();
        if !self.is_plain(node, &columns, grid) {
            return Ok(None);
        }
        let (whole, _held) = self.kernel(node, &columns, grid)?;
        let outcome = match (&arg.source, inner) {
            (MatrixSource::Select(matchers), _) => {
                let range = self.window_range(arg, grid);
                let plan = ReadPlan { range, windows: true, step_ns: whole.step_ns() };
                let found = self.selected(matchers, range)?;
                self.compute_rows(found, plan, grid.len, whole.into_fill())?
            }
            (_, Some((rows, inner))) if !rows.has_histograms() => {
                RowsOrSeries::Rows(self.windows_of_rows(&whole, rows, *inner)?)
            }
            _ => return Ok(None),
        };
        if let (true, RowsOrSeries::Rows(rows)) = (kernel.counts, &outcome) {
            for head in &rows.heads {
                self.doubt_counter(node, head.labels.metric_name());
            }
        }
        Ok(Some(outcome))
    }

    /// The windows of a subquery, whose rows were evaluated at those steps.
    fn windows_of_rows(&self, whole: &Kernel, rows: &Rows, inner: Grid) -> Result<Rows, QueryError> {
        let mut out = Rows::new(&self.meter, whole.grid.len);
        let mut scratch = Scratch::default();
        let mut columns = SampleColumns::default();
        let mut refused = None;
        let mut goes_on = || self.budget.check().map_err(|error| refused = Some(error)).map_err(|()| Stopped);
        for (head, row) in rows.iter() {
            self.budget.check()?;
            present_samples(row, inner, &mut columns);
            let target = out.push_paid(head.clone())?;
            let times = TimesOf::Own(&columns.times);
            let floats = Floats { times, values: &columns.values, rises: false };
            if whole.fill(&mut scratch, floats, target, &mut goes_on).is_err() {
                break;
            }
            out.settle_last()?;
        }
        refused.map_or(Ok(out), Err)
    }

    /// Window by window, native histograms beside floats.
    fn any_windows(
        &self,
        node: &WindowNode,
        grid: Grid,
        params: &[Scalars],
        each: &mut dyn FnMut(&mut VisitSeries<'_>) -> Result<(), QueryError>,
    ) -> Result<Rows, QueryError> {
        let mut rows = Rows::new(&self.meter, grid.len);
        let kernel = &node.kernel;
        let visit: &mut VisitSeries<'_> = &mut |head, samples| {
            let row = rows.push_paid(head.clone())?;
            let name = head.labels.metric_name();
            self.fill_row(node, grid, (name, &samples), params, row)?;
            if !samples.native.is_empty() {
                self.fill_native(node, grid, name, samples, &mut rows)?;
            }
            let any_float = samples.native.is_empty() || Self::has_floats(&rows, rows.len() - 1);
            let before = rows.len();
            rows.settle_last()?;
            if kernel.counts && any_float && rows.len() == before {
                self.doubt_counter(node, name);
            }
            Ok(())
        };
        each(visit)?;
        Ok(rows)
    }

    fn fill_row(
        &self,
        node: &WindowNode,
        grid: Grid,
        (name, series): (&str, &Samples<'_>),
        params: &[Scalars],
        row: &mut [f64],
    ) -> Result<(), QueryError> {
        let WindowKernel { run, check_params, needs_resets, uses_starts, .. } = node.kernel;
        let (times, values) = (series.times, series.values);
        let starts = if uses_starts { self.starts_of(series.id, times) } else { Starts::default() };
        let resets = if needs_resets { drops(times, values, &starts) } else { Vec::new() };
        let (before_ms, after_ms) = self.around(&node.arg);
        let mut overlap_places = Places::default();
        let mut places = Places::default();
        let mut reset_places = Places::default();
        let mut at_step = vec![0.0; params.len()];
        let mut patience = Patience::default();
        for (step, out) in row.iter_mut().enumerate() {
            let at_ms = grid.at(step);
            let (start_ms, end_ms) = node.arg.edges(at_ms);
            let (from_ms, to_ms) = (start_ms.saturating_sub(before_ms), end_ms.saturating_add(after_ms));
            let inside = places.advance(times, from_ms, to_ms);
            if inside.is_empty() {
                continue;
            }
            patience.after(inside.len(), || self.budget.check())?;
            for (value, scalars) in at_step.iter_mut().zip(params) {
                *value = scalars.values[step];
            }
            if let Some(check) = check_params {
                match check(&at_step) {
                    ParamCheck::Valid => {}
                    ParamCheck::Warn(text) => self.notes.borrow_mut().warn(node.param_span, text),
                    ParamCheck::Reject(text) => return Err(QueryError::execution(text)),
                }
            }
            // A drop belongs to the window when the sample before it does too.
            let resets_inside = reset_places.between(&resets, inside.start + 1, inside.end);
            let window = SampleWindow {
                times: &times[inside.clone()],
                values: &values[inside.clone()],
                start_ms,
                end_ms,
                at_ms,
                params: &at_step,
                resets: &resets[resets_inside],
                first: inside.start,
                starts: starts.of.get(inside.clone()).unwrap_or_default(),
                extension: node.arg.extension,
            };
            let overlaps = overlap_places.between(&starts.overlaps, inside.start + 1, inside.end);
            if node.kernel.counts && node.arg.extension.is_none() && !overlaps.is_empty() {
                self.doubt_starts(node, name);
            }
            if let Some(value) = run(&window) {
                *out = value;
            }
        }
        Ok(())
    }

    /// Says so where counts are said to have begun before other counts had ended.
    pub(super) fn doubt_starts(&self, node: &WindowNode, name: &str) {
        let text =
            format!("sample has start time that overlaps with previous sample timestamp for metric {name:?}");
        self.notes.borrow_mut().warn(node.arg_span, text);
    }

    /// Says so where a function for counters is used on what is not named like one.
    pub(super) fn doubt_counter(&self, node: &WindowNode, name: &str) {
        if !name.is_empty() && !NAMES_OF_COUNTERS.iter().any(|end| name.ends_with(end)) {
            let text = format!(
                "metric might not be a counter, name does not end in _total/_sum/_count/_bucket: {name:?}"
            );
            self.notes.borrow_mut().info(node.arg_span, text);
        }
    }
}

/// The samples of the one window that an instant query asks for.
pub(super) fn samples(node: &MatrixNode, step_ms: i64, series: &Samples<'_>) -> Vec<Sample> {
    let (start_ms, end_ms) = node.edges(step_ms);
    let sample = |at, value| Sample { at: Timestamp::from_ms(at), value };
    let (times, values) = (series.times, series.values);
    if node.extension.is_none() {
        let inside = times.iter().zip(values).filter(|(at, _)| **at > start_ms && **at <= end_ms);
        return inside.map(|(at, value)| sample(*at, *value)).collect();
    }
    let (resets, starts, extension) = (&[], &[], node.extension);
    let window = SampleWindow {
        times,
        values,
        start_ms,
        end_ms,
        at_ms: step_ms,
        params: &[],
        resets,
        first: 0,
        starts,
        extension,
    };
    extended::samples(&window).into_iter().map(|(at, value)| sample(at, value)).collect()
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

/// Where values are lower than the one before, or began anew. A comparison with NaN is no drop.
fn drops(times: &[i64], values: &[f64], starts: &Starts) -> Vec<usize> {
    let pairs = values.windows(2).zip(1..);
    pairs.filter(|(pair, i)| pair[1] < pair[0] || starts.reset(times, *i)).map(|(_, i)| i).collect()
}

/// The values of a row as samples.
fn present_samples(row: &[f64], grid: Grid, columns: &mut SampleColumns) {
    columns.times.clear();
    columns.values.clear();
    for (i, value) in row.iter().enumerate().filter(|(_, value)| !is_absent(**value)) {
        columns.times.push(grid.at(i));
        columns.values.push(*value);
    }
}

pub(super) fn drop_stale(columns: &mut SampleColumns) {
    if !any_stale(&columns.values) {
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
