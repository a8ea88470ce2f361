//! Window functions for whole rows: from the samples of one series to one value for each step. The
//! cost of a step does not grow with the window, if the results then still are equal to the bit.
//!
//! Sample ranges of windows depend on sample times only, so all series with the same times share
//! them ([`StepWindows`]). If the values of a series do not admit a shortcut, the kernel runs the
//! function of the single window step by step.

mod counting;
mod extremes;
mod interleaved;
mod latest_regular;
mod periodic_windows;
mod rates;
mod regression;
mod sums;
mod variance;
mod window_cache;
mod windows;

use std::sync::Arc;

use latest_regular::LatestSamples;
use regression::{LineFunction, RegressionScratch};
use window_cache::WindowCache;
use windows::StepWindows;

use crate::model::{RegularTimes, Stopped, Times, is_stale};
use crate::promql::functions::regression::FittedLine;
use crate::promql::functions::{RowKernel, SampleWindow};
use crate::promql::numbers::{count, seconds};
use crate::promql::plan::WindowNode;
use crate::simd::simd_dispatch;

use super::parallel_rows::{FillRow, LOOKUP_NS, fill_row};
use super::rows::{ABSENT, Grid};

/// Callback that checks deadline and cancellation.
pub(super) type ContinueCheck<'g> = &'g mut dyn FnMut() -> Result<(), Stopped>;

/// Decides when to check deadline and cancellation within one series: long windows at many steps
/// take long for one series, too.
#[derive(Default)]
pub(super) struct CheckInterval {
    visited: usize,
}

impl CheckInterval {
    /// Counts `samples` processed samples and runs `check` if one is due.
    pub(super) fn add_samples<E>(
        &mut self,
        samples: usize,
        check: impl FnOnce() -> Result<(), E>,
    ) -> Result<(), E> {
        const SAMPLES_BETWEEN_CHECKS: usize = 65_536;
        self.visited += samples;
        if self.visited <= SAMPLES_BETWEEN_CHECKS {
            return Ok(());
        }
        self.visited = 0;
        check()
    }
}

/// Largest number of bytes of times and windows that one thread caches.
pub(super) const SCRATCH_BYTES_MAX: usize = 8 << 20;

/// Bytes cached for each step, in addition to the times.
pub(super) const STEP_BYTES: usize = window_cache::STEP_BYTES;

/// The samples of one series in ascending order of time.
#[derive(Clone, Copy)]
pub(super) struct FloatSamples<'s> {
    pub(super) times: SampleTimes<'s>,
    pub(super) values: &'s [f64],
    /// All values are known to be numbers, none less than its predecessor.
    pub(super) non_decreasing: bool,
}

/// The samples of one series, with a list of times.
#[derive(Clone, Copy)]
pub(super) struct ListedSamples<'s> {
    pub(super) times: &'s [i64],
    pub(super) values: &'s [f64],
}

/// The sample times of one series.
#[derive(Clone, Copy)]
pub(super) enum SampleTimes<'s> {
    /// A list that is not known to belong to other series.
    Own(&'s [i64]),
    /// A list that other series have as well.
    Shared(&'s Arc<Times>),
}

impl<'s> SampleTimes<'s> {
    pub(super) fn len(self) -> usize {
        match self {
            SampleTimes::Own(list) => list.len(),
            SampleTimes::Shared(times) => times.len(),
        }
    }

    /// Returns the times as an arithmetic sequence, if they are known to be one.
    pub(super) fn regular(self) -> Option<RegularTimes> {
        match self {
            SampleTimes::Own(_) => None,
            SampleTimes::Shared(times) => times.regular(),
        }
    }

    /// Returns the list of times. Shared regular times may have to be expanded first.
    pub(super) fn list(self) -> &'s [i64] {
        match self {
            SampleTimes::Own(list) => list,
            SampleTimes::Shared(times) => times.list(),
        }
    }
}

/// Buffers that are reused from row to row.
#[derive(Default)]
pub(super) struct KernelScratch {
    window_cache: WindowCache,
    resets: Vec<usize>,
    marks: Vec<u32>,
    queue: Vec<usize>,
    sums: sums::PrefixSums,
    regression: RegressionScratch,
    columns: interleaved::WindowColumns,
    table: extremes::SparseTable,
}

impl KernelScratch {
    /// Returns buffers that cache up to `bytes_max` bytes of times and windows, and one list in any
    /// case.
    pub(super) fn within(bytes_max: usize) -> KernelScratch {
        KernelScratch { window_cache: WindowCache::within(bytes_max), ..KernelScratch::default() }
    }

