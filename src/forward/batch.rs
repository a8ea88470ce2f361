//! Samples of a shard that wait to be sent, and their split when the target refuses them.

use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Arc, OnceLock};

use super::encode::{
    CompressionError, EncodedRequest, OutgoingSeries, RequestEncoder, WriteVersion, label_fields,
    labels_of_fields,
};
use super::received::{ReceivedBody, join};
use crate::model::{ByteCharge, Exemplar, Histogram, Labels, MetricMetadata, Sample, StartChange, Timestamp};
use crate::outbound::Bytes;
use crate::tsdb::{Description, LogPosition};

/// A series as the target gets it.
#[derive(Debug)]
pub(super) struct ForwardedSeries {
    /// The labels after relabelling; empty if there are only `label_fields`.
    labels: Labels,
    metadata: Option<Arc<Description>>,
    /// The labels as fields of version 1.0, once a request of that version had the series.
    label_fields: OnceLock<Box<[u8]>>,
}

impl ForwardedSeries {
    pub(super) fn new(labels: Labels, metadata: Option<Arc<Description>>) -> ForwardedSeries {
        ForwardedSeries { labels, metadata, label_fields: OnceLock::new() }
    }

    /// Returns a series for requests of version 1.0, from its labels as fields.
    pub(super) fn encoded(label_fields: Box<[u8]>, metadata: Option<Arc<Description>>) -> ForwardedSeries {
        ForwardedSeries { labels: Labels::default(), metadata, label_fields: label_fields.into() }
    }

    fn as_text(&self) -> String {
        match self.label_fields.get().filter(|_| self.labels.is_empty()) {
            Some(fields) => labels_of_fields(fields).to_string(),
            None => self.labels.to_string(),
        }
    }
}

/// A value of a series.
#[derive(Clone, Debug)]
pub(super) enum ForwardedValue {
    Sample(Sample),
    Histogram(Timestamp, Box<Histogram>),
    Exemplar(Box<Exemplar>),
}

impl ForwardedValue {
    /// Returns the time of a sample or histogram; none of an exemplar.
    pub(super) const fn at_ms(&self) -> Option<i64> {
        match self {
            ForwardedValue::Sample(sample) => Some(sample.at.as_ms()),
            ForwardedValue::Histogram(at, _) => Some(at.as_ms()),
            ForwardedValue::Exemplar(_) => None,
        }
    }
}

/// A value that waits.
#[derive(Clone, Debug)]
pub(super) struct Item {
    /// The log record that it came with.
    pub(super) seq: u64,
    /// The series' number, by which items are grouped.
    pub(super) id: u32,
    pub(super) series: Arc<ForwardedSeries>,
    pub(super) value: ForwardedValue,
    /// The start of its counter in milliseconds; 0 if unknown.
    pub(super) start_ms: i64,
}

impl Item {
    /// Returns its share of a request of [`super::sender::REQUEST_SAMPLES_MAX`].
    pub(super) const fn weight(&self) -> usize {
        match self.value {
            ForwardedValue::Histogram(..) => 16,
            ForwardedValue::Sample(_) | ForwardedValue::Exemplar(_) => 1,
        }
    }
}

/// Returns the newest time among the items of the first log record.
pub(super) fn first_ms(items: &[Item]) -> Option<i64> {
    let timed = || items.iter().filter_map(|item| Some((item.seq, item.value.at_ms()?)));
    let first = timed().map(|(seq, _)| seq).min()?;
    timed().filter(|(seq, _)| *seq == first).map(|(_, at_ms)| at_ms).max()
}

/// Items that are sent in one request. The items of one series are in the order of the log.
#[derive(Debug)]
pub(super) struct SampleBatch {
    items: Vec<Item>,
    first_seq: u64,
    first_ms: Option<i64>,
    /// The number of samples and histograms.
    samples: u64,
    /// The number of requests that may still be sent to find the refused samples, for all parts of
    /// a batch.
    splits_left: Arc<AtomicU32>,
    /// Attempts that failed and are repeated.
    pub(super) attempts: u32,
    /// The body of the request, once it is encoded.
    pub(super) body: Option<Bytes>,
    /// The records of bodies that are passed on as they were received. Then there are no items.
    received: Option<ReceivedRecords>,
}

/// The log records of bodies that are passed on.
#[derive(Debug)]
struct ReceivedRecords {
    first: LogPosition,
    _charges: Vec<ByteCharge>,
}

/// Requests at most that look for the refused part of one batch.
const SPLITS_MAX: u32 = 128;

impl SampleBatch {
    /// Creates a batch. Groups the items by series and keeps their order within a series.
    pub(super) fn new(mut items: Vec<Item>) -> SampleBatch {
        items.sort_by_key(|item| item.id);
        SampleBatch::of(items, Arc::new(AtomicU32::new(SPLITS_MAX)))
    }

