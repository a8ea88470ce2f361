//! The public links of a dashboard (docs/specification.md C9).
//!
//! Every request object restricts a link, so an unknown field is refused with 422, as for keys.

use std::sync::Arc;

use axum::extract::{RawQuery, State};
use axum::http::StatusCode;
use axum::response::{IntoResponse, Response};
use serde::Deserialize;
use serde_json::{Value, json};

use super::{WRITES, not_found};
use crate::api::body::Json;
use crate::api::callers::MemberCaller;
use crate::api::error::{ApiError, ApiResult};
use crate::api::listing::PageRequest;
use crate::api::orgs::OrgDeps;
use crate::api::orgs::api_keys::{null_or_value, time};
use crate::api::params::PathOf;
use crate::api::routes::Routes;
use crate::api::views::public_link::public_link_json;
use crate::entropy::Entropy;
use crate::identity::{
    DashboardPolicy, EmbedPolicy, Identity, LINK_QUERY_SECONDS_DEFAULT, LINK_RATE_DEFAULT, LinkKey,
    NewPublicLink, PublicLink, PublicLinkChange, PublicLinkError,
};
use crate::model::OrgId;

/// The routes, relative to `/api/v1`.
pub(super) fn routes() -> Routes<OrgDeps> {
    Routes::new()
        .get("/orgs/{slug}/dashboards/{uid}/links", WRITES, "List the public links of a dashboard", list)
        .post("/orgs/{slug}/dashboards/{uid}/links", WRITES, "Create a public link of a dashboard", create)
        .patch("/orgs/{slug}/dashboards/{uid}/links/{id}", WRITES, "Change a public link", change)
        .delete(
            "/orgs/{slug}/dashboards/{uid}/links/{id}",
            WRITES,
            "Delete a public link; it becomes invalid at once",
            delete,
        )
}