    /// Overwrites a row with `result` of the time and value of the newest sample in each step's
    /// window; steps without one become absent.
    pub(super) fn newest(
        &mut self,
        grid: Grid,
        FloatSamples { times, values, .. }: FloatSamples<'_>,
        edges: impl Fn(i64) -> (i64, i64),
        result: impl Fn(i64, f64) -> f64,
        row: &mut [f64],
    ) {
        if times.len() == 0 {
            row.fill(ABSENT);
            return;
        }
        if let [value] = row {
            // For a single step, a binary search is cheaper than the cache.
            let (after, until) = edges(grid.at(0));
            let times = times.list();
            let newest = times.partition_point(|at| *at <= until).checked_sub(1);
            let newest = newest.filter(|newest| times[*newest] > after);
            *value = newest.map_or(ABSENT, |newest| result(times[newest], values[newest]));
            return;
        }
        if let Some(regular) = times.regular()
            && let Some(latest) = self
                .window_cache
                .even_windows(grid, &edges)
                .and_then(|windows| LatestSamples::of(regular, windows))
        {
            latest.fill(regular, values, result, row);
            return;
        }
        let windows = self.window_cache.windows_for(grid, times, edges, false);
        match times.regular() {
            Some(regular) => {
                counting::each(windows, row, |_, to| {
                    result(regular.at(to - 1).unwrap_or_default(), values[to - 1])
                });
            }
            None => {
                let times = times.list();
                counting::each(windows, row, |_, to| result(times[to - 1], values[to - 1]));
            }
        }
    }
}

/// A window function with its arguments at each step, and the steps.
pub(super) struct Kernel {
    pub(super) node: Arc<WindowNode>,
    pub(super) params: Vec<Vec<f64>>,
    pub(super) grid: Grid,
}

impl Kernel {
    /// Returns the estimated time of one step in nanoseconds, without reading samples.
    pub(super) fn step_ns(&self) -> u64 {
        match self.node.kernel.row_kernel {
            RowKernel::Mean | RowKernel::Sum => 10,
            RowKernel::Each
            | RowKernel::Deviation
            | RowKernel::Forecast
            | RowKernel::Slope
            | RowKernel::Variance => 50,
            _ => LOOKUP_NS,
        }
    }

    /// Returns the kernel as a row function that threads can share.
    pub(super) fn into_fill(self) -> Arc<FillRow> {
        fill_row(move |scratch, samples, row, check| self.fill(scratch, samples, row, check))
    }

    /// Overwrites a row. The samples must not contain staleness markers.
    pub(super) fn fill(
        &self,
        scratch: &mut KernelScratch,
        FloatSamples { times, values, non_decreasing }: FloatSamples<'_>,
        row: &mut [f64],
        check: ContinueCheck<'_>,
    ) -> Result<(), Stopped> {
        if times.len() == 0 {
            row.fill(ABSENT);
            return Ok(());
        }
        let KernelScratch { window_cache, resets, marks, queue, sums, regression, columns, table } = scratch;
        let extrapolates =
            matches!(self.node.kernel.row_kernel, RowKernel::Rate | RowKernel::Increase | RowKernel::Delta);
        let edges = |at_ms| self.node.arg.edges(at_ms);
        let windows = window_cache.windows_for(self.grid, times, edges, extrapolates);
        let listed = || ListedSamples { times: times.list(), values };
        if !extrapolates {
            row.fill(ABSENT);
        }
        match self.node.kernel.row_kernel {
            RowKernel::Each => return self.each(windows, resets, listed(), row, check),
            RowKernel::Rate | RowKernel::Increase => {
                resets.clear();
                if !non_decreasing {
                    drops(values, resets);
                }
                let per_second = self.node.kernel.row_kernel == RowKernel::Rate;
                rates::fill(windows, values, Some(resets), per_second, row);
            }
            RowKernel::Delta => rates::fill(windows, values, None, false, row),
            RowKernel::LastRate => {
                counting::last_two(windows, listed(), row, |(before, last), interval_ms| {
                    (if last < before { last } else { last - before }) / seconds(interval_ms)
                })
            }
            RowKernel::LastDelta => {
                counting::last_two(windows, listed(), row, |(before, last), _| last - before);
            }
            RowKernel::Count => counting::each(windows, row, |from, to| count(to - from)),
            RowKernel::Present => counting::each(windows, row, |_, _| 1.0),
            RowKernel::First => counting::each(windows, row, |from, _| values[from]),
            RowKernel::Last => counting::each(windows, row, |_, to| values[to - 1]),
            RowKernel::Resets => counting::pairs(windows, values, marks, row, |before, value| value < before),
            RowKernel::Changes => counting::pairs(windows, values, marks, row, |before, value| {
                before != value && !(before.is_nan() && value.is_nan())
            }),
            RowKernel::Least => {
                if !extremes::values(table, windows, values, row, |a, b| a < b) {
                    extremes::fill(windows, values, queue, row, |a, b| a < b, |i| values[i]);
                }
            }
            RowKernel::Greatest => {
                if !extremes::values(table, windows, values, row, |a, b| a > b) {
                    extremes::fill(windows, values, queue, row, |a, b| a > b, |i| values[i]);
                }
            }
            RowKernel::FirstTime | RowKernel::LastTime | RowKernel::LeastTime | RowKernel::GreatestTime => {
                self.sample_times(windows, queue, listed(), row);
            }
            RowKernel::Sum | RowKernel::Mean => {
                let is_mean = self.node.kernel.row_kernel == RowKernel::Mean;
                if !sums::fill(sums, windows, values, is_mean, row) {
                    return self.each(windows, resets, listed(), row, check);
                }
            }
            RowKernel::Variance | RowKernel::Deviation => {
                let is_root = self.node.kernel.row_kernel == RowKernel::Deviation;
                let result = |variance: f64| if is_root { variance.sqrt() } else { variance };
                if !variance::fill(columns, windows, values, result, row, check)? {
                    return self.each(windows, resets, listed(), row, check);
                }
            }
            RowKernel::Slope => {
                let line = LineFunction {
                    origin_ms: |_: usize, first: i64| first,
                    result: |_: usize, line: FittedLine| line.slope(),
                };
                if !regression::fill(regression, windows, listed(), line, row, check)? {
                    return self.each(windows, resets, listed(), row, check);
                }
            }
            RowKernel::Forecast => {
                let [ahead] = self.params.as_slice() else {
                    return self.each(windows, resets, listed(), row, check);
                };
                let line = LineFunction {
                    origin_ms: |step: usize, _: i64| self.grid.at(step),
                    result: |step: usize, line: FittedLine| line.at(ahead[step]),
                };
                if !regression::fill(regression, windows, listed(), line, row, check)? {
                    return self.each(windows, resets, listed(), row, check);
                }
            }
        }
        Ok(())
    }

