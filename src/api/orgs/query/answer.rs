//! Answers on their way out: small ones whole, large ones piece by piece as the client takes them.
//!
//! A large answer's head and first piece are made on the query lane, and with them its status. The rest is written piece by
//! piece, on a lane of its own, each while the one before it is sent: a slow client holds neither a thread nor the text of
//! its answer, only a piece and the values, which stay charged to the memory that queries share. What goes wrong after the head ends the body early: the chunked coding has
//! no end then, and the client knows.

use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};
use std::time::Duration;

use axum::body::{Body, Bytes};
use axum::http::{HeaderValue, header};
use axum::response::Response;
use hyper::body::Frame;

use super::parallel_encode::encode_prefix;
use crate::api::encoding::{Coding, Encoder};
use crate::api::error::{ApiError, ApiResult};
use crate::api::lanes::{Lanes, Reply};
use crate::api::prom_json::{self, BodyTooLarge, Cursor};
use crate::clock::Stopwatch;
use crate::model::OrgId;
use crate::promql::{Lease, QueryError, Value};

/// Answers up to this length are made whole.
pub(super) const WHOLE_MAX: usize = 1 << 20;
/// Text of one piece: some 0.2 ms to write and 2 ms to code, and what a connection holds beside the values.
const PIECE: usize = 128 << 10;
/// A client may take its time for a large answer, but not for ever: the values stay in memory until it has them.
const TAKING_MAX: Duration = Duration::from_secs(600);

/// A JSON body, ready to be sent.
#[derive(Debug)]
pub(in crate::api::orgs) struct Answer {
    body: Body,
    coding: Coding,
}

/// The text around a result, and the result.
#[derive(Debug)]
pub(in crate::api::orgs) struct Document {
    /// What comes before the inside of `data`.
    pub(in crate::api::orgs) head: Vec<u8>,
    /// The inside of `data`.
    pub(in crate::api::orgs) value: Value,
    /// What comes after it.
    pub(in crate::api::orgs) tail: Vec<u8>,
}

impl Answer {
    /// A body that is whole.
    pub(in crate::api::orgs) fn whole(body: Vec<u8>, coding: Coding) -> Answer {
        let (body, coding) = coding.whole(body);
        Answer { body: Body::from(body), coding }
    }

    /// A result, whole or in pieces by its size. `lease` pays for the value for as long as it is there.
    ///
    /// # Errors
    /// 422 where it is clear before the first byte that the answer is too large, 503 where there is no memory to hold its
    /// values until the client has them.
    pub(in crate::api::orgs) fn of(
        document: Document,
        coding: Coding,
        bytes_max: usize,
        (lanes, org): (&Lanes, OrgId),
        lease: Option<Arc<Lease>>,
    ) -> ApiResult<Answer> {
        let too_large = BodyTooLarge { bytes_max };
        let Document { head: mut text, value, tail } = document;
        if least_bytes(&value) > bytes_max {
            return Err(too_large.into());
        }
        let value = Arc::new(value);
        text.reserve(prom_json::likely_bytes(&value).min(WHOLE_MAX));
        let mut cursor = encode_prefix(&value, lanes.workers(), lease.as_deref(), &mut text);
        if cursor.fill(&value, WHOLE_MAX.min(bytes_max.saturating_add(1)), &mut text) {
            text.extend_from_slice(&tail);
            if text.len() > bytes_max {
                return Err(too_large.into());
            }
            return Ok(Answer::whole(text, coding));
        }
        if text.len() > bytes_max {
            return Err(too_large.into());
        }
        if let Some(lease) = &lease {
            // Evaluation held more; a kept answer was not paid for yet.
            let bytes = value_bytes(&value);
            lease.shrink_to(bytes);
            lease.grow_to(bytes, &|| false).map_err(QueryError::from)?;
        }
        let (mut encoder, coding) = Encoder::new(coding, PIECE);
        let written = text.len();
        let first = encoder.code(&mut text).map_err(ApiError::internal)?;
        let since = Stopwatch::start();
        let pieces = Pieces { value, cursor, tail, encoder, text, written, bytes_max, since, _lease: lease };
        let state = match (first.is_empty(), Box::new(pieces)) {
            (true, pieces) => Stream::make(lanes, org, pieces),
            (false, pieces) => State::Made(Ok(Ok((Some(pieces), first)))),
        };
        let stream = Stream { lanes: lanes.clone(), org, state };
        Ok(Answer { body: Body::new(stream), coding })
    }

    /// 200. Caches that stand between must tell clients apart by what they accept.
    pub(in crate::api::orgs) fn into_response(self) -> Response {
        let mut response = Response::new(self.body);
        let headers = response.headers_mut();
        headers.insert(header::CONTENT_TYPE, HeaderValue::from_static("application/json"));
        headers.insert(header::VARY, HeaderValue::from_static("Accept-Encoding"));
        if let Some(name) = self.coding.name() {
            headers.insert(header::CONTENT_ENCODING, name);
        }
        response
    }
}

