//! Native histograms in an evaluation: slow but right, beside the floats and never in their way.
//!
//! What is known of counter resets is told anew when samples are read, as Prometheus' storage does: a sample of a counter
//! that goes on from the one before says so, one that does not, or that has none before it, says nothing. Where only
//! counts and sums are asked for (`histogram_count` and its kin), one that does not go on says that it began anew.

mod aggregate;
mod edges;
mod functions;
mod operators;
mod rates;
mod windows;

pub(super) use aggregate::{clear, printed};
pub(super) use operators::{Outcome, trims};

use std::sync::Arc;

use crate::model::{CounterReset, Histogram, HistogramColumns, TimeRange, is_stale};
use crate::promql::functions::seconds;
use crate::promql::plan::{Selector, SelectorOutput};
use crate::promql::{FloatHistogram, QueryError};
use crate::tsdb::{SampleColumns, SeriesId};

use super::Context;
use super::rows::{Grid, Rows, is_absent, samples_of};
use super::starts::Starts;

/// One series' samples: floats, and histograms at other times.
#[derive(Clone, Copy, Debug)]
pub(super) struct Samples<'s> {
    /// Ascending.
    pub(super) times: &'s [i64],
    /// As many.
    pub(super) values: &'s [f64],
    pub(super) native: &'s Native,
    /// Who it is in the store; samples that were computed are nobody's.
    pub(super) id: Option<SeriesId>,
}

/// One series' native histograms.
#[derive(Clone, Debug, Default)]
pub(super) struct Native {
    /// Ascending.
    pub(super) times: Vec<i64>,
    /// As many.
    pub(super) histograms: Vec<Arc<FloatHistogram>>,
}

impl Native {
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

    /// How much memory they take.
    pub(super) fn bytes(&self) -> usize {
        self.histograms.iter().map(|histogram| histogram.bytes() + 16).sum()
    }

    /// How many samples they count for.
    pub(super) fn samples(&self) -> usize {
        self.histograms.iter().map(|histogram| samples_of(histogram)).sum()
    }

    /// Drops what is before `from`, markers included, and tells where the markers were.
    fn of(
        columns: &HistogramColumns,
        floats: &SampleColumns,
        from: i64,
        counts_only: bool,
    ) -> (Native, Vec<i64>) {
        let mut native = Native::default();
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
            // A float in between ends what went on.
            let since = before.take().filter(|(then, _)| {
                let next = floats.times.partition_point(|time| time <= then);
                floats.times.get(next).is_none_or(|time| time > at)
            });
            let reset = told(stored, &histogram, since.as_ref().map(|(_, before)| before), counts_only);
            let histogram = histogram.with_reset(reset);
            if *at >= from {
                native.push(*at, Arc::new(histogram.clone()));
            }
            before = Some((*at, histogram));
        }
        (native, markers)
    }
}

/// What a sample says of resets once it is read.
fn told(
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

/// Where a series' samples are read into.
#[derive(Default)]
pub(super) struct Readings {
    pub(super) floats: SampleColumns,
    stored: HistogramColumns,
    pub(super) native: Native,
    /// Times of histograms that say the series has ended.
    markers: Vec<i64>,
}

impl Readings {
    /// Whether there is anything but floats.
    pub(super) fn has_histograms(&self) -> bool {
        !self.stored.is_empty()
    }

    pub(super) fn samples(&self, id: Option<SeriesId>) -> Samples<'_> {
        Samples { times: &self.floats.times, values: &self.floats.values, native: &self.native, id }
    }
}

impl Context<'_> {
    /// Reads one series whole, and counts what was read.
    pub(super) fn read(&self, id: SeriesId, range: TimeRange, counts_only: bool, into: &mut Readings) {
        // Where no sample is before the range, what went on is unknown: a lookback's worth is enough to find one.
        let from = range.start.plus_ms(self.options.lookback_ms.saturating_neg());
        self.snapshot.read_both(id, range, from, &mut into.floats, &mut into.stored);
        self.meter.read_samples(into.floats.times.len());
        into.native.clear();
        into.markers.clear();
        if !into.stored.is_empty() {
            let start = range.start.as_ms();
            (into.native, into.markers) = Native::of(&into.stored, &into.floats, start, counts_only);
            self.meter.read_samples(into.native.samples());
        }
    }

    /// An instant selector's row over a series that has histograms: for each step the newest sample of either kind.
    pub(super) fn select_native(
        &self,
        selector: &Selector,
        grid: Grid,
        id: SeriesId,
        readings: &Readings,
        rows: &mut Rows,
    ) -> Result<(), QueryError> {
        let Readings { floats, native, markers, .. } = readings;
        let row = rows.len() - 1;
        rows.pay_for(native.bytes())?;
        if selector.look == SelectorOutput::Start && !self.options.use_start_timestamps {
            return Ok(());
        }
        let (mut float_starts, mut native_starts) = (Starts::default(), Starts::default());
        if selector.look == SelectorOutput::Start {
            float_starts = self.starts_of(Some(id), &floats.times);
            native_starts = self.starts_of(Some(id), &native.times);
        }
        let start = |starts: &Starts, i: usize| seconds(starts.of.get(i).copied().unwrap_or(0));
        for step in 0..grid.len {
            let look = selector.when.look(grid.at(step));
            if selector.look == SelectorOutput::Smoothed {
                self.smooth_native(selector, look, (&readings.samples(Some(id)), step), rows)?;
                continue;
            }
            let oldest = look.saturating_sub(self.options.lookback_ms);
            let float = newest(&floats.times, look).map(|i| (floats.times[i], i));
            let histogram = newest(&native.times, look).map(|i| (native.times[i], i));
            let marker = newest(markers, look).map_or(i64::MIN, |i| markers[i]);
            let Some(at) = float.map(|(at, _)| at).max(histogram.map(|(at, _)| at)) else { continue };
            let float = float.filter(|(time, _)| *time == at).map(|(_, i)| i);
            // A marker hides everything before it.
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

/// The place of the newest time that is not after `look`.
fn newest(times: &[i64], look: i64) -> Option<usize> {
    times.partition_point(|at| *at <= look).checked_sub(1)
}

/// The samples a row of a subquery has: what it knew of resets is about its neighbours in the series, which are not
/// its neighbours any more.
pub(super) fn native_of_row(rows: &Rows, row: usize, grid: Grid, into: &mut Native) {
    into.clear();
    for (step, histogram) in rows.row_histograms(row) {
        let known = matches!(histogram.reset(), CounterReset::Reset | CounterReset::NotReset);
        let histogram = if known {
            Arc::new(FloatHistogram::clone(histogram).with_reset(CounterReset::Unknown))
        } else {
            Arc::clone(histogram)
        };
        into.push(grid.at(step), histogram);
    }
}

/// Numbers in place of histograms, by the step.
pub(super) fn numbered(mut rows: Rows, number: impl Fn(usize) -> f64) -> Rows {
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

/// Writes a one wherever a row has a value of either kind: what counts samples, and not what they are.
pub(super) fn presence(mut rows: Rows) -> Rows {
    for row in 0..rows.len() {
        for step in 0..rows.steps() {
            if rows.take_histogram(row, step).is_some() || !is_absent(rows.row(row)[step]) {
                rows.row_mut(row)[step] = 1.0;
            }
        }
    }
    rows
}
