//! Window functions over series with native histograms.

use std::ops::Range;
use std::sync::Arc;

use crate::promql::error::QueryError;
use crate::promql::functions::NativeKernel;
use crate::promql::histogram::{FloatHistogram, HistogramMean, HistogramSum};
use crate::promql::numbers::{count, seconds};
use crate::promql::plan::WindowNode;

use super::rates::{NativeWindow, WindowNote, last_change, rate};
use super::{Context, Grid, LabelledRows, SeriesSamples, StartTimestamps};
use crate::promql::eval::rows::{ABSENT, is_absent};
use crate::promql::eval::start_timestamps::{TimedStart, restarted_between};
use crate::promql::syntax::tree::{Extension, Span};

/// The result of a window.
enum WindowResult {
    Nothing,
    Float(f64),
    Histogram(Arc<FloatHistogram>),
}

impl From<Option<FloatHistogram>> for WindowResult {
    fn from(histogram: Option<FloatHistogram>) -> WindowResult {
        histogram.map_or(WindowResult::Nothing, |histogram| WindowResult::Histogram(Arc::new(histogram)))
    }
}

/// A window with histograms, and possibly floats.
struct MixedWindow<'w> {
    times: &'w [i64],
    values: &'w [f64],
    /// The start timestamps of the floats, like [`NativeWindow::starts`].
    starts: &'w [i64],
    native: NativeWindow<'w>,
}

/// A sample of either kind.
#[derive(Clone, Copy)]
enum EitherSample<'w> {
    Float(f64),
    Histogram(&'w Arc<FloatHistogram>),
}

impl<'w> MixedWindow<'w> {
    /// Returns all samples with their times, in order of time.
    fn all(&self) -> impl Iterator<Item = (i64, EitherSample<'w>)> {
        self.with_starts().map(|(at, _, sample)| (at, sample))
    }

