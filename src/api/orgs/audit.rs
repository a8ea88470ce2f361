//! The audit log of an organisation, and of the server itself (docs/specification.md C3).

use std::collections::HashMap;

use axum::extract::State;
use axum::http::Uri;
use serde_json::{Map, Value, json};

use super::OrgDeps;
use crate::api::body::Json;
use crate::api::callers::MemberCaller;
use crate::api::error::{ApiError, ApiResult};
use crate::api::params::Params;
use crate::api::routes::{Auth, Login, Routes};
use crate::identity::{AuditCursor, AuditEntry, Identity, Role, UserId};
use crate::model::{OrgId, Timestamp};

/// The route, relative to `/api/v1`.
pub fn routes() -> Routes<OrgDeps> {
    Routes::new().get(
        "/orgs/{slug}/audit",
        Auth::Member(Role::Admin, Login::Any),
        "List the audit log of an organisation",
        list,
    )
}

/// The default number of entries of a page.
const LIMIT_DEFAULT: usize = 50;
/// The most entries of a page, inclusive.
const LIMIT_MAX: usize = 1_000;

async fn list(State(deps): State<OrgDeps>, caller: MemberCaller, uri: Uri) -> ApiResult<Json<Value>> {
    let org = caller.org().id;
    let query = AuditQuery::of(&uri)?;
    deps.read(org, move |identity| page(identity, Some(org), &query)).await
}

/// The parameters of a page of the audit log.
pub struct AuditQuery {
    limit: usize,
    cursor: Option<AuditCursor>,
    action: Option<String>,
}

impl AuditQuery {
    /// Parses the parameters of a request.
    ///
    /// # Errors
    /// 400 `invalid_parameter`.
    pub fn of(uri: &Uri) -> ApiResult<AuditQuery> {
        let mut params = Params::of_query(uri.query())?;
        let limit = params.count("limit", 1, LIMIT_MAX)?.unwrap_or(LIMIT_DEFAULT);
        let cursor = params.one(&["cursor"])?.map(|text| read_cursor(&text)).transpose()?;
        Ok(AuditQuery { limit, cursor, action: params.one(&["action"])? })
    }
}

/// Returns a page of an organisation's audit log, the newest entry first; without an organisation,
/// of the server's own log. Reads up to 20,000 rows, so the caller runs it on a lane.
///
/// # Errors
/// The errors of the accounts' database.
pub fn page(identity: &Identity, org: Option<OrgId>, query: &AuditQuery) -> ApiResult<Json<Value>> {
    let page = identity.audit_page(org, query.limit, query.cursor, query.action.as_deref())?;
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
                Some(email) => email.clone(),
                None => {
                    let email = identity.user(user)?.map(|user| user.email.as_str().to_owned());
                    addresses.insert(user, email.clone());
                    email
                }
            };
            json!({ "type": "user", "id": user.to_string(), "email": email })
        }
        // An entry without an address comes from the command line or from the server itself.
        (None, Some(key)) if entry.ip.is_some() => {
            json!({ "type": "api_key", "id": key.to_string(), "email": null })
        }
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

/// Returns the result of an action, which the last word of its name implies.
fn result(action: &str) -> &'static str {
    match action.rsplit('.').next() {
        Some("fail" | "rejected") => "failure",
        Some("throttled") => "throttled",
        _ => "success",
    }
}
