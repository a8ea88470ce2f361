//! The forwarding targets of an organisation (docs/specification.md C12): servers that get every
//! accepted sample by remote write.

use std::sync::Arc;

use axum::extract::State;
use axum::http::StatusCode;
use axum::response::{IntoResponse, Response};
use serde::Deserialize;
use serde_json::{Value, json};

use super::OrgDeps;
use super::targets::{TargetBody, put_target, wrong};
use crate::api::body::Json;
use crate::api::callers::MemberCaller;
use crate::api::error::{ApiError, ApiResult};
use crate::api::params::PathOf;
use crate::api::routes::{Auth, Login, Routes};
use crate::entropy::Entropy;
use crate::forward::edge::{Forwarders, probe as probe_target};
use crate::forward::encode::BodyCompression;
use crate::forward::{ForwardProtocol, ForwardSpec, ForwardStatus, RefusedBody};
use crate::identity::{ForwardTarget, ForwardTargetError, Identity, NewForwardTarget, Role};
use crate::model::{OrgId, Target, Timestamp};
use crate::relabel::{RelabelRule, RelabelRules};
use crate::tsdb::{ConsumerKind, LogPosition, Tsdb};

const ADMINS: Auth = Auth::Member(Role::Admin, Login::Any);

/// The most bytes of a target's name, inclusive.
const NAME_BYTES_MAX: usize = 64;
/// The most bytes of a target's rules as JSON, inclusive.
const RULES_BYTES_MAX: usize = 64 << 10;

/// The routes, relative to `/api/v1`.
pub fn routes() -> Routes<OrgDeps> {
    Routes::new()
        .get("/orgs/{slug}/forward", ADMINS, "List the forwarding targets of an organisation", list)
        .post("/orgs/{slug}/forward", ADMINS, "Forward accepted samples to another server", create)
        .get("/orgs/{slug}/forward/{id}", ADMINS, "Get a forwarding target", show)
        .put("/orgs/{slug}/forward/{id}", ADMINS, "Replace a forwarding target", replace)
        .delete("/orgs/{slug}/forward/{id}", ADMINS, "Remove a forwarding target", remove)
        .post(
            "/orgs/{slug}/forward/{id}/probe",
            ADMINS,
            "Send a request without samples to a forwarding target",
            probe,
        )
        .get(
            "/orgs/{slug}/forward/{id}/refused",
            ADMINS,
            "List the last bodies that a forwarding target refused",
            refused,
        )
}

/// A target as it is sent.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct ForwardBody {
    name: String,
    target: TargetBody,
    protocol: Option<String>,
    compression: Option<String>,
    #[serde(default)]
    rules: Vec<RelabelRule>,
    enabled: Option<bool>,
    from: Option<String>,
}

impl ForwardBody {
    /// Checks the body. Missing secrets are those of `stored`.
    fn checked(self, stored: Option<&Target>, tsdb: &Tsdb) -> ApiResult<NewForwardTarget> {
        let name = self.name.trim().to_owned();
        if name.is_empty() || name.len() > NAME_BYTES_MAX || name.chars().any(char::is_control) {
            return wrong(
                "name",
                format!("1 to {NAME_BYTES_MAX} bytes without control characters are expected"),
            );
        }
        let protocol = self.protocol.unwrap_or_else(|| "auto".to_owned());
        if ForwardProtocol::parse(&protocol).is_none() {
            return wrong("protocol", "must be auto, rw1 or rw2");
        }
        let compression = self.compression.unwrap_or_else(|| "snappy".to_owned());
        if compression_of(&compression).is_none() {
            return wrong("compression", "must be snappy or zstd");
        }
        RelabelRules::parse(&self.rules).or_else(|error| wrong("rules", error.to_string()))?;
        let rules = json!(self.rules).to_string();
        if rules.len() > RULES_BYTES_MAX {
            return wrong("rules", format!("at most {RULES_BYTES_MAX} bytes are allowed"));
        }
        let from_seq = match self.from.as_deref() {
            None | Some("now") => tsdb.log_end().0,
            Some("log") => tsdb.log_begin().0,
            Some(_) => return wrong("from", "must be now or log"),
        };
        let target = self.target.target(stored)?;
        let enabled = self.enabled.unwrap_or(true);
        Ok(NewForwardTarget { name, target, protocol, compression, rules, enabled, from_seq })
    }
}