    /// Fills a row with times of samples: of the first, last, least or greatest of each window.
    fn sample_times(
        &self,
        windows: &StepWindows,
        queue: &mut Vec<usize>,
        ListedSamples { times, values }: ListedSamples<'_>,
        row: &mut [f64],
    ) {
        let at = |index: usize| seconds(times[index]);
        match self.node.kernel.row_kernel {
            RowKernel::FirstTime => counting::each(windows, row, |from, _| at(from)),
            RowKernel::LastTime => counting::each(windows, row, |_, to| at(to - 1)),
            RowKernel::LeastTime => extremes::fill(windows, values, queue, row, |a, b| a <= b, at),
            _ => extremes::fill(windows, values, queue, row, |a, b| a >= b, at),
        }
    }

    /// Runs the scalar function on each window.
    fn each(
        &self,
        windows: &StepWindows,
        resets: &mut Vec<usize>,
        ListedSamples { times, values }: ListedSamples<'_>,
        row: &mut [f64],
        check: ContinueCheck<'_>,
    ) -> Result<(), Stopped> {
        let run = self.node.kernel.run;
        resets.clear();
        if self.node.kernel.needs_resets {
            drops(values, resets);
        }
        let mut params = vec![0.0; self.params.len()];
        let mut reset_range = 0..0;
        let mut interval = CheckInterval::default();
        for (step, (out, range)) in row.iter_mut().zip(windows.all()).enumerate() {
            let (from, to) = (range.from, range.to);
            if from == to {
                continue;
            }
            interval.add_samples(to - from, &mut *check)?;
            for (value, values) in params.iter_mut().zip(&self.params) {
                *value = values[step];
            }
            let at_ms = self.grid.at(step);
            let (start_ms, end_ms) = self.node.arg.edges(at_ms);
            reset_range = rates::within(resets, reset_range, from, to);
            let window = SampleWindow {
                times: &times[from..to],
                values: &values[from..to],
                start_ms,
                end_ms,
                at_ms,
                params: &params,
                resets: &resets[reset_range.clone()],
                first: from,
                starts: &[],
                extension: None,
            };
            if let Some(value) = run(&window) {
                *out = value;
            }
        }
        Ok(())
    }
}

/// Collects the indices of values that are lower than their predecessor. A comparison with NaN is
/// not a drop.
fn drops(values: &[f64], resets: &mut Vec<usize>) {
    resets.clear();
    simd_dispatch!(push_drops(values, resets));
}

#[inline(always)]
fn push_drops(values: &[f64], resets: &mut Vec<usize>) {
    let later = values.get(1..).unwrap_or_default();
    // Most chunks contain no drop; comparing them as a whole needs no branch per value.
    for (chunk, (before, after)) in values.chunks(64).zip(later.chunks(64)).enumerate() {
        if before.iter().zip(after).fold(false, |any, (before, value)| any | (value < before)) {
            let pairs = before.iter().zip(after).enumerate();
            let found = pairs.filter(|(_, (before, value))| value < before);
            resets.extend(found.map(|(i, _)| chunk * 64 + i + 1));
        }
    }
}

/// Returns whether any value is a staleness marker.
pub(super) fn any_stale(values: &[f64]) -> bool {
    // A marker is a NaN. NaNs are found several values at a time, and only those are examined.
    let any_nan = |chunk: &[f64]| chunk.iter().fold(false, |any, value| any | value.is_nan());
    simd_dispatch!(
        values.chunks(64).any(|chunk| any_nan(chunk) && chunk.iter().any(|value| is_stale(*value)))
    )
}
