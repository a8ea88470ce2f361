//! The server's side of remote read: requests are decoded, and series are encoded.

use super::ReadError;
use crate::ingest::prometheus_chunk::EncodedChunk;
use crate::ingest::prompb::{put_histogram, put_labels, put_sample};
use crate::ingest::protobuf::{WireError, WireReader};
use crate::ingest::protobuf_write::{put_bytes, put_int64, put_uint64, put_varint};
use crate::ingest::snappy::decompress;
use crate::ingest::{DecodeError, DecodeLimits};
use crate::model::{Labels, MatchOp, RawSeries, TimeRange, Timestamp};

/// The most bytes of a request after decompression, inclusive.
const REQUEST_BYTES_MAX: usize = 1 << 20;
/// The most queries of a request, inclusive.
const QUERIES_MAX: usize = 32;
/// The most matchers of all queries, inclusive.
const MATCHERS_MAX: usize = 256;

const REQUEST: &str = "ReadRequest";
const QUERY: &str = "Query";
const MATCHER: &str = "LabelMatcher";

/// A decoded request.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ReadRequestBody {
    /// The queries.
    pub queries: Vec<RequestedSeries>,
    /// Whether the client takes streamed chunks.
    pub accepts_chunks: bool,
}

/// A query of a request. Its patterns are not compiled yet.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RequestedSeries {
    /// Operator, name and value of each matcher; all must match.
    pub matchers: Vec<(MatchOp, String, String)>,
    /// The times, both ends inclusive.
    pub range: TimeRange,
}

