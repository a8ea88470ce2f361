//! How fast native histograms grow (prometheus promql/functions.go, histogramRate and instantValue).

use std::sync::Arc;

use crate::model::CounterReset;
use crate::promql::FloatHistogram;
use crate::promql::eval::starts::began_between;
use crate::promql::functions::{count, seconds};
use crate::promql::histogram::CombinedHistogram;
use crate::promql::syntax::tree::Extension;

use super::edges;

/// What is to be said about the histograms of a window, or why there is no result.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Remark {
    /// Both floats and histograms.
    Mixed,
    /// Both exponential and custom buckets.
    MixedBuckets,
    NotCounter,
    NotGauge,
    /// Custom bounds were reconciled: adding, subtracting.
    ReconciledAdding,
    ReconciledSubtracting,
    /// Or in a sum of many.
    Reconciled,
    ResetsConflict,
}

/// One series' histograms in a window.
#[derive(Clone, Copy, Debug)]
pub(super) struct NativeWindow<'w> {
    pub(super) times: &'w [i64],
    pub(super) histograms: &'w [Arc<FloatHistogram>],
    /// Since when each one's counts run, zero where unknown; empty where none is known.
    pub(super) starts: &'w [i64],
    /// Whether each one's counts are less than those of the one before; empty where it was not asked for.
    pub(super) resets: &'w [bool],
    /// The open end, offset included.
    pub(super) start_ms: i64,
    /// The closed end, offset included.
    pub(super) end_ms: i64,
    /// Whether samples around the window are looked at; then they are here too.
    pub(super) extension: Option<Extension>,
}

pub(super) type Remarks = Vec<Remark>;

/// The sum of two.
pub(super) fn added(a: &FloatHistogram, b: &FloatHistogram, remarks: &mut Remarks) -> Option<FloatHistogram> {
    reconciled(a.plus(b).ok(), Remark::ReconciledAdding, remarks)
}

/// The difference of two.
pub(super) fn taken(a: &FloatHistogram, b: &FloatHistogram, remarks: &mut Remarks) -> Option<FloatHistogram> {
    reconciled(a.minus(b).ok(), Remark::ReconciledSubtracting, remarks)
}

/// What two came to. That they contradict each other about resets is no matter where resets are looked for.
fn reconciled(
    added: Option<CombinedHistogram>,
    remark: Remark,
    remarks: &mut Remarks,
) -> Option<FloatHistogram> {
    let Some(added) = added else {
        remarks.push(Remark::MixedBuckets);
        return None;
    };
    if added.reconciled {
        remarks.push(remark);
    }
    Some(added.histogram)
}

impl NativeWindow<'_> {
    /// Since when the counts of a sample run, as far as that is known.
    pub(super) fn start(&self, i: usize) -> i64 {
        self.starts.get(i).copied().unwrap_or(0)
    }

    /// Whether the counts of a sample are less than those of the one before.
    fn is_reset(&self, i: usize) -> bool {
        let compare = || self.histograms[i].is_reset_since(&self.histograms[i - 1]);
        self.resets.get(i).copied().unwrap_or_else(compare)
    }

    /// Whether start timestamps say that counts began anew between a sample and the one before.
    fn began(&self, i: usize) -> bool {
        began_between((self.times[i - 1], self.start(i - 1)), (self.times[i], self.start(i)))
    }
}

/// `rate`, `increase` (both of counters) and `delta`.
pub(super) fn rate(
    window: &NativeWindow<'_>,
    counter: bool,
    per_second: bool,
    remarks: &mut Remarks,
) -> Option<FloatHistogram> {
    let range = seconds(window.end_ms.saturating_sub(window.start_ms));
    if window.extension.is_some() {
        let change = edges::change(window, counter, remarks)?;
        return Some(if per_second { change.divided(range) } else { change });
    }
    let (change, factor) = extrapolated(window, counter, remarks)?;
    Some(change.times(if per_second { factor / range } else { factor }))
}

