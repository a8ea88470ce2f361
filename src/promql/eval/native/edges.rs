//! Histograms at the edges of `anchored` and `smoothed` windows, which also use samples outside of
//! the window (Prometheus promql/functions.go, extendedHistogramRate), and interpolation at an
//! instant.

use std::sync::Arc;

use crate::model::is_stale;
use crate::promql::error::QueryError;
use crate::promql::functions::extended::interpolate as interpolate_float;
use crate::promql::histogram::FloatHistogram;
use crate::promql::numbers::seconds;
use crate::promql::plan::Selector;
use crate::promql::syntax::tree::Extension;

use super::rates::{NativeWindow, WindowNote, WindowNotes, added, subtracted};
use super::{Context, LabelledRows, SeriesSamples};
use crate::model::CounterReset;

/// A histogram and its time in milliseconds.
type TimedHistogram<'h> = (i64, &'h FloatHistogram);

/// Interpolates between two histograms at the time `at`. A counter that was reset between them is
/// taken to restart from zero.
fn interpolate(
    before: TimedHistogram<'_>,
    after: TimedHistogram<'_>,
    at: i64,
    counter: bool,
    window_notes: &mut WindowNotes,
) -> Option<FloatHistogram> {
    if at == before.0 {
        return Some(before.1.clone());
    }
    if at == after.0 {
        return Some(after.1.clone());
    }
    let share = seconds(at - before.0) / seconds(after.0 - before.0);
    if counter && after.1.is_reset_since(before.1) {
        return Some(after.1.times(share));
    }
    let reset = if after.1.reset() == before.1.reset() { after.1.reset() } else { CounterReset::Unknown };
    let change = subtracted(after.1, before.1, window_notes)?.times(share);
    Some(added(&change, before.1, window_notes)?.with_reset(reset))
}

/// Computes `rate` and `increase` (of counters) and `delta` from edge to edge, without
/// extrapolation.
pub(super) fn change(
    window: &NativeWindow<'_>,
    counter: bool,
    window_notes: &mut WindowNotes,
) -> Option<FloatHistogram> {
    let (times, histograms) = (window.times, window.histograms);
    let smoothed = window.extension == Some(Extension::Smoothed);
    let newest = times.len().checked_sub(1)?;
    let older = &times[..newest];
    let first = older.partition_point(|at| *at <= window.start_ms).saturating_sub(1);
    let last = if smoothed { older.partition_point(|at| *at < window.end_ms) } else { newest };
    if times[last] <= window.start_ms || (smoothed && times[first] > window.end_ms) {
        return None;
    }
    let within = &histograms[first..=last.max(first)];
    if counter && within.iter().any(|histogram| histogram.is_gauge()) {
        window_notes.push(WindowNote::NotCounter);
    }
    if within.iter().any(|histogram| histogram.is_custom() != histograms[first].is_custom()) {
        window_notes.push(WindowNote::MixedBuckets);
        return None;
    }
    let sample = |i: usize| (times[i], &*histograms[i]);
    let cut_left = smoothed && times[first] < window.start_ms;
    let left = if cut_left {
        interpolate(sample(first), sample(first + 1), window.start_ms, counter, window_notes)?
    } else {
        FloatHistogram::clone(&histograms[first])
    };
    let right = if smoothed && last > 0 && times[last] > window.end_ms {
        interpolate(sample(last - 1), sample(last), window.end_ms, counter, window_notes)?
    } else {
        FloatHistogram::clone(&histograms[last])
    };
    if !(counter || left.is_gauge() && right.is_gauge()) {
        window_notes.push(WindowNote::NotGauge);
    }
    let mut change = subtracted(&right, &left, window_notes)?;
    if counter {
        // An interpolation across a reset has accounted for the reset already.
        let crossed = cut_left && histograms[first + 1].is_reset_since(&histograms[first]);
        let (mut before, from) =
            if crossed { (&*histograms[first + 1], first + 2) } else { (&left, first + 1) };
        if from <= last {
            let inner = histograms[from..last].iter().map(|histogram| &**histogram);
            for histogram in inner.chain([&right]) {
                if histogram.is_reset_since(before) {
                    change = added(&change, before, window_notes)?;
                }
                before = histogram;
            }
        }
    }
    Some(change.with_reset(CounterReset::Gauge).compacted())
}

impl Context<'_> {
    /// Computes the value of a smoothed selector at one step of the row added last.
    pub(super) fn smooth_native(
        &self,
        selector: &Selector,
        eval_ms: i64,
        samples: &SeriesSamples<'_>,
        step: usize,
        rows: &mut LabelledRows,
    ) -> Result<(), QueryError> {
        let lookback = self.options.lookback_ms;
        let (from, to) = (eval_ms.saturating_sub(lookback), eval_ms.saturating_add(lookback));
        let native = samples.native;
        let inside =
            native.times.partition_point(|at| *at <= from)..native.times.partition_point(|at| *at <= to);
        let floats: Vec<(i64, f64)> = samples
            .times
            .iter()
            .copied()
            .zip(samples.values.iter().copied())
            .filter(|(at, value)| *at > from && *at <= to && !is_stale(*value))
            .collect();
        let row = rows.len() - 1;
        if inside.is_empty() {
            let index = floats.partition_point(|(at, _)| *at < eval_ms);
            let value = match (index.checked_sub(1).map(|i| floats[i]), floats.get(index)) {
                (_, Some((at, value))) if *at == eval_ms => *value,
                (Some(before), Some(after)) => interpolate_float(before, *after, eval_ms, false),
                (Some((_, value)), None) => value,
                (None, _) => return Ok(()),
            };
            rows.row_mut(row)[step] = value;
            return Ok(());
        }
        let mut window_notes = WindowNotes::new();
        let (times, histograms) = (&native.times[inside.clone()], &native.histograms[inside]);
        let index = times.partition_point(|at| *at < eval_ms);
        let before = index.checked_sub(1).map(|i| (times[i], &histograms[i]));
        let after = times.get(index).map(|at| (*at, &histograms[index]));
        let found = match (before, after) {
            _ if !floats.is_empty() => {
                window_notes.push(WindowNote::Mixed);
                None
            }
            (_, Some((at, histogram))) if at == eval_ms => Some(Arc::clone(histogram)),
            (Some((_, a)), Some((_, b))) if a.is_custom() != b.is_custom() => {
                window_notes.push(WindowNote::MixedBuckets);
                None
            }
            (Some((then, a)), Some((now, b))) => {
                let counter = !(a.is_gauge() && b.is_gauge());
                interpolate((then, a), (now, b), eval_ms, counter, &mut window_notes).map(Arc::new)
            }
            (Some((_, histogram)), None) => {
                Some(Arc::new(FloatHistogram::clone(histogram).with_reset(CounterReset::Unknown)))
            }
            (None, _) => None,
        };
        for note in window_notes {
            self.add_window_note(note, selector.span, rows.heads[row].labels.metric_name());
        }
        match found {
            Some(histogram) => rows.put_histogram(row, step, histogram),
            None => Ok(()),
        }
    }
}
