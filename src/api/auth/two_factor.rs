//! The second factor (docs/specification.md C1, C2, D3).

mod qr;

use std::sync::Arc;

use axum::extract::State;
use axum::http::StatusCode;
use axum::response::{IntoResponse, Response};
use serde::Deserialize;
use serde_json::{Value, json};

use super::{AuthDeps, seconds};
use crate::api::body::Json;
use crate::api::callers::{AnyCaller, SessionCaller};
use crate::api::error::{ApiError, ApiResult};
use crate::api::lanes::Lane;
use crate::entropy::Entropy;
use crate::identity::{CodeError, CodeLogin, Identity, Password, RecoveryCodes, SecondFactor, Secret};
use crate::outbound::MailKind;

#[derive(Deserialize)]
pub(super) struct CodeVerifyBody {
    twofa_pending_login: String,
    code: Option<String>,
    recovery_code: Option<String>,
}

/// Requires exactly one of the two. A code must have six digits, apart from spaces; any other text
/// is refused and does not count as an attempt.
pub(super) fn factor<'a>(
    code: Option<&'a str>,
    recovery_code: Option<&'a str>,
) -> ApiResult<SecondFactor<'a>> {
    match (code, recovery_code) {
        (Some(code), None) => Ok(SecondFactor::Code(six_digits(code)?)),
        (None, Some(code)) => Ok(SecondFactor::RecoveryCode(code)),
        (None, None) => Err(ApiError::invalid_field("code", "required", "send code or recovery_code")),
        (Some(_), Some(_)) => {
            Err(ApiError::invalid_field("recovery_code", "conflict", "send code or recovery_code, not both"))
        }
    }
}

fn six_digits(code: &str) -> ApiResult<&str> {
    let mut digits = 0;
    let plain = code.chars().filter(|c| !c.is_whitespace()).all(|c| {
        digits += 1;
        c.is_ascii_digit()
    });
    if plain && digits == 6 {
        return Ok(code);
    }
    Err(ApiError::invalid_field("code", "form", "a code has six digits"))
}

/// Serves POST /auth/2fa/verify (docs/specification.md C1).
pub(super) async fn verify(
    State(deps): State<AuthDeps>,
    caller: AnyCaller,
    Json(body): Json<CodeVerifyBody>,
) -> ApiResult<Response> {
    factor(body.code.as_deref(), body.recovery_code.as_deref())?;
    let now = deps.clock.now();
    let client = caller.client().clone();
    let replaces = caller.session().map(|(_, cookie)| cookie.to_owned());
    let attempt = move |identity: &Identity| -> ApiResult<_> {
        let attempt = CodeLogin {
            pending: &body.twofa_pending_login,
            factor: factor(body.code.as_deref(), body.recovery_code.as_deref())?,
            client: &client,
            replaces: replaces.as_deref(),
        };
        Ok(identity.verify_code(&attempt, now, &mut Entropy::system()))
    };
    match deps.change(Lane::Account, attempt).await? {
        Ok(login) => Ok(deps.logged_in(StatusCode::OK, &login)),
        Err(refused) => {
            // Repeated wrong codes mean that another person knows the first factor, so the owner
            // gets a mail.
            if let CodeError::Invalid { alarm: Some(owner), .. } = &refused {
                deps.notice(owner.as_str(), MailKind::TwofaFailures, now);
            }
            Err(refused.into())
        }
    }
}

/// Serves GET /auth/2fa.
pub(super) async fn status(State(deps): State<AuthDeps>, cabinet: SessionCaller) -> ApiResult<Json<Value>> {
    let status = deps.identity.twofa_status(cabinet.user())?;
    Ok(Json(json!({
        "enabled": status.enabled,
        "enabled_at": status.enabled_at.map(|at| at.to_rfc3339()),
        "recovery_codes_left": status.recovery_codes_left,
    })))
}

/// Serves POST /auth/2fa/enroll.
pub(super) async fn enroll(State(deps): State<AuthDeps>, cabinet: SessionCaller) -> ApiResult<Json<Value>> {
    let (session, now) = (Arc::clone(cabinet.session()), deps.clock.now());
    let enrolment = deps
        .change(Lane::Account, move |identity| identity.enroll_totp(&session, now, &mut Entropy::system()))
        .await?;
    let url = enrolment.otpauth_url.expose();
    let picture =
        qr::data_url(url).ok_or_else(|| ApiError::internal("an otpauth URL does not fit into a QR code"))?;
    Ok(Json(json!({
        "secret": enrolment.secret.expose(),
        "otpauth_url": url,
        "qr_png": picture,
        "expires_in": seconds(enrolment.expires_in),
    })))
}

#[derive(Deserialize)]
pub(super) struct CodeBody {
    code: String,
}

/// Serves POST /auth/2fa/confirm. Returns the recovery codes, which are shown once, and a new
/// session; the other sessions end.
pub(super) async fn confirm(
    State(deps): State<AuthDeps>,
    cabinet: SessionCaller,
    Json(body): Json<CodeBody>,
) -> ApiResult<Response> {
    six_digits(&body.code)?;
    let (session, now) = (Arc::clone(cabinet.session()), deps.clock.now());
    let (codes, login) = deps
        .change(Lane::Account, move |identity| {
            identity.confirm_totp(&session, &body.code, now, &mut Entropy::system())
        })
        .await?;
    deps.notice(login.user.email.as_str(), MailKind::TwofaEnabled, now);
    Ok(deps.with_session(&login, codes_json(&codes).into_response()))
}

fn codes_json(codes: &RecoveryCodes) -> Json<Value> {
    let codes: Vec<&str> = codes.0.iter().map(Secret::expose).collect();
    Json(json!({ "recovery_codes": codes }))
}

/// Serves POST /auth/2fa/recovery-codes. Returns ten new codes and invalidates the old ones.
pub(super) async fn recovery_codes(
    State(deps): State<AuthDeps>,
    cabinet: SessionCaller,
    Json(body): Json<CodeBody>,
) -> ApiResult<Json<Value>> {
    six_digits(&body.code)?;
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

/// Serves POST /auth/2fa/disable.
pub(super) async fn disable(
    State(deps): State<AuthDeps>,
    cabinet: SessionCaller,
    caller: AnyCaller,
    Json(body): Json<DisableBody>,
) -> ApiResult<StatusCode> {
    factor(body.code.as_deref(), body.recovery_code.as_deref())?;
    let (session, client, now) = (Arc::clone(cabinet.session()), caller.client().clone(), deps.clock.now());
    let change = move |identity: &Identity| -> ApiResult<()> {
        let factor = factor(body.code.as_deref(), body.recovery_code.as_deref())?;
        let password = body.password.as_deref().map(Password);
        Ok(identity.disable_totp(&session, password, factor, &client, now)?)
    };
    // On the password lane, because a password, if sent, is hashed.
    deps.change(Lane::Password, change).await?;
    if let Some(owner) = deps.identity.user(cabinet.user())? {
        deps.notice(owner.email.as_str(), MailKind::TwofaDisabled, now);
    }
    Ok(StatusCode::NO_CONTENT)
}
