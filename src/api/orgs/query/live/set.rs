//! `POST query/live`: one stream for all queries of a page.

use axum::body::Bytes;
use axum::extract::{FromRequest, FromRequestParts as _, Request, State};
use axum::response::Response;
use serde::Deserialize;

use super::{COUNT_MAX, LiveItem, StreamHeaders, StreamSpan, prepare_expression, stream_set};
use crate::api::body::{self, parse_json};
use crate::api::callers::{Endpoint, QueryAccess, QueryCaller, StandingCaller};
use crate::api::error::{ApiError, ApiResult};
use crate::api::orgs::query::batch::{self, Parameter, pairs};
use crate::api::orgs::query::deps::ReadDeps;
use crate::api::params::{Params, PathOf};
use crate::model::Timestamp;

/// The most queries of one stream, inclusive.
pub(in crate::api::orgs) const STREAM_QUERIES_MAX: usize = 100;

/// A request whose caller has entered the organisation in the path.
pub(super) struct LiveSetRequest {
    access: QueryAccess,
    caller: StandingCaller,
    headers: StreamHeaders,
    body: Bytes,
}

impl FromRequest<ReadDeps> for LiveSetRequest {
    type Rejection = ApiError;

    async fn from_request(request: Request, _: &ReadDeps) -> ApiResult<LiveSetRequest> {
        let (mut parts, body) = request.into_parts();
        let caller = QueryCaller::from_request_parts(&mut parts, &()).await?;
        let PathOf(slug) = PathOf::<String>::from_request_parts(&mut parts, &()).await?;
        let access = caller.enter(&slug, Endpoint::Expr)?;
        let caller = StandingCaller::new(caller, slug.into());
        let headers = StreamHeaders::of(&parts.headers);
        let body = body::read_json(Request::from_parts(parts, body)).await?;
        Ok(LiveSetRequest { access, caller, headers, body })
    }
}

/// The body of a request.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct LiveSetBody {
    queries: Vec<LiveSetItem>,
    since: Option<Parameter>,
    count: Option<Parameter>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct LiveSetItem {
    id: String,
    expr: String,
    step: Option<Parameter>,
    limit: Option<Parameter>,
}

pub(super) async fn live_set(State(deps): State<ReadDeps>, request: LiveSetRequest) -> ApiResult<Response> {
    let LiveSetRequest { access, caller, headers, body } = request;
    let body: LiveSetBody = parse_json(&body)?;
    check_queries(body.queries.iter().map(|item| item.id.as_str()))?;
    let now = deps.clock.now();
    let (since, count) = times([("since", body.since), ("count", body.count)], now)?;
    let text = |parameter: Option<Parameter>| parameter.map(|Parameter(text)| text);
    let item = |LiveSetItem { id, expr, step, limit }: LiveSetItem| {
        let query = prepare_expression(expr, text(step), text(limit), now, &access.grant);
        LiveItem { id: id.into(), query }
    };
    let items = body.queries.into_iter().map(item).collect();
    let span = StreamSpan { since: headers.last_event.or(since), count };
    stream_set(&deps, &access, caller, items, span, headers)
}

/// Parses the members `since` and `count`.
///
/// # Errors
/// 400 `invalid_parameter`.
pub(in crate::api::orgs) fn times(
    members: [(&str, Option<Parameter>); 2],
    now: Timestamp,
) -> ApiResult<(Option<Timestamp>, Option<usize>)> {
    let mut params = Params::of_pairs(pairs(members));
    Ok((params.time("since", now)?, params.count("count", 1, COUNT_MAX)?))
}

/// Checks the number and the ids of the queries of a stream.
///
/// # Errors
/// 422 `validation_failed`.
pub(in crate::api::orgs) fn check_queries<'i>(ids: impl ExactSizeIterator<Item = &'i str>) -> ApiResult<()> {
    let count = ids.len();
    if !(1..=STREAM_QUERIES_MAX).contains(&count) {
        let message = format!("{count} queries; 1 to {STREAM_QUERIES_MAX} are allowed");
        let code = if count == 0 { "too_few" } else { "too_many" };
        let refused = ApiError::invalid_field("queries", code, message);
        return Err(refused.with("limit", STREAM_QUERIES_MAX as u64));
    }
    batch::check_ids(ids)
}
