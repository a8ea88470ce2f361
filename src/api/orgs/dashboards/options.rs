//! `dashboards/{uid}/options`: the options of a variable, from the series of the caller's scope.

use std::sync::Arc;

use axum::extract::State;
use axum::response::Response;
use serde::Deserialize;

use super::viewer::{SentValues, ViewerDeps, ViewerRequest, Viewing, access_of, refused_text, time_range};
use crate::api::body::parse_json;
use crate::api::callers::{Permission, QueryAccess};
use crate::api::error::{ApiError, ApiResult, Code};
use crate::api::orgs::query::ReadDeps;
use crate::api::orgs::query::batch::Parameter;
use crate::api::orgs::query::body::{BodyFormat, TRUNCATED};
use crate::api::orgs::query::request::QueryRequest;
use crate::api::orgs::query::run::{EvalOptions, QueryRun};
use crate::api::prom_json;
use crate::dashboards::{VariableAccess, VariableQuery};
use crate::model::{METRIC_NAME, MatchOp, Matcher, Steps, TimeRange, Timestamp};
use crate::promql::{Query, Value};
use crate::tsdb::Listing;

/// The most options of a response, inclusive.
const OPTIONS_MAX: usize = 10_000;

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct OptionsBody {
    variable: String,
    #[serde(default)]
    variables: SentValues,
    start: Option<Parameter>,
    end: Option<Parameter>,
}

/// The source of the options.
#[derive(Clone)]
enum Wanted {
    /// The values that the token lists.
    Given(Vec<String>),
    /// The result of a query.
    Asked(VariableQuery),
}

pub(super) async fn options(State(deps): State<ViewerDeps>, request: ViewerRequest) -> ApiResult<Response> {
    let ViewerRequest { access, uid, body, .. } = request;
    let body: Arc<OptionsBody> = Arc::new(parse_json(&body)?);
    let range = time_range(body.start.clone(), body.end.clone(), deps.read.clock.now())?;
    let (viewer, caller) = (deps.clone(), access.clone());
    let work = move |run: &mut QueryRun| match viewer.wanted(&caller, &uid, &body, range)? {
        Wanted::Given(values) => run.body(&[], BodyFormat::Native, |out| {
            out.raw(br#""data":"#);
            out.texts(values.iter().map(String::as_str))
        }),
        Wanted::Asked(query) => answer(run, query, range),
    };
    let read: &ReadDeps = &deps.read;
    read.respond(QueryRequest::from(access), work).await
}

impl ViewerDeps {
    fn wanted(
        &self,
        caller: &QueryAccess,
        uid: &str,
        body: &OptionsBody,
        range: TimeRange,
    ) -> ApiResult<Wanted> {
        let found = self.dashboard(caller.access.org, uid)?;
        let viewing = Viewing::new(&found.document, &caller.grant, &body.variables);
        let variable = viewing.dashboard.variable(&body.variable);
        let variable =
            variable.ok_or_else(|| viewing.refused(Code::NotFound, "the dashboard has no such variable"))?;
        match access_of(&caller.grant)(&body.variable) {
            VariableAccess::Open(Some(values)) => return Ok(Wanted::Given(values.to_vec())),
            VariableAccess::Open(None) => {}
            VariableAccess::Locked(_) | VariableAccess::Fixed => {
                let detail = "this token does not let viewers choose this variable";
                return Err(ApiError::new(Code::EmbedRestricted, detail));
            }
        }
        let query =
            viewing.dashboard.variable_query(variable, viewing.selections()?, &Viewing::context(range)?);
        let query = query.map_err(|error| refused_text(&caller.grant, &error))?;
        let none = || ApiError::invalid_parameter("variable", "this variable has no query");
        query.map(Wanted::Asked).ok_or_else(none)
    }
}

fn answer(run: &mut QueryRun, query: VariableQuery, range: TimeRange) -> ApiResult<Vec<u8>> {
    run.grant.require(Permission::SeriesOfResults)?;
    let selected = |run: &QueryRun, selector: Option<String>| {
        run.selectors("variable", &selector.into_iter().collect::<Vec<_>>())
    };
    match query {
        VariableQuery::LabelValues { label, selector } => {
            let selectors = selected(run, selector)?;
            let found = run.label_values(&label, &selectors, range, OPTIONS_MAX)?;
            texts(run, &found)
        }
        VariableQuery::LabelNames { selector } => {
            let selectors = selected(run, selector)?;
            let found = run.label_names(&selectors, range, OPTIONS_MAX)?;
            texts(run, &found)
        }
        VariableQuery::Metrics { regex } => {
            let pattern = Matcher::new(METRIC_NAME, MatchOp::Regex, &format!(".*(?:{regex}).*"));
            let invalid = |error| ApiError::invalid_parameter("variable", format!("{error}"));
            let selectors = vec![vec![pattern.map_err(invalid)?]];
            run.charge_patterns(&selectors)?;
            let found = run.label_values(METRIC_NAME, &selectors, range, OPTIONS_MAX)?;
            texts(run, &found)
        }
        VariableQuery::Series { selector } => {
            let selectors = selected(run, Some(selector))?;
            let found = run.series(&selectors, range, OPTIONS_MAX)?;
            if found.truncated {
                run.warn(TRUNCATED);
            }
            run.body(&[], BodyFormat::Native, |out| {
                out.raw(br#""data":"#);
                out.array(&found.items, |labels, out| {
                    out.extend_from_slice(br#"{"metric":"#);
                    prom_json::labels(labels, out);
                    out.push(b'}');
                })
            })
        }
        VariableQuery::QueryResult { expr } => result(run, expr, range.end),
    }
}

fn texts(run: &mut QueryRun, found: &Listing<Arc<str>>) -> ApiResult<Vec<u8>> {
    if found.truncated {
        run.warn(TRUNCATED);
    }
    run.body(&[], BodyFormat::Native, |out| {
        out.raw(br#""data":"#);
        out.texts(found.items.iter().map(|text| &**text))
    })
}

/// Lists the series of an instant query with their values.
fn result(run: &mut QueryRun, text: String, at: Timestamp) -> ApiResult<Vec<u8>> {
    let expr = run.expression("variable", &text)?;
    let query = Query { expr, text: text.into(), steps: Steps::once(at), instant: true };
    let answer = run.evaluate(&query, EvalOptions::default())?;
    let infos = run.annotate(answer.annotations);
    let mut data = answer.value.into();
    run.truncate(&mut data, Some(OPTIONS_MAX));
    let value = data.into_value()?;
    let write = |at: Timestamp, value: f64, out: &mut Vec<u8>| {
        out.extend_from_slice(br#","value":["#);
        prom_json::time(at, out);
        out.extend_from_slice(br#",""#);
        prom_json::number(value, out);
        out.extend_from_slice(br#""]}"#);
    };
    run.body(&infos, BodyFormat::Native, |out| {
        out.raw(br#""data":"#);
        match &value {
            Value::Vector(series) => out.array(series, |sample, out| {
                out.extend_from_slice(br#"{"metric":"#);
                prom_json::labels(&sample.labels, out);
                write(sample.at, sample.value, out);
            }),
            Value::Scalar { at, value } => out.array([()], |(), out| {
                out.extend_from_slice(br#"{"metric":{}"#);
                write(*at, *value, out);
            }),
            Value::Matrix(_) | Value::Text { .. } => Err(ApiError::invalid_parameter(
                "variable",
                "the expression must have one value for each series",
            )),
        }
    })
}
