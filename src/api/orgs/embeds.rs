//! The pages that use the embed tokens and public links of an organisation, and the revocation of
//! those of a dashboard (docs/specification.md C4).

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use axum::extract::State;
use axum::http::StatusCode;
use serde_json::{Value, json};

use super::OrgDeps;
use crate::api::body::Json;
use crate::api::callers::MemberCaller;
use crate::api::embed_use::{EmbedRow, EmbedUses, ORG_ROWS_MAX};
use crate::api::error::{ApiError, ApiResult};
use crate::api::params::PathOf;
use crate::api::routes::{Auth, Login, Routes};
use crate::identity::{ApiKey, DashboardError, Identity, KeyId, Role, StoreError};
use crate::model::OrgId;

/// The routes, relative to `/api/v1`.
pub fn routes() -> Routes<OrgDeps> {
    Routes::new()
        .get(
            "/orgs/{slug}/embeds",
            Auth::Member(Role::Admin, Login::Any),
            "List the pages that use embed tokens and public links of an organisation",
            list,
        )
        .post(
            "/orgs/{slug}/dashboards/{uid}/revoke-embeds",
            Auth::Member(Role::Admin, Login::Any),
            "Revoke all embed tokens of a dashboard issued until now, and delete its public links",
            revoke,
        )
}

async fn list(State(deps): State<OrgDeps>, caller: MemberCaller) -> ApiResult<Json<Value>> {
    let (org, uses, now) = (caller.org().id, Arc::clone(&deps.embeds), deps.clock.now());
    let read = move |identity: &Identity| {
        let rows = uses.rows(org, now);
        let uids: BTreeSet<&str> = rows.iter().filter_map(|row| row.dashboard.as_deref()).collect();
        let mut titles = BTreeMap::new();
        for uid in uids {
            titles.insert(uid, title(identity, org, uid)?);
        }
        let used: BTreeSet<KeyId> = rows.iter().map(|row| row.key).collect();
        let keys = identity.keys(org);
        let shown = keys.iter().filter(|key| used.contains(&key.id) || !key.embed.blocked_origins.is_empty());
        let link_name = |row: &EmbedRow| {
            let uid = row.dashboard.as_deref()?.to_owned();
            Some(identity.public_link(&(org, uid, row.key))?.key.name.clone())
        };
        let data: Vec<Value> =
            rows.iter().map(|row| row_json(row, &keys, link_name(row).as_deref(), &titles)).collect();
        Ok::<_, ApiError>(Json(json!({
            "since": uses.since().to_rfc3339(),
            "rows_max": ORG_ROWS_MAX,
            "data": data,
            "keys": shown.map(|key| key_use_json(key, &uses)).collect::<Vec<Value>>(),
        })))
    };
    deps.read(org, read).await
}

/// Returns the title of a stored or provisioned dashboard.
fn title(identity: &Identity, org: OrgId, uid: &str) -> Result<Option<String>, StoreError> {
    let stored = identity.dashboard(org, uid)?.map(|dashboard| dashboard.title);
    let file = || identity.provisioned_dashboards().get(uid).map(|file| file.dashboard.title.clone());
    Ok(stored.or_else(file))
}

fn row_json(
    row: &EmbedRow,
    keys: &[Arc<ApiKey>],
    link_name: Option<&str>,
    titles: &BTreeMap<&str, Option<String>>,
) -> Value {
    let key = keys.iter().find(|key| key.id == row.key);
    let blocked = key
        .zip(row.origin.as_deref())
        .is_some_and(|(key, origin)| key.embed.blocked_origins.iter().any(|blocked| blocked == origin));
    let dashboard = row.dashboard.as_deref().map(|uid| {
        let title = titles.get(uid).and_then(Option::as_deref);
        json!({ "uid": uid, "title": title })
    });
    let (id, key_name) = (row.key.to_string(), key.map(|key| key.name.as_str()));
    let (api_key, public_link) = match row.is_link {
        true => (Value::Null, json!({ "id": id, "name": link_name })),
        false => (json!({ "id": id, "name": key_name }), Value::Null),
    };
    json!({
        "api_key": api_key,
        "public_link": public_link,
        "origin": row.origin,
        "blocked": blocked,
        "dashboard": dashboard,
        "viewers": row.viewers,
        "streams": row.streams,
        "requests": row.requests,
        "refused": row.refused,
        "query_seconds": row.evaluated.as_secs_f64(),
        "samples": row.samples,
        "first_seen_at": row.first_seen.to_rfc3339(),
        "last_seen_at": row.last_seen.to_rfc3339(),
    })
}

fn key_use_json(key: &ApiKey, uses: &EmbedUses) -> Value {
    json!({
        "id": key.id.to_string(),
        "name": key.name,
        "query_seconds_per_minute": key.embed.query_seconds_per_minute,
        "query_seconds_last_minute": uses.evaluated_last_minute(key.id).as_secs_f64(),
        "blocked_origins": key.embed.blocked_origins,
    })
}

async fn revoke(
    State(deps): State<OrgDeps>,
    caller: MemberCaller,
    PathOf((_, uid)): PathOf<(String, String)>,
) -> ApiResult<StatusCode> {
    let (org, user, now) = (caller.org().id, caller.user(), deps.clock.now());
    let revoke = move |identity: &Identity| {
        if !identity.has_dashboard(org, &uid)? {
            return Err(DashboardError::NotFound.into());
        }
        identity.revoke_dashboard_tokens(org, Some(user), &uid, now)?;
        identity.delete_public_links(org, &uid, Some(user), now)?;
        Ok::<_, ApiError>(())
    };
    deps.change(&caller, revoke).await?;
    Ok(StatusCode::NO_CONTENT)
}
