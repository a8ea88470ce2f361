//! Invitations, from the side of the organisation (docs/specification.md C3). Accepting them is `auth::invites`.

use axum::extract::{RawQuery, State};
use axum::http::StatusCode;
use axum::response::{IntoResponse, Response};
use serde::Deserialize;
use serde_json::{Value, json};

use super::OrgDeps;
use super::members::role;
use crate::api::body::Json;
use crate::api::callers::SessionCaller;
use crate::api::error::{ApiError, ApiResult};
use crate::api::listing::PageRequest;
use crate::api::params::PathOf;
use crate::api::routes::{Auth, Login, Routes};
use crate::entropy::Entropy;
use crate::identity::{
    Email, Identity, Invite, InviteError, InviteId, IssuedInvite, NewInvite, Role, SecretHash,
};
use crate::outbound::{Mail, MailKind, Mailer};

/// Relative to `/api/v1`.
pub fn routes() -> Routes<OrgDeps> {
    Routes::new()
        .get(
            "/orgs/{slug}/invites",
            Auth::Member(Role::Admin, Login::Any),
            "The open invitations of an organisation",
            list,
        )
        .post("/orgs/{slug}/invites", Auth::Member(Role::Admin, Login::Any), "Invite an address", create)
        .delete(
            "/orgs/{slug}/invites/{id}",
            Auth::Member(Role::Admin, Login::Any),
            "Take an invitation back",
            revoke,
        )
}

async fn list(
    State(deps): State<OrgDeps>,
    cabinet: SessionCaller,
    PathOf(slug): PathOf<String>,
    RawQuery(query): RawQuery,
) -> ApiResult<Json<Value>> {
    let org = cabinet.enter(&slug, Role::Admin)?.org.id;
    let page = PageRequest::of_query(query.as_deref())?;
    let now = deps.clock.now();
    let read = move |identity: &Identity| {
        page.answer(&identity.invites(org, now)?, |invite| (invite.created_at, invite.id), to_json)
    };
    deps.read(org, read).await
}

fn to_json(invite: &Invite) -> Value {
    json!({
        "id": invite.id.to_string(),
        "email": invite.email.as_str(),
        "role": invite.role.as_str(),
        "invited_by": invite.invited_by.map(|user| user.to_string()),
        "created_at": invite.created_at.to_rfc3339(),
        "expires_at": invite.expires_at.to_rfc3339(),
    })
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct NewBody {
    email: String,
    role: String,
}

/// 201. The link itself is in the answer only where no mail leaves the machine: then somebody must carry it.
async fn create(
    State(deps): State<OrgDeps>,
    cabinet: SessionCaller,
    PathOf(slug): PathOf<String>,
    Json(body): Json<NewBody>,
) -> ApiResult<Response> {
    let org = cabinet.enter(&slug, Role::Admin)?.org.id;
    let email = Email::parse(&body.email)
        .map_err(|error| ApiError::invalid_field("email", "form", error.to_string()))?;
    let role = role(&body.role)?;
    let mailed = !matches!(deps.mail.mailer(), Mailer::Console);
    if mailed {
        deps.limits.charge_invitation(org, cabinet.user(), SecretHash::of(email.as_str()).0)?;
    }
    let (actor, now, wanted) = (cabinet.user(), deps.clock.now(), NewInvite { email, role, mailed });
    let issued = deps
        .change(move |identity| identity.invite(Some(actor), org, wanted, now, &mut Entropy::system()))
        .await?;
    let url = invite_url(&deps.public_url, issued.token.expose());
    let mut answer = to_json(&issued.invite);
    match deps.mail.mailer() {
        Mailer::Console => answer["url"] = url.into(),
        Mailer::Smtp(_) | Mailer::Memory(_) => send(&deps, &issued, url, now),
    }
    Ok((StatusCode::CREATED, Json(answer)).into_response())
}

/// The page that takes an invitation. Its token stands behind the `#`, so that no server and no log sees it.
pub fn invite_url(public_url: &str, token: &str) -> String {
    format!("{public_url}/invite#token={token}")
}

fn send(deps: &OrgDeps, issued: &IssuedInvite, url: String, now: crate::model::Timestamp) {
    let mail = Mail {
        to: issued.invite.email.as_str().to_owned(),
        kind: MailKind::Invite,
        url,
        expires_in: issued.expires_in,
        at: now,
    };
    if deps.mail.send(mail).is_err() {
        tracing::warn!("an invitation was not mailed: the mail queue is full");
    }
}

async fn revoke(
    State(deps): State<OrgDeps>,
    cabinet: SessionCaller,
    PathOf((slug, id)): PathOf<(String, String)>,
) -> ApiResult<StatusCode> {
    let org = cabinet.enter(&slug, Role::Admin)?.org.id;
    let id: InviteId = id.parse().map_err(|_| ApiError::from(InviteError::NotFound))?;
    let (actor, now) = (cabinet.user(), deps.clock.now());
    deps.change(move |identity| identity.revoke_invite(Some(actor), org, id, now)).await?;
    Ok(StatusCode::NO_CONTENT)
}
