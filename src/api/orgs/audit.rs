//! The log of events of an organisation, and of the server itself (docs/specification.md C3).

use std::collections::HashMap;

use axum::extract::State;
use axum::http::Uri;
use serde_json::{Map, Value, json};

use super::OrgDeps;
use crate::api::body::Json;
use crate::api::callers::SessionCaller;
use crate::api::error::{ApiError, ApiResult};
use crate::api::params::{Params, PathOf};
use crate::api::routes::{Auth, Login, Routes};
use crate::identity::{AuditCursor, AuditEntry, Identity, Role, UserId};
use crate::model::{OrgId, Timestamp};

/// Relative to `/api/v1`.
pub fn routes() -> Routes<OrgDeps> {
    Routes::new().get(
        "/orgs/{slug}/audit",
        Auth::Member(Role::Admin, Login::Any),
        "What was done in an organisation, and by whom",
        list,
    )
}

/// Entries of a page where the caller does not say, and at most.
const LIMIT: usize = 50;
const LIMIT_MAX: usize = 1_000;

async fn list(
    State(deps): State<OrgDeps>,
    cabinet: SessionCaller,
    PathOf(slug): PathOf<String>,
    uri: Uri,
) -> ApiResult<Json<Value>> {
    let org = cabinet.enter(&slug, Role::Admin)?.org.id;
    let asked = Asked::of(&uri)?;
    deps.read(org, move |identity| page(identity, Some(org), &asked)).await
}

/// The parameters of a page.
pub struct Asked {
    limit: usize,
    cursor: Option<AuditCursor>,
    action: Option<String>,
}

impl Asked {
    /// Reads the parameters of a request.
    ///
    /// # Errors
    /// 400 `invalid_parameter`.
    pub fn of(uri: &Uri) -> ApiResult<Asked> {
        let mut params = Params::of_query(uri.query())?;
        let limit = params.count("limit", 1, LIMIT_MAX)?.unwrap_or(LIMIT);
        let cursor = params.one(&["cursor"])?.map(|text| read_cursor(&text)).transpose()?;
        Ok(Asked { limit, cursor, action: params.one(&["action"])? })
    }
}

/// One page, newest first; of the server itself for no organisation. Reads up to 20,000 rows: work for a lane.
///
/// # Errors
/// Those of the store.
pub fn page(identity: &Identity, org: Option<OrgId>, asked: &Asked) -> ApiResult<Json<Value>> {
    let page = identity.audit_page(org, asked.limit, asked.cursor, asked.action.as_deref())?;
    let mut addresses = HashMap::new();
    let mut rows = Vec::with_capacity(page.entries.len());
    for entry in &page.entries {
        rows.push(to_json(identity, entry, &mut addresses)?);
    }
    Ok(Json(json!({ "data": rows, "next_cursor": page.next.map(written_cursor) })))
}

fn read_cursor(text: &str) -> ApiResult<AuditCursor> {
    let parts = text.split_once('.').and_then(|(at, id)| {
        Some(AuditCursor { at: Timestamp::from_ms(at.parse().ok()?), id: id.parse().ok()? })
    });
    parts.ok_or_else(|| ApiError::invalid_parameter("cursor", "is not the next_cursor of another page"))
}

fn written_cursor(cursor: AuditCursor) -> String {
    format!("{}.{}", cursor.at.as_ms(), cursor.id)
}

fn to_json(
    identity: &Identity,
    entry: &AuditEntry,
    addresses: &mut HashMap<UserId, Option<String>>,
) -> ApiResult<Value> {
    let actor = match (entry.actor, entry.key) {
        (Some(user), _) => {
            let email = match addresses.get(&user) {
                Some(known) => known.clone(),
                None => {
                    let email = identity.user(user)?.map(|user| user.email.as_str().to_owned());
                    addresses.insert(user, email.clone());
                    email
                }
            };
            json!({ "type": "user", "id": user.to_string(), "email": email })
        }
        // One that no request used was used at the command line.
        (None, Some(key)) if entry.ip.is_some() => {
            json!({ "type": "api_key", "id": key.to_string(), "email": null })
        }
        // Whoever came over the network has an address.
        (None, _) => {
            let kind = if entry.ip.is_some() { "anonymous" } else { "system" };
            json!({ "type": kind, "id": null, "email": null })
        }
    };
    let mut meta = Map::new();
    if !entry.detail.is_empty() {
        meta.insert("detail".into(), entry.detail.as_str().into());
    }
    Ok(json!({
        "id": entry.id.to_string(),
        "at": entry.at.to_rfc3339(),
        "actor": actor,
        "action": entry.action,
        "target": entry.target,
        "ip": entry.ip.map(|ip| ip.to_string()),
        "request_id": entry.request_id,
        "result": result(&entry.action),
        "meta": meta,
    }))
}

/// How it ended; the action says it.
fn result(action: &str) -> &'static str {
    match action.rsplit('.').next() {
        Some("fail" | "rejected") => "failure",
        Some("throttled") => "throttled",
        _ => "success",
    }
}
