//! The engine of an organisation (docs/specification.md C10): where its samples are read.
//!
//! Secrets are write-only. A change without a secret keeps the stored one if the origin of the URL
//! stays the same, so that a change of the URL never sends a secret to another server.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use axum::extract::{RawQuery, State};
use axum::http::{HeaderMap, StatusCode};
use axum::response::{IntoResponse, Response};
use serde::Deserialize;
use serde_json::{Value, json};

use super::OrgDeps;
use super::etag::{etag, etag_header, if_match};
use super::targets::{AuthBody, TargetBody, TenantBody, TlsBody, put_target, wrong};
use crate::api::body::Json;
use crate::api::callers::MemberCaller;
use crate::api::error::{ApiError, ApiResult, Code};
use crate::api::params::Params;
use crate::api::routes::{Auth, Login, Routes};
use crate::entropy::Entropy;
use crate::identity::{Engine, EngineKind, ExpectedVersion, Identity, NewEngine, Role};
use crate::model::Target;
use crate::promql::QueryError;
use crate::upstream::{Upstream, UpstreamError};

const ADMINS: Auth = Auth::Member(Role::Admin, Login::Any);

/// The longest time of a probe.
const PROBE_TIMEOUT: Duration = Duration::from_secs(10);
/// The ages of samples at the border of a split, in seconds.
const SPLIT_AFTER_S: std::ops::RangeInclusive<u64> = 60..=10 * 365 * 86_400;

/// The routes, relative to `/api/v1`.
pub fn routes() -> Routes<OrgDeps> {
    Routes::new()
        .get("/orgs/{slug}/engine", ADMINS, "Get the engine that answers the queries", show)
        .put("/orgs/{slug}/engine", ADMINS, "Answer queries from another server", set)
        .delete("/orgs/{slug}/engine", ADMINS, "Answer queries from local samples again", remove)
        .post("/orgs/{slug}/engine/probe", ADMINS, "Check an engine, the stored one by default", probe)
}

/// An engine as it is sent. All members are missing for a probe of the stored engine.
#[derive(Default, Deserialize)]
#[serde(deny_unknown_fields)]
struct EngineBody {
    engine: Option<String>,
    url: Option<String>,
    auth: Option<AuthBody>,
    tenant: Option<TenantBody>,
    #[serde(default)]
    headers: BTreeMap<String, Option<String>>,
    tls: Option<TlsBody>,
    split_after_s: Option<u64>,
}

impl EngineBody {
    /// Returns the kind of the engine, and the age in seconds of samples at the border of a split.
    fn kind(&self) -> ApiResult<(EngineKind, u64)> {
        match (self.engine.as_deref(), self.split_after_s) {
            (Some("upstream"), None) => Ok((EngineKind::Upstream, 0)),
            (Some("upstream"), Some(_)) => wrong("split_after_s", "is for the engine \"split\" only"),
            (Some("split"), Some(after_s)) if SPLIT_AFTER_S.contains(&after_s) => {
                Ok((EngineKind::Split, after_s))
            }
            (Some("split"), _) => {
                let (least, most) = (SPLIT_AFTER_S.start(), SPLIT_AFTER_S.end());
                wrong("split_after_s", format!("must be {least} to {most} seconds"))
            }
            _ => wrong("engine", "must be \"upstream\" or \"split\"; DELETE sets the local engine"),
        }
    }

    /// Returns the target. Missing secrets are those of `stored`, if it has the same origin.
    fn target(self, stored: Option<&Target>) -> ApiResult<Target> {
        let Some(url) = self.url else { return wrong("url", "a URL is required") };
        let EngineBody { auth, tenant, headers, tls, .. } = self;
        TargetBody { url, auth, tenant, headers, tls }.target(stored)
    }
}

/// Returns an engine without its secrets.
fn engine_json(engine: &Engine) -> Value {
    let mut json = json!({
        "engine": engine.kind.as_str(),
        "version": engine.version,
        "updated_at": engine.updated_at.to_rfc3339(),
    });
    if engine.kind == EngineKind::Split {
        json["split_after_s"] = json!(engine.split_after_s);
    }
    let Some(target) = &engine.target else {
        json["problem"] = json!("the target was sealed with another master key; set it again");
        return json;
    };
    put_target(&mut json, target);
    json
}

