//! Health and metrics: `/healthz`, `/readyz`, `/api/v1/health`, `/metrics` (docs/specification.md
//! C8). The metrics themselves are in `own_metrics`.

use std::net::SocketAddr;
use std::sync::Arc;

use axum::extract::State;
use axum::http::{HeaderMap, HeaderValue, StatusCode, Version, header};
use axum::response::{IntoResponse, Response};
use axum::{Extension, Json};
use serde_json::{Map, Value, json};

use super::error::{ApiError, ApiResult, Code};
use super::host::{LocalRequests, Peer};
use super::orgs::query::engines::Engines;
use super::own_metrics::OwnMetrics;
use super::routes::{Auth, Routes};
use crate::outbound::MailQueue;
use crate::tsdb::Writes;

/// A health check of one part. `Err` is a sentence for the operator.
pub type Check = Arc<dyn Fn() -> Result<(), String> + Send + Sync>;

/// The note of `/readyz` about the standby, which leaves the server ready.
#[derive(Clone)]
pub struct StandbyNote(pub Check);

impl std::fmt::Debug for StandbyNote {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("StandbyNote")
    }
}

/// The dependencies of the health routes.
#[derive(Clone)]
pub struct HealthDeps {
    /// Further checks by name: `accounts`, `session_flush`.
    pub checks: Vec<(&'static str, Check)>,
    /// The note about the standby.
    pub standby: Option<StandbyNote>,
    /// Reports whether mail can be sent.
    pub mail: Arc<MailQueue>,
    /// The metrics of this server.
    pub own: OwnMetrics,
    /// The bearer token with which other machines may read `/metrics`.
    pub metrics_token: Option<Arc<str>>,
    /// Recognises requests from this machine.
    pub local: LocalRequests,
    /// The location of each organisation's samples.
    pub engines: Arc<Engines>,
}

/// Returns the routes at the root.
pub fn routes() -> Routes<HealthDeps> {
    Routes::new()
        .get("/healthz", Auth::Public, "Return `ok` while the process responds", healthz)
        .get("/readyz", Auth::Public, "Report whether every part works", readyz)
        .get("/metrics", Auth::Operator, "promlet's own metrics in Prometheus' text format", metrics)
        .get("/api/v1/health", Auth::Public, "Version and uptime", health)
}

async fn healthz() -> &'static str {
    "ok"
}

async fn health(State(deps): State<HealthDeps>) -> Json<Value> {
    Json(
        json!({ "status": "ok", "version": env!("CARGO_PKG_VERSION"), "uptime_s": deps.own.uptime.elapsed().as_secs() }),
    )
}

async fn readyz(State(deps): State<HealthDeps>) -> Response {
    let mut health = deps.own.tsdb.health();
    health.notes.extend(deps.own.forwarders.note());
    health.notes.extend(deps.own.move_notes());
    if let Some(Err(note)) = deps.standby.as_ref().map(|note| (note.0)()) {
        health.notes.push(format!("standby: {note}"));
    }
    let storage = storage_check(&health.writes);
    let checks = deps.checks.iter().map(|(name, check)| (*name, check()));
    let mut results = Map::new();
    let mut ready = true;
    for (name, result) in std::iter::once(("storage", storage)).chain(checks) {
        ready &= result.is_ok();
        results.insert(name.to_owned(), result.map_or_else(Value::from, |()| "ok".into()));
    }
    // Mail that cannot be sent is retried and does not affect reads and writes, so it does not make
    // the server unavailable.
    let mailer = deps.mail.health();
    // An upstream concerns its organisation only, so it does not make the server unavailable.
    let (engines, open) = deps.engines.counts();
    if engines > 0 {
        let text = match open {
            0 => "ok".to_owned(),
            _ => format!("the upstreams of {open} of {engines} organisations do not answer"),
        };
        results.insert("upstreams".to_owned(), text.into());
    }
    let well = health.notes.is_empty() && mailer.is_ok() && open == 0;
    results.insert("mailer".to_owned(), mailer.map_or_else(Value::from, |()| "ok".into()));
    // A store with notes still accepts samples. The server is ready and reports the notes.
    let status = match (ready, well) {
        (true, true) => "ok",
        (true, false) => "degraded",
        (false, _) => "unavailable",
    };
    let mut body = json!({ "status": status, "checks": results });
    if !health.notes.is_empty() {
        body["notes"] = json!(health.notes);
    }
    let code = if ready { StatusCode::OK } else { StatusCode::SERVICE_UNAVAILABLE };
    (code, Json(body)).into_response()
}

/// Returns whether the store accepts samples. `Err` is a sentence for the operator.
pub(super) fn storage_check(writes: &Writes) -> Result<(), String> {
    match writes {
        Writes::Open => Ok(()),
        Writes::DiskFull { free, needed } => {
            Err(format!("no samples are accepted: {free} bytes are free on the disk, {needed} are needed"))
        }
        Writes::Fenced(_) => Err("a write to the log failed; restart".to_owned()),
        Writes::Stopped(why) => Err(format!("no samples are accepted: {why}; restart")),
        Writes::ReadOnly(_) => Err("the log is damaged; repair".to_owned()),
        Writes::Closed => Err("shutting down".to_owned()),
    }
}

async fn metrics(
    State(deps): State<HealthDeps>,
    peer: Option<Extension<Peer>>,
    version: Version,
    headers: HeaderMap,
) -> ApiResult<Response> {
    admit_operator(&deps, peer.map(|Extension(Peer(peer))| peer), version, &headers)?;
    let mut response = deps.own.text().into_response();
    let media = HeaderValue::from_static("text/plain; version=0.0.4; charset=utf-8");
    response.headers_mut().insert(header::CONTENT_TYPE, media);
    Ok(response)
}

fn admit_operator(
    deps: &HealthDeps,
    peer: Option<SocketAddr>,
    version: Version,
    headers: &HeaderMap,
) -> ApiResult<()> {
    let sent = headers.get(header::AUTHORIZATION).and_then(|value| value.to_str().ok());
    let bearer = sent
        .and_then(|text| text.split_once(' '))
        .filter(|(scheme, _)| scheme.eq_ignore_ascii_case("bearer"));
    if let (Some((_, sent)), Some(token)) = (bearer, &deps.metrics_token) {
        return match same_secret(sent.trim(), token) {
            true => Ok(()),
            false => Err(ApiError::new(Code::TokenInvalid, "this is not the metrics token")),
        };
    }
    match peer {
        Some(peer) if deps.local.includes(peer.ip(), version, headers) => Ok(()),
        _ => Err(ApiError::new(
            Code::Unauthenticated,
            "without a token metrics are served to this machine alone, and not where the public URL is another \
             machine's; set PROMLET_METRICS_TOKEN and send it as a bearer token",
        )),
    }
}

/// Compares hashes, so that the duration reveals nothing about the token.
pub(super) fn same_secret(sent: &str, token: &str) -> bool {
    crate::identity::SecretHash::of(sent) == crate::identity::SecretHash::of(token)
}
