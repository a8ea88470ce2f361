//! The native discovery endpoints: metrics, their labels, and label values (docs/specification.md
//! C5).
//!
//! A listing reads the same scoped snapshot as a query, so it shows only what its caller can query.

use axum::extract::State;
use axum::response::Response;

use super::query::body::BodyFormat;
use super::query::request::ReadRequest;
use super::query::run::QueryRun;
use super::query::{ReadDeps, warn_of_unused};
use crate::api::callers::Endpoint;
use crate::api::error::{ApiError, ApiResult, Code};
use crate::api::listing::{cursor, take_cursor};
use crate::api::params::Params;
use crate::api::prom_json;
use crate::api::routes::{Auth, Routes};
use crate::model::{METRIC_NAME, Matcher, TimeRange, Timestamp};
use crate::tsdb::{Metric, MetricFilter};

/// The routes below `/orgs/{slug}`.
pub fn routes() -> Routes<ReadDeps> {
    Routes::new()
        .get(
            "/orgs/{slug}/metrics",
            Auth::QueryCaller(Endpoint::Metrics),
            "List metrics with type, help, unit and series",
            metrics,
        )
        .get(
            "/orgs/{slug}/metrics/{name}/labels",
            Auth::QueryCaller(Endpoint::Labels),
            "List a metric's labels and some of their values",
            metric_labels,
        )
        .get(
            "/orgs/{slug}/labels/{label}/values",
            Auth::QueryCaller(Endpoint::Labels),
            "List a label's values",
            label_values,
        )
}

/// Without `start` and `end`, a metric is listed if it has samples in the head, or sealed samples
/// that are at most this old.
const LISTED_FOR_MS: i64 = 24 * 3_600_000;

const PAGE_MAX: usize = 10_000;
const PAGE_DEFAULT: usize = 1_000;

/// The parameters `match`, `start` and `end`, which all listings have.
#[derive(Clone)]
struct ListingParams {
    selectors: Vec<String>,
    range: TimeRange,
}

impl ListingParams {
    fn take(params: &mut Params, now: Timestamp) -> ApiResult<ListingParams> {
        let selectors = params.many(&["match", "match[]"]);
        let range = range(params, now)?;
        Ok(ListingParams { selectors, range })
    }
}

/// Parses `start` and `end`, both inclusive. A missing bound is open.
///
/// # Errors
/// 400 `invalid_parameter`, also if `end` is before `start`.
pub(super) fn range(params: &mut Params, now: Timestamp) -> ApiResult<TimeRange> {
    let range = range_or_empty(params, now)?;
    if range.end < range.start {
        return Err(ApiError::invalid_parameter("end", "end timestamp must not be before start time"));
    }
    Ok(range)
}

/// Like [`range`], but the range is empty if `end` is before `start`.
///
/// # Errors
/// 400 `invalid_parameter`.
pub(super) fn range_or_empty(params: &mut Params, now: Timestamp) -> ApiResult<TimeRange> {
    let start = params.time("start", now)?.unwrap_or(Timestamp::MIN);
    let end = params.time("end", now)?.unwrap_or(Timestamp::MAX);
    Ok(TimeRange::new(start, end))
}

