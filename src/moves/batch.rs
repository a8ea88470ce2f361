//! Batches of samples on their way to a target.

use std::collections::{BTreeMap, BTreeSet, HashMap};

use super::compare::is_near;
use super::readback::RemoteSeries;

use crate::forward::encode::{
    BodyCompression, CompressionError, EncodedRequest, OutgoingSeries, RequestEncoder, WriteVersion,
};
use crate::model::{
    Exemplar, Histogram, Labels, MetricMetadata, Sample, StartChange, TimeRange, Timestamp, is_stale,
};
use crate::tsdb::{Description, SeriesId};

/// Part of one series.
#[derive(Clone, Debug, Default)]
pub struct BatchSeries {
    /// The number of the series here; none for series of the target.
    pub id: Option<SeriesId>,
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
    pub fn sample_count(&self) -> usize {
        self.samples.len() + self.histograms.len()
    }

    /// Returns whether there is nothing to send.
    pub fn is_empty(&self) -> bool {
        self.sample_count() == 0 && self.exemplars.is_empty()
    }

    /// Returns the times of its samples, floats first.
    pub(super) fn times(&self) -> impl Iterator<Item = Timestamp> + '_ {
        self.samples.iter().map(|one| one.at).chain(self.histograms.iter().map(|(at, _)| *at))
    }

    /// Returns the range of its times; empty if it has no samples.
    pub fn range(&self) -> TimeRange {
        let (first, last) = (self.times().min(), self.times().max());
        TimeRange::new(first.unwrap_or(Timestamp::MAX), last.unwrap_or(Timestamp::MIN))
    }

    /// Returns the range of its times in each window of `window_ms`, by the window's number.
    pub(super) fn windows(&self, window_ms: i64) -> BTreeMap<i64, TimeRange> {
        let mut windows = BTreeMap::new();
        for at in self.times() {
            let window = at.as_ms().div_euclid(window_ms);
            let range = windows.entry(window).or_insert(TimeRange::new(at, at));
            (range.start, range.end) = (range.start.min(at), range.end.max(at));
        }
        windows
    }

    /// Adds the samples of a later batch of the same series.
    pub(super) fn merge(&mut self, later: BatchSeries) {
        self.samples.extend(later.samples);
        self.histograms.extend(later.histograms);
        let samples: BTreeMap<_, _> = self.samples.drain(..).map(|one| (one.at, one.value)).collect();
        self.samples = samples.into_iter().map(|(at, value)| Sample { at, value }).collect();
        let histograms: BTreeMap<_, _> = self.histograms.drain(..).collect();
        self.histograms = histograms.into_iter().collect();
        self.exemplars.extend(later.exemplars);
        later.starts.into_iter().for_each(|change| self.add_start(change));
        self.metadata = later.metadata.or(self.metadata.take());
    }

    /// Adds the start timestamp of a sample. The changes stay in the order of their times, and a
    /// change to the current value is left out.
    pub fn add_start(&mut self, change: StartChange) {
        let place = self.starts.partition_point(|one| one.at <= change.at);
        let before = place.checked_sub(1).and_then(|before| self.starts.get(before));
        if before.is_none_or(|before| before.start != change.start) {
            self.starts.insert(place, change);
        }
    }

    fn outgoing(&self) -> OutgoingSeries<'_> {
        OutgoingSeries {
            labels: &self.labels,
            label_fields: &[],
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
    /// return, is removed if the target has a later sample.
    fn remove_known(&mut self, known: &KnownSamples, removed: &mut RemovedSamples) {
        let Some(times) = known.0.get(&self.labels) else { return };
        let before = self.sample_count();
        let newest = times.keys().next_back().copied().unwrap_or(i64::MIN);
        let different = &mut removed.different;
        self.samples.retain(|one| {
            let there = times.get(&one.at.as_ms());
            if let Some(Some(bits)) = there
                && !is_stale(one.value)
                && !is_near(one.value, f64::from_bits(*bits))
            {
                different.push((self.labels.clone(), one.at.as_ms()));
            }
            let is_hidden = is_stale(one.value) && one.at.as_ms() < newest;
            !is_hidden && there.is_none()
        });
        self.histograms.retain(|(at, histogram)| {
            let is_hidden = histogram.is_stale() && at.as_ms() < newest;
            !is_hidden && !times.contains_key(&at.as_ms())
        });
        removed.count += (before - self.sample_count()) as u64;
    }

    /// Replaces each sample by the one that the store has at its time, in the order of their times.
    /// Samples that the store does not have are removed, unless `keeps_missing`: then the last one
    /// of each time stays.
    pub(super) fn take_values_of(&mut self, stored: &BatchSeries, keeps_missing: bool) {
        let samples = std::mem::take(&mut self.samples);
        let logged = samples.into_iter().map(|one| (one.at, one.value)).collect();
        let found = stored.samples.iter().map(|one| (one.at, one.value));
        let values = values_of(logged, found, keeps_missing);
        self.samples = values.map(|(at, value)| Sample { at, value }).collect();
        let logged = std::mem::take(&mut self.histograms).into_iter().collect();
        let found = stored.histograms.iter().cloned();
        self.histograms = values_of(logged, found, keeps_missing).collect();
    }

    /// Splits the series in two halves. The second half has the exemplars.
    fn split(self) -> (BatchSeries, BatchSeries) {
        let BatchSeries { id, labels, mut samples, mut histograms, exemplars, starts, metadata } = self;
        let (more_samples, more_histograms) =
            (samples.split_off(samples.len() / 2), histograms.split_off(histograms.len() / 2));
        let first = BatchSeries {
            id,
            labels: labels.clone(),
            samples,
            histograms,
            exemplars: Vec::new(),
            starts: starts.clone(),
            metadata: metadata.clone(),
        };
        let second = BatchSeries {
            id,
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

/// Returns the values of a series at the times in `logged`: those that the store has, or those of
/// `logged` where it has none and `keeps_missing`.
fn values_of<V>(
    logged: BTreeMap<Timestamp, V>,
    stored: impl Iterator<Item = (Timestamp, V)>,
    keeps_missing: bool,
) -> impl Iterator<Item = (Timestamp, V)> {
    let mut values = logged;
    let mut found = BTreeSet::new();
    for (at, value) in stored {
        if let Some(place) = values.get_mut(&at) {
            *place = value;
            found.insert(at);
        }
    }
    values.into_iter().filter(move |(at, _)| keeps_missing || found.contains(at))
}

/// Samples at the target by series: bits of the values by time in milliseconds; none for a native
/// histogram.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct KnownSamples(pub HashMap<Labels, BTreeMap<i64, Option<u64>>>);

impl KnownSamples {
    /// Adds samples that were read.
    pub(super) fn add(&mut self, found: Vec<RemoteSeries>) {
        for series in found {
            let all = self.0.entry(series.labels).or_default();
            all.extend(series.samples.iter().map(|(at, value)| (*at, Some(value.to_bits()))));
            all.extend(series.histogram_times.iter().map(|at| (*at, None)));
        }
    }
}

/// The samples that were removed from a batch.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct RemovedSamples {
    /// The number of samples.
    pub(super) count: u64,
    /// The series and times at which the target has another value.
    pub(super) different: Vec<(Labels, i64)>,
}

/// Samples that are sent together.
#[derive(Clone, Debug, Default)]
pub struct MoveBatch {
    /// The series, in the order in which they are sent.
    pub series: Vec<BatchSeries>,
}

impl MoveBatch {
    /// Returns the number of samples, histograms included.
    pub fn sample_count(&self) -> usize {
        self.series.iter().map(BatchSeries::sample_count).sum()
    }

    /// Returns whether there is nothing to send.
    pub fn is_empty(&self) -> bool {
        self.series.iter().all(BatchSeries::is_empty)
    }

    /// Splits the batch in two. Returns the batch itself if it has only one sample.
    pub(super) fn halves(mut self) -> Result<(MoveBatch, MoveBatch), MoveBatch> {
        self.series.retain(|series| !series.is_empty());
        if self.series.len() > 1 {
            let second = self.series.split_off(self.series.len() / 2);
            return Ok((self, MoveBatch { series: second }));
        }
        match self.series.pop() {
            Some(only) if only.sample_count() > 1 => {
                let (first, second) = only.split();
                Ok((MoveBatch { series: vec![first] }, MoveBatch { series: vec![second] }))
            }
            only => Err(MoveBatch { series: only.into_iter().collect() }),
        }
    }

    /// Adds a label to every series, as the tenant of a target that separates tenants by a label.
    pub fn set_label(&mut self, name: &str, value: &str) {
        for series in &mut self.series {
            let mut labels = series.labels.to_builder();
            labels.set(name, value);
            series.labels = labels.build();
        }
    }

    /// Removes the samples that the target has, and the series without samples left.
    pub(super) fn remove_known(&mut self, known: &KnownSamples) -> RemovedSamples {
        let mut removed = RemovedSamples::default();
        self.series.iter_mut().for_each(|series| series.remove_known(known, &mut removed));
        self.series.retain(|series| !series.is_empty());
        removed
    }

    /// Returns the least and the greatest time of its samples; none without samples.
    pub(super) fn range(&self) -> Option<TimeRange> {
        let ranges = self.series.iter().map(BatchSeries::range).filter(|range| range.start <= range.end);
        ranges.reduce(|all, one| TimeRange::new(all.start.min(one.start), all.end.max(one.end)))
    }

    /// Groups the ranges of its series by metric and window of `window_ms`: the labels, and the
    /// range of each series within the window.
    pub(super) fn by_metric(&self, window_ms: i64) -> MetricWindows<'_> {
        let mut all = MetricWindows::new();
        for series in &self.series {
            for (window, range) in series.windows(window_ms) {
                let metric = (series.labels.metric_name(), window);
                all.entry(metric).or_default().push((&series.labels, range));
            }
        }
        all
    }

    /// Removes exemplars and metadata.
    pub(super) fn keep_only_samples(&mut self) {
        for series in &mut self.series {
            series.exemplars.clear();
            series.metadata = None;
        }
    }

    /// Returns whether it has exemplars or metadata.
    pub(super) fn has_more_than_samples(&self) -> bool {
        self.series.iter().any(|series| !series.exemplars.is_empty() || series.metadata.is_some())
    }
}

/// Series with their ranges, by metric and number of a window.
pub(super) type MetricWindows<'a> = BTreeMap<(&'a str, i64), Vec<(&'a Labels, TimeRange)>>;

/// The most bytes of protobuf in a request.
const REQUEST_BYTES_MAX: usize = 8 << 20;

/// An encoder of batches.
#[derive(Debug)]
pub(super) struct BatchEncoder(RequestEncoder);

/// A batch does not fit into a request.
#[derive(Debug, thiserror::Error)]
pub(super) enum BatchError {
    /// The batch must be split.
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
    pub(super) fn encode(&mut self, batch: &MoveBatch) -> Result<EncodedRequest, BatchError> {
        for series in batch.series.iter().filter(|series| !series.is_empty()) {
            if self.0.push(&series.outgoing()).is_err() {
                self.0.clear();
                return Err(BatchError::TooLarge);
            }
        }
        Ok(self.0.finish()?)
    }
}