/// The reason why a request is refused.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ReadRequestError {
    /// The body exceeds a limit, or is no compressed protobuf message.
    #[error(transparent)]
    Body(#[from] DecodeError),
    /// A matcher is invalid.
    #[error("a matcher is invalid: {0}")]
    Matcher(&'static str),
}

impl From<WireError> for ReadRequestError {
    fn from(error: WireError) -> ReadRequestError {
        ReadRequestError::Body(error.into())
    }
}

/// Decodes the body of a request. The hints of a query are ignored, as a server may.
///
/// # Errors
/// [`ReadRequestError`].
pub fn decode_request(body: &[u8]) -> Result<ReadRequestBody, ReadRequestError> {
    let limits = DecodeLimits {
        compressed_bytes_max: REQUEST_BYTES_MAX,
        decompressed_bytes_max: REQUEST_BYTES_MAX,
        ..DecodeLimits::default()
    };
    let mut buffer = Vec::new();
    let message = decompress(body, &limits, &mut buffer)?;
    let (mut request, mut matchers) = (ReadRequestBody::default(), 0_usize);
    let mut reader = WireReader::new(message);
    while let Some(field) = reader.field()? {
        match field.number {
            1 => {
                check_count("queries", request.queries.len(), QUERIES_MAX)?;
                request.queries.push(decode_query(field.bytes(REQUEST)?, &mut matchers)?);
            }
            2 => field.varints(REQUEST, |kind| {
                request.accepts_chunks |= kind == 1;
                Ok::<_, ReadRequestError>(())
            })?,
            _ => {}
        }
    }
    Ok(request)
}

fn check_count(what: &'static str, count: usize, allowed: usize) -> Result<(), ReadRequestError> {
    if count < allowed {
        return Ok(());
    }
    Err(DecodeError::TooLarge { what, found: count.saturating_add(1), allowed }.into())
}

fn decode_query(message: &[u8], matchers: &mut usize) -> Result<RequestedSeries, ReadRequestError> {
    let (mut start, mut end, mut all) = (0, 0, Vec::new());
    let mut reader = WireReader::new(message);
    while let Some(field) = reader.field()? {
        match field.number {
            1 => start = field.int64(QUERY)?,
            2 => end = field.int64(QUERY)?,
            3 => {
                check_count("matchers", *matchers, MATCHERS_MAX)?;
                *matchers = matchers.saturating_add(1);
                all.push(decode_matcher(field.bytes(QUERY)?)?);
            }
            _ => {}
        }
    }
    let range = TimeRange::new(Timestamp::from_ms(start), Timestamp::from_ms(end));
    Ok(RequestedSeries { matchers: all, range })
}

fn decode_matcher(message: &[u8]) -> Result<(MatchOp, String, String), ReadRequestError> {
    let (mut op, mut name, mut value) = (MatchOp::Equal, "", "");
    let mut reader = WireReader::new(message);
    while let Some(field) = reader.field()? {
        match field.number {
            1 => {
                op = match field.uint64(MATCHER)? {
                    0 => MatchOp::Equal,
                    1 => MatchOp::NotEqual,
                    2 => MatchOp::Regex,
                    3 => MatchOp::NotRegex,
                    _ => return Err(ReadRequestError::Matcher("its type is not known")),
                };
            }
            2 => name = field.text(MATCHER)?,
            3 => value = field.text(MATCHER)?,
            _ => {}
        }
    }
    if name.is_empty() {
        return Err(ReadRequestError::Matcher("it has no label name"));
    }
    Ok((op, name.to_owned(), value.to_owned()))
}

/// Appends a frame with chunks of a series of a query, which is named by its place.
pub fn put_chunk_frame(labels: &Labels, chunks: &[EncodedChunk], query: usize, out: &mut Vec<u8>) {
    let mut series = Vec::new();
    put_labels(labels, &mut series);
    for chunk in chunks {
        let mut one = Vec::with_capacity(chunk.data.len().saturating_add(32));
        put_int64(1, chunk.first_ms, &mut one);
        put_int64(2, chunk.last_ms, &mut one);
        put_uint64(3, chunk.kind.number().into(), &mut one);
        put_bytes(4, &chunk.data, &mut one);
        put_bytes(2, &one, &mut series);
    }
    let mut message = Vec::with_capacity(series.len().saturating_add(16));
    put_bytes(1, &series, &mut message);
    put_uint64(2, query as u64, &mut message);
    put_varint(message.len() as u64, out);
    out.extend_from_slice(&crc32c::crc32c(&message).to_be_bytes());
    out.extend_from_slice(&message);
}

/// A message `TimeSeries` under construction, from the parts of a series.
#[derive(Debug, Default)]
pub struct TimeSeriesMessage {
    bytes: Vec<u8>,
    /// A histogram inside of the chunk.
    histogram: Vec<u8>,
}

impl TimeSeriesMessage {
    /// Appends the samples of a part, and the labels before the first sample.
    pub fn push(&mut self, part: &RawSeries) {
        if self.bytes.is_empty() && !part.is_empty() {
            put_labels(&part.labels, &mut self.bytes);
        }
        for (at, value) in part.times.iter().zip(&part.values) {
            put_sample(Timestamp::from_ms(*at), *value, &mut self.bytes);
        }
        for (at, histogram) in part.histograms.times.iter().zip(&part.histograms.histograms) {
            self.histogram.clear();
            put_histogram(Timestamp::from_ms(*at), histogram, 0, &mut self.histogram);
            put_bytes(4, &self.histogram, &mut self.bytes);
        }
    }

    /// Returns the number of bytes so far.
    pub fn len(&self) -> usize {
        self.bytes.len()
    }

    /// Returns whether the series has no sample so far.
    pub fn is_empty(&self) -> bool {
        self.bytes.is_empty()
    }

    /// Appends the series to a message `QueryResult`, unless it has no samples.
    pub fn put_into(&self, result: &mut Vec<u8>) {
        if !self.is_empty() {
            put_bytes(1, &self.bytes, result);
        }
    }
}

/// Returns a response of samples: one message `QueryResult` for each query.
///
/// # Errors
/// [`ReadError::TooLarge`] if it does not fit into a snappy block.
pub fn samples_response(results: &[Vec<u8>]) -> Result<Vec<u8>, ReadError> {
    let mut message = Vec::new();
    results.iter().for_each(|result| put_bytes(1, result, &mut message));
    let found = message.len() as u64;
    snap::raw::Encoder::new().compress_vec(&message).map_err(|_| ReadError::TooLarge {
        what: "bytes of samples",
        found,
        allowed: u64::from(u32::MAX),
    })
}
