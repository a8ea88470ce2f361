//! Sign-in links (docs/specification.md C1, C2, D5).
//!
//! With real mail, `GET` only shows a button, because mail scanners open links. `POST` signs in,
//! from the browser that requested the link (cookie `ms_ml`) or with the address typed. On the
//! console nothing scans links, so `GET` signs in.

use std::fmt::Write as _;

use axum::extract::{Request, State};
use axum::http::{HeaderMap, HeaderValue, Method, StatusCode, Uri, header};
use axum::response::{IntoResponse, Response};
use serde::Deserialize;

use super::mailed::MailAdmission;
use super::{AuthDeps, own_path, see_code_page, see_other};
use crate::api::body::{self, Json};
use crate::api::callers::AnyCaller;
use crate::api::error::{ApiError, ApiResult, Code};
use crate::api::lanes::Lane;
use crate::api::pages::escaped;
use crate::entropy::Entropy;
use crate::identity::{LinkLogin, LinkOutcome, LinkProof, LinkRequest, LoginOutcome};
use crate::outbound::MailKind;

#[derive(Deserialize)]
pub(super) struct LinkRequestBody {
    email: String,
    redirect: Option<String>,
}

/// Serves POST /auth/magic-link/request (docs/specification.md C1). Returns 202 whether the account
/// exists or not.
pub(super) async fn request(
    State(deps): State<AuthDeps>,
    caller: AnyCaller,
    Json(body): Json<LinkRequestBody>,
) -> ApiResult<Response> {
    let mail_request = deps.mail_request(&caller, &body.email)?;
    let response = mail_request.accepted(&deps, deps.link_ttl);
    let admitted = mail_request.admitted;
    if admitted == MailAdmission::No {
        return Ok(response);
    }
    let now = deps.clock.now();
    let link = deps
        .change(Lane::Account, move |identity| {
            let redirect = body.redirect.as_deref().map(own_path);
            let request =
                LinkRequest { email: &mail_request.email, redirect, browser: Some(&mail_request.browser) };
            identity.request_link(&request, now, &mut Entropy::system())
        })
        .await?;
    if let Some(link) = link {
        deps.send_link(MailKind::MagicLink, &link, admitted, now);
    }
    Ok(response)
}

/// Serves GET /auth/magic-link/verify?token= (docs/specification.md C2). `HEAD` never uses up a
/// link.
pub(super) async fn open(
    State(deps): State<AuthDeps>,
    caller: AnyCaller,
    method: Method,
    uri: Uri,
    headers: HeaderMap,
) -> ApiResult<Response> {
    if method == Method::HEAD {
        return Ok(StatusCode::OK.into_response());
    }
    let token = parameter(uri.query().unwrap_or_default().as_bytes(), "token")?;
    if !deps.console_mail() {
        let asks = if caller.magic_link_cookie().is_none() { PromptFor::Address } else { PromptFor::Nothing };
        return Ok(form_page(&deps, StatusCode::OK, &token, asks));
    }
    let html = accepts_html(&headers);
    answer(&deps, use_link(&deps, &caller, token, SuppliedProof::Console).await, html)
}

#[derive(Deserialize)]
struct LinkVerifyBody {
    token: String,
    email: Option<String>,
}

/// Serves POST /auth/magic-link/verify (docs/specification.md C2), with JSON or the form of the
/// page above.
pub(super) async fn verify(
    State(deps): State<AuthDeps>,
    caller: AnyCaller,
    request: Request,
) -> ApiResult<Response> {
    let json = body::is_json(request.headers());
    let form = request
        .headers()
        .get(header::CONTENT_TYPE)
        .is_some_and(|media| media.as_bytes().starts_with(b"application/x-www-form-urlencoded"));
    if !json && !form {
        return Err(ApiError::new(Code::UnsupportedMediaType, "send application/json, or the form"));
    }
    let bytes = body::read(request.into_body(), usize::MAX).await?;
    let sent = match json {
        true => body::parse_json(&bytes)?,
        false => LinkVerifyBody {
            token: parameter(&bytes, "token")?,
            email: parameter(&bytes, "email").ok().filter(|email| !email.is_empty()),
        },
    };
    let (token, typed) = (sent.token.clone(), sent.email.is_some());
    match use_link(&deps, &caller, sent.token, SuppliedProof::Browser { email: sent.email }).await {
        // The button was pressed in another browser or by a program. The page asks for the address,
        // and the link stays valid.
        Err(error) if form && error.code() == Code::EmailConfirmationRequired => {
            Ok(form_page(&deps, StatusCode::BAD_REQUEST, &token, PromptFor::Address))
        }
        Err(error) if form && typed && error.code() == Code::LinkInvalid => {
            Ok(form_page(&deps, StatusCode::UNAUTHORIZED, &token, PromptFor::AddressAgain))
        }
        outcome => answer(&deps, outcome, form),
    }
}

enum SuppliedProof {
    Console,
    Browser { email: Option<String> },
}

