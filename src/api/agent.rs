//! The routes of an agent (`promlet agent`): samples in, health, scraped targets, and its own
//! metrics. An agent has no accounts and answers no queries.
//!
//! With a token, every sender must present it. Without one, only this machine may send, and not
//! through a proxy. A browser on this machine may be showing a page of anyone, so requests with the
//! header `Origin` need the token.

use std::sync::Arc;

use axum::extract::{Request, State};
use axum::http::{HeaderMap, HeaderValue, StatusCode, Version, header};
use axum::response::{IntoResponse, Response};
use axum::{Extension, Json};
use serde_json::{Map, Value, json};

use super::callers::IngestAccess;
use super::error::{ApiError, ApiResult, Code};
use super::health::{Check, same_secret, storage_check};
use super::host::{LocalRequests, Peer};
use super::lanes::Lanes;
use super::layers::{self, App};
use super::orgs::query::engines::Engines;
use super::orgs::scrape_targets::{ScrapeViewDeps, targets_as};
use super::orgs::write::import::{ImportFormat, ImportReply, import_as};
use super::orgs::write::{Relabel, WriteDeps, otlp, remote};
use super::own_metrics::{AgentMetrics, Counters};
use super::router::ResponseFuture;
use super::routes::{Auth, Routes};
use super::{ApiOptions, OptionsError, edge_policy};
use crate::clock::{Clock, Stopwatch};
use crate::forward::{ForwardStatus, ReceivedBodies};
use crate::model::OrgId;
use crate::scrape::{ScrapeSource, ScrapeTotals, Scrapers};
use crate::tsdb::Tsdb;

/// The organisation of an agent's samples.
pub const AGENT_ORG: OrgId = OrgId(1);

/// Returns the name and the state of each target of an agent.
pub type TargetStatus = Arc<dyn Fn() -> Vec<(String, ForwardStatus)> + Send + Sync>;

