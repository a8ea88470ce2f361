//! Organisations, totals and the audit log of the server, for its administrators
//! (docs/specification.md C8).
//!
//! Nothing here opens an organisation's data. Responses contain its name, its people and its usage.
//! Administrators set its limits, because no one else may raise them above the server's own.

use std::sync::Arc;

use axum::extract::State;
use axum::http::Uri;
use serde::Deserialize;
use serde_json::{Map, Value, json};

use super::AdminDeps;
use crate::api::body::Json;
use crate::api::callers::{SessionCaller, org_not_found};
use crate::api::error::ApiResult;
use crate::api::lanes::Lane;
use crate::api::listing::PageRequest;
use crate::api::orgs::{audit, organisations, settings};
use crate::api::params::PathOf;
use crate::identity::{Identity, Org, OrgChange, OrgChangeError, Role, StoreError};
use crate::model::Timestamp;
use crate::sync::IgnorePoison as _;
use crate::tsdb::Tsdb;

pub(super) async fn list(State(deps): State<AdminDeps>, uri: Uri) -> ApiResult<Json<Value>> {
    let page = PageRequest::of_query(uri.query())?;
    let now = deps.clock.now();
    let tsdb = Arc::clone(&deps.tsdb);
    deps.read(move |identity| {
        let orgs = identity.orgs()?;
        let (shown, next) = page.cut(&orgs, |org| org.id)?;
        let shown = orgs.get(shown).unwrap_or_default();
        Ok(Json(json!({ "data": orgs_json(identity, &tsdb, shown, now)?, "next_cursor": next })))
    })
    .await
}

/// Returns organisations with their usage.
///
/// # Errors
/// [`StoreError`].
pub fn orgs_json(
    identity: &Identity,
    tsdb: &Tsdb,
    orgs: &[Org],
    now: Timestamp,
) -> Result<Vec<Value>, StoreError> {
    let stats = tsdb.stats();
    let one = |org: &Org| {
        let mut shown = org_json_without_usage(identity, org, now)?;
        shown["usage"] = organisations::usage(tsdb, &stats, org.id, now);
        Ok(shown)
    };
    orgs.iter().map(one).collect()
}

/// Returns an organisation without its usage, for when the store is not open.
///
/// # Errors
/// [`StoreError`].
pub fn org_json_without_usage(identity: &Identity, org: &Org, now: Timestamp) -> Result<Value, StoreError> {
    let members = identity.members(org.id, now)?;
    let owners = members.iter().filter(|member| member.role == Role::Owner);
    Ok(json!({
        "id": org.key.to_string(),
        "number": org.id.0,
        "slug": org.slug.as_str(),
        "name": org.name,
        "created_at": org.created_at.to_rfc3339(),
        "members": members.len(),
        "owners": owners.map(|owner| owner.user.email.as_str()).collect::<Vec<_>>(),
        "api_keys": identity.keys(org.id).len(),
        "settings": settings::to_json(&org.settings),
    }))
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct OrgLimitsBody {
    settings: Map<String, Value>,
}

/// Changes limits only. The name is up to the organisation.
pub(super) async fn change(
    State(deps): State<AdminDeps>,
    cabinet: SessionCaller,
    PathOf(slug): PathOf<String>,
    Json(body): Json<OrgLimitsBody>,
) -> ApiResult<Json<Value>> {
    let now = deps.clock.now();
    let org = deps.identity.org_by_slug(&slug)?.ok_or_else(org_not_found)?.id;
    let change = OrgChange { name: None, settings: settings::from_json(&body.settings)? };
    let (identity, tsdb, user) = (Arc::clone(&deps.identity), Arc::clone(&deps.tsdb), cabinet.user());
    let (defaults, applying) = (Arc::clone(&deps.defaults), Arc::clone(&deps.applying));
    let changed = deps
        .lanes
        .run(Lane::Account, move || {
            let changed = identity.change_org(Some(user), org, change, &defaults, now)?;
            let _one_at_a_time = applying.lock().ignore_poison();
            settings::apply(&identity, &tsdb, org);
            Ok::<_, OrgChangeError>(changed)
        })
        .await??;
    let tsdb = Arc::clone(&deps.tsdb);
    let shown = deps.read(move |identity| Ok(orgs_json(identity, &tsdb, &[changed], now)?)).await?;
    Ok(Json(shown.into_iter().next().unwrap_or_default()))
}

pub(super) async fn stats(State(deps): State<AdminDeps>) -> ApiResult<Json<Value>> {
    let (tsdb, now) = (Arc::clone(&deps.tsdb), deps.clock.now());
    deps.read(move |identity| Ok(Json(stats_json(identity, &tsdb, now)?))).await
}

/// Returns totals over all organisations.
///
/// # Errors
/// [`StoreError`].
pub fn stats_json(identity: &Identity, tsdb: &Tsdb, now: Timestamp) -> Result<Value, StoreError> {
    let counts = identity.instance_counts(now)?;
    let stats = tsdb.stats();
    let sum = |of: &dyn Fn(&crate::tsdb::OrgStats) -> u64| stats.orgs.iter().map(of).sum::<u64>();
    Ok(json!({
        "version": env!("CARGO_PKG_VERSION"),
        "users": counts.users,
        "users_disabled": counts.users_disabled,
        "users_with_twofa": counts.users_with_twofa,
        "admins": counts.admins,
        "orgs": counts.orgs,
        "orgs_being_removed": counts.orgs_being_removed,
        "sessions": counts.sessions,
        "api_keys": counts.api_keys,
        "series": sum(&|org| org.series),
        "samples": sum(&|org| org.samples.saturating_add(org.sealed_samples)),
        "disk_bytes": sum(&|org| org.disk_bytes),
        "memory_bytes": sum(&|org| org.memory_bytes),
    }))
}

pub(super) async fn events(State(deps): State<AdminDeps>, uri: Uri) -> ApiResult<Json<Value>> {
    let query = audit::AuditQuery::of(&uri)?;
    deps.read(move |identity| audit::page(identity, None, &query)).await
}
