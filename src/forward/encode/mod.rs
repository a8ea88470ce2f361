//! Encoder of remote write 1.0 and 2.0 requests: borrowed series in, a compressed body out.
//!
//! ```text
//! RequestEncoder::push(series) ... push(series)   bounded by `bytes_max`
//! RequestEncoder::finish()                        protobuf, then one snappy block or zstd frame
//! ```
//!
//! `rw1` and `rw2` draw the messages of both versions; `ingest::prompb` those that both share.
//! Sources: <https://prometheus.io/docs/specs/prw/remote_write_spec/>,
//! <https://prometheus.io/docs/specs/prw/remote_write_spec_2_0/>.

mod rw1;
mod rw2;
mod symbols;
#[cfg(test)]
mod tests;

use crate::ingest::prompb::put_labels;
use crate::ingest::remote_write;
use crate::model::{Exemplar, Histogram, Labels, MetricMetadata, Sample, StartChange, Timestamp};
use symbols::SymbolTable;

/// A version of the remote write protocol.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum WriteVersion {
    /// 1.0: `prometheus.WriteRequest`, which has no start timestamps.
    V1,
    /// 2.0: `io.prometheus.write.v2.Request`.
    V2,
}

impl WriteVersion {
    /// Returns the value of `Content-Type`.
    pub const fn content_type(self) -> &'static str {
        match self {
            WriteVersion::V1 => "application/x-protobuf",
            WriteVersion::V2 => "application/x-protobuf;proto=io.prometheus.write.v2.Request",
        }
    }

    /// Returns the value of `X-Prometheus-Remote-Write-Version`.
    pub const fn version_header(self) -> &'static str {
        match self {
            WriteVersion::V1 => "0.1.0",
            WriteVersion::V2 => "2.0.0",
        }
    }

    /// Returns the name in the API.
    pub const fn as_str(self) -> &'static str {
        match self {
            WriteVersion::V1 => "rw1",
            WriteVersion::V2 => "rw2",
        }
    }
}

/// A compression of request bodies.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum BodyCompression {
    /// One snappy block, which every receiver decodes.
    Snappy,
    /// One zstd frame (level 1), which VictoriaMetrics decodes.
    Zstd,
}

impl BodyCompression {
    /// Returns the value of `Content-Encoding`.
    pub const fn content_encoding(self) -> &'static str {
        match self {
            BodyCompression::Snappy => "snappy",
            BodyCompression::Zstd => "zstd",
        }
    }
}

/// Part of one series, borrowed from its owner.
#[derive(Clone, Copy, Debug)]
pub struct OutgoingSeries<'a> {
    /// The label set. Version 1.0 does not read it if there are `label_fields`.
    pub labels: &'a Labels,
    /// The result of [`label_fields`], if the sender keeps it. It makes requests of version 1.0
    /// cheaper.
    pub label_fields: &'a [u8],
    /// Samples, ascending in time.
    pub samples: &'a [Sample],
    /// Native histograms, ascending in time.
    pub histograms: &'a [(Timestamp, Histogram)],
    /// Exemplars, ascending in time.
    pub exemplars: &'a [Exemplar],
    /// Start timestamps, ascending in `at`. Samples before the first change have none. A start of
    /// zero means that the start is no longer known.
    pub starts: &'a [StartChange],
    /// Metadata of the metric, with the name of its family.
    pub metadata: Option<MetricMetadata<'a>>,
}

impl<'a> OutgoingSeries<'a> {
    /// Returns a series with these samples and nothing else.
    pub const fn of_samples(labels: &'a Labels, samples: &'a [Sample]) -> OutgoingSeries<'a> {
        OutgoingSeries {
            labels,
            label_fields: &[],
            samples,
            histograms: &[],
            exemplars: &[],
            starts: &[],
            metadata: None,
        }
    }

    /// Returns the start timestamp of the sample at `at`, in milliseconds; 0 if it has none.
    fn start_of(&self, at: Timestamp) -> i64 {
        let after = self.starts.partition_point(|change| change.at <= at);
        let change = after.checked_sub(1).and_then(|place| self.starts.get(place));
        change.map_or(0, |change| change.start.as_ms())
    }
}

/// Returns labels as they are in a `TimeSeries` of version 1.0.
pub fn label_fields(labels: &Labels) -> Box<[u8]> {
    // The heads of a label and of its name and value have at most 15 bytes.
    let bytes = labels.iter().map(|label| label.name.len() + label.value.len() + 15).sum();
    let mut fields = Vec::with_capacity(bytes);
    put_labels(labels, &mut fields);
    fields.into()
}

/// Returns the labels of [`label_fields`].
pub fn labels_of_fields(fields: &[u8]) -> Labels {
    let mut pairs = Vec::new();
    // The fields were encoded here.
    let parsed = remote_write::parse_labels(fields, &mut pairs);
    let text = |bytes| String::from_utf8_lossy(bytes);
    match parsed {
        Ok(()) => Labels::from_pairs(pairs.into_iter().map(|(name, value)| (text(name), text(value)))),
        Err(_) => Labels::default(),
    }
}

