//! The samples that evaluations write.

use std::sync::Arc;

use crate::model::{
    BatchBuilder, BucketSpan, Histogram, HistogramCounts, HistogramError, HistogramShape, Labels, Sample,
    Timestamp, is_stale, stale_nan,
};
use crate::promql::{FloatHistogram, VectorSample};
use crate::rules::alert::{AlertPhase, RuleAlert};

/// A sample of a series that a rule writes.
#[derive(Clone, Debug)]
pub(in crate::rules) struct RuleSample {
    pub(in crate::rules) labels: Labels,
    pub(in crate::rules) at: Timestamp,
    pub(in crate::rules) value: f64,
    pub(in crate::rules) histogram: Option<Histogram>,
    /// The start timestamp that is stored with the sample.
    pub(in crate::rules) start: Option<Timestamp>,
}

impl RuleSample {
    /// The sample of a recorded series.
    pub(in crate::rules) fn recorded(
        sample: VectorSample,
        at: Timestamp,
    ) -> Result<RuleSample, HistogramError> {
        let histogram = sample.histogram.as_deref().map(stored_histogram).transpose()?;
        Ok(RuleSample { labels: sample.labels, at, value: sample.value, histogram, start: None })
    }

    /// The marker of the end of a series.
    pub(in crate::rules) fn stale(labels: Labels, at: Timestamp) -> RuleSample {
        RuleSample { labels, at, value: stale_nan(), histogram: None, start: None }
    }

    /// Returns whether this is the marker of the end of a series.
    pub(in crate::rules) fn is_marker(&self) -> bool {
        self.histogram.is_none() && is_stale(self.value)
    }

    /// The two samples of a pending or firing alert. Their start timestamps and the value hold all
    /// times of the alert, so that a restart restores them ([`crate::rules::run::restore`]).
    pub(in crate::rules) fn of_alert(alert: &RuleAlert, at: Timestamp) -> [RuleSample; 2] {
        let since = match alert.phase {
            AlertPhase::Pending => alert.active_at,
            _ => alert.fired_at.unwrap_or(alert.active_at),
        };
        let sample =
            |labels, value, start| RuleSample { labels, at, value, histogram: None, start: Some(start) };
        let for_state_start = alert.keep_firing_since.unwrap_or(alert.active_at);
        [
            sample(alert.alerts_series(), 1.0, since),
            sample(alert.for_state_series(), alert.active_at.as_seconds(), for_state_start),
        ]
    }

    /// Adds the sample to a batch.
    pub(in crate::rules) fn put(self, batch: &mut BatchBuilder) {
        match self.histogram {
            Some(histogram) => {
                batch.series(&self.labels, []).histograms([(self.at, histogram)]);
            }
            None => {
                batch.series(&self.labels, [Sample { at: self.at, value: self.value }]);
            }
        }
        if let Some(start) = self.start {
            batch.start(self.at, start);
        }
    }
}

/// Converts the result of an expression to a histogram of the store.
pub(in crate::rules) fn stored_histogram(result: &FloatHistogram) -> Result<Histogram, HistogramError> {
    let (positive, mut buckets) = spans(result.positive());
    let (negative, counts) = spans(result.negative());
    buckets.extend(counts);
    let shape = HistogramShape::new(
        result.schema(),
        result.zero_threshold(),
        result.custom_values().to_vec(),
        positive,
        negative,
    )?;
    let counts = HistogramCounts::Float { count: result.count(), zero: result.zero_count(), buckets };
    Histogram::new(Arc::new(shape), result.reset(), result.sum(), counts)
}

/// Returns the spans of buckets, which are in the order of their indexes, and the counts.
pub(in crate::rules) fn spans(buckets: impl Iterator<Item = (i32, f64)>) -> (Vec<BucketSpan>, Vec<f64>) {
    let (mut spans, mut counts): (Vec<BucketSpan>, Vec<f64>) = (Vec::new(), Vec::new());
    let mut next = 0i32;
    for (index, count) in buckets {
        match spans.last_mut() {
            Some(last) if index == next => last.length += 1,
            _ => spans.push(BucketSpan { offset: index.saturating_sub(next), length: 1 }),
        }
        counts.push(count);
        next = index.saturating_add(1);
    }
    (spans, counts)
}
