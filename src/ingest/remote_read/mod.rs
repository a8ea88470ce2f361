//! Prometheus' remote read, version 0.1.0: requests and both kinds of responses, of clients and of
//! servers.
//!
//! * Request: `snappy(ReadRequest)`. `ReadRequest`: 1 `Query`, 2 accepted response types (enum: 0
//!   samples, 1 streamed chunks). `Query`: 1 start and 2 end (int64, milliseconds, inclusive), 3
//!   `LabelMatcher`. `LabelMatcher`: 1 type (enum: 0 `=`, 1 `!=`, 2 `=~`, 3 `!~`), 2 name, 3 value.
//! * Samples: `snappy(ReadResponse)`. `ReadResponse`: 1 `QueryResult`, one for each query.
//!   `QueryResult`: 1 `TimeSeries`. `TimeSeries`: 1 `Label`, 2 `Sample`, 4 `Histogram`.
//! * Streamed chunks: frames of `varint length, u32 CRC-32C (big-endian), ChunkedReadResponse`.
//!   `ChunkedReadResponse`: 1 `ChunkedSeries`, 2 query index (int64). `ChunkedSeries`: 1 `Label`, 2
//!   `Chunk`. `Chunk`: 3 encoding (enum), 4 data; see [`prometheus_chunk`]. A series may
//!   continue in the next frame. Chunks may contain samples outside of the requested range, which
//!   are dropped here.
//!
//! Both have staleness markers, native histograms and their reset hints, so decoded samples equal
//! the stored ones to the bit. They have no start timestamps and no exemplars.
//!
//! An upstream is not trusted: lengths are checked before memory is allocated, and the memory of
//! all samples is charged while they are decoded.
//!
//! Source: prometheus/prompb/remote.proto and types.proto, prometheus/storage/remote/chunked.go.

mod matrix;
mod respond;

use std::sync::Arc;

use super::histogram;
use super::prometheus_chunk::{self, ChunkError, ChunkKind, ChunkSample};
use super::protobuf::{Field, WireError, WireReader, label_pair, put_bytes};
use super::protobuf_write::put_int64;
use super::snappy::{SnappyError, decompress};
use super::{DecodeError, DecodeLimits};
use crate::model::{
    HistogramError, Label, Labels, MatchOp, Matcher, OutOfMemory, RawSeries, TimeRange, Timestamp,
};

pub use respond::{
    ReadRequestBody, ReadRequestError, RequestedSeries, TimeSeriesMessage, decode_request, put_chunk_frame,
    samples_response,
};

/// The content type of a response of samples.
pub const SAMPLES_TYPE: &str = "application/x-protobuf";
/// The content type of a response of streamed chunks.
pub const CHUNKS_TYPE: &str = "application/x-streamed-protobuf";

/// The raw samples that a request selects.
#[derive(Clone, Debug)]
pub struct ReadQuery {
    /// The matchers; all must match.
    pub matchers: Vec<Matcher>,
    /// The times, both ends inclusive.
    pub range: TimeRange,
}

/// Limits of a response. All maxima are inclusive.
#[derive(Clone, Copy, Debug)]
pub struct ReadLimits {
    /// Memory of all decoded series in bytes.
    pub bytes_max: u64,
    /// Series of all queries.
    pub series_max: usize,
    /// Bytes of a frame. Prometheus sends at most 1 MiB unless it is configured otherwise.
    pub frame_bytes_max: usize,
    /// Bytes of a response of samples, before and after decompression.
    pub samples_body_max: usize,
    /// Labels of one series.
    pub labels_max: usize,
    /// Bucket entries of all native histograms of a response of samples.
    pub buckets_max: usize,
}

impl Default for ReadLimits {
    fn default() -> ReadLimits {
        ReadLimits {
            bytes_max: 1 << 30,
            series_max: 1_000_000,
            frame_bytes_max: 16 << 20,
            samples_body_max: 256 << 20,
            labels_max: 1_024,
            buckets_max: 64_000_000,
        }
    }
}

