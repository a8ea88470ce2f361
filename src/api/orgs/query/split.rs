//! `engine: split`: the samples before a border are upstream, the newer ones are here.
//!
//! A query that reads samples of both is evaluated here. [`QueryRun`] computes what the query reads
//! before the border ([`promql::raw_reads`]). If that was not fetched yet, it stops; the request
//! fetches it on the async edge, and runs again with the samples beneath its snapshot
//! ([`Snapshot::with_older`](crate::tsdb::Snapshot::with_older)). So an evaluation does no I/O, and
//! every handler that evaluates queries reads both sides.
//!
//! At a time at which both sides have a sample of a series, the one here counts. Results of such
//! queries are not cached, because changes upstream are unknown here.
//!
//! The matchers of the caller's scope are sent with those of each selector. The snapshot applies
//! them again to what the upstream answers.

use std::cell::RefCell;
use std::collections::BTreeMap;
use std::pin::Pin;
use std::sync::{Arc, RwLock};
use std::time::Duration;

use axum::body::Bytes;

use super::deps::ReadDeps;
use crate::api::error::{ApiError, ApiResult, Code};
use crate::api::lanes::Lane;
use crate::clock::Stopwatch;
use crate::ingest::remote_read::{self, ReadDecoder, ReadError, ReadLimits, ReadQuery};
use crate::model::{Matcher, OrgId, RawSeries, Scope, TimeRange, Timestamp};
use crate::promql::{Lease, QueryError, RawRead};
use crate::sync::IgnorePoison as _;
use crate::tsdb::OlderSamples;

/// How often a request fetches samples. A handler that evaluates several queries needs one round for
/// each, at most.
pub(super) const FETCH_ROUNDS_MAX: usize = 64;
/// The most bytes of a response of the upstream before it is decoded, inclusive.
const RESPONSE_BYTES_MAX: u64 = 256 << 20;

/// An answer of an upstream to a remote read.
#[derive(Clone, Debug)]
pub struct RawResponse {
    /// The content type, which decides between samples and chunks.
    pub content_type: String,
    /// The whole body.
    pub body: Bytes,
}

/// The future of a [`RawSource`].
pub type RawFuture<'f> = Pin<Box<dyn Future<Output = ApiResult<RawResponse>> + Send + 'f>>;

/// An upstream that answers remote reads of one organisation.
pub trait RawSource: std::fmt::Debug + Send + Sync {
    /// Sends the body of a remote read request. The response has at most `bytes_max` bytes.
    fn remote_read(&self, request: Vec<u8>, timeout: Duration, bytes_max: u64) -> RawFuture<'_>;

    /// Returns matchers that every request needs beside those of a selector, such as that of a
    /// tenant's label.
    fn matchers(&self) -> Vec<Matcher> {
        Vec::new()
    }

    /// Changes the labels of an answered series, such as to remove a tenant's label.
    fn relabel(&self, _series: &mut RawSeries) {}
}

/// The split of one organisation.
#[derive(Clone, Debug)]
pub struct SplitEngine {
    /// The upstream with the samples before the border.
    pub source: Arc<dyn RawSource>,
    /// The age of samples at the border, in milliseconds.
    pub after_ms: i64,
}

/// The organisations whose engine is split. Others cost one look into an empty map.
#[derive(Debug, Default)]
pub struct SplitEngines {
    orgs: RwLock<BTreeMap<OrgId, SplitEngine>>,
}

impl SplitEngines {
    /// Sets or removes the split of an organisation.
    pub fn set(&self, org: OrgId, engine: Option<SplitEngine>) {
        let mut orgs = self.orgs.write().ignore_poison();
        match engine {
            Some(engine) => orgs.insert(org, engine),
            None => orgs.remove(&org),
        };
    }

    /// Returns the split of an organisation, if its engine is split.
    pub fn of(&self, org: OrgId) -> Option<SplitEngine> {
        self.orgs.read().ignore_poison().get(&org).cloned()
    }
}

impl SplitEngine {
    /// Returns the border at `now`: the time of the first sample that is only here, a whole minute.
    pub(super) fn border(&self, now: Timestamp) -> Timestamp {
        const MINUTE_MS: i64 = 60_000;
        let at = now.as_ms().saturating_sub(self.after_ms);
        Timestamp::from_ms(at.saturating_sub(at.rem_euclid(MINUTE_MS)))
    }
}

