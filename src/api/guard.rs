//! Holds what a row of the route table asks of sessions, before its handler is reached: a refusal never depends on what the
//! body says, and a handler that forgets to look is not open.
//!
//! Tokens and keys are looked at by their extractors, which charge them, too; handlers still enter the organisation
//! themselves, because only that gives them access.

use axum::extract::{FromRequestParts as _, RawPathParams, Request, State};
use axum::http::request::Parts;
use axum::middleware::Next;
use axum::response::{IntoResponse as _, Response};

use super::callers::Cabinet;
use super::error::{ApiError, ApiResult, Code};
use super::routes::{Auth, Login};
use crate::identity::Role;

/// Whether a row of this kind is held here at all. What is not pays nothing: a guard is two boxes a request.
pub(super) const fn concerns(auth: Auth) -> bool {
    match auth {
        Auth::Account(_) | Auth::Member(..) | Auth::OneselfOr(_) | Auth::InstanceAdmin(_) | Auth::Founder => {
            true
        }
        Auth::Public
        | Auth::Reader(_)
        | Auth::MountReader(_)
        | Auth::Machine
        | Auth::Minter
        | Auth::Operator => false,
    }
}

/// Lets a request through that fits its row.
pub(super) async fn guard(State(auth): State<Auth>, request: Request, next: Next) -> Response {
    let (mut parts, body) = request.into_parts();
    match admit(auth, &mut parts).await {
        Ok(()) => next.run(Request::from_parts(parts, body)).await,
        Err(refused) => refused.into_response(),
    }
}

async fn admit(auth: Auth, parts: &mut Parts) -> ApiResult<()> {
    let (role, login) = match auth {
        Auth::Account(login) => (None, login),
        Auth::Member(role, login) => (Some(role), login),
        Auth::OneselfOr(_) => (Some(Role::Viewer), Login::Any),
        Auth::InstanceAdmin(login) => (None, login),
        Auth::Founder => (None, Login::Any),
        Auth::Public
        | Auth::Reader(_)
        | Auth::MountReader(_)
        | Auth::Machine
        | Auth::Minter
        | Auth::Operator => return Ok(()),
    };
    let cabinet = Cabinet::from_request_parts(parts, &()).await?;
    if let Some(role) = role {
        cabinet.enter(&slug(parts).await?, role)?;
    }
    if matches!(auth, Auth::InstanceAdmin(_)) && !cabinet.is_instance_admin()? {
        return Err(ApiError::new(Code::Forbidden, "this is for the administrator of the server"));
    }
    if login == Login::Fresh {
        cabinet.require_fresh()?;
    }
    Ok(())
}

/// The organisation in the path, decoded as handlers decode it.
async fn slug(parts: &mut Parts) -> ApiResult<String> {
    let undecodable = || ApiError::new(Code::BadRequest, "the path is not valid percent-encoded UTF-8");
    let params = RawPathParams::from_request_parts(parts, &()).await.map_err(|_| undecodable())?;
    let slug = params.iter().find(|(name, _)| *name == "slug").map(|(_, value)| value.to_owned());
    slug.ok_or_else(|| ApiError::internal("a row asks for a member, but its path names no organisation"))
}
