//! The account: name, address, deletion (docs/specification.md C2).

use std::sync::Arc;

use axum::extract::State;
use axum::http::StatusCode;
use axum::response::{IntoResponse, Response};
use serde::Deserialize;
use serde_json::{Value, json};

use super::{AuthDeps, mailed, user_json};
use crate::api::body::Json;
use crate::api::callers::{AnyCaller, SessionCaller};
use crate::api::error::ApiResult;
use crate::api::lanes::Lane;
use crate::entropy::Entropy;
use crate::identity::LINK_TTL;
use crate::outbound::MailKind;

#[derive(Deserialize)]
pub(super) struct RenameBody {
    name: String,
}

/// Serves PATCH /auth/me.
pub(super) async fn rename(
    State(deps): State<AuthDeps>,
    cabinet: SessionCaller,
    Json(body): Json<RenameBody>,
) -> ApiResult<Json<Value>> {
    let user = cabinet.user();
    let user =
        deps.change(Lane::Account, move |identity| identity.rename_user(user, body.name.trim())).await?;
    Ok(Json(user_json(&user)))
}

/// Serves DELETE /auth/me. Returns 409 `last_owner` if an organisation would lose its last owner.
pub(super) async fn delete(
    State(deps): State<AuthDeps>,
    cabinet: SessionCaller,
    caller: AnyCaller,
) -> ApiResult<Response> {
    let (user, client, now) = (cabinet.user(), caller.client().clone(), deps.clock.now());
    deps.change(Lane::Account, move |identity| identity.delete_user(user, &client, now)).await?;
    Ok(deps.signed_out(StatusCode::NO_CONTENT.into_response()))
}

#[derive(Deserialize)]
pub(super) struct EmailChangeBody {
    new_email: String,
}

/// Serves POST /auth/email/change. Returns 202 whether the address is taken or not.
pub(super) async fn change_email(
    State(deps): State<AuthDeps>,
    cabinet: SessionCaller,
    caller: AnyCaller,
    Json(body): Json<EmailChangeBody>,
) -> ApiResult<Response> {
    let new = mailed::address("new_email", &body.new_email)?;
    let admitted = deps.may_mail(&caller, &new)?;
    if admitted == mailed::MailAdmission::No {
        return Ok(mailed::accepted(LINK_TTL));
    }
    let (session, now) = (Arc::clone(cabinet.session()), deps.clock.now());
    let link = deps
        .change(Lane::Account, move |identity| {
            identity.request_email_change(&session, &new, now, &mut Entropy::system())
        })
        .await?;
    if let Some(link) = link {
        deps.send_link(MailKind::EmailConfirm, &link, admitted, now);
    }
    Ok(mailed::accepted(LINK_TTL))
}

#[derive(Deserialize)]
pub(super) struct EmailConfirmBody {
    token: String,
}

/// Serves POST /auth/email/confirm. The reader of the new address need not be logged in. The old
/// address is notified.
pub(super) async fn confirm_email(
    State(deps): State<AuthDeps>,
    caller: AnyCaller,
    Json(body): Json<EmailConfirmBody>,
) -> ApiResult<Json<Value>> {
    let (client, now) = (caller.client().clone(), deps.clock.now());
    let changed =
        deps.change(Lane::Account, move |identity| identity.confirm_email(&body.token, &client, now)).await?;
    deps.notice(changed.old.as_str(), MailKind::EmailChanged, now);
    Ok(Json(json!({ "status": "email_changed", "email": changed.new.as_str() })))
}
