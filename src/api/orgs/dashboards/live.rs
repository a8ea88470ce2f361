//! `dashboards/{uid}/live`: the points of the queries of panels, each step when it is due.

use axum::extract::State;
use axum::response::Response;
use serde::Deserialize;

use super::viewer::{Intervals, PanelQuery, SentValues, ViewerDeps, ViewerRequest, Viewing};
use crate::api::body::parse_json;
use crate::api::callers::QueryAccess;
use crate::api::error::{ApiError, ApiResult};
use crate::api::orgs::query::PreparedQuery;
use crate::api::orgs::query::batch::{Parameter, pairs};
use crate::api::orgs::query::live::set::{check_queries, times};
use crate::api::orgs::query::live::{LiveItem, StreamHeaders, StreamSpan, prepare_expression, stream_set};
use crate::api::params::Params;
use crate::model::{TimeRange, Timestamp};

/// The body of a request.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct LiveBody {
    #[serde(default)]
    variables: SentValues,
    queries: Vec<LivePanelItem>,
    since: Option<Parameter>,
    count: Option<Parameter>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct LivePanelItem {
    id: String,
    panel: i64,
    #[serde(rename = "ref")]
    ref_id: String,
    step: Option<Parameter>,
    range: Option<Parameter>,
    interval: Option<String>,
    rate_interval: Option<String>,
    #[serde(default)]
    variables: SentValues,
    limit: Option<Parameter>,
}

pub(super) async fn live(State(deps): State<ViewerDeps>, request: ViewerRequest) -> ApiResult<Response> {
    let ViewerRequest { access, caller, uid, headers, body } = request;
    let headers = StreamHeaders::of(&headers);
    let (org, lane, viewer) = (access.access.org, access.lane(), deps.clone());
    let now = deps.read.clock.now();
    let parse = move || -> ApiResult<_> {
        let body: LiveBody = parse_json(&body)?;
        check_queries(body.queries.iter().map(|item| item.id.as_str()))?;
        let found = viewer.dashboard(org, &uid)?;
        let viewing = Viewing::new(&found.document, &access.grant, &body.variables);
        let item = |item: &LivePanelItem| LiveItem {
            id: item.id.as_str().into(),
            query: item.prepare(&viewing, &access, now, viewer.read.options.range_ms_max),
        };
        let items: Vec<LiveItem> = body.queries.iter().map(item).collect();
        let (since, count) = times([("since", body.since), ("count", body.count)], now)?;
        Ok((access, items, StreamSpan { since: headers.last_event.or(since), count }))
    };
    let (access, items, span) = deps.read.lanes.run_before_queries(lane, parse).await??;
    stream_set(&deps.read, &access, caller, items, span, headers)
}

impl LivePanelItem {
    /// Prepares the query. Its time range, for `$__range`, ends now and has the length `range`, at
    /// most `range_ms_max`. Without it, the length is the step.
    fn prepare(
        &self,
        viewing: &Viewing<'_>,
        access: &QueryAccess,
        now: Timestamp,
        range_ms_max: i64,
    ) -> ApiResult<PreparedQuery> {
        let mut lengths =
            Params::of_pairs(pairs([("step", self.step.clone()), ("range", self.range.clone())]));
        let (step_ms, range_ms) = (lengths.duration_ms("step")?, lengths.duration_ms("range")?);
        if range_ms.is_some_and(|ms| !(1..=range_ms_max).contains(&ms)) {
            let most = range_ms_max / 1_000;
            let expected = format!("a duration of more than zero and at most {most} s is expected");
            return Err(ApiError::invalid_parameter("range", expected));
        }
        let range_ms = range_ms.or(step_ms).unwrap_or(0).max(0);
        let text = viewing.expression(&PanelQuery {
            panel: self.panel,
            ref_id: &self.ref_id,
            variables: &self.variables,
            range: TimeRange::new(now.plus_ms(-range_ms), now),
            intervals: Intervals::parse(self.interval.as_deref(), self.rate_interval.as_deref(), step_ms)?,
        })?;
        let parameter = |parameter: &Option<Parameter>| parameter.clone().map(|Parameter(text)| text);
        let (step, limit) = (parameter(&self.step), parameter(&self.limit));
        let query = prepare_expression(text, step, limit, now, &access.grant)?;
        Ok(if access.grant.is_token() { query.without_expression() } else { query })
    }
}
