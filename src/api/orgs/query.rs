//! The native query endpoints: `query/range`, `query/instant`, `query/expr-instant`,
//! `query/expr-range` (docs/specification.md C5), `query/estimate`, which estimates the cost of a
//! query, `query/batch`, which runs many queries, and `query/live`, which streams their points.
//! `render.svg` and `render.png` draw the result of a query.
//!
//! The first four also take their parameters as a form, by `POST`. So a page of another origin uses
//! one URL for all queries, and a browser reuses its CORS preflight, which it stores by URL.
//!
//! The grant that a caller needs depends on whether the request has an expression, not on the path.

pub mod active;
pub(super) mod batch;
pub(super) mod body;
pub(super) mod deadline;
pub(super) mod deps;
pub mod engines;
mod export;
pub(super) mod inline;
pub(super) mod live;
mod parallel_encode;
mod queried;
pub mod render;
pub(super) mod request;
pub(super) mod response;
pub(super) mod result;
pub(super) mod run;
pub(super) mod selectors;
pub(super) mod source;
mod split;
mod structured;

use std::time::Duration;

use axum::extract::State;
use axum::response::Response;

use body::BodyFormat;
pub use deps::{ReadDeps, ReadOptions};
pub use live::{LiveQueries, LiveUsage};
pub use queried::QueriedMetrics;
use request::{PendingRead, ReadRequest, timeout};
use response::Envelope;
use result::ResultData;
use run::{EvalOptions, QueryRun};
use structured::StructuredParams;

use crate::api::callers::{Endpoint, Grant, Permission};
use crate::api::error::{ApiError, ApiResult};
use crate::api::params::Params;
use crate::api::prom_json;
use crate::api::routes::{Auth, Routes};
use crate::model::{METRIC_NAME, Matcher, Steps, StepsError, TimeRange, Timestamp};
use crate::promql::explain::{Estimate, PlanNode};
use crate::promql::{Annotations, Query};

/// The routes below `/orgs/{slug}`.
pub fn routes() -> Routes<ReadDeps> {
    Routes::new()
        .get_and_form(
            "/orgs/{slug}/query/range",
            Auth::QueryCaller(Endpoint::Range),
            "Run a structured query or an expression over a time range",
            range,
        )
        .get_and_form(
            "/orgs/{slug}/query/instant",
            Auth::QueryCaller(Endpoint::Instant),
            "Run a structured query or an expression at one time",
            instant,
        )
        .get_and_form(
            "/orgs/{slug}/query/expr-instant",
            Auth::QueryCaller(Endpoint::Expr),
            "Evaluate a PromQL expression at one time",
            expr_instant,
        )
        .get_and_form(
            "/orgs/{slug}/query/expr-range",
            Auth::QueryCaller(Endpoint::Expr),
            "Evaluate a PromQL expression over a time range",
            expr_range,
        )
        .get(
            "/orgs/{slug}/query/estimate",
            Auth::QueryCaller(Endpoint::Expr),
            "Estimate the cost of an expression",
            estimate,
        )
        .merge(batch::routes())
        .merge(live::routes())
        .merge(export::routes())
}

/// The greatest `limit` on the series of a result, inclusive (docs/specification.md C5).
const SERIES_MAX: usize = 10_000;
/// The default `limit` on the series of a result.
const SERIES_DEFAULT: usize = 1_000;

async fn range(State(deps): State<ReadDeps>, read: PendingRead) -> ApiResult<Response> {
    respond(deps, read, QueryMode::Range, AcceptedQuery::Any).await
}

async fn instant(State(deps): State<ReadDeps>, read: PendingRead) -> ApiResult<Response> {
    respond(deps, read, QueryMode::Instant, AcceptedQuery::Any).await
}

async fn expr_instant(State(deps): State<ReadDeps>, read: PendingRead) -> ApiResult<Response> {
    respond(deps, read, QueryMode::Instant, AcceptedQuery::ExpressionOnly).await
}

