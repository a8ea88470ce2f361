//! The Prometheus HTTP API, mounted once for each organisation, with the same response bodies
//! (docs/specification.md C6; Prometheus, web/api/v1).
//!
//! The parameters of the URL and of the form are one list, for any content type. Unknown parameters
//! are ignored.

mod federate;
mod metadata;
mod parsed_tree;
mod status;

use std::sync::Arc;
use std::time::Duration;

use axum::extract::State;
use axum::response::Response;
use serde_json::json;

use super::metrics::{range, range_or_empty};
use super::query::body::{BodyFormat, BodyWriter, TRUNCATED};
use super::query::request::{QueryRequest, ReadRequest, timeout};
use super::query::response::QueryBody;
use super::query::run::{EvalOptions, QueryRun};
use super::query::{ReadDeps, flag};
use super::rules;
use crate::api::callers::{Endpoint, Permission, PrometheusCaller};
use crate::api::encoding::Coding;
use crate::api::error::{ApiError, ApiResult, Code};
use crate::api::params::{Params, PathOf, unescape_name};
use crate::api::prom_json;
use crate::api::routes::{Auth, Routes};
use crate::clock::Stopwatch;
use crate::model::{Matcher, Steps, StepsError, TimeRange, Timestamp};
use crate::promql::{Query, QueryStats};
use crate::tsdb::{Listing, SeriesExemplars, Tally};

/// The version of Prometheus whose requests are understood and whose bodies are returned.
const PROMETHEUS_VERSION: &str = "3.5.0";

/// The routes below `/orgs/{slug}`.
pub fn routes() -> Routes<ReadDeps> {
    let routes = query_routes(health_routes());
    let routes = routes.get_and_form(
        "/orgs/{slug}/prometheus/api/v1/series",
        Auth::PrometheusCaller(Some(Endpoint::Metrics)),
        "Prometheus: find series",
        series,
    );
    let routes = routes.get_and_form(
        "/orgs/{slug}/prometheus/api/v1/labels",
        Auth::PrometheusCaller(Some(Endpoint::Labels)),
        "Prometheus: list label names",
        labels,
    );
    let routes = routes.get_and_form(
        "/orgs/{slug}/prometheus/api/v1/label/{label}/values",
        Auth::PrometheusCaller(Some(Endpoint::Labels)),
        "Prometheus: list the values of a label",
        label_values,
    );
    let routes = routes.get_and_form(
        "/orgs/{slug}/prometheus/api/v1/metadata",
        Auth::PrometheusCaller(Some(Endpoint::Metrics)),
        "Prometheus: get type, help text and unit of metrics",
        metadata::metadata,
    );
    let routes = routes.get_and_form(
        "/orgs/{slug}/prometheus/api/v1/format_query",
        Auth::PrometheusCaller(Some(Endpoint::Expr)),
        "Prometheus: format an expression",
        format_query,
    );
    let routes = routes.get_and_form(
        "/orgs/{slug}/prometheus/api/v1/status/buildinfo",
        Auth::PrometheusCaller(None),
        "Prometheus: get the version",
        buildinfo,
    );
    let routes = routes.get_and_form(
        "/orgs/{slug}/prometheus/api/v1/status/tsdb",
        Auth::PrometheusCaller(Some(Endpoint::Labels)),
        "Prometheus: get the metrics, labels and values with the most series",
        status_tsdb,
    );
    let routes = routes.get_and_form(
        "/orgs/{slug}/prometheus/api/v1/query_exemplars",
        Auth::PrometheusCaller(Some(Endpoint::Expr)),
        "Prometheus: get exemplars of the series that an expression selects",
        exemplars,
    );
    let routes = routes.get_and_form(
        "/orgs/{slug}/prometheus/api/v1/rules",
        Auth::PrometheusCaller(None),
        "Prometheus: list rules and their state",
        rules::listing::rules,
    );
    let routes = routes.get_and_form(
        "/orgs/{slug}/prometheus/api/v1/alerts",
        Auth::PrometheusCaller(None),
        "Prometheus: list pending and firing alerts",
        rules::listing::alerts,
    );
    status::routes(routes).get(
        "/orgs/{slug}/prometheus/federate",
        Auth::PrometheusCaller(Some(Endpoint::Expr)),
        "Prometheus: get the newest samples in the text format",
        federate::federate,
    )
}