/// The parts of a running agent.
#[derive(Clone)]
pub struct AgentRooms {
    /// The store whose log is the queue.
    pub tsdb: Arc<Tsdb>,
    /// The thread pools that decode and append.
    pub lanes: Lanes,
    /// The wall clock.
    pub clock: Clock,
    /// The checks of `/readyz` in addition to that of the store.
    pub checks: Vec<(&'static str, Check)>,
    /// The counters of the edge.
    pub counters: Arc<Counters>,
    /// Returns the name and the state of each target.
    pub targets: TargetStatus,
    /// The bodies that targets may get as they were received.
    pub received: Arc<ReceivedBodies>,
    /// The scraped targets; `None` without `--scrape-config`.
    pub scrapers: Option<Arc<Scrapers>>,
    /// The token that senders must present.
    pub token: Option<Arc<str>>,
    /// The rules for received series.
    pub relabel: Option<Relabel>,
}

/// The dependencies of the routes.
#[derive(Clone)]
struct AgentDeps {
    write: Arc<WriteDeps>,
    token: Option<Arc<str>>,
    local: LocalRequests,
    checks: Vec<(&'static str, Check)>,
    metrics: AgentMetrics,
}

/// Returns the app of an agent.
///
/// # Errors
/// [`OptionsError`].
pub fn app(rooms: &AgentRooms, options: &ApiOptions) -> Result<App, OptionsError> {
    let policy = edge_policy(options, Arc::clone(&rooms.counters))?;
    let write = Arc::new(WriteDeps {
        tsdb: Arc::clone(&rooms.tsdb),
        lanes: rooms.lanes.clone(),
        clock: rooms.clock.clone(),
        limits: options.write,
        rejects: Arc::default(),
        engines: Arc::new(Engines::local()),
        totals: None,
        relabel: rooms.relabel.clone(),
        received: Arc::clone(&rooms.received),
    });
    let metrics = AgentMetrics {
        tsdb: Arc::clone(&rooms.tsdb),
        counters: Arc::clone(&rooms.counters),
        lanes: rooms.lanes.clone(),
        targets: Arc::clone(&rooms.targets),
        scrapers: rooms.scrapers.clone(),
        uptime: Stopwatch::start(),
    };
    let deps = AgentDeps {
        write,
        token: rooms.token.clone(),
        local: LocalRequests::of(&options.public_url),
        checks: rooms.checks.clone(),
        metrics,
    };
    let fallback = |request: Request| -> ResponseFuture {
        let refused = layers::not_found(request.method(), request.uri()).into_response();
        Box::pin(async move { refused })
    };
    Ok(App::new(routes().with(deps).into_route_tree(), Arc::new(fallback), policy, None))
}

fn routes() -> Routes<AgentDeps> {
    const WRITE: &str = "Write samples: Prometheus remote write 1.0 and 2.0";
    const TEXT: &str = "Write samples: Prometheus text format or OpenMetrics";
    const OTLP: &str = "Write samples: OpenTelemetry metrics (OTLP/HTTP)";
    Routes::new()
        .post("/api/v1/write", Auth::Public, WRITE, write)
        .post("/api/v1/push", Auth::Public, WRITE, write)
        .post("/api/v1/import/prometheus", Auth::Public, TEXT, import)
        .post("/api/v1/otlp/v1/metrics", Auth::Public, OTLP, export)
        .post("/v1/metrics", Auth::Public, OTLP, export)
        .get("/api/v1/targets", Auth::Public, "Prometheus: list scraped targets", scrape_targets)
        .get("/healthz", Auth::Public, "Return `ok` while the process responds", healthz)
        .get("/readyz", Auth::Public, "Report whether every part works", readyz)
        .get("/metrics", Auth::Public, "The agent's own metrics in Prometheus' text format", metrics)
}

async fn write(State(deps): State<AgentDeps>, request: Request) -> ApiResult<Response> {
    let access = deps.admit(&request)?;
    remote::write_as(Arc::clone(&deps.write), access, request).await
}

async fn import(State(deps): State<AgentDeps>, request: Request) -> ApiResult<Response> {
    let access = deps.admit(&request)?;
    let (format, reply) = (ImportFormat::Text, ImportReply::Counts);
    import_as(Arc::clone(&deps.write), format, reply, access, request).await
}

async fn export(State(deps): State<AgentDeps>, request: Request) -> ApiResult<Response> {
    let access = deps.admit(&request)?;
    otlp::export_as(Arc::clone(&deps.write), access, request).await
}

async fn scrape_targets(State(deps): State<AgentDeps>, request: Request) -> ApiResult<Response> {
    deps.admit(&request)?;
    let view = deps.metrics.scrapers.clone().map(|scrapers| {
        let lanes = deps.metrics.lanes.clone();
        (ScrapeViewDeps { scrapers, lanes }, AGENT_ORG)
    });
    targets_as(view, request.uri().query()).await
}

async fn healthz() -> &'static str {
    "ok"
}

async fn readyz(State(deps): State<AgentDeps>) -> Response {
    let health = deps.metrics.tsdb.health();
    let storage = storage_check(&health.writes);
    let checks = deps.checks.iter().map(|(name, check)| (*name, check()));
    let mut results = Map::new();
    let mut ready = true;
    for (name, result) in std::iter::once(("storage", storage)).chain(checks) {
        ready &= result.is_ok();
        results.insert(name.to_owned(), result.map_or_else(Value::from, |()| "ok".into()));
    }
    let status = match (ready, health.notes.is_empty()) {
        (true, true) => "ok",
        (true, false) => "degraded",
        (false, _) => "unavailable",
    };
    // Anyone may read this, so it has no texts of the targets.
    let target = |(name, status): (String, ForwardStatus)| {
        json!({
            "name": name,
            "state": status.state.as_str(),
            "lag_seconds": status.lag_ms / 1_000,
            "lag_bytes": status.lag_bytes,
            "lag_samples": status.lag_samples,
        })
    };
    let targets: Vec<Value> = (deps.metrics.targets)().into_iter().map(target).collect();
    let mut body = json!({ "status": status, "checks": results, "targets": targets });
    if let Some(scrapers) = &deps.metrics.scrapers {
        body["scraping"] = scraping_json(scrapers);
    }
    if !health.notes.is_empty() {
        body["notes"] = json!(health.notes);
    }
    let code = if ready { StatusCode::OK } else { StatusCode::SERVICE_UNAVAILABLE };
    (code, Json(body)).into_response()
}

/// Returns the numbers of jobs, of targets by the result of their last scrape, and of samples that
/// were not stored.
fn scraping_json(scrapers: &Scrapers) -> Value {
    let config = scrapers.config(AGENT_ORG, ScrapeSource::File);
    let ScrapeTotals { up, down, unknown, refused, .. } = scrapers.totals_of(AGENT_ORG);
    json!({
        "jobs": config.map_or(0, |config| config.jobs.len()),
        "targets": { "up": up, "down": down, "unknown": unknown },
        "refused_samples": refused,
    })
}

async fn metrics(
    State(deps): State<AgentDeps>,
    peer: Option<Extension<Peer>>,
    version: Version,
    headers: HeaderMap,
) -> ApiResult<Response> {
    deps.admit_sender(peer.map(|Extension(peer)| peer), version, &headers)?;
    let mut response = deps.metrics.text().into_response();
    let media = HeaderValue::from_static("text/plain; version=0.0.4; charset=utf-8");
    response.headers_mut().insert(header::CONTENT_TYPE, media);
    Ok(response)
}

impl AgentDeps {
    /// Admits the sender of a request before its body is read.
    fn admit(&self, request: &Request) -> ApiResult<IngestAccess> {
        let peer = request.extensions().get::<Peer>().copied();
        self.admit_sender(peer, request.version(), request.headers())?;
        Ok(IngestAccess::of_agent(AGENT_ORG))
    }

    fn admit_sender(&self, peer: Option<Peer>, version: Version, headers: &HeaderMap) -> ApiResult<()> {
        let Some(token) = &self.token else {
            let is_local = peer.is_some_and(|Peer(peer)| self.local.includes(peer.ip(), version, headers));
            return match is_local && !headers.contains_key(header::ORIGIN) {
                true => Ok(()),
                false => Err(ApiError::new(
                    Code::Unauthenticated,
                    "an agent without a token accepts programs of its own machine alone; set PROMLET_AGENT_TOKEN and send \
                     it as a bearer token",
                )),
            };
        };
        let sent = headers.get(header::AUTHORIZATION).and_then(|value| value.to_str().ok());
        let bearer = sent
            .and_then(|text| text.split_once(' '))
            .filter(|(scheme, _)| scheme.eq_ignore_ascii_case("bearer"));
        match bearer {
            Some((_, sent)) if same_secret(sent.trim(), token) => Ok(()),
            Some(_) => Err(ApiError::new(Code::TokenInvalid, "this is not the agent's token")),
            None => Err(ApiError::new(Code::Unauthenticated, "send the agent's token as a bearer token")),
        }
    }
}