/// Lists the links, the oldest first. Links to the dashboard of a removed file can still be listed
/// and deleted.
async fn list(
    State(deps): State<OrgDeps>,
    caller: MemberCaller,
    PathOf((_, uid)): PathOf<(String, String)>,
    RawQuery(query): RawQuery,
) -> ApiResult<Json<Value>> {
    let page = PageRequest::of_query(query.as_deref())?;
    let (org, public_url) = (caller.org().id, deps.public_url.clone());
    let read = move |identity: &Identity| {
        let links = identity.public_links(org, &uid);
        if links.is_empty() && !identity.has_dashboard(org, &uid)? {
            return Err(not_found());
        }
        let key = |link: &Arc<PublicLink>| (link.key.created_at, link.key.id);
        page.answer(&links, key, |link| public_link_json(identity, link, &public_url))
    };
    deps.read(org, read).await
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct NewLinkBody {
    name: Option<String>,
    locked: Option<Value>,
    open: Option<Value>,
    max_range_s: Option<u64>,
    max_lookback_s: Option<u64>,
    min_step_s: Option<u64>,
    origins: Option<Vec<String>>,
    rate_limit_rps: Option<u32>,
    query_seconds_per_minute: Option<u32>,
    expires_at: Option<String>,
}

async fn create(
    State(deps): State<OrgDeps>,
    caller: MemberCaller,
    PathOf((_, uid)): PathOf<(String, String)>,
    Json(body): Json<NewLinkBody>,
) -> ApiResult<Response> {
    let (org, user, now) = (caller.org().id, caller.user(), deps.clock.now());
    if !deps.identity.org_settings(org).public_links {
        return Err(PublicLinkError::Off.into());
    }
    let locked = variables(&uid, "locked", body.locked)?.map(|policy| policy.locked);
    let open = variables(&uid, "open", body.open)?.map(|policy| policy.open);
    let new = NewPublicLink {
        name: body.name.unwrap_or_default(),
        dashboard: DashboardPolicy {
            uid,
            locked: locked.unwrap_or_default(),
            open: open.unwrap_or_default(),
        },
        max_range_s: body.max_range_s,
        max_lookback_s: body.max_lookback_s,
        min_step_s: body.min_step_s,
        origins: body.origins.unwrap_or_else(|| vec!["*".to_owned()]),
        rate_limit_rps: body.rate_limit_rps.unwrap_or(LINK_RATE_DEFAULT),
        query_seconds_per_minute: body.query_seconds_per_minute.unwrap_or(LINK_QUERY_SECONDS_DEFAULT),
        expires_at: body.expires_at.as_deref().map(time).transpose()?,
    };
    let public_url = deps.public_url.clone();
    let create = move |identity: &Identity| -> ApiResult<Response> {
        let made = identity.create_public_link(org, Some(user), new, now, &mut Entropy::system())?;
        let shown = public_link_json(identity, &made, &public_url);
        Ok((StatusCode::CREATED, Json(shown)).into_response())
    };
    deps.change(&caller, create).await
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct ChangeLinkBody {
    name: Option<String>,
    locked: Option<Value>,
    open: Option<Value>,
    #[serde(default, deserialize_with = "null_or_value")]
    max_range_s: Option<Option<u64>>,
    #[serde(default, deserialize_with = "null_or_value")]
    max_lookback_s: Option<Option<u64>>,
    #[serde(default, deserialize_with = "null_or_value")]
    min_step_s: Option<Option<u64>>,
    origins: Option<Vec<String>>,
    rate_limit_rps: Option<u32>,
    query_seconds_per_minute: Option<u32>,
    #[serde(default, deserialize_with = "null_or_value")]
    expires_at: Option<Option<String>>,
    disabled: Option<bool>,
}

async fn change(
    State(deps): State<OrgDeps>,
    caller: MemberCaller,
    PathOf((_, uid, id)): PathOf<(String, String, String)>,
    Json(body): Json<ChangeLinkBody>,
) -> ApiResult<Json<Value>> {
    let (user, now) = (caller.user(), deps.clock.now());
    let key = link_key(caller.org().id, &uid, &id)?;
    let change = PublicLinkChange {
        name: body.name,
        locked: variables(&uid, "locked", body.locked)?.map(|policy| policy.locked),
        open: variables(&uid, "open", body.open)?.map(|policy| policy.open),
        max_range_s: body.max_range_s,
        max_lookback_s: body.max_lookback_s,
        min_step_s: body.min_step_s,
        origins: body.origins,
        rate_limit_rps: body.rate_limit_rps,
        query_seconds_per_minute: body.query_seconds_per_minute,
        expires_at: body.expires_at.map(|at| at.as_deref().map(time).transpose()).transpose()?,
        disabled: body.disabled,
    };
    let public_url = deps.public_url.clone();
    let change = move |identity: &Identity| -> ApiResult<Json<Value>> {
        let changed = identity.change_public_link(&key, Some(user), change, now)?;
        Ok(Json(public_link_json(identity, &changed, &public_url)))
    };
    deps.change(&caller, change).await
}

async fn delete(
    State(deps): State<OrgDeps>,
    caller: MemberCaller,
    PathOf((_, uid, id)): PathOf<(String, String, String)>,
) -> ApiResult<StatusCode> {
    let (user, now) = (caller.user(), deps.clock.now());
    let key = link_key(caller.org().id, &uid, &id)?;
    deps.change(&caller, move |identity| identity.delete_public_link(&key, Some(user), now)).await?;
    Ok(StatusCode::NO_CONTENT)
}

fn link_key(org: OrgId, uid: &str, id: &str) -> ApiResult<LinkKey> {
    let unknown = || ApiError::from(PublicLinkError::NotFound("this dashboard has no such public link"));
    Ok((org, uid.to_owned(), id.parse().map_err(|_| unknown())?))
}

/// Parses `locked` or `open`, in the form that the restriction `dashboard` of a token has.
fn variables(uid: &str, field: &'static str, sent: Option<Value>) -> ApiResult<Option<DashboardPolicy>> {
    let Some(sent) = sent else { return Ok(None) };
    let policy = EmbedPolicy::from_json(&json!({ "dashboard": { "uid": uid, field: sent } }));
    let policy = policy.map_err(|message| ApiError::invalid_field(field, "invalid", message))?;
    Ok(policy.dashboard)
}
