//! Raw samples of any selector and range: exports as text, and Prometheus' remote read.
//!
//! The query lane selects the series and decides the status. Then it makes one piece after the
//! other while the connection polls for them. So a client that does not read stops the export, and
//! one that disconnects ends it. An error after the head ends the body early: the chunked transfer
//! coding then has no last chunk, and so the client notices. The number of native histograms that a
//! text leaves out is known at its end only, so it is in a trailer.

use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;

use axum::body::{Body, Bytes};
use axum::extract::{FromRequest, FromRequestParts as _, Request, State};
use axum::http::{HeaderMap, HeaderName, HeaderValue, header};
use axum::response::{IntoResponse as _, Response};
use hyper::body::Frame;

use super::deps::ReadDeps;
use super::request::{QueryRequest, ReadRequest};
use super::run::QueryRun;
use crate::api::body;
use crate::api::callers::{Permission, PrometheusCaller, QueryAccess, QueryCaller};
use crate::api::embed_use::EmbedUsage;
use crate::api::error::{ApiError, ApiResult, Code};
use crate::api::lanes::{Lane, Lanes};
use crate::api::params::PathOf;
use crate::api::router::required_auth;
use crate::api::routes::{Auth, Routes};
use crate::clock::{Clock, Stopwatch};
use crate::history::copy::SampleCopyError;
use crate::history::export::{
    ExportFormat, ExportPieces, FramePieces, FrameQuery, LEFT_OUT_TRAILER, StoreExport, TextExport,
    TextPieces, samples_of_query, used_range,
};
use crate::identity::Endpoint;
use crate::ingest::remote_read::{
    ReadRequestBody, RequestedSeries, SAMPLES_TYPE, decode_request, samples_response,
};
use crate::model::{Labels, Matcher, TimeRange, Timestamp};
use crate::promql::Lease;
use crate::tsdb::SelectedSeries;

/// The longest time for a client to read an export.
const EXPORT_MAX: Duration = Duration::from_secs(6 * 3_600);
/// How long a piece waits for a thread of the query lane.
const PIECE_WAIT: Duration = Duration::from_secs(60);
/// The most bytes of a request of remote read, inclusive.
const READ_BYTES_MAX: usize = 1 << 20;
/// The most bytes of samples of remote read, before compression. Streamed chunks have no limit.
const READ_SAMPLES_BYTES_MAX: usize = 32 << 20;
/// The content type of streamed chunks as Prometheus states it.
const CHUNKS_CONTENT_TYPE: &str = "application/x-streamed-protobuf; proto=prometheus.ChunkedReadResponse";

/// The routes below `/orgs/{slug}`.
pub(super) fn routes() -> Routes<ReadDeps> {
    let auth = Auth::PrometheusCaller(Some(Endpoint::Expr));
    Routes::new()
        .get("/orgs/{slug}/export", auth, "Export raw samples as text", export)
        .get("/orgs/{slug}/prometheus/api/v1/export", auth, VICTORIA, export)
        .post("/orgs/{slug}/prometheus/api/v1/export", auth, VICTORIA, export)
        .get("/orgs/{slug}/prometheus/api/v1/export/native", Auth::Public, NATIVE, native)
        .post("/orgs/{slug}/prometheus/api/v1/read", auth, "Prometheus: remote read", remote_read)
}

const VICTORIA: &str = "VictoriaMetrics: export raw samples as JSON lines";
const NATIVE: &str = "VictoriaMetrics: export in its native format; always refused";

async fn native() -> ApiResult<Response> {
    let detail = "the native format of VictoriaMetrics is not supported: use /api/v1/export, which has JSON \
                  lines (vmctl: --vm-native-disable-binary-protocol)";
    Err(ApiError::new(Code::BadRequest, detail))
}

