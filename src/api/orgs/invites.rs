//! The invitations of an organisation (docs/specification.md C3). `auth::invites` accepts them.

use axum::extract::{RawQuery, State};
use axum::http::StatusCode;
use axum::response::{IntoResponse, Response};
use serde::Deserialize;
use serde_json::{Value, json};

use super::OrgDeps;
use super::members::role;
use crate::api::body::Json;
use crate::api::callers::MemberCaller;
use crate::api::error::{ApiError, ApiResult};
use crate::api::listing::PageRequest;
use crate::api::params::PathOf;
use crate::api::routes::{Auth, Login, Routes};
use crate::api::views::link::invite_url;
use crate::entropy::Entropy;
use crate::identity::{
    Email, Identity, Invite, InviteError, InviteId, IssuedInvite, NewInvite, Role, SecretHash,
};
use crate::outbound::{Mail, MailKind, Mailer};

/// The routes, relative to `/api/v1`.
pub fn routes() -> Routes<OrgDeps> {
    Routes::new()
        .get(
            "/orgs/{slug}/invites",
            Auth::Member(Role::Admin, Login::Any),
            "List the open invitations of an organisation",
            list,
        )
        .post("/orgs/{slug}/invites", Auth::Member(Role::Admin, Login::Any), "Invite a mail address", create)
        .delete(
            "/orgs/{slug}/invites/{id}",
            Auth::Member(Role::Admin, Login::Any),
            "Revoke an invitation",
            revoke,
        )
}

async fn list(
    State(deps): State<OrgDeps>,
    caller: MemberCaller,
    RawQuery(query): RawQuery,
) -> ApiResult<Json<Value>> {
    let page = PageRequest::of_query(query.as_deref())?;
    let (org, now) = (caller.org().id, deps.clock.now());
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
struct InviteBody {
    email: String,
    role: String,
}

/// Creates an invitation (201). The response contains the link only if mails go to the console,
/// because a person then has to deliver it.
async fn create(
    State(deps): State<OrgDeps>,
    caller: MemberCaller,
    Json(body): Json<InviteBody>,
) -> ApiResult<Response> {
    let (actor, org) = (caller.user(), caller.org().id);
    let email = Email::parse(&body.email)
        .map_err(|error| ApiError::invalid_field("email", "form", error.to_string()))?;
    let role = role(&body.role)?;
    let mailed = !matches!(deps.mail.mailer(), Mailer::Console);
    if mailed {
        deps.limits.charge_invitation(org, actor, SecretHash::of(email.as_str()).0)?;
    }
    let (now, invite) = (deps.clock.now(), NewInvite { email, role, mailed });
    let create =
        move |identity: &Identity| identity.invite(Some(actor), org, invite, now, &mut Entropy::system());
    let issued = deps.change(&caller, create).await?;
    let url = invite_url(&deps.public_url, issued.token.expose());
    let mut answer = to_json(&issued.invite);
    match deps.mail.mailer() {
        Mailer::Console => answer["url"] = url.into(),
        Mailer::Smtp(_) | Mailer::Memory(_) => send(&deps, &issued, url, now),
    }
    Ok((StatusCode::CREATED, Json(answer)).into_response())
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
        tracing::warn!("cannot mail an invitation: the mail queue is full");
    }
}

async fn revoke(
    State(deps): State<OrgDeps>,
    caller: MemberCaller,
    PathOf((_, id)): PathOf<(String, String)>,
) -> ApiResult<StatusCode> {
    let id: InviteId = id.parse().map_err(|_| ApiError::from(InviteError::NotFound))?;
    let (actor, org, now) = (caller.user(), caller.org().id, deps.clock.now());
    deps.change(&caller, move |identity| identity.revoke_invite(Some(actor), org, id, now)).await?;
    Ok(StatusCode::NO_CONTENT)
}