async fn expr_range(State(deps): State<ReadDeps>, read: PendingRead) -> ApiResult<Response> {
    respond(deps, read, QueryMode::Range, AcceptedQuery::ExpressionOnly).await
}

/// The kinds of queries that a path accepts.
#[derive(Clone, Copy, PartialEq, Eq)]
enum AcceptedQuery {
    /// A structured query or an expression.
    Any,
    /// Only an expression.
    ExpressionOnly,
}

/// The parameters of a query, except its times.
#[derive(Clone)]
struct QueryParams {
    kind: QueryKind,
    mode: QueryMode,
    explain: bool,
    eval: EvalOptions,
    /// The response does not repeat the expression, which the caller does not know.
    hides_expression: bool,
}

#[derive(Clone)]
enum QueryKind {
    Structured(StructuredParams),
    Expression(String),
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum QueryMode {
    Range,
    Instant,
}

fn query_kind(params: &mut Params, accepts: AcceptedQuery) -> ApiResult<QueryKind> {
    match (params.one(&["expr", "query"])?, accepts) {
        (Some(text), _) => Ok(QueryKind::Expression(text)),
        (None, AcceptedQuery::Any) => StructuredParams::take(params).map(QueryKind::Structured),
        (None, AcceptedQuery::ExpressionOnly) => {
            Err(ApiError::invalid_parameter("expr", "an expression is required"))
        }
    }
}

/// The steps of a query, and the most series of its result, inclusive.
#[derive(Clone, Copy, Debug)]
struct QueryWindow {
    steps: Steps,
    limit: usize,
}

/// A query whose parameters have been parsed. Its expression has not been parsed yet; that is work
/// for the query lane.
#[derive(Clone)]
pub(super) struct PreparedQuery {
    params: QueryParams,
    window: QueryWindow,
    timeout: Option<Duration>,
    /// The names of the parameters that the query does not use.
    unused: Vec<String>,
}

impl QueryParams {
    /// Takes the parameters.
    ///
    /// # Errors
    /// 400 `invalid_parameter` and `duplicate_parameter`.
    fn take(params: &mut Params, mode: QueryMode, accepts: AcceptedQuery) -> ApiResult<QueryParams> {
        let eval = EvalOptions { lookback_ms: None, nocache: flag(params, "nocache")? };
        let kind = query_kind(params, accepts)?;
        Ok(QueryParams { kind, mode, explain: flag(params, "explain")?, eval, hides_expression: false })
    }

    /// Returns the endpoint that a token must grant.
    fn endpoint(&self) -> Endpoint {
        match (&self.kind, self.mode) {
            (QueryKind::Expression(_), _) => Endpoint::Expr,
            (QueryKind::Structured(_), QueryMode::Range) => Endpoint::Range,
            (QueryKind::Structured(_), QueryMode::Instant) => Endpoint::Instant,
        }
    }

    /// Returns the text for the list of running queries.
    fn listed(&self) -> String {
        match &self.kind {
            QueryKind::Expression(text) => text.clone(),
            QueryKind::Structured(shape) => shape.metric().to_owned(),
        }
    }

    /// Takes the times, the limits and all other parameters.
    ///
    /// # Errors
    /// 400 `invalid_parameter` and `duplicate_parameter`, 403 `embed_restricted`.
    fn prepare(
        self,
        params: &mut Params,
        now: Timestamp,
        range_ms_max: i64,
        grant: &Grant,
    ) -> ApiResult<PreparedQuery> {
        let steps = match self.mode {
            QueryMode::Range => range_steps(params, now, range_ms_max, grant)?,
            QueryMode::Instant => Steps::once(params.time("time", now)?.unwrap_or(now)),
        };
        let limit = params.count("limit", 1, SERIES_MAX)?.unwrap_or(SERIES_DEFAULT);
        let timeout = timeout(params)?;
        let window = QueryWindow { steps, limit };
        Ok(PreparedQuery { params: self, window, timeout, unused: params.unknown() })
    }
}

impl PreparedQuery {
    /// Returns the text for the list of running queries.
    fn listed(&self) -> String {
        self.params.listed()
    }

