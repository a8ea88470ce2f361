//! Histograms at the edges of windows that look at samples around them, `anchored` and `smoothed` (prometheus
//! promql/functions.go, extendedHistogramRate), and on the line around an instant.

use std::sync::Arc;

use crate::model::is_stale;
use crate::promql::functions::extended::interpolate as interpolate_float;
use crate::promql::functions::seconds;
use crate::promql::plan::Selector;
use crate::promql::syntax::tree::Extension;
use crate::promql::{FloatHistogram, QueryError};

use super::rates::{NativeWindow, Remark, Remarks, added, taken};
use super::{Context, Rows, Samples};
use crate::model::CounterReset;

/// A histogram and its time.
type At<'h> = (i64, &'h FloatHistogram);

/// The histogram at `at` on the line between two. A counter that began anew between them began at nothing.
fn on_the_line(
    before: At<'_>,
    after: At<'_>,
    at: i64,
    counter: bool,
    remarks: &mut Remarks,
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
    let change = taken(after.1, before.1, remarks)?.times(share);
    Some(added(&change, before.1, remarks)?.with_reset(reset))
}

/// `rate`, `increase` (both of counters) and `delta` from edge to edge; nothing is extrapolated.
pub(super) fn change(
    window: &NativeWindow<'_>,
    counter: bool,
    remarks: &mut Remarks,
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
        remarks.push(Remark::NotCounter);
    }
    if within.iter().any(|histogram| histogram.is_custom() != histograms[first].is_custom()) {
        remarks.push(Remark::MixedBuckets);
        return None;
    }
    let sample = |i: usize| (times[i], &*histograms[i]);
    let cut_left = smoothed && times[first] < window.start_ms;
    let left = if cut_left {
        on_the_line(sample(first), sample(first + 1), window.start_ms, counter, remarks)?
    } else {
        FloatHistogram::clone(&histograms[first])
    };
    let right = if smoothed && last > 0 && times[last] > window.end_ms {
        on_the_line(sample(last - 1), sample(last), window.end_ms, counter, remarks)?
    } else {
        FloatHistogram::clone(&histograms[last])
    };
    if !(counter || left.is_gauge() && right.is_gauge()) {
        remarks.push(Remark::NotGauge);
    }
    let mut change = taken(&right, &left, remarks)?;
    if counter {
        // A line that crosses a reset has accounted for it already.
        let crossed = cut_left && histograms[first + 1].is_reset_since(&histograms[first]);
        let (mut before, from) =
            if crossed { (&*histograms[first + 1], first + 2) } else { (&left, first + 1) };
        if from <= last {
            let inner = histograms[from..last].iter().map(|histogram| &**histogram);
            for histogram in inner.chain([&right]) {
                if histogram.is_reset_since(before) {
                    change = added(&change, before, remarks)?;
                }
                before = histogram;
            }
        }
    }
    Some(change.with_reset(CounterReset::Gauge).compacted())
}

impl Context<'_> {
    /// A smoothed selector's value at one step, of the row added last.
    pub(super) fn smooth_native(
        &self,
        selector: &Selector,
        look: i64,
        (samples, step): (&Samples<'_>, usize),
        rows: &mut Rows,
    ) -> Result<(), QueryError> {
        let lookback = self.options.lookback_ms;
        let (from, to) = (look.saturating_sub(lookback), look.saturating_add(lookback));
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
            let place = floats.partition_point(|(at, _)| *at < look);
            let value = match (place.checked_sub(1).map(|i| floats[i]), floats.get(place)) {
                (_, Some((at, value))) if *at == look => *value,
                (Some(before), Some(after)) => interpolate_float(before, *after, look, false),
                (Some((_, value)), None) => value,
                (None, _) => return Ok(()),
            };
            rows.row_mut(row)[step] = value;
            return Ok(());
        }
        let mut remarks = Remarks::new();
        let (times, histograms) = (&native.times[inside.clone()], &native.histograms[inside]);
        let place = times.partition_point(|at| *at < look);
        let before = place.checked_sub(1).map(|i| (times[i], &histograms[i]));
        let after = times.get(place).map(|at| (*at, &histograms[place]));
        let found = match (before, after) {
            _ if !floats.is_empty() => {
                remarks.push(Remark::Mixed);
                None
            }
            (_, Some((at, histogram))) if at == look => Some(Arc::clone(histogram)),
            (Some((_, a)), Some((_, b))) if a.is_custom() != b.is_custom() => {
                remarks.push(Remark::MixedBuckets);
                None
            }
            (Some((then, a)), Some((now, b))) => {
                let counter = !(a.is_gauge() && b.is_gauge());
                on_the_line((then, a), (now, b), look, counter, &mut remarks).map(Arc::new)
            }
            (Some((_, histogram)), None) => {
                Some(Arc::new(FloatHistogram::clone(histogram).with_reset(CounterReset::Unknown)))
            }
            (None, _) => None,
        };
        for remark in remarks {
            self.remark(remark, selector.span, rows.heads[row].labels.metric_name());
        }
        match found {
            Some(histogram) => rows.put_histogram(row, step, histogram),
            None => Ok(()),
        }
    }
}