fn compression_of(name: &str) -> Option<BodyCompression> {
    match name {
        "snappy" => Some(BodyCompression::Snappy),
        "zstd" => Some(BodyCompression::Zstd),
        _ => None,
    }
}

/// Returns the specification of a stored target.
///
/// # Errors
/// A sentence, if the target cannot be unsealed or its rules cannot be read.
fn spec_of(org: OrgId, stored: &ForwardTarget) -> Result<ForwardSpec, String> {
    let target =
        stored.target.clone().ok_or("the target was sealed with another master key; set it again")?;
    let rules: Vec<RelabelRule> = serde_json::from_str(&stored.rules).map_err(|error| error.to_string())?;
    Ok(ForwardSpec {
        consumer: Forwarders::consumer_of(org, stored.number),
        org,
        name: stored.name.clone(),
        target,
        protocol: ForwardProtocol::parse(&stored.protocol).unwrap_or_default(),
        compression: compression_of(&stored.compression).unwrap_or(BodyCompression::Snappy),
        rules: RelabelRules::parse(&rules).map_err(|error| error.to_string())?,
        from: LogPosition(stored.from_seq),
    })
}

/// Applies the stored target: an enabled target runs, and every target keeps its position in the
/// log. A failure is shown in its state. The caller holds [`Forwarders::changes`].
fn apply(forwarders: &Forwarders, org: OrgId, stored: &ForwardTarget) {
    let ForwardTarget { number, version, .. } = *stored;
    if !stored.enabled {
        forwarders.hold(org, number, LogPosition(stored.from_seq));
    } else if !forwarders.is_running(org, number, version) {
        forwarders.start((org, number), version, spec_of(org, stored), Entropy::system());
    }
}

/// Stops a target and removes its place in the log.
fn forget(forwarders: &Forwarders, tsdb: &Tsdb, org: OrgId, number: u32) {
    forwarders.stop(org, number);
    if let Err(error) = tsdb.unpin(Forwarders::consumer_of(org, number)) {
        // The next reconciliation removes the pin.
        tracing::warn!(org = org.0, number, "the log is kept for a removed forwarding target: {error}");
    }
}

/// How often the positions of targets are stored with their rows, which a standby server copies.
const POSITIONS_MS: u64 = 60_000;

/// Applies all stored targets, and removes the pins of targets that no longer exist. To be called
/// at the start, and then from time to time, because organisations are removed in the background
/// and causes of failures end.
pub fn reconcile(identity: &Identity, forwarders: &Forwarders, tsdb: &Tsdb, now: Timestamp) {
    let mut changes = forwarders.changes();
    let stored = match identity.all_forward_targets() {
        Ok(stored) => stored,
        Err(error) => return tracing::warn!("forwarding targets cannot be read: {error}"),
    };
    let exists = |org: OrgId, number: u32| {
        stored.iter().any(|(other, target)| (*other, target.number) == (org, number))
    };
    for ((org, number), _) in forwarders.statuses() {
        if !exists(org, number) {
            forwarders.stop(org, number);
        }
    }
    let pins = tsdb.pins();
    let pins = pins.iter().filter(|pin| pin.consumer.kind == ConsumerKind::Forward);
    let pins = pins.map(|pin| (Forwarders::target_of(pin.consumer), pin.next));
    let mut moved = Vec::new();
    for ((org, number), next) in pins {
        if exists(org, number) {
            moved.push((org, number, next.0));
        } else {
            forget(forwarders, tsdb, org, number);
        }
    }
    for (org, target) in &stored {
        apply(forwarders, *org, target);
    }
    let is_due = changes.positions_at.is_none_or(|at| now.ms_since(at).unsigned_abs() >= POSITIONS_MS);
    if is_due {
        changes.positions_at = Some(now);
        if let Err(error) = identity.set_forward_positions(&moved) {
            tracing::warn!("the positions of forwarding targets were not stored: {error}");
        }
    }
}

