//! New accounts (docs/specification.md C2): the first of a server, and further ones where
//! `PROMLET_SIGNUP` is `open`.

use axum::extract::State;
use axum::http::StatusCode;
use axum::response::Response;
use serde::Deserialize;

use super::AuthDeps;
use super::mailed::MailAdmission;
use crate::api::body::Json;
use crate::api::callers::AnyCaller;
use crate::api::error::{ApiError, ApiResult, identity::slug};
use crate::api::lanes::Lane;
use crate::entropy::Entropy;
use crate::identity::{
    LINK_TTL, LinkProof, LinkRequest, NewAccount, NewOrg, Password, SetUp, SetUpError, SetUpPeer, SignupMail,
    SignupMode,
};
use crate::model::OrgSlug;
use crate::outbound::MailKind;

#[derive(Deserialize)]
pub(super) struct SignupBody {
    setup_token: Option<String>,
    email: String,
    password: Option<String>,
    name: Option<String>,
    org: Option<OrgBody>,
}

#[derive(Deserialize)]
struct OrgBody {
    slug: String,
    name: Option<String>,
}

impl OrgBody {
    fn checked(self) -> ApiResult<NewOrg> {
        let slug = OrgSlug::parse(&self.slug).map_err(|error| slug("org.slug", error))?;
        Ok(NewOrg { slug, name: self.name.unwrap_or_default() })
    }
}

/// Serves POST /auth/signup. Returns 201 and a session for the first account, afterwards 202 and a
/// mail, or 403 `signup_closed`.
pub(super) async fn signup(
    State(deps): State<AuthDeps>,
    caller: AnyCaller,
    Json(body): Json<SignupBody>,
) -> ApiResult<Response> {
    if !deps.identity.needs_setup() {
        return mail(&deps, &caller, &body.email).await;
    }
    let missing = |field| move || ApiError::invalid_field(field, "required", "the first account needs it");
    let password = body.password.ok_or_else(missing("password"))?;
    let org = body.org.ok_or_else(missing("org"))?.checked()?;
    let now = deps.clock.now();
    let client = caller.client().clone();
    let peer = if caller.is_local() { SetUpPeer::Local } else { SetUpPeer::Remote };
    let login = deps
        .change(Lane::Password, move |identity| {
            let request = SetUp {
                token: body.setup_token.as_deref(),
                peer,
                email: &body.email,
                password: Password(&password),
                name: body.name.as_deref().unwrap_or_default(),
                org,
                client: &client,
            };
            identity.set_up(&request, now, &mut Entropy::system())
        })
        .await?;
    Ok(deps.logged_in(StatusCode::CREATED, &login))
}

/// Mails a link that creates an account, or a notice that there is one. The response is the same.
async fn mail(deps: &AuthDeps, caller: &AnyCaller, email: &str) -> ApiResult<Response> {
    if deps.identity.signup_mode() != SignupMode::Open {
        return Err(SetUpError::Closed.into());
    }
    let mail_request = deps.mail_request(caller, email)?;
    let response = mail_request.accepted(deps, LINK_TTL);
    let admitted = mail_request.admitted;
    if admitted == MailAdmission::No {
        return Ok(response);
    }
    let now = deps.clock.now();
    let to = mail_request.email.clone();
    let mail = deps
        .change(Lane::Account, move |identity| {
            let request = LinkRequest {
                email: &mail_request.email,
                redirect: None,
                browser: Some(&mail_request.browser),
            };
            identity.request_signup(&request, now, &mut Entropy::system())
        })
        .await?;
    match mail {
        SignupMail::Link(link) => deps.send_link(MailKind::Signup, &link, admitted, now),
        SignupMail::Known if deps.admits(MailKind::SignupKnown, admitted) => {
            deps.notice(to.as_str(), MailKind::SignupKnown, now);
        }
        SignupMail::Known => {}
    }
    Ok(response)
}

#[derive(Deserialize)]
pub(super) struct CompleteBody {
    token: String,
    email: Option<String>,
    password: Option<String>,
    name: Option<String>,
    org: Option<OrgBody>,
}

/// Serves POST /auth/signup/complete. Returns 201 and a session. Another browser than the one that
/// requested the link must send the address.
pub(super) async fn complete(
    State(deps): State<AuthDeps>,
    caller: AnyCaller,
    Json(body): Json<CompleteBody>,
) -> ApiResult<Response> {
    let org = body.org.map(OrgBody::checked).transpose()?;
    let (client, now) = (caller.client().clone(), deps.clock.now());
    let cookie = caller.magic_link_cookie().map(str::to_owned);
    let replaces = caller.session().map(|(_, cookie)| cookie.to_owned());
    let outcome = deps
        .change(Lane::Password, move |identity| {
            let request = NewAccount {
                token: &body.token,
                proof: LinkProof::Browser { cookie: cookie.as_deref(), email: body.email.as_deref() },
                password: body.password.as_deref().map(Password),
                name: body.name.as_deref().unwrap_or_default().trim(),
                org,
                client: &client,
                replaces: replaces.as_deref(),
            };
            identity.complete_signup(&request, now, &mut Entropy::system())
        })
        .await?;
    Ok(deps.outcome_as(StatusCode::CREATED, &outcome))
}
