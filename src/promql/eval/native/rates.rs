//! Rates of native histograms (Prometheus promql/functions.go, histogramRate and instantValue).

use std::sync::Arc;

use crate::model::CounterReset;
use crate::promql::eval::start_timestamps::{TimedStart, restarted_between};
use crate::promql::histogram::{CombinedHistogram, FloatHistogram};
use crate::promql::numbers::{count, seconds};
use crate::promql::syntax::tree::Extension;

use super::edges;

/// An annotation about the histograms of a window.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum WindowNote {
    /// The window has both floats and histograms.
    Mixed,
    /// The window has both exponential and custom buckets.
    MixedBuckets,
    NotCounter,
    NotGauge,
    /// Custom bounds were reconciled in an addition or a subtraction.
    ReconciledAdding,
    ReconciledSubtracting,
    /// Custom bounds were reconciled in an aggregation.
    Reconciled,
    ResetsConflict,
}

/// The histograms of one series in a window.
#[derive(Clone, Copy, Debug)]
pub(super) struct NativeWindow<'w> {
    pub(super) times: &'w [i64],
    pub(super) histograms: &'w [Arc<FloatHistogram>],
    /// Start timestamp of each histogram in milliseconds, zero if unknown; empty if none is known.
    pub(super) starts: &'w [i64],
    /// Whether each histogram's counts are lower than those of the previous one; empty if not
    /// computed in advance.
    pub(super) resets: &'w [bool],
    /// Exclusive start of the window in milliseconds, offset included.
    pub(super) start_ms: i64,
    /// Inclusive end of the window in milliseconds, offset included.
    pub(super) end_ms: i64,
    /// The modifier of the window. If set, the samples around the window are included.
    pub(super) extension: Option<Extension>,
}

pub(super) type WindowNotes = Vec<WindowNote>;

/// Returns the sum of two histograms.
pub(super) fn added(
    a: &FloatHistogram,
    b: &FloatHistogram,
    window_notes: &mut WindowNotes,
) -> Option<FloatHistogram> {
    reconciled(a.plus(b).ok(), WindowNote::ReconciledAdding, window_notes)
}

/// Returns the difference of two histograms.
pub(super) fn subtracted(
    a: &FloatHistogram,
    b: &FloatHistogram,
    window_notes: &mut WindowNotes,
) -> Option<FloatHistogram> {
    reconciled(a.minus(b).ok(), WindowNote::ReconciledSubtracting, window_notes)
}

/// Returns the combined histogram and adds annotations. Conflicting reset hints are ignored,
/// because the callers detect resets themselves.
fn reconciled(
    added: Option<CombinedHistogram>,
    note: WindowNote,
    window_notes: &mut WindowNotes,
) -> Option<FloatHistogram> {
    let Some(added) = added else {
        window_notes.push(WindowNote::MixedBuckets);
        return None;
    };
    if added.reconciled {
        window_notes.push(note);
    }
    Some(added.histogram)
}

impl NativeWindow<'_> {
    /// Returns the start timestamp of a sample, zero if unknown.
    pub(super) fn start(&self, i: usize) -> i64 {
        self.starts.get(i).copied().unwrap_or(0)
    }

    /// Returns whether the counts of a sample are lower than those of the previous one.
    fn is_reset(&self, i: usize) -> bool {
        let compare = || self.histograms[i].is_reset_since(&self.histograms[i - 1]);
        self.resets.get(i).copied().unwrap_or_else(compare)
    }

    /// Returns whether start timestamps show a restart between a sample and the previous one.
    fn began(&self, i: usize) -> bool {
        let sample = |i: usize| TimedStart { at: self.times[i], start: self.start(i) };
        restarted_between(sample(i - 1), sample(i))
    }
}

/// Computes `rate` and `increase` (of counters) and `delta`.
pub(super) fn rate(
    window: &NativeWindow<'_>,
    counter: bool,
    per_second: bool,
    window_notes: &mut WindowNotes,
) -> Option<FloatHistogram> {
    let range = seconds(window.end_ms.saturating_sub(window.start_ms));
    if window.extension.is_some() {
        let change = edges::change(window, counter, window_notes)?;
        return Some(if per_second { change.divided(range) } else { change });
    }
    let (change, factor) = extrapolated(window, counter, window_notes)?;
    Some(change.times(if per_second { factor / range } else { factor }))
}

