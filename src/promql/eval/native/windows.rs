//! Functions of windows over series that have native histograms.

use std::ops::Range;
use std::sync::Arc;

use crate::promql::functions::{NativeKernel, count, seconds};
use crate::promql::histogram::{HistogramMean, HistogramSum};
use crate::promql::plan::WindowNode;
use crate::promql::{FloatHistogram, QueryError};

use super::rates::{NativeWindow, Remark, last_change, rate};
use super::{Context, Grid, Rows, Samples, Starts};
use crate::promql::eval::rows::{ABSENT, is_absent};
use crate::promql::eval::starts::began_between;
use crate::promql::syntax::tree::{Extension, Span};

/// What a window yields.
enum Found {
    Nothing,
    Float(f64),
    Histogram(Arc<FloatHistogram>),
}

impl From<Option<FloatHistogram>> for Found {
    fn from(histogram: Option<FloatHistogram>) -> Found {
        histogram.map_or(Found::Nothing, |histogram| Found::Histogram(Arc::new(histogram)))
    }
}

/// One window with histograms, and floats perhaps.
struct Mixed<'w> {
    times: &'w [i64],
    values: &'w [f64],
    /// As in [`NativeWindow::starts`].
    starts: &'w [i64],
    native: NativeWindow<'w>,
}

/// A sample of either kind.
#[derive(Clone, Copy)]
enum Sample<'w> {
    Float(f64),
    Histogram(&'w Arc<FloatHistogram>),
}

impl<'w> Mixed<'w> {
    /// All samples in order of time, with their times.
    fn all(&self) -> impl Iterator<Item = (i64, Sample<'w>)> {
        self.with_starts().map(|(at, _, sample)| (at, sample))
    }

    /// The same with start timestamps.
    fn with_starts(&self) -> impl Iterator<Item = (i64, i64, Sample<'w>)> {
        let (times, values, starts, native) = (self.times, self.values, self.starts, self.native);
        let (mut float, mut histogram) = (0, 0);
        std::iter::from_fn(move || {
            let float_is_next = match (times.get(float), native.times.get(histogram)) {
                (Some(float), Some(histogram)) => float < histogram,
                (float, _) => float.is_some(),
            };
            if float_is_next {
                let (at, value) = (times.get(float)?, values.get(float)?);
                let start = starts.get(float).copied().unwrap_or(0);
                float += 1;
                return Some((*at, start, Sample::Float(*value)));
            }
            let (at, start) = (native.times.get(histogram)?, native.start(histogram));
            let found = native.histograms.get(histogram)?;
            histogram += 1;
            Some((*at, start, Sample::Histogram(found)))
        })
    }

    /// The samples that an anchored window looks at: from the last one at or before its start, if any is inside. All of
    /// any other window.
    fn anchored(&self) -> Vec<(i64, i64, Sample<'w>)> {
        let all: Vec<_> = self.with_starts().collect();
        if self.native.extension != Some(Extension::Anchored) {
            return all;
        }
        let before = all.partition_point(|(at, ..)| *at <= self.native.start_ms);
        if before == all.len() { Vec::new() } else { all[before.saturating_sub(1)..].to_vec() }
    }

    fn is_mixed(&self) -> bool {
        !self.times.is_empty()
    }

