//! New accounts (docs/specification.md C2, signup): the first of a server, and later ones where `PROMLET_SIGNUP` is `open`.

use axum::extract::State;
use axum::http::StatusCode;
use axum::response::Response;
use serde::Deserialize;

use super::AuthDeps;
use super::mailed::Admitted;
use crate::api::body::Json;
use crate::api::callers::Visitor;
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

/// POST /auth/signup: 201 and a session for the first account; afterwards 202 and a mail, or 403 `signup_closed`.
pub(super) async fn signup(
    State(deps): State<AuthDeps>,
    visitor: Visitor,
    Json(body): Json<SignupBody>,
) -> ApiResult<Response> {
    if !deps.identity.needs_setup() {
        return mail(&deps, &visitor, &body.email).await;
    }
    let missing = |field| move || ApiError::invalid_field(field, "required", "the first account needs it");
    let password = body.password.ok_or_else(missing("password"))?;
    let org = body.org.ok_or_else(missing("org"))?.checked()?;
    let now = deps.clock.now();
    let client = visitor.client().clone();
    let peer = if visitor.is_local() { SetUpPeer::Local } else { SetUpPeer::Remote };
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

/// A link that makes an account, or word that there is one: the answer is the same.
async fn mail(deps: &AuthDeps, visitor: &Visitor, email: &str) -> ApiResult<Response> {
    if deps.identity.signup_mode() != SignupMode::Open {
        return Err(SetUpError::Closed.into());
    }
    let asked = deps.asked(visitor, email)?;
    let response = asked.accepted(deps, LINK_TTL);
    let admitted = asked.admitted;
    if admitted == Admitted::No {
        return Ok(response);
    }
    let now = deps.clock.now();
    let to = asked.email.clone();
    let mail = deps
        .change(Lane::Account, move |identity| {
            let request = LinkRequest { email: &asked.email, redirect: None, browser: Some(&asked.browser) };
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

/// POST /auth/signup/complete: 201 and a session; the address is retyped in another browser than the one that asked.
pub(super) async fn complete(
    State(deps): State<AuthDeps>,
    visitor: Visitor,
    Json(body): Json<CompleteBody>,
) -> ApiResult<Response> {
    let org = body.org.map(OrgBody::checked).transpose()?;
    let (client, now) = (visitor.client().clone(), deps.clock.now());
    let cookie = visitor.magic_link_cookie().map(str::to_owned);
    let replaces = visitor.session().map(|(_, cookie)| cookie.to_owned());
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