async fn use_link(
    deps: &AuthDeps,
    caller: &AnyCaller,
    token: String,
    proof: SuppliedProof,
) -> ApiResult<LinkOutcome> {
    let now = deps.clock.now();
    let client = caller.client().clone();
    let cookie = caller.magic_link_cookie().map(str::to_owned);
    let replaces = caller.session().map(|(_, cookie)| cookie.to_owned());
    deps.change(Lane::Account, move |identity| {
        let proof = match &proof {
            SuppliedProof::Console => LinkProof::Console,
            SuppliedProof::Browser { email } => {
                LinkProof::Browser { cookie: cookie.as_deref(), email: email.as_deref() }
            }
        };
        let attempt = LinkLogin { token: &token, proof, client: &client, replaces: replaces.as_deref() };
        identity.use_link(&attempt, now, &mut Entropy::system())
    })
    .await
}

/// Returns JSON for programs, and a redirect for browsers.
fn answer(deps: &AuthDeps, outcome: ApiResult<LinkOutcome>, html: bool) -> ApiResult<Response> {
    match outcome {
        Ok(outcome) if !html => Ok(deps.outcome(&outcome.login)),
        Ok(LinkOutcome { login: LoginOutcome::LoggedIn(login), redirect }) => {
            let to = redirect.as_deref().map(own_path).filter(|to| *to != "/");
            let to = to.map_or_else(|| deps.page("/"), str::to_owned);
            Ok(deps.with_session(&login, see_other(&to)))
        }
        Ok(LinkOutcome { login: LoginOutcome::NeedsCode(pending), redirect }) => {
            let to = redirect.as_deref().map_or("/", own_path);
            Ok(see_code_page(&pending, to))
        }
        Err(error) if html && error.code() == Code::LinkInvalid => {
            Ok(see_other(&deps.page(&format!("/login?error={}", error.code().as_str()))))
        }
        Err(error) => Err(error),
    }
}

fn accepts_html(headers: &HeaderMap) -> bool {
    headers
        .get(header::ACCEPT)
        .and_then(|value| value.to_str().ok())
        .is_some_and(|accept| accept.contains("text/html"))
}

/// Returns the value of a parameter that must occur exactly once.
fn parameter(encoded: &[u8], name: &'static str) -> ApiResult<String> {
    let mut found =
        form_urlencoded::parse(encoded).filter(|(key, _)| key == name).map(|(_, value)| value.into_owned());
    let value = found.next().ok_or_else(|| ApiError::invalid_parameter(name, "is missing"))?;
    match found.next() {
        None => Ok(value),
        Some(_) => {
            Err(ApiError::new(Code::DuplicateParameter, format!("the parameter {name:?} is given twice")))
        }
    }
}

/// The input that the page of a mailed link asks for beside its button.
#[derive(Clone, Copy, PartialEq, Eq)]
enum PromptFor {
    Nothing,
    /// The address, because another browser requested the link.
    Address,
    /// The address again. The page does not reveal whether the address was wrong or the link
    /// invalid.
    AddressAgain,
}

/// Returns a page with one button, and a field for the address if this browser did not request the
/// link. Works without scripts, in the style of the cabinet.
fn form_page(deps: &AuthDeps, status: StatusCode, token: &str, asks: PromptFor) -> Response {
    let own = |path: &str| escaped(&deps.page(path));
    let mut page = format!(
        "<!doctype html><html lang=\"en\"><head><meta charset=\"utf-8\"><title>Sign in · promlet</title>\
         <meta name=\"viewport\" content=\"width=device-width, initial-scale=1\">\
         <meta name=\"color-scheme\" content=\"light dark\"><link rel=\"icon\" href=\"{icon}\" type=\"image/svg+xml\">\
         <link rel=\"stylesheet\" href=\"{style}\"></head><body><main class=\"gate\">\
         <img class=\"mark\" src=\"{icon}\" alt=\"\" width=\"44\" height=\"44\"><section class=\"card\"><h1>Sign in to promlet</h1>",
        icon = own("/favicon.svg"),
        style = own("/app.css"),
    );
    if asks == PromptFor::Nothing {
        page.push_str("<p class=\"intro\">One click, and you are in.</p>");
    }
    // Relative to the page's own URL, so that any path prefix of a proxy is kept.
    page.push_str("<form class=\"stack\" method=\"post\" action=\"verify\">");
    let _ = write!(page, "<input type=\"hidden\" name=\"token\" value=\"{}\">", escaped(token));
    if asks == PromptFor::AddressAgain {
        page.push_str(
            "<p class=\"alert\" role=\"alert\">That link was not sent to this address, or it was used already, or it \
             expired.</p>",
        );
    }
    if asks != PromptFor::Nothing {
        page.push_str(
            "<div class=\"field\"><label for=\"email\">E-mail</label><input id=\"email\" type=\"email\" name=\"email\" \
             autocomplete=\"email\" aria-describedby=\"hint\" required autofocus><p class=\"hint\" id=\"hint\">You opened \
             the link in another browser: type the address it was sent to.</p></div>",
        );
    }
    let focus = if asks == PromptFor::Nothing { " autofocus" } else { "" };
    let _ = write!(page, "<button class=\"primary\"{focus}>Sign in</button></form></section>");
    page.push_str("<p class=\"foot\">promlet: metrics in one place</p></main></body></html>");
    let media = HeaderValue::from_static("text/html; charset=utf-8");
    (status, [(header::CONTENT_TYPE, media)], page).into_response()
}