fn status_json(status: &ForwardStatus) -> Value {
    let counts = status.counts;
    json!({
        "state": status.state.as_str(),
        "error": status.state.error(),
        "protocol": status.protocol,
        "shards": status.shards,
        "lag_s": status.lag_ms as f64 / 1_000.0,
        "lag_bytes": status.lag_bytes,
        "lag_samples": status.lag_samples,
        "sent_samples": counts.accepted_samples,
        "sent_bytes": counts.sent_bytes,
        "requests": counts.requests,
        "passed_requests": counts.passed_requests,
        "retried_requests": counts.retried_requests,
        "refused_samples": counts.refused_samples,
        "forgotten_samples": counts.forgotten_samples,
        "lost_records": counts.lost_records,
    })
}

impl OrgDeps {
    fn forward_json(&self, org: OrgId, stored: &ForwardTarget) -> Value {
        let mut target = json!({});
        match &stored.target {
            Some(found) => put_target(&mut target, found),
            None => target["problem"] = json!("the target was sealed with another master key; set it again"),
        }
        let rules: Value = serde_json::from_str(&stored.rules).unwrap_or_default();
        let status = self.forwarders.status(org, stored.number);
        json!({
            "id": stored.number.to_string(),
            "name": stored.name,
            "target": target,
            "protocol": stored.protocol,
            "compression": stored.compression,
            "rules": rules,
            "enabled": stored.enabled,
            "version": stored.version,
            "updated_at": stored.updated_at.to_rfc3339(),
            "status": status.as_ref().map(status_json),
        })
    }

    /// Reads one target.
    async fn forward_target(&self, org: OrgId, id: &str) -> ApiResult<ForwardTarget> {
        let number: u32 = id.parse().map_err(|_| ApiError::from(ForwardTargetError::NotFound))?;
        self.read(org, move |identity| Ok(identity.forward_target(org, number)?)).await
    }
}

async fn list(State(deps): State<OrgDeps>, caller: MemberCaller) -> ApiResult<Json<Value>> {
    let org = caller.org().id;
    let stored = deps.read(org, move |identity| Ok(identity.forward_targets(org)?)).await?;
    let data: Vec<Value> = stored.iter().map(|stored| deps.forward_json(org, stored)).collect();
    Ok(Json(json!({ "data": data })))
}

async fn create(
    State(deps): State<OrgDeps>,
    caller: MemberCaller,
    Json(body): Json<ForwardBody>,
) -> ApiResult<Response> {
    let new = body.checked(None, &deps.tsdb)?;
    let stored = set(&deps, &caller, None, new).await?;
    Ok((StatusCode::CREATED, Json(deps.forward_json(caller.org().id, &stored))).into_response())
}

async fn set(
    deps: &OrgDeps,
    caller: &MemberCaller,
    number: Option<u32>,
    new: NewForwardTarget,
) -> ApiResult<ForwardTarget> {
    let (org, user, now) = (caller.org().id, caller.user(), deps.clock.now());
    let (forwarders, tsdb) = (Arc::clone(&deps.forwarders), Arc::clone(&deps.tsdb));
    let change = move |identity: &Identity| {
        let rng = &mut Entropy::system();
        let _changing = forwarders.changes();
        let stored = identity.set_forward_target(Some(user), (org, number), new, now, rng)?;
        if number.is_none() {
            // A removed target with this number may have left its place in the log.
            forget(&forwarders, &tsdb, org, stored.number);
        }
        apply(&forwarders, org, &stored);
        Ok::<_, ForwardTargetError>(stored)
    };
    deps.change(caller, change).await
}

