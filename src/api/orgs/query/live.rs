//! `query/live`: the points of queries as server-sent events, each step when it is due
//! (docs/specification.md C5).
//!
//! `evaluation` evaluates equal queries of equal restrictions once. `feed` merges the events of a
//! set of queries, so that all streams of equal sets send the same bytes. `table` lists all
//! streams, with their limits, and checks every half second that the credentials of streams are
//! still valid. `stream` is the body of one response, `text` is what bodies share, and `gzip` is
//! its compression. `set` is the request with many queries.
//!
//! An event has the points of one step, so streams that joined at different times receive the same
//! events, and a stream that resumes after `Last-Event-ID` receives each point once.

mod evaluation;
mod feed;
mod gzip;
pub(in crate::api::orgs) mod set;
mod stream;
mod table;
mod text;

use axum::body::Body;
use axum::extract::{FromRequest, Request, State};
use axum::http::{HeaderMap, HeaderValue};
use axum::response::Response;

use super::deps::ReadDeps;
use super::request::PendingRead;
use super::response::response_of;
use super::{AcceptedQuery, PreparedQuery, QueryMode, QueryParams, QueryWindow, SERIES_DEFAULT, SERIES_MAX};
use crate::api::callers::{Endpoint, Grant, Permission, QueryAccess, StandingCaller};
use crate::api::encoding::Coding;
use crate::api::error::{ApiError, ApiResult};
use crate::api::params::Params;
use crate::api::routes::{Auth, Routes};
use crate::model::{Steps, Timestamp};
use feed::write_error;
use stream::{LiveStream, RETRY, end_event};
use table::StreamQuery;
pub use table::{LiveQueries, LiveUsage};

/// The default of `step`, in milliseconds.
const STEP_DEFAULT_MS: i64 = 15_000;
/// The least and the greatest `step`, in milliseconds, inclusive.
const STEP_MS: std::ops::RangeInclusive<i64> = 1_000..=3_600_000;
/// The most steps that a stream catches up when it begins, inclusive. The steps before them are
/// reported as a gap.
const CATCH_UP_MAX: i64 = 60;
/// The greatest `count`, inclusive.
const COUNT_MAX: usize = 1_000_000;

/// The routes, relative to `/api/v1`.
pub(super) fn routes() -> Routes<ReadDeps> {
    Routes::new()
        .get(
            "/orgs/{slug}/query/live",
            Auth::QueryCaller(Endpoint::Expr),
            "Stream the points of a query, each step when it is due",
            live,
        )
        .post(
            "/orgs/{slug}/query/live",
            Auth::QueryCaller(Endpoint::Expr),
            "Stream the points of many queries, each step when it is due",
            set::live_set,
        )
}

/// A read of a stream.
struct LiveRequest {
    read: PendingRead,
    headers: StreamHeaders,
}

impl FromRequest<ReadDeps> for LiveRequest {
    type Rejection = ApiError;

    async fn from_request(request: Request, deps: &ReadDeps) -> ApiResult<LiveRequest> {
        let headers = StreamHeaders::of(request.headers());
        let read = PendingRead::from_request(request, deps).await?;
        Ok(LiveRequest { read, headers })
    }
}

/// The headers of a request that a stream depends on.
#[derive(Clone, Copy, Debug)]
pub(in crate::api::orgs) struct StreamHeaders {
    /// The step in `Last-Event-ID`, which browsers send when they connect again. Text that is not
    /// an id of ours is ignored: proxies and clients may have streams of others.
    pub(in crate::api::orgs) last_event: Option<Timestamp>,
    coding: Coding,
}

impl StreamHeaders {
    pub(in crate::api::orgs) fn of(headers: &HeaderMap) -> StreamHeaders {
        let id = headers.get("last-event-id").and_then(|id| id.to_str().ok()?.parse().ok());
        StreamHeaders { last_event: id.map(Timestamp::from_ms), coding: Coding::gzip_or_identity(headers) }
    }
}

async fn live(State(deps): State<ReadDeps>, request: LiveRequest) -> ApiResult<Response> {
    let LiveRequest { mut read, headers } = request;
    let mut params = std::mem::take(&mut read.params);
    let query = QueryParams::take(&mut params, QueryMode::Range, AcceptedQuery::Any)?;
    if query.explain {
        return Err(ApiError::invalid_parameter("explain", "a live query has no plan; explain query/range"));
    }
    let access = read.enter(Some(query.endpoint()))?.into_access();
    let now = deps.clock.now();
    let since = headers.last_event.or(params.time("since", now)?);
    let count = params.count("count", 1, COUNT_MAX)?;
    let query = prepare(query, &mut params, now, &access.grant)?;
    let queries = vec![StreamQuery { id: None, query }];
    let share = deps.live.join(&deps, &access, read.standing(), queries)?;
    // The first evaluation also finds errors of the query, while they can still be reported by the
    // status.
    if let (Some(member), Some(at)) = (share.feed.members.first(), share.place.positions.first()) {
        member.query.at(*at).await.0?;
    }
    let span = StreamSpan { since, count };
    Ok(stream_response(LiveStream::new(share, span, b"", headers.coding).into(), headers.coding))
}

