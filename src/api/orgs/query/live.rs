//! `query/live`: the points of a query as server-sent events, each step when it is due
//! (docs/specification.md C5).
//!
//! `shared` evaluates equal queries of equal scope once for all streams, and keeps the newest
//! events. `stream` is the body of one response: it takes events from there, and checks every
//! second that the credential is still valid.
//!
//! An event has the points of one step, so streams that joined at different times receive the same
//! events, and a stream that resumes after `Last-Event-ID` receives each point once.

mod shared;
mod stream;

use axum::body::Body;
use axum::extract::{FromRequest, Request, State};
use axum::http::HeaderValue;
use axum::response::Response;

use super::deps::ReadDeps;
use super::request::PendingRead;
use super::response::response_of;
use super::{AcceptedQuery, PreparedQuery, QueryMode, QueryParams, QueryWindow, SERIES_DEFAULT, SERIES_MAX};
use crate::api::callers::{Endpoint, Permission};
use crate::api::encoding::Coding;
use crate::api::error::{ApiError, ApiResult};
use crate::api::params::Params;
use crate::api::routes::{Auth, Routes};
use crate::model::{Steps, Timestamp};
pub use shared::LiveQueries;
use shared::StepQuery;
use stream::LiveStream;

/// The default of `step`, in milliseconds.
const STEP_DEFAULT_MS: i64 = 15_000;
/// The least and the greatest `step`, in milliseconds, inclusive.
const STEP_MS: std::ops::RangeInclusive<i64> = 1_000..=3_600_000;
/// The most steps that a stream catches up when it begins, inclusive. The steps before them are
/// reported as a gap.
const CATCH_UP_MAX: i64 = 60;
/// The greatest `count`, inclusive.
const COUNT_MAX: usize = 1_000_000;

/// The route, relative to `/api/v1`.
pub(super) fn routes() -> Routes<ReadDeps> {
    Routes::new().get(
        "/orgs/{slug}/query/live",
        Auth::QueryCaller(Endpoint::Expr),
        "Stream the points of a query, each step when it is due",
        live,
    )
}

/// A read with the header `Last-Event-ID`, which browsers send when they connect again.
struct LiveRequest {
    read: PendingRead,
    last_event: Option<Timestamp>,
}

impl FromRequest<ReadDeps> for LiveRequest {
    type Rejection = ApiError;

    async fn from_request(request: Request, deps: &ReadDeps) -> ApiResult<LiveRequest> {
        // Text that is no id of ours is ignored: proxies and clients may have streams of others.
        let id = request.headers().get("last-event-id").and_then(|id| id.to_str().ok()?.parse().ok());
        let read = PendingRead::from_request(request, deps).await?;
        Ok(LiveRequest { read, last_event: id.map(Timestamp::from_ms) })
    }
}

async fn live(State(deps): State<ReadDeps>, request: LiveRequest) -> ApiResult<Response> {
    let LiveRequest { mut read, last_event } = request;
    let mut params = std::mem::take(&mut read.params);
    let query = QueryParams::take(&mut params, QueryMode::Range, AcceptedQuery::Any)?;
    if query.explain {
        return Err(ApiError::invalid_parameter("explain", "a live query has no plan; explain query/range"));
    }
    let access = read.enter(Some(query.endpoint()))?.into_access();
    let now = deps.clock.now();
    let step_ms = step_ms(&mut params, access.grant.min_step_ms())?;
    let due = newest_due(now, step_ms);
    let steps = single_step(due, step_ms)?;
    access.grant.require(Permission::Steps(&steps))?;
    let since = last_event.or(params.time("since", now)?);
    let count = params.count("count", 1, COUNT_MAX)?;
    let limit = params.count("limit", 1, SERIES_MAX)?.unwrap_or(SERIES_DEFAULT);
    let timeout = super::request::timeout(&mut params)?;
    let window = QueryWindow { steps, limit };
    let query = PreparedQuery { params: query, window, timeout, unused: params.unknown() };
    let query = StepQuery::new(deps.clone(), access, query);
    // The first evaluation also finds what is wrong with the query, while there is a status to
    // report it.
    let newest = query.evaluate(due).await?;
    let first_due = since.map_or(due, |since| newest_due(since, step_ms).plus_ms(step_ms));
    let share = deps.live.join(query.clone(), due)?;
    let mut stream = LiveStream::new(share, read.standing(), deps.clock.clone(), count, due);
    let oldest = due.plus_ms(-step_ms.saturating_mul(CATCH_UP_MAX - 1));
    if first_due < oldest {
        stream.push_gap(first_due, oldest.plus_ms(-step_ms));
    }
    let mut at = first_due.max(oldest);
    while at < due {
        stream.push(query.event(at).await);
        at = at.plus_ms(step_ms);
    }
    if first_due <= due {
        stream.push(newest);
    }
    let media = HeaderValue::from_static("text/event-stream");
    Ok(response_of(Body::new(stream), Coding::Identity, media))
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
