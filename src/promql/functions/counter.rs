//! Rates, increases, resets and changes in a window (Prometheus, `promql/functions.go`,
//! `extrapolatedRate`).

use super::{SampleWindow, extended};
use crate::promql::numbers::{count, seconds};

pub(super) fn rate(window: &SampleWindow<'_>) -> Option<f64> {
    if window.extension.is_some() {
        return extended::change(window, true).map(|change| change / seconds(window.range_ms()));
    }
    extrapolated(window, true).map(|(change, factor)| change * (factor / seconds(window.range_ms())))
}

pub(super) fn increase(window: &SampleWindow<'_>) -> Option<f64> {
    if window.extension.is_some() {
        return extended::change(window, true);
    }
    extrapolated(window, true).map(|(change, factor)| change * factor)
}

pub(super) fn delta(window: &SampleWindow<'_>) -> Option<f64> {
    if window.extension.is_some() {
        return extended::change(window, false);
    }
    extrapolated(window, false).map(|(change, factor)| change * factor)
}

/// Returns the change between the first and the last sample, and the factor that extrapolates it to
/// the whole window.
fn extrapolated(window: &SampleWindow<'_>, counter: bool) -> Option<(f64, f64)> {
    let (times, values) = (window.times, window.values);
    let last = times.len() - 1;
    if counter && let Some(start_ms) = start_inside(window) {
        return Some(since_start(window, start_ms));
    }
    if last == 0 {
        return None;
    }
    let mut change = values[last] - values[0];
    if counter {
        change = corrected(window, change);
    }
    let sampled = seconds(times[last] - times[0]);
    let between = sampled / count(last);
    let threshold = between * 1.1;
    let mut to_start = seconds(times[0] - window.start_ms);
    if to_start >= threshold {
        to_start = between / 2.0;
    }
    if counter && change > 0.0 && values[0] >= 0.0 {
        // A counter is never below zero, so do not extrapolate beyond the time at which its line
        // reaches zero.
        let to_zero = sampled * (values[0] / change);
        if to_zero < to_start {
            to_start = to_zero;
        }
    }
    let mut to_end = seconds(window.end_ms - times[last]);
    if to_end >= threshold {
        to_end = between / 2.0;
    }
    Some((change, (sampled + to_start + to_end) / sampled))
}

/// Adds the value before each reset, in order. The additions are exactly those of the definition,
/// so the result is the same to the bit.
fn corrected(window: &SampleWindow<'_>, change: f64) -> f64 {
    window.resets.iter().fold(change, |change, reset| change + window.values[reset - 1 - window.first])
}

/// Returns the start timestamp of the first sample if it is after the start of the window and
/// before the sample.
fn start_inside(window: &SampleWindow<'_>) -> Option<i64> {
    let start = *window.starts.first()?;
    let (first, opens) = (*window.times.first()?, window.start_ms);
    (start != 0 && start > opens && start < first).then_some(start)
}

/// Like [`extrapolated`] for a counter that began at zero inside the window, at `start_ms`:
/// extrapolates only towards the end of the window.
fn since_start(window: &SampleWindow<'_>, start_ms: i64) -> (f64, f64) {
    let (times, values) = (window.times, window.values);
    let last = times.len() - 1;
    let change = corrected(window, values[last] - values[0]) + values[0];
    let between = if last == 0 { 0.0 } else { seconds(times[last] - times[0]) / count(last) };
    let sampled = seconds(times[last] - start_ms);
    let mut to_end = seconds(window.end_ms - times[last]);
    if to_end >= between * 1.1 {
        to_end = between / 2.0;
    }
    (change, (sampled + to_end) / sampled)
}

pub(super) fn irate(window: &SampleWindow<'_>) -> Option<f64> {
    let (before, last, apart_ms) = last_two(window)?;
    let reset = window.resets.last() == Some(&(window.first + window.values.len() - 1));
    let change = if reset { last } else { last - before };
    Some(change / seconds(apart_ms))
}

pub(super) fn idelta(window: &SampleWindow<'_>) -> Option<f64> {
    let (before, last, _) = last_two(window)?;
    Some(last - before)
}

/// Returns the last two values and their distance in milliseconds; `None` if there are fewer than
/// two samples or both have the same time.
fn last_two(window: &SampleWindow<'_>) -> Option<(f64, f64, i64)> {
    let last = window.times.len().checked_sub(2)?;
    let apart = window.times[last + 1] - window.times[last];
    (apart != 0).then_some((window.values[last], window.values[last + 1], apart))
}

pub(super) fn resets(window: &SampleWindow<'_>) -> Option<f64> {
    let first = window.first + extended::anchor(window)?;
    // A reset has the index of its second sample, so one at the first sample is outside the window.
    let before = window.resets.partition_point(|index| *index <= first);
    Some(count(window.resets.len() - before))
}

pub(super) fn changes(window: &SampleWindow<'_>) -> Option<f64> {
    let differ = |pair: &&[f64]| pair[0] != pair[1] && !(pair[0].is_nan() && pair[1].is_nan());
    let from = extended::anchor(window)?;
    Some(count(window.values[from..].windows(2).filter(differ).count()))
}
