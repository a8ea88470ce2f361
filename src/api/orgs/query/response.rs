//! Response bodies of queries: small ones are encoded at once, large ones while the client reads
//! them.
//!
//! The query lane encodes the head and the first chunk of a large body, and decides the status. The
//! answer lane encodes each further chunk while its predecessor is sent. So a slow client holds
//! neither a thread nor the whole text, only one chunk and the values. The values stay charged to
//! the memory that queries share. An error after the head ends the body early: the chunked transfer
//! coding then has no last chunk, and so the client notices.

use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};
use std::time::Duration;

use axum::body::{Body, Bytes};
use axum::http::{HeaderValue, header};
use axum::response::Response;
use hyper::body::Frame;

use super::result::ResultData;
use crate::api::encoding::{BodyCompression, Coding, Effort, Encoder};
use crate::api::error::{ApiError, ApiResult};
use crate::api::lanes::{Lanes, Reply};
use crate::api::prom_json::{BodyTooLarge, ResultCursor};
use crate::clock::Stopwatch;
use crate::model::OrgId;
use crate::promql::{Lease, QueryError};

/// Bodies up to this length are encoded at once, inclusive.
pub(super) const WHOLE_BYTES_MAX: usize = 1 << 20;
/// The JSON bytes of one chunk, which a connection holds in addition to the values. Writing them
/// takes about 0.2 ms, compressing them about 2 ms.
pub(super) const CHUNK_BYTES: usize = 128 << 10;
/// The longest time for a client to read a large body, because the values stay in memory until
/// then.
pub(super) const DOWNLOAD_MAX: Duration = Duration::from_secs(600);

/// A JSON body and its content coding.
#[derive(Debug)]
pub(in crate::api::orgs) struct QueryBody {
    body: Body,
    coding: Coding,
}

/// A result and the surrounding JSON text.
#[derive(Debug)]
pub(in crate::api::orgs) struct Envelope {
    /// The text before the members of `data`.
    pub(in crate::api::orgs) head: Vec<u8>,
    /// The result, the members of `data`.
    pub(in crate::api::orgs) value: ResultData,
    /// The text after the members of `data`.
    pub(in crate::api::orgs) tail: Vec<u8>,
}

impl QueryBody {
    /// Compresses a complete body.
    pub(in crate::api::orgs) fn whole(body: Vec<u8>, coding: Coding) -> QueryBody {
        QueryBody::compressed(body, BodyCompression { coding, effort: Effort::Least })
    }

    /// Like [`QueryBody::whole`], with any effort.
    pub(super) fn compressed(body: Vec<u8>, compression: BodyCompression) -> QueryBody {
        let (body, coding) = compression.coding.whole(body, compression.effort);
        QueryBody { body: Body::from(body), coding }
    }

    /// Encodes a result, at once or in chunks, depending on its size. Chunks are compressed with
    /// the least effort. `lease` is held until the value is dropped.
    ///
    /// # Errors
    /// 422 if the body is known to be larger than `bytes_max` before its first byte is sent. 503 if
    /// there is no memory to hold the values until the client has read them.
    pub(in crate::api::orgs) fn encode(
        envelope: Envelope,
        compression: BodyCompression,
        bytes_max: usize,
        lanes: &Lanes,
        org: OrgId,
        lease: Option<Arc<Lease>>,
    ) -> ApiResult<QueryBody> {
        match Beginning::encode(envelope, bytes_max, lanes, lease.as_ref())? {
            Beginning::Whole(text) => Ok(QueryBody::compressed(text, compression)),
            Beginning::Prefix(prefix) => {
                QueryBody::stream(*prefix, compression.coding, bytes_max, lanes, org, lease)
            }
        }
    }

    /// Returns the body of a result whose beginning has been encoded. `lease` is held until the
    /// value is dropped.
    ///
    /// # Errors
    /// 503 if there is no memory to hold the values until the client has read them.
    pub(super) fn stream(
        prefix: ResultPrefix,
        coding: Coding,
        bytes_max: usize,
        lanes: &Lanes,
        org: OrgId,
        lease: Option<Arc<Lease>>,
    ) -> ApiResult<QueryBody> {
        let ResultPrefix { mut text, value, cursor, tail } = prefix;
        if let Some(lease) = &lease {
            // An evaluation has charged more than this, a cached result nothing.
            let bytes = value.memory_bytes();
            lease.shrink_to(bytes);
            lease.grow_to(bytes, &|| false).map_err(QueryError::from)?;
        }
        let (mut encoder, coding) = Encoder::new(coding, CHUNK_BYTES);
        let written = text.len();
        let first = encoder.code(&mut text).map_err(ApiError::internal)?;
        let since = Stopwatch::start();
        let rest =
            RemainingBody { value, cursor, tail, encoder, text, written, bytes_max, since, _lease: lease };
        let state = match (first.is_empty(), Box::new(rest)) {
            (true, rest) => BodyStream::encode_next(lanes, org, rest),
            (false, rest) => StreamState::Ready(Ok(Ok((Some(rest), first)))),
        };
        let stream = BodyStream { lanes: lanes.clone(), org, state };
        Ok(QueryBody { body: Body::new(stream), coding })
    }