/// Returns the routes about the state of the server.
fn health_routes() -> Routes<ReadDeps> {
    Routes::new()
        .get(
            "/orgs/{slug}/prometheus",
            Auth::PrometheusCaller(None),
            "Check the URL and the credential",
            root,
        )
        .get("/orgs/{slug}/prometheus/-/healthy", Auth::Public, "Check that the server responds", healthy)
        .get("/orgs/{slug}/prometheus/-/ready", Auth::Public, "Check that the server is ready", ready)
        .get(
            "/orgs/{slug}/prometheus/health",
            Auth::Public,
            "VictoriaMetrics: check that the server responds",
            healthy,
        )
}

/// Adds the routes of instant and range queries.
fn query_routes(routes: Routes<ReadDeps>) -> Routes<ReadDeps> {
    let routes = routes.get_and_form(
        "/orgs/{slug}/prometheus/api/v1/query",
        Auth::PrometheusCaller(Some(Endpoint::Expr)),
        "Prometheus: instant query",
        query,
    );
    routes.get_and_form(
        "/orgs/{slug}/prometheus/api/v1/query_range",
        Auth::PrometheusCaller(Some(Endpoint::Expr)),
        "Prometheus: range query",
        query_range,
    )
}

async fn root(caller: PrometheusCaller, PathOf(slug): PathOf<String>) -> ApiResult<&'static str> {
    caller.enter_any(&slug)?;
    Ok("This is the Prometheus API of one organisation. Configure this URL in clients, without a suffix.\n")
}

async fn healthy() -> &'static str {
    "promlet is healthy.\n"
}

/// Reports that the server is ready. While it starts, every route responds with 503 `starting`.
async fn ready() -> &'static str {
    "promlet is ready.\n"
}

/// Prefixes the message of a bad expression with the parameter's name, as Prometheus does.
pub(super) fn in_parameter(name: &'static str) -> impl Fn(ApiError) -> ApiError {
    move |error| match error.code() {
        Code::BadExpr => {
            ApiError::new(Code::BadExpr, format!("invalid parameter {name:?}: {}", error.detail()))
        }
        _ => error,
    }
}

/// Checks a parameter without a default. Prometheus reports a missing one like an empty text that
/// does not parse.
fn required<T>(value: Option<T>, name: &'static str, kind: &str) -> ApiResult<T> {
    value.ok_or_else(|| ApiError::invalid_parameter(name, format!("cannot parse \"\" to a valid {kind}")))
}

/// Parses `limit`. A missing limit and zero mean no limit.
fn limit(params: &mut Params) -> ApiResult<Option<usize>> {
    Ok(params.number::<usize>("limit", "a non-negative whole number")?.filter(|limit| *limit > 0))
}

/// Parses the largest number of descriptions of a metric; zero means no limit, as in Prometheus.
fn per_metric_limit(params: &mut Params) -> ApiResult<Option<usize>> {
    let limit = params.number::<usize>("limit_per_metric", "a non-negative whole number")?;
    Ok(limit.filter(|limit| *limit > 0))
}

async fn query(State(deps): State<ReadDeps>, read: ReadRequest) -> ApiResult<Response> {
    let ReadRequest { query, mut params, .. } = read;
    let now = deps.clock.now();
    let at = params.time("time", now)?.unwrap_or(now);
    let mount_query = MountQuery::parse(&mut params, Steps::once(at), true)?;
    mount_query.respond(&deps, query.within(timeout(&mut params)?)).await
}

async fn query_range(State(deps): State<ReadDeps>, read: ReadRequest) -> ApiResult<Response> {
    let ReadRequest { query, mut params, .. } = read;
    let now = deps.clock.now();
    let start = required(params.time("start", now)?, "start", "timestamp")?;
    let end = required(params.time("end", now)?, "end", "timestamp")?;
    let step = required(params.duration_ms("step")?, "step", "duration")?;
    let steps = Steps::new(start, end, step).map_err(|error| {
        let message = error.to_string();
        match error {
            StepsError::EndBeforeStart => ApiError::invalid_parameter("end", message),
            StepsError::StepNotPositive => ApiError::invalid_parameter("step", message),
            StepsError::TooMany => ApiError::new(Code::InvalidParameter, message),
        }
    })?;
    query.grant().require(Permission::Steps(&steps))?;
    let mount_query = MountQuery::parse(&mut params, steps, false)?;
    mount_query.respond(&deps, query.within(timeout(&mut params)?)).await
}

