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
use crate::api::orgs::{audit, settings};
use crate::api::params::PathOf;
use crate::api::views::org::orgs_json;
use crate::api::views::server::stats_json;
use crate::identity::OrgChangeError;
use crate::sync::IgnorePoison as _;

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
    // The body may have arrived long after the guard's check.
    cabinet.require_instance_admin()?;
    let now = deps.clock.now();
    let org = deps.identity.org_by_slug(&slug)?.ok_or_else(org_not_found)?.id;
    let change = settings::from_json(&body.settings)?;
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

pub(super) async fn events(State(deps): State<AdminDeps>, uri: Uri) -> ApiResult<Json<Value>> {
    let query = audit::AuditQuery::of(&uri)?;
    deps.read(move |identity| audit::page(identity, None, &query)).await
}
