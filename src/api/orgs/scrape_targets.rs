//! The scraped targets in the Prometheus HTTP API, with the same response bodies (Prometheus,
//! web/api/v1): `targets`, `targets/metadata`, `targets/relabel_steps`, `scrape_pools`, and the
//! configuration that they come from: `status/config`.
//!
//! Only callers with unrestricted access see targets, and embed tokens see none, because the labels
//! of a target are not samples, which a restriction could select.

use std::collections::BTreeMap;
use std::sync::Arc;

use axum::extract::{FromRequest, FromRequestParts as _, Request, State};
use axum::response::Response;
use serde_json::{Map, Value, json};

use super::prometheus::success;
use super::query::request::MergedParams;
use crate::api::callers::PrometheusCaller;
use crate::api::error::{ApiError, ApiResult, Code};
use crate::api::lanes::{Lane, Lanes};
use crate::api::params::{Params, PathOf};
use crate::api::routes::{Auth, Routes};
use crate::api::views::labels::labels_json;
use crate::model::{Labels, Matcher, OrgId, Timestamp, format_duration};
use crate::promql::syntax::{self, Caps};
use crate::relabel::RelabelRule;
use crate::scrape::run::ScrapeTargetReport;
use crate::scrape::target::{discovered_labels, relabel_steps};
use crate::scrape::{ScrapeSource, ScrapeView, Scrapers};

/// The most bytes of the parameter `labels`, inclusive.
const LABELS_BYTES_MAX: usize = 64 << 10;

/// The dependencies of these routes.
#[derive(Clone, Debug)]
pub struct ScrapeViewDeps {
    /// The scraped targets.
    pub scrapers: Arc<Scrapers>,
    /// The threads that make responses.
    pub lanes: Lanes,
}

impl ScrapeViewDeps {
    /// Makes a response of the targets that the caller sees. It runs on the query lane, because an
    /// organisation may have 100,000 targets.
    async fn respond(
        &self,
        org: Option<OrgId>,
        data: impl FnOnce(ScrapeView) -> ApiResult<Value> + Send + 'static,
    ) -> ApiResult<Response> {
        let Some(org) = org else { return Ok(success(&data(ScrapeView::default())?)) };
        let scrapers = Arc::clone(&self.scrapers);
        let work = move || Ok(success(&data(scrapers.view(org))?));
        self.lanes.run(Lane::Query(org), work).await?
    }
}

/// The routes below `/orgs/{slug}`.
pub fn routes() -> Routes<ScrapeViewDeps> {
    let auth = Auth::PrometheusCaller(None);
    let path = "/orgs/{slug}/prometheus/api/v1/status/config";
    let summary = "Prometheus: get the scrape configuration, without its secrets";
    Routes::new()
        .get(path, auth, summary, config)
        .post(path, auth, summary, config)
        .get("/orgs/{slug}/prometheus/api/v1/targets", auth, "Prometheus: list scraped targets", targets)
        .get(
            "/orgs/{slug}/prometheus/api/v1/targets/metadata",
            auth,
            "Prometheus: list type, help text and unit of the metrics of targets",
            metadata,
        )
        .get(
            "/orgs/{slug}/prometheus/api/v1/targets/relabel_steps",
            auth,
            "Prometheus: show the labels of a target after each relabelling rule",
            steps,
        )
        .get("/orgs/{slug}/prometheus/api/v1/scrape_pools", auth, "Prometheus: list jobs", pools)
}

/// A request of a caller that has entered the organisation.
struct TargetsRequest {
    /// The organisation; `None` if the caller sees no targets.
    org: Option<OrgId>,
    params: Params,
}

impl FromRequest<ScrapeViewDeps> for TargetsRequest {
    type Rejection = ApiError;

    async fn from_request(request: Request, deps: &ScrapeViewDeps) -> ApiResult<TargetsRequest> {
        let (mut parts, body) = request.into_parts();
        let caller = PrometheusCaller::from_request_parts(&mut parts, &()).await?;
        let PathOf(slug) = PathOf::<String>::from_request_parts(&mut parts, &()).await?;
        let caller = caller.enter_any(&slug)?;
        let sees_targets = caller.access.scope.is_whole() && !caller.grant.is_token();
        let org = sees_targets.then_some(caller.access.org);
        let MergedParams(params) = MergedParams::from_request(Request::from_parts(parts, body), deps).await?;
        Ok(TargetsRequest { org, params })
    }
}

/// Returns a time as Prometheus writes it: Go's zero time if there is none.
fn time_text(at: Option<Timestamp>) -> String {
    at.map_or_else(|| "0001-01-01T00:00:00Z".to_owned(), Timestamp::to_rfc3339)
}

