//! The second factor (API.md C1, C2, D3).

use std::sync::Arc;

use axum::extract::State;
use axum::http::StatusCode;
use axum::response::{IntoResponse, Response};
use serde::Deserialize;
use serde_json::{Value, json};

use super::{AuthDeps, seconds};
use crate::api::body::Json;
use crate::api::callers::{Cabinet, Visitor};
use crate::api::error::{ApiError, ApiResult};
use crate::api::lanes::Lane;
use crate::entropy::Entropy;
use crate::identity::{CodeLogin, Identity, Password, RecoveryCodes, SecondFactor, Secret};

#[derive(Deserialize)]
pub(super) struct VerifyBody {
    twofa_pending_login: String,
    code: Option<String>,
    recovery_code: Option<String>,
}

/// Exactly one of the two.
pub(super) fn factor<'a>(
    code: Option<&'a str>,
    recovery_code: Option<&'a str>,
) -> ApiResult<SecondFactor<'a>> {
    match (code, recovery_code) {
        (Some(code), None) => Ok(SecondFactor::Code(code)),
        (None, Some(code)) => Ok(SecondFactor::RecoveryCode(code)),
        (None, None) => Err(ApiError::invalid_field("code", "required", "send code or recovery_code")),
        (Some(_), Some(_)) => {
            Err(ApiError::invalid_field("recovery_code", "conflict", "send code or recovery_code, not both"))
        }
    }
}

/// POST /auth/2fa/verify (C1).
pub(super) async fn verify(
    State(deps): State<AuthDeps>,
    visitor: Visitor,
    Json(body): Json<VerifyBody>,
) -> ApiResult<Response> {
    factor(body.code.as_deref(), body.recovery_code.as_deref())?;
    let now = deps.clock.now();
    let client = visitor.client().clone();
    let replaces = visitor.session().map(|(_, cookie)| cookie.to_owned());
    let attempt = move |identity: &Identity| -> ApiResult<_> {
        let attempt = CodeLogin {
            pending: &body.twofa_pending_login,
            factor: factor(body.code.as_deref(), body.recovery_code.as_deref())?,
            client: &client,
            replaces: replaces.as_deref(),
        };
        Ok(identity.verify_code(&attempt, now, &mut Entropy::system())?)
    };
    let login = deps.change(Lane::Account, attempt).await?;
    Ok(deps.logged_in(StatusCode::OK, &login))
}

/// GET /auth/2fa.
pub(super) async fn status(State(deps): State<AuthDeps>, cabinet: Cabinet) -> ApiResult<Json<Value>> {
    let status = deps.identity.twofa_status(cabinet.user())?;
    Ok(Json(json!({
        "enabled": status.enabled,
        "enabled_at": status.enabled_at.map(|at| at.to_rfc3339()),
        "recovery_codes_left": status.recovery_codes_left,
    })))
}

/// POST /auth/2fa/enroll: fresh sessions only.
pub(super) async fn enroll(State(deps): State<AuthDeps>, cabinet: Cabinet) -> ApiResult<Json<Value>> {
    cabinet.require_fresh()?;
    let (user, now) = (cabinet.user(), deps.clock.now());
    let enrolment = deps
        .change(Lane::Account, move |identity| identity.enroll_totp(user, now, &mut Entropy::system()))
        .await?;
    Ok(Json(json!({
        "secret": enrolment.secret.expose(),
        "otpauth_url": enrolment.otpauth_url.expose(),
        "expires_in": seconds(enrolment.expires_in),
    })))
}

#[derive(Deserialize)]
pub(super) struct CodeBody {
    code: String,
}

/// POST /auth/2fa/confirm: recovery codes, once, and a new session; the other sessions end.
pub(super) async fn confirm(
    State(deps): State<AuthDeps>,
    cabinet: Cabinet,
    Json(body): Json<CodeBody>,
) -> ApiResult<Response> {
    let (session, now) = (Arc::clone(cabinet.session()), deps.clock.now());
    let (codes, login) = deps
        .change(Lane::Account, move |identity| {
            identity.confirm_totp(&session, &body.code, now, &mut Entropy::system())
        })
        .await?;
    Ok(deps.with_session(&login, codes_json(&codes).into_response()))
}

fn codes_json(codes: &RecoveryCodes) -> Json<Value> {
    let codes: Vec<&str> = codes.0.iter().map(Secret::expose).collect();
    Json(json!({ "recovery_codes": codes }))
}

/// POST /auth/2fa/recovery-codes: ten new ones; the old ones are void.
pub(super) async fn recovery_codes(
    State(deps): State<AuthDeps>,
    cabinet: Cabinet,
    Json(body): Json<CodeBody>,
) -> ApiResult<Json<Value>> {
    let (user, now) = (cabinet.user(), deps.clock.now());
    let renew = move |identity: &Identity| {
        identity.renew_recovery_codes(user, &body.code, now, &mut Entropy::system())
    };
    Ok(codes_json(&deps.change(Lane::Account, renew).await?))
}

#[derive(Deserialize)]
pub(super) struct DisableBody {
    password: Option<String>,
    code: Option<String>,
    recovery_code: Option<String>,
}

/// POST /auth/2fa/disable.
pub(super) async fn disable(
    State(deps): State<AuthDeps>,
    cabinet: Cabinet,
    Json(body): Json<DisableBody>,
) -> ApiResult<StatusCode> {
    factor(body.code.as_deref(), body.recovery_code.as_deref())?;
    let (user, now) = (cabinet.user(), deps.clock.now());
    let change = move |identity: &Identity| -> ApiResult<()> {
        let factor = factor(body.code.as_deref(), body.recovery_code.as_deref())?;
        Ok(identity.disable_totp(user, body.password.as_deref().map(Password), factor, now)?)
    };
    // The password, where there is one, is hashed.
    deps.change(Lane::Password, change).await?;
    Ok(StatusCode::NO_CONTENT)
}
