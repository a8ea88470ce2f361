//! How fast native histograms grow (prometheus promql/functions.go, histogramRate and instantValue).

use std::sync::Arc;

use crate::promql::FloatHistogram;
use crate::promql::functions::{count, seconds};
use crate::promql::histogram::Added;

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
    /// The open end, offset included.
    pub(super) start_ms: i64,
    /// The closed end, offset included.
    pub(super) end_ms: i64,
}

type Remarks = Vec<Remark>;

fn note(remarks: &mut Remarks, added: &Added, remark: Remark) {
    if added.reconciled {
        remarks.push(remark);
    }
}

/// `rate`, `increase` (both of counters) and `delta`.
pub(super) fn extrapolated(
    window: &NativeWindow<'_>,
    counter: bool,
    per_second: bool,
    remarks: &mut Remarks,
) -> Option<FloatHistogram> {
    let first = window.histograms.first()?;
    let change = change(window, counter, remarks)?;
    let times = window.times;
    let (first_at, last_at) = (times.first()?, times.last()?);
    let sampled = seconds(last_at - first_at);
    let between = sampled / count(times.len() - 1);
    let threshold = between * 1.1;
    let mut to_start = seconds(first_at - window.start_ms);
    if to_start >= threshold {
        to_start = between / 2.0;
    }
    // A counter cannot have been below zero; of a histogram that is asked of its count.
    if counter && change.count() > 0.0 && first.count() >= 0.0 {
        to_start = to_start.min(sampled * (first.count() / change.count()));
    }
    let mut to_end = seconds(window.end_ms - last_at);
    if to_end >= threshold {
        to_end = between / 2.0;
    }
    let mut factor = if sampled == 0.0 { 1.0 } else { (sampled + to_start + to_end) / sampled };
    if per_second {
        factor /= seconds(window.end_ms.saturating_sub(window.start_ms));
    }
    Some(change.times(factor))
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
    let nothing = (counter && second.is_reset_since(first)).then(|| Arc::new(second.emptied()));
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
    let added = FloatHistogram::clone(last).reduced(schema).minus(from).ok()?;
    note(remarks, &added, Remark::ReconciledSubtracting);
    let mut change = added.histogram;
    if counter {
        let mut before = from;
        for histogram in &histograms[1..] {
            if histogram.is_reset_since(before) {
                let added = change.plus(before).ok()?;
                note(remarks, &added, Remark::ReconciledAdding);
                change = added.histogram;
            }
            before = histogram;
        }
    }
    Some(change.with_reset(crate::model::CounterReset::Gauge).compacted())
}

/// `irate` and `idelta` of the last two samples.
pub(super) fn last_change(
    before: &FloatHistogram,
    last: &FloatHistogram,
    apart_ms: i64,
    counter: bool,
    remarks: &mut Remarks,
) -> Option<FloatHistogram> {
    if counter && (before.is_gauge() || last.is_gauge()) {
        remarks.push(Remark::NotCounter);
    }
    if !(counter || before.is_gauge() && last.is_gauge()) {
        remarks.push(Remark::NotGauge);
    }
    let change = if counter && last.is_reset_since(before) {
        last.clone()
    } else {
        let Ok(added) = last.minus(before) else {
            remarks.push(Remark::MixedBuckets);
            return None;
        };
        note(remarks, &added, Remark::ReconciledSubtracting);
        added.histogram
    };
    let change = change.with_reset(crate::model::CounterReset::Gauge).compacted();
    Some(if counter { change.divided(seconds(apart_ms)) } else { change })
}