async fn export(State(deps): State<ReadDeps>, read: ReadRequest) -> ApiResult<Response> {
    let ReadRequest { query, mut params, .. } = read;
    let now = deps.clock.now();
    let name = params.one(&["format"])?.unwrap_or_else(|| "jsonl".to_owned());
    let format = ExportFormat::parse(&name).ok_or_else(|| {
        ApiError::invalid_parameter("format", "jsonl, csv, openmetrics or prometheus is expected")
    })?;
    let texts = params.many(&["match[]"]);
    let start = params.time("start", now)?.unwrap_or(Timestamp::MIN);
    let range = TimeRange::new(start, params.time("end", now)?.unwrap_or(Timestamp::MAX));
    let range = granted(&query, range, now)?;
    let stream = StreamOwner::new(&deps, &query);
    let work = move |run: &mut QueryRun| {
        let selectors = run.selectors("match[]", &texts)?;
        let (source, range) = selected(run, &selectors, range)?;
        let described = match format {
            ExportFormat::OpenMetrics | ExportFormat::Prometheus => run.metadata(None, usize::MAX)?.items,
            ExportFormat::JsonLines | ExportFormat::Csv => Vec::new(),
        };
        let source = source.with_descriptions(described);
        let pieces = TextPieces::new(source, TextExport { format, range });
        let pieces = pieces.map_err(|error| ApiError::invalid_parameter("format", error.to_string()))?;
        Ok(RunningExport { pieces: Box::new(pieces), _lease: Arc::clone(&run.lease) })
    };
    let running = deps.run(query, work).await?;
    Ok(stream.respond(running, format.content_type()))
}

/// Checks that the caller may read raw samples of a range. Returns the range with the open bounds
/// of a token replaced by the widest ones that it grants.
fn granted(query: &QueryRequest, range: TimeRange, now: Timestamp) -> ApiResult<TimeRange> {
    let grant = query.grant();
    grant.require(Permission::SeriesOfResults)?;
    if grant.min_step_ms().is_some() {
        let detail = "this token limits the resolution of results, so it does not grant raw samples";
        return Err(ApiError::new(Code::EmbedRestricted, detail));
    }
    let range = grant.close_range(range, now);
    grant.require(Permission::Range(range))?;
    Ok(range)
}

/// Selects series, and returns them with the range in which they have samples.
fn selected(
    run: &QueryRun,
    selectors: &[Vec<Matcher>],
    range: TimeRange,
) -> ApiResult<(StoreExport, TimeRange)> {
    if run.upstream.is_some() {
        let detail = "raw samples are exported from this server only, but some are on another one";
        return Err(ApiError::new(Code::UpstreamUnsupported, detail));
    }
    let all = [Vec::new()];
    let selectors = if selectors.is_empty() { &all[..] } else { selectors };
    let mut snapshot = run.snapshot.clone();
    snapshot.wait_for_locks();
    let used = used_range(range, |range| run.paced(|paced| paced.exists(selectors, range)))?;
    let Some(range) = used else {
        let nothing = TimeRange::new(Timestamp::from_ms(0), Timestamp::from_ms(-1));
        return Ok((StoreExport::of_selected(snapshot, Vec::new()), nothing));
    };
    let mut found: Vec<SelectedSeries> = Vec::new();
    for matchers in selectors {
        found.extend(run.paced(|paced| paced.select(matchers, range))?);
        let labels = Labels::bytes_behind(found.iter().map(|one| &one.labels));
        run.charge(labels.saturating_add(found.len().saturating_mul(2 * size_of::<SelectedSeries>())))?;
    }
    Ok((StoreExport::of_selected(snapshot, found), range))
}

/// A request of remote read whose caller has entered the organisation in the path.
pub(super) struct RemoteReadRequest {
    access: QueryAccess,
    body: Bytes,
}

impl FromRequest<ReadDeps> for RemoteReadRequest {
    type Rejection = ApiError;