/// What a value holds, about.
pub(in crate::api::orgs) fn value_bytes(value: &Value) -> u64 {
    // Labels are shared with the store.
    const SERIES: usize = 64;
    let bytes = match value {
        Value::Scalar { .. } => SERIES,
        Value::Text { text, .. } => text.len(),
        Value::Vector(series) => series.len().saturating_mul(SERIES),
        Value::Matrix(series) => {
            let samples: usize = series.iter().map(|series| series.samples.len()).sum();
            samples.saturating_mul(16).saturating_add(series.len().saturating_mul(SERIES))
        }
    };
    bytes as u64
}

/// `[1,"1"],`: no value is written in fewer.
fn least_bytes(value: &Value) -> usize {
    match value {
        Value::Scalar { .. } | Value::Text { .. } => 0,
        Value::Vector(series) => series.len().saturating_mul(8),
        Value::Matrix(series) => {
            series.iter().map(|series| series.samples.len()).sum::<usize>().saturating_mul(8)
        }
    }
}

/// The rest of a large answer.
#[derive(Debug)]
struct Pieces {
    value: Arc<Value>,
    cursor: Cursor,
    tail: Vec<u8>,
    encoder: Encoder,
    /// Room for a piece's text.
    text: Vec<u8>,
    written: usize,
    bytes_max: usize,
    since: Stopwatch,
    _lease: Option<Arc<Lease>>,
}

/// Why a body ends before its end.
#[derive(Debug, thiserror::Error)]
enum CutShort {
    #[error(transparent)]
    TooLarge(#[from] BodyTooLarge),
    #[error("the client took longer than {} s to take the answer", TAKING_MAX.as_secs())]
    TooSlow,
    #[error("the answer could not be coded")]
    Coding(#[from] std::io::Error),
}

/// Some of a large answer's bytes.
enum Piece {
    More(Vec<u8>),
    Last(Vec<u8>),
}

impl Pieces {
    /// The next coded bytes.
    fn next(&mut self) -> Result<Piece, CutShort> {
        if self.since.elapsed() > TAKING_MAX {
            return Err(CutShort::TooSlow);
        }
        // A coder may keep a piece to itself for a while.
        loop {
            self.text.reserve(PIECE + PIECE / 4);
            let is_last = self.cursor.fill(&self.value, PIECE, &mut self.text);
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
                return Ok(Piece::Last(ready));
            }
            if !ready.is_empty() {
                return Ok(Piece::More(ready));
            }
        }
    }
}

/// What making a piece answers: the piece, and what makes the rest if there is any.
type Made = ApiResult<Result<(Option<Box<Pieces>>, Vec<u8>), CutShort>>;

enum State {
    Making(Pin<Box<dyn Future<Output = Made> + Send>>),
    /// What came of making it before anybody asked for it.
    Made(Made),
    Over,
}

/// A large answer as the connection sees it.
struct Stream {
    lanes: Lanes,
    org: OrgId,
    state: State,
}

impl Stream {
    /// The next piece, in the making.
    fn make(lanes: &Lanes, org: OrgId, mut pieces: Box<Pieces>) -> State {
        let lanes = lanes.clone();
        let make = move |reply: Reply<_>| {
            // Nobody waits until the values are put away. Who has gone away needs no answer.
            let (made, _done) = match pieces.next() {
                Ok(Piece::More(bytes)) => (Ok((Some(pieces), bytes)), None),
                Ok(Piece::Last(bytes)) => (Ok((None, bytes)), Some(pieces)),
                Err(cut) => (Err(cut), Some(pieces)),
            };
            drop(reply.send(made));
        };
        State::Making(Box::pin(async move { lanes.run_answer(org, make).await }))
    }

    /// Goes on with it; whether it is made.
    fn advance(&mut self, context: &mut Context<'_>) -> Poll<Made> {
        match std::mem::replace(&mut self.state, State::Over) {
            State::Making(mut making) => {
                let made = making.as_mut().poll(context);
                if made.is_pending() {
                    self.state = State::Making(making);
                }
                made
            }
            State::Made(made) => Poll::Ready(made),
            State::Over => Poll::Pending,
        }
    }

    fn ends(&mut self, cut: &(dyn std::fmt::Display + Sync)) {
        self.state = State::Over;
        tracing::warn!(org = self.org.0, "an answer was cut short: {cut}");
    }
}

impl hyper::body::Body for Stream {
    type Data = Bytes;
    type Error = Box<dyn std::error::Error + Send + Sync>;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, Self::Error>>> {
        if matches!(self.state, State::Over) {
            return Poll::Ready(None);
        }
        match ready!(self.advance(context)) {
            Ok(Ok((rest, piece))) => {
                // The next one is made while this one is sent.
                if let Some(rest) = rest {
                    self.state = Stream::make(&self.lanes, self.org, rest);
                    if let Poll::Ready(made) = self.advance(context) {
                        self.state = State::Made(made);
                    }
                }
                Poll::Ready(Some(Ok(Frame::data(piece.into()))))
            }
            Ok(Err(cut)) => {
                self.ends(&cut);
                Poll::Ready(Some(Err(cut.into())))
            }
            Err(refused) => {
                self.ends(&refused);
                Poll::Ready(Some(Err(refused.to_string().into())))
            }
        }
    }