async fn show(
    State(deps): State<OrgDeps>,
    caller: MemberCaller,
    PathOf((_, id)): PathOf<(String, String)>,
) -> ApiResult<Json<Value>> {
    let org = caller.org().id;
    let stored = deps.forward_target(org, &id).await?;
    Ok(Json(deps.forward_json(org, &stored)))
}

async fn replace(
    State(deps): State<OrgDeps>,
    caller: MemberCaller,
    PathOf((_, id)): PathOf<(String, String)>,
    Json(body): Json<ForwardBody>,
) -> ApiResult<Json<Value>> {
    let org = caller.org().id;
    let before = deps.forward_target(org, &id).await?;
    let new = body.checked(before.target.as_ref(), &deps.tsdb)?;
    let stored = set(&deps, &caller, Some(before.number), new).await?;
    Ok(Json(deps.forward_json(org, &stored)))
}

async fn remove(
    State(deps): State<OrgDeps>,
    caller: MemberCaller,
    PathOf((_, id)): PathOf<(String, String)>,
) -> ApiResult<StatusCode> {
    let (org, user, now) = (caller.org().id, caller.user(), deps.clock.now());
    let number: u32 = id.parse().map_err(|_| ApiError::from(ForwardTargetError::NotFound))?;
    let (forwarders, tsdb) = (Arc::clone(&deps.forwarders), Arc::clone(&deps.tsdb));
    let change = move |identity: &Identity| {
        let _changing = forwarders.changes();
        identity.remove_forward_target(Some(user), org, number, now)?;
        forget(&forwarders, &tsdb, org, number);
        Ok::<_, ForwardTargetError>(())
    };
    deps.change(&caller, change).await?;
    Ok(StatusCode::NO_CONTENT)
}

/// Probes a target. A fault of the target is reported in the result, not as an error.
async fn probe(
    State(deps): State<OrgDeps>,
    caller: MemberCaller,
    PathOf((_, id)): PathOf<(String, String)>,
) -> ApiResult<Json<Value>> {
    let stored = deps.forward_target(caller.org().id, &id).await?;
    let protocol = ForwardProtocol::parse(&stored.protocol).unwrap_or_default();
    let compression = compression_of(&stored.compression).unwrap_or(BodyCompression::Snappy);
    let report = match stored.target {
        Some(target) => probe_target(target, protocol, compression, deps.engines.egress().clone()).await,
        None => Err("the target was sealed with another master key; set it again".to_owned()),
    };
    Ok(Json(match report {
        Ok(report) => json!({
            "ok": report.ok,
            "status": report.status,
            "code": report.code,
            "message": report.message,
            "latency_ms": report.latency_ms,
        }),
        Err(why) => {
            json!({ "ok": false, "status": null, "code": "target_tls", "message": why, "latency_ms": 0 })
        }
    }))
}

async fn refused(
    State(deps): State<OrgDeps>,
    caller: MemberCaller,
    PathOf((_, id)): PathOf<(String, String)>,
) -> ApiResult<Json<Value>> {
    let org = caller.org().id;
    let stored = deps.forward_target(org, &id).await?;
    let status = deps.forwarders.status(org, stored.number);
    let line = |body: &RefusedBody| {
        json!({
            "at": body.at.to_rfc3339(),
            "status": body.status,
            "text": body.text,
            "samples": body.samples,
            "first_series": body.first_series,
        })
    };
    let bodies = status.iter().flat_map(|status| status.refused.iter().rev());
    let data: Vec<Value> = bodies.map(line).collect();
    let total = status.as_ref().map_or(0, |status| status.counts.refused_samples);
    Ok(Json(json!({ "data": data, "refused_samples": total })))
}
