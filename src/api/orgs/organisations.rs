//! Organisations (docs/specification.md C3).

use std::sync::Arc;

use axum::extract::{RawQuery, State};
use axum::http::StatusCode;
use axum::response::{IntoResponse, Response};
use serde::Deserialize;
use serde_json::{Map, Value, json};

use super::{OrgDeps, settings};
use crate::api::body::Json;
use crate::api::callers::{MemberCaller, SessionCaller};
use crate::api::error::{ApiError, ApiResult, identity::slug};
use crate::api::lanes::Lane;
use crate::api::listing::PageRequest;
use crate::api::routes::{Auth, Login, Routes};
use crate::api::views::org::{settings_json, usage_json};
use crate::entropy::Entropy;
use crate::identity::{Membership, NewOrg, OrgChange, OrgChangeError, Role};
use crate::model::OrgSlug;
use crate::sync::IgnorePoison as _;

/// The routes, relative to `/api/v1`.
pub fn routes() -> Routes<OrgDeps> {
    Routes::new()
        .get("/orgs", Auth::Account(Login::Any), "List your organisations", list)
        .post("/orgs", Auth::Founder, "Create an organisation", create)
        .get(
            "/orgs/{slug}",
            Auth::Member(Role::Viewer, Login::Any),
            "Get an organisation, its settings and its usage",
            show,
        )
        .patch(
            "/orgs/{slug}",
            Auth::Member(Role::Admin, Login::Any),
            "Change the name or the settings of an organisation",
            change,
        )
        .delete(
            "/orgs/{slug}",
            Auth::Member(Role::Owner, Login::Fresh),
            "Delete an organisation and all its data",
            delete,
        )
}

async fn list(
    State(deps): State<OrgDeps>,
    cabinet: SessionCaller,
    RawQuery(query): RawQuery,
) -> ApiResult<Json<Value>> {
    let page = PageRequest::of_query(query.as_deref())?;
    let members = deps.identity.memberships(cabinet.user())?;
    let slug = |member: &Membership| member.org.slug.as_str().to_owned();
    page.answer(&members, slug, |member| {
        json!({
            "slug": member.org.slug.as_str(),
            "name": member.org.name,
            "role": member.role.as_str(),
            "created_at": member.org.created_at.to_rfc3339(),
        })
    })
}

#[derive(Deserialize)]
struct NewOrgBody {
    slug: String,
    name: Option<String>,
}

async fn create(
    State(deps): State<OrgDeps>,
    cabinet: SessionCaller,
    Json(body): Json<NewOrgBody>,
) -> ApiResult<Response> {
    let slug = OrgSlug::parse(&body.slug).map_err(|error| slug("slug", error))?;
    let org = NewOrg { slug, name: body.name.unwrap_or_default() };
    let (user, now) = (cabinet.user(), deps.clock.now());
    let identity = Arc::clone(&deps.identity);
    let create = move || identity.create_org(user, org, now, &mut Entropy::system());
    let member = deps.lanes.run(Lane::Account, create).await??;
    Ok((StatusCode::CREATED, Json(org_json(&deps, &member))).into_response())
}

async fn show(State(deps): State<OrgDeps>, caller: MemberCaller) -> ApiResult<Json<Value>> {
    Ok(Json(org_json(&deps, caller.membership())))
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct ChangeOrgBody {
    name: Option<String>,
    settings: Option<Map<String, Value>>,
}

async fn change(
    State(deps): State<OrgDeps>,
    caller: MemberCaller,
    Json(body): Json<ChangeOrgBody>,
) -> ApiResult<Json<Value>> {
    let settings = settings::from_json(&body.settings.unwrap_or_default())?;
    let change = OrgChange { name: body.name, ..settings };
    let (org, user, now) = (caller.org().id, caller.user(), deps.clock.now());
    let (tsdb, defaults) = (Arc::clone(&deps.tsdb), Arc::clone(&deps.defaults));
    let applying = Arc::clone(&deps.applying);
    let changed = deps
        .change(&caller, move |identity| {
            let changed = identity.change_org(Some(user), org, change, &defaults, now)?;
            let _one_at_a_time = applying.lock().ignore_poison();
            settings::apply(identity, &tsdb, org);
            Ok::<_, OrgChangeError>(changed)
        })
        .await?;
    Ok(Json(org_json(&deps, &Membership { org: changed, ..caller.membership().clone() })))
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct DeleteBody {
    confirm: String,
}

/// Deletes an organisation (202). Callers lose access at once; its data is removed in the
/// background.
async fn delete(
    State(deps): State<OrgDeps>,
    caller: MemberCaller,
    Json(body): Json<DeleteBody>,
) -> ApiResult<Response> {
    let org = caller.org();
    if body.confirm != org.slug.as_str() {
        let text = format!("must be {:?}, the organisation to be deleted", org.slug.as_str());
        return Err(ApiError::invalid_field("confirm", "mismatch", text));
    }
    let (id, user, now) = (org.id, caller.user(), deps.clock.now());
    deps.change(&caller, move |identity| identity.delete_org(Some(user), id, now)).await?;
    // Running queries of the organisation end without a result.
    deps.active.cancel_all(id);
    deps.embeds.forget(id);
    deps.rules.forget_org(id);
    tracing::info!(org = id.0, slug = org.slug.as_str(), %user, "an organisation was deleted");
    let answer = json!({ "slug": org.slug.as_str(), "status": "deleting" });
    Ok((StatusCode::ACCEPTED, Json(answer)).into_response())
}

fn org_json(deps: &OrgDeps, member: &Membership) -> Value {
    let org = &member.org;
    json!({
        "id": org.key.to_string(),
        "slug": org.slug.as_str(),
        "name": org.name,
        "role": member.role.as_str(),
        "created_at": org.created_at.to_rfc3339(),
        "settings": settings_json(&org.settings),
        "defaults": settings_json(&deps.defaults),
        "usage": usage_json(&deps.tsdb, &deps.tsdb.stats(), org.id, deps.clock.now()),
    })
}