    /// Returns the body without its headers.
    pub(super) fn into_body(self) -> Body {
        self.body
    }

    /// Returns a 200 response. `Vary` makes caches distinguish clients by their `Accept-Encoding`.
    pub(in crate::api::orgs) fn into_response(self) -> Response {
        response_of(self.body, self.coding, HeaderValue::from_static("application/json"))
    }
}

/// Returns a 200 response with a body that has this coding and media type.
pub(super) fn response_of(body: Body, coding: Coding, media: HeaderValue) -> Response {
    let mut response = Response::new(body);
    let headers = response.headers_mut();
    headers.insert(header::CONTENT_TYPE, media);
    headers.insert(header::VARY, HeaderValue::from_static("Accept-Encoding"));
    if let Some(name) = coding.name() {
        headers.insert(header::CONTENT_ENCODING, name);
    }
    response
}

/// The encoded beginning of a result, without compression.
pub(super) enum Beginning {
    /// The whole body.
    Whole(Vec<u8>),
    /// The first [`WHOLE_BYTES_MAX`] bytes of a large result.
    Prefix(Box<ResultPrefix>),
}

/// The beginning of a large result and the part that is not encoded yet.
pub(super) struct ResultPrefix {
    text: Vec<u8>,
    value: ResultData,
    cursor: ResultCursor,
    tail: Vec<u8>,
}

impl ResultPrefix {
    /// Returns the whole result.
    pub(super) fn value(&self) -> &ResultData {
        &self.value
    }
}

impl Beginning {
    /// Encodes a result up to [`WHOLE_BYTES_MAX`] bytes.
    ///
    /// # Errors
    /// 422 if the body is known to be larger than `bytes_max`.
    pub(super) fn encode(
        envelope: Envelope,
        bytes_max: usize,
        lanes: &Lanes,
        lease: Option<&Arc<Lease>>,
    ) -> ApiResult<Beginning> {
        let too_large = BodyTooLarge { bytes_max };
        let Envelope { head: mut text, value, tail } = envelope;
        if value.min_encoded_bytes() > bytes_max {
            return Err(too_large.into());
        }
        text.reserve(value.estimated_bytes().min(WHOLE_BYTES_MAX));
        let mut cursor = value.encode_prefix(lanes.workers(), lease.map(Arc::as_ref), &mut text);
        let length = WHOLE_BYTES_MAX.min(bytes_max.saturating_add(1));
        let is_whole = value.fill(&mut cursor, length, &mut text);
        if is_whole {
            text.extend_from_slice(&tail);
        }
        if text.len() > bytes_max {
            return Err(too_large.into());
        }
        Ok(match is_whole {
            true => Beginning::Whole(text),
            false => Beginning::Prefix(Box::new(ResultPrefix { text, value, cursor, tail })),
        })
    }
}

/// The part of a large body that is not encoded yet.
#[derive(Debug)]
struct RemainingBody {
    value: ResultData,
    cursor: ResultCursor,
    tail: Vec<u8>,
    encoder: Encoder,
    /// A buffer for the JSON text of a chunk.
    text: Vec<u8>,
    written: usize,
    bytes_max: usize,
    since: Stopwatch,
    _lease: Option<Arc<Lease>>,
}