fn write_cursor(last: Option<&str>, out: &mut Vec<u8>) {
    out.extend_from_slice(br#","next_cursor":"#);
    match last {
        Some(last) => prom_json::text(&cursor(last), out),
        None => out.extend_from_slice(b"null"),
    }
}

async fn metrics(State(deps): State<ReadDeps>, read: ReadRequest) -> ApiResult<Response> {
    let ReadRequest { query, mut params, .. } = read;
    let now = deps.clock.now();
    let listing = ListingParams::take(&mut params, now)?;
    let is_default = listing.range.start == Timestamp::MIN && listing.range.end == Timestamp::MAX;
    let sealed_from = is_default.then(|| now.plus_ms(-LISTED_FOR_MS));
    let search = params.one(&["search"])?.unwrap_or_default();
    let prefix = params.one(&["prefix"])?.unwrap_or_default();
    let limit = params.count("limit", 1, PAGE_MAX)?.unwrap_or(PAGE_DEFAULT);
    let after = take_cursor(&mut params)?;
    let names_only = match params.one(&["format"])?.as_deref() {
        None | Some("full") => false,
        Some("names") => true,
        Some(_) => return Err(ApiError::invalid_parameter("format", "full or names is expected")),
    };
    let unknown = params.unknown();
    let query = query.inline_over(listing.range);
    let work = move |run: &mut QueryRun| {
        warn_of_unused(run, unknown);
        let selectors = run.selectors("match", &listing.selectors)?;
        let filter = MetricFilter {
            search: &search,
            prefix: &prefix,
            selectors: &selectors,
            after: after.as_deref(),
            sealed_from,
        };
        let found = run.metrics(&filter, listing.range, (limit, names_only))?;
        let names = || found.items.iter().map(|metric| &*metric.name);
        let queried = if names_only { None } else { run.last_queried(names()) };
        let since = queried.as_ref().map(|(since, _)| *since);
        let queried = queried.map_or(Vec::new(), |(_, queried)| queried);
        run.body(&[], BodyFormat::Native, |out| {
            out.raw(br#""data":"#);
            if names_only {
                out.texts(names())?;
            } else {
                let queried = queried.iter().map(Some).chain(std::iter::repeat(None));
                out.array(found.items.iter().zip(queried), |(metric, queried), out| {
                    write_metric(metric, queried, out);
                })?;
            }
            let last = found.items.last().filter(|_| found.truncated).map(|metric| &*metric.name);
            out.write(|out| {
                write_cursor(last, out);
                if let Some(since) = since {
                    out.extend_from_slice(br#","queried_since":"#);
                    prom_json::time(since, out);
                }
            })
        })
    };
    deps.respond(query, work).await
}

/// Writes a metric. `queried` is the time of its last query, for callers that may know it.
fn write_metric(metric: &Metric, queried: Option<&Option<Timestamp>>, out: &mut Vec<u8>) {
    let members = [
        (&br#"{"name":"#[..], &*metric.name),
        (br#","type":"#, metric.kind.as_str()),
        (br#","help":"#, &metric.help),
        (br#","unit":"#, &metric.unit),
    ];
    for (name, value) in members {
        out.extend_from_slice(name);
        prom_json::text(value, out);
    }
    out.extend_from_slice(br#","series":"#);
    out.extend_from_slice(metric.series.to_string().as_bytes());
    out.extend_from_slice(br#","last_seen":"#);
    prom_json::time(metric.last_seen, out);
    if let Some(queried) = queried {
        out.extend_from_slice(br#","last_queried":"#);
        match queried {
            Some(at) => prom_json::time(*at, out),
            None => out.extend_from_slice(b"null"),
        }
    }
    out.push(b'}');
}

async fn metric_labels(State(deps): State<ReadDeps>, read: ReadRequest) -> ApiResult<Response> {
    const SAMPLES_MAX: usize = 1_000;
    const SAMPLES_DEFAULT: usize = 20;
    let ReadRequest { query, mut params, name } = read;
    let listing = ListingParams::take(&mut params, deps.clock.now())?;
    let samples = params.count("values", 0, SAMPLES_MAX)?.unwrap_or(SAMPLES_DEFAULT);
    let unknown = params.unknown();
    let query = query.inline_over(listing.range);
    let work = move |run: &mut QueryRun| {
        warn_of_unused(run, unknown);
        let mut selectors = run.selectors("match", &listing.selectors)?;
        if selectors.is_empty() {
            selectors.push(Vec::new());
        }
        for matchers in &mut selectors {
            matchers.push(Matcher::equal(METRIC_NAME, &name));
        }
        let labels = run.label_summaries(&selectors, listing.range, samples)?;
        if labels.is_empty() {
            let named = vec![Matcher::equal(METRIC_NAME, &name)];
            if !run.exists(&[named], TimeRange::ALL)? {
                return Err(ApiError::new(Code::MetricNotFound, "there is no such metric"));
            }
        }
        run.body(&[], BodyFormat::Native, |out| {
            out.raw(br#""data":["#);
            for (index, label) in labels.iter().enumerate() {
                out.write(|out| {
                    out.extend_from_slice(if index == 0 { br#"{"name":"# } else { br#",{"name":"# });
                    prom_json::text(&label.name, out);
                    out.extend_from_slice(br#","values_count":"#);
                    out.extend_from_slice(label.count.to_string().as_bytes());
                })?;
                if samples > 0 {
                    out.raw(br#","values":"#);
                    out.texts(label.values.iter().map(|value| &**value))?;
                }
                out.raw(b"}");
            }
            out.raw(b"]");
            Ok(())
        })
    };
    deps.respond(query, work).await
}

async fn label_values(State(deps): State<ReadDeps>, read: ReadRequest) -> ApiResult<Response> {
    let ReadRequest { query, mut params, name: label } = read;
    let listing = ListingParams::take(&mut params, deps.clock.now())?;
    let search = params.one(&["search"])?.unwrap_or_default();
    let limit = params.count("limit", 1, PAGE_MAX)?.unwrap_or(PAGE_DEFAULT);
    let after = take_cursor(&mut params)?;
    let unknown = params.unknown();
    let query = query.inline_over(listing.range);
    let work = move |run: &mut QueryRun| {
        warn_of_unused(run, unknown);
        let selectors = run.selectors("match", &listing.selectors)?;
        let all = run.label_values(&label, &selectors, listing.range, usize::MAX)?.items;
        let exists = |run: &mut QueryRun| run.label_values(&label, &[], TimeRange::ALL, 1);
        if all.is_empty() && exists(run)?.items.is_empty() {
            return Err(ApiError::new(Code::LabelNotFound, "there is no such label"));
        }
        let matches = |value: &&str| {
            value.contains(search.as_str()) && after.as_deref().is_none_or(|after| *value > after)
        };
        let mut page: Vec<&str> = run.pacing(|pace| {
            let mut page = Vec::new();
            for value in &all {
                pace.spend(value.len() as u64 + 8)?;
                if matches(&&**value) {
                    page.push(&**value);
                }
                // One value beyond the limit shows that there are more.
                if page.len() > limit {
                    break;
                }
            }
            Ok(page)
        })?;
        let truncated = page.len() > limit;
        page.truncate(limit);
        run.body(&[], BodyFormat::Native, |out| {
            out.raw(br#""data":"#);
            out.texts(page.iter().copied())?;
            out.write(|out| write_cursor(page.last().copied().filter(|_| truncated), out))
        })
    };
    deps.respond(query, work).await
}