/// Takes `step` and the other parameters of a live query.
///
/// # Errors
/// 400 `invalid_parameter` and `duplicate_parameter`, 403 `embed_restricted`.
fn prepare(
    query: QueryParams,
    params: &mut Params,
    now: Timestamp,
    grant: &Grant,
) -> ApiResult<PreparedQuery> {
    let step_ms = step_ms(params, grant.min_step_ms())?;
    let steps = single_step(newest_due(now, step_ms), step_ms)?;
    grant.require(Permission::Steps(&steps))?;
    let limit = params.count("limit", 1, SERIES_MAX)?.unwrap_or(SERIES_DEFAULT);
    let timeout = super::request::timeout(params)?;
    let window = QueryWindow { steps, limit };
    Ok(PreparedQuery { params: query, window, timeout, unused: params.unknown() })
}

/// A query of a set. Its error, if any, becomes an event of the stream.
pub(in crate::api::orgs) struct LiveItem {
    /// The id in the events.
    pub(in crate::api::orgs) id: Box<str>,
    /// The query, from [`prepare_expression`].
    pub(in crate::api::orgs) query: ApiResult<PreparedQuery>,
}

/// Returns the live query of an expression. `step` and `limit` are parameters as in a URL.
///
/// # Errors
/// 400 `invalid_parameter`, 403 `embed_restricted`.
pub(in crate::api::orgs) fn prepare_expression(
    expr: String,
    step: Option<String>,
    limit: Option<String>,
    now: Timestamp,
    grant: &Grant,
) -> ApiResult<PreparedQuery> {
    let members = [("expr", Some(expr)), ("step", step), ("limit", limit)];
    let present = members.into_iter().filter_map(|(name, value)| Some((name.to_owned(), value?)));
    let mut params = Params::of_pairs(present.collect());
    let query = QueryParams::take(&mut params, QueryMode::Range, AcceptedQuery::ExpressionOnly)?;
    prepare(query, &mut params, now, grant)
}

/// The part of a stream that is sent.
#[derive(Clone, Copy, Debug, Default)]
pub(in crate::api::orgs) struct StreamSpan {
    /// The last step that is not sent. Without it, the newest points are the first.
    pub(in crate::api::orgs) since: Option<Timestamp>,
    /// The number of complete steps after which the stream ends.
    pub(in crate::api::orgs) count: Option<usize>,
}

/// Streams the points of a set of queries. Equal sets of equal restrictions share all events. If
/// every query is refused, the response ends after the errors and counts as no stream.
///
/// # Errors
/// 503 `at_capacity` with too many streams or queries, and 503 `shutting_down`.
pub(in crate::api::orgs) fn stream_set(
    deps: &ReadDeps,
    access: &QueryAccess,
    caller: StandingCaller,
    items: Vec<LiveItem>,
    span: StreamSpan,
    headers: StreamHeaders,
) -> ApiResult<Response> {
    let (mut errors, mut first_error) = (Vec::new(), None);
    let mut queries = Vec::with_capacity(items.len());
    for LiveItem { id, query } in items {
        match query {
            Ok(query) => queries.push(StreamQuery { id: Some(id), query }),
            Err(error) => {
                errors.extend_from_slice(b"event: error\ndata: ");
                write_error(Some(&id), None, &error, &mut errors);
                errors.extend_from_slice(b"\n\n");
                first_error.get_or_insert(error);
            }
        }
    }
    if queries.is_empty() {
        // Clients do not connect again after an `end` with 400 or 403.
        let end = first_error.as_ref().map(end_event).unwrap_or_default();
        return Ok(stream_response(Body::from([RETRY, &errors, &end].concat()), Coding::Identity));
    }
    let share = deps.live.join(deps, access, caller, queries)?;
    Ok(stream_response(LiveStream::new(share, span, &errors, headers.coding).into(), headers.coding))
}

fn stream_response(events: Body, coding: Coding) -> Response {
    response_of(events, coding, HeaderValue::from_static("text/event-stream"))
}

/// Takes `step`. The default is the least step that a token grants, if that is greater.
fn step_ms(params: &mut Params, min_step_ms: Option<i64>) -> ApiResult<i64> {
    let step_ms = params.duration_ms("step")?;
    let step_ms = step_ms.unwrap_or(STEP_DEFAULT_MS.max(min_step_ms.unwrap_or(0)));
    if !STEP_MS.contains(&step_ms) {
        let message =
            format!("a step of {} to {} s is expected", STEP_MS.start() / 1_000, STEP_MS.end() / 1_000);
        return Err(ApiError::invalid_parameter("step", message));
    }
    Ok(step_ms)
}

/// Returns the newest step at or before `now`. Steps are multiples of their length since 1970.
fn newest_due(now: Timestamp, step_ms: i64) -> Timestamp {
    now.plus_ms(-now.as_ms().rem_euclid(step_ms))
}

/// Returns a range of one step.
fn single_step(at: Timestamp, step_ms: i64) -> ApiResult<Steps> {
    Steps::new(at, at, step_ms).map_err(|error| ApiError::invalid_parameter("step", error.to_string()))
}
