//! Organisations (API.md C3).

use axum::extract::State;
use axum::http::StatusCode;
use axum::response::{IntoResponse, Response};
use serde::Deserialize;
use serde_json::{Value, json};

use super::OrgDeps;
use crate::api::body::Json;
use crate::api::callers::Cabinet;
use crate::api::error::{ApiResult, identity::slug};
use crate::api::params::PathOf;
use crate::api::routes::{Auth, Routes};
use crate::entropy::Entropy;
use crate::identity::{Limit, Membership, NewOrg, OrgSettings, Role};
use crate::model::OrgSlug;

/// Relative to `/api/v1`.
pub fn routes() -> Routes<OrgDeps> {
    Routes::new()
        .get("/orgs", Auth::Session, "The organisations you belong to", list)
        .post("/orgs", Auth::Session, "Make an organisation", create)
        .get("/orgs/{slug}", Auth::Session, "One organisation, its settings and what it uses", show)
}

async fn list(State(deps): State<OrgDeps>, cabinet: Cabinet) -> ApiResult<Json<Value>> {
    let members = deps.identity.memberships(cabinet.user())?;
    let rows = members.iter().map(|member| {
        json!({
            "slug": member.org.slug.as_str(),
            "name": member.org.name,
            "role": member.role.as_str(),
            "created_at": member.org.created_at.to_rfc3339(),
        })
    });
    Ok(Json(json!({ "data": rows.collect::<Vec<_>>() })))
}

#[derive(Deserialize)]
struct NewOrgBody {
    slug: String,
    name: Option<String>,
}

async fn create(
    State(deps): State<OrgDeps>,
    cabinet: Cabinet,
    Json(body): Json<NewOrgBody>,
) -> ApiResult<Response> {
    let slug = OrgSlug::parse(&body.slug).map_err(|error| slug("slug", error))?;
    let org = NewOrg { slug, name: body.name.unwrap_or_default() };
    let (user, now) = (cabinet.user(), deps.clock.now());
    let member =
        deps.change(move |identity| identity.create_org(user, org, now, &mut Entropy::system())).await?;
    Ok((StatusCode::CREATED, Json(org_json(&deps, &member))).into_response())
}

async fn show(
    State(deps): State<OrgDeps>,
    cabinet: Cabinet,
    PathOf(slug): PathOf<String>,
) -> ApiResult<Json<Value>> {
    let member = cabinet.enter(&slug, Role::Viewer)?;
    Ok(Json(org_json(&deps, &member)))
}

fn org_json(deps: &OrgDeps, member: &Membership) -> Value {
    let org = &member.org;
    let stats = deps.tsdb.stats();
    let used = stats.orgs.iter().find(|stats| stats.org == org.id);
    json!({
        "id": org.key.to_string(),
        "slug": org.slug.as_str(),
        "name": org.name,
        "role": member.role.as_str(),
        "created_at": org.created_at.to_rfc3339(),
        "settings": settings_json(&org.settings),
        "usage": {
            "series": used.map_or(0, |used| used.series),
            "samples": used.map_or(0, |used| used.samples),
            "bytes": used.map_or(0, |used| used.head_bytes),
        },
    })
}

/// `null` is the server's default, `"none"` no limit.
fn limit_json(limit: Limit) -> Value {
    match limit {
        Limit::Default => Value::Null,
        Limit::Unlimited => "none".into(),
        Limit::At(number) => number.into(),
    }
}

fn settings_json(settings: &OrgSettings) -> Value {
    json!({
        "retention_days": limit_json(settings.retention_days),
        "retention_bytes": limit_json(settings.retention_bytes),
        "max_series": limit_json(settings.max_series),
        "max_new_series_per_s": limit_json(settings.max_new_series_per_s),
        "max_labels": limit_json(settings.max_labels),
        "max_label_value_bytes": limit_json(settings.max_label_value_bytes),
        "max_disk_bytes": limit_json(settings.max_disk_bytes),
        "max_memory_bytes": limit_json(settings.max_memory_bytes),
        "max_samples_per_query": limit_json(settings.max_samples_per_query),
        "query_timeout_s": limit_json(settings.query_timeout_s),
        "ooo_window_s": limit_json(settings.ooo_window_s),
    })
}