    async fn from_request(request: Request, _: &ReadDeps) -> ApiResult<RemoteReadRequest> {
        let (mut parts, body) = request.into_parts();
        let caller: QueryCaller = PrometheusCaller::from_request_parts(&mut parts, &()).await?.into();
        let Auth::PrometheusCaller(endpoint) = required_auth(&parts)? else {
            return Err(ApiError::internal("a handler reads samples, but its row admits no API keys"));
        };
        let PathOf(slug) = PathOf::<String>::from_request_parts(&mut parts, &()).await?;
        let access = caller.enter_for(&slug, endpoint)?;
        Ok(RemoteReadRequest { access, body: body::read(body, READ_BYTES_MAX).await? })
    }
}

async fn remote_read(State(deps): State<ReadDeps>, read: RemoteReadRequest) -> ApiResult<Response> {
    let RemoteReadRequest { access, body } = read;
    let mut request =
        decode_request(&body).map_err(|error| ApiError::new(Code::BadRequest, error.to_string()))?;
    let query = QueryRequest::from(access);
    for one in &mut request.queries {
        one.range = granted(&query, one.range, deps.clock.now())?;
    }
    let stream = StreamOwner::new(&deps, &query);
    match deps.run(query, move |run| answer(run, request)).await? {
        ReadAnswer::Chunks(running) => Ok(stream.respond(running, CHUNKS_CONTENT_TYPE)),
        ReadAnswer::Samples(body) => {
            let headers = [
                (header::CONTENT_TYPE, HeaderValue::from_static(SAMPLES_TYPE)),
                (header::CONTENT_ENCODING, HeaderValue::from_static("snappy")),
            ];
            Ok((headers, body).into_response())
        }
    }
}

/// The answer to a request of remote read.
enum ReadAnswer {
    Chunks(RunningExport),
    Samples(Vec<u8>),
}

fn answer(run: &mut QueryRun, request: ReadRequestBody) -> ApiResult<ReadAnswer> {
    let mut queries = Vec::with_capacity(request.queries.len());
    for one in request.queries {
        let (matchers, range) = compiled(run, &one)?;
        let (source, range) = selected(run, &[matchers], range)?;
        queries.push(FrameQuery { source, range });
    }
    if request.accepts_chunks {
        let pieces = Box::new(FramePieces::new(queries));
        return Ok(ReadAnswer::Chunks(RunningExport { pieces, _lease: Arc::clone(&run.lease) }));
    }
    let mut results = Vec::with_capacity(queries.len());
    let mut bytes = 0_usize;
    for query in &mut queries {
        let left = READ_SAMPLES_BYTES_MAX.saturating_sub(bytes);
        let result = samples_of_query(query, left).map_err(|error| ApiError::internal(error.to_string()))?;
        let result = result.ok_or_else(|| {
            let detail = format!(
                "the samples have more than {READ_SAMPLES_BYTES_MAX} bytes: ask for streamed chunks, or for \
                 a shorter range"
            );
            ApiError::new(Code::QueryTooExpensive, detail)
        })?;
        bytes = bytes.saturating_add(result.len());
        run.charge(result.len().saturating_mul(2))?;
        results.push(result);
    }
    let body = samples_response(&results).map_err(|error| ApiError::internal(error.to_string()))?;
    Ok(ReadAnswer::Samples(body))
}

/// Compiles the matchers of a query.
fn compiled(run: &QueryRun, query: &RequestedSeries) -> ApiResult<(Vec<Matcher>, TimeRange)> {
    let mut matchers = Vec::with_capacity(query.matchers.len());
    for (op, name, value) in &query.matchers {
        let matcher = Matcher::new(name, *op, value);
        let wrong = |error: String| run.error_or(ApiError::new(Code::BadExpr, format!("{name}: {error}")));
        matchers.push(matcher.map_err(|error| wrong(error.to_string()))?);
    }
    run.charge_patterns(&[matchers.as_slice()])?;
    Ok((matchers, query.range))
}

/// An export that has begun, and the memory that is charged for it.
struct RunningExport {
    pieces: Box<dyn ExportPieces + Send>,
    _lease: Arc<Lease>,
}

/// The parts of a request that the pieces of its response need.
struct StreamOwner {
    lanes: Lanes,
    lane: Lane,
    clock: Clock,
    expires_at: Option<Timestamp>,
    usage: Option<EmbedUsage>,
    since: Stopwatch,
}