    fn is_end_stream(&self) -> bool {
        matches!(self.state, State::Over)
    }
}

#[cfg(test)]
mod tests {
    use std::io::Read as _;

    use http_body_util::BodyExt as _;

    use super::*;
    use crate::api::error::Code;
    use crate::api::lanes::LanesOptions;
    use crate::model::{Labels, Sample, Timestamp};
    use crate::promql::{MatrixSeries, MemoryPool};

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

    fn document(value: Value) -> Document {
        Document { head: b"{".to_vec(), value, tail: b"}".to_vec() }
    }

    fn expected(value: &Value) -> Vec<u8> {
        let mut text = b"{".to_vec();
        crate::api::prom_json::result(value, usize::MAX, &mut text).expect("unbounded");
        text.push(b'}');
        text
    }

    async fn pieces(answer: Answer) -> (Vec<usize>, Vec<u8>) {
        let (mut sizes, mut all, mut body) = (Vec::new(), Vec::new(), answer.body);
        while let Some(frame) = body.frame().await {
            let data = frame.expect("no error").into_data().expect("data");
            sizes.push(data.len());
            all.extend_from_slice(&data);
        }
        (sizes, all)
    }

    #[tokio::test]
    async fn a_small_answer_is_whole_and_a_large_one_comes_in_pieces() {
        for (series, samples, coding) in
            [(2, 10, Coding::Identity), (40, 10_000, Coding::Identity), (40, 10_000, Coding::Gzip)]
        {
            let value = matrix(series, samples);
            let text = expected(&value);
            let answer =
                Answer::of(document(value), coding, usize::MAX, (&lanes(), ORG), None).expect("allowed");
            let (sizes, mut all) = pieces(answer).await;
            if coding == Coding::Gzip {
                let mut plain = Vec::new();
                flate2::read::GzDecoder::new(&all[..]).read_to_end(&mut plain).expect("gzip, whole");
                all = plain;
            }
            assert!(all == text, "{} and {} bytes", all.len(), text.len());
            assert_eq!(sizes.len() > 1, text.len() > WHOLE_MAX, "{sizes:?}");
            assert!(sizes.iter().skip(1).all(|size| *size < 2 * PIECE), "{sizes:?}");
        }
    }

    #[tokio::test]
    async fn values_are_paid_for_until_the_client_has_them() {
        let pool = MemoryPool::new(1 << 30);
        let value = matrix(40, 10_000);
        let bytes = value_bytes(&value);
        let lease = pool.lease(ORG);
        lease.grow_to(bytes * 3, &|| false).expect("room");
        let answer =
            Answer::of(document(value), Coding::Identity, usize::MAX, (&lanes(), ORG), Some(Arc::new(lease)))
                .expect("allowed");
        assert_eq!(pool.usage().bytes, bytes, "what evaluation held beside is given back");
        pieces(answer).await;
        // They are put away once the client has all; bounded by the test's own time.
        while pool.usage().bytes > 0 {
            tokio::task::yield_now().await;
        }
    }

    #[test]
    fn an_answer_that_nobody_can_hold_is_refused() {
        let pool = MemoryPool::new(16 << 20);
        let other = pool.lease(ORG);
        other.grow_to(8 << 20, &|| false).expect("room");
        let lease = Some(Arc::new(pool.lease(ORG)));
        let answer =
            Answer::of(document(matrix(10, 10_000)), Coding::Identity, usize::MAX, (&lanes(), ORG), lease);
        assert_eq!(answer.expect_err("others hold it").code(), Code::Busy);
    }

    #[tokio::test]
    async fn what_is_too_large_is_refused_before_the_first_byte_or_cut_short() {
        for (bytes_max, refused) in [(1_000, true), (2_000_000, true), (5_000_000, false)] {
            let value = matrix(40, 10_000);
            match Answer::of(document(value), Coding::Identity, bytes_max, (&lanes(), ORG), None) {
                Err(error) => assert!(refused && error.code() == Code::QueryTooExpensive, "{error}"),
                Ok(answer) => {
                    assert!(!refused);
                    let mut body = answer.body;
                    let mut taken = 0;
                    let error = loop {
                        match body.frame().await.expect("it does not end well") {
                            Ok(frame) => taken += frame.into_data().expect("data").len(),
                            Err(error) => break error,
                        }
                    };
                    assert!(taken <= bytes_max, "{taken}");
                    assert!(error.to_string().contains("5000000 bytes"), "{error}");
                    assert!(body.frame().await.is_none());
                }
            }
        }
    }
}
