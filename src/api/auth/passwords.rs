//! A new password (docs/specification.md C2).

use std::sync::Arc;

use axum::extract::State;
use axum::http::StatusCode;
use axum::response::Response;
use serde::Deserialize;
use serde_json::{Value, json};

use super::AuthDeps;
use super::mailed::Admitted;
use crate::api::body::Json;
use crate::api::callers::{Cabinet, Visitor};
use crate::api::error::ApiResult;
use crate::api::lanes::Lane;
use crate::entropy::Entropy;
use crate::identity::{LINK_TTL, LinkProof, LinkRequest, Password, PasswordChange, PasswordReset};
use crate::outbound::MailKind;

#[derive(Deserialize)]
pub(super) struct ChangeBody {
    current_password: Option<String>,
    new_password: String,
}

/// POST /auth/password/change: a new session; all others and the links under way end.
pub(super) async fn change(
    State(deps): State<AuthDeps>,
    cabinet: Cabinet,
    visitor: Visitor,
    Json(body): Json<ChangeBody>,
) -> ApiResult<Response> {
    let (session, client, now) = (Arc::clone(cabinet.session()), visitor.client().clone(), deps.clock.now());
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
pub(super) struct RequestBody {
    email: String,
}

/// POST /auth/password/reset/request: 202 whether the account exists or not.
pub(super) async fn request_reset(
    State(deps): State<AuthDeps>,
    visitor: Visitor,
    Json(body): Json<RequestBody>,
) -> ApiResult<Response> {
    let asked = deps.asked(&visitor, &body.email)?;
    let response = asked.accepted(&deps, LINK_TTL);
    let admitted = asked.admitted;
    if admitted == Admitted::No {
        return Ok(response);
    }
    let now = deps.clock.now();
    let link = deps
        .change(Lane::Account, move |identity| {
            let request = LinkRequest { email: &asked.email, redirect: None, browser: Some(&asked.browser) };
            identity.request_reset(&request, now, &mut Entropy::system())
        })
        .await?;
    if let Some(link) = link {
        deps.send_link(MailKind::PasswordReset, &link, admitted, now);
    }
    Ok(response)
}

#[derive(Deserialize)]
pub(super) struct ConfirmBody {
    token: String,
    email: Option<String>,
    new_password: String,
}

/// POST /auth/password/reset/confirm: no session comes of it, and the second factor stays.
pub(super) async fn confirm_reset(
    State(deps): State<AuthDeps>,
    visitor: Visitor,
    Json(body): Json<ConfirmBody>,
) -> ApiResult<Json<Value>> {
    let (client, now) = (visitor.client().clone(), deps.clock.now());
    let cookie = visitor.magic_link_cookie().map(str::to_owned);
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
