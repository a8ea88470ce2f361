//! Sign-in and sign-out (docs/specification.md C1 and C2): the same routes below `/api/v1/auth` and
//! `/auth`.

mod account;
mod invites;
mod login;
mod magic_link;
mod mailed;
pub mod oauth;
mod passwords;
mod sessions;
mod signup;
mod two_factor;

use std::sync::Arc;
use std::time::Duration;

use axum::Extension;
use axum::http::{HeaderValue, StatusCode, header};
use axum::response::{IntoResponse, Response};

use serde_json::{Value, json};

use super::body::Json;
use super::cookies::{Cookies, NoCookies};
use super::error::ApiResult;
use super::lanes::{Lane, Lanes};
use super::limits::Limits;
use super::routes::{Auth, Login, Routes};
use crate::clock::Clock;
use crate::entropy::Entropy;
use crate::identity::{Identity, LoggedIn, LoginOutcome, Membership, PendingLogin, Session, User};
use crate::model::Timestamp;
use crate::outbound::{Mail, MailKind, MailQueue, Mailer};

/// The dependencies of the sign-in routes.
#[derive(Clone, Debug)]
pub struct AuthDeps {
    /// Accounts.
    pub identity: Arc<Identity>,
    /// The thread pools for hashing and disk syncs.
    pub lanes: Lanes,
    /// The wall clock.
    pub clock: Clock,
    /// The limits of mails.
    pub limits: Arc<Limits>,
    /// The names and attributes of cookies.
    pub cookies: Cookies,
    /// The queue of mails, which are sent after the response.
    pub mail: Arc<MailQueue>,
    /// The URL that links in mails begin with. The `Host` header is never used.
    pub public_url: Arc<str>,
    /// The validity of sign-in links.
    pub link_ttl: Duration,
    /// The configured sign-in providers.
    pub providers: oauth::Providers,
}

impl AuthDeps {
    /// Runs a change of accounts on a lane, because it may block.
    async fn change<T: Send + 'static, E: Into<super::error::ApiError> + Send + 'static>(
        &self,
        lane: Lane,
        change: impl FnOnce(&Identity) -> Result<T, E> + Send + 'static,
    ) -> ApiResult<T> {
        let identity = Arc::clone(&self.identity);
        self.lanes.run(lane, move || change(&identity)).await?.map_err(Into::into)
    }

    /// Notifies an account's owner of a change. The response does not wait for the mail.
    fn notice(&self, to: &str, kind: MailKind, now: Timestamp) {
        self.send(Mail::notice(to, kind, now));
    }

    /// Adds a mail to the queue.
    fn send(&self, mail: Mail) {
        let kind = mail.kind.as_str();
        if self.mail.send(mail).is_err() {
            tracing::warn!(mail.kind = kind, "a mail was dropped: the mail queue is full");
        }
    }

    /// Returns whether mails are printed on the console. Then no mail scanner opens links, so `GET`
    /// may sign in.
    fn console_mail(&self) -> bool {
        matches!(self.mail.mailer(), Mailer::Console)
    }

    /// Returns 200 with a session, or with the next step of the login.
    fn outcome(&self, outcome: &LoginOutcome) -> Response {
        self.outcome_as(StatusCode::OK, outcome)
    }

    /// As [`AuthDeps::outcome`], with another status for a session.
    fn outcome_as(&self, status: StatusCode, outcome: &LoginOutcome) -> Response {
        match outcome {
            LoginOutcome::LoggedIn(login) => self.logged_in(status, login),
            LoginOutcome::NeedsCode(pending) => code_needed(pending, "/"),
        }
    }

    /// Returns `LoginResult` with the session cookie.
    fn logged_in(&self, status: StatusCode, login: &LoggedIn) -> Response {
        self.with_session(login, (status, Json(login_json(login))).into_response())
    }

    /// Adds the cookie of the new session and the one that marks this browser as known.
    fn with_session(&self, login: &LoggedIn, mut response: Response) -> Response {
        let (address, now) = (login.user.email.as_str(), self.clock.now());
        let device = self.identity.device_token(address, now, &mut Entropy::system());
        let headers = response.headers_mut();
        headers.append(header::SET_COOKIE, self.cookies.session(login.token.expose()));
        headers.append(header::SET_COOKIE, self.cookies.device(device.expose()));
        response
    }
}

