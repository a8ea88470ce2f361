//! Prometheus' own API, one mount for each organisation, in its exact bodies (docs/specification.md C6; prometheus/web/api/v1).
//!
//! URL and form are one list of parameters whatever content type was claimed; unknown ones are ignored.

use std::sync::Arc;

use axum::extract::{FromRequest, Request, State};
use axum::handler::Handler;
use axum::response::Response;
use serde_json::json;

use super::metrics::range;
use super::query::answer::Answer;
use super::query::inline::QueryFingerprint;
use super::query::run::{
    BodyFormat, EvalOptions, QueryRequest, QueryRun, TRUNCATED, Text, admit_range, admit_steps, timeout,
};
use super::query::{ReadDeps, flag};
use crate::api::body;
use crate::api::callers::{Endpoint, PrometheusCaller};
use crate::api::encoding::Coding;
use crate::api::error::{ApiError, ApiResult, Code};
use crate::api::params::{Params, PathOf, unescape_name};
use crate::api::prom_json;
use crate::api::router::ResponseFuture;
use crate::api::routes::{Auth, Routes};
use crate::model::{Matcher, Steps, StepsError, TimeRange, Timestamp};
use crate::promql::Query;
use crate::tsdb::{SeriesExemplars, Tally};

/// The routes below `/orgs/{slug}`.
pub fn routes() -> Routes<ReadDeps> {
    let routes = Routes::new()
        .get("/orgs/{slug}/prometheus", Auth::PrometheusCaller(None), "Check connection and credential", root)
        .get("/orgs/{slug}/prometheus/-/healthy", Auth::Public, "Check that the server answers", healthy)
        .get("/orgs/{slug}/prometheus/-/ready", Auth::Public, "Check that the server is ready", ready);
    let routes = both(
        routes,
        "/orgs/{slug}/prometheus/api/v1/query",
        Some(Endpoint::Expr),
        "Prometheus: instant query",
        query,
    );
    let routes = both(
        routes,
        "/orgs/{slug}/prometheus/api/v1/query_range",
        Some(Endpoint::Expr),
        "Prometheus: range query",
        query_range,
    );
    let routes = both(
        routes,
        "/orgs/{slug}/prometheus/api/v1/series",
        Some(Endpoint::Metrics),
        "Prometheus: find series",
        series,
    );
    let routes = both(
        routes,
        "/orgs/{slug}/prometheus/api/v1/labels",
        Some(Endpoint::Labels),
        "Prometheus: list label names",
        labels,
    );
    let routes = both(
        routes,
        "/orgs/{slug}/prometheus/api/v1/label/{label}/values",
        Some(Endpoint::Labels),
        "Prometheus: list a label's values",
        label_values,
    );
    let routes = both(
        routes,
        "/orgs/{slug}/prometheus/api/v1/metadata",
        Some(Endpoint::Metrics),
        "Prometheus: type, help and unit of metrics",
        metadata,
    );
    let routes = both(
        routes,
        "/orgs/{slug}/prometheus/api/v1/format_query",
        Some(Endpoint::Expr),
        "Prometheus: format an expression",
        format_query,
    );
    let routes = both(
        routes,
        "/orgs/{slug}/prometheus/api/v1/status/buildinfo",
        None,
        "Prometheus: version",
        buildinfo,
    );
    let routes = both(
        routes,
        "/orgs/{slug}/prometheus/api/v1/status/tsdb",
        Some(Endpoint::Labels),
        "Prometheus: the metrics, labels and values that make the most series",
        status_tsdb,
    );
    let routes = both(
        routes,
        "/orgs/{slug}/prometheus/api/v1/query_exemplars",
        Some(Endpoint::Expr),
        "Prometheus: exemplars of the series that an expression selects",
        exemplars,
    );
    let routes = both(
        routes,
        "/orgs/{slug}/prometheus/api/v1/rules",
        None,
        "Prometheus: rules, of which there are none",
        rules,
    );
    both(
        routes,
        "/orgs/{slug}/prometheus/api/v1/alerts",
        None,
        "Prometheus: alerts, of which there are none",
        alerts,
    )
}