    /// How often two neighbours differ in a way that counts; of resets, those that start timestamps tell of too.
    fn count_pairs(
        &self,
        resets: bool,
        floats: fn(f64, f64) -> bool,
        histograms: fn(&FloatHistogram, &FloatHistogram) -> bool,
    ) -> Found {
        let samples = self.anchored();
        if samples.is_empty() {
            return Found::Nothing;
        }
        let differ = |pair: &&[(i64, i64, Sample<'_>)]| {
            let [(then, before_start, before), (at, start, now)] = **pair else { return false };
            let began = resets && began_between((then, before_start), (at, start));
            match (before, now) {
                (Sample::Float(a), Sample::Float(b)) => began || floats(a, b),
                (Sample::Histogram(a), Sample::Histogram(b)) => began || histograms(a, b),
                _ => true,
            }
        };
        Found::Float(count(samples.windows(2).filter(differ).count()))
    }

    /// `irate` and `idelta`: nothing is said of two floats, which are computed as such.
    fn last_two(&self, counter: bool, remarks: &mut Vec<Remark>) -> Option<Found> {
        let mut last: [Option<(i64, i64, Sample<'_>)>; 2] = [None, None];
        for sample in self.with_starts() {
            last = [last[1], Some(sample)];
        }
        let [Some((then, before_start, before)), Some((now, start, last))] = last else {
            return Some(Found::Nothing);
        };
        let began = began_between((then, before_start), (now, start));
        match (before, last) {
            (Sample::Float(_), Sample::Float(_)) => None,
            (Sample::Histogram(before), Sample::Histogram(last)) => {
                Some(last_change(before, last, (now - then, began), counter, remarks).into())
            }
            _ => {
                remarks.push(Remark::Mixed);
                Some(Found::Nothing)
            }
        }
    }

    fn sum(&self, remarks: &mut Vec<Remark>) -> Option<FloatHistogram> {
        let (first, rest) = self.native.histograms.split_first()?;
        let mut sum = HistogramSum::of(first);
        let added = rest.iter().try_for_each(|histogram| sum.add(histogram));
        remark_sum(&sum, added.is_ok(), remarks);
        added.ok().map(|()| sum.value())
    }

    fn mean(&self, remarks: &mut Vec<Remark>) -> Option<FloatHistogram> {
        let (first, rest) = self.native.histograms.split_first()?;
        let mut mean = HistogramMean::of(first);
        let added = rest.iter().try_for_each(|histogram| mean.add(histogram));
        remark_sum(mean.sum(), added.is_ok(), remarks);
        added.ok().map(|()| mean.value())
    }
}

fn remark_sum(sum: &HistogramSum, added: bool, remarks: &mut Vec<Remark>) {
    if !added {
        remarks.push(Remark::MixedBuckets);
        return;
    }
    if sum.resets_conflict() {
        remarks.push(Remark::ResetsConflict);
    }
    if sum.reconciled {
        remarks.push(Remark::Reconciled);
    }
}

impl Context<'_> {
    /// Goes over the windows of a row that has histograms, once its floats are computed as if there were no others.
    pub(in crate::promql::eval) fn fill_native(
        &self,
        node: &WindowNode,
        grid: Grid,
        name: &str,
        samples: Samples<'_>,
        rows: &mut Rows,
    ) -> Result<(), QueryError> {
        let row = rows.len() - 1;
        let (times, native_times) = (samples.times, &samples.native.times[..]);
        let (mut float_starts, mut starts) = (Starts::default(), Starts::default());
        if node.kernel.uses_starts {
            float_starts = self.starts_of(samples.id, times);
            starts = self.starts_of(samples.id, native_times);
        }
        let (before_ms, after_ms) = self.around(&node.arg);
        let mut remarks = Vec::new();
        let resets = self.resets_of(node, &samples.native.histograms)?;
        for step in 0..grid.len {
            self.budget.check()?;
            let (start_ms, end_ms) = node.arg.edges(grid.at(step));
            let inside = |times: &[i64]| -> Range<usize> {
                let (from, to) = (start_ms.saturating_sub(before_ms), end_ms.saturating_add(after_ms));
                times.partition_point(|at| *at <= from)..times.partition_point(|at| *at <= to)
            };
            let (floats, native) = (inside(times), inside(native_times));
            if native.is_empty() {
                continue;
            }
            let window = Mixed {
                times: &times[floats.clone()],
                values: &samples.values[floats.clone()],
                starts: float_starts.of.get(floats).unwrap_or_default(),
                native: NativeWindow {
                    times: &native_times[native.clone()],
                    histograms: &samples.native.histograms[native.clone()],
                    starts: starts.of.get(native.clone()).unwrap_or_default(),
                    resets: resets.get(native.clone()).unwrap_or_default(),
                    start_ms,
                    end_ms,
                    extension: node.arg.extension,
                },
            };
            let overlaps = starts.overlaps.iter().any(|i| *i > native.start && *i < native.end);
            if overlaps && node.kernel.counts && node.arg.extension.is_none() {
                self.doubt_starts(node, name);
            }
            let Some(found) = self.native_window(node, name, &window, &mut remarks) else { continue };
            for remark in remarks.drain(..) {
                self.remark(remark, node.arg_span, name);
            }
            rows.row_mut(row)[step] = ABSENT;
            match found {
                Found::Nothing => {}
                Found::Float(value) => rows.row_mut(row)[step] = value,
                Found::Histogram(histogram) => rows.put_histogram(row, step, histogram)?,
            }
        }
        Ok(())
    }

    /// For functions that look at every neighbour in each window: whether counts went down, once for all windows. What they
    /// add up besides, they have to add up in each window in order.
    fn resets_of(
        &self,
        node: &WindowNode,
        histograms: &[Arc<FloatHistogram>],
    ) -> Result<Vec<bool>, QueryError> {
        let mut resets = Vec::new();
        if matches!(node.kernel.native, NativeKernel::Rate | NativeKernel::Increase) {
            resets.push(false);
            for pair in histograms.windows(2) {
                if resets.len() % 256 == 0 {
                    self.budget.check()?;
                }
                resets.push(pair[1].is_reset_since(&pair[0]));
            }
        }
        Ok(resets)
    }

    /// What a window with histograms yields; nothing where its floats decide.
    fn native_window(
        &self,
        node: &WindowNode,
        name: &str,
        window: &Mixed<'_>,
        remarks: &mut Vec<Remark>,
    ) -> Option<Found> {
        let work = node.kernel.native;
        let needs_one_kind = matches!(
            work,
            NativeKernel::Sum
                | NativeKernel::Mean
                | NativeKernel::Rate
                | NativeKernel::Increase
                | NativeKernel::Delta
        );
        if needs_one_kind && window.is_mixed() {
            remarks.push(Remark::Mixed);
            return Some(Found::Nothing);
        }
        let sample = |sample: Option<(i64, Sample<'_>)>| match sample {
            Some((_, Sample::Float(value))) => Found::Float(value),
            Some((_, Sample::Histogram(histogram))) => Found::Histogram(Arc::clone(histogram)),
            None => Found::Nothing,
        };
        let time = |sample: Option<(i64, Sample<'_>)>| {
            sample.map_or(Found::Nothing, |(at, _)| Found::Float(seconds(at)))
        };
        Some(match work {
            NativeKernel::FloatsOnly => {
                if window.is_mixed() {
                    let text = format!(
                        "ignored histograms in a range containing both floats and histograms for metric name \
                         {name:?}"
                    );
                    // Upstream points at the first argument, whichever that is.
                    self.notes.borrow_mut().info(node.param_span, text);
                }
                return None;
            }
            NativeKernel::Count => Found::Float(count(window.times.len() + window.native.times.len())),
            NativeKernel::Present => Found::Float(1.0),
            NativeKernel::First => sample(window.all().next()),
            NativeKernel::Last => sample(window.all().last()),
            NativeKernel::FirstTime => time(window.all().next()),
            NativeKernel::LastTime => time(window.all().last()),
            NativeKernel::Sum => window.sum(remarks).into(),
            NativeKernel::Mean => window.mean(remarks).into(),
            NativeKernel::Rate => rate(&window.native, true, true, remarks).into(),
            NativeKernel::Increase => rate(&window.native, true, false, remarks).into(),
            NativeKernel::Delta => rate(&window.native, false, false, remarks).into(),
            NativeKernel::LastRate => return window.last_two(true, remarks),
            NativeKernel::LastDelta => return window.last_two(false, remarks),
            NativeKernel::Resets => {
                window.count_pairs(true, |a, b| b < a, |before, now| now.is_reset_since(before))
            }
            NativeKernel::Changes => {
                let differ = |a: f64, b: f64| a != b && !(a.is_nan() && b.is_nan());
                window.count_pairs(false, differ, |before, now| !now.equals(before))
            }
        })
    }

    /// Says what is to be said, of the metric `name`.
    pub(super) fn remark(&self, remark: Remark, span: Span, name: &str) {
        let mut notes = self.notes.borrow_mut();
        match remark {
            Remark::Mixed => notes
                .warn(span, format!("encountered a mix of histograms and floats for metric name {name:?}")),
            Remark::MixedBuckets => notes.warn(span, mixed_buckets(name)),
            Remark::NotCounter => {
                notes.warn(span, format!("this native histogram metric is not a counter: {name:?}"));
            }
            Remark::NotGauge => {
                notes.warn(span, format!("this native histogram metric is not a gauge: {name:?}"));
            }
            Remark::ReconciledAdding => notes.info(span, reconciled("addition")),
            Remark::ReconciledSubtracting => notes.info(span, reconciled("subtraction")),
            Remark::Reconciled => notes.info(span, reconciled("aggregation")),
            Remark::ResetsConflict => notes.warn(span, conflicting("aggregation")),
        }
    }

    /// Whether a row has a float anywhere.
    pub(in crate::promql::eval) fn has_floats(rows: &Rows, row: usize) -> bool {
        rows.row(row).iter().any(|value| !is_absent(*value))
    }
}

/// Exponential and custom buckets in one place.
pub(super) fn mixed_buckets(name: &str) -> String {
    format!(
        "vector contains a mix of histograms with exponential and custom buckets schemas for metric name {name:?}"
    )
}

/// Custom bounds that differ, and what was done then.
pub(super) fn reconciled(what: &str) -> String {
    format!("mismatched custom buckets were reconciled during {what}")
}

/// Samples that contradict each other.
pub(super) fn conflicting(what: &str) -> String {
    format!("conflicting counter resets during histogram {what}")
}