/// The change in the window, and by what to multiply it to cover the whole window.
fn extrapolated(
    window: &NativeWindow<'_>,
    counter: bool,
    remarks: &mut Remarks,
) -> Option<(FloatHistogram, f64)> {
    let first = window.histograms.first()?;
    let times = window.times;
    let (first_at, last_at) = (*times.first()?, *times.last()?);
    let several = times.len() > 1;
    let mut change = if several { Some(change(window, counter, remarks)?) } else { None };
    let sampled = seconds(last_at - first_at);
    let between = if several { sampled / count(times.len() - 1) } else { 0.0 };
    let threshold = between * 1.1;
    let mut to_end = seconds(window.end_ms - last_at);
    if to_end >= threshold {
        to_end = between / 2.0;
    }
    let start = window.start(0);
    if counter && start != 0 && start > window.start_ms && start < first_at {
        // Counts began at nothing, within the window: nothing is to be guessed on the left.
        change = match change {
            Some(change) => Some(added(&change, first, remarks)?),
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
    // A counter cannot have been below zero; of a histogram that is asked of its count.
    if counter && change.count() > 0.0 && first.count() >= 0.0 {
        to_start = to_start.min(sampled * (first.count() / change.count()));
    }
    let factor = if sampled == 0.0 { 1.0 } else { (sampled + to_start + to_end) / sampled };
    Some((change, factor))
}

/// From the first to the last sample, and for counters over every reset in between.
fn change(window: &NativeWindow<'_>, counter: bool, remarks: &mut Remarks) -> Option<FloatHistogram> {
    let histograms = window.histograms;
    let ([first, second, ..], Some(last)) = (histograms, histograms.last()) else { return None };
    let ends_are_gauges = (first.is_gauge(), last.is_gauge());
    if counter && ends_are_gauges != (false, false) {
        remarks.push(Remark::NotCounter);
    }
    if !counter && ends_are_gauges != (true, true) {
        remarks.push(Remark::NotGauge);
    }
    // Where counts begin anew right after the first sample, nothing of it is looked at, not even its buckets.
    let begins = counter && (window.began(1) || window.is_reset(1));
    let nothing = begins.then(|| Arc::new(second.emptied()));
    let from = nothing.as_ref().unwrap_or(first);
    let custom = from.is_custom();
    let inner = if counter { &histograms[1..histograms.len() - 1] } else { &[] };
    if inner.iter().any(|histogram| histogram.is_gauge()) && !remarks.contains(&Remark::NotCounter) {
        remarks.push(Remark::NotCounter);
    }
    if inner.iter().chain([last]).any(|histogram| histogram.is_custom() != custom) {
        remarks.clear();
        remarks.push(Remark::MixedBuckets);
        return None;
    }
    let schema = inner.iter().chain([from, last]).map(|histogram| histogram.schema()).min()?;
    let mut change = taken(&FloatHistogram::clone(last).reduced(schema), from, remarks)?;
    if counter {
        let mut before = from;
        for (i, histogram) in histograms.iter().enumerate().skip(1) {
            let reset = if begins && i == 1 { histogram.is_reset_since(before) } else { window.is_reset(i) };
            if window.began(i) || reset {
                change = added(&change, before, remarks)?;
            }
            before = histogram;
        }
    }
    Some(change.with_reset(CounterReset::Gauge).compacted())
}

/// `irate` and `idelta` of the last two samples.
pub(super) fn last_change(
    before: &FloatHistogram,
    last: &FloatHistogram,
    (apart_ms, began): (i64, bool),
    counter: bool,
    remarks: &mut Remarks,
) -> Option<FloatHistogram> {
    if counter && (before.is_gauge() || last.is_gauge()) {
        remarks.push(Remark::NotCounter);
    }
    if !(counter || before.is_gauge() && last.is_gauge()) {
        remarks.push(Remark::NotGauge);
    }
    let began = counter && (began || last.is_reset_since(before));
    let change = if began { last.clone() } else { taken(last, before, remarks)? };
    let change = change.with_reset(CounterReset::Gauge).compacted();
    Some(if counter { change.divided(seconds(apart_ms)) } else { change })
}