/// What a request is to fetch, and what it has fetched so far.
pub(super) type MissingSamples = (Vec<ReadQuery>, FetchedSamples);

/// Samples that a request has fetched so far.
#[derive(Clone, Debug, Default)]
pub(super) struct FetchedSamples {
    reads: Vec<ReadQuery>,
    samples: OlderSamples,
    bytes: u64,
    /// The memory of the samples, charged until the request ends.
    lease: Option<Arc<Lease>>,
}

/// The split of a running query.
#[derive(Debug)]
pub(in crate::api::orgs) struct SplitRun {
    border: Timestamp,
    fetched: FetchedSamples,
    /// What the query reads before the border and has not been fetched.
    missing: RefCell<Vec<ReadQuery>>,
}

impl SplitRun {
    pub(super) fn new(border: Timestamp, fetched: FetchedSamples) -> SplitRun {
        SplitRun { border, fetched, missing: RefCell::default() }
    }

    /// Returns the samples before the border.
    pub(super) fn samples(&self) -> &OlderSamples {
        &self.fetched.samples
    }

    /// Returns the memory of those samples in bytes.
    pub(super) fn bytes(&self) -> u64 {
        self.fetched.bytes
    }

    /// Records what is still to be fetched before a query can be evaluated.
    ///
    /// # Errors
    /// An error that no client receives, if anything is missing.
    pub(super) fn require(&self, reads: Vec<RawRead>, scope: &Scope) -> ApiResult<()> {
        let wanted = reads.into_iter().filter_map(|read| older_part(read, self.border, scope));
        let missing: Vec<ReadQuery> =
            wanted.filter(|read| !self.fetched.reads.iter().any(|have| covers(have, read))).collect();
        if missing.is_empty() {
            return Ok(());
        }
        self.missing.borrow_mut().extend(missing);
        Err(QueryError::Cancelled.into())
    }

    /// Returns what is to be fetched, and the samples fetched so far. `None`: nothing is missing.
    pub(super) fn into_missing(self) -> Option<MissingSamples> {
        let missing = self.missing.into_inner();
        (!missing.is_empty()).then_some((missing, self.fetched))
    }
}

/// Returns the part of a read before the border and within the scope's time, with the matchers of
/// the scope. `None` if there is none.
fn older_part(read: RawRead, border: Timestamp, scope: &Scope) -> Option<ReadQuery> {
    let start = scope.min_time.map_or(read.range.start, |least| read.range.start.max(least));
    let end = read.range.end.min(border.plus_ms(-1));
    let mut matchers = read.matchers;
    matchers.extend(scope.matchers.iter().cloned());
    (start <= end).then_some(ReadQuery { matchers, range: TimeRange::new(start, end) })
}

/// Returns whether one read has all samples of another.
fn covers(have: &ReadQuery, wanted: &ReadQuery) -> bool {
    let is_same = |(a, b): (&Matcher, &Matcher)| {
        a.op() == b.op() && a.name() == b.name() && a.value() == b.value()
    };
    have.range.start <= wanted.range.start
        && wanted.range.end <= have.range.end
        && have.matchers.len() == wanted.matchers.len()
        && have.matchers.iter().zip(&wanted.matchers).all(is_same)
}

/// What a fetch needs of its request.
pub(super) struct FetchContext {
    pub(super) org: OrgId,
    pub(super) lane: Lane,
    /// The time that the request has left.
    pub(super) timeout: Duration,
}