/// Returns all routes, relative to their prefix.
pub fn routes() -> Routes<AuthDeps> {
    Routes::new()
        .post("/login", Auth::Public, "Log in with e-mail address and password", login::login)
        .post("/magic-link/request", Auth::Public, "Request a sign-in link by mail", magic_link::request)
        .get("/magic-link/verify", Auth::Public, "Open a sign-in link", magic_link::open)
        .post("/magic-link/verify", Auth::Public, "Use a sign-in link", magic_link::verify)
        .post("/2fa/verify", Auth::Public, "Finish a login with the second factor", two_factor::verify)
        .get("/oauth/{provider}/start", Auth::Public, "Redirect to a provider to sign in", oauth::start)
        .post(
            "/oauth/{provider}/start",
            Auth::Public,
            "Return the URL for signing in at a provider",
            oauth::start_json,
        )
        .get(
            "/oauth/{provider}/callback",
            Auth::Public,
            "Return from a provider to finish a sign-in",
            oauth::callback_page,
        )
        .post(
            "/oauth/{provider}/callback",
            Auth::Public,
            "Sign in with the response of a provider",
            oauth::callback,
        )
        .delete(
            "/identities/{id}",
            Auth::Account(Login::Fresh),
            "Unlink an account at a provider",
            oauth::unlink,
        )
        .get("/config", Auth::Public, "Return the settings of the login page", login::config)
        .get("/providers", Auth::Public, "List the configured sign-in providers", login::providers)
        .post(
            "/signup",
            Auth::Public,
            "Create the first account, or request a link that creates one",
            signup::signup,
        )
        .post("/signup/complete", Auth::Public, "Create an account with a mailed link", signup::complete)
        .post("/invites/lookup", Auth::Public, "Look up an invitation", invites::lookup)
        .post("/invites/accept", Auth::Public, "Accept an invitation", invites::accept)
        .post("/logout", Auth::Public, "End the session", sessions::logout)
        .get(
            "/me",
            Auth::Account(Login::Any),
            "Return the account, its organisations and this session",
            sessions::me,
        )
        .post(
            "/reauth",
            Auth::Account(Login::Any),
            "Prove your identity again, for the next 15 minutes",
            sessions::reauth,
        )
        .merge(account_routes())
        .get("/sessions", Auth::Account(Login::Any), "List the live sessions of the account", sessions::list)
        .delete("/sessions", Auth::Account(Login::Any), "End all other sessions", sessions::revoke_all)
        .delete("/sessions/{id}", Auth::Account(Login::Any), "End one session", sessions::revoke)
        .get(
            "/2fa",
            Auth::Account(Login::Any),
            "Return whether a second factor is enabled",
            two_factor::status,
        )
        .post(
            "/2fa/enroll",
            Auth::Account(Login::Fresh),
            "Begin enrolment of a second factor",
            two_factor::enroll,
        )
        .post(
            "/2fa/confirm",
            Auth::Account(Login::Any),
            "Enable the second factor with its first code",
            two_factor::confirm,
        )
        .post("/2fa/disable", Auth::Account(Login::Any), "Remove the second factor", two_factor::disable)
        .post(
            "/2fa/recovery-codes",
            Auth::Account(Login::Any),
            "Create ten new recovery codes",
            two_factor::recovery_codes,
        )
}

/// Returns the routes with which an owner changes the account.
fn account_routes() -> Routes<AuthDeps> {
    let (any, fresh) = (Auth::Account(Login::Any), Auth::Account(Login::Fresh));
    Routes::new()
        .patch("/me", any, "Rename the account", account::rename)
        .delete("/me", fresh, "Delete the account", account::delete)
        .post("/password/change", any, "Set a new password", passwords::change)
        .post(
            "/password/reset/request",
            Auth::Public,
            "Request a link that sets a new password",
            passwords::request_reset,
        )
        .post(
            "/password/reset/confirm",
            Auth::Public,
            "Set a new password with a mailed link",
            passwords::confirm_reset,
        )
        .post("/email/change", fresh, "Request a link that proves a new address", account::change_email)
        .post("/email/confirm", Auth::Public, "Confirm a new address of the account", account::confirm_email)
}

fn seconds(duration: Duration) -> u64 {
    duration.as_secs()
}

fn login_json(login: &LoggedIn) -> Value {
    json!({
        "requires_2fa": false,
        "user": user_json(&login.user),
        "orgs": login.orgs.iter().map(org_json).collect::<Vec<_>>(),
        "session": session_json(&login.session),
    })
}