/// The reason why a response is refused. No part of the response is used.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ReadError {
    /// The response exceeds a limit.
    #[error("the upstream sent {found} {what}; at most {allowed} are allowed")]
    TooLarge {
        /// The items of which there are too many.
        what: &'static str,
        /// The number at which decoding stopped.
        found: u64,
        /// The limit.
        allowed: u64,
    },
    /// The memory that the query may use is exhausted.
    #[error("there is no memory for the samples of the upstream")]
    Memory,
    /// A response of the query API is malformed.
    #[error("json: {0}")]
    Json(String),
    /// The query API returned a part of the samples.
    #[error("the answer is partial: {0}")]
    Partial(String),
    /// The query API would lose native histograms.
    #[error("native histograms can be read through remote read only, which the upstream does not offer")]
    Lossy,
    /// The content type is neither that of samples nor that of chunks.
    #[error("the response is neither samples nor chunks")]
    ContentType,
    /// The stream ends inside a frame.
    #[error("the response ends inside a frame")]
    Truncated,
    /// The bytes of a frame do not have its checksum.
    #[error("a frame has the wrong checksum")]
    Checksum,
    /// A chunk ends before its last sample.
    #[error("a chunk ends before its last sample")]
    ChunkTruncated,
    /// The decoder does not know the encoding of a chunk.
    #[error("chunks of the encoding {0} are not supported")]
    ChunkEncoding(u64),
    /// A chunk is invalid.
    #[error("a chunk is invalid: {0}")]
    Chunk(&'static str),
    /// A label set is invalid.
    #[error("a label set is invalid: {0}")]
    Labels(&'static str),
    /// A series belongs to a query that was not sent, or a query has no result.
    #[error("the response does not have one result for each query")]
    Results,
    /// A native histogram is invalid.
    #[error("{0}")]
    Histogram(#[from] HistogramError),
    /// A protobuf message is invalid.
    #[error("protobuf: {0}")]
    Wire(#[from] WireError),
    /// The snappy block is invalid.
    #[error("snappy: {0}")]
    Snappy(#[from] SnappyError),
    /// The system has no memory for the decompressed body.
    #[error(transparent)]
    OutOfMemory(#[from] OutOfMemory),
}

impl From<ChunkError> for ReadError {
    fn from(error: ChunkError) -> ReadError {
        match error {
            ChunkError::Truncated => ReadError::ChunkTruncated,
            ChunkError::Encoding(number) => ReadError::ChunkEncoding(number),
            ChunkError::Invalid(reason) => ReadError::Chunk(reason),
            ChunkError::Histogram(error) => ReadError::Histogram(error),
        }
    }
}

impl From<DecodeError> for ReadError {
    fn from(error: DecodeError) -> ReadError {
        match error {
            DecodeError::TooLarge { what, found, allowed } => {
                ReadError::TooLarge { what, found: found as u64, allowed: allowed as u64 }
            }
            DecodeError::OutOfMemory(error) => ReadError::OutOfMemory(error),
            DecodeError::Snappy(error) => ReadError::Snappy(error),
            DecodeError::Wire(error) => ReadError::Wire(error),
            _ => ReadError::Results,
        }
    }
}

/// Returns the body of a request: snappy, `Content-Type: application/x-protobuf`. Streamed chunks
/// are accepted if `chunks` is true, and preferred over samples then.
///
/// # Errors
/// [`ReadError::TooLarge`] if the queries do not fit into a snappy block, which has 4 GiB.
pub fn request(queries: &[ReadQuery], chunks: bool) -> Result<Vec<u8>, ReadError> {
    let mut message = Vec::new();
    for query in queries {
        let mut bytes = Vec::new();
        put_int64(1, query.range.start.as_ms(), &mut bytes);
        put_int64(2, query.range.end.as_ms(), &mut bytes);
        for matcher in &query.matchers {
            let mut one = Vec::new();
            let number = match matcher.op() {
                MatchOp::Equal => 0,
                MatchOp::NotEqual => 1,
                MatchOp::Regex => 2,
                MatchOp::NotRegex => 3,
            };
            put_int64(1, number, &mut one);
            put_bytes(2, matcher.name().as_bytes(), &mut one);
            put_bytes(3, matcher.value().as_bytes(), &mut one);
            put_bytes(3, &one, &mut bytes);
        }
        put_bytes(1, &bytes, &mut message);
    }
    put_bytes(2, if chunks { &[1, 0] } else { &[0] }, &mut message);
    let found = message.len() as u64;
    snap::raw::Encoder::new().compress_vec(&message).map_err(|_| ReadError::TooLarge {
        what: "bytes of queries",
        found,
        allowed: u64::from(u32::MAX),
    })
}

/// Reserves memory for decoded samples: returns whether the total of this many bytes is available,
/// and whether decoding may continue.
pub type HoldBytes<'h> = Box<dyn FnMut(u64) -> bool + Send + 'h>;

/// A decoder of both kinds of responses.
pub struct ReadDecoder<'h> {
    ranges: Vec<TimeRange>,
    limits: ReadLimits,
    hold: HoldBytes<'h>,
    /// The bytes of an incomplete frame.
    pending: Vec<u8>,
    /// The bytes without which the frame in `pending` is incomplete.
    needed: usize,
    series: Vec<RawSeries>,
    /// The query of the last series.
    last_query: usize,
    /// The memory of all series so far.
    bytes: u64,
    /// The memory that was reserved last.
    held: u64,
    /// The number of decoded samples, including those outside of the ranges.
    decoded: u64,
}

/// Memory that is reserved at once.
const HOLD_STEP: u64 = 64 << 10;
/// The number of samples between two calls that ask the caller whether decoding may continue.
const CHECK_SAMPLES: u64 = 1 << 16;
/// The memory of a float and its time.
const FLOAT_BYTES: usize = 4 * size_of::<u64>();
/// The memory of the texts of a label, without their bytes.
const TEXT_BYTES: usize = 32;
/// The longest varint of a frame's length, and the checksum.
const FRAME_HEAD_MAX: usize = 10 + 4;

const RESPONSE: &str = "ReadResponse";
const RESULT: &str = "QueryResult";
const SERIES: &str = "TimeSeries";
const SAMPLE: &str = "Sample";
const LABEL: &str = "Label";
const FRAME: &str = "ChunkedReadResponse";
const CHUNKED: &str = "ChunkedSeries";
const CHUNK: &str = "Chunk";

impl std::fmt::Debug for ReadDecoder<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("ReadDecoder")
            .field("queries", &self.ranges.len())
            .field("series", &self.series.len())
            .field("bytes", &self.bytes)
            .finish_non_exhaustive()
    }
}

impl<'h> ReadDecoder<'h> {
    /// Creates a decoder of the response to these queries. `hold` is called with the total memory
    /// before more is used.
    pub fn new(queries: &[ReadQuery], limits: ReadLimits, hold: HoldBytes<'h>) -> ReadDecoder<'h> {
        ReadDecoder {
            ranges: queries.iter().map(|query| query.range).collect(),
            limits,
            hold,
            pending: Vec::new(),
            needed: 0,
            series: Vec::new(),
            last_query: usize::MAX,
            bytes: 0,
            held: 0,
            decoded: 0,
        }
    }

    /// Decodes a response of samples.
    ///
    /// # Errors
    /// [`ReadError`].
    pub fn samples(mut self, body: &[u8]) -> Result<Vec<RawSeries>, ReadError> {
        let allowed = self.limits.samples_body_max;
        // The block may be invalid; then the decompression reports it.
        let declared = snap::raw::decompress_len(body).unwrap_or_default();
        self.take(declared.min(allowed))?;
        let limits = DecodeLimits {
            compressed_bytes_max: allowed,
            decompressed_bytes_max: allowed,
            ..DecodeLimits::default()
        };
        let mut buffer = Vec::new();
        let message = decompress(body, &limits, &mut buffer)?;
        let mut reader = WireReader::new(message);
        let (mut results, mut buckets) = (0_usize, 0_usize);
        while let Some(field) = reader.field()? {
            if field.number != 1 {
                continue;
            }
            let range = *self.ranges.get(results).ok_or(ReadError::Results)?;
            results = results.saturating_add(1);
            let mut result = WireReader::new(field.bytes(RESPONSE)?);
            while let Some(field) = result.field()? {
                if field.number == 1 {
                    self.time_series(field.bytes(RESULT)?, range, &mut buckets)?;
                }
            }
        }
        if results != self.ranges.len() {
            return Err(ReadError::Results);
        }
        Ok(self.series)
    }

    fn time_series(
        &mut self,
        message: &[u8],
        range: TimeRange,
        buckets: &mut usize,
    ) -> Result<(), ReadError> {
        let mut labels = Vec::new();
        let mut reader = WireReader::new(message);
        while let Some(field) = reader.field()? {
            if field.number == 1 {
                self.push_label(&field, SERIES, &mut labels)?;
            }
        }
        let labels = ReadDecoder::labels(labels)?;
        self.add_series(labels)?;
        let mut reader = WireReader::new(message);
        while let Some(field) = reader.field()? {
            match field.number {
                2 => {
                    let (at, value) = float_sample(field.bytes(SERIES)?)?;
                    self.add(range, at, ChunkSample::Float(value))?;
                }
                4 => {
                    let allowed = self.limits.buckets_max;
                    let (at, native) = histogram::decode(field.bytes(SERIES)?, allowed, buckets)?;
                    self.add(range, at.as_ms(), ChunkSample::Native(native?))?;
                }
                _ => {}
            }
        }
        Ok(())
    }

    /// Decodes the next bytes of a stream of chunks.
    ///
    /// # Errors
    /// [`ReadError`].
    pub fn push(&mut self, bytes: &[u8]) -> Result<(), ReadError> {
        if self.pending.is_empty() {
            // Usually the whole body at once, which is not copied.
            let rest = self.frames(bytes)?;
            self.pending.extend_from_slice(rest);
            return Ok(());
        }
        let mut pending = std::mem::take(&mut self.pending);
        pending.extend_from_slice(bytes);
        if pending.len() >= self.needed {
            let left = self.frames(&pending)?.len();
            let decoded = pending.len().saturating_sub(left);
            pending.drain(..decoded);
        }
        self.pending = pending;
        Ok(())
    }

    /// Returns the series of a stream of chunks that has ended.
    ///
    /// # Errors
    /// [`ReadError::Truncated`] if it ended inside a frame.
    pub fn finish(self) -> Result<Vec<RawSeries>, ReadError> {
        if self.pending.is_empty() { Ok(self.series) } else { Err(ReadError::Truncated) }
    }

    /// Decodes all whole frames, and returns the remaining bytes. Sets the number of bytes without
    /// which the next frame is incomplete.
    fn frames<'b>(&mut self, mut bytes: &'b [u8]) -> Result<&'b [u8], ReadError> {
        loop {
            self.needed = 0;
            let mut reader = WireReader::new(bytes);
            let length = match reader.length() {
                Ok(length) => length,
                Err(WireError::Truncated { .. }) if bytes.len() < FRAME_HEAD_MAX => return Ok(bytes),
                Err(error) => return Err(error.into()),
            };
            let allowed = self.limits.frame_bytes_max;
            let length = usize::try_from(length).ok().filter(|length| *length <= allowed);
            let Some(length) = length else {
                let found = allowed.saturating_add(1) as u64;
                return Err(ReadError::TooLarge { what: "bytes in a frame", found, allowed: allowed as u64 });
            };
            self.needed = reader.offset().saturating_add(4).saturating_add(length);
            let rest = bytes.get(reader.offset()..).unwrap_or_default();
            let Some((checksum, rest)) = rest.split_first_chunk::<4>() else { return Ok(bytes) };
            let Some((message, rest)) = rest.split_at_checked(length) else { return Ok(bytes) };
            if crc32c::crc32c(message) != u32::from_be_bytes(*checksum) {
                return Err(ReadError::Checksum);
            }
            self.frame(message)?;
            bytes = rest;
        }
    }

    fn frame(&mut self, message: &[u8]) -> Result<(), ReadError> {
        let mut query = 0_u64;
        let mut reader = WireReader::new(message);
        while let Some(field) = reader.field()? {
            if field.number == 2 {
                query = field.uint64(FRAME)?;
            }
        }
        let query = usize::try_from(query).map_err(|_| ReadError::Results)?;
        let range = *self.ranges.get(query).ok_or(ReadError::Results)?;
        let mut reader = WireReader::new(message);
        while let Some(field) = reader.field()? {
            if field.number == 1 {
                self.chunked_series(field.bytes(FRAME)?, query, range)?;
            }
        }
        Ok(())
    }

    fn chunked_series(&mut self, message: &[u8], query: usize, range: TimeRange) -> Result<(), ReadError> {
        let mut labels = Vec::new();
        let mut reader = WireReader::new(message);
        while let Some(field) = reader.field()? {
            if field.number == 1 {
                self.push_label(&field, CHUNKED, &mut labels)?;
            }
        }
        let labels = ReadDecoder::labels(labels)?;
        let continues =
            self.last_query == query && self.series.last().is_some_and(|last| last.labels == labels);
        if !continues {
            self.add_series(labels)?;
            self.last_query = query;
        }
        let mut reader = WireReader::new(message);
        while let Some(field) = reader.field()? {
            if field.number == 2 {
                let (mut encoding, mut data) = (0, &[][..]);
                let mut chunk = WireReader::new(field.bytes(CHUNKED)?);
                while let Some(field) = chunk.field()? {
                    match field.number {
                        3 => encoding = field.uint64(CHUNK)?,
                        4 => data = field.bytes(CHUNK)?,
                        _ => {}
                    }
                }
                let kind = ChunkKind::of(encoding)?;
                prometheus_chunk::decode(kind, data, |at, sample| self.add(range, at, sample))?;
            }
        }
        Ok(())
    }

    /// Adds a series without samples.
    fn add_series(&mut self, labels: Labels) -> Result<(), ReadError> {
        let (found, allowed) = (self.series.len().saturating_add(1), self.limits.series_max);
        if found > allowed {
            let (found, allowed) = (found as u64, allowed as u64);
            return Err(ReadError::TooLarge { what: "series", found, allowed });
        }
        let texts: usize =
            labels.iter().map(|label| label.name.len().saturating_add(label.value.len())).sum();
        let own = Labels::own_bytes(labels.len()).saturating_add(labels.len().saturating_mul(TEXT_BYTES));
        self.take(size_of::<RawSeries>().saturating_add(own).saturating_add(texts))?;
        self.series.push(RawSeries::new(labels));
        Ok(())
    }

    /// Adds a sample to the last series, unless it is outside of the range.
    fn add(&mut self, range: TimeRange, at_ms: i64, sample: ChunkSample) -> Result<(), ReadError> {
        self.decoded = self.decoded.wrapping_add(1);
        if self.decoded.is_multiple_of(CHECK_SAMPLES) && !(self.hold)(self.held) {
            return Err(ReadError::Memory);
        }
        if !range.contains(Timestamp::from_ms(at_ms)) {
            return Ok(());
        }
        match sample {
            ChunkSample::Float(value) => {
                // The capacity of a vector is at most twice its length.
                self.take(FLOAT_BYTES)?;
                if let Some(series) = self.series.last_mut() {
                    series.push(at_ms, value);
                }
            }
            ChunkSample::Native(native) => {
                let Some(last) = self.series.last() else { return Ok(()) };
                let before = last.histograms.histograms.last();
                let shares = before.is_some_and(|before| Arc::ptr_eq(before.shape(), native.shape()));
                let shape = if shares { 0 } else { native.shape().bytes() };
                self.take(native.bytes().saturating_mul(2).saturating_add(16).saturating_add(shape))?;
                if let Some(series) = self.series.last_mut() {
                    series.push_histogram(at_ms, native);
                }
            }
        }
        Ok(())
    }

    /// Reserves memory before it is used.
    fn take(&mut self, bytes: usize) -> Result<(), ReadError> {
        self.reserve(bytes)?;
        self.bytes = self.bytes.saturating_add(bytes as u64);
        Ok(())
    }

    /// Reserves memory that is used for a short time only.
    fn reserve(&mut self, bytes: usize) -> Result<(), ReadError> {
        let needed = self.bytes.saturating_add(bytes as u64);
        let allowed = self.limits.bytes_max;
        if needed > allowed {
            return Err(ReadError::TooLarge { what: "bytes of samples", found: needed, allowed });
        }
        if needed > self.held {
            self.held = needed.saturating_add(HOLD_STEP).min(allowed);
            if !(self.hold)(self.held) {
                return Err(ReadError::Memory);
            }
        }
        Ok(())
    }

    /// Reads a label. Its texts are shared with the series before it, if they are equal.
    fn push_label(
        &self,
        field: &Field<'_>,
        message: &'static str,
        labels: &mut Vec<Label>,
    ) -> Result<(), ReadError> {
        let (found, allowed) = (labels.len().saturating_add(1), self.limits.labels_max);
        if found > allowed {
            let (found, allowed) = (found as u64, allowed as u64);
            return Err(ReadError::TooLarge { what: "labels of a series", found, allowed });
        }
        let (name, value) = label_pair(field.bytes(message)?, LABEL)?;
        if name.is_empty() {
            return Err(ReadError::Labels("a label has no name"));
        }
        let last = self.series.last().and_then(|last| last.labels.get(name));
        let value = last.filter(|last| ***last == *value).map_or_else(|| value.into(), Arc::clone);
        labels.push(Label { name: name.into(), value });
        Ok(())
    }

    /// Builds a label set. Labels without a value do not exist.
    fn labels(mut labels: Vec<Label>) -> Result<Labels, ReadError> {
        labels.retain(|label| !label.value.is_empty());
        if !labels.is_sorted_by(|a, b| a.name < b.name) {
            labels.sort_by(|a, b| a.name.cmp(&b.name));
            if !labels.is_sorted_by(|a, b| a.name < b.name) {
                return Err(ReadError::Labels("a label occurs twice"));
            }
        }
        Ok(Labels::from_sorted(labels))
    }
}

/// Reads the time in milliseconds and the value of a `Sample`.
fn float_sample(message: &[u8]) -> Result<(i64, f64), ReadError> {
    let (mut at, mut value) = (0, 0.0);
    let mut reader = WireReader::new(message);
    while let Some(field) = reader.field()? {
        match field.number {
            1 => value = field.double(SAMPLE)?,
            2 => at = field.int64(SAMPLE)?,
            _ => {}
        }
    }
    Ok((at, value))
}

#[cfg(test)]
mod tests;