/// The parameters of an instant or range query.
#[derive(Clone)]
struct MountQuery {
    text: String,
    steps: Steps,
    instant: bool,
    limit: Option<usize>,
    eval: EvalOptions,
    /// The client asked for statistics, with any value of `stats`.
    has_stats: bool,
}

impl MountQuery {
    fn parse(params: &mut Params, steps: Steps, instant: bool) -> ApiResult<MountQuery> {
        let lookback_ms = params.duration_ms("lookback_delta")?;
        if lookback_ms.is_some_and(|ms| ms <= 0) {
            return Err(ApiError::invalid_parameter("lookback_delta", "a lookback must be positive"));
        }
        let text = params.one(&["query"])?.unwrap_or_default();
        let eval = EvalOptions { lookback_ms, nocache: flag(params, "nocache")? };
        let has_stats = params.one(&["stats"])?.is_some();
        Ok(MountQuery { text, steps, instant, limit: limit(params)?, eval, has_stats })
    }

    async fn respond(self, deps: &ReadDeps, request: QueryRequest) -> ApiResult<Response> {
        let range = TimeRange::new(self.steps.start(), self.steps.end());
        let request = request.listed(self.text.clone()).inline_over(range);
        deps.respond_large(request, move |run| self.execute(run)).await
    }

    /// Evaluates the query and encodes its response. Runs on the query lane or inline.
    fn execute(self, run: &mut QueryRun) -> ApiResult<QueryBody> {
        let expr = run.expression("query", &self.text).map_err(in_parameter("query"))?;
        let query = Query { expr, text: self.text.into(), steps: self.steps, instant: self.instant };
        let since = Stopwatch::start();
        let answer = run.evaluate_data(&query, self.eval).map_err(in_parameter("query"))?;
        let stats = self.has_stats.then(|| statistics(&answer.stats, since.elapsed()).to_string());
        let infos = run.annotate(answer.annotations);
        let mut value = answer.data;
        run.truncate(&mut value, self.limit);
        run.prometheus_result(value, &infos, stats.as_deref())
    }
}

/// Returns the statistics of a query in Prometheus' form. promlet measures the evaluation as a
/// whole; the times of its parts are 0.
fn statistics(stats: &QueryStats, evaluation: Duration) -> serde_json::Value {
    let seconds = evaluation.as_secs_f64();
    json!({
        "timings": {
            "evalTotalTime": seconds,
            "resultSortTime": 0,
            "queryPreparationTime": 0,
            "innerEvalTime": seconds,
            "execQueueTime": 0,
            "execTotalTime": seconds,
        },
        "samples": { "totalQueryableSamples": stats.samples, "peakSamples": stats.peak_samples },
    })
}

/// The parameters `match[]`, `start`, `end` and `limit` of a listing.
#[derive(Clone)]
struct SeriesFilter {
    selectors: Vec<String>,
    range: TimeRange,
    limit: usize,
}

impl SeriesFilter {
    fn take(params: &mut Params, now: Timestamp) -> ApiResult<SeriesFilter> {
        let selectors = params.many(&["match[]"]);
        Ok(SeriesFilter {
            selectors,
            range: range_or_empty(params, now)?,
            limit: limit(params)?.unwrap_or(usize::MAX),
        })
    }

    fn compile(&self, run: &QueryRun) -> ApiResult<Vec<Vec<Matcher>>> {
        run.selectors("match[]", &self.selectors).map_err(in_parameter("match[]"))
    }

    /// Returns the items that `read` finds in the range; none if `end` is before `start`, as in
    /// Prometheus.
    fn read<T>(&self, read: impl FnOnce(TimeRange, usize) -> ApiResult<Listing<T>>) -> ApiResult<Listing<T>> {
        if self.range.end < self.range.start { Ok(Listing::default()) } else { read(self.range, self.limit) }
    }
}

