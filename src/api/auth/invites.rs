//! Invitations, for the invited person (docs/specification.md C2).

use axum::extract::State;
use axum::http::StatusCode;
use axum::response::{IntoResponse, Response};
use serde::Deserialize;
use serde_json::{Value, json};

use super::{AuthDeps, org_json, session_json, user_json};
use crate::api::body::Json;
use crate::api::callers::AnyCaller;
use crate::api::error::{ApiError, ApiResult};
use crate::api::lanes::Lane;
use crate::entropy::Entropy;
use crate::identity::{AcceptError, AcceptInvite, Accepted, LoginOutcome, Password};

#[derive(Deserialize)]
pub(super) struct LookupBody {
    token: String,
}

/// Serves POST /auth/invites/lookup. Does not use up the link.
pub(super) async fn lookup(
    State(deps): State<AuthDeps>,
    _caller: AnyCaller,
    Json(body): Json<LookupBody>,
) -> ApiResult<Json<Value>> {
    let found = deps.identity.invitation(&body.token, deps.clock.now())?.ok_or(AcceptError::Invalid)?;
    Ok(Json(json!({
        "org": { "slug": found.org.slug.as_str(), "name": found.org.name },
        "email": found.email.as_str(),
        "role": found.role.as_str(),
        "account_exists": found.account_exists,
    })))
}

#[derive(Deserialize)]
pub(super) struct AcceptBody {
    token: String,
    name: Option<String>,
    password: Option<String>,
}

/// Serves POST /auth/invites/accept. Returns 201 and a session for a new account, 200 for one that
/// was logged in. An address in the body is ignored: the account is the invited one
/// (docs/specification.md F20).
pub(super) async fn accept(
    State(deps): State<AuthDeps>,
    caller: AnyCaller,
    Json(body): Json<AcceptBody>,
) -> ApiResult<Response> {
    let now = deps.clock.now();
    let client = caller.client().clone();
    let session = caller.session().map(|(session, cookie)| (session.clone(), cookie.to_owned()));
    let for_change = session.clone();
    let accepted = deps
        .change(Lane::Password, move |identity| {
            let attempt = AcceptInvite {
                token: &body.token,
                name: body.name.as_deref(),
                password: body.password.as_deref().map(Password),
                session: for_change.as_ref().map(|(session, _)| &**session),
                client: &client,
                replaces: for_change.as_ref().map(|(_, cookie)| cookie.as_str()),
            };
            identity.accept_invite(&attempt, now, &mut Entropy::system())
        })
        .await?;
    match (accepted, session) {
        (Accepted::Made(LoginOutcome::LoggedIn(login)), _) => Ok(deps.logged_in(StatusCode::CREATED, &login)),
        (Accepted::Made(pending), _) => Ok(deps.outcome(&pending)),
        (Accepted::Joined(user), Some((session, _))) => {
            let account = deps.identity.user(user)?;
            // The account may have been deleted just now.
            let account = account.ok_or(AcceptError::Invalid)?;
            let orgs = deps.identity.memberships(user)?;
            let answer = json!({
                "requires_2fa": false,
                "user": user_json(&account),
                "orgs": orgs.iter().map(org_json).collect::<Vec<_>>(),
                "session": session_json(&session),
            });
            Ok(Json(answer).into_response())
        }
        (Accepted::Joined(_), None) => Err(ApiError::internal("an account joined without a session")),
    }
}