/// `GET` and the form `POST` of one path.
fn both<H: Handler<T, ReadDeps, Future = ResponseFuture> + Sync, T: 'static>(
    routes: Routes<ReadDeps>,
    path: &'static str,
    endpoint: Option<Endpoint>,
    summary: &'static str,
    handler: H,
) -> Routes<ReadDeps> {
    let auth = Auth::PrometheusCaller(endpoint);
    routes.get(path, auth, summary, handler.clone()).post(path, auth, summary, handler)
}

/// URL and form parameters, merged.
pub(super) struct Given(pub(super) Params);

impl<S: Send + Sync> FromRequest<S> for Given {
    type Rejection = ApiError;

    async fn from_request(request: Request, _: &S) -> ApiResult<Given> {
        /// docs/specification.md B: query forms.
        const FORM_BYTES_MAX: usize = 256 * 1_024;
        let (parts, body) = request.into_parts();
        let form = body::read(body, FORM_BYTES_MAX).await?;
        Params::merged(parts.uri.query(), &form).map(Given)
    }
}

type HandlerArgs = (State<ReadDeps>, PrometheusCaller, PathOf<String>, Given);

/// For what every reader of the organisation may know, whatever a token grants.
fn enter_any(reader: &PrometheusCaller, slug: &str) -> ApiResult<()> {
    match reader.enter(slug, Endpoint::Metrics) {
        Err(refused) if refused.code() != Code::EmbedRestricted => Err(refused),
        _ => Ok(()),
    }
}

async fn root(reader: PrometheusCaller, PathOf(slug): PathOf<String>) -> ApiResult<&'static str> {
    enter_any(&reader, &slug)?;
    Ok("This is the Prometheus API of one organisation. Give clients this URL without anything after it.\n")
}

async fn healthy() -> &'static str {
    "promlet is healthy.\n"
}

/// While the server starts no route is reached: the answer then is 503 `starting`.
async fn ready() -> &'static str {
    "promlet is ready.\n"
}

/// Puts the parameter's name in front, as upstream does.
pub(super) fn in_parameter(name: &'static str) -> impl Fn(ApiError) -> ApiError {
    move |error| match error.code() {
        Code::BadExpr => {
            ApiError::new(Code::BadExpr, format!("invalid parameter {name:?}: {}", error.detail()))
        }
        _ => error,
    }
}

/// A parameter without a default: what is missing is told as a text that does not parse, as upstream does.
fn required<T>(found: Option<T>, name: &'static str, kind: &str) -> ApiResult<T> {
    found.ok_or_else(|| ApiError::invalid_parameter(name, format!("cannot parse \"\" to a valid {kind}")))
}

/// `limit`: not given and zero are none.
fn limit(params: &mut Params) -> ApiResult<Option<usize>> {
    Ok(params.number::<usize>("limit", "a non-negative whole number")?.filter(|limit| *limit > 0))
}

async fn query((State(deps), reader, PathOf(slug), Given(mut params)): HandlerArgs) -> ApiResult<Response> {
    let entered = reader.enter(&slug, Endpoint::Expr)?;
    let fingerprint = deps.inline.fingerprint(("query", ""), &params);
    let now = deps.clock.now();
    let at = params.time("time", now)?.unwrap_or(now);
    let query = QueryParams::parse(&mut params, Steps::once(at), true)?;
    let request = QueryRequest::from(entered).within(timeout(&mut params)?);
    query.respond(&deps, request, fingerprint).await
}

async fn query_range(
    (State(deps), reader, PathOf(slug), Given(mut params)): HandlerArgs,
) -> ApiResult<Response> {
    let entered = reader.enter(&slug, Endpoint::Expr)?;
    let fingerprint = deps.inline.fingerprint(("query_range", ""), &params);
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
    admit_steps(&entered.grant, &steps)?;
    let query = QueryParams::parse(&mut params, steps, false)?;
    let request = QueryRequest::from(entered).within(timeout(&mut params)?);
    query.respond(&deps, request, fingerprint).await
}

