//! The stored versions of a dashboard.

use axum::extract::{RawQuery, State};
use axum::http::HeaderMap;
use axum::response::{IntoResponse, Response};
use serde_json::Value;

use super::{READS, WRITES, Whole, changed, not_found, raw};
use crate::api::body::Json;
use crate::api::callers::MemberCaller;
use crate::api::error::ApiResult;
use crate::api::listing::PageRequest;
use crate::api::orgs::OrgDeps;
use crate::api::orgs::etag::{etag, etag_header, required_if_match};
use crate::api::params::PathOf;
use crate::api::routes::Routes;
use crate::api::views::dashboard::dashboard_version_json;
use crate::identity::{DashboardError, Identity};

/// The routes, relative to `/api/v1`.
pub(super) fn routes() -> Routes<OrgDeps> {
    Routes::new()
        .get("/orgs/{slug}/dashboards/{uid}/versions", READS, "List the versions of a dashboard", list)
        .get("/orgs/{slug}/dashboards/{uid}/versions/{version}", READS, "Get a version of a dashboard", show)
        .post(
            "/orgs/{slug}/dashboards/{uid}/versions/{version}/restore",
            WRITES,
            "Store a version of a dashboard again as its newest",
            restore,
        )
}

/// Lists the versions, the newest first.
async fn list(
    State(deps): State<OrgDeps>,
    caller: MemberCaller,
    PathOf((_, uid)): PathOf<(String, String)>,
    RawQuery(query): RawQuery,
) -> ApiResult<Json<Value>> {
    let page = PageRequest::of_query(query.as_deref())?;
    let org = caller.org().id;
    let read = move |identity: &Identity| {
        let versions = match identity.dashboard_versions(org, &uid)? {
            Some(versions) => versions,
            // A file has no older versions here.
            None if identity.provisioned_dashboards().contains_key(&uid) => Vec::new(),
            None => return Err(not_found()),
        };
        page.answer(&versions, |version| std::cmp::Reverse(version.version), dashboard_version_json)
    };
    deps.read(org, read).await
}

fn number(text: &str) -> ApiResult<u32> {
    text.parse().map_err(|_| not_found())
}

async fn show(
    State(deps): State<OrgDeps>,
    caller: MemberCaller,
    PathOf((_, uid, version)): PathOf<(String, String, String)>,
) -> ApiResult<Response> {
    let (org, version) = (caller.org().id, number(&version)?);
    let read = move |identity: &Identity| {
        let versions = identity.dashboard_versions(org, &uid)?.ok_or_else(not_found)?;
        let found = versions.iter().find(|one| one.version == version);
        let text = match found {
            Some(_) => identity.dashboard_text(org, &uid, version)?,
            None => None,
        };
        let (found, text) = found.zip(text).ok_or(DashboardError::NoVersion(version))?;
        let whole = Whole { meta: dashboard_version_json(found), dashboard: raw(text)? };
        Ok((etag_header(&etag(version)), Json(whole)).into_response())
    };
    deps.read(org, read).await
}

async fn restore(
    State(deps): State<OrgDeps>,
    caller: MemberCaller,
    PathOf((_, uid, version)): PathOf<(String, String, String)>,
    headers: HeaderMap,
) -> ApiResult<Response> {
    let (org, user, now) = (caller.org().id, caller.user(), deps.clock.now());
    let (version, expected) = (number(&version)?, required_if_match(&headers)?);
    deps.limits.charge_dashboard(org)?;
    let restore = move |identity: &Identity| -> ApiResult<Response> {
        let stored = identity.restore_dashboard(org, Some(user), &uid, version, expected, now)?;
        changed(identity, org, user, &stored)
    };
    deps.change(&caller, restore).await
}
