//! The engine of an organisation (docs/specification.md C10): where its samples are read.
//!
//! Secrets are write-only. A change without a secret keeps the stored one if the origin of the URL
//! stays the same, so that a change of the URL never sends a secret to another server.

use std::collections::BTreeMap;
use std::time::Duration;

use axum::extract::{RawQuery, State};
use axum::http::{HeaderMap, HeaderValue, StatusCode, header};
use axum::response::{IntoResponse, Response};
use serde::Deserialize;
use serde_json::{Value, json};

use super::OrgDeps;
use crate::api::body::Json;
use crate::api::callers::MemberCaller;
use crate::api::error::{ApiError, ApiResult, Code};
use crate::api::params::Params;
use crate::api::routes::{Auth, Login, Routes};
use crate::entropy::Entropy;
use crate::identity::{Engine, EngineKind, Identity, NewEngine, Role};
use crate::model::{Target, TargetAuth, TargetSecret, TargetTls, TargetUrl, Tenant};
use crate::upstream::{Upstream, UpstreamError};

const ADMINS: Auth = Auth::Member(Role::Admin, Login::Any);

/// The longest time of a probe.
const PROBE_TIMEOUT: Duration = Duration::from_secs(10);

/// The routes, relative to `/api/v1`.
pub fn routes() -> Routes<OrgDeps> {
    Routes::new()
        .get("/orgs/{slug}/engine", ADMINS, "Get the engine that answers the queries", show)
        .put("/orgs/{slug}/engine", ADMINS, "Let another server answer the queries", set)
        .delete("/orgs/{slug}/engine", ADMINS, "Let the local samples answer the queries", remove)
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
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct AuthBody {
    #[serde(rename = "type")]
    kind: String,
    username: Option<String>,
    password: Option<String>,
    token: Option<String>,
    token_url: Option<String>,
    client_id: Option<String>,
    client_secret: Option<String>,
    #[serde(default)]
    scopes: Vec<String>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct TenantBody {
    #[serde(rename = "type")]
    kind: String,
    name: Option<String>,
    value: Option<String>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct TlsBody {
    ca_pem: Option<String>,
    client_cert_pem: Option<String>,
    client_key_pem: Option<String>,
    server_name: Option<String>,
}

fn wrong<T>(field: &'static str, message: impl Into<String>) -> ApiResult<T> {
    Err(ApiError::invalid_field(field, "invalid", message))
}

impl EngineBody {
    /// Returns the target. Missing secrets are those of `stored`, if it has the same origin.
    fn target(self, stored: Option<&Target>) -> ApiResult<Target> {
        match self.engine.as_deref() {
            Some("upstream") => {}
            _ => return wrong("engine", "must be \"upstream\"; DELETE sets the local engine"),
        }
        let Some(url) = self.url else { return wrong("url", "a URL is required") };
        let url = TargetUrl::parse(&url).or_else(|why| wrong("url", why))?;
        let stored = stored.filter(|stored| stored.is_same_origin(&url));
        let mut target = Target::new(url);
        if let Some(auth) = self.auth {
            target.auth = auth.credential(stored.map(|stored| &stored.auth))?;
        }
        if let Some(tenant) = self.tenant {
            target.tenant = tenant.tenant()?;
        }
        for (name, value) in self.headers {
            let name = name.to_ascii_lowercase();
            let known = || stored?.headers.iter().find(|(known, _)| *known == name);
            let value = value.or_else(|| known().map(|(_, value)| value.clone()));
            let Some(value) = value else { return wrong("headers", format!("{name} has no value")) };
            target.headers.push((name, value));
        }
        if let Some(TlsBody { ca_pem, client_cert_pem, client_key_pem, server_name }) = self.tls {
            let kept = || client_cert_pem.as_ref().and(stored)?.tls.client_key_pem.clone();
            let client_key_pem = client_key_pem.map(TargetSecret::new).or_else(kept);
            target.tls = TargetTls { ca_pem, client_cert_pem, client_key_pem, server_name };
        }
        target.check().map_err(|error| ApiError::invalid_field(error.field, "invalid", error.message))?;
        Ok(target)
    }
}

impl AuthBody {
    fn credential(self, stored: Option<&TargetAuth>) -> ApiResult<TargetAuth> {
        let needed = |text: Option<String>, field| text.map_or_else(|| wrong(field, "is required"), Ok);
        let secret = |sent: Option<String>, kept: Option<&TargetSecret>, field| {
            let sent = sent.map(TargetSecret::new).or_else(|| kept.cloned());
            sent.map_or_else(|| wrong(field, "is required"), Ok)
        };
        match self.kind.as_str() {
            "none" => Ok(TargetAuth::None),
            "basic" => {
                let kept = match stored {
                    Some(TargetAuth::Basic { password, .. }) => Some(password),
                    _ => None,
                };
                Ok(TargetAuth::Basic {
                    username: needed(self.username, "auth.username")?,
                    password: secret(self.password, kept, "auth.password")?,
                })
            }
            "bearer" => {
                let kept = match stored {
                    Some(TargetAuth::Bearer { token }) => Some(token),
                    _ => None,
                };
                Ok(TargetAuth::Bearer { token: secret(self.token, kept, "auth.token")? })
            }
            "oauth2" => {
                let token_url = needed(self.token_url, "auth.token_url")?;
                let token_url = TargetUrl::parse(&token_url).or_else(|why| wrong("auth.token_url", why))?;
                let kept = match stored {
                    Some(TargetAuth::OAuth2 { token_url: known, client_secret, .. })
                        if known.origin() == token_url.origin() =>
                    {
                        Some(client_secret)
                    }
                    _ => None,
                };
                Ok(TargetAuth::OAuth2 {
                    token_url,
                    client_id: needed(self.client_id, "auth.client_id")?,
                    client_secret: secret(self.client_secret, kept, "auth.client_secret")?,
                    scopes: self.scopes,
                })
            }
            _ => wrong("auth.type", "must be none, basic, bearer or oauth2"),
        }
    }
}

impl TenantBody {
    fn tenant(self) -> ApiResult<Tenant> {
        let value = self.value.unwrap_or_default();
        let name = self.name.unwrap_or_default();
        match self.kind.as_str() {
            "none" => Ok(Tenant::None),
            "header" => Ok(Tenant::Header { name: name.to_ascii_lowercase(), value }),
            "path" => Ok(Tenant::Path { value }),
            "label" => Ok(Tenant::Label { name, value }),
            _ => wrong("tenant.type", "must be none, header, path or label"),
        }
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
    json["url"] = json!(target.url.as_str());
    json["auth"] = match &target.auth {
        TargetAuth::None => json!({ "type": "none" }),
        TargetAuth::Basic { username, .. } => {
            json!({ "type": "basic", "username": username, "has_secret": true })
        }
        TargetAuth::Bearer { .. } => json!({ "type": "bearer", "has_secret": true }),
        TargetAuth::OAuth2 { token_url, client_id, scopes, .. } => json!({
            "type": "oauth2",
            "token_url": token_url.as_str(),
            "client_id": client_id,
            "scopes": scopes,
            "has_secret": true,
        }),
    };
    json["tenant"] = match &target.tenant {
        Tenant::None => json!({ "type": "none" }),
        Tenant::Header { name, value } => json!({ "type": "header", "name": name, "value": value }),
        Tenant::Path { value } => json!({ "type": "path", "value": value }),
        Tenant::Label { name, value } => json!({ "type": "label", "name": name, "value": value }),
    };
    // The values of headers may be secrets.
    json["headers"] = target.headers.iter().map(|(name, _)| (name.clone(), Value::Null)).collect();
    json["tls"] = json!({
        "ca_pem": target.tls.ca_pem,
        "client_cert_pem": target.tls.client_cert_pem,
        "has_secret": target.tls.client_key_pem.is_some(),
        "server_name": target.tls.server_name,
    });
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
        // A version has digits only.
        let tag = HeaderValue::try_from(format!("\"{}\"", engine.version));
        let tag = tag.unwrap_or(HeaderValue::from_static("\"0\""));
        ([(header::ETAG, tag)], Json(json)).into_response()
    }

    /// Probes a target.
    async fn probe(&self, target: &Target) -> Result<Duration, (&'static str, String)> {
        let upstream = Upstream::new(target.clone(), self.engines.egress().clone());
        let upstream = upstream.map_err(|why| ("target_tls", why))?;
        upstream.probe(self.clock.now(), PROBE_TIMEOUT).await.map_err(|error| {
            let code = match &error {
                UpstreamError::Failed(cause) => cause.code(),
                UpstreamError::Query(_) => "target_timeout",
                UpstreamError::Unavailable { .. } => "target_failed",
                UpstreamError::Unsupported(_) | UpstreamError::QueryFailed(_) => "target_refused",
            };
            (code, error.to_string())
        })
    }
}

/// Returns the version that `If-Match` names; `None` for any. A tag that no version has is 0, which
/// stands for the local engine.
fn if_match(headers: &HeaderMap) -> Option<u32> {
    let text = headers.get(header::IF_MATCH)?.to_str().unwrap_or_default().trim();
    let digits = text.strip_prefix('"').and_then(|rest| rest.strip_suffix('"'));
    (text != "*").then(|| digits.and_then(|digits| digits.parse().ok()).unwrap_or(0))
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
    let target = body.target(stored.as_ref().and_then(|engine| engine.target.as_ref()))?;
    if is_probed {
        deps.probe(&target).await.map_err(|(code, why)| {
            ApiError::new(Code::ProbeFailed, format!("{why}; nothing was changed")).with("target_error", code)
        })?;
    } else {
        let upstream = Upstream::new(target.clone(), deps.engines.egress().clone());
        upstream.or_else(|why| wrong("tls", why))?;
    }
    let replaces = if_match(&headers);
    let new = NewEngine { kind: EngineKind::Upstream, target, split_after_s: 0, replaces };
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
    let replaces = if_match(&headers);
    deps.change(&caller, move |identity| identity.remove_engine(Some(user), org, replaces, now)).await?;
    Ok(StatusCode::NO_CONTENT)
}

/// Checks an engine. What is wrong with the target is the result, not an error.
async fn probe(
    State(deps): State<OrgDeps>,
    caller: MemberCaller,
    Json(body): Json<EngineBody>,
) -> ApiResult<Json<Value>> {
    let stored = deps.identity.engine(caller.org().id);
    let stored = stored.as_ref().and_then(|engine| engine.target.clone());
    let target = match (&body.engine, stored) {
        (None, Some(stored)) => stored,
        (None, None) => return wrong("engine", "there is no stored engine"),
        (Some(_), stored) => body.target(stored.as_ref())?,
    };
    Ok(Json(match deps.probe(&target).await {
        Ok(latency) => json!({ "ok": true, "latency_ms": latency.as_secs_f64() * 1_000.0 }),
        Err((code, message)) => json!({ "ok": false, "code": code, "message": message }),
    }))
}