#[derive(Clone)]
struct QueryParams {
    text: String,
    steps: Steps,
    instant: bool,
    limit: Option<usize>,
    eval: EvalOptions,
}

impl QueryParams {
    fn parse(params: &mut Params, steps: Steps, instant: bool) -> ApiResult<QueryParams> {
        let lookback_ms = params.duration_ms("lookback_delta")?;
        if lookback_ms.is_some_and(|ms| ms <= 0) {
            return Err(ApiError::invalid_parameter("lookback_delta", "a lookback must be positive"));
        }
        let text = params.one(&["query"])?.unwrap_or_default();
        let eval = EvalOptions { lookback_ms, nocache: flag(params, "nocache")? };
        Ok(QueryParams { text, steps, instant, limit: limit(params)?, eval })
    }

    async fn respond(
        self,
        deps: &ReadDeps,
        request: QueryRequest,
        fingerprint: QueryFingerprint,
    ) -> ApiResult<Response> {
        let range = TimeRange::new(self.steps.start(), self.steps.end());
        let request = request.listed(self.text.clone()).with_fingerprint(fingerprint, range);
        deps.answer_large(request, move |run| self.execute(run)).await
    }

    /// Runs on the query lane.
    fn execute(self, run: &mut QueryRun) -> ApiResult<Answer> {
        let expr = run.expression("query", &self.text).map_err(in_parameter("query"))?;
        let query = Query { expr, text: self.text, steps: self.steps, instant: self.instant };
        let answer = run.evaluate(&query, self.eval).map_err(in_parameter("query"))?;
        let infos = run.annotate(answer.annotations);
        let mut value = answer.value;
        run.truncate(&mut value, self.limit);
        run.result(value, &infos, BodyFormat::Prometheus, |_| {})
    }
}

/// `match[]`, `start`, `end`, `limit` of a listing.
#[derive(Clone)]
struct Filter {
    selectors: Vec<String>,
    range: TimeRange,
    limit: usize,
}

impl Filter {
    fn take(params: &mut Params, now: Timestamp) -> ApiResult<Filter> {
        let selectors = params.many(&["match[]"]);
        Ok(Filter { selectors, range: range(params, now)?, limit: limit(params)?.unwrap_or(usize::MAX) })
    }

    fn compile(&self, run: &QueryRun) -> ApiResult<Vec<Vec<Matcher>>> {
        run.selectors("match[]", &self.selectors).map_err(in_parameter("match[]"))
    }
}