/// Numbers of entries in a request.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct EncodedCounts {
    /// Series pushed.
    pub series: usize,
    /// Samples, without histograms.
    pub samples: usize,
    /// Native histograms.
    pub histograms: usize,
    /// Exemplars.
    pub exemplars: usize,
}

/// The series does not fit into the request. No part of the series was added. If the request is
/// empty, the series alone is too large.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("the request would have {needed} bytes; at most {bytes_max} are allowed")]
pub struct RequestFull {
    /// Bytes of protobuf with the series.
    pub needed: usize,
    /// The limit.
    pub bytes_max: usize,
}

/// The compressor failed: no memory, or a body beyond its limits.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("cannot compress a request body: {0}")]
pub struct CompressionError(String);

/// A finished request.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct EncodedRequest {
    /// The compressed body.
    pub body: Vec<u8>,
    /// Bytes of protobuf before compression.
    pub plain_bytes: usize,
    /// The entries.
    pub counts: EncodedCounts,
}

/// An encoder of requests, one after another. Its buffers are reused; a sample allocates nothing.
pub struct RequestEncoder {
    version: WriteVersion,
    compression: BodyCompression,
    bytes_max: usize,
    counts: EncodedCounts,
    buffers: Buffers,
    snappy: snap::raw::Encoder,
    /// Created for the first zstd body.
    zstd: Option<zstd::bulk::Compressor<'static>>,
}

/// Parts of a request, and memory for messages whose length comes before them.
#[derive(Default)]
struct Buffers {
    /// `TimeSeries` fields.
    series: Vec<u8>,
    /// `MetricMetadata` fields (version 1.0).
    metadata: Vec<u8>,
    /// The symbols (version 2.0), or the families that `metadata` describes (version 1.0).
    symbols: SymbolTable,
    /// The `TimeSeries` that is being encoded.
    message: Vec<u8>,
    /// A message inside `message`.
    inner: Vec<u8>,
    /// Packed references to symbols.
    references: Vec<u8>,
    /// The whole request.
    plain: Vec<u8>,
}

/// Consecutive samples of one kind and, in version 2.0, with one start timestamp. Receivers store
/// the samples of a `TimeSeries` before its histograms, so each kind gets a `TimeSeries` of its own
/// where both occur.
struct Run<'a> {
    samples: &'a [Sample],
    histograms: &'a [(Timestamp, Histogram)],
    /// The time in milliseconds; 0 for none.
    start_ms: i64,
    /// Exemplars, with the last run.
    exemplars: &'a [Exemplar],
    /// Metadata, with the first run.
    metadata: Option<MetricMetadata<'a>>,
}

impl RequestEncoder {
    /// Largest `bytes_max`, in bytes: receivers of remote write decompress no larger body.
    pub const BYTES_MAX: usize = 64 << 20;

    /// Creates an encoder of requests of at most `bytes_max` bytes of protobuf.
    pub fn new(version: WriteVersion, compression: BodyCompression, bytes_max: usize) -> RequestEncoder {
        let bytes_max = bytes_max.min(RequestEncoder::BYTES_MAX);
        let mut encoder = RequestEncoder {
            version,
            compression,
            bytes_max,
            counts: EncodedCounts::default(),
            buffers: Buffers::default(),
            snappy: snap::raw::Encoder::new(),
            zstd: None,
        };
        encoder.clear();
        encoder
    }

    /// Returns the protocol version of the requests.
    pub const fn version(&self) -> WriteVersion {
        self.version
    }

    /// Returns the compression of the requests.
    pub const fn compression(&self) -> BodyCompression {
        self.compression
    }

    /// Returns the numbers of entries pushed since the last request.
    pub const fn counts(&self) -> EncodedCounts {
        self.counts
    }

    /// Returns the bytes of protobuf so far.
    pub fn plain_bytes(&self) -> usize {
        let Buffers { series, metadata, symbols, .. } = &self.buffers;
        let symbols = if self.version == WriteVersion::V2 { symbols.bytes().len() } else { 0 };
        series.len() + metadata.len() + symbols
    }

    /// Returns whether nothing was pushed since the last request.
    pub fn is_empty(&self) -> bool {
        self.buffers.series.is_empty() && self.buffers.metadata.is_empty()
    }

    /// Removes everything pushed since the last request.
    pub fn clear(&mut self) {
        self.counts = EncodedCounts::default();
        self.buffers.series.clear();
        self.buffers.metadata.clear();
        self.buffers.symbols.clear();
        if self.version == WriteVersion::V2 {
            // The first symbol must be the empty string.
            self.buffers.symbols.reference("");
        }
    }

