//! Sign-in with an account at a provider (docs/specification.md C1, C2, D6).
//!
//! `start` seals the state of the sign-in into the cookie `ms_oauth` and sends the browser to the
//! provider. `callback` opens the cookie, redeems the code, and lets identity decide.

mod providers;

use std::sync::Arc;

use axum::extract::State;
use axum::http::{HeaderMap, HeaderValue, Method, StatusCode, Uri, header};
use axum::response::{IntoResponse, Response};
use serde::Deserialize;
use serde_json::{Value, json};

use super::{
    AuthDeps, code_needed, login_json, org_json, own_path, seconds, see_code_page, see_other, session_json,
    user_json,
};
use crate::api::body::Json;
use crate::api::callers::{AnyCaller, SessionCaller};
use crate::api::cookies;
use crate::api::error::{ApiError, ApiResult, Code};
use crate::api::lanes::Lane;
use crate::api::params::{Params, PathOf};
use crate::entropy::Entropy;
use crate::identity::{
    IdentityId, LinkedIdentity, LoginOutcome, OauthAttempt, OauthLogin, OauthMode, OauthOutcome, OauthTicket,
    Session,
};
use crate::outbound::{Authorization, MailKind};

use providers::Configured;
pub use providers::{OpenId, Providers, SignInClient};

/// The greatest length in bytes of a code, state or issuer from a provider.
const PARAMETER_BYTES_MAX: usize = 2_048;

// -- start ----------------------------------------------------------------------------------------

/// Serves GET /auth/oauth/{provider}/start: 302 to the provider.
pub(super) async fn start(
    State(deps): State<AuthDeps>,
    caller: AnyCaller,
    headers: HeaderMap,
    PathOf(provider): PathOf<String>,
    uri: Uri,
) -> ApiResult<Response> {
    let begun = async {
        let mut query = Params::of_query(uri.query())?;
        let body = StartBody { mode: query.one(&["mode"])?, redirect: query.one(&["redirect"])? };
        if body.mode.as_deref() == Some("link") {
            require_same_site(&headers)?;
        }
        let (url, ticket) = begin(&deps, &caller, &provider, &body).await?;
        let to = HeaderValue::try_from(url).map_err(ApiError::internal)?;
        Ok(deps.with_ticket(&ticket, (StatusCode::FOUND, [(header::LOCATION, to)]).into_response()))
    };
    let begun: ApiResult<Response> = begun.await;
    let accept = headers.get(header::ACCEPT).and_then(|value| value.to_str().ok()).unwrap_or_default();
    match begun {
        // A browser gets a page.
        Err(refused) if accept.contains("text/html") => Ok(error_page(&refused)),
        begun => begun,
    }
}

/// Checks that no other site sent the browser here to link an identity. That site could have signed
/// the browser in at the provider as another person, who would then gain access to this account.
/// `SameSite` allows navigations, and the CSRF check skips requests that only read.
fn require_same_site(headers: &HeaderMap) -> ApiResult<()> {
    match headers.get("sec-fetch-site").map(HeaderValue::as_bytes) {
        None | Some(b"same-origin" | b"none") => Ok(()),
        Some(_) => Err(ApiError::new(Code::CsrfRejected, "this request came from another site")),
    }
}

#[derive(Debug, Deserialize)]
pub(super) struct StartBody {
    redirect: Option<String>,
    mode: Option<String>,
}

/// Serves POST /auth/oauth/{provider}/start: the same for programs.
pub(super) async fn start_json(
    State(deps): State<AuthDeps>,
    caller: AnyCaller,
    PathOf(provider): PathOf<String>,
    Json(body): Json<StartBody>,
) -> ApiResult<Response> {
    let (url, ticket) = begin(&deps, &caller, &provider, &body).await?;
    let answer = Json(json!({
        "authorize_url": url,
        "state": ticket.state.expose(),
        "expires_in": seconds(ticket.expires_in),
    }));
    Ok(deps.with_ticket(&ticket, answer.into_response()))
}