/// The reason why a body ends early.
#[derive(Debug, thiserror::Error)]
enum StreamError {
    #[error(transparent)]
    TooLarge(#[from] BodyTooLarge),
    #[error("the client took longer than {} s to read the response", DOWNLOAD_MAX.as_secs())]
    TooSlow,
    #[error("the response could not be compressed")]
    Coding(#[from] std::io::Error),
}

/// Compressed bytes of a large body.
enum EncodedChunk {
    More(Vec<u8>),
    Last(Vec<u8>),
}

impl RemainingBody {
    /// Encodes the next chunk, which is not empty.
    fn next(&mut self) -> Result<EncodedChunk, StreamError> {
        if self.since.elapsed() > DOWNLOAD_MAX {
            return Err(StreamError::TooSlow);
        }
        // A compressor may buffer several chunks before it returns any bytes.
        loop {
            self.text.reserve(CHUNK_BYTES + CHUNK_BYTES / 4);
            let is_last = self.value.fill(&mut self.cursor, CHUNK_BYTES, &mut self.text);
            if is_last {
                self.text.append(&mut self.tail);
            }
            self.written = self.written.saturating_add(self.text.len());
            if self.written > self.bytes_max {
                return Err(BodyTooLarge { bytes_max: self.bytes_max }.into());
            }
            let mut ready = self.encoder.code(&mut self.text)?;
            if is_last {
                self.encoder.finish(&mut ready)?;
                return Ok(EncodedChunk::Last(ready));
            }
            if !ready.is_empty() {
                return Ok(EncodedChunk::More(ready));
            }
        }
    }
}

/// The result of encoding one chunk: the bytes, and the rest of the body if there is one.
type ChunkResult = ApiResult<Result<(Option<Box<RemainingBody>>, Vec<u8>), StreamError>>;

/// The state of the next chunk.
enum StreamState {
    Encoding(Pin<Box<dyn Future<Output = ChunkResult> + Send>>),
    /// A chunk that was encoded before the connection polled for it.
    Ready(ChunkResult),
    Ended,
}

/// A large body that is encoded one chunk ahead of the connection.
struct BodyStream {
    lanes: Lanes,
    org: OrgId,
    state: StreamState,
}

impl BodyStream {
    /// Starts encoding the next chunk on the answer lane.
    fn encode_next(lanes: &Lanes, org: OrgId, mut rest: Box<RemainingBody>) -> StreamState {
        let lanes = lanes.clone();
        let encode = move |reply: Reply<_>| {
            // The values are freed after the reply, so that the client does not wait for that. A
            // client that has disconnected needs no reply.
            let (chunk, _freed_after_reply) = match rest.next() {
                Ok(EncodedChunk::More(bytes)) => (Ok((Some(rest), bytes)), None),
                Ok(EncodedChunk::Last(bytes)) => (Ok((None, bytes)), Some(rest)),
                Err(error) => (Err(error), Some(rest)),
            };
            drop(reply.send(chunk));
        };
        StreamState::Encoding(Box::pin(async move { lanes.run_answer(org, encode).await }))
    }

    /// Polls the next chunk.
    fn advance(&mut self, context: &mut Context<'_>) -> Poll<ChunkResult> {
        match std::mem::replace(&mut self.state, StreamState::Ended) {
            StreamState::Encoding(mut encoding) => {
                let chunk = encoding.as_mut().poll(context);
                if chunk.is_pending() {
                    self.state = StreamState::Encoding(encoding);
                }
                chunk
            }
            StreamState::Ready(chunk) => Poll::Ready(chunk),
            StreamState::Ended => Poll::Pending,
        }
    }

    fn end_with(&mut self, error: &(dyn std::fmt::Display + Sync)) {
        self.state = StreamState::Ended;
        tracing::warn!(org = self.org.0, "a response ended early: {error}");
    }
}

impl hyper::body::Body for BodyStream {
    type Data = Bytes;
    type Error = Box<dyn std::error::Error + Send + Sync>;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, Self::Error>>> {
        if matches!(self.state, StreamState::Ended) {
            return Poll::Ready(None);
        }
        match ready!(self.advance(context)) {
            Ok(Ok((rest, chunk))) => {
                // The next chunk is encoded while this one is sent.
                if let Some(rest) = rest {
                    self.state = BodyStream::encode_next(&self.lanes, self.org, rest);
                    if let Poll::Ready(next) = self.advance(context) {
                        self.state = StreamState::Ready(next);
                    }
                }
                Poll::Ready(Some(Ok(Frame::data(chunk.into()))))
            }
            Ok(Err(error)) => {
                self.end_with(&error);
                Poll::Ready(Some(Err(error.into())))
            }
            Err(refused) => {
                self.end_with(&refused);
                Poll::Ready(Some(Err(refused.to_string().into())))
            }
        }
    }

    fn is_end_stream(&self) -> bool {
        matches!(self.state, StreamState::Ended)
    }
}

#[cfg(test)]
mod tests {
    use std::io::Read as _;

    use http_body_util::BodyExt as _;

    use super::super::result::value_memory_bytes;
    use super::*;
    use crate::api::error::Code;
    use crate::api::lanes::LanesOptions;
    use crate::model::{Labels, Sample, Timestamp};
    use crate::promql::{MatrixSeries, MemoryPool, Value};

    const PLAIN: BodyCompression = BodyCompression { coding: Coding::Identity, effort: Effort::Least };

    fn matrix(series: usize, samples: usize) -> Value {
        let samples: Vec<Sample> = (0..samples)
            .map(|n| Sample { at: Timestamp::from_s(n as i64 * 15), value: n as f64 * 1.5 })
            .collect();
        let one = |n: usize| MatrixSeries {
            labels: Labels::from_pairs([("n", n.to_string().as_str())]),
            samples: samples.clone(),
            histograms: Vec::new(),
        };
        Value::Matrix((0..series).map(one).collect())
    }

    const ORG: OrgId = OrgId(1);

    fn lanes() -> Lanes {
        Lanes::start(&LanesOptions::for_cores(1)).expect("threads")
    }

    fn envelope(value: Value) -> Envelope {
        Envelope { head: b"{".to_vec(), value: value.into(), tail: b"}".to_vec() }
    }

    fn expected(value: &Value) -> Vec<u8> {
        let mut text = b"{".to_vec();
        crate::api::prom_json::result(value, usize::MAX, &mut text).expect("unbounded");
        text.push(b'}');
        text
    }

    async fn read_frames(body: QueryBody) -> (Vec<usize>, Vec<u8>) {
        let (mut sizes, mut all, mut body) = (Vec::new(), Vec::new(), body.body);
        while let Some(frame) = body.frame().await {
            let data = frame.expect("no error").into_data().expect("data");
            sizes.push(data.len());
            all.extend_from_slice(&data);
        }
        (sizes, all)
    }

    #[tokio::test]
    async fn a_small_body_is_sent_at_once_and_a_large_one_in_chunks() {
        for (series, samples, coding) in
            [(2, 10, Coding::Identity), (40, 10_000, Coding::Identity), (40, 10_000, Coding::Gzip)]
        {
            let value = matrix(series, samples);
            let text = expected(&value);
            let compression = BodyCompression { coding, effort: Effort::Least };
            let body = QueryBody::encode(envelope(value), compression, usize::MAX, &lanes(), ORG, None);
            let (sizes, mut all) = read_frames(body.expect("allowed")).await;
            if coding == Coding::Gzip {
                let mut plain = Vec::new();
                flate2::read::GzDecoder::new(&all[..]).read_to_end(&mut plain).expect("gzip, whole");
                all = plain;
            }
            assert!(all == text, "{} and {} bytes", all.len(), text.len());
            assert_eq!(sizes.len() > 1, text.len() > WHOLE_BYTES_MAX, "{sizes:?}");
            assert!(sizes.iter().skip(1).all(|size| *size < 2 * CHUNK_BYTES), "{sizes:?}");
        }
    }

    #[tokio::test]
    async fn values_are_charged_until_the_client_has_read_them() {
        let pool = MemoryPool::new(1 << 30);
        let value = matrix(40, 10_000);
        let bytes = value_memory_bytes(&value);
        let lease = pool.lease(ORG);
        lease.grow_to(bytes * 3, &|| false).expect("there is memory");
        let (lanes, lease) = (lanes(), Some(Arc::new(lease)));
        let body = QueryBody::encode(envelope(value), PLAIN, usize::MAX, &lanes, ORG, lease);
        assert_eq!(pool.usage().bytes, bytes, "the lease shrinks to the values");
        read_frames(body.expect("allowed")).await;
        // The values are freed after the last chunk was read. The test's timeout bounds this loop.
        while pool.usage().bytes > 0 {
            tokio::task::yield_now().await;
        }
    }

    #[test]
    fn a_large_body_is_refused_if_there_is_no_memory_for_its_values() {
        let pool = MemoryPool::new(16 << 20);
        let other = pool.lease(ORG);
        other.grow_to(8 << 20, &|| false).expect("there is memory");
        let lease = Some(Arc::new(pool.lease(ORG)));
        let (lanes, large) = (lanes(), envelope(matrix(10, 10_000)));
        let body = QueryBody::encode(large, PLAIN, usize::MAX, &lanes, ORG, lease);
        assert_eq!(body.expect_err("another query holds the memory").code(), Code::Busy);
    }

    #[tokio::test]
    async fn a_body_beyond_its_limit_is_refused_before_the_first_byte_or_ends_early() {
        for (bytes_max, refused) in [(1_000, true), (2_000_000, true), (5_000_000, false)] {
            let value = matrix(40, 10_000);
            match QueryBody::encode(envelope(value), PLAIN, bytes_max, &lanes(), ORG, None) {
                Err(error) => assert!(refused && error.code() == Code::QueryTooExpensive, "{error}"),
                Ok(body) => {
                    assert!(!refused);
                    let mut body = body.body;
                    let mut received = 0;
                    let error = loop {
                        match body.frame().await.expect("it ends with an error") {
                            Ok(frame) => received += frame.into_data().expect("data").len(),
                            Err(error) => break error,
                        }
                    };
                    assert!(received <= bytes_max, "{received}");
                    assert!(error.to_string().contains("5000000 bytes"), "{error}");
                    assert!(body.frame().await.is_none());
                }
            }
        }
    }
}