    /// Like `all`, with start timestamps.
    fn with_starts(&self) -> impl Iterator<Item = (i64, i64, EitherSample<'w>)> {
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
                return Some((*at, start, EitherSample::Float(*value)));
            }
            let (at, start) = (native.times.get(histogram)?, native.start(histogram));
            let found = native.histograms.get(histogram)?;
            histogram += 1;
            Some((*at, start, EitherSample::Histogram(found)))
        })
    }

    /// Returns the samples of an anchored window: from the last one at or before its start, or none
    /// if no sample is inside. Returns all samples of any other window.
    fn anchored(&self) -> Vec<(i64, i64, EitherSample<'w>)> {
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

    /// Counts the neighbouring samples that differ. For `resets`, restarts shown by start
    /// timestamps count as well.
    fn count_pairs(
        &self,
        resets: bool,
        floats: fn(f64, f64) -> bool,
        histograms: fn(&FloatHistogram, &FloatHistogram) -> bool,
    ) -> WindowResult {
        let samples = self.anchored();
        if samples.is_empty() {
            return WindowResult::Nothing;
        }
        let differ = |pair: &&[(i64, i64, EitherSample<'_>)]| {
            let [(then, before_start, before), (at, start, now)] = **pair else { return false };
            let began = resets
                && restarted_between(TimedStart { at: then, start: before_start }, TimedStart { at, start });
            match (before, now) {
                (EitherSample::Float(a), EitherSample::Float(b)) => began || floats(a, b),
                (EitherSample::Histogram(a), EitherSample::Histogram(b)) => began || histograms(a, b),
                _ => true,
            }
        };
        WindowResult::Float(count(samples.windows(2).filter(differ).count()))
    }

    /// Computes `irate` and `idelta`. Returns `None` if both samples are floats, whose result the
    /// float evaluation provides.
    fn last_two(&self, counter: bool, window_notes: &mut Vec<WindowNote>) -> Option<WindowResult> {
        let mut last: [Option<(i64, i64, EitherSample<'_>)>; 2] = [None, None];
        for sample in self.with_starts() {
            last = [last[1], Some(sample)];
        }
        let [Some((then, before_start, before)), Some((now, start, last))] = last else {
            return Some(WindowResult::Nothing);
        };
        let began =
            restarted_between(TimedStart { at: then, start: before_start }, TimedStart { at: now, start });
        match (before, last) {
            (EitherSample::Float(_), EitherSample::Float(_)) => None,
            (EitherSample::Histogram(before), EitherSample::Histogram(last)) => {
                Some(last_change(before, last, now - then, began, counter, window_notes).into())
            }
            _ => {
                window_notes.push(WindowNote::Mixed);
                Some(WindowResult::Nothing)
            }
        }
    }

    fn sum(&self, window_notes: &mut Vec<WindowNote>) -> Option<FloatHistogram> {
        let (first, rest) = self.native.histograms.split_first()?;
        let mut sum = HistogramSum::of(first);
        let added = rest.iter().try_for_each(|histogram| sum.add(histogram));
        note_sum(&sum, added.is_ok(), window_notes);
        added.ok().map(|()| sum.value())
    }

    fn mean(&self, window_notes: &mut Vec<WindowNote>) -> Option<FloatHistogram> {
        let (first, rest) = self.native.histograms.split_first()?;
        let mut mean = HistogramMean::of(first);
        let added = rest.iter().try_for_each(|histogram| mean.add(histogram));
        note_sum(mean.sum(), added.is_ok(), window_notes);
        added.ok().map(|()| mean.value())
    }
}

fn note_sum(sum: &HistogramSum, added: bool, window_notes: &mut Vec<WindowNote>) {
    if !added {
        window_notes.push(WindowNote::MixedBuckets);
        return;
    }
    if sum.resets_conflict() {
        window_notes.push(WindowNote::ResetsConflict);
    }
    if sum.reconciled {
        window_notes.push(WindowNote::Reconciled);
    }
}

impl Context<'_> {
    /// Computes the windows of a row that has histograms, after its floats were computed as if
    /// there were no histograms.
    pub(in crate::promql::eval) fn fill_native(
        &self,
        node: &WindowNode,
        grid: Grid,
        name: &str,
        samples: SeriesSamples<'_>,
        rows: &mut LabelledRows,
    ) -> Result<(), QueryError> {
        let row = rows.len() - 1;
        let (times, native_times) = (samples.times, &samples.native.times[..]);
        let (mut float_starts, mut starts) = (StartTimestamps::default(), StartTimestamps::default());
        if node.kernel.uses_starts {
            float_starts = self.start_timestamps(samples.id, times);
            starts = self.start_timestamps(samples.id, native_times);
        }
        let (before_ms, after_ms) = self.margins(&node.arg);
        let mut window_notes = Vec::new();
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
            let window = MixedWindow {
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
                self.warn_overlapping_starts(node, name);
            }
            let Some(found) = self.native_window(node, name, &window, &mut window_notes) else { continue };
            for note in window_notes.drain(..) {
                self.add_window_note(note, node.arg_span, name);
            }
            rows.row_mut(row)[step] = ABSENT;
            match found {
                WindowResult::Nothing => {}
                WindowResult::Float(value) => rows.row_mut(row)[step] = value,
                WindowResult::Histogram(histogram) => rows.put_histogram(row, step, histogram)?,
            }
        }
        Ok(())
    }

    /// Returns for each histogram whether counts were reset before it, for functions that compare
    /// all neighbours in each window. This is computed once for all windows; the additions at
    /// resets still happen in each window in order.
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

    /// Returns the result of a window with histograms, or `None` if the result of its floats
    /// applies.
    fn native_window(
        &self,
        node: &WindowNode,
        name: &str,
        window: &MixedWindow<'_>,
        window_notes: &mut Vec<WindowNote>,
    ) -> Option<WindowResult> {
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
            window_notes.push(WindowNote::Mixed);
            return Some(WindowResult::Nothing);
        }
        let sample = |sample: Option<(i64, EitherSample<'_>)>| match sample {
            Some((_, EitherSample::Float(value))) => WindowResult::Float(value),
            Some((_, EitherSample::Histogram(histogram))) => WindowResult::Histogram(Arc::clone(histogram)),
            None => WindowResult::Nothing,
        };
        let time = |sample: Option<(i64, EitherSample<'_>)>| {
            sample.map_or(WindowResult::Nothing, |(at, _)| WindowResult::Float(seconds(at)))
        };
        Some(match work {
            NativeKernel::FloatsOnly => {
                if window.is_mixed() {
                    let text = format!(
                        "ignored histograms in a range containing both floats and histograms for metric name \
                         {name:?}"
                    );
                    // Prometheus reports the position of the first argument, whichever it is.
                    self.notes.borrow_mut().info(node.param_span, text);
                }
                return None;
            }
            NativeKernel::Count => WindowResult::Float(count(window.times.len() + window.native.times.len())),
            NativeKernel::Present => WindowResult::Float(1.0),
            NativeKernel::First => sample(window.all().next()),
            NativeKernel::Last => sample(window.all().last()),
            NativeKernel::FirstTime => time(window.all().next()),
            NativeKernel::LastTime => time(window.all().last()),
            NativeKernel::Sum => window.sum(window_notes).into(),
            NativeKernel::Mean => window.mean(window_notes).into(),
            NativeKernel::Rate => rate(&window.native, true, true, window_notes).into(),
            NativeKernel::Increase => rate(&window.native, true, false, window_notes).into(),
            NativeKernel::Delta => rate(&window.native, false, false, window_notes).into(),
            NativeKernel::LastRate => return window.last_two(true, window_notes),
            NativeKernel::LastDelta => return window.last_two(false, window_notes),
            NativeKernel::Resets => {
                window.count_pairs(true, |a, b| b < a, |before, now| now.is_reset_since(before))
            }
            NativeKernel::Changes => {
                let differ = |a: f64, b: f64| a != b && !(a.is_nan() && b.is_nan());
                window.count_pairs(false, differ, |before, now| !now.equals(before))
            }
        })
    }

    /// Adds an annotation about the metric `name`.
    pub(super) fn add_window_note(&self, note: WindowNote, span: Span, name: &str) {
        let mut notes = self.notes.borrow_mut();
        match note {
            WindowNote::Mixed => notes
                .warn(span, format!("encountered a mix of histograms and floats for metric name {name:?}")),
            WindowNote::MixedBuckets => notes.warn(span, mixed_buckets(name)),
            WindowNote::NotCounter => {
                notes.warn(span, format!("this native histogram metric is not a counter: {name:?}"));
            }
            WindowNote::NotGauge => {
                notes.warn(span, format!("this native histogram metric is not a gauge: {name:?}"));
            }
            WindowNote::ReconciledAdding => notes.info(span, reconciled("addition")),
            WindowNote::ReconciledSubtracting => notes.info(span, reconciled("subtraction")),
            WindowNote::Reconciled => notes.info(span, reconciled("aggregation")),
            WindowNote::ResetsConflict => notes.warn(span, conflicting("aggregation")),
        }
    }

    /// Returns whether a row has a float at any step.
    pub(in crate::promql::eval) fn has_floats(rows: &LabelledRows, row: usize) -> bool {
        rows.row(row).iter().any(|value| !is_absent(*value))
    }
}

/// Returns the warning about a mix of exponential and custom buckets.
pub(super) fn mixed_buckets(name: &str) -> String {
    format!(
        "vector contains a mix of histograms with exponential and custom buckets schemas for metric name {name:?}"
    )
}

/// Returns the annotation about custom bounds that were reconciled.
pub(super) fn reconciled(what: &str) -> String {
    format!("mismatched custom buckets were reconciled during {what}")
}

/// Returns the warning about conflicting counter resets.
pub(super) fn conflicting(what: &str) -> String {
    format!("conflicting counter resets during histogram {what}")
}