async fn begin(
    deps: &AuthDeps,
    caller: &AnyCaller,
    provider: &str,
    body: &StartBody,
) -> ApiResult<(String, OauthTicket)> {
    let configured = deps.providers.find(provider)?;
    let now = deps.clock.now();
    let mode = match body.mode.as_deref() {
        None | Some("login") => OauthMode::LogIn,
        Some("link") => {
            let session = linking_session(caller)?;
            // A permanent new way to sign in requires a fresh login, not an unattended session.
            if !session.is_fresh(now) {
                let detail = "log in again to do this: the last login is older than 15 minutes";
                return Err(ApiError::new(Code::ReauthRequired, detail));
            }
            session.link_mode()
        }
        Some(_) => return Err(ApiError::invalid_parameter("mode", "is login or link")),
    };
    let provider = configured.provider();
    let redirect = body.redirect.as_deref().map_or("/", own_path);
    let ticket = deps.identity.begin_oauth(provider, mode, redirect, now, &mut Entropy::system());
    let redirect_uri = deps.callback_url(configured);
    let sent = Authorization {
        redirect_uri: &redirect_uri,
        state: ticket.state.expose(),
        nonce: ticket.nonce.expose(),
        challenge: &ticket.challenge,
    };
    let url = configured.authorize_url(sent, now).await?;
    Ok((url, ticket))
}

/// Returns the session that links an identity.
///
/// # Errors
/// 401 `unauthenticated` without a session.
fn linking_session(caller: &AnyCaller) -> ApiResult<&Arc<Session>> {
    let session = caller.session().map(|(session, _)| session);
    session.ok_or_else(|| ApiError::new(Code::Unauthenticated, "log in to link an identity to your account"))
}

// -- callback -------------------------------------------------------------------------------------

/// The parameters that a provider sends back.
#[derive(Deserialize)]
pub(super) struct Callback {
    code: Option<String>,
    state: Option<String>,
    iss: Option<String>,
    error: Option<String>,
}

impl Callback {
    fn of(uri: &Uri) -> ApiResult<Callback> {
        let mut query = Params::of_query(uri.query())?;
        Ok(Callback {
            code: query.one(&["code"])?,
            state: query.one(&["state"])?,
            iss: query.one(&["iss"])?,
            error: query.one(&["error"])?,
        })
    }
}

/// The successful result of a callback.
enum CallbackOutcome {
    /// A login.
    In(OauthOutcome),
    /// The identity is linked: `true` if it was linked now. The session continues.
    Linked(bool),
}

/// Serves POST /auth/oauth/{provider}/callback (docs/specification.md C1).
pub(super) async fn callback(
    State(deps): State<AuthDeps>,
    caller: AnyCaller,
    headers: HeaderMap,
    PathOf(provider): PathOf<String>,
    Json(body): Json<Callback>,
) -> ApiResult<Response> {
    let configured = deps.providers.find(&provider)?;
    let attempt = resume(&deps, configured, &headers, &body).await?;
    let redirect = own_path(&attempt.redirect).to_owned();
    let answer = match finish(&deps, configured, &caller, attempt, &body).await {
        Ok(CallbackOutcome::In(outcome)) => deps.in_json(&outcome, &redirect),
        Ok(CallbackOutcome::Linked(linked)) => {
            deps.linked_json(linking_session(&caller)?, linked, &redirect)?
        }
        Err(refused) => refused.into_response(),
    };
    // The state cookie is removed for every result, because the provider has seen its code.
    Ok(deps.without_ticket(answer))
}

