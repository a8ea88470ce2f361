//! The members of an organisation (docs/specification.md C3).

use axum::extract::{RawQuery, State};
use axum::http::StatusCode;
use serde::Deserialize;
use serde_json::Value;

use super::OrgDeps;
use crate::api::body::Json;
use crate::api::callers::MemberCaller;
use crate::api::error::{ApiError, ApiResult, Code};
use crate::api::listing::PageRequest;
use crate::api::params::PathOf;
use crate::api::routes::{Auth, Login, Routes};
use crate::api::views::member::member_json;
use crate::identity::{Identity, Member, Role, UserId};

/// The routes, relative to `/api/v1`.
pub fn routes() -> Routes<OrgDeps> {
    Routes::new()
        .get(
            "/orgs/{slug}/members",
            Auth::Member(Role::Viewer, Login::Any),
            "List the members of an organisation",
            list,
        )
        .patch(
            "/orgs/{slug}/members/{user_id}",
            Auth::Member(Role::Admin, Login::Any),
            "Change the role of a member",
            change,
        )
        .delete(
            "/orgs/{slug}/members/{user_id}",
            Auth::OneselfOr(Role::Admin),
            "Remove a member, or leave an organisation",
            remove,
        )
}

/// Parses the field `role`.
///
/// # Errors
/// 422 `validation_failed`.
pub(super) fn role(text: &str) -> ApiResult<Role> {
    let form = || ApiError::invalid_field("role", "form", "must be viewer, editor, admin or owner");
    Role::parse(text).ok_or_else(form)
}

fn unknown_member() -> ApiError {
    ApiError::new(Code::NotFound, "there is no such member of this organisation")
}

async fn list(
    State(deps): State<OrgDeps>,
    caller: MemberCaller,
    RawQuery(query): RawQuery,
) -> ApiResult<Json<Value>> {
    let page = PageRequest::of_query(query.as_deref())?;
    let (org, role, now) = (caller.org().id, caller.role(), deps.clock.now());
    let read = move |identity: &Identity| {
        let members = identity.members(org, now)?;
        page.answer(&members, |member| (member.joined_at, member.user.id), |member| to_json(member, role))
    };
    deps.read(org, read).await
}

/// Encodes a member for a caller with the role `caller`. Two fields are for administrators only.
fn to_json(member: &Member, caller: Role) -> Value {
    let mut row = member_json(member);
    if caller.allows(Role::Admin) {
        row["twofa_enabled"] = member.user.twofa_enabled.into();
        row["last_seen_at"] = member.last_seen_at.map(|at| at.to_rfc3339()).into();
    }
    row
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct ChangeRoleBody {
    role: String,
}

async fn change(
    State(deps): State<OrgDeps>,
    caller: MemberCaller,
    PathOf((_, user)): PathOf<(String, String)>,
    Json(body): Json<ChangeRoleBody>,
) -> ApiResult<Json<Value>> {
    let user: UserId = user.parse().map_err(|_| unknown_member())?;
    let role = role(&body.role)?;
    let (actor, org, now) = (caller.user(), caller.org().id, deps.clock.now());
    deps.change(&caller, move |identity| identity.change_role(Some(actor), org, user, role, now)).await?;
    let member = deps.identity.member(org, user, now)?.ok_or_else(unknown_member)?;
    Ok(Json(to_json(&member, caller.role())))
}

async fn remove(
    State(deps): State<OrgDeps>,
    caller: MemberCaller,
    PathOf((_, user)): PathOf<(String, String)>,
) -> ApiResult<StatusCode> {
    let user: UserId = user.parse().map_err(|_| unknown_member())?;
    let (actor, org, now) = (caller.user(), caller.org().id, deps.clock.now());
    deps.change(&caller, move |identity| identity.remove_member(Some(actor), org, user, now)).await?;
    Ok(StatusCode::NO_CONTENT)
}
