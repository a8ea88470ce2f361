//! Functions of windows over series that have native histograms.

use std::ops::Range;
use std::sync::Arc;

use crate::promql::functions::{NativeWork, count, seconds};
use crate::promql::histogram::{HistogramMean, HistogramSum};
use crate::promql::plan::WindowNode;
use crate::promql::{FloatHistogram, QueryError};

use super::rates::{NativeWindow, Remark, extrapolated, last_change};
use super::{Context, Grid, Rows, Samples};
use crate::promql::eval::rows::{ABSENT, is_absent};

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
    native: NativeWindow<'w>,
}

/// A sample of either kind.
#[derive(Clone, Copy)]
enum Sample<'w> {
    Float(f64),
    Histogram(&'w Arc<FloatHistogram>),
}

impl<'w> Mixed<'w> {
    /// All samples in order of time.
    fn all(&self) -> impl Iterator<Item = (i64, Sample<'w>)> {
        let mut floats = self.times.iter().zip(self.values).peekable();
        let mut histograms = self.native.times.iter().zip(self.native.histograms).peekable();
        std::iter::from_fn(move || {
            let float_is_next = match (floats.peek(), histograms.peek()) {
                (Some((float, _)), Some((histogram, _))) => float < histogram,
                (float, _) => float.is_some(),
            };
            if float_is_next {
                floats.next().map(|(at, value)| (*at, Sample::Float(*value)))
            } else {
                histograms.next().map(|(at, histogram)| (*at, Sample::Histogram(histogram)))
            }
        })
    }

    fn is_mixed(&self) -> bool {
        !self.times.is_empty()
    }

    /// How often two neighbours differ in a way that counts.
    fn count_pairs(
        &self,
        floats: fn(f64, f64) -> bool,
        histograms: fn(&FloatHistogram, &FloatHistogram) -> bool,
    ) -> f64 {
        let mut found = 0;
        let mut before: Option<Sample<'_>> = None;
        for (_, sample) in self.all() {
            let differs = match (before, sample) {
                (None, _) => false,
                (Some(Sample::Float(a)), Sample::Float(b)) => floats(a, b),
                (Some(Sample::Histogram(a)), Sample::Histogram(b)) => histograms(a, b),
                _ => true,
            };
            found += usize::from(differs);
            before = Some(sample);
        }
        count(found)
    }

    /// `irate` and `idelta`: nothing is said of two floats, which are computed as such.
    fn last_two(&self, counter: bool, remarks: &mut Vec<Remark>) -> Option<Found> {
        let mut last: [Option<(i64, Sample<'_>)>; 2] = [None, None];
        for sample in self.all() {
            last = [last[1], Some(sample)];
        }
        let [Some((then, before)), Some((now, last))] = last else { return Some(Found::Nothing) };
        match (before, last) {
            (Sample::Float(_), Sample::Float(_)) => None,
            (Sample::Histogram(before), Sample::Histogram(last)) => {
                Some(last_change(before, last, now - then, counter, remarks).into())
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
        let mut remarks = Vec::new();
        for step in 0..grid.len {
            self.budget.check()?;
            let end_ms = node.arg.when.look(grid.at(step));
            let start_ms = end_ms.saturating_sub(node.arg.range_ms);
            let inside = |times: &[i64]| -> Range<usize> {
                times.partition_point(|at| *at <= start_ms)..times.partition_point(|at| *at <= end_ms)
            };
            let (floats, native) = (inside(samples.times), inside(&samples.native.times));
            if native.is_empty() {
                continue;
            }
            let window = Mixed {
                times: &samples.times[floats.clone()],
                values: &samples.values[floats],
                native: NativeWindow {
                    times: &samples.native.times[native.clone()],
                    histograms: &samples.native.histograms[native],
                    start_ms,
                    end_ms,
                },
            };
            let Some(found) = self.native_window(node, name, &window, &mut remarks) else { continue };
            for remark in remarks.drain(..) {
                self.remark(remark, node, name);
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
            NativeWork::Sum | NativeWork::Mean | NativeWork::Rate | NativeWork::Increase | NativeWork::Delta
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
            NativeWork::PassOver => {
                if window.is_mixed() {
                    let text = format!(
                        "ignored histograms in a range containing both floats and histograms for metric name \
                         {name:?}"
                    );
                    self.notes.borrow_mut().info(node.arg_span, text);
                }
                return None;
            }
            NativeWork::Count => Found::Float(count(window.times.len() + window.native.times.len())),
            NativeWork::Present => Found::Float(1.0),
            NativeWork::First => sample(window.all().next()),
            NativeWork::Last => sample(window.all().last()),
            NativeWork::FirstTime => time(window.all().next()),
            NativeWork::LastTime => time(window.all().last()),
            NativeWork::Sum => window.sum(remarks).into(),
            NativeWork::Mean => window.mean(remarks).into(),
            NativeWork::Rate => extrapolated(&window.native, true, true, remarks).into(),
            NativeWork::Increase => extrapolated(&window.native, true, false, remarks).into(),
            NativeWork::Delta => extrapolated(&window.native, false, false, remarks).into(),
            NativeWork::LastRate => return window.last_two(true, remarks),
            NativeWork::LastDelta => return window.last_two(false, remarks),
            NativeWork::Resets => {
                Found::Float(window.count_pairs(|a, b| b < a, |before, now| now.is_reset_since(before)))
            }
            NativeWork::Changes => {
                let differ = |a: f64, b: f64| a != b && !(a.is_nan() && b.is_nan());
                Found::Float(window.count_pairs(differ, |before, now| !now.equals(before)))
            }
        })
    }

    fn remark(&self, remark: Remark, node: &WindowNode, name: &str) {
        let mut notes = self.notes.borrow_mut();
        let span = node.arg_span;
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