    /// Adds a series. Series are received in the order of the calls.
    ///
    /// # Errors
    /// [`RequestFull`]; the request is as before the call.
    pub fn push(&mut self, series: &OutgoingSeries<'_>) -> Result<(), RequestFull> {
        let (series_end, metadata_end) = (self.buffers.series.len(), self.buffers.metadata.len());
        let symbols = self.buffers.symbols.len();
        let (version, buffers) = (self.version, &mut self.buffers);
        each_run(series, version == WriteVersion::V2, |run| match version {
            WriteVersion::V1 => rw1::put_series(buffers, series, &run),
            WriteVersion::V2 => rw2::put_series(buffers, series.labels, &run),
        });
        let (needed, bytes_max) = (self.plain_bytes(), self.bytes_max);
        if needed > bytes_max {
            self.buffers.series.truncate(series_end);
            self.buffers.metadata.truncate(metadata_end);
            self.buffers.symbols.truncate(symbols);
            return Err(RequestFull { needed, bytes_max });
        }
        self.counts.series += 1;
        self.counts.samples += series.samples.len();
        self.counts.histograms += series.histograms.len();
        self.counts.exemplars += series.exemplars.len();
        Ok(())
    }

    /// Returns the compressed request and begins the next one.
    ///
    /// # Errors
    /// [`CompressionError`]; the request is removed as well.
    pub fn finish(&mut self) -> Result<EncodedRequest, CompressionError> {
        let Buffers { series, metadata, symbols, plain, .. } = &mut self.buffers;
        if self.version == WriteVersion::V1 {
            // Its symbols are not sent.
            series.extend_from_slice(metadata);
            std::mem::swap(series, plain);
        } else {
            plain.clear();
            plain.extend_from_slice(symbols.bytes());
            plain.extend_from_slice(series);
            plain.extend_from_slice(metadata);
        }
        let (plain_bytes, counts) = (plain.len(), self.counts);
        let body = self.compress();
        self.clear();
        body.map(|body| EncodedRequest { body, plain_bytes, counts })
    }

    fn compress(&mut self) -> Result<Vec<u8>, CompressionError> {
        /// Level of zstd: faster than snappy for smaller bodies.
        const LEVEL: i32 = 1;
        let plain = &self.buffers.plain;
        match self.compression {
            BodyCompression::Snappy => {
                self.snappy.compress_vec(plain).map_err(|error| CompressionError(error.to_string()))
            }
            BodyCompression::Zstd => {
                let failed = |error: std::io::Error| CompressionError(error.to_string());
                let compressor = match &mut self.zstd {
                    Some(compressor) => compressor,
                    none => none.insert(zstd::bulk::Compressor::new(LEVEL).map_err(failed)?),
                };
                compressor.compress(plain).map_err(failed)
            }
        }
    }
}

impl std::fmt::Debug for RequestEncoder {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("RequestEncoder")
            .field("version", &self.version)
            .field("compression", &self.compression)
            .field("counts", &self.counts)
            .finish_non_exhaustive()
    }
}

/// Calls `each` with the runs of a series, in order of time. A series without samples and
/// histograms has one run if it has exemplars or metadata.
fn each_run<'a>(series: &OutgoingSeries<'a>, with_starts: bool, mut each: impl FnMut(Run<'a>)) {
    let with_starts = with_starts && !series.starts.is_empty();
    let start_of = |at: Timestamp| if with_starts { series.start_of(at) } else { 0 };
    let (mut samples, mut histograms) = (series.samples, series.histograms);
    let mut metadata = series.metadata;
    if samples.is_empty() && histograms.is_empty() && series.exemplars.is_empty() && metadata.is_none() {
        return;
    }
    loop {
        let (next_sample, next_histogram) = (samples.first(), histograms.first());
        let (mut sample_count, mut histogram_count, mut start_ms) = (0, 0, 0);
        // At equal times the sample comes first.
        if let Some(first) = next_sample.filter(|next| next_histogram.is_none_or(|(at, _)| next.at <= *at)) {
            start_ms = start_of(first.at);
            sample_count = match next_histogram {
                None if !with_starts => samples.len(),
                None => samples.iter().take_while(|next| start_of(next.at) == start_ms).count(),
                Some((at, _)) => {
                    let in_run = |next: &&Sample| next.at <= *at && start_of(next.at) == start_ms;
                    samples.iter().take_while(in_run).count()
                }
            };
        } else if let Some((first, _)) = next_histogram {
            start_ms = start_of(*first);
            let in_run = |(at, _): &&(Timestamp, Histogram)| {
                next_sample.is_none_or(|next| *at < next.at) && start_of(*at) == start_ms
            };
            histogram_count = histograms.iter().take_while(in_run).count();
        }
        let (of_run, more_samples) = samples.split_at(sample_count);
        let (histograms_of_run, more_histograms) = histograms.split_at(histogram_count);
        (samples, histograms) = (more_samples, more_histograms);
        let is_last = samples.is_empty() && histograms.is_empty();
        each(Run {
            samples: of_run,
            histograms: histograms_of_run,
            start_ms,
            exemplars: if is_last { series.exemplars } else { &[] },
            metadata: metadata.take(),
        });
        if is_last {
            return;
        }
    }
}
