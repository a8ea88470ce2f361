//! Window functions: for each series, moving indices select the samples of each step's window.

use std::sync::Arc;

use crate::model::{Sample, Stopped, TimeRange, Timestamp, is_stale};
use crate::promql::budget::Charge;
use crate::promql::error::QueryError;
use crate::promql::functions::{ParamCheck, SampleWindow, WindowKernel, extended};
use crate::promql::plan::{MatrixNode, MatrixSource, WindowNode};
use crate::promql::query::Options;
use crate::promql::syntax::tree::Extension;
use crate::tsdb::{SampleColumns, SelectedSeries};

use super::Context;
use super::kernels::{CheckInterval, FloatSamples, Kernel, KernelScratch, SampleTimes, any_stale};
use super::native::{NativeSamples, SampleBuffers, SeriesSamples, native_of_row};
use super::parallel_rows::{ReadPlan, RowsOrSeries};
use super::rows::{Duplicates, Grid, LabelledRows, RowHead, Scalars, is_absent, is_metadata};
use super::start_timestamps::StartTimestamps;

/// Callback for the samples of one series, without staleness markers.
type VisitSeries<'v> = dyn FnMut(&RowHead, SeriesSamples<'_>) -> Result<(), QueryError> + 'v;

/// The samples of a series with its metric name.
#[derive(Clone, Copy)]
struct NamedSamples<'s> {
    name: &'s str,
    samples: &'s SeriesSamples<'s>,
}

/// Callback for one window that has samples: its series and its step.
type VisitWindow<'v> = dyn FnMut(&RowHead, usize) -> Result<(), QueryError> + 'v;

/// Suffixes of the names of counters.
const NAMES_OF_COUNTERS: [&str; 4] = ["_total", "_sum", "_count", "_bucket"];

/// Returns the range of times that the windows of all steps may read, in milliseconds; the first
/// end is exclusive, the second inclusive.
pub(super) fn window_span(node: &MatrixNode, grid: Grid, options: &Options) -> (i64, i64) {
    let (before, after) = margins(node, options);
    let first = node.when.look(grid.start_ms).saturating_sub(node.range_ms).saturating_sub(before);
    (first, node.when.look(grid.last()).saturating_add(after))
}

/// Returns the range of [`window_span`] with both ends inclusive.
pub(super) fn window_range(node: &MatrixNode, grid: Grid, options: &Options) -> TimeRange {
    let (first, last) = window_span(node, grid, options);
    TimeRange::new(Timestamp::from_ms(first.saturating_add(1)), Timestamp::from_ms(last))
}

/// Returns how many milliseconds before and after a window its function may read.
fn margins(node: &MatrixNode, options: &Options) -> (i64, i64) {
    match node.extension {
        None => (0, 0),
        Some(Extension::Anchored) => (options.lookback_ms, 0),
        Some(Extension::Smoothed) => (options.lookback_ms, options.lookback_ms),
    }
}