impl StreamOwner {
    fn new(deps: &ReadDeps, query: &QueryRequest) -> StreamOwner {
        StreamOwner {
            lanes: deps.lanes.clone(),
            lane: query.caller.lane(),
            clock: deps.clock.clone(),
            expires_at: query.grant().expires_at(),
            usage: query.caller.usage.clone(),
            since: Stopwatch::start(),
        }
    }

    fn respond(self, running: RunningExport, content_type: &'static str) -> Response {
        let has_trailer = running.pieces.left_out().is_some();
        let stream = ExportStream { owner: self, state: ExportState::Idle(running) };
        let headers = [(header::CONTENT_TYPE, HeaderValue::from_static(content_type))];
        let mut response = (headers, Body::new(stream)).into_response();
        if has_trailer {
            response.headers_mut().insert(header::TRAILER, HeaderValue::from_static(LEFT_OUT_TRAILER));
        }
        response
    }

    /// Starts to make the next piece.
    fn next(&self, mut running: RunningExport) -> NextPiece {
        let (lanes, lane, usage) = (self.lanes.clone(), self.lane, self.usage.clone());
        let work = move || {
            let _evaluation = usage.as_ref().map(EmbedUsage::begin);
            let piece = running.pieces.next_piece();
            (running, piece)
        };
        Box::pin(async move { lanes.run_within(lane, PIECE_WAIT, work).await })
    }

    /// # Errors
    /// The reason why the export must end.
    fn check(&self) -> Result<(), StreamError> {
        if self.since.elapsed() > EXPORT_MAX {
            return Err("the client took too long to read the export".into());
        }
        match self.expires_at.is_some_and(|at| at <= self.clock.now()) {
            true => Err("the credential has expired".into()),
            false => Ok(()),
        }
    }
}

type StreamError = Box<dyn std::error::Error + Send + Sync>;
type MadePiece = (RunningExport, Result<Option<Vec<u8>>, SampleCopyError>);
type NextPiece = Pin<Box<dyn Future<Output = ApiResult<MadePiece>> + Send>>;

enum ExportState {
    /// No piece is being made.
    Idle(RunningExport),
    Busy(NextPiece),
    Ended,
}

/// The body of an export.
struct ExportStream {
    owner: StreamOwner,
    state: ExportState,
}

impl ExportStream {
    fn next(&mut self, context: &mut Context<'_>) -> Poll<Option<Result<Frame<Bytes>, StreamError>>> {
        loop {
            match std::mem::replace(&mut self.state, ExportState::Ended) {
                ExportState::Ended => return Poll::Ready(None),
                ExportState::Idle(running) => {
                    self.owner.check()?;
                    self.state = ExportState::Busy(self.owner.next(running));
                }
                ExportState::Busy(mut next) => {
                    let Poll::Ready(made) = next.as_mut().poll(context) else {
                        self.state = ExportState::Busy(next);
                        return Poll::Pending;
                    };
                    let (running, piece) = made?;
                    match piece? {
                        None => return Poll::Ready(running.pieces.left_out().map(|n| Ok(trailer(n)))),
                        Some(piece) => {
                            self.state = ExportState::Idle(running);
                            if !piece.is_empty() {
                                return Poll::Ready(Some(Ok(Frame::data(piece.into()))));
                            }
                        }
                    }
                }
            }
        }
    }
}

/// Returns the trailer of a text, which is sent to clients that accept trailers only.
fn trailer(left_out: u64) -> Frame<Bytes> {
    let name = HeaderName::from_static(LEFT_OUT_TRAILER);
    Frame::trailers(HeaderMap::from_iter([(name, HeaderValue::from(left_out))]))
}

impl hyper::body::Body for ExportStream {
    type Data = Bytes;
    type Error = StreamError;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, StreamError>>> {
        let next = self.next(context);
        if let Poll::Ready(Some(Err(error))) = &next {
            tracing::warn!("an export ended early: {error}");
        }
        next
    }
}
