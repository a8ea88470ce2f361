//! Password login, and what the login page needs to know.

use axum::extract::State;
use axum::response::Response;
use serde::Deserialize;
use serde_json::{Value, json};

use super::AuthDeps;
use crate::api::body::Json;
use crate::api::callers::Visitor;
use crate::api::error::{ApiError, ApiResult};
use crate::api::lanes::Lane;
use crate::entropy::Entropy;
use crate::identity::{Client, Identity, PASSWORD_BYTES_MAX, PASSWORD_CHARS_MIN, Password, PasswordLogin};

#[derive(Deserialize)]
pub(super) struct LoginBody {
    email: String,
    password: String,
}

/// 422 for a password that cannot be one, before anybody is looked up.
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

/// POST /auth/login (C1).
pub(super) async fn login(
    State(deps): State<AuthDeps>,
    visitor: Visitor,
    Json(body): Json<LoginBody>,
) -> ApiResult<Response> {
    check_password(&body.password)?;
    let now = deps.clock.now();
    let sent = Sent {
        body,
        client: visitor.client().clone(),
        replaces: visitor.session().map(|(_, cookie)| cookie.to_owned()),
        device: visitor.device_cookie().map(str::to_owned),
    };
    // Who must wait anyway takes no place in the queue for hashing.
    deps.identity.admits_login(&sent.attempt(), now)?;
    let login = move |identity: &Identity| identity.login(&sent.attempt(), now, &mut Entropy::system());
    Ok(deps.outcome(&deps.change(Lane::Password, login).await?))
}

/// What came with a login.
struct Sent {
    body: LoginBody,
    client: Client,
    replaces: Option<String>,
    device: Option<String>,
}

impl Sent {
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

/// GET /auth/config (C2).
pub(super) async fn config(State(deps): State<AuthDeps>, visitor: Visitor) -> Json<Value> {
    let needs_setup = deps.identity.needs_setup();
    Json(json!({
        "needs_setup": needs_setup,
        "setup_token_required": needs_setup && !visitor.is_local(),
        "signup": deps.identity.signup_mode().as_str(),
        "providers": deps.providers_json(),
        "magic_link": true,
        "mailer": deps.mail.mailer().as_str(),
        "password": { "min_length": PASSWORD_CHARS_MIN, "max_bytes": PASSWORD_BYTES_MAX },
        "version": env!("CARGO_PKG_VERSION"),
    }))
}

/// GET /auth/providers (C2): the configured ones.
pub(super) async fn providers(State(deps): State<AuthDeps>) -> Json<Value> {
    Json(json!({ "data": deps.providers_json() }))
}
