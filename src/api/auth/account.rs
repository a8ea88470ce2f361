//! The account itself: name, address, end (docs/specification.md C2).

use std::sync::Arc;

use axum::extract::State;
use axum::http::StatusCode;
use axum::response::{IntoResponse, Response};
use serde::Deserialize;
use serde_json::{Value, json};

use super::{AuthDeps, mailed, user_json};
use crate::api::body::Json;
use crate::api::callers::{Cabinet, Visitor};
use crate::api::error::ApiResult;
use crate::api::lanes::Lane;
use crate::entropy::Entropy;
use crate::identity::LINK_TTL;
use crate::outbound::MailKind;

#[derive(Deserialize)]
pub(super) struct RenameBody {
    name: String,
}

/// PATCH /auth/me.
pub(super) async fn rename(
    State(deps): State<AuthDeps>,
    cabinet: Cabinet,
    Json(body): Json<RenameBody>,
) -> ApiResult<Json<Value>> {
    let user = cabinet.user();
    let user =
        deps.change(Lane::Account, move |identity| identity.rename_user(user, body.name.trim())).await?;
    Ok(Json(user_json(&user)))
}

/// DELETE /auth/me: fresh sessions only; 409 `last_owner` where an organisation would have no owner.
pub(super) async fn delete(
    State(deps): State<AuthDeps>,
    cabinet: Cabinet,
    visitor: Visitor,
) -> ApiResult<Response> {
    cabinet.require_fresh()?;
    let (user, client, now) = (cabinet.user(), visitor.client().clone(), deps.clock.now());
    deps.change(Lane::Account, move |identity| identity.delete_user(user, &client, now)).await?;
    Ok(deps.signed_out(StatusCode::NO_CONTENT.into_response()))
}

#[derive(Deserialize)]
pub(super) struct ChangeBody {
    new_email: String,
}

/// POST /auth/email/change: fresh sessions only; 202 whether somebody has the address or not.
pub(super) async fn change_email(
    State(deps): State<AuthDeps>,
    cabinet: Cabinet,
    visitor: Visitor,
    Json(body): Json<ChangeBody>,
) -> ApiResult<Response> {
    cabinet.require_fresh()?;
    let new = mailed::address("new_email", &body.new_email)?;
    let admitted = deps.may_mail(&visitor, &new)?;
    if admitted == mailed::Admitted::No {
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
pub(super) struct ConfirmBody {
    token: String,
}

/// POST /auth/email/confirm: who reads the new address need not be logged in; the old address is told.
pub(super) async fn confirm_email(
    State(deps): State<AuthDeps>,
    visitor: Visitor,
    Json(body): Json<ConfirmBody>,
) -> ApiResult<Json<Value>> {
    let (client, now) = (visitor.client().clone(), deps.clock.now());
    let changed =
        deps.change(Lane::Account, move |identity| identity.confirm_email(&body.token, &client, now)).await?;
    deps.notice(changed.old.as_str(), MailKind::EmailChanged, now);
    Ok(Json(json!({ "status": "email_changed", "email": changed.new.as_str() })))
}
