//! Native histograms in an evaluation. They are evaluated separately, so that floats cost nothing
//! extra.
//!
//! The counter reset hint of each sample is computed when it is read, as in Prometheus's storage. A
//! sample of a counter that continues the previous one has the hint "not reset"; any other has the
//! hint "unknown". If only counts and sums are needed (`histogram_count` and similar functions),
//! a sample with lower counts than the previous one has the hint "reset", and any other that has a
//! previous one has "not reset".

mod aggregate;
mod edges;
mod functions;
mod operators;
mod rates;
mod windows;

pub(super) use aggregate::{format_value, remove_value};
pub(super) use operators::{OperatorResult, trims};

use std::sync::Arc;

use crate::model::{CounterReset, Histogram, HistogramColumns, TimeRange, is_stale};
use crate::promql::error::QueryError;
use crate::promql::histogram::FloatHistogram;
use crate::promql::numbers::seconds;
use crate::promql::plan::{Selector, SelectorOutput};
use crate::tsdb::{SampleColumns, SeriesId};

use super::Context;
use super::rows::{Grid, LabelledRows, is_absent, samples_of};
use super::start_timestamps::StartTimestamps;

/// Samples of one series: floats, and histograms at other times.
#[derive(Clone, Copy, Debug)]
pub(super) struct SeriesSamples<'s> {
    /// Ascending, in milliseconds.
    pub(super) times: &'s [i64],
    /// One for each time.
    pub(super) values: &'s [f64],
    pub(super) native: &'s NativeSamples,
    /// The series in the store; `None` for computed samples.
    pub(super) id: Option<SeriesId>,
}

/// The native histograms of one series.
#[derive(Clone, Debug, Default)]
pub(super) struct NativeSamples {
    /// Ascending, in milliseconds.
    pub(super) times: Vec<i64>,
    /// One for each time.
    pub(super) histograms: Vec<Arc<FloatHistogram>>,
}

impl NativeSamples {
    pub(super) fn is_empty(&self) -> bool {
        self.times.is_empty()
    }

    pub(super) fn clear(&mut self) {
        self.times.clear();
        self.histograms.clear();
    }

    pub(super) fn push(&mut self, at_ms: i64, histogram: Arc<FloatHistogram>) {
        self.times.push(at_ms);
        self.histograms.push(histogram);
    }

    /// Returns the bytes of memory of the histograms.
    pub(super) fn bytes(&self) -> usize {
        self.histograms.iter().map(|histogram| histogram.bytes() + 16).sum()
    }

    /// Returns the number of samples that the histograms count as.
    pub(super) fn samples(&self) -> usize {
        self.histograms.iter().map(|histogram| samples_of(histogram)).sum()
    }

    /// Converts stored histograms from time `from` on and returns the times of their staleness
    /// markers separately. Earlier histograms only determine the first reset hint.
    fn of(
        columns: &HistogramColumns,
        floats: &SampleColumns,
        from: i64,
        counts_only: bool,
    ) -> (NativeSamples, Vec<i64>) {
        let mut native = NativeSamples::default();
        let mut markers = Vec::new();
        let mut before: Option<(i64, FloatHistogram)> = None;
        for (at, stored) in columns.times.iter().zip(&columns.histograms) {
            if stored.is_stale() {
                before = None;
                if *at >= from {
                    markers.push(*at);
                }
                continue;
            }
            let histogram = FloatHistogram::from(stored);
            // A float in between ends the sequence.
            let since = before.take().filter(|(then, _)| {
                let next = floats.times.partition_point(|time| time <= then);
                floats.times.get(next).is_none_or(|time| time > at)
            });
            let reset =
                counter_reset_hint(stored, &histogram, since.as_ref().map(|(_, before)| before), counts_only);
            let histogram = histogram.with_reset(reset);
            if *at >= from {
                native.push(*at, Arc::new(histogram.clone()));
            }
            before = Some((*at, histogram));
        }
        (native, markers)
    }
}

/// Returns the counter reset hint of a sample that follows `before`.
fn counter_reset_hint(
    stored: &Histogram,
    histogram: &FloatHistogram,
    before: Option<&FloatHistogram>,
    counts_only: bool,
) -> CounterReset {
    if stored.reset() == CounterReset::Gauge {
        return CounterReset::Gauge;
    }
    let Some(before) = before.filter(|before| !before.is_gauge()) else { return CounterReset::Unknown };
    let same_layout = before.schema() == histogram.schema()
        && before.zero_threshold().to_bits() == histogram.zero_threshold().to_bits()
        && before.custom_values() == histogram.custom_values();
    let began = histogram.is_less_than(before);
    if same_layout && !began && stored.reset() != CounterReset::Reset {
        return CounterReset::NotReset;
    }
    match (counts_only, began) {
        (false, _) => CounterReset::Unknown,
        (true, true) => CounterReset::Reset,
        (true, false) => CounterReset::NotReset,
    }
}

/// Buffers for the samples of one series.
#[derive(Default)]
pub(super) struct SampleBuffers {
    pub(super) floats: SampleColumns,
    stored: HistogramColumns,
    pub(super) native: NativeSamples,
    /// Times of staleness markers among the histograms.
    markers: Vec<i64>,
}

impl SampleBuffers {
    /// Returns whether the series has histograms in the range that was read, including the lookback
    /// before it.
    pub(super) fn has_histograms(&self) -> bool {
        !self.stored.is_empty()
    }

