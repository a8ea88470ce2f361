//! Sessions: the current one, the list, and their end (docs/specification.md C2).

use std::cmp::Reverse;
use std::sync::Arc;

use axum::extract::{RawQuery, State};
use axum::http::{StatusCode, Uri, header};
use axum::response::{IntoResponse, Response};
use serde::Deserialize;
use serde_json::{Value, json};

use super::{AuthDeps, oauth, org_json, session_json, two_factor, user_json};
use crate::api::body::Json;
use crate::api::callers::{AnyCaller, SessionCaller};
use crate::api::error::{ApiError, ApiResult, Code, identity as identity_errors};
use crate::api::lanes::Lane;
use crate::api::listing::PageRequest;
use crate::api::params::PathOf;
use crate::identity::{Identity, Password, Reauth, Session, SessionId};

impl AuthDeps {
    /// Adds the cookie that deletes the browser's session.
    pub(super) fn signed_out(&self, mut response: Response) -> Response {
        response.headers_mut().append(header::SET_COOKIE, self.cookies.no_session());
        response
    }
}

/// Serves POST /auth/logout. Returns 204 with and without a session.
pub(super) async fn logout(State(deps): State<AuthDeps>, caller: AnyCaller) -> ApiResult<Response> {
    if let Some((session, _)) = caller.session() {
        let (session, now) = (Arc::clone(session), deps.clock.now());
        deps.change(Lane::Account, move |identity| identity.end_session(&session, now)).await?;
    }
    Ok(deps.signed_out(StatusCode::NO_CONTENT.into_response()))
}

/// Serves GET /auth/me.
pub(super) async fn me(State(deps): State<AuthDeps>, cabinet: SessionCaller) -> ApiResult<Json<Value>> {
    let user = deps.identity.user(cabinet.user())?;
    let user = user.ok_or_else(|| ApiError::new(Code::SessionInvalid, "this account no longer exists"))?;
    let orgs = deps.identity.memberships(user.id)?;
    let twofa = deps.identity.twofa_status(user.id)?;
    let identities = deps.identity.identities(user.id)?;
    Ok(Json(json!({
        "user": user_json(&user),
        "session": session_json(cabinet.session()),
        "orgs": orgs.iter().map(org_json).collect::<Vec<_>>(),
        "identities": identities.iter().map(oauth::identity_json).collect::<Vec<_>>(),
        "twofa": { "enabled": twofa.enabled, "recovery_codes_left": twofa.recovery_codes_left },
    })))
}

#[derive(Deserialize)]
pub(super) struct ReauthBody {
    password: Option<String>,
    code: Option<String>,
    recovery_code: Option<String>,
}

/// Serves POST /auth/reauth: makes this session fresh for 15 minutes.
pub(super) async fn reauth(
    State(deps): State<AuthDeps>,
    cabinet: SessionCaller,
    caller: AnyCaller,
    Json(body): Json<ReauthBody>,
) -> ApiResult<Json<Value>> {
    let (session, client, now) = (Arc::clone(cabinet.session()), caller.client().clone(), deps.clock.now());
    let again = move |identity: &Identity| -> ApiResult<()> {
        let (given, throttled) = match body.password.as_deref() {
            Some(password) => (Reauth::Password(Password(password)), Code::LoginThrottled),
            None if body.code.is_none() && body.recovery_code.is_none() => {
                let message = "send password, code or recovery_code";
                return Err(ApiError::invalid_field("password", "required", message));
            }
            None => {
                let factor = two_factor::factor(body.code.as_deref(), body.recovery_code.as_deref())?;
                (Reauth::Factor(factor), Code::TwofaThrottled)
            }
        };
        identity
            .reauth(&session, given, &client, now)
            .map_err(|error| identity_errors::reauth(error, throttled))
    };
    deps.change(Lane::Password, again).await?;
    Ok(Json(json!({ "auth_time": cabinet.session().auth_time().to_rfc3339() })))
}

/// Serves GET /auth/sessions, the newest first. They are not sorted by last use, which may change
/// between two pages.
pub(super) async fn list(
    State(deps): State<AuthDeps>,
    cabinet: SessionCaller,
    RawQuery(query): RawQuery,
) -> ApiResult<Json<Value>> {
    let page = PageRequest::of_query(query.as_deref())?;
    let mut sessions = deps.identity.sessions(cabinet.user(), deps.clock.now());
    let key = |session: &Arc<Session>| Reverse((session.created_at, session.id));
    sessions.sort_by_key(key);
    page.answer(&sessions, key, |session| {
        let mut row = session_json(session);
        row["last_seen_at"] = session.last_seen().to_rfc3339().into();
        row["ip"] = session.client.ip.to_string().into();
        row["user_agent"] = session.client.user_agent.as_str().into();
        row["current"] = (session.id == cabinet.session().id).into();
        row
    })
}

/// Serves DELETE /auth/sessions/{id}. Returns 404 for a session of another user.
pub(super) async fn revoke(
    State(deps): State<AuthDeps>,
    cabinet: SessionCaller,
    PathOf(id): PathOf<String>,
) -> ApiResult<Response> {
    let not_found = || ApiError::new(Code::NotFound, "you have no such session");
    let id: SessionId = id.parse().map_err(|_| not_found())?;
    let (user, now) = (cabinet.user(), deps.clock.now());
    if !deps.change(Lane::Account, move |identity| identity.revoke_session(user, id, now)).await? {
        return Err(not_found());
    }
    let response = StatusCode::NO_CONTENT.into_response();
    Ok(if id == cabinet.session().id { deps.signed_out(response) } else { response })
}

/// Serves DELETE /auth/sessions: ends all other sessions, with `?include_current=true` all.
pub(super) async fn revoke_all(
    State(deps): State<AuthDeps>,
    cabinet: SessionCaller,
    uri: Uri,
) -> ApiResult<Response> {
    let mut all = false;
    for (name, value) in form_urlencoded::parse(uri.query().unwrap_or_default().as_bytes()) {
        if name == "include_current" {
            all = match &*value {
                "true" => true,
                "false" => false,
                _ => return Err(ApiError::invalid_parameter("include_current", "is true or false")),
            };
        }
    }
    let (user, now) = (cabinet.user(), deps.clock.now());
    let keep = (!all).then_some(cabinet.session().id);
    let revoked =
        deps.change(Lane::Account, move |identity| identity.revoke_sessions(user, keep, now)).await?;
    let response = Json(json!({ "revoked": revoked })).into_response();
    Ok(if all { deps.signed_out(response) } else { response })
}