/// Serves GET /auth/oauth/{provider}/callback (docs/specification.md C2) for browsers: always
/// redirects to a page. A `HEAD` request does not use up the state.
pub(super) async fn callback_page(
    State(deps): State<AuthDeps>,
    caller: AnyCaller,
    method: Method,
    headers: HeaderMap,
    PathOf(provider): PathOf<String>,
    uri: Uri,
) -> Response {
    if method == Method::HEAD {
        return see_other("/login");
    }
    let begun = async {
        let (configured, body) = (deps.providers.find(&provider)?, Callback::of(&uri)?);
        let attempt = resume(&deps, configured, &headers, &body).await?;
        Ok((configured, body, attempt))
    };
    let (configured, body, attempt) = match begun.await {
        Ok(begun) => begun,
        Err(refused) => return error_page(&refused),
    };
    let redirect = own_path(&attempt.redirect).to_owned();
    deps.without_ticket(match finish(&deps, configured, &caller, attempt, &body).await {
        Ok(CallbackOutcome::In(OauthOutcome { login: LoginOutcome::LoggedIn(login), .. })) => {
            deps.with_session(&login, see_other(&redirect))
        }
        Ok(CallbackOutcome::In(OauthOutcome { login: LoginOutcome::NeedsCode(pending), .. })) => {
            see_code_page(&pending, &redirect)
        }
        Ok(CallbackOutcome::Linked(_)) => see_other(&redirect),
        Err(refused) => error_page(&refused),
    })
}

fn error_page(refused: &ApiError) -> Response {
    see_other(&format!("/login?error={}", refused.code().as_str()))
}

fn invalid_state() -> ApiError {
    ApiError::new(
        Code::InvalidState,
        "this sign-in was not started in this browser, or has expired: start again",
    )
}

/// Opens the state cookie that belongs to a callback, and checks that the callback comes from the
/// provider that the browser was sent to.
async fn resume(
    deps: &AuthDeps,
    configured: Configured<'_>,
    headers: &HeaderMap,
    sent: &Callback,
) -> ApiResult<OauthAttempt> {
    let now = deps.clock.now();
    let state = sent.state.as_deref().filter(|state| state.len() <= PARAMETER_BYTES_MAX);
    let state = state.ok_or_else(invalid_state)?;
    // Try up to four cookies, because another application on this host may have set one, too.
    let open = |cookie: &str| deps.identity.resume_oauth(configured.provider(), cookie, state, now);
    let attempt = cookies::values(headers, deps.cookies.oauth_name(), 4).into_iter().find_map(open);
    let attempt = attempt.ok_or_else(invalid_state)?;
    let from_there = match sent.iss.as_deref() {
        Some(issuer) => configured.is_issuer(issuer),
        None => !configured.names_itself(now).await?,
    };
    if from_there { Ok(attempt) } else { Err(invalid_state()) }
}

async fn finish(
    deps: &AuthDeps,
    configured: Configured<'_>,
    caller: &AnyCaller,
    attempt: OauthAttempt,
    sent: &Callback,
) -> ApiResult<CallbackOutcome> {
    if let Some(error) = &sent.error {
        let plain = error.chars().filter(|c| c.is_ascii_alphanumeric() || *c == '_').take(64);
        let detail = format!("the provider answered {}", plain.collect::<String>());
        return Err(ApiError::new(Code::OauthError, detail));
    }
    let code = sent.code.as_deref().filter(|code| !code.is_empty() && code.len() <= PARAMETER_BYTES_MAX);
    let code = code.ok_or_else(|| ApiError::new(Code::OauthError, "the provider sent no code"))?;
    // The session that started linking must still be live.
    if attempt.mode != OauthMode::LogIn && attempt.mode != linking_session(caller)?.link_mode() {
        return Err(invalid_state());
    }
    let now = deps.clock.now();
    let account = configured.redeem(deps, code, &attempt, now).await?;
    if let OauthMode::Link { user, .. } = attempt.mode {
        let session = Arc::clone(linking_session(caller)?);
        let linked = deps
            .change(Lane::Account, move |identity| {
                identity.oauth_link(&attempt, &account, &session, now, &mut Entropy::system())
            })
            .await?;
        if let Some(owner) = deps.identity.user(user)?.filter(|_| linked) {
            deps.notice(owner.email.as_str(), MailKind::IdentityLinked, now);
        }
        return Ok(CallbackOutcome::Linked(linked));
    }
    let client = caller.client().clone();
    let replaces = caller.session().map(|(_, cookie)| cookie.to_owned());
    let change = move |identity: &crate::identity::Identity| {
        let (client, replaces) = (&client, replaces.as_deref());
        let login = OauthLogin { attempt: &attempt, account: &account, client, replaces };
        identity.oauth_login(&login, now, &mut Entropy::system())
    };
    let outcome = deps.change(Lane::Account, change).await?;
    if let Some(to) = &outcome.tell {
        deps.notice(to.as_str(), MailKind::IdentityLinked, now);
    }
    Ok(CallbackOutcome::In(outcome))
}