/// Returns the change in the window, and the factor that extends it to the whole window.
fn extrapolated(
    window: &NativeWindow<'_>,
    counter: bool,
    window_notes: &mut WindowNotes,
) -> Option<(FloatHistogram, f64)> {
    let first = window.histograms.first()?;
    let times = window.times;
    let (first_at, last_at) = (*times.first()?, *times.last()?);
    let several = times.len() > 1;
    let mut change = if several { Some(change(window, counter, window_notes)?) } else { None };
    let sampled = seconds(last_at - first_at);
    let between = if several { sampled / count(times.len() - 1) } else { 0.0 };
    let threshold = between * 1.1;
    let mut to_end = seconds(window.end_ms - last_at);
    if to_end >= threshold {
        to_end = between / 2.0;
    }
    let start = window.start(0);
    if counter && start != 0 && start > window.start_ms && start < first_at {
        // Counting started from zero inside the window, so the left side needs no extrapolation.
        change = match change {
            Some(change) => Some(added(&change, first, window_notes)?),
            None => Some(FloatHistogram::clone(first)),
        };
        let sampled = seconds(last_at - start);
        return change.map(|change| (change, (sampled + to_end) / sampled));
    }
    let change = change?;
    let mut to_start = seconds(first_at - window.start_ms);
    if to_start >= threshold {
        to_start = between / 2.0;
    }
    // A counter cannot have been negative. For a histogram the count decides.
    if counter && change.count() > 0.0 && first.count() >= 0.0 {
        to_start = to_start.min(sampled * (first.count() / change.count()));
    }
    let factor = if sampled == 0.0 { 1.0 } else { (sampled + to_start + to_end) / sampled };
    Some((change, factor))
}

/// Returns the change from the first to the last sample; for counters, resets in between are added.
fn change(
    window: &NativeWindow<'_>,
    counter: bool,
    window_notes: &mut WindowNotes,
) -> Option<FloatHistogram> {
    let histograms = window.histograms;
    let ([first, second, ..], Some(last)) = (histograms, histograms.last()) else { return None };
    let ends_are_gauges = (first.is_gauge(), last.is_gauge());
    if counter && ends_are_gauges != (false, false) {
        window_notes.push(WindowNote::NotCounter);
    }
    if !counter && ends_are_gauges != (true, true) {
        window_notes.push(WindowNote::NotGauge);
    }
    // If counting restarts right after the first sample, that sample is ignored, even its buckets.
    let begins = counter && (window.began(1) || window.is_reset(1));
    let nothing = begins.then(|| Arc::new(second.emptied()));
    let from = nothing.as_ref().unwrap_or(first);
    let custom = from.is_custom();
    let inner = if counter { &histograms[1..histograms.len() - 1] } else { &[] };
    if inner.iter().any(|histogram| histogram.is_gauge()) && !window_notes.contains(&WindowNote::NotCounter) {
        window_notes.push(WindowNote::NotCounter);
    }
    if inner.iter().chain([last]).any(|histogram| histogram.is_custom() != custom) {
        window_notes.clear();
        window_notes.push(WindowNote::MixedBuckets);
        return None;
    }
    let schema = inner.iter().chain([from, last]).map(|histogram| histogram.schema()).min()?;
    let mut change = subtracted(&FloatHistogram::clone(last).reduced(schema), from, window_notes)?;
    if counter {
        let mut before = from;
        for (i, histogram) in histograms.iter().enumerate().skip(1) {
            let reset = if begins && i == 1 { histogram.is_reset_since(before) } else { window.is_reset(i) };
            if window.began(i) || reset {
                change = added(&change, before, window_notes)?;
            }
            before = histogram;
        }
    }
    Some(change.with_reset(CounterReset::Gauge).compacted())
}

/// Computes `irate` and `idelta` from the last two samples.
pub(super) fn last_change(
    before: &FloatHistogram,
    last: &FloatHistogram,
    interval_ms: i64,
    began: bool,
    counter: bool,
    window_notes: &mut WindowNotes,
) -> Option<FloatHistogram> {
    if counter && (before.is_gauge() || last.is_gauge()) {
        window_notes.push(WindowNote::NotCounter);
    }
    if !(counter || before.is_gauge() && last.is_gauge()) {
        window_notes.push(WindowNote::NotGauge);
    }
    let began = counter && (began || last.is_reset_since(before));
    let change = if began { last.clone() } else { subtracted(last, before, window_notes)? };
    let change = change.with_reset(CounterReset::Gauge).compacted();
    Some(if counter { change.divided(seconds(interval_ms)) } else { change })
}