/// Encodes the response of a listing, with a warning if the limit truncated it.
fn list<T>(
    run: &mut QueryRun,
    found: &Listing<T>,
    write: impl FnOnce(&[T], &mut BodyWriter<'_>) -> ApiResult<()>,
) -> ApiResult<Vec<u8>> {
    if found.truncated {
        run.warn(TRUNCATED);
    }
    run.body(&[], BodyFormat::Prometheus, |out| {
        out.raw(br#""data":"#);
        write(&found.items, out)
    })
}

fn texts(all: &[Arc<str>], out: &mut BodyWriter<'_>) -> ApiResult<()> {
    out.texts(all.iter().map(|text| &**text))
}

async fn series(State(deps): State<ReadDeps>, read: ReadRequest) -> ApiResult<Response> {
    let ReadRequest { query, mut params, .. } = read;
    let filter = SeriesFilter::take(&mut params, deps.clock.now())?;
    if filter.selectors.is_empty() {
        return Err(ApiError::new(Code::InvalidParameter, "no match[] parameter provided"));
    }
    let query = query.inline_over(filter.range);
    let work = move |run: &mut QueryRun| {
        let selectors = filter.compile(run)?;
        let found = filter.read(|range, limit| run.series(&selectors, range, limit))?;
        list(run, &found, |sets, out| out.label_sets(sets))
    };
    deps.respond(query, work).await
}

async fn labels(State(deps): State<ReadDeps>, read: ReadRequest) -> ApiResult<Response> {
    let ReadRequest { query, mut params, .. } = read;
    let filter = SeriesFilter::take(&mut params, deps.clock.now())?;
    let query = query.inline_over(filter.range);
    let work = move |run: &mut QueryRun| {
        let selectors = filter.compile(run)?;
        let found = filter.read(|range, limit| run.label_names(&selectors, range, limit))?;
        list(run, &found, texts)
    };
    deps.respond(query, work).await
}

async fn label_values(State(deps): State<ReadDeps>, read: ReadRequest) -> ApiResult<Response> {
    let ReadRequest { query, mut params, name: label } = read;
    let filter = SeriesFilter::take(&mut params, deps.clock.now())?;
    let query = query.inline_over(filter.range);
    let work = move |run: &mut QueryRun| {
        let name = unescape_name(&label);
        let selectors = filter.compile(run)?;
        let found = filter.read(|range, limit| run.label_values(&name, &selectors, range, limit))?;
        list(run, &found, texts)
    };
    deps.respond(query, work).await
}

async fn format_query(State(deps): State<ReadDeps>, read: ReadRequest) -> ApiResult<Response> {
    let ReadRequest { query, mut params, .. } = read;
    let text = params.one(&["query"])?.unwrap_or_default();
    let work = move |run: &mut QueryRun| {
        let expr = run.expression("query", &text).map_err(in_parameter("query"))?;
        run.body(&[], BodyFormat::Prometheus, |out| {
            out.raw(br#""data":"#);
            out.write(|out| prom_json::text(&expr.to_string(), out))
        })
    };
    deps.respond(query, work).await
}

async fn parse_query(State(deps): State<ReadDeps>, read: ReadRequest) -> ApiResult<Response> {
    let ReadRequest { query, mut params, .. } = read;
    let text = params.one(&["query"])?.unwrap_or_default();
    let work = move |run: &mut QueryRun| {
        let expr = run.expression("query", &text).map_err(in_parameter("query"))?;
        run.body(&[], BodyFormat::Prometheus, |out| {
            out.raw(br#""data":"#);
            out.write(|out| out.extend_from_slice(parsed_tree::tree(&expr).to_string().as_bytes()))
        })
    };
    deps.respond(query, work).await
}

/// Returns the version of Prometheus whose response bodies promlet has. Clients choose their
/// requests by it. There is no member `features`, because Grafana takes a server with that member
/// for Mimir.
async fn buildinfo(_: ReadRequest) -> ApiResult<Response> {
    let names = ["revision", "branch", "buildUser", "buildDate", "goVersion"];
    let mut data: serde_json::Map<_, _> =
        names.map(|name| (name.to_owned(), json!(""))).into_iter().collect();
    data.insert("version".into(), json!(PROMETHEUS_VERSION));
    Ok(success(&data.into()))
}

/// Returns the cardinality of metrics and labels within the caller's scope.
async fn status_tsdb(State(deps): State<ReadDeps>, read: ReadRequest) -> ApiResult<Response> {
    const LIMIT_DEFAULT: usize = 10;
    const LIMIT_MAX: usize = 10_000;
    let ReadRequest { query, mut params, .. } = read;
    let limit = params.count("limit", 1, LIMIT_MAX)?.unwrap_or(LIMIT_DEFAULT);
    let work = move |run: &mut QueryRun| {
        let found = run.cardinality(limit)?;
        let lists = [
            (",\"seriesCountByMetricName\":", &found.series_by_metric),
            (",\"labelValueCountByLabelName\":", &found.values_by_label),
            (",\"memoryInBytesByLabelName\":", &found.bytes_by_label),
            (",\"seriesCountByLabelValuePair\":", &found.series_by_pair),
        ];
        let bytes =
            |(_, all): &(&str, &Vec<Tally>)| -> usize { all.iter().map(|one| one.name.len() + 48).sum() };
        run.charge(lists.iter().map(bytes).sum())?;
        // Prometheus reports the ends of its time range for a store without samples.
        let time = |at: Option<Timestamp>, none: i64| at.map_or(none, Timestamp::as_ms);
        let head = json!({
            "numSeries": found.series,
            "numLabelPairs": found.label_pairs,
            // A series has one open chunk in the head; older samples are in segments.
            "chunkCount": found.series,
            "minTime": time(found.oldest, i64::MAX),
            "maxTime": time(found.newest, i64::MIN),
        });
        run.body(&[], BodyFormat::Prometheus, |out| {
            out.raw(br#""data":{"headStats":"#);
            out.raw(head.to_string().as_bytes());
            for (name, all) in lists {
                out.raw(name.as_bytes());
                out.array(all, |one, out| {
                    out.extend_from_slice(br#"{"name":"#);
                    prom_json::text(&one.name, out);
                    out.extend_from_slice(format!(",\"value\":{}}}", one.count).as_bytes());
                })?;
            }
            out.raw(b"}");
            Ok(())
        })
    };
    deps.respond(query, work).await
}

/// Returns the exemplars of every selector in the expression, which may be of any type.
async fn exemplars(State(deps): State<ReadDeps>, read: ReadRequest) -> ApiResult<Response> {
    const EXEMPLARS_MAX: usize = 100_000;
    let ReadRequest { query, mut params, .. } = read;
    let text = params.one(&["query"])?.unwrap_or_default();
    let now = deps.clock.now();
    let range = query.grant().close_range(range(&mut params, now)?, now);
    query.grant().require(Permission::Range(range))?;
    let limit = limit(&mut params)?.unwrap_or(EXEMPLARS_MAX).min(EXEMPLARS_MAX);
    let work = move |run: &mut QueryRun| {
        run.grant.require(Permission::SeriesOfResults)?;
        let expr = run.expression("query", &text).map_err(in_parameter("query"))?;
        run.charge_patterns(&expr.selectors())?;
        let found = run.exemplars(&expr.selectors(), range, limit)?;
        list(run, &found, write_exemplars)
    };
    deps.respond(query, work).await
}

fn write_exemplars(found: &[SeriesExemplars], out: &mut BodyWriter<'_>) -> ApiResult<()> {
    for (index, series) in found.iter().enumerate() {
        out.raw(if index == 0 { b"[" } else { b"," });
        out.write(|out| {
            out.extend_from_slice(br#"{"seriesLabels":"#);
            prom_json::labels(&series.labels, out);
            out.extend_from_slice(br#","exemplars":"#);
        })?;
        out.array(&series.exemplars, |exemplar, out| {
            out.extend_from_slice(br#"{"labels":"#);
            prom_json::labels(&exemplar.labels, out);
            out.extend_from_slice(br#","value":""#);
            prom_json::number(exemplar.value, out);
            out.extend_from_slice(br#"","timestamp":"#);
            prom_json::time(exemplar.at, out);
            out.push(b'}');
        })?;
        out.raw(b"}");
    }
    out.raw(if found.is_empty() { b"[]" } else { b"]" });
    Ok(())
}

/// Returns a successful response with this data.
pub(super) fn success(data: &serde_json::Value) -> Response {
    let body = json!({ "status": "success", "data": data }).to_string().into_bytes();
    QueryBody::whole(body, Coding::Identity).into_response()
}
