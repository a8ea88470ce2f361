//! Holds what a row of the route table asks of sessions, before its handler is reached: a refusal never depends on what the
//! body says, and a handler that forgets to look is not open.
//!
//! Tokens and keys are looked at by their extractors, which charge them, too; handlers still enter the organisation
//! themselves, because only that gives them access.

use std::sync::Arc;

use axum::extract::{FromRequestParts as _, Request};
use axum::http::request::Parts;
use axum::response::IntoResponse as _;

use super::callers::Cabinet;
use super::dispatch::{Handle, parameters};
use super::error::{ApiError, ApiResult, Code};
use super::routes::{Auth, Login};
use crate::identity::Role;

/// Whether a row of this kind is held here at all. What is not pays nothing: a guard is a box a request.
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

/// A handler that is reached by requests that fit its row.
pub(super) fn guarded(auth: Auth, handle: Handle) -> Handle {
    Arc::new(move |request: Request| {
        let handle = Arc::clone(&handle);
        Box::pin(async move {
            let (mut parts, body) = request.into_parts();
            match admit(auth, &mut parts).await {
                Ok(()) => handle(Request::from_parts(parts, body)).await,
                Err(refused) => refused.into_response(),
            }
        })
    })
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
        cabinet.enter(&slug(parts)?, role)?;
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
fn slug(parts: &Parts) -> ApiResult<String> {
    let slug = parameters(parts)?.into_iter().find(|(name, _)| *name == "slug");
    let unnamed = || ApiError::internal("a row asks for a member, but its path names no organisation");
    slug.map(|(_, slug)| slug.into_owned()).ok_or_else(unnamed)
}
