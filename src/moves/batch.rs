//! Batches of samples on their way to a target.

use std::collections::{BTreeMap, HashMap};

use crate::forward::encode::{
    BodyCompression, CompressionError, EncodedRequest, OutgoingSeries, RequestEncoder, WriteVersion,
};
use crate::model::{
    Exemplar, Histogram, Labels, MetricMetadata, Sample, StartChange, TimeRange, Timestamp, is_stale,
};
use crate::tsdb::Description;

/// Part of one series.
#[derive(Clone, Debug, Default)]
pub struct BatchSeries {
    /// The label set.
    pub labels: Labels,
    /// Samples, in the order in which they are sent.
    pub samples: Vec<Sample>,
    /// Native histograms, in the order in which they are sent.
    pub histograms: Vec<(Timestamp, Histogram)>,
    /// Exemplars.
    pub exemplars: Vec<Exemplar>,
    /// Start timestamps.
    pub starts: Vec<StartChange>,
    /// Metadata of its family.
    pub metadata: Option<Description>,
}

impl BatchSeries {
    /// Returns the number of samples, histograms included.
    pub fn len(&self) -> usize {
        self.samples.len() + self.histograms.len()
    }

    /// Returns whether there is nothing to send.
    pub fn is_empty(&self) -> bool {
        self.len() == 0 && self.exemplars.is_empty()
    }

    /// Returns the range of its times; empty if it has no samples.
    pub fn range(&self) -> TimeRange {
        let times = || self.samples.iter().map(|one| one.at).chain(self.histograms.iter().map(|(at, _)| *at));
        TimeRange::new(times().min().unwrap_or(Timestamp::MAX), times().max().unwrap_or(Timestamp::MIN))
    }

    fn outgoing(&self) -> OutgoingSeries<'_> {
        OutgoingSeries {
            labels: &self.labels,
            samples: &self.samples,
            histograms: &self.histograms,
            exemplars: &self.exemplars,
            starts: &self.starts,
            metadata: self.metadata.as_ref().map(|metadata| MetricMetadata {
                name: &metadata.name,
                kind: metadata.kind,
                help: &metadata.help,
                unit: &metadata.unit,
            }),
        }
    }

    /// Removes the samples at times that the target has. A staleness marker, which queries do not
    /// return, is removed if the target has a later sample. Returns the number of removed samples.
    pub(super) fn remove_known(&mut self, known: &KnownTimes) -> usize {
        let Some(times) = known.0.get(&self.labels) else { return 0 };
        let before = self.len();
        let newest = times.last().copied().unwrap_or(i64::MIN);
        let has = |at: Timestamp| times.binary_search(&at.as_ms()).is_ok();
        self.samples.retain(|one| {
            let is_hidden = is_stale(one.value) && one.at.as_ms() < newest;
            !is_hidden && !has(one.at)
        });
        self.histograms.retain(|(at, histogram)| {
            let is_hidden = histogram.is_stale() && at.as_ms() < newest;
            !is_hidden && !has(*at)
        });
        before - self.len()
    }

    /// Sorts samples that are not ascending in time, and keeps the last one of each time, as the
    /// store does.
    pub(super) fn keep_last_of_each_time(&mut self) {
        if !self.samples.is_sorted_by(|a, b| a.at < b.at) {
            self.samples.sort_by_key(|one| one.at);
            self.samples.reverse();
            self.samples.dedup_by_key(|one| one.at);
            self.samples.reverse();
        }
        if !self.histograms.is_sorted_by(|a, b| a.0 < b.0) {
            self.histograms.sort_by_key(|(at, _)| *at);
            self.histograms.reverse();
            self.histograms.dedup_by_key(|(at, _)| *at);
            self.histograms.reverse();
        }
    }

    /// Splits the series in two halves. The second half has the exemplars.
    fn split(self) -> (BatchSeries, BatchSeries) {
        let BatchSeries { labels, mut samples, mut histograms, exemplars, starts, metadata } = self;
        let (more_samples, more_histograms) =
            (samples.split_off(samples.len() / 2), histograms.split_off(histograms.len() / 2));
        let first = BatchSeries {
            labels: labels.clone(),
            samples,
            histograms,
            exemplars: Vec::new(),
            starts: starts.clone(),
            metadata: metadata.clone(),
        };
        let second = BatchSeries {
            labels,
            samples: more_samples,
            histograms: more_histograms,
            exemplars,
            starts,
            metadata: None,
        };
        (first, second)
    }
}