    pub(super) fn samples(&self, id: Option<SeriesId>) -> SeriesSamples<'_> {
        SeriesSamples { times: &self.floats.times, values: &self.floats.values, native: &self.native, id }
    }
}

impl Context<'_> {
    /// Reads one series and counts the samples.
    pub(super) fn read(&self, id: SeriesId, range: TimeRange, counts_only: bool, into: &mut SampleBuffers) {
        // The first reset hint needs the previous sample, which is at most a lookback before the
        // range.
        let from = range.start.plus_ms(self.options.lookback_ms.saturating_neg());
        self.snapshot.read_both(id, range, from, &mut into.floats, &mut into.stored);
        self.meter.read_samples(into.floats.times.len());
        into.native.clear();
        into.markers.clear();
        if !into.stored.is_empty() {
            let start = range.start.as_ms();
            (into.native, into.markers) = NativeSamples::of(&into.stored, &into.floats, start, counts_only);
            self.meter.read_samples(into.native.samples());
        }
    }

    /// Fills the last row for an instant selector over a series with histograms: at each step the
    /// newest sample of either kind.
    pub(super) fn select_native(
        &self,
        selector: &Selector,
        grid: Grid,
        id: SeriesId,
        buffers: &SampleBuffers,
        rows: &mut LabelledRows,
    ) -> Result<(), QueryError> {
        let SampleBuffers { floats, native, markers, .. } = buffers;
        let row = rows.len() - 1;
        rows.charge_shared(native.bytes())?;
        if selector.look == SelectorOutput::Start && !self.options.use_start_timestamps {
            return Ok(());
        }
        let (mut float_starts, mut native_starts) = (StartTimestamps::default(), StartTimestamps::default());
        if selector.look == SelectorOutput::Start {
            float_starts = self.start_timestamps(Some(id), &floats.times);
            native_starts = self.start_timestamps(Some(id), &native.times);
        }
        let start = |starts: &StartTimestamps, i: usize| seconds(starts.of.get(i).copied().unwrap_or(0));
        for step in 0..grid.len {
            let eval_ms = selector.when.look(grid.at(step));
            if selector.look == SelectorOutput::Smoothed {
                self.smooth_native(selector, eval_ms, &buffers.samples(Some(id)), step, rows)?;
                continue;
            }
            let oldest = eval_ms.saturating_sub(self.options.lookback_ms);
            let float = newest(&floats.times, eval_ms).map(|i| (floats.times[i], i));
            let histogram = newest(&native.times, eval_ms).map(|i| (native.times[i], i));
            let marker = newest(markers, eval_ms).map_or(i64::MIN, |i| markers[i]);
            let Some(at) = float.map(|(at, _)| at).max(histogram.map(|(at, _)| at)) else { continue };
            let float = float.filter(|(time, _)| *time == at).map(|(_, i)| i);
            // A staleness marker hides all earlier samples.
            let stale = float.is_some_and(|i| is_stale(floats.values[i]));
            if at <= oldest || marker > at || stale {
                continue;
            }
            let value = match (selector.look, float, histogram) {
                (SelectorOutput::Time, ..) => seconds(at),
                (SelectorOutput::Start, Some(i), _) => start(&float_starts, i),
                (SelectorOutput::Start, None, Some((_, i))) => start(&native_starts, i),
                (_, Some(i), _) => floats.values[i],
                (_, None, Some((_, i))) => {
                    rows.put_histogram(row, step, Arc::clone(&native.histograms[i]))?;
                    continue;
                }
                (_, None, None) => continue,
            };
            rows.row_mut(row)[step] = value;
        }
        Ok(())
    }
}

/// Returns the index of the newest time that is not after `look`.
fn newest(times: &[i64], eval_ms: i64) -> Option<usize> {
    times.partition_point(|at| *at <= eval_ms).checked_sub(1)
}

/// Collects the histograms of a subquery's row. Reset hints become unknown, because they refer to
/// neighbours in the original series.
pub(super) fn native_of_row(rows: &LabelledRows, row: usize, grid: Grid, into: &mut NativeSamples) {
    into.clear();
    for (step, histogram) in rows.row_histograms(row) {
        let is_known = matches!(histogram.reset(), CounterReset::Reset | CounterReset::NotReset);
        let histogram = if is_known {
            Arc::new(FloatHistogram::clone(histogram).with_reset(CounterReset::Unknown))
        } else {
            Arc::clone(histogram)
        };
        into.push(grid.at(step), histogram);
    }
}

/// Replaces histograms by `number` of their step.
pub(super) fn with_numbers(mut rows: LabelledRows, number: impl Fn(usize) -> f64) -> LabelledRows {
    if !rows.has_histograms() {
        return rows;
    }
    for row in 0..rows.len() {
        for step in 0..rows.steps() {
            if rows.take_histogram(row, step).is_some() {
                rows.row_mut(row)[step] = number(step);
            }
        }
    }
    rows.without_empty()
}

/// Sets all values of either kind to 1, for aggregations that only count samples. Histograms are
/// removed.
pub(super) fn count_as_one(mut rows: LabelledRows) -> LabelledRows {
    for row in 0..rows.len() {
        for step in 0..rows.steps() {
            if rows.take_histogram(row, step).is_some() || !is_absent(rows.row(row)[step]) {
                rows.row_mut(row)[step] = 1.0;
            }
        }
    }
    rows
}