/// Returns a rule with the members that Prometheus writes: those that are empty are absent.
fn rule_json(rule: &RelabelRule) -> Value {
    let mut out = json!({ "regex": rule.regex, "replacement": rule.replacement, "action": rule.action });
    let mut put = |name: &str, value: Value, is_empty: bool| {
        if !is_empty {
            out[name] = value;
        }
    };
    put("source_labels", json!(rule.source_labels), rule.source_labels.is_empty());
    put("separator", json!(rule.separator), rule.separator.is_empty());
    put("modulus", json!(rule.modulus), rule.modulus == 0);
    put("target_label", json!(rule.target_label), rule.target_label.is_empty());
    out
}

fn target_json(report: &ScrapeTargetReport) -> Value {
    let ScrapeTargetReport { target, status } = report;
    json!({
        "discoveredLabels": labels_json(&target.discovered),
        "labels": labels_json(&target.labels),
        "scrapePool": &*target.job.name,
        "scrapeUrl": target.url,
        "globalUrl": target.url,
        "lastError": status.shown_error(),
        "lastScrape": time_text(status.last_scrape),
        "lastScrapeDuration": status.last_duration_s,
        "health": status.health.as_str(),
        "scrapeInterval": format_duration(target.interval_ms),
        "scrapeTimeout": format_duration(target.timeout_ms),
    })
}

async fn targets(State(deps): State<ScrapeViewDeps>, request: TargetsRequest) -> ApiResult<Response> {
    let TargetsRequest { org, params } = request;
    deps.respond(org, targets_of(params)?).await
}

/// Lists the targets of an agent; none if it does not scrape.
///
/// # Errors
/// [`ApiError`] for a parameter that is given twice or a full lane.
pub(in crate::api) async fn targets_as(
    view: Option<(ScrapeViewDeps, OrgId)>,
    query: Option<&str>,
) -> ApiResult<Response> {
    let data = targets_of(Params::of_query(query)?)?;
    match view {
        Some((deps, org)) => deps.respond(Some(org), data).await,
        None => Ok(success(&data(ScrapeView::default())?)),
    }
}

/// Returns a function that lists the targets which the parameters select.
fn targets_of(mut params: Params) -> ApiResult<impl FnOnce(ScrapeView) -> ApiResult<Value> + Send + 'static> {
    let state = params.one(&["state"])?.unwrap_or_default().to_lowercase();
    let pool = params.one(&["scrapePool"])?.unwrap_or_default();
    Ok(move |view: ScrapeView| Ok(targets_json(&view, &state, &pool)))
}

/// Returns the targets in a state and of a job; an empty text selects all.
fn targets_json(view: &ScrapeView, state: &str, pool: &str) -> Value {
    let (has_active, has_dropped) = match state {
        "active" => (true, false),
        "dropped" => (false, true),
        _ => (true, true),
    };
    let is_asked = |name: &str| pool.is_empty() || name == pool;
    let mut data = Map::new();
    let active = view.reports.iter().filter(|report| has_active && is_asked(&report.target.job.name));
    data.insert("activeTargets".to_owned(), active.map(target_json).collect());
    let mut dropped = Vec::new();
    let mut counts = Map::new();
    for pool in view.pools.iter().filter(|_| has_dropped) {
        let name = &*pool.targets.job.name;
        if is_asked(name) {
            let rows = pool.targets.dropped.iter();
            dropped.extend(
                rows.map(|labels| json!({ "discoveredLabels": labels_json(labels), "scrapePool": name })),
            );
        }
        counts.insert(name.to_owned(), json!(pool.targets.dropped_count));
    }
    data.insert("droppedTargets".to_owned(), dropped.into());
    let counts = if has_dropped { Value::Object(counts) } else { Value::Null };
    data.insert("droppedTargetCounts".to_owned(), counts);
    data.into()
}

async fn pools(State(deps): State<ScrapeViewDeps>, request: TargetsRequest) -> ApiResult<Response> {
    let names = |view: ScrapeView| {
        let mut names: Vec<&str> = view.pools.iter().map(|pool| &*pool.targets.job.name).collect();
        names.sort_unstable();
        Ok(json!({ "scrapePools": names }))
    };
    deps.respond(request.org, names).await
}

async fn config(State(deps): State<ScrapeViewDeps>, request: TargetsRequest) -> ApiResult<Response> {
    let Some(org) = request.org else { return Ok(success(&json!({ "yaml": "" }))) };
    let scrapers = Arc::clone(&deps.scrapers);
    let work = move || Ok(success(&json!({ "yaml": config_yaml(&scrapers, org) })));
    deps.lanes.run(Lane::Query(org), work).await?
}

