//! Changes and resets of passwords (docs/specification.md C2).

use std::sync::Arc;

use axum::extract::State;
use axum::http::StatusCode;
use axum::response::Response;
use serde::Deserialize;
use serde_json::{Value, json};

use super::AuthDeps;
use super::mailed::MailAdmission;
use crate::api::body::Json;
use crate::api::callers::{AnyCaller, SessionCaller};
use crate::api::error::ApiResult;
use crate::api::lanes::Lane;
use crate::entropy::Entropy;
use crate::identity::{LINK_TTL, LinkProof, LinkRequest, Password, PasswordChange, PasswordReset};
use crate::outbound::MailKind;

#[derive(Deserialize)]
pub(super) struct PasswordChangeBody {
    current_password: Option<String>,
    new_password: String,
}

/// Serves POST /auth/password/change. Returns a new session; all other sessions and pending links
/// end.
pub(super) async fn change(
    State(deps): State<AuthDeps>,
    cabinet: SessionCaller,
    caller: AnyCaller,
    Json(body): Json<PasswordChangeBody>,
) -> ApiResult<Response> {
    let (session, client, now) = (Arc::clone(cabinet.session()), caller.client().clone(), deps.clock.now());
    let login = deps
        .change(Lane::Password, move |identity| {
            let request = PasswordChange {
                current: body.current_password.as_deref().map(Password),
                new: Password(&body.new_password),
                client: &client,
            };
            identity.change_password(&session, &request, now, &mut Entropy::system())
        })
        .await?;
    deps.notice(login.user.email.as_str(), MailKind::PasswordChanged, now);
    Ok(deps.logged_in(StatusCode::OK, &login))
}

#[derive(Deserialize)]
pub(super) struct ResetRequestBody {
    email: String,
}

/// Serves POST /auth/password/reset/request. Returns 202 whether the account exists or not.
pub(super) async fn request_reset(
    State(deps): State<AuthDeps>,
    caller: AnyCaller,
    Json(body): Json<ResetRequestBody>,
) -> ApiResult<Response> {
    let mail_request = deps.mail_request(&caller, &body.email)?;
    let response = mail_request.accepted(&deps, LINK_TTL);
    let admitted = mail_request.admitted;
    if admitted == MailAdmission::No {
        return Ok(response);
    }
    let now = deps.clock.now();
    let link = deps
        .change(Lane::Account, move |identity| {
            let request = LinkRequest {
                email: &mail_request.email,
                redirect: None,
                browser: Some(&mail_request.browser),
            };
            identity.request_reset(&request, now, &mut Entropy::system())
        })
        .await?;
    if let Some(link) = link {
        deps.send_link(MailKind::PasswordReset, &link, admitted, now);
    }
    Ok(response)
}

#[derive(Deserialize)]
pub(super) struct ResetConfirmBody {
    token: String,
    email: Option<String>,
    new_password: String,
}

/// Serves POST /auth/password/reset/confirm. Creates no session and keeps the second factor.
pub(super) async fn confirm_reset(
    State(deps): State<AuthDeps>,
    caller: AnyCaller,
    Json(body): Json<ResetConfirmBody>,
) -> ApiResult<Json<Value>> {
    let (client, now) = (caller.client().clone(), deps.clock.now());
    let cookie = caller.magic_link_cookie().map(str::to_owned);
    let address = deps
        .change(Lane::Password, move |identity| {
            let request = PasswordReset {
                token: &body.token,
                proof: LinkProof::Browser { cookie: cookie.as_deref(), email: body.email.as_deref() },
                new: Password(&body.new_password),
                client: &client,
            };
            identity.reset_password(&request, now, &mut Entropy::system())
        })
        .await?;
    deps.notice(address.as_str(), MailKind::PasswordWasReset, now);
    Ok(Json(json!({ "status": "password_changed" })))
}