/// `"data":[...]`, and a warning where the limit cut it off.
fn list<T>(
    run: &mut QueryRun,
    found: &crate::tsdb::Listing<T>,
    write: impl FnOnce(&[T], &mut Text<'_>) -> ApiResult<()>,
) -> ApiResult<Vec<u8>> {
    if found.truncated {
        run.warn(TRUNCATED);
    }
    run.body(&[], BodyFormat::Prometheus, |out| {
        out.raw(br#""data":"#);
        write(&found.items, out)
    })
}

fn texts(all: &[Arc<str>], out: &mut Text<'_>) -> ApiResult<()> {
    out.texts(all.iter().map(|text| &**text))
}

async fn series((State(deps), reader, PathOf(slug), Given(mut params)): HandlerArgs) -> ApiResult<Response> {
    let entered = reader.enter(&slug, Endpoint::Metrics)?;
    let fingerprint = deps.inline.fingerprint(("series", ""), &params);
    let filter = Filter::take(&mut params, deps.clock.now())?;
    if filter.selectors.is_empty() {
        return Err(ApiError::new(Code::InvalidParameter, "no match[] parameter provided"));
    }
    let request = QueryRequest::from(entered).with_fingerprint(fingerprint, filter.range);
    let work = move |run: &mut QueryRun| {
        let selectors = filter.compile(run)?;
        let found = run.paced(|paced| paced.series(&selectors, filter.range, filter.limit))?;
        list(run, &found, |sets, out| out.label_sets(sets))
    };
    deps.answer(request, work).await
}

async fn labels((State(deps), reader, PathOf(slug), Given(mut params)): HandlerArgs) -> ApiResult<Response> {
    let entered = reader.enter(&slug, Endpoint::Labels)?;
    let fingerprint = deps.inline.fingerprint(("labels", ""), &params);
    let filter = Filter::take(&mut params, deps.clock.now())?;
    let request = QueryRequest::from(entered).with_fingerprint(fingerprint, filter.range);
    let work = move |run: &mut QueryRun| {
        let selectors = filter.compile(run)?;
        let found = run.paced(|paced| paced.label_names(&selectors, filter.range, filter.limit))?;
        list(run, &found, texts)
    };
    deps.answer(request, work).await
}

type AskedOfLabel = (State<ReadDeps>, PrometheusCaller, PathOf<(String, String)>, Given);

async fn label_values(
    (State(deps), reader, PathOf((slug, label)), Given(mut params)): AskedOfLabel,
) -> ApiResult<Response> {
    let entered = reader.enter(&slug, Endpoint::Labels)?;
    let fingerprint = deps.inline.fingerprint(("values", &label), &params);
    let filter = Filter::take(&mut params, deps.clock.now())?;
    let request = QueryRequest::from(entered).with_fingerprint(fingerprint, filter.range);
    let work = move |run: &mut QueryRun| {
        let name = unescape_name(&label);
        let selectors = filter.compile(run)?;
        let found = run.paced(|paced| paced.label_values(&name, &selectors, filter.range, filter.limit))?;
        list(run, &found, texts)
    };
    deps.answer(request, work).await
}

async fn metadata(
    (State(deps), reader, PathOf(slug), Given(mut params)): HandlerArgs,
) -> ApiResult<Response> {
    let entered = reader.enter(&slug, Endpoint::Metrics)?;
    let metric = params.one(&["metric"])?;
    let limit = limit(&mut params)?.unwrap_or(usize::MAX);
    let work = move |run: &mut QueryRun| {
        let found = run.paced(|paced| paced.metadata(metric.as_deref(), limit))?;
        run.body(&[], BodyFormat::Prometheus, |out| {
            out.raw(br#""data":{"#);
            for (place, metric) in found.items.iter().enumerate() {
                out.write(|out| {
                    if place > 0 {
                        out.push(b',');
                    }
                    prom_json::text(&metric.name, out);
                    out.extend_from_slice(br#":[{"type":"#);
                    prom_json::text(metric.kind.as_str(), out);
                    out.extend_from_slice(br#","help":"#);
                    prom_json::text(&metric.help, out);
                    out.extend_from_slice(br#","unit":"#);
                    prom_json::text(&metric.unit, out);
                    out.extend_from_slice(b"}]");
                })?;
            }
            out.raw(b"}");
            Ok(())
        })
    };
    deps.answer(entered, work).await
}

async fn format_query(
    (State(deps), reader, PathOf(slug), Given(mut params)): HandlerArgs,
) -> ApiResult<Response> {
    let entered = reader.enter(&slug, Endpoint::Expr)?;
    let text = params.one(&["query"])?.unwrap_or_default();
    let work = move |run: &mut QueryRun| {
        let expr = run.expression("query", &text).map_err(in_parameter("query"))?;
        run.body(&[], BodyFormat::Prometheus, |out| {
            out.raw(br#""data":"#);
            out.write(|out| prom_json::text(&expr.to_string(), out))
        })
    };
    deps.answer(entered, work).await
}

/// Clients choose what to send by this: the version whose bodies these are. There is no `features` member, because
/// Grafana takes a server that has one for Mimir.
async fn buildinfo((_, reader, PathOf(slug), _): HandlerArgs) -> ApiResult<Response> {
    enter_any(&reader, &slug)?;
    let names = ["revision", "branch", "buildUser", "buildDate", "goVersion"];
    let mut data: serde_json::Map<_, _> =
        names.map(|name| (name.to_owned(), json!(""))).into_iter().collect();
    data.insert("version".into(), json!("3.5.0"));
    Ok(success(&data.into()))
}

/// Computed within the scope: a token learns nothing of what it may not ask for.
async fn status_tsdb(
    (State(deps), reader, PathOf(slug), Given(mut params)): HandlerArgs,
) -> ApiResult<Response> {
    const LIMIT_DEFAULT: usize = 10;
    const LIMIT_MAX: usize = 10_000;
    let entered = reader.enter(&slug, Endpoint::Labels)?;
    let limit = params.count("limit", 1, LIMIT_MAX)?.unwrap_or(LIMIT_DEFAULT);
    let work = move |run: &mut QueryRun| {
        let found = run.paced(|paced| paced.cardinality(limit))?;
        let lists = [
            (",\"seriesCountByMetricName\":", &found.series_by_metric),
            (",\"labelValueCountByLabelName\":", &found.values_by_label),
            (",\"memoryInBytesByLabelName\":", &found.bytes_by_label),
            (",\"seriesCountByLabelValuePair\":", &found.series_by_pair),
        ];
        let bytes =
            |(_, all): &(&str, &Vec<Tally>)| -> usize { all.iter().map(|one| one.name.len() + 48).sum() };
        run.keep(lists.iter().map(bytes).sum())?;
        // Upstream's words for a store without a sample are the ends of its time; a number is never missing.
        let time = |at: Option<Timestamp>, none: i64| at.map_or(none, Timestamp::as_ms);
        let head = json!({
            "numSeries": found.series,
            "numLabelPairs": found.label_pairs,
            // A series that is written has one open chunk; older ones are in segments.
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
    deps.answer(entered, work).await
}

/// Of every selector in the expression; what the expression makes of the series does not matter.
async fn exemplars(
    (State(deps), reader, PathOf(slug), Given(mut params)): HandlerArgs,
) -> ApiResult<Response> {
    const EXEMPLARS_MAX: usize = 100_000;
    let entered = reader.enter(&slug, Endpoint::Expr)?;
    let text = params.one(&["query"])?.unwrap_or_default();
    let now = deps.clock.now();
    let range = admit_range(&entered.grant, range(&mut params, now)?, now)?;
    let limit = limit(&mut params)?.unwrap_or(EXEMPLARS_MAX).min(EXEMPLARS_MAX);
    let work = move |run: &mut QueryRun| {
        run.admit_insight()?;
        let expr = run.expression("query", &text).map_err(in_parameter("query"))?;
        run.keep_patterns(&expr.selectors())?;
        let found = run.paced(|paced| paced.exemplars(&expr.selectors(), range, limit))?;
        list(run, &found, write_exemplars)
    };
    deps.answer(entered, work).await
}

fn write_exemplars(found: &[SeriesExemplars], out: &mut Text<'_>) -> ApiResult<()> {
    for (place, series) in found.iter().enumerate() {
        out.raw(if place == 0 { b"[" } else { b"," });
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

async fn rules((_, reader, PathOf(slug), _): HandlerArgs) -> ApiResult<Response> {
    enter_any(&reader, &slug)?;
    Ok(success(&json!({ "groups": [] })))
}

async fn alerts((_, reader, PathOf(slug), _): HandlerArgs) -> ApiResult<Response> {
    enter_any(&reader, &slug)?;
    Ok(success(&json!({ "alerts": [] })))
}

fn success(data: &serde_json::Value) -> Response {
    let body = json!({ "status": "success", "data": data }).to_string().into_bytes();
    Answer::whole(body, Coding::Identity).into_response()
}
