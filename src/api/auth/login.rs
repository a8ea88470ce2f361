//! Password login, and the settings of the login page.

use axum::extract::State;
use axum::response::Response;
use serde::Deserialize;
use serde_json::{Value, json};

use super::AuthDeps;
use crate::api::body::Json;
use crate::api::callers::AnyCaller;
use crate::api::error::{ApiError, ApiResult};
use crate::api::lanes::Lane;
use crate::entropy::Entropy;
use crate::identity::{Client, Identity, PASSWORD_BYTES_MAX, PASSWORD_CHARS_MIN, Password, PasswordLogin};

#[derive(Deserialize)]
pub(super) struct LoginBody {
    email: String,
    password: String,
}

/// Returns 422 for a password of an impossible length, before any account is looked up.
pub(super) fn check_password(password: &str) -> ApiResult<()> {
    match password.len() {
        0 => Err(ApiError::invalid_field("password", "required", "the password is empty")),
        1..=PASSWORD_BYTES_MAX => Ok(()),
        bytes => {
            let message = format!("a password has at most {PASSWORD_BYTES_MAX} bytes, this one {bytes}");
            Err(ApiError::invalid_field("password", "too_long", message))
        }
    }
}

/// Serves POST /auth/login (docs/specification.md C1).
pub(super) async fn login(
    State(deps): State<AuthDeps>,
    caller: AnyCaller,
    Json(body): Json<LoginBody>,
) -> ApiResult<Response> {
    check_password(&body.password)?;
    let now = deps.clock.now();
    let sent = LoginRequest {
        body,
        client: caller.client().clone(),
        replaces: caller.session().map(|(_, cookie)| cookie.to_owned()),
        device: caller.device_cookie().map(str::to_owned),
    };
    // A throttled login is refused before it enters the queue for hashing.
    deps.identity.admits_login(&sent.attempt(), now)?;
    let login = move |identity: &Identity| identity.login(&sent.attempt(), now, &mut Entropy::system());
    Ok(deps.outcome(&deps.change(Lane::Password, login).await?))
}

/// A login request with its body, cookies and client.
struct LoginRequest {
    body: LoginBody,
    client: Client,
    replaces: Option<String>,
    device: Option<String>,
}

impl LoginRequest {
    fn attempt(&self) -> PasswordLogin<'_> {
        PasswordLogin {
            email: &self.body.email,
            password: Password(&self.body.password),
            client: &self.client,
            replaces: self.replaces.as_deref(),
            device: self.device.as_deref(),
        }
    }
}

/// Serves GET /auth/config (docs/specification.md C2).
pub(super) async fn config(State(deps): State<AuthDeps>, caller: AnyCaller) -> Json<Value> {
    let needs_setup = deps.identity.needs_setup();
    Json(json!({
        "needs_setup": needs_setup,
        "setup_token_required": needs_setup && !caller.is_local(),
        "signup": deps.identity.signup_mode().as_str(),
        "providers": deps.providers_json(),
        "magic_link": true,
        "mailer": deps.mail.mailer().as_str(),
        "password": { "min_length": PASSWORD_CHARS_MIN, "max_bytes": PASSWORD_BYTES_MAX },
        "version": env!("CARGO_PKG_VERSION"),
    }))
}

/// Serves GET /auth/providers (docs/specification.md C2).
pub(super) async fn providers(State(deps): State<AuthDeps>) -> Json<Value> {
    Json(json!({ "data": deps.providers_json() }))
}