/// Returns the response that asks a program for a second factor. `redirect` is added only if the
/// request had one; otherwise the body is that of the specification.
fn code_needed(pending: &PendingLogin, redirect: &str) -> Response {
    let mut body = json!({
        "requires_2fa": true,
        "twofa_pending_login": pending.token.expose(),
        "expires_in": seconds(pending.expires_in),
    });
    if redirect != "/" {
        body["redirect"] = redirect.into();
    }
    without_cookies(Json(body))
}

fn user_json(user: &User) -> Value {
    json!({
        "id": user.id.to_string(),
        "email": user.email.as_str(),
        "name": user.name,
        "is_admin": user.is_admin,
        "twofa_enabled": user.twofa_enabled,
        "has_password": user.has_password,
        "created_at": user.created_at.to_rfc3339(),
    })
}

fn org_json(member: &Membership) -> Value {
    json!({ "slug": member.org.slug.as_str(), "name": member.org.name, "role": member.role.as_str() })
}

fn session_json(session: &Session) -> Value {
    json!({
        "id": session.id.to_string(),
        "created_at": session.created_at.to_rfc3339(),
        "expires_at": session.expires_at().to_rfc3339(),
        "auth_method": session.auth_method.as_str(),
    })
}

impl AuthDeps {
    /// Returns a path of this server below the path of the public URL.
    fn page(&self, path: &str) -> String {
        let rest = self.public_url.split_once("://").map_or("", |(_, rest)| rest);
        let prefix = rest.find('/').and_then(|at| rest.get(at..)).unwrap_or_default();
        format!("{prefix}{path}")
    }
}

/// Redirects a browser to the form for a second factor. The pending login and `redirect` are in the
/// fragment, so that no server and no log sees them.
fn see_code_page(pending: &PendingLogin, redirect: &str) -> Response {
    let mut page = format!("/login/2fa#pending={}", pending.token.expose());
    if redirect != "/" {
        page.push_str("&redirect=");
        page.extend(form_urlencoded::byte_serialize(redirect.as_bytes()));
    }
    without_cookies(see_other(&page))
}

/// Marks a response that asks for a second factor. All such responses pass through here.
fn without_cookies(response: impl IntoResponse) -> Response {
    (Extension(NoCookies), response).into_response()
}

/// Returns 303 to `to`, a path of this server.
fn see_other(to: &str) -> Response {
    let to = HeaderValue::try_from(to).unwrap_or(HeaderValue::from_static("/"));
    (StatusCode::SEE_OTHER, [(header::LOCATION, to)]).into_response()
}

/// Returns `text` if it is a path of this server, otherwise `/`. Rejects everything that a browser
/// could read as another site (docs/specification.md F15).
fn own_path(text: &str) -> &str {
    let lower = text.to_ascii_lowercase();
    let own = text.starts_with('/')
        && text.len() <= 2_048
        && !text.starts_with("//")
        && text.bytes().all(|b| b.is_ascii_graphic() && b != b'\\')
        && !["%0", "%1", "%5c", "%7f"].iter().any(|hidden| lower.contains(hidden))
        && !lower.replace("%2e", ".").split(['/', '?', '#']).any(|part| matches!(part, "." | ".."))
        && !lower.starts_with("/%2f");
    if own { text } else { "/" }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_redirect_never_leaves_this_server() {
        for own in ["/", "/a", "/a/b?c=d#e", "/a?to=http://x", "/a%20b"] {
            assert_eq!(own_path(own), own);
        }
        let foreign = [
            "",
            "//e",
            "///e",
            "/\\e",
            "/\\/e",
            "\\\\e",
            "https:e",
            "https://e",
            "http:/e",
            "e",
            "javascript:alert(1)",
            "/%0d",
            "/%0a",
            "/%0D%0ASet-Cookie:x",
            "/../",
            "/.//e",
            "/%2e//e",
            "/a/../..//e",
            "/%2e%2e/x",
            "/.%2E/",
            "/\t/e",
            "/\n",
            " /a",
            "/a b",
            "/\u{7f}",
            "/%5ce",
            "/%5Ce",
            "/%2f/e",
            "/%2Fe",
            "data:text/html,x",
            "?a",
            "#a",
            "/\u{e4}",
            "/%00",
            "@e",
            "/%1f",
        ];
        for text in foreign {
            assert_eq!(own_path(text), "/", "{text:?}");
        }
    }
}