// -- responses ------------------------------------------------------------------------------------

impl AuthDeps {
    /// Returns the URL that a provider sends browsers back to.
    fn callback_url(&self, configured: Configured<'_>) -> String {
        format!("{}/api/v1/auth/oauth/{}/callback", self.public_url, configured.provider().as_str())
    }

    fn with_ticket(&self, ticket: &OauthTicket, mut response: Response) -> Response {
        response.headers_mut().append(header::SET_COOKIE, self.cookies.oauth(ticket.cookie.expose()));
        response
    }

    fn without_ticket(&self, mut response: Response) -> Response {
        response.headers_mut().append(header::SET_COOKIE, self.cookies.no_oauth());
        response
    }

    /// Returns `LoginResult` and how the login was made, or the next step of the login.
    fn in_json(&self, outcome: &OauthOutcome, redirect: &str) -> Response {
        match &outcome.login {
            LoginOutcome::NeedsCode(pending) => code_needed(pending, redirect),
            LoginOutcome::LoggedIn(login) => {
                let mut body = login_json(login);
                body["created"] = outcome.created.into();
                body["linked"] = outcome.linked.into();
                body["redirect"] = redirect.into();
                self.with_session(login, Json(body).into_response())
            }
        }
    }

    /// Returns the continuing session in the same format.
    fn linked_json(&self, session: &Session, linked: bool, redirect: &str) -> ApiResult<Response> {
        let user = self.identity.user(session.user)?;
        let user =
            user.ok_or_else(|| ApiError::new(Code::SessionInvalid, "this account no longer exists"))?;
        let orgs = self.identity.memberships(user.id)?;
        Ok(Json(json!({
            "requires_2fa": false,
            "user": user_json(&user),
            "orgs": orgs.iter().map(org_json).collect::<Vec<_>>(),
            "session": session_json(session),
            "created": false,
            "linked": linked,
            "redirect": redirect,
        }))
        .into_response())
    }

    /// Returns the configured providers for the login page.
    pub(super) fn providers_json(&self) -> Vec<Value> {
        let row = |configured: Configured<'_>| {
            let id = configured.provider().as_str();
            let start_url = format!("/api/v1/auth/oauth/{id}/start");
            json!({ "id": id, "name": configured.name(), "start_url": start_url })
        };
        self.providers.all().map(row).collect()
    }
}

// -- identities -----------------------------------------------------------------------------------

/// Returns an identity as `GET /auth/me` lists it.
pub(super) fn identity_json(identity: &LinkedIdentity) -> Value {
    json!({
        "id": identity.id.to_string(),
        "provider": identity.provider.as_str(),
        "email": identity.email,
        "linked_at": identity.linked_at.to_rfc3339(),
    })
}

/// Serves DELETE /auth/identities/{id}.
pub(super) async fn unlink(
    State(deps): State<AuthDeps>,
    cabinet: SessionCaller,
    PathOf(id): PathOf<String>,
) -> ApiResult<StatusCode> {
    let id: IdentityId =
        id.parse().map_err(|_| ApiError::new(Code::NotFound, "you have no such identity"))?;
    // Mails on the console reach the operator only.
    let (user, now, mail_opens) = (cabinet.user(), deps.clock.now(), !deps.console_mail());
    deps.change(Lane::Account, move |identity| identity.unlink_identity(user, id, mail_opens, now)).await?;
    Ok(StatusCode::NO_CONTENT)
}