/// Returns the configurations of an organisation without secrets. The organisation of the file of
/// `--scrape-config` may have one of its own as well: a second document.
fn config_yaml(scrapers: &Scrapers, org: OrgId) -> String {
    let sources = [ScrapeSource::File, ScrapeSource::Api];
    let found: Vec<_> = sources.iter().filter_map(|source| scrapers.config(org, *source)).collect();
    let texts: Vec<&str> = found.iter().map(|config| &*config.shown).collect();
    texts.join("---\n")
}

/// Parses the selector `match_target`. Label matchers only.
fn target_matchers(text: &str) -> ApiResult<Vec<Matcher>> {
    if text.is_empty() {
        return Ok(Vec::new());
    }
    syntax::parse_selector(text, &Caps::default()).map_err(|error| {
        ApiError::new(Code::InvalidParameter, format!("invalid parameter \"match_target\": {error}"))
    })
}

async fn metadata(State(deps): State<ScrapeViewDeps>, request: TargetsRequest) -> ApiResult<Response> {
    let TargetsRequest { org, mut params } = request;
    let matchers = target_matchers(&params.one(&["match_target"])?.unwrap_or_default())?;
    let metric = params.one(&["metric"])?.unwrap_or_default();
    let limit = params.number::<usize>("limit", "a non-negative whole number")?.filter(|limit| *limit > 0);
    let limit = limit.unwrap_or(usize::MAX);
    deps.respond(org, move |view| Ok(metadata_json(&view, &matchers, &metric, limit))).await
}

/// Returns up to `limit` rows of metadata of the targets that the matchers select; an empty
/// `metric` selects all.
fn metadata_json(view: &ScrapeView, matchers: &[Matcher], metric: &str, limit: usize) -> Value {
    let mut rows = Vec::new();
    let fits = |labels: &Labels| matchers.iter().all(|matcher| matcher.matches(labels.value(matcher.name())));
    for report in view.reports.iter().filter(|report| fits(&report.target.labels)) {
        let entries = report.status.metadata.entries().iter();
        for entry in entries.filter(|entry| metric.is_empty() || *entry.metric == *metric) {
            if rows.len() >= limit {
                break;
            }
            let mut row = json!({
                "target": labels_json(&report.target.labels),
                "type": entry.kind.as_str(),
                "help": &*entry.help,
                "unit": &*entry.unit,
            });
            if metric.is_empty() {
                row["metric"] = json!(&*entry.metric);
            }
            rows.push(row);
        }
    }
    rows.into()
}

async fn steps(State(deps): State<ScrapeViewDeps>, request: TargetsRequest) -> ApiResult<Response> {
    let TargetsRequest { org, mut params } = request;
    let pool = params.one(&["scrapePool"])?.unwrap_or_default();
    let labels = params.one(&["labels"])?.unwrap_or_default();
    if pool.is_empty() || labels.is_empty() {
        let name = if pool.is_empty() { "scrapePool" } else { "labels" };
        return Err(ApiError::new(Code::InvalidParameter, format!("no {name} parameter provided")));
    }
    if labels.len() > LABELS_BYTES_MAX {
        return Err(ApiError::invalid_parameter("labels", format!("at most {LABELS_BYTES_MAX} bytes")));
    }
    let labels: BTreeMap<String, String> = serde_json::from_str(&labels)
        .map_err(|error| ApiError::invalid_parameter("labels", error.to_string()))?;
    deps.respond(org, move |view| steps_json(&view, &pool, labels)).await
}

/// Returns the labels of a target of the job `pool` after each of its rules.
fn steps_json(view: &ScrapeView, pool: &str, labels: BTreeMap<String, String>) -> ApiResult<Value> {
    let found = view.pools.iter().find(|known| *known.targets.job.name == *pool);
    let Some(found) = found else {
        return Err(ApiError::new(Code::NotFound, format!("no scrape pool found with name {pool:?}")));
    };
    let labels = Labels::from_pairs(labels);
    let address = labels.value("__address__").to_owned();
    let discovered = discovered_labels(&found.targets.job, &address, &labels);
    let rows = relabel_steps(&found.targets.job, &discovered).into_iter().map(|step| {
        let output = if step.keep { labels_json(&step.labels) } else { json!({}) };
        json!({ "rule": rule_json(&step.rule), "output": output, "keep": step.keep })
    });
    Ok(json!({ "steps": rows.collect::<Vec<_>>() }))
}