/// Times of samples at the target by series, ascending.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct KnownTimes(pub HashMap<Labels, Vec<i64>>);

impl KnownTimes {
    /// Adds the times of a series.
    pub(super) fn add(&mut self, labels: Labels, times: impl IntoIterator<Item = i64>) {
        let all = self.0.entry(labels).or_default();
        all.extend(times);
        all.sort_unstable();
        all.dedup();
    }
}

/// Samples that are sent together.
#[derive(Clone, Debug, Default)]
pub struct Batch {
    /// The series, in the order in which they are sent.
    pub series: Vec<BatchSeries>,
}

impl Batch {
    /// Returns the number of samples, histograms included.
    pub fn len(&self) -> usize {
        self.series.iter().map(BatchSeries::len).sum()
    }

    /// Returns whether there is nothing to send.
    pub fn is_empty(&self) -> bool {
        self.series.iter().all(BatchSeries::is_empty)
    }

    /// Splits the batch in two; None if it has only one sample.
    pub fn halves(mut self) -> Option<(Batch, Batch)> {
        self.series.retain(|series| !series.is_empty());
        if self.series.len() > 1 {
            let second = self.series.split_off(self.series.len() / 2);
            return Some((self, Batch { series: second }));
        }
        let only = self.series.pop().filter(|series| series.len() > 1)?;
        let (first, second) = only.split();
        Some((Batch { series: vec![first] }, Batch { series: vec![second] }))
    }

    /// Adds a label to every series, as the tenant of a target that separates tenants by a label.
    pub fn set_label(&mut self, name: &str, value: &str) {
        for series in &mut self.series {
            let mut labels = series.labels.to_builder();
            labels.set(name, value);
            series.labels = labels.build();
        }
    }

    /// Removes the samples that the target has, and the series without samples left. Returns the
    /// number of removed samples.
    pub(super) fn remove_known(&mut self, known: &KnownTimes) -> usize {
        let removed = self.series.iter_mut().map(|series| series.remove_known(known)).sum();
        self.series.retain(|series| !series.is_empty());
        removed
    }

    /// Groups the ranges of its series by metric name: the labels and the range of each series.
    pub(super) fn by_metric(&self) -> BTreeMap<&str, Vec<(&Labels, TimeRange)>> {
        let mut all: BTreeMap<&str, Vec<(&Labels, TimeRange)>> = BTreeMap::new();
        for series in self.series.iter().filter(|series| series.len() > 0) {
            all.entry(series.labels.metric_name()).or_default().push((&series.labels, series.range()));
        }
        all
    }
}

/// The most bytes of protobuf in a request.
const REQUEST_BYTES_MAX: usize = 8 << 20;

/// An encoder of batches.
#[derive(Debug)]
pub(super) struct BatchEncoder(RequestEncoder);

/// A batch does not fit into a request.
#[derive(Debug, thiserror::Error)]
pub(super) enum BatchError {
    /// It must be split.
    #[error("the batch exceeds {REQUEST_BYTES_MAX} bytes")]
    TooLarge,
    /// The compressor failed.
    #[error(transparent)]
    Compression(#[from] CompressionError),
}

impl BatchEncoder {
    /// Creates an encoder.
    pub(super) fn new(version: WriteVersion, compression: BodyCompression) -> BatchEncoder {
        BatchEncoder(RequestEncoder::new(version, compression, REQUEST_BYTES_MAX))
    }

    /// Encodes a batch as one request.
    ///
    /// # Errors
    /// [`BatchError`].
    pub(super) fn encode(&mut self, batch: &Batch) -> Result<EncodedRequest, BatchError> {
        for series in batch.series.iter().filter(|series| !series.is_empty()) {
            if self.0.push(&series.outgoing()).is_err() {
                self.0.clear();
                return Err(BatchError::TooLarge);
            }
        }
        Ok(self.0.finish()?)
    }
}