impl OrgDeps {
    /// Returns the response that shows the engine of an organisation.
    fn engine_response(&self, caller: &MemberCaller) -> Response {
        let org = caller.org().id;
        let Some(engine) = self.identity.engine(org) else {
            return Json(json!({ "engine": "local" })).into_response();
        };
        let mut json = engine_json(&engine);
        if let Some(upstream) = self.engines.in_use(org) {
            let status = upstream.status();
            json["circuit"] = json!({
                "state": status.circuit.as_str(),
                "failures": status.failures,
                "last_error": status.last_error,
            });
        }
        (etag_header(&etag(engine.version)), Json(json)).into_response()
    }

    /// Probes a target.
    async fn probe(&self, target: &Target) -> Result<Duration, (&'static str, String)> {
        let upstream = Upstream::new(target.clone(), self.engines.egress().clone());
        let upstream = Arc::new(upstream.map_err(|why| ("target_tls", why))?);
        upstream.probe(self.clock.now(), PROBE_TIMEOUT).await.map_err(|error| {
            let code = match &error {
                UpstreamError::Failed(cause) => cause.code(),
                UpstreamError::Query(QueryError::Timeout) => "target_timeout",
                UpstreamError::Query(_) => "target_invalid_response",
                UpstreamError::Unavailable { .. } => "target_failed",
                UpstreamError::Unsupported(_) | UpstreamError::QueryFailed(_) => "target_refused",
            };
            (code, error.to_string())
        })
    }
}

async fn show(State(deps): State<OrgDeps>, caller: MemberCaller) -> ApiResult<Response> {
    Ok(deps.engine_response(&caller))
}

async fn set(
    State(deps): State<OrgDeps>,
    caller: MemberCaller,
    headers: HeaderMap,
    RawQuery(query): RawQuery,
    Json(body): Json<EngineBody>,
) -> ApiResult<Response> {
    let mut params = Params::of_query(query.as_deref())?;
    let is_probed = match params.one(&["probe"])?.as_deref() {
        None | Some("true" | "1") => true,
        Some("false" | "0") => false,
        Some(_) => return Err(ApiError::invalid_parameter("probe", "true or false is expected")),
    };
    let (org, user, now) = (caller.org().id, caller.user(), deps.clock.now());
    let stored = deps.identity.engine(org);
    let (kind, split_after_s) = body.kind()?;
    let target = body.target(stored.as_ref().and_then(|engine| engine.target.as_ref()))?;
    if is_probed {
        deps.probe(&target).await.map_err(|(code, why)| {
            ApiError::new(Code::ProbeFailed, format!("{why}; nothing was changed")).with("target_error", code)
        })?;
    } else {
        let upstream = Upstream::new(target.clone(), deps.engines.egress().clone());
        upstream.or_else(|why| wrong("tls", why))?;
    }
    let replaces = if_match(&headers).and_then(ExpectedVersion::version);
    let new = NewEngine { kind, target, split_after_s, replaces };
    let change = move |identity: &Identity| {
        identity.set_engine(Some(user), org, new, now, &mut Entropy::system()).map(drop)
    };
    deps.change(&caller, change).await?;
    Ok(deps.engine_response(&caller))
}

async fn remove(
    State(deps): State<OrgDeps>,
    caller: MemberCaller,
    headers: HeaderMap,
) -> ApiResult<StatusCode> {
    let (org, user, now) = (caller.org().id, caller.user(), deps.clock.now());
    let replaces = if_match(&headers).and_then(ExpectedVersion::version);
    deps.change(&caller, move |identity| identity.remove_engine(Some(user), org, replaces, now)).await?;
    Ok(StatusCode::NO_CONTENT)
}

/// Checks an engine. A fault of the target is reported in the result, not as an error.
async fn probe(
    State(deps): State<OrgDeps>,
    caller: MemberCaller,
    Json(body): Json<EngineBody>,
) -> ApiResult<Json<Value>> {
    let stored = deps.identity.engine(caller.org().id);
    let stored = stored.as_ref().and_then(|engine| engine.target.clone());
    let target = match (&body.engine, stored) {
        (None, Some(stored)) => stored,
        (None, None) => return wrong("engine", "no engine is stored"),
        (Some(_), stored) => {
            body.kind()?;
            body.target(stored.as_ref())?
        }
    };
    Ok(Json(match deps.probe(&target).await {
        Ok(latency) => json!({ "ok": true, "latency_ms": latency.as_secs_f64() * 1_000.0 }),
        Err((code, message)) => json!({ "ok": false, "code": code, "message": message }),
    }))
}