impl ReadDeps {
    /// Fetches missing samples, and adds them to those that a request has.
    ///
    /// # Errors
    /// Those of the upstream; 502 `upstream_invalid_response`; 422 and 503 if there is not enough
    /// memory; those of the lane.
    pub(super) async fn fetch_older(
        &self,
        engine: &SplitEngine,
        (missing, fetched): MissingSamples,
        context: FetchContext,
    ) -> ApiResult<FetchedSamples> {
        let own = engine.source.matchers();
        let queries: Vec<ReadQuery> = missing
            .iter()
            .map(|read| ReadQuery {
                matchers: read.matchers.iter().chain(&own).cloned().collect(),
                range: read.range,
            })
            .collect();
        let limits = &self.options.promql.limits;
        let bytes_max = limits.memory_bytes_max.saturating_sub(fetched.bytes);
        let lease = Arc::new(self.memory.lease(context.org));
        let since = Stopwatch::start();
        let mut response = self.remote_read(engine, &queries, true, &context, bytes_max, &since).await?;
        let series_max = usize::try_from(limits.series_max).unwrap_or(usize::MAX);
        let limits = ReadLimits { bytes_max, series_max, ..ReadLimits::default() };
        let decoded = self.decode(response, &queries, limits, &lease, &context).await?;
        let raw = match decoded {
            // Newer encodings of chunks are not read here, but every upstream can send samples.
            Err(ReadError::ChunkEncoding(_)) => {
                response = self.remote_read(engine, &queries, false, &context, bytes_max, &since).await?;
                self.decode(response, &queries, limits, &lease, &context).await?
            }
            decoded => decoded,
        };
        let raw = raw.map_err(|error| refused(&error, &lease, bytes_max))?;
        let source = Arc::clone(&engine.source);
        let work = move || {
            let mut raw = raw;
            raw.iter_mut().for_each(|series| source.relabel(series));
            let FetchedSamples { mut reads, samples, lease: _before, .. } = fetched;
            let samples = samples.with(raw);
            let bytes = samples.bytes();
            reads.extend(missing);
            lease.grow_to(bytes, &|| false).map_err(QueryError::from)?;
            Ok(FetchedSamples { reads, samples, bytes, lease: Some(lease) })
        };
        self.lanes.run(context.lane, work).await?
    }

    async fn remote_read(
        &self,
        engine: &SplitEngine,
        queries: &[ReadQuery],
        chunks: bool,
        context: &FetchContext,
        bytes_max: u64,
        since: &Stopwatch,
    ) -> ApiResult<RawResponse> {
        let timeout = context.timeout.saturating_sub(since.elapsed());
        let request = remote_read::request(queries, chunks).map_err(|error| invalid(&error))?;
        engine.source.remote_read(request, timeout, bytes_max.min(RESPONSE_BYTES_MAX)).await
    }

    /// Decodes a response on the query lane. The outer error is that of the lane.
    async fn decode(
        &self,
        response: RawResponse,
        queries: &[ReadQuery],
        limits: ReadLimits,
        lease: &Arc<Lease>,
        context: &FetchContext,
    ) -> ApiResult<Result<Vec<RawSeries>, ReadError>> {
        let (queries, lease) = (queries.to_vec(), Arc::clone(lease));
        let work = move || {
            let RawResponse { content_type, body } = response;
            let body_bytes = body.len() as u64;
            let hold = move |bytes: u64| lease.grow_to(bytes.saturating_add(body_bytes), &|| false).is_ok();
            let mut decoder = ReadDecoder::new(&queries, limits, Box::new(hold));
            if content_type.starts_with(remote_read::CHUNKS_TYPE) {
                decoder.push(&body)?;
                decoder.finish()
            } else if content_type.starts_with(remote_read::SAMPLES_TYPE) {
                decoder.samples(&body)
            } else {
                Err(ReadError::ContentType)
            }
        };
        self.lanes.run(context.lane, work).await
    }
}

/// Maps an error of a response. Missing memory is an error of the query.
fn refused(error: &ReadError, lease: &Lease, allowed: u64) -> ApiError {
    match error {
        ReadError::Memory => {
            let needed = lease.bytes().saturating_add(1);
            QueryError::MemoryBusy { needed, held: needed, allowed }.into()
        }
        ReadError::TooLarge { what: "bytes of samples", found, .. } => {
            QueryError::TooMuchMemory { needed: *found, allowed }.into()
        }
        ReadError::TooLarge { what: "series", found, allowed } => {
            QueryError::TooManySeries { found: *found, allowed: *allowed }.into()
        }
        ReadError::OutOfMemory(error) => QueryError::OutOfMemory(*error).into(),
        error => invalid(error),
    }
}

fn invalid(error: &ReadError) -> ApiError {
    ApiError::new(Code::Busy, format!("remote read: {error}"))
}
