//! `dashboards/{uid}/data`: the results of the queries of panels, as lines of a batch.

use axum::extract::State;
use axum::response::Response;
use serde::Deserialize;

use super::viewer::{Intervals, PanelQuery, SentValues, ViewerDeps, ViewerRequest, Viewing, time_range};
use crate::api::body::parse_json;
use crate::api::callers::QueryAccess;
use crate::api::error::{ApiError, ApiResult};
use crate::api::orgs::query::batch::{
    Batch, BatchItemKind, BatchItems, BatchMemory, BatchQuery, Parameter, pairs, prepare, respond,
};
use crate::api::orgs::query::{PreparedQuery, ReadDeps};
use crate::api::params::Params;
use crate::model::Timestamp;

/// The body of a request. Times hold for all queries; a query may have its own.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct DataBody {
    #[serde(default)]
    variables: SentValues,
    start: Option<Parameter>,
    end: Option<Parameter>,
    timeout: Option<Parameter>,
    queries: BatchItems<DataItem>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct DataItem {
    id: String,
    panel: Option<i64>,
    #[serde(rename = "ref")]
    ref_id: Option<String>,
    /// The place of an annotation, instead of a panel and its query.
    annotation: Option<usize>,
    #[serde(rename = "type")]
    kind: BatchItemKind,
    step: Option<Parameter>,
    start: Option<Parameter>,
    end: Option<Parameter>,
    interval: Option<String>,
    rate_interval: Option<String>,
    #[serde(default)]
    variables: SentValues,
    limit: Option<Parameter>,
}

pub(super) async fn data(State(deps): State<ViewerDeps>, request: ViewerRequest) -> ApiResult<Response> {
    let ViewerRequest { access, uid, body, .. } = request;
    let parse = {
        let deps = deps.clone();
        move |read: &ReadDeps, access: &QueryAccess| parse(&deps, read, access, &uid, &body)
    };
    respond(deps.read, access, parse).await
}

fn parse(
    deps: &ViewerDeps,
    read: &ReadDeps,
    access: &QueryAccess,
    uid: &str,
    body: &[u8],
) -> ApiResult<Batch> {
    let mut memory = BatchMemory::of_body(read, access, body)?;
    let body: DataBody = parse_json(body)?;
    body.queries.check(|item| &item.id)?;
    let found = deps.dashboard(access.access.org, uid)?;
    let viewing = Viewing::new(&found.document, &access.grant, &body.variables);
    let now = read.clock.now();
    let mut queries = Vec::with_capacity(body.queries.listed.len());
    for item in &body.queries.listed {
        memory.charge_query(0)?;
        let query = match body.expression(item, &viewing, now) {
            Ok(text) => {
                memory.charge_query(text.len())?;
                body.prepare(item, text, read, access, now)
            }
            Err(refused) => Err(refused),
        };
        queries.push(BatchQuery { id: item.id.as_str().into(), query });
    }
    Batch::new(read, access, queries, body.timeout, memory)
}

impl DataBody {
    fn start_of(&self, item: &DataItem) -> Option<Parameter> {
        [&item.start, &self.start].into_iter().find_map(Parameter::given)
    }

    fn end_of(&self, item: &DataItem) -> Option<Parameter> {
        [&item.end, &self.end].into_iter().find_map(Parameter::given)
    }

    fn expression(&self, item: &DataItem, viewing: &Viewing<'_>, now: Timestamp) -> ApiResult<String> {
        let step_ms = Params::of_pairs(pairs([("step", item.step.clone())])).duration_ms("step")?;
        let range = time_range(self.start_of(item), self.end_of(item), now)?;
        let intervals = Intervals::parse(item.interval.as_deref(), item.rate_interval.as_deref(), step_ms)?;
        let variables = &item.variables;
        match (item.panel, item.ref_id.as_deref(), item.annotation) {
            (Some(panel), Some(ref_id), None) => {
                viewing.expression(&PanelQuery { panel, ref_id, variables, range, intervals })
            }
            (None, None, Some(place)) if variables.is_empty() => viewing.annotation(place, range, intervals),
            _ => {
                let expected = "a query has either panel and ref, or annotation without variables of its own";
                Err(ApiError::invalid_parameter("queries", expected))
            }
        }
    }

    /// Prepares a query with its expression. An instant query has the time of the range's end.
    fn prepare(
        &self,
        item: &DataItem,
        text: String,
        read: &ReadDeps,
        access: &QueryAccess,
        now: Timestamp,
    ) -> ApiResult<PreparedQuery> {
        let (expr, limit) = (Some(Parameter(text)), item.limit.clone());
        let (instant, pairs) = match item.kind {
            BatchItemKind::Range => {
                let (start, end, step) = (self.start_of(item), self.end_of(item), item.step.clone());
                let members =
                    [("expr", expr), ("start", start), ("end", end), ("step", step), ("limit", limit)];
                (false, pairs(members))
            }
            BatchItemKind::Instant => {
                (true, pairs([("expr", expr), ("time", self.end_of(item)), ("limit", limit)]))
            }
        };
        let query = prepare(pairs, instant, read, access, now)?;
        Ok(if access.grant.is_token() { query.without_expression() } else { query })
    }
}