    /// Leaves the expression out of the response.
    pub(super) fn without_expression(mut self) -> PreparedQuery {
        self.params.hides_expression = true;
        self
    }

    /// Returns the time from the first step to the last.
    fn range(&self) -> TimeRange {
        TimeRange::new(self.window.steps.start(), self.window.steps.end())
    }

    /// Evaluates the query. Runs on the query lane or inline.
    fn evaluate(self, run: &mut QueryRun) -> ApiResult<EvaluatedQuery> {
        warn_of_unused(run, self.unused);
        evaluate(run, &self.params, self.window)
    }
}

async fn respond(
    deps: ReadDeps,
    mut read: PendingRead,
    mode: QueryMode,
    accepts: AcceptedQuery,
) -> ApiResult<Response> {
    let mut params = std::mem::take(&mut read.params);
    let query = QueryParams::take(&mut params, mode, accepts)?;
    let request = read.enter(Some(query.endpoint()))?;
    let (now, range_ms_max) = (deps.clock.now(), deps.options.range_ms_max);
    let query = query.prepare(&mut params, now, range_ms_max, request.grant())?;
    let request = request.within(query.timeout).inline_over(query.range()).listed(query.listed());
    let work = move |run: &mut QueryRun| {
        let evaluated = query.evaluate(run)?;
        run.encode(evaluated.envelope)
    };
    deps.respond_large(request, work).await
}

/// Adds a warning for each parameter that the handler did not take.
pub(super) fn warn_of_unused(run: &mut QueryRun, unknown: Vec<String>) {
    for name in unknown {
        run.warn(format!("the parameter {name:?} was not used"));
    }
}

/// Parses a flag; a missing one is false.
pub(super) fn flag(params: &mut Params, name: &'static str) -> ApiResult<bool> {
    match params.one(&[name])?.as_deref() {
        None | Some("0" | "false") => Ok(false),
        Some("1" | "true") => Ok(true),
        Some(_) => Err(ApiError::invalid_parameter(name, "true or false is expected")),
    }
}

/// Estimates the cost of an expression over a range if `start`, `end` or `step` is set, otherwise
/// at one time.
async fn estimate(State(deps): State<ReadDeps>, read: ReadRequest) -> ApiResult<Response> {
    let ReadRequest { query: request, mut params, .. } = read;
    let text = params.one(&["expr", "query"])?;
    let text = text.ok_or_else(|| ApiError::invalid_parameter("expr", "an expression is required"))?;
    let now = deps.clock.now();
    let at = params.time("time", now)?;
    let instant = !["start", "end", "step"].iter().any(|name| params.has(name));
    let steps = match at {
        Some(_) if !instant => {
            return Err(ApiError::invalid_parameter("time", "time and a range exclude each other"));
        }
        _ if instant => Steps::once(at.unwrap_or(now)),
        _ => range_steps(&mut params, now, deps.options.range_ms_max, request.grant())?,
    };
    let request = request.within(timeout(&mut params)?);
    let unknown = params.unknown();
    let work = move |run: &mut QueryRun| {
        warn_of_unused(run, unknown);
        let expr = run.expression("expr", &text)?;
        let estimate = run.estimate(&Query { expr, text: text.into(), steps, instant })?;
        run.body(&[], BodyFormat::Native, |out| {
            out.raw(br#""data":"#);
            out.write(|out| write_estimate(&estimate, out))
        })
    };
    deps.respond(request, work).await
}

/// The result of a query.
struct EvaluatedQuery {
    envelope: Envelope,
    /// Whether the evaluation added warnings or infos. They state positions in the text of the
    /// expression.
    has_annotations: bool,
    /// The infos of the evaluation, at most ten. Its warnings are those of the run.
    infos: Vec<String>,
}

/// Evaluates a query. Runs on the query lane or inline.
fn evaluate(run: &mut QueryRun, params: &QueryParams, window: QueryWindow) -> ApiResult<EvaluatedQuery> {
    let instant = params.mode == QueryMode::Instant;
    let (expr, text) = match &params.kind {
        QueryKind::Expression(text) => (run.expression("expr", text)?, text.as_str().into()),
        QueryKind::Structured(shape) => {
            run.grant.require(Permission::Metric(shape.metric()))?;
            let min_window_ms = if instant { 0 } else { window.steps.step_ms() };
            let built = shape.build(&run.options, min_window_ms, run.grant.max_range_ms());
            let expr = built.map_err(|error| run.error_or(error))?;
            // A structured query has no text, so its annotations have no positions.
            (expr.into(), "".into())
        }
    };
    let printed = if params.hides_expression { String::new() } else { expr.to_string() };
    let query = Query { expr, text, steps: window.steps, instant };
    let (answer, plan) = match params.explain {
        true => run.explain(&query).map(|(answer, plan)| (answer.into(), Some(plan)))?,
        false => (run.evaluate_data(&query, params.eval)?, None),
    };
    let has_annotations = answer.annotations != Annotations::default();
    let infos = run.annotate(answer.annotations);
    let mut value = answer.data;
    let series = value.series_count();
    // The number of samples reveals the number of series, so it has the same restriction.
    let insight = run.grant.require(Permission::SeriesOfResults).is_ok();
    run.truncate(&mut value, Some(window.limit));
    if let QueryKind::Structured(shape) = &params.kind {
        warn_of_unknown(run, shape.metric(), &value)?;
    }
    let envelope = run.envelope(value, &infos, BodyFormat::Native, |out| {
        out.extend_from_slice(br#","query":{"expr":"#);
        prom_json::text(&printed, out);
        write_steps(&window.steps, instant, out);
        out.extend_from_slice(br#"},"stats":{"series":"#);
        prom_json::count(series as u64, out);
        if insight {
            out.extend_from_slice(br#","samples":"#);
            prom_json::count(answer.stats.samples, out);
        }
        out.extend_from_slice(br#","elapsed_ms":"#);
        milliseconds(run.elapsed_ms(), out);
        out.push(b'}');
        if let Some(plan) = &plan {
            out.extend_from_slice(br#","explain":"#);
            write_plan(plan, out);
        }
    });
    Ok(EvaluatedQuery { envelope, has_annotations, infos })
}

/// Writes milliseconds, rounded to the microsecond.
fn milliseconds(ms: f64, out: &mut Vec<u8>) {
    prom_json::number((ms * 1_000.0).round() / 1_000.0, out);
}

fn write_estimate(estimate: &Estimate, out: &mut Vec<u8>) {
    for (name, value) in [
        (&br#"{"series":"#[..], estimate.series),
        (br#","samples":"#, estimate.samples),
        (br#","memory_bytes":"#, estimate.memory_bytes),
    ] {
        out.extend_from_slice(name);
        prom_json::count(value, out);
    }
    out.push(b'}');
}

/// Writes a plan node: its estimated cost, its actual cost, and its inputs. A node that was not
/// evaluated by itself has no actual cost.
fn write_plan(plan: &PlanNode, out: &mut Vec<u8>) {
    out.extend_from_slice(br#"{"node":"#);
    prom_json::text(&plan.node, out);
    out.extend_from_slice(br#","estimated":"#);
    let PlanNode { series, samples, memory_bytes, .. } = *plan;
    write_estimate(&Estimate { series, samples, memory_bytes }, out);
    if let Some(actual) = &plan.actual {
        out.extend_from_slice(br#","actual":{"series":"#);
        prom_json::count(actual.series, out);
        out.extend_from_slice(br#","samples":"#);
        prom_json::count(actual.samples, out);
        out.extend_from_slice(br#","elapsed_ms":"#);
        milliseconds(actual.ms, out);
        out.push(b'}');
    }
    out.extend_from_slice(br#","inputs":["#);
    for (index, input) in plan.inputs.iter().enumerate() {
        if index > 0 {
            out.push(b',');
        }
        write_plan(input, out);
    }
    out.extend_from_slice(b"]}");
}

fn write_steps(steps: &Steps, instant: bool, out: &mut Vec<u8>) {
    if instant {
        out.extend_from_slice(br#","time":"#);
        prom_json::time(steps.start(), out);
        return;
    }
    out.extend_from_slice(br#","start":"#);
    prom_json::time(steps.start(), out);
    out.extend_from_slice(br#","end":"#);
    prom_json::time(steps.end(), out);
    out.extend_from_slice(br#","step":"#);
    prom_json::plain_time(Timestamp::from_ms(steps.step_ms()), out);
}

/// Adds a warning to an empty result if the metric has never been written, or lies outside of the
/// caller's scope. The two cases have the same warning, so that it reveals nothing about the scope.
fn warn_of_unknown(run: &mut QueryRun, metric: &str, value: &ResultData) -> ApiResult<()> {
    if value.series_count() == 0 {
        let named = vec![Matcher::equal(METRIC_NAME, metric)];
        if !run.exists(&[named], TimeRange::ALL)? {
            run.warn(format!("the metric {metric:?} is not known"));
        }
    }
    Ok(())
}

/// Parses `start`, `end` and `step`, with the defaults of docs/specification.md C5.
fn range_steps(params: &mut Params, now: Timestamp, range_ms_max: i64, grant: &Grant) -> ApiResult<Steps> {
    steps_of(params, now, range_ms_max, grant, default_step_ms)
}

/// Like [`range_steps`]; `default_step_ms` returns the default step of a range in milliseconds.
fn steps_of(
    params: &mut Params,
    now: Timestamp,
    range_ms_max: i64,
    grant: &Grant,
    default_step_ms: impl FnOnce(i64) -> i64,
) -> ApiResult<Steps> {
    const HOUR_MS: i64 = 3_600_000;
    let end = params.time("end", now)?.unwrap_or(now);
    let default_range = HOUR_MS.min(grant.max_range_ms().unwrap_or(HOUR_MS));
    let start = params.time("start", now)?.unwrap_or(end.plus_ms(-default_range));
    let range_ms = end.ms_since(start);
    if range_ms > range_ms_max {
        let message = format!(
            "end - start is {} s, more than the {} s allowed",
            range_ms / 1_000,
            range_ms_max / 1_000
        );
        return Err(ApiError::invalid_parameter("start", message));
    }
    let step = params
        .duration_ms("step")?
        .unwrap_or(default_step_ms(range_ms).max(grant.min_step_ms().unwrap_or(0)));
    let steps = Steps::new(start, end, step).map_err(|error| {
        let parameter = match error {
            StepsError::EndBeforeStart => "end",
            StepsError::StepNotPositive | StepsError::TooMany => "step",
        };
        ApiError::invalid_parameter(parameter, error.to_string())
    })?;
    grant.require(Permission::Steps(&steps))?;
    Ok(steps)
}

/// Returns the default step of a range: the smallest of 1, 2, 5, 10, 20, 50, ... seconds with at
/// most 250 steps, and at least 15 seconds.
fn default_step_ms(range_ms: i64) -> i64 {
    const LEAST_MS: i64 = 15_000;
    let wanted = range_ms / 250 + i64::from(range_ms % 250 > 0);
    let mut decade: i64 = 1_000;
    let nice = loop {
        match [1, 2, 5].into_iter().map(|n| decade.saturating_mul(n)).find(|step| *step >= wanted) {
            Some(step) => break step,
            None => decade = decade.saturating_mul(10),
        }
    };
    nice.max(LEAST_MS)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_default_step_makes_at_most_250_points() {
        let hour = 3_600;
        let cases = [
            (0, 15),
            (60, 15),
            (2_500, 15),
            (hour, 20),
            (5_000, 20),
            (5_001, 50),
            (6 * hour, 100),
            (24 * hour, 500),
            (365 * 24 * hour, 200_000),
        ];
        for (range_s, step_s) in cases {
            assert_eq!(default_step_ms(range_s * 1_000) / 1_000, step_s, "{range_s}");
        }
        assert!(default_step_ms(i64::MAX) > 0);
    }
}