impl Context<'_> {
    /// Calls `visit` for each series that may have samples in any window. The caller stores
    /// `stored_values` values for each series; memory for them is reserved before the first series
    /// is read.
    pub(super) fn each_series(
        &self,
        node: &MatrixNode,
        grid: Grid,
        stored_values: usize,
        visit: &mut VisitSeries<'_>,
    ) -> Result<(), QueryError> {
        if grid.len == 0 {
            return Ok(());
        }
        match &node.source {
            MatrixSource::Select(matchers) => {
                let series = self.select_series(matchers, self.window_range(node, grid))?;
                self.meter.found_series(series.len())?;
                if stored_values > 0 {
                    self.meter.reserve_rows(series.len(), stored_values, self.budget)?;
                }
                self.each_selected(node, grid, series, visit)?;
            }
            MatrixSource::Subquery { .. } => {
                if let Some((rows, inner)) = self.subquery(node, grid)? {
                    self.each_row(&rows, inner, visit)?;
                }
            }
        }
        Ok(())
    }

    /// Calls `visit` for each of these series.
    fn each_selected(
        &self,
        node: &MatrixNode,
        grid: Grid,
        series: Vec<SelectedSeries>,
        visit: &mut VisitSeries<'_>,
    ) -> Result<(), QueryError> {
        let range = self.window_range(node, grid);
        let mut buffers = SampleBuffers::default();
        for series in series {
            self.budget.check()?;
            self.read(series.id, range, node.counts_only, &mut buffers);
            drop_stale(&mut buffers.floats);
            let mut held = self.meter.charge();
            held.add_samples(buffers.floats.times.len() + buffers.native.samples())?;
            held.add_bytes(buffers.native.bytes() as u64)?;
            let head = RowHead { labels: series.labels, drops_name: false };
            visit(&head, buffers.samples(Some(series.id)))?;
        }
        Ok(())
    }

    /// Calls `visit` for each row of a subquery, evaluated at the steps `inner`.
    fn each_row(
        &self,
        rows: &LabelledRows,
        inner: Grid,
        visit: &mut VisitSeries<'_>,
    ) -> Result<(), QueryError> {
        let mut columns = SampleColumns::default();
        let mut native = NativeSamples::default();
        for (number, (head, row)) in rows.iter().enumerate() {
            self.budget.check()?;
            present_samples(row, inner, &mut columns);
            native_of_row(rows, number, inner, &mut native);
            let (times, values) = (&columns.times[..], &columns.values[..]);
            visit(head, SeriesSamples { times, values, native: &native, id: None })?;
        }
        Ok(())
    }

    /// Returns the range of times that the windows of all steps may read, in milliseconds; the
    /// first end is exclusive, the second inclusive.
    pub(super) fn window_span(&self, node: &MatrixNode, grid: Grid) -> (i64, i64) {
        window_span(node, grid, self.options)
    }

    pub(super) fn window_range(&self, node: &MatrixNode, grid: Grid) -> TimeRange {
        window_range(node, grid, self.options)
    }

    /// Returns how many milliseconds before and after a window its function may read.
    pub(super) fn margins(&self, node: &MatrixNode) -> (i64, i64) {
        margins(node, self.options)
    }

    /// Calls `visit` for each step of each series whose window has samples.
    pub(super) fn each_window(
        &self,
        node: &MatrixNode,
        grid: Grid,
        visit: &mut VisitWindow<'_>,
    ) -> Result<(), QueryError> {
        self.each_series(node, grid, 0, &mut |head, samples| {
            let mut sample_range = IndexRange::default();
            let mut native = IndexRange::default();
            for step in 0..grid.len {
                let (start, end) = node.edges(grid.at(step));
                let floats = sample_range.advance(samples.times, start, end);
                let histograms = native.advance(&samples.native.times, start, end);
                if !floats.is_empty() || !histograms.is_empty() {
                    visit(head, step)?;
                }
            }
            Ok(())
        })
    }

    /// Evaluates a window function.
    pub(super) fn window(&self, node: &Arc<WindowNode>, grid: Grid) -> Result<LabelledRows, QueryError> {
        let params = self.params(&node.params, grid)?;
        if let Some(rows) = self.windows_without_names(node, grid, &params)? {
            return Ok(rows);
        }
        let inner = self.subquery(&node.arg, grid)?;
        let rows = match self.plain_windows(node, grid, &params, inner.as_ref())? {
            Some(RowsOrSeries::Rows(rows)) => rows,
            Some(RowsOrSeries::Native(series)) => {
                self.windows_one_by_one(node, grid, &params, &mut |visit| {
                    self.each_selected(&node.arg, grid, series.clone(), visit)
                })?
            }
            None => self.windows_one_by_one(node, grid, &params, &mut |visit| match &inner {
                Some((rows, inner)) => self.each_row(rows, *inner, visit),
                None => self.each_series(&node.arg, grid, grid.len, visit),
            })?,
        };
        if node.kernel.keeps_name {
            return Ok(rows);
        }
        rows.without_names(self.options.delayed_name_removal, Duplicates::Refuse)
    }

    /// Evaluates a window function whose result has no metric names, for series that differ without
    /// their names. The labels are selected without names. Returns `None` if this does not apply.
    fn windows_without_names(
        &self,
        node: &Arc<WindowNode>,
        grid: Grid,
        params: &[Scalars],
    ) -> Result<Option<LabelledRows>, QueryError> {
        let MatrixSource::Select(matchers) = &node.arg.source else { return Ok(None) };
        let columns: Vec<&[f64]> = params.iter().map(|param| &param.values[..]).collect();
        let names_stay = node.kernel.keeps_name || self.options.delayed_name_removal;
        if names_stay || !self.needs_only_samples(node, &columns, grid) {
            return Ok(None);
        }
        let range = self.window_range(&node.arg, grid);
        let series = self.select_paced(|paced| paced.select_without(matchers, range, &is_metadata))?;
        let Some((name, series)) = series else { return Ok(None) };
        self.charge_labels(&series)?;
        let count = series.len();
        let (row_kernel, _held) = self.kernel(node, &columns, grid)?;
        let plan = ReadPlan { range, windows: true, step_ns: row_kernel.step_ns() };
        let RowsOrSeries::Rows(rows) = self.compute_rows(series, plan, grid.len, row_kernel.into_fill())?
        else {
            self.meter.revert_found_series(count);
            return Ok(None);
        };
        if node.kernel.counts && !rows.is_empty() {
            self.note_unusual_counter_name(node, &name);
        }
        Ok(Some(rows))
    }

    /// Returns whether a window function needs nothing but samples and adds no annotation about its
    /// parameters.
    pub(super) fn needs_only_samples(&self, node: &WindowNode, columns: &[&[f64]], grid: Grid) -> bool {
        let looks_at_starts = node.kernel.uses_starts && self.options.use_start_timestamps;
        let is_fine = |step: usize| {
            let params_at_step: Vec<f64> = columns.iter().map(|values| values[step]).collect();
            node.kernel.check_params.is_none_or(|check| check(&params_at_step) == ParamCheck::Valid)
        };
        let params_valid = node.kernel.check_params.is_none() || (0..grid.len).all(is_fine);
        node.arg.extension.is_none() && !looks_at_starts && params_valid
    }

    /// Returns the kernel for whole rows, and the charge for its parameters.
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

    /// Computes whole rows if there are only floats and no annotations but those about names.
    /// Returns `None` if another evaluation is needed.
    fn plain_windows(
        &self,
        node: &Arc<WindowNode>,
        grid: Grid,
        params: &[Scalars],
        inner: Option<&(LabelledRows, Grid)>,
    ) -> Result<Option<RowsOrSeries>, QueryError> {
        let WindowNode { kernel, arg, .. } = &**node;
        let columns: Vec<&[f64]> = params.iter().map(|param| &param.values[..]).collect();
        if !self.needs_only_samples(node, &columns, grid) {
            return Ok(None);
        }
        let (row_kernel, _held) = self.kernel(node, &columns, grid)?;
        let outcome = match (&arg.source, inner) {
            (MatrixSource::Select(matchers), _) => {
                let range = self.window_range(arg, grid);
                let plan = ReadPlan { range, windows: true, step_ns: row_kernel.step_ns() };
                let series = self.select_series(matchers, range)?;
                self.compute_rows(series, plan, grid.len, row_kernel.into_fill())?
            }
            (_, Some((rows, inner))) if !rows.has_histograms() => {
                RowsOrSeries::Rows(self.windows_of_rows(&row_kernel, rows, *inner)?)
            }
            _ => return Ok(None),
        };
        if let (true, RowsOrSeries::Rows(rows)) = (kernel.counts, &outcome) {
            for head in &rows.heads {
                self.note_unusual_counter_name(node, head.labels.metric_name());
            }
        }
        Ok(Some(outcome))
    }

    /// Computes the windows over the rows of a subquery, evaluated at the steps `inner`.
    fn windows_of_rows(
        &self,
        row_kernel: &Kernel,
        rows: &LabelledRows,
        inner: Grid,
    ) -> Result<LabelledRows, QueryError> {
        let mut out = LabelledRows::new(&self.meter, row_kernel.grid.len);
        let mut scratch = KernelScratch::default();
        let mut columns = SampleColumns::default();
        let mut refused = None;
        let mut check = || self.budget.check().map_err(|error| refused = Some(error)).map_err(|()| Stopped);
        for (head, row) in rows.iter() {
            self.budget.check()?;
            present_samples(row, inner, &mut columns);
            let target = out.push_charged(head.clone())?;
            let times = SampleTimes::Own(&columns.times);
            let floats = FloatSamples { times, values: &columns.values, non_decreasing: false };
            if row_kernel.fill(&mut scratch, floats, target, &mut check).is_err() {
                break;
            }
            out.finish_last()?;
        }
        refused.map_or(Ok(out), Err)
    }

    /// Computes each window separately, with native histograms.
    fn windows_one_by_one(
        &self,
        node: &WindowNode,
        grid: Grid,
        params: &[Scalars],
        each: &mut dyn FnMut(&mut VisitSeries<'_>) -> Result<(), QueryError>,
    ) -> Result<LabelledRows, QueryError> {
        let mut rows = LabelledRows::new(&self.meter, grid.len);
        let kernel = &node.kernel;
        let visit: &mut VisitSeries<'_> = &mut |head, samples| {
            let row = rows.push_charged(head.clone())?;
            let name = head.labels.metric_name();
            self.fill_windows(node, grid, NamedSamples { name, samples: &samples }, params, row)?;
            if !samples.native.is_empty() {
                self.fill_native(node, grid, name, samples, &mut rows)?;
            }
            let any_float = samples.native.is_empty() || Self::has_floats(&rows, rows.len() - 1);
            let before = rows.len();
            rows.finish_last()?;
            if kernel.counts && any_float && rows.len() == before {
                self.note_unusual_counter_name(node, name);
            }
            Ok(())
        };
        each(visit)?;
        Ok(rows)
    }

    fn fill_windows(
        &self,
        node: &WindowNode,
        grid: Grid,
        NamedSamples { name, samples: series }: NamedSamples<'_>,
        params: &[Scalars],
        row: &mut [f64],
    ) -> Result<(), QueryError> {
        let WindowKernel { run, check_params, needs_resets, uses_starts, .. } = node.kernel;
        let (times, values) = (series.times, series.values);
        let starts =
            if uses_starts { self.start_timestamps(series.id, times) } else { StartTimestamps::default() };
        let resets = if needs_resets { drops(times, values, &starts) } else { Vec::new() };
        let (before_ms, after_ms) = self.margins(&node.arg);
        let mut overlap_range = IndexRange::default();
        let mut sample_range = IndexRange::default();
        let mut reset_range = IndexRange::default();
        let mut params_at_step = vec![0.0; params.len()];
        let mut interval = CheckInterval::default();
        for (step, out) in row.iter_mut().enumerate() {
            let at_ms = grid.at(step);
            let (start_ms, end_ms) = node.arg.edges(at_ms);
            let (from_ms, to_ms) = (start_ms.saturating_sub(before_ms), end_ms.saturating_add(after_ms));
            let inside = sample_range.advance(times, from_ms, to_ms);
            if inside.is_empty() {
                continue;
            }
            interval.add_samples(inside.len(), || self.budget.check())?;
            for (value, scalars) in params_at_step.iter_mut().zip(params) {
                *value = scalars.values[step];
            }
            if let Some(check) = check_params {
                match check(&params_at_step) {
                    ParamCheck::Valid => {}
                    ParamCheck::Warn(text) => self.notes.borrow_mut().warn(node.param_span, text),
                    ParamCheck::Reject(text) => return Err(QueryError::execution(text)),
                }
            }
            // A reset belongs to a window only if the sample before it does too.
            let resets_inside = reset_range.between(&resets, inside.start + 1, inside.end);
            let window = SampleWindow {
                times: &times[inside.clone()],
                values: &values[inside.clone()],
                start_ms,
                end_ms,
                at_ms,
                params: &params_at_step,
                resets: &resets[resets_inside],
                first: inside.start,
                starts: starts.of.get(inside.clone()).unwrap_or_default(),
                extension: node.arg.extension,
            };
            let overlaps = overlap_range.between(&starts.overlaps, inside.start + 1, inside.end);
            if node.kernel.counts && node.arg.extension.is_none() && !overlaps.is_empty() {
                self.warn_overlapping_starts(node, name);
            }
            if let Some(value) = run(&window) {
                *out = value;
            }
        }
        Ok(())
    }

    /// Warns of a sample whose start timestamp is before the previous sample.
    pub(super) fn warn_overlapping_starts(&self, node: &WindowNode, name: &str) {
        let text =
            format!("sample has start time that overlaps with previous sample timestamp for metric {name:?}");
        self.notes.borrow_mut().warn(node.arg_span, text);
    }

    /// Adds an annotation if a counter function is applied to a metric that is not named like a
    /// counter.
    pub(super) fn note_unusual_counter_name(&self, node: &WindowNode, name: &str) {
        if !name.is_empty() && !NAMES_OF_COUNTERS.iter().any(|end| name.ends_with(end)) {
            let text = format!(
                "metric might not be a counter, name does not end in _total/_sum/_count/_bucket: {name:?}"
            );
            self.notes.borrow_mut().info(node.arg_span, text);
        }
    }
}

/// Returns the samples of the single window of an instant query.
pub(super) fn samples(node: &MatrixNode, step_ms: i64, series: &SeriesSamples<'_>) -> Vec<Sample> {
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

/// A range of indices in ascending numbers; both ends only move forward.
#[derive(Default)]
struct IndexRange {
    from: usize,
    to: usize,
}

impl IndexRange {
    /// Returns the indices of times in `(after, until]`.
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

    /// Returns the indices of numbers in `[least, below)`.
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

/// Returns the indices of values that are lower than their predecessor or start a new count. A
/// comparison with NaN is not a drop.
fn drops(times: &[i64], values: &[f64], starts: &StartTimestamps) -> Vec<usize> {
    let pairs = values.windows(2).zip(1..);
    pairs.filter(|(pair, i)| pair[1] < pair[0] || starts.reset(times, *i)).map(|(_, i)| i).collect()
}

/// Converts the values of a row to samples.
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