    fn of(items: Vec<Item>, splits_left: Arc<AtomicU32>) -> SampleBatch {
        let first_seq = items.iter().map(|item| item.seq).min().unwrap_or(u64::MAX);
        let first_ms = first_ms(&items);
        let is_sample = |item: &&Item| !matches!(item.value, ForwardedValue::Exemplar(_));
        let samples = items.iter().filter(is_sample).count() as u64;
        SampleBatch {
            items,
            first_seq,
            first_ms,
            samples,
            splits_left,
            attempts: 0,
            body: None,
            received: None,
        }
    }

    /// Creates a batch of bodies that are passed on as they were received. `None` if they cannot be
    /// joined.
    pub(super) fn of_received(bodies: Vec<ReceivedBody>) -> Option<SampleBatch> {
        let span = bodies.first()?.span;
        let samples = bodies.iter().map(|body| body.span.samples).sum();
        let (bytes, charges): (Vec<Bytes>, Vec<ByteCharge>) =
            bodies.into_iter().map(|body| (body.body, body.charge)).unzip();
        Some(SampleBatch {
            items: Vec::new(),
            first_seq: span.first.0,
            first_ms: Some(span.newest_ms),
            samples,
            splits_left: Arc::default(),
            attempts: 0,
            body: Some(join(&bytes)?),
            received: Some(ReceivedRecords { first: span.first, _charges: charges }),
        })
    }

    /// Returns the number of the first record if the batch is passed on as it was received.
    pub(super) fn received_from(&self) -> Option<LogPosition> {
        self.received.as_ref().map(|received| received.first)
    }

    /// Returns the number of the first log record that the batch needs.
    pub(super) const fn first_seq(&self) -> u64 {
        self.first_seq
    }

    /// Returns the number of samples and histograms.
    pub(super) const fn samples(&self) -> u64 {
        self.samples
    }

    /// Returns the newest time among the samples of its first log record.
    pub(super) const fn first_ms(&self) -> Option<i64> {
        self.first_ms
    }

    /// Returns its first series as text.
    pub(super) fn first_series(&self) -> String {
        self.items.first().map(|item| item.series.as_text()).unwrap_or_default()
    }

    /// Splits the batch in halves; the first is sent first. Returns the batch itself if it has one
    /// item, or if the search has used up its requests.
    pub(super) fn halves(mut self) -> Result<(SampleBatch, SampleBatch), Box<SampleBatch>> {
        let takes_two = |left: u32| left.checked_sub(2);
        let is_allowed = self.items.len() > 1
            && self.splits_left.fetch_update(Ordering::Relaxed, Ordering::Relaxed, takes_two).is_ok();
        if !is_allowed {
            return Err(Box::new(self));
        }
        let second = self.items.split_off(self.items.len() / 2);
        let splits_left = Arc::clone(&self.splits_left);
        Ok((SampleBatch::of(self.items, self.splits_left), SampleBatch::of(second, splits_left)))
    }

    /// Encodes the batch. `None` if it does not fit into a request of the encoder.
    pub(super) fn encode(
        &self,
        encoder: &mut RequestEncoder,
    ) -> Result<Option<EncodedRequest>, CompressionError> {
        let mut samples = Vec::new();
        let (mut histograms, mut exemplars, mut starts) = (Vec::new(), Vec::new(), Vec::new());
        for group in self.items.chunk_by(|a, b| a.id == b.id) {
            let Some(first) = group.first() else { continue };
            samples.clear();
            histograms.clear();
            exemplars.clear();
            starts.clear();
            let mut start_ms = 0;
            for item in group {
                let at = match &item.value {
                    ForwardedValue::Sample(sample) => {
                        samples.push(*sample);
                        sample.at
                    }
                    ForwardedValue::Histogram(at, histogram) => {
                        histograms.push((*at, (**histogram).clone()));
                        *at
                    }
                    ForwardedValue::Exemplar(exemplar) => {
                        exemplars.push((**exemplar).clone());
                        continue;
                    }
                };
                if item.start_ms != start_ms {
                    start_ms = item.start_ms;
                    starts.push(StartChange { at, start: Timestamp::from_ms(start_ms) });
                }
            }
            let metadata = first.series.metadata.as_ref().map(|found| MetricMetadata {
                name: &found.name,
                kind: found.kind,
                help: &found.help,
                unit: &found.unit,
            });
            let label_fields = match encoder.version() {
                WriteVersion::V1 => {
                    &**first.series.label_fields.get_or_init(|| label_fields(&first.series.labels))
                }
                WriteVersion::V2 => &[],
            };
            let series = OutgoingSeries {
                labels: &first.series.labels,
                label_fields,
                samples: &samples,
                histograms: &histograms,
                exemplars: &exemplars,
                starts: &starts,
                metadata,
            };
            if encoder.push(&series).is_err() {
                encoder.clear();
                return Ok(None);
            }
        }
        encoder.finish().map(Some)
    }
}
